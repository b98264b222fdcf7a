//! The recorded iteration, for comparison with a trace that was rewritten from it to save memory.
//!
//! Each operator of the rewritten trace is an operator of the recording, in its regular run or recomputed. While the
//! rewritten trace is read row by row, [`Operators`] finds the recorded operator that is under way, and which of its
//! accesses (reads and writes of blocks) are still to come. The simulator and the verifier both use it; the verifier
//! alone judges in which order the accesses may come. Building [`Operators`] costs a sort of the rows, O(rows);
//! beginning an operator costs its rows and O(log rows). The accesses that belong to no operator are found one after
//! the other, in one pass over the rows.

use super::{Event, Op, Row};
use crate::error::RowFault;
use crate::table::{Table, at};
use crate::{Error, Workspace, WorkspaceLen, sort};

/// What is known of an operator besides its events in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operator {
    /// Whether the operator's kernel may write its first output over its first input.
    pub in_place: bool,
    /// Whether the operator may be recomputed: whether a second run gives the same result. The second run gets no
    /// persistent block (allocated at time 0, never freed) that the operator both reads and writes, such as the running
    /// statistics of a batch norm: its result must not depend on them.
    pub rerun: bool,
    /// Whether the operator has to run in the recorded order, relative to the other ordered operators and to the
    /// accesses that belong to no operator. Operators that are not ordered may run whenever what they read is there.
    /// Operators that use random numbers are ordered, and so are collectives and operators of which nothing is known.
    pub ordered: bool,
    /// What the operator computes, as far as planning needs to know.
    pub kind: Kind,
    /// The bytes of one element of the blocks that the operator reads and writes: 1, 2, 4 or 8. The length of a ReLU's
    /// mask follows from it.
    pub element: u8,
}

/// Kinds of operators that planning tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// An operator that is neither a ReLU nor the gradient of one.
    #[default]
    Other,
    /// A ReLU. After it has run, a mask of a block that it reads or writes may be kept for its gradient: one bit for
    /// the sign of each element.
    Relu,
    /// The gradient of a ReLU. Instead of the block that it read in the recording it may read that block's mask, which
    /// the ReLU left: one bit for each element.
    ReluBackward,
}

impl Default for Operator {
    fn default() -> Self {
        Self { in_place: false, rerun: true, ordered: true, kind: Kind::Other, element: 4 }
    }
}

impl Operator {
    /// The bytes of a mask that has a bit for each element of a block of `bytes` bytes, rounded up to whole bytes.
    /// Elements of more than 4 bytes count as elements of 4, so that no mask is shorter than 1/32 of its block.
    ///
    /// ```
    /// use sublet_core::trace::Operator;
    /// let mask = |element| Operator { element, ..Operator::default() }.mask_bytes(6404);
    /// assert_eq!([1, 2, 4, 8].map(mask), [801, 401, 201, 201]);
    /// ```
    #[must_use]
    pub fn mask_bytes(&self, bytes: u64) -> u64 {
        bytes.div_ceil(8 * u64::from(self.element.clamp(1, 4)))
    }
}

/// An iteration as it was recorded.
///
/// In a trace that is rewritten from this recording, blocks keep the numbers that they have in the recording, and
/// `blocks + b` is the number of the mask of block `b`: one bit for each element of a block that a ReLU reads or
/// writes, kept in the block's place for the gradient.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The rows of the iteration, in the order in which they happened.
    pub rows: &'a [Row],
    /// What is known of the operators, by operator number. An operator beyond the end of the slice counts as
    /// [`Operator::default`].
    pub operators: &'a [Operator],
    /// How many block numbers there are: the rows use numbers below this.
    pub blocks: usize,
}

impl<'a> Recorded<'a> {
    /// A recording of whose operators nothing is known. The rows use block numbers below `blocks`.
    #[must_use]
    pub const fn new(rows: &'a [Row], blocks: usize) -> Self {
        Self { rows, operators: &[], blocks }
    }

    /// How long the iteration takes, in ns: the time of its last row; 0 if it has no rows.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.rows.last().map_or(0, |r| r.time_ns)
    }

    /// What is known of an operator; [`Operator::default`] if nothing is.
    ///
    /// ```
    /// use sublet_core::trace::{Op, Operator, Recorded};
    /// let dropout = Operator { rerun: false, ..Operator::default() };
    /// let recorded = Recorded { rows: &[], operators: &[dropout], blocks: 0 };
    /// assert!(!recorded.operator(Op::Rerun(0)).rerun && recorded.operator(Op::First(1)).rerun);
    /// ```
    #[must_use]
    pub fn operator(&self, op: Op) -> Operator {
        let (Op::First(k) | Op::Rerun(k)) = op else { return Operator::default() };
        usize::try_from(k).ok().and_then(|k| self.operators.get(k)).copied().unwrap_or_default()
    }

    pub(crate) fn is_ordered(&self, op: Op) -> bool {
        op == Op::None || self.operator(op).ordered
    }

    pub(crate) fn mask(&self, block: u32) -> u32 {
        u32::try_from(self.blocks).map_or(u32::MAX, |blocks| blocks.saturating_add(block))
    }

    pub(crate) const fn numbers(&self) -> usize {
        2 * self.blocks
    }

    pub(crate) fn masked(&self, number: u32) -> Option<u32> {
        let blocks = u32::try_from(self.blocks).unwrap_or(u32::MAX);
        number.checked_sub(blocks).filter(|&b| b < blocks)
    }
}

pub(crate) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 2 * rows + 3 * blocks }
}

pub(crate) struct Operators<'a> {
    rows: &'a [Row],
    /// The row of each first access, by operator. Operators without accesses have no entry.
    first: Table<'a, u32>,
    first_count: u32,
    loose: usize,
    persistent: Table<'a, u32>,
    /// 1 + the first access of a recomputed operator, 0 if none; then 1 read, 2 write, 3 both.
    touched: Table<'a, [u32; 2]>,
}

#[derive(Clone, Copy)]
pub(crate) struct Progress {
    pub(crate) first: usize,
    pub(crate) next: usize,
    pub(crate) end: usize,
    pub(crate) rerun: bool,
}

impl Progress {
    pub(crate) fn spans(self, row: u32) -> bool {
        usize::try_from(row).is_ok_and(|row| self.first < row && row < self.end)
    }
}

impl<'a> Operators<'a> {
    pub(crate) fn new(recorded: &Recorded<'a>, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let Recorded { rows, blocks, .. } = *recorded;
        let mut persistent = scratch.indices(blocks);
        let touched = scratch.index_records(blocks);
        let mut first = scratch.indices(rows.len());
        let mut aside = scratch.indices(rows.len());
        let mut first_count = 0;
        let mut previous = Op::None;
        for (row, r) in (0u32..).zip(rows) {
            if usize::try_from(r.block).map_or(true, |b| b >= blocks) {
                return Err(Error::Row { row, fault: RowFault::UnknownBlock });
            }
            match r.event {
                Event::Malloc => persistent[r.block] = u32::from(r.time_ns == 0),
                Event::Free => persistent[r.block] = 0,
                Event::Read | Event::Write if r.op != previous => {
                    match r.op {
                        Op::None => {}
                        Op::First(_) => {
                            first[first_count] = row;
                            first_count += 1;
                        }
                        Op::Rerun(_) => return Err(Error::Row { row, fault: RowFault::NotRecorded }),
                    }
                    previous = r.op;
                }
                _ => {}
            }
        }
        sort::by_key(&mut first, first_count, &mut aside, |row| number(at(rows, row).op));
        for k in 1..first_count {
            if at(rows, first[k]).op == at(rows, first[k - 1]).op {
                return Err(Error::Row { row: first[k], fault: RowFault::NotRecorded });
            }
        }
        Ok(Self { rows, first, first_count, loose: 0, persistent, touched })
    }

    pub(crate) fn is_persistent(&self, block: u32) -> bool {
        self.persistent[block] > 0
    }

    pub(crate) fn begin(&mut self, op: Op) -> Option<Progress> {
        let (first, rerun) = match op {
            Op::Rerun(k) => (self.first_access(k)?, true),
            Op::First(k) => (self.first_access(k)?, false),
            Op::None => {
                let is_loose = |r: &Row| r.event.is_access() && r.op == Op::None;
                let first = self.loose + self.rows.get(self.loose..)?.iter().position(is_loose)?;
                self.loose = first + 1;
                (first, false)
            }
        };
        let progress = Progress { first, next: first, end: operator(self.rows, first), rerun };
        if rerun {
            let mark = u32::try_from(first).map_or(u32::MAX, |row| row.saturating_add(1));
            for r in self.rows.get(first..progress.end).unwrap_or_default().iter().filter(|r| r.event.is_access()) {
                let [by, how] = self.touched[r.block];
                let how = if by == mark { how } else { 0 };
                self.touched[r.block] = [mark, how | if r.event == Event::Read { 1 } else { 2 }];
            }
        }
        Some(progress)
    }

    /// A recomputation leaves out persistent blocks that it updates: the first run did so.
    pub(crate) fn to_come(&self, progress: Progress) -> impl Iterator<Item = (usize, &'a Row)> {
        let rows = self.rows.get(progress.next..progress.end).unwrap_or_default();
        let updated = move |r: &Row| progress.rerun && self.is_persistent(r.block) && self.touched[r.block][1] == 3;
        (progress.next..).zip(rows).filter(move |(_, r)| r.event.is_access() && !updated(r))
    }

    /// In ns. Left-out accesses take their time, so that a recomputation takes as long.
    pub(crate) fn since_last_access(&self, progress: Progress, row: usize) -> u64 {
        let time = |row: usize| self.rows.get(row).map_or(0, |r| r.time_ns);
        let before = progress.first.max(progress.next.saturating_sub(1));
        let is_last = self.to_come(Progress { next: row + 1, ..progress }).next().is_none();
        let until = if is_last { progress.end.saturating_sub(1) } else { row };
        time(until).saturating_sub(time(before))
    }

    pub(crate) fn since_access_before(&self, row: usize) -> u64 {
        let before = self.rows.get(..row).unwrap_or_default();
        let time = self.rows.get(row).map_or(0, |r| r.time_ns);
        time.saturating_sub(before.iter().rev().find(|r| r.event.is_access()).map_or(0, |last| last.time_ns))
    }

    fn first_access(&self, k: u32) -> Option<usize> {
        let rows = self.first.first(self.first_count);
        let place = rows.partition_point(|&row| number(at(self.rows, row).op) < number(Op::First(k)));
        let row = *rows.get(place)?;
        (at(self.rows, row).op == Op::First(k)).then(|| usize::try_from(row).ok()).flatten()
    }
}

/// 0 for [`Op::None`], else 1 + the operator's number.
pub(crate) fn number(op: Op) -> u64 {
    match op {
        Op::None => 0,
        Op::First(k) | Op::Rerun(k) => 1 + u64::from(k),
    }
}

/// An access with [`Op::None`] is an operator of its own.
pub(crate) fn operator(rows: &[Row], first: usize) -> usize {
    let op = rows.get(first).map_or(Op::None, |r| r.op);
    let mut end = first + 1;
    if op != Op::None {
        for (i, r) in rows.iter().enumerate().skip(end).filter(|(_, r)| r.event.is_access()) {
            if r.op != op {
                break;
            }
            end = i + 1;
        }
    }
    end
}

#[derive(Default)]
pub(crate) struct Running {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

impl Running {
    pub(crate) fn go_to(&mut self, rows: &[Row], row: u32) -> bool {
        let begins = row >= self.end && at(rows, row).event.is_access();
        if begins {
            let end = usize::try_from(row).map_or(usize::MAX, |first| operator(rows, first));
            (self.first, self.end) = (row, u32::try_from(end).unwrap_or(u32::MAX));
        }
        begins
    }

    pub(crate) fn rows(&self, rows: &[Row]) -> impl Iterator<Item = (u32, Row)> + Clone {
        let all = usize::try_from(self.first).ok().zip(usize::try_from(self.end).ok());
        let rows = all.and_then(|(first, end)| rows.get(first..end)).unwrap_or_default();
        (self.first..).zip(rows.iter().copied())
    }
}

pub(crate) fn ends(rows: &[Row]) -> Option<(u32, u32)> {
    let own = |block| rows.iter().any(|r| !r.event.is_access() && r.block == block);
    let first = |event| rows.iter().find(|r| r.event == event && !own(r.block)).map(|r| r.block);
    first(Event::Read).zip(first(Event::Write))
}

/// The first access, the row after the last, the row after its frees; all three `rows.len()` if none is left.
pub(crate) fn group(rows: &[Row], begin: usize) -> (usize, usize, usize) {
    let rest = rows.get(begin..).unwrap_or_default();
    let Some(access) = rest.iter().position(|r| r.event.is_access()).map(|i| begin + i) else {
        return (rows.len(), rows.len(), rows.len());
    };
    let end = operator(rows, access);
    let frees = rows.get(end..).unwrap_or_default().iter().take_while(|r| r.event == Event::Free).count();
    (access, end, end + frees)
}
