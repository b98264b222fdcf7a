//! Every solver on arbitrary blocks: what it returns is a valid plan, and its lower bound is one.
#![cfg_attr(fuzzing, no_main)]

use std::ops::ControlFlow;

use arbitrary::Arbitrary;
use sublet_core::place::{self, Solver, Summary};
use sublet_core::{Constraints, Error, check_blocks, verify};
use sublet_fuzz::blocks::{Attempt, Instance};
use sublet_fuzz::naive;
use sublet_fuzz::scratch::Scratch;

/// The most blocks without a pin of which all orders are tried, to find the optimum.
const FEW: usize = 6;

#[derive(Arbitrary, Debug)]
struct Input {
    attempt: Attempt,
    /// After how many reports the watch ends the placement; `None`: it does not.
    breaks: Option<u8>,
    instance: Instance,
}

sublet_fuzz::target!(|input: Input| {
    let Input { attempt, breaks, instance } = &input;
    let Instance { blocks, constraints } = instance;
    let checked = check_blocks(blocks, constraints.alignment);
    assert_eq!(checked.is_ok(), naive::plannable(blocks, constraints.alignment), "{checked:?}");
    if let Err(e) = checked {
        for solver in Solver::all() {
            assert_eq!(run(Attempt { solver, ..*attempt }, instance, *breaks), Err(e));
        }
        return;
    }
    if naive::pins_overlap(blocks) {
        for solver in Solver::all() {
            let refused = run(Attempt { solver, ..*attempt }, instance, *breaks);
            assert!(matches!(refused, Err(Error::PinsOverlap { .. })), "{refused:?}");
        }
        return;
    }
    // First one solver, with the capacity and ended by the watch; then all solvers, without both.
    let _ = run(*attempt, instance, *breaks);
    let free = Constraints { capacity: None, ..*constraints };
    let instance = Instance { blocks: blocks.clone(), constraints: free };
    let whole = |solver| run(Attempt { solver, work: 200, ..*attempt }, &instance, None).expect("without a capacity");
    let found: Vec<(Solver, Summary)> = Solver::all().map(|solver| (solver, whole(solver))).collect();
    let mut scratch = Scratch::of(place::lower_bound_workspace(blocks.len()));
    let bound = place::lower_bound(blocks, &free, scratch.lend()).expect("the blocks are fine");
    assert!(naive::max_load(blocks) <= bound.into());
    let lower_bound = found.iter().map(|(_, s)| s.lower_bound).max().unwrap_or(0).max(bound);
    let auto = whole(Solver::Auto).peak;
    for (solver, summary) in &found {
        assert!(lower_bound <= summary.peak, "{}: {summary:?} below {lower_bound}", solver.name());
        // These solvers use the whole budget at once, and may find a lower peak than `auto`.
        let may_win =
            matches!(solver, Solver::Search | Solver::Beam | Solver::Ejection | Solver::Multistart | Solver::Portfolio);
        assert!(auto <= summary.peak || may_win, "{}: {summary:?} below {auto}", solver.name());
    }
    if blocks.iter().filter(|b| b.pin.is_none()).count() <= FEW {
        let least = naive::least_peak(blocks, constraints.alignment);
        assert!(u128::from(lower_bound) <= least, "{lower_bound} above {least}");
        assert!(least <= auto.into(), "{auto} below {least}");
    }
});

/// Places the blocks, and asserts that the verifier and the naive checks accept the plan.
fn run(attempt: Attempt, Instance { blocks, constraints }: &Instance, breaks: Option<u8>) -> Result<Summary, Error> {
    let name = attempt.solver.name();
    let mut scratch =
        Scratch::of(place::workspace_of(attempt.solver, blocks.len()).max(verify::workspace(blocks.len())));
    let mut offsets = vec![!7; blocks.len()];
    let mut reports = 0;
    let mut watch = |_: &Summary| {
        reports += 1;
        if breaks.is_some_and(|most| reports > most.into()) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let options = attempt.options(*constraints);
    let placed = place::place_watched(attempt.solver, blocks, &options, scratch.lend(), &mut offsets, &mut watch);
    // If the capacity is exceeded, the best placement is in `offsets` all the same.
    let (peak, lower_bound) = match placed {
        Ok(Summary { peak, lower_bound, .. }) => (peak, lower_bound),
        Err(Error::OverCapacity { peak, lower_bound, capacity }) => {
            assert!(constraints.capacity == Some(capacity) && peak > capacity, "{name}: {placed:?}");
            (peak, lower_bound)
        }
        Err(e) => return Err(e),
    };
    let capacity = constraints.capacity.filter(|_| placed.is_ok());
    let constraints = Constraints { capacity, ..*constraints };
    assert!(naive::accepts(blocks, &offsets, &constraints), "{name}: {offsets:?}");
    let plan = verify::verify(blocks, &offsets, &constraints, scratch.lend()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!((u128::from(peak), plan.peak()), (naive::peak(blocks, &offsets), peak), "{name}");
    let load = naive::max_load(blocks);
    assert_eq!(u128::from(plan.max_load()), load, "{name}");
    assert!(load <= lower_bound.into() && lower_bound <= peak, "{name}: {placed:?}");
    placed
}
