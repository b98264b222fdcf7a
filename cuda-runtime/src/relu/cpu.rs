//! ReLU with a mask on the processor: the oracle of the kernels, and what the host backend runs.
//!
//! Steps: 32 elements at a time become 32 results and a word of the mask. Everything in a block is a loop over an array
//! without branches, which compilers make vectors of on every target; the word is gathered eight lanes at a time by a
//! multiplication. The last, shorter block is filled up with zeros, whose bits are 0.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::{Activation, Error, Format, mask_words};

/// Elements of a word.
const BLOCK: usize = 32;

mod sealed {
    /// What a block is made of.
    pub trait Bits: Copy {
        const ZERO: Self;

        /// Below 0.
        fn is_negative(self) -> bool;
        /// Not below 0, not 0: above it, or no number.
        fn passes(self) -> bool;
        /// Above 0.
        fn is_positive(self) -> bool;
        /// All times a slope.
        fn scaled(block: &[Self; super::BLOCK], slope: f32) -> [Self; super::BLOCK];
    }
}

use sealed::Bits;

/// A number that the activations are made for.
pub trait Element: Bits + 'static {
    /// How it is stored.
    const FORMAT: Format;
}

impl Bits for f32 {
    const ZERO: Self = 0.0;

    #[inline]
    fn is_negative(self) -> bool {
        self < 0.0
    }

    #[inline]
    fn passes(self) -> bool {
        self > 0.0 || self.is_nan()
    }

    #[inline]
    fn is_positive(self) -> bool {
        self > 0.0
    }

    #[inline]
    fn scaled(block: &[Self; BLOCK], slope: f32) -> [Self; BLOCK] {
        block.map(|x| x * slope)
    }
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
}

/// A format of 16 bits, sign and magnitude, whose infinity has the magnitude `$infinity`: compared as an integer.
macro_rules! two_bytes {
    ($type:ty, $format:expr, $infinity:expr) => {
        impl Bits for $type {
            const ZERO: Self = Self::ZERO;

            #[inline]
            fn is_negative(self) -> bool {
                // From the least below 0 to minus infinity; −0.0 comes before them, NaNs after.
                self.to_bits().wrapping_sub(0x8001) < $infinity
            }

            #[inline]
            fn passes(self) -> bool {
                !Bits::is_negative(self) && self.to_bits() & 0x7fff != 0
            }

            #[inline]
            fn is_positive(self) -> bool {
                self.to_bits().wrapping_sub(1) < $infinity
            }

            #[inline]
            fn scaled(block: &[Self; BLOCK], slope: f32) -> [Self; BLOCK] {
                let mut wide = [0.0; BLOCK];
                block.convert_to_f32_slice(&mut wide);
                let mut scaled = [Self::ZERO; BLOCK];
                scaled.convert_from_f32_slice(&wide.map(|x| x * slope));
                scaled
            }
        }

        impl Element for $type {
            const FORMAT: Format = $format;
        }
    };
}

two_bytes!(f16, Format::F16, 0x7c00);
two_bytes!(bf16, Format::Bf16, 0x7f80);

/// One activation, as the compiler sees it: without a branch on which it is.
trait Kind {
    fn bit<E: Bits>(x: E) -> bool;
    fn stopped<E: Bits>(block: &[E; BLOCK], slope: f32) -> [E; BLOCK];
    /// Whether forward gives the element itself.
    fn is_kept<E: Bits>(x: E) -> bool;
}

struct Relu;
struct Leaky;

impl Kind for Relu {
    #[inline]
    fn bit<E: Bits>(x: E) -> bool {
        x.passes()
    }

    #[inline]
    fn stopped<E: Bits>(_: &[E; BLOCK], _: f32) -> [E; BLOCK] {
        [E::ZERO; BLOCK]
    }

    #[inline]
    fn is_kept<E: Bits>(x: E) -> bool {
        !x.is_negative()
    }
}

impl Kind for Leaky {
    #[inline]
    fn bit<E: Bits>(x: E) -> bool {
        x.is_positive()
    }

    #[inline]
    fn stopped<E: Bits>(block: &[E; BLOCK], slope: f32) -> [E; BLOCK] {
        E::scaled(block, slope)
    }

    #[inline]
    fn is_kept<E: Bits>(x: E) -> bool {
        x.is_positive()
    }
}

/// The word whose bit i is the i-th of these.
#[inline]
fn word(bits: &[bool; BLOCK]) -> u32 {
    let mut word = 0;
    for (byte, eight) in bits.chunks_exact(8).enumerate() {
        let lanes = eight.iter().rev().fold(0, |lanes, &bit| lanes << 8 | u64::from(bit));
        // Lane i, at bit 8 i, lands at bit 56 + i; no two partial products meet, so nothing is carried.
        let gathered = lanes.wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word |= u32::try_from(gathered).unwrap_or(0) << (8 * byte);
    }
    word
}

#[inline]
fn forward_block<K: Kind, E: Bits>(x: &[E; BLOCK], slope: f32) -> ([E; BLOCK], u32) {
    let mut y = K::stopped(x, slope);
    let mut bits = [false; BLOCK];
    for ((y, bit), &x) in y.iter_mut().zip(&mut bits).zip(x) {
        *bit = K::bit(x);
        *y = if K::is_kept(x) { x } else { *y };
    }
    (y, word(&bits))
}

#[inline]
fn backward_block<K: Kind, E: Bits>(dy: &[E; BLOCK], word: u32, slope: f32) -> [E; BLOCK] {
    let mut dx = K::stopped(dy, slope);
    for (i, (dx, &dy)) in dx.iter_mut().zip(dy).enumerate() {
        *dx = if word & (1 << i) == 0 { *dx } else { dy };
    }
    dx
}

/// The elements of a last block, and zeros.
fn filled<E: Bits>(rest: &[E]) -> [E; BLOCK] {
    let mut block = [E::ZERO; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// From `x` to `y`, block by block, each with its word.
fn between<E: Bits, W>(
    x: &[E],
    y: &mut [E],
    words: impl Iterator<Item = W>,
    block: impl Fn(&[E; BLOCK], W) -> [E; BLOCK],
) {
    let (whole, rest) = x.as_chunks();
    let (to, to_rest) = y.as_chunks_mut();
    let mut words = words;
    for ((x, y), word) in whole.iter().zip(to).zip(&mut words) {
        *y = block(x, word);
    }
    if let Some(word) = words.next() {
        to_rest.copy_from_slice(&block(&filled(rest), word)[..rest.len()]);
    }
}

/// As [`between`], where both are the same.
fn within<E: Bits, W>(x: &mut [E], words: impl Iterator<Item = W>, block: impl Fn(&[E; BLOCK], W) -> [E; BLOCK]) {
    let (whole, rest) = x.as_chunks_mut();
    let mut words = words;
    for (x, word) in whole.iter_mut().zip(&mut words) {
        *x = block(x, word);
    }
    if let Some(word) = words.next() {
        let done = block(&filled(rest), word);
        rest.copy_from_slice(&done[..rest.len()]);
    }
}

/// The words of a mask for so many elements.
fn check(elements: usize, words: usize) -> Result<usize, Error> {
    let needed = mask_words(elements);
    if words < needed { Err(Error::Mask { needed, got: words }) } else { Ok(needed) }
}

fn check_length(needed: usize, got: usize) -> Result<(), Error> {
    if needed == got { Ok(()) } else { Err(Error::Length { needed, got }) }
}

/// Stores a block's word, and gives its results.
macro_rules! forward_as {
    ($kind:ty, $slope:expr) => {
        |x: &[E; BLOCK], word: &mut u32| {
            let (y, bits) = forward_block::<$kind, E>(x, $slope);
            *word = bits.to_le();
            y
        }
    };
}

macro_rules! backward_as {
    ($kind:ty, $slope:expr) => {
        |dy: &[E; BLOCK], word: &u32| backward_block::<$kind, E>(dy, u32::from_le(*word), $slope)
    };
}

/// `y` and the mask of `x`. Words of the mask beyond its length are left as they are.
///
/// # Errors
/// [`Error::Length`]; [`Error::Mask`].
pub fn forward<E: Element>(activation: Activation, x: &[E], y: &mut [E], mask: &mut [u32]) -> Result<(), Error> {
    check_length(x.len(), y.len())?;
    let words = check(x.len(), mask.len())?;
    let mask = mask[..words].iter_mut();
    match activation {
        Activation::Relu => between(x, y, mask, forward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => between(x, y, mask, forward_as!(Leaky, slope)),
    }
    Ok(())
}

/// As [`forward`], with `y` in the place of `x`.
///
/// # Errors
/// [`Error::Mask`].
pub fn forward_in_place<E: Element>(activation: Activation, x: &mut [E], mask: &mut [u32]) -> Result<(), Error> {
    let words = check(x.len(), mask.len())?;
    let mask = mask[..words].iter_mut();
    match activation {
        Activation::Relu => within(x, mask, forward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => within(x, mask, forward_as!(Leaky, slope)),
    }
    Ok(())
}

/// The gradient of `x` from that of `y`, and the mask that [`forward`] has written.
///
/// # Errors
/// [`Error::Length`]; [`Error::Mask`].
pub fn backward<E: Element>(activation: Activation, dy: &[E], mask: &[u32], dx: &mut [E]) -> Result<(), Error> {
    check_length(dy.len(), dx.len())?;
    let mask = mask[..check(dy.len(), mask.len())?].iter();
    match activation {
        Activation::Relu => between(dy, dx, mask, backward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => between(dy, dx, mask, backward_as!(Leaky, slope)),
    }
    Ok(())
}

/// As [`backward`], with `dx` in the place of `dy`.
///
/// # Errors
/// [`Error::Mask`].
pub fn backward_in_place<E: Element>(activation: Activation, dy: &mut [E], mask: &[u32]) -> Result<(), Error> {
    let mask = mask[..check(dy.len(), mask.len())?].iter();
    match activation {
        Activation::Relu => within(dy, mask, backward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => within(dy, mask, backward_as!(Leaky, slope)),
    }
    Ok(())
}
