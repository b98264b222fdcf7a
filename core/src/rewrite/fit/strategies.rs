//! The strategies, one after the other, on one variant.

use super::fitter::Fitter;
use super::levels;
use super::watch::Strategy;
use crate::Error;

/// Recomputes and swaps by every strategy of [`Strategy::ALL`] that the means allow, the cheapest searches first.
pub(super) fn fit(fitter: &mut Fitter<'_, '_, '_>, peak: u64) -> Result<(), Error> {
    for strategy in fitter.strategies() {
        if fitter.is_done() || fitter.cannot_win(strategy)? {
            continue;
        }
        match strategy {
            Strategy::Free | Strategy::Swap => fitter.alone(|fitter| fitter.run(strategy).map(|_| ()))?,
            Strategy::Recompute => fitter.alone(Fitter::recompute)?,
            Strategy::RecomputeThenSwap => levels::recompute_then_swap(fitter, peak)?,
        }
    }
    Ok(())
}
