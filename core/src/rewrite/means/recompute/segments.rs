//! Chen et al.'s segments as scripts, so that recomputation is never worse than the best of them.
//!
//! Paper: Chen et al. 2016, as in [`chen`]. The plans are those of [`Planner::each`].
//!
//! They are used in two ways. As they are: of those within the limit, the one that takes least time is kept. And as
//! advice to the walk: the values that a plan keeps across its cuts get a higher weight, so that the walk evicts others
//! first. Where memory is left, the walk evicts nothing, while a plan drops its values all the same. Of equal scripts
//! the first is kept. Cost: O(plans · references of their runs), and a walk for each plan.

use super::walk::Preference;
use super::{Recomputer, most_rows};
use crate::rewrite::published::chen::{self, Planner};
use crate::rewrite::script::Cost;
use crate::rewrite::script::follow::Follower;
use crate::table::Records;
use crate::{Error, Workspace, WorkspaceLen};

/// The most times that an operator is recomputed: more does not fit into a script.
const DEPTH: u32 = 8;

/// The weight of values that a plan keeps across its cuts; all others have weight 1.
const KEPT: f64 = 1000.0;
/// The preference of walks with these weights.
const PREFERENCE: Preference = Preference { distance: 2, owed: 1.0 };

/// Length of the workspace of [`Recomputer::segments`] and [`Recomputer::advised`].
pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let weights = WorkspaceLen { words: 2 * blocks, indices: 0 };
    chen::planner_workspace(rows, blocks, DEPTH).and(Follower::workspace(most_rows(rows), blocks).max(weights))
}

impl Recomputer<'_> {
    /// Makes the best script that the walk finds with the advice of a plan, by about `work`, if it is better than
    /// `least`, the cost of the best one found before. Returns the new script's cost, or `least`. The limit is in
    /// bytes.
    ///
    /// # Errors
    /// As [`chen::rewrite`].
    pub(in crate::rewrite) fn advised(
        &mut self,
        limit: u64,
        least: Option<Cost>,
        work: u64,
        mut scratch: Workspace<'_>,
    ) -> Result<Option<Cost>, Error> {
        let values = self.values;
        let blocks = values.program.size.len();
        let (mut before, mut best) = (Records::lend(blocks, &mut scratch), Records::lend(blocks, &mut scratch));
        before.copy_from(self.walk.weight());
        self.walk.keep_memory();
        self.walk.forget();
        self.walk.work = 0;
        let mut found = least;
        let mut scratch = scratch.reborrow();
        Planner::new(values, DEPTH, &mut scratch)?.each(&mut |mirror| {
            if self.walk.work > work || found == Some(Cost::default()) {
                return;
            }
            let weight = self.walk.weight();
            for block in (0..).take(blocks) {
                weight.set(block, if mirror.is_kept(block) { KEPT } else { 1.0 });
            }
            let most = match found {
                Some(Cost { excess: 0, delay }) => Cost { excess: 0, delay },
                _ => Cost::MOST,
            };
            let walked = self.walk.walk(PREFERENCE, limit, most);
            if let Some(walked) = walked.filter(|walked| found.is_none_or(|found| *walked < found)) {
                found = Some(walked);
                best.copy_from(self.walk.weight());
                self.keep();
            }
        })?;
        if found == least {
            self.walk.weight().copy_from(&before);
            self.walk.restore_memory();
            return Ok(least);
        }
        self.walk.weight().copy_from(&best);
        self.preference = PREFERENCE;
        Ok(found.map(|found| self.improve(found, limit, work)))
    }

    /// Keeps the fastest script of a plan within the limit in bytes as the best, and returns the plan's number. Plans
    /// that take `most` ns or more longer than the original do not count, nor those whose bit in `tried` is set.
    ///
    /// # Errors
    /// As [`chen::rewrite`].
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
