//! The allocators that serve frameworks at run time today, simulated.
//!
//! Each gets the mallocs and frees of one iteration in their order, without knowing what comes next, and counts the
//! bytes that it then holds of the device. All of them start empty, on a device that never runs out and with one
//! stream. They know neither alignments above their own granules nor pins. What a second iteration may take in
//! addition, in the holes that the first has left, is not counted.
//!
//! Cost: O(log n) for a malloc or a free.

mod cnmem;
pub mod executorch;
mod no_reuse;
mod pytorch;
mod segments;
pub mod tflite;
pub mod tflm;

use sublet_core::{Block, Error};

/// An allocator that serves one request after the other.
pub trait Pool {
    /// Serves a request of `size` bytes; returns its address, or none if the bytes that the pool would then hold exceed
    /// 64 bits.
    fn malloc(&mut self, size: u64) -> Option<u64>;

    /// Frees the memory at `address`, of a request for `size` bytes.
    fn free(&mut self, address: u64, size: u64);

    /// The bytes of the device that the pool holds, used or not. No pool gives memory back, so this is also the most
    /// that it has held.
    fn reserved(&self) -> u64;
}

/// The pools that a plan is compared with, by name.
#[must_use]
pub fn all() -> [(&'static str, Box<dyn Pool>); 3] {
    [
        ("none", Box::<no_reuse::NoReuse>::default()),
        ("cnmem", Box::<cnmem::CnMem>::default()),
        ("pytorch", Box::<pytorch::PyTorch>::default()),
    ]
}

/// Lets `pool` serve the mallocs and frees of `blocks`; returns the most bytes that it reserves.
///
/// At the same step frees come before mallocs, since lifetimes are half-open. Of several frees or mallocs at a step,
/// the one of the earlier block in `blocks` comes first. In a trace no two of them share a step: their order is the
/// recorded one.
///
/// # Errors
/// [`Error::SizeOverflow`] if the pool would hold more bytes than 64 bits count.
pub fn simulate(pool: &mut dyn Pool, blocks: &[Block]) -> Result<u64, Error> {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Request {
        Free,
        Malloc,
    }
    let mut requests: Vec<_> = (0u32..)
        .zip(blocks)
        .flat_map(|(i, b)| [(b.start, Request::Malloc, i, b.size), (b.end, Request::Free, i, b.size)])
        .collect();
    requests.sort_unstable();
    let mut addresses = vec![0; blocks.len()];
    for (_, request, block, size) in requests {
        let address = &mut addresses[block as usize];
        match request {
            Request::Free => pool.free(*address, size),
            Request::Malloc => *address = pool.malloc(size).ok_or(Error::SizeOverflow { block })?,
        }
    }
    Ok(pool.reserved())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const MIB: u64 = 1 << 20;

    /// Checks a pool: no live range may overlap with another.
    struct Watched<'a> {
        pool: &'a mut dyn Pool,
        live: BTreeMap<u64, u64>,
    }

    impl Pool for Watched<'_> {
        fn malloc(&mut self, size: u64) -> Option<u64> {
            let address = self.pool.malloc(size)?;
            let end = address + size;
            assert!(end <= self.pool.reserved(), "[{address}, {end}) is outside of what is reserved");
            if let Some((&below, &its_end)) = self.live.range(..end).next_back() {
                assert!(its_end <= address, "[{address}, {end}) is given out, [{below}, {its_end}) is alive");
            }
            self.live.insert(address, end);
            Some(address)
        }

        fn free(&mut self, address: u64, size: u64) {
            assert_eq!(self.live.remove(&address), Some(address + size));
            self.pool.free(address, size);
        }

        fn reserved(&self) -> u64 {
            self.pool.reserved()
        }
    }

    /// Sizes around all thresholds of the pools.
    fn sizes() -> impl Strategy<Value = u64> {
        prop_oneof![1..2000u64, MIB - 600..MIB + 600, MIB..12 * MIB, 10 * MIB - 600..10 * MIB + 600, MIB..90 * MIB]
    }

    fn max_load(blocks: &[Block]) -> u64 {
        let load = |t: u32| blocks.iter().filter(|b| b.start <= t && t < b.end).map(|b| b.size).sum();
        blocks.iter().map(|b| load(b.start)).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn live_blocks_are_apart_and_reserved_is_at_least_the_max_load(
            rows in prop::collection::vec((0u32..60, 1u32..30, sizes()), 0..80),
        ) {
            let blocks: Vec<Block> = rows.iter().map(|&(start, width, size)| Block::new(start, start + width, size)).collect();
            let total: u64 = blocks.iter().map(|b| b.size).sum();
            for (name, mut pool) in all() {
                let mut watched = Watched { pool: pool.as_mut(), live: BTreeMap::new() };
                let reserved = simulate(&mut watched, &blocks).unwrap();
                prop_assert!(watched.live.is_empty());
                prop_assert!(reserved >= max_load(&blocks), "{}", name);
                if name == "none" {
                    prop_assert_eq!(reserved, total);
                }
            }
        }
    }

    #[test]
    fn at_one_step_frees_come_first() {
        // The second block begins when the first ends, and stands before it in the slice.
        let blocks = [Block::new(1, 2, 512), Block::new(0, 1, 512)];
        let reserved = all().map(|(name, mut pool)| (name, simulate(pool.as_mut(), &blocks)));
        assert_eq!(reserved, [("none", Ok(1024)), ("cnmem", Ok(512)), ("pytorch", Ok(2 * MIB))]);
    }

    #[test]
    fn what_64_bits_cannot_count_is_an_error() {
        let huge = [Block::new(0, 2, 1), Block::new(1, 2, u64::MAX)];
        for (name, mut pool) in all() {
            assert_eq!(simulate(pool.as_mut(), &huge), Err(Error::SizeOverflow { block: 1 }), "{name}");
        }
    }
}
