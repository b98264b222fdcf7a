//! Swapping: blocks leave the device for the host while they are idle.
//!
//! The pass holds the trace's candidates and makes, by the [`Policy`] that is asked for, a schedule whose load
//! stays within a limit: which gaps, where memory is given back, where it is taken again. The steps are the files of
//! this folder, in this order: `candidates`, `score`, `select`, `bayes`, `schedule` (over `load` and `agenda`), `direct`, `emit`.

mod agenda;
mod bayes;
pub mod bound;
mod candidates;
mod direct;
mod emit;
mod load;
mod schedule;
mod score;
mod select;

use candidates::{Candidates, Kind};
use direct::Search;
use schedule::{Positions, Schedule};
use score::Weights;
use select::{Scope, Selection};

use super::recompute::Gap;

use crate::simulate::Device;
use crate::table::{Table, at};
use crate::trace::Row;
use crate::{Block, Error, Workspace, WorkspaceLen};

/// How it is decided what leaves, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// Search over positions, and every other policy: the best of all.
    Auto,
    /// Duration of absence (Zhang et al. 2019).
    Doa,
    /// Area of absence.
    Aoa,
    /// Weighted duration of absence.
    Wdoa,
    /// Submodular weighted duration of absence.
    Swdoa,
    /// A mixture of the four, found by Bayesian optimisation.
    Bayes,
    /// Out after the last forward reader, in one operator ahead (Jin et al. 2018).
    Layer,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Auto, Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa, Self::Bayes, Self::Layer];

    /// The published scores.
    pub(super) const SCORES: [Self; 4] = [Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa];

    /// What people call it.
    ///
    /// ```
    /// use sublet_core::rewrite::swap::Policy;
    /// assert!(Policy::ALL.iter().all(|&p| Policy::named(p.name()) == Some(p)));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Doa => "doa",
            Self::Aoa => "aoa",
            Self::Wdoa => "wdoa",
            Self::Swdoa => "swdoa",
            Self::Bayes => "bayes",
            Self::Layer => "layer",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// Length of the workspace of a [`Trace`] of this many rows and block numbers.
pub(super) const fn trace_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    candidates::workspace(rows, blocks)
}

/// Length of the workspace of a [`Swapper`].
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    schedule::workspace(rows, blocks)
        .and(select::workspace(rows, blocks))
        .and(direct::workspace(rows, blocks))
        .and(Positions::workspace(rows, blocks))
        .and(Positions::workspace(rows, blocks))
        .and(WorkspaceLen { words: rows + 2, indices: rows + 2 })
}

/// Length of the workspace of [`Swapper::rows`].
pub(super) const fn rows_workspace(blocks: usize) -> WorkspaceLen {
    emit::workspace(blocks)
}

/// What may leave, of one trace.
pub(super) struct Trace<'a>(Candidates<'a>);

impl<'a> Trace<'a> {
    pub(super) fn new(rows: &'a [Row], blocks: usize, least: u64, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        Candidates::new(rows, blocks, least, scratch).map(Self)
    }
}

/// Whether the block of a gap at the start or the end holds something else at the end than at the start.
fn changes_at_all(c: &Candidates<'_>, gap: &candidates::Gap) -> bool {
    let head = if gap.kind == Kind::Tail && gap.other_end != candidates::NONE { c.gap(gap.other_end) } else { *gap };
    c.version(head.version).last != head.version
}

/// Where the search may begin.
#[derive(Clone, Copy)]
enum Start {
    All(Scope),
    Score(Weights),
}

/// The pass at work.
pub(super) struct Swapper<'a> {
    schedule: Schedule<'a>,
    selection: Selection<'a>,
    search: Search<'a>,
    kept: Positions<'a>,
    /// A schedule that is to be gone on from, and the memory held back for it.
    remembered: Positions<'a>,
    remembered_held: Table<'a, u64>,
    /// The row with which each segment begins in the rows last written, and their number.
    emitted: Table<'a, u32>,
    /// The mixture, once it has been looked for, and for which limit.
    mixture: Option<(u64, Weights)>,
    seed: u64,
}

impl<'a> Swapper<'a> {
    pub(super) fn new(trace: &'a Trace<'a>, device: &Device, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        let (rows, blocks) = (trace.0.rows.len(), trace.0.size.len());
        Self {
            schedule: Schedule::new(&trace.0, device, scratch),
            selection: Selection::new(rows, blocks, scratch),
            search: Search::new(rows, blocks, seed, scratch),
            kept: Positions::new(rows, blocks, scratch),
            remembered: Positions::new(rows, blocks, scratch),
            remembered_held: scratch.words(rows + 2),
            emitted: scratch.indices(rows + 2),
            mixture: None,
            seed,
        }
    }

    /// Makes the schedule of least load: every gap away for as long as it lasts, as far as the host can hold it.
    pub(super) fn least_load(&mut self) {
        self.hold_nothing();
        self.selection.all(&mut self.schedule, 0, Scope::Across);
    }

    /// Zhang et al.'s `load_min`: the least load where only the gaps within the iteration and over the peak are away.
    pub(super) fn load_min(&mut self) -> u64 {
        self.schedule.clear();
        let (_, peak) = self.schedule.peak();
        let c = self.schedule.candidates();
        for gap in 0..c.gaps {
            let g = c.gap(gap);
            if g.kind == Kind::Middle && g.begin <= peak && peak < g.end {
                self.schedule.set(gap, [g.begin, g.end]);
            }
        }
        self.schedule.peak().0
    }

    pub(super) fn peak(&self) -> u64 {
        self.schedule.peak().0
    }

    /// Makes the schedule of a policy within a load; what it takes longer than the original in ns, or none.
    pub(super) fn plan(&mut self, policy: Policy, limit: u64, work: u64) -> Option<f64> {
        match policy {
            Policy::Auto => self.direct(limit, work),
            Policy::Doa => self.by_score(limit, Weights::DOA),
            Policy::Aoa => self.by_score(limit, Weights::AOA),
            Policy::Wdoa => self.by_score(limit, Weights::WDOA),
            Policy::Swdoa => self.by_score(limit, Weights::SWDOA),
            Policy::Bayes => {
                let weights = self.mixture(limit);
                self.by_score(limit, weights)
            }
            Policy::Layer => select::by_layer(&mut self.schedule, limit).then(|| self.overhead()),
        }
    }

    /// The mixture of scores for a limit.
    fn mixture(&mut self, limit: u64) -> Weights {
        match self.mixture {
            Some((known, weights)) if known == limit => weights,
            _ => {
                let weights = bayes::search(self.seed, |weights| self.by_score(limit, weights));
                self.mixture = Some((limit, weights));
                weights
            }
        }
    }

    /// The published schedule, within the iteration or across its end, whichever takes less time.
    fn by_score(&mut self, limit: u64, weights: Weights) -> Option<f64> {
        let mut least = None;
        for scope in [Scope::Inside, Scope::Across] {
            if self.selection.by_score(&mut self.schedule, limit, weights, scope) {
                let overhead = self.overhead();
                if least.is_none_or(|least| overhead < least) {
                    least = Some(overhead);
                    self.kept.keep(&self.schedule);
                }
            }
        }
        if least.is_some() {
            self.kept.restore(&mut self.schedule);
        }
        least
    }

    /// Makes the schedule within a load that swaps what is worth most, by block; what it takes longer than the original.
    pub(super) fn plan_by(&mut self, limit: u64, worth: &dyn Fn(u32) -> f64) -> Option<f64> {
        let mut least = None;
        for scope in [Scope::Inside, Scope::Across] {
            if self.selection.by_block(&mut self.schedule, limit, worth, scope) {
                let overhead = self.overhead();
                if least.is_none_or(|least| overhead < least) {
                    least = Some(overhead);
                    self.kept.keep(&self.schedule);
                }
            }
        }
        if least.is_some() {
            self.kept.restore(&mut self.schedule);
        }
        least
    }

    /// The gaps in use, with the segments before which their memory is given back and taken again.
    pub(super) fn away(&self) -> impl Iterator<Item = (u32, [u32; 2])> + '_ {
        self.schedule.used().iter().map(|&gap| (gap, self.schedule.at(gap)))
    }

    /// Makes a schedule of absences, block, give and take, that speak of another trace: `segment` tells which of its
    /// segments a row of this one stands in or before, and `block` which of its blocks a block is.
    pub(super) fn start(
        &mut self,
        absences: &[[u32; 3]],
        held: &dyn Fn(u32) -> u64,
        segment: &dyn Fn(u32) -> u32,
        block: &dyn Fn(u32) -> u32,
    ) {
        self.schedule.clear();
        let c = self.schedule.candidates();
        let mut other = 0;
        for g in 0..c.segments {
            let mut rows = (c.first_row[g]..c.first_row[g + 1]).rev();
            let access = rows.find(|&row| at(c.rows, row).event.is_access());
            other = access.map_or(other, segment);
            self.emitted[g] = other;
            self.remembered_held[g] = held(other);
        }
        self.schedule.hold_as(&self.remembered_held);
        let first = |segment: u32| {
            let others = self.emitted.first(c.segments);
            u32::try_from(others.partition_point(|&other| other < segment)).unwrap_or(c.segments)
        };
        for &[absent, give, take] in absences {
            let (give, take) = (first(give), first(take));
            for gap in c.first_gap_after(give)..c.gaps {
                let g = c.gap(gap);
                if g.begin < take && block(g.block) == absent && self.schedule.may_use(gap, &g) {
                    let positions = self.schedule.clamp(gap, [give, take]);
                    self.schedule.set(gap, positions);
                }
            }
        }
    }

    /// The gaps, in the order of their numbers.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Gap> + 'a {
        let c = self.schedule.candidates();
        (0..c.gaps).map(|gap| {
            let g = c.gap(gap);
            let changes = c.version(g.version).last != g.version;
            Gap {
                block: g.block,
                begin: g.begin,
                end: g.end,
                version: g.version,
                other: (g.other_end != candidates::NONE).then_some(g.other_end),
                leaves: g.kind.is_read() && changes,
                returns: g.kind.returns(),
                at_start: g.kind.is_head(),
                owes: (g.kind.is_head() || g.kind == Kind::Tail) && changes_at_all(c, &g),
                at_end: g.kind == Kind::Tail,
            }
        })
    }

    fn overhead(&mut self) -> f64 {
        self.schedule.run(f64::INFINITY, |_| ()).overhead
    }

    /// The best of the other policies' schedules and of those with all gaps, improved.
    fn direct(&mut self, limit: u64, work: u64) -> Option<f64> {
        let mut least = None;
        let mut best = Start::All(Scope::Inside);
        let all = [Start::All(Scope::Inside), Start::All(Scope::Across)];
        for start in all.into_iter().chain(Weights::SINGLE.map(Start::Score)) {
            if let Some(overhead) = self.begin(start, limit).filter(|&found| least.is_none_or(|least| found < least)) {
                (least, best) = (Some(overhead), start);
            }
        }
        // Nobody does better than not to wait at all.
        if least? > 0.0 {
            let mixture = Start::Score(self.mixture(limit));
            if self.begin(mixture, limit).is_some_and(|found| least.is_some_and(|least| found < least)) {
                best = mixture;
            }
        }
        self.begin(best, limit)?;
        Some(self.search.improve(&mut self.schedule, limit, work))
    }

    fn begin(&mut self, start: Start, limit: u64) -> Option<f64> {
        match start {
            Start::All(scope) => self.selection.all(&mut self.schedule, limit, scope).then(|| self.overhead()),
            Start::Score(weights) => self.by_score(limit, weights),
        }
    }

    /// Holds no memory back.
    pub(super) fn hold_nothing(&mut self) {
        self.schedule.hold_nothing();
    }

    /// Holds memory back in the segments where a placement of the rows last written is above the limit: of what is too
    /// much the part that `part` tells, as numerator and denominator.
    pub(super) fn hold(&mut self, blocks: &[Block], offsets: &[u64], limit: u64, part: (u32, u32)) {
        for (block, offset) in blocks.iter().zip(offsets) {
            let excess = offset.saturating_add(block.size).saturating_sub(limit);
            if excess > 0 {
                self.schedule.exceed(&self.emitted, (block.start, block.end), excess);
            }
        }
        self.schedule.hold(limit / 512, part);
    }

    /// Remembers the schedule, and the memory that is held back.
    pub(super) fn remember(&mut self) {
        self.remembered.keep(&self.schedule);
        self.schedule.copy_held(&mut self.remembered_held);
    }

    /// Goes back to what is remembered.
    pub(super) fn recall(&mut self) {
        self.remembered.restore(&mut self.schedule);
        self.schedule.hold_as(&self.remembered_held);
    }

    /// Lets go of a quarter of the memory that is held back.
    pub(super) fn let_go(&mut self) {
        self.schedule.let_go();
    }

    /// Plans again after memory has been held back, or let go: the search goes on from its schedule, the mixture is kept.
    pub(super) fn again(&mut self, policy: Policy, limit: u64, work: u64) -> Option<f64> {
        let (schedule, search) = (&mut self.schedule, &mut self.search);
        match policy {
            Policy::Auto => search.lower(schedule, limit).then(|| search.improve(schedule, limit, work)),
            Policy::Bayes => {
                let weights = self.mixture(limit);
                self.by_score(limit, weights)
            }
            _ => self.plan(policy, limit, work),
        }
    }

    /// Away less together, at the same time.
    pub(super) fn tighten(&mut self) {
        let before = self.overhead();
        self.kept.keep(&self.schedule);
        self.schedule.tighten();
        if self.overhead() > before {
            self.kept.restore(&mut self.schedule);
        }
    }

    /// Writes the rewritten trace.
    pub(super) fn rows(&mut self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        emit::rows(&mut self.schedule, &mut self.emitted, scratch, out)
    }
}
