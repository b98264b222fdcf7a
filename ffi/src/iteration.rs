//! The structs that most functions take: an iteration as it was recorded, and one that was rewritten to take less
//! memory.

use core::mem::offset_of;

use sublet_core::simulate::Device;
use sublet_core::trace::Recorded;

use crate::arguments::{Arguments, Params, counted, plain};
use crate::device::sublet_device;
use crate::error::Failure;
use crate::operator::{self, sublet_operator};
use crate::status::sublet_status as S;
use crate::trace::{self, sublet_row};
use crate::workspace::Room;

/// A recorded iteration: its rows (each a malloc, free, read or write of a block), and what is known of its operators
/// and its device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_trace {
    /// Set this to sizeof(sublet_trace): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// The rows of the trace, in the order of time.
    pub rows: *const sublet_row,
    /// How many rows the trace has.
    pub row_count: usize,
    /// What is known of the operators: entry k tells whether operator k may be recomputed, works in place, or is a
    /// ReLU. Of operators beyond the end of the array nothing is known. NULL, with `operator_count` 0: nothing is known
    /// of any operator. A recomputed operator runs without the persistent blocks that it both reads and writes. If its
    /// output would then differ, the operator needs the flag SUBLET_OPERATOR_ONCE.
    pub operators: *const sublet_operator,
    /// How many entries `operators` has.
    pub operator_count: usize,
    /// How many block numbers there are: every number in the rows of this trace is below it. A rewritten trace may use
    /// higher numbers: `block_count` + b stands for the mask of block b, one bit for each of its elements, which the
    /// gradient of a ReLU reads in place of the block.
    pub block_count: usize,
    /// The device that the iteration runs on. NULL stands for a sublet_device whose fields are all 0 but `struct_size`:
    /// a device that is connected by PCIe 3.0.
    pub device: *const sublet_device,
}

/// A rewritten trace, and the offsets of its blocks. It computes the same values as the original, which is a
/// sublet_trace, and takes less memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_schedule {
    /// Set this to sizeof(sublet_schedule): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// The rows of the rewritten trace, in the order of time.
    pub rows: *const sublet_row,
    /// How many rows the rewritten trace has.
    pub row_count: usize,
    /// The offsets of blocks in the arena, in bytes: one for each malloc row, in the order of these rows.
    pub offsets: *const u64,
    /// How many entries `offsets` has: one for each malloc row.
    pub residency_count: usize,
}

plain!(sublet_trace, sublet_schedule);
// SAFETY: they begin with their size.
unsafe impl Params for sublet_trace {}
// SAFETY: as above.
unsafe impl Params for sublet_schedule {}

/// How many rows, operators and blocks a trace has.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) rows: usize,
    pub(crate) operators: usize,
    pub(crate) blocks: usize,
}

impl sublet_trace {
    /// How many rows, operators and blocks this trace has. Fails if one of these numbers is too large to be planned, or
    /// if the reserved field is not 0: an error of argument number `position`, which is the trace.
    fn counts(&self, position: u32) -> Result<Counts, Failure> {
        none(self.reserved, position)?;
        let count = |n: usize| counted(n, position);
        let (rows, operators) = (count(self.row_count)?, count(self.operator_count)?);
        Ok(Counts { rows, operators, blocks: count(self.block_count)? })
    }
}

impl sublet_schedule {
    /// How many rows this schedule has, and how many residencies: live ranges of blocks on the device, one for each
    /// malloc row. Fails if one of these numbers is too large to be planned, or if the reserved field is not 0: an
    /// error of argument number `position`, which is the schedule.
    fn counts(&self, position: u32) -> Result<(usize, usize), Failure> {
        none(self.reserved, position)?;
        Ok((counted(self.row_count, position)?, counted(self.residency_count, position)?))
    }
}

/// Fails unless `reserved`, a reserved field of argument number `position`, is 0.
pub(crate) fn none(reserved: u32, position: u32) -> Result<(), Failure> {
    if reserved == 0 { Ok(()) } else { Err(Failure::new(S::UnknownValue, position, 0, reserved.into())) }
}

/// Checks the next argument of the call, a trace, but follows none of the pointers in it; returns how many rows,
/// operators and blocks the trace has. Fails if `trace` is NULL or no valid struct, or if one of these numbers is too
/// large to be planned.
///
/// # Safety
/// If `trace` is not NULL, as many bytes can be read as its first field says.
pub(crate) unsafe fn counts(arguments: &mut Arguments<'_>, trace: *const sublet_trace) -> Result<Counts, Failure> {
    let position = arguments.position();
    // SAFETY: as promised.
    unsafe { arguments.given(trace)? }.counts(position)
}

/// Checks the next argument of the call, a schedule, but follows none of the pointers in it; returns how many rows it
/// has, and how many residencies: live ranges of blocks on the device, one for each malloc row. Fails if `schedule` is
/// NULL or no valid struct, or if one of these numbers is too large to be planned.
///
/// # Safety
/// If `schedule` is not NULL, as many bytes can be read as its first field says.
pub(crate) unsafe fn schedule_counts(
    arguments: &mut Arguments<'_>,
    schedule: *const sublet_schedule,
) -> Result<(usize, usize), Failure> {
    let position = arguments.position();
    // SAFETY: as promised.
    unsafe { arguments.given(schedule)? }.counts(position)
}

/// The arrays of a trace that has been checked.
pub(crate) struct Trace<'a> {
    pub(crate) rows: &'a [sublet_row],
    pub(crate) operators: &'a [sublet_operator],
    pub(crate) blocks: usize,
    pub(crate) device: Device,
}

impl<'a> Trace<'a> {
    /// Checks the next argument of the call, a trace, and what it points to: arrays and a device. Fails at the first
    /// pointer, length or value that is wrong.
    ///
    /// # Safety
    /// If `trace` is not NULL, as many bytes can be read as its first field says, and so can the arrays and the device
    /// that it points to.
    pub(crate) unsafe fn new(arguments: &mut Arguments<'a>, trace: *const sublet_trace) -> Result<Self, Failure> {
        let at = arguments.position();
        // SAFETY: as promised.
        let given = unsafe { arguments.given(trace)? };
        let Counts { rows, operators, blocks } = given.counts(at)?;
        // SAFETY: as promised.
        unsafe {
            let rows = arguments.field(at, offset_of!(sublet_trace, rows), |a| a.input_of(given.rows, rows, at))?;
            let field = offset_of!(sublet_trace, operators);
            let operators = arguments.field(at, field, |a| a.input_of(given.operators, operators, at))?;
            let device = arguments.field(at, offset_of!(sublet_trace, device), |a| a.params(given.device))?;
            Ok(Self { rows, operators, blocks, device: device.device(at)? })
        }
    }

    pub(crate) const fn counts(&self) -> Counts {
        Counts { rows: self.rows.len(), operators: self.operators.len(), blocks: self.blocks }
    }

    /// The trace in the form that the crate `sublet_core` takes, with its rows and operators in memory that is cut from
    /// `room`. Fails if a field of a row or an operator holds a value that this version does not know.
    pub(crate) fn recorded(&self, room: &mut Room<'a>) -> Result<Recorded<'a>, Failure> {
        let rows = trace::rows(room, self.rows)?;
        Ok(Recorded { rows, operators: operator::operators(room, self.operators)?, blocks: self.blocks })
    }
}

/// The arrays of a schedule that has been checked.
pub(crate) struct Schedule<'a> {
    /// Which argument of the call, counted from 0, the schedule is.
    pub(crate) position: u32,
    pub(crate) rows: &'a [sublet_row],
    pub(crate) offsets: &'a [u64],
}

impl<'a> Schedule<'a> {
    /// Checks the next argument of the call, a schedule, and the arrays that it points to. Fails at the first pointer,
    /// length or value that is wrong.
    ///
    /// # Safety
    /// If `schedule` is not NULL, as many bytes can be read as its first field says, and so can the arrays that it
    /// points to.
    pub(crate) unsafe fn new(arguments: &mut Arguments<'a>, schedule: *const sublet_schedule) -> Result<Self, Failure> {
        let at = arguments.position();
        // SAFETY: as promised.
        let given = unsafe { arguments.given(schedule)? };
        let (rows, offsets) = given.counts(at)?;
        // SAFETY: as promised.
        unsafe {
            let rows = arguments.field(at, offset_of!(sublet_schedule, rows), |a| a.input_of(given.rows, rows, at))?;
            let field = offset_of!(sublet_schedule, offsets);
            let offsets = arguments.field(at, field, |a| a.input_of(given.offsets, offsets, at))?;
            Ok(Self { position: at, rows, offsets })
        }
    }
}
