//! The means of saving memory, a file or a folder for each.

pub mod in_place;
pub mod mask;
pub(in crate::rewrite) mod order;
pub mod recompute;
pub mod swap;
