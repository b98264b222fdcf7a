//! A tree over *sections*, stretches of time numbered from 0. It holds a load in bytes for each, such as that of the
//! blocks still to be placed, and answers which section of a range has the highest load.
//!
//! It is a segment tree in which each node has sixteen children. A node holds the highest load among its sections, and
//! the first section that has this load. So no query has to go down the tree to find the section. Where bytes are
//! subtracted from all sections of a node, this is noted in that node alone. The levels are stored one after the other
//! from the sections up, so that siblings lie together; 60,000 sections take four levels.
//!
//! A query or a subtraction climbs from both ends of its range at once. At each level, it takes the siblings between
//! the two ends as a whole. O(log m) each for m sections.

use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// How many children a node of the tree has.
const CHILDREN: u32 = 16;

pub(crate) struct LoadTree<'a> {
    /// The lowest level of the tree; its entries are the sections of time.
    sections: Level,
    /// By entry of the tree: the highest load, in bytes, of the sections of time below it; for a section, its own load.
    /// First come the sections, then the nodes, level by level. Bytes that were subtracted at a node further up are not
    /// yet taken off.
    most: Table<'a, u64>,
    /// By node of the tree: the bytes that were subtracted at this node from the load of all sections of time below it.
    subtracted: Table<'a, u64>,
    /// By node of the tree: the number of the first section of time below the node that has the highest load.
    first: Table<'a, u32>,
}

/// A level of the tree: the sections of time, or the nodes at one height above them. In the tables, a level is filled
/// up to a multiple of sixteen entries; the added entries have no load.
#[derive(Clone, Copy)]
struct Level {
    /// How many sections of time, or nodes, this level of the tree has.
    len: u32,
    /// The index in the table `most` of the first entry of this level of the tree.
    begin: u32,
    /// The index in the tables `subtracted` and `first` of the first node of this level of the tree; 0 for the level of
    /// the sections of time, which have no entries there.
    node: u32,
}

impl Level {
    /// The level of the tree above this one: it has one node for each sixteen entries of this level.
    const fn up(self) -> Self {
        let len = self.len.div_ceil(CHILDREN);
        let (here, below) = (len * CHILDREN, self.begin);
        Self { len, begin: below + here, node: if below > 0 { self.node + here } else { 0 } }
    }

    /// True if this is the highest level of the tree: all its entries are siblings, and there is no node for their
    /// parent.
    const fn is_top(self) -> bool {
        self.len <= CHILDREN
    }
}

/// A load in bytes, and the number of the first section of time that has this load.
type Busiest = (u64, u32);

impl<'a> LoadTree<'a> {
    pub(crate) const fn workspace(sections: usize) -> WorkspaceLen {
        const CHILDREN: usize = self::CHILDREN as usize;
        let (mut len, mut nodes) = (sections.div_ceil(CHILDREN), 0);
        let leaves = len * CHILDREN;
        while len > 1 {
            len = len.div_ceil(CHILDREN);
            nodes += len * CHILDREN;
        }
        WorkspaceLen { words: leaves + 2 * nodes, indices: nodes }
    }

    pub(crate) fn new(scratch: &mut Workspace<'a>, sections: u32) -> Self {
        let WorkspaceLen { words, indices: nodes } = Self::workspace(usize::try_from(sections).unwrap_or(usize::MAX));
        Self {
            sections: Level { len: sections, begin: 0, node: 0 },
            most: scratch.words(words - nodes),
            subtracted: scratch.words(nodes),
            first: scratch.indices(nodes),
        }
    }

    /// Sets the load of each section of time s to `load(s)` bytes; what was subtracted before is forgotten.
    pub(crate) fn fill(&mut self, load: impl Fn(u32) -> u64) {
        for section in 0..self.sections.len {
            self.most[section] = load(section);
        }
        self.subtracted.fill(0);
        let mut level = self.sections;
        while !level.is_top() {
            let up = level.up();
            for node in 0..up.len {
                self.renew(level, up, node);
            }
            level = up;
        }
    }

    /// Subtracts `size` bytes from the load of every section of time in `[from, to)`, which must not be empty.
    pub(crate) fn subtract(&mut self, from: u32, to: u32, size: u64) {
        let mut level = self.sections;
        // `low..high`: the entries of this level that lie in the range and are to be changed here. `first` and `last`:
        // the entries that the ends of the range lie in.
        let (mut low, mut high) = (from, to);
        let (mut first, mut last) = (from, to - 1);
        while first / CHILDREN < last / CHILDREN {
            (first, last) = (first / CHILDREN, last / CHILDREN);
            self.subtract_each(level, low, (first + 1) * CHILDREN, size);
            self.subtract_each(level, last * CHILDREN, high, size);
            (low, high) = (first + 1, last);
            let up = level.up();
            self.renew(level, up, first);
            self.renew(level, up, last);
            level = up;
        }
        self.subtract_each(level, low, high, size);
        // Where a node does not change, no node above it changes.
        while !level.is_top() {
            first /= CHILDREN;
            let up = level.up();
            if !self.renew(level, up, first) {
                return;
            }
            level = up;
        }
    }

    fn subtract_each(&mut self, level: Level, low: u32, high: u32, size: u64) {
        for most in self.most.range_mut(level.begin + low, level.begin + high) {
            *most -= size;
        }
        if level.begin > 0 {
            for subtracted in self.subtracted.range_mut(level.node + low, level.node + high) {
                *subtracted += size;
            }
        }
    }

    /// Computes one node of the level `up` anew from its children, which are entries of the level `level`: their
    /// highest load, and the first section of time that has it. `node` counts from 0 within the level `up`. Returns
    /// whether the node's load or section has changed.
    fn renew(&mut self, level: Level, up: Level, node: u32) -> bool {
        let (load, first) = self.busiest_of(level, node * CHILDREN, (node + 1) * CHILDREN);
        let (node, place) = (up.node + node, up.begin + node);
        let new = (load - self.subtracted[node], first);
        let changes = new != (self.most[place], self.first[node]);
        (self.most[place], self.first[node]) = new;
        changes
    }

    /// Returns the number of the section of time in `[from, to)` that has the highest load, the first of equals; and
    /// this load in bytes. The range must not be empty.
    pub(crate) fn busiest(&self, from: u32, to: u32) -> (u32, u64) {
        let mut level = self.sections;
        let (mut low, mut high) = (from, to);
        let (mut first, mut last) = (from, to - 1);
        let (mut left, mut right) = ((0, from), (0, from));
        while first / CHILDREN < last / CHILDREN {
            (first, last) = (first / CHILDREN, last / CHILDREN);
            left = busier(left, self.busiest_of(level, low, (first + 1) * CHILDREN));
            right = busier(self.busiest_of(level, last * CHILDREN, high), right);
            level = level.up();
            left.0 -= self.subtracted[level.node + first];
            right.0 -= self.subtracted[level.node + last];
            (low, high) = (first + 1, last);
        }
        let mut best = busier(busier(left, self.busiest_of(level, low, high)), right);
        while !level.is_top() {
            (level, first) = (level.up(), first / CHILDREN);
            best.0 -= self.subtracted[level.node + first];
        }
        (best.1, best.0)
    }

    /// The highest load of the sections of time at or below the entries `low..high` of one level of the tree, and the
    /// first section that has it. The entries are counted from 0 within the level. If the range is empty, the load is 0
    /// and the section has no meaning; [`Self::busiest`] never returns it.
    fn busiest_of(&self, level: Level, low: u32, high: u32) -> Busiest {
        let most = self.most.range(level.begin + low, level.begin + high);
        let best = (low..).zip(most).fold((low, 0), |best, (i, &load)| if load > best.1 { (i, load) } else { best });
        (best.1, if level.begin > 0 { self.first[level.node + best.0] } else { best.0 })
    }
}

/// Returns the one of two sections of time, given with their loads, that has the higher load; of equal loads, `left`.
fn busier(left: Busiest, right: Busiest) -> Busiest {
    if right.0 > left.0 { right } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn answers_as_a_scan_does(
            loads in prop::collection::vec(1000u64..1100, 1..600),
            ops in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0u64..10), 0..40),
        ) {
            let mut loads = loads;
            let m = loads.len();
            let len = LoadTree::workspace(m);
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let mut tree = LoadTree::new(&mut Workspace::new(&mut words, &mut indices), m as u32);
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
