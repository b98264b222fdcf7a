//! An allocator that learns: it records the requests of a framework, plans them, and answers them from the plan.
//!
//! Problem: a framework allocates and frees memory in the same way in every iteration. From its second or third
//! iteration on, each request is to be answered from a plan, which has an address for each block, so that the least
//! memory is used. Requests that the plan does not have are to be served too.
//!
//! Paper: Sekiyama et al. 2018, section 4 (profile, plan, replay, interrupt and resume, reoptimization) and Zhang et
//! al. 2019, section V (the iteration is found in the stream of requests where the caller does not mark it).
//!
//! Steps. One [`Pool`], an allocator that needs no plan, has the whole range of addresses. The arena of a plan (the
//! memory that the plan divides up) is one block of the pool, and so is every block that no plan covers.
//! 1. *Profile*: the pool serves all requests, and they are recorded.
//! 2. *Plan*, at the end of an iteration: its blocks are placed, the plan is verified, and the pool gives memory for
//!    the arena.
//! 3. *Replay*: requests get their planned addresses in the arena. The pool serves requests that do not match the plan.
//! 4. *Diverged*: after an iteration with requests that do not match, a new plan is made from its record.
//!
//! Where the caller marks iterations ([`begin_iteration`](Allocator::begin_iteration)), each of them is recorded. Where
//! the caller does not, [`Detector`] finds them: it watches the requests for a period, the number of mallocs and frees
//! after which they repeat. It stops when they have repeated for so long that this period cannot be a part of a longer
//! one. It watches again from the first request that gets no planned address in an iteration that differs from the
//! plan.
//!
//! A plan is given up within an iteration in four cases: a quarter of its requests, and at least eight, were missed
//! (they are not in the plan, or their place was taken); as many were missed as the plan has come on, and one more
//! would take memory that no block has reached yet; more than 16 blocks are live that the plan has freed already; or
//! the pool has no room for a request, and may have it without the plan. The arena then goes back to the pool,
//! except for its live blocks, which become blocks of the pool at their addresses. So memory is never handed out twice,
//! and live blocks never move.
//!
//! A [`Source`] may give further ranges of addresses. If no run of free bytes is large enough for a request, the source
//! is asked before the plan is given up. It is asked for a quarter of the memory there is, for 1 MiB, or for the
//! request, whichever is the most, so that ranges stay few. If it refuses, it is asked for the request alone. For an
//! arena it is asked for the bytes of the arena. Before it is asked, it gets back the ranges in which no block lives:
//! so the memory of an old arena is free when a larger one is taken. It also gets back ranges that eight iterations
//! have not used.
//!
//! Once a new plan was followed for a whole iteration, what the arena and the live blocks do not need goes back: the
//! pages of the iteration that was recorded and of an arena that was replaced, and ranges that are empty. A marked
//! iteration that comes exactly as planned is not recorded again: when it first differs, what came before is read from
//! the plan.
//!
//! Where iterations are marked, plans are remembered, each by the size of its first request ([`Remembered`]). If the first
//! request of an iteration is that of another plan, this one is followed again, in the arena that there is if it is large
//! enough: a batch size that changes and comes back is not planned anew.
//!
//! What outlives a marked iteration, such as its results, has no place in the plan that is made at its end. If it is freed
//! before the next iteration begins, the plan is made again then, with it. If such blocks ever live on into an iteration,
//! whose requests then find their places taken, later plans are made without.
//!
//! Cost: O(1) for a planned request or free, O(log n) for others with n live blocks; planning costs what the solver
//! does. Uses only memory that is lent.
//!
//! Limits: all planned blocks have one alignment; one thread at a time; a plan is made within the call that completes
//! the record.

use super::config::{self, Config, Memory, kept, pool_live, scratch};
use super::follow::{self, Answer, Come, Replay};
use super::iteration;
use super::ranges::{Fixed, Range, Source};
use super::remembered::{self, Needs, Remembered};
use crate::error::Buffer;
use crate::place::{self, Options};
use crate::trace::Detector;
use crate::trace::Event;
use crate::{Block, Constraints, Error, Pool, VerifiedPlan, Workspace, block, verify};

/// What an [`Allocator`] does with requests now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// There is no plan: the pool, which allocates without one, serves all requests. The requests of an iteration are
    /// recorded, to make a plan of them.
    Profile,
    /// A plan is followed: requests get the addresses that the plan has for them.
    Replay,
    /// A plan is followed, but the requests differ from it. A new plan is made as soon as an iteration is recorded.
    Diverged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Iterations {
    Found,
    Between,
    Within,
}

/// Counts of what an [`Allocator`] has done so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Statistics {
    /// How many requests were answered from a plan.
    pub hits: u64,
    /// How many requests came while a plan was followed and were not answered from it. They were served without the
    /// plan. Those that the plan expects, but has no place for, are counted too.
    pub misses: u64,
    /// How many plans were made by the allocator so far, or adopted from elsewhere. One that is followed again after
    /// another is not counted again.
    pub plans: u64,
    /// How many marked iterations were begun anew before they ended: nothing was planned of these. More than 0 where threads
    /// that share an allocator mark iterations at once, or ends are not marked.
    pub unended: u64,
    /// The bytes of the largest arena so far; an arena is the memory of a plan.
    pub arena_peak: u64,
    /// The most bytes that were live at once outside the arena, in blocks that no plan covers.
    pub fallback_peak: u64,
    /// The most memory that blocks have taken at any time so far, in bytes. The memory taken at one time is a sum over
    /// the ranges of addresses that there are at that time. Of each range it counts all bytes from the start to the
    /// highest end that a block in it has had until then, free bytes included.
    pub footprint: u64,
    /// The bytes of all ranges that the allocator has now.
    pub held: u64,
}

/// An allocator that records the requests of an iteration, plans them, and answers the requests of later iterations
/// from the plan. Its addresses lie in one range, or in as many ranges as a [`Source`] gives.
///
/// ```
/// use sublet_core::replay::{self, Allocator, Config, Memory, State};
/// use sublet_core::{Block, Error};
/// let config = Config::new(1 << 20, 64, 16);
/// let len = replay::memory(&config);
/// let (mut blocks, mut words, mut indices) =
///     (vec![Block::default(); len.blocks], vec![0; len.words], vec![0; len.indices]);
/// let memory = Memory { blocks: &mut blocks, words: &mut words, indices: &mut indices };
/// let mut allocator = Allocator::new(&config, memory)?;
/// for _ in 0..3 {
///     allocator.begin_iteration();
///     let a = allocator.malloc(4096)?;
///     let b = allocator.malloc(8192)?;
///     allocator.free(a)?;
///     let c = allocator.malloc(4096)?;
///     allocator.free(b)?;
///     allocator.free(c)?;
///     allocator.end_iteration()?;
/// }
/// assert_eq!(allocator.state(), State::Replay);
/// let done = allocator.statistics();
/// assert_eq!((done.hits, done.misses, done.plans, done.arena_peak), (6, 0, 1, 12_288));
/// # Ok::<(), Error>(())
/// ```
pub struct Allocator<'a, S: Source = Fixed> {
    pub(super) config: Config,
    pub(super) source: S,
    pub(super) pool: Pool<'a>,
    pub(super) detector: Detector<'a>,
    pub(super) replay: Replay<'a>,
    pub(super) remembered: Remembered<'a>,
    pub(super) blocks: &'a mut [Block],
    pub(super) scratch: Workspace<'a>,
    pub(super) arena: u64,
    /// 0 without a plan.
    pub(super) arena_len: u64,
    /// Larger requests are not looked up in the plan: the length of the arena; 0 if no plan answers now.
    most: u64,
    pub(super) iterations: Iterations,
    pub(super) interruptions: u32,
    /// False within a marked iteration that has come exactly as planned: `record` reads it from the plan.
    pub(super) recording: bool,
    /// Not followed for a whole iteration yet.
    is_new: bool,
    /// Between the iteration that a plan was made of and the next: what of it is freed only now.
    freed_after: Option<u32>,
    /// Blocks of the arena have outlived the begin of the next iteration.
    outlive: bool,
    events: usize,
    /// More frees than planned blocks mean that blocks now end within the iteration: a new plan is made.
    frees: usize,
    planned: usize,
    pub(super) done: Statistics,
}

impl<'a> Allocator<'a> {
    /// An allocator over the addresses `[0, capacity)`, where `capacity` is that of `config`; nothing is allocated yet.
    /// `memory` stays lent as long as the allocator lives.
    ///
    /// # Errors
    /// [`Error::Alignment`] if the alignment in `config` is no power of two; [`Error::BufferTooSmall`] if `memory` is
    /// shorter than [`memory`](crate::replay::memory) says; [`Error::TooManyBlocks`] if `config` allows more events,
    /// live blocks or ranges than can be counted.
    pub fn new(config: &Config, memory: Memory<'a>) -> Result<Self, Error> {
        let mut allocator = Self::without_range(config, memory, Fixed)?;
        allocator.pool.add(Range { begin: 0, bytes: config.capacity });
        Ok(allocator)
    }
}

impl<'a, S: Source> Allocator<'a, S> {
    /// An allocator over ranges of addresses that `source` gives. A first range, of [`Config::capacity`] bytes, is
    /// taken from it now, unless that length is 0. All ranges go back to `source` when the allocator is dropped.
    ///
    /// # Errors
    /// As [`new`](Allocator::new); [`Error::OutOfMemory`] if the source has no first range that can be used.
    pub fn over(config: &Config, memory: Memory<'a>, source: S) -> Result<Self, Error> {
        let mut allocator = Self::without_range(config, memory, source)?;
        if config.capacity > 0 && !allocator.take(config.capacity) {
            return Err(Error::OutOfMemory { needed: config.capacity, largest: 0 });
        }
        Ok(allocator)
    }

    fn without_range(config: &Config, memory: Memory<'a>, source: S) -> Result<Self, Error> {
        block::check_count(config.events)?;
        block::check_count(config.live)?;
        block::check_count(config.ranges)?;
        let config = &Config { ranges: config.ranges.max(1), ..*config };
        let Memory { blocks, words, indices } = memory;
        let (needed, got) = (config::memory(config).blocks, blocks.len());
        if got < needed {
            return Err(Error::BufferTooSmall { buffer: Buffer::Blocks, needed, got });
        }
        let mut rest = Workspace::new(words, indices);
        rest.check(kept(config).and(scratch(config)))?;
        let live = pool_live(config);
        let for_pool = rest.split(Pool::workspace_of(live, config.ranges));
        Ok(Self {
            config: *config,
            source,
            pool: Pool::over(config.ranges, config.alignment, live, for_pool)?,
            detector: Detector::new(config.events, rest.split(Detector::workspace(config.events)))?,
            replay: Replay::new(config.events, rest.split(follow::workspace(config.events)))?,
            remembered: Remembered::new(rest.stale_words(remembered::words(config.events)).into_slice()),
            blocks,
            scratch: rest,
            arena: 0,
            arena_len: 0,
            most: 0,
            iterations: Iterations::Found,
            interruptions: 0,
            recording: true,
            events: 0,
            frees: 0,
            planned: 0,
            is_new: false,
            freed_after: None,
            outlive: false,
            done: Statistics::default(),
        })
    }

    /// Allocates `bytes` bytes; returns the address of the new block, which shares no byte with a live block.
    ///
    /// # Errors
    /// [`Error::ZeroSize`] if `bytes` is 0; [`Error::OutOfMemory`] if no run of free bytes is large enough;
    /// [`Error::BufferTooSmall`] if more blocks outside the plan are alive than [`Config::live`] allows. After an error
    /// the allocator can be used as before, but it may have given up the plan to make room.
    #[inline]
    pub fn malloc(&mut self, bytes: u64) -> Result<u64, Error> {
        match self.hit(bytes) {
            Some(address) => Ok(address),
            None => self.malloc_otherwise(bytes),
        }
    }

    /// The address for a request that comes exactly as planned, as do all of the iteration before it. `None`, with
    /// nothing changed, for every other request: [`malloc`](Self::malloc) serves it.
    #[inline]
    pub fn hit(&mut self, bytes: u64) -> Option<u64> {
        if bytes.wrapping_sub(1) >= self.most || self.recording {
            return None;
        }
        let offset = self.replay.hit(self.rounded(bytes))?;
        self.done.hits += 1;
        Some(self.arena + offset)
    }

    /// Frees a block whose free comes exactly as planned. False, with nothing changed, for every other address:
    /// [`free`](Self::free) takes it.
    #[inline]
    pub fn free_hit(&mut self, address: u64) -> bool {
        let offset = address.wrapping_sub(self.arena);
        offset < self.arena_len && !self.recording && self.replay.free_hit(offset)
    }

    /// `bytes` is at most the length of the arena, a multiple of the alignment: the sum cannot overflow.
    #[inline]
    const fn rounded(&self, bytes: u64) -> u64 {
        (bytes + (self.config.alignment - 1)) & !(self.config.alignment - 1)
    }

    #[inline(never)]
    fn malloc_otherwise(&mut self, bytes: u64) -> Result<u64, Error> {
        if self.is_at_begin()
            && self.recall(bytes)
            && let Some(address) = self.hit(bytes)
        {
            return Ok(address);
        }
        if bytes.wrapping_sub(1) >= self.most {
            return self.malloc_unplanned(bytes);
        }
        self.record();
        let size = self.rounded(bytes);
        match self.look_up(size) {
            Some(address) => Ok(address),
            None => self.malloc_missed(size),
        }
    }

    /// Frees the live block that begins at `address`.
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if no live block begins there.
    #[inline]
    pub fn free(&mut self, address: u64) -> Result<(), Error> {
        if self.free_hit(address) { Ok(()) } else { self.free_otherwise(address) }
    }

    #[inline(never)]
    fn free_otherwise(&mut self, address: u64) -> Result<(), Error> {
        let offset = address.wrapping_sub(self.arena);
        let tag = if offset < self.arena_len {
            self.record();
            self.replay.free(offset).map_err(|_| Error::NotAllocated { address })?
        } else {
            self.pool.free_tagged(address)?
        };
        if (self.recording || self.freed_after.is_some())
            && let Some(bytes) = self.detector.bytes_at(tag)
        {
            self.note(Event::Free, bytes, tag);
            self.freed_after = self.freed_after.map(|count| count + 1);
        }
        Ok(())
    }

    /// Marks the begin of an iteration. After the first such call, iterations are no longer searched for in the stream
    /// of requests: the caller marks each of them.
    pub fn begin_iteration(&mut self) {
        self.done.unended += u64::from(self.iterations == Iterations::Within);
        self.plan_results();
        self.iterations = Iterations::Within;
        self.detector.restart();
        self.replay.restart();
        self.outlive |= self.arena_len > 0 && !self.replay.is_clear_of_late();
        (self.events, self.frees) = (0, 0);
        self.recording = self.arena_len == 0 || !self.replay.is_clear_of_late();
        self.update();
    }

    /// Marks the end of an iteration. Makes a new plan if there is none, if the iteration was not served as planned, or
    /// if more blocks were both allocated and freed in it than the plan has. Does nothing if no iteration was
    /// [begun](Self::begin_iteration).
    ///
    /// # Errors
    /// An error says why there is no new plan; the allocator can be used as before. [`Error::BufferTooSmall`] if the
    /// iteration had more mallocs and frees than the [`Config`] allows: the old plan then stays. With every other error
    /// there is no plan: [`Error::OutOfMemory`] if no run of free bytes is large enough for the new one;
    /// [`Error::BufferTooSmall`] if more blocks outside it are alive than [`Config::live`] allows.
    pub fn end_iteration(&mut self) -> Result<(), Error> {
        if self.iterations != Iterations::Within {
            return Ok(());
        }
        if !self.replay.is_complete() {
            self.record();
        }
        self.iterations = Iterations::Between;
        self.recording = false;
        self.update();
        let followed = self.replay.restart();
        self.give_back_idle();
        // If there are more frees than the plan has blocks, blocks that used to outlive the iteration now end in it,
        // and can be planned.
        if self.arena_len > 0 && followed && self.frees <= self.planned {
            self.settle();
            return Ok(());
        }
        if self.events > self.config.events {
            return Err(Error::BufferTooSmall { buffer: Buffer::Events, needed: self.events, got: self.config.events });
        }
        self.plan_newest(self.detector.held(), 0)?;
        self.freed_after = (!self.outlive).then_some(0);
        Ok(())
    }

    /// Plans the last iteration again, with what was freed after its end.
    fn plan_results(&mut self) {
        if self.freed_after.take().is_some_and(|count| count > 0) && self.events <= self.config.events {
            // If there is no memory for it, the next iteration is recorded; its end tells why there is no plan.
            let _ = self.plan_newest(self.detector.held(), 0);
        }
    }

    pub(super) const fn forget_results(&mut self) {
        (self.freed_after, self.outlive) = (None, false);
    }

    /// Follows a plan that was made elsewhere. The plan's first request is expected next; if the caller marks
    /// iterations and none is running, it is expected at the start of the next iteration. The blocks of the plan are
    /// those that an iteration both allocates and frees. If an offset is not a multiple of the allocator's alignment,
    /// the blocks are placed anew, at multiples of it. A plan of no blocks counts as none: the allocator then only
    /// [forgets](Self::forget) the plan that it has.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if twice the number of the plan's blocks, for a malloc and a free each, is more than
    /// [`Config::events`]: the old plan then stays; [`Error::OutOfMemory`] if no run of free bytes is large enough for
    /// the plan, [`Error::BufferTooSmall`] if more blocks outside it are alive than [`Config::live`] allows: the
    /// allocator then goes on without a plan.
    pub fn adopt(&mut self, plan: &VerifiedPlan<'_>) -> Result<(), Error> {
        let alignment = self.config.alignment;
        let (blocks, got) = (plan.blocks().len(), self.config.events);
        let needed = blocks.saturating_mul(2);
        if needed > got {
            return Err(Error::BufferTooSmall { buffer: Buffer::Events, needed, got });
        }
        if blocks == 0 {
            self.forget();
            return Ok(());
        }
        self.freed_after = None;
        self.give_up_plan();
        if plan.offsets().iter().all(|offset| offset & (alignment - 1) == 0) {
            self.replay.follow(plan, &[], alignment, 0, self.scratch.reborrow())?;
            self.take_up_new(Needs { peak: plan.peak(), planned: blocks })?;
        } else {
            for (to, from) in self.blocks.iter_mut().zip(plan.blocks()) {
                let size = from.size.checked_next_multiple_of(alignment).unwrap_or(from.size);
                *to = Block::new(from.start, from.end, size);
            }
            self.place(blocks, 0, 0)?;
        }
        self.recording = self.iterations == Iterations::Within;
        Ok(())
    }

    /// Whether the allocator has a plan now, and whether requests follow the plan.
    #[must_use]
    pub fn state(&self) -> State {
        if self.arena_len == 0 {
            State::Profile
        } else if self.replay.is_followed() && (self.is_told() || !self.recording || self.detector.period().is_some()) {
            State::Replay
        } else {
            State::Diverged
        }
    }

    /// The addresses of the arena, the memory in which the blocks of the plan lie; empty without a plan. A block at any
    /// other address belongs to the pool, even if an earlier plan placed it.
    #[must_use]
    pub const fn arena(&self) -> core::ops::Range<u64> {
        self.arena..self.arena + self.arena_len
    }

    /// Counts of what the allocator has done so far: requests answered, plans made, and memory used.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics { footprint: self.pool.footprint(), held: self.held(), ..self.done }
    }

    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "a request that is planned takes a few nanoseconds, a call and its spills two"
    )]
    fn look_up(&mut self, size: u64) -> Option<u64> {
        let tag = if self.recording { self.detector.upcoming() } else { 0 };
        let mut answer = self.replay.malloc(size, tag);
        if !matches!(answer, Answer::Placed(_)) && self.replay.has_ended() {
            answer = self.look_up_in_next(size, tag);
        }
        let Answer::Placed(offset) = answer else { return None };
        let address = self.arena + offset;
        self.done.hits += 1;
        if self.recording {
            // Recording the request may end the plan; the block stays at its address all the same.
            self.note(Event::Malloc, size, 0);
        }
        Some(address)
    }

    #[cold]
    #[inline(never)]
    fn look_up_in_next(&mut self, size: u64, tag: u32) -> Answer {
        let followed = self.replay.restart();
        self.give_back_idle();
        if followed {
            self.settle();
        }
        self.replay.malloc(size, tag)
    }

    #[cold]
    fn malloc_unplanned(&mut self, bytes: u64) -> Result<u64, Error> {
        let Some(size) = bytes.checked_next_multiple_of(self.config.alignment).filter(|&size| size > 0) else {
            // 0 bytes, or more than can be rounded up: the pool returns the error, and the plan stays.
            return self.pool.malloc(bytes);
        };
        if self.most > 0 {
            self.record();
            // The plan may expect this request, as one whose block outlives the iteration: such a block has no place in
            // the arena.
            self.look_up(size);
            return self.malloc_missed(size);
        }
        self.serve(size)
    }

    #[cold]
    fn malloc_missed(&mut self, size: u64) -> Result<u64, Error> {
        self.done.misses += 1;
        if !self.recording && !self.replay.is_followed() {
            self.detector.restart();
            self.recording = true;
        }
        // Rather than take memory that no block has reached, use the arena of a plan that misses more than it places.
        if self.replay.is_hopeless() || (self.replay.misses_most() && self.pool.would_grow(size)) {
            self.give_up_plan();
        }
        self.serve(size)
    }

    /// Whether the next request is the first of a marked iteration.
    fn is_at_begin(&self) -> bool {
        self.iterations == Iterations::Within
            && self.interruptions == 0
            && self.events == 0
            && (self.arena_len == 0 || self.replay.is_at_begin())
    }

    /// Follows the plan that is remembered for this first request, if there is one, in the arena that there is if it is
    /// large enough. Whether it does.
    #[cold]
    fn recall(&mut self, bytes: u64) -> bool {
        let Some(first) = bytes.checked_next_multiple_of(self.config.alignment) else { return false };
        let Some((needs, _)) = self.remembered.find(first) else { return false };
        if self.arena_len > 0 {
            if self.replay.first() == first || !self.replay.is_clear_of_late() {
                return false;
            }
            if needs.peak > self.arena_len || !self.pool.is_set_aside_for(needs.planned) {
                self.give_up_plan();
            }
        }
        if self.arena_len == 0 && self.take_up(needs).is_err() {
            return false;
        }
        if let Some((_, tables)) = self.remembered.find(first) {
            self.replay.load(tables);
        }
        self.planned = needs.planned;
        self.recording = false;
        true
    }

    /// From here on the marked iteration is recorded. What has come of it, all as planned, is read from the plan.
    #[cold]
    fn record(&mut self) {
        if self.recording || self.iterations != Iterations::Within {
            return;
        }
        self.recording = true;
        let begin = self.detector.upcoming();
        let (mut requests, mut frees) = (0, 0);
        while let Some(event) = self.replay.come(requests, frees) {
            match event {
                Come::Malloc { bytes } => {
                    self.replay.set_tag(requests, self.detector.upcoming());
                    self.note(Event::Malloc, bytes, 0);
                    requests += 1;
                }
                Come::Free { bytes, malloc } => {
                    self.note(Event::Free, bytes, Detector::later(begin, malloc));
                    frees += 1;
                }
            }
        }
    }

    /// Gives back what the plan does not need, once it was followed for a whole iteration.
    fn settle(&mut self) {
        if core::mem::take(&mut self.is_new) {
            self.trim();
        }
    }

    fn serve(&mut self, size: u64) -> Result<u64, Error> {
        let recorded = self.recording && self.is_covered();
        let tag = if recorded { self.detector.upcoming() } else { 0 };
        let address = self.take_from_pool(size, 1, |pool| pool.malloc_tagged(size, tag))?;
        if recorded {
            self.note(Event::Malloc, size, 0);
        }
        Ok(address)
    }

    /// `last` is the position of the block's malloc, counted from 1; 0 for a malloc.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as for look_up")]
    fn note(&mut self, event: Event, size: u64, last: u32) {
        if self.is_told() {
            self.events += 1;
            self.frees += usize::from(event == Event::Free);
            self.detector.record(event, size, last);
        } else {
            self.watch(event, size, last);
        }
    }

    fn watch(&mut self, event: Event, size: u64, last: u32) {
        let before = self.detector.period();
        self.detector.push(event, size, last);
        match self.detector.period() {
            Some(period) if before != Some(period) => {
                let cut = iteration::best_cut(&self.detector, period);
                // If there is no memory for the plan now, there may be when the period is found the next time.
                if self.plan_newest(period, cut).is_err() {
                    self.detector.restart();
                }
            }
            _ => self.recording = !self.detector.is_settled() || self.arena_len == 0,
        }
    }

    fn plan_newest(&mut self, len: u32, cut: u32) -> Result<(), Error> {
        self.give_up_plan();
        let alignment = self.config.alignment;
        let found = iteration::blocks(&self.detector, len, cut, alignment, self.scratch.reborrow(), self.blocks);
        if found.planned == 0 {
            return Ok(());
        }
        self.place(found.planned, found.requests - found.planned, cut)
    }

    fn place(&mut self, planned: usize, outside: usize, cut: u32) -> Result<(), Error> {
        let alignment = self.config.alignment;
        let (inside, rest) = self.blocks.split_at_checked(planned).unwrap_or_default();
        let outside = rest.get(..outside).unwrap_or_default();
        let mut scratch = self.scratch.reborrow();
        let offsets = scratch.words(inside.len()).into_slice();
        let options = Options { constraints: Constraints { alignment, capacity: None }, ..self.config.options };
        place::place(self.config.solver, inside, &options, scratch.reborrow(), offsets)?;
        let plan = verify::verify(inside, offsets, &options.constraints, scratch.reborrow())?;
        self.replay.follow(&plan, outside, alignment, cut, scratch)?;
        let peak = plan.peak();
        self.take_up_new(Needs { peak, planned })
    }

    fn take_up_new(&mut self, needs: Needs) -> Result<(), Error> {
        self.take_up(needs)?;
        self.done.plans += 1;
        self.remembered.keep(&self.replay, needs);
        Ok(())
    }

    fn take_up(&mut self, Needs { peak, planned }: Needs) -> Result<(), Error> {
        let mut arena = self.pool.set_aside(peak, planned);
        if matches!(arena, Err(Error::OutOfMemory { .. })) && self.grow(peak, peak) {
            arena = self.pool.set_aside(peak, planned);
        }
        (self.arena, self.arena_len) = arena?;
        (self.planned, self.is_new) = (planned, true);
        self.done.arena_peak = self.done.arena_peak.max(self.arena_len);
        self.update();
        Ok(())
    }

    pub(super) fn give_up_plan(&mut self) {
        if self.arena_len == 0 {
            return;
        }
        self.record();
        let dissolved = self.pool.dissolve(self.arena, self.replay.live());
        debug_assert!(dissolved.is_ok(), "{dissolved:?}");
        (self.arena, self.arena_len) = (0, 0);
        self.done.fallback_peak = self.done.fallback_peak.max(self.pool.live());
        self.recording |= !self.is_told();
        self.update();
    }

    pub(super) fn update(&mut self) {
        self.replay.set_endless(!self.is_told());
        self.most = if self.is_covered() { self.arena_len } else { 0 };
    }

    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.iterations != Iterations::Found
    }

    fn is_covered(&self) -> bool {
        self.interruptions == 0 && self.iterations != Iterations::Between
    }
}

impl<S: Source> Drop for Allocator<'_, S> {
    fn drop(&mut self) {
        let ranges = self.pool.ranges();
        for i in 0..ranges.count() {
            self.source.give_back(ranges.get(i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_for_nothing_leaves_the_plan_as_it_is() {
        let config = Config { alignment: 8, ..Config::new(1 << 10, 16, 4) };
        let len = config::memory(&config);
        let (mut blocks, mut words, mut indices) =
            (vec![Block::default(); len.blocks], vec![0; len.words], vec![0; len.indices]);
        let memory = Memory { blocks: &mut blocks, words: &mut words, indices: &mut indices };
        let mut allocator = Allocator::new(&config, memory).unwrap();
        for _ in 0..2 {
            allocator.begin_iteration();
            let address = allocator.malloc(64).unwrap();
            assert_eq!(allocator.arena().contains(&address), allocator.statistics().plans > 0);
            assert_eq!(allocator.malloc(0), Err(Error::ZeroSize { block: 0 }));
            assert!(matches!(allocator.malloc(u64::MAX), Err(Error::OutOfMemory { .. })));
            allocator.free(address).unwrap();
            allocator.end_iteration().unwrap();
        }
        assert_eq!((allocator.state(), allocator.statistics().plans), (State::Replay, 1));
    }

    #[test]
    fn more_events_than_can_be_counted_are_refused() {
        for (events, live) in [(usize::MAX, 1), (1, usize::MAX)] {
            let config = Config::new(1 << 10, events, live);
            let nothing = Memory { blocks: &mut [], words: &mut [], indices: &mut [] };
            let refused = Allocator::new(&config, nothing).map(drop);
            assert_eq!(refused, Err(Error::TooManyBlocks { needed: usize::MAX, most: crate::MAX_BLOCKS }));
        }
    }
}
