//! Traces: what was allocated, read, written and freed in one iteration.
//!
//! The columns are `time_ns,event,block,bytes,op`, in any order. The step of a row is its number, counted from 0 after
//! the header; blank lines do not count.

use std::collections::HashMap;
use std::io::BufRead;

use sublet_core::trace::{Event, Op, Row};

use super::table::{Table, whole};
use super::{Format, Recognised};
use crate::failure::InputError;
use crate::problem::{BadRow, Problem};

const COLUMNS: [&str; 5] = ["time_ns", "event", "block", "bytes", "op"];

/// How a trace is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "a trace (time_ns,event,block,bytes,op)",
    help: "\
  trace      time_ns,event,block,bytes,op; events are malloc, free, read, write, swap_out, swap_in",
    by: Recognised::Table(&["event", "time_ns"], read),
};

/// Reads what follows the header.
pub(super) fn read(file: &str, mut table: Table<&mut dyn BufRead>) -> Result<Problem, InputError> {
    let notes: Vec<String> = table.unread(&COLUMNS).into_iter().collect();
    let [time, event, block, bytes, op] = [
        table.column("time_ns")?,
        table.column("event")?,
        table.column("block")?,
        table.column("bytes")?,
        table.column("op")?,
    ];
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    let mut names: Vec<String> = Vec::new();
    let mut sizes: Vec<u64> = Vec::new();
    let mut numbers: HashMap<String, u32> = HashMap::new();
    while table.advance()? {
        let Ok(next) = u32::try_from(names.len()) else {
            return Err(table.at_line("expected fewer blocks: they are counted in 32 bits"));
        };
        let name = table.name(block)?;
        let number = numbers.get(name).copied().unwrap_or(next);
        if number == next {
            numbers.insert(name.to_owned(), next);
            names.push(name.to_owned());
            sizes.push(0);
        }
        let kind = match table.bytes(event) {
            b"malloc" => Event::Malloc,
            b"free" => Event::Free,
            b"read" => Event::Read,
            b"write" => Event::Write,
            b"swap_out" => Event::SwapOut,
            b"swap_in" => Event::SwapIn,
            _ => return Err(table.fault(event, "malloc, free, read, write, swap_out or swap_in")),
        };
        let size = match (kind, table.optional_number(bytes, "bytes")?) {
            (Event::Malloc, Some(0)) => return Err(table.fault(bytes, "a size of at least one byte")),
            (Event::Malloc, Some(size)) => size,
            // A later residency may have no size: it is that of the first.
            (Event::Malloc, None) if sizes[number as usize] > 0 => sizes[number as usize],
            (Event::Malloc, None) => return Err(table.fault(bytes, "a size in bytes")),
            (_, Some(_)) => return Err(table.fault(bytes, "nothing: only a malloc has bytes")),
            (_, None) => 0,
        };
        if kind == Event::Malloc {
            sizes[number as usize] = size;
        }
        let op = parse_op(table.bytes(op)).ok_or_else(|| table.fault(op, "the number of an op, such as 7 or 7'"))?;
        rows.push(Row { time_ns: table.number(time, "ns")?, bytes: size, block: number, op, event: kind });
        lines.push(table.line());
    }
    if rows.is_empty() {
        return Err(table.at_line("expected a row, found only the header"));
    }
    let problem = Problem::of_trace(file, rows, names).map_err(|BadRow { row, message }| {
        InputError::line(file, lines.get(row as usize).copied().unwrap_or_default(), message)
    })?;
    Ok(Problem { notes, ..problem })
}

/// An empty cell, `K`, or `K'` for a recomputed op.
fn parse_op(cell: &[u8]) -> Option<Op> {
    let cell = cell.trim_ascii();
    let number = |digits| whole(digits).and_then(|k| u32::try_from(k).ok());
    match cell.strip_suffix(b"'") {
        _ if cell.is_empty() => Some(Op::None),
        Some(digits) => number(digits).map(Op::Rerun),
        None => number(cell).map(Op::First),
    }
}
