//! Exact search where the output of an operator may share bytes with an input that is not used after the operator.
//!
//! Problem: is there a placement within a capacity? Of two blocks that are alive together, one begins at least a
//! distance above the other, and this distance depends on which of them is lower. The search for placements without
//! overlaps, [`search`](crate::place::search), cannot be used: for it, the distance is always the size of the lower
//! block, and the blocks alive at a step take the sum of their sizes.
//!
//! Steps:
//! 1. Only placements are looked at in which every block lies at address 0, on another block, or at its pin. A block
//!    that is not placed yet is *open*. Its *least* offset is the lowest that it can still have. It is *lifted* if it
//!    can lie there only on an open block, and not on a placed one.
//! 2. Each node of the search tree decides about one block b: one that no open block can be below while b is at its
//!    least offset. The node has two branches. In the first, b lies at its least offset, and all open blocks that are
//!    alive with it are above. In the second, b lies on an open block; its least offset becomes the lowest at which it
//!    can lie on one. There may be no such block b if three or more blocks of equal lifetimes form a ring, in which
//!    each is an output that may begin where the next one, its input, begins. Then the try of the present capacity is
//!    given up.
//! 3. Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at one step.
//!    In each section, all open blocks have to fit above the offset of the lowest of them. They take the sum of their
//!    sizes, less the bytes that overlaps may spare. A block that, at its least offset, does not leave this room below
//!    the capacity cannot be the lowest, and is above one that can. If one of two blocks cannot be the lower one, the
//!    other is.
//! 4. The *slack* of a section is the number of bytes by which the lowest of the least offsets there could rise, with
//!    room left for all open blocks. The next block comes from the section in which 1 + the slack, divided by 1 + the
//!    number of nodes that failed there, is least. The block is the one with the lowest of the least offsets; of equals
//!    the largest. If an open block can lie below the block found, the lower one is taken instead, and so on, down to a
//!    block that no open block can be below.
//!
//! To find the least peak, capacities are tried in rounds: the lower bound, half way from there to the peak of the best
//! plan so far, and 1 byte below that peak. Each round has twice the nodes of the round before. The rounds end when
//! lower bound and peak meet. If the constraints have a capacity, only that one is tried. The number of nodes that
//! failed in each section is kept throughout.
//!
//! Cost: O(n) for each look at what a block can lie on, O(alive²) for each section that has changed. Scratch: n²/64
//! words for who is alive where, and 64 n entries for the changes that the search can take back; the try of a capacity
//! that needs more is given up.

use core::num::NonZeroU64;

use super::pairs::Pairs;
use crate::place::Sweep;
use crate::place::solver::{Options, Solver, Summary, Watch};
use crate::place::support::{align_up, copy, gcd};
use crate::table::{Table, at, count};
use crate::workspace::workspace;
use crate::{Constraints, Error, Workspace, WorkspaceLen};

pub(super) const MOST_BLOCKS: usize = 1024;
const FIRST: u64 = 256;
const SECTIONS_PER_NODE: u64 = 2;
const AT_ONCE: u32 = 16;
/// The `pin` of a block that is not pinned.
const NO_PIN: u64 = u64::MAX;
const TRAIL: usize = 64;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let n = if n <= MOST_BLOCKS { n } else { 0 };
    Search::workspace(n).and(Sweep::workspace(n))
}

struct Conflict;

type Outcome = Result<(), Conflict>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Found,
    Infeasible,
    Limit,
    Stopped,
}

pub(super) fn improve(
    pairs: &Pairs<'_>,
    options: &Options,
    best: &mut Summary,
    offsets: &mut [u64],
    mut scratch: Workspace<'_>,
    watch: Watch<'_>,
) -> Result<(), Error> {
    if pairs.blocks.len() > MOST_BLOCKS || !pairs.complete {
        return Ok(());
    }
    let Constraints { alignment, capacity } = options.constraints;
    let mut search = Search::new(pairs, alignment, &mut scratch.reborrow())?;
    let looks = options.nodes.saturating_mul(SECTIONS_PER_NODE);
    let (mut limit, mut part) = (FIRST, 0u32);
    while best.peak > best.lower_bound.max(capacity.unwrap_or(0)) && search.looks < looks {
        let tried = match (capacity, part) {
            (Some(capacity), _) => capacity,
            (None, 0) => best.lower_bound,
            (None, 1) => best.lower_bound + (best.peak - 1 - best.lower_bound) / 2,
            (None, _) => best.peak - 1,
        };
        if tried < best.lower_bound {
            break;
        }
        let end = search.run(tried, limit, looks, &mut || watch(best).is_break());
        match end {
            End::Found => {
                best.peak = search.peak();
                best.solver = Solver::Search;
                copy(search.least.first(search.n), offsets);
            }
            End::Infeasible => best.lower_bound = best.peak.min(search.next(tried)),
            End::Limit => {
                part = (part + 1) % 3;
                limit = if part == 0 { limit.saturating_mul(2) } else { limit };
            }
            End::Stopped => break,
        }
    }
    best.nodes = search.nodes;
    Ok(())
}

workspace! {
    struct Search<'a>(n; pairs: &'a Pairs<'a>) {
        tables {
            low: u32[n],
            high: u32[n],
            size: u64[n],
            alignment: u64[n],
            pin: u64[n],
            /// By block, in bytes; its offset once it is placed.
            least: u64[n],
            /// The blocks that at `least` lie on an open block, and on no placed one.
            lifted: u64[n.div_ceil(64)],
            open: u64[n.div_ceil(64)],
            alive: u64[n * n.div_ceil(64)],
            dirty: u64[n.div_ceil(64)],
            weight: u64[n],
            /// By section: the open block of least offset; `u32::MAX` if none.
            lowest: u32[n],
            slack: u64[n],
            stale: u64[n.div_ceil(64)],
            trail: u64[TRAIL * n],
            /// By change: twice the block, plus 1 if it was in `lifted`.
            trail_of: u32[TRAIL * n],
            placed: u32[n],
            /// By depth: the length of `trail` before the block was placed.
            marks: u32[n],
        }
        state {
            pairs: &'a Pairs<'a> = pairs,
            n: u32 = count(pairs.blocks),
            sections: u32 = 0,
            row: u32 = u32::try_from(n.div_ceil(64)).unwrap_or(0),
            capacity: u64 = 0,
            /// In bytes; it divides all offsets and all ends.
            unit: NonZeroU64 = NonZeroU64::MIN,
            mark: u32 = 0,
            full: bool = false,
            depth: u32 = 0,
            nodes: u64 = 0,
            looks: u64 = 0,
        }
    }
}

impl<'a> Search<'a> {
    fn new(pairs: &'a Pairs<'a>, alignment: u64, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let mut search = Self::lend(pairs.blocks.len(), pairs, scratch);
        let sweep = Sweep::new(pairs.blocks, scratch.reborrow())?;
        search.sections = sweep.clique_ranges(&mut search.low, &mut search.high);
        search.load(alignment);
        Ok(search)
    }

    fn load(&mut self, alignment: u64) {
        let mut unit = 0;
        for b in 0..self.n {
            let block = at(self.pairs.blocks, b);
            self.size[b] = block.size;
            self.alignment[b] = block.alignment.max(alignment);
            self.pin[b] = block.pin.unwrap_or(NO_PIN);
            let aligned = if self.alignment[b] > 1 { self.alignment[b] } else { 0 };
            unit = [block.size, aligned, block.pin.unwrap_or(0)].into_iter().fold(unit, gcd);
            unit = self.pairs.of(b).map(|(_, distance)| distance).fold(unit, gcd);
            for s in self.low[b]..self.high[b] {
                self.alive[s * self.row + b / 64] |= 1 << (b % 64);
            }
        }
        self.unit = NonZeroU64::new(unit).unwrap_or(NonZeroU64::MIN);
    }

    fn next(&self, capacity: u64) -> u64 {
        (capacity / self.unit + 1) * self.unit.get()
    }

    fn peak(&self) -> u64 {
        (0..self.n).map(|b| self.least[b] + self.size[b]).max().unwrap_or(0)
    }

    fn run(&mut self, capacity: u64, nodes: u64, looks: u64, stopped: &mut impl FnMut() -> bool) -> End {
        if self.reset(capacity).is_err() {
            return End::Infeasible;
        }
        let last = self.nodes.saturating_add(nodes);
        loop {
            if self.full || self.nodes >= last || self.looks >= looks {
                return End::Limit;
            }
            self.nodes += 1;
            self.looks += u64::from(self.sections / AT_ONCE);
            if self.nodes.is_multiple_of(256) && stopped() {
                return End::Stopped;
            }
            let Some(b) = self.choose() else { return End::Found };
            self.placed[self.depth] = b;
            self.marks[self.depth] = self.mark;
            self.depth += 1;
            let mut done = self.place(b);
            while done.is_err() && !self.full {
                let Some(b) = self.back() else { return End::Infeasible };
                done = self.refuse(b);
            }
        }
    }

    fn reset(&mut self, capacity: u64) -> Outcome {
        self.capacity = capacity;
        (self.mark, self.depth, self.full) = (0, 0, false);
        self.open.fill(0);
        self.lifted.fill(0);
        self.dirty.fill(0);
        for b in 0..self.n {
            self.open[b / 64] |= 1 << (b % 64);
            self.least[b] = if self.pin[b] == NO_PIN { 0 } else { self.pin[b] };
            if self.latest(b).is_none_or(|latest| latest < self.least[b]) {
                return Err(Conflict);
            }
            self.soil(b);
        }
        self.propagate()?;
        // The changes up to here follow from the capacity alone: they are never taken back.
        self.mark = 0;
        Ok(())
    }

    fn latest(&self, b: u32) -> Option<u64> {
        if self.pin[b] != NO_PIN {
            return (self.pin[b] + self.size[b] <= self.capacity).then_some(self.pin[b]);
        }
        Some(self.capacity.checked_sub(self.size[b])? & !(self.alignment[b] - 1))
    }

    fn collide(&self, a: u32, b: u32) -> bool {
        self.low[a] < self.high[b] && self.low[b] < self.high[a]
    }

    fn soil(&mut self, b: u32) {
        for s in self.low[b]..self.high[b] {
            self.dirty[s / 64] |= 1 << (s % 64);
            self.stale[s / 64] |= 1 << (s % 64);
        }
    }

    fn is_lifted(&self, b: u32) -> bool {
        self.lifted[b / 64] >> (b % 64) & 1 == 1
    }

    fn save(&mut self, b: u32) {
        if usize::try_from(self.mark).is_ok_and(|mark| mark >= self.trail.len()) {
            self.full = true;
            return;
        }
        self.trail[self.mark] = self.least[b];
        self.trail_of[self.mark] = b << 1 | u32::from(self.is_lifted(b));
        self.mark += 1;
    }

    fn set_lifted(&mut self, b: u32, lifted: bool) {
        let word = &mut self.lifted[b / 64];
        *word = *word & !(1 << (b % 64)) | u64::from(lifted) << (b % 64);
    }

    fn raise(&mut self, b: u32, v: u64, lifted: bool) -> Outcome {
        if self.latest(b).is_none_or(|latest| v > latest) {
            return Err(Conflict);
        }
        self.save(b);
        self.least[b] = v;
        self.set_lifted(b, lifted);
        self.soil(b);
        Ok(())
    }

    fn on(&self, lower: u32, upper: u32) -> u64 {
        align_up(self.least[lower] + self.pairs.apart(lower, upper), self.alignment[upper])
    }

    fn support(&self, b: u32) -> u64 {
        let mut least = u64::MAX;
        for c in bits(&self.open, self.row).filter(|&c| c != b && self.collide(b, c)) {
            least = least.min(self.on(c, b));
        }
        least
    }

    fn place(&mut self, b: u32) -> Outcome {
        self.open[b / 64] &= !(1 << (b % 64));
        self.soil(b);
        for c in 0..self.n {
            let beside = self.open[c / 64] >> (c % 64) & 1 == 1 && self.collide(b, c);
            if !beside {
                continue;
            }
            let v = self.on(b, c);
            if v > self.least[c] {
                self.raise(c, v, false)?;
            } else if v == self.least[c] && self.is_lifted(c) {
                self.save(c);
                self.set_lifted(c, false);
            }
        }
        self.propagate()
    }

    fn refuse(&mut self, b: u32) -> Outcome {
        let v = self.support(b);
        if self.pin[b] != NO_PIN || v <= self.least[b] {
            return Err(Conflict);
        }
        self.raise(b, v, true)?;
        self.propagate()
    }

    fn back(&mut self) -> Option<u32> {
        self.depth = self.depth.checked_sub(1)?;
        let (b, mark) = (self.placed[self.depth], self.marks[self.depth]);
        while self.mark > mark {
            self.mark -= 1;
            let of = self.trail_of[self.mark];
            self.least[of >> 1] = self.trail[self.mark];
            self.set_lifted(of >> 1, of & 1 == 1);
            self.soil(of >> 1);
        }
        self.open[b / 64] |= 1 << (b % 64);
        self.dirty.fill(0);
        self.soil(b);
        Some(b)
    }

    fn propagate(&mut self) -> Outcome {
        loop {
            for s in 0..self.sections {
                if self.dirty[s / 64] >> (s % 64) & 1 == 1 {
                    self.dirty[s / 64] &= !(1 << (s % 64));
                    if self.section(s).is_err() {
                        self.weight[s] += 1;
                        return Err(Conflict);
                    }
                }
            }
            let mut moved = false;
            for w in 0..self.row {
                for bit in ones(self.open[w] & self.lifted[w]) {
                    let b = w * 64 + bit;
                    self.looks += 1 + u64::from(self.n / AT_ONCE);
                    let v = self.support(b);
                    if v > self.least[b] {
                        self.raise(b, v, true)?;
                        moved = true;
                    }
                }
            }
            if !moved && bits(&self.dirty, self.row).next().is_none() {
                return Ok(());
            }
        }
    }

    fn members(&self, s: u32) -> impl Iterator<Item = u32> + Clone {
        let base = s * self.row;
        (0..self.row).flat_map(move |w| ones(self.alive[base + w] & self.open[w]).map(move |bit| w * 64 + bit))
    }

    fn room(&self, s: u32) -> Option<u64> {
        let is_member = |b: u32| (self.alive[s * self.row + b / 64] & self.open[b / 64]) >> (b % 64) & 1 == 1;
        let (mut bytes, mut spared) = (0, 0);
        for b in self.members(s) {
            bytes += self.size[b];
            spared += self.pairs.spared(b, is_member);
        }
        self.capacity.checked_sub(bytes - spared)
    }

    fn section(&mut self, s: u32) -> Outcome {
        self.looks += 1 + u64::from(self.n / (4 * AT_ONCE));
        let room = self.room(s).ok_or(Conflict)?;
        if self.members(s).next().is_some() && self.members(s).all(|b| self.least[b] > room) {
            return Err(Conflict);
        }
        for w in 0..self.row {
            for bit in ones(self.alive[s * self.row + w] & self.open[w]) {
                let b = w * 64 + bit;
                let v = self.least_in(s, b, room);
                if v > self.least[b] {
                    self.raise(b, v, true)?;
                }
            }
        }
        Ok(())
    }

    fn least_in(&self, s: u32, b: u32, room: u64) -> u64 {
        let others = self.members(s).filter(|&c| c != b);
        let mut v = 0;
        if self.least[b] > room {
            v = others.clone().filter(|&c| self.least[c] <= room).map(|c| self.on(c, b)).min().unwrap_or(0);
        }
        for c in others {
            // Where b cannot be below c, it is above.
            if self.latest(c).is_none_or(|latest| self.on(b, c) > latest) {
                v = v.max(self.on(c, b));
            }
        }
        v
    }

    /// The section of least (slack + 1) / (failures + 1); there the lowest block that no other can lie below.
    fn choose(&mut self) -> Option<u32> {
        let mut chosen: Option<(u32, u64, u32)> = None;
        for s in 0..self.sections {
            if self.stale[s / 64] >> (s % 64) & 1 == 1 {
                self.stale[s / 64] &= !(1 << (s % 64));
                self.looks += 1;
                let lowest = self.members(s).min_by_key(|&b| (self.least[b], !self.size[b]));
                let floor = lowest.map_or(0, |b| self.least[b]);
                self.slack[s] = self.room(s).unwrap_or(0).saturating_sub(floor);
                self.lowest[s] = lowest.unwrap_or(u32::MAX);
            }
            let (b, slack) = (self.lowest[s], self.slack[s]);
            if b == u32::MAX {
                continue;
            }
            let weigh = |slack: u64, s: u32| u128::from(slack + 1) * u128::from(1 + self.weight[s]);
            if chosen.is_none_or(|(_, other, t)| weigh(slack, t) < weigh(other, s)) {
                chosen = Some((b, slack, s));
            }
        }
        let mut b = chosen?.0;
        // Each block has a lower least offset than the block before it; or the same one, if it is an output that may
        // begin where the block before it, its input, begins. So no block comes twice, except in a ring (see below).
        for _ in 0..self.n {
            let below = |&c: &u32| c != b && self.collide(b, c) && self.on(c, b) <= self.least[b];
            let Some(lower) = bits(&self.open, self.row).filter(below).min_by_key(|&c| self.least[c]) else {
                return Some(b);
            };
            b = lower;
        }
        // This is reached only if three or more blocks of equal lifetimes form a ring: each is an output that may begin
        // where the next one begins.
        self.full = true;
        Some(b)
    }
}

fn bits(set: &Table<'_, u64>, words: u32) -> impl Iterator<Item = u32> {
    (0..words).flat_map(move |w| ones(set[w]).map(move |bit| w * 64 + bit))
}

fn ones(mut word: u64) -> impl Iterator<Item = u32> + Clone {
    core::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(bit)
    })
}
