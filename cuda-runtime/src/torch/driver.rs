//! The interface of the allocator for PyTorch to a device.

use crate::{MemoryInfo, Result};

/// A stream, as the driver names it; 0 is the legacy default stream, and PyTorch's default.
pub type Stream = usize;

/// The driver of one device. Tests put another one in its place.
pub trait Driver: Send {
    /// Allocates memory for later work in this stream.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has too little memory; otherwise as the driver tells
    /// it.
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64>;

    /// Frees memory after the work that this stream has been given so far.
    ///
    /// # Errors
    /// As the driver tells it.
    fn free(&mut self, address: u64, stream: Stream) -> Result<()>;

    /// Allocates memory outside the order of streams, which is allowed while streams are captured.
    ///
    /// # Errors
    /// As the driver tells it.
    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64>;

    /// Frees what [`alloc_unordered`](Self::alloc_unordered) returned. No work uses it any more.
    ///
    /// # Errors
    /// As the driver tells it.
    fn free_unordered(&mut self, address: u64) -> Result<()>;

    /// Whether work in this stream becomes part of a graph instead of being done. Allowed at any time.
    ///
    /// # Errors
    /// As the driver tells it.
    fn is_capturing(&mut self, stream: Stream) -> Result<bool>;

    /// Makes later work of `stream` wait for the work that `other` was given. Neither is captured.
    ///
    /// # Errors
    /// As the driver tells it.
    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()>;

    /// Waits for the work of a stream, which is not captured.
    ///
    /// # Errors
    /// As the driver tells it.
    fn synchronize(&mut self, stream: Stream) -> Result<()>;

    /// Waits for the work of all streams, none of which is captured.
    ///
    /// # Errors
    /// As the driver tells it.
    fn synchronize_all(&mut self) -> Result<()>;

    /// Returns the driver's unused memory to the device.
    ///
    /// # Errors
    /// As the driver tells it.
    fn trim(&mut self) -> Result<()>;

    /// The bytes of the device's memory that are held now, used or not, and the most that were held so far.
    ///
    /// # Errors
    /// As the driver tells it.
    fn reserved(&mut self) -> Result<(u64, u64)>;

    /// How much memory the device has, and how much of it is free.
    ///
    /// # Errors
    /// As the driver tells it.
    fn memory(&mut self) -> Result<MemoryInfo>;
}
