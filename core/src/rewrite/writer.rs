//! Writes the rows of a trace one after the other into memory that the caller lends.

use super::ids::BlockId;
use crate::Error;
use crate::error::Buffer;
use crate::id::Id;
use crate::trace::{Event, Op, Row};

/// Rows beyond `out` are only counted, so that the error tells how many are needed.
pub(super) struct Writer<'a> {
    out: &'a mut [Row],
    len: usize,
    time_ns: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [Row]) -> Self {
        Self { out, len: 0, time_ns: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn push(&mut self, row: Row) {
        if let Some(cell) = self.out.get_mut(self.len) {
            *cell = row;
        }
        self.len += 1;
        self.time_ns = row.time_ns;
    }

    pub(super) fn event(&mut self, event: Event, block: BlockId, bytes: u64, op: Op) {
        self.push(Row { time_ns: self.time_ns, bytes, block: block.number(), op, event });
    }

    pub(super) fn end_at(&mut self, time_ns: u64) {
        if let Some(last) = self.len.checked_sub(1).and_then(|last| self.out.get_mut(last)) {
            last.time_ns = time_ns;
        }
    }

    pub(super) fn end(self) -> Result<usize, Error> {
        if self.len > self.out.len() {
            return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: self.len, got: self.out.len() });
        }
        Ok(self.len)
    }
}
