//! Static graphs: operators, and tensors beside them.

use std::io::{self, Write};

use sublet_core::trace::{Storage, Tensor};
use sublet_models::Operator;

/// Writes the operators, which call tensors by their numbers.
pub(crate) fn operators(operators: &[Operator], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "op,name,phase,inputs,outputs,workspace,time_ns,inplace,rerun")?;
    let list = |tensors: &[u32]| tensors.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    for (op, o) in operators.iter().enumerate() {
        let (inputs, outputs) = (list(&o.inputs), list(&o.outputs));
        write!(out, "{op},{},{},{inputs},{outputs},{},{},", o.name, o.phase, o.workspace, o.time_ns)?;
        writeln!(out, "{},{}", u8::from(o.may.in_place), u8::from(o.may.rerun))?;
    }
    Ok(())
}

/// Writes the tensors, numbered from 0.
pub(crate) fn tensors(tensors: &[Tensor], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "tensor,bytes,storage")?;
    for (number, Tensor { bytes, storage }) in tensors.iter().enumerate() {
        let storage = match storage {
            Storage::Transient => "transient",
            Storage::Iteration => "iteration",
            Storage::Persistent => "persistent",
        };
        writeln!(out, "{number},{bytes},{storage}")?;
    }
    Ok(())
}
