//! A network into less memory: swap or recompute, then place.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
use sublet_core::rewrite::lower_bound;
use sublet_core::rewrite::means::swap::Policy;
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::{Event, Op, Operator, Recorded, Row};

use crate::arguments::{Arguments, Params, counted, plain};
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::operator::{self, sublet_operator};
use crate::simulate::{sublet_device, sublet_run, sublet_timing};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, sublet_residency, sublet_row};
use crate::workspace::{Needed, sublet_layout};

/// How it is decided what leaves the device, and when.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_policy {
    /// The one to use: a search, and every other policy but SUBLET_POLICY_LAYER; the best of all.
    Auto = 0,
    /// Duration of absence (Zhang et al. 2019).
    Doa = 1,
    /// Area of absence.
    Aoa = 2,
    /// Weighted duration of absence.
    Wdoa = 3,
    /// Submodular weighted duration of absence.
    Swdoa = 4,
    /// A mixture of the four, found by Bayesian optimisation.
    Bayes = 5,
    /// Out after the last forward reader, in one operator ahead (Jin et al. 2018).
    Layer = 6,
}

const POLICIES: [(sublet_policy, Policy); 7] = [
    (sublet_policy::Auto, Policy::Auto),
    (sublet_policy::Doa, Policy::Doa),
    (sublet_policy::Aoa, Policy::Aoa),
    (sublet_policy::Wdoa, Policy::Wdoa),
    (sublet_policy::Swdoa, Policy::Swdoa),
    (sublet_policy::Bayes, Policy::Bayes),
    (sublet_policy::Layer, Policy::Layer),
];

/// What a fit is asked for beside the limit. NULL, or all 0 but `struct_size`, is what to use.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_fit_params {
    /// sizeof(sublet_fit_params).
    pub struct_size: u32,
    /// A sublet_policy.
    pub policy: u32,
    /// Smaller blocks stay where they are, in bytes; 0 is 1 MiB.
    pub least_bytes: u64,
    /// Where random choices begin; the same seed gives the same result everywhere.
    pub seed: u64,
    /// How much the search may do for each row, in segments and gaps looked at; 0 is a second for 5,000 rows.
    pub work: u64,
    /// The means, of sublet_means; 0 is all but SUBLET_MEANS_LAYER, and without SUBLET_MEANS_RECOMPUTE where an operator of
    /// the rows is not told of, for it may be random.
    pub means: u32,
    /// 0.
    pub reserved: u32,
    /// Every block begins at a multiple of this, a power of two, and takes a multiple of it of the limit; 0 is 256, which
    /// the runtime asks for.
    pub alignment: u64,
}

/// A means of saving memory; several are added.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_means {
    /// Blocks leave for the host while they are idle.
    Swap = 1,
    /// Values are freed, and recomputed by the operators that made them, but not by those with SUBLET_OPERATOR_ONCE.
    Recompute = 2,
    /// Outputs are written over inputs that nobody needs any more, by operators of which it is said that they can.
    InPlace = 4,
    /// Of what a ReLU reads or writes a bit for each element is kept, where it is said which operators are ReLUs.
    Relu = 8,
    /// Out after the last forward reader, in one operator ahead (Jin et al. 2018): to compare with.
    Layer = 16,
}

const MEANS: [(sublet_means, Means); 5] = [
    (sublet_means::Swap, Means::Swap),
    (sublet_means::Recompute, Means::Recompute),
    (sublet_means::InPlace, Means::InPlace),
    (sublet_means::Relu, Means::Relu),
    (sublet_means::Layer, Means::Layer),
];

/// How long the outputs of a fit must be.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_fit_lengths {
    /// Rows and timings.
    pub rows: usize,
    /// Blocks, names and offsets.
    pub residencies: usize,
}

/// A network that fits.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_fitted {
    /// sizeof(sublet_fitted).
    pub struct_size: u32,
    /// The sublet_policy that made it.
    pub policy: u32,
    /// Rows of the rewritten trace, and timings.
    pub row_count: usize,
    /// Its residencies: blocks, names and offsets.
    pub residency_count: usize,
    /// The bytes that the arena takes, within the limit.
    pub peak: u64,
    /// The most bytes on the device in the original.
    pub original_peak: u64,
    /// How it runs. It is the last field here, so that both can grow.
    pub run: sublet_run,
}

plain!(sublet_fit_params, sublet_fit_lengths, sublet_fitted);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_fit_params {}
// SAFETY: as above.
unsafe impl Params for sublet_fitted {}

impl sublet_fit_params {
    /// The options, or what the argument at this position holds instead of a policy. `told` says whether all operators are
    /// known.
    fn options(&self, limit: u64, device: Device, told: bool, position: u32) -> Result<Options, Failure> {
        let known = POLICIES.iter().find(|&&(number, _)| number as u32 == self.policy);
        let unknown = Failure::new(S::UnknownValue, position, 0, self.policy.into());
        let policy = known.map(|&(_, policy)| policy).ok_or(unknown)?;
        let all = MEANS.iter().fold(0, |bits, &(number, _)| bits | number as u32);
        if self.means & !all != 0 || self.reserved != 0 {
            return Err(Failure::new(S::UnknownValue, position, 0, self.means.into()));
        }
        let asked = MEANS.iter().filter(|&&(number, _)| self.means & number as u32 > 0);
        let using = match self.means {
            0 if told => Using::ALL,
            0 => Using::ALL.without(Means::Recompute),
            _ => asked.fold(Using::NONE, |u, &(_, m)| u.with(m)),
        };
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let usual = Options::new(limit, device);
        Ok(Options {
            using,
            policy,
            least_bytes: or(self.least_bytes, usual.least_bytes),
            seed: or(self.seed, usual.seed),
            work: or(self.work, usual.work),
            alignment: or(self.alignment, usual.alignment),
            ..usual
        })
    }
}

/// Lengths of the outputs of sublet_fit for this trace.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit_lengths_of(
    rows: *const sublet_row,
    row_count: usize,
    block_count: usize,
    lengths: *mut sublet_fit_lengths,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let rows = unsafe { arguments.input(rows, row_count)? };
        let block_count = arguments.count(block_count)?;
        // SAFETY: as above.
        let lengths = unsafe { arguments.result(lengths)? };
        let (mut accesses, mut mallocs) = (0, 0);
        for i in 0..rows.len() {
            let event = trace::row(rows, i)?.event;
            accesses += usize::from(event.is_access());
            mallocs += usize::from(event == Event::Malloc);
        }
        let needed = Lengths::of_counts(rows.len(), accesses, mallocs, block_count);
        lengths.set(sublet_fit_lengths { rows: needed.timings, residencies: needed.residencies });
        Ok(())
    })
}

fn needed(rows: usize, operators: usize, blocks: usize, lengths: Lengths) -> Needed {
    Needed::workspace(fit::workspace(rows, blocks, lengths))
        .and::<Row>(rows)
        .and::<Operator>(operators)
        .and::<Row>(lengths.rows)
        .and::<Timing>(lengths.timings)
        .and::<Block>(lengths.residencies)
        .and::<Residency>(lengths.residencies)
        .and::<u64>(lengths.residencies)
}

/// The workspace that sublet_fit needs for so many rows, operators and block numbers, and outputs of these lengths. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit_workspace(
    row_count: usize,
    operator_count: usize,
    block_count: usize,
    row_capacity: usize,
    residency_capacity: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (rows, operators) = (arguments.count(row_count)?, arguments.count(operator_count)?);
        let blocks = arguments.count(block_count)?;
        let lengths = Lengths::for_result(rows, arguments.count(row_capacity)?, arguments.count(residency_capacity)?);
        Ok(needed(rows, operators, blocks, lengths))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Rewrites a trace so that its footprint is within `limit` bytes, at as little cost in time as the policy finds: blocks
/// leave for the host while they are not in use, values are recomputed, written over what nobody needs any more, or kept
/// as the bits of a mask. `block_count` is the number of block numbers that the rows use; in the result the number
/// `block_count` + b is the mask of block b. The result is placed, timed and verified over iterations that repeat.
///
/// `operators` tells what is known of the operators, by their numbers: which may not run again, which work in place, which
/// are ReLUs. It may be NULL, with `operator_count` 0.
///
/// `device` and `params` may be NULL. `rewritten` and `timings` have room for `row_capacity` rows, `blocks`, `names` and
/// `offsets` for `residency_capacity` residencies, at least what sublet_fit_lengths_of tells; `timings`, `blocks` and `names` may
/// be NULL. `fitted` tells how many were written.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_fit(
    rows: *const sublet_row,
    row_count: usize,
    operators: *const sublet_operator,
    operator_count: usize,
    block_count: usize,
    limit: u64,
    device: *const sublet_device,
    params: *const sublet_fit_params,
    workspace: *mut c_void,
    workspace_size: usize,
    rewritten: *mut sublet_row,
    timings: *mut sublet_timing,
    row_capacity: usize,
    blocks: *mut sublet_block,
    names: *mut sublet_residency,
    offsets: *mut u64,
    residency_capacity: usize,
    fitted: *mut sublet_fitted,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (given, operators, device, params, mut room) = unsafe {
            let given = arguments.input(rows, row_count)?;
            let operators = arguments.input(operators, operator_count)?;
            arguments.count(block_count)?;
            arguments.skip();
            counted(row_capacity, 12)?;
            counted(residency_capacity, 16)?;
            let (device, params) = (arguments.params(device)?.device(6)?, arguments.params(params)?);
            let lengths = Lengths::for_result(row_count, row_capacity, residency_capacity);
            let needed = needed(row_count, operator_count, block_count, lengths);
            (given, operators, device, params, arguments.workspace(workspace, workspace_size, needed)?)
        };
        // SAFETY: as above.
        let (rewritten, timings, blocks, names, offsets, fitted) = unsafe {
            let rewritten = arguments.output_of(rewritten, row_capacity)?;
            let timings = arguments.output_if_wanted(timings, row_capacity)?;
            arguments.skip();
            let blocks = arguments.output_if_wanted(blocks, residency_capacity)?;
            let names = arguments.output_if_wanted(names, residency_capacity)?;
            let offsets = arguments.output_of(offsets, residency_capacity)?;
            arguments.skip();
            (rewritten, timings, blocks, names, offsets, arguments.report(fitted)?)
        };
        let rows = trace::rows(&mut room, given)?;
        let operators = operator::operators(&mut room, operators)?;
        let lengths = Lengths::of(rows, block_count);
        for (position, needed, got) in
            [(10, lengths.timings, row_capacity), (15, lengths.residencies, residency_capacity)]
        {
            if got < needed {
                return Err(Failure::new(S::BufferTooSmall, position, needed as u64, got as u64));
            }
        }
        let known = |op: Op| match op {
            Op::First(k) | Op::Rerun(k) => usize::try_from(k).is_ok_and(|k| k < operators.len()),
            Op::None => true,
        };
        let options = params.options(limit, device, rows.iter().all(|r| known(r.op)), 7)?;
        let output = Output {
            rows: room.fill(lengths.rows, Row::default()),
            timings: room.fill(lengths.timings, Timing::default()),
            blocks: room.fill(lengths.residencies, Block::default()),
            names: room.fill(lengths.residencies, Residency::default()),
            offsets: room.fill(lengths.residencies, 0),
        };
        let scratch = room.workspace(fit::workspace(row_count, block_count, lengths));
        let found = fit::fit(&Recorded { rows, operators, blocks: block_count }, &options, scratch, output)?;
        let (schedule, plan) = (&found.schedule, found.schedule.plan());
        trace::copy(schedule.rows(), rewritten);
        trace::copy(schedule.timings(), timings);
        trace::copy(plan.blocks(), blocks);
        trace::copy(schedule.names(), names);
        trace::copy(plan.offsets(), offsets);
        fitted.set(sublet_fitted {
            struct_size: 0,
            policy: POLICIES.iter().find(|&&(_, p)| p == found.policy).map_or(0, |&(number, _)| number as u32),
            row_count: schedule.rows().len(),
            residency_count: plan.blocks().len(),
            peak: plan.peak(),
            original_peak: found.original_peak,
            run: (*schedule.run()).into(),
        });
        Ok(())
    })
}

fn bound_needed(rows: usize, blocks: usize) -> Needed {
    Needed::workspace(lower_bound::workspace(rows, blocks)).and::<Row>(rows)
}

/// The workspace that sublet_load_without_overhead needs for so many rows and block numbers. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_load_without_overhead_workspace(
    row_count: usize,
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (rows, blocks) = (arguments.count(row_count)?, arguments.count(block_count)?);
        Ok(bound_needed(rows, blocks))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// A lower bound on the bytes on the device in every schedule of swaps that costs no time at all. `device` may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_load_without_overhead(
    rows: *const sublet_row,
    row_count: usize,
    block_count: usize,
    device: *const sublet_device,
    workspace: *mut c_void,
    workspace_size: usize,
    load: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (given, device, mut room, load) = unsafe {
            let given = arguments.input(rows, row_count)?;
            arguments.count(block_count)?;
            let device = arguments.params(device)?.device(3)?;
            let room = arguments.workspace(workspace, workspace_size, bound_needed(row_count, block_count))?;
            (given, device, room, arguments.result(load)?)
        };
        if !device.is_sound() {
            return Err(Failure::of(S::Device));
        }
        let rows = trace::rows(&mut room, given)?;
        let scratch = room.workspace(lower_bound::workspace(row_count, block_count));
        load.set(lower_bound::least_load(rows, block_count, &device, 0, scratch)?);
        Ok(())
    })
}
