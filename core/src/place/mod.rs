//! Placement: an offset for every block, so that blocks that are alive together share no address.
//!
//! Every method has the same shape: blocks, options, workspace and offsets in, a [`Summary`] out. None of
//! them knows where the blocks come from, and what they return counts for nothing until
//! [`verify`](crate::verify::verify) has accepted it.

pub mod bound;
pub mod interval;
pub mod search;

use crate::Constraints;

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
