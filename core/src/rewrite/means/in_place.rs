//! In-place reuse: operators write their outputs over their inputs.
//!
//! Problem: some kernels may write their first output over their first input. Where nobody needs the input after that,
//! the output takes no memory of its own.
//!
//! Papers: Chen et al. 2016 (section 3) and `MXNet`'s note on memory. The pitfall is an input that another operator
//! still reads; the rule below excludes it.
//!
//! Steps:
//! 1. One pass over the rows finds the last row that needs each live range: an access, a copy, or a mask that is made
//!    of it.
//! 2. For each operator that may work in place, run or recomputed, take its first input and first output in the
//!    recording, its workspaces left out. The output reuses the input's memory if neither is persistent, both have the
//!    same size, nothing needs the input's live range after the operator's reads, and the output is not touched before
//!    the operator's last read.
//! 3. Then the `free` of the input and the `malloc` of the output stand directly after the operator's last read, and
//!    nowhere else. Both live ranges have to lie at the same address: [`liveness::merge`] makes them one block for the
//!    placement.
//!
//! This pass runs last, over the rows that the others wrote: they look for the free of a block, and a block whose
//! memory is reused has none of its own. The load rises nowhere. There are no ties. Cost: O(rows log rows), linear
//! workspace.

use crate::error::RowFault;
use crate::rewrite::writer::Writer;
use crate::table::record;
use crate::trace::recorded::{self, Operators, Progress};
use crate::trace::{Event, Op, Recorded, Row, liveness};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block};

/// Length of the workspace that [`rewrite`] needs for a recording of `recorded` rows with `blocks` block numbers, and a
/// rewritten trace of `rows` rows.
#[must_use]
pub const fn workspace(recorded: usize, rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(recorded, blocks).and(Pass::workspace(rows, blocks))
}

/// The most rows that [`rewrite`] writes: one more for each block whose memory is reused and that was never freed.
#[must_use]
pub fn most_rows(rows: &[Row]) -> usize {
    rows.len() + liveness::residencies(rows)
}

/// Rewrites `rows`, a trace made from `recorded` or the recorded one itself, so that operators work in place wherever
/// they can. Writes the new rows to `out` and returns how many they are. Added rows have the time of the row above
/// them.
///
/// # Errors
/// [`Error::Row`] for a row that cannot follow the rows before it, or a recording whose operators do not stand
/// together; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if `out` or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::means::in_place;
/// use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
/// use sublet_core::Workspace;
/// let row = |event, block, op| {
///     Row { time_ns: 1, bytes: if event == Event::Malloc { 64 } else { 0 }, block, op: Op::First(op), event }
/// };
/// let rows = [
///     row(Event::Malloc, 0, 0), row(Event::Write, 0, 0),
///     row(Event::Malloc, 1, 1), row(Event::Read, 0, 1), row(Event::Write, 1, 1), row(Event::Free, 0, 1),
/// ];
/// let operators = [Operator::default(), Operator { in_place: true, ..Operator::default() }];
/// let recorded = Recorded { rows: &rows, operators: &operators, blocks: 2 };
/// let len = in_place::workspace(rows.len(), rows.len(), 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut out = vec![Row::default(); in_place::most_rows(&rows)];
/// let n = in_place::rewrite(&recorded, &rows, Workspace::new(&mut words, &mut indices), &mut out)?;
/// let events: Vec<_> = out[..n].iter().map(|r| (r.event, r.block)).collect();
/// assert_eq!(events[2..], [(Event::Read, 0), (Event::Free, 0), (Event::Malloc, 1), (Event::Write, 1)]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn rewrite(
    recorded: &Recorded<'_>,
    rows: &[Row],
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<usize, Error> {
    block::check_count(recorded.blocks)?;
    scratch.check(workspace(recorded.rows.len(), rows.len(), recorded.blocks))?;
    let mut scratch = scratch.reborrow();
    let operators = Operators::new(recorded, &mut scratch)?;
    let mut pass = Pass::lend(rows.len(), recorded.blocks, *recorded, operators, &mut scratch);
    for r in recorded.rows.iter().filter(|r| r.event == Event::Malloc) {
        pass.size[r.block] = r.bytes;
    }
    pass.collect(rows)?;
    pass.decide(rows)?;
    let mut writer = Writer::new(out);
    pass.write(rows, &mut writer);
    writer.end()
}

record! {
    /// What is known of a live range. Rows are counted from 1; 0 is none.
    struct Range {
        /// The row of its malloc.
        begin: u32,
        /// The first row that needs it.
        first: u32,
        /// The last row that needs it; `u32::MAX` if its memory cannot be reused.
        last: u32,
        /// Whether its free is written elsewhere, because its memory is reused.
        free_moved: bool,
        /// Whether its malloc is written elsewhere, because it reuses memory.
        malloc_moved: bool,
    }
}

workspace! {
    /// The live ranges of a trace, and where their memory is reused.
    struct Pass<'a>(rows, blocks; recorded: Recorded<'a>, operators: Operators<'a>) {
        tables {
            /// By block: its bytes.
            size: u64[blocks],
            /// By block: 1 + the first recorded row of the operator that last had it as a workspace.
            own: u32[blocks],
            /// By row: 1 + the block whose memory is reused after this row, or 0; and the block that reuses it.
            reuses: [u32; 2][rows],
        }
        records {
            /// The live ranges, in the order in which they begin.
            range: Range[rows],
            /// By block: the live range that has begun and not ended.
            open: Option<u32>[blocks],
        }
        state {
            recorded: Recorded<'a> = recorded,
            operators: Operators<'a> = operators,
        }
    }
}

impl Pass<'_> {
    /// Finds the live ranges and the rows that need them.
    fn collect(&mut self, rows: &[Row]) -> Result<(), Error> {
        if u32::try_from(rows.len()).is_err() {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        let mut count = 0;
        // 1 + the last row of the operator that is running.
        let mut operator = 0;
        for (row, r) in (0u32..).zip(rows) {
            let refuse = |fault| Err(Error::Row { row, fault });
            let mask = self.recorded.masked(r.block);
            let block = mask.unwrap_or(r.block);
            if usize::try_from(block).map_or(true, |b| b >= self.recorded.blocks) {
                return refuse(RowFault::UnknownBlock);
            }
            if r.event.is_access() && row >= operator {
                operator = u32::try_from(end_of_operator(rows, row)).unwrap_or(u32::MAX);
            }
            let open = self.open.get(block);
            match (mask, open, r.event) {
                // A mask has no live range here: making it needs the block.
                (Some(_), Some(range), Event::Write) => {
                    self.range.set(range, Range { last: row + 1, ..self.range.get(range) });
                }
                (Some(_), ..) => {}
                (None, Some(_), Event::Malloc) => return refuse(RowFault::AllocatedTwice),
                (None, None, Event::Malloc) => {
                    self.range.set(
                        count,
                        Range { begin: row + 1, first: 0, last: 0, free_moved: false, malloc_moved: false },
                    );
                    self.open.set(block, Some(count));
                    count += 1;
                }
                (None, None, Event::Free) => return refuse(RowFault::FreeWithoutMalloc),
                (None, None, _) => return refuse(RowFault::AccessWithoutMalloc),
                (None, Some(range), Event::Free) => {
                    self.open.set(block, None);
                    // It is freed inside an operator: as its workspace, or because its memory is reused there already.
                    // Its memory is not reused again.
                    if row < operator {
                        self.range.set(range, Range { last: u32::MAX, ..self.range.get(range) });
                    }
                }
                (None, Some(range), _) => {
                    let s = self.range.get(range);
                    let first = if s.first == 0 { row + 1 } else { s.first };
                    self.range.set(range, Range { first, last: row + 1, ..s });
                }
            }
        }
        Ok(())
    }

    /// Decides where memory is reused.
    fn decide(&mut self, rows: &[Row]) -> Result<(), Error> {
        self.open.fill(None);
        let mut count = 0;
        let mut operator = 0;
        for (row, r) in (0u32..).zip(rows) {
            let mask = self.recorded.masked(r.block);
            if r.event.is_access() && row >= operator && !(mask.is_some() && r.event == Event::Write) {
                let begun = self.operators.begin(r.op);
                let begun = begun.ok_or(Error::Row { row, fault: RowFault::OtherAccess })?;
                let end = end_of_operator(rows, row);
                operator = u32::try_from(end).unwrap_or(u32::MAX);
                let first = usize::try_from(row).unwrap_or(usize::MAX);
                self.reuse(begun, rows.get(first..end).unwrap_or_default(), (row, r.op));
            }
            if mask.is_none() {
                match r.event {
                    Event::Malloc => {
                        self.open.set(r.block, Some(count));
                        count += 1;
                    }
                    Event::Free => self.open.set(r.block, None),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Decides whether an operator works in place. Its accesses are `rows`, of which the first is row number `begin`.
    fn reuse(&mut self, recorded: Progress, rows: &[Row], (begin, op): (u32, Op)) {
        if !self.recorded.operator(op).in_place {
            return;
        }
        let Some((x, y)) = self.ends(recorded) else { return };
        let (Some(input), Some(output)) = (self.open.get(x), self.open.get(y)) else { return };
        let reads = rows.iter().zip(begin..).filter(|(r, _)| r.event == Event::Read);
        let Some(last_read) = reads.last().map(|(_, row)| row) else { return };
        let (from, to) = (self.range.get(input), self.range.get(output));
        let persistent = self.operators.is_persistent(x) || self.operators.is_persistent(y);
        // An operator that reads a mask in place of the input does not read the input itself, and reuses nothing.
        let over_after_reads = from.last > begin && from.last <= last_read + 1;
        let begins_after_reads = to.first > last_read + 1 && to.begin <= begin;
        if x != y && !persistent && self.size[x] == self.size[y] && over_after_reads && begins_after_reads {
            self.reuses[last_read] = [1 + x, y];
            self.range.set(input, Range { free_moved: true, ..from });
            self.range.set(output, Range { malloc_moved: true, ..to });
        }
    }

    /// The blocks that are the first input and the first output of a recorded operator, its workspaces left out.
    fn ends(&mut self, operator: Progress) -> Option<(u32, u32)> {
        let rows = self.recorded.rows.get(operator.first..operator.end).unwrap_or_default();
        let mark = u32::try_from(operator.first).map_or(u32::MAX, |row| row.saturating_add(1));
        for workspace in rows.iter().filter(|r| !r.event.is_access()) {
            self.own[workspace.block] = mark;
        }
        let first = |event| rows.iter().find(|r| r.event == event && self.own[r.block] != mark).map(|r| r.block);
        first(Event::Read).zip(first(Event::Write))
    }

    /// Writes the rows with the moved frees and mallocs.
    fn write(&mut self, rows: &[Row], writer: &mut Writer<'_>) {
        self.open.fill(None);
        let mut count = 0;
        for (row, &r) in (0u32..).zip(rows) {
            let is_mask = self.recorded.masked(r.block).is_some();
            let moved = match r.event {
                _ if is_mask => false,
                Event::Malloc => {
                    self.open.set(r.block, Some(count));
                    count += 1;
                    self.range.get(count - 1).malloc_moved
                }
                Event::Free => self.open.get(r.block).is_some_and(|range| self.range.get(range).free_moved),
                _ => false,
            };
            if !moved {
                writer.push(r);
            }
            let [input, output] = self.reuses[row];
            if let Some(input) = input.checked_sub(1) {
                writer.event(Event::Free, input, 0, Op::None);
                writer.push(Row { event: Event::Malloc, block: output, bytes: self.size[output], ..r });
            }
        }
    }
}

/// 1 + the last row of the operator whose first access is this row; the masks that it writes count as its accesses.
fn end_of_operator(rows: &[Row], row: u32) -> usize {
    usize::try_from(row).map_or(usize::MAX, |row| recorded::operator(rows, row))
}
