//! Allocation logs of RAPIDS RMM: `Thread,Time,Action,Pointer,Size,Stream`.
//!
//! `allocate` and `free` (or `deallocate`) count; an `allocate failure` allocated nothing, and is noted. The time is a
//! time of day (`14:21:19.998533` or `14:21:19:998533`) or seconds since 1970 (`1634567890.123456`). A time of day that
//! falls back by more than half a day is one of the next day.
//! Cells may have spaces around them.

use std::collections::HashMap;
use std::io::BufRead;

use super::recording::Recording;
use super::table::{Table, decimal};
use super::{Format, Recognised};
use crate::failure::InputError;
use crate::problem::{BadRow, Problem};
use crate::text::unit::Unit;

const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

/// How an RMM log is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "an RMM log (Thread,Time,Action,Pointer,Size,Stream)",
    help: "\
  RMM log    Thread,Time,Action,Pointer,Size,Stream, as RAPIDS RMM writes it",
    by: Recognised::Table(&["Action", "Pointer"], read),
};

/// A log with what a problem does not hold.
pub(crate) struct Log {
    pub(crate) problem: Problem,
    pub(crate) events: usize,
    /// How many blocks are from before the log.
    pub(crate) early: usize,
    /// The requests that failed: how many mallocs and frees came before each, and its bytes.
    pub(crate) failed: Vec<(usize, u64)>,
    /// By block from the log, in order: the thread and the stream that asked for it, an index into `who`.
    pub(crate) by: Vec<u32>,
    pub(crate) who: Vec<String>,
}

/// Reads what follows the header.
pub(super) fn read(file: &str, table: Table<&mut dyn BufRead>) -> Result<Problem, InputError> {
    log(file, table).map(|log| log.problem)
}

/// Reads what follows the header, and keeps who asked for what and what failed.
pub(super) fn log(file: &str, mut table: Table<&mut dyn BufRead>) -> Result<Log, InputError> {
    let asks = [table.optional("Thread"), table.optional("Stream")];
    let (mut events, mut recorded, mut failed) = (0, 0, Vec::new());
    let (mut by, mut who, mut known) = (Vec::new(), Vec::new(), HashMap::new());
    let (time, action) = (table.column("Time")?, table.column("Action")?);
    let (pointer, size) = (table.column("Pointer")?, table.column("Size")?);
    let mut recording = Recording::default();
    let (mut midnights, mut last) = (0u64, 0);
    while table.advance()? {
        events += 1;
        let bytes = decimal(table.bytes(size).trim_ascii());
        let bytes = bytes.ok_or_else(|| table.fault(size, "a whole number of bytes"));
        let allocates = match table.bytes(action).trim_ascii() {
            b"allocate" => true,
            b"free" | b"deallocate" => false,
            b"allocate failure" => {
                failed.push((recorded, bytes?));
                continue;
            }
            _ => return Err(table.fault(action, "allocate, free, deallocate or allocate failure")),
        };
        let of_day = parse_time(table.bytes(time).trim_ascii())
            .ok_or_else(|| table.fault(time, "a time such as 14:21:19.998533 or 1634567890.123456"))?;
        // Half a day backwards means that midnight has passed. Threads may log a little out of order: half a day forwards
        // after a midnight is the day before.
        if of_day < DAY_NS && last >= DAY_NS / 2 && of_day < last - DAY_NS / 2 {
            midnights = midnights.saturating_add(DAY_NS);
        } else if midnights > 0 && of_day > last + DAY_NS / 2 {
            midnights -= DAY_NS;
        }
        last = of_day;
        let now = midnights.saturating_add(of_day);
        let bytes = bytes?;
        let address = parse_address(table.bytes(pointer).trim_ascii())
            .ok_or_else(|| table.fault(pointer, "an address such as 0x7f8a40000000"))?;
        let event = if allocates { Recording::alloc } else { Recording::free };
        event(&mut recording, now, address, bytes).map_err(|fault| {
            table.at_cell(pointer, fault.explain(&String::from_utf8_lossy(table.bytes(pointer).trim_ascii())))
        })?;
        if bytes > 0 {
            recorded += 1;
        }
        if bytes > 0 && allocates {
            let [thread, stream] = asks.map(|at| at.map_or(&b"?"[..], |at| table.bytes(at).trim_ascii()));
            let asker = [thread, stream].map(String::from_utf8_lossy).join(", stream ");
            let number = *known.entry(asker).or_insert_with_key(|asker| {
                who.push(format!("thread {asker}"));
                u32::try_from(who.len() - 1).unwrap_or(u32::MAX)
            });
            by.push(number);
        }
    }
    if recording.is_empty() {
        return Err(table.at_line("expected an allocation, found none"));
    }
    let early = recording.early();
    let problem = recording.into_problem(file).map_err(|BadRow { message, .. }| InputError::file(file, message))?;
    let largest = failed.iter().map(|&(_, bytes)| bytes).max();
    let note = largest.map(|largest| {
        let (failures, size) = (failed.len(), Unit::for_largest(largest).size(largest));
        let requests = if failures == 1 { "request" } else { "requests" };
        format!("{file}: {failures} {requests} failed, the largest of {size}, and have no blocks here")
    });
    let problem = Problem { notes: note.into_iter().collect(), ..problem };
    Ok(Log { problem, events, early, failed, by, who })
}

/// A time of day or seconds since 1970, in ns.
fn parse_time(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    let mut parts = text.split([':', '.']);
    let mut next = || parts.next().map(|p| decimal(p.as_bytes()));
    let (seconds, fraction) = if text.contains(':') {
        let (hours, minutes, seconds) = (next()??, next()??, next()??);
        if hours > 23 || minutes > 59 || seconds > 60 {
            return None;
        }
        (hours * 3600 + minutes * 60 + seconds, text.splitn(4, [':', '.']).nth(3))
    } else {
        (next()??, text.split_once('.').map(|(_, fraction)| fraction))
    };
    let fraction = fraction.unwrap_or("0");
    let scale = 10u64.pow(9u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    seconds.checked_mul(1_000_000_000)?.checked_add(decimal(fraction.as_bytes())? * scale)
}

/// Hexadecimal with `0x`, or what C prints for a null pointer.
fn parse_address(text: &[u8]) -> Option<u64> {
    match text {
        b"(nil)" | b"0" => Some(0),
        _ => {
            let digits = text.strip_prefix(b"0x")?;
            let plain = digits.iter().all(u8::is_ascii_hexdigit);
            u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok().filter(|_| plain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let second = 1_000_000_000;
        for (text, ns) in [
            ("00:00:00", Some(0)),
            ("14:21:19.998533", Some(51_679 * second + 998_533_000)),
            ("14:21:19:998533", Some(51_679 * second + 998_533_000)),
            ("1634567890.123456", Some(1_634_567_890 * second + 123_456_000)),
            ("1634567890", Some(1_634_567_890 * second)),
            ("24:00:00", None),
            ("12:60:00", None),
            ("12:00", None),
            ("12:00:00.", None),
            ("12:00:00.1234567890", None),
            ("1.2.3", None),
            ("", None),
            ("-1", None),
            ("18446744073709551615", None),
        ] {
            assert_eq!(parse_time(text.as_bytes()), ns, "{text}");
        }
    }

    #[test]
    fn addresses() {
        assert_eq!(parse_address(b"0x30a000000"), Some(0x3_0a00_0000));
        assert_eq!(parse_address(b"(nil)"), Some(0));
        for text in ["", "0x", "30a", "0x1_0", "0x+1", "0x10000000000000000"] {
            assert_eq!(parse_address(text.as_bytes()), None, "{text}");
        }
    }

    /// Rows around midnight, two of them out of order: all times are those of a clock that does not start over.
    #[test]
    fn midnight() {
        let row = |(i, time): (usize, &&str)| format!("1,{time},allocate,{:#x},256,0\n", 256 * (i + 1));
        let times = ["23:59:58", "00:00:01", "23:59:59", "00:00:02", "00:00:00"];
        let log = "Thread,Time,Action,Pointer,Size,Stream\n".to_owned()
            + &times.iter().enumerate().map(row).collect::<String>();
        let problem = crate::input::read_from("a.csv", &mut log.as_bytes()).unwrap();
        let rows = problem.trace.unwrap().rows;
        let first = rows.iter().map(|r| r.time_ns).min().unwrap();
        let mut seconds: Vec<u64> = rows.iter().map(|r| (r.time_ns - first) / 1_000_000_000).collect();
        seconds.dedup();
        assert_eq!(seconds.iter().max(), Some(&4), "{seconds:?}");
    }
}
