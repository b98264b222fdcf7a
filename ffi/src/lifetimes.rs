//! Finds from the rows of a trace (its mallocs, frees, reads, writes and copies) when each block is on the device.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::trace::Row;
use sublet_core::trace::liveness::{self, Residency};

use crate::arguments::{Arguments, counted, plain};
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::iteration::{self, Counts, Trace, sublet_trace};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, copy, sublet_row};
use crate::workspace::{Needed, sublet_layout};

/// A residency: one of the live ranges that a block of a trace has on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_residency {
    /// The number of the block in the trace.
    pub block: u32,
    /// Which of the block's live ranges on the device this one is: 0 for the first, 1 for the next, and so on.
    pub ordinal: u32,
}

plain!(sublet_residency);

impl From<Residency> for sublet_residency {
    fn from(Residency { block, ordinal }: Residency) -> Self {
        Self { block, ordinal }
    }
}

/// Tells how many residencies (live ranges of blocks on the device) a trace has: one for each of its mallocs. The
/// arrays that sublet_lifetimes writes must have room for as many.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_residencies(
    rows: *const sublet_row,
    row_count: usize,
    residency_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (rows, residency_count) =
            unsafe { (arguments.input(rows, row_count)?, arguments.result(residency_count)?) };
        let mut residencies = 0;
        for i in 0..rows.len() {
            residencies += liveness::residencies(&[trace::row(rows, i)?]);
        }
        residency_count.set(residencies);
        Ok(())
    })
}

fn needed(trace: Counts, residencies: usize) -> Needed {
    Needed::workspace(liveness::workspace(trace.blocks))
        .and::<Row>(trace.rows)
        .and::<Block>(residencies)
        .and::<Residency>(residencies)
}

/// Tells in `layout` how large a workspace sublet_lifetimes needs if its outputs have room for `capacity` residencies:
/// live ranges of blocks on the device, one for each malloc row. Of `trace` only the counts are read. The size of the
/// workspace is linear in these counts and in `capacity`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lifetimes_workspace(
    trace: *const sublet_trace,
    capacity: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        // SAFETY: the header asks for a struct that is as long as it says.
        let trace = unsafe { iteration::counts(arguments, trace)? };
        Ok(needed(trace, arguments.count(capacity)?))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Finds the residencies of a trace: the live ranges of its blocks on the device, one for each malloc row, in the order
/// of these rows. `blocks` receives each residency as a block of its own. Its lifetime goes from the row of the malloc
/// up to the row of the free, which is not part of it; without a free, up to the end of the trace. `names`, which may
/// be NULL, receives for each residency the number of its block in the trace, and how many residencies that block had
/// before. O(rows).
///
/// `blocks` and `names` have room for `capacity` residencies; sublet_residencies tells how many there are. `count`
/// receives this number too, and may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lifetimes(
    trace: *const sublet_trace,
    workspace: *mut c_void,
    workspace_size: usize,
    blocks: *mut sublet_block,
    names: *mut sublet_residency,
    capacity: usize,
    count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (trace, mut room, blocks, names, count) = unsafe {
            let trace = Trace::new(arguments, trace)?;
            counted(capacity, 5)?;
            let room = arguments.workspace(workspace, workspace_size, needed(trace.counts(), capacity))?;
            let blocks = arguments.output_of(blocks, capacity, 5)?;
            let names = arguments.output_if_wanted(names, capacity, 5)?;
            arguments.skip();
            (trace, room, blocks, names, arguments.optional(count)?)
        };
        let rows = trace::rows(&mut room, trace.rows)?;
        let (to_blocks, to_names) = (room.fill(capacity, Block::default()), room.fill(capacity, Residency::default()));
        let residencies = liveness::residencies(rows);
        if residencies > capacity {
            return Err(Failure::new(S::BufferTooSmall, 3, residencies as u64, capacity as u64));
        }
        let scratch = room.workspace(liveness::workspace(trace.blocks));
        let found = liveness::lifetimes(rows, trace.blocks, scratch, to_blocks, to_names)?;
        copy(to_blocks.get(..found).unwrap_or_default(), blocks);
        copy(to_names.get(..found).unwrap_or_default(), names);
        count.set(found);
        Ok(())
    })
}
