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
            /// Lists of frees: step to first free, free to next free. A link is 1 + an index; 0 ends a list.
            freed: [u32; 2][steps],
            /// 1 + the index of the last step that accesses the block; 0 if none does.
            touched[BlockId]: u32[blocks],
        }
        records {
            on_device[BlockId]: bool[blocks],
            /// A recomputation must not update a persistent block, such as a running mean, a second time.
            left_out[BlockId]: bool[blocks],
        }
    }
}

/// A late free moves to right after its block's last access: the others can be placed better.
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
    let Emitter { freed, touched: _, on_device, left_out } = &mut emitter;
    for (i, step) in (0..).zip(script.iter()) {
        let Some((g, rerun)) = step.run() else { continue };
        let op = program.op(g);
        let op = if let (true, Op::First(k)) = (rerun, op) { Op::Rerun(k) } else { op };
        for r in values.references(g) {
            if r.writes && r.is_managed() && !on_device.get(r.block) {
                on_device.set(r.block, true);
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
                on_device.set(block, false);
                writer.event(Event::Free, block, 0, Op::None);
            }
            next = freed[next - 1][1];
        }
    }
    writer.end()
}

impl Emitter<'_> {
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
