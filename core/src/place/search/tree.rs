//! The search tree: runs of the search from its root, the decisions that lead to the present node, and how they are
//! taken back. Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at
//! one step.

use core::ops::ControlFlow;

use super::nogood::{self, Nogoods};
use super::state::{CHOICES, FLOOR, NONE, REST, State};
use super::technique::Technique;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// What the search has spent is counted in nodes of its tree. The blocks and sections of time that it looks at count
/// too: this number of them is as much as one node.
const WORK_OF_NODE: u64 = 1_024;
/// The caller's function `watch` is called each time that the search has spent this number of nodes.
const NODES_OF_WATCH: u64 = 256;

/// How a run of the search, from the root of its tree, has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Every block has a place.
    Found,
    /// No placement exists within the capacity.
    Infeasible,
    /// A limit is reached: the run's number of nodes, the budget of the search, or the room for records of changes.
    Limit,
    /// The caller has stopped the search: its function `watch` returned a break.
    Stopped,
}

/// The decisions on the way from the root of the search tree to the present node. Each has placed one block.
pub(super) struct Tree<'a> {
    /// For each depth in the search tree, the block that was placed at this depth.
    block: Table<'a, u32>,
    /// For each depth in the search tree, how many changes to blocks were recorded before a block was placed at this
    /// depth. To take the placement back, all later changes are undone.
    block_mark: Table<'a, u32>,
    /// For each depth in the search tree, how many changes to the records of sections of time were recorded before a
    /// block was placed at this depth. To take the placement back, all later changes are undone. A record sums up the
    /// blocks that are still to be placed.
    section_mark: Table<'a, u32>,
    /// A *component* is a range of sections of time that is searched alone, as every block still to be placed is alive
    /// either within it or outside of it. For each depth in the search tree: the first section of the component that
    /// was searched when a block was placed at that depth.
    low: Table<'a, u32>,
    /// A *component* is a range of sections of time that is searched alone, as every block still to be placed is alive
    /// either within it or outside of it. For each depth in the search tree: one past the last section of the component
    /// that was searched when a block was placed at that depth.
    high: Table<'a, u32>,
    /// For each depth in the search tree, how many changes were recorded when the search entered the latest node there:
    /// changes to blocks, and changes to the records of sections of time. When the node has failed, all later changes
    /// are undone, so that its state can be kept as refuted.
    entry: Table<'a, [u32; 2]>,
    /// For each depth in the search tree, how many nodes had been looked at in all when the search entered the latest
    /// node there. When this node fails, its state is kept as refuted only if more nodes have been looked at since.
    since: Table<'a, u64>,
    nogoods: Nogoods<'a>,
    /// How many decisions lead to the present node.
    depth: u32,
    /// A component is a range of sections of time whose ends no block still to be placed crosses; it is searched alone.
    /// This is the component that is searched now: its first section, and one past its last.
    part: (u32, u32),
    /// How strongly the choice of the next block ([`Tree::choose`]) prefers blocks that keep the top of the placed
    /// blocks level; 0 if it does not. *Level ground* is the range of time around the chosen section in which the
    /// lowest offset for an unplaced block is the same. A block moves this number of places forward in the order for
    /// each end of its lifetime that is an end of the level ground. It moves as many again if its top is level with the
    /// ground beyond that end.
    pub fit: u32,
    /// How many nodes of the search tree were looked at since the search began.
    pub nodes: u64,
    /// The search gives up the present capacity when it has spent this number of nodes since it began
    /// ([`spent`](Self::spent)).
    pub budget: u64,
    /// The caller's function `watch` is called next when the search has spent this number of nodes
    /// ([`spent`](Self::spent)).
    next_watch: u64,
}

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    nogood::workspace(n).and(WorkspaceLen { words: n + 1, indices: 7 * n + 2 })
}

impl<'a> Tree<'a> {
    pub(super) fn new(n: usize, scratch: &mut Workspace<'a>) -> Self {
        Self {
            block: scratch.indices(n),
            block_mark: scratch.indices(n),
            section_mark: scratch.indices(n),
            low: scratch.indices(n),
            high: scratch.indices(n),
            entry: scratch.index_records(n + 1),
            since: scratch.words(n + 1),
            nogoods: Nogoods::new(n, scratch),
            depth: 0,
            part: (0, 0),
            fit: 0,
            nodes: 0,
            budget: u64::MAX,
            next_watch: 0,
        }
    }

    /// Looks for a placement within `capacity`, from the root of the search tree. Gives up when `limit` nodes have been
    /// looked at since the search began, earlier runs included; when the search has spent `self.budget` nodes, where
    /// other work counts as nodes too ([`spent`](Self::spent)); or when there is no room to record a change. `watch` is
    /// called each time that a few hundred nodes are spent, with the number of nodes looked at; if it returns a break,
    /// the run ends.
    pub(super) fn run(
        &mut self,
        state: &mut State<'_>,
        capacity: u64,
        limit: u64,
        watch: &mut impl FnMut(u64) -> ControlFlow<()>,
    ) -> End {
        self.depth = 0;
        self.part = (0, state.sections);
        if state.reset(capacity).is_err() {
            return End::Infeasible;
        }
        let keeps = state.techniques.has(Technique::Nogoods);
        // Whether the node is a new one, and not the one at the same depth after its block was refused.
        let mut entered = true;
        while state.open_count > 0 {
            let spent = self.spent(state);
            if self.nodes >= limit || spent >= self.budget || state.full {
                return End::Limit;
            }
            self.nodes += 1;
            if spent >= self.next_watch {
                self.next_watch = spent.saturating_add(NODES_OF_WATCH);
                if watch(self.nodes).is_break() {
                    return End::Stopped;
                }
            }
            self.narrow(state);
            state.looked += u64::from(self.part.1 - self.part.0);
            let mut failed = keeps && entered && self.nogoods.has(state, self.part);
            if !failed {
                if entered {
                    self.entry[self.depth] = [state.block_mark, state.section_mark];
                    self.since[self.depth] = self.nodes;
                }
                let b = self.choose(state);
                self.push(state, b);
                failed = state.place(b).is_err();
                entered = true;
            }
            while failed && !state.full {
                let Some(b) = self.back(state) else { return End::Infeasible };
                failed = state.refuse(b).is_err();
                entered = false;
                if keeps && failed && !state.full && self.nodes > self.since[self.depth] {
                    let [block_mark, section_mark] = self.entry[self.depth];
                    state.undo_to(block_mark, section_mark);
                    self.nogoods.add(state, self.part);
                }
            }
        }
        End::Found
    }

    /// What the search has spent since it began: the nodes that it has looked at, and one more for each
    /// [`WORK_OF_NODE`] blocks and sections of time looked at. So one node spent stands for about 3 µs on all
    /// instances. Budgets are compared with this number. The length of a run from the root of the tree counts only the
    /// nodes looked at.
    pub(super) fn spent(&self, state: &State<'_>) -> u64 {
        self.nodes.saturating_add(state.looked / WORK_OF_NODE)
    }

    fn push(&mut self, state: &State<'_>, b: u32) {
        let d = self.depth;
        self.block[d] = b;
        self.block_mark[d] = state.block_mark;
        self.section_mark[d] = state.section_mark;
        (self.low[d], self.high[d]) = self.part;
        self.depth += 1;
    }

    /// After a failure, takes back the decisions that place blocks, the last first, until one is taken back that may be
    /// the cause. Returns the block of that decision; `None` if there is no such decision.
    ///
    /// Time is cut into components, ranges whose ends no block still to be placed crosses. Each is searched by itself.
    /// A decision may be the cause of the failure if it was made in a component that overlaps the component in which
    /// the search has failed.
    fn back(&mut self, state: &mut State<'_>) -> Option<u32> {
        let failed = self.part;
        while self.depth > 0 {
            self.depth -= 1;
            let d = self.depth;
            state.undo(self.block[d], self.block_mark[d], self.section_mark[d]);
            self.part = (self.low[d], self.high[d]);
            if self.part.0 < failed.1 && failed.0 < self.part.1 {
                return Some(self.block[d]);
            }
        }
        None
    }

    /// A component is a range of sections of time whose ends no block still to be placed crosses; it is searched alone.
    /// Chooses the component to search next: the longest one within the component that was searched last or, if all
    /// blocks there are placed, the longest anywhere. Without [`Technique::Components`], all sections stay one part.
    fn narrow(&mut self, state: &State<'_>) {
        if state.techniques.has(Technique::Components) {
            self.part = longest(state, self.part).or_else(|| longest(state, (0, state.sections))).unwrap_or(self.part);
        }
    }

    /// The block to place next. It is chosen in two steps:
    /// 1. A section of time is chosen: one with the lowest *floor*, the least offset that an unplaced block there can
    ///    have. Of equals, it is the one with the least c / (1 + f), where c is the number of blocks that could lie at
    ///    the floor, and f counts the nodes of the search that have failed because of the section.
    /// 2. Of these c blocks, the first in the order `State::rank` is returned. In that order, blocks that keep the top
    ///    of the placed blocks level move forward, by up to 4 · [`Tree::fit`] places.
    fn choose(&self, state: &State<'_>) -> u32 {
        let (mut chosen, mut floor, mut choices, mut weight) = (0, u64::MAX, 1, 0);
        for s in self.part.0..self.part.1 {
            let section = &state.section[s];
            let (f, c, w) = (section[FLOOR], section[CHOICES], 1 + state.weight[s]);
            if section[REST] > 0 && (f < floor || f == floor && c * weight < choices * w) {
                (chosen, floor, choices, weight) = (s, f, c, w);
            }
        }
        // The level ground is `left..right`; `before` and `after` are the heights of the ground beyond its two ends. At
        // an end of the component the height is 0, which no block's top equals.
        let level = |s: &u32| state.section[*s][FLOOR] == floor;
        let left = (self.part.0..chosen).rev().take_while(level).last().unwrap_or(chosen);
        let right = (chosen..self.part.1).take_while(level).last().map_or(chosen, |s| s + 1);
        let before = if left > self.part.0 { state.section[left - 1][FLOOR] } else { 0 };
        let after = if right < self.part.1 { state.section[right][FLOOR] } else { 0 };
        let (mut block, mut rank) = (NONE, u32::MAX);
        state.for_alive(chosen, |b| {
            let [least, end] = state.span[b];
            if least == floor {
                let fits = |side: bool, top: u64| u32::from(side) + u32::from(side && end == top);
                let sides = fits(state.low[b] == left, before) + fits(state.high[b] == right, after);
                let r = state.rank[b] + (4 - sides) * self.fit;
                if r < rank {
                    (block, rank) = (b, r);
                }
            }
        });
        block
    }
}

/// A component is a range of sections of time whose ends no block still to be placed crosses. Returns the longest
/// component in `low..high`, the first of equals: its first section, and one past its last. `None` if no block still to
/// be placed is alive in `low..high`.
fn longest(state: &State<'_>, (low, high): (u32, u32)) -> Option<(u32, u32)> {
    let mut best = None;
    let mut longest = 0;
    let mut begin = low;
    for s in low..high {
        if state.crossing[s] == 0 || s + 1 == high {
            if state.section[s][REST] > 0 && s + 1 - begin > longest {
                longest = s + 1 - begin;
                best = Some((begin, s + 1));
            }
            begin = s + 1;
        }
    }
    best
}
