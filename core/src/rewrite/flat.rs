//! Any rewritten trace as if it had been recorded: what one pass has made becomes the trace that the next one reads.
//!
//! Each live range of a block becomes a block, and each run of an operator an operator, numbered in the order in which they
//! begin; tables lead back. Rows have the times of a run that waits for no copy. O(rows).

use crate::simulate::{self, Device, Timing};
use crate::trace::{Event, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen};

workspace! {
    /// The way back from a flat trace of at most so many rows.
    pub(super) struct Flat<'a>(rows) {
        tables {
            /// The operator of the trace before anything was recomputed, in or before which each row stands.
            operator: u32[rows],
        }
        lists {
            /// The block of each live range.
            block: u32[rows],
            /// The operator of each run: 2 · its number, and 1 if it was recomputed.
            op: u32[rows],
        }
    }
}

/// Length of the workspace that making one needs beside, for block numbers below `numbers`.
pub(super) const fn making_workspace(recorded_rows: usize, recorded_blocks: usize) -> WorkspaceLen {
    simulate::workspace(recorded_rows, recorded_blocks).max(WorkspaceLen { words: 0, indices: 2 * recorded_blocks })
}

impl<'a> Flat<'a> {
    /// Makes `rows`, a rewriting of `recorded` without copies, flat where they stand.
    ///
    /// # Errors
    /// As [`simulate::simulate`].
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
        // 1 + the live range that each block has.
        let mut range = scratch.indices(2 * recorded.blocks);
        let (mut previous, mut begun) = (Op::None, 0u32);
        let last = rows.len().saturating_sub(1);
        for (i, (row, r)) in (0u32..).zip(rows.iter_mut().enumerate()) {
            let end = timings.get(row).map_or(0.0, |t| t.end).max(if row == last { run.time_ns } else { 0.0 });
            // What is not there from the start must not look as if it were.
            let time_ns = (end as u64).max(u64::from(r.time_ns > 0));
            if r.event == Event::Malloc {
                flat.block.push(r.block);
                range[r.block] = flat.block.len();
            }
            let mut op = Op::None;
            if r.event.is_access() {
                let again = matches!(r.op, Op::Rerun(_));
                let begins = r.op != previous || r.op == Op::None;
                begun += u32::from(begins && !again);
                if let (true, Op::First(k) | Op::Rerun(k)) = (begins, r.op) {
                    flat.op.push(2 * k + u32::from(again));
                }
                previous = r.op;
                if r.op != Op::None {
                    op = Op::First(flat.op.len() - 1);
                }
            }
            // What is recomputed runs for the operator that comes.
            flat.operator[i] = begun - u32::from(begun > 0 && !matches!(r.op, Op::Rerun(_)) && r.event.is_access());
            *r = Row { time_ns, bytes: r.bytes, block: range[r.block].saturating_sub(1), op, event: r.event };
        }
        Ok(flat)
    }

    /// How many blocks the flat trace has.
    pub(super) fn blocks(&self) -> usize {
        usize::try_from(self.block.len()).unwrap_or(usize::MAX)
    }

    /// The block of the recording that a block is a live range of.
    pub(super) fn block(&self, block: u32) -> u32 {
        self.block.at(block).unwrap_or(0)
    }

    /// The operator of the trace before anything was recomputed, in or before which a row stands.
    pub(super) fn operator(&self, row: u32) -> u32 {
        self.operator[row]
    }

    /// Gives rows that were made from the flat ones the numbers of the recording.
    pub(super) fn restore(&self, rows: &mut [Row]) {
        for r in rows {
            r.block = self.block(r.block);
            if let Op::First(run) = r.op {
                let op = self.op.at(run).unwrap_or(0);
                r.op = if op.is_multiple_of(2) { Op::First(op / 2) } else { Op::Rerun(op / 2) };
            }
        }
    }
}
