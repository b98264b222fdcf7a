//! `sublet check`: whether a certificate tells the truth about a plan.

use std::io::Write;

use sublet_core::{Constraints, verify};

use crate::args::CheckArgs;
use crate::certificate::Certificate;
use crate::failure::{Failure, InputError};
use crate::{input, output};
use sublet_core::owned::Scratch;

/// Verifies the plan, and then each statement of the certificate.
///
/// # Errors
/// An invalid plan, the first statement of the certificate that does not hold, or a file that cannot be read.
pub(crate) fn run(args: &CheckArgs) -> Result<(), Failure> {
    let problem = input::read(&args.input)?;
    let offsets = input::plan::read(&args.plan, &problem)?;
    let certificate = Certificate::read(&args.certificate)?;
    if !certificate.alignment.is_power_of_two() {
        let message = format!("the alignment {} is not a power of two", certificate.alignment);
        return Err(InputError::file(&args.certificate, message).into());
    }
    let constraints = Constraints { alignment: certificate.alignment, capacity: None };
    let mut scratch = Scratch::of(verify::workspace(offsets.len()));
    let plan = verify::verify(&problem.blocks, &offsets, &constraints, scratch.lend())
        .map_err(|e| Failure::No(format!("{}: {}", args.plan, problem.explain(&e))))?;
    if let Some(message) = certificate.refute(&problem, &plan) {
        return Err(Failure::No(format!("{}: {message}", args.certificate)));
    }
    let Certificate { peak, lower_bound, witness_step, optimal, searched_lower_bound, .. } = certificate;
    output::print(&certificate, args.json, &[], |out| {
        writeln!(out, "peak      {peak}: the plan is valid")?;
        if let Some(step) = witness_step {
            writeln!(out, "at least  {lower_bound}: the bytes alive at step {step}")?;
        }
        if let Some(searched) = searched_lower_bound {
            writeln!(out, "claimed   at least {searched}: by a search; nothing here shows it")?;
        }
        writeln!(out, "optimal   {}", if optimal { "yes" } else { "not shown" })
    })
}
