//! Tests against oracles (independent solvers and judges) and on seeded instances, as one program that is linked once.
//! `cargo test -p sublet-tests --test oracles mip::` runs one file of it.

mod banks;
mod chains;
mod cp_sat;
mod embedded;
mod ggml;
mod graph;
mod imports;
mod invariance;
mod joint;
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
