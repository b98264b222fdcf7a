//! What the allocator for PyTorch asks of a device.

use crate::{MemoryInfo, Result};

/// A stream, as the driver names it; 0 is the legacy default stream, and PyTorch's default.
pub type Stream = usize;

/// What is asked of the driver of one device: the table that tests fill with other functions.
pub trait Driver: Send {
    /// Memory that work in this stream may use from here on.
    ///
    /// # Errors
    /// As the driver tells it, here and below; [`OutOfMemory`](crate::Error::OutOfMemory) if it is that.
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64>;

    /// Takes memory back that work in this stream has used up to here.
    ///
    /// # Errors
    /// As above.
    fn free(&mut self, address: u64, stream: Stream) -> Result<()>;

    /// Memory in the order of no stream, which is allowed while streams are captured.
    ///
    /// # Errors
    /// As above.
    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64>;

    /// Takes back what [`alloc_unordered`](Self::alloc_unordered) gave. No work uses it any more.
    ///
    /// # Errors
    /// As above.
    fn free_unordered(&mut self, address: u64) -> Result<()>;

    /// Whether work in this stream becomes part of a graph instead of being done. Allowed at any time.
    ///
    /// # Errors
    /// As above.
    fn is_capturing(&mut self, stream: Stream) -> Result<bool>;

    /// Has what `stream` is given from here on wait for what `other` was given. Neither is captured.
    ///
    /// # Errors
    /// As above.
    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()>;

    /// Waits for the work of a stream, which is not captured.
    ///
    /// # Errors
    /// As above.
    fn synchronize(&mut self, stream: Stream) -> Result<()>;

    /// Waits for the work of all streams, none of which is captured.
    ///
    /// # Errors
    /// As above.
    fn synchronize_all(&mut self) -> Result<()>;

    /// Gives back to the device what nobody has.
    ///
    /// # Errors
    /// As above.
    fn trim(&mut self) -> Result<()>;

    /// The bytes that are held now, for somebody or nobody, and the most so far.
    ///
    /// # Errors
    /// As above.
    fn reserved(&mut self) -> Result<(u64, u64)>;

    /// The memory of the device.
    ///
    /// # Errors
    /// As above.
    fn memory(&mut self) -> Result<MemoryInfo>;
}
