//! A backend without a GPU: the host stands in for a device, with memory, streams that are queues, events, and links of
//! any speed.
//!
//! With [`Mode::Threads`] each stream is a thread, and races really happen. With [`Mode::Ordered`] nothing runs before
//! something waits for it. All work then runs on the waiting thread, and an [`Order`] chooses among the streams that
//! could go on, in the same way every time. Times are then simulated: a piece of work begins when its stream is free
//! and what it waits for is done, whenever it really runs.
//!
//! In both modes, [`HostBackend::races`] returns the pairs of pieces of work that use the same bytes with nothing to
//! order them. Memory that is freed is overwritten, and work that still uses it then is a fault, as on a GPU. Dropping
//! a stream waits for nothing, as on a GPU.

mod memory;
mod options;
mod queue;
mod races;
mod sync;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::backend::{Attributes, Backend, Call, MemoryInfo, PinnedBytes};
use crate::error::{Error, Memory, Result};
use memory::{Allocation, Range};
pub use options::{InUse, Mode, Operand, Options, Order, Slice};
use queue::{Fault, Next, Point, Run, State, Task};
pub use races::Race;
use races::Races;
use sync::{Condvar, Mutex, lock, thread};

struct Shared {
    options: Options,
    state: Mutex<State>,
    changed: Condvar,
    ledger: Mutex<Ledger>,
    begin: Instant,
}

#[derive(Default)]
struct Ledger {
    used: InUse,
    arenas: Vec<(Arc<Allocation>, u64)>,
}

/// The host as a stand-in for a device. A clone is a second handle of the same device.
#[derive(Clone)]
pub struct HostBackend {
    shared: Arc<Shared>,
}

/// A stream of a [`HostBackend`]: a queue of work that runs in order.
pub struct Stream {
    shared: Arc<Shared>,
    lane: usize,
}

/// An event of a [`HostBackend`]: a point in the work of a stream, which other streams and the host can wait for.
pub struct Event {
    shared: Arc<Shared>,
    last: Mutex<Option<Arc<Point>>>,
    timed: bool,
}

/// An arena of a [`HostBackend`]: the range of memory in which blocks are placed.
pub struct Arena {
    shared: Arc<Shared>,
    memory: Arc<Allocation>,
    size: u64,
    room: u64,
}

/// Pinned memory of a [`HostBackend`]: the host's side of copies to and from the device. On a GPU this memory is
/// pinned, so that the system does not move it; here it is ordinary memory.
pub struct Pinned {
    shared: Arc<Shared>,
    memory: Arc<Allocation>,
    bytes: u64,
}

impl HostBackend {
    /// Makes a device that has no streams, and no memory in use.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let state = State { races: options.races.then(Races::default), ..State::default() };
        let shared = Shared {
            options,
            state: Mutex::new(state),
            changed: Condvar::new(),
            ledger: Mutex::new(Ledger::default()),
            begin: Instant::now(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Puts a kernel into the queue of a stream; the kernel takes `ns` ns of simulated time. When the stream reaches
    /// it, `kernel` is called with the bytes of the operands, in the order of `operands`. If `kernel` panics, the
    /// device is lost.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an operand outside the arenas; [`Error::OperandsOverlap`] if two operands share bytes
    /// and one is written; [`Error::Lost`] after the device has failed.
    pub fn launch(
        &self,
        stream: &Stream,
        ns: f64,
        operands: &[Operand],
        kernel: impl FnOnce(&mut [Slice<'_>]) + Send + 'static,
    ) -> Result<()> {
        let mut ranges = Vec::with_capacity(operands.len());
        for operand in operands {
            ranges.push((self.shared.resolve(operand.address, operand.bytes)?, operand.write));
        }
        for (i, (a, written)) in ranges.iter().enumerate() {
            if let Some((b, _)) = ranges[..i].iter().find(|(b, also)| (*written || *also) && a.overlaps(b)) {
                return Err(Error::OperandsOverlap { address: a.address().max(b.address()) });
            }
        }
        let used: Vec<_> = ranges.iter().map(|(range, write)| (span(range), *write)).collect();
        let run = move || {
            // SAFETY: what is written is disjoint from the rest, as checked above; streams that use the same bytes wait
            // for each other, which is what a plan's events are for.
            let slice = |(range, write): &(Range, bool)| unsafe {
                if *write { Slice::Write(range.write()) } else { Slice::Read(range.read()) }
            };
            if ranges.iter().any(|(range, _)| range.is_given_back()) {
                return Err(GIVEN_BACK);
            }
            let mut slices: Vec<Slice<'_>> = ranges.iter().map(slice).collect();
            let outcome = catch_unwind(AssertUnwindSafe(|| kernel(&mut slices)));
            outcome.map_err(|_| Fault { call: "a kernel", code: 719 })
        };
        self.shared.give(stream.lane, &used, ns, Box::new(run))
    }

    /// How much of the device is in use. All figures are 0 once all arenas, pinned memory, streams and events are
    /// dropped.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        lock(&self.shared.ledger).used
    }

    /// The races found so far: pairs of pieces of work on two streams that use the same bytes, where at least one
    /// writes them and nothing says which runs first. Empty if the options do not ask for them.
    #[must_use]
    pub fn races(&self) -> Vec<Race> {
        lock(&self.shared.state).races.as_ref().map_or_else(Vec::new, |races| races.found().to_vec())
    }

    /// Waits until all streams, dropped streams included, have done the work that they were given. With
    /// [`Mode::Ordered`] this thread does the work.
    ///
    /// # Errors
    /// [`Error::Lost`] after the device has failed.
    pub fn idle(&self) -> Result<()> {
        match self.shared.options.mode {
            Mode::Ordered(order) => self.shared.work_until(order, |_| false),
            Mode::Threads { .. } => {
                let mut state = lock(&self.shared.state);
                while !state.is_idle() {
                    state = self.shared.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
        let mut state = lock(&self.shared.state);
        Shared::refuse(&state)?;
        state.host_clock = state.lanes.iter().map(|lane| lane.clock).fold(state.host_clock, f64::max);
        if let Some(races) = &mut state.races {
            races.idle();
        }
        Ok(())
    }

    /// Makes the device fail after `work` more kernels, copies and host calls, as a test; from then on it is lost.
    pub fn lose_after(&self, work: u64) {
        lock(&self.shared.state).until_fault = Some(work);
    }

    fn copy(&self, stream: &Stream, from: Range, to: Range, ns: f64) -> Result<()> {
        let used = [(span(&from), false), (span(&to), true)];
        let run = move || {
            if from.is_given_back() || to.is_given_back() {
                return Err(GIVEN_BACK);
            }
            // SAFETY: other streams that use these bytes wait, or are waited for: that is what a plan's events are for.
            unsafe { from.copy_to(&to) };
            Ok(())
        };
        self.shared.give(stream.lane, &used, ns, Box::new(run))
    }
}

/// 700 is the CUDA error of an illegal address.
const GIVEN_BACK: Fault = Fault { call: "work on memory that was given back", code: 700 };

fn span(range: &Range) -> std::ops::Range<u64> {
    range.address()..range.address() + range.bytes()
}

impl Shared {
    fn in_threads(&self) -> bool {
        matches!(self.options.mode, Mode::Threads { .. })
    }

    fn resolve(&self, address: u64, bytes: u64) -> Result<Range> {
        let outside = Error::OutOfRange { address, bytes };
        let end = address.checked_add(bytes).ok_or(outside.clone())?;
        let ledger = lock(&self.ledger);
        let within =
            |(memory, size): &&(Arc<Allocation>, u64)| memory.address() <= address && end <= memory.address() + size;
        let (memory, _) = ledger.arenas.iter().find(within).ok_or(outside.clone())?;
        Range::new(memory, address - memory.address(), bytes).ok_or(outside)
    }

    fn refuse(state: &State) -> Result<()> {
        state.fault.map_or(Ok(()), |Fault { call, code }| Err(Error::Lost { call, code }))
    }

    fn give(&self, lane: usize, used: &[(std::ops::Range<u64>, bool)], ns: f64, run: Run) -> Result<()> {
        let mut state = lock(&self.state);
        Self::refuse(&state)?;
        if let Some(races) = &mut state.races {
            races.work(lane, used);
        }
        state.push(lane, Task::Work(run, ns));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// `given`: the simulated time, in ns, before which it does not begin. `delay` is real.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn work(&self, lane: usize, task: Task, given: f64, delay: Option<Duration>) {
        let now = || self.begin.elapsed().as_nanos() as f64;
        let paced = matches!(self.options.mode, Mode::Threads { paced: true, .. });
        match task {
            Task::Work(run, ns) => {
                let lost = {
                    let mut state = lock(&self.state);
                    let clock = &mut state.lanes[lane].clock;
                    *clock = clock.max(given) + ns;
                    if state.fault.is_none() && state.fails_now() {
                        state.fault = Some(Fault { call: "work on a stream", code: 719 });
                    }
                    state.fault.is_some()
                };
                if lost {
                    return;
                }
                if let Some(delay) = delay {
                    thread::sleep(delay);
                }
                let begin = Instant::now();
                if let Err(fault) = run() {
                    lock(&self.state).fault.get_or_insert(fault);
                }
                if paced && ns > 0.0 {
                    thread::sleep(Duration::from_secs_f64(ns.min(1e12) / 1e9).saturating_sub(begin.elapsed()));
                }
            }
            Task::Record(point) => {
                let time = if self.in_threads() { now() } else { lock(&self.state).lanes[lane].clock.max(given) };
                *lock(&point.reached) = Some(time);
            }
            Task::Wait(point) => {
                if let Some(time) = point.reached() {
                    let clock = &mut lock(&self.state).lanes[lane].clock;
                    *clock = clock.max(time);
                }
            }
        }
    }

    fn serve(&self, lane: usize) {
        let delays = match self.options.mode {
            Mode::Threads { delays, .. } => delays,
            Mode::Ordered(_) => None,
        };
        let mut rng = delays.map(|(seed, most)| (SplitMix64::seed_from_u64(seed ^ (lane as u64) << 32), most));
        let mut state = lock(&self.state);
        loop {
            match state.next(lane) {
                Next::Task(task, given) => {
                    state.working += 1;
                    drop(state);
                    let delay =
                        rng.as_mut().map(|(rng, most)| most.mul_f64(f64::from(rng.next_u32()) / f64::from(u32::MAX)));
                    self.work(lane, task, given, delay);
                    state = lock(&self.state);
                    state.working -= 1;
                    // Under the lock: a thread that has just seen no change must be waiting by now.
                    self.changed.notify_all();
                }
                Next::Nothing if state.lanes[lane].closed => return,
                Next::Nothing | Next::Blocked => {
                    state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
    }

    fn work_until(&self, order: Order, done: impl Fn(&State) -> bool) {
        loop {
            let mut state = lock(&self.state);
            if done(&state) {
                return;
            }
            let Some(lane) = state.choose(order) else { return };
            let Next::Task(task, given) = state.next(lane) else { return };
            drop(state);
            self.work(lane, task, given, None);
        }
    }
}

impl Backend for HostBackend {
    type Arena = Arena;
    type Pinned = Pinned;
    type Stream = Stream;
    type Event = Event;

    fn attributes(&self) -> Attributes {
        Attributes { integrated: self.shared.options.device.integrated, grows_in_place: true }
    }

    fn memory(&self) -> Result<MemoryInfo> {
        Shared::refuse(&lock(&self.shared.state))?;
        let total = self.shared.options.memory;
        Ok(MemoryInfo { free: total - self.in_use().device, total })
    }

    fn reserve(&self, bytes: u64, room: u64) -> Result<Arena> {
        let room = room.max(bytes);
        let shared = self.shared.clone();
        let mut ledger = lock(&shared.ledger);
        let none = Error::OutOfMemory { memory: Memory::Device, bytes };
        if bytes > shared.options.memory - ledger.used.device {
            return Err(none);
        }
        // If the host has no addresses for the room, the arena gets none.
        let (memory, room) = match Allocation::new(room) {
            Some(memory) => (memory, room),
            None => (Allocation::new(bytes).ok_or(none)?, bytes),
        };
        let memory = Arc::new(memory);
        ledger.used.device += bytes;
        ledger.arenas.push((memory.clone(), bytes));
        drop(ledger);
        Ok(Arena { shared, memory, size: bytes, room })
    }

    fn grow(&self, arena: &mut Arena, bytes: u64) -> Result<()> {
        if bytes > arena.room {
            return Err(Error::CannotGrow { bytes, room: arena.room });
        }
        let more = bytes.saturating_sub(arena.size);
        let mut ledger = lock(&self.shared.ledger);
        if more > self.shared.options.memory - ledger.used.device {
            return Err(Error::OutOfMemory { memory: Memory::Device, bytes: more });
        }
        ledger.used.device += more;
        arena.size += more;
        if let Some((_, size)) = ledger.arenas.iter_mut().find(|(memory, _)| Arc::ptr_eq(memory, &arena.memory)) {
            *size = arena.size;
        }
        Ok(())
    }

    fn address(&self, arena: &Arena) -> u64 {
        arena.memory.address()
    }

    fn size(&self, arena: &Arena) -> u64 {
        arena.size
    }

    fn pin(&self, bytes: u64) -> Result<Pinned> {
        let shared = self.shared.clone();
        let mut ledger = lock(&shared.ledger);
        let none = Error::OutOfMemory { memory: Memory::Pinned, bytes };
        let memory = Arc::new(Allocation::new(bytes).ok_or(none)?);
        ledger.used.pinned += bytes;
        drop(ledger);
        Ok(Pinned { shared, memory, bytes })
    }

    fn pinned(&self, memory: &Pinned) -> PinnedBytes {
        PinnedBytes::new(memory.memory.start(), memory.memory.len())
    }

    fn stream(&self) -> Result<Stream> {
        let shared = self.shared.clone();
        let lane = {
            let mut state = lock(&shared.state);
            Shared::refuse(&state)?;
            state.open()
        };
        if shared.in_threads() {
            let serving = shared.clone();
            if thread::Builder::new().spawn(move || serving.serve(lane)).is_err() {
                lock(&shared.state).lanes[lane].closed = true;
                return Err(Error::Driver { call: "starting a thread for a stream", code: 2 });
            }
        }
        lock(&shared.ledger).used.streams += 1;
        Ok(Stream { shared, lane })
    }

    fn event(&self, timed: bool) -> Result<Event> {
        Shared::refuse(&lock(&self.shared.state))?;
        lock(&self.shared.ledger).used.events += 1;
        Ok(Event { shared: self.shared.clone(), last: Mutex::new(None), timed })
    }

    fn record(&self, event: &Event, stream: &Stream) -> Result<()> {
        let mut state = lock(&self.shared.state);
        Shared::refuse(&state)?;
        let clock = state.races.as_mut().map(|races| races.record(stream.lane)).unwrap_or_default();
        let point = Arc::new(Point { reached: Mutex::new(None), clock });
        state.push(stream.lane, Task::Record(point.clone()));
        *lock(&event.last) = Some(point);
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn wait(&self, stream: &Stream, event: &Event) -> Result<()> {
        let mut state = lock(&self.shared.state);
        Shared::refuse(&state)?;
        let Some(point) = lock(&event.last).clone() else { return Ok(()) };
        if let Some(races) = &mut state.races {
            races.wait(stream.lane, &point.clock);
        }
        state.push(stream.lane, Task::Wait(point));
        drop(state);
        self.shared.changed.notify_all();
        Ok(())
    }

    fn synchronize(&self, event: &Event) -> Result<()> {
        let Some(point) = lock(&event.last).clone() else { return Shared::refuse(&lock(&self.shared.state)) };
        let arrived = |state: &State| state.fault.is_some() || point.reached().is_some();
        match self.shared.options.mode {
            Mode::Ordered(order) => self.shared.work_until(order, arrived),
            Mode::Threads { .. } => {
                let mut state = lock(&self.shared.state);
                while !arrived(&state) {
                    state = self.shared.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            }
        }
        let mut state = lock(&self.shared.state);
        Shared::refuse(&state)?;
        if let Some(time) = point.reached() {
            state.host_clock = state.host_clock.max(time);
        }
        if let Some(races) = &mut state.races {
            races.synchronize(&point.clock);
        }
        Ok(())
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64> {
        Shared::refuse(&lock(&self.shared.state))?;
        let time = |event: &Event| {
            let point = lock(&event.last).clone();
            point.filter(|_| event.timed).and_then(|point| point.reached()).ok_or(Error::NotTimed)
        };
        Ok(time(to)? - time(from)?)
    }

    fn copy_out(&self, stream: &Stream, from: u64, (to, at): (&Pinned, u64), bytes: u64) -> Result<()> {
        let from = self.shared.resolve(from, bytes)?;
        self.copy(stream, from, to.range(at, bytes)?, self.shared.options.device.out_ns(bytes))
    }

    fn copy_in(&self, stream: &Stream, (from, at): (&Pinned, u64), to: u64, bytes: u64) -> Result<()> {
        let to = self.shared.resolve(to, bytes)?;
        self.copy(stream, from.range(at, bytes)?, to, self.shared.options.device.in_ns(bytes))
    }

    fn copy_within(&self, stream: &Stream, from: u64, to: u64, bytes: u64) -> Result<()> {
        let (from, to) = (self.shared.resolve(from, bytes)?, self.shared.resolve(to, bytes)?);
        if from.overlaps(&to) {
            return Err(Error::OperandsOverlap { address: from.address().max(to.address()) });
        }
        self.copy(stream, from, to, 0.0)
    }

    fn call(&self, stream: &Stream, call: Call) -> Result<()> {
        let run = move || {
            let outcome = catch_unwind(AssertUnwindSafe(call));
            outcome.map_err(|_| Fault { call: "a call of the host", code: 719 })
        };
        self.shared.give(stream.lane, &[], 0.0, Box::new(run))
    }
}

impl Pinned {
    fn range(&self, at: u64, bytes: u64) -> Result<Range> {
        let address = self.memory.address().saturating_add(at);
        Range::new(&self.memory, at, bytes).ok_or(Error::OutOfRange { address, bytes })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        lock(&self.shared.state).lanes[self.lane].closed = true;
        self.shared.changed.notify_all();
        lock(&self.shared.ledger).used.streams -= 1;
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        lock(&self.shared.ledger).used.events -= 1;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut ledger = lock(&self.shared.ledger);
        ledger.used.device -= self.size;
        ledger.arenas.retain(|(memory, _)| !Arc::ptr_eq(memory, &self.memory));
        drop(ledger);
        self.memory.give_back(self.size);
        let range = self.memory.address()..self.memory.address() + self.room;
        if let Some(races) = &mut lock(&self.shared.state).races {
            races.forget(&range);
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        lock(&self.shared.ledger).used.pinned -= self.bytes;
        self.memory.give_back(self.bytes);
        let range = self.memory.address()..self.memory.address() + self.bytes;
        if let Some(races) = &mut lock(&self.shared.state).races {
            races.forget(&range);
        }
    }
}
