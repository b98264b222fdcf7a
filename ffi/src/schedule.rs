//! The proof that a rewritten trace computes what the original computes, and where its blocks lie.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::simulate::Timing;
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Operator, Recorded, Row};
use sublet_core::verify::schedule::{self, Room};

use crate::arguments::{Arguments, Params, plain};
use crate::block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::operator::{self, sublet_operator};
use crate::simulate::{sublet_device, sublet_run, sublet_timing};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, sublet_row};
use crate::verify::sublet_certificate;
use crate::workspace::{Needed, sublet_layout};

/// What a rewritten trace and its plan have to respect. NULL, or all 0 but `struct_size`, is an iteration that repeats,
/// without alignment and capacity.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_schedule_params {
    /// sizeof(sublet_schedule_params).
    pub struct_size: u32,
    /// 0: iterations repeat, so that persistent blocks may be on the host at both ends. 1: it runs once.
    pub once: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 and 1 are no constraint.
    pub alignment: u64,
    /// Where the arena ends, in bytes; 0 is no constraint.
    pub capacity: u64,
}

plain!(sublet_schedule_params);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_schedule_params {}

pub(crate) fn needed(original: usize, operators: usize, rewritten: usize, blocks: usize, residencies: usize) -> Needed {
    Needed::workspace(schedule::workspace(original, blocks, residencies))
        .and::<Row>(original)
        .and::<Operator>(operators)
        .and::<Row>(rewritten)
        .and::<Timing>(rewritten)
        .and::<Block>(residencies)
        .and::<Residency>(residencies)
}

/// The workspace that sublet_verify_schedule needs for so many rows, operators and block numbers, and for `residency_count`
/// mallocs in the rewritten trace. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify_schedule_workspace(
    original_count: usize,
    operator_count: usize,
    rewritten_count: usize,
    block_count: usize,
    residency_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (original, operators) = (arguments.count(original_count)?, arguments.count(operator_count)?);
        let (rewritten, blocks) = (arguments.count(rewritten_count)?, arguments.count(block_count)?);
        let residencies = arguments.count(residency_count)?;
        Ok(needed(original, operators, rewritten, blocks, residencies))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Proves that `rewritten` computes what `original` computes, and that `offsets`, one for each of its mallocs, is a
/// valid plan for its residencies; and times it.
///
/// Every read sees the value that it saw in the original, blocks are accessed and copied only while they are on the
/// device, and persistent ones (allocated at time 0, never freed) end where the next iteration needs them. The statuses
/// SUBLET_STATUS_ROW_... name the first row that breaks a rule, SUBLET_STATUS_PLAN_... the broken constraint of a plan.
///
/// `operators` tells what is known of the operators of `original`, by their numbers: whether they may run again and work
/// in place, and which are ReLUs; of those beyond its end, all with `operator_count` 0, nothing is. `original` uses
/// block numbers below `block_count`; in `rewritten` the number `block_count` + b is the mask of block b.
///
/// `device` and `params` may be NULL; so may `timings`, one for each row of `rewritten`, `run` and `certificate`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_verify_schedule(
    original: *const sublet_row,
    original_count: usize,
    operators: *const sublet_operator,
    operator_count: usize,
    rewritten: *const sublet_row,
    rewritten_count: usize,
    block_count: usize,
    offsets: *const u64,
    residency_count: usize,
    device: *const sublet_device,
    params: *const sublet_schedule_params,
    workspace: *mut c_void,
    workspace_size: usize,
    timings: *mut sublet_timing,
    run: *mut sublet_run,
    certificate: *mut sublet_certificate,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (original, operators, rewritten, offsets, device, params, mut room, timings, run, certificate) = unsafe {
            let original = arguments.input(original, original_count)?;
            let operators = arguments.input(operators, operator_count)?;
            let rewritten = arguments.input(rewritten, rewritten_count)?;
            arguments.count(block_count)?;
            let offsets = arguments.input(offsets, residency_count)?;
            let (device, params) = (arguments.params(device)?.device(9)?, arguments.params(params)?);
            let needed = needed(original_count, operator_count, rewritten_count, block_count, residency_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let timings = arguments.output_if_wanted(timings, rewritten_count)?;
            let (run, certificate) = (arguments.report_if_wanted(run)?, arguments.report_if_wanted(certificate)?);
            (original, operators, rewritten, offsets, device, params, room, timings, run, certificate)
        };
        if params.once > 1 {
            return Err(Failure::new(S::UnknownValue, 10, 0, params.once.into()));
        }
        let (original, rewritten) = (trace::rows(&mut room, original)?, trace::rows(&mut room, rewritten)?);
        let operators = operator::operators(&mut room, operators)?;
        let residencies = liveness::residencies(rewritten);
        if residencies != residency_count {
            return Err(Failure::new(S::BufferTooSmall, 7, residencies as u64, residency_count as u64));
        }
        let own = Room {
            timings: room.fill(rewritten_count, Timing::default()),
            blocks: room.fill(residencies, Block::default()),
            names: room.fill(residencies, Residency::default()),
        };
        let verified = schedule::schedule(
            &Recorded { rows: original, operators, blocks: block_count },
            rewritten,
            offsets,
            (&device, params.once == 0),
            &block::constraints(params.alignment, params.capacity),
            room.workspace(schedule::workspace(original_count, block_count, residencies)),
            own,
        )?;
        trace::copy(verified.timings(), timings);
        run.set((*verified.run()).into());
        certificate.set(verified.plan().into());
        Ok(())
    })
}
