//! A tournament tree: finds, of numbers that each have a key, the one with the least key, while keys change (Knuth
//! 1973, volume 3, 5.4.1). Each inner node holds the number with the least key below it. Setting a key is O(log n), and
//! often less; asking for the least is O(1).
//!
//! Of equal keys the least number wins.

use crate::id::Id;
use crate::workspace::workspace;

const ABSENT: u64 = u64::MAX;

workspace! {
    pub(super) struct Tournament<'a, I>(n) then begin {
        tables {
            key[I]: u64[n],
            /// Node 1 is the root, the children of k are 2k and 2k + 1, number i is leaf n + i.
            winner: u32[n],
        }
        state {
            n: u32 = u32::try_from(n).unwrap_or(u32::MAX),
        }
    }
}

impl<I: Id> Tournament<'_, I> {
    fn begin(&mut self) {
        self.clear();
        for node in (1..self.n).rev() {
            self.winner[node] = self.at(2 * node).number();
        }
    }

    /// Inner nodes stay: below one without keys, any number may be its winner.
    pub(super) fn clear(&mut self) {
        self.key.fill(ABSENT);
    }

    #[inline]
    pub(super) fn first(&self) -> Option<(u64, I)> {
        let number = if self.n > 0 { self.at(1) } else { return None };
        let key = self.key[number];
        (key < ABSENT).then_some((key, number))
    }

    pub(super) fn remove(&mut self, number: I) {
        if self.key[number] < ABSENT {
            self.set(number, ABSENT);
        }
    }

    /// `key` is less than `u64::MAX`.
    pub(super) fn set(&mut self, number: I, key: u64) {
        self.key[number] = key;
        let mut node = number.number() + self.n;
        while node > 1 {
            node /= 2;
            let (left, right) = (self.at(2 * node), self.at(2 * node + 1));
            let winner = if (self.key[right], right) < (self.key[left], left) { right } else { left };
            // The nodes above do not change.
            if winner.number() == self.winner[node] && winner != number {
                return;
            }
            self.winner[node] = winner.number();
        }
    }

    #[inline]
    fn at(&self, node: u32) -> I {
        I::of(if node < self.n { self.winner[node] } else { node - self.n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_least_is_first(n in 0u32..20, steps in prop::collection::vec((0u32..9, 0u32..20, 0u64..30), 0..200)) {
            let len = Tournament::<u32>::workspace(n as usize);
            let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
            let mut tournament = Tournament::lend(n as usize, &mut Workspace::new(&mut words, &mut indices));
            let mut expected = BTreeMap::new();
            for (kind, number, key) in steps.into_iter().filter(|&(_, number, _)| number < n) {
                match kind {
                    0 => { tournament.clear(); expected.clear(); }
                    1..=3 => { tournament.remove(number); expected.remove(&number); }
                    _ => { tournament.set(number, key); expected.insert(number, key); }
                }
                prop_assert_eq!(tournament.first(), expected.iter().map(|(&number, &key)| (key, number)).min());
            }
            prop_assert!(n > 0 || tournament.first().is_none());
        }
    }
}
