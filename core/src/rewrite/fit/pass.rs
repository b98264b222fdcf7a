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

const CHOICES: u32 = 10;
const LATER: u64 = 12;
const BLOCKS: u64 = 2_000_000;
const VAIN: u64 = 20;

/// In blocks placed, shared by all traces that are tried; `work` counts what a search for swaps looks at.
pub(super) const fn patience(work: u64) -> u64 {
    VAIN * (BLOCKS + work / WORK_PER_BLOCK)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrangement<'p> {
    pub(super) recomputes: bool,
    pub(super) swaps: Swaps<'p>,
    /// Accesses and values looked at.
    pub(super) choice: u64,
    pub(super) work: u64,
}

impl Arrangement<'_> {
    const fn strategy(&self) -> Strategy {
        match (self.recomputes, self.swaps) {
            (false, Swaps::None) => Strategy::Free,
            (false, _) => Strategy::Swap,
            (true, Swaps::None) => Strategy::Recompute,
            (true, Swaps::By(_)) => Strategy::RecomputeThenSwap,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) target: Target,
    /// The cheapest `cheap` of [`Level::ALL`] equal parts, by recompute cost per byte.
    pub(super) cheap: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Load(u64),
    /// The limit plus the bytes that swaps can keep on the host if the iteration takes this many ns longer.
    Carried(u64),
}

impl Level {
    pub(super) const ALL: u64 = 128;
}

pub(super) struct Pass<'a, 'w, 's> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    base: Base<'s>,
    recomputer: Recomputer<'s>,
    scratch: Workspace<'s>,
    stage: Stage<'a, 'w>,
}

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

    pub(super) fn original_ns(&self) -> u64 {
        self.recorded.time_ns()
    }

    pub(super) fn is_as_recorded(&self) -> bool {
        self.base.trace.shared == self.recorded.rows
    }

    pub(super) fn into_stage(self) -> Stage<'a, 'w> {
        self.stage
    }

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
            // Equal costs mean the same plan, which is not placed again; a proved optimum may be another of equal cost.
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

    fn exactly(&mut self, walked: Option<Cost>) -> Option<Cost> {
        self.recomputer.exactly(self.options.limit, walked, self.scratch.reborrow())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    fn walk(&mut self, limit: u64, choice: u64, most: f64) -> Option<Cost> {
        let walked = self.recomputer.plan(limit, choice, most as u64);
        self.stage.kept.spend(self.recomputer.work_done() / WORK_PER_BLOCK);
        walked
    }

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

    fn run(&mut self, arrangement: &Arrangement<'_>) -> Result<Outcome, Error> {
        let &Arrangement { swaps, work, .. } = arrangement;
        self.trial(arrangement, |trial| trial.run(swaps, work))
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.stage.kept.is_spent()
    }

    const fn is_enough(&self) -> bool {
        self.stage.kept.is_enough()
    }

    fn stops(&mut self) -> bool {
        self.stage.kept.watched.stops()
    }

    pub(super) const fn stopped(&self) -> bool {
        self.stage.kept.watched.stopped()
    }

    pub(super) fn cutoff(&self) -> f64 {
        self.stage.kept.cutoff()
    }

    pub(super) fn best(&self) -> f64 {
        self.stage.overhead()
    }

    pub(super) fn fit_alone(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        let others = self.stage.kept.loosen();
        self.fit(arrangement)?;
        self.stage.kept.recall(others);
        Ok(())
    }

    pub(super) fn cannot_win(&mut self, means: Using) -> Result<bool, Error> {
        let decided = Using::NONE.with(Means::Swap).with(Means::Recompute).with(Means::Layer).with(Means::Order);
        let free = if self.is_as_recorded() { Using::NONE } else { self.options.using.minus(decided) };
        let options = Options { using: means.and(free), ..*self.options };
        takes_at_least(self.recorded, &options, self.best(), FEW, self.scratch.reborrow())
    }

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

    /// `part` thirds of the excess, at least 1/512 of the limit; reruns share their operator's headroom.
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
