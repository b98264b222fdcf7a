//! Tests of the allocator with data in its blocks: whatever requests come, no live block is overwritten, and iterations
//! that repeat are served from a plan.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence};
use sublet_core::Buffer;
use sublet_core::place::Solver;
use sublet_core::replay::{Config, State};
use sublet_core::{Block, Constraints, Error};
use sublet_tests::checked::{Checked, allocator};
use sublet_tests::network::{Network, Request};

fn config(capacity: u64) -> Config {
    Config { alignment: 8, ..Config::new(capacity, 64, 64) }
}

/// Runs an iteration that frees all of its blocks.
fn run(memory: &mut Checked, iteration: &[Request]) {
    let mut addresses = vec![None; iteration.len()];
    for request in iteration {
        match *request {
            Request::Malloc(block, bytes) => addresses[block] = Some(memory.malloc(bytes).unwrap()),
            Request::Free(block) => memory.free(addresses[block].take().unwrap()),
        }
    }
}

fn run_told(memory: &mut Checked, iteration: &[Request]) {
    memory.allocator.begin_iteration();
    run(memory, iteration);
    memory.allocator.end_iteration().unwrap();
}

/// The requests that a text says: `m0:64` is a malloc of block 0 with 64 bytes, `f0` its free.
fn iteration(text: &str) -> Vec<Request> {
    let request = |word: &str| {
        let (kind, rest) = word.split_at(1);
        match (kind, rest.split_once(':')) {
            ("m", Some((block, bytes))) => Request::Malloc(block.parse().unwrap(), bytes.parse().unwrap()),
            ("f", None) => Request::Free(rest.parse().unwrap()),
            _ => panic!("{word}"),
        }
    };
    text.split(' ').map(request).collect()
}

const USUAL: &str = "m0:64 m1:128 m2:256 f1 m3:512 f0 m4:128 f2 m5:1024 f4 f3 m6:64 f5 f6";

/// Runs one more iteration. Returns how many of its requests were hits and how many misses.
fn served(memory: &mut Checked, iteration: &[Request]) -> (u64, u64) {
    let before = memory.allocator.statistics();
    run_told(memory, iteration);
    let after = memory.allocator.statistics();
    (after.hits - before.hits, after.misses - before.misses)
}

/// Runs an iteration that differs, after two usual ones. Asserts how many hits and misses it has, and that a new plan
/// is made from it.
fn diverges(different: &str, hits: u64, misses: u64) {
    let (usual, different) = (iteration(USUAL), iteration(different));
    let mut memory = Checked::new(config(1 << 16));
    run_told(&mut memory, &usual);
    assert_eq!(served(&mut memory, &usual), (7, 0));
    assert_eq!(memory.allocator.statistics().plans, 1);
    assert_eq!(served(&mut memory, &different), (hits, misses), "{different:?}");
    // At its end a new plan was made, from the record of this iteration.
    assert_eq!(memory.allocator.statistics().plans, 2);
    let requests = different.iter().filter(|r| matches!(r, Request::Malloc(..))).count() as u64;
    assert_eq!(served(&mut memory, &different), (requests, 0));
    assert_eq!(memory.allocator.statistics().plans, 2);
    run_told(&mut memory, &usual);
    assert_eq!(served(&mut memory, &usual), (7, 0));
    assert_eq!(memory.live(), 0);
}

#[test]
fn a_smaller_request_is_served_from_the_plan() {
    let mut memory = Checked::new(config(1 << 16));
    run_told(&mut memory, &iteration(USUAL));
    let smaller = iteration(&USUAL.replace("m3:512", "m3:300"));
    assert_eq!(served(&mut memory, &smaller), (7, 0));
    assert_eq!(memory.allocator.statistics().plans, 1);
}

/// An iteration whose result is freed after its end, or lives on; returns the result then.
fn with_result(memory: &mut Checked, batch: u64) -> u64 {
    memory.allocator.begin_iteration();
    let [a, b] = [64, 128].map(|bytes| memory.malloc(bytes * batch).unwrap());
    memory.free(a);
    let [result, c] = [96, 64].map(|bytes| memory.malloc(bytes * batch).unwrap());
    memory.free(b);
    memory.free(c);
    memory.allocator.end_iteration().unwrap();
    result
}

#[test]
fn a_smaller_batch_whose_results_outlive_the_iteration_keeps_the_plan() {
    let mut memory = Checked::new(config(1 << 16));
    for (round, batch) in [8, 1, 8, 2, 8].into_iter().enumerate() {
        let result = with_result(&mut memory, batch);
        memory.free(result);
        let done = memory.allocator.statistics();
        // The result is in the plan since the second iteration began, and shares the arena.
        assert_eq!((done.plans, done.hits, done.misses), (1 + u64::from(round > 0), 4 * round as u64, 0), "{batch}");
        assert!(round == 0 || memory.allocator.arena().contains(&result));
    }
    assert_eq!(memory.allocator.arena().end - memory.allocator.arena().start, 8 * (64 + 128 + 96));
}

#[test]
fn results_that_live_on_are_beside_the_plan() {
    let mut memory = Checked::new(config(1 << 16));
    let mut results: Vec<u64> = Vec::new();
    for round in 0..6 {
        results.push(with_result(&mut memory, 8));
        // As where a variable is overwritten: the one before is freed after the end.
        if round > 0 {
            let before = results.remove(0);
            memory.free(before);
        }
        memory.check();
        let done = memory.allocator.statistics();
        assert_eq!((done.plans, done.hits, done.misses), (1, 3 * round, round), "{round}");
    }
    // First freed in time, then not: a plan with results is made only until they have lived on.
    let mut memory = Checked::new(config(1 << 16));
    for lives_on in [false, false, true, true, false, false, true, false] {
        let result = with_result(&mut memory, 8);
        memory.check();
        if lives_on {
            results.push(result);
        } else {
            memory.free(result);
        }
    }
    let plans = memory.allocator.statistics().plans;
    assert_eq!(plans, 3);
    for _ in 0..3 {
        let result = with_result(&mut memory, 8);
        assert!(!memory.allocator.arena().contains(&result));
        memory.free(result);
    }
    assert_eq!(memory.allocator.statistics().plans, plans);
}

#[test]
fn a_larger_request_is_served_elsewhere() {
    diverges(&USUAL.replace("m3:512", "m3:2000"), 6, 1);
}

#[test]
fn an_extra_request_is_served_elsewhere() {
    diverges("m0:64 m1:128 m2:256 f1 m7:4000 m3:512 f0 m4:128 f2 m5:1024 f7 f4 f3 m6:64 f5 f6", 7, 1);
    // A request after the plan's last one.
    diverges(&format!("{USUAL} m7:64 f7"), 7, 1);
}

#[test]
fn a_missing_request_is_passed_over() {
    diverges("m0:64 m1:128 f1 m3:512 f0 m4:128 m5:1024 f4 f3 m6:64 f5 f6", 6, 0);
    // The plan's last requests are missing.
    diverges("m0:64 m1:128 m2:256 f1 m3:512 f0 m4:128 f2 f4 f3", 5, 0);
}

#[test]
fn requests_in_another_order_are_served_where_they_can() {
    diverges("m1:128 m0:64 m2:256 f1 m3:512 f0 m4:128 f2 m5:1024 f4 f3 m6:64 f5 f6", 5, 2);
}

#[test]
fn an_early_free_changes_nothing() {
    let mut memory = Checked::new(config(1 << 16));
    run_told(&mut memory, &iteration(USUAL));
    let early = iteration("m0:64 m1:128 f0 m2:256 f1 m3:512 m4:128 f2 m5:1024 f3 f4 m6:64 f6 f5");
    assert_eq!(served(&mut memory, &early), (7, 0));
}

#[test]
fn what_is_in_the_place_of_a_late_block_is_served_elsewhere() {
    // Blocks 0 and 2 take turns at the same address; 0 lives on.
    let usual = iteration("m0:64 f0 m1:64 f1");
    let late = iteration("m0:64 m1:64 f0 f1");
    let mut memory = Checked::new(config(1 << 16));
    run_told(&mut memory, &usual);
    assert_eq!(memory.allocator.statistics().arena_peak, 64);
    assert_eq!(served(&mut memory, &late), (1, 1));
    assert_eq!(memory.allocator.statistics().arena_peak, 128, "planned anew");
    assert_eq!(served(&mut memory, &late), (2, 0));
}

#[test]
fn a_block_that_lives_into_the_next_iteration_is_never_handed_out_again() {
    let mut memory = Checked::new(config(1 << 16));
    let iteration = [64, 128, 64, 512].map(|bytes| bytes * 8);
    let mut kept = VecDeque::new();
    for round in 0..12 {
        memory.allocator.begin_iteration();
        for (i, &bytes) in iteration.iter().enumerate() {
            let block = memory.malloc(bytes).unwrap();
            // The second block lives until the same place of the next iteration; from round 6 on, for two iterations.
            if i == 1 {
                kept.push_back(block);
                if kept.len() > 1 + usize::from(round > 5) {
                    memory.free(kept.pop_front().unwrap());
                }
            } else {
                memory.free(block);
            }
        }
        memory.allocator.end_iteration().unwrap();
        memory.check();
    }
    let done = memory.allocator.statistics();
    // In every iteration from the second on, three of the four requests are served from the plan. The other one is
    // expected, but its block outlives the iteration and is not planned.
    assert_eq!((done.hits, done.misses, done.plans), (3 * 11, 11, 1));
    assert_eq!(memory.allocator.state(), State::Replay);
}

#[test]
fn between_interrupt_and_resume_nothing_is_part_of_the_plan() {
    let mut memory = Checked::new(config(1 << 16));
    let mut kept = Vec::new();
    for round in 0..6 {
        memory.allocator.begin_iteration();
        let a = memory.malloc(64).unwrap();
        memory.allocator.interrupt();
        for i in 0..round {
            kept.push(memory.malloc(32 + 40 * i).unwrap());
        }
        if round == 4 {
            kept.drain(..5).for_each(|block| memory.free(block));
        }
        memory.allocator.resume();
        let b = memory.malloc(256).unwrap();
        memory.allocator.interrupt();
        memory.free(a);
        memory.allocator.resume();
        let c = memory.malloc(64).unwrap();
        memory.free(b);
        memory.free(c);
        memory.allocator.end_iteration().unwrap();
    }
    memory.check();
    let done = memory.allocator.statistics();
    assert_eq!((done.hits, done.misses, done.plans), (15, 0, 1));
    // The plan knows that a was freed during the interruption: c lies where a was.
    assert_eq!(done.arena_peak, 64 + 256);
}

#[test]
fn where_most_differs_the_arena_goes_back_to_the_pool() {
    // The range has room for the blocks of `other`, but not beside the arena for `first`.
    let first: Vec<Request> = (0..12).map(|i| Request::Malloc(i, 800)).chain((0..12).map(Request::Free)).collect();
    let other: Vec<Request> = (0..12).map(|i| Request::Malloc(i, 1000)).chain((0..12).map(Request::Free)).collect();
    let mut memory = Checked::new(config(13_000));
    run_told(&mut memory, &first);
    assert_eq!(served(&mut memory, &first), (12, 0));
    run_told(&mut memory, &other);
    assert_eq!(served(&mut memory, &other), (12, 0));
    assert!(memory.allocator.statistics().footprint <= 13_000);
}

#[test]
fn errors_say_what_is_needed_and_nothing_is_lost() {
    let mut memory = Checked::new(Config { live: 2, ..config(1 << 10) });
    assert_eq!(memory.malloc(0), Err(Error::ZeroSize { block: 0 }));
    assert_eq!(memory.malloc(u64::MAX), Err(Error::OutOfMemory { needed: u64::MAX, largest: 1024 }));
    assert_eq!(memory.malloc(1025), Err(Error::OutOfMemory { needed: 1032, largest: 1024 }));
    assert_eq!(memory.allocator.free(0), Err(Error::NotAllocated { address: 0 }));
    assert_eq!(memory.allocator.free(u64::MAX), Err(Error::NotAllocated { address: u64::MAX }));
    let block = memory.malloc(1024).unwrap();
    assert_eq!(memory.malloc(1), Err(Error::OutOfMemory { needed: 8, largest: 0 }));
    memory.free(block);

    let mut memory = Checked::new(config(1 << 10));
    memory.allocator.begin_iteration();
    for _ in 0..33 {
        let block = memory.malloc(8).unwrap();
        memory.free(block);
    }
    let short = memory.allocator.end_iteration();
    assert_eq!(short, Err(Error::BufferTooSmall { buffer: Buffer::Events, needed: 66, got: 64 }));
    assert_eq!(memory.allocator.state(), State::Profile);
    let again = memory.malloc(1024).unwrap();
    memory.free(again);
}

#[test]
fn a_plan_without_room_for_its_arena_is_refused_and_the_pool_goes_on() {
    let mut memory = Checked::new(config(1000));
    let holes = [memory.malloc(200).unwrap(), memory.malloc(400).unwrap(), memory.malloc(200).unwrap()];
    memory.free(holes[0]);
    for _ in 0..3 {
        memory.allocator.begin_iteration();
        let blocks = [200, 200].map(|bytes| memory.malloc(bytes).unwrap());
        for block in blocks {
            memory.free(block);
        }
        assert_eq!(memory.allocator.end_iteration(), Err(Error::OutOfMemory { needed: 400, largest: 200 }));
    }
    memory.check();
}

#[test]
fn a_plan_that_was_made_elsewhere_is_followed_from_the_first_request() {
    let usual = iteration(USUAL);
    let mut blocks: Vec<Block> = Vec::new();
    for (step, request) in (0u32..).zip(&usual) {
        match *request {
            Request::Malloc(_, bytes) => blocks.push(Block::new(step, u32::MAX, bytes)),
            Request::Free(block) => blocks[block].end = step,
        }
    }
    let (summary, offsets) = sublet_tests::place(Solver::BestFit, &blocks);
    let plan = sublet_tests::verify(&blocks, &offsets, &Constraints::NONE).unwrap();
    for told in [true, false] {
        let mut memory = Checked::new(config(1 << 16));
        let weights = memory.malloc(1000).unwrap();
        memory.allocator.adopt(&plan).unwrap();
        for _ in 0..3 {
            if told {
                run_told(&mut memory, &usual);
            } else {
                run(&mut memory, &usual);
            }
            assert_eq!(memory.allocator.state(), State::Replay);
        }
        memory.read(weights);
        let done = memory.allocator.statistics();
        assert_eq!((done.hits, done.misses, done.plans, done.arena_peak), (21, 0, 1, summary.peak));
    }

    let mut coarse = Checked::new(Config { alignment: 4096, ..config(1 << 16) });
    // The offsets are not multiples of this allocator's alignment: the blocks are placed anew.
    coarse.allocator.adopt(&plan).unwrap();
    let ids: Vec<_> = (0..2).map(|_| coarse.malloc(1024).unwrap()).collect();
    assert!(ids.len() == 2 && coarse.allocator.state() == State::Replay);
    let mut short = Checked::new(Config { events: 13, ..config(1 << 16) });
    let refused = short.allocator.adopt(&plan);
    assert_eq!(refused, Err(Error::BufferTooSmall { buffer: Buffer::Events, needed: 14, got: 13 }));
    let mut narrow = Checked::new(config(1024));
    assert!(matches!(narrow.allocator.adopt(&plan), Err(Error::OutOfMemory { .. })));
    assert_eq!(narrow.allocator.state(), State::Profile);
    narrow.malloc(1024).unwrap();
}

/// Iterations that are not marked: first weights, then an iteration that differs, then the same one over and over.
#[test]
fn the_iteration_is_found_in_the_stream() {
    let mut memory = Checked::new(config(1 << 16));
    for bytes in [512, 1024, 64] {
        memory.malloc(bytes).unwrap();
    }
    run(&mut memory, &iteration("m0:64 m1:256 m2:2048 f0 f1 f2 m3:64 f3"));
    let usual = iteration(USUAL);
    for _ in 0..2 {
        run(&mut memory, &usual);
    }
    assert_eq!(memory.allocator.state(), State::Replay, "two of them are enough");
    let before = memory.allocator.statistics();
    for _ in 0..100 {
        run(&mut memory, &usual);
    }
    let after = memory.allocator.statistics();
    assert_eq!((after.hits - before.hits, after.misses, after.plans), (700, 0, 1));
}

/// Gradient accumulation: three times forward and backward, then an update.
#[test]
fn of_iterations_within_iterations_the_outer_is_found() {
    let mut memory = Checked::new(config(1 << 16));
    let (inner, update) = (iteration(USUAL), iteration("m0:2000 m1:40 f1 m2:48 f0 f2"));
    let mut last = memory.allocator.statistics();
    for round in 0..60 {
        for _ in 0..3 {
            run(&mut memory, &inner);
        }
        run(&mut memory, &update);
        let now = memory.allocator.statistics();
        if round >= 8 {
            assert_eq!((now.hits - last.hits, now.misses - last.misses), (24, 0), "round {round}");
        }
        last = now;
    }
    assert!(last.plans <= 3, "{} plans", last.plans);
    assert_eq!(memory.allocator.state(), State::Replay);
}

/// Iterations that no plan of another serves: `shape` blocks of sizes that fall from one to the next, or rise.
fn shaped(first: u64, rising: bool) -> Vec<Request> {
    let size = |i: u64| first * 8 + if rising { 64 * i } else { 64 * (5 - i) };
    let words =
        (0..6).map(|i| format!("m{i}:{}{}", size(i), if i > 0 { format!(" f{}", i - 1) } else { String::new() }));
    iteration(&format!("{} f5", words.collect::<Vec<_>>().join(" ")))
}

#[test]
fn shapes_that_change_and_come_back_are_planned_once() {
    let mut memory = Checked::new(config(1 << 16));
    let shapes: Vec<_> = (0..6).map(|i| shaped(1 + i % 3 + if i < 3 { 0 } else { 40 }, i % 2 == 0)).collect();
    for shape in &shapes {
        run_told(&mut memory, shape);
    }
    let plans = memory.allocator.statistics().plans;
    for round in 0..3 {
        for shape in shapes.iter().chain(shapes.iter().rev()) {
            assert_eq!(served(&mut memory, shape), (6, 0), "round {round}");
            assert_eq!(memory.allocator.state(), State::Replay);
            memory.check();
        }
    }
    assert_eq!((memory.allocator.statistics().plans, plans), (6, 6));
    // Control: what is forgotten is planned anew.
    memory.allocator.forget();
    for shape in &shapes {
        run_told(&mut memory, shape);
    }
    assert_eq!(memory.allocator.statistics().plans, 12);
}

#[test]
fn shapes_with_the_same_first_request_are_planned_anew_each_time() {
    let mut memory = Checked::new(config(1 << 16));
    let [a, b] = ["m0:64 m1:128 f1 m2:512 f0 f2", "m0:64 m1:512 f1 m2:128 f0 f2"].map(iteration);
    for round in 0..4 {
        run_told(&mut memory, &a);
        run_told(&mut memory, &b);
        assert_eq!(memory.allocator.statistics().plans, 2 * (round + 1));
    }
}

#[test]
fn the_newest_plans_are_remembered_as_far_as_there_is_room() {
    // Sixteen plans, or as many as together have the events of one iteration.
    for (events, kept) in [(4096, 16), (16, 2)] {
        let mut memory = Checked::new(Config { events, ..config(1 << 16) });
        let shapes: Vec<_> = (0..=kept).map(|i| shaped(1 + kept - i, i % 2 == 0)).collect();
        for shape in &shapes {
            run_told(&mut memory, shape);
        }
        for shape in &shapes[1..] {
            assert_eq!(served(&mut memory, shape), (6, 0), "{events}");
        }
        let plans = memory.allocator.statistics().plans;
        run_told(&mut memory, &shapes[0]);
        assert_eq!(memory.allocator.statistics().plans, plans + 1, "{events}");
    }
}

#[test]
fn a_plan_comes_back_into_an_arena_that_has_become_too_small() {
    let mut memory = Checked::new(config(1 << 16));
    let [large, small] = ["m0:64 m1:9000 f1 m2:8000 f0 f2", "m0:800 m1:16 f1 m2:24 f0 f2"].map(iteration);
    for shape in [&large, &small, &small] {
        run_told(&mut memory, shape);
    }
    let arena = |memory: &Checked| memory.allocator.arena().end - memory.allocator.arena().start;
    assert_eq!(arena(&memory), 824);
    let outside = memory.malloc(40).unwrap();
    for shape in [&large, &small, &large] {
        assert_eq!(served(&mut memory, shape), (3, 0));
        // It does not shrink again for a plan that comes back.
        assert_eq!(arena(&memory), 9064);
    }
    memory.free(outside);
    // Without room for it there is no plan, and the requests are served all the same.
    let mut memory = Checked::new(config(10_000));
    for shape in [&large, &small] {
        run_told(&mut memory, shape);
    }
    let outside = [0; 2].map(|_| memory.malloc(3000).unwrap());
    memory.allocator.begin_iteration();
    let first = memory.malloc(64).unwrap();
    assert_eq!(memory.allocator.state(), State::Profile);
    memory.check();
    for block in [first, outside[0], outside[1]] {
        memory.free(block);
    }
    memory.allocator.end_iteration().unwrap();
}

#[test]
fn no_other_plan_is_followed_while_a_block_of_this_one_lives() {
    let mut memory = Checked::new(config(1 << 16));
    let [a, b] = ["m0:64 m1:128 f1 m2:512 f0 f2", "m0:512 m1:64 f1 m2:128 f0 f2"].map(iteration);
    for shape in [&a, &b, &a] {
        run_told(&mut memory, shape);
    }
    memory.allocator.begin_iteration();
    let late = memory.malloc(64).unwrap();
    for bytes in [128, 512] {
        let block = memory.malloc(bytes).unwrap();
        memory.free(block);
    }
    memory.allocator.end_iteration().unwrap();
    assert!(memory.allocator.arena().contains(&late));
    // Two of its three requests are too large for the plan that stays.
    assert_eq!(served(&mut memory, &b).1, 2);
    memory.check();
    memory.free(late);
    assert_eq!(memory.live(), 0);
}

/// A step of a random iteration: allocates so many bytes, or frees one of the live blocks.
#[derive(Clone, Debug)]
enum Step {
    Malloc(u64),
    Free(prop::sample::Index),
    /// Interrupts the requests that follow, or ends the interruption.
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..12).prop_map(|size| Step::Malloc(size * 13)),
        5 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => Just(Step::Turn),
    ]
}

/// The file of the seeds of cases that failed once, which are tried first. It lies beside this file, in the folder in
/// which the tests of this package run.
fn seeds() -> Box<dyn FailurePersistence> {
    Box::new(FileFailurePersistence::Direct("replay.proptest-regressions"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: Some(seeds()), ..ProptestConfig::default() })]

    /// Runs a base iteration, and versions of it with random changes, some of which leave blocks alive at their end.
    /// Whatever the allocator makes of them, no live block is overwritten; and if iterations are marked and there is
    /// room, the base iteration is served without misses once it has repeated.
    #[test]
    fn no_divergence_overwrites_a_live_block(
        base in prop::collection::vec(step(), 4..40),
        changes in prop::collection::vec(prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(step())), 0..6), 1..12),
        told in any::<bool>(),
        repeats in 0usize..4,
        capacity in prop_oneof![Just(1u64 << 16), 1000u64..6000],
    ) {
        let mut memory = Checked::new(Config { events: 80, ..config(capacity) });
        let mut live = Vec::new();
        let mut iterate = |memory: &mut Checked, steps: &[Step], drain: bool| {
            if told {
                memory.allocator.begin_iteration();
            }
            let mut interrupted = false;
            for step in steps {
                match step {
                    Step::Malloc(bytes) => match memory.malloc(*bytes) {
                        Ok(block) => live.push(block),
                        Err(Error::OutOfMemory { .. } | Error::BufferTooSmall { .. }) => {}
                        Err(e) => panic!("{e}"),
                    },
                    Step::Free(_) if live.is_empty() => {}
                    Step::Free(which) => memory.free(live.swap_remove(which.index(live.len()))),
                    Step::Turn if interrupted => memory.allocator.resume(),
                    Step::Turn => memory.allocator.interrupt(),
                }
                interrupted ^= matches!(step, Step::Turn);
            }
            memory.allocator.resume();
            if drain {
                live.drain(..).for_each(|block| memory.free(block));
            }
            if told {
                // This fails if there is no room for an arena.
                let _ = memory.allocator.end_iteration();
            }
        };
        for change in &changes {
            for _ in 0..repeats {
                iterate(&mut memory, &base, true);
            }
            let mut changed = base.clone();
            for (place, step) in change {
                let place = place.index(changed.len());
                match step {
                    Some(step) => changed.insert(place, step.clone()),
                    None if changed.len() > 1 => drop(changed.remove(place)),
                    None => {}
                }
            }
            iterate(&mut memory, &changed, change.len() % 2 == 0);
            memory.check();
        }
        if told && capacity == 1 << 16 {
            for _ in 0..3 {
                iterate(&mut memory, &base, true);
            }
            let before = memory.allocator.statistics();
            iterate(&mut memory, &base, true);
            let after = memory.allocator.statistics();
            prop_assert_eq!(after.misses, before.misses);
        }
    }
}

/// About a million events, with memory for 64.
#[test]
fn an_endless_stream_takes_fixed_memory() {
    let mut memory = Checked::new(config(1 << 16));
    let usual = iteration(USUAL);
    for round in 0u64..70_000 {
        run(&mut memory, &usual);
        if round % 1000 == 999 {
            let odd = memory.malloc(8 + round % 64).unwrap();
            memory.free(odd);
        }
    }
    let done = memory.allocator.statistics();
    assert!(done.hits > 480_000, "{done:?}");
    memory.check();
}

/// Allocates the persistent blocks of a network, then runs `rounds` iterations, with real memory and sizes divided by
/// 1024. Returns the statistics; how many requests were hits from the third iteration on; and how many requests there
/// were in these iterations.
fn replay_network(network: &Network, told: bool, rounds: usize) -> (sublet_core::replay::Statistics, u64, u64) {
    const DIVISOR: u64 = 1024;
    let network = network.scaled(DIVISOR);
    let persistent: u64 = network.persistent.iter().map(|b| b.next_multiple_of(8)).sum();
    let capacity = (persistent + 4 * network.max_load(8)).next_multiple_of(8);
    let events = network.iteration.len();
    let mut memory = Checked::new(Config { alignment: 8, ..Config::new(capacity, events, events) });
    for &bytes in &network.persistent {
        memory.malloc(bytes).unwrap();
    }
    let mut before = memory.allocator.statistics();
    for round in 0..rounds {
        if round == 2 {
            before = memory.allocator.statistics();
        }
        if told {
            run_told(&mut memory, &network.iteration);
        } else {
            run(&mut memory, &network.iteration);
        }
    }
    memory.check();
    let after = memory.allocator.statistics();
    (after, after.hits - before.hits, (rounds - 2) as u64 * network.blocks as u64)
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn networks_are_served_from_their_plan_from_the_third_iteration_on() {
    for network in Network::corpus() {
        for told in [true, false] {
            let (done, hits, requests) = replay_network(&network, told, 5);
            let name = &network.name;
            let rate = hits as f64 / requests as f64;
            let arena = done.arena_peak as f64 / network.scaled(1024).max_load(8) as f64;
            println!("{name} told {told}: rate {rate:.4} arena {arena:.4} {done:?}");
            assert!(rate >= 0.99, "{name}, told {told}: {rate}");
            assert!(arena <= 1.01, "{name}, told {told}: {arena}");
        }
    }
}

/// Attention over sequences of `length`: twelve layers, forward and backward. Returns the most bytes that were live.
fn attention(allocator: &mut sublet_core::Allocator<'_>, length: u64) -> u64 {
    let (hidden, scores) = (length * 512 * 4, length * length * 8 * 4);
    let (mut kept, mut live, mut peak) = (Vec::new(), 0, 0);
    for (i, bytes) in [3 * hidden, scores, hidden, 4 * hidden].repeat(12).into_iter().enumerate() {
        kept.push((allocator.malloc(bytes).unwrap(), bytes));
        live += bytes;
        peak = peak.max(live);
        if i % 4 == 2 {
            // The projections, which came before the scores and this.
            let (address, bytes) = kept.remove(kept.len() - 3);
            allocator.free(address).unwrap();
            live -= bytes;
        }
    }
    while let Some((address, bytes)) = kept.pop() {
        let gradient = allocator.malloc(bytes).unwrap();
        peak = peak.max(live + bytes);
        live -= bytes;
        allocator.free(gradient).unwrap();
        allocator.free(address).unwrap();
    }
    peak
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn iterations_of_many_lengths_take_little_more_than_what_lives() {
    for (told, grows) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = Config::new(1 << 32, 1 << 10, 1 << 10);
        let len = sublet_core::replay::memory(&config);
        let (mut b, mut w, mut i) = (vec![Block::default(); len.blocks], vec![0; len.words], vec![0; len.indices]);
        let memory = sublet_core::replay::Memory { blocks: &mut b, words: &mut w, indices: &mut i };
        let mut allocator = sublet_core::Allocator::new(&config, memory).unwrap();
        let mut most = 0;
        for round in 0..60 {
            let length = 64 + if grows { round * 8 } else { round * 271 % 449 };
            if told {
                allocator.begin_iteration();
            }
            most = most.max(attention(&mut allocator, length));
            if told {
                allocator.end_iteration().unwrap();
            }
        }
        let ratio = allocator.statistics().footprint as f64 / most as f64;
        println!("told {told} grows {grows}: {ratio:.3}");
        assert!(ratio <= 1.05, "told {told}, grows {grows}: {ratio}");
    }
}

#[test]
fn the_memory_is_what_is_asked_for_and_not_less() {
    let config = config(1 << 12);
    drop(allocator(&config));
    let len = sublet_core::replay::memory(&config);
    for (blocks, words, indices) in [
        (len.blocks - 1, len.words, len.indices),
        (len.blocks, len.words - 1, len.indices),
        (len.blocks, len.words, len.indices - 1),
    ] {
        let (mut b, mut w, mut i) = (vec![Block::default(); blocks], vec![0; words], vec![0; indices]);
        let memory = sublet_core::replay::Memory { blocks: &mut b, words: &mut w, indices: &mut i };
        let refused = sublet_core::Allocator::new(&config, memory).map(drop);
        assert!(matches!(refused, Err(Error::BufferTooSmall { needed, got, .. }) if needed == got + 1), "{refused:?}");
    }
}
