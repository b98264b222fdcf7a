//! Plans: `id,lower,upper,size,offset`, the format of minimalloc's solutions.

use std::io::{self, Write};

use sublet_core::VerifiedPlan;

use crate::problem::Problem;

/// Writes a plan of the problem's blocks.
pub(crate) fn write(problem: &Problem, plan: &VerifiedPlan<'_>, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size,offset")?;
    for ((id, block), offset) in problem.ids.iter().zip(plan.blocks()).zip(plan.offsets()) {
        let (lower, upper) = (problem.time(block.start), problem.time(block.end));
        writeln!(out, "{id},{lower},{upper},{},{offset}", block.size)?;
    }
    Ok(())
}
