//! States of the search that were *refuted*: searched to the end without a placement. They are kept so that the search
//! goes through each only once.
//!
//! Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at one step. A
//! *component* is a range of sections whose ends no open block crosses; *open* blocks are those that are not placed
//! yet. Whether a component can be completed depends on its open blocks alone: on the least offset that each can have,
//! and on whether it can lie there only on another open block. Placing the same blocks in another order leads to the
//! same state again. A state that was searched to the end is kept; where it comes again, in the same run, after a
//! restart or at a lower capacity, it fails at once.
//!
//! A hash only finds a state; its words are then compared one by one, so no proof rests on a probability. States are
//! written one after the other into a ring buffer of 64-bit words, and new ones overwrite the oldest. Cost: O(blocks of
//! the component) for each look.

use super::state::State;
use crate::hash;
use crate::workspace::workspace;

const FOR_EACH: usize = 1 << 11;
const FOR_ANY: usize = 1 << 17;
const MOST: usize = 1 << 20;
const WORDS_PER_STATE: usize = 16;
/// The range of sections, and the capacity within which the state has no placement.
const HEAD: u64 = 2;

workspace! {
    pub(super) struct Nogoods<'a>(n) {
        tables {
            ring: u64[ring_len(n)],
            /// By hash: 1 + the number of words written before the latest such state; 0 if none.
            index: u64[ring_len(n) / WORDS_PER_STATE],
        }
        state {
            ring_len: u64 = ring_len(n) as u64,
            index_len: u64 = (ring_len(n) / WORDS_PER_STATE) as u64,
            written: u64 = 0,
        }
    }
}

const fn ring_len(n: usize) -> usize {
    let len = n.saturating_mul(FOR_EACH).saturating_add(FOR_ANY);
    if len < MOST { len } else { MOST }
}

impl Nogoods<'_> {
    pub(super) fn has(&self, state: &State<'_>, part: (u32, u32)) -> bool {
        let begin = self.index[self.slot(state, part)];
        // There is no such state, or what was written later has overwritten it.
        if begin == 0 || self.written - (begin - 1) > self.ring_len {
            return false;
        }
        let mut at = begin - 1;
        if self.word(at) != range(part) || self.word(at + 1) < state.capacity {
            return false;
        }
        at += HEAD;
        let mut same = true;
        state.each_word(part, |word| {
            same &= self.word(at) == word;
            at += 1;
        });
        same
    }

    pub(super) fn add(&mut self, state: &State<'_>, part: (u32, u32)) {
        let slot = self.slot(state, part);
        self.index[slot] = 1 + self.written;
        self.write(range(part));
        self.write(state.capacity);
        state.each_word(part, |word| self.write(word));
    }

    fn slot(&self, state: &State<'_>, part: (u32, u32)) -> u32 {
        let (mut hash, mut salt) = (range(part), 0u64);
        state.each_word(part, |word| {
            salt = salt.wrapping_add(hash::ODD);
            let mixed = (word ^ salt).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            hash = hash.wrapping_add(mixed ^ mixed >> 32);
        });
        remainder(hash::mixed(hash), self.index_len)
    }

    fn word(&self, at: u64) -> u64 {
        self.ring[remainder(at, self.ring_len)]
    }

    fn write(&mut self, word: u64) {
        let at = remainder(self.written, self.ring_len);
        self.ring[at] = word;
        self.written += 1;
    }
}

const fn range(part: (u32, u32)) -> u64 {
    (part.0 as u64) << 32 | part.1 as u64
}

fn remainder(value: u64, by: u64) -> u32 {
    value.checked_rem(by).and_then(|r| u32::try_from(r).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::state::Item;
    use super::*;
    use crate::Workspace;
    use crate::place::technique::Techniques;

    #[test]
    fn a_state_is_what_is_open_where_it_can_lie_and_on_what() {
        let len = State::workspace(2).and(Nogoods::workspace(2));
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let item = |b: u32| Item { low: 0, high: 1, size: 2 + u64::from(b), alignment: 1, pin: None };
        let mut state = State::new(2, 1, Techniques::ALL, item, &mut scratch);
        let mut nogoods = Nogoods::lend(2, &mut scratch);
        let part = (0, 1);
        assert!(state.reset(10).is_ok());
        assert!(!nogoods.has(&state, part));
        nogoods.add(&state, part);
        assert!(nogoods.has(&state, part));
        // A block that can lie only on another open one makes another state, though one with fewer placements.
        state.set_lifted(1, true);
        assert!(!nogoods.has(&state, part));
        state.set_lifted(1, false);
        assert!(nogoods.has(&state, part));
        // More room, less room, another place, one block fewer.
        state.capacity = 11;
        assert!(!nogoods.has(&state, part));
        state.capacity = 9;
        assert!(nogoods.has(&state, part));
        state.span[1] = [1, 4];
        assert!(!nogoods.has(&state, part));
        state.span[1] = [0, 3];
        assert!(nogoods.has(&state, part));
        assert!(state.place(0).is_ok());
        assert!(!nogoods.has(&state, part));
    }
}
