//! Records an iteration: the caller reports mallocs, frees, reads and writes, and gets the rows of a trace.

use core::ffi::c_void;

use sublet_core::trace::Row;
use sublet_core::trace::{OUTSIDE, Recorder};

use crate::arguments::Arguments;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::handle::{self, Marked, handles};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{copy, sublet_row};
use crate::workspace::{Needed, sublet_layout};

/// The number that sublet_recorder_malloc gives to a block outside of the plan: one that is allocated between
/// sublet_recorder_interrupt and sublet_recorder_resume. Events of such a block are ignored.
pub const SUBLET_OUTSIDE: u32 = u32::MAX;

const _: () = assert!(SUBLET_OUTSIDE == OUTSIDE);

/// A recorder: writes what happens in an iteration as rows of a trace. Only one thread at a time may use a recorder.
pub struct sublet_recorder(Rows);

handles!(sublet_recorder: b"recorder");

type Rows = Recorder<&'static mut [Row]>;

fn needed(rows: usize) -> Needed {
    Needed::NOTHING.and::<Marked<sublet_recorder>>(1).and::<Row>(rows)
}

/// Tells in `layout` the workspace that a recorder with room for `row_capacity` rows needs.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_workspace(
    row_capacity: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let rows = arguments.count(row_capacity)?;
        Ok(needed(rows))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Makes a recorder that has no rows yet, and room for `row_capacity` rows. The recorder lives in `workspace`: keep
/// that memory as long as you use the recorder. There is nothing to destroy.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_create(
    row_capacity: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    recorder: *mut *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let needed = needed(arguments.count(row_capacity)?);
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (mut room, to) =
            unsafe { (arguments.workspace(workspace, workspace_size, needed)?, arguments.result(recorder)?) };
        let place = room.uninit();
        handle::put(place, sublet_recorder(Recorder::new(room.fill(row_capacity, Row::default()))), to)
    })
}

/// Makes a larger recorder after a call has failed with SUBLET_STATUS_RECORD_FULL, and copies to it what `recorder` has
/// recorded. `larger` receives the pointer to the new recorder. The new recorder has room for `row_capacity` rows in
/// all, including the copied ones, and lives in `workspace`. The call that failed may then be repeated with the new
/// recorder. The old recorder's memory is the caller's again.
///
/// SUBLET_STATUS_RECORD_FULL: `row_capacity` is too small for the recorded rows and one more.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_hand_over(
    recorder: *mut sublet_recorder,
    row_capacity: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    larger: *mut *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a recorder that lives, and for pointers that hold what their lengths say.
        let recorder = unsafe { arguments.handle(recorder)? };
        arguments.holds(0, recorder.0.rows())?;
        let needed = needed(arguments.count(row_capacity)?);
        // SAFETY: as above.
        let (mut room, to) =
            unsafe { (arguments.workspace(workspace, workspace_size, needed)?, arguments.result(larger)?) };
        let place = room.uninit();
        handle::put(place, sublet_recorder(recorder.0.hand_over(room.fill(row_capacity, Row::default()))?), to)
    })
}

/// A recorder's memory is still lent, and nobody else uses it. `error` is NULL or can be written.
unsafe fn with(
    recorder: *mut sublet_recorder,
    error: *mut sublet_error,
    body: impl FnOnce(&mut Rows) -> Result<(), sublet_core::Error>,
) -> sublet_status {
    // SAFETY: as promised.
    boundary(error, |arguments| Ok(body(&mut unsafe { arguments.handle(recorder)? }.0)?))
}

/// Records that a block of `bytes` bytes is allocated; `block` receives the block's number, from 0. Between
/// sublet_recorder_interrupt and sublet_recorder_resume the block is not recorded: `block` receives SUBLET_OUTSIDE.
/// `time_ns` is the time of the malloc in ns, and never less than that of the row before.
///
/// After these statuses nothing is recorded. SUBLET_STATUS_RECORD_FULL: there is no room for another row.
/// SUBLET_STATUS_ROW_ZERO_SIZE: `bytes` is 0. SUBLET_STATUS_ROW_TIME_BACKWARDS: `time_ns` is less than the time of the
/// row before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_malloc(
    recorder: *mut sublet_recorder,
    time_ns: u64,
    bytes: u64,
    block: *mut u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a recorder that lives, and for pointers that hold what they are to hold.
        let recorder = unsafe { arguments.handle(recorder)? };
        arguments.skip();
        arguments.skip();
        // SAFETY: as above.
        let to = unsafe { arguments.result(block)? };
        to.set(recorder.0.malloc(time_ns, bytes)?);
        Ok(())
    })
}

/// Records that the block of number `block` is freed, at `time_ns`, in ns. This call does not check that the block is
/// alive: a second free is recorded, and so is a read or a write after a free. The functions that take the rows refuse
/// such rows, with SUBLET_STATUS_ROW_FREE_WITHOUT_MALLOC or SUBLET_STATUS_ROW_ACCESS_WITHOUT_MALLOC. If `block` is
/// SUBLET_OUTSIDE, nothing is recorded.
///
/// After these statuses nothing is recorded. SUBLET_STATUS_RECORD_FULL: there is no room for another row.
/// SUBLET_STATUS_ROW_UNKNOWN_BLOCK: no block has this number. SUBLET_STATUS_ROW_TIME_BACKWARDS: `time_ns` is less than
/// the time of the row before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_free(
    recorder: *mut sublet_recorder,
    time_ns: u64,
    block: u32,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, |r| r.free(time_ns, block)) }
}

/// Records that the operator which sublet_recorder_begin_op has begun reads the block of number `block`, at `time_ns`,
/// in ns. If no operator has begun, or the latest has ended, the row belongs to no operator. This call does not check
/// that the block is alive; the functions that take the rows do. If `block` is SUBLET_OUTSIDE, nothing is recorded.
///
/// After these statuses nothing is recorded. SUBLET_STATUS_RECORD_FULL: there is no room for another row.
/// SUBLET_STATUS_ROW_UNKNOWN_BLOCK: no block has this number. SUBLET_STATUS_ROW_TIME_BACKWARDS: `time_ns` is less than
/// the time of the row before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_read(
    recorder: *mut sublet_recorder,
    time_ns: u64,
    block: u32,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, |r| r.read(time_ns, block)) }
}

/// Records that the operator which sublet_recorder_begin_op has begun writes the block of number `block`, at `time_ns`,
/// in ns. If no operator has begun, or the latest has ended, the row belongs to no operator. This call does not check
/// that the block is alive; the functions that take the rows do. If `block` is SUBLET_OUTSIDE, nothing is recorded.
///
/// After these statuses nothing is recorded. SUBLET_STATUS_RECORD_FULL: there is no room for another row.
/// SUBLET_STATUS_ROW_UNKNOWN_BLOCK: no block has this number. SUBLET_STATUS_ROW_TIME_BACKWARDS: `time_ns` is less than
/// the time of the row before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_write(
    recorder: *mut sublet_recorder,
    time_ns: u64,
    block: u32,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, |r| r.write(time_ns, block)) }
}

/// Begins the next operator, and ends the one before if it has not ended. Operators are numbered from 0, in the order
/// of these calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_begin_op(
    recorder: *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    let body = |r: &mut Rows| {
        r.begin_op();
        Ok(())
    };
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, body) }
}

/// Ends the current operator: rows that are recorded from here on belong to no operator, until another begins.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_end_op(
    recorder: *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    let body = |r: &mut Rows| {
        r.end_op();
        Ok(())
    };
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, body) }
}

/// From here on until sublet_recorder_resume, blocks that are allocated are not recorded, and so are outside of the
/// plan: all of them get the number SUBLET_OUTSIDE. Interruptions nest: each needs a sublet_recorder_resume of its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_interrupt(
    recorder: *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    let body = |r: &mut Rows| {
        r.interrupt();
        Ok(())
    };
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, body) }
}

/// Undoes one sublet_recorder_interrupt. Once all of them are undone, blocks are recorded again. Without an
/// interruption it does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_resume(
    recorder: *mut sublet_recorder,
    error: *mut sublet_error,
) -> sublet_status {
    let body = |r: &mut Rows| {
        r.resume();
        Ok(())
    };
    // SAFETY: the header asks for a recorder that lives.
    unsafe { with(recorder, error, body) }
}

/// Copies the rows that were recorded so far to `rows`. `row_count` receives how many rows there are, and `block_count`
/// how many block numbers they use; either may be NULL. With a `row_capacity` of 0 no rows are copied, and the call
/// succeeds.
///
/// SUBLET_STATUS_BUFFER_TOO_SMALL: `row_capacity` is neither 0 nor enough for all rows; nothing is copied.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_recorder_rows(
    recorder: *mut sublet_recorder,
    rows: *mut sublet_row,
    row_capacity: usize,
    row_count: *mut usize,
    block_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a recorder that lives, and for pointers that hold what their lengths say.
        let recorder = unsafe { arguments.handle(recorder)? };
        // SAFETY: as above.
        let (rows, row_count, block_count) = unsafe {
            let rows = arguments.output(rows, row_capacity)?;
            (rows, arguments.optional(row_count)?, arguments.optional(block_count)?)
        };
        let so_far = recorder.0.rows();
        if row_capacity > 0 && row_capacity < so_far.len() {
            return Err(Failure::new(S::BufferTooSmall, 1, so_far.len() as u64, row_capacity as u64));
        }
        copy(so_far, rows);
        row_count.set(so_far.len());
        block_count.set(usize::try_from(recorder.0.block_count()).unwrap_or(usize::MAX));
        Ok(())
    })
}
