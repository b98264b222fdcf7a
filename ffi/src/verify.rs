//! Proves that a plan, an offset for each block, is valid.

use core::ffi::c_void;

use sublet_core::{Block, VerifiedPlan, verify};

use crate::arguments::{Arguments, params, plain};
use crate::block::{self, sublet_block, sublet_constraints};
use crate::boundary::{boundary, tell};
use crate::error::sublet_error;
use crate::status::sublet_status;
use crate::workspace::{Needed, sublet_layout};

/// What sublet_verify finds of a valid plan: the size of its arena, and a lower bound on that size.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_certificate {
    /// Set this to sizeof(sublet_certificate): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved for later versions; sublet_verify writes 0 here.
    pub reserved: u32,
    /// The bytes that the arena takes: the highest end of a block.
    pub peak: u64,
    /// The most bytes of blocks that are alive at one step: no plan has a lower peak, so that a plan whose peak equals
    /// this is optimal.
    pub max_load: u64,
}

plain!(sublet_certificate);
params! {
    sublet_certificate { struct_size, reserved, peak, max_load }
}

impl From<&VerifiedPlan<'_>> for sublet_certificate {
    fn from(plan: &VerifiedPlan<'_>) -> Self {
        Self { struct_size: 0, reserved: 0, peak: plan.peak(), max_load: plan.max_load() }
    }
}

fn needed(n: usize) -> Needed {
    Needed::workspace(verify::workspace(n)).and::<Block>(n)
}

/// Tells in `layout` the workspace that sublet_verify needs for `block_count` blocks. Its size is linear in the number
/// of blocks.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify_workspace(
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

/// Proves that `offsets`, one for each block, is a valid plan. A plan is valid if blocks that are alive together share
/// no address, and all constraints hold. For an invalid plan, the status is one of SUBLET_STATUS_PLAN_..., and `error`
/// says which constraint the plan breaks. With the planners the proof shares only the code that checks blocks, indexes
/// tables and sorts indices.
///
/// `constraints` may be NULL: then the plan as a whole has no constraints. If the plan is valid, its peak and max load
/// are written to `certificate`, unless that is NULL. O(n log n) for n blocks.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify(
    blocks: *const sublet_block,
    block_count: usize,
    offsets: *const u64,
    constraints: *const sublet_constraints,
    workspace: *mut c_void,
    workspace_size: usize,
    certificate: *mut sublet_certificate,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, offsets, constraints, mut room, certificate) = unsafe {
            (
                arguments.input(blocks, block_count)?,
                arguments.input_of(offsets, block_count, 1)?,
                arguments.params(constraints)?,
                arguments.workspace(workspace, workspace_size, needed(block_count))?,
                arguments.report_if_wanted(certificate)?,
            )
        };
        let blocks = block::blocks(&mut room, blocks)?;
        let scratch = room.workspace(verify::workspace(block_count));
        let plan = verify::verify(blocks, offsets, &constraints.into(), scratch)?;
        certificate.set((&plan).into());
        Ok(())
    })
}
