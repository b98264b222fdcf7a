//! Passes from a trace to a trace that computes the same and needs less memory.
//!
//! A pass decides and writes rows; what it wrote counts for nothing until
//! [`verify::schedule`](crate::verify::schedule::schedule) has accepted it. [`fit`] puts the passes and the
//! placement together.

pub mod fit;
mod flat;
mod gaps;
pub mod in_place;
pub mod layer;
mod members;
mod program;
pub mod recompute;
pub mod relu;
pub mod swap;
mod tournament;
mod values;
mod writer;
