//! Placement outward from the busiest step, for instances in which thousands of blocks are alive at once.
//!
//! Problem: the max load, the most bytes alive at one step, is reached at few steps only. A plan that wastes little
//! there may waste more elsewhere. But a plan built from address 0 upwards has unused bytes at all steps alike. Method:
//! dynamic storage allocation by best fit (Wilson et al. 1995), in both directions of time, with the ends of lifetimes
//! known. Here a *gap* is a range of free addresses between two blocks in memory, at one step. Steps:
//!
//! 1. Stack the blocks that are alive at the busiest step, without a gap. They are sorted by begin and cut into groups;
//!    within a group, the block that ends last is lowest. So blocks that end at nearly the same step lie side by side,
//!    and blocks that begin at nearly the same step lie in the same group.
//! 2. Go right, to later steps: at each begin of a block, first free what has ended, then put the block into a gap, or
//!    on top if no gap is large enough. All blocks in memory began before this block, so that a gap that is free at
//!    this step is free at all later steps too.
//! 3. Go left, to earlier steps, in the same way, with begins and ends exchanged. The two sides share nothing but the
//!    stack.
//!
//! The cost of a gap for a block has two parts. One is the bytes of the gap that the block would leave unused, at most
//! its own size. The other is high if the block and the neighbour beside which it would lie end far apart, because
//! neighbours that end together leave one large gap. It is the steps between the two ends, divided by the block's
//! lifetime, times its size, times a *weight*; 0 beside address 0. A gap that the block fills costs nothing.
//!
//! No number of groups and no weight is best everywhere. Each order of the stack is tried with several weights on each
//! side; of each side, the best result is kept. After a few fixed numbers of groups, the numbers of groups and the
//! weights are drawn at random, and so are numbers that are added to the begins and ends that decide the order. The
//! placement of a side is given up when its peak reaches that of the best plan, or that of the side's best result with
//! this order.
//!
//! Ties: the smallest gap, then the one above the block of the lowest index; the lower end of a gap. Cost for a block:
//! O(log n) to find the gaps that are large enough, then a look at each of them that may cost less, and O(gaps) to keep
//! the gaps sorted. Limit: a plan with pinned blocks is left as it is, since a pinned block may begin before the blocks
//! around it. Another method, first fit in the order of sizes, wastes more, and takes O(n) for a block.

use libm::exp2;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::interval::{self, Sweep};
use super::{Options, Solver, Summary, Watch, align_up, improve_one, multistart};
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, sort};

const GROUPS: [u32; 7] = [32, 64, 16, 8, 128, 4, 2];
const WEIGHTS: [f64; 3] = [3.0, 10.0, 0.3];
/// Gaps looked at that count as one block placed; moving a gap counts an eighth.
const GAPS_PER_BLOCK: u64 = 256;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let own = WorkspaceLen { words: 2 * n + 2 * (n + 1), indices: 2 * n + 2 * (n + 1) };
    multistart::workspace(n).max(interval::workspace(n).and(own))
}

/// Builds one plan from address 0 upwards. Then builds plans that begin with the blocks alive at the step with the most
/// bytes alive, and go on in both directions of time. Keeps the best plan. If any block is pinned, keeps the first
/// plan. Otherwise ends when one of these is true:
///
/// - `options.work`, counted in blocks placed, is used up. To look at many gaps in memory, and to begin a plan, counts
///   too.
/// - The peak is the lower bound, or within the capacity that `options.constraints` sets.
/// - `watch` has returned `ControlFlow::Break`.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than [`workspace`] says; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, outward};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 3, 4), Block::new(3, 5, 4), Block::new(2, 4, 2)];
/// let len = outward::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = outward::place(&blocks, &Options::default(), scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
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
    improve_one(improve, workspace(blocks.len()), blocks, options, scratch, offsets, watch)
}

pub(super) fn improve(
    blocks: &[Block],
    options: &Options,
    incumbent: Summary,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    if blocks.iter().any(|b| b.pin.is_some()) {
        return Ok(incumbent);
    }
    let mut scratch = scratch.reborrow();
    let sweep = Sweep::new(blocks, scratch.split(interval::workspace(blocks.len())))?;
    let mut space = Space::new(blocks, options.constraints.alignment, &sweep, &mut scratch);
    let (mut tried, mut kept) = (scratch.words(blocks.len()), scratch.words(blocks.len()));
    let mut best = Table::new(offsets);
    let mut random = SplitMix64::seed_from_u64(options.seed);
    let mut groups = GROUPS.into_iter();
    let mut found = incumbent;
    let enough = found.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    // The side that failed last comes first: most orders then need no look at the other side.
    let mut sides = [Side::Left, Side::Right];
    while found.peak > enough && space.work < options.work {
        let fixed = groups.next();
        let mut unit = || unit(&mut random);
        let number = fixed.unwrap_or_else(|| share(exp2(1.0 + 7.0 * unit()), 1.0));
        let noise = if fixed.is_some() { 0.0 } else { 0.1 * unit() };
        let weights = if fixed.is_some() { WEIGHTS } else { WEIGHTS.map(|weight| weight * exp2(3.0 * unit() - 1.5)) };
        space.stack(number, noise, &mut unit, &mut tried);
        let mut peak = space.stacked(&tried);
        for side in sides {
            let mut least = found.peak;
            for weight in weights {
                if let Some(reached) = space.run(side, weight, least, &mut tried) {
                    least = reached;
                    space.copy_side(side, &tried, &mut kept);
                }
                if watch(&found).is_break() {
                    return Ok(found);
                }
                if least <= peak.max(enough) {
                    break;
                }
            }
            peak = peak.max(least);
            if peak >= found.peak {
                sides = [side, side.other()];
                break;
            }
        }
        if peak < found.peak {
            found = Summary { peak, solver: Solver::Outward, ..found };
            space.copy_stack(&tried, &mut kept);
            best.copy_from(&kept);
        }
    }
    Ok(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }

    /// On the left, where time runs backward, `u32::MAX - end`, so that it grows on the way.
    const fn opens(self, b: &Block) -> u32 {
        match self {
            Self::Left => u32::MAX - b.end,
            Self::Right => b.start,
        }
    }

    /// On the left, where time runs backward, `u32::MAX - start`, so that it grows on the way.
    const fn closes(self, b: &Block) -> u32 {
        match self {
            Self::Left => u32::MAX - b.start,
            Self::Right => b.end,
        }
    }
}

struct Space<'a> {
    blocks: &'a [Block],
    alignment: u64,
    n: u32,
    by_start: &'a [u32],
    by_end: &'a [u32],
    busiest: u32,
    stack: Table<'a, u32>,
    stack_len: u32,
    aside: Table<'a, u32>,
    /// By block: the next one above; n if none. Entry n stands for the ground: the lowest block.
    above: Table<'a, u32>,
    /// By block: the next one below; n if none. Entry n is the highest block.
    below: Table<'a, u32>,
    /// Size in bytes and the block below (n for the ground), the smallest first.
    gaps: Table<'a, [u64; 2]>,
    gap_count: u32,
    work: u64,
    looked_at: u64,
}

impl<'a> Space<'a> {
    fn new(blocks: &'a [Block], alignment: u64, sweep: &Sweep<'a>, scratch: &mut Workspace<'a>) -> Self {
        let (len, n) = (blocks.len(), count(blocks));
        let max_load = sweep.max_load();
        let busiest = sweep.load_curve().find(|&(_, load)| load == max_load).map_or(0, |(step, _)| step);
        Self {
            blocks,
            alignment,
            n,
            by_start: sweep.by_start(),
            by_end: sweep.by_end(),
            busiest,
            stack: scratch.indices(len),
            stack_len: 0,
            aside: scratch.indices(len),
            above: scratch.indices(len + 1),
            below: scratch.indices(len + 1),
            gaps: scratch.word_records(len + 1),
            gap_count: 0,
            work: 0,
            looked_at: 0,
        }
    }

    fn block(&self, i: u32) -> Block {
        at(self.blocks, i)
    }

    fn alignment(&self, b: &Block) -> u64 {
        b.alignment.max(self.alignment)
    }

    fn is_beyond(&self, side: Side, b: &Block) -> bool {
        match side {
            Side::Left => b.end <= self.busiest,
            Side::Right => b.start > self.busiest,
        }
    }

    fn stack(&mut self, groups: u32, noise: f64, unit: &mut impl FnMut() -> f64, offset: &mut Table<'_, u64>) {
        let Self { blocks, by_start, stack, aside, busiest, .. } = self;
        let mut k = 0;
        let mut reach = 0;
        for &i in *by_start {
            let b = at(blocks, i);
            if b.start <= *busiest && *busiest < b.end {
                stack[k] = i;
                k += 1;
                reach += u64::from(*busiest - b.start);
            }
        }
        // Until the blocks are sorted, the table of offsets holds the keys to sort by: begins and ends with noise.
        let mean = u32::try_from(reach.checked_div(k.into()).unwrap_or(0)).unwrap_or(u32::MAX);
        let span = share(noise, 2.0 * f64::from(mean));
        for p in 0..k {
            let i = stack[p];
            offset[i] = u64::from(at(blocks, i).start) + u64::from(share(unit(), span.into()));
        }
        sort::by_key(stack, k, aside, |i| offset[i]);
        let each = k.div_ceil(groups.max(1)).max(1);
        for p in 0..k {
            let i = stack[p];
            let end = u64::from(at(blocks, i).end) + u64::from(share(unit(), f64::from(span) / 2.0));
            offset[i] = (u64::from(p / each) << 40) | ((1 << 40) - 1 - end);
        }
        sort::by_key(stack, k, aside, |i| offset[i]);
        self.stack_len = k;
        let mut top = 0;
        for p in 0..k {
            let i = self.stack[p];
            let b = self.block(i);
            offset[i] = align_up(top, self.alignment(&b));
            top = offset[i] + b.size;
        }
    }

    fn stacked(&self, offset: &Table<'_, u64>) -> u64 {
        self.stack.first(self.stack_len).last().map_or(0, |&i| self.end(i, offset))
    }

    fn copy_stack(&self, from: &Table<'_, u64>, to: &mut Table<'_, u64>) {
        for &i in self.stack.first(self.stack_len) {
            to[i] = from[i];
        }
    }

    fn copy_side(&self, side: Side, from: &Table<'_, u64>, to: &mut Table<'_, u64>) {
        for i in (0..self.n).filter(|&i| self.is_beyond(side, &self.block(i))) {
            to[i] = from[i];
        }
    }

    /// `None` if the peak is `limit` bytes or more.
    fn run(&mut self, side: Side, weight: f64, limit: u64, offset: &mut Table<'_, u64>) -> Option<u64> {
        let mut peak = self.fill_with_stack(offset);
        let mut passed = 0;
        for p in 0..self.n {
            let (i, _) = self.nth(side, p);
            let b = self.block(i);
            if !self.is_beyond(side, &b) {
                continue;
            }
            while passed < self.n {
                let (_, j) = self.nth(side, passed);
                let ended = self.block(j);
                if side.closes(&ended) > side.opens(&b) {
                    break;
                }
                if !self.is_beyond(side.other(), &ended) {
                    self.remove(j, offset);
                }
                passed += 1;
            }
            self.insert(i, &b, side, weight, offset);
            self.work = self.work.saturating_add(1);
            peak = peak.max(offset[i] + b.size);
            if peak >= limit {
                break;
            }
        }
        self.work = self.work.saturating_add(u64::from(self.n / 8 + 1) + self.looked_at / GAPS_PER_BLOCK);
        self.looked_at = 0;
        (peak < limit).then_some(peak)
    }

    fn nth(&self, side: Side, p: u32) -> (u32, u32) {
        match side {
            Side::Left => (at(self.by_end, self.n - 1 - p), at(self.by_start, self.n - 1 - p)),
            Side::Right => (at(self.by_start, p), at(self.by_end, p)),
        }
    }

    fn fill_with_stack(&mut self, offset: &Table<'_, u64>) -> u64 {
        let ground = self.n;
        self.gap_count = 0;
        (self.above[ground], self.below[ground]) = (ground, ground);
        let mut below = ground;
        for p in 0..self.stack_len {
            let i = self.stack[p];
            self.link(i, below);
            self.add_gap(below, offset);
            below = i;
        }
        self.end(below, offset)
    }

    fn end(&self, i: u32, offset: &Table<'_, u64>) -> u64 {
        if i == self.n { 0 } else { offset[i] + self.block(i).size }
    }

    fn insert(&mut self, i: u32, b: &Block, side: Side, weight: f64, offset: &mut Table<'_, u64>) {
        let (below, begin) = self.choose(b, side, weight, offset).unwrap_or_else(|| {
            let top = self.below[self.n];
            (top, align_up(self.end(top, offset), self.alignment(b)))
        });
        self.take_gap(below, offset);
        offset[i] = begin;
        self.link(i, below);
        self.add_gap(below, offset);
        self.add_gap(i, offset);
    }

    #[expect(clippy::cast_precision_loss, reason = "a score")]
    fn choose(&mut self, b: &Block, side: Side, weight: f64, offset: &Table<'_, u64>) -> Option<(u32, u64)> {
        let alignment = self.alignment(b);
        let each = weight * b.size as f64 / f64::from(b.width());
        let apart = |j: u32| {
            let known = j < self.n;
            if known { each * f64::from(side.closes(&self.block(j)).abs_diff(side.closes(b))) } else { 0.0 }
        };
        let mut best: Option<(f64, u32, u64)> = None;
        let first = self.position(&[b.size, 0]);
        let mut looked_at = 0;
        for &[bytes, below] in self.gaps.range(first, self.gap_count) {
            let waste = (bytes - b.size).min(b.size) as f64;
            if best.is_some_and(|(least, ..)| waste >= least) {
                break;
            }
            looked_at += 1;
            let below = u32::try_from(below).unwrap_or(self.n);
            let begin = self.end(below, offset);
            let low = align_up(begin, alignment);
            let high = (begin + bytes - b.size) & !(alignment - 1);
            if low > high {
                continue;
            }
            if bytes == b.size {
                best = Some((0.0, below, low));
                break;
            }
            let (at_low, at_high) = (apart(below), apart(self.above[below]));
            let (cost, place) = if at_low <= at_high { (at_low, low) } else { (at_high, high) };
            if best.is_none_or(|(least, ..)| waste + cost < least) {
                best = Some((waste + cost, below, place));
            }
        }
        self.looked_at += looked_at;
        best.map(|(_, below, place)| (below, place))
    }

    fn remove(&mut self, i: u32, offset: &Table<'_, u64>) {
        let (below, above) = (self.below[i], self.above[i]);
        self.take_gap(below, offset);
        self.take_gap(i, offset);
        self.above[below] = above;
        self.below[above] = below;
        self.add_gap(below, offset);
    }

    fn link(&mut self, i: u32, below: u32) {
        let above = self.above[below];
        (self.above[below], self.below[i]) = (i, below);
        (self.above[i], self.below[above]) = (above, i);
    }

    // Gaps

    fn gap(&self, below: u32, offset: &Table<'_, u64>) -> u64 {
        let above = self.above[below];
        if above == self.n { 0 } else { offset[above] - self.end(below, offset) }
    }

    fn add_gap(&mut self, below: u32, offset: &Table<'_, u64>) {
        let bytes = self.gap(below, offset);
        if bytes == 0 {
            return;
        }
        let gap = [bytes, below.into()];
        let mut to = self.gap_count;
        let place = self.position(&gap);
        self.looked_at += u64::from(to - place) / 8;
        while to > place {
            self.gaps[to] = self.gaps[to - 1];
            to -= 1;
        }
        self.gaps[place] = gap;
        self.gap_count += 1;
    }

    fn take_gap(&mut self, below: u32, offset: &Table<'_, u64>) {
        let bytes = self.gap(below, offset);
        if bytes == 0 {
            return;
        }
        let place = self.position(&[bytes, below.into()]);
        self.gap_count -= 1;
        self.looked_at += u64::from(self.gap_count - place) / 8;
        for p in place..self.gap_count {
            self.gaps[p] = self.gaps[p + 1];
        }
    }

    fn position(&self, gap: &[u64; 2]) -> u32 {
        let (mut low, mut high) = (0, self.gap_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.gaps[middle] < *gap {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float stays in the range")]
fn share(part: f64, of: f64) -> u32 {
    (part * of) as u32
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
