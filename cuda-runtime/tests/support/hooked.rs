//! A host whose calls are looked at before they are made: some are left out, some fail.

use std::cell::RefCell;
use std::rc::Rc;

use sublet_cuda::backend::{Attributes, Backend, Call, MemoryInfo, PinnedBytes};
use sublet_cuda::host::{self, HostBackend};
use sublet_cuda::{Error, Result};

use super::pattern::OnHost;

/// What becomes of a call.
pub(crate) enum Fate {
    Made,
    /// It does nothing and succeeds.
    LeftOut,
    Fails(Error),
}

/// The calls of a backend that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Memory,
    Reserve,
    Grow,
    Pin,
    Stream,
    Event,
    Record,
    Wait,
    Synchronize,
    Elapsed,
    CopyOut,
    CopyIn,
    CopyWithin,
    Call,
}

type Hook = Rc<RefCell<dyn FnMut(Kind) -> Fate>>;

#[derive(Clone)]
pub(crate) struct Hooked {
    inner: HostBackend,
    hook: Hook,
}

impl Hooked {
    pub(crate) fn new(inner: HostBackend, hook: impl FnMut(Kind) -> Fate + 'static) -> Self {
        Self { inner, hook: Rc::new(RefCell::new(hook)) }
    }

    /// Makes the call, unless it is to fail or to be left out.
    fn unless(&self, kind: Kind, call: impl FnOnce(&HostBackend) -> Result<()>) -> Result<()> {
        let fate = (self.hook.borrow_mut())(kind);
        match fate {
            Fate::Made => call(&self.inner),
            Fate::LeftOut => Ok(()),
            Fate::Fails(error) => Err(error),
        }
    }

    fn get<T>(&self, kind: Kind, call: impl FnOnce(&HostBackend) -> Result<T>) -> Result<T> {
        match (self.hook.borrow_mut())(kind) {
            Fate::Fails(error) => Err(error),
            Fate::Made | Fate::LeftOut => call(&self.inner),
        }
    }
}

impl OnHost for Hooked {
    fn host(&self) -> &HostBackend {
        &self.inner
    }
}

impl Backend for Hooked {
    type Arena = host::Arena;
    type Pinned = host::Pinned;
    type Stream = host::Stream;
    type Event = host::Event;

    fn attributes(&self) -> Attributes {
        self.inner.attributes()
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.get(Kind::Memory, HostBackend::memory)
    }

    fn reserve(&self, bytes: u64, room: u64) -> Result<host::Arena> {
        self.get(Kind::Reserve, |inner| inner.reserve(bytes, room))
    }

    fn grow(&self, arena: &mut host::Arena, bytes: u64) -> Result<()> {
        self.unless(Kind::Grow, |inner| inner.grow(arena, bytes))
    }

    fn address(&self, arena: &host::Arena) -> u64 {
        self.inner.address(arena)
    }

    fn size(&self, arena: &host::Arena) -> u64 {
        self.inner.size(arena)
    }

    fn pin(&self, bytes: u64) -> Result<host::Pinned> {
        self.get(Kind::Pin, |inner| inner.pin(bytes))
    }

    fn pinned(&self, memory: &host::Pinned) -> PinnedBytes {
        self.inner.pinned(memory)
    }

    fn stream(&self) -> Result<host::Stream> {
        self.get(Kind::Stream, HostBackend::stream)
    }

    fn event(&self, timed: bool) -> Result<host::Event> {
        self.get(Kind::Event, |inner| inner.event(timed))
    }

    fn record(&self, event: &host::Event, stream: &host::Stream) -> Result<()> {
        self.unless(Kind::Record, |inner| inner.record(event, stream))
    }

    fn wait(&self, stream: &host::Stream, event: &host::Event) -> Result<()> {
        self.unless(Kind::Wait, |inner| inner.wait(stream, event))
    }

    fn synchronize(&self, event: &host::Event) -> Result<()> {
        self.unless(Kind::Synchronize, |inner| inner.synchronize(event))
    }

    fn elapsed_ns(&self, from: &host::Event, to: &host::Event) -> Result<f64> {
        self.get(Kind::Elapsed, |inner| inner.elapsed_ns(from, to))
    }

    fn copy_out(&self, stream: &host::Stream, from: u64, to: (&host::Pinned, u64), bytes: u64) -> Result<()> {
        self.unless(Kind::CopyOut, |inner| inner.copy_out(stream, from, to, bytes))
    }

    fn copy_in(&self, stream: &host::Stream, from: (&host::Pinned, u64), to: u64, bytes: u64) -> Result<()> {
        self.unless(Kind::CopyIn, |inner| inner.copy_in(stream, from, to, bytes))
    }

    fn copy_within(&self, stream: &host::Stream, from: u64, to: u64, bytes: u64) -> Result<()> {
        self.unless(Kind::CopyWithin, |inner| inner.copy_within(stream, from, to, bytes))
    }

    fn call(&self, stream: &host::Stream, call: Call) -> Result<()> {
        self.unless(Kind::Call, |inner| inner.call(stream, call))
    }
}
