//! What a limit costs by swapping, by recomputation, by both, and by all means, on every training trace and on 1001
//! layers of a `ResNet`.
//!
//! `cargo bench -p sublet-benches --bench joint -- [FILTER [LIMITS]]` prints a table for each trace whose name holds
//! FILTER, at limits in % of the original peak, such as 60,40, and then the least loads that were reached within 10, 20
//! and 33 % of overhead. With `SUBLET_DATA` the larger corpus is read. More means must not be worse than fewer at any
//! limit.

mod clock;

use clock::cpu_seconds;
use sublet_core::Error;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::Recorded;
use sublet_models::{ResNet, Roofline, Setting, Stages};
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::{Recording, max_load, percent};

/// Limits in % of the original peak.
const LIMITS: [u64; 14] = [95, 90, 80, 70, 60, 50, 45, 40, 35, 30, 25, 20, 15, 10];
/// Limits in % of the original peak, for networks with many rows.
const FEWER: [u64; 6] = [60, 50, 35, 25, 20, 12];
const MANY_ROWS: usize = 12_000;
/// The overheads, as fractions of the original's time, within which the least loads are told.
const WITHIN: [f64; 3] = [0.10, 0.20, 0.33];

/// The result of a fit by some means at a limit.
struct Point {
    limit: u64,
    curve: usize,
    footprint: u64,
    load: u64,
    overhead: f64,
}

/// The sets of means that are compared. A set that is contained in another comes before it.
const CURVES: [Using; 4] = [
    Using::NONE.with(Means::Swap),
    Using::NONE.with(Means::Recompute),
    Using::NONE.with(Means::Swap).with(Means::Recompute),
    Using::ALL,
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let filter = arguments.next().unwrap_or_default();
    let limits: Option<Vec<u64>> =
        arguments.next().map(|list| list.split(',').map(|limit| limit.parse().expect("a percentage")).collect());
    let limits = limits.as_deref();
    let device = Device::named("gtx1080ti").expect("a preset");
    let mut left = Vec::new();
    for recording in Recording::training() {
        if recording.name.contains(&filter) {
            left.push((recording.name.clone(), curves(&recording.name, recording.recorded(), device, limits)));
        }
    }
    let name = "resnet1001_train_b32";
    if name.contains(&filter) {
        let setting = Setting { batch: 32, training: true, device: Roofline::GTX1080TI };
        let network = ResNet { depth: 1001, stages: Stages::Even, ..ResNet::default() }.build(&setting).unwrap();
        let trace = network.trace().unwrap();
        let recorded = trace.recorded();
        left.push((name.to_owned(), curves(name, recorded, device, limits)));
    }
    println!("\nLoad (footprint) that is left, in % of the original peak, at most 10, 20 and 33 % slower:\n");
    println!("| trace | swap | recompute | both | all |\n| - | - | - | - | - |");
    for (name, left) in left {
        println!("| {name} | {} |", left.join(" | "));
    }
}

/// Prints the curves of a network. Returns for each the least loads within the overheads of [`WITHIN`], as text.
fn curves(name: &str, recorded: Recorded<'_>, device: Device, limits: Option<&[u64]>) -> [String; 4] {
    let peak = max_load(recorded.rows);
    let few: &[u64] = if recorded.rows.len() > MANY_ROWS { &FEWER } else { &LIMITS };
    let limits = limits.unwrap_or(few);
    println!("\n{name}, {} rows, {peak} bytes: overhead, CPU seconds\n", recorded.rows.len());
    println!("| limit | swap | recompute | both | all |\n| - | - | - | - | - |");
    let mut fitter = Fitter::new(recorded);
    let mut points: Vec<Point> = Vec::new();
    // Means that have failed at a limit are not tried at lower limits.
    let mut failed = [false; 4];
    for part in limits {
        let limit = peak / 100 * part;
        let mut cells = Vec::new();
        for (curve, using) in CURVES.into_iter().enumerate() {
            if failed[curve] {
                cells.push("none".to_owned());
                continue;
            }
            let begin = cpu_seconds();
            let fit = fitter.fit(&Options { using, ..Options::new(limit, device) });
            let took = cpu_seconds() - begin;
            match fit {
                Ok(fit) => {
                    let run = fit.schedule.run();
                    let (load, overhead) = (run.peak_load, run.overhead());
                    cells.push(format!("{:.2} %, {took:.1} s", 100.0 * overhead));
                    points.push(Point { limit, curve, footprint: fit.schedule.plan().peak(), load, overhead });
                }
                Err(Error::OverLimit { .. } | Error::Impossible { .. }) => {
                    cells.push(format!("none, {took:.1} s"));
                    failed[curve] = true;
                }
                Err(e) => panic!("{name}: {e}"),
            }
        }
        println!("| {part} % | {} |", cells.join(" | "));
        let of_curve = |curve| points.iter().find(|p| p.limit == limit && p.curve == curve).map(|p| p.overhead);
        for (few, many) in [(0, 2), (1, 2), (2, 3)] {
            let (few, many) = (of_curve(few).unwrap_or(f64::INFINITY), of_curve(many).unwrap_or(f64::INFINITY));
            assert!(many <= few + 1e-9, "{name} at {part} %: {many} by more means, {few} by fewer");
        }
        if failed == [true; 4] {
            break;
        }
    }
    [0, 1, 2, 3].map(|curve| {
        let cells = WITHIN.map(|within| {
            let good = points.iter().filter(|p| p.curve == curve && p.overhead <= within);
            good.min_by_key(|p| (p.load, p.footprint))
                .map_or("none".into(), |p| format!("{:.1} ({:.1})", percent(p.load, peak), percent(p.footprint, peak)))
        });
        cells.join(" / ")
    })
}
