//! Makes a script of runs whose order is given.
//!
//! Steps. Backwards over the runs, each value's last reader is found; a value begins where an operator writes it
//! without reading it. Then forwards, as in the walk, but nothing is chosen: a value is freed directly after its last
//! reader. Runs that read a missing value make no script.
//!
//! O(references of the runs), and as much workspace.

use super::{Step, Walk, Walked};
use crate::list::List;
use crate::rewrite::means::recompute::most_rows;
use crate::rewrite::published::mirror;
use crate::rewrite::values::{Reference, Values};
use crate::workspace::workspace;

workspace! {
    /// The last uses of values, by the given runs.
    pub(in crate::rewrite) struct Lists<'a>(rows, blocks) {
        tables {
            /// By block: 1 + the last run that accesses its present value; filled backwards first, then forwards.
            last: u32[blocks],
        }
        lists {
            /// By value: 1 + the last run that accesses it; the value that begins last comes first.
            until: u32[most_rows(rows)],
        }
    }
}

impl Lists<'_> {
    /// Finds the last run that accesses each value; none if the list is too short.
    fn find_last_uses(&mut self, values: &Values<'_>, runs: &List<'_, u32>) -> Option<()> {
        self.last.fill(0);
        self.until.clear();
        for i in (0..runs.len()).rev() {
            let (g, _) = mirror::run(runs, i);
            for r in values.references(g).filter(Reference::is_managed) {
                let last = self.last[r.block];
                self.last[r.block] = if last > 0 { last } else { i + 1 };
            }
            for r in values.references(g).filter(|r| begins(values, g, r)) {
                if !self.until.push(self.last[r.block]) {
                    return None;
                }
                self.last[r.block] = 0;
            }
        }
        self.last.fill(0);
        Some(())
    }

    /// Notes the last uses of the values that begin with an operator; returns their bytes.
    fn begin(&mut self, values: &Values<'_>, g: u32) -> u64 {
        // They stand in the order of the operator's references.
        let beginning = || values.references(g).filter(|r| begins(values, g, r));
        let first = beginning().fold(self.until.len(), |first, _| first.saturating_sub(1));
        let mut bytes = 0u64;
        for (r, place) in beginning().zip(first..) {
            self.last[r.block] = self.until.at(place).unwrap_or(0);
            bytes = bytes.saturating_add(values.program.size[r.block]);
        }
        self.until.truncate(first);
        bytes
    }
}

/// Whether an operator writes a managed block that it does not read.
fn begins(values: &Values<'_>, g: u32, r: &Reference) -> bool {
    r.writes && r.is_managed() && values.references(g).all(|other| other.writes || other.block != r.block)
}

impl Walk<'_> {
    /// Makes the script of these runs; none if one reads a missing value, or the script is full.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns"
    )]
    pub(in crate::rewrite) fn follow(
        &mut self,
        runs: &List<'_, u32>,
        limit: u64,
        lists: &mut Lists<'_>,
    ) -> Option<Walked> {
        let values = self.values;
        lists.find_last_uses(values, runs)?;
        self.restart(limit, Walked::ANY);
        for i in 0..runs.len() {
            let (g, rerun) = mirror::run(runs, i);
            let managed = Reference::is_managed;
            let missing = |r: Reference| managed(&r) && !r.writes && self.holds[r.block] != r.version + 1;
            if values.references(g).any(missing) || rerun && !self.may_recompute(g) {
                return None;
            }
            let in_place = values.in_place(g).filter(|_| self.in_place && !rerun);
            let new = lists.begin(values, g);
            let reused = in_place.filter(|&(input, _)| lists.last[input] == i + 1);
            let reused = reused.map_or(0, |(_, reused)| values.program.size[reused.output]);
            let beside = if rerun { values.local[g] } else { values.most[g] };
            let load = self.load.wrapping_add(new.saturating_sub(reused)).wrapping_add(beside);
            let limit = self.limit.saturating_sub(self.held[self.now.min(values.program.operators)]);
            if load.cast_signed() > limit.cast_signed() {
                self.walked.excess = self.walked.excess.max(load - limit);
            }
            for r in values.references(g).filter(|r| managed(r) && r.writes) {
                self.put(r.block, r.version);
            }
            if rerun {
                self.recomputed += values.program.duration(g) as f64;
                self.push(Step::Recompute(g))?;
            } else {
                self.load = self.load.wrapping_add(values.left[g]);
                self.push(Step::Run(g))?;
                self.now = g + 1;
            }
            for r in values.references(g).filter(managed) {
                if lists.last[r.block] == i + 1 {
                    lists.last[r.block] = 0;
                    self.drop_block(r.block)?;
                }
            }
        }
        self.walked.delay = self.recomputed as u64;
        // Without accesses there are no runs, but the rows still have to be valid.
        (self.now == values.program.operators).then_some(self.walked)
    }

    /// Whether an operator may be recomputed now: the blocks that live as recorded still hold its inputs.
    fn may_recompute(&self, g: u32) -> bool {
        let values = self.values;
        values.is_recomputable(g) && !values.references(g).any(|r| !r.updated && values.is_gone(&r, self.now))
    }
}
