//! One recorded iteration: rows of mallocs, frees and accesses.
//!
//! A trace is a slice of [`Row`]s in the order in which things happened; the position of a row is its step. [`record`]
//! writes a trace, and [`liveness`] turns it into blocks with lifetimes. [`period`] finds the iteration in an endless
//! stream of events. [`graph`] makes the trace of a static graph, and [`order`] finds an order of its operators that
//! needs less memory.

pub(crate) mod dependencies;
pub mod graph;
pub mod liveness;
mod network;
pub mod order;
pub mod parallel;
pub mod period;
pub mod record;
pub(crate) mod recorded;

pub use recorded::{Kind, Operator, Recorded};

/// One row of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Row {
    /// When the row happened, in ns from the start of the iteration; never before the row above.
    pub time_ns: u64,
    /// The size of the block in bytes; only for [`Event::Malloc`].
    pub bytes: u64,
    /// The number of the block. Blocks are numbered from 0 without holes; only the caller knows their names.
    pub block: u32,
    /// The operator that the row belongs to.
    pub op: Op,
    /// What happened.
    pub event: Event,
}

/// What happens to a block in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Event {
    /// The block is allocated, with undefined content.
    #[default]
    Malloc,
    /// The block is freed, and its content is lost.
    Free,
    /// An operator reads the block.
    Read,
    /// An operator writes the block.
    Write,
    /// The block is copied to the host.
    SwapOut,
    /// The latest copy of the block on the host is copied back.
    SwapIn,
}

impl Event {
    /// Whether the event is a read or a write.
    #[must_use]
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The operator that a row belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Op {
    /// No operator, as for frees between operators, persistent blocks and inputs.
    #[default]
    None,
    /// The operator of this number, when it is not recomputed.
    First(u32),
    /// The operator of this number, when it is recomputed.
    Rerun(u32),
}
