//! What every command works on, whichever file it came from.

use sublet_core::Block;
use sublet_core::trace::{Row, liveness::Stay};

/// Blocks to place, with the names that plans call them by.
#[derive(Debug, Default)]
pub struct Problem {
    /// Where it came from: the file's name, or `-`.
    pub name: String,
    /// What placement sees.
    pub blocks: Vec<Block>,
    /// The id of each block in a plan: the instance's id, the block of the trace, or `B#k` for its k-th later stay.
    pub ids: Vec<String>,
    /// The trace that the blocks come from; none for an instance.
    pub trace: Option<Trace>,
}

/// One recorded iteration.
#[derive(Debug, Default)]
pub struct Trace {
    /// The rows; `Row::block` is an index into `names`.
    pub rows: Vec<Row>,
    /// What each block is called in the file.
    pub names: Vec<String>,
    /// Which stay of which block each of the problem's blocks is.
    pub stays: Vec<Stay>,
    /// The operators' names by their numbers, where a file beside the trace tells them.
    pub op_names: Vec<String>,
}
