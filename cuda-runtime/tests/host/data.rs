//! Programs run with real bytes: every block is checked at each read.

use std::time::Duration;

use crate::support::by_host;
use crate::support::fit::Trace;
use crate::support::hooked::{Fate, Hooked, Kind};
use crate::support::networks::{chain, rectified};
use crate::support::pattern::{self, Reference};

use sublet_core::rewrite::fit::{Means, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::Event;
use sublet_cuda::backend::Backend;
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{ALIGNMENT, Error, Program, Runtime};

fn program(trace: &Trace, percent: u64) -> Program {
    let limit = trace.peak() * percent / 100;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

fn host(mode: Mode) -> HostBackend {
    HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 24) })
}

#[test]
fn a_swapped_chain_computes_what_the_chain_computes() {
    let trace = chain(8, 4096);
    for percent in [100, 70, 50] {
        let program = program(&trace, percent);
        assert!(program.arena_bytes() <= trace.peak() * percent / 100);
        assert_eq!(program.host_bytes() > 0, percent < 100);
        let orders = [Order::Time, Order::Random(1), Order::Random(2), Order::Last(0), Order::Last(1), Order::Last(2)];
        for order in orders {
            let host = host(Mode::Ordered(order));
            let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
            let faults = pattern::run(&mut runtime, &trace, 5).unwrap();
            assert!(faults.is_empty(), "{percent} %, {order:?}: {faults:#?}");
            assert_eq!(host.races(), [], "{percent} %");
            drop(runtime);
            assert_eq!(host.in_use(), InUse::default());
        }
    }
}

/// What is found wrong with this wait of the run left out: races, and data in some order.
fn without_wait(trace: &Trace, program: &Program, left_out: usize, iterations: u64) -> (bool, bool) {
    let (mut races, mut data) = (false, false);
    for order in [Order::Last(0), Order::Last(1), Order::Last(2)] {
        let host = host(Mode::Ordered(order));
        let mut waits = 0;
        let hooked = Hooked::new(host.clone(), move |kind| {
            waits += usize::from(kind == Kind::Wait);
            if kind == Kind::Wait && waits - 1 == left_out { Fate::LeftOut } else { Fate::Made }
        });
        let mut runtime = Runtime::new(hooked, program.clone()).unwrap();
        let faults = pattern::run(&mut runtime, trace, iterations).unwrap();
        data |= !faults.is_empty();
        races |= !host.races().is_empty();
    }
    (races, data)
}

#[test]
fn without_any_of_its_waits_a_program_is_wrong() {
    let trace = chain(8, 512);
    for percent in [70, 50] {
        let program = program(&trace, percent);
        let first = program.wait_count(0) + program.wait_count(1);
        // The waits of the first iteration, and those of one of which nothing changes any more.
        let waits: Vec<usize> = (0..program.wait_count(0)).chain(first..first + program.wait_count(2)).collect();
        assert!(waits.len() > 20, "{}", waits.len());
        assert_eq!(without_wait(&trace, &program, usize::MAX, 4), (false, false));
        let found: Vec<_> = waits.iter().map(|&wait| without_wait(&trace, &program, wait, 4)).collect();
        let data = found.iter().filter(|(_, data)| *data).count();
        println!("{percent} %: {} waits, {data} seen in data", waits.len());
        assert!(found.iter().all(|(races, _)| *races), "{percent} %: {found:?}");
        // Old bytes can be the right ones by chance, where nobody has used the address in between.
        assert!(data * 20 >= waits.len() * 19, "{percent} %: {data} of {}", waits.len());
    }
}

/// A value that is written while iterations are under way is not overwritten by them.
#[test]
fn what_is_written_comes_after_the_work_that_is_under_way() {
    let trace = chain(6, 1024);
    for (percent, order) in
        [50, 70].into_iter().flat_map(|percent| (0..3).map(move |lane| (percent, Order::Last(lane))))
    {
        let program = program(&trace, percent);
        for block in program.persistent_blocks() {
            let host = host(Mode::Ordered(order));
            let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
            let mut reference = Reference::new(&trace);
            reference.write(&mut runtime).unwrap();
            let scratch = host.pin(program.arena_bytes()).unwrap();
            by_host::issue(&mut runtime, &mut reference, &scratch, 0..2).unwrap();
            let (mut given, mut held) = ([0; 1024], [0; 1024]);
            pattern::fill(u64::from(block) + 1, &mut given);
            runtime.write(block, &given).unwrap();
            runtime.read(block, &mut held).unwrap();
            assert_eq!(pattern::number(&held), pattern::number(&given), "{percent} %, {order:?}, {block}");
            assert_eq!(host.races(), []);
        }
    }
}

#[test]
fn threads_that_wait_at_random_change_nothing() {
    let trace = chain(8, 4096);
    for percent in [70, 50] {
        let program = program(&trace, percent);
        for seed in 0..4 {
            let delays = Some((seed, Duration::from_micros(40)));
            let host = host(Mode::Threads { paced: false, delays });
            let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
            let faults = pattern::run(&mut runtime, &trace, 20).unwrap();
            assert!(faults.is_empty(), "{percent} %, {seed}: {faults:#?}");
            assert_eq!(host.races(), [], "{percent} %");
            drop(runtime);
            assert_eq!(host.in_use(), InUse::default());
        }
    }
}

#[test]
fn odd_sizes_run_where_they_are_fitted_to_the_alignment_of_the_device() {
    let using = Using::NONE.with(Means::Swap).with(Means::Relu);
    let sizes = [1000, 4100, 25_600, 100_352];
    let networks = sizes.into_iter().flat_map(|bytes| [(bytes, chain(6, bytes)), (bytes, rectified(6, bytes))]);
    let (mut masks, mut refused) = (0, 0);
    for (bytes, trace) in networks {
        let fit = |alignment| {
            let limit = trace.peak() * 7 / 10;
            let made = trace.fit_aligned(using, alignment, limit, Device::symmetric(12e9), |schedule| {
                let masks =
                    schedule.rows().iter().filter(|r| r.event == Event::Malloc && r.block as usize >= trace.blocks);
                (masks.count(), Program::new(&trace.recorded(), schedule, ALIGNMENT))
            });
            made.unwrap_or_else(|e| panic!("blocks of {bytes} bytes: {e}"))
        };
        let (count, program) = fit(ALIGNMENT);
        masks += count;
        let host = host(Mode::Ordered(Order::Random(1)));
        let mut runtime = Runtime::new(host.clone(), program.unwrap()).unwrap();
        let faults = pattern::run(&mut runtime, &trace, 3).unwrap();
        assert!(faults.is_empty(), "{bytes}: {faults:#?}");
        assert_eq!(host.races(), [], "{bytes}");
        // The control: nobody asks the fit for the alignment.
        refused += usize::from(matches!(fit(1).1, Err(Error::Misaligned { .. })));
    }
    assert!(masks > 0 && refused >= 5, "{masks} masks, {refused} of 8 refused without alignment");
}
