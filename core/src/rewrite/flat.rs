//! Turns a rewritten trace into one that looks as if it had been recorded, so that another pass can read it: after
//! recomputation, [`fit`](super::fit) plans swaps in such a trace.
//!
//! In a rewritten trace, a block may be freed and allocated again, and an operator may run again to recompute its
//! outputs. Here each live range of a block, from its malloc to its free, becomes a block of its own, and each run of
//! an operator an operator of its own. Both are numbered in the order in which they begin; tables lead back to the old
//! numbers. Each row gets the time at which it ends when the rewritten trace is simulated. Cost: O(rows).

use crate::simulate::{self, Device, Timing};
use crate::trace::{Event, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen};

workspace! {
    pub(super) struct Flat<'a>(rows) {
        lists {
            /// The original block of which the flat block is one live range.
            block: u32[rows],
            op: u32[rows],
            /// 1 for a recomputation, otherwise 0.
            rerun: u32[rows],
        }
    }
}

pub(super) const fn making_workspace(recorded_rows: usize, recorded_blocks: usize) -> WorkspaceLen {
    simulate::workspace(recorded_rows, recorded_blocks).max(WorkspaceLen { words: 0, indices: 2 * recorded_blocks })
}

impl<'a> Flat<'a> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    pub(super) fn new(
        recorded: &Recorded<'_>,
        rows: &mut [Row],
        device: &Device,
        timings: &mut [Timing],
        tables: &mut Workspace<'a>,
        mut scratch: Workspace<'_>,
    ) -> Result<Self, Error> {
        let run = simulate::simulate(recorded, rows, device, scratch.reborrow(), timings)?;
        let mut flat = Self::lend(rows.len(), tables);
        // For each block, masks too: 1 + the number of its latest live range.
        let mut range = scratch.indices(2 * recorded.blocks);
        let mut previous = Op::None;
        let last = rows.len().saturating_sub(1);
        for (row, r) in rows.iter_mut().enumerate() {
            let end = timings.get(row).map_or(0.0, |t| t.end).max(if row == last { run.time_ns } else { 0.0 });
            // A block that is allocated at time 0 and never freed counts as persistent. So a row that had a later time
            // must not get time 0.
            let time_ns = (end as u64).max(u64::from(r.time_ns > 0));
            if r.event == Event::Malloc {
                flat.block.push(r.block);
                range[r.block] = flat.block.len();
            }
            let mut op = Op::None;
            if r.event.is_access() {
                if let (true, Op::First(k) | Op::Rerun(k)) = (r.op != previous, r.op) {
                    flat.op.push(k);
                    flat.rerun.push(u32::from(matches!(r.op, Op::Rerun(_))));
                }
                previous = r.op;
                if r.op != Op::None {
                    op = Op::First(flat.op.len() - 1);
                }
            }
            *r = Row { time_ns, bytes: r.bytes, block: range[r.block].saturating_sub(1), op, event: r.event };
        }
        Ok(flat)
    }

    pub(super) fn blocks(&self) -> usize {
        usize::try_from(self.block.len()).unwrap_or(usize::MAX)
    }

    pub(super) fn block(&self, block: u32) -> u32 {
        self.block.at(block).unwrap_or(0)
    }

    pub(super) fn restore(&self, rows: &mut [Row]) {
        for r in rows {
            r.block = self.block(r.block);
            if let Op::First(run) = r.op {
                let op = self.op.at(run).unwrap_or(0);
                r.op = if self.rerun.at(run) == Some(1) { Op::Rerun(op) } else { Op::First(op) };
            }
        }
    }
}
