//! The search tree: runs of the search from its root, the decisions that lead to the present node, and how they are
//! taken back.

use core::ops::ControlFlow;

use super::nogood::{self, Nogoods};
use super::state::{CHOICES, FLOOR, NONE, REST, State};
use super::technique::Technique;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// The work of the search is counted in nodes of its tree. Blocks and sections of time that are looked at count too:
/// this number of them counts as one node.
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

/// The decisions on the way from the root of the search tree to the present node.
pub(super) struct Tree<'a> {
    /// By depth in the search tree: the block that the decision there was about.
    block: Table<'a, u32>,
    /// By depth in the search tree: the length of the list of changes to blocks, just before the decision there. To
    /// take the decision back, all later changes are undone.
    block_mark: Table<'a, u32>,
    /// By depth in the search tree: the length of the list of changes to sections' records, just before the decision
    /// there. A section is a stretch of time, its record a summary of its unplaced blocks. To take the decision back,
    /// all later changes are undone.
    section_mark: Table<'a, u32>,
    /// By depth in the search tree: the first section of the component that the decision there was about. A component
    /// is a range of sections of time such that no block still to be placed is alive both in it and outside of it.
    low: Table<'a, u32>,
    /// By depth in the search tree: one past the last section of the component that the decision there was about. A
    /// component is a range of sections of time such that no block still to be placed is alive both in it and outside
    /// of it.
    high: Table<'a, u32>,
    /// By depth in the search tree: the lengths of two lists when the present node of that depth was entered. One lists
    /// the changes to blocks, the other those to sections' records. Undoing all later changes leads back to that node.
    /// A section is a stretch of time, its record a summary of its unplaced blocks.
    entry: Table<'a, [u32; 2]>,
    /// By depth in the search tree: how many nodes had been looked at in all when the present node of this depth was
    /// entered.
    since: Table<'a, u64>,
    nogoods: Nogoods<'a>,
    /// How many decisions lead to the present node.
    depth: u32,
    /// The component that is searched, as a range of sections of time: no block that is still to be placed crosses its
    /// ends.
    part: (u32, u32),
    /// How much *level ground* counts in the choice of the next block ([`Tree::choose`]). Level ground is the range of
    /// time around the chosen section in which the lowest offset for an unplaced block is the same. A block moves this
    /// number of places forward in the order for each end of its lifetime that is an end of this range, and as many
    /// again if its top is level with the ground beyond that end. 0 if level ground does not count.
    pub fit: u32,
    /// How many nodes were looked at since the search began.
    pub nodes: u64,
    /// The most nodes that may be spent, as `spent` counts them, until the present capacity is given up.
    pub budget: u64,
    /// The number of spent nodes, as `spent` counts them, at which `watch` is called next.
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

    /// Looks for a placement within `capacity`, until the search has looked at `limit` nodes since it began, or the
    /// budget is spent. `watch` is asked every few hundred nodes whether to go on.
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

    /// What the search has spent since it began, in nodes: those it has looked at, and one for each [`WORK_OF_NODE`]
    /// blocks and sections of time looked at. So a node stands for about 3 µs on all instances. Budgets are compared
    /// with this number. The length of a run, a search from the root of the tree, counts the nodes alone.
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

    /// Takes back decisions, the last first, up to and with the first one whose component overlaps the component that
    /// failed; returns that decision's block, or none if there is no such decision. A component is a range of sections
    /// of time such that no block still to be placed is alive both in it and outside of it. So decisions about other
    /// components cannot be the cause of the failure.
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

    /// Chooses the component to search next: the longest one in the range of sections of time that was searched last
    /// or, if all blocks there are placed, the longest anywhere. A component is a range of sections such that no block
    /// still to be placed is alive both in it and outside of it.
    fn narrow(&mut self, state: &State<'_>) {
        if state.techniques.has(Technique::Components) {
            self.part = longest(state, self.part).or_else(|| longest(state, (0, state.sections))).unwrap_or(self.part);
        }
    }

    /// The block to place next. First a section of time is chosen: one with the lowest floor, the least offset that an
    /// unplaced block there can have. Of equals, it is the one with the least quotient: the number of blocks that could
    /// lie at the floor, divided by 1 + the failed nodes counted there. Of these blocks, the one of least rank (place
    /// in the order of blocks) is returned. A rank counts as lower by `fit` for each end of the block that is an end of
    /// the level ground, the sections around the chosen one with the same floor. It counts as lower once more if the
    /// block's top is level with the floor beyond that end.
    fn choose(&self, state: &State<'_>) -> u32 {
        let (mut chosen, mut floor, mut choices, mut weight) = (0, u64::MAX, 1, 0);
        for s in self.part.0..self.part.1 {
            let section = &state.section[s];
            let (f, c, w) = (section[FLOOR], section[CHOICES], 1 + state.weight[s]);
            if section[REST] > 0 && (f < floor || f == floor && c * weight < choices * w) {
                (chosen, floor, choices, weight) = (s, f, c, w);
            }
        }
        // The level ground, and what it ends at on both sides; beyond the component is nothing to be level with.
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

/// The component with the most sections in the range `low..high`, as a range of sections; of equals the first. A
/// component is a range of sections of time whose ends no block still to be placed crosses. None if no such block is
/// alive in `low..high`.
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
