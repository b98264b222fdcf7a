//! The constraints that a plan can break.

use core::fmt;

/// The constraint that a plan breaks, and at which blocks. If the plan breaks several, this is the first one found:
/// each block is checked alone first, then the pairs of blocks that are alive together. Constraints that are also in
/// section 3.1 of Sekiyama et al. 2018 are listed with their numbers in that paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The block's offset plus its size exceeds 64 bits: constraint (2) of Sekiyama et al. 2018.
    EndOverflow {
        /// The index of the block whose end exceeds 64 bits.
        block: u32,
        /// The block's offset in the arena, in bytes.
        offset: u64,
    },
    /// The block ends above the capacity of the arena: constraints (2) and (5) of Sekiyama et al. 2018.
    OverCapacity {
        /// The index of the block that ends above the capacity.
        block: u32,
        /// The block's end, its offset plus its size, in bytes.
        end: u64,
        /// The capacity: the most bytes that the arena may have. Sekiyama et al. 2018 call it W.
        capacity: u64,
    },
    /// Two blocks are both alive at `step` and share an address: constraints (3) and (4) of Sekiyama et al. 2018.
    Overlap {
        /// The lower of the indices of the two blocks that share an address.
        first: u32,
        /// The higher of the indices of the two blocks that share an address.
        second: u32,
        /// The first step at which the blocks `first` and `second` are both alive.
        step: u32,
    },
    /// An operator's output shares bytes with its input but begins too high. An [`Overlap`](crate::Overlap) lets the
    /// two share bytes only if the output begins at least `distance` bytes below the input. Otherwise the kernel could
    /// overwrite bytes of the input before it reads them.
    OverlapTooFar {
        /// The index of the output's block, which the operator writes.
        output: u32,
        /// The index of the input's block, which the operator reads.
        input: u32,
        /// If the output and the input share bytes, the output must begin at least this many bytes below the begin of
        /// the input.
        distance: u64,
    },
    /// The offset of a block is not a multiple of the alignment that it needs.
    Misaligned {
        /// The index of the block whose offset is not a multiple of the alignment.
        block: u32,
        /// The block's offset in the arena, in bytes.
        offset: u64,
        /// The larger of the block's own alignment and that of the whole plan, in bytes.
        alignment: u64,
    },
    /// The block does not lie at the offset at which it is pinned.
    Moved {
        /// The index of the block that does not lie where it is pinned.
        block: u32,
        /// The block's offset in the arena, in bytes.
        offset: u64,
        /// The offset at which the block is pinned, in bytes.
        pin: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::EndOverflow { block, offset } => {
                write!(f, "block {block} at offset {offset} ends beyond what 64 bits hold")
            }
            Self::OverCapacity { block, end, capacity } => {
                write!(f, "block {block} ends at {end}, above the capacity {capacity}")
            }
            Self::Overlap { first, second, step } => {
                write!(f, "blocks {first} and {second} are both alive at step {step} and share an address")
            }
            Self::OverlapTooFar { output, input, distance } => {
                write!(f, "block {output} is written over block {input} and begins less than {distance} bytes below it")
            }
            Self::Misaligned { block, offset, alignment } => {
                write!(f, "block {block} has the offset {offset}, which is not a multiple of {alignment}")
            }
            Self::Moved { block, offset, pin } => {
                write!(f, "block {block} has the offset {offset}, but is pinned at {pin}")
            }
        }
    }
}
