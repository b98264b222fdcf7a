//! The allocator takes no memory but what it is lent: a global allocator that counts allocations counts none.

use allocation_counter::measure;
use sublet_core::replay::{Config, State};
use sublet_tests::checked;
use sublet_tests::network::{Network, Request};

/// Runs twelve iterations, which the allocator records, plans and replays; one of them has a request more, so that it
/// diverges and is planned anew. Once the iterations are marked, once the allocator has to find them.
#[test]
fn nothing_is_taken_from_the_heap() {
    let network =
        Network::read(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/resnet50_train_b32.csv")));
    let events = network.iteration.len() + 2;
    let config = Config::new(8 * network.max_load(256), events, events);
    for told in [true, false] {
        let mut allocator = checked::allocator(&config);
        let mut addresses = vec![0; network.blocks];
        let iteration = || {
            for round in 0..12 {
                if told {
                    allocator.begin_iteration();
                }
                let odd = (round == 8).then(|| allocator.malloc(1 << 20).unwrap());
                for request in &network.iteration {
                    match *request {
                        Request::Malloc(block, bytes) => addresses[block] = allocator.malloc(bytes).unwrap(),
                        Request::Free(block) => allocator.free(addresses[block]).unwrap(),
                    }
                }
                if let Some(odd) = odd {
                    allocator.free(odd).unwrap();
                }
                if told {
                    allocator.end_iteration().unwrap();
                }
            }
        };
        assert_eq!(measure(iteration).count_total, 0, "told: {told}");
        assert_eq!(allocator.state(), State::Replay);
        let done = allocator.statistics();
        assert!(done.plans >= 2 && done.hits > 9 * network.blocks as u64, "{done:?}");
    }
    assert_eq!(
        measure(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(8)))).count_total,
        1,
        "the counter counts"
    );
}
