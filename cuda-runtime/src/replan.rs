//! Changes to another program in the same runtime: the values of persistent blocks are kept.
//!
//! Problem: the program does not fit the next iteration, because the batch size changes, or the network is evaluated
//! and not trained, or there is a better plan. The new program may need a larger arena, copy other blocks to the host,
//! and have the parameters at other places.
//!
//! Steps: all memory that the new program needs is allocated first, so that a lack of memory leaves the old program as
//! it was. The arena grows in place; where it cannot, another one is allocated beside it, and the old one is freed.
//! Persistent values that stay on the device are copied within the device ([`moves`](crate::moves)); the processor
//! copies those that are on the host, or have to come there.
//!
//! An arena does not shrink: so two programs can take turns, and no memory is mapped at each change.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::moves::{self, Move, Pending, Spot};
use crate::program::{Home, Program, Residence};
use crate::run::{Runtime, State};
use crate::step::COMPUTE;

type Kept = (Home, Vec<u8>);

impl<B: Backend> Runtime<B> {
    /// Changes to another program, between iterations. For a persistent block of the new program, `was` returns the
    /// number of the old program's persistent block that has its value. If `was` returns `None`, the block's value is
    /// undefined until it is [written](Runtime::write). The next iteration is the new program's first.
    ///
    /// # Errors
    /// After an error before values are copied, the old program is still there, as it was. These errors are:
    /// - [`Error::Interrupted`] within an iteration, or after an error that ended one;
    /// - [`Error::NotPersistent`] if `was` names a block that is not persistent in the old program, or has another
    ///   length;
    /// - [`Error::HostIsDevice`] if the new program copies to pinned memory, but host and device share one memory;
    /// - [`Error::OutOfMemory`] or [`Error::Storage`] if there is too little memory, or room on the disk, for the new
    ///   program;
    /// - an error of the backend or the disk in earlier work, or while memory is allocated.
    ///
    /// An error of the backend or the disk while values are copied leaves the runtime as an error in an iteration does:
    /// it needs a [`restart`](Runtime::restart), after which it has the old program or the new one.
    pub fn replan(&mut self, program: Program, was: impl Fn(u32) -> Option<u32>) -> Result<()> {
        if self.state != State::Idle {
            return Err(Error::Interrupted);
        }
        self.fits(&program)?;
        let mut kept = Vec::new();
        for home in &program.homes {
            if let Some(block) = was(home.block) {
                let old = self.program.homes.iter().find(|old| old.block == block && old.bytes == home.bytes);
                kept.push((*old.ok_or(Error::NotPersistent { block, bytes: home.bytes })?, *home));
            }
        }
        self.finish()?;
        let events = Self::events(&self.backend, &program)?;
        let tier = self.tier.renewed(&self.backend, program.host)?;
        let arena = self.larger(program.arena)?;
        self.state = State::Broken;
        let (mut moved, mut read): (Vec<(u64, Home)>, Vec<Kept>) = (Vec::new(), Vec::new());
        for (old, new) in kept {
            match (old.after, new.on_host()) {
                (Residence::Device(from), None) => moved.push((from, new)),
                (residence, _) => read.push((new, self.content(residence, old.bytes)?)),
            }
        }
        match arena {
            None => self.move_within(&program, &moved)?,
            Some(arena) => {
                let base = self.backend.address(&arena);
                for (from, home) in moved {
                    let Some(to) = home.on_device() else { continue };
                    let from = self.backend.address(&self.arena) + from;
                    self.backend.copy_within(&self.streams[COMPUTE], from, base + to, home.bytes)?;
                }
                self.drain()?;
                self.arena = arena;
            }
        }
        (self.program, self.events, self.tier, self.timers) = (program, events, tier, None);
        for (home, content) in read {
            self.put(&home, &content)?;
        }
        (self.iteration, self.position, self.state) = (0, 0, State::Idle);
        Ok(())
    }

    /// `None` if the present arena is large enough or can grow in place.
    fn larger(&mut self, bytes: u64) -> Result<Option<B::Arena>> {
        if bytes <= self.backend.size(&self.arena) {
            return Ok(None);
        }
        match self.backend.grow(&mut self.arena, bytes) {
            Ok(()) => Ok(None),
            Err(Error::CannotGrow { .. }) => self.backend.reserve(bytes, bytes).map(Some),
            Err(error) => Err(error),
        }
    }

    fn move_within(&self, program: &Program, resident: &[(u64, Home)]) -> Result<()> {
        let pending = resident.iter().filter_map(|(from, home)| {
            let to = home.on_device().filter(|to| to != from)?;
            Some(Pending { from: Spot::Device(*from), to, bytes: home.bytes })
        });
        let targets = program.homes.iter().filter_map(|home| Some(home.on_device()?..home.on_device()? + home.bytes));
        let size = self.backend.size(&self.arena);
        let mut taken = 0;
        let moves = moves::untangle(pending.collect(), &targets.collect::<Vec<_>>(), (size, program.alignment), |_| {
            taken += 1;
            taken - 1
        });
        let mut aside: Vec<Vec<u8>> = vec![Vec::new(); taken];
        for Move { from, to, bytes } in moves {
            match (from, to) {
                (Spot::Device(from), Spot::Device(to)) => {
                    let base = self.backend.address(&self.arena);
                    self.backend.copy_within(&self.streams[COMPUTE], base + from, base + to, bytes)?;
                }
                (Spot::Device(from), Spot::Host(i)) => aside[i] = self.content(Residence::Device(from), bytes)?,
                (Spot::Host(i), Spot::Device(to)) => self.write_device(to, &std::mem::take(&mut aside[i]))?,
                (Spot::Host(_), Spot::Host(_)) => {}
            }
        }
        self.drain()
    }

    fn content(&self, residence: Residence, bytes: u64) -> Result<Vec<u8>> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfRange { address: 0, bytes })?;
        let mut content = vec![0; bytes];
        self.get(residence, &mut content)?;
        Ok(content)
    }
}
