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

use crate::workspace::workspace;

const CHILDREN: u32 = 16;

workspace! {
    pub(crate) struct LoadTree<'a>(most) {
        tables {
            /// Sections first, then the nodes level by level. What was subtracted further up is not yet taken off.
            most: u64[leaves(most) + nodes(most)],
            subtracted: u64[nodes(most)],
            first: u32[nodes(most)],
        }
        state {
            sections: Level = Level { len: 0, begin: 0, node: 0 },
        }
    }
}

const fn leaves(sections: usize) -> usize {
    sections.next_multiple_of(CHILDREN as usize)
}

const fn nodes(sections: usize) -> usize {
    let (mut len, mut nodes) = (sections.div_ceil(CHILDREN as usize), 0);
    while len > 1 {
        len = len.div_ceil(CHILDREN as usize);
        nodes += len * CHILDREN as usize;
    }
    nodes
}

/// Filled up to a multiple of sixteen entries, which have no load.
#[derive(Clone, Copy)]
struct Level {
    len: u32,
    begin: u32,
    node: u32,
}

impl Level {
    const fn up(self) -> Self {
        let len = self.len.div_ceil(CHILDREN);
        let (here, below) = (len * CHILDREN, self.begin);
        Self { len, begin: below + here, node: if below > 0 { self.node + here } else { 0 } }
    }

    const fn is_top(self) -> bool {
        self.len <= CHILDREN
    }
}

type Busiest = (u64, u32);

impl LoadTree<'_> {
    pub(crate) fn fill(&mut self, sections: u32, load: impl Fn(u32) -> u64) {
        self.sections.len = sections;
        self.most.fill(0);
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

    fn renew(&mut self, level: Level, up: Level, node: u32) -> bool {
        let (load, first) = self.busiest_of(level, node * CHILDREN, (node + 1) * CHILDREN);
        let (node, place) = (up.node + node, up.begin + node);
        let new = (load - self.subtracted[node], first);
        let changes = new != (self.most[place], self.first[node]);
        (self.most[place], self.first[node]) = new;
        changes
    }

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

    fn busiest_of(&self, level: Level, low: u32, high: u32) -> Busiest {
        let most = self.most.range(level.begin + low, level.begin + high);
        let best = (low..).zip(most).fold((low, 0), |best, (i, &load)| if load > best.1 { (i, load) } else { best });
        (best.1, if level.begin > 0 { self.first[level.node + best.0] } else { best.0 })
    }
}

fn busier(left: Busiest, right: Busiest) -> Busiest {
    if right.0 > left.0 { right } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
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
            let mut tree = LoadTree::lend(m, &mut Workspace::new(&mut words, &mut indices));
            tree.fill(m as u32, |i| loads[i as usize]);
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
