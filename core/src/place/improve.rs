//! Lowers the peak of a plan by ejection: room is made for the blocks on top by moving the blocks that are in their
//! way.
//!
//! An attempt has a *limit*, in bytes, below the plan's peak. Blocks that end above the limit are taken out and put in
//! a queue. Steps, until the queue is empty:
//!
//! 1. Take the first block of the queue. Its neighbours are the placed blocks that are alive with it. Look at these
//!    offsets, as far as the block ends within the limit: address 0; where the block begins at the end of a neighbour;
//!    where it ends at the begin of a neighbour, or at the limit.
//! 2. Put the block where the blocks in its way have the least weight in sum. *Eject* the blocks in its way: take them
//!    out of the plan, and put them at the end of the queue. The weight of a block is its area, size times lifetime,
//!    times one more than the number of its ejections so far. Large blocks weigh more because they are hard to place
//!    again. A block that was ejected often is seldom ejected again, so that no two blocks eject each other forever.
//!    (Ejection chains: Glover 1996. Weights that grow: Morris 1993, *breakout*.)
//!
//! When the queue is empty, all blocks end within the limit: the attempt has succeeded. An attempt fails if it has used
//! up its share of the work, or if a block would overlap a pinned block at every offset. It then leaves the plan as it
//! was before. So the peak never rises.
//!
//! The *goal* is the lower bound, or the capacity if that is larger. Each attempt is to lower the peak by a part of its
//! distance to the goal: all of it, a half, and so on down to a sixteenth, but at least 1 byte. The first part is a
//! half. The part doubles after a success, up to the whole distance, and halves after a failure. When the smallest part
//! has failed, the next attempt tries the whole distance again, with twice the work; but if no attempt has ever
//! succeeded, the method ends. The numbers of ejections are kept from attempt to attempt, so that no attempt repeats
//! another.
//!
//! Lifetimes are kept as ranges of *sections* of time. These are numbered from 0, one for each maximal set of blocks
//! that are alive at one step.
//!
//! The method is good where few blocks are above the limit and few bytes are alive with them: long iterations in which
//! memory is full for a moment. Where thousands of blocks are alive together and the plan has no room at any step, the
//! method finds nothing and soon ends.
//!
//! Ties: of offsets of equal weight, the lowest is taken. Cost: O(k log k) to place a block with k neighbours, and O(n)
//! for each attempt. Work is counted in neighbours looked at, plus 16 for each block placed, plus n for each attempt.
//! Memory is linear. A pinned block is never ejected.

use core::ops::ControlFlow;

use super::interval::{self, Sweep};
use super::lifetime_tree::{ABSENT, LifetimeTree, Lifetimes};
use super::{Options, Solver, Summary, Watch, align_up, improve_one, multistart};
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, sort};

const ATTEMPTS: u64 = 512;
const MOST_HALVINGS: u32 = 4;
/// Placed blocks looked at in the time of placing one block, the unit of `options.work`.
const NEIGHBOURS_PER_BLOCK: u64 = 32;
/// The work of placing a block, in placed blocks looked at; each placed block alive with it adds 1.
const STEP: u64 = 16;
const MOST_WEIGHT: u64 = 1 << 20;
const IMMOVABLE: u64 = 1 << 60;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let own = WorkspaceLen { words: 6 * n, indices: 6 * n };
    multistart::workspace(n).max(interval::workspace(n).and(LifetimeTree::workspace(n)).and(own))
}

/// Builds one plan from address 0 upwards, and lowers its peak: the highest blocks are put elsewhere, then the blocks
/// that are in their way, and so on. The budget is `options.work`, in blocks placed.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than [`workspace`] says; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, improve};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 3, 4), Block::new(3, 5, 4), Block::new(2, 4, 2)];
/// let len = improve::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = improve::place(&blocks, &Options::default(), scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
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
    let mut scratch = scratch.reborrow();
    let mut plan = Plan::new(blocks, options.constraints.alignment, &mut scratch)?;
    let mut best = Table::new(offsets);
    let mut found = incumbent;
    let enough = found.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    let mut work = options.work.saturating_mul(NEIGHBOURS_PER_BLOCK);
    let mut part = (work / ATTEMPTS).saturating_add(2 * u64::from(plan.n));
    // `lowered`: whether an attempt has succeeded since the start. `halvings`: how often the distance to the goal
    // (`gap` below) is halved; the next attempt is to lower the peak by the result.
    let (mut lowered, mut halvings) = (false, 1u32);
    while found.peak > enough && work > 0 {
        let gap = found.peak - enough;
        let limit = found.peak - (gap >> halvings).max(1);
        let (end, used) = plan.lower(&best, limit, part.min(work), &mut || watch(&found));
        work = work.saturating_sub(used);
        match end {
            End::Lowered => {
                found = Summary { peak: plan.keep(&mut best), solver: Solver::Improve, ..found };
                (lowered, halvings) = (true, halvings.saturating_sub(1));
                if watch(&found).is_break() {
                    break;
                }
            }
            End::GivenUp if halvings < MOST_HALVINGS && gap >> halvings > 1 => halvings += 1,
            End::GivenUp if lowered => {
                halvings = 0;
                part = part.saturating_mul(2);
            }
            End::GivenUp | End::Stopped => break,
        }
    }
    Ok(found)
}

enum End {
    Lowered,
    GivenUp,
    Stopped,
}

struct Plan<'a> {
    blocks: &'a [Block],
    alignment: u64,
    n: u32,
    low: Table<'a, u32>,
    high: Table<'a, u32>,
    placed: LifetimeTree<'a>,
    offset: Table<'a, u64>,
    /// By block, in proportion to its area. Its weight now is this times 1 + its entry in `ejections`.
    weight: Table<'a, u32>,
    ejections: Table<'a, u32>,
    queue: Table<'a, u32>,
    first: u32,
    waiting: u32,
    /// Begin and end in bytes, and weight, of each placed block alive with the block to place; by begin.
    by_begin: Table<'a, [u64; 3]>,
    by_end: Table<'a, [u64; 2]>,
    neighbours: Table<'a, u32>,
}

impl<'a> Plan<'a> {
    fn new(blocks: &'a [Block], alignment: u64, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let len = blocks.len();
        let n = count(blocks);
        let sweep = Sweep::new(blocks, scratch.split(interval::workspace(len)))?;
        let (mut low, mut high) = (scratch.indices(len), scratch.indices(len));
        sweep.clique_ranges(&mut low, &mut high);
        let (mut queue, mut neighbours) = (scratch.indices(len), scratch.indices(len));
        let placed = LifetimeTree::new(scratch, &low, &high, n, &mut queue, &mut neighbours);
        let area = |b: &Block| u128::from(b.size) * u128::from(b.width());
        let largest = blocks.iter().map(area).max().unwrap_or(0).max(1);
        let share = |area: u128| area.saturating_mul(MOST_WEIGHT.into()).checked_div(largest).unwrap_or(0);
        let mut weight = scratch.indices(len);
        for (i, b) in (0..).zip(blocks) {
            weight[i] = u32::try_from(share(area(b))).unwrap_or(u32::MAX).max(1);
        }
        Ok(Self {
            blocks,
            alignment,
            n,
            low,
            high,
            placed,
            offset: scratch.words(len),
            weight,
            ejections: scratch.indices(len),
            queue,
            first: 0,
            waiting: 0,
            by_begin: scratch.word_records(len),
            by_end: scratch.word_records(len),
            neighbours,
        })
    }

    fn lower(
        &mut self,
        from: &Table<'_, u64>,
        limit: u64,
        work: u64,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> (End, u64) {
        (self.first, self.waiting) = (0, 0);
        for i in 0..self.n {
            self.offset[i] = from[i];
        }
        let blocks = self.blocks;
        let above = |i: u32| from[i] + at(blocks, i).size > limit;
        self.placed.enter_all(|i| if above(i) { ABSENT } else { i }, self.n);
        for i in (0..self.n).filter(|&i| above(i)) {
            self.wait(i);
        }
        let mut used = u64::from(self.n);
        // The caller's `watch` is called after each `all` units of work, about the time of building one plan.
        let all = NEIGHBOURS_PER_BLOCK * u64::from(self.n);
        let mut next = used + all;
        while self.waiting > 0 {
            if used >= work {
                return (End::GivenUp, used);
            }
            let i = self.queue[self.first];
            self.first = self.wrapped(self.first + 1);
            self.waiting -= 1;
            let Some(neighbours) = self.put(i, limit) else { return (End::GivenUp, used) };
            used += u64::from(neighbours) + STEP;
            if used >= next {
                next += all;
                if watch().is_break() {
                    return (End::Stopped, used);
                }
            }
        }
        (End::Lowered, used)
    }

    fn keep(&self, to: &mut Table<'_, u64>) -> u64 {
        let mut peak = 0;
        for i in 0..self.n {
            to[i] = self.offset[i];
            peak = peak.max(to[i] + at(self.blocks, i).size);
        }
        peak
    }

    fn wait(&mut self, i: u32) {
        let end = self.wrapped(self.first + self.waiting);
        self.queue[end] = i;
        self.waiting += 1;
    }

    /// `place` must be below twice the buffer's length.
    fn wrapped(&self, place: u32) -> u32 {
        if place < self.n { place } else { place - self.n }
    }

    fn put(&mut self, i: u32, limit: u64) -> Option<u32> {
        let b = at(self.blocks, i);
        let k = self.look_around(i);
        let offset = self.lightest(&b, k, limit)?;
        for p in 0..k {
            let j = self.neighbours[p];
            let begin = self.offset[j];
            if begin < offset + b.size && offset < begin + at(self.blocks, j).size {
                self.placed.set(j, ABSENT);
                self.ejections[j] = self.ejections[j].saturating_add(1);
                self.wait(j);
            }
        }
        self.offset[i] = offset;
        self.placed.set(i, i);
        Some(k)
    }

    fn look_around(&mut self, i: u32) -> u32 {
        let Self { blocks, offset, weight, ejections, by_begin, by_end, neighbours, .. } = self;
        let mut k = 0;
        self.placed.each(&Lifetimes::colliding(self.low[i], self.high[i]), |j| {
            let b = at(blocks, j);
            let heavy = u64::from(weight[j]).saturating_mul(u64::from(ejections[j]) + 1);
            let heavy = if b.pin.is_some() { IMMOVABLE } else { heavy.min(IMMOVABLE - 1) };
            by_begin[k] = [offset[j], offset[j] + b.size, heavy];
            by_end[k] = [offset[j] + b.size, heavy];
            neighbours[k] = j;
            k += 1;
        });
        sort::in_place_by_key(by_begin, k, |[begin, ..]| begin);
        sort::in_place_by_key(by_end, k, |[end, _]| end);
        k
    }

    fn lightest(&self, b: &Block, k: u32, limit: u64) -> Option<u64> {
        let highest = limit.checked_sub(b.size)?;
        let alignment = b.alignment.max(self.alignment);
        let mut best: Option<(u128, u64)> = None;
        // First the block begins at 0 or at the end of a neighbour; then it ends at the begin of a neighbour or at the
        // limit.
        for downwards in [false, true] {
            let (mut below, mut above) = (0, 0);
            let (mut begun, mut ended) = (0u128, 0u128);
            for p in 0..=k {
                let offset = match (downwards, p) {
                    (false, 0) => 0,
                    (false, _) => align_up(self.by_end[p - 1][0], alignment),
                    (true, _) if p == k => highest & !(alignment - 1),
                    (true, _) => match self.by_begin[p][0].checked_sub(b.size) {
                        Some(offset) => offset & !(alignment - 1),
                        None => continue,
                    },
                };
                if offset > highest {
                    continue;
                }
                while below < k && self.by_begin[below][0] < offset + b.size {
                    begun += u128::from(self.by_begin[below][2]);
                    below += 1;
                }
                while above < k && self.by_end[above][0] <= offset {
                    ended += u128::from(self.by_end[above][1]);
                    above += 1;
                }
                let heavy = begun - ended;
                if heavy < IMMOVABLE.into() && best.is_none_or(|least| (heavy, offset) < least) {
                    best = Some((heavy, offset));
                }
            }
        }
        best.map(|(_, offset)| offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{place as place_by, workspace_of};
    use crate::verify::{self, verify};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn continues(_: &Summary) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    proptest! {
        #[test]
        fn no_plan_of_any_heuristic_gets_worse(
            rows in prop::collection::vec((0u32..40, 1u32..20, 1u64..50, 0u32..3, any::<bool>()), 1..40),
            which in 0..Solver::HEURISTICS.len(),
        ) {
            let mut blocks: Vec<Block> = rows.iter()
                .map(|&(start, width, size, log, _)| Block { alignment: 1 << log, ..Block::new(start, start + width, size) })
                .collect();
            let n = blocks.len();
            let solver = Solver::HEURISTICS[which];
            let len = workspace_of(solver, n).max(workspace(n)).max(verify::workspace(n));
            let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
            let mut offsets = vec![0; n];
            let options = Options { work: 300, ..Options::default() };
            let scratch = Workspace::new(&mut words, &mut indices);
            place_by(solver, &blocks, &options, scratch, &mut offsets).unwrap();
            // Some of the blocks must stay where they are.
            for ((b, row), &offset) in blocks.iter_mut().zip(&rows).zip(&offsets) {
                b.pin = (row.4 && offset % b.alignment == 0).then_some(offset);
            }
            let scratch = Workspace::new(&mut words, &mut indices);
            let before = place_by(solver, &blocks, &options, scratch, &mut offsets).unwrap();
            let mut last = before.peak;
            let mut falls = true;
            let mut watch = |now: &Summary| {
                falls &= now.peak <= last;
                last = now.peak;
                ControlFlow::Continue(())
            };
            let scratch = Workspace::new(&mut words, &mut indices);
            let after = improve(&blocks, &options, before, scratch, &mut offsets, &mut watch).unwrap();
            prop_assert!(falls && last == after.peak && after.peak <= before.peak);
            let scratch = Workspace::new(&mut words, &mut indices);
            prop_assert_eq!(verify(&blocks, &offsets, &options.constraints, scratch).unwrap().peak(), after.peak);
        }
    }

    #[test]
    fn a_block_in_the_way_is_moved() {
        let blocks =
            [Block::new(0, 9, 4), Block::new(0, 3, 2), Block::new(6, 9, 2), Block::new(2, 8, 2), Block::new(0, 9, 2)];
        let mut offsets = [0, 4, 6, 10, 8];
        let before = Summary { peak: 12, lower_bound: 10, solver: Solver::BestFit, nodes: 0 };
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let scratch = Workspace::new(&mut words, &mut indices);
        let after = improve(&blocks, &Options::default(), before, scratch, &mut offsets, &mut continues).unwrap();
        assert_eq!((after.peak, after.solver), (10, Solver::Improve));
        let len = verify::workspace(blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let scratch = Workspace::new(&mut words, &mut indices);
        assert_eq!(verify(&blocks, &offsets, &Options::default().constraints, scratch).unwrap().peak(), 10);
    }
}
