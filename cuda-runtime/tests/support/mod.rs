//! Networks whose data is checked: every block is filled from a number, and every operator makes the numbers of its
//! outputs from those of its inputs. A byte that is not what the number says is told.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod by_host;
pub(crate) mod fit;
pub(crate) mod hooked;
pub(crate) mod networks;
pub(crate) mod on_gpu;
pub(crate) mod pattern;
pub(crate) mod swapped;
