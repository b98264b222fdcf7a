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
pub(in crate::rewrite) mod segments;
#[cfg(test)]
mod tests;
mod walk;

use core::num::NonZeroU64;

use crate::id::Id;
use crate::list::List;
use crate::rewrite::anneal::{Cooling, Random};
use crate::rewrite::ids::BlockId;
use crate::rewrite::program::Program;
use crate::rewrite::script::follow::Follower;
use crate::rewrite::script::{Cost, Step, emit};
use crate::rewrite::values::Values;
use crate::table::{Record, Table};
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

/// A move changes three at most.
const DISTURBED: usize = 4;

/// The temperature at the start, as a fraction of the time at which the last operator begins.
const HEAT: f64 = 0.0005;

/// Parts of the work, at least; after each, annealing ends if it makes too little progress.
const PATIENCE: u64 = 6;
const PATIENCE_ROWS: usize = 2500;
const PROGRESS: u64 = 300;

const REMEMBERS: u64 = 16;
/// A move sets a weight to e^x, x between -`STEP` and `STEP`.
const STEP: f64 = 3.0;

const ROUNDS: u32 = 6;

const NEAR: u32 = 9;

#[derive(Clone, Copy)]
struct Weight {
    block: BlockId,
    weight: f64,
}

impl Record for Weight {
    type Kept = [u64; 2];
    fn keep(self) -> [u64; 2] {
        [self.block.number().into(), self.weight.to_bits()]
    }
    fn kept([block, weight]: [u64; 2]) -> Self {
        Self { block: BlockId::of(u32::try_from(block).unwrap_or(0)), weight: f64::from_bits(weight) }
    }
}

workspace! {
    pub(in crate::rewrite) struct Recomputer<'a>(rows, blocks; values: &'a Values<'a>, least: u64, seed: u64) {
        lists {
            best: Step[most_rows(rows)],
            movable: BlockId[blocks],
            disturbed: Weight[DISTURBED],
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
        let program = values.program;
        let mut recomputer = Self::lend(program.rows.len(), program.size.len(), values, least, seed, scratch);
        for block in program.blocks().filter(|&b| values.can_recompute(b) && program.size[b] >= least) {
            recomputer.movable.push(block);
        }
        recomputer
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

    /// Evicts only the cheapest `part` / `whole` of the bytes that can be recomputed.
    pub(in crate::rewrite) fn spare(&mut self, (part, whole): (u64, u64)) {
        let sum = |most: f64| {
            let cheap = self.movable.iter().filter(|&block| self.walk.price(block) <= most);
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

    pub(in crate::rewrite) fn plan(&mut self, limit: u64, work: u64, most: u64) -> Option<Cost> {
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
                if least == Some(Cost::default()) || self.walk.work > work {
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
        Some(self.improve(least?, limit, work))
    }

    fn begin(&mut self) {
        self.walk.weight().fill(1.0);
        self.walk.forget();
    }

    fn learn(&mut self, found: Option<Cost>) {
        if found.is_some_and(|found| found.excess > 0) {
            self.walk.raise();
        } else {
            self.walk.remember();
        }
    }

    pub(in crate::rewrite) fn replan(&mut self, limit: u64, work: u64) -> Option<Cost> {
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
        Some(self.improve(found, limit, work))
    }

    /// Kept if the excess falls, or is the same with no more time, or by chance with a little more.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns, and a temperature"
    )]
    fn improve(&mut self, mut least: Cost, limit: u64, work: u64) -> Cost {
        let values = self.values;
        let end = values.program.access_time[values.program.operators.saturating_sub(1)] as f64;
        let parts = u64::try_from(values.program.rows.len() / PATIENCE_ROWS).unwrap_or(u64::MAX).max(PATIENCE);
        let patience = NonZeroU64::new(work / parts).unwrap_or(NonZeroU64::MIN);
        let cooling = Cooling { heat: HEAT * end, work };
        let mut present = least;
        // The least cost at the last check of progress, and the work done by then.
        let (mut before, mut since) = (least, self.walk.work);
        while self.walk.work < work && least > Cost::default() && !self.movable.is_empty() {
            if self.walk.work - since > patience.get() {
                let stands = least.excess == before.excess && least.delay > before.delay - before.delay / PROGRESS;
                // At this pace the best script would not get within the limit with the work that is left.
                let left = (work - self.walk.work) / patience;
                let late = least.excess > (before.excess - least.excess).saturating_mul(left);
                if stands || late {
                    break;
                }
                (before, since) = (least, self.walk.work);
            }
            let remembers = self.random.once_in(REMEMBERS);
            if remembers {
                self.walk.keep_memory();
                self.walk.walk(self.preference, limit, Cost::MOST);
                self.walk.remember();
            } else {
                self.disturb();
            }
            let cutoff = cooling.cutoff(present.delay as f64, self.walk.work, &mut self.random);
            let most = if present.excess > 0 { u64::MAX } else { libm::floor(cutoff) as u64 };
            let most = Cost { excess: present.excess, delay: most };
            let found = self
                .walk
                .walk(self.preference, limit, most)
                .filter(|found| found.excess < present.excess || found.delay as f64 <= cutoff);
            match found {
                Some(found) => {
                    present = found;
                    if found < least {
                        least = found;
                        self.keep();
                    }
                }
                None if remembers => self.walk.restore_memory(),
                None => self.restore(),
            }
        }
        least
    }

    pub(in crate::rewrite) fn least(&mut self, most: u64) -> Option<u64> {
        let (mut low, mut high) = (0, most);
        let mut least = None;
        self.walk.weight().fill(1.0);
        self.walk.keeps_sources = false;
        while high - low > (most >> NEAR).max(1) {
            let limit = low + (high - low) / 2;
            self.begin();
            let mut found = false;
            for _ in 0..ROUNDS {
                let walked = self.walk.walk(PREFERENCES[0], limit, Cost::MOST);
                found = walked.is_some_and(|walked| walked.excess == 0);
                if found {
                    break;
                }
                self.learn(walked);
            }
            if found {
                (high, least) = (limit, Some(limit));
                self.keep();
            } else {
                low = limit;
            }
        }
        least
    }

    fn keep(&mut self) {
        self.best.copy_from(self.walk.script());
    }

    fn keep_script(&mut self, script: &List<'_, Step>) {
        self.best.copy_from(script);
    }

    fn follow(&self, follower: &mut Follower<'_>, runs: &List<'_, Step>, limit: u64) -> Option<Cost> {
        follower.follow(self.values, runs, limit, &|operator| self.walk.headroom_of(operator), self.walk.in_place)
    }

    pub(in crate::rewrite) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        emit::write(self.values, &self.best, most_rows(self.values.program.rows.len()), scratch, out)
    }

    fn disturb(&mut self) {
        self.disturbed.clear();
        let n = 1 + self.random.number() % 3;
        for _ in 0..n {
            let movable = self.random.below(self.movable.len());
            let Some(block) = self.movable.at(movable) else { return };
            let factor = libm::exp(STEP * (2.0 * self.random.unit() - 1.0));
            let weight = self.walk.weight();
            self.disturbed.push(Weight { block, weight: weight.get(block) });
            weight.set(block, factor);
        }
    }

    fn restore(&mut self) {
        while let Some(Weight { block, weight }) = self.disturbed.pop() {
            self.walk.weight().set(block, weight);
        }
    }
}
