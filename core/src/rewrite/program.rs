//! The program: its operators in the order in which they run, the blocks that they access, and when.
//!
//! An *operator* is a group of rows: its accesses, with the mallocs before them and the frees after them. The last
//! operator may have no accesses. Between two operators lies a *boundary*: boundary o is before operator o. Every way
//! to save memory begins with the program: [`Gaps`](super::gaps::Gaps) finds the gaps in which blocks may be swapped,
//! and [`Values`](super::values::Values) finds which operator makes each value and which operators read it. Cost:
//! O(rows).

use super::ids::BlockId;
use crate::error::RowFault;
use crate::id::Id;
use crate::table::at;
use crate::trace::{Event, Op, Row, recorded};
use crate::workspace::workspace;
use crate::{Error, Workspace};

workspace! {
    /// The operators and blocks of a trace in which nothing is copied or recomputed and every block is allocated only
    /// once.
    pub(super) struct Program<'a>(rows, blocks; trace: &'a [Row]) {
        tables {
            /// For each operator, the index of its first row in the trace. One more entry, after the last operator's
            /// entry, holds the number of rows.
            pub(super) first_row: u32[rows + 2],
            /// For each operator, the row of its first access, and one past the row of its last access. For the last
            /// operator, if it has no accesses, both are the number of rows.
            accesses: [u32; 2][rows + 1],
            /// For each boundary between operators, the time at which compute reaches it if compute never waits, in ns.
            /// Boundary o is before operator o, and one more boundary is after the last operator.
            pub(super) time: u64[rows + 2],
            /// For each operator, the time at which its first access begins if compute never waits, in ns. For an
            /// operator without accesses, the time at which compute reaches it.
            pub(super) access_time: u64[rows + 1],
            /// The bytes of each block.
            pub(super) size[BlockId]: u64[blocks],
        }
        records {
            /// For each block, whether it is persistent: allocated at time 0 and never freed.
            persistent[BlockId]: bool[blocks],
        }
        state {
            /// The rows of the trace.
            pub(super) rows: &'a [Row] = trace,
            /// How many operators there are. Rows that are left after the last operator's frees count as one more
            /// operator, which has no accesses.
            pub(super) operators: u32 = 0,
            /// How many operators access at least one block. Only the last operator of the trace may access none.
            pub(super) accessing: u32 = 0,
            /// When the trace ends, in ns.
            pub(super) end_time: u64 = trace.last().map_or(0, |r| r.time_ns),
        }
    }
}

impl<'a> Program<'a> {
    /// Finds the operators and blocks of a trace whose blocks are numbered below `blocks`.
    ///
    /// # Errors
    /// [`Error::Row`] for a row with a block number that is not below `blocks`, a copy, an access by a recomputed
    /// operator, or a second malloc of a block.
    pub(super) fn new(rows: &'a [Row], blocks: usize, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let mut program = Self::lend(rows.len(), blocks, rows, scratch);
        program.find_blocks()?;
        program.find_operators();
        Ok(program)
    }

    /// Finds the bytes of each block, and whether it is persistent. Fails at a row with a block number out of range, a
    /// copy, a second malloc of a block, or an access by a recomputed operator.
    fn find_blocks(&mut self) -> Result<(), Error> {
        for (row, r) in (0u32..).zip(self.rows) {
            let refuse = |fault| Err(Error::Row { row, fault });
            if usize::try_from(r.block).map_or(true, |b| b >= self.size.len()) {
                return refuse(RowFault::UnknownBlock);
            }
            match r.event {
                Event::SwapIn | Event::SwapOut => return refuse(RowFault::NotRecorded),
                Event::Malloc if self.size[r.block_id()] > 0 => return refuse(RowFault::NotRecorded),
                Event::Malloc => {
                    self.size[r.block_id()] = r.bytes;
                    self.persistent.set(r.block_id(), r.time_ns == 0);
                }
                Event::Free => self.persistent.set(r.block_id(), false),
                _ if matches!(r.op, Op::Rerun(_)) => return refuse(RowFault::NotRecorded),
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds the rows of each operator, and the times of its first and its last access.
    fn find_operators(&mut self) {
        let number = |row: usize| u32::try_from(row).unwrap_or(u32::MAX);
        let mut row = 0;
        while row < self.rows.len() {
            let o = self.operators;
            let (first, last, end) = recorded::group(self.rows, row);
            self.first_row[o] = number(row);
            self.accesses[o] = [number(first), number(last)];
            let accesses = self.rows.get(first..last).unwrap_or_default();
            // Rows that have no access after them take no time.
            self.access_time[o] = accesses.first().map_or(self.time[o], |r| r.time_ns);
            self.time[o + 1] = accesses.last().map_or(self.time[o], |r| r.time_ns);
            self.operators += 1;
            self.accessing += u32::from(first < last);
            row = end;
        }
        self.first_row[self.operators] = number(self.rows.len());
    }

    /// The numbers of all blocks that the trace may name, from 0 on.
    #[inline]
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        BlockId::each(0..u32::try_from(self.size.len()).unwrap_or(u32::MAX))
    }

    /// Whether a block is allocated at time 0 and never freed.
    #[inline]
    pub(super) fn is_persistent(&self, block: BlockId) -> bool {
        self.persistent.get(block)
    }

    /// The time of an operator's last access less that of its first, in ns; 0 if it has no accesses.
    #[inline]
    pub(super) fn duration(&self, operator: u32) -> u64 {
        self.time[operator + 1].saturating_sub(self.access_time[operator])
    }

    /// The operator as the rows of the trace name it: [`Op::First`] with the number that they give, or [`Op::None`] if
    /// they give none or if it has no accesses. That number may differ from `operator`, which is the operator's place
    /// in the order of this trace, counted from 0.
    #[inline]
    pub(super) fn op(&self, operator: u32) -> Op {
        let [first, end] = self.accesses[operator];
        if first < end { at(self.rows, first).op } else { Op::None }
    }

    /// The row of an operator's first access, and one past the row of its last access. If the operator has no accesses,
    /// both are the number of rows.
    #[inline]
    pub(super) fn span(&self, operator: u32) -> [u32; 2] {
        self.accesses[operator]
    }

    /// All rows of an operator.
    #[inline]
    pub(super) fn rows_of(&self, operator: u32) -> impl Iterator<Item = Row> + use<'a> {
        let rows = self.rows;
        (self.first_row[operator]..self.first_row[operator + 1]).map(move |row| at(rows, row))
    }

    /// The rows from an operator's first access to its last.
    #[inline]
    pub(super) fn rows_in(&self, operator: u32) -> impl Iterator<Item = Row> + use<'a> {
        let [first, end] = self.accesses[operator];
        let rows = self.rows;
        (first..end).map(move |row| at(rows, row))
    }

    /// The first block that an operator reads and the first that it writes: its input and output for in-place reuse.
    /// Blocks that it allocates or frees between its accesses, such as its workspace, do not count. None if the
    /// operator has no such read or no such write.
    pub(super) fn ends(&self, operator: u32) -> Option<(BlockId, BlockId)> {
        let [first, end] = self.accesses[operator].map(|row| usize::try_from(row).unwrap_or(usize::MAX));
        let (read, written) = recorded::ends(self.rows.get(first..end).unwrap_or_default())?;
        Some((BlockId::of(read), BlockId::of(written)))
    }

    /// The numbers of the rows in which an operator accesses blocks. Each row is an access to one block.
    #[inline]
    pub(super) fn access_rows(&self, operator: u32) -> impl DoubleEndedIterator<Item = u32> + use<'a> {
        let [first, end] = self.accesses[operator];
        let rows = self.rows;
        (first..end).filter(move |&row| at(rows, row).event.is_access())
    }

    /// The rows in which an operator accesses blocks.
    #[inline]
    pub(super) fn accesses(&self, operator: u32) -> impl DoubleEndedIterator<Item = Row> + use<'a> {
        let rows = self.rows;
        self.access_rows(operator).map(move |row| at(rows, row))
    }
}
