//! `sublet verify model.tflite`: checks the plan that a model holds against lifetimes derived from its graph.

use std::time::Instant;

use sublet_core::{Constraints, Error, verify};

use crate::args::VerifyArgs;
use crate::failure::{Failure, InputError};
use crate::model::Model;
use crate::model::kernels::Kernels;
use crate::model::plan::{Held, told};
use crate::outcome::Outcome;
use crate::problem::Problem;
use sublet_core::owned::Scratch;

/// Verifies the plan in a model, and prints.
///
/// # Errors
/// A model without a plan or that cannot run, or the first constraint that the plan breaks.
pub(super) fn run(args: &VerifyArgs, model: &Model) -> Result<(), Failure> {
    let input = |message: String| Failure::Input(InputError::file(&args.input, message));
    let plan = model.plan.as_ref().ok_or_else(|| {
        input("there is no plan in the file; name one, or write one with sublet plan --output".into())
    })?;
    let kernels = args.kernels.or(model.relies_on).unwrap_or_default();
    let held = told(&args.input, model, plan, kernels)?;
    let Held { problem, offsets, .. } = &held;
    let given = args.constraints.get();
    let constraints = Constraints { alignment: given.alignment.max(model.alignment), ..given };
    let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
    let begin = Instant::now();
    let verdict = problem.verified(offsets, &constraints, &mut scratch);
    let seconds = begin.elapsed().as_secs_f64();
    let verified = match verdict {
        Ok(verified) => verified,
        Err(e @ Error::Invalid(_)) => {
            // A plan that is valid for other kernels was made for them: the user is told so.
            let with = told(&args.input, model, plan, Kernels::Reference)?;
            let is_valid = with.problem.verified(&with.offsets, &constraints, &mut scratch).is_ok();
            let hint = if is_valid { "; it is valid with --kernels reference" } else { "" };
            return Err(refuse(args, problem, offsets, (&e, hint), seconds));
        }
        Err(e) => return Err(input(problem.explain(&e))),
    };
    let outcome = Outcome { seconds, ..Outcome::of(&verified, &args.input) };
    // Of a part of the tensors no peak is the least for all of them.
    let optimal = outcome.optimal && held.left_out == 0 && held.scratch.is_empty();
    let left_out = (held.left_out > 0).then_some(held.left_out);
    let unchecked = held.scratch.iter().map(|&(tensor, _)| model.tensors[tensor as usize].name.clone()).collect();
    let peak = held.taken(verified.peak());
    let ratio = (peak == verified.peak()).then(|| verified.ratio());
    let peak = Some(peak);
    super::print(args, &Outcome { peak, ratio, optimal, left_out, unchecked, kernels: Some(kernels.name()), ..outcome })
}

fn refuse(
    args: &VerifyArgs,
    problem: &Problem,
    offsets: &[u64],
    (error, hint): (&Error, &str),
    seconds: f64,
) -> Failure {
    let message = format!("{}: {}{hint}", args.input, problem.explain(error));
    let end = |(block, offset): (&sublet_core::Block, &u64)| offset.checked_add(block.size);
    let ends: Option<Vec<u64>> = problem.blocks.iter().zip(offsets).map(end).collect();
    super::refuse(args, problem, message, ends.and_then(|e| e.into_iter().max()), seconds)
}
