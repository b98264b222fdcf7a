//! Streams that are captured: the memory of graphs.

use sublet_cuda::Error;

use crate::fake::{CAPTURED, Fake, MIB, OTHER, UNORDERED};
use crate::program::Program;

/// A training loop whose step is captured, told or not: a graph's memory stays the graph's, whatever comes after.
#[test]
fn what_is_captured_is_never_planned_over() {
    for told in [true, false] {
        let mut program = Program::new(Fake::new(1 << 30));
        while program.unplanned(100) > 0 {}
        let weight = program.malloc(5000);
        while program.unplanned(100) > 0 {}
        if told {
            program.device.begin_pool((1, 0));
        }
        program.device.driver().captured.insert(CAPTURED);
        let before = program.statistics();
        let (kept, freed) = (program.malloc_in(70_000, CAPTURED), program.malloc_in(50_000, CAPTURED));
        program.free_in(freed, CAPTURED);
        // Within the graph, memory that is freed serves again; but where the graph is not told, nothing tells it from a
        // later one.
        let again = program.malloc_in(40_000, CAPTURED);
        assert_eq!(again == freed, told);
        program.free_in(again, CAPTURED);
        // Streams that are not captured are served as ever, from the plan too.
        assert_eq!(program.unplanned(100), 0);
        // What was there before and is freed now waits for the end of the capture.
        let live = program.device.driver().live.len();
        program.free_in(weight, CAPTURED);
        assert_eq!(program.device.driver().live.len(), live);
        assert_eq!(
            program.device.free(weight.unwrap(), 0),
            Err(Error::OutOfRange { address: weight.unwrap(), bytes: 0 })
        );
        program.device.reset().unwrap();
        let done = program.statistics();
        assert_eq!((done.plans, done.unplanned), (before.plans, before.unplanned));
        program.device.driver().captured.clear();
        if told {
            program.device.end_pool((1, 0)).unwrap();
        }

        // The graph's memory is given to nobody else, though PyTorch has freed it.
        let graph = [(kept.unwrap(), 70_000), (freed.unwrap(), 50_000)];
        program.free_in(kept, CAPTURED);
        for (batch, iterations) in [(100, 3), (130, 8), (64, 2)] {
            for _ in 0..iterations {
                let apart =
                    |address: u64| graph.iter().all(|(start, bytes)| !(*start..start + bytes).contains(&address));
                program.iteration(batch);
                let first = program.malloc(1000).unwrap();
                assert!(apart(first));
                program.free(Some(first));
            }
        }
        program.device.reset().unwrap();
        assert!(graph.iter().all(|(address, _)| program.device.driver().live.contains_key(address)));
        assert!(!program.device.driver().live.contains_key(&weight.unwrap()));
        // Until the graph is destroyed.
        if told {
            program.device.release_pool((1, 0)).unwrap();
            assert!(!graph.iter().any(|(address, _)| program.device.driver().live.contains_key(address)));
        }
        assert_eq!(program.errors, []);
    }
}

#[test]
fn graphs_share_a_pool_and_give_it_back_with_the_last() {
    let mut program = Program::new(Fake::new(1 << 30));
    let held = |program: &mut Program| program.device.driver().live.len();
    let capture = |program: &mut Program, stream| {
        program.device.begin_pool((3, 4));
        program.device.driver().captured.insert(stream);
        let block = program.malloc_in(10_000, stream);
        program.device.driver().captured.clear();
        program.device.end_pool((3, 4)).unwrap();
        block
    };
    let first = capture(&mut program, CAPTURED);
    // That its own stream uses it is known already.
    program.device.record_stream(first.unwrap(), CAPTURED).unwrap();
    program.free_in(first, CAPTURED);
    // The second graph uses the first one's memory again, but not in another stream; and not what others have used.
    assert_eq!(capture(&mut program, CAPTURED), first);
    let other = capture(&mut program, OTHER);
    assert_ne!(other, first);
    program.device.record_stream(other.unwrap(), 5).unwrap();
    program.free_in(other, OTHER);
    let fourth = capture(&mut program, OTHER);
    assert!(fourth != other && held(&mut program) == 3);
    for _ in 0..3 {
        program.device.release_pool((3, 4)).unwrap();
        assert_eq!(held(&mut program), 3);
    }
    program.device.release_pool((3, 4)).unwrap();
    // What is live goes when it is freed.
    assert_eq!(held(&mut program), 2);
    program.free_in(first, CAPTURED);
    program.free_in(fourth, OTHER);
    assert_eq!(held(&mut program), 0);
}

#[test]
fn captures_at_the_same_time_keep_their_memory_for_good() {
    let mut program = Program::new(Fake::new(1 << 30));
    program.device.begin_pool((1, 0));
    program.device.begin_pool((2, 0));
    program.device.driver().captured.extend([CAPTURED, OTHER]);
    let blocks = [CAPTURED, OTHER].map(|stream| (program.malloc_in(1000, stream), stream));
    program.device.driver().captured.clear();
    for pool in [(1, 0), (2, 0)] {
        program.device.end_pool(pool).unwrap();
        program.device.release_pool(pool).unwrap();
    }
    for (block, stream) in blocks {
        program.free_in(block, stream);
    }
    program.device.reset().unwrap();
    assert_eq!(program.device.driver().live.len(), 2);
}

/// A graph may be launched after another one was captured in the same stream: where the pool of a capture is not known,
/// the two share no memory.
#[test]
fn a_later_capture_gets_no_memory_of_a_graph_whose_pool_is_not_known() {
    let mut program = Program::new(Fake::new(1 << 30));
    program.device.begin_pool((9, 0));
    let mut capture = |pool| {
        program.device.begin_pool(pool);
        program.device.driver().captured.insert(CAPTURED);
        let block = program.malloc_in(1000, CAPTURED);
        program.free_in(block, CAPTURED);
        program.device.driver().captured.clear();
        program.device.end_pool(pool).unwrap();
        block
    };
    assert_ne!(capture((1, 0)), capture((2, 0)));
}

/// Memory runs out while a stream is captured: nothing is waited for, and what is cached makes way.
#[test]
fn memory_runs_out_during_a_capture() {
    let mut program = Program::new(Fake::new(8 * MIB));
    let cached = program.malloc_in(3 * MIB, OTHER);
    program.free_in(cached, OTHER);
    program.device.driver().captured.insert(CAPTURED);
    program.device.driver().synchronized.clear();
    let graph = program.malloc_in(7 * MIB, CAPTURED);
    assert!(graph.is_some() && program.malloc_in(2 * MIB, CAPTURED).is_none());
    assert!(program.malloc_in(2 * MIB, OTHER).is_none());
    assert_eq!(program.device.driver().synchronized, []);
    assert_eq!(program.errors.len(), 2);
    // After the capture all streams are waited for, since what any of them has freed may be what is missing.
    program.device.driver().captured.clear();
    assert!(program.malloc_in(2 * MIB, OTHER).is_none());
    assert_eq!(program.device.driver().synchronized, [UNORDERED]);
}
