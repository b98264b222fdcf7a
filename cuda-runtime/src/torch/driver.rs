//! The interface through which the allocator for PyTorch uses a device.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{MemoryInfo, Result};

/// A stream: the driver's handle of it, as a number. 0 is the legacy default stream, which is also PyTorch's default. A
/// thread's own default stream has one handle in all threads; here it has a number of its own in each.
pub type Stream = usize;

/// `CU_STREAM_LEGACY`, which is also 0.
const LEGACY: Stream = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: Stream = 2;
/// No handle is so high: handles are small, or addresses.
const OF_THREADS: Stream = 1 << (Stream::BITS - 1);

/// The stream that this thread means by a handle.
pub(super) fn named(handle: Stream) -> Stream {
    match handle {
        LEGACY => 0,
        PER_THREAD => of_this_thread(),
        handle => handle,
    }
}

/// `None` for the default stream of another thread: this thread has no handle of it.
pub(super) fn handle(stream: Stream) -> Option<Stream> {
    if !is_of_a_thread(stream) {
        return Some(stream);
    }
    (stream == of_this_thread()).then_some(PER_THREAD)
}

pub(super) const fn is_of_a_thread(stream: Stream) -> bool {
    stream & OF_THREADS > 0
}

fn of_this_thread() -> Stream {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Stream = OF_THREADS | THREADS.fetch_add(1, Ordering::Relaxed));
    NUMBER.with(|number| *number)
}

/// The calls of one device's driver that the allocator for PyTorch makes. Tests put another implementation in the
/// driver's place.
///
/// A stream may be gone, or may be the default stream of another thread: then `free`, `follow` and `synchronize` wait
/// for the work of all streams instead.
pub trait Driver: Send {
    /// Allocates `bytes` bytes of device memory for work that this stream is given later; returns the address.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has too little memory; otherwise the error that the
    /// driver reports.
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64>;

    /// Frees what [`alloc`](Self::alloc) returned, once all work is done that this stream was given before this call.
    /// Waits for that work only if the device has no stream-ordered allocations.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn free(&mut self, address: u64, stream: Stream) -> Result<()>;

    /// Allocates `bytes` bytes of device memory; returns the address. Work in any stream may use the memory from now
    /// on, without waiting for another stream. Allowed also while streams are captured into a CUDA graph.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has too little memory; otherwise the error that the
    /// driver reports.
    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64>;

    /// Frees what [`alloc_unordered`](Self::alloc_unordered) returned. The caller has made sure that no work uses the
    /// memory any more.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn free_unordered(&mut self, address: u64) -> Result<()>;

    /// Whether this stream is captured: its work becomes part of a CUDA graph instead of being done. May be called at
    /// any time. `None` if the stream is gone, or is the default stream of another thread.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn is_capturing(&mut self, stream: Stream) -> Result<Option<bool>>;

    /// Makes work that `stream` is given after this call wait for the work that `other` was given before. Neither
    /// stream is being captured into a CUDA graph.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()>;

    /// Waits until all work of this stream is done. The stream is not being captured into a CUDA graph.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn synchronize(&mut self, stream: Stream) -> Result<()>;

    /// Waits until the work of all streams is done. No stream is being captured into a CUDA graph.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn synchronize_all(&mut self) -> Result<()>;

    /// Gives back to the device the unused memory that the driver keeps for later allocations.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn trim(&mut self) -> Result<()>;

    /// How many bytes of the device's memory the driver holds for the allocator, used or not: now, and at most since
    /// the device was opened. The second figure may be too high: where the driver allocates in two ways, it is the sum
    /// of the highest figures of both.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn reserved(&mut self) -> Result<(u64, u64)>;

    /// How much memory the device has, and how much of it is free.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn memory(&mut self) -> Result<MemoryInfo>;

    /// A sentence for the user, told once: where memory comes from, if not from a pool of the driver's, and why.
    fn note(&mut self) -> Option<String> {
        None
    }
}
