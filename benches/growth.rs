//! How time grows from 1,000 to 1,000,000 blocks: each solver, and the verifier.
//!
//! The solvers' instances are random, from a fixed seed, with about 60 blocks alive at a time, so that the number of
//! colliding pairs grows in proportion to the blocks. The solvers that look at every colliding pair stop at 100,000
//! blocks, which have six million pairs; `peers/growth.py` runs all of them, once, to a million.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use sublet_core::place::{self, Options, Solver};
use sublet_core::{Constraints, Workspace, verify};
use sublet_tests::instance;

const ALIVE: u32 = 60;

const SEED: u64 = 1;

fn solvers(c: &mut Criterion) {
    for solver in Solver::all() {
        let mut group = c.benchmark_group(solver.name());
        group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_millis(100));
        let every_pair = matches!(solver, Solver::Coloring(_) | Solver::Greedy(..));
        let most = if every_pair { 100_000 } else { 1_000_000 };
        for n in [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|&n| n <= most) {
            let blocks = instance::random(n, ALIVE, SEED);
            let len = place::workspace_of(solver, blocks.len());
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let mut offsets = vec![0; blocks.len()];
            group.throughput(Throughput::Elements(n.into()));
            group.bench_function(BenchmarkId::from_parameter(n), |b| {
                b.iter(|| {
                    let scratch = Workspace::new(&mut words, &mut indices);
                    place::place(solver, black_box(&blocks), &Options::default(), scratch, &mut offsets)
                });
            });
        }
        group.finish();
    }
}

/// Verifies plans of instances that fill a rectangle: many blocks are alive at once.
fn verifier(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify");
    group.sample_size(10).sampling_mode(SamplingMode::Flat).warm_up_time(Duration::from_millis(100));
    for n in [1_000, 10_000, 100_000, 1_000_000] {
        let (blocks, offsets) = instance::tight(n, SEED);
        let len = verify::workspace(blocks.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        group.throughput(Throughput::Elements(n.into()));
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter(|| {
                let scratch = Workspace::new(&mut words, &mut indices);
                verify::verify(black_box(&blocks), &offsets, &Constraints::NONE, scratch)
                    .map(|plan| plan.peak())
                    .expect("the cut is a plan")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, solvers, verifier);
criterion_main!(benches);
