//! `sublet verify model.tflite`: checks the plan that a model holds against lifetimes derived from its graph.

use std::time::Instant;

use sublet_core::{Constraints, Error, verify};

use crate::args::VerifyArgs;
use crate::commands::plan::verified_by;
use crate::failure::{Failure, InputError};
use crate::model::Model;
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
    let Held { problem, offsets, left_out } = told(&args.input, model, plan, args.overlap.is_some())?;
    let given = args.constraints.get();
    let constraints = Constraints { alignment: given.alignment.max(model.alignment), ..given };
    let mut scratch = Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
    let begin = Instant::now();
    let verdict = verified_by(&problem, &offsets, &constraints, &mut scratch);
    let seconds = begin.elapsed().as_secs_f64();
    let plan = match verdict {
        Ok(plan) => plan,
        Err(e @ Error::Invalid(_)) => {
            // A plan that is valid with overlaps was made with them: the user is told to give the option here too.
            let mut hint = "";
            if args.overlap.is_none() {
                let with = told(&args.input, model, plan, true)?;
                if verified_by(&with.problem, &with.offsets, &constraints, &mut scratch).is_ok() {
                    hint = "; it is valid with --overlap reference";
                }
            }
            return Err(refuse(args, &problem, &offsets, (&e, hint), seconds));
        }
        Err(e) => return Err(input(problem.explain(&e))),
    };
    let outcome = Outcome { seconds, ..Outcome::of(&plan, &args.input) };
    // Of a part of the tensors no peak is the least for all of them.
    let optimal = outcome.optimal && left_out == 0;
    super::print(args, &Outcome { optimal, left_out: (left_out > 0).then_some(left_out), ..outcome })
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
