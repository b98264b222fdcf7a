//! The corpus, by the binary: every plan is judged by another program, and plans must not get worse.
//!
//! A small corpus lies in `traces/`; `SUBLET_DATA` names the folder of the larger one, `SUBLET_JUDGES` that of
//! `check_plan.py`.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::{Folder, folder_from, sublet};
use serde_json::Value;
use sublet_core::place::Solver;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces");

/// The instances and traces of a folder, sorted.
fn problems(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let is_problem = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        let parts: Vec<&str> = name.split('.').collect();
        parts.ends_with(&["csv"]) && !parts.contains(&"ops") && !parts.contains(&"plan")
    };
    let mut problems: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(is_problem).collect();
    problems.sort();
    assert!(!problems.is_empty(), "{}", folder.display());
    problems
}

/// What the binary says about the plan that it makes with these arguments.
fn plan(problem: &Path, args: &[&str]) -> Value {
    let problem = problem.to_str().unwrap();
    let ran = sublet(&[&["plan", problem, "--json"], args].concat());
    assert_eq!(ran.status, 0, "{problem}: {ran:?}");
    ran.json()
}

/// Plans to be judged, and what the binary says about each.
#[derive(Default)]
struct Plans {
    /// The lines that `judge_all.py` reads.
    pairs: Vec<String>,
    claims: Vec<Value>,
}

impl Plans {
    fn add(&mut self, folder: &Folder, problem: &Path, solver: &str, alignment: &str) -> u64 {
        let file = folder.path(&format!("{}.plan.csv", self.claims.len()));
        let claim = plan(problem, &["--solver", solver, "--alignment", alignment, "--output", &file]);
        self.pairs.push(format!("{}\t{file}\t{alignment}", problem.display()));
        let peak = claim["peak"].as_u64().unwrap();
        self.claims.push(claim);
        peak
    }

    fn judge(&self, judges: &Path) {
        let mut child = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/judge_all.py"))
            .arg(judges)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let pairs = self.pairs.join("\n");
        let feeder = thread::spawn(move || pipe.write_all(pairs.as_bytes()));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap().unwrap();
        assert!(output.status.success());
        let verdicts = String::from_utf8(output.stdout).unwrap();
        assert_eq!(verdicts.lines().count(), self.claims.len());
        for ((verdict, claim), pair) in verdicts.lines().zip(&self.claims).zip(&self.pairs) {
            let verdict: Value = serde_json::from_str(verdict).unwrap();
            assert_eq!(verdict["valid"], true, "{pair}: {verdict}");
            for field in ["blocks", "max_load", "peak"] {
                assert_eq!(verdict[field], claim[field], "{pair}: {verdict}");
            }
        }
    }
}

#[test]
fn the_judge_accepts_every_plan_of_every_solver() {
    let Some(judges) = folder_from("SUBLET_JUDGES", "no plan is judged by check_plan.py") else { return };
    let mut files = problems(TRACES.as_ref());
    if let Some(data) = folder_from("SUBLET_DATA", "the plans of the larger corpus are not judged") {
        for kind in ["traces", "minimalloc", "idealloc", "examples"] {
            files.extend(problems(&data.join(kind)));
        }
    }
    // Each thread has a judge of its own.
    let lanes = thread::available_parallelism().unwrap().get();
    let judge = |lane| {
        let folder = Folder::new();
        let mut plans = Plans::default();
        for file in files.iter().skip(lane).step_by(lanes) {
            let auto = plans.add(&folder, file, Solver::Auto.name(), "1");
            for solver in Solver::HEURISTICS {
                let peak = plans.add(&folder, file, solver.name(), "1");
                assert!(auto <= peak, "{}: {} has {peak}, the portfolio {auto}", file.display(), solver.name());
            }
            plans.add(&folder, file, Solver::Auto.name(), "64");
        }
        plans.judge(&judges);
    };
    thread::scope(|scope| {
        for lane in 0..lanes {
            let judge = &judge;
            scope.spawn(move || judge(lane));
        }
    });
}

/// The traces of a folder whose plans are not optimal, with their ratios.
fn misses(folder: &Path) -> HashMap<String, f64> {
    let missed = problems(folder).into_iter().filter_map(|file| {
        let claim = plan(&file, &[]);
        assert_eq!(claim["optimal"], claim["peak"] == claim["max_load"], "{claim}");
        let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
        (claim["optimal"] != true).then(|| (name, claim["ratio"].as_f64().unwrap()))
    });
    missed.collect()
}

#[test]
fn every_network_of_the_small_corpus_has_an_optimal_plan() {
    let mut missed = misses(TRACES.as_ref());
    missed.remove("hard");
    assert!(missed.is_empty(), "{missed:?}");
    for (name, peak) in [("chainer_alexnet_infer", 10_169_344), ("chainer_googlenet_infer", 12_202_496)] {
        assert_eq!(plan(&Path::new(TRACES).join(name).with_extension("csv"), &[])["peak"], peak, "{name}");
    }
}

/// The table of `traces/README.md` names every file, its blocks and its max load.
#[test]
fn the_small_corpus_is_what_its_page_says() {
    let page = fs::read_to_string(Path::new(TRACES).join("README.md")).unwrap();
    let told: Vec<[&str; 3]> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
            Some([name, cells[3], cells[4]])
        })
        .collect();
    assert_eq!(told.len(), problems(TRACES.as_ref()).len());
    for [name, blocks, max_load] in told {
        let claim = plan(&Path::new(TRACES).join(name).with_extension("csv"), &["--solver", "best-fit"]);
        assert_eq!([claim["blocks"].to_string(), claim["max_load"].to_string()], [blocks, max_load], "{name}");
    }
}

#[test]
fn every_network_of_the_larger_corpus_has_an_optimal_plan() {
    let Some(data) = folder_from("SUBLET_DATA", "ratios on the larger corpus are not held") else { return };
    let missed = misses(&data.join("traces"));
    assert!(missed.is_empty(), "{missed:?}");
    let pangu = plan(&data.join("idealloc/pangu_2.6B.csv"), &[])["ratio"].as_f64().unwrap();
    assert!(pangu <= 1.0, "{pangu}");
}

/// A plan has the same bytes on every platform, with every compiler and on every day.
///
/// After a change that means to change them: `sublet plan traces/NAME.csv --output cli/tests/golden/NAME.plan.csv`.
#[test]
fn plans_are_the_golden_ones_byte_by_byte() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folder = Folder::new();
    for name in ["alexnet_train_b32", "resnet50_train_b32", "hard"] {
        let file = folder.path("plan.csv");
        plan(&Path::new(TRACES).join(name).with_extension("csv"), &["--output", &file]);
        let expected = fs::read_to_string(golden.join(name).with_extension("plan.csv")).unwrap();
        assert!(folder.read("plan.csv") == expected, "the plan of {name} is another than the golden one");
    }
}

/// The order of the rows, the names, the scale of time and the unit of sizes may change how ties are broken. A plan
/// that is optimal must stay optimal.
#[test]
fn disguises_change_no_optimal_peak() {
    let folder = Folder::new();
    let instance = folder.path("instance.csv");
    for file in problems(TRACES.as_ref()) {
        let found = plan(&file, &[]);
        let peak = found["peak"].as_u64().unwrap();
        if found["optimal"] == false {
            continue;
        }
        assert_eq!(sublet(&["convert", file.to_str().unwrap(), &instance]).status, 0);
        let text = folder.read("instance.csv");
        let (header, rows) = text.split_once('\n').unwrap();
        let rows: Vec<&str> = rows.lines().collect();
        // A stride that shares no factor with the number of rows visits each of them once. Steps get further apart as
        // time goes on.
        for (stride, names, later, unit) in [
            (rows.len() - 1, "", false, 1),
            (101, "", false, 1),
            (1009, "renamed-", false, 1),
            (1, "", true, 1),
            (1, "", false, 1000),
            (101, "all of it ", true, 48),
        ] {
            let time = |step: &str| {
                let step: u64 = step.parse().unwrap();
                if later { step + step * step / 64 } else { step }
            };
            let disguised = (0..rows.len()).map(|i| {
                let cells: Vec<&str> = rows[i * stride % rows.len()].split(',').collect();
                let [id, lower, upper, size] = cells[..] else { panic!("{cells:?}") };
                let size: u64 = size.parse().unwrap();
                format!("{names}{id},{},{},{}", time(lower), time(upper), size * unit)
            });
            let lines: Vec<String> = iter::once(header.to_owned()).chain(disguised).collect();
            let disguised = folder.file("disguised.csv", lines.join("\n") + "\n");
            let found = plan(disguised.as_ref(), &[]);
            assert_eq!(found["peak"], peak * unit, "{} by {stride}, {names}{later}, {unit}", file.display());
            assert_eq!(found["optimal"], true);
        }
    }
}
