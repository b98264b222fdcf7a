//! The fit beside the published segments: never worse on small traces, and seldom and little on recorded ones.

use sublet_baselines::chen::{self, Cuts, Plan};
use sublet_core::Error;
use sublet_core::place::Solver;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Recorded, Row};
use sublet_models::{Lstm, Roofline, Setting};
use sublet_tests::fitted::Fitter;
use sublet_tests::instance;
use sublet_tests::recording::{Recording, prove};
use sublet_tests::rewritten::Network;

const DEVICE: Device = Device::symmetric(12e9);
/// Of the original's time.
const LITTLE: f64 = 0.005;
/// The most times that an operator is recomputed in a recursion.
const DEPTH: u32 = 8;

/// The footprint, in bytes, and the overhead of each plan of Chen et al. 2016: those of the search over the budget, of
/// recursion, and of recomputing cheap operators. Only plans that no other beats in both figures. `None` if a pass or
/// the verifier refuses the trace.
fn published(recorded: &Recorded<'_>, solver: Solver) -> Option<Vec<(u64, f64)>> {
    let mut points = Vec::new();
    let mut see = |rows: &[Row]| {
        let proved = prove(recorded, rows, solver, &DEVICE, true)?;
        points.push((proved.footprint, proved.run.overhead()));
        Ok::<_, Error>(proved.footprint)
    };
    chen::search(recorded, &mut see).ok()?;
    for plan in [Plan::Cheap, Plan::Recursive(1, Cuts::One), Plan::Recursive(1, Cuts::Narrow)] {
        let (rows, _) = chen::rewrite(recorded, plan, DEPTH).ok()?;
        see(&rows).ok()?;
    }
    points.sort_by(|a, b| a.partial_cmp(b).expect("times are numbers"));
    // Keep only the plans that no other plan beats in both figures.
    let mut least = f64::INFINITY;
    points.retain(|&(_, added)| {
        let better = added < least;
        least = least.min(added);
        better
    });
    Some(points)
}

/// Fits the trace to limits that are `slack` percent above the footprints of the paper's plans. Returns how many limits
/// there are, and at how many the fit takes less time than the paper's plan. Asserts that it takes more at none, or with
/// slack by no more than [`LITTLE`].
fn compare(name: &str, recorded: Recorded<'_>, solver: Solver, work: u64, slack: u64) -> (usize, usize) {
    let Some(points) = published(&recorded, solver) else { return (0, 0) };
    let mut fitter = Fitter::new(recorded);
    let mut better = 0;
    for &(footprint, added) in &points {
        let limit = footprint + footprint / 100 * slack;
        let using = Using::NONE.with(Means::Recompute);
        let found = fitter.fit(&Options { using, work, alignment: 1, ..Options::new(limit, DEVICE) });
        let overhead =
            found.unwrap_or_else(|e| panic!("{name} at {limit}: {e}, the paper {added}")).schedule.run().overhead();
        println!("{name} at {limit}: {:.2} %, the paper {:.2} %", 100.0 * overhead, 100.0 * added);
        let most = if slack > 0 { added + LITTLE } else { added + 1e-9 };
        assert!(overhead <= most, "{name} at {limit}: {overhead}, the paper {added}");
        better += usize::from(overhead < added - 1e-9);
    }
    (points.len(), better)
}

#[test]
fn second_runs_are_never_worse_than_the_published_segments_on_small_traces() {
    let mut rng = instance::rng(23);
    let tried: usize = (0..300)
        .map(|case| {
            let network = Network::draw(&mut rng);
            compare(&format!("network {case}"), network.recorded(), Solver::BestFit, 100, 0).0
        })
        .sum();
    assert!(tried > 200, "{tried}");
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn second_runs_are_better_than_the_published_segments_on_recurrent_networks() {
    let setting = Setting { batch: 16, training: true, device: Roofline::GTX1080TI };
    let (mut tried, mut better) = (0, 0);
    for (layers, steps) in [(1, 5), (1, 24), (2, 12), (2, 20), (3, 7), (4, 16)] {
        let network = Lstm { layers, hidden: 256, steps, ..Lstm::default() }.build(&setting).unwrap();
        let trace = network.trace().unwrap();
        let recorded = trace.recorded();
        // The many small blocks of these networks are hard to place, and a fit spends less work on a placement than
        // `prove` does for the paper's plan: so the limits have 2 % more.
        let name = format!("{layers} layers, {steps} steps");
        let (of, less) = compare(&name, recorded, Solver::Multistart, Options::DEFAULT_WORK, 2);
        (tried, better) = (tried + of, better + less);
    }
    assert!(tried > 10 && 3 * better >= 2 * tried, "better at {better} of {tried}");
}

#[test]
fn second_runs_are_better_than_the_published_segments_on_training_traces() {
    let (mut tried, mut better) = (0, 0);
    // Larger ones take minutes.
    for recording in Recording::training().into_iter().filter(|recording| recording.rows.len() < 5000) {
        let name = recording.name.clone();
        let (of, less) = compare(&name, recording.recorded(), Solver::Multistart, Options::DEFAULT_WORK, 1);
        (tried, better) = (tried + of, better + less);
    }
    assert!(5 * better >= 4 * tried, "better at {better} of {tried}");
}
