//! Layrub's policy of swapping by layers: in which idle times blocks are swapped, and when the copies begin.
//! [`layrub`](super::layrub) measures the memory that activations and gradients then take.

use crate::rewrite::gaps::GapKind;
use crate::rewrite::means::swap::schedule::Schedule;

/// The schedule of Layrub (Jin et al. 2018). `limit` decides only the result.
pub(in crate::rewrite) fn by_layer(schedule: &mut Schedule<'_>, limit: u64) -> bool {
    schedule.clear();
    let gaps = schedule.gaps();
    let (_, peak) = schedule.peak();
    for gap in gaps.all() {
        let g = gaps.gap(gap);
        let over = g.kind == GapKind::Middle && g.begin <= peak && peak < g.end && g.begin + 1 < g.end;
        if over && schedule.may_use(gap, &g) {
            schedule.set(gap, [g.begin, g.end - 1]);
        }
    }
    schedule.peak().0 <= limit
}
