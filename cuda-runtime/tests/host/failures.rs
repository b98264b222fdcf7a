//! Every call fails once: there is an error, nothing hangs, nothing is left, and what is there can be used again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support::fit::Trace;
use crate::support::hooked::{Fate, Hooked, Kind};
use crate::support::networks::chain;
use crate::support::pattern;

use sublet_core::simulate::Device;
use sublet_core::trace::Event;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{Error, Memory, Program, Runtime};

fn program(trace: &Trace) -> Program {
    let limit = trace.peak() / 2;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

/// An offset for each block, one above the other.
fn stacked(trace: &Trace) -> Vec<u64> {
    let mallocs = trace.rows.iter().filter(|r| r.event == Event::Malloc);
    mallocs.scan(0, |top, r| Some(std::mem::replace(top, *top + r.bytes))).collect()
}

fn error(kind: Kind) -> Error {
    match kind {
        Kind::Reserve | Kind::Grow => Error::OutOfMemory { memory: Memory::Device, bytes: 1 },
        Kind::Pin => Error::OutOfMemory { memory: Memory::Pinned, bytes: 1 },
        _ => Error::Driver { call: "for the test", code: 400 },
    }
}

/// Trains with the call of this number failing; whether there was one.
fn fails_at(number: usize, mode: Mode, program: &Program, trace: &Trace) -> Option<Kind> {
    let host = HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 24) });
    let failed = Rc::new(Cell::new(None));
    let (mut calls, noted) = (0, failed.clone());
    let hooked = Hooked::new(host.clone(), move |kind| {
        calls += 1;
        if calls - 1 == number {
            noted.set(Some(kind));
            return Fate::Fails(error(kind));
        }
        Fate::Made
    });
    match Runtime::new(hooked, program.clone()) {
        Err(e) => assert_eq!(Some(e), failed.get().map(error)),
        Ok(mut runtime) => {
            if let Err(e) = pattern::run(&mut runtime, trace, 3) {
                assert_eq!(Some(e), failed.get().map(error));
                // From the beginning, in the same memory.
                runtime.restart().unwrap();
                assert_eq!(pattern::run(&mut runtime, trace, 3), Ok(vec![]), "{:?}", failed.get());
            }
        }
    }
    assert_eq!((host.in_use(), host.races()), (InUse::default(), vec![]), "{:?}", failed.get());
    failed.get()
}

#[test]
fn a_call_that_fails_is_an_error_and_the_arena_can_be_used_again() {
    let trace = chain(5, 512);
    let program = program(&trace);
    let threads = Mode::Threads { paced: false, delays: Some((1, Duration::from_micros(5))) };
    for (mode, every) in [(Mode::Ordered(Order::Random(3)), 1), (threads, 7)] {
        let mut kinds: Vec<Kind> =
            (0..).step_by(every).map_while(|number| fails_at(number, mode, &program, &trace)).collect();
        assert!(kinds.len() > 300 / every, "{}", kinds.len());
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        kinds.dedup();
        let [stream, event, record, wait] = [Kind::Stream, Kind::Event, Kind::Record, Kind::Wait];
        let others = [Kind::Reserve, Kind::Pin, Kind::Synchronize, Kind::CopyOut, Kind::CopyIn];
        let seen = |kind| kinds.contains(&kind);
        assert!(every > 1 || [stream, event, record, wait].into_iter().chain(others).all(seen), "{kinds:?}");
    }
}

#[test]
fn a_device_that_is_lost_is_an_error_and_nothing_is_left() {
    let trace = chain(5, 512);
    let program = program(&trace);
    let threads = Mode::Threads { paced: false, delays: None };
    for (mode, every) in [(Mode::Ordered(Order::Last(0)), 1), (threads, 5)] {
        for work in (0..150).step_by(every) {
            let host = HostBackend::new(Options::new(mode, 1 << 24));
            host.lose_after(work);
            let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
            let lost = Error::Lost { call: "work on a stream", code: 719 };
            // Three iterations are more work than that.
            assert_eq!(pattern::run(&mut runtime, &trace, 6), Err(lost.clone()), "{work}");
            assert_eq!(runtime.restart(), Err(lost.clone()));
            assert_eq!(runtime.next().map(drop), Err(Error::Interrupted));
            assert_eq!(runtime.read(0, &mut [0; 512]), Err(Error::Interrupted));
            drop(runtime);
            assert_eq!(host.in_use(), InUse::default());
        }
    }
}

#[test]
fn memory_runs_out_before_anything_runs() {
    let trace = chain(5, 512);
    let program = program(&trace);
    let (arena, pinned) = (program.arena_bytes(), program.host_bytes());
    let mode = Mode::Ordered(Order::Time);
    let device = |memory| HostBackend::new(Options::new(mode, memory));
    let tried = |host: HostBackend| {
        let outcome = Runtime::new(host.clone(), program.clone()).map(drop);
        assert_eq!(host.in_use(), InUse::default());
        outcome
    };
    assert_eq!(tried(device(arena)), Ok(()));
    let none = Error::OutOfMemory { memory: Memory::Device, bytes: arena };
    assert_eq!(tried(device(arena - 1)), Err(none));
    let jetson = Device { integrated: true, host_capacity: Some(0), ..Device::symmetric(12e9) };
    let host = HostBackend::new(Options { device: jetson, ..Options::new(mode, arena) });
    let refused = tried(host).unwrap_err();
    assert_eq!(refused, Error::HostIsDevice { bytes: pinned });
    assert!(refused.to_string().contains("swap to storage"));
    // What is not for blocks needs nothing of the host's capacity.
    let whole =
        trace.verified(&trace.rows, &stacked(&trace), |s| Program::new(&trace.recorded(), s, 1).unwrap()).unwrap();
    let host = HostBackend::new(Options { device: jetson, ..Options::new(mode, whole.arena_bytes()) });
    assert_eq!(Runtime::new(host, whole).map(drop), Ok(()));
}

#[test]
fn a_program_that_copies_cannot_take_over_where_copies_free_nothing() {
    let trace = chain(5, 512);
    let whole =
        trace.verified(&trace.rows, &stacked(&trace), |s| Program::new(&trace.recorded(), s, 1).unwrap()).unwrap();
    let swaps = program(&trace);
    let jetson = Device { integrated: true, host_capacity: Some(0), ..Device::symmetric(12e9) };
    let host = HostBackend::new(Options { device: jetson, ..Options::new(Mode::Ordered(Order::Time), 1 << 24) });
    let mut runtime = Runtime::new(host.clone(), whole.clone()).unwrap();
    assert_eq!(runtime.replan(swaps.clone(), Some), Err(Error::HostIsDevice { bytes: swaps.host_bytes() }));
    assert_eq!(pattern::run(&mut runtime, &trace, 2), Ok(vec![]));
    #[cfg(target_os = "linux")]
    {
        use sublet_cuda::backend::Backend;
        use sublet_cuda::storage::{Caching, Storage};
        let storage = Storage::in_folder(&std::env::temp_dir(), Caching::Through).unwrap();
        let mut runtime = Runtime::with_storage(host.clone(), whole, host.stream().unwrap(), &storage).unwrap();
        assert_eq!(runtime.replan(swaps, Some), Ok(()));
        assert_eq!(pattern::run(&mut runtime, &trace, 2), Ok(vec![]));
    }
}

#[test]
fn what_is_asked_at_the_wrong_time_is_refused() {
    let trace = chain(5, 512);
    let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 24));
    let mut runtime = Runtime::new(host, program(&trace)).unwrap();
    assert_eq!(runtime.measured(), Err(Error::NotTimedYet));
    let wrong = |block, bytes| Err(Error::NotPersistent { block, bytes });
    assert_eq!(runtime.write(0, &[0; 511]), wrong(0, 511));
    assert_eq!(runtime.read(7, &mut [0; 512]), wrong(7, 512));
    assert!(runtime.next().unwrap().is_some());
    assert_eq!(runtime.write(0, &[0; 512]), Err(Error::Interrupted));
    assert_eq!(runtime.measure(), Err(Error::Interrupted));
    assert_eq!(runtime.iterate(|_| Ok::<(), Error>(())), Err(Error::Interrupted));
    // A launch that fails ends the iteration.
    runtime.restart().unwrap();
    let mine = Error::Driver { call: "mine", code: 1 };
    assert_eq!(runtime.iterate(|_| Err(mine.clone())), Err(mine));
    assert_eq!(runtime.next().map(drop), Err(Error::Interrupted));
}

#[test]
fn blocks_that_no_memory_holds_are_refused_and_nothing_panics() {
    for bytes in [1 << 50, 1 << 58] {
        let trace = chain(5, bytes);
        let program = program(&trace);
        let host = HostBackend::new(Options::new(Mode::Ordered(Order::Time), 1 << 24));
        let made = Runtime::new(host.clone(), program).map(drop);
        assert!(matches!(made, Err(Error::OutOfMemory { .. })), "{made:?}");
        assert_eq!(host.in_use(), InUse::default());
    }
}
