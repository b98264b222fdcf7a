//! The options of a host that stands in for a device, and the types in which its kernels get their operands. Pinned
//! memory is the host's side of copies to and from the device.

use std::time::Duration;

use sublet_core::simulate::Device;

/// Which threads do the work of the streams, and in which order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Every stream is a thread.
    Threads {
        /// Whether copies take as long as the speed of the links gives, and kernels as long as their launches say; if
        /// false, all work is done as fast as the host can.
        paced: bool,
        /// The seed and the longest time of random waits, one before each kernel, copy and host call; `None` if there
        /// are no such waits.
        delays: Option<(u64, Duration)>,
    },
    /// No work is done until a thread waits for an event or for all streams. That thread then does the streams' work
    /// itself; the order says which stream goes on where several can.
    Ordered(Order),
}

/// Which stream does its next piece of work where several could, because none of them has to wait for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Of the streams that can go on, the one with the least simulated time so far; of equal ones the one that was made
    /// first.
    Time,
    /// A random one of the streams that can go on; the number is the seed of the random numbers.
    Random(u64),
    /// Of the streams that can go on, the one of the lowest number; but the stream of the number given here only if no
    /// other can, so that its work is done as late as possible. Streams are numbered from 0, in the order in which they
    /// were made.
    Last(usize),
}

/// The options of the emulated device, which runs on the processor and in the memory of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Which threads do the work of the device's streams, and in which order.
    pub mode: Mode,
    /// The memory of the device, in bytes.
    pub memory: u64,
    /// The device that the host stands in for: the speed of its links with the host, and whether host and device share
    /// one memory. Its `host_capacity`, the most bytes of blocks that the host can hold, does not limit pinned memory,
    /// which also holds buffers and consists of whole pages. The verifier checks that capacity.
    pub device: Device,
    /// Whether to search for races: pairs of pieces of work on two streams that use the same bytes, where at least one
    /// writes them and nothing says which runs first. `HostBackend::races` returns them.
    pub races: bool,
}

impl Options {
    /// Options with this mode and `memory` bytes on the device. Its links have 12 GB/s and a latency of 10 µs; races
    /// are not searched for.
    #[must_use]
    pub const fn new(mode: Mode, memory: u64) -> Self {
        Self { mode, memory, device: Device::symmetric(12e9), races: false }
    }
}

/// How many bytes, streams and events of a device are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InUse {
    /// The bytes of all arenas on the device.
    pub device: u64,
    /// The bytes of the host's memory that are pinned.
    pub pinned: u64,
    /// How many streams of the device are in use.
    pub streams: u64,
    /// How many events of the device are in use.
    pub events: u64,
}

/// One operand of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The address of the operand's first byte on the device.
    pub address: u64,
    /// The length of the operand, in bytes.
    pub bytes: u64,
    /// Whether the kernel writes the operand. A kernel may also read an operand that it writes.
    pub write: bool,
}

/// The bytes of one operand, while the kernel runs.
#[derive(Debug)]
pub enum Slice<'a> {
    /// The bytes of an operand that the kernel only reads.
    Read(&'a [u8]),
    /// The bytes of an operand that the kernel writes, and may read too.
    Write(&'a mut [u8]),
}

impl Slice<'_> {
    /// The operand's bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Write(bytes) => bytes,
        }
    }

    /// The operand's bytes, to write; empty if the kernel only reads the operand.
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Read(_) => &mut [],
            Self::Write(bytes) => bytes,
        }
    }
}
