//! The definition, element by element, and numbers to try it on.

use half::{bf16, f16};
use proptest::prelude::*;
use sublet_cuda::relu::cpu::Element;
use sublet_cuda::relu::{Activation, mask_words};

/// An element and its bits.
pub(crate) trait Number: Element + std::fmt::Debug {
    fn of(bits: u32) -> Self;
    fn bits(self) -> u32;
    fn wide(self) -> f32;
    fn rounded(x: f32) -> Self;
}

impl Number for f32 {
    fn of(bits: u32) -> Self {
        Self::from_bits(bits)
    }
    fn bits(self) -> u32 {
        self.to_bits()
    }
    fn wide(self) -> f32 {
        self
    }
    fn rounded(x: f32) -> Self {
        x
    }
}

macro_rules! two_bytes {
    ($type:ty) => {
        impl Number for $type {
            fn of(bits: u32) -> Self {
                Self::from_bits(u16::try_from(bits & 0xffff).unwrap())
            }
            fn bits(self) -> u32 {
                self.to_bits().into()
            }
            fn wide(self) -> f32 {
                self.to_f32()
            }
            fn rounded(x: f32) -> Self {
                Self::from_f32(x)
            }
        }
    };
}

two_bytes!(f16);
two_bytes!(bf16);

/// Forward: the element, and its bit.
pub(crate) fn forward<E: Number>(activation: Activation, x: E) -> (E, bool) {
    match activation {
        Activation::Relu if x.wide().is_nan() => (x, true),
        Activation::Relu => (if x.wide() < 0.0 { E::of(0) } else { x }, x.wide() > 0.0),
        Activation::Leaky(_) if x.wide() > 0.0 => (x, true),
        Activation::Leaky(slope) => (E::rounded(x.wide() * slope), false),
    }
}

/// Backward.
pub(crate) fn backward<E: Number>(activation: Activation, dy: E, bit: bool) -> E {
    match activation {
        _ if bit => dy,
        Activation::Relu => E::of(0),
        Activation::Leaky(slope) => E::rounded(dy.wide() * slope),
    }
}

/// The mask of many elements.
pub(crate) fn mask<E: Number>(activation: Activation, x: &[E]) -> Vec<u32> {
    let mut mask = vec![0_u32; mask_words(x.len())];
    for (i, &x) in x.iter().enumerate() {
        if forward(activation, x).1 {
            let mut bytes = mask[i / 32].to_le_bytes();
            bytes[i % 32 / 8] |= 1 << (i % 8);
            mask[i / 32] = u32::from_le_bytes(bytes);
        }
    }
    mask
}

/// Whether what an activation gives in place of a NaN may be any NaN: where it multiplies.
pub(crate) fn any_nan(activation: Activation) -> bool {
    activation != Activation::Relu
}

/// Fails where two results differ: in a bit, or, where any NaN will do, in a number.
pub(crate) fn assert_agree<E: Number>(what: &str, any_nan: bool, found: &[E], expected: &[E]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let agree = found.bits() == expected.bits() || any_nan && found.wide().is_nan() && expected.wide().is_nan();
        assert!(agree, "{what}, element {i}: {found:?}, not {expected:?}");
    }
}

/// Bits of which many are of numbers at an edge, in all three formats.
pub(crate) fn bits() -> impl Strategy<Value = u32> {
    let edges = [
        0,
        0x8000_0000,
        1,
        0x8000_0001,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0xffc0_0001,
        0x7f80_0001,
        0x7f7f_ffff,
        0x8000,
        0x8001,
        0x7c00,
        0xfc00,
        0x7e00,
        0xfe01,
        0xfc01,
        0x7bff,
        0x7f80,
        0xff80,
        0x7fc0,
        0xffc1,
        0x3f80_0000,
        0xbf80_0000,
        0x3c00,
        0xbc00,
        0x3f80,
        0xbf80,
        0x0080_0000,
        0x8080_0000,
    ];
    prop_oneof![any::<u32>(), proptest::sample::select(edges.to_vec())]
}

/// Activations with slopes of every kind.
pub(crate) fn activations() -> Vec<Activation> {
    let slopes = [0.01, 0.2, 1.0, 0.0, -0.0, -0.5, 3.0, f32::NAN, f32::INFINITY];
    std::iter::once(Activation::Relu).chain(slopes.map(Activation::Leaky)).collect()
}

/// One of them.
pub(crate) fn activation() -> impl Strategy<Value = Activation> {
    prop_oneof![Just(Activation::Relu), proptest::sample::select(activations())]
}
