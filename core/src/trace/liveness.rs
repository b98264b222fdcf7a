//! Finds how long each allocation of a trace lives, so that each can be placed as a block with a lifetime.
//!
//! The lifetime of a block is `[row of its malloc, row of its free)`; a block that is never freed ends one past the
//! last row. In a trace that was rewritten to save memory, a block may be allocated again after its free. It then has
//! several residencies (live ranges), and each is placed as a block of its own. Cost: one pass over the rows; scratch
//! memory of one `u64` and two `u32`s for each block of the trace.
//!
//! Where an operator writes its output over an input, both use the same memory, one after the other. [`merge`] makes
//! one block of residencies that share memory in this way. [`spread`] then gives the offset of this block to each of
//! them.

use super::recorded::Running;
use super::{Event, Row};
use crate::error::{Buffer, RowFault};
use crate::id::{Id, ids};
use crate::table::{Records, Table};
use crate::{Block, Error, Workspace, WorkspaceLen, block};

/// One live range of a block of a trace: from a malloc of the block to its next free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Residency {
    /// The number of the block in the trace.
    pub block: u32,
    /// Which of the block's live ranges this is: 0 for the first, 1 for the next, … A block that is allocated again
    /// after its free has several.
    pub ordinal: u32,
}

/// Length of the workspace for [`lifetimes`], which finds the live ranges of blocks. `blocks` is how many block numbers
/// the trace has.
#[must_use]
pub const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: blocks, indices: 2 * blocks }
}

/// How many live ranges of blocks a trace has: as many as mallocs. The outputs of [`lifetimes`] must have at least this
/// length.
#[must_use]
pub fn residencies(rows: &[Row]) -> usize {
    rows.iter().filter(|r| r.event == Event::Malloc).count()
}

/// Finds the residencies of a trace: the live ranges of its blocks, each from a malloc to the block's next free. Writes
/// the lifetime of each residency to `blocks`, in the order of the mallocs. Writes to `names`, in the same order, the
/// number of the block and which of the block's live ranges it is. Returns how many residencies there are. The rows use
/// block numbers below `block_count`. O(rows).
///
/// # Errors
/// [`Error::Row`] for the first row that cannot follow the rows before it: time going backwards, a malloc of a live
/// block, of 0 bytes or with another size than the block had before, a free, access or copy of a block that is not
/// allocated, a block number that is not below `block_count`; also for 2³² or more rows; [`Error::TooManyBlocks`] for a
/// `block_count` of 2²⁸ or more; [`Error::BufferTooSmall`] if an output or the workspace is too short.
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
    scratch: Workspace<'_>,
    blocks: &mut [Block],
    names: &mut [Residency],
) -> Result<usize, Error> {
    let needed = residencies(rows);
    let shorter = blocks.len().min(names.len());
    block::check_count(block_count)?;
    if shorter < needed {
        return Err(Error::BufferTooSmall { buffer: Buffer::Blocks, needed, got: shorter });
    }
    let end = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let (mut blocks, mut names) = (Table::new(blocks), Table::new(names));
    follow(rows, block_count, scratch, |step, r, residency, ordinal| match r.event {
        Event::Malloc => {
            blocks[residency] = Block::new(step, end, r.bytes);
            names[residency] = Residency { block: r.block, ordinal };
        }
        Event::Free => blocks[residency].end = step,
        _ => {}
    })?;
    Ok(needed)
}

pub(crate) const fn of_rows_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: rows }.and(workspace(blocks))
}

ids! {
    pub(crate) struct ResidencyId;
}

pub(crate) fn of_rows<'a>(
    rows: &[Row],
    block_count: usize,
    scratch: &mut Workspace<'a>,
) -> Result<Records<'a, ResidencyId>, Error> {
    let mut of = Records::lend(rows.len(), scratch);
    let follows = scratch.split(workspace(block_count));
    follow(rows, block_count, follows, |step, _, residency, _| of.set(step, ResidencyId::of(residency)))?;
    Ok(of)
}

fn follow(
    rows: &[Row],
    block_count: usize,
    mut scratch: Workspace<'_>,
    mut each: impl FnMut(u32, &Row, u32, u32),
) -> Result<(), Error> {
    if u32::try_from(rows.len()).is_err() {
        return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
    }
    scratch.check(workspace(block_count))?;
    // For each block of the trace: its size.
    let mut size = scratch.words(block_count);
    // For each block of the trace: how many residencies it has had.
    let mut ordinal = scratch.indices(block_count);
    let mut open = scratch.indices(block_count);
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
                each(step, r, found, ordinal[r.block]);
                ordinal[r.block] += 1;
                found += 1;
                open[r.block] = found;
            }
            Event::Free if resident == 0 => return refuse(RowFault::FreeWithoutMalloc),
            _ if resident == 0 => return refuse(RowFault::AccessWithoutMalloc),
            _ => {
                each(step, r, resident - 1, ordinal[r.block] - 1);
                if r.event == Event::Free {
                    open[r.block] = 0;
                }
            }
        }
    }
    Ok(())
}

/// Length of the workspace for [`merge`], which merges live ranges that share memory. `blocks` is how many block
/// numbers the trace has.
#[must_use]
pub const fn merge_workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: blocks }
}

/// Merges residencies, live ranges of blocks, that share memory because an operator writes its output over an input:
/// both become one block for placement. The rows of such an operator show it: between two of its accesses, the free of
/// one block is directly followed by the malloc of another of the same size. A residency that shares no memory stays a
/// block of its own, and counts as a merged block too. Before the call, `blocks` holds the residencies that
/// [`lifetimes`] wrote for these rows. After it, the merged blocks are the first elements of `blocks`, in the order in
/// which they begin, and `part_of` has for each residency the index of its merged block. Returns how many merged blocks
/// there are. O(rows).
///
/// # Errors
/// [`Error::Row`] for a block number that is not below `block_count`; [`Error::BufferTooSmall`] if `blocks`, `part_of`
/// or the workspace is too short.
///
/// ```
/// use sublet_core::trace::{liveness, Event, Op, Row};
/// use sublet_core::{Block, Workspace};
/// let row = |event, block| Row { event, block, bytes: if event == Event::Malloc { 8 } else { 0 }, op: Op::First(0), time_ns: 0 };
/// let rows = [
///     row(Event::Malloc, 0), row(Event::Read, 0), row(Event::Free, 0), row(Event::Malloc, 1), row(Event::Write, 1),
/// ];
/// let (mut blocks, mut names) = (vec![Block::default(); 2], vec![Default::default(); 2]);
/// let (mut words, mut indices) = (vec![0; 2], vec![0; 4]);
/// liveness::lifetimes(&rows, 2, Workspace::new(&mut words, &mut indices), &mut blocks, &mut names)?;
/// let mut part_of = vec![0; 2];
/// let n = liveness::merge(&rows, 2, Workspace::new(&mut words, &mut indices), &mut blocks, &mut part_of)?;
/// assert_eq!((&blocks[..n], &part_of[..]), (&[Block::new(0, 5, 8)][..], &[0, 0][..]));
/// // The placement gave the merged block an offset.
/// let mut offsets = [64, 0];
/// liveness::spread(&part_of, &mut offsets);
/// assert_eq!(offsets, [64, 64]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn merge(
    rows: &[Row],
    block_count: usize,
    mut scratch: Workspace<'_>,
    blocks: &mut [Block],
    part_of: &mut [u32],
) -> Result<usize, Error> {
    let needed = residencies(rows);
    let shorter = blocks.len().min(part_of.len());
    if shorter < needed {
        return Err(Error::BufferTooSmall { buffer: Buffer::Blocks, needed, got: shorter });
    }
    scratch.check(merge_workspace(block_count))?;
    // For each block of the trace: 1 + its residency that has not ended; 0 if there is none.
    let mut open = scratch.indices(block_count);
    let (mut blocks, mut part_of) = (Table::new(blocks), Table::new(part_of));
    let (mut found, mut merged) = (0, 0);
    let mut running = Running::default();
    // 1 + the residency that the previous row freed, if that row lies between two accesses of the running operator; 0
    // otherwise.
    let mut giver = 0u32;
    for (step, r) in (0u32..).zip(rows) {
        if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
            return Err(Error::Row { row: step, fault: RowFault::UnknownBlock });
        }
        running.go_to(rows, step);
        let freed = core::mem::take(&mut giver);
        match r.event {
            Event::Malloc => {
                let residency = blocks[found];
                let chain = freed.checked_sub(1).map(|giver| part_of[giver]);
                if let Some(chain) = chain.filter(|&chain| blocks[chain].size == residency.size) {
                    blocks[chain].end = residency.end;
                    part_of[found] = chain;
                } else {
                    blocks[merged] = residency;
                    part_of[found] = merged;
                    merged += 1;
                }
                found += 1;
                open[r.block] = found;
            }
            Event::Free if step < running.end => giver = core::mem::take(&mut open[r.block]),
            Event::Free => open[r.block] = 0,
            _ => {}
        }
    }
    Ok(usize::try_from(merged).unwrap_or(usize::MAX))
}

/// Gives each live range of a block the offset, in bytes, of its merged block. `part_of` is what [`merge`] wrote: for
/// each live range, the index of its merged block. Before the call `offsets` begins with the offsets of the merged
/// blocks; afterwards it holds the offset of each live range.
pub fn spread(part_of: &[u32], offsets: &mut [u64]) {
    // The index of a merged block is not larger than that of any of its residencies. So from the last residency to the
    // first, no offset is overwritten before it is read.
    for residency in (0..part_of.len().min(offsets.len())).rev() {
        let chain = part_of.get(residency).and_then(|&chain| usize::try_from(chain).ok());
        let of = chain.and_then(|chain| offsets.get(chain).copied());
        if let (Some(of), Some(offset)) = (of, offsets.get_mut(residency)) {
            *offset = of;
        }
    }
}
