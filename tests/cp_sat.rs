//! The planners on small instances against a constraint solver: no plan is below a lower bound, and where none is said
//! to fit, none does.
//!
//! If a block of a full rectangle grew by a byte, the max load alone would refute the capacity. So the rectangles here
//! keep their load and change their shape.

use crate::oracle;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::place::{Options, Solver};
use sublet_core::{Block, Constraints, Error};
use sublet_tests::{instance, place_with};

/// How many instances of each of the two kinds are drawn, loose and full ones.
const CASES: u32 = 200;

/// Up to 30 blocks, of any lifetimes, long or short.
fn loose(rng: &mut Xoshiro256PlusPlus) -> Vec<Block> {
    let (n, steps, longest) = (rng.random_range(1..=30), rng.random_range(6..40), rng.random_range(2..20));
    let largest = [4, 12, 40][rng.random_range(0..3)];
    let block = |_| {
        let start = rng.random_range(0..steps);
        Block::new(start, start + rng.random_range(1..=longest), rng.random_range(1..=largest))
    };
    (0..n).map(block).collect()
}

/// Up to 30 blocks that have the load of a full rectangle, and may fit into it or not.
fn full(rng: &mut Xoshiro256PlusPlus) -> Vec<Block> {
    let (n, width) = (rng.random_range(20..=30), [8, 24][rng.random_range(0..2)]);
    let height = [60, 1000][rng.random_range(0..2)];
    let (mut blocks, _) = instance::cut(n, width, height, 1, rng);
    instance::join(&mut blocks, 20, rng);
    blocks
}

/// The lower bound and the peak, in bytes, that a planner reports, with a capacity or without.
fn claim(solver: Solver, blocks: &[Block], capacity: Option<u64>) -> (u64, u64) {
    let options = Options { constraints: Constraints { alignment: 1, capacity }, ..Options::default() };
    match place_with(solver, blocks, &options) {
        Ok((found, _)) => (found.lower_bound, found.peak),
        Err(Error::OverCapacity { peak, lower_bound, .. }) => (lower_bound, peak),
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn optima_and_what_does_not_fit_are_those_of_the_constraint_solver() {
    let mut rng = instance::rng(1);
    let cases: Vec<Vec<Block>> = (0..CASES).flat_map(|_| [loose(&mut rng), full(&mut rng)]).collect();
    let rows = |blocks: &Vec<Block>| blocks.iter().map(|b| (b.start, b.end, b.size)).collect::<Vec<_>>();
    let questions: Vec<_> = cases.iter().map(rows).collect();
    let skipped = "the search is not held against a constraint solver";
    let Some(answers) = oracle::ask::<(u64, u64)>("cp_sat_oracle.py", "ortools", skipped, &questions) else { return };
    let mut known = 0;
    // Of the instances whose optimum is above the max load: how many are solved to the end; how many plans are optimal,
    // without a capacity and with the optimum as capacity; and how many capacities between load and optimum are
    // refuted.
    let (mut hard, mut closed, mut reached, mut fitted, mut refuted) = (0, 0, 0, 0, 0);
    for (blocks, (bound, best)) in cases.iter().zip(answers) {
        let judged = |solver: Solver, capacity| {
            let (lower_bound, peak) = claim(solver, blocks, capacity);
            let told = format!("{} {capacity:?}: {lower_bound}..={peak}, not {bound}..={best}", solver.name());
            assert!(lower_bound <= best && bound <= peak, "{told}: {blocks:?}");
            (lower_bound, peak)
        };
        known += usize::from(bound == best);
        let load = max_load(blocks);
        judged(Solver::Auto, None);
        let found = judged(Solver::Search, None);
        if load == best {
            assert_eq!(found, (best, best), "{blocks:?}");
        } else if bound == best {
            hard += 1;
            closed += u32::from(found == (best, best));
            reached += u32::from(found.1 == best);
            fitted += u32::from(judged(Solver::Search, Some(best)).1 == best);
            let between = load.midpoint(best - 1);
            refuted += u32::from(judged(Solver::Search, Some(between)).0 > between);
        }
    }
    println!("{hard} hard instances: {closed} closed, {reached} optima reached, {fitted} fitted, {refuted} refuted");
    assert!(known >= cases.len() * 95 / 100, "only {known} optima are known");
    assert!(hard >= 15, "only {hard} instances whose load tells nothing");
    assert!(closed >= 13 && reached >= 17 && fitted >= 18 && refuted >= 16);
}

fn max_load(blocks: &[Block]) -> u64 {
    let load = |step| blocks.iter().filter(|b| b.start <= step && step < b.end).map(|b| b.size).sum();
    blocks.iter().map(|b| load(b.start)).max().unwrap_or(0)
}
