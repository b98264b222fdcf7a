//! What Jin et al. 2018 (Layrub) promise: memory for activations and gradients that does not grow with depth.
//!
//! `cargo bench -p sublet-benches --bench layer -- [DEEPEST]` prints the tables. The networks are deepened in the third
//! stage. The second table has the fits of the same networks, up to DEEPEST layers, by all means together. Their limit
//! is what parameters, momentum and their gradients take, and in addition 60 % of the paper's bytes for activations and
//! gradients. Each fit must be faster than Layrub's rule.

mod clock;

use clock::cpu_seconds;
use sublet_baselines::layrub;
use sublet_core::place::Solver;
use sublet_core::rewrite::fit::Options;
use sublet_core::simulate::Device;
use sublet_models::{Phase, ResNet, Roofline, Setting, Stages};
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::{peak_of_lasting, prove};

/// The paper's bytes for activations and gradients: 759.5 MiB, at every depth.
const PAPER: u64 = 1519 << 19;
/// The part of these bytes that a fit may take, in percent.
const PERCENT: u64 = 60;
/// The deepest network that is fitted if nothing else is asked for: beyond, a fit takes minutes.
const DEEPEST: u32 = 302;

#[expect(clippy::cast_precision_loss, reason = "to be read")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn main() {
    let deepest = std::env::args().skip(1).find(|a| !a.starts_with("--"));
    let deepest = deepest.map_or(DEEPEST, |depth| depth.parse().expect("a depth"));
    let device = Device::named("k40").expect("a preset");
    println!("MiB of activations and gradients, ResNet at batch 32; time added by the copies\n");
    println!("| depth | separate | intra | inter | hybrid | added |\n| - | - | - | - | - | - |");
    let mut fits = Vec::new();
    for depth in [50, 101, 152, 302, 695, 1001, 1172, 1304, 1517] {
        let setting = Setting { batch: 32, training: true, device: Roofline::GTX1080TI };
        let network = ResNet { depth, stages: Stages::Third, ..ResNet::default() }.build(&setting).unwrap();
        let trace = network.trace().unwrap();
        let recorded = trace.recorded();
        let (rows, bytes) = layrub::reuse(&recorded, &device, 1).unwrap_or_else(|e| panic!("{e}"));
        let proved = prove(&recorded, &rows, Solver::BestFit, &device, true).unwrap_or_else(|e| panic!("{e}"));
        println!(
            "| {depth} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} % |",
            mib(bytes.separate),
            mib(bytes.intra),
            mib(bytes.inter),
            mib(bytes.hybrid),
            100.0 * proved.run.overhead()
        );
        if depth <= deepest {
            let update = |k: u32| network.operators[k as usize].phase == Phase::Update;
            let lasting = peak_of_lasting(&recorded, &trace.rows, update);
            let limit = lasting + PAPER * PERCENT / 100;
            let begin = cpu_seconds();
            let mut memory = Fitter::new(recorded);
            let fit = memory.fit(&Options::new(limit, device)).unwrap_or_else(|e| panic!("{limit}: {e}"));
            let took = cpu_seconds() - begin;
            let (added, beside) = (fit.schedule.run().overhead(), fit.schedule.plan().peak().saturating_sub(lasting));
            assert!(added < proved.run.overhead(), "{added} at depth {depth}");
            let [lasting, limit, beside] = [lasting, limit, beside].map(mib);
            let (rows, added, by_layers) = (trace.rows.len(), 100.0 * added, 100.0 * proved.run.overhead());
            fits.push(format!(
                "| {depth} | {rows} | {lasting:.1} | {limit:.1} | {beside:.1} | {added:.1} % | {by_layers:.1} % | {took:.1} |"
            ));
        }
    }
    println!("\n| depth | rows | what lasts | limit | fitted beside it | added | added by layers | CPU s |");
    println!("| - | - | - | - | - | - | - | - |\n{}", fits.join("\n"));
}
