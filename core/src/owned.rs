//! The functions of this crate in a form for programs that have an allocator. They need the feature `alloc`.
//!
//! Each function here allocates the workspace that it needs, and returns its results in vectors.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::ControlFlow;

use crate::place::{self, Options, Solver, Summary};
use crate::rewrite::fit::{self, Fitted, Lengths, Output};
use crate::simulate::{Run, Timing};
use crate::trace::Graph;
use crate::trace::liveness::{self, Residency};
use crate::trace::{Recorded, Row};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, verify};

/// Scratch memory for one call of a function that takes a [`Workspace`], allocated in vectors.
#[derive(Debug, Default)]
pub struct Scratch {
    words: Vec<u64>,
    indices: Vec<u32>,
}

impl Scratch {
    /// Allocates scratch memory of a length that a `workspace` function has returned.
    #[must_use]
    pub fn of(len: WorkspaceLen) -> Self {
        Self { words: vec![0; len.words], indices: vec![0; len.indices] }
    }

    /// The scratch memory as a [`Workspace`], to be given to one call. Afterwards it may be lent again.
    pub fn lend(&mut self) -> Workspace<'_> {
        Workspace::new(&mut self.words, &mut self.indices)
    }
}

/// A verified plan: the offset of each block, and how good the plan is. It owns its memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// For each block, in the order in which the blocks were given: its offset, in bytes from the start of the arena.
    pub offsets: Vec<u64>,
    /// The highest end of a block, in bytes.
    pub peak: u64,
    /// The most bytes that are alive at one step.
    pub max_load: u64,
    /// No plan has a lower peak than this, in bytes; at least `max_load`.
    pub lower_bound: u64,
    /// The placement method that made the plan.
    pub solver: Solver,
}

impl Plan {
    /// Whether the peak equals the lower bound, so that no plan has a lower peak.
    #[must_use]
    pub const fn is_optimal(&self) -> bool {
        self.peak == self.lower_bound
    }
}

/// Gives each block an offset by the method `solver`, and proves that the plan is valid. How long it takes and how low
/// the peak is depend on the method.
///
/// # Errors
/// An error if a block breaks a rule, pinned blocks share an address, or the peak is above the capacity: those of
/// [`place::place`].
///
/// ```
/// use sublet_core::place::{Options, Solver};
/// use sublet_core::{Block, owned};
/// let blocks = [Block::new(0, 2, 4096), Block::new(1, 3, 8192), Block::new(2, 4, 4096)];
/// let plan = owned::plan(&blocks, Solver::Auto, &Options::default())?;
/// assert!(plan.is_optimal());
/// assert_eq!(plan.peak, 12_288);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn plan(blocks: &[Block], solver: Solver, options: &Options) -> Result<Plan, Error> {
    plan_watched(blocks, solver, options, &mut |_| ControlFlow::Continue(()))
}

/// Gives each block an offset by the method `solver`, proves that the plan is valid, and reports progress to `watch`
/// meanwhile. If `watch` ends the work, the result is the best plan found until then.
///
/// # Errors
/// An error if a block breaks a rule, pinned blocks share an address, or the peak is above the capacity: those of
/// [`plan`].
pub fn plan_watched(
    blocks: &[Block],
    solver: Solver,
    options: &Options,
    watch: place::Watch<'_>,
) -> Result<Plan, Error> {
    let n = blocks.len();
    let mut scratch = Scratch::of(place::workspace_of(solver, n).max(verify::workspace(n)));
    let mut offsets = vec![0; n];
    let Summary { lower_bound, solver, .. } =
        place::place_watched(solver, blocks, options, scratch.lend(), &mut offsets, watch)?;
    let (peak, max_load) = proved(blocks, &offsets, &options.constraints, scratch)?;
    Ok(Plan { offsets, peak, max_load, lower_bound: lower_bound.max(max_load), solver })
}

/// Proves that `offsets` is a valid plan for `blocks`; returns its peak and its max load, in bytes. O(n log n).
///
/// # Errors
/// [`Error::Invalid`] with the constraint that the plan breaks; [`Error::BufferTooSmall`] if there is not one offset
/// for each block; an error of [`check_blocks`](crate::check_blocks) for blocks that cannot be planned.
pub fn verify(blocks: &[Block], offsets: &[u64], constraints: &Constraints) -> Result<(u64, u64), Error> {
    proved(blocks, offsets, constraints, Scratch::of(verify::workspace(blocks.len())))
}

fn proved(
    blocks: &[Block],
    offsets: &[u64],
    constraints: &Constraints,
    mut scratch: Scratch,
) -> Result<(u64, u64), Error> {
    verify::verify(blocks, offsets, constraints, scratch.lend()).map(|plan| (plan.peak(), plan.max_load()))
}

/// Finds the residencies of a trace: the live ranges of its blocks on the device. A block that is freed and allocated
/// again has several. The first vector holds the residencies as blocks to place. The second names each of them, in the
/// same order: by its block in the trace, and by its number among the residencies of that block, counted from 0. Cost:
/// O(rows + `block_count`).
///
/// # Errors
/// [`Error::Row`] for the first row that cannot follow the rows before it, such as a free of a block that is not
/// allocated, or whose block number is not below `block_count`, and for 2³² or more rows; [`Error::TooManyBlocks`] if
/// `block_count` is 2²⁸ or more.
pub fn lifetimes(rows: &[Row], block_count: usize) -> Result<(Vec<Block>, Vec<Residency>), Error> {
    let n = liveness::residencies(rows);
    let (mut blocks, mut residencies) = (vec![Block::default(); n], vec![Residency::default(); n]);
    let mut scratch = Scratch::of(liveness::workspace(block_count));
    liveness::lifetimes(rows, block_count, scratch.lend(), &mut blocks, &mut residencies)?;
    Ok((blocks, residencies))
}

/// Makes the trace of one iteration of a static graph: its mallocs, frees, reads and writes, with the operators in
/// topological order.
///
/// # Errors
/// An error for a graph that cannot be run: [`Error::UnknownTensor`] if an operator uses a tensor that does not exist,
/// [`Error::TwoWriters`] if a tensor is written twice, [`Error::Cycle`] if operators depend on each other in a cycle.
/// The others are listed at [`Graph::rows`].
pub fn rows(graph: &Graph<'_>) -> Result<Vec<Row>, Error> {
    let mut scratch = Scratch::of(Graph::workspace(graph.tensors.len(), graph.nodes.len(), graph.operands()));
    let mut rows = vec![Row::default(); graph.most_rows()];
    let n = graph.rows(scratch.lend(), &mut rows)?;
    rows.truncate(n);
    Ok(rows)
}

/// A trace that was rewritten so that its footprint, the device memory that it takes, is within a limit. With it come
/// the verified plan of its blocks and its simulated time. All of it is in vectors that this value owns.
#[derive(Clone, Debug)]
pub struct Fit {
    /// The rewritten trace.
    pub rows: Vec<Row>,
    /// For each row of the rewritten trace: when it begins and ends, as simulated, in ns.
    pub timings: Vec<Timing>,
    /// The live ranges of the rewritten trace's blocks on the device, as blocks to place, in the order of their
    /// mallocs.
    pub blocks: Vec<Block>,
    /// For each element of `blocks`, which is one live range: the number of its block in the trace, and its own number
    /// among the live ranges of that block, counted from 0.
    pub residencies: Vec<Residency>,
    /// For each element of `blocks`: its offset, in bytes from the start of the arena.
    pub offsets: Vec<u64>,
    /// The highest address at which a block ends, in bytes from the start of the arena: the device memory that the
    /// rewritten trace takes.
    pub footprint: u64,
    /// The most bytes that are alive at once in the original trace, before it was rewritten.
    pub original_peak: u64,
    /// The time of the rewritten trace, as simulated, and what is copied and recomputed in it.
    pub run: Run,
}

/// Rewrites a trace so that the device memory that it takes is at most `options.limit` bytes, and verifies that the
/// result computes the same as the original trace and that its plan is valid. A persistent block may end the iteration
/// at another offset than it began at, or on the host. Whoever repeats the rows then has to move it back between two
/// iterations.
///
/// # Errors
/// [`Error::Impossible`] if it is proved that no rewritten trace is within the limit, [`Error::OverLimit`] if none was
/// found; an error for a trace, a device or an alignment that is not sound. All are listed at [`fit::fit`].
///
/// ```
/// use sublet_core::owned;
/// use sublet_core::rewrite::fit::Options;
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::Recorded;
/// let fitted = owned::fit(&Recorded::new(&[], 0), &Options::new(8 << 20, Device::symmetric(12e9)))?;
/// assert_eq!(fitted.footprint, 0);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn fit(recorded: &Recorded<'_>, options: &fit::Options) -> Result<Fit, Error> {
    fit_watched(recorded, options, &mut |_| ControlFlow::Continue(()))
}

/// Rewrites a trace so that the device memory that it takes is at most `options.limit` bytes, proves that the result is
/// valid, and reports progress to `watch` meanwhile. If `watch` ends the work, the best rewritten trace that was found
/// until then is returned.
///
/// # Errors
/// Those of [`fit()`]; [`Error::Stopped`] if `watch` ended the work before any trace within the limit was found.
pub fn fit_watched(recorded: &Recorded<'_>, options: &fit::Options, watch: fit::Watch<'_>) -> Result<Fit, Error> {
    let lengths = Lengths::of(recorded.rows, recorded.blocks);
    let mut scratch = Scratch::of(fit::workspace(recorded.rows.len(), recorded.blocks, lengths));
    let output = Output {
        rows: &mut vec![Row::default(); lengths.rows],
        timings: &mut vec![Timing::default(); lengths.timings],
        blocks: &mut vec![Block::default(); lengths.residencies],
        names: &mut vec![Residency::default(); lengths.residencies],
        offsets: &mut vec![0; lengths.residencies],
    };
    fit::fit_watched(recorded, options, scratch.lend(), output, watch).map(|fitted| Fit::from(&fitted))
}

impl From<&Fitted<'_>> for Fit {
    fn from(fitted: &Fitted<'_>) -> Self {
        let plan = fitted.schedule.plan();
        Self {
            rows: fitted.schedule.rows().to_vec(),
            timings: fitted.schedule.timings().to_vec(),
            blocks: plan.blocks().to_vec(),
            residencies: fitted.schedule.names().to_vec(),
            offsets: plan.offsets().to_vec(),
            footprint: plan.peak(),
            original_peak: fitted.original_peak,
            run: *fitted.schedule.run(),
        }
    }
}

/// Rewrites a trace for each of several limits, in bytes, on the device memory that it takes; `options.limit` is not
/// used. A trace rewritten for one limit is within every higher limit too. So each limit gets the fastest of all
/// rewritten traces that are within it, and a higher limit never gets a slower one than a lower limit. The results are
/// in the order of the limits. Cost: one rewriting for each limit, and for each limit a comparison of all rewritten
/// traces.
///
/// # Errors
/// [`Error::OverLimit`] or [`Error::Impossible`] as the result for a limit within which none was found. Any other error of
/// [`fit::fit`] is returned instead of all results.
///
/// ```
/// use sublet_core::owned;
/// use sublet_core::rewrite::fit::Options;
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::Recorded;
/// let options = Options::new(0, Device::symmetric(12e9));
/// let swept = owned::sweep(&Recorded::new(&[], 0), &options, &[8 << 20, 4 << 20])?;
/// assert!(swept.iter().all(|fitted| fitted.as_ref().is_ok_and(|fitted| fitted.footprint == 0)));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn sweep(
    recorded: &Recorded<'_>,
    options: &fit::Options,
    limits: &[u64],
) -> Result<Vec<Result<Fit, Error>>, Error> {
    let mut made = Vec::with_capacity(limits.len());
    for &limit in limits {
        match fit(recorded, &fit::Options { limit, ..*options }) {
            Err(e) if !matches!(e, Error::OverLimit { .. } | Error::Impossible { .. }) => return Err(e),
            fitted => made.push(fitted),
        }
    }
    let quickest = |(&limit, own): (&u64, &Result<Fit, Error>)| {
        let others = made.iter().flatten().filter(|fitted| fitted.footprint <= limit);
        // If several take the same time, the one that was made for this limit is taken: it comes first.
        let quickest = own.iter().chain(others).min_by(|a, b| a.run.time_ns.total_cmp(&b.run.time_ns));
        quickest.map_or_else(|| own.clone(), |fitted| Ok(fitted.clone()))
    };
    Ok(limits.iter().zip(&made).map(quickest).collect())
}
