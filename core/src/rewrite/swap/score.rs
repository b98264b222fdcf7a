//! How much a gap is worth: the priority scores of Zhang et al. 2019, section 4.2.
//!
//! - DOA, duration of absence: the gap's time less the copies out and in. Negative where they do not fit.
//! - AOA, area of absence: DOA times the size; divided by the size where DOA is negative, so that the small ones, which
//!   delay least, come first.
//! - WDOA, weighted: the area under the load curve over the gap.
//! - SWDOA, submodular: WDOA over the load that is left after the gaps already chosen.
//!
//! A mixture weighs all four, each divided by its standard deviation over the gaps.

use super::schedule::Schedule;
use crate::rewrite::gaps::Gap;
use crate::table::Records;

/// The weights of DOA, AOA, WDOA and SWDOA.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weights(pub(super) [f64; 4]);

impl Weights {
    pub(super) const DOA: Self = Self([1.0, 0.0, 0.0, 0.0]);
    pub(super) const AOA: Self = Self([0.0, 1.0, 0.0, 0.0]);
    pub(super) const WDOA: Self = Self([0.0, 0.0, 1.0, 0.0]);
    pub(super) const SWDOA: Self = Self([0.0, 0.0, 0.0, 1.0]);
    pub(super) const SINGLE: [Self; 4] = [Self::DOA, Self::AOA, Self::WDOA, Self::SWDOA];
}

/// The four scores of a gap. `area` holds the area under the load curve up to each boundary as it was at first, and
/// `area_left` as it is.
#[expect(clippy::cast_precision_loss, reason = "scores")]
pub(super) fn scores(
    schedule: &Schedule<'_>,
    gap: &Gap,
    area: &Records<'_, f64>,
    area_left: &Records<'_, f64>,
) -> [f64; 4] {
    let gaps = schedule.gaps();
    let size = gaps.program.size[gap.block];
    let device = schedule.device();
    let from = gaps.program.time[gap.begin];
    let to = if gap.end < gaps.program.operators { gaps.program.access_time[gap.end] } else { gaps.program.end_time };
    let doa = to.saturating_sub(from) as f64 - device.out_ns(size) - device.in_ns(size);
    let aoa = if doa < 0.0 { doa / size as f64 } else { doa * size as f64 };
    [doa, aoa, under(gap, area), under(gap, area_left)]
}

/// The area under a load curve over a gap.
pub(super) fn under(gap: &Gap, area: &Records<'_, f64>) -> f64 {
    area.get(gap.end) - area.get(gap.begin)
}

/// Writes the area under the present load curve up to each boundary, in byte nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "scores")]
pub(super) fn areas(schedule: &Schedule<'_>, area: &mut Records<'_, f64>) {
    let gaps = schedule.gaps();
    let mut sum = 0.0;
    for g in 0..gaps.program.operators {
        area.set(g, sum);
        sum += schedule.load(g) as f64 * (gaps.program.time[g + 1] - gaps.program.time[g]) as f64;
    }
    area.set(gaps.program.operators, sum);
}
