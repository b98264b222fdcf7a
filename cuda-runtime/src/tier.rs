//! Where copies of blocks go: to pinned memory, or to a file.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::pinned::{HostPlace, POOLS};
#[cfg(target_os = "linux")]
use crate::storage::{Spill, Storage};

/// Where copies go.
pub(crate) enum Tier<B: Backend> {
    Pinned([Option<B::Pinned>; POOLS.len()]),
    #[cfg(target_os = "linux")]
    Storage {
        spill: Spill<B>,
        /// Where in the file each pool begins.
        begins: [u64; POOLS.len()],
    },
}

impl<B: Backend> Tier<B> {
    /// Pinned memory for pools of so many bytes.
    pub(crate) fn pinned(backend: &B, bytes: [u64; POOLS.len()]) -> Result<Self> {
        let pool = |i: usize| (bytes[i] > 0).then(|| backend.pin(bytes[i], POOLS[i])).transpose();
        Ok(Self::Pinned([pool(0)?, pool(1)?]))
    }

    /// A file for pools of so many bytes, one after the other.
    #[cfg(target_os = "linux")]
    pub(crate) fn storage(backend: &B, storage: Storage, bytes: [u64; POOLS.len()]) -> Result<Self> {
        let whole = bytes.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        let spill = Spill::new(backend, storage, whole)?;
        Ok(Self::Storage { spill, begins: [0, bytes[0]] })
    }

    /// The same tier for pools of so many bytes: other pinned memory, or the same file, made long enough.
    pub(crate) fn renewed(&self, backend: &B, bytes: [u64; POOLS.len()]) -> Result<Self> {
        match self {
            Self::Pinned(_) => Self::pinned(backend, bytes),
            #[cfg(target_os = "linux")]
            Self::Storage { spill, .. } => Self::storage(backend, spill.storage(), bytes),
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
        to: HostPlace,
        bytes: u64,
    ) -> Result<()> {
        match self {
            Self::Pinned(pools) => backend.copy_out(stream, from, (pool::<B>(pools, to, bytes)?, to.at), bytes),
            #[cfg(target_os = "linux")]
            Self::Storage { spill, begins } => {
                spill.copy_out(backend, (lane, stream), from, begins[to.pool] + to.at, bytes)
            }
        }
    }

    pub(crate) fn copy_in(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        from: HostPlace,
        to: u64,
        bytes: u64,
    ) -> Result<()> {
        match self {
            Self::Pinned(pools) => backend.copy_in(stream, (pool::<B>(pools, from, bytes)?, from.at), to, bytes),
            #[cfg(target_os = "linux")]
            Self::Storage { spill, begins } => {
                spill.copy_in(backend, (lane, stream), begins[from.pool] + from.at, to, bytes)
            }
        }
    }

    /// Puts a copy there, when nothing is under way.
    ///
    /// # Safety
    /// Nothing is.
    pub(crate) unsafe fn store(&self, backend: &B, to: HostPlace, content: &[u8]) -> Result<()> {
        match self {
            Self::Pinned(pools) => {
                let bytes = content.len() as u64;
                let pinned = backend.pinned(pool::<B>(pools, to, bytes)?);
                // SAFETY: nothing is under way, and the pool is this tier's alone.
                let slice = unsafe { pinned.slice(to.at, bytes) };
                slice.ok_or(Error::OutOfRange { address: to.at, bytes })?.copy_from_slice(content);
                Ok(())
            }
            #[cfg(target_os = "linux")]
            // SAFETY: nothing is under way.
            Self::Storage { spill, begins } => unsafe { spill.store(backend, begins[to.pool] + to.at, content) },
        }
    }

    /// Gets a copy from there, when nothing is under way.
    ///
    /// # Safety
    /// Nothing is.
    pub(crate) unsafe fn load(&self, backend: &B, from: HostPlace, content: &mut [u8]) -> Result<()> {
        match self {
            Self::Pinned(pools) => {
                let bytes = content.len() as u64;
                let pinned = backend.pinned(pool::<B>(pools, from, bytes)?);
                // SAFETY: nothing is under way, and the pool is this tier's alone.
                let slice = unsafe { pinned.slice(from.at, bytes) };
                content.copy_from_slice(slice.ok_or(Error::OutOfRange { address: from.at, bytes })?);
                Ok(())
            }
            #[cfg(target_os = "linux")]
            // SAFETY: nothing is under way.
            Self::Storage { spill, begins } => unsafe { spill.load(backend, begins[from.pool] + from.at, content) },
        }
    }

    /// What has gone wrong on the host so far.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Pinned(_) => Ok(()),
            #[cfg(target_os = "linux")]
            Self::Storage { spill, .. } => spill.check(),
        }
    }

    /// Forgets it.
    pub(crate) fn forgive(&self) {
        match self {
            Self::Pinned(_) => {}
            #[cfg(target_os = "linux")]
            Self::Storage { spill, .. } => spill.forgive(),
        }
    }
}

fn pool<B: Backend>(pools: &[Option<B::Pinned>; POOLS.len()], place: HostPlace, bytes: u64) -> Result<&B::Pinned> {
    pools[place.pool].as_ref().ok_or(Error::OutOfRange { address: place.at, bytes })
}
