//! Where blocks that leave the device are copied to: pinned memory, or a disk.

use crate::backend::Backend;
use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use crate::{spill::Spill, storage::Storage};

/// The place of blocks that have left the device: pinned memory of the host, or a disk. The blocks' offsets are planned
/// ([`pinned`](crate::pinned)), and are the same for both kinds of place.
pub(crate) enum Tier<B: Backend> {
    /// Pinned memory of the host; `None` if the program copies no block to the host.
    Pinned(Option<B::Pinned>),
    #[cfg(target_os = "linux")]
    Storage(Spill<B>),
}

impl<B: Backend> Tier<B> {
    /// Allocates `bytes` bytes of pinned memory of the host, for blocks that are copied off the device.
    pub(crate) fn pinned(backend: &B, bytes: u64) -> Result<Self> {
        Ok(Self::Pinned((bytes > 0).then(|| backend.pin(bytes)).transpose()?))
    }

    /// Reserves `bytes` bytes of a disk, for blocks that are copied off the device.
    #[cfg(target_os = "linux")]
    pub(crate) fn storage(backend: &B, storage: &Storage, bytes: u64) -> Result<Self> {
        Ok(Self::Storage(Spill::new(backend, storage, bytes)?))
    }

    /// Makes room of `bytes` bytes for the blocks that leave the device in a new program, which replaces the present
    /// one. The room is of the same kind as `self`: new pinned memory, or the same disk, made long enough.
    pub(crate) fn renewed(&self, backend: &B, bytes: u64) -> Result<Self> {
        match self {
            Self::Pinned(_) => Self::pinned(backend, bytes),
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => Self::storage(backend, spill.storage(), bytes),
        }
    }

    pub(crate) const fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned(_))
    }

    pub(crate) fn copy_out(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        from: u64,
        to: u64,
        bytes: u64,
    ) -> Result<()> {
        match self {
            Self::Pinned(memory) => backend.copy_out(stream, from, (some(memory.as_ref(), to, bytes)?, to), bytes),
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.copy_out(backend, (lane, stream), from, to, bytes),
        }
    }

    pub(crate) fn copy_in(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        from: u64,
        to: u64,
        bytes: u64,
    ) -> Result<()> {
        match self {
            Self::Pinned(memory) => backend.copy_in(stream, (some(memory.as_ref(), from, bytes)?, from), to, bytes),
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.copy_in(backend, (lane, stream), from, to, bytes),
        }
    }

    /// Writes `content`, the value of a block, to offset `to` of the pinned memory or disk.
    ///
    /// # Safety
    /// No other work uses the pinned memory or disk meanwhile.
    pub(crate) unsafe fn store(&self, backend: &B, to: u64, content: &[u8]) -> Result<()> {
        match self {
            Self::Pinned(memory) => {
                let bytes = content.len() as u64;
                let pinned = backend.pinned(some(memory.as_ref(), to, bytes)?);
                // SAFETY: nothing is under way, and the memory is this tier's alone.
                let slice = unsafe { pinned.slice(to, bytes) };
                slice.ok_or(Error::OutOfRange { address: to, bytes })?.copy_from_slice(content);
                Ok(())
            }
            #[cfg(target_os = "linux")]
            // SAFETY: nothing is under way.
            Self::Storage(spill) => unsafe { spill.store(to, content) },
        }
    }

    /// Reads the value of a block into `content`, from offset `from` of the pinned memory or disk.
    ///
    /// # Safety
    /// No other work uses the pinned memory or disk meanwhile.
    pub(crate) unsafe fn load(&self, backend: &B, from: u64, content: &mut [u8]) -> Result<()> {
        match self {
            Self::Pinned(memory) => {
                let bytes = content.len() as u64;
                let pinned = backend.pinned(some(memory.as_ref(), from, bytes)?);
                // SAFETY: nothing is under way, and the memory is this tier's alone.
                let slice = unsafe { pinned.slice(from, bytes) };
                content.copy_from_slice(slice.ok_or(Error::OutOfRange { address: from, bytes })?);
                Ok(())
            }
            #[cfg(target_os = "linux")]
            // SAFETY: nothing is under way.
            Self::Storage(spill) => unsafe { spill.load(from, content) },
        }
    }

    /// Waits until all reads and writes of the disk are done: some may still be running after the streams have done
    /// their work. Does nothing for pinned memory.
    pub(crate) fn settle(&self) {
        match self {
            Self::Pinned(_) => {}
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.settle(),
        }
    }

    /// Returns the first error that a read or write of the disk has had since the last [`forgive`](Self::forgive).
    /// Pinned memory has none.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Pinned(_) => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.check(),
        }
    }

    /// Forgets the error that [`check`](Self::check) returns: from then on the disk is read and written again.
    pub(crate) fn forgive(&self) {
        match self {
            Self::Pinned(_) => {}
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.forgive(),
        }
    }
}

fn some<P>(memory: Option<&P>, at: u64, bytes: u64) -> Result<&P> {
    memory.ok_or(Error::OutOfRange { address: at, bytes })
}
