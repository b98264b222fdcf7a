//! Lifetimes for graphs whose operators run at the same time.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::trace::graph::{Graph, Node, Tensor};
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::parallel;

use crate::arguments::Arguments;
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::graph::{nodes, sublet_node, sublet_tensor, tensors};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{copy, sublet_residency};
use crate::workspace::{Needed, sublet_layout};

/// Enough for either function.
fn needed(tensors: usize, nodes: usize, operands: usize) -> Needed {
    let len = parallel::workspace(tensors, nodes, operands).max(parallel::paths_workspace(tensors, nodes, operands));
    Needed::workspace(len)
        .and::<Tensor>(tensors)
        .and::<Node<'_>>(nodes)
        .and::<Block>(tensors + nodes)
        .and::<Residency>(tensors + nodes)
}

/// The workspace that sublet_parallel_lifetimes and sublet_longest_paths need for so many tensors, operators and
/// operands. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_parallel_workspace(
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

/// Writes lifetimes under which blocks may share memory in every order and overlap of operators that the dependencies
/// of a graph and its streams allow. Steps are places in the order in which sublet_graph_rows runs the operators. The
/// graph is told as there, and blocks have the numbers that they have there, which `names`, which may be NULL, receives.
/// O(edges * operators / 64).
///
/// `streams`, one for each operator, tells on which it runs, after those before it in the order; an operator whose number
/// is not below node_count, and all if `streams` is NULL, run whenever their dependencies allow. `blocks` and `names`
/// have room for `capacity`; tensor_count + node_count are always enough. `block_count` receives how many there are, and
/// may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_parallel_lifetimes(
    tensors: *const sublet_tensor,
    tensor_count: usize,
    nodes: *const sublet_node,
    node_count: usize,
    operands: *const u32,
    operand_count: usize,
    streams: *const u32,
    workspace: *mut c_void,
    workspace_size: usize,
    blocks: *mut sublet_block,
    names: *mut sublet_residency,
    capacity: usize,
    block_count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (tensors, nodes, operands, streams, mut room, blocks, names, block_count) = unsafe {
            let tensors = arguments.input(tensors, tensor_count)?;
            let nodes = arguments.input(nodes, node_count)?;
            let operands = arguments.input(operands, operand_count)?;
            let streams = arguments.input_of(streams, if streams.is_null() { 0 } else { node_count })?;
            let needed = needed(tensor_count, node_count, operand_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let blocks = arguments.output_of(blocks, capacity)?;
            let names = arguments.output_if_wanted(names, capacity)?;
            arguments.skip();
            (tensors, nodes, operands, streams, room, blocks, names, arguments.optional(block_count)?)
        };
        let tensors = self::tensors(&mut room, tensors)?;
        let nodes = self::nodes(&mut room, nodes, operands)?;
        let most = tensor_count + node_count;
        let (to_blocks, to_names) = (room.fill(most, Block::default()), room.fill(most, Residency::default()));
        let scratch = room.workspace(parallel::workspace(tensor_count, node_count, operand_count));
        let found = parallel::lifetimes(&Graph { tensors, nodes }, streams, scratch, to_blocks, to_names)?;
        if found > capacity {
            return Err(Failure::new(S::BufferTooSmall, 9, found as u64, capacity as u64));
        }
        copy(to_blocks.get(..found).unwrap_or_default(), blocks);
        copy(to_names.get(..found).unwrap_or_default(), names);
        block_count.set(found);
        Ok(())
    })
}

/// Puts the operators of a graph on at most `path_count` streams, one number for each in `streams`: those of the longest
/// path, by their times, on stream 0, those of the longest path of what is left on stream 1, and so on; what is left at
/// last shares the last stream. O(path_count * edges).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_longest_paths(
    tensors: *const sublet_tensor,
    tensor_count: usize,
    nodes: *const sublet_node,
    node_count: usize,
    operands: *const u32,
    operand_count: usize,
    path_count: u32,
    workspace: *mut c_void,
    workspace_size: usize,
    streams: *mut u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (tensors, nodes, operands, mut room, streams) = unsafe {
            let tensors = arguments.input(tensors, tensor_count)?;
            let nodes = arguments.input(nodes, node_count)?;
            let operands = arguments.input(operands, operand_count)?;
            arguments.skip();
            let needed = needed(tensor_count, node_count, operand_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            (tensors, nodes, operands, room, arguments.output_of(streams, node_count)?)
        };
        let tensors = self::tensors(&mut room, tensors)?;
        let nodes = self::nodes(&mut room, nodes, operands)?;
        let scratch = room.workspace(parallel::paths_workspace(tensor_count, node_count, operand_count));
        Ok(parallel::longest_paths(&Graph { tensors, nodes }, path_count, scratch, streams)?)
    })
}
