//! The planner of TensorFlow Lite, `ArenaPlanner`. First come the tensors that are alive all the time, then the others,
//! the largest first, of equal sizes the one that begins first. Each goes into the smallest gap that holds it.

use sublet_core::Block;

/// TensorFlow Lite aligns every tensor to this, in bytes.
const ALIGNMENT: u64 = 64;

/// The bytes that the arena takes.
#[must_use]
pub fn peak(blocks: &[Block]) -> u64 {
    let begin = blocks.iter().map(|b| b.start).min().unwrap_or(0);
    let end = blocks.iter().map(|b| b.end).max().unwrap_or(0);
    let always = |b: &Block| b.start == begin && b.end == end;
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| {
        let b = &blocks[i];
        if always(b) { (0, 0, 0) } else { (1, !b.size, b.start) }
    });
    let mut offsets = vec![0; blocks.len()];
    let mut placed: Vec<usize> = Vec::new();
    for i in order {
        let mut top = 0;
        let mut best: Option<(u64, u64)> = None;
        for &j in placed.iter().filter(|&&j| blocks[j].collides(&blocks[i])) {
            let gap = u64::saturating_sub(offsets[j], top);
            if gap >= blocks[i].size && best.is_none_or(|(least, _)| gap < least) {
                best = Some((gap, top));
            }
            top = top.max((offsets[j] + blocks[j].size).next_multiple_of(ALIGNMENT));
        }
        offsets[i] = best.map_or(top, |(_, offset)| offset);
        let place = placed.partition_point(|&j| offsets[j] <= offsets[i]);
        placed.insert(place, i);
    }
    blocks.iter().zip(&offsets).map(|(b, offset)| offset + b.size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_gap_is_taken() {
        let (long, short) = (Block::new(0, 9, 64), Block::new(0, 2, 256));
        let blocks = [long, short, Block::new(2, 9, 128), Block::new(3, 5, 64), Block::new(0, 2, 64)];
        // The long one at 0, the short one at 64; the third over the short one; two of 64 above.
        assert_eq!(peak(&blocks), 384);
        assert_eq!(peak(&[Block::new(0, 1, 1), Block::new(0, 1, 1)]), 65);
        assert_eq!(peak(&[]), 0);
    }
}
