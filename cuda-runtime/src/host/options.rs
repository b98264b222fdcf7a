//! The options of a host that stands in for a device, and what its kernels get.

use std::time::Duration;

use sublet_core::simulate::Device;

/// How work is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    /// Every stream is a thread.
    Threads {
        /// Copies take as long as the links say, and kernels as long as their launch says.
        paced: bool,
        /// The seed and the longest of the delays: before each piece of work a thread waits for a random time.
        delays: Option<(u64, Duration)>,
    },
    /// Everything is done by the thread that waits, in this order.
    Ordered(Order),
}

/// Which of several streams goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The one that has worked the least time; of equal ones the one that was made first.
    Time,
    /// A random one; this is the seed.
    Random(u64),
    /// The stream of this number only when no other can go on. Streams are numbered in the order in which they were
    /// made.
    Last(usize),
}

/// The options of a host that stands in for a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How work is done.
    pub mode: Mode,
    /// The memory of the device, in bytes.
    pub memory: u64,
    /// The links; its host capacity is how many bytes can be pinned.
    pub device: Device,
    /// Whether uses without an order are searched for, for `HostBackend::races`.
    pub races: bool,
}

impl Options {
    /// Work in this mode on a device of so many bytes, with links of 12 GB/s.
    #[must_use]
    pub const fn new(mode: Mode, memory: u64) -> Self {
        Self { mode, memory, device: Device::symmetric(12e9), races: false }
    }
}

/// How much of each thing is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InUse {
    /// The bytes of all arenas.
    pub device: u64,
    /// The bytes of pinned memory.
    pub pinned: u64,
    /// The number of streams.
    pub streams: u64,
    /// The number of events.
    pub events: u64,
}

/// One operand of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Its first byte on the device.
    pub address: u64,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Whether the kernel writes it; it may read it as well.
    pub write: bool,
}

/// The bytes of one operand, while the kernel runs.
#[derive(Debug)]
pub enum Slice<'a> {
    /// The kernel only reads it.
    Read(&'a [u8]),
    /// The kernel writes it, and may read it.
    Write(&'a mut [u8]),
}

impl Slice<'_> {
    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Write(bytes) => bytes,
        }
    }

    /// The bytes to write; none of an operand that is only read.
    #[must_use]
    pub const fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Read(_) => &mut [],
            Self::Write(bytes) => bytes,
        }
    }
}
