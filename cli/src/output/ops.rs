//! The operators of a trace: `op,name,phase,inplace,rerun` for a generated trace, and
//! `op,name,inplace,rerun,ordered,element` for one that was read.

use std::io::{self, Write};

use sublet_models::Operator;

use crate::problem::Trace;

/// Writes the operators of a generated trace, numbered from 0.
pub(crate) fn write(operators: &[Operator], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "op,name,phase,inplace,rerun")?;
    for (op, Operator { name, phase, may, .. }) in operators.iter().enumerate() {
        writeln!(out, "{op},{name},{phase},{},{}", u8::from(may.in_place), u8::from(may.rerun))?;
    }
    Ok(())
}

/// Writes the operators of a trace that was read, numbered from 0.
pub(crate) fn write_read(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "op,name,inplace,rerun,ordered,element")?;
    for (op, (name, may)) in trace.op_names.iter().zip(&trace.operators).enumerate() {
        let [in_place, rerun, ordered] = [may.in_place, may.rerun, may.ordered].map(u8::from);
        writeln!(out, "{op},{name},{in_place},{rerun},{ordered},{}", may.element)?;
    }
    Ok(())
}
