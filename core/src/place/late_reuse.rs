//! Moves blocks off memory that died just before they begin, without raising the peak.
//!
//! Problem: backends that fuse operators, or run several at a time, first test whether one writes where another still
//! reads. A block that begins over memory that died within the last operators is then a false dependency. Among plans
//! of one peak, one with few of these is wanted: registers have the same problem, where it is called false reuse.
//!
//! Method: descent. In the order in which blocks begin, each block that is in a false dependency is moved to the free
//! place in which the fewest of its bytes' neighbours in time are just dead or just to come; the closer in time, the
//! more one counts. Places begin where a neighbour ends, or end where one begins. Repeated until no block moves, at most
//! twice. Pinned blocks stay, and so do those with more than 96 neighbours: they live long.
//!
//! Cost: O(n · (a + c²)) for n blocks, a of them alive at a step, and c at most 96; linear memory.

use super::interval::Sweep;
use super::support::align_up;
use crate::table::{Table, at, count};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

const PASSES: u32 = 2;
const NEAR: u32 = 96;
const MOST_NEAR: usize = NEAR as usize;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    Sweep::workspace(n).and(WorkspaceLen { words: 0, indices: n + MOST_NEAR })
}

/// Changes `offsets`, a valid plan, so that fewer blocks begin over memory that has died less than `distance` steps
/// before. No block ends above the end of the highest block before. `distance` 0 changes nothing.
pub(super) fn spread(
    blocks: &[Block],
    distance: u32,
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
) -> Result<(), Error> {
    let sweep = Sweep::new(blocks, scratch.split(Sweep::workspace(blocks.len())))?;
    let ends = blocks.iter().zip(&*offsets).map(|(b, &offset)| offset.saturating_add(b.size));
    let mut spread = Spread {
        blocks,
        by_start: sweep.by_start(),
        distance,
        alignment: constraints.alignment,
        peak: ends.max().unwrap_or(0),
        offsets: Table::new(offsets),
        alive: scratch.indices(blocks.len()),
        near: scratch.indices(MOST_NEAR),
    };
    for _ in 0..PASSES {
        if distance == 0 || !spread.pass() {
            break;
        }
    }
    Ok(())
}

const fn share(a: u64, a_size: u64, b: u64, b_size: u64) -> bool {
    a < b.saturating_add(b_size) && b < a.saturating_add(a_size)
}

struct Spread<'a> {
    blocks: &'a [Block],
    by_start: &'a [u32],
    distance: u32,
    alignment: u64,
    peak: u64,
    offsets: Table<'a, u64>,
    alive: Table<'a, u32>,
    near: Table<'a, u32>,
}

impl Spread<'_> {
    fn pass(&mut self) -> bool {
        let (mut alive, mut moved) = (0, false);
        for (after, &i) in (1..).zip(self.by_start) {
            let b = at(self.blocks, i);
            let mut kept = 0;
            for k in 0..alive {
                let j = self.alive[k];
                if at(self.blocks, j).end.saturating_add(self.distance) > b.start {
                    self.alive[kept] = j;
                    kept += 1;
                }
            }
            let later = self.by_start.get(after..).unwrap_or_default().iter();
            let later = later.take_while(|&&j| at(self.blocks, j).start < b.end.saturating_add(self.distance));
            if b.pin.is_none() && kept + 1 < count(self.blocks) {
                let mut near = 0;
                for &j in self.alive.first(kept).iter().chain(later).take(MOST_NEAR + 1) {
                    if near < NEAR {
                        self.near[near] = j;
                    }
                    near += 1;
                }
                moved |= near <= NEAR && self.improve(i, near);
            }
            self.alive[kept] = i;
            alive = kept + 1;
        }
        moved
    }

    /// Moves block `i`, which has `near` neighbours in time, to the best place; false if it stays.
    fn improve(&mut self, i: u32, near: u32) -> bool {
        let b = at(self.blocks, i);
        let Some(mut least) = self.price(i, self.offsets[i], near).filter(|&price| price > 0) else { return false };
        let (alignment, top) = (self.alignment.max(b.alignment), self.peak.saturating_sub(b.size));
        let mut moved = false;
        for k in 0..=near {
            let (begin, end) = match k.checked_sub(1) {
                None => (self.peak, 0),
                Some(k) => {
                    let j = self.near[k];
                    (self.offsets[j], self.offsets[j].saturating_add(at(self.blocks, j).size))
                }
            };
            let below = begin.checked_sub(b.size).map(|offset| offset & !(alignment - 1));
            for offset in [Some(align_up(end, alignment)), below].into_iter().flatten().filter(|&offset| offset <= top)
            {
                if let Some(price) = self.price(i, offset, near).filter(|&price| price < least) {
                    least = price;
                    self.offsets[i] = offset;
                    moved = true;
                }
            }
        }
        moved
    }

    /// What is just dead, or just to come, where block `i` would lie: each counts more the closer it is in time. `None`
    /// where memory is taken.
    fn price(&self, i: u32, offset: u64, near: u32) -> Option<u64> {
        let b = at(self.blocks, i);
        let mut price = 0u64;
        for &j in self.near.first(near) {
            let other = at(self.blocks, j);
            if !share(offset, b.size, self.offsets[j], other.size) {
                continue;
            }
            if b.collides(&other) {
                return None;
            }
            let apart = b.start.saturating_sub(other.end) + other.start.saturating_sub(b.end);
            price += u64::from(self.distance.saturating_sub(apart));
        }
        Some(price)
    }
}

#[cfg(test)]
mod tests;
