//! Graphs of llama.cpp and stable-diffusion.cpp as ggml's allocator saw them: which memory is alive from which node to
//! which. `SUBLET_DATA` names the folder whose `ggml` holds them, with `README.csv`: what ggml takes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sublet_core::place::banks::Spot;
use sublet_core::place::chunks::{self, Limit};
use sublet_core::place::{Options, Solver};
use sublet_core::{Block, Constraints, Workspace};
use sublet_tests::{instance, place_with, verify};

const MIB: f64 = 1_048_576.0;

struct Graph {
    name: String,
    blocks: Vec<Block>,
    greedy_mib: Option<f64>,
    max_load: u64,
}

fn graphs(skipped: &str) -> Vec<Graph> {
    let Some(folder) = std::env::var_os("SUBLET_DATA").map(|data| PathBuf::from(data).join("ggml")) else {
        println!("Skipped: {skipped} (SUBLET_DATA is not set)");
        return Vec::new();
    };
    let list = std::fs::read_to_string(folder.join("README.csv")).unwrap();
    let graphs: Vec<Graph> = list
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let blocks = instance::read(&std::fs::read_to_string(folder.join(fields[0])).unwrap());
            let max_load = place_with(Solver::BestFit, &blocks, &Options::default()).unwrap().0.lower_bound;
            Graph { name: fields[0].into(), blocks, greedy_mib: fields[3].parse().ok(), max_load }
        })
        .collect();
    assert!(graphs.len() > 50);
    graphs
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn ratio(bytes: u64, of: u64) -> f64 {
    bytes as f64 / of as f64
}

fn in_chunks(blocks: &[Block], limit: Limit) -> (chunks::Chunks, Vec<Spot>) {
    let len = chunks::workspace(Solver::Portfolio, blocks.len(), limit);
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let (mut parts, mut spots) = (vec![Block::default(); blocks.len()], vec![Spot::default(); blocks.len()]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let options = Options::default();
    let found = chunks::place(Solver::Portfolio, blocks, limit, &options, scratch, &mut parts, &mut spots).unwrap();
    (found, spots)
}

/// How many blocks begin over memory that has died less than `distance` steps before.
fn early(blocks: &[Block], distance: u32, offsets: &[u64]) -> usize {
    let mut by_end: Vec<usize> = (0..blocks.len()).collect();
    by_end.sort_by_key(|&i| blocks[i].end);
    let spoiled = |(b, &offset): (&Block, &u64)| {
        let begin = by_end.partition_point(|&j| blocks[j].end + distance <= b.start);
        let mut just = by_end[begin..].iter().take_while(|&&j| blocks[j].end <= b.start);
        just.any(|&j| offset < offsets[j] + blocks[j].size && offsets[j] < offset + b.size)
    };
    blocks.iter().zip(offsets).filter(|&placed| spoiled(placed)).count()
}

/// The offsets that ggml's allocator gives: the smallest hole that is large enough, else the top of the memory.
fn greedy(blocks: &[Block]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| (blocks[i].start, i));
    let (mut offsets, mut alive) = (vec![0; blocks.len()], BTreeMap::<u64, usize>::new());
    for i in order {
        let b = blocks[i];
        alive.retain(|_, &mut j| blocks[j].end > b.start);
        let (mut top, mut best) = (0, None);
        for (&from, &j) in &alive {
            if from - top >= b.size && best.is_none_or(|(size, _)| from - top <= size) {
                best = Some((from - top, top));
            }
            top = from + blocks[j].size;
        }
        offsets[i] = best.map_or(top, |(_, from)| from);
        alive.insert(offsets[i], i);
    }
    offsets
}

#[test]
fn all_graphs_are_placed_at_max_load_and_never_above_ggml() {
    for Graph { name, blocks, greedy_mib, max_load } in graphs("the graphs of ggml are not placed") {
        let (found, offsets) = place_with(Solver::Portfolio, &blocks, &Options::default()).unwrap();
        verify(&blocks, &offsets, &Constraints::NONE).unwrap();
        assert!(ratio(found.peak, max_load) <= 1.001, "{name}: {found:?}");
        let below = greedy_mib.is_none_or(|mib| ratio(found.peak, 1) / MIB <= mib + 0.005);
        assert!(below, "{name}: {found:?}, {greedy_mib:?} MiB by ggml");
    }
}

#[test]
fn in_chunks_they_take_little_more_than_their_max_load() {
    for Graph { name, blocks, max_load, .. } in graphs("the graphs of ggml are not placed in chunks") {
        for bytes in [1u64 << 30, 4 << 30] {
            let limit = Limit { bytes, chunks: 16, distance: 2 };
            let (found, spots) = in_chunks(&blocks, limit);
            assert!(ratio(found.total, max_load) <= 1.02, "{name} in chunks of {bytes}: {found:?}");
            for chunk in 0..found.count {
                let own = |(b, s): (&Block, &Spot)| (s.bank == chunk).then_some((*b, s.offset));
                let (own, offsets): (Vec<Block>, Vec<u64>) = blocks.iter().zip(&spots).filter_map(own).unzip();
                let largest = own.iter().map(|b| b.size).max().unwrap();
                assert!(verify(&own, &offsets, &Constraints::NONE).unwrap().peak() <= bytes.max(largest), "{name}");
            }
        }
    }
}

/// Also where the plan is lower, which leaves less room.
#[test]
fn no_more_blocks_than_in_ggml_begin_over_memory_that_has_just_died() {
    for Graph { name, blocks, .. } in graphs("the graphs of ggml are not looked at for reuse") {
        let greedy = greedy(&blocks);
        let (_, spots) = in_chunks(&blocks, Limit { bytes: u64::MAX, chunks: 1, distance: 2 });
        let offsets: Vec<u64> = spots.iter().map(|s| s.offset).collect();
        for distance in [1, 2] {
            let (ours, theirs) = (early(&blocks, distance, &offsets), early(&blocks, distance, &greedy));
            assert!(ours <= theirs, "{name}: {ours} instead of {theirs} within {distance}");
        }
    }
}
