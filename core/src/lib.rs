#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "tests count small things"))]
//! sublet-core
#[cfg(test)]
#[macro_use]
extern crate std;

pub mod block;
pub mod error;
pub mod place;
pub mod rewrite;

pub mod simulate;
mod sort;
mod table;
pub mod trace;
pub mod verify;
mod workspace;

pub use block::{Block, Constraints};
pub use error::Error;
pub use verify::{VerifiedPlan, VerifiedSchedule};
pub use workspace::{Workspace, WorkspaceLen};
