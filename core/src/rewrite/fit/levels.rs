//! Recompute down to a level, then the search for swaps down to the limit.
//!
//! Where swaps cost much (transformers: the link is busy all the time), what is recomputed first makes room that the link would
//! take longest for, and the search for swaps then sees a trace in which the rest is easy. Which level is best is not known
//! beforehand: a grid between the limit and the peak is estimated, then the levels about the best. An estimate is a search of its own,
//! an eighth as long: shorter ones put the levels in another order than what they come to. The most promising are made until they fit,
//! which says more than an estimate; the search goes on from the one that takes least then, and from the one that promised most.
//!
//! The obvious alternative, to search for both at once, is tried as well ([`both`](super::both)): it wins where the link is
//! nearly free, and loses by a factor of up to 7 where it is not.

use super::pass::{Arrangement, Pass};
use super::trial::Swaps;
use crate::Error;
use crate::rewrite::means::swap::Policy;

/// How many levels between limit and peak are estimated first, and how many with those beside the best.
const LEVELS: u64 = 14;
const LOOKS: usize = 20;
/// How many are made until they fit.
const TRIED: usize = 4;
/// The part of its work that an estimate may do, and the search until it fits.
const ESTIMATE: u64 = 8;
const FIRST: u64 = 4;
/// What promises so many times what the best takes is not made; the search does not go on from what takes so many times it.
const HOPELESS: f64 = 1.25;
const WORTH_CLIMBING: f64 = 2.0;

/// Tries the levels.
pub(super) fn recompute_then_swap(pass: &mut Pass<'_, '_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let swaps = Swaps::By(&[Policy::Auto]);
    let estimate = work / ESTIMATE;
    let quick = Arrangement { recomputes: true, swaps, choice: estimate, work: estimate };
    let mut found = promises::<LOOKS>((limit, peak), (1, LEVELS), |level| {
        Ok(pass.promise(&quick, level)?.unwrap_or(f64::INFINITY))
    })?;
    // Where the search first gets, in a part of its work: that of the most promising first, and then the best.
    let thorough = Arrangement { choice: work, work, ..quick };
    let light = Arrangement { work: work / FIRST, ..thorough };
    let mut first = [(f64::INFINITY, limit); TRIED];
    let mut before = f64::INFINITY;
    for first in &mut first {
        let (mut promise, mut level) = take_best(&mut found);
        // What promises the same to the last bit is the same schedule.
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

/// What `N` levels promise, in ns, and the levels. `count` of them lie between limit and peak in even steps, the first
/// so many steps above the limit; the others lie beside the best of these by pairs, each pair half as far away as the
/// one before.
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

/// The level that promises most, the first of equals, which then promises nothing any more.
pub(super) fn take_best(found: &mut [(f64, u64)]) -> (f64, u64) {
    let best = found.iter_mut().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or((f64::INFINITY, 0), |best| core::mem::replace(best, (f64::INFINITY, best.1)))
}
