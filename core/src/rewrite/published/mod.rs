//! Methods as they were published, to compare with: a file for each paper. What is swapped by Zhang et al.'s scores is
//! where the search of swapping begins, and Chen et al.'s segments are among what recomputation chooses from.

pub(super) mod bayes;
pub mod chen;
pub(super) mod layer_policy;
pub mod layrub;
pub(super) mod mirror;
pub(super) mod zhang;
