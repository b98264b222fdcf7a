//! Turns the operators' uses of memories (storages of tensors) into rows of a trace.
//!
//! The module works in two parts. Each goes over the accesses, which stand in the order of execution.
//!
//! 1. Some memories are *kept*: they hold a value from one iteration to the next, and are always alive. They are the
//!    memories that the caller says are kept, those of 0 bytes, since no memory can be saved there, and those whose
//!    first access is a read. For each kept memory, the last operator that writes it is noted; for each other memory,
//!    the last operator that uses it. A memory that the caller says is scratch counts as scratch only if each operator
//!    writes it before reading it. A kept memory that one operator reads and a later operator writes gets a block in
//!    the trace that is always alive. This block, as large as the alignment, stands for the memory, so that operators
//!    that read the memory are not recomputed after the write. A memory of 0 bytes gets such a block only if the caller
//!    says that it is kept. The module `stand_ins` takes these blocks out of the finished plan.
//! 2. For each operator, rows are written in this order: the mallocs of the memories that get a place in the arena, the
//!    operator's reads, its writes, and the frees of its scratch memories and of the memories that no later operator
//!    uses. Several uses of a memory by one operator become at most one read and one write. A read that follows a write
//!    by the same operator is left out.

use super::{Access, Network, Recording, Use};
use crate::error::{AccessFault, Buffer};
use crate::table::Table;
use crate::trace::{self, Event, Op, Row};
use crate::{Error, Workspace, WorkspaceLen};

/// Three rows for each access: a malloc, a write and a free, or a read, a write and the malloc of a kept memory.
pub(super) const fn most_rows(accesses: usize) -> usize {
    3 * accesses
}

pub(super) const fn most_accesses(accesses: usize) -> usize {
    2 * accesses
}

pub(super) const fn workspace(memories: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 4 * memories }
}

/// For a block that stands for a kept memory: nobody uses the offset that a plan gives to it.
pub(super) const NONE: u32 = u32::MAX;

struct Maker<'a> {
    rows: &'a mut [Row],
    row_count: usize,
    owners: Table<'a, u32>,
    blocks: u32,
}

struct Memories<'a> {
    /// By memory: 1 + the last operator that uses it or, if it is kept, that writes it; 0 if none.
    last: Table<'a, u32>,
    what: Table<'a, u32>,
    /// By memory: 1 + its block; 0 if none. In `look`, 1 + the last operator so far that uses it.
    block: Table<'a, u32>,
    /// By memory: what the present operator does with it; [`READS`] and [`WRITES`] only for rows still to be made.
    does: Table<'a, u32>,
}

const KEPT: u32 = 1;
const SCRATCH: u32 = 2;
/// Kept, and written after an earlier operator has read it.
const CHANGES: u32 = 4;
/// 0 bytes, and not declared kept. [`KEPT`] is set too, but a write changes nothing.
const EMPTY: u32 = 8;

const READS: u32 = 1;
const WRITES: u32 = 2;
const TOUCHES: u32 = 4;

pub(super) fn record<'a>(
    network: &Network<'_>,
    alignment: u64,
    mut scratch: Workspace<'_>,
    rows: &'a mut [Row],
    known: &'a mut [trace::Operator],
    owners: &'a mut [u32],
) -> Result<Recording<'a>, Error> {
    let n = network.memories.len();
    let mut memories = Memories {
        last: scratch.indices(n),
        what: scratch.indices(n),
        block: scratch.indices(n),
        does: scratch.indices(n),
    };
    memories.look(network)?;
    let (mut planned_bytes, mut kept_bytes) = (0_u64, 0_u64);
    for (memory, m) in (0..).zip(network.memories) {
        let bytes = if memories.what[memory] & KEPT > 0 { &mut kept_bytes } else { &mut planned_bytes };
        *bytes = bytes.checked_add(m.bytes).ok_or(Error::SizeOverflow { block: memory })?;
    }
    let known = known.get_mut(..network.operators.len()).unwrap_or_default();
    for (op, told) in known.iter_mut().zip(network.operators) {
        *op = trace::Operator { rerun: told.rerun, ..trace::Operator::default() };
    }
    let mut maker = Maker { rows, row_count: 0, owners: Table::new(owners), blocks: 0 };
    for memory in (0..).take(n).filter(|&memory| memories.what[memory] & CHANGES > 0) {
        maker.owners[maker.blocks] = NONE;
        let row = Row { time_ns: 0, bytes: alignment, block: maker.blocks, op: Op::None, event: Event::Malloc };
        maker.push(row)?;
        maker.blocks += 1;
        memories.block[memory] = maker.blocks;
    }
    let (mut time, mut op) = (0_u64, 0);
    let mut rest = network.accesses;
    while let Some(&Access { op: number, .. }) = rest.first() {
        let count = rest.iter().take_while(|a| a.op == number).count();
        let (accesses, after) = rest.split_at_checked(count).unwrap_or_default();
        rest = after;
        for skipped in network.operators.get(position(op)..position(number)).unwrap_or_default() {
            time = time.saturating_add(skipped.time_ns);
        }
        let takes = network.operators.get(position(number)).map_or(0, |o| o.time_ns);
        let end = time.saturating_add(takes);
        if memories.changes_what_is_kept(accesses)
            && let Some(operator) = known.get_mut(position(number))
        {
            operator.rerun = false;
        }
        maker.operator(network, alignment, &mut memories, accesses, (time, end))?;
        (time, op) = (end, number.saturating_add(1));
    }
    let Maker { rows, row_count, owners, blocks } = maker;
    let rows = rows.get(..row_count).unwrap_or_default();
    let all = network.operators.iter().fold(0_u64, |sum, o| sum.saturating_add(o.time_ns));
    Ok(Recording {
        rows,
        rest_ns: all.saturating_sub(rows.last().map_or(0, |last| last.time_ns)),
        operators: known,
        memories: owners.into_slice().get(..position(blocks)).unwrap_or_default(),
        planned_bytes,
        kept_bytes,
        alignment,
    })
}

impl Maker<'_> {
    fn operator(
        &mut self,
        network: &Network<'_>,
        alignment: u64,
        memories: &mut Memories<'_>,
        accesses: &[Access],
        (begin, end): (u64, u64),
    ) -> Result<(), Error> {
        memories.open(accesses);
        let op = accesses.first().map_or(Op::None, |a| Op::First(a.op));
        let row = |time_ns, event, block| Row { time_ns, bytes: 0, block, op, event };
        for a in accesses.iter().filter(|a| memories.what[a.memory] & KEPT == 0) {
            if memories.block[a.memory] == 0 {
                let size = network.memories.get(position(a.memory)).map_or(0, |m| m.bytes);
                let bytes = size.checked_next_multiple_of(alignment).ok_or(Error::SizeOverflow { block: a.memory })?;
                self.owners[self.blocks] = a.memory;
                self.push(Row { bytes, ..row(begin, Event::Malloc, self.blocks) })?;
                self.blocks += 1;
                memories.block[a.memory] = self.blocks;
            }
        }
        for (bit, time, event) in [(READS, begin, Event::Read), (WRITES, end, Event::Write)] {
            for a in accesses {
                if memories.does[a.memory] & bit > 0 {
                    memories.does[a.memory] &= !bit;
                    self.push(row(time, event, memories.block[a.memory] - 1))?;
                }
            }
        }
        for a in accesses {
            memories.does[a.memory] = 0;
            let block = memories.block[a.memory];
            let what = memories.what[a.memory];
            if block > 0 && what & KEPT == 0 && (what & SCRATCH > 0 || memories.last[a.memory] == a.op + 1) {
                memories.block[a.memory] = 0;
                self.push(Row { op: Op::None, ..row(end, Event::Free, block - 1) })?;
            }
        }
        Ok(())
    }

    fn push(&mut self, row: Row) -> Result<(), Error> {
        let got = self.rows.len();
        let free = self.rows.get_mut(self.row_count);
        let needed = self.row_count + 1;
        *free.ok_or(Error::BufferTooSmall { buffer: Buffer::Rows, needed, got })? = row;
        self.row_count = needed;
        Ok(())
    }
}

impl Memories<'_> {
    fn look(&mut self, network: &Network<'_>) -> Result<(), Error> {
        for (memory, m) in (0..).zip(network.memories) {
            let bit = |is: bool, bit| if is { bit } else { 0 };
            let empty = m.bytes == 0 && !m.kept;
            self.what[memory] = bit(m.kept || empty, KEPT) | bit(m.scratch, SCRATCH) | bit(empty, EMPTY);
        }
        let mut op = 0;
        for (access, a) in (0..).zip(network.accesses) {
            let refuse = |fault| Err(Error::Access { access, fault });
            if position(a.memory) >= network.memories.len() {
                return refuse(AccessFault::UnknownMemory);
            }
            if position(a.op) >= network.operators.len() || a.op == u32::MAX {
                return refuse(AccessFault::UnknownOperator);
            }
            if a.op < op {
                return refuse(AccessFault::OutOfOrder);
            }
            op = a.op;
            // In this loop `block` holds 1 + the last operator so far that uses the memory.
            if a.how == Use::Read && self.block[a.memory] == 0 {
                self.what[a.memory] |= KEPT;
            }
            if a.how == Use::Read && self.block[a.memory] != op + 1 {
                self.what[a.memory] &= !SCRATCH;
            }
            self.block[a.memory] = op + 1;
        }
        for a in network.accesses {
            if self.what[a.memory] & KEPT == 0 || a.how != Use::Read {
                self.last[a.memory] = a.op + 1;
            }
            self.block[a.memory] = 0;
        }
        for a in network.accesses {
            let kept = self.what[a.memory] & (KEPT | EMPTY) == KEPT;
            if kept && a.how == Use::Read && self.last[a.memory] > a.op + 1 {
                self.what[a.memory] |= CHANGES;
                self.what[a.memory] &= !SCRATCH;
            }
        }
        Ok(())
    }

    /// Such an operator must not be recomputed: it might update the memory twice.
    fn changes_what_is_kept(&self, accesses: &[Access]) -> bool {
        accesses.iter().any(|a| self.what[a.memory] & (KEPT | EMPTY) == KEPT && a.how != Use::Read)
    }

    fn open(&mut self, accesses: &[Access]) {
        for a in accesses.iter().filter(|a| self.what[a.memory] & (KEPT | CHANGES) != KEPT) {
            let holds = self.block[a.memory] > 0 && self.what[a.memory] & SCRATCH == 0;
            let is_first = self.does[a.memory] == 0;
            self.does[a.memory] |= TOUCHES
                | match a.how {
                    Use::Read if is_first => READS,
                    Use::Write if is_first && holds => READS | WRITES,
                    Use::Write | Use::Overwrite => WRITES,
                    Use::Read => 0,
                };
        }
    }
}

fn position(i: u32) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}
