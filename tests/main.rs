//! What is held against oracles, by seeded instances: one program of tests, linked once. `cargo test -p sublet-tests --test oracles mip::`
//! runs a file.

mod banks;
mod cp_sat;
mod embedded;
mod graph;
mod imports;
mod invariance;
mod judge;
mod minimalloc;
mod mip;
mod models;
mod monotone;
mod optimal;
mod oracle;
mod overlap;
mod parallel;
mod passes;
mod quality;
mod replay;
mod schedule;
mod segments;
mod verifier;
