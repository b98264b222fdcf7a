//! The default method of placement. Heuristics come first. Where their peak is above the lower bound, other methods
//! follow as long as the budgets last.
//!
//! What runs in a *round*, and in which rounds, is in [`STAGES`]. The heuristics of the first round reach the lower bound on
//! most networks: one plan from address 0 upwards, of many blocks that of best fit; colouring, forward and backward in time,
//! which is best where large blocks come and go in a full memory; then the [`portfolio`]. Exact search and beam search
//! follow, and take turns with more plans from address 0 upwards, because nobody can know which of them finds a better plan
//! first.
//!
//! The first round is short. The second has the default budgets, less the nodes of the first. The third has twice the
//! default budgets, and each later round twice those of the round before. Each round has another seed. The rounds end when
//! the budgets are used up. The exact search and the beam search share the nodes; with more than
//! [`search::MOST_BLOCKS`] blocks the beam search has them all, with [`MANY_BLOCKS`] and more guided ejection. That gets most of
//! them where blocks are pinned too, of [`FEW_BLOCKS`] and more all: there it finds by far the lowest plans.
//!
//! With at most [`FEW_BLOCKS`] blocks and at least the default budget of nodes, the exact search of the first round begins
//! without a plan: then its plans differ more from those of the later rounds. All rounds together may then use more nodes, by
//! 3/10 of the default budget.
//!
//! If the constraints have a capacity, a plan within it is good enough: no further method starts once there is one.
//!
//! The peak of the result is never above that of the heuristics in the first round. Cost: the sum of the costs of the
//! methods that run.

use core::ops::ControlFlow;

use super::gap::Fit;
use super::multistart::{self, Starts};
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, copy, tell};
use super::{beam, best_fit, by_order, ejection, portfolio, search};
use crate::{Block, Workspace, WorkspaceLen};

const FEW_STARTS: u64 = 48;
/// In blocks placed.
const FEW_PLACED: u64 = Options::DEFAULT_WORK / 16;
const FEW_NODES: u64 = 4;
const MORE_TENTHS: u64 = 3;
const MOST_PAIRS: u64 = 8_000_000;
/// From here on guided ejection has all nodes: a beam is too narrow.
const MANY_BLOCKS: usize = 16_000;
/// From here on best fit is the first plan: it is as good, and takes less time.
pub(super) const BEST_FIT_FIRST: usize = 100_000;
/// With at most this many blocks, the exact search of [`Solver::Auto`] is given more nodes.
pub const FEW_BLOCKS: usize = 600;

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    First,
    Later,
    Always,
}

struct Stage {
    when: When,
    run: fn(&mut Round<'_, '_>, Workspace<'_>),
}

const STAGES: [Stage; 7] = [
    Stage { when: When::First, run: build_one },
    Stage { when: When::First, run: color },
    Stage { when: When::First, run: run_portfolio },
    Stage { when: When::Later, run: build_more },
    Stage { when: When::Always, run: eject },
    Stage { when: When::Always, run: search_exactly },
    Stage { when: When::Always, run: search_beam },
];

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let trial = WorkspaceLen { words: n, indices: 0 };
    let all = portfolio::workspace(n).max(beam::workspace(n)).max(ejection::workspace(n));
    if n <= search::MOST_BLOCKS { all.max(search::workspace(n)).and(trial) } else { all.and(trial) }
}

pub(super) fn place(
    problem: &Problem<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let &Problem { blocks, lower_bound, .. } = problem;
    let (mut work, mut nodes) = (options.work, nodes_of(blocks, options));
    let first = first_budget(blocks.len(), work, nodes);
    let best = Summary { peak: u64::MAX, lower_bound, solver: Solver::Auto, nodes: 0 };
    let enough = options.constraints.capacity.unwrap_or(0);
    let mut incumbent = Incumbent { watch, offsets, best, enough, first: None, nodes: 0, stopped: false };
    for number in 0..u64::BITS {
        let all = |default: u64| default.saturating_mul(1 << number.saturating_sub(1));
        let most = match number {
            0 => first,
            // The first two rounds share the default budget of nodes.
            1 => (Options::DEFAULT_WORK, Options::DEFAULT_NODES - first.1),
            _ => (all(Options::DEFAULT_WORK), all(Options::DEFAULT_NODES)),
        };
        let mut budget = *options;
        (budget.work, budget.nodes) = (work.min(most.0), nodes.min(most.1));
        budget.seed = options.seed.wrapping_add(number.into());
        work -= budget.work;
        nodes -= budget.nodes;
        let mut round = Round { number, problem, options, budget, incumbent: &mut incumbent };
        let when = if number == 0 { When::First } else { When::Later };
        for stage in STAGES.iter().filter(|stage| [when, When::Always].contains(&stage.when)) {
            if !round.incumbent.done() {
                (stage.run)(&mut round, scratch.reborrow());
            }
        }
        if incumbent.done() || (work == 0 && nodes == 0) {
            break;
        }
    }
    Summary { nodes: incumbent.nodes, ..incumbent.best }
}

struct Round<'a, 'b> {
    number: u32,
    problem: &'a Problem<'a>,
    options: &'a Options,
    budget: Options,
    incumbent: &'a mut Incumbent<'b>,
}

impl Round<'_, '_> {
    /// The nodes of this round for ejection, the exact search and the beam search.
    fn shares(&self) -> [u64; 3] {
        let (all, n) = (self.budget.nodes, self.problem.blocks.len());
        let ejection = match (self.problem.is_pinned, n) {
            (_, MANY_BLOCKS..) | (true, FEW_BLOCKS..) => all,
            (true, _) => all / 4 * 3,
            (false, _) => 0,
        };
        let rest = all - ejection;
        let beam = if n <= search::MOST_BLOCKS { rest / 2 } else { rest };
        [ejection, rest - beam, beam]
    }
}

fn build_one(round: &mut Round<'_, '_>, scratch: Workspace<'_>) {
    let first = if round.problem.blocks.len() < BEST_FIT_FIRST {
        build(round, Starts::Fixed, 0, scratch)
    } else {
        let found = best_fit::place(round.problem, &round.budget, scratch, round.incumbent.offsets);
        round.incumbent.best = found;
        // The incumbent keeps whether this was a break.
        let _ = round.incumbent.tell(&found);
        found
    };
    round.incumbent.first = Some(first);
}

fn build_more(round: &mut Round<'_, '_>, scratch: Workspace<'_>) {
    if round.budget.work > 0 {
        build(round, Starts::Drawn, round.budget.work, scratch);
    }
}

fn build(round: &mut Round<'_, '_>, starts: Starts, work: u64, mut scratch: Workspace<'_>) -> Summary {
    let trial = scratch.words(round.problem.blocks.len()).into_slice();
    let options = Options { work, ..round.budget };
    let incumbent = &mut *round.incumbent;
    let found = multistart::place(round.problem, &options, starts, scratch, trial, &mut |now| incumbent.tell(now));
    incumbent.keep_plan(found, trial);
    found
}

fn color(round: &mut Round<'_, '_>, mut scratch: Workspace<'_>) {
    if round.problem.sweep.colliding_pair_count() > MOST_PAIRS {
        return;
    }
    let trial = scratch.words(round.problem.blocks.len()).into_slice();
    for solver in [Solver::Coloring(Fit::First), Solver::ColoringBackward] {
        let found = by_order::place(solver, round.problem, &round.budget, scratch.reborrow(), trial);
        round.incumbent.keep_plan(found, trial);
        if round.incumbent.tell(&found).is_break() || round.incumbent.done() {
            break;
        }
    }
}

fn run_portfolio(round: &mut Round<'_, '_>, mut scratch: Workspace<'_>) {
    let trial = scratch.words(round.problem.blocks.len()).into_slice();
    let incumbent = &mut *round.incumbent;
    let first = incumbent.first;
    let found = portfolio::place(round.problem, &round.budget, first, scratch, trial, &mut |now| incumbent.tell(now));
    incumbent.keep_plan(found, trial);
}

fn eject(round: &mut Round<'_, '_>, scratch: Workspace<'_>) {
    let [nodes, ..] = round.shares();
    improve(round, nodes, scratch, ejection::improve);
}

fn search_exactly(round: &mut Round<'_, '_>, scratch: Workspace<'_>) {
    let [_, nodes, _] = round.shares();
    let anew = round.number == 0 && is_searched_more(round.problem.blocks, round.options);
    improve(round, nodes, scratch, |problem, options, best, scratch, trial, watch| {
        search::improve(problem, options, Some(best).filter(|_| !anew), scratch, trial, watch)
    });
}

fn search_beam(round: &mut Round<'_, '_>, scratch: Workspace<'_>) {
    let [.., nodes] = round.shares();
    let wide = round.number.saturating_sub(1);
    improve(round, nodes, scratch, |problem, options, best, scratch, trial, watch| {
        beam::improve(problem, options, best, wide, scratch, trial, watch)
    });
}

fn improve(
    round: &mut Round<'_, '_>,
    nodes: u64,
    mut scratch: Workspace<'_>,
    method: impl FnOnce(&Problem<'_>, &Options, Summary, Workspace<'_>, &mut [u64], Watch<'_>) -> Summary,
) {
    if nodes == 0 {
        return;
    }
    let options = Options { nodes, ..round.budget };
    let trial = scratch.words(round.problem.blocks.len()).into_slice();
    let (best, incumbent) = (round.incumbent.best, &mut *round.incumbent);
    copy(incumbent.offsets, trial);
    let found = method(round.problem, &options, best, scratch, trial, &mut |now| incumbent.tell(now));
    incumbent.keep_plan(found, trial);
    incumbent.nodes += found.nodes;
}

fn is_searched_more(blocks: &[Block], options: &Options) -> bool {
    blocks.len() <= FEW_BLOCKS && options.nodes >= Options::DEFAULT_NODES
}

fn nodes_of(blocks: &[Block], options: &Options) -> u64 {
    let more = if is_searched_more(blocks, options) { Options::DEFAULT_NODES / 10 * MORE_TENTHS } else { 0 };
    options.nodes.saturating_add(more)
}

fn first_budget(blocks: usize, work: u64, nodes: u64) -> (u64, u64) {
    let few_starts = (FEW_STARTS * blocks as u64).max(FEW_PLACED);
    (if nodes > 0 { few_starts } else { work }, (Options::DEFAULT_NODES / FEW_NODES).min(nodes))
}

/// The best plan so far, and whom to tell.
struct Incumbent<'a> {
    watch: Watch<'a>,
    offsets: &'a mut [u64],
    best: Summary,
    /// The capacity, in bytes; 0 if there is none.
    enough: u64,
    first: Option<Summary>,
    nodes: u64,
    stopped: bool,
}

impl Incumbent<'_> {
    fn tell(&mut self, now: &Summary) -> ControlFlow<()> {
        let told = Summary { nodes: self.nodes + now.nodes, ..self.better(now) };
        tell(self.watch, &told, &mut self.stopped)
    }

    fn keep_plan(&mut self, found: Summary, trial: &[u64]) {
        if found.peak < self.best.peak {
            copy(trial, self.offsets);
        }
        self.best = self.better(&found);
    }

    fn better(&self, now: &Summary) -> Summary {
        let best = if now.peak < self.best.peak { *now } else { self.best };
        Summary { lower_bound: now.lower_bound.max(self.best.lower_bound), ..best }
    }

    fn done(&self) -> bool {
        let found = self.best.peak < u64::MAX;
        self.stopped || found && self.best.peak <= self.best.lower_bound.max(self.enough)
    }
}
