//! The rows of a trace, each an event such as a malloc, a read or a copy of a block: their structs in C, and the
//! translation into those of the planner.

use sublet_core::trace::{Event, Op, Row};

use crate::arguments::plain;
use crate::error::Failure;
use crate::status::sublet_status as S;
use crate::workspace::Room;

/// What happens to a block in a row of a trace.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_event {
    /// The block is allocated, with undefined content.
    Malloc = 0,
    /// The block is freed, and its content is lost.
    Free = 1,
    /// An operator reads the block.
    Read = 2,
    /// An operator writes the block, every byte of it: one that leaves parts as they were reads the block too.
    Write = 3,
    /// The block is copied to the host.
    SwapOut = 4,
    /// The block's latest copy on the host is copied back to the device.
    SwapIn = 5,
}

/// What the field `op` of a row of a trace means.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_op_kind {
    /// The row belongs to no operator: for example a free between operators, the malloc of a persistent block, or a
    /// malloc or write of an input.
    None = 0,
    /// The row belongs to the operator of number `op`, in its first run.
    First = 1,
    /// The row belongs to the operator of number `op`, recomputed. Its accesses are those of the first run, without
    /// those to persistent blocks that the operator both reads and writes: the recomputation must not update them.
    Rerun = 2,
}

/// One row of a trace: something that happens to a block. The row's position in the trace, from 0, is its step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_row {
    /// When the row happened, in ns from the start of the iteration; never less than in the row before.
    pub time_ns: u64,
    /// Size of the block in bytes. It counts only with SUBLET_EVENT_MALLOC.
    pub bytes: u64,
    /// The number of the block; blocks are numbered from 0 without holes.
    pub block: u32,
    /// A sublet_event: what happens to the block.
    pub event: u32,
    /// The number of the operator that the row belongs to; with SUBLET_OP_KIND_NONE it means nothing.
    pub op: u32,
    /// A sublet_op_kind: whether the row belongs to an operator, and if so, to its first run or to a recomputation.
    pub op_kind: u32,
}

plain!(sublet_row);

const EVENTS: [(sublet_event, Event); 6] = [
    (sublet_event::Malloc, Event::Malloc),
    (sublet_event::Free, Event::Free),
    (sublet_event::Read, Event::Read),
    (sublet_event::Write, Event::Write),
    (sublet_event::SwapOut, Event::SwapOut),
    (sublet_event::SwapIn, Event::SwapIn),
];

pub(crate) fn event(number: u32) -> Option<Event> {
    EVENTS.iter().find(|&&(e, _)| e as u32 == number).map(|&(_, event)| event)
}

impl sublet_row {
    /// The error is the unknown value of `event` or `op_kind`.
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

pub(crate) fn row(given: &[sublet_row], i: usize) -> Result<Row, Failure> {
    let refuse = |got: u32| Failure::new(S::RowUnknownValue, u32::try_from(i).unwrap_or(u32::MAX), 0, got.into());
    given.get(i).ok_or(Failure::of(S::Unnamed))?.row().map_err(refuse)
}

pub(crate) fn rows<'a>(room: &mut Room<'a>, given: &[sublet_row]) -> Result<&'a mut [Row], Failure> {
    room.slice(given.len(), |i| row(given, i))
}

/// `to` is empty if the caller wants no values.
pub(crate) fn copy<T: Copy + Into<U>, U>(from: &[T], to: &mut [U]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = (*from).into();
    }
}
