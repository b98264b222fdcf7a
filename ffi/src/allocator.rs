//! An allocator that learns: it records an iteration, plans it, and serves the next ones from the plan.
//!
//! The handle lies at the beginning of the allocator's bookkeeping memory, which the caller or the system lends. The
//! ranges whose addresses the allocator hands out are never touched: they may be memory of another device.

pub mod manage;
pub mod plan;
mod raw;
pub mod requests;
pub mod trace;

use core::ffi::c_void;
use core::ptr;

use sublet_core::replay::{self, Allocator, Config, Memory};
use sublet_core::{Block, Error, WorkspaceLen};

use self::raw::{Raw, SystemMemory};
use crate::arguments::{Arguments, ERROR, Params, counted, plain};
use crate::boundary::{boundary, short, tell};
use crate::error::{Failure, sublet_error};
use crate::handle::{self, Marked, handles, marked, unmark};
use crate::lock::{Caller, Lock};
use crate::place;
use crate::profile::Profile;
use crate::status::{sublet_status, sublet_status as S};
use crate::system;
use crate::workspace::{MOST_COUNTED, Needed, sublet_layout};

/// A function of the caller's that allocates `bytes` bytes at a multiple of `alignment`, a power of two; it returns
/// NULL if it cannot. It must return: no exception and no longjmp. If it calls the allocator that it serves, that call
/// returns SUBLET_STATUS_REENTRANT; the same holds for sublet_raw_free.
pub type sublet_raw_alloc =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize, alignment: usize) -> *mut c_void>;

/// A function of the caller's that frees what a sublet_raw_alloc returned.
pub type sublet_raw_free = Option<unsafe extern "C" fn(context: *mut c_void, pointer: *mut c_void, bytes: usize)>;

/// A function of the caller's that is called where there is no memory for a request of `bytes` bytes. It may free
/// blocks, and returns another value than 0 to have the request tried once more. Unlike sublet_raw_alloc and
/// sublet_raw_free, it may call the allocator.
pub type sublet_out_of_memory = Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize) -> i32>;

/// The parameters of an allocator. To begin with, set `struct_size` and `capacity`, and leave all else 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_allocator_params {
    /// sizeof(sublet_allocator_params).
    pub struct_size: u32,
    /// The sublet_solver that plans; 0 is SUBLET_SOLVER_PORTFOLIO, which takes memory linear in `events`.
    pub solver: u32,
    /// The bytes of the range of addresses that blocks get their addresses from; with `alloc`, of the first such range.
    /// The system's memory takes space only where it is touched, so that this may be large.
    pub capacity: u64,
    /// Every address is a multiple of this power of two, in bytes; sizes are rounded up to it. 0 is 256.
    pub alignment: u64,
    /// The most mallocs and frees of an iteration that can be planned; 0 is 65536.
    pub events: u64,
    /// The most blocks that are alive at once beside those of a plan; 0 is 16384.
    pub live: u64,
    /// The range of addresses, if the caller has it already; otherwise NULL. The range is never read or written.
    pub range: *mut c_void,
    /// Called to allocate the range, and further ranges where a request or a plan does not fit: up to 64 at once. For a
    /// request it is asked for at least a quarter of the bytes of all ranges, and at least 1 MiB; if it then returns
    /// NULL, for as much as the request needs. For a plan it is asked for the bytes of the arena. NULL takes the
    /// system's memory for the first range, and there is never another.
    pub alloc: sublet_raw_alloc,
    /// Called to free ranges without live blocks: before another range is asked for, after eight iterations in which
    /// they were not used, and in sublet_allocator_destroy. To be set if and only if `alloc` is.
    pub free: sublet_raw_free,
    /// Passed to `alloc`, `free` and `out_of_memory`.
    pub context: *mut c_void,
    /// The seed of all random choices: the same seed gives the same plan everywhere.
    pub seed: u64,
    /// How much the solvers that could go on without end, such as many starts, may do for one plan, in blocks placed. 0
    /// is the default, 400,000, which suffices for most networks, in a fraction of a second.
    pub work: u64,
    /// The budget of exact search and beam search for one plan, in nodes of the exact search's tree; one takes about
    /// 3 µs. 0 is the default, 280,000: about a second, which suffices for most hard instances of a few hundred blocks.
    pub nodes: u64,
    /// Called where there is no memory for a request; or NULL.
    pub out_of_memory: sublet_out_of_memory,
}

/// What an allocator is doing.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_state {
    /// There is no plan yet.
    Profile = 0,
    /// A plan is followed.
    Replay = 1,
    /// A plan is followed that the requests no longer match. A new plan is made as soon as a whole iteration has been
    /// recorded.
    Diverged = 2,
}

/// What an allocator has done so far, and what it has now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_statistics {
    /// sizeof(sublet_statistics).
    pub struct_size: u32,
    /// What the allocator is doing: a sublet_state.
    pub state: u32,
    /// How many requests were served from a plan.
    pub hits: u64,
    /// How many requests came while a plan was followed, and were not in the plan.
    pub misses: u64,
    /// How many plans were made or adopted; each after the first replaces the one before.
    pub plans: u64,
    /// Bytes of the largest arena so far.
    pub arena_peak: u64,
    /// The most bytes that were live at once outside the arena.
    pub fallback_peak: u64,
    /// The highest end of a block so far, in bytes from the start of the allocator's range of addresses; with several
    /// such ranges, the sum over them.
    pub footprint: u64,
    /// The bytes of all ranges that the allocator has now. They are addresses: memory of the system that was never
    /// touched takes no space.
    pub held: u64,
    /// Bytes of the blocks that are live now, rounded up to the alignment.
    pub live_bytes: u64,
    /// How many blocks are live now.
    pub live_blocks: u64,
}

plain!(sublet_allocator_params, sublet_statistics);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_allocator_params {}
// SAFETY: as above.
unsafe impl Params for sublet_statistics {}

/// An allocator that learns: it records an iteration, plans it, and serves the next ones from the plan. All threads may
/// use it at once, but for sublet_allocator_destroy. After a fork the child has an allocator of its own with the same
/// blocks, in its copy of the memory; a fork waits for calls that are running.
///
/// The requests of all threads are one stream. If threads allocate side by side in an order that changes from iteration
/// to iteration, no plan fits that stream; it is served all the same.
pub struct sublet_allocator {
    inner: Lock<Inner>,
    /// The caller's function for when there is no memory for a request.
    out_of_memory: sublet_out_of_memory,
    /// The pointer that `out_of_memory` is given.
    context: Context,
    /// The addresses at which the bookkeeping memory begins and ends.
    memory: (usize, usize),
    /// The bookkeeping memory, if it is the system's and not lent by the caller.
    workspace: SystemMemory,
}

/// A pointer of the user's, which is passed to a callback.
struct Context(*mut c_void);

// SAFETY: nobody follows it here; the header says that all threads may call the function that it is for.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

#[cfg(all(unix, any(feature = "std", test)))]
impl crate::fork::Held for sublet_allocator {
    fn hold(&self) -> Option<Box<dyn crate::fork::Guard + '_>> {
        self.inner.hold().ok().map(|guard| Box::new(guard) as Box<dyn crate::fork::Guard>)
    }
}

handles!(sublet_allocator: b"allocate");

struct Inner {
    allocator: Allocator<'static, Raw>,
    profile: Profile,
}

/// The most ranges of addresses that an allocator has at once. For a request, a new range is asked for with at least a
/// quarter of the bytes of those before it, so that this many suffice for any memory.
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

/// How much bookkeeping memory an allocator with this configuration takes: first all of it, and then the words and
/// indices among it, which the planner's [`Allocator`] uses.
fn needed(config: &Config) -> (Needed, WorkspaceLen) {
    let len = replay::memory(config);
    let kept = WorkspaceLen { words: len.words, indices: len.indices };
    (Needed::workspace(kept).and::<Marked<sublet_allocator>>(1).and::<Caller>(1).and::<Block>(len.blocks), kept)
}

/// Tells the size and alignment of the bookkeeping memory that an allocator with these parameters needs: about 300
/// bytes for each of the `events` that `params` asks for.
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

/// Makes an allocator without live blocks. It uses `workspace` until sublet_allocator_destroy, and writes 40 bytes of
/// it for each of `events` at once. If `workspace` is NULL and its size 0, it takes memory of the operating system
/// instead, where there is one; then pages are touched only as they are used.
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
        let is_systems = workspace.is_null() && workspace_size == 0;
        let (own, workspace, size) = if is_systems {
            let memory = system::alloc(needed.bytes(), needed.layout().alignment)?;
            (SystemMemory(Some((memory, needed.bytes()))), memory, needed.bytes())
        } else {
            (SystemMemory(None), workspace, workspace_size)
        };
        // SAFETY: as above; the system's memory is as long as needed.
        let (mut room, to) = unsafe { (arguments.workspace(workspace, size, needed)?, arguments.result(allocator)?) };
        let place = room.uninit();
        let caller = room.uninit().map(|caller| &*caller.write(Caller::new())).ok_or(Failure::of(S::Unnamed))?;
        let source = Raw::new(&params, &config, caller)?;
        let blocks = replay::memory(&config).blocks;
        // SAFETY: the system's memory is all 0, which is a block: integers, and none of an integer that may be there.
        let blocks = if is_systems { unsafe { room.zeros(blocks) } } else { room.fill(blocks, Block::default()) };
        let (words, indices) = room.parts(kept);
        let made = Allocator::over(&config, Memory { blocks, words, indices }, source);
        let allocator = made.map_err(|e| match e {
            Error::OutOfMemory { needed, .. } => Failure::new(S::NoRawMemory, 0, needed, 0),
            other => other.into(),
        })?;
        let begin = workspace.addr();
        let made = sublet_allocator {
            inner: Lock::new(Inner { allocator, profile: Profile::default() }, caller),
            out_of_memory: params.out_of_memory,
            context: Context(params.context),
            memory: (begin, begin + needed.bytes()),
            workspace: own,
        };
        let made = handle::put_at(place, made, to)?;
        #[cfg(all(unix, any(feature = "std", test)))]
        crate::fork::enter(made);
        let _ = made;
        Ok(())
    })
}

/// Destroys an allocator: frees its ranges that are not the caller's, and its bookkeeping memory. Its addresses are no
/// longer valid. No other thread may be using it. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_allocator_destroy(allocator: *mut sublet_allocator) {
    let _ = short(ptr::null_mut(), || {
        // SAFETY: the header asks for NULL, or an allocator that nobody uses, so that it can be moved out of its
        // memory, which goes back at the end of this block, after the ranges: what is bound first, last.
        unsafe {
            let marked = marked(allocator, 0)?;
            unmark(marked);
            #[cfg(all(unix, any(feature = "std", test)))]
            crate::fork::leave(&(*marked).value);
            let sublet_allocator { workspace: _workspace, inner: _inner, .. } = (&raw const (*marked).value).read();
        }
        Ok(())
    });
}

/// Checks the pointer to an allocator that a C function has as argument 0, and returns the allocator. Fails if `error`,
/// where the call's error is to be written, lies in the allocator's bookkeeping memory.
///
/// # Safety
/// If `allocator` is neither NULL nor misaligned, it can be read; and if the memory there has the mark of an allocator
/// (`Handle::MARK`), it is one that has not been destroyed.
#[inline]
unsafe fn handle<'a>(
    allocator: *const sublet_allocator,
    error: *const sublet_error,
) -> Result<&'a sublet_allocator, Failure> {
    // SAFETY: as promised; what has the mark lives.
    let handle = unsafe { &(*marked(allocator.cast_mut(), 0)?).value };
    handle.is_apart(error, ERROR)?;
    Ok(handle)
}

/// Locks the allocator that a C function has as argument 0, and calls `body` with what the lock guards. Writes a
/// failure to `error`, unless that is NULL, and returns the status.
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
        unsafe { handle(allocator, error)? }.inner.with(body)
    })
}

/// Checks the pointer to an allocator that a C function has as argument 0, and returns the allocator. Its bookkeeping
/// memory is noted in `arguments`: an argument that is checked later and is to be written must not lie there.
///
/// # Safety
/// As for `handle`.
unsafe fn looked_at<'a>(
    allocator: *const sublet_allocator,
    arguments: &mut Arguments<'_>,
) -> Result<&'a sublet_allocator, Failure> {
    arguments.skip();
    // SAFETY: as promised.
    let handle = unsafe { handle(allocator, ptr::null())? };
    arguments.holds_range(0, handle.memory)?;
    Ok(handle)
}

impl sublet_allocator {
    /// Refuses an argument that points into the bookkeeping memory and is written; NULL points nowhere.
    #[inline]
    fn is_apart<T>(&self, argument: *const T, position: u32) -> Result<(), Failure> {
        let begin = argument.addr();
        if begin < self.memory.1 && begin.saturating_add(size_of::<T>()) > self.memory.0 {
            return Err(Failure::new(S::OverlappingBuffers, 0, 0, position.into()));
        }
        Ok(())
    }

    /// Allocates memory by `take`; as long as there is none, calls the caller's function that may make room.
    #[inline]
    fn take(
        &self,
        bytes: usize,
        take: impl Fn(&mut Allocator<'static, Raw>) -> Result<u64, Error>,
    ) -> Result<*mut c_void, Failure> {
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        loop {
            let taken = self.inner.with(|inner| {
                let address = take(&mut inner.allocator)?;
                inner.profile.malloc(address, bytes as u64);
                Ok(address)
            });
            match taken {
                // In a range, whose addresses are pointers.
                Ok(address) => return Ok(ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))),
                Err(failure) if failure.status == S::OutOfMemory && self.makes_room(bytes) => {}
                Err(failure) => return Err(failure),
            }
        }
    }

    #[cold]
    fn makes_room(&self, bytes: usize) -> bool {
        // SAFETY: the header asks for a function that takes these and returns.
        self.out_of_memory.is_some_and(|room| unsafe { room(self.context.0, bytes) } != 0)
    }

    /// Frees the block at `pointer`; NULL does nothing. If no live block begins there, the failure names the argument
    /// by `position`, its place among those of the C function.
    #[inline]
    fn give_back(&self, pointer: *mut c_void, position: u32) -> Result<(), Failure> {
        if pointer.is_null() {
            return Ok(());
        }
        let address = pointer.addr() as u64;
        let freed = self.inner.with(|inner| {
            inner.allocator.free(address)?;
            inner.profile.free(address);
            Ok(())
        });
        let unknown = Failure::new(S::NotAllocated, position, 0, address);
        freed.map_err(|e| if e.status == S::NotAllocated { unknown } else { e })
    }
}

/// Checks the pointer to where a result is to be written, argument `position` of a C function, counted from 0. The
/// result must share no memory with the allocator's bookkeeping or with `error`; the function has no arrays that it
/// could share memory with.
///
/// # Safety
/// If `to` is neither NULL nor misaligned, it can be written as long as `'a`, by nobody else.
#[inline]
unsafe fn result<'a, T>(
    handle: &sublet_allocator,
    to: *mut T,
    position: u32,
    error: *const sublet_error,
) -> Result<&'a mut T, Failure> {
    if to.is_null() {
        return Err(Failure::new(S::NullPointer, position, 0, 0));
    }
    if !to.is_aligned() {
        return Err(Failure::new(S::MisalignedPointer, position, align_of::<T>() as u64, 0));
    }
    handle.is_apart(to, position)?;
    let (begin, over) = (to.addr(), error.addr());
    if over < begin.saturating_add(size_of::<T>()) && begin < over.saturating_add(size_of::<sublet_error>()) {
        return Err(Failure::new(S::OverlappingBuffers, position, 0, ERROR.into()));
    }
    // SAFETY: not NULL and aligned; that it can be written is promised.
    Ok(unsafe { &mut *to })
}

/// Calls `request` with the allocator, and writes what it returns to `to`, which is argument `position`.
///
/// # Safety
/// As for `handle` and `result`.
#[inline]
unsafe fn answer<T>(
    allocator: *const sublet_allocator,
    (to, position): (*mut T, u32),
    error: *mut sublet_error,
    request: impl FnOnce(&sublet_allocator) -> Result<T, Failure>,
) -> sublet_status {
    short(error, || {
        // SAFETY: as promised.
        let (handle, to) = unsafe {
            let handle = handle(allocator, error)?;
            (handle, result(handle, to, position, error)?)
        };
        *to = request(handle)?;
        Ok(())
    })
}

/// Allocates `bytes` bytes, which no other live block shares; 0 bytes are NULL. O(1) while the plan is followed.
///
/// SUBLET_STATUS_OUT_OF_MEMORY: no hole in the ranges is large enough, and no other range can be allocated.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_malloc(
    allocator: *mut sublet_allocator,
    bytes: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    let request = |handle: &sublet_allocator| handle.take(bytes, |allocator| allocator.malloc(bytes as u64));
    // SAFETY: the header asks for an allocator that lives, and for a pointer that can be written.
    unsafe { answer(allocator, (pointer, 2), error, request) }
}

/// Frees what sublet_malloc returned; NULL does nothing. O(1) while the plan is followed.
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins at `pointer`, and nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_free(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    short(error, || {
        // SAFETY: the header asks for an allocator that lives.
        unsafe { handle(allocator, error)? }.give_back(pointer, 1)
    })
}

/// Marks the begin of an iteration. After the first such call iterations are not searched for in the stream of requests
/// any more.
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

/// Marks the end of an iteration. If there is no plan, or the iteration was not served as planned, the next one is
/// planned within this call.
///
/// A failure tells why there is no plan; the allocator goes on without one. SUBLET_STATUS_TOO_MANY_EVENTS: the
/// iteration had more than `events` of the parameters; SUBLET_STATUS_OUT_OF_MEMORY: no hole in the ranges is large
/// enough for the arena, and no other range can be allocated.
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
