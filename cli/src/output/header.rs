//! Where a model's tensors lie, as a header for C99 and C++, for firmware that runs the operators itself.
//!
//! Everything is named after a prefix, so that headers of several models go into one program. There are the memories,
//! the tensors, the model's inputs and outputs, and the operators in their order with the tensors that each reads and
//! writes. For several memories there is an array for each, in a section of its own.

use std::io::{self, Write};

use crate::model::{Model, Operator};

/// A memory that tensors lie in.
pub(crate) struct Memory<'a> {
    /// None where there is one memory only.
    pub(crate) name: Option<&'a str>,
    pub(crate) bytes: u64,
    pub(crate) alignment: u64,
}

/// A plan as a header tells it.
pub(crate) struct Layout<'a> {
    /// What all names begin with: letters, digits and underscores.
    pub(crate) prefix: &'a str,
    /// The name of the kernels that the plan relies on.
    pub(crate) kernels: &'a str,
    pub(crate) memories: Vec<Memory<'a>>,
    /// By tensor: the memory and the offset in it; none where it is in none of them.
    pub(crate) places: Vec<Option<(usize, i32)>>,
    /// The operators in the order in which they run.
    pub(crate) order: &'a [u32],
}

/// Whether all names of a header may begin with this.
pub(crate) fn prefix(text: &str) -> Result<String, String> {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    (plain && begins && text.len() <= 63).then(|| text.to_owned()).ok_or("expected a name as C has them".into())
}

/// As a comment may have it: it can neither be ended nor continued.
fn comment(text: &str) -> String {
    text.replace(['*', '\\', '?'], "_")
}

/// # Errors
/// Of the writer.
pub(crate) fn write(model: &Model, layout: &Layout<'_>, out: &mut impl Write) -> io::Result<()> {
    let (lower, upper) = (layout.prefix.to_ascii_lowercase(), layout.prefix.to_ascii_uppercase());
    writeln!(out, "/* Where each tensor of the model lies: made by sublet plan. */")?;
    writeln!(out, "/* It relies on these kernels: {}. */", layout.kernels)?;
    writeln!(out, "#ifndef {upper}_PLAN_H\n#define {upper}_PLAN_H\n\n#include <stdint.h>\n")?;
    memories(layout, &lower, &upper, out)?;
    let banks = layout.memories.len() > 1;
    let bank_field = if banks { "uint32_t bank; " } else { "" };
    writeln!(out, "#define {upper}_TENSORS {}u", layout.places.len())?;
    let what = if banks { "memory, offset in it" } else { "offset in the arena" };
    writeln!(out, "/* Per tensor: {what}, and -1 where it is none of the arena's; bytes. */")?;
    writeln!(
        out,
        "static const struct {{ {bank_field}int32_t offset; uint32_t bytes; }} {lower}_tensors[{upper}_TENSORS] = {{"
    )?;
    for (tensor, place) in model.tensors.iter().zip(&layout.places) {
        let (bank, offset) = place.unwrap_or((0, -1));
        let bank = if banks { format!("{bank}u, ") } else { String::new() };
        writeln!(out, "    {{{bank}{offset}, {}u}}, /* {} */", tensor.bytes, comment(&tensor.name))?;
    }
    writeln!(out, "}};\n")?;
    let graph = &model.graphs[0];
    for (what, list) in [("inputs", &graph.inputs), ("outputs", &graph.outputs)] {
        if !list.is_empty() {
            let name = what.to_ascii_uppercase();
            let all: Vec<String> = list.iter().map(|tensor| format!("{tensor}u")).collect();
            writeln!(out, "/* The tensors that are the model's {what}. */\n#define {upper}_{name} {}u", list.len())?;
            writeln!(out, "static const uint32_t {lower}_{what}[{upper}_{name}] = {{{}}};\n", all.join(", "))?;
        }
    }
    operators(model, layout, (&lower, &upper), out)?;
    writeln!(out, "\n#endif")
}

fn memories(layout: &Layout<'_>, lower: &str, upper: &str, out: &mut impl Write) -> io::Result<()> {
    for (number, Memory { name, bytes, alignment }) in layout.memories.iter().enumerate() {
        let Some(name) = name else {
            writeln!(out, "/* Bytes of the arena, which begins at a multiple of {upper}_ARENA_ALIGNMENT. */")?;
            writeln!(out, "#define {upper}_ARENA_BYTES {bytes}u\n#define {upper}_ARENA_ALIGNMENT {alignment}u\n")?;
            continue;
        };
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        let (small, large) = (plain.to_ascii_lowercase(), plain.to_ascii_uppercase());
        writeln!(out, "/* Memory {number}: {}. Define {upper}_{large}_SECTION to put it elsewhere. */", comment(name))?;
        writeln!(out, "#define {upper}_{large}_BYTES {bytes}u\n#define {upper}_{large}_ALIGNMENT {alignment}u")?;
        writeln!(out, "#ifndef {upper}_{large}_SECTION")?;
        writeln!(out, "#define {upper}_{large}_SECTION \".{small}\"\n#endif")?;
        if *bytes > 0 {
            writeln!(
                out,
                "static uint8_t {lower}_{small}[{upper}_{large}_BYTES]\n    __attribute__((section({upper}_{large}_SECTION), \
                 aligned({upper}_{large}_ALIGNMENT)));"
            )?;
        }
        writeln!(out)?;
    }
    if layout.memories.len() > 1 {
        writeln!(out, "/* The memories by their numbers. */\n#define {upper}_MEMORIES {}u", layout.memories.len())?;
        writeln!(out, "static uint8_t *const {lower}_memories[{upper}_MEMORIES] = {{")?;
        for Memory { name, bytes, .. } in &layout.memories {
            let plain: String =
                name.unwrap_or_default().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            let small = plain.to_ascii_lowercase();
            let array = if *bytes > 0 { format!("{lower}_{small}") } else { "(uint8_t *)0".into() };
            writeln!(out, "    {array},")?;
        }
        writeln!(out, "}};\n")?;
    }
    Ok(())
}

/// The operators, and the tensors of each: first those that it reads, -1 for one that is left out, then those that it
/// writes.
fn operators(model: &Model, layout: &Layout<'_>, (lower, upper): (&str, &str), out: &mut impl Write) -> io::Result<()> {
    let all = || layout.order.iter().map(|&operator| &model.operators[operator as usize]);
    writeln!(
        out,
        "/* The operators of the model in the order in which they run, by their numbers in the file; and what they are. */"
    )?;
    writeln!(out, "#define {upper}_OPERATORS {}u", layout.order.len())?;
    if layout.order.is_empty() {
        return Ok(());
    }
    writeln!(out, "static const uint32_t {lower}_operators[{upper}_OPERATORS] = {{")?;
    for Operator { number, kind, .. } in all() {
        writeln!(out, "    {number}u, /* {} */", comment(kind))?;
    }
    writeln!(out, "}};\nstatic const char *const {lower}_kinds[{upper}_OPERATORS] = {{")?;
    for Operator { kind, .. } in all() {
        let plain: String =
            kind.chars().map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' }).collect();
        writeln!(out, "    \"{plain}\",")?;
    }
    writeln!(out, "}};\n")?;
    let count: usize = all().map(|o| o.operands.len() + o.outputs.len()).sum();
    writeln!(
        out,
        "/* The tensors of these operators, one operator after the other: what it reads, -1 for what is left out, then"
    )?;
    writeln!(
        out,
        "   what it writes. Per operator: where its tensors begin, how many it reads, how many it writes. */"
    )?;
    writeln!(out, "#define {upper}_OPERANDS {count}u")?;
    writeln!(
        out,
        "static const struct {{ uint32_t first; uint32_t reads; uint32_t writes; }} {lower}_spans[{upper}_OPERATORS] = {{"
    )?;
    let mut first = 0;
    for Operator { operands, outputs, .. } in all() {
        writeln!(out, "    {{{first}u, {}u, {}u}},", operands.len(), outputs.len())?;
        first += operands.len() + outputs.len();
    }
    writeln!(out, "}};")?;
    if count > 0 {
        writeln!(out, "static const int32_t {lower}_operands[{upper}_OPERANDS] = {{")?;
        for Operator { operands, outputs, .. } in all() {
            let reads = operands.iter().map(|operand| operand.map_or("-1".into(), |tensor| tensor.to_string()));
            let list: Vec<String> = reads.chain(outputs.iter().map(u32::to_string)).collect();
            writeln!(out, "    {},", list.join(", "))?;
        }
        writeln!(out, "}};")?;
    }
    Ok(())
}
