//! Programs that take turns in one runtime: what persists goes on from where it was.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use crate::support::by_host;
use crate::support::fit::Trace;
use crate::support::hooked::{Fate, Hooked, Kind};
use crate::support::networks::{chain, chain_of};
use crate::support::pattern::Reference;

use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::storage::{Caching, Storage};
use sublet_cuda::{Error, Memory, Program, Runtime};

const LAYERS: u32 = 6;
const WEIGHT: u64 = 1024;

fn program(trace: &Trace, percent: u64) -> Program {
    let limit = trace.peak() * percent / 100;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

/// Another batch, recorded anew: its weights have other numbers.
fn other_batch() -> (Trace, HashMap<u32, u32>) {
    let Trace { mut rows, operators, blocks } = chain_of(LAYERS, WEIGHT, 4 * WEIGHT);
    let other = |block| if block < LAYERS { LAYERS - 1 - block } else { block };
    for r in &mut rows {
        r.block = other(r.block);
    }
    (Trace { rows, operators, blocks }, (0..LAYERS).map(|block| (block, other(block))).collect())
}

/// Trains by turns: with one batch and with another, with more memory and with less.
fn train<B: Backend + Clone>(mut runtime: Runtime<B>, small: &Trace) -> Result<(), Error> {
    let (large, was) = other_batch();
    let mut reference = Reference::new(small);
    reference.write(&mut runtime)?;
    assert_eq!(by_host::go_on(&mut runtime, &mut reference, 0..3)?, [] as [String; 0]);
    for (turn, percent) in [(1, 50), (2, 100), (3, 70)] {
        let from = 10 * turn;
        runtime.replan(program(&large, percent), |block| was.get(&block).copied())?;
        assert!(runtime.arena().1 >= runtime.program().arena_bytes());
        let mut other = reference.turned_into(&large, &was);
        assert_eq!(by_host::go_on(&mut runtime, &mut other, from..from + 3)?, [] as [String; 0], "turn {turn}");
        runtime.replan(program(small, 50), |block| was.get(&block).copied())?;
        reference = other.turned_into(small, &was);
        assert_eq!(by_host::go_on(&mut runtime, &mut reference, from + 5..from + 8)?, [] as [String; 0], "turn {turn}");
    }
    Ok(())
}

fn host(order: Order, memory: u64) -> HostBackend {
    HostBackend::new(Options { races: true, ..Options::new(Mode::Ordered(order), memory) })
}

#[test]
fn programs_take_turns_and_the_arena_grows_where_it_is() {
    let small = chain(LAYERS, WEIGHT);
    for order in [Order::Time, Order::Random(1), Order::Last(0), Order::Last(1), Order::Last(2)] {
        let host = host(order, 1 << 20);
        train(Runtime::new(host.clone(), program(&small, 50)).unwrap(), &small).unwrap();
        let mut runtime = Runtime::new(host.clone(), program(&small, 50)).unwrap();
        let (address, bytes) = runtime.arena();
        runtime.replan(program(&other_batch().0, 100), |_| None).unwrap();
        assert!(runtime.arena().0 == address && runtime.arena().1 > bytes);
        assert_eq!(host.races(), []);
        drop(runtime);
        assert_eq!(host.in_use(), InUse::default());
    }
}

/// The other program begins while iterations of the first one are under way.
#[test]
fn a_program_that_is_under_way_is_waited_for() {
    let small = chain(LAYERS, WEIGHT);
    let (large, was) = other_batch();
    for order in [Order::Time, Order::Random(1), Order::Last(0), Order::Last(1), Order::Last(2)] {
        for percent in [50, 70, 100] {
            let host = host(order, 1 << 20);
            let mut runtime = Runtime::new(host.clone(), program(&small, 60)).unwrap();
            let mut reference = Reference::new(&small);
            reference.write(&mut runtime).unwrap();
            let scratch = host.pin(runtime.program().arena_bytes()).unwrap();
            let launches = by_host::issue(&mut runtime, &mut reference, &scratch, 0..2).unwrap();
            runtime.replan(program(&large, percent), |block| was.get(&block).copied()).unwrap();
            let mut other = reference.turned_into(&large, &was);
            assert_eq!(by_host::go_on(&mut runtime, &mut other, 2..4), Ok(vec![]), "{order:?} {percent}");
            assert_eq!(launches.faults.lock().unwrap().as_slice(), [] as [String; 0]);
            assert_eq!(host.races(), [], "{order:?} {percent}");
        }
    }
}

#[test]
fn so_they_do_in_threads_that_wait_at_random() {
    let small = chain(LAYERS, WEIGHT);
    for seed in 0..3 {
        let mode = Mode::Threads { paced: false, delays: Some((seed, Duration::from_micros(20))) };
        let host = HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 20) });
        train(Runtime::new(host.clone(), program(&small, 50)).unwrap(), &small).unwrap();
        assert_eq!((host.races(), host.in_use()), (vec![], InUse::default()));
    }
}

#[test]
fn so_they_do_with_a_file() {
    let small = chain(LAYERS, WEIGHT);
    let host = host(Order::Random(2), 1 << 20);
    let storage = Storage::in_folder(&std::env::temp_dir(), Caching::Through).unwrap();
    let stream = host.stream().unwrap();
    train(Runtime::with_storage(host.clone(), program(&small, 50), stream, &storage).unwrap(), &small).unwrap();
    assert_eq!(host.races(), []);
    assert_eq!(host.in_use(), InUse::default());
}

#[test]
fn without_enough_memory_the_old_program_goes_on() {
    let small = chain(LAYERS, WEIGHT);
    let (large, was) = other_batch();
    let (before, after) = (program(&small, 50), program(&large, 100));
    let host = host(Order::Time, after.arena_bytes() - 1);
    let mut runtime = Runtime::new(host.clone(), before.clone()).unwrap();
    let mut reference = Reference::new(&small);
    reference.write(&mut runtime).unwrap();
    assert_eq!(by_host::go_on(&mut runtime, &mut reference, 0..2), Ok(vec![]));
    let (arena, needed) = (runtime.arena(), after.arena_bytes());
    let refused = runtime.replan(after.clone(), |block| was.get(&block).copied());
    // The addresses end where the device does.
    assert!(
        matches!(refused, Err(Error::OutOfMemory { memory: Memory::Device, bytes }) if bytes == needed),
        "{refused:?}"
    );
    assert_eq!(runtime.arena(), arena);
    assert_eq!(by_host::go_on(&mut runtime, &mut reference, 2..4), Ok(vec![]));
    // What is no persistent block, or one of another length.
    let wrong = |block, bytes| Err(Error::NotPersistent { block, bytes });
    assert_eq!(runtime.replan(before.clone(), |_| Some(LAYERS)), wrong(LAYERS, WEIGHT));
    let long = program(&chain(LAYERS, 2 * WEIGHT), 50);
    assert_eq!(runtime.replan(long, Some), wrong(0, 2 * WEIGHT));
    assert!(runtime.next().unwrap().is_some());
    assert_eq!(runtime.replan(before, Some), Err(Error::Interrupted));
}

/// Goes over with the call of this number failing, counted from the begin of the change; whether there was one.
fn fails_at(number: usize, small: &Trace) -> bool {
    let (large, was) = other_batch();
    let host = host(Order::Random(4), 1 << 20);
    let (calls, failed) = (Rc::new(Cell::new(None::<usize>)), Rc::new(Cell::new(false)));
    let (counted, noted) = (calls.clone(), failed.clone());
    let hooked = Hooked::new(host.clone(), move |kind| {
        let Some(call) = counted.get() else { return Fate::Made };
        counted.set(Some(call + 1));
        if call != number {
            return Fate::Made;
        }
        noted.set(true);
        Fate::Fails(match kind {
            Kind::Pin | Kind::Reserve | Kind::Grow => Error::OutOfMemory { memory: Memory::Device, bytes: 1 },
            _ => Error::Driver { call: "for the test", code: 400 },
        })
    });
    let mut runtime = Runtime::new(hooked, program(small, 50)).unwrap();
    let mut reference = Reference::new(small);
    reference.write(&mut runtime).unwrap();
    assert_eq!(by_host::go_on(&mut runtime, &mut reference, 0..2), Ok(vec![]));
    calls.set(Some(0));
    let outcome = runtime.replan(program(&large, 60), |block| was.get(&block).copied());
    calls.set(None);
    assert_eq!(outcome.is_err(), failed.get());
    match outcome {
        Ok(()) => {
            let mut other = reference.turned_into(&large, &was);
            assert_eq!(by_host::go_on(&mut runtime, &mut other, 2..4), Ok(vec![]));
        }
        // What was refused has changed nothing.
        Err(Error::OutOfMemory { .. }) => {
            assert_eq!(by_host::go_on(&mut runtime, &mut reference, 2..4), Ok(vec![]), "{number}");
        }
        // The runtime has one of the two programs, and can be used again.
        Err(_) => {
            runtime.restart().unwrap();
            let is_old = runtime.program().arena_bytes() == program(small, 50).arena_bytes();
            assert_eq!(by_host::run(&mut runtime, if is_old { small } else { &large }, 2), Ok(vec![]), "{number}");
        }
    }
    drop(runtime);
    assert_eq!((host.races(), host.in_use()), (vec![], InUse::default()), "{number}");
    failed.get()
}

#[test]
fn a_change_that_fails_leaves_a_runtime_that_can_be_used() {
    let small = chain(LAYERS, WEIGHT);
    let calls = (0..10_000).take_while(|&number| fails_at(number, &small)).count();
    assert!((41..10_000).contains(&calls), "{calls}");
}
