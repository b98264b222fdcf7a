//! Masks: the signs of the elements of a block that a ReLU reads or writes, kept in place of the block.
//!
//! Problem: the gradient of a ReLU needs only the signs of what the ReLU read or wrote. Where nothing else reads the
//! block after the forward pass, one bit for each element is enough. The ReLU's
//! [`Operator::element`](crate::trace::Operator::element) says how many bytes an element has; where several ReLU
//! operators that access a block give different sizes, the mask has room for the most elements.
//!
//! Papers: Jin et al. 2018 (section 4.2, a byte for each element); Jain et al. 2018 (Gist, a bit).
//!
//! Steps:
//! 1. One pass over the rows notes three things for each live range of a block:
//!    - the last ReLU that accesses the block with no write or copy back in after it: it could make the mask;
//!    - the last row of the last operator that needs the block's full values. Gradients of ReLU operators do not need
//!      them, but a copy to or from the host does;
//!    - whether gradients of ReLU operators read the block after that row.
//! 2. A second pass writes the malloc of the mask and its write directly after the ReLU's last row. It writes the
//!    block's free directly after the last row that needs the full values. The gradients then read the mask in place of
//!    the block, and the mask is freed where the block was freed.
//!
//! A live range gets no mask in any of these cases: its block is persistent, is written or copied back in between the
//! ReLU and the gradient, is freed between two accesses of an operator (as where it is reused in place), or has a mask
//! already; or the mask does not pay. A mask pays under two conditions:
//! - The last operator that needs the block's full values is in the forward pass. The block is freed after that
//!   operator; until then the mask takes memory beside the block. The forward pass is taken to end after the last
//!   operator that may be recomputed, or at the first gradient of a ReLU if that comes first.
//! - The mask costs less than it saves. It costs its bytes times the rows for which it is alive beside the block. It
//!   saves the bytes by which it is smaller than the block, times the rows for which it is alive in place of the block.
//!
//! Ties: where several ReLU operators access the block, the last one makes the mask. Masks of one ReLU come in the
//! order of its accesses. Cost: O(rows), linear workspace.

use crate::error::RowFault;
use crate::id::Id;
use crate::rewrite::ids::BlockId;
use crate::rewrite::writer::Writer;
use crate::table::{Records, count, record};
use crate::trace::liveness::{self, ResidencyId};
use crate::trace::recorded::Running;
use crate::trace::{Event, Kind, Op, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block};

/// Length of the workspace that [`rewrite`] needs for a trace of `rows` rows with `blocks` block numbers.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    liveness::of_rows_workspace(rows, 2 * blocks).and(Masks::workspace(rows, blocks))
}

/// The most rows that [`rewrite`] writes: the rows of the trace, and three for each live range of a block. The three
/// are the malloc and the write of a bit mask, and an early free of the block.
#[must_use]
pub fn most_rows(rows: &[Row]) -> usize {
    rows.len() + 3 * liveness::residencies(rows)
}

/// Rewrites `rows`, a trace made from `recorded` or the recorded one itself, so that ReLU operators write bit masks of
/// the signs of elements. The gradients of these operators then read the masks in place of the elements. Writes the new
/// rows to `out` and returns how many they are. Added rows have the time of the row above them.
///
/// # Errors
/// [`Error::Row`] for a row that cannot follow the rows before it, or for a row of the recording whose block number is
/// not below the recording's number of blocks; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if `out` or the
/// workspace is too short.
///
/// ```
/// use sublet_core::rewrite::mask;
/// use sublet_core::trace::{Event, Kind, Op, Operator, Recorded, Row};
/// use sublet_core::Workspace;
/// let row = |event, block, op| {
///     Row { time_ns: 1, bytes: if event == Event::Malloc { 6400 } else { 0 }, block, op: Op::First(op), event }
/// };
/// let free = |block| Row { op: sublet_core::trace::Op::None, ..row(Event::Free, block, 0) };
/// let kind = |kind| Operator { kind, ..Operator::default() };
/// let rows = [
///     row(Event::Malloc, 0, 0), row(Event::Write, 0, 0), // a ReLU
///     row(Event::Malloc, 1, 1), row(Event::Read, 0, 1), row(Event::Write, 1, 1), // reads its output
///     row(Event::Malloc, 2, 2), row(Event::Read, 1, 2), row(Event::Write, 2, 2), free(1),
///     row(Event::Malloc, 3, 3), row(Event::Read, 2, 3), row(Event::Read, 0, 3), row(Event::Write, 3, 3), free(0), free(2),
/// ];
/// let operators = [kind(Kind::Relu), kind(Kind::Other), kind(Kind::Other), kind(Kind::ReluBackward)];
/// let recorded = Recorded { rows: &rows, operators: &operators, blocks: 4 };
/// let len = mask::workspace(rows.len(), 4);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut out = vec![Row::default(); mask::most_rows(&rows)];
/// let n = mask::rewrite(&recorded, &rows, Workspace::new(&mut words, &mut indices), &mut out)?;
/// assert_eq!((n, out[2].block, out[2].bytes), (rows.len() + 3, 4, 200)); // the mask of block 0
/// assert_eq!((out[7].event, out[7].block), (Event::Free, 0)); // after the operator that reads block 0
/// assert_eq!((out[14].block, out[16].block), (4, 4)); // the gradient reads the mask, and it is freed
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn rewrite(
    recorded: &Recorded<'_>,
    rows: &[Row],
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<usize, Error> {
    block::check_count(recorded.blocks)?;
    scratch.check(workspace(rows.len(), recorded.blocks))?;
    let mut scratch = scratch.reborrow();
    let of = liveness::of_rows(rows, recorded.numbers(), &mut scratch)?;
    let mut masks = Masks::lend(rows.len(), recorded.blocks, *recorded, of, &mut scratch);
    masks.know_blocks()?;
    masks.collect(rows);
    let mut writer = Writer::new(out);
    masks.write(rows, &mut writer);
    writer.end()
}

record! {
    struct Range {
        /// 1 + the last row of the ReLU that can make the mask; 0 if none can.
        relu: u32,
        /// 1 + the last row that needs the full values, 0 if none. A ReLU's gradients need only the signs.
        needed: u32,
        /// Reads by gradients of ReLU operators after `needed`.
        reads: u32,
        end: u32,
        /// 0 for nothing; 1 for the mask's malloc and write; 2 for these and the block's early free.
        written: u32,
    }
}

workspace! {
    struct Masks<'a>(rows, blocks; recorded: Recorded<'a>, of: Records<'a, ResidencyId>) {
        tables {
            size[BlockId]: u64[blocks],
            /// In bytes; 0 if no ReLU accesses the block.
            mask[BlockId]: u64[blocks],
        }
        records {
            range[ResidencyId]: Range[rows],
            excluded[BlockId]: bool[blocks],
        }
        state {
            recorded: Recorded<'a> = recorded,
            of: Records<'a, ResidencyId> = of,
            /// 1 + the last row of the forward pass; `u32::MAX` before it is found.
            turn: u32 = u32::MAX,
        }
    }
}

impl Masks<'_> {
    fn know_blocks(&mut self) -> Result<(), Error> {
        for (row, r) in (0u32..).zip(self.recorded.rows) {
            if usize::try_from(r.block).map_or(true, |b| b >= self.recorded.blocks) {
                return Err(Error::Row { row, fault: RowFault::UnknownBlock });
            }
            let (block, operator) = (r.block_id(), self.recorded.operator(r.op));
            match r.event {
                Event::Malloc => {
                    self.size[block] = r.bytes;
                    self.excluded.set(block, r.time_ns == 0);
                }
                Event::Free => self.excluded.set(block, false),
                _ if operator.kind == Kind::Relu => {
                    self.mask[block] = self.mask[block].max(operator.mask_bytes(self.size[block]));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn collect(&mut self, rows: &[Row]) {
        let mut running = Running::default();
        // 1 + the last row of the last operator that may be recomputed, and the first row of the first gradient of a
        // ReLU.
        let (mut recomputable, mut gradient) = (0, count(rows));
        for (row, r) in (0u32..).zip(rows) {
            let operator = self.recorded.operator(r.op);
            if running.go_to(rows, row) {
                if matches!(r.op, Op::First(_)) && operator.rerun {
                    recomputable = running.end;
                }
                if operator.kind == Kind::ReluBackward {
                    gradient = gradient.min(row);
                }
            }
            if let Some(block) = self.recorded.masked(r.block) {
                self.excluded.set(BlockId::of(block), true);
                continue;
            }
            let s = self.range.get(self.of.get(row));
            let found = match r.event {
                Event::Malloc => Range { end: count(rows), ..s },
                // The block is freed inside an operator: its memory is reused in place there, so the block gets no
                // mask.
                Event::Free => Range { end: row, relu: if row < running.end { 0 } else { s.relu }, ..s },
                Event::Read if operator.kind == Kind::ReluBackward => Range { reads: s.reads + 1, ..s },
                Event::SwapOut => Range { needed: row + 1, reads: 0, ..s },
                Event::SwapIn => Range { relu: 0, needed: row + 1, reads: 0, ..s },
                Event::Read | Event::Write => {
                    let before = if r.event == Event::Write { 0 } else { s.relu };
                    let relu = if operator.kind == Kind::Relu { running.end } else { before };
                    Range { relu, needed: running.end, reads: 0, ..s }
                }
            };
            self.range.set(self.of.get(row), found);
        }
        self.turn = recomputable.min(gradient);
    }

    fn masked(&self, row: u32, block: BlockId) -> Option<Range> {
        let recorded = self.recorded.masked(block.number()).is_none();
        let s = self.range.get(self.of.get(row));
        if !recorded || self.excluded.get(block) || s.relu == 0 || s.reads == 0 || s.needed > self.turn {
            return None;
        }
        let (size, mask) = (self.size[block], self.mask[block]);
        let rows = |from: u32, to: u32| u64::from(to.saturating_sub(from));
        let saved = size.saturating_sub(mask).saturating_mul(rows(s.needed, s.end));
        let taken = mask.saturating_mul(rows(s.relu, s.needed));
        (saved > taken).then_some(s)
    }

    fn write(&mut self, rows: &[Row], writer: &mut Writer<'_>) {
        let mut running = Running::default();
        for (row, &r) in (0u32..).zip(rows) {
            running.go_to(rows, row);
            let masked = self.masked(row, r.block_id());
            let late = masked.is_some_and(|s| row >= s.needed && matches!(r.event, Event::Read | Event::Free));
            writer.push(if late { Row { block: self.recorded.mask(r.block), ..r } } else { r });
            let copied = matches!(r.event, Event::SwapOut | Event::SwapIn);
            if copied && masked.is_some_and(|s| s.needed == row + 1) {
                writer.event(Event::Free, r.block_id(), 0, Op::None);
            }
            if row + 1 == running.end {
                self.after_operator(&running, rows, writer);
            }
        }
    }

    fn after_operator(&mut self, running: &Running, rows: &[Row], writer: &mut Writer<'_>) {
        for written in [1, 2] {
            for (row, r) in running.rows(rows).filter(|(_, r)| r.event.is_access()) {
                let Some(s) = self.masked(row, r.block_id()) else { continue };
                let here = if written == 1 { s.relu } else { s.needed };
                if here != running.end || s.written >= written {
                    continue;
                }
                self.range.set(self.of.get(row), Range { written, ..s });
                if written == 1 {
                    let mask = BlockId::of(self.recorded.mask(r.block));
                    writer.event(Event::Malloc, mask, self.mask[r.block_id()], Op::None);
                    writer.event(Event::Write, mask, 0, r.op);
                } else {
                    writer.event(Event::Free, r.block_id(), 0, Op::None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Operator;
    use std::vec::Vec;

    const fn row(event: Event, block: u32, bytes: u64, op: u32) -> Row {
        Row { time_ns: 1, bytes, block, op: Op::First(op), event }
    }

    fn masked(bytes: u64, element: u8, third: Event) -> Vec<Row> {
        let touch = |block, op, event| row(event, block, 0, op);
        let made = |block, op, bytes| [row(Event::Malloc, block, bytes, op), touch(block, op, Event::Write)];
        let mut rows = Vec::from(made(0, 0, bytes));
        rows.extend([touch(0, 1, Event::Read), touch(0, 2, third)]);
        rows.extend(made(1, 3, 8));
        rows.extend(made(2, 4, 8));
        rows.extend([touch(0, 5, Event::Read), row(Event::Free, 0, 0, 5)]);
        let operators = [0, 1, 2, 3, 4, 5].map(|op| Operator {
            kind: [Kind::Relu, Kind::Other, Kind::Other, Kind::Other, Kind::Other, Kind::ReluBackward][op],
            element,
            ..Operator::default()
        });
        let recorded = Recorded { rows: &rows, operators: &operators, blocks: 3 };
        let len = workspace(rows.len(), 3);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut out = vec![Row::default(); most_rows(&rows)];
        let n = rewrite(&recorded, &rows, Workspace::new(&mut words, &mut indices), &mut out).unwrap();
        out.truncate(n);
        assert!(n > rows.len() || out == rows);
        out.retain(|r| r.event == Event::Malloc && r.block == 3);
        out
    }

    #[test]
    fn a_mask_has_a_bit_for_the_last_element_too() {
        for (bytes, mask) in [(6400, 200), (6404, 201), (6428, 201), (6432, 201), (6436, 202)] {
            assert_eq!(masked(bytes, 4, Event::Read).first().map(|r| r.bytes), Some(mask), "{bytes}");
        }
        for (element, mask) in [(1, 801), (2, 401), (8, 201)] {
            assert_eq!(masked(6404, element, Event::Read).first().map(|r| r.bytes), Some(mask), "{element}");
        }
    }

    #[test]
    fn what_is_written_after_the_relu_has_no_mask() {
        assert_eq!(masked(6400, 4, Event::Write), []);
    }
}
