//! The calls that a framework makes to an allocator beside malloc and free: aligned requests, interruptions, questions
//! about addresses, and the resetting of what the allocator has learned.

use super::allocator::{Allocator, Iterations};
use super::ranges::Source;
use crate::{Block, Error};

impl<S: Source> Allocator<'_, S> {
    /// Allocates `bytes` bytes at an address that is a multiple of `alignment`. If `alignment` is more than the
    /// allocator's own, the request is not recorded, and is served without the plan, in O(log n) with n live blocks.
    ///
    /// # Errors
    /// As [`malloc`](Self::malloc); [`Error::Alignment`] if `alignment` is no power of two.
    pub fn malloc_aligned(&mut self, bytes: u64, alignment: u64) -> Result<u64, Error> {
        if !alignment.is_power_of_two() {
            return Err(Error::Alignment { block: None, alignment });
        }
        if alignment <= self.config.alignment {
            return self.malloc(bytes);
        }
        let Some(size) = bytes.checked_next_multiple_of(self.config.alignment).filter(|&size| size > 0) else {
            return self.pool.malloc(bytes);
        };
        self.take_from_pool(size, alignment, |pool| pool.malloc_aligned(size, alignment))
    }

    /// Says that requests from here on are not part of an iteration: they are neither recorded nor answered from the
    /// plan, until [`resume`](Self::resume) is called. Interruptions nest: each is undone by one such call.
    pub fn interrupt(&mut self) {
        self.interruptions = self.interruptions.saturating_add(1);
        self.update();
    }

    /// Undoes one [`interrupt`](Self::interrupt). Once all are undone, requests are part of an iteration again. Without
    /// an interruption it does nothing.
    pub fn resume(&mut self) {
        self.interruptions = self.interruptions.saturating_sub(1);
        self.update();
    }

    /// The usable bytes of the live block that begins at `address`: at least as many as were requested. `None` if no
    /// live block begins there.
    #[must_use]
    pub fn size_at(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.arena);
        if offset < self.arena_len { self.replay.size_at(offset) } else { self.pool.size_at(address) }
    }

    /// Whether an address lies in one of the allocator's ranges, allocated or not.
    #[must_use]
    pub fn owns(&self, address: u64) -> bool {
        self.pool.ranges().with(address).is_some()
    }

    /// The sum of the sizes of all live blocks, in bytes, and how many live blocks there are. O(planned blocks).
    #[must_use]
    pub fn live(&self) -> (u64, u64) {
        let beside = (self.pool.live() - self.arena_len, u64::from(self.pool.count()) - u64::from(self.arena_len > 0));
        let planned = self.replay.live().filter(|_| self.arena_len > 0);
        planned.fold(beside, |(bytes, blocks), (_, size, _)| (bytes + size, blocks + 1))
    }

    /// Gives free memory back to the allocator's [`Source`]: what blocks have reached and no longer use is
    /// [discarded](Source::discard), and ranges in which no block lives are returned, if the source gives more than
    /// one. The plan's arena stays, even if no block lives there. O(blocks).
    pub fn trim(&mut self) {
        let source = &mut self.source;
        self.pool.discard(|range| source.discard(range));
        if self.source.grows() {
            self.give_back_empty(0);
        }
    }

    /// The bytes of the ranges that take memory now, as far as the [`Source`] [knows](Source::resident).
    #[must_use]
    pub fn resident(&self) -> u64 {
        let ranges = self.pool.ranges();
        let resident = |i| {
            let range = ranges.get(i);
            self.source.resident(range, ranges.touched(range.begin).saturating_sub(range.begin))
        };
        (0..ranges.count()).map(resident).fold(0, u64::saturating_add)
    }

    /// Sets the peaks in the [statistics](Self::statistics), `arena_peak`, `fallback_peak` and `footprint`, to the
    /// bytes that the present arena and the live blocks take. Later requests raise them again.
    pub fn reset_peaks(&mut self) {
        self.pool.reset_peaks();
        (self.done.arena_peak, self.done.fallback_peak) = (self.arena_len, self.pool.live() - self.arena_len);
    }

    /// Forgets all plans and the requests that were recorded, because the network has changed. Live blocks stay at their
    /// addresses.
    pub fn forget(&mut self) {
        self.give_up_plan();
        self.remembered.forget();
        self.forget_results();
        self.detector.restart();
        self.recording = self.iterations != Iterations::Between;
        self.update();
    }

    /// The plan that is followed: its blocks and their offsets in the arena. The blocks are in the order of their
    /// requests, with sizes rounded up to the alignment. Their lifetimes are counted in steps: each request and each
    /// free of these blocks is a step. Both slices are empty if there is no plan. O(n).
    pub fn plan(&mut self) -> (&[Block], &[u64]) {
        if self.arena_len == 0 {
            return (&[], &[]);
        }
        let mut scratch = self.scratch.reborrow();
        let offsets = scratch.words(self.config.events / 2).into_slice();
        let count = self.replay.plan(scratch, self.blocks, offsets);
        (self.blocks.get(..count).unwrap_or_default(), offsets.get(..count).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Config, Fixed, Memory, State, memory};
    use crate::{Constraints, Workspace, verify};
    use std::vec::Vec;

    fn allocator(config: &Config) -> Allocator<'static, Fixed> {
        let len = memory(config);
        let blocks = vec![Block::default(); len.blocks].leak();
        let (words, indices) = (vec![9; len.words].leak(), vec![9; len.indices].leak());
        Allocator::new(config, Memory { blocks, words, indices }).unwrap()
    }

    fn iteration(allocator: &mut Allocator<'_, Fixed>, sizes: &[u64], span: usize) -> Vec<u64> {
        allocator.begin_iteration();
        let mut addresses: Vec<u64> = Vec::new();
        for i in 0..sizes.len() + span {
            if i >= span {
                allocator.free(addresses[i - span]).unwrap();
            }
            if let Some(&bytes) = sizes.get(i) {
                addresses.push(allocator.malloc(bytes).unwrap());
            }
        }
        allocator.end_iteration().unwrap();
        addresses
    }

    const SIZES: [u64; 7] = [100, 700, 64, 1000, 300, 12, 100];

    #[test]
    fn a_plan_goes_out_and_comes_in_again() {
        let config = Config { alignment: 64, ..Config::new(1 << 16, 64, 16) };
        let mut first = allocator(&config);
        assert_eq!(first.plan(), (&[][..], &[][..]));
        iteration(&mut first, &SIZES, 3);
        let planned = iteration(&mut first, &SIZES, 3);
        let arena = first.arena().start;
        let (blocks, offsets) = first.plan();
        let (blocks, offsets) = (blocks.to_vec(), offsets.to_vec());
        assert_eq!(offsets, planned.iter().map(|a| a - arena).collect::<Vec<_>>());
        assert_eq!(blocks[..4].iter().map(|b| (b.start, b.end)).collect::<Vec<_>>(), [(0, 3), (1, 5), (2, 7), (4, 9)]);
        let (mut words, mut indices) = (vec![0; 100], vec![0; 100]);
        let mut verified = |offsets: &[u64], second: &mut Allocator<'_, Fixed>| {
            let scratch = Workspace::new(&mut words, &mut indices);
            second.adopt(&verify::verify(&blocks, offsets, &Constraints::NONE, scratch).unwrap()).unwrap();
            iteration(second, &SIZES, 3)
        };
        let mut second = allocator(&config);
        assert_eq!(verified(&offsets, &mut second), planned);
        assert_eq!((second.statistics().hits, second.statistics().misses), (7, 0));
        // A plan with offsets that are not multiples of the alignment is placed anew.
        let mut odd = allocator(&config);
        let moved = verified(&offsets.iter().map(|o| o + 3).collect::<Vec<_>>(), &mut odd);
        assert!(moved.iter().all(|address| address % 64 == 0));
        assert_eq!((odd.statistics().hits, odd.statistics().misses, odd.statistics().plans), (7, 0, 1));
        assert_eq!(odd.state(), State::Replay);
    }

    #[test]
    fn interruptions_nest() {
        let config = Config { alignment: 64, ..Config::new(1 << 14, 64, 16) };
        let mut a = allocator(&config);
        for _ in 0..3 {
            a.begin_iteration();
            // Without an interruption there is nothing to resume from.
            a.resume();
            let planned = a.malloc(256).unwrap();
            a.interrupt();
            a.interrupt();
            a.resume();
            let beside = a.malloc(512).unwrap();
            a.resume();
            let last = a.malloc(128).unwrap();
            for block in [planned, beside, last] {
                a.free(block).unwrap();
            }
            a.end_iteration().unwrap();
        }
        let done = a.statistics();
        assert_eq!((a.state(), done.hits, done.misses, done.arena_peak), (State::Replay, 4, 0, 384));
    }

    #[test]
    fn blocks_that_stay_are_allocated_before_the_first_iteration_or_the_footprint_is_more() {
        let footprint = |before: bool| {
            let mut a = allocator(&Config { alignment: 64, ..Config::new(1 << 16, 64, 16) });
            let mut kept = if before { vec![a.malloc(256).unwrap(), a.malloc(256).unwrap()] } else { Vec::new() };
            for _ in 0..3 {
                a.begin_iteration();
                let first = a.malloc(1024).unwrap();
                if kept.is_empty() {
                    kept = vec![a.malloc(256).unwrap(), a.malloc(256).unwrap()];
                }
                let second = a.malloc(2048).unwrap();
                a.free(first).unwrap();
                let third = a.malloc(1024).unwrap();
                a.free(second).unwrap();
                a.free(third).unwrap();
                a.end_iteration().unwrap();
            }
            a.reset_peaks();
            assert_eq!((a.state(), a.statistics().arena_peak), (State::Replay, 3072));
            a.statistics().footprint
        };
        assert_eq!(footprint(true), 2 * 256 + 3072);
        assert!(footprint(false) > 2 * 256 + 3072, "{}", footprint(false));
    }

    #[test]
    fn a_plan_of_no_blocks_is_none() {
        let config = Config { alignment: 64, ..Config::new(1 << 16, 64, 16) };
        let mut a = allocator(&config);
        let empty = || verify::verify(&[], &[], &Constraints::NONE, Workspace::new(&mut [], &mut [])).unwrap();
        assert_eq!(a.adopt(&empty()), Ok(()));
        assert_eq!((a.state(), a.statistics().plans), (State::Profile, 0));
        iteration(&mut a, &SIZES, 3);
        assert_eq!(a.state(), State::Replay);
        assert_eq!(a.adopt(&empty()), Ok(()));
        assert_eq!((a.state(), a.statistics().plans, a.arena().is_empty()), (State::Profile, 1, true));
        iteration(&mut a, &SIZES, 3);
        iteration(&mut a, &SIZES, 3);
        assert_eq!((a.state(), a.statistics().plans, a.statistics().hits), (State::Replay, 2, 7));
    }

    #[test]
    fn what_is_live_is_known_by_address_and_size() {
        let config = Config { alignment: 64, ..Config::new(1 << 14, 64, 16) };
        let mut a = allocator(&config);
        for round in 0..2 {
            a.begin_iteration();
            let block = a.malloc(100).unwrap();
            assert_eq!(
                (a.statistics().hits > 0, a.size_at(block), a.size_at(block + 64)),
                (round > 0, Some(128), None)
            );
            assert!(a.owns(block + 64) && !a.owns(1 << 14));
            assert_eq!(a.live(), (128, 1));
            a.interrupt();
            let beside = a.malloc(1).unwrap();
            a.resume();
            assert_eq!((a.size_at(beside), a.live()), (Some(64), (192, 2)));
            a.free(beside).unwrap();
            a.free(block).unwrap();
            assert_eq!((a.size_at(block), a.live()), (None, (0, 0)));
            a.end_iteration().unwrap();
        }
        assert_eq!((a.state(), a.statistics().arena_peak), (State::Replay, 128));
        a.forget();
        assert_eq!((a.state(), a.live(), a.arena().is_empty()), (State::Profile, (0, 0), true));
        a.reset_peaks();
        assert_eq!((a.statistics().footprint, a.statistics().fallback_peak, a.statistics().arena_peak), (0, 0, 0));
        let high = a.malloc(1 << 12).unwrap();
        assert_eq!((high, a.statistics().footprint), (0, 1 << 12));
    }

    #[test]
    fn any_power_of_two_can_be_asked_for() {
        let mut a = allocator(&Config { alignment: 64, ..Config::new(1 << 14, 64, 16) });
        let first = a.malloc(10).unwrap();
        let aligned = a.malloc_aligned(100, 4096).unwrap();
        assert_eq!((first, aligned, a.size_at(aligned)), (0, 4096, Some(128)));
        assert_eq!(a.malloc_aligned(1, 32), Ok(64), "the hole before it is used");
        assert!(matches!(a.malloc_aligned(1 << 13, 1 << 14), Err(Error::OutOfMemory { .. })));
        let high = a.malloc_aligned(1 << 13, 1 << 13);
        assert_eq!(high, Ok(1 << 13), "the hole begins too early, but has just enough bytes");
        a.free(1 << 13).unwrap();
        assert_eq!(a.malloc_aligned(8, 3), Err(Error::Alignment { block: None, alignment: 3 }));
        assert_eq!(a.malloc_aligned(0, 4096), Err(Error::ZeroSize { block: 0 }));
        a.free(aligned).unwrap();
        a.free(first).unwrap();
        assert_eq!(a.live(), (64, 1));
    }

    #[test]
    fn an_aligned_request_ends_a_plan_that_leaves_no_memory() {
        let mut a = allocator(&Config::new(1 << 20, 64, 16));
        for _ in 0..2 {
            iteration(&mut a, &[700 << 10], 1);
        }
        assert_eq!(a.state(), State::Replay);
        assert_eq!(a.malloc_aligned(0, 4096), Err(Error::ZeroSize { block: 0 }));
        assert!(matches!(a.malloc_aligned(1 << 21, 4096), Err(Error::OutOfMemory { .. })));
        assert_eq!(a.state(), State::Replay, "what cannot be served leaves the plan");
        assert_eq!((a.malloc_aligned(512 << 10, 4096), a.state()), (Ok(0), State::Profile));
    }
}
