//! Executes a program on a backend: copies beside the kernels that the caller launches.

use sublet_core::trace::Op;

use crate::backend::{Backend, PinnedBytes};
use crate::error::{Error, Result};
use crate::pinned::{HostPlace, POOLS};
use crate::program::{COMPUTE, Home, Operand, PAGE, Part, Program, Residence, Step, Work};
use crate::waits::LANES;

/// What the caller is to launch now.
pub struct Launch<'a, B: Backend> {
    /// The stream to launch on: everything that the operands need has been waited for there.
    pub stream: &'a B::Stream,
    /// The operator by its number in the recorded trace, and whether it runs again; none is an access outside
    /// operators, such as the input of the network.
    pub op: Op,
    /// Which part of it.
    pub part: Part,
    operands: &'a [Operand],
    base: u64,
}

impl<B: Backend> Launch<'_, B> {
    /// Whether the operator has run before in this iteration: it yields the same values, and what it updates besides,
    /// such as running statistics, is not among its operands and stays as it is.
    #[must_use]
    pub const fn again(&self) -> bool {
        matches!(self.op, Op::Again(_))
    }

    /// What it uses, in the order in which the trace says so.
    #[must_use]
    pub const fn operands(&self) -> &[Operand] {
        self.operands
    }

    /// Where an operand is on the device.
    #[must_use]
    pub const fn address_of(&self, operand: &Operand) -> u64 {
        self.base + operand.offset
    }

    /// Where this block is on the device, if the operator uses it. Work in place: two blocks at one address.
    #[must_use]
    pub fn address(&self, block: u32) -> Option<u64> {
        self.operands.iter().find(|o| o.block == block && !o.mask).map(|o| self.address_of(o))
    }

    /// Where the mask of this block is, if the operator is to write it, or to read it in place of the block.
    #[must_use]
    pub fn mask(&self, block: u32) -> Option<u64> {
        self.operands.iter().find(|o| o.block == block && o.mask).map(|o| self.address_of(o))
    }
}

/// A program, the memory it runs in, and its streams.
pub struct Runtime<B: Backend> {
    program: Program,
    /// One for each step that is waited for.
    events: Vec<Option<B::Event>>,
    /// Of each stream, to wait for all that it was given.
    ends: [B::Event; LANES],
    streams: [B::Stream; LANES],
    pools: [Option<B::Pinned>; POOLS.len()],
    /// For what the caller writes and reads between iterations.
    staging: B::Pinned,
    arena: B::Arena,
    backend: B,
    /// Iterations that are complete since the start.
    iteration: u64,
    /// The next step of the one under way.
    position: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between iterations.
    Idle,
    /// The step before the position has been handed to the caller if `launched`.
    Running { launched: bool },
    /// An error has ended an iteration.
    Broken,
}

/// Bytes that are written or read between iterations at once.
const STAGING: u64 = 1 << 20;

impl<B: Backend> Runtime<B> {
    /// Reserves what the program needs.
    ///
    /// # Errors
    /// [`Error::HostIsDevice`] for a program that copies to the host where that frees nothing;
    /// [`Error::OutOfMemory`]; what else the backend tells. Nothing is left in use then.
    pub fn new(backend: B, program: Program) -> Result<Self> {
        let stream = backend.stream()?;
        Self::on_stream(backend, program, stream)
    }

    /// The same with the caller's stream to compute on.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on_stream(backend: B, program: Program, compute: B::Stream) -> Result<Self> {
        if backend.attributes().integrated && program.host_bytes() > 0 {
            return Err(Error::HostIsDevice { bytes: program.host_bytes() });
        }
        let streams = [compute, backend.stream()?, backend.stream()?];
        let ends = [backend.event(false)?, backend.event(false)?, backend.event(false)?];
        let awaited = program.awaited.iter();
        let events = awaited.map(|&yes| yes.then(|| backend.event(false)).transpose()).collect::<Result<_>>()?;
        let pool = |i: usize| (program.host[i] > 0).then(|| backend.pin(program.host[i], POOLS[i])).transpose();
        let pools = [pool(0)?, pool(1)?];
        let staging = backend.pin(STAGING.min(program.arena.max(1)), POOLS[0])?;
        let arena = backend.reserve(program.arena, program.arena)?;
        let state = State::Idle;
        Ok(Self { program, events, ends, streams, pools, staging, arena, backend, iteration: 0, position: 0, state })
    }

    /// The program.
    #[must_use]
    pub const fn program(&self) -> &Program {
        &self.program
    }

    /// The backend.
    #[must_use]
    pub const fn backend(&self) -> &B {
        &self.backend
    }

    /// Runs one iteration: `launch` is called for every operator in its turn, and launches its kernels on the stream that
    /// it is told. Nothing has to be finished when this returns: see [`finish`](Self::finish).
    ///
    /// # Errors
    /// What the backend or `launch` tell; the iteration is broken then, see [`restart`](Self::restart).
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

    /// Goes on to the next launch, which the caller makes before the next call; `None` ends the iteration, and the call
    /// after that begins another one. What [`iterate`](Self::iterate) does, call by call.
    ///
    /// # Errors
    /// What the backend tells; [`Error::Interrupted`] after an error.
    #[expect(clippy::should_implement_trait, reason = "it lends the stream, and it fails")]
    pub fn next(&mut self) -> Result<Option<Launch<'_, B>>> {
        let launched = match self.state {
            State::Broken => return Err(Error::Interrupted),
            State::Idle => false,
            State::Running { launched } => launched,
        };
        self.state = State::Broken;
        if launched {
            self.record(self.position - 1)?;
        }
        let found = self.go_on()?;
        self.state = if found.is_some() { State::Running { launched: true } } else { State::Idle };
        let Some(step) = found else {
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

    /// Gives the streams everything up to the next launch, which is the step that is returned.
    fn go_on(&mut self) -> Result<Option<usize>> {
        while let Some(step) = self.program.steps.get(self.position) {
            let current = self.position;
            self.position += 1;
            let stream = &self.streams[step.lane];
            for &awaited in &self.program.waits_of(self.iteration)[current] {
                if let Some(event) = &self.events[awaited as usize] {
                    self.backend.wait(stream, event)?;
                }
            }
            let base = self.backend.address(&self.arena);
            match step.work {
                Work::Launch { .. } => return Ok(Some(current)),
                Work::Out { from, to, bytes } => self.copy_out(stream, base + from, to, bytes)?,
                Work::In { from, to, bytes } => self.copy_in(stream, from, base + to, bytes)?,
                Work::Move { from, to, bytes } => self.backend.copy_within(stream, base + from, base + to, bytes)?,
            }
            self.record(current)?;
        }
        Ok(None)
    }

    fn record(&self, step: usize) -> Result<()> {
        let Some(event) = &self.events[step] else { return Ok(()) };
        self.backend.record(event, &self.streams[self.program.steps[step].lane])
    }

    fn copy_out(&self, stream: &B::Stream, from: u64, to: HostPlace, bytes: u64) -> Result<()> {
        let pool = self.pool(to, bytes)?;
        self.backend.copy_out(stream, from, (pool, to.at), bytes)
    }

    fn copy_in(&self, stream: &B::Stream, from: HostPlace, to: u64, bytes: u64) -> Result<()> {
        let pool = self.pool(from, bytes)?;
        self.backend.copy_in(stream, (pool, from.at), to, bytes)
    }

    fn pool(&self, place: HostPlace, bytes: u64) -> Result<&B::Pinned> {
        self.pools[place.pool].as_ref().ok_or(Error::OutOfRange { address: place.at, bytes })
    }

    /// Waits until everything is done that the streams were given.
    ///
    /// # Errors
    /// What the backend tells.
    pub fn finish(&self) -> Result<()> {
        for (event, stream) in self.ends.iter().zip(&self.streams) {
            self.backend.record(event, stream)?;
        }
        self.ends.iter().try_for_each(|event| self.backend.synchronize(event))
    }

    /// After an error: waits for what was given, and has the next iteration be the first. The persistent blocks hold
    /// anything, and have to be [written](Self::write) again.
    ///
    /// # Errors
    /// What the backend tells; a device that is lost stays lost.
    pub fn restart(&mut self) -> Result<()> {
        self.state = State::Broken;
        self.finish()?;
        (self.iteration, self.position, self.state) = (0, 0, State::Idle);
        Ok(())
    }

    /// Gives a persistent block its content, between iterations.
    ///
    /// # Errors
    /// [`Error::NotPersistent`] for another block, or bytes that are not exactly all of it; [`Error::Interrupted`]
    /// within an iteration; what the backend tells.
    pub fn write(&mut self, block: u32, content: &[u8]) -> Result<()> {
        let home = self.home(block, content.len())?;
        self.finish()?;
        if let Some(offset) = home.on_device {
            self.write_device(offset, content)?;
        }
        if let Some(place) = home.on_host {
            self.host_bytes(place, home.bytes)?.copy_from_slice(content);
        }
        match home.after {
            Residence::Device(offset) if home.on_device.is_none() => self.write_device(offset, content),
            Residence::Host(place) if home.on_host.is_none() => {
                self.host_bytes(place, home.bytes)?.copy_from_slice(content);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Reads the content of a persistent block, between iterations. Waits for what is still under way.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read(&mut self, block: u32, content: &mut [u8]) -> Result<()> {
        let home = self.home(block, content.len())?;
        self.finish()?;
        match home.after {
            Residence::Host(place) => {
                content.copy_from_slice(self.host_bytes(place, home.bytes)?);
                Ok(())
            }
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

    fn write_device(&self, offset: u64, content: &[u8]) -> Result<()> {
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

    /// The copy of a block on the host, when nothing is under way.
    fn host_bytes(&mut self, place: HostPlace, bytes: u64) -> Result<&mut [u8]> {
        let pinned = self.backend.pinned(self.pool(place, bytes)?);
        // SAFETY: the callers have waited for all streams, and the pool is this runtime's alone.
        let slice = unsafe { pinned.slice(place.at, bytes) };
        slice.ok_or(Error::OutOfRange { address: place.at, bytes })
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

impl<B: Backend> Drop for Runtime<B> {
    /// Waits for the streams, so that no copy is under way in memory that is given back.
    fn drop(&mut self) {
        // A device that is lost does nothing any more.
        let _ = self.finish();
    }
}

const _: () = assert!(STAGING.is_multiple_of(PAGE));
