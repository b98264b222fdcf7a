//! Recomputation: a value is freed, and the operator that made it runs a second time before the value is read again.
//!
//! A *walk* is a pass of the planner over all operators, in their order and under a limit, that decides which values
//! are *evicted* (freed although they are read later) and recomputed. It makes a *script*: which operators run, which
//! are recomputed, and which blocks are freed, in order. The cost of a script is its *excess*, the most bytes by which
//! its load exceeds the limit less the *headroom* (bytes held back), and its *delay*, the time in ns that it adds.
//!
//! Two things steer a walk: the *weight* of each block, a factor of the score by which blocks are chosen to be evicted,
//! and *virtual uses*. A virtual use is a read, in an earlier walk, that served to recompute another value; it is
//! counted as a use of the value that was read. `Recomputer` changes weights and virtual uses from walk to walk, in the
//! end by simulated annealing, and keeps the best script.

pub(in crate::rewrite) mod exact;
#[cfg(test)]
mod tests;
mod walk;

use crate::id::Id;
use crate::rewrite::anneal::{Cooling, Random};
use crate::rewrite::ids::BlockId;
use crate::rewrite::program::Program;
use crate::rewrite::script::{Cost, Step, emit};
use crate::rewrite::values::{Values, VersionId};
use crate::table::Table;
use crate::trace::Row;
use crate::workspace::workspace;
use crate::{Error, Workspace};
use walk::{Preference, Walk};

pub(in crate::rewrite) const fn most_rows(rows: usize) -> usize {
    4 * rows
}

const PREFERENCES: [Preference; 9] = {
    const fn preference(distance: u32, owed: f64) -> Preference {
        Preference { distance, owed }
    }
    [
        preference(2, 0.5),
        preference(1, 0.1),
        preference(0, 1.0),
        preference(2, 1.0),
        preference(1, 0.5),
        preference(0, 0.1),
        preference(2, 0.1),
        preference(1, 1.0),
        preference(0, 0.5),
    ]
};

const ROUNDS: u32 = 6;

const NEAR: u32 = 9;

const DISTURBED: usize = 3;
/// A weight is set to e^x, x between -`STEP` and `STEP`.
const STEP: f64 = 3.0;
/// The temperature at the start, as a part of the time at which the last operator begins.
const HEAT: f64 = 0.0005;
/// The search ends where one of so many parts of the work gains less than 1/`PROGRESS`.
const PARTS: u64 = 6;
const PROGRESS: u64 = 300;

workspace! {
    pub(in crate::rewrite) struct Recomputer<'a>(rows, blocks; values: &'a Values<'a>, least: u64, seed: u64) {
        tables {
            /// Bytes of spared values that swaps are to have away.
            allowance: u64[rows + 2],
        }
        records {
            /// Operators that [`Recomputer::dearest`] has named.
            named: bool[rows + 1],
        }
        lists {
            best: Step[most_rows(rows)],
            movable: BlockId[blocks],
            disturbed: BlockId[DISTURBED],
            undisturbed: f64[DISTURBED],
        }
        parts {
            walk: Walk(rows, blocks; values, least),
        }
        state {
            values: &'a Values<'a> = values,
            optimum: bool = false,
            preference: Preference = PREFERENCES[0],
            random: Random = Random::new(seed),
        }
    }
}

impl<'a> Recomputer<'a> {
    pub(in crate::rewrite) fn new(values: &'a Values<'a>, least: u64, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        Self::lend(values.program.rows.len(), values.program.size.len(), values, least, seed, scratch)
    }

    pub(in crate::rewrite) const fn work_in_place(&mut self) {
        self.walk.in_place = true;
    }

    pub(in crate::rewrite) const fn is_optimum(&self) -> bool {
        self.optimum
    }

    pub(in crate::rewrite) const fn work_done(&self) -> u64 {
        self.walk.work
    }

    pub(in crate::rewrite) const fn program(&self) -> &'a Program<'a> {
        self.values.program
    }

    pub(in crate::rewrite) fn may_evict(&self, block: BlockId) -> bool {
        self.walk.may_evict(block)
    }

    pub(in crate::rewrite) fn headroom(&mut self) -> &mut Table<'a, u64> {
        self.walk.headroom()
    }

    /// Of the operators that the best script recomputes, the one that takes longest in all and was not named before.
    pub(in crate::rewrite) fn dearest(&mut self) -> Option<u32> {
        let program = self.values.program;
        let recomputed = self.best.iter().filter_map(Step::run).filter(|&(g, rerun)| rerun && !self.named.get(g));
        let (g, _) = recomputed.max_by_key(|&(g, _)| (program.duration(g), u32::MAX - g))?;
        self.named.set(g, true);
        Some(g)
    }

    pub(in crate::rewrite) fn spare_values(&mut self, operator: u32, spared: bool) {
        for made in self.values.made(operator) {
            self.walk.spared.set(made.block, spared);
        }
    }

    /// Spared values are taken to be away in their longest idle time, so that no others are recomputed in their stead.
    /// Returns the bytes to add to the limit; the headroom takes them back where they are not away.
    pub(in crate::rewrite) fn allow_spared(&mut self) -> u64 {
        let Self { values, walk, allowance, .. } = self;
        allowance.fill(0);
        for version in VersionId::each(0..values.versions) {
            let block = values.block(version);
            let Some(mut before) = values.maker(version).filter(|_| walk.spared.get(block)) else { continue };
            let (mut away, (first, end)) = ([0, 0], values.uses(version));
            for user in (first..end).map(|i| values.user(i)) {
                if user.saturating_sub(before) > away[1] - away[0] {
                    away = [before + 1, user.max(before + 1)];
                }
                before = user;
            }
            let size = values.program.size[block];
            allowance[away[0]] = allowance[away[0]].wrapping_add(size);
            allowance[away[1]] = allowance[away[1]].wrapping_sub(size);
        }
        let mut most = 0;
        for o in 0..=values.program.operators {
            let before = o.checked_sub(1).map_or(0, |before| allowance[before]);
            allowance[o] = allowance[o].wrapping_add(before);
            most = most.max(allowance[o]);
        }
        let headroom = walk.headroom();
        for o in 0..=values.program.operators {
            headroom[o] = headroom[o].saturating_add(most - allowance[o]);
        }
        most
    }

    pub(in crate::rewrite) fn spare_nothing(&mut self) {
        self.walk.spared.fill(false);
        self.named.fill(false);
    }

    /// Evicts only the cheapest `part` / `whole` of the bytes that can be recomputed.
    pub(in crate::rewrite) fn evict_cheapest(&mut self, (part, whole): (u64, u64)) {
        let sum = |most: f64| {
            let large = |block: &BlockId| self.values.program.size[*block] >= self.walk.least;
            let movable = self.values.program.blocks().filter(|&block| self.values.can_recompute(block)).filter(large);
            let cheap = movable.filter(|&block| self.walk.price(block) <= most);
            cheap.map(|block| self.values.program.size[block]).fold(0, u64::saturating_add)
        };
        let enough = sum(f64::INFINITY) / whole * part;
        // Positive floating-point numbers have the same order as their bits read as integers. So the bits are bisected.
        let (mut low, mut high) = (0, f64::INFINITY.to_bits());
        while low < high && part < whole {
            let middle = low + (high - low) / 2;
            if sum(f64::from_bits(middle)) >= enough { high = middle } else { low = middle + 1 }
        }
        self.walk.most_price = f64::from_bits(high);
    }

    pub(in crate::rewrite) fn plan(&mut self, limit: u64, most: u64) -> Option<Cost> {
        let mut least: Option<Cost> = None;
        let mut rounds = 0;
        self.walk.work = 0;
        self.walk.keeps_sources = false;
        'preferences: for preference in PREFERENCES {
            self.begin();
            let mut before = None;
            for round in 0..ROUNDS {
                // A walk that adds over twice the time of the best script is ended: nothing useful is learnt from such
                // a walk.
                let delay = match least {
                    Some(Cost { excess: 0, delay }) => most.min(delay.saturating_mul(2)),
                    _ => most,
                };
                let found = self.walk.walk(preference, limit, Cost { delay, ..Cost::MOST });
                if let Some(found) = found
                    && least.is_none_or(|least| found < least)
                {
                    least = Some(found);
                    (self.preference, rounds) = (preference, round);
                    self.keep();
                }
                if least == Some(Cost::default()) {
                    break 'preferences;
                }
                if found.is_none() || found == before {
                    break;
                }
                before = found;
                self.learn(found);
            }
        }
        // Restores the weights, and the reads that count as uses, with which the best order was made.
        self.begin();
        for _ in 0..rounds {
            let found = self.walk.walk(self.preference, limit, Cost::MOST);
            self.learn(found);
        }
        least
    }

    fn begin(&mut self) {
        self.walk.weight().fill(1.0);
        self.walk.clear_memory();
    }

    fn learn(&mut self, found: Option<Cost>) {
        if found.is_some_and(|found| found.excess > 0) {
            self.walk.raise();
        } else {
            self.walk.remember();
        }
    }

    pub(in crate::rewrite) fn replan(&mut self, limit: u64) -> Option<Cost> {
        self.walk.work = 0;
        let mut found = self.walk.walk(self.preference, limit, Cost::MOST)?;
        for _ in 1..ROUNDS {
            if found.excess == 0 {
                break;
            }
            self.walk.raise();
            found = self.walk.walk(self.preference, limit, Cost::MOST)?;
        }
        self.keep();
        Some(found)
    }

    /// The weights of a few blocks are changed at random, again and again. Kept if the excess falls, or is the same with
    /// no more time, or by chance with a little more.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns, and a temperature"
    )]
    pub(in crate::rewrite) fn anneal(&mut self, mut least: Cost, limit: u64, work: u64) -> Cost {
        let program = self.values.program;
        let end = program.access_time[program.operators.saturating_sub(1)] as f64;
        let cooling = Cooling { heat: HEAT * end, work };
        self.walk.work = 0;
        self.movable.clear();
        program.blocks().filter(|&block| self.walk.may_evict(block)).for_each(|block| _ = self.movable.push(block));
        let (mut present, mut since, mut before) = (least, 0, least);
        while self.walk.work < work && least > Cost::default() && self.movable.len() > 0 {
            if self.walk.work - since > work / PARTS {
                if least.excess == before.excess && least.delay > before.delay - before.delay / PROGRESS {
                    break;
                }
                (since, before) = (self.walk.work, least);
            }
            self.disturb();
            let cutoff = cooling.cutoff(present.delay as f64, self.walk.work, &mut self.random);
            let delay = if present.excess > 0 { u64::MAX } else { libm::floor(cutoff) as u64 };
            let found = self.walk.walk(self.preference, limit, Cost { delay, ..present });
            let Some(found) = found.filter(|found| found.excess < present.excess || found.delay as f64 <= cutoff)
            else {
                self.restore();
                continue;
            };
            present = found;
            if found < least {
                least = found;
                self.keep();
            }
        }
        least
    }

    fn disturb(&mut self) {
        self.disturbed.clear();
        self.undisturbed.clear();
        for _ in 0..=self.random.below(3) {
            let drawn = self.random.below(self.movable.len());
            let Some(block) = self.movable.at(drawn) else { return };
            let factor = libm::exp(STEP * (2.0 * self.random.unit() - 1.0));
            self.disturbed.push(block);
            self.undisturbed.push(self.walk.weight().get(block));
            self.walk.weight().set(block, factor);
        }
    }

    fn restore(&mut self) {
        while let (Some(block), Some(weight)) = (self.disturbed.pop(), self.undisturbed.pop()) {
            self.walk.weight().set(block, weight);
        }
    }

    /// By one preference; false if the load cannot be brought down to `limit` so.
    pub(in crate::rewrite) fn reach(&mut self, limit: u64) -> bool {
        self.begin();
        for _ in 0..ROUNDS {
            let walked = self.walk.walk(PREFERENCES[0], limit, Cost::MOST);
            if walked.is_some_and(|walked| walked.excess == 0) {
                self.keep();
                return true;
            }
            self.learn(walked);
        }
        false
    }

    pub(in crate::rewrite) fn least(&mut self, most: u64) -> Option<u64> {
        let (mut low, mut high) = (0, most);
        let mut least = None;
        self.walk.keeps_sources = false;
        while high - low > (most >> NEAR).max(1) {
            let limit = low + (high - low) / 2;
            if self.reach(limit) {
                (high, least) = (limit, Some(limit));
            } else {
                low = limit;
            }
        }
        least
    }

    fn keep(&mut self) {
        self.best.copy_from(self.walk.script());
    }

    pub(in crate::rewrite) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        emit::write(self.values, &self.best, most_rows(self.values.program.rows.len()), scratch, out)
    }
}
