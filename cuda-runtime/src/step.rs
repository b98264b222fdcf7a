//! The steps that a program is made of: launches and copies, each on one of three streams.

use sublet_core::trace::Op;

/// The usual alignment of blocks' offsets in the arena, in bytes: that of the addresses which a device's allocator
/// returns.
pub const ALIGNMENT: u64 = 256;

/// In bytes. Copies on the host can be written past the page cache (`O_DIRECT`).
pub(crate) const PAGE: u64 = 4096;

pub(crate) const COMPUTE: usize = 0;
pub(crate) const OUT: usize = 1;
pub(crate) const IN: usize = 2;

/// Which part of an operator's work a launch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The launch does all of the operator's work, and writes the masks that it is to write. A mask has one bit for
    /// each element of a block, and is kept instead of the block.
    Whole,
    /// The launch comes after that of the operator itself. It only computes a bit mask from a block's value. The mask
    /// has a separate launch if, for instance, it lies in memory that the operator still uses.
    Mask,
}

/// A block that a launch reads or writes, or the mask of a block, and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The block's number in the recorded trace.
    pub block: u32,
    /// Whether the operand is the mask of the block, one bit for each element, and not the block itself.
    pub mask: bool,
    /// The offset in the arena at which the operand begins, in bytes.
    pub offset: u64,
    /// How long the operand is, in bytes.
    pub bytes: u64,
    /// Whether the launch reads the value that the operand has before the launch.
    pub read: bool,
    /// Whether the launch writes the operand.
    pub write: bool,
}

/// Offsets are in bytes, from the start of the arena or of the copies on the host.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Launch { op: Op, part: Part, operands: Vec<Operand> },
    Out { from: u64, to: u64, bytes: u64 },
    In { from: u64, to: u64, bytes: u64 },
    Move { from: u64, to: u64, bytes: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) lane: usize,
    pub(crate) work: Work,
    /// In the rewritten trace; the number of its rows for a move between iterations.
    pub(crate) row: u32,
}
