//! `sublet compare`: every solver, and the allocators that are in use today, on the same blocks.

use std::io::{self, Write};
use std::time::Instant;

use serde::Serialize;
use sublet_baselines::pools::{self, executorch, tflm};
use sublet_core::place::{self, Solver};
use sublet_core::{Block, Error, verify};

use crate::args::CompareArgs;
use crate::commands::model::buffers;
use crate::failure::{Failure, InputError};
use crate::model::schedule::in_file_order;
use crate::problem::Problem;
use crate::text::unit::Unit;
use crate::text::{progress, table};
use crate::{input, output, report};
use sublet_core::owned::Scratch;

/// Reads, compares and prints.
///
/// # Errors
/// A file that cannot be read, or blocks that cannot be planned.
pub(crate) fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (banks, report) = (args.banks(), &args.report);
    let args = &args.input;
    if report.as_ref().is_some_and(|file| output::ends_in(file, "svg")) {
        return Err(Failure::Usage("a comparison is drawn as a page: --report NAME.html".into()));
    }
    output::each_elsewhere(&args.input, &[("--json", args.json.then_some("-")), ("--report", report.as_deref())])?;
    let problem = input::read(&args.input)?;
    if !banks.is_empty() {
        return super::banks::compare(&problem, banks, args.json);
    }
    let comparison = progress::during("comparing", |_| Comparison::of(&problem))
        .map_err(|e| InputError::file(&args.input, problem.explain(&e)))?;
    if let Some(file) = report {
        output::write(file, |out| report::comparison(problem.title(), &comparison, out))?;
    }
    output::print(&comparison, args.json, &[report], |out| comparison.write_table(out))
}

/// The portfolios and each heuristic. The search does not run alone: `auto` includes it.
fn all_solvers() -> impl Iterator<Item = Solver> {
    Solver::all().filter(|&solver| solver != Solver::Search)
}

/// The peaks of all solvers and allocators on one problem. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison<'a> {
    input: &'a str,
    blocks: usize,
    max_load: u64,
    solvers: Vec<Solved>,
    today: Vec<Today>,
}

/// The plan of one solver.
#[derive(Debug, Serialize)]
struct Solved {
    solver: &'static str,
    peak: u64,
    /// A lower bound on the peak of every plan, as far as the solver has proved it.
    lower_bound: u64,
    /// Peak over max load.
    ratio: f64,
    /// Whether the peak equals the lower bound.
    optimal: bool,
    /// Nodes of the search tree that the solver has looked at; 0 for a heuristic.
    nodes: u64,
    /// The time of the placement alone, in seconds.
    seconds: f64,
    /// Always true: an invalid plan is an error and has no row.
    verified: bool,
}

/// The bytes that an allocator in use today reserves for the same blocks, and how many of these the best plan saves.
#[derive(Debug, Serialize)]
struct Today {
    allocator: &'static str,
    peak: u64,
    ratio: f64,
    /// The allocator's bytes less those of the best plan; negative where the plan takes more.
    saved_bytes: i128,
    saved_percent: f64,
}

impl<'a> Comparison<'a> {
    /// Places the blocks with every solver, and serves them with every allocator.
    ///
    /// # Errors
    /// Blocks that cannot be planned, and a plan that the verifier refuses.
    pub(crate) fn of(problem: &'a Problem) -> Result<Self, Error> {
        let blocks = &problem.blocks;
        let n = blocks.len();
        let solvers = all_solvers().map(|s| solve(s, blocks)).collect::<Result<Vec<_>, _>>()?;
        // The solvers have checked that the load does not overflow.
        let max_load = problem.max_load();
        let best = solvers.iter().map(|s| s.peak).min().unwrap_or(max_load);
        let mut peaks = Vec::new();
        for (allocator, mut pool) in pools::all() {
            peaks.push((allocator, pools::simulate(pool.as_mut(), blocks)?));
        }
        // The planners of runtimes for models, which place all tensors before a run.
        if let Some((model, _)) = problem.model.as_deref() {
            peaks.push(("tflite-arena", pools::tflite::peak(blocks)));
            if let Some(peak) = executorch::greedy(blocks) {
                peaks.push(("executorch-greedy", peak));
            }
            if let Some(schedule) = in_file_order(model, &[]).ok().filter(|_| model.for_tflm) {
                peaks.push(("tflm-greedy", tflm::head(&buffers(model, &schedule, None))));
            }
        }
        let today = peaks
            .into_iter()
            .map(|(allocator, peak)| {
                let saved_bytes = i128::from(peak) - i128::from(best);
                let saved_percent = 100.0 * (1.0 - ratio(best, peak));
                Today { allocator, peak, ratio: ratio(peak, max_load), saved_bytes, saved_percent }
            })
            .collect();
        Ok(Self { input: &problem.name, blocks: n, max_load, solvers, today })
    }

    /// A table for people.
    pub(crate) fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.max_load);
        let max_load = unit.size(self.max_load);
        writeln!(out, "{}: {} blocks, max load {max_load} ({} bytes)\n", self.input, self.blocks, self.max_load)?;
        let (peak, saved) = (format!("peak {}", unit.name()), format!("plan saves {}", unit.name()));
        let bound = format!("bound {}", unit.name());
        let mut table = table::aligned(["", &peak, "ratio", &bound, "optimal", "nodes", "seconds", &saved, "%"], 1..9);
        for s in &self.solvers {
            table.add_row([
                s.solver,
                &unit.number(s.peak.into()),
                &format!("{:.6}", s.ratio),
                &unit.number(s.lower_bound.into()),
                if s.optimal { "yes" } else { "no" },
                &if s.nodes > 0 { s.nodes.to_string() } else { String::new() },
                &format!("{:.3}", s.seconds),
            ]);
        }
        table.add_row(["today:"]);
        for t in &self.today {
            table.add_row([
                t.allocator,
                &unit.number(t.peak.into()),
                &format!("{:.6}", t.ratio),
                "",
                "",
                "",
                "",
                &unit.number(t.saved_bytes),
                &format!("{:.1}", t.saved_percent),
            ]);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

/// Places with one solver; the row of a plan that the verifier has accepted.
fn solve(solver: Solver, blocks: &[Block]) -> Result<Solved, Error> {
    let n = blocks.len();
    let options = place::Options::default();
    let mut scratch = Scratch::of(place::workspace_of(solver, n).max(verify::workspace(n)));
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
        nodes: summary.nodes,
        seconds,
        verified: true,
    })
}

/// `bytes` over `of`; 1 where `of` is 0.
#[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
fn ratio(bytes: u64, of: u64) -> f64 {
    if of == 0 { 1.0 } else { bytes as f64 / of as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const MIB: u64 = 1 << 20;

    /// Two blocks of 6 MiB, one after the other, beside one of 4 MiB.
    fn problem() -> Problem {
        Problem {
            name: "three.csv".into(),
            blocks: vec![Block::new(0, 2, 6 * MIB), Block::new(0, 4, 4 * MIB), Block::new(2, 4, 6 * MIB)],
            ids: ["0", "1", "2"].map(String::from).to_vec(),
            ..Problem::default()
        }
    }

    #[test]
    fn json_has_every_solver_and_every_allocator() {
        let mut out = Vec::new();
        output::json(&Comparison::of(&problem()).unwrap(), &mut out).unwrap();
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
        assert!(names.into_iter().eq(all_solvers().map(Solver::name)));
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
        let mut comparison = Comparison::of(&problem).unwrap();
        comparison.solvers = vec![
            Solved {
                solver: "best_fit",
                peak: 10 * MIB,
                lower_bound: 10 * MIB,
                ratio: 1.0,
                optimal: true,
                nodes: 17,
                seconds: 0.0123,
                verified: true,
            },
            Solved {
                solver: "coloring",
                peak: 11 * MIB,
                lower_bound: 10 * MIB,
                ratio: 1.1,
                optimal: false,
                nodes: 0,
                seconds: 12.5,
                verified: true,
            },
        ];
        let mut out = Vec::new();
        comparison.write_table(&mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\
three.csv: 3 blocks, max load 10.00 MiB (10485760 bytes)

          peak MiB     ratio  bound MiB  optimal  nodes  seconds  plan saves MiB     %
best_fit     10.00  1.000000      10.00      yes     17    0.012
coloring     11.00  1.100000      10.00       no          12.500
today:
none         16.00  1.600000                                                6.00  37.5
cnmem        10.00  1.000000                                                0.00   0.0
pytorch      20.00  2.000000                                               10.00  50.0
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
        let comparison = Comparison::of(&empty).unwrap();
        assert!(comparison.solvers.iter().all(|s| s.optimal && s.peak == 0));
        assert!(comparison.today.iter().all(|t| t.peak == 0 && t.saved_bytes == 0 && t.saved_percent == 0.0));
    }

    #[test]
    fn blocks_that_cannot_be_planned_are_refused() {
        let huge = Problem { blocks: vec![Block::new(0, 1, u64::MAX - 1); 2], ..Problem::default() };
        assert_eq!(Comparison::of(&huge).unwrap_err(), Error::SizeOverflow { block: 1 });
    }
}
