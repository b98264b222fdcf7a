//! An allocator that is checked with data: every block is filled with a pattern, which is checked before the block is
//! freed.

use std::collections::BTreeMap;

use sublet_core::replay::{self, Allocator, Config, Memory};
use sublet_core::{Block, Error};

/// An [`Allocator`] whose memory is never freed: tests are short.
///
/// # Panics
/// If the allocator refuses the configuration.
#[must_use]
pub fn allocator(config: &Config) -> Allocator<'static> {
    let len = replay::memory(config);
    // The allocator does not depend on what this memory holds at first.
    let memory = Memory {
        blocks: vec![Block::new(7, 9, 11); len.blocks].leak(),
        words: vec![u64::MAX; len.words].leak(),
        indices: vec![u32::MAX; len.indices].leak(),
    };
    Allocator::new(config, memory).expect("the memory is as long as was asked for")
}

/// An allocator, the memory that it gives out, and a naive model of it: the live blocks with their addresses and
/// contents.
pub struct Checked {
    /// The allocator.
    pub allocator: Allocator<'static>,
    config: Config,
    memory: Vec<u8>,
    /// The live blocks, by address: the size in bytes, and the pattern that fills the block.
    live: BTreeMap<u64, (u64, u8)>,
    mallocs: u64,
}

impl Checked {
    /// A fresh allocator, with real memory behind its range.
    ///
    /// # Panics
    /// If the allocator refuses the configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let memory = vec![0; usize::try_from(config.capacity).expect("tests are small")];
        Self { allocator: allocator(&config), config, memory, live: BTreeMap::new(), mallocs: 0 }
    }

    /// Allocates, and fills the block.
    ///
    /// # Errors
    /// As the allocator.
    ///
    /// # Panics
    /// If the block is not aligned, is outside the range, or shares a byte with a live block.
    pub fn malloc(&mut self, bytes: u64) -> Result<u64, Error> {
        let address = self.allocator.malloc(bytes)?;
        let end = address + bytes;
        assert_eq!(address % self.config.alignment, 0);
        assert!(end <= self.config.capacity, "{address} + {bytes}");
        if let Some((&low, &(size, _))) = self.live.range(..end).next_back() {
            assert!(low + size <= address, "[{address}, {end}) is handed out, and [{low}, {}) is live", low + size);
        }
        self.mallocs += 1;
        let pattern = u8::try_from(self.mallocs % 251).expect("below 251");
        self.bytes(address, bytes).fill(pattern);
        self.live.insert(address, (bytes, pattern));
        Ok(address)
    }

    /// Checks the content of the block, and frees it.
    ///
    /// # Panics
    /// If the content is not what was written, or the allocator does not know the block.
    pub fn free(&mut self, address: u64) {
        self.read(address);
        self.live.remove(&address);
        self.allocator.free(address).expect("the block is live");
    }

    /// Checks the content of the block.
    ///
    /// # Panics
    /// If the content is not what was written.
    pub fn read(&mut self, address: u64) {
        let (size, pattern) = self.live[&address];
        assert!(self.bytes(address, size).iter().all(|&b| b == pattern), "the block at {address} was overwritten");
    }

    /// How many blocks are live.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.len()
    }

    /// Checks the content of all live blocks, and that the allocator refuses addresses at which none begins.
    ///
    /// # Panics
    /// If one of these is not so.
    pub fn check(&mut self) {
        for address in self.live.keys().copied().collect::<Vec<_>>() {
            self.read(address);
            let inside = address + 1;
            assert_eq!(self.allocator.free(inside), Err(Error::NotAllocated { address: inside }));
        }
    }

    fn bytes(&mut self, address: u64, bytes: u64) -> &mut [u8] {
        let begin = usize::try_from(address).expect("tests are small");
        &mut self.memory[begin..][..usize::try_from(bytes).expect("tests are small")]
    }
}
