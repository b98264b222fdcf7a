//! `sublet fit --explain`: what was tried, what came of it, and which schedule won. For one block: what was done with
//! it in each gap, and what the alternatives would have cost.

use std::io::{self, Write};

use serde::Serialize;
use sublet_core::rewrite::fit::{Reordering, Tried};

use crate::gaps::Gap;
use crate::text::unit::Unit;
use crate::timeline::Timeline;

/// All schedules of one way to combine the means.
#[derive(Debug, Serialize)]
pub(crate) struct Way {
    /// How the means are combined.
    strategy: &'static str,
    /// Whether it starts from the trace as recorded, without masks and in-place reuse.
    as_recorded: bool,
    /// The order of the operators, if not the recorded one.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'static str>,
    /// How many schedules were placed.
    tried: u64,
    /// How many of these were within the limit.
    fit: u64,
    /// The least time over the original, in ns, of those within the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_ns: Option<f64>,
    /// The least footprint of those above the limit, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<u64>,
    /// Whether the result is one of them.
    won: bool,
}

/// The ways to combine the means that a fit has tried, in the order in which they were tried first.
#[derive(Debug, Default)]
pub(crate) struct Explained {
    ways: Vec<Way>,
    best: f64,
}

impl Explained {
    pub(crate) const fn new() -> Self {
        Self { ways: Vec::new(), best: f64::INFINITY }
    }

    /// The least time over the original, in ns, of all counted schedules that are within the limit; infinite if there
    /// is none.
    pub(crate) const fn best_ns(&self) -> f64 {
        self.best
    }

    /// Counts a schedule if it was made for `limit`, in bytes, or is within it. Others are left out: they are made for
    /// other limits, while the least limit that works is searched for.
    pub(crate) fn add(&mut self, tried: &Tried, limit: u64) {
        if tried.limit != limit && tried.footprint > limit {
            return;
        }
        let strategy = tried.strategy.name();
        let order = tried.reordering.map(Reordering::name);
        let same = |way: &Way| way.strategy == strategy && way.as_recorded == tried.as_recorded && way.order == order;
        let at = self.ways.iter().position(same).unwrap_or(self.ways.len());
        if at == self.ways.len() {
            let as_recorded = tried.as_recorded;
            let nothing =
                Way { tried: 0, fit: 0, overhead_ns: None, over: None, won: false, strategy, as_recorded, order };
            self.ways.push(nothing);
        }
        if tried.footprint <= limit && tried.overhead_ns < self.best {
            self.best = tried.overhead_ns;
            for (i, way) in self.ways.iter_mut().enumerate() {
                way.won = i == at;
            }
        }
        let way = &mut self.ways[at];
        way.tried += 1;
        if tried.footprint <= limit {
            way.fit += 1;
            way.overhead_ns = Some(way.overhead_ns.map_or(tried.overhead_ns, |ns| ns.min(tried.overhead_ns)));
        } else {
            way.over = Some(way.over.map_or(tried.footprint, |bytes| bytes.min(tried.footprint)));
        }
    }

    /// The least overhead of those in the recorded order, as a fraction of `time_ns`, the original's time.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(crate) fn in_order(&self, time_ns: u64) -> Option<f64> {
        let in_order = self.ways.iter().filter(|way| way.order.is_none()).filter_map(|way| way.overhead_ns);
        in_order.min_by(f64::total_cmp).map(|ns| ns / time_ns as f64)
    }

    pub(crate) fn into_ways(self) -> Vec<Way> {
        self.ways
    }
}

/// Prints the ways as a table; `time_ns` is the time of the original.
pub(crate) fn text(ways: &[Way], time_ns: f64, unit: Unit, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\n  {:<34} {:<14} {:>9} {:>6} {:>12}  nearest above the limit",
        "tried", "order", "schedules", "fit", "overhead"
    )?;
    for way in ways {
        let name = if way.as_recorded { way.strategy.to_owned() } else { format!("{}, shared", way.strategy) };
        let overhead = way.overhead_ns.map_or("-".into(), |ns| format!("{:.3} %", 100.0 * ns / time_ns.max(1.0)));
        let over = way.over.map_or("-".into(), |bytes| unit.size(bytes));
        let won = if way.won { '*' } else { ' ' };
        let order = way.order.unwrap_or("recorded");
        writeln!(out, "{won} {name:<34} {order:<14} {:>9} {:>6} {overhead:>12}  {over}", way.tried, way.fit)?;
    }
    writeln!(out, "  * is the result; shared: masks and in-place reuse come first")
}

/// A gap of the block, with the names of its operators.
#[derive(Debug, Serialize)]
pub(crate) struct ToldGap {
    after: String,
    before: String,
    #[serde(flatten)]
    gap: Gap,
}

/// The gaps of the block with the number `block` and of its mask, which has the number `masked`, with the operators'
/// names.
pub(crate) fn gaps_of(block: u32, masked: u32, gaps: &[Gap], op_names: &[String]) -> Vec<ToldGap> {
    gaps.iter()
        .filter(|gap| gap.block == block || gap.block == masked)
        .map(|gap| ToldGap {
            after: Timeline::told(gap.after, op_names),
            before: Timeline::told(gap.before, op_names),
            gap: gap.clone(),
        })
        .collect()
}

/// Prints the gaps as a table, under the block's name.
pub(crate) fn gaps_text(block: &str, gaps: &[ToldGap], limit: u64, unit: Unit, out: &mut impl Write) -> io::Result<()> {
    if gaps.is_empty() {
        return writeln!(out, "\n{block} has no gap: no operator runs between its uses but those that use it");
    }
    let width = gaps.iter().flat_map(|gap| [gap.after.len(), gap.before.len()]).max().unwrap_or(0).max(6);
    let ms = |ns: f64| format!("{:.3}", ns / 1e6);
    writeln!(
        out,
        "\n{block}\n  {:<width$}  {:<width$} {:>10}  {:<10} {:>9} {:>9} {:>9}  load if kept",
        "after", "before", "idle ms", "done", "costs ms", "swap ms", "rerun ms"
    )?;
    for ToldGap { after, before, gap } in gaps {
        let done = gap.choice.name();
        let rerun = gap.recompute_ns.map_or("-".into(), ms);
        let (idle, cost, swap) = (ms(gap.idle_ns), ms(gap.cost_ns), ms(gap.swap_ns));
        let over = match gap.load_if_kept.checked_sub(limit).filter(|&over| over > 0) {
            Some(over) => format!(", {} above the limit", unit.size(over)),
            None => String::new(),
        };
        let load = unit.size(gap.load_if_kept);
        writeln!(
            out,
            "  {after:<width$}  {before:<width$} {idle:>10}  {done:<10} {cost:>9} {swap:>9} {rerun:>9}  {load}{over}"
        )?;
    }
    writeln!(
        out,
        "  costs: the time that compute waits for its copies, or that its recomputation takes; swap: both copies, hidden where they \
         end within the idle time; rerun: the operator that wrote it, without recomputing its inputs; load if kept: the most \
         bytes in the gap if the block stayed, all else unchanged"
    )
}
