use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn run(blocks: &[Block], limit: Limit) -> Result<(Chunks, Vec<Spot>), Error> {
    let len = workspace(Solver::Portfolio, blocks.len(), limit);
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let (mut parts, mut spots) = (vec![Block::default(); blocks.len()], vec![Spot::default(); blocks.len()]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let found = place(Solver::Portfolio, blocks, limit, &Options::default(), scratch, &mut parts, &mut spots)?;
    Ok((found, spots))
}

/// The lengths of the chunks, each of them the highest end of a block in it; panics where blocks overlap.
fn lengths(blocks: &[Block], spots: &[Spot], count: u32) -> Vec<u64> {
    for (i, (a, x)) in blocks.iter().zip(spots).enumerate() {
        for (b, y) in blocks.iter().zip(spots).take(i) {
            let apart = x.offset + a.size <= y.offset || y.offset + b.size <= x.offset;
            assert!(x.bank != y.bank || !a.collides(b) || apart, "{a:?} at {x:?}, {b:?} at {y:?}");
        }
    }
    let end = |chunk| blocks.iter().zip(spots).filter(move |(_, s)| s.bank == chunk).map(|(b, s)| s.offset + b.size);
    (0..count).map(|chunk| end(chunk).max().unwrap()).collect()
}

/// The least sum of max loads over all ways to deal the blocks out: no placement is shorter.
fn least(blocks: &[Block], limit: Limit) -> Option<u64> {
    let chunks = limit.chunks as usize;
    (0..chunks.pow(u32::try_from(blocks.len()).unwrap()))
        .filter_map(|code| {
            let of = |i: usize| code / chunks.pow(u32::try_from(i).unwrap()) % chunks;
            (0..chunks)
                .map(|chunk| {
                    let own = || blocks.iter().enumerate().filter(move |&(i, _)| of(i) == chunk).map(|(_, b)| b);
                    let load = |t| own().filter(|b| b.start <= t && t < b.end).map(|b| b.size).sum::<u64>();
                    let top = own().map(|b| load(b.start)).max().unwrap_or(0);
                    let largest = own().map(|b| b.size).max().unwrap_or(0);
                    (top <= limit.bytes.max(largest)).then_some(top)
                })
                .sum::<Option<u64>>()
        })
        .min()
}

proptest! {
    #[test]
    fn chunks_hold_all_blocks_within_their_limits_and_are_short(
        rows in proptest::collection::vec((0..8u32, 1..5u32, 1..9u64), 1..8),
        bytes in 4..12u64,
    ) {
        let blocks: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size)).collect();
        let limit = Limit { bytes, chunks: 3, distance: 1 };
        let least = least(&blocks, limit);
        match run(&blocks, limit) {
            Ok((found, spots)) => {
                let lengths = lengths(&blocks, &spots, found.count);
                prop_assert_eq!(lengths.iter().sum::<u64>(), found.total);
                prop_assert!(found.lower_bound <= least.unwrap() && least.unwrap() <= found.total);
                for (chunk, length) in (0..).zip(lengths) {
                    let largest = blocks.iter().zip(&spots).filter(|(_, s)| s.bank == chunk).map(|(b, _)| b.size).max();
                    prop_assert!(length <= bytes.max(largest.unwrap()));
                }
                prop_assert!(found.total <= least.unwrap() + bytes, "{} for {:?}", found.total, least);
            }
            Err(Error::NoBank { .. }) => (),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}

#[test]
fn one_chunk_is_enough_for_blocks_that_fit_it() {
    let blocks = [Block::new(0, 2, 6), Block::new(1, 3, 5)];
    let (found, spots) = run(&blocks, Limit { bytes: 11, chunks: 4, distance: 1 }).unwrap();
    assert_eq!((found.count, found.total, lengths(&blocks, &spots, 1)), (1, 11, vec![11]));
}

#[test]
fn a_block_above_the_limit_has_a_chunk_of_its_own_length_which_others_share() {
    let blocks =
        [Block::new(0, 2, 20), Block::new(1, 3, 5), Block::new(3, 5, 12), Block::new(3, 5, 8), Block::new(4, 6, 5)];
    let (found, spots) = run(&blocks, Limit { bytes: 8, chunks: 4, distance: 1 }).unwrap();
    assert_eq!((found.total, lengths(&blocks, &spots, found.count)), (25, vec![20, 5]));
}

#[test]
fn a_block_for_which_no_chunk_is_left_is_named() {
    let blocks = [Block::new(0, 2, 6), Block::new(0, 2, 6), Block::new(1, 2, 5)];
    assert_eq!(
        run(&blocks, Limit { bytes: 8, chunks: 2, distance: 1 }),
        Err(Error::NoBank { block: 2, size: 5, most: 8, proved: false })
    );
    let none = Limit { bytes: 8, chunks: 0, distance: 1 };
    assert!(matches!(run(&blocks, none), Err(Error::NoBank { .. })));
    assert_eq!(run(&[], none).unwrap().0, Chunks { count: 0, total: 0, lower_bound: 0 });
}
