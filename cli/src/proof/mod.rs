//! `sublet plan --proof`: a formula that says that a lower plan exists, and a proof that the formula has no solution.

mod refute;

use std::io::Write as _;

use sublet_core::{Block, Constraints};

use crate::args::{Effort, PlanArgs};
use crate::failure::Failure;
use crate::interrupt::Until;
use crate::output;
use crate::problem::Problem;
use refute::{End, Item, prove};

/// The most blocks of a proof.
const MOST_BLOCKS: usize = 64;
/// The most conflicts of the search by default.
const CONFLICTS: u64 = 50_000;
/// `--effort max` allows this many times as many conflicts.
const MOST_CONFLICTS: u64 = 8;

/// Refuses a problem that the formula cannot express, if a proof is asked for.
///
/// # Errors
/// What the formula cannot express.
pub(crate) fn check(args: &PlanArgs, problem: &Problem) -> Result<(), Failure> {
    let refused = |why: &str| Err(Failure::Usage(format!("--proof: {why}")));
    if args.proof.is_none() {
        Ok(())
    } else if problem.model.is_some() {
        refused("a proof is for the blocks of INPUT, and the plan of a model has others")
    } else if !problem.overlaps.is_empty() || problem.blocks.iter().any(|b| b.pin.is_some()) {
        refused("blocks that have their offsets already, or may overlap, are not in the formula")
    } else if problem.blocks.len() > MOST_BLOCKS {
        refused(&format!("{} blocks are too many, at most {MOST_BLOCKS} can be proved", problem.blocks.len()))
    } else {
        Ok(())
    }
}

/// Writes the proof that no plan fits in `capacity` bytes, if a proof is asked for; returns a sentence about the proof.
/// The time limit holds for the search for the proof once more.
///
/// # Errors
/// Files that cannot be written, and where no proof was found.
pub(crate) fn write(
    args: &PlanArgs,
    problem: &Problem,
    constraints: &Constraints,
    capacity: u64,
) -> Result<Option<String>, Failure> {
    let Some(name) = &args.proof else { return Ok(None) };
    let blocks = &problem.blocks;
    let load = |step: u32| blocks.iter().filter(|b| (b.start..b.end).contains(&step)).map(|b| b.size).sum::<u64>();
    if blocks.iter().any(|b| load(b.start) > capacity) {
        return Ok(Some("none is needed: the max load shows it, see --certificate".into()));
    }
    let item = |b: &Block| Item {
        start: b.start,
        end: b.end,
        size: b.size,
        alignment: b.alignment.max(constraints.alignment),
    };
    let items: Vec<Item> = blocks.iter().map(item).collect();
    let conflicts = if args.solve.effort == Effort::Max { MOST_CONFLICTS * CONFLICTS } else { CONFLICTS };
    let (mut formula, mut proof) = (Vec::new(), Vec::new());
    let until = Until::after(args.solve.time_limit);
    let end = prove(&items, capacity, conflicts, until, &mut formula, &mut proof)
        .map_err(|e| Failure::Usage(format!("the proof cannot be kept: {e}")))?;
    match end {
        End::Proved => {
            let files = [format!("{name}.opb"), format!("{name}.pbp")];
            for (file, content) in files.iter().zip([formula, proof]) {
                output::write(file, |out| out.write_all(&content))?;
            }
            Ok(Some(format!("no plan fits in {capacity}: veripb {} {}", files[0], files[1])))
        }
        End::Fits => Err(Failure::Unknown(format!(
            "no proof: blocks can be piled within {capacity}, if alignments are left out"
        ))),
        End::GivenUp if until.is_over() => Err(Failure::Unknown(format!(
            "no proof: when the time was up it was open whether a plan fits in {capacity}"
        ))),
        End::GivenUp => Err(Failure::Unknown(format!(
            "no proof: after {conflicts} conflicts it is open whether a plan fits in {capacity}; --effort max looks longer"
        ))),
    }
}
