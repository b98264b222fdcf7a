//! The verifier against a MIP solver: a plan is accepted exactly if the mixed integer program has a solution with these
//! offsets.

use crate::oracle;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use sublet_core::place::{Fit, Order, Solver};
use sublet_core::{Block, Constraints};
use sublet_tests::{instance, place, verify};

const CASES: usize = 1000;

/// A small problem and a plan of it, which may be spoiled.
struct Case {
    blocks: Vec<Block>,
    offsets: Vec<u64>,
    constraints: Constraints,
}

impl Case {
    /// Draws a case. Sizes and offsets are small, so that blocks touch often, and the solver's tolerances do not
    /// matter.
    fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let n = rng.random_range(1..=10);
        let mut blocks: Vec<Block> = (0..n)
            .map(|_| {
                let start = rng.random_range(0..12);
                let alignment = if rng.random_ratio(1, 4) { 1 << rng.random_range(1..4) } else { 1 };
                Block { alignment, ..Block::new(start, start + rng.random_range(1..8), rng.random_range(1..24)) }
            })
            .collect();
        let solver =
            [Solver::BestFit, Solver::Greedy(Order::Size, Fit::First), Solver::Greedy(Order::Start, Fit::Best)]
                [rng.random_range(0..3)];
        let (summary, mut offsets) = place(solver, &blocks);
        if rng.random_ratio(1, 4) {
            let i = rng.random_range(0..blocks.len());
            blocks[i].pin = Some(offsets[i]);
        }
        let mut constraints = Constraints { alignment: 1, capacity: Some(summary.peak + rng.random_range(0..3)) };
        let i = rng.random_range(0..blocks.len());
        // Some of these changes leave the plan valid: the solver decides.
        match rng.random_range(0..8) {
            0 => offsets[i] += 1,
            1 => offsets[i] = offsets[i].saturating_sub(1),
            2 => offsets[i] = rng.random_range(0..=summary.peak),
            3 => blocks[i].size += 1,
            4 => blocks[i].end += 1,
            5 => constraints.capacity = Some(summary.peak - 1),
            6 => constraints.alignment = 4,
            _ => {}
        }
        Self { blocks, offsets, constraints }
    }

    fn json(&self) -> Value {
        let blocks: Vec<Value> =
            self.blocks.iter().map(|b| json!([b.start, b.end, b.size, b.alignment, b.pin])).collect();
        json!({
            "blocks": blocks,
            "offsets": self.offsets,
            "alignment": self.constraints.alignment,
            "capacity": self.constraints.capacity,
        })
    }
}

#[test]
fn the_verifier_accepts_what_the_mip_accepts() {
    let mut rng = instance::rng(1);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut rng)).collect();

    let questions: Vec<Value> = cases.iter().map(Case::json).collect();
    let skipped = "the verifier is not held against a MIP solver";
    let Some(peaks) = oracle::ask::<Option<u64>>("mip_oracle.py", "highspy", skipped, &questions) else { return };

    let valid = peaks.iter().flatten().count();
    assert!((CASES / 4..=CASES * 3 / 4).contains(&valid), "{valid} of {CASES} cases are valid: too one-sided");
    for (case, peak) in cases.iter().zip(peaks) {
        let found = verify(&case.blocks, &case.offsets, &case.constraints);
        assert_eq!(found.as_ref().ok().map(sublet_core::VerifiedPlan::peak), peak, "{}: {found:?}", case.json());
    }
}
