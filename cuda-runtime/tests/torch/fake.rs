//! A driver that hands out numbers.

use std::collections::{BTreeMap, BTreeSet};

use sublet_cuda::torch::{Driver, Stream};
use sublet_cuda::{Error, Memory, MemoryInfo, Result};

pub(crate) const MIB: u64 = 1 << 20;
/// Stands for all streams, and for none.
pub(crate) const UNORDERED: Stream = usize::MAX;
/// Streams that are captured, and another one.
pub(crate) const CAPTURED: Stream = 11;
pub(crate) const OTHER: Stream = 7;

/// Keeps what is freed until it is trimmed; memory is a number of bytes, in any pieces.
pub(crate) struct Fake {
    pub(crate) capacity: u64,
    pub(crate) next: u64,
    pub(crate) live: BTreeMap<u64, (u64, Stream)>,
    pub(crate) cached: u64,
    pub(crate) peak: u64,
    pub(crate) synchronized: Vec<Stream>,
    /// Which streams were told to follow which.
    pub(crate) followed: Vec<(Stream, Stream)>,
    /// Streams that are captured: what would spoil that is a panic.
    pub(crate) captured: BTreeSet<Stream>,
    /// Streams that are destroyed: who names them waits for all.
    pub(crate) gone: BTreeSet<Stream>,
    pub(crate) calls: usize,
    /// Requests beyond the capacity.
    pub(crate) refused: usize,
    /// The call that fails, and how.
    pub(crate) fails: Option<(usize, Error)>,
}

impl Fake {
    pub(crate) fn new(capacity: u64) -> Self {
        let (live, synchronized) = (BTreeMap::new(), Vec::new());
        Self {
            capacity,
            next: 0x7f00_0000_0000,
            live,
            cached: 0,
            peak: 0,
            synchronized,
            followed: Vec::new(),
            captured: BTreeSet::new(),
            gone: BTreeSet::new(),
            calls: 0,
            refused: 0,
            fails: None,
        }
    }

    pub(crate) fn failing(at: usize, with: Error) -> Self {
        Self { fails: Some((at, with)), ..Self::new(1 << 30) }
    }

    pub(crate) fn call(&mut self) -> Result<()> {
        self.calls += 1;
        match &self.fails {
            Some((at, error)) if *at == self.calls - 1 => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// A call that has no place in a stream that is captured.
    pub(crate) fn not_captured(&self, stream: Stream) {
        assert!(!self.captured.contains(&stream), "stream {stream} is captured");
    }

    pub(crate) fn used(&self) -> u64 {
        self.live.values().map(|(bytes, _)| bytes).sum()
    }
}

impl Driver for Fake {
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        self.not_captured(stream);
        self.call()?;
        self.cached = self.cached.saturating_sub(bytes);
        if self.used() + self.cached + bytes > self.capacity {
            self.refused += 1;
            return Err(Error::OutOfMemory { memory: Memory::Device, bytes });
        }
        let address = self.next;
        self.next += bytes.next_multiple_of(2 * MIB) + 2 * MIB;
        self.live.insert(address, (bytes, stream));
        self.peak = self.peak.max(self.used());
        Ok(address)
    }

    fn free(&mut self, address: u64, stream: Stream) -> Result<()> {
        self.not_captured(stream);
        self.call()?;
        if self.gone.contains(&stream) {
            self.synchronized.push(UNORDERED);
        }
        let (bytes, _) = self.live.remove(&address).expect("only what is allocated is freed");
        self.cached += bytes;
        Ok(())
    }

    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64> {
        let captured = std::mem::take(&mut self.captured);
        let given = self.alloc(bytes, UNORDERED);
        self.captured = captured;
        given
    }

    fn free_unordered(&mut self, address: u64) -> Result<()> {
        assert_eq!(self.live[&address].1, UNORDERED);
        self.free(address, UNORDERED)?;
        self.cached = 0;
        Ok(())
    }

    fn is_capturing(&mut self, stream: Stream) -> Result<Option<bool>> {
        self.call()?;
        Ok((!self.gone.contains(&stream)).then(|| self.captured.contains(&stream)))
    }

    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()> {
        self.not_captured(stream);
        self.not_captured(other);
        self.call()?;
        if self.gone.contains(&stream) || self.gone.contains(&other) {
            self.synchronized.push(UNORDERED);
        } else {
            self.followed.push((stream, other));
        }
        Ok(())
    }

    fn synchronize(&mut self, stream: Stream) -> Result<()> {
        self.not_captured(stream);
        self.call()?;
        self.synchronized.push(stream);
        Ok(())
    }

    fn synchronize_all(&mut self) -> Result<()> {
        assert!(self.captured.is_empty(), "{:?} are captured", self.captured);
        self.call()?;
        self.synchronized.push(UNORDERED);
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        self.call()?;
        self.cached = 0;
        Ok(())
    }

    fn reserved(&mut self) -> Result<(u64, u64)> {
        self.call()?;
        Ok((self.used() + self.cached, self.peak))
    }

    fn memory(&mut self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: self.capacity - self.used(), total: self.capacity })
    }
}
