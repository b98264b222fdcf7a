//! Fits a network into less memory: rewrites its trace by in-place reuse, masks, swaps and recomputation, and places
//! the *residencies* of the rewritten trace: the live ranges of its blocks on the device.
//!
//! Steps:
//! 1. Each order of the operators is tried by itself (`means/order`): the recorded one and, if operators may be
//!    reordered, two more. In one, operators that lower the load (updates of parameters, for example) run as early as
//!    they can; the other is the one of least max load that a search finds. The next steps are done for each order.
//! 2. Where masks or in-place reuse change the trace, two traces are tried: first the one that has masks and in-place
//!    reuse, then the recorded one. Masks are made first, since they change which blocks are alive. In-place reuse is
//!    made after recomputation, which takes it into account, and before swaps. Masks and in-place reuse take no time:
//!    where a schedule with these alone fits, nothing else is tried.
//! 3. Recomputation alone. Where there are few values, the recomputation that takes least time is found and proved.
//! 4. Recomputation, then swaps: values are recomputed until the load is down to some level, and swaps bring it down to
//!    the limit. Many levels are tried (module `levels`).
//! 5. Swapping alone: the [`Policy`] decides which blocks are swapped, so that the load is within the limit. The times
//!    for which blocks are on the device are then shortened as far as the schedule takes no longer. [`Policy::Auto`]
//!    and [`Policy::Bayes`] try other policies too, each as it would be tried alone. They keep the schedule of least
//!    time, and of equal ones the first, so that neither is ever worse than a policy that it contains. The search of
//!    [`Policy::Auto`] then goes on from the best schedule.
//! 6. The residencies of each schedule are placed; residencies that share memory in place are placed as one block.
//!    Where the placement is above the limit, the operators that run there get headroom: a part of the bytes above the
//!    limit is held back below it. Recomputation and swaps are then planned again, several times.
//! 7. Where no schedule fits, schedules that take least memory are made, however long they take. They are the same for
//!    every limit, so that the least of their footprints is a limit that works. Lower limits are then tried by
//!    bisection, and the least limit that works is reported.
//!
//! Where values may be recomputed, nothing is tried that the [lower bound](least_overhead) proves to be no better than
//! the best schedule so far. The bound is computed for swaps alone, for recomputation alone, for both together, and for
//! swaps after a level of recomputation. It is also computed for each order of the operators. An order is left out if
//! the bound proves that no schedule in it fits. While no schedule fits, the work is limited over all orders together;
//! once one fits, for each order alone.
//!
//! The schedule of least time wins. Swaps and recomputation are also tried alone, each as if it were the only means,
//! and on the recorded trace too. Such a try is left out only where the bound proves that it cannot win, or where a
//! schedule fits and the work is used up. A plan that takes much longer than the best schedule is not placed. So a fit
//! with more means is seldom worse than one with fewer. The result has been accepted by
//! [`verify::schedule`](crate::verify::schedule::schedule) for iterations that repeat: persistent blocks may be on the
//! host at the start and the end of the iteration.

mod bases;
mod carried;
mod levels;
mod lower_bound;
mod pass;
mod stage;
mod trial;
mod watch;

use core::ops::ControlFlow;

use super::gaps::Swappable;
use super::means;
pub use super::means::order::Reordering;
use super::means::recompute::{self, Recomputer};
use super::means::swap::Policy;
pub use super::means::{Means, Using};
use super::program::Program;
use super::values::Values;
use crate::error::{Buffer, RowFault};
use crate::simulate::{Device, Timing};
use crate::table::at;
use crate::trace::{Event, Recorded, Row, liveness, liveness::Residency};
use crate::verify::schedule::VerifiedSchedule;
use crate::{Block, Error, Workspace, WorkspaceLen, block};
use bases::Orders;
pub use lower_bound::{least_overhead, lower_bound_workspace};
use pass::{Arrangement, Pass};
use stage::Stage;
use trial::Swaps;
pub use watch::{Progress, Strategy, Tried, Watch};

/// The memory limit of a fit, the device, and how a schedule within the limit is searched for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The limit: the most memory that the result may take on the device, in bytes.
    pub limit: u64,
    /// The device, with its links to the host.
    pub device: Device,
    /// The ways to save memory ([`Means`]) that may be used.
    pub using: Using,
    /// The policy that decides which blocks are swapped.
    pub policy: Policy,
    /// The size of the smallest block that may be swapped, in bytes.
    pub least_bytes: u64,
    /// Whether all persistent blocks (allocated at time 0 and never freed, such as weights) stay on the device. They
    /// have to if their memory belongs to somebody else, as that of a framework's parameters does.
    pub keep_persistent: bool,
    /// The alignment of all offsets, in bytes: a power of two. Sizes are rounded up to a multiple of it while the trace
    /// is fitted.
    pub alignment: u64,
    /// The seed of random choices. The same seed gives the same result on every machine.
    pub seed: u64,
    /// The work that a search for swaps may do for each row of the trace, counted in operators and idle times of blocks
    /// looked at. Rows beyond the first 10,000 add none. A fit makes many searches and placements, so that it takes
    /// several times as long as one search; a [`Watch`] can end it sooner.
    pub work: u64,
}

impl Options {
    /// The default alignment, in bytes: that of memory on GPUs, and of the runtime that runs fitted networks with CUDA.
    pub const DEFAULT_ALIGNMENT: u64 = 256;
    /// The default of [`work`](Self::work). With it a search for swaps takes about a second for 5,000 rows.
    pub const DEFAULT_WORK: u64 = 5_000;

    /// Options for a limit in bytes and a device. All ways to save memory ([`Means`]) may be used but [`Means::Layer`].
    /// Blocks may be swapped if they are large enough to be [worth copying](Device::least_worth_copying). The other
    /// options have their defaults.
    #[must_use]
    pub fn new(limit: u64, device: Device) -> Self {
        let least_bytes = device.least_worth_copying();
        Self {
            limit,
            device,
            using: Using::ALL,
            policy: Policy::Auto,
            least_bytes,
            keep_persistent: false,
            alignment: Self::DEFAULT_ALIGNMENT,
            seed: 1,
            work: Self::DEFAULT_WORK,
        }
    }

    const fn swappable(&self) -> Swappable {
        Swappable { least_bytes: self.least_bytes, keep_persistent: self.keep_persistent }
    }
}

/// Memory for the result of a fit, which the caller lends. [`Lengths`] tells how long the slices must be.
#[derive(Debug)]
pub struct Output<'a> {
    /// Room for the rewritten trace, and for the traces that it is made from.
    pub rows: &'a mut [Row],
    /// Room for the times of the rewritten trace's rows, one for each row.
    pub timings: &'a mut [Timing],
    /// Room for the live ranges of blocks on the device in the rewritten trace, as blocks to be placed.
    pub blocks: &'a mut [Block],
    /// Room for the name of each live range in `blocks`: the block of the trace, and which of its live ranges it is.
    pub names: &'a mut [Residency],
    /// Room for the offset of each block in `blocks` from the start of the arena, in bytes.
    pub offsets: &'a mut [u64],
}

/// How long the slices of an [`Output`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of the slice of rows: enough for the rewritten trace and the traces that it is made from.
    pub rows: usize,
    /// Length of the slice of timings: the most rows that the result can have.
    pub timings: usize,
    /// Length of the slices of blocks, names and offsets: the most live ranges of blocks on the device that the result
    /// can have.
    pub residencies: usize,
}

impl Lengths {
    /// Lengths of an [`Output`] that are enough for every schedule of this trace: its rows use block numbers below
    /// `block_count`.
    #[must_use]
    pub fn of(rows: &[Row], block_count: usize) -> Self {
        let accesses = rows.iter().filter(|r| r.event.is_access()).count();
        Self::of_counts(rows.len(), accesses, liveness::residencies(rows), block_count)
    }

    /// Lengths of an [`Output`] that are enough for every schedule of a trace with `rows` rows and `blocks` block
    /// numbers; of the rows, `accesses` are accesses and `mallocs` are mallocs.
    #[must_use]
    pub const fn of_counts(rows: usize, accesses: usize, mallocs: usize, blocks: usize) -> Self {
        let gaps = accesses + blocks;
        // Each gap may add a copy out, a free, a malloc and a copy in; each block a copy out at the end.
        let timings = interim_rows(rows) + 4 * gaps + blocks;
        Self::for_result(rows, timings, means::most_rows(rows) + mallocs + gaps)
    }

    /// Lengths for a recorded trace of `recorded` rows, if the result may have at most `rows` rows and `residencies`
    /// live ranges of blocks on the device. It serves a caller that has chosen these two numbers itself. If they are
    /// too small, so that a length is below that of [`Lengths::of`], [`fit`] fails with [`Error::BufferTooSmall`].
    #[must_use]
    pub const fn for_result(recorded: usize, rows: usize, residencies: usize) -> Self {
        // The traces to begin with; the trace between two passes; the schedule that is made, and the best one.
        let rows_of_all = bases::rows(recorded) + interim_rows(recorded) + 2 * rows;
        Self { rows: rows_of_all, timings: rows, residencies }
    }
}

/// In-place reuse adds a row for each block whose memory is reused and that the recording never frees.
const fn interim_rows(rows: usize) -> usize {
    recompute::most_rows(means::most_rows(rows)) + rows
}

/// A network that fits within the limit: its rewritten trace and plan, with figures of the original.
#[derive(Debug)]
pub struct Fitted<'a> {
    /// The rewritten trace with its plan, both verified.
    pub schedule: VerifiedSchedule<'a>,
    /// The policy that decided which blocks are swapped; meaningless if no block is swapped.
    pub policy: Policy,
    /// The max load of the original trace, in bytes: no plan for the original has a lower peak.
    pub original_peak: u64,
    /// The max load, in bytes, that is left after some swaps: every block that can be off the device while the operator
    /// with the original's max load runs is swapped out for that time (`load_min` of Zhang et al. 2019). Sizes count as
    /// rounded up to the alignment, unlike in `original_peak`, so that this may be the higher of the two. It is about
    /// swaps alone: with other means a footprint may be lower.
    pub load_min: u64,
}

/// Length of the workspace that [`fit`] needs for a trace of `rows` rows and `blocks` blocks. `lengths` are the lengths
/// of the slices of the [`Output`] that it is given.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, lengths: Lengths) -> WorkspaceLen {
    let base = means::most_rows(rows);
    bases::workspace(rows, blocks)
        .max(liveness::workspace(blocks))
        .max(lower_bound_workspace(rows, blocks))
        .max(
            Program::workspace(base, 2 * blocks)
                .and(Values::workspace(base, 2 * blocks))
                .and(Recomputer::workspace(base, 2 * blocks))
                .and(pass::workspace(rows, blocks, lengths)),
        )
        .and(stage::workspace(lengths))
}

/// Rewrites a trace so that its footprint on the device is within a limit. Of the schedules that are found, the one
/// that adds least time is the result.
///
/// A persistent block (allocated at time 0, never freed) may end the iteration at another offset than it began at, or
/// on the host. Between two iterations, a runtime that repeats the rows moves such blocks back to where they began: all
/// are copied out before any is copied in. The simulated time does not count these copies. With
/// [`Options::keep_persistent`] none moves.
///
/// # Errors
/// [`Error::OverLimit`] if no schedule fits; it names the least footprint that was made, with sizes rounded up to the
/// alignment: a limit that works. [`Error::Alignment`] if the alignment is not a power of two; [`Error::Row`] for a row
/// that a recorded trace cannot have, such as a copy or a recomputation; [`Error::SizeOverflow`] if all sizes add up to
/// more than 64 bits hold; [`Error::TooManyBlocks`]; [`Error::Device`] if a bandwidth or a latency is wrong;
/// [`Error::BufferTooSmall`] if the output or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Residency, Event, Op, Recorded, Row};
/// use sublet_core::{Block, Workspace};
/// let row = |time_ns, event, block, op| {
///     Row { time_ns, event, block, op, bytes: if event == Event::Malloc { 8 << 20 } else { 0 } }
/// };
/// // An activation that is read again after another has come and gone.
/// let rows = [
///     row(0, Event::Malloc, 0, Op::First(0)),
///     row(1_000_000, Event::Write, 0, Op::First(0)),
///     row(1_000_000, Event::Malloc, 1, Op::First(1)),
///     row(2_000_000, Event::Write, 1, Op::First(1)),
///     row(3_000_000, Event::Free, 1, Op::None),
///     row(9_000_000, Event::Read, 0, Op::First(2)),
///     row(9_000_000, Event::Free, 0, Op::None),
/// ];
/// let lengths = Lengths::of(&rows, 2);
/// let len = fit::workspace(rows.len(), 2, lengths);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let output = Output {
///     rows: &mut vec![Row::default(); lengths.rows],
///     timings: &mut vec![Timing::default(); lengths.timings],
///     blocks: &mut vec![Block::default(); lengths.residencies],
///     names: &mut vec![Residency::default(); lengths.residencies],
///     offsets: &mut vec![0; lengths.residencies],
/// };
/// let using = Using::NONE.with(Means::Swap);
/// let options = Options { using, ..Options::new(8 << 20, Device::symmetric(12e9)) };
/// let fitted = fit::fit(&Recorded::new(&rows, 2), &options, Workspace::new(&mut words, &mut indices), output)?;
/// assert_eq!((fitted.original_peak, fitted.schedule.plan().peak()), (16 << 20, 8 << 20));
/// // The second operator waits for the copy out.
/// assert!(fitted.schedule.run().overhead() > 0.05);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn fit<'a>(
    recorded: &Recorded<'_>,
    options: &Options,
    scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<Fitted<'a>, Error> {
    fit_watched(recorded, options, scratch, output, &mut |_| ControlFlow::Continue(()))
}

/// Fits a trace into less memory as [`fit`] does, and calls `watch` for every schedule that is tried, and in between to
/// say that work goes on. If `watch` ends the work, the result is the best schedule so far. Between two calls at most
/// one search for recomputation or one for swaps runs; such a search takes seconds for 100,000 rows.
///
/// # Errors
/// As [`fit`]; [`Error::Stopped`] where the work was ended before anything was within the limit.
pub fn fit_watched<'a>(
    recorded: &Recorded<'_>,
    options: &Options,
    scratch: Workspace<'_>,
    output: Output<'a>,
    watch: Watch<'_>,
) -> Result<Fitted<'a>, Error> {
    fit_patiently(recorded, options, scratch, output, watch, pass::patience(work(recorded, options)))
}

fn fit_patiently<'a>(
    recorded: &Recorded<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: Output<'a>,
    watch: Watch<'_>,
    patience: u64,
) -> Result<Fitted<'a>, Error> {
    let mut scratch = scratch.reborrow();
    block::check_count(recorded.blocks)?;
    let Recorded { rows: original, blocks, .. } = *recorded;
    let lengths = Lengths::of(original, blocks);
    scratch.check(workspace(original.len(), blocks, lengths))?;
    if !options.alignment.is_power_of_two() {
        return Err(Error::Alignment { block: None, alignment: options.alignment });
    }
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    for (buffer, needed, got) in [
        (Buffer::Rows, lengths.rows, output.rows.len()),
        (Buffer::Timings, lengths.timings, output.timings.len()),
        (Buffer::Blocks, lengths.residencies, output.blocks.len().min(output.names.len())),
        (Buffer::Offsets, lengths.residencies, output.offsets.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    // Checks that the rows can follow each other, which the passes rely on.
    let residencies = liveness::lifetimes(original, blocks, scratch.reborrow(), output.blocks, output.names)?;
    persistent_first(original, output.blocks.get(..residencies).unwrap_or_default())?;
    // Loads are added up without further checks.
    block::check(output.blocks.get(..residencies).unwrap_or_default(), options.alignment).map_err(|e| match e {
        Error::SizeOverflow { block } => Error::SizeOverflow { block: at(output.names, block).block },
        e => e,
    })?;
    let original_peak = max_load(original, blocks, scratch.reborrow());
    let Output { rows: out, timings, blocks: lives, names, offsets } = output;
    let (begin, out) = out.split_at_mut_checked(bases::rows(original.len())).unwrap_or_default();
    let output = Output { rows: out, timings, blocks: lives, names, offsets };
    let mut stage = Stage::new(lengths, original.len(), options.alignment, output, watch, &mut scratch);
    stage.kept.begin(patience);
    let mut orders = Orders::new(recorded, options, begin);
    let mut load_min = None;
    stage = orders.each(0.0, stage, scratch.reborrow(), &mut |bases, stage, scratch| {
        load_min.get_or_insert(bases.load_min);
        bases.fit(options, 0.0, stage, scratch)
    })?;
    let mut least = u64::MAX;
    if stage.overhead().is_infinite() && !stage.stopped() {
        stage.kept.begin(patience);
        stage = orders.each(f64::MAX, stage, scratch.reborrow(), &mut |bases, mut stage, mut scratch| {
            let mut found = u64::MAX;
            let mut lowest = |pass: &mut Pass<'_, '_, '_>| {
                found = found.min(pass_least(pass, options, bases.peak)?);
                Ok(())
            };
            stage = bases.each(options, f64::MAX, stage, scratch.reborrow(), &mut lowest)?;
            if stage.overhead().is_infinite() && found < u64::MAX && !stage.stopped() {
                (stage, found) = bases.least_limit(found, stage, scratch)?;
            }
            least = least.min(found);
            Ok(stage)
        })?;
    }
    if stage.overhead().is_infinite() {
        let over = Error::OverLimit { least, limit: options.limit };
        return Err(if stage.stopped() { Error::Stopped } else { over });
    }
    let (schedule, policy) = stage.prove(recorded, options, scratch)?;
    Ok(Fitted { schedule, policy, original_peak, load_min: load_min.unwrap_or_default() })
}

fn persistent_first(rows: &[Row], residencies: &[Block]) -> Result<(), Error> {
    let first_access = rows.iter().position(|r| r.event.is_access()).and_then(|row| u32::try_from(row).ok());
    let late = |residency: &&Block| {
        let malloc = at(rows, residency.start);
        let is_freed = usize::try_from(residency.end).is_ok_and(|end| end < rows.len());
        malloc.time_ns == 0 && !is_freed && first_access.is_some_and(|first| residency.start > first)
    };
    match residencies.iter().find(late) {
        Some(residency) => Err(Error::Row { row: residency.start, fault: RowFault::PersistentLate }),
        None => Ok(()),
    }
}

fn max_load(rows: &[Row], blocks: usize, mut scratch: Workspace<'_>) -> u64 {
    let mut size = scratch.words(blocks);
    let (mut load, mut most) = (0u64, 0);
    for r in rows {
        match r.event {
            Event::Malloc => {
                size[r.block] = r.bytes;
                load = load.saturating_add(r.bytes);
                most = most.max(load);
            }
            Event::Free => load = load.saturating_sub(size[r.block]),
            _ => {}
        }
    }
    most
}

/// Plans of recomputation take little work, and the search ends by itself.
const ALONE: u64 = 4;
/// Shorter traces get a second search for recomputation: annealing needs many changes, however short the trace.
const SHORT: usize = 5_000;
const STRETCH: usize = 20;

fn work_alone(recorded: &Recorded<'_>, options: &Options) -> u64 {
    let rows = recorded.rows.len();
    work_of_rows(rows.max(SHORT.min(rows.saturating_mul(STRETCH))), options).saturating_mul(ALONE)
}

fn joint(pass: &mut Pass<'_, '_, '_>, recorded: &Recorded<'_>, options: &Options, peak: u64) -> Result<(), Error> {
    let using = options.using.on(&options.device);
    let (swap, recompute) = (using.has(Means::Swap), using.has(Means::Recompute));
    let work = work(recorded, options);
    let nothing = Arrangement { recomputes: false, swaps: Swaps::None, choice: 0, work };
    let swapping = Arrangement { swaps: swaps(using, options), ..nothing };
    let recomputing = Arrangement { recomputes: true, choice: work.saturating_mul(ALONE), ..nothing };
    // Neither swaps nor recomputation: the trace to begin with, which takes no longer than the original.
    pass.fit(&nothing)?;
    if pass.cutoff() <= 0.0 {
        return Ok(());
    }
    let [by_swaps, by_recomputation] = [Means::Swap, Means::Recompute].map(|means| Using::NONE.with(means));
    if recompute {
        if !pass.cannot_win(by_recomputation)? {
            pass.fit_alone(&recomputing)?;
        }
        if swap && pass.cutoff() > 0.0 && !pass.is_spent() && !pass.cannot_win(by_swaps.and(by_recomputation))? {
            levels::recompute_then_swap(pass, options.limit, peak, work)?;
        }
    }
    // Where values may be recomputed too, swaps alone are tried last, and mostly on the recorded trace only.
    if swapping.swaps != Swaps::None
        && (!recompute || (pass.is_as_recorded() || pass.cutoff().is_infinite()) && !pass.cannot_win(by_swaps)?)
    {
        pass.fit_alone(&swapping)?;
    }
    if swap && using.has(Means::Layer) {
        pass.fit(&Arrangement { swaps: Swaps::By(&[Policy::Layer]), ..nothing })?;
    }
    // The longer search comes last, and so only adds to what the others find.
    let longer = Arrangement { choice: work_alone(recorded, options), ..recomputing };
    let is_longer = recompute && longer.choice > recomputing.choice;
    if is_longer && pass.cutoff() > 0.0 && !pass.is_spent() && !pass.cannot_win(by_recomputation)? {
        pass.fit_alone(&longer)?;
    }
    Ok(())
}

/// `u64::MAX` if none was made. Does not depend on the limit, so a fit to the result succeeds.
fn pass_least(pass: &mut Pass<'_, '_, '_>, options: &Options, peak: u64) -> Result<u64, Error> {
    let using = options.using.on(&options.device);
    let swapping = Arrangement { recomputes: false, swaps: swaps(using, options), choice: 0, work: 0 };
    let mut least = pass.least(&swapping, peak)?;
    if using.has(Means::Recompute) {
        let recomputing = Arrangement { recomputes: true, swaps: Swaps::None, ..swapping };
        for arrangement in [recomputing, Arrangement { swaps: swapping.swaps, ..recomputing }] {
            if least > options.limit && !pass.stopped() && (arrangement == recomputing || using.has(Means::Swap)) {
                least = least.min(pass.least(&arrangement, peak)?);
            }
        }
    }
    Ok(least)
}

/// Rows beyond this add no work: a longer search takes minutes and finds little more.
const MOST_ROWS: usize = 10_000;

fn work(recorded: &Recorded<'_>, options: &Options) -> u64 {
    work_of_rows(recorded.rows.len(), options)
}

fn work_of_rows(rows: usize, options: &Options) -> u64 {
    u64::try_from(rows.min(MOST_ROWS)).unwrap_or(u64::MAX).saturating_mul(options.work)
}

const fn swaps(using: Using, options: &Options) -> Swaps<'_> {
    if using.has(Means::Swap) {
        return Swaps::By(match options.policy {
            Policy::Auto => &Policy::ALL,
            Policy::Bayes => &[Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
            _ => core::slice::from_ref(&options.policy),
        });
    }
    if using.has(Means::Layer) { Swaps::By(&[Policy::Layer]) } else { Swaps::None }
}

#[cfg(test)]
mod tests;
