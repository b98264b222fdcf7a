//! Placement where the output of an operator may share bytes with an input that is not used after the operator.
//!
//! Problem: give each block an offset such that blocks that are alive together share no address. But `overlaps` names
//! pairs of an output and an input that may share bytes, if the output begins at least `distance` bytes below the input
//! (Blacker et al. 2020).
//!
//! Steps:
//! 1. First fit in a fixed order: each block gets the lowest offset at which it overlaps the placed blocks no more than
//!    it may. Each placed block that is alive with it forbids one range of offsets.
//! 2. Four orders are tried: by begin, the earliest first; by begin, the latest first; and by size, the largest first,
//!    with blocks of equal size in either of those two orders.
//! 3. The best of these orders is changed again and again: a few blocks are moved to other places in the order, at
//!    random. A change that does not raise the peak is kept; one that raises it is kept rarely.
//! 4. Where the peak stays above the lower bound (see [`lower_bound`]), and above the capacity if there is one, an
//!    exact search lowers the peak, raises the lower bound, or both: `search`.
//!
//! Cost: O(n² log n) for each order, linear memory. The search is done only for up to 1,024 blocks of which none may
//! overlap more than two inputs; it needs n²/64 words of memory more.

mod pairs;
mod search;

use core::ops::ControlFlow;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use self::pairs::Pairs;
use super::solver::{Options, Order, Solver, Summary, Watch};
use super::support::{align_up, copy, finish, prepare};
use crate::table::{Table, at};
use crate::workspace::workspace;
use crate::{Block, Error, Overlap, Workspace, WorkspaceLen, block, sort};

const PAIRS_PER_WORK: u64 = 20;
/// A change that raises the peak is kept once in so many times, on average.
const KEEP_WORSE: u64 = 500;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    Pairs::workspace(n)
        .and(FirstFit::workspace(n).and(WorkspaceLen { words: 0, indices: 2 * n }).max(search::workspace(n)))
        .max(super::interval::Sweep::workspace(n))
}

/// Gives every block an offset; the outputs that `overlaps` names may share bytes with their inputs. Each output is
/// overlapped with at most two of its inputs; further pairs are ignored. The summary's lower bound is that of
/// [`lower_bound`], or a higher one that the search has proved. Its solver is [`Solver::Search`] if the search made the
/// plan; otherwise the solver of the name `size-first-fit`, whichever order made the plan. `watch` is called after each
/// plan of a randomly changed order, and every 256 nodes of the search.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks that are alive
/// together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or the workspace is
/// shorter than [`workspace`] says; [`Error::NoOverlap`] for an entry of `overlaps` that breaks a rule;
/// [`Error::OverCapacity`] if the peak is above the capacity: the plan found is left in `offsets`.
///
/// The rules for an entry of `overlaps`: both blocks must exist and differ, and the input must begin and end no later
/// than the output. If their lifetimes are equal, no other entry may name them with output and input exchanged.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, overlap};
/// use sublet_core::{Block, Overlap, Workspace};
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
/// let overlaps = [Overlap { output: 1, input: 0, distance: 3 }];
/// let len = overlap::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let (mut offsets, scratch) = ([0; 2], Workspace::new(&mut words, &mut indices));
/// let go_on = &mut |_: &_| ControlFlow::Continue(());
/// let summary = overlap::place(&blocks, &overlaps, &Options::default(), scratch, &mut offsets, go_on)?;
/// assert_eq!((summary.peak, summary.lower_bound, offsets), (11, 11, [3, 0]));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    overlaps: &[Overlap],
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    prepare(blocks, options, workspace(blocks.len()), &mut scratch.reborrow(), offsets)?;
    block::check_overlaps(blocks, overlaps)?;
    let lower_bound = least(blocks, overlaps);
    let mut scratch = scratch.reborrow();
    let pairs = Pairs::new(blocks, overlaps, &mut scratch);
    let mut best =
        Summary { peak: u64::MAX, lower_bound, solver: Solver::Greedy(Order::Size, super::gap::Fit::First), nodes: 0 };
    if by_order(&pairs, options, &mut best, offsets, scratch.reborrow(), watch).is_continue() {
        search::improve(&pairs, options, &mut best, offsets, scratch, watch)?;
    }
    finish(best, options)
}

fn by_order(
    pairs: &Pairs<'_>,
    options: &Options,
    best: &mut Summary,
    offsets: &mut [u64],
    mut scratch: Workspace<'_>,
    watch: Watch<'_>,
) -> ControlFlow<()> {
    let (n, blocks) = (pairs.len(), pairs.blocks);
    let mut scratch = scratch.reborrow();
    let mut fit = FirstFit::lend(blocks.len(), pairs, options.constraints.alignment, &mut scratch);
    let (mut order, mut tried) = (scratch.indices(blocks.len()), scratch.indices(blocks.len()));
    let enough = best.lower_bound.max(options.constraints.capacity.unwrap_or(0));
    let size = |i: u32| !at(blocks, i).size;
    let start = |i: u32| u64::from(at(blocks, i).start);
    let keys: [[&dyn Fn(u32) -> u64; 2]; 4] =
        [[&start, &start], [&|i| !start(i), &|i| !start(i)], [&start, &size], [&|i| !start(i), &size]];
    let mut least = u64::MAX;
    for key in keys {
        sort::identity(&mut tried, n);
        for key in key {
            sort::by_key(&mut tried, n, &mut fit.aside, key);
        }
        let peak = fit.run(&tried);
        if peak < least {
            least = peak;
            order.copy_from(&tried);
        }
        fit.keep(best, peak, offsets);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    let mut work = options.work.saturating_mul(PAIRS_PER_WORK);
    let pass = u64::from(n) * u64::from(n).max(1);
    while n > 1 && best.peak > enough && work > pass {
        work -= pass;
        tried.copy_from(&order);
        let moves = [1, 1, 2, 3, 6].get(usize::try_from(random.next_u64() % 5).unwrap_or(0)).copied().unwrap_or(1);
        for _ in 0..moves {
            let [from, to] =
                [random.next_u64(), random.next_u64()].map(|r| u32::try_from(r % u64::from(n)).unwrap_or(0));
            shift(&mut tried, from, to);
        }
        let peak = fit.run(&tried);
        if peak <= least || random.next_u64() % KEEP_WORSE == 0 {
            least = peak;
            order.copy_from(&tried);
        }
        fit.keep(best, peak, offsets);
        watch(best)?;
    }
    ControlFlow::Continue(())
}

/// A lower bound on the peak, in bytes. At each step at which a block begins or one has just ended, the load (the bytes
/// alive) less the bytes that overlaps may spare is computed; the bound is the highest of these numbers, or the highest
/// end of a pinned block if that is more. Cost: O(n (n + m)) for n blocks and m entries of `overlaps`, and O(m) more for each entry whose two
/// blocks have equal lifetimes.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; and [`Error::NoOverlap`] for an entry of `overlaps` that
/// breaks a rule: both blocks must exist and differ, and the input must begin and end no later than the output. If
/// their lifetimes are equal, no other entry may name them with output and input exchanged.
///
/// ```
/// use sublet_core::place::overlap;
/// use sublet_core::{Block, Overlap};
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
/// assert_eq!(overlap::lower_bound(&blocks, &[Overlap { output: 1, input: 0, distance: 3 }]), Ok(11));
/// ```
pub fn lower_bound(blocks: &[Block], overlaps: &[Overlap]) -> Result<u64, Error> {
    block::check(blocks, 1)?;
    block::check_overlaps(blocks, overlaps)?;
    Ok(least(blocks, overlaps))
}

fn least(blocks: &[Block], overlaps: &[Overlap]) -> u64 {
    let load = |step: u32| {
        let alive = blocks.iter().filter(|b| b.start <= step && step < b.end);
        let load: u64 = alive.map(|b| b.size).sum();
        load.saturating_sub(spared(blocks, overlaps, step))
    };
    let pinned = blocks.iter().filter_map(|b| Some(b.pin? + b.size)).max().unwrap_or(0);
    blocks.iter().map(|b| load(b.start).max(load(b.end))).fold(pinned, u64::max)
}

/// An output spares at most its best single share, and at most the sum of its shares, each within its input's size.
fn spared(blocks: &[Block], overlaps: &[Overlap], step: u32) -> u64 {
    let alive = |o: &&Overlap| at(blocks, o.output).start <= step && step < at(blocks, o.input).end;
    let of_output = |group: &[Overlap]| {
        let size = group.first().map_or(0, |o| at(blocks, o.output).size);
        let above = |o: &Overlap| size.saturating_sub(o.distance);
        let most = group.iter().filter(alive).map(above).max().unwrap_or(0);
        let inputs = group.iter().filter(alive).map(|o| above(o).min(at(blocks, o.input).size));
        most.min(inputs.fold(0, u64::saturating_add))
    };
    overlaps.chunk_by(|a, b| a.output == b.output).map(of_output).fold(0, u64::saturating_add)
}

fn shift(order: &mut Table<'_, u32>, from: u32, to: u32) {
    let moved = order[from];
    let mut place = from;
    while place != to {
        let next = if place < to { place + 1 } else { place - 1 };
        order[place] = order[next];
        place = next;
    }
    order[to] = moved;
}

workspace! {
    struct FirstFit<'a>(n; of: &'a Pairs<'a>, least_alignment: u64) {
        tables {
            offset: u64[n],
            /// The first offset that the block cannot have, and one past the last.
            forbidden: [u64; 2][n],
            aside: u32[n],
        }
        state {
            pairs: &'a Pairs<'a> = of,
            alignment: u64 = least_alignment,
        }
    }
}

impl FirstFit<'_> {
    fn run(&mut self, order: &Table<'_, u32>) -> u64 {
        let (n, blocks) = (self.pairs.len(), self.pairs.blocks);
        let mut peak = 0;
        // Pinned blocks come first: they cannot make room for others.
        let pinned = |i: &u32| at(blocks, *i).pin.is_some();
        let all = order.first(n);
        let in_order = all.iter().filter(|i| pinned(i)).chain(all.iter().filter(|i| !pinned(i)));
        for (placed, &i) in (0..).zip(in_order) {
            let b = at(blocks, i);
            self.offset[i] = b.pin.unwrap_or_else(|| self.lowest(i, placed));
            peak = peak.max(self.offset[i] + b.size);
            self.aside[placed] = i;
        }
        peak
    }

    fn lowest(&mut self, i: u32, placed: u32) -> u64 {
        let blocks = self.pairs.blocks;
        let b = at(blocks, i);
        let mut k = 0;
        for p in 0..placed {
            let j = self.aside[p];
            if b.collides(&at(blocks, j)) {
                let interval = self.interval(i, j);
                self.forbidden[k] = interval;
                k += 1;
            }
        }
        sort::in_place(&mut self.forbidden, k);
        let alignment = b.alignment.max(self.alignment);
        let mut offset = 0;
        for p in 0..k {
            // The first offset that is forbidden, and the first above it that is not.
            let [begin, end] = self.forbidden[p];
            if begin > offset {
                break;
            }
            if offset < end {
                offset = align_up(end, alignment);
            }
        }
        offset
    }

    fn interval(&self, i: u32, j: u32) -> [u64; 2] {
        let offset = self.offset[j];
        [(offset + 1).saturating_sub(self.pairs.apart(i, j)), offset + self.pairs.apart(j, i)]
    }

    fn keep(&self, best: &mut Summary, peak: u64, offsets: &mut [u64]) {
        if peak < best.peak {
            best.peak = peak;
            copy(self.offset.first(self.pairs.len()), offsets);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Constraints;
    use crate::place::tests::cut;
    use crate::verify::{overlap_workspace, verify_overlapping};
    use core::ops::ControlFlow;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn run(blocks: &[Block], overlaps: &[Overlap], options: &Options) -> Result<(Summary, Vec<u64>), Error> {
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut offsets = vec![0; blocks.len()];
        let scratch = Workspace::new(&mut words, &mut indices);
        let summary = place(blocks, overlaps, options, scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
        Ok((summary, offsets))
    }

    fn check(
        blocks: &[Block],
        overlaps: &[Overlap],
        offsets: &[u64],
        constraints: &Constraints,
    ) -> Result<[u64; 2], Error> {
        let mut indices = vec![7; overlap_workspace(blocks.len()).indices];
        let scratch = Workspace::new(&mut [], &mut indices);
        verify_overlapping(blocks, overlaps, offsets, constraints, scratch).map(|p| [p.peak(), p.max_load()])
    }

    fn chain(links: &[(u64, u64)]) -> (Vec<Block>, Vec<Overlap>) {
        let blocks = (0u32..).zip(links).map(|(i, link)| Block::new(i, i + 2, link.0)).collect();
        let overlap = |(i, link): (u32, &(u64, u64))| Overlap { output: i, input: i - 1, distance: link.1.min(link.0) };
        (blocks, (0u32..).zip(links).skip(1).map(overlap).collect())
    }

    fn holds(blocks: &[Block], overlaps: &[Overlap], offsets: &[u64]) -> bool {
        let pairs = (0..blocks.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        pairs.filter(|&(i, j)| blocks[i].collides(&blocks[j])).all(|(i, j)| {
            let apart = offsets[i] + blocks[i].size <= offsets[j] || offsets[j] + blocks[j].size <= offsets[i];
            let reaches = |o: &&Overlap| {
                let (a, b) = (o.output as usize, o.input as usize);
                ((a, b) == (i, j) || (a, b) == (j, i)) && offsets[a] + o.distance <= offsets[b]
            };
            apart || overlaps.iter().any(|o| reaches(&o))
        })
    }

    fn least_peak(blocks: &[Block], overlaps: &[Overlap]) -> u64 {
        let most: u64 = blocks.iter().map(|b| b.size).sum();
        let mut offsets = vec![0; blocks.len()];
        let mut least = most;
        loop {
            if holds(blocks, overlaps, &offsets) {
                least = least.min(blocks.iter().zip(&offsets).map(|(b, x)| b.size + x).max().unwrap_or(0));
            }
            let Some(i) = (0..blocks.len()).find(|&i| offsets[i] + blocks[i].size < most) else { return least };
            offsets[..i].fill(0);
            offsets[i] += 1;
        }
    }

    #[test]
    fn a_pair_that_is_named_often_does_not_overflow_the_bound() {
        let size = 1 << 62;
        let blocks = [Block::new(0, 2, size), Block::new(1, 3, size)];
        let often = [Overlap { output: 1, input: 0, distance: 0 }; 5];
        assert_eq!(lower_bound(&blocks, &often), Ok(size));
    }

    #[test]
    fn an_output_spares_no_more_than_an_overlap_allows_and_its_living_inputs_have() {
        let bound = |beside: Option<Block>, inputs: &[(u32, u64, u64)]| {
            let mut blocks = vec![Block::new(1, 4, 10)];
            blocks.extend(inputs.iter().map(|&(end, size, _)| Block::new(0, end, size)));
            blocks.extend(beside);
            let overlaps = (1..).zip(inputs).map(|(input, i)| Overlap { output: 0, input, distance: i.2 });
            lower_bound(&blocks, &overlaps.collect::<Vec<_>>()).unwrap()
        };
        let beside = Some(Block::new(1, 2, 7));
        // Each row: the end, the size and the distance of each input of an output of 10 bytes.
        assert_eq!(bound(beside, &[(2, 2, 0), (2, 3, 0)]), 17, "both inputs lie within the output");
        assert_eq!(bound(beside, &[(2, 10, 4), (2, 10, 6)]), 31, "it begins at least 4 bytes below one of them");
        assert_eq!(bound(beside, &[(2, 10, 3)]), 20);
        assert_eq!(bound(beside, &[(2, 10, 30)]), 27, "it may not overlap at all");
        assert_eq!(bound(Some(Block::new(2, 3, 7)), &[(2, 10, 0)]), 17, "the input has died");
        // At step 1 35 bytes are alive, and 10 of them spared at most; at step 2, after an end and no begin, 30 and 4.
        assert_eq!(bound(None, &[(2, 5, 0), (3, 10, 6), (3, 10, 6)]), 26);
    }

    proptest! {
        #[test]
        fn plans_of_chains_are_valid_and_above_the_bound(links in prop::collection::vec((1u64..60, 0u64..60), 2..24), log in 0u32..4) {
            let (blocks, overlaps) = chain(&links);
            let constraints = Constraints { alignment: 1 << log, capacity: None };
            let (summary, offsets) = run(&blocks, &overlaps, &Options { constraints, work: 200, ..Options::default() }).unwrap();
            prop_assert!(holds(&blocks, &overlaps, &offsets));
            let [peak, max_load] = check(&blocks, &overlaps, &offsets, &constraints).unwrap();
            prop_assert_eq!(summary.peak, peak);
            prop_assert!((max_load..=peak).contains(&summary.lower_bound));
        }

        #[test]
        fn small_chains_are_placed_best(links in prop::collection::vec((1u64..4, 0u64..4), 2..5)) {
            let (blocks, overlaps) = chain(&links);
            let (summary, _) = run(&blocks, &overlaps, &Options { work: 100, ..Options::default() }).unwrap();
            let least = least_peak(&blocks, &overlaps);
            prop_assert_eq!(summary.peak, least);
            prop_assert!(summary.lower_bound <= least);
        }
    }

    #[test]
    fn the_search_has_the_memory_for_the_most_blocks_that_it_takes() {
        let blocks: Vec<Block> = (0..search::MOST_BLOCKS as u32)
            .map(|i| Block::new(i, i + 3 + i * 7 % 5, u64::from(20 + i * i % 37)))
            .collect();
        let options = Options { work: 0, ..Options::default() };
        let (summary, offsets) = run(&blocks, &[], &options).unwrap();
        assert!(summary.nodes > 0, "{summary:?}");
        assert!(check(&blocks, &[], &offsets, &Constraints::default()).is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn what_the_search_proves_is_the_least_of_all_placements(
            lives in prop::collection::vec((0u32..4, 1u32..4, 1u64..5), 1..6),
            draws in prop::collection::vec(prop::option::of(0u64..6), 25),
        ) {
            let blocks: Vec<Block> = lives.iter().map(|&(start, width, size)| Block::new(start, start + width, size)).collect();
            let before = |input: &Block, output: &Block| input.start < output.start && input.end <= output.end;
            let mut overlaps = Vec::new();
            for (output, o) in blocks.iter().enumerate() {
                let inputs = (0..blocks.len()).filter(|&input| before(&blocks[input], o)).take(2);
                overlaps.extend(inputs.filter_map(|input| {
                    let distance = draws[5 * output + input]?;
                    Some(Overlap { output: u32::try_from(output).unwrap(), input: u32::try_from(input).unwrap(), distance })
                }));
            }
            // With `work` 0, only the plans of the four fixed orders are made. If none of them has the least peak, the
            // exact search has to find a plan that has.
            let (summary, offsets) = run(&blocks, &overlaps, &Options { work: 0, ..Options::default() }).unwrap();
            prop_assert!(holds(&blocks, &overlaps, &offsets));
            let least = least_peak(&blocks, &overlaps);
            prop_assert_eq!((summary.peak, summary.lower_bound), (least, least));
        }
    }

    #[test]
    fn a_bound_above_the_load_is_proved() {
        // Apart, they take 46 bytes. Block 2 keeps block 1 off 0, block 1 keeps block 0 off 0: so it ends at 28 or
        // higher.
        let (blocks, overlaps) = chain(&[(27, 0), (26, 0), (20, 1)]);
        let (summary, offsets) = run(&blocks, &overlaps, &Options::default()).unwrap();
        assert_eq!(check(&blocks, &overlaps, &offsets, &Constraints::NONE), Ok([28, 27]));
        assert_eq!((summary.peak, summary.lower_bound), (28, 28));
        let (cut, _) = run(&blocks, &overlaps, &Options { nodes: 0, ..Options::default() }).unwrap();
        assert_eq!((cut.peak, cut.lower_bound), (28, 27));
    }

    #[test]
    fn what_is_alive_beside_an_overlap_lies_apart() {
        let (blocks, overlaps) = chain(&[(8, 0), (8, 3)]);
        let third = [blocks[0], blocks[1], Block::new(1, 2, 4)];
        assert_eq!(run(&third, &overlaps, &Options::default()).unwrap().0.peak, 15);
    }

    #[test]
    fn what_is_no_overlap_is_refused() {
        let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
        for (output, input) in [(2, 0), (1, 2), (1, 1), (0, 1)] {
            let overlaps = [Overlap { output, input, distance: 1 }];
            let unknown = Error::NoOverlap { output, input };
            assert_eq!(run(&blocks, &overlaps, &Options::default()).unwrap_err(), unknown);
            assert_eq!(check(&blocks, &overlaps, &[0, 8], &Constraints::NONE), Err(unknown));
        }
        // Each of the two blocks is named as an output that may lie over the other.
        let blocks = [Block::new(0, 2, 8), Block::new(0, 2, 8)];
        let overlaps = [(1, 0), (0, 1)].map(|(output, input)| Overlap { output, input, distance: 1 });
        let unknown = Error::NoOverlap { output: 1, input: 0 };
        assert_eq!(run(&blocks, &overlaps, &Options::default()).unwrap_err(), unknown);
        assert!(run(&blocks, &overlaps[..1], &Options::default()).is_ok());
    }

    #[test]
    fn two_inputs_that_die_spare_the_output_once() {
        // Block 2 is the sum of blocks 0 and 1, and may lie over either of these.
        let blocks = [Block::new(0, 2, 8), Block::new(0, 2, 8), Block::new(1, 3, 8)];
        let overlaps = [0, 1].map(|input| Overlap { output: 2, input, distance: 0 });
        let (summary, offsets) = run(&blocks, &overlaps, &Options::default()).unwrap();
        assert_eq!((summary.peak, summary.lower_bound), (16, 16));
        assert_eq!(check(&blocks, &overlaps, &offsets, &Constraints::NONE), Ok([16, 16]));
    }

    #[test]
    fn two_outputs_over_one_input_have_no_room_once_it_has_died() {
        let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8), Block::new(1, 3, 8)];
        let overlaps = [1, 2].map(|output| Overlap { output, input: 0, distance: 0 });
        let (summary, offsets) = run(&blocks, &overlaps, &Options::default()).unwrap();
        assert_eq!((summary.peak, summary.lower_bound), (16, 16));
        assert_eq!(check(&blocks, &overlaps, &offsets, &Constraints::NONE), Ok([16, 16]));
    }

    #[test]
    fn one_break_of_the_watch_ends_it() {
        let blocks = cut(60, 30, 1000, 1);
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut told = 0;
        let mut watch = |_: &Summary| {
            told += 1;
            if told == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut offsets = vec![0; blocks.len()];
        let scratch = Workspace::new(&mut words, &mut indices);
        let summary = place(&blocks, &[], &Options::default(), scratch, &mut offsets, &mut watch).unwrap();
        assert!(told == 1 && summary.peak > summary.lower_bound, "{summary:?}");
    }

    #[test]
    fn pins_stay_and_capacities_are_kept() {
        let (mut blocks, overlaps) = chain(&[(8, 0), (8, 3)]);
        blocks[0].pin = Some(16);
        let (summary, offsets) = run(&blocks, &overlaps, &Options::default()).unwrap();
        assert_eq!((summary.peak, offsets[0]), (24, 16));
        let constraints = Constraints { alignment: 1, capacity: Some(20) };
        let refused = run(&blocks, &overlaps, &Options { constraints, ..Options::default() });
        assert_eq!(refused.unwrap_err(), Error::OverCapacity { peak: 24, lower_bound: 24, capacity: 20 });
    }
}
