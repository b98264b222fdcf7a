//! Methods as they were published, to compare with: Zhang et al. 2019 in `zhang` and `bayes`, Chen et al. 2016 in
//! `chen` and `mirror`, Jin et al. 2018 in `layrub` and `layer_policy`. The search over swaps also starts from Zhang et
//! al.'s schedules, and recomputation also chooses among Chen et al.'s segments.

pub(super) mod bayes;
pub mod chen;
pub(super) mod layer_policy;
pub mod layrub;
pub(super) mod mirror;
pub(super) mod zhang;
