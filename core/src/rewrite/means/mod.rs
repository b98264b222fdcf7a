//! The means of saving memory, a file or a folder for each.

pub mod in_place;
pub mod mask;
pub mod order;
pub mod recompute;
pub mod swap;
