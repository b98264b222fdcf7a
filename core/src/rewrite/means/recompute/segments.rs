//! The published segments as scripts, so that the best of them is one of those that are chosen from.
//!
//! Paper: Chen et al. 2016, as in [`chen`]. The plans are those of [`Planner::each`].
//!
//! They are used twice. As they are: of those within the limit the one with the least time is kept. And as advice to the
//! walk: what a plan keeps across its cuts weighs more, so that between two of them the walk evicts all, and nowhere else;
//! where memory is left it evicts nothing, which the plans cannot. Of equals the first. O(plans · references of their
//! runs), and a walk for each.

use super::Recomputer;
use super::walk::follow::Lists;
use super::walk::{Preference, Walked};
use crate::rewrite::published::chen::{self, Planner};
use crate::table::Records;
use crate::trace::Recorded;
use crate::{Error, Workspace, WorkspaceLen};

/// So often an operator is recomputed at most: more does not fit into a script.
const DEPTH: u32 = 8;

/// How much more weighs what is kept across cuts, and how the walk chooses then.
const KEPT: f64 = 1000.0;
const PREFERENCE: Preference = Preference { distance: 2, owed: 1.0 };

/// Length of the workspace of [`Recomputer::segments`] and [`Recomputer::advised`].
pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let weights = WorkspaceLen { words: 2 * blocks, indices: 0 };
    chen::planner_workspace(rows, blocks, DEPTH).and(Lists::workspace(rows, blocks).max(weights))
}

impl Recomputer<'_> {
    /// Makes the best script that the walk finds with the advice of a published plan, by about `work`, if it is better than
    /// `least`, which was found before; what that comes to, or `least`.
    ///
    /// # Errors
    /// As [`chen::rewrite`].
    pub(in crate::rewrite) fn advised(
        &mut self,
        recorded: &Recorded<'_>,
        limit: u64,
        least: Option<Walked>,
        work: u64,
        mut scratch: Workspace<'_>,
    ) -> Result<Option<Walked>, Error> {
        let values = self.values;
        let blocks = values.program.size.len();
        let (mut before, mut best) = (Records::lend(blocks, &mut scratch), Records::lend(blocks, &mut scratch));
        before.copy_from(self.walk.weight());
        self.walk.keep_memory();
        self.walk.forget();
        self.walk.work = 0;
        let mut found = least;
        let mut scratch = scratch.reborrow();
        Planner::new(recorded, values.program, DEPTH, &mut scratch)?.each(&mut |mirror| {
            if self.walk.work > work || found == Some(Walked::default()) {
                return;
            }
            let weight = self.walk.weight();
            for block in (0..).take(blocks) {
                weight.set(block, if mirror.is_kept(block) { KEPT } else { 1.0 });
            }
            let most = match found {
                Some(Walked { excess: 0, delay }) => Walked { excess: 0, delay },
                _ => Walked::ANY,
            };
            let walked = self.walk.walk(PREFERENCE, limit, most);
            if let Some(walked) = walked.filter(|walked| found.is_none_or(|found| *walked < found)) {
                found = Some(walked);
                best.copy_from(self.walk.weight());
                self.keep();
            }
        });
        if found == least {
            self.walk.weight().copy_from(&before);
            self.walk.restore_memory();
            return Ok(least);
        }
        self.walk.weight().copy_from(&best);
        self.preference = PREFERENCE;
        Ok(found.map(|found| self.improve(found, limit, work)))
    }

    /// Keeps the script of that plan as the best which takes the least time of those within the limit. Plans that take
    /// `most` ns or more, and those that are `tried`, a bit for each, do not count. Tells its number.
    ///
    /// # Errors
    /// As [`chen::rewrite`].
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(in crate::rewrite) fn segments(
        &mut self,
        recorded: &Recorded<'_>,
        limit: u64,
        most: f64,
        tried: u64,
        mut scratch: Workspace<'_>,
    ) -> Result<Option<u32>, Error> {
        let values = self.values;
        let program = values.program;
        let mut lists = Lists::lend(program.rows.len(), program.size.len(), &mut scratch);
        let mut scratch = scratch.reborrow();
        let mut planner = Planner::new(recorded, values.program, DEPTH, &mut scratch)?;
        let (mut least, mut number) = (None, 0);
        planner.each(&mut |mirror| {
            if tried >> number & 1 == 0 {
                let found = self.walk.follow(mirror.runs(), limit, &mut lists);
                let found = found.filter(|found| found.excess == 0 && (found.delay as f64) < most);
                if let Some(found) = found.filter(|found| least.is_none_or(|(delay, _)| found.delay < delay)) {
                    least = Some((found.delay, number));
                    self.keep();
                }
            }
            number += 1;
        });
        Ok(least.map(|(_, number)| number))
    }
}
