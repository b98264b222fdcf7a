//! Passes: each rewrites a trace into one that computes the same and needs less memory.
//!
//! A pass decides what to swap, recompute or change, and writes the rows that result. These rows are used only after
//! [`verify::schedule`](crate::verify::schedule) has accepted them. [`fit`] calls the passes and the
//! placement.

mod anneal;
pub mod fit;
mod flat;
mod gaps;
mod ids;
mod lower_bound;
mod means;
mod members;
mod program;
mod script;
mod tournament;
mod values;
mod writer;

pub use lower_bound::{least_load, workspace as least_load_workspace};
pub use means::{in_place, mask};
