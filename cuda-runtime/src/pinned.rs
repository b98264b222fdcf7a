//! Decides where copies of blocks lie on the host: in one range of pinned memory or of a disk, the pool, which is
//! planned as the arena is.
//!
//! A block's copy on the host has a lifetime, as a block has: from the transfer off the device that writes it to the
//! last transfer back that reads it. A copy that an iteration reads before it writes the block to the host is there all
//! the time; a copy that the next iteration may need is there up to the end. Copies that are not needed at the same
//! time may share bytes. Each copy has a number, counted from 0.
//!
//! In the simulation every block has its own memory on the host, so that no transfer off the device waits for free
//! bytes there. No such transfer should have to wait when the program runs either. So the bytes of a copy are kept
//! until the last transfer to or from it has ended in the simulation: up to the row of the trace that compute has
//! reached by then. If that transfer ends later when the program runs, a transfer to the same bytes waits for it.
//!
//! Pinned memory is cached by the processor, and not write-combined, because the processor reads persistent blocks from
//! it.

use std::ops::Range;

use sublet_core::place::{self, Options, Solver};
use sublet_core::simulate::Timing;
use sublet_core::trace::{Event, Row};
use sublet_core::{Block, Constraints, Workspace, verify};

use crate::error::Result;

#[derive(Clone, Debug)]
pub(crate) struct HostStay {
    /// In a trace of n rows, row n is the time between two iterations.
    pub(crate) rows: Range<u32>,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct HostPlan {
    pub(crate) residencies: Vec<HostStay>,
    pub(crate) of_row: Vec<Option<usize>>,
    /// By block: the copy that is read before another is written.
    pub(crate) at_start: Vec<Option<usize>>,
    pub(crate) at_end: Vec<Option<usize>>,
    /// By copy: its offset in the pool, in bytes.
    pub(crate) places: Vec<u64>,
    pub(crate) bytes: u64,
}

impl HostPlan {
    /// `kept`: whether a block's last copy is still needed at the end.
    pub(crate) fn find(
        (rows, timings): (&[Row], &[Timing]),
        numbers: usize,
        sizes: &[u64],
        kept: impl Fn(u32) -> bool,
    ) -> Self {
        // One step more than there are rows, for the time between iterations: blocks may be moved by way of the host
        // then.
        let end = u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_add(1);
        let is_copy = |r: &Row| matches!(r.event, Event::SwapOut | Event::SwapIn);
        let mut plan = Self { of_row: vec![None; rows.len()], ..Self::default() };
        plan.at_start = vec![None; numbers];
        plan.at_end = vec![None; numbers];
        let mut latest: Vec<Option<usize>> = vec![None; numbers];
        for (row, r) in (0u32..).zip(rows).filter(|(_, r)| is_copy(r)) {
            let block = r.block as usize;
            let crossing = plan.at_start[block];
            let residency = match (crossing, latest[block], r.event) {
                // A copy in before any copy out reads a copy from before the iteration, which is always there.
                (Some(residency), ..) | (None, Some(residency), Event::SwapIn) => residency,
                (None, None, Event::SwapIn) => {
                    plan.residencies.push(HostStay { rows: 0..end, bytes: sizes[block] });
                    plan.at_start[block] = Some(plan.residencies.len() - 1);
                    plan.residencies.len() - 1
                }
                _ => {
                    plan.residencies.push(HostStay { rows: row..row, bytes: sizes[block] });
                    plan.residencies.len() - 1
                }
            };
            let known = &mut plan.residencies[residency];
            let read = timings.get(row as usize).map_or(0.0, |timing| timing.end);
            let reached = u32::try_from(timings.partition_point(|timing| timing.reached < read)).unwrap_or(u32::MAX);
            known.rows.end = known.rows.end.max(row + 1).max(reached);
            latest[block] = Some(residency);
            plan.of_row[row as usize] = Some(residency);
        }
        for (block, residency) in (0u32..).zip(&latest).filter(|(block, _)| kept(*block)) {
            plan.at_end[block as usize] = *residency;
            if let Some(residency) = *residency {
                plan.residencies[residency].rows.end = end;
            }
        }
        plan
    }

    pub(crate) fn add(&mut self, rows: Range<u32>, bytes: u64) -> usize {
        self.residencies.push(HostStay { rows, bytes });
        self.residencies.len() - 1
    }

    pub(crate) fn place(&mut self, alignment: u64) -> Result<()> {
        let block = |HostStay { rows, bytes }: &HostStay| {
            Block::new(rows.start, rows.end, bytes.checked_next_multiple_of(alignment).unwrap_or(u64::MAX))
        };
        let blocks: Vec<Block> = self.residencies.iter().map(block).collect();
        (self.places, self.bytes) = placed(&blocks, alignment)?;
        Ok(())
    }
}

fn placed(blocks: &[Block], alignment: u64) -> Result<(Vec<u64>, u64)> {
    let len = place::workspace_of(Solver::Auto, blocks.len()).max(verify::workspace(blocks.len()));
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let mut offsets = vec![0; blocks.len()];
    let constraints = Constraints { alignment, capacity: None };
    let options = Options { constraints, ..Options::default() };
    place::place(Solver::Auto, blocks, &options, scratch.reborrow(), &mut offsets)?;
    let peak = verify::verify(blocks, &offsets, &constraints, scratch)?.peak();
    Ok((offsets, peak))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sublet_core::trace::Op;

    fn row(event: Event, block: u32) -> Row {
        Row { time_ns: 0, bytes: 0, block, op: Op::None, event }
    }

    #[test]
    fn a_copy_lives_until_the_simulation_has_read_it() {
        use Event::{Read, SwapIn, SwapOut};
        let rows = [row(SwapOut, 0), row(SwapIn, 0), row(Read, 1), row(Read, 1), row(Read, 1)];
        let of = |read: f64| {
            let times = [(0.0, 1.0), (2.0, read), (3.0, 4.0), (5.0, 6.0), (7.0, 8.0)];
            let timings = times.map(|(reached, end)| Timing { reached, begin: reached, end });
            HostPlan::find((&rows, &timings), 2, &[64, 64], |_| false).residencies[0].rows.clone()
        };
        assert_eq!([of(2.5), of(4.0), of(6.0), of(9.0)], [0..2, 0..3, 0..4, 0..5]);
    }
}
