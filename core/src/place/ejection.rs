//! Guided ejection: lowers the peak of a plan by taking blocks out and putting each back where it disturbs least.
//!
//! Problem: what is built from address 0 upwards leaves room below pinned blocks that later blocks cannot use, and a
//! search that goes back only from its last blocks does not get there. Here any block may move at any time, as in the guided
//! ejection search of Nagata and Bräysy 2009 for the routes of vehicles:
//!
//! 1. All blocks that end above a target are taken out, and wait. The target is below the peak of the best plan by a
//!    fraction of what that is above the lower bound, a sixteenth at first.
//! 2. The block that was taken out last goes to the lowest free place below the target. If there is none, it goes to the
//!    place where the blocks in its way have the least sum of penalties, of equals a random one; those are taken out, and
//!    wait too. Pinned blocks are never in the way. One in a thousand goes to a random place, or two blocks that only fit in
//!    the same place could take turns for ever.
//! 3. A block's penalty is at first its area, lifetime times size, to the power of 3/4. It grows each time the block finds no
//!    free place: what is hard to place is disturbed less and less.
//! 4. When no block waits, this is the best plan, and the target falls. If an attempt takes too long, the next begins with
//!    the best plan and a target half as far below it.
//!
//! Places that are looked at touch a block in time with the one to be placed, or the bottom, or the target. Cost: O(k log k)
//! to place a block that is alive with k others. Memory: 7 n words, 10 n indices and the tree.

use core::ops::ControlFlow;

use libm::pow;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::lifetime_tree::{ABSENT, LifetimeTree, Lifetimes};
use super::multistart;
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, align_up};
use crate::table::{Table, at, count};
use crate::workspace::workspace;
use crate::{Block, Workspace, WorkspaceLen, sort};

const FIRST_HALVINGS: u32 = 4;
const MOST_HALVINGS: u32 = 8;
/// An attempt may take this share of the budget.
const ATTEMPTS: u64 = 4;
/// What it costs to look at a place, in nodes of the exact search.
const PLACES_OF_A_NODE: u64 = 72;
const TELL: u32 = 256;
/// Where more blocks are alive together, the budget is too small to move many.
const PAIRS_OF_A_PLACE: u64 = 4;
const ANYWHERE: u64 = 1 << 10;
/// The penalty of the largest block that there can be.
const LARGEST: f64 = 1000.0;
const POWER: f64 = 0.75;
/// Growth of a penalty, in tenths of the first penalty.
const GROWTH_TENTHS: u64 = 3;
const MOST_PENALTY: u64 = 1 << 24;
const PINNED: u64 = 1 << 40;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    Ejection::workspace(n).max(multistart::workspace(n))
}

/// `offsets` is the plan of `incumbent`.
pub(super) fn improve(
    problem: &Problem<'_>,
    options: &Options,
    incumbent: Summary,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let mut best = Summary { nodes: 0, ..incumbent };
    let enough = best.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    let most = options.nodes.saturating_mul(PLACES_OF_A_NODE);
    let hopeless = problem.sweep.colliding_pair_count() / PAIRS_OF_A_PLACE > most;
    if best.peak <= enough || hopeless {
        return best;
    }
    let mut scratch = scratch.reborrow();
    let mut ejection = Ejection::of(problem, options, &mut scratch);
    let mut offsets = Table::new(offsets);
    let mut halvings = FIRST_HALVINGS;
    ejection.begin_with(&offsets);
    while best.peak > enough && ejection.looked < most {
        let step = ((best.peak - enough) >> halvings).max(1);
        let limit = most.min(ejection.looked.saturating_add(most / ATTEMPTS));
        let told = best;
        let mut tell = |nodes| watch(&Summary { nodes, ..told });
        match ejection.attempt(best.peak - step, limit, &mut tell) {
            Some(true) => {
                offsets.copy_from(&ejection.offset);
                best = Summary { peak: ejection.peak(), solver: Solver::Ejection, ..best };
            }
            Some(false) => {
                ejection.begin_with(&offsets);
                halvings = MOST_HALVINGS.min(halvings + 1);
            }
            None => break,
        }
        best.nodes = ejection.nodes();
        if watch(&best).is_break() {
            break;
        }
    }
    best
}

workspace! {
    struct Ejection<'a>(n; given: &'a [Block], least_alignment: u64, seed: u64) {
        tables {
            low: u32[n],
            high: u32[n],
            order: u32[n],
            aside: u32[n],
            /// Of the blocks that do not wait.
            offset: u64[n],
            first_penalty: u64[n],
            penalty: u64[n],
            /// By placed block that is alive with the one at hand: where it begins, and its penalty.
            begins: [u64; 2][n],
            /// The same with where it ends.
            ends: [u64; 2][n],
        }
        lists {
            waiting: u32[n],
        }
        parts {
            placed: LifetimeTree(n),
        }
        state {
            blocks: &'a [Block] = given,
            alignment: u64 = least_alignment,
            random: Xoshiro256PlusPlus = Xoshiro256PlusPlus::seed_from_u64(seed),
            looked: u64 = 0,
        }
    }
}

/// Goes upwards through places for a block, and tells the sum of the penalties of what is in the way.
#[derive(Default)]
struct Climb {
    begun: u32,
    ended: u32,
    penalty: u64,
}

impl Climb {
    fn to(&mut self, low: u64, high: u64, [begins, ends]: [&[[u64; 2]]; 2]) -> u64 {
        while let Some([_, penalty]) = begins.get(self.begun as usize).filter(|[begin, _]| *begin < high) {
            self.penalty = self.penalty.wrapping_add(*penalty);
            self.begun += 1;
        }
        while let Some([_, penalty]) = ends.get(self.ended as usize).filter(|[end, _]| *end <= low) {
            self.penalty = self.penalty.wrapping_sub(*penalty);
            self.ended += 1;
        }
        self.penalty
    }
}

impl<'a> Ejection<'a> {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a score")]
    fn of(problem: &Problem<'a>, options: &Options, scratch: &mut Workspace<'a>) -> Self {
        let &Problem { blocks, sweep, lower_bound, .. } = problem;
        let mut ejection = Self::lend(blocks.len(), blocks, options.constraints.alignment, options.seed, scratch);
        let Self { low, high, order, aside, first_penalty, placed, .. } = &mut ejection;
        sweep.clique_ranges(low, high);
        placed.arrange([low, high], [order, aside]);
        let steps = blocks.iter().map(Block::width).max().unwrap_or(1);
        let largest = lower_bound as f64 * f64::from(steps);
        for (i, b) in (0u32..).zip(blocks) {
            let area = b.size as f64 * f64::from(b.width());
            first_penalty[i] = 1 + (LARGEST * pow(area / largest, POWER)) as u64;
        }
        ejection
    }

    fn begin_with(&mut self, offsets: &Table<'_, u64>) {
        self.offset.copy_from(offsets);
        self.penalty.copy_from(&self.first_penalty);
        self.waiting.clear();
        self.placed.enter_all(|i| i);
    }

    fn peak(&self) -> u64 {
        (0u32..).zip(self.blocks).map(|(i, b)| self.offset[i].saturating_add(b.size)).max().unwrap_or(0)
    }

    fn nodes(&self) -> u64 {
        self.looked / PLACES_OF_A_NODE
    }

    /// Whether all blocks lie below `target` bytes in the end; `None` where `tell` broke.
    fn attempt(&mut self, target: u64, limit: u64, tell: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Option<bool> {
        for i in 0..count(self.blocks) {
            let b = at(self.blocks, i);
            if b.pin.is_none() && self.offset[i].saturating_add(b.size) > target {
                self.take_out(i);
            }
        }
        let mut turn = 0u32;
        while let Some(i) = self.waiting.pop() {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(TELL) && tell(self.nodes()).is_break() {
                return None;
            }
            let place = self.best_place(i, target).filter(|_| self.looked < limit);
            let Some((offset, free)) = place else { return Some(false) };
            if !free {
                self.penalty[i] = MOST_PENALTY.min(self.penalty[i] + 1 + self.first_penalty[i] * GROWTH_TENTHS / 10);
                self.make_room(i, offset);
            }
            self.offset[i] = offset;
            self.placed.set(i, i);
        }
        Some(true)
    }

    fn take_out(&mut self, i: u32) {
        self.placed.set(i, ABSENT);
        self.waiting.push(i);
    }

    fn make_room(&mut self, i: u32, offset: u64) {
        let end = offset + at(self.blocks, i).size;
        let mut found = 0;
        let Self { blocks, placed, offset: of, low, high, aside, .. } = self;
        placed.each(&Lifetimes::colliding(low[i], high[i]), |j| {
            if of[j] < end && offset < of[j].saturating_add(at(blocks, j).size) {
                aside[found] = j;
                found += 1;
            }
        });
        for k in 0..found {
            self.take_out(self.aside[k]);
        }
    }

    /// An offset, and whether nothing is in the way there; `None` where pinned blocks are in the way everywhere.
    fn best_place(&mut self, i: u32, target: u64) -> Option<(u64, bool)> {
        let b = at(self.blocks, i);
        let highest = target.checked_sub(b.size)?;
        let mut n = 0;
        let Self { blocks, placed, offset, low, high, begins, ends, penalty, random, looked, .. } = self;
        placed.each(&Lifetimes::colliding(low[i], high[i]), |j| {
            let other = at(blocks, j);
            let penalty = if other.pin.is_some() { PINNED } else { penalty[j] };
            begins[n] = [offset[j], penalty];
            ends[n] = [offset[j].saturating_add(other.size), penalty];
            n += 1;
        });
        sort::in_place_by_key(begins, n, |[begin, _]| begin);
        sort::in_place_by_key(ends, n, |[end, _]| end);
        let met = [begins.first(n), ends.first(n)];
        *looked += u64::from(2 * n + 16);

        let alignment = b.alignment.max(self.alignment);
        let anywhere = random.next_u64().is_multiple_of(ANYWHERE);
        let mut best: Option<([u64; 2], u64, bool)> = None;
        let mut look = |climb: &mut Climb, place: u64| {
            let penalty = climb.to(place, place + b.size, met);
            if penalty < PINNED {
                let key = [if anywhere { 0 } else { penalty }, random.next_u64()];
                if best.is_none_or(|(least, ..)| key < least) {
                    best = Some((key, place, penalty == 0));
                }
            }
            penalty == 0 && !anywhere
        };
        let [begins, ends] = met;
        // Where blocks end: the lowest free place is one of these.
        let mut climb = Climb::default();
        for end in core::iter::once(0).chain(ends.iter().map(|&[end, _]| end)) {
            let place = align_up(end, alignment);
            if place > highest || place < end {
                break;
            }
            if look(&mut climb, place) {
                return Some((place, true));
            }
        }
        // Below where blocks begin.
        let mut climb = Climb::default();
        for begin in begins.iter().map(|&[begin, _]| begin).chain([target]) {
            let Some(room) = begin.min(target).checked_sub(b.size) else { continue };
            look(&mut climb, room & !(alignment - 1));
        }
        best.map(|(_, place, free)| (place, free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::run;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn no_plan_gets_worse_and_pins_stay(
            rows in prop::collection::vec((0u32..40, 1u32..20, 1u64..50, 0u32..3), 1..40),
            pinned in prop::collection::vec(any::<bool>(), 40), nodes in 0u64..300, seed: u64,
        ) {
            let blocks: Vec<Block> = rows.iter()
                .map(|&(start, width, size, log)| Block { alignment: 1 << log, ..Block::new(start, start + width, size) })
                .collect();
            let (_, offsets) = run(Solver::Multistart, &blocks, &Options { work: 0, ..Options::default() });
            let pin = |(b, (pinned, offset)): (&Block, (&bool, u64))| Block { pin: pinned.then_some(offset), ..*b };
            let blocks: Vec<Block> = blocks.iter().zip(pinned.iter().zip(offsets)).map(pin).collect();
            let options = Options { seed, nodes, ..Options::default() };
            let (without, _) = run(Solver::Ejection, &blocks, &Options { nodes: 0, ..options });
            let (with, _) = run(Solver::Ejection, &blocks, &options);
            prop_assert!(with.peak <= without.peak);
        }
    }

    /// A full memory cut into blocks; every tenth stays where it was.
    fn pinned(n: usize, seed: u64) -> Vec<Block> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut parts = vec![Block { pin: Some(0), ..Block::new(0, 300, 64_000) }];
        while parts.len() < n {
            let i = random.next_u32() as usize % parts.len();
            let b = parts[i];
            let mut rest = b;
            if random.next_u32().is_multiple_of(2) && b.width() > 1 {
                parts[i].end = b.start + 1 + random.next_u32() % (b.width() - 1);
                rest.start = parts[i].end;
            } else if b.size > 1 {
                parts[i].size = 1 + random.next_u64() % (b.size - 1);
                rest = Block { size: b.size - parts[i].size, pin: b.pin.map(|pin| pin + parts[i].size), ..b };
            } else {
                continue;
            }
            parts.push(rest);
        }
        parts.iter().enumerate().map(|(i, b)| Block { pin: b.pin.filter(|_| i % 10 == 0), ..*b }).collect()
    }

    #[test]
    fn the_room_between_pinned_blocks_is_filled() {
        for seed in 1..5 {
            let blocks = pinned(300, seed);
            let (built, _) = run(Solver::Multistart, &blocks, &Options::default());
            let (found, _) = run(Solver::Ejection, &blocks, &Options { nodes: 60_000, ..Options::default() });
            let above = [built, found].map(|of| of.peak - 64_000);
            assert!(2 * above[1] < above[0], "seed {seed}: {above:?} bytes above the optimum");
        }
    }
}
