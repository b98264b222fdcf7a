//! Simulates how long a trace takes that was rewritten to use less memory, with its copies and recomputations.

use core::ffi::c_void;

use sublet_core::simulate::{self, Run, Timing};
use sublet_core::trace::{Operator, Row};

use crate::arguments::{Arguments, params, plain};
use crate::boundary::{boundary, tell};
use crate::error::sublet_error;
use crate::iteration::{self, Counts, Schedule, Trace, sublet_schedule, sublet_trace};
use crate::status::sublet_status;
use crate::trace;
use crate::workspace::{Needed, sublet_layout};

/// When a row of a rewritten trace happens in the simulation, in ns from the start of the iteration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_timing {
    /// When compute, the queue of operators, reaches the row, in ns from the start of the iteration: when all operators
    /// before the row are done. If the row is the first access of an operator in its first run, the time that the
    /// operator takes before this access has passed then, too.
    pub reached: f64,
    /// When the row begins, in ns from the start of the iteration: at `reached`, or later if it has to wait for copies.
    pub begin: f64,
    /// When the row of the rewritten trace is done, in ns from the start of the iteration.
    pub end: f64,
}

/// The simulated time of a rewritten trace, and the bytes that it copies and holds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_run {
    /// Set this to sizeof(sublet_run): the library sees from it which fields the struct has in the caller's version.
    /// Where the sublet_run is a field of another struct, such as sublet_fitted, you need not set this: there the
    /// library writes it.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// When all operators and the copies in both directions are done, in ns from the start of the iteration.
    pub time_ns: f64,
    /// How long the original trace takes, before it was rewritten, in ns.
    pub original_ns: u64,
    /// How many bytes are copied between device and host, both ways together.
    pub swapped_bytes: u64,
    /// The most bytes of blocks that are on the device at once.
    pub peak_load: u64,
    /// The bytes of the blocks that are copied, each block counted once: what the host has to hold.
    pub host_bytes: u64,
    /// The time of all recomputed operators together, in ns.
    pub recomputed_ns: u64,
}

plain!(sublet_timing, sublet_run);
params! {
    sublet_run { struct_size, reserved, time_ns, original_ns, swapped_bytes, peak_load, host_bytes, recomputed_ns }
}

impl From<Timing> for sublet_timing {
    fn from(Timing { reached, begin, end }: Timing) -> Self {
        Self { reached, begin, end }
    }
}

impl From<Run> for sublet_run {
    fn from(Run { time_ns, original_ns, swapped_bytes, peak_load, host_bytes, recomputed_ns }: Run) -> Self {
        Self {
            struct_size: u32::try_from(size_of::<Self>()).unwrap_or(0),
            reserved: 0,
            time_ns,
            original_ns,
            swapped_bytes,
            peak_load,
            host_bytes,
            recomputed_ns,
        }
    }
}

fn needed(trace: Counts, rewritten: usize) -> Needed {
    Needed::workspace(simulate::workspace(trace.rows, trace.blocks))
        .and::<Row>(trace.rows)
        .and::<Operator>(trace.operators)
        .and::<Row>(rewritten)
        .and::<Timing>(rewritten)
}

/// Tells in `layout` how large a workspace sublet_simulate needs. Its size is linear in the counts of rows, operators
/// and blocks; of `trace` and `schedule` only these counts are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate_workspace(
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        // SAFETY: the header asks for structs that are as long as they say.
        let (trace, (rewritten, _)) =
            unsafe { (iteration::counts(arguments, trace)?, iteration::schedule_counts(arguments, schedule)?) };
        Ok(needed(trace, rewritten))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Simulates when each row of `schedule`, a rewritten form of `trace`, happens. There are three queues: operators,
/// copies to the host, and copies to the device. This call does not prove that the schedule is valid;
/// sublet_verify_schedule does. The schedule's offsets are not read.
///
/// `timings` has room for one entry for each row of `schedule`. `timings` and `run` may be NULL. Takes O(rows).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate(
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    workspace: *mut c_void,
    workspace_size: usize,
    timings: *mut sublet_timing,
    run: *mut sublet_run,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for structs and pointers that hold what their lengths say.
        let (trace, schedule, mut room, timings, run) = unsafe {
            let (trace, schedule) = (Trace::new(arguments, trace)?, Schedule::new(arguments, schedule)?);
            let needed = needed(trace.counts(), schedule.rows.len());
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let timings = arguments.output_if_wanted(timings, schedule.rows.len(), 1)?;
            (trace, schedule, room, timings, arguments.report_if_wanted(run)?)
        };
        let recorded = trace.recorded(&mut room)?;
        let rewritten = trace::rows(&mut room, schedule.rows)?;
        let times = room.fill(rewritten.len(), Timing::default());
        let scratch = room.workspace(simulate::workspace(recorded.rows.len(), recorded.blocks));
        let found = simulate::simulate(&recorded, rewritten, &trace.device, scratch, times)?;
        trace::copy(times, timings);
        run.set(found.into());
        Ok(())
    })
}
