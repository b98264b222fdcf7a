//! ReLU with a mask on the processor, for programs on the [`host`](crate::host). The kernels for the GPU are tested
//! against it.
//!
//! Steps: 32 elements at a time (a block) become 32 results and a 32-bit word of the mask, with one bit for each
//! element. All work on a block is done by loops over arrays without branches, which compilers turn into vector
//! instructions on every target. The word is packed from eight bits at a time by a multiplication. The last, shorter
//! block is filled up with zeros, whose bits are 0. On x86-64 the same code is also compiled for AVX2 and F16C, and
//! that version is used where the processor has both.
//!
//! Leaky ReLU of 16-bit elements converts them to f32, multiplies, and converts back. F16C has instructions for the
//! conversions of f16. All others are integer arithmetic; without F16C, those of f16 also use one floating-point
//! operation: a product, which is exact, or a sum, which rounds. Where two cases differ, both results are computed and
//! one is selected: so conversions become vector instructions too.

use half::{bf16, f16};

use super::{Activation, Error, Format, mask_words};

/// One element for each bit of a word of the mask.
const BLOCK: usize = 32;

mod sealed {
    /// The operations on numbers of one type (`f32`, `f16` or `bf16`) by which ReLU and leaky ReLU are computed.
    pub trait Bits: Copy {
        const ZERO: Self;

        /// Whether this number is below 0.
        fn is_negative(self) -> bool;
        /// Whether this number is above 0, or a NaN: then ReLU's gradient passes, and the bit in the mask is 1.
        fn passes(self) -> bool;
        /// Whether this number is above 0.
        fn is_positive(self) -> bool;
        /// Each number of the block times the slope. If `wide`, the instructions of AVX2 and F16C may be used.
        ///
        /// # Safety
        /// `wide` is true only if the processor has AVX2 and F16C.
        unsafe fn scaled(block: &[Self; super::BLOCK], slope: f32, wide: bool) -> [Self; super::BLOCK];
        /// For each i: element i of `set` if bit i of `word` is 1, and element i of `unset` if it is 0.
        fn selected(word: u32, set: &[Self; super::BLOCK], unset: &[Self; super::BLOCK]) -> [Self; super::BLOCK];
    }
}

use sealed::Bits;

/// A type of element that ReLU and leaky ReLU can be computed for: `f32`, `f16` or `bf16`.
pub trait Element: Bits + 'static {
    /// How an element of this type is stored in memory.
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
    unsafe fn scaled(block: &[Self; BLOCK], slope: f32, _: bool) -> [Self; BLOCK] {
        block.map(|x| x * slope)
    }

    #[inline]
    fn selected(word: u32, set: &[Self; BLOCK], unset: &[Self; BLOCK]) -> [Self; BLOCK] {
        let mut selected = *unset;
        for (i, (to, from)) in selected.iter_mut().zip(set).enumerate() {
            let keep = if word & (1 << i) == 0 { 0 } else { u32::MAX };
            *to = Self::from_bits(from.to_bits() & keep | to.to_bits() & !keep);
        }
        selected
    }
}

impl Element for f32 {
    const FORMAT: Format = Format::F32;
}

#[inline]
const fn f16_to_f32(bits: u16) -> f32 {
    let (sign, magnitude) = ((bits as u32 & 0x8000) << 16, (bits as u32 & 0x7fff) << 13);
    // Read as a binary32, the bits are a number too small by the factor 2^112. The product corrects that, and makes a
    // subnormal number a normal one.
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let is_finite = magnitude < 0x7c00 << 13;
    f32::from_bits(sign | if is_finite { finite } else { magnitude | 0x7f80_0000 })
}

/// Ties to even; a NaN becomes quiet.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "16 bits are left")]
const fn f32_to_f16(x: f32) -> u16 {
    let (sign, magnitude) = (x.to_bits() >> 16 & 0x8000, x.to_bits() & 0x7fff_ffff);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // The last place of a number from 1/2 to 1 is that of a subnormal binary16: the sum rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(126 << 23);
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    let infinite = if magnitude > 0x7f80_0000 { 0x7e00 | (magnitude >> 13 & 0x3ff) } else { 0x7c00 };
    (sign | if magnitude < 143 << 23 { finite } else { infinite }) as u16
}

#[inline]
const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Ties to even; a NaN becomes quiet.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "16 bits are left")]
const fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded }) as u16
}

macro_rules! two_bytes {
    ($type:ty, $format:expr, $infinity:expr, $scaled:expr) => {
        impl Bits for $type {
            const ZERO: Self = Self::ZERO;

            #[inline]
            fn is_negative(self) -> bool {
                // By their bits, the numbers from the first below 0 to minus infinity; −0.0 comes before them, NaNs
                // after.
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
            unsafe fn scaled(block: &[Self; BLOCK], slope: f32, wide: bool) -> [Self; BLOCK] {
                // SAFETY: as promised.
                unsafe { $scaled(block, slope, wide) }
            }

            #[inline]
            fn selected(word: u32, set: &[Self; BLOCK], unset: &[Self; BLOCK]) -> [Self; BLOCK] {
                let mut selected = *unset;
                // 16 at a time: then a mask's bits are tested in numbers of 16 bits, as long as an element.
                for (half, (to, from)) in selected.chunks_exact_mut(16).zip(set.chunks_exact(16)).enumerate() {
                    let bits = u16::try_from(word >> (16 * half) & 0xffff).unwrap_or(0);
                    for (i, (to, from)) in to.iter_mut().zip(from).enumerate() {
                        let keep = if bits & (1 << i) == 0 { 0 } else { u16::MAX };
                        *to = Self::from_bits(from.to_bits() & keep | to.to_bits() & !keep);
                    }
                }
                selected
            }
        }

        impl Element for $type {
            const FORMAT: Format = $format;
        }
    };
}

two_bytes!(f16, Format::F16, 0x7c00, scaled_f16);
two_bytes!(bf16, Format::Bf16, 0x7f80, scaled_bf16);

/// `wide` only if the processor has AVX2 and F16C.
#[inline]
unsafe fn scaled_f16(block: &[f16; BLOCK], slope: f32, wide: bool) -> [f16; BLOCK] {
    #[cfg(target_arch = "x86_64")]
    if wide {
        // SAFETY: as promised.
        return unsafe { scaled_by_f16c(block, slope) };
    }
    let _ = wide;
    block.map(|x| f16::from_bits(f32_to_f16(f16_to_f32(x.to_bits()) * slope)))
}

/// `wide` only if the processor has AVX2 and F16C.
#[inline]
unsafe fn scaled_bf16(block: &[bf16; BLOCK], slope: f32, wide: bool) -> [bf16; BLOCK] {
    #[cfg(target_arch = "x86_64")]
    if wide {
        // SAFETY: as promised.
        return unsafe { scaled_in_halves(block, slope) };
    }
    let _ = wide;
    block.map(|x| bf16::from_bits(f32_to_bf16(bf16_to_f32(x.to_bits()) * slope)))
}

/// Packs by an instruction that the compiler does not use on its own.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn scaled_in_halves(block: &[bf16; BLOCK], slope: f32) -> [bf16; BLOCK] {
    use std::arch::x86_64::{
        _CMP_UNORD_Q, _mm_loadu_si128, _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256,
        _mm256_castsi256_ps, _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_mul_ps, _mm256_or_si256, _mm256_packus_epi32,
        _mm256_permute4x64_epi64, _mm256_set1_epi32, _mm256_set1_ps, _mm256_slli_epi32, _mm256_srli_epi32,
        _mm256_storeu_si256,
    };
    let (slope, one) = (_mm256_set1_ps(slope), _mm256_set1_epi32(1));
    let eight = |from: &[bf16; 8]| {
        // SAFETY: eight elements are as long as half a vector, which may begin anywhere; a bf16 is its bits.
        let bits = _mm256_cvtepu16_epi32(unsafe { _mm_loadu_si128(from.as_ptr().cast()) });
        let product = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits)), slope);
        let bits = _mm256_castps_si256(product);
        let upper = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(upper, one);
        let sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let (rounded, quiet) = (_mm256_srli_epi32::<16>(sum), _mm256_or_si256(upper, _mm256_set1_epi32(0x40)));
        let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(product, product));
        _mm256_blendv_epi8(rounded, quiet, is_nan)
    };
    let mut scaled = [bf16::ZERO; BLOCK];
    let pairs = block.as_chunks::<8>().0.as_chunks::<2>().0;
    for (to, [low, high]) in scaled.as_chunks_mut::<16>().0.iter_mut().zip(pairs) {
        // The instruction packs within halves of a vector: the middle quarters change places.
        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(eight(low), eight(high)));
        // SAFETY: sixteen elements are as long as a vector, as above.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), packed) };
    }
    scaled
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn scaled_by_f16c(block: &[f16; BLOCK], slope: f32) -> [f16; BLOCK] {
    use std::arch::x86_64::{
        _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_mul_ps,
        _mm256_set1_ps,
    };
    let mut scaled = [f16::ZERO; BLOCK];
    let (from, slope) = (block.as_chunks::<8>().0, _mm256_set1_ps(slope));
    for (to, from) in scaled.as_chunks_mut::<8>().0.iter_mut().zip(from) {
        // SAFETY: eight elements are as long as a vector, which may begin anywhere; an f16 is its bits.
        unsafe {
            let product = _mm256_mul_ps(_mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())), slope);
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(product));
        }
    }
    scaled
}

/// A type parameter, so that the loops need no branch.
trait Kind {
    fn bit<E: Bits>(x: E) -> bool;
    /// Unused for elements that pass unchanged. `wide` only with AVX2 and F16C.
    unsafe fn stopped<E: Bits>(block: &[E; BLOCK], slope: f32, wide: bool) -> [E; BLOCK];
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
    unsafe fn stopped<E: Bits>(_: &[E; BLOCK], _: f32, _: bool) -> [E; BLOCK] {
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
    unsafe fn stopped<E: Bits>(block: &[E; BLOCK], slope: f32, wide: bool) -> [E; BLOCK] {
        // SAFETY: as promised.
        unsafe { E::scaled(block, slope, wide) }
    }

    #[inline]
    fn is_kept<E: Bits>(x: E) -> bool {
        x.is_positive()
    }
}

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

/// Bit i is 1 if gradient i passes unchanged. `wide` only with AVX2 and F16C.
#[inline]
unsafe fn forward_block<K: Kind, E: Bits>(x: &[E; BLOCK], slope: f32, wide: bool) -> ([E; BLOCK], u32) {
    // SAFETY: as promised.
    let mut y = unsafe { K::stopped(x, slope, wide) };
    let mut bits = [false; BLOCK];
    for ((y, bit), &x) in y.iter_mut().zip(&mut bits).zip(x) {
        *bit = K::bit(x);
        *y = if K::is_kept(x) { x } else { *y };
    }
    (y, word(&bits))
}

/// `wide` only if the processor has AVX2 and F16C.
#[inline]
unsafe fn backward_block<K: Kind, E: Bits>(dy: &[E; BLOCK], word: u32, slope: f32, wide: bool) -> [E; BLOCK] {
    // SAFETY: as promised.
    E::selected(word, dy, &unsafe { K::stopped(dy, slope, wide) })
}

fn filled<E: Bits>(rest: &[E]) -> [E; BLOCK] {
    let mut block = [E::ZERO; BLOCK];
    block[..rest.len()].copy_from_slice(rest);
    block
}

/// `$plain` compiled twice, also for AVX2 and F16C; chosen at run time.
macro_rules! in_vectors {
    ($name:ident, $plain:ident($($argument:ident: $type:ty),*)) => {
        fn $name<E: Bits, W>(
            $($argument: $type,)*
            words: impl Iterator<Item = W>,
            block: impl Fn(&[E; BLOCK], W, bool) -> [E; BLOCK],
        ) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,f16c")]
                fn wide<E: Bits, W>(
                    $($argument: $type,)*
                    words: impl Iterator<Item = W>,
                    block: impl Fn(&[E; BLOCK], W, bool) -> [E; BLOCK],
                ) {
                    $plain($($argument,)* words, |x, word| block(x, word, true));
                }
                if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("f16c") {
                    // SAFETY: the processor has both.
                    return unsafe { wide($($argument,)* words, block) };
                }
            }
            $plain($($argument,)* words, |x, word| block(x, word, false));
        }
    };
}

in_vectors!(between, between_plain(x: &[E], y: &mut [E]));
in_vectors!(within, within_plain(x: &mut [E]));

#[inline]
fn between_plain<E: Bits, W>(
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

#[inline]
fn within_plain<E: Bits, W>(x: &mut [E], words: impl Iterator<Item = W>, block: impl Fn(&[E; BLOCK], W) -> [E; BLOCK]) {
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

fn check(elements: usize, words: usize) -> Result<usize, Error> {
    let needed = mask_words(elements);
    if words < needed { Err(Error::Mask { needed, got: words }) } else { Ok(needed) }
}

fn check_length(needed: usize, got: usize) -> Result<(), Error> {
    if needed == got { Ok(()) } else { Err(Error::Length { needed, got }) }
}

macro_rules! forward_as {
    ($kind:ty, $slope:expr) => {
        |x: &[E; BLOCK], word: &mut u32, wide: bool| {
            // SAFETY: `wide` is said only where the processor has been asked.
            let (y, bits) = unsafe { forward_block::<$kind, E>(x, $slope, wide) };
            *word = bits.to_le();
            y
        }
    };
}

macro_rules! backward_as {
    ($kind:ty, $slope:expr) => {
        |dy: &[E; BLOCK], word: &u32, wide: bool| {
            // SAFETY: `wide` is said only where the processor has been asked.
            unsafe { backward_block::<$kind, E>(dy, u32::from_le(*word), $slope, wide) }
        }
    };
}

/// Computes `y`, the activation of `x`, and the mask that the backward pass needs (one bit for each element of `x`).
/// Words of `mask` beyond those that `x` needs are left as they are.
///
/// # Errors
/// [`Error::Length`] if `x` and `y` differ in length; [`Error::Mask`] if `mask` is too short.
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

/// Computes the activation of `x`, writes it over `x`, and computes the mask that the backward pass needs (one bit for
/// each element of `x`). Words of `mask` beyond those that `x` needs are left as they are.
///
/// # Errors
/// [`Error::Mask`] if `mask` is too short.
pub fn forward_in_place<E: Element>(activation: Activation, x: &mut [E], mask: &mut [u32]) -> Result<(), Error> {
    let words = check(x.len(), mask.len())?;
    let mask = mask[..words].iter_mut();
    match activation {
        Activation::Relu => within(x, mask, forward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => within(x, mask, forward_as!(Leaky, slope)),
    }
    Ok(())
}

/// Computes `dx`, the gradient of the inputs `x`, from `dy`, the gradient of the outputs `y`, and the mask that
/// [`forward`] has written.
///
/// # Errors
/// [`Error::Length`] if `dy` and `dx` differ in length; [`Error::Mask`] if `mask` is too short.
pub fn backward<E: Element>(activation: Activation, dy: &[E], mask: &[u32], dx: &mut [E]) -> Result<(), Error> {
    check_length(dy.len(), dx.len())?;
    let mask = mask[..check(dy.len(), mask.len())?].iter();
    match activation {
        Activation::Relu => between(dy, dx, mask, backward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => between(dy, dx, mask, backward_as!(Leaky, slope)),
    }
    Ok(())
}

/// Computes the gradient of the inputs from `dy`, the gradient of the outputs, and the mask that the forward pass has
/// written. Writes the result over `dy`.
///
/// # Errors
/// [`Error::Mask`] if `mask` is too short.
pub fn backward_in_place<E: Element>(activation: Activation, dy: &mut [E], mask: &[u32]) -> Result<(), Error> {
    let mask = mask[..check(dy.len(), mask.len())?].iter();
    match activation {
        Activation::Relu => within(dy, mask, backward_as!(Relu, 0.0)),
        Activation::Leaky(slope) => within(dy, mask, backward_as!(Leaky, slope)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_round_to_the_nearest() {
        for bits in 0..=u16::MAX {
            let (x, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(f16_to_f32(bits), x.to_f32()) && same(bf16_to_f32(bits), b.to_f32()), "{bits:#x}");
            for exact in [x.to_f32(), b.to_f32()] {
                for low in [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0x1fff] {
                    let near = f32::from_bits(exact.to_bits() ^ low);
                    let (narrow, brief) = (f16::from_f32(near), bf16::from_f32(near));
                    assert!(near.is_nan() || f32_to_f16(near) == narrow.to_bits(), "{near:e}");
                    assert!(near.is_nan() || f32_to_bf16(near) == brief.to_bits(), "{near:e}");
                    assert_eq!(near.is_nan(), f16::from_bits(f32_to_f16(near)).is_nan());
                    assert_eq!(near.is_nan(), bf16::from_bits(f32_to_bf16(near)).is_nan());
                }
            }
        }
    }

    #[test]
    fn both_ways_yield_the_same() {
        let same = |(a, b): (u16, u16), is_nan: fn(u16) -> bool| a == b || is_nan(a) && is_nan(b);
        for start in (0..=u16::MAX).step_by(BLOCK) {
            for slope in [0.01, -0.25, 3e4, 1e-7, f32::INFINITY] {
                let bits: [u16; BLOCK] = std::array::from_fn(|i| start + u16::try_from(i).unwrap());
                let (x, b) = (bits.map(f16::from_bits), bits.map(bf16::from_bits));
                let (mut wide_x, mut wide_b) = (x, b);
                // SAFETY: as it is told.
                within(&mut wide_x, std::iter::once(()), |x, (), wide| unsafe { scaled_f16(x, slope, wide) });
                // SAFETY: as above.
                within(&mut wide_b, std::iter::once(()), |x, (), wide| unsafe { scaled_bf16(x, slope, wide) });
                // SAFETY: it is not said to be wide.
                let (plain_x, plain_b) = unsafe { (scaled_f16(&x, slope, false), scaled_bf16(&b, slope, false)) };
                for i in 0..BLOCK {
                    let (a, b) = (wide_x[i].to_bits(), plain_x[i].to_bits());
                    assert!(same((a, b), |bits| f16::from_bits(bits).is_nan()), "{start:#x} {slope}");
                    let (a, b) = (wide_b[i].to_bits(), plain_b[i].to_bits());
                    assert!(same((a, b), |bits| bf16::from_bits(bits).is_nan()), "{start:#x} {slope}");
                }
            }
        }
    }
}
