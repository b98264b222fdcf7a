//! Asks a solver for offsets.

use sublet_core::place::interval::{self, Sweep};
use sublet_core::place::{Options, Summary};
use sublet_core::{Error, block};

use crate::problem::Problem;
use crate::scratch::Scratch;

/// The names of the solvers; the first is the default.
pub(crate) const SOLVERS: [&str; 1] = ["first-fit"];

/// An offset in bytes for every block, by the solver of this name.
///
/// # Errors
/// Blocks that cannot be planned, pins that overlap, or the peak that it would take where the capacity is missed.
pub(crate) fn solve(problem: &Problem, _solver: &str, options: &Options) -> Result<(Vec<u64>, Summary), Error> {
    let blocks = &problem.blocks;
    let pinned = block::check(blocks, options.constraints.alignment)?;
    let mut scratch = Scratch::of(interval::workspace(blocks.len()));
    let sweep = Sweep::new(blocks, scratch.lend())?;
    let lower_bound = sweep.max_load().max(pinned);
    let mut offsets = vec![0; blocks.len()];
    let mut peak = 0;
    let pins: Vec<u32> = (0..).zip(blocks).filter(|(_, b)| b.pin.is_some()).map(|(i, _)| i).collect();
    let mut alive: Vec<u32> = Vec::new();
    for &i in sweep.by_start() {
        let b = &blocks[i as usize];
        alive.retain(|&j| blocks[j as usize].end > b.start);
        let mut offset = b.pin.unwrap_or(0);
        if b.pin.is_none() {
            let mut around: Vec<(u64, u64)> = alive
                .iter()
                .filter(|&&j| blocks[j as usize].pin.is_none())
                .chain(pins.iter().filter(|&&j| blocks[j as usize].collides(b)))
                .map(|&j| (blocks[j as usize].pin.unwrap_or(offsets[j as usize]), blocks[j as usize].size))
                .collect();
            around.sort_unstable();
            for (from, size) in around {
                if offset + b.size <= from {
                    break;
                }
                offset = offset.max(from + size).next_multiple_of(b.alignment.max(options.constraints.alignment));
            }
        }
        offsets[i as usize] = offset;
        peak = peak.max(offset + b.size);
        alive.push(i);
    }
    match options.constraints.capacity {
        Some(capacity) if peak > capacity => Err(Error::OverCapacity { peak, lower_bound, capacity }),
        _ => Ok((offsets, Summary { peak, lower_bound })),
    }
}
