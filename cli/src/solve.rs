//! Asks core for a placement: how hard to try, for how long, on how many threads.
//!
//! The blocks are placed once, or with `--effort max` several times, each time with another seed: in lanes, numbered
//! from 0. Threads take lanes in turn. The plan with the lowest peak counts, and of equal peaks the one of the lowest
//! lane; a lane whose plan is proved optimal ends all lanes above it. So the answer does not depend on the number of
//! threads, as long as nobody interrupts.
//!
//! The default solver takes turns between methods, and none of them runs for long. Some instances of a few hundred
//! blocks are only solved by one long search. With so few, three lanes of four do nothing but search. One of these
//! three does so without [`Technique::Guidance`], which helps on some instances and harms on others.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use indicatif::ProgressBar;
use sublet_core::place::{self, FEW_BLOCKS, Options, Solver, Summary};
use sublet_core::place::{Technique, Techniques};
use sublet_core::{Block, Constraints, Error};

use crate::args::{Effort, SolveArgs};
use crate::interrupt::Until;
use sublet_core::owned::Scratch;

/// How many lanes `--effort max` has.
const MOST_LANES: usize = 16;
/// With `--effort max` the heuristics of a lane may do this many times the default work.
const MOST_WORK: u64 = 8;
/// With `--effort max` the searches of a lane may look at this many times the default number of nodes.
const MOST_NODES: u64 = 32;
/// A lane that does nothing but search may look at this many times the nodes of a lane of the default solver, half of
/// whose nodes go to the exact search.
const NODES_OF_SEARCH: u64 = 2;

/// A placement and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Solved {
    pub(crate) offsets: Vec<u64>,
    pub(crate) summary: Summary,
}

/// What the lanes have in common.
struct Race<'a> {
    blocks: &'a [Block],
    solver: Solver,
    options: Options,
    until: Until,
    lanes: usize,
    next: AtomicUsize,
    /// The lowest lane that has proved its plan optimal, or proved that no plan fits; `usize::MAX` while there is none.
    /// The lanes above it are not needed.
    settled: AtomicUsize,
    best: Mutex<Best>,
}

/// The best that the lanes have found so far.
struct Best {
    /// The lane that made `solved`.
    lane: usize,
    /// The plan with the lowest peak; of equal peaks, the one of the lowest lane.
    solved: Option<Solved>,
    /// The highest lower bound that any lane has proved.
    lower_bound: u64,
    /// The least peak of the lanes that have missed the capacity.
    missed: Option<u64>,
}

/// Places the blocks; the bar tells how far it is.
///
/// # Errors
/// As [`place::place`]. [`Error::OverCapacity`] only if no lane finds a plan within the capacity. Where it is proved
/// that none fits, the error's peak is the lowest that is found without the capacity.
pub(crate) fn solve(
    blocks: &[Block],
    constraints: Constraints,
    args: &SolveArgs,
    bar: &ProgressBar,
) -> Result<Solved, Error> {
    match race(blocks, constraints, args, bar) {
        Err(Error::OverCapacity { peak, lower_bound, capacity }) if peak > lower_bound && lower_bound > capacity => {
            let known = race(blocks, Constraints { capacity: None, ..constraints }, args, bar)?.summary;
            let (peak, lower_bound) = (peak.min(known.peak), lower_bound.max(known.lower_bound));
            Err(Error::OverCapacity { peak, lower_bound, capacity })
        }
        answer => answer,
    }
}

/// Runs the lanes, and gives the best of what they find.
fn race(blocks: &[Block], constraints: Constraints, args: &SolveArgs, bar: &ProgressBar) -> Result<Solved, Error> {
    let lanes = if args.effort == Effort::Max { MOST_LANES } else { 1 };
    let options = options(args, constraints);
    let race = Race {
        blocks,
        solver: args.solver,
        options,
        until: Until::after(args.time_limit),
        lanes,
        next: AtomicUsize::new(0),
        settled: AtomicUsize::new(usize::MAX),
        best: Mutex::new(Best { lane: usize::MAX, solved: None, lower_bound: 0, missed: None }),
    };
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..args.threads.get().min(lanes) {
            scope.spawn(|| {
                if let Err(e) = race.run(bar) {
                    locked(&failed).get_or_insert(e);
                }
            });
        }
    });
    let Best { solved, lower_bound, missed, .. } = race.best.into_inner().unwrap_or_else(PoisonError::into_inner);
    match (solved, failed.into_inner().unwrap_or_else(PoisonError::into_inner)) {
        (Some(mut solved), _) => {
            solved.summary.lower_bound = lower_bound;
            Ok(solved)
        }
        (None, Some(e)) => Err(e),
        (None, None) => {
            let peak = missed.unwrap_or_else(|| unreachable!("the first lane ends with a plan or an error"));
            Err(Error::OverCapacity { peak, lower_bound, capacity: constraints.capacity.unwrap_or(0) })
        }
    }
}

/// The options for the effort that is asked for.
pub(crate) fn options(args: &SolveArgs, constraints: Constraints) -> Options {
    let techniques = args.without.iter().fold(Techniques::ALL, |all, &technique| all.without(technique));
    let default = Options { constraints, techniques, ..Options::default() };
    match args.effort {
        Effort::Fast => Options { work: 1, nodes: 0, ..default },
        Effort::Default => default,
        Effort::Max => {
            let (work, nodes) = (MOST_WORK * Options::DEFAULT_WORK, MOST_NODES * Options::DEFAULT_NODES);
            Options { work, nodes, ..default }
        }
    }
}

impl Race<'_> {
    /// What a lane runs: a solver, and its options. Each lane has another seed.
    fn lane(&self, lane: usize) -> (Solver, Options) {
        let options = Options { seed: self.options.seed + lane as u64, ..self.options };
        if self.solver != Solver::Auto || self.blocks.len() > FEW_BLOCKS {
            return (self.solver, options);
        }
        let long = Options { nodes: NODES_OF_SEARCH * options.nodes, ..options };
        match lane % 4 {
            0 => (Solver::Auto, options),
            1 | 2 => (Solver::Search, long),
            _ => (Solver::Search, Options { techniques: long.techniques.without(Technique::Guidance), ..long }),
        }
    }

    /// Takes lanes until there are none.
    fn run(&self, bar: &ProgressBar) -> Result<(), Error> {
        let n = self.blocks.len();
        let mut scratch = Scratch::of(place::workspace_of(self.solver, n));
        let mut offsets = vec![0; n];
        loop {
            let lane = self.next.fetch_add(1, Ordering::Relaxed);
            // The first lane always runs: it gives a plan however little time there is.
            if lane >= self.lanes || (lane > 0 && (self.until.is_over() || lane > self.settled.load(Ordering::Relaxed)))
            {
                return Ok(());
            }
            let (solver, options) = self.lane(lane);
            let mut watch = |now: &Summary| {
                if now.peak < u64::MAX {
                    bar.set_message(format!("peak {}, at least {}", now.peak, now.lower_bound));
                }
                if self.until.is_over() || lane > self.settled.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            };
            match place::place_watched(solver, self.blocks, &options, scratch.lend(), &mut offsets, &mut watch) {
                Ok(summary) => self.keep(lane, summary, &offsets),
                // Another seed may still fit.
                Err(Error::OverCapacity { peak, lower_bound, capacity }) => {
                    let mut best = locked(&self.best);
                    best.lower_bound = best.lower_bound.max(lower_bound);
                    best.missed = Some(best.missed.map_or(peak, |least| least.min(peak)));
                    if lower_bound > capacity {
                        self.settled.fetch_min(lane, Ordering::Relaxed);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn keep(&self, lane: usize, summary: Summary, offsets: &[u64]) {
        let mut best = locked(&self.best);
        best.lower_bound = best.lower_bound.max(summary.lower_bound);
        let peak = best.solved.as_ref().map_or(u64::MAX, |solved| solved.summary.peak);
        if (summary.peak, lane) < (peak, best.lane) {
            best.lane = lane;
            best.solved = Some(Solved { offsets: offsets.to_vec(), summary });
        }
        if summary.peak == summary.lower_bound {
            self.settled.fetch_min(lane, Ordering::Relaxed);
        }
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock: the content is consistent after every statement.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The solvers of the first five lanes, for a number of blocks.
    fn solvers(solver: Solver, blocks: usize) -> [(Solver, bool); 5] {
        let race = Race {
            blocks: &vec![Block::new(0, 1, 1); blocks],
            solver,
            options: Options::default(),
            until: Until::after(None),
            lanes: MOST_LANES,
            next: AtomicUsize::new(0),
            settled: AtomicUsize::new(usize::MAX),
            best: Mutex::new(Best { lane: usize::MAX, solved: None, lower_bound: 0, missed: None }),
        };
        [0, 1, 2, 3, 4].map(|lane| {
            let (solver, options) = race.lane(lane);
            assert_eq!(options.seed, race.options.seed + lane as u64);
            (solver, options.techniques.has(Technique::Guidance))
        })
    }

    #[test]
    fn with_few_blocks_three_lanes_of_four_do_nothing_but_search() {
        let (auto, search) = ((Solver::Auto, true), (Solver::Search, true));
        let unguided = (Solver::Search, false);
        assert_eq!(solvers(Solver::Auto, FEW_BLOCKS), [auto, search, search, unguided, auto]);
        assert_eq!(solvers(Solver::Auto, FEW_BLOCKS + 1), [auto; 5]);
        assert_eq!(solvers(Solver::Beam, 10), [(Solver::Beam, true); 5]);
    }
}
