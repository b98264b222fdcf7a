//! A network into less memory: swap, then place over the changed trace.
//!
//! A policy makes a schedule whose load is within a target, at first the limit itself. Its positions are tightened at
//! unchanged time, the rewritten trace's stays are placed, and if the footprint is above the limit the target is
//! lowered by a part of what is too much, some times over. Last comes the schedule with everything away that may be.
//! [`Policy::Auto`] and [`Policy::Bayes`] try the other policies too and take what takes least time: neither is ever
//! worse than those it contains. Of equal times the first wins.
//!
//! What comes out has been accepted by [`verify::schedule`](crate::verify::schedule::schedule), over iterations that
//! repeat: persistent blocks may be on the host at both ends.

use super::swap::{self, Policy, Swapper};
use crate::place::{self, Solver};
use crate::simulate::{Device, Timing};
use crate::trace::{Event, Row, liveness, liveness::Stay};
use crate::verify::schedule::{self as verify, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, error::Buffer};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The most bytes that the footprint may have.
    pub limit: u64,
    /// The links to the host.
    pub device: Device,
    /// Who decides.
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

    /// A limit and a device; blocks of 1 MiB and more.
    #[must_use]
    pub const fn new(limit: u64, device: Device) -> Self {
        Self { limit, device, policy: Policy::Auto, least_bytes: 1 << 20, seed: 1, work: Self::DEFAULT_WORK }
    }
}

/// Memory for the result, which the caller lends; how long is told by [`Lengths`].
#[derive(Debug)]
pub struct Output<'a> {
    /// The rewritten trace.
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
    /// Rows and timings.
    pub rows: usize,
    /// Blocks, names and offsets.
    pub stays: usize,
}

impl Lengths {
    /// Enough for whatever becomes of this trace.
    #[must_use]
    pub fn of(rows: &[Row], block_count: usize) -> Self {
        let gaps = rows.iter().filter(|r| r.event.is_access()).count() + block_count;
        // Copy out, free, malloc and copy in; a copy out at the end.
        Self { rows: rows.len() + 4 * gaps + block_count, stays: liveness::stays(rows) + gaps }
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
    let judge = verify::workspace(rows, blocks, lengths.stays)
        .max(place::workspace(lengths.stays))
        .max(liveness::workspace(blocks))
        .max(swap::rows_workspace(blocks));
    swap::trace_workspace(rows, blocks).and(swap::workspace(rows, blocks)).and(judge)
}

/// How often the target is lowered.
const ATTEMPTS: u32 = 8;

/// Rewrites a trace so that its footprint is within a limit, at as little cost in time as the policy finds.
/// `block_count` is the number of block numbers that the rows use.
///
/// # Errors
/// [`Error::OverLimit`] with the least limit that is known to work; [`Error::Row`] for a trace that is not as
/// recorded; [`Error::Device`]; [`Error::BufferTooSmall`] if the output or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::fit::{self, Lengths, Options, Output};
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Stay, Event, Op, Row};
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
///     timings: &mut vec![Timing::default(); lengths.rows],
///     blocks: &mut vec![Block::default(); lengths.stays],
///     names: &mut vec![Stay::default(); lengths.stays],
///     offsets: &mut vec![0; lengths.stays],
/// };
/// let options = Options::new(8 << 20, Device::symmetric(12e9));
/// let fitted = fit::fit(&rows, 2, &options, Workspace::new(&mut words, &mut indices), output)?;
/// assert_eq!((fitted.original_peak, fitted.schedule.plan().peak()), (16 << 20, 8 << 20));
/// // The second operator waits for the copy out.
/// assert!(fitted.schedule.run().overhead() > 0.05);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn fit<'a>(
    original: &[Row],
    block_count: usize,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<Fitted<'a>, Error> {
    let lengths = Lengths::of(original, block_count);
    scratch.check(workspace(original.len(), block_count, lengths))?;
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    for (buffer, needed, got) in [
        (Buffer::Rows, lengths.rows, output.rows.len()),
        (Buffer::Timings, lengths.rows, output.timings.len()),
        (Buffer::Blocks, lengths.stays, output.blocks.len().min(output.names.len())),
        (Buffer::Offsets, lengths.stays, output.offsets.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    let mut scratch = scratch.reborrow();
    let trace = swap::Trace::new(original, block_count, options.least_bytes, &mut scratch)?;
    let swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
    let work = u64::try_from(original.len()).unwrap_or(u64::MAX).saturating_mul(options.work);
    let mut pass = Pass { block_count, options, swapper, scratch, output, work, len: 0, stays: 0 };
    let original_peak = pass.swapper.peak();
    let load_min = pass.swapper.load_min();
    let policy = pass.best()?;
    pass.prove(original, policy, original_peak, load_min)
}

/// The work on one trace.
struct Pass<'a, 's> {
    block_count: usize,
    options: &'s Options,
    swapper: Swapper<'s>,
    scratch: Workspace<'s>,
    output: Output<'a>,
    work: u64,
    /// How much of the output is in use.
    len: usize,
    stays: usize,
}

impl<'a> Pass<'a, '_> {
    /// Makes the best schedule of the policy, and of those it contains; the policy that made it.
    fn best(&mut self) -> Result<Policy, Error> {
        let contained: &[Policy] = match self.options.policy {
            Policy::Auto => &[Policy::Auto, Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
            Policy::Bayes => &[Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
            _ => &[self.options.policy],
        };
        let mut best: Option<(f64, Policy)> = None;
        for &policy in contained {
            let bound = best.map_or(f64::INFINITY, |(least, _)| least);
            if bound <= 0.0 {
                break;
            }
            if let Some(overhead) = self.fit_policy(policy, bound)? {
                best = Some((overhead, policy));
                self.swapper.keep_result();
            }
        }
        if let Some((_, policy)) = best {
            self.swapper.restore_result();
            self.place()?;
            return Ok(policy);
        }
        self.swapper.least_load();
        let least = self.place()?;
        if least <= self.options.limit && self.options.policy != Policy::Layer {
            return Ok(self.options.policy);
        }
        Err(Error::OverLimit { least, limit: self.options.limit })
    }

    /// Lowers the target until the placement fits; none if it does not, or takes as long as `bound`.
    fn fit_policy(&mut self, policy: Policy, bound: f64) -> Result<Option<f64>, Error> {
        let limit = self.options.limit;
        let mut target = limit;
        let mut work = self.work;
        let mut made = self.swapper.plan(policy, target, work);
        for _ in 0..ATTEMPTS {
            let Some(overhead) = made.filter(|&overhead| overhead < bound) else {
                return Ok(None);
            };
            self.swapper.tighten();
            let footprint = self.place()?;
            if footprint <= limit {
                return Ok(Some(overhead));
            }
            if policy == Policy::Layer {
                return Ok(None);
            }
            let lower = ((footprint - limit) / 3).max(limit / 512);
            target = target.saturating_sub(lower);
            work /= 2;
            made = if policy == Policy::Auto {
                self.swapper.lower(target, work)
            } else {
                self.swapper.plan(policy, target, work)
            };
        }
        Ok(None)
    }

    /// Writes the rows of the schedule and places its stays; the footprint.
    fn place(&mut self) -> Result<u64, Error> {
        let Output { rows, blocks, names, offsets, .. } = &mut self.output;
        self.len = self.swapper.rows(self.scratch.reborrow(), rows)?;
        let rows = rows.get(..self.len).unwrap_or_default();
        self.stays = liveness::lifetimes(rows, self.block_count, self.scratch.reborrow(), blocks, names)?;
        let blocks = blocks.get(..self.stays).unwrap_or_default();
        let offsets = offsets.get_mut(..self.stays).unwrap_or_default();
        let options = place::Options { seed: self.options.seed, ..place::Options::default() };
        Ok(place::place(Solver::Auto, blocks, &options, self.scratch.reborrow(), offsets)?.peak)
    }

    /// Has the result verified, and gives its rows their times.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    fn prove(self, original: &[Row], policy: Policy, original_peak: u64, load_min: u64) -> Result<Fitted<'a>, Error> {
        let Self { block_count, options, mut scratch, output, len, stays, .. } = self;
        let Output { rows, timings, blocks, names, offsets } = output;
        let rows = rows.get_mut(..len).unwrap_or_default();
        let timings = timings.get_mut(..len).unwrap_or_default();
        crate::simulate::simulate(original, rows, block_count, &options.device, scratch.reborrow(), timings)?;
        for (row, timing) in rows.iter_mut().zip(&*timings) {
            let copy = matches!(row.event, Event::SwapOut | Event::SwapIn);
            row.time_ns = libm::round(if copy { timing.reached } else { timing.end }) as u64;
        }
        let schedule = verify::schedule(
            (original, rows, block_count),
            offsets.get(..stays).unwrap_or_default(),
            (&options.device, true),
            &Constraints { alignment: 1, capacity: Some(options.limit) },
            scratch,
            Room {
                timings,
                blocks: blocks.get_mut(..stays).unwrap_or_default(),
                names: names.get_mut(..stays).unwrap_or_default(),
            },
        )?;
        Ok(Fitted { schedule, policy, original_peak, load_min })
    }
}
