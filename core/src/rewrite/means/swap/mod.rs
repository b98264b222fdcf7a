//! Swapping: blocks are copied to the host and back while no operator accesses them.
//!
//! `Swapper` makes schedules. A gap, or idle time, is a time in which no operator accesses a block. A schedule says in
//! which gaps blocks leave the device, and where they are freed and allocated again. The load of each operator, plus
//! its *headroom* (bytes held back), has to stay within a limit. A [`Policy`] says how to make a schedule. The module
//! `schedule` (with `load`, `agenda` and `queue`) finds the time that a schedule takes. Four published scores say which
//! gaps to use first: each gives a schedule, and is also a policy of its own. Other schedules use no score: blocks
//! leave where the load would be above the limit, those first whose gaps begin first. The module `search` starts from
//! the fastest of all these schedules, and makes it faster.

mod agenda;
mod load;
mod queue;
pub(in crate::rewrite) mod schedule;
mod search;

use crate::rewrite::published::zhang::{Scope, Selection, Weights};
use crate::rewrite::published::{bayes, layer_policy};
use schedule::{Action, Positions, Schedule};
use search::Search;

use crate::rewrite::gaps::{GapKind, Gaps};
use crate::rewrite::ids::BlockId;
use crate::rewrite::writer::Writer;
use crate::simulate::Device;
use crate::trace::{Event, Op, Row};
use crate::workspace::workspace;
use crate::{Block, Error, Workspace};

/// The rule that decides which blocks are swapped to the host, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Policy {
    /// A search over when the blocks leave the device and come back. It starts from the fastest of these schedules: one
    /// for each of the scores [`Policy::Doa`], [`Policy::Aoa`], [`Policy::Wdoa`] and [`Policy::Swdoa`], one for a
    /// weighted sum of them, and two without scores, in which blocks leave where the load would be above the limit,
    /// those first that are idle first. [`fit`](crate::rewrite::fit::fit) tries every other policy too, and takes the
    /// best.
    Auto,
    /// Blocks are swapped first in the idle times with the longest duration of absence: the idle time less the time of
    /// the copies (Zhang et al. 2019).
    Doa,
    /// Blocks are swapped first in the idle times with the largest area of absence: the duration of absence times the
    /// block's bytes (Zhang et al. 2019).
    Aoa,
    /// Blocks are swapped first in the idle times with the highest weighted duration of absence: the area under the
    /// load curve (bytes alive over time) during the idle time (Zhang et al. 2019).
    Wdoa,
    /// Blocks are swapped first in the idle times with the highest submodular weighted duration of absence: the area
    /// under the load curve (bytes alive over time) during the idle time, where the load is that which is left if
    /// blocks are swapped in the idle times already chosen (Zhang et al. 2019).
    Swdoa,
    /// Blocks are swapped first in the idle times with the highest weighted sum of four scores: [`Policy::Doa`],
    /// [`Policy::Aoa`], [`Policy::Wdoa`] and [`Policy::Swdoa`]. The weights are found by Bayesian optimisation (Zhang
    /// et al. 2019).
    Bayes,
    /// Blocks that are idle while the operator with the max load runs are copied to the host as soon as they are idle,
    /// and back one operator before their next reader. In training these are activations, copied out after their last
    /// reader in the forward pass (Jin et al. 2018, Layrub).
    Layer,
}

impl Policy {
    /// All swap policies.
    pub const ALL: [Self; 7] = [Self::Auto, Self::Doa, Self::Aoa, Self::Wdoa, Self::Swdoa, Self::Bayes, Self::Layer];

    /// The name of the policy, for people and on the command line.
    ///
    /// ```
    /// use sublet_core::rewrite::means::swap::Policy;
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

    /// How the policy decides what is swapped, in one line for people.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Auto => "every other policy, and then a search over when blocks leave and return",
            Self::Doa => "duration of absence",
            Self::Aoa => "area of absence",
            Self::Wdoa => "weighted duration of absence",
            Self::Swdoa => "submodular weighted duration of absence",
            Self::Bayes => "a weighted sum of the four scores, found by Bayesian optimisation",
            Self::Layer => "out after the last forward reader, back one operator ahead (Layrub)",
        }
    }

    /// The policy with this name; none if no policy has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

#[derive(Clone, Copy)]
enum Start {
    All(Scope),
    Score(Weights),
}

workspace! {
    pub(in crate::rewrite) struct Swapper<'a>(rows, blocks; gaps: &'a Gaps<'a>, device: &Device, seed: u64) {
        tables {
            remembered_headroom: u64[rows + 2],
            emitted: u32[rows + 2],
        }
        records {
            away_at_start[BlockId]: bool[blocks],
        }
        parts {
            schedule: Schedule(rows, blocks; gaps, device),
            selection: Selection(rows, blocks),
            search: Search(rows, blocks; seed),
            kept: Positions(rows, blocks),
            remembered: Positions(rows, blocks),
            left: Positions(rows, blocks),
        }
        state {
            mixture: Option<(u64, Weights)> = None,
            seed: u64 = seed,
        }
    }
}

impl<'a> Swapper<'a> {
    pub(in crate::rewrite) fn new(gaps: &'a Gaps<'a>, device: &Device, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        let program = gaps.program;
        Self::lend(program.rows.len(), program.size.len(), gaps, device, seed, scratch)
    }

    pub(in crate::rewrite) fn least_load(&mut self) {
        self.clear_headroom();
        self.selection.all(&mut self.schedule, 0, Scope::Across);
    }

    pub(in crate::rewrite) fn load_min(&mut self) -> u64 {
        self.schedule.clear();
        let (_, peak) = self.schedule.peak();
        let gaps = self.schedule.gaps();
        for gap in gaps.all() {
            let g = gaps.gap(gap);
            if g.kind == GapKind::Middle && g.begin <= peak && peak < g.end {
                self.schedule.set(gap, [g.begin, g.end]);
            }
        }
        self.schedule.peak().0
    }

    pub(in crate::rewrite) fn peak(&self) -> u64 {
        self.schedule.peak().0
    }

    pub(in crate::rewrite) fn plan(&mut self, policy: Policy, limit: u64, work: u64) -> Option<f64> {
        match policy {
            Policy::Auto => self.direct(limit, work),
            Policy::Doa => self.by_score(limit, Weights::DOA),
            Policy::Aoa => self.by_score(limit, Weights::AOA),
            Policy::Wdoa => self.by_score(limit, Weights::WDOA),
            Policy::Swdoa => self.by_score(limit, Weights::SWDOA),
            Policy::Bayes => {
                let weights = self.mixture(limit, work);
                self.by_score(limit, weights)
            }
            Policy::Layer => layer_policy::by_layer(&mut self.schedule, limit).then(|| self.overhead()),
        }
    }

    /// A unit is 16 looks, while the search counts each look.
    pub(in crate::rewrite) const fn selected(&self) -> u64 {
        self.selection.work_done()
    }

    fn mixture(&mut self, limit: u64, work: u64) -> Weights {
        match self.mixture {
            Some((known, weights)) if known == limit => weights,
            _ => {
                let enough = self.selected().saturating_add(work);
                let weights = bayes::search(self.seed, |weights| {
                    if self.selected() > enough { None } else { self.by_score(limit, weights) }
                });
                self.mixture = Some((limit, weights));
                weights
            }
        }
    }

    fn by_score(&mut self, limit: u64, weights: Weights) -> Option<f64> {
        self.in_best_scope(|selection, schedule, scope| selection.by_score(schedule, limit, weights, scope))
    }

    fn in_best_scope(
        &mut self,
        mut select: impl FnMut(&mut Selection<'a>, &mut Schedule<'a>, Scope) -> bool,
    ) -> Option<f64> {
        let mut least = None;
        for scope in [Scope::Inside, Scope::Across] {
            if select(&mut self.selection, &mut self.schedule, scope) {
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

    pub(in crate::rewrite) fn overhead(&mut self) -> f64 {
        self.schedule.run(f64::INFINITY, |_| ())
    }

    /// Without [`Policy::Swdoa`], which takes longer than the search in networks of a thousand layers.
    pub(in crate::rewrite) fn search(&mut self, limit: u64, work: u64) -> Option<f64> {
        let (start, _) = self.best_start(limit, &Weights::FIXED)?;
        self.improve(start, limit, work)
    }

    /// The mixed start is left out if another takes no longer than the original: its weights take as long as the
    /// search.
    fn direct(&mut self, limit: u64, work: u64) -> Option<f64> {
        let (mut start, least) = self.best_start(limit, &Weights::SINGLE)?;
        // No schedule is better than one that never waits.
        if least > 0.0 {
            let mixture = Start::Score(self.mixture(limit, work));
            if self.begin(mixture, limit).is_some_and(|found| found < least) {
                start = mixture;
            }
        }
        self.improve(start, limit, work)
    }

    fn best_start(&mut self, limit: u64, weights: &[Weights]) -> Option<(Start, f64)> {
        let mut best: Option<(Start, f64)> = None;
        let all = [Start::All(Scope::Inside), Start::All(Scope::Across)];
        for start in all.into_iter().chain(weights.iter().map(|&w| Start::Score(w))) {
            if let Some(found) = self.begin(start, limit).filter(|&found| best.is_none_or(|(_, least)| found < least)) {
                best = Some((start, found));
            }
        }
        best
    }

    fn improve(&mut self, start: Start, limit: u64, work: u64) -> Option<f64> {
        self.begin(start, limit)?;
        Some(self.search.improve(&mut self.schedule, limit, work))
    }

    fn begin(&mut self, start: Start, limit: u64) -> Option<f64> {
        match start {
            Start::All(scope) => self.selection.all(&mut self.schedule, limit, scope).then(|| self.overhead()),
            Start::Score(weights) => self.by_score(limit, weights),
        }
    }

    pub(in crate::rewrite) fn clear_headroom(&mut self) {
        self.schedule.clear_headroom();
    }

    /// `part` (numerator, denominator) of the excess, and at least 1/512 of the limit.
    pub(in crate::rewrite) fn add_headroom(&mut self, blocks: &[Block], offsets: &[u64], limit: u64, part: (u32, u32)) {
        for (block, offset) in blocks.iter().zip(offsets) {
            let excess = offset.saturating_add(block.size).saturating_sub(limit);
            if excess > 0 {
                self.schedule.exceed(&self.emitted, (block.start, block.end), excess);
            }
        }
        self.schedule.add_headroom(limit / 512, part);
    }

    pub(in crate::rewrite) fn remember(&mut self) {
        self.remembered.keep(&self.schedule);
        self.schedule.copy_headroom(&mut self.remembered_headroom);
    }

    pub(in crate::rewrite) fn recall(&mut self) {
        self.remembered.restore(&mut self.schedule);
        self.schedule.set_headroom(&self.remembered_headroom);
    }

    pub(in crate::rewrite) fn lower_headroom(&mut self) {
        self.schedule.lower_headroom();
    }

    pub(in crate::rewrite) fn replan(&mut self, policy: Policy, limit: u64, work: u64) -> Option<f64> {
        let (schedule, search) = (&mut self.schedule, &mut self.search);
        match policy {
            Policy::Auto => search.lower(schedule, limit).then(|| search.improve(schedule, limit, work)),
            Policy::Bayes => {
                let weights = self.mixture(limit, work);
                self.by_score(limit, weights)
            }
            _ => self.plan(policy, limit, work),
        }
    }

    pub(in crate::rewrite) fn start_over(&mut self, planned: Option<f64>, limit: u64, work: u64) -> Option<f64> {
        self.left.keep(&self.schedule);
        let found = self.search(limit, work);
        if planned.is_some_and(|planned| found.is_none_or(|found| planned <= found)) {
            self.left.restore(&mut self.schedule);
            return planned;
        }
        found
    }

    pub(in crate::rewrite) fn tighten(&mut self) {
        let before = self.overhead();
        self.kept.keep(&self.schedule);
        self.schedule.tighten();
        if self.overhead() > before {
            self.kept.restore(&mut self.schedule);
        }
    }

    pub(in crate::rewrite) fn rows(&mut self, out: &mut [Row]) -> Result<usize, Error> {
        let Self { schedule, emitted, away_at_start, .. } = self;
        let gaps = schedule.gaps();
        away_at_start.fill(false);
        let used = schedule.used().iter().map(|gap| (gap, gaps.gap(gap)));
        for (_, g) in used.filter(|(gap, g)| schedule.is_away_at_start(*gap, g)) {
            away_at_start.set(g.block, true);
        }
        let mut writer = Writer::new(out);
        schedule.run(f64::INFINITY, |action| match action {
            Action::Operators(from, to) => {
                for o in from..to {
                    emitted[o] = u32::try_from(writer.len()).unwrap_or(u32::MAX);
                    let stays = |r: &Row| r.event != Event::Malloc || !away_at_start.get(r.block_id());
                    gaps.program.rows_of(o).filter(stays).for_each(|r| writer.push(r));
                }
            }
            Action::Out(version) => writer.event(Event::SwapOut, gaps.version(version).block, 0, Op::None),
            Action::Free(gap) => writer.event(Event::Free, gaps.gap(gap).block, 0, Op::None),
            Action::In(gap) => {
                let g = gaps.gap(gap);
                writer.event(Event::Malloc, g.block, gaps.program.size[g.block], Op::None);
                if g.kind.returns() {
                    writer.event(Event::SwapIn, g.block, 0, Op::None);
                }
            }
        });
        emitted[gaps.program.operators] = u32::try_from(writer.len()).unwrap_or(u32::MAX);
        writer.end()
    }
}
