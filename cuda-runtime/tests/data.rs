//! Programs run with real bytes: every block is checked at each read.

mod support;

use support::fit::Trace;
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
