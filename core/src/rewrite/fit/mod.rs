//! A network into less memory: swap, recompute, or both; then place over the changed trace.
//!
//! Steps:
//! 1. Swapping alone, by the [`Policy`]: a schedule whose load is within the limit, its positions tightened at unchanged
//!    time. [`Policy::Auto`] and [`Policy::Bayes`] try the other policies too and take what takes least time: neither is
//!    ever worse than those it contains. Of equal times the first wins.
//! 2. Second runs alone.
//! 3. Both: at some levels between limit and peak, blocks that are dear to make again are taken to be on the host until the
//!    load is within the level, and what is left to save is made again; then absences and second runs chosen together. The
//!    arrangements with the least estimated time are made.
//! 4. The stays of each are placed. Where the placement is above the limit, memory is lost between blocks: in those
//!    segments a part of what is too much is held back, and the means decide again, some times over. Last comes the
//!    schedule with everything away that may be.
//!
//! The least time wins, so that both together are never worse than either alone. What comes out has been accepted by
//! [`verify::schedule`](crate::verify::schedule::schedule), over iterations that repeat: persistent blocks may be on the
//! host at both ends.

mod pass;

use super::graph::{self, Graph};
use super::recompute::{self, Recomputer};
use super::swap::{self, Policy, Swapper};
use crate::simulate::{Device, Timing};
use crate::trace::{Recorded, Row, liveness, liveness::Stay};
use crate::verify::schedule::VerifiedSchedule;
use crate::{Block, Error, Workspace, WorkspaceLen, block, error::Buffer};
use pass::{Arrangement, Pass, Swaps};

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
    /// Smaller blocks stay where they are, in bytes.
    pub least_bytes: u64,
    /// Where random choices begin; the same seed gives the same result everywhere.
    pub seed: u64,
    /// How much the search may do for each row of the trace, in segments and gaps looked at.
    pub work: u64,
}

impl Options {
    /// A second for the networks of 5,000 rows.
    pub const DEFAULT_WORK: u64 = 5_000;

    /// A limit and a device; the blocks that are [worth copying](Device::least_worth_copying).
    #[must_use]
    pub fn new(limit: u64, device: Device) -> Self {
        let least_bytes = device.least_worth_copying();
        Self { limit, device, using: Using::ALL, policy: Policy::Auto, least_bytes, seed: 1, work: Self::DEFAULT_WORK }
    }
}

/// A means of saving memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Means {
    /// Blocks leave for the host while they are idle.
    Swap,
    /// Values are freed, and made again by the operators that made them.
    Recompute,
}

impl Means {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Swap, Self::Recompute];

    /// What people call it.
    ///
    /// ```
    /// use sublet_core::rewrite::fit::Means;
    /// assert!(Means::ALL.iter().all(|&m| Means::named(m.name()) == Some(m)));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swap => "swap",
            Self::Recompute => "recompute",
        }
    }

    /// The means of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    const fn bit(self) -> u32 {
        match self {
            Self::Swap => 1,
            Self::Recompute => 2,
        }
    }
}

/// A set of means.
///
/// ```
/// use sublet_core::rewrite::fit::{Means, Using};
/// use sublet_core::simulate::Device;
/// let swap = Using::NONE.with(Means::Swap);
/// assert!(swap.has(Means::Swap) && !swap.has(Means::Recompute));
/// let jetson = Device::named("jetson-orin").unwrap();
/// assert_eq!(Using::ALL.on(&jetson), Using::ALL.without(Means::Swap));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Using(u32);

impl Using {
    /// None.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(3);

    /// With a means.
    #[must_use]
    pub const fn with(self, means: Means) -> Self {
        Self(self.0 | means.bit())
    }

    /// Without a means.
    #[must_use]
    pub const fn without(self, means: Means) -> Self {
        Self(self.0 & !means.bit())
    }

    /// Whether a means is among them.
    #[must_use]
    pub const fn has(self, means: Means) -> bool {
        self.0 & means.bit() > 0
    }

    /// Those that save memory on a device: nothing leaves one that has no host beside it.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        if device.integrated || device.host_capacity == Some(0) { self.without(Means::Swap) } else { self }
    }
}

/// Memory for the result, which the caller lends; how long is told by [`Lengths`].
#[derive(Debug)]
pub struct Output<'a> {
    /// For the rewritten trace.
    pub rows: &'a mut [Row],
    /// When its rows happen.
    pub timings: &'a mut [Timing],
    /// Its stays as blocks.
    pub blocks: &'a mut [Block],
    /// Which stays they are.
    pub names: &'a mut [Stay],
    /// Where they lie.
    pub offsets: &'a mut [u64],
}

/// How long the slices of an [`Output`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Rows: the rewritten trace, and what it is chosen from.
    pub rows: usize,
    /// Timings, and the most rows of the result.
    pub timings: usize,
    /// Blocks, names and offsets.
    pub stays: usize,
}

impl Lengths {
    /// Enough for whatever becomes of this trace.
    #[must_use]
    pub fn of(rows: &[Row], block_count: usize) -> Self {
        let gaps = rows.iter().filter(|r| r.event.is_access()).count() + block_count;
        // Copy out, free, malloc and copy in; a copy out at the end.
        let timings = recompute::most_rows(rows.len()) + 4 * gaps + block_count;
        Self::for_result(rows.len(), timings, rows.len() + liveness::stays(rows) + gaps)
    }

    /// Those of a trace of so many rows, of which the result has no more rows and stays than these.
    #[must_use]
    pub const fn for_result(recorded: usize, rows: usize, stays: usize) -> Self {
        Self { rows: recompute::most_rows(recorded) + 2 * rows, timings: rows, stays }
    }
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
    /// The least load of Zhang et al. 2019: every gap over the peak away.
    pub load_min: u64,
}

/// Length of the workspace that [`fit`] needs for a trace of `rows` rows, and for the lengths of its output.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, lengths: Lengths) -> WorkspaceLen {
    swap::trace_workspace(rows, blocks).and(swap::workspace(rows, blocks)).max(liveness::workspace(blocks)).max(
        graph::workspace(rows, 2 * blocks)
            .and(recompute::workspace(rows, 2 * blocks))
            .and(pass::workspace(rows, blocks, lengths)),
    )
}

/// Rewrites a trace so that its footprint is within a limit, at as little cost in time as the policy finds.
///
/// # Errors
/// [`Error::OverLimit`] with the least footprint that was made, a limit that works where nothing runs again, and mostly where
/// something does; [`Error::Row`] for a trace that is not as
/// recorded; [`Error::TooManyBlocks`]; [`Error::Device`]; [`Error::BufferTooSmall`] if the output or the workspace is too
/// short.
///
/// ```
/// use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Stay, Event, Op, Recorded, Row};
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
///     blocks: &mut vec![Block::default(); lengths.stays],
///     names: &mut vec![Stay::default(); lengths.stays],
///     offsets: &mut vec![0; lengths.stays],
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
    mut scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<Fitted<'a>, Error> {
    block::check_count(recorded.blocks)?;
    let Recorded { rows, blocks, .. } = *recorded;
    let lengths = Lengths::of(rows, blocks);
    scratch.check(workspace(rows.len(), blocks, lengths))?;
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    for (buffer, needed, got) in [
        (Buffer::Rows, lengths.rows, output.rows.len()),
        (Buffer::Timings, lengths.timings, output.timings.len()),
        (Buffer::Blocks, lengths.stays, output.blocks.len().min(output.names.len())),
        (Buffer::Offsets, lengths.stays, output.offsets.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    // The passes take it for granted that the rows can follow each other.
    liveness::lifetimes(rows, blocks, scratch.reborrow(), output.blocks, output.names)?;
    let (original_peak, load_min) = {
        let mut scratch = scratch.reborrow();
        let trace = swap::Trace::new(rows, blocks, options.least_bytes, &mut scratch)?;
        let mut swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
        (swapper.peak(), swapper.load_min())
    };
    let mut scratch = scratch.reborrow();
    let graph = Graph::new(recorded, rows, 2 * blocks, &mut scratch)?;
    let recomputer = Recomputer::new(&graph, &options.device, original_peak >> LEAST, options.seed, &mut scratch);
    let mut pass = Pass::new(recorded, options, recomputer, scratch, output);
    joint(&mut pass, recorded, options, original_peak)?;
    let (schedule, policy) = pass.prove()?;
    Ok(Fitted { schedule, policy, original_peak, load_min })
}

/// What is smaller than the original peak over 2 to the power of this is not worth running anything again for.
const LEAST: u32 = 14;

/// What is swapped with no more delay than this part of the original's time is tried before anything is made again.
const HIDDEN: f64 = 0.02;

/// Tries the arrangements of the means that are asked for.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn joint(pass: &mut Pass<'_, '_>, recorded: &Recorded<'_>, options: &Options, peak: u64) -> Result<(), Error> {
    let using = options.using.on(&options.device);
    let time = recorded.rows.last().map_or(0, |r| r.time_ns) as f64;
    let rows = recorded.rows.len();
    let (swap, recompute) = (using.has(Means::Swap), using.has(Means::Recompute));
    let work = u64::try_from(rows).unwrap_or(u64::MAX).saturating_mul(options.work);
    let policies: &[Policy] = match options.policy {
        Policy::Auto => &[Policy::Auto, Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
        Policy::Bayes => &[Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
        _ => core::slice::from_ref(&options.policy),
    };
    let swapping =
        Arrangement { again: false, swaps: if swap { Swaps::By(policies) } else { Swaps::None }, choice: 0, work };
    let again = Arrangement { again: true, swaps: Swaps::None, choice: work, work };
    if swap && recompute {
        pass.know_gaps()?;
    }
    // What would be swapped without much delay is tried first, and what is sure to be slow last.
    let hidden = !(swap && recompute) || pass.quickest()? <= HIDDEN * time;
    if hidden {
        pass.fit(&swapping)?;
    }
    if recompute && pass.bound() > 0.0 {
        pass.fit(&again)?;
        if swap {
            both(pass, options.limit, peak, work)?;
        }
    }
    if !hidden {
        pass.fit(&swapping)?;
    }
    if pass.bound().is_finite() {
        return Ok(());
    }
    let mut least = pass.least(&swapping, peak)?;
    if recompute && least > options.limit {
        least = least.min(pass.least(&again, peak)?);
        if swap && least > options.limit {
            least = least.min(pass.least(&Arrangement { swaps: swapping.swaps, ..again }, peak)?);
        }
    }
    if least > options.limit { Err(Error::OverLimit { least, limit: options.limit }) } else { Ok(()) }
}

/// In how many parts the way from the limit to the peak is cut: so far down the blocks are swapped that are dear to make
/// again, and the rest of the way others are made again. Beside the best of them two more are looked at.
const PARTS: u64 = 10;
const LOOKS: usize = 12;
/// How many of these are made: what promises most is not always the best in the end.
const MADE: usize = 2;

/// Tries swaps and second runs together. The swaps that it takes for granted bring the load down to something between
/// limit and peak, and what is made again goes on from there; what looks best before it is placed is made. Then the
/// absences are searched together with what runs again.
fn both(pass: &mut Pass<'_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let quick = Arrangement { again: true, swaps: Swaps::Absences, choice: work / 8, work: work / 16 };
    let thorough = Arrangement { choice: work / 2, work: work / 2, ..quick };
    let step = peak.saturating_sub(limit) / PARTS;
    // What each level promises, and the level.
    let mut found = [(f64::INFINITY, limit); LOOKS];
    for (found, part) in found.iter_mut().zip(0..PARTS) {
        *found = (look(pass, limit + step * part, &quick)?, limit + step * part);
    }
    let (_, near) = take_best(&mut found.clone());
    for (found, at) in found.iter_mut().rev().zip([near.saturating_sub(step / 2).max(limit), near + step / 2]) {
        *found = (look(pass, at, &quick)?, at);
    }
    for _ in 0..MADE {
        let (promise, at) = take_best(&mut found);
        if promise.is_infinite() {
            break;
        }
        for swaps in [Swaps::Absences, Swaps::Together] {
            let thorough = Arrangement { swaps, ..thorough };
            if pass.absent(at)?.is_some() && (swaps == Swaps::Absences || worth(pass, &thorough)?) {
                pass.absent(at)?;
                pass.fit(&thorough)?;
            }
        }
    }
    Ok(())
}

/// The level that promises most, the first of equals, which then promises nothing any more.
fn take_best(found: &mut [(f64, u64)]) -> (f64, u64) {
    let best = found.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or((f64::INFINITY, 0), |best| core::mem::replace(best, (f64::INFINITY, best.1)))
}

/// What absences down to a load promise, in ns.
fn look(pass: &mut Pass<'_, '_>, load: u64, arrangement: &Arrangement<'_>) -> Result<f64, Error> {
    if pass.absent(load)?.is_none() {
        return Ok(f64::INFINITY);
    }
    Ok(pass.estimate(arrangement)?.unwrap_or(f64::INFINITY))
}

/// Whether an arrangement promises more than the best.
fn worth(pass: &mut Pass<'_, '_>, arrangement: &Arrangement<'_>) -> Result<bool, Error> {
    Ok(pass.estimate(arrangement)?.is_some_and(|found| found < pass.bound()))
}

#[cfg(test)]
mod tests;
