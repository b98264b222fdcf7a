use super::*;
use crate::place::tests::cut;
use crate::place::{self, Options, Solver};
use crate::verify;
use std::vec::Vec;

fn scratch(blocks: &[Block]) -> (Vec<u64>, Vec<u32>) {
    let n = blocks.len();
    let len = workspace(n).max(verify::workspace(n)).max(place::workspace_of(Solver::BestFit, n));
    (vec![7; len.words], vec![7; len.indices])
}

/// How many blocks begin over memory that died in their first step or one before.
fn early(blocks: &[Block], offsets: &[u64]) -> usize {
    let placed = || blocks.iter().zip(offsets);
    let spoils = |b: &Block, x: u64, (c, y): (&Block, &u64)| {
        c.end <= b.start && b.start < c.end + 2 && x < y + c.size && *y < x + b.size
    };
    placed().filter(|&(b, &x)| placed().any(|other| spoils(b, x, other))).count()
}

#[test]
fn fewer_blocks_begin_over_what_just_died_and_the_peak_stays() {
    for seed in 0..8 {
        let blocks = cut(120, 60, 4096, seed);
        let (mut words, mut indices) = scratch(&blocks);
        let mut offsets = vec![0; blocks.len()];
        let options = Options::default();
        let lent = Workspace::new(&mut words, &mut indices);
        let before = place::place(Solver::BestFit, &blocks, &options, lent, &mut offsets).unwrap();
        let was = early(&blocks, &offsets);
        spread(&blocks, 2, &options.constraints, Workspace::new(&mut words, &mut indices), &mut offsets).unwrap();
        let plan = verify::verify(&blocks, &offsets, &options.constraints, Workspace::new(&mut words, &mut indices));
        assert!(plan.unwrap().peak() <= before.peak);
        assert!(early(&blocks, &offsets) <= was);
    }
}

#[test]
fn pinned_blocks_stay_and_others_keep_their_alignment() {
    let blocks = [
        Block::new(0, 1, 3),
        Block { alignment: 4, ..Block::new(0, 2, 4) },
        Block { alignment: 4, ..Block::new(2, 3, 4) },
        Block { pin: Some(8), ..Block::new(1, 2, 4) },
    ];
    let mut offsets = [0, 4, 4, 8];
    let (mut words, mut indices) = scratch(&blocks);
    spread(&blocks, 1, &Constraints::NONE, Workspace::new(&mut words, &mut indices), &mut offsets).unwrap();
    assert_eq!(offsets, [0, 4, 0, 8]);
}
