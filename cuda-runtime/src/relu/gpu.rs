//! ReLU with a mask on a GPU: launches of the kernels in `kernels/relu.cu`.
//!
//! The kernels are part of the sources as PTX, which the driver compiles for the GPU when they are loaded. A launch
//! only gives a stream work, and does not wait for it.

use std::ffi::{c_char, c_uint, c_void};
use std::ptr;

use cudarc::driver::sys::{CUcontext, CUfunction, CUmodule, CUstream};

use super::{Activation, Error, Format, mask_words};
use crate::driver::{self, check};

/// Made of `kernels/relu.cu`; the driver wants a zero at the end.
const PTX: &str = concat!(include_str!("../../kernels/relu.ptx"), "\0");

/// Of a thread block; the kernels are compiled for this number.
const THREADS: u32 = 256;
/// Eight warps of 32 threads, each with four vectors of 16 bytes.
const BLOCK_BYTES: u64 = 8 * 32 * 4 * 16;

driver::functions! {
    Functions {
        current: "cuCtxGetCurrent" (*mut CUcontext);
        push: "cuCtxPushCurrent_v2" (CUcontext);
        pop: "cuCtxPopCurrent_v2" (*mut CUcontext);
        load_module: "cuModuleLoadData" (*mut CUmodule, *const c_void);
        find_kernel: "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
        unload_module: "cuModuleUnload" (CUmodule);
        launch_kernel: "cuLaunchKernel" (
            CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
            *mut *mut c_void
        );
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Forward,
    Backward,
}

/// The ReLU kernels, loaded into one CUDA context. Dropping this unloads the kernels from that context, whatever
/// context is current then.
pub struct Kernels {
    functions: Functions,
    context: CUcontext,
    module: CUmodule,
    /// In the order of [`NAMES`].
    entries: [CUfunction; NAMES.len()],
}

/// By activation, then direction, then format.
const NAMES: [&str; 12] = [
    "sublet_relu_forward_f32\0",
    "sublet_relu_forward_f16\0",
    "sublet_relu_forward_bf16\0",
    "sublet_relu_backward_f32\0",
    "sublet_relu_backward_f16\0",
    "sublet_relu_backward_bf16\0",
    "sublet_leaky_relu_forward_f32\0",
    "sublet_leaky_relu_forward_f16\0",
    "sublet_leaky_relu_forward_bf16\0",
    "sublet_leaky_relu_backward_f32\0",
    "sublet_leaky_relu_backward_f16\0",
    "sublet_leaky_relu_backward_bf16\0",
];

// SAFETY: handles of the driver, which any thread may use, several at once too.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

/// What a launch works on: addresses on the device, the size of the bit mask, and the number and format of the
/// elements. If the launch works in place, `from` and `to` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    /// The address of what the kernel reads: in the forward pass the inputs, in the backward pass the gradient of the
    /// outputs.
    pub from: u64,
    /// The address of what the kernel writes: in the forward pass the outputs, in the backward pass the gradient of the
    /// inputs.
    pub to: u64,
    /// The address of the mask, which takes [`mask_words`] words of 32 bits for `elements` elements.
    pub mask: u64,
    /// How much memory the mask has, in bytes; if it is too little, the launch is refused. For a mask that a plan has
    /// placed, it is the field `bytes` of the mask's [operand](crate::Operand).
    pub mask_bytes: u64,
    /// How many elements there are at `from`; there are as many at `to`.
    pub elements: u64,
    /// How each element is stored: as binary32, binary16 or bfloat16.
    pub format: Format,
}

impl Operands {
    fn check(&self) -> Result<u32, Error> {
        let width = self.format.bytes() as u64;
        for (address, alignment) in [(self.from, width), (self.to, width), (self.mask, 4)] {
            if address % alignment != 0 {
                return Err(Error::Misaligned { address, alignment });
            }
        }
        // A grid has at most 2^31 - 1 blocks.
        let most = u64::from(i32::MAX.cast_unsigned()) * (BLOCK_BYTES / width);
        let too_long = || Error::TooLong { elements: self.elements, most };
        let bytes = self.elements.checked_mul(width).ok_or_else(too_long)?;
        let blocks = i32::try_from(bytes.div_ceil(BLOCK_BYTES)).map(i32::cast_unsigned).map_err(|_| too_long())?;
        let words = usize::try_from(self.elements).map_err(|_| too_long())?;
        let mask_bytes = 4 * mask_words(words) as u64;
        if self.mask_bytes < mask_bytes {
            let got = usize::try_from(self.mask_bytes / 4).unwrap_or(usize::MAX);
            return Err(Error::Mask { needed: mask_words(words), got });
        }
        let apart = |a: u64, a_bytes: u64, b: u64, b_bytes: u64| a.abs_diff(b) >= if a < b { a_bytes } else { b_bytes };
        if self.from != self.to && !apart(self.from, bytes, self.to, bytes) {
            return Err(Error::Overlap { address: self.from.max(self.to) });
        }
        for data in [self.from, self.to] {
            if !apart(data, bytes, self.mask, mask_bytes) {
                return Err(Error::Overlap { address: data.max(self.mask) });
            }
        }
        Ok(blocks)
    }
}

impl Kernels {
    /// Loads the kernels into the CUDA context that is current for this thread. The context must outlive the kernels.
    ///
    /// # Errors
    /// [`Error::Driver`], also if no context is current.
    pub fn load() -> Result<Self, Error> {
        let functions = Functions::load()?;
        let mut context = ptr::null_mut();
        // SAFETY: a place for a handle.
        check("cuCtxGetCurrent", unsafe { (functions.current)(&raw mut context) })?;
        let mut module = ptr::null_mut();
        // SAFETY: the PTX ends with a zero; the result is a place for a handle.
        check("cuModuleLoadData", unsafe { (functions.load_module)(&raw mut module, PTX.as_ptr().cast()) })?;
        // From here on it is unloaded when something fails.
        let mut loaded = Self { functions, context, module, entries: [ptr::null_mut(); NAMES.len()] };
        for (entry, name) in loaded.entries.iter_mut().zip(NAMES) {
            // SAFETY: the module is loaded, the name ends with a zero.
            let found = unsafe { (functions.find_kernel)(&raw mut *entry, module, name.as_ptr().cast()) };
            check("cuModuleGetFunction", found)?;
        }
        Ok(loaded)
    }

    /// Launches the forward pass. From the inputs at `from` it computes the outputs at `to`, and the mask: one bit for
    /// each element, for the backward pass.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::Overlap`], [`Error::TooLong`], or [`Error::Mask`] for operands that the kernels
    /// cannot take; [`Error::Driver`] if the launch fails.
    ///
    /// # Safety
    /// The stream belongs to the context of these kernels, which is current. The operands lie in memory of the
    /// context's device, with the lengths given, until the launch is done on the stream; meanwhile nobody else uses
    /// what the launch writes.
    pub unsafe fn forward(&self, stream: CUstream, activation: Activation, operands: Operands) -> Result<(), Error> {
        // SAFETY: as promised.
        unsafe { self.launch(stream, activation, Direction::Forward, operands) }
    }

    /// Launches the backward pass. It computes the gradient of the inputs, at `to`, from the gradient of the outputs,
    /// at `from`, and the mask that the forward pass has written.
    ///
    /// # Errors
    /// [`Error::Misaligned`], [`Error::Overlap`], [`Error::TooLong`], or [`Error::Mask`] for operands that the kernels
    /// cannot take; [`Error::Driver`] if the launch fails.
    ///
    /// # Safety
    /// The stream belongs to the context of these kernels, which is current. The operands lie in memory of the
    /// context's device, with the lengths given, until the launch is done on the stream; meanwhile nobody else uses
    /// what the launch writes.
    pub unsafe fn backward(&self, stream: CUstream, activation: Activation, operands: Operands) -> Result<(), Error> {
        // SAFETY: as promised.
        unsafe { self.launch(stream, activation, Direction::Backward, operands) }
    }

    /// The context is current. Until it is done, nobody else uses what the launch writes.
    unsafe fn launch(
        &self,
        stream: CUstream,
        activation: Activation,
        direction: Direction,
        mut operands: Operands,
    ) -> Result<(), Error> {
        let blocks = operands.check()?;
        if blocks == 0 {
            return Ok(());
        }
        let (kind, mut slope) = match activation {
            Activation::Relu => (0, 0.0_f32),
            Activation::Leaky(slope) => (1, slope),
        };
        let entry = self.entries[kernel(kind, direction, operands.format)];
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut operands.from).cast(),
            (&raw mut operands.to).cast(),
            (&raw mut operands.mask).cast(),
            (&raw mut operands.elements).cast(),
            (&raw mut slope).cast(),
        ];
        let (arguments, none) = (arguments.as_mut_ptr(), ptr::null_mut());
        // SAFETY: the kernel takes three addresses, a u64 and an f32, which are read before the call returns.
        let launched =
            unsafe { (self.functions.launch_kernel)(entry, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, none) };
        Ok(check("cuLaunchKernel", launched)?)
    }
}

/// `kind` is 0 for ReLU, 1 for leaky ReLU.
const fn kernel(kind: usize, direction: Direction, format: Format) -> usize {
    kind * 6 + direction as usize * 3 + format as usize
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let Functions { push, pop, unload_module, .. } = self.functions;
        // SAFETY: the context outlives this.
        if unsafe { push(self.context) } == 0 {
            let mut popped = ptr::null_mut();
            // SAFETY: it was loaded there, and is unloaded once; then what was pushed is popped. A failure leaves
            // nothing to do.
            let _ = unsafe { (unload_module(self.module), pop(&raw mut popped)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_where_its_kernel_is_looked_for() {
        for (kind, activation) in ["relu", "leaky_relu"].iter().enumerate() {
            for (direction, way) in [(Direction::Forward, "forward"), (Direction::Backward, "backward")] {
                for (format, bits) in [(Format::F32, "f32"), (Format::F16, "f16"), (Format::Bf16, "bf16")] {
                    let name = NAMES[kernel(kind, direction, format)];
                    assert_eq!(name, format!("sublet_{activation}_{way}_{bits}\0"));
                    assert!(PTX.contains(&format!(".visible .entry {}(", name.trim_end_matches('\0'))));
                }
            }
        }
    }

    #[test]
    fn the_ptx_has_the_launch_bounds_and_the_parameters_of_a_launch() {
        let kernels: Vec<&str> = PTX.split(".visible .entry ").skip(1).collect();
        assert_eq!(kernels.len(), NAMES.len());
        for kernel in kernels {
            let head = kernel.split_once('{').unwrap().0;
            assert!(head.contains(&format!(".maxntid {THREADS}, 1, 1")), "{head}");
            let types: Vec<&str> = head.split(".param ").skip(1).map(|line| &line[..4]).collect();
            assert_eq!(types, [".u64", ".u64", ".u64", ".u64", ".f32"], "{head}");
        }
        assert!(PTX.contains(".version 6.0\n.target sm_70\n"));
        // No f32 is flushed to zero: subnormal numbers are numbers in PyTorch too.
        assert!(!PTX.contains(".ftz"));
    }

    const GOOD: Operands =
        Operands { from: 0x1000, to: 0x9000, mask: 0x20000, mask_bytes: 1024, elements: 8192, format: Format::F32 };

    #[test]
    fn a_block_has_8_warps_with_a_tile_each() {
        let blocks = |elements, format| {
            Operands { elements, format, to: GOOD.from, mask: 0, mask_bytes: 1 << 20, ..GOOD }.check()
        };
        assert_eq!([0, 1, 4096, 4097].map(|n| blocks(n, Format::F32)), [0, 1, 1, 2].map(Ok));
    }

    #[test]
    fn operands_that_the_kernels_cannot_take_are_refused() {
        assert_eq!(GOOD.check(), Ok(2));
        assert_eq!(Operands { to: GOOD.from, ..GOOD }.check(), Ok(2));
        assert_eq!(
            Operands { to: 0x8ffc, ..GOOD }.check(),
            Err(Error::Overlap { address: 0x8ffc }),
            "the last element of one is the first of the other"
        );
        assert_eq!(Operands { from: 0x1002, ..GOOD }.check(), Err(Error::Misaligned { address: 0x1002, alignment: 4 }));
        assert_eq!(Operands { to: 0x9001, ..GOOD }.check(), Err(Error::Misaligned { address: 0x9001, alignment: 4 }));
        let half = Operands { to: 0x9002, format: Format::F16, ..GOOD };
        assert_eq!(half.check(), Ok(1));
        assert_eq!(
            Operands { mask: 0x20002, ..half }.check(),
            Err(Error::Misaligned { address: 0x20002, alignment: 4 })
        );
        // 8192 elements have 1024 bytes of mask.
        assert_eq!(Operands { mask: 0xc00, ..GOOD }.check(), Ok(2));
        assert_eq!(Operands { mask: 0xc04, ..GOOD }.check(), Err(Error::Overlap { address: 0x1000 }));
        assert_eq!(Operands { mask: 0x10ffc, ..GOOD }.check(), Err(Error::Overlap { address: 0x10ffc }));
        let most = u64::from(i32::MAX.cast_unsigned()) * 4096;
        let long =
            |elements| Operands { elements, from: 0, to: 0, mask: 1 << 63, mask_bytes: u64::MAX, ..GOOD }.check();
        assert_eq!(long(most), Ok(i32::MAX.cast_unsigned()));
        for elements in [u64::MAX, u64::MAX / 4, most + 1] {
            assert_eq!(long(elements), Err(Error::TooLong { elements, most }));
        }
        let elements = u64::from(i32::MAX.cast_unsigned()) * 4096;
        let longest = Operands { elements, from: 0, to: 0, mask: 1 << 63, mask_bytes: elements / 8, ..GOOD };
        assert_eq!(longest.check(), Ok(i32::MAX.cast_unsigned()));
    }

    #[test]
    fn a_mask_that_is_too_short_is_refused() {
        let bytes = 4 * GOOD.elements;
        let planned = |format: Format| Operands {
            format,
            elements: bytes / format.bytes() as u64,
            mask_bytes: bytes / 32,
            to: GOOD.from,
            ..GOOD
        };
        assert_eq!(planned(Format::F32).check(), Ok(2));
        for format in [Format::F16, Format::Bf16] {
            assert_eq!(planned(format).check(), Err(Error::Mask { needed: 512, got: 256 }));
            assert_eq!(Operands { mask_bytes: 2048, ..planned(format) }.check(), Ok(2));
        }
    }

    #[test]
    fn a_missing_driver_is_an_error() {
        // SAFETY: as in `driver`.
        if unsafe { cudarc::driver::sys::is_culib_present() } {
            eprintln!("skipped: what is told without a driver; there is one");
            return;
        }
        let error = Kernels::load().map(drop).unwrap_err();
        assert_eq!(error, Error::Driver(crate::Error::NoDriver));
        assert_eq!(error.to_string(), "there is no CUDA driver library on this machine");
    }
}
