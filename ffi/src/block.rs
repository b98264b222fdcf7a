//! Blocks, which are single allocations, and the constraints on where they are placed.

use sublet_core::{Block, Constraints};

use crate::arguments::{params, plain};
use crate::error::Failure;
use crate::status::sublet_status as S;
use crate::workspace::Room;

/// The flag of a block that must lie at the offset in its field `pin`.
pub const SUBLET_BLOCK_PINNED: u64 = 1;

/// One allocation: how large it is, when it is alive, and where it may go.
///
/// The block is alive at every step t with start <= t < end: if one block ends at the step at which another starts, the
/// two may share an address.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_block {
    /// The first step at which the block is alive. A step is a point in time, counted from 0, such as the index of a
    /// row in a trace.
    pub start: u32,
    /// The first step, counted from 0, at which the block is no longer alive.
    pub end: u32,
    /// Size in bytes, at least 1.
    pub size: u64,
    /// The offset of the block must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// The offset that the block must have, in bytes, if `flags` is SUBLET_BLOCK_PINNED; otherwise it is not used.
    pub pin: u64,
    /// SUBLET_BLOCK_PINNED if the block must lie at the offset `pin`; otherwise 0.
    pub flags: u64,
}

/// The constraints of a plan that hold for all blocks together: an alignment of every offset, and a capacity.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_constraints {
    /// Set this to sizeof(sublet_constraints): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// The capacity in bytes, which no block's end may exceed; 0 is no constraint.
    pub capacity: u64,
}

plain!(sublet_block, sublet_constraints);
params! {
    sublet_constraints { struct_size, reserved, alignment, capacity }
}

/// In bytes; 0 is no constraint.
pub(crate) fn constraints(alignment: u64, capacity: u64) -> Constraints {
    Constraints { alignment: alignment.max(1), capacity: Some(capacity).filter(|&c| c > 0) }
}

impl From<sublet_constraints> for Constraints {
    fn from(c: sublet_constraints) -> Self {
        constraints(c.alignment, c.capacity)
    }
}

pub(crate) fn blocks<'a>(room: &mut Room<'a>, given: &[sublet_block]) -> Result<&'a mut [Block], Failure> {
    room.slice(given.len(), |i| {
        let b = given.get(i).ok_or(Failure::of(S::Unnamed))?;
        if b.flags & !SUBLET_BLOCK_PINNED != 0 {
            return Err(Failure::new(S::BlockFlags, u32::try_from(i).unwrap_or(u32::MAX), 0, b.flags));
        }
        let pin = (b.flags & SUBLET_BLOCK_PINNED != 0).then_some(b.pin);
        Ok(Block { start: b.start, end: b.end, size: b.size, alignment: b.alignment.max(1), pin })
    })
}

impl From<Block> for sublet_block {
    fn from(b: Block) -> Self {
        let flags = if b.pin.is_some() { SUBLET_BLOCK_PINNED } else { 0 };
        Self { start: b.start, end: b.end, size: b.size, alignment: b.alignment, pin: b.pin.unwrap_or(0), flags }
    }
}
