//! The allocator for all requests that no plan covers: best fit with coalescing over ranges of addresses.
//!
//! Problem: online storage allocation. Requests come one by one, nothing is known of the future, and no block moves.
//!
//! Paper: best fit with immediate coalescing, the best of the simple policies on real programs (Wilson, Johnstone,
//! Neely and Boles 1995; Johnstone and Wilson 1998).
//!
//! Steps: malloc takes the smallest hole (run of free bytes) that holds the request and cuts the request off its lower
//! end; free makes one hole of the block and of the holes that touch it. One search tree has all blocks and holes in
//! the order of their addresses, another has the holes in the order of their sizes. Each block and each hole is a
//! *node*, and has a number, counted from 1. A tree of sizes finds the smallest hole exactly, which classes of sizes,
//! as in TLSF (Masmano et al. 2004), do not. The pool serves only the few requests that a plan does not, where bytes
//! count more than nanoseconds.
//!
//! Ties: of equally large holes the one at the lowest address is taken.
//!
//! Cost: O(log n) expected for each call, with n blocks and holes. Each of them takes two 64-bit words and five 32-bit
//! indices; there is memory for two of them per live block.
//!
//! Limits: all addresses are multiples of one alignment, and sizes are rounded up to it.

use super::ranges::{Range, Ranges};
use super::treap::Treap;
use crate::error::Buffer;
use crate::table::Table;
use crate::{Error, Workspace, WorkspaceLen};

/// An allocator that serves requests one by one, without a plan, by best fit. A pool that [`new`](Self::new) makes has
/// the addresses `[0, capacity)`. The pool only computes which addresses are in use: it never reads or writes the
/// memory there.
pub struct Pool<'a> {
    alignment: u64,
    ranges: Ranges<'a>,
    /// Address and bytes; no node has the number 0.
    nodes: Table<'a, [u64; 2]>,
    /// By node: the caller's tag or [`HOLE`]; if unused, the next unused node, 0 at the end.
    tags: Table<'a, u32>,
    by_address: Treap<'a>,
    holes: Treap<'a>,
    unused: u32,
    fresh: u32,
    unused_count: u32,
    /// Kept back for [`dissolve`](Self::dissolve): for each part still in use, and each hole beside one.
    promised: u32,
    count: u32,
    /// `u32::MAX` if only the number of nodes limits the blocks.
    most: u32,
    live: u64,
    peak: u64,
    /// Of each range, all bytes up to the highest end so far, holes included.
    footprint: u64,
}

const HOLE: u32 = u32::MAX;

/// A hole below each block, and one above all in each range.
const fn nodes(live: usize, ranges: usize) -> usize {
    2 * live + ranges
}

impl<'a> Pool<'a> {
    /// Length of the workspace that a pool keeps, if at most `live` blocks are live at once.
    #[must_use]
    pub const fn workspace(live: usize) -> WorkspaceLen {
        Self::workspace_of(live, 1)
    }

    pub(super) const fn workspace_of(live: usize, ranges: usize) -> WorkspaceLen {
        let nodes = nodes(live, ranges);
        let trees = Treap::workspace(nodes).and(Treap::workspace(nodes));
        WorkspaceLen { words: 2 * (nodes + 1) + Ranges::words(ranges), indices: nodes + 1 }.and(trees)
    }

    /// A pool over the addresses `[0, capacity)`, in which nothing is allocated, for at most `live` blocks at once.
    /// Every address will be a multiple of `alignment` bytes. The workspace `memory` stays lent as long as the pool
    /// lives. The pool writes to most of it only when blocks need it. O(1).
    ///
    /// # Errors
    /// [`Error::Alignment`] if `alignment` is no power of two; [`Error::BufferTooSmall`] if the memory is shorter than
    /// [`workspace`](Self::workspace) says; [`Error::TooManyBlocks`] beyond 2²⁸ live blocks.
    ///
    /// ```
    /// use sublet_core::{Error, Pool, Workspace};
    /// let len = Pool::workspace(4);
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let mut pool = Pool::new(1024, 64, 4, Workspace::new(&mut words, &mut indices))?;
    /// let (a, b) = (pool.malloc(100)?, pool.malloc(100)?);
    /// assert_eq!((a, b), (0, 128));
    /// pool.free(a)?;
    /// assert_eq!(pool.malloc(1000), Err(Error::OutOfMemory { needed: 1024, largest: 768 }));
    /// assert_eq!(pool.malloc(64)?, 0);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(capacity: u64, alignment: u64, live: usize, memory: Workspace<'a>) -> Result<Self, Error> {
        let mut pool = Self::over(1, alignment, live, memory)?;
        pool.most = u32::try_from(live).unwrap_or(u32::MAX);
        pool.add(Range { begin: 0, bytes: capacity });
        Ok(pool)
    }

    pub(super) fn over(ranges: usize, alignment: u64, live: usize, mut memory: Workspace<'a>) -> Result<Self, Error> {
        if !alignment.is_power_of_two() {
            return Err(Error::Alignment { block: None, alignment });
        }
        if live > MOST_LIVE {
            return Err(Error::TooManyBlocks { needed: live, most: MOST_LIVE });
        }
        memory.check(Self::workspace_of(live, ranges))?;
        let nodes = nodes(live, ranges);
        let mut pool = Self {
            alignment,
            ranges: Ranges::new(ranges, &mut memory),
            nodes: memory.stale_word_records(nodes + 1),
            tags: memory.stale_indices(nodes + 1),
            by_address: Treap::new(nodes, &mut memory),
            holes: Treap::new(nodes, &mut memory),
            unused: 0,
            fresh: 1,
            unused_count: u32::try_from(nodes).unwrap_or(0),
            promised: 0,
            count: 0,
            most: u32::MAX,
            live: 0,
            peak: 0,
            footprint: 0,
        };
        (pool.nodes[0], pool.tags[0]) = ([0; 2], 0);
        Ok(pool)
    }

    pub(super) fn add(&mut self, range: Range) -> bool {
        let bytes = range.bytes & !(self.alignment - 1);
        let aligned = range.begin & (self.alignment - 1) == 0;
        if bytes == 0 || !aligned || self.ranges.room() == 0 || !self.ranges.add(range) {
            return false;
        }
        let whole = self.take_node(range.begin, bytes, HOLE);
        self.enter_hole(whole);
        true
    }

    pub(super) fn remove_empty(&mut self, iterations: u64) -> Option<Range> {
        let empty = |&i: &u32| {
            let Range { begin, bytes } = self.ranges.get(i);
            let node = self.by_address.at_most(&begin, by_address(&self.nodes));
            let whole = [begin, bytes & !(self.alignment - 1)];
            self.tags[node] == HOLE && self.nodes[node] == whole && self.ranges.age(i) >= iterations
        };
        let i = (0..self.ranges.count()).find(empty)?;
        let range = self.ranges.get(i);
        let node = self.by_address.at_most(&range.begin, by_address(&self.nodes));
        self.holes.remove(node, by_size(&self.nodes));
        self.by_address.remove(node, by_address(&self.nodes));
        self.give_node(node);
        self.ranges.remove(i);
        Some(range)
    }

    pub(super) fn grow_older(&mut self) {
        self.ranges.grow_older();
    }

    pub(super) const fn ranges(&self) -> &Ranges<'a> {
        &self.ranges
    }

    /// Allocates `bytes` bytes; returns the address of the new block, which shares no byte with a live block. O(log n).
    ///
    /// # Errors
    /// [`Error::ZeroSize`] if `bytes` is 0; [`Error::OutOfMemory`] if no run of free bytes is large enough;
    /// [`Error::BufferTooSmall`] if there are as many blocks as the pool can hold.
    pub fn malloc(&mut self, bytes: u64) -> Result<u64, Error> {
        self.malloc_tagged(bytes, 0)
    }

    pub(super) fn malloc_tagged(&mut self, bytes: u64, tag: u32) -> Result<u64, Error> {
        if bytes == 0 {
            return Err(Error::ZeroSize { block: 0 });
        }
        let out_of_memory = |pool: &Self, needed| Err(Error::OutOfMemory { needed, largest: pool.largest_hole() });
        let Some(size) = bytes.checked_next_multiple_of(self.alignment) else {
            return out_of_memory(self, bytes);
        };
        let node = self.holes.at_least(&(size, 0), by_size(&self.nodes));
        if node == 0 {
            return out_of_memory(self, size);
        }
        self.cut(node, self.nodes[node][0], size, tag)
    }

    /// `size` is a multiple of the pool's alignment and not 0, `alignment` a power of two above it.
    pub(super) fn malloc_aligned(&mut self, size: u64, alignment: u64) -> Result<u64, Error> {
        let enough = size.saturating_add(alignment.max(self.alignment) - self.alignment);
        for least in [size, enough] {
            let node = self.holes.at_least(&(least, 0), by_size(&self.nodes));
            let [begin, length] = self.nodes[node];
            let fits = |address: &u64| node != 0 && address - begin <= length - size;
            if let Some(address) = begin.checked_next_multiple_of(alignment).filter(fits) {
                return self.cut(node, address, size, 0);
            }
        }
        Err(Error::OutOfMemory { needed: enough, largest: self.largest_hole() })
    }

    pub(super) fn size_at(&self, address: u64) -> Option<u64> {
        let node = self.by_address.at_most(&address, by_address(&self.nodes));
        (node != 0 && self.nodes[node][0] == address && self.tags[node] != HOLE).then(|| self.nodes[node][1])
    }

    pub(super) fn reset_peaks(&mut self) {
        self.peak = self.live;
        for i in 0..self.ranges.count() {
            self.ranges.set_top(i, self.end_of_last(i));
        }
        self.footprint = self.ranges.used();
    }

    fn end_of_last(&self, range: u32) -> u64 {
        let Range { begin, bytes } = self.ranges.get(range);
        let last = self.by_address.at_most(&(begin + (bytes - 1)), by_address(&self.nodes));
        let [address, size] = self.nodes[last];
        if self.tags[last] == HOLE { address } else { address + size }
    }

    /// Whether a block of `size` bytes would end above all that blocks of its range have reached.
    pub(super) fn would_grow(&self, size: u64) -> bool {
        let hole = self.holes.at_least(&(size, 0), by_size(&self.nodes));
        let begin = self.nodes[hole][0];
        hole == 0 || begin.saturating_add(size) > self.ranges.touched(begin)
    }

    /// Calls `discard` with each run of free bytes that blocks have reached. O(blocks and holes so far).
    pub(super) fn discard(&mut self, mut discard: impl FnMut(Range)) {
        for hole in (1..self.fresh).filter(|&node| self.tags[node] == HOLE) {
            let [begin, bytes] = self.nodes[hole];
            let end = begin.saturating_add(bytes).min(self.ranges.touched(begin));
            if begin < end {
                discard(Range { begin, bytes: end - begin });
            }
        }
        for i in 0..self.ranges.count() {
            self.ranges.set_touched(i, self.end_of_last(i));
        }
    }

    /// Frees the block that begins at `address`. O(log n).
    ///
    /// # Errors
    /// [`Error::NotAllocated`] if no live block begins there.
    pub fn free(&mut self, address: u64) -> Result<(), Error> {
        self.free_tagged(address).map(drop)
    }

    pub(super) fn free_tagged(&mut self, address: u64) -> Result<u32, Error> {
        let node = self.by_address.at_most(&address, by_address(&self.nodes));
        let tag = self.tags[node];
        if node == 0 || self.nodes[node][0] != address || tag == HOLE {
            return Err(Error::NotAllocated { address });
        }
        let size = self.nodes[node][1];
        self.live -= size;
        self.count -= 1;
        self.tags[node] = HOLE;
        let end = address + size;
        let above = self.by_address.at_least(&end, by_address(&self.nodes));
        let is_next = above != 0 && self.nodes[above][0] == end && !self.ranges.begins_at(end);
        if is_next && self.tags[above] == HOLE {
            self.holes.remove(above, by_size(&self.nodes));
            self.by_address.remove(above, by_address(&self.nodes));
            self.nodes[node][1] += self.nodes[above][1];
            self.give_node(above);
        }
        // In a range there is a block or a hole below every address but the first.
        let first = self.ranges.begins_at(address);
        let below = if first { 0 } else { self.by_address.at_most(&(address - 1), by_address(&self.nodes)) };
        if below != 0 && self.tags[below] == HOLE {
            self.holes.remove(below, by_size(&self.nodes));
            self.by_address.remove(node, by_address(&self.nodes));
            self.nodes[below][1] += self.nodes[node][1];
            self.give_node(node);
            self.holes.insert(below, by_size(&self.nodes));
        } else {
            self.holes.insert(node, by_size(&self.nodes));
        }
        Ok(tag)
    }

    pub(super) fn set_aside(&mut self, bytes: u64, blocks: usize) -> Result<(u64, u64), Error> {
        self.promised = u32::try_from(2 * blocks).unwrap_or(u32::MAX);
        let begin = self.malloc(bytes).inspect_err(|_| self.promised = 0)?;
        Ok((begin, bytes.checked_next_multiple_of(self.alignment).unwrap_or(bytes)))
    }

    /// Whether what was set aside last may be dissolved into as many blocks.
    pub(super) fn is_set_aside_for(&self, blocks: usize) -> bool {
        u32::try_from(2 * blocks).is_ok_and(|promised| promised <= self.promised)
    }

    pub(super) fn dissolve(
        &mut self,
        begin: u64,
        mut parts: impl Iterator<Item = (u64, u64, u32)>,
    ) -> Result<(), Error> {
        self.free(begin)?;
        self.promised = 0;
        parts.try_for_each(|(offset, size, tag)| self.reserve(begin + offset, size, tag))
    }

    /// Both ends must be multiples of the alignment.
    fn reserve(&mut self, address: u64, size: u64, tag: u32) -> Result<(), Error> {
        let node = self.by_address.at_most(&address, by_address(&self.nodes));
        let [begin, length] = self.nodes[node];
        let fits = address.checked_add(size).is_some_and(|end| end <= begin + length);
        if node == 0 || self.tags[node] != HOLE || !fits {
            return Err(Error::OutOfMemory { needed: size, largest: self.largest_hole() });
        }
        self.cut(node, address, size, tag).map(drop)
    }

    /// The alignment of every address, in bytes.
    #[must_use]
    pub const fn alignment(&self) -> u64 {
        self.alignment
    }

    /// How many blocks are live.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The bytes of all live blocks; the size of each is rounded up to the alignment.
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.live
    }

    /// The most bytes that were live at once so far; the size of each block is rounded up to the alignment.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// The most memory that blocks have taken at any time so far, in bytes. The memory taken at one time is a sum over
    /// the ranges of addresses that there are at that time. Of each range it counts all bytes from the start to the
    /// highest end that a block in it has had until then, free bytes included.
    #[must_use]
    pub const fn footprint(&self) -> u64 {
        self.footprint
    }

    fn cut(&mut self, node: u32, address: u64, size: u64, tag: u32) -> Result<u64, Error> {
        let [begin, length] = self.nodes[node];
        let (below, above) = (address - begin, begin + length - (address + size));
        let needed = u32::from(below > 0) + u32::from(above > 0);
        // Each range that may still be added needs a node for its hole. These nodes are kept back.
        let nodes = needed.saturating_add(self.promised).saturating_add(self.ranges.room());
        if self.unused_count < nodes || self.count >= self.most {
            let live = (self.nodes.len() - 1).saturating_sub(self.ranges.most()) / 2;
            return Err(Error::BufferTooSmall { buffer: Buffer::Live, needed: live + 1, got: live });
        }
        self.holes.remove(node, by_size(&self.nodes));
        self.nodes[node] = [address, size];
        self.tags[node] = tag;
        if below > 0 {
            // The node keeps its place in the order of addresses: the new hole below it comes between it and its old
            // neighbour.
            let hole = self.take_node(begin, below, HOLE);
            self.enter_hole(hole);
        }
        if above > 0 {
            let hole = self.take_node(address + size, above, HOLE);
            self.enter_hole(hole);
        }
        self.count += 1;
        self.live += size;
        self.peak = self.peak.max(self.live);
        self.ranges.note_use(address, address + size);
        self.footprint = self.footprint.max(self.ranges.used());
        Ok(address)
    }

    fn largest_hole(&self) -> u64 {
        let node = self.holes.at_most(&(u64::MAX, u64::MAX), by_size(&self.nodes));
        self.nodes[node][1]
    }

    fn enter_hole(&mut self, node: u32) {
        self.by_address.insert(node, by_address(&self.nodes));
        self.holes.insert(node, by_size(&self.nodes));
    }

    fn take_node(&mut self, address: u64, size: u64, tag: u32) -> u32 {
        let node = if self.unused == 0 { self.fresh } else { self.unused };
        if self.unused == 0 {
            self.fresh += 1;
        } else {
            self.unused = self.tags[node];
        }
        debug_assert!(self.unused_count > 0, "the caller has counted");
        self.unused_count -= 1;
        self.nodes[node] = [address, size];
        self.tags[node] = tag;
        node
    }

    fn give_node(&mut self, node: u32) {
        self.tags[node] = self.unused;
        self.unused = node;
        self.unused_count += 1;
    }
}

const MOST_LIVE: usize = 1 << 28;

fn by_address(nodes: &Table<'_, [u64; 2]>) -> impl Fn(u32) -> u64 {
    |node| nodes[node][0]
}

fn by_size(nodes: &Table<'_, [u64; 2]>) -> impl Fn(u32) -> (u64, u64) {
    |node| (nodes[node][1], nodes[node][0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    fn pool(capacity: u64, alignment: u64, live: usize) -> Pool<'static> {
        let len = Pool::workspace(live);
        let memory = Workspace::new(vec![9; len.words].leak(), vec![9; len.indices].leak());
        Pool::new(capacity, alignment, live, memory).unwrap()
    }

    fn holes(live: &BTreeMap<u64, u64>, capacity: u64) -> Vec<(u64, u64)> {
        let mut end = 0;
        let mut holes = Vec::new();
        for (&address, &size) in live.iter().chain([(&capacity, &0)]) {
            if address > end {
                holes.push((end, address - end));
            }
            end = address + size;
        }
        holes
    }

    #[test]
    fn what_is_reserved_lies_in_one_hole() {
        let mut pool = pool(64, 8, 8);
        let refused = |needed, largest| Err(Error::OutOfMemory { needed, largest });
        assert_eq!(pool.reserve(0, 72, 0), refused(72, 64));
        assert_eq!(pool.reserve(32, 40, 0), refused(40, 64));
        assert_eq!(pool.reserve(56, u64::MAX - 7, 0), refused(u64::MAX - 7, 64));
        assert_eq!(pool.reserve(24, 16, 0), Ok(()));
        // Blocks that would reach over the end of the live block at 24, reach over its begin, and lie within it.
        assert_eq!(pool.reserve(32, 16, 0), refused(16, 24));
        assert_eq!(pool.reserve(16, 16, 0), refused(16, 24));
        assert_eq!(pool.reserve(24, 8, 0), refused(8, 24));
        assert_eq!(pool.reserve(40, 24, 0), Ok(()));
        assert_eq!(pool.live(), 40);
    }

    proptest! {
        #[test]
        fn is_best_fit_with_coalescing(
            steps in prop::collection::vec((any::<prop::sample::Index>(), prop::option::weighted(0.6, 1u64..300)), 1..200),
            alignment in prop::sample::select(vec![1u64, 8, 64]),
        ) {
            let capacity = 2048;
            let mut pool = pool(capacity, alignment, 40);
            let mut live = BTreeMap::new();
            for (which, bytes) in steps {
                if let Some(bytes) = bytes {
                    let size = bytes.next_multiple_of(alignment);
                    let best = holes(&live, capacity).into_iter().filter(|h| h.1 >= size).min_by_key(|h| (h.1, h.0));
                    match (pool.malloc(bytes), best) {
                        (Ok(address), Some(hole)) => {
                            prop_assert_eq!(address, hole.0);
                            live.insert(address, size);
                        }
                        (Err(Error::OutOfMemory { needed, largest }), None) => {
                            prop_assert_eq!(needed, size);
                            prop_assert_eq!(largest, holes(&live, capacity).iter().map(|h| h.1).max().unwrap_or(0));
                        }
                        (Err(Error::BufferTooSmall { buffer: Buffer::Live, needed: 41, got: 40 }), Some(_)) => {
                            prop_assert_eq!(live.len(), 40);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                } else if !live.is_empty() {
                    let address = *live.keys().nth(which.index(live.len())).unwrap();
                    if !live.contains_key(&(address + 1)) {
                        prop_assert_eq!(pool.free(address + 1), Err(Error::NotAllocated { address: address + 1 }));
                    }
                    prop_assert_eq!(pool.free(address), Ok(()));
                    prop_assert_eq!(pool.free(address), Err(Error::NotAllocated { address }));
                    live.remove(&address);
                }
                prop_assert_eq!(pool.live(), live.values().sum::<u64>());
            }
            for address in live.into_keys() {
                pool.free(address).unwrap();
            }
            prop_assert_eq!(pool.malloc(capacity), Ok(0));
        }

        #[test]
        fn dissolving_keeps_the_parts(
            before in 0u64..3,
            after in 0u64..3,
            cells in prop::collection::vec(any::<bool>(), 1..20),
            turn in any::<prop::sample::Index>(),
        ) {
            let size = 8 * cells.len() as u64;
            let mut pool = pool(24 + size + 24, 8, 16);
            let mut live = BTreeMap::new();
            for _ in 0..before {
                live.insert(pool.malloc(8).unwrap(), 8);
            }
            let (begin, len) = pool.set_aside(size, cells.len().div_ceil(2)).unwrap();
            prop_assert_eq!(len, size);
            for _ in 0..after {
                live.insert(pool.malloc(8).unwrap(), 8);
            }
            // The parts are the runs of cells that are set, beginning with any of them.
            let mut parts: Vec<(u64, u64, u32)> = Vec::new();
            for (i, _) in (0u64..).zip(&cells).filter(|(_, cell)| **cell) {
                match parts.last_mut() {
                    Some((offset, size, _)) if *offset + *size == 8 * i => *size += 8,
                    _ => parts.push((8 * i, 8, i as u32)),
                }
            }
            if !parts.is_empty() {
                let middle = turn.index(parts.len());
                parts.rotate_left(middle);
            }
            pool.dissolve(begin, parts.iter().copied()).unwrap();
            live.extend(parts.iter().map(|&(offset, size, _)| (begin + offset, size)));
            prop_assert_eq!(pool.live(), live.values().sum::<u64>());
            for &(offset, _, tag) in &parts {
                prop_assert_eq!(pool.free_tagged(begin + offset), Ok(tag));
                live.remove(&(begin + offset));
            }
            for address in live.into_keys() {
                pool.free(address).unwrap();
            }
            prop_assert_eq!(pool.malloc(48 + size), Ok(0));
        }
    }

    fn over(ranges: usize, alignment: u64, live: usize) -> Pool<'static> {
        let len = Pool::workspace_of(live, ranges);
        let memory = Workspace::new(vec![9; len.words].leak(), vec![9; len.indices].leak());
        Pool::over(ranges, alignment, live, memory).unwrap()
    }

    fn allocates_until_full(pool: &mut Pool<'_>) -> usize {
        (0..100).take_while(|_| pool.malloc(8).is_ok()).count()
    }

    #[test]
    fn nodes_for_the_parts_of_what_is_set_aside_are_kept_back() {
        let mut pool = over(1, 8, 6);
        pool.add(Range { begin: 0, bytes: 1 << 10 });
        let (begin, _) = pool.set_aside(64, 3).unwrap();
        // Of 13 nodes, one is the hole's, one the part's that is set aside, and six are promised.
        assert_eq!(allocates_until_full(&mut pool), 5);
        pool.dissolve(begin, [(8, 8, 0), (24, 8, 1), (40, 8, 2)].into_iter()).unwrap();
        assert_eq!((pool.count(), pool.live()), (8, 64));
    }

    #[test]
    fn what_could_not_be_set_aside_keeps_no_nodes() {
        let mut pool = over(1, 8, 3);
        pool.add(Range { begin: 0, bytes: 1 << 10 });
        assert!(matches!(pool.set_aside(1 << 11, 3), Err(Error::OutOfMemory { .. })));
        assert_eq!(allocates_until_full(&mut pool), 6);
    }

    #[test]
    fn a_pool_over_one_range_holds_as_many_blocks_as_were_asked_for() {
        let mut pool = pool(1 << 10, 8, 2);
        assert_eq!(allocates_until_full(&mut pool), 2);
        assert_eq!(pool.malloc(8), Err(Error::BufferTooSmall { buffer: Buffer::Live, needed: 3, got: 2 }));
    }

    #[test]
    fn a_range_begins_at_a_multiple_of_the_alignment() {
        let mut pool = over(2, 8, 2);
        assert!(!pool.add(Range { begin: 4, bytes: 64 }));
        assert_eq!(pool.malloc(8), Err(Error::OutOfMemory { needed: 8, largest: 0 }));
        assert!(pool.add(Range { begin: 8, bytes: 64 }));
        assert_eq!(pool.malloc(8), Ok(8));
    }

    #[test]
    fn peaks_begin_anew_at_what_is_live() {
        let mut pool = over(2, 8, 8);
        for begin in [0, 1 << 10] {
            pool.add(Range { begin, bytes: 64 });
        }
        let blocks = [32, 32, 16, 8].map(|bytes| pool.malloc(bytes).unwrap());
        assert_eq!(blocks, [0, 32, 1 << 10, (1 << 10) + 16]);
        assert_eq!((pool.peak(), pool.footprint()), (88, 88));
        pool.free(0).unwrap();
        pool.free((1 << 10) + 16).unwrap();
        // The first range is used to its end, by its last block; the second up to a hole.
        pool.reset_peaks();
        assert_eq!((pool.peak(), pool.footprint()), (48, 64 + 16));
    }

    #[test]
    fn edges_of_the_range() {
        assert_eq!(pool(0, 1, 2).malloc(1), Err(Error::OutOfMemory { needed: 1, largest: 0 }));
        assert_eq!(pool(7, 8, 2).malloc(1), Err(Error::OutOfMemory { needed: 8, largest: 0 }));
        let mut whole = pool(u64::MAX, 1, 2);
        assert_eq!(whole.malloc(u64::MAX), Ok(0));
        assert_eq!(whole.free(u64::MAX), Err(Error::NotAllocated { address: u64::MAX }));
        assert_eq!(whole.free(0), Ok(()));
        assert_eq!(whole.footprint(), u64::MAX);
        let refused = Pool::new(8, 3, 1, Workspace::new(&mut [], &mut [])).map(drop);
        assert_eq!(refused, Err(Error::Alignment { block: None, alignment: 3 }));
    }
}
