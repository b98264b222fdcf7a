//! `sublet verify`: whether a plan satisfies every constraint, whatever made it.

mod embedded;
mod schedule;

use std::io;
use std::time::Instant;

use sublet_core::{Error, verify};

use crate::args::VerifyArgs;
use crate::commands::banks;
use crate::failure::{Failure, InputError};
use crate::input::plan::Told;
use crate::outcome::Outcome;
use crate::problem::Problem;
use crate::{input, output};
use sublet_core::owned::Scratch;

/// Verifies and prints.
///
/// # Errors
/// The first constraint that the plan breaks, or a file that cannot be read.
pub(crate) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    if let Some(rewritten) = &args.rewritten {
        return schedule::run(args, rewritten);
    }
    let problem = input::read_in_banks(&args.input)?;
    let Some(file) = &args.plan else {
        let Some((model, _)) = problem.model.as_deref() else {
            return Err(Failure::Usage(format!("which plan for {}? Only a model may hold one itself", args.input)));
        };
        if !args.bank.is_empty() {
            let message = "--bank: a model holds a plan for one memory; name a plan with the column bank";
            return Err(Failure::Usage(message.into()));
        }
        return embedded::run(args, model);
    };
    let offsets = match input::plan::read_in_banks(file, &problem) {
        Ok(Told { offsets, banks: Some(banks) }) => {
            let verified = banks::verified(&args.bank, args.constraints.get(), &problem, (&offsets, &banks));
            return match verified {
                Ok(found) => found.print(args.json),
                Err(Failure::No(message)) => Err(refuse(args, &problem, format!("{file}: {message}"), None, 0.0)),
                Err(failure) => Err(failure),
            };
        }
        Ok(_) if !args.bank.is_empty() || problem.banks.iter().any(Option::is_some) => {
            return Err(InputError::file(file, "a plan for several memories has the column \"bank\"").into());
        }
        Ok(Told { offsets, banks: None }) => offsets,
        Err(Failure::No(mut message)) => {
            if problem.model.is_some() {
                message +=
                    "; a plan by --in-place, --reorder or --overlap has other blocks, and is checked in a .tflite only";
            }
            return Err(refuse(args, &problem, message, None, 0.0));
        }
        Err(failure) => return Err(failure),
    };
    let mut scratch = Scratch::of(verify::workspace(offsets.len()));
    let begin = Instant::now();
    let verdict = verify::verify(&problem.blocks, &offsets, &args.constraints.get(), scratch.lend());
    let seconds = begin.elapsed().as_secs_f64();
    let plan = match verdict {
        Ok(plan) => plan,
        Err(e @ Error::Invalid(_)) => {
            let message = format!("{file}: {}", problem.explain(&e));
            let end = |(block, offset): (&sublet_core::Block, &u64)| offset.checked_add(block.size);
            let ends: Option<Vec<u64>> = problem.blocks.iter().zip(&offsets).map(end).collect();
            return Err(refuse(args, &problem, message, ends.and_then(|e| e.into_iter().max()), seconds));
        }
        Err(e) => return Err(Failure::Input(InputError::file(&args.input, problem.explain(&e)))),
    };
    print(args, &Outcome { seconds, ..Outcome::of(&plan, &args.input) })
}

fn print(args: &VerifyArgs, outcome: &Outcome<'_>) -> Result<(), Failure> {
    output::print(outcome, args.json, &[], |out| outcome.text(out))
}

fn refuse(args: &VerifyArgs, problem: &Problem, message: String, peak: Option<u64>, seconds: f64) -> Failure {
    if args.json {
        let outcome = Outcome { seconds, ..Outcome::refused(problem, peak, &message) };
        if let Err(e) = output::json(&outcome, &mut io::stdout().lock()) {
            return Failure::printing(&e);
        }
    }
    Failure::No(message)
}
