//! Networks whose weights all go out, and come back elsewhere.

use sublet_core::trace::{Event, Op, Row};
use sublet_cuda::Program;

use super::fit::Trace;

const fn row(event: Event, block: u32, op: Op, bytes: u64, time_ns: u64) -> Row {
    Row { time_ns, bytes, block, op, event }
}

/// Weights that are updated in turn, then all away, and back elsewhere; `from` and `to` are where each one is.
pub(crate) fn program(sizes: &[u64], from: &[u64], to: &[u64], arena: u64) -> (Trace, Program) {
    let blocks = 0..u32::try_from(sizes.len()).unwrap();
    let none = |event, block: u32| row(event, block, Op::None, sizes[block as usize], 0);
    let rows: Vec<Row> = blocks.clone().map(|b| none(Event::Malloc, b)).collect();
    let update =
        |b: u32| [Event::Read, Event::Write].map(|event| row(event, b, Op::First(b), 0, 1000 * u64::from(b + 1)));
    let updates: Vec<Row> = blocks.clone().flat_map(update).collect();
    // The arena is as large as what else is in it: an activation.
    let other = u32::try_from(sizes.len()).unwrap();
    let (last, end) = (Op::First(other), 1000 * u64::from(other + 1));
    let activation = [
        row(Event::Malloc, other, last, arena, end),
        row(Event::Write, other, last, 0, end),
        row(Event::Free, other, Op::None, 0, end),
    ];
    let recorded = [rows.clone(), updates.clone(), activation.to_vec()].concat();
    let away = |b: u32| [none(Event::SwapOut, b), none(Event::Free, b)];
    let back = |b: u32| [none(Event::Malloc, b), none(Event::SwapIn, b)];
    let away: Vec<Row> = blocks.clone().flat_map(away).collect();
    let back: Vec<Row> = blocks.flat_map(back).collect();
    let mut rewritten = [rows, updates, away, activation.to_vec(), back].concat();
    rewritten.iter_mut().filter(|r| r.event != Event::Malloc).for_each(|r| r.bytes = 0);
    let mut now = 0;
    for r in &mut rewritten {
        now = now.max(r.time_ns);
        r.time_ns = now;
    }
    let trace = Trace { rows: recorded, operators: Vec::new(), blocks: sizes.len() + 1 };
    let offsets = [from, &[0], to].concat();
    let made = trace.verified(&rewritten, &offsets, |schedule| Program::new(&trace.recorded(), schedule, 256));
    (trace, made.unwrap().unwrap())
}
