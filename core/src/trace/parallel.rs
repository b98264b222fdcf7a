//! Lifetimes for operators that run at the same time, on several streams or threads.
//!
//! Problem: lifetimes taken from one order of the operators let two blocks share memory, though in another valid order
//! both are in use at the same time. Block B may take the memory of block A only if every operator that uses A is an
//! ancestor of the operator that begins B, which means to allocate it. An operator's ancestors are those that it waits
//! for, directly or by way of others. Then A is no longer used when B begins, in every order that the dependencies
//! allow (`MXNet`, "Memory consumption", on parallel operations). `MXNet` uses colours of paths in place of ancestors;
//! here the ancestors are exact.
//!
//! Placement takes lifetimes as intervals of steps, and lets any two blocks share memory whose intervals do not
//! overlap. A step here is an operator's index in one topological order. So lifetimes are extended until any two blocks
//! that may be in use at the same time have overlapping intervals. Say that in this order A is used for the last time
//! before B begins, but the dependencies do not require it. Then either the end of A is moved to after the beginning of
//! B, or the beginning of B to before the end of A. If only ends are moved, each block A has an earliest end with which
//! it overlaps all such blocks B. If only beginnings are moved, each block B has a latest beginning with which it
//! overlaps all such blocks A:
//!
//! 1. For each operator v, two operators are found. One is the last in the order that begins a block and is no
//!    descendant of v, so does not wait for it: every block that v uses must live until this operator begins its block.
//!    The other is the first in the order that uses a block and is no ancestor of v: a block that v begins must be
//!    there when this operator runs. Both are found with bit sets, for 64 operators of the order at a time.
//! 2. The order is cut into regions, so that no lifetime is extended out of its region: everything before a region is
//!    an ancestor of every operator that begins a block in the region or after it. In each region, either ends or
//!    beginnings are extended, whichever gives the lower max load in the region; ends if both give the same.
//!
//! Operators on the same stream run one after the other, in the topological order; this counts as a dependency too.
//! [`longest_paths`] puts operators on streams as `MXNet` colours them: the operators of the longest path on the first
//! stream, those of the longest path of the others on the second, and so on.
//!
//! Cost: O((operators + edges) · operators / 64) time, scratch linear in tensors, operators and operands. Limits: where
//! two chains of operators run beside each other, each chain could reuse its own memory. Intervals cannot express this;
//! all blocks of one of the chains are then kept alive together.

use super::dependencies::{self, Dependencies};
use super::liveness::Residency;
use super::network::{Graph, Storage};
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, block};

const SLICE: u32 = u64::BITS;

/// Length of the workspace for [`lifetimes`], which finds lifetimes for operators that run in parallel. `nodes` is how
/// many operators the graph has, `operands` how many inputs and outputs they have together ([`Graph::operands`]).
#[must_use]
pub const fn workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
    let own = WorkspaceLen { words: 5 * nodes, indices: 9 * nodes };
    dependencies::workspace(tensors, nodes, operands).and(own)
}

/// Finds lifetimes for the blocks of a graph whose operators may run in other orders or at the same time, as its
/// dependencies and streams allow. Blocks whose lifetimes do not overlap can share memory however the operators run.
/// Writes the lifetimes to `blocks`; writes to `names`, in the same order, the number of the block that has this
/// lifetime, as [`Graph::blocks`] numbers blocks. Returns how many lifetimes there are, one for each block. Steps are
/// indices in the topological order in which [`Graph::rows`](super::Graph::rows) runs the operators. Persistent tensors
/// are always alive; other tensors that no operator uses have no block.
///
/// `streams` says on which stream each operator runs. The operators of one stream run one after the other, in the
/// topological order. An operator whose stream is not below the number of operators, or for which `streams` has no
/// entry, is on no stream: it runs whenever its dependencies allow.
///
/// # Errors
/// Those of [`Graph::rows`](super::Graph::rows) for a graph that is not valid; [`Error::TooManyBlocks`] also for 2²⁸ or
/// more blocks; [`Error::SizeOverflow`] if all blocks together have 2⁶⁴ - 1 bytes or more; [`Error::BufferTooSmall`] if
/// `blocks` or `names` is shorter than [`Graph::blocks`], or the workspace is too short.
///
/// ```
/// use sublet_core::trace::{Graph, Node, Tensor};
/// use sublet_core::trace::parallel;
/// use sublet_core::{Block, Workspace};
///
/// // Two branches from one input: a ─► b, and c. In the order of the list, a is done when c begins; on two streams it
/// // may not be.
/// let tensors = [Tensor { bytes: 8, ..Tensor::default() }; 4];
/// let node = |inputs, outputs| Node { inputs, outputs, ..Node::default() };
/// let graph = Graph { tensors: &tensors, nodes: &[node(&[0], &[1]), node(&[1], &[2]), node(&[0], &[3])] };
/// let len = parallel::workspace(4, 3, graph.operands());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let (mut blocks, mut names) = (vec![Block::default(); 4], vec![Default::default(); 4]);
/// let n = parallel::lifetimes(&graph, &[], Workspace::new(&mut words, &mut indices), &mut blocks, &mut names)?;
/// assert_eq!(n, 4);
/// assert!(blocks[1].end > blocks[3].start);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn lifetimes(
    graph: &Graph<'_>,
    streams: &[u32],
    mut scratch: Workspace<'_>,
    blocks: &mut [Block],
    names: &mut [Residency],
) -> Result<usize, Error> {
    let (tensors, nodes) = (graph.tensors.len(), graph.nodes.len());
    scratch.check(workspace(tensors, nodes, graph.operands()))?;
    let (needed, shorter) = (graph.blocks(), blocks.len().min(names.len()));
    if shorter < needed {
        return Err(Error::BufferTooSmall { buffer: Buffer::Blocks, needed, got: shorter });
    }
    block::check_count(needed)?;
    let dependencies = Dependencies::new(graph, &mut scratch)?;
    let mut orders = Orders::new(graph, streams, &dependencies, &mut scratch);
    let mut writer = Writer { blocks: Table::new(blocks), names: Table::new(names), len: 0 };
    // First without extending lifetimes, to check that the sum of the sizes does not overflow.
    let found = orders.write(graph, &dependencies, &mut writer, Extend::Nothing)?;
    block::check(writer.blocks.first(writer.len), 1)?;
    let n = count(graph.nodes);
    if n == 0 {
        return Ok(found);
    }
    // Each of the two tables needs one entry more than there are nodes; `2 * nodes` is enough.
    let mut loads = [scratch.words(2 * nodes), scratch.words(2 * nodes)];
    for (extend, load) in [Extend::Ends, Extend::Beginnings].into_iter().zip(&mut loads) {
        orders.write(graph, &dependencies, &mut writer, extend)?;
        for i in 0..writer.len {
            let b = writer.blocks[i];
            load[b.start] = load[b.start].wrapping_add(b.size);
            load[b.end.min(n)] = load[b.end.min(n)].wrapping_sub(b.size);
        }
        for step in 1..n {
            load[step] = load[step].wrapping_add(load[step - 1]);
        }
    }
    orders.choose(n, &loads);
    orders.write(graph, &dependencies, &mut writer, Extend::Chosen)?;
    Ok(found)
}

/// Length of the workspace for [`longest_paths`], which puts operators on streams. `nodes` is how many operators the
/// graph has, `operands` how many inputs and outputs they have together ([`Graph::operands`]).
#[must_use]
pub const fn paths_workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
    dependencies::workspace(tensors, nodes, operands).and(WorkspaceLen { words: nodes, indices: nodes })
}

/// Puts the operators on at most `paths` streams (0 counts as 1), and writes the stream of each operator to `streams`.
/// A path is a chain of operators of which each waits for the one before; its length is the sum of their times, where a
/// time of 0 counts as 1 ns. Stream 0 has the operators of the longest path, stream 1 those of the longest path of the
/// other operators, and so on. The last stream has all operators that are left. Of equally long paths, one whose first
/// operator comes first in the topological order is taken. O(paths · (operators + edges)) once the topological order is
/// found.
///
/// # Errors
/// [`Error::UnknownTensor`] for an operand that is no tensor, [`Error::TwoWriters`] for a tensor that is produced
/// twice, [`Error::Cycle`] if operators depend on each other in a cycle, [`Error::TooManyBlocks`] for 2²⁸ or more
/// tensors, operators or operands; [`Error::BufferTooSmall`] if `streams` has fewer elements than the graph has
/// operators, or the workspace is too short.
pub fn longest_paths(
    graph: &Graph<'_>,
    paths: u32,
    mut scratch: Workspace<'_>,
    streams: &mut [u32],
) -> Result<(), Error> {
    let (tensors, nodes) = (graph.tensors.len(), graph.nodes.len());
    scratch.check(paths_workspace(tensors, nodes, graph.operands()))?;
    if streams.len() < nodes {
        return Err(Error::BufferTooSmall { buffer: Buffer::Streams, needed: nodes, got: streams.len() });
    }
    let dependencies = Dependencies::new(graph, &mut scratch)?;
    // For each node that is on no path yet: in `length` the time, in ns, of the longest path of such nodes that begins
    // with this node; in `next` 1 + the second node of this path, 0 if there is none.
    let (mut length, mut next) = (scratch.words(nodes), scratch.indices(nodes));
    let mut streams = Table::new(streams);
    let last = paths.saturating_sub(1);
    for node in 0..count(graph.nodes) {
        streams[node] = last;
    }
    for stream in 0..last {
        let mut longest = 0;
        let mut first = None;
        for &node in dependencies.order().iter().rev() {
            if streams[node] != last {
                continue;
            }
            next[node] = 0;
            let mut rest = 0;
            for &after in dependencies.successors(node) {
                if streams[after] == last && (next[node] == 0 || length[after] > rest) {
                    rest = length[after];
                    next[node] = after + 1;
                }
            }
            // An operator that takes no time counts as 1 ns, so that it can be a part of the path.
            length[node] = rest.saturating_add(at(graph.nodes, node).time_ns.max(1));
            if length[node] >= longest {
                longest = length[node];
                first = Some(node);
            }
        }
        while let Some(node) = first {
            streams[node] = stream;
            first = next[node].checked_sub(1);
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extend {
    Nothing,
    Ends,
    Beginnings,
    Chosen,
}

struct Orders<'a> {
    place: Table<'a, u32>,
    /// 1 + the place of the next operator on the same stream; 0 if there is none.
    next: Table<'a, u32>,
    /// 1 + the last place that begins a block and need not wait for this one, or 1 + this place.
    late: Table<'a, u32>,
    /// The first place that uses a block and need not come before this one, or this place.
    early: Table<'a, u32>,
    /// 1 if lifetimes that end here end later, 0 if those that begin here begin earlier.
    ends: Table<'a, u32>,
    workspaces: Table<'a, u32>,
}

struct Writer<'b> {
    blocks: Table<'b, Block>,
    names: Table<'b, Residency>,
    len: u32,
}

impl<'a> Orders<'a> {
    fn new(graph: &Graph<'_>, streams: &[u32], dependencies: &Dependencies<'_>, scratch: &mut Workspace<'a>) -> Self {
        let nodes = graph.nodes.len();
        let mut new = Self {
            place: scratch.indices(nodes),
            next: scratch.indices(nodes),
            late: scratch.indices(nodes),
            early: scratch.indices(nodes),
            ends: scratch.indices(nodes),
            workspaces: scratch.indices(nodes),
        };
        let (mut begins, mut uses) = (scratch.indices(nodes), scratch.indices(nodes));
        for (place, &node) in (0..).zip(dependencies.order()) {
            new.place[node] = place;
            let n = at(graph.nodes, node);
            let produces = |&&t: &&u32| dependencies.producer(t) == Some(node);
            let passing = |&&t: &&u32| at(graph.tensors, t).storage != Storage::Persistent;
            begins[place] = u32::from(n.workspace > 0 || n.outputs.iter().any(|t| produces(&t) && passing(&t)));
            uses[place] = u32::from(n.workspace > 0 || n.inputs.iter().chain(n.outputs).any(|t| passing(&t)));
        }
        // For each stream: 1 + the place of the last operator on it so far; 0 if there is none.
        let mut last = scratch.indices(nodes);
        for (place, &node) in (0u32..).zip(dependencies.order()) {
            let stream = usize::try_from(node).ok().and_then(|node| streams.get(node));
            if let Some(&stream) = stream.filter(|&&stream| stream < count(graph.nodes)) {
                if last[stream] > 0 {
                    new.next[last[stream] - 1] = place + 1;
                }
                last[stream] = place + 1;
            }
        }
        let mut blocks = count(graph.tensors);
        for (node, n) in (0..).zip(graph.nodes) {
            new.workspaces[node] = blocks;
            blocks += u32::from(n.workspace > 0);
        }
        let mut reached = scratch.words(nodes);
        new.descendants(dependencies, &begins, &mut reached);
        new.ancestors(dependencies, &uses, &mut reached);
        new
    }

    fn descendants(&mut self, dependencies: &Dependencies<'_>, begins: &Table<'_, u32>, reached: &mut Table<'_, u64>) {
        let order = dependencies.order();
        let n = count(order);
        for slice in (0..n.div_ceil(SLICE)).rev() {
            let (low, high) = (slice * SLICE, n.min((slice + 1) * SLICE));
            let begin = bits(low, high, begins);
            for place in (0..high).rev() {
                let mut found = if place >= low { 1 << (place - low) } else { 0 };
                for next in self.after(place, at(order, place), dependencies) {
                    if next < high {
                        found |= reached[next];
                    }
                }
                reached[place] = found;
                let after = if place < low { u64::MAX } else { u64::MAX.checked_shl(place - low + 1).unwrap_or(0) };
                let missing = begin & !found & after;
                if self.late[place] == 0 && missing > 0 {
                    self.late[place] = low + SLICE - missing.leading_zeros();
                }
            }
        }
        for place in 0..n {
            self.late[place] = self.late[place].max(place + 1);
        }
    }

    fn ancestors(&mut self, dependencies: &Dependencies<'_>, uses: &Table<'_, u32>, reached: &mut Table<'_, u64>) {
        let order = dependencies.order();
        let n = count(order);
        for place in 0..n {
            self.early[place] = place;
        }
        for slice in 0..n.div_ceil(SLICE) {
            let (low, high) = (slice * SLICE, n.min((slice + 1) * SLICE));
            let here = bits(low, high, uses);
            reached.fill(0);
            for place in low..n {
                let own = if place < high { 1 << (place - low) } else { 0 };
                let found = reached[place] | own;
                for next in self.after(place, at(order, place), dependencies) {
                    reached[next] |= found;
                }
                let before = if place < high { own.wrapping_sub(1) } else { u64::MAX };
                let missing = here & !found & before;
                if missing > 0 {
                    self.early[place] = self.early[place].min(low + missing.trailing_zeros());
                }
            }
        }
    }

    fn after(&self, place: u32, node: u32, dependencies: &Dependencies<'_>) -> impl Iterator<Item = u32> {
        let on_stream = self.next[place].checked_sub(1);
        dependencies.successors(node).iter().map(|&next| self.place[next]).chain(on_stream)
    }

    fn choose(&mut self, n: u32, [ends, beginnings]: &[Table<'_, u64>; 2]) {
        let mut first = 0;
        let mut last = 0;
        for place in 0..n {
            last = last.max(self.late[place]);
            if last > place + 1 {
                continue;
            }
            let most = |load: &Table<'_, u64>| (first..=place).map(|p| load[p]).max().unwrap_or_default();
            let by_ends = u32::from(most(ends) <= most(beginnings));
            for p in first..=place {
                self.ends[p] = by_ends;
            }
            first = place + 1;
        }
    }

    fn write(
        &self,
        graph: &Graph<'_>,
        dependencies: &Dependencies<'_>,
        writer: &mut Writer<'_>,
        extend: Extend,
    ) -> Result<usize, Error> {
        // An iteration without operators still has a step, so that no lifetime is empty.
        let end = count(graph.nodes).max(1);
        let by_ends = |place: u32| extend == Extend::Ends || extend == Extend::Chosen && self.ends[place] > 0;
        let begin = |place: u32| {
            let extended = extend == Extend::Beginnings || extend == Extend::Chosen && !by_ends(place);
            if extended { self.early[place] } else { place }
        };
        let done = |place: u32| if by_ends(place) { self.late[place] } else { place + 1 };
        writer.len = 0;
        for (tensor, t) in (0..).zip(graph.tensors) {
            let persistent = t.storage == Storage::Persistent;
            if dependencies.users(tensor) == 0 && !persistent {
                continue;
            }
            if t.bytes == 0 {
                return Err(Error::ZeroSize { block: tensor });
            }
            let producer = dependencies.producer(tensor).filter(|_| !persistent);
            let first = producer.map_or(0, |node| begin(self.place[node]));
            let last = match t.storage {
                Storage::Transient => {
                    dependencies.users_of(tensor).map(|node| done(self.place[node])).max().unwrap_or(end)
                }
                _ => end,
            };
            writer.push(tensor, Block::new(first, last, t.bytes));
        }
        for (node, n) in (0..).zip(graph.nodes).filter(|(_, n)| n.workspace > 0) {
            let place = self.place[node];
            writer.push(self.workspaces[node], Block::new(begin(place), done(place), n.workspace));
        }
        Ok(usize::try_from(writer.len).unwrap_or_default())
    }
}

impl Writer<'_> {
    fn push(&mut self, block: u32, lifetime: Block) {
        self.names[self.len] = Residency { block, ordinal: 0 };
        self.blocks[self.len] = lifetime;
        self.len += 1;
    }
}

fn bits(low: u32, high: u32, marks: &Table<'_, u32>) -> u64 {
    (low..high).filter(|&p| marks[p] > 0).fold(0, |bits, p| bits | 1 << (p - low))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Node, Tensor};
    use std::vec::Vec;

    /// Operator k makes tensor k + 1: 0 ─► 1 ─► 4, 0 ─► 2 ─► 3 ─► 4, 0 ─► 5.
    const INPUTS: [&[u32]; 6] = [&[0], &[1], &[1], &[3], &[2, 4], &[1]];
    const OUTPUTS: [&[u32]; 6] = [&[1], &[2], &[3], &[4], &[5], &[6]];

    fn nodes(times: [u64; 6]) -> Vec<Node<'static>> {
        let node = |((inputs, outputs), time_ns)| Node { inputs, outputs, workspace: 0, time_ns };
        INPUTS.into_iter().zip(OUTPUTS).zip(times).map(node).collect()
    }

    fn paths(times: [u64; 6], count: u32) -> Vec<u32> {
        let nodes = nodes(times);
        let graph = Graph { tensors: &[Tensor { bytes: 1, storage: Storage::Transient }; 7], nodes: &nodes };
        let len = paths_workspace(7, 6, graph.operands());
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let mut streams = vec![9; 6];
        longest_paths(&graph, count, Workspace::new(&mut words, &mut indices), &mut streams).unwrap();
        streams
    }

    #[test]
    fn the_longest_paths_are_streams() {
        assert_eq!(paths([1; 6], 1), [0; 6]);
        assert_eq!(paths([1; 6], 2), [0, 1, 0, 0, 0, 1]);
        assert_eq!(paths([1, 9, 1, 1, 1, 1], 2), [0, 0, 1, 1, 0, 1]);
        assert_eq!(paths([1, 1, 1, 1, 1, 9], 3), [0, 2, 1, 1, 1, 0]);
        assert_eq!(paths([0; 6], 9), [0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn nothing_takes_no_memory() {
        let nothing = Graph::default();
        assert_eq!(workspace(0, 0, 0), WorkspaceLen { words: 0, indices: 0 });
        assert_eq!(lifetimes(&nothing, &[], Workspace::new(&mut [], &mut []), &mut [], &mut []), Ok(0));
        let weights = Graph { tensors: &[Tensor { bytes: 3, storage: Storage::Persistent }], nodes: &[] };
        let (mut blocks, mut names) = ([Block::default()], [Residency::default()]);
        let mut indices = [0; 2];
        let lent = Workspace::new(&mut [], &mut indices);
        assert_eq!(lifetimes(&weights, &[], lent, &mut blocks, &mut names), Ok(1));
        assert_eq!(blocks, [Block::new(0, 1, 3)]);
    }

    #[test]
    fn branches_keep_their_memory_until_the_others_have_begun() {
        let nodes = nodes([1; 6]);
        let graph = Graph { tensors: &[Tensor { bytes: 1, storage: Storage::Transient }; 7], nodes: &nodes };
        let len = workspace(7, 6, graph.operands());
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let (mut blocks, mut names) = ([Block::default(); 7], [Residency::default(); 7]);
        let mut lifetimes = |streams: &[u32], indices: &mut [u32]| {
            lifetimes(&graph, streams, Workspace::new(&mut words, indices), &mut blocks, &mut names).map(|n| {
                assert_eq!(n, 7);
                blocks.map(|b| (b.start, b.end))
            })
        };
        let any = lifetimes(&[], &mut indices).unwrap();
        assert!(any[3].1 > any[6].0 && any[2].1 > any[4].0);
        let one = lifetimes(&[0; 6], &mut indices).unwrap();
        assert_eq!(one, [(0, 1), (0, 6), (1, 5), (2, 4), (3, 5), (4, 5), (5, 6)]);
        for n in 0..len.indices {
            let short = lifetimes(&[], &mut indices[..n]);
            assert_eq!(short, Err(Error::BufferTooSmall { buffer: Buffer::Indices, needed: len.indices, got: n }));
        }
    }
}
