//! Programs that run on the host: one program of tests, linked once. `cargo test -p sublet-cuda --test host replan::` runs a file.

mod convnet;
mod data;
#[cfg(target_os = "linux")]
mod disk;
mod ended;
mod failures;
mod measured;
mod moves;
mod replan;
mod rewritten;
#[cfg(target_os = "linux")]
mod storage;
#[path = "../support/mod.rs"]
mod support;
mod training;
