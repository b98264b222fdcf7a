//! `sublet convert`: the same blocks in another format.

use std::io;
use std::path::Path;

use clap::ValueEnum;
use serde::Serialize;
use sublet_core::{Constraints, verify};

use crate::args::{ConvertArgs, Format};
use crate::failure::{Failure, InputError};
use crate::model::plan::{overlaps_in_file_order, told};
use crate::problem::Problem;
use crate::text::voice;
use crate::{input, output};
use sublet_core::owned::Scratch;

/// Reads and writes.
///
/// # Errors
/// A file that cannot be read or written, or a format that cannot hold what the file has.
pub(crate) fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let format = match args.to {
        Some(format) => format,
        None => by_name(&args.output)?,
    };
    if args.capacity.is_some() && format != Format::Lp {
        return Err(Failure::Usage("--capacity is for LP text only: no other format has a place for it".into()));
    }
    let operators = (format == Format::Trace && args.output != "-").then(|| output::beside(&args.output, "ops.csv"));
    let results = [
        ("OUTPUT", Some(args.output.as_str())),
        ("the file of operators", operators.as_deref()),
        ("--json", args.json.then_some("-")),
    ];
    output::each_elsewhere(&args.input, &results)?;
    let mut problem = input::read(&args.input)?;
    if let Some(kernels) = args.kernels {
        let model = problem.model.as_deref().filter(|_| matches!(format, Format::Lp | Format::Plan));
        let message = "--kernels is for a model as LP text, or for the plan in a model";
        let (model, _) = model.ok_or_else(|| Failure::Usage(message.into()))?;
        problem.overlaps =
            overlaps_in_file_order(model, kernels).map_err(|message| InputError::file(&args.input, message))?;
    }
    write(args, format, &problem)?;
    let Some(name) = format.to_possible_value().filter(|_| args.json) else { return Ok(()) };
    let written =
        Written { input: &args.input, output: &args.output, format: name.get_name(), blocks: problem.blocks.len() };
    output::json(&written, &mut io::stdout().lock()).map_err(|e| Failure::printing(&e))
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Written<'a> {
    input: &'a str,
    output: &'a str,
    format: &'a str,
    blocks: usize,
}

fn write(args: &ConvertArgs, format: Format, problem: &Problem) -> Result<(), Failure> {
    match format {
        Format::Instance => output::write(&args.output, |out| output::instance(problem, out)),
        Format::Trace => {
            fits_trace(problem)?;
            output::write(&args.output, |out| output::trace(problem, out))?;
            operators_beside(args, problem)
        }
        Format::Plan => plan(args, problem),
        Format::Lp => {
            let capacity = args.capacity.unwrap_or_else(|| output::ample_capacity(problem));
            output::write(&args.output, |out| output::lp(problem, capacity, out))
        }
    }
}

/// The format for a file of this name: `.lp` is LP text, `plan.csv` or `NAME.plan.csv` a plan, `trace.csv` or
/// `NAME.trace.csv` a trace, any other `.csv` an instance.
fn by_name(file: &str) -> Result<Format, Failure> {
    let path = Path::new(file);
    let is =
        |path: &Path, name: &str| path.extension().or(path.file_name()).is_some_and(|e| e.eq_ignore_ascii_case(name));
    let stem = path.file_stem().map_or(path, Path::new);
    match () {
        () if is(path, "lp") => Ok(Format::Lp),
        () if !is(path, "csv") => Err(Failure::Usage(format!(
            "{file}: expected a name that ends in .csv or .lp, or --to instance, trace, plan or lp"
        ))),
        () if is(stem, "plan") => Ok(Format::Plan),
        () if is(stem, "trace") => Ok(Format::Trace),
        () => Ok(Format::Instance),
    }
}

/// Writes the operators of a trace beside it, as `NAME.ops.csv`.
fn operators_beside(args: &ConvertArgs, problem: &Problem) -> Result<(), Failure> {
    let Some(trace) = problem.trace.as_ref().filter(|trace| !trace.operators.is_empty()) else { return Ok(()) };
    if args.output == "-" {
        voice::note(format!(
            "the operators of {} are not in a trace; name a file, and they are written beside it",
            args.input
        ));
        return Ok(());
    }
    output::write(&output::beside(&args.output, "ops.csv"), |out| output::ops_of(trace, out))?;
    Ok(())
}

/// Refuses alignments and pins, which a trace cannot have.
fn fits_trace(problem: &Problem) -> Result<(), InputError> {
    for (id, block) in problem.ids.iter().zip(&problem.blocks) {
        let what = match (block.alignment, block.pin) {
            (1, None) => continue,
            (_, Some(_)) => "offset",
            _ => "alignment",
        };
        return Err(InputError::file(&problem.name, format!("block {id} has an {what}, which a trace cannot hold")));
    }
    Ok(())
}

/// Writes the plan that the input holds: the one in a model, or else the offsets of an instance, of which every block
/// must have one. An invalid plan is refused.
fn plan(args: &ConvertArgs, problem: &Problem) -> Result<(), Failure> {
    if let Some((model, _)) = problem.model.as_deref()
        && let Some(held) = &model.plan
    {
        let held = told(&args.input, model, held, args.kernels.or(model.relies_on).unwrap_or_default())?;
        return write_plan(args, &held.problem, &held.offsets);
    }
    let offset = |(id, block): (&String, &sublet_core::Block)| {
        let none = || format!("block {id} has no offset; `sublet plan` gives it one");
        block.pin.ok_or_else(|| InputError::file(&problem.name, none()))
    };
    let offsets: Vec<u64> = problem.ids.iter().zip(&problem.blocks).map(offset).collect::<Result<_, _>>()?;
    write_plan(args, problem, &offsets)
}

fn write_plan(args: &ConvertArgs, problem: &Problem, offsets: &[u64]) -> Result<(), Failure> {
    let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
    let plan = problem
        .verified(offsets, &Constraints::NONE, &mut scratch)
        .map_err(|e| Failure::No(format!("{}: {}", problem.name, problem.explain(&e))))?;
    output::write(&args.output, |out| output::plan(problem, &plan, out))
}
