//! ExecuTorch's planners, as `exir/memory_planning.py` and `exir/banked_memory_planning.py` of its version 1.5.1 have
//! them: `greedy`, and `banked_greedy` for several memories.
//!
//! Both take the largest block first, and of equal ones the one that came last. A bank is a row of objects, each as
//! large as the block that it was made for. A block goes to the begin of the first object whose members all live at
//! other times; else into the first object that has room for it above all members that live at its time; else it gets
//! an object of its own. `banked_greedy` asks each bank in turn, and makes an object only where the bank has room for
//! it.

use sublet_core::Block;

/// `ExecuTorch` aligns every tensor to this, in bytes.
const ALIGNMENT: u64 = 16;

/// A piece of a bank, and the blocks that lie in it.
struct Object {
    bytes: u64,
    members: Vec<Member>,
}

/// A block at an offset of its object.
#[derive(Clone, Copy)]
struct Member {
    block: Block,
    offset: u64,
}

/// The bytes that `greedy` takes.
#[must_use]
pub fn greedy(blocks: &[Block]) -> Option<u64> {
    banked_greedy(blocks, &[u64::MAX]).map(|banks| banks.bytes[0])
}

/// The placement of `banked_greedy`.
pub struct Banked {
    /// The bank of each block.
    pub bank: Vec<usize>,
    /// The bytes of each bank that are taken.
    pub bytes: Vec<u64>,
}

/// Fills banks of these capacities, the fastest first; none if a block fits in none of them.
#[must_use]
pub fn banked_greedy(blocks: &[Block], capacities: &[u64]) -> Option<Banked> {
    let size = |i: usize| blocks[i].size.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
    let mut order: Vec<usize> = (0..blocks.len()).rev().collect();
    order.sort_by_key(|&i| std::cmp::Reverse(size(i)));
    let mut objects: Vec<Vec<Object>> = capacities.iter().map(|_| Vec::new()).collect();
    let mut found = Banked { bank: vec![0; blocks.len()], bytes: vec![0; capacities.len()] };
    for i in order {
        let block = Block { size: size(i), ..blocks[i] };
        found.bank[i] = (0..capacities.len()).find(|&k| {
            if let Some((object, offset)) = reuse(&objects[k], &block) {
                objects[k][object].members.push(Member { block, offset });
                return true;
            }
            let fits = found.bytes[k].checked_add(block.size).filter(|&bytes| bytes <= capacities[k]);
            if let Some(bytes) = fits {
                found.bytes[k] = bytes;
                objects[k].push(Object { bytes: block.size, members: vec![Member { block, offset: 0 }] });
            }
            fits.is_some()
        })?;
    }
    Some(found)
}

/// The object, and the offset in it, where a block fits besides the members.
fn reuse(objects: &[Object], block: &Block) -> Option<(usize, u64)> {
    // The highest end of the members that live at the block's time; none if there is no such member.
    let top = |o: &Object| o.members.iter().filter(|m| m.block.collides(block)).map(|m| m.offset + m.block.size).max();
    let alone = objects.iter().position(|o| o.bytes >= block.size && top(o).is_none());
    let above = || {
        let place = objects.iter().position(|o| top(o).is_some_and(|top| top + block.size <= o.bytes))?;
        Some((place, top(&objects[place])?))
    };
    alone.map(|place| (place, 0)).or_else(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_where_nobody_lives_then_above_those_who_do() {
        // The third takes the begin of the first's object, the fourth lies above the third in it.
        let blocks = [Block::new(0, 1, 64), Block::new(0, 2, 48), Block::new(1, 3, 32), Block::new(2, 4, 16)];
        assert_eq!(greedy(&blocks), Some(64 + 48));
        // One that lives with a member of each object, and has no room above it, gets its own.
        assert_eq!(greedy(&[Block::new(0, 2, 64), Block::new(1, 3, 17)]), Some(64 + 32));
        assert_eq!(greedy(&[]), Some(0));
    }

    #[test]
    fn of_equal_sizes_the_last_one_has_the_fast_bank() {
        let blocks = [Block::new(0, 2, 16), Block::new(0, 2, 16), Block::new(0, 2, 16)];
        let found = banked_greedy(&blocks, &[16, 32]).unwrap();
        assert_eq!((found.bank, found.bytes), (vec![1, 1, 0], vec![16, 32]));
        assert!(banked_greedy(&blocks, &[16, 16]).is_none());
    }

    #[test]
    fn what_fits_beside_others_costs_a_bank_nothing() {
        // The small one lives after the large one, in its object.
        let blocks = [Block::new(0, 2, 64), Block::new(2, 4, 16), Block::new(0, 4, 32)];
        let found = banked_greedy(&blocks, &[64, 64]).unwrap();
        assert_eq!((found.bank, found.bytes), (vec![0, 0, 1], vec![64, 32]));
    }
}
