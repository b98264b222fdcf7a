//! How near the exact search gets to max load on the two open instances of `MiniMalloc`, D and J, for several seeds.
//!
//! `cargo bench -p sublet-benches --bench seeds -- [D|J] [SEEDS]`, with `SUBLET_DATA`; the seeds are 1 to SEEDS, 10 by
//! default. For each seed it prints the peak over max load and the CPU seconds, of the search and of the search without
//! guidance. Each search may spend [`TIMES`] the default number of nodes, which takes about a minute.

mod clock;

use clock::cpu_seconds;
use sublet_core::place::{Options, Solver};
use sublet_core::place::{Technique, Techniques};
use sublet_tests::{instance, place_with};

/// Each search may spend this number of times the default number of nodes.
const TIMES: u64 = 64;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let seeds = asked.iter().find_map(|arg| arg.parse().ok()).unwrap_or(10);
    let both = !asked.iter().any(|arg| matches!(arg.as_str(), "D" | "J"));
    let open = |name: char| matches!(name, 'D' | 'J') && (both || asked.contains(&name.to_string()));
    println!("| instance | seed | peak / max load | CPU s | without guidance | CPU s |\n| - | - | - | - | - | - |");
    for (name, blocks) in
        instance::minimalloc("nothing is placed").into_iter().flatten().filter(|&(name, _)| open(name))
    {
        for seed in 1..=seeds {
            print!("| {name} | {seed} |");
            for techniques in [Techniques::ALL, Techniques::ALL.without(Technique::Guidance)] {
                let nodes = TIMES * Options::DEFAULT_NODES;
                let options = Options { seed, nodes, techniques, ..Options::default() };
                let begin = cpu_seconds();
                let (found, _) = place_with(Solver::Search, &blocks, &options).expect("without a capacity all fit");
                let seconds = cpu_seconds() - begin;
                #[expect(clippy::cast_precision_loss, reason = "a ratio")]
                let ratio = found.peak as f64 / found.lower_bound as f64;
                print!(" {ratio:.4} | {seconds:.0} |");
            }
            println!();
        }
    }
}
