//! The offsets of a model's tensors as a header for C and C++, for firmware that runs the operators itself.

use std::io::{self, Write};

use crate::model::plan::Planned;
use crate::model::{Model, Operator};

/// Writes the size and the alignment of the arena, and the offset and size of each tensor in it.
pub(crate) fn write(model: &Model, planned: &Planned, alignment: u64, out: &mut impl Write) -> io::Result<()> {
    let (offsets, summary) = (&planned.offsets, planned.solved.summary);
    writeln!(out, "/* Where each tensor of the model lies in the arena: made by sublet plan. */")?;
    writeln!(out, "/* It relies on these kernels: {}. */", planned.kernels.name())?;
    writeln!(out, "#ifndef SUBLET_PLAN_H\n#define SUBLET_PLAN_H\n")?;
    writeln!(out, "#include <stdint.h>\n")?;
    writeln!(out, "/* Bytes of the arena, which begins at a multiple of SUBLET_ARENA_ALIGNMENT. */")?;
    writeln!(out, "#define SUBLET_ARENA_BYTES {}u", summary.peak)?;
    writeln!(out, "#define SUBLET_ARENA_ALIGNMENT {alignment}u")?;
    writeln!(out, "#define SUBLET_TENSORS {}u\n", offsets.len())?;
    writeln!(out, "/* Per tensor: offset in the arena, and -1 where it is none of the arena's; bytes. */")?;
    writeln!(out, "static const struct {{ int32_t offset; uint32_t bytes; }} sublet_tensors[SUBLET_TENSORS] = {{")?;
    for (tensor, offset) in model.tensors.iter().zip(offsets) {
        // A comment can neither be ended nor continued by a name.
        let name = tensor.name.replace(['*', '\\', '?'], "_");
        writeln!(out, "    {{{offset}, {}u}}, /* {name} */", tensor.bytes)?;
    }
    writeln!(out, "}};\n")?;
    writeln!(out, "/* The operators of the model in the order in which they run, by their numbers in the file. */")?;
    writeln!(out, "#define SUBLET_OPERATORS {}u", planned.order.len())?;
    writeln!(out, "static const uint32_t sublet_operators[SUBLET_OPERATORS] = {{")?;
    for &operator in &planned.order {
        let Operator { number, kind, .. } = &model.operators[operator as usize];
        writeln!(out, "    {number}u, /* {} */", kind.replace(['*', '\\', '?'], "_"))?;
    }
    writeln!(out, "}};\n\n#endif")
}
