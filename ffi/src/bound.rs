//! A lower bound on the peak of every placement: no placement of the blocks takes fewer bytes.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::place;

use crate::arguments::Arguments;
use crate::block::{self, sublet_block, sublet_constraints};
use crate::boundary::{boundary, tell};
use crate::error::sublet_error;
use crate::status::sublet_status;
use crate::workspace::{Needed, sublet_layout};

fn needed(n: usize) -> Needed {
    Needed::workspace(place::lower_bound_workspace(n)).and::<Block>(n)
}

/// Tells in `layout` the workspace that sublet_lower_bound needs for `block_count` blocks. Its size is linear in the
/// number of blocks.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lower_bound_workspace(
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let n = arguments.count(block_count)?;
        Ok(needed(n))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes to `lower_bound` a lower bound, in bytes, on the peak (the highest end of a block) of every placement of
/// `blocks`. The bound is at least the max load, the most bytes that are alive at one step, and equals the max load
/// where there are neither alignments nor pins. `constraints` may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lower_bound(
    blocks: *const sublet_block,
    block_count: usize,
    constraints: *const sublet_constraints,
    workspace: *mut c_void,
    workspace_size: usize,
    lower_bound: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, constraints, mut room, lower_bound) = unsafe {
            (
                arguments.input(blocks, block_count)?,
                arguments.params(constraints)?,
                arguments.workspace(workspace, workspace_size, needed(block_count))?,
                arguments.result(lower_bound)?,
            )
        };
        let blocks = block::blocks(&mut room, blocks)?;
        let scratch = room.workspace(place::lower_bound_workspace(block_count));
        lower_bound.set(place::lower_bound(blocks, &constraints.into(), scratch)?);
        Ok(())
    })
}
