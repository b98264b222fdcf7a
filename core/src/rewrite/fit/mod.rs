//! A network into less memory: outputs over inputs, masks of rectifiers, swaps, recomputation; then place over the changed
//! trace.
//!
//! Steps:
//! 1. Each order of the operators is tried by itself (`means/order`): as recorded, and if operators may stand
//!    elsewhere, updates early, and the order with the least max load. What follows is done for each.
//! 2. Where masks or in-place reuse change the trace, it begins with the trace that has them, and then with the one
//!    that was recorded: neither is worse for the other. Masks come first, for they change what is alive; in-place reuse last,
//!    over whatever the other means made, and what decides knows of them. They take no time: where they are enough, that is all.
//! 3. Swapping alone, by the [`Policy`]: a schedule whose load is within the limit, its positions tightened at unchanged
//!    time. [`Policy::Auto`] and [`Policy::Bayes`] try the other policies too, each as it would be tried alone, and take what
//!    takes least time: neither is ever worse than those it contains. Of equal times the first wins. The search then goes
//!    on from there. Where it is slow it comes last, and not at all where the [`bound`](super::lower_bound) proves that it takes
//!    longer than what was found.
//! 4. Recomputation alone; where there are few values, what is recomputed is proved to be the least.
//! 5. Both, one after the other: recompute down to a level, then the search for swaps down to the limit, over a grid of levels
//!    (`levels`).
//! 6. Both at once: at some levels between limit and peak, blocks with a high recompute cost are taken to be on the host until the
//!    load is within the level, and what is left to save is recomputed, or swapped where that is too little; then offloads
//!    and recomputation are chosen together. The arrangements with the least estimated time are made, but for those whose
//!    estimate is far above the best, and until a budget of placements is spent once something fits.
//! 7. The residencies of each are placed, those that share memory in place as one. Where the placement is above the limit, memory is
//!    lost between blocks: in those segments a part of what is too much is held back, from recomputation and from swaps alike,
//!    and the means decide again, some times over. Where nothing fits, what takes least memory is made, whatever it costs;
//!    the limit has no part in that, so that the least limit that is named is one that works. An order of which the lower
//!    bound says that nothing fits is left out, and while nothing fits, what may be spent on arrangements is bounded over all orders.
//!
//! The least time wins. Each means alone is tried as it would be if nothing else were, and all of them on the trace as it was
//! recorded where that is not hopeless, so that more means are not worse than fewer. What comes out has been accepted by
//! [`verify::schedule`](crate::verify::schedule::schedule), over iterations that repeat: persistent blocks may be on the
//! host at both ends.

mod bases;
mod levels;
mod lower_bound;
mod pass;
mod stage;
mod trial;
mod watch;

use core::ops::ControlFlow;

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
use levels::{promises, take_best};
pub use lower_bound::{least_overhead, lower_bound_workspace};
use pass::{Arrangement, Pass};
use stage::Stage;
use trial::Swaps;
pub use watch::{Progress, Strategy, Tried, Watch};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The most bytes that the footprint may have.
    pub limit: u64,
    /// The links to the host.
    pub device: Device,
    /// The means.
    pub using: Using,
    /// Who decides what is swapped.
    pub policy: Policy,
    /// Smaller blocks are not swapped, in bytes.
    pub least_bytes: u64,
    /// Every block begins at a multiple of this, a power of two, and takes a multiple of it of the limit.
    pub alignment: u64,
    /// Where random choices begin; the same seed gives the same result everywhere.
    pub seed: u64,
    /// How much the search may do for each row of the trace, in segments and gaps looked at.
    pub work: u64,
}

impl Options {
    /// What GPUs ask for, and the runtime with them.
    pub const DEFAULT_ALIGNMENT: u64 = 256;
    /// A second for the networks of 5,000 rows.
    pub const DEFAULT_WORK: u64 = 5_000;

    /// A limit and a device; the blocks that are [worth copying](Device::least_worth_copying).
    #[must_use]
    pub fn new(limit: u64, device: Device) -> Self {
        let least_bytes = device.least_worth_copying();
        Self {
            limit,
            device,
            using: Using::ALL,
            policy: Policy::Auto,
            least_bytes,
            alignment: Self::DEFAULT_ALIGNMENT,
            seed: 1,
            work: Self::DEFAULT_WORK,
        }
    }
}

/// Memory for the result, which the caller lends; how long is told by [`Lengths`].
#[derive(Debug)]
pub struct Output<'a> {
    /// For the rewritten trace.
    pub rows: &'a mut [Row],
    /// When its rows happen.
    pub timings: &'a mut [Timing],
    /// Its residencies as blocks.
    pub blocks: &'a mut [Block],
    /// Which residencies they are.
    pub names: &'a mut [Residency],
    /// Where they lie.
    pub offsets: &'a mut [u64],
}

/// How long the slices of an [`Output`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Length of the slice of rows: the rewritten trace, and the traces that it is chosen from.
    pub rows: usize,
    /// Length of the slice of timings: the most rows that the result can have.
    pub timings: usize,
    /// Length of the slices of blocks, names and offsets: the most residencies that the result can have.
    pub residencies: usize,
}

impl Lengths {
    /// Enough for whatever becomes of this trace.
    #[must_use]
    pub fn of(rows: &[Row], block_count: usize) -> Self {
        let accesses = rows.iter().filter(|r| r.event.is_access()).count();
        Self::of_counts(rows.len(), accesses, liveness::residencies(rows), block_count)
    }

    /// The same of a trace that has so many rows, of which so many are accesses and mallocs.
    #[must_use]
    pub const fn of_counts(rows: usize, accesses: usize, mallocs: usize, blocks: usize) -> Self {
        let gaps = accesses + blocks;
        // Copy out, free, malloc and copy in; a copy out at the end.
        let timings = interim_rows(rows) + 4 * gaps + blocks;
        Self::for_result(rows, timings, means::most_rows(rows) + mallocs + gaps)
    }

    /// Those of a trace of so many rows, of which the result has no more rows and residencies than these.
    #[must_use]
    pub const fn for_result(recorded: usize, rows: usize, residencies: usize) -> Self {
        // Aligned; with masks; the same with in-place reuse; the trace between two passes; what is made, and the best.
        let rows_of_all = bases::rows(recorded) + interim_rows(recorded) + 2 * rows;
        Self { rows: rows_of_all, timings: rows, residencies }
    }
}

/// The most rows of a trace with masks and recomputation, and with in-place reuse of what is never freed.
const fn interim_rows(rows: usize) -> usize {
    recompute::most_rows(means::most_rows(rows)) + rows
}

/// A network that fits.
#[derive(Debug)]
pub struct Fitted<'a> {
    /// The rewritten trace with its plan, both proved.
    pub schedule: VerifiedSchedule<'a>,
    /// The policy that made it.
    pub policy: Policy,
    /// The most bytes on the device in the original.
    pub original_peak: u64,
    /// The least load of Zhang et al. 2019: every gap over the peak away. It is of swapping alone: with other means a
    /// footprint may be below it.
    pub load_min: u64,
}

/// Length of the workspace that [`fit`] needs for a trace of `rows` rows, and for the lengths of its output.
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

/// Rewrites a trace so that its footprint is within a limit, at as little cost in time as the policy finds.
///
/// # Errors
/// [`Error::OverLimit`] with the least footprint that was made, a limit that works; [`Error::Row`] for a trace that is not as
/// recorded; [`Error::TooManyBlocks`]; [`Error::Device`]; [`Error::BufferTooSmall`] if the output or the workspace is too
/// short.
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

/// As [`fit`], and tells `watch` of every schedule that is tried, and that work goes on; it may end the work, which then
/// gives the best so far. Between two calls lies at most one search for what is recomputed: seconds for 100,000 rows.
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

/// As [`fit_watched`], and spends no more than `patience` on finding something that fits, in blocks placed, and as much on the
/// least limit, beside what is tried once.
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
    // The passes take it for granted that the rows can follow each other.
    let residencies = liveness::lifetimes(original, blocks, scratch.reborrow(), output.blocks, output.names)?;
    persistent_first(original, output.blocks.get(..residencies).unwrap_or_default())?;
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

/// Refuses persistent blocks that are not there from the start; `residencies` are the trace's.
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

/// The most bytes that are live at once.
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

/// What is swapped with no more delay than this part of the original's time is tried before anything is recomputed.
const HIDDEN: f64 = 0.02;

/// Recomputation alone is searched for so many times as long as what is swapped: a walk is cheap, and ends by itself where
/// it finds nothing more.
const ALONE: u64 = 4;

/// Tries the arrangements of the means that are asked for.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn joint(pass: &mut Pass<'_, '_, '_>, recorded: &Recorded<'_>, options: &Options, peak: u64) -> Result<(), Error> {
    let using = options.using.on(&options.device);
    let time = recorded.rows.last().map_or(0, |r| r.time_ns) as f64;
    let (swap, recompute) = (using.has(Means::Swap), using.has(Means::Recompute));
    let work = work(recorded, options);
    let nothing = Arrangement { recomputes: false, swaps: Swaps::None, choice: 0, work };
    let swapping = Arrangement { swaps: swaps(using, options), ..nothing };
    let recomputing = Arrangement { recomputes: true, choice: work.saturating_mul(ALONE), ..nothing };
    // What costs nothing.
    pass.fit(&nothing)?;
    if pass.bound() <= 0.0 {
        return Ok(());
    }
    if swap && recompute {
        pass.know_gaps()?;
    }
    // What would be swapped without much delay is tried first, and what is sure to be slow last.
    let hidden = !(swap && recompute) || pass.quickest()? <= HIDDEN * time;
    if hidden {
        pass.fit_alone(&swapping)?;
    }
    if recompute && pass.bound() > 0.0 {
        pass.fit_alone(&recomputing)?;
        if swap && !pass.is_in_vain() {
            both(pass, options.limit, peak, work)?;
            // After all that was tried before there were levels, which is not spared anything: no result becomes worse.
            levels::recompute_then_swap(pass, options.limit, peak, work)?;
        }
    }
    if !hidden && (pass.is_as_recorded() || pass.bound().is_infinite()) && !pass.is_too_slow_swapped()? {
        pass.fit_alone(&swapping)?;
    }
    if swap && using.has(Means::Layer) {
        pass.fit(&Arrangement { swaps: Swaps::By(&[Policy::Layer]), ..nothing })?;
    }
    Ok(())
}

/// The least footprint that is made, whatever it costs in time. The limit has no part in it, so that it is found where
/// it is the limit.
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

/// How much may be done in all, in segments and gaps looked at.
fn work(recorded: &Recorded<'_>, options: &Options) -> u64 {
    u64::try_from(recorded.rows.len()).unwrap_or(u64::MAX).saturating_mul(options.work)
}

/// Who swaps.
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

/// In how many parts the way from the limit to the peak is cut: so far down blocks with a high recompute cost are
/// swapped, and the rest of the way others are recomputed. Beside the best of them two more are looked at.
const PARTS: u64 = 10;
const LOOKS: usize = 12;
/// How many of these are made: what promises most is not always the best in the end.
const MADE: usize = 4;
/// What promises so many times what the best takes is not made.
const HOPELESS: f64 = 4.0;

/// Tries swaps and recomputation together. The swaps that it begins with bring the load down to something between
/// limit and peak, and recomputation goes on from there; what looks best before it is placed is made. Then the
/// offloads are searched together with what is recomputed.
fn both(pass: &mut Pass<'_, '_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let quick = Arrangement { recomputes: true, swaps: Swaps::Offloads, choice: work / 12, work: work / 16 };
    let thorough = Arrangement { choice: work / 4, work: work / 2, ..quick };
    let mut found = promises::<LOOKS>((limit, peak), (0, PARTS), |load| look(pass, load, &quick))?;
    pass.allow(work);
    let mut first = None;
    for _ in 0..MADE {
        if pass.bound() <= 0.0 || pass.is_spent() {
            break;
        }
        let (promise, at) = take_best(&mut found);
        // Where there is no other, the first once more: the random choices are others then.
        let other = (promise < pass.best() * HOPELESS).then_some(at);
        let Some(at) = other.or(first) else { break };
        first = first.or(other);
        for swaps in [Swaps::Offloads, Swaps::Together] {
            if !pass.is_spent() && pass.offload_to(at)?.is_some() {
                pass.fit(&Arrangement { swaps, ..thorough })?;
            }
        }
    }
    Ok(())
}

/// What offloads down to a load promise, in ns.
fn look(pass: &mut Pass<'_, '_, '_>, load: u64, arrangement: &Arrangement<'_>) -> Result<f64, Error> {
    if pass.offload_to(load)?.is_none() {
        return Ok(f64::INFINITY);
    }
    Ok(pass.estimate(arrangement)?.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests;
