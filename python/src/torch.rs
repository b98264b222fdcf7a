//! Device memory for PyTorch: the C library's functions, which throw an exception of C++ if there is no memory.
//!
//! PyTorch does not check whether a pluggable allocator returns NULL. So that training ends with
//! `torch.OutOfMemoryError`, this module throws what PyTorch's own allocator throws: a `c10::OutOfMemoryError`. The
//! module is built without PyTorch's headers. The addresses of the constructor, the vtable and the type come from
//! Python, which looks them up by their names in `libc10`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use pyo3::prelude::*;
use sublet::status::sublet_status;
use sublet::torch::{sublet_torch_malloc, sublet_torch_statistics, sublet_torch_stats};

use crate::refused;

/// The bytes that are allocated for an exception: more than any `c10::Error` takes.
const EXCEPTION_BYTES: usize = 1024;

/// A place in source code, in the layout of PyTorch's `c10::SourceLocation`: an exception says where it was thrown.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// A string in the layout of libstdc++'s `std::string`, with its text outside of itself, in memory from `malloc`.
#[repr(C)]
struct CppString {
    text: *mut c_char,
    len: usize,
    capacity: usize,
    unused: u64,
}

type Allocate = unsafe extern "C" fn(usize) -> *mut c_void;
type Construct = unsafe extern "C" fn(*mut c_void, SourceLocation, *mut CppString);
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !;

/// The functions and addresses by which an exception of PyTorch is made and thrown.
struct Thrower {
    /// The function `__cxa_allocate_exception` of the C++ runtime, which allocates memory for an exception.
    allocate: Allocate,
    /// The function `__cxa_throw` of the C++ runtime, which throws the exception.
    throw: Throw,
    /// The constructor of `c10::Error`, PyTorch's general exception.
    construct: Construct,
    /// The address of the vtable of `c10::OutOfMemoryError`, which makes a `c10::Error` one of these.
    out_of_memory_vtable: usize,
    /// The address of the type information of `c10::OutOfMemoryError`, by which C++ finds who catches it.
    out_of_memory_type: usize,
    /// The address of the type information of `c10::Error`, by which C++ finds who catches it.
    error_type: usize,
}

static THROWER: OnceLock<Thrower> = OnceLock::new();

/// Sets how exceptions are thrown: gives the addresses of `__cxa_allocate_exception`, `__cxa_throw`, the constructor of
/// `c10::Error`, the vtable of `c10::OutOfMemoryError`, and the type information of both exceptions. Once they are set,
/// later calls change nothing.
///
/// # Safety of the caller
/// The addresses have to be those of PyTorch's libraries in this process.
#[pyfunction]
pub fn throw_by(
    allocate: usize,
    throw: usize,
    construct: usize,
    out_of_memory_vtable: usize,
    out_of_memory_type: usize,
    error_type: usize,
) -> PyResult<()> {
    if [allocate, throw, construct, out_of_memory_vtable, out_of_memory_type, error_type].contains(&0) {
        return Err(refused("PyTorch's exceptions: an address is 0"));
    }
    THROWER.get_or_init(|| Thrower {
        // SAFETY: Python has looked them up by the names of functions with these types.
        allocate: unsafe { std::mem::transmute::<usize, Allocate>(allocate) },
        // SAFETY: as above.
        throw: unsafe { std::mem::transmute::<usize, Throw>(throw) },
        // SAFETY: as above. The string goes by reference, as C++ passes what has a destructor.
        construct: unsafe { std::mem::transmute::<usize, Construct>(construct) },
        out_of_memory_vtable,
        out_of_memory_type,
        error_type,
    });
    Ok(())
}

/// Allocates `size` bytes of memory on a device, or throws a C++ exception if that fails. PyTorch's
/// `CUDAPluggableAllocator` takes this function's name as `alloc_fn_name`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sublet_torch_malloc_or_throw(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let memory = sublet_torch_malloc(size, device, stream);
    if memory.is_null() && size > 0 {
        sublet_torch_throw(size, device, works(device));
    }
    memory
}

/// Throws `c10::OutOfMemoryError` for a request of `size` bytes; or `c10::Error` if `works` is false, which says that
/// the device cannot be used at all. Returns if [`throw_by`] was not called, or if the host has no memory for the
/// message.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn sublet_torch_throw(size: isize, device: c_int, works: bool) {
    let Some(thrower) = THROWER.get() else { return };
    let message = if works {
        format!("CUDA out of memory. Tried to allocate {size} bytes on device {device} (sublet).")
    } else {
        format!("sublet has no memory on device {device}: no driver, no such device, or it has failed.")
    };
    let place =
        SourceLocation { function: c"sublet_torch_malloc_or_throw".as_ptr(), file: c"sublet".as_ptr(), line: 0 };
    // SAFETY: `malloc` gives room for the text and its end; the exception takes the text over and frees it, and its
    // constructor writes no more than EXCEPTION_BYTES. No value with a destructor lives where the exception passes.
    unsafe {
        let text = libc::malloc(message.len() + 1).cast::<c_char>();
        if text.is_null() {
            return;
        }
        ptr::copy_nonoverlapping(message.as_ptr().cast(), text, message.len());
        text.add(message.len()).write(0);
        let mut string = CppString { text, len: message.len(), capacity: message.len(), unused: 0 };
        let exception = (thrower.allocate)(EXCEPTION_BYTES);
        (thrower.construct)(exception, place, &raw mut string);
        drop(message);
        let mut kind = thrower.error_type;
        if works {
            kind = thrower.out_of_memory_type;
            // Behind the two words that every vtable begins with.
            exception.cast::<usize>().write(thrower.out_of_memory_vtable + 2 * size_of::<usize>());
        }
        (thrower.throw)(exception, ptr::without_provenance(kind), ptr::null())
    }
}

/// Whether a device can be used: there is a driver and a device of this number, and the device has not failed.
fn works(device: c_int) -> bool {
    told(device).0 == sublet_status::Ok
}

/// The counters of a device's allocator: how many requests got a place in a plan, how many did not, and how many plans
/// were made; then, in bytes, the arena of the plan, the memory held now, and the most memory held so far.
#[pyfunction]
pub fn device_statistics(device: c_int) -> PyResult<[u64; 6]> {
    match told(device) {
        (sublet_status::Ok, s) => Ok([s.planned, s.unplanned, s.plans, s.arena, s.held, s.held_peak]),
        (status, _) => Err(refused(format!("device {device} has no memory of sublet: {status:?}"))),
    }
}

fn told(device: c_int) -> (sublet_status, sublet_torch_statistics) {
    #[expect(clippy::cast_possible_truncation, reason = "a few dozen bytes")]
    let mut told = sublet_torch_statistics {
        struct_size: const { size_of::<sublet_torch_statistics>() as u32 },
        reserved: 0,
        planned: 0,
        unplanned: 0,
        plans: 0,
        arena: 0,
        held: 0,
        held_peak: 0,
    };
    // SAFETY: a place for statistics that says its size, and no error.
    let status = unsafe { sublet_torch_stats(device, &raw mut told, ptr::null_mut()) };
    (status, told)
}
