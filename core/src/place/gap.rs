//! Places one block after the other into a *hole*: a range of free addresses between its *neighbours*, the placed
//! blocks that are alive with it. Time is cut into *sections*, numbered from 0; two blocks are alive together exactly
//! if they share one.
//!
//! For each block in the given order, the neighbours are collected and sorted by offset. The search then goes upwards
//! in memory. What lies between the highest end so far, at first 0, and the next begin is a hole. *First fit* takes the
//! lowest hole that is large enough, *best fit* the smallest, of equals the lowest. If no hole is large enough, the
//! block goes on top. Alignment rounds the begin of a hole up. Pinned blocks are placed before all others.
//!
//! There are two ways to find the neighbours. The caller chooses:
//!
//! - *Dense*, for blocks with so many neighbours that sorting them would take longer than going past all placed blocks.
//!   All placed blocks are kept in the order of their offsets, and the search skips those that are no neighbours. O(n)
//!   for a block.
//! - Otherwise, a lifetime tree finds the k neighbours of a block, and they are sorted. O(k log k) for a block, plus
//!   O(√n) at worst to find them. For all blocks, that is O(|E| log n) time, where |E| is the number of pairs of blocks
//!   alive together, plus O(n √n) at worst; no pair is stored.
//!
//! *First fit* ends its search at the first hole that is large enough. Memory: 4 n words, 6 n indices and the tree.

use core::ops::ControlFlow;

use super::lifetime_tree::{LifetimeTree, Lifetimes};
use crate::table::{Table, at};
use crate::workspace::workspace;
use crate::{Block, Workspace, sort};

/// Which hole a block takes, of those that are large enough. A hole is a range of free addresses between placed blocks
/// that are alive at some step together with the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fit {
    /// The lowest hole that is large enough.
    First,
    /// The smallest hole that is large enough; of equally small ones, the lowest.
    Best,
}

workspace! {
    pub(crate) struct Gaps<'a>(n; given: &'a [Block], least_alignment: u64, all: bool) {
        tables {
            low: u32[n],
            high: u32[n],
            neighbours: [u64; 2][n],
            order: u32[n],
            aside: u32[n],
        }
        parts {
            placed: LifetimeTree(n),
            stack: Stack(n),
        }
        state {
            blocks: &'a [Block] = given,
            alignment: u64 = least_alignment,
            dense: bool = all,
        }
    }
}

workspace! {
    struct Stack<'a>(n) {
        tables {
            /// Begin and end in bytes, the lowest block first.
            spans: [u64; 2][n],
            lifetimes: [u32; 2][n],
        }
        state {
            len: u32 = 0,
        }
    }
}

struct Search {
    size: u64,
    alignment: u64,
    fit: Fit,
    top: u64,
    /// The bytes left unused, and the offset.
    best: Option<(u64, u64)>,
}

impl Search {
    #[inline]
    fn pass(&mut self, begin: u64, end: u64) -> bool {
        // The hole begins at `top` and ends at `begin`.
        if let Some(left) = begin.checked_sub(self.top).and_then(|room| room.checked_sub(self.size)) {
            if self.best.is_none_or(|(least, _)| left < least) {
                self.best = Some((left, self.top));
            }
            if self.fit == Fit::First {
                return true;
            }
        }
        self.top = self.top.max(super::align_up(end, self.alignment));
        false
    }

    fn offset(&self) -> u64 {
        self.best.map_or(self.top, |(_, offset)| offset)
    }
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(
        blocks: &'a [Block],
        alignment: u64,
        scratch: &mut Workspace<'a>,
        dense: bool,
        number_sections: impl FnOnce(&mut Table<'_, u32>, &mut Table<'_, u32>) -> u32,
    ) -> Self {
        let mut gaps = Self::lend(blocks.len(), blocks, alignment, dense, scratch);
        number_sections(&mut gaps.low, &mut gaps.high);
        let Self { low, high, placed, order, aside, .. } = &mut gaps;
        placed.arrange([low, high], [order, aside]);
        gaps
    }

    pub(crate) fn build(&mut self, order: &[u32], fit: Fit, offsets: &mut Table<'_, u64>) -> u64 {
        let mut peak = 0;
        for pinned in [true, false] {
            for &i in order {
                let b = at(self.blocks, i);
                if b.pin.is_some() == pinned {
                    offsets[i] = b.pin.unwrap_or_else(|| self.hole(i, &b, fit, offsets));
                    peak = peak.max(self.keep(i, offsets[i]));
                }
            }
        }
        peak
    }

    /// Does not check what lies there.
    pub(crate) fn keep(&mut self, i: u32, offset: u64) -> u64 {
        let end = offset.saturating_add(at(self.blocks, i).size);
        if self.dense {
            self.stack.insert([offset, end], [self.low[i], self.high[i]]);
        } else {
            self.placed.set(i, i);
        }
        end
    }

    fn hole(&mut self, i: u32, b: &Block, fit: Fit, offsets: &Table<'_, u64>) -> u64 {
        let Self { blocks, neighbours, .. } = self;
        let mut search = Search { size: b.size, alignment: b.alignment.max(self.alignment), fit, top: 0, best: None };
        if self.dense {
            let (stack, low, high) = (&self.stack, self.low[i], self.high[i]);
            for (&[begin, end], lifetime) in stack.spans.first(stack.len).iter().zip(stack.lifetimes.first(stack.len)) {
                if lifetime[0] < high && low < lifetime[1] && search.pass(begin, end) {
                    break;
                }
            }
            return search.offset();
        }
        let mut found = 0;
        self.placed.each(&Lifetimes::colliding(self.low[i], self.high[i]), |j| {
            let begin = offsets[j];
            neighbours[found] = [begin, begin + at(blocks, j).size];
            found += 1;
        });
        sort::ascending(
            neighbours,
            found,
            |[begin, _]| begin,
            |[begin, end]| {
                if search.pass(begin, end) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        search.offset()
    }
}

impl Stack<'_> {
    fn insert(&mut self, span: [u64; 2], lifetime: [u32; 2]) {
        let mut to = self.len;
        while to > 0 && self.spans[to - 1] > span {
            self.spans[to] = self.spans[to - 1];
            self.lifetimes[to] = self.lifetimes[to - 1];
            to -= 1;
        }
        self.spans[to] = span;
        self.lifetimes[to] = lifetime;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Sweep;
    use crate::table::count;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn build(blocks: &[Block], fit: Fit, dense: bool) -> (u64, Vec<u64>) {
        let len = Gaps::workspace(blocks.len()).and(Sweep::workspace(blocks.len()));
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let sweep = Sweep::new(blocks, scratch.split(Sweep::workspace(blocks.len()))).unwrap();
        let mut gaps = Gaps::new(blocks, 1, &mut scratch, dense, |low, high| sweep.clique_ranges(low, high));
        let order: Vec<u32> = (0..count(blocks)).collect();
        let mut offsets = vec![0; blocks.len()];
        let peak = gaps.build(&order, fit, &mut Table::new(&mut offsets));
        (peak, offsets)
    }

    #[test]
    fn best_fit_takes_the_smallest_hole_and_first_fit_the_lowest() {
        let pinned = |offset, size| Block { pin: Some(offset), ..Block::new(0, 2, size) };
        let blocks = |size| [pinned(20, 2), pinned(32, 8), Block::new(1, 3, size)];
        for dense in [true, false] {
            assert_eq!(build(&blocks(8), Fit::First, dense).1[2], 0);
            assert_eq!(build(&blocks(8), Fit::Best, dense).1[2], 22);
            assert_eq!(build(&blocks(10), Fit::Best, dense).1[2], 22);
            assert_eq!(build(&blocks(11), Fit::Best, dense).1[2], 0);
            assert_eq!(build(&blocks(21), Fit::Best, dense).1[2], 40);
        }
    }

    proptest! {
        #[test]
        fn the_walk_past_all_finds_the_hole_that_the_neighbours_leave(
            rows in prop::collection::vec((0u32..30, 1u32..12, 1u64..20, 0u32..3), 1..40), best in any::<bool>(),
        ) {
            let block = |&(start, width, size, log)| Block { alignment: 1u64 << log, ..Block::new(start, start + width, size) };
            let blocks: Vec<Block> = rows.iter().map(block).collect();
            let fit = if best { Fit::Best } else { Fit::First };
            prop_assert_eq!(build(&blocks, fit, true), build(&blocks, fit, false));
        }
    }
}
