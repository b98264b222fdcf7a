//! Makes a trace (the mallocs, frees, reads and writes of an iteration) from a static graph, for frameworks that record
//! nothing.

use core::ffi::c_void;
use core::mem::offset_of;

use sublet_core::trace::order::{self, Options, Ordered};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_core::trace::{Operator, Row};

use crate::arguments::{Arguments, counted, params, plain};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::iteration::none;
use crate::operator::{self, sublet_operator};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::sublet_row;
use crate::workspace::{Needed, Room, sublet_layout};

/// How long the memory of a tensor in a graph is needed.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_storage {
    /// The memory is needed from the operator that produces the tensor or, if no operator does, from the beginning of
    /// the iteration; and until the last operator that uses the tensor is done.
    Transient = 0,
    /// The memory is needed until the end of the iteration: from the operator that produces the tensor or, if no
    /// operator does, from the beginning of the iteration. For inputs and results.
    Iteration = 1,
    /// The memory is needed always, over all iterations. For parameters, and for what an optimizer keeps for them.
    Persistent = 2,
}

/// One value of a graph, a tensor, which takes one block of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_tensor {
    /// Size of the tensor in bytes; at least 1.
    pub bytes: u64,
    /// A sublet_storage: how long the tensor's memory is needed.
    pub storage: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
}

/// One operator of a graph. Its operands, first the tensors that it reads and then those that it writes, stand in the
/// array `operands` of the sublet_graph, which has the operands of all operators, one operator after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_node {
    /// How long the operator takes, in ns.
    pub time_ns: u64,
    /// Bytes of workspace that the operator needs only while it runs; 0 is none.
    pub workspace: u64,
    /// How many tensors the operator reads.
    pub input_count: u32,
    /// How many tensors the operator writes.
    pub output_count: u32,
}

/// A static graph: operators, and the tensors that they read and write.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_graph {
    /// Set this to sizeof(sublet_graph): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// The tensors of the graph: entry k is the tensor of number k.
    pub tensors: *const sublet_tensor,
    /// How many tensors the graph has.
    pub tensor_count: usize,
    /// The operators of the graph: entry k is the operator of number k.
    pub nodes: *const sublet_node,
    /// How many operators the graph has.
    pub node_count: usize,
    /// The operands of all operators, one operator after the other: for each, the numbers of the tensors that it reads,
    /// then of those that it writes.
    pub operands: *const u32,
    /// How many entries `operands` has: the operands of all operators together.
    pub operand_count: usize,
    /// Entry k is the number of the stream of operator k; only sublet_parallel_lifetimes reads it. Operators on the
    /// same stream run one after the other, in the order in which sublet_graph_rows runs them. An operator whose stream
    /// number is `node_count` or more is on no stream, and runs as soon as its inputs are there. NULL: no operator is
    /// on a stream.
    pub streams: *const u32,
}

plain!(sublet_tensor, sublet_node, sublet_graph);
params! {
    sublet_graph { struct_size, reserved, tensors, tensor_count, nodes, node_count, operands, operand_count, streams }
}

const STORAGES: [(sublet_storage, Storage); 3] = [
    (sublet_storage::Transient, Storage::Transient),
    (sublet_storage::Iteration, Storage::Iteration),
    (sublet_storage::Persistent, Storage::Persistent),
];

fn tensors<'a>(room: &mut Room<'a>, given: &[sublet_tensor]) -> Result<&'a mut [Tensor], Failure> {
    room.slice(given.len(), |i| {
        let tensor = given.get(i).ok_or(Failure::of(S::Unnamed))?;
        let index = u32::try_from(i).unwrap_or(u32::MAX);
        let refuse = |got: u32| Failure::new(S::TensorUnknownValue, index, 0, got.into());
        if tensor.reserved != 0 {
            return Err(refuse(tensor.reserved));
        }
        let storage = STORAGES.iter().find(|(s, _)| *s as u32 == tensor.storage).ok_or(refuse(tensor.storage))?.1;
        Ok(Tensor { bytes: tensor.bytes, storage })
    })
}

fn nodes<'a>(room: &mut Room<'a>, given: &[sublet_node], operands: &'a [u32]) -> Result<&'a mut [Node<'a>], Failure> {
    let mut rest = operands;
    let mut cut = |n: u32, i: usize| {
        let n = usize::try_from(n).unwrap_or(usize::MAX);
        let index = u32::try_from(i).unwrap_or(u32::MAX);
        let few = Failure::new(S::Operands, index, n as u64, rest.len() as u64);
        let (front, back) = rest.split_at_checked(n).ok_or(few)?;
        rest = back;
        Ok::<&'a [u32], Failure>(front)
    };
    let nodes = room.slice(given.len(), |i| {
        let node = given.get(i).ok_or(Failure::of(S::Unnamed))?;
        let (inputs, outputs) = (cut(node.input_count, i)?, cut(node.output_count, i)?);
        Ok::<_, Failure>(Node { inputs, outputs, workspace: node.workspace, time_ns: node.time_ns })
    })?;
    if rest.is_empty() {
        return Ok(nodes);
    }
    let index = u32::try_from(given.len()).unwrap_or(u32::MAX);
    Err(Failure::new(S::Operands, index, 0, rest.len() as u64))
}

#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) tensors: usize,
    pub(crate) nodes: usize,
    pub(crate) operands: usize,
}

impl Counts {
    /// The trace, and one read for each tensor by an operator added at the end.
    const fn most_rows(self) -> usize {
        4 * self.tensors + 3 * self.nodes + self.operands
    }
}

impl sublet_graph {
    fn counts(&self, position: u32) -> Result<Counts, Failure> {
        none(self.reserved, position)?;
        let count = |n: usize| counted(n, position);
        let (tensors, nodes) = (count(self.tensor_count)?, count(self.node_count)?);
        Ok(Counts { tensors, nodes, operands: count(self.operand_count)? })
    }
}

/// Follows no pointer in the graph, which is NULL or as long as its first field says.
pub(crate) unsafe fn counts(arguments: &mut Arguments<'_>, graph: *const sublet_graph) -> Result<Counts, Failure> {
    let position = arguments.position();
    // SAFETY: as promised.
    unsafe { arguments.given(graph)? }.counts(position)
}

pub(crate) struct Given<'a> {
    tensors: &'a [sublet_tensor],
    nodes: &'a [sublet_node],
    operands: &'a [u32],
    /// Empty if the caller gave none.
    pub(crate) streams: &'a [u32],
}

impl<'a> Given<'a> {
    /// If `graph` is not NULL, the struct and its arrays can be read.
    pub(crate) unsafe fn new(arguments: &mut Arguments<'a>, graph: *const sublet_graph) -> Result<Self, Failure> {
        let at = arguments.position();
        // SAFETY: as promised.
        let given = unsafe { arguments.given(graph)? };
        let Counts { tensors, nodes, operands } = given.counts(at)?;
        let streams = if given.streams.is_null() { 0 } else { nodes };
        // SAFETY: as promised.
        unsafe {
            let field = offset_of!(sublet_graph, tensors);
            let tensors = arguments.field(at, field, |a| a.input_of(given.tensors, tensors, at))?;
            let nodes = arguments.field(at, offset_of!(sublet_graph, nodes), |a| a.input_of(given.nodes, nodes, at))?;
            let field = offset_of!(sublet_graph, operands);
            let operands = arguments.field(at, field, |a| a.input_of(given.operands, operands, at))?;
            let field = offset_of!(sublet_graph, streams);
            Ok(Self {
                tensors,
                nodes,
                operands,
                streams: arguments.field(at, field, |a| a.input_of(given.streams, streams, at))?,
            })
        }
    }

    pub(crate) const fn counts(&self) -> Counts {
        Counts { tensors: self.tensors.len(), nodes: self.nodes.len(), operands: self.operands.len() }
    }

    pub(crate) fn graph(&self, room: &mut Room<'a>) -> Result<Graph<'a>, Failure> {
        Ok(Graph { tensors: tensors(room, self.tensors)?, nodes: nodes(room, self.nodes, self.operands)? })
    }
}

fn needed(graph: Counts) -> Needed {
    Needed::workspace(Graph::workspace(graph.tensors, graph.nodes, graph.operands))
        .and::<Tensor>(graph.tensors)
        .and::<Node<'_>>(graph.nodes)
        .and::<Row>(graph.most_rows())
}

/// Tells in `layout` how large a workspace sublet_graph_rows needs. Its size is linear in the counts of tensors,
/// operators and operands; of `graph` only these counts are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_rows_workspace(
    graph: *const sublet_graph,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a struct that is as long as it says.
    let needed = |arguments: &mut Arguments<'_>| Ok(needed(unsafe { counts(arguments, graph)? }));
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes the trace of a static graph. The producer of a tensor is the operator that writes it without reading it. A
/// persistent tensor (SUBLET_STORAGE_PERSISTENT) is allocated at the start and never freed. Any other tensor that
/// operators use is allocated when its producer begins; without a producer, at the start. It is freed when the last
/// operator that uses it is done, or at the end of the iteration if it has SUBLET_STORAGE_ITERATION. Operators run in
/// the order of `nodes` if that is topological, else in another topological order. In the rows, the number of an
/// operator is its index in `nodes`. An operator that reads and writes the same tensor updates the tensor in place.
/// Takes O(operands + operators * log operators).
///
/// If operators use tensors with SUBLET_STORAGE_ITERATION, one more operator is added at the end, which reads all these
/// tensors. So their values are all on the device at the end, even if sublet_fit swaps or recomputes them before. The
/// added operator has the number `node_count`, takes no time, and runs nothing. Do not give SUBLET_OPERATOR_UNORDERED
/// to it, nor to an operator whose results nobody reads: otherwise sublet_fit could let another operator run after the
/// added one.
///
/// A tensor's block has the number of the tensor; the blocks of workspaces have the numbers after them, in the order of
/// the operators that have one. `rows` has room for `row_capacity` rows; 4 * tensor_count + 3 * node_count +
/// operand_count rows are always enough. `row_count` and `block_count` receive how many rows and how many blocks the
/// trace has, and may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_rows(
    graph: *const sublet_graph,
    workspace: *mut c_void,
    workspace_size: usize,
    rows: *mut sublet_row,
    row_capacity: usize,
    row_count: *mut usize,
    block_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (given, mut room, rows, row_count, block_count) = unsafe {
            let given = Given::new(arguments, graph)?;
            let room = arguments.workspace(workspace, workspace_size, needed(given.counts()))?;
            let rows = arguments.output(rows, row_capacity)?;
            (given, room, rows, arguments.optional(row_count)?, arguments.optional(block_count)?)
        };
        let counts = given.counts();
        let graph = given.graph(&mut room)?;
        let to = room.fill(counts.most_rows(), Row::default());
        let scratch = room.workspace(Graph::workspace(counts.tensors, counts.nodes, counts.operands));
        let found = graph.rows(scratch, to)?;
        let most = graph.read_results(to, found)?;
        if most > row_capacity {
            return Err(Failure::new(S::BufferTooSmall, 3, most as u64, row_capacity as u64));
        }
        for (row, from) in rows.iter_mut().zip(to.iter().take(most)) {
            *row = (*from).into();
        }
        row_count.set(most);
        block_count.set(graph.blocks());
        Ok(())
    })
}

/// What is known of the order of a graph's operators that sublet_graph_order has found. Sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_graph_ordered {
    /// Set this to sizeof(sublet_graph_ordered): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// How many sets of operators the exact search has tried to extend; 0 if there was no exact search.
    pub states: u32,
    /// The max load, the most bytes alive at one step, in the order that was found; never above `given`.
    pub max_load: u64,
    /// The max load in the order of `nodes`, or if that is not topological, in another order.
    pub given: u64,
    /// No order has a lower max load than this.
    pub lower_bound: u64,
}

plain!(sublet_graph_ordered);
params! {
    sublet_graph_ordered { struct_size, states, max_load, given, lower_bound }
}

fn order_needed(graph: Counts) -> Needed {
    Needed::workspace(order::workspace(graph.tensors, graph.nodes, graph.operands, Options::default()))
        .and::<Tensor>(graph.tensors)
        .and::<Node<'_>>(graph.nodes)
        .and::<Operator>(graph.nodes)
}

/// Tells in `layout` how large a workspace sublet_graph_order needs. Of `graph` only the counts are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_order_workspace(
    graph: *const sublet_graph,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a struct that is as long as it says.
    let needed = |arguments: &mut Arguments<'_>| Ok(order_needed(unsafe { counts(arguments, graph)? }));
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Finds an order of the operators of a static graph in which few bytes are alive at one step, and writes their numbers
/// to `order`, one for each operator: the least order if the exact search ends, else the best that a beam search finds.
///
/// `operators` has an entry for each operator, or is NULL. Those with SUBLET_OPERATOR_IN_PLACE may write their first
/// output over their first input: where both have the same size and nobody reads the input later, the output takes no
/// memory of its own. Those without SUBLET_OPERATOR_UNORDERED keep their order among themselves. NULL: none works in
/// place, and each may run as soon as its inputs are there. `ordered` may be NULL.
///
/// To plan the graph in this order, list its operators in it and call sublet_graph_rows.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_order(
    graph: *const sublet_graph,
    operators: *const sublet_operator,
    workspace: *mut c_void,
    workspace_size: usize,
    order: *mut u32,
    ordered: *mut sublet_graph_ordered,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (given, operators, mut room, order, ordered) = unsafe {
            let given = Given::new(arguments, graph)?;
            let nodes = given.counts().nodes;
            let count = if operators.is_null() { 0 } else { nodes };
            let operators = arguments.input_of(operators, count, 0)?;
            let room = arguments.workspace(workspace, workspace_size, order_needed(given.counts()))?;
            let order = arguments.output_of(order, nodes, 0)?;
            (given, operators, room, order, arguments.report_if_wanted(ordered)?)
        };
        let Counts { tensors, nodes, operands } = given.counts();
        let graph = given.graph(&mut room)?;
        let operators = operator::operators(&mut room, operators)?;
        let options = Options::default();
        let scratch = room.workspace(order::workspace(tensors, nodes, operands, options));
        let Ordered { max_load, given, lower_bound, states } =
            order::least_load(&graph, operators, options, scratch, order)?;
        ordered.set(sublet_graph_ordered { struct_size: 0, states, max_load, given, lower_bound });
        Ok(())
    })
}
