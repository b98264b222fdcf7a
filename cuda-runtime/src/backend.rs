//! The interface to a device: one arena, streams, events, and copies that the caller does not wait for.
//!
//! The words are CUDA's. Work on one stream runs in the order in which it was given; work on different streams runs in
//! any order, but for events. A stream that [waits](Backend::wait) for an event goes on when all work is done that was
//! given to the event's stream before the event was last [recorded](Backend::record). Waiting for an event that was
//! never recorded does nothing. No function waits for a device unless its documentation says so, and none panics.
//!
//! A failure of earlier work is returned by any later call, and by all calls after that: nothing runs any more, and
//! nothing hangs, so that waiting ends with the error.

use crate::error::Result;

/// How the memory of a device behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Whether host and device share one memory: then a copy to the host frees nothing.
    pub integrated: bool,
    /// Whether an arena can grow at its address, without moving.
    pub grows_in_place: bool,
}

/// The memory of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryInfo {
    /// Bytes of the device's memory that are not in use.
    pub free: u64,
    /// All bytes of the device's memory.
    pub total: u64,
}

/// A function to run on the host in the order of a stream; it may wait for other threads.
pub type Call = Box<dyn FnOnce() + Send>;

/// A device, or a stand-in for one.
///
/// Handles give back what they hold when they are dropped. Memory must not be dropped while a stream works on it:
/// [`Runtime`](crate::Runtime) waits for its streams before it drops memory.
pub trait Backend {
    /// A range of device memory in which blocks are placed.
    type Arena;
    /// Pinned host memory.
    type Pinned;
    /// A queue of work that runs in order.
    type Stream;
    /// A point in the work of a stream, which other streams and the host can wait for.
    type Event;

    /// The properties of the device.
    fn attributes(&self) -> Attributes;

    /// How much memory the device has.
    ///
    /// # Errors
    /// [`Error`](crate::Error) as the device tells it.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Makes an arena of `bytes` bytes. If the device's arenas can grow in place, reserves addresses for `room` bytes,
    /// to which it may grow.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has not so much memory.
    fn reserve(&self, bytes: u64, room: u64) -> Result<Self::Arena>;

    /// Grows an arena to at least `bytes`, at its address. Its content stays.
    ///
    /// # Errors
    /// [`CannotGrow`](crate::Error::CannotGrow) if more bytes than its room are asked for;
    /// [`OutOfMemory`](crate::Error::OutOfMemory). After an error the arena is as it was.
    fn grow(&self, arena: &mut Self::Arena, bytes: u64) -> Result<()>;

    /// The address at which an arena begins.
    fn address(&self, arena: &Self::Arena) -> u64;

    /// How many bytes an arena has.
    fn size(&self, arena: &Self::Arena) -> u64;

    /// Allocates pinned memory on the host, from the start of a page. The processor caches it.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the host has not so much memory to pin.
    fn pin(&self, bytes: u64) -> Result<Self::Pinned>;

    /// Where on the host pinned memory lies, and how long it is.
    fn pinned(&self, memory: &Self::Pinned) -> PinnedBytes;

    /// Makes a stream. Its work is not ordered with that of other streams, unless [`wait`](Self::wait) orders it.
    ///
    /// # Errors
    /// As the device tells it.
    fn stream(&self) -> Result<Self::Stream>;

    /// Makes an event. With `timed` the device notes when the event happens, for [`elapsed_ns`](Self::elapsed_ns).
    ///
    /// # Errors
    /// As the device tells it.
    fn event(&self, timed: bool) -> Result<Self::Event>;

    /// Records the event: it happens when the stream has done all work that it has been given so far.
    ///
    /// # Errors
    /// As the device tells it.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;

    /// Makes all work that the stream is given from now on wait for the event.
    ///
    /// # Errors
    /// As the device tells it.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;

    /// Waits, on this thread, for the event.
    ///
    /// # Errors
    /// As the device tells it. If the device is lost, this returns an error and does not wait for ever.
    fn synchronize(&self, event: &Self::Event) -> Result<()>;

    /// The time between two timed events that have happened, in ns.
    ///
    /// # Errors
    /// [`NotTimed`](crate::Error::NotTimed) if one of the events is not timed. If one of them has not happened yet, the
    /// error is `NotTimed` too, or one that the device tells.
    fn elapsed_ns(&self, from: &Self::Event, to: &Self::Event) -> Result<f64>;

    /// Copies `bytes` bytes from an address on the device to an offset in pinned memory, in the stream's order.
    ///
    /// # Errors
    /// As the device tells it.
    fn copy_out(&self, stream: &Self::Stream, from: u64, to: (&Self::Pinned, u64), bytes: u64) -> Result<()>;

    /// Copies `bytes` bytes from an offset in pinned memory to an address on the device, in the stream's order.
    ///
    /// # Errors
    /// As the device tells it.
    fn copy_in(&self, stream: &Self::Stream, from: (&Self::Pinned, u64), to: u64, bytes: u64) -> Result<()>;

    /// Copies `bytes` bytes between two addresses on the device, in the stream's order; the ranges must share no byte.
    ///
    /// # Errors
    /// As the device tells it.
    fn copy_within(&self, stream: &Self::Stream, from: u64, to: u64, bytes: u64) -> Result<()>;

    /// Calls a function on the host, in the stream's order. The function must not call the backend.
    ///
    /// # Errors
    /// As the device tells it; after an error the function is not called.
    fn call(&self, stream: &Self::Stream, call: Call) -> Result<()>;
}

/// Bytes of pinned memory, which the processor, the device and a file use, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct PinnedBytes {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is an address; who reads or writes there must say why nobody else does at the same time.
unsafe impl Send for PinnedBytes {}
// SAFETY: as above.
unsafe impl Sync for PinnedBytes {}

impl PinnedBytes {
    /// Describes the `len` bytes from `start` on.
    #[must_use]
    pub const fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len }
    }

    /// The length of this memory, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the length of this memory is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `bytes` bytes from offset `at` of this memory on; `None` if they do not all lie in it.
    ///
    /// # Safety
    /// The memory is not given back, and nobody else reads or writes these bytes, as long as the slice lives.
    #[must_use]
    pub unsafe fn slice<'a>(self, at: u64, bytes: u64) -> Option<&'a mut [u8]> {
        let (at, bytes) = (usize::try_from(at).ok()?, usize::try_from(bytes).ok()?);
        if at.checked_add(bytes)? > self.len {
            return None;
        }
        // SAFETY: the range lies within the memory, and the caller vouches for the rest.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(at), bytes) })
    }
}
