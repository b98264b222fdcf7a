//! Replay: answers each request of an iteration with an address from a plan.
//!
//! - [`Allocator`] has all of it: it records, plans, replays and falls back;
//! - [`Replay`] follows a [`VerifiedPlan`](crate::VerifiedPlan);
//! - [`Pool`] serves what the plan does not cover.
//!
//! Addresses are numbers in a range that the caller has; the memory there is never accessed.

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
