//! The traces in which swaps and recomputation are planned. For each order of the operators that is tried there are
//! two: one with masks and in-place reuse, and one without. The first is left out where masks and in-place reuse change
//! nothing. A mask is one bit for each element of a block that a ReLU reads or writes; it is kept for the gradient in
//! place of the block. In-place reuse lets an operator write its output over an input that nobody reads later.
//!
//! The orders are tried one after the other. The *present* order is the one that is being tried.

use super::pass::Pass;
use super::stage::{Base, Stage};
use super::{Means, Options, joint, least_overhead};
use crate::rewrite::gaps::Gaps;
use crate::rewrite::means::order::{self, Reordering};
use crate::rewrite::means::recompute::Recomputer;
use crate::rewrite::means::swap::Swapper;
use crate::rewrite::means::{self, Rewritten};
use crate::rewrite::program::Program;
use crate::rewrite::values::Values;
use crate::trace::{Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen};

/// The orders of the operators that are tried, one after the other; `None` is the recorded one.
const ORDERS: [Option<Reordering>; 3] = [None, Some(Reordering::Early), Some(Reordering::LeastLoad)];

/// If no schedule fits the limit that was asked for, the lowest limit within which one fits is searched for, by
/// bisection. At most this many limits are tried for each order of the operators. The upper end of the interval is the
/// least footprint of the schedules made before. The lower end is half of that footprint, or the highest limit that a
/// lower bound proves too low ([`BOUNDS`]), if there is one.
const PROBES: u32 = 7;
/// Before lower limits are tried ([`PROBES`]), a lower bound is computed for this many limits, to prove some of them
/// too low. Let F be the least footprint of the schedules made before: the limits are found by bisection between F / 2
/// and F. Where swaps may be used, no bound is computed: F is mostly the lowest limit already, and the bound would lead
/// to searches just below F, which take long.
const BOUNDS: u32 = 14;
/// Several limits are tried to find the lowest one within which a schedule fits. For each of them, the searches may do
/// the work that the options allow, divided by this.
const PROBE: u64 = 16;

/// Small blocks are not freed for recomputation, as they would save little: those with fewer bytes than the max load of
/// the recording, with its operators in the present order, divided by 2^`LEAST`.
const LEAST: u32 = 14;

/// A recorded trace, and room for three traces that are made from it, for one order of the operators at a time: its
/// rows in that order, these rows with masks, and the rows with masks and in-place reuse.
pub(super) struct Orders<'s> {
    pub(super) recorded: &'s Recorded<'s>,
    pub(super) options: &'s Options,
    /// The rows of the recorded trace, with the operators in the present order, and with the sizes of blocks rounded up
    /// to the alignment.
    pub(super) rows: &'s mut [Row],
    /// Room for the trace with bit masks, which is made from `rows`: of a block that a ReLU reads or writes, only one
    /// bit for each element is kept for the gradient.
    pub(super) masked: &'s mut [Row],
    /// Room for the trace with bit masks and in-place reuse, which is made from the trace with bit masks: operators
    /// write their output over an input that nobody reads later.
    pub(super) shared: &'s mut [Row],
}

/// How many rows have to be lent to [`Orders::new`] for a recording of `recorded` rows.
pub(super) const fn rows(recorded: usize) -> usize {
    recorded + 3 * means::most_rows(recorded)
}

/// Length of the workspace that [`Orders::each`] needs for a recording of `rows` rows and `blocks` blocks.
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks)
        .and(Gaps::workspace(rows, blocks))
        .and(Swapper::workspace(rows, blocks))
        .max(order::workspace(rows, blocks))
        .max(means::workspace(rows, blocks))
}

impl<'s> Orders<'s> {
    /// Divides the rows of `out` into room for three traces: the recorded one in some order of the operators, one with
    /// bit masks, and one with bit masks and in-place reuse. [`rows`] says how many rows `out` must have.
    pub(super) fn new(recorded: &'s Recorded<'s>, options: &'s Options, out: &'s mut [Row]) -> Self {
        let (rows, out) = out.split_at_mut_checked(recorded.rows.len()).unwrap_or_default();
        let (masked, shared) = out.split_at_mut_checked(means::most_rows(rows.len())).unwrap_or_default();
        Self { recorded, options, rows, masked, shared }
    }

    /// Makes the traces for each order of the operators in turn, and calls `then` with them and with `stage`, which
    /// keeps the best schedule. Returns `stage`. Ends once the best schedule adds at most `most` ns to the recorded
    /// trace, or once the caller has ended the work. `Err` if a row of the trace is invalid, if a size is too large to
    /// be rounded up, or if `then` fails.
    pub(super) fn each<'a, 'w>(
        &mut self,
        most: f64,
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
        then: &mut dyn FnMut(&Bases<'_>, Stage<'a, 'w>, Workspace<'_>) -> Result<Stage<'a, 'w>, Error>,
    ) -> Result<Stage<'a, 'w>, Error> {
        let Self { recorded: original, options, .. } = *self;
        for reordering in ORDERS {
            if stage.overhead() <= most || stage.stopped() {
                break;
            }
            let made = self.make(reordering, scratch.reborrow(), &mut || stage.kept.watched.stops())?;
            if !made || stage.stopped() {
                continue;
            }
            stage.kept.begin_order(original.rows.len());
            let recorded = &Recorded { rows: &*self.rows, ..*original };
            let (peak, load_min) = loads(recorded, options, scratch.reborrow())?;
            let plain = Rewritten { rows: recorded.rows, shared: recorded.rows, in_place: false };
            let (using, out) = (options.using.on(&options.device), [&mut *self.masked, &mut *self.shared]);
            let rich = means::rewrite(recorded, original, (using, options.alignment), scratch.reborrow(), out)?;
            let rich = (rich.shared != plain.rows).then_some(rich);
            let starts = [rich, Some(plain)].map(|start| start.map(|trace| Base { original, trace, reordering }));
            stage = then(&Bases { recorded, options, starts, peak, load_min }, stage, scratch.reborrow())?;
        }
        Ok(stage)
    }

    /// Writes the recorded trace to `self.rows`, with its operators in the order `reordering` (`None`: as recorded),
    /// and with sizes rounded up to the alignment. Returns false if the options do not allow another order, or if none
    /// is found. The search for an order ends early once `stops` returns true. `Err` if a row of the trace is invalid,
    /// or a size is too large to be rounded up.
    fn make(
        &mut self,
        reordering: Option<Reordering>,
        scratch: Workspace<'_>,
        stops: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        match reordering {
            None => {
                for (row, &r) in self.rows.iter_mut().zip(self.recorded.rows) {
                    *row = r;
                }
            }
            Some(_) if !self.options.using.has(Means::Order) => return Ok(false),
            Some(reordering) => {
                if !order::rewrite(self.recorded, reordering, scratch, self.rows, stops)? {
                    return Ok(false);
                }
            }
        }
        // Sizes are rounded up so that the passes count the bytes that the placement takes.
        for r in &mut *self.rows {
            let bytes = r.bytes.checked_next_multiple_of(self.options.alignment);
            r.bytes = bytes.ok_or(Error::SizeOverflow { block: r.block })?;
        }
        Ok(true)
    }
}

/// Returns two loads of a trace, in bytes. The first is its max load. The second is the max load that is left after
/// some swaps (`load_min` of Zhang et al. 2019): every block that can be off the device while the operator with the max
/// load runs is swapped out for that time. Both count the sizes of `recorded`, which [`Orders::make`] has rounded up.
/// `Err` if a row of the trace is invalid.
fn loads(recorded: &Recorded<'_>, options: &Options, mut scratch: Workspace<'_>) -> Result<(u64, u64), Error> {
    let mut scratch = scratch.reborrow();
    let program = Program::new(recorded.rows, recorded.blocks, &mut scratch)?;
    let mut scratch = scratch.reborrow();
    let gaps = Gaps::new(&program, options.swappable(), &mut scratch);
    let mut scratch = scratch.reborrow();
    let mut swapper = Swapper::new(&gaps, &options.device, options.seed, &mut scratch);
    Ok((swapper.peak(), swapper.load_min()))
}

/// The traces in which swaps and recomputation are planned, for one order of the operators. They are the recording in
/// this order and, if bit masks or in-place reuse change it, the trace with these.
pub(super) struct Bases<'s> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    /// The traces in which swaps and recomputation are planned, in the order in which they are tried. The first has bit
    /// masks and in-place reuse; it is `None` if these change nothing. The second is the recording, and is always
    /// there.
    starts: [Option<Base<'s>>; 2],
    /// The max load, in bytes, of the recording with its operators in the present order. What masks and in-place reuse
    /// save is not subtracted.
    pub(super) peak: u64,
    /// The max load, in bytes, that is left after some swaps: every block that can be off the device while the operator
    /// with the max load runs is swapped out for that time (`load_min` of Zhang et al. 2019).
    pub(super) load_min: u64,
}

impl Bases<'_> {
    /// Searches for schedules within the limit by the ways to save memory that `options` allow, alone and together.
    /// Does so for each trace of the present order of the operators. Ends once the best schedule adds at most `most` ns
    /// to the recorded trace. Tries nothing if a lower bound proves that no schedule in this order is within the limit.
    /// `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn fit<'a, 'w>(
        &self,
        options: &Options,
        most: f64,
        stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
    ) -> Result<Stage<'a, 'w>, Error> {
        if self.is_too_low(options.limit, scratch.reborrow())? {
            return Ok(stage);
        }
        self.each(options, most, stage, scratch, &mut |pass| joint(pass, self.recorded, options, self.peak))
    }

    /// Calls `then` for each trace of the present order of the operators, one after the other. The argument of `then`
    /// is a [`Pass`], which has the trace and does the work on it. Ends once the best schedule adds at most `most` ns
    /// to the recorded trace, or once the caller has ended the work. `Err` if a row is invalid or `then` fails.
    pub(super) fn each<'a, 'w>(
        &self,
        options: &Options,
        most: f64,
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
        then: &mut dyn FnMut(&mut Pass<'a, 'w, '_>) -> Result<(), Error>,
    ) -> Result<Stage<'a, 'w>, Error> {
        let &Self { recorded, starts, peak, .. } = self;
        for base in starts.into_iter().flatten() {
            let mut scratch = scratch.reborrow();
            let program = Program::new(base.trace.rows, recorded.numbers(), &mut scratch)?;
            let mut scratch = scratch.reborrow();
            let values = Values::new(recorded, &program, &mut scratch);
            let mut scratch = scratch.reborrow();
            let mut recomputer = Recomputer::new(&values, peak >> LEAST, options.seed, &mut scratch);
            if base.trace.in_place {
                recomputer.work_in_place();
            }
            // The cutoff that follows from the schedules of one trace does not hold for the next trace. Only where a
            // means is tried alone, the cutoff is set from the best schedule of all traces.
            stage.forget();
            let mut pass = Pass::new(recorded, options, base, recomputer, scratch, stage);
            then(&mut pass)?;
            stage = pass.into_stage();
            if stage.overhead() <= most || stage.stopped() {
                break;
            }
        }
        Ok(stage)
    }

    /// Searches for the lowest limit, in bytes, within which a schedule fits, and returns the lowest that was found.
    /// The search bisects an interval. The upper end is `least`, a limit that is known to work. The lower end is half
    /// of `least`, or the highest limit that a lower bound proves too low, if there is one. The limit in the options
    /// does not change which limits are tried; it only ends the search, once a schedule fits it. So a later fit to the
    /// returned limit finds a schedule too: if its other tries fail, it makes this same search, and finds the same
    /// schedule.
    pub(super) fn least_limit<'a, 'w>(
        &self,
        mut least: u64,
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
    ) -> Result<(Stage<'a, 'w>, u64), Error> {
        let options = self.options;
        let mut low = least / 2;
        let mut part = low / 2;
        let bounds = if options.using.on(&options.device).has(Means::Swap) { 0 } else { BOUNDS };
        for _ in 0..bounds {
            if self.is_too_low(low + part, scratch.reborrow())? {
                low += part;
            }
            part /= 2;
        }
        for _ in 0..PROBES {
            // The footprint of a schedule for a higher limit may be below a limit that failed: then the search ends.
            let Some(between) = least.checked_sub(low).filter(|&bytes| bytes > 0) else { break };
            let limit = low + between / 2;
            let probe = Options { limit, work: options.work / PROBE, ..*options };
            stage = self.fit(&probe, f64::MAX, stage, scratch.reborrow())?;
            match stage.kept.footprint() {
                None => low = limit,
                // A fit to this footprint probes the same limits, and so finds this schedule again.
                Some(footprint) => {
                    least = footprint;
                    if footprint <= options.limit {
                        break;
                    }
                    stage.kept.clear();
                }
            }
            if stage.stopped() || stage.kept.is_spent() {
                break;
            }
        }
        Ok((stage, least))
    }

    /// Whether a lower bound proves that no schedule with the present order of the operators is within `limit` bytes.
    /// `Err` if a row of the trace is invalid or the workspace is too short.
    fn is_too_low(&self, limit: u64, scratch: Workspace<'_>) -> Result<bool, Error> {
        let using = self.options.using.without(Means::Order);
        Ok(least_overhead(self.recorded, &Options { limit, using, ..*self.options }, scratch)?.is_infinite())
    }
}
