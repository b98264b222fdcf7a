//! The processor's implementation against the definition.

use half::{bf16, f16};
use proptest::prelude::*;
use sublet_cuda::relu::{Activation, Error, Format, cpu, mask_words};

use crate::naive::{self, Number, any_nan, assert_agree};

/// What a mask's words are before: a call must write all of its own, and no other.
const BEFORE: u32 = 0xa5a5_a5a5;

fn check<E: Number>(activation: Activation, bits: &[u32], skipped: usize) {
    let numbers: Vec<E> = bits.iter().map(|&bits| E::of(bits)).collect();
    // Not where an allocation begins.
    let x = &numbers[skipped.min(numbers.len())..];
    let dy: Vec<E> = bits.iter().rev().map(|&bits| E::of(bits.rotate_left(7))).take(x.len()).collect();
    let expected: Vec<E> = x.iter().map(|&x| naive::forward(activation, x).0).collect();
    let words = mask_words(x.len());

    let mut mask = vec![BEFORE; words + 1];
    let mut y = vec![E::of(BEFORE); x.len()];
    cpu::forward(activation, x, &mut y, &mut mask).unwrap();
    assert_agree(&format!("{activation:?} forward"), any_nan(activation), &y, &expected);
    assert_eq!((&mask[..words], mask[words]), (&naive::mask(activation, x)[..], BEFORE), "{activation:?}");

    let mut in_place = numbers.clone();
    let mut mask_in_place = vec![BEFORE; words + 1];
    cpu::forward_in_place(activation, &mut in_place[skipped.min(numbers.len())..], &mut mask_in_place).unwrap();
    assert_agree("forward in place", any_nan(activation), &in_place[skipped.min(numbers.len())..], &expected);
    assert_eq!(mask_in_place, mask);

    let gradient = |(&dy, &x): (&E, &E)| naive::backward(activation, dy, naive::forward(activation, x).1);
    let expected: Vec<E> = dy.iter().zip(x).map(gradient).collect();
    let mut dx = vec![E::of(BEFORE); x.len()];
    cpu::backward(activation, &dy, &mask, &mut dx).unwrap();
    assert_agree("backward", any_nan(activation), &dx, &expected);
    let mut in_place = dy;
    cpu::backward_in_place(activation, &mut in_place, &mask).unwrap();
    assert_agree("backward in place", any_nan(activation), &in_place, &expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_of_any_count_from_any_start(
        bits in proptest::collection::vec(naive::bits(), 0..200),
        skipped in 0_usize..17,
        activation in naive::activation(),
    ) {
        check::<f32>(activation, &bits, skipped);
        check::<f16>(activation, &bits, skipped);
        check::<bf16>(activation, &bits, skipped);
    }
}

#[test]
fn every_number_of_sixteen_bits() {
    let all: Vec<u32> = (0..=0xffff).collect();
    for activation in naive::activations() {
        check::<f16>(activation, &all, 0);
        check::<bf16>(activation, &all, 3);
    }
}

/// The number at both sides of zero, that is none, and what comes back: as the documentation tells it.
#[test]
fn zeros_infinities_and_what_is_no_number() {
    let (inf, nan) = (f32::INFINITY, f32::from_bits(0xffc1_2345));
    let x = [-0.0, 0.0, -inf, inf, nan, -f32::from_bits(1), f32::from_bits(1)];
    let forward = |activation| {
        let (mut y, mut mask) = ([1.0; 7], [0]);
        cpu::forward(activation, &x, &mut y, &mut mask).unwrap();
        (y.map(f32::to_bits), mask[0])
    };
    let (y, mask) = forward(Activation::Relu);
    assert_eq!(y, [-0.0, 0.0, 0.0, inf, nan, 0.0, x[6]].map(f32::to_bits));
    assert_eq!(mask, 0b101_1000);
    let (y, mask) = forward(Activation::Leaky(0.0));
    assert_eq!([y[0], y[1], y[3], y[5]], [-0.0, 0.0, inf, -0.0].map(f32::to_bits));
    assert!([y[2], y[4]].map(f32::from_bits).iter().all(|y| y.is_nan()));
    assert_eq!(mask, 0b100_1000);

    // What is stopped is 0, and not a product with 0.
    let mut dx = [1.0; 3];
    cpu::backward(Activation::Relu, &[nan, -inf, -1.0], &[0], &mut dx).unwrap();
    assert_eq!(dx.map(f32::to_bits), [0; 3]);
    cpu::backward(Activation::Leaky(-2.0), &[nan, -inf, -1.0], &[0], &mut dx).unwrap();
    assert!(dx[0].is_nan());
    assert_eq!(dx[1..], [inf, 2.0]);
}

/// The difference quotient of a sum of outputs; both sides of it are exact in these numbers.
#[test]
fn the_gradient_is_that_of_the_function() {
    let n = 1000_u16;
    let x: Vec<f32> = (0..n).map(|i| f32::from(i * 37 % 513) / 16.0 - 16.0 + 1.0 / 32.0).collect();
    let weights: Vec<f32> = (0..n).map(|i| f32::from(i % 7) - 3.0).collect();
    let h = 1.0 / 64.0;
    for activation in [Activation::Relu, Activation::Leaky(0.25), Activation::Leaky(-0.5)] {
        let (mut y, mut mask) = (x.clone(), vec![0; mask_words(x.len())]);
        cpu::forward_in_place(activation, &mut y, &mut mask).unwrap();
        let mut dx = weights.clone();
        cpu::backward_in_place(activation, &mut dx, &mask).unwrap();
        let at = |by: f32| {
            let (mut y, mut mask) = (x.iter().map(|x| x + by).collect::<Vec<f32>>(), vec![0; mask_words(x.len())]);
            cpu::forward_in_place(activation, &mut y, &mut mask).unwrap();
            y
        };
        let (above, below) = (at(h), at(-h));
        for i in 0..x.len() {
            let quotient = weights[i] * (above[i] - below[i]) / (2.0 * h);
            assert!((dx[i] - quotient).abs() <= 0.0, "{activation:?} at {}", x[i]);
        }
    }
}

#[test]
fn many_elements() {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ state >> 11
    };
    let bits: Vec<u32> = (0..100_003).map(|_| next()).collect();
    for activation in [Activation::Relu, Activation::Leaky(0.01)] {
        check::<f32>(activation, &bits, 1);
        check::<f16>(activation, &bits, 5);
        check::<bf16>(activation, &bits, 0);
    }
}

#[test]
fn a_mask_is_a_32nd_of_the_activation() {
    let n = 1 << 20;
    assert_eq!(mask_words(n) * size_of::<u32>() * 32, n * Format::F32.bytes());
    assert_eq!([0, 1, 32, 33].map(mask_words), [0, 1, 1, 2]);
}

#[test]
fn lengths_that_do_not_fit_are_refused_and_nothing_is_written() {
    let x = [1.0_f32; 33];
    let (mut y, mut mask) = ([2.0; 33], [BEFORE; 2]);
    for activation in [Activation::Relu, Activation::Leaky(0.1)] {
        let short = Error::Mask { needed: 2, got: 1 };
        assert_eq!(cpu::forward(activation, &x, &mut y, &mut mask[..1]), Err(short.clone()));
        assert_eq!(cpu::forward_in_place(activation, &mut y, &mut mask[..1]), Err(short.clone()));
        assert_eq!(cpu::backward(activation, &x, &mask[..1], &mut y), Err(short.clone()));
        assert_eq!(cpu::backward_in_place(activation, &mut y, &mask[..1]), Err(short.clone()));
        let length = Error::Length { needed: 33, got: 32 };
        assert_eq!(cpu::forward(activation, &x, &mut y[..32], &mut mask), Err(length.clone()));
        assert_eq!(cpu::backward(activation, &x, &mask, &mut y[..32]), Err(length.clone()));
        assert_eq!((y, mask), ([2.0; 33], [BEFORE; 2]));
    }
    assert_eq!(Error::Mask { needed: 2, got: 1 }.to_string(), "the mask has 1 words and needs 2");
    assert_eq!(Error::Length { needed: 33, got: 32 }.to_string(), "the result has 32 elements, the input 33");
}
