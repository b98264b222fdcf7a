//! Plans that run: one arena, a compute stream, and a stream for the copies each way.

pub mod driver;
pub mod relu;
