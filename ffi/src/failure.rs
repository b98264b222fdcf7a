//! What is told of a failed call: its status, the figures that explain it, and the sentence that they make.

use core::fmt::{self, Display};

use sublet_core::Error;
use sublet_core::verify::Violation;
use sublet_core::{AccessFault, Buffer, RowFault};

use crate::plain::plain;
use crate::status::{self, sublet_status as S};

/// Why a call failed: its status, and figures that explain it. What the figures mean stands beside each sublet_status.
/// After a success all fields are 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_error {
    /// The sublet_status that the call returned.
    pub status: i32,
    /// The number of the argument, block, row or other thing that the status is about: each status says which.
    pub index: u32,
    /// The amount that would suffice, in bytes or as a count, or another figure: each status says which.
    pub needed: u64,
    /// The amount that was given or found, in bytes or as a count, or another figure: each status says which.
    pub got: u64,
}

plain!(sublet_error);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: S,
    pub(crate) index: u32,
    pub(crate) needed: u64,
    pub(crate) got: u64,
}

impl Failure {
    pub(crate) const fn new(status: S, index: u32, needed: u64, got: u64) -> Self {
        Self { status, index, needed, got }
    }

    pub(crate) const fn of(status: S) -> Self {
        Self::new(status, 0, 0, 0)
    }
}

impl From<Failure> for sublet_error {
    fn from(Failure { status, index, needed, got }: Failure) -> Self {
        Self { status: status as i32, index, needed, got }
    }
}

const ARGUMENT_STATUSES: core::ops::Range<i32> = S::NullPointer as i32..S::TooManyBlocks as i32;

/// The `index` of an alignment that is not that of one block.
const ALL_BLOCKS: u32 = u32::MAX;

const ROW_FAULTS: [(S, RowFault); 20] = [
    (S::RowTimeBackwards, RowFault::TimeBackwards),
    (S::RowZeroSize, RowFault::ZeroSize),
    (S::RowAllocatedTwice, RowFault::AllocatedTwice),
    (S::RowFreeWithoutMalloc, RowFault::FreeWithoutMalloc),
    (S::RowAccessWithoutMalloc, RowFault::AccessWithoutMalloc),
    (S::RowSizeChanged, RowFault::SizeChanged),
    (S::RowUnknownBlock, RowFault::UnknownBlock),
    (S::RowTooManyRows, RowFault::TooManyRows),
    (S::RowNotRecorded, RowFault::NotRecorded),
    (S::RowOtherAccess, RowFault::OtherAccess),
    (S::RowInsideOperator, RowFault::InsideOperator),
    (S::RowOtherValue, RowFault::OtherValue),
    (S::RowNotOnHost, RowFault::NotOnHost),
    (S::RowAccessesMissing, RowFault::AccessesMissing),
    (S::RowEndNotRestored, RowFault::EndNotRestored),
    (S::RowMayNotRerun, RowFault::MayNotRerun),
    (S::RowMaskTooSmall, RowFault::MaskTooSmall),
    (S::RowMaskElsewhere, RowFault::MaskElsewhere),
    (S::RowNotInPlace, RowFault::NotInPlace),
    (S::RowPersistentLate, RowFault::PersistentLate),
];

const ACCESS_FAULTS: [(S, AccessFault); 3] = [
    (S::AccessUnknownMemory, AccessFault::UnknownMemory),
    (S::AccessUnknownOperator, AccessFault::UnknownOperator),
    (S::AccessOutOfOrder, AccessFault::OutOfOrder),
];

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::TooManyBlocks { needed, most } => Self::new(S::TooManyBlocks, 0, wide(needed), wide(most)),
            Error::ZeroSize { block } => Self::new(S::ZeroSize, block, 0, 0),
            Error::EmptyLifetime { block, start, end } => Self::new(S::EmptyLifetime, block, start.into(), end.into()),
            Error::Alignment { block, alignment } => Self::new(S::Alignment, block.unwrap_or(ALL_BLOCKS), 0, alignment),
            Error::PinMisaligned { block, offset, alignment } => Self::new(S::PinMisaligned, block, alignment, offset),
            Error::PinsOverlap { first, second } => Self::new(S::PinsOverlap, first, 0, second.into()),
            Error::SizeOverflow { block } => Self::new(S::SizeOverflow, block, 0, 0),
            Error::OverCapacity { peak, lower_bound, capacity } => {
                let proved = lower_bound > capacity;
                Self::new(if proved { S::NoPlanFits } else { S::OverCapacity }, 0, peak, capacity)
            }
            Error::Row { row, fault } => {
                let status = ROW_FAULTS.iter().find(|(_, f)| *f == fault).map_or(S::Unnamed, |&(status, _)| status);
                Self::new(status, row, 0, 0)
            }
            Error::Access { access, fault } => {
                let status = ACCESS_FAULTS.iter().find(|(_, f)| *f == fault).map_or(S::Unnamed, |&(status, _)| status);
                Self::new(status, access, 0, 0)
            }
            Error::UnknownTensor { node, tensor } => Self::new(S::UnknownTensor, node, 0, tensor.into()),
            Error::TwoWriters { tensor, first, second } => {
                Self::new(S::TwoWriters, tensor, first.into(), second.into())
            }
            Error::Cycle { node } => Self::new(S::Cycle, node, 0, 0),
            Error::Invalid(violation) => violation.into(),
            Error::Device => Self::of(S::Device),
            Error::HostTooSmall { needed, capacity } => Self::new(S::HostTooSmall, 0, needed, capacity),
            Error::NoBank { block, size, most, proved } => {
                Self::new(if proved { S::NoBankFits } else { S::NoBank }, block, size, most)
            }
            Error::OverLimit { least, limit } => Self::new(S::OverLimit, 0, least, limit),
            Error::Impossible { needed, limit } => Self::new(S::ImpossibleLimit, 0, needed, limit),
            Error::OutOfMemory { needed, largest } => Self::new(S::OutOfMemory, 0, needed, largest),
            Error::NotAllocated { address } => Self::new(S::NotAllocated, 0, 0, address),
            Error::BufferTooSmall { buffer: Buffer::Live, needed, got } => {
                Self::new(S::TooManyLive, 0, wide(needed), wide(got))
            }
            Error::BufferTooSmall { buffer: Buffer::Events, needed, got } => {
                Self::new(S::TooManyEvents, 0, wide(needed), wide(got))
            }
            Error::BufferTooSmall { buffer: Buffer::Rows, needed, got } => {
                Self::new(S::RecordFull, 0, wide(needed), wide(got))
            }
            // The caller's lengths are checked before, where arguments and bytes are known.
            Error::BufferTooSmall { .. } | _ => Self::of(S::Unnamed),
        }
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        match violation {
            Violation::EndOverflow { block, offset } => Self::new(S::PlanEndOverflow, block, 0, offset),
            Violation::OverCapacity { block, end, capacity } => Self::new(S::PlanOverCapacity, block, end, capacity),
            Violation::Overlap { first, second, step } => Self::new(S::PlanOverlap, first, step.into(), second.into()),
            Violation::Misaligned { block, offset, alignment } => {
                Self::new(S::PlanMisaligned, block, alignment, offset)
            }
            Violation::Moved { block, offset, pin } => Self::new(S::PlanMoved, block, pin, offset),
            _ => Self::of(S::Unnamed),
        }
    }
}

/// `u64::MAX` if `n` does not fit.
pub(crate) fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

impl sublet_error {
    /// `None` if it is not the planner's, or has figures that no field holds.
    fn origin(&self) -> Option<Error> {
        let Self { status, index: block, needed, got } = *self;
        let is = |s: S| status == s as i32;
        let index = |n: u64| u32::try_from(n).ok();
        let count = |n: u64| usize::try_from(n).ok();
        if let Some(&(_, fault)) = ROW_FAULTS.iter().find(|&&(s, _)| is(s)) {
            return Some(Error::Row { row: block, fault });
        }
        if let Some(&(_, fault)) = ACCESS_FAULTS.iter().find(|&&(s, _)| is(s)) {
            return Some(Error::Access { access: block, fault });
        }
        Some(match status {
            _ if is(S::TooManyBlocks) => Error::TooManyBlocks { needed: count(needed)?, most: count(got)? },
            _ if is(S::ZeroSize) => Error::ZeroSize { block },
            _ if is(S::EmptyLifetime) => Error::EmptyLifetime { block, start: index(needed)?, end: index(got)? },
            _ if is(S::Alignment) => {
                Error::Alignment { block: Some(block).filter(|&b| b != ALL_BLOCKS), alignment: got }
            }
            _ if is(S::PinMisaligned) => Error::PinMisaligned { block, offset: got, alignment: needed },
            _ if is(S::PinsOverlap) => Error::PinsOverlap { first: block, second: index(got)? },
            _ if is(S::SizeOverflow) => Error::SizeOverflow { block },
            _ if is(S::UnknownTensor) => Error::UnknownTensor { node: block, tensor: index(got)? },
            _ if is(S::TwoWriters) => Error::TwoWriters { tensor: block, first: index(needed)?, second: index(got)? },
            _ if is(S::Cycle) => Error::Cycle { node: block },
            _ if is(S::PlanEndOverflow) => Error::Invalid(Violation::EndOverflow { block, offset: got }),
            _ if is(S::PlanOverCapacity) => {
                Error::Invalid(Violation::OverCapacity { block, end: needed, capacity: got })
            }
            _ if is(S::PlanOverlap) => {
                Error::Invalid(Violation::Overlap { first: block, second: index(got)?, step: index(needed)? })
            }
            _ if is(S::PlanMisaligned) => {
                Error::Invalid(Violation::Misaligned { block, offset: got, alignment: needed })
            }
            _ if is(S::PlanMoved) => Error::Invalid(Violation::Moved { block, offset: got, pin: needed }),
            _ if is(S::Device) => Error::Device,
            _ if is(S::HostTooSmall) => Error::HostTooSmall { needed, capacity: got },
            _ if is(S::NoBank) || is(S::NoBankFits) => {
                Error::NoBank { block, size: needed, most: got, proved: is(S::NoBankFits) }
            }
            _ if is(S::OverLimit) => Error::OverLimit { least: needed, limit: got },
            _ if is(S::ImpossibleLimit) => Error::Impossible { needed, limit: got },
            // Where not even one byte is free in one piece, the length of the longest piece tells nothing.
            _ if is(S::OutOfMemory) && got > 0 => Error::OutOfMemory { needed, largest: got },
            _ if is(S::NotAllocated) => Error::NotAllocated { address: got },
            _ if is(S::TooManyLive) => {
                Error::BufferTooSmall { buffer: Buffer::Live, needed: count(needed)?, got: count(got)? }
            }
            _ if is(S::TooManyEvents) => {
                Error::BufferTooSmall { buffer: Buffer::Events, needed: count(needed)?, got: count(got)? }
            }
            _ if is(S::RecordFull) => {
                Error::BufferTooSmall { buffer: Buffer::Rows, needed: count(needed)?, got: count(got)? }
            }
            _ => return None,
        })
    }

    fn fmt_argument(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, index, needed, got } = *self;
        let is = |s: S| status == s as i32;
        match status {
            _ if is(S::NullPointer) => write!(f, "argument {index} is NULL, but must point to memory here"),
            _ if is(S::MisalignedPointer) => write!(f, "argument {index} is not aligned to {needed} bytes"),
            _ if is(S::LengthOverflow) => {
                write!(f, "the length {got} in argument {index} is more than the {needed} that are possible")
            }
            _ if is(S::OverlappingBuffers) && got == u64::from(u32::MAX) => {
                write!(f, "argument {index} and the error share memory")
            }
            _ if is(S::OverlappingBuffers) => {
                write!(f, "arguments {got} and {index} share memory, and one of them is written")
            }
            _ if is(S::StructSize) && (4..needed).contains(&got) => {
                write!(f, "the struct_size of argument {index} is {got}, within a field that ends at {needed}")
            }
            _ if is(S::StructSize) => {
                write!(f, "the struct_size of argument {index} is {got}; it must be between 4 and {needed}")
            }
            _ if is(S::UnknownField) => {
                write!(f, "argument {index} has a field at byte {got} that this version does not know, and it is not 0")
            }
            _ if is(S::UnknownValue) => write!(f, "argument {index} holds {got}, which is no value of its enum"),
            _ if is(S::WorkspaceTooSmall) => {
                write!(f, "the workspace, argument {index}, has {got} bytes; {needed} are needed")
            }
            _ if is(S::BufferTooSmall) => {
                write!(f, "argument {index} has room for {got} elements; {needed} are needed")
            }
            _ if is(S::UnknownName) => write!(f, "argument {index} is not a known name"),
            _ if is(S::NotAHandle) => {
                write!(f, "argument {index} is no handle of its type, or one that was destroyed")
            }
            _ if is(S::MissingField) => write!(f, "argument {index} lacks the field at byte {got}"),
            _ if is(S::MisalignedField) => {
                write!(f, "the address in argument {index}, at byte {got}, is not aligned to {needed} bytes")
            }
            _ if is(S::FieldOutOfRange) => {
                write!(
                    f,
                    "the number in argument {index}, at byte {got}, is out of range; the nearest possible is {needed}"
                )
            }
            _ if is(S::MisalignedOperand) => {
                write!(f, "an operand in argument {index} begins at {got:#x}, which is not aligned to {needed} bytes")
            }
            _ if is(S::OverlappingOperands) => {
                write!(
                    f,
                    "the operand in argument {index} that begins at {got:#x} shares memory with another, and must not"
                )
            }
            _ => f.write_str(status::words(status).to_str().unwrap_or_default()),
        }
    }
}

impl Display for sublet_error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, index, needed, got } = *self;
        let is = |s: S| status == s as i32;
        if let Some(error) = self.origin() {
            return write!(f, "{error}");
        }
        match status {
            _ if ARGUMENT_STATUSES.contains(&status) => self.fmt_argument(f),
            _ if is(S::PlanText) => {
                write!(f, "line {index} of the plan is not as expected: id,lower,upper,size,offset")
            }
            _ if is(S::BlockFlags) => {
                write!(f, "block {index} has the flags {got}, of which this version does not know all")
            }
            _ if is(S::OverCapacity) => {
                write!(
                    f,
                    "no plan within {got} bytes was found, and none is proved impossible; the best takes {needed}"
                )
            }
            _ if is(S::NoPlanFits) => {
                write!(f, "no plan fits within {got} bytes: that is proved; the best that was found takes {needed}")
            }
            _ if is(S::Operands) && needed > got => {
                write!(f, "operator {index} has {needed} operands more, and only {got} are left")
            }
            _ if is(S::Operands) => write!(f, "{got} operands are left over after the last operator"),
            _ if is(S::TensorUnknownValue) => {
                write!(f, "tensor {index}: {got} is no storage, or a reserved field that is not 0")
            }
            _ if is(S::NoRawMemory) || is(S::OutOfMemory) => write!(f, "there is no memory for {needed} bytes"),
            _ if is(S::OperatorUnknownValue) => {
                write!(f, "operator {index}: {got} is no kind of operator, or no flags, that this version knows")
            }
            _ if is(S::DeviceLost) => write!(f, "the device is lost, by CUDA error {got}: no call will work again"),
            _ if is(S::Driver) => write!(f, "a call of the CUDA driver failed with error {got}"),
            _ if is(S::CannotGrow) => write!(f, "the arena cannot have {needed} bytes where it is, {got} are reserved"),
            _ if is(S::NotPersistent) => {
                write!(f, "block {index} has no content of {got} bytes that outlives an iteration")
            }
            _ if is(S::HostIsDevice) => {
                write!(f, "copies of {needed} bytes to the host free nothing: it is the device")
            }
            _ if is(S::NetworkUnknownValue) => {
                write!(f, "memory, operator or access {index} holds {got}, which this version does not know")
            }
            _ if is(S::RowUnknownValue) => write!(f, "row {index}: {got} is no event, or no kind of operator"),
            _ => f.write_str(status::words(status).to_str().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors() -> Vec<Error> {
        let mut errors = vec![
            Error::TooManyBlocks { needed: 9, most: 8 },
            Error::ZeroSize { block: 1 },
            Error::EmptyLifetime { block: 2, start: 5, end: 4 },
            Error::Alignment { block: Some(3), alignment: 6 },
            Error::Alignment { block: None, alignment: 6 },
            Error::PinMisaligned { block: 4, offset: 12, alignment: 8 },
            Error::PinsOverlap { first: 5, second: 6 },
            Error::SizeOverflow { block: 7 },
            Error::Invalid(Violation::EndOverflow { block: 8, offset: u64::MAX }),
            Error::Invalid(Violation::OverCapacity { block: 9, end: 20, capacity: 10 }),
            Error::Invalid(Violation::Overlap { first: 10, second: 11, step: 12 }),
            Error::Invalid(Violation::Misaligned { block: 12, offset: 13, alignment: 16 }),
            Error::Invalid(Violation::Moved { block: 13, offset: 14, pin: 15 }),
            Error::UnknownTensor { node: 23, tensor: 24 },
            Error::TwoWriters { tensor: 25, first: 26, second: 27 },
            Error::TwoWriters { tensor: 25, first: 26, second: 26 },
            Error::Cycle { node: 28 },
            Error::Device,
            Error::HostTooSmall { needed: 16, capacity: 15 },
            Error::NoBank { block: 26, size: 27, most: 20, proved: true },
            Error::NoBank { block: 26, size: 27, most: 28, proved: false },
            Error::OverLimit { least: 17, limit: 16 },
            Error::Impossible { needed: 17, limit: 16 },
            Error::OutOfMemory { needed: 18, largest: 17 },
            Error::NotAllocated { address: 19 },
            Error::BufferTooSmall { buffer: Buffer::Live, needed: 20, got: 19 },
            Error::BufferTooSmall { buffer: Buffer::Events, needed: 21, got: 20 },
            Error::BufferTooSmall { buffer: Buffer::Rows, needed: 22, got: 21 },
        ];
        errors.extend(ACCESS_FAULTS.map(|(_, fault)| Error::Access { access: 19, fault }));
        errors.extend(ROW_FAULTS.map(|(_, fault)| Error::Row { row: 18, fault }));
        errors
    }

    #[test]
    fn nothing_is_lost_on_the_way() {
        for error in errors() {
            let crossed = sublet_error::from(Failure::from(error));
            assert_eq!(crossed.origin(), Some(error));
            assert_eq!(crossed.to_string(), error.to_string());
        }
    }

    #[test]
    fn only_the_lower_bound_stays_behind() {
        let told = |lower_bound| {
            sublet_error::from(Failure::from(Error::OverCapacity { peak: 12, lower_bound, capacity: 10 })).to_string()
        };
        assert!(
            told(10).starts_with("no plan within 10 bytes was found, and none is proved impossible; the best takes 12")
        );
        assert!(told(11).starts_with("no plan fits within 10 bytes: that is proved; the best that was found takes 12"));
    }

    #[test]
    fn memory_that_a_device_lacks_is_no_hole() {
        let told = |largest| sublet_error::from(Failure::new(S::OutOfMemory, 0, 18, largest)).to_string();
        assert_eq!(
            [told(17), told(0)],
            ["no hole for 18 bytes; the largest has 17", "there is no memory for 18 bytes"]
        );
    }
}
