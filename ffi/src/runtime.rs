//! Plans that run: `sublet-cuda` behind a handle, on a GPU or on the host as a device.
//!
//! Such a handle owns memory of a device, streams and events: it is made and destroyed, and takes its own memory.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use std::path::Path;

use sublet_core::Block;
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::{self, Stay};
use sublet_core::trace::{Op, Recorded};
use sublet_core::verify::schedule::{self, Room};
use sublet_cuda::backend::Backend;
use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::host::{HostBackend, Mode, Options};
use sublet_cuda::storage::{Caching, Storage};
use sublet_cuda::{ALIGNMENT, Operand, Part, Program, Runtime};

use crate::arguments::{Arguments, Out, Params, plain};
use crate::block;
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::operator::{self, sublet_operator};
use crate::simulate::sublet_device;
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, sublet_op_kind, sublet_row};
use crate::workspace;

/// A plan that runs. One thread uses it at a time.
pub struct sublet_runtime {
    on: On,
    /// Those of the launch that the caller has been told last.
    operands: Vec<sublet_operand>,
}

enum On {
    Gpu(Runtime<CudaBackend>),
    Host(Runtime<HostBackend>),
}

/// Does the same on either backend.
macro_rules! on {
    ($on:expr, $runtime:ident => $body:expr) => {
        match $on {
            On::Gpu($runtime) => $body,
            On::Host($runtime) => $body,
        }
    };
}

/// On what a plan runs, and how. NULL, or all 0 but `struct_size`, is the first GPU, with a stream of the runtime's own,
/// and copies in pinned memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_runtime_params {
    /// sizeof(sublet_runtime_params).
    pub struct_size: u32,
    /// 0: a GPU. 1: the host as a device, whose streams are threads.
    pub on_host: u32,
    /// Which GPU.
    pub gpu: u32,
    /// 0.
    pub reserved: u32,
    /// Every offset must be a multiple of this, in bytes; 0 is 256.
    pub alignment: u64,
    /// The stream to compute on, a CUstream or cudaStream_t of the GPU's primary context, which lives as long as the
    /// runtime; NULL is one of its own.
    pub stream: *mut c_void,
    /// The folder of a file that copies go to in place of pinned memory, past the page cache; NULL is none.
    pub folder: *const c_char,
}

/// A block that a launch uses.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_operand {
    /// Where it is on the device.
    pub address: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// Its number in the recorded trace.
    pub block: u32,
    /// 1: it is the mask of that block.
    pub mask: u32,
    /// 1: what it holds is read.
    pub read: u32,
    /// 1: it is written.
    pub write: u32,
}

/// What the caller is to launch now.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_launch {
    /// What it uses, until the next call.
    pub operands: *const sublet_operand,
    /// How many these are.
    pub operand_count: usize,
    /// The stream to launch on, a CUstream; NULL on the host, see sublet_runtime_call.
    pub stream: *mut c_void,
    /// The operator.
    pub op: u32,
    /// A sublet_op_kind: with SUBLET_OP_KIND_AGAIN it runs again, and what it updates besides stays as it is.
    pub op_kind: u32,
    /// 1: only the mask of the block that is read.
    pub mask_only: u32,
    /// 1: the iteration is complete, and there is nothing to launch.
    pub ended: u32,
}

/// What an iteration took, in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_measured {
    /// From its begin until all streams were done.
    pub time_ns: f64,
    /// The same in the simulation.
    pub simulated_ns: f64,
    /// How long compute stood still.
    pub stalled_ns: f64,
    /// The same in the simulation.
    pub simulated_stalled_ns: f64,
    /// The links as the copies show them: as in sublet_device; all 0 unless there were copies both ways.
    pub out_bandwidth: f64,
    /// As above.
    pub in_bandwidth: f64,
    /// Of copies both ways.
    pub latency: f64,
}

plain!(sublet_runtime_params, sublet_operand, sublet_launch, sublet_measured);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_runtime_params {}

/// Makes a runtime for a rewritten trace and its offsets, which are verified as by sublet_verify_schedule, with what it is
/// told of operators, for iterations that repeat. `device`, whose simulation is what sublet_runtime_measured compares with, and `params` may be NULL.
///
/// SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or none that is new enough, or no such GPU;
/// SUBLET_STATUS_OUT_OF_MEMORY: the device or the host has not `needed` bytes; SUBLET_STATUS_HOST_IS_DEVICE: plan without
/// copies, or name a folder; SUBLET_STATUS_STORAGE: the folder's file system does not open files past the page cache, or has
/// no room; SUBLET_STATUS_UNNAMED with a CUresult in `got`: the driver failed.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_create(
    original: *const sublet_row,
    original_count: usize,
    operators: *const sublet_operator,
    operator_count: usize,
    rewritten: *const sublet_row,
    rewritten_count: usize,
    block_count: usize,
    offsets: *const u64,
    stay_count: usize,
    device: *const sublet_device,
    params: *const sublet_runtime_params,
    runtime: *mut *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        let mut arguments = Arguments::new();
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (original, operators, rewritten, offsets, device, params, to) = unsafe {
            let original = arguments.input(original, original_count)?;
            let operators = arguments.input(operators, operator_count)?;
            let rewritten = arguments.input(rewritten, rewritten_count)?;
            arguments.count(block_count)?;
            let offsets = arguments.input(offsets, stay_count)?;
            let (device, params) = (arguments.params(device)?.device(9)?, arguments.params(params)?);
            (original, operators, rewritten, offsets, device, params, arguments.result(runtime)?)
        };
        if params.on_host > 1 {
            return Err(Failure::new(S::UnknownValue, 10, 0, params.on_host.into()));
        }
        let recorded = (original, operators, block_count);
        let program = program(recorded, rewritten, offsets, &device, params.alignment)?;
        let folder = if params.folder.is_null() {
            None
        } else {
            // SAFETY: the header asks for a string that ends with 0.
            let name = unsafe { CStr::from_ptr(params.folder) };
            Some(name.to_str().map_err(|_| Failure::new(S::UnknownValue, 10, 0, 0))?)
        };
        let on = if params.on_host == 1 {
            let mode = Mode::Threads { paced: false, delays: None };
            let host = HostBackend::new(Options { device, ..Options::new(mode, program.arena_bytes()) });
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
        to.set(Box::into_raw(Box::new(sublet_runtime { on, operands: Vec::new() })));
        Ok(())
    })
}

fn program(
    (original, operators, blocks): (&[sublet_row], &[sublet_operator], usize),
    rewritten: &[sublet_row],
    offsets: &[u64],
    device: &Device,
    alignment: u64,
) -> Result<Program, Failure> {
    let stays = offsets.len();
    let needed = crate::schedule::needed(original.len(), operators.len(), rewritten.len(), blocks, stays);
    let mut memory = vec![0; needed.bytes().div_ceil(size_of::<u64>())];
    let mut room = workspace::Room::new(&mut memory);
    let (original, rewritten) = (trace::rows(&mut room, original)?, trace::rows(&mut room, rewritten)?);
    let operators = operator::operators(&mut room, operators)?;
    let there = liveness::stays(rewritten);
    if there != stays {
        return Err(Failure::new(S::BufferTooSmall, 7, there as u64, stays as u64));
    }
    let recorded = Recorded { rows: original, operators, blocks };
    let alignment = if alignment == 0 { ALIGNMENT } else { alignment };
    let own = Room {
        timings: room.fill(rewritten.len(), Timing::default()),
        blocks: room.fill(stays, Block::default()),
        names: room.fill(stays, Stay::default()),
    };
    let verified = schedule::schedule(
        &recorded,
        rewritten,
        offsets,
        (device, true),
        &block::constraints(alignment, 0),
        room.workspace(schedule::workspace(original.len(), blocks, stays)),
        own,
    )?;
    Ok(Program::new(&recorded, &verified, alignment)?)
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
            Runtime::with_storage(backend, program, stream, storage)?
        }
    })
}

/// The runtime behind a handle, which is argument 0; and the arguments after it.
///
/// # Safety
/// If it is neither NULL nor misaligned, it is a runtime that lives, and nobody else uses it.
unsafe fn open<'a>(runtime: *mut sublet_runtime) -> Result<(&'a mut sublet_runtime, Arguments<'a>), Failure> {
    // SAFETY: as promised.
    unsafe { crate::handle::open(runtime) }
}

/// Waits for what is under way and gives back all that the runtime holds. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_destroy(runtime: *mut sublet_runtime) {
    let _ = boundary(ptr::null_mut(), || {
        if !runtime.is_null() && runtime.is_aligned() {
            // SAFETY: it was made by sublet_runtime_create, and is not used any more.
            drop(unsafe { Box::from_raw(runtime) });
        }
        Ok(())
    });
}

/// Goes on to the next launch, which the caller makes before the next call: copies are given to their streams, and what
/// the launch needs has been waited for on its stream. Nothing waits on this thread. After the last one the launch
/// says `ended`, and the next call begins another iteration.
///
/// After an error the iteration is broken: see sublet_runtime_restart. SUBLET_STATUS_INTERRUPTED: it is broken already.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_next(
    runtime: *mut sublet_runtime,
    launch: *mut sublet_launch,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime, and for a launch that can be written.
        let (sublet_runtime { on, operands }, to) = unsafe {
            let (runtime, mut arguments) = open(runtime)?;
            (runtime, arguments.result(launch)?)
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
    to: Out<'_, sublet_launch>,
    stream: impl FnOnce(&B::Stream) -> *mut c_void,
) -> Result<(), Failure> {
    operands.clear();
    let none = sublet_launch {
        operands: ptr::null(),
        operand_count: 0,
        stream: ptr::null_mut(),
        op: 0,
        op_kind: sublet_op_kind::None as u32,
        mask_only: 0,
        ended: 1,
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
        Op::Again(k) => (k, sublet_op_kind::Again),
    };
    to.set(sublet_launch {
        operands: operands.as_ptr(),
        operand_count: operands.len(),
        stream: stream(next.stream),
        op,
        op_kind: kind as u32,
        mask_only: (next.part == Part::Mask).into(),
        ended: 0,
    });
    Ok(())
}

/// A function that is called with `data`.
pub type sublet_host_function = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// Has the host call `function` in the order of the stream of the launch that sublet_runtime_next has told last: on the
/// host as a device, that is how kernels run, on the operands' addresses. It is called from another thread, and calls no
/// function of CUDA.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_call(
    runtime: *mut sublet_runtime,
    function: sublet_host_function,
    data: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    /// What the caller vouches for.
    struct Data(*mut c_void);
    // SAFETY: the header says that it is another thread that the function is called from.
    unsafe impl Send for Data {}
    boundary(error, || {
        // SAFETY: the header asks for a runtime.
        let (runtime, _) = unsafe { open(runtime)? };
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

/// Gives a persistent block its content, between iterations. Waits for what is under way.
///
/// SUBLET_STATUS_NOT_PERSISTENT: it is none of so many bytes that the iteration uses; SUBLET_STATUS_INTERRUPTED: an iteration
/// is under way.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_write(
    runtime: *mut sublet_runtime,
    block: u32,
    content: *const u8,
    size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime, and for as many bytes as said.
        let (runtime, content) = unsafe {
            let (runtime, mut arguments) = open(runtime)?;
            arguments.skip();
            (runtime, arguments.input(content, size)?)
        };
        Ok(on!(&mut runtime.on, runtime => runtime.write(block, content))?)
    })
}

/// Reads the content of a persistent block, between iterations. Waits for what is under way. Fails as
/// sublet_runtime_write does.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_read(
    runtime: *mut sublet_runtime,
    block: u32,
    content: *mut u8,
    size: usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime, and for room for as many bytes as said.
        let (runtime, content) = unsafe {
            let (runtime, mut arguments) = open(runtime)?;
            arguments.skip();
            (runtime, arguments.output(content, size)?)
        };
        Ok(on!(&mut runtime.on, runtime => runtime.read(block, content))?)
    })
}

/// Waits until everything is done that the streams were given.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_finish(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime.
        let (runtime, _) = unsafe { open(runtime)? };
        Ok(on!(&runtime.on, runtime => runtime.finish())?)
    })
}

/// After an error: waits for what was given, and has the next iteration be the first. The persistent blocks hold
/// anything, and have to be written again.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_restart(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime.
        let (runtime, _) = unsafe { open(runtime)? };
        Ok(on!(&mut runtime.on, runtime => runtime.restart())?)
    })
}

/// Where the arena is on the device, and how many bytes it has. Either may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_arena(
    runtime: *mut sublet_runtime,
    address: *mut u64,
    size: *mut u64,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime, and for results that can be written.
        let (runtime, address, size) = unsafe {
            let (runtime, mut arguments) = open(runtime)?;
            (runtime, arguments.optional(address)?, arguments.optional(size)?)
        };
        let (begin, bytes) = on!(&runtime.on, runtime => runtime.arena());
        address.set(begin);
        size.set(bytes);
        Ok(())
    })
}

/// Has the next iteration timed, by itself: what is under way is waited for.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_measure(
    runtime: *mut sublet_runtime,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime.
        let (runtime, _) = unsafe { open(runtime)? };
        Ok(on!(&mut runtime.on, runtime => runtime.measure())?)
    })
}

/// What the iteration took that was begun after sublet_runtime_measure. Waits until it is done.
/// SUBLET_STATUS_INTERRUPTED: there was none yet.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_runtime_measured(
    runtime: *mut sublet_runtime,
    measured: *mut sublet_measured,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        // SAFETY: the header asks for a runtime, and for a result that can be written.
        let (runtime, to) = unsafe {
            let (runtime, mut arguments) = open(runtime)?;
            (runtime, arguments.result(measured)?)
        };
        let found = on!(&mut runtime.on, runtime => runtime.measured())?;
        let links = found.device(&Device::symmetric(1.0));
        let of = |figure: fn(&Device) -> f64| links.as_ref().map_or(0.0, figure);
        to.set(sublet_measured {
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
mod tests {
    use super::*;
    use crate::trace::sublet_event as E;
    use std::ffi::CString;

    const NONE: sublet_error = sublet_error { status: 0, index: 0, needed: 0, got: 0 };
    const BYTES: usize = 512;

    const fn row(event: E, block: u32, op: Option<u32>) -> sublet_row {
        let kind = if op.is_some() { sublet_op_kind::First } else { sublet_op_kind::None };
        let bytes = if matches!(event, E::Malloc) { BYTES as u64 } else { 0 };
        let op = if let Some(op) = op { op } else { 0 };
        sublet_row { time_ns: 0, bytes, block, event: event as u32, op, op_kind: kind as u32 }
    }

    /// A weight that is doubled, then away while another is doubled in its place.
    const ORIGINAL: [sublet_row; 6] = [
        row(E::Malloc, 0, None),
        row(E::Malloc, 1, None),
        row(E::Read, 0, Some(0)),
        row(E::Write, 0, Some(0)),
        row(E::Read, 1, Some(1)),
        row(E::Write, 1, Some(1)),
    ];
    const REWRITTEN: [sublet_row; 12] = [
        ORIGINAL[0],
        ORIGINAL[2],
        ORIGINAL[3],
        row(E::SwapOut, 0, None),
        row(E::Free, 0, None),
        ORIGINAL[1],
        row(E::SwapIn, 1, None),
        ORIGINAL[4],
        ORIGINAL[5],
        row(E::SwapOut, 1, None),
        row(E::Free, 1, None),
        row(E::Malloc, 0, None),
    ];

    unsafe extern "C" fn doubled(data: *mut c_void) {
        // SAFETY: the test gives the address of an operand, whose memory lives as long as the runtime.
        for byte in unsafe { core::slice::from_raw_parts_mut(data.cast::<u8>(), BYTES) } {
            *byte = byte.wrapping_mul(2);
        }
    }

    fn create(params: &sublet_runtime_params, offsets: &[u64]) -> (*mut sublet_runtime, sublet_error) {
        let rewritten: Vec<_> = REWRITTEN.into_iter().chain([row(E::SwapIn, 0, None)]).collect();
        let (mut runtime, mut error) = (ptr::null_mut(), NONE);
        // SAFETY: arrays with their lengths.
        let status = unsafe {
            sublet_runtime_create(
                ORIGINAL.as_ptr(),
                ORIGINAL.len(),
                ptr::null(),
                0,
                rewritten.as_ptr(),
                rewritten.len(),
                2,
                offsets.as_ptr(),
                offsets.len(),
                ptr::null(),
                params,
                &raw mut runtime,
                &raw mut error,
            )
        };
        assert_eq!(status as i32, error.status);
        (runtime, error)
    }

    const HOST: sublet_runtime_params = sublet_runtime_params {
        struct_size: 40,
        on_host: 1,
        gpu: 0,
        reserved: 0,
        alignment: 0,
        stream: ptr::null_mut(),
        folder: ptr::null(),
    };

    /// Trains for three iterations.
    fn train(runtime: *mut sublet_runtime) {
        for block in 0..2 {
            // SAFETY: a runtime, and content with its length.
            let status = unsafe { sublet_runtime_write(runtime, block, [3; BYTES].as_ptr(), BYTES, ptr::null_mut()) };
            assert_eq!(status, S::Ok);
        }
        // SAFETY: zero is a value of every field.
        let mut launch: sublet_launch = unsafe { core::mem::zeroed() };
        for iteration in 0..3 {
            if iteration == 2 {
                // SAFETY: a runtime.
                assert_eq!(unsafe { sublet_runtime_measure(runtime, ptr::null_mut()) }, S::Ok);
            }
            for k in 0..3 {
                // SAFETY: a runtime, and a place for a launch.
                let status = unsafe { sublet_runtime_next(runtime, &raw mut launch, ptr::null_mut()) };
                assert_eq!((status, launch.ended), (S::Ok, u32::from(k == 2)));
                if k < 2 {
                    // SAFETY: so many operands live until the next call.
                    let operands = unsafe { core::slice::from_raw_parts(launch.operands, launch.operand_count) };
                    let [sublet_operand { block, read: 1, write: 1, mask: 0, address, .. }] = *operands else {
                        panic!("{operands:?}")
                    };
                    assert_eq!((launch.op, block), (k, k));
                    let data = ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap());
                    // SAFETY: the function takes the address of an operand.
                    let status = unsafe { sublet_runtime_call(runtime, Some(doubled), data, ptr::null_mut()) };
                    assert_eq!(status, S::Ok);
                }
            }
        }
        for block in 0..2 {
            let mut content = [0; BYTES];
            // SAFETY: a runtime, and room with its length.
            let status = unsafe { sublet_runtime_read(runtime, block, content.as_mut_ptr(), BYTES, ptr::null_mut()) };
            assert_eq!((status, content), (S::Ok, [24; BYTES]), "{block}");
        }
        // SAFETY: zero is a value of every field.
        let mut measured: sublet_measured = unsafe { core::mem::zeroed() };
        // SAFETY: a runtime, and a place for the result.
        assert_eq!(unsafe { sublet_runtime_measured(runtime, &raw mut measured, ptr::null_mut()) }, S::Ok);
        assert!(measured.time_ns > 0.0 && measured.simulated_ns > 0.0);
    }

    #[test]
    fn a_plan_runs_on_the_host() {
        assert_eq!(HOST.struct_size as usize, size_of::<sublet_runtime_params>());
        let folder = CString::new(std::env::temp_dir().to_str().unwrap()).unwrap();
        for params in [HOST, sublet_runtime_params { folder: folder.as_ptr(), ..HOST }] {
            let (runtime, error) = create(&params, &[0, 0, 0]);
            if error.status == S::Storage as i32 {
                eprintln!("skipped: swapping past the page cache through the C library");
                continue;
            }
            assert_eq!(error, NONE);
            let (mut address, mut size) = (0, 0);
            // SAFETY: a runtime, and places for two numbers.
            let status = unsafe { sublet_runtime_arena(runtime, &raw mut address, &raw mut size, ptr::null_mut()) };
            assert_eq!((status, size, address == 0), (S::Ok, BYTES as u64, false));
            train(runtime);
            // SAFETY: a runtime that nobody uses any more; and none.
            unsafe {
                assert_eq!(sublet_runtime_finish(runtime, ptr::null_mut()), S::Ok);
                sublet_runtime_destroy(runtime);
                sublet_runtime_destroy(ptr::null_mut());
            }
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let (runtime, error) = create(&HOST, &[0, 8, 0]);
        assert!(runtime.is_null());
        assert_eq!((error.status, error.index, error.needed, error.got), (S::PlanMisaligned as i32, 1, 256, 8));
        assert_eq!(create(&HOST, &[0, 0]).1.status, S::BufferTooSmall as i32);
        assert_eq!(create(&sublet_runtime_params { on_host: 2, ..HOST }, &[0; 3]).1.status, S::UnknownValue as i32);
        let nowhere = sublet_runtime_params { folder: c"/no/such/folder".as_ptr(), ..HOST };
        assert_eq!(create(&nowhere, &[0; 3]).1, sublet_error { status: S::Storage as i32, got: 2, ..NONE });
        let gpu = create(&sublet_runtime_params { on_host: 0, ..HOST }, &[0; 3]);
        if gpu.0.is_null() {
            assert_ne!(gpu.1.status, 0);
        }
        // SAFETY: none, or a runtime that nobody uses.
        unsafe { sublet_runtime_destroy(gpu.0) };

        let (runtime, _) = create(&HOST, &[0, 0, 0]);
        let mut error = NONE;
        // SAFETY: a runtime, content with its length, and a place for an error.
        let status = unsafe { sublet_runtime_write(runtime, 0, [0; 8].as_ptr(), 8, &raw mut error) };
        assert_eq!((status, error.index, error.got), (S::NotPersistent, 0, 8));
        // SAFETY: as above; and NULL where something has to be.
        unsafe {
            assert_eq!(sublet_runtime_measured(runtime, ptr::null_mut(), ptr::null_mut()), S::NullPointer);
            assert_eq!(sublet_runtime_call(runtime, None, ptr::null_mut(), ptr::null_mut()), S::NullPointer);
            assert_eq!(sublet_runtime_finish(ptr::null_mut(), ptr::null_mut()), S::NullPointer);
            let mut launch: sublet_launch = core::mem::zeroed();
            assert_eq!(sublet_runtime_next(runtime, &raw mut launch, ptr::null_mut()), S::Ok);
            assert_eq!(sublet_runtime_measure(runtime, ptr::null_mut()), S::Interrupted);
            assert_eq!(sublet_runtime_restart(runtime, ptr::null_mut()), S::Ok);
            assert_eq!(sublet_runtime_measure(runtime, ptr::null_mut()), S::Ok);
            sublet_runtime_destroy(runtime);
        }
    }
}
