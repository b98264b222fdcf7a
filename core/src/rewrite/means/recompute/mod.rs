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

/// The most rows that a trace rewritten with recomputation may have, if the recorded one has `rows`; plans that need
/// more are given up.
pub(in crate::rewrite) const fn most_rows(rows: usize) -> usize {
    4 * rows
}

/// Pairs of parameters of the score by which blocks are chosen to be evicted. Plans are made with each pair, in this
/// order.
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

/// How many old eviction weights of blocks there is room for: those that one move of the annealing changes, so that the
/// move can be undone. A move changes three at most.
const DISTURBED: usize = 4;

/// The temperature at the start of the annealing, as a fraction of the time at which the last operator of the original
/// trace begins. At this temperature a new plan may, on average, take that much longer than the present one and still
/// be accepted.
const HEAT: f64 = 0.0005;

/// The work of the annealing is divided into at least this many equal parts. The annealing checks its progress about
/// once in each part, and ends early in two cases:
/// - Since the last check, the bytes by which the best plan exceeds the limit have stayed the same, and the time that
///   the plan adds has fallen by less than 1/[`PROGRESS`].
/// - These bytes fall too slowly: at the rate since the last check, the best plan will still exceed the limit when all
///   the work is done.
const PATIENCE: u64 = 6;
/// In a long trace the work of the annealing is divided into more parts than [`PATIENCE`]: one for each `PATIENCE_ROWS`
/// rows. A move changes the weights of only a few blocks, which makes little difference in a long trace. With more
/// checks of progress the annealing can end sooner.
const PATIENCE_ROWS: usize = 2500;
/// The annealing ends if the time that the best plan adds falls by less than 1/`PROGRESS` of itself from one check of
/// progress to the next (see [`PATIENCE`]).
const PROGRESS: u64 = 300;

/// One move of the annealing in this many, on average, changes the virtual uses; the other moves change the eviction
/// weights of blocks.
const REMEMBERS: u64 = 16;
/// A move of the annealing sets the eviction weight of a block to e^x, where x is random between -`STEP` and `STEP`.
const STEP: f64 = 3.0;

/// The most planning walks in a row with the same parameters and limit. Each learns from the one before.
const ROUNDS: u32 = 6;

/// How precisely the least limit that recomputation can keep is found. The search bisects the limits from 0 to a
/// highest one. It ends when the interval left is no wider than 1/2^`NEAR` of the highest limit.
const NEAR: u32 = 9;

/// A block and its weight, a factor of the block's eviction score. The block with the lowest score is evicted first.
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
    /// Searches for the recomputation that takes least time and keeps the bytes alive within a limit.
    pub(in crate::rewrite) struct Recomputer<'a>(rows, blocks; values: &'a Values<'a>, least: u64, seed: u64) {
        lists {
            /// The best order of runs, recomputations and frees for the latest limit.
            best: Step[most_rows(rows)],
            /// The blocks that may be evicted: those that are not too small and whose values can all be recomputed.
            movable: BlockId[blocks],
            /// The blocks whose eviction weights the last move of the annealing changed, each with its old weight.
            disturbed: Weight[DISTURBED],
        }
        parts {
            walk: Walk(rows, blocks; values, least),
        }
        state {
            values: &'a Values<'a> = values,
            /// Whether the best plan is proved to spend the least time on recomputation.
            optimum: bool = false,
            /// The parameters of the eviction score with which the best plan so far was made.
            preference: Preference = PREFERENCES[0],
            random: Random = Random::new(seed),
        }
    }
}

impl<'a> Recomputer<'a> {
    /// Makes a search for the least recomputation. It may evict the blocks of at least `least` bytes whose values can
    /// be recomputed. Its random choices follow from `seed`.
    pub(in crate::rewrite) fn new(values: &'a Values<'a>, least: u64, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        let program = values.program;
        let mut recomputer = Self::lend(program.rows.len(), program.size.len(), values, least, seed, scratch);
        for block in program.blocks().filter(|&b| values.can_recompute(b) && program.size[b] >= least) {
            recomputer.movable.push(block);
        }
        recomputer
    }

    /// From now on, plans let operators write their outputs over their inputs where they may.
    pub(in crate::rewrite) const fn work_in_place(&mut self) {
        self.walk.in_place = true;
    }

    /// Whether the best plan is proved to spend the least time on recomputation of all plans within the limit less the
    /// headroom. Also true if it is proved that there is no such plan.
    pub(in crate::rewrite) const fn is_optimum(&self) -> bool {
        self.optimum
    }

    /// The work of the last search: the accesses of operators to blocks and the recompute costs of values that it
    /// looked at, added up.
    pub(in crate::rewrite) const fn work_done(&self) -> u64 {
        self.walk.work
    }

    /// The program in which values are recomputed.
    pub(in crate::rewrite) const fn program(&self) -> &'a Program<'a> {
        self.values.program
    }

    /// Whether a block may be evicted: it is not too small, and its values can be recomputed at a cost that
    /// [`spare`](Self::spare) allows now.
    pub(in crate::rewrite) fn may_evict(&self, block: BlockId) -> bool {
        self.walk.may_evict(block)
    }

    /// For each operator: the bytes held back below the limit while it runs. The caller may change the entries.
    pub(in crate::rewrite) fn headroom(&mut self) -> &mut Table<'a, u64> {
        self.walk.headroom()
    }

    /// From now on evicts only the blocks that are cheapest to recompute, per byte; the dearer ones are spared. The
    /// cheapest have about `part` / `whole` of the bytes of all blocks whose values can be recomputed and that are not
    /// too small. If `part` equals `whole`, no block is spared.
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

    /// Plans recomputation within a limit in bytes. Makes orders of runs, recomputations and frees with each of
    /// [`PREFERENCES`], which set what is evicted first. Then improves the best order by annealing. `work` is about how
    /// many accesses and recompute costs the search may look at. Returns the cost of the best order, whose load may
    /// exceed the limit; none if every order that was tried adds more than `most` ns, needs more rows than
    /// [`most_rows`], or lacks a value that cannot be recomputed.
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

    /// Resets what steers the next planning walk: sets the eviction weight of each block to 1, and drops all virtual
    /// uses.
    fn begin(&mut self) {
        self.walk.weight().fill(1.0);
        self.walk.forget();
    }

    /// Prepares the next planning walk by what the walk just done has shown. `found` is the cost of the walk just done;
    /// none if that walk was given up before its end. If the load of that walk was above the limit, the blocks that it
    /// should not have evicted get higher weights, so that the next walk evicts them later. Otherwise the reads of that
    /// walk that served to recompute other values become the virtual uses of the next walk.
    fn learn(&mut self, found: Option<Cost>) {
        if found.is_some_and(|found| found.excess > 0) {
            self.walk.raise();
        } else {
            self.walk.remember();
        }
    }

    /// Plans recomputation within `limit` bytes again, after the limit or the headroom below it has changed. Makes
    /// planning walks over the operators with the parameters of the best plan so far, then improves the result by
    /// annealing. `work` is about how many accesses and recompute costs the search may look at. Returns the cost of the
    /// best plan, whose load may exceed the limit. None if a walk before the annealing is given up, because a value
    /// cannot be recomputed or the plan needs more rows than [`most_rows`].
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

    /// Improves the best order of runs, recomputations and frees by simulated annealing. A move changes what steers the
    /// next planning walk: the eviction weights of a few blocks, or the virtual uses. The move is kept if the new order
    /// exceeds the limit by fewer bytes than the one before. It is also kept if the excess is the same and the order
    /// takes no longer, or by chance if it takes a little longer. `least` is the cost of the best order so far, and
    /// `work` about how many accesses and recompute costs may be looked at. Returns the cost of the best order.
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

    /// Finds the least limit, in bytes and below `most`, that recomputation can keep, and keeps the plan for this limit
    /// as the best. Bisects until the limit is known to within `most` / 2^[`NEAR`] bytes. Chooses what is evicted by
    /// the first of [`PREFERENCES`] only. None if no limit that was tried can be kept.
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

    /// Keeps the order of runs, recomputations and frees of the planning walk just done as the best so far.
    fn keep(&mut self) {
        self.best.copy_from(self.walk.script());
    }

    /// Keeps `script` as the best order of runs, recomputations and frees so far.
    fn keep_script(&mut self, script: &List<'_, Step>) {
        self.best.copy_from(script);
    }

    /// Makes a script in `follower`: `runs`, an order of runs and recomputations, with the frees of blocks added.
    /// Returns the script's cost for `limit` bytes less the headroom. None if the script has too many steps or rows; if
    /// an operator reads a value that is not on the device, or is recomputed where it may not be; or if not all
    /// operators run.
    fn follow(&self, follower: &mut Follower<'_>, runs: &List<'_, Step>, limit: u64) -> Option<Cost> {
        follower.follow(self.values, runs, limit, &|operator| self.walk.headroom_of(operator), self.walk.in_place)
    }

    /// Writes the trace that results from the best plan to `out`, and returns how many rows it has.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if `out` is too short.
    pub(in crate::rewrite) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        emit::write(self.values, &self.best, most_rows(self.values.program.rows.len()), scratch, out)
    }

    /// A move of the annealing: changes the eviction weights of up to three random blocks, and notes their old weights
    /// for [`restore`](Self::restore).
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

    /// Undoes the last move of the annealing: the blocks whose eviction weights the move changed get their old weights
    /// back.
    fn restore(&mut self) {
        while let Some(Weight { block, weight }) = self.disturbed.pop() {
            self.walk.weight().set(block, weight);
        }
    }
}
