//! The commands of `sublet`: one file each, named as the user types it.

pub(crate) mod banks;
pub(crate) mod buffers;
pub(crate) mod check;
mod chunks;
pub(crate) mod compare;
pub(crate) mod convert;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod fit;
pub(crate) mod generate;
pub(crate) mod ladder;
pub(crate) mod model;
pub(crate) mod plan;
pub(crate) mod stats;
pub(crate) mod sweep;
pub(crate) mod verify;
