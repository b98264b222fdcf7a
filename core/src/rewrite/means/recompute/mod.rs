//! Recomputation: a value is freed, and the operator that made it runs a second time before the value is read again.

pub(in crate::rewrite) mod exact;
mod offload;
pub(in crate::rewrite) mod segments;
#[cfg(test)]
mod tests;
mod walk;

use core::num::NonZeroU64;

use crate::list::List;
use crate::rewrite::anneal::{Cooling, Random};
use crate::rewrite::gaps::{Gap, GapKind};
use crate::rewrite::script::follow::Follower;
use crate::rewrite::script::{Cost, Step, emit};
use crate::rewrite::values::Values;
use crate::simulate::Device;
use crate::table::{Record, Records, Table};
use crate::trace::Row;
use crate::workspace::workspace;
use crate::{Error, Workspace};
use walk::{Preference, Walk};

/// The most rows that a rewritten trace may have, if the recorded one has `rows`.
pub(in crate::rewrite) const fn most_rows(rows: usize) -> usize {
    4 * rows
}

/// The parameters of the eviction score that are tried, in this order.
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

/// The most weights that one move changes.
const DISTURBED: usize = 4;

/// The temperature at the start of the annealing, as a part of the original's time.
const HEAT: f64 = 0.0005;

/// The annealing is divided by its work into at least this many parts. It ends where one part has neither lowered the
/// excess nor lowered the delay by a `PROGRESS`-th.
const PATIENCE: u64 = 6;
/// The rows for each part in a large trace, so that it has more than `PATIENCE` parts: a few blocks make little
/// difference there.
const PATIENCE_ROWS: usize = 2500;
/// See [`PATIENCE`].
const PROGRESS: u64 = 300;

/// The most gaps that one move changes.
const MOVED: usize = 8;

/// On average one move in so many changes the virtual uses; the others change weights, or offloads where they may be
/// chosen.
const REMEMBERS: u64 = 16;
/// A move sets a weight to e to the power of a random number between -`STEP` and `STEP`.
const STEP: f64 = 3.0;

/// The most walks with the same parameters and the same limit; each learns from the one before.
const ROUNDS: u32 = 6;

/// The least limit is found to within the largest one divided by 2 to the power of this.
const NEAR: u32 = 9;

/// A block and its weight, which is a factor of its eviction score.
#[derive(Clone, Copy)]
struct Weight {
    block: u32,
    weight: f64,
}

impl Record for Weight {
    type Kept = [u64; 2];
    fn keep(self) -> [u64; 2] {
        [self.block.into(), self.weight.to_bits()]
    }
    fn kept([block, weight]: [u64; 2]) -> Self {
        Self { block: u32::try_from(block).unwrap_or(0), weight: f64::from_bits(weight) }
    }
}

workspace! {
    /// Searches for the recomputation that takes least time within a limit.
    pub(in crate::rewrite) struct Recomputer<'a>(rows, blocks; values: &'a Values<'a>, device: &Device, least: u64, seed: u64) {
        lists {
            /// The best script for the latest limit.
            best: Step[most_rows(rows)],
            /// The offloads of the best script: the block, the boundary at which its memory is freed (give), and the
            /// boundary at which it is allocated again (take).
            absent: [u32; 3][rows + blocks],
            /// The blocks that may be evicted.
            movable: u32[blocks],
            /// The blocks whose weights the last move changed, and the weights before.
            disturbed: Weight[DISTURBED],
            /// The gaps whose positions the last move changed, each with its give and take before.
            moved: [u32; 3][MOVED],
        }
        parts {
            walk: Walk(rows, blocks; values, device, least),
        }
        state {
            values: &'a Values<'a> = values,
            device: Device = *device,
            /// Whether the search also chooses offloads.
            swaps: bool = false,
            /// Whether recomputation is the only means, so that a script above the limit is useless.
            alone: bool = true,
            /// The bytes by which the best script exceeds the limit.
            excess: u64 = 0,
            /// Whether the best script is proved to recompute least.
            optimum: bool = false,
            /// The parameters of the eviction score with which the best walk so far was made.
            preference: Preference = PREFERENCES[0],
            random: Random = Random::new(seed),
        }
    }
}

impl<'a> Recomputer<'a> {
    /// A search that may evict the blocks of at least `least` bytes whose values can be recomputed.
    pub(in crate::rewrite) fn new(
        values: &'a Values<'a>,
        device: &Device,
        least: u64,
        seed: u64,
        scratch: &mut Workspace<'a>,
    ) -> Self {
        let program = values.program;
        let mut recomputer = Self::lend(program.rows.len(), program.size.len(), values, device, least, seed, scratch);
        for block in (0..program.blocks()).filter(|&b| values.can_recompute(b) && program.size[b] >= least) {
            recomputer.movable.push(block);
        }
        recomputer
    }

    /// From here on, operators that may work in place do.
    pub(in crate::rewrite) const fn work_in_place(&mut self) {
        self.walk.in_place = true;
    }

    /// The recompute cost of each block's values, in ns per byte.
    pub(in crate::rewrite) fn recompute_costs(&self, costs: &mut Records<'_, f64>) {
        self.values.recompute_costs(costs);
    }

    /// The bytes by which the best script exceeds the limit.
    pub(in crate::rewrite) const fn excess(&self) -> u64 {
        self.excess
    }

    /// Whether the best script is proved to recompute least, with the headroom that is held back.
    pub(in crate::rewrite) const fn is_optimum(&self) -> bool {
        self.optimum
    }

    /// The work of the last search, in references and closures looked at.
    pub(in crate::rewrite) const fn work_done(&self) -> u64 {
        self.walk.work
    }

    /// The headroom of an operator: bytes held back from the limit.
    pub(in crate::rewrite) fn held_back(&self, operator: u32) -> u64 {
        self.walk.held_back(operator)
    }

    /// The headroom of each operator, in bytes; the caller may change it.
    pub(in crate::rewrite) fn held(&mut self) -> &mut Table<'a, u64> {
        self.walk.hold()
    }

    /// Tells whether recomputation is the only means, so that a script above the limit is useless.
    pub(in crate::rewrite) const fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// Adds a gap that may become an offload. Gaps are numbered from 0 in the order in which they are added, which has
    /// to be that of their numbers for swapping.
    pub(in crate::rewrite) fn know(&mut self, gap: Gap) {
        self.walk.offloads.know(gap);
    }

    /// Takes all offloads out of use.
    pub(in crate::rewrite) fn clear_offloads(&mut self) {
        self.walk.offloads.clear();
    }

    /// Makes a gap an offload: the block is off the device between these boundaries.
    pub(in crate::rewrite) fn add_offload(&mut self, gap: u32, positions: [u32; 2]) {
        self.walk.offloads.set(gap, positions);
    }

    /// The offloads of the best script: block, give, take.
    pub(in crate::rewrite) fn offloads(&self) -> &[[u32; 3]] {
        self.absent.as_slice()
    }

    /// Makes the best script for a limit in bytes, by about `work`: first with every preference, then by annealing over
    /// weights. If `swaps`, it also chooses offloads among the gaps. Returns the script's cost; none if no walk came to
    /// its end.
    pub(in crate::rewrite) fn plan(&mut self, limit: u64, work: u64, swaps: bool) -> Option<Cost> {
        (self.swaps, self.walk.waits) = (swaps, swaps);
        let mut least: Option<Cost> = None;
        let mut rounds = 0;
        self.walk.work = 0;
        'preferences: for preference in PREFERENCES {
            self.begin();
            let mut before = None;
            for round in 0..ROUNDS {
                // A walk is ended once its delay is over twice that of the best script: nothing useful is learnt from
                // it.
                let most = match least {
                    Some(Cost { excess: 0, delay }) => Cost { delay: delay.saturating_mul(2), ..Cost::MOST },
                    _ => Cost::MOST,
                };
                let found = self.walk.walk(preference, limit, most);
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
        // Restores the weights and virtual uses of the best script.
        self.begin();
        for _ in 0..rounds {
            let found = self.walk.walk(self.preference, limit, Cost::MOST);
            self.learn(found);
        }
        Some(self.improve(least?, limit, work))
    }

    /// Resets weights and virtual uses.
    fn begin(&mut self) {
        self.walk.weight().fill(1.0);
        self.walk.forget();
    }

    /// Learns from a walk for the next one: within the limit, its virtual uses; above it, which blocks should not have
    /// been evicted.
    fn learn(&mut self, found: Option<Cost>) {
        if found.is_some_and(|found| found.excess > 0) {
            self.walk.raise();
        } else {
            self.walk.remember();
        }
    }

    /// Searches on from the last script, after the limit or the headroom has changed.
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

    /// Anneals: changes weights, virtual uses or offloads, and keeps the change if the script takes no longer, or by
    /// the annealing rule a little longer.
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
        // The best at the last check of progress, and the work at that time.
        let (mut before, mut since) = (least, self.walk.work);
        while self.walk.work < work && least > Cost::default() && (!self.movable.is_empty() || self.swaps) {
            if self.walk.work - since > patience.get() {
                let stands = least.excess == before.excess && least.delay > before.delay - before.delay / PROGRESS;
                // At this pace the script will not get within the limit.
                let left = (work - self.walk.work) / patience;
                let late = self.alone && least.excess > (before.excess - least.excess).saturating_mul(left);
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
            } else if self.swaps && self.random.once_in(2) {
                self.disturb_offload();
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
        self.excess = least.excess;
        least
    }

    /// Makes the script of the least limit below `most` that walks with the first preference keep, and returns this
    /// limit; none if they keep no limit that was tried. Found by bisection, to within `most` / 2^[`NEAR`] bytes.
    pub(in crate::rewrite) fn least(&mut self, most: u64) -> Option<u64> {
        let (mut low, mut high) = (0, most);
        let mut least = None;
        self.walk.weight().fill(1.0);
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

    /// Keeps the last script as the best.
    fn keep(&mut self) {
        self.best.copy_from(self.walk.script());
        let offloads = &self.walk.offloads;
        self.absent.clear();
        for &gap in offloads.used().as_slice() {
            if offloads.acted(gap) {
                let [give, take] = offloads.at(gap);
                self.absent.push([offloads.gap(gap).block, give, take]);
            }
        }
    }

    /// Keeps a script without offloads as the best.
    fn keep_script(&mut self, script: &List<'_, Step>) {
        self.best.copy_from(script);
        self.absent.clear();
    }

    /// Makes the script of these runs and returns its cost, with the headroom counted; none where [`Follower::follow`]
    /// has none.
    fn follow(&self, follower: &mut Follower<'_>, runs: &List<'_, Step>, limit: u64) -> Option<Cost> {
        follower.follow(self.values, runs, limit, &|operator| self.held_back(operator), self.walk.in_place)
    }

    /// Writes the rows of the best script and returns how many they are.
    ///
    /// # Errors
    /// As [`emit::write`].
    pub(in crate::rewrite) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        emit::write(self.values, &self.best, most_rows(self.values.program.rows.len()), scratch, out)
    }

    /// Changes the weights of a few blocks.
    fn disturb(&mut self) {
        self.disturbed.clear();
        self.moved.clear();
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

    /// Adds, removes or moves an offload.
    fn disturb_offload(&mut self) {
        self.disturbed.clear();
        self.moved.clear();
        let offloads = &self.walk.offloads;
        let (used, gaps) = (offloads.used().len(), offloads.gaps);
        let kind = self.random.below(16);
        if used == 0 || kind < 4 {
            for _ in 0..8 {
                let gap = self.random.below(gaps);
                if gaps > 0 && !self.walk.offloads.is_used(gap) {
                    self.insert(gap);
                    return;
                }
            }
            return;
        }
        let gap = self.random.below(used);
        let gap = self.walk.offloads.used().get(gap);
        let g = self.walk.offloads.gap(gap);
        let [give, take] = self.walk.offloads.at(gap);
        if kind < 7 {
            self.remove(gap, g);
            // One time in three, another gap becomes an offload in its place.
            let instead = self.random.below(gaps);
            if kind < 5 && instead != gap && !self.walk.offloads.is_used(instead) {
                self.insert(instead);
            }
            return;
        }
        let from_start = g.kind.is_head() && give == 0;
        let front = g.kind == GapKind::Tail || !from_start && self.random.below(2) == 0;
        let (low, high) = if front { (g.begin.max(1), take) } else { (give, g.end) };
        let reach = if self.random.below(4) == 0 { high - low.min(high) } else { 1 + high.saturating_sub(low) / 8 };
        let old = if front { give } else { take };
        let low = low.max(old.saturating_sub(reach));
        let high = high.min(old.saturating_add(reach)).max(low);
        let new = low + self.random.below(high - low + 1);
        let positions = if front { [new, take] } else { [give, new] };
        if positions[0] < positions[1] { self.place(gap, positions) } else { self.remove(gap, g) }
    }

    /// Makes a gap an offload: its memory is freed at the first boundary at which its copy out can be done, and
    /// allocated at the last one at which its copy in can still be in time.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn insert(&mut self, gap: u32) {
        let values = self.values;
        let g = self.walk.offloads.gap(gap);
        let size = values.program.size[g.block];
        let device = &self.device;
        let time =
            |operator: u32| values.program.access_time[operator.min(values.program.operators.saturating_sub(1))] as f64;
        let (out_ns, in_ns) = (device.out_ns(size), device.in_ns(size));
        let mut give = g.begin;
        if g.kind.is_head() {
            give = 0;
        } else {
            while give < g.end && g.is_copied_out() && time(give) < time(g.begin) + out_ns {
                give += 1;
            }
            give = give.max(1);
        }
        let mut take = g.end;
        while take > give && g.kind.returns() && time(take) > time(g.end) - in_ns {
            take -= 1;
        }
        if g.kind == GapKind::Tail {
            let Some(head) = g.other_end else { return };
            take = values.program.operators;
            let away = self.walk.offloads.is_used(head) && self.walk.offloads.at(head)[0] == 0;
            if !away {
                self.insert_head(head);
            }
        }
        if give < take {
            self.place(gap, [give, take]);
        }
    }

    /// Makes a head an offload from the start of the iteration on, which its tail needs.
    fn insert_head(&mut self, gap: u32) {
        let g = self.walk.offloads.gap(gap);
        let [_, take] = self.walk.offloads.at(gap);
        self.place(gap, [0, if take > 0 { take } else { g.end }]);
    }

    /// Takes an offload out of use; with a head, its tail too.
    fn remove(&mut self, gap: u32, g: Gap) {
        if let (true, Some(tail)) = (g.kind.is_head(), g.other_end)
            && self.walk.offloads.is_used(tail)
        {
            self.place(tail, [0, 0]);
        }
        self.place(gap, [0, 0]);
    }

    /// Sets the positions of a gap and notes those before, so that the move can be undone; does nothing if there is no
    /// room for the note.
    fn place(&mut self, gap: u32, positions: [u32; 2]) {
        let [give, take] = self.walk.offloads.at(gap);
        if self.moved.push([gap, give, take]) {
            self.walk.offloads.set(gap, positions);
        }
    }

    /// Undoes the last move.
    fn restore(&mut self) {
        while let Some(Weight { block, weight }) = self.disturbed.pop() {
            self.walk.weight().set(block, weight);
        }
        while let Some([gap, give, take]) = self.moved.pop() {
            self.walk.offloads.set(gap, [give, take]);
        }
    }
}
