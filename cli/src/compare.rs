//! `sublet compare`: every solver, and what users have today, on the same blocks.

use std::error::Error;
use std::io::Write;
use std::time::Instant;

use serde::Serialize;
use sublet_core::place::interval::{self, Sweep};
use sublet_core::verify;

use crate::placers as place;
use crate::pools;
use crate::problem::Problem;
use crate::scratch::Scratch;
use crate::table;
use crate::unit::Unit;

/// What `--json` prints. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Comparison<'a> {
    input: &'a str,
    blocks: usize,
    max_load: u64,
    solvers: Vec<Solved>,
    today: Vec<Today>,
}

/// What a solver has reached.
#[derive(Debug, Serialize)]
struct Solved {
    solver: &'static str,
    peak: u64,
    /// What no plan can be below.
    lower_bound: u64,
    /// Peak over max load.
    ratio: f64,
    /// Whether the peak is the lower bound.
    optimal: bool,
    /// Time of the placement alone.
    seconds: f64,
    /// Always true: a plan that is refused is an error, not a row.
    verified: bool,
}

/// What an allocator of today reserves, and what the best plan saves of it.
#[derive(Debug, Serialize)]
struct Today {
    allocator: &'static str,
    peak: u64,
    ratio: f64,
    /// Negative where the plan takes more.
    saved_bytes: i128,
    saved_percent: f64,
}

/// Compares and prints: one JSON object, or a table.
///
/// # Errors
/// Blocks that cannot be planned, a plan that the verifier refuses, and what writing gives.
pub(crate) fn run(problem: &Problem, json: bool, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let comparison = compare(problem)?;
    if json {
        serde_json::to_writer(&mut *out, &comparison)?;
        writeln!(out)?;
    } else {
        write_table(&comparison, out)?;
    }
    Ok(())
}

fn compare(problem: &Problem) -> Result<Comparison<'_>, sublet_core::Error> {
    let blocks = &problem.blocks;
    let n = blocks.len();
    let solvers = place::Solver::ALL.iter().map(|&solver| solve(solver, problem)).collect::<Result<Vec<_>, _>>()?;
    // The solvers have checked that the load can be counted.
    let max_load = Sweep::new(blocks, Scratch::of(interval::workspace(n)).lend())?.max_load();
    let best = solvers.iter().map(|s| s.peak).min().unwrap_or(max_load);
    let today = pools::all()
        .into_iter()
        .map(|(allocator, mut pool)| {
            let peak = pools::simulate(pool.as_mut(), blocks)?;
            let saved_bytes = i128::from(peak) - i128::from(best);
            let saved_percent = 100.0 * (1.0 - ratio(best, peak));
            Ok(Today { allocator, peak, ratio: ratio(peak, max_load), saved_bytes, saved_percent })
        })
        .collect::<Result<_, _>>()?;
    Ok(Comparison { input: &problem.name, blocks: n, max_load, solvers, today })
}

/// Places with one solver; the row of a plan that the verifier has accepted.
fn solve(solver: place::Solver, problem: &Problem) -> Result<Solved, sublet_core::Error> {
    let blocks = &problem.blocks;
    let n = blocks.len();
    let options = place::Options::default();
    let mut scratch = Scratch::of(place::workspace(n).max(verify::workspace(n)));
    let mut offsets = vec![0; n];
    let begin = Instant::now();
    let summary = place::place(solver, blocks, &options, scratch.lend(), &mut offsets)?;
    let seconds = begin.elapsed().as_secs_f64();
    let plan = verify::verify(blocks, &offsets, &options.constraints, scratch.lend())?;
    let lower_bound = summary.lower_bound.max(plan.max_load());
    Ok(Solved {
        solver: solver.name(),
        peak: plan.peak(),
        lower_bound,
        ratio: plan.ratio(),
        optimal: plan.peak() == lower_bound,
        seconds,
        verified: true,
    })
}

/// `bytes` over `of`; 1 where there is nothing.
#[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { bytes as f64 / of as f64 }
}

fn write_table(c: &Comparison<'_>, out: &mut impl Write) -> std::io::Result<()> {
    let unit = Unit::for_largest(c.max_load);
    writeln!(out, "{}: {} blocks, max load {} ({} bytes)\n", c.input, c.blocks, unit.size(c.max_load), c.max_load)?;
    let (peak, saved) = (format!("peak {}", unit.name()), format!("plan saves {}", unit.name()));
    let mut table = table::aligned(["", &peak, "ratio", "optimal", "seconds", &saved, "%"], 1..7);
    for s in &c.solvers {
        table.add_row([
            s.solver.into(),
            unit.number(s.peak.into()),
            format!("{:.6}", s.ratio),
            if s.optimal { "yes" } else { "no" }.into(),
            format!("{:.3}", s.seconds),
            String::new(),
            String::new(),
        ]);
    }
    table.add_row(["today:"]);
    for t in &c.today {
        table.add_row([
            t.allocator.into(),
            unit.number(t.peak.into()),
            format!("{:.6}", t.ratio),
            String::new(),
            String::new(),
            unit.number(t.saved_bytes),
            format!("{:.1}", t.saved_percent),
        ]);
    }
    writeln!(out, "{}", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sublet_core::Block;

    const MIB: u64 = 1 << 20;

    /// Two blocks of 6 MiB, one after the other, beside one of 4 MiB.
    fn problem() -> Problem {
        Problem {
            name: "three.csv".into(),
            blocks: vec![Block::new(0, 2, 6 * MIB), Block::new(0, 4, 4 * MIB), Block::new(2, 4, 6 * MIB)],
            ids: ["0", "1", "2"].map(String::from).to_vec(),
            trace: None,
        }
    }

    #[test]
    fn json_has_every_solver_and_every_allocator() {
        let mut out = Vec::new();
        run(&problem(), true, &mut out).unwrap();
        let mut json: Value = serde_json::from_slice(&out).unwrap();
        let solvers = json["solvers"].take();
        assert_eq!(
            json,
            json!({"input": "three.csv", "blocks": 3, "max_load": 10 * MIB, "solvers": null, "today": [
                {"allocator": "none", "peak": 16 * MIB, "ratio": 1.6, "saved_bytes": 6 * MIB, "saved_percent": 37.5},
                {"allocator": "cnmem", "peak": 10 * MIB, "ratio": 1.0, "saved_bytes": 0, "saved_percent": 0.0},
                {"allocator": "pytorch", "peak": 20 * MIB, "ratio": 2.0, "saved_bytes": 10 * MIB, "saved_percent": 50.0},
            ]})
        );
        let solvers = solvers.as_array().unwrap();
        let names: Vec<_> = solvers.iter().map(|s| s["solver"].as_str().unwrap()).collect();
        assert_eq!(names, place::Solver::ALL.map(place::Solver::name));
        for s in solvers {
            assert_eq!(s["lower_bound"], 10 * MIB);
            assert_eq!(s["optimal"], s["peak"] == 10 * MIB);
            assert_eq!(s["verified"], true);
            assert!(s["peak"].as_u64().unwrap() >= 10 * MIB);
            assert!(s["ratio"].as_f64().unwrap() >= 1.0);
            assert!(s["seconds"].as_f64().unwrap() >= 0.0);
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let problem = problem();
        let mut comparison = compare(&problem).unwrap();
        comparison.solvers = vec![
            Solved {
                solver: "best_fit",
                peak: 10 * MIB,
                lower_bound: 10 * MIB,
                ratio: 1.0,
                optimal: true,
                seconds: 0.0123,
                verified: true,
            },
            Solved {
                solver: "coloring",
                peak: 11 * MIB,
                lower_bound: 10 * MIB,
                ratio: 1.1,
                optimal: false,
                seconds: 12.5,
                verified: true,
            },
        ];
        let mut out = Vec::new();
        write_table(&comparison, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
three.csv: 3 blocks, max load 10.00 MiB (10485760 bytes)

          peak MiB     ratio  optimal  seconds  plan saves MiB     %
best_fit     10.00  1.000000      yes    0.012
coloring     11.00  1.100000       no   12.500
today:
none         16.00  1.600000                              6.00  37.5
cnmem        10.00  1.000000                              0.00   0.0
pytorch      20.00  2.000000                             10.00  50.0
"
        );
    }

    #[test]
    fn a_plan_may_take_more_than_an_allocator() {
        let t = Today { allocator: "cnmem", peak: 3, ratio: 1.0, saved_bytes: -1, saved_percent: -50.0 };
        assert_eq!(serde_json::to_value(t).unwrap()["saved_bytes"], -1);
    }

    #[test]
    fn nothing_to_place_is_no_trouble() {
        let empty = Problem::default();
        let comparison = compare(&empty).unwrap();
        assert!(comparison.solvers.iter().all(|s| s.optimal && s.peak == 0));
        assert!(comparison.today.iter().all(|t| t.peak == 0 && t.saved_bytes == 0 && t.saved_percent == 0.0));
    }

    #[test]
    fn blocks_that_cannot_be_planned_are_refused() {
        let huge = Problem { blocks: vec![Block::new(0, 1, u64::MAX); 2], ..Problem::default() };
        assert_eq!(compare(&huge).unwrap_err(), sublet_core::Error::SizeOverflow { block: 1 });
    }
}
