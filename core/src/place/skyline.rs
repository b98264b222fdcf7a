//! The skyline over time that best-fit placement builds, and the rules by which it picks the next block.
//!
//! Problem: give each block an offset such that no two that are alive together share an address, as low as
//! possible. Sekiyama et al. 2018, section 3.2, after Burke et al. 2004, keep *offset lines*: maximal
//! stretches of time below which everything is taken. Steps:
//!
//! 1. Take the lowest line, the leftmost of equals.
//! 2. Among the unplaced blocks whose lifetime lies within the line pick one by the rule; put it on the
//!    line, which splits in up to three.
//! 3. If none fits, lift the line to its lowest neighbour and merge, with both if they are equal.
//!
//! The rule is the published one (longest lifetime first) or any other order of preference, with or without
//! *busiest first*: look at the busiest step under the line, the one with the most load yet to be placed.
//! The height of the line and that load together are a lower bound on the peak, so that a hole over this
//! step is the only one that may cost anything. If no block fits over it, go on in the parts beside it.
//!
//! Alignment rounds the line up under the block. Pinned blocks are obstacles: a block that would hit one
//! goes on top of it.
//!
//! Cost: O(log n) to find and split the line, a visit of the lifetime tree (a few dozen nodes, O(√n) at
//! worst) to find the block; with p pins, O(p) more for each block. Lines are a list over *sections*:
//! stretches of time that are numbered from 0 and between which nothing begins or ends.

use super::align_up;
use super::earliest_end::EarliestEnd;
use super::lifetime_tree::{ABSENT, LifetimeTree, Lifetimes};
use super::load_tree::LoadTree;
use crate::table::{Table, at};
use crate::{Block, Workspace, WorkspaceLen, sort};

/// Blocks over sections, and the lines on top of what is placed.
pub(crate) struct Skyline<'a> {
    blocks: &'a [Block],
    alignment: u64,
    n: u32,
    sections: u32,
    /// Per block, its sections: `[low, high)`.
    low: Table<'a, u32>,
    high: Table<'a, u32>,
    /// The unplaced blocks by their ranks; the block of each rank.
    unplaced: LifetimeTree<'a>,
    earliest_end: EarliestEnd<'a>,
    by_rank: Table<'a, u32>,
    /// Scratch for sorting; then the rank of each block.
    rank: Table<'a, u32>,
    /// Pinned blocks by offset, and how many they are.
    pins: Table<'a, u32>,
    pin_count: u32,
    /// Per section where a line begins: where it ends, where the one before it begins, how high it is.
    end: Table<'a, u32>,
    previous: Table<'a, u32>,
    height: Table<'a, u64>,
    /// Knock-out tournament for the lowest line; node i plays 2i against 2i + 1, sections are the leaves.
    lowest: Table<'a, u32>,
    remaining: LoadTree<'a>,
    /// The load of each section without the pinned blocks.
    load: Table<'a, u64>,
}

/// How the next block is picked among those that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The best rank.
    Rank,
    /// The best rank among those over the busiest step.
    BusiestFirst,
}

/// What goes on a line.
enum Pick {
    Block(u32),
    /// No unplaced block lies within the line.
    NoneFits,
    /// Over the busiest step the blocks will reach the limit.
    AtLimit,
}

/// The height of a section where no line begins: no line is that high.
const NO_LINE: u64 = u64::MAX;

impl<'a> Skyline<'a> {
    /// Workspace for `n` blocks over at most `sections` sections.
    pub(crate) const fn workspace(n: usize, sections: usize) -> WorkspaceLen {
        let own = WorkspaceLen { words: LoadTree::words(sections) + 2 * sections, indices: 5 * n + 4 * sections };
        own.and(LifetimeTree::workspace(n)).and(EarliestEnd::workspace(n, sections))
    }

    /// Lays out the board. `number_sections` writes the sections of each block and returns how many there
    /// are, at most `most_sections`; it may use the last table as scratch.
    pub(crate) fn new(
        blocks: &'a [Block],
        alignment: u64,
        most_sections: usize,
        scratch: &mut Workspace<'a>,
        number_sections: impl FnOnce(&mut Table<'_, u32>, &mut Table<'_, u32>) -> u32,
    ) -> Self {
        let len = blocks.len();
        let n = crate::table::count(blocks);
        let mut low = scratch.indices(len);
        let mut high = scratch.indices(len);
        let sections = number_sections(&mut low, &mut high);
        let mut by_rank = scratch.indices(len);
        let mut rank = scratch.indices(len);
        let mut pins = scratch.indices(len);
        let unplaced = LifetimeTree::new(scratch, &low, &high, n, &mut by_rank, &mut rank);
        let earliest_end = EarliestEnd::new(scratch, &low, n, most_sections, &mut by_rank, &mut rank);
        let mut pin_count = 0;
        for i in 0..n {
            if at(blocks, i).pin.is_some() {
                pins[pin_count] = i;
                pin_count += 1;
            }
        }
        sort::by_key(&mut pins, pin_count, &mut rank, |i| at(blocks, i).pin.unwrap_or(0));
        let mut load = scratch.words(most_sections);
        for i in 0..n {
            let b = at(blocks, i);
            if b.pin.is_none() {
                // First what is added at each section, and taken away; the sum makes the load of it.
                load[low[i]] = load[low[i]].wrapping_add(b.size);
                if high[i] < sections {
                    load[high[i]] = load[high[i]].wrapping_sub(b.size);
                }
            }
        }
        for s in 1..sections {
            load[s] = load[s].wrapping_add(load[s - 1]);
        }
        Self {
            blocks,
            alignment,
            n,
            sections,
            low,
            high,
            unplaced,
            earliest_end,
            by_rank,
            rank,
            pins,
            pin_count,
            end: scratch.indices(most_sections),
            previous: scratch.indices(most_sections),
            height: scratch.words(most_sections),
            lowest: scratch.indices(2 * most_sections),
            remaining: LoadTree::new(scratch, sections),
            load,
        }
    }

    /// Begins an order of preference: by index.
    pub(crate) fn rank_by_index(&mut self) {
        sort::identity(&mut self.by_rank, self.n);
    }

    /// Orders the blocks by preference: the lowest key first, equal keys as the calls before have left them.
    pub(crate) fn rank_by(&mut self, key: impl Fn(u32, &Block) -> u64) {
        let blocks = self.blocks;
        sort::by_key(&mut self.by_rank, self.n, &mut self.rank, |i| key(i, &at(blocks, i)));
    }

    /// Builds one placement, as long as its peak stays below `limit`; returns the peak, and how many blocks
    /// were placed until then.
    pub(crate) fn build(&mut self, rule: Rule, limit: u64, offsets: &mut Table<'_, u64>) -> (Option<u64>, u32) {
        if self.n == 0 {
            return (Some(0), 0);
        }
        let Self { load, rank, by_rank, unplaced, earliest_end, high, blocks, .. } = self;
        for r in 0..self.n {
            rank[by_rank[r]] = if at(blocks, by_rank[r]).pin.is_some() { ABSENT } else { r };
        }
        unplaced.enter_all(|i| rank[i], self.n);
        earliest_end.enter_all(|i| if rank[i] == ABSENT { u32::MAX } else { high[i] });
        if rule == Rule::BusiestFirst {
            self.remaining.fill(|s| load[s]);
        }
        let mut peak = 0;
        for p in 0..self.pin_count {
            let i = self.pins[p];
            offsets[i] = at(blocks, i).pin.unwrap_or(0);
            peak = peak.max(offsets[i].saturating_add(at(blocks, i).size));
        }
        self.start_lines();
        let movable = self.n - self.pin_count;
        let mut placed = 0;
        while placed < movable && peak < limit {
            let line = self.lowest[1];
            let i = match self.pick(rule, line, limit) {
                Pick::Block(i) => i,
                Pick::NoneFits => {
                    self.lift(line);
                    continue;
                }
                Pick::AtLimit => return (None, placed),
            };
            let b = at(self.blocks, i);
            let offset = self.dodge(&b, self.height[line]);
            let top = offset + b.size;
            offsets[i] = offset;
            peak = peak.max(top);
            self.unplaced.set(i, ABSENT);
            self.earliest_end.remove(i);
            if rule == Rule::BusiestFirst {
                self.remaining.subtract(self.low[i], self.high[i], b.size);
            }
            self.split(line, self.low[i], self.high[i], top);
            placed += 1;
        }
        ((peak < limit).then_some(peak), placed)
    }

    fn pick(&self, rule: Rule, line: u32, limit: u64) -> Pick {
        let (low, high) = (line, self.end[line]);
        if !self.earliest_end.any_within(low, high) {
            return Pick::NoneFits;
        }
        let mut best = ABSENT;
        if rule == Rule::BusiestFirst {
            let (step, load) = self.remaining.busiest(low, high);
            if load.saturating_add(self.height[line]) >= limit {
                return Pick::AtLimit;
            }
            best = self.unplaced.best(&Lifetimes::within_over(low, high, step));
        }
        if best == ABSENT {
            best = self.unplaced.best(&Lifetimes::within(low, high));
        }
        Pick::Block(self.by_rank[best])
    }

    /// The first aligned offset from `height` on at which the block hits no pinned one.
    fn dodge(&self, b: &Block, height: u64) -> u64 {
        let alignment = b.alignment.max(self.alignment);
        let mut offset = align_up(height, alignment);
        for p in 0..self.pin_count {
            let pinned = at(self.blocks, self.pins[p]);
            let begin = pinned.pin.unwrap_or(0);
            let end = begin.saturating_add(pinned.size);
            if begin < offset + b.size && offset < end && b.collides(&pinned) {
                offset = align_up(end, alignment);
            }
        }
        offset
    }

    // Lines

    /// One line over everything, at the bottom.
    fn start_lines(&mut self) {
        for s in 1..self.sections {
            self.height[s] = NO_LINE;
        }
        self.height[0] = 0;
        self.end[0] = self.sections;
        self.previous[0] = 0;
        for s in 0..self.sections {
            self.lowest[self.sections + s] = s;
        }
        for node in (1..self.sections).rev() {
            self.lowest[node] = self.lower(self.lowest[2 * node], self.lowest[2 * node + 1]);
        }
    }

    fn lower(&self, a: u32, b: u32) -> u32 {
        if (self.height[a], a) <= (self.height[b], b) { a } else { b }
    }

    fn set_height(&mut self, section: u32, height: u64) {
        self.height[section] = height;
        let mut node = (self.sections + section) >> 1;
        while node > 0 {
            self.lowest[node] = self.lower(self.lowest[2 * node], self.lowest[2 * node + 1]);
            node /= 2;
        }
    }

    /// Puts a block of the sections `[low, high)` with this top on the line.
    fn split(&mut self, line: u32, low: u32, high: u32, top: u64) {
        let end = self.end[line];
        let height = self.height[line];
        if end < self.sections {
            self.previous[end] = if high < end { high } else { low };
        }
        if high < end {
            self.end[high] = end;
            self.previous[high] = low;
            self.set_height(high, height);
        }
        if line < low {
            self.end[line] = low;
            self.previous[low] = line;
        }
        self.end[low] = high;
        self.set_height(low, top);
    }

    /// Lifts a line to its lowest neighbour and merges them. A line that spans everything stays: every
    /// block that is left fits on it.
    fn lift(&mut self, line: u32) {
        let end = self.end[line];
        let before = self.previous[line];
        let left = if line > 0 { self.height[before] } else { NO_LINE };
        let right = if end < self.sections { self.height[end] } else { NO_LINE };
        let height = left.min(right);
        if right == height && end < self.sections {
            self.end[line] = self.end[end];
            if self.end[end] < self.sections {
                self.previous[self.end[end]] = line;
            }
            self.set_height(end, NO_LINE);
        }
        if left == height && line > 0 {
            self.end[before] = self.end[line];
            if self.end[line] < self.sections {
                self.previous[self.end[line]] = before;
            }
            self.set_height(line, NO_LINE);
        } else {
            self.set_height(line, height);
        }
    }
}
