//! The unit of placement: a block of memory with a size and a lifetime.

use crate::Error;

/// One allocation: how large it is, when it is alive, and where it may go.
///
/// The lifetime is half-open: the block is alive at every step `t`, a position in a trace, with `start <= t < end`. So
/// two blocks may share an address if one ends at the step at which the other starts.
///
/// ```
/// use sublet_core::Block;
/// let conv = Block::new(0, 3, 4096);
/// let relu = Block::new(3, 5, 4096);
/// assert!(!conv.collides(&relu));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// First step at which the block is alive.
    pub start: u32,
    /// First step at which the block is no longer alive.
    pub end: u32,
    /// Size in bytes, at least 1.
    pub size: u64,
    /// The block's offset must be a multiple of this power of two, in bytes; 1 allows every offset.
    pub alignment: u64,
    /// The offset that the block must have, in bytes from the start of the arena; `None` if the planner chooses it.
    pub pin: Option<u64>,
}

impl Block {
    /// A block of `size` bytes that is alive in the steps `[start, end)` and may lie at any offset.
    #[must_use]
    pub const fn new(start: u32, end: u32, size: u64) -> Self {
        Self { start, end, size, alignment: 1, pin: None }
    }

    /// Whether the lifetimes of the two blocks share a step. In Sekiyama et al. 2018, the set E consists of the pairs
    /// for which this is true.
    ///
    /// ```
    /// # use sublet_core::Block;
    /// assert!(Block::new(0, 3, 1).collides(&Block::new(2, 5, 1)));
    /// ```
    #[must_use]
    pub const fn collides(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Number of steps that the block is alive.
    ///
    /// ```
    /// # use sublet_core::Block;
    /// assert_eq!(Block::new(2, 5, 1).width(), 3);
    /// ```
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}

/// No bytes, alive at no step: a table of blocks returns it outside its bounds, instead of panicking.
impl Default for Block {
    fn default() -> Self {
        Self::new(0, 0, 0)
    }
}

/// Constraints on a whole plan, which gives each block an offset. A block may have constraints of its own too
/// ([`Block::alignment`], [`Block::pin`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constraints {
    /// Every offset must be a multiple of this power of two, in bytes; 1 is no constraint.
    pub alignment: u64,
    /// The size of the arena in bytes: no block may end above it. `None` is no limit. Sekiyama et al. 2018 call it W in
    /// their mixed integer program.
    pub capacity: Option<u64>,
}

impl Constraints {
    /// No constraint on the plan as a whole: its alignment is 1 byte, and the arena may have any size.
    pub const NONE: Self = Self { alignment: 1, capacity: None };
}

impl Default for Constraints {
    fn default() -> Self {
        Self::NONE
    }
}

/// Allows an operator's output and one of its inputs to share bytes. The operator must be the last that reads the
/// input, and the output must begin at least `distance` bytes below the input. Then the kernel has read each byte of
/// the input before it writes over that byte (Blacker et al. 2020, "diagonal memory optimisation").
///
/// The constraint: the two blocks share no byte, or `a <= b - distance`, where a is the offset of the output and b that
/// of the input. If the distance is at least the size of the output, the two blocks share no byte, like any two blocks
/// that are alive together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overlap {
    /// The index of the output's block, which the operator writes.
    pub output: u32,
    /// The index of the input's block, which the operator reads for the last time.
    pub input: u32,
    /// If the output and the input share bytes, the output must begin at least this many bytes below the begin of the
    /// input.
    pub distance: u64,
}

/// Checks that `blocks` can be planned. `alignment` is the one that holds for the whole plan, in bytes. Every size must
/// be at least 1, every lifetime at least one step, and every alignment a power of two. A pin, a fixed offset, must be
/// a multiple of `alignment` and of its block's own alignment. The bytes must not be too many for 64 bits: if all
/// blocks were stacked above the highest end of a pinned one, each with the most padding that its alignment may need,
/// the last must still end below `u64::MAX`.
///
/// Returns the highest end of a pinned block in bytes (0 without pins), which is a lower bound on the peak. O(n).
///
/// # Errors
/// An error that names, by its index, the first block that breaks a rule; [`Error::Alignment`] without an index if
/// `alignment` is not a power of two; [`Error::TooManyBlocks`] if there are more than [`MAX_BLOCKS`] blocks.
///
/// ```
/// use sublet_core::{Block, Error, check_blocks};
/// assert_eq!(check_blocks(&[Block::new(4, 4, 1)], 1), Err(Error::EmptyLifetime { block: 0, start: 4, end: 4 }));
/// ```
pub fn check(blocks: &[Block], alignment: u64) -> Result<u64, Error> {
    check_count(blocks.len())?;
    if !alignment.is_power_of_two() {
        return Err(Error::Alignment { block: None, alignment });
    }
    let mut stacked: u64 = 0;
    let mut pinned: u64 = 0;
    for (index, b) in (0u32..).zip(blocks) {
        if b.size == 0 {
            return Err(Error::ZeroSize { block: index });
        }
        if b.start >= b.end {
            return Err(Error::EmptyLifetime { block: index, start: b.start, end: b.end });
        }
        if !b.alignment.is_power_of_two() {
            return Err(Error::Alignment { block: Some(index), alignment: b.alignment });
        }
        let alignment = b.alignment.max(alignment);
        if let Some(offset) = b.pin {
            if offset & (alignment - 1) != 0 {
                return Err(Error::PinMisaligned { block: index, offset, alignment });
            }
            let end = offset.checked_add(b.size).ok_or(Error::SizeOverflow { block: index })?;
            pinned = pinned.max(end);
        }
        // The highest end that a planner may choose: all blocks stacked above the pins, each after the longest padding
        // that its alignment may need.
        stacked = stacked
            .checked_add(b.size)
            .and_then(|s| s.checked_add(alignment - 1))
            .ok_or(Error::SizeOverflow { block: index })?;
        // No plan may reach `u64::MAX`: as a peak, this value means that there is no plan.
        if stacked.checked_add(pinned).is_none_or(|highest| highest == u64::MAX) {
            return Err(Error::SizeOverflow { block: index });
        }
    }
    Ok(pinned)
}

/// The two blocks differ; the input begins and ends no later than the output; no pair occurs both ways round.
pub(crate) fn check_overlaps(blocks: &[Block], overlaps: &[Overlap]) -> Result<(), Error> {
    for o in overlaps {
        let of = |block: u32| usize::try_from(block).ok().and_then(|i| blocks.get(i));
        let alike = |(output, input): (&Block, &Block)| input.start <= output.start && input.end <= output.end;
        // Two overlaps can name the same blocks with output and input exchanged only if the lifetimes are equal.
        let both_ways = |(output, input): (&Block, &Block)| {
            (output.start, output.end) == (input.start, input.end)
                && overlaps.iter().any(|other| (other.output, other.input) == (o.input, o.output))
        };
        let refused = |pair| !alike(pair) || both_ways(pair);
        if o.output == o.input || of(o.output).zip(of(o.input)).is_none_or(refused) {
            return Err(Error::NoOverlap { output: o.output, input: o.input });
        }
    }
    Ok(())
}

/// Checks that a number of blocks, or of an allocator's mallocs and frees, is at most [`MAX_BLOCKS`]. Call this before
/// the length of scratch memory is computed from the number: from a larger number, that length could overflow.
///
/// # Errors
/// [`Error::TooManyBlocks`] if the number is larger.
pub const fn check_count(blocks: usize) -> Result<(), Error> {
    if blocks > MAX_BLOCKS { Err(Error::TooManyBlocks { needed: blocks, most: MAX_BLOCKS }) } else { Ok(()) }
}

/// The most blocks that can be planned at once. The planners count blocks, time ranges and tree nodes in `u32`. Up to
/// this limit, all these counts fit.
pub const MAX_BLOCKS: usize = (1 << 28) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_beyond_u64_are_refused() {
        let half = Block::new(0, 1, u64::MAX / 2 + 1);
        assert_eq!(check(&[half], 1), Ok(0));
        assert_eq!(check(&[half, half], 1), Err(Error::SizeOverflow { block: 1 }));
        let almost = Block::new(0, 1, u64::MAX - 1);
        assert_eq!(check(&[almost], 1), Ok(0));
        assert_eq!(check(&[almost, Block::new(1, 2, 1)], 1), Err(Error::SizeOverflow { block: 1 }));
        let pin = Block { pin: Some(u64::MAX - 1), ..Block::new(0, 1, 1) };
        assert_eq!(check(&[pin], 1), Err(Error::SizeOverflow { block: 0 }));
    }

    #[test]
    fn rules_name_the_block() {
        let good = Block::new(0, 1, 1);
        assert_eq!(check(&[good, Block::new(0, 1, 0)], 1), Err(Error::ZeroSize { block: 1 }));
        assert_eq!(check(&[Block::new(2, 1, 1)], 1), Err(Error::EmptyLifetime { block: 0, start: 2, end: 1 }));
        let three = Block { alignment: 3, ..good };
        assert_eq!(check(&[three], 1), Err(Error::Alignment { block: Some(0), alignment: 3 }));
        assert_eq!(check(&[good], 0), Err(Error::Alignment { block: None, alignment: 0 }));
        let pin = Block { pin: Some(4), ..good };
        assert_eq!(check(&[pin], 8), Err(Error::PinMisaligned { block: 0, offset: 4, alignment: 8 }));
    }
}
