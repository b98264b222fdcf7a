//! Which operators of a graph have to run before which others, and an order in which they can.
//!
//! An operator, a node of the graph, runs after the operators whose results it reads. A tensor that is not persistent
//! ([`Storage::Persistent`]) is produced by the one operator that writes it without reading it, if there is one. This
//! operator comes before all others that read or write the tensor, wherever it is listed. An operator that reads and
//! writes the same tensor, as an optimizer does, updates the tensor; so does every operator that writes a persistent
//! tensor. An update comes after every access of the tensor that is listed before it, and before every access that is
//! listed after it. An access is a read or a write.
//!
//! 1. The accesses of each tensor are gathered, in the order in which the graph lists the operators.
//! 2. Tensor by tensor, pairs of operators are found of which the second waits for the first. An access waits for the
//!    last update before it or, if there is none, for the operator that produces the tensor. An update waits instead
//!    for the reads since the last update, if there are any. In all there are at most two pairs for each access.
//! 3. Kahn's algorithm (1962) takes the operator that is listed first among those that are ready. So a list in
//!    topological order keeps its order.
//!
//! Cost: O(operands + operators · log operators) time, where the operands are the inputs and outputs of all operators;
//! memory linear in tensors, operators and operands.

use super::network::{Graph, Storage};
use crate::heap::Heap;
use crate::table::{Table, count};
use crate::{Error, Workspace, WorkspaceLen, block};

const READ: u32 = 1;
const WRITE: u32 = 2;

pub(crate) const fn workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
    WorkspaceLen { words: nodes, indices: 2 * tensors + 7 * nodes + 4 * operands }
}

pub(crate) struct Dependencies<'a> {
    first: Table<'a, u32>,
    len: Table<'a, u32>,
    /// A node, then its bits [`READ`] and [`WRITE`]. An update of a persistent tensor has both.
    accesses: Table<'a, [u32; 2]>,
    begin: Table<'a, u32>,
    /// The nodes that wait for each node. A successor may be listed twice.
    to: Table<'a, u32>,
    order: Table<'a, u32>,
}

impl<'a> Dependencies<'a> {
    pub(crate) fn new(graph: &Graph<'_>, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let (tensors, nodes, operands) = (graph.tensors.len(), graph.nodes.len(), graph.operands());
        for n in [tensors, nodes, operands] {
            block::check_count(n)?;
        }
        let mut new = Self {
            first: scratch.indices(tensors),
            len: scratch.indices(tensors),
            accesses: scratch.index_records(operands),
            // One entry for each node and two more are used, and none if there are no nodes: `3 * nodes` is enough for
            // both.
            begin: scratch.indices(3 * nodes),
            to: scratch.indices(2 * operands),
            order: scratch.indices(nodes),
        };
        new.gather(graph)?;
        new.connect(graph);
        new.sort(count(graph.nodes), scratch)?;
        Ok(new)
    }

    pub(crate) fn order(&self) -> &[u32] {
        self.order.first(u32::MAX)
    }

    pub(crate) fn successors(&self, node: u32) -> &[u32] {
        let (begin, end) = (self.begin[node], self.begin[node + 1]);
        let to = self.to.first(end);
        to.get(usize::try_from(begin).unwrap_or(usize::MAX)..).unwrap_or_default()
    }

    pub(crate) fn users(&self, tensor: u32) -> u32 {
        self.len[tensor]
    }

    pub(crate) fn users_of(&self, tensor: u32) -> impl Iterator<Item = u32> {
        self.entries(tensor).map(|i| self.accesses[i][0])
    }

    pub(crate) fn producer(&self, tensor: u32) -> Option<u32> {
        self.entries(tensor).find(|&i| self.accesses[i][1] == WRITE).map(|i| self.accesses[i][0])
    }

    fn entries(&self, tensor: u32) -> core::ops::Range<u32> {
        self.first[tensor]..self.first[tensor] + self.len[tensor]
    }

    fn gather(&mut self, graph: &Graph<'_>) -> Result<(), Error> {
        for (node, n) in (0..).zip(graph.nodes) {
            for &tensor in n.inputs.iter().chain(n.outputs) {
                if tensor >= count(graph.tensors) {
                    return Err(Error::UnknownTensor { node, tensor });
                }
                self.len[tensor] += 1;
            }
        }
        let mut sum = 0;
        for tensor in 0..count(graph.tensors) {
            self.first[tensor] = sum;
            sum += core::mem::take(&mut self.len[tensor]);
        }
        for (node, n) in (0..).zip(graph.nodes) {
            let operands = n.inputs.iter().map(|t| (t, READ)).chain(n.outputs.iter().map(|t| (t, WRITE)));
            for (&tensor, how) in operands {
                let end = self.first[tensor] + self.len[tensor];
                if self.len[tensor] > 0 && self.accesses[end - 1][0] == node {
                    if how == WRITE && self.accesses[end - 1][1] & WRITE > 0 {
                        return Err(Error::TwoWriters { tensor, first: node, second: node });
                    }
                    self.accesses[end - 1][1] |= how;
                } else {
                    self.accesses[end] = [node, how];
                    self.len[tensor] += 1;
                }
            }
        }
        for (tensor, t) in (0..).zip(graph.tensors) {
            // A persistent tensor holds a value from the start: whoever writes it updates it.
            let persistent = t.storage == Storage::Persistent;
            let mut producer = None;
            for i in self.entries(tensor) {
                let [second, how] = self.accesses[i];
                match producer {
                    _ if how != WRITE => {}
                    _ if persistent => self.accesses[i][1] |= READ,
                    None => producer = Some(second),
                    Some(first) => return Err(Error::TwoWriters { tensor, first, second }),
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self, graph: &Graph<'_>) {
        // The counts are written two places further on. Adding them up puts the begin of each node one place further
        // on, and filling `to` then moves it to its own place.
        for tensor in 0..count(graph.tensors) {
            each_edge(&self.accesses, self.entries(tensor), |from, _| self.begin[from + 2] += 1);
        }
        for node in 2..count(graph.nodes) + 2 {
            self.begin[node] += self.begin[node - 1];
        }
        for tensor in 0..count(graph.tensors) {
            each_edge(&self.accesses, self.entries(tensor), |from, to| {
                self.to[self.begin[from + 1]] = to;
                self.begin[from + 1] += 1;
            });
        }
    }

    fn sort(&mut self, nodes: u32, scratch: &mut Workspace<'a>) -> Result<(), Error> {
        let n = self.order.len();
        let mut heap = Heap::lend(n, scratch);
        let (mut waiting, mut before) = (scratch.indices(n), scratch.indices(n));
        for node in 0..nodes {
            for &next in self.successors(node) {
                waiting[next] += 1;
            }
        }
        for node in 0..nodes {
            if waiting[node] == 0 {
                heap.push(node.into(), node);
            }
        }
        let mut sorted = 0;
        while let Some((_, node)) = heap.pop() {
            self.order[sorted] = node;
            sorted += 1;
            for &next in self.successors(node) {
                waiting[next] -= 1;
                if waiting[next] == 0 {
                    heap.push(next.into(), next);
                }
            }
        }
        if sorted == nodes {
            return Ok(());
        }
        // Each node that still waits, waits for another such node. So `nodes` steps back, each from a node to one that
        // it waits for, end on a cycle. The error names the node of this cycle that is listed first.
        for node in (0..nodes).filter(|&n| waiting[n] > 0) {
            for &next in self.successors(node) {
                before[next] = node;
            }
        }
        let mut on_cycle = (0..nodes).find(|&n| waiting[n] > 0).unwrap_or_default();
        for _ in 0..nodes {
            on_cycle = before[on_cycle];
        }
        let mut least = on_cycle;
        let mut node = before[on_cycle];
        while node != on_cycle {
            least = least.min(node);
            node = before[node];
        }
        Err(Error::Cycle { node: least })
    }
}

/// An edge may be left out where a third node runs in between.
fn each_edge(accesses: &Table<'_, [u32; 2]>, entries: core::ops::Range<u32>, mut edge: impl FnMut(u32, u32)) {
    let producer = entries.clone().find(|&i| accesses[i][1] == WRITE);
    let mut last = producer.map(|i| accesses[i][0]);
    let mut since = entries.start;
    for i in entries.clone().filter(|&i| Some(i) != producer) {
        let [node, how] = accesses[i];
        let mut readers = 0;
        if how & WRITE > 0 {
            for reader in (since..i).filter(|&r| Some(r) != producer) {
                edge(accesses[reader][0], node);
                readers += 1;
            }
        }
        if let Some(last) = last.filter(|_| readers == 0) {
            edge(last, node);
        }
        if how & WRITE > 0 {
            last = Some(node);
            since = i + 1;
        }
    }
}
