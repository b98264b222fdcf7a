//! The work on one variant: schedules are made by each strategy, and the best is kept.
//!
//! Recomputation is planned by *walks* over the operators, which free values where memory runs out and recompute them
//! before their next use, and by an exact search, where there are few values. Where a placement is above the limit, the
//! next plan gets *headroom*: bytes held back below the limit. A schedule is not worth making if it adds at least a
//! certain time to the original: the *cutoff*.

use super::lower_bound::{self, FEW, takes_at_least};
use super::stage::{Stage, Variant};
use super::trial::{Outcome, Trial, part};
use super::watch::Strategy;
use super::{Lengths, Means, Options, Using, carried, interim_rows};
use crate::place::{self, Solver};
use crate::rewrite::flat::{self, Flat};
use crate::rewrite::gaps::Gaps;
use crate::rewrite::means::recompute::{self, Recomputer};
use crate::rewrite::means::swap::Swapper;
use crate::rewrite::means::{self, in_place};
use crate::rewrite::program::Program;
use crate::rewrite::script::Cost;
use crate::rewrite::script::emit::Emitter;
use crate::trace::{Op, Recorded, liveness};
use crate::verify::schedule as verify;
use crate::{Error, Workspace, WorkspaceLen};

const PLANS: u32 = 10;
/// Times the work of a search for swaps: walks take little, and annealing ends by itself.
const ANNEALING: u64 = 4;
/// Annealing needs many changes, however short the trace.
const SHORT: usize = 5_000;
const STRETCH: usize = 20;
/// A plain schedule is made for the limit less this part of it, so that its placement fits.
const PLAIN: u64 = 16;

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

pub(super) struct Fitter<'a, 'w, 's> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    variant: Variant<'s>,
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
        .max(lower_bound::workspace(most, most));
    let trial = Flat::workspace(most).and(swapping(most, most)).and(judge);
    let absent = swapping(2 * base, 2 * blocks);
    let headroom = WorkspaceLen { words: base + 1, indices: base + 2 };
    let shared = in_place::workspace(rows, recompute::most_rows(base), blocks);
    let bound = lower_bound::workspace(rows, blocks);
    let script = Emitter::workspace(recompute::most_rows(base), 2 * blocks);
    trial
        .max(script)
        .max(carried::workspace(base, 2 * blocks))
        .max(shared)
        .max(headroom)
        .max(absent)
        .max(recompute::exact::workspace(base, 2 * blocks))
        .max(bound)
}

const fn swapping(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks).and(Gaps::workspace(rows, blocks)).and(Swapper::workspace(rows, blocks))
}

impl<'a, 'w, 's> Fitter<'a, 'w, 's> {
    pub(super) const fn new(
        recorded: &'s Recorded<'s>,
        options: &'s Options,
        variant: Variant<'s>,
        recomputer: Recomputer<'s>,
        scratch: Workspace<'s>,
        stage: Stage<'a, 'w>,
    ) -> Self {
        Self { recorded, options, variant, recomputer, scratch, stage }
    }

    pub(super) fn into_stage(self) -> Stage<'a, 'w> {
        self.stage
    }

    pub(super) const fn spent(&self) -> u64 {
        self.stage.kept.budget.spent()
    }

    pub(super) const fn halfway(&self) -> u64 {
        self.stage.kept.halfway()
    }

    pub(super) fn is_done(&self) -> bool {
        self.cutoff() <= 0.0 || self.stage.kept.is_spent()
    }

    /// With a cutoff of its own, as if it were the only means: so more means are seldom worse than fewer.
    pub(super) fn alone(&mut self, then: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        let others = self.stage.kept.loosen();
        then(self)?;
        self.stage.kept.lower_cutoff(others);
        Ok(())
    }

    pub(super) fn strategies(&self) -> impl Iterator<Item = Strategy> + use<> {
        let using = self.options.using.on(&self.options.device);
        Strategy::ALL.into_iter().filter(move |strategy| using.contains(strategy.means()))
    }

    pub(super) fn recompute(&mut self) -> Result<(), Error> {
        let limit = self.options.limit;
        self.recomputer.headroom().fill(0);
        let mut walked = self.walk(limit, self.cutoff());
        walked = self.exactly(walked);
        walked = self.anneal(walked);
        let mut placed = None;
        for plan in 0..PLANS {
            let Some(Cost { excess: 0, delay }) = walked else { break };
            if ns(delay) >= self.cutoff() {
                break;
            }
            // Equal costs mean the same plan, which is not placed again; a proved optimum may be another of equal cost.
            if walked != placed || self.recomputer.is_optimum() {
                if self.run(Strategy::Recompute)? != Outcome::Over {
                    break;
                }
                placed = walked;
            }
            if self.stopped() || self.stage.kept.is_spent() {
                break;
            }
            self.add_headroom(part(plan, PLANS));
            walked = self.recomputer.replan(limit);
            self.stage.kept.budget.spend_looks(self.recomputer.work_done());
            walked = self.exactly(walked);
            walked = self.anneal(walked);
        }
        Ok(())
    }

    pub(super) fn estimate(&mut self, work: u64, level: Level, most: f64) -> Result<Option<f64>, Error> {
        let limit = self.options.limit;
        let most = most.min(self.cutoff());
        if !self.recompute_to(level, most) {
            return Ok(None);
        }
        self.stage.kept.budget.spend_looks(work);
        self.trial(Strategy::RecomputeThenSwap, |trial| {
            if trial.takes_at_least(most)? {
                return Ok(None);
            }
            trial.swapper.clear_headroom();
            Ok(trial.swapper.search(limit, work).map(|overhead| overhead + trial.added))
        })
    }

    pub(super) fn fit_level(&mut self, work: u64, level: Level, climbs: bool) -> Result<Option<f64>, Error> {
        let most = self.cutoff();
        if !self.recompute_to(level, most) {
            return Ok(None);
        }
        self.trial(Strategy::RecomputeThenSwap, |trial| {
            if trial.takes_at_least(most)? { Ok(None) } else { trial.level(work, climbs) }
        })
    }

    pub(super) fn recomputer(&mut self) -> &mut Recomputer<'s> {
        &mut self.recomputer
    }

    fn recompute_to(&mut self, level: Level, most: f64) -> bool {
        if self.stops() || self.stage.kept.is_spent() {
            return false;
        }
        self.recomputer.headroom().fill(0);
        self.recomputer.evict_cheapest((level.cheap, Level::ALL));
        let load = match level.target {
            Target::Load(load) => load,
            Target::Carried(delay) => {
                carried::hold_back(&mut self.recomputer, self.options, delay, self.scratch.reborrow())
            }
        };
        let load = load.saturating_add(self.recomputer.allow_spared());
        let walked = self.walk(load, most);
        self.recomputer.evict_cheapest((Level::ALL, Level::ALL));
        walked.is_some()
    }

    fn anneal(&mut self, walked: Option<Cost>) -> Option<Cost> {
        let Some(before) = walked.filter(|_| !self.recomputer.is_optimum()) else { return walked };
        let rows = self.recorded.rows.len();
        let work = self.options.work_of(rows.max(SHORT.min(rows.saturating_mul(STRETCH)))).saturating_mul(ANNEALING);
        let annealed = self.recomputer.anneal(before, self.options.limit, work);
        self.stage.kept.budget.spend_looks(self.recomputer.work_done());
        Some(annealed)
    }

    fn exactly(&mut self, walked: Option<Cost>) -> Option<Cost> {
        self.recomputer.exactly(self.options.limit, walked, self.scratch.reborrow())
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    fn walk(&mut self, limit: u64, most: f64) -> Option<Cost> {
        let walked = self.recomputer.plan(limit, most as u64);
        self.stage.kept.budget.spend_looks(self.recomputer.work_done());
        walked
    }

    pub(super) fn run(&mut self, strategy: Strategy) -> Result<Outcome, Error> {
        let work = self.options.work_of(self.recorded.rows.len());
        self.trial(strategy, |trial| trial.run(work))
    }

    fn stops(&mut self) -> bool {
        self.stage.kept.watched.stops()
    }

    pub(super) const fn stopped(&self) -> bool {
        self.stage.kept.watched.stopped()
    }

    pub(super) const fn options(&self) -> &'s Options {
        self.options
    }

    pub(super) const fn recorded(&self) -> &'s Recorded<'s> {
        self.recorded
    }

    pub(super) fn cutoff(&self) -> f64 {
        self.stage.kept.cutoff()
    }

    pub(super) fn best(&self) -> f64 {
        self.stage.overhead()
    }

    /// Where values may be recomputed too, swaps alone are mostly tried on the recorded trace only.
    pub(super) fn cannot_win(&mut self, strategy: Strategy) -> Result<bool, Error> {
        let Options { using, device, .. } = *self.options;
        let as_recorded = self.variant.is_as_recorded(self.recorded);
        let recomputes = using.on(&device).has(Means::Recompute);
        if strategy == Strategy::Swap && recomputes && !as_recorded && self.cutoff().is_finite() {
            return Ok(true);
        }
        let decided = Using::NONE.with(Means::Swap).with(Means::Recompute).with(Means::Order);
        let free = if as_recorded { Using::NONE } else { using.minus(decided) };
        let options = Options { using: strategy.means().and(free), ..*self.options };
        takes_at_least(self.recorded, &options, self.best(), FEW, self.scratch.reborrow())
    }

    fn trial<R>(
        &mut self,
        strategy: Strategy,
        then: impl FnOnce(&mut Trial<'_, '_, 'a, 'w>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Self { recorded, options, variant, recomputer, scratch, stage, .. } = self;
        let mut scratch = scratch.reborrow();
        let rows = stage.between(*variant, recomputer, strategy.recomputes(), scratch.reborrow())?;
        let Stage { interim, made, kept } = stage;
        let rows = interim.get_mut(..rows).unwrap_or_default();
        let mut tables = scratch.split(Flat::workspace(rows.len()));
        let timings = made.timings(rows.len());
        let flat = Flat::new(recorded, rows, &options.device, timings, &mut tables, scratch.reborrow())?;
        let added = ns(rows.last().map_or(0, |r| r.time_ns).saturating_sub(recorded.time_ns()));
        let mut swappable = options.swappable();
        if !strategy.swaps() {
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
            strategy,
            as_recorded: variant.is_as_recorded(recorded),
            reordering: variant.reordering,
            added,
            made,
            kept,
            scratch,
            attempt: 0,
            since: 0,
        };
        then(&mut trial)
    }

    /// `part` thirds of the excess, at least 1/512 of the limit; reruns share their operator's headroom.
    fn add_headroom(&mut self, part: u32) {
        let limit = self.options.limit;
        let rows = self.stage.made.rows();
        let (blocks, offsets) = self.stage.made.blocks();
        let segments = self.variant.trace.rows.len();
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

    /// The plainest schedules, until one is within the limit: one for a little less than the limit, and one that takes
    /// least memory, however long it takes. Returns the least footprint of the second kind, which no limit changes.
    pub(super) fn plainest(&mut self, peak: u64) -> Result<u64, Error> {
        let mut least = u64::MAX;
        let below = self.options.limit - self.options.limit / PLAIN;
        for strategy in self.strategies() {
            self.recomputer.headroom().fill(0);
            for limit in [below, 0] {
                let made = match strategy {
                    Strategy::Free | Strategy::Swap => true,
                    Strategy::Recompute if limit > 0 => self.recomputer.reach(limit),
                    Strategy::Recompute | Strategy::RecomputeThenSwap => self.recomputer.least(peak).is_some(),
                };
                if self.stops() {
                    return Ok(least);
                }
                let footprint = if made { self.trial(strategy, |trial| trial.plain(limit))? } else { u64::MAX };
                least = if limit == 0 { least.min(footprint) } else { least };
                if self.best().is_finite() {
                    return Ok(least);
                }
            }
        }
        Ok(least)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time")]
pub(super) const fn ns(time: u64) -> f64 {
    time as f64
}
