//! Text for terminals, and sizes and times as people write them.

pub(crate) mod bank;
pub(crate) mod board;
pub(crate) mod load_chart;
pub(crate) mod progress;
pub(crate) mod seconds;
pub(crate) mod size;
pub(crate) mod table;
pub(crate) mod unit;
pub(crate) mod voice;
