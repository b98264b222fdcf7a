use super::*;
use crate::{Constraints, verify};
use proptest::prelude::*;
use std::vec::Vec;

fn replay(blocks: &[Block], outside: &[Block], phase: u32) -> (Replay<'static>, Vec<u64>) {
    let mut offsets: Vec<u64> = Vec::new();
    for b in blocks {
        let mut taken: Vec<(u64, u64)> =
            blocks.iter().zip(&offsets).filter(|(c, _)| c.collides(b)).map(|(c, &o)| (o, c.size)).collect();
        taken.sort_unstable();
        let offset = taken.iter().fold(0, |at, &(o, s)| if at + b.size <= o { at } else { at.max(o + s) });
        offsets.push(offset);
    }
    let n = blocks.len();
    let (mut words, mut indices) = (vec![0; verify::workspace(n).words], vec![0; 5 * n]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let plan = verify::verify(blocks, &offsets, &Constraints::NONE, scratch).unwrap();
    let requests = n + outside.len();
    let len = workspace(requests);
    let memory = Workspace::new(vec![7; len.words].leak(), vec![7; len.indices].leak());
    let mut replay = Replay::new(requests, memory).unwrap();
    replay.follow(&plan, outside, 1, phase, Workspace::new(&mut [], &mut indices)).unwrap();
    (replay, offsets)
}

#[test]
fn more_overdue_blocks_than_are_kept_in_mind_end_the_plan_until_all_are_dead() {
    // In pairs: each block of `second` begins when one of `first` ends, and lies in its place.
    let n = OVERDUE + 2;
    let first = (0..n).map(|i| Block::new(i, n + i, 8));
    let second = (0..n).map(|i| Block::new(n + i, 3 * n, 8));
    let blocks: Vec<Block> = first.chain(second).collect();
    let (mut replay, offsets) = replay(&blocks, &[], 0);
    for &offset in offsets.iter().take(n as usize) {
        assert_eq!(replay.malloc(8, 0), Answer::Placed(offset));
    }
    for i in 0..n {
        assert_eq!(replay.malloc(8, 0), Answer::Missed, "{i}");
        // All blocks of `first` are overdue now, more than the list holds.
        if i + 1 == n {
            assert!(replay.is_hopeless());
        }
    }
    assert!(!replay.restart());
    for (i, &offset) in offsets.iter().take(n as usize).enumerate() {
        assert_eq!(replay.malloc(8, 0), Answer::Missed, "{i}");
        assert_eq!(replay.free(offset), Ok(0));
    }
    assert!(!replay.restart());
    assert_eq!(replay.malloc(8, 5), Answer::Placed(offsets[0]));
    assert_eq!(replay.free(offsets[0]), Ok(5));
}

#[test]
fn what_the_plan_does_not_hold_is_expected() {
    let blocks = [Block::new(1, 3, 8), Block::new(4, 6, 16)];
    let outside = [Block::new(0, 9, 32), Block::new(2, 9, 4), Block::new(5, 9, 64)];
    let (mut replay, _) = replay(&blocks, &outside, 0);
    for _ in 0..3 {
        assert_eq!(replay.malloc(32, 0), Answer::Outside);
        assert_eq!(replay.malloc(8, 0), Answer::Placed(0));
        assert_eq!(replay.malloc(4, 0), Answer::Outside);
        replay.free(0).unwrap();
        assert_eq!(replay.malloc(16, 0), Answer::Placed(0));
        assert_eq!(replay.malloc(64, 0), Answer::Outside);
        replay.free(0).unwrap();
        assert!(replay.restart());
    }
    // The requests outside the plan do not come in this iteration; the others are served all the same.
    assert_eq!(replay.malloc(8, 0), Answer::Placed(0));
    assert_eq!(replay.malloc(16, 0), Answer::Missed, "the first is late");
    assert!(!replay.restart());
}

#[test]
fn requests_outside_the_plan_are_found_one_by_one() {
    let outside: Vec<Block> = (0..40).map(|k| Block::new(k, 99, 100 + u64::from(k))).collect();
    let (mut replay, _) = replay(&[Block::new(50, 60, 8)], &outside, 0);
    assert_eq!(replay.malloc(100, 0), Answer::Outside);
    assert_eq!(replay.malloc(102, 0), Answer::Outside, "101 is missing");
    assert_eq!(replay.malloc(108, 0), Answer::Outside);
    assert_eq!(replay.malloc(7000, 0), Answer::Missed);
    assert_eq!(replay.malloc(7, 0), Answer::Outside, "smaller than 109");
    assert_eq!(replay.malloc(109, 0), Answer::Outside, "smaller than 110");
    assert_eq!(replay.malloc(8, 0), Answer::Placed(0));
}

/// The plan has sizes rounded up to the alignment, so the search goes by the rounded size.
#[test]
fn a_request_is_found_behind_a_missing_one_whatever_its_size() {
    let blocks = [Block::new(0, 2, 100), Block::new(1, 3, 5000)];
    let (mut words, mut indices) = (vec![0; verify::workspace(2).words], vec![0; 10]);
    let constraints = Constraints { alignment: 256, capacity: None };
    let scratch = Workspace::new(&mut words, &mut indices);
    let plan = verify::verify(&blocks, &[0, 256], &constraints, scratch).unwrap();
    let mut memory = vec![7; workspace(2).words];
    let mut replay = Replay::new(2, Workspace::new(&mut memory, &mut [])).unwrap();
    replay.follow(&plan, &[], constraints.alignment, 0, Workspace::new(&mut [], &mut indices)).unwrap();
    assert_eq!(replay.malloc(5000, 0), Answer::Placed(256));
}

#[test]
fn no_bytes_are_never_planned() {
    for outside in [&[][..], &[Block::new(0, 9, 32)]] {
        let (mut replay, _) = replay(&[], outside, 0);
        for _ in 0..3 {
            assert_eq!(replay.malloc(0, 0), Answer::Missed);
        }
    }
    let (mut replay, _) = replay(&[Block::new(0, 2, 8)], &[], 0);
    assert_eq!(replay.malloc(0, 0), Answer::Missed);
    assert_eq!(replay.malloc(8, 0), Answer::Placed(0));
    assert_eq!(replay.malloc(0, 0), Answer::Missed);
    assert_eq!(replay.malloc(0, 0), Answer::Missed);
}

#[test]
fn it_can_begin_in_the_middle() {
    let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8), Block::new(4, 5, 8)];
    let (mut replay, _) = replay(&blocks, &[], 1);
    assert_eq!(replay.malloc(8, 0), Answer::Placed(8));
    assert_eq!(replay.malloc(8, 0), Answer::Placed(0));
    replay.free(8).unwrap();
    replay.free(0).unwrap();
    assert!(replay.restart());
}

#[test]
fn in_the_middle_requests_outside_the_plan_count_too() {
    let outside = [Block::new(0, 9, 32), Block::new(3, 9, 64)];
    for (phase, requests) in [(0, &[32, 8, 64][..]), (1, &[8, 64]), (3, &[64]), (4, &[])] {
        let (mut replay, _) = replay(&[Block::new(1, 2, 8)], &outside, phase);
        for &bytes in requests {
            assert_ne!(replay.malloc(bytes, 0), Answer::Missed, "{phase}: {bytes}");
        }
        assert!(replay.restart(), "{phase}");
    }
}

#[test]
fn of_a_plan_without_requests_no_iteration_ends() {
    let (mut replay, _) = replay(&[], &[], 0);
    replay.set_endless(true);
    for _ in 0..AHEAD {
        assert!(!replay.is_hopeless());
        assert_eq!((replay.malloc(8, 0), replay.has_ended()), (Answer::Missed, false));
    }
    assert!(replay.is_hopeless());
}

#[test]
fn errors() {
    let mut memory = [0; 8];
    let mut nothing = Replay::new(0, Workspace::new(&mut memory, &mut [])).unwrap();
    nothing.set_endless(true);
    assert_eq!(nothing.malloc(1, 0), Answer::Missed);
    assert_eq!(nothing.free(0), Err(Error::NotAllocated { address: 0 }));
    let blocks = [Block::new(0, 2, 8), Block::new(2, 4, 8)];
    let (mut words, mut indices) = ([0; 8], [0; 10]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let plan = verify::verify(&blocks, &[0, 0], &Constraints::NONE, scratch).unwrap();
    let refused = nothing.follow(&plan, &[], 1, 0, Workspace::new(&mut [], &mut [0; 8]));
    assert_eq!(refused, Err(Error::BufferTooSmall { buffer: Buffer::Events, needed: 2, got: 0 }));
}

proptest! {
    #[test]
    fn nothing_live_is_handed_out_again(
        lifetimes in prop::collection::vec((1u32..12, 1u64..9), 1..30),
        steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.6, 1u64..10)), 1..200),
    ) {
        let blocks: Vec<Block> = (0u32..).zip(&lifetimes).map(|(i, &(w, s))| Block::new(i, i + w, s)).collect();
        let (mut replay, _) = replay(&blocks, &[], 0);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for (number, (which, bytes)) in (0..).zip(steps) {
            match bytes {
                Some(bytes) => {
                    if let Answer::Placed(offset) = replay.malloc(bytes, number) {
                        prop_assert!(live.iter().all(|&(o, s)| o + s <= offset || offset + bytes <= o));
                        live.push((offset, bytes));
                    }
                }
                None if live.is_empty() || which.index(7) == 0 => drop(replay.restart()),
                None => {
                    let (offset, _) = live.swap_remove(which.index(live.len()));
                    prop_assert!(replay.free(offset).is_ok());
                    prop_assert_eq!(replay.free(offset), Err(Error::NotAllocated { address: offset }));
                }
            }
            prop_assert_eq!(replay.live().count(), live.len());
        }
    }
}
