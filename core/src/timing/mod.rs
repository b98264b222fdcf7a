//! The model of time: a device and its links, and how long a trace takes on it.

mod device;
pub(crate) mod links;
pub mod simulate;
