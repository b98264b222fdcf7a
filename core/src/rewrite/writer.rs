//! Rows of a new trace, one after the other into a slice that the caller lends.

use crate::Error;
use crate::error::Buffer;
use crate::trace::{Event, Op, Row};

/// Counts on beyond the end of the slice, so that the error can say how long it has to be.
pub(super) struct Writer<'a> {
    out: &'a mut [Row],
    len: usize,
    time_ns: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [Row]) -> Self {
        Self { out, len: 0, time_ns: 0 }
    }

    /// How many rows there are so far.
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

    /// A row of no operator, at the time of the row above it.
    pub(super) fn event(&mut self, event: Event, block: u32, bytes: u64) {
        self.of(event, block, bytes, Op::None);
    }

    /// A row of an operator, at the time of the row above it.
    pub(super) fn of(&mut self, event: Event, block: u32, bytes: u64, op: Op) {
        self.push(Row { time_ns: self.time_ns, bytes, block, op, event });
    }

    /// How many rows were written.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if they are more than the slice holds.
    pub(super) fn finish(self) -> Result<usize, Error> {
        if self.len > self.out.len() {
            return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: self.len, got: self.out.len() });
        }
        Ok(self.len)
    }
}
