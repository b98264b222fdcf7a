//! No reuse at all: every block has memory of its own, for the whole iteration.
//!
//! Modelled: the sum of the sizes, what a framework takes that gives every tensor a buffer when the network
//! is built. Not modelled: the granules of the device's own allocator.

use super::Pool;

/// Every request is served from new memory.
#[derive(Debug, Default)]
pub(super) struct NoReuse {
    reserved: u64,
}

impl Pool for NoReuse {
    fn malloc(&mut self, size: u64) -> Option<u64> {
        let address = self.reserved;
        self.reserved = address.checked_add(size)?;
        Some(address)
    }

    fn free(&mut self, _address: u64, _size: u64) {}

    fn reserved(&self) -> u64 {
        self.reserved
    }
}
