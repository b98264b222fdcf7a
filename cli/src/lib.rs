//! The command line of sublet: files in, files and pictures out.
//!
//! The binary calls [`run`] and nothing else. The readers are public too, for fuzz tests and for programs that embed
//! them: [`read`] reads a file of any format, and the methods of [`Problem`] read the plan and the operators that
//! belong to that file.

mod args;
mod certificate;
mod commands;
mod device;
mod failure;
mod gaps;
mod input;
mod interrupt;
mod library;
mod marks;
mod model;
mod outcome;
mod output;
mod problem;
mod proof;
mod report;
mod solve;
mod text;
mod timeline;

use std::ffi::OsString;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Command, CommandLine};
use commands::{check, compare, convert, doctor, fit, generate, plan, stats, sweep, verify};
use failure::Failure;
pub use library::{Fit, doctor, size};
pub use problem::Problem;
use text::voice;

/// Runs the command that the arguments of the process ask for; returns the exit status.
#[must_use]
pub fn run() -> ExitCode {
    ExitCode::from(run_with(std::env::args_os()))
}

/// Runs with these arguments, the first of which is the program's name; returns the exit status.
#[must_use]
pub fn run_with<A: Into<OsString> + Clone>(args: impl IntoIterator<Item = A>) -> u8 {
    let command = match CommandLine::try_parse_from(args) {
        Ok(line) => {
            voice::set(line.quiet, line.verbose);
            line.command
        }
        Err(e) => {
            // If standard error is closed, only the exit status is left.
            let _ = e.print();
            return u8::try_from(e.exit_code()).unwrap_or(2);
        }
    };
    let done = match command {
        Command::Plan(args) => plan::run(&args),
        Command::Fit(args) => fit::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut CommandLine::command(), "sublet", &mut script);
            io::stdout().write_all(&script).map_err(|e| Failure::printing(&e))
        }
        Command::Man { folder } => clap_mangen::generate_to(CommandLine::command(), &folder)
            .map_err(|e| Failure::Usage(format!("{} cannot be written: {e}", folder.display()))),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => {
            if !matches!(failure, Failure::NobodyListens) {
                // If standard error is closed too, only the exit status is left.
                let _ = writeln!(io::stderr(), "error: {failure}");
            }
            failure.status()
        }
    }
}

/// Reads a file of any format: an instance, a trace, a graph, a log of RMM, a memory snapshot of `PyTorch` or a model.
/// The content decides which. Messages call the file `name`; for a graph the tensors are read from the file
/// `NAME.tensors.csv` beside `NAME.csv`. Takes memory and time in proportion to the content.
///
/// # Errors
/// A sentence that says where the content is not as expected.
///
/// ```
/// let problem = sublet_cli::read("net.csv", &b"id,lower,upper,size\na,0,2,8\n"[..])?;
/// assert_eq!(problem.blocks()[0].size, 8);
/// assert!(sublet_cli::read("net.csv", &b"a,0,2,8\n"[..]).unwrap_err().starts_with("net.csv:1: the first line has to name"));
/// # Ok::<(), String>(())
/// ```
pub fn read(name: &str, reader: impl BufRead) -> Result<Problem, String> {
    input::read_from(name, reader).map_err(|e| e.to_string())
}

/// Reads a static graph from two files, one of its operators and one of its tensors. Messages call the file of
/// operators `name`. Takes memory and time in proportion to the content.
///
/// # Errors
/// A sentence that says where the content is not as expected.
///
/// ```
/// let operators = &b"op,name,inputs,outputs\n0,conv,image weights,maps\n"[..];
/// let tensors = &b"tensor,bytes,storage\nimage,3072,transient\nweights,864,persistent\nmaps,8192,iteration\n"[..];
/// assert_eq!(sublet_cli::read_graph("net.csv", operators, tensors)?.blocks().len(), 3);
/// # Ok::<(), String>(())
/// ```
pub fn read_graph(name: &str, operators: impl BufRead, tensors: impl BufRead) -> Result<Problem, String> {
    input::graph::read_pair(name, operators, tensors).map_err(|e| e.to_string())
}
