//! Programs run with real bytes: every block is checked at each read.

mod support;

use std::time::Duration;

use support::fit::Trace;
use support::hooked::{Fate, Hooked, Kind};
use support::pattern;

use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{Program, Runtime};

/// A chain of layers, forward, backward and update.
fn chain(layers: u32, bytes: u64) -> Trace {
    let mut rows = Vec::new();
    let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
    for w in 0..layers {
        rows.push(row(0, Event::Malloc, w, bytes, Op::None));
    }
    let (activation, gradient) = (|i: u32| layers + i, |i: u32| 2 * layers + 1 + i);
    let mut now = 1;
    rows.push(row(now, Event::Malloc, activation(0), bytes, Op::None));
    rows.push(row(now, Event::Write, activation(0), 0, Op::None));
    for i in 0..layers {
        let op = Op::First(i);
        rows.push(row(now, Event::Malloc, activation(i + 1), bytes, op));
        rows.push(row(now, Event::Read, activation(i), 0, op));
        rows.push(row(now, Event::Read, i, 0, op));
        now += 20_000;
        rows.push(row(now, Event::Write, activation(i + 1), 0, op));
    }
    for i in (0..layers).rev() {
        let op = Op::First(2 * layers - i);
        rows.push(row(now, Event::Malloc, gradient(i), bytes, op));
        rows.push(row(now, Event::Read, activation(i), 0, op));
        rows.push(row(now, Event::Read, activation(i + 1), 0, op));
        rows.push(row(now, Event::Read, i, 0, op));
        if i + 1 < layers {
            rows.push(row(now, Event::Read, gradient(i + 1), 0, op));
        }
        now += 40_000;
        rows.push(row(now, Event::Write, gradient(i), 0, op));
        rows.push(row(now, Event::Write, i, 0, op));
        rows.push(row(now, Event::Free, activation(i + 1), 0, Op::None));
        if i + 1 < layers {
            rows.push(row(now, Event::Free, gradient(i + 1), 0, Op::None));
        }
    }
    rows.push(row(now, Event::Free, activation(0), 0, Op::None));
    rows.push(row(now, Event::Free, gradient(0), 0, Op::None));
    Trace { rows, operators: Vec::new(), blocks: (3 * layers + 1) as usize }
}

fn program(trace: &Trace, percent: u64) -> Program {
    let limit = trace.peak() * percent / 100;
    trace.fit(limit, Device::symmetric(12e9), |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap()).unwrap()
}

fn host(mode: Mode) -> HostBackend {
    HostBackend::new(Options { races: true, ..Options::new(mode, 1 << 30) })
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
        let found: Vec<_> = waits.iter().map(|&wait| without_wait(&trace, &program, wait, 4)).collect();
        let data = found.iter().filter(|(_, data)| *data).count();
        println!("{percent} %: {} waits, {data} seen in data", waits.len());
        assert!(found.iter().all(|(races, _)| *races), "{percent} %: {found:?}");
        // Old bytes can be the right ones by chance, where nobody has used the address in between.
        assert!(data * 20 >= waits.len() * 19, "{percent} %: {data} of {}", waits.len());
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
