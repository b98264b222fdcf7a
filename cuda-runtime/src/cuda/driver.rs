//! The functions of the CUDA driver that the runtime calls, looked up at run time.
//!
//! They are looked up once. A driver that lacks a function which all supported drivers have is an error. If a driver
//! lacks a function that only newer ones have, the runtime does without it, or a call that needs it is an error.
//! `cudarc`'s own functions look up each symbol when it is first called, and panic if it is missing. They also return a
//! Rust enum, which has no value for an unknown error of a newer driver. Here a result is a number.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUhostFn, CUmemAccessDesc, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUstream,
};

pub(super) use crate::driver::check;
use crate::driver::{Code, check_init, functions};
use crate::error::{Error, Result};

functions! {
    Functions {
        init: "cuInit" (c_uint);
        device_count: "cuDeviceGetCount" (*mut c_int);
        device: "cuDeviceGet" (*mut CUdevice, c_int);
        attribute: "cuDeviceGetAttribute" (*mut c_int, c_uint, CUdevice);
        context_retain: "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
        context_current: "cuCtxGetCurrent" (*mut CUcontext);
        context_push: "cuCtxPushCurrent_v2" (CUcontext);
        context_pop: "cuCtxPopCurrent_v2" (*mut CUcontext);
        memory_info: "cuMemGetInfo_v2" (*mut usize, *mut usize);
        allocate: "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
        free: "cuMemFree_v2" (CUdeviceptr);
        host_allocate: "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
        host_free: "cuMemFreeHost" (*mut c_void);
        stream_create: "cuStreamCreate" (*mut CUstream, c_uint);
        stream_destroy: "cuStreamDestroy_v2" (CUstream);
        stream_wait: "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
        event_create: "cuEventCreate" (*mut CUevent, c_uint);
        event_destroy: "cuEventDestroy_v2" (CUevent);
        event_record: "cuEventRecord" (CUevent, CUstream);
        event_synchronize: "cuEventSynchronize" (CUevent);
        event_elapsed: "cuEventElapsedTime" (*mut f32, CUevent, CUevent);
        copy_out: "cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
        copy_in: "cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
        copy_within: "cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    }
}

functions! {
    /// From CUDA 10.0 on.
    HostCalls {
        launch: "cuLaunchHostFunc" (CUstream, CUhostFn, *mut c_void);
    }
}

functions! {
    /// From CUDA 10.2 on.
    VirtualMemory {
        granularity: "cuMemGetAllocationGranularity" (*mut usize, *const CUmemAllocationProp, c_uint);
        reserve: "cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
        release_addresses: "cuMemAddressFree" (CUdeviceptr, usize);
        create: "cuMemCreate" (*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
        release: "cuMemRelease" (CUmemGenericAllocationHandle);
        map: "cuMemMap" (CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
        unmap: "cuMemUnmap" (CUdeviceptr, usize);
        set_access: "cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    }
}

functions! {
    /// From CUDA 11.0 on.
    Release {
        context_release: "cuDevicePrimaryCtxRelease_v2" (CUdevice);
    }
}

/// A group is `None` if this driver lacks one of its functions.
pub(super) struct Driver {
    pub(super) functions: Functions,
    pub(super) host_calls: Option<HostCalls>,
    pub(super) virtual_memory: Option<VirtualMemory>,
    pub(super) release: Option<Release>,
}

impl Driver {
    pub(super) fn get(ordinal: u32) -> Result<&'static Self> {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let driver = Self::load(ordinal)?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    fn load(ordinal: u32) -> Result<Self> {
        let driver = Self {
            functions: Functions::load()?,
            host_calls: HostCalls::load().ok(),
            virtual_memory: VirtualMemory::load().ok(),
            release: Release::load().ok(),
        };
        // SAFETY: it takes no pointer.
        check_init(unsafe { (driver.functions.init)(0) }, ordinal)?;
        Ok(driver)
    }
}

/// 2 says that memory is used up.
pub(super) fn check_memory(call: &'static str, code: Code, memory: crate::error::Memory, bytes: u64) -> Result<()> {
    if code == 2 { Err(Error::OutOfMemory { memory, bytes }) } else { check(call, code) }
}
