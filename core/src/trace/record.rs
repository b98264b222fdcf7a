//! Records an iteration: turns calls, one for each malloc, free, read and write, into the rows of a trace.
//!
//! A [`Recorder`] writes rows into a buffer, lent by the caller or its own. It numbers blocks from 0 in the order of
//! their mallocs, and operators in the order in which they begin. [`liveness`](super::liveness) and the other modules
//! that read the rows refuse rows that cannot follow each other, such as a second free of a block.
//!
//! Blocks that are allocated between [`interrupt`](Recorder::interrupt) and [`resume`](Recorder::resume) (Sekiyama et
//! al. 2018, section 4.3) are not part of the trace, nor of a plan made from it: they all have the number [`OUTSIDE`],
//! and nothing is ever recorded of them. A block from before the interruption stays part of the trace, and its accesses
//! and its free are recorded at any time.
//!
//! Cost: O(1) a call, but [`hand_over`](Recorder::hand_over) copies all rows; no memory but the rows.

use super::{Event, Op, Row};
use crate::Error;
use crate::error::{Buffer, RowFault};

/// The number of every block that is allocated while the recorder is interrupted. Nothing is recorded of these blocks,
/// and a plan made from the trace does not contain them.
pub const OUTSIDE: u32 = u32::MAX;

/// Writes what happens in an iteration as rows of a trace, into a buffer: `&mut [Row]`, or an array that it owns, as
/// [`sublet_core::Recorder<N>`](crate::Recorder) does.
///
/// ```
/// use sublet_core::Error;
/// use sublet_core::trace::{OUTSIDE, Recorder};
/// use sublet_core::trace::Row;
/// let mut rows = [Row::default(); 4];
/// let mut recorder = Recorder::new(&mut rows);
/// recorder.begin_op();
/// let block = recorder.malloc(0, 4096)?;
/// recorder.write(10, block)?;
/// recorder.end_op();
/// recorder.interrupt();
/// assert_eq!(recorder.malloc(11, 64)?, OUTSIDE);
/// recorder.resume();
/// recorder.free(12, block)?;
/// assert_eq!((recorder.rows().len(), recorder.block_count()), (3, 1));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Recorder<B> {
    rows: B,
    len: usize,
    blocks: u32,
    ops: u32,
    op: Op,
    interruptions: u32,
}

impl<B> Recorder<B> {
    /// An empty recorder, which can record as many rows as the buffer is long.
    #[must_use]
    pub const fn new(rows: B) -> Self {
        Self { rows, len: 0, blocks: 0, ops: 0, op: Op::None, interruptions: 0 }
    }
}

impl<const N: usize> Recorder<[Row; N]> {
    /// An empty recorder with memory of its own for N rows of the trace; it may live in a `static`.
    #[must_use]
    pub const fn fixed() -> Self {
        let row = Row { time_ns: 0, bytes: 0, block: 0, op: Op::None, event: Event::Malloc };
        Self::new([row; N])
    }
}

impl<const N: usize> Default for Recorder<[Row; N]> {
    fn default() -> Self {
        Self::fixed()
    }
}

impl<B: AsRef<[Row]> + AsMut<[Row]>> Recorder<B> {
    /// Records a malloc; returns the number of the new block, or [`OUTSIDE`] while the recorder is interrupted.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if the buffer is full: nothing is recorded, and the call may be repeated after
    /// [`hand_over`](Self::hand_over). [`Error::Row`] if `bytes` is 0, if the time is before the time of the last row,
    /// or if the 2³² - 1 block numbers are used up.
    pub fn malloc(&mut self, time_ns: u64, bytes: u64) -> Result<u32, Error> {
        if self.interruptions > 0 {
            return Ok(OUTSIDE);
        }
        if bytes == 0 {
            return Err(self.refuse(RowFault::ZeroSize));
        }
        if self.blocks == OUTSIDE {
            return Err(self.refuse(RowFault::TooManyRows));
        }
        self.push(Row { time_ns, bytes, block: self.blocks, op: self.op, event: Event::Malloc })?;
        self.blocks += 1;
        Ok(self.blocks - 1)
    }

    /// Records the free of a block. Nothing is recorded if `block` is [`OUTSIDE`].
    ///
    /// # Errors
    /// [`Error::Row`] if no malloc returned the number `block`, or the time is before the time of the last row;
    /// [`Error::BufferTooSmall`] if the buffer is full: the call may be repeated after [`hand_over`](Self::hand_over).
    pub fn free(&mut self, time_ns: u64, block: u32) -> Result<(), Error> {
        self.follow(time_ns, block, Event::Free)
    }

    /// Records that the current operator reads a block. The row belongs to no operator if none has begun or the last
    /// one has ended. Nothing is recorded if `block` is [`OUTSIDE`].
    ///
    /// # Errors
    /// [`Error::Row`] if no malloc returned the number `block`, or the time is before the time of the last row;
    /// [`Error::BufferTooSmall`] if the buffer is full: the call may be repeated after [`hand_over`](Self::hand_over).
    pub fn read(&mut self, time_ns: u64, block: u32) -> Result<(), Error> {
        self.follow(time_ns, block, Event::Read)
    }

    /// Records that the current operator writes a block. The row belongs to no operator if none has begun or the last
    /// one has ended. Nothing is recorded if `block` is [`OUTSIDE`].
    ///
    /// # Errors
    /// [`Error::Row`] if no malloc returned the number `block`, or the time is before the time of the last row;
    /// [`Error::BufferTooSmall`] if the buffer is full: the call may be repeated after [`hand_over`](Self::hand_over).
    pub fn write(&mut self, time_ns: u64, block: u32) -> Result<(), Error> {
        self.follow(time_ns, block, Event::Write)
    }

    /// Begins the next operator, and ends the operator before if it has not ended. Returns the number of the new
    /// operator; operators are numbered from 0.
    pub const fn begin_op(&mut self) -> u32 {
        let op = self.ops;
        self.op = Op::First(op);
        self.ops = self.ops.wrapping_add(1);
        op
    }

    /// Ends the current operator: the rows that are recorded from here on belong to no operator.
    pub const fn end_op(&mut self) {
        self.op = Op::None;
    }

    /// From here on, until [`resume`](Self::resume), blocks that are allocated are not recorded, and a plan made from
    /// the trace does not contain them. Interruptions nest: blocks are recorded again after as many calls of `resume`
    /// as of `interrupt`.
    pub const fn interrupt(&mut self) {
        self.interruptions = self.interruptions.saturating_add(1);
    }

    /// Undoes one [`interrupt`](Self::interrupt). Once all are undone, blocks are recorded again. Without an
    /// interruption it does nothing.
    pub const fn resume(&mut self) {
        self.interruptions = self.interruptions.saturating_sub(1);
    }

    /// The rows recorded so far: one for each malloc, free, read or write.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        self.rows.as_ref().get(..self.len).unwrap_or_default()
    }

    /// How many blocks are recorded; the rows number them from 0.
    #[must_use]
    pub const fn block_count(&self) -> u32 {
        self.blocks
    }

    /// Copies the recorded rows to a larger buffer, and returns a recorder that goes on in it.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if the larger buffer has no room for the recorded rows and one more.
    pub fn hand_over<C: AsMut<[Row]>>(&self, mut larger: C) -> Result<Recorder<C>, Error> {
        let got = larger.as_mut().len();
        let parts = larger.as_mut().split_at_mut_checked(self.len);
        let Some((front, _)) = parts.filter(|(_, back)| !back.is_empty()) else {
            return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: self.len + 1, got });
        };
        // Not copy_from_slice, which panics where the lengths differ.
        for (to, from) in front.iter_mut().zip(self.rows()) {
            *to = *from;
        }
        let Self { len, blocks, ops, op, interruptions, .. } = *self;
        Ok(Recorder { rows: larger, len, blocks, ops, op, interruptions })
    }

    fn follow(&mut self, time_ns: u64, block: u32, event: Event) -> Result<(), Error> {
        if block == OUTSIDE {
            return Ok(());
        }
        if block >= self.blocks {
            return Err(self.refuse(RowFault::UnknownBlock));
        }
        self.push(Row { time_ns, bytes: 0, block, op: self.op, event })
    }

    fn push(&mut self, row: Row) -> Result<(), Error> {
        if self.rows().last().is_some_and(|last| row.time_ns < last.time_ns) {
            return Err(self.refuse(RowFault::TimeBackwards));
        }
        let got = self.rows.as_ref().len();
        let Some(free) = self.rows.as_mut().get_mut(self.len) else {
            return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: self.len + 1, got });
        };
        *free = row;
        self.len += 1;
        Ok(())
    }

    fn refuse(&self, fault: RowFault) -> Error {
        Error::Row { row: u32::try_from(self.len).unwrap_or(u32::MAX), fault }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::liveness;
    use crate::{Block, Workspace};

    #[test]
    fn a_full_buffer_says_so_and_the_recording_goes_on_in_a_larger_one() {
        let mut small = [Row::default(); 2];
        let mut recorder = Recorder::new(&mut small);
        assert_eq!(recorder.begin_op(), 0);
        let a = recorder.malloc(1, 64).unwrap();
        recorder.write(2, a).unwrap();
        let full = Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: 3, got: 2 });
        assert_eq!(recorder.malloc(3, 32).map(drop), full);
        assert_eq!(recorder.free(3, a), full);
        let mut same = [Row::default(); 2];
        assert_eq!(recorder.hand_over(&mut same).map(drop), full);

        let mut large = [Row::default(); 8];
        let mut recorder = recorder.hand_over(&mut large).unwrap();
        let b = recorder.malloc(3, 32).unwrap();
        recorder.free(4, a).unwrap();
        assert_eq!(recorder.begin_op(), 1);
        recorder.read(5, b).unwrap();
        assert_eq!((a, b, recorder.block_count()), (0, 1, 2));
        let ops = recorder.rows().iter().map(|r| r.op);
        assert!(ops.eq([0, 0, 0, 0, 1].map(Op::First)));
        let (mut blocks, mut names) = ([Block::default(); 2], [liveness::Residency::default(); 2]);
        let scratch = (&mut [0; 2], &mut [0; 4]);
        let found =
            liveness::lifetimes(recorder.rows(), 2, Workspace::new(scratch.0, scratch.1), &mut blocks, &mut names);
        assert_eq!(found, Ok(2));
        assert_eq!(blocks, [Block::new(0, 3, 64), Block::new(2, 5, 32)]);
    }

    #[test]
    fn a_recorder_may_own_its_rows() {
        static EMPTY: crate::Recorder<2> = crate::Recorder::fixed();
        assert_eq!((EMPTY.rows().len(), EMPTY.block_count()), (0, 0));
        let mut recorder = crate::Recorder::<2>::default();
        let a = recorder.malloc(1, 64).unwrap();
        recorder.free(2, a).unwrap();
        let full = Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed: 3, got: 2 });
        assert_eq!(recorder.malloc(3, 64), full);
        let mut recorder = recorder.hand_over([Row::default(); 3]).unwrap();
        assert_eq!(recorder.malloc(3, 64), Ok(1));
        assert!(recorder.rows().iter().map(|r| r.event).eq([Event::Malloc, Event::Free, Event::Malloc]));
    }

    #[test]
    fn what_is_interrupted_is_not_recorded_and_what_was_before_is() {
        let mut rows = [Row::default(); 8];
        let mut recorder = Recorder::new(&mut rows);
        let before = recorder.malloc(0, 8).unwrap();
        recorder.interrupt();
        let outside = recorder.malloc(1, 16).unwrap();
        recorder.write(1, outside).unwrap();
        recorder.read(1, before).unwrap();
        recorder.free(2, before).unwrap();
        recorder.resume();
        recorder.read(3, outside).unwrap();
        recorder.free(3, outside).unwrap();
        let after = recorder.malloc(4, 24).unwrap();
        assert_eq!((before, outside, after), (0, OUTSIDE, 1));
        let rows = recorder.rows().iter().map(|r| (r.event, r.block));
        assert!(rows.eq([(Event::Malloc, 0), (Event::Read, 0), (Event::Free, 0), (Event::Malloc, 1)]));
    }

    #[test]
    fn interruptions_nest_also_in_a_larger_buffer() {
        let mut recorder = crate::Recorder::<1>::default();
        recorder.resume();
        assert_eq!(recorder.malloc(0, 8), Ok(0), "there was nothing to resume from");
        recorder.interrupt();
        recorder.interrupt();
        let mut recorder = recorder.hand_over([Row::default(); 4]).unwrap();
        recorder.resume();
        assert_eq!(recorder.malloc(1, 8), Ok(OUTSIDE));
        recorder.resume();
        assert_eq!(recorder.malloc(2, 8), Ok(1));
    }

    #[test]
    fn rows_that_cannot_be_are_refused() {
        let mut rows = [Row::default(); 4];
        let mut recorder = Recorder::new(&mut rows);
        let refused = |fault| Err(Error::Row { row: 1, fault });
        recorder.malloc(5, 8).unwrap();
        assert_eq!(recorder.malloc(5, 0).map(drop), refused(RowFault::ZeroSize));
        assert_eq!(recorder.malloc(4, 8).map(drop), refused(RowFault::TimeBackwards));
        assert_eq!(recorder.free(5, 1), refused(RowFault::UnknownBlock));
        assert_eq!((recorder.rows().len(), recorder.block_count()), (1, 1));
    }
}
