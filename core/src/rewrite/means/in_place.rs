//! Outputs over inputs.
//!
//! Problem: some kernels may write their first output over their first input. That saves the output's memory where the
//! input is not needed any more.
//!
//! Papers: Chen et al. 2016 (section 3) and `MXNet`'s note on memory. Its trap, an input that another operator still reads,
//! is what the rule below is about.
//!
//! Steps: one pass over the rows finds the last time that each stay is needed: an access, a copy, or a mask that is made of
//! it. For each operator that works in place, the first run or a later one, its first input and first output are those of
//! the recording, without its own workspaces. The output takes over the input's memory if neither is persistent, both have
//! the same size, nobody needs the input's stay after the operator's reads, and the output is touched only after them. Then
//! `free` of the input and `malloc` of the output stand directly after the operator's last read, and nowhere else. Both
//! stays have to lie at the same address: [`liveness::merge`] makes them one block for the placement.
//!
//! This pass runs last, over whatever the others wrote: they ask when a block is freed, and a block that is handed over has
//! no free of its own. No load rises. Ties: none. Cost: O(rows log rows), linear workspace.

use crate::error::RowFault;
use crate::rewrite::writer::Writer;
use crate::table::Table;
use crate::trace::recorded::{self, Operators, Progress};
use crate::trace::{Event, Op, Recorded, Row, liveness};
use crate::{Error, Workspace, WorkspaceLen, block};

/// Length of the workspace that [`rewrite`] needs for a recording of `recorded` rows with `blocks` block numbers, and a
/// rewritten trace of `rows` rows.
#[must_use]
pub const fn workspace(recorded: usize, rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(recorded, blocks).and(WorkspaceLen { words: blocks, indices: 6 * rows + 2 * blocks })
}

/// The most rows that [`rewrite`] writes: one more for each block that is handed over and had no free.
#[must_use]
pub fn most_rows(rows: &[Row]) -> usize {
    rows.len() + liveness::stays(rows)
}

/// Rewrites `rows`, a trace made from `recorded` or the recorded one itself, so that operators work in place where they
/// can; writes the new rows to `out` and returns how many they are. Added rows have the time of the row above them.
///
/// # Errors
/// [`Error::Row`] for a row that cannot follow the rows before it, or a recording whose operators do not stand together;
/// [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if `out` or the workspace is too short.
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
pub fn rewrite(recorded: &Recorded<'_>, rows: &[Row], scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
    let mut scratch = scratch;
    block::check_count(recorded.blocks)?;
    scratch.check(workspace(recorded.rows.len(), rows.len(), recorded.blocks))?;
    let mut size = scratch.words(recorded.blocks);
    let operators = Operators::new(recorded, &mut scratch)?;
    for r in recorded.rows.iter().filter(|r| r.event == Event::Malloc) {
        size[r.block] = r.bytes;
    }
    let mut pass = Pass {
        recorded: *recorded,
        operators,
        size,
        stay: scratch.index_records(rows.len()),
        open: scratch.indices(recorded.blocks),
        own: scratch.indices(recorded.blocks),
        hands: scratch.index_records(rows.len()),
        next: 0,
    };
    pass.collect(rows)?;
    pass.decide(rows)?;
    let mut writer = Writer::new(out);
    pass.write(rows, &mut writer);
    writer.end()
}

/// What is known of a stay. Rows are counted from 1, 0 is none.
#[derive(Clone, Copy)]
struct Stay {
    /// The row of its malloc.
    begin: u32,
    /// The first and the last row that need it.
    first: u32,
    last: u32,
    /// Its malloc and its free are written where it is handed over: 1 the free, 2 the malloc, 3 both.
    moved: u32,
}

const FREE: u32 = 1;
const MALLOC: u32 = 2;

struct Pass<'a> {
    recorded: Recorded<'a>,
    operators: Operators<'a>,
    /// By block.
    size: Table<'a, u64>,
    stay: Table<'a, [u32; 4]>,
    /// By block: 1 + the stay that is open.
    open: Table<'a, u32>,
    /// By block: 1 + the first recorded row of the operator that last had it as a workspace.
    own: Table<'a, u32>,
    /// By row: 1 + the block that is handed over after it, and the block that takes over.
    hands: Table<'a, [u32; 2]>,
    /// The recorded row from which the next operator is searched.
    next: usize,
}

impl Pass<'_> {
    fn get(&self, stay: u32) -> Stay {
        let [begin, first, last, moved] = self.stay[stay];
        Stay { begin, first, last, moved }
    }

    fn set(&mut self, stay: u32, Stay { begin, first, last, moved }: Stay) {
        self.stay[stay] = [begin, first, last, moved];
    }

    /// The stays, and when they are needed.
    fn collect(&mut self, rows: &[Row]) -> Result<(), Error> {
        if u32::try_from(rows.len()).is_err() {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        let mut count = 0;
        // The operator that is under way: 1 + its last row.
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
            let open = self.open[block].checked_sub(1);
            match (mask, open, r.event) {
                // Masks stay where they are; who makes one needs the block.
                (Some(_), Some(stay), Event::Write) => self.set(stay, Stay { last: row + 1, ..self.get(stay) }),
                (Some(_), ..) => {}
                (None, Some(_), Event::Malloc) => return refuse(RowFault::AllocatedTwice),
                (None, None, Event::Malloc) => {
                    self.set(count, Stay { begin: row + 1, first: 0, last: 0, moved: 0 });
                    count += 1;
                    self.open[block] = count;
                }
                (None, None, Event::Free) => return refuse(RowFault::FreeWithoutMalloc),
                (None, None, _) => return refuse(RowFault::AccessWithoutMalloc),
                (None, Some(stay), Event::Free) => {
                    self.open[block] = 0;
                    // A workspace, or handed over already: it is freed there.
                    if row < operator {
                        self.set(stay, Stay { last: u32::MAX, ..self.get(stay) });
                    }
                }
                (None, Some(stay), _) => {
                    let s = self.get(stay);
                    let first = if s.first == 0 { row + 1 } else { s.first };
                    self.set(stay, Stay { first, last: row + 1, ..s });
                }
            }
        }
        Ok(())
    }

    /// Where memory is handed over.
    fn decide(&mut self, rows: &[Row]) -> Result<(), Error> {
        self.open.fill(0);
        let mut count = 0;
        let mut operator = 0;
        for (row, r) in (0u32..).zip(rows) {
            let mask = self.recorded.masked(r.block);
            if r.event.is_access() && row >= operator && !(mask.is_some() && r.event == Event::Write) {
                let begun = self.operators.begin(r.op, self.next);
                let begun = begun.ok_or(Error::Row { row, fault: RowFault::OtherAccess })?;
                if !begun.again {
                    self.next = begun.end;
                }
                let end = end_of_operator(rows, row);
                operator = u32::try_from(end).unwrap_or(u32::MAX);
                let first = usize::try_from(row).unwrap_or(usize::MAX);
                self.hand_over(begun, rows.get(first..end).unwrap_or_default(), (row, r.op));
            }
            if mask.is_none() {
                match r.event {
                    Event::Malloc => {
                        count += 1;
                        self.open[r.block] = count;
                    }
                    Event::Free => self.open[r.block] = 0,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Decides about an operator of the recording, which stands in these rows from `begin` on.
    fn hand_over(&mut self, recorded: Progress, rows: &[Row], (begin, op): (u32, Op)) {
        if !self.recorded.operator(op).in_place {
            return;
        }
        let Some((x, y)) = self.ends(recorded) else { return };
        let (Some(giver), Some(taker)) = (self.open[x].checked_sub(1), self.open[y].checked_sub(1)) else { return };
        let reads = rows.iter().zip(begin..).filter(|(r, _)| r.event == Event::Read);
        let Some(last_read) = reads.last().map(|(_, row)| row) else { return };
        let (from, to) = (self.get(giver), self.get(taker));
        let persistent = self.operators.is_persistent(x) || self.operators.is_persistent(y);
        // Where a mask is read in place of the input, its memory is not asked for.
        let over_after_reads = from.last > begin && from.last <= last_read + 1;
        let begins_after_reads = to.first > last_read + 1 && to.begin <= begin;
        if x != y && !persistent && self.size[x] == self.size[y] && over_after_reads && begins_after_reads {
            self.hands[last_read] = [1 + x, y];
            self.set(giver, Stay { moved: from.moved | FREE, ..from });
            self.set(taker, Stay { moved: to.moved | MALLOC, ..to });
        }
    }

    /// The first input and the first output of a recorded operator.
    fn ends(&mut self, operator: Progress) -> Option<(u32, u32)> {
        let rows = self.recorded.rows.get(operator.first..operator.end).unwrap_or_default();
        let mark = u32::try_from(operator.first).map_or(u32::MAX, |row| row.saturating_add(1));
        for workspace in rows.iter().filter(|r| !r.event.is_access()) {
            self.own[workspace.block] = mark;
        }
        let first = |event| rows.iter().find(|r| r.event == event && self.own[r.block] != mark).map(|r| r.block);
        first(Event::Read).zip(first(Event::Write))
    }

    fn write(&mut self, rows: &[Row], writer: &mut Writer<'_>) {
        self.open.fill(0);
        let mut count = 0;
        for (row, &r) in (0u32..).zip(rows) {
            let is_mask = self.recorded.masked(r.block).is_some();
            let moved = match r.event {
                _ if is_mask => false,
                Event::Malloc => {
                    count += 1;
                    self.open[r.block] = count;
                    self.get(count - 1).moved & MALLOC > 0
                }
                Event::Free => {
                    let stay = self.open[r.block].checked_sub(1);
                    stay.is_some_and(|stay| self.get(stay).moved & FREE > 0)
                }
                _ => false,
            };
            if !moved {
                writer.push(r);
            }
            let [giver, taker] = self.hands[row];
            if let Some(giver) = giver.checked_sub(1) {
                writer.event(Event::Free, giver, 0, Op::None);
                writer.push(Row { event: Event::Malloc, block: taker, bytes: self.size[taker], ..r });
            }
        }
    }
}

/// 1 + the last row of the operator whose first access is this row; masks that it leaves are its accesses too.
fn end_of_operator(rows: &[Row], row: u32) -> usize {
    usize::try_from(row).map_or(usize::MAX, |row| recorded::operator(rows, row))
}
