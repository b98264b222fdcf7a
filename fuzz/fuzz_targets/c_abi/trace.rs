//! Functions that take traces, recorded or rewritten.

use std::ptr;

use sublet::block::*;
use sublet::device::*;
use sublet::fit::*;
use sublet::iteration::*;
use sublet::lifetimes::*;
use sublet::schedule::*;
use sublet::simulate::*;
use sublet::status::*;
use sublet::trace::*;

use crate::hostile::{Buffer, Hostile, Told, Trace, asked};

const RESIDENCY: sublet_residency = sublet_residency { block: 7, ordinal: 7 };
const BLOCK: sublet_block = sublet_block { start: 7, end: 3, size: 0, alignment: 3, pin: 5, flags: 9 };
const TIMING: sublet_timing = sublet_timing { reached: f64::NAN, begin: f64::NAN, end: f64::NAN };
const RUN: sublet_run = sublet_run {
    struct_size: size_of::<sublet_run>() as u32,
    reserved: 0,
    time_ns: 7.0,
    original_ns: 7,
    swapped_bytes: 7,
    peak_load: 7,
    host_bytes: 7,
    recomputed_ns: 7,
};

/// A schedule whose rows are those of the trace, with offsets one above the other.
struct Schedule {
    offsets: Buffer<u64>,
    counts: sublet_schedule,
}

impl Schedule {
    fn of(trace: &Trace) -> Self {
        let mut top = 0u64;
        let rows = &trace.rows.memory[..trace.rows.len];
        let offsets = rows.iter().filter(|r| r.event == 0).map(|r| {
            top = top.saturating_add(r.bytes);
            top.saturating_sub(r.bytes)
        });
        let counts = sublet_schedule {
            struct_size: size_of::<sublet_schedule>() as u32,
            reserved: 0,
            rows: ptr::null(),
            row_count: rows.len(),
            offsets: ptr::null(),
            residency_count: trace.mallocs(),
        };
        Self { offsets: Buffer::of(offsets.collect(), 0), counts }
    }

    /// The struct of the schedule as C gets it, with pointers and lengths that may be wrong. Its rows are the trace's
    /// own array: arguments that are only read may share memory.
    fn told(&mut self, h: &mut Hostile<'_, '_>, trace: &mut Trace) -> crate::hostile::Params {
        let mut told = self.counts;
        (told.rows, told.offsets) = (h.pointer(&mut trace.rows, false), h.pointer(&mut self.offsets, false));
        (told.row_count, told.residency_count) = (h.length(told.row_count), h.length(told.residency_count));
        h.given(told)
    }
}

pub(crate) fn lifetimes(h: &mut Hostile<'_, '_>) {
    let mut trace = h.trace(false);
    let mallocs = trace.mallocs();
    let residencies = if h.seldom(12) { mallocs / 2 } else { mallocs };
    h.spoiled |= residencies < mallocs;
    let counts = trace.counts();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_lifetimes_workspace(&counts, residencies, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let (mut lives, mut names) =
        (Buffer::of(vec![BLOCK; residencies], BLOCK), Buffer::of(vec![RESIDENCY; residencies], RESIDENCY));
    let mut count = Buffer::of(vec![usize::MAX], 0);
    let mut told = Told::new(h);
    let mut given = h.told(&mut trace);
    let trace_pointer = h.given_pointer(&mut given);
    let residencies = h.length(residencies);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (lives_pointer, names_pointer) = (h.pointer(&mut lives, false), h.pointer(&mut names, true));
    let count_pointer = h.pointer(&mut count, true);
    let count_pointer = h.alias(count_pointer, &count, lives_pointer, &lives);
    // SAFETY: as above.
    let status = unsafe {
        sublet_lifetimes(
            trace_pointer,
            workspace_pointer,
            size,
            lives_pointer,
            names_pointer,
            residencies,
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

pub(crate) fn simulate(h: &mut Hostile<'_, '_>) {
    let mut trace = h.trace(true);
    let mut schedule = Schedule::of(&trace);
    let (n, counts, rewritten) = (trace.rows.len, trace.counts(), schedule.counts);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_simulate_workspace(&counts, &rewritten, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut timings = Buffer::of(vec![TIMING; n], TIMING);
    let mut run = Buffer::of(vec![RUN], RUN);
    let mut told = Told::new(h);
    let (mut given, mut given_schedule) = (h.told(&mut trace), schedule.told(h, &mut trace));
    let (trace_pointer, schedule_pointer) = (h.given_pointer(&mut given), h.given_pointer(&mut given_schedule));
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (timings_pointer, run_pointer) = (h.pointer(&mut timings, true), h.pointer(&mut run, true));
    let run_pointer = h.alias(run_pointer, &run, timings_pointer, &timings);
    let timings_pointer = h.alias(timings_pointer, &timings, trace_pointer, &given.words);
    // SAFETY: as above.
    let status = unsafe {
        sublet_simulate(
            trace_pointer.cast(),
            schedule_pointer,
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

pub(crate) fn schedule(h: &mut Hostile<'_, '_>) {
    let mut trace = h.trace(true);
    let mut schedule = Schedule::of(&trace);
    let (n, counts, rewritten) = (trace.rows.len, trace.counts(), schedule.counts);
    let once = h.value(2);
    let mut params = h.params::<sublet_schedule_params>(once, &[0, 0]);
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked =
        asked(|layout| unsafe { sublet_verify_schedule_workspace(&counts, &rewritten, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut timings = Buffer::of(vec![TIMING; n], TIMING);
    let nothing = sublet_verified {
        struct_size: size_of::<sublet_verified>() as u32,
        reserved: 0,
        peak: 7,
        max_load: 7,
        run: RUN,
    };
    let mut verified = Buffer::of(vec![nothing], nothing);
    let mut told = Told::new(h);
    let (mut given, mut given_schedule) = (h.told(&mut trace), schedule.told(h, &mut trace));
    let (trace_pointer, schedule_pointer) = (h.given_pointer(&mut given), h.given_pointer(&mut given_schedule));
    let params_pointer = h.params_pointer(&mut params);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let (timings_pointer, verified_pointer) = (h.pointer(&mut timings, true), h.pointer(&mut verified, true));
    let verified_pointer = h.alias(verified_pointer, &verified, timings_pointer, &timings);
    // SAFETY: as above.
    let status = unsafe {
        sublet_verify_schedule(
            trace_pointer,
            schedule_pointer,
            params_pointer,
            workspace_pointer,
            size,
            timings_pointer,
            verified_pointer,
            told.pointer(),
        )
    };
    if !told.judge(status, h) {
        assert_eq!((verified.memory[0].run.swapped_bytes, verified.memory[0].peak), (7, 7));
    }
}

pub(crate) fn fit(h: &mut Hostile<'_, '_>) {
    let mut trace = h.trace(true);
    let (reserved, least, seed, work) = (h.value(1), h.number(), h.number(), h.effort());
    let means = h.value(64);
    let mut params = h.params::<sublet_fit_params>(reserved, &[least, seed, work, means.into()]);
    let mut lengths = sublet_fit_lengths { rows: 0, residencies: 0 };
    let mut counts = trace.counts();
    let mut output = sublet_fit_output {
        struct_size: size_of::<sublet_fit_output>() as u32,
        reserved: 0,
        rows: ptr::null_mut(),
        timings: ptr::null_mut(),
        row_capacity: 0,
        offsets: ptr::null_mut(),
        blocks: ptr::null_mut(),
        names: ptr::null_mut(),
        residency_capacity: 0,
    };
    (counts.rows, counts.operators) = (trace.rows.memory.as_ptr(), trace.operators.memory.as_ptr());
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let (told_lengths, asked) = unsafe {
        let told = sublet_fit_lengths_of(&counts, &raw mut lengths, ptr::null_mut());
        (output.row_capacity, output.residency_capacity) = (lengths.rows, lengths.residencies);
        (told, asked(|layout| sublet_fit_workspace(&counts, &output, layout, ptr::null_mut())))
    };
    assert_ne!(told_lengths, sublet_status::Panicked);
    // A trace with so many block numbers that memory for it is not lent here.
    let most = lengths.rows.max(lengths.residencies).max(asked.unwrap_or(0));
    if most > 1 << 22 || told_lengths != sublet_status::Ok {
        return;
    }
    let (mut workspace, size) = h.workspace(asked);
    let shorter = if h.seldom(12) { 1 } else { 0 };
    let (row_capacity, residency_capacity) = (lengths.rows.saturating_sub(shorter), lengths.residencies);
    h.spoiled |= row_capacity < lengths.rows;
    let filler = sublet_row { time_ns: 9, bytes: 9, block: 9, event: 9, op: 9, op_kind: 9 };
    let (mut rewritten, mut timings) =
        (Buffer::of(vec![filler; row_capacity], filler), Buffer::of(vec![TIMING; row_capacity], TIMING));
    let (mut lives, mut names, mut offsets) = (
        Buffer::of(vec![BLOCK; residency_capacity], BLOCK),
        Buffer::of(vec![RESIDENCY; residency_capacity], RESIDENCY),
        Buffer::of(vec![!0u64; residency_capacity], 0),
    );
    let struct_size = size_of::<sublet_fitted>() as u32;
    let nothing = sublet_fitted {
        struct_size,
        row_count: 7,
        residency_count: 7,
        peak: 7,
        original_peak: 7,
        run: RUN,
        reserved: 7,
    };
    let mut fitted = Buffer::of(vec![nothing], nothing);
    let limit = h.number() << h.u.int_in_range(0..=20).unwrap_or(0);
    let mut told = Told::new(h);
    let mut given = h.told(&mut trace);
    let trace_pointer = h.given_pointer(&mut given);
    let params_pointer = h.params_pointer(&mut params);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    (output.rows, output.timings) = (h.pointer(&mut rewritten, false), h.pointer(&mut timings, true));
    (output.blocks, output.names) = (h.pointer(&mut lives, true), h.pointer(&mut names, true));
    output.offsets = h.pointer(&mut offsets, false);
    output.offsets = h.alias(output.offsets, &offsets, output.rows, &rewritten);
    let fitted_pointer = h.pointer(&mut fitted, false);
    let fitted_pointer = h.alias(fitted_pointer, &fitted, output.rows, &rewritten);
    (output.row_capacity, output.residency_capacity) = (h.length(row_capacity), h.length(residency_capacity));
    let mut given_output = h.given(output);
    let output_pointer = h.given_pointer(&mut given_output);
    // SAFETY: as above.
    let status = unsafe {
        sublet_fit(
            trace_pointer,
            limit,
            params_pointer,
            workspace_pointer,
            size,
            output_pointer,
            fitted_pointer,
            told.pointer(),
        )
    };
    let done = fitted.memory[0];
    if told.judge(status, h) {
        assert!(done.peak <= limit && done.row_count <= row_capacity && done.residency_count <= residency_capacity);
        assert!(rewritten.memory[..done.row_count].iter().all(|r| r.event < 6));
    } else {
        assert_eq!(done.peak, 7);
    }
}

pub(crate) fn load_without_overhead(h: &mut Hostile<'_, '_>) {
    let mut trace = h.trace(false);
    let counts = trace.counts();
    // SAFETY: what the pointers point to is there, or they are what has to be refused.
    let asked = asked(|layout| unsafe { sublet_load_without_overhead_workspace(&counts, layout, ptr::null_mut()) });
    let (mut workspace, size) = h.workspace(asked);
    let mut load = Buffer::of(vec![7u64], 0);
    let mut told = Told::new(h);
    let mut given = h.told(&mut trace);
    let trace_pointer = h.given_pointer(&mut given);
    let workspace_pointer = h.pointer(&mut workspace, false).cast();
    let load_pointer = h.pointer(&mut load, false);
    // SAFETY: as above.
    let status =
        unsafe { sublet_load_without_overhead(trace_pointer, workspace_pointer, size, load_pointer, told.pointer()) };
    if !told.judge(status, h) {
        assert_eq!(load.memory[0], 7);
    }
}

/// Devices by their names.
pub(crate) fn device_named(h: &mut Hostile<'_, '_>) {
    let names: Vec<&str> = sublet_core::simulate::Device::names().collect();
    let (text, known) = h.name(&names);
    h.spoiled |= !known;
    let right = size_of::<sublet_device>() as u32;
    let mut device = Buffer::of(vec![sublet_device { struct_size: right, ..DEVICE }], DEVICE);
    let mut told = Told::new(h);
    let pointer = h.pointer(&mut device, false);
    // SAFETY: the text ends; what the pointers point to is there, or they are what has to be refused.
    let status = unsafe { sublet_device_named(text.as_ptr().cast(), pointer, told.pointer()) };
    let sublet_device { struct_size, flags, out_bandwidth, .. } = device.memory[0];
    if told.judge(status, h) {
        assert!(struct_size as usize == size_of::<sublet_device>() && flags < 2 && out_bandwidth > 1e9);
    } else {
        assert_eq!((struct_size, flags), (right, 7));
    }
}

const DEVICE: sublet_device = sublet_device {
    struct_size: 7,
    flags: 7,
    out_bandwidth: 7.0,
    in_bandwidth: 7.0,
    out_latency: 7.0,
    in_latency: 7.0,
    host_capacity: 7,
};
