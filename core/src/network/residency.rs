//! From what operators use to the rows of a trace.
//!
//! Two passes over the accesses, which stand in the order of execution.
//!
//! 1. Which memories are kept: those of which the caller says so, that have no bytes, or whose first access reads. For the
//!    others, the last operator that uses them; for the kept ones, the last that writes them. Whether a scratch memory is one:
//!    each operator writes it before it reads it.
//! 2. Operator by operator, the mallocs of the residencies that begin, its reads, its writes, and the frees of those that
//!    end. Of several uses of a memory by an operator one read and one write remain: what it reads after it has written
//!    it itself is no read.

use super::{Access, Network, Use};
use crate::error::AccessFault;
use crate::table::Table;
use crate::trace::{self, Event, Op, Row};
use crate::{Error, Workspace, WorkspaceLen};

/// The most rows for so many accesses: the first of a residency is a malloc, a write and a free; others read and write.
pub(super) const fn most_rows(accesses: usize) -> usize {
    3 * accesses
}

/// The most accesses among them.
pub(super) const fn most_accesses(accesses: usize) -> usize {
    2 * accesses
}

/// Scratch while rows are made: four indices for each memory.
pub(super) const fn workspace(memories: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 4 * memories }
}

/// What is known of residencies afterwards: of each, its memory.
pub(super) const fn kept_workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: blocks }
}

/// Residencies as the blocks of a trace.
pub(super) struct Residencies<'a> {
    /// The memory of each block.
    memory: Table<'a, u32>,
    blocks: u32,
    rows: usize,
    planned_bytes: u64,
    kept_bytes: u64,
}

/// What is known of a memory.
struct Memories<'a> {
    /// 1 + the last operator that uses it; of a kept one, 1 + the last that writes it. 0 is none.
    last: Table<'a, u32>,
    /// What it is: the bits below.
    what: Table<'a, u32>,
    /// 1 + its block, while it is resident.
    block: Table<'a, u32>,
    /// What the operator at hand does with it: the bits below.
    does: Table<'a, u32>,
}

const KEPT: u32 = 1;
const SCRATCH: u32 = 2;

const READS: u32 = 1;
const WRITES: u32 = 2;
const TOUCHES: u32 = 4;

impl<'a> Residencies<'a> {
    /// Writes rows, and what is known of the operators.
    pub(super) fn new(
        network: &Network<'_>,
        alignment: u64,
        mut scratch: Workspace<'_>,
        kept: &mut Workspace<'a>,
        rows: &mut [Row],
        operators: &mut [trace::Operator],
    ) -> Result<Self, Error> {
        let n = network.memories.len();
        let mut memories = Memories {
            last: scratch.indices(n),
            what: scratch.indices(n),
            block: scratch.indices(n),
            does: scratch.indices(n),
        };
        let mut made =
            Self { memory: kept.indices(network.accesses.len()), blocks: 0, rows: 0, planned_bytes: 0, kept_bytes: 0 };
        memories.look(network)?;
        for (memory, m) in (0..).zip(network.memories) {
            let bytes = if memories.what[memory] & KEPT > 0 { &mut made.kept_bytes } else { &mut made.planned_bytes };
            *bytes = bytes.checked_add(m.bytes).ok_or(Error::SizeOverflow { block: memory })?;
        }
        for (op, told) in operators.iter_mut().zip(network.operators) {
            *op = trace::Operator { again: told.again, ..trace::Operator::default() };
        }
        let mut time = 0_u64;
        let mut op = 0;
        for accesses in network.accesses.chunk_by(|a, b| a.op == b.op) {
            let number = accesses.first().map_or(0, |a| a.op);
            for skipped in network.operators.get(position(op)..position(number)).unwrap_or_default() {
                time = time.saturating_add(skipped.time_ns);
            }
            let takes = network.operators.get(position(number)).map_or(0, |o| o.time_ns);
            let end = time.saturating_add(takes);
            if memories.is_bound_to_its_turn(accesses)
                && let Some(operator) = operators.get_mut(position(number))
            {
                operator.again = false;
            }
            made.operator(network, alignment, &mut memories, accesses, (time, end), rows)?;
            (time, op) = (end, number.saturating_add(1));
        }
        Ok(made)
    }

    pub(super) fn rows<'r>(&self, rows: &'r [Row]) -> &'r [Row] {
        rows.get(..self.rows).unwrap_or_default()
    }

    pub(super) fn blocks(&self) -> usize {
        position(self.blocks)
    }

    /// Whose residency a block is.
    pub(super) fn memory_of(&self, block: u32) -> u32 {
        self.memory[block]
    }

    pub(super) const fn planned_bytes(&self) -> u64 {
        self.planned_bytes
    }

    pub(super) const fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// The rows of one operator, whose accesses these are.
    fn operator(
        &mut self,
        network: &Network<'_>,
        alignment: u64,
        memories: &mut Memories<'_>,
        accesses: &[Access],
        (begin, end): (u64, u64),
        rows: &mut [Row],
    ) -> Result<(), Error> {
        memories.open(accesses);
        let op = accesses.first().map_or(Op::None, |a| Op::First(a.op));
        let row = |time_ns, event, block| Row { time_ns, bytes: 0, block, op, event };
        for a in accesses.iter().filter(|a| memories.what[a.memory] & KEPT == 0) {
            if memories.block[a.memory] == 0 {
                let size = network.memories.get(position(a.memory)).map_or(0, |m| m.bytes);
                let bytes = size.checked_next_multiple_of(alignment).ok_or(Error::SizeOverflow { block: a.memory })?;
                self.memory[self.blocks] = a.memory;
                self.push(Row { bytes, ..row(begin, Event::Malloc, self.blocks) }, rows)?;
                self.blocks += 1;
                memories.block[a.memory] = self.blocks;
            }
        }
        for (bit, time, event) in [(READS, begin, Event::Read), (WRITES, end, Event::Write)] {
            for a in accesses {
                if memories.does[a.memory] & bit > 0 {
                    memories.does[a.memory] &= !bit;
                    self.push(row(time, event, memories.block[a.memory] - 1), rows)?;
                }
            }
        }
        for a in accesses {
            memories.does[a.memory] = 0;
            let block = memories.block[a.memory];
            let ends = memories.what[a.memory] & SCRATCH > 0 || memories.last[a.memory] == a.op + 1;
            if block > 0 && ends {
                memories.block[a.memory] = 0;
                self.push(Row { op: Op::None, ..row(end, Event::Free, block - 1) }, rows)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, row: Row, rows: &mut [Row]) -> Result<(), Error> {
        let got = rows.len();
        let free = rows.get_mut(self.rows).ok_or(Error::BufferTooSmall {
            buffer: crate::error::Buffer::Rows,
            needed: self.rows + 1,
            got,
        })?;
        *free = row;
        self.rows += 1;
        Ok(())
    }
}

impl Memories<'_> {
    /// The first pass.
    fn look(&mut self, network: &Network<'_>) -> Result<(), Error> {
        for (memory, m) in (0..).zip(network.memories) {
            let bit = |is: bool, bit| if is { bit } else { 0 };
            self.what[memory] = bit(m.kept || m.bytes == 0, KEPT) | bit(m.scratch, SCRATCH);
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
            // `block` holds 1 + the last operator so far.
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
        Ok(())
    }

    /// Whether an operator touches a kept memory which it or a later operator writes: run again, it would read or leave another
    /// value.
    fn is_bound_to_its_turn(&self, accesses: &[Access]) -> bool {
        accesses.iter().any(|a| self.what[a.memory] & KEPT > 0 && self.last[a.memory] > a.op)
    }

    /// Finds out what the operator does with its memories.
    fn open(&mut self, accesses: &[Access]) {
        for a in accesses.iter().filter(|a| self.what[a.memory] & KEPT == 0) {
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
