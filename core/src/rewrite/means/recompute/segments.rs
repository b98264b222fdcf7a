//! Chen et al.'s plans of recomputation in segments, made into orders of runs, recomputations and frees. A segment is a
//! group of neighbouring operators of the forward pass. Values that are needed across the end of a segment are kept;
//! the others are freed, and recomputed a segment at a time in the backward pass. With these plans, recomputation is
//! never worse than the best of them.
//!
//! Paper: Chen et al. 2016, as in [`chen`]. The plans are those of [`Planner::each`], the last of which has no
//! segments.
//!
//! These plans take less time than what the [walk](super::walk) over the operators finds where recomputation has to
//! bring the load far down, as on transformers. BERT within half its memory, by swaps and recomputation, takes 42 %
//! longer than the original with these plans, and 164 % longer without. Of the plans within the limit the one that
//! takes least time is kept; of equal ones the first. Cost: O(plans · block accesses of their runs).

use super::{Recomputer, most_rows};
use crate::rewrite::published::chen::{self, Planner};
use crate::rewrite::script::follow::Follower;
use crate::{Error, Workspace, WorkspaceLen};

const DEPTH: u32 = 8;

pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    chen::planner_workspace(rows, blocks, DEPTH).and(Follower::workspace(most_rows(rows), blocks))
}

impl Recomputer<'_> {
    /// Bit n of `tried` leaves out plan n, in the order of [`Planner::each`].
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(in crate::rewrite) fn segments(
        &mut self,
        limit: u64,
        most: f64,
        tried: u64,
        mut scratch: Workspace<'_>,
    ) -> Result<Option<u32>, Error> {
        let values = self.values;
        let program = values.program;
        let steps = most_rows(program.rows.len());
        let mut follower = Follower::lend(steps, program.size.len(), &mut scratch);
        let mut scratch = scratch.reborrow();
        let mut planner = Planner::new(values, DEPTH, &mut scratch)?;
        let (mut least, mut number) = (None, 0);
        planner.each(&mut |mirror| {
            if tried >> number & 1 == 0 {
                let found = self.follow(&mut follower, mirror.runs(), limit);
                let found = found.filter(|found| found.excess == 0 && (found.delay as f64) < most);
                if let Some(found) = found.filter(|found| least.is_none_or(|(delay, _)| found.delay < delay)) {
                    least = Some((found.delay, number));
                    self.keep_script(follower.script());
                }
            }
            number += 1;
        })?;
        Ok(least.map(|(_, number)| number))
    }
}
