//! Layrub's policy of swapping by layers: in which idle times blocks are swapped, and when the copies begin.
//! [`layrub`](super::layrub) measures the memory that activations and gradients then take.

use crate::rewrite::gaps::GapKind;
use crate::rewrite::means::swap::schedule::Schedule;

/// Makes the schedule of Layrub (Jin et al. 2018). A block is swapped in an idle time under four conditions:
/// - the idle time is longer than one operator;
/// - the operator with the max load lies in the idle time;
/// - an operator of the iteration accesses the block before the idle time, and the next access after it is a read;
/// - the host has room for the block.
///
/// The block is copied out as soon as the idle time begins, unless the host has its value already, and copied back one
/// operator ahead of its next reader; compute waits for each copy out. `limit` does not change the schedule; returns
/// false if the load of the schedule is above `limit` bytes.
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
