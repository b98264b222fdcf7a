//! In-place reuse: operators write their outputs over their inputs.
//!
//! Problem: some kernels may write their first output over their first input. Where nobody needs the input after that,
//! the output takes no memory of its own.
//!
//! Papers: Chen et al. 2016 (section 3) and `MXNet`'s note on memory. The pitfall is an input that another operator
//! still reads; the rule below excludes it.
//!
//! 1. One pass over the rows finds, for each live range of a block, the last row that needs the block: an access, a
//!    copy, or the write of a bit mask that is made from the block.
//! 2. Each operator that may work in place is looked at, whether it runs as recorded or is recomputed. Its input is the
//!    first block that it reads in the recording, its output the first that it writes; its workspaces do not count. The
//!    output reuses the input's memory if all of this is true:
//!    - neither is persistent, and both have the same size in the recording (the rows may have sizes rounded up);
//!    - nothing needs the input's live range after the operator's reads, and it is not freed between two accesses of an
//!      operator;
//!    - the output is allocated before the operator's first access, and not accessed before the operator's last read.
//! 3. Then the `free` of the input and the `malloc` of the output are moved to directly after the operator's last read.
//!    Both live ranges have to lie at the same address: [`liveness::merge`] makes them one block for the placement.
//!
//! This pass runs after masks are made and after recomputations are written: both need to find the free of each block
//! where it was, and this pass moves frees. At no step are more bytes alive than before. Whether one operator works in
//! place does not depend on the others, so their order does not matter. Cost: O(rows log rows), linear workspace.

use crate::error::RowFault;
use crate::id::Id;
use crate::rewrite::ids::BlockId;
use crate::rewrite::writer::Writer;
use crate::table::{Records, at, record};
use crate::trace::liveness::{self, ResidencyId};
use crate::trace::recorded::{self, Operators, Running};
use crate::trace::{Event, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block};

/// Length of the workspace that [`rewrite`] needs for a recording of `recorded` rows with `blocks` block numbers, and a
/// trace of `rows` rows that is to be rewritten.
#[must_use]
pub const fn workspace(recorded: usize, rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(recorded, blocks)
        .and(liveness::of_rows_workspace(rows, 2 * blocks))
        .and(Rewriter::workspace(rows, blocks))
}

/// The most rows that [`rewrite`] writes: the rows of the trace, and one free for each live range. A block that was
/// never freed needs this free if another block takes over its memory.
#[must_use]
pub fn most_rows(rows: &[Row]) -> usize {
    rows.len() + liveness::residencies(rows)
}

/// Rewrites `rows`, a trace made from `recorded` or the recorded one itself, so that operators write their outputs over
/// their inputs wherever they can. Writes the new rows to `out` and returns how many they are. Added rows have the time
/// of the row above them.
///
/// # Errors
/// [`Error::Row`] for a row that cannot follow the rows before it, or for an access by an operator that the recording
/// does not have. Also for a recording with a block number that is out of range, with a recomputed operator, or with
/// accesses of one operator that are interrupted by those of another. [`Error::TooManyBlocks`];
/// [`Error::BufferTooSmall`] if `out` or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::in_place;
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
    let mut operators = Operators::new(recorded, &mut scratch)?;
    let of = liveness::of_rows(rows, recorded.numbers(), &mut scratch)?;
    let mut rewriter = Rewriter::lend(rows.len(), recorded.blocks, *recorded, of, &mut scratch);
    for r in recorded.rows.iter().filter(|r| r.event == Event::Malloc) {
        rewriter.size[r.block] = r.bytes;
    }
    rewriter.collect(rows);
    rewriter.decide(rows, &mut operators)?;
    let mut writer = Writer::new(out);
    rewriter.write(rows, &mut writer);
    writer.end()
}

record! {
    struct Range {
        begin: Option<u32>,
        first: Option<u32>,
        /// 1 + the last row that needs the block; 0 if none does, `u32::MAX` if it cannot be reused.
        last: u32,
        free_moved: bool,
        malloc_moved: bool,
    }
}

record! {
    struct Reuse {
        given: Option<u32>,
        taken: u32,
    }
}

workspace! {
    struct Rewriter<'a>(rows, blocks; recorded: Recorded<'a>, of: Records<'a, ResidencyId>) {
        tables {
            size: u64[blocks],
        }
        records {
            reuses: Reuse[rows],
            range[ResidencyId]: Range[rows],
            latest[BlockId]: Option<ResidencyId>[blocks],
        }
        state {
            recorded: Recorded<'a> = recorded,
            of: Records<'a, ResidencyId> = of,
        }
    }
}

impl Rewriter<'_> {
    fn collect(&mut self, rows: &[Row]) {
        let mut running = Running::default();
        for (row, r) in (0u32..).zip(rows) {
            running.go_to(rows, row);
            let masked = self.recorded.masked(r.block).map(BlockId::of);
            // The memory of a mask is not reused. But the block that a mask is made from is needed until the mask is
            // written.
            let Some(range) = masked.map_or(Some(self.of.get(row)), |block| self.latest.get(block)) else { continue };
            let s = self.range.get(range);
            let found = match r.event {
                Event::Write if masked.is_some() => Range { last: row + 1, ..s },
                _ if masked.is_some() => continue,
                Event::Malloc => {
                    self.latest.set(r.block_id(), Some(range));
                    Range { begin: Some(row), ..s }
                }
                // The block is freed inside an operator: it is the operator's workspace, or its memory is reused there
                // already. So it is not reused again.
                Event::Free if row < running.end => Range { last: u32::MAX, ..s },
                Event::Free => continue,
                _ => Range { first: s.first.or(Some(row)), last: row + 1, ..s },
            };
            self.range.set(range, found);
        }
    }

    fn decide(&mut self, rows: &[Row], operators: &mut Operators<'_>) -> Result<(), Error> {
        let mut running = Running::default();
        for (row, r) in (0u32..).zip(rows) {
            if running.go_to(rows, row) {
                let begun = operators.begin(r.op);
                let begun = begun.ok_or(Error::Row { row, fault: RowFault::OtherAccess })?;
                if self.recorded.operator(r.op).in_place {
                    let recorded = self.recorded.rows.get(begun.first..begun.end).unwrap_or_default();
                    let ends = recorded::ends(recorded);
                    let ends = ends.filter(|&(x, y)| !operators.is_persistent(x) && !operators.is_persistent(y));
                    ends.and_then(|ends| self.reuse(&running, rows, ends));
                }
            }
        }
        Ok(())
    }

    fn reuse(&mut self, running: &Running, rows: &[Row], (x, y): (u32, u32)) -> Option<()> {
        let accesses = || running.rows(rows);
        // An operator that reads a mask in place of the input does not read the input itself, and reuses nothing.
        let range = |event, block| accesses().find(|&(_, r)| (r.event, r.block) == (event, block));
        let (read, write) = (range(Event::Read, x)?.0, range(Event::Write, y)?.0);
        let last_read = accesses().filter(|(_, r)| r.event == Event::Read).last()?.0;
        let (input, output) = (self.of.get(read), self.of.get(write));
        let (from, to) = (self.range.get(input), self.range.get(output));
        let (given, taken) = (from.begin?, to.begin?);
        let over_after_reads = from.last <= last_read + 1;
        let begins_after_reads = to.first > Some(last_read) && taken < running.first;
        let alike = self.size[x] == self.size[y];
        if x != y && alike && over_after_reads && begins_after_reads {
            self.reuses.set(last_read, Reuse { given: Some(given), taken });
            self.range.set(input, Range { free_moved: true, ..from });
            self.range.set(output, Range { malloc_moved: true, ..to });
        }
        Some(())
    }

    fn write(&self, rows: &[Row], writer: &mut Writer<'_>) {
        for (row, &r) in (0u32..).zip(rows) {
            let range = self.range.get(self.of.get(row));
            let moved = match r.event {
                Event::Malloc => range.malloc_moved,
                Event::Free => range.free_moved,
                _ => false,
            };
            if !moved {
                writer.push(r);
            }
            let Reuse { given, taken } = self.reuses.get(row);
            if let Some(given) = given {
                writer.event(Event::Free, at(rows, given).block_id(), 0, Op::None);
                writer.push(Row { time_ns: r.time_ns, op: r.op, ..at(rows, taken) });
            }
        }
    }
}
