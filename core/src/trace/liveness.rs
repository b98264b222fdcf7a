//! Trace to blocks: how long each allocation lives.
//!
//! The lifetime of a block is `[row of its malloc, row of its free)`; a block that is never freed ends one
//! past the last row. A block that is allocated again after its free (in a rewritten trace) has several
//! stays, each of which is a block for placement. One pass over the rows, two indices of scratch for each
//! block of the trace.

use super::{Event, Row};
use crate::error::{Buffer, RowFault};
use crate::table::Table;
use crate::{Block, Error, Workspace, WorkspaceLen, block};

/// One uninterrupted residence of a block of the trace on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Stay {
    /// The block of the trace.
    pub block: u32,
    /// 0 for its first stay, 1 for the next, …
    pub ordinal: u32,
}

/// Length of the workspace that [`lifetimes`] needs for a trace with `blocks` block numbers.
#[must_use]
pub const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: blocks, indices: 2 * blocks }
}

/// Number of stays in a trace: its mallocs. This is how long the outputs of [`lifetimes`] must be.
#[must_use]
pub fn stays(rows: &[Row]) -> usize {
    rows.iter().filter(|r| r.event == Event::Malloc).count()
}

/// Writes the lifetime of every stay of a trace to `blocks`, and which stay it is to `names`, in the order
/// of the mallocs; returns how many there are. `block_count` is the number of block numbers that the rows
/// use. O(rows).
///
/// # Errors
/// [`Error::Row`] for the first row that cannot follow the rows before it: time going backwards, malloc of
/// a live block or of 0 bytes, free or access of a block that is not allocated; [`Error::TooManyBlocks`];
/// [`Error::BufferTooSmall`] if an output or the workspace is too short.
///
/// ```
/// use sublet_core::trace::{liveness, Event, Op, Row};
/// use sublet_core::{Block, Workspace};
/// let row = |event, block, bytes| Row { time_ns: 0, event, block, bytes, op: Op::None };
/// let rows = [
///     row(Event::Malloc, 0, 64),
///     row(Event::Write, 0, 0),
///     row(Event::Malloc, 1, 32),
///     row(Event::Free, 0, 0),
/// ];
/// let (mut blocks, mut names) = (vec![Block::default(); 2], vec![Default::default(); 2]);
/// let (mut words, mut indices) = (vec![0; 2], vec![0; 4]);
/// let n = liveness::lifetimes(&rows, 2, Workspace::new(&mut words, &mut indices), &mut blocks, &mut names)?;
/// assert_eq!(n, 2);
/// assert_eq!(blocks, [Block::new(0, 3, 64), Block::new(2, 4, 32)]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn lifetimes(
    rows: &[Row],
    block_count: usize,
    mut scratch: Workspace<'_>,
    blocks: &mut [Block],
    names: &mut [Stay],
) -> Result<usize, Error> {
    let Ok(end) = u32::try_from(rows.len()) else {
        return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
    };
    block::check_count(block_count)?;
    let needed = stays(rows);
    let shorter = blocks.len().min(names.len());
    if shorter < needed {
        return Err(Error::BufferTooSmall { buffer: Buffer::Blocks, needed, got: shorter });
    }
    scratch.check(workspace(block_count))?;
    // Per block of the trace: its size, how many stays it has had, and 1 + the index of the open one.
    let mut size = scratch.words(block_count);
    let mut ordinal = scratch.indices(block_count);
    let mut open = scratch.indices(block_count);
    let mut blocks = Table::new(blocks);
    let mut names = Table::new(names);
    let mut found = 0;
    let mut time = 0;
    for (step, r) in (0u32..).zip(rows) {
        let refuse = |fault| Err(Error::Row { row: step, fault });
        if r.time_ns < time {
            return refuse(RowFault::TimeBackwards);
        }
        time = r.time_ns;
        if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
            return refuse(RowFault::UnknownBlock);
        }
        let resident = open[r.block];
        match r.event {
            Event::Malloc if resident != 0 => return refuse(RowFault::AllocatedTwice),
            Event::Malloc if r.bytes == 0 => return refuse(RowFault::ZeroSize),
            Event::Malloc => {
                if ordinal[r.block] > 0 && size[r.block] != r.bytes {
                    return refuse(RowFault::SizeChanged);
                }
                size[r.block] = r.bytes;
                blocks[found] = Block::new(step, end, r.bytes);
                names[found] = Stay { block: r.block, ordinal: ordinal[r.block] };
                ordinal[r.block] += 1;
                found += 1;
                open[r.block] = found;
            }
            Event::Free if resident == 0 => return refuse(RowFault::FreeWithoutMalloc),
            Event::Free => {
                blocks[resident - 1].end = step;
                open[r.block] = 0;
            }
            _ if resident == 0 => return refuse(RowFault::AccessWithoutMalloc),
            _ => {}
        }
    }
    Ok(needed)
}
