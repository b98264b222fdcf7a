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
    pub(super) struct Program<'a>(rows, blocks; trace: &'a [Row]) {
        tables {
            /// One more entry holds the number of rows.
            pub(super) first_row: u32[rows + 2],
            /// The first access, and one past the last; both the number of rows if there is none.
            accesses: [u32; 2][rows + 1],
            /// Of each boundary, in ns, if compute never waits.
            pub(super) time: u64[rows + 2],
            /// When its first access begins, in ns, if compute never waits.
            pub(super) access_time: u64[rows + 1],
            pub(super) size[BlockId]: u64[blocks],
        }
        records {
            persistent[BlockId]: bool[blocks],
        }
        state {
            pub(super) rows: &'a [Row] = trace,
            /// Rows after the last operator's frees count as one more, without accesses.
            pub(super) operators: u32 = 0,
            pub(super) accessing: u32 = 0,
            pub(super) end_time: u64 = trace.last().map_or(0, |r| r.time_ns),
        }
    }
}

impl<'a> Program<'a> {
    pub(super) fn new(rows: &'a [Row], blocks: usize, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let mut program = Self::lend(rows.len(), blocks, rows, scratch);
        program.find_blocks()?;
        program.find_operators();
        Ok(program)
    }

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

    #[inline]
    pub(super) fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockId> + use<> {
        BlockId::each(0..u32::try_from(self.size.len()).unwrap_or(u32::MAX))
    }

    #[inline]
    pub(super) fn is_persistent(&self, block: BlockId) -> bool {
        self.persistent.get(block)
    }

    #[inline]
    pub(super) fn duration(&self, operator: u32) -> u64 {
        self.time[operator + 1].saturating_sub(self.access_time[operator])
    }

    /// As the rows name it; `operator` is the place in the order of this trace.
    #[inline]
    pub(super) fn op(&self, operator: u32) -> Op {
        let [first, end] = self.accesses[operator];
        if first < end { at(self.rows, first).op } else { Op::None }
    }

    #[inline]
    pub(super) fn span(&self, operator: u32) -> [u32; 2] {
        self.accesses[operator]
    }

    #[inline]
    pub(super) fn rows_of(&self, operator: u32) -> impl Iterator<Item = Row> + use<'a> {
        let rows = self.rows;
        (self.first_row[operator]..self.first_row[operator + 1]).map(move |row| at(rows, row))
    }

    #[inline]
    pub(super) fn rows_in(&self, operator: u32) -> impl Iterator<Item = Row> + use<'a> {
        let [first, end] = self.accesses[operator];
        let rows = self.rows;
        (first..end).map(move |row| at(rows, row))
    }

    pub(super) fn ends(&self, operator: u32) -> Option<(BlockId, BlockId)> {
        let [first, end] = self.accesses[operator].map(|row| usize::try_from(row).unwrap_or(usize::MAX));
        let (read, written) = recorded::ends(self.rows.get(first..end).unwrap_or_default())?;
        Some((BlockId::of(read), BlockId::of(written)))
    }

    #[inline]
    pub(super) fn access_rows(&self, operator: u32) -> impl DoubleEndedIterator<Item = u32> + use<'a> {
        let [first, end] = self.accesses[operator];
        let rows = self.rows;
        (first..end).filter(move |&row| at(rows, row).event.is_access())
    }

    #[inline]
    pub(super) fn accesses(&self, operator: u32) -> impl DoubleEndedIterator<Item = Row> + use<'a> {
        let rows = self.rows;
        self.access_rows(operator).map(move |row| at(rows, row))
    }
}
