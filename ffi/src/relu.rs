//! ReLU that keeps a mask for its gradient, one bit for each element: computed on the processor, or launched on a GPU.

use core::ffi::c_void;
use core::ptr;

use sublet_cuda::cuda::CudaBackend;
use sublet_cuda::relu::cpu::{self, Element};
use sublet_cuda::relu::gpu::{Kernels, Operands};
use sublet_cuda::relu::{Activation, Error, Format, bf16, f16, mask_words};

use crate::arguments::{Arguments, Plain, params, plain};
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::handle::{self, handles};
use crate::iteration::none;
use crate::status::{sublet_status, sublet_status as S};

/// The format in which the numbers of an array are stored.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_format {
    /// A number of 32 bits, IEEE binary32.
    F32 = 0,
    /// A number of 16 bits, IEEE binary16.
    F16 = 1,
    /// A number of 16 bits, bfloat16: the upper half of an IEEE binary32.
    Bf16 = 2,
}

/// The activation function, and the format of its elements. NULL, or all 0 but `struct_size`, is ReLU of f32.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_relu_params {
    /// Set this to sizeof(sublet_relu_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// A sublet_format: how each element of the arrays is stored.
    pub format: u32,
    /// The activation. 0: ReLU, `x < 0 ? 0 : x`. 1: leaky ReLU, `x > 0 ? x : x * slope`.
    pub leaky: u32,
    /// The slope of leaky ReLU, any number; not used for ReLU.
    pub slope: f32,
}

plain!(sublet_relu_params, f16, bf16, f32);
params! {
    sublet_relu_params { struct_size, format, leaky, slope }
    sublet_relu_operands { struct_size, reserved, from, to, elements, mask, mask_bytes }
}

impl sublet_relu_params {
    fn meaning(self, position: u32) -> Result<(Activation, Format), Failure> {
        let unknown = |value: u32| Failure::new(S::UnknownValue, position, 0, value.into());
        let format = match self.format {
            0 => Format::F32,
            1 => Format::F16,
            2 => Format::Bf16,
            other => return Err(unknown(other)),
        };
        match self.leaky {
            0 => Ok((Activation::Relu, format)),
            1 => Ok((Activation::Leaky(self.slope), format)),
            other => Err(unknown(other)),
        }
    }
}

/// In a launch, `mask` is the struct of all operands, named for an error of any.
fn failure(error: Error, mask: u32) -> Failure {
    match error {
        Error::Length { needed, got } => Failure::new(S::BufferTooSmall, 0, needed as u64, got as u64),
        Error::Mask { needed, got } => Failure::new(S::BufferTooSmall, mask, needed as u64, got as u64),
        Error::Misaligned { address, alignment } => Failure::new(S::MisalignedOperand, mask, alignment, address),
        Error::Overlap { address } => Failure::new(S::OverlappingOperands, mask, 0, address),
        Error::TooLong { elements, most } => Failure::new(S::LengthOverflow, mask, most, elements),
        Error::Driver(error) => error.into(),
    }
}

/// How many words of 32 bits the mask of `elements` elements has: one bit for each element.
#[unsafe(no_mangle)]
pub extern "C" fn sublet_relu_mask_words(elements: usize) -> usize {
    mask_words(elements)
}

/// Generic in the elements, whose type is known only when the parameters are read.
trait Work {
    /// The arrays are as long as the caller says, and nobody else uses them.
    unsafe fn of<E: Element + Plain>(
        &self,
        activation: Activation,
        arguments: &mut Arguments<'_>,
    ) -> Result<(), Failure>;
}

unsafe fn with_format(
    work: &impl Work,
    arguments: &mut Arguments<'_>,
    params: *const sublet_relu_params,
    position: u32,
) -> Result<(), Failure> {
    // SAFETY: as promised.
    unsafe {
        let params = arguments.at(position, |arguments| arguments.params(params))?;
        let (activation, format) = params.meaning(position)?;
        match format {
            Format::F32 => work.of::<f32>(activation, arguments),
            Format::F16 => work.of::<f16>(activation, arguments),
            Format::Bf16 => work.of::<bf16>(activation, arguments),
        }
    }
}

/// Computes the activation of `x`, which goes to `y`, and the mask of `x`, on the processor. `params` tells which
/// activation, and the format of the elements. The mask has one bit for each element: for element i, bit i mod 32 of
/// word i / 32, where bit 0 is the lowest. The bit is 1 if the gradient of element i is passed on unchanged: if x > 0,
/// or for ReLU also if x is a NaN.
///
/// `x` and `y`, arrays of `elements` elements, are the same array or share no memory. `mask` has room for `mask_words`
/// words; the mask takes the first sublet_relu_mask_words(elements) of them, and no others are written. Bits after the
/// last element are 0. Results are those of PyTorch: ReLU leaves a NaN and -0.0 as they are; leaky ReLU multiplies both
/// by the slope.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_forward(
    x: *const c_void,
    elements: usize,
    params: *const sublet_relu_params,
    y: *mut c_void,
    mask: *mut u32,
    mask_words: usize,
    error: *mut sublet_error,
) -> sublet_status {
    struct Forward(*const c_void, usize, *mut c_void, *mut u32, usize);
    impl Work for Forward {
        unsafe fn of<E: Element + Plain>(
            &self,
            activation: Activation,
            arguments: &mut Arguments<'_>,
        ) -> Result<(), Failure> {
            let Self(x, elements, y, mask, words) = *self;
            // SAFETY: the header asks for arrays of these lengths.
            unsafe {
                let x = if x == y.cast_const() {
                    arguments.skip();
                    None
                } else {
                    Some(arguments.input_of(x.cast::<E>(), elements, 1)?)
                };
                arguments.skip();
                arguments.skip();
                let y = arguments.output_of(y.cast::<E>(), elements, 1)?;
                let mask = arguments.output(mask, words)?;
                let done = match x {
                    Some(x) => cpu::forward(activation, x, y, mask),
                    None => cpu::forward_in_place(activation, y, mask),
                };
                done.map_err(|error| failure(error, 4))
            }
        }
    }
    // SAFETY: the header asks for arrays of these lengths, and for parameters that can be read.
    boundary(error, |arguments| unsafe {
        with_format(&Forward(x, elements, y, mask, mask_words), arguments, params, 2)
    })
}

/// Computes on the processor `dx`, the gradient of an activation's input, from `dy`, the gradient of its output, and
/// the mask that sublet_relu_forward has written. `dy` and `dx` are the same array or share no memory.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_backward(
    dy: *const c_void,
    elements: usize,
    mask: *const u32,
    mask_words: usize,
    params: *const sublet_relu_params,
    dx: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    struct Backward(*const c_void, usize, *const u32, usize, *mut c_void);
    impl Work for Backward {
        unsafe fn of<E: Element + Plain>(
            &self,
            activation: Activation,
            arguments: &mut Arguments<'_>,
        ) -> Result<(), Failure> {
            let Self(dy, elements, mask, words, dx) = *self;
            // SAFETY: the header asks for arrays of these lengths.
            unsafe {
                let dy = if dy == dx.cast_const() {
                    arguments.skip();
                    None
                } else {
                    Some(arguments.input_of(dy.cast::<E>(), elements, 1)?)
                };
                arguments.skip();
                let mask = arguments.input_of(mask, words, 3)?;
                arguments.skip();
                arguments.skip();
                let dx = arguments.output_of(dx.cast::<E>(), elements, 1)?;
                let done = match dy {
                    Some(dy) => cpu::backward(activation, dy, mask, dx),
                    None => cpu::backward_in_place(activation, dx, mask),
                };
                done.map_err(|error| failure(error, 2))
            }
        }
    }
    // SAFETY: the header asks for arrays of these lengths, and for parameters that can be read.
    boundary(error, |arguments| unsafe {
        with_format(&Backward(dy, elements, mask, mask_words, dx), arguments, params, 4)
    })
}

/// The ReLU kernels, loaded on a GPU. All threads may launch them at once.
pub struct sublet_relu_kernels {
    kernels: Option<Kernels>,
    gpu: CudaBackend,
}

handles!(sublet_relu_kernels: b"kernels ");

/// Loads the ReLU kernels on a GPU, in the GPU's primary context, which the CUDA runtime uses too. `gpu` is the number
/// of the GPU, from 0, as the CUDA driver counts. `kernels` receives the handle, which sublet_relu_kernels_destroy
/// destroys.
///
/// SUBLET_STATUS_UNAVAILABLE: there is no CUDA driver, or none that is new enough, or no such GPU; SUBLET_STATUS_DRIVER
/// and SUBLET_STATUS_DEVICE_LOST: a call of the driver failed, with the CUresult in `got` of `error`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_kernels_create(
    gpu: u32,
    kernels: *mut *mut sublet_relu_kernels,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        arguments.skip();
        // SAFETY: the header asks for a place for the handle.
        let to = unsafe { arguments.result(kernels)? };
        let gpu = CudaBackend::new(gpu)?;
        let loaded = gpu.in_context(Kernels::load)?.map_err(|error| failure(error, 0))?;
        to.set(handle::boxed(sublet_relu_kernels { kernels: Some(loaded), gpu }));
        Ok(())
    })
}

/// Unloads the ReLU kernels from the GPU; all their launches must be done by then. NULL does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_kernels_destroy(kernels: *mut sublet_relu_kernels) {
    let _ = boundary(ptr::null_mut(), |_| {
        // SAFETY: the header asks for kernels that are not used any more.
        if let Some(sublet_relu_kernels { kernels, gpu }) = unsafe { handle::unboxed(kernels) } {
            gpu.in_context(|| drop(kernels))?;
        }
        Ok(())
    });
}

/// The operands of a launch of a ReLU kernel: addresses on the device. A runtime gives them in the sublet_launch that
/// sublet_runtime_next writes, each in a sublet_operand.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_relu_operands {
    /// Set this to sizeof(sublet_relu_operands): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// The address of the elements that are read: in the forward pass `x`, the activation's input; in the backward pass
    /// `dy`, the gradient of its output.
    pub from: u64,
    /// The address of the elements that are written: in the forward pass `y`, the activation's output; in the backward
    /// pass `dx`, the gradient of its input. It is either `from`, or the address of memory that shares nothing with the
    /// elements at `from`.
    pub to: u64,
    /// How many elements `from` and `to` each have.
    pub elements: u64,
    /// The address of the mask, one bit for each element: the forward pass writes it, the backward pass reads it.
    pub mask: u64,
    /// The length of the mask in bytes, as in the field `bytes` of its sublet_operand.
    pub mask_bytes: u64,
}

plain!(sublet_relu_operands);

unsafe fn operands(
    arguments: &mut Arguments<'_>,
    operands: *const sublet_relu_operands,
    params: *const sublet_relu_params,
) -> Result<(Activation, Operands), Failure> {
    // SAFETY: as promised.
    let (given, params) = unsafe { (arguments.given(operands)?, arguments.params(params)?) };
    let sublet_relu_operands { reserved, from, to, elements, mask, mask_bytes, .. } = given;
    none(reserved, 1)?;
    let (activation, format) = params.meaning(2)?;
    Ok((activation, Operands { from, to, mask, mask_bytes, elements, format }))
}

/// The caller makes sure that the addresses are memory of the GPU.
unsafe fn launch(
    arguments: &mut Arguments<'_>,
    kernels: *mut sublet_relu_kernels,
    operands: *const sublet_relu_operands,
    params: *const sublet_relu_params,
    stream: *mut c_void,
    forward: bool,
) -> Result<(), Failure> {
    // SAFETY: the header asks for kernels that live, and for structs that can be read.
    let (sublet_relu_kernels { kernels, gpu }, (activation, operands)) =
        unsafe { (arguments.shared(kernels)?, self::operands(arguments, operands, params)?) };
    let kernels = kernels.as_ref().ok_or(Failure::of(S::Unnamed))?;
    // SAFETY: the header asks for a stream of this GPU, and for operands that are memory of it until it is done.
    let launched = gpu.in_context(|| unsafe {
        let stream = stream.cast();
        if forward {
            kernels.forward(stream, activation, operands)
        } else {
            kernels.backward(stream, activation, operands)
        }
    })?;
    launched.map_err(|error| failure(error, 1))
}

/// Queues on `stream`, a CUstream or cudaStream_t of a GPU, what sublet_relu_forward computes. The addresses of
/// elements must be multiples of an element's size, and the mask's address a multiple of 4.
///
/// `needed` and `got` are the fields of `error`. SUBLET_STATUS_MISALIGNED_OPERAND: the address `got` of an operand is
/// not a multiple of `needed`. SUBLET_STATUS_OVERLAPPING_OPERANDS: two operands share memory though they must not;
/// `got` is the higher of their addresses. SUBLET_STATUS_BUFFER_TOO_SMALL: the mask needs `needed` words of 32 bits,
/// but has `got`; for example, the mask was planned for elements of another size. SUBLET_STATUS_LENGTH_OVERFLOW: there
/// are `got` elements, but one launch can have at most `needed`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_launch_forward(
    kernels: *mut sublet_relu_kernels,
    operands: *const sublet_relu_operands,
    params: *const sublet_relu_params,
    stream: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: as the header asks.
    boundary(error, |arguments| unsafe { launch(arguments, kernels, operands, params, stream, true) })
}

/// Queues on `stream`, a CUstream or cudaStream_t of a GPU, what sublet_relu_backward computes. The addresses of
/// elements must be multiples of an element's size, and the mask's address a multiple of 4.
///
/// `needed` and `got` are the fields of `error`. SUBLET_STATUS_MISALIGNED_OPERAND: the address `got` of an operand is
/// not a multiple of `needed`. SUBLET_STATUS_OVERLAPPING_OPERANDS: two operands share memory though they must not;
/// `got` is the higher of their addresses. SUBLET_STATUS_BUFFER_TOO_SMALL: the mask needs `needed` words of 32 bits,
/// but has `got`; for example, the mask was planned for elements of another size. SUBLET_STATUS_LENGTH_OVERFLOW: there
/// are `got` elements, but one launch can have at most `needed`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_relu_launch_backward(
    kernels: *mut sublet_relu_kernels,
    operands: *const sublet_relu_operands,
    params: *const sublet_relu_params,
    stream: *mut c_void,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: as the header asks.
    boundary(error, |arguments| unsafe { launch(arguments, kernels, operands, params, stream, false) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_a_launch_names_the_operands() {
        let errors = [
            Error::Mask { needed: 2, got: 1 },
            Error::Misaligned { address: 2, alignment: 4 },
            Error::Overlap { address: 4 },
            Error::TooLong { elements: u64::MAX, most: 8 },
        ];
        assert_eq!(
            errors.map(|error| sublet_error::from(failure(error, 1)).to_string()),
            [
                "argument 1 has room for 1 elements; 2 are needed",
                "an operand in argument 1 begins at 0x2, which is not aligned to 4 bytes",
                "the operand in argument 1 that begins at 0x4 shares memory with another, and must not",
                "the length 18446744073709551615 in argument 1 is more than the 8 that are possible",
            ]
        );
    }

    #[test]
    fn a_launch_needs_operands() {
        // SAFETY: zeros are operands.
        let mut given: sublet_relu_operands = unsafe { core::mem::zeroed() };
        given.struct_size = u32::try_from(size_of::<sublet_relu_operands>()).unwrap();
        let checked = |given: *const sublet_relu_operands| {
            let mut arguments = Arguments::new();
            arguments.skip();
            // SAFETY: operands or NULL, and the default parameters.
            unsafe { operands(&mut arguments, given, ptr::null()) }.map(drop)
        };
        assert_eq!(checked(&raw const given), Ok(()));
        assert_eq!(checked(ptr::null()), Err(Failure::new(S::NullPointer, 1, 0, 0)));
        given.reserved = 3;
        assert_eq!(checked(&raw const given), Err(Failure::new(S::UnknownValue, 1, 0, 3)));
    }
}
