//! The heap of both caching allocators: segments of device memory, cut into ranges that are free or in use.
//!
//! A request takes the smallest free range that is large enough, of several the one at the lowest address. A range that
//! is freed is joined with its free neighbours, but never across the start of a segment: segments are allocations of
//! the device, and need not be neighbours even if their addresses are.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Segments of one pool.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Where segments start.
    starts: HashSet<u64>,
    /// The free ranges, as (size, address).
    free_by_size: BTreeSet<(u64, u64)>,
    /// The free ranges, address to size.
    free: BTreeMap<u64, u64>,
    /// The ranges in use, address to size.
    used: HashMap<u64, u64>,
}

impl Segments {
    /// Adds a free segment.
    pub(super) fn add(&mut self, address: u64, size: u64) {
        self.starts.insert(address);
        self.insert_free(address, size);
    }

    /// Takes a range of `size` bytes; returns its address, if there is one. The rest of the free range becomes a free
    /// range of its own if `splits` says so for its size; otherwise it is taken too.
    pub(super) fn take(&mut self, size: u64, splits: impl FnOnce(u64) -> bool) -> Option<u64> {
        let &(whole, address) = self.free_by_size.range((size, 0)..).next()?;
        self.remove_free(address, whole);
        let rest = whole - size;
        let given = if rest > 0 && splits(rest) {
            self.insert_free(address + size, rest);
            size
        } else {
            whole
        };
        self.used.insert(address, given);
        Some(address)
    }

    /// Frees the range at `address`.
    pub(super) fn give_back(&mut self, address: u64) {
        let Some(mut size) = self.used.remove(&address) else {
            debug_assert!(false, "nothing is given out at {address}");
            return;
        };
        let mut start = address;
        let above = address + size;
        if let Some(&more) = self.free.get(&above).filter(|_| !self.starts.contains(&above)) {
            self.remove_free(above, more);
            size += more;
        }
        let below = self.free.range(..address).next_back().map(|(&at, &more)| (at, more));
        if let Some((at, more)) = below.filter(|&(at, more)| at + more == address && !self.starts.contains(&address)) {
            self.remove_free(at, more);
            start = at;
            size += more;
        }
        self.insert_free(start, size);
    }

    fn insert_free(&mut self, address: u64, size: u64) {
        self.free.insert(address, size);
        self.free_by_size.insert((size, address));
    }

    fn remove_free(&mut self, address: u64, size: u64) {
        self.free.remove(&address);
        self.free_by_size.remove(&(size, address));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_range_that_fits_is_taken_and_the_lowest_of_equals() {
        let mut s = Segments::default();
        for (address, size) in [(0, 8), (8, 4), (12, 6), (18, 4)] {
            s.add(address, size);
        }
        assert_eq!(s.take(3, |_| true), Some(8));
        assert_eq!(s.take(4, |_| true), Some(18));
        assert_eq!(s.take(5, |rest| rest > 1), Some(12));
        assert_eq!(s.take(1, |_| true), Some(11), "what is left of the first");
        assert_eq!(s.take(9, |_| true), None);
        assert_eq!(s.take(1, |_| true), Some(0), "the range at 12 was given out whole");
    }

    #[test]
    fn neighbours_are_joined_within_a_segment_only() {
        let mut s = Segments::default();
        s.add(0, 4);
        s.add(4, 4);
        for address in [0, 2, 4, 6] {
            assert_eq!(s.take(2, |_| true), Some(address));
        }
        for address in [2, 4, 0, 6] {
            s.give_back(address);
        }
        assert_eq!(s.take(5, |_| true), None);
        assert_eq!((s.take(4, |_| true), s.take(4, |_| true)), (Some(0), Some(4)));
    }

    proptest! {
        #[test]
        fn once_all_is_given_back_every_segment_is_whole(
            requests in prop::collection::vec((1u64..40, 0usize..8, 0u64..6), 0..120),
        ) {
            let mut s = Segments::default();
            let (mut segments, mut end) = (BTreeMap::new(), 0);
            let mut live = Vec::new();
            for (size, victim, least_rest) in requests {
                if victim < live.len() {
                    s.give_back(live.swap_remove(victim));
                }
                let address = s.take(size, |rest| rest > least_rest).unwrap_or_else(|| {
                    s.add(end, size + 16);
                    segments.insert(end, size + 16);
                    end += size + 16;
                    s.take(size, |rest| rest > least_rest).unwrap()
                });
                live.push(address);
            }
            for address in live {
                s.give_back(address);
            }
            prop_assert!(s.used.is_empty());
            prop_assert_eq!(&s.free, &segments);
            let by_size: BTreeSet<_> = segments.iter().map(|(&address, &size)| (size, address)).collect();
            prop_assert_eq!(s.free_by_size, by_size);
        }
    }
}
