//! How an [`Allocator`] takes further ranges of addresses from its [`Source`] when it needs them, and gives back those
//! in which no block lives.

use super::ranges::Source;
use super::{Allocator, Pool};
use crate::Error;

/// The fewest bytes that the [`Source`] is asked for when a request needs a further range of addresses: 1 MiB, so that
/// there are few ranges. If the source refuses, it is asked for the request's bytes alone. This minimum does not hold
/// for the arena of a plan: for that the source is asked for just the bytes of the arena.
const LEAST_MORE: u64 = 1 << 20;

/// An empty range of addresses goes back to the [`Source`] once this many iterations have placed no block in it.
const IDLE: u64 = 8;

impl<S: Source> Allocator<'_, S> {
    /// The bytes of all ranges that the allocator has now.
    pub(super) fn held(&self) -> u64 {
        let ranges = self.pool.ranges();
        (0..ranges.count()).map(|i| ranges.get(i).bytes).fold(0, u64::saturating_add)
    }

    /// How many bytes to ask the [`Source`] for when a request needs a further range of addresses: a quarter of all
    /// bytes that the allocator has, or [`LEAST_MORE`] if that is more. An allocator that has no range asks for the
    /// configured capacity instead. For a request that is larger, the caller asks for the bytes of the request.
    pub(super) fn usual_range(&self) -> u64 {
        let held = self.held();
        if held == 0 { self.config.capacity } else { (held / 4).max(LEAST_MORE) }
    }

    /// Allocates `size` bytes at a multiple of `alignment` from the pool, by a call of `malloc`, and returns their
    /// address. If no run of free bytes is large enough, takes a range of addresses from the [`Source`]. If that does
    /// not help, or the pool can hold no more blocks, the plan is given up, so that the memory of its arena can be
    /// used. It is not given up if the range in which the arena lies is too small for the block even when it is empty.
    /// `Err` if `malloc` still fails.
    pub(super) fn take_from_pool(
        &mut self,
        size: u64,
        alignment: u64,
        malloc: impl Fn(&mut Pool<'_>) -> Result<u64, Error>,
    ) -> Result<u64, Error> {
        let mut answer = malloc(&mut self.pool);
        if let Err(Error::OutOfMemory { needed, .. }) = answer
            && self.grow(needed, self.usual_range())
        {
            answer = malloc(&mut self.pool);
        }
        let around = self.pool.ranges().with(self.arena).filter(|_| self.arena_len > 0);
        let padding = |begin: u64| begin.checked_next_multiple_of(alignment).map(|address| address - begin);
        let room = around.and_then(|range| Some(range.bytes.saturating_sub(padding(range.begin)?)));
        if answer.is_err() && room.is_some_and(|room| size <= room) {
            self.give_up_plan();
            answer = malloc(&mut self.pool);
        }
        self.done.fallback_peak = self.done.fallback_peak.max(self.pool.live() - self.arena_len);
        answer
    }

    /// Returns the empty ranges of addresses to the [`Source`], and takes a new range from it. The source is asked for
    /// `wanted` or for `needed` bytes, whichever is more; if it refuses, for `needed` bytes. False if there is no new
    /// range.
    #[cold]
    pub(super) fn grow(&mut self, needed: u64, wanted: u64) -> bool {
        if !self.source.grows() {
            return false;
        }
        self.give_back_empty(0);
        self.take(needed.max(wanted)) || (needed < wanted && self.take(needed))
    }

    /// Gets a range of at least `bytes` bytes from the [`Source`]. False if the source gives none that can be used, or
    /// the allocator has as many ranges as it may have.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        if self.pool.ranges().room() == 0 {
            return false;
        }
        let Some(range) = self.source.take(bytes) else { return false };
        let added = self.pool.add(range);
        if !added {
            self.source.give_back(range);
        }
        added
    }

    /// Adds 1 to the age of every range: the iterations since a block was last placed in it. Returns to the [`Source`]
    /// the empty ranges of age [`IDLE`] or more. Called after each iteration that the caller marks; where the caller
    /// marks none, each time that all requests of the plan have come and another request follows. Does nothing if the
    /// source gives no further ranges.
    pub(super) fn give_back_idle(&mut self) {
        if self.source.grows() {
            self.pool.grow_older();
            self.give_back_empty(IDLE);
        }
    }

    /// Returns to the [`Source`] the empty ranges in which no block was placed for at least `iterations` iterations;
    /// with 0, all empty ranges.
    pub(super) fn give_back_empty(&mut self, iterations: u64) {
        while let Some(range) = self.pool.remove_empty(iterations) {
            self.source.give_back(range);
        }
    }
}
