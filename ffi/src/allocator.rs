//! An allocator that learns: it records an iteration, plans it, and serves the next ones from the plan.
//!
//! The handle lies at the beginning of its own bookkeeping memory, which the caller or the system lends; the ranges whose
//! addresses it hands out are never touched, and may be another device's.

use core::ffi::{c_char, c_void};
use core::ptr;

use sublet_core::replay::{self, Allocator, Config, Memory, Range, Source, State};
use sublet_core::{Block, Constraints, Error, WorkspaceLen, verify};

use crate::arguments::{Arguments, Params, counted, plain};
use crate::block::{self, sublet_block};
use crate::boundary::{boundary, short, tell};
use crate::error::{Failure, Text, sublet_error};
use crate::handle::{self, Marked, handles, marked, unmark};
use crate::lock::Lock;
use crate::place;
use crate::profile::Profile;
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{MOST_COUNTED, Needed, sublet_layout};

/// Gives so many bytes at a multiple of this power of two, or NULL. Neither an exception nor longjmp may leave it, and it
/// may not call the allocator that it serves; nor may sublet_raw_free.
pub type sublet_raw_alloc =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize, alignment: usize) -> *mut c_void>;

/// Takes back what a sublet_raw_alloc gave.
pub type sublet_raw_free = Option<unsafe extern "C" fn(context: *mut c_void, pointer: *mut c_void, bytes: usize)>;

/// What an allocator works with. All 0 but `struct_size` and `capacity` is what to begin with.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_allocator_params {
    /// sizeof(sublet_allocator_params).
    pub struct_size: u32,
    /// The sublet_solver that plans; 0 is SUBLET_SOLVER_PORTFOLIO, which takes memory linear in `events`.
    pub solver: u32,
    /// Bytes of the range whose addresses are handed out; with `alloc`, of the first such range.
    pub capacity: u64,
    /// Every address is a multiple of this power of two, in bytes; sizes are rounded up to it. 0 is 256.
    pub alignment: u64,
    /// The most mallocs and frees of an iteration; 0 is 65536.
    pub events: u64,
    /// The most blocks that are alive at once beside those of a plan; 0 is 16384.
    pub live: u64,
    /// The range, if the caller has it already; else NULL. It is never read or written.
    pub range: *mut c_void,
    /// Gives the range where there is none, and more wherever a request or a plan does not fit: up to 64 at once, of a
    /// quarter of what there is already and at least 1 MiB, or as little as is needed if it gives NULL for that.
    /// NULL is the system's memory for the first range, and never another.
    pub alloc: sublet_raw_alloc,
    /// Takes ranges back in which nothing lives any more: before more is asked for, after eight iterations in which they
    /// were not used, and in sublet_allocator_destroy. Given if and only if `alloc` is.
    pub free: sublet_raw_free,
    /// What both are called with.
    pub context: *mut c_void,
    /// As in sublet_place_params.
    pub seed: u64,
    /// As in sublet_place_params.
    pub work: u64,
    /// As in sublet_place_params.
    pub nodes: u64,
}

/// Where an allocator stands.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_state {
    /// There is no plan yet.
    Profile = 0,
    /// A plan is followed.
    Replay = 1,
    /// A plan is followed that does not fit any more; it is made anew as soon as there is a record.
    Diverged = 2,
}

/// What an allocator has done.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_statistics {
    /// Requests that were served from a plan.
    pub hits: u64,
    /// Requests that came while a plan was followed, and were not in it.
    pub misses: u64,
    /// Plans that were made or adopted; all but the first are re-optimisations.
    pub plans: u64,
    /// Bytes of the largest arena so far.
    pub arena_peak: u64,
    /// The most bytes that were live outside the arena.
    pub fallback_peak: u64,
    /// The highest offset in the range that was in use so far, in bytes; of several ranges, the most of all together.
    pub footprint: u64,
    /// Bytes of the ranges that there are now.
    pub held: u64,
    /// A sublet_state.
    pub state: u32,
    /// 0.
    pub reserved: u32,
}

plain!(sublet_allocator_params, sublet_statistics);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_allocator_params {}

/// An allocator that learns. All threads may use it at once, but for sublet_allocator_destroy.
///
/// What follows one thread's iteration is one stream of requests: threads that allocate side by side in an order that
/// changes from iteration to iteration make a stream that no plan fits; it is served all the same.
pub struct sublet_allocator {
    inner: Lock<Inner>,
    /// Its bookkeeping memory, if it is the system's.
    workspace: SystemMemory,
}

handles!(sublet_allocator: b"allocate");

struct Inner {
    allocator: Allocator<'static, Raw>,
    profile: Profile,
}

/// The most ranges at once: each is a quarter of those before it, so that they are enough for any memory there is.
const RANGES: usize = 64;

impl sublet_allocator_params {
    fn config(&self, position: u32) -> Result<Config, Failure> {
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let count = |n: u64| match usize::try_from(n) {
            Ok(n) => counted(n, position),
            Err(_) => Err(Failure::new(S::LengthOverflow, position, MOST_COUNTED as u64, n)),
        };
        let (events, live) = (count(or(self.events, 1 << 16))?, count(or(self.live, 1 << 14))?);
        let usual = Config::new(self.capacity, events, live);
        Ok(Config {
            ranges: if self.alloc.is_some() { RANGES } else { 1 },
            alignment: or(self.alignment, usual.alignment),
            solver: if self.solver == 0 { usual.solver } else { place::solver(self.solver, position)? },
            options: sublet_core::place::Options {
                seed: or(self.seed, usual.options.seed),
                work: or(self.work, usual.options.work),
                nodes: or(self.nodes, usual.options.nodes),
                ..usual.options
            },
            ..usual
        })
    }
}

/// The bookkeeping: the handle, then what `core` keeps.
fn needed(config: &Config) -> (Needed, WorkspaceLen) {
    let len = replay::memory(config);
    let kept = WorkspaceLen { words: len.words, indices: len.indices };
    (Needed::workspace(kept).and::<Marked<sublet_allocator>>(1).and::<Block>(len.blocks), kept)
}

/// The bookkeeping memory of an allocator with these parameters; about 300 bytes for each of its `events`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_allocator_workspace(
    params: *const sublet_allocator_params,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for parameters that are as long as they say.
    let needed = |arguments: &mut Arguments<'_>| Ok(needed(&unsafe { arguments.params(params)? }.config(0)?).0);
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Makes an allocator whose range is free. `workspace` stays lent until sublet_allocator_destroy; NULL with the size 0
/// takes the system's memory, where there is one.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_allocator_create(
    params: *const sublet_allocator_params,
    workspace: *mut c_void,
    workspace_size: usize,
    allocator: *mut *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what they are to hold.
        let params = unsafe { arguments.params(params)? };
        let config = params.config(0)?;
        let (needed, kept) = needed(&config);
        let (own, workspace, size) = if workspace.is_null() && workspace_size == 0 {
            let memory = system::alloc(needed.bytes(), needed.layout().alignment)?;
            (SystemMemory(Some((memory, needed.bytes()))), memory, needed.bytes())
        } else {
            (SystemMemory(None), workspace, workspace_size)
        };
        // SAFETY: as above; the system's memory is as long as needed.
        let (mut room, to) = unsafe { (arguments.workspace(workspace, size, needed)?, arguments.result(allocator)?) };
        let source = Raw::new(&params, &config)?;
        let place = room.uninit();
        let blocks = room.fill(replay::memory(&config).blocks, Block::default());
        let (words, indices) = room.parts(kept);
        let made = Allocator::over(&config, Memory { blocks, words, indices }, source);
        let allocator = made.map_err(|e| match e {
            Error::OutOfMemory { needed, .. } => Failure::new(S::NoRawMemory, 0, needed, 0),
            other => other.into(),
        })?;
        let inner = Lock::new(Inner { allocator, profile: Profile::default() });
        handle::put(place, sublet_allocator { inner, workspace: own }, to)
    })
}

/// Gives back what an allocator has: its ranges that are not the caller's, and its bookkeeping memory. Addresses that it
/// has handed out are no longer. No other thread may be using it. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_allocator_destroy(allocator: *mut sublet_allocator) {
    let _ = short(ptr::null_mut(), || {
        // SAFETY: the header asks for NULL, or an allocator that nobody uses, so that it can be moved out of its memory,
        // which goes back at the end of this block, after the ranges: what is bound first, last.
        unsafe {
            let marked = marked(allocator, 0)?;
            unmark(marked);
            let sublet_allocator { workspace: _workspace, inner: _inner } = (&raw const (*marked).value).read();
        }
        Ok(())
    });
}

/// Where the ranges come from.
struct Raw {
    /// The caller's own range, and whether it is in use.
    lent: Option<Range>,
    lent_in_use: bool,
    /// A power of two.
    alignment: usize,
    /// NULL is the system.
    callbacks: Option<Callbacks>,
}

#[derive(Clone, Copy)]
struct Callbacks {
    alloc: unsafe extern "C" fn(*mut c_void, usize, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
    context: *mut c_void,
}

impl Raw {
    /// Looks at what the parameters say of ranges; nothing is asked for yet.
    fn new(params: &sublet_allocator_params, config: &Config) -> Result<Self, Failure> {
        let too_much = Failure::new(S::LengthOverflow, 0, MOST_BYTES as u64, config.capacity);
        let bytes = usize::try_from(config.capacity).ok().filter(|&bytes| bytes <= MOST_BYTES).ok_or(too_much)?;
        let alignment = usize::try_from(config.alignment).ok().filter(|a| a.is_power_of_two());
        let alignment = alignment.ok_or(Failure::new(S::Alignment, u32::MAX, 0, config.alignment))?;
        let callbacks = match (params.alloc, params.free) {
            (Some(alloc), Some(free)) => Some(Callbacks { alloc, free, context: params.context }),
            (None, None) => None,
            _ => return Err(Failure::of(S::NullPointer)),
        };
        let lent = if params.range.is_null() {
            None
        } else {
            if params.range.addr() & (alignment - 1) != 0 {
                return Err(Failure::new(S::MisalignedPointer, 0, config.alignment, 0));
            }
            params.range.addr().checked_add(bytes).ok_or(too_much)?;
            Some(Range { begin: params.range.expose_provenance() as u64, bytes: config.capacity })
        };
        Ok(Self { lent, lent_in_use: false, alignment, callbacks })
    }
}

/// The most bytes that a range has: what can be addressed.
const MOST_BYTES: usize = isize::MAX.cast_unsigned();

impl Source for Raw {
    fn grows(&self) -> bool {
        self.callbacks.is_some()
    }

    fn take(&mut self, bytes: u64) -> Option<Range> {
        if let Some(lent) = self.lent.filter(|lent| !self.lent_in_use && bytes <= lent.bytes) {
            self.lent_in_use = true;
            return Some(lent);
        }
        let size = usize::try_from(bytes).ok().filter(|&size| size <= MOST_BYTES)?;
        let pointer = match self.callbacks {
            // SAFETY: the header asks for a function that takes these and returns.
            Some(Callbacks { alloc, context, .. }) => unsafe { alloc(context, size, self.alignment) },
            None => system::alloc(size, self.alignment).ok()?,
        };
        (!pointer.is_null()).then(|| Range { begin: pointer.expose_provenance() as u64, bytes })
    }

    fn give_back(&mut self, range: Range) {
        if self.lent_in_use && self.lent == Some(range) {
            self.lent_in_use = false;
            return;
        }
        let pointer = ptr::with_exposed_provenance_mut(usize::try_from(range.begin).unwrap_or(0));
        let size = usize::try_from(range.bytes).unwrap_or(0);
        match self.callbacks {
            // SAFETY: the pair of what has given the pointer, once.
            Some(Callbacks { free, context, .. }) => unsafe { free(context, pointer, size) },
            // SAFETY: given by `system::alloc` with these, once.
            None => unsafe { system::free(pointer, size, self.alignment) },
        }
    }
}

/// Bookkeeping memory of the system, and its bytes; it goes back when this is dropped.
struct SystemMemory(Option<(*mut c_void, usize)>);

impl Drop for SystemMemory {
    fn drop(&mut self) {
        if let Some((pointer, bytes)) = self.0.take() {
            // SAFETY: given by `system::alloc` with these, once.
            unsafe { system::free(pointer, bytes, align_of::<u64>()) };
        }
    }
}

/// Memory from the system.
#[cfg(any(feature = "std", test))]
mod system {
    use super::{Failure, S, c_void};
    use std::alloc::Layout;

    pub(super) fn alloc(bytes: usize, alignment: usize) -> Result<*mut c_void, Failure> {
        let none = Failure::new(S::NoRawMemory, 0, bytes as u64, 0);
        let layout = Layout::from_size_align(bytes, alignment).map_err(|_| none)?;
        if bytes == 0 {
            return Err(none);
        }
        // SAFETY: the layout has bytes.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() { Err(none) } else { Ok(pointer.cast()) }
    }

    /// # Safety
    /// `alloc` has given the pointer with these, and it has not been given back.
    pub(super) unsafe fn free(pointer: *mut c_void, bytes: usize, alignment: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes, alignment) {
            // SAFETY: as promised.
            unsafe { std::alloc::dealloc(pointer.cast(), layout) };
        }
    }
}

/// There is no system.
#[cfg(not(any(feature = "std", test)))]
mod system {
    use super::{Failure, S, c_void};

    pub(super) const fn alloc(_: usize, _: usize) -> Result<*mut c_void, Failure> {
        Err(Failure::of(S::Unavailable))
    }

    pub(super) const unsafe fn free(_: *mut c_void, _: usize, _: usize) {}
}

/// The allocator behind a pointer.
///
/// # Safety
/// If it is neither NULL nor misaligned, it can be read; and if it has the mark, it is an allocator that lives.
#[inline]
unsafe fn handle<'a>(allocator: *const sublet_allocator) -> Result<&'a sublet_allocator, Failure> {
    // SAFETY: as promised; what has the mark lives.
    Ok(unsafe { &(*marked(allocator.cast_mut(), 0)?).value })
}

/// Does something with the allocator behind a pointer.
///
/// # Safety
/// As for `handle`.
unsafe fn within(
    allocator: *const sublet_allocator,
    error: *mut sublet_error,
    body: impl FnOnce(&mut Inner) -> Result<(), Failure>,
) -> sublet_status {
    short(error, || {
        // SAFETY: as promised.
        unsafe { handle(allocator)? }.inner.with(body)
    })
}

impl Inner {
    #[inline]
    fn malloc(&mut self, bytes: u64) -> Result<u64, Failure> {
        let address = self.allocator.malloc(bytes)?;
        self.profile.malloc(address, bytes);
        Ok(address)
    }

    #[inline]
    fn free(&mut self, address: u64) -> Result<(), Failure> {
        self.allocator.free(address)?;
        self.profile.free(address);
        Ok(())
    }
}

/// Memory of `bytes` bytes, which no other live block shares; 0 bytes are NULL. O(1) while the plan is followed.
///
/// SUBLET_STATUS_OUT_OF_MEMORY: no hole is large enough, and there is no other range to be had.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_malloc(
    allocator: *mut sublet_allocator,
    bytes: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    short(error, || {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { handle(allocator)? };
        if pointer.is_null() || !pointer.is_aligned() {
            let status = if pointer.is_null() { S::NullPointer } else { S::MisalignedPointer };
            return Err(Failure::new(status, 2, if pointer.is_null() { 0 } else { align_of::<usize>() as u64 }, 0));
        }
        let found = if bytes == 0 {
            ptr::null_mut()
        } else {
            let address = handle.inner.with(|inner| inner.malloc(bytes as u64))?;
            // In a range, whose addresses are pointers.
            ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
        };
        // SAFETY: not NULL and aligned; that it can be written is asked for.
        unsafe { pointer.write(found) };
        Ok(())
    })
}

/// Gives back what sublet_malloc gave; NULL is nothing. O(1) while the plan is followed.
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins there, and nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_free(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    short(error, || {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { handle(allocator)? };
        if pointer.is_null() {
            return Ok(());
        }
        let unknown = Failure::new(S::NotAllocated, 1, 0, pointer.addr() as u64);
        let freed = handle.inner.with(|inner| inner.free(pointer.addr() as u64));
        freed.map_err(|e| if e.status == S::NotAllocated { unknown } else { e })
    })
}

/// An iteration begins. From the first such call on iterations are told, and no longer looked for in the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_iteration_begin(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.begin_iteration();
            Ok(())
        })
    }
}

/// The iteration ends. If there is no plan, or it was not served as planned, the next one is planned within this call.
///
/// A failure tells why there is no plan; the allocator goes on without one. SUBLET_STATUS_TOO_MANY_EVENTS: the iteration
/// had more than `events` of the parameters; SUBLET_STATUS_OUT_OF_MEMORY: no hole is large enough for the
/// arena, and there is no other range to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_iteration_end(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe { within(allocator, error, |inner| Ok(inner.allocator.end_iteration()?)) }
}

/// Requests from here on are no part of the plan, and are served beside it, until sublet_resume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_interrupt(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.interrupt();
            Ok(())
        })
    }
}

/// Requests from here on are part of the plan again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_resume(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.allocator.resume();
            Ok(())
        })
    }
}

/// Follows a plan that was made elsewhere, from its first request on: blocks in the order in which an iteration
/// allocates them, and their offsets. It is verified first, with a workspace as sublet_verify needs.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_adopt(
    allocator: *mut sublet_allocator,
    blocks: *const sublet_block,
    block_count: usize,
    offsets: *const u64,
    workspace: *mut c_void,
    workspace_size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { handle(allocator)? };
        arguments.skip();
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (blocks, offsets, mut room) = unsafe {
            let needed = Needed::workspace(verify::workspace(counted(block_count, 2)?)).and::<Block>(block_count);
            let blocks = arguments.input(blocks, block_count)?;
            let offsets = arguments.input_of(offsets, block_count)?;
            (blocks, offsets, arguments.workspace(workspace, workspace_size, needed)?)
        };
        let blocks = block::blocks(&mut room, blocks)?;
        let scratch = room.workspace(verify::workspace(block_count));
        let plan = verify::verify(blocks, offsets, &Constraints::NONE, scratch)?;
        handle.inner.with(|inner| Ok(inner.allocator.adopt(&plan)?))
    })
}

/// What an allocator has done so far.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_stats(
    allocator: *const sublet_allocator,
    statistics: *mut sublet_statistics,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives, and for pointers that hold what they are to hold.
        let handle = unsafe { handle(allocator)? };
        arguments.skip();
        // SAFETY: as above.
        let statistics = unsafe { arguments.result(statistics)? };
        let (done, state) = handle.inner.with(|inner| Ok((inner.allocator.statistics(), inner.allocator.state())))?;
        statistics.set(sublet_statistics {
            hits: done.hits,
            misses: done.misses,
            plans: done.plans,
            arena_peak: done.arena_peak,
            fallback_peak: done.fallback_peak,
            footprint: done.footprint,
            held: done.held,
            state: match state {
                State::Profile => sublet_state::Profile,
                State::Replay => sublet_state::Replay,
                State::Diverged => sublet_state::Diverged,
            } as u32,
            reserved: 0,
        });
        Ok(())
    })
}

/// Begins a trace of what the allocator is asked for, and forgets the one before. Blocks that are alive already are no
/// part of it. It takes the system's memory, about 100 bytes a request, until the next one begins or the allocator
/// ends; SUBLET_STATUS_UNAVAILABLE where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_trace_begin(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            if !Profile::IS_AVAILABLE {
                return Err(Failure::of(S::Unavailable));
            }
            inner.profile.begin();
            Ok(())
        })
    }
}

/// Ends the trace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_trace_end(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.profile.end();
            Ok(())
        })
    }
}

/// Writes the trace as CSV that the command line reads (`sublet plan trace.csv`), ended by a zero.
///
/// `needed`, which may be NULL, receives the bytes that the whole text takes with its zero. If `capacity` is less, the
/// text is cut, still ended by a zero, and the status is SUBLET_STATUS_BUFFER_TOO_SMALL; but a capacity of 0 is a
/// question about `needed` alone, and no failure.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_export_trace(
    allocator: *const sublet_allocator,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { handle(allocator)? };
        arguments.skip();
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (buffer, needed) = unsafe { (arguments.output(buffer, capacity)?, arguments.optional(needed)?) };
        let mut text = Text { buffer, len: 0 };
        if !Profile::IS_AVAILABLE {
            return Err(Failure::of(S::Unavailable));
        }
        handle.inner.with(|inner| {
            inner.profile.write(&mut text);
            Ok(())
        })?;
        text.finish(1, needed)
    })
}
