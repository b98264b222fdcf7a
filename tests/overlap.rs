//! The exact search for placements in which outputs overlap with their dying inputs, against a MIP solver: what the
//! search proves optimal is optimal.

use crate::oracle;

use std::ops::ControlFlow;

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::{Value, json};
use sublet_core::place::{Options, overlap};
use sublet_core::{Block, Constraints, Overlap, Workspace, verify};
use sublet_tests::instance;

const CASES: usize = 100;

struct Case {
    blocks: Vec<Block>,
    overlaps: Vec<Overlap>,
}

impl Case {
    /// Draws the values of a small network. Each operator reads up to two earlier values, and its output may overlap
    /// with those that die with the operator.
    fn draw(rng: &mut Xoshiro256PlusPlus) -> Self {
        let alignment = if rng.random_ratio(1, 3) { 4 } else { 1 };
        let n = rng.random_range(3..=8);
        let mut blocks: Vec<Block> = Vec::new();
        let mut reads = Vec::new();
        for k in 0..n {
            // Each value lives at least until the next operator has run, and until its last reader has.
            let size = rng.random_range(1..40);
            let start = u32::try_from(k).unwrap();
            blocks.push(Block { alignment, ..Block::new(start, start + 2, size) });
            let inputs: Vec<usize> = (0..k.min(2)).map(|_| rng.random_range(0..k)).collect();
            for &input in &inputs {
                blocks[input].end = blocks[input].end.max(start + 1);
            }
            reads.push(inputs);
        }
        let mut overlaps = Vec::new();
        for (output, mut inputs) in reads.into_iter().enumerate() {
            inputs.sort_unstable();
            inputs.dedup();
            // Only inputs that die with the operator.
            for input in inputs.into_iter().filter(|&input| blocks[input].end == blocks[output].start + 1) {
                let distance = rng.random_range(0..=blocks[output].size);
                let [output, input] = [output, input].map(|block| u32::try_from(block).unwrap());
                overlaps.push(Overlap { output, input, distance });
            }
        }
        if rng.random_ratio(1, 4) {
            blocks[rng.random_range(0..n)].pin = Some(4 * rng.random_range(0..10));
        }
        Self { blocks, overlaps }
    }

    fn json(&self) -> Value {
        let blocks: Vec<Value> =
            self.blocks.iter().map(|b| json!([b.start, b.end, b.size, b.alignment, b.pin])).collect();
        let overlaps: Vec<Value> = self.overlaps.iter().map(|o| json!([o.output, o.input, o.distance])).collect();
        json!({"blocks": blocks, "overlaps": overlaps})
    }

    /// The peak, the lower bound of the search, and the max load that the verifier counts, all in bytes.
    fn place(&self, options: &Options) -> [u64; 3] {
        let n = self.blocks.len();
        let len = overlap::workspace(n);
        let (mut words, mut indices, mut offsets) = (vec![7; len.words], vec![7; len.indices], vec![0; n]);
        let scratch = Workspace::new(&mut words, &mut indices);
        let go_on = &mut |_: &_| ControlFlow::Continue(());
        let found = overlap::place(&self.blocks, &self.overlaps, options, scratch, &mut offsets, go_on).unwrap();
        let mut indices = vec![7; verify::overlap_workspace(n).indices];
        let scratch = Workspace::new(&mut [], &mut indices);
        let plan = verify::verify_overlapping(&self.blocks, &self.overlaps, &offsets, &Constraints::NONE, scratch);
        let plan = plan.unwrap_or_else(|e| panic!("{}: {e}", self.json()));
        assert_eq!(plan.peak(), found.peak, "{}", self.json());
        [found.peak, found.lower_bound, plan.max_load()]
    }
}

#[test]
fn what_the_search_proves_is_the_optimum_of_the_mip() {
    let mut rng = instance::rng(6);
    let cases: Vec<Case> = (0..CASES).map(|_| Case::draw(&mut rng)).collect();
    let questions: Vec<Value> = cases.iter().map(Case::json).collect();
    let skipped = "the search with overlaps is not held against a MIP solver";
    let Some(least) = oracle::ask::<u64>("overlap_oracle.py", "highspy", skipped, &questions) else { return };
    let (mut lifted, mut lowered) = (0, 0);
    for (case, least) in cases.iter().zip(least) {
        // With little work for the heuristics, and the whole default budget of nodes for the exact search.
        let [peak, lower_bound, max_load] = case.place(&Options { work: 0, ..Options::default() });
        assert_eq!([peak, lower_bound], [least; 2], "{}", case.json());
        let [heuristic, ..] = case.place(&Options { work: 0, nodes: 0, ..Options::default() });
        lifted += usize::from(lower_bound > max_load);
        lowered += usize::from(peak < heuristic);
    }
    println!("{CASES} at the optimum; {lifted} above the load, {lowered} below the heuristics");
    assert!(lifted > CASES / 20 && lowered > CASES / 20, "{lifted} {lowered}");
}
