//! Fits a network into less memory: rewrites its trace by in-place reuse, masks, swaps and recomputation, and places
//! the *residencies* of the rewritten trace: the live ranges of its blocks on the device.
//!
//! Steps:
//! 1. What has to be on the device at once is added up for each operator. A limit below that is refused at once.
//! 2. *Variants* are the traces to start from. Each order of the operators is one (`means/order`): the recorded one and, if
//!    operators may be reordered, more: in one, operators that lower the load (updates of parameters, for example) run as
//!    early as they can; one is that of least max load that a search finds; in small traces there is one in which
//!    operators that raise the load run late. Where the lower bound says that the recorded order takes 1 % longer than
//!    the original, step 4 tries it last: mostly it is then proved useless. Where masks or in-place reuse change the
//!    trace, each order has a second variant with them, which comes first. Masks are made first, since they change which
//!    blocks are alive. In-place reuse is made after recomputation, which takes it into account, and before swaps. Masks
//!    and in-place reuse take no time.
//! 3. The plainest schedules, until one is within the limit: whoever ends the work later has it. For each variant:
//!    what is recomputed and swapped by one rule to be a little below the limit, then to take least memory, however long
//!    that takes.
//! 4. On each variant, [`Strategy::ALL`]: neither swaps nor recomputation; recomputation alone (where there are few
//!    values, the recomputation that takes least time is found and proved); recomputation down to some level, then swaps
//!    (module `levels`); swaps alone. Swaps are a search from several simple schedules (`means/swap`).
//! 5. The residencies of each schedule are placed; residencies that share memory in place are placed as one block.
//!    Where the placement is above the limit, the operators that run there get headroom: a part of the bytes above the
//!    limit is held back below it. Recomputation and swaps are then planned again, several times.
//! 6. Where no schedule fits, the least footprint of step 3, which is the same for every limit, is a limit that works.
//!    Lower limits are tried by bisection, and the least that works is reported.
//!
//! Nothing is tried that the [lower bound](least_overhead) proves to be no better than the best schedule so far. The
//! bound is computed for each strategy, order and level. The budget limits the work.
//!
//! The schedule of least time wins. A plan that takes much longer than the best schedule is not placed, so that a fit
//! with more means can be worse than one with fewer, though it seldom is. The result has been accepted by
//! [`verify::schedule`](crate::verify::schedule) for iterations that repeat: persistent blocks may be on the
//! host at the start and the end of the iteration.

mod budget;
mod carried;
mod fitter;
mod levels;
mod lower_bound;
mod stage;
mod strategies;
mod trial;
mod variants;
mod watch;

use core::ops::ControlFlow;

use super::gaps::Swappable;
use super::means;
pub use super::means::order::Reordering;
use super::means::recompute::{self, Recomputer};
pub use super::means::{Means, Using};
use super::program::Program;
use super::values::Values;
use crate::error::{Buffer, RowFault};
use crate::simulate::{Device, Timing};
use crate::table::at;
use crate::trace::{Event, Recorded, Row, liveness, liveness::Residency};
use crate::verify::VerifiedSchedule;
use crate::{Block, Error, Workspace, WorkspaceLen, block};
use budget::Budget;
pub use lower_bound::{least_overhead, lower_bound_workspace};
use stage::Stage;
use variants::{ORDERS, Orders};
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

    /// Options for a limit in bytes and a device. All ways to save memory ([`Means`]) may be used.
    /// Blocks may be swapped if they are large enough to be [worth copying](Device::least_worth_copying). The other
    /// options have their defaults.
    #[must_use]
    pub fn new(limit: u64, device: Device) -> Self {
        let least_bytes = device.least_worth_copying();
        Self {
            limit,
            device,
            using: Using::ALL,
            least_bytes,
            keep_persistent: false,
            alignment: Self::DEFAULT_ALIGNMENT,
            seed: 1,
            work: Self::DEFAULT_WORK,
        }
    }

    fn work_of(&self, rows: usize) -> u64 {
        u64::try_from(rows.min(MOST_ROWS)).unwrap_or(u64::MAX).saturating_mul(self.work)
    }

    const fn in_this_order(&self) -> Self {
        Self { using: self.using.without(Means::Order), ..*self }
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
        let rows_of_all = variants::rows(recorded) + interim_rows(recorded) + 2 * rows;
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
    variants::workspace(rows, blocks)
        .max(liveness::workspace(blocks))
        .max(lower_bound::workspace(rows, blocks))
        .max(
            Program::workspace(base, 2 * blocks)
                .and(Values::workspace(base, 2 * blocks))
                .and(Recomputer::workspace(base, 2 * blocks))
                .and(fitter::workspace(rows, blocks, lengths)),
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
/// [`Error::Impossible`] if it is proved that no schedule fits. [`Error::OverLimit`] if none was found; it names the
/// least footprint that was made, with sizes rounded up to the alignment: a limit that works. [`Error::Alignment`] if the alignment is not a power of two; [`Error::Row`] for a row
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
    fit_within(recorded, options, scratch, output, (watch, Budget::new(options.work_of(recorded.rows.len()))))
}

fn fit_within<'a>(
    recorded: &Recorded<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: Output<'a>,
    (watch, budget): (Watch<'_>, Budget),
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
    let (begin, out) = out.split_at_mut_checked(variants::rows(original.len())).unwrap_or_default();
    let output = Output { rows: out, timings, blocks: lives, names, offsets };
    let mut orders = Orders::new(recorded, options, begin);
    let needed = orders.needed(scratch.reborrow())?;
    if needed > options.limit {
        return Err(Error::Impossible { needed, limit: options.limit });
    }
    let mut stage = Stage::new(lengths, original.len(), options.alignment, output, (watch, budget), &mut scratch);
    let (mut least, mut load_min) = (u64::MAX, None);
    stage = orders.each((ORDERS, f64::MAX), stage, scratch.reborrow(), &mut |variants, stage, scratch| {
        load_min.get_or_insert(variants.load_min);
        variants.each(options, f64::MAX, stage, scratch, &mut |fitter| {
            least = least.min(fitter.plainest(variants.peak)?);
            Ok(())
        })
    })?;
    let sequence = orders.sequence(scratch.reborrow())?;
    stage = orders.each((sequence, 0.0), stage, scratch.reborrow(), &mut |variants, stage, scratch| {
        variants.fit(options, 0.0, stage, scratch)
    })?;
    if stage.overhead().is_infinite() && !stage.stopped() {
        stage.kept.budget = budget;
        stage = orders.each((ORDERS, f64::MAX), stage, scratch.reborrow(), &mut |variants, mut stage, scratch| {
            (stage, least) = variants.least_limit(least, stage, scratch)?;
            Ok(stage)
        })?;
    }
    if stage.overhead().is_infinite() {
        let over = Error::OverLimit { least, limit: options.limit };
        return Err(if stage.stopped() { Error::Stopped } else { over });
    }
    let schedule = stage.prove(recorded, options, scratch)?;
    Ok(Fitted { schedule, original_peak, load_min: load_min.unwrap_or_default() })
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

/// Rows beyond this add no work: a longer search takes minutes and finds little more.
const MOST_ROWS: usize = 10_000;

#[cfg(test)]
mod tests;
