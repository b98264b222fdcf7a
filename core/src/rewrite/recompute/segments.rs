//! The published segments as scripts, so that the best of them is one of those that are chosen from.
//!
//! Paper: Chen et al. 2016, as in [`chen`]. The plans are those of [`Planner::each`]; of those within the limit the one
//! with the least time is kept, of equals the first. O(plans · references of their runs).

use super::Recomputer;
use super::chen::{self, Planner};
use super::walk::follow::{self, Lists};
use crate::trace::Recorded;
use crate::{Error, Workspace, WorkspaceLen};

/// So often an operator runs again at most: more does not fit into a script.
const DEPTH: u32 = 8;

/// Length of the workspace of [`Recomputer::segments`].
pub(in crate::rewrite) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    chen::workspace(rows, blocks, DEPTH).and(follow::workspace(rows, blocks))
}

impl Recomputer<'_> {
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
        let graph = self.graph;
        let recorded = Recorded { rows: graph.rows, blocks: graph.size.len(), ..*recorded };
        let mut lists = Lists::new(graph, &mut scratch);
        let mut planner = Planner::new(&recorded, DEPTH, scratch)?;
        let (mut least, mut number) = (None, 0);
        planner.each(&mut |mirror| {
            if tried >> number & 1 == 0 {
                lists.locate(graph, mirror);
                let found = self.walk.follow(mirror, limit, &mut lists);
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
