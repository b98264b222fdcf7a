//! The search tree: runs of the search from its root, the decisions that lead to the present node, and how they are
//! taken back. Time is divided into *sections*, numbered from 0, one for each maximal set of blocks that are alive at
//! one step.

use core::ops::ControlFlow;

use super::nogood::Nogoods;
use super::state::{CHOICES, FLOOR, NONE, REST, State};
use crate::place::technique::Technique;
use crate::workspace::workspace;

const WORK_OF_NODE: u64 = 1_024;
const NODES_OF_WATCH: u64 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Found,
    Infeasible,
    Limit,
    Stopped,
}

workspace! {
    pub(super) struct Tree<'a>(n) {
        tables {
            block: u32[n],
            block_mark: u32[n],
            section_mark: u32[n],
            low: u32[n],
            high: u32[n],
            /// By depth: the lengths of the two trails as the search entered the latest node, to restore its state once it
            /// fails.
            entry: [u32; 2][n + 1],
            since: u64[n + 1],
        }
        parts {
            nogoods: Nogoods(n),
        }
        state {
            depth: u32 = 0,
            /// The component that is searched now: a range whose ends no open block crosses.
            part: (u32, u32) = (0, 0),
            /// How strongly the choice of the next block ([`Tree::choose`]) prefers blocks that keep the top of the placed
            /// blocks level; 0 if it does not. *Level ground* is the range of time around the chosen section in which the
            /// lowest offset for an unplaced block is the same. A block moves this number of places forward in the order
            /// for each end of its lifetime that is an end of the level ground. It moves as many again if its top is level
            /// with the ground beyond that end.
            pub fit: u32 = 0,
            /// How many nodes of the search tree were looked at since the search began.
            pub nodes: u64 = 0,
            /// The search gives up the present capacity when it has spent this number of nodes since it began
            /// ([`spent`](Self::spent)).
            pub budget: u64 = u64::MAX,
            next_watch: u64 = 0,
        }
    }
}

impl Tree<'_> {
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

    /// One node spent stands for about 3 µs on all instances.
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

    fn narrow(&mut self, state: &State<'_>) {
        if state.techniques.has(Technique::Components) {
            self.part = longest(state, self.part).or_else(|| longest(state, (0, state.sections))).unwrap_or(self.part);
        }
    }

    /// The section of lowest floor, of these with the least c / (1 + failures) for c blocks that can lie there.
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
