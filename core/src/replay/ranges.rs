//! The ranges of addresses that an allocator has, and the [`Source`] from which it gets more.

use crate::Workspace;
use crate::table::Table;

/// A range of addresses, from which an allocator serves requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address of the range.
    pub begin: u64,
    /// How many bytes the range has.
    pub bytes: u64,
}

/// Where an allocator gets its ranges of addresses from, and where it returns them.
pub trait Source {
    /// Whether the source may give further ranges after the first. If not, the allocator asks for no other, and keeps
    /// the first until the allocator is dropped.
    fn grows(&self) -> bool;

    /// Gives a range of at least `bytes` bytes, which nobody else uses until the allocator gives it back; `None` if the
    /// source has no such range. A range that the allocator cannot use is given back at once: one that does not begin
    /// at a multiple of the allocator's alignment, is shorter than it, ends beyond 64 bits, or shares an address with
    /// another range.
    fn take(&mut self, bytes: u64) -> Option<Range>;

    /// Takes back a range that [`take`](Self::take) gave, with the same begin and bytes.
    fn give_back(&mut self, range: Range);

    /// Told that no block lies in a part of a range, and that what it holds is not needed: its pages may go back to the
    /// system, while its addresses stay the allocator's. By default nothing is done.
    fn discard(&mut self, _: Range) {}

    /// How many bytes of a range take memory now, of which blocks have reached the first `touched` since the rest was
    /// [discarded](Self::discard). By default all of them.
    fn resident(&self, range: Range, _touched: u64) -> u64 {
        range.bytes
    }
}

/// The [`Source`] of an allocator that has a single range from the beginning, at address 0: it gives no others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed;

impl Source for Fixed {
    fn grows(&self) -> bool {
        false
    }

    fn take(&mut self, _: u64) -> Option<Range> {
        None
    }

    fn give_back(&mut self, _: Range) {}
}

pub(super) struct Ranges<'a> {
    /// First address, bytes, highest end since peaks were reset, iterations since last used, highest end since the
    /// bytes above were discarded.
    list: Table<'a, [u64; 5]>,
    count: u32,
    used: u64,
}

impl<'a> Ranges<'a> {
    pub(super) const fn words(most: usize) -> usize {
        5 * most
    }

    pub(super) fn new(most: usize, memory: &mut Workspace<'a>) -> Self {
        Self { list: memory.word_records(most), count: 0, used: 0 }
    }

    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn most(&self) -> usize {
        self.list.len()
    }

    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.list.len()).unwrap_or(u32::MAX).saturating_sub(self.count)
    }

    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn get(&self, i: u32) -> Range {
        let [begin, bytes, ..] = self.list[i];
        Range { begin, bytes }
    }

    /// The list must have room for one more.
    pub(super) fn add(&mut self, Range { begin, bytes }: Range) -> bool {
        let Some(end) = begin.checked_add(bytes) else { return false };
        let apart = |[other, length, ..]: &[u64; 5]| end <= *other || other + length <= begin;
        let fits = self.list.first(self.count).iter().all(apart);
        if fits {
            self.list[self.count] = [begin, bytes, begin, 0, begin];
            self.count += 1;
        }
        fits
    }

    pub(super) fn remove(&mut self, i: u32) {
        let [begin, _, top, ..] = self.list[i];
        self.used -= top - begin;
        self.count -= 1;
        self.list[i] = self.list[self.count];
    }

    pub(super) fn begins_at(&self, address: u64) -> bool {
        self.list.first(self.count).iter().any(|range| range[0] == address)
    }

    pub(super) fn with(&self, address: u64) -> Option<Range> {
        (0..self.count).map(|i| self.get(i)).find(|r| address.wrapping_sub(r.begin) < r.bytes)
    }

    pub(super) fn note_use(&mut self, address: u64, end: u64) {
        for i in 0..self.count {
            let [begin, bytes, top, _, touched] = self.list[i];
            if address.wrapping_sub(begin) < bytes {
                self.used += end.saturating_sub(top);
                self.list[i] = [begin, bytes, top.max(end), 0, touched.max(end)];
            }
        }
    }

    /// Lowers the noted end, not below the start of the range; never raises it.
    pub(super) fn set_top(&mut self, i: u32, end: u64) {
        let [begin, bytes, top, age, touched] = self.list[i];
        let end = end.max(begin).min(top);
        self.used -= top - end;
        self.list[i] = [begin, bytes, end, age, touched];
    }

    /// The highest end of a block in the range of this address, since [`set_touched`](Self::set_touched) lowered it.
    pub(super) fn touched(&self, address: u64) -> u64 {
        let around = |[begin, bytes, ..]: &&[u64; 5]| address.wrapping_sub(*begin) < *bytes;
        self.list.first(self.count).iter().find(around).map_or(0, |range| range[4])
    }

    pub(super) fn set_touched(&mut self, i: u32, end: u64) {
        self.list[i][4] = end.max(self.list[i][0]);
    }

    pub(super) fn grow_older(&mut self) {
        for i in 0..self.count {
            self.list[i][3] = self.list[i][3].saturating_add(1);
        }
    }

    pub(super) fn age(&self, i: u32) -> u64 {
        self.list[i][3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Allocator, Config, Memory, State, memory};
    use crate::{Block, Error};
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;
    use std::vec::Vec;

    #[derive(Default)]
    struct Raw {
        out: BTreeMap<u64, u64>,
        most: u64,
        asked: Vec<u64>,
        back: Vec<u64>,
        discarded: Vec<Range>,
    }

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Raw>>);

    impl Source for Shared {
        fn grows(&self) -> bool {
            true
        }

        fn take(&mut self, bytes: u64) -> Option<Range> {
            let mut raw = self.0.borrow_mut();
            raw.asked.push(bytes);
            if raw.out.values().sum::<u64>() + bytes > raw.most {
                return None;
            }
            // First fit: ranges may touch each other.
            let mut begin = 1 << 12;
            for (&other, &length) in &raw.out {
                if begin + bytes <= other {
                    break;
                }
                begin = other + length.next_multiple_of(8);
            }
            raw.out.insert(begin, bytes);
            Some(Range { begin, bytes })
        }

        fn give_back(&mut self, range: Range) {
            let mut raw = self.0.borrow_mut();
            assert_eq!(raw.out.remove(&range.begin), Some(range.bytes), "given back as it was given, once");
            raw.back.push(range.bytes);
        }

        fn discard(&mut self, range: Range) {
            self.0.borrow_mut().discarded.push(range);
        }

        fn resident(&self, _: Range, touched: u64) -> u64 {
            touched
        }
    }

    fn over(config: &Config, source: Shared) -> Result<Allocator<'static, Shared>, Error> {
        let len = memory(config);
        let blocks = vec![Block::default(); len.blocks].leak();
        let (words, indices) = (vec![9; len.words].leak(), vec![9; len.indices].leak());
        Allocator::over(config, Memory { blocks, words, indices }, source)
    }

    fn raw(most: u64) -> Shared {
        Shared(Rc::new(RefCell::new(Raw { most, ..Raw::default() })))
    }

    fn iteration(allocator: &mut Allocator<'_, Shared>, sizes: &[u64]) {
        allocator.begin_iteration();
        let live: Vec<u64> = sizes.iter().map(|&bytes| allocator.malloc(bytes).unwrap()).collect();
        for address in live {
            allocator.free(address).unwrap();
        }
        allocator.end_iteration().unwrap();
    }

    #[test]
    fn an_arena_that_grows_moves_and_what_nobody_uses_goes_back() {
        let source = raw(10 << 20);
        let config = Config { ranges: 4, ..Config::new(1 << 20, 64, 16) };
        let mut allocator = over(&config, source.clone()).unwrap();
        let out = || source.0.borrow().out.values().copied().collect::<Vec<_>>();
        iteration(&mut allocator, &[1 << 19, 1 << 18]);
        assert_eq!((allocator.state(), out()), (State::Replay, vec![1 << 20]));
        // The iteration now needs 5 MiB. While it is recorded, its blocks lie in further ranges; then they lie in an
        // arena of that size.
        for _ in 0..3 {
            iteration(&mut allocator, &[3 << 20, 2 << 20]);
        }
        let done = allocator.statistics();
        assert_eq!((allocator.state(), done.plans, done.arena_peak, done.hits), (State::Replay, 2, 5 << 20, 4));
        assert!(done.held <= 10 << 20 && out().len() <= 3, "{done:?} {:?}", source.0.borrow().asked);
        for _ in 0..10 {
            iteration(&mut allocator, &[3 << 20, 2 << 20]);
        }
        assert_eq!((out().len(), allocator.statistics().held), (1, out()[0]));
        // A block that is requested while interrupted lies beside the arena, and the plan stays.
        allocator.interrupt();
        let beside = allocator.malloc(4 << 20).unwrap();
        allocator.resume();
        iteration(&mut allocator, &[3 << 20, 2 << 20]);
        assert_eq!((allocator.state(), allocator.statistics().plans, out().len()), (State::Replay, 2, 2));
        allocator.free(beside).unwrap();
        for _ in 0..9 {
            iteration(&mut allocator, &[3 << 20, 2 << 20]);
        }
        assert_eq!(out().len(), 1);
        // A request for more than the source has left.
        allocator.interrupt();
        assert!(matches!(allocator.malloc(8 << 20), Err(Error::OutOfMemory { .. })));
        assert_eq!(allocator.state(), State::Replay);
        drop(allocator);
        assert!(source.0.borrow().out.is_empty());
    }

    #[test]
    fn what_a_new_plan_does_not_need_is_discarded_once() {
        let source = raw(1 << 20);
        let mut allocator = over(&Config::new(1 << 20, 64, 16), source.clone()).unwrap();
        let kept = allocator.malloc(256).unwrap();
        let discarded = || source.0.borrow_mut().discarded.split_off(0).iter().map(|r| r.bytes).sum::<u64>();
        // Without a plan, the third block does not fit where the first was; beside a plan of 50 KiB that is given up it does.
        let iteration = |kib: u64, allocator: &mut Allocator<'_, Shared>| {
            allocator.begin_iteration();
            let [first, second] = [2, 2].map(|n| allocator.malloc(n * (kib << 10)).unwrap());
            allocator.free(first).unwrap();
            let third = allocator.malloc(3 * (kib << 10)).unwrap();
            for block in [second, third] {
                allocator.free(block).unwrap();
            }
            allocator.end_iteration().unwrap();
            allocator.resident()
        };
        for (kib, unplanned) in [(10, 70), (40, 50 + 2 * 80)] {
            assert_eq!((iteration(kib, &mut allocator), discarded()), (256 + (unplanned << 10), 0));
            let spare = unplanned - 5 * kib;
            assert_eq!((iteration(kib, &mut allocator), discarded()), (256 + 5 * (kib << 10), spare << 10));
            assert_eq!((iteration(kib, &mut allocator), discarded()), (256 + 5 * (kib << 10), 0));
        }
        allocator.free(kept).unwrap();
        allocator.forget();
        allocator.trim();
        assert_eq!((allocator.resident(), allocator.statistics().held), (0, 0));
    }

    #[test]
    fn iterations_that_nobody_tells_give_back_too() {
        let source = raw(1 << 30);
        let config = Config { ranges: 4, ..Config::new(1 << 20, 64, 16) };
        let mut allocator = over(&config, source.clone()).unwrap();
        let pairs = |n: usize, allocator: &mut Allocator<'_, Shared>| {
            for i in 0..n {
                let a = allocator.malloc([1 << 18, 1 << 19, 1 << 17][i % 3]).unwrap();
                allocator.free(a).unwrap();
            }
        };
        pairs(120, &mut allocator);
        assert_eq!(allocator.state(), State::Replay);
        allocator.interrupt();
        let beside = allocator.malloc(1 << 24).unwrap();
        allocator.free(beside).unwrap();
        allocator.resume();
        assert_eq!(source.0.borrow().out.len(), 2);
        let before = allocator.statistics();
        pairs(30, &mut allocator);
        let after = allocator.statistics();
        assert_eq!((source.0.borrow().out.len(), after.hits - before.hits, after.plans), (1, 30, before.plans));
    }

    #[test]
    fn a_first_range_that_is_not_there_is_an_error() {
        let config = Config { ranges: 4, ..Config::new(1 << 20, 64, 16) };
        let refused = over(&config, raw(1000)).err();
        assert_eq!(refused, Some(Error::OutOfMemory { needed: 1 << 20, largest: 0 }));
        // Without a first range, the source is asked for what the first request needs. After that it is asked for 1
        // MiB, and since it has less, for what the request needs.
        let source = raw(1000);
        let mut allocator = over(&Config { capacity: 0, ..config }, source.clone()).unwrap();
        assert!(source.0.borrow().asked.is_empty());
        let first = allocator.malloc(500).unwrap();
        assert!(matches!(allocator.malloc(400), Err(Error::OutOfMemory { .. })));
        allocator.free(first).unwrap();
        assert_eq!(source.0.borrow().asked, [512, 1 << 20, 512]);
    }

    proptest! {
        #[test]
        fn what_is_live_is_in_one_range_and_nobody_elses(
            steps in prop::collection::vec((0u8..10, any::<prop::sample::Index>(), 1u64..400), 1..250),
            capacity in prop::sample::select(vec![0u64, 100, 1000]),
            most in 0u64..8000,
            told in any::<bool>(),
        ) {
            let source = raw(most.max(capacity + 8));
            let config = Config { ranges: 3, alignment: 8, ..Config::new(capacity, 24, 12) };
            let mut allocator = over(&config, source.clone()).unwrap();
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (what, which, bytes) in steps {
                let before = live.clone();
                match what {
                    0..=4 => {
                        // There are few sizes, so that plans are followed.
                        let bytes = if what < 3 { 40 * (1 + bytes % 3) } else { bytes };
                        if let Ok(address) = allocator.malloc(bytes) {
                            let size = bytes.next_multiple_of(8);
                            prop_assert!(live.iter().all(|&(a, n)| a + n <= address || address + size <= a));
                            live.push((address, size));
                        }
                    }
                    5..=7 if !live.is_empty() => {
                        let (address, _) = live.swap_remove(which.index(live.len()));
                        prop_assert_eq!(allocator.free(address), Ok(()));
                        prop_assert_eq!(allocator.free(address), Err(Error::NotAllocated { address }));
                    }
                    8 if told => allocator.begin_iteration(),
                    9 if told => drop(allocator.end_iteration()),
                    8 => source.0.borrow_mut().most = bytes * 40,
                    _ => {}
                }
                let mut raw = source.0.borrow_mut();
                for Range { begin, bytes } in raw.discarded.split_off(0) {
                    prop_assert!(before.iter().all(|&(a, n)| a + n <= begin || begin + bytes <= a), "{before:?}");
                }
                let inside = |&(a, n): &(u64, u64)| raw.out.iter().any(|(&begin, &length)| begin <= a && a + n <= begin + length);
                prop_assert!(live.iter().all(inside), "{:?} {:?}", live, raw.out);
                prop_assert_eq!(allocator.statistics().held, raw.out.values().sum::<u64>());
                prop_assert!(raw.out.len() <= 3);
            }
            for (address, _) in live {
                prop_assert_eq!(allocator.free(address), Ok(()));
            }
            drop(allocator);
            prop_assert!(source.0.borrow().out.is_empty());
        }
    }
}
