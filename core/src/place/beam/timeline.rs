//! The lifetimes of the blocks as a pass of the beam search sees them. A *pass* is one attempt to place all blocks. It
//! begins at one section of time, goes on in one direction, and then from there in the other. Time is divided into
//! *sections*, numbered from 0, one for each maximal set of blocks that are alive at one step. Time is measured in
//! *ticks* of a *clock*: each section takes some ticks, and busy sections take more than others.

use crate::place::Sweep;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// In ticks: seen in the present direction of time, and in the other; the second is 0 where it does not matter.
pub(super) type Ends = [u32; 2];

const TICKS: u64 = 8;
/// The share of the most bytes alive is squared so often: a section at 95 % has 3 ticks, at 91 % or less 1.
const SQUARINGS: u32 = 4;
const FRACTION: u32 = 10;
const BEYOND: u32 = 50;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 3 * n + 1 }
}

pub(super) struct Timeline<'a> {
    sections: u32,
    /// By block: the first section of time in which it is alive, counted forward.
    pub low: Table<'a, u32>,
    /// By block: one past the last section of time in which it is alive, counted forward.
    pub high: Table<'a, u32>,
    /// By section: the ticks before it; one more entry for the end. Holes do no harm in sections of few ticks.
    clock: Table<'a, u32>,
    beyond: u32,
    /// The most blocks that are alive at once.
    pub most_alive: u32,
    /// The section of time at which an attempt to place all blocks begins; at first the busiest one.
    pub start: u32,
    /// Whether the attempt to place all blocks now goes forward in time; if false, backward.
    pub forward: bool,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(sweep: &Sweep<'_>, n: usize, scratch: &mut Workspace<'a>) -> Self {
        let (mut low, mut high, mut clock) = (scratch.indices(n), scratch.indices(n), scratch.indices(n + 1));
        let sections = sweep.clique_ranges(&mut low, &mut high);
        let most = sweep.max_load();
        let (mut busiest, mut start, mut ticks, mut most_alive) = (0, 0, 0, 0);
        for (section, clique) in (0u32..).zip(sweep.cliques()) {
            if clique.load > busiest {
                (busiest, start) = (clique.load, section);
            }
            most_alive = most_alive.max(clique.len);
            clock[section] = ticks;
            let mut part = (clique.load << FRACTION).checked_div(most).unwrap_or(0);
            for _ in 0..SQUARINGS {
                part = (part * part) >> FRACTION;
            }
            ticks = ticks.saturating_add(u32::try_from((TICKS * part) >> FRACTION).unwrap_or(0).max(1));
        }
        clock[sections] = ticks;
        let after = u64::from(BEYOND) * u64::from(ticks) / u64::from(sections.max(1));
        let beyond = ticks.saturating_add(u32::try_from(after).unwrap_or(u32::MAX));
        Self { sections, low, high, clock, beyond, most_alive, start, forward: true }
    }

    pub(super) fn begin(&self, b: u32) -> u32 {
        let begin = if self.forward { self.low[b] } else { self.sections - self.high[b] };
        begin.max(self.section(self.start))
    }

    pub(super) fn end(&self, b: u32) -> u32 {
        self.end_seen(b, self.forward)
    }

    fn end_seen(&self, b: u32, forward: bool) -> u32 {
        if forward { self.high[b] } else { self.sections - self.low[b] }
    }

    pub(super) fn section(&self, section: u32) -> u32 {
        if self.forward { section } else { self.sections - 1 - section }
    }

    /// Alive at the start first, of which the greatest lesser side; then later begins, then the others.
    pub(super) fn rank(&self, b: u32) -> u64 {
        let (low, high, start) = (self.low[b], self.high[b], self.start);
        let (part, key) = if low <= start && start < high {
            (0, u32::MAX - (high - start).min(start + 1 - low))
        } else {
            (1 + u64::from(self.is_behind(b)), if low > start { low } else { self.sections - high })
        };
        part << 32 | u64::from(key)
    }

    pub(super) fn is_behind(&self, b: u32) -> bool {
        self.end(b) <= self.section(self.start)
    }

    pub(super) fn ends(&self, b: u32, now: u32) -> Ends {
        self.seen(now, self.end(b), self.end_seen(b, !self.forward))
    }

    /// A hole ends now, the floor or the ceiling after all blocks.
    pub(super) fn borders(&self, now: u32) -> [Ends; 2] {
        let back = if self.is_start(now) { self.beyond } else { 0 };
        [self.seen(now, now, self.sections - 1 - now), [self.beyond, back]]
    }

    fn seen(&self, now: u32, section: u32, other: u32) -> Ends {
        let back = if self.is_start(now) { self.time(other, !self.forward) } else { 0 };
        [self.time(section, self.forward), back]
    }

    fn is_start(&self, now: u32) -> bool {
        now == self.section(self.start)
    }

    fn time(&self, section: u32, forward: bool) -> u32 {
        if forward { self.clock[section] } else { self.clock[self.sections] - self.clock[self.sections - section] }
    }
}
