//! What the means have done with each block of a rewritten trace, and with each residency.

use std::collections::{HashMap, HashSet};

use sublet_core::VerifiedSchedule;
use sublet_core::trace::{Event, Op, Row};

use crate::problem::Trace;

/// How a residency came about, if not as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Its value is recomputed.
    Recomputed = 1,
    /// It is the mask of a ReLU, one bit for each element of its block.
    Mask = 2,
    /// It reuses the memory of its operator's input, in place.
    InPlace = 4,
}

/// The marks of each residency, in the order of the mallocs, as bits.
#[derive(Debug, Default)]
pub(crate) struct Marks(Vec<u8>);

impl Marks {
    /// The marks of a schedule that was made from this trace.
    pub(crate) fn of(schedule: &VerifiedSchedule<'_>, trace: &Trace) -> Self {
        let workspaces: HashSet<u32> = Self::inside(&trace.rows).map(|(_, r)| r.block).collect();
        let rows = schedule.rows();
        // A block that is freed inside an operator is its input, whose memory the next malloc reuses, unless it is a
        // workspace.
        let takers: HashSet<usize> = Self::inside(rows)
            .filter(|(_, r)| r.event == Event::Free && !workspaces.contains(&r.block))
            .map(|(i, _)| i + 1)
            .collect();
        let recomputed = Self::recomputed(rows);
        let mut marks = Vec::new();
        for (i, row) in rows.iter().enumerate().filter(|(_, r)| r.event == Event::Malloc) {
            let bit = |is: bool, mark: Mark| if is { mark as u8 } else { 0 };
            let mask = row.block as usize >= trace.names.len();
            marks.push(
                bit(recomputed.contains(&i), Mark::Recomputed)
                    | bit(mask, Mark::Mask)
                    | bit(takers.contains(&i), Mark::InPlace),
            );
        }
        Self(marks)
    }

    /// The rows of the mallocs whose residency begins with a write by a recomputed operator.
    fn recomputed(rows: &[Row]) -> HashSet<usize> {
        let mut begun: HashMap<u32, usize> = HashMap::new();
        let mut recomputed = HashSet::new();
        for (i, row) in rows.iter().enumerate() {
            if row.event == Event::Malloc {
                begun.insert(row.block, i);
            } else if let Some(malloc) = begun.remove(&row.block)
                && row.event == Event::Write
                && matches!(row.op, Op::Rerun(_))
            {
                recomputed.insert(malloc);
            }
        }
        recomputed
    }

    /// The mallocs and frees between two accesses of the same operator, each with its row's number.
    fn inside(rows: &[Row]) -> impl Iterator<Item = (usize, &Row)> {
        let access = |r: &&Row| matches!(r.event, Event::Read | Event::Write);
        let mut before = Op::None;
        rows.iter().enumerate().filter(move |&(i, r)| {
            if access(&r) {
                before = r.op;
                return false;
            }
            matches!(r.event, Event::Malloc | Event::Free)
                && before != Op::None
                && rows[i..].iter().find(access).is_some_and(|next| next.op == before)
        })
    }

    /// The bits of each residency.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.0
    }

    /// How many residencies have a mark.
    pub(crate) fn count(&self, mark: Mark) -> usize {
        self.0.iter().filter(|&&bits| bits & mark as u8 > 0).count()
    }
}

/// What becomes of a block. Where several are true, the first counts of: recomputed, swapped, masked, in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It stays on the device, as recorded.
    Kept,
    /// It is copied to the host and back.
    Swapped,
    /// It is freed, and recomputed before its next use.
    Recomputed,
    /// It is freed early, and its mask kept; or it is that mask.
    Masked,
    /// It reuses the memory of its operator's input, in place.
    InPlace,
}

impl Fate {
    /// The fate of the block of each residency, in the order of the mallocs, in a schedule made from this trace.
    pub(crate) fn of(schedule: &VerifiedSchedule<'_>, marks: &Marks, trace: &Trace) -> Vec<Self> {
        let (rows, blocks) = (schedule.rows(), trace.names.len());
        let mallocs = || rows.iter().filter(|r| r.event == Event::Malloc).map(|r| r.block as usize);
        let having = |mark: Mark| -> HashSet<usize> {
            mallocs().zip(&marks.0).filter(|&(_, bits)| bits & mark as u8 > 0).map(|(block, _)| block).collect()
        };
        let [recomputed, masked, in_place] = [Mark::Recomputed, Mark::Mask, Mark::InPlace].map(having);
        let is_copy = |r: &&Row| matches!(r.event, Event::SwapOut | Event::SwapIn);
        let swapped: HashSet<usize> = rows.iter().filter(is_copy).map(|r| r.block as usize).collect();
        let fate = |block| match block {
            _ if recomputed.contains(&block) => Self::Recomputed,
            _ if swapped.contains(&block) => Self::Swapped,
            _ if masked.contains(&(block % blocks + blocks)) => Self::Masked,
            _ if in_place.contains(&block) => Self::InPlace,
            _ => Self::Kept,
        };
        mallocs().map(fate).collect()
    }
}

/// How many operators run at another place than recorded: all but the longest sequence that keeps the recorded order.
pub(crate) fn moved(schedule: &VerifiedSchedule<'_>, trace: &Trace) -> usize {
    let first_runs = |rows: &[Row]| {
        let mut ops: Vec<u32> =
            rows.iter().filter_map(|r| if let Op::First(op) = r.op { Some(op) } else { None }).collect();
        ops.dedup();
        ops
    };
    let place: HashMap<u32, usize> = first_runs(&trace.rows).into_iter().enumerate().map(|(i, op)| (op, i)).collect();
    let ran = first_runs(schedule.rows());
    // By length: the least last place of a rising sequence of this length.
    let mut ends: Vec<usize> = Vec::new();
    for op in &ran {
        let at = place[op];
        let longer = ends.partition_point(|&end| end < at);
        if longer == ends.len() { ends.push(at) } else { ends[longer] = at }
    }
    ran.len() - ends.len()
}
