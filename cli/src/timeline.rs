//! What happens when in a rewritten trace: operators, stalls and copies as spans of simulated time.
//!
//! [`write()`] gives them in Chrome's trace event format, which opens in Perfetto and in Chrome itself: one process
//! with three tracks of complete events (compute, with an event for each operator and one for each stall; copies out;
//! copies in), and two counters (the bytes on the device, and the time stalled so far). Times are in microseconds.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};
use sublet_core::VerifiedSchedule;
use sublet_core::trace::{Event, Op};

use crate::problem::Trace;

/// From when to when, in ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) begin: f64,
    pub(crate) end: f64,
}

/// An operator runs, from its first access to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    pub(crate) op: Op,
    pub(crate) span: Span,
}

/// Compute waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) span: Span,
    /// The copy whose end it waits for, an index into the copies.
    pub(crate) copy: Option<usize>,
}

/// A block is copied to the host or back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub(crate) span: Span,
    /// To the host; else from it.
    pub(crate) out: bool,
    pub(crate) block: u32,
    pub(crate) bytes: u64,
    /// The residency that the copy ends or begins, by its number among the mallocs of all blocks.
    pub(crate) residency: usize,
    /// How long compute waits for its end, in ns; 0 for a copy that is hidden behind compute.
    pub(crate) waited: f64,
}

/// What compute does in a run, and what is copied.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    pub(crate) operators: Vec<Operator>,
    pub(crate) stalls: Vec<Stall>,
    /// In the order of the rows.
    pub(crate) copies: Vec<Copy>,
}

impl Timeline {
    /// Reads the queues of compute and copies off a schedule. Stalls and recomputed operators add up to the time over
    /// the original; the last stall is the wait for copies that are still running when compute is done. Cost: O(rows),
    /// and for each stall the copies that are queued behind the one it waits for.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(crate) fn of(schedule: &VerifiedSchedule<'_>) -> Self {
        let mut timeline = Self::default();
        let blocks = schedule.rows().iter().map(|r| r.block as usize + 1).max().unwrap_or(0);
        let (mut sizes, mut residency) = (vec![0; blocks], vec![0; blocks]);
        let mut residencies = 0;
        for (row, timing) in schedule.rows().iter().zip(schedule.timings()) {
            let block = row.block as usize;
            let span = Span { begin: timing.begin, end: timing.end };
            match row.event {
                Event::Malloc => {
                    (sizes[block], residency[block]) = (row.bytes, residencies);
                    residencies += 1;
                }
                Event::Free => {}
                Event::Read | Event::Write => timeline.access(row.op, span),
                Event::SwapOut | Event::SwapIn => {
                    let (out, bytes) = (row.event == Event::SwapOut, sizes[block]);
                    let copy = Copy { span, out, block: row.block, bytes, residency: residency[block], waited: 0.0 };
                    timeline.copies.push(copy);
                    // A copy that waits for its link keeps nobody waiting.
                    continue;
                }
            }
            timeline.stall(Span { begin: timing.reached, end: timing.begin });
        }
        let run = schedule.run();
        let computed = (run.original_ns + run.recomputed_ns) as f64;
        let done = computed + timeline.stalls.iter().map(|s| s.span.end - s.span.begin).sum::<f64>();
        // A shorter difference comes from rounding, since a copy takes longer than 0.01 ns.
        if run.time_ns - done > 0.01 {
            timeline.stall(Span { begin: done, end: run.time_ns });
        }
        timeline
    }

    /// Adds an access: the last operator now ends with it, or another operator begins. An access without an operator is
    /// left out.
    fn access(&mut self, op: Op, span: Span) {
        match self.operators.last_mut() {
            Some(last) if last.op == op => last.span.end = span.end,
            _ if op != Op::None => self.operators.push(Operator { op, span }),
            _ => {}
        }
    }

    /// Adds a stall. It ends when the copy ends that compute waits for: the simulator gives both the same time, so the
    /// copy is found by its end.
    fn stall(&mut self, span: Span) {
        if span.end <= span.begin {
            return;
        }
        let found = self.copies.iter().rposition(|c| c.span.end.total_cmp(&span.end).is_eq());
        if let Some(copy) = found {
            self.copies[copy].waited += span.end - span.begin;
        }
        self.stalls.push(Stall { span, copy: found });
    }

    /// The number of an operator, with a prime if it is recomputed, and its name where it is known.
    pub(crate) fn told(op: Op, names: &[String]) -> String {
        let (number, prime) = match op {
            Op::None => return String::new(),
            Op::First(number) => (number, ""),
            Op::Rerun(number) => (number, "'"),
        };
        let name = names.get(number as usize).map_or("", String::as_str);
        format!("{number}{prime} {name}").trim_end().into()
    }
}

/// An event in Chrome's trace event format.
#[derive(Debug, Serialize)]
struct Entry<'a> {
    name: &'a str,
    /// X is a complete event, C a counter, M tells the name of a process or a track.
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// When it begins, in µs.
    ts: f64,
    /// How long it takes, in µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'static str>,
    args: Value,
}

const TRACKS: [&str; 3] = ["compute", "out", "in"];
const COMPUTE: u32 = 0;
const OUT: u32 = 1;
const IN: u32 = 2;

/// Writes the JSON array. `title` is what the process is called.
///
/// # Errors
/// When `out` cannot be written.
pub(crate) fn write(
    title: &str,
    trace: &Trace,
    schedule: &VerifiedSchedule<'_>,
    out: &mut impl Write,
) -> io::Result<()> {
    let timeline = Timeline::of(schedule);
    let mut events = Events { out, first: true };
    write!(events.out, "[")?;
    events.name("process_name", 0, json!({ "name": title }))?;
    for (tid, name) in (0..).zip(TRACKS) {
        events.name("thread_name", tid, json!({ "name": name }))?;
        events.name("thread_sort_index", tid, json!({ "sort_index": tid }))?;
    }
    for operator in &timeline.operators {
        events.span(COMPUTE, &Timeline::told(operator.op, &trace.op_names), operator.span, None, json!({}))?;
    }
    let block = |copy: &Copy| &trace.names[copy.block as usize];
    for copy in &timeline.copies {
        let args = json!({ "bytes": copy.bytes, "waited_us": copy.waited / 1e3 });
        events.span(if copy.out { OUT } else { IN }, block(copy), copy.span, None, args)?;
    }
    let mut stalled = 0.0;
    for stall in &timeline.stalls {
        let copy = stall.copy.map(|copy| &timeline.copies[copy]);
        let args = copy.map_or(json!({}), |c| json!({ "copy": TRACKS[if c.out { 1 } else { 2 }], "block": block(c) }));
        events.span(COMPUTE, "stall", stall.span, Some("terrible"), args)?;
        stalled += stall.span.end - stall.span.begin;
        events.counter("stalled", stall.span.end, json!({ "ms": stalled / 1e6 }))?;
    }
    let mut sizes = vec![0; trace.names.len()];
    let mut load = 0u64;
    for (row, timing) in schedule.rows().iter().zip(schedule.timings()) {
        let size = &mut sizes[row.block as usize];
        match row.event {
            Event::Malloc => {
                *size = row.bytes;
                load += row.bytes;
            }
            Event::Free => load -= *size,
            _ => continue,
        }
        events.counter("load", timing.end, json!({ "bytes": load }))?;
    }
    writeln!(events.out, "\n]")
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

    fn name(&mut self, name: &str, tid: u32, args: Value) -> io::Result<()> {
        self.push(&Entry { name, ph: "M", pid: 0, tid, ts: 0.0, dur: None, cname: None, args })
    }

    fn span(&mut self, tid: u32, name: &str, span: Span, cname: Option<&'static str>, args: Value) -> io::Result<()> {
        let dur = Some((span.end - span.begin) / 1e3);
        self.push(&Entry { name, ph: "X", pid: 0, tid, ts: span.begin / 1e3, dur, cname, args })
    }

    fn counter(&mut self, name: &str, ns: f64, args: Value) -> io::Result<()> {
        self.push(&Entry { name, ph: "C", pid: 0, tid: COMPUTE, ts: ns / 1e3, dur: None, cname: None, args })
    }
}
