//! Follows a plan: request number λ of an iteration gets the address that the plan has for it.
//!
//! Problem: requests and frees come in the order in which they came when the plan was made, or almost in it. Each
//! request is to be answered in a few nanoseconds, and the memory of a live block must never be handed out.
//!
//! Paper: Sekiyama et al. 2018, section 4: the requests of each iteration are numbered λ = 1, 2, … Request λ is served
//! at `base + x[λ]`, where `base` is the address of the arena and `x[λ]` the planned offset; a request larger than
//! planned is served elsewhere. The paper trusts that blocks are freed at the same points as in the recorded iteration.
//! Here the frees that come are compared with those of the plan.
//!
//! Why no live memory is handed out. The plan has a clock, which tells how far its requests and frees should have come:
//! it stands at the request that is expected next. A live block of the arena is *due* if the plan frees it after the
//! clock, and *overdue* if the plan has freed it already. A due block and the block of the next request are alive
//! together in the plan, so the verified plan gives them disjoint memory. Overdue blocks are in a list of at most 16,
//! and the memory for a request is compared with each of them; while all frees come in time the list is empty. If there
//! are more than 16, it is not known which they are, and no request is placed until an iteration begins with no live
//! block in the arena.
//!
//! Steps of a request: move the clock to this request, so that live blocks that the plan frees before it become
//! overdue; compare its memory with the overdue blocks; note the block in the entry of its address. The entries, one
//! for each address of the plan, are a hash table with linear probing that is filled when the plan is taken up. A free
//! finds its block there in O(1), whatever the order of frees. Nothing is stored in or beside the block itself, and
//! while the plan is followed no entry is inserted or removed.
//!
//! A request that does not fit the next request of the plan is searched for among eight of the plan's next requests
//! (`AHEAD`), by its exact size, rounded up to the alignment. If it is found, the planned requests before it are taken
//! to be missing. If not, it is an extra request, or larger than planned: it is served elsewhere, and the plan still
//! expects the same request as before. A request that is smaller than planned is served at the planned address, and one
//! smaller than a block that outlives the iteration is taken for that block. Served at the planned address, too, is a
//! request that comes early, and one before which a free is missing, unless an overdue block lies there.
//!
//! Ties: blocks that begin at the same step are requested in the order of the plan.
//!
//! Cost: O(1) for a request or a free, amortised over the iteration, and at most 16 comparisons more while blocks are
//! overdue. Memory: for each block four words for its request and its free, and four to eight words for the hash table.

use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::{Block, Error, VerifiedPlan, Workspace, WorkspaceLen, sort};

/// What a plan answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request is in the plan, at this offset from the start of the arena.
    Placed(u64),
    /// The plan expects the request, but has no place for its block, which outlives the iteration.
    Outside,
    /// The request is not what the plan expects, or its place is taken by a block that should have been freed before. A
    /// place counts as taken if so many such blocks are live that it is not known where they lie.
    Missed,
}

/// With more overdue blocks, nothing is placed until an iteration begins with an empty arena.
const OVERDUE: u32 = 16;

const AHEAD: u32 = 8;

/// An event of an iteration that has come as planned.
pub(super) enum Come {
    Malloc {
        bytes: u64,
    },
    /// `malloc` is the number of the block's malloc among the iteration's events, from 0.
    Free {
        bytes: u64,
        malloc: u32,
    },
}

/// A plan and how far it has been followed in the current iteration.
pub struct Replay<'a> {
    /// Placed: offset, bytes, slot (low) and frees before (high). Else: bytes, 0, next placed (low) and frees before
    /// (high). The entry after the last has no bytes, and all frees before it.
    requests: Table<'a, [u64; 3]>,
    /// Low half: the request whose block is freed; high half: its slot.
    frees: Table<'a, u64>,
    /// 1 + offset, 0 if unused; then 1 + request (0 if none is live), with the tag in the high half.
    slots: Table<'a, [u64; 2]>,
    mask: u32,
    alignment: u64,
    request_count: u32,
    free_count: u32,
    next: u32,
    freed: u32,
    /// A request after the last is the first of the next iteration, not a missed one.
    endless: bool,
    overdue: [u32; OVERDUE as usize],
    overdue_count: u32,
    followed: bool,
    missed: u32,
    ended: bool,
}

/// Length of the workspace that a [`Replay`], which answers requests from a plan, keeps. `blocks` is the most blocks
/// that an iteration requests, placed by the plan or not.
#[must_use]
pub const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 3 * (blocks + 1) + blocks + 2 * slots(blocks), indices: 0 }
}

/// Length of the workspace that [`Replay::follow`] needs for a plan of `blocks` blocks.
#[must_use]
pub const fn scratch(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 4 * blocks }
}

/// How many words [`Replay::save`] writes for a plan of as many requests and frees.
pub(super) const fn saved(requests: usize, frees: usize) -> usize {
    1 + 3 * (requests + 1) + frees
}

/// A power of two; at least half of the table stays empty.
const fn slots(blocks: usize) -> usize {
    (2 * blocks).next_power_of_two()
}

const fn pack(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

impl<'a> Replay<'a> {
    /// A replay that has no plan yet. `blocks` is the most blocks that an iteration of a plan may request, blocks
    /// without a place in the arena included.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if the memory is shorter than [`workspace`] says.
    ///
    /// ```
    /// use sublet_core::replay::{self, Answer, Replay};
    /// use sublet_core::{Block, Constraints, Workspace, verify};
    /// let blocks = [Block::new(0, 2, 64), Block::new(1, 4, 32), Block::new(3, 5, 64)];
    /// let (mut words, mut indices) = (vec![0; 64], vec![0; 64]);
    /// let plan = verify::verify(&blocks, &[0, 64, 0], &Constraints::NONE, Workspace::new(&mut words, &mut indices))?;
    ///
    /// let mut memory = vec![0; replay::workspace(3).words];
    /// let mut replay = Replay::new(3, Workspace::new(&mut memory, &mut []))?;
    /// replay.follow(&plan, &[], 1, 0, Workspace::new(&mut [], &mut indices))?;
    /// for _ in 0..2 {
    ///     assert_eq!(replay.malloc(64, 0), Answer::Placed(0));
    ///     assert_eq!(replay.malloc(32, 0), Answer::Placed(64));
    ///     replay.free(0)?;
    ///     assert_eq!(replay.malloc(64, 0), Answer::Placed(0));
    ///     replay.free(64)?;
    ///     replay.free(0)?;
    ///     assert!(replay.restart());
    /// }
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    pub fn new(blocks: usize, mut memory: Workspace<'a>) -> Result<Self, Error> {
        memory.check(workspace(blocks))?;
        let (mut requests, mut slots) =
            (memory.stale_word_records(blocks + 1), memory.stale_word_records(slots(blocks)));
        (requests[0], slots[0]) = ([0; 3], [0; 2]);
        Ok(Self {
            requests,
            frees: memory.stale_words(blocks),
            slots,
            mask: 0,
            alignment: 1,
            request_count: 0,
            free_count: 0,
            next: 0,
            freed: 0,
            endless: false,
            overdue: [0; OVERDUE as usize],
            overdue_count: 0,
            followed: true,
            missed: 0,
            ended: false,
        })
    }

    /// Takes up `plan`: requests that come from now on are answered from it. Blocks that an earlier plan placed are
    /// forgotten. The blocks of `plan` are those that an iteration both allocates and frees. `outside` are the blocks
    /// that an iteration allocates and does not free, sorted by the step at which they are requested: their requests
    /// are expected, but get no address. Sizes are rounded up to a multiple of `alignment`; all offsets must be
    /// multiples of it. The request that is expected next is the first one at step `phase` of the plan or later. O(n
    /// log n).
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if there are more requests than the replay has memory for, or the workspace is shorter
    /// than four indices for each block of the plan.
    pub fn follow(
        &mut self,
        plan: &VerifiedPlan<'_>,
        outside: &[Block],
        alignment: u64,
        phase: u32,
        mut scratch: Workspace<'_>,
    ) -> Result<(), Error> {
        let (blocks, offsets) = (plan.blocks(), plan.offsets());
        let (needed, got) = (blocks.len() + outside.len(), self.requests.len() - 1);
        if needed > got {
            return Err(Error::BufferTooSmall { buffer: Buffer::Events, needed, got });
        }
        scratch.check(self::scratch(blocks.len()))?;
        let n = count(blocks);
        let mut by_start = scratch.indices(blocks.len());
        let mut by_end = scratch.indices(blocks.len());
        let mut aside = scratch.indices(blocks.len());
        let mut number = scratch.indices(blocks.len());
        sort::identity(&mut by_start, n);
        sort::by_key(&mut by_start, n, &mut aside, |i| at(blocks, i).start.into());
        sort::identity(&mut by_end, n);
        sort::by_key(&mut by_end, n, &mut aside, |i| at(blocks, i).end.into());

        self.mask = u32::try_from(slots(blocks.len()) - 1).unwrap_or(0);
        self.slots.range_mut(0, self.mask + 1).fill([0; 2]);
        let (mut freed, mut request) = (0, 0);
        let mut waiting = outside.iter().peekable();
        self.next = 0;
        for i in 0..n {
            let block = by_start[i];
            let start = at(blocks, block).start;
            let mut freed_by = |step| {
                while freed < n && at(blocks, by_end[freed]).end <= step {
                    freed += 1;
                }
                freed
            };
            while let Some(o) = waiting.next_if(|o| o.start < start) {
                self.requests[request] = [rounded(o.size, alignment), 0, pack(0, freed_by(o.start))];
                self.next += u32::from(o.start < phase);
                request += 1;
            }
            let freed = freed_by(start);
            let offset = at(offsets, block);
            let slot = self.enter(offset);
            self.requests[request] = [offset, rounded(at(blocks, block).size, alignment), pack(slot, freed)];
            self.next += u32::from(start < phase);
            number[block] = request;
            request += 1;
        }
        for o in waiting {
            while freed < n && at(blocks, by_end[freed]).end <= o.start {
                freed += 1;
            }
            self.requests[request] = [rounded(o.size, alignment), 0, pack(0, freed)];
            self.next += u32::from(o.start < phase);
            request += 1;
        }
        self.requests[request] = [0, 0, pack(0, n)];
        let mut planned = request;
        for i in (0..request).rev() {
            if self.requests[i][1] == 0 {
                self.requests[i][2] |= u64::from(planned);
            } else {
                planned = i;
            }
        }
        for i in 0..n {
            let request = number[by_end[i]];
            self.frees[i] = pack(request, low(self.requests[request][2]));
        }
        (self.alignment, self.request_count, self.free_count) = (alignment, request, n);
        (self.freed, self.overdue_count) = (0, 0);
        (self.followed, self.missed, self.ended) = (true, 0, false);
        Ok(())
    }

    /// The size of the plan's first request.
    pub(super) fn first(&self) -> u64 {
        match self.requests[0] {
            [size, 0, _] | [_, size, _] => size,
        }
    }

    pub(super) fn saved(&self) -> usize {
        let count = |n| usize::try_from(n).unwrap_or(usize::MAX);
        saved(count(self.request_count), count(self.free_count))
    }

    /// Writes the plan to `to`, which has [`saved`](Self::saved) words, for [`load`](Self::load). O(n).
    pub(super) fn save(&self, to: &mut [u64]) {
        let requests = self.requests.range(0, self.request_count + 1).as_flattened();
        let frees = self.frees.range(0, self.free_count);
        let counts = [pack(self.request_count, self.free_count)];
        for (to, from) in to.iter_mut().zip(counts.iter().chain(requests).chain(frees)) {
            *to = *from;
        }
    }

    /// Takes up a plan that [`save`](Self::save) has written, as [`follow`](Self::follow) did then: its first request is
    /// expected next. O(n).
    pub(super) fn load(&mut self, from: &[u64]) {
        let Some((&counts, rest)) = from.split_first() else { return };
        (self.request_count, self.free_count) = (low(counts), high(counts));
        let requests = self.requests.range_mut(0, self.request_count + 1).as_flattened_mut();
        let frees = self.frees.range_mut(0, self.free_count);
        for (to, from) in requests.iter_mut().chain(frees).zip(rest) {
            *to = *from;
        }
        let placed = usize::try_from(self.free_count).unwrap_or(0);
        self.mask = u32::try_from(slots(placed) - 1).unwrap_or(0);
        self.slots.range_mut(0, self.mask + 1).fill([0; 2]);
        // In the order of `follow`, and so with its slots.
        for request in 0..self.request_count {
            let [offset, size, link] = self.requests[request];
            if size > 0 {
                let slot = self.enter(offset);
                debug_assert_eq!(slot, low(link));
            }
        }
        (self.next, self.freed, self.overdue_count) = (0, 0, 0);
        (self.followed, self.missed, self.ended) = (true, 0, false);
    }

    /// Whether no request of this iteration has been answered from the plan.
    pub(super) const fn is_at_begin(&self) -> bool {
        self.next == 0
    }

    /// Answers the next request, of `bytes` bytes, from the plan; a request of 0 bytes gets [`Answer::Missed`]. `tag`
    /// is a number that is kept with the block and returned by its free. O(1) amortised.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "it is most of what a planned request takes; a call would be as much again"
    )]
    pub fn malloc(&mut self, bytes: u64, tag: u32) -> Answer {
        // A request outside the plan and the one after the last have size 0 here.
        if bytes.wrapping_sub(1) < self.requests[self.next][1] { self.take(tag) } else { self.search(bytes, tag) }
    }

    /// The offset for a request of `bytes` bytes, not 0, that comes exactly as planned, as do all before it. `None` with
    /// nothing changed: [`malloc`](Self::malloc) has to answer.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for malloc")]
    pub(super) fn hit(&mut self, bytes: u64) -> Option<u64> {
        let [offset, size, link] = self.requests[self.next];
        if size != bytes || high(link) != self.freed || self.overdue_count > 0 {
            return None;
        }
        self.next += 1;
        self.slots[low(link)][1] = self.next.into();
        Some(offset)
    }

    /// Frees the block at `offset` if the plan has this free next, and before its next request. False with nothing
    /// changed: [`free`](Self::free) has to do it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for malloc")]
    pub(super) fn free_hit(&mut self, offset: u64) -> bool {
        if high(self.requests[self.next][2]) <= self.freed || self.overdue_count > 0 {
            return false;
        }
        let free = self.frees[self.freed];
        let slot = &mut self.slots[high(free)];
        if slot[0] != offset.wrapping_add(1) || low(slot[1]) != low(free) + 1 {
            return false;
        }
        slot[1] = 0;
        self.freed += 1;
        true
    }

    /// Of an iteration that has come exactly as planned so far: the event after the first `requests` requests and the
    /// first `frees` frees; `None` if no more has come.
    pub(super) fn come(&self, requests: u32, frees: u32) -> Option<Come> {
        if frees < self.freed && (requests == self.next || high(self.requests[requests][2]) > frees) {
            let request = low(self.frees[frees]);
            let [_, bytes, link] = self.requests[request];
            return Some(Come::Free { bytes, malloc: request + high(link) });
        }
        (requests < self.next).then(|| Come::Malloc { bytes: self.requests[requests][1] })
    }

    /// Gives the block of a request its tag, if the block lives.
    pub(super) fn set_tag(&mut self, request: u32, tag: u32) {
        let slot = &mut self.slots[low(self.requests[request][2])];
        if low(slot[1]) == request + 1 {
            slot[1] = pack(request + 1, tag);
        }
    }

    /// Frees the block at this offset from the start of the arena. Returns the tag, the number that was given with the
    /// block's request. O(1) expected.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if no live block of the plan begins there.
    #[inline]
    pub fn free(&mut self, offset: u64) -> Result<u32, Error> {
        let mut slot = self.home(offset);
        loop {
            let [key, holder] = self.slots[slot];
            if key == offset.wrapping_add(1) && low(holder) != 0 {
                self.slots[slot][1] = 0;
                if self.overdue_count > 0 {
                    self.no_longer_overdue(slot);
                }
                return Ok(high(holder));
            }
            if key == 0 || key == offset.wrapping_add(1) {
                return Err(Error::NotAllocated { address: offset });
            }
            slot = (slot + 1) & self.mask;
        }
    }

    /// Ends the iteration and begins the next. Returns whether all requests of the plan came in the iteration that
    /// ended, no others came, and all were served as planned. Blocks that are still live become overdue: no request
    /// gets their memory until they are freed.
    pub fn restart(&mut self) -> bool {
        // Without a request since the last restart, what lives is overdue already.
        if self.next > 0 {
            self.move_clock(self.free_count);
        }
        let followed = self.is_complete();
        if self.is_lost() && self.live().next().is_none() {
            self.overdue_count = 0;
        }
        (self.next, self.freed, self.missed, self.followed, self.ended) = (0, 0, 0, true, false);
        followed
    }

    pub(super) const fn set_endless(&mut self, endless: bool) {
        self.endless = endless;
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether no block of an earlier iteration lives, so that all requests can come as planned.
    pub(super) const fn is_clear_of_late(&self) -> bool {
        self.overdue_count == 0
    }

    /// Whether all requests of the plan have come, each as planned.
    pub(super) const fn is_complete(&self) -> bool {
        self.followed && self.next == self.request_count
    }

    /// Whether several requests of this iteration were missed, and at least as many as the plan has come on.
    pub(super) const fn misses_most(&self) -> bool {
        self.missed > 1 && self.missed >= self.next
    }

    /// Whether every request of this iteration so far was the one that the plan expected, and was served as planned.
    #[must_use]
    pub const fn is_followed(&self) -> bool {
        self.followed
    }

    /// Whether the requests differ so much from the plan that it is better given up. This is so in two cases. The
    /// first: the missed requests of this iteration are at least eight, and at least a quarter as many as the plan has
    /// requests; a request is missed if it is not in the plan or its place is taken. The second: more than 16 blocks
    /// that the plan had freed were live at once.
    #[must_use]
    pub const fn is_hopeless(&self) -> bool {
        self.is_lost() || (self.missed >= AHEAD && self.missed >= self.request_count / 4)
    }

    pub(super) fn size_at(&self, offset: u64) -> Option<u64> {
        let key = offset.wrapping_add(1);
        let mut slot = self.home(offset);
        while self.slots[slot][0] != 0 {
            let [found, holder] = self.slots[slot];
            if found == key {
                return (low(holder) != 0).then(|| self.requests[low(holder) - 1][1]);
            }
            slot = (slot + 1) & self.mask;
        }
        None
    }

    pub(super) fn plan(&self, mut scratch: Workspace<'_>, blocks: &mut [Block], offsets: &mut [u64]) -> usize {
        let requests = (0..self.request_count).filter(|&i| self.requests[i][1] > 0);
        let mut number = scratch.indices(usize::try_from(self.request_count).unwrap_or(0));
        let (mut blocks, mut offsets) = (Table::new(blocks), Table::new(offsets));
        let mut count = 0;
        for i in requests.clone() {
            let [offset, size, link] = self.requests[i];
            blocks[count] = Block::new(count + high(link), 0, size);
            (offsets[count], number[i]) = (offset, count);
            count += 1;
        }
        // The requests before a free are those that expect no more frees than came before it.
        let mut before = requests.peekable();
        let mut requested = 0;
        for free in 0..self.free_count {
            while before.next_if(|&i| high(self.requests[i][2]) <= free).is_some() {
                requested += 1;
            }
            blocks[number[low(self.frees[free])]].end = requested + free;
        }
        usize::try_from(count).unwrap_or(0)
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        (0..=self.mask).map(|slot| self.slots[slot]).filter(|[_, holder]| low(*holder) != 0).map(|[key, holder]| {
            let size = self.requests[low(holder) - 1][1];
            (key - 1, size, high(holder))
        })
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for malloc")]
    fn take(&mut self, tag: u32) -> Answer {
        let [offset, size, link] = self.requests[self.next];
        self.next += 1;
        self.move_clock(high(link));
        if self.overdue_count > 0 && !self.is_clear(offset, size) {
            return self.miss();
        }
        self.slots[low(link)][1] = pack(self.next, tag);
        Answer::Placed(offset)
    }

    #[inline]
    fn move_clock(&mut self, frees: u32) {
        while self.freed < frees {
            let free = self.frees[self.freed];
            self.freed += 1;
            if low(self.slots[high(free)][1]) == low(free) + 1 {
                self.note_overdue(high(free));
            }
        }
    }

    const fn is_lost(&self) -> bool {
        self.overdue_count > OVERDUE
    }

    #[cold]
    fn note_overdue(&mut self, slot: u32) {
        if self.is_lost() {
            return;
        }
        let mut list = Table::new(&mut self.overdue);
        if list.first(self.overdue_count).contains(&slot) {
            return;
        }
        if self.overdue_count < OVERDUE {
            list[self.overdue_count] = slot;
        }
        self.overdue_count += 1;
    }

    #[cold]
    fn no_longer_overdue(&mut self, slot: u32) {
        if self.is_lost() {
            return;
        }
        let mut list = Table::new(&mut self.overdue);
        if let Some(place) = (0..self.overdue_count).find(|&i| list[i] == slot) {
            self.overdue_count -= 1;
            list[place] = list[self.overdue_count];
        }
    }

    #[cold]
    fn is_clear(&self, offset: u64, size: u64) -> bool {
        let list = self.overdue.get(..self.overdue_count as usize);
        // `None` if there were more overdue blocks than the list holds: it is not known where they lie.
        list.is_some_and(|list| {
            list.iter().all(|&slot| {
                let [key, holder] = self.slots[slot];
                let (begin, length) = (key - 1, self.requests[low(holder) - 1][1]);
                begin.saturating_add(length) <= offset || offset.saturating_add(size) <= begin
            })
        })
    }

    /// Outliving requests do not count; after [`AHEAD`] of them, only the first in a row is compared.
    #[cold]
    fn search(&mut self, bytes: u64, tag: u32) -> Answer {
        if self.endless && self.next == self.request_count && self.next > 0 {
            self.ended = true;
            return Answer::Missed;
        }
        let bytes = rounded(bytes, self.alignment);
        let mut request = self.next;
        let (mut placed_seen, mut outside_seen) = (0, 0);
        while request < self.request_count && placed_seen < AHEAD {
            let [size_outside, size, link] = self.requests[request];
            let outside = size == 0;
            if bytes == if outside { size_outside } else { size } {
                self.followed &= request == self.next;
                self.next = request;
                if outside {
                    self.next += 1;
                    return Answer::Outside;
                }
                return self.take(tag);
            }
            // Many blocks in a row may outlive the iteration.
            request = if outside && outside_seen >= AHEAD { low(link) } else { request + 1 };
            if outside {
                outside_seen += 1;
            } else {
                placed_seen += 1;
            }
        }
        // As a smaller request gets the place of a planned one, a smaller block may be the one that outlives.
        if let [size_outside, 0, _] = self.requests[self.next]
            && bytes > 0
            && bytes < size_outside
        {
            self.next += 1;
            return Answer::Outside;
        }
        self.miss()
    }

    fn miss(&mut self) -> Answer {
        self.followed = false;
        self.missed += 1;
        Answer::Missed
    }

    fn enter(&mut self, offset: u64) -> u32 {
        let key = offset.wrapping_add(1);
        let mut slot = self.home(offset);
        while self.slots[slot][0] != 0 && self.slots[slot][0] != key {
            slot = (slot + 1) & self.mask;
        }
        self.slots[slot][0] = key;
        slot
    }

    #[inline]
    const fn home(&self, offset: u64) -> u32 {
        high(offset.wrapping_mul(0x9E37_79B9_7F4A_7C15)) & self.mask
    }
}

fn rounded(size: u64, alignment: u64) -> u64 {
    size.checked_next_multiple_of(alignment).unwrap_or(size)
}

#[cfg(test)]
mod tests;
