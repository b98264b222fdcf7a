//! A lower bound on the max load (the most bytes alive at once) of all orders of the operators. For each operator, the
//! fewest bytes that can be alive while it runs are found; the highest of these figures is the bound.
//!
//! Problem: when an operator v runs, the operators that it waits for have run, and those that wait for it have not. Of
//! the other operators any may have run, but each only after all operators that it waits for. A tensor is alive if an
//! operator that has run and one that has not both touch it. Of all sets of operators that may have run by then, which
//! leaves the fewest bytes alive? The answer is a minimum cut (Picard 1976: closures). A simpler bound, the bytes that
//! one operator touches, is far too low for networks in which tensors are kept for long, such as those with skip
//! connections.
//!
//! Steps:
//! 1. A flow network is made. Its nodes are the operators, and two for each tensor: its begin and its end. An arc from
//!    the begin to the end has the tensor's bytes as its capacity. The other arcs are without limit: from each operator
//!    to the begins of its tensors, from the ends of these tensors to the operator, and from each operator to those
//!    that it waits for. A cut parts the nodes in two: operators on the side of the source have run, the others have
//!    not.
//! 2. For each v, beginning with those at which the given order has the highest load: the tensors that v touches are
//!    alive in any case. Their arcs get the capacity 0. Their bytes and the workspace of v are added separately, less
//!    the most that v may save by writing over an input. The operators that v waits for are sources, and those that
//!    wait for v are sinks. The begin of a tensor that is alive from the start is a source too, and the end of one that
//!    is alive to the end is a sink. Dinic's algorithm (1970) finds the maximum flow, which is the minimum cut.
//!
//! Cost: a maximum flow for each operator. The looks at arcs are counted; after a given number of them no further
//! operator is taken. Linear memory.

use super::model::Model;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// The other capacities are in bytes.
const ENDLESS: u64 = u64::MAX;
const NONE: u32 = u32::MAX;
const FREE: u32 = 0;
const SOURCE: u32 = 1;
const SINK: u32 = 2;

pub(super) const fn workspace(tensors: usize, operators: usize, operands: usize, edges: usize) -> WorkspaceLen {
    let (nodes, arcs) = (operators + 2 * tensors, 2 * (tensors + 2 * operands + edges));
    WorkspaceLen { words: arcs, indices: 6 * nodes + 2 * arcs }
}

pub(super) fn lower_bound(
    model: &Model<'_>,
    operators: impl Iterator<Item = (u32, u64)>,
    enough: u64,
    looks: u64,
    scratch: &mut Workspace<'_>,
) -> u64 {
    let mut network = Network::new(model, scratch);
    let mut bound = 0;
    for (v, load) in operators {
        if bound >= enough.min(load) || network.looks >= looks {
            break;
        }
        bound = bound.max(network.least_at(v));
    }
    bound
}

struct Network<'m, 's> {
    model: &'m Model<'m>,
    nodes: u32,
    first: Table<'s, u32>,
    cursor: Table<'s, u32>,
    /// 1 + the distance from the nearest source; 0 if not reached, or if no sink follows.
    level: Table<'s, u32>,
    side: Table<'s, u32>,
    queue: Table<'s, u32>,
    path: Table<'s, u32>,
    /// The next arc from the same node. Arc 2k + 1 is the reverse of arc 2k.
    next: Table<'s, u32>,
    to: Table<'s, u32>,
    left: Table<'s, u64>,
    arcs: u32,
    looks: u64,
}

impl<'m, 's> Network<'m, 's> {
    fn new(model: &'m Model<'m>, scratch: &mut Workspace<'s>) -> Self {
        let (tensors, operators) = (model.tensors(), model.operators);
        let edges: u32 = (0..operators).map(|k| len(model.successors(k))).sum();
        let operands: u32 = (0..operators).map(|k| len(model.touched(k))).sum();
        let [nodes, arcs] = [operators + 2 * tensors, 2 * (tensors + 2 * operands + edges)];
        let [n, a] = [nodes, arcs].map(|len| usize::try_from(len).unwrap_or(0));
        let mut network = Self {
            model,
            nodes,
            first: scratch.indices(n),
            cursor: scratch.indices(n),
            level: scratch.indices(n),
            side: scratch.indices(n),
            queue: scratch.indices(n),
            path: scratch.indices(n),
            next: scratch.indices(a),
            to: scratch.indices(a),
            left: scratch.words(a),
            arcs: 0,
            looks: 0,
        };
        network.first.fill(NONE);
        // The arc of a tensor has twice the tensor's number: arcs are added in pairs.
        for t in 0..tensors {
            network.arc(network.begin(t), network.end(t));
        }
        for k in 0..operators {
            for &t in model.touched(k) {
                network.arc(k, network.begin(t));
                network.arc(network.end(t), k);
            }
            for &later in model.successors(k) {
                network.arc(later, k);
            }
        }
        network
    }

    fn begin(&self, tensor: u32) -> u32 {
        self.model.operators + tensor
    }

    fn end(&self, tensor: u32) -> u32 {
        self.model.operators + self.model.tensors() + tensor
    }

    fn arc(&mut self, from: u32, to: u32) {
        for (from, to) in [(from, to), (to, from)] {
            self.to[self.arcs] = to;
            self.next[self.arcs] = self.first[from];
            self.first[from] = self.arcs;
            self.arcs += 1;
        }
    }

    /// May be too low: the most that `v` can save over an input is always taken off.
    fn least_at(&mut self, v: u32) -> u64 {
        let tensors = self.model.tensors();
        self.side.fill(FREE);
        for t in 0..tensors {
            let (given, kept) = self.model.given_and_kept(t);
            let (begin, end) = (self.begin(t), self.end(t));
            self.side[begin] = if given { SOURCE } else { FREE };
            self.side[end] = if kept { SINK } else { FREE };
            (self.left[2 * t], self.left[2 * t + 1]) = (self.model.bytes(t), 0);
        }
        for arc in 2 * tensors..self.arcs {
            self.left[arc] = if arc.is_multiple_of(2) { ENDLESS } else { 0 };
        }
        for &t in self.model.touched(v) {
            self.left[2 * t] = 0;
        }
        self.mark(v, SOURCE);
        self.mark(v, SINK);
        self.side[v] = FREE;
        self.model.needs(v) + self.flow()
    }

    fn mark(&mut self, v: u32, side: u32) {
        let (mut done, mut len) = (0, 1);
        self.queue[0] = v;
        while done < len {
            let k = self.queue[done];
            done += 1;
            let mut arc = self.first[k];
            while arc != NONE {
                // Of the two arcs between two operators, the first leads to the operator that is waited for.
                let (other, waits) = (self.to[arc], arc.is_multiple_of(2));
                if other < self.model.operators && waits == (side == SOURCE) && self.side[other] == FREE {
                    self.side[other] = side;
                    self.queue[len] = other;
                    len += 1;
                }
                arc = self.next[arc];
            }
        }
    }

    fn flow(&mut self) -> u64 {
        let mut flow = 0;
        while self.reaches_a_sink() {
            self.cursor.copy_from(&self.first);
            for node in 0..self.nodes {
                while self.side[node] == SOURCE {
                    match self.augment(node) {
                        0 => break,
                        more => flow += more,
                    }
                }
            }
        }
        flow
    }

    fn reaches_a_sink(&mut self) -> bool {
        self.level.fill(0);
        let (mut done, mut len) = (0, 0);
        for node in (0..self.nodes).filter(|&node| self.side[node] == SOURCE) {
            self.level[node] = 1;
            self.queue[len] = node;
            len += 1;
        }
        while done < len {
            let node = self.queue[done];
            done += 1;
            if self.side[node] == SINK {
                // Nodes that are not taken yet are at least as far from the sources as this sink: no shortest path
                // leads through them.
                return true;
            }
            let mut arc = self.first[node];
            while arc != NONE {
                self.looks += 1;
                let to = self.to[arc];
                if self.left[arc] > 0 && self.level[to] == 0 {
                    self.level[to] = self.level[node] + 1;
                    self.queue[len] = to;
                    len += 1;
                }
                arc = self.next[arc];
            }
        }
        false
    }

    fn augment(&mut self, source: u32) -> u64 {
        let (mut node, mut len) = (source, 0);
        while self.side[node] != SINK {
            let arc = self.cursor[node];
            if arc == NONE {
                // No path leads on from here: back to the node before, and to its next arc.
                self.level[node] = 0;
                if len == 0 {
                    return 0;
                }
                len -= 1;
                node = self.to[self.path[len] ^ 1];
                self.cursor[node] = self.next[self.cursor[node]];
                continue;
            }
            self.looks += 1;
            let to = self.to[arc];
            if self.left[arc] > 0 && self.level[to] == self.level[node] + 1 {
                self.path[len] = arc;
                len += 1;
                node = to;
            } else {
                self.cursor[node] = self.next[arc];
            }
        }
        let narrowest = (0..len).map(|i| self.left[self.path[i]]).min().unwrap_or(0);
        for i in 0..len {
            let arc = self.path[i];
            for (arc, more) in [(arc, false), (arc ^ 1, true)] {
                if self.left[arc] != ENDLESS {
                    self.left[arc] = if more { self.left[arc] + narrowest } else { self.left[arc] - narrowest };
                }
            }
        }
        narrowest
    }
}

fn len(list: &[u32]) -> u32 {
    u32::try_from(list.len()).unwrap_or(u32::MAX)
}
