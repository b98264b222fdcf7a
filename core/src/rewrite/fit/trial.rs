//! The trial of one strategy: swaps are planned, and their schedules placed until one fits.
//!
//! Swaps are planned within the limit. Where the placement is above the limit, the operators that run there get
//! *headroom*: bytes held back below the limit. Swaps are then planned again; if the new plan misses the limit or takes
//! much longer, the search starts over ([`Trial::insist`]). Once a schedule fits, it is improved, placed again, and kept
//! if it fits and takes less time ([`Trial::climb`]).

use core::num::NonZeroU64;

use super::Options;
use super::budget::LOOKS_PER_BLOCK;
use super::lower_bound::takes_at_least;
use super::stage::{Kept, Placed, WORK_RECOMPUTING, Within};
use super::watch::{Progress, Strategy, Tried};
use crate::rewrite::flat::Flat;
use crate::rewrite::means::order::Reordering;
use crate::rewrite::means::swap::Swapper;
use crate::trace::{Recorded, Row};
use crate::{Error, Workspace};

const ATTEMPTS: u32 = 14;
const AGAIN: NonZeroU64 = NonZeroU64::new(12).unwrap();
/// A search starts over if a plan adds this many times what the one before added: its swaps are poor.
const RESTART: f64 = 1.5;
/// Of the recording's time: a small difference does not start the search over.
const LEAST_RESTART: f64 = 0.002;
const OVER: u64 = 4;
const HELD: u64 = 64;
/// One of the operators that need most memory mostly gives the proof; all would take longer than the search.
const FEW_OPERATORS: u32 = 16;
const FEW_PLACED: u64 = 12_000;

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
    /// What the budget had spent when this plan was first tried or the latest [`Climb`] began.
    pub(super) since: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Settled {
    Fits(f64),
    Over,
    NoRoom,
}

impl Trial<'_, '_, '_, '_> {
    pub(super) fn takes_at_least(&mut self, overhead: f64) -> Result<bool, Error> {
        let options = Options { using: Strategy::Swap.means(), ..*self.options };
        let flat = Recorded::new(self.rows, self.flat.blocks());
        takes_at_least(&flat, &options, overhead - self.added, FEW_OPERATORS, self.scratch.reborrow())
    }

    pub(super) fn run(&mut self, work: u64) -> Result<Outcome, Error> {
        if self.kept.cutoff() <= self.added {
            return Ok(Outcome::Fails);
        }
        if !self.strategy.swaps() {
            let fits = self.swapper.peak() <= self.options.limit;
            return if fits { self.settle(0.0, WORK_RECOMPUTING).map(Settled::outcome) } else { Ok(Outcome::Fails) };
        }
        let settled = self.first(work)?;
        if let Settled::Fits(overhead) = settled {
            self.climb_all(overhead, work, [WANDER, NEAR])?;
        }
        Ok(settled.outcome())
    }

    pub(super) fn level(&mut self, work: u64, climbs: bool) -> Result<Option<f64>, Error> {
        if self.kept.cutoff() <= self.added {
            return Ok(None);
        }
        let Settled::Fits(mut best) = self.first(work)? else { return Ok(None) };
        if climbs {
            best = self.climb_all(best, work, OF_LEVEL)?;
        }
        Ok(Some(self.added + best))
    }

    /// Where the first placement is above the limit, the search is made again with 1/[`HELD`] of it held back everywhere.
    fn first(&mut self, work: u64) -> Result<Settled, Error> {
        (self.attempt, self.since) = (0, self.kept.budget.spent());
        self.swapper.clear_headroom();
        let mut best = Settled::NoRoom;
        for again in [false, true] {
            self.kept.budget.spend_looks(work);
            let Some(planned) = self.swapper.search(self.options.limit, work) else { break };
            if self.added + planned >= self.kept.cutoff() {
                break;
            }
            let settled = self.insist(planned, work)?;
            if matches!(settled, Settled::Fits(_)) {
                self.swapper.remember();
                best = settled;
            } else if best == Settled::NoRoom {
                best = settled;
            }
            if again || self.attempt == 0 {
                break;
            }
            self.swapper.hold_back(self.options.limit / HELD);
        }
        if matches!(best, Settled::Fits(_)) {
            self.swapper.recall();
        }
        Ok(best)
    }

    fn climb_all(&mut self, mut best: f64, work: u64, climbs: [Climb; 2]) -> Result<f64, Error> {
        self.swapper.remember();
        for climb in climbs {
            if best > 0.0 {
                self.swapper.recall();
                best = self.climb(best, work, climb)?;
            }
        }
        Ok(best)
    }

    fn insist(&mut self, planned: f64, work: u64) -> Result<Settled, Error> {
        let mut planned = Some(planned);
        let mut settled = Settled::NoRoom;
        for attempt in 0..ATTEMPTS {
            let Some(overhead) = planned else { break };
            settled = self.settle(overhead, FEW_PLACED)?;
            if settled != Settled::Over || self.kept.is_spent() {
                break;
            }
            self.add_headroom(part(attempt, ATTEMPTS));
            planned = self.replan(work / AGAIN);
            if planned.is_none_or(|planned| planned > self.restart_threshold(overhead)) {
                planned = self.start_over(planned, work / OVER);
            }
        }
        Ok(settled)
    }

    fn climb(&mut self, mut best: f64, work: u64, climb: Climb) -> Result<f64, Error> {
        let rows = u64::try_from(self.recorded.rows.len()).unwrap_or(u64::MAX);
        let most = climb.budget.saturating_mul(rows).max(climb.least);
        let mut vain = 0;
        self.swapper.lower_headroom();
        while vain < climb.end && best > 0.0 && !self.kept.is_enough() {
            if self.kept.budget.spent() - self.since > most {
                break;
            }
            if vain > 0 && vain.is_multiple_of(climb.back) {
                self.swapper.recall();
            }
            let planned = self.replan(work / climb.part);
            let Some(overhead) = planned.filter(|&overhead| overhead < best) else {
                self.swapper.lower_headroom();
                vain += 1;
                continue;
            };
            match self.settle(overhead, FEW_PLACED)? {
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
        self.since = self.kept.budget.spent();
        Ok(best)
    }

    fn replan(&mut self, work: u64) -> Option<f64> {
        self.attempt += 1;
        self.plan_later(work, |swapper, limit| swapper.replan(limit, work))
    }

    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn restart_threshold(&self, before: f64) -> f64 {
        let time = self.recorded.time_ns() as f64;
        before.max(LEAST_RESTART * time) * RESTART
    }

    fn start_over(&mut self, planned: Option<f64>, work: u64) -> Option<f64> {
        self.plan_later(work, |swapper, limit| swapper.start_over(planned, limit, work))
    }

    fn plan_later(&mut self, work: u64, plan: impl FnOnce(&mut Swapper<'_>, u64) -> Option<f64>) -> Option<f64> {
        self.kept.budget.spend(1 + work / LOOKS_PER_BLOCK);
        if self.kept.watched.stops() { None } else { plan(self.swapper, self.options.limit) }
    }

    fn settle(&mut self, overhead: f64, few: u64) -> Result<Settled, Error> {
        self.swapper.tighten();
        Ok(match self.place(overhead, Some(Within { limit: self.options.limit, few }))? {
            None => Settled::NoRoom,
            Some(footprint) if footprint <= self.options.limit => Settled::Fits(overhead),
            Some(_) => Settled::Over,
        })
    }

    /// Tells the watch, and keeps the schedule if it fits; the footprint, or none where the rows have no room.
    fn place(&mut self, overhead: f64, within: Option<Within>) -> Result<Option<u64>, Error> {
        let seed = self.options.seed.wrapping_add(self.attempt);
        let before = self.made.blocks_placed();
        let swaps = (&mut *self.swapper, self.flat);
        let placed =
            self.made.place(self.recorded, seed, within, &mut self.kept.watched, swaps, self.scratch.reborrow())?;
        self.kept.budget.spend(self.made.blocks_placed() - before);
        let Some(footprint) = placed else { return Ok(None) };
        let &mut Self { strategy, as_recorded, reordering, options: &Options { limit, .. }, .. } = self;
        let overhead_ns = self.added + overhead;
        let tried = Tried { strategy, as_recorded, reordering, overhead_ns, footprint, limit };
        // If the watch ends the work here, the next call of `stops` says so.
        let _ = self.kept.watched.tell(&Progress::Tried(tried));
        if footprint <= limit {
            self.kept.consider(self.made, overhead_ns, footprint);
        }
        Ok(placed)
    }

    /// All that can leave the device does, and no longer than `limit` needs; 0 asks for the least memory.
    pub(super) fn plain(&mut self, limit: u64) -> Result<u64, Error> {
        if !self.swapper.all_within(limit) && limit > 0 {
            return Ok(u64::MAX);
        }
        let overhead = self.swapper.overhead();
        let within = (limit > 0).then_some(Within { limit: self.options.limit, few: FEW_PLACED });
        Ok(self.place(overhead, within)?.unwrap_or(u64::MAX))
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
