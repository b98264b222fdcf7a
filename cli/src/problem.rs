//! The problem that every command works on, from whichever file.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;

use sublet_core::RowFault;
use sublet_core::place::Sweep;
use sublet_core::trace::{Event, Op, Operator, Recorded, Row, Tensor, liveness, liveness::Residency};
use sublet_core::verify::Violation;
use sublet_core::{Block, Constraints, Error, Overlap, VerifiedPlan, check_blocks, verify};

use crate::model::Model;
use crate::text::unit::Unit;
use sublet_core::owned::Scratch;

/// Blocks to place, with the names that plans call them by.
#[derive(Debug, Default)]
pub struct Problem {
    /// Where it came from: the file's name, or `-`.
    pub(crate) name: String,
    /// The blocks as placement gets them.
    pub(crate) blocks: Vec<Block>,
    /// The id of each block in a plan: the instance's id, the block of the trace, or `B#k` for its k-th later
    /// residency.
    pub(crate) ids: Vec<String>,
    /// The file's time of each step, ascending; empty where step `k` has the time `k` in the file too.
    pub(crate) times: Vec<u64>,
    /// The bank that each block has to lie in, where the instance has a column for it; empty where it has none.
    pub(crate) banks: Vec<Option<String>>,
    /// The trace that the blocks come from; none for an instance.
    pub(crate) trace: Option<Trace>,
    /// The outputs that a plan may lay over a part of a dying input; empty where none may.
    pub(crate) overlaps: Vec<Overlap>,
    /// What the reader passed over, a sentence each.
    pub(crate) notes: Vec<String>,
    /// The static graph that the blocks come from.
    pub(crate) graph: Option<Box<StaticGraph>>,
    /// The model that the blocks come from, and its file.
    pub(crate) model: Option<Box<(Model, Vec<u8>)>>,
}

/// The operators of a file, and its tensors.
#[derive(Debug, Default)]
pub(crate) struct StaticGraph {
    pub(crate) tensor_names: Vec<String>,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) operands: Vec<[Vec<u32>; 2]>,
    pub(crate) workspaces: Vec<u64>,
    pub(crate) times: Vec<u64>,
    pub(crate) names: Vec<String>,
    pub(crate) may: Vec<Operator>,
    pub(crate) lines: Vec<u64>,
    pub(crate) tells_rerun: bool,
}

/// One recorded iteration.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The rows; `Row::block` is an index into `names`.
    pub(crate) rows: Vec<Row>,
    /// The name of each block in the file.
    pub(crate) names: Vec<String>,
    /// The operators' names by their numbers; empty where no file tells them.
    pub(crate) op_names: Vec<String>,
    /// What each operator may do, by its number; empty where no file tells it.
    pub(crate) operators: Vec<Operator>,
    /// Whether a file says which operators may be recomputed.
    pub(crate) tells_rerun: bool,
}

impl Trace {
    /// The trace as core takes it.
    pub(crate) fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: &self.rows, operators: &self.operators, blocks: self.names.len() }
    }

    /// How long the iteration takes, in ns: the time of the last row. 0 if the input has no times.
    pub(crate) fn time_ns(&self) -> u64 {
        self.recorded().time_ns()
    }

    /// Makes every operator keep its place.
    pub(crate) fn keep_order(&mut self) {
        self.operators.iter_mut().for_each(|operator| operator.ordered = true);
    }

    /// By block: the operator of its first malloc, which may be none.
    pub(crate) fn allocators(&self) -> Vec<Op> {
        let mut ops = vec![Op::None; self.names.len()];
        // From the last to the first, so that the first one stays.
        for row in self.rows.iter().rev().filter(|row| row.event == Event::Malloc) {
            ops[row.block as usize] = row.op;
        }
        ops
    }
}

/// The first row of a trace that is wrong.
#[derive(Debug)]
pub(crate) struct BadRow {
    /// The row, counted from 0.
    pub(crate) row: u32,
    /// What is wrong with it.
    pub(crate) message: String,
}

impl Problem {
    /// What the reader passed over in the file, a sentence each: columns that nobody reads.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The blocks as placement gets them.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Verifies a plan. Its outputs may reach into inputs where the problem says so.
    pub(crate) fn verified<'a>(
        &'a self,
        offsets: &'a [u64],
        constraints: &Constraints,
        scratch: &mut Scratch,
    ) -> Result<VerifiedPlan<'a>, Error> {
        if self.overlaps.is_empty() {
            verify::verify(&self.blocks, offsets, constraints, scratch.lend())
        } else {
            verify::verify_overlapping(&self.blocks, &self.overlaps, offsets, constraints, scratch.lend())
        }
    }

    /// The max load; 0 if it exceeds 64 bits.
    pub(crate) fn max_load(&self) -> u64 {
        let mut scratch = Scratch::of(Sweep::workspace(self.blocks.len()));
        Sweep::new(&self.blocks, scratch.lend()).map_or(0, |sweep| sweep.max_load())
    }

    /// The problem of placing the blocks of a trace. `names` are the blocks' names by their numbers.
    ///
    /// # Errors
    /// The first row that cannot follow the rows before it, or whose block cannot be planned.
    pub(crate) fn of_trace(name: &str, rows: Vec<Row>, names: Vec<String>) -> Result<Self, BadRow> {
        let n = liveness::residencies(&rows);
        let (mut blocks, mut residencies) = (vec![Block::default(); n], vec![Residency::default(); n]);
        let mut scratch = Scratch::of(liveness::workspace(names.len()));
        liveness::lifetimes(&rows, names.len(), scratch.lend(), &mut blocks, &mut residencies).map_err(
            |e| match e {
                Error::Row { row, fault } => {
                    let block = rows.get(row as usize).and_then(|r| names.get(r.block as usize));
                    BadRow { row, message: explain_row(fault, block.map_or("?", String::as_str)) }
                }
                e => BadRow { row: 0, message: e.to_string() },
            },
        )?;
        let id = |residency: &Residency| match (&names[residency.block as usize], residency.ordinal) {
            (name, 0) => name.clone(),
            (name, k) => format!("{name}#{k}"),
        };
        let ids: Vec<String> = residencies.iter().map(id).collect();
        // `B#1` may be a block of that name, or the second residency of B, but not both.
        if names.iter().any(|name| name.contains('#')) {
            let mut seen = HashSet::new();
            if let Some(i) = ids.iter().position(|id| !seen.insert(id)) {
                let message = format!("a block and a later residency of another are both called {}", ids[i]);
                return Err(BadRow { row: blocks[i].start, message });
            }
        }
        let trace = Some(Trace { rows, names, ..Trace::default() });
        let problem = Self { name: name.into(), blocks, ids, trace, ..Self::default() };
        match check_blocks(&problem.blocks, 1) {
            Ok(_) => Ok(problem),
            Err(e @ Error::SizeOverflow { block }) => {
                let row = problem.blocks.get(block as usize).map_or(0, |b| b.start);
                Err(BadRow { row, message: problem.explain(&e) })
            }
            Err(e) => Err(BadRow { row: 0, message: problem.explain(&e) }),
        }
    }

    /// The file's name without its folder.
    pub(crate) fn title(&self) -> &str {
        Path::new(&self.name).file_name().and_then(OsStr::to_str).unwrap_or(&self.name)
    }

    /// The file's time of a step.
    pub(crate) fn time(&self, step: u32) -> u64 {
        self.times.get(step as usize).copied().unwrap_or(step.into())
    }

    /// The id of the block of this index.
    pub(crate) fn id(&self, block: u32) -> &str {
        self.ids.get(block as usize).map_or("?", String::as_str)
    }

    /// Explains an error, with the blocks' ids and the file's times in place of indices and steps.
    pub(crate) fn explain(&self, error: &Error) -> String {
        match *error {
            Error::Invalid(violation) => self.explain_violation(&violation),
            Error::OverCapacity { peak, lower_bound, capacity } => {
                let unit = Unit::for_largest(peak);
                let size = |bytes| unit.both(bytes);
                let [peak, lower_bound] = [size(peak), size(lower_bound)];
                if error.is_impossible() {
                    let found = "the best that was found takes";
                    format!(
                        "no plan fits within {}: every plan takes at least {lower_bound}; {found} {peak}",
                        size(capacity)
                    )
                } else {
                    format!(
                        "no plan within {} was found, and none is proved impossible; the best takes {peak}, and every plan at least \
                         {lower_bound}",
                        size(capacity)
                    )
                }
            }
            Error::Impossible { needed, limit } => {
                let unit = Unit::for_largest(needed.max(limit));
                let [needed, limit] = [needed, limit].map(|bytes| unit.both(bytes));
                format!(
                    "no schedule by these means within {limit} is possible: {needed} have to be on the device at once"
                )
            }
            Error::Alignment { block: Some(block), alignment } => {
                format!("block {} has the alignment {alignment}, which is not a power of two", self.id(block))
            }
            Error::ZeroSize { block } => format!("block {} has size 0; a block has at least one byte", self.id(block)),
            Error::EmptyLifetime { block, start, end } => format!(
                "block {} is alive from {} to {}, which is no time at all",
                self.id(block),
                self.time(start),
                self.time(end)
            ),
            Error::PinMisaligned { block, offset, alignment } => format!(
                "block {} is pinned at {offset}, which is not a multiple of its alignment {alignment}",
                self.id(block)
            ),
            Error::PinsOverlap { first, second } => format!(
                "the pinned blocks {} and {} are alive together and share an address",
                self.id(first),
                self.id(second)
            ),
            Error::SizeOverflow { block } => {
                format!(
                    "up to block {} the sizes, alignments and pins add up to more than 64 bits hold",
                    self.id(block)
                )
            }
            // By the block's name in the trace: a row knows no residency, and so no id of a plan.
            Error::Row { row, fault: fault @ RowFault::PersistentLate } => {
                let row_of = |t: &Trace| t.rows.get(row as usize).map(|r| t.names[r.block as usize].clone());
                format!("block {}: {fault}", self.trace.as_ref().and_then(row_of).unwrap_or_default())
            }
            ref other => other.to_string(),
        }
    }

    fn explain_violation(&self, violation: &Violation) -> String {
        match *violation {
            Violation::EndOverflow { block, offset } => {
                format!("block {} at offset {offset} ends beyond what 64 bits hold", self.id(block))
            }
            Violation::OverCapacity { block, end, capacity } => {
                format!("block {} ends at {end}, above the capacity {capacity}", self.id(block))
            }
            Violation::Overlap { first, second, step } => format!(
                "blocks {} and {} are both alive at {} and share an address",
                self.id(first),
                self.id(second),
                self.time(step)
            ),
            Violation::OverlapTooFar { output, input, distance } => format!(
                "block {} is written over block {} and begins less than {distance} bytes below it",
                self.id(output),
                self.id(input)
            ),
            Violation::Misaligned { block, offset, alignment } => {
                format!("block {} has the offset {offset}, which is not a multiple of {alignment}", self.id(block))
            }
            Violation::Moved { block, offset, pin } => {
                format!("block {} has the offset {offset}, but is pinned at {pin}", self.id(block))
            }
            ref other => other.to_string(),
        }
    }
}

fn explain_row(fault: RowFault, block: &str) -> String {
    match fault {
        RowFault::TimeBackwards => "expected a time that is not before that of the row above".into(),
        RowFault::AllocatedTwice => format!("block {block} is allocated, but it is allocated already"),
        RowFault::FreeWithoutMalloc => format!("block {block} is freed, but it is not allocated"),
        RowFault::AccessWithoutMalloc => format!("block {block} is accessed, but it is not allocated"),
        RowFault::SizeChanged => format!("block {block} is allocated again with another size than before"),
        other => other.to_string(),
    }
}
