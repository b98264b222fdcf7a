//! Places one block after the other, in a fixed order, each into a hole: free addresses between the placed blocks that
//! are alive with it.
//!
//! The planners of TensorFlow Lite, ExecuTorch and TVM are of this kind. The orders: size, area (size times lifetime),
//! lifetime, each largest first; start, earliest first; size and then lifetime. Blocks that are equal in the order go
//! by larger size, earlier start, longer lifetime, smaller index. Pinned blocks come before all others.
//!
//! Cost: O(|E| log n) time for n blocks, of which |E| pairs are alive together; linear memory. [`Fit`] says which hole
//! a block takes.

use super::gap::{Fit, Gaps};
use super::interval::Sweep;
use super::{Options, Solver, Summary, finish, interval, prepare};
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, sort};

/// The order in which blocks are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Largest size first.
    Size,
    /// Largest size times lifetime (bytes times steps) first.
    Area,
    /// Longest lifetime first.
    Lifetime,
    /// Earliest begin of the lifetime first.
    Start,
    /// Largest size first; of equal sizes, the longest lifetime first.
    SizeLifetime,
}

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    Gaps::workspace(n).and(interval::workspace(n)).and(WorkspaceLen { words: 0, indices: 2 * n })
}

/// Places the blocks in `order`, each into free addresses between the placed blocks that are alive with it; `fit` says
/// into which. O(|E| log n) for n blocks, of which |E| pairs are alive together.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than [`workspace`] says; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use sublet_core::place::greedy::{self, Order};
/// use sublet_core::place::{Fit, Options};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = greedy::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// greedy::place(&blocks, &Options::default(), Order::Size, Fit::First, scratch, &mut offsets)?;
/// assert_eq!(offsets, [8, 0, 8]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    options: &Options,
    order: Order,
    fit: Fit,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    // The keys of the order, the least important first.
    let keys: [fn(&Block) -> u64; 5] = match order {
        Order::Size => [lifetime, start, start, size, size],
        Order::Area => [lifetime, start, size, area, area],
        Order::Lifetime => [start, start, size, lifetime, lifetime],
        Order::Start => [lifetime, lifetime, size, start, start],
        Order::SizeLifetime => [start, start, lifetime, size, size],
    };
    place_by(Solver::Greedy(order, fit), blocks, options, &keys, fit, scratch, offsets)
}

/// The last key counts most; of blocks equal in all keys, the smaller index comes first.
pub(super) fn place_by(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    keys: &[fn(&Block) -> u64],
    fit: Fit,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    let lower_bound = prepare(blocks, options, workspace(blocks.len()), &mut scratch, offsets)?;
    let mut scratch = scratch.reborrow();
    let n = count(blocks);
    let sweep = Sweep::new(blocks, scratch.split(interval::workspace(blocks.len())))?;
    let mut order = scratch.indices(blocks.len());
    let mut aside = scratch.indices(blocks.len());
    sort::identity(&mut order, n);
    sort_by(blocks, keys, &mut order, n, &mut aside);
    // Placed blocks alive with a block, on average. Sorting k takes as long as passing 5 k log₂ k: above n it is
    // slower.
    let neighbours = sweep.colliding_pair_count() / u64::from(n).max(1);
    let dense = 5 * neighbours * u64::from(neighbours.checked_ilog2().unwrap_or(0)) > u64::from(n);
    let mut gaps = Gaps::new(blocks, options.constraints.alignment, &mut scratch, dense, |low, high| {
        sweep.clique_ranges(low, high)
    });
    let peak = gaps.build(order.first(n), fit, &mut Table::new(offsets));
    finish(Summary { peak, lower_bound, solver, nodes: 0 }, options)
}

pub(super) fn sort_by(
    blocks: &[Block],
    keys: &[fn(&Block) -> u64],
    order: &mut Table<'_, u32>,
    n: u32,
    scratch: &mut Table<'_, u32>,
) {
    for key in keys {
        sort::by_key(order, n, scratch, |i| key(&at(blocks, i)));
    }
}

pub(super) fn size(b: &Block) -> u64 {
    !b.size
}

pub(super) fn start(b: &Block) -> u64 {
    b.start.into()
}

pub(super) fn end(b: &Block) -> u64 {
    !u64::from(b.end)
}

pub(super) fn lifetime(b: &Block) -> u64 {
    !u64::from(b.width())
}

pub(super) fn area(b: &Block) -> u64 {
    !b.size.saturating_mul(b.width().into())
}
