//! Rewrites the recorded iteration of a network so that it takes less memory, by swapping, recomputation and other
//! means, and gives its blocks offsets.

use core::ffi::c_void;
use core::mem::offset_of;

use sublet_core::Block;
use sublet_core::rewrite;
use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::{Event, Op, Operator, Row};
use sublet_core::verify::VerifiedSchedule;

use crate::arguments::{Arguments, counted, params, plain};
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::iteration::{self, Counts, Trace, none, sublet_trace};
use crate::lifetimes::sublet_residency;
use crate::simulate::{sublet_run, sublet_timing};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, sublet_row};
use crate::workspace::{Needed, sublet_layout};

/// The options of sublet_fit beside its limit. NULL, or all 0 but `struct_size`, is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_fit_params {
    /// Set this to sizeof(sublet_fit_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Set this to 0.
    pub reserved: u32,
    /// Blocks of fewer bytes than this are not swapped. 0: blocks are not swapped if more than half of the time to copy
    /// them to the host is latency, the `out_latency` of the sublet_device.
    pub least_bytes: u64,
    /// The seed of all random choices: the same seed gives the same result on every machine. 0 stands for the seed 1.
    pub seed: u64,
    /// A budget for each search for swaps: how many operators, and idle times of blocks, it may look at for each row of
    /// the trace. An idle time is the time between two uses of a block. 0 is 5,000: with it a search takes about a
    /// second for 5,000 rows, and sublet_fit, which makes many searches, several times as long. Rows beyond the first
    /// 10,000 do not add to the budget.
    pub work: u64,
    /// The means to save memory that may be used: values of sublet_means, added up. 0 is all. If
    /// the trace does not describe all operators of its rows, 0 also leaves out SUBLET_MEANS_RECOMPUTE, because an
    /// operator that is not described may give random results.
    pub means: u32,
    /// 1: persistent blocks, such as weights, all stay on the device, each at one offset, because their memory belongs
    /// to somebody else. 0: they may be swapped. Then a persistent block may begin on the host, and may end an
    /// iteration at another offset than the one at which it begins: a caller that follows the rows without
    /// sublet_runtime.h has to carry such blocks to the next iteration itself; the comment on sublet_fit says how.
    pub keep_persistent: u32,
    /// Every offset is a multiple of this power of two, in bytes, and sizes are rounded up to it; 0 is 256, which the
    /// runtime needs.
    pub alignment: u64,
}

/// The means to save memory that a fit can use. Several are allowed by adding their values.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_means {
    /// Blocks are copied to the host and back while no operator uses them.
    Swap = 1,
    /// Values are freed, and recomputed before their next use by the operators that computed them. Operators with
    /// SUBLET_OPERATOR_ONCE are never recomputed.
    Recompute = 2,
    /// Outputs are written over inputs of the same size that nobody reads later, by operators with
    /// SUBLET_OPERATOR_IN_PLACE.
    InPlace = 4,
    /// Where only a ReLU's gradient reads a value, a bit mask is kept in place of the value. For this, the kinds of the
    /// operators must say which are ReLUs and which are gradients of ReLUs.
    Relu = 8,
    /// Operators with SUBLET_OPERATOR_UNORDERED may run in another order than that of the trace.
    Order = 32,
}

/// How many entries the arrays of a sublet_fit_output must have room for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_fit_lengths {
    /// How many entries `rows` of the sublet_fit_output must have room for, and `timings` too.
    pub rows: usize,
    /// How many entries `offsets`, `blocks` and `names` of the sublet_fit_output must have room for: one for each time
    /// that a block of the rewritten trace is on the device.
    pub residencies: usize,
}

/// The arrays to which sublet_fit writes a rewritten trace. `rows` and `offsets`, with `row_count` and
/// `residency_count` of the sublet_fitted, make up a sublet_schedule.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_fit_output {
    /// Set this to sizeof(sublet_fit_output): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// Receives the rows of the rewritten trace, in the order of time.
    pub rows: *mut sublet_row,
    /// Receives when each row of the rewritten trace happens: entry i is about row i. May be NULL.
    pub timings: *mut sublet_timing,
    /// How many rows there is room for in `rows`, and in `timings` unless it is NULL.
    pub row_capacity: usize,
    /// Receives the offset of each block in the arena, in bytes: one for each malloc row of the rewritten trace, in the
    /// order of these rows.
    pub offsets: *mut u64,
    /// Receives the live ranges of blocks on the device, one for each malloc row of the rewritten trace, in the order
    /// of these rows. Each live range is a sublet_block of its own. `start` is the index of its malloc row in `rows`,
    /// and `end` the index of its free row. Without a free, `end` is the number of rows. May be NULL.
    pub blocks: *mut sublet_block,
    /// Receives, for each entry of `blocks`, the number of the block in the trace, and how often that block was on the
    /// device before. May be NULL.
    pub names: *mut sublet_residency,
    /// How many live ranges of blocks on the device there is room for in `offsets`, and in each of `blocks` and `names`
    /// that is not NULL.
    pub residency_capacity: usize,
}

/// What sublet_fit has found: how long the rewritten trace is, how much memory it takes, and how it runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_fitted {
    /// Set this to sizeof(sublet_fitted): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// How many rows the rewritten trace has: as many entries of `rows` and `timings` of the sublet_fit_output were
    /// written.
    pub row_count: usize,
    /// How many live ranges of blocks on the device the rewritten trace has. Each has an entry in `blocks`, `names` and
    /// `offsets` of the sublet_fit_output.
    pub residency_count: usize,
    /// The size of the arena in bytes, at most the limit. The arena is the range of memory in which all blocks lie.
    pub peak: u64,
    /// The max load of the original trace: the most bytes of blocks that are on the device at once. Unlike `peak`, it
    /// counts no unused bytes between blocks.
    pub original_peak: u64,
    /// How the rewritten trace runs in the simulation. This is the last field, so that later versions can add fields to
    /// this struct and to sublet_run.
    pub run: sublet_run,
}

plain!(sublet_fit_params, sublet_fit_lengths, sublet_fit_output, sublet_fitted);
params! {
    sublet_fit_params { struct_size, reserved, least_bytes, seed, work, means, keep_persistent, alignment }
    sublet_fit_output { struct_size, reserved, rows, timings, row_capacity, offsets, blocks, names, residency_capacity }
    sublet_fitted { struct_size, reserved, row_count, residency_count, peak, original_peak, run }
}

impl sublet_fit_params {
    /// Unless `told` of the operators, nothing is recomputed that `means` does not ask for.
    fn options(&self, limit: u64, device: Device, told: bool, position: u32) -> Result<Options, Failure> {
        for (value, most) in [(self.reserved, 0), (self.keep_persistent, 1)] {
            if value > most {
                return Err(Failure::new(S::UnknownValue, position, 0, value.into()));
            }
        }
        let asked = Using::of_bits(self.means).ok_or(Failure::new(S::UnknownValue, position, 0, self.means.into()))?;
        let using = match self.means {
            0 if told => Using::ALL,
            0 => Using::ALL.without(Means::Recompute),
            _ => asked,
        };
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let usual = Options::new(limit, device);
        Ok(Options {
            using,
            least_bytes: or(self.least_bytes, usual.least_bytes),
            keep_persistent: self.keep_persistent == 1,
            seed: or(self.seed, usual.seed),
            work: or(self.work, usual.work),
            alignment: or(self.alignment, usual.alignment),
            ..usual
        })
    }
}

/// Tells in `lengths` how many entries the arrays of a sublet_fit_output must have room for, so that sublet_fit can
/// write any rewritten form of `trace` to them.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit_lengths_of(
    trace: *const sublet_trace,
    lengths: *mut sublet_fit_lengths,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (given, lengths) = unsafe { (Trace::new(arguments, trace)?, arguments.result(lengths)?) };
        let (mut accesses, mut mallocs) = (0, 0);
        for i in 0..given.rows.len() {
            let event = trace::row(given.rows, i)?.event;
            accesses += usize::from(event.is_access());
            mallocs += usize::from(event == Event::Malloc);
        }
        let needed = Lengths::of_counts(given.rows.len(), accesses, mallocs, given.blocks);
        lengths.set(sublet_fit_lengths { rows: needed.timings, residencies: needed.residencies });
        Ok(())
    })
}

fn needed(trace: Counts, (rows, residencies): (usize, usize)) -> Needed {
    let lengths = Lengths::for_result(trace.rows, rows, residencies);
    Needed::workspace(fit::workspace(trace.rows, trace.blocks, lengths))
        .and::<Row>(trace.rows)
        .and::<Operator>(trace.operators)
        .and::<Row>(lengths.rows)
        .and::<Timing>(lengths.timings)
        .and::<Block>(lengths.residencies)
        .and::<Residency>(lengths.residencies)
        .and::<u64>(lengths.residencies)
}

/// Tells in `layout` how large a workspace sublet_fit needs. Of the arguments only the counts and capacities are read.
/// The size of the workspace is linear in them, except for one part: the memory of an exact search for offsets. This
/// part grows with the square of the number of live ranges of blocks on the device, and stays the same from 6,000 live
/// ranges on.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit_workspace(
    trace: *const sublet_trace,
    output: *const sublet_fit_output,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        // SAFETY: the header asks for structs that are as long as they say.
        let (trace, output) = unsafe { (iteration::counts(arguments, trace)?, arguments.given(output)?) };
        Ok(needed(trace, output.capacities(1)?))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

impl sublet_fit_output {
    fn capacities(&self, position: u32) -> Result<(usize, usize), Failure> {
        none(self.reserved, position)?;
        Ok((counted(self.row_capacity, position)?, counted(self.residency_capacity, position)?))
    }
}

struct Written<'a> {
    rows: &'a mut [sublet_row],
    timings: &'a mut [sublet_timing],
    offsets: &'a mut [u64],
    blocks: &'a mut [sublet_block],
    names: &'a mut [sublet_residency],
}

impl<'a> Written<'a> {
    /// For `'a` the arrays can be written, and nobody else uses them.
    unsafe fn new(arguments: &mut Arguments<'a>, given: &sublet_fit_output, at: u32) -> Result<Self, Failure> {
        let (rows, n) = given.capacities(at)?;
        // SAFETY: as promised.
        unsafe {
            let field = offset_of!(sublet_fit_output, timings);
            let timings = arguments.field(at, field, |a| a.output_if_wanted(given.timings, rows, at))?;
            let field = offset_of!(sublet_fit_output, rows);
            let rows = arguments.field(at, field, |a| a.output_of(given.rows, rows, at))?;
            let field = offset_of!(sublet_fit_output, offsets);
            let offsets = arguments.field(at, field, |a| a.output_of(given.offsets, n, at))?;
            let field = offset_of!(sublet_fit_output, blocks);
            let blocks = arguments.field(at, field, |a| a.output_if_wanted(given.blocks, n, at))?;
            let field = offset_of!(sublet_fit_output, names);
            let names = arguments.field(at, field, |a| a.output_if_wanted(given.names, n, at))?;
            Ok(Self { rows, timings, offsets, blocks, names })
        }
    }

    fn copy(self, schedule: &VerifiedSchedule<'_>) {
        let plan = schedule.plan();
        trace::copy(schedule.rows(), self.rows);
        trace::copy(schedule.timings(), self.timings);
        trace::copy(plan.offsets(), self.offsets);
        trace::copy(plan.blocks(), self.blocks);
        trace::copy(schedule.names(), self.names);
    }
}

/// Rewrites a trace so that all its blocks fit into `limit` bytes. Searches for a rewritten trace that takes little
/// time. To save memory, blocks may be swapped, and values may be recomputed, written over inputs that nobody reads
/// later, or replaced by bit masks. The blocks of the rewritten trace get offsets, and its time is simulated. The
/// result is verified as an iteration that repeats. A persistent block is one that `trace` allocates at time 0 and
/// never frees. If it begins on the host, its final value is on the host at the end. If it begins on the device, its
/// final value is on the device at the end, perhaps at another offset.
///
/// The runtime (sublet_runtime.h) carries persistent blocks from one iteration to the next. A caller that runs the
/// rewritten rows without the runtime has to carry these blocks itself, as examples/c/fit.c does:
/// - The rows before the first access and the first copy say where persistent blocks begin. A persistent block that is
///   allocated in these rows, and not freed again in them, begins on the device, with its value from before the
///   iteration, at the offset of its last malloc in these rows. Any other persistent block begins on the host.
/// - Before the first iteration the values are put where the blocks begin. They are put into the copies on the host
///   too: a block that begins on the device may be freed without a copy out, and later be copied in from the host.
/// - Between two iterations, a block that has ended at another offset than the one at which it begins is moved back.
///   All such blocks are copied out before any of them is copied in, since one may begin where another has ended. If
///   `keep_persistent` in `params` is 1, no block has moved.
///
/// `params` may be NULL. The arrays of `output` need room for at least as many entries as sublet_fit_lengths_of tells;
/// `fitted` tells how many were written.
///
/// SUBLET_STATUS_OVER_LIMIT: no schedule within the limit was found. The field `needed` of `error` is a larger limit,
/// in bytes, within which one was found. SUBLET_STATUS_IMPOSSIBLE_LIMIT: there is none; `needed` bytes have to be on the
/// device at once.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit(
    trace: *const sublet_trace,
    limit: u64,
    params: *const sublet_fit_params,
    workspace: *mut c_void,
    workspace_size: usize,
    output: *const sublet_fit_output,
    fitted: *mut sublet_fitted,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for structs and pointers that hold what their lengths say.
        let (trace, params, mut room, written, fitted) = unsafe {
            let trace = Trace::new(arguments, trace)?;
            arguments.skip();
            let params = arguments.params(params)?;
            let output = arguments.at(5, |a| a.given(output))?;
            let needed = needed(trace.counts(), output.capacities(5)?);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let written = Written::new(arguments, &output, 5)?;
            arguments.skip();
            (trace, params, room, written, arguments.report(fitted)?)
        };
        let recorded = trace.recorded(&mut room)?;
        let lengths = Lengths::of(recorded.rows, recorded.blocks);
        let room_for = [(lengths.timings, written.rows.len()), (lengths.residencies, written.offsets.len())];
        if let Some(&(needed, got)) = room_for.iter().find(|(needed, got)| got < needed) {
            return Err(Failure::new(S::BufferTooSmall, 5, needed as u64, got as u64));
        }
        let known = |op: Op| match op {
            Op::First(k) | Op::Rerun(k) => usize::try_from(k).is_ok_and(|k| k < recorded.operators.len()),
            Op::None => true,
        };
        let options = params.options(limit, trace.device, recorded.rows.iter().all(|r| known(r.op)), 2)?;
        let output = Output {
            rows: room.fill(lengths.rows, Row::default()),
            timings: room.fill(lengths.timings, Timing::default()),
            blocks: room.fill(lengths.residencies, Block::default()),
            names: room.fill(lengths.residencies, Residency::default()),
            offsets: room.fill(lengths.residencies, 0),
        };
        let scratch = room.workspace(fit::workspace(recorded.rows.len(), recorded.blocks, lengths));
        let found = fit::fit(&recorded, &options, scratch, output)?;
        let (schedule, plan) = (&found.schedule, found.schedule.plan());
        fitted.set(sublet_fitted {
            struct_size: 0,
            reserved: 0,
            row_count: schedule.rows().len(),
            residency_count: plan.blocks().len(),
            peak: plan.peak(),
            original_peak: found.original_peak,
            run: (*schedule.run()).into(),
        });
        written.copy(schedule);
        Ok(())
    })
}

fn bound_needed(trace: Counts) -> Needed {
    Needed::workspace(rewrite::least_load_workspace(trace.rows, trace.blocks)).and::<Row>(trace.rows)
}

/// Tells in `layout` how large a workspace sublet_load_without_overhead needs. Its size is linear in the counts of rows
/// and blocks of `trace`; only the counts of `trace` are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_load_without_overhead_workspace(
    trace: *const sublet_trace,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a struct that is as long as it says.
    let needed = |arguments: &mut Arguments<'_>| Ok(bound_needed(unsafe { iteration::counts(arguments, trace)? }));
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes to `load` a lower bound, in bytes, on the max load that swaps alone can reach without making the iteration
/// slower. The max load is the most bytes alive on the device at one step. Every schedule that saves memory by swaps
/// alone, and has a lower max load than this, takes longer than the original trace.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_load_without_overhead(
    trace: *const sublet_trace,
    workspace: *mut c_void,
    workspace_size: usize,
    load: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (trace, mut room, load) = unsafe {
            let trace = Trace::new(arguments, trace)?;
            let room = arguments.workspace(workspace, workspace_size, bound_needed(trace.counts()))?;
            (trace, room, arguments.result(load)?)
        };
        if !trace.device.is_sound() {
            return Err(Failure::of(S::Device));
        }
        let rows = trace::rows(&mut room, trace.rows)?;
        let scratch = room.workspace(rewrite::least_load_workspace(rows.len(), trace.blocks));
        load.set(rewrite::least_load(rows, trace.blocks, &trace.device, 0, scratch)?);
        Ok(())
    })
}
