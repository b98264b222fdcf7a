//! The allocator for PyTorch, whole, over a driver that hands out numbers.

use std::collections::{BTreeMap, BTreeSet};

use sublet_cuda::torch::{Device, Devices, Driver, Statistics, Stream};
use sublet_cuda::{Error, Memory, MemoryInfo, Result};

const MIB: u64 = 1 << 20;
/// Stands for all streams, and for none.
const UNORDERED: Stream = usize::MAX;
/// Streams that are captured, and another one.
const CAPTURED: Stream = 11;
const OTHER: Stream = 7;

/// Keeps what is freed until it is trimmed; memory is a number of bytes, in any pieces.
struct Fake {
    capacity: u64,
    next: u64,
    live: BTreeMap<u64, (u64, Stream)>,
    cached: u64,
    peak: u64,
    synchronized: Vec<Stream>,
    /// Which streams were told to follow which.
    followed: Vec<(Stream, Stream)>,
    /// Streams that are captured: what would spoil that is a panic.
    captured: BTreeSet<Stream>,
    calls: usize,
    /// Requests beyond the capacity.
    refused: usize,
    /// The call that fails, and how.
    fails: Option<(usize, Error)>,
}

impl Fake {
    fn new(capacity: u64) -> Self {
        let (live, synchronized) = (BTreeMap::new(), Vec::new());
        Self {
            capacity,
            next: 0x7f00_0000_0000,
            live,
            cached: 0,
            peak: 0,
            synchronized,
            followed: Vec::new(),
            captured: BTreeSet::new(),
            calls: 0,
            refused: 0,
            fails: None,
        }
    }

    fn failing(at: usize, with: Error) -> Self {
        Self { fails: Some((at, with)), ..Self::new(1 << 30) }
    }

    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        match &self.fails {
            Some((at, error)) if *at == self.calls - 1 => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// A call that has no place in a stream that is captured.
    fn not_captured(&self, stream: Stream) {
        assert!(!self.captured.contains(&stream), "stream {stream} is captured");
    }

    fn used(&self) -> u64 {
        self.live.values().map(|(bytes, _)| bytes).sum()
    }
}

impl Driver for Fake {
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        self.not_captured(stream);
        self.call()?;
        self.cached = self.cached.saturating_sub(bytes);
        if self.used() + self.cached + bytes > self.capacity {
            self.refused += 1;
            return Err(Error::OutOfMemory { memory: Memory::Device, bytes });
        }
        let address = self.next;
        self.next += bytes.next_multiple_of(2 * MIB) + 2 * MIB;
        self.live.insert(address, (bytes, stream));
        self.peak = self.peak.max(self.used());
        Ok(address)
    }

    fn free(&mut self, address: u64, stream: Stream) -> Result<()> {
        self.not_captured(stream);
        self.call()?;
        let (bytes, _) = self.live.remove(&address).expect("only what is allocated is freed");
        self.cached += bytes;
        Ok(())
    }

    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64> {
        let captured = std::mem::take(&mut self.captured);
        let given = self.alloc(bytes, UNORDERED);
        self.captured = captured;
        given
    }

    fn free_unordered(&mut self, address: u64) -> Result<()> {
        assert_eq!(self.live[&address].1, UNORDERED);
        self.free(address, UNORDERED)?;
        self.cached = 0;
        Ok(())
    }

    fn is_capturing(&mut self, stream: Stream) -> Result<bool> {
        self.call()?;
        Ok(self.captured.contains(&stream))
    }

    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()> {
        self.not_captured(stream);
        self.not_captured(other);
        self.call()?;
        self.followed.push((stream, other));
        Ok(())
    }

    fn synchronize(&mut self, stream: Stream) -> Result<()> {
        self.not_captured(stream);
        self.call()?;
        self.synchronized.push(stream);
        Ok(())
    }

    fn synchronize_all(&mut self) -> Result<()> {
        assert!(self.captured.is_empty(), "{:?} are captured", self.captured);
        self.call()?;
        self.synchronized.push(UNORDERED);
        Ok(())
    }

    fn trim(&mut self) -> Result<()> {
        self.call()?;
        self.cached = 0;
        Ok(())
    }

    fn reserved(&mut self) -> Result<(u64, u64)> {
        self.call()?;
        Ok((self.used() + self.cached, self.peak))
    }

    fn memory(&mut self) -> Result<MemoryInfo> {
        Ok(MemoryInfo { free: self.capacity - self.used(), total: self.capacity })
    }
}

/// A program that allocates, and what it has.
struct Program {
    device: Device<Fake>,
    live: BTreeMap<u64, u64>,
    errors: Vec<Error>,
}

impl Program {
    fn new(fake: Fake) -> Self {
        Self { device: Device::with_room(fake, 1 << 10, 1 << 8).unwrap(), live: BTreeMap::new(), errors: Vec::new() }
    }

    /// Memory that nobody else has, all of it in one allocation of the driver.
    fn malloc_in(&mut self, bytes: u64, stream: Stream) -> Option<u64> {
        let address = match self.device.malloc(bytes, stream) {
            Ok(address) => address,
            Err(error) => {
                self.errors.push(error);
                return None;
            }
        };
        assert_eq!(address % 512, 0);
        let (before, after) = (self.live.range(..=address).next_back(), self.live.range(address..).next());
        assert!(before.is_none_or(|(a, len)| a + len <= address), "{address:#x} is live");
        assert!(after.is_none_or(|(&a, _)| address + bytes <= a), "{address:#x} reaches into a live block");
        let (start, (len, _)) = self.device.driver().live.range(..=address).next_back().expect("the driver's");
        assert!(address + bytes <= start + len, "{bytes} bytes at {address:#x} are not all the driver's");
        self.live.insert(address, bytes);
        Some(address)
    }

    fn malloc(&mut self, bytes: u64) -> Option<u64> {
        self.malloc_in(bytes, 0)
    }

    fn free_in(&mut self, address: Option<u64>, stream: Stream) {
        let Some(address) = address else { return };
        self.live.remove(&address).unwrap();
        if let Err(error) = self.device.free(address, stream) {
            self.errors.push(error);
        }
    }

    fn free(&mut self, address: Option<u64>) {
        self.free_in(address, 0);
    }

    /// Forward keeps activations, backward frees them in reverse, with a gradient and a workspace at each layer.
    fn iteration(&mut self, batch: u64) {
        let size = |layer: u64| batch * (layer % 5 + 1) * 1000 + layer;
        let mut activations = Vec::new();
        for layer in 0..20 {
            let workspace = self.malloc(3 * size(layer));
            activations.push(self.malloc(size(layer)));
            self.free(workspace);
        }
        let mut gradient = self.malloc(size(19));
        for layer in (0..20).rev() {
            let workspace = self.malloc(2 * size(layer));
            let next = self.malloc(size(layer));
            self.free(gradient);
            self.free(workspace);
            self.free(activations.pop().unwrap());
            gradient = next;
        }
        self.free(gradient);
    }

    fn statistics(&mut self) -> Statistics {
        self.device.statistics().unwrap()
    }

    /// What is not planned of the next iteration.
    fn unplanned(&mut self, batch: u64) -> u64 {
        let before = self.statistics().unplanned;
        self.iteration(batch);
        self.statistics().unplanned - before
    }
}

/// The most bytes of an iteration that are live at once.
fn max_load(batch: u64) -> u64 {
    let mut program = Program::new(Fake::new(1 << 30));
    // Nothing of other streams is planned: each block is an allocation.
    let first = program.malloc_in(1, 1);
    program.free_in(first, 1);
    program.device.driver().peak = 0;
    program.iteration(batch);
    program.device.driver().peak
}

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
    program.free(planned);
    assert_eq!(program.device.driver().followed, [(0, 8), (0, OTHER)]);
    program.free_in(apart, OTHER);
    assert_eq!(program.device.driver().followed[2..], [(OTHER, 8), (OTHER, 9)]);
    // They are forgotten with the block.
    let again = program.malloc_in(5 * MIB, OTHER);
    program.free_in(again, OTHER);
    assert_eq!(program.device.driver().followed.len(), 4);
    let unknown = Err(Error::OutOfRange { address: 0x1000, bytes: 0 });
    assert_eq!(program.device.record_stream(0x1000, OTHER), unknown);
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
        // Within the graph, memory that is freed serves again.
        let again = program.malloc_in(40_000, CAPTURED);
        assert_eq!(again, freed);
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

/// What is refused is forgotten: a device that was full for long plans as before.
#[test]
fn a_request_that_is_refused_leaves_nothing_behind() {
    let mut program = Program::new(Fake::new(0));
    for bytes in 0..1000 {
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
fn nothing_is_at_nothing_and_what_is_unknown_is_refused() {
    let mut device = Device::with_room(Fake::new(MIB), 16, 16).unwrap();
    assert_eq!(device.malloc(0, 0), Ok(0));
    assert_eq!(device.free(0, 0), Ok(()));
    assert_eq!(device.free(0x1000, 0), Err(Error::OutOfRange { address: 0x1000, bytes: 0 }));
    let address = device.malloc(10, 0).unwrap();
    assert_eq!(device.free(address, 0), Ok(()));
    assert_eq!(device.free(address, 0), Err(Error::OutOfRange { address, bytes: 0 }));
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
fn devices_have_plans_of_their_own_and_threads_may_use_them_at_once() {
    let devices = Devices::new(|device| match device {
        0 | 1 => Ok(Fake::new(1 << 30)),
        _ => Err(Error::NoDevice { ordinal: device.cast_unsigned(), count: 2 }),
    });
    let step = |device: i32, blocks: u64| {
        let sizes = (1..=blocks).map(|i| i * 10_000 * (u64::from(device.cast_unsigned()) + 1));
        let addresses: Vec<u64> = sizes.map(|bytes| devices.with(device, |d| d.malloc(bytes, 0)).unwrap()).collect();
        for address in addresses {
            devices.with(device, |d| d.free(address, 0)).unwrap();
        }
    };
    let in_threads = |times| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..times).for_each(|_| step(0, 10)));
            scope.spawn(|| (0..times).for_each(|_| step(1, 20)));
        });
        [0, 1].map(|device| devices.with(device, Device::statistics).unwrap())
    };
    let warm = in_threads(8);
    let done = in_threads(5);
    for (warm, done, blocks) in [(&warm[0], &done[0], 10), (&warm[1], &done[1], 20)] {
        assert_eq!((done.planned - warm.planned, done.unplanned - warm.unplanned), (5 * blocks, 0));
    }
    assert_eq!(done[0].arena, (1..=10_u64).map(|i| (i * 10_000).next_multiple_of(512)).sum::<u64>());
    assert_ne!(done[0].arena, done[1].arena);
    let none = devices.with(2, Device::statistics);
    assert_eq!(none, Err(Error::NoDevice { ordinal: 2, count: 2 }));

    // On one device at once: no order to plan, and nothing is given out twice.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| step(0, 7)));
        }
    });
    let live = devices.with(0, |device| Ok(device.driver().live.len())).unwrap();
    assert!(live <= 1, "{live}");
}

#[test]
fn without_a_driver_every_device_says_so() {
    // SAFETY: nothing of the driver is used before.
    if unsafe { cudarc::driver::sys::is_culib_present() } {
        eprintln!("skipped: what is told without a driver; there is one");
        return;
    }
    let devices = Devices::new(sublet_cuda::torch::Cuda::open);
    assert_eq!(devices.with(0, |device| device.malloc(10, 0)), Err(Error::NoDriver));
}
