//! Follows a plan: each allocation request of an iteration, by its number, gets the offset that the plan has for it.

use core::ffi::c_void;

use sublet_core::replay::{self, Answer, Replay};
use sublet_core::{Block, WorkspaceLen, verify};

use crate::arguments::{Arguments, counted};
use crate::block::{self, sublet_block, sublet_constraints};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::handle::{self, Marked, handles};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{Needed, sublet_layout};

/// A replay: a plan that answers the allocation requests of an iteration, with a record of how far the current
/// iteration has followed the plan. Only one thread at a time may use a replay.
pub struct sublet_replay(Replay<'static>);

handles!(sublet_replay: b"replay  ");

/// In all, and the part used only to make and verify the replay.
fn needed(n: usize) -> (Needed, WorkspaceLen) {
    let scratch = verify::workspace(n).max(replay::scratch(n));
    let kept = replay::workspace(n);
    (Needed::workspace(scratch).and::<Marked<sublet_replay>>(1).and::<u64>(kept.words).and::<Block>(n), scratch)
}

/// Tells in `layout` the size and alignment of the workspace that sublet_replay_create needs for a plan of
/// `block_count` blocks. A replay answers the allocation requests of an iteration from a plan.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_replay_workspace(
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let n = arguments.count(block_count)?;
        Ok(needed(n).0)
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Makes a replay of a plan, which answers the allocation requests of an iteration. The plan is `blocks` and an offset
/// for each; it is verified first. The requests are expected in the order of the blocks' first steps and, at the same
/// step, in the order of `blocks`. `constraints` may be NULL; if it has an alignment, sizes are rounded up to it. The
/// replay lives in `workspace`: keep that memory as long as you use the replay. There is nothing to destroy. Blocks and
/// offsets are copied.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_replay_create(
    blocks: *const sublet_block,
    block_count: usize,
    offsets: *const u64,
    constraints: *const sublet_constraints,
    workspace: *mut c_void,
    workspace_size: usize,
    replay: *mut *mut sublet_replay,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let (needed, scratch) = needed(counted(block_count, 1)?);
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, offsets, constraints, mut room, to) = unsafe {
            (
                arguments.input(blocks, block_count)?,
                arguments.input_of(offsets, block_count, 1)?,
                sublet_core::Constraints::from(arguments.params(constraints)?),
                arguments.workspace(workspace, workspace_size, needed)?,
                arguments.result(replay)?,
            )
        };
        let place = room.uninit();
        let kept = room.fill(replay::workspace(block_count).words, 0);
        let blocks = block::blocks(&mut room, blocks)?;
        let mut scratch = room.workspace(scratch);
        let plan = verify::verify(blocks, offsets, &constraints, scratch.reborrow())?;
        let mut made = Replay::new(block_count, sublet_core::Workspace::new(kept, &mut []))?;
        made.follow(&plan, &[], constraints.alignment, 0, scratch)?;
        handle::put(place, sublet_replay(made), to)
    })
}

/// Answers the next allocation request of the iteration: `offset` receives the block's planned offset in the arena. The
/// request is taken for the one that the plan expects if it has no more bytes than that. If it has more, it is taken
/// for the first of the plan's next eight requests that has the same size, rounded up to the alignment; the plan then
/// leaves out the requests before that one. O(1) amortised over the iteration.
///
/// SUBLET_STATUS_NOT_PLANNED: the plan has no offset for this request, and the caller has to serve it elsewhere. Either
/// the request is none of the plan's next ones; the plan still expects the same request after this call. Or the place
/// of the planned request is taken by a block that should be freed by now; then the plan goes on to the request after
/// it. If more than 16 such blocks are alive at once, every place counts as taken, until sublet_replay_restart is
/// called while no block of the plan is alive.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_replay_malloc(
    replay: *mut sublet_replay,
    bytes: u64,
    offset: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a replay that lives, and for pointers that hold what they are to hold.
        let replay = unsafe { arguments.handle(replay)? };
        arguments.skip();
        // SAFETY: as above.
        let to = unsafe { arguments.result(offset)? };
        match replay.0.malloc(bytes, 0) {
            Answer::Placed(offset) => {
                to.set(offset);
                Ok(())
            }
            Answer::Outside | Answer::Missed => Err(Failure::new(S::NotPlanned, 1, 0, bytes)),
        }
    })
}

/// Frees the block at `offset`, an offset that sublet_replay_malloc returned. O(1).
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block of the plan begins at `offset`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_replay_free(
    replay: *mut sublet_replay,
    offset: u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a replay that lives.
        let replay = unsafe { arguments.handle(replay)? };
        replay.0.free(offset)?;
        Ok(())
    })
}

/// Ends the iteration and begins the next. `followed`, which may be NULL, receives 1 if the iteration that ended was
/// served in full as planned, else 0: then a new plan would fit better.
///
/// A block that is still alive keeps its place until it is freed: where a request would get any of its bytes,
/// sublet_replay_malloc fails with SUBLET_STATUS_NOT_PLANNED. That holds for the next iteration's request for the same
/// block too. So free a persistent block (one that the plan has from its first step to its last) before this call, and
/// request it again after this call, in its turn. It gets the same offset and keeps its content, since no other block
/// of the plan shares its bytes. Or leave persistent blocks out of the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_replay_restart(
    replay: *mut sublet_replay,
    followed: *mut i32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a replay that lives, and for pointers that hold what they are to hold.
        let replay = unsafe { arguments.handle(replay)? };
        // SAFETY: as above.
        let to = unsafe { arguments.optional(followed)? };
        to.set(i32::from(replay.0.restart()));
        Ok(())
    })
}
