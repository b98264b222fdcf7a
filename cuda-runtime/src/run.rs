//! Runs a program on a backend: does the copies beside the kernels that the caller launches.
//!
//! An event is here one of the backend, such as a CUDA event: it is recorded on a stream, and happens when the work
//! that the stream was given before is done. Other streams and the host can wait for it.

use sublet_core::trace::Op;

use crate::backend::{Backend, PinnedBytes};
use crate::error::{Error, Result};
use crate::measure::{CopyTime, Direction, Measured, Stall};
use crate::program::{Home, Program, Residence};
use crate::step::{COMPUTE, Operand, PAGE, Part, Step, Work};
#[cfg(target_os = "linux")]
use crate::storage::Storage;
use crate::tier::Tier;
use crate::waits::LANES;

/// A launch that the caller is to make now: one run of an operator, or a part of it.
pub struct Launch<'a, B: Backend> {
    /// The stream to launch the kernels on. What is launched there now runs only after all earlier work that its
    /// operands depend on.
    pub stream: &'a B::Stream,
    /// The operator by its number in the recorded trace, and whether it is recomputed; `Op::None` for an access that
    /// belongs to no operator, such as the one that writes the network's input.
    pub op: Op,
    /// What to launch: the whole operator, or only the computation of the bit mask of a block.
    pub part: Part,
    operands: &'a [Operand],
    base: u64,
}

impl<B: Backend> Launch<'_, B> {
    /// Whether the operator is recomputed: it runs once more and yields the same values. Persistent blocks that its
    /// first run updates, such as running statistics, are not among the operands now, and stay as they are.
    #[must_use]
    pub const fn recomputes(&self) -> bool {
        matches!(self.op, Op::Rerun(_))
    }

    /// The blocks and the bit masks of blocks that the launch reads or writes, in the order in which the trace first
    /// reads or writes them.
    #[must_use]
    pub const fn operands(&self) -> &[Operand] {
        self.operands
    }

    /// The address of an operand on the device.
    #[must_use]
    pub const fn address_of(&self, operand: &Operand) -> u64 {
        self.base + operand.offset
    }

    /// The address of this block on the device; `None` if the launch does not use the block. If the operator writes one
    /// block over another, in place, both have the same address.
    #[must_use]
    pub fn address(&self, block: u32) -> Option<u64> {
        self.operands.iter().find(|o| o.block == block && !o.mask).map(|o| self.address_of(o))
    }

    /// The address of this block's bit mask, if the operator is to write the mask, or to read it in place of the block;
    /// otherwise `None`.
    #[must_use]
    pub fn mask(&self, block: u32) -> Option<u64> {
        self.operands.iter().find(|o| o.block == block && o.mask).map(|o| self.address_of(o))
    }
}

/// Runs a program on a device, iteration by iteration. Holds the arena, the memory for swapped blocks, and the streams.
pub struct Runtime<B: Backend> {
    pub(crate) program: Program,
    pub(crate) events: Vec<Option<B::Event>>,
    /// Recorded on each stream when the host waits for all its work.
    ends: [B::Event; LANES],
    pub(crate) streams: [B::Stream; LANES],
    pub(crate) tier: Tier<B>,
    /// Of the first iteration after the latest `measure`.
    pub(crate) timers: Option<Timers<B::Event>>,
    staging: B::Pinned,
    pub(crate) arena: B::Arena,
    pub(crate) backend: B,
    pub(crate) iteration: u64,
    /// The step to give to a stream next; 0 between iterations.
    pub(crate) position: usize,
    pub(crate) state: State,
}

pub(crate) struct Timers<E> {
    begin: E,
    ends: [E; LANES],
    /// Around a copy, or around a launch's wait for other steps.
    steps: Vec<Option<[E; 2]>>,
    /// `None` once all of its launches were made.
    iteration: Option<u64>,
}

#[derive(Clone, Copy)]
enum Mark {
    Begin,
    End(usize),
    Before(usize),
    After(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    /// The caller was last given the launch of step `position - 1`.
    Running,
    /// A restart is needed.
    Broken,
}

/// In bytes. Longer values are copied in parts.
const STAGING: u64 = 1 << 20;

impl<B: Backend> Runtime<B> {
    /// Makes a runtime that repeats this program, and allocates the memory and streams that it needs. Blocks that leave
    /// the device are copied to pinned memory of the host.
    ///
    /// # Errors
    /// [`Error::HostIsDevice`] if the program copies to the host, but host and device share one memory, so that copies
    /// free nothing; [`Error::OutOfMemory`] if there is too little memory; other errors of the backend. After an error
    /// nothing stays allocated.
    pub fn new(backend: B, program: Program) -> Result<Self> {
        let stream = backend.stream()?;
        Self::on_stream(backend, program, stream)
    }

    /// Makes a runtime that repeats this program. Allocates the memory that it needs, and two streams for copies.
    /// Operators are launched on the caller's stream `compute`. Blocks that leave the device are copied to pinned
    /// memory of the host.
    ///
    /// # Errors
    /// [`Error::HostIsDevice`] if the program copies to the host, but host and device share one memory, so that copies
    /// free nothing; [`Error::OutOfMemory`] if there is too little memory; other errors of the backend. After an error
    /// nothing stays allocated.
    pub fn on_stream(backend: B, program: Program, compute: B::Stream) -> Result<Self> {
        refuse_host(&backend, &program)?;
        let tier = Tier::pinned(&backend, program.host)?;
        Self::with(backend, program, compute, tier)
    }

    /// Makes a runtime that repeats this program. Allocates the memory that it needs, and two streams for copies.
    /// Operators are launched on the caller's stream `compute`. Blocks that leave the device are written to the disk
    /// `storage`.
    ///
    /// # Errors
    /// [`Error::Storage`] if the disk has not enough room, or a thread that reads and writes it cannot be started;
    /// [`Error::OutOfMemory`] if there is too little memory; other errors of the backend.
    #[cfg(target_os = "linux")]
    pub fn with_storage(backend: B, program: Program, compute: B::Stream, storage: &Storage) -> Result<Self> {
        let tier = Tier::storage(&backend, storage, program.host)?;
        Self::with(backend, program, compute, tier)
    }

    fn with(backend: B, program: Program, compute: B::Stream, tier: Tier<B>) -> Result<Self> {
        let streams = [compute, backend.stream()?, backend.stream()?];
        let ends = [backend.event(false)?, backend.event(false)?, backend.event(false)?];
        let events = Self::events(&backend, &program)?;
        let staging = backend.pin(STAGING.min(program.arena.max(1)))?;
        // Addresses cost nothing: room for all of the device's memory lets a larger program come later.
        let room = backend.memory()?.total.max(program.arena);
        let arena = backend.reserve(program.arena, room)?;
        Ok(Self {
            program,
            events,
            ends,
            streams,
            tier,
            timers: None,
            staging,
            arena,
            backend,
            iteration: 0,
            position: 0,
            state: State::Idle,
        })
    }

    pub(crate) fn events(backend: &B, program: &Program) -> Result<Vec<Option<B::Event>>> {
        program.awaited.iter().map(|&yes| yes.then(|| backend.event(false)).transpose()).collect()
    }

    pub(crate) fn fits(&self, program: &Program) -> Result<()> {
        if self.tier.is_pinned() { refuse_host(&self.backend, program) } else { Ok(()) }
    }

    /// The program that the runtime repeats.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// The stream that operators are launched on.
    #[must_use]
    pub const fn compute(&self) -> &B::Stream {
        &self.streams[COMPUTE]
    }

    /// The address at which the arena begins on the device, and the arena's length in bytes.
    #[must_use]
    pub fn arena(&self) -> (u64, u64) {
        (self.backend.address(&self.arena), self.backend.size(&self.arena))
    }

    /// The backend that the program runs on.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// Runs one iteration: calls the function `launch` with each [`Launch`] in its turn. The function has to launch the
    /// kernels of the [`Launch`], which belong to an operator or a mask, on the stream of the [`Launch`]. The kernels
    /// may still be running when this method returns: [`finish`](Self::finish) waits for them.
    ///
    /// # Errors
    /// The error of the backend, of the disk that blocks are swapped to, or of `launch`, which ends the iteration: see
    /// [`restart`](Self::restart). [`Error::Interrupted`] if another iteration is under way, or after an error, until
    /// such a restart.
    pub fn iterate<E: From<Error>>(
        &mut self,
        mut launch: impl FnMut(&Launch<'_, B>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.state != State::Idle {
            return Err(Error::Interrupted.into());
        }
        loop {
            let outcome = match self.next() {
                Ok(None) => return Ok(()),
                Ok(Some(next)) => launch(&next),
                Err(error) => Err(error.into()),
            };
            if let Err(error) = outcome {
                self.state = State::Broken;
                return Err(error);
            }
        }
    }

    /// Returns the next launch of the iteration, which the caller has to make before the next call. `None` says that
    /// the iteration has ended; the call after that begins another one. [`iterate`](Self::iterate) does the same for a
    /// whole iteration.
    ///
    /// # Errors
    /// The error of the backend, or of the disk that blocks are swapped to; [`Error::Interrupted`] in all calls after
    /// an error, until [`restart`](Self::restart).
    #[expect(clippy::should_implement_trait, reason = "it lends the stream, and it fails")]
    pub fn next(&mut self) -> Result<Option<Launch<'_, B>>> {
        let launched = match self.state {
            State::Broken => return Err(Error::Interrupted),
            State::Idle => false,
            State::Running => true,
        };
        self.state = State::Broken;
        self.tier.check()?;
        if launched {
            self.record(self.position - 1)?;
        } else {
            self.time(Mark::Begin)?;
        }
        let found = self.go_on()?;
        self.state = if found.is_some() { State::Running } else { State::Idle };
        let Some(step) = found else {
            for lane in 0..LANES {
                self.time(Mark::End(lane))?;
            }
            if let Some(timers) = self.timers.as_mut().filter(|timers| timers.iteration == Some(self.iteration)) {
                timers.iteration = None;
            }
            self.position = 0;
            self.iteration += 1;
            return Ok(None);
        };
        match &self.program.steps[step] {
            Step { lane, work: Work::Launch { op, part, operands }, .. } => Ok(Some(Launch {
                stream: &self.streams[*lane],
                op: *op,
                part: *part,
                operands,
                base: self.backend.address(&self.arena),
            })),
            _ => Ok(None),
        }
    }

    fn go_on(&mut self) -> Result<Option<usize>> {
        while let Some(step) = self.program.steps.get(self.position) {
            let current = self.position;
            self.position += 1;
            let lane = step.lane;
            let is_launch = matches!(step.work, Work::Launch { .. });
            if is_launch {
                self.time(Mark::Before(current))?;
            }
            for &awaited in &self.program.waits_of(self.iteration)[current] {
                if let Some(event) = &self.events[awaited as usize] {
                    self.backend.wait(&self.streams[lane], event)?;
                }
            }
            self.time(if is_launch { Mark::After(current) } else { Mark::Before(current) })?;
            let (backend, on) = (&self.backend, (lane, &self.streams[lane]));
            let base = backend.address(&self.arena);
            match step.work {
                Work::Launch { .. } => return Ok(Some(current)),
                Work::Out { from, to, bytes } => self.tier.copy_out(backend, on, base + from, to, bytes)?,
                Work::In { from, to, bytes } => self.tier.copy_in(backend, on, from, base + to, bytes)?,
                Work::Move { from, to, bytes } => {
                    backend.copy_within(on.1, base + from, base + to, bytes)?;
                }
            }
            self.time(Mark::After(current))?;
            self.record(current)?;
        }
        Ok(None)
    }

    fn record(&self, step: usize) -> Result<()> {
        let Some(event) = &self.events[step] else { return Ok(()) };
        self.backend.record(event, &self.streams[self.program.steps[step].lane])
    }

    fn time(&self, mark: Mark) -> Result<()> {
        let Some(timers) = self.timers.as_ref().filter(|timers| timers.iteration == Some(self.iteration)) else {
            return Ok(());
        };
        let (event, lane) = match mark {
            Mark::Begin => (Some(&timers.begin), COMPUTE),
            Mark::End(lane) => (Some(&timers.ends[lane]), lane),
            Mark::Before(step) => {
                (timers.steps[step].as_ref().map(|[before, _]| before), self.program.steps[step].lane)
            }
            Mark::After(step) => (timers.steps[step].as_ref().map(|[_, after]| after), self.program.steps[step].lane),
        };
        event.map_or(Ok(()), |event| self.backend.record(event, &self.streams[lane]))
    }

    /// Has the next iteration timed: [`measured`](Self::measured) returns its times. Waits for the work that is
    /// running, so that the iteration runs alone.
    ///
    /// # Errors
    /// [`Error::Interrupted`] within an iteration, or after one that failed; or an error of the backend or the disk.
    pub fn measure(&mut self) -> Result<()> {
        if self.state != State::Idle {
            return Err(Error::Interrupted);
        }
        self.finish()?;
        let event = || self.backend.event(true);
        let waits = self.program.waits_of(self.iteration);
        let step = |(step, waits): (&Step, &Vec<u32>)| {
            let is_timed = !matches!(step.work, Work::Launch { .. }) || !waits.is_empty();
            is_timed.then(|| Ok([event()?, event()?])).transpose()
        };
        let steps = self.program.steps.iter().zip(waits).map(step).collect::<Result<_>>()?;
        let (begin, ends) = (event()?, [event()?, event()?, event()?]);
        self.timers = Some(Timers { begin, ends, steps, iteration: Some(self.iteration) });
        Ok(())
    }

    /// The times of the iteration that began after [`measure`](Self::measure). Waits until that iteration is done. A
    /// [`restart`](Self::restart) after that iteration was complete leaves its times as they are; one within it drops
    /// the measurement.
    ///
    /// # Errors
    /// [`Error::NotTimedYet`] if that iteration has not begun, or not all of its launches were made; if `measure` was
    /// not called since the runtime was made or changed its program; or if a restart has dropped the measurement. Or an
    /// error of the backend or the disk.
    pub fn measured(&mut self) -> Result<Measured> {
        let timers = self.timers.as_ref().filter(|timers| timers.iteration.is_none());
        let timers = timers.ok_or(Error::NotTimedYet)?;
        self.finish()?;
        let simulated = &self.program.simulated;
        let mut measured = Measured { simulated_ns: simulated.run.time_ns, ..Measured::default() };
        for end in &timers.ends {
            measured.time_ns = measured.time_ns.max(self.backend.elapsed_ns(&timers.begin, end)?);
        }
        let end = self.program.rows;
        for ((step, events), &simulated_ns) in self.program.steps.iter().zip(&timers.steps).zip(&simulated.ns) {
            let took = events.as_ref().map(|[from, to]| self.backend.elapsed_ns(from, to)).transpose()?;
            let (row, ns) = (step.row, took.unwrap_or(0.0));
            let (direction, bytes) = match step.work {
                Work::Launch { op, .. } => {
                    if took.is_some() || simulated_ns > 0.0 {
                        measured.stalls.push(Stall { row, op, ns, simulated_ns });
                    }
                    continue;
                }
                Work::Out { bytes, .. } => (Direction::Out, bytes),
                Work::In { bytes, .. } => (Direction::In, bytes),
                Work::Move { .. } => continue,
            };
            // Moves between iterations are no copies of the schedule.
            if row < end {
                measured.copies.push(CopyTime { row, direction, bytes, ns, simulated_ns });
            }
        }
        Ok(measured)
    }

    /// Waits until the streams have done all their work.
    ///
    /// # Errors
    /// The error of the backend, or of the disk that blocks are swapped to.
    pub fn finish(&self) -> Result<()> {
        self.drain()?;
        self.tier.check()
    }

    pub(crate) fn drain(&self) -> Result<()> {
        let mut outcome = Ok(());
        for (event, stream) in self.ends.iter().zip(&self.streams) {
            let waited = self.backend.record(event, stream).and_then(|()| self.backend.synchronize(event));
            outcome = outcome.and(waited);
        }
        self.tier.settle();
        outcome
    }

    /// Makes the runtime ready for its first iteration again, after an error. Waits for the streams. Afterwards the
    /// values of the persistent blocks are undefined, and have to be [written](Self::write) anew. An iteration that was
    /// to be timed, but is not complete, is not timed any more: to time another one, call [`measure`](Self::measure)
    /// again. Times of a complete iteration stay readable.
    ///
    /// # Errors
    /// The error of the backend; a device that is lost stays lost.
    pub fn restart(&mut self) -> Result<()> {
        self.state = State::Broken;
        // Errors of the file end with the iteration; those of the device do not.
        self.drain()?;
        self.tier.forgive();
        // The number of an iteration that is not complete will be that of another one.
        self.timers.take_if(|timers| timers.iteration.is_some());
        (self.iteration, self.position, self.state) = (0, 0, State::Idle);
        Ok(())
    }

    /// Writes `content` as the value of a persistent block, such as a weight, between iterations. Waits for the work
    /// that is running.
    ///
    /// # Errors
    /// [`Error::NotPersistent`] if the block is not persistent, or its value has another length than `content`;
    /// [`Error::Interrupted`] within an iteration, or after one that failed; or an error of the backend or the disk.
    pub fn write(&mut self, block: u32, content: &[u8]) -> Result<()> {
        let home = self.home(block, content.len())?;
        self.finish()?;
        self.put(&home, content)
    }

    /// No work may be running.
    pub(crate) fn put(&self, home: &Home, content: &[u8]) -> Result<()> {
        if let Some(offset) = home.on_device() {
            self.write_device(offset, content)?;
        }
        // SAFETY: all streams are done.
        home.on_host().map_or(Ok(()), |place| unsafe { self.tier.store(&self.backend, place, content) })
    }

    /// Reads the value of a persistent block, such as a weight, into `content`, between iterations. Waits for the work
    /// that is running.
    ///
    /// # Errors
    /// [`Error::NotPersistent`] if the block is not persistent, or its value has another length than `content`;
    /// [`Error::Interrupted`] within an iteration, or after one that failed; or an error of the backend or the disk.
    pub fn read(&mut self, block: u32, content: &mut [u8]) -> Result<()> {
        let home = self.home(block, content.len())?;
        self.finish()?;
        self.get(home.after, content)
    }

    /// No work may be running.
    pub(crate) fn get(&self, residence: Residence, content: &mut [u8]) -> Result<()> {
        match residence {
            // SAFETY: all streams are done.
            Residence::Host(place) => unsafe { self.tier.load(&self.backend, place, content) },
            Residence::Device(offset) => {
                let base = self.backend.address(&self.arena) + offset;
                let staged = self.staging();
                for (i, part) in content.chunks_mut(staged.len().max(1)).enumerate() {
                    let from = base + (i * staged.len()) as u64;
                    let bytes = part.len() as u64;
                    self.backend.copy_out(&self.streams[COMPUTE], from, (&self.staging, 0), bytes)?;
                    self.finish()?;
                    // SAFETY: nothing is under way, and the staging memory is this runtime's alone.
                    let source = unsafe { staged.slice(0, bytes) };
                    part.copy_from_slice(source.ok_or(Error::OutOfRange { address: 0, bytes })?);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn write_device(&self, offset: u64, content: &[u8]) -> Result<()> {
        let base = self.backend.address(&self.arena) + offset;
        let staged = self.staging();
        for (i, part) in content.chunks(staged.len().max(1)).enumerate() {
            let to = base + (i * staged.len()) as u64;
            let bytes = part.len() as u64;
            // SAFETY: nothing is under way, and the staging memory is this runtime's alone.
            let target = unsafe { staged.slice(0, bytes) };
            target.ok_or(Error::OutOfRange { address: 0, bytes })?.copy_from_slice(part);
            self.backend.copy_in(&self.streams[COMPUTE], (&self.staging, 0), to, bytes)?;
            self.finish()?;
        }
        Ok(())
    }

    fn staging(&self) -> PinnedBytes {
        self.backend.pinned(&self.staging)
    }

    fn home(&self, block: u32, bytes: usize) -> Result<Home> {
        if self.state != State::Idle {
            return Err(Error::Interrupted);
        }
        let fits = |home: &&Home| home.block == block && home.bytes == bytes as u64;
        let home = self.program.homes.iter().find(fits).copied();
        home.ok_or(Error::NotPersistent { block, bytes: bytes as u64 })
    }
}

/// Copies free nothing where the device shares the host's memory.
fn refuse_host<B: Backend>(backend: &B, program: &Program) -> Result<()> {
    let bytes = program.host_bytes();
    if backend.attributes().integrated && bytes > 0 { Err(Error::HostIsDevice { bytes }) } else { Ok(()) }
}

impl<B: Backend> Drop for Runtime<B> {
    /// Waits for the streams, so that no copy uses memory after it is freed.
    fn drop(&mut self) {
        // A lost device does nothing any more.
        let _ = self.finish();
    }
}

const _: () = assert!(STAGING.is_multiple_of(PAGE));
