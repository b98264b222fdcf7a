//! What no placement can be below.
//!
//! Problem: a lower bound on the peak, which proves a placement optimal when it is reached. The max load
//! (the weighted clique number ω of the interval graph; Sekiyama et al. 2018; Zhang et al. 2019) is one.
//! Two things lift it:
//!
//! - Alignment. Let A be an alignment that all blocks share. The blocks of a clique lie one above the
//!   other; from the offset of each to the offset of the next it is at least its size, and a multiple of A.
//!   So all but the topmost take their size rounded up, and a clique takes at least its sizes rounded up,
//!   less the largest round-up among them, which the topmost may save.
//! - Pins. No placement ends below a pinned block.
//!
//! Cost: O(n log n + the sum of the blocks' lengths in cliques) time, 2 n words and 5 n indices.

use super::interval::{self, Sweep};
use crate::table::{at, count};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block};

/// Length of the workspace of [`lower_bound`] for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 2 * n, indices: 2 * n }.and(interval::workspace(n))
}

/// A lower bound on the peak of every placement, in bytes; at least the max load.
///
/// # Errors
/// Blocks that [`block::check`] refuses, or a workspace that is shorter than [`workspace`] says.
///
/// ```
/// use sublet_core::place::bound;
/// use sublet_core::{Block, Constraints, Workspace};
/// let blocks = [Block::new(0, 2, 3), Block::new(1, 3, 5)];
/// let len = bound::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut bound = |alignment| {
///     let constraints = Constraints { alignment, ..Constraints::NONE };
///     bound::lower_bound(&blocks, &constraints, Workspace::new(&mut words, &mut indices))
/// };
/// assert_eq!(bound(1)?, 8);
/// assert_eq!(bound(8)?, 11); // 5 at 0, 3 at 8
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn lower_bound(blocks: &[Block], constraints: &Constraints, mut scratch: Workspace<'_>) -> Result<u64, Error> {
    scratch.check(workspace(blocks.len()))?;
    let pinned = block::check(blocks, constraints.alignment)?;
    let n = blocks.len();
    let mut low = scratch.indices(n);
    let mut high = scratch.indices(n);
    let mut load = scratch.words(n);
    let mut saved = scratch.words(n);
    let cliques = Sweep::new(blocks, scratch)?.clique_ranges(&mut low, &mut high);
    let shared = blocks.iter().map(|b| b.alignment).min().unwrap_or(1).max(constraints.alignment);
    for b in 0..count(blocks) {
        let size = at(blocks, b).size;
        // `check` has made sure that sizes rounded up add up within 64 bits.
        let rounded = size.checked_next_multiple_of(shared).unwrap_or(size);
        for s in low[b]..high[b] {
            load[s] += rounded;
            saved[s] = saved[s].max(rounded - size);
        }
    }
    Ok((0..cliques).map(|s| load[s] - saved[s]).fold(pinned, u64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(blocks: &[Block], alignment: u64) -> u64 {
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        lower_bound(blocks, &Constraints { alignment, capacity: None }, Workspace::new(&mut words, &mut indices))
            .unwrap()
    }

    #[test]
    fn the_topmost_saves_the_largest_round_up() {
        let blocks = [Block::new(0, 2, 9), Block::new(0, 2, 15), Block::new(1, 2, 16), Block::new(4, 5, 30)];
        assert_eq!(bound(&blocks, 1), 40);
        assert_eq!(bound(&blocks, 16), 48 - 7);
        let aligned = blocks.map(|b| Block { alignment: 32, ..b });
        assert_eq!(bound(&aligned, 1), 96 - 23);
        assert_eq!(bound(&[aligned[0], blocks[1]], 8), 16 + 16 - 7);
    }

    #[test]
    fn pins_count_where_they_are() {
        assert_eq!(bound(&[Block { pin: Some(32), ..Block::new(0, 1, 1) }, Block::new(5, 6, 8)], 1), 33);
    }
}
