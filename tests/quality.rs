//! How good the plans of seeded instances are.

use sublet_core::Block;
use sublet_core::place::Solver;
use sublet_tests::instance::{self, TIGHT_HEIGHT};
use sublet_tests::place;

#[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
fn ratio(blocks: &[Block]) -> f64 {
    let (summary, _) = place(Solver::Auto, blocks);
    summary.peak as f64 / summary.lower_bound as f64
}

#[test]
fn many_blocks_few_alive_are_placed_at_max_load() {
    for seed in 1..=3 {
        let ratio = ratio(&instance::random(100_000, 60, seed));
        assert!(ratio <= 1.0001, "seed {seed}: {ratio}");
    }
}

#[test]
fn many_blocks_alive_are_placed_within_two_percent() {
    for seed in 1..=3 {
        let ratio = ratio(&instance::random(60_000, 9_000, seed));
        assert!(ratio <= 1.02, "seed {seed}: {ratio}");
    }
}

/// `traces/hard.csv` is what `generate tight 120 13` prints, and what it is there for: a full rectangle that no
/// heuristic fills.
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
