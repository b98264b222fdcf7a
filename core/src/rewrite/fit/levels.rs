//! Recompute down to a level, then the full search for swaps down to the limit.
//!
//! Where swaps cost much (transformers: the link is busy all the time), what is recomputed first makes room that the link would
//! take longest for, and the search for swaps then sees a trace in which the rest is easy. Which level is best is not known
//! beforehand: a grid between the limit and the peak is estimated by short searches, then the levels about the best; the most
//! promising are made.
//!
//! The obvious alternative, to search for both at once, is tried as well ([`both`](super::both)): it wins where the link is
//! nearly free, and loses by a factor of up to 7 where it is not.

use super::pass::{Arrangement, Pass};
use super::take_best;
use super::trial::Swaps;
use crate::Error;
use crate::rewrite::means::swap::Policy;

/// How many levels between limit and peak are estimated first, and how often the two beside the best after that, each time
/// half as far.
const LEVELS: usize = 16;
const HALVINGS: usize = 2;
/// How many are made.
const MADE: usize = 3;
/// The part of its work that an estimate may do.
const ESTIMATE: u64 = 96;
/// What promises so many times what the best takes is not made.
const HOPELESS: f64 = 1.25;

/// Tries the levels.
pub(super) fn recompute_then_swap(pass: &mut Pass<'_, '_, '_>, limit: u64, peak: u64, work: u64) -> Result<(), Error> {
    let swaps = Swaps::By(&[Policy::Auto]);
    let quick = Arrangement { recomputes: true, swaps, choice: work / ESTIMATE, work: work / ESTIMATE };
    // What each level promises, and the level.
    let mut found = [(f64::INFINITY, limit); LEVELS + 2 * HALVINGS];
    let (grid, beside) = found.split_at_mut(LEVELS);
    let mut look = |level: u64| Ok::<_, Error>((pass.promise(&quick, level)?.unwrap_or(f64::INFINITY), level));
    let mut step = peak.saturating_sub(limit) / LEVELS as u64;
    let mut level = limit;
    for found in &mut *grid {
        level = level.saturating_add(step);
        *found = look(level)?;
    }
    let mut best = grid.iter().fold((f64::INFINITY, limit), |best, found| if found.0 < best.0 { *found } else { best });
    for pair in beside.chunks_mut(2) {
        step /= 2;
        for (found, level) in pair.iter_mut().zip([best.1.saturating_sub(step), best.1.saturating_add(step)]) {
            *found = look(level)?;
        }
        best = pair.iter().fold(best, |best, found| if found.0 < best.0 { *found } else { best });
    }
    for _ in 0..MADE {
        let (promise, level) = take_best(&mut found);
        if pass.bound() <= 0.0 || promise >= pass.best() * HOPELESS || promise.is_infinite() {
            break;
        }
        pass.fit_level(&Arrangement { choice: work, work, ..quick }, level)?;
    }
    Ok(())
}
