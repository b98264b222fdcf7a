//! Makes a script, an order of runs, recomputations and frees. The order of the runs and recomputations is given; the
//! frees of blocks are added.
//!
//! First the runs, recomputations included, are gone through from the last to the first, to find the last run that
//! accesses each value; a value begins where an operator writes its block without reading it. Then they are gone
//! through forwards: a value is freed directly after the last run that accesses it, and the bytes alive are added up.
//! If a run reads a value that is not on the device, no script is made.
//!
//! Cost: at most the square of the number of blocks that a run accesses, summed over the runs. Workspace: O(steps +
//! blocks).

use super::{Cost, Step};
use crate::list::List;
use crate::rewrite::ids::BlockId;
use crate::rewrite::values::{Reference, Values, VersionId};
use crate::workspace::workspace;

workspace! {
    pub(in crate::rewrite) struct Follower<'a>(steps, blocks) {
        tables {
            /// The last run, counted from 1, that accesses the present value; 0 if there is none.
            last[BlockId]: u32[blocks],
        }
        records {
            holds[BlockId]: Option<VersionId>[blocks],
        }
        lists {
            /// A stack: for each value that begins later, its last run, the earliest value on top.
            until: u32[steps],
            script: Step[steps],
        }
        state {
            steps: usize = steps,
            /// An upper bound.
            rows: u32 = 0,
            /// In two's complement: an operator may free more than it allocates.
            load: u64 = 0,
        }
    }
}

impl<'a> Follower<'a> {
    pub(in crate::rewrite) const fn script(&self) -> &List<'a, Step> {
        &self.script
    }

    pub(in crate::rewrite) fn follow(
        &mut self,
        values: &Values<'_>,
        runs: &List<'_, Step>,
        limit: u64,
        headroom: &dyn Fn(u32) -> u64,
        in_place: bool,
    ) -> Option<Cost> {
        self.find_last_uses(values, runs)?;
        self.holds.fill(None);
        self.script.clear();
        (self.rows, self.load) = (0, 0);
        let mut cost = Cost::default();
        // The next operator that runs for the first time.
        let mut now = 0;
        for (i, step) in (1..).zip(runs.iter()) {
            let (g, rerun) = step.run()?;
            let missing = |r: Reference| !r.writes && !self.holds.is(r.block, Some(r.version));
            if values.managed(g).any(missing) || rerun && !values.may_recompute(g, now) {
                return None;
            }
            let input = values.in_place(g).filter(|_| in_place && !rerun);
            let new = self.begin(values, g);
            let reused = input.filter(|&(input, _)| self.last[input] == i);
            let reused = reused.map_or(0, |(_, reused)| values.program.size[reused.output]);
            let beside = if rerun { values.local[g] } else { values.most[g] };
            let load = self.load.wrapping_add(new.saturating_sub(reused)).wrapping_add(beside);
            let limit = limit.min(u64::MAX / 2).saturating_sub(headroom(now));
            if load.cast_signed() > limit.cast_signed() {
                cost.excess = cost.excess.max(load - limit);
            }
            for r in values.managed(g).filter(|r| r.writes) {
                self.put(values, &r);
            }
            self.push(values, step)?;
            if rerun {
                cost.delay = cost.delay.saturating_add(values.program.duration(g));
            } else {
                self.load = self.load.wrapping_add(values.left[g]);
                now = g + 1;
            }
            for r in values.managed(g) {
                if self.last[r.block] == i {
                    self.last[r.block] = 0;
                    self.drop_block(values, r.block)?;
                }
            }
        }
        // A script is complete once all operators have run.
        (now == values.program.operators).then_some(cost)
    }

    fn find_last_uses(&mut self, values: &Values<'_>, runs: &List<'_, Step>) -> Option<()> {
        self.last.fill(0);
        self.until.clear();
        for (i, step) in (0..runs.len()).map(|i| i + 1).zip(runs.iter()).rev() {
            let (g, _) = step.run()?;
            for r in values.managed(g) {
                let last = self.last[r.block];
                self.last[r.block] = if last > 0 { last } else { i };
            }
            for r in values.managed(g).filter(|r| begins(values, g, r)) {
                if !self.until.push(self.last[r.block]) {
                    return None;
                }
                self.last[r.block] = 0;
            }
        }
        self.last.fill(0);
        Some(())
    }

    fn begin(&mut self, values: &Values<'_>, g: u32) -> u64 {
        // The last uses in `until` stand in the order of the operator's references.
        let beginning = || values.managed(g).filter(|r| begins(values, g, r));
        let first = beginning().fold(self.until.len(), |first, _| first.saturating_sub(1));
        let mut bytes = 0u64;
        for (r, place) in beginning().zip(first..) {
            self.last[r.block] = self.until.at(place).unwrap_or(0);
            bytes = bytes.saturating_add(values.program.size[r.block]);
        }
        self.until.truncate(first);
        bytes
    }

    fn put(&mut self, values: &Values<'_>, &Reference { block, version, .. }: &Reference) {
        if self.holds.get(block).is_none() {
            self.load = self.load.wrapping_add(values.program.size[block]);
        }
        self.holds.set(block, Some(version));
    }

    fn drop_block(&mut self, values: &Values<'_>, block: BlockId) -> Option<()> {
        self.holds.set(block, None);
        self.load = self.load.wrapping_sub(values.program.size[block]);
        self.push(values, Step::Free(block))
    }

    fn push(&mut self, values: &Values<'_>, step: Step) -> Option<()> {
        self.rows += step.most_rows(values);
        let room = usize::try_from(self.rows).is_ok_and(|rows| rows <= self.steps);
        (room && self.script.push(step)).then_some(())
    }
}

fn begins(values: &Values<'_>, g: u32, r: &Reference) -> bool {
    r.writes && values.managed(g).all(|other| other.writes || other.block != r.block)
}
