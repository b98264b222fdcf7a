use super::*;
use crate::place::support::prepare;
use crate::place::tests::{self, cut};
use crate::place::workspace_of;
use proptest::prelude::*;
use std::vec::Vec;

fn run(blocks: &[Block], options: &Options) -> Summary {
    tests::run(Solver::Beam, blocks, options).0
}

proptest! {
    #[test]
    fn a_plan_is_valid_and_never_worse_than_without(
        rows in prop::collection::vec((0u32..40, 1u32..20, 1u64..50, 0u32..3), 1..40),
        seed: u64,
    ) {
        let blocks: Vec<Block> = rows.iter()
            .map(|&(start, width, size, log)| Block { alignment: 1 << log, ..Block::new(start, start + width, size) })
            .collect();
        let options = Options { nodes: 200, seed, ..Options::default() };
        let without = run(&blocks, &Options { nodes: 0, ..options });
        let with = run(&blocks, &options);
        prop_assert!(with.peak <= without.peak && with.lower_bound == without.lower_bound);
    }
}

#[test]
fn what_fills_the_memory_is_put_together_again() {
    let seeds = 1..=8;
    let optimal = |nodes| {
        let options = Options { nodes, ..Options::default() };
        seeds.clone().filter(|&seed| run(&cut(80, 600, 32, seed), &options).peak == 32).count()
    };
    let (without, with) = (optimal(0), optimal(20_000));
    assert!(without <= 2 && with >= 6, "{without} of 8 by one skyline, {with} with the beam");
}

#[test]
fn going_back_finds_the_partial_plans_that_were_kept() {
    // Blocks that are left out in the first half make a later section the busiest one.
    let blocks: Vec<Block> = cut(80, 600, 32, 1)
        .into_iter()
        .enumerate()
        .filter(|(i, b)| i % 5 > 0 || b.start > 300)
        .map(|(_, b)| b)
        .collect();
    let len = workspace_of(Solver::Beam, blocks.len());
    let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let problem = prepare(&blocks, &Options::default(), len, &mut scratch, &vec![0; blocks.len()]).unwrap();
    let mut beam = Beam::new(&problem, &Options::default(), &mut scratch);
    assert!(beam.pass(true, 64, 0, u64::MAX));
    let plans = |beam: &Beam<'_>| -> Vec<(Vec<Cell>, u64)> {
        let one =
            |i| (beam.now.cell.range(i * beam.row, i * beam.row + beam.now.len[i]).to_vec(), beam.now.value[i][1]);
        (0..beam.now.count).map(one).collect()
    };
    let kept = plans(&beam);
    assert!(kept.len() > 1);
    assert!(0 < beam.turn && beam.turn < beam.n && !beam.timeline.forward);
    beam.go_back(beam.n);
    assert_eq!(plans(&beam), kept);
    // Where the pass turns to the other direction of time, the partial plans hold the blocks that are alive in the
    // section at which the pass has begun, and no others.
    let start = beam.timeline.start;
    let alive = |b: &u32| beam.timeline.low[*b] <= start && start < beam.timeline.high[*b];
    let alive = (0..beam.n).filter(alive).count();
    beam.go_back(beam.turn);
    assert!(plans(&beam).iter().all(|(cells, _)| cells.len() == alive));
    assert_eq!(beam.go_back(0), u32::MAX);
    assert!(beam.timeline.forward);
    assert_eq!(plans(&beam), [(Vec::new(), 0)]);
}

#[test]
fn a_pass_begins_at_the_busiest_time_and_goes_outward() {
    // The busiest time is from 20 to 30, between a block before and two after.
    let blocks = [(0, 10, 4), (10, 30, 4), (20, 40, 4), (5, 60, 1), (40, 50, 4), (55, 60, 6)];
    let blocks = blocks.map(|(start, end, size)| Block::new(start, end, size));
    let len = workspace_of(Solver::Beam, blocks.len());
    let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let problem = prepare(&blocks, &Options::default(), len, &mut scratch, &vec![0; blocks.len()]).unwrap();
    let mut beam = Beam::new(&problem, &Options::default(), &mut scratch);
    for (forward, order) in [(true, [3, 1, 2, 4, 5, 0]), (false, [3, 1, 2, 0, 4, 5])] {
        assert!(beam.pass(forward, 9, 0, u64::MAX));
        assert_eq!((0..beam.n).map(|step| beam.order[step]).collect::<Vec<_>>(), order);
        assert_eq!(beam.turn, if forward { 5 } else { 4 });
    }
    assert!(!beam.pass(true, 8, 0, u64::MAX));
    assert_eq!(beam.gave_up, beam.timeline.start);
}

#[test]
fn peaks_that_are_far_apart_are_filled() {
    // Each of some 300 steps has its own load: only the busiest leaves no byte unused.
    let blocks = |seed: u64| -> Vec<Block> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = move |n| random.next_u32() % n;
        let block = |i: u32| Block::new(i, i + 1 + below(20) + below(20), 10 + u64::from(below(90)));
        (0..300).map(block).collect()
    };
    let optimal = |nodes| {
        let options = Options { nodes, ..Options::default() };
        let is_optimal = |&seed: &u64| {
            let found = run(&blocks(seed), &options);
            found.peak == found.lower_bound
        };
        (1..=8).filter(is_optimal).count()
    };
    let (without, with) = (optimal(0), optimal(20_000));
    assert!(without <= 2 && with >= 6, "{without} of 8 by one skyline, {with} with the beam");
}

#[test]
fn a_hard_place_is_tried_from_further_back_each_time_and_then_given_up() {
    let mut hard = retry::Hard::default();
    let backs: Vec<_> = (0..12).map(|_| hard.failed(99)).collect();
    let round = [92, 84, 68, 36].map(Some);
    assert_eq!(backs, [round, round, round].concat());
    assert_eq!(hard.failed(104), None);
    assert_eq!(hard.failed(140), Some(133));
    assert!(!hard.is_behind(148) && hard.is_behind(149));
    assert_eq!(hard.failed(3), Some(0));
}
