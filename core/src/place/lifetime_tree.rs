//! A tree over the lifetimes of blocks that answers two questions. Of the blocks that are alive only within a given
//! range of time, which has the best rank? Which blocks are alive together with a given one?
//!
//! A lifetime is a range `[low, high)` of *sections*, stretches of time numbered from 0. It is a point in the plane.
//! The points are sorted along a Z-order curve, which keeps near points together, and cut into leaves of eight; a
//! balanced tree stands over the leaves. Queries find only some of the blocks, the *members*. Each member has a rank; a
//! lower rank is better. A node holds the box around the points of its members, and their best rank. A query asks for a
//! range of begins and a range of ends. It goes down into the nodes whose boxes overlap these ranges, the node of
//! better rank first. A query for the best rank leaves out nodes whose best rank is no better than the best found so
//! far.
//!
//! Cost: O(n log n) to build over n blocks. A query for the best rank visits a few dozen nodes in practice, at worst
//! all nodes. A query for all members in its ranges also visits the nodes above each of them. To make a block a member,
//! or no member, costs O(log n). Memory: 4 n + 10 ⌈n/8⌉ indices.

use core::ops::Range;

use crate::sort;
use crate::table::Table;
use crate::workspace::workspace;

const LEAF: u32 = 8;
/// The rank of a block that no query is to find.
pub(crate) const ABSENT: u32 = u32::MAX;

workspace! {
    pub(crate) struct LifetimeTree<'a>(n) {
        tables {
            /// Sorted along a Z-order curve, with begin and end as coordinates.
            points: Point[n],
            position: u32[n],
            /// Children of node i are 2i and 2i + 1, leaves are `leaves..2 * leaves`.
            nodes: Node[2 * n.div_ceil(LEAF as usize)],
        }
        state {
            len: u32 = u32::try_from(n).unwrap_or(u32::MAX),
            leaves: u32 = u32::try_from(n.div_ceil(LEAF as usize)).unwrap_or(u32::MAX),
        }
    }
}

/// First section, one past the last, rank: side by side because a query reads them together.
type Point = [u32; 3];
const LOW: usize = 0;
const HIGH: usize = 1;
const RANK: usize = 2;

/// Least and highest begin, least and highest end, best rank; blocks that no query is to find do not count.
type Node = [u32; 5];
const LOW_MIN: usize = 0;
const LOW_MAX: usize = 1;
const HIGH_MIN: usize = 2;
const HIGH_MAX: usize = 3;
const BEST: usize = 4;
const EMPTY: Node = [u32::MAX, 0, u32::MAX, 0, ABSENT];

#[derive(Clone)]
pub(crate) struct Lifetimes {
    pub(crate) low: Range<u32>,
    pub(crate) high: Range<u32>,
}

impl Lifetimes {
    pub(crate) const fn within(low: u32, high: u32) -> Self {
        Self { low: low..u32::MAX, high: 0..high + 1 }
    }

    pub(crate) const fn within_over(low: u32, high: u32, step: u32) -> Self {
        Self { low: low..step + 1, high: step + 1..high + 1 }
    }

    pub(crate) const fn colliding(low: u32, high: u32) -> Self {
        Self { low: 0..high, high: low + 1..u32::MAX }
    }

    fn touch(&self, node: &Node) -> bool {
        node[LOW_MIN] < self.low.end
            && node[LOW_MAX] >= self.low.start
            && node[HIGH_MIN] < self.high.end
            && node[HIGH_MAX] >= self.high.start
    }

    fn hold(&self, point: &Point) -> bool {
        self.low.contains(&point[LOW]) && self.high.contains(&point[HIGH])
    }
}

impl LifetimeTree<'_> {
    pub(crate) fn arrange(&mut self, [low, high]: [&Table<'_, u32>; 2], [order, aside]: [&mut Table<'_, u32>; 2]) {
        let n = self.len;
        sort::identity(order, n);
        sort::by_key(order, n, aside, |i| interleave(low[i]) << 1 | interleave(high[i]));
        for p in 0..n {
            let i = order[p];
            self.points[p] = [low[i], high[i], ABSENT];
            self.position[i] = p;
        }
        self.enter_all(|_| ABSENT);
    }

    fn points(&self, node: u32) -> Range<u32> {
        let begin = (node - self.leaves) * LEAF;
        begin..(begin + LEAF).min(self.len)
    }

    pub(crate) fn enter_all(&mut self, rank_of: impl Fn(u32) -> u32) {
        for i in 0..self.len {
            let p = self.position[i];
            self.points[p][RANK] = rank_of(i);
        }
        for node in (1..2 * self.leaves).rev() {
            self.nodes[node] = self.around(node);
        }
    }

    pub(crate) fn set(&mut self, i: u32, rank: u32) {
        let p = self.position[i];
        self.points[p][RANK] = rank;
        let mut node = self.leaves + p / LEAF;
        while node > 0 {
            let around = self.around(node);
            if around == self.nodes[node] {
                return;
            }
            self.nodes[node] = around;
            node /= 2;
        }
    }

    fn around(&self, node: u32) -> Node {
        let join = |a: Node, b: Node| {
            [
                a[LOW_MIN].min(b[LOW_MIN]),
                a[LOW_MAX].max(b[LOW_MAX]),
                a[HIGH_MIN].min(b[HIGH_MIN]),
                a[HIGH_MAX].max(b[HIGH_MAX]),
                a[BEST].min(b[BEST]),
            ]
        };
        if node < self.leaves {
            return join(self.nodes[2 * node], self.nodes[2 * node + 1]);
        }
        self.points(node)
            .map(|p| self.points[p])
            .filter(|point| point[RANK] != ABSENT)
            .map(|[low, high, rank]| [low, low, high, high, rank])
            .fold(EMPTY, join)
    }

    pub(crate) fn best(&self, of: &Lifetimes) -> u32 {
        let mut best = ABSENT;
        self.visit(of, |rank| {
            best = rank;
            rank
        });
        best
    }

    pub(crate) fn lowest<const K: usize>(&self, of: &Lifetimes) -> [u32; K] {
        let mut lowest = [ABSENT; K];
        self.visit(of, |rank| {
            let mut moving = rank;
            for kept in &mut lowest {
                if moving < *kept {
                    core::mem::swap(&mut moving, kept);
                }
            }
            lowest.last().copied().unwrap_or(ABSENT)
        });
        lowest
    }

    pub(crate) fn each(&self, of: &Lifetimes, mut member: impl FnMut(u32)) {
        self.visit(of, |rank| {
            member(rank);
            ABSENT
        });
    }

    /// `member` returns a limit: only lower ranks are visited from then on.
    fn visit(&self, of: &Lifetimes, mut member: impl FnMut(u32) -> u32) {
        // Of a tree of at most 2^25 leaves, at most one sibling for each level waits to be visited.
        let mut waiting = [0; 32];
        let mut waiting = Table::new(&mut waiting);
        waiting[0] = 1;
        let mut depth = u32::from(self.leaves > 0);
        let mut limit = ABSENT;
        while depth > 0 {
            depth -= 1;
            let node = waiting[depth];
            let here = self.nodes[node];
            if here[BEST] >= limit || !of.touch(&here) {
                continue;
            }
            if node < self.leaves {
                let (a, b) = (2 * node, 2 * node + 1);
                let a_first = self.nodes[a][BEST] <= self.nodes[b][BEST];
                waiting[depth] = if a_first { b } else { a };
                waiting[depth + 1] = if a_first { a } else { b };
                depth += 2;
                continue;
            }
            for p in self.points(node) {
                let point = self.points[p];
                if point[RANK] < limit && of.hold(&point) {
                    limit = member(point[RANK]);
                }
            }
        }
    }
}

fn interleave(x: u32) -> u64 {
    let mut x = u64::from(x);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn answers_as_a_scan_does(
            points in prop::collection::vec((0u32..40, 1u32..20), 1..90),
            ops in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0u32..40, 1u32..30, 0u32..30), 1..60),
        ) {
            let n = u32::try_from(points.len()).unwrap();
            let mut low: Vec<u32> = points.iter().map(|p| p.0).collect();
            let mut high: Vec<u32> = points.iter().map(|p| p.0 + p.1).collect();
            let len = LifetimeTree::workspace(points.len());
            let mut indices = vec![0; len.indices + 2 * points.len()];
            let mut scratch = Workspace::new(&mut [], &mut indices);
            let (mut order, mut aside) = (scratch.indices(points.len()), scratch.indices(points.len()));
            let (low_table, high_table) = (Table::new(&mut low), Table::new(&mut high));
            let mut tree = LifetimeTree::lend(points.len(), &mut scratch);
            tree.arrange([&low_table, &high_table], [&mut order, &mut aside]);
            tree.enter_all(|i| i);
            let mut members = vec![true; points.len()];
            for (which, member, from, width, over) in ops {
                let i = which.index(points.len());
                members[i] = member;
                tree.set(i as u32, if member { i as u32 } else { ABSENT });
                let to = from + width;
                let step = from + over % width;
                let scan = |test: &dyn Fn(u32, u32) -> bool| -> Vec<u32> {
                    (0..n).filter(|&i| members[i as usize] && test(low_table[i], high_table[i])).collect()
                };
                let within = scan(&|l, h| l >= from && h <= to);
                prop_assert_eq!(tree.best(&Lifetimes::within(from, to)), within.first().copied().unwrap_or(ABSENT));
                let mut lowest: Vec<u32> = within.into_iter().take(3).collect();
                lowest.resize(3, ABSENT);
                prop_assert_eq!(&tree.lowest::<3>(&Lifetimes::within(from, to))[..], lowest);
                let over = scan(&|l, h| l >= from && h <= to && l <= step && step < h);
                prop_assert_eq!(tree.best(&Lifetimes::within_over(from, to, step)), over.first().copied().unwrap_or(ABSENT));
                let mut each = Vec::new();
                tree.each(&Lifetimes::colliding(from, to), |i| each.push(i));
                each.sort_unstable();
                prop_assert_eq!(each, scan(&|l, h| l < to && from < h));
            }
        }
    }
}
