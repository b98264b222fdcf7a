//! The time of a request that is in the plan, beside glibc's malloc and a caching pool, for the same sequence of sizes
//! in the same run; and the time of an event that the search for the period watches.
//!
//!     cargo bench -p sublet-benches --bench replay
//!
//! Times are CPU time of the thread, the least of several rounds in turns, because the machine may be shared. The
//! addresses that glibc gives are not touched, so that its pages are never mapped: what is compared is bookkeeping.

mod clock;

use std::collections::{BTreeSet, HashMap};
use std::hint::black_box;

use clock::cpu_seconds;
use sublet_core::replay::{self, Allocator, Config, Memory};
use sublet_core::trace::Detector;
use sublet_core::trace::Event;
use sublet_core::{Block, Workspace};
use sublet_tests::network::{Network, Request};

/// Iterations in a round.
const ITERATIONS: usize = 50;

const ROUNDS: usize = 9;

/// The alignment of all addresses, in bytes, as on a GPU. Sizes are rounded up to a multiple of it for every allocator.
const ALIGNMENT: u64 = 256;

fn main() {
    println!("ns for a malloc and its free; the last column, ns for an event that the detector watches");
    println!(
        "| | requests | planned | and recorded | pool | glibc | caching | glibc / planned | caching / planned | watched |"
    );
    println!("| - | - | - | - | - | - | - | - | - | - |");
    for name in NETWORKS {
        let Some(network) = Network::named(name) else {
            println!("skipped: {name} (SUBLET_DATA is not set)");
            continue;
        };
        row(&network);
    }
}

const NETWORKS: [&str; 4] =
    ["resnet50_train_b32", "inception_resnet_v2_train_b32", "seq2seq_train_b64", "seq2seq_infer_100w"];

fn row(network: &Network) {
    let capacity = 8 * network.max_load(ALIGNMENT);
    let events = network.iteration.len();
    let config = Config { alignment: ALIGNMENT, ..Config::new(capacity, events, events) };

    // `planned` finds the iteration in the stream of requests by itself. Once the iteration cannot be part of a longer
    // period, nothing is recorded any more. `recorded` is told where iterations begin and end, and goes on recording.
    let mut memory = Lent::new(&config);
    let mut planned = memory.allocator(&config);
    let mut memory = Lent::new(&config);
    let mut recorded = memory.allocator(&config);
    let mut memory = Lent::new(&config);
    let mut unplanned = memory.allocator(&config);
    unplanned.interrupt();
    let mut caching = Caching::new(capacity);

    let mut addresses = vec![0; network.blocks];
    let mut vectors: Vec<Vec<u8>> = (0..network.blocks).map(|_| Vec::new()).collect();
    let mut times = [f64::MAX; 5];
    for _ in 0..ROUNDS {
        times[0] = times[0].min(time(network, || run(network, &mut planned, &mut addresses)));
        times[1] = times[1].min(time(network, || {
            recorded.begin_iteration();
            run(network, &mut recorded, &mut addresses);
            recorded.end_iteration().expect("there is room");
        }));
        times[2] = times[2].min(time(network, || run(network, &mut unplanned, &mut addresses)));
        times[3] = times[3].min(time(network, || {
            for request in &network.iteration {
                match *request {
                    Request::Malloc(block, bytes) => {
                        vectors[block] = black_box(Vec::with_capacity(usize::try_from(bytes).expect("64 bits")));
                    }
                    Request::Free(block) => drop(std::mem::take(&mut vectors[block])),
                }
            }
        }));
        times[4] = times[4].min(time(network, || {
            for request in &network.iteration {
                match *request {
                    Request::Malloc(block, bytes) => addresses[block] = black_box(caching.malloc(bytes)),
                    Request::Free(block) => caching.free(addresses[block]),
                }
            }
        }));
    }
    for allocator in [&planned, &recorded] {
        let done = allocator.statistics();
        assert!(done.hits > 50 * done.misses, "{}: {done:?}", network.name);
    }
    let [planned, recorded, pool, glibc, cached] = times;
    print!("| {} | {} |", network.name, network.blocks);
    for ns in [planned, recorded, pool, glibc, cached, glibc / planned, cached / planned] {
        print!(" {ns:.1} |");
    }
    println!(" {:.1} |", detect(network));
}

fn run(network: &Network, allocator: &mut Allocator<'_>, addresses: &mut [u64]) {
    for request in &network.iteration {
        match *request {
            Request::Malloc(block, bytes) => {
                addresses[block] = black_box(allocator.malloc(bytes).expect("there is room"));
            }
            Request::Free(block) => allocator.free(addresses[block]).expect("it is live"),
        }
    }
}

/// Nanoseconds for each block of the network: for a malloc and its free.
#[expect(clippy::cast_precision_loss, reason = "a time to be read")]
fn time(network: &Network, mut iteration: impl FnMut()) -> f64 {
    let before = cpu_seconds();
    for _ in 0..ITERATIONS {
        iteration();
    }
    1e9 * (cpu_seconds() - before) / (ITERATIONS * network.blocks) as f64
}

/// Nanoseconds for each event of a stream in which the detector finds the network's iteration.
#[expect(clippy::cast_precision_loss, reason = "a time to be read")]
fn detect(network: &Network) -> f64 {
    let longest = network.iteration.len();
    let len = Detector::workspace(longest);
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let mut detector = Detector::new(longest, Workspace::new(&mut words, &mut indices)).expect("as long as asked for");
    let mut positions = vec![(0, 0); network.blocks];
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let before = cpu_seconds();
        for _ in 0..ITERATIONS {
            for request in &network.iteration {
                match *request {
                    Request::Malloc(block, bytes) => {
                        positions[block] = (detector.push(Event::Malloc, bytes, 0), bytes);
                    }
                    Request::Free(block) => {
                        let (malloc, bytes) = positions[block];
                        black_box(detector.push(Event::Free, bytes, malloc));
                    }
                }
            }
        }
        least = least.min(1e9 * (cpu_seconds() - before) / (ITERATIONS * longest) as f64);
    }
    assert_eq!(detector.period().map(|p| p as usize), Some(longest), "{}", network.name);
    least
}

/// Memory for one allocator.
struct Lent {
    blocks: Vec<Block>,
    words: Vec<u64>,
    indices: Vec<u32>,
}

impl Lent {
    fn new(config: &Config) -> Self {
        let len = replay::memory(config);
        Self { blocks: vec![Block::default(); len.blocks], words: vec![0; len.words], indices: vec![0; len.indices] }
    }

    fn allocator(&mut self, config: &Config) -> Allocator<'_> {
        let Self { blocks, words, indices } = self;
        Allocator::new(config, Memory { blocks, words, indices }).expect("as long as asked for")
    }
}

/// A caching allocator as frameworks have it today, such as PyTorch's, over one range of memory: a set of free blocks
/// ordered by size, best fit, splitting, and joining with free neighbours.
struct Caching {
    /// The free blocks, as (size in bytes, address).
    cached: BTreeSet<(u64, u64)>,
    /// By address of a block: its size in bytes, whether it is in use, and the address of the block below it.
    blocks: HashMap<u64, (u64, bool, Option<u64>)>,
}

impl Caching {
    fn new(capacity: u64) -> Self {
        Self { cached: BTreeSet::from([(capacity, 0)]), blocks: HashMap::from([(0, (capacity, false, None))]) }
    }

    fn malloc(&mut self, bytes: u64) -> u64 {
        let wanted = bytes.next_multiple_of(ALIGNMENT);
        let &(size, address) = self.cached.range((wanted, 0)..).next().expect("there is room");
        self.cached.remove(&(size, address));
        let below = self.blocks[&address].2;
        self.blocks.insert(address, (wanted, true, below));
        if size > wanted {
            let rest = address + wanted;
            self.cached.insert((size - wanted, rest));
            self.blocks.insert(rest, (size - wanted, false, Some(address)));
            self.relink(address + size, rest);
        }
        address
    }

    fn free(&mut self, address: u64) {
        let (mut begin, (mut size, _, mut below)) = (address, self.blocks[&address]);
        if let Some(&(above, false, _)) = self.blocks.get(&(address + size)) {
            self.cached.remove(&(above, address + size));
            self.blocks.remove(&(address + size));
            size += above;
        }
        if let Some(b) = below
            && let (length, false, under) = self.blocks[&b]
        {
            self.cached.remove(&(length, b));
            self.blocks.remove(&address);
            (begin, size, below) = (b, size + length, under);
        }
        self.cached.insert((size, begin));
        self.blocks.insert(begin, (size, false, below));
        self.relink(begin + size, begin);
    }

    /// Notes that the block at `address`, if there is one, has the block at `below` below it.
    fn relink(&mut self, address: u64, below: u64) {
        if let Some(block) = self.blocks.get_mut(&address) {
            block.2 = Some(below);
        }
    }
}
