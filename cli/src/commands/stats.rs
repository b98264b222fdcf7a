//! `sublet stats`: what there is to plan, before any planning.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;
use sublet_core::place::Sweep;
use sublet_core::trace::{Event, Op};
use sublet_core::{Error, check_blocks};

use crate::args::InputArgs;
use crate::failure::{Failure, InputError};
use crate::problem::{Problem, Trace};
use crate::text::unit::Unit;
use crate::text::{load_chart, table};
use crate::{input, output};
use sublet_core::owned::Scratch;

/// How many of the largest blocks at the peak are printed.
const LARGEST: usize = 10;

/// Reads, counts and prints.
///
/// # Errors
/// A file that cannot be read, or blocks that cannot be planned.
pub(crate) fn run(args: &InputArgs) -> Result<(), Failure> {
    let problem = input::read(&args.input)?;
    let stats = Stats::of(&problem).map_err(|e| InputError::file(&args.input, problem.explain(&e)))?;
    output::print(&stats, args.json, &[], |out| stats.write_page(out))
}

/// Counts of one problem. Sizes in bytes; steps as the file calls them.
#[derive(Debug, Serialize)]
pub(crate) struct Stats<'a> {
    input: &'a str,
    blocks: usize,
    total_bytes: u64,
    /// The first step.
    first_step: u64,
    /// One past the last step.
    end_step: u64,
    max_load: u64,
    /// The first step with the max load.
    peak_step: u64,
    alive_at_peak: usize,
    /// How many maximal sets of blocks there are that are alive together.
    maximal_cliques: usize,
    /// How many parts the blocks fall into, such that no two blocks of different parts are alive together.
    components: usize,
    /// How many blocks have an alignment above 1.
    aligned: usize,
    /// How many blocks have a given offset.
    pinned: usize,
    #[serde(flatten)]
    events: Option<Events>,
    largest_at_peak: Vec<Largest<'a>>,
    /// The load curve: each step at which the load may change, and the load from there on.
    load_curve: Vec<(u64, u64)>,
}

/// What a trace has besides its blocks.
#[derive(Debug, Default, Serialize)]
struct Events {
    peak_time_ns: u64,
    end_time_ns: u64,
    operators: usize,
    operators_run_again: usize,
    mallocs: usize,
    frees: usize,
    reads: usize,
    writes: usize,
    swaps_out: usize,
    swaps_in: usize,
}

/// A block that is alive at the peak.
#[derive(Debug, Serialize)]
struct Largest<'a> {
    id: &'a str,
    size: u64,
    percent_of_load: f64,
    lower: u64,
    upper: u64,
    /// The operator that allocated it, in a trace.
    op: Option<String>,
}

impl<'a> Stats<'a> {
    /// Counts the blocks and events of a problem.
    ///
    /// # Errors
    /// Blocks that cannot be planned.
    pub(crate) fn of(problem: &'a Problem) -> Result<Self, Error> {
        let blocks = &problem.blocks;
        // After this check no sum of sizes overflows.
        check_blocks(blocks, 1)?;
        let mut scratch = Scratch::of(Sweep::workspace(blocks.len()));
        let sweep = Sweep::new(blocks, scratch.lend())?;
        let load_curve: Vec<_> = sweep.load_curve().collect();
        let (peak_step, max_load) =
            load_curve.iter().copied().max_by_key(|&(step, load)| (load, Reverse(step))).unwrap_or_default();
        let mut at_peak: Vec<usize> =
            (0..blocks.len()).filter(|&i| blocks[i].start <= peak_step && peak_step < blocks[i].end).collect();
        at_peak.sort_by_key(|&i| Reverse(blocks[i].size));
        let trace = problem.trace.as_ref();
        let largest_at_peak = at_peak.iter().take(LARGEST).map(|&i| {
            let b = blocks[i];
            Largest {
                id: problem.ids.get(i).map_or("", String::as_str),
                size: b.size,
                percent_of_load: percent(b.size, max_load),
                lower: problem.time(b.start),
                upper: problem.time(b.end),
                op: trace.and_then(|t| allocated_by(t, b.start)),
            }
        });
        Ok(Self {
            input: &problem.name,
            blocks: blocks.len(),
            total_bytes: blocks.iter().map(|b| b.size).sum(),
            first_step: problem.time(blocks.iter().map(|b| b.start).min().unwrap_or(0)),
            end_step: problem.time(blocks.iter().map(|b| b.end).max().unwrap_or(0)),
            max_load,
            peak_step: problem.time(peak_step),
            alive_at_peak: at_peak.len(),
            maximal_cliques: sweep.cliques().count(),
            components: sweep.components().count(),
            aligned: blocks.iter().filter(|b| b.alignment > 1).count(),
            pinned: blocks.iter().filter(|b| b.pin.is_some()).count(),
            events: trace.map(|t| events(t, peak_step)),
            largest_at_peak: largest_at_peak.collect(),
            load_curve: load_curve.into_iter().map(|(step, load)| (problem.time(step), load)).collect(),
        })
    }

    /// Prints the counts as text, with the load curve.
    pub(crate) fn write_page(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.max_load);
        writeln!(out, "{}\n", self.input)?;
        let mut facts = vec![
            ("blocks", format!("{}, {} in all", self.blocks, unit.size(self.total_bytes))),
            ("steps", format!("{} to {}", self.first_step, self.end_step)),
        ];
        if let Some(e) = &self.events {
            facts.push((
                "events",
                format!("mallocs {}, frees {}, reads {}, writes {}", e.mallocs, e.frees, e.reads, e.writes),
            ));
            if e.swaps_out + e.swaps_in > 0 {
                facts.push(("swaps", format!("out {}, in {}", e.swaps_out, e.swaps_in)));
            }
            let rerun = if e.operators_run_again > 0 {
                format!(", {} recomputed", e.operators_run_again)
            } else {
                String::new()
            };
            facts.push(("operators", format!("{}{rerun}, in {}", e.operators, milliseconds(e.end_time_ns))));
        }
        let time = self.events.as_ref().map_or(String::new(), |e| format!(", {}", milliseconds(e.peak_time_ns)));
        facts.extend([
            (
                "max load",
                format!("{} ({} bytes) at step {}{time}", unit.size(self.max_load), self.max_load, self.peak_step),
            ),
            ("at the peak", format!("{} blocks alive", self.alive_at_peak)),
            ("maximal cliques", self.maximal_cliques.to_string()),
            ("components", self.components.to_string()),
        ]);
        if self.aligned > 0 {
            facts.push(("aligned", format!("{} of the blocks", self.aligned)));
        }
        if self.pinned > 0 {
            facts.push(("pinned", format!("{} of the blocks", self.pinned)));
        }
        for (name, fact) in facts {
            writeln!(out, "{name:<15}  {fact}")?;
        }

        writeln!(out, "\n{}", load_chart::draw(&self.load_curve, self.first_step..self.end_step))?;

        writeln!(out, "largest blocks at the peak\n")?;
        let size = format!("size {}", unit.name());
        let op = if self.events.is_some() { "allocated by" } else { "" };
        let mut table = table::aligned(["block", &size, "% of load", "from step", "to step", op], 1..5);
        for l in &self.largest_at_peak {
            table.add_row([
                l.id,
                &unit.number(l.size.into()),
                &format!("{:.1}", l.percent_of_load),
                &l.lower.to_string(),
                &l.upper.to_string(),
                l.op.as_deref().unwrap_or(""),
            ]);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

fn events(trace: &Trace, peak_step: u32) -> Events {
    let mut e = Events {
        peak_time_ns: trace.rows.get(peak_step as usize).map_or(0, |r| r.time_ns),
        end_time_ns: trace.time_ns(),
        ..Events::default()
    };
    let (mut operators, mut rerun) = (BTreeSet::new(), BTreeSet::new());
    for row in &trace.rows {
        *match row.event {
            Event::Malloc => &mut e.mallocs,
            Event::Free => &mut e.frees,
            Event::Read => &mut e.reads,
            Event::Write => &mut e.writes,
            Event::SwapOut => &mut e.swaps_out,
            Event::SwapIn => &mut e.swaps_in,
        } += 1;
        match row.op {
            Op::None => {}
            Op::First(op) => _ = operators.insert(op),
            Op::Rerun(op) => _ = rerun.insert(op),
        }
    }
    Events { operators: operators.len(), operators_run_again: rerun.len(), ..e }
}

/// The operator of the row `step`: its number, with a prime if it is recomputed, and its name where it is known.
fn allocated_by(trace: &Trace, step: u32) -> Option<String> {
    let (op, prime) = match trace.rows.get(step as usize)?.op {
        Op::None => return None,
        Op::First(op) => (op, ""),
        Op::Rerun(op) => (op, "'"),
    };
    let name = trace.op_names.get(op as usize).map_or("", String::as_str);
    Some(format!("{op}{prime} {name}").trim_end().into())
}

#[expect(clippy::cast_precision_loss, reason = "a share to be read")]
fn percent(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * (bytes as f64 / of as f64) }
}

#[expect(clippy::cast_precision_loss, reason = "three decimals, to be read")]
fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sublet_core::Block;
    use sublet_core::trace::Row;

    /// A weight, and an operator that reads it, runs, and is recomputed.
    fn trace() -> Problem {
        let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
        let rows = vec![
            row(0, Event::Malloc, 0, 300, Op::None),
            row(1_000_000, Event::Malloc, 1, 100, Op::First(0)),
            row(1_000_000, Event::Read, 0, 0, Op::First(0)),
            row(2_500_000, Event::Write, 1, 0, Op::First(0)),
            row(2_500_000, Event::Free, 1, 0, Op::First(0)),
            row(2_500_000, Event::SwapOut, 0, 0, Op::None),
            row(2_500_000, Event::Malloc, 1, 100, Op::Rerun(0)),
            row(4_000_000, Event::Write, 1, 0, Op::Rerun(0)),
        ];
        Problem {
            name: "tiny.csv".into(),
            blocks: vec![Block::new(0, 8, 300), Block::new(1, 4, 100), Block::new(6, 8, 100)],
            ids: ["w", "x", "x#1"].map(String::from).to_vec(),
            trace: Some(Trace {
                rows,
                names: ["w", "x"].map(String::from).to_vec(),
                op_names: vec!["conv".into()],
                ..Trace::default()
            }),
            ..Problem::default()
        }
    }

    fn page(problem: &Problem) -> String {
        let mut out = Vec::new();
        Stats::of(problem).unwrap().write_page(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn json(problem: &Problem) -> Value {
        let mut out = Vec::new();
        output::json(&Stats::of(problem).unwrap(), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn the_page_of_a_trace() {
        assert_eq!(
            page(&trace()),
            "\
tiny.csv

blocks           3, 500 B in all
steps            0 to 8
events           mallocs 3, frees 1, reads 1, writes 2
swaps            out 1, in 0
operators        1, 1 recomputed, in 4.000 ms
max load         400 B (400 bytes) at step 1, 1.000 ms
at the peak      2 blocks alive
maximal cliques  2
components       1

  B
400 ┤         ███████████████████████████                  ██████████████████
    │         ███████████████████████████                  ██████████████████
    │         ███████████████████████████                  ██████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
200 ┤████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
    │████████████████████████████████████████████████████████████████████████
  0 └────────────────────────────────────────────────────────────────────────
     step 0                                                                 8

largest blocks at the peak

block  size B  % of load  from step  to step  allocated by
w         300       75.0          0        8
x         100       25.0          1        4  0 conv
"
        );
    }

    #[test]
    fn json_of_a_trace() {
        assert_eq!(
            json(&trace()),
            json!({
                "input": "tiny.csv", "blocks": 3, "total_bytes": 500, "first_step": 0, "end_step": 8,
                "max_load": 400, "peak_step": 1, "alive_at_peak": 2, "maximal_cliques": 2, "components": 1,
                "aligned": 0, "pinned": 0,
                "peak_time_ns": 1_000_000, "end_time_ns": 4_000_000, "operators": 1, "operators_run_again": 1,
                "mallocs": 3, "frees": 1, "reads": 1, "writes": 2, "swaps_out": 1, "swaps_in": 0,
                "largest_at_peak": [
                    {"id": "w", "size": 300, "percent_of_load": 75.0, "lower": 0, "upper": 8, "op": null},
                    {"id": "x", "size": 100, "percent_of_load": 25.0, "lower": 1, "upper": 4, "op": "0 conv"},
                ],
                "load_curve": [[0, 300], [1, 400], [4, 300], [6, 400], [8, 0]],
            })
        );
    }

    #[test]
    fn an_instance_has_no_events_but_alignments_and_pins() {
        let blocks = vec![
            Block { alignment: 64, ..Block::new(5, 6, 128) },
            Block { pin: Some(0), ..Block::new(6, 9, 8) },
            Block { alignment: 2, ..Block::new(7, 9, 8) },
        ];
        let ids = ["a", "b", "c"].map(String::from).to_vec();
        let instance = Problem { name: "-".into(), blocks, ids, ..Problem::default() };
        let json = json(&instance);
        assert_eq!((&json["aligned"], &json["pinned"], &json["components"]), (&json!(2), &json!(1), &json!(2)));
        assert_eq!((&json["first_step"], &json["peak_step"], &json["mallocs"]), (&json!(5), &json!(5), &Value::Null));
        let page = page(&instance);
        assert!(page.contains("\naligned          2 of the blocks\npinned           1 of the blocks\n"), "{page}");
        assert!(!page.contains("events") && !page.contains("operators"), "{page}");
    }

    #[test]
    fn steps_are_called_as_in_the_file() {
        let far = 1 << 40;
        let problem = Problem {
            blocks: vec![Block::new(0, 2, 8), Block::new(1, 2, 8)],
            times: vec![7, far, 2 * far],
            ..Problem::default()
        };
        let json = json(&problem);
        assert_eq!(
            (&json["first_step"], &json["peak_step"], &json["end_step"]),
            (&json!(7), &json!(far), &json!(2 * far))
        );
        assert_eq!(json["load_curve"], json!([[7, 8], [far, 16], [2 * far, 0]]));
        assert_eq!(
            (&json["largest_at_peak"][1]["lower"], &json["largest_at_peak"][1]["upper"]),
            (&json!(far), &json!(2 * far))
        );
    }

    #[test]
    fn an_operator_is_told_by_number_and_name_as_far_as_known() {
        let mut trace = trace().trace.unwrap();
        assert_eq!(allocated_by(&trace, 0), None);
        assert_eq!(allocated_by(&trace, 6).as_deref(), Some("0' conv"));
        trace.op_names.clear();
        assert_eq!(allocated_by(&trace, 6).as_deref(), Some("0'"));
    }

    #[test]
    fn nothing_and_too_much_are_no_trouble() {
        assert!(page(&Problem::default()).contains("at the peak      0 blocks alive"));
        let huge = Problem { blocks: vec![Block::new(0, 1, u64::MAX - 1); 2], ..Problem::default() };
        assert_eq!(Stats::of(&huge).unwrap_err(), Error::SizeOverflow { block: 1 });
    }
}
