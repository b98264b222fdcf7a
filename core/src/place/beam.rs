//! Beam search along time (Ow and Morton 1988): many partial plans are kept side by side, and at each step the best of
//! them go on.
//!
//! Problem: is there a plan within a capacity? Heuristics and the exact search build one plan at a time. Where hundreds
//! of blocks fill the memory at every step, the exact search finds out late that its first decisions lead to no plan.
//!
//! Steps:
//! 1. A *pass* is one attempt to place all blocks within a capacity. It begins at the busiest time, because the blocks
//!    alive then have to lie without a hole between them, and that is easy only as long as no other block has a place.
//!    These blocks are placed first. From there the pass goes forward in time to the end, then backward to the begin;
//!    if it fails, another pass goes backward first (`beam::timeline`). Time is counted in *sections*, stretches of
//!    time that are numbered from 0.
//! 2. A *partial plan* is the list of the blocks that are alive, from the bottom up, with their offsets. The next block
//!    goes to the lower or the upper end of each hole that is large enough. A *cell* is one block in a partial plan; a
//!    *way* is a place for the next block in it.
//! 3. The cost of a partial plan is a sum over all pairs of neighbours in memory: the logarithm of the time between the
//!    ends of their lifetimes. A hole counts as a block that ends now. The floor (address 0) and the ceiling (the
//!    capacity) count as blocks that end after all others. Neighbours that end together leave one hole, not two. Busy
//!    sections count as longer than others, because a hole does harm only there.
//! 4. The `width` cheapest partial plans are kept. If some differ only in which of several blocks of equal size and
//!    lifetime lies where, one of them is kept.
//! 5. Where no partial plan has room for the next block, the pass goes back a few blocks and tries again with more
//!    partial plans and random numbers in the costs, further back with each try (`beam::retry`). So the work goes to
//!    the few stretches of time that are hard. Beam search with backtracking is due to Furcy and Koenig (2005).
//! 6. Several capacities are tried, all below the peak of the best plan so far: the peak is to fall by all of its
//!    distance to the lower bound, or to the capacity of the constraints if that is higher; by a half, a quarter and so
//!    on down to a 16th; but at least by the greatest common divisor of the sizes. A plan that is found becomes the
//!    best plan. Where no capacity succeeds, the width doubles, and random numbers are added to the costs. The two
//!    passes for a capacity then begin at the section at which the last pass before them ended or was given up.
//!
//! Until its turn comes, a pinned block divides the holes of those that are alive with it. A plan with a peak of 2⁵⁴ bytes or
//! more is left as it is; so is one of so many blocks alive together that no pass would come to its end. Ties: the way that is described
//! first in a table that is filled in a fixed but arbitrary order. Cost of a pass: O(n · width · alive), at most 32
//! times as much with all tries. Memory: two tables of 64 cells for each of the first 6,000 blocks and one for each other, and at
//! most 2²¹ words from which offsets are read (n words if there are more blocks).

mod retry;
mod timeline;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use self::timeline::{Ends, Timeline};
use super::multistart;
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, align_up, copy, gcd};
use crate::hash;
use crate::table::{Table, at, count};
use crate::{Block, Workspace, WorkspaceLen, sort};

const MOST_WIDTH: usize = 1 << WIDTH_BITS;
const WIDTH_BITS: u32 = 10;
const MOST_STEPS: usize = 1 << 21;
const CELLS: usize = 64;
const MANY: usize = 6000;
const WAYS: usize = 3;
const NARROW: u32 = 16;
const PASSES: u64 = 32;
const MOST_HALVINGS: u32 = 4;
const FRACTION: u32 = 8;
/// What noting a possible place costs, in blocks of partial plans looked at.
const CELLS_OF_A_WAY: u64 = 8;
const CELLS_OF_A_NODE: u64 = 600;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let width = most_width(n);
    let cells = WorkspaceLen { words: 2 * 3 * cells(n) + 2 * 2 * width, indices: 2 * width };
    let ways = WorkspaceLen { words: (4 * WAYS + 4) * width + n * width, indices: 0 };
    let own = WorkspaceLen { words: 0, indices: 7 * n }.and(cells).and(ways);
    timeline::workspace(n).and(own).max(multistart::workspace(n))
}

const fn most_width(n: usize) -> usize {
    let fits = MOST_STEPS / if n == 0 { 1 } else { n };
    if fits < 1 {
        1
    } else if fits < MOST_WIDTH {
        fits
    } else {
        MOST_WIDTH
    }
}

const fn cells(n: usize) -> usize {
    if n < MANY { CELLS * n + 1 } else { CELLS * MANY + n + 1 }
}

pub(super) fn improve(
    problem: &Problem<'_>,
    options: &Options,
    incumbent: Summary,
    first_round: u32,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let mut best = Summary { nodes: 0, ..incumbent };
    if best.peak >> (u64::BITS - WIDTH_BITS) > 0 {
        return best;
    }
    let mut scratch = scratch.reborrow();
    let mut beam = Beam::new(problem, options, &mut scratch);
    let enough = best.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    let most = options.nodes.saturating_mul(CELLS_OF_A_NODE);
    let unit = problem.blocks.iter().fold(0, |unit, b| gcd(unit, b.size)).max(1);
    let (mut round, mut halvings, mut improved) = (first_round, 0u32, false);
    while best.peak > enough && beam.looked < most && beam.may_finish(most) {
        let gap = best.peak - enough;
        let part = (gap >> halvings).max(unit).min(gap);
        if round > 0 {
            beam.timeline.start = beam.gave_up;
        }
        let found = [true, false].into_iter().any(|forward| beam.pass(forward, best.peak - part, round, most));
        if found {
            best = Summary { peak: beam.keep(offsets), solver: Solver::Beam, ..best };
            (halvings, improved) = (halvings.saturating_sub(1), true);
        } else if halvings < MOST_HALVINGS && part > unit {
            halvings += 1;
        } else {
            round += u32::from(!improved);
            (halvings, improved) = (0, false);
        }
        best.nodes = beam.looked / CELLS_OF_A_NODE;
        if watch(&best).is_break() {
            break;
        }
    }
    best
}

/// Begin and end in bytes; then one past the last section of time (upper half) and the block (lower half).
type Cell = [u64; 3];

#[derive(Clone, Copy)]
struct Hole {
    low: u64,
    high: u64,
    below: Ends,
    above: Ends,
    own: Ends,
    /// Of the partial plan, without the borders of the hole.
    cost: u64,
}

struct PartialPlans<'a> {
    cell: Table<'a, Cell>,
    len: Table<'a, u32>,
    /// By partial plan: its cost, with 8 fraction bits, and a hash of which kind of block lies at which offset.
    value: Table<'a, [u64; 2]>,
    count: u32,
}

struct Beam<'a> {
    blocks: &'a [Block],
    alignment: u64,
    n: u32,
    timeline: Timeline<'a>,
    order: Table<'a, u32>,
    turn: u32,
    gave_up: u32,
    kept: Table<'a, u32>,
    /// By block: the index in `order` of the first block with the same lifetime and size.
    kind: Table<'a, u32>,
    aside: Table<'a, u32>,
    /// The pinned blocks, the lowest first.
    pins: Table<'a, u32>,
    pin_count: u32,
    /// By pinned block: its index in `order`.
    position: Table<'a, u32>,
    /// The pinned blocks to come that are alive with the block at hand, the lowest first.
    ahead: Table<'a, u32>,
    ahead_count: u32,
    forward: bool,
    capacity: u64,
    row: u32,
    width: u32,
    now: PartialPlans<'a>,
    next: PartialPlans<'a>,
    /// The cost of the resulting plan (upper half), and an index in `rest`; beyond `ways`, only free indices in `rest`.
    way: Table<'a, u64>,
    /// The hash of the resulting plan; the partial plan and how many of its blocks lie below; the offset.
    rest: Table<'a, [u64; 3]>,
    ways: u32,
    most_ways: u32,
    /// With 8 fraction bits; places that lead to a higher cost are left out.
    limit: u64,
    seen: Table<'a, u64>,
    /// By index in `order`, a row of words: the offset in the upper 54 bits, the partial plan before in the lowest 10.
    back: Table<'a, u64>,
    random: Xoshiro256PlusPlus,
    looked: u64,
}

impl<'a> Beam<'a> {
    fn new(problem: &Problem<'a>, options: &Options, scratch: &mut Workspace<'a>) -> Self {
        let blocks = problem.blocks;
        let len = blocks.len();
        let width = most_width(len);
        let timeline = Timeline::new(&problem.sweep, blocks.len(), scratch);
        let (order, kept, kind) = (scratch.indices(len), scratch.indices(len), scratch.indices(len));
        let mut aside = scratch.indices(len);
        let [mut pins, position, ahead] = [(); 3].map(|()| scratch.indices(len));
        let mut pin_count = 0;
        for i in (0..count(blocks)).filter(|&i| at(blocks, i).pin.is_some()) {
            pins[pin_count] = i;
            pin_count += 1;
        }
        sort::by_key(&mut pins, pin_count, &mut aside, |i| at(blocks, i).pin.unwrap_or(0));
        let mut plans = || PartialPlans {
            cell: scratch.stale_word_records(cells(len)),
            len: scratch.stale_indices(width),
            value: scratch.stale_word_records(width),
            count: 0,
        };
        let (now, next) = (plans(), plans());
        let mut way = scratch.stale_words(WAYS * width);
        for i in 0..u32::try_from(WAYS * width).unwrap_or(0) {
            way[i] = i.into();
        }
        Self {
            blocks,
            alignment: options.constraints.alignment,
            n: count(blocks),
            gave_up: timeline.start,
            order,
            turn: 0,
            kept,
            kind,
            aside,
            pins,
            pin_count,
            position,
            ahead,
            ahead_count: 0,
            forward: true,
            capacity: 0,
            row: timeline.most_alive + 1,
            timeline,
            width: 1,
            now,
            next,
            way,
            rest: scratch.stale_word_records(WAYS * width),
            ways: 0,
            most_ways: 0,
            limit: u64::MAX,
            seen: scratch.stale_words(4 * width),
            back: scratch.stale_words(len * width),
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            looked: 0,
        }
    }

    /// A pass looks at a quarter of the widest row for each block and partial plan, or more.
    fn may_finish(&self, most: u64) -> bool {
        u64::from(self.n) * u64::from(self.row) / 4 * u64::from(NARROW) <= most
    }

    fn pass(&mut self, forward: bool, capacity: u64, round: u32, most: u64) -> bool {
        (self.capacity, self.forward) = (capacity, forward);
        self.put_in_order();
        let width = NARROW << round.min(WIDTH_BITS);
        self.widen(width);
        let plain = u64::from(self.n) * u64::from(self.width) * u64::from(self.row);
        let most = most.min(self.looked.saturating_add(PASSES * plain));
        let (mut noise, mut hard) = (retry::noise(round), retry::Hard::default());
        let (mut step, mut section) = (0, self.go_back(0));
        while step < self.n {
            if step == self.turn {
                section = self.go_back(step);
            }
            let b = self.order[step];
            if self.timeline.begin(b) != section {
                section = self.timeline.begin(b);
                self.drop_ended(section);
            }
            (self.ways, self.limit) = (0, u64::MAX);
            self.look_ahead(step, b);
            for i in 0..self.now.count {
                self.expand(i, b, section, noise);
            }
            self.select(step, b);
            self.kept[step] = self.now.count;
            self.gave_up = self.timeline.section(section);
            if self.looked > most {
                return false;
            }
            if self.now.count == 0 {
                let Some(back) = hard.failed(step) else { return false };
                step = back;
                section = self.go_back(step);
                self.widen(width << hard.tries.min(retry::MOST_DOUBLINGS));
                noise = retry::noise(hard.tries);
            } else {
                step += 1;
                if hard.is_behind(step) {
                    self.widen(width);
                    noise = retry::noise(round);
                }
            }
        }
        true
    }

    fn put_in_order(&mut self) {
        self.timeline.forward = self.forward;
        sort::identity(&mut self.order, self.n);
        let Self { blocks, timeline, order, aside, .. } = self;
        let lifetime = |b| u64::from(!timeline.high[b]) << 32 | u64::from(timeline.low[b]);
        let keys: [&dyn Fn(u32) -> u64; 3] = [&lifetime, &|b| !at(blocks, b).size, &|b| timeline.rank(b)];
        for key in keys {
            sort::by_key(order, self.n, aside, key);
        }
        self.turn = 0;
        let mut before = None;
        for i in 0..self.n {
            let b = self.order[i];
            let Block { size, pin, .. } = at(self.blocks, b);
            self.position[b] = i;
            let content = (self.timeline.low[b], self.timeline.high[b], size, pin);
            self.kind[b] = if before == Some(content) { self.kind[self.order[i - 1]] } else { i };
            before = Some(content);
            self.turn += u32::from(!self.timeline.is_behind(b));
        }
    }

    fn drop_ended(&mut self, now: u32) {
        let [hole, beyond] = self.timeline.borders(now);
        for i in 0..self.now.count {
            let row = i * self.row;
            let (mut kept, mut cost, mut hash) = (0, 0, self.now.value[i][1]);
            let (mut top, mut below) = (0, beyond);
            self.looked += u64::from(self.now.len[i]);
            for c in 0..self.now.len[i] {
                let cell = self.now.cell[row + c];
                let (end, b) = parts(cell[2]);
                if end <= now {
                    hash = hash.wrapping_sub(hashed(self.kind[b], cell[0]));
                    continue;
                }
                let end = self.timeline.ends(b, now);
                cost += if cell[0] > top { apart(below, hole) + apart(end, hole) } else { apart(below, end) };
                (top, below) = (cell[1], end);
                self.now.cell[row + kept] = cell;
                kept += 1;
            }
            cost += if top < self.capacity { apart(below, hole) + apart(beyond, hole) } else { apart(below, beyond) };
            self.now.len[i] = kept;
            self.now.value[i] = [cost, hash];
        }
    }

    fn look_ahead(&mut self, step: u32, b: u32) {
        self.ahead_count = 0;
        for p in 0..self.pin_count {
            let pinned = self.pins[p];
            if self.position[pinned] > step && at(self.blocks, pinned).collides(&at(self.blocks, b)) {
                self.ahead[self.ahead_count] = pinned;
                self.ahead_count += 1;
            }
        }
    }

    fn expand(&mut self, i: u32, b: u32, now: u32, noise: u32) {
        let [hole, beyond] = self.timeline.borders(now);
        let Block { size, pin, .. } = at(self.blocks, b);
        let end = self.timeline.ends(b, now);
        let (row, len) = (i * self.row, self.now.len[i]);
        self.looked += u64::from(len) + 1;
        let (mut top, mut ahead) = (0, 0);
        for c in 0..=len {
            let [begin, cell_end, _] = if c < len { self.now.cell[row + c] } else { [self.capacity, 0, 0] };
            if begin - top >= size {
                let ends = |c: u32| self.timeline.ends(parts(self.now.cell[row + c][2]).1, now);
                let below = c.checked_sub(1).map_or(beyond, ends);
                let above = if c < len { ends(c) } else { beyond };
                let mut hole = Hole { low: top, high: begin, below, above, own: hole, cost: self.now.value[i][0] };
                hole.cost -= apart(below, hole.own) + apart(above, hole.own);
                if let Some(pin) = pin {
                    if top <= pin && pin + size <= begin {
                        self.fill(&hole, [pin; 2], end, (i, c), b, noise);
                    }
                } else {
                    ahead = self.divide(hole, ahead, now, end, (i, c), b, noise);
                }
            }
            top = cell_end;
        }
    }

    /// Tries the parts of the hole between pinned blocks to come, from that at index `ahead` on; returns the first that may
    /// reach above the hole.
    fn divide(&mut self, whole: Hole, ahead: u32, now: u32, end: Ends, from: (u32, u32), b: u32, noise: u32) -> u32 {
        let mut part = whole;
        let mut ahead = ahead;
        while ahead < self.ahead_count {
            let pinned = self.ahead[ahead];
            let Block { pin, size, .. } = at(self.blocks, pinned);
            let begin = pin.unwrap_or(0);
            if begin >= whole.high {
                break;
            }
            if begin + size > part.low {
                let ends = self.timeline.ends(pinned, now);
                // The block above stays beside a hole.
                let cost = part.cost + apart(whole.above, whole.own);
                self.fit(&Hole { high: begin, above: ends, cost, ..part }, end, from, b, noise);
                let cost = whole.cost + apart(whole.below, whole.own);
                part = Hole { low: begin + size, below: ends, cost, ..whole };
            }
            if begin + size > whole.high {
                return ahead;
            }
            ahead += 1;
        }
        self.fit(&part, end, from, b, noise);
        ahead
    }

    fn fit(&mut self, hole: &Hole, end: Ends, from: (u32, u32), b: u32, noise: u32) {
        let block = at(self.blocks, b);
        let alignment = block.alignment.max(self.alignment);
        if hole.high < hole.low || hole.high - hole.low < block.size {
            return;
        }
        let (lowest, highest) = (align_up(hole.low, alignment), (hole.high - block.size) & !(alignment - 1));
        if hole.low <= lowest && lowest <= highest {
            self.fill(hole, [lowest, highest], end, from, b, noise);
        }
    }

    fn fill(&mut self, hole: &Hole, [lowest, highest]: [u64; 2], end: Ends, (i, c): (u32, u32), b: u32, noise: u32) {
        let size = at(self.blocks, b).size;
        let border = |touches: bool, other: Ends| {
            if touches { apart(other, end) } else { apart(other, hole.own) + apart(end, hole.own) }
        };
        for offset in [lowest, highest] {
            let noise = if noise > 0 { u64::from(self.random.next_u32() % noise) } else { 0 };
            let borders = border(offset == hole.low, hole.below) + border(offset + size == hole.high, hole.above);
            let cost = hole.cost + borders + noise;
            if cost <= self.limit {
                if self.ways == self.most_ways {
                    self.prune();
                }
                let hash = self.now.value[i][1].wrapping_add(hashed(self.kind[b], offset));
                let (_, free) = parts(self.way[self.ways]);
                self.way[self.ways] = cost << 32 | u64::from(free);
                self.rest[free] = [hash, u64::from(i) << 32 | u64::from(c), offset];
                self.ways += 1;
                self.looked += CELLS_OF_A_WAY;
            }
            if lowest == highest {
                break;
            }
        }
    }

    fn prune(&mut self) {
        let half = self.ways / 2;
        sort::select(&mut self.way, 0, self.ways, half);
        self.limit = self.way[half] >> 32;
        self.ways = half + 1;
    }

    fn select(&mut self, step: u32, b: u32) {
        let slots = 4 * self.width;
        for slot in 0..slots {
            self.seen[slot] = 0;
        }
        self.next.count = 0;
        // Each time, as many ways are taken as partial plans are still missing. More times may be needed, because ways
        // to partial plans that are alike make only one.
        let mut taken = 0;
        while taken < self.ways && self.next.count < self.width {
            let until = self.ways.min(taken + self.width - self.next.count);
            if until < self.ways {
                sort::select(&mut self.way, taken, self.ways, until - 1);
            }
            for w in taken..until {
                let (cost, rest) = parts(self.way[w]);
                if hash::insert(&mut self.seen, slots, self.rest[rest][0].max(1)) {
                    self.make(step, b, cost, rest);
                }
            }
            taken = until;
        }
        core::mem::swap(&mut self.now, &mut self.next);
    }

    fn make(&mut self, step: u32, b: u32, cost: u32, rest: u32) {
        let [hash, from, offset] = self.rest[rest];
        let (i, c) = parts(from);
        let (k, len) = (self.next.count, self.now.len[i]);
        let (to, from) = (k * self.row, i * self.row);
        let [below, above] = [self.now.cell.range(from, from + c), self.now.cell.range(from + c, from + len)];
        copy(below, self.next.cell.range_mut(to, to + c));
        copy(above, self.next.cell.range_mut(to + c + 1, to + len + 1));
        let end = u64::from(self.timeline.end(b)) << 32 | u64::from(b);
        self.next.cell[to + c] = [offset, offset + at(self.blocks, b).size, end];
        self.next.len[k] = len + 1;
        self.next.value[k] = [cost.into(), hash];
        self.looked += u64::from(len) / 4;
        let most_width = self.most_width();
        self.back[step * most_width + k] = offset << WIDTH_BITS | u64::from(i);
        self.next.count += 1;
    }

    fn most_width(&self) -> u32 {
        u32::try_from(most_width(self.blocks.len())).unwrap_or(1)
    }

    fn keep(&self, offsets: &mut [u64]) -> u64 {
        let mut offsets = Table::new(offsets);
        let (mut partial, mut peak) = (0, 0);
        for step in (0..self.n).rev() {
            let b = self.order[step];
            let back = self.back[step * self.most_width() + partial];
            offsets[b] = back >> WIDTH_BITS;
            peak = peak.max(offsets[b] + at(self.blocks, b).size);
            partial = parts(back & ((1 << WIDTH_BITS) - 1)).1;
        }
        peak
    }
}

#[expect(clippy::cast_possible_truncation, reason = "halves")]
const fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The sum of log2(1 + d) over both directions of time, for d ticks between the ends; 8 fraction bits.
fn apart(a: Ends, b: Ends) -> u64 {
    logarithm(a[0].abs_diff(b[0])) + logarithm(a[1].abs_diff(b[1]))
}

/// log2(`x` + 1), with 8 fraction bits; linear between powers of two.
fn logarithm(x: u32) -> u64 {
    let x = u64::from(x) + 1;
    let whole = x.ilog2();
    u64::from(whole) << FRACTION | (x << FRACTION >> whole & ((1 << FRACTION) - 1))
}

const fn hashed(kind: u32, offset: u64) -> u64 {
    hash::mixed(offset.wrapping_add((kind as u64 + 1).wrapping_mul(hash::ODD)))
}

#[cfg(test)]
mod tests;
