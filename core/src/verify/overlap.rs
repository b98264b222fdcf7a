//! Proves a plan valid in which outputs may reach into inputs that die with their operator.
//!
//! As the parent, but for the pairs that overlaps name: of those the output begins `distance` below the input, or above its
//! end. Pairs are looked at one by one: O(n log n + pairs that are alive together · overlaps of a block). What no plan is
//! below is the load less what the overlaps may spare at that step: of an output no more than reaches above the least
//! distance, and of each input no more than it has.

use super::{VerifiedPlan, Violation, check_block};
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::{Block, Constraints, Error, Overlap, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace that [`verify_overlapping`] needs for `n` blocks.
#[must_use]
pub const fn overlap_workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 3 * n }
}

/// Proves that `offsets` is a plan for `blocks` in which the outputs of `overlaps` may reach into their inputs, or says
/// which constraint it breaks. The plan's max load is less what the overlaps may spare.
///
/// # Errors
/// As [`verify`](super::verify()); [`Violation::OverlapTooFar`]; [`Error::UnknownTensor`] for an overlap of what is no
/// block, or whose input does not begin before its output and end before it does.
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

/// Two blocks that are alive together.
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

/// The most of the load at a step less what overlaps may spare there.
fn max_load(blocks: &[Block], overlaps: &[Overlap], by_start: &Table<'_, u32>, by_end: &Table<'_, u32>) -> u64 {
    let n = count(blocks);
    let (mut load, mut most, mut ended) = (0u64, 0, 0);
    for place in 0..n {
        let new = by_start[place];
        let step = at(blocks, new).start;
        while ended < n && at(blocks, by_end[ended]).end <= step {
            load = load.wrapping_sub(at(blocks, by_end[ended]).size);
            ended += 1;
        }
        load = load.wrapping_add(at(blocks, new).size);
        most = most.max(load.saturating_sub(spared(blocks, overlaps, step)));
    }
    most
}

/// What overlaps may spare at a step; those of an output stand together, or more is taken for spared than can be.
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
