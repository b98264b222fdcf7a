//! Recomputation down to a level, then a search for swaps down to the limit.
//!
//! A level says how much is recomputed: down to which load in bytes, and which values, namely those whose recompute
//! cost per byte is least. The other values may only be swapped. There are two kinds of levels:
//! - The load is the same in all operators, between the limit and the max load of the recording. This is good where the
//!   links between device and host are busy all the time (transformers).
//! - The load in each operator is the limit plus the bytes that the links can keep on the host while it runs
//!   ([`carried`](super::carried)): more in the middle of the iteration than at its ends. This is good where the limit
//!   is tight and the links have time.
//!
//! Where the links are mostly idle (convolutions), it is best to recompute only a few cheap values, down to the limit.
//!
//! Steps:
//! 1. For many levels it is estimated how much time they add to the original. First come levels with loads at even
//!    distances, in which all values may be recomputed. Then come levels in which only a part of the values may be
//!    recomputed, down to the limit. Then come levels of the second kind: with what the links carry if the iteration
//!    takes longer by one of several delays. Last come neighbours of the best level: levels that differ little from it,
//!    and less each time. An estimate is a search that does a part of the usual work and places nothing.
//! 2. For some levels with the best estimates, schedules are made and placed until one fits. If none does for any of
//!    these levels, more levels follow.
//! 3. A longer search is made for the levels whose schedules take least time.
//! 4. From the best of these, the values that are recomputed are spared one by one, those first that take longest: they
//!    may only be swapped, if the estimate is then lower. If any are, a longer search is made again.
//!
//! Levels with equal estimates count once; of equals the first is taken.

use super::fitter::{Fitter, Level, Target};
use super::stage::HOPELESS;
use crate::Error;

const LOADS: u64 = 8;
const PARTS: u64 = 8;
/// In hundredths of the original's time.
const DELAYS: [u64; 6] = [0, 1, 3, 10, 30, 100];
/// Leaving out a few values matters much where these take very long to recompute.
const SHARES: [u64; 3] = [Level::ALL, Level::ALL / 4 * 3, Level::ALL / 16 * 15];
/// Each round estimates four neighbours of the best level, at half the distance of the round before.
const ROUNDS: usize = 3;
const LOOKS: usize = 8 + 7 + DELAYS.len() * SHARES.len() + 4 * ROUNDS;
const TRIED: usize = 6;
const ESTIMATE: u64 = 10;
const FIRST: u64 = 4;
/// A level is left out at this many times what the best schedule adds, or the least estimate + [`LITTLE`].
const POOR: f64 = 2.0;
const LITTLE: f64 = 0.01;
const CLIMBED: usize = 2;
const SPARED: usize = 12;
const WORTH_CLIMBING: f64 = 2.0;

/// The time added in ns; infinite if nothing fits or it is too long.
type Estimate = (f64, Level);

struct Estimates<'e, 'a, 'w, 's> {
    fitter: &'e mut Fitter<'a, 'w, 's>,
    work: u64,
    found: [Estimate; LOOKS],
    len: usize,
    /// Work spent: what is left then is for the schedules.
    end: u64,
}

impl Estimates<'_, '_, '_, '_> {
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn look(&mut self, level: Level) -> Result<(), Error> {
        let known = self.found.iter().take(self.len).any(|&(_, known)| known == level);
        let little = self.fitter.recorded().time_ns() as f64 * LITTLE;
        let most = (self.best().0 + little) * POOR;
        let most = most.min(self.fitter.best() * POOR);
        if !known
            && self.fitter.spent() < self.end
            && let Some(found) = self.found.get_mut(self.len)
        {
            *found = (self.fitter.estimate(self.work, level, most)?.unwrap_or(f64::INFINITY), level);
            self.len += 1;
        }
        Ok(())
    }

    fn best(&self) -> Estimate {
        let mut found = self.found;
        take_best(&mut found)
    }
}

pub(super) fn recompute_then_swap(fitter: &mut Fitter<'_, '_, '_>, peak: u64) -> Result<(), Error> {
    let limit = fitter.options().limit;
    let work = fitter.options().work_of(fitter.recorded().rows.len());
    let mut found = estimates(fitter, work / ESTIMATE, limit, peak)?;
    // For each level that was tried, the time in ns that its first schedule that fits adds to the original.
    let mut fits = [(f64::INFINITY, Level { target: Target::Load(limit), cheap: 0 }); TRIED];
    // The added time, in ns, of the estimate of the level that was tried before.
    let (mut tried, mut before) = (0, f64::INFINITY);
    while tried < TRIED || fits.iter().all(|(fits, _)| fits.is_infinite()) {
        let (mut estimate, mut level) = take_best(&mut found);
        // Levels whose estimates are equal to the last bit are taken to have the same schedule.
        while estimate.is_finite() && estimate.total_cmp(&before).is_eq() {
            (estimate, level) = take_best(&mut found);
        }
        if fitter.cutoff() <= 0.0 || estimate.is_infinite() || estimate >= fitter.best() * HOPELESS {
            break;
        }
        before = estimate;
        if let Some(added) = fitter.fit_level(work / FIRST, level, false)?
            && let Some(fits) = fits.get_mut(tried.min(TRIED - 1))
        {
            *fits = (added, level);
        }
        tried += 1;
    }
    let mut best = (f64::INFINITY, Level { target: Target::Load(limit), cheap: 0 });
    // If a schedule of another trace takes much less time than all schedules of this trace, the search does not go on
    // from these.
    for _ in 0..CLIMBED {
        let (added, level) = take_best(&mut fits);
        let is_worth_it = fitter.cutoff() < fitter.best() * HOPELESS && added < fitter.best() * WORTH_CLIMBING;
        if fitter.cutoff() > 0.0
            && is_worth_it
            && let Some(added) = fitter.fit_level(work, level, true)?
            && added < best.0
        {
            best = (added, level);
        }
    }
    if best.0.is_finite() && fitter.cutoff() > 0.0 {
        let spared = spare(fitter, work / ESTIMATE, best)?;
        if spared {
            fitter.fit_level(work, best.1, true)?;
        }
        fitter.recomputer().spare_nothing();
    }
    Ok(())
}

/// Returns whether any value is spared. `added` is the time of a schedule that was placed, above its estimate.
fn spare(fitter: &mut Fitter<'_, '_, '_>, work: u64, (added, level): Estimate) -> Result<bool, Error> {
    let most = added * POOR;
    let Some(mut best) = fitter.estimate(work, level, most)? else { return Ok(false) };
    let mut any = false;
    for _ in 0..SPARED {
        let Some(operator) = fitter.recomputer().dearest() else { break };
        fitter.recomputer().spare_values(operator, true);
        match fitter.estimate(work, level, best)? {
            Some(found) if found < best => (best, any) = (found, true),
            _ => fitter.recomputer().spare_values(operator, false),
        }
    }
    Ok(any)
}

fn estimates(fitter: &mut Fitter<'_, '_, '_>, work: u64, limit: u64, peak: u64) -> Result<[Estimate; LOOKS], Error> {
    let none = (f64::INFINITY, Level { target: Target::Load(limit), cheap: 0 });
    let end = fitter.halfway();
    let mut estimates = Estimates { fitter, work, found: [none; LOOKS], len: 0, end };
    let time = estimates.fitter.recorded().time_ns();
    let (step, part) = (peak.saturating_sub(limit) / LOADS, Level::ALL / PARTS);
    for n in 1..=LOADS {
        let load = limit.saturating_add(step.saturating_mul(n));
        estimates.look(Level { target: Target::Load(load), cheap: Level::ALL })?;
    }
    for n in 1..PARTS {
        estimates.look(Level { target: Target::Load(limit), cheap: part * n })?;
    }
    for cheap in SHARES {
        for delay in DELAYS {
            estimates.look(Level { target: Target::Carried(time / 100 * delay), cheap })?;
        }
    }
    for round in 1..=ROUNDS {
        let (estimate, best) = estimates.best();
        if estimate.is_infinite() {
            break;
        }
        let near = |less: bool| match best.target {
            Target::Load(load) if less => Target::Load(load.saturating_sub(step >> round).max(limit)),
            Target::Load(load) => Target::Load(load.saturating_add(step >> round)),
            Target::Carried(delay) if less => Target::Carried(delay - (delay >> round)),
            Target::Carried(delay) => Target::Carried(delay.saturating_add(delay >> round)),
        };
        let cheap = part >> round;
        for level in [
            Level { target: near(true), ..best },
            Level { target: near(false), ..best },
            Level { cheap: best.cheap.saturating_sub(cheap), ..best },
            Level { cheap: best.cheap.saturating_add(cheap).min(Level::ALL), ..best },
        ] {
            estimates.look(level)?;
        }
    }
    Ok(estimates.found)
}

/// Sets its time in `found` to infinity. If the result is infinite, none was left.
fn take_best(found: &mut [Estimate]) -> Estimate {
    let best = found.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or((f64::INFINITY, Level { target: Target::Load(0), cheap: 0 }), |best| {
        core::mem::replace(best, (f64::INFINITY, best.1))
    })
}
