//! A lower bound on the cost of a placement in banks of memory: a placement that costs no more is the best.
//!
//! The *price* of a block in a bank is the bytes that are read from it and written to it, times the cost of a byte in
//! that bank.

use super::choice::{Candidate, Excess, choose};
use super::{Bank, Use, allowed, bank, price, shift};
use crate::place::support::align_up;
use crate::table::{at, count};
use crate::{Block, Workspace, sort};

/// The cheapest banks seen as one; their capacities are rounded up to the least of their alignments.
struct Fast<'a> {
    blocks: &'a [Block],
    uses: &'a [Use],
    banks: &'a [Bank],
    cost: u64,
    alignment: u64,
    capacity: u64,
}

impl<'a> Fast<'a> {
    fn new(blocks: &'a [Block], uses: &'a [Use], banks: &'a [Bank]) -> Self {
        let cost = banks.iter().map(|b| b.cost).min().unwrap_or(0);
        let fast = || banks.iter().filter(|b| b.cost == cost);
        let alignment = fast().map(|b| b.alignment).min().unwrap_or(1);
        let room = |b: &Bank| b.capacity.checked_next_multiple_of(alignment).unwrap_or(b.capacity);
        let capacity = fast().fold(0u64, |sum, b| sum.saturating_add(room(b)));
        Self { blocks, uses, banks, cost, alignment, capacity }
    }

    fn has(&self, k: u32) -> bool {
        bank(self.banks, k).cost == self.cost
    }

    fn size(&self, i: u32) -> u64 {
        align_up(at(self.blocks, i).size, self.alignment)
    }

    fn price(&self, i: u32, here: bool) -> Option<u128> {
        let banks = allowed(self.uses, self.banks, i).filter(|&k| self.has(k) == here);
        banks.map(|k| price(self.uses, self.banks, i, k)).min()
    }

    fn may(&self, i: u32) -> bool {
        self.price(i, true).is_some()
    }

    fn more(&self, i: u32) -> Option<u128> {
        Some(self.price(i, false)? - self.price(i, true)?)
    }
}

const FRACTION: u32 = 32;

pub(super) fn lower_bound(blocks: &[Block], uses: &[Use], banks: &[Bank], scratch: &mut Workspace<'_>) -> u128 {
    let n = count(blocks);
    let least = |i: u32| allowed(uses, banks, i).map(|k| price(uses, banks, i, k)).min().unwrap_or(0);
    let alone: u128 = (0..n).map(least).sum();
    let fast = Fast::new(blocks, uses, banks);
    let chosen = bound_by_choice(&fast, &mut scratch.reborrow());
    alone.saturating_add(chosen.max(bound_by_step(&fast, scratch)))
}

fn bound_by_choice(fast: &Fast<'_>, scratch: &mut Workspace<'_>) -> u128 {
    let n = fast.blocks.len();
    let (mut order, mut aside, mut taken) = (scratch.indices(n), scratch.indices(n), scratch.words(n.div_ceil(64)));
    let mut may = 0;
    let mut sum = 0;
    for i in 0..count(fast.blocks) {
        if fast.may(i) {
            order[may] = i;
            may += 1;
            sum += fast.more(i).unwrap_or(0);
        }
    }
    sort::by_key(&mut order, may, &mut aside, |i| at(fast.blocks, i).start.into());
    let shift = shift(sum.saturating_add(may.into()));
    let candidate = |i: u32| {
        let (b, more) = (at(fast.blocks, i), fast.more(i));
        // Rounded up: no choice gains more.
        let gain = more.map_or(0, |more| (more >> shift) + u128::from(more >> shift << shift < more));
        let gain = u64::try_from(gain).unwrap_or(u64::MAX);
        Candidate { start: b.start, end: b.end, size: fast.size(i), gain, forced: more.is_none() }
    };
    let scratch = scratch.reborrow();
    let found = choose(order.first(may), candidate, fast.capacity, Excess::Merged, scratch, &mut taken);
    // If `gain` is `None`, there is no placement at all, and any number is a lower bound.
    sum.saturating_sub(u128::from(found.gain.unwrap_or(0)) << shift)
}

/// What each byte adds is rounded down, so that the result is never above the exact one.
fn bound_by_step(fast: &Fast<'_>, scratch: &mut Workspace<'_>) -> u128 {
    let n = count(fast.blocks);
    let (mut by_rate, mut aside) = (scratch.indices(fast.blocks.len()), scratch.indices(fast.blocks.len()));
    sort::identity(&mut by_rate, n);
    let rate = |i: u32| {
        let scaled = fast.more(i).unwrap_or(0).min(u128::MAX >> FRACTION) << FRACTION;
        u64::try_from(scaled.checked_div(fast.size(i).into()).unwrap_or(0)).unwrap_or(u64::MAX)
    };
    sort::by_key(&mut by_rate, n, &mut aside, rate);
    let at_step = |step: u32| {
        let alive = |i: &u32| {
            let b = at(fast.blocks, *i);
            b.start <= step && step < b.end && fast.may(*i)
        };
        let load: u64 = (0..n).filter(alive).map(|i| fast.size(i)).sum();
        let (mut over, mut cost) = (load.saturating_sub(fast.capacity), 0u128);
        for i in by_rate.first(n).iter().copied().filter(alive) {
            // A block that may lie in no other bank stays.
            if fast.more(i).is_none() {
                continue;
            }
            let part = over.min(fast.size(i));
            cost = cost.saturating_add(u128::from(rate(i)) * u128::from(part));
            over -= part;
        }
        // Costs are whole numbers.
        cost.div_ceil(1 << FRACTION)
    };
    (0..n).map(|i| at_step(at(fast.blocks, i).start)).max().unwrap_or(0)
}
