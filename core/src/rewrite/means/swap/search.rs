//! Local search for a faster swap schedule; the cost is the simulated time. A gap, or idle time, is a time in which no
//! operator accesses a block. The search changes where the blocks of gaps are freed and allocated again.
//!
//! A state is a schedule whose load is within the limit. A move changes one gap: its block is freed or allocated again
//! at another boundary between operators, or is newly freed in the gap, or stays on the device in it. *Repair* then has
//! blocks leave the device for longer, or in more gaps, until the load is within the limit in every operator. It draws
//! these gaps at random, most often those whose copies are likely to cost little time. *Trim* then shortens the absence
//! of blocks in gaps that overlap in time with the changed ones, where memory allows, so that copies get more time. It
//! begins with a random gap.
//!
//! The new schedule is kept if it takes no longer, or by the rule of simulated annealing if it takes a little longer;
//! else the move is undone. Half of the moves that change a gap in use begin at a gap near an operator that had to
//! wait. The search returns the best schedule seen. It ends early once a schedule takes no longer than the original.
//!
//! All random choices come from one seeded generator. Work is counted in operators, values and gaps looked at, and each
//! move counts for 50 more. Scratch: a log of the changed gaps as they were before the move, and a copy of the best
//! schedule.

use super::schedule::{Position, Positions, Schedule};
use crate::id::Id;
use crate::rewrite::anneal::{Cooling, Random};
use crate::rewrite::gaps::{Gap, GapId, GapKind, NONE};
use crate::workspace::workspace;

workspace! {
    pub(in crate::rewrite) struct Search<'a>(rows, blocks; seed: u64) {
        lists {
            log: Position[LOG],
        }
        parts {
            best: Positions(rows, blocks),
        }
        state {
            random: Random = Random::new(seed),
            work: u64 = 0,
        }
    }
}

/// A move that fills the log is undone.
const LOG: usize = 512;
const LOG_U32: u32 = 512;

/// Gaps compared to free memory. A higher number means fewer moves, as comparisons count as work.
const RUN: u32 = 192;

const HEAT: f64 = 0.002;

impl Search<'_> {
    pub(in crate::rewrite) fn lower(&mut self, schedule: &mut Schedule<'_>, limit: u64) -> bool {
        let operators = schedule.gaps().program.operators;
        for operator in 0..operators {
            while schedule.load(operator) > limit {
                self.log.clear();
                if !self.free_memory(schedule, operator, operators, None, limit) {
                    return false;
                }
            }
        }
        true
    }

    /// The load has to be within `limit`, and stays so. In ns.
    #[expect(clippy::cast_precision_loss, reason = "a temperature")]
    pub(in crate::rewrite) fn improve(&mut self, schedule: &mut Schedule<'_>, limit: u64, work: u64) -> f64 {
        let gaps = schedule.gaps();
        let mut present = schedule.run(f64::INFINITY, |_| ());
        let mut least = present;
        self.best.keep(schedule);
        self.work = 0;
        let cooling = Cooling { heat: HEAT * gaps.program.end_time as f64, work };
        while self.work < work && least > 0.0 && gaps.len > 0 {
            let cutoff = cooling.cutoff(present, self.work, &mut self.random);
            self.log.clear();
            let moved = self.disturb(schedule) && self.repair(schedule, limit);
            let mut taken = false;
            if moved {
                self.trim(schedule, limit);
                self.work +=
                    u64::from(gaps.program.operators) + u64::from(gaps.versions) + u64::from(schedule.used().len());
                let found = schedule.run(cutoff, |_| ());
                taken = found <= cutoff && self.log.len() < LOG_U32;
                if taken {
                    present = found;
                    if found < least {
                        least = found;
                        self.best.keep(schedule);
                    }
                }
            }
            self.work += 50;
            if !taken {
                self.undo(schedule);
            }
        }
        self.best.restore(schedule);
        schedule.run(f64::INFINITY, |_| ())
    }

    fn set(&mut self, schedule: &mut Schedule<'_>, gap: GapId, positions: [u32; 2]) {
        let [give, take] = schedule.at(gap);
        if [give, take] == positions {
            return;
        }
        let g = schedule.gaps().gap(gap);
        // The gap after a block's last access (tail) may be in use only while the gap before its first access (head) is
        // in use from the iteration's start.
        if positions[0] > 0 {
            self.drop_tail(schedule, &g);
        }
        if self.log.len() < LOG_U32 {
            self.log.push(Position { gap, give, take });
            schedule.set(gap, positions);
        }
    }

    fn undo(&mut self, schedule: &mut Schedule<'_>) {
        while let Some(Position { gap, give, take }) = self.log.pop() {
            schedule.set(gap, [give, take]);
        }
    }

    fn drop_gap(&mut self, schedule: &mut Schedule<'_>, gap: GapId, g: &Gap) {
        self.drop_tail(schedule, g);
        self.set(schedule, gap, [0, 0]);
    }

    fn drop_tail(&mut self, schedule: &mut Schedule<'_>, g: &Gap) {
        if let (true, Some(tail)) = (g.kind.is_head(), g.other_end)
            && schedule.is_used(tail)
        {
            self.set(schedule, tail, [0, 0]);
        }
    }

    fn disturb(&mut self, schedule: &mut Schedule<'_>) -> bool {
        let gaps = schedule.gaps();
        let kind = self.random.below(16);
        if schedule.used().len() == 0 || kind < 3 {
            return self.insert(schedule);
        }
        let gap = self.pick(schedule);
        let g = gaps.gap(gap);
        let [give, take] = schedule.at(gap);
        if kind < 5 {
            self.drop_gap(schedule, gap, &g);
            return true;
        }
        // Has the head's block on the host when the iteration begins. The block is then copied out after its last
        // write in the iteration before, when the link may be idle.
        if g.kind.is_head() && give > 0 && self.random.below(12) == 0 {
            self.set(schedule, gap, [0, take]);
            return true;
        }
        // Moves one end of the time for which the block is away: mostly a little, sometimes to anywhere in the gap. A
        // block that is on the host when the iteration begins mostly stays so.
        let rarely = if schedule.is_away_at_start(gap, &g) { 16 } else { 2 };
        let front = g.kind == GapKind::Tail || self.random.below(rarely) == 0;
        let (low, high) = if front { (g.begin, take) } else { (give, g.end) };
        let old = if front { give } else { take };
        let reach = if self.random.below(4) == 0 { high - low } else { 1 + (high - low) / 8 };
        let low = low.max(old.saturating_sub(reach));
        let high = high.min(old.saturating_add(reach));
        let new = low + self.random.below(high - low + 1);
        let positions = if front { [new, take] } else { [give, new] };
        let [give, take] = schedule.clamp(gap, positions);
        if give == take {
            self.drop_gap(schedule, gap, &g);
        } else {
            self.set(schedule, gap, [give, take]);
        }
        true
    }

    fn insert(&mut self, schedule: &mut Schedule<'_>) -> bool {
        let gaps = schedule.gaps();
        for _ in 0..8 {
            let gap = GapId::of(self.random.below(gaps.len));
            let g = gaps.gap(gap);
            if schedule.may_use(gap, &g) {
                let width = g.end - g.begin;
                let from_start = g.kind.is_head() && self.random.below(4) > 0;
                let give = if from_start { 0 } else { g.begin + self.random.below(1 + width / 2) };
                let take = g.end - self.random.below(1 + width / 2);
                let [give, take] = schedule.clamp(gap, [give, take.max(give + 1)]);
                self.set(schedule, gap, [give, take]);
                return true;
            }
        }
        false
    }

    fn pick(&mut self, schedule: &Schedule<'_>) -> GapId {
        let used = schedule.used();
        let n = used.len();
        let first = used.get(self.random.below(n));
        let stalls = schedule.stalls();
        if stalls.is_empty() || self.random.below(2) == 0 {
            return first;
        }
        let stalled = u32::try_from(stalls.len()).map_or(0, |n| self.random.below(n));
        let operator = stalls.get(usize::try_from(stalled).unwrap_or(0)).copied().unwrap_or(0);
        // Of a few random gaps, the one whose block is freed or accessed again nearest to the operator.
        let gaps = schedule.gaps();
        let distance = |gap: GapId| {
            let [give, _] = schedule.at(gap);
            give.abs_diff(operator).min(gaps.gap(gap).end.abs_diff(operator))
        };
        (0..6)
            .map(|_| used.get(self.random.below(n)))
            .fold(first, |near, gap| if distance(gap) < distance(near) { gap } else { near })
    }

    fn repair(&mut self, schedule: &mut Schedule<'_>, limit: u64) -> bool {
        let mut i = 0;
        // The log grows in this loop: it also gets the gaps that are widened here. These raise no load.
        while let Some(Position { gap, give: old_give, take: old_take }) = self.log.at(i) {
            let [give, take] = schedule.at(gap);
            i += 1;
            let vacated = if give < take {
                [(old_give, give.min(old_take)), (take.max(old_give), old_take)]
            } else {
                [(old_give, old_take), (0, 0)]
            };
            for (from, to) in vacated {
                let mut operator = schedule.first_above(limit, from, to);
                while operator < to {
                    if !self.free_memory(schedule, operator, to, Some(gap), limit) {
                        return false;
                    }
                    operator = schedule.first_above(limit, operator, to);
                }
            }
        }
        true
    }

    /// Up to operator `to`, left out, while the load is above `limit`; `not`, just changed, stays as it is.
    #[expect(clippy::cast_precision_loss, reason = "a chance")]
    fn free_memory(
        &mut self,
        schedule: &mut Schedule<'_>,
        operator: u32,
        to: u32,
        not: Option<GapId>,
        limit: u64,
    ) -> bool {
        let gaps = schedule.gaps();
        let mut drawn: Option<([u32; 2], GapId)> = None;
        let mut least = f64::INFINITY;
        let missing = schedule.load(operator).saturating_sub(limit);
        // The operators from `operator` up to `crowded`, which is left out, are known to be above the limit.
        let mut crowded = operator + 1;
        // Takes the gap of least expected wait times a random number, of `RUN`; if none frees memory, looks further.
        let first = gaps.first_after(operator);
        let all = gaps.len - first;
        let start = if all > RUN { self.random.below(all) } else { 0 };
        let mut looked = 0;
        while looked < all && (looked < RUN || drawn.is_none()) {
            let from = (start + looked) % all;
            let left = if looked < RUN { RUN - looked } else { 1 };
            let n = left.min(all - from).min(all - looked).min(u64::BITS);
            looked += n;
            self.work += u64::from(n);
            for gap in schedule.on_device(first + from, n, operator) {
                let g = gaps.gap(gap);
                let [give, take] = schedule.at(gap);
                let used = give < take;
                if Some(gap) == not || !used && !schedule.may_use(gap, &g) {
                    continue;
                }
                while crowded < to.min(g.end) && schedule.load(crowded) > limit {
                    crowded += 1;
                }
                let until = crowded.min(g.end);
                // A gap before a block's first access (head) may be used from the start of the iteration on.
                let from = if !used && g.kind.is_head() && self.random.below(4) > 0 { 0 } else { operator };
                let positions =
                    schedule.clamp(gap, if used { [give.min(from), take.max(until)] } else { [from, until] });
                let mut cost = likely_wait(schedule, &g, [give, take], positions);
                // A block that is smaller than the missing bytes is not enough: a further gap would be needed.
                let size = gaps.program.size[g.block];
                if size < missing {
                    cost /= (size as f64 / missing as f64).max(1e-3);
                }
                let cost = (cost + 1000.0) * (0.05 + self.random.unit());
                if cost < least {
                    least = cost;
                    drawn = Some((positions, gap));
                }
            }
        }
        let Some((positions, gap)) = drawn.filter(|_| self.log.len() < LOG_U32) else {
            return false;
        };
        self.set(schedule, gap, positions);
        true
    }

    fn trim(&mut self, schedule: &mut Schedule<'_>, limit: u64) {
        let gaps = schedule.gaps();
        let (mut low, mut high) = (NONE, 0);
        for Position { gap, give: old_give, take: old_take } in self.log.iter() {
            let [give, take] = schedule.at(gap);
            low = low.min(if old_give < old_take { old_give } else { give }).min(if give < take {
                give
            } else {
                old_give
            });
            high = high.max(old_take).max(take);
        }
        let n = schedule.used().len();
        if n == 0 {
            return;
        }
        self.work += u64::from(n);
        let offset = self.random.below(n);
        // Dropping a gap moves the last one into its place, so that a few may be skipped. Later moves reach them.
        for i in 0..n {
            let i = (i + offset) % n;
            if i >= schedule.used().len() {
                continue;
            }
            let gap = schedule.used().get(i);
            let g = gaps.gap(gap);
            let [mut give, mut take] = schedule.at(gap);
            if give >= high || take <= low {
                continue;
            }
            let size = gaps.program.size[g.block];
            let Some(most) = limit.checked_sub(size) else { continue };
            let (old_give, old_take) = (give, take);
            let away_at_start = schedule.is_away_at_start(gap, &g);
            if !away_at_start {
                give = schedule.first_above(most, give, take);
            }
            if g.kind != GapKind::Tail {
                take = schedule.after_last_above(most, give, take);
            }
            // While the tail is in use, the block has to be away in its head for at least one operator.
            if away_at_start && take == 0 && g.other_end.is_some_and(|tail| schedule.is_used(tail)) {
                take = 1;
            }
            if give >= take {
                self.drop_gap(schedule, gap, &g);
            } else if [give, take] != [old_give, old_take] {
                self.set(schedule, gap, [give, take]);
            }
        }
    }
}

/// In ns. Only copies that are new or get less time count.
#[expect(clippy::cast_precision_loss, reason = "times")]
fn likely_wait(schedule: &Schedule<'_>, g: &Gap, [give, take]: [u32; 2], [new_give, new_take]: [u32; 2]) -> f64 {
    if !g.kind.is_read() && new_give > 0 {
        return 0.0;
    }
    let program = schedule.gaps().program;
    let time = |boundary: u32| program.time[boundary] as f64;
    let (out_ns, in_ns) = schedule.copy_ns(g.block);
    let (used, clean) = (give < take, schedule.is_clean(g.version));
    let mut wait = 0.0;
    if !clean && (!used || new_give < give) {
        wait += out_ns * out_ns / (out_ns + (time(new_give) - time(g.begin)).max(0.0));
    }
    if g.kind.returns() && (!used || new_take > take) {
        wait += in_ns * in_ns / (in_ns + (program.access_time[g.end] as f64 - time(new_take)).max(0.0));
    }
    if !used {
        wait += if clean { in_ns } else { out_ns + in_ns } / 2.0;
    }
    wait
}
