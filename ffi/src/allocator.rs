//! An allocator that learns: it records the requests of an iteration, plans where their blocks lie, and serves the next
//! iterations from the plan.
//!
//! The caller's pointer to an allocator points to the beginning of the allocator's bookkeeping memory, which the caller
//! or the system lends. The memory whose addresses the allocator hands out may be memory of another device: only
//! sublet_realloc touches it, to copy a block.

pub mod manage;
pub mod plan;
mod raw;
pub mod requests;
pub mod trace;

use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use sublet_core::replay::{self, Allocator, Config, Memory};
use sublet_core::{Block, Error, WorkspaceLen};

use self::raw::{Raw, SystemMemory};
use crate::arguments::{Arguments, ERROR, params, plain};
use crate::boundary::{boundary, short, tell};
use crate::error::{Failure, sublet_error};
use crate::handle::{self, Marked, handles, marked, unmark};
use crate::lock::{Caller, Lock};
use crate::place;
use crate::profile::Profile;
use crate::status::{sublet_status, sublet_status as S};
use crate::system;
use crate::workspace::{MOST_COUNTED, Needed, sublet_layout};

/// A function of the caller's that allocates memory for a sublet_allocator: `bytes` bytes at a multiple of `alignment`,
/// a power of two. It returns their address, or NULL if it cannot. `context` is the one in sublet_allocator_params. The
/// function must return: no exception and no longjmp. If it calls the allocator that it serves, that call returns
/// SUBLET_STATUS_REENTRANT.
pub type sublet_raw_alloc =
    Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize, alignment: usize) -> *mut c_void>;

/// A function of the caller's that frees the `bytes` bytes at `pointer`, which the caller's sublet_raw_alloc returned.
/// `context` is the one in sublet_allocator_params. The function must return: no exception and no longjmp. If it calls
/// the allocator that it serves, that call returns SUBLET_STATUS_REENTRANT.
pub type sublet_raw_free = Option<unsafe extern "C" fn(context: *mut c_void, pointer: *mut c_void, bytes: usize)>;

/// A function of the caller's that a sublet_allocator calls when it has no memory for a request of `bytes` bytes.
/// `context` is the one in sublet_allocator_params. The function may free blocks; unlike a sublet_raw_alloc, it may
/// call the allocator, but not destroy it. If it returns 0, the request fails. If it returns another value, the request
/// is tried again; if there still is no memory, the function is called again. The function must return: no exception
/// and no longjmp.
pub type sublet_out_of_memory = Option<unsafe extern "C" fn(context: *mut c_void, bytes: usize) -> i32>;

/// The parameters of sublet_allocator_create. To begin with, set `struct_size` and `capacity`, and leave all else 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct sublet_allocator_params {
    /// Set this to sizeof(sublet_allocator_params): the library sees from it which fields the struct has in the
    /// caller's version.
    pub struct_size: u32,
    /// The sublet_solver that makes the plans. 0 is SUBLET_SOLVER_PORTFOLIO here, which needs memory linear in the
    /// field `events`.
    pub solver: u32,
    /// The size in bytes of the range of addresses in which blocks lie; if `alloc` is given, of the first such range.
    /// It may be large: memory of the system takes space only where it is touched. With `alloc` and no `range` it may
    /// be 0: then the first range is allocated for the first request.
    pub capacity: u64,
    /// Every address of a block is a multiple of this power of two, in bytes, and sizes are rounded up to it. 0 is 256.
    pub alignment: u64,
    /// An iteration is planned only if it has at most this many mallocs and frees, counted together; 0 is 65536.
    pub events: u64,
    /// How many blocks whose addresses are not from the plan can be alive at once; 0 is 16384.
    pub live: u64,
    /// The first address of the `capacity` bytes in which blocks lie, if the caller already has such a range of
    /// addresses; otherwise NULL. The library reads and writes these bytes only in sublet_realloc, which copies blocks.
    pub range: *mut c_void,
    /// A function that allocates a range of addresses in which blocks lie. It is called for the first range, unless
    /// `range` is given, and for another one where a request or a plan does not fit; up to 64 ranges exist at once. For
    /// a request, the function is asked for at least a quarter of the bytes of all ranges, and at least 1 MiB; if there
    /// is no range, for at least `capacity` bytes. If it then returns NULL, it is asked again, for only as much as the
    /// request needs. For a plan it is asked for the bytes of the plan's arena. If `alloc` is NULL, there is only one
    /// range: `range` or, if that is NULL, memory of the system.
    pub alloc: sublet_raw_alloc,
    /// A function that frees a range that `alloc` returned. It is called for all ranges in sublet_allocator_destroy,
    /// and for those without a live block or an arena in sublet_trim, before another range is taken from `alloc`, and
    /// after eight iterations in which the range was not used. Set both `alloc` and `free`, or neither.
    pub free: sublet_raw_free,
    /// The pointer that each call of `alloc`, `free` and `out_of_memory` gets as its `context`.
    pub context: *mut c_void,
    /// The seed of all random choices: the same seed gives the same plan on every machine. 0 stands for the seed 1.
    pub seed: u64,
    /// A budget for one plan, for the solvers that look for ever better plans and have no end of their own, such as
    /// SUBLET_SOLVER_MULTISTART: how many blocks they may place, each counted as often as it is placed. 0 is the
    /// default, 400,000, which suffices for most networks, in a fraction of a second.
    pub work: u64,
    /// A budget for one plan: how many nodes of its search tree the exact search (SUBLET_SOLVER_SEARCH) may look at. A
    /// node takes about 3 µs. The beam search (SUBLET_SOLVER_BEAM) gets the time that as many nodes would take. 0 is
    /// the default, 280,000 nodes, or about a second, which suffices for most hard instances of a few hundred blocks.
    pub nodes: u64,
    /// A function that is called where there is no memory for a request, and may free blocks. NULL: such a request
    /// fails.
    pub out_of_memory: sublet_out_of_memory,
}

/// What an allocator does with requests now.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_state {
    /// There is no plan: each request gets an address wherever there is room. Either no plan was made yet, or the last
    /// one was dropped; the field `plans` of the sublet_statistics still counts it. A plan is dropped within an
    /// iteration in four cases: too many requests got no address from it (at least eight, and at least a quarter of
    /// the number of requests in the plan); as many got none as did, and one more would take memory that no block has
    /// reached yet; more than 16 blocks are alive that the plan has freed by now; or a request finds no room outside
    /// the plan's arena. It is dropped at the end of an iteration that differed from it, if there
    /// is no memory for a new plan or nothing to plan. sublet_forget and sublet_adopt drop it too.
    Profile = 0,
    /// A plan is followed: requests get the addresses that the plan has for them.
    Replay = 1,
    /// There is a plan, but the requests no longer match it. A request that the plan does not cover gets an address
    /// wherever there is room. A new plan is made as soon as a whole iteration has been recorded.
    Diverged = 2,
}

/// What an allocator has done so far, and what it has now. The fields `arena_peak`, `fallback_peak` and `footprint`
/// begin anew with sublet_reset_peaks; the other counts are never reset.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_statistics {
    /// Set this to sizeof(sublet_statistics): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// What the allocator is doing: a sublet_state.
    pub state: u32,
    /// How many requests got their address from a plan. A request that is smaller than the plan expects gets the place
    /// of the planned one: an iteration of a smaller batch keeps the plan and its arena.
    pub hits: u64,
    /// How many requests got no address from the plan that there was: it had no place for the request, or the place was
    /// taken. Requests that are no part of an iteration do not count, such as those between sublet_interrupt and
    /// sublet_resume.
    pub misses: u64,
    /// How many plans were made, or taken over by sublet_adopt. One that is remembered and followed again is not counted
    /// again.
    pub plans: u64,
    /// The bytes of the largest arena so far. An arena is the memory that a plan divides up.
    pub arena_peak: u64,
    /// The most bytes of blocks that were live at once outside the plan's arena. If a plan is dropped, its live blocks
    /// are outside from then on; each counts with the bytes of its planned place.
    pub fallback_peak: u64,
    /// The highest end of a block so far, in bytes from the start of the allocator's range of addresses. With several
    /// ranges: the sum, over the ranges that there are, of the highest end in each; the highest sum so far.
    pub footprint: u64,
    /// The bytes of all ranges of addresses that the allocator has now. Memory of the system that was never touched
    /// counts here, but takes no space.
    pub held: u64,
    /// The bytes of the blocks that are live now. A block that got its address from a plan counts with the bytes of its
    /// planned place, which are more than were requested if the plan expected a larger request. Any other block counts
    /// with its size, rounded up to the alignment.
    pub live_bytes: u64,
    /// How many blocks are live now.
    pub live_blocks: u64,
    /// The bytes of `held` that take memory now. Of memory of the system these are the pages that it has given for them
    /// (on Linux; elsewhere as far as blocks have reached); of other memory all bytes.
    pub resident: u64,
    /// How many marked iterations were begun anew before they ended: nothing was planned of these. More than 0 where
    /// threads that share an allocator mark iterations at once, or ends are not marked.
    pub unended: u64,
}

plain!(sublet_allocator_params, sublet_statistics);
params! {
    sublet_allocator_params { struct_size, solver, capacity, alignment, events, live, range, alloc, free, context, seed, work, nodes, out_of_memory }
    sublet_statistics { struct_size, state, hits, misses, plans, arena_peak, fallback_peak, footprint, held, live_bytes, live_blocks, resident, unended }
}

/// An allocator that learns: it records an iteration, plans it, and serves the next ones from the plan. All threads may
/// use it at once, but none may while sublet_allocator_destroy runs. After a fork of the process, the child has an
/// allocator of its own with the same blocks, in its copy of the memory; a fork waits for calls that are running.
///
/// The requests of all threads are one sequence. If threads allocate side by side in an order that changes from
/// iteration to iteration, no plan fits that sequence; its requests are served all the same.
pub struct sublet_allocator {
    inner: Lock<Inner>,
    /// Called where there is no memory; it may free blocks.
    out_of_memory: sublet_out_of_memory,
    /// How many calls are in `out_of_memory`, and will go on when it returns.
    calls: AtomicUsize,
    context: Context,
    /// Begin and end of the bookkeeping memory, where no result may be written.
    memory: (usize, usize),
    /// Freed with the allocator; empty if the caller has lent the memory.
    workspace: SystemMemory,
}

/// Unlike a bare pointer, it may be in an allocator that all threads use.
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

/// Each new range has a quarter of the bytes so far: 64 have a million times the first.
const RANGES: usize = 64;

impl sublet_allocator_params {
    fn config(&self, position: u32) -> Result<Config, Failure> {
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        let count = |n: u64, at: usize| {
            let too_many = Failure::new(S::FieldOutOfRange, position, MOST_COUNTED as u64, at as u64);
            usize::try_from(n).ok().filter(|&n| n <= MOST_COUNTED).ok_or(too_many)
        };
        let events = count(or(self.events, 1 << 16), offset_of!(Self, events))?;
        let live = count(or(self.live, 1 << 14), offset_of!(Self, live))?;
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

/// The whole bookkeeping memory, and the planner's part of it.
fn needed(config: &Config) -> (Needed, WorkspaceLen) {
    let len = replay::memory(config);
    let kept = WorkspaceLen { words: len.words, indices: len.indices };
    (Needed::workspace(kept).and::<Marked<sublet_allocator>>(1).and::<Caller>(1).and::<Block>(len.blocks), kept)
}

/// Tells in `layout` the size and alignment of the bookkeeping memory that an allocator with the parameters `params`
/// needs: about 340 bytes for each of the `events` that `params` asks for.
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

/// Makes an allocator without live blocks. The allocator keeps its bookkeeping in `workspace` until
/// sublet_allocator_destroy; this call already writes 40 bytes of it for each of the `events` of `params`. If
/// `workspace` is NULL and `workspace_size` 0, the allocator takes memory of the operating system for its bookkeeping;
/// the pages of that memory are touched only as they are used. Without an operating system, NULL fails.
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
        let params = unsafe { arguments.given(params)? };
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
            calls: AtomicUsize::new(0),
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

/// Destroys an allocator. Frees the ranges of addresses that it has allocated, and its bookkeeping memory; what the
/// caller has lent is the caller's again. Addresses that the allocator returned are no longer valid. No other thread
/// may be using it. NULL does nothing.
///
/// SUBLET_STATUS_REENTRANT: a function of the caller's that the allocator has called has called this one; nothing has
/// changed. SUBLET_STATUS_NOT_A_HANDLE: it was destroyed, or is being destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_allocator_destroy(allocator: *mut sublet_allocator) -> sublet_status {
    if allocator.is_null() {
        return S::Ok;
    }
    short(ptr::null_mut(), || {
        // SAFETY: the header asks for NULL, or an allocator that nobody uses, so that it can be moved out of its
        // memory, which goes back at the end of this block, after the ranges: what is bound first, last.
        unsafe {
            let marked = marked(allocator, 0)?;
            if (*marked).value.is_calling() {
                return Err(Failure::of(S::Reentrant));
            }
            unmark(marked);
            #[cfg(all(unix, any(feature = "std", test)))]
            crate::fork::leave(&(*marked).value);
            let sublet_allocator { workspace: _workspace, inner: _inner, .. } = (&raw const (*marked).value).read();
        }
        Ok(())
    })
}

/// `allocator` is NULL, misaligned or readable, and not destroyed if it has the mark.
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

/// Calls `body` while no other thread uses the allocator, which is as for `handle`.
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

/// A later argument that is written may not lie in the allocator's bookkeeping. As for `handle`.
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
    #[inline]
    fn is_apart<T>(&self, argument: *const T, position: u32) -> Result<(), Failure> {
        let begin = argument.addr();
        if begin < self.memory.1 && begin.saturating_add(size_of::<T>()) > self.memory.0 {
            return Err(Failure::new(S::OverlappingBuffers, 0, 0, position.into()));
        }
        Ok(())
    }

    /// Without memory, calls `out_of_memory`, not holding the lock, until it returns 0.
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
        self.calls.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the header asks for a function that takes these and returns.
        let made = self.out_of_memory.is_some_and(|room| unsafe { room(self.context.0, bytes) } != 0);
        self.calls.fetch_sub(1, Ordering::Relaxed);
        made
    }

    /// Whether it has called a function of the user that has not returned.
    fn is_calling(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0 || self.inner.caller().is_here()
    }

    /// `None` also where the lock is refused.
    #[inline]
    fn if_hit<R>(&self, hit: impl FnOnce(&mut Inner) -> Option<R>) -> Option<R> {
        self.inner.with(|inner| Ok(hit(inner))).ok().flatten()
    }

    /// Neither begins in the allocator's bookkeeping nor reaches into it.
    #[inline]
    fn is_beside<T>(&self, argument: *const T) -> bool {
        let reach = size_of::<T>() - 1;
        argument.addr().wrapping_sub(self.memory.0).wrapping_add(reach) >= self.memory.1 - self.memory.0 + reach
    }

    /// NULL does nothing.
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

/// If `to` is neither NULL nor misaligned, it can be written for `'a`, by nobody else.
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

/// `allocator` is as for `handle`; `to` is NULL, misaligned, or written by nobody else.
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

/// Allocates `bytes` bytes, which no other live block shares; `pointer` receives their address, or NULL for 0 bytes.
/// O(1) while the plan is followed.
///
/// SUBLET_STATUS_OUT_OF_MEMORY: no free part of the allocator's ranges of addresses is large enough, and no other range
/// can be allocated. SUBLET_STATUS_TOO_MANY_LIVE: more blocks outside the plan would be alive than `live` of the
/// parameters allows.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_malloc(
    allocator: *mut sublet_allocator,
    bytes: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives, and for pointers that can be written.
    unsafe {
        if let Some(handle) = at_once(allocator, (pointer, error))
            && !pointer.is_null()
        {
            match handle.inner.at_once(|inner| inner.hit(bytes)) {
                Some(Some(address)) => {
                    pointer.write(ptr::with_exposed_provenance_mut(address));
                    return succeeded(error);
                }
                Some(None) => {}
                None => return malloc_shared(allocator, bytes, pointer, error, handle),
            }
        }
        malloc_otherwise(allocator, bytes, pointer, error)
    }
}

/// As sublet_malloc, by a thread that is not the lock's owner. Not inlined: the owner's path then saves no registers.
#[inline(never)]
unsafe fn malloc_shared(
    allocator: *mut sublet_allocator,
    bytes: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
    handle: &sublet_allocator,
) -> sublet_status {
    // SAFETY: as in sublet_malloc, which has found that all arguments are as they should be.
    unsafe {
        if let Some(address) = handle.if_hit(|inner| inner.hit(bytes)) {
            pointer.write(ptr::with_exposed_provenance_mut(address));
            return succeeded(error);
        }
        malloc_otherwise(allocator, bytes, pointer, error)
    }
}

#[inline(never)]
unsafe fn malloc_otherwise(
    allocator: *mut sublet_allocator,
    bytes: usize,
    pointer: *mut *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    let request = |handle: &sublet_allocator| handle.take(bytes, |allocator| allocator.malloc(bytes as u64));
    // SAFETY: as in sublet_malloc.
    unsafe { answer(allocator, (pointer, 2), error, request) }
}

impl Inner {
    /// What comes exactly as planned, unless a trace is recorded.
    #[inline]
    fn hit(&mut self, bytes: usize) -> Option<usize> {
        if self.profile.is_on() {
            return None;
        }
        usize::try_from(self.allocator.hit(bytes as u64)?).ok()
    }

    #[inline]
    fn free_hit(&mut self, pointer: *mut c_void) -> Option<()> {
        (!self.profile.is_on() && self.allocator.free_hit(pointer.addr() as u64)).then_some(())
    }
}

/// The allocator, if all arguments are as they should be; `None` where the whole of the checks has to say what is wrong.
/// `to` may be NULL.
///
/// `allocator` is as for `handle`.
#[inline]
unsafe fn at_once<'a, T>(
    allocator: *const sublet_allocator,
    (to, error): (*const T, *const sublet_error),
) -> Option<&'a sublet_allocator> {
    let marked = allocator.cast::<Marked<sublet_allocator>>();
    if marked.is_null() || (marked.addr() | to.addr() | error.addr()) % align_of::<u64>() != 0 {
        return None;
    }
    // SAFETY: not NULL, and aligned; what has the mark lives.
    let handle = unsafe { Marked::known(marked)? };
    let reach = size_of::<T>() - 1;
    let is_apart = to.addr().wrapping_sub(error.addr()).wrapping_add(reach) >= size_of::<sublet_error>() + reach;
    (handle.is_beside(to) && handle.is_beside(error) && is_apart).then_some(handle)
}

/// The end of a call that has succeeded, whose `error` was checked.
#[inline]
unsafe fn succeeded(error: *mut sublet_error) -> sublet_status {
    if !error.is_null() {
        // SAFETY: the header asks for room for one error.
        unsafe { error.write(sublet_error { status: 0, index: 0, needed: 0, got: 0 }) };
    }
    S::Ok
}

/// Frees the block at `pointer`, which sublet_malloc returned; NULL does nothing. O(1) while the plan is followed.
///
/// SUBLET_STATUS_NOT_ALLOCATED: no live block begins at `pointer`, and nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_free(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives, and for an error that can be written.
    unsafe {
        if let Some(handle) = at_once(allocator, (ptr::null::<u64>(), error)) {
            match handle.inner.at_once(|inner| inner.free_hit(pointer)) {
                Some(Some(())) => return succeeded(error),
                Some(None) => {}
                None => return free_shared(allocator, pointer, error, handle),
            }
        }
        free_otherwise(allocator, pointer, error)
    }
}

/// As sublet_free, by a thread that is not the lock's owner.
#[inline(never)]
unsafe fn free_shared(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    error: *mut sublet_error,
    handle: &sublet_allocator,
) -> sublet_status {
    // SAFETY: as in sublet_free, which has found that all arguments are as they should be.
    unsafe {
        if handle.if_hit(|inner| inner.free_hit(pointer)).is_some() {
            return succeeded(error);
        }
        free_otherwise(allocator, pointer, error)
    }
}

#[inline(never)]
unsafe fn free_otherwise(
    allocator: *mut sublet_allocator,
    pointer: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    short(error, || {
        // SAFETY: as in sublet_free.
        unsafe { handle(allocator, error)? }.give_back(pointer, 1)
    })
}

/// Marks the begin of an iteration. Until the first call of this function the allocator finds iterations by itself, in
/// the sequence of requests; from then on, only iterations that are marked are planned.
///
/// Allocate what outlives iterations, such as weights and the state of an optimizer, before the first iteration. What
/// is allocated within the first iteration stays where that iteration had room for it, and the plan's arena is put
/// beside it: the footprint is then above the max load, the most bytes that are alive at once. If all of it is
/// allocated before, the footprint can be the max load itself.
///
/// Where iterations are not marked, a plan is made in the middle of the sequence of requests, also when the batch size
/// has changed: its arena is put beside the blocks that are alive at that moment, and stays there as long as the plan
/// is followed. Where iterations are marked, a plan is made at the end of an iteration, when the blocks of the
/// iteration are freed.
///
/// Where they are marked, plans are remembered too, each by the size of its first request: the newest, at most 16, and as
/// many as together have `events` of the parameters. If an iteration begins with the first request of another plan, and
/// no planned block of an earlier iteration is alive, that plan is followed again: a batch size that changes and comes
/// back is planned once. Iterations that differ after the same first request are planned anew at each change.
/// sublet_forget forgets all plans.
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

/// Marks the end of an iteration. Plans it if there is no plan, if it was not served as planned, or if more blocks
/// begin and end in it than the plan has; the next iterations get the new plan. Without a begin it does nothing.
///
/// Blocks that outlive the iteration, such as its results, are served beside the plan. If any of them are freed before
/// the next iteration begins, that begin makes the plan again, with these in the arena, and `plans` of the
/// sublet_statistics counts both. If blocks of the arena once live on into an iteration, later plans leave such blocks
/// out, until sublet_forget.
///
/// A failure tells why there is no new plan; the allocator goes on. SUBLET_STATUS_TOO_MANY_EVENTS: the iteration had
/// more mallocs and frees than `events` of the parameters; the old plan stays. SUBLET_STATUS_OUT_OF_MEMORY: no free
/// part of the ranges of addresses is large enough for the arena, and no other range can be allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_iteration_end(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe { within(allocator, error, |inner| Ok(inner.allocator.end_iteration()?)) }
}

/// Leaves mallocs out of the plan from here on, until sublet_resume: they are not recorded for a plan, and get
/// addresses outside of its arena. Frees of blocks from before are recorded as ever. Interruptions nest: each needs a
/// sublet_resume of its own. An interruption holds for the requests of all threads.
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

/// Undoes one sublet_interrupt. Once all of them are undone, requests are part of the plan again. Without an
/// interruption it does nothing.
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
