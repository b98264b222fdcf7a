//! What Chen et al. 2016 promise, on networks as deep as theirs: how memory grows with depth and length, and what the
//! recomputation costs in time.
//!
//! `cargo bench -p sublet-benches --bench recompute -- [FOLDER]` prints the tables, and with a folder writes
//! `recompute.csv` and the picture `recompute.svg` there. "Feature maps" is the highest load of the blocks that come
//! and go within the iteration: all but parameters, their momentum and their gradients.

use std::fmt::Write as _;
use std::path::Path;

use sublet_baselines::chen::{self, Cuts, Plan};
use sublet_core::place::Solver;
use sublet_core::simulate::Device;
use sublet_core::trace::Row;
use sublet_models::{Lstm, Network, Phase, ResNet, Roofline, Setting, Stages};
use sublet_tests::recording::{max_load, peak_of_passing, prove};

const DEVICE: Device = Device::symmetric(12e9);

/// A point of a curve.
struct Point {
    curve: &'static str,
    size: u32,
    /// The max load of all blocks, in bytes.
    load: u64,
    /// The max load of the feature maps, in bytes.
    maps: u64,
    footprint: u64,
    added: f64,
    cuts: u32,
}

fn main() {
    let folder = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let mut points = Vec::new();
    for depth in [50, 101, 200, 302, 500, 695, 1001, 1172, 1517] {
        let network = ResNet { depth, stages: Stages::Even, ..ResNet::default() };
        let setting = Setting { batch: 32, training: true, device: Roofline::GTX1080TI };
        points.extend(measure(["resnet", "resnet-chen", "resnet-recursive"], depth, &network.build(&setting).unwrap()));
    }
    table("ResNet at batch 32, deepened in every stage", "depth", &points);
    laws(&points);
    let mut unrolled = Vec::new();
    for steps in [64, 128, 256, 512, 1024, 2048] {
        let network = Lstm { steps, ..Lstm::default() };
        let setting = Setting { batch: 64, training: true, device: Roofline::GTX1080TI };
        unrolled.extend(measure(["lstm", "lstm-chen", "lstm-recursive"], steps, &network.build(&setting).unwrap()));
    }
    table("LSTM of 4 layers with 1024 cells at batch 64, unrolled", "steps", &unrolled);
    laws(&unrolled);
    if let Some(folder) = folder {
        points.extend(unrolled);
        write(Path::new(&folder), &points).unwrap_or_else(|e| panic!("{folder}: {e}"));
    }
}

fn measure(curves: [&'static str; 3], size: u32, network: &Network) -> Vec<Point> {
    let trace = network.trace().unwrap();
    let recorded = trace.recorded();
    let point = |curve, rows: &[Row], cuts| {
        let proved =
            prove(&recorded, rows, Solver::Multistart, &DEVICE, false).unwrap_or_else(|e| panic!("{curve}: {e}"));
        Point {
            curve,
            size,
            load: max_load(rows),
            maps: peak_of_passing(&recorded, rows, |k| network.operators[k as usize].phase == Phase::Update),
            footprint: proved.footprint,
            added: proved.run.overhead(),
            cuts,
        }
    };
    let cost = |rows: &[Row]| prove(&recorded, rows, Solver::BestFit, &DEVICE, false).map(|proved| proved.footprint);
    let (searched, found) = chen::search(&recorded, cost).unwrap();
    let recursion = Plan::Recursive(1, Cuts::Narrow);
    let (recursive, of_recursion) = chen::rewrite(&recorded, recursion, size.ilog2() + 2).unwrap();
    vec![
        point(curves[0], recorded.rows, 0),
        point(curves[1], &searched, found.cuts),
        point(curves[2], &recursive, of_recursion.cuts),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "to be read")]
fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

fn table(title: &str, size: &str, points: &[Point]) {
    println!("\n{title}: GB of feature maps, and of everything (load); time added\n");
    println!("| {size} | as recorded | segments | their cuts | added | reduction | recursive | added |");
    println!("| - | - | - | - | - | - | - | - |");
    for three in points.chunks(3) {
        let [plain, chen, recursive] = three else { continue };
        println!(
            "| {} | {:.2}, {:.2} | {:.2}, {:.2} | {} | {:.1} % | {:.1}× | {:.2}, {:.2} | {:.0} % |",
            plain.size,
            gb(plain.maps),
            gb(plain.load),
            gb(chen.maps),
            gb(chen.load),
            chen.cuts,
            100.0 * chen.added,
            gb(plain.maps) / gb(chen.maps),
            gb(recursive.maps),
            gb(recursive.load),
            100.0 * recursive.added
        );
    }
}

/// Fits two laws to each curve by least squares, and prints them: maps = a · size^b, by the logarithms, and maps = a +
/// b · log2(size). `maps` is in GB.
fn laws(points: &[Point]) {
    println!();
    for curve in points.iter().take(3).map(|p| p.curve) {
        let of_curve = || points.iter().filter(|p| p.curve == curve);
        let log = of_curve().map(|p| (f64::from(p.size).log2(), gb(p.maps).log2()));
        let (exponent, fit) = slope(&log.collect::<Vec<_>>());
        let straight: Vec<_> = of_curve().map(|p| (f64::from(p.size).log2(), gb(p.maps))).collect();
        let (each, in_logarithm) = slope(&straight);
        println!(
            "{curve}: feature maps grow with size^{exponent:.3} (r² {fit:.3}); by {each:.3} GB at each doubling (r² {in_logarithm:.3})"
        );
    }
}

/// The slope of the line through the points, and the coefficient of determination.
#[expect(clippy::cast_precision_loss, reason = "a few points")]
fn slope(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let (mx, my) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - mx, p.1 - my)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    (xy / xx, xy * xy / (xx * yy))
}

fn write(folder: &Path, points: &[Point]) -> std::io::Result<()> {
    let mut csv = "curve,size,load_bytes,feature_map_bytes,footprint_bytes,added_time,cuts\n".to_owned();
    for p in points {
        let Point { curve, size, load, maps, footprint, added, cuts } = p;
        let _ = writeln!(csv, "{curve},{size},{load},{maps},{footprint},{added:.6},{cuts}");
    }
    std::fs::write(folder.join("recompute.csv"), csv)?;
    std::fs::write(folder.join("recompute.svg"), svg(points))
}

/// A picture of the curves as SVG, with both axes in powers of two.
fn svg(points: &[Point]) -> String {
    let x = |size: u32| 60.0 + 90.0 * (f64::from(size).log2() - 5.0);
    let y = |maps: u64| 480.0 - 40.0 * (gb(maps).log2() + 3.0);
    let mut out = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"520\" font-family=\"sans-serif\" font-size=\"12\">\n".to_owned();
    for power in 5..=11 {
        let at = x(1 << power);
        let _ =
            writeln!(out, "<path d=\"M{at} 20V480\" stroke=\"#ddd\"/><text x=\"{at}\" y=\"500\">{}</text>", 1 << power);
    }
    for power in -3..=8 {
        let at = 480.0 - 40.0 * f64::from(power + 3);
        let _ = writeln!(
            out,
            "<path d=\"M60 {at}H600\" stroke=\"#ddd\"/><text x=\"4\" y=\"{at}\">{} GB</text>",
            2f64.powi(power)
        );
    }
    let mut curves: Vec<&str> = points.iter().map(|p| p.curve).collect();
    curves.sort_unstable();
    curves.dedup();
    for (curve, colour) in curves.iter().zip(["#999", "#36c", "#93c", "#555", "#c33", "#e80"]) {
        let of_curve: Vec<&Point> = points.iter().filter(|p| p.curve == *curve).collect();
        let line: Vec<String> = of_curve.iter().map(|p| format!("{:.1},{:.1}", x(p.size), y(p.maps))).collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>", line.join(" "));
        if let Some(last) = of_curve.last() {
            let (x, y) = (x(last.size) + 4.0, y(last.maps));
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{curve}</text>");
        }
    }
    out + "</svg>\n"
}
