//! Placement into gaps: block after block goes into a hole between those that are placed and alive with it.
//!
//! For each block in the given order: collect the placed blocks whose lifetimes share a step with it, sort
//! them by offset, and walk upwards. What lies between the highest end so far and the next begin is a hole,
//! the first one at address 0 (the leading gap, below the first neighbour). *First fit* takes the lowest
//! hole that is large enough, *best fit* the smallest, the lower of equals; if none is, the block goes on
//! top. Alignment rounds the begin of a hole up. Pinned blocks are placed before all others.
//!
//! Cost: the neighbours come out of a lifetime tree, so that a block with k placed neighbours costs
//! O(k log k) beside O(√n) at worst for the tree; over all blocks that is O(|E| log n) time, and no edge is
//! stored. 2 n words for the neighbours of one block.

use super::lifetime_tree::{LifetimeTree, Lifetimes};
use crate::table::{Table, at, count};
use crate::{Block, Workspace, WorkspaceLen, sort};

/// Which of the holes that are large enough a block takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fit {
    /// The lowest.
    First,
    /// The smallest; of equal ones the lowest.
    Best,
}

/// Blocks over sections, and those placed so far.
pub(crate) struct Gaps<'a> {
    blocks: &'a [Block],
    alignment: u64,
    low: Table<'a, u32>,
    high: Table<'a, u32>,
    placed: LifetimeTree<'a>,
    /// Begin and end of each placed neighbour of the block in hand.
    neighbours: Table<'a, [u64; 2]>,
}

impl<'a> Gaps<'a> {
    pub(crate) const fn workspace(n: usize) -> WorkspaceLen {
        WorkspaceLen { words: 2 * n, indices: 4 * n }.and(LifetimeTree::workspace(n))
    }

    /// Nothing placed yet. `number_sections` writes the sections of each block.
    pub(crate) fn new(
        blocks: &'a [Block],
        alignment: u64,
        scratch: &mut Workspace<'a>,
        number_sections: impl FnOnce(&mut Table<'_, u32>, &mut Table<'_, u32>) -> u32,
    ) -> Self {
        let len = blocks.len();
        let mut low = scratch.indices(len);
        let mut high = scratch.indices(len);
        number_sections(&mut low, &mut high);
        let (mut order, mut aside) = (scratch.indices(len), scratch.indices(len));
        let placed = LifetimeTree::new(scratch, &low, &high, count(blocks), &mut order, &mut aside);
        Self { blocks, alignment, low, high, placed, neighbours: scratch.word_records(len) }
    }

    /// Places the blocks in this order, pinned ones first; returns the peak.
    pub(crate) fn build(&mut self, order: &[u32], fit: Fit, offsets: &mut Table<'_, u64>) -> u64 {
        let mut peak = 0;
        for pinned in [true, false] {
            for &i in order {
                let b = at(self.blocks, i);
                if b.pin.is_some() != pinned {
                    continue;
                }
                offsets[i] = b.pin.unwrap_or_else(|| self.hole(i, &b, fit, offsets));
                peak = peak.max(offsets[i].saturating_add(b.size));
                self.placed.set(i, i);
            }
        }
        peak
    }

    fn hole(&mut self, i: u32, b: &Block, fit: Fit, offsets: &Table<'_, u64>) -> u64 {
        let Self { blocks, neighbours, .. } = self;
        let mut found = 0;
        self.placed.each(&Lifetimes::colliding(self.low[i], self.high[i]), |j| {
            let begin = offsets[j];
            neighbours[found] = [begin, begin + at(blocks, j).size];
            found += 1;
        });
        sort::in_place(neighbours, found);
        let alignment = b.alignment.max(self.alignment);
        let mut top = 0;
        let mut best: Option<(u64, u64)> = None;
        for &[begin, end] in neighbours.first(found) {
            // The hole begins at `top` and ends at `begin`.
            if let Some(left) = begin.checked_sub(top).and_then(|room| room.checked_sub(b.size)) {
                if fit == Fit::First {
                    return top;
                }
                if best.is_none_or(|(least, _)| left < least) {
                    best = Some((left, top));
                }
            }
            top = top.max(super::align_up(end, alignment));
        }
        best.map_or(top, |(_, offset)| offset)
    }
}
