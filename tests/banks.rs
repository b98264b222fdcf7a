//! Placement in several banks of memory against a MIP solver: the least cost is between the lower bound and the cost
//! that is found, and is the cost that is found in 95 % of all cases.

use crate::oracle;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use sublet_core::place::banks::{self, Bank, Spot, Use};
use sublet_core::{Block, Error, Workspace};
use sublet_tests::instance;

const CASES: usize = 200;

struct Case {
    blocks: Vec<Block>,
    uses: Vec<Use>,
    banks: Vec<Bank>,
}

impl Case {
    /// Draws a fast bank, sometimes a second one, and a slow one, which is sometimes tight too.
    fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let n = rng.random_range(2..=10);
        let mut blocks = Vec::new();
        for _ in 0..n {
            let start = rng.random_range(0..10);
            blocks.push(Block::new(start, start + rng.random_range(1..7), rng.random_range(1..24)));
        }
        let alignment = [1, 1, 4][rng.random_range(0..3)];
        let bank = |capacity, cost| Bank { capacity, cost, alignment };
        let mut banks = vec![bank(rng.random_range(8..48), 1)];
        if rng.random_ratio(1, 2) {
            banks.push(bank(rng.random_range(8..48), 2));
        }
        banks.push(bank(rng.random_range(48..200), 5));
        let all = (1 << banks.len()) - 1;
        let mut uses = Vec::new();
        for _ in 0..n {
            // Some blocks may not lie in the fast bank.
            let banks = if rng.random_ratio(1, 8) { all & !1 } else { all };
            uses.push(Use { touched: rng.random_range(0..100), banks });
        }
        Self { blocks, uses, banks }
    }

    fn json(&self) -> Value {
        let blocks: Vec<Value> = self.blocks.iter().map(|b| json!([b.start, b.end, b.size])).collect();
        let allowed = |u: &Use| (0..self.banks.len()).filter(|k| u.banks >> k & 1 == 1).collect::<Vec<_>>();
        let uses: Vec<Value> = self.uses.iter().map(|u| json!([u.touched, allowed(u)])).collect();
        let banks: Vec<Value> = self.banks.iter().map(|b| json!([b.capacity, b.cost, b.alignment])).collect();
        json!({"blocks": blocks, "uses": uses, "banks": banks})
    }
}

#[test]
fn the_least_cost_is_between_the_bound_and_what_is_found() {
    let mut rng = instance::rng(20);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut rng)).collect();
    let questions: Vec<Value> = cases.iter().map(Case::json).collect();
    let skipped = "banks are not held against a MIP solver";
    let Some(least) = oracle::ask::<Option<u128>>("banks_oracle.py", "highspy", skipped, &questions) else { return };
    let (mut equal, mut proved, mut found, mut best) = (0, 0, 0, 0);
    for (case, least) in cases.iter().zip(least) {
        let mut spots = vec![Spot::default(); case.blocks.len()];
        let len = banks::workspace(case.blocks.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let scratch = Workspace::new(&mut words, &mut indices);
        match (banks::place(&case.blocks, &case.uses, &case.banks, scratch, &mut spots), least) {
            (Ok(cost), Some(least)) => {
                assert!(cost.lower_bound <= least && least <= cost.cost, "{}: {cost:?} {least}", case.json());
                let few = case.blocks.len() <= 12;
                assert!(!few || cost.cost == least && cost.lower_bound == least, "{}: {cost:?} {least}", case.json());
                equal += usize::from(cost.cost == least);
                proved += usize::from(cost.cost == cost.lower_bound);
                found += cost.cost;
                best += least;
            }
            // With more than 12 blocks, the heuristic may find no placement.
            (Err(Error::NoBank { proved: true, .. }), None) => {}
            (Err(Error::NoBank { proved: false, .. }), _) if case.blocks.len() > 12 => {}
            (got, least) => panic!("{}: {got:?} {least:?}", case.json()),
        }
    }
    println!("{equal} of {CASES} at the least cost, {proved} of them proved; in sum {found}, the least {best}");
    assert!(
        equal >= CASES * 95 / 100 && proved >= CASES / 2 && found <= best * 101 / 100,
        "{equal} {proved} {found} {best}"
    );
}
