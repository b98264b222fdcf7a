//! Methods as they were published, to compare with: the swaps of Zhang et al. 2019 (`zhang`, `bayes`), the
//! recomputation of Chen et al. 2016 (`chen`, `mirror`), and the swaps and in-place reuse of Jin et al. 2018
//! (`layer_policy`, `layrub`). The search over swaps also starts from Zhang et al.'s schedules, and recomputation also
//! chooses among Chen et al.'s segments.

pub(super) mod bayes;
pub mod chen;
pub(super) mod layer_policy;
pub mod layrub;
pub(super) mod mirror;
pub(super) mod zhang;
