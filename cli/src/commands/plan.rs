//! `sublet plan`: gives every block an address, and proves the plan before it is printed.

use std::io::{self, Write};
use std::rc::Rc;
use std::time::Instant;

use sublet_core::place::Summary;
use sublet_core::{Constraints, Error, VerifiedPlan, verify};

use super::model::{self, ModelOutcome};
use super::{banks, chunks, fit};
use crate::args::PlanArgs;
use crate::certificate::Certificate;
use crate::failure::{Failure, InputError};
use crate::input::graph::Arranged;
use crate::model::plan::{PlanError, Planned, Plans};
use crate::model::{Model, shapes};
use crate::outcome::{GraphOutcome, Outcome};
use crate::problem::Problem;
use crate::report::{self, Picture, SolverRow};
use crate::solve::{self, Solved};
use crate::text::{progress, voice};
use crate::{input, output, proof};
use sublet_core::owned::Scratch;

/// Plans, verifies, writes and prints.
///
/// # Errors
/// No plan within the capacity, or a file that cannot be read or written.
pub(crate) fn run(args: &PlanArgs) -> Result<(), Failure> {
    each_elsewhere(args)?;
    let mut problem = read(args)?;
    let is_graph = problem.graph.is_some();
    let arranged = arrange(args, &mut problem)?;
    proof::check(args, &problem)?;
    let model = problem.model.take();
    let constraints = model.as_deref().map_or(args.constraints.get(), |(model, _)| model::constraints(args, model));
    check_model(args, model.as_deref().map(|(model, _)| model), is_graph)?;
    if !args.banks().is_empty() {
        return banks::run(args, problem, model.as_deref().map(|(model, _)| model), &constraints);
    }
    if let Some(limit) = args.chunk {
        return chunks::run(args, &problem, limit);
    }
    let asked = model.as_deref().map(|(model, _)| model::scratch(args, model)).transpose()?.unwrap_or_default();
    let begin = Instant::now();
    let (solved, planned, mut plans) =
        place(args, &mut problem, model.as_deref().map(|(model, _)| model), &asked.known)?;
    let is_kept = planned.as_deref().is_some_and(|planned| planned.is_of_file);
    let seconds = begin.elapsed().as_secs_f64();
    let problem = planned.as_deref().map_or(&problem, |planned| &planned.problem);
    let Solved { offsets, summary } = match solved {
        Ok(solved) => solved,
        Err(e @ Error::OverCapacity { capacity, .. }) => {
            let said = match proof::write(args, problem, &constraints, capacity) {
                Err(Failure::Unknown(said)) => Some(said),
                said => said?,
            };
            return Err(refuse(args, problem, &e, seconds, said.as_deref()));
        }
        Err(e) => return Err(Failure::Input(InputError::file(&args.input, problem.explain(&e)))),
    };
    let plan = if is_kept {
        model::verified_kept(args, problem, &offsets, &constraints)?
    } else {
        verified(problem, &offsets, &constraints)?
    };
    if let (Some((model, bytes)), Some(planned)) = (model.as_deref(), planned.as_deref()) {
        model::write(args, (model, bytes), &asked.known, planned)?;
    }
    write(args, problem, &plan, (constraints.alignment, summary.lower_bound))?;
    // Where outputs reach into inputs, there is only one solver.
    let solver_name = match () {
        () if is_kept => "file",
        () if problem.overlaps.is_empty() => summary.solver.name(),
        () => "overlapping",
    };
    // Where operators may be reordered, a plan is optimal only if its order is known to need the least.
    let ordered = arranged.as_ref().map_or(planned.as_deref().and_then(|planned| planned.ordered), |a| a.ordered);
    let least_order = ordered.is_some_and(|o| o.is_least());
    let optimal = !is_kept && plan.peak() == summary.lower_bound && (!args.model.reorder || least_order);
    if let Some(file) = &args.report {
        write_report(file, problem, &plan, (solver_name, optimal), (summary, seconds))?;
    }
    let proved = proof::write(args, problem, &constraints, plan.peak().saturating_sub(1));
    // The search may have proved a lower bound above the max load.
    let searched = (summary.nodes > 0).then_some(summary);
    let known = model.as_deref().zip(planned.as_deref());
    let known = known.map(|((model, _), planned)| ModelOutcome::of(args, model, &asked, plans.as_mut(), planned));
    let peak = planned.as_deref().map_or(0, |planned| planned.scratch_end).max(plan.peak());
    let graph = arranged.map(GraphOutcome::from);
    let outcome = Outcome {
        model: known.as_ref(),
        graph: graph.as_ref(),
        solver: Some(solver_name),
        answer: constraints.capacity.map(|_| "found"),
        seconds,
        optimal,
        lower_bound: searched.map(|s| s.lower_bound),
        nodes: searched.map(|s| s.nodes),
        peak: Some(peak),
        ratio: (peak == plan.peak()).then(|| plan.ratio()),
        kernels: planned.as_deref().map(|planned| planned.kernels.name()),
        ..Outcome::of(&plan, &args.input)
    };
    print(args, &outcome)?;
    if let (Some(said), false) = (proved?, args.json) {
        voice::note(format!("proof: {said}"));
    }
    Ok(())
}

/// The input, with the shapes that its inputs are given.
fn read(args: &PlanArgs) -> Result<Problem, Failure> {
    let read = if args.banks().is_empty() { input::read } else { input::read_in_banks };
    let mut problem = read(&args.input)?;
    if let Some((model, _)) = problem.model.as_deref_mut().filter(|_| !args.model.shape.is_empty()) {
        if !model.for_tflm || args.output.as_deref().is_some_and(model::is_model) {
            let message = "--shape is for a .tflite, whose file cannot hold the plan: name a .csv, or --header";
            return Err(Failure::Usage(message.into()));
        }
        shapes::give(model, &args.model.shape).map_err(Failure::Usage)?;
    }
    Ok(problem)
}

/// Writes the rows of the plan, and its certificate, where they are asked for.
fn write(
    args: &PlanArgs,
    problem: &Problem,
    plan: &VerifiedPlan<'_>,
    (alignment, lower_bound): (u64, u64),
) -> Result<(), Failure> {
    if let Some(file) = args.output.as_ref().filter(|file| !model::is_model(file) && !model::is_ordered(file)) {
        output::write(file, |out| output::plan(problem, plan, out))?;
    }
    if let Some(file) = &args.certificate {
        let certificate = Certificate::of(problem, plan, alignment, lower_bound);
        output::write(file, |out| output::json(&certificate, out))?;
    }
    Ok(())
}

/// Puts the operators of a static graph into the order, and its outputs over the inputs, that are asked for.
fn arrange(args: &PlanArgs, problem: &mut Problem) -> Result<Option<Arranged>, Failure> {
    let graph = problem.graph.take().filter(|_| args.model.reorder || args.model.in_place);
    let Some(graph) = graph else { return Ok(None) };
    if args.certificate.is_some() {
        let message = "a certificate is for the blocks of INPUT, and a graph that is arranged anew has others";
        return Err(Failure::Usage(message.into()));
    }
    let (found, arranged) = graph.arranged(&args.input, args.model.reorder, args.model.in_place)?;
    *problem = Problem { notes: std::mem::take(&mut problem.notes), ..found };
    Ok(Some(arranged))
}

/// A placement of the blocks, or why there is none. For a model also its plan, which is the one in its file or made by the
/// means that are asked for, and the plans by other means. Where none fits, `problem` becomes the one that comes closest.
#[expect(clippy::type_complexity, reason = "read once")]
fn place<'a>(
    args: &'a PlanArgs,
    problem: &mut Problem,
    model: Option<&'a Model>,
    scratch: &'a [(u32, u64)],
) -> Result<(Result<Solved, Error>, Option<Rc<Planned>>, Option<Plans<'a>>), Failure> {
    let Some(model) = model else {
        let constraints = args.constraints.get();
        let solve = |bar: &_| solve::solve(&problem.blocks, constraints, &args.solve, bar);
        return Ok((progress::during("placing", solve), None, None));
    };
    if let Some(kept) = model::kept(args, model)? {
        return Ok((Ok(kept.solved.clone()), Some(Rc::new(kept)), None));
    }
    let mut plans = model::plans(args, model, scratch);
    match progress::during("placing", |bar| plans.best(args.model.means(), bar)) {
        Ok(found) => {
            let mut solved = found.planned.solved.clone();
            solved.summary.lower_bound = found.lower_bound;
            Ok((Ok(solved), Some(found.planned), Some(plans)))
        }
        Err(PlanError::Place(of, e @ Error::OverCapacity { .. })) => {
            *problem = *of;
            Ok((Err(e), None, Some(plans)))
        }
        Err(e) => Err(e.into()),
    }
}

/// Refuses two results in one place, or one over the input. A plan may be written into the model that it is for.
fn each_elsewhere(args: &PlanArgs) -> Result<(), Failure> {
    let claim = args.proof.as_ref().map(|name| [format!("{name}.opb"), format!("{name}.pbp")]);
    let [claim, proof] = claim.as_ref().map_or([None; 2], |files| files.each_ref().map(|file| Some(file.as_str())));
    let output = args.output.as_deref();
    let results = [
        ("--json", args.json.then_some("-")),
        ("--output", output.filter(|file| !(model::is_model(file) && *file == args.input))),
        ("--report", args.report.as_deref()),
        ("--certificate", args.certificate.as_deref()),
        ("--header", args.model.header.as_deref()),
        ("--proof", claim),
        ("--proof", proof),
    ];
    output::each_elsewhere(&args.input, &results)
}

/// Draws a plan; the report also tells its solver and whether it is optimal, the lower bound, and the seconds that it
/// took.
fn write_report(
    file: &str,
    problem: &Problem,
    plan: &VerifiedPlan<'_>,
    (solver, optimal): (&str, bool),
    (summary, seconds): (Summary, f64),
) -> Result<(), Failure> {
    let Summary { peak, lower_bound, nodes, .. } = summary;
    let row = SolverRow { solver: solver.into(), peak, lower_bound, optimal, nodes, seconds };
    let picture = Picture { problem, plan, solver, optimal, rows: vec![row], run: None };
    output::write(file, |out| report::write(file, &picture, out))?;
    Ok(())
}

/// Refuses options that do not go with the input: those for models where it is no model or where there are banks, and
/// those that a model cannot have.
fn check_model(args: &PlanArgs, model: Option<&Model>, is_graph: bool) -> Result<(), Failure> {
    let holds_plan = |file: &str| model::is_model(file) || model::is_ordered(file);
    let into_model = args.output.as_deref().is_some_and(holds_plan);
    let for_a_model = args.model.any() || into_model;
    let refuse = |why: String| Err(Failure::Usage(why));
    match model {
        _ if !args.banks().is_empty() && args.output.as_deref().is_some_and(model::is_model) => {
            refuse("a .tflite holds offsets of one memory; for several name a .csv, or --header".into())
        }
        Some(_) if !args.banks().is_empty() => Ok(()),
        None if !args.banks().is_empty() && !for_a_model => Ok(()),
        None if !args.banks().is_empty() => {
            refuse("only a model is planned for several memories by other means".into())
        }
        None if is_graph && for_a_model && (into_model || !args.model.only_arranges()) => {
            refuse(format!("{} is a graph: of the options for models it takes --reorder and --in-place", args.input))
        }
        None if for_a_model && !is_graph => {
            refuse(format!("{} is no model: it has no operators to reorder and no place for a plan", args.input))
        }
        None => Ok(()),
        Some(_) if args.chunk.is_some() => {
            refuse("--chunk is for blocks, and a model holds offsets of one range".into())
        }
        Some(model) => {
            model::check(args, model)?;
            if args.certificate.is_some() {
                return refuse("a certificate is for the blocks of INPUT, and the plan of a model has others".into());
            }
            Ok(())
        }
    }
}

/// Prints the outcome; on standard error if a file that was asked for is on standard output.
fn print(args: &PlanArgs, outcome: &Outcome<'_>) -> Result<(), Failure> {
    let files = [&args.output, &args.report, &args.certificate, &args.model.header];
    output::print(outcome, args.json, &files, |out| {
        outcome.text(out)?;
        match args.output.as_deref() {
            None | Some("-") => Ok(()),
            Some(file) if model::is_ordered(file) => {
                writeln!(out, "order     {file}")?;
                writeln!(
                    out,
                    "note      onnxruntime follows the order of a file if its option execution_order is PRIORITY_BASED, \
                     as sublet.onnx.session sets it"
                )
            }
            Some(file) => writeln!(out, "plan      {file}"),
        }
    })
}

/// Verifies a plan, whatever made it: only valid plans are printed.
fn verified<'a>(
    problem: &'a Problem,
    offsets: &'a [u64],
    constraints: &Constraints,
) -> Result<VerifiedPlan<'a>, Failure> {
    let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
    problem
        .verified(offsets, constraints, &mut scratch)
        .map_err(|e| Failure::No(format!("the solver made an invalid plan, please report it: {}", problem.explain(&e))))
}

/// The failure of a plan that misses the capacity; with `--json` the outcome is printed first. `proof` is what to say
/// of a proof that none fits.
fn refuse(args: &PlanArgs, problem: &Problem, error: &Error, seconds: f64, proof: Option<&str>) -> Failure {
    let mut message = problem.explain(error) + &proof.map(|said| format!("\nproof: {said}")).unwrap_or_default();
    let proved = error.is_impossible();
    if let (Error::OverCapacity { capacity, .. }, true) =
        (error, fit::recorded(problem).is_ok() && problem.model.is_none())
    {
        message =
            format!("{message}\n`sublet fit {} --limit {capacity}` rewrites the iteration to take less", args.input);
    }
    if let (true, &Error::OverCapacity { peak, lower_bound, .. }) = (args.json, error) {
        let answer = Some(if proved { "proved: none fits" } else { "none found" });
        let (solver, lower_bound) = (Some(args.solve.solver.name()), Some(lower_bound));
        let refused = Outcome::refused(problem, Some(peak), &message);
        let outcome = Outcome { solver, seconds, answer, lower_bound, ..refused };
        if let Err(e) = output::json(&outcome, &mut io::stdout().lock()) {
            return Failure::printing(&e);
        }
    }
    if proved { Failure::No(message) } else { Failure::Unknown(message) }
}
