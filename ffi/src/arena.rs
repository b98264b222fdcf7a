//! One range of a device's memory that can grow in place: its address stays the same.

use core::ptr;

use sublet_core::simulate::Device;
use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::host::{HostBackend, Mode, Options, Order};

use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::handle::{self, handles};
use crate::runtime::sublet_runtime_params;
use crate::status::{sublet_status, sublet_status as S};

/// A range of a device's memory that can grow in place. It is for callers that follow a plan with a sublet_allocator or
/// a sublet_replay: the plan's offsets are offsets in this range. Only one thread at a time may use an arena.
pub struct sublet_arena {
    on: On,
}

handles!(sublet_arena: b"arena   ");

enum On {
    Gpu(CudaBackend, <CudaBackend as Backend>::Arena),
    Host(HostBackend, <HostBackend as Backend>::Arena),
}

/// Makes an arena, a range of memory that can grow in place. Allocates `size` bytes of a GPU, or of the host, and
/// reserves addresses for `room` bytes, up to which the arena can grow. Of `params` only `on_host`, `gpu` and `memory`
/// are read; if it is NULL, the arena is on the first GPU.
///
/// `needed` and `got` are the fields of `error`. SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or it is so old
/// that it lacks a function that is needed, or there is no GPU of the number in `params`. SUBLET_STATUS_OUT_OF_MEMORY:
/// the device has not `needed` bytes of memory, or of addresses. SUBLET_STATUS_DRIVER: a call of the CUDA driver
/// failed, with the CUresult in `got`. SUBLET_STATUS_DEVICE_LOST: a call of the driver failed, and no call will work
/// again in this process.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_arena_create(
    size: u64,
    room: u64,
    params: *const sublet_runtime_params,
    arena: *mut *mut sublet_arena,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        arguments.skip();
        arguments.skip();
        // SAFETY: the header asks for parameters that can be read, and for a place for the handle.
        let (params, to) = unsafe { (arguments.params(params)?, arguments.result(arena)?) };
        let on = match params.on_host {
            0 => {
                let gpu = CudaBackend::new(params.gpu)?;
                let arena = gpu.reserve(size, room)?;
                On::Gpu(gpu, arena)
            }
            1 => {
                let memory = if params.memory == 0 { size.max(room) } else { params.memory };
                let device = Device::symmetric(1e9);
                let host = HostBackend::new(Options { device, ..Options::new(Mode::Ordered(Order::Time), memory) });
                let arena = host.reserve(size, room)?;
                On::Host(host, arena)
            }
            other => return Err(Failure::new(S::UnknownValue, 2, 0, other.into())),
        };
        to.set(handle::boxed(sublet_arena { on }));
        Ok(())
    })
}

/// Frees the memory of an arena; no work that uses it may be running. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_arena_destroy(arena: *mut sublet_arena) {
    let _ = boundary(ptr::null_mut(), |_| {
        // SAFETY: the header asks for one that is not used any more.
        drop(unsafe { handle::unboxed(arena) });
        Ok(())
    });
}

/// Grows an arena to at least `size` bytes, in place; its content stays.
///
/// SUBLET_STATUS_CANNOT_GROW: `size` exceeds the bytes of addresses that are reserved for the arena, or the device
/// cannot grow it. SUBLET_STATUS_OUT_OF_MEMORY: the device has no memory for the bytes that the arena would gain; the
/// field `needed` of `error` says how many these are. After either status the arena is unchanged.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_arena_grow(
    arena: *mut sublet_arena,
    size: u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an arena.
        let arena = unsafe { arguments.handle(arena)? };
        match &mut arena.on {
            On::Gpu(gpu, arena) => gpu.grow(arena, size)?,
            On::Host(host, arena) => host.grow(arena, size)?,
        }
        Ok(())
    })
}

/// Tells the address at which an arena begins on the device, and its size in bytes. Either pointer may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_arena_range(
    arena: *mut sublet_arena,
    address: *mut u64,
    size: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an arena, and for results that can be written.
        let (arena, address, size) = unsafe {
            let arena = arguments.handle(arena)?;
            (arena, arguments.optional(address)?, arguments.optional(size)?)
        };
        let (begin, bytes) = match &arena.on {
            On::Gpu(gpu, arena) => (gpu.address(arena), gpu.size(arena)),
            On::Host(host, arena) => (host.address(arena), host.size(arena)),
        };
        address.set(begin);
        size.set(bytes);
        Ok(())
    })
}
