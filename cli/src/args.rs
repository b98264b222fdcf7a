//! What the command line says.

use std::num::NonZeroUsize;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sublet_core::Constraints;
use sublet_core::place::Solver;

use crate::{size, solve};

const INPUTS: &str = "\
INPUT is recognised by its content, whatever it is called; - is standard input:
  instance   id,lower,upper,size[,alignment][,offset]   lifetimes are half-open; `end` for `upper` is inclusive
  trace      time_ns,event,block,bytes,op               events are malloc, free, read, write, swap_out, swap_in
  RMM log    Thread,Time,Action,Pointer,Size,Stream     as RAPIDS RMM writes it
  snapshot   a pickle of torch.cuda.memory._dump_snapshot; nothing in it is run

SIZE is in bytes, or with a unit: 4096, 512MiB, 8G, 1.5GiB. K, M, G and KiB, MiB, GiB are powers of 1024;
kB, MB, GB are powers of 1000.

Exit status: 0 fine; 1 no plan within the capacity, or an invalid plan; 2 wrong usage or an unreadable file.";

const EXAMPLES: &str = "\
Examples:
  sublet plan traces/resnet50_train_b32.csv
  sublet plan traces/resnet50_train_b32.csv --capacity 8G --alignment 256 --output plan.csv
  sublet verify traces/resnet50_train_b32.csv plan.csv --json
  sublet convert snapshot.pickle trace.csv";

const PLAN_EXAMPLES: &str = "\
Examples:
  sublet plan traces/resnet50_train_b32.csv --report plan.html
  sublet plan model.csv --capacity 512MiB --alignment 64 --output model.plan.csv
  sublet plan snapshot.pickle --json
  sublet plan hard.csv --effort max --time-limit 60 --threads 8
  gzip -dc trace.csv.gz | sublet plan - --output -";

const VERIFY_EXAMPLES: &str = "\
Examples:
  sublet verify traces/resnet50_train_b32.csv plan.csv
  sublet verify model.csv solution.csv --capacity 1MiB --json";

const CONVERT_EXAMPLES: &str = "\
Without --to, the name of OUTPUT decides: .lp is LP text, plan.csv and NAME.plan.csv are plans, trace.csv and
NAME.trace.csv are traces, any other .csv is an instance.

Examples:
  sublet convert traces/resnet50_train_b32.csv instance.csv
  sublet convert snapshot.pickle trace.csv
  sublet convert model.csv model.lp --capacity 1MiB
  sublet convert trace.csv - --to instance";

/// Plans the memory of a deep network from one recorded iteration.
#[derive(Debug, Parser)]
#[command(name = "sublet", version, after_help = format!("{EXAMPLES}\n\n{INPUTS}"))]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives every block an address, proves the plan valid, and says how far it is from the best possible
    Plan(PlanArgs),
    /// Proves a plan valid, or names the first constraint that it breaks
    Verify(VerifyArgs),
    /// Every solver, and what users have today, on the same blocks
    Compare(InputArgs),
    /// Blocks, events, max load, the load curve, the largest blocks at the peak
    Stats(InputArgs),
    /// Writes the blocks of INPUT in another format
    Convert(ConvertArgs),
    /// Prints the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConstraintArgs {
    /// The arena ends here: a plan above it is refused
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    capacity: Option<u64>,
    /// Every offset is a multiple of this power of two
    #[arg(long, value_name = "SIZE", value_parser = size::parse_alignment, default_value = "1")]
    alignment: u64,
}

impl ConstraintArgs {
    pub(crate) fn get(&self) -> Constraints {
        Constraints { alignment: self.alignment, capacity: self.capacity }
    }
}

/// How to place.
#[derive(Debug, Args)]
pub(crate) struct SolveArgs {
    /// Who places the blocks
    #[arg(long, value_name = "NAME", value_parser = solvers(), default_value = Solver::Auto.name())]
    pub(crate) solver: Solver,
    /// How hard to try
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) effort: Effort,
    /// Ends with the best plan so far after this time; so does Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = solve::parse_seconds)]
    pub(crate) time_limit: Option<Duration>,
    /// Searches that run at once with --effort max; the plan does not depend on it
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,
}

/// How hard to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Every heuristic once, no search
    Fast,
    /// The optimum on most networks, in about a second at most
    Default,
    /// Many searches with other seeds; minutes, where no plan is proved optimal
    Max,
}

#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub(crate) struct PlanArgs {
    /// An instance, a trace, an RMM log or a PyTorch memory snapshot; - is standard input
    pub(crate) input: String,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    #[command(flatten)]
    pub(crate) solve: SolveArgs,
    /// Writes the plan to this file; - is standard output
    #[arg(long, short, value_name = "PLAN")]
    pub(crate) output: Option<String>,
    /// Draws the memory map: a page for the browser, or the picture alone if the name ends in .svg
    #[arg(long, value_name = "HTML|SVG")]
    pub(crate) report: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// What the plan is for: an instance, a trace, an RMM log or a PyTorch memory snapshot; - is standard input
    pub(crate) input: String,
    /// A plan: id,offset[,lower,upper,size]
    pub(crate) plan: String,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A command that only looks.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// An instance, a trace, an RMM log or a PyTorch memory snapshot; - is standard input
    pub(crate) input: String,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// An instance, a trace, an RMM log or a PyTorch memory snapshot; - is standard input
    pub(crate) input: String,
    /// The file to write; - is standard output
    pub(crate) output: String,
    /// What to write, whatever the file is called
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,
    /// W of the MIP: where the arena ends
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) capacity: Option<u64>,
}

/// The solvers by their names.
fn solvers() -> impl TypedValueParser<Value = Solver> {
    let names = Solver::all().map(Solver::name);
    PossibleValuesParser::new(names).try_map(|name| Solver::named(&name).ok_or("no solver has this name"))
}

/// A format that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// id,lower,upper,size, and alignment and offset where there are any
    Instance,
    /// `time_ns,event,block,bytes,op`
    Trace,
    /// id,lower,upper,size,offset, of an instance that has all offsets
    Plan,
    /// The mixed integer program, for any MIP solver
    Lp,
}
