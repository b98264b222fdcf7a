//! Static graphs: the rows of a trace for frameworks that record nothing.

use core::ffi::c_void;

use sublet_core::trace::Row;
use sublet_core::trace::graph::{self, Graph, Node, Storage, Tensor};

use crate::arguments::{Arguments, plain};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{copy, sublet_row};
use crate::workspace::{Needed, Room, sublet_layout};

/// How long the memory of a tensor is needed.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_storage {
    /// From the operator that produces it to its last reader; from the beginning if no operator produces it.
    Transient = 0,
    /// From the operator that produces it, or the beginning, to the end of the iteration: inputs and results.
    Iteration = 1,
    /// Always: parameters and their state.
    Persistent = 2,
}

/// One value of a graph, which takes one block of memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_tensor {
    /// Size in bytes; at least 1.
    pub bytes: u64,
    /// A sublet_storage.
    pub storage: u32,
    /// 0.
    pub reserved: u32,
}

/// One operator of a graph. Its operands, first the tensors that it reads and then those that it writes, stand in one
/// array with those of all others, in the order of the operators.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_node {
    /// How long it takes, in ns.
    pub time_ns: u64,
    /// Bytes that it needs while it runs, and nobody afterwards; 0 is none.
    pub workspace: u64,
    /// How many tensors it reads.
    pub input_count: u32,
    /// How many it writes.
    pub output_count: u32,
}

plain!(sublet_tensor, sublet_node);

const STORAGES: [(sublet_storage, Storage); 3] = [
    (sublet_storage::Transient, Storage::Transient),
    (sublet_storage::Iteration, Storage::Iteration),
    (sublet_storage::Persistent, Storage::Persistent),
];

/// Tensors as `core` has them.
pub(crate) fn tensors<'a>(room: &mut Room<'a>, given: &[sublet_tensor]) -> Result<&'a mut [Tensor], Failure> {
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

/// Operators as `core` has them, with their parts of the operands.
pub(crate) fn nodes<'a>(
    room: &mut Room<'a>,
    given: &[sublet_node],
    operands: &'a [u32],
) -> Result<&'a mut [Node<'a>], Failure> {
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

/// No trace of such a graph has more rows.
const fn most_rows(tensors: usize, nodes: usize, operands: usize) -> usize {
    3 * tensors + 3 * nodes + operands
}

fn needed(tensors: usize, nodes: usize, operands: usize) -> Needed {
    Needed::workspace(graph::workspace(tensors, nodes, operands))
        .and::<Tensor>(tensors)
        .and::<Node<'_>>(nodes)
        .and::<Row>(most_rows(tensors, nodes, operands))
}

/// The workspace that sublet_graph_rows needs for so many tensors, operators and operands. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_rows_workspace(
    tensor_count: usize,
    node_count: usize,
    operand_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (tensors, nodes) = (arguments.count(tensor_count)?, arguments.count(node_count)?);
        Ok(needed(tensors, nodes, arguments.count(operand_count)?))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes the trace of a static graph, by reference counts: a tensor is allocated when the operator that produces it
/// begins, and freed when the last operator that uses it is done. Operators run in topological order; a list that is in
/// one keeps it, and in the rows they have their indices as numbers. An operator that reads and writes the same tensor
/// updates it. O(operands + operators * log operators).
///
/// A tensor's block has its index; workspaces have the numbers after them, in the order of the operators that have one.
/// `rows` has room for `row_capacity`; 3 * tensor_count + 3 * node_count + operand_count are always enough. `row_count`
/// and `block_count` receive how many there are, and may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_graph_rows(
    tensors: *const sublet_tensor,
    tensor_count: usize,
    nodes: *const sublet_node,
    node_count: usize,
    operands: *const u32,
    operand_count: usize,
    workspace: *mut c_void,
    workspace_size: usize,
    rows: *mut sublet_row,
    row_capacity: usize,
    row_count: *mut usize,
    block_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (tensors, nodes, operands, mut room, rows, row_count, block_count) = unsafe {
            let tensors = arguments.input(tensors, tensor_count)?;
            let nodes = arguments.input(nodes, node_count)?;
            let operands = arguments.input(operands, operand_count)?;
            let needed = needed(tensor_count, node_count, operand_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let rows = arguments.output(rows, row_capacity)?;
            (tensors, nodes, operands, room, rows, arguments.optional(row_count)?, arguments.optional(block_count)?)
        };
        let tensors = self::tensors(&mut room, tensors)?;
        let nodes = self::nodes(&mut room, nodes, operands)?;
        let to = room.fill(most_rows(tensor_count, node_count, operand_count), Row::default());
        let scratch = room.workspace(graph::workspace(tensor_count, node_count, operand_count));
        let graph = Graph { tensors, nodes };
        let found = graph::rows(&graph, scratch, to)?;
        if found > row_capacity {
            return Err(Failure::new(S::BufferTooSmall, 8, found as u64, row_capacity as u64));
        }
        copy(to.get(..found).unwrap_or_default(), rows);
        row_count.set(found);
        block_count.set(graph.blocks());
        Ok(())
    })
}
