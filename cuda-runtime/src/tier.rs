//! Where blocks that leave the device are copied to: pinned memory, or a disk.

use crate::backend::Backend;
use crate::error::{Error, Result};
#[cfg(target_os = "linux")]
use crate::{spill::Spill, storage::Storage};

pub(crate) enum Tier<B: Backend> {
    Pinned(Option<B::Pinned>),
    #[cfg(target_os = "linux")]
    Storage(Spill<B>),
}

impl<B: Backend> Tier<B> {
    pub(crate) fn pinned(backend: &B, bytes: u64) -> Result<Self> {
        Ok(Self::Pinned((bytes > 0).then(|| backend.pin(bytes)).transpose()?))
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn storage(backend: &B, storage: &Storage, bytes: u64) -> Result<Self> {
        Ok(Self::Storage(Spill::new(backend, storage, bytes)?))
    }

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

    /// No other work uses the memory or disk meanwhile.
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

    /// No other work uses the memory or disk meanwhile.
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

    /// Some may still be running after the streams have done their work.
    pub(crate) fn settle(&self) {
        match self {
            Self::Pinned(_) => {}
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.settle(),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Pinned(_) => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Storage(spill) => spill.check(),
        }
    }

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
