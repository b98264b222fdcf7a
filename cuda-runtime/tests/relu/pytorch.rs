//! The processor's implementation against PyTorch's operations, where libtorch is installed.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use half::bf16;
use sublet_cuda::relu::{Activation, Format, cpu, mask_words};

use crate::naive::{Number, any_nan, assert_agree};

const HEADER: &str = "/usr/include/ATen/ATen.h";

/// Numbers at every edge, then others; as many as leave a rest after PyTorch's vectors.
fn numbers<E: Number>(bits: u32) -> Vec<E> {
    let edges = [0, 1, 2, (1 << (bits - 1)) - 1, 1 << (bits - 2)];
    let exponents = [0x7f00, 0x7f80, 0x7f81, 0x7fc0, 0x3f80, 0x0080].map(|x: u32| x << (bits - 16));
    let positive = edges.into_iter().chain(exponents);
    let both = positive.flat_map(|x| [x, x | 1 << (bits - 1)]);
    let others = (0..301_u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> (32 - bits));
    both.chain(others).map(E::of).collect()
}

struct Case<E> {
    activation: Activation,
    x: Vec<E>,
    dy: Vec<E>,
}

impl<E: Number> Case<E> {
    fn new(activation: Activation, bits: u32) -> Self {
        let x = numbers(bits);
        let dy = x.iter().rev().copied().collect();
        Self { activation, x, dy }
    }

    fn write(&self, format: &str, to: &mut String) {
        let (kind, slope) = match self.activation {
            Activation::Relu => ("relu", 0.0),
            Activation::Leaky(slope) => ("leaky", slope),
        };
        write!(to, "{kind} {format} {slope} {}", self.x.len()).unwrap();
        for x in self.x.iter().chain(&self.dy) {
            write!(to, " {}", x.bits()).unwrap();
        }
        to.push('\n');
    }

    fn check<'a>(&self, lines: &mut impl Iterator<Item = &'a str>) {
        let mut theirs = || lines.next().unwrap().split(' ').map(|x| E::of(x.parse().unwrap())).collect::<Vec<E>>();
        let (mut found, mut mask) = (self.x.clone(), vec![0; mask_words(self.x.len())]);
        cpu::forward_in_place(self.activation, &mut found, &mut mask).unwrap();
        // PyTorch's processor makes one NaN of all in 16 bits.
        let any_nan = any_nan(self.activation) || E::FORMAT != Format::F32;
        assert_agree(&format!("{:?} forward", self.activation), any_nan, &found, &theirs());
        found.copy_from_slice(&self.dy);
        cpu::backward_in_place(self.activation, &mut found, &mask).unwrap();
        assert_agree(&format!("{:?} backward", self.activation), any_nan, &found, &theirs());
    }
}

#[test]
fn values_are_those_of_pytorch() {
    if !Path::new(HEADER).exists() {
        eprintln!("skipped: the activations of PyTorch; there is no {HEADER}");
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relu");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pytorch");
    let made = Command::new("c++")
        .args(["-std=c++17", "-O0", "-o"])
        .args([&program, &folder.join("pytorch.cpp")])
        .args(["-ltorch_cpu", "-lc10"])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let slopes = [0.01, 0.25, 0.0, 1.5, -0.75].map(Activation::Leaky);
    let activations = || [Activation::Relu].into_iter().chain(slopes);
    let single: Vec<Case<f32>> = activations().map(|a| Case::new(a, 32)).collect();
    let brain: Vec<Case<bf16>> = activations().map(|a| Case::new(a, 16)).collect();
    let mut text = String::new();
    for case in &single {
        case.write("f32", &mut text);
    }
    for case in &brain {
        case.write("bf16", &mut text);
    }

    let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut lines = printed.lines();
    for case in &single {
        case.check(&mut lines);
    }
    for case in &brain {
        case.check(&mut lines);
    }
    assert_eq!(lines.next(), None);
}
