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

const ATTEMPTS: u32 = 14;
const AGAIN: NonZeroU64 = NonZeroU64::new(12).unwrap();
/// A search starts over if a plan adds this many times what the one before added: its swaps are poor.
const LEAP: f64 = 1.5;
/// Of the recording's time: a small difference does not start the search over.
const LEAST_LEAP: f64 = 0.002;
const OVER: u64 = 4;
/// To place a block takes as long as to look at this many operators and gaps.
pub(super) const WORK_PER_BLOCK: u64 = 40;
/// One of the operators that need most memory mostly gives the proof; all would take longer than the search.
const FEW_OPERATORS: u32 = 16;
const FEW: u64 = 20_000;
const FEW_OF_SEARCH: u64 = 12_000;

#[derive(Clone, Copy)]
struct Climb {
    /// In blocks placed for each row of the recording.
    budget: u64,
    least: u64,
    part: NonZeroU64,
    /// After this many failed plans in a row, back to the best; `u32::MAX` never goes back.
    back: u32,
    end: u32,
}

/// Each plan starts from the one before it, better or not.
const WANDER: Climb = Climb { budget: 200, least: 2_400_000, part: AGAIN, back: u32::MAX, end: 48 };
const NEAR: Climb = Climb { budget: 80, least: 800_000, part: NonZeroU64::new(48).unwrap(), back: 4, end: 192 };

const OF_LEVEL: [Climb; 2] = [Climb { budget: 70, least: 800_000, ..WANDER }, Climb { end: 64, ..NEAR }];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Swaps<'p> {
    None,
    By(&'p [Policy]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Fits,
    Over,
    Fails,
}

pub(super) struct Trial<'t, 'f, 'a, 'w> {
    pub(super) recorded: &'t Recorded<'t>,
    pub(super) rows: &'f [Row],
    pub(super) options: &'t Options,
    pub(super) flat: &'t Flat<'f>,
    pub(super) swapper: &'t mut Swapper<'f>,
    pub(super) strategy: Strategy,
    pub(super) as_recorded: bool,
    pub(super) reordering: Option<Reordering>,
    pub(super) added: f64,
    pub(super) made: &'t mut Placed<'a, 'w>,
    pub(super) kept: &'t mut Kept<'a, 'w>,
    pub(super) scratch: Workspace<'t>,
    /// Added to the seed for the next placement.
    pub(super) attempt: u64,
    /// In blocks placed, since this policy was first tried or the latest [`Climb`] began.
    pub(super) spent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Settled {
    Fits(f64),
    Over,
    NoRoom,
}

impl Trial<'_, '_, '_, '_> {
    pub(super) fn takes_at_least(&mut self, overhead: f64) -> Result<bool, Error> {
        let options = Options { using: Using::NONE.with(Means::Swap), ..*self.options };
        let flat = Recorded::new(self.rows, self.flat.blocks());
        takes_at_least(&flat, &options, overhead - self.added, FEW_OPERATORS, self.scratch.reborrow())
    }

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

    fn climb_on(&mut self, best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        self.spent = 0;
        self.swapper.recall();
        self.climb(best, work, climb)
    }

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

    fn replan(&mut self, policy: Policy, work: u64) -> Option<f64> {
        self.attempt += 1;
        self.plan_later(work, |swapper, limit| swapper.replan(policy, limit, work))
    }

    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn leap(&self, before: f64) -> f64 {
        let time = self.recorded.time_ns() as f64;
        before.max(LEAST_LEAP * time) * LEAP
    }

    fn start_over(&mut self, planned: Option<f64>, work: u64) -> Option<f64> {
        self.plan_later(work, |swapper, limit| swapper.start_over(planned, limit, work))
    }

    fn plan_later(&mut self, work: u64, plan: impl FnOnce(&mut Swapper<'_>, u64) -> Option<f64>) -> Option<f64> {
        self.spend(1 + work / WORK_PER_BLOCK);
        if self.kept.watched.stops() {
            return None;
        }
        let limit = self.options.limit;
        self.counted(|swapper| plan(swapper, limit))
    }

    pub(super) fn counted(&mut self, plan: impl FnOnce(&mut Swapper<'_>) -> Option<f64>) -> Option<f64> {
        let before = self.swapper.selected();
        let planned = plan(self.swapper);
        self.spend(self.swapper.selected().saturating_sub(before) / WORK_PER_BLOCK);
        planned
    }

    const fn spend(&mut self, blocks: u64) {
        self.spent = self.spent.saturating_add(blocks);
        self.kept.spend(blocks);
    }

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

    fn tell(&mut self, policy: Policy, overhead: f64, footprint: u64) {
        let &mut Self { strategy, as_recorded, reordering, added, options, .. } = self;
        let overhead_ns = added + overhead;
        let tried = Tried { strategy, policy, as_recorded, reordering, overhead_ns, footprint, limit: options.limit };
        // If the watch ends the work here, the next call of `stops` says so.
        let _ = self.kept.watched.tell(&Progress::Tried(tried));
    }

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

/// Thirds of the excess to add: 1 for the first half of the plans, 3 for the last two, else 2.
pub(super) fn part(attempt: u32, attempts: u32) -> u32 {
    if 2 * attempt < attempts { 1 } else { 2 + u32::from(attempt + 3 > attempts) }
}
