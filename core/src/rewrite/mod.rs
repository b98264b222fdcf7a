//! Passes from a trace to a trace that computes the same and needs less memory.
//!
//! A pass decides and writes rows; what it wrote counts for nothing until
//! [`verify::schedule`](crate::verify::schedule::schedule) has accepted it. [`fit`] puts the passes and the
//! placement together.

mod anneal;
pub mod fit;
mod flat;
mod gaps;
pub mod lower_bound;
pub mod means;
mod members;
mod program;
pub mod published;
mod tournament;
mod values;
mod writer;
