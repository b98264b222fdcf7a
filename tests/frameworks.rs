//! The C library in real frameworks: libtorch trains, `OpenCV` infers, first with their own memory and then with the
//! library's. The results have to be the same, bit for bit, and the arena within 1 % of the max load.

mod installed;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex};

use installed::{folder, install, run, tool};

static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| install("prefix", ""));

/// The programs that are compiled already: several tests run the same one.
static COMPILED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Compiles a program of `tests/frameworks` and runs it; returns the figures that it prints. `None` if the framework's
/// file `header` does not exist, or there is no compiler.
fn figures(name: &str, header: &str, flags: &[&str], arguments: &[&str]) -> Option<HashMap<String, f64>> {
    let skipped = format!("{name} with the library's memory");
    let compiler = tool(&["c++", "g++", "clang++"], &skipped)?;
    if !Path::new(header).exists() {
        eprintln!("skipped: {skipped}; there is no {header}");
        return None;
    }
    let (lib, to) = (PREFIX.join("lib"), folder().join(name));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("frameworks").join(name).with_extension("cpp");
    let mut made = COMPILED.lock().unwrap();
    if !made.contains(&name.to_owned()) {
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-pthread"]).arg(source).arg("-o").arg(&to);
        command.arg("-I").arg(PREFIX.join("include")).arg("-L").arg(&lib);
        command.arg(format!("-Wl,-rpath,{}", lib.display())).arg("-lsublet").args(flags);
        run(&mut command);
        made.push(name.to_owned());
    }
    drop(made);
    let printed = run(Command::new(&to).args(arguments));
    println!("{name} {}\n{printed}", arguments.join(" "));
    let figure = |line: &str| line.split_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    printed.lines().map(figure).collect()
}

fn libtorch(mode: &str) {
    let flags = ["-I/usr/include/torch/csrc/api/include", "-ltorch", "-ltorch_cpu", "-lc10"];
    let Some(found) = figures("libtorch", "/usr/include/torch/csrc/api/include/torch/torch.h", &flags, &[mode]) else {
        return;
    };
    assert!(found["losses_that_differ"] < 1.0);
    assert!(found["arena_bytes"] <= 1.01 * found["max_load_bytes"]);
    assert!(found["hits_from_third_iteration"] >= 0.99);
    // The batch changes half way. From the third iteration after the change on, requests are served from the new plan.
    assert!(found["hits_from_third_after_change"] >= 0.99);
}

#[test]
fn libtorch_trains_to_the_same_losses_when_iterations_are_marked() {
    libtorch("marked");
}

#[test]
fn libtorch_trains_to_the_same_losses_when_iterations_are_found() {
    libtorch("detected");
}

/// A framework that keeps its tensors: a network of operators over memory that the program lends to libtorch. With a
/// plan, the memory that the process takes beyond libtorch's own falls to less than 0.4 of what it was; with
/// recomputation, to less than 0.75 of that.
#[test]
fn libtorch_over_planned_tensors_trains_to_the_same_losses() {
    let flags = ["-I/usr/include/torch/csrc/api/include", "-ltorch", "-ltorch_cpu", "-lc10"];
    let header = "/usr/include/torch/csrc/api/include/torch/torch.h";
    let of = |arguments: &[&str]| figures("tensors_that_stay", header, &flags, arguments);
    let Some(stock) = of(&["stock"]) else { return };
    let [planned, limited, spoiled] =
        [&["plan"][..], &["plan", "24"], &["plan", "0", "overlap"]].map(|arguments| of(arguments).unwrap());
    for found in [&planned, &limited] {
        assert_eq!([found["losses_hash"], found["weights_hash"]], [stock["losses_hash"], stock["weights_hash"]]);
    }
    assert!(spoiled["losses_hash"].to_bits() != stock["losses_hash"].to_bits());
    assert!(limited["operators_again"] > 0.0);
    let taken = |found: &HashMap<String, f64>| found["taken_mib"];
    assert!(taken(&planned) < 0.4 * taken(&stock) && taken(&limited) < 0.75 * taken(&planned));
}

#[test]
fn opencv_infers_the_same() {
    let flags = ["-I/usr/include/opencv4", "-lopencv_core", "-lopencv_dnn"];
    let Some(found) = figures("opencv", "/usr/include/opencv4/opencv2/dnn.hpp", &flags, &[]) else { return };
    assert!(found["outputs_that_differ"] < 1.0);
    assert!(found["hits_from_third_after_change"] >= 0.99);
    assert!(found["arena_bytes"] <= 1.01 * found["max_load_bytes"]);
}
