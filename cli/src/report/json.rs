//! The scene as JSON that may stand inside a `<script>` element.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

/// Writes `<` as `\u003c`: JSON has it in strings only, and without it no text can end the element or open a comment.
struct InsideScript;

impl Formatter for InsideScript {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for (i, part) in fragment.split('<').enumerate() {
            if i > 0 {
                writer.write_all(b"\\u003c")?;
            }
            CompactFormatter.write_string_fragment(writer, part)?;
        }
        Ok(())
    }
}

pub(super) fn write(value: &impl Serialize, out: &mut impl io::Write) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(out, InsideScript)).map_err(io::Error::from)
}
