//! Where the search for swaps begins: schedules by simple rules.
//!
//! Problem: which gaps to use so that the load stays within a limit, and when their blocks leave and come back.
//!
//! Method. One rule uses every gap. The others use gaps one by one: while the max load is above the limit, of the gaps
//! *at the max load* (those in which the operator with it lies) the one with the highest [`Score`]. The scores are those
//! of Zhang et al. 2019, "Efficient Memory Management for GPU-based Deep Learning Systems", section 4, who take only the
//! gaps at the original's max load; here, once the max load has moved to another operator, the gaps there count.
//!
//! Positions: the operators are gone through from the first to the last. Where the load would be above the limit, and
//! no earlier, blocks are freed, those first whose gaps begin first. Then the gaps are gone through from the last to
//! the first: every copy in begins as late as the link to the device allows without delay, and later where memory is
//! not free so early. Of equal gaps the one with the least number is taken. Cost: O(gaps chosen · gaps) at most, and the
//! changes of the load.

use super::schedule::Schedule;
use crate::id::Id;
use crate::rewrite::gaps::{Gap, GapId, GapKind, Gaps};
use crate::sort;
use crate::table::Records;
use crate::workspace::workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Scope {
    /// A persistent block that is written is on the device at both ends of the iteration.
    Inside,
    /// A persistent block may be on the host at either end of the iteration.
    Across,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    All,
    By(Score),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Score {
    /// The gap's time less that of both copies.
    Idle,
    /// That times the bytes; where it is negative, divided by them: the smaller block delays less.
    IdleBytes,
    /// The bytes on the device over time during the gap, without swaps.
    Load,
}

pub(super) const RULES: [Rule; 4] =
    [Rule::All, Rule::By(Score::Idle), Rule::By(Score::IdleBytes), Rule::By(Score::Load)];

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
            /// Under the load up to each boundary, in byte nanoseconds.
            area: f64[rows + 2],
        }
    }
}

impl Selection<'_> {
    pub(super) fn begin(&mut self, schedule: &mut Schedule<'_>, limit: u64, rule: Rule, scope: Scope) -> bool {
        match rule {
            Rule::All => self.all(schedule, limit, scope),
            Rule::By(by) => self.by_score(schedule, limit, by, scope),
        }
    }

    fn by_score(&mut self, schedule: &mut Schedule<'_>, limit: u64, by: Score, scope: Scope) -> bool {
        schedule.clear();
        let gaps = schedule.gaps();
        self.find_areas(schedule);
        for gap in gaps.all() {
            self.worth.set(gap, worth(schedule, &gaps.gap(gap), by, &self.area));
        }
        self.rank(gaps.len);
        loop {
            let (peak, operator) = schedule.peak();
            if peak <= limit {
                break;
            }
            let Some(gap) = self.best_at(operator, schedule, scope) else { return false };
            schedule.set(gap, whole(&gaps.gap(gap), scope));
        }
        self.position(schedule, limit);
        true
    }

    /// The chains in `next` lead past returned gaps, and are shortened as in union-find.
    fn best_at(&mut self, operator: u32, schedule: &Schedule<'_>, scope: Scope) -> Option<GapId> {
        let gaps = schedule.gaps();
        let mut rank = 0;
        loop {
            while rank < gaps.len && self.next[rank] != rank {
                let next = self.next[rank];
                if next < gaps.len {
                    self.next[rank] = self.next[next];
                }
                rank = next;
            }
            if rank >= gaps.len {
                return None;
            }
            let gap = GapId::of(self.ranked[rank]);
            let g = gaps.gap(gap);
            if whole(&g, scope)[0] <= operator && operator < g.end && allowed(schedule, gap, &g, scope) {
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

    pub(super) fn all(&mut self, schedule: &mut Schedule<'_>, limit: u64, scope: Scope) -> bool {
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

    fn position(&mut self, schedule: &mut Schedule<'_>, limit: u64) {
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

    #[expect(clippy::cast_precision_loss, reason = "scores")]
    fn find_areas(&mut self, schedule: &Schedule<'_>) {
        let program = schedule.gaps().program;
        let mut sum = 0.0;
        for o in 0..program.operators {
            self.area.set(o, sum);
            sum += schedule.load(o) as f64 * (program.time[o + 1] - program.time[o]) as f64;
        }
        self.area.set(program.operators, sum);
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

#[expect(clippy::cast_precision_loss, reason = "scores")]
fn worth(schedule: &Schedule<'_>, gap: &Gap, score: Score, area: &Records<'_, f64>) -> f64 {
    let Gaps { program, .. } = schedule.gaps();
    let size = program.size[gap.block] as f64;
    let (out_ns, in_ns) = schedule.copy_ns(gap.block);
    let to = if gap.end < program.operators { program.access_time[gap.end] } else { program.end_time };
    let idle = to.saturating_sub(program.time[gap.begin]) as f64 - out_ns - in_ns;
    match score {
        Score::Idle => idle,
        Score::IdleBytes if idle < 0.0 => idle / size,
        Score::IdleBytes => idle * size,
        Score::Load => area.get(gap.end) - area.get(gap.begin),
    }
}
