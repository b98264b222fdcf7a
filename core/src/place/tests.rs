//! One suite that runs every placer.

use super::auto::BEST_FIT_FIRST;
use super::*;
use crate::error::Buffer;
use crate::verify::{self, verify};
use crate::{Block, Constraints, Error, Workspace};
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::vec::Vec;

pub(super) fn run(solver: Solver, blocks: &[Block], options: &Options) -> (Summary, Vec<u64>) {
    let len = workspace_of(solver, blocks.len()).max(verify::workspace(blocks.len()));
    // What the workspace and the offsets hold before must not matter.
    let (mut words, mut indices) = (vec![!7; len.words], vec![!7; len.indices]);
    let mut offsets = vec![!7; blocks.len()];
    let summary = place(solver, blocks, options, Workspace::new(&mut words, &mut indices), &mut offsets);
    let summary = summary.unwrap_or_else(|e| panic!("{}: {e}", solver.name()));
    let plan = verify(blocks, &offsets, &options.constraints, Workspace::new(&mut words, &mut indices));
    let plan = plan.unwrap_or_else(|e| panic!("{}: {e}", solver.name()));
    assert_eq!(plan.peak(), summary.peak, "{}", solver.name());
    assert!(summary.lower_bound <= summary.peak && plan.max_load() <= summary.lower_bound, "{}", solver.name());
    (summary, offsets)
}

pub(super) fn cut(n: usize, steps: u32, bytes: u64, seed: u64) -> Vec<Block> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut parts = vec![(0u32, steps, bytes)];
    while parts.len() < n {
        let i = random.next_u32() as usize % parts.len();
        let (start, end, size) = parts[i];
        if random.next_u32() % 2 == 0 && end - start > 1 {
            let at = start + 1 + random.next_u32() % (end - start - 1);
            parts[i].1 = at;
            parts.push((at, end, size));
        } else if size > 1 {
            let below = 1 + u64::from(random.next_u32()) % (size - 1);
            parts[i].2 = below;
            parts.push((start, end, size - below));
        }
    }
    parts.into_iter().map(|(start, end, size)| Block::new(start, end, size)).collect()
}

fn blocks() -> impl Strategy<Value = Vec<Block>> {
    prop::collection::vec((0u32..40, 1u32..20, 1u64..50, 0u32..4), 0..40).prop_map(|rows| {
        let block = |(start, width, size, log): (u32, u32, u64, u32)| Block {
            alignment: 1u64 << log,
            ..Block::new(start, start + width, size)
        };
        rows.into_iter().map(block).collect()
    })
}

proptest! {
    #[test]
    fn every_plan_is_valid_and_auto_is_never_worse(blocks in blocks(), alignment in 0u32..4, seed: u64) {
        let constraints = Constraints { alignment: 1 << alignment, capacity: None };
        let options = Options { constraints, seed, work: 2000, nodes: 200, ..Options::default() };
        let (auto, _) = run(Solver::Auto, &blocks, &options);
        for solver in Solver::HEURISTICS {
            let (summary, _) = run(solver, &blocks, &options);
            prop_assert!(auto.peak <= summary.peak, "{} has {}", solver.name(), summary.peak);
        }
    }

    #[test]
    fn pinned_blocks_stay_and_nothing_hits_them(blocks in blocks(), which in prop::collection::vec(any::<bool>(), 40), shift in 0u64..100) {
        // Pins that are compatible with each other, because they are taken from a valid plan and lifted together.
        let options = Options { work: 500, nodes: 100, ..Options::default() };
        let (_, offsets) = run(Solver::BestFit, &blocks, &options);
        let mut pinned = blocks.clone();
        for (i, b) in pinned.iter_mut().enumerate() {
            b.pin = which[i].then_some(offsets[i] + shift * 8);
        }
        for solver in Solver::all() {
            run(solver, &pinned, &options);
        }
    }

    #[test]
    fn the_same_call_gives_the_same_plan(blocks in blocks(), seed: u64) {
        let options = Options { seed, work: 2000, nodes: 200, ..Options::default() };
        for solver in Solver::all() {
            prop_assert_eq!(run(solver, &blocks, &options), run(solver, &blocks, &options));
        }
    }
}

#[test]
fn every_shorter_buffer_is_refused_with_the_length_that_is_enough() {
    let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8), Block::new(2, 4, 4), Block::new(0, 9, 1)];
    for solver in Solver::all() {
        let len = workspace_of(solver, blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        for offsets_len in 0..=blocks.len() {
            for w in 0..=len.words {
                for i in [0, 1, len.indices - 1, len.indices] {
                    let mut offsets = vec![0; offsets_len];
                    let scratch = Workspace::new(&mut words[..w], &mut indices[..i]);
                    let expected = if offsets_len < blocks.len() {
                        Some((Buffer::Offsets, blocks.len(), offsets_len))
                    } else if w < len.words {
                        Some((Buffer::Words, len.words, w))
                    } else if i < len.indices {
                        Some((Buffer::Indices, len.indices, i))
                    } else {
                        None
                    };
                    let expected = expected.map(|(buffer, needed, got)| Error::BufferTooSmall { buffer, needed, got });
                    let got = place(solver, &blocks, &Options::default(), scratch, &mut offsets);
                    assert_eq!(got.err(), expected, "{}", solver.name());
                }
            }
        }
    }
}

#[test]
fn a_missed_capacity_tells_the_peak_and_the_bound() {
    let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8)];
    let constraints = Constraints { alignment: 1, capacity: Some(11) };
    for solver in Solver::all() {
        let len = workspace_of(solver, blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut offsets = [0; 2];
        let options = Options { constraints, ..Options::default() };
        let got = place(solver, &blocks, &options, Workspace::new(&mut words, &mut indices), &mut offsets);
        assert_eq!(got, Err(Error::OverCapacity { peak: 12, lower_bound: 12, capacity: 11 }), "{}", solver.name());
    }
}

#[test]
fn the_highest_capacity_is_as_none() {
    let blocks = [Block::new(0, 2, 4), Block::new(1, 3, 8)];
    let constraints = Constraints { alignment: 1, capacity: Some(u64::MAX) };
    for solver in Solver::all() {
        assert_eq!(run(solver, &blocks, &Options { constraints, ..Options::default() }).0.peak, 12);
    }
}

#[test]
fn pins_that_overlap_are_refused() {
    let pin = |start, offset| Block { pin: Some(offset), ..Block::new(start, start + 2, 8) };
    let blocks = [Block::new(0, 9, 1), pin(0, 8), pin(2, 8), pin(1, 15)];
    for solver in Solver::all() {
        let len = workspace_of(solver, blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let scratch = Workspace::new(&mut words, &mut indices);
        let got = place(solver, &blocks, &Options::default(), scratch, &mut [0; 4]);
        assert_eq!(got, Err(Error::PinsOverlap { first: 1, second: 3 }), "{}", solver.name());
    }
}

#[test]
fn extreme_sizes_and_steps_are_placed() {
    let blocks = [
        Block::new(0, u32::MAX, 1 << 60),
        Block::new(u32::MAX - 1, u32::MAX, 1 << 62),
        Block { pin: Some(1 << 63), ..Block::new(5, 6, 1) },
    ];
    for solver in Solver::all() {
        assert_eq!(run(solver, &blocks, &Options::default()).0.peak, (1 << 63) + 1, "{}", solver.name());
        // The highest peak that a plan can have: `u64::MAX` stands for no plan.
        assert_eq!(run(solver, &[Block::new(0, 1, u64::MAX - 1)], &Options::default()).0.peak, u64::MAX - 1);
    }
}

#[test]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a draw")]
fn blocks_without_pattern_waste_little_however_many_there_are() {
    const ALIVE: f64 = 60.0;
    for n in [search::MOST_BLOCKS as u32 - 500, search::MOST_BLOCKS as u32 + 500] {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(77);
        let mut unit = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut block = |start| {
            let lifetime = 1 + (-libm::log(1.0 - unit()) * ALIVE) as u32;
            Block::new(start, start + lifetime, (unit() * f64::from(1u32 << 22)) as u64 + 1)
        };
        let blocks: Vec<Block> = (0..n).map(&mut block).collect();
        let found = run(Solver::Auto, &blocks, &Options::default()).0;
        assert!(found.peak as f64 <= found.lower_bound as f64 * 1.005, "{n}: {found:?}");
    }
}

/// A pinned block hangs above the plan that grows below it, and costs nothing.
#[test]
fn the_room_below_pinned_blocks_is_used() {
    let options = Options { nodes: 0, ..Options::default() };
    for seed in 0..4 {
        let mut blocks = cut(200, 100, 10_000, seed);
        let (free, offsets) = run(Solver::Multistart, &blocks, &options);
        for i in (0..blocks.len()).step_by(10) {
            blocks[i].pin = Some(offsets[i]);
        }
        let (pinned, _) = run(Solver::Multistart, &blocks, &options);
        assert!(pinned.peak * 100 <= free.peak * 112, "{pinned:?} {free:?}");
        let (auto, _) = run(Solver::Auto, &blocks, &Options::default());
        assert!(auto.peak * 100 <= free.peak * 105, "{auto:?} {free:?}");
    }
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn large_blocks_that_come_and_go_are_placed_first() {
    let instance = |steps, seed| {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut below = |n: u32| random.next_u32() % n;
        let (mut blocks, mut alive): (Vec<Block>, Vec<Block>) = (vec![], vec![]);
        for now in 0..steps {
            let size = if below(10) > 0 { 16 } else { 1024 + 226 * u64::from(below(8) / 7) };
            let lifetime = if size == 16 { 40 + below(200) } else { 6 + (1 << below(12)) };
            alive.push(Block::new(now, now + lifetime, size));
            alive.retain(|&b| {
                if b.end <= now {
                    blocks.push(b);
                }
                b.end > now
            });
            while alive.iter().map(|b| b.size).sum::<u64>() > 19_000 {
                let large = alive.iter().position(|b| b.size > 16 && b.start < now).unwrap();
                let swapped = alive.remove((large + below(4) as usize).min(alive.len() - 2));
                blocks.push(Block { end: now, ..swapped });
            }
        }
        blocks.extend(alive);
        blocks
    };
    let mut directions = [false; 2];
    // With fewer blocks, little work is allowed, as for the schedules of a fit.
    let few = Options { work: 25_000, nodes: 0, ..Options::default() };
    for (steps, options, seed) in (3..=4).flat_map(|seed| [(7_000, Options::default(), seed), (2_500, few, seed)]) {
        let blocks = instance(steps, seed);
        let ratio = |solver| {
            let found = run(solver, &blocks, &options).0;
            found.peak as f64 / found.lower_bound as f64
        };
        let [upwards, forward, backward, auto] =
            [Solver::Multistart, Solver::Coloring(Fit::First), Solver::ColoringBackward, Solver::Auto].map(ratio);
        assert!(auto <= forward.min(backward) && auto < upwards, "{auto} {forward} {backward} {upwards}");
        directions[usize::from(backward < forward)] = true;
    }
    assert_eq!(directions, [true; 2]);
}

#[test]
fn best_fit_comes_first_where_blocks_are_many() {
    let chain = |n: usize| -> Vec<Block> { (0..n as u32).map(|i| Block::new(i, i + 2, 8)).collect() };
    for (n, first) in [(BEST_FIT_FIRST - 1, Solver::Multistart), (BEST_FIT_FIRST, Solver::BestFit)] {
        let (found, _) = run(Solver::Auto, &chain(n), &Options::default());
        assert_eq!((found.peak, found.solver), (16, first));
    }
}

#[test]
fn memory_for_many_blocks_is_enough_for_fewer() {
    let most = search::MOST_BLOCKS;
    for solver in [Solver::Auto, Solver::Portfolio, Solver::Search] {
        for n in [0, 600, most - 1, most, most + 1, 2 * most, 20 * most] {
            let len = workspace_up_to(solver, n);
            for fewer in [n / 4, n / 2, n.saturating_sub(1), n, n.min(most)] {
                assert_eq!(len.max(workspace_of(solver, fewer)), len, "{} {n} {fewer}", solver.name());
            }
        }
    }
    assert_ne!(workspace_up_to(Solver::Auto, most + 1), workspace_of(Solver::Auto, most + 1));
}
