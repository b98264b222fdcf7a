#![expect(clippy::cast_precision_loss, reason = "small numbers, and a ratio")]

use super::*;
use crate::place::{place as place_by, workspace_of};
use crate::verify::{self, verify};
use proptest::prelude::*;
use std::vec::Vec;

fn without_pattern(n: u32, alive: f64, seed: u64, size: impl Fn(f64) -> f64) -> Vec<Block> {
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut block = |i| {
        let width = 1 + share(-libm::log(1.0 - unit(&mut random)), alive);
        Block::new(i, i + width, 1 + u64::from(share(size(unit(&mut random)), 1.0)))
    };
    (0..n).map(&mut block).collect()
}

fn ratio(solver: Solver, blocks: &[Block]) -> f64 {
    let len = workspace_of(solver, blocks.len()).max(verify::workspace(blocks.len()));
    let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
    let mut offsets = vec![0; blocks.len()];
    let options = Options::default();
    let scratch = Workspace::new(&mut words, &mut indices);
    let peak = place_by(solver, blocks, &options, scratch, &mut offsets).unwrap().peak;
    let scratch = Workspace::new(&mut words, &mut indices);
    let plan = verify(blocks, &offsets, &options.constraints, scratch).unwrap();
    assert_eq!(plan.peak(), peak);
    peak as f64 / plan.max_load() as f64
}

#[test]
fn an_instance_without_pattern_is_placed_near_the_max_load() {
    let blocks = without_pattern(20_000, 2_000.0, 1, |u| u * 4_194_304.0);
    let [outward, auto] = [Solver::Outward, Solver::Auto].map(|solver| ratio(solver, &blocks));
    assert!(outward < 1.0135, "{outward}");
    assert!(auto < 1.0125, "{auto}");
}

proptest! {
    #[test]
    fn one_side_is_placed_as_the_rules_say(
        rows in prop::collection::vec((1u32..30, 1u32..20, 1u64..20), 1..60), before in prop::collection::vec((2u32..40, 1u64..20), 1..12),
    ) {
        let mut blocks: Vec<Block> = before.iter().map(|&(end, size)| Block::new(0, end, size)).collect();
        // So that the busiest step is the first.
        blocks.push(Block::new(0, 1, 2000));
        blocks.extend(rows.iter().map(|&(start, width, size)| Block::new(start, start + width, size)));
        let n = blocks.len();
        let len = workspace(n);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let sweep = Sweep::new(&blocks, scratch.split(interval::workspace(n))).unwrap();
        let mut space = Space::new(&blocks, 1, &sweep, &mut scratch);
        let mut offset = scratch.words(n);
        space.stack(4, 0.0, &mut || 0.0, &mut offset);
        let peak = space.run(Side::Right, 3.0, u64::MAX, &mut offset).unwrap();
        let mut placed: Vec<usize> = space.stack.first(space.stack_len).iter().map(|&i| i as usize).collect();
        let mut highest = placed.iter().map(|&i| offset[i as u32] + blocks[i].size).max().unwrap();
        for &i in sweep.by_start() {
            let b = blocks[i as usize];
            if b.start == 0 {
                continue;
            }
            let mut alive: Vec<usize> = placed.iter().copied().filter(|&j| blocks[j].end > b.start).collect();
            alive.sort_by_key(|&j| offset[j as u32]);
            let mut bottom = (0, None);
            let mut gaps = Vec::new();
            for &j in &alive {
                let begin = offset[j as u32];
                if begin >= bottom.0 + b.size {
                    gaps.push((begin - bottom.0, bottom.1.map_or(n, |k| k), j, bottom.0));
                }
                bottom = (begin + blocks[j].size, Some(j));
            }
            gaps.sort_unstable();
            let apart = |j: usize| {
                if j == n { 0.0 } else { 3.0 * b.size as f64 / f64::from(b.width()) * f64::from(blocks[j].end.abs_diff(b.end)) }
            };
            let mut best = (f64::INFINITY, bottom.0);
            for (bytes, below, above, begin) in gaps {
                let waste = (bytes - b.size).min(b.size) as f64;
                let (low, high) = (apart(below), apart(above));
                let cost = if bytes == b.size { 0.0 } else { waste + low.min(high) };
                if cost < best.0 {
                    best = (cost, if low <= high { begin } else { begin + bytes - b.size });
                }
            }
            prop_assert_eq!(offset[i], best.1);
            highest = highest.max(best.1 + b.size);
            placed.push(i as usize);
        }
        prop_assert_eq!(peak, highest);
    }
}
