//! The allocator for PyTorch, whole, over a driver that hands out numbers.

mod devices;
mod fake;
mod graphs;
mod limits;
mod plans;
mod program;
