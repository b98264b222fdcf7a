//! Runs plans with the crate `sublet-cuda`: on a GPU, or on the host in the place of a device.
//!
//! The handle of a runtime owns memory of the device, streams and events. So, unlike most handles, it allocates its
//! memory itself, and has to be destroyed.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::path::Path;

use sublet_core::simulate::Device;
use sublet_core::trace::Op;
use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::host::{HostBackend, Mode, Options};
use sublet_cuda::storage::{Caching, Storage};
use sublet_cuda::{ALIGNMENT, Operand, Pace, Part, Program, Runtime};

use crate::arguments::{Report, params, plain};
use crate::block;
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::handle::{self, handles};
use crate::iteration::{Schedule, Trace, sublet_schedule, sublet_trace};
use crate::schedule;
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::sublet_op_kind;
use crate::workspace::Room;

/// A runtime: carries out a schedule, an iteration rewritten to take less memory, on a device, iteration after
/// iteration. Only one thread at a time may use a runtime.
pub struct sublet_runtime {
    on: On,
    how: How,
    /// The caller's sublet_launch points here.
    operands: Vec<sublet_operand>,
}

handles!(sublet_runtime: b"runtime ");

#[derive(Clone, Copy)]
struct How {
    alignment: u64,
    pace: Pace,
}

enum On {
    Gpu(Runtime<CudaBackend>),
    Host(Runtime<HostBackend>),
}

macro_rules! on {
    ($on:expr, $runtime:ident => $body:expr) => {
        match $on {
            On::Gpu($runtime) => $body,
            On::Host($runtime) => $body,
        }
    };
}

/// The device on which a runtime carries out its plan, and in what way. NULL, or all 0 but `struct_size`, is the first
/// GPU, with a stream of the runtime's own, and with pinned memory of the host for what is swapped out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_runtime_params {
    /// Set this to sizeof(sublet_runtime_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// 0: the device is a GPU. 1: it is the host, with threads in place of streams.
    pub on_host: u32,
    /// The number of the GPU, from 0, as the CUDA driver counts.
    pub gpu: u32,
    /// When copies between device and host begin. 0: as soon as all earlier work on the bytes that they read or write
    /// is done. 1: only when the operators before the copy in the schedule are done; and operators wait for the copies
    /// of each block that is freed before them. So does the simulation: times can be compared with simulated ones.
    pub as_simulated: u32,
    /// Every offset must be a multiple of this power of two, in bytes; 0 is 256.
    pub alignment: u64,
    /// The stream to compute on: a CUstream or cudaStream_t of the GPU's primary context. It must live as long as the
    /// runtime. NULL: the runtime makes a stream of its own. The default stream of CUDA, on which PyTorch computes and
    /// whose handle is NULL there, is given as CU_STREAM_LEGACY, `(void *)0x1`.
    pub stream: *mut c_void,
    /// The path of a folder, in UTF-8 and ended by a zero byte: blocks that are swapped out are held in a file there,
    /// which is read and written past the page cache. NULL: they are held in pinned memory of the host.
    pub folder: *const c_char,
    /// With `on_host`: the size in bytes of the memory that stands for the device's, up to which an arena can grow. 0:
    /// for a runtime, as much as its plan needs; for sublet_arena_create, the larger of its arguments `size` and
    /// `room`.
    pub memory: u64,
}

/// A block that a launch uses, or the mask of a block: one bit for each of its elements, which the gradient of a ReLU
/// reads in place of the block.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_operand {
    /// The address of the block or mask on the device.
    pub address: u64,
    /// The length of the block or mask, in bytes.
    pub bytes: u64,
    /// The number of the block in the recorded trace.
    pub block: u32,
    /// 1 if the operand is the mask of block `block` (one bit for each of its elements), 0 if it is the block itself.
    pub mask: u32,
    /// 1 if the operator reads the operand, else 0.
    pub read: u32,
    /// 1 if the operator writes the operand, else 0.
    pub write: u32,
}

/// The operator whose kernels the caller is to launch now, on which stream, and with which blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_launch {
    /// Set this to sizeof(sublet_launch): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// The number of the operator to launch.
    pub op: u32,
    /// A sublet_op_kind. With SUBLET_OP_KIND_NONE the launch is an access of no operator, such as the write of an
    /// input, and `op` is 0. With SUBLET_OP_KIND_RERUN the operator is recomputed: what it updates beside its operands,
    /// such as running averages, must then stay as it is.
    pub op_kind: u32,
    /// 1 if only the kernel that makes the mask is to be launched: from the block that the launch reads, it makes one
    /// bit for each element. 0 if the whole operator is to be launched.
    pub mask_only: u32,
    /// 1 if the iteration is complete and there is nothing to launch, else 0.
    pub ended: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// The blocks and masks that the launch uses. The array is the runtime's, and valid until the next call of
    /// sublet_runtime_next, sublet_runtime_replan or sublet_runtime_destroy.
    pub operands: *const sublet_operand,
    /// How many entries `operands` has.
    pub operand_count: usize,
    /// The stream to launch on, a CUstream. NULL where the host is the device: there sublet_runtime_call runs the
    /// operator.
    pub stream: *mut c_void,
}

/// How long an iteration took on the device and takes in the simulation, in ns, and how fast its copies were.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_measured {
    /// Set this to sizeof(sublet_measured): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// The measured time from the begin of the iteration until all streams were done, in ns.
    pub time_ns: f64,
    /// The time of an iteration in the simulation, in ns.
    pub simulated_ns: f64,
    /// How long the stream of operators waited for copies in all, as measured, in ns.
    pub stalled_ns: f64,
    /// How long the stream of operators waits for copies in all in the simulation, in ns.
    pub simulated_stalled_ns: f64,
    /// The bandwidth of the copies to the host as measured, in bytes per second; 0 unless there were copies both ways.
    pub out_bandwidth: f64,
    /// The bandwidth of the copies to the device as measured, in bytes per second; 0 unless there were copies both
    /// ways.
    pub in_bandwidth: f64,
    /// The latency of a copy in ns as measured, taken to be the same both ways. 0 unless there were copies both ways.
    /// Also 0 if the times tell no latency above 0, for example if all copies that go the same way have one size.
    pub latency: f64,
}

plain!(sublet_runtime_params, sublet_operand, sublet_launch, sublet_measured);
params! {
    sublet_runtime_params { struct_size, on_host, gpu, as_simulated, alignment, stream, folder, memory }
    sublet_launch { struct_size, op, op_kind, mask_only, ended, reserved, operands, operand_count, stream }
    sublet_measured { struct_size, reserved, time_ns, simulated_ns, stalled_ns, simulated_stalled_ns, out_bandwidth, in_bandwidth, latency }
}

/// Makes a runtime, which carries out a schedule on a device. The schedule is first verified as by
/// sublet_verify_schedule: each iteration has to leave the device as the next one needs it. It is also simulated on the
/// device that `trace` describes; sublet_runtime_measured tells these times beside the measured ones. If `params` is
/// NULL, all its fields are 0.
///
/// `needed` and `got` are the fields of `error`. SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or it is so old
/// that it lacks a function that is needed, or there is no GPU of the number in `params`. SUBLET_STATUS_OUT_OF_MEMORY:
/// the device or the host has not `needed` bytes. SUBLET_STATUS_HOST_IS_DEVICE: the schedule copies blocks to the host,
/// but host and device share one memory, and `params` names no folder to swap blocks to. SUBLET_STATUS_STORAGE: blocks
/// cannot be swapped to a file in the folder. For example, the folder's file system does not open files past the page
/// cache, or has no room.
///
/// SUBLET_STATUS_DRIVER: a call of the CUDA driver failed, with the CUresult in `got`. SUBLET_STATUS_DEVICE_LOST: a
/// call of the driver failed, and no call will work again in this process. All functions of a runtime can fail with
/// SUBLET_STATUS_DRIVER and SUBLET_STATUS_DEVICE_LOST.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_create(
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    params: *const sublet_runtime_params,
    runtime: *mut *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for structs and pointers that hold what their lengths say.
        let (trace, schedule, params, to) = unsafe {
            let (trace, schedule) = (Trace::new(arguments, trace)?, Schedule::new(arguments, schedule)?);
            (trace, schedule, arguments.params(params)?, arguments.result(runtime)?)
        };
        for flag in [params.on_host, params.as_simulated] {
            if flag > 1 {
                return Err(Failure::new(S::UnknownValue, 2, 0, flag.into()));
            }
        }
        let how = How {
            alignment: if params.alignment == 0 { ALIGNMENT } else { params.alignment },
            pace: if params.as_simulated == 1 { Pace::Simulated } else { Pace::Eager },
        };
        let program = program(&trace, &schedule, how)?;
        let folder = if params.folder.is_null() {
            None
        } else {
            // SAFETY: the header asks for a string that ends with 0.
            let name = unsafe { CStr::from_ptr(params.folder) };
            Some(name.to_str().map_err(|_| Failure::new(S::UnknownValue, 2, 0, 0))?)
        };
        let on = if params.on_host == 1 {
            let mode = Mode::Threads { paced: false, delays: None };
            let memory = if params.memory == 0 { program.arena_bytes() } else { params.memory };
            let host = HostBackend::new(Options { device: trace.device, ..Options::new(mode, memory) });
            let stream = host.stream()?;
            On::Host(made(host, program, stream, folder)?)
        } else {
            let gpu = CudaBackend::new(params.gpu)?;
            let stream = if params.stream.is_null() {
                gpu.stream()?
            } else {
                // SAFETY: the header asks for a stream of this device that outlives the runtime.
                unsafe { gpu.borrow_stream(params.stream.cast()) }
            };
            On::Gpu(made(gpu, program, stream, folder)?)
        };
        to.set(handle::boxed(sublet_runtime { on, how, operands: Vec::new() }));
        Ok(())
    })
}

fn program(trace: &Trace<'_>, given: &Schedule<'_>, how: How) -> Result<Program, Failure> {
    let needed = schedule::needed(trace.counts(), given.rows.len(), given.offsets.len());
    let mut memory = vec![0; needed.bytes().div_ceil(size_of::<u64>())];
    let mut room = Room::new(&mut memory);
    let recorded = trace.recorded(&mut room)?;
    let constraints = block::constraints(how.alignment, 0);
    let verified = schedule::verified(&recorded, given, (&trace.device, true), &constraints, room)?;
    Ok(Program::paced(&recorded, &verified, how.alignment, how.pace)?)
}

fn made<B: Backend>(
    backend: B,
    program: Program,
    stream: B::Stream,
    folder: Option<&str>,
) -> Result<Runtime<B>, Failure> {
    Ok(match folder {
        None => Runtime::on_stream(backend, program, stream)?,
        Some(folder) => {
            let storage = Storage::in_folder(Path::new(folder), Caching::Past)?;
            Runtime::with_storage(backend, program, stream, &storage)?
        }
    })
}

/// Replaces the plan of a runtime by another, between two iterations. The new plan is `schedule`, a rewritten form of
/// `trace`. A reason may be that the batch has another size, that the network is evaluated and not trained, or that a
/// better plan was found. Persistent values are kept, and the next iteration is the new plan's first. The arena grows
/// where it is; where the device cannot do that, another arena is allocated and the old one freed. The arena never
/// shrinks, so that plans can take turns.
///
/// `was` has an entry for each block number of `trace`. For a persistent block the entry is the number that the block
/// had in the old plan. UINT32_MAX stands for a block that takes over no value: its value is undefined until it is
/// written. The entries of other blocks are not used. If `was` is NULL, persistent blocks keep their numbers, and the
/// values of those that the old plan did not have are undefined.
///
/// All statuses of sublet_runtime_create are possible, and two more. SUBLET_STATUS_INTERRUPTED: an iteration is under
/// way, or an error has ended it and sublet_runtime_restart was not called after it. SUBLET_STATUS_NOT_PERSISTENT:
/// block `index` of the old plan, whose value is to be taken over, is not persistent there, is not used by the old
/// plan's iteration, or has another size. After SUBLET_STATUS_STORAGE, SUBLET_STATUS_DRIVER and
/// SUBLET_STATUS_DEVICE_LOST the values may be copied in part: then the runtime has either plan, and the next iteration
/// begins only after a call of sublet_runtime_restart. After all other failures the old plan stays in use.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_replan(
    runtime: *mut sublet_runtime,
    trace: *const sublet_trace,
    schedule: *const sublet_schedule,
    was: *const u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for structs and pointers that hold what their lengths say.
        let (sublet_runtime { on, operands, how }, trace, schedule, was) = unsafe {
            let runtime = arguments.handle(runtime)?;
            let (trace, schedule) = (Trace::new(arguments, trace)?, Schedule::new(arguments, schedule)?);
            let was = arguments.input_of(was, if was.is_null() { 0 } else { trace.blocks }, 1)?;
            (runtime, trace, schedule, was)
        };
        let program = program(&trace, &schedule, *how)?;
        operands.clear();
        Ok(on!(on, runtime => {
            let there: Vec<u32> = runtime.program().persistent_blocks().collect();
            let told = |block: u32| was.get(block as usize).copied().filter(|&was| was != u32::MAX);
            let same = |block: u32| there.contains(&block).then_some(block);
            runtime.replan(program, |block| if was.is_empty() { same(block) } else { told(block) })
        })?)
    })
}

/// Waits for the work that is running and destroys the runtime. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_destroy(runtime: *mut sublet_runtime) {
    let _ = boundary(ptr::null_mut(), |_| {
        // SAFETY: the header asks for one that is not used any more.
        drop(unsafe { handle::unboxed(runtime) });
        Ok(())
    });
}

/// Tells in `launch` which operator of the iteration the caller is to launch next, on which stream and with which
/// blocks; the caller launches it before the next call of this function. Copies are queued on streams of their own, and
/// the launch's stream is told to wait for what the launch needs; the calling thread does not wait. After the last
/// launch of an iteration `ended` is 1, and the next call begins another iteration.
///
/// After an error the iteration cannot go on, and sublet_runtime_restart has to be called. SUBLET_STATUS_INTERRUPTED:
/// there was an earlier error, and sublet_runtime_restart was not called after it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_next(
    runtime: *mut sublet_runtime,
    launch: *mut sublet_launch,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for a launch that can be written.
        let (sublet_runtime { on, operands, .. }, to) = unsafe {
            let runtime = arguments.handle(runtime)?;
            (runtime, arguments.report(launch)?)
        };
        match on {
            On::Gpu(runtime) => tell(runtime, operands, to, |stream| stream.raw().cast()),
            On::Host(runtime) => tell(runtime, operands, to, |_| ptr::null_mut()),
        }
    })
}

fn tell<B: Backend>(
    runtime: &mut Runtime<B>,
    operands: &mut Vec<sublet_operand>,
    to: Report<'_, sublet_launch>,
    stream: impl FnOnce(&B::Stream) -> *mut c_void,
) -> Result<(), Failure> {
    operands.clear();
    let none = sublet_launch {
        struct_size: 0,
        op: 0,
        op_kind: sublet_op_kind::None as u32,
        mask_only: 0,
        ended: 1,
        reserved: 0,
        operands: ptr::null(),
        operand_count: 0,
        stream: ptr::null_mut(),
    };
    let Some(next) = runtime.next()? else {
        to.set(none);
        return Ok(());
    };
    let of = |o: &Operand| sublet_operand {
        address: next.address_of(o),
        bytes: o.bytes,
        block: o.block,
        mask: o.mask.into(),
        read: o.read.into(),
        write: o.write.into(),
    };
    operands.extend(next.operands().iter().map(of));
    let (op, kind) = match next.op {
        Op::None => (0, sublet_op_kind::None),
        Op::First(k) => (k, sublet_op_kind::First),
        Op::Rerun(k) => (k, sublet_op_kind::Rerun),
    };
    to.set(sublet_launch {
        op,
        op_kind: kind as u32,
        mask_only: (next.part == Part::Mask).into(),
        ended: 0,
        operands: operands.as_ptr(),
        operand_count: operands.len(),
        stream: stream(next.stream),
        ..none
    });
    Ok(())
}

/// A function of the caller's that sublet_runtime_call queues on a stream. `data` is the pointer that the caller has
/// passed to sublet_runtime_call.
pub type sublet_host_function = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// Queues a call of `function` on the stream of the latest launch that sublet_runtime_next has told. The host makes the
/// call when all that was queued on the stream before is done; what is queued on it later waits until `function`
/// returns. Where the host is the device, operators run in this way: as functions that read and write at the operands'
/// addresses. The call comes from another thread, and `function` must call no function of CUDA.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_call(
    runtime: *mut sublet_runtime,
    function: sublet_host_function,
    data: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    /// Unlike a bare pointer, it can go to another thread.
    struct Data(*mut c_void);
    // SAFETY: the header says that it is another thread that the function is called from.
    unsafe impl Send for Data {}
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime.
        let runtime = unsafe { arguments.handle(runtime)? };
        let function = function.ok_or(Failure::new(S::NullPointer, 1, 0, 0))?;
        let data = Data(data);
        let call = Box::new(move || {
            let data = data;
            // SAFETY: the caller has said that it may be called with this.
            unsafe { function(data.0) }
        });
        Ok(on!(&runtime.on, runtime => runtime.backend().call(runtime.compute(), call))?)
    })
}

/// Copies the `size` bytes of `content` into a persistent block, such as a weight. To be called between iterations.
/// Waits for the work that is running.
///
/// SUBLET_STATUS_NOT_PERSISTENT: the block is not persistent, the iteration does not use it, or its size is not `size`;
/// SUBLET_STATUS_INTERRUPTED: an iteration is under way, or an error has ended it and sublet_runtime_restart was not
/// called after it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_write(
    runtime: *mut sublet_runtime,
    block: u32,
    content: *const u8,
    size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for as many bytes as said.
        let (runtime, content) = unsafe {
            let runtime = arguments.handle(runtime)?;
            arguments.skip();
            (runtime, arguments.input(content, size)?)
        };
        Ok(on!(&mut runtime.on, runtime => runtime.write(block, content))?)
    })
}

/// Copies the value of a persistent block, such as a weight, to the `size` bytes of `content`. To be called between
/// iterations. Waits for the work that is running.
///
/// SUBLET_STATUS_NOT_PERSISTENT: the block is not persistent, the iteration does not use it, or its size is not `size`;
/// SUBLET_STATUS_INTERRUPTED: an iteration is under way, or an error has ended it and sublet_runtime_restart was not
/// called after it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_read(
    runtime: *mut sublet_runtime,
    block: u32,
    content: *mut u8,
    size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for room for as many bytes as said.
        let (runtime, content) = unsafe {
            let runtime = arguments.handle(runtime)?;
            arguments.skip();
            (runtime, arguments.output(content, size)?)
        };
        Ok(on!(&mut runtime.on, runtime => runtime.read(block, content))?)
    })
}

/// Waits until all work on the streams of a runtime is done.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_finish(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime.
        let runtime = unsafe { arguments.handle(runtime)? };
        Ok(on!(&runtime.on, runtime => runtime.finish())?)
    })
}

/// Makes a runtime usable again after an error: waits for the streams, and ends the broken iteration. The next
/// iteration is then as the first: the values of persistent blocks are undefined, and have to be written anew. An
/// iteration that was to be timed, but is not complete, is not timed any more. sublet_runtime_measured can still tell
/// the times of a complete iteration.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_restart(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime.
        let runtime = unsafe { arguments.handle(runtime)? };
        Ok(on!(&mut runtime.on, runtime => runtime.restart())?)
    })
}

/// Tells the address of a runtime's arena on the device, and its size in bytes. Either pointer may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_arena(
    runtime: *mut sublet_runtime,
    address: *mut u64,
    size: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for results that can be written.
        let (runtime, address, size) = unsafe {
            let runtime = arguments.handle(runtime)?;
            (runtime, arguments.optional(address)?, arguments.optional(size)?)
        };
        let (begin, bytes) = on!(&runtime.on, runtime => runtime.arena());
        address.set(begin);
        size.set(bytes);
        Ok(())
    })
}

/// Measures the times of the next iteration, which sublet_runtime_measured then tells. To be called between iterations.
/// Waits for the work that is running, so that the timed iteration runs alone.
///
/// SUBLET_STATUS_INTERRUPTED: an iteration is under way, or an error has ended it and sublet_runtime_restart was not
/// called after it.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_measure(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime.
        let runtime = unsafe { arguments.handle(runtime)? };
        Ok(on!(&mut runtime.on, runtime => runtime.measure())?)
    })
}

/// Writes to `measured` the times of the iteration that began after the latest call of sublet_runtime_measure. Waits
/// until that iteration is done.
///
/// SUBLET_STATUS_INTERRUPTED: that iteration has not begun, or not all of its launches were made. Or there is nothing
/// to tell: sublet_runtime_measure was not called since the runtime got its present plan, or sublet_runtime_restart has
/// ended that iteration.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_measured(
    runtime: *mut sublet_runtime,
    measured: *mut sublet_measured,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a runtime, and for a result that can be written.
        let (runtime, to) = unsafe {
            let runtime = arguments.handle(runtime)?;
            (runtime, arguments.report(measured)?)
        };
        let found = on!(&mut runtime.on, runtime => runtime.measured())?;
        let links = found.device(&Device::symmetric(1.0));
        let of = |figure: fn(&Device) -> f64| links.as_ref().map_or(0.0, figure);
        to.set(sublet_measured {
            struct_size: 0,
            reserved: 0,
            time_ns: found.time_ns,
            simulated_ns: found.simulated_ns,
            stalled_ns: found.stalled_ns(),
            simulated_stalled_ns: found.simulated_stalled_ns(),
            out_bandwidth: of(|d| d.out_bandwidth),
            in_bandwidth: of(|d| d.in_bandwidth),
            latency: of(|d| d.out_latency),
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests;
