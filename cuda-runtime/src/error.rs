//! The errors of running a plan.

use std::fmt;

/// Why a call of the runtime failed. Error numbers of the CUDA driver are those of its enumeration `CUresult`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no CUDA driver library on this machine.
    NoDriver,
    /// The driver library is too old: it lacks a function that is needed.
    MissingSymbol {
        /// The name of the driver's function that is missing.
        name: &'static str,
    },
    /// There is no GPU of the number that was asked for.
    NoDevice {
        /// The number of the GPU that was asked for, counted from 0.
        ordinal: u32,
        /// How many GPUs the driver finds.
        count: u32,
    },
    /// There is not enough memory.
    OutOfMemory {
        /// Which memory is used up.
        memory: Memory,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// A call of the driver failed; later calls may work.
    Driver {
        /// The name of the driver's function that was called; if the host is the device, what failed, in words.
        call: &'static str,
        /// The error number that the function returned, one of the driver's `CUresult`. If the host is the device, the
        /// `CUresult` that stands for such a failure.
        code: u32,
    },
    /// The device is lost, or its context has an error that stays: nothing will run on this device again in this
    /// process.
    Lost {
        /// The name of the driver's function that returned the error; if the host is the device, what failed, in words.
        call: &'static str,
        /// The error number that the function returned, one of the driver's `CUresult`. If the host is the device, the
        /// `CUresult` that stands for such a failure.
        code: u32,
    },
    /// The arena cannot grow to the size that was asked for without moving to another address.
    CannotGrow {
        /// The size that the arena was to get, in bytes.
        bytes: u64,
        /// The most bytes that the arena can have without moving.
        room: u64,
    },
    /// An argument is out of range:
    /// - a range of bytes does not lie inside its memory: the device's, pinned memory, or a buffer for swapping to a
    ///   file;
    /// - no live block begins at the address that was given; or
    /// - a fraction of the device's memory was given as the limit on its use, and is not a number from 0 to 1.
    OutOfRange {
        /// Where the range begins: an address on the device or the host, or an offset in pinned memory or in a file. If
        /// only an address was given, that address. 0 if there is no such place, as for a fraction.
        address: u64,
        /// The length of the range, in bytes; 0 where only an address or a fraction was given.
        bytes: u64,
    },
    /// Two operands of one kernel share bytes, and at least one is written. Or the two ranges of a copy within the
    /// device share bytes.
    OperandsOverlap {
        /// The first address that lies in both of the operands or ranges that share bytes.
        address: u64,
    },
    /// The time between two events was asked for, but one of them was made without timing, or has not happened.
    NotTimed,
    /// The planner or the verifier refused the plan.
    Plan(sublet_core::Error),
    /// The plan places a block at an offset that is not a multiple of the alignment that kernels need.
    Misaligned {
        /// The block's number in the trace.
        block: u32,
        /// The block's offset in the arena, in bytes.
        offset: u64,
        /// The alignment that offsets need, in bytes.
        alignment: u64,
    },
    /// The plan copies blocks to the host, but host and device share one memory, so that a copy frees nothing.
    HostIsDevice {
        /// How many bytes the plan needs on the host.
        bytes: u64,
    },
    /// The block is not persistent: its value does not pass to the next iteration, as a weight's does. Or the iteration
    /// does not use the block, or the block's length is not the one given.
    NotPersistent {
        /// The block's number in the trace.
        block: u32,
        /// The length that was given for the block, in bytes: that of the value to read or write. When the runtime
        /// changes to another program, it is that of the new program's block, which was to get this block's value.
        bytes: u64,
    },
    /// An iteration is under way, or was not finished after an error: see
    /// [`Runtime::restart`](crate::Runtime::restart).
    Interrupted,
    /// Times were asked for, but there are none. The iteration to be measured has not begun, or not all of its launches
    /// were made. Or no iteration is to be measured, as after a restart that has dropped the measurement.
    NotTimedYet,
    /// An operation of the operating system failed, such as on a file that blocks are swapped to.
    Storage {
        /// The operation that failed.
        operation: StorageOperation,
        /// The number of the operating system's error (`errno`); 0 if the error has none.
        code: i32,
    },
}

/// Kinds of memory that can be used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Memory {
    /// The device's memory.
    Device,
    /// Addresses of the device, which are reserved for an arena.
    Addresses,
    /// Pinned memory of the host.
    Pinned,
}

/// The operations of the operating system whose failure is an [`Error::Storage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageOperation {
    /// The operation opens a file with `O_DIRECT`, so that it is read and written past the page cache.
    OpenDirect,
    /// The operation opens a file.
    Open,
    /// The operation lengthens the file to which blocks are swapped, to the length that the plan needs.
    Extend,
    /// The operation reads a file.
    Read,
    /// The operation writes a file.
    Write,
    /// The operation starts a thread that reads and writes the file that blocks are swapped to.
    Thread,
    /// The operation finds out how much memory is available (`/proc/meminfo`).
    MemoryInfo,
}

/// The result of a function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn storage(operation: StorageOperation, error: &std::io::Error) -> Self {
        Self::Storage { operation, code: error.raw_os_error().unwrap_or(0) }
    }
}

impl From<sublet_core::Error> for Error {
    fn from(error: sublet_core::Error) -> Self {
        Self::Plan(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => write!(f, "there is no CUDA driver library on this machine"),
            Self::MissingSymbol { name } => write!(f, "the CUDA driver lacks {name}: it is too old"),
            Self::NoDevice { ordinal, count } => write!(f, "there is no GPU {ordinal}, but {count} of them"),
            Self::OutOfMemory { memory, bytes } => {
                let of = match memory {
                    Memory::Device => "memory on the device",
                    Memory::Addresses => "addresses on the device",
                    Memory::Pinned => "pinned memory on the host",
                };
                write!(f, "there are no {bytes} bytes of {of}")
            }
            Self::Driver { call, code } => write!(f, "{call} failed with CUDA error {code}{}", named(*code)),
            Self::Lost { call, code } => {
                write!(f, "the device is lost: {call} failed with CUDA error {code}{}", named(*code))
            }
            Self::CannotGrow { bytes, room } => {
                write!(f, "the arena cannot grow to {bytes} bytes in place, {room} are reserved")
            }
            Self::OutOfRange { address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x} are not in memory of this backend")
            }
            Self::OperandsOverlap { address } => {
                write!(f, "two operands of a kernel share the address {address:#x}, and one is written")
            }
            Self::NotTimed => write!(f, "an event without timing tells no time"),
            Self::Plan(error) => error.fmt(f),
            Self::Misaligned { block, offset, alignment } => {
                write!(f, "block {block} has the offset {offset}, which is not a multiple of {alignment}")
            }
            Self::HostIsDevice { bytes } => write!(
                f,
                "the plan keeps {bytes} bytes on the host, but host and device share one memory, so that a copy frees \
                 nothing; plan without swaps, or swap to storage"
            ),
            Self::NotPersistent { block, bytes } => {
                write!(f, "block {block} has no content of {bytes} bytes that outlives an iteration")
            }
            Self::Interrupted => write!(f, "an iteration is under way, or an error has ended it"),
            Self::NotTimedYet => write!(f, "no iteration has been timed"),
            Self::Storage { operation, code } => {
                let error = std::io::Error::from_raw_os_error(*code);
                match operation {
                    StorageOperation::OpenDirect => write!(
                        f,
                        "the file system does not open files past the page cache (O_DIRECT): {error}; use a folder on \
                         a disk, not on tmpfs, or allow the page cache"
                    ),
                    StorageOperation::Open => write!(f, "the file for swapping cannot be opened: {error}"),
                    StorageOperation::Extend => write!(f, "the file for swapping cannot be made long enough: {error}"),
                    StorageOperation::Read => write!(f, "the file for swapping cannot be read: {error}"),
                    StorageOperation::Write => write!(f, "the file for swapping cannot be written: {error}"),
                    StorageOperation::Thread => write!(f, "no thread for swapping can be started: {error}"),
                    StorageOperation::MemoryInfo => write!(f, "the available memory cannot be read: {error}"),
                }
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Plan(error) => Some(error),
            _ => None,
        }
    }
}

fn named(code: u32) -> &'static str {
    match code {
        1 => " (invalid value)",
        2 => " (out of memory)",
        3 => " (not initialized)",
        4 => " (deinitialized)",
        46 => " (device unavailable)",
        100 => " (no device)",
        214 => " (uncorrectable ECC error)",
        700 => " (illegal address)",
        702 => " (launch timeout)",
        719 => " (launch failed)",
        801 => " (not supported)",
        802 => " (system not ready)",
        _ => "",
    }
}
