//! Lent memory of every length: if it is too short, the error tells a length that suffices; and what the memory holds
//! before a call does not matter.
#![cfg_attr(fuzzing, no_main)]

use std::fmt::Debug;

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::Buffer;
use sublet_core::place::{self, Sweep};
use sublet_core::rewrite;
use sublet_core::rewrite::fit::{self, Lengths, Output};
use sublet_core::simulate::{self, Device, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Recorded, Row};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Error, Workspace, WorkspaceLen};
use sublet_fuzz::blocks::{Attempt, Instance};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::trace::{Trace, device};

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Call {
    Place,
    LowerBound,
    Sweep,
    Verify,
    Lifetimes,
    Simulate,
    SwapBound,
    Schedule,
    Fit,
}

#[derive(Debug)]
struct Input {
    call: Call,
    lent: Lent,
    attempt: Attempt,
    device: Device,
    trace: Trace,
    instance: Instance,
}

/// How long the lent memory is, and the seed of its content. A length is this many 254ths of the length that is asked
/// for; 255 stands for that length and `more`.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Lent {
    words: u8,
    indices: u8,
    outputs: [u8; 5],
    more: u8,
    seed: u64,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (call, lent, attempt) = u.arbitrary()?;
        let device = device(u)?;
        let about_blocks = matches!(call, Call::Place | Call::LowerBound | Call::Sweep | Call::Verify);
        let (trace, instance) = if about_blocks {
            (Trace { rows: Vec::new(), blocks: 0 }, u.arbitrary()?)
        } else {
            let nothing = Instance { blocks: Vec::new(), constraints: Default::default() };
            (u.arbitrary()?, nothing)
        };
        Ok(Self { call, lent, attempt, device, trace, instance })
    }
}

sublet_fuzz::target!(|input: Input| {
    let Input { call, lent, attempt, device, trace, instance } = &input;
    let Trace { rows, blocks: numbers } = trace;
    // More block numbers than there is memory for are tried by the fuzz target `fit`.
    let numbers = (*numbers).min(1 << 10);
    let Instance { blocks, constraints } = instance;
    let n = blocks.len();
    let residencies = liveness::residencies(rows);
    match call {
        Call::Place => {
            let len = place::workspace_of(attempt.solver, n);
            lend(lent, len, &[(Buffer::Offsets, n)], |scratch, outputs, fill| {
                let mut offsets = vec![fill; outputs[0]];
                let options = attempt.options(*constraints);
                place::place(attempt.solver, blocks, &options, scratch, &mut offsets).map(|found| (found, offsets))
            });
        }
        Call::LowerBound => lend(lent, place::lower_bound_workspace(n), &[], |scratch, _, _| {
            place::lower_bound(blocks, constraints, scratch)
        }),
        Call::Sweep => lend(lent, Sweep::workspace(n), &[], |scratch, _, _| {
            let sweep = Sweep::new(blocks, scratch)?;
            let cliques: Vec<_> = sweep.cliques().take(n + 1).collect();
            let components: Vec<_> = sweep.components().take(n + 1).map(<[u32]>::to_vec).collect();
            let pairs: Vec<_> = sweep.colliding_pairs().take(n * n + 1).collect();
            assert!(cliques.len() <= n && components.len() <= n && pairs.len() <= n * n);
            let curve: Vec<_> = sweep.load_curve().take(2 * n + 1).collect();
            assert!(curve.len() <= 2 * n);
            Ok((cliques, components, pairs, curve, sweep.max_load()))
        }),
        Call::Verify => lend(lent, verify::workspace(n), &[(Buffer::Offsets, n)], |scratch, outputs, _| {
            // A plan that is made here: each block lies above the one before.
            let stack = blocks.iter().scan(0u64, |top, b| {
                let offset = b.pin.unwrap_or(*top).checked_next_multiple_of(b.alignment.max(1)).unwrap_or(0);
                *top = offset.saturating_add(b.size);
                Some(offset)
            });
            let offsets: Vec<u64> = stack.chain(std::iter::repeat(0)).take(outputs[0]).collect();
            verify::verify(blocks, &offsets, constraints, scratch).map(|plan| (plan.peak(), plan.max_load()))
        }),
        Call::Lifetimes => {
            let outputs = [(Buffer::Blocks, residencies), (Buffer::Blocks, residencies)];
            lend(lent, liveness::workspace(numbers), &outputs, |scratch, outputs, fill| {
                let mut lives = vec![Block::new(1, 2, fill); outputs[0]];
                let mut names = vec![Residency { block: fill as u32, ordinal: 7 }; outputs[1]];
                let found = liveness::lifetimes(rows, numbers, scratch, &mut lives, &mut names)?;
                Ok((found, lives[..found].to_vec(), names[..found].to_vec()))
            });
        }
        Call::Simulate => {
            lend(
                lent,
                simulate::workspace(rows.len(), numbers),
                &[(Buffer::Timings, rows.len())],
                |scratch, outputs, fill| {
                    let mut timings = filled_timings(outputs[0], fill);
                    let run = simulate::simulate(&Recorded::new(rows, numbers), rows, device, scratch, &mut timings)?;
                    Ok((run, timings))
                },
            );
        }
        Call::SwapBound => lend(lent, rewrite::least_load_workspace(rows.len(), numbers), &[], |scratch, _, _| {
            rewrite::least_load(rows, numbers, device, 0, scratch)
        }),
        Call::Schedule => {
            let outputs = [
                (Buffer::Timings, rows.len()),
                (Buffer::Blocks, residencies),
                (Buffer::Blocks, residencies),
                (Buffer::Offsets, residencies),
            ];
            lend(
                lent,
                verify::schedule_workspace(rows.len(), numbers, residencies),
                &outputs,
                |scratch, outputs, fill| {
                    let mut timings = filled_timings(outputs[0], fill);
                    let mut lives = vec![Block::new(3, 1, fill); outputs[1]];
                    let mut names = vec![Residency { block: fill as u32, ordinal: 7 }; outputs[2]];
                    let sizes = rows.iter().filter(|r| r.bytes > 0).scan(0u64, |top, r| {
                        let offset = *top;
                        *top = top.saturating_add(r.bytes);
                        Some(offset)
                    });
                    let offsets: Vec<u64> = sizes.chain(std::iter::repeat(0)).take(outputs[3]).collect();
                    let room = Room { timings: &mut timings, blocks: &mut lives, names: &mut names };
                    let recorded = Recorded::new(rows, numbers);
                    let device = (device, true);
                    let found = verify::schedule(&recorded, rows, &offsets, device, constraints, scratch, room)?;
                    Ok(format!("{found:?}"))
                },
            );
        }
        Call::Fit => {
            let lengths = Lengths::of(rows, numbers);
            let outputs = [
                (Buffer::Rows, lengths.rows),
                (Buffer::Timings, lengths.timings),
                (Buffer::Blocks, lengths.residencies),
                (Buffer::Blocks, lengths.residencies),
                (Buffer::Offsets, lengths.residencies),
            ];
            let load: u64 = rows.iter().fold(0, |sum, r| sum.saturating_add(r.bytes));
            let options = fit::Options {
                least_bytes: 0,
                seed: attempt.seed,
                work: attempt.nodes,
                ..fit::Options::new(load / 2, *device)
            };
            lend(lent, fit::workspace(rows.len(), numbers, lengths), &outputs, |scratch, outputs, fill| {
                let output = Output {
                    rows: &mut vec![Row { bytes: fill, ..Row::default() }; outputs[0]],
                    timings: &mut filled_timings(outputs[1], fill),
                    blocks: &mut vec![Block::new(3, 1, fill); outputs[2]],
                    names: &mut vec![Residency { block: fill as u32, ordinal: 7 }; outputs[3]],
                    offsets: &mut vec![fill; outputs[4]],
                };
                let fitted = fit::fit(&Recorded::new(rows, numbers), &options, scratch, output)?;
                Ok(format!("{fitted:?}"))
            });
        }
    }
});

fn filled_timings(len: usize, fill: u64) -> Vec<Timing> {
    vec![Timing { reached: f64::from_bits(fill), begin: 7.0, end: f64::NAN }; len]
}

/// Makes a call with memory of the lengths that are asked for, of other lengths, and with other content; compares the
/// results. `exact` are the lengths of the outputs. `call` gets the workspace, the lengths of the outputs, and a number
/// to fill them with.
fn lend<T: Debug>(
    lent: &Lent,
    len: WorkspaceLen,
    exact: &[(Buffer, usize)],
    mut call: impl FnMut(Workspace<'_>, &[usize], u64) -> std::result::Result<T, Error>,
) {
    // A NaN does not equal itself: so the results are compared as text.
    let mut call = |len: WorkspaceLen, outputs: &[usize], seed| {
        let mut scratch = Scratch::filled(len, seed);
        match call(scratch.lend(), outputs, seed) {
            Ok(found) => Ok(format!("{found:?}")),
            Err(e) => Err(e),
        }
    };
    let lengths: Vec<usize> = exact.iter().map(|&(_, len)| len).collect();
    let expected = call(len, &lengths, 0);
    assert!(!matches!(expected, Err(Error::BufferTooSmall { .. })), "{expected:?}");
    assert_eq!(call(len, &lengths, lent.seed), expected);
    let more = usize::from(lent.more);
    let longer = WorkspaceLen { words: len.words + more, indices: len.indices + more };
    assert_eq!(call(longer, &lengths, lent.seed), expected);

    let part = |of: usize, part: u8| if part == u8::MAX { of + more } else { of * usize::from(part) / 254 };
    let mut now = WorkspaceLen { words: part(len.words, lent.words), indices: part(len.indices, lent.indices) };
    let mut outputs: Vec<usize> = lengths.iter().zip(lent.outputs).map(|(&len, p)| part(len, p)).collect();
    // Each error tells a length that is too short, which is then made long enough.
    for _ in 0..2 + outputs.len() {
        let found = call(now, &outputs, lent.seed);
        let Err(Error::BufferTooSmall { buffer, needed, got }) = found else {
            assert_eq!(found, expected);
            let short = now.words < len.words || now.indices < len.indices;
            assert!(found.is_err() || !short, "{now:?} is enough, but {len:?} is asked for");
            return;
        };
        let mut mended = 0;
        let mut mend = |which: Buffer, length: &mut usize| {
            if which == buffer && *length == got && *length != needed {
                *length = needed;
                mended += 1;
            }
        };
        mend(Buffer::Words, &mut now.words);
        mend(Buffer::Indices, &mut now.indices);
        for (length, &(which, _)) in outputs.iter_mut().zip(exact) {
            mend(which, length);
        }
        assert!(mended > 0, "{buffer:?} {needed} {got}, {now:?} {outputs:?}");
        assert!(now.words <= longer.words && now.indices <= longer.indices, "{now:?} of {len:?}");
    }
    assert_eq!(call(now, &outputs, lent.seed), expected);
}
