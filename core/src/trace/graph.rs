//! A static graph to the rows of a trace, for frameworks that know their operators before they run and record nothing,
//! such as Caffe or `TFLite` Micro.
//!
//! A tensor is allocated when the operator that produces it begins, and freed when the last operator that reads it is
//! done: reference counts in topological order, as in `MXNet`'s note on memory.
//!
//! 1. The operators are put in topological order; a list that is in one keeps it, and operators keep their numbers.
//! 2. At time 0 stand what is persistent, and then what no operator produces, which is given and written.
//! 3. Each operator allocates what it produces, reads its inputs, allocates its workspace; its time passes; it writes
//!    and frees the workspace and writes its outputs. Then what nobody needs any more is freed, in the order of its
//!    operands.
//! 4. At the end what stays for the iteration is freed, in the order of the tensors.
//!
//! An operator that reads and writes the same tensor updates it in place, and no row allocates. An operator that may
//! work in place, but need not, has two tensors; whether they share memory is for a later pass to say.
//!
//! O(operands + operators · log operators), scratch linear in tensors, operators and operands.

use super::dependencies::{self, Dependencies};
use super::{Event, Op, Row};
use crate::error::{Buffer, RowFault};
use crate::table::{Table, at, count};
use crate::{Error, Workspace, WorkspaceLen};

/// What an iteration computes: operators that read and write tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Graph<'a> {
    /// The tensors; operators call them by their index.
    pub tensors: &'a [Tensor],
    /// The operators, by their numbers.
    pub nodes: &'a [Node<'a>],
}

/// One value, which takes one block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tensor {
    /// Size in bytes; at least 1.
    pub bytes: u64,
    /// How long its memory is needed.
    pub storage: Storage,
}

/// How long the memory of a tensor is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// From the operator that produces it to its last reader; from the beginning if no operator produces it.
    #[default]
    Transient,
    /// From the operator that produces it, or the beginning, to the end of the iteration: inputs and results.
    Iteration,
    /// Always: parameters and their state, whose values pass from one iteration to the next.
    Persistent,
}

/// One operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Node<'a> {
    /// The tensors that it reads; one that is named twice is read once.
    pub inputs: &'a [u32],
    /// The tensors that it writes, each once.
    pub outputs: &'a [u32],
    /// Bytes that it needs while it runs, and nobody afterwards; 0 is none.
    pub workspace: u64,
    /// How long it takes, in ns.
    pub time_ns: u64,
}

impl Graph<'_> {
    /// How many inputs and outputs all operators have together.
    #[must_use]
    pub fn operands(&self) -> usize {
        self.nodes.iter().map(|n| n.inputs.len() + n.outputs.len()).sum()
    }

    /// Number of blocks of the trace: the tensors, by their indices, and then a block for the workspace of each
    /// operator that has one, in the order of the operators.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.tensors.len() + self.nodes.iter().filter(|n| n.workspace > 0).count()
    }

    /// No trace of the graph has more rows: what [`rows`] wants to be lent.
    #[must_use]
    pub fn most_rows(&self) -> usize {
        3 * self.tensors.len() + 3 * self.nodes.len() + self.operands()
    }
}

/// Length of the workspace that [`rows`] needs.
#[must_use]
pub const fn workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
    dependencies::workspace(tensors, nodes, operands).and(WorkspaceLen { words: 0, indices: 2 * tensors + nodes })
}

/// Writes the trace of a graph; returns how many rows it has. `Op::First(k)` is the operator of index `k`.
///
/// # Errors
/// [`Error::UnknownTensor`] for an operand that is none, [`Error::TwoWriters`] for a tensor that two operators produce,
/// [`Error::Cycle`], [`Error::ZeroSize`] for a tensor that is used and has no bytes; [`Error::TooManyBlocks`] and
/// [`Error::Row`] for more than can be counted; [`Error::BufferTooSmall`] if the rows are fewer than
/// [`Graph::most_rows`] or the workspace is too short.
///
/// ```
/// use sublet_core::trace::graph::{self, Graph, Node, Storage, Tensor};
/// use sublet_core::trace::{Event, liveness};
/// use sublet_core::{Block, Workspace};
///
/// // image ──► convolution ──► relu ──► scores
/// let weights = Tensor { bytes: 864, storage: Storage::Persistent };
/// let tensor = |bytes| Tensor { bytes, storage: Storage::Transient };
/// let tensors = [tensor(3072), weights, tensor(32_768), tensor(32_768)];
/// let convolution = Node { inputs: &[0, 1], outputs: &[2], workspace: 4096, time_ns: 900 };
/// let relu = Node { inputs: &[2], outputs: &[3], ..Node::default() };
/// let graph = Graph { tensors: &tensors, nodes: &[convolution, relu] };
///
/// let len = graph::workspace(4, 2, graph.operands());
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut rows = vec![Default::default(); graph.most_rows()];
/// let n = graph::rows(&graph, Workspace::new(&mut words, &mut indices), &mut rows)?;
/// let frees: Vec<u32> = rows[..n].iter().filter(|r| r.event == Event::Free).map(|r| r.block).collect();
/// assert_eq!(frees, [4, 0, 2, 3]); // the workspace is block 4
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn rows(graph: &Graph<'_>, mut scratch: Workspace<'_>, rows: &mut [Row]) -> Result<usize, Error> {
    let (tensors, nodes) = (graph.tensors.len(), graph.nodes.len());
    scratch.check(workspace(tensors, nodes, graph.operands()))?;
    let needed = graph.most_rows();
    if rows.len() < needed {
        return Err(Error::BufferTooSmall { buffer: Buffer::Rows, needed, got: rows.len() });
    }
    if u32::try_from(needed).is_err() {
        return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
    }
    let dependencies = Dependencies::new(graph, &mut scratch)?;
    let mut writer = Writer {
        graph,
        rows: Table::new(rows),
        len: 0,
        time_ns: 0,
        users: scratch.indices(tensors),
        seen: scratch.indices(tensors),
    };
    let mut workspaces = scratch.indices(nodes);
    let mut blocks = count(graph.tensors);
    for (node, n) in (0..).zip(graph.nodes) {
        workspaces[node] = blocks;
        blocks += u32::from(n.workspace > 0);
    }
    writer.given(&dependencies)?;
    for &node in dependencies.order() {
        writer.run(node, workspaces[node], &dependencies);
    }
    for (tensor, t) in (0..).zip(graph.tensors) {
        if t.storage == Storage::Iteration && dependencies.users(tensor) > 0 {
            writer.push(Event::Free, tensor, Op::None);
        }
    }
    Ok(usize::try_from(writer.len).unwrap_or_default())
}

/// The trace so far.
struct Writer<'a, 'g> {
    graph: &'g Graph<'g>,
    rows: Table<'a, Row>,
    len: u32,
    time_ns: u64,
    /// Per tensor: the operators that use it and have not run.
    users: Table<'a, u32>,
    /// Per tensor: 1 + the operator that used it last.
    seen: Table<'a, u32>,
}

impl Writer<'_, '_> {
    /// What is there before the first operator: persistent tensors, which have to be there before anything is written, so
    /// that their values are those of the iteration before; then what the iteration is given.
    fn given(&mut self, dependencies: &Dependencies<'_>) -> Result<(), Error> {
        for (tensor, t) in (0..).zip(self.graph.tensors) {
            self.users[tensor] = dependencies.users(tensor);
            let persistent = t.storage == Storage::Persistent;
            if t.bytes == 0 && (persistent || self.users[tensor] > 0) {
                return Err(Error::ZeroSize { block: tensor });
            }
            if persistent {
                self.malloc(tensor, t.bytes, Op::None);
            }
        }
        for (tensor, t) in (0..).zip(self.graph.tensors) {
            let used = t.storage != Storage::Persistent && self.users[tensor] > 0;
            if used && dependencies.producer(tensor).is_none() {
                self.malloc(tensor, t.bytes, Op::None);
                self.push(Event::Write, tensor, Op::None);
            }
        }
        Ok(())
    }

    /// The rows of one operator.
    fn run(&mut self, node: u32, workspace: u32, dependencies: &Dependencies<'_>) {
        let (n, op) = (at(self.graph.nodes, node), Op::First(node));
        for &tensor in n.outputs {
            if dependencies.producer(tensor) == Some(node) {
                self.malloc(tensor, at(self.graph.tensors, tensor).bytes, op);
            }
        }
        for &tensor in n.inputs {
            if self.seen[tensor] != node + 1 {
                self.push(Event::Read, tensor, op);
                self.seen[tensor] = node + 1;
                self.users[tensor] -= 1;
            }
        }
        if n.workspace > 0 {
            self.malloc(workspace, n.workspace, op);
        }
        self.time_ns = self.time_ns.saturating_add(n.time_ns);
        if n.workspace > 0 {
            self.push(Event::Write, workspace, op);
            self.push(Event::Free, workspace, op);
        }
        for &tensor in n.outputs {
            self.push(Event::Write, tensor, op);
            if self.seen[tensor] != node + 1 {
                self.seen[tensor] = node + 1;
                self.users[tensor] -= 1;
            }
        }
        for &tensor in n.inputs.iter().chain(n.outputs) {
            let done = self.users[tensor] == 0 && self.seen[tensor] == node + 1;
            if done && at(self.graph.tensors, tensor).storage == Storage::Transient {
                self.push(Event::Free, tensor, Op::None);
                // An operand that is named twice is freed once.
                self.seen[tensor] = 0;
            }
        }
    }

    fn malloc(&mut self, block: u32, bytes: u64, op: Op) {
        self.push(Event::Malloc, block, op);
        self.rows[self.len - 1].bytes = bytes;
    }

    fn push(&mut self, event: Event, block: u32, op: Op) {
        self.rows[self.len] = Row { time_ns: self.time_ns, bytes: 0, block, op, event };
        self.len += 1;
    }
}
