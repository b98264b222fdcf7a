//! The C library with hostile arguments: NULL, misaligned, lengths that nobody has, sizes of structs and values of
//! enums that there are none of, buffers that are too short. Whatever is wrong is told before memory is touched; what is
//! told to be fine is fine.
//!
//! A pointer that is given here can be read and written as far as its length says, unless that length cannot be
//! addressed or counted: this is all that C can ask of its callers.
#![no_main]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sublet::allocator::*;
use sublet::block::*;
use sublet::bound::*;
use sublet::error::*;
use sublet::fit::*;
use sublet::place::*;
use sublet::schedule::*;
use sublet::simulate::*;
use sublet::status::*;
use sublet::trace::*;
use sublet::verify::*;
use sublet::workspace::sublet_layout;
use sublet_fuzz::{blocks, naive, number, trace};

/// What may be wrong with a call.
struct Hostile<'a, 'b> {
    u: &'a mut Unstructured<'b>,
    /// Whether something was made wrong that has to be told.
    spoiled: bool,
}

/// Memory that C sees; it has one element more than it is said to have, so that a misaligned pointer is still into it.
struct Buffer<T> {
    memory: Vec<T>,
    len: usize,
}

impl<T: Copy> Buffer<T> {
    fn of(mut memory: Vec<T>, filler: T) -> Self {
        let len = memory.len();
        memory.push(filler);
        Self { memory, len }
    }
}

impl Hostile<'_, '_> {
    /// In one of so many calls.
    fn seldom(&mut self, of: u32) -> bool {
        self.u.ratio(1, of).unwrap_or(false)
    }

    /// A pointer into the buffer, most often the right one. NULL is fine where nothing or nobody is there.
    fn pointer<T>(&mut self, buffer: &mut Buffer<T>, optional: bool) -> *mut T {
        let there = buffer.len > 0;
        if self.seldom(24) {
            self.spoiled |= there && !optional;
            return ptr::null_mut();
        }
        let pointer = buffer.memory.as_mut_ptr();
        if align_of::<T>() > 1 && self.seldom(24) {
            self.spoiled |= there;
            return pointer.wrapping_byte_add(1);
        }
        pointer
    }

    /// A length, most often the one that there is.
    fn length(&mut self, len: usize) -> usize {
        if !self.seldom(24) {
            return len;
        }
        self.spoiled = true;
        let absurd =
            [usize::MAX, usize::MAX / 8, 1 << 63, 1 << 60, 1 << 40, (1 << 28) + 1, len.saturating_add(1 << 32)];
        *self.u.choose(&absurd).unwrap_or(&usize::MAX)
    }

    /// Parameters: the words behind `struct_size` and what follows it, and a size that is most often right.
    fn params<T>(&mut self, second: u32, words: &[u64]) -> Params {
        let mut memory = vec![0; 513];
        memory[1..=words.len()].copy_from_slice(words);
        let right = size_of::<T>() as u32;
        let size = if self.seldom(8) { self.u.arbitrary().unwrap_or(0) } else { right };
        memory[0] = u64::from(size) | u64::from(second) << 32;
        // A field from the future.
        let unknown = self.seldom(12);
        if unknown {
            memory[size_of::<T>() / 8] = 1;
        }
        let refused = !(4..=4096).contains(&size) || (unknown && size > right);
        Params { words: Buffer { memory, len: 512 }, refused }
    }

    /// A pointer to parameters; NULL is the defaults.
    fn params_pointer<T>(&mut self, params: &mut Params) -> *mut T {
        let pointer = self.pointer(&mut params.words, true);
        self.spoiled |= !pointer.is_null() && params.refused;
        pointer.cast()
    }

    /// A value of an enum with so many values, most often one of them.
    fn value(&mut self, of: u32) -> u32 {
        if self.seldom(16) { self.u.arbitrary().unwrap_or(0) } else { self.u.int_in_range(0..=of - 1).unwrap_or(0) }
    }

    fn number(&mut self) -> u64 {
        number(self.u).unwrap_or(0)
    }

    /// Effort that ends soon.
    fn effort(&mut self) -> u64 {
        self.u.int_in_range(1..=100).unwrap_or(1)
    }

    /// The workspace that the library asks for, or a shorter one.
    fn workspace(&mut self, asked: std::result::Result<usize, sublet_status>) -> (Buffer<u64>, usize) {
        let size = asked.unwrap_or(64).min(1 << 22);
        let shorter = if self.seldom(16) { self.u.int_in_range(0..=size).unwrap_or(0) } else { size };
        self.spoiled |= shorter < size;
        (Buffer::of(vec![!9; shorter.div_ceil(8)], 0), shorter)
    }

    fn blocks(&mut self) -> Buffer<sublet_block> {
        let mut list = Vec::new();
        let wild = self.seldom(6);
        for _ in 0..self.u.int_in_range(0..=12).unwrap_or(0) {
            let Ok(b) = blocks::block(self.u, wild) else { break };
            let strange = wild && self.seldom(16);
            list.push(sublet_block {
                start: b.start,
                end: b.end,
                size: b.size,
                alignment: b.alignment,
                pin: b.pin.unwrap_or(0),
                flags: if strange { self.number() } else { b.pin.is_some().into() },
            });
        }
        let filler = sublet_block { start: 0, end: 1, size: 1, alignment: 1, pin: 0, flags: 0 };
        Buffer::of(list, filler)
    }

    /// Rows and the number of blocks that they are said to use.
    fn rows(&mut self) -> (Buffer<sublet_row>, usize) {
        let trace = trace::Trace::arbitrary(self.u).unwrap_or(trace::Trace { rows: Vec::new(), blocks: 0 });
        let wild = self.seldom(8);
        let mut rows = Vec::new();
        for r in &trace.rows {
            let (op_kind, op) = match r.op {
                sublet_core::trace::Op::None => (0, 0),
                sublet_core::trace::Op::First(k) => (1, k),
                sublet_core::trace::Op::Again(k) => (2, k),
            };
            let strange = wild && self.seldom(16);
            let event = if strange { self.u.arbitrary().unwrap_or(9) } else { r.event as u32 };
            rows.push(sublet_row { time_ns: r.time_ns, bytes: r.bytes, block: r.block, event, op, op_kind });
        }
        let filler = sublet_row { time_ns: 0, bytes: 0, block: 0, event: 0, op: 0, op_kind: 0 };
        (Buffer::of(rows, filler), trace.blocks)
    }

    fn device(&mut self) -> Params {
        let device = trace::device(self.u).unwrap_or(sublet_core::simulate::Device::symmetric(12e9));
        let bandwidths = [device.out_bandwidth, device.in_bandwidth, device.out_latency, device.in_latency];
        let [a, b, c, d] = bandwidths.map(f64::to_bits);
        let reserved = if self.seldom(32) { 7 } else { 0 };
        self.params::<sublet_device>(reserved, &[a, b, c, d, device.host_capacity.unwrap_or(0)])
    }
}

/// Words of parameters, and whether they have to be refused.
struct Params {
    words: Buffer<u64>,
    refused: bool,
}

/// The error that a call writes, and where it is told to.
struct Told {
    memory: [sublet_error; 2],
    how: u8,
}

impl Told {
    fn new(h: &mut Hostile<'_, '_>) -> Self {
        let how = if h.seldom(16) { h.u.int_in_range(1..=2).unwrap_or(1) } else { 0 };
        h.spoiled |= how == 2;
        Self { memory: [sublet_error { status: -1, index: 7, needed: 7, got: 7 }; 2], how }
    }

    fn pointer(&mut self) -> *mut sublet_error {
        match self.how {
            0 => self.memory.as_mut_ptr(),
            1 => ptr::null_mut(),
            _ => self.memory.as_mut_ptr().wrapping_byte_add(1),
        }
    }

    /// The status is one that the library may give, and the error says the same; whether the call has worked.
    fn judge(mut self, status: sublet_status, h: &Hostile<'_, '_>) -> bool {
        let told = self.memory[0];
        assert!(!matches!(status, sublet_status::Panicked | sublet_status::Unnamed), "{status:?}");
        assert!(!h.spoiled || status != sublet_status::Ok, "nothing was said");
        if self.how == 0 {
            assert_eq!(told.status, status as i32);
            let mut text = [1 as c_char; 300];
            let mut needed = 0;
            let error = self.pointer();
            // SAFETY: the buffer is as long as said, the error was written.
            let formatted = unsafe { sublet_format_error(error, text.as_mut_ptr(), text.len(), &raw mut needed) };
            assert_eq!(formatted, sublet_status::Ok);
            assert!((1..=300).contains(&needed) && text[needed - 1] == 0, "{needed}");
        } else {
            assert_eq!(told.status, -1);
        }
        // SAFETY: it lives as long as the program.
        assert!(unsafe { CStr::from_ptr(sublet_status_string(status as i32)) }.to_bytes().len() > 1);
        status == sublet_status::Ok
    }
}

/// What a function that tells a workspace says, asked without tricks.
fn asked(tell: impl FnOnce(*mut sublet_layout) -> sublet_status) -> std::result::Result<usize, sublet_status> {
    let mut layout = sublet_layout { size: 0, alignment: 0 };
    match tell(&raw mut layout) {
        sublet_status::Ok => {
            assert_eq!(layout.alignment, 8);
            Ok(layout.size)
        }
        status => {
            assert_eq!((layout.size, layout.alignment), (0, 0));
            Err(status)
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let _ = call(&mut u);
});

fn call(u: &mut Unstructured<'_>) -> Result<()> {
    let which = u.int_in_range(0..=8)?;
    let h = &mut Hostile { u, spoiled: false };
    match which {
        0 => place(h),
        1 => bound(h),
        2 => verify(h),
        3 => lifetimes(h),
        4 => simulate(h),
        5 => schedule(h),
        6 => fit(h),
        7 => load_without_overhead(h),
        _ => allocator(h),
    }
    Ok(())
}

fn place(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let solver = h.value(17);
    let alignment = if h.seldom(4) { h.number() } else { 0 };
    let capacity = if h.seldom(4) { h.number() } else { 0 };
    let (seed, work, nodes) = (h.number(), h.effort(), h.effort());
    let mut params = h.params::<sublet_place_params>(solver, &[alignment, capacity, seed, work, nodes]);
    let params_pointer = h.params_pointer::<sublet_place_params>(&mut params);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_place_workspace(n, params_pointer, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut offsets = Buffer::of(vec![!0u64; n], 0);
    let mut placement = Buffer::of(
        vec![sublet_placement { peak: 7, lower_bound: 7, nodes: 7, solver: 7, reserved: 7 }],
        sublet_placement { peak: 0, lower_bound: 0, nodes: 0, solver: 0, reserved: 0 },
    );
    let mut told = Told::new(h);
    let blocks_pointer = h.pointer(&mut list, false);
    let workspace_pointer = h.pointer(&mut workspace, false).cast::<c_void>();
    let (mut offsets_pointer, placement_pointer) = (h.pointer(&mut offsets, false), h.pointer(&mut placement, true));
    if n > 0 && size >= 8 && h.seldom(24) {
        // Two outputs in one place.
        offsets_pointer = workspace_pointer.cast();
        h.spoiled = true;
    }
    let said = h.length(n);
    // SAFETY: as above.
    let status = unsafe {
        sublet_place(
            blocks_pointer,
            said,
            params_pointer,
            workspace_pointer,
            size,
            offsets_pointer,
            placement_pointer,
            told.pointer(),
        )
    };
    if told.judge(status, h) {
        let blocks = to_core(&list);
        let constraints = sublet_core::Constraints { alignment: 1, capacity: None };
        assert!(naive::accepts(&blocks, &offsets.memory[..n], &constraints));
        if !placement_pointer.is_null() {
            assert_eq!(u128::from(placement.memory[0].peak), naive::peak(&blocks, &offsets.memory[..n]));
        }
    } else {
        assert_eq!(placement.memory[0].reserved, 7, "a scalar was written without success");
    }
}

fn to_core(list: &Buffer<sublet_block>) -> Vec<sublet_core::Block> {
    let block = |b: &sublet_block| sublet_core::Block {
        start: b.start,
        end: b.end,
        size: b.size,
        alignment: b.alignment.max(1),
        pin: (b.flags & 1 == 1).then_some(b.pin),
    };
    list.memory[..list.len].iter().map(block).collect()
}

fn constraints(h: &mut Hostile<'_, '_>) -> Params {
    let alignment = if h.seldom(4) { h.number() } else { 1 << h.u.int_in_range(0..=4).unwrap_or(0) };
    let capacity = if h.seldom(4) { h.number() } else { 0 };
    h.params::<sublet_constraints>(0, &[alignment, capacity])
}

fn bound(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let mut constraints = constraints(h);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_lower_bound_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut bound = Buffer::of(vec![7u64], 0);
    let mut told = Told::new(h);
    let pointer = h.pointer(&mut list, false);
    let said = h.length(n);
    let constraints_pointer = h.params_pointer(&mut constraints);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let bound_pointer = h.pointer(&mut bound, false);
    // SAFETY: as above.
    let status = unsafe {
        sublet_lower_bound(pointer, said, constraints_pointer, workspace_pointer, size, bound_pointer, told.pointer())
    };
    if told.judge(status, h) {
        assert!(naive::max_load(&to_core(&list)) <= bound.memory[0].into());
    } else {
        assert_eq!(bound.memory[0], 7);
    }
}

fn verify(h: &mut Hostile<'_, '_>) {
    let mut list = h.blocks();
    let n = list.len;
    let mut constraints = constraints(h);
    let offsets = (0..n).map(|i| if h.seldom(12) { h.number() } else { 48 * i as u64 }).collect();
    let mut offsets = Buffer::of(offsets, 0);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_verify_workspace(n, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut certificate =
        Buffer::of(vec![sublet_certificate { peak: 7, max_load: 7 }], sublet_certificate { peak: 0, max_load: 0 });
    let mut told = Told::new(h);
    let pointer = h.pointer(&mut list, false);
    let said = h.length(n);
    let offsets_pointer = h.pointer(&mut offsets, false);
    let constraints_pointer = h.params_pointer(&mut constraints);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let certificate_pointer = h.pointer(&mut certificate, true);
    // SAFETY: as above.
    let status = unsafe {
        sublet_verify(
            pointer,
            said,
            offsets_pointer,
            constraints_pointer,
            workspace_pointer,
            size,
            certificate_pointer,
            told.pointer(),
        )
    };
    if told.judge(status, h) {
        let none = sublet_core::Constraints { alignment: 1, capacity: None };
        assert!(naive::accepts(&to_core(&list), &offsets.memory[..n], &none));
    } else {
        assert_eq!(certificate.memory[0].peak, 7);
    }
}

const STAY: sublet_stay = sublet_stay { block: 7, ordinal: 7 };
const BLOCK: sublet_block = sublet_block { start: 7, end: 3, size: 0, alignment: 3, pin: 5, flags: 9 };
const TIMING: sublet_timing = sublet_timing { reached: f64::NAN, begin: f64::NAN, end: f64::NAN };
const RUN: sublet_run =
    sublet_run { time_ns: 7.0, original_ns: 7, swapped_bytes: 7, peak_load: 7, host_bytes: 7, recomputed_ns: 7 };

fn lifetimes(h: &mut Hostile<'_, '_>) {
    let (mut rows, blocks) = h.rows();
    let n = rows.len;
    let mallocs = rows.memory[..n].iter().filter(|r| r.event == 0).count();
    let stays = if h.seldom(12) { mallocs / 2 } else { mallocs };
    h.spoiled |= stays < mallocs;
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_lifetimes_workspace(n, blocks, stays, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let (mut lives, mut names) = (Buffer::of(vec![BLOCK; stays], BLOCK), Buffer::of(vec![STAY; stays], STAY));
    let mut count = Buffer::of(vec![usize::MAX], 0);
    let mut told = Told::new(h);
    let rows_pointer = h.pointer(&mut rows, false);
    let (said, blocks, stays) = (h.length(n), h.length(blocks), h.length(stays));
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (lives_pointer, names_pointer) = (h.pointer(&mut lives, false), h.pointer(&mut names, true));
    let count_pointer = h.pointer(&mut count, true);
    // SAFETY: as above.
    let status = unsafe {
        sublet_lifetimes(
            rows_pointer,
            said,
            blocks,
            workspace_pointer,
            size,
            lives_pointer,
            names_pointer,
            stays,
            count_pointer,
            told.pointer(),
        )
    };
    if told.judge(status, h) {
        assert!(count_pointer.is_null() || count.memory[0] == mallocs);
    } else {
        assert_eq!(count.memory[0], usize::MAX);
    }
}

fn simulate(h: &mut Hostile<'_, '_>) {
    let (mut rows, blocks) = h.rows();
    let n = rows.len;
    let mut device = h.device();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_simulate_workspace(n, n, blocks, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut timings = Buffer::of(vec![TIMING; n], TIMING);
    let mut run = Buffer::of(vec![RUN], RUN);
    let mut told = Told::new(h);
    // The same rows twice: what is read may be shared.
    let (original, rewritten) = (h.pointer(&mut rows, false), h.pointer(&mut rows, false));
    let (said, said_again, blocks) = (h.length(n), h.length(n), h.length(blocks));
    let device_pointer = h.params_pointer(&mut device);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (timings_pointer, run_pointer) = (h.pointer(&mut timings, true), h.pointer(&mut run, true));
    // SAFETY: as above.
    let status = unsafe {
        sublet_simulate(
            original,
            said,
            rewritten,
            said_again,
            blocks,
            device_pointer,
            workspace_pointer,
            size,
            timings_pointer,
            run_pointer,
            told.pointer(),
        )
    };
    if !told.judge(status, h) {
        assert_eq!(run.memory[0].swapped_bytes, 7);
    }
}

fn schedule(h: &mut Hostile<'_, '_>) {
    let (mut rows, blocks) = h.rows();
    let n = rows.len;
    let mallocs = rows.memory[..n].iter().filter(|r| r.event == 0).count();
    let mut device = h.device();
    let once = h.value(2);
    let mut params = h.params::<sublet_schedule_params>(once, &[0, 0]);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked =
        asked(|layout| unsafe { sublet_verify_schedule_workspace(n, n, blocks, mallocs, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut top = 0u64;
    let offsets = rows.memory[..n].iter().filter(|r| r.event == 0).map(|r| {
        top = top.saturating_add(r.bytes);
        top.saturating_sub(r.bytes)
    });
    let mut offsets = Buffer::of(offsets.collect(), 0);
    let (mut timings, mut run) = (Buffer::of(vec![TIMING; n], TIMING), Buffer::of(vec![RUN], RUN));
    let mut certificate =
        Buffer::of(vec![sublet_certificate { peak: 7, max_load: 7 }], sublet_certificate { peak: 0, max_load: 0 });
    let mut told = Told::new(h);
    let (original, rewritten) = (h.pointer(&mut rows, false), h.pointer(&mut rows, false));
    let (said, said_again, blocks, stays) = (h.length(n), h.length(n), h.length(blocks), h.length(mallocs));
    let offsets_pointer = h.pointer(&mut offsets, false);
    let device_pointer = h.params_pointer(&mut device);
    let params_pointer = h.params_pointer(&mut params);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (timings_pointer, run_pointer) = (h.pointer(&mut timings, true), h.pointer(&mut run, true));
    let certificate_pointer = h.pointer(&mut certificate, true);
    // SAFETY: as above.
    let status = unsafe {
        sublet_verify_schedule(
            original,
            said,
            rewritten,
            said_again,
            blocks,
            offsets_pointer,
            stays,
            device_pointer,
            params_pointer,
            workspace_pointer,
            size,
            timings_pointer,
            run_pointer,
            certificate_pointer,
            told.pointer(),
        )
    };
    if !told.judge(status, h) {
        assert_eq!((run.memory[0].swapped_bytes, certificate.memory[0].peak), (7, 7));
    }
}

fn fit(h: &mut Hostile<'_, '_>) {
    let (mut rows, blocks) = h.rows();
    let n = rows.len;
    let mut device = h.device();
    let (policy, least, seed, work) = (h.value(7), h.number(), h.number(), h.effort());
    let mut params = h.params::<sublet_fit_params>(policy, &[least, seed, work]);
    let mut lengths = sublet_fit_lengths { rows: 0, stays: 0 };
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let (told_lengths, asked) = unsafe {
        let pointer = rows.memory.as_ptr();
        let told = sublet_fit_lengths_of(pointer, n, blocks, &raw mut lengths, ptr::null_mut());
        let (rows, stays) = (lengths.rows, lengths.stays);
        (told, asked(|layout| sublet_fit_workspace(n, blocks, rows, stays, layout, ptr::null_mut())))
    };
    assert_ne!(told_lengths, sublet_status::Panicked);
    if asked.is_ok_and(|size| size > 1 << 22) || told_lengths != sublet_status::Ok {
        return;
    }
    let (mut workspace, size) = h.workspace(asked);
    let shorter = if h.seldom(12) { 1 } else { 0 };
    let (row_capacity, stay_capacity) = (lengths.rows.saturating_sub(shorter), lengths.stays);
    h.spoiled |= row_capacity < lengths.rows;
    let filler = sublet_row { time_ns: 9, bytes: 9, block: 9, event: 9, op: 9, op_kind: 9 };
    let (mut rewritten, mut timings) =
        (Buffer::of(vec![filler; row_capacity], filler), Buffer::of(vec![TIMING; row_capacity], TIMING));
    let (mut lives, mut names, mut offsets) = (
        Buffer::of(vec![BLOCK; stay_capacity], BLOCK),
        Buffer::of(vec![STAY; stay_capacity], STAY),
        Buffer::of(vec![!0u64; stay_capacity], 0),
    );
    let nothing =
        sublet_fitted { row_count: 7, stay_count: 7, peak: 7, original_peak: 7, run: RUN, policy: 7, reserved: 7 };
    let mut fitted = Buffer::of(vec![nothing], nothing);
    let limit = h.number() << h.u.int_in_range(0..=20).unwrap_or(0);
    let mut told = Told::new(h);
    let rows_pointer = h.pointer(&mut rows, false);
    let (said, blocks) = (h.length(n), h.length(blocks));
    let device_pointer = h.params_pointer(&mut device);
    let params_pointer = h.params_pointer(&mut params);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (rewritten_pointer, timings_pointer) = (h.pointer(&mut rewritten, false), h.pointer(&mut timings, true));
    let (lives_pointer, names_pointer) = (h.pointer(&mut lives, true), h.pointer(&mut names, true));
    let (offsets_pointer, fitted_pointer) = (h.pointer(&mut offsets, false), h.pointer(&mut fitted, false));
    let (row_capacity, stay_capacity) = (h.length(row_capacity), h.length(stay_capacity));
    // SAFETY: as above.
    let status = unsafe {
        sublet_fit(
            rows_pointer,
            said,
            blocks,
            limit,
            device_pointer,
            params_pointer,
            workspace_pointer,
            size,
            rewritten_pointer,
            timings_pointer,
            row_capacity,
            lives_pointer,
            names_pointer,
            offsets_pointer,
            stay_capacity,
            fitted_pointer,
            told.pointer(),
        )
    };
    let done = fitted.memory[0];
    if told.judge(status, h) {
        assert!(done.peak <= limit && done.row_count <= row_capacity && done.stay_count <= stay_capacity);
        assert!(rewritten.memory[..done.row_count].iter().all(|r| r.event < 6));
    } else {
        assert_eq!(done.peak, 7);
    }
}

fn load_without_overhead(h: &mut Hostile<'_, '_>) {
    let (mut rows, blocks) = h.rows();
    let n = rows.len;
    let mut device = h.device();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_load_without_overhead_workspace(n, blocks, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut load = Buffer::of(vec![7u64], 0);
    let mut told = Told::new(h);
    let rows_pointer = h.pointer(&mut rows, false);
    let (said, blocks) = (h.length(n), h.length(blocks));
    let device_pointer = h.params_pointer(&mut device);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let load_pointer = h.pointer(&mut load, false);
    // SAFETY: as above.
    let status = unsafe {
        sublet_load_without_overhead(
            rows_pointer,
            said,
            blocks,
            device_pointer,
            workspace_pointer,
            size,
            load_pointer,
            told.pointer(),
        )
    };
    if !told.judge(status, h) {
        assert_eq!(load.memory[0], 7);
    }
}

fn allocator(h: &mut Hostile<'_, '_>) {
    let solver = h.value(17);
    let capacity = if h.seldom(4) { h.number() } else { h.u.int_in_range(0..=1 << 16).unwrap_or(0) };
    let alignment = if h.seldom(4) { h.number() } else { 0 };
    let (events, live) = if h.seldom(8) {
        (h.number(), h.number())
    } else {
        (h.u.int_in_range(1..=64).unwrap_or(1), h.u.int_in_range(1..=32).unwrap_or(1))
    };
    // The range is never touched: any address does that leaves room behind it, or has to be refused.
    let range = if h.seldom(4) { h.number() | 1 } else { 1 << 20 };
    let (seed, work, nodes) = (h.number(), h.effort(), h.effort());
    let words = [capacity, alignment, events, live, range, 0, 0, 0, seed, work, nodes];
    let mut params = h.params::<sublet_allocator_params>(solver, &words);
    let memory = &mut params.words.memory;
    if ((memory[0] & u64::from(u32::MAX)) as usize) < size_of::<sublet_allocator_params>() {
        // Without a range it would be the system's memory, as much as is asked for.
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
    // NULL and 0 is the system's memory.
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
        // A handle that is none.
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
                        let inside = address >= range as usize && address - range as usize + bytes <= capacity as usize;
                        assert!(inside, "{address} {bytes}");
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
                    // It is not counted, only addressed.
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
                        state: 7,
                        reserved: 7,
                    };
                    let status = sublet_stats(to, &raw mut statistics, error);
                    assert!(status != sublet_status::Ok || (statistics.state < 3 && statistics.reserved == 0));
                    status
                }
            }
        };
        told.judge(status, h);
    }
    // SAFETY: it was made above, and nobody else has it.
    unsafe { sublet_allocator_destroy(handle) };
}

/// A plan for blocks on top of each other, or one that is none.
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
