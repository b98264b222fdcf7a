//! Recomputation: values are freed and made again by the operators that made them.

mod absence;
pub mod chen;
pub(super) mod mirror;
mod script;
pub(super) mod segments;
#[cfg(test)]
mod tests;
mod walk;

use core::num::NonZeroU64;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::graph::{Graph, Owner};
use super::writer::Writer;
use crate::simulate::Device;
use crate::table::Table;
use crate::trace::{Event, Op, Row};
use crate::{Error, Workspace, WorkspaceLen};
pub(super) use absence::Gap;
use script::{Script, Step};
pub(super) use walk::Walked;
use walk::{Taste, Walk};

/// The most rows that a rewritten trace has.
pub(super) const fn most_rows(rows: usize) -> usize {
    4 * rows
}

/// The most steps of a script.
const fn most_steps(rows: usize) -> usize {
    most_rows(rows)
}

/// Length of the workspace of a [`Recomputer`] for a trace of so many rows and block numbers.
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    walk::workspace(rows, blocks).and(WorkspaceLen {
        words: 2 * DISTURBED,
        indices: most_steps(rows) + blocks + 3 * (rows + blocks) + 3 * MOVED as usize,
    })
}

/// Length of the workspace of [`Recomputer::rows`].
pub(super) const fn rows_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 3 * blocks + 2 * most_steps(rows) }
}

/// Powers of the distance, and parts of what is owed, that are tried.
const TASTES: [Taste; 9] = {
    const fn taste(distance: u32, owed: f64) -> Taste {
        Taste { distance, owed }
    }
    [
        taste(2, 0.5),
        taste(1, 0.1),
        taste(0, 1.0),
        taste(2, 1.0),
        taste(1, 0.5),
        taste(0, 0.1),
        taste(2, 0.1),
        taste(1, 1.0),
        taste(0, 0.5),
    ]
};

/// The most weights that are disturbed at once.
const DISTURBED: usize = 4;

/// The annealing begins by taking what is longer by this part of the original's time.
const HEAT: f64 = 0.0005;

/// The annealing ends where one part in `PATIENCE` of its work has not saved one part in `PROGRESS` of what is too long. In a
/// large network it is one part for each `PATIENCE_ROWS` rows: a few blocks make hardly a difference there.
const PATIENCE: u64 = 6;
const PATIENCE_ROWS: usize = 2500;
const PROGRESS: u64 = 300;

/// The most gaps that are moved at once.
const MOVED: u32 = 8;

/// One of so many moves takes other virtual uses; the others take other weights, up to e to the power of this.
const REMEMBERS: u64 = 16;
const STEP: f64 = 3.0;

/// How often a walk is repeated with the virtual uses of the one before.
const ROUNDS: u32 = 6;

/// The least limit is told up to the original peak over 2 to the power of this.
const NEAR: u32 = 9;

/// The pass at work.
pub(super) struct Recomputer<'a> {
    graph: &'a Graph<'a>,
    walk: Walk<'a>,
    /// The best script for the last limit.
    best: Script<'a>,
    /// Its absences: block, give, take.
    absent: Table<'a, [u32; 3]>,
    absents: u32,
    /// The blocks that may be evicted.
    movable: Table<'a, u32>,
    movables: u32,
    /// The blocks whose weights were disturbed last, and what they were.
    kept: Table<'a, [u64; 2]>,
    disturbed: u32,
    /// The gaps that were moved last, and where they were.
    moves: Table<'a, [u32; 3]>,
    moved: u32,
    device: Device,
    /// Whether absences are chosen too.
    swaps: bool,
    /// Whether nothing else takes care of what is above the limit.
    alone: bool,
    /// By how much the best script is above the limit.
    excess: u64,
    /// What the last script follows.
    taste: Taste,
    random: SplitMix64,
}

impl<'a> Recomputer<'a> {
    pub(super) fn new(
        graph: &'a Graph<'a>,
        device: &Device,
        least: u64,
        seed: u64,
        scratch: &mut Workspace<'a>,
    ) -> Self {
        let (rows, blocks) = (graph.rows.len(), graph.size.len());
        let mut recomputer = Self {
            graph,
            walk: Walk::new(graph, device, least, scratch),
            best: Script::new(rows, scratch),
            absent: scratch.index_records(rows + blocks),
            absents: 0,
            movable: scratch.indices(blocks),
            movables: 0,
            kept: scratch.word_records(DISTURBED),
            disturbed: 0,
            moves: scratch.index_records(MOVED as usize),
            moved: 0,
            device: *device,
            swaps: false,
            alone: true,
            excess: 0,
            taste: TASTES[0],
            random: SplitMix64::seed_from_u64(seed),
        };
        for block in (0..).take(blocks).filter(|&b| graph.is_repeatable(b) && graph.size[b] >= least) {
            recomputer.movable[recomputer.movables] = block;
            recomputer.movables += 1;
        }
        recomputer
    }

    /// Operators work in place in what follows.
    pub(super) const fn work_in_place(&mut self) {
        self.walk.in_place = true;
    }

    /// What it takes to make again what each block holds, in ns for a byte, as bits.
    pub(super) fn dearness(&self, dear: &mut Table<'_, u64>) {
        self.graph.dearness(dear);
    }

    /// By how much the best script is above the limit.
    pub(super) const fn excess(&self) -> u64 {
        self.excess
    }

    /// What is held back from the limit in a segment.
    pub(super) fn held_back(&self, segment: u32) -> u64 {
        self.walk.held_back(segment)
    }

    /// What is held back from the limit, by segment.
    pub(super) fn held(&mut self) -> &mut Table<'a, u64> {
        self.walk.hold()
    }

    /// In what follows, whether nothing else takes care of what is above the limit.
    pub(super) const fn set_alone(&mut self, alone: bool) {
        self.alone = alone;
    }

    /// A gap that swapping may use, in its numbering.
    pub(super) fn know(&mut self, gap: Gap) {
        self.walk.absences.know(gap);
    }

    /// Nothing is away.
    pub(super) fn clear_absences(&mut self) {
        self.walk.absences.clear();
    }

    /// A gap is an absence from before one segment to before another.
    pub(super) fn add_absence(&mut self, gap: u32, positions: [u32; 2]) {
        self.walk.absences.set(gap, positions);
    }

    /// The absences that the best script goes by: block, give, take.
    pub(super) fn absences(&self) -> &[[u32; 3]] {
        self.absent.first(self.absents)
    }

    /// Makes the best script found for a limit by about `work`: by every taste, and then by other weights.
    /// Absences are chosen too if `swaps`, from those that there are.
    pub(super) fn plan(&mut self, limit: u64, work: u64, swaps: bool) -> Option<Walked> {
        (self.swaps, self.walk.waits) = (swaps, swaps);
        let mut least: Option<Walked> = None;
        let mut rounds = 0;
        self.walk.work = 0;
        'tastes: for taste in TASTES {
            self.begin();
            let mut before = None;
            for round in 0..ROUNDS {
                // What is learnt from what takes twice as long is of no use.
                let most = match least {
                    Some(Walked { excess: 0, delay }) => Walked { delay: delay.saturating_mul(2), ..Walked::ANY },
                    _ => Walked::ANY,
                };
                let found = self.walk.walk(taste, limit, most);
                if let Some(found) = found
                    && least.is_none_or(|least| found < least)
                {
                    least = Some(found);
                    (self.taste, rounds) = (taste, round);
                    self.keep();
                }
                if least == Some(Walked::default()) || self.walk.work > work {
                    break 'tastes;
                }
                if found.is_none() || found == before {
                    break;
                }
                before = found;
                self.learn(found);
            }
        }
        // Back to where the best was found.
        self.begin();
        for _ in 0..rounds {
            let found = self.walk.walk(self.taste, limit, Walked::ANY);
            self.learn(found);
        }
        Some(self.improve(least?, limit, work))
    }

    /// No weights, no virtual uses.
    fn begin(&mut self) {
        self.walk.weight().fill(f64::to_bits(1.0));
        self.walk.forget();
    }

    /// What a walk teaches for the next: where it kept the limit, what was read virtually, and otherwise what must stay.
    fn learn(&mut self, found: Option<Walked>) {
        if found.is_some_and(|found| found.excess > 0) {
            self.walk.raise();
        } else {
            self.walk.remember();
        }
    }

    /// Goes on from the last script, after the limit or what is held back has changed.
    pub(super) fn again(&mut self, limit: u64, work: u64) -> Option<Walked> {
        self.walk.work = 0;
        let mut found = self.walk.walk(self.taste, limit, Walked::ANY)?;
        for _ in 1..ROUNDS {
            if found.excess == 0 {
                break;
            }
            self.walk.raise();
            found = self.walk.walk(self.taste, limit, Walked::ANY)?;
        }
        self.keep();
        Some(self.improve(found, limit, work))
    }

    /// Disturbs what the script follows from, and keeps it where that takes no longer, or by the rule of simulated
    /// annealing a little longer.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns, and a temperature"
    )]
    fn improve(&mut self, mut least: Walked, limit: u64, work: u64) -> Walked {
        let graph = self.graph;
        let end = graph.time[graph.segments.saturating_sub(1)] as f64;
        let parts = u64::try_from(graph.rows.len() / PATIENCE_ROWS).unwrap_or(u64::MAX).max(PATIENCE);
        let patience = NonZeroU64::new(work / parts).unwrap_or(NonZeroU64::MIN);
        let mut present = least;
        // What was the least, and when that was looked at last.
        let (mut before, mut since) = (least, self.walk.work);
        while self.walk.work < work && least > Walked::default() && (self.movables > 0 || self.swaps) {
            if self.walk.work - since > patience.get() {
                let stands = least.excess == before.excess && least.delay > before.delay - before.delay / PROGRESS;
                // At this pace it will not be within the limit.
                let left = (work - self.walk.work) / patience;
                let late = self.alone && least.excess > (before.excess - least.excess).saturating_mul(left);
                if stands || late {
                    break;
                }
                (before, since) = (least, self.walk.work);
            }
            let remembers = self.random.next_u64().is_multiple_of(REMEMBERS);
            if remembers {
                self.walk.keep_memory();
                self.walk.walk(self.taste, limit, Walked::ANY);
                self.walk.remember();
            } else if self.swaps && self.random.next_u64().is_multiple_of(2) {
                self.disturb_absence();
            } else {
                self.disturb();
            }
            let left = 1.0 - self.walk.work as f64 / work as f64;
            let heat = HEAT * left * left * left * end;
            let bound = present.delay as f64 - heat * libm::log(self.unit().max(1e-12));
            let most = if present.excess > 0 { u64::MAX } else { libm::floor(bound) as u64 };
            let most = Walked { excess: present.excess, delay: most };
            let found = self
                .walk
                .walk(self.taste, limit, most)
                .filter(|found| found.excess < present.excess || found.delay as f64 <= bound);
            match found {
                Some(found) => {
                    present = found;
                    if found < least {
                        least = found;
                        self.keep();
                    }
                }
                None if remembers => self.walk.restore_memory(),
                None => self.restore(),
            }
        }
        self.excess = least.excess;
        least
    }

    /// Makes the script of the least limit below `most` that one taste reaches: halves what lies between, down to a byte.
    pub(super) fn least(&mut self, most: u64) -> Option<u64> {
        let (mut low, mut high) = (0, most);
        let mut least = None;
        self.walk.weight().fill(f64::to_bits(1.0));
        while high - low > (most >> NEAR).max(1) {
            let limit = low + (high - low) / 2;
            self.begin();
            let mut found = false;
            for _ in 0..ROUNDS {
                let walked = self.walk.walk(TASTES[0], limit, Walked::ANY);
                found = walked.is_some_and(|walked| walked.excess == 0);
                if found {
                    break;
                }
                self.learn(walked);
            }
            if found {
                (high, least) = (limit, Some(limit));
                self.keep();
            } else {
                low = limit;
            }
        }
        least
    }

    /// Keeps the last script as the best.
    fn keep(&mut self) {
        self.best.copy(self.walk.script());
        let absences = &self.walk.absences;
        self.absents = 0;
        for &gap in absences.used().as_slice() {
            if absences.acted(gap) {
                let [give, take] = absences.at(gap);
                self.absent[self.absents] = [absences.gap(gap).block, give, take];
                self.absents += 1;
            }
        }
    }

    /// Other weights for a few blocks.
    fn disturb(&mut self) {
        self.disturbed = 0;
        self.moved = 0;
        let n = 1 + self.random.next_u64() % 3;
        for _ in 0..n {
            if self.movables == 0 {
                return;
            }
            let movable = self.below(self.movables);
            let block = self.movable[movable];
            let factor = libm::exp(STEP * (2.0 * self.unit() - 1.0));
            let weight = self.walk.weight();
            self.kept[self.disturbed] = [u64::from(block), weight[block]];
            self.disturbed += 1;
            weight[block] = factor.to_bits();
        }
    }

    /// A number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    fn unit(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// One absence more or less, or other positions for one.
    fn disturb_absence(&mut self) {
        self.disturbed = 0;
        self.moved = 0;
        let absences = &self.walk.absences;
        let (used, gaps) = (absences.used().len(), absences.gaps);
        let kind = self.below(16);
        if used == 0 || kind < 4 {
            for _ in 0..8 {
                let gap = self.below(gaps);
                if gaps > 0 && !self.walk.absences.is_used(gap) {
                    self.insert(gap);
                    return;
                }
            }
            return;
        }
        let gap = self.below(used);
        let gap = self.walk.absences.used().get(gap);
        let g = self.walk.absences.gap(gap);
        let [give, take] = self.walk.absences.at(gap);
        if kind < 7 {
            self.remove(gap, g);
            // Something else instead, every other time.
            let instead = self.below(gaps);
            if kind < 5 && instead != gap && !self.walk.absences.is_used(instead) {
                self.insert(instead);
            }
            return;
        }
        let from_start = g.at_start && give == 0;
        let front = g.at_end || !from_start && self.below(2) == 0;
        let (low, high) = if front { (g.begin.max(1), take) } else { (give, g.end) };
        let reach = if self.below(4) == 0 { high - low.min(high) } else { 1 + high.saturating_sub(low) / 8 };
        let old = if front { give } else { take };
        let low = low.max(old.saturating_sub(reach));
        let high = high.min(old.saturating_add(reach)).max(low);
        let new = low + self.below(high - low + 1);
        let positions = if front { [new, take] } else { [give, new] };
        if positions[0] < positions[1] { self.place(gap, positions) } else { self.remove(gap, g) }
    }

    /// A gap is an absence from where its copy out can be done to where its copy in has to begin.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn insert(&mut self, gap: u32) {
        let graph = self.graph;
        let g = self.walk.absences.gap(gap);
        let size = graph.size[g.block];
        let device = &self.device;
        let time = |segment: u32| graph.time[segment.min(graph.segments.saturating_sub(1))] as f64;
        let (out_ns, in_ns) = (device.out_ns(size), device.in_ns(size));
        let mut give = g.begin;
        if g.at_start {
            give = 0;
        } else {
            while give < g.end && g.leaves && time(give) < time(g.begin) + out_ns {
                give += 1;
            }
            give = give.max(1);
        }
        let mut take = g.end;
        while take > give && g.returns && time(take) > time(g.end) - in_ns {
            take -= 1;
        }
        if g.at_end {
            let Some(head) = g.other else { return };
            take = graph.segments;
            let away = self.walk.absences.is_used(head) && self.walk.absences.at(head)[0] == 0;
            if !away {
                self.insert_head(head);
            }
        }
        if give < take {
            self.place(gap, [give, take]);
        }
    }

    /// The gap at the start that one at the end needs.
    fn insert_head(&mut self, gap: u32) {
        let g = self.walk.absences.gap(gap);
        let [_, take] = self.walk.absences.at(gap);
        self.place(gap, [0, if take > 0 { take } else { g.end }]);
    }

    fn remove(&mut self, gap: u32, g: Gap) {
        if let (true, Some(tail)) = (g.at_start, g.other)
            && self.walk.absences.is_used(tail)
        {
            self.place(tail, [0, 0]);
        }
        self.place(gap, [0, 0]);
    }

    fn place(&mut self, gap: u32, positions: [u32; 2]) {
        let [give, take] = self.walk.absences.at(gap);
        if self.moved < MOVED {
            self.moves[self.moved] = [gap, give, take];
            self.moved += 1;
            self.walk.absences.set(gap, positions);
        }
    }

    /// A number below `n`; 0 if `n` is 0.
    fn below(&mut self, n: u32) -> u32 {
        let high = u64::from(n).wrapping_mul(self.random.next_u64() >> 32) >> 32;
        u32::try_from(high).unwrap_or(0)
    }

    /// Undoes what was disturbed last.
    fn restore(&mut self) {
        let weight = self.walk.weight();
        while self.disturbed > 0 {
            self.disturbed -= 1;
            let [block, bits] = self.kept[self.disturbed];
            weight[u32::try_from(block).unwrap_or(0)] = bits;
        }
        while self.moved > 0 {
            self.moved -= 1;
            let [gap, give, take] = self.moves[self.moved];
            self.walk.absences.set(gap, [give, take]);
        }
    }

    /// Writes the rows of the best script and returns how many they are; what runs again has the time of the row above
    /// it. A value that was evicted goes as soon as it was touched for the last time before: the walk evicts where it must,
    /// but in between nobody wants the value, and the less lies about, the better it is placed.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if `out` is too short.
    pub(super) fn rows(&self, scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        let mut scratch = scratch;
        let graph = self.graph;
        let blocks = graph.size.len();
        let mut writer = Writer::new(out);
        let mut there = scratch.indices(blocks);
        let mut left_out = scratch.indices(blocks);
        let freed = self.frees(&mut scratch);
        for (i, step) in (0u32..).zip(self.best.steps()) {
            let (g, again) = match step {
                Step::First(g) => (g, false),
                Step::Again(g) => (g, true),
                Step::Free(_) => continue,
            };
            let op = graph.rows_of(g).find(|r| r.event.is_access()).map_or(Op::None, |r| r.op);
            let op = if let (true, Op::First(k)) = (again, op) { Op::Again(k) } else { op };
            for r in graph.references(g) {
                if r.writes && r.is_managed() && there[r.block] == 0 {
                    there[r.block] = 1;
                    writer.event(Event::Malloc, r.block, graph.size[r.block], op);
                }
                left_out[r.block] = u32::from(again && r.updated);
            }
            for r in graph.rows_of(g) {
                let stays = match (r.event, graph.owner(r.block)) {
                    (Event::Malloc | Event::Free, Owner::Managed) => false,
                    (Event::Malloc | Event::Free, Owner::Recorded) => !again,
                    (Event::Malloc | Event::Free, Owner::Local) => true,
                    _ => left_out[r.block] == 0,
                };
                if stays && again {
                    let op = if r.op == Op::None { Op::None } else { op };
                    writer.event(r.event, r.block, r.bytes, op);
                } else if stays {
                    writer.push(r);
                }
            }
            let mut next = freed[i][0];
            while next > 0 {
                if let Some(Step::Free(block)) = self.best.step(next - 1) {
                    there[block] = 0;
                    writer.event(Event::Free, block, 0, Op::None);
                }
                next = freed[next - 1][1];
            }
        }
        writer.end()
    }

    /// By step of the best script: 1 + the first of the frees that come right after it, and 1 + the one after a free.
    fn frees<'s>(&self, scratch: &mut Workspace<'s>) -> Table<'s, [u32; 2]> {
        let graph = self.graph;
        let mut freed = scratch.index_records::<2>(self.best.capacity());
        // 1 + the step that touched each block last.
        let mut touched = scratch.indices(graph.size.len());
        for (i, step) in (0u32..).zip(self.best.steps()) {
            match step {
                Step::First(g) | Step::Again(g) => graph.references(g).for_each(|r| touched[r.block] = i + 1),
                Step::Free(block) => {
                    let after = touched[block].saturating_sub(1);
                    freed[i][1] = freed[after][0];
                    freed[after][0] = i + 1;
                }
            }
        }
        freed
    }
}
