//! Proves that a rewritten trace computes what the original computes, and that the offsets of its blocks are a valid
//! plan.

use core::ffi::c_void;

use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Operator, Recorded, Row};
use sublet_core::verify::{self, Room, VerifiedSchedule};
use sublet_core::{Block, Constraints};

use crate::arguments::{Arguments, params, plain};
use crate::block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::iteration::{self, Counts, Schedule, Trace, sublet_schedule, sublet_trace};
use crate::simulate::{sublet_run, sublet_timing};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace;
use crate::workspace::{self, Needed, sublet_layout};

/// The constraints that a rewritten trace and its plan have to keep. NULL, or all 0 but `struct_size`, is an iteration
/// that repeats, without alignment and capacity.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_schedule_params {
    /// Set this to sizeof(sublet_schedule_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// 0 if iterations repeat: persistent blocks, such as weights, may then begin and end on the host. 1 if the
    /// iteration runs once: they begin and end on the device.
    pub once: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// The most bytes that the arena may take; 0 is no constraint.
    pub capacity: u64,
}

/// What sublet_verify_schedule finds of a valid schedule: the size of the arena, and the simulated times and copies of
/// an iteration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_verified {
    /// Set this to sizeof(sublet_verified): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// The bytes that the arena takes: the highest end of a block.
    pub peak: u64,
    /// The most bytes of blocks that are alive at one step: no offsets for the schedule's rows have a lower peak.
    pub max_load: u64,
    /// The simulated time of the rewritten trace, and the bytes that it copies and holds. This is the last field, so
    /// that later versions can add fields to this struct and to sublet_run.
    pub run: sublet_run,
}

plain!(sublet_schedule_params, sublet_verified);
params! {
    sublet_schedule_params { struct_size, once, alignment, capacity }
    sublet_verified { struct_size, reserved, peak, max_load, run }
}

pub(crate) fn needed(trace: Counts, rewritten: usize, residencies: usize) -> Needed {
    Needed::workspace(verify::schedule_workspace(trace.rows, trace.blocks, residencies))
        .and::<Row>(trace.rows)
        .and::<Operator>(trace.operators)
        .and::<Row>(rewritten)
        .and::<Timing>(rewritten)
        .and::<Block>(residencies)
        .and::<Residency>(residencies)
}

/// `room` is what `recorded` has left of the memory that [`needed`] asks for.
pub(crate) fn verified<'a>(
    recorded: &Recorded<'_>,
    given: &Schedule<'a>,
    (device, repeats): (&Device, bool),
    constraints: &Constraints,
    mut room: workspace::Room<'a>,
) -> Result<VerifiedSchedule<'a>, Failure> {
    let rewritten = trace::rows(&mut room, given.rows)?;
    let (there, told) = (liveness::residencies(rewritten), given.offsets.len());
    if there != told {
        let status = if told < there { S::BufferTooSmall } else { S::LengthOverflow };
        return Err(Failure::new(status, given.position, there as u64, told as u64));
    }
    let own = Room {
        timings: room.fill(rewritten.len(), Timing::default()),
        blocks: room.fill(told, Block::default()),
        names: room.fill(told, Residency::default()),
    };
    let scratch = room.workspace(verify::schedule_workspace(recorded.rows.len(), recorded.blocks, told));
    Ok(verify::schedule(recorded, rewritten, given.offsets, (device, repeats), constraints, scratch, own)?)
}

/// Tells in `layout` how large a workspace sublet_verify_schedule needs. Its size is linear in the counts of rows,
/// operators, blocks and offsets; of `trace` and `schedule` only these counts are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify_schedule_workspace(
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        // SAFETY: the header asks for structs that are as long as they say.
        let (trace, (rewritten, residencies)) =
            unsafe { (iteration::counts(arguments, trace)?, iteration::schedule_counts(arguments, schedule)?) };
        Ok(needed(trace, rewritten, residencies))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Proves that `schedule` computes what `trace` computes, and that its offsets are a valid plan for the live ranges of
/// its blocks on the device; each malloc row begins such a live range. Also simulates the time of the schedule.
///
/// Every operator must read, in its first run, the values that it read in the original, and blocks must be accessed and
/// copied only while they are on the device. At the end, persistent blocks, such as weights, must be on the device or
/// on the host, wherever the next iteration needs them. On the device, such a block may end at another offset than the
/// one at which it begins. A caller that follows the rows then has to move it back; the comment on sublet_fit says how.
///
/// The statuses that begin with SUBLET_STATUS_ROW_ name the first row of `schedule` that breaks a rule;
/// SUBLET_STATUS_ROW_NOT_RECORDED names a row of `trace`. Those that begin with SUBLET_STATUS_PLAN_ say which
/// constraint the offsets break; in them, block k is the live range that the k-th malloc row of `schedule` begins,
/// counted from 0. SUBLET_STATUS_BUFFER_TOO_SMALL: `schedule` has more or fewer offsets than malloc rows.
///
/// `params`, `timings` and `verified` may be NULL. `timings` has room for one entry for each row of `schedule`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify_schedule(
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    params: *const sublet_schedule_params,
    workspace: *mut c_void,
    workspace_size: usize,
    timings: *mut sublet_timing,
    verified: *mut sublet_verified,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for structs and pointers that hold what their lengths say.
        let (trace, schedule, params, mut room, timings, to) = unsafe {
            let (trace, schedule) = (Trace::new(arguments, trace)?, Schedule::new(arguments, schedule)?);
            let params = arguments.params(params)?;
            let needed = needed(trace.counts(), schedule.rows.len(), schedule.offsets.len());
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let timings = arguments.output_if_wanted(timings, schedule.rows.len(), 1)?;
            (trace, schedule, params, room, timings, arguments.report_if_wanted(verified)?)
        };
        if params.once > 1 {
            return Err(Failure::new(S::UnknownValue, 2, 0, params.once.into()));
        }
        let recorded = trace.recorded(&mut room)?;
        let constraints = block::constraints(params.alignment, params.capacity);
        let found = self::verified(&recorded, &schedule, (&trace.device, params.once == 0), &constraints, room)?;
        trace::copy(found.timings(), timings);
        let (plan, run) = (found.plan(), (*found.run()).into());
        to.set(sublet_verified { struct_size: 0, reserved: 0, peak: plan.peak(), max_load: plan.max_load(), run });
        Ok(())
    })
}
