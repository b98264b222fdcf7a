//! Places one block after the other, in a fixed order, each into a hole: free addresses between the placed blocks that
//! are alive with it.
//!
//! The planners of TensorFlow Lite, ExecuTorch and TVM are of this kind. The orders: size, area (size times lifetime),
//! lifetime, each largest first; start, earliest first; size and then lifetime. Blocks that are equal in the order go
//! by larger size, earlier start, longer lifetime, smaller index. Pinned blocks come before all others.
//!
//! Weighted interval colouring (Zhang et al. 2019, section 4.1, `SmartPool`) is of this kind too: the largest block first, then
//! the one that begins first. The published code never looks at the hole below the first neighbour when there are two or
//! more; here that hole counts like every other. Backward in time, the one that ends last comes first.
//!
//! Cost: O(|E| log n) time for n blocks, of which |E| pairs are alive together; linear memory. [`Fit`] says which hole
//! a block takes.

use super::gap::{Fit, Gaps};
use super::solver::{Options, Order, Solver, Summary};
use super::support::Problem;
use crate::table::{Table, at, count};
use crate::{Block, Workspace, WorkspaceLen, sort};

type Key = fn(&Block) -> u64;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    Gaps::workspace(n).and(WorkspaceLen { words: 0, indices: 2 * n })
}

/// The keys of the order, the least important first; of blocks equal in all, the smaller index comes first.
fn sequence(solver: Solver) -> ([Key; 4], Fit) {
    match solver {
        Solver::Coloring(fit) => ([start, start, size, size], fit),
        Solver::ColoringBackward => ([end, end, size, size], Fit::First),
        Solver::Greedy(Order::Area, fit) => ([lifetime, start, size, area], fit),
        Solver::Greedy(Order::Lifetime, fit) => ([start, start, size, lifetime], fit),
        Solver::Greedy(Order::Start, fit) => ([lifetime, lifetime, size, start], fit),
        Solver::Greedy(Order::SizeLifetime, fit) => ([start, start, lifetime, size], fit),
        Solver::Greedy(Order::Size, fit) => ([lifetime, start, size, size], fit),
        _ => ([lifetime, start, size, size], Fit::First),
    }
}

pub(super) fn place(
    solver: Solver,
    problem: &Problem<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Summary {
    let &Problem { blocks, sweep, lower_bound, .. } = problem;
    let (keys, fit) = sequence(solver);
    let mut scratch = scratch.reborrow();
    let n = count(blocks);
    let mut order = scratch.indices(blocks.len());
    let mut aside = scratch.indices(blocks.len());
    sort::identity(&mut order, n);
    for key in keys {
        sort::by_key(&mut order, n, &mut aside, |i| key(&at(blocks, i)));
    }
    // Placed blocks alive with a block, on average. Sorting k takes as long as passing 5 k log₂ k: above n it is
    // slower.
    let neighbours = sweep.colliding_pair_count() / u64::from(n).max(1);
    let dense = 5 * neighbours * u64::from(neighbours.checked_ilog2().unwrap_or(0)) > u64::from(n);
    let mut gaps = Gaps::new(blocks, options.constraints.alignment, &mut scratch, dense, |low, high| {
        sweep.clique_ranges(low, high)
    });
    let peak = gaps.build(order.first(n), fit, &mut Table::new(offsets));
    Summary { peak, lower_bound, solver, nodes: 0 }
}

fn size(b: &Block) -> u64 {
    !b.size
}

fn start(b: &Block) -> u64 {
    b.start.into()
}

fn end(b: &Block) -> u64 {
    !u64::from(b.end)
}

fn lifetime(b: &Block) -> u64 {
    !u64::from(b.width())
}

fn area(b: &Block) -> u64 {
    !b.size.saturating_mul(b.width().into())
}
