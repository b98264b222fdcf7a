//! Passes: each rewrites a trace into one that computes the same and needs less memory.
//!
//! A pass decides what to swap, recompute or change, and writes the rows that result. These rows are used only after
//! [`verify::schedule`](crate::verify::schedule::schedule) has accepted them. [`fit`] calls the passes and the
//! placement.

mod anneal;
pub mod fit;
mod flat;
mod gaps;
mod ids;
pub mod lower_bound;
pub mod means;
mod members;
mod program;
mod script;
mod tournament;
mod values;
mod writer;
