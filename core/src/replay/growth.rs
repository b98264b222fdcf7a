//! How an [`Allocator`] takes further ranges of addresses from its [`Source`] when it needs them, and gives back those
//! in which no block lives.

use super::ranges::Source;
use super::{Allocator, Pool};
use crate::Error;

/// 1 MiB, so that there are few ranges; not for the arena of a plan.
const LEAST_MORE: u64 = 1 << 20;

const IDLE: u64 = 8;

impl<S: Source> Allocator<'_, S> {
    pub(super) fn held(&self) -> u64 {
        let ranges = self.pool.ranges();
        (0..ranges.count()).map(|i| ranges.get(i).bytes).fold(0, u64::saturating_add)
    }

    pub(super) fn usual_range(&self) -> u64 {
        let held = self.held();
        if held == 0 { self.config.capacity } else { (held / 4).max(LEAST_MORE) }
    }

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

    #[cold]
    pub(super) fn grow(&mut self, needed: u64, wanted: u64) -> bool {
        if !self.source.grows() {
            return false;
        }
        self.give_back_empty(0);
        self.take(needed.max(wanted)) || (needed < wanted && self.take(needed))
    }

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

    pub(super) fn give_back_idle(&mut self) {
        if self.source.grows() {
            self.pool.grow_older();
            self.give_back_empty(IDLE);
        }
    }

    pub(super) fn give_back_empty(&mut self, iterations: u64) {
        while let Some(range) = self.pool.remove_empty(iterations) {
            self.source.give_back(range);
        }
    }
}
