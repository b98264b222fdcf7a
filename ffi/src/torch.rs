//! Memory for PyTorch: the functions that `torch.cuda.memory.CUDAPluggableAllocator` calls.
//!
//! PyTorch gives these functions only a device's number, and some not even that. So the devices are global state, which
//! lasts as long as the process. The only other global state of this crate is the list of allocators in `fork.rs`.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use sublet_cuda::torch::{Cuda, Device, Devices, Driver, PoolId};
use sublet_cuda::{Error, Result};

use crate::arguments::{params, plain};
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};

static DEVICES: Devices<Cuda> = Devices::new(Cuda::open);

/// The statistics of a device's memory, in bytes where nothing else is said.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_torch_statistics {
    /// Set this to sizeof(sublet_torch_statistics): the library sees from it which fields the struct has in the
    /// caller's version.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// How many allocation requests got their address from a plan.
    pub planned: u64,
    /// How many allocation requests got memory of their own from the driver and not a place in a plan; memory for CUDA
    /// graphs is not counted.
    pub unplanned: u64,
    /// How many plans were made.
    pub plans: u64,
    /// How many bytes of the device the driver has allocated for the blocks of the plan in use; 0 if none.
    pub arena: u64,
    /// The bytes of the device's memory that the allocator holds now, whether live blocks use them or not.
    pub held: u64,
    /// The most bytes of the device's memory that the allocator held at once so far, whether live blocks used them or
    /// not.
    pub held_peak: u64,
}

plain!(sublet_torch_statistics);
params! {
    sublet_torch_statistics { struct_size, reserved, planned, unplanned, plans, arena, held, held_peak }
}

/// Allocates memory of a device for work in `stream`: what CUDAPluggableAllocator takes as `alloc_fn_name`.
///
/// Iterations are found in the requests of the first stream that allocates memory of the device; once they are found,
/// requests of that stream are answered from a plan. Requests of other streams, and those that the plan does not
/// expect, get memory of their own from the driver, which allocates and frees it in the order of the stream's work.
/// Returns NULL if `size` is 0, or after a failure, for example if the device has too little free memory; then a line
/// on standard error tells the failure. Where the driver's memory pools are missing, cannot be made or refuse, memory
/// comes from cuMemAlloc, and a line on standard error says so and why.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let address = told("sublet_torch_malloc", Some(device), || {
        let bytes = u64::try_from(size).unwrap_or(u64::MAX);
        DEVICES.with(device, |memory| {
            let given = memory.malloc(bytes, stream.addr());
            if let Some(note) = memory.driver().note() {
                let _ = writeln!(io::stderr(), "sublet: device {device}: {note}");
            }
            given
        })
    });
    // An address of the device: the processor does not follow it.
    address.and_then(|address| usize::try_from(address).ok()).map_or(ptr::null_mut(), ptr::without_provenance_mut)
}

/// Frees what sublet_torch_malloc returned for the same device and stream: what CUDAPluggableAllocator takes as
/// `free_fn_name`. `size` is not used. NULL does nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_free(pointer: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    let _ = size;
    told("sublet_torch_free", Some(device), || {
        DEVICES.with(device, |memory| memory.free(pointer.addr() as u64, stream.addr()))
    });
}

/// Notes that work in `stream` uses the memory at `pointer`, which was allocated for another stream: what
/// CUDAPluggableAllocator takes by `set_record_stream_fn`. After the memory is freed, it is given out again only when
/// that work is done.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    told("sublet_torch_record_stream", None, || {
        DEVICES.any(|memory| memory.record_stream(pointer.addr() as u64, stream.addr()))
    });
}

/// The identifier of one of PyTorch's memory pools, a c10::cuda::MempoolId_t. That is a std::pair of 64-bit numbers,
/// and is passed as this struct is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_torch_pool {
    /// The first of the two numbers of the c10::cuda::MempoolId_t.
    pub first: u64,
    /// The second of the two numbers of the c10::cuda::MempoolId_t.
    pub second: u64,
}

impl sublet_torch_pool {
    const fn id(self) -> PoolId {
        (self.first, self.second)
    }
}

/// Notes that a CUDA graph is about to be captured whose memory belongs to this pool: what CUDAPluggableAllocator takes
/// by `set_begin_allocate_to_pool`. From then on, memory that is allocated in a stream while the stream is captured is
/// kept for the graph, even after it is freed. `filter`, a std::function, is not called: the driver is asked which
/// streams are captured.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_begin_allocate_to_pool(device: c_int, pool: sublet_torch_pool, filter: *const c_void) {
    let _ = filter;
    told("sublet_torch_begin_allocate_to_pool", Some(device), || {
        DEVICES.with(device, |memory| {
            memory.begin_pool(pool.id());
            Ok(())
        })
    });
}

/// Notes that the capture of a CUDA graph whose memory belongs to this pool has ended: what CUDAPluggableAllocator
/// takes by `set_end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_end_allocate_to_pool(device: c_int, pool: sublet_torch_pool) {
    told("sublet_torch_end_allocate_to_pool", Some(device), || {
        DEVICES.with(device, |memory| memory.end_pool(pool.id()))
    });
}

/// Notes that a CUDA graph whose memory belongs to this pool was destroyed: what CUDAPluggableAllocator takes by
/// `set_release_pool`. Once this was called as often for the pool as sublet_torch_begin_allocate_to_pool, the memory of
/// the pool goes back to the device, block by block as it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_release_pool(device: c_int, pool: sublet_torch_pool) {
    told("sublet_torch_release_pool", Some(device), || DEVICES.with(device, |memory| memory.release_pool(pool.id())));
}

/// Gives unused memory of all devices back to the driver, for torch.cuda.empty_cache: what CUDAPluggableAllocator takes
/// by `set_reset_fn`. A device is left as it is while one of its streams is captured, or between
/// sublet_torch_begin_allocate_to_pool and sublet_torch_end_allocate_to_pool.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_reset() {
    told("sublet_torch_reset", None, || DEVICES.all(Device::reset));
}

/// Limits the memory that the allocator holds on a device to `fraction` (from 0 to 1) of all memory of the device. From
/// now on no more memory is taken from the driver than the limit allows. Memory that is held already is kept, even if
/// it is above the limit. CUDAPluggableAllocator takes this function by `set_memory_fraction_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_memory_fraction(fraction: f64, device: c_int) {
    told("sublet_torch_memory_fraction", Some(device), || {
        DEVICES.with(device, |memory| memory.set_memory_fraction(fraction))
    });
}

/// Marks the end of an iteration of the training loop, and the begin of the next. Calling it is optional: until the
/// first call, iterations are found in the requests; after it, only marked ones are planned.
///
/// A failure that is not one of sublet_torch_stats tells why no new plan was made of the iteration that ends; requests
/// of later iterations are answered all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_torch_iteration(device: c_int, error: *mut sublet_error) -> sublet_status {
    boundary(error, |_| Ok(DEVICES.with(device, Device::iteration)?))
}

/// Writes to `statistics` the statistics of a device's memory so far.
///
/// SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or none that is new enough, or no such device.
/// SUBLET_STATUS_DRIVER: a call of the driver failed. SUBLET_STATUS_DEVICE_LOST: a call of the driver failed, and no
/// call will work again in this process. After these two, the field `got` of `error` is the CUresult.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_torch_stats(
    device: c_int,
    statistics: *mut sublet_torch_statistics,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        arguments.skip();
        // SAFETY: the header asks for a pointer that can be written.
        let to = unsafe { arguments.report(statistics)? };
        let done = DEVICES.with(device, Device::statistics)?;
        to.set(sublet_torch_statistics {
            struct_size: 0,
            reserved: 0,
            planned: done.planned,
            unplanned: done.unplanned,
            plans: done.plans,
            arena: done.arena,
            held: done.reserved,
            held_peak: done.reserved_peak,
        });
        Ok(())
    })
}

/// PyTorch cannot learn the reason of a failure, so standard error tells it.
fn told<T>(function: &str, device: Option<c_int>, body: impl FnOnce() -> Result<T>) -> Option<T> {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return Some(result),
        Ok(Err(error)) => error,
        // The panic has been told.
        Err(_) => return None,
    };
    let memory = match (&error, device) {
        (Error::OutOfMemory { .. }, Some(device)) => DEVICES.with(device, |memory| memory.driver().memory()).ok(),
        _ => None,
    };
    let free = memory.map(|m| format!("; {} of its {} bytes are free", m.free, m.total)).unwrap_or_default();
    let device = device.map(|device| format!(" device {device}:")).unwrap_or_default();
    // Where standard error is closed nobody can be told.
    let _ = writeln!(io::stderr(), "{function}:{device} {error}{free}");
    None
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Plan(error) => error.into(),
            Error::OutOfMemory { bytes, .. } => Self::new(S::OutOfMemory, 0, bytes, 0),
            Error::OutOfRange { address, .. } => Self::new(S::NotAllocated, 0, 0, address),
            Error::Misaligned { block, offset, alignment } => Self::new(S::PlanMisaligned, block, alignment, offset),
            Error::NotPersistent { block, bytes } => Self::new(S::NotPersistent, block, 0, bytes),
            Error::Interrupted | Error::NotTimedYet => Self::of(S::Interrupted),
            Error::HostIsDevice { bytes } => Self::new(S::HostIsDevice, 0, bytes, 0),
            Error::Storage { code, .. } => Self::new(S::Storage, 0, 0, code.unsigned_abs().into()),
            Error::NoDriver | Error::MissingSymbol { .. } | Error::NoDevice { .. } => Self::of(S::Unavailable),
            Error::Driver { code, .. } => Self::new(S::Driver, 0, 0, code.into()),
            Error::Lost { code, .. } => Self::new(S::DeviceLost, 0, 0, code.into()),
            Error::CannotGrow { bytes, room } => Self::new(S::CannotGrow, 0, bytes, room),
            _ => Self::of(S::Unnamed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_cannot_be_told_ends_nothing() {
        if Cuda::open(0).is_ok() {
            eprintln!("skipped: what is told without a GPU; there is one");
            return;
        }
        let test = "torch::tests::without_a_driver_there_is_no_memory_and_the_status_says_so";
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut told = std::process::Command::new(std::env::current_exe().unwrap());
        let done = told.args(["--exact", "--nocapture", test]).stderr(full).output().unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && output.contains("1 passed"), "{}: {output}", done.status);
    }

    #[test]
    fn without_a_driver_there_is_no_memory_and_the_status_says_so() {
        if Cuda::open(0).is_ok() {
            eprintln!("skipped: what is told without a GPU; there is one");
            return;
        }
        assert!(sublet_torch_malloc(10, 0, ptr::null_mut()).is_null());
        sublet_torch_free(ptr::null_mut(), 0, 0, ptr::null_mut());
        // SAFETY: zeros are statistics.
        let mut done: sublet_torch_statistics = unsafe { core::mem::zeroed() };
        (done.struct_size, done.planned) = (u32::try_from(size_of::<sublet_torch_statistics>()).unwrap(), 7);
        // SAFETY: a place for statistics, and no error.
        let status = unsafe { sublet_torch_stats(0, &raw mut done, ptr::null_mut()) };
        assert_eq!((status, done.planned), (S::Unavailable, 7));
        // SAFETY: no error.
        assert_eq!(unsafe { sublet_torch_iteration(0, ptr::null_mut()) }, S::Unavailable);
        // These functions return no status. No device was opened; they must not panic.
        sublet_torch_record_stream(ptr::dangling_mut(), ptr::null_mut());
        sublet_torch_reset();
        sublet_torch_memory_fraction(0.5, 0);
        // SAFETY: no place for statistics: that is told before anything else.
        let status = unsafe { sublet_torch_stats(0, ptr::null_mut(), ptr::null_mut()) };
        assert_eq!(status, S::NullPointer);
    }
}
