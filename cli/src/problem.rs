//! What every command works on, whichever file it came from.

use sublet_core::Block;
use sublet_core::trace::{Row, liveness::Stay};

/// Blocks to place, with the names that plans call them by.
#[derive(Debug, Default)]
pub(crate) struct Problem {
    /// Where it came from: the file's name, or `-`.
    pub(crate) name: String,
    /// What placement sees.
    pub(crate) blocks: Vec<Block>,
    /// The id of each block in a plan: the instance's id, the block of the trace, or `B#k` for its k-th later stay.
    pub(crate) ids: Vec<String>,
    /// What each step is called in the file, ascending; empty where the steps are the file's own times.
    pub(crate) times: Vec<u64>,
    /// The trace that the blocks come from; none for an instance.
    pub(crate) trace: Option<Trace>,
}

/// One recorded iteration.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// The rows; `Row::block` is an index into `names`.
    pub(crate) rows: Vec<Row>,
    /// What each block is called in the file.
    pub(crate) names: Vec<String>,
    /// Which stay of which block each of the problem's blocks is.
    pub(crate) stays: Vec<Stay>,
    /// The operators' names by their numbers, where a file beside the trace tells them.
    pub(crate) op_names: Vec<String>,
}

impl Problem {
    /// What the file calls a step.
    pub(crate) fn time(&self, step: u32) -> u64 {
        self.times.get(step as usize).copied().unwrap_or(step.into())
    }
}
