//! What the README and the tables of docs/benchmarks say is what the binary does.

use crate::support::{Folder, sublet};
use serde_json::Value;

const README: &str = include_str!("../../README.md");
const BENCHMARKS: &str = include_str!("../../docs/benchmarks/README.md");
const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces");

#[test]
fn the_table_of_ratios_is_what_compare_finds() {
    let table = README.lines().skip_while(|line| !line.starts_with("| one iteration of")).skip(2);
    let rows: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
    assert_eq!(rows.len(), 8);
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let found = sublet(&["compare", &format!("{TRACES}/{}.csv", cells[0]), "--json"]).json();
        let ratio = |list: &str, key: &str, name: &str| -> f64 {
            let entries = found[list].as_array().unwrap();
            let entry = entries.iter().find(|e| e[key] == name).unwrap();
            entry["ratio"].as_f64().unwrap()
        };
        let solver = |name| ratio("solvers", "solver", name);
        let today = |name| ratio("today", "allocator", name);
        let colouring = solver("coloring-first-fit").min(solver("coloring-best-fit"));
        let max_load = found["max_load"].as_f64().unwrap() / 1024.0 / 1024.0;
        let expected = [
            found["blocks"].to_string(),
            format!("{max_load:.1}"),
            format!("{:.6}", solver("auto")),
            format!("{:.4}", solver("best-fit")),
            format!("{colouring:.4}"),
            format!("{:.3}", today("cnmem")),
            format!("{:.3}", today("pytorch")),
        ];
        assert_eq!(cells[1..], expected, "{}", cells[0]);
    }
}

/// The rows of the networks in `traces/`. The figures of the one that is quick are computed again; for each other one,
/// the footprint without overhead is reached, within one percent of the peak.
#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn the_table_of_fits_is_what_sweep_finds() {
    let table = BENCHMARKS.lines().skip_while(|line| !line.starts_with("| one iteration of | peak MiB")).skip(2);
    let rows =
        table.take_while(|line| line.starts_with('|')).map(|row| row.trim_matches('|').split('|').map(str::trim));
    let known: Vec<Vec<&str>> =
        rows.map(Iterator::collect).filter(|cells: &Vec<&str>| std::fs::exists(trace(cells[0])).unwrap()).collect();
    assert_eq!(known.len(), 3);
    for cells in known {
        let name = cells[0];
        let peak = sublet(&["stats", &trace(name), "--json"]).json()["max_load"].as_f64().unwrap();
        assert_eq!(cells[1], format!("{:.1}", peak / 1024.0 / 1024.0), "{name}");
        if name == "alexnet_train_b32" {
            let found = sublet(&["sweep", &trace(name), "--policy", "auto", "--points", "2", "--json"]).json();
            let percent = |bytes: &Value| format!("{:.1} %", 100.0 * bytes.as_f64().unwrap() / peak);
            let footprints = (0..3).map(|i| percent(&found["least"][i]["footprint"]));
            let expected: Vec<String> = footprints.chain([percent(&found["swap_lower_bound"])]).collect();
            assert_eq!(cells[2..6], expected, "{name}");
        } else {
            // A heuristic may fail at a limit and succeed at a lower one: one percent more is surely enough.
            let percent: f64 = cells[2].trim_end_matches(" %").parse().unwrap();
            let limit = format!("{:.0}", peak * (percent + 1.0) / 100.0);
            let fitted = sublet(&["fit", &trace(name), "--limit", &limit, "--json"]).json();
            assert!(fitted["overhead"].as_f64().unwrap() <= 0.001, "{name}: {fitted}");
        }
    }
}

fn trace(name: &str) -> String {
    format!("{TRACES}/{name}.csv")
}

#[test]
fn its_picture_is_what_its_command_draws() {
    let folder = Folder::new();
    let picture = "docs/vgg16_cifar_train_b100_250MiB.svg";
    let command = format!("sublet fit traces/vgg16_cifar_train_b100.csv --limit 250MiB --report {picture}");
    assert!(README.contains(&format!("({picture})")) && README.contains(&command));
    let drawn = folder.path("drawn.svg");
    let ran = sublet(&["fit", &trace("vgg16_cifar_train_b100"), "--limit", "250MiB", "--report", &drawn, "--json"]);
    // The README says of this command: "which costs no time".
    assert!(ran.json()["overhead"].as_f64().unwrap() < 0.000_05, "{ran:?}");
    let kept = std::fs::read_to_string(format!("{TRACES}/../{picture}")).unwrap();
    assert!(folder.read("drawn.svg") == kept, "{picture} is not what {command} draws");
    assert!(kept.len() < 200_000, "{picture}: {} bytes", kept.len());
}

#[test]
fn the_first_command_prints_what_is_said() {
    let said: Vec<&str> = README
        .lines()
        .skip_while(|line| !line.starts_with("The first one prints"))
        .filter_map(|line| line.strip_prefix("    "))
        .take(7)
        .collect();
    let ran = sublet(&["plan", &format!("{TRACES}/resnet50_train_b32.csv")]);
    for (said, printed) in said.iter().zip(ran.out.lines()) {
        // The path and the seconds are the reader's own.
        let keep = |line: &str| line.split([',', '/']).next().unwrap().split_whitespace().next().map(str::to_owned);
        if said.starts_with("input") || said.starts_with("solver") {
            assert_eq!(keep(said), keep(printed));
        } else {
            assert_eq!(*said, printed);
        }
    }
    assert_eq!(said.len(), ran.out.lines().count());
}

#[test]
fn the_commands_it_names_exist() {
    let help = sublet(&["help"]).out;
    for command in ["plan", "verify", "compare", "stats", "convert", "fit", "sweep", "generate"] {
        assert!(README.contains(&format!("`{command}`")) && help.contains(&format!("\n  {command} ")), "{command}");
    }
    let effort: Value = sublet(&["plan", &format!("{TRACES}/hard.csv"), "--effort", "max", "--json"]).json();
    assert_eq!(effort["optimal"], true);
}
