//! The structs that most functions take: an iteration as it was recorded, and one that was rewritten to take less
//! memory.

use core::mem::offset_of;

use sublet_core::simulate::Device;
use sublet_core::trace::Recorded;

use crate::arguments::{Arguments, counted, params, plain};
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
params! {
    sublet_trace { struct_size, reserved, rows, row_count, operators, operator_count, block_count, device }
    sublet_schedule { struct_size, reserved, rows, row_count, offsets, residency_count }
}

#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) rows: usize,
    pub(crate) operators: usize,
    pub(crate) blocks: usize,
}

impl sublet_trace {
    fn counts(&self, position: u32) -> Result<Counts, Failure> {
        none(self.reserved, position)?;
        let count = |n: usize| counted(n, position);
        let (rows, operators) = (count(self.row_count)?, count(self.operator_count)?);
        Ok(Counts { rows, operators, blocks: count(self.block_count)? })
    }
}

impl sublet_schedule {
    fn counts(&self, position: u32) -> Result<(usize, usize), Failure> {
        none(self.reserved, position)?;
        Ok((counted(self.row_count, position)?, counted(self.residency_count, position)?))
    }
}

pub(crate) fn none(reserved: u32, position: u32) -> Result<(), Failure> {
    if reserved == 0 { Ok(()) } else { Err(Failure::new(S::UnknownValue, position, 0, reserved.into())) }
}

/// Follows no pointer in the trace, which is NULL or as long as its first field says.
pub(crate) unsafe fn counts(arguments: &mut Arguments<'_>, trace: *const sublet_trace) -> Result<Counts, Failure> {
    let position = arguments.position();
    // SAFETY: as promised.
    unsafe { arguments.given(trace)? }.counts(position)
}

/// Rows and residencies. As `counts`, for a schedule.
pub(crate) unsafe fn schedule_counts(
    arguments: &mut Arguments<'_>,
    schedule: *const sublet_schedule,
) -> Result<(usize, usize), Failure> {
    let position = arguments.position();
    // SAFETY: as promised.
    unsafe { arguments.given(schedule)? }.counts(position)
}

pub(crate) struct Trace<'a> {
    pub(crate) rows: &'a [sublet_row],
    pub(crate) operators: &'a [sublet_operator],
    pub(crate) blocks: usize,
    pub(crate) device: Device,
}

impl<'a> Trace<'a> {
    /// If `trace` is not NULL, the struct, its arrays and its device can be read.
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

    pub(crate) fn recorded(&self, room: &mut Room<'a>) -> Result<Recorded<'a>, Failure> {
        let rows = trace::rows(room, self.rows)?;
        Ok(Recorded { rows, operators: operator::operators(room, self.operators)?, blocks: self.blocks })
    }
}

pub(crate) struct Schedule<'a> {
    /// Counted from 0.
    pub(crate) position: u32,
    pub(crate) rows: &'a [sublet_row],
    pub(crate) offsets: &'a [u64],
}

impl<'a> Schedule<'a> {
    /// If `schedule` is not NULL, the struct and its arrays can be read.
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
