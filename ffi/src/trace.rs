//! One recorded iteration: rows, and the lifetimes that they give to blocks.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Op, Row};

use crate::arguments::{Arguments, counted, plain};
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{Needed, Room, sublet_layout};

/// What happens to a block in a row.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_event {
    /// It is allocated, with undefined content.
    Malloc = 0,
    /// It is freed, and its content is lost.
    Free = 1,
    /// An operator reads it.
    Read = 2,
    /// An operator writes it.
    Write = 3,
    /// It is copied to the host.
    SwapOut = 4,
    /// The last copy on the host comes back.
    SwapIn = 5,
}

/// What the field `op` of a row means.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_op_kind {
    /// Nothing: frees between operators, persistent blocks, inputs.
    None = 0,
    /// The operator of this number.
    First = 1,
    /// The operator of this number, run again (recomputation).
    Rerun = 2,
}

/// One row of a trace; its position is its step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_row {
    /// When it happened, in ns from the start of the iteration; never before the row above.
    pub time_ns: u64,
    /// Size of the block in bytes; only for SUBLET_EVENT_MALLOC.
    pub bytes: u64,
    /// The block: numbers from 0, dense.
    pub block: u32,
    /// A sublet_event.
    pub event: u32,
    /// The operator that the row belongs to.
    pub op: u32,
    /// A sublet_op_kind.
    pub op_kind: u32,
}

/// One uninterrupted residence of a block of a trace on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_residency {
    /// The block of the trace.
    pub block: u32,
    /// 0 for its first residency, 1 for the next, and so on.
    pub ordinal: u32,
}

plain!(sublet_row, sublet_residency);

const EVENTS: [(sublet_event, Event); 6] = [
    (sublet_event::Malloc, Event::Malloc),
    (sublet_event::Free, Event::Free),
    (sublet_event::Read, Event::Read),
    (sublet_event::Write, Event::Write),
    (sublet_event::SwapOut, Event::SwapOut),
    (sublet_event::SwapIn, Event::SwapIn),
];

/// The event of this number.
pub(crate) fn event(number: u32) -> Option<Event> {
    EVENTS.iter().find(|&&(e, _)| e as u32 == number).map(|&(_, event)| event)
}

impl sublet_row {
    /// As `core` has it, or the value that it does not know.
    fn row(&self) -> Result<Row, u32> {
        let op = match self.op_kind {
            k if k == sublet_op_kind::None as u32 => Op::None,
            k if k == sublet_op_kind::First as u32 => Op::First(self.op),
            k if k == sublet_op_kind::Rerun as u32 => Op::Rerun(self.op),
            unknown => return Err(unknown),
        };
        let event = event(self.event).ok_or(self.event)?;
        Ok(Row { time_ns: self.time_ns, bytes: self.bytes, block: self.block, op, event })
    }
}

impl From<Row> for sublet_row {
    fn from(Row { time_ns, bytes, block, op, event }: Row) -> Self {
        let event = EVENTS.iter().find(|&&(_, e)| e == event).map_or(0, |&(e, _)| e as u32);
        let (op, kind) = match op {
            Op::None => (0, sublet_op_kind::None),
            Op::First(k) => (k, sublet_op_kind::First),
            Op::Rerun(k) => (k, sublet_op_kind::Rerun),
        };
        Self { time_ns, bytes, block, event, op, op_kind: kind as u32 }
    }
}

impl From<Residency> for sublet_residency {
    fn from(Residency { block, ordinal }: Residency) -> Self {
        Self { block, ordinal }
    }
}

/// One row of many as `core` has it.
pub(crate) fn row(given: &[sublet_row], i: usize) -> Result<Row, Failure> {
    let refuse = |got: u32| Failure::new(S::RowUnknownValue, u32::try_from(i).unwrap_or(u32::MAX), 0, got.into());
    given.get(i).ok_or(Failure::of(S::Unnamed))?.row().map_err(refuse)
}

/// Rows as `core` has them.
pub(crate) fn rows<'a>(room: &mut Room<'a>, given: &[sublet_row]) -> Result<&'a mut [Row], Failure> {
    room.slice(given.len(), |i| row(given, i))
}

/// Writes values as C has them over the beginning of an output.
pub(crate) fn copy<T: Copy + Into<U>, U>(from: &[T], to: &mut [U]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*from).into();
    }
}

/// Number of residencies in a trace, which is that of its mallocs: how many blocks sublet_lifetimes writes.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_residencies(
    rows: *const sublet_row,
    row_count: usize,
    residency_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (rows, residency_count) =
            unsafe { (arguments.input(rows, row_count)?, arguments.result(residency_count)?) };
        let mut residencies = 0;
        for i in 0..rows.len() {
            residencies += liveness::residencies(&[row(rows, i)?]);
        }
        residency_count.set(residencies);
        Ok(())
    })
}

fn needed(rows: usize, blocks: usize, residencies: usize) -> Needed {
    Needed::workspace(liveness::workspace(blocks))
        .and::<Row>(rows)
        .and::<Block>(residencies)
        .and::<Residency>(residencies)
}

/// The workspace that sublet_lifetimes needs for so many rows, block numbers, and room for so many residencies. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lifetimes_workspace(
    row_count: usize,
    block_count: usize,
    residency_capacity: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (rows, blocks) = (arguments.count(row_count)?, arguments.count(block_count)?);
        let residencies = arguments.count(residency_capacity)?;
        Ok(needed(rows, blocks, residencies))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes the lifetime of every residency of a trace to `blocks`, in the order of the mallocs, and which residency it is to
/// `names`, which may be NULL. A lifetime is [row of the malloc, row of the free); what is never freed ends one past
/// the last row. `block_count` is the number of block numbers that the rows use. O(rows).
///
/// `blocks` and `names` have room for `residency_capacity`, which sublet_residencies tells; `residency_count` receives how many there
/// are, and may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_lifetimes(
    rows: *const sublet_row,
    row_count: usize,
    block_count: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    blocks: *mut sublet_block,
    names: *mut sublet_residency,
    residency_capacity: usize,
    residency_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (given, blocks, names, residency_count, mut room) = unsafe {
            let given = arguments.input(rows, row_count)?;
            arguments.count(block_count)?;
            counted(residency_capacity, 7)?;
            let needed = needed(row_count, block_count, residency_capacity);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let blocks = arguments.output_of(blocks, residency_capacity)?;
            let names = arguments.output_if_wanted(names, residency_capacity)?;
            arguments.skip();
            (given, blocks, names, arguments.optional(residency_count)?, room)
        };
        let rows = crate::trace::rows(&mut room, given)?;
        let (to_blocks, to_names) =
            (room.fill(residency_capacity, Block::default()), room.fill(residency_capacity, Residency::default()));
        let residencies = liveness::residencies(rows);
        if residencies > residency_capacity {
            return Err(Failure::new(S::BufferTooSmall, 5, residencies as u64, residency_capacity as u64));
        }
        let scratch = room.workspace(liveness::workspace(block_count));
        let found = liveness::lifetimes(rows, block_count, scratch, to_blocks, to_names)?;
        copy(to_blocks.get(..found).unwrap_or_default(), blocks);
        copy(to_names.get(..found).unwrap_or_default(), names);
        residency_count.set(found);
        Ok(())
    })
}
