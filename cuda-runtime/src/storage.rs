//! Storage that blocks are swapped to instead of the host's memory: a file, or another [`Disk`].
//!
//! On a GPU that shares the host's memory, storage is the only place outside that memory. The file is read and written
//! past the page cache (`O_DIRECT`), because the page cache is in that same memory. The offsets of blocks in the file
//! are planned as those in pinned memory are; the module `spill` moves the data.
//!
//! The file has no name: it is gone when it is closed, even after a crash.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, OFlags};

use crate::error::{Error, Result, StorageOperation};

/// Whether the operating system may cache in memory the file that blocks are swapped to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caching {
    /// The file is read and written past the page cache: it is opened with `O_DIRECT`.
    Past,
    /// The file is opened without `O_DIRECT`, for file systems that do not have it. The operating system then caches
    /// swapped blocks in memory as long as some is free.
    Through,
}

/// A disk that blocks can be swapped to. Several threads read and write it at once; while one writes a range, no other
/// uses a byte of that range.
pub trait Disk: Debug + Send + Sync {
    /// Makes sure that the disk has room for `bytes` bytes, so that a full disk is an error before anything is written.
    /// What the disk holds stays.
    ///
    /// # Errors
    /// The error of the operating system.
    fn reserve(&self, bytes: u64) -> io::Result<()>;

    /// Fills `bytes` with what the disk holds from byte `at` on. `at` and the length of `bytes` are multiples of a page
    /// (4096 bytes).
    ///
    /// # Errors
    /// The error of the operating system; or an error if the disk ends before `bytes` is full.
    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes `bytes` to the disk, from byte `at` on. `at` and the length of `bytes` are multiples of a page (4096
    /// bytes).
    ///
    /// # Errors
    /// The error of the operating system.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Disk for File {
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, FallocateFlags::empty(), 0, bytes)?)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }
}

/// A disk that blocks are swapped to. Clones share that disk.
#[derive(Clone, Debug)]
pub struct Storage {
    disk: Arc<dyn Disk>,
}

impl Storage {
    /// Storage for swapped blocks: a file without a name in this folder.
    ///
    /// # Errors
    /// [`Error::Storage`] if the file cannot be made. The error's operation is [`StorageOperation::OpenDirect`] if
    /// `caching` is [`Caching::Past`] and the file system does not support `O_DIRECT`; otherwise it is
    /// [`StorageOperation::Open`]. Some file systems that keep files in memory do not support `O_DIRECT`.
    pub fn in_folder(folder: &Path, caching: Caching) -> Result<Self> {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let (operation, flags) = match caching {
            Caching::Past => (StorageOperation::OpenDirect, OFlags::DIRECT),
            Caching::Through => (StorageOperation::Open, OFlags::empty()),
        };
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".sublet-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let opened = options.custom_flags(flags.bits().cast_signed()).open(&path);
        // A file system that refuses the flag may have made the file.
        let named = std::fs::remove_file(&path);
        match opened {
            Ok(file) => named.map(|()| Self::on(file)).map_err(|e| Error::storage(StorageOperation::Open, &e)),
            // 22 is EINVAL: the flag is refused. Every other error is about the folder.
            Err(e) if e.raw_os_error() == Some(22) => Err(Error::storage(operation, &e)),
            Err(e) => Err(Error::storage(StorageOperation::Open, &e)),
        }
    }

    /// Storage for swapped blocks on this disk: a file, or anything else that implements [`Disk`].
    #[must_use]
    pub fn on(disk: impl Disk + 'static) -> Self {
        Self { disk: Arc::new(disk) }
    }

    pub(crate) const fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }
}
