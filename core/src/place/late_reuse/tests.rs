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

#[test]
fn fewer_blocks_begin_over_what_just_died_and_the_peak_stays() {
    for seed in 0..8 {
        let blocks = cut(120, 60, 4096, seed);
        let (mut words, mut indices) = scratch(&blocks);
        let mut offsets = vec![0; blocks.len()];
        let options = Options::default();
        let lent = Workspace::new(&mut words, &mut indices);
        let before = place::place(Solver::BestFit, &blocks, &options, lent, &mut offsets).unwrap();
        let early = |words: &mut [u64], indices: &mut [u32], offsets: &[u64]| {
            count_early(&blocks, 2, Workspace::new(words, indices), offsets).unwrap()
        };
        let was = early(&mut words, &mut indices, &offsets);
        spread(&blocks, 2, &options.constraints, Workspace::new(&mut words, &mut indices), &mut offsets).unwrap();
        let plan = verify::verify(&blocks, &offsets, &options.constraints, Workspace::new(&mut words, &mut indices));
        assert!(plan.unwrap().peak() <= before.peak);
        assert!(early(&mut words, &mut indices, &offsets) <= was);
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

#[test]
fn steps_between_are_counted_up_to_the_distance() {
    let blocks = [Block::new(0, 1, 4), Block::new(3, 4, 4)];
    let (mut words, mut indices) = scratch(&blocks);
    let mut early =
        |distance| count_early(&blocks, distance, Workspace::new(&mut words, &mut indices), &[0, 3]).unwrap();
    assert_eq!([0, 2, 3].map(&mut early), [0, 0, 1]);
}
