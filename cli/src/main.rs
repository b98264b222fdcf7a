//! The command line of sublet: files in, files and pictures out.
mod args;
mod compare;
mod convert;
mod device;
mod failure;
mod fit;
mod input;
mod load_chart;
mod outcome;
mod output;
mod plan;
mod pools;
mod problem;
mod progress;
mod report;
mod scratch;
mod size;
mod solve;
mod stats;
mod sweep;
mod table;
mod timeline;
mod unit;
mod verify;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Command, CommandLine};
use failure::Failure;

fn main() -> ExitCode {
    let done = match CommandLine::parse().command {
        Command::Plan(args) => plan::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "sublet", &mut script);
            io::stdout().write_all(&script).map_err(|e| Failure::printing(&e))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::NobodyListens) {
                // Where standard error is closed too, the status has to do.
                let _ = writeln!(io::stderr(), "error: {failure}");
            }
            failure.status()
        }
    }
}
