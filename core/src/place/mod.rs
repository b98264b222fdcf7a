//! Placement: an offset for every block, so that blocks that are alive together share no address.
//!
//! Every method has the same shape: blocks, options, workspace and offsets in, a [`Summary`] out. None of
//! them knows where the blocks come from, and what they return counts for nothing until
//! [`verify`](crate::verify::verify) has accepted it.
//!
//! [`place`] runs the method that a [`Solver`] names; [`Solver::Auto`] is the one to use.

pub mod auto;
pub mod best_fit;
pub mod coloring;
mod earliest_end;
mod gap;
pub mod greedy;
pub mod interval;
mod lifetime_tree;
mod load_tree;
pub mod multistart;
mod skyline;

pub use gap::Fit;
use greedy::Order;
use interval::Sweep;

use crate::error::Buffer;
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block};

/// What a placement is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Alignment and capacity.
    pub constraints: Constraints,
    /// Where the random choices of restarts begin; the same seed gives the same plan everywhere.
    pub seed: u64,
    /// How much a method that can go on may do, in blocks placed; the first attempt is always finished.
    pub work: u64,
}

impl Options {
    /// Enough for the optimum on most networks, in a fraction of a second.
    pub const DEFAULT_WORK: u64 = 150_000;
}

impl Default for Options {
    fn default() -> Self {
        Self { constraints: Constraints::NONE, seed: 1, work: Self::DEFAULT_WORK }
    }
}

/// What a placement has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The highest end of a block, in bytes.
    pub peak: u64,
    /// What no placement can be below, in bytes: the max load, the highest pinned end.
    pub lower_bound: u64,
    /// The method that made the placement; for a portfolio the member that won.
    pub solver: Solver,
}

/// A method of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Solver {
    /// [`auto`]: the portfolio of all others.
    Auto,
    /// [`multistart`]: the skyline from many starts.
    Multistart,
    /// [`best_fit`]: Sekiyama et al. 2018.
    BestFit,
    /// [`coloring`]: Zhang et al. 2019.
    Coloring(Fit),
    /// [`greedy`]: a fixed order.
    Greedy(Order, Fit),
}

impl Solver {
    /// Every method that [`Solver::Auto`] chooses from, in the order in which it does.
    pub const MEMBERS: [Self; 14] = [
        Self::Multistart,
        Self::BestFit,
        Self::Coloring(Fit::First),
        Self::Coloring(Fit::Best),
        Self::Greedy(Order::Size, Fit::First),
        Self::Greedy(Order::Size, Fit::Best),
        Self::Greedy(Order::SizeLifetime, Fit::First),
        Self::Greedy(Order::SizeLifetime, Fit::Best),
        Self::Greedy(Order::Area, Fit::First),
        Self::Greedy(Order::Area, Fit::Best),
        Self::Greedy(Order::Lifetime, Fit::First),
        Self::Greedy(Order::Lifetime, Fit::Best),
        Self::Greedy(Order::Start, Fit::First),
        Self::Greedy(Order::Start, Fit::Best),
    ];

    /// What people call it: lower case, words joined by dashes.
    ///
    /// ```
    /// use sublet_core::place::Solver;
    /// assert!(Solver::MEMBERS.iter().all(|&s| Solver::named(s.name()) == Some(s)));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Multistart => "multistart",
            Self::BestFit => "best-fit",
            Self::Coloring(Fit::First) => "coloring-first-fit",
            Self::Coloring(Fit::Best) => "coloring-best-fit",
            Self::Greedy(Order::Size, Fit::First) => "size-first-fit",
            Self::Greedy(Order::Size, Fit::Best) => "size-best-fit",
            Self::Greedy(Order::SizeLifetime, Fit::First) => "size-lifetime-first-fit",
            Self::Greedy(Order::SizeLifetime, Fit::Best) => "size-lifetime-best-fit",
            Self::Greedy(Order::Area, Fit::First) => "area-first-fit",
            Self::Greedy(Order::Area, Fit::Best) => "area-best-fit",
            Self::Greedy(Order::Lifetime, Fit::First) => "lifetime-first-fit",
            Self::Greedy(Order::Lifetime, Fit::Best) => "lifetime-best-fit",
            Self::Greedy(Order::Start, Fit::First) => "start-first-fit",
            Self::Greedy(Order::Start, Fit::Best) => "start-best-fit",
        }
    }

    /// The method of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        core::iter::once(Self::Auto).chain(Self::MEMBERS).find(|s| s.name() == name)
    }

    /// Whether its cost grows with the number of pairs that are alive together.
    const fn grows_with_pairs(self) -> bool {
        matches!(self, Self::Coloring(_) | Self::Greedy(..))
    }
}

/// Length of the workspace that [`place`] needs for `n` blocks, whatever the solver.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    auto::workspace(n)
}

/// Length of the workspace that a member of the portfolio needs.
const fn member_workspace(solver: Solver, n: usize) -> WorkspaceLen {
    match solver {
        Solver::Auto => auto::workspace(n),
        Solver::Multistart => multistart::workspace(n),
        Solver::BestFit => best_fit::workspace(n),
        Solver::Coloring(_) => coloring::workspace(n),
        Solver::Greedy(..) => greedy::workspace(n),
    }
}

/// Gives every block an offset by the method that `solver` names.
///
/// # Errors
/// What [`block::check`] refuses; [`Error::BufferTooSmall`] if there is not one offset for each block or the
/// workspace is too short; [`Error::OverCapacity`] if the peak is above the capacity, with the placement
/// that was found left in `offsets`.
///
/// ```
/// use sublet_core::place::{self, Options, Solver};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = place::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = place::place(Solver::Auto, &blocks, &Options::default(), scratch, &mut offsets)?;
/// assert_eq!((summary.peak, summary.lower_bound), (12, 12));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<Summary, Error> {
    match solver {
        Solver::Auto => auto::place(blocks, options, scratch, offsets),
        Solver::Multistart => multistart::place(blocks, options, scratch, offsets),
        Solver::BestFit => best_fit::place(blocks, options, scratch, offsets),
        Solver::Coloring(fit) => coloring::place(blocks, options, fit, scratch, offsets),
        Solver::Greedy(order, fit) => greedy::place(blocks, options, order, fit, scratch, offsets),
    }
}

/// What every placer does first: checks its arguments and finds the lower bound.
fn prepare(
    blocks: &[Block],
    options: &Options,
    needed: WorkspaceLen,
    scratch: &mut Workspace<'_>,
    offsets: &[u64],
) -> Result<u64, Error> {
    let pinned = block::check(blocks, options.constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(needed)?;
    Ok(Sweep::new(blocks, scratch.reborrow())?.max_load().max(pinned))
}

/// What every placer does last: compares the peak with the capacity.
fn finish(summary: Summary, options: &Options) -> Result<Summary, Error> {
    let Summary { peak, lower_bound, .. } = summary;
    match options.constraints.capacity {
        Some(capacity) if peak > capacity => Err(Error::OverCapacity { peak, lower_bound, capacity }),
        _ => Ok(summary),
    }
}

/// The next multiple of a power of two.
fn align_up(offset: u64, alignment: u64) -> u64 {
    offset.wrapping_add(alignment - 1) & !(alignment - 1)
}

#[cfg(test)]
mod tests;
