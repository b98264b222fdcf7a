//! Text in columns, line by line, with the place of every cell.
//!
//! What is written is plain: one header line, commas, no quoting. What is read is whatever a spreadsheet or pandas makes
//! of it: tabs in place of commas where the header has no comma, cells in quotes, whole numbers as `4.0`, CR LF, a byte
//! order mark, blank lines, spaces around numbers. A line is read into one buffer that is used again, and is refused
//! above [`LONGEST_LINE`], so that memory stays small whatever the file holds.

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
    /// Where the cells of that line are in `text`, without their quotes.
    cells: Vec<Range<usize>>,
    delimiter: u8,
    /// The names of the columns.
    columns: Vec<String>,
}

impl<R: BufRead> Table<R> {
    /// Reads the header.
    pub(crate) fn open(file: &str, reader: R) -> Result<Self, InputError> {
        let (text, cells, columns) = (Vec::new(), Vec::new(), Vec::new());
        let mut table = Self { file: file.into(), reader, text, line: 0, cells, delimiter: b',', columns };
        if !table.read_line()? {
            return Err(InputError::file(file, format!("the file is empty; {}", super::expected())));
        }
        if table.text.starts_with(b"\xef\xbb\xbf") {
            table.text.drain(..3);
        }
        let is_text = str::from_utf8(&table.text).is_ok_and(|h| !h.contains(|c: char| c.is_control() && c != '\t'));
        if !is_text {
            return Err(table.at_line(format!("this is not text; {}", super::expected())));
        }
        if !table.text.contains(&b',') && table.text.contains(&b'\t') {
            table.delimiter = b'\t';
        }
        table.split()?;
        let name = |cell: &Range<usize>| String::from_utf8_lossy(&table.text[cell.clone()]).trim().to_owned();
        table.columns = table.cells.iter().map(name).collect();
        for (i, name) in table.columns.iter().enumerate() {
            if !name.is_empty() && table.columns[..i].contains(name) {
                return Err(table.at_line(format!("the column \"{name}\" is there twice")));
            }
        }
        Ok(table)
    }

    /// The name of a column.
    pub(crate) fn column_name(&self, column: usize) -> &str {
        &self.columns[column]
    }

    /// Whether the first line has a number where a header has names.
    pub(crate) fn lacks_header(&self) -> bool {
        self.columns.iter().any(|name| whole(name.as_bytes()).is_some())
    }

    /// A note that names the columns beside these, which nobody reads; the index that pandas writes is not worth one.
    pub(crate) fn unread(&self, known: &[&str]) -> Option<String> {
        let index = |name: &str| name.is_empty() || name.starts_with("Unnamed:");
        let unread: Vec<_> = self.columns.iter().filter(|c| !known.contains(&c.as_str()) && !index(c)).collect();
        let names = unread.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let (columns, known) = (if unread.len() == 1 { "column" } else { "columns" }, known.join(", "));
        (!unread.is_empty()).then(|| format!("{}: not read: the {columns} {names} beside {known}", self.file))
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
        self.split()?;
        if self.cells.len() != self.columns.len() {
            let (expected, found) = (self.columns.len(), self.cells.len());
            return Err(self.at_line(format!("expected {expected} cells ({}), found {found}", self.columns.join(","))));
        }
        Ok(true)
    }

    /// Finds the cells of the line. What stands in quotes loses them, and each doubled quote in it one of the two.
    fn split(&mut self) -> Result<(), InputError> {
        self.cells.clear();
        let mut at = 0;
        loop {
            let spaces = self.text[at..].iter().take_while(|&&byte| byte == b' ').count();
            if self.text.get(at + spaces) == Some(&b'"') {
                let begin = at + spaces + 1;
                let (mut from, mut to) = (begin, begin);
                loop {
                    match (self.text.get(from), self.text.get(from + 1)) {
                        (Some(b'"'), Some(b'"')) => from += 1,
                        (Some(b'"'), _) => break,
                        (Some(_), _) => (),
                        (None, _) => {
                            return Err(self.at_byte(at, "expected a quote that ends this cell on its line"));
                        }
                    }
                    self.text[to] = self.text[from];
                    (from, to) = (from + 1, to + 1);
                }
                self.cells.push(begin..to);
                at = from + 1 + self.text[from + 1..].iter().take_while(|&&byte| byte == b' ').count();
                if self.text.get(at).is_some_and(|byte| *byte != self.delimiter) {
                    return Err(self.at_byte(at, "expected the end of the cell after its quote"));
                }
            } else {
                let rest = &self.text[at..];
                let end = at + rest.iter().position(|&byte| byte == self.delimiter).unwrap_or(rest.len());
                self.cells.push(at..end);
                at = end;
            }
            if at >= self.text.len() {
                return Ok(());
            }
            at += 1;
            if at == self.text.len() {
                self.cells.push(at..at);
                return Ok(());
            }
        }
    }

    /// The number of the line that was read last.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// A cell as it stands.
    pub(crate) fn bytes(&self, column: usize) -> &[u8] {
        &self.text[self.cells[column].clone()]
    }

    /// A name: not empty, UTF-8, and as it may stand in what is written, where nothing is quoted.
    pub(crate) fn name(&self, column: usize) -> Result<&str, InputError> {
        match str::from_utf8(self.bytes(column)) {
            Ok("") => Err(self.fault(column, format!("a name in the column \"{}\"", self.columns[column]))),
            Ok(name) if name.contains(['"', ',']) => Err(self.fault(column, "a name without quotes and commas")),
            Ok(name) if name.contains(char::is_control) => Err(self.fault(column, "a name without control characters")),
            Ok(name) => Ok(name),
            Err(_) => Err(self.fault(column, "a name in UTF-8")),
        }
    }

    /// A whole number; `what` says of what, in the message.
    pub(crate) fn number(&self, column: usize, what: &str) -> Result<u64, InputError> {
        whole(self.bytes(column).trim_ascii()).ok_or_else(|| self.not_a_number(column, what))
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
        self.at_byte(self.cells[column].start, message)
    }

    fn at_byte(&self, byte: usize, message: impl Into<String>) -> InputError {
        let place = Some(Place::Column(self.line, byte + 1));
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

/// As [`decimal`]; zeros after a point may follow, as pandas writes whole numbers beside empty cells.
pub(crate) fn whole(cell: &[u8]) -> Option<u64> {
    match cell.iter().position(|&byte| byte == b'.') {
        Some(point) if !cell[point + 1..].is_empty() && cell[point + 1..].iter().all(|&b| b == b'0') => {
            decimal(&cell[..point])
        }
        Some(_) => None,
        None => decimal(cell),
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
