//! The lifetimes of the blocks as a pass of the beam search sees them. A *pass* is one attempt to place all blocks. It
//! begins at one section of time, goes on in one direction, and then from there in the other. Time is divided into
//! *sections*, numbered from 0, one for each maximal set of blocks that are alive at one step. Time is measured in
//! *ticks* of a *clock*: each section takes some ticks, and busy sections take more than others.

use crate::place::interval::{self, Sweep};
use crate::table::Table;
use crate::{Block, Error, Workspace, WorkspaceLen};

/// When a block ends, as two clock times in ticks. The first is its end seen in the present direction of time, the
/// second its end seen in the other direction. The second is 0 where the other direction does not matter.
pub(super) type Ends = [u32; 2];

/// How many ticks of the clock the busiest section of time takes; every section takes at least one.
const TICKS: u64 = 8;
/// The bytes alive in a section of time are divided by the most bytes alive at once, and the quotient is squared this
/// number of times. The result times [`TICKS`] is how many ticks of the clock the section takes. So a section with 95 %
/// of the most bytes has 3 ticks; with 91 % or less, it has 1.
const SQUARINGS: u32 = 4;
/// The bytes alive in a section of time are divided by the most bytes alive at once. The quotient is a fixed-point
/// number with this many fraction bits.
const FRACTION: u32 = 10;
/// The floor and the ceiling of memory count as blocks that end after the last section of time. The ticks between are
/// those of this number of sections of average length.
const BEYOND: u32 = 50;

/// Length of the workspace that a [`Timeline`] of `n` blocks needs, the temporary part included.
pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 3 * n + 1 }.and(interval::workspace(n))
}

/// The lifetimes of the blocks in sections of time, numbered from 0. Seen backward, the last section is number 0.
pub(super) struct Timeline<'a> {
    sections: u32,
    /// By block: the first section of time in which it is alive, counted forward.
    pub low: Table<'a, u32>,
    /// By block: one past the last section of time in which it is alive, counted forward.
    pub high: Table<'a, u32>,
    /// By section of time: how many ticks of a clock have passed when it begins. Sections with few bytes alive have
    /// fewer ticks: there, holes between blocks do no harm. One more entry tells when the last section ends.
    clock: Table<'a, u32>,
    /// The clock time, in ticks, at which the floor and the ceiling of memory end. They count as blocks that end after
    /// all others.
    beyond: u32,
    /// The most blocks that are alive at once.
    pub most_alive: u32,
    /// The section of time at which an attempt to place all blocks begins; at first the busiest one.
    pub start: u32,
    /// Whether the attempt to place all blocks now goes forward in time; if false, backward.
    pub forward: bool,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(blocks: &[Block], scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let n = blocks.len();
        let (mut low, mut high, mut clock) = (scratch.indices(n), scratch.indices(n), scratch.indices(n + 1));
        let sweep = Sweep::new(blocks, scratch.reborrow())?;
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
        Ok(Self { sections, low, high, clock, beyond, most_alive, start, forward: true })
    }

    /// The section in which block `b` begins; but a block that begins before the section at which the attempt begins
    /// counts as beginning there. Begins are seen, and sections counted, in the present direction of time.
    pub(super) fn begin(&self, b: u32) -> u32 {
        let begin = if self.forward { self.low[b] } else { self.sections - self.high[b] };
        begin.max(self.section(self.start))
    }

    /// One past the last section in which block `b` is alive. Sections are counted in the present direction of time:
    /// backward, the section that is last in time is number 0.
    pub(super) fn end(&self, b: u32) -> u32 {
        self.end_seen(b, self.forward)
    }

    /// One past the last section in which block `b` is alive. Sections are counted forward in time if `forward`,
    /// otherwise backward from the last one.
    fn end_seen(&self, b: u32, forward: bool) -> u32 {
        if forward { self.high[b] } else { self.sections - self.low[b] }
    }

    /// Converts the number of a section: from counting forward in time to counting in the present direction of time, or
    /// the other way round. Both are the same computation.
    pub(super) fn section(&self, section: u32) -> u32 {
        if self.forward { section } else { self.sections - 1 - section }
    }

    /// A key to sort the blocks by, the lowest first, into the order in which they are placed. The blocks come in three
    /// groups:
    /// - those that are alive in the section at which the attempt begins. Two numbers are counted for each: the
    ///   sections in which it is alive up to this one, and those from this one on. The block whose lesser number is
    ///   greatest comes first: one with 3 and 9 sections before one with 2 and 50;
    /// - those that begin later, seen in the present direction of time, in the order of their begins;
    /// - all others, in the order of their begins as seen in the other direction.
    pub(super) fn rank(&self, b: u32) -> u64 {
        let (low, high, start) = (self.low[b], self.high[b], self.start);
        let (part, key) = if low <= start && start < high {
            (0, u32::MAX - (high - start).min(start + 1 - low))
        } else {
            (1 + u64::from(self.is_behind(b)), if low > start { low } else { self.sections - high })
        };
        part << 32 | u64::from(key)
    }

    /// Whether block `b` has ended before the section at which the attempt begins, seen in the present direction of
    /// time.
    pub(super) fn is_behind(&self, b: u32) -> bool {
        self.end(b) <= self.section(self.start)
    }

    /// When block `b` ends, as two clock times: seen in the present direction of time, and seen in the other direction.
    /// The second is needed only if `now`, the present section, is the one at which the attempt begins. In all other
    /// sections it is 0.
    pub(super) fn ends(&self, b: u32, now: u32) -> Ends {
        self.seen(now, self.end(b), self.end_seen(b, !self.forward))
    }

    /// When two things end that count as blocks, each as two clock times ([`Ends`]). Index 0 is a hole between blocks:
    /// it ends now, in section `now`. Index 1 is the floor or the ceiling of memory: it ends after all blocks.
    pub(super) fn borders(&self, now: u32) -> [Ends; 2] {
        let back = if self.is_start(now) { self.beyond } else { 0 };
        [self.seen(now, now, self.sections - 1 - now), [self.beyond, back]]
    }

    /// The clock times at which two sections begin. The first, `section`, is counted in the present direction of time,
    /// the second, `other`, in the other direction. The second clock time is 0 unless `now` is the section at which the
    /// attempt begins.
    fn seen(&self, now: u32, section: u32, other: u32) -> Ends {
        let back = if self.is_start(now) { self.time(other, !self.forward) } else { 0 };
        [self.time(section, self.forward), back]
    }

    fn is_start(&self, now: u32) -> bool {
        now == self.section(self.start)
    }

    /// The clock time, in ticks, at which section `section` begins. If `forward` is true, sections and ticks are
    /// counted from the start of time; otherwise time is reversed, and both are counted backward from its end.
    fn time(&self, section: u32, forward: bool) -> u32 {
        if forward { self.clock[section] } else { self.clock[self.sections] - self.clock[self.sections - section] }
    }
}
