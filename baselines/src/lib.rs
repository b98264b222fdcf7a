//! What the planner is compared with: methods as they were published, and the allocators in use today, simulated.
//!
//! Every schedule is written as the rows of a trace, for `sublet_core::verify` to judge as any other.

mod bayes;
pub mod chen;
pub mod layrub;
mod mirror;
mod network;
pub mod pools;
pub mod zhang;
