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

const NEAR: u64 = 8;
const NODES_PER_BLOCK: u64 = 8;
const MOST_PASSES: u32 = 16;

pub(super) struct Windows<'a> {
    scratch: Workspace<'a>,
    load: Table<'a, u64>,
    members: Table<'a, u32>,
    aside: Table<'a, u32>,
    begin: u32,
    /// `u32::MAX` if no window is left to be searched.
    length: u32,
    number: u32,
    decided: Table<'a, u64>,
    /// How many nodes the searches of windows of time have cost the whole search: one for each `NODES_OF_WINDOWS` nodes
    /// that they have looked at.
    pub nodes: u64,
    passes: u32,
    small: bool,
    undecided: bool,
}

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

const fn most(n: usize) -> usize {
    if n < SMALL { n } else { SMALL }
}

/// In words. Windows of 2 and 4 begin at each section, of 8 at every second and so on: fewer than 4 n.
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
