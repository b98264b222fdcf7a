//! Places blocks by weighted interval colouring, as published.
//!
//! Zhang et al. 2019, section 4.1 (SmartPool): blocks are placed one after the other, the largest first; of equal
//! sizes, the one that begins first; of equal starts too, the one of smaller index. The neighbours of a block are the
//! placed blocks that are alive with it. Each block takes a range of addresses ("a colour") that none of its neighbours
//! has: the lowest or the smallest *hole* (free addresses below a neighbour) that is large enough, else the range on
//! top. The published code never looks at the hole below the first neighbour when there are two or more; here that hole
//! counts like every other. Pinned blocks, which the paper does not have, come before all others.
//!
//! [`place_backward`] does the same with time reversed: of equal sizes, the block that ends last comes first. This is
//! not from the paper.
//!
//! Cost: that of [`greedy`], which does the work.

use super::gap::Fit;
use super::{Options, Solver, Summary, greedy};
use crate::{Block, Error, Workspace, WorkspaceLen};

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    greedy::workspace(n)
}

/// Gives every block an offset by weighted interval colouring: places the blocks from the largest to the smallest, each
/// into free addresses between the placed blocks that are alive with it; `fit` says into which.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than that for this solver; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use sublet_core::place::{coloring, Fit, Options};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = coloring::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// coloring::place(&blocks, &Options::default(), Fit::Best, scratch, &mut offsets)?;
/// assert_eq!(offsets, [8, 0, 8]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    options: &Options,
    fit: Fit,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    greedy::place_by(Solver::Coloring(fit), blocks, options, &[greedy::start, greedy::size], fit, scratch, offsets)
}

/// Gives every block an offset as [`place`] does, but goes backward in time: of equal sizes, the block that ends last
/// comes first. Each block takes the lowest hole that is large enough. Which of the two directions leads to the lower
/// peak depends on the blocks; the two peaks can differ by a tenth.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than that for this solver; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
pub fn place_backward(
    blocks: &[Block],
    options: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    let keys = [greedy::end, greedy::size];
    greedy::place_by(Solver::ColoringBackward, blocks, options, &keys, Fit::First, scratch, offsets)
}
