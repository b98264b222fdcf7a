//! Tests of the C functions of a runtime, with the host in the place of a device.

use super::*;
use crate::arguments::sized;
use crate::trace::{sublet_event as E, sublet_row};
use std::ffi::CString;

const NONE: sublet_error = sublet_error { status: 0, index: 0, needed: 0, got: 0 };
const BYTES: usize = 512;

const fn row(event: E, block: u32, op: Option<u32>) -> sublet_row {
    let kind = if op.is_some() { sublet_op_kind::First } else { sublet_op_kind::None };
    let bytes = if matches!(event, E::Malloc) { BYTES as u64 } else { 0 };
    let op = if let Some(op) = op { op } else { 0 };
    sublet_row { time_ns: 0, bytes, block, event: event as u32, op, op_kind: kind as u32 }
}

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
    let trace = sublet_trace { rows: ORIGINAL.as_ptr(), row_count: ORIGINAL.len(), block_count: 2, ..sized() };
    let schedule = sublet_schedule {
        rows: rewritten.as_ptr(),
        row_count: rewritten.len(),
        offsets: offsets.as_ptr(),
        residency_count: offsets.len(),
        ..sized()
    };
    let (mut runtime, mut error) = (ptr::null_mut(), NONE);
    // SAFETY: arrays with their lengths.
    let status = unsafe {
        sublet_runtime_create(&raw const trace, &raw const schedule, params, &raw mut runtime, &raw mut error)
    };
    assert_eq!(status as i32, error.status);
    (runtime, error)
}

const HOST: sublet_runtime_params = sublet_runtime_params {
    struct_size: 48,
    on_host: 1,
    gpu: 0,
    as_simulated: 0,
    alignment: 0,
    stream: ptr::null_mut(),
    folder: ptr::null(),
    memory: 0,
};

fn train(runtime: *mut sublet_runtime) {
    for block in 0..2 {
        // SAFETY: a runtime, and content with its length.
        let status = unsafe { sublet_runtime_write(runtime, block, [3; BYTES].as_ptr(), BYTES, ptr::null_mut()) };
        assert_eq!(status, S::Ok);
    }
    let mut launch: sublet_launch = sized();
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
    let mut measured: sublet_measured = sized();
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
        let mut launch: sublet_launch = sized();
        assert_eq!(sublet_runtime_next(runtime, &raw mut launch, ptr::null_mut()), S::Ok);
        assert_eq!(sublet_runtime_measure(runtime, ptr::null_mut()), S::Interrupted);
        assert_eq!(sublet_runtime_restart(runtime, ptr::null_mut()), S::Ok);
        assert_eq!(sublet_runtime_measure(runtime, ptr::null_mut()), S::Ok);
        sublet_runtime_destroy(runtime);
    }
}

#[test]
fn a_length_that_no_array_has_is_named_by_the_trace() {
    let (runtime, mut error) = create(&HOST, &[0, 0, 0]);
    let trace = sublet_trace { rows: ORIGINAL.as_ptr(), row_count: ORIGINAL.len(), block_count: 2, ..sized() };
    let schedule = sublet_schedule { rows: ORIGINAL.as_ptr(), row_count: ORIGINAL.len(), ..sized() };
    let was = ptr::without_provenance(usize::MAX - 7);
    // SAFETY: a runtime, arrays with their lengths, and a length that no array has; nobody uses the runtime afterwards.
    let status = unsafe {
        let status = sublet_runtime_replan(runtime, &raw const trace, &raw const schedule, was, &raw mut error);
        sublet_runtime_destroy(runtime);
        status
    };
    assert_eq!((status, error.index, error.needed, error.got), (S::LengthOverflow, 1, 1, 2));
}
