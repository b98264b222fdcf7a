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
//!
//! Levels with equal estimates count once; of equals the first is taken.

use super::pass::{Arrangement, Level, Pass, Target};
use super::stage::HOPELESS;
use super::trial::Swaps;
use crate::Error;
use crate::rewrite::means::swap::Policy;

/// How many loads, at even distances between the limit and the max load of the recording, are tried as targets. Values
/// are recomputed until the load is down to the target; then swaps bring it down to the limit. The time that both add
/// is estimated.
const LOADS: u64 = 8;
/// The values that can be recomputed are divided into this many parts of equal bytes, the cheapest to recompute first.
/// For each k from 1 to `PARTS` - 1, it is estimated how much time is added if only the first k parts may be
/// recomputed, and swaps do the rest.
const PARTS: u64 = 8;
/// Delays of the whole iteration, in hundredths of the original's time. For each, it is computed how many bytes the
/// links between device and host can copy if the iteration takes so much longer. These bytes are left to swaps,
/// recomputation saves the rest, and the time that both add is estimated.
const DELAYS: [u64; 6] = [0, 1, 3, 10, 30, 100];
/// Which values may be recomputed: the cheapest ones, up to a share of the bytes of all values that can be recomputed.
/// The other values are left to swaps. The shares are all, 3/4 and 15/16, counted in parts: [`Level::ALL`] parts are
/// all such values. To leave out a few values makes a great difference where these take very long to recompute. Each
/// share is tried with each of the [`DELAYS`] by which the iteration may take longer.
const SHARES: [u64; 3] = [Level::ALL, Level::ALL / 4 * 3, Level::ALL / 16 * 15];
/// The estimates of how much time [`Level`]s of recomputation add are refined in this many rounds. Each round takes the
/// level with the best estimate, and estimates its four neighbours: recomputation down to a lower or a higher load, and
/// of fewer or more values. The neighbours are half as far from it in each round as in the round before.
const ROUNDS: usize = 3;
/// The most [`Level`]s of recomputation for which the added time is estimated:
/// - one for each of [`LOADS`] loads to recompute down to;
/// - one for each k below [`PARTS`], with only the first k parts of the values recomputed;
/// - one for each of the [`DELAYS`] of the iteration with each of the [`SHARES`] of the values;
/// - four neighbours of the best level in each of the [`ROUNDS`].
const LOOKS: usize = 8 + 7 + DELAYS.len() * SHARES.len() + 4 * ROUNDS;
/// Schedules are made for up to this many [`Level`]s of recomputation: the ones with the best estimates, the best
/// first. If none of the schedules fits, more levels follow until one does.
const TRIED: usize = 6;
/// How much time a [`Level`] of recomputation adds is estimated by short searches. They may do the work of a whole
/// search divided by this.
const ESTIMATE: u64 = 10;
/// When schedules are first made for a [`Level`] of recomputation, the search for swaps may do the work of a whole
/// search divided by this.
const FIRST: u64 = 4;
/// A [`Level`] of recomputation is not estimated if it is known to add too much time: at least `POOR` times what the
/// best schedule of any trace adds, or at least `POOR` · (the least estimate + [`LITTLE`] · the time of the original).
const POOR: f64 = 2.0;
/// A fraction of the original's time. It is added to the best estimate to find [`Level`]s of recomputation that add too
/// much time ([`POOR`]). So levels that add little are estimated even if the best one is estimated to add nothing: the
/// schedule of the best may not fit once it is placed.
const LITTLE: f64 = 0.01;
/// A last, longer search is made for at most this many [`Level`]s of recomputation: the ones whose schedules take the
/// least time.
const CLIMBED: usize = 2;
/// The last, longer search is made for a [`Level`] of recomputation only if its schedule adds less than this many times
/// the time that the best schedule adds to the original.
const WORTH_CLIMBING: f64 = 2.0;

/// The time, in ns, that recomputation to a [`Level`] and swaps after it are estimated to add to the original; and the
/// level. The time is infinite if no schedule within the limit is found, if the schedule would add too much time
/// ([`POOR`]), or if the work has ended.
type Estimate = (f64, Level);

/// The [`Level`]s of recomputation that were estimated so far, and what is needed to estimate more.
struct Estimates<'e, 'a, 'w, 's> {
    pass: &'e mut Pass<'a, 'w, 's>,
    /// What each estimate plans, namely recomputation and then swaps; and how much work the searches for recomputation
    /// and for swaps may do.
    quick: Arrangement<'e>,
    found: [Estimate; LOOKS],
    len: usize,
}

impl Estimates<'_, '_, '_, '_> {
    /// Estimates the time that a [`Level`] of recomputation, with swaps after it, adds to the original, and appends the
    /// estimate to `found`. Does nothing if `found` has the level already. `Err` if a row of the trace is invalid or
    /// the workspace is too short.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn look(&mut self, level: Level) -> Result<(), Error> {
        let known = self.found.iter().take(self.len).any(|&(_, known)| known == level);
        let little = self.pass.original_ns() as f64 * LITTLE;
        let most = (self.best().0 + little) * POOR;
        let most = most.min(self.pass.best() * POOR);
        if !known && let Some(found) = self.found.get_mut(self.len) {
            let promise = self.pass.promise(&self.quick, level, most)?.unwrap_or(f64::INFINITY);
            *found = (promise, level);
            self.len += 1;
        }
        Ok(())
    }

    /// The estimate with the least added time, of equals the first.
    fn best(&self) -> Estimate {
        let mut found = self.found;
        take_best(&mut found)
    }
}

/// Makes schedules that recompute and swap. For each of several [`Level`]s, recomputes as much as the level says, then
/// swaps until the load is within `limit` bytes. `pass` keeps the best schedule. `peak` is the max load of the
/// recording, in bytes. `work` is how many operators and idle times of blocks a search for swaps may look at. `Err` if
/// a row of the trace is invalid or the workspace is too short.
pub(super) fn recompute_then_swap(pass: &mut Pass<'_, '_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let swaps = Swaps::By(&[Policy::Auto]);
    let estimate = work / ESTIMATE;
    let quick = Arrangement { recomputes: true, swaps, choice: estimate, work: estimate };
    let mut found = estimates(pass, quick, limit, peak)?;
    let thorough = Arrangement { choice: work, work, ..quick };
    let light = Arrangement { work: work / FIRST, ..thorough };
    // For each level that was tried, the time in ns that its first schedule that fits adds to the original.
    let mut fits = [(f64::INFINITY, Level { target: Target::Load(limit), cheap: 0 }); TRIED];
    // The added time, in ns, of the estimate of the level that was tried before.
    let (mut tried, mut before) = (0, f64::INFINITY);
    while tried < TRIED || fits.iter().all(|(fits, _)| fits.is_infinite()) {
        let (mut promise, mut level) = take_best(&mut found);
        // Levels whose estimates are equal to the last bit are taken to have the same schedule.
        while promise.is_finite() && promise.total_cmp(&before).is_eq() {
            (promise, level) = take_best(&mut found);
        }
        if pass.cutoff() <= 0.0 || promise.is_infinite() || promise >= pass.best() * HOPELESS {
            break;
        }
        before = promise;
        if let Some(added) = pass.fit_level(&light, level, false)?
            && let Some(fits) = fits.get_mut(tried.min(TRIED - 1))
        {
            *fits = (added, level);
        }
        tried += 1;
    }
    // If a schedule of another trace takes much less time than all schedules of this trace, the search does not go on
    // from these.
    for _ in 0..CLIMBED {
        let (added, level) = take_best(&mut fits);
        let is_worth_it = pass.cutoff() < pass.best() * HOPELESS && added < pass.best() * WORTH_CLIMBING;
        if pass.cutoff() > 0.0 && is_worth_it {
            pass.fit_level(&thorough, level, true)?;
        }
    }
    Ok(())
}

/// Estimates how much time each of many [`Level`]s of recomputation, with swaps after it, adds to the original. These
/// levels are estimated, in this order:
/// - all values may be recomputed, until the load is at one of [`LOADS`] loads between `limit` and `peak`;
/// - only the cheapest k parts of the values may be recomputed, for each k below [`PARTS`];
/// - swaps save as many bytes as the links between device and host can copy if the iteration takes longer by one of the
///   [`DELAYS`], and recomputation saves the rest, by each of the [`SHARES`] of the values;
/// - neighbours of the best of these levels: recomputation of a little more, or of a little less.
///
/// `limit` and `peak`, the max load of the recording, are in bytes. `quick` says how much work one estimate may do.
/// Returns the estimates; unused entries have infinite times. `Err` if a row of the trace is invalid or the workspace
/// is too short.
fn estimates(
    pass: &mut Pass<'_, '_, '_>,
    quick: Arrangement<'_>,
    limit: u64,
    peak: u64,
) -> Result<[Estimate; LOOKS], Error> {
    let none = (f64::INFINITY, Level { target: Target::Load(limit), cheap: 0 });
    let mut estimates = Estimates { pass, quick, found: [none; LOOKS], len: 0 };
    let time = estimates.pass.original_ns();
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
        let (promise, best) = estimates.best();
        if promise.is_infinite() {
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

/// Takes the entry with the least estimated time from `found`, of equals the first. Returns this time, in ns, and its
/// [`Level`] of recomputation. The time in `found` becomes infinity, so that the next call takes another entry. If the
/// returned time is infinite, no usable entry was left.
fn take_best(found: &mut [Estimate]) -> Estimate {
    let best = found.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or((f64::INFINITY, Level { target: Target::Load(0), cheap: 0 }), |best| {
        core::mem::replace(best, (f64::INFINITY, best.1))
    })
}
