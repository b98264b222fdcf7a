//! Memory that runs out, and calls of the driver that fail.

use sublet_core::MAX_BLOCKS;
use sublet_cuda::torch::Device;
use sublet_cuda::{Error, Memory};

use crate::fake::{Fake, MIB, OTHER};
use crate::program::{Program, max_load};

#[test]
fn a_part_of_the_memory_is_all_that_is_held() {
    let mut program = Program::new(Fake::new(10 * MIB));
    program.device.set_memory_fraction(0.5).unwrap();
    let block = program.malloc_in(4 * MIB, OTHER);
    assert!(block.is_some() && program.malloc_in(2 * MIB, OTHER).is_none());
    program.free_in(block, OTHER);
    // What is cached counts, until it makes way.
    let block = program.malloc_in(5 * MIB, OTHER);
    assert!(block.is_some());
    program.device.set_memory_fraction(1.0).unwrap();
    assert!(program.malloc_in(5 * MIB, OTHER).is_some());
    for wrong in [-0.1, 1.1, f64::NAN] {
        assert!(program.device.set_memory_fraction(wrong).is_err());
    }
}

#[test]
fn an_emptied_cache_holds_what_is_live() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(100) > 0 {}
    let weight = program.malloc_in(MIB, OTHER);
    assert!(program.statistics().arena > 0);
    program.device.reset().unwrap();
    let done = program.statistics();
    assert_eq!((done.arena, done.reserved), (0, MIB));
    program.free_in(weight, OTHER);
    while program.unplanned(100) > 0 {}
}

/// What is refused is forgotten: a device that was full for long plans as before. The requests are more than the
/// allocator has room to note at once.
#[test]
fn a_request_that_is_refused_leaves_nothing_behind() {
    let mut program = Program::new(Fake::new(0));
    for bytes in 0..2000 {
        assert_eq!(program.malloc(10_000 + bytes), None);
    }
    program.device.driver().capacity = 1 << 30;
    let mut iterations = 0;
    while program.unplanned(100) > 0 {
        iterations += 1;
        assert!(iterations < 8, "no plan after {iterations} iterations");
    }
    // Its arena is that of the blocks, and of nothing else.
    let (arena, load) = (program.statistics().arena, max_load(100));
    assert!(arena * 100 <= load * 102, "{arena} for {load}");
}

/// One call of the driver fails, each in its turn, in either way: what is live stays apart, the program goes on, and at
/// the end everything but what was not taken back is free.
#[test]
fn every_call_of_the_driver_may_fail() {
    let run = |fake: Fake| {
        let mut program = Program::new(fake);
        let weight = program.malloc(5000);
        for batch in [100, 100, 100, 100, 100, 100, 100, 130, 130, 130, 130, 130, 130, 130, 130] {
            program.iteration(batch);
        }
        program.free(weight);
        program
    };
    let mut whole = run(Fake::new(1 << 30));
    let calls = whole.device.driver().calls;
    assert!(calls > 300);
    assert_eq!((whole.errors.len(), whole.live.len()), (0, 0));
    let remaining = whole.device.driver().live.len();
    let out_of_memory = Error::OutOfMemory { memory: Memory::Device, bytes: 1 };
    let mut told = 0;
    for error in [out_of_memory, Error::Driver { call: "cuMem", code: 1 }] {
        // Most calls ask whether a stream is captured, again and again: some of those that come late stand for all.
        for at in (0..200).chain((200..calls).step_by(11)) {
            let mut program = run(Fake::failing(at, error.clone()));
            assert!(program.errors.len() <= 1, "call {at}: {:?}", program.errors);
            assert!(program.errors.iter().all(|told| *told == error));
            told += program.errors.len();
            assert!(program.live.is_empty());
            assert!(program.device.driver().live.len() <= remaining + 1, "call {at}");
            program.device.driver().fails = None;
            let mut iterations = 0;
            while program.unplanned(130) > 0 {
                iterations += 1;
                assert!(iterations < 20, "call {at}: no plan any more");
            }
        }
    }
    assert!(told > 300, "{told}");
}

#[test]
fn a_device_that_refuses_every_call_says_so_each_time() {
    let mut program = Program::new(Fake::new(0));
    program.iteration(100);
    assert_eq!(program.errors.len(), 81);
    assert!(program.live.is_empty());
}

#[test]
fn an_arena_that_is_refused_is_done_without() {
    // What is live fits one by one; the arena, whose blocks are rounded up, does not.
    let mut program = Program::new(Fake::new(max_load(100) + 50));
    let weight = program.malloc(50);
    for _ in 0..100 {
        program.iteration(100);
    }
    let done = program.statistics();
    assert_eq!((done.plans, done.arena, done.planned), (1, 0, 0));
    // It was asked for again, three times: after 1024, 2048 and 4096 of 8100 requests.
    let refused = program.device.driver().refused;
    assert!((4..=5).contains(&refused), "{refused}");
    assert_eq!(program.errors, []);
    program.device.driver().capacity = 1 << 30;
    while program.unplanned(100) > 0 {}
    program.free(weight);
}

#[test]
fn an_idle_arena_is_given_back_when_memory_runs_out() {
    let mut program = Program::new(Fake::new(64 * MIB));
    while program.unplanned(100) > 0 {}
    assert!(program.statistics().arena > 0);
    let all = program.malloc(64 * MIB);
    assert!(all.is_some());
    assert_eq!(program.statistics().arena, 0);
    assert_eq!(program.malloc(MIB), None);
    program.free(all);
    let mut iterations = 0;
    while program.unplanned(100) > 0 {
        iterations += 1;
        assert!(iterations < 10, "no plan any more");
    }
}

#[test]
fn room_for_more_than_can_be_counted_is_refused() {
    for (events, live) in [(usize::MAX, 1), (1, usize::MAX)] {
        let refused = Device::with_room(Fake::new(MIB), events, live).map(drop);
        let too_many = sublet_core::Error::TooManyBlocks { needed: usize::MAX, most: MAX_BLOCKS };
        assert_eq!(refused, Err(Error::Plan(too_many)));
    }
}

#[test]
fn nothing_is_at_nothing_and_what_is_unknown_is_refused() {
    let mut device = Device::with_room(Fake::new(MIB), 16, 16).unwrap();
    assert_eq!(device.malloc(0, 0), Ok(0));
    assert_eq!(device.free(0, 0), Ok(()));
    assert_eq!(device.free(0x1000, 0), Err(Error::OutOfRange { address: 0x1000, bytes: 0 }));
    let address = device.malloc(10, 0).unwrap();
    assert_eq!(device.free(address, 0), Ok(()));
    assert_eq!(device.free(address, 0), Err(Error::OutOfRange { address, bytes: 0 }));
}
