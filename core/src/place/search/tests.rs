//! The search against exhaustive placement, and on instances whose optimum is known.

use super::*;
use crate::place::support::prepare;
use crate::place::technique::Techniques;
use crate::place::{place, place_watched, workspace_of};
use crate::{Constraints, Error, verify};
use proptest::prelude::*;
use std::vec::Vec;

fn search(blocks: &[Block], options: &Options, incumbent: Option<Summary>, offsets: &mut [u64]) -> Summary {
    let len = workspace_of(Solver::Search, blocks.len());
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let problem = &prepare(blocks, options, len, &mut scratch, offsets).unwrap();
    let found = improve(problem, options, incumbent, scratch, offsets, &mut |_| ControlFlow::Continue(()));
    let len = verify::workspace(blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let plan = verify::verify(blocks, offsets, &options.constraints, Workspace::new(&mut words, &mut indices)).unwrap();
    assert_eq!(plan.peak(), found.peak);
    assert!(found.lower_bound <= found.peak);
    found
}

fn solve(blocks: &[Block], alignment: u64, nodes: u64) -> Summary {
    let options = Options { constraints: Constraints { alignment, capacity: None }, nodes, ..Options::default() };
    search(blocks, &options, None, &mut vec![0; blocks.len()])
}

fn fits(blocks: &[Block], alignment: u64, capacity: u64, offsets: &mut Vec<u64>) -> bool {
    let Some(b) = blocks.get(offsets.len()) else { return true };
    let step = b.alignment.max(alignment);
    for x in (0..=capacity.saturating_sub(b.size)).filter(|x| x % step == 0 && b.pin.is_none_or(|pin| pin == *x)) {
        let free =
            blocks.iter().zip(offsets.iter()).all(|(c, y)| !b.collides(c) || x + b.size <= *y || y + c.size <= x);
        if free && x + b.size <= capacity {
            offsets.push(x);
            if fits(blocks, alignment, capacity, offsets) {
                return true;
            }
            offsets.pop();
        }
    }
    false
}

fn optimum(blocks: &[Block], alignment: u64) -> u64 {
    (0..1000).find(|&capacity| fits(blocks, alignment, capacity, &mut Vec::new())).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn without_any_one_technique_the_optimum_is_the_same(
        rows in prop::collection::vec((0u32..8, 1u32..5, 1u64..7, 0u32..2), 0..7),
        without in 0..Technique::ALL.len(),
    ) {
        let blocks: Vec<Block> = rows.iter()
            .map(|&(s, w, size, log)| Block { alignment: 1 << log, ..Block::new(s, s + w, size) })
            .collect();
        let techniques = Techniques::ALL.without(Technique::ALL[without]);
        let options = Options { nodes: u64::MAX, techniques, ..Options::default() };
        let found = search(&blocks, &options, None, &mut vec![0; blocks.len()]);
        let best = optimum(&blocks, 1);
        prop_assert_eq!((found.peak, found.lower_bound), (best, best));
    }

    #[test]
    fn finds_and_proves_the_optimum(
        rows in prop::collection::vec((0u32..8, 1u32..5, 1u64..7), 0..7),
        scale in prop_oneof![Just(1u64), Just(3), Just(64)],
    ) {
        let blocks: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size * scale)).collect();
        let unscaled: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size)).collect();
        let found = solve(&blocks, 1, u64::MAX);
        let best = optimum(&unscaled, 1) * scale;
        prop_assert_eq!((found.peak, found.lower_bound), (best, best));
    }

    #[test]
    fn finds_and_proves_the_optimum_with_alignments_and_pins(
        rows in prop::collection::vec((0u32..6, 1u32..4, 1u64..6, 0u32..3, prop::option::weighted(0.2, 0u64..4)), 0..6),
        alignment in prop_oneof![Just(1u64), Just(2), Just(4)],
    ) {
        let mut blocks: Vec<Block> = Vec::new();
        for &(s, w, size, log, pin) in &rows {
            let b = Block { alignment: 1 << log, pin: pin.map(|p| p * 4), ..Block::new(s, s + w, size) };
            // Pins that overlap have no plan.
            let clash = |c: &Block| match (b.pin, c.pin) {
                (Some(x), Some(y)) => b.collides(c) && x < y + c.size && y < x + b.size,
                _ => false,
            };
            if !blocks.iter().any(clash) {
                blocks.push(b);
            }
        }
        let found = solve(&blocks, alignment, u64::MAX);
        let best = optimum(&blocks, alignment);
        prop_assert_eq!((found.peak, found.lower_bound), (best, best));
    }

    #[test]
    fn an_incumbent_is_never_made_worse(
        rows in prop::collection::vec((0u32..30, 1u32..9, 1u64..40), 1..30),
        nodes in 0u64..60,
    ) {
        let blocks: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size)).collect();
        let mut offsets = vec![0; blocks.len()];
        let first = search(&blocks, &Options { nodes: 0, ..Options::default() }, None, &mut offsets);
        let second = search(&blocks, &Options { nodes, ..Options::default() }, Some(first), &mut offsets);
        prop_assert!(second.peak <= first.peak);
        prop_assert!(second.nodes <= nodes);
    }
}

fn tight(n: usize, steps: u32, capacity: u64, seed: u64) -> Vec<Block> {
    use rand_xoshiro::rand_core::Rng;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut cells = vec![Block::new(0, steps, capacity)];
    while cells.len() < n {
        let (largest, _) = cells.iter().enumerate().max_by_key(|(_, b)| u64::from(b.width()) * b.size).unwrap();
        let b = cells.swap_remove(largest);
        let cut = |of: u64, r: u64| 1 + r % (of - 1);
        if b.size > 1 && (b.width() == 1 || random.next_u64() % 2 == 0) {
            let size = cut(b.size, random.next_u64());
            cells.extend([Block { size, ..b }, Block { size: b.size - size, ..b }]);
        } else {
            let step = b.start + u32::try_from(cut(b.width().into(), random.next_u64())).unwrap();
            cells.extend([Block { end: step, ..b }, Block { start: step, ..b }]);
        }
    }
    cells
}

#[test]
fn tight_instances_are_solved_at_their_capacity() {
    for seed in 0..40 {
        let n = 20 + 4 * seed as usize;
        let blocks = tight(n, 1000, 1 << 20, seed);
        let found = solve(&blocks, 1, 1_000_000);
        assert_eq!(found.peak, 1 << 20, "{n} blocks, seed {seed}, {} nodes", found.nodes);
    }
}

#[test]
fn a_capacity_is_reached_or_proved_to_be_too_small() {
    for seed in 0..20 {
        let mut blocks = tight(24, 100, 1000, seed);
        let ask = |blocks: &[Block]| {
            let constraints = Constraints { alignment: 1, capacity: Some(1000) };
            let len = workspace_of(Solver::Search, blocks.len());
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let scratch = Workspace::new(&mut words, &mut indices);
            let options = Options { constraints, nodes: u64::MAX, ..Options::default() };
            place(Solver::Search, blocks, &options, scratch, &mut vec![0; blocks.len()])
        };
        assert!(ask(&blocks).is_ok_and(|found| found.peak <= 1000), "seed {seed}");
        blocks[0].size += 1;
        let refused = ask(&blocks);
        let proved = |lower_bound| lower_bound > 1000;
        assert!(matches!(refused, Err(Error::OverCapacity { lower_bound, .. }) if proved(lower_bound)), "seed {seed}");
    }
}

#[test]
fn rows_names_and_scale_of_time_do_not_matter() {
    for seed in 0..10 {
        let blocks = tight(60, 200, 997, seed);
        // Not tight any more: the search has to come down from above.
        let blocks: Vec<Block> = blocks.iter().filter(|b| b.size % 7 != 0).copied().collect();
        let mut other: Vec<Block> =
            blocks.iter().map(|b| Block { start: 3 * b.start + 5, end: 3 * b.end + 5, ..*b }).collect();
        other.reverse();
        other.rotate_left(7);
        assert_eq!(solve(&blocks, 1, 20_000), solve(&other, 1, 20_000));
    }
}

#[test]
fn a_callback_that_breaks_ends_the_search_with_a_valid_plan() {
    let blocks = tight(200, 1000, 1 << 20, 3);
    let len = workspace_of(Solver::Search, blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let mut offsets = vec![0; blocks.len()];
    let scratch = Workspace::new(&mut words, &mut indices);
    let mut calls = 0;
    let mut watch = |_: &Summary| {
        calls += 1;
        ControlFlow::Break(())
    };
    let found = place_watched(Solver::Search, &blocks, &Options::default(), scratch, &mut offsets, &mut watch).unwrap();
    let len = verify::workspace(blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let plan = verify::verify(&blocks, &offsets, &Constraints::NONE, Workspace::new(&mut words, &mut indices)).unwrap();
    assert_eq!(plan.peak(), found.peak);
    assert_eq!(calls, 1);
}

const HARD: [(u32, u32, u64); 18] = [
    (1, 4, 9),
    (0, 3, 21),
    (3, 8, 1),
    (7, 8, 2),
    (0, 1, 9),
    (3, 8, 3),
    (0, 4, 1),
    (0, 7, 23),
    (1, 4, 2),
    (1, 5, 2),
    (0, 8, 1),
    (7, 8, 51),
    (4, 6, 13),
    (0, 4, 1),
    (3, 6, 17),
    (5, 8, 2),
    (0, 1, 4),
    (6, 7, 30),
];

#[test]
fn what_was_refuted_is_not_searched_again() {
    let blocks = HARD.map(|(start, end, size)| Block::new(start, end, size));
    let found = solve(&blocks, 1, 20_000);
    assert_eq!((found.peak, found.lower_bound), (62, 62));
}

#[test]
fn a_long_search_gets_nearer_to_the_bound_if_it_begins_near_the_best_plan() {
    let above_the_bound = |techniques| {
        let of = |(n, steps, capacity, seed)| {
            let blocks = tight(n, steps, capacity, seed).into_iter().filter(|b| b.size % 9 != 0).collect::<Vec<_>>();
            let options = Options { nodes: 300_000, techniques, ..Options::default() };
            let found = search(&blocks, &options, None, &mut vec![0; blocks.len()]);
            found.peak - found.lower_bound
        };
        (1..=6).flat_map(|seed| [(120, 40, 4000, seed), (240, 100, 1000, seed)]).map(of).sum::<u64>()
    };
    let [guided, unguided] = [Techniques::ALL, Techniques::ALL.without(Technique::Guidance)].map(above_the_bound);
    assert!(guided < unguided, "{guided} bytes, {unguided} without");
}
