//! A tier of storage: copies go to a file instead of the host's memory.
//!
//! On a GPU that shares the host's memory this is the only place outside it. The file is read and written past the page
//! cache (`O_DIRECT`), which would be that memory again, through a pinned buffer for each stream: a block goes in parts,
//! each is copied and then written by the host in the stream's order, and comes back the same way. A copy's place in the
//! file is planned as it is in pinned memory.
//!
//! The file has no name: it is gone when it is closed, even by a crash. What the disk refuses ends the iteration with an
//! error; the data on the device is worth nothing then.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};

use crate::backend::{Backend, Traffic};
use crate::error::{Error, Result, StorageOperation};
use crate::program::PAGE;
use crate::waits::LANES;

/// How many bytes go at once.
const PART: u64 = 4 << 20;

/// Whether the operating system may keep what is in the file in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caching {
    /// It may not: `O_DIRECT`.
    Past,
    /// It may: for a file system that has nothing else. What is swapped takes memory as long as there is some.
    Through,
}

/// A file to swap to.
#[derive(Clone, Debug)]
pub struct Storage {
    file: Arc<File>,
}

impl Storage {
    /// A file without a name in this folder.
    ///
    /// # Errors
    /// [`Error::Storage`]: with [`StorageOperation::OpenDirect`] the file system has no files past the page cache, as some
    /// in memory have not.
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
            Ok(file) => named.map(|()| Self { file: Arc::new(file) }).map_err(|e| failed(StorageOperation::Open, &e)),
            // 22 is EINVAL: the flag is refused. Everything else is about the folder.
            Err(e) if e.raw_os_error() == Some(22) => Err(failed(operation, &e)),
            Err(e) => Err(failed(StorageOperation::Open, &e)),
        }
    }
}

fn failed(operation: StorageOperation, error: &std::io::Error) -> Error {
    Error::Storage { operation, code: error.raw_os_error().unwrap_or(0) }
}

/// A file that is long enough, and the buffers on the way to it.
pub(crate) struct Spill<B: Backend> {
    file: Arc<File>,
    buffers: [B::Pinned; LANES],
    part: u64,
    /// What the host's part of a copy met first.
    fault: Arc<Mutex<Option<Error>>>,
}

impl<B: Backend> Spill<B> {
    pub(crate) fn new(backend: &B, storage: Storage, bytes: u64) -> Result<Self> {
        // The space is there or it is told now, not when it is written.
        let extended = rustix::fs::fallocate(&*storage.file, FallocateFlags::empty(), 0, bytes.max(1));
        let code =
            |e: rustix::io::Errno| Error::Storage { operation: StorageOperation::Extend, code: e.raw_os_error() };
        extended.map_err(code)?;
        let part = PART.min(bytes.max(1).next_multiple_of(PAGE));
        let buffer = || backend.pin(part, Traffic::BothWays);
        let buffers = [buffer()?, buffer()?, buffer()?];
        Ok(Self { file: storage.file, buffers, part, fault: Arc::default() })
    }

    /// Its file.
    pub(crate) fn storage(&self) -> Storage {
        Storage { file: self.file.clone() }
    }

    /// What has gone wrong so far.
    pub(crate) fn check(&self) -> Result<()> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone().map_or(Ok(()), Err)
    }

    /// Forgets it.
    pub(crate) fn forgive(&self) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Writes to the file, now.
    ///
    /// # Safety
    /// No stream is using the buffers.
    pub(crate) unsafe fn store(&self, backend: &B, at: u64, content: &[u8]) -> Result<()> {
        // SAFETY: as promised.
        let buffer = unsafe { self.buffer(backend) }?;
        for (done, part) in (at..).step_by(buffer.len()).zip(content.chunks(buffer.len())) {
            buffer[..part.len()].copy_from_slice(part);
            let pages = part.len().next_multiple_of(usize::try_from(PAGE).unwrap_or(usize::MAX));
            self.file.write_all_at(&buffer[..pages], done).map_err(|e| failed(StorageOperation::Write, &e))?;
        }
        Ok(())
    }

    /// Reads from the file, now.
    ///
    /// # Safety
    /// No stream is using the buffers.
    pub(crate) unsafe fn load(&self, backend: &B, at: u64, content: &mut [u8]) -> Result<()> {
        // SAFETY: as promised.
        let buffer = unsafe { self.buffer(backend) }?;
        for (done, part) in (at..).step_by(buffer.len()).zip(content.chunks_mut(buffer.len())) {
            let pages = part.len().next_multiple_of(usize::try_from(PAGE).unwrap_or(usize::MAX));
            self.file.read_exact_at(&mut buffer[..pages], done).map_err(|e| failed(StorageOperation::Read, &e))?;
            part.copy_from_slice(&buffer[..part.len()]);
        }
        Ok(())
    }

    /// # Safety
    /// No stream is using the buffers, nobody else has one, and they live as long as the slice.
    unsafe fn buffer<'a>(&self, backend: &B) -> Result<&'a mut [u8]> {
        // SAFETY: as promised, and this tier's alone.
        let buffer = unsafe { backend.pinned(&self.buffers[0]).slice(0, self.part) };
        buffer.ok_or(Error::OutOfRange { address: 0, bytes: self.part })
    }

    pub(crate) fn copy_out(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        from: u64,
        at: u64,
        bytes: u64,
    ) -> Result<()> {
        self.parts(bytes, |done, part| {
            backend.copy_out(stream, from + done, (&self.buffers[lane], 0), part)?;
            self.transfer(backend, (lane, stream), at + done, part, StorageOperation::Write)
        })
    }

    pub(crate) fn copy_in(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        at: u64,
        to: u64,
        bytes: u64,
    ) -> Result<()> {
        self.parts(bytes, |done, part| {
            self.transfer(backend, (lane, stream), at + done, part, StorageOperation::Read)?;
            backend.copy_in(stream, (&self.buffers[lane], 0), to + done, part)
        })
    }

    fn parts(&self, bytes: u64, mut copy: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let mut done = 0;
        while done < bytes {
            let part = self.part.min(bytes - done);
            copy(done, part)?;
            done += part;
        }
        Ok(())
    }

    /// Between the stream's buffer and the file, whole pages: those of a copy are its own.
    fn transfer(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        at: u64,
        bytes: u64,
        operation: StorageOperation,
    ) -> Result<()> {
        let (file, fault) = (self.file.clone(), self.fault.clone());
        let buffer = backend.pinned(&self.buffers[lane]);
        let pages = bytes.next_multiple_of(PAGE);
        backend.call(
            stream,
            Box::new(move || {
                let mut fault = fault.lock().unwrap_or_else(PoisonError::into_inner);
                if fault.is_some() {
                    return;
                }
                // SAFETY: only this stream uses the buffer, in its order, and it is not given back before all streams
                // are done.
                let Some(buffer) = (unsafe { buffer.slice(0, pages) }) else { return };
                let outcome = match operation {
                    StorageOperation::Write => file.write_all_at(buffer, at),
                    _ => file.read_exact_at(buffer, at),
                };
                *fault = outcome.err().map(|e| failed(operation, &e));
            }),
        )
    }
}
