//! A planner for firmware: blocks below 4 GiB, in 24 bytes of RAM each, in a few KiB of flash.
//!
//! Method: the largest block first, each into the smallest gap between the placed blocks that are alive with it, or else
//! above them (best fit by size, as TensorFlow Lite's arena planner). Then the plan is checked pair by pair. There is no
//! division, and no arithmetic on more than 32 bits. Cost: O(n²).

use crate::Error;
use crate::error::Buffer;
use crate::violation::Violation;

/// A block, as in [`Block`](crate::Block), without an alignment or a pin of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first step at which the block is alive.
    pub start: u32,
    /// The first step at which it is no longer alive.
    pub end: u32,
    /// The size of the block, in bytes.
    pub size: u32,
}

impl Span {
    const fn meets(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// Gives each block an offset, a multiple of `alignment`, so that no two that are alive together share an address, and
/// checks that. Returns the peak in bytes. `order` is scratch, of two numbers for each block.
///
/// # Errors
/// [`Error::Alignment`] if `alignment` is not a power of two; [`Error::ZeroSize`] and [`Error::EmptyLifetime`] for a
/// block; [`Error::BufferTooSmall`] if there is not one offset for each block, or `order` is too short;
/// [`Error::SizeOverflow`] if an end does not fit 32 bits.
///
/// ```
/// use sublet_core::place::{Span, place_small};
/// let spans = [(0, 2, 4), (1, 3, 8), (2, 4, 4)].map(|(start, end, size)| Span { start, end, size });
/// let (mut offsets, mut order) = ([0; 3], [0; 6]);
/// assert_eq!(place_small(&spans, 4, &mut offsets, &mut order), Ok(12));
/// assert_eq!(offsets, [8, 0, 8]);
/// ```
pub fn place_small(spans: &[Span], alignment: u32, offsets: &mut [u32], order: &mut [u32]) -> Result<u32, Error> {
    let n = spans.len();
    if !alignment.is_power_of_two() {
        return Err(Error::Alignment { block: None, alignment: alignment.into() });
    }
    if offsets.len() != n {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: n, got: offsets.len() });
    }
    let needed = n.saturating_mul(2);
    let got = order.len();
    let Some((by_size, placed)) = order.get_mut(..needed).and_then(|order| order.split_at_mut_checked(n)) else {
        return Err(Error::BufferTooSmall { buffer: Buffer::Indices, needed, got });
    };
    for ((block, span), place) in (0..).zip(spans).zip(by_size.iter_mut()) {
        if span.size == 0 {
            return Err(Error::ZeroSize { block });
        }
        if span.start >= span.end {
            return Err(Error::EmptyLifetime { block, start: span.start, end: span.end });
        }
        *place = block;
    }
    let span = |i: u32| spans.get(i as usize).copied().unwrap_or_default();
    by_size.sort_unstable_by(|&a, &b| span(b).size.cmp(&span(a).size).then(a.cmp(&b)));
    let mut peak = 0;
    for (count, &block) in by_size.iter().enumerate() {
        let below = placed.get(..count).unwrap_or_default();
        let overflow = Error::SizeOverflow { block };
        let offset = best_gap(spans, offsets, below, (span(block), alignment)).ok_or(overflow)?;
        peak = offset.checked_add(span(block).size).ok_or(overflow)?.max(peak);
        let at = below.partition_point(|&other| offsets.get(other as usize).is_some_and(|&o| o <= offset));
        if let Some(rest) = placed.get_mut(at..=count) {
            rest.rotate_right(1);
            if let Some(first) = rest.first_mut() {
                *first = block;
            }
        }
        if let Some(own) = offsets.get_mut(block as usize) {
            *own = offset;
        }
    }
    check(spans, offsets)?;
    Ok(peak)
}

/// The lowest offset in the smallest gap that holds a block, or above all placed blocks that are alive with it. `placed`
/// is sorted by offset.
fn best_gap(spans: &[Span], offsets: &[u32], placed: &[u32], (own, alignment): (Span, u32)) -> Option<u32> {
    let up = |offset: u32| Some(offset.checked_add(alignment - 1)? & !(alignment - 1));
    let (mut top, mut best) = (0, None);
    for &other in placed {
        let (Some(span), Some(&offset)) = (spans.get(other as usize), offsets.get(other as usize)) else { continue };
        if !own.meets(span) {
            continue;
        }
        let from = up(top)?;
        let gap = offset.saturating_sub(from);
        if gap >= own.size && best.is_none_or(|(least, _)| gap < least) {
            best = Some((gap, from));
        }
        top = top.max(offset.checked_add(span.size)?);
    }
    best.map_or_else(|| up(top), |(_, offset)| Some(offset))
}

/// Checks that no two blocks that are alive together share an address.
///
/// # Errors
/// [`Error::Invalid`] with the first two that do; [`Error::SizeOverflow`] if an end does not fit 32 bits.
fn check(spans: &[Span], offsets: &[u32]) -> Result<(), Error> {
    for (second, (b, &high)) in (0..).zip(spans.iter().zip(offsets)) {
        let end = high.checked_add(b.size).ok_or(Error::SizeOverflow { block: second })?;
        for (first, (a, &low)) in (0..second).zip(spans.iter().zip(offsets)) {
            if a.meets(b) && low < end && high < low.saturating_add(a.size) {
                return Err(Error::Invalid(Violation::Overlap { first, second, step: a.start.max(b.start) }));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Constraints, Workspace, verify};
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        /// The verifier accepts every plan, and the peak is what it says.
        #[test]
        fn plans_are_valid(
            lives in prop::collection::vec((0u32..40, 1u32..12, 1u32..200), 0..40),
            bits in 0u32..6,
        ) {
            let spans: Vec<Span> = lives.iter().map(|&(start, n, size)| Span { start, end: start + n, size }).collect();
            let (mut offsets, mut order) = (vec![0; spans.len()], vec![7; 2 * spans.len()]);
            let peak = place_small(&spans, 1 << bits, &mut offsets, &mut order).unwrap();
            let blocks: Vec<Block> = spans.iter().map(|s| Block::new(s.start, s.end, s.size.into())).collect();
            let offsets: Vec<u64> = offsets.iter().map(|&o| o.into()).collect();
            let mut indices = vec![0; verify::workspace(blocks.len()).indices];
            let mut words = vec![0; verify::workspace(blocks.len()).words];
            let constraints = Constraints { alignment: 1 << bits, capacity: None };
            let plan = verify::verify(&blocks, &offsets, &constraints, Workspace::new(&mut words, &mut indices)).unwrap();
            prop_assert_eq!(plan.peak(), u64::from(peak));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let span = Span { start: 0, end: 2, size: 8 };
        let tell = |spans: &[Span], alignment, offsets: usize, order: usize| {
            place_small(spans, alignment, &mut vec![0; offsets], &mut vec![0; order]).unwrap_err()
        };
        assert!(matches!(tell(&[span], 3, 1, 2), Error::Alignment { .. }));
        assert!(matches!(tell(&[span], 4, 2, 2), Error::BufferTooSmall { buffer: Buffer::Offsets, .. }));
        assert!(matches!(tell(&[span], 4, 1, 1), Error::BufferTooSmall { buffer: Buffer::Indices, needed: 2, got: 1 }));
        assert!(matches!(tell(&[Span { size: 0, ..span }], 4, 1, 2), Error::ZeroSize { block: 0 }));
        assert!(matches!(tell(&[Span { end: 0, ..span }], 4, 1, 2), Error::EmptyLifetime { block: 0, .. }));
        let large = Span { size: u32::MAX, ..span };
        assert!(matches!(tell(&[span, large], 4, 2, 4), Error::SizeOverflow { .. }));
        let overlap = Error::Invalid(Violation::Overlap { first: 0, second: 1, step: 1 });
        assert_eq!(check(&[span, Span { start: 1, ..span }], &[0, 7]), Err(overlap));
        assert_eq!(check(&[span, Span { start: 1, ..span }], &[0, 8]), Ok(()));
    }
}
