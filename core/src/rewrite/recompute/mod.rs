//! Recomputation: results of the forward pass are dropped and computed again when the backward pass needs them.

pub mod chen;
pub(super) mod mirror;
