//! The one to use: heuristics first, and where they leave a gap the search or the improvement, as long as the
//! budget lasts.
//!
//! The portfolio reaches the lower bound on most networks. Where it does not, and there are at most
//! [`search::MOST_BLOCKS`] blocks, the search goes on from its plan, and may prove that none is better; above
//! that, ejection chains lower the plan. Heuristics, search and a beam along time take turns, because which of them gets
//! there first cannot be known: a short round, one of the default size, and then each of twice the size of the one
//! before it, with other seeds, until the budgets are used up. Of the later rounds most goes to the one that leads. Where
//! every step is full, the beam's part of the short round is the search's.
//!
//! A capacity that is given is enough: within it nothing better is looked for.
//!
//! Never worse than the heuristics of its first round. With nodes to spend that round is short, so that many starts
//! with the whole budget and one seed may find more. Cost: that of its parts.

use core::ops::ControlFlow;

use super::{
    Options, Solver, Summary, Watch, beam, copy, finish, improve, multistart, portfolio, prepare, search, tiling,
};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

/// In the first round each block is placed that often,
const FEW_STARTS: u64 = 48;
/// and the search has this part of its default budget,
const FEW_NODES: u64 = 16;
/// but at most one part in so many of all its nodes.
const PART_OF_FIRST: u64 = 2;
/// After the first round the search has all nodes, and the beam one for so many of them,
const PART_OF_BEAM: u64 = 3;
/// or for so many where the best plan is the search's.
const PART_WHERE_SEARCH_LEADS: u64 = 24;
/// Where the best plan is the beam's, and there are many blocks, it has all nodes but one in so many, of which the search has half.
const PART_WHERE_BEAM_LEADS: u64 = 4;
/// Up to so many blocks the search may still win where the beam leads.
const FEW_BLOCKS: usize = 512;
/// Where every step is full, plans without waste are looked for with this part of all nodes.
const PART_OF_TILING: u64 = 4;

/// Length of the workspace that [`place`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    let trial = WorkspaceLen { words: n, indices: 0 };
    let linear = portfolio::workspace(n).max(multistart::workspace(n).and(trial));
    if n <= search::MOST_BLOCKS {
        linear.max(search::workspace(n)).max(beam::workspace(n)).max(tiling::workspace(n))
    } else {
        linear.max(improve::workspace(n))
    }
}

/// Places the blocks as well as `options.work` and `options.nodes` allow, or until `watch` breaks.
///
/// # Errors
/// As [`place`](super::place).
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
    let (mut work, mut nodes) = (options.work, options.nodes);
    if blocks.len() > search::MOST_BLOCKS {
        nodes = 0;
    }
    let few = first_round(blocks.len(), work, nodes);
    let mut round = *options;
    // To the heuristics a plan above the capacity still counts: the search may begin with it.
    let without_capacity = Constraints { capacity: None, ..options.constraints };
    let best = Summary { peak: u64::MAX, lower_bound, solver: Solver::Auto, nodes: 0 };
    let mut tiled = false;
    let mut told = Told { watch, best, enough: options.constraints.capacity.unwrap_or(0), nodes: 0, stopped: false };
    for number in 0..u64::BITS {
        let all = |default: u64| default.saturating_mul(1 << number.saturating_sub(1));
        let most = if number == 0 { few } else { (all(Options::DEFAULT_WORK), all(Options::DEFAULT_NODES)) };
        (round.work, round.nodes) = (work.min(most.0), nodes.min(most.1));
        round.seed = options.seed.wrapping_add(number.into());
        round.constraints = without_capacity;
        work -= round.work;
        nodes -= round.nodes;
        if number == 0 {
            let found = portfolio::place(blocks, &round, scratch.reborrow(), offsets, &mut |now| told.tell(now))?;
            told.keep(found);
        } else if round.work > 0 {
            start_again(blocks, &round, scratch.reborrow(), offsets, &mut told)?;
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
        let (of_search, mut of_beam) = shares(number, blocks.len(), round.nodes, told.best.solver);
        if number == 0 && tiled {
            // A beam that may waste finds nothing where one that may not has failed.
            nodes += of_beam;
            of_beam = 0;
        }
        round.constraints = options.constraints;
        if round.nodes > 0 && !told.done() {
            let share = Options { nodes: of_search, ..round };
            let best = Some(told.best);
            let found = search::improve(blocks, &share, best, scratch.reborrow(), offsets, &mut |now| told.tell(now))?;
            told.keep(found);
            told.nodes += found.nodes;
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
            let best = told.best;
            let found = improve::improve(blocks, &round, best, scratch.reborrow(), offsets, &mut |now| told.tell(now))?;
            told.keep(found);
        }
        if told.done() || (work == 0 && nodes == 0) {
            break;
        }
    }
    finish(Summary { nodes: told.nodes, ..told.best }, options)
}

/// More starts of the skyline; the fixed ones have been made.
fn start_again(
    blocks: &[Block],
    round: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    told: &mut Told<'_>,
) -> Result<(), Error> {
    let trial = scratch.words(blocks.len()).into_slice();
    let found = multistart::build(blocks, round, 0, scratch, trial, &mut |now| told.tell(now))?;
    if found.peak < told.best.peak {
        copy(trial, offsets);
    }
    told.keep(found);
    Ok(())
}

/// What the first round may do, in blocks placed and in nodes: most instances are solved by a few starts or a few nodes.
fn first_round(blocks: usize, work: u64, nodes: u64) -> (u64, u64) {
    let few_starts = (FEW_STARTS * blocks as u64).max(Options::DEFAULT_WORK / FEW_NODES);
    let few_nodes = (Options::DEFAULT_NODES / FEW_NODES).min(nodes.div_ceil(PART_OF_FIRST));
    (if nodes > 0 { few_starts } else { work }, few_nodes)
}

/// What search and beam may do in a round, in nodes, by who has made the best plan. In the first both have all of them,
/// because nobody knows yet.
fn shares(number: u32, blocks: usize, nodes: u64, best: Solver) -> (u64, u64) {
    match best {
        _ if number == 0 => (nodes, nodes),
        Solver::Search => (nodes, nodes / PART_WHERE_SEARCH_LEADS),
        Solver::Beam if blocks > FEW_BLOCKS => {
            (nodes.div_ceil(2 * PART_WHERE_BEAM_LEADS), nodes - nodes / PART_WHERE_BEAM_LEADS)
        }
        _ => (nodes, nodes / PART_OF_BEAM),
    }
}

/// Puts together what the parts tell, each of which knows only itself.
struct Told<'a> {
    watch: Watch<'a>,
    /// The best plan and the best bound so far.
    best: Summary,
    /// A peak that is good enough, in bytes.
    enough: u64,
    /// Nodes of the searches that are over.
    nodes: u64,
    stopped: bool,
}

impl Told<'_> {
    fn tell(&mut self, now: &Summary) -> ControlFlow<()> {
        let told = Summary { nodes: self.nodes + now.nodes, ..self.better(now) };
        let flow = (self.watch)(&told);
        self.stopped |= flow.is_break();
        flow
    }

    fn keep(&mut self, found: Summary) {
        self.best = self.better(&found);
    }

    fn better(&self, now: &Summary) -> Summary {
        let best = if now.peak < self.best.peak { *now } else { self.best };
        Summary { lower_bound: now.lower_bound.max(self.best.lower_bound), ..best }
    }

    fn done(&self) -> bool {
        self.stopped || self.best.peak <= self.best.lower_bound.max(self.enough)
    }
}
