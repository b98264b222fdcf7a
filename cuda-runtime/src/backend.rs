//! The interface to a device: an arena in which blocks are placed, streams, events, and copies that the caller does not
//! wait for.
//!
//! Streams and events work as CUDA's do. Work on one stream runs in the order in which it was given; work on different
//! streams runs in any order unless an event orders it. [Recording](Backend::record) an event marks a point in a
//! stream: the event happens when the stream has done all work that it was given before. A stream that
//! [waits](Backend::wait) for the event goes on when it has happened. An event can be recorded several times: a stream
//! that is told to wait for it waits for the latest point that is marked by then. Waiting for an event that was never
//! recorded does nothing. No function waits for a device unless its documentation says so, and none panics.
//!
//! If work fails, one of the later calls returns the error, and so do all calls after it that give a stream work or
//! wait for some. Then no work runs any more, and a call that waits returns the error instead of hanging.

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
    /// Bytes of the device's memory that are not in use. On a GPU that shares the host's memory, also those that the
    /// operating system would free for a process ([`available`](crate::integrated::available)).
    pub free: u64,
    /// How many bytes of memory the device has in all, in use or not.
    pub total: u64,
}

/// A function that runs on the host when a stream reaches it, in the order of the stream's work. It may wait for other
/// threads.
pub type Call = Box<dyn FnOnce() + Send>;

/// A device that programs run on: a GPU, or the host in place of one.
///
/// The values of the associated types are handles: to drop a handle frees what it stands for. Memory must not be
/// dropped while a stream works on it: [`Runtime`](crate::Runtime) waits for its streams before it drops memory.
pub trait Backend {
    /// A range of device memory in which blocks are placed.
    type Arena;
    /// Pinned host memory.
    type Pinned;
    /// A queue of work that runs in order.
    type Stream;
    /// A point in the work of a stream, which other streams and the host can wait for.
    type Event;

    /// How the memory of the device behaves.
    fn attributes(&self) -> Attributes;

    /// How much memory the device has, and how much of it is free.
    ///
    /// # Errors
    /// The [`Error`](crate::Error) that the device reports.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Makes an arena of at least `bytes` bytes. If the device's arenas can grow in place, also reserves addresses, so
    /// that this one can grow to `room` bytes later; to fewer where the device does not grant so many addresses.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has too little memory, or too few addresses; or another
    /// error that the device reports.
    fn reserve(&self, bytes: u64, room: u64) -> Result<Self::Arena>;

    /// Grows an arena to at least `bytes` bytes, without moving it. Its content stays. Does nothing if the arena
    /// already has `bytes` bytes or more.
    ///
    /// # Errors
    /// [`CannotGrow`](crate::Error::CannotGrow) if `bytes` exceeds the addresses that were reserved for the arena
    /// (`room` of [`reserve`](Self::reserve)), or if the device's arenas cannot grow in place;
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the device has too little memory; or another error that the device
    /// reports. After an error the arena is as it was.
    fn grow(&self, arena: &mut Self::Arena, bytes: u64) -> Result<()>;

    /// The address at which an arena begins.
    fn address(&self, arena: &Self::Arena) -> u64;

    /// How many bytes an arena has.
    fn size(&self, arena: &Self::Arena) -> u64;

    /// Allocates `bytes` bytes of pinned memory on the host. The memory begins at the start of a page. The processor
    /// caches it, and so can read it fast.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if the host cannot pin so much memory; or another error that the
    /// device reports.
    fn pin(&self, bytes: u64) -> Result<Self::Pinned>;

    /// The address of pinned memory on the host, and its length in bytes.
    fn pinned(&self, memory: &Self::Pinned) -> PinnedBytes;

    /// Makes a stream. Its work is not ordered with that of other streams, unless [`wait`](Self::wait) orders it.
    ///
    /// # Errors
    /// The error that the device reports.
    fn stream(&self) -> Result<Self::Stream>;

    /// Makes an event. With `timed` the device notes when the event happens, for [`elapsed_ns`](Self::elapsed_ns).
    ///
    /// # Errors
    /// The error that the device reports.
    fn event(&self, timed: bool) -> Result<Self::Event>;

    /// Records the event on the stream: the event happens when the stream has done all work that it was given before
    /// this call.
    ///
    /// # Errors
    /// The error that the device reports.
    fn record(&self, event: &Self::Event, stream: &Self::Stream) -> Result<()>;

    /// Makes all work that the stream is given after this call wait for the event.
    ///
    /// # Errors
    /// The error that the device reports.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<()>;

    /// Blocks this thread until the event has happened.
    ///
    /// # Errors
    /// The error that the device reports. If the device is lost, this returns an error and does not wait for ever.
    fn synchronize(&self, event: &Self::Event) -> Result<()>;

    /// The time from event `from` to event `to`, in ns. Both events must be timed, and must have happened.
    ///
    /// # Errors
    /// [`NotTimed`](crate::Error::NotTimed) if one of the events is not timed. If one of them has not happened yet, the
    /// error is `NotTimed` too, or one that the device reports.
    fn elapsed_ns(&self, from: &Self::Event, to: &Self::Event) -> Result<f64>;

    /// Has the stream copy `bytes` bytes from the device address `from` to pinned memory. `to` is that memory, and an
    /// offset in it, in bytes. Does not wait for the copy.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange) if the range does not lie inside the pinned memory; or an error of the
    /// device.
    fn copy_out(&self, stream: &Self::Stream, from: u64, to: (&Self::Pinned, u64), bytes: u64) -> Result<()>;

    /// Has the stream copy `bytes` bytes from pinned memory to the device address `to`. `from` is that memory, and an
    /// offset in it, in bytes. Does not wait for the copy.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::Error::OutOfRange) if the range does not lie inside the pinned memory; or an error of the
    /// device.
    fn copy_in(&self, stream: &Self::Stream, from: (&Self::Pinned, u64), to: u64, bytes: u64) -> Result<()>;

    /// Has the stream copy `bytes` bytes from one device address to another. The two ranges must share no byte. Does
    /// not wait for the copy.
    ///
    /// # Errors
    /// The error that the device reports.
    fn copy_within(&self, stream: &Self::Stream, from: u64, to: u64, bytes: u64) -> Result<()>;

    /// Has the host call a function when the stream has done all work that it was given before this call. The stream
    /// goes on when the function returns. The function must not call the backend, because CUDA forbids such calls.
    ///
    /// # Errors
    /// The error that the device reports, or [`MissingSymbol`](crate::Error::MissingSymbol) if the driver is too old to
    /// have such calls. After an error the function is not called.
    fn call(&self, stream: &Self::Stream, call: Call) -> Result<()>;
}

/// The address and the length of pinned memory of the host. This value does not own the memory: the memory is freed
/// when the [`Backend::Pinned`] that it belongs to is dropped.
#[derive(Clone, Copy, Debug)]
pub struct PinnedBytes {
    start: *mut u8,
    len: usize,
}

// SAFETY: the struct is only an address and a length; code that reads or writes there must show that nobody else does
// at the same time.
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
    /// As long as the slice lives, the memory is not freed, and nobody else reads or writes these bytes.
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
