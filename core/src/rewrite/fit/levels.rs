//! Recomputation down to a level, then a search for swaps down to the limit. A level is a load in bytes between the
//! limit and the peak.
//!
//! This is for networks in which swaps take much time (transformers: the link is busy all the time). Recomputation
//! first saves the bytes that would take the link longest, and the rest is easier to swap. The best level is not known
//! beforehand. So a grid of levels is estimated, and then some levels near the best. An estimate is a search with a
//! tenth of the work: shorter searches rank the levels differently from the schedules that are made in the end. For
//! each of the levels with the best estimates, schedules are made and placed until one fits. The search then goes on
//! from the level whose schedule takes least time, and from the level with the best estimate.
//!
//! The obvious alternative, to search for swaps and recomputation at once, is tried as well ([`both`](super::both)): it
//! wins where the link is mostly idle, and loses by a factor of up to 7 where it is busy.

use super::pass::{Arrangement, Pass};
use super::trial::Swaps;
use crate::Error;
use crate::rewrite::means::swap::Policy;

/// How many levels are estimated first, at even distances between limit and peak.
const LEVELS: u64 = 14;
/// How many levels are estimated in all: the others lie in pairs beside the best.
const LOOKS: usize = 20;
/// How many levels are tried: for each, schedules are made until one fits.
const TRIED: usize = 4;
/// The work of an estimate, as a part of the whole: one in so many.
const ESTIMATE: u64 = 10;
/// The work of the first search for swaps at a level, as a part of the whole: one in so many.
const FIRST: u64 = 4;
/// No schedule is made for a level whose estimated time over the original is so many times the incumbent's.
const HOPELESS: f64 = 1.25;
/// The search does not go on from a schedule whose time over the original is so many times the incumbent's.
const WORTH_CLIMBING: f64 = 2.0;

/// Tries recomputation down to levels between limit and peak, each followed by swaps. `limit` and `peak` are in bytes,
/// `work` in segments and gaps looked at.
pub(super) fn recompute_then_swap(pass: &mut Pass<'_, '_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let swaps = Swaps::By(&[Policy::Auto]);
    let estimate = work / ESTIMATE;
    let quick = Arrangement { recomputes: true, swaps, choice: estimate, work: estimate };
    let mut found = promises::<LOOKS>((limit, peak), (1, LEVELS), |level| {
        Ok(pass.promise(&quick, level)?.unwrap_or(f64::INFINITY))
    })?;
    // By level that is tried: the time over the original of the first schedule that fits, in ns, and the level. The
    // level with the best estimate comes first.
    let thorough = Arrangement { choice: work, work, ..quick };
    let light = Arrangement { work: work / FIRST, ..thorough };
    let mut first = [(f64::INFINITY, limit); TRIED];
    let mut before = f64::INFINITY;
    for first in &mut first {
        let (mut promise, mut level) = take_best(&mut found);
        // Levels whose estimates are equal to the last bit are taken to have the same schedule.
        while promise.is_finite() && promise.total_cmp(&before).is_eq() {
            (promise, level) = take_best(&mut found);
        }
        if pass.bound() <= 0.0 || promise.is_infinite() || promise >= pass.best() * HOPELESS {
            break;
        }
        before = promise;
        *first = (pass.fit_level(&light, level, false)?.unwrap_or(f64::INFINITY), level);
    }
    let best = take_best(&mut first);
    for (fits, level) in [best, first[0]] {
        if pass.bound() > 0.0 && fits < pass.best() * WORTH_CLIMBING {
            pass.fit_level(&thorough, level, true)?;
        }
    }
    Ok(())
}

/// Estimates `N` levels by `look`. Returns for each the estimated time over the original, in ns, and the level, in
/// bytes. `count` levels lie above the limit at multiples of one step, from `first` steps on; a step is the distance
/// from limit to peak over `count`. The others lie in pairs at both sides of the best level so far, half a step away at
/// first; for each next pair the distance is halved.
pub(super) fn promises<const N: usize>(
    (limit, peak): (u64, u64),
    (first, count): (u64, u64),
    mut look: impl FnMut(u64) -> Result<f64, Error>,
) -> Result<[(f64, u64); N], Error> {
    let mut step = peak.saturating_sub(limit) / count.max(1);
    let mut found = [(f64::INFINITY, limit); N];
    let grid = usize::try_from(count).unwrap_or(N);
    let (grid, beside) = found.split_at_mut_checked(grid).unwrap_or_default();
    for (found, part) in grid.iter_mut().zip(first..) {
        let level = limit.saturating_add(step.saturating_mul(part));
        *found = (look(level)?, level);
    }
    let better = |best: (f64, u64), found: &(f64, u64)| if found.0 < best.0 { *found } else { best };
    let mut best = grid.iter().fold((f64::INFINITY, limit), better);
    for pair in beside.chunks_mut(2) {
        step /= 2;
        for (found, level) in pair.iter_mut().zip([best.1.saturating_sub(step), best.1.saturating_add(step)]) {
            if level > limit {
                *found = (look(level)?, level);
            }
        }
        best = pair.iter().fold(best, better);
    }
    Ok(found)
}

/// Takes the level with the least estimated time, of equal ones the first. Returns the time, in ns, and the level, and
/// sets the time in `found` to infinity, so that another level is taken next.
pub(super) fn take_best(found: &mut [(f64, u64)]) -> (f64, u64) {
    let best = found.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or((f64::INFINITY, 0), |best| core::mem::replace(best, (f64::INFINITY, best.1)))
}
