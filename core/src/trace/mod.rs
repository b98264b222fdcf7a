//! One recorded iteration: rows of mallocs, frees and accesses.
//!
//! A trace is a slice of [`Row`]s in the order in which things happened; the position of a row is its step. An access
//! is a read or a write of a block. A [`Recorder`] writes a trace, and [`liveness`] turns it into blocks with lifetimes.
//! A [`Detector`] finds the iteration in an endless stream of events. A [`Graph`] makes the trace of a static network,
//! [`order`] finds an order of its operators that needs less memory, and [`parallel`] finds lifetimes for operators
//! that run at the same time. [`Recorded`] is a trace together with what is known of its operators.

pub(crate) mod dependencies;
mod graph;
pub mod liveness;
mod network;
pub mod order;
pub mod parallel;
mod period;
mod record;
pub(crate) mod recorded;

pub use network::{Graph, Node, Storage, Tensor};
pub use period::Detector;
pub use record::{OUTSIDE, Recorder};
pub use recorded::{Kind, Operator, Recorded};

/// One row of a trace: one event, with the time, the block and the operator to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Row {
    /// When the event happened, in ns from the start of the iteration; never earlier than in the row before.
    pub time_ns: u64,
    /// The size of the block in bytes. It counts only in a row of [`Event::Malloc`].
    pub bytes: u64,
    /// The number of the block. Blocks are numbered from 0; only the caller knows their names.
    pub block: u32,
    /// The operator that the event belongs to.
    pub op: Op,
    /// What happened.
    pub event: Event,
}

/// What happens to a block in one row of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Event {
    /// The block is allocated, with undefined content.
    #[default]
    Malloc,
    /// The block is freed, and its content is lost.
    Free,
    /// An operator reads the block.
    Read,
    /// An operator writes the block, every byte of it: one that leaves parts as they were reads the block too.
    Write,
    /// The block is copied to the host.
    SwapOut,
    /// The latest copy of the block on the host is copied back to the device.
    SwapIn,
}

impl Event {
    /// Whether the event is a read or a write.
    #[must_use]
    pub const fn is_access(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }
}

/// The operator that a row of a trace belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Op {
    /// The row belongs to no operator: for example a free between operators, or the malloc of a persistent block or
    /// input.
    #[default]
    None,
    /// The operator of this number, in its regular run, which is no recomputation.
    First(u32),
    /// The operator of this number, when it runs once more to recompute a value.
    Rerun(u32),
}
