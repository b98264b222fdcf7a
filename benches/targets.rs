//! Figures that are to be passed, and what `fit` comes to at them.
//!
//! `cargo bench -p sublet-benches --bench targets -- [FILTER]`, with `SUBLET_DATA`, asks for each at the part of the original
//! peak that is to be left over, and prints the overhead beside the one that is allowed. The limit holds for the footprint, also
//! where the figure is one of loads. The figures are those that prototypes of the same ideas reached in seconds, on the same
//! traces with the same device; where there is none for swapping, it is nine tenths of the reduction that
//! [`bound::load_without_overhead`] leaves possible.

mod clock;

use clock::cpu_seconds;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::rewrite::swap::bound;
use sublet_core::simulate::Device;
use sublet_core::{Error, Workspace};
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::{Recording, percent};

const SWAP: Using = Using::NONE.with(Means::Swap);
const RECOMPUTE: Using = Using::NONE.with(Means::Recompute);

/// What may be left at most, in % of the original peak, and the overhead within which, in %.
type Figure = (u64, f64);

/// Without overhead, up to a tenth of a per cent.
const FREE: f64 = 0.1;

const FIGURES: [(&str, Using, &[Figure]); 23] = [
    ("resnet50_cifar_train_b100", SWAP, &[(47, FREE), (37, 5.0), (25, 15.0)]),
    ("resnet18_cifar_train_b100", SWAP, &[(32, FREE), (23, 5.0), (19, 15.0)]),
    ("vgg16_cifar_train_b100", SWAP, &[(56, FREE), (48, 5.0), (40, 15.0)]),
    ("vgg11_cifar_train_b100", SWAP, &[(63, FREE), (55, 5.0), (44, 15.0)]),
    ("resnet50_train_b32", SWAP, &[(84, FREE), (82, 5.0), (78, 15.0)]),
    ("seq2seq_train_b64", SWAP, &[(78, FREE), (72, 5.0), (63, 15.0)]),
    ("resnet50_train_b32", RECOMPUTE, &[(50, 10.0), (35, 20.0), (27, 33.0)]),
    ("resnet50_train_b32", Using::ALL, &[(40, 10.0), (27, 20.0)]),
    ("preresnet200_train_b32", RECOMPUTE, &[(50, 10.0), (25, 20.0), (20, 33.0)]),
    ("preresnet200_train_b32", Using::ALL, &[(35, 10.0), (17, 20.0)]),
    ("googlenet_train_b32", RECOMPUTE, &[(45, 10.0)]),
    ("googlenet_train_b32", Using::ALL, &[(45, 10.0)]),
    ("vgg16_cifar_train_b100", RECOMPUTE, &[(55, 10.0), (50, 33.0)]),
    ("vgg16_cifar_train_b100", Using::ALL, &[(50, 10.0)]),
    ("gpt2_train_b8", RECOMPUTE, &[(70, 10.0), (60, 20.0)]),
    ("gpt2_train_b8", Using::ALL, &[(70, 10.0), (60, 20.0)]),
    ("lstm4x1024_train_b64", RECOMPUTE, &[(80, 10.0), (60, 20.0)]),
    ("lstm4x1024_train_b64", Using::ALL, &[(80, 10.0), (60, 20.0)]),
    ("seq2seq_train_b64", RECOMPUTE, &[(90, 10.0), (87, 20.0)]),
    ("seq2seq_train_b64", Using::ALL, &[(90, 10.0), (87, 20.0)]),
    ("resnet50_cifar_train_b100", Using::ALL, &[(47, FREE), (25, 15.0)]),
    ("resnet18_cifar_train_b100", Using::ALL, &[(32, FREE), (19, 15.0)]),
    ("vgg11_cifar_train_b100", Using::ALL, &[(63, FREE), (44, 15.0)]),
];

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with("--")).unwrap_or_default();
    let device = Device::named("gtx1080ti").expect("a preset");
    println!("| trace | means | left | within | overhead | CPU s | |\n| - | - | - | - | - | - | - |");
    let (mut met, mut asked) = (0, 0);
    for recording in Recording::training().iter().filter(|r| r.name.contains(&filter)) {
        let mut memory = Fitter::new(recording.recorded());
        let peak = recording.max_load();
        let mut row = |using: Using, limit: u64, within: f64| {
            let begin = cpu_seconds();
            let fit = memory.fit(&Options { using, ..Options::new(limit, device) });
            let overhead = fit.map(|fit| 100.0 * fit.schedule.run().overhead());
            let took = cpu_seconds() - begin;
            let passed = overhead.is_ok_and(|overhead| overhead <= within);
            (met, asked) = (met + u32::from(passed), asked + 1);
            let cell = match overhead {
                Ok(overhead) => format!("{overhead:.2} %"),
                Err(Error::OverLimit { least, .. }) => format!("none; {:.1} %", percent(least, peak)),
                Err(e) => panic!("{}: {e}", recording.name),
            };
            let left = percent(limit, peak);
            let verdict = if passed { "" } else { "missed" };
            println!(
                "| {} | {} | {left:.1} % | {within} % | {cell} | {took:.1} | {verdict} |",
                recording.name,
                name(using)
            );
        };
        let figures = FIGURES.iter().filter(|(trace, ..)| *trace == recording.name);
        if !figures.clone().any(|&(_, using, _)| using == SWAP) {
            let bound = bound(recording, &device);
            row(SWAP, peak - (peak - bound) * 9 / 10, FREE);
        }
        for &(_, using, figures) in figures {
            for &(left, within) in figures {
                row(using, peak / 100 * left, within);
            }
        }
    }
    println!("\n{met} of {asked}");
}

fn bound(recording: &Recording, device: &Device) -> u64 {
    let len = bound::workspace(recording.rows.len(), recording.blocks);
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let scratch = Workspace::new(&mut words, &mut indices);
    bound::load_without_overhead(&recording.rows, recording.blocks, device, scratch).expect("a recording")
}

fn name(using: Using) -> &'static str {
    match using {
        SWAP => "swap",
        RECOMPUTE => "recompute",
        _ => "all",
    }
}
