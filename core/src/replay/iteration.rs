//! Turns a recorded iteration into blocks to plan.
//!
//! Problem: a [`Detector`] has recorded mallocs and frees, and the newest of them are one iteration. Any of these
//! events may be taken as its first, because a stream that repeats has no beginning. Which blocks are allocated and
//! freed within the iteration?
//!
//! Steps: where the caller does not mark iterations, the iteration begins right after the event that leaves the fewest
//! bytes live (of several such events the latest), so that little outlives it. Each free gives its block an end. Blocks
//! without an end outlive the iteration. Their requests are expected, but they get no place in the plan: a plan would
//! give the block of the next iteration the same address while the block of this one lives.
//!
//! Cost: O(events); scratch memory of one 32-bit index for each event.

use crate::table::Table;
use crate::trace::Detector;
use crate::{Block, Workspace, WorkspaceLen};

pub(super) struct Iteration {
    /// Freed within the iteration; first in the slice that [`blocks`] fills.
    pub(super) planned: usize,
    pub(super) requests: usize,
}

pub(super) const fn workspace(events: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: events }
}

pub(super) fn best_cut(detector: &Detector<'_>, len: u32) -> u32 {
    (0..len).min_by_key(|&age| detector.event(age).load).unwrap_or(0)
}

pub(super) fn blocks(
    detector: &Detector<'_>,
    len: u32,
    cut: u32,
    alignment: u64,
    mut scratch: Workspace<'_>,
    blocks: &mut [Block],
) -> Iteration {
    // The event of each step, the first after the cut being step 0.
    let event = |step: u32| detector.event(if step < cut { cut - 1 - step } else { cut + len - 1 - step });
    let mut ends = scratch.indices(usize::try_from(len).unwrap_or(0));
    let mut planned = 0;
    for step in 0..len {
        let e = event(step);
        if !e.is_malloc
            && let Some(start) = step.checked_sub(e.distance).filter(|_| e.distance > 0)
        {
            ends[start] = step;
            planned += 1;
        }
    }
    let mut blocks = Table::new(blocks);
    let (mut inside, mut outside) = (0, planned);
    for (step, e) in (0..len).map(|step| (step, event(step))).filter(|(_, e)| e.is_malloc) {
        let size = e.bytes.checked_next_multiple_of(alignment).unwrap_or(e.bytes);
        if ends[step] > 0 {
            blocks[inside] = Block::new(step, ends[step], size);
            inside += 1;
        } else {
            blocks[outside] = Block::new(step, len, size);
            outside += 1;
        }
    }
    Iteration { planned: position(inside), requests: position(outside) }
}

fn position(i: u32) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}
