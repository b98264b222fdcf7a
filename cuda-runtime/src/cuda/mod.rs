//! An NVIDIA GPU. The driver's functions are looked up at run time: a program with this backend starts without a
//! driver, and gets an error when it opens a GPU.
//!
//! Streams do not wait for the default stream, events have no times unless asked for, and nothing here waits for the
//! device but [`synchronize`](Backend::synchronize) and freeing memory. Arenas are reserved addresses to which memory
//! is mapped piece by piece (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`), so that they grow in place. Where the
//! device or the driver cannot do that, they are plain allocations that do not grow. The context is the device's
//! primary one, which the CUDA runtime and frameworks use too. It is made current for each call; afterwards the
//! thread's context from before is current again.

mod calls;
mod driver;

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUevent, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUstream,
};

use crate::backend::{Attributes, Backend, Call, MemoryInfo, PinnedBytes};
use crate::error::{Error, Memory, Result};
use crate::integrated;
use driver::{Driver, VirtualMemory, check, check_memory};

// Numbers of the driver's documentation, in the types that the functions take.
const ATTRIBUTE_INTEGRATED: u32 = 18;
const ATTRIBUTE_VIRTUAL_MEMORY: u32 = 102;
const ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY: u32 = 110;
const STREAM_NON_BLOCKING: u32 = 1;
const EVENT_WITH_TIME: u32 = 0;
const EVENT_WITHOUT_TIME: u32 = 2;
const HOST_PORTABLE: u32 = 1;
const GRANULARITY_RECOMMENDED: u32 = 1;

/// Host calls are kept under this number, to be dropped with the backend.
static BACKENDS: AtomicU64 = AtomicU64::new(0);

struct Shared {
    driver: &'static Driver,
    device: CUdevice,
    context: CUcontext,
    attributes: Attributes,
    virtual_memory: Option<(VirtualMemory, u64)>,
    /// Other devices can read and write arenas directly (`GPUDirect` RDMA).
    rdma: bool,
    number: u64,
}

// SAFETY: the driver's functions may be called from any thread; the context is made current for each call.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// A GPU, to run programs on. A clone is a second handle of the same GPU.
#[derive(Clone)]
pub struct CudaBackend {
    shared: Arc<Shared>,
}

/// A stream on a GPU: a queue of work that runs in order. Dropping this destroys the stream, unless it was
/// [borrowed](CudaBackend::borrow_stream).
pub struct Stream {
    shared: Arc<Shared>,
    raw: CUstream,
    owned: bool,
}

/// An event on a GPU: a point in the work of a stream, which other streams and the host can wait for.
pub struct Event {
    shared: Arc<Shared>,
    raw: CUevent,
    timed: bool,
}

/// An arena on a GPU: the range of device memory in which blocks are placed.
pub struct Arena {
    shared: Arc<Shared>,
    address: u64,
    size: u64,
    kind: ArenaKind,
}

enum ArenaKind {
    Plain,
    /// `room` is bytes of reserved addresses; a piece is its address and bytes.
    Virtual {
        memory: VirtualMemory,
        room: u64,
        pieces: Vec<(u64, u64)>,
    },
}

/// Pinned memory: memory of the host that the system neither moves nor writes to disk, so that the GPU can copy from it
/// and to it directly.
pub struct Pinned {
    shared: Arc<Shared>,
    start: *mut c_void,
    len: usize,
}

// SAFETY: handles of the driver may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}
// SAFETY: as above.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}
// SAFETY: it is an address; who reads or writes there says why nobody else does at the same time.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl CudaBackend {
    /// Opens the GPU of this number, counted from 0.
    ///
    /// # Errors
    /// [`Error::NoDriver`], [`Error::MissingSymbol`], [`Error::NoDevice`], or another error of the driver.
    pub fn new(ordinal: u32) -> Result<Self> {
        let driver = Driver::get(ordinal)?;
        let functions = &driver.functions;
        let mut count: c_int = 0;
        // SAFETY: the pointer is to a number that is written.
        check("cuDeviceGetCount", unsafe { (functions.device_count)(&raw mut count) })?;
        let count = u32::try_from(count).unwrap_or(0);
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or(Error::NoDevice { ordinal, count })?;
        let mut device: CUdevice = 0;
        // SAFETY: as above.
        check("cuDeviceGet", unsafe { (functions.device)(&raw mut device, number) })?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: as above.
        check("cuDevicePrimaryCtxRetain", unsafe { (functions.context_retain)(&raw mut context, device) })?;
        let mut shared = Shared {
            driver,
            device,
            context,
            attributes: Attributes { integrated: false, grows_in_place: false },
            virtual_memory: None,
            rdma: false,
            number: BACKENDS.fetch_add(1, Ordering::Relaxed),
        };
        // From here on a failure releases the context.
        shared.attributes.integrated = shared.attribute(ATTRIBUTE_INTEGRATED)? != 0;
        if let Some(memory) = driver.virtual_memory
            && shared.attribute(ATTRIBUTE_VIRTUAL_MEMORY).is_ok_and(|has| has != 0)
        {
            shared.rdma = shared.attribute(ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY).is_ok_and(|has| has != 0);
            shared.virtual_memory = shared.granularity(&memory)?.map(|granularity| (memory, granularity));
        }
        shared.attributes.grows_in_place = shared.virtual_memory.is_some();
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Calls `work` with the GPU's primary context current on this thread.
    ///
    /// # Errors
    /// The error of the driver if the context cannot be made current.
    pub fn in_context<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let _current = self.shared.current()?;
        Ok(work())
    }

    /// Makes a handle of a stream that the caller owns, such as a framework's, so that a runtime can launch operators
    /// there. Dropping the handle does not destroy the stream. NULL is the legacy default stream, which PyTorch uses by
    /// default; `CU_STREAM_LEGACY` (0x1) is the same stream.
    ///
    /// # Safety
    /// `stream` is a stream of this device's primary context, and lives as long as the handle that is returned.
    #[must_use]
    pub unsafe fn borrow_stream(&self, stream: CUstream) -> Stream {
        Stream { shared: self.shared.clone(), raw: stream, owned: false }
    }
}

impl Stream {
    /// The driver's handle of the stream, to launch kernels on.
    #[must_use]
    pub const fn raw(&self) -> CUstream {
        self.raw
    }
}

/// On drop, the context from before is current again.
struct Current<'a> {
    shared: &'a Shared,
    pushed: bool,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut ours: CUcontext = std::ptr::null_mut();
            // SAFETY: the pointer is to a value that is written.
            let _ = unsafe { (self.shared.driver.functions.context_pop)(&raw mut ours) };
        }
    }
}

impl Shared {
    fn current(&self) -> Result<Current<'_>> {
        let functions = &self.driver.functions;
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that is written.
        check("cuCtxGetCurrent", unsafe { (functions.context_current)(&raw mut current) })?;
        let pushed = current != self.context;
        if pushed {
            // SAFETY: the context is retained as long as this lives.
            check("cuCtxPushCurrent", unsafe { (functions.context_push)(self.context) })?;
        }
        Ok(Current { shared: self, pushed })
    }

    fn attribute(&self, attribute: u32) -> Result<c_int> {
        let mut value = 0;
        // SAFETY: the pointer is to a number that is written.
        let code = unsafe { (self.driver.functions.attribute)(&raw mut value, attribute, self.device) };
        check("cuDeviceGetAttribute", code).map(|()| value)
    }

    /// In bytes. `None` if the driver does not say: then arenas cannot grow.
    fn granularity(&self, memory: &VirtualMemory) -> Result<Option<u64>> {
        let _current = self.current()?;
        let (mut granularity, properties) = (0, self.properties());
        // SAFETY: both pointers are to values that live through the call.
        let code =
            unsafe { (memory.granularity)(&raw mut granularity, &raw const properties, GRANULARITY_RECOMMENDED) };
        Ok(Some(granularity as u64).filter(|&granularity| code == 0 && granularity > 0))
    }

    const fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }

    fn properties(&self) -> CUmemAllocationProp {
        // SAFETY: zero is a value of every field: numbers, a pointer, and enums whose first value is 0.
        let mut properties: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = self.location();
        properties.allocFlags.gpuDirectRDMACapable = u8::from(self.rdma);
        properties
    }

    fn back(&self, memory: &VirtualMemory, at: u64, bytes: u64) -> Result<()> {
        let size = size(bytes, Memory::Device)?;
        let properties = self.properties();
        let mut handle = 0;
        // SAFETY: the pointers are to values that live through the call.
        let code = unsafe { (memory.create)(&raw mut handle, size, &raw const properties, 0) };
        check_memory("cuMemCreate", code, Memory::Device, bytes)?;
        // SAFETY: the addresses are reserved, and nothing is behind them.
        let mapped = check("cuMemMap", unsafe { (memory.map)(at, size, 0, handle, 0) });
        // SAFETY: the memory stays as long as it is mapped; if it is not, it is given back here.
        let released = check("cuMemRelease", unsafe { (memory.release)(handle) });
        mapped?;
        let access =
            CUmemAccessDesc { location: self.location(), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the pointer is to one description that lives through the call.
        let opened = released
            .and_then(|()| check("cuMemSetAccess", unsafe { (memory.set_access)(at, size, &raw const access, 1) }));
        if opened.is_err() {
            // SAFETY: it was mapped above, and nobody uses it yet.
            let _ = unsafe { (memory.unmap)(at, size) };
        }
        opened
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        calls::forget(self.number);
        if let Some(release) = self.driver.release {
            // SAFETY: it was retained once, and nothing made in it is left: every handle keeps this alive.
            let _ = unsafe { (release.context_release)(self.device) };
        }
    }
}

fn size(bytes: u64, memory: Memory) -> Result<usize> {
    usize::try_from(bytes).map_err(|_| Error::OutOfMemory { memory, bytes })
}

impl Backend for CudaBackend {
    type Arena = Arena;
    type Pinned = Pinned;
    type Stream = Stream;
    type Event = Event;

    fn attributes(&self) -> Attributes {
        self.shared.attributes
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let _current = self.shared.current()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to numbers that are written.
        let code = unsafe { (self.shared.driver.functions.memory_info)(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", code)?;
        let (free, total) = (free as u64, total as u64);
        // The driver's figure does not count what the operating system would free for others.
        Ok(if self.shared.attributes.integrated {
            MemoryInfo { free: integrated::available()?, total }
        } else {
            MemoryInfo { free, total }
        })
    }

    fn reserve(&self, bytes: u64, room: u64) -> Result<Arena> {
        let bytes = bytes.max(1);
        let shared = &self.shared;
        let _current = shared.current()?;
        let Some((memory, granularity)) = shared.virtual_memory else {
            let mut address = 0;
            // SAFETY: the pointer is to an address that is written.
            let code = unsafe { (shared.driver.functions.allocate)(&raw mut address, size(bytes, Memory::Device)?) };
            check_memory("cuMemAlloc", code, Memory::Device, bytes)?;
            return Ok(Arena { shared: shared.clone(), address, size: bytes, kind: ArenaKind::Plain });
        };
        let too_much = Error::OutOfMemory { memory: Memory::Addresses, bytes };
        let least = bytes.checked_next_multiple_of(granularity).ok_or(too_much)?;
        let mut room = room.checked_next_multiple_of(granularity).map_or(least, |room| room.max(least));
        let mut address = 0;
        loop {
            // SAFETY: the pointer is to an address that is written.
            let code = unsafe { (memory.reserve)(&raw mut address, size(room, Memory::Addresses)?, 0, 0, 0) };
            match check_memory("cuMemAddressReserve", code, Memory::Addresses, room) {
                // Some devices have fewer addresses than memory.
                Err(Error::OutOfMemory { .. }) if room > least => {
                    room = least + (room - least) / 2 / granularity * granularity;
                }
                reserved => break reserved?,
            }
        }
        let kind = ArenaKind::Virtual { memory, room, pieces: Vec::new() };
        let mut arena = Arena { shared: shared.clone(), address, size: 0, kind };
        // If there is not so much memory, dropping the arena frees the addresses.
        self.grow(&mut arena, bytes)?;
        Ok(arena)
    }

    fn grow(&self, arena: &mut Arena, bytes: u64) -> Result<()> {
        if bytes <= arena.size {
            return Ok(());
        }
        let size = arena.size;
        let ArenaKind::Virtual { memory, room, pieces } = &mut arena.kind else {
            return Err(Error::CannotGrow { bytes, room: size });
        };
        let cannot = Error::CannotGrow { bytes, room: *room };
        let granularity = self.shared.virtual_memory.map_or(1, |(_, granularity)| granularity);
        let wanted = bytes.checked_next_multiple_of(granularity).filter(|wanted| wanted <= room).ok_or(cannot)?;
        let _current = self.shared.current()?;
        let (at, more) = (arena.address + size, wanted - size);
        self.shared.back(memory, at, more)?;
        pieces.push((at, more));
        arena.size = wanted;
        Ok(())
    }

    fn address(&self, arena: &Arena) -> u64 {
        arena.address
    }

    fn size(&self, arena: &Arena) -> u64 {
        arena.size
    }

    fn pin(&self, bytes: u64) -> Result<Pinned> {
        let shared = &self.shared;
        let _current = shared.current()?;
        let len = size(bytes.max(1), Memory::Pinned)?;
        let mut start: *mut c_void = std::ptr::null_mut();
        // SAFETY: the pointer is to an address that is written.
        let code = unsafe { (shared.driver.functions.host_allocate)(&raw mut start, len, HOST_PORTABLE) };
        check_memory("cuMemHostAlloc", code, Memory::Pinned, bytes)?;
        Ok(Pinned { shared: shared.clone(), start, len })
    }

    fn pinned(&self, memory: &Pinned) -> PinnedBytes {
        PinnedBytes::new(memory.start.cast(), memory.len)
    }

    fn stream(&self) -> Result<Stream> {
        let shared = &self.shared;
        let _current = shared.current()?;
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: the pointer is to a handle that is written.
        let code = unsafe { (shared.driver.functions.stream_create)(&raw mut stream, STREAM_NON_BLOCKING) };
        check("cuStreamCreate", code)?;
        Ok(Stream { shared: shared.clone(), raw: stream, owned: true })
    }

    fn event(&self, timed: bool) -> Result<Event> {
        let shared = &self.shared;
        let _current = shared.current()?;
        let mut event: CUevent = std::ptr::null_mut();
        let flags = if timed { EVENT_WITH_TIME } else { EVENT_WITHOUT_TIME };
        // SAFETY: the pointer is to a handle that is written.
        check("cuEventCreate", unsafe { (shared.driver.functions.event_create)(&raw mut event, flags) })?;
        Ok(Event { shared: shared.clone(), raw: event, timed })
    }

    fn record(&self, event: &Event, stream: &Stream) -> Result<()> {
        let _current = self.shared.current()?;
        // SAFETY: both handles live.
        check("cuEventRecord", unsafe { (self.shared.driver.functions.event_record)(event.raw, stream.raw) })
    }

    fn wait(&self, stream: &Stream, event: &Event) -> Result<()> {
        let _current = self.shared.current()?;
        // SAFETY: both handles live.
        check("cuStreamWaitEvent", unsafe { (self.shared.driver.functions.stream_wait)(stream.raw, event.raw, 0) })
    }

    fn synchronize(&self, event: &Event) -> Result<()> {
        let _current = self.shared.current()?;
        // SAFETY: the handle lives.
        check("cuEventSynchronize", unsafe { (self.shared.driver.functions.event_synchronize)(event.raw) })
    }

    fn elapsed_ns(&self, from: &Event, to: &Event) -> Result<f64> {
        if !(from.timed && to.timed) {
            return Err(Error::NotTimed);
        }
        let _current = self.shared.current()?;
        let mut ms = 0.0;
        // SAFETY: the pointer is to a number that is written, and both handles live.
        let code = unsafe { (self.shared.driver.functions.event_elapsed)(&raw mut ms, from.raw, to.raw) };
        check("cuEventElapsedTime", code).map(|()| f64::from(ms) * 1e6)
    }

    fn copy_out(&self, stream: &Stream, from: u64, (to, at): (&Pinned, u64), bytes: u64) -> Result<()> {
        let (to, len) = to.range(at, bytes)?;
        let _current = self.shared.current()?;
        // SAFETY: the range lies within pinned memory; the device checks its own addresses, and who holds the memory
        // waits for the stream before it is given back.
        let code = unsafe { (self.shared.driver.functions.copy_out)(to, from, len, stream.raw) };
        check("cuMemcpyDtoHAsync", code)
    }

    fn copy_in(&self, stream: &Stream, (from, at): (&Pinned, u64), to: u64, bytes: u64) -> Result<()> {
        let (from, len) = from.range(at, bytes)?;
        let _current = self.shared.current()?;
        // SAFETY: as above.
        let code = unsafe { (self.shared.driver.functions.copy_in)(to, from, len, stream.raw) };
        check("cuMemcpyHtoDAsync", code)
    }

    fn copy_within(&self, stream: &Stream, from: u64, to: u64, bytes: u64) -> Result<()> {
        let len = size(bytes, Memory::Device)?;
        let _current = self.shared.current()?;
        // SAFETY: the device checks its addresses.
        let code = unsafe { (self.shared.driver.functions.copy_within)(to, from, len, stream.raw) };
        check("cuMemcpyDtoDAsync", code)
    }

    fn call(&self, stream: &Stream, call: Call) -> Result<()> {
        let calls = self.shared.driver.host_calls;
        let launch = calls.ok_or(Error::MissingSymbol { name: "cuLaunchHostFunc" })?.launch;
        let _current = self.shared.current()?;
        let number = calls::keep(self.shared.number, call);
        // SAFETY: the function takes any number, and knows those that are kept.
        let outcome = check("cuLaunchHostFunc", unsafe { launch(stream.raw, Some(calls::made), number) });
        if outcome.is_err() {
            drop(calls::take(number));
        }
        outcome
    }
}

impl Pinned {
    fn range(&self, at: u64, bytes: u64) -> Result<(*mut c_void, usize)> {
        let outside = Error::OutOfRange { address: at, bytes };
        let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(bytes)) else { return Err(outside) };
        match at.checked_add(len) {
            Some(end) if end <= self.len => Ok((self.start.wrapping_byte_add(at), len)),
            _ => Err(outside),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned
            && let Ok(_current) = self.shared.current()
        {
            // SAFETY: it was made here, and is destroyed once; what it was given is still done.
            let _ = unsafe { (self.shared.driver.functions.stream_destroy)(self.raw) };
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.shared.current() {
            // SAFETY: it was made here, and is destroyed once.
            let _ = unsafe { (self.shared.driver.functions.event_destroy)(self.raw) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let Ok(_current) = self.shared.current() else { return };
        match &self.kind {
            ArenaKind::Plain => {
                // SAFETY: it was allocated here, and is given back once.
                let _ = unsafe { (self.shared.driver.functions.free)(self.address) };
            }
            ArenaKind::Virtual { memory, room, pieces } => {
                for &(at, bytes) in pieces {
                    // SAFETY: each piece was mapped here, whole, and nobody uses it any more.
                    let _ = unsafe { (memory.unmap)(at, usize::try_from(bytes).unwrap_or(0)) };
                }
                // SAFETY: nothing is behind the addresses any more.
                let _ = unsafe { (memory.release_addresses)(self.address, usize::try_from(*room).unwrap_or(0)) };
            }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Ok(_current) = self.shared.current() {
            // SAFETY: it was allocated here, and is given back once.
            let _ = unsafe { (self.shared.driver.functions.host_free)(self.start) };
        }
    }
}
