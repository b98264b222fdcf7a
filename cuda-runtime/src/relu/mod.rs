//! ReLU and leaky ReLU that keep one bit of each element for the backward pass.
//!
//! Problem: the gradient of an activation needs to know on which side of zero each element was. Frameworks keep the
//! activations for that. One bit for each element is enough, and takes 1/32 of the memory in f32, 1/16 in f16 and bf16:
//! then the activations can be freed or overwritten.
//!
//! Papers: Jin et al. 2018 (Layrub), section 4.2, with a byte for each element; Jain et al. 2018 (Gist), with a bit.
//!
//! **Mask.** The bit of element i is bit i mod 32 of word i / 32, words little-endian; the bits after the last element
//! are 0. The mask is the same on the host and on a GPU.
//!
//! **Values** are those of PyTorch's operations, which have no mask, also in the sign of zeros, in rounding, and for
//! NaNs:
//!
//! | | forward | bit | backward |
//! | - | - | - | - |
//! | ReLU | `x < 0 ? 0 : x` | `!(x <= 0)` | `bit ? dy : 0` |
//! | leaky | `x > 0 ? x : x * slope` | `x > 0` | `bit ? dy : dy * slope` |
//!
//! - `relu` is `clamp_min(x, 0)`: a NaN stays the NaN that it is, and −0.0 stays −0.0
//!   (`aten/src/ATen/native/cuda/TensorCompare.cu`, `launch_clamp_scalar`, and the CPU kernels; PyTorch's older CUDA
//!   kernel took a maximum, and gave +0.0).
//! - Its gradient is `threshold_backward(dy, y, 0)`, `y <= 0 ? 0 : dy`: where `y` is a NaN, `dy` passes; where it is
//!   +0.0 or −0.0, the result is +0.0 whatever `dy` is, NaN and infinity too (`ActivationThresholdKernel.cu`).
//! - `leaky_relu` multiplies everything that is not above 0 (`ActivationLeakyReluKernel.cu`): −0.0 gives −0.0 where the
//!   slope is positive, −∞ with the slope 0 gives NaN, so that a slope of 0 is not ReLU, and the gradient of a NaN is
//!   `dy * slope`. The product of 16-bit formats is rounded twice, to f32 and then to the format.
//! - A NaN that has been multiplied is a NaN; which one is left to the processor, as in PyTorch.
//!
//! Where the result is written over `x`, PyTorch finds out from `y` on which side of zero `x` was, and refuses negative
//! slopes for that reason; here the bit tells the side, and negative slopes are allowed.
//!
//! Cost: one pass over the data. Limits: elements are contiguous; `x` and `y` are the same memory or share none.

pub mod cpu;
pub mod gpu;

pub use half::{bf16, f16};

/// An activation function, which is applied to each element of a tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// ReLU: elements below 0 become 0.
    Relu,
    /// Leaky ReLU: elements that are not above 0 are multiplied by this slope.
    Leaky(f32),
}

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an IEEE binary32.
    Bf16,
}

impl Format {
    /// The size of an element in this format, in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }
}

/// Why a forward or backward pass of an activation, on the processor or on a GPU, was refused or failed; or why the
/// GPU's kernels could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The result has another number of elements than the input.
    Length {
        /// How many elements the input has.
        needed: usize,
        /// How many elements the result has.
        got: usize,
    },
    /// The mask has fewer 32-bit words than the elements need, which [`mask_words`] tells.
    Mask {
        /// How many 32-bit words of mask the elements need.
        needed: usize,
        /// How many 32-bit words the mask has.
        got: usize,
    },
    /// An operand's address is not a multiple of the size of its elements (4 bytes for the mask, whose elements are
    /// 32-bit words).
    Misaligned {
        /// The operand's address.
        address: u64,
        /// The alignment that the address needs, in bytes.
        alignment: u64,
    },
    /// Two operands overlap in memory without being the same range of elements.
    Overlap {
        /// The address at which the two operands begin to overlap: the higher of the addresses at which they begin.
        address: u64,
    },
    /// There are more elements than one launch of a GPU kernel can have.
    TooLong {
        /// How many elements the launch was asked to compute.
        elements: u64,
        /// The most elements of this format that one launch can compute.
        most: u64,
    },
    /// The CUDA driver failed.
    Driver(crate::Error),
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Self {
        Self::Driver(error)
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length { needed, got } => write!(f, "the result has {got} elements, the input {needed}"),
            Self::Mask { needed, got } => write!(f, "the mask has {got} words and needs {needed}"),
            Self::Misaligned { address, alignment } => write!(f, "{address:#x} is no multiple of {alignment}"),
            Self::Overlap { address } => write!(f, "two operands share memory at {address:#x}"),
            Self::TooLong { elements, most } => write!(f, "a launch has {elements} elements, and {most} are possible"),
            Self::Driver(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

/// How many 32-bit words the mask of `elements` elements has.
#[must_use]
pub const fn mask_words(elements: usize) -> usize {
    elements.div_ceil(32)
}
