//! Naive checks of blocks and plans: they look at every pair of blocks, and count in numbers that cannot overflow.

use sublet_core::verify::Violation;
use sublet_core::{Block, Constraints};

/// Whether the blocks are what `sublet_core::check_blocks` asks for.
pub fn plannable(blocks: &[Block], alignment: u64) -> bool {
    let aligned = |b: &Block| b.alignment.max(alignment);
    let stacked: u128 = blocks.iter().map(|b| u128::from(b.size) + u128::from(aligned(b)) - 1).sum();
    let pinned = blocks.iter().filter_map(|b| b.pin.map(|pin| u128::from(pin) + u128::from(b.size))).max();
    alignment.is_power_of_two()
        && blocks.iter().all(|b| {
            b.size > 0
                && b.start < b.end
                && b.alignment.is_power_of_two()
                && b.pin.is_none_or(|pin| pin.is_multiple_of(aligned(b)))
        })
        && stacked + pinned.unwrap_or(0) < u128::from(u64::MAX)
}

/// Whether two pinned blocks are alive together and share an address.
pub fn pins_overlap(blocks: &[Block]) -> bool {
    let pinned: Vec<&Block> = blocks.iter().filter(|b| b.pin.is_some()).collect();
    pairs(pinned.len()).any(|(i, j)| {
        let place = |b: &Block| b.pin.unwrap_or_default();
        pinned[i].collides(pinned[j]) && share((pinned[i], place(pinned[i])), (pinned[j], place(pinned[j])))
    })
}

/// Whether the offsets are a plan.
pub fn accepts(blocks: &[Block], offsets: &[u64], constraints: &Constraints) -> bool {
    let alone = blocks.iter().zip(offsets).all(|(b, &offset)| {
        end(b, offset) <= u128::from(constraints.capacity.unwrap_or(u64::MAX))
            && offset.is_multiple_of(b.alignment)
            && offset.is_multiple_of(constraints.alignment)
            && b.pin.is_none_or(|pin| pin == offset)
    });
    let apart = |(i, j): (usize, usize)| {
        !blocks[i].collides(&blocks[j]) || !share((&blocks[i], offsets[i]), (&blocks[j], offsets[j]))
    };
    blocks.len() == offsets.len() && alone && pairs(blocks.len()).all(apart)
}

/// Whether the plan breaks a constraint as `violation` says, with the same figures.
pub fn breaks(blocks: &[Block], offsets: &[u64], constraints: &Constraints, violation: Violation) -> bool {
    let the = |block: u32| (&blocks[block as usize], offsets[block as usize]);
    match violation {
        Violation::EndOverflow { block, offset } => {
            the(block).1 == offset && end(the(block).0, offset) > u128::from(u64::MAX)
        }
        Violation::OverCapacity { block, end: told, capacity } => {
            constraints.capacity == Some(capacity) && end(the(block).0, the(block).1) == told.into() && told > capacity
        }
        Violation::Overlap { first, second, step } => {
            let (a, b) = (the(first), the(second));
            first < second && a.0.collides(b.0) && share(a, b) && step == a.0.start.max(b.0.start)
        }
        Violation::Misaligned { block, offset, alignment } => {
            the(block).1 == offset
                && alignment == the(block).0.alignment.max(constraints.alignment)
                && !offset.is_multiple_of(alignment)
        }
        Violation::Moved { block, offset, pin } => {
            the(block).1 == offset && the(block).0.pin == Some(pin) && pin != offset
        }
        _ => false,
    }
}

/// The highest end of a block.
pub fn peak(blocks: &[Block], offsets: &[u64]) -> u128 {
    blocks.iter().zip(offsets).map(|(b, &offset)| end(b, offset)).max().unwrap_or(0)
}

/// The most bytes that are alive at one step. The load is highest at the first step of some block, so that only these
/// steps are looked at.
pub fn max_load(blocks: &[Block]) -> u128 {
    let load = |step| blocks.iter().filter(|b| b.start <= step && step < b.end).map(|b| u128::from(b.size)).sum();
    blocks.iter().map(|b| load(b.start)).max().unwrap_or(0)
}

/// The least peak of all plans, found by trying all orders: in each, every block is placed above the earlier blocks
/// that it is alive with, as low as these and the pinned blocks allow. One of the orders is that of the offsets of an
/// optimal plan.
pub fn least_peak(blocks: &[Block], alignment: u64) -> u128 {
    let mut offsets: Vec<Option<u64>> = blocks.iter().map(|b| b.pin).collect();
    let (fixed, mut order): (Vec<usize>, Vec<usize>) = (0..blocks.len()).partition(|&i| blocks[i].pin.is_some());
    let mut least = u128::MAX;
    let count = order.len();
    permute(&mut order, count, &mut |order| {
        for &i in order {
            offsets[i] = None;
        }
        for (k, &i) in order.iter().enumerate() {
            let meets = |&&j: &&usize| blocks[i].collides(&blocks[j]);
            let top = |j: &usize| offsets[*j].map_or(0, |o| o + blocks[*j].size);
            let align = |offset: u64| offset.next_multiple_of(blocks[i].alignment.max(alignment));
            let mut offset = align(order[..k].iter().filter(meets).map(top).max().unwrap_or(0));
            let hit = |offset| {
                let shares = |j: &&usize| offsets[**j].is_some_and(|o| share((&blocks[i], offset), (&blocks[**j], o)));
                fixed.iter().filter(meets).find(shares).copied()
            };
            while let Some(j) = hit(offset) {
                offset = align(top(&j));
            }
            offsets[i] = Some(offset);
        }
        let placed: Vec<u64> = offsets.iter().map(|o| o.unwrap_or(0)).collect();
        least = least.min(peak(blocks, &placed));
    });
    least
}

fn permute(items: &mut [usize], len: usize, each: &mut impl FnMut(&[usize])) {
    if len < 2 {
        return each(items);
    }
    for i in 0..len {
        items.swap(i, len - 1);
        permute(items, len - 1, each);
        items.swap(i, len - 1);
    }
}

fn pairs(n: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..n).flat_map(move |i| (i + 1..n).map(move |j| (i, j)))
}

fn end(b: &Block, offset: u64) -> u128 {
    u128::from(offset) + u128::from(b.size)
}

fn share((a, at_a): (&Block, u64), (b, at_b): (&Block, u64)) -> bool {
    u128::from(at_a) < end(b, at_b) && u128::from(at_b) < end(a, at_a)
}
