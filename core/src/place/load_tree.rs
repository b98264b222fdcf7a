//! The load that is still to be placed at each section, with the busiest section of a range.
//!
//! A segment tree in the order of a walk: the left half of a node stands right after it, the right half
//! after the left one, so that m sections take exactly 2 m - 1 nodes. A node holds the most load among its
//! sections; what was subtracted from a whole node is the difference to its children. O(log m) each.

use crate::Workspace;
use crate::table::Table;

pub(crate) struct LoadTree<'a> {
    sections: u32,
    most: Table<'a, u64>,
}

impl<'a> LoadTree<'a> {
    /// Words that the tree takes.
    pub(crate) const fn words(sections: usize) -> usize {
        2 * sections
    }

    pub(crate) fn new(scratch: &mut Workspace<'a>, sections: u32) -> Self {
        let most = scratch.words(Self::words(usize::try_from(sections).unwrap_or(usize::MAX)));
        Self { sections, most }
    }

    /// Begins anew with `load` of each section.
    pub(crate) fn fill(&mut self, load: impl Fn(u32) -> u64) {
        self.fill_node(0, 0, self.sections, &load);
    }

    fn fill_node(&mut self, node: u32, low: u32, high: u32, load: &impl Fn(u32) -> u64) {
        if high - low <= 1 {
            self.most[node] = load(low);
            return;
        }
        let (left, right, mid) = children(node, low, high);
        self.fill_node(left, low, mid, load);
        self.fill_node(right, mid, high, load);
        self.most[node] = self.most[left].max(self.most[right]);
    }

    /// Takes `size` off every section of `[from, to)`.
    pub(crate) fn subtract(&mut self, from: u32, to: u32, size: u64) {
        self.subtract_node(0, 0, self.sections, from, to, size);
    }

    fn subtract_node(&mut self, node: u32, low: u32, high: u32, from: u32, to: u32, size: u64) {
        if from <= low && high <= to {
            self.most[node] -= size;
            return;
        }
        let (left, right, mid) = children(node, low, high);
        let subtracted = self.most[left].max(self.most[right]) - self.most[node];
        if from < mid {
            self.subtract_node(left, low, mid, from, to, size);
        }
        if mid < to {
            self.subtract_node(right, mid, high, from, to, size);
        }
        self.most[node] = self.most[left].max(self.most[right]) - subtracted;
    }

    /// The busiest section of `[from, to)`, the first of equals, and its load.
    pub(crate) fn busiest(&self, from: u32, to: u32) -> (u32, u64) {
        let mut best = (from, 0, false);
        self.busiest_node(0, 0, self.sections, from, to, 0, &mut best);
        (best.0, best.1)
    }

    #[expect(clippy::too_many_arguments, reason = "a recursion over ranges")]
    fn busiest_node(&self, node: u32, low: u32, high: u32, from: u32, to: u32, off: u64, best: &mut (u32, u64, bool)) {
        let load = self.most[node] - off;
        if best.2 && load <= best.1 {
            return;
        }
        if high - low <= 1 {
            *best = (low, load, true);
            return;
        }
        let (left, right, mid) = children(node, low, high);
        let off = off + (self.most[left].max(self.most[right]) - self.most[node]);
        if from < mid {
            self.busiest_node(left, low, mid, from, to, off, best);
        }
        if mid < to {
            self.busiest_node(right, mid, high, from, to, off, best);
        }
    }
}

/// The children of a node over `[low, high)` and where they meet.
fn children(node: u32, low: u32, high: u32) -> (u32, u32, u32) {
    let mid = low + (high - low) / 2;
    (node + 1, node + 2 * (mid - low), mid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_as_a_scan_does(
            loads in prop::collection::vec(1000u64..1100, 1..40),
            ops in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u64..10), 0..40),
        ) {
            let mut loads = loads;
            let m = loads.len();
            let mut words = vec![0; LoadTree::words(m)];
            let mut tree = LoadTree::new(&mut Workspace::new(&mut words, &mut []), m as u32);
            tree.fill(|i| loads[i as usize]);
            for (a, b, size) in ops {
                let (a, b) = (a.index(m), b.index(m));
                let (from, to) = (a.min(b), a.max(b) + 1);
                tree.subtract(from as u32, to as u32, size);
                loads[from..to].iter_mut().for_each(|l| *l -= size);
                let (from, to) = (from / 2, m.min(to + 3));
                let most: u64 = loads[from..to].iter().copied().max().unwrap();
                let first = from + loads[from..to].iter().position(|&l| l == most).unwrap();
                prop_assert_eq!(tree.busiest(from as u32, to as u32), (first as u32, most));
            }
        }
    }
}
