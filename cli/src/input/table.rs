//! Comma-separated text, line by line, with the place of every cell.
//!
//! The formats are plain: one header line, commas, no quoting. A line is read into one buffer that is used again,
//! and is refused above [`LONGEST_LINE`], so that memory stays small whatever the file holds. CR LF, a byte order
//! mark, blank lines and spaces around numbers are taken; a quoted cell is not, except where it is asked for.

use std::fmt::Display;
use std::io::{BufRead, Read};
use std::ops::Range;

use crate::failure::{InputError, Place};

/// The longest line that is read, in bytes.
pub(crate) const LONGEST_LINE: u64 = 1 << 16;

/// Lines of cells under a header.
pub(crate) struct Table<R> {
    file: String,
    reader: R,
    /// The line that was read last, without its end.
    text: Vec<u8>,
    /// The number of that line, from 1.
    line: u64,
    /// Where the cells of that line are in `text`.
    cells: Vec<Range<usize>>,
    /// The names of the columns.
    columns: Vec<String>,
}

impl<R: BufRead> Table<R> {
    /// Reads the header.
    pub(crate) fn open(file: &str, reader: R) -> Result<Self, InputError> {
        let mut table =
            Self { file: file.into(), reader, text: Vec::new(), line: 0, cells: Vec::new(), columns: Vec::new() };
        if !table.read_line()? {
            return Err(InputError::file(file, format!("the file is empty; {}", super::expected())));
        }
        if table.text.starts_with(b"\xef\xbb\xbf") {
            table.text.drain(..3);
        }
        let Some(header) = str::from_utf8(&table.text).ok().filter(|h| !h.contains(|c: char| c.is_control())) else {
            return Err(table.at_line(format!("this is not text; {}", super::expected())));
        };
        table.columns = header.split(',').map(|c| c.trim().trim_matches('"').to_owned()).collect();
        for (i, name) in table.columns.iter().enumerate() {
            if table.columns[..i].contains(name) {
                return Err(table.at_line(format!("the column \"{name}\" is there twice")));
            }
        }
        Ok(table)
    }

    /// The names of the columns.
    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The column of this name, if there is one.
    pub(crate) fn optional(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c == name)
    }

    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Result<usize, InputError> {
        self.optional(name)
            .ok_or_else(|| self.at_line(format!("expected a column \"{name}\", found only {}", self.columns.join(","))))
    }

    /// Goes to the next line that is not blank; whether there is one.
    pub(crate) fn advance(&mut self) -> Result<bool, InputError> {
        loop {
            if !self.read_line()? {
                return Ok(false);
            }
            if !self.text.is_empty() {
                break;
            }
        }
        self.cells.clear();
        let mut begin = 0;
        for (i, &byte) in self.text.iter().enumerate() {
            if byte == b',' {
                self.cells.push(begin..i);
                begin = i + 1;
            }
        }
        self.cells.push(begin..self.text.len());
        if self.cells.len() != self.columns.len() {
            let (expected, found) = (self.columns.len(), self.cells.len());
            return Err(self.at_line(format!("expected {expected} cells ({}), found {found}", self.columns.join(","))));
        }
        Ok(true)
    }

    /// The number of the line that was read last.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A cell as it stands.
    pub(crate) fn bytes(&self, column: usize) -> &[u8] {
        &self.text[self.cells[column].clone()]
    }

    /// A cell without spaces and without quotes around it.
    pub(crate) fn unquoted(&self, column: usize) -> &[u8] {
        let cell = self.bytes(column).trim_ascii();
        cell.strip_prefix(b"\"").and_then(|c| c.strip_suffix(b"\"")).unwrap_or(cell).trim_ascii()
    }

    /// A name: not empty, UTF-8, no quotes.
    pub(crate) fn name(&self, column: usize) -> Result<&str, InputError> {
        match str::from_utf8(self.bytes(column)) {
            Ok("") => Err(self.fault(column, format!("a name in the column \"{}\"", self.columns[column]))),
            Ok(name) if name.contains('"') => Err(self.fault(column, "a name without quotes")),
            Ok(name) if name.contains(char::is_control) => Err(self.fault(column, "a name without control characters")),
            Ok(name) => Ok(name),
            Err(_) => Err(self.fault(column, "a name in UTF-8")),
        }
    }

    /// A whole number; `what` says of what, in the message.
    pub(crate) fn number(&self, column: usize, what: &str) -> Result<u64, InputError> {
        decimal(self.bytes(column).trim_ascii()).ok_or_else(|| self.not_a_number(column, what))
    }

    /// A whole number, or none where the cell is empty.
    pub(crate) fn optional_number(&self, column: usize, what: &str) -> Result<Option<u64>, InputError> {
        if self.bytes(column).trim_ascii().is_empty() { Ok(None) } else { self.number(column, what).map(Some) }
    }

    #[cold]
    fn not_a_number(&self, column: usize, what: &str) -> InputError {
        let cell = self.bytes(column).trim_ascii();
        let digits = !cell.is_empty() && cell.iter().all(u8::is_ascii_digit);
        let limit = if digits { format!(" up to {}", u64::MAX) } else { String::new() };
        self.fault(column, format!("a whole number of {what}{limit}"))
    }

    /// The error that a cell is not what was expected.
    pub(crate) fn fault(&self, column: usize, expected: impl Display) -> InputError {
        const SHOWN: usize = 40;
        let cell = self.bytes(column);
        let shown = String::from_utf8_lossy(&cell[..cell.len().min(SHOWN)]);
        let more = if cell.len() > SHOWN { "…" } else { "" };
        self.at_cell(column, format!("expected {expected}, found \"{}{more}\"", shown.escape_debug()))
    }

    /// The error of a cell with this message.
    pub(crate) fn at_cell(&self, column: usize, message: impl Into<String>) -> InputError {
        let place = Some(Place::Column(self.line, self.cells[column].start + 1));
        InputError { file: self.file.clone(), place, message: message.into() }
    }

    /// The error of a line with this message.
    pub(crate) fn at_line(&self, message: impl Into<String>) -> InputError {
        InputError::line(&self.file, self.line, message)
    }

    /// Reads a line without its end; whether there was one.
    fn read_line(&mut self) -> Result<bool, InputError> {
        self.text.clear();
        self.line += 1;
        let mut bounded = self.reader.by_ref().take(LONGEST_LINE + 1);
        let read = bounded.read_until(b'\n', &mut self.text).map_err(|e| super::unreadable(&self.file, &e))?;
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
            if self.text.last() == Some(&b'\r') {
                self.text.pop();
            }
        } else if read as u64 > LONGEST_LINE {
            return Err(self.at_line(format!("expected lines of at most {LONGEST_LINE} bytes")));
        }
        Ok(read > 0)
    }
}

/// A decimal number without a sign that fits in 64 bits.
pub(crate) fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(digit.into()) }
    })
}
