//! The interface through which the allocator for PyTorch uses a device.

use crate::{MemoryInfo, Result};

/// A stream: the driver's handle of it, as a number. 0 is the legacy default stream, which is also PyTorch's default.
pub type Stream = usize;

/// The calls of one device's driver that the allocator for PyTorch makes. Tests put another implementation in the
/// driver's place.
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
    /// any time.
    ///
    /// # Errors
    /// The error that the driver reports.
    fn is_capturing(&mut self, stream: Stream) -> Result<bool>;

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
}
