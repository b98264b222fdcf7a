//! The largest batch that one GPU can train with, beside table 7 of Jin et al. 2018 (Layrub).
//!
//! `cargo bench -p sublet-benches --bench batch -- [NETWORK]` prints the table, or the row of one network. The memory
//! is that of the paper's K40: 11,580 MB, by the paper's table 4. The times of operators follow from the K40's data
//! sheet by a roofline, the times of copies from the device `k40`. Everything counts: images, parameters, their
//! momentum and gradients, activations, and a scratch of 8 MiB for convolutions. The paper's figures were tried out on
//! the GPU, with cuDNN's scratch and handles and CUDA's context.
//!
//! "Layrub's rule" is Layrub's hybrid reuse: the bytes that `layrub::reuse` counts for activations and their gradients,
//! and beside them the blocks that last for the iteration. "Segments" is Chen et al.'s search over the budget, where
//! each plan is placed. Each figure is the largest batch that doubling and halving find.

use std::collections::BTreeMap;

use sublet_baselines::{chen, layrub};
use sublet_core::Error;
use sublet_core::place::Solver;
use sublet_core::rewrite::fit::Options;
use sublet_core::simulate::Device;
use sublet_core::trace::{Recorded, Row};
use sublet_models::{AlexNet, Image, Network, Phase, ResNet, Roofline, Setting, Trace, Vgg, WideResNet};
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::{peak_of_lasting, prove};

/// The memory of the paper's K40, in bytes.
const MEMORY: u64 = 11_580 << 20;

/// NVIDIA's Tesla K40 by its data sheet: 4.29 teraflops in single precision, 288 GB/s.
const K40: Roofline =
    Roofline { flops_per_s: 4.29e12, bytes_per_s: 288e9, launch_ns: 5000, convolution_workspace: 8 << 20 };

/// No larger batch is tried, in images.
const MOST: u32 = 1 << 16;

/// The overheads that a fit may have, as fractions of the original's time.
const WITHIN: [f64; 3] = [0.10, 0.33, f64::INFINITY];

/// A network of the paper's table 7: its usual batch there, and the largest with Layrub.
struct Case {
    name: &'static str,
    usual: u32,
    layrub: u32,
    build: fn(&Setting) -> Network,
}

const CASES: [Case; 5] = [
    Case { name: "AlexNet", usual: 128, layrub: 2100, build: |s| AlexNet { by_layers: true }.build(s).unwrap() },
    Case {
        name: "VGG-16",
        usual: 64,
        layrub: 240,
        build: |s| Vgg { depth: 16, image: Image::ImageNet }.build(s).unwrap(),
    },
    Case {
        name: "ResNet-34",
        usual: 32,
        layrub: 416,
        build: |s| ResNet { depth: 34, ..ResNet::default() }.build(s).unwrap(),
    },
    Case { name: "ResNet-50", usual: 32, layrub: 272, build: |s| ResNet::default().build(s).unwrap() },
    Case {
        name: "WRN-28-10",
        usual: 128,
        layrub: 1376,
        build: |s| WideResNet { depth: 28, width: 10 }.build(s).unwrap(),
    },
];

fn main() {
    let only = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let device = Device::named("k40").expect("a preset");
    println!("Largest batch in {} MiB, and the time added; the first two columns are the paper's\n", MEMORY >> 20);
    println!("| | usual | Layrub | as recorded | Layrub's rule | segments | all ≤ 10 % | all ≤ 33 % | all |");
    println!("| - | - | - | - | - | - | - | - | - |");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.eq_ignore_ascii_case(only))) {
        let Case { name, usual, layrub, .. } = case;
        let recorded = largest(1, |batch| as_recorded(&Iteration::of(case, batch), &device));
        let from = recorded.map_or(1, |(batch, _)| batch);
        let by_layer = largest(from, |batch| by_layer(&Iteration::of(case, batch), &device));
        let by_segments = largest(from, |batch| by_segments(&Iteration::of(case, batch), &device));
        let mut fits = BTreeMap::new();
        let by_all = WITHIN.map(|within| {
            largest(from, |batch| {
                let fit = fits.entry(batch).or_insert_with(|| fitted(&Iteration::of(case, batch), &device));
                fit.filter(|&added| added <= within)
            })
        });
        let cells = [recorded, by_layer, by_segments].into_iter().chain(by_all).map(cell).collect::<Vec<_>>();
        println!("| {name} | {usual} | {layrub} | {} |", cells.join(" | "));
    }
}

fn cell(found: Option<(u32, f64)>) -> String {
    found.map_or_else(|| "none".to_owned(), |(batch, added)| format!("{batch}, {:.1} %", 100.0 * added))
}

/// The largest batch for which `fits` has an answer, and the answer. Doubles the batch, from `from` on, until one does
/// not fit; then halves the range in between.
fn largest(from: u32, mut fits: impl FnMut(u32) -> Option<f64>) -> Option<(u32, f64)> {
    let mut low = (from, fits(from)?);
    let mut high = MOST + 1;
    while low.0 < MOST && high > MOST {
        let batch = (2 * low.0).min(MOST);
        match fits(batch) {
            Some(added) => low = (batch, added),
            None => high = batch,
        }
    }
    while high - low.0 > 1 {
        let batch = low.0 + (high - low.0) / 2;
        match fits(batch) {
            Some(added) => low = (batch, added),
            None => high = batch,
        }
    }
    Some(low)
}

/// A network at a batch.
struct Iteration {
    network: Network,
    trace: Trace,
}

impl Iteration {
    fn of(case: &Case, batch: u32) -> Self {
        let network = (case.build)(&Setting { batch, training: true, device: K40 });
        let trace = network.trace().unwrap();
        Self { network, trace }
    }
}

/// The overhead of the rows, if their placement fits.
fn placed(recorded: &Recorded<'_>, rows: &[Row], device: &Device) -> Option<f64> {
    let proved = prove(recorded, rows, Solver::Multistart, device, true).unwrap_or_else(|e| panic!("{e}"));
    (proved.footprint <= MEMORY).then(|| proved.run.overhead())
}

fn as_recorded(iteration: &Iteration, device: &Device) -> Option<f64> {
    placed(&iteration.trace.recorded(), &iteration.trace.rows, device)
}

/// The overhead of Layrub's copies, if the bytes that its hybrid reuse counts fit, with what lasts and the workspace.
fn by_layer(iteration: &Iteration, device: &Device) -> Option<f64> {
    let recorded = iteration.trace.recorded();
    let (rows, bytes) = layrub::reuse(&recorded, device, 1).unwrap_or_else(|e| panic!("{e}"));
    let operators = &iteration.network.operators;
    let lasting = peak_of_lasting(&recorded, recorded.rows, |k| operators[k as usize].phase == Phase::Update);
    let workspace = operators.iter().map(|o| o.workspace).max().unwrap_or(0);
    if bytes.hybrid + lasting + workspace > MEMORY {
        return None;
    }
    let proved = prove(&recorded, &rows, Solver::BestFit, device, true).unwrap_or_else(|e| panic!("{e}"));
    Some(proved.run.overhead())
}

/// The overhead of the plan that Chen et al.'s search finds, if its placement fits. A plan costs its footprint.
fn by_segments(iteration: &Iteration, device: &Device) -> Option<f64> {
    let recorded = iteration.trace.recorded();
    let cost = |rows: &[Row]| prove(&recorded, rows, Solver::BestFit, device, true).map(|proved| proved.footprint);
    let (rows, _) = chen::search(&recorded, cost).unwrap_or_else(|e| panic!("{e}"));
    placed(&recorded, &rows, device)
}

/// The overhead of a fit by all means, if there is one.
fn fitted(iteration: &Iteration, device: &Device) -> Option<f64> {
    match Fitter::new(iteration.trace.recorded()).fit(&Options::new(MEMORY, *device)) {
        Ok(fit) => Some(fit.schedule.run().overhead()),
        Err(Error::OverLimit { .. } | Error::Impossible { .. }) => None,
        Err(e) => panic!("{e}"),
    }
}
