//! The default method of placement. Heuristics come first. Where their peak is above the lower bound, other methods
//! follow as long as the budgets last.
//!
//! The heuristics of the [`portfolio`] reach the lower bound on most networks. First one plan is built from address 0
//! upwards. Then comes [`coloring`](super::coloring), forward and backward in time, unless too many pairs of blocks are
//! alive together: it places the largest blocks first. It is quick, and best where large blocks come and go in a full
//! memory. Then comes the portfolio. If the lower bound is not reached then, the number of blocks decides what follows:
//!
//! - Up to [`search::MOST_BLOCKS`] blocks: exact search and beam search. The exact search starts from the best plan so
//!   far, and may prove that no plan is better. With more than 600 blocks, two more methods come in later rounds: in
//!   the second round, [`outward`] places blocks outward from the busiest step; from the second round on,
//!   [`large_first`] searches for offsets of the large blocks alone. It uses nodes of the exact search: a part of them
//!   if the best plan so far was found by an exact or a beam search over all blocks, else all of them.
//! - More blocks: there is no search. Three methods follow. The first is [`outward`]. The second builds a few plans
//!   from address 0 upwards, and compares 64 blocks before it places one. The third, [`improve`], puts the highest
//!   blocks elsewhere and moves the blocks that are in their way.
//!
//! Heuristics, exact search and beam search take turns, because nobody can know which of them finds a better plan
//! first. A *round* is one turn of each. The first round is short. The second has the default budgets, less the nodes
//! of the first. The third has twice the default budgets, and each later round twice those of the round before. Each
//! round has another seed. The heuristics of a later round are plans from address 0 upwards, by rules drawn at random;
//! only with more than 600 blocks, those of the second round are the portfolio and [`outward`]. The rounds end when the
//! budgets are used up. The exact search and the beam search share a budget, counted in nodes of the search tree: each
//! gets half.
//!
//! With at most 600 blocks and at least the default budget of nodes, the exact search of the first round begins without
//! a plan: then its plans differ more from those of the later rounds. All rounds together may then use more nodes, by
//! 3/10 of the default budget.
//!
//! If all maximal cliques of blocks alive together have the same number of bytes, no block is pinned, and all sizes are
//! multiples of the alignments, the first round looks for plans without unused bytes (`tiling`) before the exact
//! search. The beam search then has no turn in the first round.
//!
//! If the constraints have a capacity, a plan within it is good enough: no further method starts once there is one.
//!
//! The peak of the result is never above that of the heuristics in the first round. With more than 600 blocks, the
//! second round runs the portfolio again, with the seed of the first round and a larger budget. So if `options.work` is
//! at most the default, the peak is not above that of the portfolio alone with the same options. With at most 600
//! blocks, or with more work, the peak may be above it, because later rounds have other seeds. Cost: the sum of the
//! costs of the methods that run.

use core::ops::ControlFlow;

use super::interval::Sweep;
use super::multistart::Series;
use super::{
    Fit, Options, Solver, Summary, Watch, beam, copy, finish, improve, large_first, multistart, outward, place_watched,
    portfolio, prepare, search, tell, tiling,
};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

/// The budget of the heuristics in the first round: enough to place all blocks this number of times, or [`FEW_PLACED`]
/// blocks if that is more; at most `options.work`. If the exact search does not run, the heuristics get all of
/// `options.work` instead.
const FEW_STARTS: u64 = 48;
/// The least budget of the heuristics in the first round, in blocks placed; `options.work` if that is less. If the
/// exact search does not run, the heuristics get all of `options.work` instead.
const FEW_PLACED: u64 = Options::DEFAULT_WORK / 16;
/// In the first round, the exact search and the beam search share a budget of nodes of the search tree:
/// [`Options::DEFAULT_NODES`] divided by this number, or `options.nodes` if that is less.
const FEW_NODES: u64 = 4;
/// With at most [`FEW_BLOCKS`] blocks, a node of the search tree takes less time than with more blocks. So if
/// `options.nodes` is at least the default, the budget of nodes is raised by this number of tenths of the default.
const MORE_TENTHS: u64 = 3;
/// The time that the search for plans without unused bytes (`tiling`) may take: the time that the exact search takes
/// for `options.nodes` nodes of its search tree, divided by this number. `tiling` runs only if all maximal cliques of
/// blocks alive together have the same number of bytes, no block is pinned, and all sizes are multiples of the
/// alignments.
const PART_OF_TILING: u64 = 4;
/// The exact search and [`large_first`] share a budget, in nodes of the search tree. If the best plan so far was found
/// by an exact or a beam search over all blocks, [`large_first`] may use this budget divided by this number. Otherwise
/// it may use all of it.
const PART_OF_LARGE_FIRST: u64 = 8;
/// With at most this many blocks, neither [`outward`] nor [`large_first`] runs, and the portfolio runs only in the
/// first round.
pub const FEW_BLOCKS: usize = 600;
/// With more blocks than this, the budget of the heuristic `Rule::WideFlush` is [`WORK_FOR_MANY`] times that of the
/// other heuristics. `Rule::WideFlush` looks at 64 blocks before it places one, and is slow.
const MANY_BLOCKS: usize = 10_000;
/// With more than [`MANY_BLOCKS`] blocks, the budget of the heuristic `Rule::WideFlush` is this number of times that of
/// the other heuristics. `Rule::WideFlush` looks at 64 blocks before it places one, and is slow.
const WORK_FOR_MANY: u64 = 8;

/// The two plans of [`coloring`](super::coloring) are made only if at most this many pairs of blocks are alive
/// together. Then each of the two plans takes less than half a second.
const MOST_PAIRS: u64 = 8_000_000;

/// The method [`outward`] gets at least this budget: as much work as placing all blocks this number of times. It runs
/// only with more than [`FEW_BLOCKS`] blocks.
const OUTWARD_RUNS: u64 = 64;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let trial = WorkspaceLen { words: n, indices: 0 };
    let linear = portfolio::workspace(n).max(multistart::workspace(n)).and(trial);
    if n <= search::MOST_BLOCKS {
        let exact = search::workspace(n).and(trial).max(large_first::workspace(n));
        linear.max(exact).max(beam::workspace(n)).max(tiling::workspace(n)).max(outward::workspace(n))
    } else {
        linear.max(outward::workspace(n)).max(improve::workspace(n))
    }
}

/// Runs several methods of placement in turn, and keeps the best plan. Ends when one of these is true:
///
/// - The peak is the lower bound, or within the capacity that `options.constraints` sets.
/// - Both `options.work` and `options.nodes` are used up.
/// - `watch` has returned `ControlFlow::Break`.
///
/// # Errors
/// The error of [`block::check`](crate::block::check) if it refuses the blocks; [`Error::PinsOverlap`] if pinned blocks
/// that are alive together share an address; [`Error::BufferTooSmall`] if there is not one offset for each block, or
/// the workspace is shorter than that for this solver; [`Error::OverCapacity`] if the peak is above the capacity: the
/// plan found is left in `offsets`.
///
/// ```
/// use core::ops::ControlFlow;
/// use sublet_core::place::{Options, auto};
/// use sublet_core::{Block, Workspace};
/// let blocks = [Block::new(0, 3, 4), Block::new(3, 5, 4), Block::new(2, 4, 2)];
/// let len = auto::workspace(blocks.len());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut offsets = [0; 3];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let summary = auto::place(&blocks, &Options::default(), scratch, &mut offsets, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(summary.peak, 6);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Result<Summary, Error> {
    let lower_bound = prepare(blocks, options, workspace(blocks.len()), &mut scratch, offsets)?;
    let (mut work, mut nodes) = (options.work, nodes_of(blocks.len(), options));
    let few = first_round(blocks.len(), work, nodes);
    let mut round = *options;
    // The heuristics also keep plans above the capacity: the search may begin with one.
    let without_capacity = Constraints { capacity: None, ..options.constraints };
    let best = Summary { peak: u64::MAX, lower_bound, solver: Solver::Auto, nodes: 0 };
    let mut tiled = false;
    let mut told = Told { watch, best, enough: options.constraints.capacity.unwrap_or(0), nodes: 0, stopped: false };
    for number in 0..u64::BITS {
        let all = |default: u64| default.saturating_mul(1 << number.saturating_sub(1));
        let most = match number {
            0 => few,
            // The first two rounds share the default budget of nodes.
            1 => (Options::DEFAULT_WORK, Options::DEFAULT_NODES - few.1),
            _ => (all(Options::DEFAULT_WORK), all(Options::DEFAULT_NODES)),
        };
        (round.work, round.nodes) = (work.min(most.0), nodes.min(most.1));
        round.seed = options.seed.wrapping_add(number.into());
        round.constraints = without_capacity;
        work -= round.work;
        nodes -= round.nodes;
        match number {
            0 => heuristics(blocks, &round, scratch.reborrow(), offsets, &mut told)?,
            _ if round.work == 0 => (),
            1 if blocks.len() > FEW_BLOCKS => {
                // With the seed of the first round, the portfolio makes the plans of that round again, then new ones.
                let longer = Options { work: few.0 + round.work, seed: options.seed, ..round };
                run_portfolio(blocks, &longer, scratch.reborrow(), offsets, &mut told)?;
                if !told.done() {
                    place_outward(blocks, &round, scratch.reborrow(), offsets, &mut told)?;
                }
            }
            _ => start_again(blocks, &round, Series::Any(0), scratch.reborrow(), offsets, &mut told)?,
        }
        if number == 0 && round.nodes > 0 && !told.done() {
            let share = Options { nodes: options.nodes / PART_OF_TILING, ..round };
            let best = told.best;
            let found = tiling::improve(blocks, &share, best, scratch.reborrow(), offsets, &mut |now| told.tell(now))?;
            told.keep(found);
            told.nodes += found.nodes;
            let left = (nodes + round.nodes).saturating_sub(found.nodes);
            round.nodes = round.nodes.min(left);
            nodes = left - round.nodes;
            tiled = found.nodes > 0;
        }
        let mut of_beam = round.nodes / 2;
        let mut of_search = round.nodes - of_beam;
        if number == 0 && tiled {
            // Where `tiling` has found no plan without unused bytes, the beam search finds none either. Its nodes are
            // kept for later rounds.
            nodes += of_beam;
            of_beam = 0;
        }
        if number > 0 && blocks.len() > FEW_BLOCKS && of_search > 0 && !told.done() {
            let share = Options { nodes: of_search, ..round };
            of_search -= search_large(blocks, &share, scratch.reborrow(), offsets, &mut told)?;
        }
        round.constraints = options.constraints;
        if of_search > 0 && !told.done() {
            let share = Options { nodes: of_search, ..round };
            let anew = number == 0 && is_searched_more(blocks.len(), options);
            search_exactly(blocks, &share, anew, scratch.reborrow(), offsets, &mut told)?;
        }
        if of_beam > 0 && !told.done() {
            let best = told.best;
            let share = Options { nodes: of_beam, ..round };
            let wide = number.saturating_sub(1);
            let found =
                beam::improve(blocks, &share, best, wide, scratch.reborrow(), offsets, &mut |now| told.tell(now))?;
            told.keep(found);
            told.nodes += found.nodes;
        }
        if blocks.len() > search::MOST_BLOCKS && round.work > 0 && !told.done() {
            place_many(blocks, &round, scratch.reborrow(), offsets, &mut told)?;
        }
        if told.done() || (work == 0 && nodes == 0) {
            break;
        }
    }
    finish(Summary { nodes: told.nodes, ..told.best }, options)
}

/// Runs the heuristics of the first round, with the options `round`. Builds one plan from address 0 upwards, which is
/// optimal for most networks. Then builds plans with the largest blocks first ([`largest_first`]). Then runs the
/// portfolio with the budget `round.work`. Ends early if the best plan is good enough, or if the caller has asked to
/// stop. The best of all these plans goes to `offsets` if its peak is below the best so far.
fn heuristics(
    blocks: &[Block],
    round: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let once = Options { work: 0, ..*round };
    start_again(blocks, &once, Series::Any(1), scratch.reborrow(), offsets, told)?;
    if !told.done() {
        largest_first(blocks, round, scratch.reborrow(), offsets, told)?;
    }
    if !told.done() {
        run_portfolio(blocks, round, scratch, offsets, told)?;
    }
    Ok(())
}

/// Runs the heuristics of the portfolio. The best of their plans goes to `offsets` if its peak is below the best so
/// far.
fn run_portfolio(
    blocks: &[Block],
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let trial = scratch.words(blocks.len()).into_slice();
    let found = portfolio::place(blocks, options, scratch, trial, &mut |now| told.tell(now))?;
    told.keep_plan(found, trial, offsets);
    Ok(())
}

/// Places the blocks from the largest to the smallest by [`coloring`](super::coloring), forward in time and then
/// backward, unless too many pairs of blocks are alive together. The best of these plans goes to `offsets` if its peak
/// is below the best so far. Such plans are good where a few large blocks fill most of the memory and come and go
/// quickly, and thousands of small ones live longer: weights that are swapped, for example.
fn largest_first(
    blocks: &[Block],
    round: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    if Sweep::new(blocks, scratch.reborrow())?.colliding_pair_count() > MOST_PAIRS {
        return Ok(());
    }
    let mut scratch = scratch.reborrow();
    let trial = scratch.words(blocks.len()).into_slice();
    for solver in [Solver::Coloring(Fit::First), Solver::ColoringBackward] {
        let found = place_watched(solver, blocks, round, scratch.reborrow(), trial, &mut |now| told.tell(now))?;
        told.keep_plan(found, trial, offsets);
        if told.tell(&found).is_break() || told.done() {
            break;
        }
    }
    Ok(())
}

/// Runs the exact search over all blocks ([`search`]). If `anew` is false, it begins with the best plan so far, which
/// is in `offsets`. If `anew` is true, it begins as if there were no plan yet: so it may find other plans. A plan with
/// a lower peak than the best so far goes to `offsets`.
fn search_exactly(
    blocks: &[Block],
    round: &Options,
    anew: bool,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let best = told.best;
    let mut tell = |now: &Summary| told.tell(now);
    let found = if anew {
        let trial = scratch.words(blocks.len()).into_slice();
        let found = search::improve(blocks, round, None, scratch, trial, &mut tell)?;
        told.keep_plan(found, trial, offsets);
        found
    } else {
        let found = search::improve(blocks, round, Some(best), scratch, offsets, &mut tell)?;
        told.keep(found);
        found
    };
    told.nodes += found.nodes;
    Ok(())
}

/// Searches for offsets of the large blocks alone ([`large_first`]). The budget is `round.nodes` nodes of the search
/// tree. If the best plan so far was found by an exact or a beam search over all blocks, the budget is `round.nodes`
/// divided by [`PART_OF_LARGE_FIRST`]. Returns the budget, even if the search has used fewer nodes; 0 if there was
/// nothing to search. A plan with a lower peak than the best so far goes to `offsets`.
fn search_large(
    blocks: &[Block],
    round: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<u64, Error> {
    let best = told.best;
    let of_search = matches!(best.solver, Solver::Search | Solver::Beam);
    let nodes = if of_search { round.nodes / PART_OF_LARGE_FIRST } else { round.nodes };
    let share = Options { nodes, ..*round };
    let found = large_first::improve(blocks, &share, best, scratch, offsets, &mut |now| told.tell(now))?;
    told.keep(found);
    told.nodes += found.nodes;
    Ok(if found.nodes > 0 { nodes } else { 0 })
}

/// Lowers the peak of the best plan where there are too many blocks for the exact search. Runs three methods.
/// [`outward`] places blocks outward from the busiest step. [`start_again`] builds plans from address 0 upwards, and
/// compares 64 blocks before it places one. [`improve`] puts the highest blocks elsewhere and moves the blocks that are
/// in their way.
fn place_many(
    blocks: &[Block],
    round: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    place_outward(blocks, round, scratch.reborrow(), offsets, told)?;
    if !told.done() {
        let many = if blocks.len() > MANY_BLOCKS { WORK_FOR_MANY } else { 1 };
        let wide = Options { work: round.work.saturating_mul(many), ..*round };
        start_again(blocks, &wide, Series::Wide, scratch.reborrow(), offsets, told)?;
    }
    if !told.done() {
        let best = told.best;
        let found = improve::improve(blocks, round, best, scratch, offsets, &mut |now| told.tell(now))?;
        told.keep(found);
    }
    Ok(())
}

/// Builds plans outward from the busiest step ([`outward`]). The best of them goes to `offsets` if its peak is below
/// the best so far.
fn place_outward(
    blocks: &[Block],
    round: &Options,
    scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let best = told.best;
    let share = Options { work: round.work.max(OUTWARD_RUNS * blocks.len() as u64), ..*round };
    let found = outward::improve(blocks, &share, best, scratch, offsets, &mut |now| told.tell(now))?;
    told.keep(found);
    Ok(())
}

/// Builds more plans from address 0 upwards; `series` says in which orders of preference, and by which rules, blocks
/// are picked. The best of these plans goes to `offsets` if its peak is below the best so far.
fn start_again(
    blocks: &[Block],
    round: &Options,
    series: Series,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let trial = scratch.words(blocks.len()).into_slice();
    let found = multistart::build(blocks, round, series, scratch, trial, &mut |now| told.tell(now))?;
    told.keep_plan(found, trial, offsets);
    Ok(())
}

/// Whether the budget of nodes is raised by [`MORE_TENTHS`], and the exact search of the first round begins without a
/// plan. Both are done if there are at most [`FEW_BLOCKS`] blocks and `options.nodes` is at least the default.
const fn is_searched_more(blocks: usize, options: &Options) -> bool {
    blocks <= FEW_BLOCKS && options.nodes >= Options::DEFAULT_NODES
}

/// Returns how many nodes of the search tree all rounds together may look at.
const fn nodes_of(blocks: usize, options: &Options) -> u64 {
    if blocks > search::MOST_BLOCKS {
        0
    } else if is_searched_more(blocks, options) {
        options.nodes.saturating_add(Options::DEFAULT_NODES / 10 * MORE_TENTHS)
    } else {
        options.nodes
    }
}

/// Returns the budgets of the first round: how many blocks the heuristics may place, and how many nodes of the search
/// tree the exact search and the beam search may look at. Both are small, because most instances are solved by a few
/// plans or a few nodes. If `nodes` is 0, the heuristics get all of `work`.
fn first_round(blocks: usize, work: u64, nodes: u64) -> (u64, u64) {
    let few_starts = (FEW_STARTS * blocks as u64).max(FEW_PLACED);
    let few_nodes = (Options::DEFAULT_NODES / FEW_NODES).min(nodes);
    (if nodes > 0 { few_starts } else { work }, few_nodes)
}

/// Combines the results that several methods of placement report: keeps the best peak and the highest lower bound of
/// all, and calls the caller's `watch` with these.
struct Told<'a> {
    watch: Watch<'a>,
    /// The peak and the solver of the best plan so far, and the highest lower bound so far.
    best: Summary,
    /// The capacity of the constraints, in bytes: a plan with a peak within it is good enough. 0 if there is no
    /// capacity.
    enough: u64,
    /// The nodes of the search tree that were looked at so far, in all searches that have ended. A search that is not
    /// exact adds as many as the exact search would look at in the same time.
    nodes: u64,
    /// Whether the caller's `watch` has asked the placement to stop: it has returned `ControlFlow::Break`.
    stopped: bool,
}

impl Told<'_> {
    fn tell(&mut self, now: &Summary) -> ControlFlow<()> {
        let told = Summary { nodes: self.nodes + now.nodes, ..self.better(now) };
        tell(self.watch, &told, &mut self.stopped)
    }

    fn keep(&mut self, found: Summary) {
        self.best = self.better(&found);
    }

    /// Takes over the result `found` of a method: its peak if that is below the best so far, and its lower bound if
    /// that is above the highest so far. If its peak is below the best so far, also copies the method's plan from
    /// `trial` to `offsets`.
    fn keep_plan(&mut self, found: Summary, trial: &[u64], offsets: &mut [u64]) {
        if found.peak < self.best.peak {
            copy(trial, offsets);
        }
        self.keep(found);
    }

    fn better(&self, now: &Summary) -> Summary {
        let best = if now.peak < self.best.peak { *now } else { self.best };
        Summary { lower_bound: now.lower_bound.max(self.best.lower_bound), ..best }
    }

    fn done(&self) -> bool {
        self.stopped || self.best.peak <= self.best.lower_bound.max(self.enough)
    }
}
