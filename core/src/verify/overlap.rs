//! Proves that a plan is valid in which an operator's output may share bytes with an input that no later operator
//! reads.
//!
//! The constraints are those of the parent module, except for the pairs of blocks that an [`Overlap`] names. Such a
//! pair may share bytes if the output begins at least `distance` bytes below the begin of the input: then the kernel
//! has read each byte of the input before it writes over it. Pairs are looked at one by one:
//! `O(n log n + (n + p + o) · o)` for n blocks, p pairs that are alive together and o overlaps.
//!
//! The lower bound on the peak: at each step at which a block begins, the most bytes that outputs may share with their
//! inputs are subtracted from the bytes alive; the bound is the highest difference. An output shares with one input at
//! most the input's size, and at most its own size less the distance. With several inputs, it shares at most the sum of
//! these bytes, and at most its own size less the least distance.

use super::plan::{VerifiedPlan, check_block};
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::violation::Violation;
use crate::{Block, Constraints, Error, Overlap, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace that [`verify_overlapping`] needs for a plan of `n` blocks.
#[must_use]
pub const fn overlap_workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 3 * n }
}

/// Proves that `offsets`, in bytes, is a valid plan for `blocks`, or says which constraint it breaks. The two blocks of
/// an [`Overlap`] may share bytes as far as the overlap allows. The plan's max load is a lower bound on the peak: at
/// each step at which a block begins, the most bytes that overlaps let live blocks share are subtracted from the bytes
/// alive; the highest difference counts.
///
/// # Errors
/// Those of [`verify`](super::verify()); [`Violation::OverlapTooFar`] in [`Error::Invalid`]; [`Error::NoOverlap`]
/// for an overlap that names a block that does not exist, or the same block twice, or whose input begins or ends later
/// than its output; also for two overlaps in which the same two blocks change places as output and input.
///
/// ```
/// use sublet_core::verify::{self, Violation};
/// use sublet_core::{Block, Constraints, Error, Overlap, Workspace};
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
/// let overlaps = [Overlap { output: 1, input: 0, distance: 3 }];
/// let mut indices = [0; 6];
/// let mut check = |offsets: &[u64]| {
///     let scratch = Workspace::new(&mut [], &mut indices);
///     verify::verify_overlapping(&blocks, &overlaps, offsets, &Constraints::NONE, scratch).map(|plan| plan.peak())
/// };
/// assert_eq!(check(&[3, 0]), Ok(11));
/// let too_far = Violation::OverlapTooFar { output: 1, input: 0, distance: 3 };
/// assert_eq!(check(&[2, 0]), Err(Error::Invalid(too_far)));
/// ```
pub fn verify_overlapping<'a>(
    blocks: &'a [Block],
    overlaps: &[Overlap],
    offsets: &'a [u64],
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
) -> Result<VerifiedPlan<'a>, Error> {
    block::check(blocks, constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(overlap_workspace(blocks.len()))?;
    block::check_overlaps(blocks, overlaps)?;
    let mut peak = 0;
    for (index, (b, &offset)) in (0u32..).zip(blocks.iter().zip(offsets)) {
        peak = peak.max(check_block(index, b, offset, constraints)?);
    }
    let n = count(blocks);
    let (mut by_start, mut aside) = (scratch.indices(blocks.len()), scratch.indices(blocks.len()));
    sort::identity(&mut by_start, n);
    sort::by_key(&mut by_start, n, &mut aside, |i| at(blocks, i).start.into());
    for place in 0..n {
        let i = by_start[place];
        let later = (place + 1..n).map(|p| by_start[p]);
        for j in later.take_while(|&j| at(blocks, j).start < at(blocks, i).end) {
            check_pair(blocks, overlaps, offsets, i, j)?;
        }
    }
    let mut by_end = scratch.indices(blocks.len());
    sort::identity(&mut by_end, n);
    sort::by_key(&mut by_end, n, &mut aside, |i| at(blocks, i).end.into());
    let max_load = max_load(blocks, overlaps, &by_start, &by_end);
    Ok(VerifiedPlan { blocks, offsets, peak, max_load })
}

fn check_pair(blocks: &[Block], overlaps: &[Overlap], offsets: &[u64], i: u32, j: u32) -> Result<(), Error> {
    let end = |b: u32| at(offsets, b).saturating_add(at(blocks, b).size);
    if end(i) <= at(offsets, j) || end(j) <= at(offsets, i) {
        return Ok(());
    }
    let of_pair = overlaps.iter().filter(|o| (o.output, o.input) == (i, j) || (o.output, o.input) == (j, i));
    let Some(&Overlap { output, input, distance }) = of_pair.min_by_key(|o| o.distance) else {
        let step = at(blocks, i).start.max(at(blocks, j).start);
        return Err(Error::Invalid(Violation::Overlap { first: i.min(j), second: i.max(j), step }));
    };
    if at(offsets, output).checked_add(distance).is_some_and(|reach| reach <= at(offsets, input)) {
        return Ok(());
    }
    Err(Error::Invalid(Violation::OverlapTooFar { output, input, distance }))
}

fn max_load(blocks: &[Block], overlaps: &[Overlap], by_start: &Table<'_, u32>, by_end: &Table<'_, u32>) -> u64 {
    let n = count(blocks);
    let start = |place: u32| at(blocks, by_start[place]).start;
    let end = |place: u32| at(blocks, by_end[place]).end;
    let (mut load, mut most, mut begun, mut ended) = (0u64, 0, 0, 0);
    while ended < n {
        let step = if begun < n { start(begun).min(end(ended)) } else { end(ended) };
        while ended < n && end(ended) <= step {
            load = load.wrapping_sub(at(blocks, by_end[ended]).size);
            ended += 1;
        }
        while begun < n && start(begun) <= step {
            load = load.wrapping_add(at(blocks, by_start[begun]).size);
            begun += 1;
        }
        most = most.max(load.saturating_sub(spared(blocks, overlaps, step)));
    }
    most
}

/// Bytes may count twice if an output's overlaps do not stand side by side: the bound is then lower.
fn spared(blocks: &[Block], overlaps: &[Overlap], step: u32) -> u64 {
    let alive = overlaps.iter().filter(|o| at(blocks, o.output).start <= step && step < at(blocks, o.input).end);
    let (mut all, mut own, mut least, mut output) = (0u64, 0u64, u64::MAX, u32::MAX);
    let mut close = |output: u32, own: u64, least: u64| {
        if output != u32::MAX {
            all = all.saturating_add(own.min(at(blocks, output).size.saturating_sub(least)));
        }
    };
    for o in alive {
        if o.output != output {
            close(output, own, least);
            (own, least, output) = (0, u64::MAX, o.output);
        }
        let reach = at(blocks, o.output).size.saturating_sub(o.distance);
        own = own.saturating_add(reach.min(at(blocks, o.input).size));
        least = least.min(o.distance);
    }
    close(output, own, least);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

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

    fn naive_max_load(blocks: &[Block], overlaps: &[Overlap]) -> u64 {
        let at_step = |step: u32| {
            let alive = |b: &&Block| b.start <= step && step < b.end;
            let load: u64 = blocks.iter().filter(alive).map(|b| b.size).sum();
            let of_output = |(i, output): (u32, &Block)| {
                let inputs = || {
                    let of = overlaps.iter().filter(move |o| o.output == i);
                    of.map(|o| (&blocks[o.input as usize], o.distance)).filter(|(b, _)| alive(&output) && alive(b))
                };
                let least = inputs().map(|(_, distance)| distance).min().unwrap_or(u64::MAX);
                let each: u64 = inputs().map(|(b, d)| b.size.min(output.size.saturating_sub(d))).sum();
                each.min(output.size.saturating_sub(least))
            };
            load - (0..).zip(blocks).map(of_output).sum::<u64>().min(load)
        };
        let steps = 0..blocks.iter().map(|b| b.end).max().unwrap_or(0);
        steps.map(at_step).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn agrees_with_the_constraints_pair_by_pair(
            lives in prop::collection::vec((0u32..8, 1u32..5, 1u64..6), 0..7),
            draws in prop::collection::vec(prop::option::of(0u64..7), 49),
            offsets in prop::collection::vec(0u64..14, 7),
        ) {
            let blocks: Vec<Block> = lives.iter().map(|&(start, width, size)| Block::new(start, start + width, size)).collect();
            let n = blocks.len();
            let before = |input: &Block, output: &Block| input.start < output.start && input.end <= output.end;
            let pairs = (0..n).flat_map(|output| (0..n).map(move |input| (output, input)));
            let overlaps: Vec<Overlap> = pairs.filter(|&(output, input)| before(&blocks[input], &blocks[output])).filter_map(|(output, input)| {
                let distance = draws[7 * output + input]?;
                Some(Overlap { output: u32::try_from(output).unwrap(), input: u32::try_from(input).unwrap(), distance })
            }).collect();
            let offsets = &offsets[..n];
            let verdict = check(&blocks, &overlaps, offsets, &Constraints::NONE);
            prop_assert_eq!(verdict.is_ok(), holds(&blocks, &overlaps, offsets), "{:?}", verdict);
            if let Ok([peak, max_load]) = verdict {
                prop_assert_eq!(peak, blocks.iter().zip(offsets).map(|(b, x)| b.size + x).max().unwrap_or(0));
                prop_assert_eq!(max_load, naive_max_load(&blocks, &overlaps));
            }
        }
    }

    const PAIR: [Block; 2] = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
    const OVERLAP: Overlap = Overlap { output: 1, input: 0, distance: 3 };

    #[test]
    fn an_output_may_be_below_its_input_but_not_inside_of_it() {
        let far = Error::Invalid(Violation::OverlapTooFar { output: 1, input: 0, distance: 3 });
        for (offsets, verdict) in
            [([3, 0], Ok([11, 11])), ([2, 0], Err(far)), ([0, 3], Err(far)), ([0, 8], Ok([16, 11]))]
        {
            assert_eq!(check(&PAIR, &[OVERLAP], &offsets, &Constraints::NONE), verdict);
        }
        // Of two overlaps of the same blocks the one with the least distance counts, in either order.
        for distances in [[3, 5], [5, 3]] {
            let overlaps = distances.map(|distance| Overlap { distance, ..OVERLAP });
            assert_eq!(check(&PAIR, &overlaps, &[3, 0], &Constraints::NONE), Ok([11, 11]));
            assert_eq!(check(&PAIR, &overlaps, &[2, 0], &Constraints::NONE), Err(far));
        }
        // Other blocks that are alive at that step have to be apart.
        let third = [PAIR[0], PAIR[1], Block::new(1, 2, 4)];
        let apart = Error::Invalid(Violation::Overlap { first: 0, second: 2, step: 1 });
        assert_eq!(check(&third, &[OVERLAP], &[3, 0, 5], &Constraints::NONE), Err(apart));
    }

    #[test]
    fn the_constraints_of_a_block_alone_hold_too() {
        let with = |alignment, capacity| check(&PAIR, &[OVERLAP], &[3, 0], &Constraints { alignment, capacity });
        assert_eq!(with(1, Some(11)), Ok([11, 11]));
        assert!(matches!(with(1, Some(10)), Err(Error::Invalid(Violation::OverCapacity { .. }))));
        assert!(matches!(with(2, None), Err(Error::Invalid(Violation::Misaligned { .. }))));
        assert!(matches!(with(3, None), Err(Error::Alignment { .. })));
    }

    #[test]
    fn what_is_no_overlap_and_what_is_too_short_is_refused() {
        for (output, input) in [(2, 0), (1, 2), (1, 1), (0, 1)] {
            let overlaps = [Overlap { output, input, distance: 1 }];
            let unknown = Error::NoOverlap { output, input };
            assert_eq!(check(&PAIR, &overlaps, &[0, 8], &Constraints::NONE), Err(unknown));
        }
        for got in [1, 3] {
            let short = Error::BufferTooSmall { buffer: Buffer::Offsets, needed: 2, got };
            assert_eq!(check(&PAIR, &[], &[0, 8, 16][..got], &Constraints::NONE), Err(short));
        }
        let needed = overlap_workspace(2).indices;
        let scratch = &mut vec![7; needed - 1];
        let scratch = Workspace::new(&mut [], scratch);
        let short = Error::BufferTooSmall { buffer: Buffer::Indices, needed, got: needed - 1 };
        assert_eq!(verify_overlapping(&PAIR, &[], &[0, 8], &Constraints::NONE, scratch).unwrap_err(), short);
    }
}
