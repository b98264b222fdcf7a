//! Placement of a few blocks in several banks of memory, decided exactly.
//!
//! Problem: that of [`super`] for at most [`MOST_BLOCKS`] blocks: the placement of least cost, or the proof that there is
//! none.
//!
//! Method: depth first. Each block in turn gets each of its banks, pinned blocks first, then those that lose most
//! elsewhere. A branch ends where its price plus the least prices of the blocks to come is not below the best cost, or
//! where a bank cannot hold its set of blocks, which is decided once for each set: pinned blocks are laid out first. Then,
//! of the blocks to come, let c be the one that would end lowest if each lay as low as possible. In a plan in which no
//! block can move down alone, either c lies there, or a block that is alive with c lies as low as possible and begins below
//! that end (active schedules, Giffler and Thompson 1960). There is a branch for each of these.
//!
//! Cost: exponential in the number of blocks. After [`MOST_NODES`] nodes nothing more is decided.

use super::{MOST_BANKS, Packing, allowed, price};
use crate::table::{Table, at, count};
use crate::{Workspace, WorkspaceLen};

pub(super) const MOST_BLOCKS: usize = 12;
const MOST_NODES: u32 = 1 << 18;

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let sets = if n > MOST_BLOCKS { 0 } else { 1 << n };
    WorkspaceLen { words: 0, indices: 2 * sets + n + 2 * MOST_BANKS }
}

#[derive(Clone, Copy)]
pub(super) struct Decided {
    /// `None` if nothing was found below the cost that was known; else `packing` has the placement.
    pub(super) cost: Option<u128>,
    /// Whether nothing costs less.
    pub(super) is_proved: bool,
}

pub(super) fn decide(
    packing: &mut Packing<'_>,
    known: Option<u128>,
    by_loss: &Table<'_, u32>,
    mut scratch: Workspace<'_>,
) -> Decided {
    let (n, blocks) = (packing.blocks.len(), packing.blocks);
    let mut turns = scratch.indices(n);
    let all = by_loss.first(count(blocks)).iter().copied();
    let of = |pinned: bool| all.clone().filter(move |&i| at(blocks, i).pin.is_some() == pinned);
    for (turn, i) in (0..).zip(of(true).chain(of(false))) {
        turns[turn] = i;
    }
    let [fits, refused] = [(); 2].map(|()| scratch.indices(1 << n));
    let [members, best] = [(); 2].map(|()| scratch.indices(MOST_BANKS));
    let mut search =
        Search { packing, turns, fits, refused, members, best, least: known, found: false, nodes: MOST_NODES };
    search.assign(0, 0);
    let Search { found, least, nodes, .. } = search;
    for k in (0..count(search.packing.banks)).filter(|_| found) {
        search.nodes = MOST_NODES;
        // It succeeds: this set has been laid out before, in the same way.
        search.lay_out(k, search.best[k]);
        for i in bits(search.best[k]) {
            search.packing.bank[i] = k;
        }
    }
    Decided { cost: least.filter(|_| found), is_proved: nodes > 0 }
}

/// A set of blocks has bit i for block i.
struct Search<'a, 'b> {
    packing: &'a mut Packing<'b>,
    turns: Table<'a, u32>,
    /// By set, a bit for each bank that can hold it.
    fits: Table<'a, u32>,
    refused: Table<'a, u32>,
    /// By bank, its set of blocks.
    members: Table<'a, u32>,
    best: Table<'a, u32>,
    least: Option<u128>,
    found: bool,
    /// What is left; 0 once the search has given up.
    nodes: u32,
}

impl Search<'_, '_> {
    fn assign(&mut self, turn: u32, cost: u128) {
        let (uses, banks) = (self.packing.uses, self.packing.banks);
        let least_of = |i: u32| allowed(uses, banks, i).map(|k| price(uses, banks, i, k)).min().unwrap_or(0);
        let rest: u128 = (turn..count(self.packing.blocks)).map(|turn| least_of(self.turns[turn])).sum();
        if self.least.is_some_and(|least| cost + rest >= least) || !self.spend() {
            return;
        }
        if turn == count(self.packing.blocks) {
            (self.least, self.found) = (Some(cost), true);
            self.best.copy_from(&self.members);
            return;
        }
        let i = self.turns[turn];
        let mut last = None;
        while let Some(next) =
            allowed(uses, banks, i).map(|k| (price(uses, banks, i, k), k)).filter(|&w| last < Some(w)).min()
        {
            last = Some(next);
            let (price, k) = next;
            let before = self.members[k];
            let set = before | 1 << i;
            if self.holds(k, set) {
                self.members[k] = set;
                self.assign(turn + 1, cost + price);
                self.members[k] = before;
            }
        }
    }

    fn holds(&mut self, k: u32, set: u32) -> bool {
        if self.refused[set] >> k & 1 == 0 && self.fits[set] >> k & 1 == 0 {
            if self.lay_out(k, set) {
                self.fits[set] |= 1 << k;
            } else {
                self.refused[set] |= 1 << k;
            }
        }
        self.fits[set] >> k & 1 == 1
    }

    fn lay_out(&mut self, k: u32, set: u32) -> bool {
        let blocks = self.packing.blocks;
        let (mut placed, mut open) = (0, set);
        for i in bits(set).filter(|&i| at(blocks, i).pin.is_some()) {
            let Some(offset) = self.packing.lowest(k, i, placed) else { return false };
            self.packing.put(i, offset, &mut placed);
            open &= !(1 << i);
        }
        self.settle(k, open, placed)
    }

    fn settle(&mut self, k: u32, open: u32, mut placed: u32) -> bool {
        if open == 0 {
            return true;
        }
        if !self.spend() {
            return false;
        }
        let blocks = self.packing.blocks;
        let (mut first, mut first_end) = (0, u64::MAX);
        for i in bits(open) {
            let Some(offset) = self.packing.lowest(k, i, placed) else { return false };
            let end = offset + at(blocks, i).size;
            if end < first_end {
                (first, first_end) = (i, end);
            }
        }
        for i in bits(open).filter(|&i| i == first || at(blocks, i).collides(&at(blocks, first))) {
            let before = placed;
            let Some(offset) = self.packing.lowest(k, i, placed).filter(|&offset| offset < first_end) else { continue };
            self.packing.put(i, offset, &mut placed);
            if self.settle(k, open & !(1 << i), placed) {
                return true;
            }
            placed = before;
        }
        false
    }

    fn spend(&mut self) -> bool {
        self.nodes = self.nodes.saturating_sub(1);
        self.nodes > 0
    }
}

fn bits(mut set: u32) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = set.trailing_zeros();
        set &= set.wrapping_sub(1);
        (bit < u32::BITS).then_some(bit)
    })
}
