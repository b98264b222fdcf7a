//! The pool against a map of the live blocks: a request gets the smallest range of free addresses in which it fits, the
//! lowest of several, and free neighbours are merged.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::Buffer;
use sublet_core::Error;
use sublet_core::Pool;
use sublet_fuzz::number;
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::stream::{Step, Stream};

#[derive(Debug)]
struct Input {
    capacity: u64,
    alignment: u64,
    live: usize,
    stream: Stream,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            capacity: if u.ratio(3, 4)? { u.int_in_range(0..=600)? } else { number(u)? },
            alignment: if u.ratio(7, 8)? { 1 << u.int_in_range(0..=5)? } else { number(u)? },
            live: if u.ratio(15, 16)? { u.int_in_range(0..=20)? } else { usize::try_from(number(u)?).unwrap_or(0) },
            stream: u.arbitrary()?,
        })
    }
}

/// The most live blocks that memory is lent for. A pool for more has to be refused.
const MOST_LIVE: usize = 1 << 10;

sublet_fuzz::target!(|input: Input| {
    let Input { capacity, alignment, live: most, stream: Stream(steps) } = input;
    let mut memory = Scratch::of(Pool::workspace(most.min(MOST_LIVE)));
    let mut pool = match Pool::new(capacity, alignment, most, memory.lend()) {
        Ok(pool) => pool,
        Err(e) => {
            assert!(!alignment.is_power_of_two() || most > MOST_LIVE, "{e}");
            return;
        }
    };
    assert!(alignment.is_power_of_two() && most <= MOST_LIVE);
    let capacity = capacity / alignment * alignment;
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut order = Vec::new();
    let (mut peak, mut footprint) = (0, 0);
    for step in steps {
        match step {
            Step::Malloc(bytes) => {
                let holes = holes(&live, capacity);
                let largest = holes.iter().map(|&(size, _)| size).max().unwrap_or(0);
                let size = bytes.checked_next_multiple_of(alignment);
                let fit = holes.into_iter().filter(|&(hole, _)| size.is_some_and(|size| size <= hole)).min();
                match (pool.malloc(bytes), fit) {
                    (Err(e), _) if bytes == 0 => assert_eq!(e, Error::ZeroSize { block: 0 }),
                    (Err(e), None) => {
                        assert_eq!(e, Error::OutOfMemory { needed: size.unwrap_or(bytes), largest });
                    }
                    (Err(e), Some(_)) => {
                        assert_eq!(e, Error::BufferTooSmall { buffer: Buffer::Live, needed: most + 1, got: most });
                        assert!(live.len() >= most, "{} of {most} blocks", live.len());
                    }
                    (Ok(address), fit) => {
                        assert_eq!(Some(address), fit.map(|(_, address)| address));
                        live.insert(address, size.unwrap_or(0));
                        order.push(address);
                    }
                }
            }
            Step::Free(which) if !order.is_empty() => {
                let address = order.remove(usize::from(which) % order.len());
                assert_eq!(pool.free(address), Ok(()));
                live.remove(&address);
            }
            Step::Free(which) => {
                assert_eq!(pool.free(which.into()), Err(Error::NotAllocated { address: which.into() }))
            }
            Step::FreeStray(address) if !live.contains_key(&address) => {
                assert_eq!(pool.free(address), Err(Error::NotAllocated { address }));
            }
            _ => {}
        }
        let sum: u64 = live.values().sum();
        peak = peak.max(sum);
        footprint = footprint.max(live.last_key_value().map_or(0, |(address, size)| address + size));
        assert_eq!((pool.live(), pool.peak(), pool.footprint()), (sum, peak, footprint));
    }
});

/// The size and the address of each range of free addresses.
fn holes(live: &BTreeMap<u64, u64>, capacity: u64) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut end = 0;
    for (&address, &size) in live.iter().chain([(&capacity, &0)]) {
        if address > end {
            holes.push((address - end, end));
        }
        end = address + size;
    }
    holes
}
