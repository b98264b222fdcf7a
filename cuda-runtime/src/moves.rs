//! Moves blocks to other places within an arena.
//!
//! Problem: blocks lie in the arena or on the host, and have to come to other offsets in the arena, where other blocks
//! may still lie. In which order are they copied, and which have to be moved aside first?
//!
//! Steps: each block has a target, the bytes to which it has to come. The first block whose target is free is copied
//! there. If no target is free, the first block that overlaps with some target, another block's or its own, is moved
//! aside: to the lowest aligned bytes of the arena that no block takes now or in the end, or to the host if there are
//! none. There it is in no block's way, so that each block is moved aside at most once.
//!
//! Cost: O(n²) for each copy, where n blocks are still to be moved; O((n + t) log (n + t)) more, with t targets, for
//! each block that is moved aside. A block is always copied whole.

use std::ops::Range;

/// At this offset in bytes, or in the copy that the caller knows by this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    Device(u64),
    Host(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) from: Spot,
    pub(crate) to: Spot,
    pub(crate) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) from: Spot,
    pub(crate) to: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    fn occupied(&self) -> Option<Range<u64>> {
        match self.from {
            Spot::Device(from) => Some(from..from + self.bytes),
            Spot::Host(_) => None,
        }
    }

    fn target(&self) -> Range<u64> {
        self.to..self.to + self.bytes
    }
}

/// `targets` are the final places of all blocks. `aside` reserves bytes on the host.
pub(crate) fn untangle(
    mut pending: Vec<Pending>,
    targets: &[Range<u64>],
    (arena, alignment): (u64, u64),
    mut aside: impl FnMut(u64) -> usize,
) -> Vec<Move> {
    let mut moves = Vec::new();
    while !pending.is_empty() {
        let in_the_way = |p: &Pending| {
            let to = p.target();
            pending.iter().filter_map(Pending::occupied).any(|other| other.start < to.end && to.start < other.end)
        };
        let in_somebodys_way = |p: &Pending| {
            p.occupied().is_some_and(|own| pending.iter().any(|q| own.start < q.target().end && q.to < own.end))
        };
        if let Some(free) = pending.iter().position(|p| !in_the_way(p)) {
            let Pending { from, to, bytes } = pending.remove(free);
            moves.push(Move { from, to: Spot::Device(to), bytes });
        } else if let Some(first) = pending.iter().position(in_somebodys_way) {
            let taken = targets.iter().cloned().chain(pending.iter().filter_map(Pending::occupied)).collect();
            let Pending { from, bytes, .. } = pending[first];
            let spot = match hole(taken, bytes, arena, alignment) {
                Some(offset) => Spot::Device(offset),
                None => Spot::Host(aside(bytes)),
            };
            moves.push(Move { from, to: spot, bytes });
            pending[first].from = spot;
        }
    }
    moves
}

fn hole(mut taken: Vec<Range<u64>>, bytes: u64, arena: u64, alignment: u64) -> Option<u64> {
    taken.sort_unstable_by_key(|range| range.start);
    let mut free = 0u64;
    for range in taken.into_iter().chain(std::iter::once(arena..arena)) {
        if free.checked_add(bytes)? <= range.start {
            return Some(free);
        }
        free = free.max(range.end.checked_next_multiple_of(alignment)?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(from_to: &[(u64, u64)], bytes: u64, arena: u64) -> Vec<Move> {
        let pending = from_to.iter().map(|&(from, to)| Pending { from: Spot::Device(from), to, bytes }).collect();
        let targets: Vec<Range<u64>> = from_to.iter().map(|&(_, to)| to..to + bytes).collect();
        untangle(pending, &targets, (arena, 256), |_| 0)
    }

    const fn copy(from: u64, to: u64, bytes: u64) -> Move {
        Move { from: Spot::Device(from), to: Spot::Device(to), bytes }
    }

    #[test]
    fn an_overlap_of_any_length_is_in_the_way() {
        for overlap in [1, 255, 256, 257, 512] {
            let (bytes, second) = (512, 1024);
            let first_to = second + bytes - overlap;
            let expected = [copy(second, 4096, bytes), copy(0, first_to, bytes)];
            assert_eq!(moves(&[(0, first_to), (second, 4096)], bytes, 8192), expected, "{overlap}");
        }
        // And with its first bytes.
        for overlap in [1, 255, 256, 257, 511] {
            let (bytes, second) = (512, 1024);
            let first_to = second - bytes + overlap;
            let expected = [copy(second, 4096, bytes), copy(0, first_to, bytes)];
            assert_eq!(moves(&[(0, first_to), (second, 4096)], bytes, 8192), expected, "{overlap}");
        }
        // Blocks that only touch are not in each other's target.
        let expected = [copy(0, 1536, 512), copy(1024, 4096, 512)];
        assert_eq!(moves(&[(0, 1536), (1024, 4096)], 512, 8192), expected);
    }

    #[test]
    fn who_makes_way_is_aligned() {
        let bytes = 1000;
        let expected = [copy(0, 2048, bytes), copy(1024, 0, bytes), copy(2048, 1024, bytes)];
        assert_eq!(moves(&[(0, 1024), (1024, 0)], bytes, 4096), expected);
    }
}
