//! The quality of plans for seeded instances.

use rand::RngExt;
use sublet_core::place::{Options, Solver};
use sublet_core::{Block, Constraints};
use sublet_tests::instance::{self, TIGHT_HEIGHT};
use sublet_tests::{place, place_with};

#[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
fn ratio(blocks: &[Block]) -> f64 {
    let (summary, _) = place(Solver::Auto, blocks);
    summary.peak as f64 / summary.lower_bound as f64
}

#[test]
fn many_blocks_few_alive_are_placed_at_max_load() {
    let ratio = ratio(&instance::random(100_000, 60, 1));
    assert!(ratio <= 1.0001, "{ratio}");
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn many_blocks_alive_are_placed_within_two_percent() {
    for seed in 1..=3 {
        let ratio = ratio(&instance::random(60_000, 9_000, seed));
        assert!(ratio <= 1.02, "seed {seed}: {ratio}");
    }
}

/// `traces/hard.csv` is what `generate tight 120 13` prints: a full rectangle that no heuristic fills.
#[test]
fn the_hard_instance_is_the_generators_and_hard() {
    let (blocks, _) = instance::tight(120, 13);
    let mut written = Vec::new();
    instance::write(&blocks, &mut written).unwrap();
    let committed = include_str!("../traces/hard.csv");
    assert!(String::from_utf8(written).unwrap() == committed, "the generator writes another traces/hard.csv");
    for solver in Solver::HEURISTICS {
        let (summary, _) = place(solver, &blocks);
        assert_eq!(summary.lower_bound, TIGHT_HEIGHT);
        assert!(summary.peak > TIGHT_HEIGHT, "{} solves it", solver.name());
    }
}

/// Instances that are known to fill a rectangle, with numbers of blocks that are met in practice, are placed within its
/// height.
#[test]
fn full_rectangles_are_filled() {
    let constraints = Constraints { alignment: 1, capacity: Some(TIGHT_HEIGHT) };
    let options = Options { constraints, ..Options::default() };
    let fills = |n, seed| place_with(Solver::Auto, &instance::tight(n, seed).0, &options).is_ok();
    let filled: usize =
        [50, 100, 150, 200, 250, 300].iter().map(|&n| (1..=10).filter(|&seed| fills(n, seed)).count()).sum();
    println!("{filled} of 60 rectangles filled");
    assert!(filled >= 57, "only {filled} of 60");
}

/// The portfolio gives its whole budget of work to `multistart`, the first of the heuristics, and so does `auto` with
/// no nodes for the exact search. With nodes, `auto` keeps a part of the work for later rounds with other seeds, so
/// that only the other heuristics are a bound on its peak.
#[test]
fn the_best_of_the_heuristics_is_never_missed() {
    let mut rng = instance::rng(3);
    for seed in 0..60 {
        let n = rng.random_range(1..150);
        let mut blocks = instance::random(n, rng.random_range(1..40), seed);
        for b in &mut blocks {
            b.alignment = 1 << [0, 0, 0, 6, 9, 12][rng.random_range(0..6)];
        }
        let constraints = Constraints { alignment: 1 << rng.random_range(0..9), capacity: None };
        let options = Options { constraints, seed, work: 20_000, nodes: 0, ..Options::default() };
        if rng.random() {
            // Pins that do not overlap: offsets of a plan, all raised by the same number of bytes.
            let (_, offsets) = place_with(Solver::BestFit, &blocks, &options).unwrap();
            let lift = rng.random_range(0..64) << 12;
            for (b, offset) in blocks.iter_mut().zip(offsets) {
                b.pin = rng.random_ratio(1, 8).then_some(offset + lift);
            }
        }
        let peak = |solver, nodes| place_with(solver, &blocks, &Options { nodes, ..options }).unwrap().0.peak;
        let best = Solver::HEURISTICS.map(|solver| peak(solver, 0)).into_iter().min().unwrap();
        assert_eq!(peak(Solver::Portfolio, 0), best, "seed {seed}");
        assert!(peak(Solver::Auto, 0) <= best, "seed {seed}");
        let but_starts = Solver::HEURISTICS[1..].iter().map(|&solver| peak(solver, 0)).min().unwrap();
        assert!(peak(Solver::Auto, 2_000) <= but_starts, "seed {seed}");
    }
}
