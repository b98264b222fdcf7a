//! Placement: an offset for every block, so that blocks that are alive together share no address.
//!
//! Every method has the same shape: blocks, options, workspace and offsets in, a [`Summary`] out. None of
//! them knows where the blocks come from, and what they return counts for nothing until
//! [`verify`](crate::verify::verify) has accepted it.

pub mod auto;
pub mod best_fit;
pub mod interval;
mod gap;
mod lifetime_tree;
mod load_tree;
mod skyline;
pub use gap::Fit;

use crate::error::Buffer;
use crate::place::interval::Sweep;
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block};

/// What a placement is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Alignment and capacity.
    pub constraints: Constraints,
    /// Where the random choices of restarts begin; the same seed gives the same plan everywhere.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { constraints: Constraints::NONE, seed: 1 }
    }
}

/// What a placement has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The highest end of a block, in bytes.
    pub peak: u64,
    /// What no placement can be below, in bytes: the max load, the highest pinned end.
    pub lower_bound: u64,
}

/// What every placer does first: checks its arguments and finds the lower bound.
fn prepare(
    blocks: &[Block],
    options: &Options,
    needed: WorkspaceLen,
    scratch: &mut Workspace<'_>,
    offsets: &[u64],
) -> Result<u64, Error> {
    let pinned = block::check(blocks, options.constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(needed)?;
    Ok(Sweep::new(blocks, scratch.reborrow())?.max_load().max(pinned))
}

/// What every placer does last: compares the peak with the capacity.
fn finish(summary: Summary, options: &Options) -> Result<Summary, Error> {
    let Summary { peak, lower_bound } = summary;
    match options.constraints.capacity {
        Some(capacity) if peak > capacity => Err(Error::OverCapacity { peak, lower_bound, capacity }),
        _ => Ok(summary),
    }
}

/// The next multiple of a power of two.
fn align_up(offset: u64, alignment: u64) -> u64 {
    offset.wrapping_add(alignment - 1) & !(alignment - 1)
}
