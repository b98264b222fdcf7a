//! A tree over the lifetimes of blocks that answers: is any block alive only within a given range of sections of time?
//! *Sections* are stretches of time, numbered from 0; each lifetime is a range of them. Blocks can be taken out of the
//! tree; the *members* are those that are in it.
//!
//! A block lies within the sections `[low, high)` exactly when it begins in one of them, and its end is at most `high`.
//! So a query finds the earliest end of the members that begin in these sections, and compares it with `high`. A
//! segment tree stands over the blocks, in the order of their begins; each node holds the earliest end of the members
//! below it. A query climbs from both ends of its range of blocks; the fewer blocks begin in the sections, the fewer
//! nodes it looks at. O(log n) for n blocks.
//! Memory: 2 n indices, and one for each section.

use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

pub(crate) struct EarliestEnd<'a> {
    n: u32,
    /// By section of time: the first block that begins there or later; `n` if none.
    first: Table<'a, u32>,
    /// By node: the earliest end below it; `u32::MAX` if none. Children are 2i and 2i + 1, leaves are `n..2n`.
    earliest: Table<'a, u32>,
}

impl<'a> EarliestEnd<'a> {
    pub(crate) const fn workspace(n: usize, sections: usize) -> WorkspaceLen {
        WorkspaceLen { words: 0, indices: 2 * n + sections }
    }

    pub(crate) fn new(scratch: &mut Workspace<'a>, low: &Table<'_, u32>, n: u32, sections: usize) -> Self {
        let len = usize::try_from(n).unwrap_or(usize::MAX);
        let mut tree = Self { n, first: scratch.indices(sections), earliest: scratch.indices(2 * len) };
        let mut section = 0;
        for i in 0..n {
            while section <= low[i] {
                tree.first[section] = i;
                section += 1;
            }
        }
        tree.first.fill_from(section, n);
        tree
    }

    pub(crate) fn enter_all(&mut self, end_of: impl Fn(u32) -> u32) {
        for i in 0..self.n {
            self.earliest[self.n + i] = end_of(i);
        }
        for node in (1..self.n).rev() {
            self.earliest[node] = self.earliest[2 * node].min(self.earliest[2 * node + 1]);
        }
    }

    pub(crate) fn remove(&mut self, i: u32) {
        let mut node = self.n + i;
        self.earliest[node] = u32::MAX;
        while node > 1 {
            node /= 2;
            let earliest = self.earliest[2 * node].min(self.earliest[2 * node + 1]);
            if earliest == self.earliest[node] {
                return;
            }
            self.earliest[node] = earliest;
        }
    }

    pub(crate) fn any_within(&self, low: u32, high: u32) -> bool {
        // Behind the last section nothing begins.
        let behind = self.first.range(high, high + 1).first().copied().unwrap_or(self.n);
        let (mut node, mut end) = (self.n + self.first[low], self.n + behind);
        while node < end {
            if node % 2 == 1 {
                if self.earliest[node] <= high {
                    return true;
                }
                node += 1;
            }
            if end % 2 == 1 && self.earliest[end - 1] <= high {
                return true;
            }
            node /= 2;
            end /= 2;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_as_a_scan_does(
            mut lifetimes in prop::collection::vec((0u32..20, 1u32..9), 1..40),
            removals in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            lifetimes.sort_unstable();
            let n = lifetimes.len();
            let mut indices = vec![0; EarliestEnd::workspace(n, 30).indices + n];
            let mut scratch = Workspace::new(&mut [], &mut indices);
            let mut low = scratch.indices(n);
            for (i, l) in (0u32..).zip(&lifetimes) {
                low[i] = l.0;
            }
            let mut tree = EarliestEnd::new(&mut scratch, &low, n as u32, 30);
            let end = |i: u32| lifetimes[i as usize].0 + lifetimes[i as usize].1;
            tree.enter_all(end);
            let mut members = vec![true; n];
            for gone in removals {
                let gone = gone.index(n);
                tree.remove(gone as u32);
                members[gone] = false;
                for from in 0..30 {
                    for to in from..32 {
                        let any = (0..n).any(|i| members[i] && lifetimes[i].0 >= from && end(i as u32) <= to);
                        prop_assert_eq!(tree.any_within(from, to), any);
                    }
                }
            }
        }
    }
}
