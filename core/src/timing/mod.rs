//! The model of time: a device, its links to the host, and a simulation of how long a trace takes on them.

mod device;
pub(crate) mod links;
pub mod simulate;
