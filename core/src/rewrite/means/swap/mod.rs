//! Swapping: blocks are copied to the host and back while no operator accesses them.
//!
//! `Swapper` makes schedules. A gap, or idle time, is a time in which no operator accesses a block. A schedule says in
//! which gaps blocks leave the device, and where they are freed and allocated again. The load of each operator, plus
//! its *headroom* (bytes held back), has to stay within a limit. The module `schedule` (with `load`, `agenda` and
//! `queue`) finds the time that a schedule takes. The module `starts` makes schedules by simple rules, and `search` makes
//! the fastest of these faster.

mod agenda;
mod load;
mod queue;
pub(in crate::rewrite) mod schedule;
mod search;
mod starts;

use schedule::{Action, Positions, Schedule};
use search::Search;
use starts::{RULES, Scope, Selection};

use crate::rewrite::gaps::{GapKind, Gaps};
use crate::rewrite::ids::BlockId;
use crate::rewrite::writer::Writer;
use crate::simulate::Device;
use crate::trace::{Event, Op, Row};
use crate::workspace::workspace;
use crate::{Block, Error, Workspace};

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
    }
}

impl<'a> Swapper<'a> {
    pub(in crate::rewrite) fn new(gaps: &'a Gaps<'a>, device: &Device, seed: u64, scratch: &mut Workspace<'a>) -> Self {
        let program = gaps.program;
        Self::lend(program.rows.len(), program.size.len(), gaps, device, seed, scratch)
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

    pub(in crate::rewrite) fn overhead(&mut self) -> f64 {
        self.schedule.run(f64::INFINITY, |_| ())
    }

    /// All that can leave, only as long as `limit` needs it; false where even that is not enough.
    pub(in crate::rewrite) fn all_within(&mut self, limit: u64) -> bool {
        self.clear_headroom();
        self.selection.all(&mut self.schedule, limit, Scope::Across)
    }

    pub(in crate::rewrite) fn search(&mut self, limit: u64, work: u64) -> Option<f64> {
        let mut least: Option<f64> = None;
        for (rule, scope) in
            RULES.into_iter().flat_map(|rule| [Scope::Inside, Scope::Across].map(|scope| (rule, scope)))
        {
            if self.selection.begin(&mut self.schedule, limit, rule, scope) {
                let overhead = self.overhead();
                if least.is_none_or(|least| overhead < least) {
                    least = Some(overhead);
                    self.kept.keep(&self.schedule);
                }
            }
        }
        least?;
        self.kept.restore(&mut self.schedule);
        Some(self.search.improve(&mut self.schedule, limit, work))
    }

    pub(in crate::rewrite) fn clear_headroom(&mut self) {
        self.schedule.clear_headroom();
    }

    /// The same `bytes` in every operator, and nothing else.
    pub(in crate::rewrite) fn hold_back(&mut self, bytes: u64) {
        self.schedule.set_headroom(|_| bytes);
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
        self.schedule.set_headroom(|operator| self.remembered_headroom[operator]);
    }

    pub(in crate::rewrite) fn lower_headroom(&mut self) {
        self.schedule.lower_headroom();
    }

    pub(in crate::rewrite) fn replan(&mut self, limit: u64, work: u64) -> Option<f64> {
        let (schedule, search) = (&mut self.schedule, &mut self.search);
        search.lower(schedule, limit).then(|| search.improve(schedule, limit, work))
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
