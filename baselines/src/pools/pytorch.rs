//! `PyTorch`'s caching allocator for CUDA (`c10/cuda/CUDACachingAllocator.cpp`), with the settings that it
//! has when `PYTORCH_CUDA_ALLOC_CONF` is empty.
//!
//! Modelled: sizes in granules of 512 bytes; a pool for requests of up to 1 MiB in segments of 2 MiB, and
//! one for larger requests: below 10 MiB in segments of 20 MiB, from there on in segments of their own size,
//! rounded up to 2 MiB; best fit, the lowest address among equals; a range is split if at least 512 bytes
//! are left (small pool) or more than 1 MiB (large pool), and given out whole otherwise; neighbours are
//! joined within a segment; segments are kept. Not modelled: the settings (`expandable_segments`,
//! `max_split_size_mb`, rounding to powers of two, garbage collection), several streams, the segments that
//! are given back when the device is full, and where the device puts segments: here each later one has
//! higher addresses, which decides ties only.

use super::Pool;
use super::segments::Segments;

const MIB: u64 = 1 << 20;
/// Sizes are multiples of this, in bytes.
const GRANULE: u64 = 512;
/// The largest request of the small pool, in bytes.
const LARGEST_SMALL: u64 = MIB;
/// Size in bytes of the segments of the small pool.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// A request of this many bytes or more that finds no free range gets a segment of its own.
const SMALLEST_OWN: u64 = 10 * MIB;
/// Size in bytes of the segments that smaller requests of the large pool share.
const LARGE_SEGMENT: u64 = 20 * MIB;
/// The size of a segment for one request is a multiple of this many bytes.
const OWN_GRANULE: u64 = 2 * MIB;

/// The allocator of one device, used by one stream.
#[derive(Debug, Default)]
pub(super) struct PyTorch {
    small: Segments,
    large: Segments,
    reserved: u64,
}

/// Whether the small pool splits a free range that has `rest` bytes more than the request.
const fn splits_small(rest: u64) -> bool {
    rest >= GRANULE
}

/// Whether the large pool splits a free range that has `rest` bytes more than the request.
const fn splits_large(rest: u64) -> bool {
    rest > LARGEST_SMALL
}

impl PyTorch {
    /// The pool for a request of a rounded size, and which ranges it splits.
    fn pool(&mut self, size: u64) -> (&mut Segments, fn(u64) -> bool) {
        if size <= LARGEST_SMALL { (&mut self.small, splits_small) } else { (&mut self.large, splits_large) }
    }
}

impl Pool for PyTorch {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(GRANULE)?;
        let (pool, splits) = self.pool(size);
        if let Some(address) = pool.take(size, splits) {
            return Some(address);
        }
        let segment = if size <= LARGEST_SMALL {
            SMALL_SEGMENT
        } else if size < SMALLEST_OWN {
            LARGE_SEGMENT
        } else {
            size.checked_next_multiple_of(OWN_GRANULE)?
        };
        let address = self.reserved;
        self.reserved = address.checked_add(segment)?;
        let (pool, splits) = self.pool(size);
        pool.add(address, segment);
        pool.take(size, splits)
    }

    fn free(&mut self, address: u64, size: u64) {
        // Rounding does not cross the bound between the pools, which is a multiple of the granule.
        self.pool(size).0.give_back(address);
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses<const N: usize>(pool: &mut PyTorch, sizes: [u64; N]) -> [u64; N] {
        sizes.map(|size| pool.malloc(size).unwrap())
    }

    #[test]
    fn small_requests_share_segments_of_2_mib() {
        let mut pool = PyTorch::default();
        assert_eq!(addresses(&mut pool, [1, 513, MIB]), [0, 512, 1536]);
        assert_eq!(pool.reserved(), 2 * MIB);
        // 1 MiB − 1536 bytes are left of the first segment.
        assert_eq!(addresses(&mut pool, [MIB, MIB - 1536]), [2 * MIB, 1536 + MIB]);
        assert_eq!(pool.reserved(), 4 * MIB);
    }

    #[test]
    fn segments_follow_the_size_of_the_request() {
        for (size, segment) in [
            (MIB, 2 * MIB),
            (MIB + 1, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB - 511, 10 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 1, 12 * MIB),
            (33 * MIB, 34 * MIB),
        ] {
            let mut pool = PyTorch::default();
            assert_eq!(pool.malloc(size), Some(0));
            assert_eq!(pool.reserved(), segment, "{size}");
        }
    }

    #[test]
    fn a_rest_of_1_mib_is_given_out_with_a_large_request() {
        let mut pool = PyTorch::default();
        // 20 − 9 − 9 = 2 MiB are left, of which a request for 2 MiB takes all.
        assert_eq!(addresses(&mut pool, [9 * MIB, 9 * MIB, 2 * MIB]), [0, 9 * MIB, 18 * MIB]);
        pool.free(0, 9 * MIB);
        // 8 MiB in the hole of 9: the rest is not more than 1 MiB and goes along, so 1.5 MiB need a segment.
        assert_eq!(addresses(&mut pool, [8 * MIB, MIB + MIB / 2]), [0, 20 * MIB]);
        pool.free(0, 8 * MIB);
        assert_eq!(addresses(&mut pool, [9 * MIB]), [0], "the whole hole has come back");
        assert_eq!(pool.reserved(), 40 * MIB);
    }

    #[test]
    fn a_pool_does_not_serve_the_other() {
        let mut pool = PyTorch::default();
        assert_eq!(addresses(&mut pool, [40 * MIB]), [0]);
        pool.free(0, 40 * MIB);
        assert_eq!(addresses(&mut pool, [512, 2 * MIB]), [40 * MIB, 0]);
        assert_eq!(pool.reserved(), 42 * MIB);
    }

    #[test]
    fn segments_are_never_joined() {
        let mut pool = PyTorch::default();
        assert_eq!(addresses(&mut pool, [10 * MIB, 10 * MIB]), [0, 10 * MIB]);
        pool.free(0, 10 * MIB);
        pool.free(10 * MIB, 10 * MIB);
        assert_eq!(addresses(&mut pool, [20 * MIB]), [20 * MIB]);
        assert_eq!(pool.reserved(), 40 * MIB);
    }
}
