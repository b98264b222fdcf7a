//! Runs one heuristic after the other until the peak is the lower bound, and keeps the best plan.
//!
//! In the order of [`Solver::HEURISTICS`]: `multistart`, which builds many plans from address 0 upwards, is best on almost
//! everything and costs least; `best_fit`; then `by_order`. Work is counted in blocks placed; `multistart` gets
//! `options.work`. The cost of the methods by order grows with the number of pairs of blocks that are alive together: only so
//! many run that the sum of their costs is within a second budget of `options.work`, so that instances of 100,000 blocks stay
//! quick. Of equal peaks the first plan is kept.
//!
//! Cost: O(n log n + work) in practice for n blocks. Each method by order takes O(|E| log n) for |E| pairs of blocks alive
//! together.

use super::multistart::Starts;
use super::solver::{Options, Solver, Summary, Watch};
use super::support::{Problem, copy, tell};
use super::{best_fit, by_order, multistart};
use crate::{Workspace, WorkspaceLen};

/// Pairs alive together that take as long as `multistart` takes to place one block.
const PAIRS_PER_BLOCK: u64 = 7;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let members = multistart::workspace(n).max(best_fit::workspace(n)).max(by_order::workspace(n));
    members.and(WorkspaceLen { words: n, indices: 0 })
}

/// `watch` is called after each heuristic, and after each plan of `multistart`. A plan that was `built` before, the first of
/// `multistart` or that of `best_fit`, is not built again; only lower plans are written.
pub(super) fn place(
    problem: &Problem<'_>,
    options: &Options,
    built: Option<Summary>,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let &Problem { blocks, sweep, lower_bound, .. } = problem;
    // In blocks placed: what is left of the budget that the heuristics whose cost grows with the pairs share, and what
    // each of them takes.
    let (mut left, each) = (options.work, sweep.colliding_pair_count() / PAIRS_PER_BLOCK);
    let mut scratch = scratch.reborrow();
    let trial = scratch.words(blocks.len()).into_slice();
    let none = Summary { peak: u64::MAX, lower_bound, solver: Solver::Portfolio, nodes: 0 };
    let mut best = built.unwrap_or(none);
    let is_best_fit = best.solver == Solver::BestFit;
    let starts = match best.solver {
        Solver::Multistart => Starts::FixedAfterFirst(best.peak),
        _ => Starts::Fixed,
    };
    for solver in Solver::HEURISTICS {
        if best.peak == lower_bound {
            break;
        }
        let mut stopped = false;
        let mut tell = |now: &Summary| tell(watch, now, &mut stopped);
        let scratch = scratch.reborrow();
        let summary = match solver {
            Solver::Multistart => multistart::place(problem, options, starts, scratch, trial, &mut tell),
            Solver::BestFit if is_best_fit => continue,
            Solver::BestFit => best_fit::place(problem, options, scratch, trial),
            by_order => {
                let Some(rest) = left.checked_sub(each) else { continue };
                left = rest;
                by_order::place(by_order, problem, options, scratch, trial)
            }
        };
        if summary.peak < best.peak {
            best = summary;
            copy(trial, offsets);
        }
        if stopped || watch(&best).is_break() {
            break;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::cut;
    use crate::place::{Sweep, place_watched, workspace_of};
    use core::ops::ControlFlow;

    #[test]
    fn heuristics_that_grow_with_the_pairs_share_the_work() {
        let blocks = cut(200, 100, 10_000, 1);
        let len = workspace_of(Solver::Portfolio, blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let pairs = Sweep::new(&blocks, scratch.reborrow()).unwrap().colliding_pair_count();
        let each = pairs / PAIRS_PER_BLOCK;
        // `watch` is called after each plan of `multistart`, whose number is the same in all three runs, and after each
        // heuristic.
        let mut told = |work: u64| {
            let mut told = 0;
            let mut watch = |_: &Summary| {
                told += 1;
                ControlFlow::Continue(())
            };
            let options = Options { work, ..Options::default() };
            let mut offsets = vec![0; blocks.len()];
            place_watched(Solver::Portfolio, &blocks, &options, scratch.reborrow(), &mut offsets, &mut watch).unwrap();
            told
        };
        let none = told(each - 1);
        assert_eq!(told(each), none + 1);
        assert_eq!(told(each + 1), none + 1);
    }

    #[test]
    fn one_break_ends_all_methods() {
        let blocks = cut(200, 100, 10_000, 1);
        for solver in [Solver::Portfolio, Solver::Auto] {
            let len = workspace_of(solver, blocks.len());
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let mut told = 0;
            let mut watch = |_: &Summary| {
                told += 1;
                if told == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let mut offsets = vec![0; blocks.len()];
            let scratch = Workspace::new(&mut words, &mut indices);
            place_watched(solver, &blocks, &Options::default(), scratch, &mut offsets, &mut watch).unwrap();
            assert_eq!(told, 1, "{solver:?}");
        }
    }
}
