//! The allocator that learns, over a range of addresses that are never read or written, or over ranges from callbacks.

use std::ffi::{c_char, c_void};
use std::ptr;

use sublet::allocator::manage::*;
use sublet::allocator::plan::*;
use sublet::allocator::trace::*;
use sublet::allocator::*;
use sublet::error::*;
use sublet::status::*;
use sublet::verify::*;

use crate::hostile::{Buffer, Hostile, Told, asked};

/// The ranges that the callback has given and that were not freed: for each its first address and its bytes. The
/// addresses are never read or written.
struct Raw {
    out: Vec<(usize, usize)>,
    next: usize,
    /// How many more calls of the callback get a range.
    left: u32,
}

unsafe extern "C" fn alloc(context: *mut c_void, bytes: usize, alignment: usize) -> *mut c_void {
    // SAFETY: the context is what was given with the callback, and lives longer.
    let raw = unsafe { &mut *context.cast::<Raw>() };
    let end = raw.next.checked_next_multiple_of(alignment).and_then(|begin| Some((begin, begin.checked_add(bytes)?)));
    match end.filter(|_| raw.left > 0) {
        Some((begin, end)) => {
            (raw.left, raw.next) = (raw.left - 1, end);
            raw.out.push((begin, bytes));
            ptr::without_provenance_mut(begin)
        }
        None => ptr::null_mut(),
    }
}

unsafe extern "C" fn free(context: *mut c_void, pointer: *mut c_void, bytes: usize) {
    // SAFETY: as above.
    let raw = unsafe { &mut *context.cast::<Raw>() };
    let which = raw.out.iter().position(|&range| range == (pointer.addr(), bytes));
    raw.out.swap_remove(which.expect("what was given, once"));
}

pub(crate) fn allocator(h: &mut Hostile<'_, '_>) {
    let solver = h.solver();
    let capacity = if h.seldom(4) { h.number() } else { h.u.int_in_range(0..=1 << 16).unwrap_or(0) };
    let alignment = if h.seldom(4) { h.number() } else { 0 };
    let (events, live) = if h.seldom(8) {
        (h.number(), h.number())
    } else {
        (h.u.int_in_range(1..=64).unwrap_or(1), h.u.int_in_range(1..=32).unwrap_or(1))
    };
    // The range is never read or written: any address will do. The library has to refuse one that has no room behind it
    // or is misaligned.
    let mut range = if h.seldom(4) { h.number() | 1 } else { 1 << 20 };
    let mut raw = Raw { out: Vec::new(), next: 1 << 40, left: h.u.int_in_range(0..=9).unwrap_or(0) };
    let context = &raw mut raw;
    let mut callbacks = [0; 3];
    if h.seldom(3) {
        callbacks = [alloc as *const () as u64, free as *const () as u64, context.addr() as u64];
        range = if h.seldom(2) { range } else { 0 };
        if h.seldom(8) {
            callbacks[h.u.int_in_range(0..=1).unwrap_or(0)] = 0;
            h.spoiled = true;
        }
    }
    let grows = callbacks[0] != 0;
    let (seed, work, nodes) = (h.number(), h.effort(), h.effort());
    let [from, to, with] = callbacks;
    let words = [capacity, alignment, events, live, range, from, to, with, seed, work, nodes];
    let mut params = h.params::<sublet_allocator_params>(solver, &words);
    let memory = &mut params.words.memory;
    if ((memory[0] & u64::from(u32::MAX)) as usize) < size_of::<sublet_allocator_params>() {
        // If the struct is so short that the library does not see `range`, the library would take `capacity` bytes of
        // the system's memory.
        params.refused = true;
        memory[0] = 3;
    }
    h.spoiled |= params.refused;
    let params_pointer = memory.as_mut_ptr().cast::<sublet_allocator_params>();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_allocator_workspace(params_pointer, layout, ptr::null_mut()) });
    if asked.is_ok_and(|size| size > 1 << 22) {
        return;
    }
    let (mut workspace, size) = h.workspace(asked);
    let mut handle = Buffer::of(vec![ptr::null_mut::<sublet_allocator>()], ptr::null_mut());
    let mut told = Told::new(h);
    let workspace_pointer = h.pointer(&mut workspace, false).cast::<c_void>();
    let handle_pointer = h.pointer(&mut handle, false);
    // With NULL and 0 the bookkeeping would lie in the system's memory.
    let size = if workspace_pointer.is_null() && size == 0 { 1 } else { size };
    // SAFETY: as above.
    let status =
        unsafe { sublet_allocator_create(params_pointer, workspace_pointer, size, handle_pointer, told.pointer()) };
    if !told.judge(status, h) {
        assert!(handle.memory[0].is_null());
        return;
    }
    let handle = handle.memory[0];
    let mut live: Vec<(usize, usize)> = Vec::new();
    for _ in 0..h.u.int_in_range(0..=60).unwrap_or(0) {
        h.spoiled = false;
        let mut told = Told::new(h);
        let error = told.pointer();
        let asked = h.u.int_in_range(0..=20).unwrap_or(0);
        // Sometimes a pointer that is no handle.
        let to = match h.u.int_in_range(0..=63).unwrap_or(0) {
            62 => ptr::null_mut(),
            63 => handle.wrapping_byte_add(1),
            _ => handle,
        };
        h.spoiled |= to != handle;
        // SAFETY: as above; no address in the range is followed.
        let status = unsafe {
            match asked {
                0..=6 => {
                    let bytes =
                        if h.seldom(16) { h.number() as usize } else { h.u.int_in_range(1..=2000).unwrap_or(1) };
                    let mut out = Buffer::of(vec![ptr::null_mut::<c_void>()], ptr::null_mut());
                    let out_pointer = h.pointer(&mut out, false);
                    let status = sublet_malloc(to, bytes, out_pointer, error);
                    let address = out.memory[0].addr();
                    if status == sublet_status::Ok && bytes > 0 {
                        let lent = (range as usize, if range == 0 { 0 } else { capacity as usize });
                        // SAFETY: the library looks at it only within its calls.
                        let out = if grows { (*context).out.clone() } else { Vec::new() };
                        let inside = |&(begin, length): &(usize, usize)| {
                            address.checked_sub(begin).is_some_and(|offset| offset < length && bytes <= length - offset)
                        };
                        assert!(out.iter().chain([&lent]).any(inside), "{address} {bytes} {out:?}");
                        assert!(live.iter().all(|&(a, n)| a + n <= address || address + bytes <= a), "{address}");
                        live.push((address, bytes));
                    } else {
                        assert_eq!(address, 0);
                    }
                    status
                }
                7..=10 if !live.is_empty() => {
                    let which = h.u.choose_index(live.len()).unwrap_or(0);
                    let status = sublet_free(to, ptr::without_provenance_mut(live[which].0), error);
                    if status == sublet_status::Ok {
                        live.swap_remove(which);
                    } else {
                        assert!(h.spoiled, "{status:?}");
                    }
                    status
                }
                11 => {
                    let stray = h.number() as usize;
                    h.spoiled |= stray != 0 && live.iter().all(|&(a, _)| a != stray);
                    if live.iter().any(|&(a, _)| a == stray) {
                        return;
                    }
                    sublet_free(to, ptr::without_provenance_mut(stray), error)
                }
                12 => sublet_iteration_begin(to, error),
                13 => sublet_iteration_end(to, error),
                14 => sublet_interrupt(to, error),
                15 => sublet_resume(to, error),
                16 => sublet_trace_begin(to, error),
                17 => sublet_trace_end(to, error),
                18 => {
                    let mut text = Buffer::of(vec![1 as c_char; h.u.int_in_range(0..=300).unwrap_or(0)], 0);
                    // This length is not limited as a count is: only lengths that cannot be addressed are refused.
                    let said = if h.seldom(24) { usize::MAX } else { text.len };
                    h.spoiled |= said != text.len;
                    let text_pointer = h.pointer(&mut text, false);
                    let mut needed = Buffer::of(vec![0usize], 0);
                    let needed_pointer = h.pointer(&mut needed, true);
                    sublet_export_trace(to, text_pointer, said, needed_pointer, error)
                }
                19 => adopt(h, to, error),
                _ => {
                    let mut statistics = sublet_statistics {
                        hits: 7,
                        misses: 7,
                        plans: 7,
                        arena_peak: 7,
                        fallback_peak: 7,
                        footprint: 7,
                        held: 7,
                        state: 7,
                        live_bytes: 7,
                        live_blocks: 7,
                        resident: 7,
                        unended: 7,
                        struct_size: size_of::<sublet_statistics>() as u32,
                    };
                    let status = sublet_stats(to, &raw mut statistics, error);
                    assert!(status != sublet_status::Ok || statistics.state < 3);
                    status
                }
            }
        };
        told.judge(status, h);
    }
    // SAFETY: it was made above, and nobody else has it.
    unsafe { sublet_allocator_destroy(handle) };
    // SAFETY: nobody looks at it any more.
    assert!(unsafe { &*context }.out.is_empty(), "all ranges have come back");
}

/// Has the allocator adopt a plan in which blocks lie one above the other, or an invalid one.
fn adopt(h: &mut Hostile<'_, '_>, to: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    let mut list = h.blocks();
    let n = list.len;
    let mut offsets = Buffer::of((0..n).map(|i| 256 * i as u64).collect(), 0);
    // SAFETY: nothing is wrong with these.
    let asked = asked(|layout| unsafe { sublet_verify_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let (list_pointer, offsets_pointer) = (h.pointer(&mut list, false), h.pointer(&mut offsets, false));
    let said = h.length(n);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    unsafe { sublet_adopt(to, list_pointer, said, offsets_pointer, workspace_pointer, size, error) }
}
