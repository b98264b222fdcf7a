//! Replay: an address for each request of an iteration, by looking it up in a plan.
//!
//! - [`Allocator`] is the owner of everything below: it records, plans, replays and falls back;
//! - [`Replay`] follows a [`VerifiedPlan`](crate::VerifiedPlan);
//! - [`Pool`] serves what the plan does not.
//!
//! Addresses are numbers in a range that the caller has; this room never touches what is there.

mod allocator;
mod config;
mod follow;
mod growth;
mod iteration;
mod manage;
pub mod pool;
mod ranges;
mod treap;

pub use allocator::{Allocator, State, Statistics};
pub use config::{Config, Memory, MemoryLen, memory};
pub use follow::{Answer, Replay, scratch, workspace};
pub use pool::Pool;
pub use ranges::{Fixed, Range, Source};
