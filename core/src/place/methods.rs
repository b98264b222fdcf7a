//! The table of methods: by solver, the memory that it needs and what runs. The ways in from outside.

use core::ops::ControlFlow;

use super::interval::Sweep;
use super::multistart::Starts;
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, finish, prepare, tell};
use super::{auto, beam, best_fit, by_order, ejection, multistart, portfolio, search};
use crate::{Block, Error, Workspace, WorkspaceLen};

/// Length of the workspace that [`place`] needs for `n` blocks. The length is linear in n, except that
/// [`Solver::Search`], and [`Solver::Auto`] with at most 6,000 blocks, also need a table of n²/64
/// words.
#[must_use]
pub const fn workspace_of(solver: Solver, n: usize) -> WorkspaceLen {
    let method = match solver {
        Solver::Auto => auto::workspace(n),
        Solver::Portfolio => portfolio::workspace(n),
        Solver::Search => search::workspace(n),
        Solver::Beam => beam::workspace(n),
        Solver::Ejection => ejection::workspace(n),
        Solver::Multistart => multistart::workspace(n),
        Solver::BestFit => best_fit::workspace(n),
        Solver::Coloring(_) | Solver::ColoringBackward | Solver::Greedy(..) => by_order::workspace(n),
    };
    Sweep::workspace(n).and(method)
}

/// Length of the workspace that [`place`] needs for any number of blocks up to `n`. With [`Solver::Auto`], this may be
/// more than [`workspace_of`] says for `n`: with at most 6,000 blocks, the exact search runs too, and
/// may need more than the other methods need for `n` blocks.
#[must_use]
pub const fn workspace_up_to(solver: Solver, n: usize) -> WorkspaceLen {
    let searched = if n < search::MOST_BLOCKS { n } else { search::MOST_BLOCKS };
    workspace_of(solver, n).max(workspace_of(solver, searched))
}

/// Gives every block an offset by the method that `solver` names.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks that are alive
/// together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or the workspace is
/// shorter than [`workspace_of`] says; [`Error::OverCapacity`] if the peak is above the capacity: the plan found is
/// left in `offsets`.
///
/// ```
/// use sublet_core::place::{self, Options, Solver};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = place::workspace_of(Solver::Auto, blocks.len());
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
    place_watched(solver, blocks, options, scratch, offsets, &mut |_| ControlFlow::Continue(()))
}

/// Gives every block an offset by the method that `solver` names, and tells `watch` the result so far: after
/// improvements, and in between to report progress. The last improvement may be told by the returned summary alone. If
/// `watch` returns `ControlFlow::Break`, the method ends with its best result. Methods that make only one plan do not
/// call `watch`.
///
/// # Errors
/// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks that are alive
/// together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or the workspace is
/// shorter than [`workspace_of`] says; [`Error::OverCapacity`] if the peak is above the capacity: the plan found is
/// left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{self, Options, Solver};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4)];
/// let len = place::workspace_of(Solver::Auto, blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let mut told = 0;
/// let mut watch = |_: &_| {
///     told += 1;
///     ControlFlow::Continue(())
/// };
/// let scratch = Workspace::new(&mut words, &mut indices);
/// place::place_watched(Solver::Auto, &blocks, &Options::default(), scratch, &mut offsets, &mut watch)?;
/// assert!(told > 0);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place_watched(
    solver: Solver,
    blocks: &[Block],
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let mut scratch = scratch.reborrow();
    let problem = &prepare(blocks, options, workspace_of(solver, blocks.len()), &mut scratch, offsets)?;
    let summary = match solver {
        Solver::Auto => auto::place(problem, options, scratch, offsets, watch),
        Solver::Portfolio => portfolio::place(problem, options, None, scratch, offsets, watch),
        Solver::Search => search::improve(problem, options, None, scratch, offsets, watch),
        Solver::Beam => from_one(problem, options, scratch, offsets, watch, |best, scratch, offsets, watch| {
            beam::improve(problem, options, best, 0, scratch, offsets, watch)
        }),
        Solver::Ejection => from_one(problem, options, scratch, offsets, watch, |best, scratch, offsets, watch| {
            ejection::improve(problem, options, best, scratch, offsets, watch)
        }),
        Solver::Multistart => multistart::place(problem, options, Starts::Fixed, scratch, offsets, watch),
        Solver::BestFit => best_fit::place(problem, options, scratch, offsets),
        Solver::Coloring(_) | Solver::ColoringBackward | Solver::Greedy(..) => {
            by_order::place(solver, problem, options, scratch, offsets)
        }
    };
    finish(summary, options)
}

/// Builds one plan, and improves it.
fn from_one(
    problem: &Problem<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
    improve: impl FnOnce(Summary, Workspace<'_>, &mut [u64], Watch<'_>) -> Summary,
) -> Summary {
    let once = Options { work: 0, ..*options };
    let mut stopped = false;
    let mut tell = |now: &Summary| tell(watch, now, &mut stopped);
    let built = multistart::place(problem, &once, Starts::Fixed, scratch.reborrow(), offsets, &mut tell);
    if stopped { built } else { improve(built, scratch, offsets, watch) }
}
