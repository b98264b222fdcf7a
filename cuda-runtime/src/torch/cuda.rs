//! The CUDA driver of one device, as the allocator for PyTorch uses it: allocations take effect in the order of a
//! stream's work, and come from a memory pool of the driver's that nothing else uses.
//!
//! Where the device has no such pools (old Jetsons), allocations are plain (`cuMemAlloc`), and a free first waits until
//! its stream's work is done.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUmemAllocationHandleType, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool, CUstream,
};

use super::driver::{Driver, Stream};
use crate::driver::{self, check, check_init};
use crate::{Error, Memory, MemoryInfo, Result};

driver::functions! {
    Functions {
        init: "cuInit" (c_uint);
        count: "cuDeviceGetCount" (*mut c_int);
        device: "cuDeviceGet" (*mut CUdevice, c_int);
        attribute: "cuDeviceGetAttribute" (*mut c_int, CUdevice_attribute, CUdevice);
        retain: "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
        push: "cuCtxPushCurrent_v2" (CUcontext);
        pop: "cuCtxPopCurrent_v2" (*mut CUcontext);
        synchronize: "cuStreamSynchronize" (CUstream);
        synchronize_all: "cuCtxSynchronize" ();
        event_create: "cuEventCreate" (*mut CUevent, c_uint);
        event_record: "cuEventRecord" (CUevent, CUstream);
        event_destroy: "cuEventDestroy_v2" (CUevent);
        stream_wait: "cuStreamWaitEvent" (CUstream, CUevent, c_uint);
        memory: "cuMemGetInfo_v2" (*mut usize, *mut usize);
        alloc: "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
        free: "cuMemFree_v2" (CUdeviceptr);
    }
}

driver::functions! {
    /// From CUDA 11.2 on.
    PoolFunctions {
        create: "cuMemPoolCreate" (*mut CUmemoryPool, *const CUmemPoolProps);
        set: "cuMemPoolSetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut c_void);
        get: "cuMemPoolGetAttribute" (CUmemoryPool, CUmemPool_attribute, *mut c_void);
        trim: "cuMemPoolTrimTo" (CUmemoryPool, usize);
        alloc: "cuMemAllocFromPoolAsync" (*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
        free: "cuMemFreeAsync" (CUdeviceptr, CUstream);
    }
}

driver::functions! {
    /// From CUDA 10.1 on; with an older driver, no stream counts as captured.
    Capture {
        is_capturing: "cuStreamIsCapturing" (CUstream, *mut c_uint);
        exchange_mode: "cuThreadExchangeStreamCaptureMode" (*mut c_uint);
    }
}

// Numbers of the driver's documentation.
const CAPTURE_NONE: c_uint = 0;
const CAPTURE_RELAXED: c_uint = 2;
/// Returned for the default stream while a stream in order with it is captured.
const CAPTURE_IMPLICIT: driver::Code = 906;
const EVENT_WITHOUT_TIME: c_uint = 2;

struct Pool {
    functions: PoolFunctions,
    pool: CUmemoryPool,
}

/// A device of the CUDA driver, used in its primary context, which PyTorch uses too. The context is held until the
/// process ends.
pub struct Cuda {
    functions: Functions,
    context: CUcontext,
    pool: Option<Pool>,
    capture: Option<Capture>,
    /// By `cuMemAlloc`: bytes by address, their sum, and the highest sum so far.
    plain: (std::collections::HashMap<u64, u64>, u64, u64),
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Cuda {}

const fn stream_of(stream: Stream) -> CUstream {
    ptr::without_provenance_mut(stream)
}

impl Cuda {
    /// Opens the device of this number, counted from 0.
    ///
    /// # Errors
    /// [`Error::NoDriver`] or [`Error::MissingSymbol`] if there is no driver, or one that lacks a function;
    /// [`Error::NoDevice`] if there is no such device; [`Error::Driver`] or [`Error::Lost`] if a call of the driver
    /// fails.
    pub fn open(device: i32) -> Result<Self> {
        let functions = Functions::load()?;
        let (mut count, mut handle, mut pools, mut context) = (0, 0, 0, ptr::null_mut());
        // SAFETY: this call, and those below, write what they say to the places that they are given.
        check_init(unsafe { (functions.init)(0) }, device.cast_unsigned())?;
        // SAFETY: as above.
        check("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) })?;
        if !(0..count).contains(&device) {
            let (ordinal, count) = (device.cast_unsigned(), count.cast_unsigned());
            return Err(Error::NoDevice { ordinal, count });
        }
        // SAFETY: as above.
        check("cuDeviceGet", unsafe { (functions.device)(&raw mut handle, device) })?;
        // SAFETY: as above.
        check("cuDevicePrimaryCtxRetain", unsafe { (functions.retain)(&raw mut context, handle) })?;
        let supported = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        // SAFETY: as above. A driver that does not know the question has no pools.
        let asked = check("cuDeviceGetAttribute", unsafe { (functions.attribute)(&raw mut pools, supported, handle) });
        let plain = (std::collections::HashMap::new(), 0, 0);
        let mut opened = Self { functions, context, pool: None, capture: Capture::load().ok(), plain };
        if asked.is_ok() && pools != 0 {
            opened.pool = Some(opened.within(|_| Pool::new(device))?);
        }
        Ok(opened)
    }

    /// Allows this thread calls that a capture elsewhere would forbid.
    fn within<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.in_context(|this| {
            let mut mode = CAPTURE_RELAXED;
            this.exchange_mode(&mut mode)?;
            let result = body(this);
            // Restores the mode; if that fails, the next call fails too.
            let _ = this.exchange_mode(&mut mode);
            result
        })
    }

    /// `mode` receives the setting before.
    fn exchange_mode(&self, mode: &mut c_uint) -> Result<()> {
        let Some(Capture { exchange_mode, .. }) = self.capture else { return Ok(()) };
        // SAFETY: a place for a number.
        check("cuThreadExchangeStreamCaptureMode", unsafe { exchange_mode(mode) })
    }

    fn in_context<T>(&mut self, body: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // SAFETY: the context is retained.
        check("cuCtxPushCurrent", unsafe { (self.functions.push)(self.context) })?;
        let result = body(self);
        let mut popped = ptr::null_mut();
        // SAFETY: what was pushed above.
        let _ = unsafe { (self.functions.pop)(&raw mut popped) };
        result
    }
}

impl Cuda {
    fn note(&mut self, address: u64, bytes: u64) {
        let (each, all, most) = &mut self.plain;
        each.insert(address, bytes);
        *all += bytes;
        *most = (*all).max(*most);
    }
}

impl Pool {
    /// It keeps freed memory until [`trim`](Driver::trim).
    fn new(device: i32) -> Result<Self> {
        let functions = PoolFunctions::load()?;
        // SAFETY: a struct of numbers, enumerations that have a variant 0, and a pointer that may be NULL.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device };
        let mut pool = ptr::null_mut();
        // SAFETY: the properties are a device's, the result is a place for a handle.
        check("cuMemPoolCreate", unsafe { (functions.create)(&raw mut pool, &raw const properties) })?;
        let created = Self { functions, pool };
        let mut kept = u64::MAX;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: this attribute is a 64-bit number.
        let set = unsafe { (functions.set)(pool, threshold, (&raw mut kept).cast()) };
        check("cuMemPoolSetAttribute", set)?;
        Ok(created)
    }

    fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        let mut value = 0_u64;
        // SAFETY: the attributes that are asked for here are 64-bit numbers.
        let got = unsafe { (self.functions.get)(self.pool, attribute, (&raw mut value).cast()) };
        check("cuMemPoolGetAttribute", got)?;
        Ok(value)
    }
}

impl Driver for Cuda {
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        let none = Error::OutOfMemory { memory: Memory::Device, bytes };
        let len = usize::try_from(bytes).map_err(|_| none.clone())?;
        let mut address = 0;
        self.within(|this| {
            let given = match &this.pool {
                Some(Pool { functions, pool }) => {
                    // SAFETY: the pool is there; the stream is the caller's word, and of this context.
                    let given = unsafe { (functions.alloc)(&raw mut address, len, *pool, stream_of(stream)) };
                    check("cuMemAllocFromPoolAsync", given)
                }
                // SAFETY: the context is current.
                None => check("cuMemAlloc", unsafe { (this.functions.alloc)(&raw mut address, len) }),
            };
            given.map_err(|error| if matches!(error, Error::Driver { code: 2, .. }) { none } else { error })?;
            if this.pool.is_none() {
                this.note(address, bytes);
            }
            Ok(address)
        })
    }

    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64> {
        let none = Error::OutOfMemory { memory: Memory::Device, bytes };
        let len = usize::try_from(bytes).map_err(|_| none.clone())?;
        let mut address = 0;
        self.within(|this| {
            // SAFETY: the context is current.
            let given = check("cuMemAlloc", unsafe { (this.functions.alloc)(&raw mut address, len) });
            given.map_err(|error| if matches!(error, Error::Driver { code: 2, .. }) { none } else { error })?;
            this.note(address, bytes);
            Ok(address)
        })
    }

    fn free_unordered(&mut self, address: u64) -> Result<()> {
        self.within(|this| {
            // SAFETY: the caller gives back what `alloc_unordered` gave, once.
            check("cuMemFree", unsafe { (this.functions.free)(address) })?;
            this.plain.1 -= this.plain.0.remove(&address).unwrap_or(0);
            Ok(())
        })
    }

    fn is_capturing(&mut self, stream: Stream) -> Result<bool> {
        let Some(Capture { is_capturing, .. }) = self.capture else { return Ok(false) };
        self.in_context(|_| {
            let mut state = CAPTURE_NONE;
            // SAFETY: the stream is the caller's word; a place for a number.
            match unsafe { is_capturing(stream_of(stream), &raw mut state) } {
                CAPTURE_IMPLICIT => Ok(true),
                code => check("cuStreamIsCapturing", code).map(|()| state != CAPTURE_NONE),
            }
        })
    }

    fn follow(&mut self, stream: Stream, other: Stream) -> Result<()> {
        self.within(|this| {
            let Functions { event_create, event_record, event_destroy, stream_wait, .. } = this.functions;
            let mut event = ptr::null_mut();
            // SAFETY: a place for a handle.
            check("cuEventCreate", unsafe { event_create(&raw mut event, EVENT_WITHOUT_TIME) })?;
            // SAFETY: the event lives, the streams are the caller's word.
            let recorded = check("cuEventRecord", unsafe { event_record(event, stream_of(other)) });
            // SAFETY: as above.
            let waits = || check("cuStreamWaitEvent", unsafe { stream_wait(stream_of(stream), event, 0) });
            let waited = recorded.and_then(|()| waits());
            // SAFETY: it was made above; who waits for it still does.
            waited.and(check("cuEventDestroy", unsafe { event_destroy(event) }))
        })
    }

    fn synchronize_all(&mut self) -> Result<()> {
        // SAFETY: the context is current.
        self.within(|this| check("cuCtxSynchronize", unsafe { (this.functions.synchronize_all)() }))
    }

    fn free(&mut self, address: u64, stream: Stream) -> Result<()> {
        self.within(|this| {
            let Some(Pool { functions, .. }) = &this.pool else {
                // SAFETY: the stream is the caller's word.
                check("cuStreamSynchronize", unsafe { (this.functions.synchronize)(stream_of(stream)) })?;
                // SAFETY: the caller gives back what `alloc` gave, once.
                check("cuMemFree", unsafe { (this.functions.free)(address) })?;
                this.plain.1 -= this.plain.0.remove(&address).unwrap_or(0);
                return Ok(());
            };
            // SAFETY: the caller gives back what `alloc` gave, once; the driver orders it after the stream's work.
            check("cuMemFreeAsync", unsafe { (functions.free)(address, stream_of(stream)) })
        })
    }

    fn synchronize(&mut self, stream: Stream) -> Result<()> {
        // SAFETY: the stream is the caller's word.
        self.within(|this| check("cuStreamSynchronize", unsafe { (this.functions.synchronize)(stream_of(stream)) }))
    }

    fn trim(&mut self) -> Result<()> {
        self.within(|this| match &this.pool {
            // SAFETY: the pool is there.
            Some(Pool { functions, pool }) => check("cuMemPoolTrimTo", unsafe { (functions.trim)(*pool, 0) }),
            None => Ok(()),
        })
    }

    fn reserved(&mut self) -> Result<(u64, u64)> {
        self.within(|this| {
            let (mut now, mut most) = (this.plain.1, this.plain.2);
            if let Some(pool) = &this.pool {
                now += pool.attribute(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
                most += pool.attribute(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
            }
            Ok((now, most))
        })
    }

    fn memory(&mut self) -> Result<MemoryInfo> {
        self.within(|this| {
            let (mut free, mut total) = (0, 0);
            // SAFETY: two places for numbers.
            check("cuMemGetInfo", unsafe { (this.functions.memory)(&raw mut free, &raw mut total) })?;
            Ok(MemoryInfo { free: free as u64, total: total as u64 })
        })
    }
}
