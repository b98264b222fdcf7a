//! Figures that `fit` is to reach, and what it reaches.
//!
//! A figure is a limit, as a part of the original peak, and the most overhead at this limit. `cargo bench -p
//! sublet-benches --bench targets -- [FILTER]`, with `SUBLET_DATA`, fits to each limit, and prints the overhead beside
//! the allowed one. The footprint must be within the limit, even where the figure was reached for a load. Prototypes of
//! the same ideas reached the figures in seconds, on the same traces with the same device. The last ten are different:
//! a bound on the load, made apart from this project, says which reduction is possible without overhead, and nine
//! tenths of that reduction are asked for.

mod clock;

use clock::cpu_seconds;
use sublet_core::Error;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::{Recording, percent};

const SWAP: Using = Using::NONE.with(Means::Swap);
const RECOMPUTE: Using = Using::NONE.with(Means::Recompute);

/// The limit, in tenths of a per cent of the original peak, and the most overhead, in %.
type Figure = (u64, f64);

/// The overhead that counts as none, in %.
const FREE: f64 = 0.1;

const FIGURES: [(&str, Using, &[Figure]); 33] = [
    ("resnet50_cifar_train_b100", SWAP, &[(470, FREE), (370, 5.0), (250, 15.0)]),
    ("resnet18_cifar_train_b100", SWAP, &[(320, FREE), (230, 5.0), (190, 15.0)]),
    ("vgg16_cifar_train_b100", SWAP, &[(560, FREE), (480, 5.0), (400, 15.0)]),
    ("vgg11_cifar_train_b100", SWAP, &[(630, FREE), (550, 5.0), (440, 15.0)]),
    ("resnet50_train_b32", SWAP, &[(840, FREE), (820, 5.0), (780, 15.0)]),
    ("seq2seq_train_b64", SWAP, &[(780, FREE), (720, 5.0), (630, 15.0)]),
    ("resnet50_train_b32", RECOMPUTE, &[(500, 10.0), (350, 20.0), (270, 33.0)]),
    ("resnet50_train_b32", Using::ALL, &[(400, 10.0), (270, 20.0)]),
    ("preresnet200_train_b32", RECOMPUTE, &[(500, 10.0), (250, 20.0), (200, 33.0)]),
    ("preresnet200_train_b32", Using::ALL, &[(350, 10.0), (170, 20.0)]),
    ("googlenet_train_b32", RECOMPUTE, &[(450, 10.0)]),
    ("googlenet_train_b32", Using::ALL, &[(450, 10.0)]),
    ("vgg16_cifar_train_b100", RECOMPUTE, &[(550, 10.0), (500, 33.0)]),
    ("vgg16_cifar_train_b100", Using::ALL, &[(500, 10.0)]),
    ("gpt2_train_b8", RECOMPUTE, &[(700, 10.0), (600, 20.0)]),
    ("gpt2_train_b8", Using::ALL, &[(700, 10.0), (600, 20.0)]),
    ("lstm4x1024_train_b64", RECOMPUTE, &[(800, 10.0), (600, 20.0)]),
    ("lstm4x1024_train_b64", Using::ALL, &[(800, 10.0), (600, 20.0)]),
    ("seq2seq_train_b64", RECOMPUTE, &[(900, 10.0), (870, 20.0)]),
    ("seq2seq_train_b64", Using::ALL, &[(900, 10.0), (870, 20.0)]),
    ("resnet50_cifar_train_b100", Using::ALL, &[(470, FREE), (250, 15.0)]),
    ("resnet18_cifar_train_b100", Using::ALL, &[(320, FREE), (190, 15.0)]),
    ("vgg11_cifar_train_b100", Using::ALL, &[(630, FREE), (440, 15.0)]),
    ("alexnet_train_b32", SWAP, &[(912, FREE)]),
    ("alexnet_train_b64", SWAP, &[(886, FREE)]),
    ("googlenet_train_b32", SWAP, &[(865, FREE)]),
    ("googlenet_train_b64", SWAP, &[(869, FREE)]),
    ("gpt2_train_b8", SWAP, &[(975, FREE)]),
    ("inception_resnet_v2_train_b32", SWAP, &[(787, FREE)]),
    ("inception_resnet_v2_train_b64", SWAP, &[(787, FREE)]),
    ("preresnet200_train_b32", SWAP, &[(818, FREE)]),
    ("resnet50_train_b64", SWAP, &[(848, FREE)]),
    ("lstm4x1024_train_b64", SWAP, &[(488, FREE)]),
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
                Err(Error::Impossible { needed, .. }) => format!("none; above {:.1} %", percent(needed, peak)),
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
        for &(_, using, figures) in figures {
            for &(left, within) in figures {
                row(using, peak / 1000 * left, within);
            }
        }
    }
    println!("\n{met} of {asked}");
}

fn name(using: Using) -> &'static str {
    match using {
        SWAP => "swap",
        RECOMPUTE => "recompute",
        _ => "all",
    }
}
