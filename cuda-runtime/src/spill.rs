//! Moves blocks between a device and a disk.
//!
//! Problem: a block is written to a disk, or read from it, in the order of a stream. The thread that launches must not
//! wait for the disk. The disk, and the link between device and host, must work at the same time.
//!
//! Steps. A block goes in parts, through two pinned buffers for each stream. Copies over the link are work of the
//! stream. Reads and writes of the disk are jobs of the runtime's own threads, which hold no lock meanwhile. Functions
//! that the driver calls on the host, in the stream's order, connect copies and jobs.
//! - *Out*: before a part is copied to a buffer, the stream waits until the buffer's last write is done; after the
//!   copy, the write of the part becomes a job. While one buffer is written, the other one is filled. The stream does
//!   not wait for the last writes: the block's bytes on the device are free once they are all copied to buffers.
//! - *In*: the first two parts become jobs at once, each further one as soon as its buffer has been copied to the
//!   device. Before a part is copied, the stream waits until it has been read.
//! - *Order*: a job begins after all earlier jobs that use the same buffer, or the same bytes of the disk if one of the
//!   two writes them. So a block is read from the disk only after it was written, though no stream waits for the write.
//!
//! After an error no further job reads or writes, so that nothing waits forever; the iteration ends with that error.
//!
//! Limit: on a GPU the stream waits in a function that the driver calls on the host, and the driver may make such calls
//! of all streams on one thread: then the wait of one stream delays the calls of the others. Jobs that were given
//! earlier go on meanwhile.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::backend::{Backend, PinnedBytes};
use crate::error::{Error, Result, StorageOperation};
use crate::step::PAGE;
use crate::storage::{Disk, Storage};
use crate::waits::LANES;

/// In bytes.
const PART: u64 = 2 << 20;
/// While one is copied to or from the device, the other is written or filled.
const PER_LANE: usize = 2;
/// One for each buffer of the streams that copy out and in.
const THREADS: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Job {
    buffer: usize,
    operation: StorageOperation,
    /// In bytes, a multiple of a page.
    at: u64,
    bytes: u64,
    is_running: bool,
}

impl Job {
    fn conflicts(&self, other: &Self) -> bool {
        let shares = self.at < other.at + other.bytes && other.at < self.at + self.bytes;
        let writes = [self, other].iter().any(|job| job.operation == StorageOperation::Write);
        self.buffer == other.buffer || (shares && writes)
    }
}

#[derive(Default)]
struct Queue {
    /// In the order given. Of one buffer, at most a write and then a read.
    jobs: Vec<Job>,
    fault: Option<Error>,
    is_closed: bool,
}

impl Queue {
    /// A job may begin if it conflicts with none before it.
    fn begin(&mut self) -> Option<Job> {
        let may_begin = |i: &usize| {
            let job = &self.jobs[*i];
            !job.is_running && self.jobs[..*i].iter().all(|earlier| !earlier.conflicts(job))
        };
        let first = (0..self.jobs.len()).find(may_begin)?;
        self.jobs[first].is_running = true;
        Some(self.jobs[first])
    }

    fn end(&mut self, done: &Job) {
        self.jobs.retain(|job| !(job.is_running && job.buffer == done.buffer));
    }
}

struct Shared {
    disk: Arc<dyn Disk>,
    buffers: Vec<PinnedBytes>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, buffer: usize, operation: StorageOperation, at: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PAGE);
        self.queue().jobs.push(Job { buffer, operation, at, bytes, is_running: false });
        self.changed.notify_all();
    }

    fn wait(&self, of: impl Fn(&Job) -> bool) {
        let mut queue = self.queue();
        while queue.jobs.iter().any(&of) {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_for(&self, buffer: usize) {
        self.wait(|job| job.buffer == buffer);
    }

    fn serve(&self) {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.begin() {
                let is_broken = queue.fault.is_some();
                drop(queue);
                let outcome = if is_broken { Ok(()) } else { self.transfer(&job) };
                queue = self.queue();
                queue.end(&job);
                if let Err(error) = outcome {
                    queue.fault.get_or_insert(error);
                }
                self.changed.notify_all();
            } else if queue.is_closed && queue.jobs.is_empty() {
                return;
            } else {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn transfer(&self, job: &Job) -> Result<()> {
        let outside = Error::OutOfRange { address: job.at, bytes: job.bytes };
        // SAFETY: of the jobs of a buffer one runs at a time, and its stream copies only when none is left. The buffer
        // is not given back before the threads have ended.
        let buffer = unsafe { self.buffers[job.buffer].slice(0, job.bytes) }.ok_or(outside)?;
        let transfer = || match job.operation {
            StorageOperation::Write => self.disk.write(job.at, buffer),
            _ => self.disk.read(job.at, buffer),
        };
        // If a disk panics, the job still has to end.
        let outcome = catch_unwind(AssertUnwindSafe(transfer));
        outcome.unwrap_or_else(|_| Err(io::Error::other("panic"))).map_err(|e| Error::storage(job.operation, &e))
    }
}

pub(crate) struct Spill<B: Backend> {
    storage: Storage,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    buffers: Vec<B::Pinned>,
    part: u64,
    /// Parts so far, which use the stream's buffers in turn.
    given: [AtomicUsize; LANES],
}

impl<B: Backend> Spill<B> {
    pub(crate) fn new(backend: &B, storage: &Storage, bytes: u64) -> Result<Self> {
        let disk = storage.disk().clone();
        disk.reserve(bytes.max(1)).map_err(|e| Error::storage(StorageOperation::Extend, &e))?;
        let part = PART.min(bytes.max(1).next_multiple_of(PAGE));
        let buffers = (0..LANES * PER_LANE).map(|_| backend.pin(part)).collect::<Result<Vec<_>>>()?;
        let shared = Arc::new(Shared {
            disk,
            buffers: buffers.iter().map(|buffer| backend.pinned(buffer)).collect(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        });
        // From here on a failure ends what was begun.
        let mut spill =
            Self { storage: storage.clone(), shared, threads: Vec::new(), buffers, part, given: Default::default() };
        for _ in 0..THREADS {
            let shared = spill.shared.clone();
            let begun = thread::Builder::new().name("sublet disk".to_owned()).spawn(move || shared.serve());
            spill.threads.push(begun.map_err(|e| Error::storage(StorageOperation::Thread, &e))?);
        }
        Ok(spill)
    }

    pub(crate) const fn storage(&self) -> &Storage {
        &self.storage
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.shared.queue().fault.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn forgive(&self) {
        self.shared.queue().fault = None;
    }

    pub(crate) fn settle(&self) {
        self.shared.wait(|_| true);
    }

    /// Writes whole pages. No stream or job may use the buffers ([`Self::settle`]).
    pub(crate) unsafe fn store(&self, at: u64, content: &[u8]) -> Result<()> {
        // SAFETY: as promised.
        let buffer = unsafe { self.buffer() }?;
        for (done, part) in (at..).step_by(buffer.len()).zip(content.chunks(buffer.len())) {
            buffer[..part.len()].copy_from_slice(part);
            let written = self.shared.disk.write(done, &buffer[..whole_pages(part.len())]);
            written.map_err(|e| Error::storage(StorageOperation::Write, &e))?;
        }
        Ok(())
    }

    /// No stream or job may use the buffers ([`Self::settle`]).
    pub(crate) unsafe fn load(&self, at: u64, content: &mut [u8]) -> Result<()> {
        // SAFETY: as promised.
        let buffer = unsafe { self.buffer() }?;
        for (done, part) in (at..).step_by(buffer.len()).zip(content.chunks_mut(buffer.len())) {
            let read = self.shared.disk.read(done, &mut buffer[..whole_pages(part.len())]);
            read.map_err(|e| Error::storage(StorageOperation::Read, &e))?;
            part.copy_from_slice(&buffer[..part.len()]);
        }
        Ok(())
    }

    /// Nobody else may use the buffers ([`Self::settle`]). The slice does not outlive `self`.
    unsafe fn buffer<'a>(&self) -> Result<&'a mut [u8]> {
        // SAFETY: as promised, and the buffers are this tier's alone.
        let buffer = unsafe { self.shared.buffers[0].slice(0, self.part) };
        buffer.ok_or(Error::OutOfRange { address: 0, bytes: self.part })
    }

    /// The number of the buffer; offset and length in bytes.
    fn parts(&self, lane: usize, bytes: u64) -> Vec<(usize, u64, u64)> {
        let count = usize::try_from(bytes.div_ceil(self.part)).unwrap_or(usize::MAX);
        let first = self.given[lane].fetch_add(count, Ordering::Relaxed);
        let part = |(i, begin): (usize, u64)| {
            (lane * PER_LANE + first.wrapping_add(i) % PER_LANE, begin, self.part.min(bytes - begin))
        };
        (0..bytes)
            .step_by(usize::try_from(self.part).unwrap_or(usize::MAX))
            .enumerate()
            .map(|(i, b)| part((i, b)))
            .collect()
    }

    fn call(&self, backend: &B, stream: &B::Stream, call: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = self.shared.clone();
        backend.call(stream, Box::new(move || call(&shared)))
    }

    pub(crate) fn copy_out(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        from: u64,
        at: u64,
        bytes: u64,
    ) -> Result<()> {
        let parts = self.parts(lane, bytes);
        let mut next = parts.iter().map(|&(buffer, ..)| buffer);
        if let Some(first) = next.next() {
            self.call(backend, stream, move |shared| shared.wait_for(first))?;
        }
        for &(buffer, begin, part) in &parts {
            backend.copy_out(stream, from + begin, (&self.buffers[buffer], 0), part)?;
            let following = next.next();
            self.call(backend, stream, move |shared| {
                shared.give(buffer, StorageOperation::Write, at + begin, part);
                if let Some(following) = following {
                    shared.wait_for(following);
                }
            })?;
        }
        Ok(())
    }

    pub(crate) fn copy_in(
        &self,
        backend: &B,
        (lane, stream): (usize, &B::Stream),
        at: u64,
        to: u64,
        bytes: u64,
    ) -> Result<()> {
        let parts = self.parts(lane, bytes);
        let ahead: Vec<_> = parts.iter().copied().take(PER_LANE).collect();
        self.call(backend, stream, move |shared| {
            for &(buffer, begin, part) in &ahead {
                shared.give(buffer, StorageOperation::Read, at + begin, part);
            }
            if let Some(&(first, ..)) = ahead.first() {
                shared.wait_for(first);
            }
        })?;
        for (i, &(buffer, begin, part)) in parts.iter().enumerate() {
            backend.copy_in(stream, (&self.buffers[buffer], 0), to + begin, part)?;
            let (following, further) = (parts.get(i + 1).copied(), parts.get(i + PER_LANE).copied());
            if let Some((following, ..)) = following {
                self.call(backend, stream, move |shared| {
                    if let Some((buffer, begin, part)) = further {
                        shared.give(buffer, StorageOperation::Read, at + begin, part);
                    }
                    shared.wait_for(following);
                })?;
            }
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Spill<B> {
    fn drop(&mut self) {
        self.shared.queue().is_closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // Panics are caught in the thread.
            let _ = thread.join();
        }
    }
}

fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(usize::try_from(PAGE).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Each access says where it has begun, and ends with this error once it is let go.
    #[derive(Debug)]
    struct Failing {
        begun: Sender<u64>,
        ends: [Mutex<Receiver<i32>>; 2],
    }

    impl Failing {
        fn access(&self, at: u64) -> io::Result<()> {
            self.begun.send(at).unwrap();
            let code = self.ends[usize::try_from(at / PAGE).unwrap()].lock().unwrap().recv().unwrap();
            Err(io::Error::from_raw_os_error(code))
        }
    }

    impl Disk for Failing {
        fn reserve(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn read(&self, at: u64, _: &mut [u8]) -> io::Result<()> {
            self.access(at)
        }
        fn write(&self, at: u64, _: &[u8]) -> io::Result<()> {
            self.access(at)
        }
    }

    #[test]
    fn after_a_fault_no_job_begins_and_the_first_fault_is_told() {
        let mut memory = vec![0_u8; 2 * 4096];
        let (begun, has_begun) = channel();
        let ((first, first_ends), (second, second_ends)) = (channel(), channel());
        let shared = Shared {
            disk: Arc::new(Failing { begun, ends: [first_ends, second_ends].map(Mutex::new) }),
            buffers: memory.chunks_mut(4096).map(|part| PinnedBytes::new(part.as_mut_ptr(), part.len())).collect(),
            queue: Mutex::default(),
            changed: Condvar::new(),
        };
        shared.give(0, StorageOperation::Write, 0, PAGE);
        shared.give(1, StorageOperation::Write, PAGE, PAGE);
        thread::scope(|scope| {
            scope.spawn(|| shared.serve());
            scope.spawn(|| shared.serve());
            let mut both = [has_begun.recv().unwrap(), has_begun.recv().unwrap()];
            both.sort_unstable();
            assert_eq!(both, [0, PAGE]);
            // While the other job is still running, this one fails, and a third is given.
            first.send(5).unwrap();
            shared.wait_for(0);
            shared.give(0, StorageOperation::Read, 0, PAGE);
            first.send(6).unwrap();
            shared.wait_for(0);
            second.send(28).unwrap();
            shared.wait_for(1);
            shared.queue().is_closed = true;
            shared.changed.notify_all();
        });
        assert!(has_begun.try_recv().is_err(), "a job has begun after the fault");
        assert_eq!(shared.queue().fault, Some(Error::Storage { operation: StorageOperation::Write, code: 5 }));
    }
}
