//! Placement in several memories: which block lies in which bank, and where.
//!
//! Problem: banks have a capacity and a cost for each byte that is read or written; a block has a number of bytes that are
//! read and written while it is alive. Which blocks lie in which bank, so that all fit and the sum of bytes touched times
//! cost is least? With one fast bank and one without limit it is the interval scheduling problem with weights and
//! resources (temporal knapsack), which is NP-hard, and placement within a bank is dynamic storage allocation. `ExecuTorch`'s
//! `banked_greedy` gives the fast bank to the blocks of highest priority as they come.
//!
//! Steps:
//! 1. The *price* of a block in a bank is the bytes touched times the cost. In order of what is lost for each byte and step
//!    that it takes if it does not lie in its cheapest bank, each block goes to the cheapest of its banks in which it can be
//!    placed beside those that are there; what may lie in one bank alone comes first.
//! 2. Whether a bank can be placed within its capacity is asked of first fit by size, and by begin.
//! 3. Each block is tried in cheaper banks again, until none moves: what has come since may lie better.
//!
//! Lower bound: no block costs less than in its cheapest bank. And what is alive at one step lies in the banks at that
//! step: the bytes above the capacity of the cheapest bank are in more costly ones, those whose price rises least for a byte
//! first. The highest of all steps is the bound: a fractional knapsack for each step.
//!
//! Cost: O(n² banks) in the third step for each placement that is tried; linear workspace.

use super::align_up;
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, block, sort};

/// One of several memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Where it ends, in bytes.
    pub capacity: u64,
    /// What a byte costs that is read from it or written to it.
    pub cost: u64,
    /// Every offset in it is a multiple of this power of two, in bytes.
    pub alignment: u64,
}

/// How a block is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Bytes that are read and written while it is alive.
    pub touched: u64,
    /// The banks that it may lie in: bit k stands for bank k. Memory that only a DMA engine reaches is left out here.
    pub banks: u32,
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spot {
    /// Which bank.
    pub bank: u32,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// What a placement costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The sum of bytes touched times the cost of their bank.
    pub cost: u128,
    /// No placement costs less.
    pub lower_bound: u128,
}

/// The most banks.
pub const MOST_BANKS: usize = 32;

const NOWHERE: u32 = u32::MAX;

/// Length of the workspace of [`place`] for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: 5 * n, indices: 5 * n }
}

/// Gives every block a bank and an offset; `uses` and `spots` have an entry for each block.
///
/// # Errors
/// What [`block::check`] refuses; [`Error::Alignment`] for a bank's; [`Error::NoBank`] for a block that was left, since
/// nothing was found in which all fit; [`Error::BufferTooSmall`].
///
/// ```
/// use sublet_core::place::banks::{self, Bank, Spot, Use};
/// use sublet_core::{Block, Workspace};
/// let banks = [Bank { capacity: 8, cost: 1, alignment: 1 }, Bank { capacity: 64, cost: 4, alignment: 1 }];
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
/// let uses = [Use { touched: 100, banks: 3 }, Use { touched: 10, banks: 3 }];
/// let len = banks::workspace(2);
/// let (mut words, mut indices, mut spots) = (vec![0; len.words], vec![0; len.indices], [Spot::default(); 2]);
/// let found = banks::place(&blocks, &uses, &banks, Workspace::new(&mut words, &mut indices), &mut spots)?;
/// assert_eq!((found.cost, found.lower_bound), (140, 140));
/// assert_eq!(spots, [Spot { bank: 0, offset: 0 }, Spot { bank: 1, offset: 0 }]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn place(
    blocks: &[Block],
    uses: &[Use],
    banks: &[Bank],
    mut scratch: Workspace<'_>,
    spots: &mut [Spot],
) -> Result<Cost, Error> {
    block::check(blocks, 1)?;
    for got in [uses.len(), spots.len()] {
        if got != blocks.len() {
            return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got });
        }
    }
    scratch.check(workspace(blocks.len()))?;
    if let Some(bank) = banks.iter().find(|b| !b.alignment.is_power_of_two()) {
        return Err(Error::Alignment { block: None, alignment: bank.alignment });
    }
    let banks = banks.get(..MOST_BANKS).unwrap_or(banks);
    let n = blocks.len();
    let lower_bound = lower_bound(blocks, uses, banks, &mut scratch.reborrow());
    let mut packing = Packing {
        blocks,
        uses,
        banks,
        bank: scratch.indices(n),
        offset: scratch.words(n),
        order: scratch.indices(n),
        placed: scratch.indices(n),
        forbidden: scratch.word_records(n),
    };
    packing.bank.fill(NOWHERE);
    let (mut by_loss, mut aside) = (scratch.indices(n), scratch.indices(n));
    sort::identity(&mut by_loss, count(blocks));
    sort::by_key(&mut by_loss, count(blocks), &mut aside, |i| !packing.loss(i));
    for place in 0..count(blocks) {
        packing.admit(by_loss[place])?;
    }
    // What came late may have found its bank taken by what could go elsewhere: all are tried again.
    let mut again = true;
    while again {
        again = false;
        for place in 0..count(blocks) {
            again |= packing.promote(by_loss[place]);
        }
    }
    for k in 0..count(banks) {
        packing.pack(k);
    }
    let mut cost = 0;
    for (i, spot) in (0..).zip(spots) {
        *spot = Spot { bank: packing.bank[i], offset: packing.offset[i] };
        cost += packing.price(i, spot.bank);
    }
    Ok(Cost { cost, lower_bound })
}

struct Packing<'a> {
    blocks: &'a [Block],
    uses: &'a [Use],
    banks: &'a [Bank],
    bank: Table<'a, u32>,
    offset: Table<'a, u64>,
    order: Table<'a, u32>,
    placed: Table<'a, u32>,
    forbidden: Table<'a, [u64; 2]>,
}

impl Packing<'_> {
    fn price(&self, i: u32, bank: u32) -> u128 {
        price(self.uses, self.banks, i, bank)
    }

    /// What is lost for each byte and step if a block does not lie in its cheapest bank, in 2⁻¹⁶.
    fn loss(&self, i: u32) -> u64 {
        let prices = || allowed(self.uses, self.banks, i).map(|k| self.price(i, k));
        let least = prices().min().unwrap_or(0);
        let Some(next) = prices().filter(|&p| p > least).min() else {
            // One that may lie nowhere else comes first.
            return if prices().count() == 1 { u64::MAX } else { 0 };
        };
        let b = at(self.blocks, i);
        let room = u128::from(b.size) * u128::from(b.width());
        u64::try_from(((next - least) << 16).checked_div(room).unwrap_or(0)).unwrap_or(u64::MAX - 1)
    }

    /// Puts a block into the cheapest of its banks that can then be placed.
    fn admit(&mut self, i: u32) -> Result<(), Error> {
        if self.move_below(i, u128::MAX) {
            return Ok(());
        }
        let most = allowed(self.uses, self.banks, i).map(|k| bank(self.banks, k).capacity).max().unwrap_or(0);
        Err(Error::NoBank { block: i, size: at(self.blocks, i).size, most })
    }

    /// Puts a block into a cheaper bank than it lies in, if that can be placed.
    fn promote(&mut self, i: u32) -> bool {
        let now = self.price(i, self.bank[i]);
        self.move_below(i, now)
    }

    /// Tries the banks whose price is below `most`, the cheapest first, of equal ones the first.
    fn move_below(&mut self, i: u32, most: u128) -> bool {
        let before = self.bank[i];
        let mut last: Option<(u128, u32)> = None;
        loop {
            let next = allowed(self.uses, self.banks, i).map(|k| (self.price(i, k), k));
            let next = next.filter(|&way| way.0 < most && last.is_none_or(|last| way > last)).min();
            let Some(way) = next else {
                self.bank[i] = before;
                return false;
            };
            self.bank[i] = way.1;
            if self.pack(way.1) {
                return true;
            }
            last = Some(way);
        }
    }

    /// Places the blocks of a bank; whether they fit, in one of two orders.
    fn pack(&mut self, k: u32) -> bool {
        let mut members = 0;
        for i in 0..count(self.blocks) {
            if self.bank[i] == k {
                self.order[members] = i;
                members += 1;
            }
        }
        let blocks = self.blocks;
        let keys: [&dyn Fn(u32) -> u64; 2] = [&|i| !at(blocks, i).size, &|i| at(blocks, i).start.into()];
        for key in keys {
            sort::by_key(&mut self.order, members, &mut self.placed, key);
            if self.first_fit(k, members) {
                return true;
            }
        }
        false
    }

    fn first_fit(&mut self, k: u32, members: u32) -> bool {
        let Bank { capacity, alignment, .. } = bank(self.banks, k);
        for placed in 0..members {
            let i = self.order[placed];
            let b = at(self.blocks, i);
            let alignment = alignment.max(b.alignment);
            let mut near = 0;
            for p in 0..placed {
                let other = at(self.blocks, self.order[p]);
                if b.collides(&other) {
                    let begin = self.offset[self.order[p]];
                    self.forbidden[near] = [begin, begin + other.size];
                    near += 1;
                }
            }
            sort::in_place(&mut self.forbidden, near);
            let mut offset = 0;
            for p in 0..near {
                let [begin, end] = self.forbidden[p];
                if begin >= offset + b.size {
                    break;
                }
                offset = offset.max(align_up(end, alignment));
            }
            self.offset[i] = offset;
            if offset.checked_add(b.size).is_none_or(|end| end > capacity) {
                return false;
            }
        }
        true
    }
}

fn bank(banks: &[Bank], k: u32) -> Bank {
    let place = usize::try_from(k).unwrap_or(usize::MAX);
    banks.get(place).copied().unwrap_or(Bank { capacity: 0, cost: 0, alignment: 1 })
}

fn use_of(uses: &[Use], i: u32) -> Use {
    let place = usize::try_from(i).unwrap_or(usize::MAX);
    uses.get(place).copied().unwrap_or(Use { touched: 0, banks: 0 })
}

/// The banks that a block may lie in.
fn allowed(uses: &[Use], banks: &[Bank], i: u32) -> impl Iterator<Item = u32> {
    let mask = use_of(uses, i).banks;
    (0..count(banks)).filter(move |&k| mask >> k & 1 == 1)
}

fn price(uses: &[Use], banks: &[Bank], i: u32, k: u32) -> u128 {
    u128::from(use_of(uses, i).touched) * u128::from(bank(banks, k).cost)
}

/// The cost that no placement is below.
fn lower_bound(blocks: &[Block], uses: &[Use], banks: &[Bank], scratch: &mut Workspace<'_>) -> u128 {
    let n = count(blocks);
    let prices = |i: u32| allowed(uses, banks, i).map(move |k| price(uses, banks, i, k));
    let least = |i: u32| prices(i).min().unwrap_or(0);
    let alone: u128 = (0..n).map(least).sum();
    // What it costs more, at least, if a block is in none of the banks that are cheapest of all.
    let cheapest = banks.iter().map(|b| b.cost).min().unwrap_or(0);
    let fast = |k: u32| bank(banks, k).cost == cheapest;
    let capacity = banks.iter().filter(|b| b.cost == cheapest).fold(0u64, |sum, b| sum.saturating_add(b.capacity));
    let more = |i: u32| {
        let other = allowed(uses, banks, i).filter(|&k| !fast(k)).map(|k| price(uses, banks, i, k)).min();
        let may = allowed(uses, banks, i).any(fast);
        may.then(|| other.map(|other| other - least(i)))
    };
    let (mut by_rate, mut aside) = (scratch.indices(blocks.len()), scratch.indices(blocks.len()));
    sort::identity(&mut by_rate, n);
    let rate = |i: u32| {
        let scaled = more(i).flatten().unwrap_or(0) << 16;
        u64::try_from(scaled.checked_div(at(blocks, i).size.into()).unwrap_or(0)).unwrap_or(u64::MAX)
    };
    sort::by_key(&mut by_rate, n, &mut aside, rate);
    let at_step = |step: u32| {
        let alive = |i: &u32| at(blocks, *i).start <= step && step < at(blocks, *i).end && more(*i).is_some();
        let load: u64 = (0..n).filter(alive).map(|i| at(blocks, i).size).sum();
        let (mut over, mut cost) = (load.saturating_sub(capacity), 0u128);
        for i in by_rate.first(n).iter().copied().filter(alive) {
            let size = at(blocks, i).size;
            // One that may lie in nothing else stays, and is no part of what leaves.
            let Some(price) = more(i).flatten() else { continue };
            let part = over.min(size);
            cost += (price * u128::from(part)).checked_div(size.into()).unwrap_or(0);
            over -= part;
        }
        cost
    };
    alone + (0..n).map(|i| at_step(at(blocks, i).start)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn run(blocks: &[Block], uses: &[Use], banks: &[Bank]) -> Result<(Cost, Vec<Spot>), Error> {
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        let mut spots = vec![Spot::default(); blocks.len()];
        place(blocks, uses, banks, Workspace::new(&mut words, &mut indices), &mut spots).map(|cost| (cost, spots))
    }

    /// The least cost of all choices of banks in which each bank's load is within its capacity: no placement is cheaper.
    fn least_by_load(blocks: &[Block], uses: &[Use], banks: &[Bank]) -> u128 {
        let choices = banks.len().pow(u32::try_from(blocks.len()).unwrap());
        let cost = |choice: usize| {
            let bank = |i: usize| choice / banks.len().pow(u32::try_from(i).unwrap()) % banks.len();
            let fits = (0..banks.len()).all(|k| {
                blocks.iter().all(|b| {
                    let own = blocks
                        .iter()
                        .enumerate()
                        .filter(|(i, c)| bank(*i) == k && c.start <= b.start && b.start < c.end);
                    own.map(|(_, c)| c.size).sum::<u64>() <= banks[k].capacity
                })
            });
            let allowed = (0..blocks.len()).all(|i| uses[i].banks >> bank(i) & 1 == 1);
            let sum = (0..blocks.len()).map(|i| u128::from(uses[i].touched * banks[bank(i)].cost)).sum();
            (fits && allowed).then_some(sum)
        };
        (0..choices).filter_map(cost).min().unwrap_or(u128::MAX)
    }

    proptest! {
        #[test]
        fn blocks_are_apart_in_their_banks_and_the_bound_is_below_the_least(
            rows in prop::collection::vec((0u32..6, 1u32..4, 1u64..20, 0u64..50, 0u32..4), 1..8),
            capacity in 1u64..60, costs in (1u64..4, 4u64..9),
        ) {
            let blocks: Vec<Block> = rows.iter().map(|&(start, width, size, ..)| Block::new(start, start + width, size)).collect();
            let uses: Vec<Use> =
                rows.iter().map(|r| Use { touched: r.3, banks: if r.4 == 0 { 2 } else { 3 } }).collect();
            let banks = [
                Bank { capacity, cost: costs.0, alignment: 4 },
                Bank { capacity: 1000, cost: costs.1, alignment: 1 },
            ];
            let (cost, spots) = run(&blocks, &uses, &banks).unwrap();
            for (i, (b, spot)) in blocks.iter().zip(&spots).enumerate() {
                let bank = banks[spot.bank as usize];
                prop_assert!(spot.offset + b.size <= bank.capacity && spot.offset % bank.alignment == 0);
                prop_assert!(uses[i].banks >> spot.bank & 1 == 1);
                for (c, other) in blocks.iter().zip(&spots).take(i).filter(|(_, o)| o.bank == spot.bank) {
                    let apart = spot.offset + b.size <= other.offset || other.offset + c.size <= spot.offset;
                    prop_assert!(apart || !b.collides(c));
                }
            }
            let sum: u128 = uses.iter().zip(&spots).map(|(u, s)| u128::from(u.touched * banks[s.bank as usize].cost)).sum();
            prop_assert_eq!(cost.cost, sum);
            let least = least_by_load(&blocks, &uses, &banks);
            prop_assert!(cost.lower_bound <= least && least <= cost.cost, "{} {} {}", cost.lower_bound, least, cost.cost);
        }
    }

    #[test]
    fn what_fits_nowhere_is_an_error() {
        let banks = [Bank { capacity: 8, cost: 1, alignment: 1 }];
        let uses = [Use { touched: 1, banks: 1 }];
        let refused = run(&[Block::new(0, 1, 9)], &uses, &banks);
        assert_eq!(refused.unwrap_err(), Error::NoBank { block: 0, size: 9, most: 8 });
        // A bank that is not there.
        let refused = run(&[Block::new(0, 1, 1)], &[Use { touched: 1, banks: 2 }], &banks);
        assert_eq!(refused.unwrap_err(), Error::NoBank { block: 0, size: 1, most: 0 });
        let odd = [Bank { alignment: 3, ..banks[0] }];
        assert_eq!(
            run(&[Block::new(0, 1, 1)], &uses, &odd).unwrap_err(),
            Error::Alignment { block: None, alignment: 3 }
        );
    }

    #[test]
    fn what_is_touched_most_for_its_room_is_fast() {
        let banks = [Bank { capacity: 10, cost: 1, alignment: 1 }, Bank { capacity: 100, cost: 5, alignment: 1 }];
        // A large one that is touched a little more than two small ones together need room for.
        let blocks = [Block::new(0, 4, 10), Block::new(0, 2, 10), Block::new(2, 4, 10)];
        let touched = |touched| Use { touched, banks: 3 };
        let (cost, spots) = run(&blocks, &[touched(15), touched(10), touched(10)], &banks).unwrap();
        assert_eq!((spots[0].bank, spots[1].bank, spots[2].bank), (1, 0, 0));
        assert_eq!(cost.cost, 75 + 10 + 10);
        // Nothing else may take the room of one that has no other bank.
        let (_, spots) = run(&blocks, &[Use { touched: 0, banks: 1 }, touched(10), touched(10)], &banks).unwrap();
        assert_eq!((spots[0].bank, spots[1].bank, spots[2].bank), (0, 1, 1));
    }
}
