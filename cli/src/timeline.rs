//! A rewritten trace in Chrome's trace event format: it opens in Perfetto and in Chrome itself.
//!
//! Three tracks of complete events: compute, with an event for each operator and one for each stall; copies out; copies
//! in. Two counters: the bytes on the device, and the time stalled so far. Times are in microseconds.

use std::io::{self, Write};

use serde::Serialize;
use sublet_core::VerifiedSchedule;
use sublet_core::simulate::Timing;
use sublet_core::trace::{Event, Op, Row};

use crate::problem::{Problem, Trace};

#[derive(Debug, Serialize)]
struct Entry<'a> {
    name: &'a str,
    /// X is a complete event, C a counter, M tells the name of a track.
    ph: &'static str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'static str>,
    args: serde_json::Value,
}

const TRACKS: [&str; 3] = ["compute", "out", "in"];
const COMPUTE: u32 = 0;
const OUT: u32 = 1;
const IN: u32 = 2;

/// Writes the JSON array.
pub(crate) fn write(rewritten: &Problem, schedule: &VerifiedSchedule<'_>, out: &mut impl Write) -> io::Result<()> {
    let Some(trace) = &rewritten.trace else { return writeln!(out, "[]") };
    let mut events = Events { out, first: true };
    write!(events.out, "[")?;
    for (tid, name) in (0..).zip(TRACKS) {
        let args = serde_json::json!({ "name": name });
        events.push(&Entry { name: "thread_name", ph: "M", pid: 0, tid, ts: 0.0, dur: None, cname: None, args })?;
    }
    let (mut load, mut stalled) = (0u64, 0.0);
    let mut sizes = vec![0; trace.names.len()];
    let mut operator: Option<(Op, Timing)> = None;
    for (row, timing) in trace.rows.iter().zip(schedule.timings()) {
        if operator.is_some_and(|(op, _)| !row.event.is_access() || op != row.op || op == Op::None) {
            events.operator(trace, operator.take())?;
        }
        let name = &trace.names[row.block as usize];
        match row.event {
            Event::Malloc | Event::Free => {
                if row.event == Event::Malloc {
                    sizes[row.block as usize] = row.bytes;
                    load += row.bytes;
                } else {
                    load -= sizes[row.block as usize];
                }
                events.counter("load", timing.end, serde_json::json!({ "bytes": load }))?;
            }
            Event::Read | Event::Write => {
                let begun = operator.map_or(*timing, |(_, first)| first);
                operator = Some((row.op, Timing { end: timing.end, ..begun }));
            }
            Event::SwapOut => events.span(OUT, name, timing, None)?,
            Event::SwapIn => events.span(IN, name, timing, None)?,
        }
        let waited = waited(row, timing);
        if waited > 0.0 {
            let stall = Timing { begin: timing.reached, end: timing.begin, ..*timing };
            events.span(COMPUTE, "stall", &stall, Some("terrible"))?;
            stalled += waited;
            events.counter("stalled", timing.begin, serde_json::json!({ "ms": stalled / 1e6 }))?;
        }
    }
    events.operator(trace, operator)?;
    writeln!(events.out, "\n]")
}

/// How long compute waits at a row, in ns.
pub(crate) fn waited(row: &Row, timing: &Timing) -> f64 {
    match row.event {
        // A copy that waits for its link keeps nobody waiting.
        Event::SwapOut | Event::SwapIn => 0.0,
        _ => timing.begin - timing.reached,
    }
}

struct Events<'o, W> {
    out: &'o mut W,
    first: bool,
}

impl<W: Write> Events<'_, W> {
    fn push(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        write!(self.out, "{}", if self.first { "\n" } else { ",\n" })?;
        self.first = false;
        Ok(serde_json::to_writer(&mut *self.out, entry)?)
    }

    fn span(&mut self, tid: u32, name: &str, timing: &Timing, cname: Option<&'static str>) -> io::Result<()> {
        let dur = Some((timing.end - timing.begin) / 1e3);
        let args = serde_json::json!({});
        self.push(&Entry { name, ph: "X", pid: 0, tid, ts: timing.begin / 1e3, dur, cname, args })
    }

    fn counter(&mut self, name: &str, ns: f64, args: serde_json::Value) -> io::Result<()> {
        self.push(&Entry { name, ph: "C", pid: 0, tid: COMPUTE, ts: ns / 1e3, dur: None, cname: None, args })
    }

    fn operator(&mut self, trace: &Trace, operator: Option<(Op, Timing)>) -> io::Result<()> {
        let Some((Op::First(op) | Op::Again(op), timing)) = operator else { return Ok(()) };
        let name = trace.op_names.get(op as usize).map_or_else(|| op.to_string(), |name| format!("{op} {name}"));
        self.span(COMPUTE, &name, &timing, None)
    }
}
