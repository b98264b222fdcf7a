//! The work on one trace: combinations of swaps and recomputation are tried, and the best schedule is kept. An
//! *arrangement* is such a combination, with the work that the searches for it may do.
//!
//! Recomputation is planned in three ways: by *walks* over the operators, which free values where memory runs out and
//! recompute them before their next use; by an exact search, where there are few values; and by the *segments* of Chen
//! et al. 2016, whose values are freed together and recomputed together. Where a placement is above the limit, the next
//! plan gets *headroom*: bytes held back below the limit. A schedule is not worth making if it adds at least a certain
//! time to the original: the *cutoff*.

use super::carried;
use super::lower_bound::{FEW, takes_at_least};
use super::stage::{Base, Stage};
use super::trial::{Outcome, Swaps, Trial, WORK_PER_BLOCK, part};
use super::watch::Strategy;
use super::{Lengths, Means, Options, Using, interim_rows, lower_bound_workspace};
use crate::place::{self, Solver};
use crate::rewrite::flat::{self, Flat};
use crate::rewrite::gaps::Gaps;
use crate::rewrite::means::recompute::{self, Recomputer};
use crate::rewrite::means::swap::{Policy, Swapper};
use crate::rewrite::means::{self, in_place};
use crate::rewrite::program::Program;
use crate::rewrite::script::Cost;
use crate::rewrite::script::emit::Emitter;
use crate::trace::{Op, Recorded, liveness};
use crate::verify::schedule as verify;
use crate::{Error, Workspace, WorkspaceLen};

/// How many plans of recomputation are made, at most, where nothing is swapped. Each has more headroom below the limit
/// than the one before, whose placement was above the limit.
const CHOICES: u32 = 10;
/// Where a placement is above the limit, recomputation is planned again with more headroom below it. Each such plan may
/// do the work of the first plan divided by this.
const LATER: u64 = 12;
/// While no schedule fits, the budget of work is [`VAIN`] times the sum of this and the work of one search for swaps,
/// all counted in blocks placed ([`patience`]).
const BLOCKS: u64 = 2_000_000;
/// While no schedule fits, the budget of work is this many times a sum: [`BLOCKS`] blocks placed, plus the work of one
/// search for swaps ([`patience`]). All traces that are tried share it: up to two for each order of the operators.
const VAIN: u64 = 20;

/// The work that may be done until a first schedule within the memory limit is found, counted in blocks placed. All
/// traces that are tried share it: up to two for each order of the operators. It grows with `work`, which is what one
/// search for swaps may do, counted in operators and idle times of blocks looked at. [`WORK_PER_BLOCK`] of these count
/// as one block placed.
pub(super) const fn patience(work: u64) -> u64 {
    VAIN * (BLOCKS + work / WORK_PER_BLOCK)
}

/// A combination of swaps and recomputation that is tried, and the work that the searches for it may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrangement<'p> {
    /// Whether values are recomputed.
    pub(super) recomputes: bool,
    /// How swaps are planned.
    pub(super) swaps: Swaps<'p>,
    /// The work that the search for recomputation may do, in accesses and values looked at.
    pub(super) choice: u64,
    /// The work that the search for swaps may do, in operators and idle times of blocks looked at.
    pub(super) work: u64,
}

impl Arrangement<'_> {
    /// Whether values are swapped, recomputed, both or neither.
    const fn strategy(&self) -> Strategy {
        match (self.recomputes, self.swaps) {
            (false, Swaps::None) => Strategy::Free,
            (false, _) => Strategy::Swap,
            (true, Swaps::None) => Strategy::Recompute,
            (true, Swaps::By(_)) => Strategy::RecomputeThenSwap,
        }
    }
}

/// How much is recomputed before swaps are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    /// The load down to which values are recomputed, before swaps lower it to the limit.
    pub(super) target: Target,
    /// Which values may be recomputed: those in the first `cheap` of [`Level::ALL`] parts of all values that can be.
    /// The parts have equal bytes, and the first ones hold the values with the least recompute cost per byte.
    pub(super) cheap: u64,
}

/// How far recomputation lowers the load, the bytes alive while an operator runs. Swaps then lower it to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A target that is the same for every operator: values are recomputed until at most this many bytes are alive
    /// while any operator runs.
    Load(u64),
    /// A target of its own for each operator: the limit, plus the bytes of values that swaps can keep on the host while
    /// the operator runs, if the iteration takes this many ns longer. It is assumed that only values which may not be
    /// recomputed are swapped.
    Carried(u64),
}

impl Level {
    /// The bytes of all values that can be recomputed are divided into this many equal parts. [`Level::cheap`] says how
    /// many of the parts may be recomputed; if it is `ALL`, every value may.
    pub(super) const ALL: u64 = 128;
}

/// The work on one trace: the trace with which it begins, and the memory in which schedules are made from it.
pub(super) struct Pass<'a, 'w, 's> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    base: Base<'s>,
    recomputer: Recomputer<'s>,
    scratch: Workspace<'s>,
    stage: Stage<'a, 'w>,
}

/// Length of the workspace that a [`Pass`], the work on one trace, needs for a recording of `rows` rows and `blocks`
/// blocks, besides the workspaces of its recomputer and of its [`Stage`]. It is enough for [`Stage::prove`] too.
pub(super) const fn workspace(rows: usize, blocks: usize, lengths: Lengths) -> WorkspaceLen {
    let (base, most, residencies) = (means::most_rows(rows), interim_rows(rows), lengths.residencies);
    let judge = verify::workspace(rows, blocks, residencies)
        .max(place::workspace_up_to(Solver::Auto, residencies))
        .max(liveness::workspace(2 * blocks))
        .max(liveness::merge_workspace(2 * blocks))
        .max(flat::making_workspace(rows, blocks))
        .max(lower_bound_workspace(most, most));
    let trial = Flat::workspace(most).and(swapping(most, most)).and(judge);
    let absent = swapping(2 * base, 2 * blocks);
    let headroom = WorkspaceLen { words: base + 1, indices: base + 2 };
    let shared = in_place::workspace(rows, recompute::most_rows(base), blocks);
    let exact = recompute::segments::workspace(base, 2 * blocks).max(recompute::exact::workspace(base, 2 * blocks));
    let bound = lower_bound_workspace(rows, blocks);
    let script = Emitter::workspace(recompute::most_rows(base), 2 * blocks);
    trial
        .max(script)
        .max(carried::workspace(base, 2 * blocks))
        .max(shared)
        .max(headroom)
        .max(absent)
        .max(exact)
        .max(bound)
}

/// Length of the workspace of a [`Swapper`], which plans swaps, and of the tables that it plans with: the operators
/// with their accesses, and the idle times of blocks.
const fn swapping(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks).and(Gaps::workspace(rows, blocks)).and(Swapper::workspace(rows, blocks))
}

impl<'a, 'w, 's> Pass<'a, 'w, 's> {
    pub(super) const fn new(
        recorded: &'s Recorded<'s>,
        options: &'s Options,
        base: Base<'s>,
        recomputer: Recomputer<'s>,
        scratch: Workspace<'s>,
        stage: Stage<'a, 'w>,
    ) -> Self {
        Self { recorded, options, base, recomputer, scratch, stage }
    }

    /// How long the recording takes, in ns.
    pub(super) fn original_ns(&self) -> u64 {
        self.recorded.time_ns()
    }

    /// Whether the trace of this pass has neither masks nor in-place reuse. Its operators may be in another order than
    /// the recorded one.
    pub(super) fn is_as_recorded(&self) -> bool {
        self.base.trace.shared == self.recorded.rows
    }

    pub(super) fn into_stage(self) -> Stage<'a, 'w> {
        self.stage
    }

    /// Makes schedules with swaps, with recomputation or with neither, as `arrangement` says, which must not ask for
    /// both. A schedule that fits is kept if it takes less time than the best so far. `Err` if a row of the trace is
    /// invalid or the workspace is too short.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(super) fn fit(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        if self.stops() || self.is_enough() {
            return Ok(());
        }
        if !arrangement.recomputes {
            return self.run(arrangement).map(|_| ());
        }
        let limit = self.options.limit;
        self.recomputer.headroom().fill(0);
        let mut walked = self.walk(limit, arrangement.choice, self.cutoff());
        walked = self.exactly(walked);
        let mut placed = None;
        for choice in 0..CHOICES {
            let Some(Cost { excess: 0, delay }) = walked else { break };
            if delay as f64 >= self.cutoff() {
                break;
            }
            // If two plans in a row have equal costs, they are taken to be the same plan, and the second is not placed:
            // it takes more headroom to get another plan. But a proved optimum is placed in any case, as it may be
            // another plan of equal cost.
            if walked != placed || self.recomputer.is_optimum() {
                if self.run(arrangement)? != Outcome::Over {
                    break;
                }
                placed = walked;
            }
            if self.stopped() || self.is_spent() {
                break;
            }
            self.add_headroom(part(choice, CHOICES));
            walked = self.recomputer.replan(limit, arrangement.choice / LATER);
            self.stage.kept.spend(self.recomputer.work_done() / WORK_PER_BLOCK);
            walked = self.exactly(walked);
        }
        self.segments(arrangement)
    }

    /// Estimates the time, in ns, that a schedule adds to the original if it recomputes as much as `level` says and
    /// then swaps until the load is within the limit. Nothing is placed. Returns none:
    /// - if the limit is missed;
    /// - if the schedule is known to add at least `most` ns, or so much that it is not worth making;
    /// - if the budget of work is used up, or the caller has ended the work.
    ///
    /// `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn promise(
        &mut self,
        arrangement: &Arrangement<'_>,
        level: Level,
        most: f64,
    ) -> Result<Option<f64>, Error> {
        let limit = self.options.limit;
        let most = most.min(self.cutoff());
        if self.stops() || self.is_spent() || !self.recompute_to(arrangement, level, most)? {
            return Ok(None);
        }
        self.stage.kept.spend(arrangement.work / WORK_PER_BLOCK);
        self.trial(arrangement, |trial| {
            if trial.takes_at_least(most)? {
                return Ok(None);
            }
            trial.swapper.clear_headroom();
            let planned = trial.counted(|swapper| swapper.search(limit, arrangement.work));
            Ok(planned.map(|overhead| overhead + trial.added))
        })
    }

    /// Recomputes as much as `level` says and searches for swaps until a schedule fits. If `climbs`, the search then
    /// goes on from that schedule to better ones. Returns the time, in ns, that the best of these schedules adds to the
    /// original. None if no schedule fits or is worth making, if the budget of work is used up, or if the caller has
    /// ended the work. `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn fit_level(
        &mut self,
        arrangement: &Arrangement<'_>,
        level: Level,
        climbs: bool,
    ) -> Result<Option<f64>, Error> {
        let most = self.cutoff();
        if self.stops() || self.is_spent() || !self.recompute_to(arrangement, level, most)? {
            return Ok(None);
        }
        self.trial(arrangement, |trial| {
            if trial.takes_at_least(most)? { Ok(None) } else { trial.level(arrangement.work, climbs) }
        })
    }

    /// Plans to recompute as much as `level` says, by walks over the operators, which free values where memory runs
    /// out. A plan by walks that adds more than `most` ns is dropped. If `level` has the same load for all operators
    /// and lets every value be recomputed, the segments of Chen et al. 2016 are tried too. Their plan is kept if it
    /// takes less time, or if the walks do not come down to the load of `level`. Returns whether there is a plan; its
    /// load may be above that of `level`. `Err` if a row of the trace is invalid or the workspace is too short.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn recompute_to(&mut self, arrangement: &Arrangement<'_>, level: Level, most: f64) -> Result<bool, Error> {
        self.recomputer.headroom().fill(0);
        self.recomputer.spare((level.cheap, Level::ALL));
        let load = match level.target {
            Target::Load(load) => load,
            Target::Carried(delay) => {
                carried::hold_back(&mut self.recomputer, self.options, delay, self.scratch.reborrow())
            }
        };
        let walked = self.walk(load, arrangement.choice, most);
        self.recomputer.spare((Level::ALL, Level::ALL));
        let within = walked.filter(|walked| walked.excess == 0);
        let most = within.map_or(f64::INFINITY, |walked| walked.delay as f64);
        let segments = level == Level { target: Target::Load(load), cheap: Level::ALL }
            && self.recomputer.segments(load, most, 0, self.scratch.reborrow())?.is_some();
        Ok(walked.is_some() || segments)
    }

    /// Plans the recomputation that is proved to take least time of all within the limit, if there are few enough
    /// values for an exact search. `walked` is the cost of the plan found before, none if there is none. Returns the
    /// cost of the new plan if it is better, otherwise `walked`.
    fn exactly(&mut self, walked: Option<Cost>) -> Option<Cost> {
        self.recomputer.exactly(self.options.limit, walked, self.scratch.reborrow())
    }

    /// Plans recomputation that brings the load down to `limit` bytes, as far as it can. The search ends after about
    /// `choice` accesses and values looked at, and counts them as work spent. Returns the cost of the best plan; none
    /// if no plan was completed that adds at most `most` ns to the original.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    fn walk(&mut self, limit: u64, choice: u64, most: f64) -> Option<Cost> {
        let walked = self.recomputer.plan(limit, choice, most as u64);
        self.stage.kept.spend(self.recomputer.work_done() / WORK_PER_BLOCK);
        walked
    }

    /// Makes schedules from the plans of Chen et al. 2016, in which the values of some operators in a row are freed
    /// together and recomputed together. Takes the plans that are within the limit and whose added time is below the
    /// cutoff. Each schedule also has the swaps that `arrangement` asks for, if any. `Err` if a row of the trace is
    /// invalid or the workspace is too short.
    fn segments(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        self.recomputer.headroom().fill(0);
        let mut tried = 0;
        loop {
            let (limit, most) = (self.options.limit, self.cutoff());
            let scratch = self.scratch.reborrow();
            let Some(plan) = self.recomputer.segments(limit, most, tried, scratch)? else {
                return Ok(());
            };
            tried |= 1 << plan;
            self.run(arrangement)?;
        }
    }

    /// Makes schedules with the recomputation and the swaps that `arrangement` asks for, and places them. What is
    /// recomputed has been planned before; the swaps are planned here. Returns whether a schedule fits and, if none
    /// does, why. `Err` if a row of the trace is invalid or the workspace is too short.
    fn run(&mut self, arrangement: &Arrangement<'_>) -> Result<Outcome, Error> {
        let &Arrangement { swaps, work, .. } = arrangement;
        self.trial(arrangement, |trial| trial.run(swaps, work))
    }

    /// Whether the budget of work is used up. While no schedule fits, all orders of the operators share one budget
    /// ([`patience`]); once one fits, each order has a budget of its own.
    pub(super) const fn is_spent(&self) -> bool {
        self.stage.kept.is_spent()
    }

    /// Whether a schedule fits, and the budget of work for the present order of the operators is used up.
    const fn is_enough(&self) -> bool {
        self.stage.kept.is_enough()
    }

    /// Tells the caller's watch function that work goes on; returns whether it has ended the work.
    fn stops(&mut self) -> bool {
        self.stage.kept.watched.stops()
    }

    /// Whether the caller's watch function has ended the work.
    pub(super) const fn stopped(&self) -> bool {
        self.stage.kept.watched.stopped()
    }

    /// The cutoff, in ns: a schedule that adds at least this much time to the original is not worth making.
    pub(super) fn cutoff(&self) -> f64 {
        self.stage.kept.cutoff()
    }

    /// The time, in ns, that the best schedule adds to the original; infinite if no schedule fits.
    pub(super) fn best(&self) -> f64 {
        self.stage.overhead()
    }

    /// Tries `arrangement`, a combination that either swaps or recomputes, but not both. Schedules are made even if
    /// they are planned to take a little longer than the best one, as the search may go on from them to better ones.
    /// For this, the cutoff on the added time is set anew ([`Kept::loosen`](super::stage::Kept::loosen)). In the end it
    /// is lowered to what it was before, unless it is lower already. `Err` if a row of the trace is invalid or the
    /// workspace is too short.
    pub(super) fn fit_alone(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        let others = self.stage.kept.loosen();
        self.fit(arrangement)?;
        self.stage.kept.recall(others);
        Ok(())
    }

    /// Whether the [lower bound](takes_at_least) proves that every schedule within the limit that saves memory by
    /// `means` alone takes at least as long as the best schedule so far. On a trace with masks or in-place reuse, the
    /// bound is for `means` together with these. `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn cannot_win(&mut self, means: Using) -> Result<bool, Error> {
        let decided = Using::NONE.with(Means::Swap).with(Means::Recompute).with(Means::Layer).with(Means::Order);
        let free = if self.is_as_recorded() { Using::NONE } else { self.options.using.minus(decided) };
        let options = Options { using: means.and(free), ..*self.options };
        takes_at_least(self.recorded, &options, self.best(), FEW, self.scratch.reborrow())
    }

    /// Writes the trace in which swaps are planned next. Recomputations are written into it if `arrangement` asks for
    /// them. Calls `then` with a [`Trial`], which plans swaps in this trace, and returns what `then` returns. `Err`
    /// also if a row of the trace is invalid or the workspace is too short.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn trial<R>(
        &mut self,
        arrangement: &Arrangement<'_>,
        then: impl FnOnce(&mut Trial<'_, '_, 'a, 'w>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Self { recorded, options, base, recomputer, scratch, stage, .. } = self;
        let mut scratch = scratch.reborrow();
        let rows = stage.between(*base, recomputer, arrangement.recomputes, scratch.reborrow())?;
        let Stage { interim, made, kept } = stage;
        let rows = interim.get_mut(..rows).unwrap_or_default();
        let mut tables = scratch.split(Flat::workspace(rows.len()));
        let timings = made.timings(rows.len());
        let flat = Flat::new(recorded, rows, &options.device, timings, &mut tables, scratch.reborrow())?;
        let added = rows.last().map_or(0, |r| r.time_ns).saturating_sub(recorded.time_ns()) as f64;
        let mut swappable = options.swappable();
        if arrangement.swaps == Swaps::None {
            swappable.least_bytes = u64::MAX;
        }
        let program = Program::new(rows, flat.blocks(), &mut scratch)?;
        let mut scratch = scratch.reborrow();
        let gaps = Gaps::new(&program, swappable, &mut scratch);
        let mut scratch = scratch.reborrow();
        let mut swapper = Swapper::new(&gaps, &options.device, options.seed, &mut scratch);
        let mut trial = Trial {
            rows,
            recorded,
            options,
            flat: &flat,
            swapper: &mut swapper,
            strategy: arrangement.strategy(),
            as_recorded: base.trace.shared == recorded.rows,
            reordering: base.reordering,
            added,
            made,
            kept,
            scratch,
            attempt: 0,
            spent: 0,
        };
        then(&mut trial)
    }

    /// Adds headroom below the limit for the next plan of recomputation, in the operators where the last placement is
    /// above the limit. It is `part` thirds of the bytes above the limit, and at least 1/512 of the limit. An operator
    /// and the operators that are recomputed right before it share one headroom.
    fn add_headroom(&mut self, part: u32) {
        let limit = self.options.limit;
        let rows = self.stage.made.rows();
        let (blocks, offsets) = self.stage.made.blocks();
        let segments = self.base.trace.rows.len();
        let mut scratch = self.scratch.reborrow();
        let mut excess = scratch.words(segments + 1);
        // A segment is here an operator, with the operators that are recomputed right before it. This is the first row
        // of each: the row after the last access of the segment before.
        let mut begin = scratch.indices(segments + 2);
        let (mut segment, mut previous) = (0, Op::None);
        for (row, r) in (1..).zip(rows).filter(|(_, r)| r.event.is_access()) {
            let recomputed = matches!(r.op, Op::Rerun(_));
            if !recomputed {
                segment += u32::from(r.op != previous || r.op == Op::None);
                begin[segment] = row;
            }
            previous = r.op;
        }
        let begins = begin.first(segment + 1);
        for (block, offset) in blocks.iter().zip(offsets) {
            let above = offset.saturating_add(block.size).saturating_sub(limit);
            if above > 0 {
                let first = begins.partition_point(|&row| row <= block.start).saturating_sub(1);
                for (segment, _) in begins.iter().enumerate().skip(first).take_while(|&(_, &row)| row < block.end) {
                    let segment = u32::try_from(segment).unwrap_or(0);
                    excess[segment] = excess[segment].max(above);
                }
            }
        }
        let headroom = self.recomputer.headroom();
        for segment in (0..=segment).filter(|&segment| excess[segment] > 0) {
            let bytes = (excess[segment] / 3 * u64::from(part)).max(limit / 512);
            headroom[segment] = headroom[segment].saturating_add(bytes);
        }
    }

    /// Makes a schedule that takes as little memory as it can by swaps, recomputation or both, as `arrangement` says.
    /// Keeps it if it is within the memory limit and faster than the best so far. Returns the bytes that it takes on
    /// the device; `u64::MAX` if none could be made, for example because no plan of recomputation has a load below
    /// `peak`. `peak` is the max load, in bytes, of the recording with its operators in the order of this trace. `Err`
    /// if a row of the trace is invalid or the workspace is too short.
    pub(super) fn least(&mut self, arrangement: &Arrangement<'_>, peak: u64) -> Result<u64, Error> {
        if arrangement.recomputes {
            self.recomputer.headroom().fill(0);
            if self.recomputer.least(peak).is_none() {
                return Ok(u64::MAX);
            }
        }
        let policy = if let Swaps::By(&[policy, ..]) = arrangement.swaps { policy } else { Policy::Auto };
        self.trial(arrangement, |trial| trial.least(policy))
    }
}
