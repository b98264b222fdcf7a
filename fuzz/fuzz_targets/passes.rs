//! The published passes on traces, good and bad: what they write is accepted by the verifier, and what they refuse is no
//! recording. Needs no plan: every stay has an address of its own, but for those that work in place.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sublet_core::rewrite::recompute::chen::{self, Cuts, Plan};
use sublet_core::rewrite::{in_place, layer, relu};
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::{self, Stay};
use sublet_core::trace::{Kind, Operator, Recorded, Row};
use sublet_core::verify::schedule::{self as verify, Room};
use sublet_core::{Block, Constraints, Error, WorkspaceLen};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::trace::Trace;
use sublet_fuzz::{number, schedule};

#[derive(Debug)]
struct Input {
    trace: Trace,
    operators: Vec<Operator>,
    plan: Plan,
    depth: u32,
    least_bytes: u64,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut operators = Vec::new();
        for _ in 0..u.int_in_range(0..=24)? {
            let kind = *u.choose(&[Kind::Other, Kind::Relu, Kind::ReluBackward])?;
            operators.push(Operator { in_place: u.arbitrary()?, again: u.ratio(3, 4)?, kind });
        }
        let cuts = *u.choose(&[Cuts::One, Cuts::Narrow])?;
        let plan = match u.int_in_range(0..=2)? {
            0 => Plan::Budget(number(u)?, cuts),
            1 => Plan::Recursive(u.int_in_range(0..=3)?, cuts),
            _ => Plan::Cheap,
        };
        Ok(Self { operators, plan, depth: u.int_in_range(0..=5)?, least_bytes: number(u)?, trace: u.arbitrary()? })
    }
}

/// The most block numbers that memory is lent for; beyond, a call has to be refused.
const MOST_BLOCKS: usize = 1 << 10;

fuzz_target!(|input: Input| {
    let Input { trace: Trace { rows, blocks }, operators, plan, depth, least_bytes } = input;
    if blocks > MOST_BLOCKS {
        return;
    }
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let sound =
        schedule::well_formed(&rows, blocks) && schedule::recorded(&rows) && accepted(&recorded, &rows, false).is_ok();
    let device = Device::symmetric(12e9);

    let dropped =
        run(chen::workspace(rows.len(), blocks, depth.max(1)), chen::most_rows(rows.len(), depth.max(1)), |s, out| {
            chen::rewrite(&recorded, plan, depth, s.lend(), out).map(|mirrored| mirrored.rows)
        });
    let layers = run(layer::workspace(rows.len(), blocks), layer::most_rows(&rows), |s, out| {
        layer::reuse(&recorded, &device, least_bytes, s.lend(), out).map(|(n, bytes)| {
            assert!(!sound || bytes.hybrid <= bytes.inter && bytes.intra <= bytes.separate, "{bytes:?}");
            n
        })
    });
    let masked = masks(&recorded, &rows);
    let over = over_inputs(&recorded, &rows);
    if !sound {
        // Whatever came out of what is no recording, nobody has to like it.
        return;
    }
    for (made, cyclic) in [(dropped, false), (layers, true), (masked, false), (over, false)] {
        let made = made.expect("a recording is rewritten");
        accepted(&recorded, &made, cyclic).unwrap_or_else(|e| panic!("{e}: {made:#?}"));
        let masked = masks(&recorded, &made).expect("a rewriting is rewritten");
        accepted(&recorded, &masked, cyclic).unwrap_or_else(|e| panic!("{e}: {masked:#?}"));
        let over = over_inputs(&recorded, &masked).expect("a rewriting is rewritten");
        accepted(&recorded, &over, cyclic).unwrap_or_else(|e| panic!("{e}: {over:#?}"));
    }
});

fn masks(recorded: &Recorded<'_>, rows: &[Row]) -> core::result::Result<Vec<Row>, Error> {
    run(relu::workspace(rows.len(), recorded.blocks), relu::most_rows(rows), |s, out| {
        relu::rewrite(recorded, rows, s.lend(), out)
    })
}

fn over_inputs(recorded: &Recorded<'_>, rows: &[Row]) -> core::result::Result<Vec<Row>, Error> {
    let len = in_place::workspace(recorded.rows.len(), rows.len(), recorded.blocks);
    run(len, in_place::most_rows(rows), |s, out| in_place::rewrite(recorded, rows, s.lend(), out))
}

/// Lends what is asked for; it has to be enough.
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

/// Whether the verifier accepts the rows.
fn accepted(recorded: &Recorded<'_>, rows: &[Row], cyclic: bool) -> core::result::Result<(), Error> {
    let (numbers, stays) = (2 * recorded.blocks, liveness::stays(rows));
    let (mut blocks, mut names) = (vec![Block::default(); stays], vec![Stay::default(); stays]);
    let mut part_of = vec![0; stays];
    let mut scratch =
        Scratch::of(liveness::workspace(numbers).max(liveness::merge_workspace(numbers)).max(verify::workspace(
            recorded.rows.len(),
            recorded.blocks,
            stays,
        )));
    liveness::lifetimes(rows, numbers, scratch.lend(), &mut blocks, &mut names)?;
    let merged = liveness::merge(rows, numbers, scratch.lend(), &mut blocks, &mut part_of)?;
    let mut offsets = vec![0; stays];
    let mut end = 0u64;
    for (block, offset) in blocks[..merged].iter().zip(&mut offsets) {
        *offset = end;
        end = end.checked_add(block.size).ok_or(Error::SizeOverflow { block: 0 })?;
    }
    liveness::spread(&part_of, &mut offsets);
    let mut timings = vec![Timing::default(); rows.len()];
    let device = (&Device::symmetric(12e9), cyclic);
    let room = Room { timings: &mut timings, blocks: &mut blocks, names: &mut names };
    verify::schedule(recorded, rows, &offsets, device, &Constraints::NONE, scratch.lend(), room).map(|_| ())
}
