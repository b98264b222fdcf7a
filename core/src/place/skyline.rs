//! The skyline over time that best-fit placement builds, and the rules by which it picks the next block.
//!
//! Problem: give each block an offset, as low as possible, such that no two that are alive together share an address.
//! Sekiyama et al. 2018, section 3.2, after Burke et al. 2004, keep *offset lines*: maximal stretches of time, each
//! with one height, below which all memory is taken. Steps:
//!
//! 1. Take the lowest line, the leftmost of equals. What happens to it depends only on its neighbours, and these are
//!    higher. So any line that is lower than the one before it and not higher than the one after it may go first, and
//!    the offsets are the same. The work stays at one place in time until nothing is low there.
//! 2. Of the unplaced blocks whose lifetime lies within the line, pick one by the rule. Put it on the line, which
//!    splits into up to three lines.
//! 3. If no block fits, lift the line to its lowest neighbour and merge the two, or all three if both neighbours are
//!    equal.
//!
//! The rule is the published one (longest lifetime first) or any other order of preference. Each may go with *busiest
//! first*: look at the busiest step under the line, the one with the most load yet to be placed. The height of the line
//! and that load together are a lower bound on the peak, so a hole over this step costs most. If no block that is alive
//! at this step lies within the line, any block within the line may be picked.
//!
//! Where a block rises above the next line, the rest of its own line becomes a narrow hole: nothing wide fits there any
//! more. Over busy steps, such holes cost much. The *fullness* of a line is its height plus the load yet to be placed
//! over it. *Level* does not place such a block if the neighbouring line is far fuller. Instead, the line is lifted to
//! the height of the neighbour, and the merged line is wide. *Flush* does the same; and of the few blocks that come
//! first in the order of preference, it takes the one that leaves the least unused room beside it.
//!
//! Alignment rounds the height of the line up under the block. A pinned block hangs above the lines until they reach it:
//! below it only blocks are picked that end below it, and a line on which none does rises to it, where it becomes a part of
//! the line like any other block.
//!
//! Cost: a few steps to find and split a line; a visit of the lifetime tree (a few dozen nodes in practice, all at worst)
//! to find the best block that fits, or that none does; with p pins, O(p) more for each pick. Lines are a list
//! over *sections*: stretches of time that are numbered from 0. Blocks begin and end only at the borders of sections. A
//! line is named by the number of its first section. Blocks are numbered anew in the order of their begins, so that
//! what happens at one time lies side by side in memory.

use super::lifetime_tree::{ABSENT, LifetimeTree, Lifetimes};
use super::load_tree::LoadTree;
use super::support::{Problem, align_up};
use crate::table::{Table, at};
use crate::workspace::workspace;
use crate::{Block, Workspace, sort};

workspace! {
    pub(crate) struct Skyline<'a>(n, most_sections; given: &'a [Block], least_alignment: u64) {
        tables {
            /// By block, in the order of begins as in all tables here: its index in the caller's slice.
            original: u32[n],
            low: u32[n],
            high: u32[n],
            by_rank: u32[n],
            /// [`ABSENT`] for a pinned block; scratch while blocks are sorted.
            rank: u32[n],
            /// The pinned blocks: first those that no line has reached yet, the lowest first.
            pins: u32[n],
            /// By first section of a line: one past its last.
            end: u32[most_sections],
            previous: u32[most_sections],
            height: u64[most_sections],
            /// By section of time, in bytes.
            load: u64[most_sections],
        }
        parts {
            unplaced: LifetimeTree(n),
            remaining: LoadTree(most_sections),
        }
        state {
            blocks: &'a [Block] = given,
            alignment: u64 = least_alignment,
            n: u32 = crate::table::count(given),
            sections: u32 = 0,
            pin_count: u32 = 0,
            hanging: u32 = 0,
            max_load: u64 = 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Rank,
    BusiestFirst,
    Level,
    Flush,
}

/// A line rises by at most the bytes by which its neighbour is fuller, shifted right by so many bits.
const LEVEL: u32 = 7;
const FLUSH_CHOICE: usize = 8;
const PINNED_CHOICE: usize = 16;
/// So that the slack is never near 0, the max load shifted right by so many bits is added.
const FLUSH_SLACK: u32 = 7;

enum Pick {
    Block(u32),
    NoneFits,
    /// Height and load still to be placed reach the caller's limit at a step of the line.
    AtLimit,
}

/// The height beside the first and the last line, above that of any line.
const NO_LINE: u64 = u64::MAX;

impl<'a> Skyline<'a> {
    pub(crate) fn new(
        problem: &Problem<'a>,
        alignment: u64,
        most_sections: usize,
        scratch: &mut Workspace<'a>,
        number_sections: impl FnOnce(&mut Table<'_, u32>, &mut Table<'_, u32>) -> u32,
    ) -> Self {
        let &Problem { blocks, sweep, .. } = problem;
        let mut skyline = Self::lend(blocks.len(), most_sections, blocks, alignment, scratch);
        let Self { n, original, low, high, by_rank, rank, pins, pin_count, load, unplaced, .. } = &mut skyline;
        // For now, `by_rank` and `rank` hold the first section of each block and one past its last, with the blocks in
        // the caller's order. Below, `low` and `high` get them in the order of begins.
        let sections = number_sections(by_rank, rank);
        for (i, &of) in (0..*n).zip(sweep.by_start()) {
            original[i] = of;
            let block = at(blocks, original[i]);
            low[i] = by_rank[original[i]];
            high[i] = rank[original[i]];
            if block.pin.is_some() {
                pins[*pin_count] = i;
                *pin_count += 1;
            }
            // At first, the change of the load at each section; the sums below make it the load.
            load[low[i]] = load[low[i]].wrapping_add(block.size);
            if high[i] < sections {
                load[high[i]] = load[high[i]].wrapping_sub(block.size);
            }
        }
        for s in 1..sections {
            load[s] = load[s].wrapping_add(load[s - 1]);
        }
        unplaced.arrange([low, high], [by_rank, rank]);
        skyline.max_load = skyline.load.first(sections).iter().copied().max().unwrap_or(0);
        skyline.sections = sections;
        skyline
    }

    pub(crate) fn rank_by_index(&mut self) {
        for i in 0..self.n {
            self.by_rank[self.original[i]] = i;
        }
    }

    pub(crate) fn rank_by(&mut self, key: impl Fn(u32, &Block) -> u64) {
        let Self { blocks, original, .. } = self;
        sort::by_key(&mut self.by_rank, self.n, &mut self.rank, |i| key(original[i], &at(blocks, original[i])));
    }

    /// Gives up at a peak of `limit` bytes. Also returns how many blocks without a pin were placed.
    pub(crate) fn build(&mut self, rule: Rule, limit: u64, offsets: &mut Table<'_, u64>) -> (Option<u64>, u32) {
        if self.n == 0 {
            return (Some(0), 0);
        }
        let Self { load, rank, by_rank, unplaced, blocks, original, pins, .. } = self;
        sort::by_key(pins, self.pin_count, rank, |i| at(blocks, original[i]).pin.unwrap_or(0));
        for r in 0..self.n {
            let pinned = at(blocks, original[by_rank[r]]).pin.is_some();
            rank[by_rank[r]] = if pinned { ABSENT } else { r };
        }
        unplaced.enter_all(|i| rank[i]);
        if rule != Rule::Rank {
            self.remaining.fill(self.sections, |s| load[s]);
        }
        let mut peak = 0;
        for p in 0..self.pin_count {
            let (i, b) = (self.original[self.pins[p]], at(self.blocks, self.original[self.pins[p]]));
            offsets[i] = b.pin.unwrap_or(0);
            peak = peak.max(offsets[i].saturating_add(b.size));
        }
        self.hanging = self.pin_count;
        let mut line = self.first_line();
        let movable = self.n - self.pin_count;
        let mut placed = 0;
        while placed < movable && peak < limit {
            line = self.local_minimum(line);
            if self.land(rule, line) {
                continue;
            }
            let i = match self.pick(rule, line, limit) {
                Pick::Block(i) => i,
                Pick::NoneFits => {
                    line = self.lift(line);
                    continue;
                }
                Pick::AtLimit => return (None, placed),
            };
            let b = at(self.blocks, self.original[i]);
            if matches!(rule, Rule::Level | Rule::Flush) && self.goes_level(line, b.size) {
                line = self.lift(line);
                continue;
            }
            let offset = self.offset_on(line, &b);
            let top = offset + b.size;
            offsets[self.original[i]] = offset;
            peak = peak.max(top);
            self.unplaced.set(i, ABSENT);
            self.cover(rule, line, i, top);
            placed += 1;
        }
        ((peak < limit).then_some(peak), placed)
    }

    fn pick(&self, rule: Rule, line: u32, limit: u64) -> Pick {
        let (low, high) = (line, self.end[line]);
        let within = Lifetimes::within(low, high);
        let hanging = self.hangs_over(low, high).is_some();
        let picked = |rank: u32| if rank == ABSENT { Pick::NoneFits } else { Pick::Block(self.by_rank[rank]) };
        if rule == Rule::Rank {
            return picked(if hanging { self.first_below(line, &within) } else { self.unplaced.best(&within) });
        }
        let (step, load) = self.remaining.busiest(low, high);
        if load.saturating_add(self.height[line]) >= limit {
            return Pick::AtLimit;
        }
        let over = Lifetimes::within_over(low, high, step);
        let choose = |of: &_| match rule {
            Rule::Flush if hanging => self.flush::<PINNED_CHOICE>(line, of),
            Rule::Flush => self.flush::<FLUSH_CHOICE>(line, of),
            _ if hanging => self.first_below(line, of),
            _ => self.unplaced.best(of),
        };
        let best = choose(&over);
        picked(if best == ABSENT { choose(&within) } else { best })
    }

    // Pinned blocks

    fn hangs_over(&self, low: u32, high: u32) -> Option<u64> {
        let mut over = self.pins.first(self.hanging).iter();
        over.find(|&&p| self.low[p] < high && low < self.high[p]).map(|&p| self.pin(p))
    }

    fn pin(&self, i: u32) -> u64 {
        at(self.blocks, self.original[i]).pin.unwrap_or(0)
    }

    fn first_below(&self, line: u32, of: &Lifetimes) -> u32 {
        let ranks = self.unplaced.lowest::<PINNED_CHOICE>(of);
        ranks.into_iter().take_while(|&rank| rank != ABSENT).find(|&rank| self.is_below(line, rank)).unwrap_or(ABSENT)
    }

    fn is_below(&self, line: u32, rank: u32) -> bool {
        let i = self.by_rank[rank];
        let b = at(self.blocks, self.original[i]);
        self.hangs_over(self.low[i], self.high[i]).is_none_or(|pin| self.offset_on(line, &b) + b.size <= pin)
    }

    /// The lowest pinned block over the line, if the line has reached it, becomes a part of the line.
    fn land(&mut self, rule: Rule, line: u32) -> bool {
        let (low, high) = (line, self.end[line]);
        let within = |&p: &u32| low <= self.low[p] && self.high[p] <= high;
        let Some(place) = (0..self.hanging).find(|&place| within(&self.pins[place])) else { return false };
        let i = self.pins[place];
        if self.pin(i) > self.height[line] {
            return false;
        }
        self.hanging -= 1;
        for place in place..self.hanging {
            self.pins[place] = self.pins[place + 1];
        }
        self.pins[self.hanging] = i;
        let top = self.pin(i).saturating_add(at(self.blocks, self.original[i]).size);
        self.cover(rule, line, i, top);
        true
    }

    /// No later block could cross a risen block; the fuller the neighbour, the more unused bytes may be left below.
    fn goes_level(&self, line: u32, size: u64) -> bool {
        let (before, after) = (self.height_before(line), self.height_after(line));
        let level = before.min(after);
        let rise = level - self.height[line];
        if level == NO_LINE || size <= rise {
            return false;
        }
        let fullness = |line: u32| self.height[line] + self.remaining.busiest(line, self.end[line]).1;
        let left = if before == level { fullness(self.previous[line]) } else { 0 };
        let right = if after == level { fullness(self.end[line]) } else { 0 };
        rise <= left.max(right).saturating_sub(fullness(line)) >> LEVEL
    }

    #[expect(clippy::cast_precision_loss, reason = "a score")]
    fn flush<const CHOICE: usize>(&self, line: u32, of: &Lifetimes) -> u32 {
        let (end, height) = (self.end[line], self.height[line]);
        let spoilt = |low: u32, high: u32, neighbour: u64, size: u64| {
            if low == high {
                return 0.0;
            }
            // Where the max load is near 2^64 bytes, a sum may not fit 64 bits; the cost is then too high.
            let taken = height.saturating_add(self.remaining.busiest(low, high).1);
            let room = self.max_load.saturating_sub(taken).saturating_add(self.max_load >> FLUSH_SLACK);
            let slack = room.saturating_add(1);
            f64::from(high - low) * size.min(neighbour - height) as f64 / slack as f64
        };
        let (before, after) = (self.height_before(line), self.height_after(line));
        let (mut best, mut least) = (ABSENT, f64::INFINITY);
        for rank in self.unplaced.lowest::<CHOICE>(of) {
            if rank == ABSENT {
                break;
            }
            if !self.is_below(line, rank) {
                continue;
            }
            let i = self.by_rank[rank];
            let size = at(self.blocks, self.original[i]).size;
            let cost = spoilt(line, self.low[i], before, size) + spoilt(self.high[i], end, after, size);
            let cost = cost / size as f64;
            if cost < least {
                (best, least) = (rank, cost);
            }
        }
        best
    }

    fn offset_on(&self, line: u32, b: &Block) -> u64 {
        align_up(self.height[line], b.alignment.max(self.alignment))
    }

    // Lines

    fn first_line(&mut self) -> u32 {
        self.height[0] = 0;
        self.end[0] = self.sections;
        self.previous[0] = 0;
        0
    }

    fn height_before(&self, line: u32) -> u64 {
        if line > 0 { self.height[self.previous[line]] } else { NO_LINE }
    }

    fn height_after(&self, line: u32) -> u64 {
        let end = self.end[line];
        if end < self.sections { self.height[end] } else { NO_LINE }
    }

    fn local_minimum(&self, from: u32) -> u32 {
        let mut line = from;
        loop {
            if self.height_before(line) <= self.height[line] {
                line = self.previous[line];
            } else if self.height_after(line) < self.height[line] {
                line = self.end[line];
            } else {
                return line;
            }
        }
    }

    fn cover(&mut self, rule: Rule, line: u32, i: u32, top: u64) {
        if rule != Rule::Rank {
            self.remaining.subtract(self.low[i], self.high[i], at(self.blocks, self.original[i]).size);
        }
        self.split(line, self.low[i], self.high[i], top);
    }

    fn split(&mut self, line: u32, low: u32, high: u32, top: u64) {
        let end = self.end[line];
        if end < self.sections {
            self.previous[end] = if high < end { high } else { low };
        }
        if high < end {
            self.end[high] = end;
            self.previous[high] = low;
            self.height[high] = self.height[line];
        }
        if line < low {
            self.end[line] = low;
            self.previous[low] = line;
        }
        self.end[low] = high;
        self.height[low] = top;
    }

    fn lift(&mut self, line: u32) -> u32 {
        let (before, after) = (self.height_before(line), self.height_after(line));
        let hanging = self.hangs_over(line, self.end[line]).unwrap_or(NO_LINE);
        self.height[line] = before.min(after).min(hanging);
        if self.height[line] < before.min(after) {
            return line;
        }
        if after == self.height[line] {
            self.end[line] = self.end[self.end[line]];
        }
        let merged = if before == self.height[line] { self.previous[line] } else { line };
        self.end[merged] = self.end[line];
        if self.end[line] < self.sections {
            self.previous[self.end[line]] = merged;
        }
        merged
    }
}
