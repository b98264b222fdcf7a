//! The trial of one combination of swaps and recomputation: policies decide which blocks are swapped, and their
//! schedules are placed until one fits.
//!
//! A policy plans within the limit. Where the placement is above the limit, the operators that run there get
//! *headroom*: bytes held back below the limit. The policy then plans again. If the new plan of [`Policy::Auto`] misses
//! the limit or takes much longer, its search starts over ([`Trial::insist`]). The schedule of a policy does not depend
//! on the policies before it, so that it is the same whether the policy is tried alone or as a part of another: a
//! policy that contains others is not worse than these, as long as the budget of work lasts. If [`Policy::Auto`] is one
//! of the policies, its search goes on from the best schedule of all: the schedule is improved, placed again, and kept
//! if it fits and takes less time ([`Trial::climb`]).

use core::num::NonZeroU64;

use super::lower_bound::takes_at_least;
use super::stage::{Kept, Placed, WORK_RECOMPUTING, Within};
use super::watch::{Progress, Strategy, Tried};
use super::{Means, Options, Using};
use crate::rewrite::flat::Flat;
use crate::rewrite::means::order::Reordering;
use crate::rewrite::means::swap::{Policy, Swapper};
use crate::trace::{Recorded, Row};
use crate::{Error, Workspace};

/// The most schedules of a swap policy that are placed until one fits.
const ATTEMPTS: u32 = 14;
/// If the first plan of a swap policy does not fit once placed, the policy plans again. Each later plan may do the work
/// of the first divided by this.
const AGAIN: NonZeroU64 = NonZeroU64::new(12).unwrap();
/// If the schedule of [`Policy::Auto`] is above the limit once placed, the policy plans again with more headroom below
/// the limit. The search for swaps then starts over if the new plan misses the limit, or if it adds more than this many
/// times the time that the plan before it added. Reason: in a network of about a thousand operators or more, the swaps
/// that a later plan adds for headroom are far from the best, and the plan may do too little work to find better ones.
const LEAP: f64 = 1.5;
/// When [`LEAP`] compares the times that two plans add, the earlier time counts as at least this fraction of the
/// recording's time. So a small difference does not make the search start over.
const LEAST_LEAP: f64 = 0.002;
/// Where the search for swaps starts over ([`LEAP`]), it may do the work of the first search for the same trace and
/// policy, divided by this number.
const OVER: u64 = 4;
/// Placing a block takes as long as looking at this many operators and idle times of blocks in a search. With this
/// factor the work of searches is converted to blocks placed.
pub(super) const WORK_PER_BLOCK: u64 = 40;
/// Before swaps are planned after recomputation to a level, a lower bound on the time of their schedules is computed:
/// it may prove that all are too slow. Only this many operators are looked at for it, those that need most memory,
/// since mostly one of these gives the proof if there is one. To look at all operators would take longer than the
/// search that a proof saves.
const FEW_OPERATORS: u32 = 16;
/// A placement far above the limit is given up only after this many blocks have been placed. This holds for the
/// schedules of all swap policies but [`Policy::Auto`]; where nothing is swapped, [`WORK_RECOMPUTING`] takes its place.
const FEW: u64 = 20_000;
/// A placement far above the limit is given up only after this many blocks have been placed, if it is of a schedule of
/// [`Policy::Auto`]. The number is less than [`FEW`], as the search of that policy plans more often.
const FEW_OF_SEARCH: u64 = 12_000;

/// How the search for swaps goes on from a schedule that fits, to find better ones, and when it ends.
#[derive(Clone, Copy)]
struct Climb {
    /// The work that may be spent ([`Trial::spent`]) before the search ends, in blocks placed for each row of the
    /// recording.
    budget: u64,
    /// This much work may be spent, in blocks placed, where `budget` allows less: in recordings of few rows.
    least: u64,
    /// Each plan may do as much work as a search for swaps from the start, divided by this.
    part: NonZeroU64,
    /// Each time that this many plans in a row have failed to give a better schedule, the search goes back to the best
    /// one. With `u32::MAX` it never does.
    back: u32,
    /// When this many plans in a row have failed to give a better schedule, the search ends.
    end: u32,
}

/// How the search for swaps goes on from the first schedule of [`Policy::Auto`] that fits: each plan starts from the
/// plan before it, better or not. The search never goes back to the best schedule.
const WANDER: Climb = Climb { budget: 200, least: 2_400_000, part: AGAIN, back: u32::MAX, end: 48 };
/// How the search for swaps goes on from the best schedule of all policies: each plan gets little work, and after a few
/// plans in a row that are not better, the search goes back to the best schedule.
const NEAR: Climb = Climb { budget: 80, least: 800_000, part: NonZeroU64::new(48).unwrap(), back: 4, end: 192 };

/// How the search for swaps goes on where values are recomputed: first as entry 0 says, then as entry 1 says. With
/// entry 0, each plan starts from the plan before it, as with [`WANDER`]. With entry 1, the search goes back to the
/// best schedule after a few plans in a row that are not better, as with [`NEAR`]. Both entries end the search sooner
/// than those two constants, since a trace may have such a search for each of two levels of recomputation.
const OF_LEVEL: [Climb; 2] = [Climb { budget: 70, least: 800_000, ..WANDER }, Climb { end: 64, ..NEAR }];

/// How swaps are planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Swaps<'p> {
    /// Nothing is swapped.
    None,
    /// These policies plan swaps, one after the other.
    By(&'p [Policy]),
}

/// Whether a schedule was found that fits when one combination of swaps and recomputation was tried, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is a schedule that fits.
    Fits,
    /// No schedule fits: the last one that was placed is above the limit.
    Over,
    /// No schedule was planned that is within the limit and worth placing, or there is no room for the rows or the live
    /// ranges of the planned one.
    Fails,
}

/// One combination of swaps and recomputation as it is tried: the trace before swaps, the swapper that plans swaps in
/// it, and the memory in which the schedules are placed.
pub(super) struct Trial<'t, 'f, 'a, 'w> {
    pub(super) recorded: &'t Recorded<'t>,
    /// The rows of the trace before swaps, written as if this trace had been recorded: each live range of a block has a
    /// block number of its own, and each run of an operator an operator number of its own ([`Flat`]).
    pub(super) rows: &'f [Row],
    pub(super) options: &'t Options,
    pub(super) flat: &'t Flat<'f>,
    pub(super) swapper: &'t mut Swapper<'f>,
    pub(super) strategy: Strategy,
    /// Whether the schedules have neither masks nor in-place reuse. Their operators may be in another order than the
    /// recorded one.
    pub(super) as_recorded: bool,
    /// The order in which the operators run; none is the recorded one.
    pub(super) reordering: Option<Reordering>,
    /// How much longer the trace before swaps takes than the recording, in ns: the time of its recomputations.
    pub(super) added: f64,
    pub(super) made: &'t mut Placed<'a, 'w>,
    pub(super) kept: &'t mut Kept<'a, 'w>,
    pub(super) scratch: Workspace<'t>,
    /// How often the policy that is tried now has planned again. It is added to the seed in the options, for the random
    /// choices of the next placement.
    pub(super) attempt: u64,
    /// The work spent on plans and placements, in blocks placed, since the policy that is tried now was first tried, or
    /// since the latest [`Climb`] from a saved schedule began.
    pub(super) spent: u64,
}

/// The result of placing a schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Settled {
    /// The schedule fits. The number is the time, in ns, that it adds to the trace without swaps.
    Fits(f64),
    /// The footprint of the schedule is above the limit.
    Over,
    /// Nothing was placed: the schedule has more rows or live ranges than the output has room for, or none was planned.
    NoRoom,
}

impl Trial<'_, '_, '_, '_> {
    /// Whether the [lower bound](takes_at_least) proves that every schedule within the limit that is made by swaps in
    /// the trial's trace (`rows`) takes at least `overhead` ns longer than the recording. `Err` if a row of the trace
    /// is invalid or the workspace is too short.
    pub(super) fn takes_at_least(&mut self, overhead: f64) -> Result<bool, Error> {
        let options = Options { using: Using::NONE.with(Means::Swap), ..*self.options };
        let flat = Recorded::new(self.rows, self.flat.blocks());
        takes_at_least(&flat, &options, overhead - self.added, FEW_OPERATORS, self.scratch.reborrow())
    }

    /// Plans swaps by each policy in `swaps`, or no swaps, and places the schedule of each plan. Returns whether any of
    /// these schedules fits and, if none does, why. `work` is how many operators and idle times of blocks a search for
    /// swaps may look at. `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn run(&mut self, swaps: Swaps<'_>, work: u64) -> Result<Outcome, Error> {
        if self.kept.cutoff() <= self.added {
            return Ok(Outcome::Fails);
        }
        match swaps {
            Swaps::None if self.swapper.peak() > self.options.limit => Ok(Outcome::Fails),
            Swaps::None => self.settle(Policy::Auto, 0.0, WORK_RECOMPUTING).map(Settled::outcome),
            Swaps::By(policies) => self.by(policies, work),
        }
    }

    /// Tries the swap policies one after the other. [`Policy::Auto`] searches for better schedules twice: from its own
    /// first schedule that fits and, after all policies, from the best schedule of any policy. `work` is how many
    /// operators and idle times of blocks a search may look at. Returns whether a schedule fits and, if none does, why.
    /// `Err` if a row of the trace is invalid or the workspace is too short.
    fn by(&mut self, policies: &[Policy], work: u64) -> Result<Outcome, Error> {
        let mut best = f64::INFINITY;
        let mut outcome = Outcome::Fails;
        for &policy in policies {
            if self.kept.watched.stops() || self.kept.is_enough() {
                break;
            }
            let planned = self.plan(policy, work);
            let Some(planned) = planned.filter(|planned| self.added + planned < self.kept.cutoff()) else { continue };
            let settled = self.insist(policy, planned, work)?;
            if outcome != Outcome::Fits {
                outcome = settled.outcome();
            }
            let Settled::Fits(mut overhead) = settled else { continue };
            if overhead < best {
                self.swapper.remember();
            }
            if policy == Policy::Auto {
                overhead = self.climb(overhead, work, WANDER)?;
            }
            best = best.min(overhead);
            if best <= 0.0 {
                return Ok(outcome);
            }
        }
        if best.is_finite() && policies.contains(&Policy::Auto) {
            self.climb_on(best, work, NEAR)?;
        }
        Ok(outcome)
    }

    /// Searches for swaps in the trial's trace, in which values are recomputed, until a schedule fits. If `climbs`, the
    /// search then goes on from that schedule to better ones. `work` is how many operators and idle times of blocks a
    /// search may look at. Returns how much longer the best of these schedules takes than the recording, in ns. None if
    /// no schedule fits, if the recomputations alone already add too much time, or if the caller has ended the work
    /// before. `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn level(&mut self, work: u64, climbs: bool) -> Result<Option<f64>, Error> {
        if self.kept.cutoff() <= self.added {
            return Ok(None);
        }
        let Some(planned) = self.plan(Policy::Auto, work) else { return Ok(None) };
        let Settled::Fits(mut best) = self.insist(Policy::Auto, planned, work)? else { return Ok(None) };
        if climbs {
            let [wander, near] = OF_LEVEL;
            self.swapper.remember();
            best = self.climb(best, work, wander)?;
            best = self.climb_on(best, work, near)?;
        }
        Ok(Some(self.added + best))
    }

    /// Plans swaps by a policy, without headroom below the limit. `work` is how many operators and idle times of blocks
    /// a search may look at. Returns the time, in ns, that the plan adds to the trace without swaps; none if it misses
    /// the limit.
    fn plan(&mut self, policy: Policy, work: u64) -> Option<f64> {
        (self.attempt, self.spent) = (0, 0);
        self.swapper.clear_headroom();
        if policy == Policy::Auto {
            self.kept.spend(work / WORK_PER_BLOCK);
        }
        let limit = self.options.limit;
        // After recomputation, swaps are planned for many levels. To find the weights of a mixture of scores, as
        // `Swapper::plan` does, takes too long there for what it gains.
        let mixes = self.strategy != Strategy::RecomputeThenSwap;
        self.counted(|swapper| match policy {
            Policy::Auto if !mixes => swapper.search(limit, work),
            _ => swapper.plan(policy, limit, work),
        })
    }

    /// Goes back to the schedule that [`Swapper::remember`] saved, and improves it by plans that take less time.
    /// `climb` says how much work this may take, and when to stop. `best` is the time, in ns, that the saved schedule
    /// adds to the trace without swaps. `work` is how many operators and idle times of blocks a search from the start
    /// may look at. Returns the time, in ns, that the best schedule adds to the trace without swaps: `best` if no
    /// better one was found. `Err` if a row of the trace is invalid or the workspace is too short.
    fn climb_on(&mut self, best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        self.spent = 0;
        self.swapper.recall();
        self.climb(best, work, climb)
    }

    /// Places the planned schedule, and plans again with more headroom below the limit, until a schedule fits. Ends
    /// without one after [`ATTEMPTS`] placements, when a plan misses the limit, when the budget of work is used up, or
    /// when the caller ends the work; for [`Policy::Layer`] after the first placement. `planned` is the time, in ns,
    /// that the plan adds to the trace without swaps. `work` is how many operators and idle times of blocks the search
    /// for the first plan could look at. Returns the result of the last placement. `Err` if a row of the trace is
    /// invalid or the workspace is too short.
    fn insist(&mut self, policy: Policy, planned: f64, work: u64) -> Result<Settled, Error> {
        let few = if policy == Policy::Auto { FEW_OF_SEARCH } else { FEW };
        let mut planned = Some(planned);
        let mut settled = Settled::NoRoom;
        for attempt in 0..ATTEMPTS {
            let Some(overhead) = planned else { break };
            settled = self.settle(policy, overhead, few)?;
            // Layrub's rule does not depend on the limit: it has one schedule, which fits or does not.
            if settled != Settled::Over || policy == Policy::Layer || self.kept.is_spent() {
                break;
            }
            self.add_headroom(part(attempt, ATTEMPTS));
            planned = self.replan(policy, work / AGAIN);
            if policy == Policy::Auto && planned.is_none_or(|planned| planned > self.leap(overhead)) {
                planned = self.start_over(planned, work / OVER);
            }
        }
        Ok(settled)
    }

    /// Improves the schedule that is planned, by plans that take less time. `climb` says how much work this may take,
    /// and when to stop. The headroom below the limit is lowered at the start, after a schedule that fits, and after a
    /// plan that is no better. It is raised after a placement above the limit. `best` is the time, in ns, that the
    /// planned schedule adds to the trace without swaps. `work` is how many operators and idle times of blocks a search
    /// from the start may look at. Returns the time, in ns, that the best schedule adds to the trace without swaps:
    /// `best` if no better one was found. `Err` if a row of the trace is invalid or the workspace is too short.
    fn climb(&mut self, mut best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        let rows = u64::try_from(self.recorded.rows.len()).unwrap_or(u64::MAX);
        let budget = climb.budget.saturating_mul(rows).max(climb.least);
        let mut vain = 0;
        self.swapper.lower_headroom();
        while vain < climb.end && best > 0.0 && !self.kept.is_enough() {
            if self.spent > budget {
                break;
            }
            if vain > 0 && vain.is_multiple_of(climb.back) {
                self.swapper.recall();
            }
            let planned = self.replan(Policy::Auto, work / climb.part);
            let Some(overhead) = planned.filter(|&overhead| overhead < best) else {
                self.swapper.lower_headroom();
                vain += 1;
                continue;
            };
            match self.settle(Policy::Auto, overhead, FEW_OF_SEARCH)? {
                Settled::Fits(_) => {
                    best = overhead;
                    self.swapper.remember();
                    self.swapper.lower_headroom();
                    vain = 0;
                }
                Settled::Over => {
                    self.add_headroom(1);
                    vain += 1;
                }
                Settled::NoRoom => break,
            }
        }
        Ok(best)
    }

    /// Plans swaps again by `policy`, with the present headroom below the limit. `work` is about how many operators and
    /// idle times of blocks the search looks at. Returns the time, in ns, that the plan adds to the trace without
    /// swaps; none if the limit is missed or the caller has ended the work.
    fn replan(&mut self, policy: Policy, work: u64) -> Option<f64> {
        self.attempt += 1;
        self.plan_later(work, |swapper, limit| swapper.replan(policy, limit, work))
    }

    /// The most time, in ns, that a plan may add to the trace without swaps, if the plan before it added `before` ns.
    /// Where the plan adds more, the search for swaps starts over.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn leap(&self, before: f64) -> f64 {
        let time = self.recorded.time_ns() as f64;
        before.max(LEAST_LEAP * time) * LEAP
    }

    /// Searches for swaps from the start, with the present headroom below the limit. `work` is how many operators and
    /// idle times of blocks the search may look at. `planned` is the time, in ns, that the present schedule adds to the
    /// trace without swaps; none if it misses the limit. The new schedule replaces the present one only if it takes
    /// less time, or if the present one misses the limit. Returns the time, in ns, that the schedule which is kept adds
    /// to the trace without swaps. None if both schedules miss the limit, or if the caller has ended the work.
    fn start_over(&mut self, planned: Option<f64>, work: u64) -> Option<f64> {
        self.plan_later(work, |swapper, limit| swapper.start_over(planned, limit, work))
    }

    /// Calls `plan` with the limit in bytes and returns what `plan` returns. If the caller has ended the work, returns
    /// none and does not call `plan`. Counts two kinds of work as spent: `work`, the operators and idle times of blocks
    /// that the search in `plan` may look at, and the work that `plan` does to choose idle times for swaps.
    fn plan_later(&mut self, work: u64, plan: impl FnOnce(&mut Swapper<'_>, u64) -> Option<f64>) -> Option<f64> {
        self.spend(1 + work / WORK_PER_BLOCK);
        if self.kept.watched.stops() {
            return None;
        }
        let limit = self.options.limit;
        self.counted(|swapper| plan(swapper, limit))
    }

    /// Calls `plan` and returns what `plan` returns. Counts as spent the work that `plan` does to choose the idle times
    /// in which blocks are swapped.
    pub(super) fn counted(&mut self, plan: impl FnOnce(&mut Swapper<'_>) -> Option<f64>) -> Option<f64> {
        let before = self.swapper.selected();
        let planned = plan(self.swapper);
        self.spend(self.swapper.selected().saturating_sub(before) / WORK_PER_BLOCK);
        planned
    }

    /// Adds `blocks` to the work that was spent, which is counted in blocks placed.
    const fn spend(&mut self, blocks: u64) {
        self.spent = self.spent.saturating_add(blocks);
        self.kept.spend(blocks);
    }

    /// Shortens the times for which blocks are on the device, unless the schedule would get slower by this. Then places
    /// the schedule, and keeps it if it fits and is the best. Returns whether it fits. `policy` is the policy that
    /// planned the schedule; `overhead` is the time, in ns, that the schedule adds to the trace without swaps. A
    /// placement far above the limit is given up after `few` blocks placed. `Err` if a row of the trace is invalid or
    /// the workspace is too short.
    fn settle(&mut self, policy: Policy, overhead: f64, few: u64) -> Result<Settled, Error> {
        let limit = self.options.limit;
        self.swapper.tighten();
        let seed = self.options.seed.wrapping_add(self.attempt);
        let (within, watched) = (Some(Within { limit, few }), &mut self.kept.watched);
        let before = self.made.blocks_placed();
        let placed = self.made.place(
            self.recorded,
            seed,
            within,
            watched,
            (self.swapper, self.flat),
            self.scratch.reborrow(),
        )?;
        self.spend(self.made.blocks_placed() - before);
        if let Some(footprint) = placed {
            self.tell(policy, overhead, footprint);
        }
        Ok(match placed {
            None => Settled::NoRoom,
            Some(footprint) if footprint <= limit => {
                self.kept.offer(self.made, (self.added + overhead, footprint), policy);
                Settled::Fits(overhead)
            }
            Some(_) => Settled::Over,
        })
    }

    /// Tells the caller's watch function of a schedule that was placed. `overhead` is the time, in ns, that the
    /// schedule adds to the trace without swaps; `footprint` is the bytes that it takes on the device.
    fn tell(&mut self, policy: Policy, overhead: f64, footprint: u64) {
        let &mut Self { strategy, as_recorded, reordering, added, options, .. } = self;
        let overhead_ns = added + overhead;
        let tried = Tried { strategy, policy, as_recorded, reordering, overhead_ns, footprint, limit: options.limit };
        // If the watch ends the work here, the next call of `stops` says so.
        let _ = self.kept.watched.tell(&Progress::Tried(tried));
    }

    /// Makes the schedule in which the fewest bytes are alive, or, for [`Policy::Layer`], the only schedule that its
    /// rule gives. Places this schedule, and keeps it if it fits and is the best. Returns its footprint in bytes;
    /// `u64::MAX` if there is no room for its rows. `Err` if a row of the trace is invalid or the workspace is too
    /// short.
    pub(super) fn least(&mut self, policy: Policy) -> Result<u64, Error> {
        if policy == Policy::Layer {
            self.swapper.plan(policy, u64::MAX, 0);
        } else {
            self.swapper.least_load();
        }
        // The placement does not depend on the limit, so that a fit with this footprint as its limit finds it again.
        let scratch = self.scratch.reborrow();
        let (seed, watched) = (self.options.seed, &mut self.kept.watched);
        let placed = self.made.place(self.recorded, seed, None, watched, (self.swapper, self.flat), scratch)?;
        let least = placed.unwrap_or(u64::MAX);
        if let Some(footprint) = placed {
            let overhead = self.swapper.overhead();
            self.tell(policy, overhead, footprint);
            if footprint <= self.options.limit {
                self.kept.offer(self.made, (self.added + overhead, footprint), policy);
            }
        }
        Ok(least)
    }

    /// Adds headroom below the limit for the operators that run where the last placement is above the limit. The
    /// headroom added is `part` thirds of the bytes above the limit, and at least 1/512 of the limit.
    fn add_headroom(&mut self, part: u32) {
        let (blocks, offsets) = self.made.blocks();
        self.swapper.add_headroom(blocks, offsets, self.options.limit, (part, 3));
    }
}

impl Settled {
    fn outcome(self) -> Outcome {
        match self {
            Self::Fits(_) => Outcome::Fits,
            Self::Over => Outcome::Over,
            Self::NoRoom => Outcome::Fails,
        }
    }
}

/// How many thirds of the bytes by which the last placement is above the limit are added to the headroom below it.
/// `attempt` is the number of the plan that was placed, counted from 0, of `attempts` in all. The result is 1 for the
/// first half of the plans, 3 for the last two, and 2 for those between.
pub(super) fn part(attempt: u32, attempts: u32) -> u32 {
    if 2 * attempt < attempts { 1 } else { 2 + u32::from(attempt + 3 > attempts) }
}
