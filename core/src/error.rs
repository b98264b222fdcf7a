//! The errors of this crate: one small enum for everything that can go wrong.

use core::fmt;

use crate::violation::Violation;

/// Why a function of this crate gave no result.
///
/// An error names a block by its index in the slice of blocks that was given, and a row by its index in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A buffer that the caller lends is too short; where only one length is right, it is too short or too long. With
    /// `needed` elements, its length is right.
    BufferTooSmall {
        /// Which of the buffers that the caller lends has the wrong length.
        buffer: Buffer,
        /// A number of elements that suffices; where only one length is right, that length.
        needed: usize,
        /// The number of elements that the buffer has.
        got: usize,
    },
    /// More blocks than this crate can number. For an allocator: more events, live blocks or ranges of addresses than
    /// it can number.
    TooManyBlocks {
        /// How many blocks, events or ranges were given.
        needed: usize,
        /// How many blocks, events or ranges are allowed at most.
        most: usize,
    },
    /// A block of no bytes.
    ZeroSize {
        /// The index of the block that has no bytes.
        block: u32,
    },
    /// A block whose lifetime does not begin before it ends.
    EmptyLifetime {
        /// The index of the block with the empty lifetime.
        block: u32,
        /// The first step of the block's lifetime.
        start: u32,
        /// The first step after the block's lifetime; it is not above `start`, so that the lifetime holds no step.
        end: u32,
    },
    /// An alignment that is not a power of two.
    Alignment {
        /// The index of the block with this alignment; `None` if the alignment is not that of one block, but of a whole
        /// plan, a bank of memory, an allocator or a request.
        block: Option<u32>,
        /// The alignment that was asked for, in bytes.
        alignment: u64,
    },
    /// A pinned offset that breaks the alignment of its block.
    PinMisaligned {
        /// The index of the pinned block.
        block: u32,
        /// The offset at which the block is pinned, in bytes.
        offset: u64,
        /// The alignment that the offset must have, in bytes.
        alignment: u64,
    },
    /// Two pinned blocks that are alive at the same step share an address.
    PinsOverlap {
        /// The lower of the indices of the two pinned blocks that share an address.
        first: u32,
        /// The higher of the indices of the two pinned blocks that share an address.
        second: u32,
    },
    /// The blocks up to and including `block` may need more bytes, padding for alignments included, than 64 bits can
    /// count. Or, in a placement in several banks of memory, the costs of reading and writing these blocks may add up
    /// to more than 128 bits can count.
    SizeOverflow {
        /// The index of the first block whose bytes or cost make the sum over the blocks up to it too large. For a
        /// graph, the index of a tensor instead; for a network that is recorded, the number of a tensor's storage.
        block: u32,
    },
    /// The best placement that was found ends above the capacity of the arena. If `lower_bound` is above `capacity`, it
    /// is proved that no placement fits.
    OverCapacity {
        /// The peak of the best placement that was found, in bytes.
        peak: u64,
        /// No placement has a lower peak than this, in bytes.
        lower_bound: u64,
        /// The capacity that the caller set, in bytes: no block may end above it.
        capacity: u64,
    },
    /// A row of a trace (one malloc, free, read, write or copy) that cannot follow the rows before it.
    Row {
        /// The index of the row in the trace, counted from 0.
        row: u32,
        /// What is wrong with the row of the trace.
        fault: RowFault,
    },
    /// In a network, an access (an operator's read or write of a tensor's storage) names a storage or an operator that
    /// does not exist, or cannot follow the accesses before it.
    Access {
        /// The index of the access in the network's list of accesses, counted from 0.
        access: u32,
        /// What is wrong with the access of the network.
        fault: AccessFault,
    },
    /// An operator reads or writes a tensor that is not in the graph, or reuses the memory of one that is not its
    /// input.
    UnknownTensor {
        /// The index of the operator, a node of the graph, that uses the tensor.
        node: u32,
        /// The index of the tensor.
        tensor: u32,
    },
    /// An [`Overlap`](crate::Overlap), which lets two blocks share bytes, names blocks that may not: they are the same,
    /// one does not exist, their lifetimes forbid it, or another overlap names them the other way round.
    NoOverlap {
        /// The index of the output's block.
        output: u32,
        /// The index of the input's block.
        input: u32,
    },
    /// A tensor of a graph is written twice. Either two operators write it, which is allowed only for a persistent
    /// tensor, such as a weight. Or one operator names it twice among its outputs.
    TwoWriters {
        /// The index of the tensor that is written twice.
        tensor: u32,
        /// Of the operators that write the tensor, the index of the one that the graph lists first.
        first: u32,
        /// Of the operators that write the tensor, the index of the one that the graph lists second; equal to `first`
        /// if one operator names the tensor twice.
        second: u32,
    },
    /// Operators of a graph depend on each other in a cycle, so that none of them can run first.
    Cycle {
        /// The index of an operator of the cycle: the one that the graph lists first.
        node: u32,
    },
    /// The verifier refuses the plan: it breaks a constraint. The [`Violation`] says which, and at which blocks.
    Invalid(Violation),
    /// A figure of a device is wrong: a bandwidth is not positive, a latency is negative, or one of them is not finite.
    Device,
    /// The blocks that are swapped to the host do not fit in the host's memory.
    HostTooSmall {
        /// The bytes that all swapped blocks take on the host, each block counted once.
        needed: u64,
        /// The bytes that the host can hold.
        capacity: u64,
    },
    /// No placement in banks of memory was found: a block was left for which the others leave too little room.
    NoBank {
        /// The index of the block that was left.
        block: u32,
        /// The size of the block that was left, in bytes.
        size: u64,
        /// The largest capacity, in bytes, of the banks of memory in which the block may lie; 0 if it may lie in none.
        most: u64,
        /// Whether it is proved that there is no placement.
        proved: bool,
    },
    /// The caller stopped the work before any result was found.
    Stopped,
    /// No rewritten trace was found whose footprint, the device memory that it takes, is within the limit.
    OverLimit {
        /// The lowest footprint of the schedules that were found, in bytes: a limit that works.
        least: u64,
        /// The limit that was set on the footprint, in bytes.
        limit: u64,
    },
    /// It is proved that no rewritten trace is within the limit.
    Impossible {
        /// Bytes that have to be on the device at once, whatever is swapped or recomputed: no lower limit can be kept.
        needed: u64,
        /// The limit that was set on the footprint, in bytes.
        limit: u64,
    },
    /// No run of free bytes of an allocator is large enough for the request or the plan, or the allocator got no first
    /// range of addresses.
    OutOfMemory {
        /// How many free bytes in a row the request needs: those that were asked for, rounded up to the allocator's
        /// alignment. If the request has a larger alignment of its own, the most padding that it may need is included.
        needed: u64,
        /// The bytes of the allocator's largest run of free bytes.
        largest: u64,
    },
    /// No live block of an allocator begins at this address.
    NotAllocated {
        /// The address that was to be freed; for a [`Replay`](crate::Replay), the offset in the arena.
        address: u64,
    },
}

/// Which of the buffers that the caller lends has the wrong length: a part of [`Error::BufferTooSmall`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Buffer {
    /// The slice of 64-bit words of a workspace.
    Words,
    /// The slice of 32-bit indices of a workspace.
    Indices,
    /// The buffer for the offsets of a plan, one for each block. For a placement in several banks of memory: the slice
    /// of the blocks' uses, or that of their places.
    Offsets,
    /// A buffer with one element for each block of a trace, for each of the blocks' live ranges, or for each block that
    /// an allocator plans.
    Blocks,
    /// The buffer for the blocks of a [`Planner`](crate::Planner), which has room for a fixed number.
    Capacity,
    /// The buffer for the timings of a simulated trace, one for each row.
    Timings,
    /// The buffer for the rows of a trace.
    Rows,
    /// The buffer for the live blocks of an allocator, which has room for a fixed number.
    Live,
    /// The buffer for the mallocs and frees of one iteration, which an allocator records.
    Events,
    /// The buffer for the descriptions of a network's operators, one for each.
    Operators,
    /// The buffer for the steps (bind a tensor's storage, recompute, copy) by which a framework follows the plan of its
    /// network.
    Steps,
    /// The buffer for the order in which the operators of a graph run.
    Order,
    /// The buffer for the streams of a graph's operators, one for each.
    Streams,
}

/// What is wrong with an access: a read or write of a tensor's storage by an operator of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessFault {
    /// The access names a tensor's storage that does not exist: its number is not below the number of storages.
    UnknownMemory,
    /// The access names an operator that does not exist: its number is not below the number of operators.
    UnknownOperator,
    /// The accesses are not in the order of execution: the access belongs to an earlier operator than the access before
    /// it in the list.
    OutOfOrder,
}

/// What is wrong with a row of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowFault {
    /// The row's time is before the time of the row before it.
    TimeBackwards,
    /// A malloc of 0 bytes.
    ZeroSize,
    /// A malloc of a block that is allocated already.
    AllocatedTwice,
    /// A free of a block that is not allocated.
    FreeWithoutMalloc,
    /// A read, write or copy of a block that is not allocated.
    AccessWithoutMalloc,
    /// A block is allocated again with a size other than that of its first malloc. In a rewritten trace: with a size
    /// other than in the original trace.
    SizeChanged,
    /// The row's block number is not below the number of blocks. In a rewritten trace, where masks have numbers too:
    /// the block is neither one that the original trace allocates, nor the mask of such a block.
    UnknownBlock,
    /// The trace has more rows than 32 bits can count.
    TooManyRows,
    /// A row that a recorded trace cannot have: a copy to or from the host; a second malloc of a block; an access by an
    /// operator that is recomputed; or an access by an operator that has accessed blocks before, if accesses outside
    /// this operator stand in between.
    NotRecorded,
    /// In a rewritten trace, a read or write that is not the next access of the operator that runs. Or the first access
    /// of an operator that may not run there: the original trace lacks it, it has run before and is not marked as
    /// recomputed, or another operator must run first.
    OtherAccess,
    /// In a rewritten trace, a malloc, free or copy between two accesses of an operator, although in the original trace
    /// it does not stand between accesses of this operator. Or, between two accesses, a malloc that comes after a free,
    /// although in the original trace it comes before that free.
    InsideOperator,
    /// In a rewritten trace, an operator reads a block that does not hold the value that the operator read in the
    /// original trace.
    OtherValue,
    /// A block is copied from the host to the device, but the host has no copy of it, or the value of the copy is
    /// undefined.
    NotOnHost,
    /// A rewritten trace ends, but accesses of the original trace are missing, or accesses of the operator that was
    /// recomputed last.
    AccessesMissing,
    /// In a rewritten trace, a row that recomputes an operator, though this operator may run only once.
    MayNotRerun,
    /// A malloc of a ReLU's bit mask with fewer bytes than [`Operator::mask_bytes`](crate::trace::Operator::mask_bytes)
    /// says.
    MaskTooSmall,
    /// A write of a ReLU's bit mask in the wrong place: it must stand right after a ReLU that accesses the mask's
    /// block.
    MaskElsewhere,
    /// An operator works in place, but the plan gives its output another address than its input, whose memory the
    /// output is to reuse.
    NotInPlace,
    /// In a recording that is to be rewritten to fit a limit: the malloc of a persistent block, such as a weight, that
    /// comes after the first read or write of any block.
    PersistentLate,
    /// At the end of a rewritten trace, a persistent block, such as a weight, is not where it has to be for the next
    /// iteration, or does not have its final value. The row number is one past the last row.
    EndNotRestored,
}

impl Error {
    /// Whether it is proved that there is no result: no plan within the capacity, or no schedule within the limit.
    #[must_use]
    pub const fn is_impossible(&self) -> bool {
        match *self {
            Self::OverCapacity { lower_bound, capacity, .. } => lower_bound > capacity,
            Self::Impossible { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BufferTooSmall { buffer, needed, got } => {
                write!(f, "the buffer for {buffer} has {got} elements, {needed} are needed")
            }
            Self::TooManyBlocks { needed, most } => {
                write!(f, "{needed} blocks are more than the {most} that can be planned")
            }
            Self::ZeroSize { block } => write!(f, "block {block} has size 0; a block has at least one byte"),
            Self::EmptyLifetime { block, start, end } => {
                write!(f, "block {block} has the empty lifetime [{start}, {end})")
            }
            Self::Alignment { block: Some(block), alignment } => {
                write!(f, "block {block} has the alignment {alignment}, which is not a power of two")
            }
            Self::Alignment { block: None, alignment } => write!(f, "the alignment {alignment} is not a power of two"),
            Self::PinMisaligned { block, offset, alignment } => {
                write!(f, "block {block} is pinned at {offset}, which is not a multiple of its alignment {alignment}")
            }
            Self::PinsOverlap { first, second } => {
                write!(f, "the pinned blocks {first} and {second} are alive together and share an address")
            }
            Self::SizeOverflow { block } => {
                write!(f, "up to block {block} the sizes or costs add up to more than can be counted")
            }
            Self::OverCapacity { peak, lower_bound, capacity } if self.is_impossible() => {
                write!(
                    f,
                    "no plan fits within {capacity} bytes: every plan takes at least {lower_bound}; the best that was found takes {peak}"
                )
            }
            Self::OverCapacity { peak, lower_bound, capacity } => {
                write!(
                    f,
                    "no plan within {capacity} bytes was found, and none is proved impossible; the best takes {peak}, and every plan at least {lower_bound}"
                )
            }
            Self::Row { row, fault } => write!(f, "row {row}: {fault}"),
            Self::UnknownTensor { node, tensor } => {
                write!(f, "operator {node} uses tensor {tensor}, which is not in the graph or not its input")
            }
            Self::NoOverlap { output, input } => write!(
                f,
                "block {output} may not overlap block {input}: they have to be two blocks, the input begins and ends no later than the output, and no other overlap names them the other way round"
            ),
            Self::TwoWriters { tensor, first, second } if first == second => {
                write!(f, "operator {first} writes tensor {tensor} twice")
            }
            Self::TwoWriters { tensor, first, second } => {
                write!(f, "tensor {tensor} is produced by operator {first} and again by operator {second}")
            }
            Self::Cycle { node } => write!(f, "operator {node} needs, through others, what it writes itself"),
            Self::Invalid(violation) => write!(f, "{violation}"),
            Self::Device => f.write_str("a device needs positive bandwidths and latencies that are not negative"),
            Self::HostTooSmall { needed, capacity } => {
                write!(f, "the blocks that are swapped take {needed} bytes on the host, which can hold {capacity}")
            }
            Self::NoBank { block, size, most, proved } => {
                let known =
                    if proved { "no placement fits" } else { "no placement was found, and none is proved impossible" };
                write!(
                    f,
                    "{known}: block {block} of {size} bytes is left over; the largest bank that it may lie in has {most}"
                )
            }
            Self::Stopped => f.write_str("stopped before anything was found"),
            Self::OverLimit { least, limit } => {
                write!(f, "no schedule within {limit} bytes was found; one within {least} bytes was")
            }
            Self::Impossible { needed, limit } => {
                write!(
                    f,
                    "no schedule within {limit} bytes is possible: {needed} bytes have to be on the device at once"
                )
            }
            Self::OutOfMemory { needed, largest } => {
                write!(f, "no hole for {needed} bytes; the largest has {largest}")
            }
            Self::Access { access, fault } => write!(f, "access {access}: {fault}"),
            Self::NotAllocated { address } => write!(f, "no live block begins at address {address}"),
        }
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "the workspace's words",
            Self::Indices => "the workspace's indices",
            Self::Offsets => "the offsets",
            Self::Blocks => "the blocks of the trace",
            Self::Capacity => "the planner's blocks",
            Self::Timings => "the timings",
            Self::Rows => "the rows of the trace",
            Self::Live => "the live blocks",
            Self::Events => "the events of an iteration",
            Self::Operators => "the operators",
            Self::Steps => "the steps",
            Self::Order => "the order of the operators",
            Self::Streams => "the streams of the operators",
        })
    }
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TimeBackwards => "its time is before that of the row above it",
            Self::ZeroSize => "malloc of 0 bytes; a block has at least one byte",
            Self::AllocatedTwice => "malloc of a block that is allocated already",
            Self::FreeWithoutMalloc => "free of a block that is not allocated",
            Self::AccessWithoutMalloc => "access to a block that is not allocated",
            Self::SizeChanged => "malloc of a block with another size than before",
            Self::UnknownBlock => "the block's number is not below the number of blocks",
            Self::TooManyRows => "more rows than steps can be counted in 32 bits",
            Self::NotRecorded => {
                "not as recorded: a copy, a second malloc, or an operator that is recomputed or not in one piece"
            }
            Self::OtherAccess => "not the access that comes next in the original",
            Self::InsideOperator => {
                "the operator has no such row between its accesses in the original, or has it before a free that is above it \
                 here"
            }
            Self::OtherValue => "the block has another value than in the original",
            Self::NotOnHost => "copy of a block that is not on the host",
            Self::AccessesMissing => "accesses of the original are missing",
            Self::MayNotRerun => "the operator may not be recomputed",
            Self::MaskTooSmall => "the mask is too small: it takes a bit for each element of its block",
            Self::MaskElsewhere => "a mask is written right after a ReLU that touches its block, and nowhere else",
            Self::NotInPlace => "the block reuses another's memory in place, but has another offset",
            Self::PersistentLate => {
                "a persistent block (allocated at time 0, never freed) is allocated after an access"
            }
            Self::EndNotRestored => "a persistent block is not where it must be, or not with its value, at the end",
        })
    }
}

impl fmt::Display for AccessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownMemory => "the memory's number is not below the number of memories",
            Self::UnknownOperator => "the operator's number is not below the number of operators",
            Self::OutOfOrder => "its operator is before that of the access above it",
        })
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small() {
        assert!(size_of::<Error>() <= 48, "{}", size_of::<Error>());
    }

    #[test]
    fn display_is_a_sentence_with_the_figures() {
        let e = Error::OverCapacity { peak: 12, lower_bound: 10, capacity: 8 };
        assert!(format!("{e}").starts_with("no plan fits within 8 bytes: every plan takes at least 10;"));
        let e = Error::OverCapacity { peak: 12, lower_bound: 8, capacity: 8 };
        assert!(format!("{e}").starts_with("no plan within 8 bytes was found, and none is proved impossible;"));
        let e = Error::Row { row: 7, fault: RowFault::AllocatedTwice };
        assert_eq!(format!("{e}"), "row 7: malloc of a block that is allocated already");
    }
}
