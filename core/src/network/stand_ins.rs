//! Takes the blocks that stand for kept memories (storages of tensors that lie outside the arena) out of a plan.
//!
//! Such a *stand-in* is a block of the trace, but its memory is no part of the arena. A stand-in is always alive, so no
//! other block has a byte in its place. These bytes are taken out: blocks above move down. The stand-ins move above all
//! other blocks, and the new plan is verified.

use super::residency::NONE;
use crate::table::at;
use crate::verify::VerifiedSchedule;
use crate::verify::{self, VerifiedPlan};
use crate::{Constraints, Error, Workspace, WorkspaceLen, sort};

pub(super) const fn workspace(blocks: usize, residencies: usize) -> WorkspaceLen {
    WorkspaceLen { words: blocks + residencies, indices: 0 }.and(verify::workspace(residencies))
}

pub(super) fn bytes(memories: &[u32], alignment: u64) -> u64 {
    memories.iter().filter(|&&memory| memory == NONE).fold(0, |sum: u64, _| sum.saturating_add(alignment))
}

/// The stand-ins stay in the new plan, on top: the caller subtracts [`bytes`] from its peak and max load.
pub(super) fn move_up<'o>(
    schedule: &VerifiedSchedule<'o>,
    memories: &[u32],
    alignment: u64,
    scratch: &mut Workspace<'o>,
) -> Result<VerifiedPlan<'o>, Error> {
    let (blocks, offsets) = (schedule.plan().blocks(), schedule.plan().offsets());
    let (mut standing, mut moved) = (scratch.words(memories.len()), scratch.words(blocks.len()));
    let is_stand_in = |name: &crate::trace::liveness::Residency| at(memories, name.block) == NONE;
    let mut count = 0;
    for (_, &offset) in schedule.names().iter().zip(offsets).filter(|(name, _)| is_stand_in(name)) {
        standing[count] = offset;
        count += 1;
    }
    sort::in_place(&mut standing, count);
    let mut top = 0u64;
    for (residency, (name, block)) in (0u32..).zip(schedule.names().iter().zip(blocks)) {
        let offset = at(offsets, residency);
        let below = standing.first(count).partition_point(|&stand_in| stand_in < offset) as u64;
        moved[residency] = offset.saturating_sub(alignment.saturating_mul(below));
        if !is_stand_in(name) {
            top = top.max(moved[residency].saturating_add(block.size));
        }
    }
    for (residency, _) in (0u32..).zip(schedule.names()).filter(|(_, name)| is_stand_in(name)) {
        moved[residency] = top;
        top = top.saturating_add(alignment);
    }
    let constraints = Constraints { alignment, ..Constraints::NONE };
    verify::verify(blocks, moved.into_slice(), &constraints, scratch.reborrow())
}
