//! The command line: commands, options and their help.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use sublet_baselines::zhang::Policy;
use sublet_core::Constraints;
use sublet_core::place::Technique;
use sublet_core::place::{Solver, chunks};
use sublet_core::rewrite::fit::{Means, Options};
use sublet_core::simulate::Device;

use crate::commands::generate::GenerateArgs;
use crate::commands::model::args::ModelArgs;
use crate::input::FORMATS;
use crate::model::kernels::Kernels;
use crate::text::bank::NamedBank;
use crate::text::board::Board;
use crate::text::size::Limit;
use crate::text::{seconds, size};

/// The part of the help on formats of inputs, on sizes and on the exit status.
fn inputs() -> String {
    let formats: Vec<&str> = FORMATS.iter().map(|format| format.help).collect();
    format!(
        "\
INPUT is recognised by its content, whatever it is called, packed by gzip or zstd or not; - is
standard input. Tables may have tabs for commas, quotes, and columns that are not read:
{}

SIZE is in bytes, or with a unit: 4096, 512MiB, 8G, 1.5GiB. K, M, G and KiB, MiB, GiB are powers of
1024; kB, MB, GB are powers of 1000. A size with a unit is rounded down to whole bytes.

Exit status: 0 fine; 1 it is proved that no plan fits, or a plan is invalid; 2 wrong usage, an
unreadable file, or standard output that was closed; 3 no plan within the capacity was found, and
none is proved impossible.",
        formats.join("\n")
    )
}

/// The part of the help that lists the devices.
fn devices() -> String {
    let presets: Vec<String> = Device::PRESETS.iter().map(|(name, about, _)| format!("  {name:<11} {about}")).collect();
    format!(
        "\
DEVICE is one of these, or a CSV file of one row with the columns
out_bytes_per_s,in_bytes_per_s,latency_ns[,host_bytes]:
{}",
        presets.join("\n")
    )
}

/// The means to save memory, a line each.
fn all_means() -> String {
    let means: Vec<String> =
        Means::ALL.iter().map(|means| format!("  {:<9}  {}", means.name(), means.about())).collect();
    format!("MEANS are:\n{}", means.join("\n"))
}

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
  sublet plan trace.csv.gz --output -";

const FIT_EXAMPLES: &str = "\
What operators may do is read from NAME.ops.csv beside NAME.csv:
op,name,phase,inplace,rerun[,ordered] and, for elements of other than 4 bytes, element (1, 2 or 8).

DIR gets rewritten.csv, the trace with its copies and simulated times; plan.csv, with the offset of
each residency of every block on the device; and timeline.json, which opens in Perfetto.

Examples:
  sublet fit traces/resnet50_train_b32.csv --limit 2.5G
  sublet fit traces/resnet50_train_b32.csv --limit 2.5G --device h200 --output fitted \\
    --report fit.html
  sublet fit traces/vgg16_cifar_train_b100.csv --limit 60% --using recompute --json
  sublet fit traces/vgg16_cifar_train_b100.csv --limit 320MiB --using swap
  sublet fit traces/vgg16_cifar_train_b100.csv --limit 40% --explain --time-limit 2
  sublet fit traces/vgg16_cifar_train_b100.csv --limit 30% --keep-order";

const SWEEP_EXAMPLES: &str = "\
Prints a curve of overhead by limit, down to the least limit that works: for all means together and
for each alone, or with --policy for policies of swapping. Then the least footprints of the first
curve at 0 %, 5 % and 15 % of overhead, and the footprint below which swapping alone always costs
time.

Examples:
  sublet sweep traces/vgg16_cifar_train_b100.csv
  sublet sweep traces/vgg16_cifar_train_b100.csv --policy auto --points 2 --json
  sublet sweep traces/vgg16_cifar_train_b100.csv --device h200 --output curve.csv \\
    --report curve.html";

const VERIFY_EXAMPLES: &str = "\
Examples:
  sublet verify traces/resnet50_train_b32.csv plan.csv
  sublet verify model.csv solution.csv --capacity 1MiB --json
  sublet verify traces/resnet50_train_b32.csv fitted/plan.csv --rewritten fitted/rewritten.csv";

const CONVERT_EXAMPLES: &str = "\
Without --to, the name of OUTPUT decides: .lp is LP text, plan.csv and NAME.plan.csv are plans,
trace.csv and NAME.trace.csv are traces, any other .csv is an instance.

Examples:
  sublet convert traces/resnet50_train_b32.csv instance.csv
  sublet convert snapshot.pickle trace.csv
  sublet convert model.csv model.lp --capacity 1MiB
  sublet convert trace.csv - --to instance";

/// Plans the memory of a deep network from one recorded iteration.
#[derive(Debug, Parser)]
#[command(name = "sublet", version, after_help = format!("{EXAMPLES}\n\n{}", inputs()))]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Prints errors alone, and what was asked for by name: --json, files
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 900)]
    pub(crate) quiet: bool,
    /// Tells on standard error what is read and written meanwhile
    #[arg(long, short, global = true, display_order = 901)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Gives every block an address, proves the plan valid, and says how far it is from the best possible
    Plan(PlanArgs),
    /// Rewrites a trace so that it runs in less memory, and says what that costs in time
    Fit(FitArgs),
    /// What less memory costs in time, limit by limit, by every means
    Sweep(SweepArgs),
    /// Proves a plan valid, or names the first constraint that it breaks
    Verify(VerifyArgs),
    /// Whether a certificate tells the truth about a plan
    Check(CheckArgs),
    /// The plan of every solver but search, which auto includes, and what allocators in use today take, on the same
    /// blocks
    Compare(CompareArgs),
    /// Blocks, events, max load, the load curve, the largest blocks at the peak
    Stats(InputArgs),
    /// What a memory snapshot of PyTorch, or a log of RMM, shows: what fragmentation costs, what a plan would take, who
    /// holds the peak
    Doctor(DoctorArgs),
    /// Writes the blocks of INPUT in another format
    Convert(ConvertArgs),
    /// Writes the trace of a network of any depth and batch size
    Generate(GenerateArgs),
    /// Prints the completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Writes the man pages, sublet.1 and one for each command, to a folder
    Man {
        /// The folder
        folder: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ConstraintArgs {
    /// The arena ends here: a plan above it is refused
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    capacity: Option<u64>,
    /// Every offset is a multiple of this power of two
    #[arg(long, value_name = "SIZE", value_parser = size::parse_alignment, allow_negative_numbers = true, default_value = "1")]
    alignment: u64,
}

impl ConstraintArgs {
    pub(crate) fn get(&self) -> Constraints {
        Constraints { alignment: self.alignment, capacity: self.capacity }
    }
}

/// How to place.
#[derive(Clone, Debug, Args)]
pub(crate) struct SolveArgs {
    /// The method that places the blocks
    #[arg(long, value_name = "NAME", value_parser = solvers(), default_value = Solver::Auto.name())]
    pub(crate) solver: Solver,
    /// How much work to spend on the search
    #[arg(long, value_enum, default_value = "default")]
    pub(crate) effort: Effort,
    /// Ends with the best plan so far after this time; so does Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse, allow_negative_numbers = true)]
    pub(crate) time_limit: Option<Duration>,
    /// Searches that run at once with --effort max; the plan does not depend on it
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: NonZeroUsize,
    /// Leaves this technique out of the search, to measure what it is worth; the optimum stays the same. May be given
    /// several times
    #[arg(long, value_name = "TECHNIQUE", value_parser = techniques())]
    pub(crate) without: Vec<Technique>,
}

/// The chunks that `SIZE[:N]` asks for.
fn chunks(text: &str) -> Result<chunks::Limit, String> {
    let (bytes, most) = text.split_once(':').map_or((text, Ok(16)), |(bytes, most)| (bytes, most.parse()));
    let most = most.ok().filter(|most| (1..=chunks::MOST_CHUNKS).contains(most));
    let chunks = most.ok_or(format!("expected 1 to {} ranges, found {text}", chunks::MOST_CHUNKS))?;
    Ok(chunks::Limit { bytes: size::parse(bytes)?, chunks, distance: 0 })
}

/// How much work to spend on the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Effort {
    /// Every heuristic once, no search
    Fast,
    /// The optimum on most networks, in a fraction of a second. Where it is not found, a few seconds of one core
    Default,
    /// Many and longer searches with other seeds; minutes, where no plan is proved optimal
    Max,
}

/// How much work to spend on the search for a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FitEffort {
    /// Some seconds for 5,000 rows
    Default,
    /// Then once more with eight times the work; the better schedule counts
    Max,
}

/// Options of plans for one memory.
const BANKED: [&str; 3] = ["capacity", "certificate", "proof"];

#[derive(Debug, Args)]
#[command(after_help = PLAN_EXAMPLES)]
pub(crate) struct PlanArgs {
    /// A file in one of the formats that `sublet --help` lists; - is standard input
    pub(crate) input: String,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    #[command(flatten)]
    pub(crate) solve: SolveArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// One of several memories; given once for each. SIZE is its capacity, COST the cost of a byte that is read or
    /// written (1 by default), BYTES the alignment of offsets in it. With :dma only a DMA engine reaches it: it holds
    /// the blocks that name it in the instance's column `bank`, and no others
    #[arg(
        long,
        value_name = "NAME=SIZE[:COST][:align=BYTES][:dma]",
        value_parser = NamedBank::parse,
        conflicts_with_all = BANKED
    )]
    pub(crate) bank: Vec<NamedBank>,
    /// The memories of a board, in place of --bank: esp32s3, imxrt1060, rp2350, stm32h743 or stm32h747
    #[arg(long, value_name = "BOARD", value_parser = Board::named, conflicts_with_all = BANKED)]
    pub(crate) board: Option<Board>,
    /// Places the blocks in ranges that are no longer than this, unless a block is, with the least total; in at most N
    /// ranges, 16 by default
    #[arg(
        long,
        value_name = "SIZE[:N]",
        value_parser = chunks,
        conflicts_with_all = [
            "bank", "board", "capacity", "certificate", "proof", "report", "effort", "time_limit", "threads", "without", "reorder",
            "in_place", "overlap",
        ]
    )]
    pub(crate) chunk: Option<chunks::Limit>,
    /// Writes the plan to this file, into the model if its name ends in .tflite; - is standard output
    #[arg(long, short, value_name = "PLAN")]
    pub(crate) output: Option<String>,
    /// Writes the plan's peak, and the step that shows how far it is from the best possible, for `sublet check`
    #[arg(long, value_name = "JSON")]
    pub(crate) certificate: Option<String>,
    /// Proves that no plan has a lower peak, or that none fits, where no step shows it: writes NAME.opb and NAME.pbp,
    /// which the program veripb checks; up to 64 blocks. --time-limit holds for the search for the proof once more
    #[arg(long, value_name = "NAME")]
    pub(crate) proof: Option<String>,
    /// Draws the memory map: a page for the browser, or the picture alone if the name ends in .svg
    #[arg(long, value_name = "HTML|SVG", value_parser = report_name)]
    pub(crate) report: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl PlanArgs {
    /// The memories, if there are several.
    pub(crate) fn banks(&self) -> &[NamedBank] {
        self.board.as_ref().map_or(&self.bank, |Board(banks)| banks)
    }
}

/// The options of every command that makes a trace fit.
#[derive(Debug, Args)]
pub(crate) struct FittingArgs {
    /// A trace of one iteration, or a graph; - is standard input
    pub(crate) input: String,
    /// The device whose links to the host are simulated
    #[arg(long, value_name = "DEVICE", default_value = "gtx1080ti")]
    pub(crate) device: String,
    /// The means, with commas between them. By default all, as far as the device can swap and the file of operators
    /// allows the others
    #[arg(long, value_name = "MEANS", value_delimiter = ',', value_parser = means())]
    pub(crate) using: Vec<Means>,
    /// Operators keep the recorded order: for programs that cannot run them in another
    #[arg(long)]
    pub(crate) keep_order: bool,
    /// Adds the means order to those of --using: operators may run in another order, in which each reads the same values
    #[arg(long, conflicts_with = "keep_order")]
    pub(crate) reorder: bool,
    /// Weights and other blocks that are there all the time stay on the device, for example because a framework owns
    /// them
    #[arg(long)]
    pub(crate) keep_persistent: bool,
    /// Every offset is a multiple of this
    #[arg(long, value_name = "SIZE", value_parser = size::parse_alignment, allow_negative_numbers = true, default_value_t = Options::DEFAULT_ALIGNMENT)]
    pub(crate) alignment: u64,
}

#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{}\n\n{FIT_EXAMPLES}", devices(), all_means()))]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) common: FittingArgs,
    /// The most memory that the iteration may take on the device, gaps between blocks included; 80% is relative to the
    /// peak
    #[arg(long, value_name = "SIZE|%", value_parser = Limit::parse, allow_negative_numbers = true)]
    pub(crate) limit: Limit,
    /// How much work to spend on the search for a schedule
    #[arg(long, default_value = "default")]
    pub(crate) effort: FitEffort,
    /// Ends with the best schedule so far after this time; so does Ctrl-C
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse, allow_negative_numbers = true)]
    pub(crate) time_limit: Option<Duration>,
    /// Tells what was tried, what came of it, and which schedule won; with =BLOCK also what was done with this block
    /// between its uses, and what the alternatives would have cost
    #[arg(long, value_name = "BLOCK", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(crate) explain: Option<String>,
    /// Also fits to every lower whole percent of the peak, and takes the fastest schedule, since one for less memory
    /// fits too. Ends where the lower bound shows that nothing faster follows. Many times the work
    #[arg(long)]
    pub(crate) monotone: bool,
    /// Blocks below this size are not swapped; by default those whose copy takes less than twice the link's latency
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) least: Option<u64>,
    /// Writes rewritten.csv, plan.csv and timeline.json to this folder
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<String>,
    /// Draws the memory map of the rewritten trace: a page for the browser, or the picture alone if the name ends in
    /// .svg
    #[arg(long, value_name = "HTML|SVG", value_parser = report_name)]
    pub(crate) report: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = format!("{}\n\n{SWEEP_EXAMPLES}", all_means()))]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) common: FittingArgs,
    /// How many limits are tried, from the original peak down
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) points: u32,
    /// A published policy of swapping in place of the means, or auto for the swaps of `sublet fit`; may be given more
    /// than once
    #[arg(long, value_name = "NAME", value_parser = policies(), conflicts_with = "using")]
    pub(crate) policy: Vec<SwapsBy>,
    /// Ends with the curve so far after this time; so does Ctrl-C. The least limit is found first, however long it
    /// takes
    #[arg(long, value_name = "SECONDS", value_parser = seconds::parse, allow_negative_numbers = true)]
    pub(crate) time_limit: Option<Duration>,
    /// Fits that run at once; by default as many as there are cores. The curve does not depend on it
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Writes the curve to this file, a row for each limit and policy; - is standard output
    #[arg(long, short, value_name = "CSV")]
    pub(crate) output: Option<String>,
    /// Draws overhead against limit
    #[arg(long, value_name = "HTML", value_parser = report_name)]
    pub(crate) report: Option<String>,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub(crate) struct VerifyArgs {
    /// What the plan is for: a file in one of the formats that `sublet --help` lists; - is standard input
    pub(crate) input: String,
    /// A plan: id,offset and, if there are such columns, lower,upper,size; by default the plan inside a .tflite
    pub(crate) plan: Option<String>,
    /// For a plan in a model: the kernels that run it. By default those on which the file says that its plan relies
    #[arg(long, visible_alias = "overlap", value_name = "KERNELS", conflicts_with = "plan")]
    pub(crate) kernels: Option<Kernels>,
    /// The plan is for this trace, which computes what INPUT computes with copies to the host and back
    #[arg(long, value_name = "TRACE")]
    pub(crate) rewritten: Option<String>,
    /// TRACE may have its operators in another order, in which each reads the values that it reads in INPUT
    #[arg(long, requires = "rewritten")]
    pub(crate) reorder: bool,
    /// One of the memories of a plan with the column bank, as in `plan`; given for all of them or for none
    #[arg(
        long,
        value_name = "NAME=SIZE[:COST][:align=BYTES]",
        value_parser = NamedBank::parse,
        conflicts_with_all = ["capacity", "kernels", "rewritten"]
    )]
    pub(crate) bank: Vec<NamedBank>,
    /// The device whose links to the host are simulated
    #[arg(long, value_name = "DEVICE", default_value = "gtx1080ti", requires = "rewritten")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) constraints: ConstraintArgs,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// What the plan is for, as in `sublet verify`
    pub(crate) input: String,
    /// The plan
    pub(crate) plan: String,
    /// The file that `sublet plan --certificate` wrote
    pub(crate) certificate: String,
    /// Prints one JSON object: the certificate, where it tells the truth
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options of commands that only read.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    /// A file in one of the formats that `sublet --help` lists; - is standard input
    pub(crate) input: String,
    /// Prints one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A pickle of `torch.cuda.memory._dump_snapshot` or of `torch.cuda.memory_snapshot()`, of any length, nothing in it is
    /// run; or a log of RMM; - is standard input
    pub(crate) snapshot: String,
    /// Another snapshot, from before: tells who holds more at the peak since then, and who less
    #[arg(long, value_name = "SNAPSHOT")]
    pub(crate) before: Option<String>,
    /// Draws who holds what from event to event
    #[arg(long, value_name = "HTML", value_parser = report_name)]
    pub(crate) report: Option<String>,
    /// Prints one JSON object, with all holders of the peak and their stacks
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// One of several memories, as in `plan`: compares placements in them, by cost
    #[arg(long, value_name = "NAME=SIZE[:COST][:align=BYTES]", value_parser = NamedBank::parse)]
    pub(crate) bank: Vec<NamedBank>,
    /// The memories of a board, as in `plan`
    #[arg(long, value_name = "BOARD", value_parser = Board::named, conflicts_with = "bank")]
    pub(crate) board: Option<Board>,
    /// Draws a bar for each solver and allocator
    #[arg(long, value_name = "HTML", value_parser = report_name, conflicts_with_all = ["bank", "board"])]
    pub(crate) report: Option<String>,
}

impl CompareArgs {
    pub(crate) fn banks(&self) -> &[NamedBank] {
        self.board.as_ref().map_or(&self.bank, |Board(banks)| banks)
    }
}

#[derive(Debug, Args)]
#[command(after_help = CONVERT_EXAMPLES)]
pub(crate) struct ConvertArgs {
    /// A file in one of the formats that `sublet --help` lists; - is standard input
    pub(crate) input: String,
    /// The file to write; - is standard output
    pub(crate) output: String,
    /// The format to write, whatever the name of the file
    #[arg(long, value_name = "FORMAT")]
    pub(crate) to: Option<Format>,
    /// For LP text: the end of the arena, which is W in the program
    #[arg(long, value_name = "SIZE", value_parser = size::parse, allow_negative_numbers = true)]
    pub(crate) capacity: Option<u64>,
    /// For a model, as LP text: outputs may reach into inputs as far as these kernels have read them
    #[arg(long, visible_alias = "overlap", value_name = "KERNELS")]
    pub(crate) kernels: Option<Kernels>,
    /// Prints one JSON object: what was written
    #[arg(long)]
    pub(crate) json: bool,
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected how many searches run at once, 1 or more".to_owned())
}

/// A report is a page or an SVG picture; whoever asks for a picture of another kind is told.
fn report_name(file: &str) -> Result<String, String> {
    let extension = Path::new(file).extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    if ["png", "jpg", "jpeg", "gif", "webp", "pdf", "csv", "json"].contains(&extension.as_str()) {
        return Err("a report is a page (.html) or a picture (.svg)".into());
    }
    Ok(file.into())
}

/// The solvers by their names.
fn solvers() -> impl TypedValueParser<Value = Solver> {
    let names = Solver::all().map(Solver::name);
    PossibleValuesParser::new(names).try_map(|name| Solver::named(&name).ok_or("no solver has this name"))
}

/// The techniques of the search by their names.
fn techniques() -> impl TypedValueParser<Value = Technique> {
    let names = Technique::ALL.map(Technique::name);
    PossibleValuesParser::new(names).try_map(|name| Technique::named(&name).ok_or("no technique has this name"))
}

/// What decides which blocks are swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SwapsBy {
    /// The search of `sublet fit`.
    Search,
    /// A published policy.
    Policy(Policy),
}

/// Reads a policy by its name.
fn policies() -> impl TypedValueParser<Value = SwapsBy> {
    let names = ["auto"].into_iter().chain(Policy::ALL.map(Policy::name));
    PossibleValuesParser::new(names).map(|name| Policy::named(&name).map_or(SwapsBy::Search, SwapsBy::Policy))
}

/// Reads a means by its name.
fn means() -> impl TypedValueParser<Value = Means> {
    let names = Means::ALL.iter().map(|means| means.name());
    PossibleValuesParser::new(names).try_map(|name| Means::named(&name).ok_or("no means has this name"))
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
