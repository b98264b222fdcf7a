//! Instances: `id,lower,upper,size`, and where a block has them, `alignment` and `offset` (a pin).

use std::io::{self, Write};

use crate::problem::Problem;

/// Writes the problem's blocks.
pub(crate) fn write(problem: &Problem, out: &mut impl Write) -> io::Result<()> {
    let aligned = problem.blocks.iter().any(|b| b.alignment > 1);
    let pinned = problem.blocks.iter().any(|b| b.pin.is_some());
    write!(out, "id,lower,upper,size")?;
    for name in [(aligned, ",alignment"), (pinned, ",offset")].into_iter().filter_map(|(is, name)| is.then_some(name)) {
        write!(out, "{name}")?;
    }
    writeln!(out)?;
    for (id, block) in problem.ids.iter().zip(&problem.blocks) {
        write!(out, "{id},{},{},{}", problem.time(block.start), problem.time(block.end), block.size)?;
        if aligned {
            write!(out, ",{}", block.alignment)?;
        }
        match block.pin {
            Some(offset) => write!(out, ",{offset}")?,
            None if pinned => write!(out, ",")?,
            None => {}
        }
        writeln!(out)?;
    }
    Ok(())
}
