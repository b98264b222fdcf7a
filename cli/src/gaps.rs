//! The gaps of a fitted trace: what was done with a block between two uses, and what the alternatives would have cost.
//!
//! A persistent block has one more gap: from its last use to its first one in the next iteration.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use sublet_core::VerifiedSchedule;
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Row};

use crate::problem::Trace;
use crate::timeline::Timeline;

/// What was done with a block between two uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Choice {
    /// It stayed on the device.
    Kept,
    /// It was copied to the host and back.
    Swapped,
    /// It was freed and recomputed.
    Recomputed,
}

/// The time between two uses of a block, in which other operators ran. Sizes in bytes, times in ns.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gap {
    /// The block's number in the rows; numbers above those of the recording are masks.
    #[serde(skip)]
    pub(crate) block: u32,
    /// The residency before the gap, counted over the mallocs of all blocks.
    #[serde(skip)]
    pub(crate) residency: usize,
    /// The operator that uses the block last before the gap.
    #[serde(skip)]
    pub(crate) after: Op,
    /// The operator that uses the block first after the gap.
    #[serde(skip)]
    pub(crate) before: Op,
    /// How long no operator uses the block.
    pub(crate) idle_ns: f64,
    pub(crate) choice: Choice,
    /// What the choice costs: how long compute waits for the block's copies, or how long its recomputation takes.
    pub(crate) cost_ns: f64,
    /// The most bytes on the device in the gap if the block stayed there, all else unchanged.
    pub(crate) load_if_kept: u64,
    /// How long the two copies of the block take, to the host and back.
    pub(crate) swap_ns: f64,
    /// How long the operator that wrote the block takes, without recomputing that operator's inputs; none where it may
    /// not be recomputed.
    pub(crate) recompute_ns: Option<f64>,
}

/// What the gaps of a schedule are computed from.
struct Reading<'a> {
    schedule: &'a VerifiedSchedule<'a>,
    trace: &'a Trace,
    device: &'a Device,
    loads: Maxima,
    /// How long each operator of the recording takes, by its number.
    durations: HashMap<u32, f64>,
    /// How long compute waits for copies, by the row of the copy.
    waits: HashMap<usize, f64>,
}

/// A use of a block by an operator, and what was done with the block since.
struct Use {
    op: Op,
    residency: usize,
    /// The row of its last access.
    row: usize,
    freed: Option<usize>,
    allocated: Option<usize>,
    copied: bool,
    waited: f64,
}

/// What happens to a persistent block up to its first use.
#[derive(Clone, Copy, Default)]
struct Head {
    /// The operator and the row of the first use; none until that row has been read.
    first: Option<(Op, usize)>,
    /// The row of the last malloc before the first use.
    allocated: usize,
    copied: bool,
    waited: f64,
}

/// All gaps of a schedule that was made from this trace, in the order in which they end; last those that end in the
/// next iteration. O(rows log rows).
pub(crate) fn of(schedule: &VerifiedSchedule<'_>, trace: &Trace, device: &Device) -> Vec<Gap> {
    let timeline = Timeline::of(schedule);
    let first_runs = timeline.operators.iter().filter_map(|operator| match operator.op {
        Op::First(number) => Some((number, operator.span.end - operator.span.begin)),
        _ => None,
    });
    let is_copy = |event| matches!(event, Event::SwapOut | Event::SwapIn);
    let copies = schedule.rows().iter().enumerate().filter(|(_, row)| is_copy(row.event)).map(|(i, _)| i);
    let reading = Reading {
        schedule,
        trace,
        device,
        loads: Maxima::of(loads(schedule)),
        durations: first_runs.collect(),
        waits: copies.zip(timeline.copies.iter().map(|copy| copy.waited)).collect(),
    };
    reading.gaps()
}

/// The load at each row, in bytes.
fn loads(schedule: &VerifiedSchedule<'_>) -> Vec<u64> {
    let rows = schedule.rows().len();
    let (mut begun, mut ended) = (vec![0; rows + 1], vec![0; rows + 1]);
    for block in schedule.plan().blocks() {
        begun[(block.start as usize).min(rows)] += block.size;
        ended[(block.end as usize).min(rows)] += block.size;
    }
    let mut load = 0;
    (0..rows)
        .map(|row| {
            load = load + begun[row] - ended[row];
            load
        })
        .collect()
}

impl Choice {
    /// The choice as a word for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Swapped => "swapped",
            Self::Recomputed => "recomputed",
        }
    }
}

impl Reading<'_> {
    fn gaps(&self) -> Vec<Gap> {
        let mut uses: HashMap<u32, Use> = HashMap::new();
        let mut heads: BTreeMap<u32, Head> = self.persistent().map(|block| (block, Head::default())).collect();
        // By block: the bytes and the number of its residency; and the operator that wrote it last.
        let (mut residencies, mut writers) = (HashMap::new(), HashMap::new());
        let mut mallocs = 0;
        let mut gaps = Vec::new();
        for (i, row) in self.schedule.rows().iter().enumerate() {
            let last = uses.get_mut(&row.block);
            if let Some(head) = heads.get_mut(&row.block).filter(|head| head.first.is_none()) {
                match row.event {
                    Event::Malloc => head.allocated = i,
                    Event::SwapIn => (head.copied, head.waited) = (true, self.waits.get(&i).copied().unwrap_or(0.0)),
                    Event::Read | Event::Write => head.first = Some((row.op, i)),
                    Event::Free | Event::SwapOut => {}
                }
            }
            match (row.event, last) {
                (Event::Malloc, last) => {
                    residencies.insert(row.block, (row.bytes, mallocs));
                    mallocs += 1;
                    if let Some(last) = last {
                        last.allocated = Some(i);
                    }
                }
                (Event::Free, Some(last)) => last.freed = Some(i),
                (Event::SwapOut | Event::SwapIn, Some(last)) => {
                    last.copied |= row.event == Event::SwapIn;
                    last.waited += self.waits.get(&i).copied().unwrap_or(0.0);
                }
                (Event::Read | Event::Write, last) => {
                    let (size, residency) = residencies.get(&row.block).copied().unwrap_or_default();
                    if let Some(last) = last.filter(|last| last.op != row.op) {
                        gaps.extend(self.gap(last, i, size, writers.get(&row.block).copied()));
                    }
                    if row.event == Event::Write {
                        writers.insert(row.block, row.op);
                    }
                    let (freed, allocated) = (None, None);
                    let this = Use { op: row.op, residency, row: i, freed, allocated, copied: false, waited: 0.0 };
                    uses.insert(row.block, this);
                }
                _ => {}
            }
        }
        let ends = heads.iter().filter_map(|(block, head)| {
            let (size, _) = residencies.get(block).copied()?;
            self.across_the_end(*block, size, uses.get(block)?, head)
        });
        gaps.extend(ends);
        gaps
    }

    /// The blocks that the recording allocates at time 0 and never frees.
    fn persistent(&self) -> impl Iterator<Item = u32> {
        let rows = &self.trace.rows;
        let freed: HashSet<u32> = rows.iter().filter(|row| row.event == Event::Free).map(|row| row.block).collect();
        let at_the_start = rows.iter().filter(|row| row.event == Event::Malloc && row.time_ns == 0);
        at_the_start.map(|row| row.block).filter(move |block| !freed.contains(block))
    }

    /// The gap of a persistent block of `size` bytes from its last use to its first one in the next iteration.
    fn across_the_end(&self, block: u32, size: u64, last: &Use, head: &Head) -> Option<Gap> {
        let (rows, timings) = (self.schedule.rows().len(), self.schedule.timings());
        let (before, first) = head.first?;
        let away = last.freed.filter(|_| head.copied);
        let loads = self.loads.between(away.unwrap_or(last.row), rows);
        let begin = if away.is_some() { head.allocated } else { first };
        let load = loads.max(self.loads.between(0, begin));
        Some(Gap {
            block,
            residency: last.residency,
            after: last.op,
            before,
            idle_ns: self.schedule.run().time_ns - timings[last.row].end + timings[first].begin,
            choice: if away.is_some() { Choice::Swapped } else { Choice::Kept },
            cost_ns: last.waited + head.waited,
            load_if_kept: load + if away.is_some() { size } else { 0 },
            swap_ns: self.device.out_ns(size) + self.device.in_ns(size),
            recompute_ns: None,
        })
    }

    /// The gap that ends with the access in `row`; none where no operator ran in between.
    fn gap(&self, last: &Use, row: usize, size: u64, writer: Option<Op>) -> Option<Gap> {
        let (rows, timings) = (self.schedule.rows(), self.schedule.timings());
        let next = rows[row].op;
        let between = &rows[last.row..row];
        let others = |r: &&Row| r.op != last.op && r.op != next && r.op != Op::None;
        between.iter().find(others)?;
        let duration = |op: Op| match op {
            Op::First(number) | Op::Rerun(number) => self.durations.get(&number).copied(),
            Op::None => None,
        };
        let (choice, cost_ns) = match (last.freed, next) {
            (None, _) => (Choice::Kept, 0.0),
            (Some(_), _) if last.copied => (Choice::Swapped, last.waited),
            (Some(_), Op::Rerun(_)) => (Choice::Recomputed, duration(next).unwrap_or(0.0)),
            // The access overwrites the block: nothing had to be kept.
            (Some(_), _) => return None,
        };
        let load_if_kept = match last.freed {
            None => self.loads.between(last.row, row),
            Some(freed) => self.loads.between(freed, last.allocated.unwrap_or(row)) + size,
        };
        let may_rerun = |op: Op| match op {
            Op::First(number) | Op::Rerun(number) => {
                self.trace.operators.get(number as usize).is_some_and(|operator| operator.rerun)
            }
            Op::None => false,
        };
        Some(Gap {
            block: rows[row].block,
            residency: last.residency,
            after: last.op,
            before: next,
            idle_ns: timings[row].begin - timings[last.row].end,
            choice,
            cost_ns,
            load_if_kept,
            swap_ns: self.device.out_ns(size) + self.device.in_ns(size),
            recompute_ns: writer.filter(|&op| may_rerun(op)).and_then(duration),
        })
    }
}

/// A table that tells the largest of consecutive values in two look-ups: its level k has the maxima of all runs of 2^k
/// values.
struct Maxima(Vec<Vec<u64>>);

impl Maxima {
    fn of(values: Vec<u64>) -> Self {
        let mut levels = vec![values];
        let mut width = 1;
        while let Some(last) = levels.last().filter(|last| last.len() > width) {
            let next = last.iter().zip(&last[width..]).map(|(&a, &b)| a.max(b)).collect();
            levels.push(next);
            width *= 2;
        }
        Self(levels)
    }

    /// The largest of the values in `begin..end`; 0 if there are none.
    fn between(&self, begin: usize, end: usize) -> u64 {
        let end = end.min(self.0[0].len());
        let Some(level) = end.checked_sub(begin).and_then(usize::checked_ilog2) else { return 0 };
        let values = &self.0[level as usize];
        values[begin].max(values[end - (1 << level)])
    }
}

#[cfg(test)]
mod tests {
    use super::Maxima;

    #[test]
    fn maxima_are_those_of_a_scan() {
        let values: Vec<u64> = (0..37).map(|i| i * 7919 % 101).collect();
        let maxima = Maxima::of(values.clone());
        for begin in 0..values.len() {
            for end in begin..=values.len() + 1 {
                let scan = values[begin..end.min(values.len())].iter().copied().max().unwrap_or(0);
                assert_eq!(maxima.between(begin, end), scan, "{begin}..{end}");
            }
        }
    }
}
