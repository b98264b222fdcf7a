//! Recorded networks.

use sublet_core::trace::{Event, Kind, Op, Operator, Row};

use super::fit::Trace;

/// A chain of layers, forward, backward and update.
pub(crate) fn chain(layers: u32, bytes: u64) -> Trace {
    chain_of(layers, bytes, bytes)
}

/// The same, whose weights are so many bytes each, and all else is as many as another batch has.
pub(crate) fn chain_of(layers: u32, weight: u64, bytes: u64) -> Trace {
    let mut rows = Vec::new();
    let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
    for w in 0..layers {
        rows.push(row(0, Event::Malloc, w, weight, Op::None));
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

/// A chain of layers that each end in a rectifier, forward and backward: its gradients can read masks.
pub(crate) fn rectified(layers: u32, bytes: u64) -> Trace {
    let (mut rows, mut operators) = (Vec::new(), Vec::new());
    let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
    let (linear, active, gradient) = (|i: u32| 1 + 2 * i, |i: u32| 2 + 2 * i, |i: u32| 2 * layers + 1 + i);
    rows.push(row(0, Event::Malloc, 0, bytes, Op::None));
    let mut now = 1;
    // An operator: what it reads, what it writes, what is freed after it.
    let mut run = |kind, read: &[u32], write: u32, freed: &[u32]| {
        let op = Op::First(u32::try_from(operators.len()).unwrap());
        rows.push(row(now, Event::Malloc, write, bytes, op));
        rows.extend(read.iter().map(|&b| row(now, Event::Read, b, 0, op)));
        now += 20_000;
        rows.push(row(now, Event::Write, write, 0, op));
        rows.extend(freed.iter().map(|&b| row(now, Event::Free, b, 0, Op::None)));
        operators.push(Operator { kind, ..Operator::default() });
    };
    for i in 0..layers {
        run(Kind::Other, &[if i == 0 { 0 } else { active(i - 1) }], linear(i), &[]);
        run(Kind::Relu, &[linear(i)], active(i), &[linear(i)]);
    }
    let last = gradient(layers - 1);
    run(Kind::ReluBackward, &[active(layers - 1)], last, &[active(layers - 1)]);
    for i in (0..layers - 1).rev() {
        run(Kind::ReluBackward, &[gradient(i + 1), active(i)], gradient(i), &[active(i), gradient(i + 1)]);
    }
    run(Kind::Other, &[gradient(0)], gradient(layers), &[gradient(0), gradient(layers)]);
    Trace { rows, operators, blocks: (3 * layers + 2) as usize }
}
