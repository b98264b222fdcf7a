//! The passes that rewrite traces, on valid and invalid traces: the verifier accepts what they write, and what they
//! refuse is no recording. Of the same rows with faults, the verifier says what a naive judge says.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_baselines::chen::{self, Cuts, Plan};
use sublet_baselines::layrub;
use sublet_core::rewrite::{in_place, mask};
use sublet_core::simulate::Device;
use sublet_core::trace::{Operator, Recorded, Row};
use sublet_core::{Constraints, Error, WorkspaceLen};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::trace::{Spoiled, Trace, operators};
use sublet_fuzz::{judge, naive, number, schedule};

#[derive(Debug)]
struct Input {
    trace: Trace,
    operators: Vec<Operator>,
    plan: Plan,
    depth: u32,
    least_bytes: u64,
    spoiled: Spoiled,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let operators = operators(u)?;
        let cuts = *u.choose(&[Cuts::One, Cuts::Narrow])?;
        let plan = match u.int_in_range(0..=2)? {
            0 => Plan::Budget(number(u)?, cuts),
            1 => Plan::Recursive(u.int_in_range(0..=3)?, cuts),
            _ => Plan::Cheap,
        };
        let (depth, least_bytes) = (u.int_in_range(0..=5)?, number(u)?);
        Ok(Self { operators, plan, depth, least_bytes, spoiled: u.arbitrary()?, trace: u.arbitrary()? })
    }
}

/// The most block numbers that memory is lent for; traces with more are not tried.
const MOST_BLOCKS: usize = 1 << 10;

sublet_fuzz::target!(|input: Input| {
    let Input { trace: Trace { rows, blocks }, operators, plan, depth, least_bytes, spoiled } = input;
    if blocks > MOST_BLOCKS {
        return;
    }
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let lives = judge::lifetimes(&rows, blocks);
    let sound = lives.is_ok_and(|(lives, _)| naive::plannable(&lives, 1))
        && schedule::recorded(&rows)
        && schedule::computes_the_same(&recorded, &rows, false).is_some();
    let device = Device::symmetric(12e9);

    let dropped = chen::rewrite(&recorded, plan, depth).map(|(rows, _)| rows);
    let layers = layrub::reuse(&recorded, &device, least_bytes).map(|(rows, bytes)| {
        assert!(!sound || bytes.hybrid <= bytes.inter && bytes.intra <= bytes.separate, "{bytes:?}");
        rows
    });
    let masked = masks(&recorded, &rows);
    let over = over_inputs(&recorded, &rows);
    if !sound {
        // The trace is no recording: what the passes make of it need not be valid.
        return;
    }
    for (made, cyclic) in [(dropped, false), (layers, true), (masked, false), (over, false)] {
        let made = made.expect("a recording is rewritten");
        accepted(&recorded, &made, cyclic);
        let masked = masks(&recorded, &made).expect("a rewriting is rewritten");
        accepted(&recorded, &masked, cyclic);
        let over = over_inputs(&recorded, &masked).expect("a rewriting is rewritten");
        accepted(&recorded, &over, cyclic);
        judge::compare(&recorded, &spoiled.of(&recorded, over), (&device, cyclic));
    }
});

fn masks(recorded: &Recorded<'_>, rows: &[Row]) -> core::result::Result<Vec<Row>, Error> {
    run(mask::workspace(rows.len(), recorded.blocks), mask::most_rows(rows), |s, out| {
        mask::rewrite(recorded, rows, s.lend(), out)
    })
}

fn over_inputs(recorded: &Recorded<'_>, rows: &[Row]) -> core::result::Result<Vec<Row>, Error> {
    let len = in_place::workspace(recorded.rows.len(), rows.len(), recorded.blocks);
    run(len, in_place::most_rows(rows), |s, out| in_place::rewrite(recorded, rows, s.lend(), out))
}

/// Runs a pass with the memory that it asks for, and asserts that this is enough. Returns the rows that the pass
/// writes.
fn run(
    len: WorkspaceLen,
    most_rows: usize,
    pass: impl FnOnce(&mut Scratch, &mut [Row]) -> core::result::Result<usize, Error>,
) -> core::result::Result<Vec<Row>, Error> {
    let mut out = vec![Row::default(); most_rows];
    let made = pass(&mut Scratch::of(len), &mut out);
    assert!(!matches!(made, Err(Error::BufferTooSmall { .. })), "{made:?}");
    out.truncate(made?);
    Ok(out)
}

/// Asserts that the verifier and the naive judge accept the rows.
fn accepted(recorded: &Recorded<'_>, rows: &[Row], cyclic: bool) {
    let offsets = judge::place(rows, 2 * recorded.blocks);
    let device = (&Device::symmetric(12e9), cyclic);
    let run = judge::judge(recorded, rows, &offsets, device, &Constraints::NONE);
    // The sizes may add up to more than 64 bits hold.
    assert!(matches!(run, Ok(_) | Err(Error::SizeOverflow { .. })), "{run:?}: {rows:#?}");
    let pairs = schedule::computes_the_same(recorded, rows, cyclic).unwrap_or_else(|| panic!("{rows:#?}"));
    assert!(pairs.iter().all(|&[giver, taker]| offsets[giver] == offsets[taker]), "{rows:#?}");
}
