//! Writes a script, an order of runs, recomputations and frees, as the rows of a trace.

use super::Step;
use crate::list::List;
use crate::rewrite::ids::BlockId;
use crate::rewrite::values::{Owner, Values};
use crate::rewrite::writer::Writer;
use crate::trace::{Event, Op, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace};

workspace! {
    pub(in crate::rewrite) struct Emitter<'a>(steps, blocks) {
        tables {
            /// For each step of the script, two links. They make linked lists of the frees that are written right after
            /// a step. The first link leads from a step to the first free of its list, the second from a free to the
            /// next free in the same list. A link is 1 + the index of a step in the script; 0 ends a list.
            freed: [u32; 2][steps],
            /// For each block, 1 + the index in the script of the last step so far that accesses it; 0 if none does.
            touched[BlockId]: u32[blocks],
        }
        records {
            /// For each block, whether it is on the device.
            there[BlockId]: bool[blocks],
            /// For each block, whether the operator that is written now leaves out its accesses to the block. That is
            /// so if the operator is recomputed, the operator both reads and writes the block, and the block is
            /// persistent, as a running mean is: to update it a second time would change its value.
            left_out[BlockId]: bool[blocks],
        }
    }
}

/// Writes to `out` the rows of a script of at most `steps` steps, each a run, a recomputation or a free, and returns
/// how many rows there are. Rows of a recomputation, and the mallocs and frees that the script adds, have the time of
/// the row that is written before them. A script may free a block late, only when memory runs out. The free is then
/// written earlier: right after the step that last accesses the block before the free. Nobody reads the value in
/// between, and the sooner a block is freed, the better the others can be placed.
///
/// # Errors
/// [`Error::BufferTooSmall`] if `out` is too short.
pub(in crate::rewrite) fn write(
    values: &Values<'_>,
    script: &List<'_, Step>,
    steps: usize,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<usize, Error> {
    let program = values.program;
    let mut writer = Writer::new(out);
    let mut emitter = Emitter::lend(steps, program.size.len(), &mut scratch);
    emitter.list_frees(values, script);
    let Emitter { freed, touched: _, there, left_out } = &mut emitter;
    for (i, step) in (0..).zip(script.iter()) {
        let Some((g, rerun)) = step.run() else { continue };
        let op = program.op(g);
        let op = if let (true, Op::First(k)) = (rerun, op) { Op::Rerun(k) } else { op };
        for r in values.references(g) {
            if r.writes && r.is_managed() && !there.get(r.block) {
                there.set(r.block, true);
                writer.event(Event::Malloc, r.block, program.size[r.block], op);
            }
            left_out.set(r.block, rerun && r.updated);
        }
        for r in program.rows_of(g) {
            let stays = match (r.event, values.owner(r.block_id())) {
                (Event::Malloc | Event::Free, Owner::Managed | Owner::Lasting) => false,
                (Event::Malloc | Event::Free, Owner::Recorded) => !rerun,
                (Event::Malloc | Event::Free, Owner::Local) => true,
                _ => !left_out.get(r.block_id()),
            };
            if stays && rerun {
                let op = if r.op == Op::None { Op::None } else { op };
                writer.event(r.event, r.block_id(), r.bytes, op);
            } else if stays {
                writer.push(r);
            }
        }
        let mut next = freed[i][0];
        while next > 0 {
            if let Some(Step::Free(block)) = script.at(next - 1) {
                there.set(block, false);
                writer.event(Event::Free, block, 0, Op::None);
            }
            next = freed[next - 1][1];
        }
    }
    writer.end()
}

impl Emitter<'_> {
    /// Fills `freed`, the lists of the frees that come right after each step of the script. A free comes after the last
    /// step before it that accesses its block.
    fn list_frees(&mut self, values: &Values<'_>, script: &List<'_, Step>) {
        let Self { freed, touched, .. } = self;
        for (i, step) in (0..).zip(script.iter()) {
            match step {
                Step::Run(g) | Step::Recompute(g) => values.references(g).for_each(|r| touched[r.block] = i + 1),
                Step::Free(block) => {
                    let after = touched[block].saturating_sub(1);
                    freed[i][1] = freed[after][0];
                    freed[after][0] = i + 1;
                }
            }
        }
    }
}
