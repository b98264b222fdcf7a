//! The statuses that functions return, and what they mean in words. In the comments on the statuses, `index`, `needed`
//! and `got` are fields of the sublet_error that comes with the status.

use core::ffi::{CStr, c_char};

/// How a call ended. 0 is success; a number keeps its meaning in all versions.
///
/// Beside each status stands what the fields `index`, `needed` and `got` of a sublet_error mean; those that are not
/// named are 0. Arguments are counted from 0, as are blocks and rows.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_status {
    /// The call succeeded.
    Ok = 0,
    /// The library has a fault: it panicked, and the panic was caught. The outputs of the call are undefined.
    Panicked = 1,
    /// A failure that this version of the C library has no name for.
    Unnamed = 2,

    /// Argument `index` is NULL, but must point to memory here.
    NullPointer = 10,
    /// Argument `index` is not aligned to `needed` bytes.
    MisalignedPointer = 11,
    /// The length `got`, in argument `index`, is too large to be addressed or counted; the most is `needed`.
    LengthOverflow = 12,
    /// Two arguments, number `index` and number `got`, share memory, and at least one of them is written. The number
    /// UINT32_MAX stands for the argument `error`; in that case nothing is written to `error`.
    OverlappingBuffers = 13,
    /// Argument `index` is a struct whose `struct_size` is `got`: not in the range from 4 to `needed`, or within a field
    /// that ends at the byte `needed`.
    StructSize = 14,
    /// Argument `index` is a struct with a field at byte `got` that this version does not know and that is not 0.
    UnknownField = 15,
    /// Argument `index` holds `got`, which is none of the values of its enum.
    UnknownValue = 16,
    /// The workspace, argument `index`, has `got` bytes; the call needs `needed` bytes.
    WorkspaceTooSmall = 17,
    /// Argument `index` has room for `got` elements; the call needs room for `needed`.
    BufferTooSmall = 18,
    /// The text in argument `index` is not a name that is known here.
    UnknownName = 19,
    /// Argument `index` is no handle of the type that the call takes: it is a handle of another type, or was destroyed.
    /// That it was destroyed is found only where the caller lent the handle's memory and has not used it for anything
    /// else since; to use any other handle after it was destroyed is undefined behaviour.
    NotAHandle = 20,
    /// Argument `index` is a struct whose field at byte `got` is 0 or NULL, but must be set here.
    MissingField = 21,
    /// Argument `index` is a struct whose field at byte `got` holds an address that is not aligned to `needed` bytes.
    MisalignedField = 22,
    /// Argument `index` is a struct whose field at byte `got` holds a number that is too large or too small here;
    /// `needed` is the nearest that is possible.
    FieldOutOfRange = 23,
    /// Argument `index` is the operands of a launch: one begins at the address `got`, which is not aligned to `needed`
    /// bytes.
    MisalignedOperand = 24,
    /// Argument `index` is the operands of a launch. Two of them share memory, though they must not. `got` is the
    /// address at which one of them begins; the other begins at the same address or at a lower one.
    OverlappingOperands = 25,

    /// There are `needed` blocks, but at most `got` can be planned.
    TooManyBlocks = 30,
    /// Block `index` has size 0.
    ZeroSize = 31,
    /// Block `index` begins at step `needed` and ends at step `got`, which is not later.
    EmptyLifetime = 32,
    /// The alignment `got` of block `index` is not a power of two. If `index` is UINT32_MAX, it is not the alignment of
    /// one block, but that of a whole plan, a bank, an allocator, a pool or a request.
    Alignment = 33,
    /// Block `index` is pinned at `got`, which is not a multiple of its alignment `needed`.
    PinMisaligned = 34,
    /// The pinned blocks `index` and `got` are alive together and share an address.
    PinsOverlap = 35,
    /// The blocks are too large. If blocks 0 to `index` were stacked above the pinned blocks, with padding for their
    /// alignments, the stack would end at an address that exceeds 64 bits. Where the blocks are live ranges of a
    /// trace or a graph, `index` counts them in the order in which sublet_lifetimes or sublet_parallel_lifetimes writes
    /// them; for sublet_fit it may be the number of a block in the trace. Two functions use this status for other sums
    /// too. In sublet_network_plan, `index` may be the number of a storage: the bytes of the storages up to it exceed 64
    /// bits. In sublet_place_banks, the costs of blocks 0 to `index` may exceed 128 bits.
    SizeOverflow = 36,
    /// Block `index` has flags, `got`, that this version does not know.
    BlockFlags = 37,

    /// No plan within the capacity, `got` bytes, was found, nor a proof that there is none. The best plan has a peak of
    /// `needed` bytes; its offsets were written.
    OverCapacity = 50,
    /// It is proved that no plan fits within the capacity, `got` bytes. The best plan has a peak of `needed` bytes; its
    /// offsets were written.
    NoPlanFits = 51,
    /// No placement in the banks of memory was found, nor a proof that there is none. Block `index`, of `needed` bytes, was
    /// left over; the largest of the banks that it may lie in has `got` bytes.
    NoBank = 52,
    /// It is proved that no placement in the banks of memory fits. Block `index`, of `needed` bytes, was left over; the
    /// largest of the banks that it may lie in has `got` bytes.
    NoBankFits = 53,

    /// Invalid plan: block `index` lies at offset `got`, and its offset plus its size exceeds 64 bits.
    PlanEndOverflow = 60,
    /// Invalid plan: block `index` ends at `needed`, above the capacity `got`.
    PlanOverCapacity = 61,
    /// Invalid plan: blocks `index` and `got` are both alive at step `needed` and share an address.
    PlanOverlap = 62,
    /// Invalid plan: block `index` has the offset `got`, not a multiple of its alignment `needed`.
    PlanMisaligned = 63,
    /// Invalid plan: block `index` has the offset `got`, but is pinned at `needed`.
    PlanMoved = 64,

    /// Line `index` of a plan's text, counted from 1, is wrong: expected the header id,lower,upper,size,offset, then
    /// five numbers in each line.
    PlanText = 65,

    /// Operator `index` of a graph reads or writes tensor `got`, which does not exist.
    UnknownTensor = 70,
    /// Tensor `index` of a graph is produced by operator `needed` and by operator `got`; if these are one operator, it
    /// produces the tensor twice.
    TwoWriters = 71,
    /// Operator `index` of a graph depends on itself: by way of other operators, it needs a tensor that is computed
    /// from what it writes.
    Cycle = 72,
    /// Operator `index` of a graph has `needed` operands, but only `got` are left in the array of operands. Or, after
    /// the last operator, `got` operands of the array are left over.
    Operands = 73,
    /// Tensor `index` of a graph: its field `storage` is `got`, which is no sublet_storage; or its reserved field is
    /// `got`, and not 0.
    TensorUnknownValue = 74,

    /// The time of row `index` of a trace is before that of the row above it.
    RowTimeBackwards = 80,
    /// Row `index` of a trace: a malloc of 0 bytes.
    RowZeroSize = 81,
    /// Row `index` of a trace: a malloc of a block that is allocated already.
    RowAllocatedTwice = 82,
    /// Row `index` of a trace: a free of a block that is not allocated.
    RowFreeWithoutMalloc = 83,
    /// Row `index` of a trace: a read, write or copy of a block that is not allocated.
    RowAccessWithoutMalloc = 84,
    /// Row `index` of a trace: a malloc that gives a block another size than an earlier malloc of the block, or than
    /// the original trace.
    RowSizeChanged = 85,
    /// Row `index` of a trace: its block number is not below the trace's number of blocks. Or row `index` of a
    /// rewritten trace: its block is neither one that the original allocates nor the mask of such a block.
    RowUnknownBlock = 86,
    /// A trace has more rows than 32 bits can count.
    RowTooManyRows = 87,
    /// Row `index` cannot be in a recorded trace. It is a copy, a second malloc of a block, or an access by a
    /// recomputed operator. Or it is an access by an operator that accessed blocks before, with an access by another
    /// operator, or by none, in between.
    RowNotRecorded = 88,
    /// Row `index` of a rewritten trace: an access that is not the next one of the operator that is under way. Or it is
    /// the first access of an operator that may not run there: the original does not have the operator, it has run
    /// before and is not marked as recomputed, or another operator has to run first.
    RowOtherAccess = 89,
    /// Row `index` of a rewritten trace stands between two accesses of one operator, where it must not. It is a malloc,
    /// free or copy that the original does not have there, and that no in-place reuse needs. Or it is a malloc that
    /// comes after a free, while in the original it comes before this free.
    RowInsideOperator = 90,
    /// Row `index` of a rewritten trace: a read by an operator, in its first run, that sees another value of the block
    /// than it does in the original trace.
    RowOtherValue = 91,
    /// Row `index` of a rewritten trace: a copy to the device of a block that has no copy on the host, or whose copy
    /// there has an undefined value.
    RowNotOnHost = 92,
    /// The rewritten trace ends at row `index`, before all accesses of the original were made, or in the middle of a
    /// recomputed operator.
    RowAccessesMissing = 93,
    /// The rewritten trace ends at row `index`, and there a persistent block is not where it has to be, on the device
    /// or on the host, or does not hold its final value.
    RowEndNotRestored = 94,
    /// Row `index` of a trace: `got`, the value of its `event` or `op_kind`, is no sublet_event or no sublet_op_kind.
    RowUnknownValue = 95,
    /// Row `index` of a rewritten trace recomputes an operator that may not be recomputed.
    RowMayNotRerun = 96,
    /// Row `index` of a rewritten trace: a malloc of a block's mask with fewer bytes than are needed for one bit for
    /// each of the block's elements.
    RowMaskTooSmall = 97,
    /// Row `index` of a rewritten trace writes the mask of a block, but does not stand right after a ReLU that reads or
    /// writes that block.
    RowMaskElsewhere = 98,
    /// Row `index` of a rewritten trace: the block takes over another block's memory in place, but has another offset
    /// than that block.
    RowNotInPlace = 99,
    /// Row `index` of a recorded trace that is to be fitted into a limit: a malloc of a persistent block, such as a
    /// weight, that comes after a read or write of some block.
    RowPersistentLate = 100,
    /// Operator `index` of a trace: `got`, which is its kind, its flags or its element size, is not known to this
    /// version.
    OperatorUnknownValue = 109,

    /// The device has a bandwidth that is not positive, a latency that is negative, or one of these that is not finite.
    Device = 110,
    /// The blocks that are swapped take `needed` bytes on the host, which can hold `got`.
    HostTooSmall = 111,
    /// No schedule within the limit, `got` bytes, was found; one within `needed` bytes was.
    OverLimit = 112,
    /// No schedule is within the limit, `got` bytes: `needed` bytes have to be on the device at once.
    ImpossibleLimit = 113,

    /// Access `index` of a network uses a tensor's storage that does not exist.
    AccessUnknownMemory = 120,
    /// Access `index` of a network is by an operator that does not exist.
    AccessUnknownOperator = 121,
    /// Access `index` of a network is by an operator of a lower number than that of the access above it.
    AccessOutOfOrder = 122,
    /// In a network, the tensor's storage, the operator or the access of number `index` has a field whose value this
    /// version of the library does not know. `got` is the bits of `flags` and `reserved` of a storage or an operator;
    /// of an access it is `how`. The error does not say which of the three kinds it is about.
    NetworkUnknownValue = 123,

    /// In an allocator or a pool: no run of free addresses has `needed` bytes; the longest has `got` bytes. On a
    /// device: the device, or the host, has not `needed` bytes of memory; `got` is 0.
    OutOfMemory = 130,
    /// No live block begins at the address `got`. Functions of an allocator give the number of the argument in `index`.
    NotAllocated = 131,
    /// `needed` blocks are alive at once, but the allocator or pool has room for `got`.
    TooManyLive = 132,
    /// The iteration has `needed` mallocs and frees, but the allocator has room for `got`.
    TooManyEvents = 133,
    /// The recorder has room for `got` rows; with the one that it is to record there would be `needed`.
    RecordFull = 134,
    /// An allocator was not made: the system, or the caller's function, did not give `needed` bytes for its
    /// bookkeeping, or for the first range of addresses in which blocks lie.
    NoRawMemory = 135,
    /// Something that the call needs is missing. Either this library was built without it, for example without the
    /// standard library or without CUDA. Or this machine lacks it, for example a CUDA driver.
    Unavailable = 136,
    /// Argument `index`, a request of `got` bytes, is not what the plan expects next; or another block lies in its
    /// planned place.
    NotPlanned = 137,
    /// The allocator is called from within one of its own callbacks.
    Reentrant = 138,

    /// Block `index` is not persistent: it has no value of `got` bytes that is kept from one iteration to the next.
    NotPersistent = 150,
    /// An iteration is under way, or was ended by an error; or the iteration to measure has not been timed yet.
    Interrupted = 151,
    /// The plan keeps `needed` bytes on the host, but host and device share one memory, so that this frees nothing.
    HostIsDevice = 152,
    /// A call of the operating system failed. `got` is the error number (errno), or 0 if the error has no number. The
    /// file that blocks are swapped to could not be opened, made long enough, read or written; or its file system
    /// cannot open it past the page cache (O_DIRECT); or a thread that reads and writes it could not be started. Or the
    /// GPU shares the host's memory, and the system did not tell how much memory is available.
    Storage = 153,
    /// The device is lost, or an error has broken its context: no call will work again in this process. `got` is the
    /// CUresult.
    DeviceLost = 154,
    /// A call of the CUDA driver failed with the CUresult `got`; later calls may work.
    Driver = 155,
    /// The arena cannot grow to `needed` bytes where it is: only `got` bytes of addresses are reserved for it.
    CannotGrow = 156,
}

use sublet_status as S;

/// What a status means, in a few words of English; never NULL. The text lives as long as the program.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_status_string(status: i32) -> *const c_char {
    words(status).as_ptr()
}

pub(crate) fn words(status: i32) -> &'static CStr {
    WORDS.iter().find(|(s, _)| *s as i32 == status).map_or(c"not a status of this version", |(_, words)| words)
}

const WORDS: [(S, &CStr); 88] = [
    (S::Ok, c"success"),
    (S::Panicked, c"a fault of the library"),
    (S::Unnamed, c"a failure that the C library has no name for"),
    (S::NullPointer, c"an argument is NULL"),
    (S::MisalignedPointer, c"an argument is not aligned"),
    (S::LengthOverflow, c"a length is more than can be addressed or counted"),
    (S::OverlappingBuffers, c"two arguments share memory that is written"),
    (S::StructSize, c"the struct_size of an argument is impossible"),
    (S::UnknownField, c"an argument has a field that this version does not know"),
    (S::UnknownValue, c"an argument is none of the values of its enum"),
    (S::WorkspaceTooSmall, c"the workspace is too small"),
    (S::BufferTooSmall, c"an output is too small"),
    (S::UnknownName, c"an argument is not a known name"),
    (S::NotAHandle, c"an argument is no handle of its type, or one that was destroyed"),
    (S::MissingField, c"an argument lacks a field that has no default"),
    (S::MisalignedField, c"an address in a field of an argument is not aligned"),
    (S::FieldOutOfRange, c"a number in a field of an argument is too large or too small"),
    (S::MisalignedOperand, c"the address of an operand is not aligned"),
    (S::OverlappingOperands, c"two operands share memory that must not"),
    (S::TooManyBlocks, c"more blocks than can be planned"),
    (S::ZeroSize, c"a block has size 0"),
    (S::EmptyLifetime, c"a block has an empty lifetime"),
    (S::Alignment, c"an alignment is not a power of two"),
    (S::PinMisaligned, c"a pinned offset breaks the block's alignment"),
    (S::PinsOverlap, c"two pinned blocks share an address"),
    (S::SizeOverflow, c"the sizes add up to more than 64 bits hold"),
    (S::BlockFlags, c"a block has flags that this version does not know"),
    (S::OverCapacity, c"no plan within the capacity was found"),
    (S::NoPlanFits, c"no plan fits within the capacity: that is proved"),
    (S::NoBank, c"no placement in the banks was found"),
    (S::NoBankFits, c"no placement in the banks fits: that is proved"),
    (S::PlanEndOverflow, c"invalid plan: a block ends beyond 64 bits"),
    (S::PlanOverCapacity, c"invalid plan: a block ends above the capacity"),
    (S::PlanOverlap, c"invalid plan: two blocks share an address"),
    (S::PlanMisaligned, c"invalid plan: an offset breaks an alignment"),
    (S::PlanMoved, c"invalid plan: a pinned block is elsewhere"),
    (S::PlanText, c"a line of a plan is not as expected"),
    (S::UnknownTensor, c"an operator names a tensor that is not in the graph"),
    (S::TwoWriters, c"two operators produce the same tensor"),
    (S::Cycle, c"operators wait for each other"),
    (S::Operands, c"the operators have more or fewer operands than there are"),
    (S::TensorUnknownValue, c"a tensor holds a value that is no storage"),
    (S::RowTimeBackwards, c"a row's time is before that of the row above it"),
    (S::RowZeroSize, c"a row allocates 0 bytes"),
    (S::RowAllocatedTwice, c"a row allocates a block that is allocated"),
    (S::RowFreeWithoutMalloc, c"a row frees a block that is not allocated"),
    (S::RowAccessWithoutMalloc, c"a row accesses a block that is not allocated"),
    (S::RowSizeChanged, c"a row allocates a block again with another size"),
    (S::RowUnknownBlock, c"a row's block is not below the number of blocks"),
    (S::RowTooManyRows, c"more rows than 32 bits can count as steps"),
    (S::RowNotRecorded, c"a row of the original is not as recorded"),
    (S::RowOtherAccess, c"a row is not the access that comes next in the original"),
    (S::RowInsideOperator, c"a row stands inside an operator that has none there in the original, or before a free"),
    (S::RowOtherValue, c"a row reads another value than in the original"),
    (S::RowNotOnHost, c"a row copies a block that is not on the host"),
    (S::RowAccessesMissing, c"accesses of the original are missing"),
    (S::RowEndNotRestored, c"a persistent block is not restored at the end"),
    (S::RowMayNotRerun, c"the operator may not be recomputed"),
    (S::RowMaskTooSmall, c"a mask is too small"),
    (S::RowMaskElsewhere, c"a mask is not written right after a ReLU"),
    (S::RowNotInPlace, c"a block that reuses memory in place has another offset"),
    (S::RowPersistentLate, c"a persistent block is allocated after an access"),
    (S::RowUnknownValue, c"a row holds a value that is no event, or no kind of operator"),
    (S::OperatorUnknownValue, c"an operator holds a value that is no kind, or no flags, of this version"),
    (S::Device, c"the device has a bandwidth or latency that is impossible"),
    (S::HostTooSmall, c"the swapped blocks do not fit on the host"),
    (S::OverLimit, c"no schedule within the limit was found"),
    (S::ImpossibleLimit, c"no schedule is within the limit"),
    (S::AccessUnknownMemory, c"an access uses a memory that does not exist"),
    (S::AccessUnknownOperator, c"an access is by an operator that does not exist"),
    (S::AccessOutOfOrder, c"an access is by an operator before that of the access above it"),
    (S::NetworkUnknownValue, c"a network holds a value that this version does not know"),
    (S::OutOfMemory, c"no hole of the range is large enough"),
    (S::NotAllocated, c"no live block begins at this address"),
    (S::TooManyLive, c"more blocks are alive at once than there is room for"),
    (S::TooManyEvents, c"the iteration has more mallocs and frees than there is room for"),
    (S::RecordFull, c"the record is full"),
    (S::NoRawMemory, c"there is no memory for the range or the bookkeeping"),
    (S::Unavailable, c"this library or this machine lacks what the call needs"),
    (S::NotPlanned, c"the plan does not expect this request"),
    (S::Reentrant, c"the allocator is called from within its own callback"),
    (S::NotPersistent, c"the block has no such content that outlives an iteration"),
    (S::Interrupted, c"an iteration is under way, or was ended by an error"),
    (S::HostIsDevice, c"host and device share one memory: copies free nothing"),
    (S::Storage, c"a call of the operating system failed, such as on a file"),
    (S::DeviceLost, c"the device is lost"),
    (S::Driver, c"a call of the CUDA driver failed"),
    (S::CannotGrow, c"the arena cannot grow where it is"),
];
