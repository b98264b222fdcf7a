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
//! A plan with a pinned block, or with a peak of 2⁵⁴ bytes or more, is left as it is. Ties: the way that is described
//! first in a table that is filled in a fixed but arbitrary order. Cost of a pass: O(n · width · alive), at most 32
//! times as much with all tries. Memory: two tables of 64 n cells, and at most 2²¹ words from which offsets are read (n
//! words if there are more blocks).

mod retry;
mod timeline;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use self::timeline::{Ends, Timeline};
use super::{Options, Solver, Summary, Watch, align_up, copy, gcd, improve_one, multistart};
use crate::hash;
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, sort};

/// The most partial plans that are kept at once.
const MOST_WIDTH: usize = 1 << WIDTH_BITS;
/// How many bits hold the index of a partial plan in an entry of the table `Beam::back`, from which the offsets of a
/// plan are read. The other bits hold the offset of the block that was added to this partial plan.
const WIDTH_BITS: u32 = 10;
/// The most words of the table `Beam::back`, from which the offsets of a plan are read. It has a word for each block
/// and each partial plan that may be kept after that block, so this number limits how many are kept. With more blocks
/// than this, one partial plan is kept, and the table has one word for each block.
const MOST_STEPS: usize = 1 << 21;
/// The table of the blocks of all partial plans that are kept at once has this number of cells for each block of the
/// instance, and one more cell in all. A cell is one block in a partial plan.
const CELLS: usize = 64;
/// How many possible places for the next block are collected at most, as a multiple of the most partial plans that are
/// kept at once. If there are more places, costly ones are dropped.
const WAYS: usize = 3;
/// How many partial plans are kept at once in the first attempts to place all blocks. When these attempts fail, the
/// number doubles.
const NARROW: u32 = 16;
/// An attempt to place all blocks goes back and tries again where a block fits nowhere. The attempt is given up when
/// its work is this number of times the work of an attempt without such tries.
const PASSES: u64 = 32;
/// Each attempt is to lower the best peak so far by a part of its distance to the lower bound, or to the capacity if
/// that is higher: by all of it, a half, a quarter and so on. The distance is halved at most this number of times.
const MOST_HALVINGS: u32 = 4;
/// A cost is a fixed-point number with this many fraction bits. The cost of a partial plan is a sum of base-2
/// logarithms.
const FRACTION: u32 = 8;
/// The time that it takes to note a possible place for the next block, as a multiple of the time that it takes to look
/// at one block of a partial plan.
const CELLS_OF_A_WAY: u64 = 8;
/// How many blocks of partial plans can be looked at in the time of one node of the exact search, as [`Options::nodes`]
/// counts them.
const CELLS_OF_A_NODE: u64 = 600;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let width = most_width(n);
    let cells = WorkspaceLen { words: 2 * 3 * cells(n) + 2 * 2 * width, indices: 2 * width };
    let ways = WorkspaceLen { words: (4 * WAYS + 4) * width + n * width, indices: 0 };
    let own = WorkspaceLen { words: 0, indices: 4 * n }.and(cells).and(ways);
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

/// How many cells the table of the blocks of all partial plans has, for an instance of `n` blocks. A cell is one block
/// in a partial plan. The table has room for at least one partial plan in which all blocks are alive.
const fn cells(n: usize) -> usize {
    CELLS * n + 1
}

/// Builds one plan from address 0 upwards, and then looks for better ones by beam search along time, for as long as the
/// exact search would take for `options.nodes` nodes of its search tree.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than that for this solver; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, beam};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 3, 4), Block::new(3, 5, 4), Block::new(2, 4, 2)];
/// let len = beam::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = beam::place(&blocks, &Options::default(), scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(summary.peak, 6);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    options: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let first = |blocks: &_, options: &_, built, scratch: Workspace<'_>, offsets: &mut _, watch: Watch<'_>| {
        improve(blocks, options, built, 0, scratch, offsets, watch)
    };
    improve_one(first, workspace(blocks.len()), blocks, options, scratch, offsets, watch)
}

/// Looks for a plan with a lower peak than the one in `offsets`, whose summary is `incumbent`. Returns the summary of
/// the plan that is then in `offsets`. The search is made in rounds, and begins with round `first_round`. Round r keeps
/// [`NARROW`] · 2^r partial plans, or as many as there is memory for if that is less. A plan with a pinned block, or
/// with a peak of 2⁵⁴ bytes or more, is left as it is.
pub(super) fn improve(
    blocks: &[Block],
    options: &Options,
    incumbent: Summary,
    first_round: u32,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let mut best = Summary { nodes: 0, ..incumbent };
    if blocks.iter().any(|b| b.pin.is_some()) || best.peak >> (u64::BITS - WIDTH_BITS) > 0 {
        return Ok(best);
    }
    let mut scratch = scratch.reborrow();
    let mut beam = Beam::new(blocks, options, &mut scratch)?;
    let enough = best.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    let most = options.nodes.saturating_mul(CELLS_OF_A_NODE);
    let unit = blocks.iter().fold(0, |unit, b| gcd(unit, b.size)).max(1);
    let (mut round, mut halvings, mut improved) = (first_round, 0u32, false);
    while best.peak > enough && beam.looked < most {
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
    Ok(best)
}

/// A block in a partial plan, as three words. The first two are its begin and its end in memory, in bytes. The upper
/// half of the third is one past the last section of time in which the block is alive, counted in the present direction
/// of time. Its lower half is the index of the block.
type Cell = [u64; 3];

/// The partial plans that are kept after a block was placed: each holds the blocks that are alive, with their offsets,
/// in a row of the table `cell` that has room for [`Beam::row`] blocks.
struct PartialPlans<'a> {
    /// The blocks of all partial plans, a row of the table for each plan, its lowest block first.
    cell: Table<'a, Cell>,
    /// By partial plan: how many blocks are in it.
    len: Table<'a, u32>,
    /// By partial plan, two words. The first is its cost, as fixed point with 8 fraction bits: it is high if blocks
    /// that are neighbours in memory end far apart in time. Random numbers that were added to it stay until the costs
    /// are computed anew. The second is a hash of which block lies at which offset, where blocks of equal size and
    /// lifetime count as the same.
    value: Table<'a, [u64; 2]>,
    /// How many partial plans there are.
    count: u32,
}

struct Beam<'a> {
    blocks: &'a [Block],
    alignment: u64,
    n: u32,
    timeline: Timeline<'a>,
    /// The blocks in the order in which they are placed.
    order: Table<'a, u32>,
    /// The index in `order` at which the present attempt to place all blocks turns. From there on, it goes in the other
    /// direction of time, from the section of time at which it has begun.
    turn: u32,
    /// The section of time that the last attempt to place all blocks had come to when it ended or was given up; at
    /// first the busiest section.
    gave_up: u32,
    /// By index in `order`: how many partial plans there were after the block at this index was placed.
    kept: Table<'a, u32>,
    /// By block: the index in `order` of the first block with the same lifetime and size. Such blocks count as the
    /// same, whatever their alignments.
    kind: Table<'a, u32>,
    aside: Table<'a, u32>,
    /// Whether the present attempt to place all blocks goes forward in time first, and then backward; if false, the
    /// other way round.
    forward: bool,
    /// The bytes within which the present attempt has to place all blocks.
    capacity: u64,
    /// How many cells the row of a partial plan has in the table `cell`: one more than the most blocks that are alive
    /// at once.
    row: u32,
    /// The most partial plans that are kept from one block to the next.
    width: u32,
    now: PartialPlans<'a>,
    next: PartialPlans<'a>,
    /// The possible places for the next block, one word for each. The upper half is the cost of the partial plan that
    /// comes out if the block takes this place, plus a random number in later rounds and tries. The lower half is an
    /// index in `rest`, where the place is described. Only the first `ways` words are in use; the lower halves of the
    /// others are the free indices in `rest`.
    way: Table<'a, u64>,
    /// The descriptions of possible places for the next block, three words for each; `way` holds indices into this
    /// table. The first word is the hash of the partial plan that comes out if the block takes this place. The second
    /// is the index of the partial plan to which the block is added (upper half), and how many blocks of it lie below
    /// the added block (lower half). The third is the offset of the added block, in bytes.
    rest: Table<'a, [u64; 3]>,
    /// How many possible places for the next block are in `way`.
    ways: u32,
    /// The most possible places for the next block that are kept in `way` at once.
    most_ways: u32,
    /// Places for the next block are left out if they lead to a partial plan that costs more than this. It is a
    /// fixed-point number with 8 fraction bits, like the costs in `way`.
    limit: u64,
    /// A hash table of the hashes of the partial plans that were made by placing the present block, so that none is
    /// made twice.
    seen: Table<'a, u64>,
    /// The table from which the offsets of a plan are read, with a row for each block, by index in `order`. The row has
    /// a word for each partial plan that was made by placing this block. The upper 54 bits are the block's offset in
    /// bytes. The lowest 10 bits are the index of the partial plan to which the block was added, among those that were
    /// made by placing the block before it.
    back: Table<'a, u64>,
    random: Xoshiro256PlusPlus,
    /// The work so far: how many blocks of partial plans were looked at. Other work counts as the number of blocks that
    /// can be looked at in the same time.
    looked: u64,
}

impl<'a> Beam<'a> {
    fn new(blocks: &'a [Block], options: &Options, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let len = blocks.len();
        let width = most_width(len);
        let timeline = Timeline::new(blocks, scratch)?;
        let (order, kept, kind) = (scratch.indices(len), scratch.indices(len), scratch.indices(len));
        let aside = scratch.indices(len);
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
        Ok(Self {
            blocks,
            alignment: options.constraints.alignment,
            n: count(blocks),
            gave_up: timeline.start,
            order,
            turn: 0,
            kept,
            kind,
            aside,
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
        })
    }

    /// Tries to place all blocks within `capacity` bytes. If `forward`, goes forward in time first and then backward;
    /// otherwise the other way round. Returns whether all blocks are placed. At first keeps [`NARROW`] · 2^`round`
    /// partial plans. Where a block fits nowhere, goes back and tries again. Gives up when one of these is true:
    ///
    /// - The attempt has gone back [`retry::MOST_TRIES`] times because of one block, or of blocks near it in `order`,
    ///   and has failed there again.
    /// - The attempt has taken [`PASSES`] times the work of an attempt without such tries.
    /// - The work of all attempts, `looked`, is more than `most`.
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

    /// Sorts the blocks into the order in which the present attempt places them. Finds the place in this order at which
    /// the attempt turns to the other direction of time, and the blocks that have the same lifetime and size.
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
            let content = (self.timeline.low[b], self.timeline.high[b], at(self.blocks, b).size);
            self.kind[b] = if before == Some(content) { self.kind[self.order[i - 1]] } else { i };
            before = Some(content);
            self.turn += u32::from(!self.timeline.is_behind(b));
        }
    }

    /// Takes the blocks that have ended by section `now` of time out of all partial plans, and computes the costs of
    /// these plans anew.
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

    /// Finds the places for block `b` in partial plan `i`, and adds them to `way`, each with its cost plus a random
    /// number below `noise`. `now` is the section of time in which `b` begins.
    fn expand(&mut self, i: u32, b: u32, now: u32, noise: u32) {
        let [hole, beyond] = self.timeline.borders(now);
        let size = at(self.blocks, b).size;
        let end = self.timeline.ends(b, now);
        let (row, len) = (i * self.row, self.now.len[i]);
        self.looked += u64::from(len) + 1;
        let mut top = 0;
        for c in 0..=len {
            let [begin, cell_end, _] = if c < len { self.now.cell[row + c] } else { [self.capacity, 0, 0] };
            if begin - top >= size {
                let ends = |c: u32| self.timeline.ends(parts(self.now.cell[row + c][2]).1, now);
                let below = c.checked_sub(1).map_or(beyond, ends);
                let above = if c < len { ends(c) } else { beyond };
                self.fill([top, begin], [below, hole, above, end], (i, c), b, noise);
            }
            top = cell_end;
        }
    }

    /// Adds to `way` two places for block `b` in a hole of partial plan `i`: at the hole's lower end, the address
    /// `low`, and at its upper end, the address `high`. Adds one place if the two are the same, and none if alignment
    /// leaves no room. `c` is the index in the partial plan of the block above the hole. A random number below `noise`
    /// is added to each cost. Four arguments are times, from which the cost is computed: `below` is when the block
    /// below the hole ends, `above` when the block above it ends, and `end` when block `b` ends. A hole counts as a
    /// block that ends at `hole`. See [`Ends`] for their unit.
    fn fill(
        &mut self,
        [low, high]: [u64; 2],
        [below, hole, above, end]: [Ends; 4],
        (i, c): (u32, u32),
        b: u32,
        noise: u32,
    ) {
        let block = at(self.blocks, b);
        let alignment = block.alignment.max(self.alignment);
        let (lowest, highest) = (align_up(low, alignment), (high - block.size) & !(alignment - 1));
        if lowest > highest || lowest < low {
            return;
        }
        let [cost, hash] = self.now.value[i];
        let without = cost - apart(below, hole) - apart(above, hole);
        let border = |touches: bool, other: Ends| {
            if touches { apart(other, end) } else { apart(other, hole) + apart(end, hole) }
        };
        for offset in [lowest, highest] {
            let noise = if noise > 0 { u64::from(self.random.next_u32() % noise) } else { 0 };
            let cost = without + border(offset == low, below) + border(offset + block.size == high, above) + noise;
            if cost <= self.limit {
                if self.ways == self.most_ways {
                    self.prune();
                }
                let hash = hash.wrapping_add(hashed(self.kind[b], offset));
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

    /// Keeps the half of the possible places for the next block that costs less. The highest cost among these is the
    /// new `limit`, above which further places are left out.
    fn prune(&mut self) {
        let half = self.ways / 2;
        sort::select(&mut self.way, 0, self.ways, half);
        self.limit = self.way[half] >> 32;
        self.ways = half + 1;
    }

    /// Makes the next partial plans, at most `width` of them, by putting block `b` in the cheapest of its possible
    /// places. `step` is the index of `b` in `order`.
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

    /// Makes one of the next partial plans, of cost `cost`: adds block `b` to a present one, in the place that the
    /// entry of `self.rest` with the index `rest` describes. `step` is the index of `b` in `order`.
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

    /// Writes a plan to `offsets`, after all blocks have been placed. A partial plan lists only living blocks; the
    /// offsets of all blocks that were placed on the way to it are in the table `back`. The plan written is the one
    /// that leads to the partial plan of index 0. Returns its peak in bytes.
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

/// The two halves of a word, the upper first.
#[expect(clippy::cast_possible_truncation, reason = "halves")]
const fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The cost of two neighbours in memory whose lifetimes end at `a` and `b`. Each of these is two times, in ticks: seen
/// in the present direction of time, and in the other. A section of time takes one tick, a busy section more. For each
/// direction, let d be the ticks between the two ends. The cost is the sum of log2(1 + d) over both directions. It has
/// 8 fraction bits, and is linear between powers of two.
fn apart(a: Ends, b: Ends) -> u64 {
    logarithm(a[0].abs_diff(b[0])) + logarithm(a[1].abs_diff(b[1]))
}

/// The base-2 logarithm of `x` + 1, with 8 fraction bits; linear between powers of two.
fn logarithm(x: u32) -> u64 {
    let x = u64::from(x) + 1;
    let whole = x.ilog2();
    u64::from(whole) << FRACTION | (x << FRACTION >> whole & ((1 << FRACTION) - 1))
}

/// A hash of an offset in bytes, and of a number `kind` that blocks of equal lifetime and size share.
const fn hashed(kind: u32, offset: u64) -> u64 {
    hash::mixed(offset.wrapping_add((kind as u64 + 1).wrapping_mul(hash::ODD)))
}

#[cfg(test)]
mod tests;
