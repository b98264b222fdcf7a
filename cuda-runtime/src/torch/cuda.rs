//! The CUDA driver of one device, as the allocator for PyTorch uses it: allocations take effect in the order of a
//! stream's work, and come from a memory pool of the driver's that nothing else uses.
//!
//! Where there is no such pool, or it refuses what the device still has (Jetsons), allocations are plain (`cuMemAlloc`):
//! a free first waits until its stream's work is done. Other GPUs that can reach the device may use the pool's memory too,
//! as they may use plain memory once PyTorch has asked for that.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUstream,
};

use super::driver::{Driver, Stream, handle};
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
        destroy: "cuMemPoolDestroy" (CUmemoryPool);
        set_access: "cuMemPoolSetAccess" (CUmemoryPool, *const CUmemAccessDesc, usize);
        can_access: "cuDeviceCanAccessPeer" (*mut c_int, CUdevice, CUdevice);
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
/// Returned for a stream that is gone.
const INVALID_HANDLE: driver::Code = 400;

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
    note: Option<String>,
    /// The pool has refused once what the device had.
    has_refused: bool,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Cuda {}

const fn location(ordinal: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal }
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
        let capture = Capture::load().ok();
        let mut opened = Self { functions, context, pool: None, capture, plain, note: None, has_refused: false };
        let made = match asked {
            Ok(()) if pools != 0 => opened.within(|this| Pool::new(&this.functions, device, count)).map(Some),
            asked => asked.map(|()| None),
        };
        let why = match made {
            Ok(Some(pool)) => {
                opened.pool = Some(pool);
                return Ok(opened);
            }
            Ok(None) => "the device has no memory pools".to_owned(),
            Err(lost @ Error::Lost { .. }) => return Err(lost),
            Err(refused) => format!("no memory pool can be made: {refused}"),
        };
        opened.note = Some(format!("memory comes from cuMemAlloc, and a free waits for its stream, since {why}"));
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
    fn alloc_plain(&mut self, bytes: u64) -> Result<u64> {
        let none = Error::OutOfMemory { memory: Memory::Device, bytes };
        let len = usize::try_from(bytes).map_err(|_| none.clone())?;
        let mut address = 0;
        // SAFETY: the context is current.
        let given = check("cuMemAlloc", unsafe { (self.functions.alloc)(&raw mut address, len) });
        given.map_err(|error| if matches!(error, Error::Driver { code: 2, .. }) { none } else { error })?;
        let (each, all, most) = &mut self.plain;
        each.insert(address, bytes);
        *all += bytes;
        *most = (*all).max(*most);
        Ok(address)
    }

    fn free_plain(&mut self, address: u64) -> Result<()> {
        // SAFETY: the caller gives back what `alloc_plain` gave, once.
        check("cuMemFree", unsafe { (self.functions.free)(address) })?;
        self.plain.1 -= self.plain.0.remove(&address).unwrap_or(0);
        Ok(())
    }

    /// Whether the call was made; otherwise the work of all streams is done.
    fn on(&self, name: &'static str, stream: Stream, call: impl FnOnce(CUstream) -> driver::Code) -> Result<bool> {
        if let Some(handle) = handle(stream) {
            match check(name, call(ptr::without_provenance_mut(handle))) {
                Err(Error::Driver { code: INVALID_HANDLE, .. }) => {}
                made => return made.map(|()| true),
            }
        }
        // SAFETY: the context is current.
        check("cuCtxSynchronize", unsafe { (self.functions.synchronize_all)() }).map(|()| false)
    }
}

impl Pool {
    /// It keeps freed memory until [`trim`](Driver::trim).
    fn new(driver: &Functions, device: i32, devices: i32) -> Result<Self> {
        let functions = PoolFunctions::load()?;
        // SAFETY: a struct of numbers, enumerations that have a variant 0, and a pointer that may be NULL.
        let mut properties: CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.handleTypes = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE;
        properties.location = location(device);
        let mut pool = ptr::null_mut();
        // SAFETY: the properties are a device's, the result is a place for a handle.
        check("cuMemPoolCreate", unsafe { (functions.create)(&raw mut pool, &raw const properties) })?;
        let created = Self { functions, pool };
        let mut kept = u64::MAX;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: this attribute is a 64-bit number.
        let set = unsafe { (functions.set)(pool, threshold, (&raw mut kept).cast()) };
        check("cuMemPoolSetAttribute", set)?;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let peers = created.peers(driver, device, devices)?;
        let peers: Vec<_> = peers.into_iter().map(|peer| CUmemAccessDesc { location: location(peer), flags }).collect();
        if !peers.is_empty() {
            // SAFETY: so many descriptions, which live through the call.
            check("cuMemPoolSetAccess", unsafe { (functions.set_access)(pool, peers.as_ptr(), peers.len()) })?;
        }
        Ok(created)
    }

    /// The other devices that can reach the memory of this one.
    fn peers(&self, driver: &Functions, device: i32, devices: i32) -> Result<Vec<i32>> {
        let handle = |ordinal| {
            let mut handle = 0;
            // SAFETY: a place for a number.
            check("cuDeviceGet", unsafe { (driver.device)(&raw mut handle, ordinal) }).map(|()| handle)
        };
        let own = handle(device)?;
        let mut peers = Vec::new();
        for peer in (0..devices).filter(|&peer| peer != device) {
            let mut can = 0;
            let peer_handle = handle(peer)?;
            // SAFETY: as above.
            let asked = unsafe { (self.functions.can_access)(&raw mut can, peer_handle, own) };
            check("cuDeviceCanAccessPeer", asked)?;
            if can != 0 {
                peers.push(peer);
            }
        }
        Ok(peers)
    }

    fn attribute(&self, attribute: CUmemPool_attribute) -> Result<u64> {
        let mut value = 0_u64;
        // SAFETY: the attributes that are asked for here are 64-bit numbers.
        let got = unsafe { (self.functions.get)(self.pool, attribute, (&raw mut value).cast()) };
        check("cuMemPoolGetAttribute", got)?;
        Ok(value)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: it was made here, and is destroyed once; what was allocated from it stays until it is freed.
        let _ = unsafe { (self.functions.destroy)(self.pool) };
    }
}

impl Driver for Cuda {
    fn alloc(&mut self, bytes: u64, stream: Stream) -> Result<u64> {
        self.within(|this| {
            let Some(Pool { functions, pool }) = &this.pool else { return this.alloc_plain(bytes) };
            let len = usize::try_from(bytes).unwrap_or(usize::MAX);
            let stream = ptr::without_provenance_mut(handle(stream).unwrap_or(0));
            let mut address = 0;
            // SAFETY: the pool is there; the stream is the caller's word, and of this context.
            let given = unsafe { (functions.alloc)(&raw mut address, len, *pool, stream) };
            match check("cuMemAllocFromPoolAsync", given) {
                Ok(()) => Ok(address),
                Err(lost @ Error::Lost { .. }) => Err(lost),
                Err(refused) => {
                    let address = this.alloc_plain(bytes)?;
                    if !std::mem::replace(&mut this.has_refused, true) {
                        this.note = Some(format!(
                            "the memory pool has refused {bytes} bytes ({refused}), which cuMemAlloc had: what comes from \
                             there is freed when its stream's work is done"
                        ));
                    }
                    Ok(address)
                }
            }
        })
    }

    fn alloc_unordered(&mut self, bytes: u64) -> Result<u64> {
        self.within(|this| this.alloc_plain(bytes))
    }

    fn free_unordered(&mut self, address: u64) -> Result<()> {
        self.within(|this| this.free_plain(address))
    }

    fn is_capturing(&mut self, stream: Stream) -> Result<Option<bool>> {
        let Some(stream) = handle(stream) else { return Ok(None) };
        let Some(Capture { is_capturing, .. }) = self.capture else { return Ok(Some(false)) };
        self.in_context(|_| {
            let mut state = CAPTURE_NONE;
            // SAFETY: the stream is the caller's word; a place for a number.
            match unsafe { is_capturing(ptr::without_provenance_mut(stream), &raw mut state) } {
                CAPTURE_IMPLICIT => Ok(Some(true)),
                INVALID_HANDLE => Ok(None),
                code => check("cuStreamIsCapturing", code).map(|()| Some(state != CAPTURE_NONE)),
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
            let recorded = this.on("cuEventRecord", other, |other| unsafe { event_record(event, other) });
            // SAFETY: as above.
            let waits = || this.on("cuStreamWaitEvent", stream, |stream| unsafe { stream_wait(stream, event, 0) });
            let waited = recorded.and_then(|recorded| if recorded { waits().map(drop) } else { Ok(()) });
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
            let pool = this.pool.as_ref().filter(|_| !this.plain.0.contains_key(&address));
            let Some(Pool { functions, .. }) = pool else {
                // SAFETY: the stream is the caller's word.
                this.on("cuStreamSynchronize", stream, |stream| unsafe { (this.functions.synchronize)(stream) })?;
                return this.free_plain(address);
            };
            // SAFETY: the caller gives back what `alloc` gave, once; the driver orders it after the stream's work.
            let free = |stream| unsafe { (functions.free)(address, stream) };
            if !this.on("cuMemFreeAsync", stream, free)? {
                check("cuMemFreeAsync", free(ptr::null_mut()))?;
            }
            Ok(())
        })
    }

    fn synchronize(&mut self, stream: Stream) -> Result<()> {
        self.within(|this| {
            // SAFETY: the stream is the caller's word.
            this.on("cuStreamSynchronize", stream, |stream| unsafe { (this.functions.synchronize)(stream) }).map(drop)
        })
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

    fn note(&mut self) -> Option<String> {
        self.note.take()
    }
}
