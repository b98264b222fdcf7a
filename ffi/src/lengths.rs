//! Tests that the failure for a length that is too large names the argument that holds the length, wherever this
//! argument stands in the C function.

use core::ffi::c_void;
use core::ptr;

use crate::allocator::plan::{sublet_adopt, sublet_plan_read};
use crate::allocator::{sublet_allocator_create, sublet_allocator_destroy, sublet_allocator_params};
use crate::arguments::{Plain, sized};
use crate::banks::{sublet_banks_params, sublet_place_banks};
use crate::block::sublet_block;
use crate::failure::sublet_error;
use crate::fit::{sublet_fit, sublet_fit_output, sublet_fitted};
use crate::graph::{sublet_graph, sublet_node};
use crate::iteration::{sublet_schedule, sublet_trace};
use crate::lifetimes::{sublet_lifetimes, sublet_residencies};
use crate::parallel::{sublet_longest_paths, sublet_parallel_lifetimes};
use crate::place::sublet_place;
use crate::replay::sublet_replay_create;
use crate::schedule::sublet_verify_schedule;
use crate::simulate::sublet_simulate;
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{sublet_event, sublet_row};
use crate::verify::sublet_verify;

const NULL: *mut c_void = ptr::null_mut();
const MALLOC: sublet_row =
    sublet_row { time_ns: 0, bytes: 64, block: 0, event: sublet_event::Malloc as u32, op: 0, op_kind: 0 };
const BLOCK: sublet_block = sublet_block { start: 0, end: 1, size: 64, alignment: 0, pin: 0, flags: 0 };

/// No array may include the last byte of all addresses.
fn last<T: Plain>() -> *mut T {
    ptr::without_provenance_mut(usize::MAX - 7)
}

fn finds(holder: u32, call: impl FnOnce(*mut c_void, usize, *mut sublet_error) -> sublet_status) {
    let mut workspace = vec![7u64; 1 << 20];
    let mut error = sublet_error { status: 0, index: 0, needed: 0, got: 0 };
    let status = call(workspace.as_mut_ptr().cast(), 8 * workspace.len(), &raw mut error);
    assert_eq!((status, error.index), (S::LengthOverflow, holder), "{error}");
    assert!(error.got > error.needed && workspace.iter().all(|&word| word == 7), "{error}");
}

#[test]
fn lengths_of_plans() {
    let blocks = [BLOCK; 2];
    let (blocks, n) = (blocks.as_ptr(), blocks.len());
    // SAFETY: arrays with their lengths, or lengths that no array has.
    unsafe {
        finds(1, |w, size, e| sublet_place(blocks, n, ptr::null(), w, size, last(), ptr::null_mut(), e));
        finds(1, |w, size, e| sublet_verify(blocks, n, last(), ptr::null(), w, size, ptr::null_mut(), e));
        let mut replay = ptr::null_mut();
        finds(1, |w, size, e| sublet_replay_create(blocks, n, last(), ptr::null(), w, size, &raw mut replay, e));
        let params = sublet_banks_params { uses: blocks.cast(), ..sized() };
        finds(1, |w, size, e| sublet_place_banks(blocks, n, &raw const params, w, size, last(), ptr::null_mut(), e));
        let params = sublet_banks_params { uses: last(), ..params };
        finds(1, |w, size, e| sublet_place_banks(blocks, n, &raw const params, w, size, last(), ptr::null_mut(), e));
        let params = sublet_banks_params { banks: last(), bank_count: 2, ..params };
        finds(2, |w, size, e| sublet_place_banks(blocks, n, &raw const params, w, size, last(), ptr::null_mut(), e));

        let params = sublet_allocator_params { capacity: 1 << 20, ..sized() };
        let mut allocator = ptr::null_mut();
        let made = sublet_allocator_create(&raw const params, NULL, 0, &raw mut allocator, ptr::null_mut());
        assert_eq!(made, S::Ok);
        finds(2, |w, size, e| sublet_adopt(allocator, blocks, n, last(), w, size, e));
        sublet_allocator_destroy(allocator);

        let (mut read, mut count) = ([BLOCK; 1], 0);
        let read = read.as_mut_ptr();
        finds(4, |_, _, e| sublet_plan_read(c"".as_ptr(), 0, read, last(), usize::MAX, &raw mut count, e));
        finds(4, |_, _, e| sublet_plan_read(c"".as_ptr(), 0, last(), last(), 2, &raw mut count, e));
        finds(4, |_, _, e| sublet_plan_read(c"".as_ptr(), 0, read, last(), 2, &raw mut count, e));
        // One value has no length: the pointer itself is named.
        finds(2, |_, _, e| sublet_residencies(ptr::from_ref(&MALLOC), 1, last(), e));
    }
}

#[test]
fn lengths_of_traces_and_graphs() {
    let rows = [MALLOC; 2];
    let trace = sublet_trace { rows: rows.as_ptr(), row_count: 2, block_count: 2, ..sized() };
    let schedule = sublet_schedule { rows: rows.as_ptr(), row_count: 2, ..sized() };
    let nodes = [sublet_node { input_count: 0, output_count: 0, workspace: 0, time_ns: 0 }; 3];
    let graph = sublet_graph { nodes: nodes.as_ptr(), node_count: 3, ..sized() };
    let (trace, schedule, graph) = (&raw const trace, &raw const schedule, &raw const graph);
    let mut found = [BLOCK; 2];
    let found = found.as_mut_ptr();
    let mut fitted: sublet_fitted = sized();
    let output = sublet_fit_output { rows: last(), row_capacity: 2, ..sized() };
    // SAFETY: arrays with their lengths, or lengths that no array has.
    unsafe {
        finds(1, |w, size, e| sublet_simulate(trace, schedule, w, size, last(), ptr::null_mut(), e));
        finds(1, |w, size, e| {
            sublet_verify_schedule(trace, schedule, ptr::null_mut(), w, size, last(), ptr::null_mut(), e)
        });
        finds(5, |w, size, e| sublet_lifetimes(trace, w, size, last(), last(), 2, ptr::null_mut(), e));
        finds(5, |w, size, e| sublet_lifetimes(trace, w, size, found, last(), 2, ptr::null_mut(), e));
        finds(5, |w, size, e| {
            sublet_parallel_lifetimes(graph, w, size, found, ptr::null_mut(), usize::MAX, ptr::null_mut(), e)
        });
        finds(5, |w, size, e| sublet_parallel_lifetimes(graph, w, size, found, last(), 2, ptr::null_mut(), e));
        finds(0, |w, size, e| sublet_longest_paths(graph, 1, w, size, last(), e));
        let other = sublet_graph { streams: last(), ..*graph };
        finds(0, |w, size, e| sublet_longest_paths(&raw const other, 1, w, size, last(), e));
        let (output, fitted) = (&raw const output, &raw mut fitted);
        finds(5, |w, size, e| sublet_fit(trace, 1 << 20, ptr::null(), w, size, output, fitted, e));
    }
}

#[test]
#[cfg(feature = "cuda")]
fn lengths_of_activations() {
    use crate::relu::{sublet_relu_backward, sublet_relu_forward};

    let (mut x, mut mask, most) = ([0f32; 1], [0; 1], usize::MAX);
    let (x, mask) = (x.as_mut_ptr().cast::<c_void>(), mask.as_mut_ptr());
    let end = last::<u32>().cast::<c_void>();
    // SAFETY: arrays with their lengths, or lengths that no array has.
    unsafe {
        finds(1, |_, _, e| sublet_relu_forward(x, most, ptr::null(), x, mask, 1, e));
        finds(1, |_, _, e| sublet_relu_forward(end, 3, ptr::null(), x, mask, 1, e));
        finds(5, |_, _, e| sublet_relu_forward(x, 1, ptr::null(), x, mask, most, e));
        finds(1, |_, _, e| sublet_relu_backward(x, most, mask, 1, ptr::null(), x, e));
        finds(3, |_, _, e| sublet_relu_backward(x, 1, mask, most, ptr::null(), x, e));
    }
}
