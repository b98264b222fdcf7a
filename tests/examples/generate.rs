//! Prints a seeded instance: `generate random BLOCKS ALIVE SEED`, or `generate tight BLOCKS SEED`.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use sublet_tests::instance;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Option<Vec<u32>> = args.iter().skip(1).map(|a| a.parse().ok()).collect();
    let blocks = match (args.first().map(String::as_str), numbers.as_deref()) {
        (Some("random"), Some(&[n, alive, seed])) => instance::random(n, alive, seed.into()),
        (Some("tight"), Some(&[n, seed])) => instance::tight(n, seed.into()).0,
        _ => {
            eprintln!("usage: generate random BLOCKS ALIVE SEED | generate tight BLOCKS SEED");
            return ExitCode::from(2);
        }
    };
    let mut out = BufWriter::new(io::stdout().lock());
    match instance::write(&blocks, &mut out).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
