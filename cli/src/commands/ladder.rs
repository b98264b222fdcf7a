//! The searches of one `sublet fit`, of which the fastest schedule counts.
//!
//! `--effort max` searches a second time, with more work. `--monotone` also tries lower limits, since a schedule for
//! less memory is one for this limit too: a fit is a heuristic, and may find less overhead at a lower limit. The limits
//! tried are whole percents of the peak, from the one asked for down. So at a whole percent the result is never worse
//! than at any whole percent below. The searches end where the lower bound on the overhead reaches the best that was
//! found, for that bound grows as limits fall.

use std::ops::ControlFlow;

use sublet_core::Error;
use sublet_core::owned::Scratch;
use sublet_core::rewrite::fit::{self, Fitted, Means, Options, Progress};

use super::buffers::{Aside, Buffers};
use super::explain::Explained;
use crate::args::FitEffort;
use crate::problem::Trace;
use crate::text::size::Limit;

/// A lower bound on the overhead of every schedule within the limit, as a fraction of the original's time; none where
/// none is known.
///
/// # Errors
/// As [`fit::least_overhead`].
#[expect(clippy::cast_precision_loss, reason = "a time")]
pub(crate) fn lower_bound(trace: &Trace, options: &Options) -> Result<Option<f64>, Error> {
    let mut scratch = Scratch::of(fit::lower_bound_workspace(trace.rows.len(), trace.names.len()));
    let ns = fit::least_overhead(&trace.recorded(), options, scratch.lend())?;
    let original_ns = trace.time_ns() as f64;
    // The bound holds for the recorded order alone, unless it is infinite: then some operator alone does not fit, in
    // any order.
    let known = ns.is_infinite() || !options.using.has(Means::Order);
    Ok(known.then_some(ns / original_ns.max(1.0)))
}

/// With `--effort max` the second search may do this many times the work of the first.
const MORE: u64 = 8;

/// The options of each search for a schedule, in the order in which they are tried. `peak` is the max load of the
/// trace, in bytes: with `monotone` each whole percent of it below the limit of `options` is tried too.
pub(super) fn rungs(options: Options, peak: u64, effort: FitEffort, monotone: bool) -> impl Iterator<Item = Options> {
    let percents = (1u8..=100).rev().map(move |percent| Limit::Percent(percent.into()).of(peak));
    let below = percents.filter(move |&limit| monotone && limit < options.limit);
    let limits = [options.limit].into_iter().chain(below);
    let searches = if effort == FitEffort::Max { 2 } else { 1 };
    limits.flat_map(move |limit| {
        let works = [options.work, options.work.saturating_mul(MORE)].into_iter().take(searches);
        works.map(move |work| Options { limit, work, ..options })
    })
}

/// The fastest of several schedules.
#[derive(Debug)]
pub(super) struct Quickest<'b> {
    /// The schedule.
    pub(super) fitted: Fitted<'b>,
    /// The schedules that were tried in the search that found it.
    pub(super) explained: Explained,
    /// The limit for which the schedule was made, in bytes.
    pub(super) limit: u64,
}

/// The fastest schedule of several searches, whose limits do not rise. Ends where a lower bound shows that no further
/// search can give a faster schedule. `watch` is told the least time over the original so far, in ns.
///
/// # Errors
/// As [`fit::fit_watched`] for the first search, where none finds a schedule.
pub(super) fn quickest<'b>(
    buffers: &'b mut Buffers,
    trace: &Trace,
    rungs: impl Iterator<Item = Options>,
    watch: &mut dyn FnMut(f64) -> ControlFlow<()>,
) -> Result<Quickest<'b>, Error> {
    let (mut quickest, mut best, mut best_ns) = (None, f64::INFINITY, f64::INFINITY);
    let mut refused = None;
    for (number, rung) in rungs.enumerate() {
        if number > 0 {
            let bound = lower_bound(trace, &rung)?.unwrap_or(0.0);
            if watch(best_ns).is_break() || bound.is_infinite() || bound >= best {
                break;
            }
        }
        let mut explained = Explained::new();
        let made = buffers.fit_watched(trace, &rung, &mut |progress| {
            if let Progress::Tried(tried) = progress {
                explained.add(tried, rung.limit);
            }
            watch(best_ns.min(explained.best_ns()))
        });
        match made {
            Ok(fitted) => {
                let overhead = fitted.schedule.run().overhead();
                if overhead < best {
                    (best, best_ns) = (overhead, explained.best_ns());
                    quickest = Some((Aside::of(&fitted), explained, rung));
                }
            }
            Err(e @ (Error::OverLimit { .. } | Error::Impossible { .. } | Error::Stopped)) => {
                refused = refused.or(Some(e));
            }
            Err(e) => return Err(e),
        }
    }
    let (aside, explained, rung) = quickest.ok_or_else(|| refused.unwrap_or(Error::Stopped))?;
    Ok(Quickest { fitted: buffers.prove(trace, &rung, aside)?, explained, limit: rung.limit })
}
