//! Lower bounds above the max load, from windows of time whose blocks do not fit.
//!
//! Problem: the max load is a lower bound on the peak, but looks at one step at a time. A block that is alive at two
//! crowded steps may have no place that suits both. So the blocks of a window of time, cut off at its ends, are placed
//! alone, by the exact search itself. If they have no placement within a capacity, the whole instance has none:
//! destructive lower bounds (Klein and Scholl 1999).
//!
//! Steps:
//! 1. Time is divided into *sections*, one for each maximal set of blocks that are alive at one step. Windows have two
//!    sections, then four, eight and so on; each begins a quarter of its length, but at least one section, after the
//!    one before it. Windows get longer until all windows of one length have too many blocks (more than [`SMALL`]), or
//!    until one window would have all sections. A window is not searched if its load stays far below the lower bound.
//! 2. Blocks that are alive in all of a window can lie at its bottom: in any placement they can be taken out, the
//!    blocks above them move down, and they are put below. So they are left out, and the capacity is lower by their
//!    bytes. This is not done if any block of the instance is pinned or must be aligned.
//! 3. If a window has no placement within a capacity, the lower bound is raised above it, and the window is searched
//!    again, with capacities that grow in steps that double. The window is done when it has a placement within the
//!    bound, or when its search is cut off.
//!
//! When all windows have been searched, those whose search was cut off are searched again with four times the nodes.
//! Windows are searched in the order of their lengths, then of their begins. Cost: a window costs as many nodes as it
//! has blocks, beside the nodes of its search. Memory: what a search of [`SMALL`] blocks needs, for one window at a
//! time.

use core::ops::ControlFlow;

use rand_xoshiro::Xoshiro256PlusPlus;

use super::order;
use super::state::{self, Item, REST, SMALL, State};
use super::tree::{self, End, Tree};
use crate::table::Table;
use crate::{Workspace, WorkspaceLen, sort};

/// A window of time, whose blocks are searched alone, is skipped if its load is low: if, at each of its steps, the load
/// lies below the lower bound by more than the lower bound divided by this number.
const NEAR: u64 = 8;
/// How many nodes of its search tree the first search of a window of time may look at, for each block of the window.
const NODES_PER_BLOCK: u64 = 8;
/// In each pass over the windows of time, a search may look at four times as many nodes as in the pass before. After
/// this number of passes, the number of nodes no longer grows.
const MOST_PASSES: u32 = 16;

/// The windows of time that are searched one after the other to raise the lower bound.
pub(super) struct Windows<'a> {
    scratch: Workspace<'a>,
    /// By section of time of the whole instance: the size of all blocks alive there, in units of `Search::unit` bytes.
    load: Table<'a, u64>,
    /// The blocks of the window of time that is searched now, by their numbers in the whole instance.
    members: Table<'a, u32>,
    aside: Table<'a, u32>,
    /// The section of time at which the next window begins.
    begin: u32,
    /// How many sections of time the next window has; `u32::MAX` if no window is left to be searched.
    length: u32,
    /// The number of the next window, counted from 0 in each pass over all windows of time: the number of its bit in
    /// `decided`.
    number: u32,
    /// Bit set of the windows of time that have a placement within the lower bound, so that they are not searched
    /// again. Windows are numbered from 0 in each pass over them.
    decided: Table<'a, u64>,
    /// How many nodes the searches of windows of time have cost the whole search: one for each `NODES_OF_WINDOWS` nodes
    /// that they have looked at.
    pub nodes: u64,
    /// How many passes over all windows of time have ended; it counts up to [`MOST_PASSES`].
    passes: u32,
    /// Whether longer windows of time are to be looked at too: true as soon as one window of the present length is not
    /// too large. A window is too large if it has too many blocks for a search; longer ones have still more. A window
    /// that needs no search does not count as too large: its load is far below the lower bound ([`NEAR`]), or it is
    /// known to have a placement within the bound.
    small: bool,
    /// Whether the search of a window of time was cut off without an answer in this pass over the windows. If so,
    /// another pass follows.
    undecided: bool,
}

/// How many nodes of their search trees the searches of windows of time have looked at, and how many they may.
pub(super) struct Budget<'a> {
    /// How many nodes the searches of windows have looked at so far; each search counts one more for each block of its
    /// window.
    pub nodes: u64,
    /// The most nodes that all searches of windows together may look at: they end when `nodes` reaches this number.
    pub limit: u64,
    /// A function that is called every few hundred nodes, with the number of nodes that the searches of windows have
    /// looked at; if it returns a break, the search ends.
    pub watch: &'a mut dyn FnMut(u64) -> ControlFlow<()>,
}

/// The most blocks that a search of a window of time can place, in an instance of `n` blocks. Windows with more blocks
/// to be placed are not searched.
const fn most(n: usize) -> usize {
    if n < SMALL { n } else { SMALL }
}

/// The length, in 64-bit words, of a bit set with one bit for each window of time of an instance of `n` blocks, which
/// has at most `n` sections of time. A window of two or four sections begins at each section, one of eight at every
/// second, one of sixteen at every fourth, and so on: together fewer than 4 n.
const fn decided_len(n: usize) -> usize {
    (4 * n).div_ceil(64)
}

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    let k = most(n);
    let kept = WorkspaceLen { words: n + decided_len(n), indices: 2 * k };
    let ranking = WorkspaceLen { words: k, indices: k };
    kept.and(state::workspace(k)).and(tree::workspace(k)).and(ranking)
}

impl<'a> Windows<'a> {
    /// Prepares the searches of windows of time in an instance of `n` blocks. `whole` is the state of the search of the
    /// whole instance, in which no block is placed yet.
    pub(super) fn new(n: usize, whole: &State<'_>, scratch: &mut Workspace<'a>) -> Self {
        let mut scratch = scratch.split(workspace(n));
        let mut load = scratch.words(n);
        for s in 0..whole.sections {
            load[s] = whole.section[s][REST];
        }
        let (members, aside) = (scratch.indices(most(n)), scratch.indices(most(n)));
        let decided = scratch.words(decided_len(n));
        Self {
            scratch,
            load,
            members,
            aside,
            begin: 0,
            length: 2,
            nodes: 0,
            number: 0,
            decided,
            passes: 0,
            small: false,
            undecided: false,
        }
    }

    /// Raises the lower bound `lower` by searches of windows of time, whose blocks are placed alone. `enough` is the
    /// highest capacity that is of interest; both are in units of `Search::unit` bytes. Returns [`End::Found`] if no
    /// window is left to be searched, [`End::Infeasible`] if `lower` exceeds `enough`, [`End::Limit`] if the budget is
    /// used up, and [`End::Stopped`] if the caller's `watch` has returned a break.
    pub(super) fn lift(&mut self, whole: &State<'_>, lower: &mut u64, enough: u64, budget: &mut Budget<'_>) -> End {
        // A window of all sections is left out: its search would be that of the whole instance.
        while self.length < whole.sections {
            if *lower > enough {
                return End::Infeasible;
            }
            if budget.nodes >= budget.limit {
                return End::Limit;
            }
            let (low, high) = (self.begin, whole.sections.min(self.begin + self.length));
            if self.decided[self.number / 64] >> (self.number % 64) & 1 == 1 {
                self.small = true;
            } else if let Some(blocks) = self.collect(whole, low, high, *lower) {
                match self.ask(whole, (low, high), blocks, lower, enough, budget) {
                    End::Stopped => return End::Stopped,
                    End::Limit => self.undecided = true,
                    _ => self.decided[self.number / 64] |= 1 << (self.number % 64),
                }
            }
            self.number += 1;
            self.begin += (self.length / 4).max(1);
            if high == whole.sections {
                self.lengthen(whole.sections);
            }
        }
        End::Found
    }

    /// Called when all windows of time with the present number of sections have been looked at. Goes on to windows of
    /// twice as many sections. After the longest, begins another pass over all windows if the search of one was cut off
    /// in this pass; else sets `length` to `u32::MAX`, which ends the passes.
    fn lengthen(&mut self, sections: u32) {
        self.begin = 0;
        self.length *= 2;
        if !self.small || self.length >= sections {
            self.length = if self.undecided { 2 } else { u32::MAX };
            self.number = 0;
            self.passes = MOST_PASSES.min(self.passes + 1);
            self.undecided = false;
        }
        self.small = false;
    }

    /// Writes to `members` the blocks that are alive in a window, the sections of time `low..high`, and returns how
    /// many there are. Blocks that are alive in all of it are left out, unless a block of the instance is pinned or
    /// must be aligned. The blocks are sorted by begin in the window, then end in the window, then size, the largest
    /// first. Returns `None` if `members` has no room for all of them, or if the load of each section is far below the
    /// capacity ([`NEAR`]).
    fn collect(&mut self, whole: &State<'_>, low: u32, high: u32, capacity: u64) -> Option<u32> {
        if (low..high).all(|s| self.load[s] < capacity - capacity / NEAR) {
            self.small = true;
            return None;
        }
        let mut k = 0;
        for b in 0..whole.first[high] {
            let through = whole.low[b] <= low && whole.high[b] >= high && whole.movable;
            if whole.high[b] > low && !through {
                if k as usize == self.members.len() {
                    return None;
                }
                self.members[k] = b;
                k += 1;
            }
        }
        self.small = true;
        let keys: [&dyn Fn(u32) -> u64; 3] =
            [&|b| !whole.size[b], &|b| whole.high[b].min(high).into(), &|b| whole.low[b].max(low).into()];
        for key in keys {
            sort::by_key(&mut self.members, k, &mut self.aside, key);
        }
        Some(k)
    }

    /// Searches one window, the sections of time `low..high`, for a placement of its blocks: the first `blocks` entries
    /// of `members`. If it proves that there is none within a capacity, raises the lower bound `lower` above that
    /// capacity, but at most to 1 above `enough`, the highest capacity that is of interest. Both are in units of
    /// `Search::unit` bytes. Returns [`End::Found`] if the window has a placement within `lower`, [`End::Infeasible`]
    /// if `lower` is now above `enough`, [`End::Limit`] if the search was cut off, and [`End::Stopped`] if the caller's
    /// `watch` has returned a break.
    fn ask(
        &mut self,
        whole: &State<'_>,
        (low, high): (u32, u32),
        blocks: u32,
        lower: &mut u64,
        enough: u64,
        budget: &mut Budget<'_>,
    ) -> End {
        let members = &self.members;
        let item = |i: u32| {
            let all = whole.item(members[i]);
            Item { low: all.low.max(low) - low, high: all.high.min(high) - low, ..all }
        };
        let of_low: u64 = (0..blocks).map(item).filter(|i| i.low == 0).map(|i| i.size).sum();
        let through = self.load[low] - of_low;

        let mut scratch = self.scratch.reborrow();
        let n = blocks as usize;
        let mut state = State::new(n, high - low, whole.techniques, item, &mut scratch);
        let mut tree = Tree::new(n, &mut scratch);
        let (mut key, mut aside) = (scratch.words(n), scratch.indices(n));
        order::rank(&mut state, &mut key, &mut aside, None::<(&mut Xoshiro256PlusPlus, u64)>);
        tree.nodes = budget.nodes + u64::from(blocks);
        let mut step = 1;
        while *lower <= enough {
            let capacity = enough.min(*lower + step - 1);
            let limit = tree.nodes.saturating_add((NODES_PER_BLOCK * u64::from(blocks)) << (2 * self.passes));
            let end = tree.run(&mut state, capacity - through, budget.limit.min(limit), &mut budget.watch);
            budget.nodes = tree.nodes;
            match end {
                End::Infeasible => {
                    *lower = capacity + 1;
                    step *= 2;
                }
                End::Found | End::Limit if step > 1 => step = 1,
                end => return end,
            }
        }
        End::Infeasible
    }
}
