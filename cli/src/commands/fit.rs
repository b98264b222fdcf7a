//! `sublet fit`: rewrites a trace so that it runs in less memory, and proves and times the result.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use sublet_core::Error;
use sublet_core::rewrite::fit::{Fitted, Means, Options, Using};
use sublet_core::simulate::{Device, Run};
use sublet_core::trace::{Event, Kind, Operator};

use super::buffers::Buffers;
use super::explain::{self, ToldGap, Way};
use super::ladder::{self, Quickest};
use crate::args::{FitArgs, FittingArgs};
use crate::failure::{Failure, InputError};
use crate::gaps::{self, Gap};
use crate::interrupt::Until;
use crate::marks::{self, Fate, Mark, Marks};
use crate::problem::{BadRow, Problem, Trace};
use crate::report::{FittedRun, Picture};
use crate::text::unit::Unit;
use crate::text::{progress, voice};
use crate::{device, input, output, report, timeline};

/// What `fit` prints. Sizes in bytes.
#[derive(Debug, Default, Serialize)]
struct Outcome<'a> {
    input: &'a str,
    limit: u64,
    /// The alignment of every block, in bytes.
    alignment: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    footprint: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_load: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_peak: Option<u64>,
    /// The max load that is left if every block that can be off the device while the operator with the original's max
    /// load runs is swapped out for that time. With means other than swapping the footprint may be lower.
    #[serde(skip_serializing_if = "Option::is_none")]
    load_min: Option<u64>,
    /// The lower limit for which the schedule was made; none where it was made for `limit` itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    fitted_to: Option<u64>,
    /// How much longer the run takes than the original, as a fraction of the original's time; none where the input has
    /// no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<f64>,
    /// A lower bound on the overhead of every schedule within the limit; none where the input has no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_lower_bound: Option<f64>,
    /// The same for schedules in the recorded order, where operators may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_lower_bound_in_order: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swapped_bytes: Option<u64>,
    /// The time of all recomputed operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    recomputed_ns: Option<u64>,
    /// How many residencies are masks of `ReLU`s.
    #[serde(skip_serializing_if = "Option::is_none")]
    masks: Option<usize>,
    /// How many residencies reuse memory in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_place: Option<usize>,
    /// How many operators run at another place than recorded; none where no order but the recorded one was allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved: Option<usize>,
    /// Where operators move: the least overhead that was found in the recorded order; none where nothing fits in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_in_order: Option<f64>,
    verified: bool,
    seconds: f64,
    /// The means that were used.
    using: Vec<&'a str>,
    /// Notes on what was assumed and what cannot be told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<&'a str>,
    /// The ways to combine the means that were tried, with `--explain`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<Way>,
    /// The name of the block that `--explain` asks about.
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<&'a str>,
    /// The gaps of the block that `--explain` asks about.
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<Vec<ToldGap>>,
    /// The least limit that is known to work, where nothing fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    least_limit: Option<u64>,
    /// Where it is proved that nothing fits: bytes that have to be on the device at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The folder of the files that were written.
    #[serde(skip)]
    folder: Option<&'a str>,
}

/// Fits the trace, writes the files that are asked for, and prints the outcome.
///
/// # Errors
/// No schedule within the limit was found, or a file that cannot be read or written.
pub(crate) fn run(args: &FitArgs) -> Result<(), Failure> {
    each_elsewhere(args)?;
    let device = device::named(&args.common.device)?;
    let problem = input::read(&args.common.input)?;
    let trace = recorded(&problem)?;
    let asked = means(&args.common, &device, &args.common.using, &problem)?;
    asked.say();
    let block = args.explain.iter().find(|name| !name.is_empty()).map(|name| numbered(trace, name)).transpose()?;
    let (using, mut notes) = (asked.using, asked.notes);
    let limit = args.limit.of(problem.max_load());
    let alignment = args.common.alignment;
    let keep_persistent = args.common.keep_persistent;
    let mut options = Options { using, alignment, keep_persistent, ..Options::new(limit, device) };
    options.least_bytes = args.least.unwrap_or(options.least_bytes);
    let mut buffers = Buffers::of(trace);
    let begin = Instant::now();
    let (until, time_ns) = (Until::after(args.time_limit), trace.time_ns());
    let in_order = Options { using: using.without(Means::Order), ..options };
    let [bound, bound_in_order] = [options, in_order].map(|options| ladder::lower_bound(trace, &options));
    let bound = bound.map_err(|e| refuse(args, &problem, &e, 0.0, &options, &notes))?;
    let bound_in_order = bound_in_order.ok().flatten().filter(|bound| using.has(Means::Order) && bound.is_finite());
    let made = progress::during("fitting", |bar| {
        let mut watch = |best_ns: f64| {
            bar.set_message(best_so_far(best_ns, time_ns));
            until.flow()
        };
        let rungs = ladder::rungs(options, problem.max_load(), args.effort, args.monotone);
        ladder::quickest(&mut buffers, trace, rungs, &mut watch)
    });
    let seconds = begin.elapsed().as_secs_f64();
    let Quickest { fitted, explained, limit: fitted_to } =
        made.map_err(|e| refuse(args, &problem, &e, seconds, &options, &notes))?;
    let run = fitted.schedule.run();
    let marks = Marks::of(&fitted.schedule, trace);
    let moved = using.has(Means::Order).then(|| marks::moved(&fitted.schedule, trace));
    let shows_gaps = block.is_some() || args.report.is_some();
    let gaps = if shows_gaps { gaps::of(&fitted.schedule, trace, &device) } else { Vec::new() };
    if let Some(note) = unneeded(run, &marks, moved, fitted.original_peak <= limit) {
        voice::note(note);
        notes.push(note);
    }
    let outcome = Outcome {
        input: &args.common.input,
        limit,
        alignment,
        footprint: Some(fitted.schedule.plan().peak()),
        peak_load: Some(run.peak_load),
        original_peak: Some(fitted.original_peak),
        load_min: Some(fitted.load_min),
        fitted_to: (fitted_to < limit).then_some(fitted_to),
        overhead: (time_ns > 0).then(|| run.overhead()),
        overhead_lower_bound: bound.filter(|_| time_ns > 0),
        overhead_lower_bound_in_order: bound_in_order.filter(|_| time_ns > 0),
        time_ns: Some(run.time_ns),
        swapped_bytes: Some(run.swapped_bytes),
        recomputed_ns: Some(run.recomputed_ns),
        masks: Some(marks.count(Mark::Mask)),
        in_place: Some(marks.count(Mark::InPlace)),
        moved,
        overhead_in_order: moved.filter(|&moved| moved > 0 && time_ns > 0).and(explained.in_order(time_ns)),
        verified: true,
        seconds,
        using: names(using),
        notes,
        folder: args.output.as_deref(),
        tried: if args.explain.is_some() { explained.into_ways() } else { Vec::new() },
        block: block.map(|(name, _)| name),
        gaps: block.map(|(_, block)| {
            let masked = block + u32::try_from(trace.names.len()).unwrap_or(u32::MAX);
            explain::gaps_of(block, masked, &gaps, &trace.op_names)
        }),
        ..Outcome::default()
    };
    if args.output.is_some() || args.report.is_some() {
        write(args, &Shown::of(&problem, trace, &fitted)?, (&marks, &gaps), &outcome)?;
    }
    output::print(&outcome, args.json, &[&args.report], |out| outcome.text(out))
}

/// Refuses two results in one place, or one over the input.
fn each_elsewhere(args: &FitArgs) -> Result<(), Failure> {
    if args.output.as_deref() == Some("-") {
        return Err(Failure::Usage("--output - is no folder: it is for three files, named by --output DIR".into()));
    }
    let files = args.output.as_ref().map(|folder| FILES.map(|name| in_folder(folder, name)));
    let files = files.iter().flatten().map(|file| ("--output", Some(file.as_str())));
    let others = [("--json", args.json.then_some("-")), ("--report", args.report.as_deref())];
    output::each_elsewhere(&args.common.input, &files.chain(others).collect::<Vec<_>>())
}

/// What is said where the limit asked for nothing: it is `above` the peak as recorded, or nothing was rewritten.
fn unneeded(run: &Run, marks: &Marks, moved: Option<usize>, above: bool) -> Option<&'static str> {
    let marked = [Mark::Mask, Mark::InPlace].into_iter().any(|mark| marks.count(mark) > 0);
    match (run.swapped_bytes == 0 && run.recomputed_ns == 0 && moved.unwrap_or(0) == 0, marked) {
        (true, false) => Some(UNCHANGED),
        (true, true) if above => Some(ABOVE),
        _ => None,
    }
}

/// Writes the files that are asked for.
fn write(args: &FitArgs, shown: &Shown<'_>, of: (&Marks, &[Gap]), outcome: &Outcome<'_>) -> Result<(), Failure> {
    args.output.iter().try_for_each(|folder| shown.write_folder(folder))?;
    let Some(file) = &args.report else { return Ok(()) };
    let told = (args.common.device.as_str(), outcome.limit, outcome.overhead_lower_bound);
    shown.picture(told, of, |picture| output::write(file, |out| report::write(file, picture, out)))
}

/// A fitted trace, with what its page tells beside it.
pub(crate) struct Shown<'a> {
    problem: &'a Problem,
    trace: &'a Trace,
    fitted: &'a Fitted<'a>,
    rewritten: Problem,
}

impl<'a> Shown<'a> {
    /// # Errors
    /// A rewritten trace that this program cannot name.
    pub(crate) fn of(problem: &'a Problem, trace: &'a Trace, fitted: &'a Fitted<'a>) -> Result<Self, Failure> {
        Ok(Self { problem, trace, fitted, rewritten: rewritten(problem, trace, fitted)? })
    }

    /// Writes the three files.
    pub(crate) fn write_folder(&self, folder: &str) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|e| Failure::Usage(format!("{folder} cannot be made: {e}")))?;
        let [rows, plan, timeline] = FILES.map(|name| in_folder(folder, name));
        let (rewritten, schedule) = (&self.rewritten, &self.fitted.schedule);
        output::write(&rows, |out| output::trace(rewritten, out))?;
        output::write(&plan, |out| output::plan(rewritten, schedule.plan(), out))?;
        let Some(trace) = &rewritten.trace else { return Ok(()) };
        output::write(&timeline, |out| timeline::write(self.problem.title(), trace, schedule, out))
    }

    /// The picture, for a limit in bytes on a device of this name, with a lower bound on the overhead where one is known.
    pub(crate) fn picture<T>(
        &self,
        (device, limit, lower_bound): (&str, u64, Option<f64>),
        (marks, gaps): (&Marks, &[Gap]),
        then: impl FnOnce(&Picture<'_>) -> T,
    ) -> T {
        let Self { trace, fitted, rewritten, .. } = self;
        let run = FittedRun {
            schedule: &fitted.schedule,
            device,
            limit,
            original_peak: fitted.original_peak,
            load_min: fitted.load_min,
            lower_bound,
            recorded: trace,
            marks,
            fates: &Fate::of(&fitted.schedule, marks, trace),
            gaps,
        };
        let (plan, rows) = (fitted.schedule.plan(), Vec::new());
        let optimal = plan.is_optimal();
        then(&Picture { problem: rewritten, plan, solver: "", optimal, rows, run: Some(run) })
    }
}

/// The name and the number of the block of this name.
fn numbered<'a>(trace: &Trace, name: &'a str) -> Result<(&'a str, u32), Failure> {
    let found = (0..).zip(&trace.names).find(|(_, n)| *n == name);
    let missing = || Failure::Usage(format!("--explain={name}: the trace has no block of this name"));
    found.map(|(block, _)| (name, block)).ok_or_else(missing)
}

/// The text of the progress bar: the best schedule so far.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn best_so_far(overhead_ns: f64, time_ns: u64) -> String {
    if overhead_ns.is_finite() && time_ns == 0 {
        "a schedule fits".into()
    } else if overhead_ns.is_finite() {
        format!("overhead {:.3} %", 100.0 * overhead_ns / time_ns as f64)
    } else {
        "nothing fits yet".into()
    }
}

/// The means to use, and notes on what is assumed and what cannot be told.
pub(crate) struct Asked {
    pub(crate) using: Using,
    pub(crate) notes: Vec<&'static str>,
}

impl Asked {
    /// Prints the notes to standard error.
    pub(crate) fn say(&self) {
        self.notes.iter().for_each(voice::note);
    }
}

/// The means to use: those that are asked for. By default all that the device allows and that some operator of the
/// trace can use. Where no file says which operators give the same result when recomputed, none is recomputed by
/// default.
pub(crate) fn means(args: &FittingArgs, device: &Device, asked: &[Means], problem: &Problem) -> Result<Asked, Failure> {
    let (name, trace) = (&args.device, recorded(problem)?);
    let using = asked.iter().fold(Using::NONE, |using, &means| using.with(means));
    let (using, note) = match (asked.is_empty(), trace.tells_rerun) {
        (true, true) => (allowed(trace), None),
        (true, false) => (allowed(trace), Some(if problem.model.is_some() { OF_A_MODEL } else { NOT_RECOMPUTED })),
        (false, false) if using.has(Means::Recompute) => (using, Some(RECOMPUTED)),
        (false, _) => (using, None),
    };
    let using = if args.reorder { using.with(Means::Order) } else { using };
    let using = if args.keep_order { using.without(Means::Order) } else { using };
    let note = note.or_else(|| {
        let fixed = using.has(Means::Order) && trace.operators.iter().all(|op| op.ordered);
        fixed.then_some(FIXED)
    });
    let taken = trace.names.iter().find(|name| name.ends_with('~')).filter(|_| using.has(Means::Relu));
    let (using, note) = match taken {
        Some(block) if asked.contains(&Means::Relu) => {
            return Err(Failure::Usage(format!(
                "relu names the mask of a block after it, with a ~ behind; here block {block} has such a name"
            )));
        }
        Some(_) => (using.without(Means::Relu), note.or(Some(MASKED))),
        None => (using, note),
    };
    if using.on(device) == Using::NONE {
        return Err(Failure::Usage(format!(
            "{name} cannot swap: its host and device share one memory, and what leaves the device takes as much of it; \
             only recomputation, in-place reuse and smaller batches save memory there{}{}",
            if note.is_some() { "; " } else { "" },
            note.unwrap_or_default()
        )));
    }
    let untimed = (trace.time_ns() == 0).then_some(UNTIMED);
    Ok(Asked { using: using.on(device), notes: note.into_iter().chain(untimed).collect() })
}

pub(crate) const UNTIMED: &str = "the input has no times of operators, so overheads cannot be told";
const UNCHANGED: &str = "the iteration is within this limit as it was recorded: nothing was rewritten";
const ABOVE: &str = "the iteration is within this limit as it was recorded: nothing was rewritten but for masks and reuse in \
                     place, which cost nothing at any limit";
const MASKED: &str = "no ReLU keeps a mask: the name of a block ends in ~, like those of masks";
const NOT_RECOMPUTED: &str = "no operator is recomputed, since no file says which give the same result: the column rerun does, \
                              in a graph or in NAME.ops.csv beside a trace NAME.csv; --using recompute assumes that all do";
const OF_A_MODEL: &str = "no operator is recomputed, since a model does not say which give the same result: --using recompute \
                          assumes that all do";
const FIXED: &str = "no operator is reordered, since no file says which may be: NAME.ops.csv beside NAME.csv does, and its \
                     column ordered which keep their place";
const RECOMPUTED: &str = "it is assumed that every operator gives the same result when recomputed, random ones too: the \
                          column rerun would say which do, in a graph or in NAME.ops.csv beside a trace NAME.csv";

/// All means but those that no operator of the trace can use, as far as is known.
pub(crate) fn allowed(trace: &Trace) -> Using {
    let any = |has: fn(&Operator) -> bool| trace.operators.iter().any(has);
    let mut using = if trace.tells_rerun { Using::ALL } else { Using::ALL.without(Means::Recompute) };
    if !any(|op| !op.ordered) {
        using = using.without(Means::Order);
    }
    if !any(|op| op.in_place) {
        using = using.without(Means::InPlace);
    }
    if !any(|op| op.kind == Kind::ReluBackward) {
        using = using.without(Means::Relu);
    }
    using
}

/// The names of means.
fn names(using: Using) -> Vec<&'static str> {
    Means::ALL.iter().filter(|&&means| using.has(means)).map(|means| means.name()).collect()
}

/// The trace of a problem.
pub(crate) fn recorded(problem: &Problem) -> Result<&Trace, Failure> {
    let missing = "expected a trace with reads, writes and times; lifetimes alone do not tell when a block is idle";
    let trace = problem.trace.as_ref().ok_or_else(|| InputError::file(&problem.name, missing))?;
    if !trace.rows.iter().any(|row| row.event == Event::Free) {
        let missing = "expected rows of the event free; without one, every block stays to the end of the iteration";
        return Err(InputError::file(&problem.name, missing).into());
    }
    Ok(trace)
}

/// The rewritten trace as a problem of its own.
fn rewritten(problem: &Problem, trace: &Trace, fitted: &Fitted<'_>) -> Result<Problem, Failure> {
    let invalid = |BadRow { row, message }| Failure::No(format!("row {row} of the rewritten trace: {message}"));
    let mut names = trace.names.clone();
    names.extend(trace.names.iter().map(|name| format!("{name}~")));
    let mut rewritten = Problem::of_trace(&problem.name, fitted.schedule.rows().to_vec(), names).map_err(invalid)?;
    if let Some(rewritten) = &mut rewritten.trace {
        rewritten.op_names.clone_from(&trace.op_names);
    }
    Ok(rewritten)
}

/// The files that `--output` asks for: the rewritten trace, its plan and its timeline.
const FILES: [&str; 3] = ["rewritten.csv", "plan.csv", "timeline.json"];

fn in_folder(folder: &str, name: &str) -> String {
    Path::new(folder).join(name).to_string_lossy().into_owned()
}

/// The failure for an error of a fit. With `--json`, the outcome of a limit that is not met is printed first.
fn refuse(
    args: &FitArgs,
    problem: &Problem,
    error: &Error,
    seconds: f64,
    options: &Options,
    notes: &[&str],
) -> Failure {
    let (least, needed) = match *error {
        Error::OverLimit { least, .. } => (Some(least), None),
        Error::Impossible { needed, .. } => (None, Some(needed)),
        Error::HostTooSmall { .. } => (None, None),
        Error::Stopped => return Failure::Unknown(error.to_string()),
        _ => return InputError::file(&args.common.input, problem.explain(error)).into(),
    };
    // The trace would be within the limit if its sizes were not rounded up.
    let rounded = if options.limit >= problem.max_load() {
        format!("; sizes are rounded up to {} bytes: --alignment", options.alignment)
    } else {
        String::new()
    };
    let proved = least.is_none();
    let error = format!("{}{rounded}", problem.explain(error));
    if args.json {
        let outcome = Outcome {
            input: &args.common.input,
            limit: options.limit,
            alignment: options.alignment,
            seconds,
            using: names(options.using),
            notes: notes.to_vec(),
            least_limit: least,
            needed,
            error: Some(error.clone()),
            ..Outcome::default()
        };
        if let Err(e) = output::json(&outcome, &mut io::stdout().lock()) {
            return Failure::printing(&e);
        }
    }
    if proved { Failure::No(error) } else { Failure::Unknown(error) }
}

impl Outcome<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.original_peak.unwrap_or(0).max(self.limit));
        let mut line = |name: &str, bytes: Option<u64>| match bytes {
            Some(bytes) => writeln!(out, "{name:<13}  {} ({bytes} bytes)", unit.size(bytes)),
            None => Ok(()),
        };
        line("original peak", self.original_peak)?;
        line("limit", Some(self.limit))?;
        line("fitted to", self.fitted_to)?;
        line("footprint", self.footprint)?;
        line("peak load", self.peak_load)?;
        line("swapped", self.swapped_bytes)?;
        if let Some(ns) = self.recomputed_ns {
            let (whole, part) = (ns / 1_000_000, ns / 1_000 % 1_000);
            writeln!(out, "recomputed     {whole}.{part:03} ms")?;
        }
        for (name, count) in [("masks", self.masks), ("in place", self.in_place)] {
            if let Some(count) = count.filter(|&count| count > 0) {
                writeln!(out, "{name:<13}  {count} residencies")?;
            }
        }
        if let Some(overhead) = self.overhead {
            writeln!(out, "overhead       {:.3} %", 100.0 * overhead)?;
        }
        if let Some(moved) = self.moved.filter(|&moved| moved > 0) {
            let kept = match self.overhead_in_order {
                Some(overhead) => format!("; at most {:.3} % in the recorded order", 100.0 * overhead),
                None if self.overhead.is_some() => "; nothing was found in the recorded order".into(),
                None => String::new(),
            };
            writeln!(out, "moved          {moved} operators{kept}: --keep-order")?;
        }
        if let Some(bound) = self.overhead_lower_bound {
            writeln!(out, "lower bound    {:.3} %", 100.0 * bound)?;
        }
        if let Some(bound) = self.overhead_lower_bound_in_order {
            writeln!(out, "lower bound    {:.3} % in the recorded order", 100.0 * bound)?;
        }
        writeln!(out, "fitted in      {:.3} s", self.seconds)?;
        writeln!(out, "verified       {}", if self.verified { "yes" } else { "no" })?;
        if let Some(folder) = self.folder {
            writeln!(out, "written        {} in {folder}", FILES.join(", "))?;
        }
        if self.tried.is_empty() {
            return Ok(());
        }
        let original_ns = self.time_ns.unwrap_or(0.0) / (1.0 + self.overhead.unwrap_or(0.0));
        explain::text(&self.tried, original_ns, unit, out)?;
        match (self.block, &self.gaps) {
            (Some(block), Some(gaps)) => explain::gaps_text(block, gaps, self.limit, unit, out),
            _ => Ok(()),
        }
    }
}
