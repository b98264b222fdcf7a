//! Zhang et al.'s swapping: gaps by priority scores.
//!
//! Problem: which gaps to swap so that the load stays within a limit. A *gap*, or idle time, is a time in which no
//! operator accesses a block, so that the block may be on the host. A gap that is chosen is *in use*. To *position* it
//! is to set the *boundaries* at which the block's memory is freed and allocated again; boundary o lies before operator
//! o.
//!
//! Paper: Zhang et al. 2019, "Efficient Memory Management for GPU-based Deep Learning Systems", section 4.
//!
//! Steps: the max load is the most bytes alive while an operator runs, and the gaps *at the max load* are those in
//! which that operator lies. Of these the gap with the highest score is used first, and so on, until the max load is
//! within the limit. The paper takes only the gaps at the original's max load. Here, once the max load has moved to
//! another operator, the gaps there are candidates. So limits can be kept below the paper's `load_min`, the max load if
//! all gaps at the original's max load are in use; blocks may then be swapped more than once. The scores:
//!
//! - DOA, duration of absence: the gap's time less that of the copies out and in. Negative where the copies take longer
//!   than the gap.
//! - AOA, area of absence: DOA times the size. Where DOA is negative it is divided by the size: of gaps that last
//!   equally long, and longer than the latencies of both copies, the one of the smaller block, which delays less, then
//!   has the higher score.
//! - WDOA, weighted: the area under the load curve (bytes on the device over time) during the gap.
//! - SWDOA, submodular: the same area if blocks are swapped in the gaps already chosen.
//!
//! A mixture is the weighted sum of all four, each divided by its standard deviation over the gaps.
//!
//! Positions: the operators are gone through from the first to the last. Where the load would be above the limit, and
//! no earlier, blocks are freed, those first whose gaps begin first. Then the gaps are gone through from the last to
//! the first: every copy in begins as late as the link to the device allows without delay, and later where memory is
//! not free so early. Of equal gaps the one with the least number is taken. Cost: O(gaps chosen · (operators + gaps))
//! with the submodular score; without it O(gaps chosen · gaps) at most, and the changes of the load. With it, a gap
//! whose score was too low before is mostly passed over after one comparison, as areas under the load only shrink.

use crate::id::Id;
use crate::rewrite::gaps::{Gap, GapId, GapKind, Gaps};
use crate::rewrite::means::swap::schedule::Schedule;
use crate::sort;
use crate::table::Records;
use crate::workspace::workspace;

const LOOKS: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Scope {
    /// A persistent block that is written is on the device at both ends of the iteration.
    Inside,
    /// A persistent block may be on the host at either end of the iteration.
    Across,
}

workspace! {
    pub(in crate::rewrite) struct Selection<'a>(rows, blocks) {
        tables {
            /// The highest score first; once all are chosen, the chosen ones by their begin.
            ranked: u32[rows + blocks],
            /// By rank: the rank itself if its gap is not chosen, else a later rank to search from.
            next: u32[rows + blocks],
        }
        records {
            worth[GapId]: f64[rows + blocks],
            /// An upper bound on the score, which changes while gaps are chosen.
            most[GapId]: f64[rows + blocks],
            /// Area under the load up to each boundary, in byte nanoseconds, without swaps.
            area: f64[rows + 2],
            /// Area under the load up to each boundary, in byte nanoseconds, with the gaps chosen so far.
            area_left: f64[rows + 2],
        }
        state {
            looks: u64 = 0,
        }
    }
}

impl Selection<'_> {
    pub(in crate::rewrite) const fn work_done(&self) -> u64 {
        self.looks / LOOKS
    }

    /// The schedule of Zhang et al. (2019). Scores are divided by their standard deviations.
    pub(in crate::rewrite) fn by_score(
        &mut self,
        schedule: &mut Schedule<'_>,
        limit: u64,
        weights: Weights,
        scope: Scope,
    ) -> bool {
        schedule.clear();
        let gaps = schedule.gaps();
        let [doa, aoa, wdoa, swdoa] = self.scale(schedule, weights);
        for gap in gaps.all() {
            let scores = scores(schedule, &gaps.gap(gap), &self.area, &self.area_left);
            let worth = scores.iter().zip([doa, aoa, wdoa]).map(|(score, weight)| score * weight).sum();
            self.worth.set(gap, worth);
            self.most.set(gap, worth + (scores[3] * swdoa).max(0.0));
        }
        self.choose(schedule, limit, swdoa, scope)
    }

    fn choose(&mut self, schedule: &mut Schedule<'_>, limit: u64, swdoa: f64, scope: Scope) -> bool {
        let gaps = schedule.gaps();
        let ranked = swdoa == 0.0;
        if ranked {
            self.rank(gaps.len);
        }
        loop {
            let (peak, operator) = schedule.peak();
            if peak <= limit {
                break;
            }
            let over = |gap: GapId| {
                let g = gaps.gap(gap);
                whole(&g, scope)[0] <= operator && operator < g.end && allowed(schedule, gap, &g, scope)
            };
            let best =
                if ranked { self.first_ranked(gaps.len, over) } else { self.best_left(gaps, operator, swdoa, over) };
            let Some(gap) = best else {
                return false;
            };
            let [begin, end] = whole(&gaps.gap(gap), scope);
            schedule.set(gap, [begin, end]);
            if !ranked {
                areas(schedule, begin, &mut self.area_left);
            }
        }
        self.position(schedule, limit);
        true
    }

    fn best_left(&mut self, gaps: &Gaps<'_>, operator: u32, swdoa: f64, over: impl Fn(GapId) -> bool) -> Option<GapId> {
        let first = gaps.first_after(operator);
        self.looks += u64::from(gaps.program.operators) + u64::from(gaps.len - first);
        let mut best: Option<(f64, GapId)> = None;
        for gap in GapId::each(first..gaps.len) {
            let beats = |score: f64| best.is_none_or(|(best, _)| score > best);
            if beats(self.most.get(gap)) && over(gap) {
                let left = under(&gaps.gap(gap), &self.area_left) * swdoa;
                let score = self.worth.get(gap) + left;
                self.most.set(gap, self.worth.get(gap) + left.max(0.0));
                if beats(score) {
                    best = Some((score, gap));
                }
            }
        }
        best.map(|(_, gap)| gap)
    }

    /// The chains in `next` lead past returned gaps, and are shortened as in union-find.
    fn first_ranked(&mut self, gaps: u32, over: impl Fn(GapId) -> bool) -> Option<GapId> {
        let mut rank = 0;
        loop {
            while rank < gaps && self.next[rank] != rank {
                let next = self.next[rank];
                if next < gaps {
                    self.next[rank] = self.next[next];
                }
                rank = next;
            }
            if rank >= gaps {
                return None;
            }
            self.looks += 1;
            let gap = GapId::of(self.ranked[rank]);
            if over(gap) {
                self.next[rank] = rank + 1;
                return Some(gap);
            }
            rank += 1;
        }
    }

    fn rank(&mut self, gaps: u32) {
        // A key for sorting in ascending order that puts the highest number first, made from the number's bits.
        let descending = |worth: f64| if worth < 0.0 { worth.to_bits() } else { !(worth.to_bits() | 1 << 63) };
        sort::identity(&mut self.ranked, gaps);
        sort::by_key(&mut self.ranked, gaps, &mut self.next, |gap| descending(self.worth.get(GapId::of(gap))));
        // No gap is chosen yet: from each rank the search goes on at that rank itself.
        sort::identity(&mut self.next, gaps);
    }

    pub(in crate::rewrite) fn all(&mut self, schedule: &mut Schedule<'_>, limit: u64, scope: Scope) -> bool {
        let gaps = schedule.gaps();
        schedule.clear();
        for gap in gaps.all() {
            let g = gaps.gap(gap);
            if allowed(schedule, gap, &g, scope) {
                schedule.set(gap, whole(&g, scope));
            }
        }
        let fits = schedule.peak().0 <= limit;
        if fits {
            self.position(schedule, limit);
        }
        fits
    }

    fn scale(&mut self, schedule: &Schedule<'_>, Weights(weights): Weights) -> [f64; 4] {
        let gaps = schedule.gaps();
        areas(schedule, 0, &mut self.area);
        areas(schedule, 0, &mut self.area_left);
        let (mut sum, mut squares) = ([0.0; 4], [0.0; 4]);
        for gap in gaps.all() {
            let scores = scores(schedule, &gaps.gap(gap), &self.area, &self.area_left);
            for ((s, q), x) in sum.iter_mut().zip(&mut squares).zip(scores) {
                *s += x;
                *q += x * x;
            }
        }
        let n = f64::from(gaps.len.max(1));
        let mut scale = weights;
        for ((w, s), q) in scale.iter_mut().zip(sum).zip(squares) {
            let deviation = libm::sqrt((q / n - (s / n) * (s / n)).max(0.0));
            *w = if deviation > 0.0 { *w / deviation } else { *w };
        }
        scale
    }

    pub(in crate::rewrite) fn position(&mut self, schedule: &mut Schedule<'_>, limit: u64) {
        let gaps = schedule.gaps();
        let mut n = 0;
        for gap in gaps.all() {
            if schedule.is_used(gap) && !schedule.is_away_at_start(gap, &gaps.gap(gap)) {
                schedule.set(gap, [0, 0]);
                self.ranked[n] = gap.number();
                n += 1;
            }
        }
        sort::by_key(&mut self.ranked, n, &mut self.next, |gap| gaps.gap(GapId::of(gap)).begin.into());
        let mut waiting = self.ranked.first(n).iter().map(|&gap| GapId::of(gap)).peekable();
        for operator in 0..gaps.program.operators {
            while schedule.load(operator) > limit
                && let Some(gap) = waiting.next_if(|&gap| gaps.gap(gap).begin.max(1) <= operator)
            {
                self.looks += 1;
                let end = gaps.gap(gap).end;
                if operator < end {
                    schedule.set(gap, [operator, end]);
                }
            }
        }
        let mut link = f64::INFINITY;
        for gap in gaps.all().rev().filter(|&gap| gaps.gap(gap).kind.returns()) {
            if schedule.is_used(gap) {
                link = take_early(schedule, gap, limit, link);
            }
        }
    }
}

/// `link` is when the next gap's copy in should begin, or infinity. Times are in ns.
#[expect(clippy::cast_precision_loss, reason = "times")]
fn take_early(schedule: &mut Schedule<'_>, gap: GapId, limit: u64, link: f64) -> f64 {
    let gaps = schedule.gaps();
    let g = gaps.gap(gap);
    let size = gaps.program.size[g.block];
    let begin = link.min(gaps.program.access_time[g.end] as f64) - schedule.copy_ns(g.block).1;
    let [give, mut take] = schedule.at(gap);
    while take > give + 1
        && gaps.program.time[take] as f64 > begin
        && schedule.load(take - 1).saturating_add(size) <= limit
    {
        take -= 1;
    }
    schedule.set(gap, [give, take]);
    begin
}

fn whole(gap: &Gap, scope: Scope) -> [u32; 2] {
    let begin = if scope == Scope::Inside && gap.crosses_end() { gap.begin.max(1) } else { gap.begin };
    [begin, gap.end]
}

fn allowed(schedule: &Schedule<'_>, gap: GapId, g: &Gap, scope: Scope) -> bool {
    let [give, take] = whole(g, scope);
    let ends = g.kind != GapKind::Tail || scope == Scope::Across || !g.crosses_end();
    give < take && ends && schedule.may_use(gap, g)
}

/// Duration of absence, area of absence, area under the load without swaps, and with those so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::rewrite) struct Weights(pub(in crate::rewrite) [f64; 4]);

impl Weights {
    pub(in crate::rewrite) const DOA: Self = Self([1.0, 0.0, 0.0, 0.0]);
    pub(in crate::rewrite) const AOA: Self = Self([0.0, 1.0, 0.0, 0.0]);
    pub(in crate::rewrite) const WDOA: Self = Self([0.0, 0.0, 1.0, 0.0]);
    pub(in crate::rewrite) const SWDOA: Self = Self([0.0, 0.0, 0.0, 1.0]);
    pub(in crate::rewrite) const SINGLE: [Self; 4] = [Self::DOA, Self::AOA, Self::WDOA, Self::SWDOA];
    pub(in crate::rewrite) const FIXED: [Self; 3] = [Self::DOA, Self::AOA, Self::WDOA];
}

/// The first is in ns, the others in byte nanoseconds; a negative area of absence is in ns per byte.
#[expect(clippy::cast_precision_loss, reason = "scores")]
pub(in crate::rewrite) fn scores(
    schedule: &Schedule<'_>,
    gap: &Gap,
    area: &Records<'_, f64>,
    area_left: &Records<'_, f64>,
) -> [f64; 4] {
    let gaps = schedule.gaps();
    let size = gaps.program.size[gap.block];
    let (out_ns, in_ns) = schedule.copy_ns(gap.block);
    let from = gaps.program.time[gap.begin];
    let to = if gap.end < gaps.program.operators { gaps.program.access_time[gap.end] } else { gaps.program.end_time };
    let doa = to.saturating_sub(from) as f64 - out_ns - in_ns;
    let aoa = if doa < 0.0 { doa / size as f64 } else { doa * size as f64 };
    [doa, aoa, under(gap, area), under(gap, area_left)]
}

pub(in crate::rewrite) fn under(gap: &Gap, area: &Records<'_, f64>) -> f64 {
    area.get(gap.end) - area.get(gap.begin)
}

/// Headroom counts as load. The entries up to `from` must be right already.
#[expect(clippy::cast_precision_loss, reason = "scores")]
pub(in crate::rewrite) fn areas(schedule: &Schedule<'_>, from: u32, area: &mut Records<'_, f64>) {
    let gaps = schedule.gaps();
    let mut sum = if from > 0 { area.get(from) } else { 0.0 };
    for g in from..gaps.program.operators {
        area.set(g, sum);
        sum += schedule.load(g) as f64 * (gaps.program.time[g + 1] - gaps.program.time[g]) as f64;
    }
    area.set(gaps.program.operators, sum);
}
