//! `CnMem`, the pool of <https://github.com/NVIDIA/cnmem>, the baseline of Zhang et al. 2019.
//!
//! Modelled: sizes in granules of 512 bytes; best fit, the lowest address among equals; a range that is too large is
//! always split; free neighbours are joined, but not across separate allocations of device memory; when nothing fits,
//! the pool grows by exactly the request. Not modelled: memory that the user lets it reserve up front, which counts as
//! reserved whether it is used or not (here the pool starts empty and grows as it must), and pools for further streams,
//! which take memory from each other.

use super::Pool;
use super::segments::Segments;

/// Sizes are multiples of this, in bytes.
const GRANULE: u64 = 512;

/// The pool of one device and its default stream.
#[derive(Debug, Default)]
pub(super) struct CnMem {
    segments: Segments,
    reserved: u64,
}

impl Pool for CnMem {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        let size = size.checked_next_multiple_of(GRANULE)?;
        if let Some(address) = self.segments.take(size, |_| true) {
            return Some(address);
        }
        let address = self.reserved;
        self.reserved = address.checked_add(size)?;
        self.segments.add(address, size);
        self.segments.take(size, |_| true)
    }

    fn free(&mut self, address: u64, _size: u64) {
        self.segments.give_back(address);
    }

    fn reserved(&self) -> u64 {
        self.reserved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_granules() {
        let mut pool = CnMem::default();
        assert_eq!([1, 512, 513].map(|size| pool.malloc(size)), [Some(0), Some(512), Some(1024)]);
        assert_eq!(pool.reserved(), 512 + 512 + 1024);
    }

    #[test]
    fn what_is_left_of_a_range_serves_the_next_request() {
        let mut pool = CnMem::default();
        assert_eq!(pool.malloc(4096), Some(0));
        pool.free(0, 4096);
        assert_eq!([1024, 2048, 1024].map(|size| pool.malloc(size)), [Some(0), Some(1024), Some(3072)]);
        assert_eq!(pool.reserved(), 4096);
        pool.free(1024, 2048);
        pool.free(0, 1024);
        assert_eq!(pool.malloc(3000), Some(0), "the two are one range again");
    }

    #[test]
    fn growth_is_not_joined_with_what_was_there() {
        let mut pool = CnMem::default();
        assert_eq!([pool.malloc(1024), pool.malloc(1024)], [Some(0), Some(1024)]);
        pool.free(0, 1024);
        pool.free(1024, 1024);
        assert_eq!(pool.malloc(2048), Some(2048));
        assert_eq!(pool.reserved(), 4096);
    }
}
