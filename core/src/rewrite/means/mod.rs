//! The means of saving memory, each in a file or a folder of its own.

pub mod in_place;
pub mod mask;
pub mod order;
pub mod recompute;
pub mod swap;
