//! `sublet fit --monotone`: what fits into less memory is a schedule here, too.
//!
//! A fit is a heuristic, and may find less overhead at a lower limit. The limits that are tried are whole percents of the peak, from
//! the one asked for down, and the quickest result counts: at a whole percent the result is thus never worse than at any whole percent
//! below. The way down ends where the lower bound on the overhead is above the best that was found, for that bound grows as limits fall.

use sublet_core::Error;
use sublet_core::owned::Scratch;
use sublet_core::rewrite::fit::{self, Means, Options};

use super::buffers::Buffers;
use crate::interrupt::Until;
use crate::problem::Trace;
use crate::text::size::Limit;

/// A lower bound on the overhead of every schedule within the limit, as a fraction of the original's time; none where nothing is
/// known.
///
/// # Errors
/// As [`fit::least_overhead`].
#[expect(clippy::cast_precision_loss, reason = "a time")]
pub(crate) fn lower_bound(trace: &Trace, options: &Options) -> Result<Option<f64>, Error> {
    let mut scratch = Scratch::of(fit::lower_bound_workspace(trace.rows.len(), trace.names.len()));
    let ns = fit::least_overhead(&trace.recorded(), options, scratch.lend())?;
    let original_ns = trace.rows.last().map_or(0, |row| row.time_ns) as f64;
    // In another order nothing is known but that an operator does not fit.
    let known = ns.is_infinite() || !options.using.has(Means::Order);
    Ok(known.then_some(ns / original_ns.max(1.0)))
}

/// The limit to fit to, at most that of `options`, whose schedule takes the least time; `peak` is the trace's.
///
/// # Errors
/// As [`fit::fit`], but for limits that cannot be kept.
pub(super) fn quickest(
    buffers: &mut Buffers,
    trace: &Trace,
    options: &Options,
    peak: u64,
    until: Until,
) -> Result<u64, Error> {
    let percents = (1u8..=100).rev().map(|percent| Limit::Percent(percent.into()).of(peak));
    let below = percents.filter(|&limit| limit < options.limit);
    let (mut best, mut quickest) = (f64::INFINITY, options.limit);
    for limit in [options.limit].into_iter().chain(below) {
        let options = Options { limit, ..*options };
        let bound = lower_bound(trace, &options)?.unwrap_or(0.0);
        if until.is_over() || bound.is_infinite() || bound >= best {
            break;
        }
        match buffers.fit_watched(trace, &options, &mut |_| until.flow()) {
            Ok(fitted) => {
                let overhead = fitted.schedule.run().overhead();
                if overhead < best {
                    (best, quickest) = (overhead, limit);
                }
            }
            Err(Error::OverLimit { .. } | Error::Stopped) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(quickest)
}
