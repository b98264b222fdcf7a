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

const FEW_STARTS: u64 = 48;
/// In blocks placed.
const FEW_PLACED: u64 = Options::DEFAULT_WORK / 16;
const FEW_NODES: u64 = 4;
const MORE_TENTHS: u64 = 3;
const PART_OF_TILING: u64 = 4;
const PART_OF_LARGE_FIRST: u64 = 8;
/// With at most this many blocks, neither [`outward`] nor [`large_first`] runs, and the portfolio runs only in the
/// first round.
pub const FEW_BLOCKS: usize = 600;
const MANY_BLOCKS: usize = 10_000;
const WORK_FOR_MANY: u64 = 8;

const MOST_PAIRS: u64 = 8_000_000;

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

const fn is_searched_more(blocks: usize, options: &Options) -> bool {
    blocks <= FEW_BLOCKS && options.nodes >= Options::DEFAULT_NODES
}

const fn nodes_of(blocks: usize, options: &Options) -> u64 {
    if blocks > search::MOST_BLOCKS {
        0
    } else if is_searched_more(blocks, options) {
        options.nodes.saturating_add(Options::DEFAULT_NODES / 10 * MORE_TENTHS)
    } else {
        options.nodes
    }
}

fn first_round(blocks: usize, work: u64, nodes: u64) -> (u64, u64) {
    let few_starts = (FEW_STARTS * blocks as u64).max(FEW_PLACED);
    let few_nodes = (Options::DEFAULT_NODES / FEW_NODES).min(nodes);
    (if nodes > 0 { few_starts } else { work }, few_nodes)
}

struct Told<'a> {
    watch: Watch<'a>,
    best: Summary,
    /// The capacity, in bytes; 0 if there is none.
    enough: u64,
    nodes: u64,
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
