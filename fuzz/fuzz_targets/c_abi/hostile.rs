//! Makes arguments of calls, some of them wrong, and checks whether the library says that something is wrong.

use std::ffi::{CStr, c_char};
use std::ptr;

use arbitrary::{Arbitrary, Unstructured};
use sublet::block::*;
use sublet::device::*;
use sublet::error::*;
use sublet::iteration::*;
use sublet::operator::*;
use sublet::place::sublet_solver_name;
use sublet::status::*;
use sublet::trace::*;
use sublet::verify::sublet_certificate;
use sublet::workspace::sublet_layout;
use sublet_fuzz::{blocks, number, trace};

/// A certificate before a call: a call that fails must not change it.
pub(crate) const CERTIFICATE: sublet_certificate =
    sublet_certificate { struct_size: size_of::<sublet_certificate>() as u32, reserved: 0, peak: 7, max_load: 7 };

/// Draws the arguments of a call, and now and then makes one of them wrong.
pub(crate) struct Hostile<'a, 'b> {
    pub(crate) u: &'a mut Unstructured<'b>,
    /// Whether an argument of this call is so wrong that the call has to fail.
    pub(crate) spoiled: bool,
}

/// Memory that is lent to C. It has one element more than `len`, so that a pointer that is moved by a byte still points
/// to memory.
pub(crate) struct Buffer<T> {
    pub(crate) memory: Vec<T>,
    pub(crate) len: usize,
}

impl<T: Copy> Buffer<T> {
    pub(crate) fn of(mut memory: Vec<T>, filler: T) -> Self {
        let len = memory.len();
        memory.push(filler);
        Self { memory, len }
    }
}

impl Hostile<'_, '_> {
    /// True in one of `of` calls.
    pub(crate) fn seldom(&mut self, of: u32) -> bool {
        self.u.ratio(1, of).unwrap_or(false)
    }

    /// A pointer to the buffer: most often right, sometimes NULL or misaligned. NULL is not wrong if the buffer is
    /// empty or the argument `optional`.
    pub(crate) fn pointer<T>(&mut self, buffer: &mut Buffer<T>, optional: bool) -> *mut T {
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

    /// A length: most often `len`, otherwise one that is far too large.
    pub(crate) fn length(&mut self, len: usize) -> usize {
        if !self.seldom(24) {
            return len;
        }
        self.spoiled = true;
        let absurd =
            [usize::MAX, usize::MAX / 8, 1 << 63, 1 << 60, 1 << 40, (1 << 28) + 1, len.saturating_add(1 << 32)];
        *self.u.choose(&absurd).unwrap_or(&usize::MAX)
    }

    /// A struct of parameters: `struct_size`, which is most often right; then `second`, a number of 32 bits; then
    /// `words`.
    pub(crate) fn params<T>(&mut self, second: u32, words: &[u64]) -> Params {
        let mut memory = vec![0; 513];
        memory[1..=words.len()].copy_from_slice(words);
        let right = size_of::<T>() as u32;
        let size = if self.seldom(8) { self.u.arbitrary().unwrap_or(0) } else { right };
        memory[0] = u64::from(size) | u64::from(second) << 32;
        // A field of a later version, which the library does not know.
        let unknown = self.seldom(12);
        if unknown {
            memory[size_of::<T>() / 8] = 1;
        }
        let refused = !(4..=4096).contains(&size) || (unknown && size > right);
        Params { words: Buffer { memory, len: 512 }, refused }
    }

    /// A pointer to parameters; NULL, which stands for the defaults, is not wrong.
    pub(crate) fn params_pointer<T>(&mut self, params: &mut Params) -> *mut T {
        let pointer = self.pointer(&mut params.words, true);
        self.spoiled |= !pointer.is_null() && params.refused;
        pointer.cast()
    }

    /// A number for an enum with `of` values: most often one of the values.
    pub(crate) fn value(&mut self, of: u32) -> u32 {
        if self.seldom(16) { self.u.arbitrary().unwrap_or(0) } else { self.u.int_in_range(0..=of - 1).unwrap_or(0) }
    }

    /// The number of a solver: most often one that exists.
    pub(crate) fn solver(&mut self) -> u32 {
        let is_named = |&solver: &u32| !sublet_solver_name(solver).is_null();
        self.value((0..).take_while(is_named).fold(0, |count, _| count + 1))
    }

    pub(crate) fn number(&mut self) -> u64 {
        number(self.u).unwrap_or(0)
    }

    /// A small budget of work or nodes, so that a call ends soon.
    pub(crate) fn effort(&mut self) -> u64 {
        self.u.int_in_range(1..=100).unwrap_or(1)
    }

    /// A workspace of the size that the library asks for, or a shorter one; and its size in bytes.
    pub(crate) fn workspace(&mut self, asked: std::result::Result<usize, sublet_status>) -> (Buffer<u64>, usize) {
        let size = asked.unwrap_or(64).min(1 << 22);
        let shorter = if self.seldom(16) { self.u.int_in_range(0..=size).unwrap_or(0) } else { size };
        self.spoiled |= shorter < size;
        (Buffer::of(vec![!9; shorter.div_ceil(8)], 0), shorter)
    }

    pub(crate) fn blocks(&mut self) -> Buffer<sublet_block> {
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

    /// The rows of a trace, and how many block numbers it is said to have.
    pub(crate) fn rows(&mut self) -> (Buffer<sublet_row>, usize) {
        let trace = trace::Trace::arbitrary(self.u).unwrap_or(trace::Trace { rows: Vec::new(), blocks: 0 });
        let wild = self.seldom(8);
        let mut rows = Vec::new();
        for r in &trace.rows {
            let (op_kind, op) = match r.op {
                sublet_core::trace::Op::None => (0, 0),
                sublet_core::trace::Op::First(k) => (1, k),
                sublet_core::trace::Op::Rerun(k) => (2, k),
            };
            let strange = wild && self.seldom(16);
            let event = if strange { self.u.arbitrary().unwrap_or(9) } else { r.event as u32 };
            rows.push(sublet_row { time_ns: r.time_ns, bytes: r.bytes, block: r.block, event, op, op_kind });
        }
        let filler = sublet_row { time_ns: 0, bytes: 0, block: 0, event: 0, op: 0, op_kind: 0 };
        (Buffer::of(rows, filler), trace.blocks)
    }

    pub(crate) fn device(&mut self) -> Params {
        let device = trace::device(self.u).unwrap_or(sublet_core::simulate::Device::symmetric(12e9));
        let bandwidths = [device.out_bandwidth, device.in_bandwidth, device.out_latency, device.in_latency];
        let [a, b, c, d] = bandwidths.map(f64::to_bits);
        let flags = if self.seldom(32) { 6 } else { u32::from(device.integrated) };
        let mut params = self.params::<sublet_device>(flags, &[a, b, c, d, device.host_capacity.unwrap_or(0)]);
        // If the struct is said to have 4 bytes, the library does not read the flags.
        let size = params.words.memory[0] & u64::from(u32::MAX);
        params.refused |= flags > SUBLET_DEVICE_INTEGRATED && size > 4;
        params
    }

    /// Descriptions of operators, now and then with a wrong value.
    pub(crate) fn operators(&mut self) -> Buffer<sublet_operator> {
        let mut list = Vec::new();
        for _ in 0..self.u.int_in_range(0..=6).unwrap_or(0) {
            let [flags, kind, element] = [self.value(8), self.value(3), self.value(3)];
            self.spoiled |= flags > 7 || kind > 2 || !matches!(element, 0 | 1 | 2 | 4 | 8);
            list.push(sublet_operator { flags, kind, element });
        }
        Buffer::of(list, sublet_operator { flags: 0, kind: 0, element: 0 })
    }

    /// A trace. Operators are described only if `are_operators_told`: some functions do not read the descriptions, and
    /// would not find what is wrong.
    pub(crate) fn trace(&mut self, are_operators_told: bool) -> Trace {
        let (rows, blocks) = self.rows();
        let none = Buffer::of(Vec::new(), sublet_operator { flags: 0, kind: 0, element: 0 });
        let operators = if are_operators_told { self.operators() } else { none };
        Trace { rows, operators, blocks, device: self.device() }
    }

    /// The struct of the trace as C gets it, with pointers and lengths that may be wrong.
    pub(crate) fn told(&mut self, trace: &mut Trace) -> Params {
        let mut told = trace.counts();
        told.rows = self.pointer(&mut trace.rows, false);
        told.operators = self.pointer(&mut trace.operators, false);
        told.device = self.params_pointer(&mut trace.device);
        for count in [&mut told.row_count, &mut told.operator_count, &mut told.block_count] {
            *count = self.length(*count);
        }
        self.given(told)
    }

    /// A struct that must not be NULL. Its size is most often right, and never so short, if it is valid, that the
    /// library would not see all fields.
    pub(crate) fn given<T: Copy>(&mut self, value: T) -> Params {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let mut memory = vec![0u64; 513];
        // SAFETY: the words are more than the value takes, and as aligned.
        unsafe { memory.as_mut_ptr().cast::<T>().write(value) };
        let right = size_of::<T>() as u32;
        let mut size = right;
        if self.seldom(16) {
            size = *self.u.choose(&[0, 3, 4097, u32::MAX, right + 8, right + 64]).unwrap_or(&0);
        }
        memory[0] = memory[0] & !u64::from(u32::MAX) | u64::from(size);
        let unknown = self.seldom(16);
        if unknown {
            memory[size_of::<T>() / 8] = 1;
        }
        let refused = !(4..=4096).contains(&size) || (unknown && size > right);
        Params { words: Buffer { memory, len: 512 }, refused }
    }

    /// A pointer to a struct that must not be NULL.
    pub(crate) fn given_pointer<T>(&mut self, params: &mut Params) -> *mut T {
        let pointer = self.pointer(&mut params.words, false);
        self.spoiled |= params.refused;
        pointer.cast()
    }

    /// A pointer to an output: most often `own`, otherwise `other`, the memory of another argument, which has to be
    /// refused.
    pub(crate) fn alias<T, U>(&mut self, own: *mut T, buffer: &Buffer<T>, other: *mut U, of: &Buffer<U>) -> *mut T {
        let shared = buffer.len > 0 && of.len > 0 && !own.is_null() && !other.is_null();
        if shared && self.seldom(24) {
            self.spoiled = true;
            return other.cast();
        }
        own
    }

    /// A pointer to a handle: most often right, sometimes NULL or misaligned.
    pub(crate) fn handle<T>(&mut self, handle: *mut T) -> *mut T {
        let to = match self.u.int_in_range(0..=63).unwrap_or(0) {
            62 => ptr::null_mut(),
            63 => handle.wrapping_byte_add(1),
            _ => handle,
        };
        self.spoiled |= to != handle;
        to
    }

    /// A text that ends with a zero byte, most often one of the names; and whether it is one of them.
    pub(crate) fn name(&mut self, names: &[&str]) -> (Vec<u8>, bool) {
        let mut text = self.u.choose(names).unwrap_or(&"").as_bytes().to_vec();
        if self.seldom(3) {
            let at = self.u.int_in_range(0..=text.len()).unwrap_or(0);
            match self.u.int_in_range(0..=2).unwrap_or(0) {
                0 => text.truncate(at),
                1 => text.insert(at, self.u.int_in_range(1..=255).unwrap_or(1)),
                _ => text.clear(),
            }
        }
        let known = names.iter().any(|name| name.as_bytes() == text);
        // The memory ends with the text, so that a sanitizer sees a read beyond it.
        text.push(0);
        text.shrink_to_fit();
        (text, known)
    }
}

/// The arrays and the device that a trace points to.
pub(crate) struct Trace {
    pub(crate) rows: Buffer<sublet_row>,
    pub(crate) operators: Buffer<sublet_operator>,
    pub(crate) blocks: usize,
    pub(crate) device: Params,
}

impl Trace {
    /// The struct of the trace with right lengths, and NULL for all pointers.
    pub(crate) fn counts(&self) -> sublet_trace {
        sublet_trace {
            struct_size: size_of::<sublet_trace>() as u32,
            reserved: 0,
            rows: ptr::null(),
            row_count: self.rows.len,
            operators: ptr::null(),
            operator_count: self.operators.len,
            block_count: self.blocks,
            device: ptr::null(),
        }
    }

    pub(crate) fn mallocs(&self) -> usize {
        self.rows.memory[..self.rows.len].iter().filter(|r| r.event == 0).count()
    }
}

/// The words of a struct of parameters, and whether the library has to refuse it.
pub(crate) struct Params {
    pub(crate) words: Buffer<u64>,
    pub(crate) refused: bool,
}

/// The memory for the error of a call, and what pointer the call gets: a right one, NULL, or a misaligned one.
pub(crate) struct Told {
    memory: [sublet_error; 2],
    how: u8,
}

impl Told {
    pub(crate) fn new(h: &mut Hostile<'_, '_>) -> Self {
        let how = if h.seldom(16) { h.u.int_in_range(1..=2).unwrap_or(1) } else { 0 };
        h.spoiled |= how == 2;
        Self { memory: [sublet_error { status: -1, index: 7, needed: 7, got: 7 }; 2], how }
    }

    pub(crate) fn pointer(&mut self) -> *mut sublet_error {
        match self.how {
            0 => self.memory.as_mut_ptr(),
            1 => ptr::null_mut(),
            _ => self.memory.as_mut_ptr().wrapping_byte_add(1),
        }
    }

    /// Asserts that the status is not that of a fault of the library, that a call with wrong arguments has failed, and
    /// that the error says the same as the status. Returns whether the call has succeeded.
    pub(crate) fn judge(mut self, status: sublet_status, h: &Hostile<'_, '_>) -> bool {
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

/// The size in bytes that a function for the layout of a workspace tells, or the status with which it fails.
pub(crate) fn asked(
    tell: impl FnOnce(*mut sublet_layout) -> sublet_status,
) -> std::result::Result<usize, sublet_status> {
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
