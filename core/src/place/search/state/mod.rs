//! The state of the search at a node of its tree: which blocks are placed, where each of the others can still lie, and
//! how to take decisions back. Sizes and offsets are counted in units of `Search::unit` bytes, a number that divides
//! all sizes. Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at
//! one step. A bit set consists of 64-bit words: i is a member if bit i mod 64 of word ⌊i/64⌋ is set.

mod decide;
mod propagate;

use core::ops::Range;

use crate::place::technique::{Technique, Techniques};
use crate::workspace::workspace;
use crate::{Workspace, sort};

pub(super) const NONE: u32 = u32::MAX;

// The fields of the record of a section of time. Open blocks are those that are not placed yet.
/// In units of `Search::unit` bytes.
pub(super) const REST: usize = 0;
/// `u64::MAX` if all blocks there are placed.
pub(super) const FLOOR: usize = 1;
/// The lowest end that an open block there can have; `u64::MAX` if none.
const END: usize = 2;
/// The second lowest such end; `u64::MAX` if fewer than two are open.
const SECOND: usize = 3;
/// The open block of the lowest end; [`NONE`] if none.
const ENDER: usize = 4;
/// How many open blocks can lie at the [`FLOOR`].
pub(super) const CHOICES: usize = 5;
/// The lowest end of those that can be the lowest: the others fit above them. `u64::MAX` if none can.
const NEXT: usize = 6;
/// The lowest offset of those that cannot be the lowest; `u64::MAX` if there are none.
const BLOCKED: usize = 7;
pub(super) type Section = [u64; 8];

/// No limit: no decision fails, so no changes are recorded.
pub(super) const UNBOUNDED: u64 = u64::MAX;

#[derive(Clone, Copy, Default)]
pub(super) struct Item {
    /// The first section of time in which the block is alive.
    pub low: u32,
    /// One past the last section of time in which the block is alive.
    pub high: u32,
    /// The size of the block, in units of `Search::unit` bytes.
    pub size: u64,
    /// The offset of the block is a multiple of this, in units of `Search::unit` bytes; at least 1.
    pub alignment: u64,
    /// The offset that the block must have, in units of `Search::unit` bytes; `None` if it is not pinned.
    pub pin: Option<u64>,
}

pub(super) struct Conflict;

pub(super) type Outcome = Result<(), Conflict>;

workspace! {
    /// Blocks are numbered by first section, then last, then size, the largest first.
    pub(super) struct State<'a>(n; sections: u32, techniques: Techniques) {
        tables {
            // Blocks.
            /// By block: the number of the first section of time in which it is alive.
            pub low: u32[n],
            /// By block: one past the number of the last section of time in which it is alive.
            pub high: u32[n],
            /// By block: its size, in units of `Search::unit` bytes.
            pub size: u64[n],
            /// By block: its alignment in units, minus 1; these bits are 0 in its offset.
            mask: u64[n],
            pin: u64[n],
            /// By block: 1 if it is like the block before it, and so has to lie above that one.
            twin: u32[n],
            pins: u32[n],
            /// By block: an offset and the block's end there, in units of `Search::unit` bytes. For a placed block, the
            /// offset is where it lies; for any other, the least offset that it can still have.
            pub span: [u64; 2][n],
            /// The open blocks that can lie at their least offset only on another open block.
            lifted: u64[n.div_ceil(64)],
            open: u64[n.div_ceil(64)],
            /// By block: its place in the order in which blocks are tried; the lowest is tried first.
            pub rank: u32[n],
            /// By block: the highest load of a section of time in which it is alive, in units of `Search::unit` bytes. The
            /// load is the size of all blocks alive there, the block itself included.
            pub load: u64[n],
            aside: u32[n],

            // Sections.
            alive: u64[n * n.div_ceil(64)],
            /// By section of time: the number of the first block that begins in it or later. Blocks are numbered in the
            /// order in which they begin.
            pub first: u32[n + 1],
            /// By section: the first word that is not 0 in `alive`.
            begin: u32[n],
            /// By section of time: its record, eight numbers about its blocks that are not placed yet. [`REST`] and the
            /// constants after it are the indices of these numbers.
            pub section: Section[n],
            /// By section of time: how many nodes of the search tree have failed because of it, less what
            /// [`State::fade`] has taken off. The next block is chosen where many have failed.
            pub weight: u64[n],
            /// By section of time: how many of the blocks that are not placed yet are alive both in it and in the next one.
            pub crossing: u32[n],
            dirty: u64[n.div_ceil(64)],
            moved: u64[n.div_ceil(64)],
            /// By section: the lowest end as [`State::lift`] last saw it, so that it need not look at all blocks again.
            settled: u64[n],

            block_trail: u64[TRAIL * n],
            /// By change: the block; the highest bit is set if it was in `lifted`.
            block_trail_of: u32[TRAIL * n],
            section_trail: Section[TRAIL * n],
            section_trail_of: u32[TRAIL * n],
        }
        state {
            pub n: u32 = number(n),
            pub sections: u32 = sections,
            row: u32 = number(n.div_ceil(64)),
            /// The capacity, above which no block may end, in units of `Search::unit` bytes.
            pub capacity: u64 = 0,
            pub techniques: Techniques = techniques,
            pin_count: u32 = 0,
            pub open_count: u32 = 0,
            /// All words of `dirty` before it are 0.
            dirty_from: u32 = 0,
            /// All words of `moved` before it are 0.
            moved_from: u32 = 0,
            /// How many changes of blocks are recorded in `block_trail`, to be taken back later.
            pub block_mark: u32 = 0,
            /// How many changes of sections' records are recorded in `section_trail`, to be taken back later.
            pub section_mark: u32 = 0,
            trail_len: u32 = number(TRAIL * n),
            /// Whether `block_trail` or `section_trail` had no room for a change: this run of the search is given up.
            pub full: bool = false,
            /// Whether a block was raised since [`State::propagate`] last looked.
            raised: bool = false,
            /// How many blocks and sections of time were looked at since the search began: a measure of the work, which is
            /// limited.
            pub looked: u64 = 0,
        }
    }
}

/// Changes that can be taken back, for each block.
const TRAIL: usize = 128;

impl<'a> State<'a> {
    pub(super) fn new(
        n: usize,
        sections: u32,
        techniques: Techniques,
        item: impl Fn(u32) -> Item,
        scratch: &mut Workspace<'a>,
    ) -> Self {
        let mut state = Self::lend(n, sections, techniques, scratch);
        state.load(item);
        state
    }

    fn load(&mut self, item: impl Fn(u32) -> Item) {
        let mut next_section = 0;
        let mut before = None;
        for b in 0..self.n {
            let i = item(b);
            self.low[b] = i.low;
            self.high[b] = i.high;
            self.size[b] = i.size;
            self.mask[b] = i.alignment - 1;
            self.pin[b] = i.pin.unwrap_or(u64::MAX);
            if i.pin.is_some() {
                self.pins[self.pin_count] = b;
                self.pin_count += 1;
            }
            let kind = (i.low, i.high, i.size, i.alignment);
            if i.pin.is_none() && before == Some(kind) && self.techniques.has(Technique::Twins) {
                self.twin[b] = 1;
            }
            before = i.pin.is_none().then_some(kind);
            while next_section <= i.low {
                self.first[next_section] = b;
                next_section += 1;
            }
            for s in i.low..i.high {
                if self.section[s][REST] == 0 {
                    self.begin[s] = b / 64;
                }
                self.alive[s * self.row + b / 64] |= 1 << (b % 64);
                self.section[s][REST] += i.size;
            }
        }
        while next_section <= self.sections {
            self.first[next_section] = self.n;
            next_section += 1;
        }
        for b in 0..self.n {
            for s in self.low[b]..self.high[b] {
                self.load[b] = self.load[b].max(self.section[s][REST]);
            }
        }
        let pin = &self.pin;
        sort::by_key(&mut self.pins, self.pin_count, &mut self.aside, |b| pin[b]);
    }

    pub(super) fn reset(&mut self, capacity: u64) -> Outcome {
        self.capacity = capacity;
        self.block_mark = 0;
        self.section_mark = 0;
        self.full = false;
        self.open_count = self.n;
        self.open.fill(0);
        self.lifted.fill(0);
        self.crossing.fill(0);
        self.section.fill([0, 0, 0, 0, NONE.into(), 0, 0, 0]);
        self.dirty.fill(0);
        self.moved.fill(0);
        self.settled.fill(0);
        for b in 0..self.n {
            self.open[b / 64] |= 1 << (b % 64);
            self.looked += u64::from(self.high[b] - self.low[b]);
            for s in self.low[b]..self.high[b] {
                self.section[s][REST] += self.size[b];
                self.crossing[s] += u32::from(s + 1 < self.high[b]);
            }
            let pinned = self.pin[b] != u64::MAX;
            let from = if pinned {
                self.pin[b]
            } else {
                self.above_pins(b, if self.twin[b] == 1 { self.span[b - 1][1] } else { 0 })
            };
            if self.size[b] > capacity || from > capacity - self.size[b] {
                return Err(Conflict);
            }
            self.span[b] = [from, from + self.size[b]];
            self.set_lifted(b, !pinned && from > 0);
        }
        for s in 0..self.sections {
            if self.section[s][REST] > capacity {
                return Err(Conflict);
            }
            self.soil(s);
        }
        let done = self.propagate();
        // What holds for the root is never taken back.
        self.block_mark = 0;
        self.section_mark = 0;
        done
    }

    /// By a quarter, rounded down, so that late failures count more than early ones.
    pub(super) fn fade(&mut self) {
        for s in 0..self.sections {
            self.weight[s] -= self.weight[s] / 4;
        }
    }

    fn fail_in(&mut self, s: u32) -> Outcome {
        self.weight[s] += u64::from(self.techniques.has(Technique::Failures));
        Err(Conflict)
    }

    fn is_open(&self, b: u32) -> bool {
        self.open[b / 64] >> (b % 64) & 1 == 1
    }

    #[inline]
    fn soil(&mut self, s: u32) {
        self.dirty[s / 64] |= 1 << (s % 64);
        self.dirty_from = self.dirty_from.min(s / 64);
    }

    #[inline]
    fn above_pins(&self, b: u32, v: u64) -> u64 {
        let mask = self.mask[b];
        let mut v = align(v, mask);
        for i in 0..self.pin_count {
            let p = self.pins[i];
            let [low, high] = [self.pin[p], self.pin[p] + self.size[p]];
            if low >= v.saturating_add(self.size[b]) {
                break;
            }
            if v < high && self.low[p] < self.high[b] && self.low[b] < self.high[p] {
                v = align(high, mask);
            }
        }
        v
    }

    #[inline]
    pub(super) fn each_word(&self, part: (u32, u32), mut f: impl FnMut(u64)) {
        let (from, to) = (self.first[part.0], self.first[part.1]);
        for w in from / 64..to.div_ceil(64) {
            let mut bits = self.open[w] & within(w, from, to);
            f(bits);
            while bits != 0 {
                let b = w * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                f(self.span[b][0] << 1 | u64::from(self.is_lifted(b)));
            }
        }
    }

    #[inline]
    fn words(&self, s: u32) -> Range<u32> {
        self.begin[s]..self.first[s + 1].div_ceil(64)
    }

    #[inline]
    pub(super) fn for_alive(&self, s: u32, mut f: impl FnMut(u32)) {
        let base = s * self.row;
        for w in self.words(s) {
            let mut bits = self.alive[base + w] & self.open[w];
            while bits != 0 {
                f(w * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }

    fn raise(&mut self, b: u32, v: u64) -> Outcome {
        self.set_least(b, v, true)?;
        // Twins lie one above the other.
        let mut next = b + 1;
        while next < self.n && self.twin[next] == 1 {
            let v = self.span[next - 1][1];
            if self.span[next][0] >= v {
                break;
            }
            self.set_least(next, v, true)?;
            next += 1;
        }
        Ok(())
    }

    fn set_least(&mut self, b: u32, v: u64, lifted: bool) -> Outcome {
        self.raised = true;
        if v > self.capacity {
            return Err(Conflict);
        }
        let v = self.above_pins(b, v);
        let [was, was_end] = self.span[b];
        let size = was_end - was;
        if v > self.capacity - size || self.pin[b] < v {
            return Err(Conflict);
        }
        self.save_block(b);
        self.span[b] = [v, v + size];
        self.set_lifted(b, lifted);
        let (low, high) = (self.low[b], self.high[b]);
        for w in low / 64..high.div_ceil(64) {
            let mut clean = within(w, low, high) & !self.dirty[w];
            while clean != 0 {
                let s = w * 64 + clean.trailing_zeros();
                clean &= clean - 1;
                let section = &self.section[s];
                let room = self.capacity - section[REST];
                if section[FLOOR] == was
                    || section[ENDER] == u64::from(b)
                    || section[SECOND] == was_end
                    || (was <= room && v > room)
                {
                    self.soil(s);
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn save_block(&mut self, b: u32) {
        if self.capacity == UNBOUNDED {
            return;
        }
        if self.block_mark >= self.trail_len {
            self.full = true;
            return;
        }
        self.block_trail[self.block_mark] = self.span[b][0];
        self.block_trail_of[self.block_mark] = b | u32::from(self.is_lifted(b)) << 31;
        self.block_mark += 1;
    }

    #[inline]
    fn is_lifted(&self, b: u32) -> bool {
        self.lifted[b / 64] >> (b % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn set_lifted(&mut self, b: u32, lifted: bool) {
        let word = &mut self.lifted[b / 64];
        *word = *word & !(1 << (b % 64)) | u64::from(lifted) << (b % 64);
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// `u64::MAX` if the multiple does not fit 64 bits.
#[inline]
fn align(v: u64, mask: u64) -> u64 {
    v.checked_add(mask).map_or(u64::MAX, |v| v & !mask)
}

#[inline]
fn within(w: u32, from: u32, to: u32) -> u64 {
    let below = |i: u32| 1u64.checked_shl(i.saturating_sub(w * 64)).map_or(u64::MAX, |bit| bit - 1);
    below(to) & !below(from)
}
