//! The operators of a trace: `op,name,phase,inplace,rerun`.

use std::io::{self, Write};

use sublet_models::Operator;

/// Writes the operators, numbered from 0.
pub(crate) fn write(operators: &[Operator], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "op,name,phase,inplace,rerun")?;
    for (op, Operator { name, phase, may, .. }) in operators.iter().enumerate() {
        writeln!(out, "{op},{name},{phase},{},{}", u8::from(may.in_place), u8::from(may.rerun))?;
    }
    Ok(())
}
