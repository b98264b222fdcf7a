//! Recorded networks.

use sublet_core::trace::{Event, Op, Row};

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
