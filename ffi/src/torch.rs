//! Memory for PyTorch: what `torch.cuda.memory.CUDAPluggableAllocator` calls.
//!
//! The two functions that it calls know nothing but a device's number, so that this file, alone in the library, has a
//! state of its own: the devices, which last as long as the process.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sublet_cuda::torch::{Cuda, Device, Devices, Driver};
use sublet_cuda::{Error, Result};

use crate::arguments::plain;
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};

static DEVICES: Devices<Cuda> = Devices::new(Cuda::open);

/// What the memory of a device has done, in bytes where nothing else is said.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_torch_statistics {
    /// Requests that got their address from a plan.
    pub planned: u64,
    /// All others.
    pub unplanned: u64,
    /// Plans that were made.
    pub plans: u64,
    /// The allocation behind the plan in use; 0 without one.
    pub arena: u64,
    /// What is held of the device's memory now, live or not.
    pub reserved: u64,
    /// The most that was held so far.
    pub reserved_peak: u64,
}

plain!(sublet_torch_statistics);

/// Memory of a device for work in this stream: what CUDAPluggableAllocator takes as `alloc_fn_name`.
///
/// Iterations are found in the requests of the device's first stream; from then on a request of it is answered from
/// a plan. Those of other streams, and what the plan does not expect, are allocations of the driver, in the stream's
/// order. NULL where `size` is 0, and, with a line on the standard error, where the device has no such memory.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let address = told("sublet_torch_malloc", device, || {
        let bytes = u64::try_from(size).unwrap_or(u64::MAX);
        DEVICES.with(device, |memory| memory.malloc(bytes, stream.addr()))
    });
    // An address of the device: the processor does not follow it.
    address.and_then(|address| usize::try_from(address).ok()).map_or(ptr::null_mut(), ptr::without_provenance_mut)
}

/// Takes back what sublet_torch_malloc gave for the same device and stream: what CUDAPluggableAllocator takes as
/// `free_fn_name`. NULL is nothing.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_torch_free(pointer: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    let _ = size;
    told("sublet_torch_free", device, || {
        DEVICES.with(device, |memory| memory.free(pointer.addr() as u64, stream.addr()))
    });
}

/// An iteration of the training loop ends, and the next begins. It may be called or not: from the first call on
/// iterations are told, and no longer looked for.
///
/// A failure tells why the iteration that ends has no plan; the next ones are served all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_torch_iteration(device: c_int, error: *mut sublet_error) -> sublet_status {
    boundary(error, |_| Ok(DEVICES.with(device, Device::iteration)?))
}

/// What a device's memory has done so far.
///
/// SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or none that is new enough, or no such device;
/// SUBLET_STATUS_DRIVER and, where no call will work again, SUBLET_STATUS_DEVICE_LOST, with the driver's error, a CUresult,
/// in `got`: it has failed.
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
        let to = unsafe { arguments.result(statistics)? };
        let done = DEVICES.with(device, Device::statistics)?;
        to.set(sublet_torch_statistics {
            planned: done.planned,
            unplanned: done.unplanned,
            plans: done.plans,
            arena: done.arena,
            reserved: done.reserved,
            reserved_peak: done.reserved_peak,
        });
        Ok(())
    })
}

/// The result; where there is none, PyTorch has no way to be told why, and would go on with NULL: a line says it.
fn told<T>(function: &str, device: c_int, body: impl FnOnce() -> Result<T>) -> Option<T> {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => return Some(result),
        Ok(Err(error)) => error,
        // The panic has been told.
        Err(_) => return None,
    };
    let memory = match error {
        Error::OutOfMemory { .. } => DEVICES.with(device, |memory| memory.driver().memory()).ok(),
        _ => None,
    };
    let free = memory.map(|m| format!("; {} of its {} bytes are free", m.free, m.total)).unwrap_or_default();
    eprintln!("{function}: device {device}: {error}{free}");
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
    fn without_a_driver_there_is_no_memory_and_the_status_says_so() {
        if Cuda::open(0).is_ok() {
            eprintln!("skipped: what is told without a GPU; there is one");
            return;
        }
        assert!(sublet_torch_malloc(10, 0, ptr::null_mut()).is_null());
        sublet_torch_free(ptr::null_mut(), 0, 0, ptr::null_mut());
        let mut done =
            sublet_torch_statistics { planned: 7, unplanned: 0, plans: 0, arena: 0, reserved: 0, reserved_peak: 0 };
        // SAFETY: a place for statistics, and no error.
        let status = unsafe { sublet_torch_stats(0, &raw mut done, ptr::null_mut()) };
        assert_eq!((status, done.planned), (S::Unavailable, 7));
        // SAFETY: no error.
        assert_eq!(unsafe { sublet_torch_iteration(0, ptr::null_mut()) }, S::Unavailable);
        // SAFETY: no place for statistics: that is told before anything else.
        let status = unsafe { sublet_torch_stats(0, ptr::null_mut(), ptr::null_mut()) };
        assert_eq!(status, S::NullPointer);
    }
}
