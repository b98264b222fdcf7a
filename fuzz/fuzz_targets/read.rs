//! Files of every format that the command line reads: no panic, no hang, memory in proportion to the file.
//!
//! The input is a file with a problem. After a line `===`, if there is one, follows a second file that belongs to it: a
//! plan, the operators of a trace, or the tensors of a graph.
#![cfg_attr(fuzzing, no_main)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sublet_core::check_blocks;

const BETWEEN: &[u8] = b"\n===\n";

/// The bytes that a reader may hold at once for each byte of its input. The shortest row of an instance is seven bytes;
/// it becomes a block, an id, a lifetime and a line number, in vectors that grow by doubling.
const PER_BYTE: usize = 128;
/// The bytes that a reader may hold besides, whatever the length of its input.
const BESIDES: usize = 1 << 20;

sublet_fuzz::target!(|data: &[u8]| {
    let cut = data.windows(BETWEEN.len()).position(|w| w == BETWEEN);
    let (file, belongs) = match cut {
        Some(at) => (&data[..at + 1], &data[at + BETWEEN.len()..]),
        None => (data, &[][..]),
    };
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let alone = sublet_cli::read("a.csv", file);
    let graph = sublet_cli::read_graph("a.csv", file, belongs);
    for mut problem in [alone, graph].into_iter().flatten() {
        assert!(!problem.blocks().is_empty());
        check_blocks(problem.blocks(), 1).expect("what is read can be planned");
        if let Ok(offsets) = problem.read_plan("plan.csv", belongs) {
            assert_eq!(offsets.len(), problem.blocks().len());
        }
        let _ = problem.read_operators("a.ops.csv", belongs).map(<[String]>::len);
    }
    let most = MOST.load(Ordering::Relaxed) - before;
    assert!(most <= PER_BYTE * data.len() + BESIDES, "{most} bytes for {}", data.len());
});

/// The bytes that are allocated now.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most bytes that were allocated at once since this was last set.
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; the counters beside it touch no memory of others.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(held, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
