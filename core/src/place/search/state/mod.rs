//! The state of the search at a node of its tree: which blocks are placed, where each of the others can still lie, and
//! how to take decisions back. Sizes and offsets are counted in units of `Search::unit` bytes, a number that divides
//! all sizes. Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at
//! one step. A bit set consists of 64-bit words: i is a member if bit i mod 64 of word ⌊i/64⌋ is set.

mod decide;
mod propagate;

use core::ops::Range;

use super::technique::{Technique, Techniques};
use crate::heap::Heap;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen, sort};

/// Stands for no block, in place of a block's number.
pub(super) const NONE: u32 = u32::MAX;

// The fields of the record of a section of time. Open blocks are those that are not placed yet.
/// In the record of a section of time, at this index: the sum of the sizes of the blocks alive there and not placed
/// yet, in units of `Search::unit` bytes.
pub(super) const REST: usize = 0;
/// In the record of a section of time, at this index: the lowest offset that an unplaced block there can still have;
/// `u64::MAX` if all blocks there are placed.
pub(super) const FLOOR: usize = 1;
/// In the record of a section of time, at this index: the lowest end in memory that an unplaced block there can still
/// have, its least offset plus its size; `u64::MAX` if all blocks there are placed.
const END: usize = 2;
/// In the record of a section of time, at this index: the second lowest of the ends in memory that the unplaced blocks
/// there can still have. The end of a block is its least offset plus its size. It is `u64::MAX` if fewer than two
/// blocks there are unplaced.
const SECOND: usize = 3;
/// In the record of a section of time, at this index: the number of the unplaced block there whose least possible end
/// is the lowest; [`NONE`] if all blocks alive there are placed.
const ENDER: usize = 4;
/// In the record of a section of time, at this index: how many unplaced blocks there can still lie at the lowest offset
/// of all, the one at index [`FLOOR`].
pub(super) const CHOICES: usize = 5;
/// In the record of a section of time, at this index: the lowest end in memory, least offset plus size, of those blocks
/// there that can be the lowest unplaced one. A block can be the lowest if, between its least offset and the capacity,
/// there is room for all unplaced blocks there. It is `u64::MAX` if no block can be the lowest.
const NEXT: usize = 6;
/// In the record of a section of time, at this index: the lowest offset that a *blocked* block there can have. An
/// unplaced block is blocked if it cannot be the lowest: between its least offset and the capacity, not all unplaced
/// blocks there have room. It is `u64::MAX` if no block is blocked.
const BLOCKED: usize = 7;
pub(super) type Section = [u64; 8];

/// In instances of at most this number of blocks, the search finds edges: it sees that a block must lie below a set of
/// others (`State::find_edges`). Larger instances are rarely proved to have no placement, and edges would only make
/// their nodes slower. A window of time that is searched alone has at most this number of blocks too.
pub(super) const SMALL: usize = 64;

/// The capacity that stands for no limit. Without a limit no decision of the search fails, so none has to be taken
/// back, and no changes are recorded.
pub(super) const UNBOUNDED: u64 = u64::MAX;

/// A block as it is given to [`State::new`]. Blocks are given in the order of their numbers in the [`State`].
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

/// The error of a failed node of the search tree: no placement within the capacity can be reached from it.
pub(super) struct Conflict;

pub(super) type Outcome = Result<(), Conflict>;

/// The state of the search at one node of its tree: which blocks are placed, and where each of the others can still
/// lie. Blocks are numbered by the first section of time in which they are alive, then by the last, then by size, the
/// largest first.
pub(super) struct State<'a> {
    pub n: u32,
    pub sections: u32,
    /// How many 64-bit words the bit set of each section of time has in `alive`; each bit stands for a block.
    row: u32,
    /// The capacity, above which no block may end, in units of `Search::unit` bytes.
    pub capacity: u64,
    pub techniques: Techniques,

    // Blocks.
    /// By block: the number of the first section of time in which it is alive.
    pub low: Table<'a, u32>,
    /// By block: one past the number of the last section of time in which it is alive.
    pub high: Table<'a, u32>,
    /// By block: its size, in units of `Search::unit` bytes.
    pub size: Table<'a, u64>,
    /// By block: its alignment in units of `Search::unit` bytes, minus 1. The alignment is a power of two, so the bits
    /// that are set here are 0 in the block's offset.
    mask: Table<'a, u64>,
    /// By block: the offset that it must have, in units of `Search::unit` bytes; `u64::MAX` if it is not pinned.
    pin: Table<'a, u64>,
    /// By block: 1 if it is like the block with the number before it, so that the search has it lie above that block;
    /// else 0. Blocks are alike if they have the same lifetime, size and alignment and are not pinned. Without
    /// [`Technique::Twins`], 0 for all.
    twin: Table<'a, u32>,
    /// The pinned blocks, the one of lowest offset first.
    pins: Table<'a, u32>,
    pin_count: u32,
    /// Whether blocks may lie at any offset that is a multiple of `Search::unit` bytes: no block is pinned, and no
    /// alignment is above one unit.
    pub movable: bool,
    /// By block: an offset and the block's end there, in units of `Search::unit` bytes. For a placed block, the offset
    /// is where it lies; for any other, the least offset that it can still have.
    pub span: Table<'a, [u64; 2]>,
    /// Bit set: the unplaced blocks that can lie at their least offset only on another unplaced block, and not on a
    /// block that is placed already.
    lifted: Table<'a, u64>,
    /// Bit set: blocks that are not placed yet.
    open: Table<'a, u64>,
    pub open_count: u32,

    // Sections.
    /// By section of time: the bit set of the blocks that are alive in it.
    alive: Table<'a, u64>,
    /// By section of time: the number of the first block that begins in it or later. Blocks are numbered in the order
    /// in which they begin.
    pub first: Table<'a, u32>,
    /// By section of time: the index of the first word that is not 0 in its bit set in `alive`.
    begin: Table<'a, u32>,
    /// By section of time: its record, eight numbers about its blocks that are not placed yet. [`REST`] and the
    /// constants after it are the indices of these numbers.
    pub section: Table<'a, Section>,
    /// By section of time: how many nodes of the search tree have failed because of it, less what [`State::fade`] has
    /// taken off. The next block is chosen where many have failed.
    pub weight: Table<'a, u64>,
    /// By section of time: how many of the blocks that are not placed yet are alive both in it and in the next one.
    pub crossing: Table<'a, u32>,
    /// Bit set: sections of time whose records must be computed anew, as blocks there have changed.
    dirty: Table<'a, u64>,
    /// A search for a member of the bit set `dirty` begins at the word with this index: all words before it are 0.
    dirty_from: u32,
    /// Bit set: sections of time whose records have changed since [`State::lift`] last raised the blocks there.
    moved: Table<'a, u64>,
    /// A search for a member of the bit set `moved` begins at the word with this index: all words before it are 0.
    moved_from: u32,
    /// By section of time: the lowest end in memory that an unplaced block alive there could have when [`State::lift`]
    /// last looked at the section. Kept so that `lift` need not look at all blocks there again.
    settled: Table<'a, u64>,
    /// Bit set: sections of time for which [`State::settle`] has already found the lowest end that an unplaced block
    /// alive there can have. Used only while `settle` runs.
    reached: Table<'a, u64>,

    /// The changes of blocks that can be taken back, in the order in which they were made: for each, the block's least
    /// offset before the change.
    block_trail: Table<'a, u64>,
    /// By change in `block_trail`: the number of the block that it changed. The highest bit is set if the block was in
    /// the set `lifted` before the change.
    block_trail_of: Table<'a, u32>,
    /// How many changes of blocks are recorded in `block_trail`, to be taken back later.
    pub block_mark: u32,
    /// The changes of the records of sections of time that can be taken back, in the order in which they were made: for
    /// each, the record before the change. A record sums up the unplaced blocks of a section.
    section_trail: Table<'a, Section>,
    /// By change in `section_trail`: the section of time whose record was changed.
    section_trail_of: Table<'a, u32>,
    /// How many changes of sections' records are recorded in `section_trail`, to be taken back later.
    pub section_mark: u32,
    /// The most changes that can be recorded in `block_trail`, and in `section_trail`.
    trail_len: u32,
    /// Whether `block_trail` or `section_trail` had no room for a change: this run of the search is given up.
    pub full: bool,
    /// How many times a least offset was raised since [`State::propagate`] began, or since [`State::settle`] last
    /// ended. When there are more raises than blocks, `settle` is called, which does many at once.
    raises: u32,
    /// How many blocks and sections of time were looked at since the search began: a measure of the work, which is
    /// limited.
    pub looked: u64,
    heap: Heap<'a, u32>,
    /// By unplaced block: the lowest offset at which the block can lie, as [`State::settle`] works it out; `u64::MAX`
    /// if `settle` has not come to the block yet. Used only while `settle` runs.
    settling: Table<'a, u64>,
    /// The unplaced blocks of the section of time that [`State::find_edges`] looks at: the least offset and the size of
    /// each. The highest least offset comes first.
    jobs: Table<'a, [u64; 2]>,
    /// By entry of `jobs`: the number of the block that the entry describes.
    job_of: Table<'a, u32>,
    /// By block: its place in the order in which blocks are tried; the lowest is tried first.
    pub rank: Table<'a, u32>,
    /// By block: the highest load of a section of time in which it is alive, in units of `Search::unit` bytes. The load
    /// is the size of all blocks alive there, the block itself included.
    pub load: Table<'a, u64>,
}

pub(super) const fn trail_len(n: usize) -> usize {
    128 * n
}

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let row = n.div_ceil(64);
    let trail = trail_len(n);
    WorkspaceLen { words: 20 * n + 5 * row + n * row + 9 * trail, indices: 11 * n + 1 + 2 * trail }
}

impl<'a> State<'a> {
    /// Makes the state of a search that is to place the blocks `item(0)` to `item(n - 1)`, which must be sorted by
    /// first section of time, then by last section, then by size, the largest first.
    pub(super) fn new(
        n: usize,
        sections: u32,
        techniques: Techniques,
        item: impl Fn(u32) -> Item,
        scratch: &mut Workspace<'a>,
    ) -> Self {
        let row = n.div_ceil(64);
        let trail = trail_len(n);
        let m = n;
        let mut state = Self {
            n: number(n),
            sections,
            row: number(row),
            capacity: 0,
            techniques,
            low: scratch.indices(n),
            high: scratch.indices(n),
            size: scratch.words(n),
            mask: scratch.words(n),
            pin: scratch.words(n),
            twin: scratch.indices(n),
            pins: scratch.indices(n),
            pin_count: 0,
            movable: true,
            span: scratch.word_records(n),
            lifted: scratch.words(row),
            open: scratch.words(row),
            open_count: 0,
            alive: scratch.words(m * row),
            first: scratch.indices(m + 1),
            begin: scratch.indices(m),
            section: scratch.word_records(m),
            weight: scratch.words(m),
            crossing: scratch.indices(m),
            dirty: scratch.words(row),
            dirty_from: 0,
            moved: scratch.words(row),
            moved_from: 0,
            settled: scratch.words(n),
            reached: scratch.words(row),
            block_trail: scratch.words(trail),
            block_trail_of: scratch.indices(trail),
            block_mark: 0,
            section_trail: scratch.word_records(trail),
            section_trail_of: scratch.indices(trail),
            section_mark: 0,
            trail_len: number(trail),
            full: false,
            raises: 0,
            looked: 0,
            heap: Heap::lend(n, scratch),
            settling: scratch.words(n),
            jobs: scratch.word_records(n),
            job_of: scratch.indices(n),
            rank: scratch.indices(n),
            load: scratch.words(n),
        };
        let mut aside = scratch.indices(n);
        state.load(item, &mut aside);
        state
    }

    fn load(&mut self, item: impl Fn(u32) -> Item, aside: &mut Table<'_, u32>) {
        let mut next_section = 0;
        let mut before = None;
        for b in 0..self.n {
            let i = item(b);
            self.low[b] = i.low;
            self.high[b] = i.high;
            self.size[b] = i.size;
            self.mask[b] = i.alignment - 1;
            self.pin[b] = i.pin.unwrap_or(u64::MAX);
            self.movable &= i.alignment == 1 && i.pin.is_none();
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
        sort::by_key(&mut self.pins, self.pin_count, aside, |b| pin[b]);
    }

    /// Block `b` as [`State::new`] was given it: its sections of time, size, alignment and pin.
    pub(super) fn item(&self, b: u32) -> Item {
        Item {
            low: self.low[b],
            high: self.high[b],
            size: self.size[b],
            alignment: self.mask[b] + 1,
            pin: Some(self.pin[b]).filter(|&pin| pin != u64::MAX),
        }
    }

    /// Makes all blocks unplaced and sets a new capacity; the failed nodes that were counted in each section of time
    /// stay counted. `Err` if it follows at once that no placement is within the capacity.
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

    /// Lowers the weights of all sections (stretches of time) by a quarter, rounded down. A section's weight counts the
    /// failed nodes of the search tree that failed because of it; so late failures count more than early ones.
    pub(super) fn fade(&mut self) {
        for s in 0..self.sections {
            self.weight[s] -= self.weight[s] / 4;
        }
    }

    /// Counts a failed node of the search tree for `s`, the section of time because of which it has failed. Counts
    /// nothing without [`Technique::Failures`]. Always returns the failure as an `Err`.
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

    /// The least offset, `v` or higher, at which block `b` is aligned and shares no address with a pinned block that is
    /// alive with it.
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

    /// Calls `f` with each of the words that describe the unplaced blocks which begin in the sections `part.0..part.1`
    /// of time. The words say which blocks are unplaced; and for each of these its least offset, and whether it can lie
    /// at that offset only on another unplaced block. If two states give the same words, the unplaced blocks of the
    /// part can be placed in the same ways in both states.
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

    /// The indices of the words that may be other than 0 in the bit set of the blocks alive in section `s` of time.
    /// They are few, as blocks are numbered by their first section.
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

    /// Raises the least offset of block `b` to `v`, or higher where alignment or pinned blocks do not allow `v`. Notes
    /// that `b` can lie at this offset only on a block that is not placed yet. Blocks that are like `b` and must lie
    /// above it are raised too. `Err` if one of them cannot lie so high within the capacity, or is pinned lower.
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
        self.raises = self.raises.saturating_add(1);
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

/// The length of a table as a `u32`; `u32::MAX` if it does not fit. Only the lists of changes, of 128 entries for each
/// block, can be longer; then no more than `u32::MAX` of their entries are used.
fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The least multiple of `mask + 1` that is not below `v`; `u64::MAX` if it does not fit 64 bits.
#[inline]
fn align(v: u64, mask: u64) -> u64 {
    v.checked_add(mask).map_or(u64::MAX, |v| v & !mask)
}

/// Word number `w` of the bit set that has just the members `from..to`.
#[inline]
fn within(w: u32, from: u32, to: u32) -> u64 {
    let below = |i: u32| 1u64.checked_shl(i.saturating_sub(w * 64)).map_or(u64::MAX, |bit| bit - 1);
    below(to) & !below(from)
}
