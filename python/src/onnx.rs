//! Memory for ONNX Runtime: an allocator of its environment, of which each run of a session is a marked iteration.
//!
//! The library in onnxruntime's wheel exports nothing but its module for Python. It does load libraries of execution
//! providers, and calls their `CreateEpFactories` with its C API. This extension module is such a library, without a
//! provider: it keeps the API, and registers its allocator once that call has returned.
//!
//! Each session has an allocator of its own, or as many as it has runs at once, so that each follows one plan. What is
//! requested outside of a run, such as weights, comes from the C library.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort_sys::{
    OrtAllocator, OrtAllocatorType, OrtApi, OrtApiBase, OrtLogger, OrtLoggingLevel, OrtMemType, OrtMemoryInfo,
    OrtStatusPtr,
};
use pyo3::prelude::*;
use sublet::allocator::manage::{sublet_forget, sublet_reset_peaks, sublet_stats, sublet_trim};
use sublet::allocator::{
    sublet_allocator, sublet_allocator_create, sublet_allocator_params, sublet_free, sublet_iteration_begin,
    sublet_iteration_end, sublet_malloc, sublet_statistics,
};
use sublet::error::sublet_error;
use sublet::status::sublet_status;

use crate::refused;

/// The version of ONNX Runtime's C API that is asked for: that of 1.22, the first with `CreateEpFactories`.
const VERSION: u32 = 22;
/// ONNX Runtime's kernels want this alignment, in bytes.
const ALIGNMENT: usize = 64;
/// The most runs at once, over all sessions, that have plans; others are served by the C library.
const CONTEXTS: usize = 256;

static BASE: AtomicPtr<OrtApiBase> = AtomicPtr::new(ptr::null_mut());

/// Called by onnxruntime when this module is registered with it as the library of an execution provider.
///
/// # Safety
/// `base` is onnxruntime's, which lives as long as the process; `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEpFactories(
    _name: *const c_char,
    base: *const OrtApiBase,
    _logger: *const OrtLogger,
    _factories: *mut *mut c_void,
    _most: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    BASE.store(base.cast_mut(), Ordering::Release);
    // SAFETY: as promised.
    unsafe { count.write(0) };
    OrtStatusPtr(ptr::null_mut())
}

/// Never called, for there are no factories; onnxruntime looks for it.
#[unsafe(no_mangle)]
pub extern "C" fn ReleaseEpFactory(_factory: *mut c_void) -> OrtStatusPtr {
    OrtStatusPtr(ptr::null_mut())
}

/// An allocator for the runs of one session.
struct Context {
    allocator: *mut sublet_allocator,
    /// Where its range of addresses begins.
    begin: usize,
    /// The session; 0 if none has it.
    session: AtomicU64,
    /// The hits, misses and plans of sessions that had it before.
    before: [AtomicU64; 3],
    /// A request of the run had no room in it.
    is_full: AtomicBool,
}

impl Context {
    /// All 0 where they cannot be had.
    fn statistics(&self) -> sublet_statistics {
        // SAFETY: results may be all 0 but for their size.
        let mut done: sublet_statistics = unsafe { std::mem::zeroed() };
        done.struct_size = u32::try_from(size_of::<sublet_statistics>()).unwrap_or(0);
        // SAFETY: an allocator that is never destroyed, and a result of this function.
        let _ = unsafe { sublet_stats(self.allocator, &raw mut done, ptr::null_mut()) };
        done
    }
}

// SAFETY: all threads may use a sublet_allocator.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// What is registered with ONNX Runtime.
struct Memory {
    info: *const OrtMemoryInfo,
    capacity: usize,
    contexts: [OnceLock<Context>; CONTEXTS],
    /// How many contexts there are.
    made: AtomicUsize,
    /// Which contexts no run has.
    idle: Mutex<Vec<usize>>,
    /// How many runs have a context, and the sum of 1 + these contexts: while one runs, it is known which.
    running: [AtomicUsize; 2],
}

// SAFETY: the information is never changed.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

static MEMORY: OnceLock<Memory> = OnceLock::new();

thread_local!(static CURRENT: Cell<Option<usize>> = const { Cell::new(None) });

impl Memory {
    fn context(&self, number: usize) -> Option<&Context> {
        self.contexts.get(number)?.get()
    }

    /// The context of a request on this thread. ONNX Runtime's own threads have none: their requests are the only run's.
    fn current(&self) -> Option<&Context> {
        let own = CURRENT.get().or_else(|| {
            let [runs, sum] = self.running.each_ref().map(|n| n.load(Ordering::Relaxed));
            if runs == 1 { sum.checked_sub(1) } else { None }
        });
        self.context(own?)
    }

    /// The context whose range has this address.
    fn owner(&self, address: usize) -> Option<&Context> {
        let made = (0..self.made.load(Ordering::Acquire)).filter_map(|number| self.context(number));
        made.into_iter().find(|context| address.wrapping_sub(context.begin) < self.capacity)
    }

    /// A context for a run of a session: one that the session had before, or one that no session has, or a new one.
    fn take(&self, session: u64) -> Option<usize> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |wanted| {
            idle.iter().position(|&i| self.context(i).is_some_and(|c| c.session.load(Ordering::Relaxed) == wanted))
        };
        let number = match of(session).or_else(|| of(0)) {
            Some(place) => idle.swap_remove(place),
            None => self.make()?,
        };
        self.context(number)?.session.store(session, Ordering::Relaxed);
        Some(number)
    }

    /// `None` if there are as many contexts as there can be, or the system has no addresses.
    fn make(&self) -> Option<usize> {
        let number = self.made.load(Ordering::Relaxed);
        // SAFETY: parameters may be all 0 but for their size.
        let mut params: sublet_allocator_params = unsafe { std::mem::zeroed() };
        params.struct_size = u32::try_from(size_of::<sublet_allocator_params>()).ok()?;
        params.capacity = self.capacity as u64;
        params.alignment = ALIGNMENT as u64;
        let mut allocator = ptr::null_mut();
        let mut first = ptr::null_mut();
        // SAFETY: valid parameters, and results of this function. The first block lies at the begin of the range.
        let status = unsafe {
            let status =
                sublet_allocator_create(&raw const params, ptr::null_mut(), 0, &raw mut allocator, ptr::null_mut());
            if status != sublet_status::Ok {
                return None;
            }
            sublet_malloc(allocator, 1, &raw mut first, ptr::null_mut())
        };
        if status != sublet_status::Ok {
            return None;
        }
        // SAFETY: the block was allocated above.
        unsafe { sublet_free(allocator, first, ptr::null_mut()) };
        let context = Context {
            allocator,
            begin: first.addr(),
            session: AtomicU64::new(0),
            before: Default::default(),
            is_full: AtomicBool::new(false),
        };
        self.contexts.get(number)?.set(context).ok()?;
        self.made.store(number + 1, Ordering::Release);
        Some(number)
    }
}

/// The allocator as ONNX Runtime sees it.
#[repr(C)]
struct Registered(OrtAllocator);

// SAFETY: its functions may be called by all threads.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

unsafe extern "system" fn alloc(_: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    if bytes == 0 {
        return ptr::null_mut();
    }
    if let Some(context) = MEMORY.get().and_then(Memory::current) {
        let mut pointer = ptr::null_mut();
        // SAFETY: an allocator that is never destroyed, and a result of this function.
        let status = unsafe { sublet_malloc(context.allocator, bytes, &raw mut pointer, ptr::null_mut()) };
        if status == sublet_status::Ok {
            return pointer;
        }
        context.is_full.store(true, Ordering::Relaxed);
    }
    beside(bytes)
}

fn beside(bytes: usize) -> *mut c_void {
    let mut pointer = ptr::null_mut();
    // SAFETY: a result of this function; on failure it stays NULL.
    unsafe { libc::posix_memalign(&raw mut pointer, ALIGNMENT, bytes) };
    pointer
}

unsafe extern "system" fn free(_: *mut OrtAllocator, pointer: *mut c_void) {
    match MEMORY.get().and_then(|memory| memory.owner(pointer.addr())) {
        // SAFETY: ONNX Runtime frees what it was given.
        Some(context) => unsafe {
            sublet_free(context.allocator, pointer, ptr::null_mut());
        },
        // SAFETY: as above, by `beside`.
        None => unsafe { libc::free(pointer) },
    }
}

unsafe extern "system" fn reserve(_: *const OrtAllocator, bytes: usize) -> *mut c_void {
    if bytes == 0 { ptr::null_mut() } else { beside(bytes) }
}

unsafe extern "system" fn info(_: *const OrtAllocator) -> *const OrtMemoryInfo {
    MEMORY.get().map_or(ptr::null(), |memory| memory.info)
}

/// Registers the allocator, once. `capacity` is the most bytes that the runs of one session take at once.
#[pyfunction]
pub(crate) fn ort_install(capacity: usize) -> PyResult<()> {
    static REGISTERED: OnceLock<Registered> = OnceLock::new();
    if MEMORY.get().is_some() {
        return Ok(());
    }
    let base = BASE.load(Ordering::Acquire);
    // SAFETY: onnxruntime's, if there is one.
    let api = unsafe { base.as_ref().map_or(ptr::null(), |base| (base.GetApi)(VERSION)) };
    // SAFETY: as above.
    let api =
        unsafe { api.as_ref() }.ok_or_else(|| refused("onnxruntime has not told its C API: 1.22 or later does"))?;
    let (mut env, mut info_of) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: functions of the API, with results of this function. The environment is the one that there is.
    unsafe {
        told(api, (api.CreateEnv)(OrtLoggingLevel::ORT_LOGGING_LEVEL_WARNING, c"sublet".as_ptr(), &raw mut env))?;
        let (kind, default) = (OrtAllocatorType::OrtDeviceAllocator, OrtMemType::OrtMemTypeDefault);
        told(api, (api.CreateMemoryInfo)(c"Cpu".as_ptr(), kind, 0, default, &raw mut info_of))?;
    }
    MEMORY.get_or_init(|| Memory {
        info: info_of,
        capacity,
        contexts: [const { OnceLock::new() }; CONTEXTS],
        made: AtomicUsize::new(0),
        idle: Mutex::new(Vec::new()),
        running: [const { AtomicUsize::new(0) }; 2],
    });
    let registered = REGISTERED.get_or_init(|| {
        // SAFETY: functions that are not there are none.
        let mut own = unsafe { OrtAllocator::default() };
        own.version = VERSION;
        own.Alloc = Some(alloc);
        own.Free = Some(free);
        own.Info = Some(info);
        own.Reserve = Some(reserve);
        Registered(own)
    });
    // SAFETY: the allocator lives as long as the process.
    told(api, unsafe { (api.RegisterAllocator)(env, ptr::from_ref(&registered.0).cast_mut()) })
}

fn told(api: &OrtApi, status: OrtStatusPtr) -> PyResult<()> {
    if status.0.is_null() {
        return Ok(());
    }
    // SAFETY: a status with a message that ends.
    let message = unsafe { CStr::from_ptr((api.GetErrorMessage)(status.0)) }.to_string_lossy().into_owned();
    Err(refused(message))
}

/// Begins a run of a session on this thread; returns what `ort_end` wants, or none if there is no memory to plan. Runs
/// nest: the second number is the context of the run around it.
#[pyfunction]
pub(crate) fn ort_begin(session: u64) -> Option<(usize, Option<usize>)> {
    let memory = MEMORY.get()?;
    let number = memory.take(session)?;
    // SAFETY: an allocator that is never destroyed.
    unsafe { sublet_iteration_begin(memory.context(number)?.allocator, ptr::null_mut()) };
    memory.running[0].fetch_add(1, Ordering::Relaxed);
    memory.running[1].fetch_add(number + 1, Ordering::Relaxed);
    Some((number, CURRENT.replace(Some(number))))
}

/// Ends a run that `ort_begin` has begun on this thread; it is planned if it has no plan. Returns why it is not in whole.
#[pyfunction]
pub(crate) fn ort_end(py: Python<'_>, number: usize, around: Option<usize>) -> Option<String> {
    let memory = MEMORY.get()?;
    let context = memory.context(number)?;
    CURRENT.set(around);
    memory.running[0].fetch_sub(1, Ordering::Relaxed);
    memory.running[1].fetch_sub(number + 1, Ordering::Relaxed);
    let mut error = sublet_error { status: 0, index: 0, needed: 0, got: 0 };
    // SAFETY: an allocator that is never destroyed, and an error of this function.
    let status = py.detach(|| unsafe { sublet_iteration_end(context.allocator, &raw mut error) });
    let is_full = context.is_full.swap(false, Ordering::Relaxed);
    memory.idle.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    if status != sublet_status::Ok {
        return Some(error.to_string());
    }
    is_full.then(|| "a request had no room in the capacity of `install`".to_owned())
}

/// The session is gone: its contexts forget their plans and give their memory back.
#[pyfunction]
pub(crate) fn ort_release(session: u64) {
    let Some(memory) = MEMORY.get() else { return };
    let _idle = memory.idle.lock().unwrap_or_else(PoisonError::into_inner);
    for context in (0..memory.made.load(Ordering::Acquire)).filter_map(|number| memory.context(number)) {
        if context.session.compare_exchange(session, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // SAFETY: an allocator that is never destroyed.
            unsafe {
                sublet_forget(context.allocator, ptr::null_mut());
                sublet_trim(context.allocator, ptr::null_mut());
                sublet_reset_peaks(context.allocator, ptr::null_mut());
            }
            let done = context.statistics();
            for (before, count) in context.before.iter().zip([done.hits, done.misses, done.plans]) {
                before.store(count, Ordering::Relaxed);
            }
        }
    }
}

/// Of each context of a session: hits, misses, plans, the bytes of the largest arena so far, live bytes, and the bytes
/// that take memory.
#[pyfunction]
pub(crate) fn ort_statistics(session: u64) -> Vec<[u64; 6]> {
    let Some(memory) = MEMORY.get() else { return Vec::new() };
    let contexts = (0..memory.made.load(Ordering::Acquire)).filter_map(|number| memory.context(number));
    let own = contexts.filter(|context| context.session.load(Ordering::Relaxed) == session);
    own.map(|context| {
        let done = context.statistics();
        let [hits, misses, plans] = context.before.each_ref().map(|count| count.load(Ordering::Relaxed));
        let counts = [done.hits - hits, done.misses - misses, done.plans - plans];
        [counts[0], counts[1], counts[2], done.arena_peak, done.live_bytes, done.resident]
    })
    .collect()
}
