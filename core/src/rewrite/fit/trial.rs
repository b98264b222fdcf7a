//! One arrangement: policies decide what is swapped, and what they decide is placed, again and again until it fits.
//!
//! A policy plans within the limit; where the placement is above it, memory is held back where it was, and the policy plans
//! again ([`Trial::insist`]). What a policy comes to depends on nothing but the trace, so that it is the same whether it is
//! asked for alone or as part of another: that contains it, and cannot be worse. The search goes on from the best that
//! anybody placed: improved, placed again, kept where that fits and takes less time ([`Trial::climb`]).

use core::num::NonZeroU64;

use super::Options;
use super::stage::{Kept, Placed, WORK_RECOMPUTING, Within};
use super::watch::{Progress, Strategy, Tried};
use crate::rewrite::flat::Flat;
use crate::rewrite::means::order::Reordering;
use crate::rewrite::means::recompute::Recomputer;
use crate::rewrite::means::swap::{Policy, Swapper};
use crate::trace::Recorded;
use crate::{Error, Workspace};

/// How often a policy plans until it fits.
const ATTEMPTS: u32 = 14;
/// The part of its work that the search may do each time but the first, until it fits.
const AGAIN: NonZeroU64 = NonZeroU64::new(12).unwrap();
/// Swaps that take so many times what they promised are given up, where values are recomputed.
const COSTLIER: f64 = 1.25;
/// What the search may do while a block is placed.
pub(super) const WORK_PER_BLOCK: u64 = 40;
/// After how many blocks placed a schedule is given up that is far above the limit: of a policy, and of the search, which
/// plans more often.
const FEW: u64 = 20_000;
const FEW_OF_SEARCH: u64 = 12_000;

/// How far the search goes on from a schedule that fits.
#[derive(Clone, Copy)]
struct Climb {
    /// What may be spent, in blocks placed for each row of the trace, and at least.
    enough: u64,
    least: u64,
    /// The part of its work that it may do each time.
    part: NonZeroU64,
    /// After so many times in vain it goes back to the best, and after so many it ends.
    back: u32,
    end: u32,
}

/// From the search's own first that fits: it wanders on. And from the best of all: near it, in small steps.
const WANDER: Climb = Climb { enough: 200, least: 2_400_000, part: AGAIN, back: u32::MAX, end: 48 };
const NEAR: Climb = Climb { enough: 80, least: 800_000, part: NonZeroU64::new(48).unwrap(), back: 4, end: 192 };

/// What takes so many times what the best takes goes on for one part in `TRY` of that.
const FAR: f64 = 1.5;
const TRY: u64 = 4;

/// The same where values were recomputed down to a level.
const OF_LEVEL: [Climb; 2] = [Climb { enough: 70, least: 800_000, ..WANDER }, Climb { end: 64, ..NEAR }];

/// Who swaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Swaps<'p> {
    /// Nobody.
    None,
    /// These, one after the other.
    By(&'p [Policy]),
    /// The search, from the offloads that were given when operators were chosen to be recomputed.
    Offloads,
    /// The same, where offloads were chosen together with what is recomputed.
    Together,
}

/// How a trial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is a schedule that fits.
    Fits,
    /// The last placement is above the limit.
    Over,
    /// There is no schedule within the limit that takes less time than the best.
    Fails,
}

/// One arrangement as it is tried: the trace before swaps, the swapper that plans them, and where it is placed.
pub(super) struct Trial<'t, 'f, 'a, 'w> {
    pub(super) recorded: &'t Recorded<'t>,
    pub(super) options: &'t Options,
    pub(super) flat: &'t Flat<'f>,
    pub(super) swapper: &'t mut Swapper<'f>,
    pub(super) strategy: Strategy,
    /// Whether the trace to begin with has no masks and no in-place reuse.
    pub(super) as_recorded: bool,
    /// The order in which the operators run; none is the recorded one.
    pub(super) reordering: Option<Reordering>,
    /// The time of the flat trace less the recorded one's, in ns.
    pub(super) added: f64,
    pub(super) made: &'t mut Placed<'a, 'w>,
    pub(super) kept: &'t mut Kept<'a, 'w>,
    pub(super) scratch: Workspace<'t>,
    /// How often this policy has planned again; added to the seed, it seeds the placement.
    pub(super) attempt: u64,
    /// What was spent on plans and placements, in blocks placed.
    pub(super) spent: u64,
}

/// What placing a schedule has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Settled {
    /// It fits, and takes so much longer than the flat trace, in ns.
    Fits(f64),
    /// Its footprint is above the limit.
    Over,
    /// There is no room for its rows.
    NoRoom,
}

impl Trial<'_, '_, '_, '_> {
    /// Tries who swaps; work is counted in segments and gaps looked at.
    pub(super) fn run(&mut self, swaps: Swaps<'_>, recomputer: &Recomputer<'_>, work: u64) -> Result<Outcome, Error> {
        if self.kept.bound() <= self.added {
            return Ok(Outcome::Fails);
        }
        match swaps {
            Swaps::None if self.swapper.peak() > self.options.limit => Ok(Outcome::Fails),
            Swaps::None => self.settle(Policy::Auto, 0.0, WORK_RECOMPUTING).map(Settled::outcome),
            Swaps::By(policies) => self.by(policies, work),
            Swaps::Offloads | Swaps::Together => {
                self.kept.spend(work / WORK_PER_BLOCK);
                let planned = from_offloads(self.swapper, self.flat, recomputer, self.options.limit, work);
                // What becomes so much costlier than it was is left to another choice of what is recomputed; but swaps alone take care
                // of what that leaves above the limit.
                let costlier = if recomputer.excess() > 0 { f64::INFINITY } else { COSTLIER };
                let promised = (self.added + planned.unwrap_or(0.0)).max(1.0);
                let hopeless = self.kept.bound().min(promised * costlier) - self.added;
                self.insist(Policy::Auto, planned, work, WORK_RECOMPUTING, hopeless).map(Settled::outcome)
            }
        }
    }

    /// What each of these policies comes to, and with the search among them, what it makes of the best.
    fn by(&mut self, policies: &[Policy], work: u64) -> Result<Outcome, Error> {
        let mut best = f64::INFINITY;
        let mut outcome = Outcome::Fails;
        for &policy in policies {
            if self.kept.watched.stops() {
                break;
            }
            let settled = self.first(policy, work)?;
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

    /// What the search first comes to where values were recomputed down to a level, and how far it gets from there if it
    /// `climbs`: how much longer than the original that takes, in ns; none if it does not fit.
    pub(super) fn level(&mut self, work: u64, climbs: bool) -> Result<Option<f64>, Error> {
        if self.kept.bound() <= self.added {
            return Ok(None);
        }
        let Settled::Fits(mut best) = self.first(Policy::Auto, work)? else { return Ok(None) };
        if climbs {
            let [wander, near] = OF_LEVEL;
            self.swapper.remember();
            best = self.climb(best, work, wander)?;
            best = self.climb_on(best, work, near)?;
        }
        Ok(Some(self.added + best))
    }

    /// What a policy first comes to.
    fn first(&mut self, policy: Policy, work: u64) -> Result<Settled, Error> {
        let searches = policy == Policy::Auto;
        (self.attempt, self.spent) = (0, 0);
        self.swapper.hold_nothing();
        if searches {
            self.kept.spend(work / WORK_PER_BLOCK);
        }
        let limit = self.options.limit;
        let planned = self.counted(|swapper| swapper.plan(policy, limit, work));
        let few = if searches { FEW_OF_SEARCH } else { FEW };
        self.insist(policy, planned, work, few, f64::INFINITY)
    }

    /// Climbs from the best that was remembered.
    fn climb_on(&mut self, best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        self.spent = 0;
        self.swapper.recall();
        self.climb(best, work, climb)
    }

    /// Places what is planned, and plans again with memory held back, until that fits; gives up what takes `hopeless` ns
    /// longer than the original.
    fn insist(
        &mut self,
        policy: Policy,
        mut planned: Option<f64>,
        work: u64,
        few: u64,
        hopeless: f64,
    ) -> Result<Settled, Error> {
        let mut settled = Settled::NoRoom;
        for attempt in 0..ATTEMPTS {
            let Some(overhead) = planned.filter(|&overhead| overhead < hopeless) else { break };
            settled = self.settle(policy, overhead, few)?;
            // Layrub's rule knows no limit.
            if settled != Settled::Over || policy == Policy::Layer || self.kept.is_in_vain() {
                break;
            }
            self.hold(part(attempt, ATTEMPTS));
            planned = self.replan(policy, work / AGAIN);
        }
        Ok(settled)
    }

    /// Improves what was placed last, while memory is let go of where it fits and held back where it does not; what the best
    /// takes longer than the original, in ns.
    fn climb(&mut self, mut best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        let rows = u64::try_from(self.recorded.rows.len()).unwrap_or(u64::MAX);
        let enough = climb.enough.saturating_mul(rows).max(climb.least);
        let mut vain = 0;
        self.swapper.let_go();
        while vain < climb.end && best > 0.0 {
            let far = self.added + best > self.kept.bound() * FAR;
            if self.spent > if far { enough / TRY } else { enough } {
                break;
            }
            if vain > 0 && vain.is_multiple_of(climb.back) {
                self.swapper.recall();
            }
            let planned = self.replan(Policy::Auto, work / climb.part);
            let Some(overhead) = planned.filter(|&overhead| overhead < best) else {
                self.swapper.let_go();
                vain += 1;
                continue;
            };
            match self.settle(Policy::Auto, overhead, FEW_OF_SEARCH)? {
                Settled::Fits(_) => {
                    best = overhead;
                    self.swapper.remember();
                    self.swapper.let_go();
                    vain = 0;
                }
                Settled::Over => {
                    self.hold(1);
                    vain += 1;
                }
                Settled::NoRoom => break,
            }
        }
        Ok(best)
    }

    /// Plans again, by so much work.
    fn replan(&mut self, policy: Policy, work: u64) -> Option<f64> {
        self.attempt += 1;
        self.spend(1 + work / WORK_PER_BLOCK);
        if self.kept.watched.stops() {
            return None;
        }
        let limit = self.options.limit;
        self.counted(|swapper| swapper.replan(policy, limit, work))
    }

    /// Plans, and counts what the selections of gaps do.
    pub(super) fn counted(&mut self, plan: impl FnOnce(&mut Swapper<'_>) -> Option<f64>) -> Option<f64> {
        let before = self.swapper.selected();
        let planned = plan(self.swapper);
        self.spend(self.swapper.selected().saturating_sub(before) / WORK_PER_BLOCK);
        planned
    }

    /// Counts what was spent, in blocks placed.
    const fn spend(&mut self, blocks: u64) {
        self.spent = self.spent.saturating_add(blocks);
        self.kept.spend(blocks);
    }

    /// Places a schedule and offers what fits.
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

    /// Tells of a schedule that was placed.
    fn tell(&mut self, policy: Policy, overhead: f64, footprint: u64) {
        let &mut Self { strategy, as_recorded, reordering, added, options, .. } = self;
        let overhead_ns = added + overhead;
        let tried = Tried { strategy, policy, as_recorded, reordering, overhead_ns, footprint, limit: options.limit };
        // What is stopped ends at the next sign of life.
        let _ = self.kept.watched.tell(&Progress::Tried(tried));
    }

    /// Makes and places what takes least memory; it is the best if it fits, and nothing was.
    pub(super) fn least(&mut self, policy: Policy) -> Result<u64, Error> {
        if policy == Policy::Layer {
            self.swapper.plan(policy, u64::MAX, 0);
        } else {
            self.swapper.least_load();
        }
        // Not by the limit: what is named now has to be found again when it is asked for.
        let scratch = self.scratch.reborrow();
        let (seed, watched) = (self.options.seed, &mut self.kept.watched);
        let placed = self.made.place(self.recorded, seed, None, watched, (self.swapper, self.flat), scratch)?;
        let least = placed.unwrap_or(u64::MAX);
        if least <= self.options.limit {
            self.kept.offer(self.made, (self.added, least), policy);
        }
        Ok(least)
    }

    /// Holds memory back where the last placement is above the limit: a part of what is too much, in thirds.
    fn hold(&mut self, part: u32) {
        let (blocks, offsets) = self.made.blocks();
        self.swapper.hold(blocks, offsets, self.options.limit, (part, 3));
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

/// Swaps what was given to be on the host, and more where that is not enough.
pub(super) fn from_offloads(
    swapper: &mut Swapper<'_>,
    flat: &Flat<'_>,
    recomputer: &Recomputer<'_>,
    limit: u64,
    work: u64,
) -> Option<f64> {
    let held = |segment| recomputer.held_back(segment);
    swapper.start(recomputer.offloads(), &held, &|row| flat.operator(row), &|block| flat.block(block));
    swapper.replan(Policy::Auto, limit, work)
}

/// What is held back of what is too much, in thirds: one at first, and all of it in the end.
pub(super) fn part(attempt: u32, attempts: u32) -> u32 {
    if 2 * attempt < attempts { 1 } else { 2 + u32::from(attempt + 3 > attempts) }
}
