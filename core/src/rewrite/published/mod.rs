//! Methods as they were published, a file for each paper, to compare with. The search over swaps also starts from Zhang
//! et al.'s schedules, and recomputation also chooses among Chen et al.'s segments.

pub(super) mod bayes;
pub mod chen;
pub(super) mod layer_policy;
pub mod layrub;
pub(super) mod mirror;
pub(super) mod zhang;
