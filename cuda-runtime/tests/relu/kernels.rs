//! The kernels' own source, compiled for the host with `kernels/emulate.h`, against the processor's implementation.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard};

use half::{bf16, f16};
use libloading::Library;
use sublet_cuda::relu::{Activation, Format, cpu, mask_words};

use crate::naive::{Number, any_nan, assert_agree};

/// `Range` of `emulate.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Range {
    begin: u64,
    end: u64,
}

impl Range {
    const NONE: Self = Self { begin: 0, end: 0 };

    fn of<T>(slice: &[T]) -> Self {
        let range = slice.as_ptr_range();
        Self { begin: range.start.addr() as u64, end: range.end.addr() as u64 }
    }
}

/// `Launch` of `emulate.h`.
#[repr(C)]
struct Launch {
    readable: [Range; 2],
    writable: [Range; 2],
    bytes_read: u64,
    bytes_written: u64,
    widest: u64,
    fault: *const c_char,
}

type Emulate =
    unsafe extern "C" fn(*const c_char, u32, u32, *const c_void, *mut c_void, *mut u32, u64, f32, *mut Launch) -> bool;

/// What a launch did.
#[derive(Debug, PartialEq)]
struct Traffic {
    read: u64,
    written: u64,
    widest: u64,
}

struct Emulator {
    library: Library,
    /// A launch has the emulator for itself.
    _alone: MutexGuard<'static, Option<PathBuf>>,
}

/// Compiled once; then where it is.
static COMPILED: Mutex<Option<PathBuf>> = Mutex::new(None);

impl Emulator {
    /// None, and a message, without a compiler.
    fn new() -> Option<Self> {
        let mut compiled = COMPILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if compiled.is_none() {
            let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
            let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels.so");
            let runs =
                |compiler: &&&str| Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success());
            let Some(program) = ["c++", "g++", "clang++"].iter().find(runs).filter(|_| cfg!(target_os = "linux"))
            else {
                eprintln!("skipped: the kernels on the host; there is no C++ compiler, or this is not Linux");
                return None;
            };
            let output = Command::new(program)
                .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas", "-shared", "-fPIC"])
                .arg(kernels.join("emulate.cpp"))
                .arg("-o")
                .arg(&to)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            *compiled = Some(to);
        }
        // SAFETY: the library that was just made; loading it runs nothing.
        let library = unsafe { Library::new(compiled.as_ref().unwrap()) }.unwrap();
        Some(Self { library, _alone: compiled })
    }

    /// Runs a kernel over a grid as large as a launch on a GPU makes it.
    fn run<E: Number>(&self, name: &str, data: &mut Data<'_, E>, slope: f32) -> Result<Traffic, String> {
        let (input, output, n) = (data.input, data.output, data.n as u64);
        let mut launch = Launch {
            readable: data.readable,
            writable: data.writable,
            bytes_read: 0,
            bytes_written: 0,
            widest: 0,
            fault: std::ptr::null(),
        };
        let tile = if E::FORMAT == Format::F32 { 512 } else { 1024 };
        let blocks = u32::try_from(data.n.div_ceil(8 * tile)).unwrap();
        let name = CString::new(name).unwrap();
        // SAFETY: the signature is that of emulate.cpp; the emulator touches nothing outside of the given ranges, which
        // the slices behind `data` are.
        let known = unsafe {
            let emulate = self.library.get::<Emulate>(b"emulate\0").unwrap();
            let mask = data.mask.as_mut_ptr();
            emulate(name.as_ptr(), blocks, 256, input.cast(), output.cast(), mask, n, slope, &raw mut launch)
        };
        assert!(known, "there is no kernel {name:?}");
        if launch.fault.is_null() {
            let Launch { bytes_read: read, bytes_written: written, widest, .. } = launch;
            return Ok(Traffic { read, written, widest });
        }
        // SAFETY: a literal of the library, which is loaded.
        Err(unsafe { CStr::from_ptr(launch.fault) }.to_str().unwrap().to_owned())
    }
}

/// Arguments of a launch, and what it may touch.
struct Data<'a, E> {
    input: *const E,
    output: *mut E,
    mask: &'a mut [u32],
    n: usize,
    readable: [Range; 2],
    writable: [Range; 2],
}

impl<'a, E: Number> Data<'a, E> {
    fn forward(x: &'a [E], y: &'a mut [E], mask: &'a mut [u32]) -> Self {
        let (readable, writable) = ([Range::of(x), Range::NONE], [Range::of(y), Range::of(mask)]);
        Self { input: x.as_ptr(), output: y.as_mut_ptr(), mask, n: x.len(), readable, writable }
    }

    fn backward(dy: &'a [E], dx: &'a mut [E], mask: &'a mut [u32]) -> Self {
        let (readable, writable) = ([Range::of(dy), Range::of(mask)], [Range::of(dx), Range::NONE]);
        Self { input: dy.as_ptr(), output: dx.as_mut_ptr(), mask, n: dy.len(), readable, writable }
    }

    /// One array for both.
    fn in_place(both: &'a mut [E], mask: &'a mut [u32]) -> Self {
        let (data, words) = (Range::of(both), Range::of(mask));
        let output = both.as_mut_ptr();
        Self { input: output, output, mask, n: both.len(), readable: [data, words], writable: [data, words] }
    }
}

/// Elements behind so many others that follow an address at a multiple of 16.
struct At<E> {
    memory: Vec<E>,
    from: usize,
    n: usize,
}

impl<E: Number> At<E> {
    fn new(elements: &[E], shift: usize) -> Self {
        let mut memory = vec![E::of(0x5555_5555); elements.len() + shift + 16];
        let from = memory.as_ptr().align_offset(16) + shift;
        memory[from..from + elements.len()].copy_from_slice(elements);
        Self { memory, from, n: elements.len() }
    }

    fn slice(&mut self) -> &mut [E] {
        &mut self.memory[self.from..self.from + self.n]
    }
}

fn random(n: usize) -> Vec<u32> {
    let mut state = n as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(state >> 32).unwrap()
    };
    // Every eighth is one of those that are easily treated wrongly, in all formats.
    let edges = [0, 0x8000_8000, 0x7fc0_7e00, 0xffc1_fe01, 0x7f80_7c00, 0xff80_fc00, 0x0001_0001, 0x8001_8001];
    (0..n).map(|_| (next(), next())).map(|(a, b)| if a % 8 == 0 { edges[b as usize % 8] } else { b }).collect()
}

/// All four kernels of an activation and a format, at these positions.
fn check<E: Number>(emulator: &Emulator, activation: Activation, n: usize, shifts: [usize; 2]) {
    let (kind, slope) = match activation {
        Activation::Relu => ("relu", 0.0),
        Activation::Leaky(slope) => ("leaky_relu", slope),
    };
    let format = match E::FORMAT {
        Format::F32 => "f32",
        Format::F16 => "f16",
        Format::Bf16 => "bf16",
    };
    let (forward, backward) = (format!("sublet_{kind}_forward_{format}"), format!("sublet_{kind}_backward_{format}"));
    let what = format!("{kind} {format}, {n} at {shifts:?}");
    let numbers: Vec<E> = random(n).into_iter().map(E::of).collect();
    let (words, bytes) = (mask_words(n), (n * E::FORMAT.bytes()) as u64);
    let mask_bytes = 4 * words as u64;

    let (mut y, mut mask) = (vec![E::of(0); n], vec![0; words]);
    cpu::forward(activation, &numbers, &mut y, &mut mask).unwrap();
    let mut dx = vec![E::of(0); n];
    cpu::backward(activation, &numbers, &mask, &mut dx).unwrap();

    // What is lent beside the arrays would be told; so would an element that is read or written twice, by the sums.
    let mut x = At::new(&numbers, shifts[0]);
    let mut to = At::new(&vec![E::of(0x5555_5555); n], shifts[1]);
    let mut found = vec![0x5a5a_5a5a; words];
    let traffic = emulator.run(&forward, &mut Data::forward(x.slice(), to.slice(), &mut found), slope).expect(&what);
    assert_agree(&what, any_nan(activation), to.slice(), &y);
    assert_eq!(found, mask, "{what}");
    let tile = if E::FORMAT == Format::F32 { 512 } else { 1024 };
    let widest = match n {
        0 => 0,
        _ if n >= tile && shifts.iter().all(|shift| shift * E::FORMAT.bytes() % 16 == 0) => 16,
        _ => 4,
    };
    assert_eq!(traffic, Traffic { read: bytes, written: bytes + mask_bytes, widest }, "{what}");

    let mut both = At::new(&numbers, shifts[0]);
    found.fill(0x5a5a_5a5a);
    let traffic = emulator.run(&forward, &mut Data::in_place(both.slice(), &mut found), slope).expect(&what);
    assert_agree(&what, any_nan(activation), both.slice(), &y);
    assert_eq!((found.as_slice(), traffic.read), (mask.as_slice(), bytes), "{what}");

    let mut dy = At::new(&numbers, shifts[0]);
    let mut to = At::new(&vec![E::of(0x5555_5555); n], shifts[1]);
    let traffic = emulator.run(&backward, &mut Data::backward(dy.slice(), to.slice(), &mut found), slope).expect(&what);
    assert_agree(&what, any_nan(activation), to.slice(), &dx);
    assert_eq!(traffic, Traffic { read: bytes + mask_bytes, written: bytes, widest }, "{what}");

    let mut both = At::new(&numbers, shifts[1]);
    emulator.run(&backward, &mut Data::in_place(both.slice(), &mut found), slope).expect(&what);
    assert_agree(&what, any_nan(activation), both.slice(), &dx);
    assert_eq!(found, mask, "{what}: backward writes no mask");
}

fn check_formats(emulator: &Emulator, n: usize, shifts: [usize; 2]) {
    for activation in [Activation::Relu, Activation::Leaky(0.01), Activation::Leaky(-2.5)] {
        check::<f32>(emulator, activation, n, shifts);
        check::<f16>(emulator, activation, n, shifts);
        check::<bf16>(emulator, activation, n, shifts);
    }
}

#[test]
fn every_length_around_the_edges_of_words_tiles_and_blocks() {
    let Some(emulator) = Emulator::new() else { return };
    let near = |edge: usize| edge.saturating_sub(2)..edge + 3;
    let edges = [0, 32, 64, 512, 1024, 1536, 4096, 8192, 20_000];
    for n in edges.into_iter().flat_map(near) {
        check_formats(&emulator, n, [0, 0]);
    }
}

#[test]
fn every_start() {
    let Some(emulator) = Emulator::new() else { return };
    for from in 0..8 {
        for to in [0, 1, 4, 7] {
            check_formats(&emulator, 1100, [from, to]);
        }
    }
}

#[test]
fn every_number_of_sixteen_bits() {
    fn all<E: Number>(emulator: &Emulator, format: &str) {
        let numbers: Vec<E> = (0..=0xffff).map(E::of).collect();
        for (kind, activation) in [("relu", Activation::Relu), ("leaky_relu", Activation::Leaky(0.3))] {
            let (mut y, mut mask) = (numbers.clone(), vec![0; 2048]);
            cpu::forward_in_place(activation, &mut y, &mut mask).unwrap();
            let (mut both, mut found) = (At::new(&numbers, 0), vec![0; 2048]);
            let name = format!("sublet_{kind}_forward_{format}");
            emulator.run(&name, &mut Data::in_place(both.slice(), &mut found), 0.3).unwrap();
            assert_agree(&name, any_nan(activation), both.slice(), &y);
            assert_eq!(found, mask, "{name}");
        }
    }
    let Some(emulator) = Emulator::new() else { return };
    all::<f16>(&emulator, "f16");
    all::<bf16>(&emulator, "bf16");
}

/// The emulator notices what it is there to notice.
#[test]
fn a_kernel_that_leaves_its_arrays_is_told() {
    let Some(emulator) = Emulator::new() else { return };
    let mut memory = At::new(&[1.0_f32; 512], 0);
    let mut mask = [0; 16];
    let mut short = Data::in_place(memory.slice(), &mut mask);
    short.writable[0].end -= 4;
    assert_eq!(emulator.run("sublet_relu_forward_f32", &mut short, 0.0), Err("an access outside of the arrays".into()));
    let mut memory = At::new(&[1.0_f32; 33], 0);
    let mut short = Data::in_place(memory.slice(), &mut mask[..1]);
    assert_eq!(emulator.run("sublet_relu_forward_f32", &mut short, 0.0), Err("an access outside of the arrays".into()));
    let mut memory = At::new(&[1.0_f32; 8], 0);
    let mut odd = Data::in_place(memory.slice(), &mut mask);
    odd.input = odd.input.wrapping_byte_add(2);
    assert_eq!(emulator.run("sublet_relu_forward_f32", &mut odd, 0.0), Err("an access that is not aligned".into()));
}
