//! A lower bound on the peak of all placements. A placement whose peak reaches the bound is proved optimal.
//!
//! The max load, the most bytes that are alive at one step, is such a bound: the weighted clique number ω of the
//! interval graph (Sekiyama et al. 2018; Zhang et al. 2019). Two things raise it:
//!
//! - Alignment. Let A be an alignment that all blocks share. The blocks of a clique, which are all alive at one step,
//!   lie one above the other. The distance from one offset to the next is a multiple of A, and at least the size of the
//!   lower block. So each block but the topmost takes its size rounded up to A. The bytes that rounding adds to a
//!   block's size are its *round-up*; only the topmost block needs none. The bound is the sum of the rounded sizes,
//!   less the largest round-up.
//! - Pins. No placement has a peak below the end of a pinned block.
//!
//! The exact search raises the bound further where it finds no placement in a window of time (`search/window.rs`).
//!
//! The load of each clique is summed from the sizes of the blocks that begin and end there. To find the largest
//! round-up of each clique, blocks are taken in the order of their round-ups, the largest first. A block's round-up is
//! subtracted from those cliques of its lifetime from which none was subtracted before.
//!
//! Cost for n blocks: O(n log n) time, 2 n words and 8 n indices.

use super::interval::Sweep;
use crate::table::{Table, at, count};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace of [`lower_bound`] for `n` blocks.
#[must_use]
pub const fn lower_bound_workspace(n: usize) -> WorkspaceLen {
    raised_workspace(n).and(Sweep::workspace(n))
}

/// A lower bound on the peak of every placement, in bytes: at least the most bytes alive at one step.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::BufferTooSmall`] if the workspace is shorter than
/// [`lower_bound_workspace`] says.
///
/// ```
/// use sublet_core::place;
/// use sublet_core::{Block, Constraints, Workspace};
/// let blocks = [Block::new(0, 2, 3), Block::new(1, 3, 5)];
/// let len = place::lower_bound_workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut bound = |alignment| {
///     let constraints = Constraints { alignment, ..Constraints::NONE };
///     place::lower_bound(&blocks, &constraints, Workspace::new(&mut words, &mut indices))
/// };
/// assert_eq!(bound(1)?, 8);
/// assert_eq!(bound(8)?, 11); // 5 at 0, 3 at 8
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn lower_bound(blocks: &[Block], constraints: &Constraints, mut scratch: Workspace<'_>) -> Result<u64, Error> {
    scratch.check(lower_bound_workspace(blocks.len()))?;
    let pinned = block::check(blocks, constraints.alignment)?;
    let sweep = Sweep::new(blocks, scratch.split(Sweep::workspace(blocks.len())))?;
    Ok(pinned.max(raised(blocks, &sweep, constraints, scratch)))
}

pub(super) const fn raised_workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 2 * n, indices: 5 * n }
}

/// Without what pins add.
pub(super) fn raised(
    blocks: &[Block],
    sweep: &Sweep<'_>,
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
) -> u64 {
    let n = blocks.len();
    let mut low = scratch.indices(n);
    let mut high = scratch.indices(n);
    let cliques = sweep.clique_ranges(&mut low, &mut high);
    let shared = blocks.iter().map(|b| b.alignment).min().unwrap_or(1).max(constraints.alignment);
    // `check` has made sure that sizes rounded up add up within 64 bits.
    let rounded = |size: u64| size.checked_next_multiple_of(shared).unwrap_or(size);
    let saving = |b: u32| rounded(at(blocks, b).size) - at(blocks, b).size;

    let mut begins = scratch.words(n);
    let mut ends = scratch.words(n);
    for b in 0..count(blocks) {
        begins[low[b]] += rounded(at(blocks, b).size);
        ends[high[b] - 1] += rounded(at(blocks, b).size);
    }
    let (mut load, mut before) = (begins, 0);
    for s in 0..cliques {
        load[s] += before;
        before = load[s] - ends[s];
    }

    let mut order = scratch.indices(n);
    let mut aside = scratch.indices(n);
    sort::identity(&mut order, count(blocks));
    sort::by_key(&mut order, count(blocks), &mut aside, |b| !saving(b));
    // `bare`, by clique: its own number, as long as no round-up was subtracted from its load. After that, the number of
    // a later clique; all cliques between the two have had a round-up subtracted.
    let mut bare = scratch.indices(n);
    sort::identity(&mut bare, cliques);
    for i in 0..count(blocks) {
        let b = order[i];
        let mut s = first_bare(&mut bare, low[b], cliques);
        while s < high[b] {
            load[s] -= saving(b);
            bare[s] = s + 1;
            s = first_bare(&mut bare, s, cliques);
        }
    }
    (0..cliques).map(|s| load[s]).max().unwrap_or(0)
}

/// `bare[c]` is c while c is bare, else a later clique; the entries move ahead, so that later calls are short.
fn first_bare(bare: &mut Table<'_, u32>, mut s: u32, cliques: u32) -> u32 {
    while s < cliques && bare[s] != s {
        let next = bare[s];
        if next < cliques {
            bare[s] = bare[next];
        }
        s = next;
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn bound(blocks: &[Block], alignment: u64) -> u64 {
        let len = lower_bound_workspace(blocks.len());
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

    proptest! {
        #[test]
        fn is_the_largest_clique_rounded_up_less_its_largest_round_up(
            rows in prop::collection::vec((0u32..20, 1u32..9, 1u64..70), 1..20),
            log in 0u32..6,
        ) {
            let blocks: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size)).collect();
            let at_step = |t: u32| {
                let alive = blocks.iter().filter(|b| b.start <= t && t < b.end);
                let rounded = |b: &Block| b.size.next_multiple_of(1 << log);
                let sum: u64 = alive.clone().map(rounded).sum();
                sum - alive.map(|b| rounded(b) - b.size).max().unwrap_or(0)
            };
            prop_assert_eq!(bound(&blocks, 1 << log), (0..30).map(at_step).max().unwrap());
        }
    }

    #[test]
    fn pins_count_where_they_are() {
        assert_eq!(bound(&[Block { pin: Some(32), ..Block::new(0, 1, 1) }, Block::new(5, 6, 8)], 1), 33);
    }
}
