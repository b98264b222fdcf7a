//! What is planned, and what streams do to it.

use sublet_cuda::Error;
use sublet_cuda::torch::{Device, Stream};

use crate::fake::{Fake, MIB, OTHER, UNORDERED};
use crate::program::{Program, max_load};

#[test]
fn an_iteration_is_found_and_then_planned() {
    let mut program = Program::new(Fake::new(1 << 30));
    let weights: Vec<_> = (1..30).map(|i| program.malloc(i * 4000)).collect();
    let mut until_planned = 0;
    while program.unplanned(100) > 0 {
        until_planned += 1;
        assert!(until_planned < 6, "no plan after {until_planned} iterations");
    }
    let planned = program.statistics();
    for _ in 0..10 {
        assert_eq!(program.unplanned(100), 0);
    }
    let done = program.statistics();
    assert_eq!((done.plans, done.arena, done.reserved), (1, planned.arena, planned.reserved));
    assert_eq!(done.planned - planned.planned, 10 * 81);
    // 2 % above the most that is live: the sizes are rounded up, the placement is not always perfect.
    let load = max_load(100);
    assert!(done.arena >= load && done.arena * 100 <= load * 102, "{} for {load}", done.arena);
    // The weights, one by one, and the arena.
    assert_eq!(program.device.driver().live.len(), weights.len() + 1);
    for weight in weights {
        program.free(weight);
    }
    assert_eq!(program.errors, []);
}

/// An optimizer allocates its state after the first iteration, and the loss of an iteration is freed in the next one, when
/// all its activations are live. The iterations repeat from there on, and a plan is made there: with what is live then,
/// the arena takes little more than an iteration without a plan.
#[test]
fn an_arena_takes_the_place_of_what_was_live_without_it() {
    let mut program = Program::new(Fake::new(1 << 30));
    let (mut loss, mut left, mut state) = (None, 1, Vec::new());
    for _ in 0..9 {
        let before = program.statistics().unplanned;
        let activations = program.forward(100);
        program.free(loss.take());
        loss = program.malloc(4);
        program.backward(100, activations);
        while state.len() < 5 {
            state.push(program.malloc(5000));
        }
        left = program.statistics().unplanned - before;
    }
    // The loss outlives its iteration.
    assert_eq!((left, program.errors.as_slice()), (1, &[] as &[Error]));
    let (load, most) = (max_load(100), program.device.driver().peak);
    assert!(most * 10 <= load * 11, "{most} bytes were held at once, for {load}");
}

#[test]
fn iterations_that_are_told_are_planned_after_the_first() {
    let mut program = Program::new(Fake::new(1 << 30));
    program.device.iteration().unwrap();
    program.iteration(100);
    program.device.iteration().unwrap();
    for _ in 0..3 {
        assert_eq!(program.unplanned(100), 0);
        program.device.iteration().unwrap();
    }
    assert_eq!(program.statistics().plans, 1);
}

#[test]
fn another_batch_is_served_and_then_planned_anew() {
    let mut program = Program::new(Fake::new(1 << 30));
    // What is smaller than planned is served from the plan.
    for (batch, plans) in [(64, 1), (100, 2), (70, 2), (130, 3)] {
        let mut iterations = 0;
        while program.unplanned(batch) > 0 {
            iterations += 1;
            assert!(iterations < 8, "no plan of {batch} after {iterations} iterations");
        }
        let (load, done) = (max_load(batch), program.statistics());
        assert!(done.arena >= load, "{} for {load}", done.arena);
        assert_eq!(done.plans, plans);
        assert_eq!(program.device.driver().live.len(), 1, "the arena alone");
    }
    assert_eq!(program.errors, []);
}

#[test]
fn an_arena_with_live_blocks_stays_until_the_last_is_freed() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(50) > 0 {}
    let arena = *program.device.driver().live.keys().next().unwrap();
    // The first block of an iteration lives on, while others come that no plan expects.
    let kept = program.malloc(150_000);
    while program.unplanned(100) > 0 {}
    assert_eq!(program.device.driver().live.len(), 2);
    assert!(program.device.driver().live.contains_key(&arena));
    program.free(kept);
    assert_eq!(program.device.driver().live.len(), 1);
    assert!(!program.device.driver().live.contains_key(&arena));
}

#[test]
fn other_streams_are_served_by_the_driver_and_leave_the_plan_as_it_is() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(100) > 0 {}
    for _ in 0..5 {
        let before = program.statistics().unplanned;
        let other = program.malloc_in(5 * MIB, 7);
        program.iteration(100);
        assert_eq!(program.device.driver().live[&other.unwrap()], (5 * MIB, 7));
        program.free_in(other, 7);
        assert_eq!(program.statistics().unplanned - before, 1);
    }
    assert_eq!(program.statistics().plans, 1);

    // A block of the plan that is freed in another stream: the plan's stream follows that.
    let first = program.malloc(3 * 100_000);
    program.free_in(first, 9);
    assert_eq!(program.device.driver().followed, [(0, 9)]);
}

#[test]
fn what_other_streams_use_is_given_out_after_them() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(100) > 0 {}
    let planned = program.malloc(3 * 100_000);
    let apart = program.malloc_in(5 * MIB, OTHER);
    for (address, streams) in [(planned, [8, OTHER, 8]), (apart, [8, OTHER, 9])] {
        for stream in streams {
            program.device.record_stream(address.unwrap(), stream).unwrap();
        }
    }
    assert_eq!(program.device.driver().followed, []);
    let unknown = |address| Err(Error::OutOfRange { address, bytes: 0 });
    let inside = planned.unwrap() + 512;
    assert_eq!(program.device.record_stream(inside, OTHER), unknown(inside));
    program.free(planned);
    assert_eq!(program.device.driver().followed, [(0, 8), (0, OTHER)]);
    let freed = planned.unwrap();
    assert_eq!(program.device.record_stream(freed, OTHER), unknown(freed));
    program.free_in(apart, OTHER);
    assert_eq!(program.device.driver().followed[2..], [(OTHER, 8), (OTHER, 9)]);
    // They are forgotten with the block.
    let again = program.malloc_in(5 * MIB, OTHER);
    program.free_in(again, OTHER);
    assert_eq!(program.device.driver().followed.len(), 4);
    assert_eq!(program.device.record_stream(0x1000, OTHER), unknown(0x1000));
    assert_eq!(program.device.record_stream(0, OTHER), Ok(()));
}

#[test]
fn the_default_stream_has_two_names() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(100) > 0 {}
    let (before, planned) = (program.statistics(), program.malloc_in(3 * 100_000, 1));
    assert_eq!(program.statistics().planned, before.planned + 1);
    program.free_in(planned, 1);
    assert_eq!(program.device.driver().followed, []);
}

#[test]
fn more_blocks_than_there_is_room_for_are_served_all_the_same() {
    let mut device = Device::with_room(Fake::new(1 << 30), 8, 8).unwrap();
    let blocks: Vec<u64> = (1..1000).map(|bytes| device.malloc(bytes, 0).unwrap()).collect();
    for address in blocks {
        device.free(address, 0).unwrap();
    }
    assert!(device.driver().live.is_empty());
}

#[test]
fn when_the_planned_stream_is_gone_another_is_planned() {
    let mut program = Program::new(Fake::new(1 << 30));
    while program.unplanned(100) > 0 {}
    let left = program.device.malloc(MIB, 0).unwrap();
    program.device.driver().gone.insert(0);
    program.device.driver().synchronized.clear();
    program.device.free(left, 0).unwrap();
    program.device.reset().unwrap();
    let waits = program.device.driver().synchronized.len();
    // What the stream was given comes before the work of the next one.
    let block = program.device.malloc(MIB, OTHER).unwrap();
    assert_eq!(program.device.driver().synchronized[waits..], [UNORDERED]);
    program.device.free(block, OTHER).unwrap();
    let step = |device: &mut Device<Fake>| {
        let before = device.statistics().unwrap().unplanned;
        let blocks = [3, 1, 2].map(|n| device.malloc(n * MIB, OTHER).unwrap());
        for address in blocks {
            device.free(address, OTHER).unwrap();
        }
        device.statistics().unwrap().unplanned - before
    };
    let iterations = (0..40).take_while(|_| step(&mut program.device) > 0).count();
    assert!(iterations < 40);
}

#[test]
fn a_stream_that_is_gone_is_asked_for_once() {
    let mut program = Program::new(Fake::new(1 << 30));
    for stream in [0, OTHER] {
        let block = program.malloc_in(MIB, stream);
        program.free_in(block, stream);
    }
    program.device.driver().gone.insert(OTHER);
    let mut calls = || {
        let before = program.device.driver().calls;
        program.device.reset().unwrap();
        program.device.driver().calls - before
    };
    assert_eq!(calls(), calls() + 1);
}

#[test]
fn the_default_streams_of_two_threads_are_two() {
    const OF_THE_THREAD: Stream = 2;
    let mut program = Program::new(Fake::new(1 << 30));
    let device = &mut program.device;
    let step = |device: &mut Device<Fake>| {
        let before = device.statistics().unwrap().unplanned;
        let blocks = [3, 1, 2].map(|n| device.malloc(n * MIB, OF_THE_THREAD).unwrap());
        for address in blocks {
            device.free(address, OF_THE_THREAD).unwrap();
        }
        device.statistics().unwrap().unplanned - before
    };
    while step(device) > 0 {}
    let planned = device.malloc(3 * MIB, OF_THE_THREAD).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Served apart, and after each other's work where memory passes from one to the other.
            assert_eq!(step(device), 3);
            device.driver().followed.clear();
            device.free(planned, OF_THE_THREAD).unwrap();
            let [(owner, other)] = device.driver().followed[..] else { panic!("{:?}", device.driver().followed) };
            assert!(owner != other && ![owner, other].contains(&OF_THE_THREAD));
            // This thread cannot ask the other's stream, which is planned all the same.
            device.driver().gone.insert(owner);
            device.reset().unwrap();
            device.driver().gone.clear();
        });
    });
    device.driver().synchronized.clear();
    step(device);
    assert!(!device.driver().synchronized.contains(&UNORDERED));
}
