//! How much a gap is worth: the priority scores of Zhang et al. 2019, section 4.2.
//!
//! - DOA, duration of absence: the gap's time less the copies out and in. Negative where they do not fit.
//! - AOA, area of absence: DOA times the size; divided by the size where DOA is negative, so that the small ones, which
//!   delay least, come first.
//! - WDOA, weighted: the area under the load curve over the gap.
//! - SWDOA, submodular: WDOA over the load that is left after the gaps already chosen.
//!
//! A mixture weighs all four, each divided by its standard deviation over the gaps.

use super::candidates::Gap;
use super::schedule::Schedule;
use crate::table::Table;

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
    area: &Table<'_, u64>,
    area_left: &Table<'_, u64>,
) -> [f64; 4] {
    let c = schedule.candidates();
    let size = c.size[gap.block];
    let device = schedule.device();
    let from = c.time[gap.begin];
    let to = if gap.end < c.segments { c.access_time[gap.end] } else { c.end_time };
    let doa = to.saturating_sub(from) as f64 - device.out_ns(size) - device.in_ns(size);
    let aoa = if doa < 0.0 { doa / size as f64 } else { doa * size as f64 };
    [doa, aoa, under(gap, area), under(gap, area_left)]
}

/// The area under a load curve over a gap.
pub(super) fn under(gap: &Gap, area: &Table<'_, u64>) -> f64 {
    f64::from_bits(area[gap.end]) - f64::from_bits(area[gap.begin])
}

/// Writes the area under the present load curve up to each boundary, in byte nanoseconds, as bits.
#[expect(clippy::cast_precision_loss, reason = "scores")]
pub(super) fn areas(schedule: &Schedule<'_>, area: &mut Table<'_, u64>) {
    let c = schedule.candidates();
    let mut sum = 0.0;
    for g in 0..c.segments {
        area[g] = f64::to_bits(sum);
        sum += schedule.load(g) as f64 * (c.time[g + 1] - c.time[g]) as f64;
    }
    area[c.segments] = f64::to_bits(sum);
}
