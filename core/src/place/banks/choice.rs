//! Which blocks lie in a bank of memory, if only the bytes alive at each step have to fit, whatever their addresses:
//! the temporal knapsack problem (Bartlett et al. 2005).
//!
//! Problem: what a block *gains* is the cost that is saved if it lies in the bank. The blocks that lie there and are
//! alive together may take no more than the capacity. Which blocks gain most together? The answer is used to fill a
//! bank, and for a lower bound on the cost of all banks.
//!
//! Steps: the blocks are looked at in the order of their begins, and each is taken or left. A *state* is the set of
//! blocks that were taken and are still alive, with the gain of the choice that led to it. Where there are more than
//! [`WIDTH`] states, state B is dropped if there is a state A that gains at least as much, and all blocks of A are in B
//! too. If more than [`WIDTH`] are still left, one of two things is done. Either the worst are dropped; then the choice
//! that comes out is good, but not proved to be the best. Or the worst become one state, which holds only the blocks
//! that all of them hold, with the highest of their gains; then the result is at least what any choice can gain
//! (restricted and relaxed decision diagrams, Bergman et al. 2016). The worst are those that have gained least before
//! the present step: the gain of a block is spread evenly over its lifetime, and only the steps that have passed count.
//!
//! A state has bits for 64 blocks that are alive together; the number of a block's bit is its *slot*. A block that
//! begins when no slot is free is left out of the bank. Where an upper bound on the gain is computed, the gain of this
//! block is counted all the same, but its bytes are not.
//!
//! Cost: O(n (WIDTH² + WIDTH n / 64)), most of it where more states are left than are kept.

use crate::table::Table;
use crate::workspace::workspace;
use crate::{Workspace, sort};

const WIDTH: u32 = 256;
const MOST: usize = 2 * WIDTH as usize;
/// A bit of a `u64` for each living block; further ones get none, and are left out of the bank.
const SLOTS: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) size: u64,
    /// In any unit in which the sum over all blocks is below 2⁶⁴.
    pub(super) gain: u64,
    pub(super) forced: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Dropped,
    Merged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// `None` if no choice fits and takes all forced blocks.
    pub(super) gain: Option<u64>,
    pub(super) exact: bool,
}

/// Bit p of `taken` is for `by_start[p]`; with [`Excess::Merged`] it may be no valid choice.
pub(super) fn choose(
    by_start: &[u32],
    candidate: impl Fn(u32) -> Candidate,
    capacity: u64,
    excess: Excess,
    mut scratch: Workspace<'_>,
    taken: &mut Table<'_, u64>,
) -> Chosen {
    let mut states = States::lend(by_start.len(), capacity, excess, &mut scratch);
    let mut exact = true;
    for (place, &i) in (0..).zip(by_start) {
        let c = candidate(i);
        states.expire(c.start);
        if let Some(slot) = states.slot(&c) {
            states.branch(place, slot, &c);
        } else {
            exact = false;
            if excess == Excess::Merged {
                states.give(c.gain);
            } else if c.forced {
                states.len = 0;
            }
        }
        if states.len > WIDTH {
            exact &= states.narrow(c.start);
        }
    }
    let best = (0..states.len).max_by_key(|&s| (states.gain[s], u32::MAX - s));
    if let Some(best) = best {
        let words = states.words;
        for w in 0..words {
            taken[w] = states.taken[best * words + w];
        }
    }
    Chosen { gain: best.map(|best| states.gain[best]), exact }
}

workspace! {
    pub(super) struct States<'a>(n; room: u64, over: Excess) {
        tables {
            /// By state: its chosen living blocks; the bit of a block is its slot.
            mask: u64[MOST],
            load: u64[MOST],
            /// By state, with blocks that have ended.
            gain: u64[MOST],
            /// By state: the cost saved before the present step; a block's gain is spread evenly over its lifetime.
            score: u64[MOST],
            /// By state, `words` words: bit p is the block at index p by begin, ended or not.
            taken: u64[MOST * n.div_ceil(64)],
            order: u32[MOST],
            aside: u32[MOST],
            kept: u32[MOST],
            size: u64[SLOTS as usize],
            slot_gain: u64[SLOTS as usize],
            start: u32[SLOTS as usize],
            end: u32[SLOTS as usize],
        }
        state {
            capacity: u64 = room,
            excess: Excess = over,
            len: u32 = 1,
            words: u32 = u32::try_from(n.div_ceil(64)).unwrap_or(0),
            used: u64 = 0,
        }
    }
}

impl States<'_> {
    fn expire(&mut self, step: u32) {
        let gone = slots(self.used).filter(|&slot| self.end[slot] <= step).fold(0, |gone, slot| gone | 1 << slot);
        if gone == 0 {
            return;
        }
        self.used &= !gone;
        for s in 0..self.len {
            let freed: u64 = slots(self.mask[s] & gone).map(|slot| self.size[slot]).sum();
            self.load[s] -= freed;
            self.mask[s] &= !gone;
        }
    }

    fn slot(&mut self, c: &Candidate) -> Option<u32> {
        let slot = (!self.used).trailing_zeros();
        if slot >= SLOTS {
            return None;
        }
        self.used |= 1 << slot;
        self.size[slot] = c.size;
        self.slot_gain[slot] = c.gain;
        self.start[slot] = c.start;
        self.end[slot] = c.end;
        Some(slot)
    }

    fn branch(&mut self, place: u32, slot: u32, c: &Candidate) {
        let mut len = if c.forced { 0 } else { self.len };
        for s in 0..self.len {
            let Some(load) = self.load[s].checked_add(c.size).filter(|&load| load <= self.capacity) else { continue };
            // With a forced block no state stays as it was: the list of states is written over from its begin.
            self.copy(s, len);
            self.load[len] = load;
            self.mask[len] |= 1 << slot;
            self.gain[len] += c.gain;
            self.taken[len * self.words + place / 64] |= 1 << (place % 64);
            len += 1;
        }
        self.len = len;
    }

    /// As if the block lay in the bank and took no bytes: the result stays an upper bound where no slot is left.
    fn give(&mut self, gain: u64) {
        for s in 0..self.len {
            self.gain[s] += gain;
        }
    }

    fn copy(&mut self, from: u32, to: u32) {
        if from == to {
            return;
        }
        self.mask[to] = self.mask[from];
        self.load[to] = self.load[from];
        self.gain[to] = self.gain[from];
        for w in 0..self.words {
            self.taken[to * self.words + w] = self.taken[from * self.words + w];
        }
    }

    fn narrow(&mut self, step: u32) -> bool {
        // Every state that gains more comes before: each is compared only with those before it.
        sort::identity(&mut self.order, self.len);
        let gain = &self.gain;
        sort::by_key(&mut self.order, self.len, &mut self.aside, |s| !gain[s]);
        let mut left = 0;
        for place in 0..self.len {
            let s = self.order[place];
            let beaten = self
                .kept
                .first(left)
                .iter()
                .any(|&other| self.mask[other] & !self.mask[s] == 0 && self.gain[other] >= self.gain[s]);
            if !beaten {
                self.kept[left] = s;
                left += 1;
            }
        }
        let exact = left <= WIDTH;
        if !exact {
            self.rank(step, left);
            if self.excess == Excess::Merged {
                self.merge(WIDTH - 1, left);
            }
            left = WIDTH;
        }
        sort::in_place(&mut self.kept, left);
        for to in 0..left {
            self.copy(self.kept[to], to);
        }
        self.len = left;
        exact
    }

    fn rank(&mut self, step: u32, left: u32) {
        for place in 0..left {
            let s = self.kept[place];
            let ahead: u64 = slots(self.mask[s]).map(|slot| self.owed(slot, step)).sum();
            self.score[s] = self.gain[s] - ahead;
        }
        let score = &self.score;
        sort::by_key(&mut self.kept, left, &mut self.aside, |s| !score[s]);
    }

    fn owed(&self, slot: u32, step: u32) -> u64 {
        let [start, end, step] = [self.start[slot], self.end[slot], step].map(u128::from);
        let part = (u128::from(self.slot_gain[slot]) * end.saturating_sub(step)).checked_div(end - start);
        u64::try_from(part.unwrap_or(0)).unwrap_or(0).min(self.slot_gain[slot])
    }

    fn merge(&mut self, first: u32, left: u32) {
        let into = self.kept[first];
        for place in first..left {
            let s = self.kept[place];
            self.mask[into] &= self.mask[s];
            self.gain[into] = self.gain[into].max(self.gain[s]);
        }
        self.load[into] = slots(self.mask[into]).map(|slot| self.size[slot]).sum();
    }
}

fn slots(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let slot = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (slot < SLOTS).then_some(slot)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{at, count};
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn run(candidates: &[Candidate], capacity: u64, excess: Excess) -> (Chosen, Vec<bool>) {
        let len = States::workspace(candidates.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut by_start: Vec<u32> = (0..count(candidates)).collect();
        by_start.sort_by_key(|&i| at(candidates, i).start);
        let mut bits = vec![0; candidates.len().div_ceil(64)];
        let scratch = Workspace::new(&mut words, &mut indices);
        let found = choose(&by_start, |i| at(candidates, i), capacity, excess, scratch, &mut Table::new(&mut bits));
        let mut taken = vec![false; candidates.len()];
        for (place, &i) in by_start.iter().enumerate() {
            taken[i as usize] = bits[place / 64] >> (place % 64) & 1 == 1;
        }
        (found, taken)
    }

    fn gain(candidates: &[Candidate], capacity: u64, taken: &[bool]) -> Option<u64> {
        let all = || candidates.iter().zip(taken);
        let fits = candidates.iter().all(|c| {
            let alive = |(o, _): &(&Candidate, &bool)| o.start <= c.start && c.start < o.end;
            all().filter(|(_, t)| **t).filter(alive).map(|(o, _)| o.size).sum::<u64>() <= capacity
        });
        (fits && all().all(|(c, &t)| t || !c.forced)).then(|| all().filter(|(_, t)| **t).map(|(c, _)| c.gain).sum())
    }

    fn candidates(most: usize, forced: u32) -> impl Strategy<Value = Vec<Candidate>> {
        let row = (0u32..40, 1u32..20, 1u64..30, 0u64..99, 0u32..20);
        let made = move |(start, width, size, gain, lot)| Candidate {
            start,
            end: start + width,
            size,
            gain,
            forced: lot < forced,
        };
        prop::collection::vec(row.prop_map(made), 0..most)
    }

    proptest! {
        #[test]
        fn small_ones_are_exact(all in candidates(10, 2), capacity in 1u64..60) {
            let best = (0..1u32 << all.len())
                .filter_map(|bits| gain(&all, capacity, &(0..all.len()).map(|i| bits >> i & 1 == 1).collect::<Vec<_>>()))
                .max();
            for excess in [Excess::Dropped, Excess::Merged] {
                let (found, taken) = run(&all, capacity, excess);
                prop_assert_eq!(found, Chosen { gain: best, exact: true });
                if best.is_some() {
                    prop_assert_eq!(gain(&all, capacity, &taken), best);
                }
            }
        }

        #[test]
        fn large_ones_are_valid_and_below_what_none_gains_more_than(all in candidates(100, 0), capacity in 1u64..400) {
            let (found, taken) = run(&all, capacity, Excess::Dropped);
            prop_assert_eq!(gain(&all, capacity, &taken), found.gain);
            let (most, _) = run(&all, capacity, Excess::Merged);
            prop_assert!(found.gain <= most.gain);
            prop_assert!(!found.exact || found.gain == most.gain);
        }
    }

    #[test]
    fn more_than_there_are_slots() {
        let all: Vec<_> = (0..80).map(|_| Candidate { start: 0, end: 9, size: 1, gain: 5, forced: false }).collect();
        assert_eq!(run(&all, 100, Excess::Dropped).0, Chosen { gain: Some(64 * 5), exact: false });
        assert_eq!(run(&all, 100, Excess::Merged).0, Chosen { gain: Some(80 * 5), exact: false });
    }
}
