//! Replay: answers each request of an iteration with an address from a plan.
//!
//! - [`Allocator`] does all of it: it records an iteration, makes a plan, replays it, and serves other requests from a
//!   pool;
//! - [`Replay`] answers requests from a [`VerifiedPlan`](crate::VerifiedPlan);
//! - [`Pool`] serves the requests that the plan does not cover.
//!
//! Addresses are numbers in ranges that the caller owns; the memory there is never accessed.

mod allocator;
mod config;
mod follow;
mod growth;
mod iteration;
mod manage;
mod pool;
mod ranges;
mod remembered;
mod treap;

pub use allocator::{Allocator, State, Statistics};
pub use config::{Config, Memory, MemoryLen, memory};
pub use follow::{Answer, Replay, scratch, workspace};
pub use pool::Pool;
pub use ranges::{Fixed, Range, Source};
