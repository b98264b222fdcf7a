//! Asks a Python program, an oracle, about many cases in one process.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The oracle's answer to each case. The program gets the cases as a JSON list on standard input, and prints the
/// answers as a JSON list, on the last line: `HiGHS` from 1.16 on prints its name before. Returns `None`, and prints
/// what is `skipped`, if Python cannot import `package`.
pub(crate) fn ask<A: DeserializeOwned>(
    script: &str,
    package: &str,
    skipped: &str,
    cases: &[impl Serialize],
) -> Option<Vec<A>> {
    let python = env::var_os("SUBLET_PYTHON").unwrap_or_else(|| "python3".into());
    let import = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if !import.is_ok_and(|ran| ran.status.success()) {
        eprintln!("skipped: {skipped}; {} cannot import {package}", python.display());
        return None;
    }
    let script = format!("{}/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut child = Command::new(&python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(cases).unwrap()).unwrap();
    let answer = child.wait_with_output().unwrap();
    assert!(answer.status.success());
    let lines = String::from_utf8(answer.stdout).unwrap();
    let answers: Vec<A> = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(answers.len(), cases.len());
    Some(answers)
}
