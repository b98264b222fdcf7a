//! Places the large blocks alone by exact search, and then the others into the holes that the large ones leave.
//!
//! Where thousands of blocks come and go, a search over all of them decides where small blocks lie and does not get to
//! the large ones, on which the peak depends. A search that sees only a few hundred large blocks finds a good plan for
//! them. The small blocks then fit into the holes, or nearly so. In networks that swap, blocks of a few sizes come and
//! go hundreds of times in a full memory; there this method lowers the peak by 1 % on average.
//!
//! Steps:
//! 1. Sort the blocks by *area*, size times lifetime, the largest first. Pinned blocks come before all others.
//! 2. The *large* blocks are the first ones in this order, the others are the *small* ones. There are as few large
//!    blocks as possible such that the max load of the small ones is at most a part of the max load of all blocks: a
//!    quarter, an eighth, a 16th or a 32nd.
//! 3. Place the large blocks by [`search`].
//! 4. If the large blocks alone end below the peak of the best plan so far, place the small blocks from the largest
//!    size to the smallest, each at the lowest hole that is large enough.
//!
//! Which part is best differs from instance to instance, so these four are tried in turn. A part is left out if it
//! needs no more large blocks than the part before it. Where a part needs more than 400 large blocks, the method ends.
//! Ties: of equal areas, the larger size first, then the earlier start, the longer lifetime, the lower index; in step
//! 4, of equal sizes, the earlier start, the longer lifetime, the lower index. Cost: a search over the large blocks for
//! each part, and O(|E| log n) for the small ones, for n blocks of which |E| pairs are alive together. Memory: that of
//! a search over at most 400 blocks, 16 KiB on the stack for these, and a linear part. In the tables, time is cut into
//! *sections*, numbered from 0; each lifetime is a range of them.

use super::gap::{Fit, Gaps};
use super::interval::{self, Sweep};
use super::load_tree::LoadTree;
use super::{Options, Solver, Summary, Watch, greedy, improve_one, multistart, search, tell};
use crate::table::{Table, at, count};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, sort};

const MOST_LARGE: usize = 400;
/// A try with k leaves the small blocks a max load of at most that of all blocks over 2ᵏ.
const HALVINGS: [u32; 4] = [2, 3, 4, 5];

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let most_large = if n < MOST_LARGE { n } else { MOST_LARGE };
    let plans = WorkspaceLen { words: 2 * n, indices: 0 };
    let own = plans.and(interval::workspace(n)).and(Division::workspace(n));
    let small = Gaps::workspace(n).and(WorkspaceLen { words: 0, indices: 2 * n });
    multistart::workspace(n).max(own.and(small.max(search::workspace(most_large))))
}

/// Builds one plan from address 0 upwards. Then places the large blocks alone by exact search, and the others into the
/// holes that the large ones leave; up to four times, each time with more large blocks. Keeps the best plan. The budget
/// of the searches together is `options.nodes`, in nodes of their search trees.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than [`workspace`] says; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, large_first};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 3, 4), Block::new(3, 5, 4), Block::new(2, 4, 2)];
/// let len = large_first::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = large_first::place(&blocks, &Options::default(), scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(summary.peak, summary.lower_bound);
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

#[inline(never)]
pub(super) fn improve(
    blocks: &[Block],
    options: &Options,
    incumbent: Summary,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let (n, alignment) = (blocks.len(), options.constraints.alignment);
    let mut best = Summary { nodes: 0, ..incumbent };
    let mut scratch = scratch.reborrow();
    let sweep = Sweep::new(blocks, scratch.split(interval::workspace(n)))?;
    let mut division = Division::new(blocks, &sweep, &mut scratch);
    let (found, mut trial) = (scratch.words(n).into_slice(), scratch.words(n));
    let (mut large, mut offsets) = ([Block::default(); MOST_LARGE], Table::new(offsets));
    for halvings in HALVINGS {
        if best.peak <= best.lower_bound {
            break;
        }
        if !division.limit_small(sweep.max_load() >> halvings) {
            continue;
        }
        let chosen = division.large();
        let (Some(large), Some(found)) = (large.get_mut(..chosen.len()), found.get_mut(..chosen.len())) else { break };
        for (block, &i) in large.iter_mut().zip(chosen) {
            *block = at(blocks, i);
        }
        let share = Options {
            nodes: options.nodes / HALVINGS.len() as u64,
            constraints: Constraints { capacity: None, ..options.constraints },
            ..*options
        };
        let mut stopped = false;
        let mut tell = |now: &Summary| tell(watch, &Summary { nodes: best.nodes + now.nodes, ..best }, &mut stopped);
        let alone = search::place(large, &share, scratch.reborrow(), found, &mut tell)?;
        best.nodes += alone.nodes;
        if alone.peak < best.peak {
            for (&i, &offset) in chosen.iter().zip(&*found) {
                trial[i] = offset;
            }
            let peak = division.place_small(alignment, &mut trial, scratch.reborrow());
            if peak < best.peak {
                best = Summary { peak, solver: Solver::LargeFirst, ..best };
                offsets.copy_from(&trial);
            }
        }
        if stopped || watch(&best).is_break() {
            break;
        }
    }
    Ok(best)
}

struct Division<'a> {
    blocks: &'a [Block],
    /// The largest first, but pinned blocks before all others; the first `large_count` are the large ones.
    by_area: Table<'a, u32>,
    large_count: u32,
    load: LoadTree<'a>,
    section_count: u32,
    low: Table<'a, u32>,
    high: Table<'a, u32>,
}

impl<'a> Division<'a> {
    const fn workspace(n: usize) -> WorkspaceLen {
        WorkspaceLen { words: n, indices: 4 * n }.and(LoadTree::workspace(n))
    }

    fn new(blocks: &'a [Block], sweep: &Sweep<'_>, scratch: &mut Workspace<'a>) -> Self {
        let (n, len) = (count(blocks), blocks.len());
        let (mut by_area, mut aside) = (scratch.indices(len), scratch.indices(len));
        sort::identity(&mut by_area, n);
        let pinned_first = |b: &Block| b.pin.is_none().into();
        let keys = [greedy::lifetime, greedy::start, greedy::size, greedy::area, pinned_first];
        greedy::sort_by(blocks, &keys, &mut by_area, n, &mut aside);
        let (mut low, mut high) = (scratch.indices(len), scratch.indices(len));
        let section_count = sweep.clique_ranges(&mut low, &mut high);
        let mut loads = scratch.words(len);
        for (section, clique) in (0u32..).zip(sweep.cliques()) {
            loads[section] = clique.load;
        }
        let mut load = LoadTree::new(scratch, section_count);
        load.fill(|section| loads[section]);
        Self { blocks, by_area, large_count: 0, load, section_count, low, high }
    }

    fn large(&self) -> &[u32] {
        self.by_area.first(self.large_count)
    }

    fn limit_small(&mut self, most: u64) -> bool {
        let before = self.large_count;
        while self.large_count < count(self.blocks) && self.load.busiest(0, self.section_count).1 > most {
            let i = self.by_area[self.large_count];
            self.load.subtract(self.low[i], self.high[i], at(self.blocks, i).size);
            self.large_count += 1;
        }
        self.large_count > before
    }

    fn place_small(&self, alignment: u64, offsets: &mut Table<'_, u64>, mut scratch: Workspace<'_>) -> u64 {
        let mut scratch = scratch.reborrow();
        let (mut small, mut aside) = (scratch.indices(self.blocks.len()), scratch.indices(self.blocks.len()));
        let small_count = count(self.blocks) - self.large_count;
        for p in 0..small_count {
            small[p] = self.by_area[self.large_count + p];
        }
        greedy::sort_by(self.blocks, &[greedy::start, greedy::size], &mut small, small_count, &mut aside);
        let mut gaps = Gaps::new(self.blocks, alignment, &mut scratch, false, |low, high| {
            low.copy_from(&self.low);
            high.copy_from(&self.high);
            self.section_count
        });
        let of_large = self.large().iter().fold(0, |peak, &i| gaps.keep(i, offsets[i]).max(peak));
        of_large.max(gaps.build(small.first(small_count), Fit::First, offsets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{place, tests::cut, workspace_of};
    use crate::verify::{self, verify};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn run(solver: Solver, blocks: &[Block], options: &Options) -> Summary {
        let len = workspace_of(solver, blocks.len()).max(verify::workspace(blocks.len()));
        let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let mut offsets = vec![!7; blocks.len()];
        let summary = place(solver, blocks, options, scratch.reborrow(), &mut offsets).unwrap();
        assert_eq!(verify(blocks, &offsets, &options.constraints, scratch).unwrap().peak(), summary.peak);
        summary
    }

    #[test]
    fn beats_the_search_over_all_blocks_where_the_large_ones_decide() {
        // Two rectangles cut into blocks: a large one into 100, and one of a thirty-second of its bytes into 1,200.
        let mut blocks = cut(100, 1200, 1 << 20, 3);
        blocks.extend(cut(1200, 1200, 1 << 15, 103));
        let options = Options { work: 100_000, nodes: 40_000, ..Options::default() };
        let large_first = run(Solver::LargeFirst, &blocks, &options);
        assert!(large_first.peak - large_first.lower_bound < large_first.lower_bound / 1000);
        for other in [Solver::Search, Solver::Portfolio] {
            assert!(large_first.peak < run(other, &blocks, &options).peak, "{}", other.name());
        }
    }

    #[test]
    fn more_large_blocks_than_there_is_room_for_are_left_alone() {
        let blocks: Vec<_> = (0..2 * MOST_LARGE as u64).map(|i| Block::new(0, 1, i % 7 + 1)).collect();
        run(Solver::LargeFirst, &blocks, &Options::default());
    }

    proptest! {
        #[test]
        fn the_large_blocks_are_the_fewest_that_leave_so_little(
            rows in prop::collection::vec((0u32..30, 1u32..12, 1u64..20, any::<bool>()), 1..40), most in 0u64..60,
        ) {
            // Pinned one above the other, so that the pins are valid.
            let mut top = 0;
            let blocks: Vec<_> = rows.iter().map(|&(start, width, size, pinned)| {
                top += size;
                Block { pin: pinned.then_some(top - size), ..Block::new(start, start + width, size) }
            }).collect();
            let n = blocks.len();
            let len = interval::workspace(n).and(Division::workspace(n));
            let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
            let mut scratch = Workspace::new(&mut words, &mut indices);
            let sweep = Sweep::new(&blocks, scratch.split(interval::workspace(n))).unwrap();
            let mut division = Division::new(&blocks, &sweep, &mut scratch);
            let mut order: Vec<u32> = (0..n as u32).collect();
            order.sort_by_key(|&i| {
                let b = blocks[i as usize];
                let area = b.size * u64::from(b.width());
                (b.pin.is_none(), !area, !b.size, b.start, !b.width(), i)
            });
            let left = |k: usize| {
                let alive = |step| order[k..].iter().map(|&i| blocks[i as usize]).filter(move |b| (b.start..b.end).contains(&step));
                (0..50).map(|step| alive(step).map(|b| b.size).sum::<u64>()).max().unwrap()
            };
            let fewest = (0..=n).find(|&k| left(k) <= most).unwrap();
            prop_assert_eq!(division.limit_small(most), fewest > 0);
            prop_assert_eq!(division.large(), &order[..fewest]);
            prop_assert!(!division.limit_small(most));
        }
    }
}
