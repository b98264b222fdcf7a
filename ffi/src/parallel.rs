//! Finds when each block of a graph is needed if operators of the graph run at the same time.

use core::ffi::c_void;

use sublet_core::Block;
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::parallel;
use sublet_core::trace::{Node, Tensor};

use crate::arguments::Arguments;
use crate::block::sublet_block;
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::graph::{self, Counts, Given, sublet_graph};
use crate::lifetimes::sublet_residency;
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::copy;
use crate::workspace::{Needed, sublet_layout};

fn needed(Counts { tensors, nodes, operands }: Counts) -> Needed {
    let len = parallel::workspace(tensors, nodes, operands).max(parallel::paths_workspace(tensors, nodes, operands));
    Needed::workspace(len)
        .and::<Tensor>(tensors)
        .and::<Node<'_>>(nodes)
        .and::<Block>(tensors + nodes)
        .and::<Residency>(tensors + nodes)
}

/// Tells in `layout` how large a workspace sublet_parallel_lifetimes and sublet_longest_paths need. Its size is linear
/// in the counts of tensors, operators and operands; of `graph` only these counts are read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_parallel_workspace(
    graph: *const sublet_graph,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for a struct that is as long as it says.
    let needed = |arguments: &mut Arguments<'_>| Ok(needed(unsafe { graph::counts(arguments, graph)? }));
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Writes lifetimes for the blocks of a graph whose operators may run at the same time. Two blocks whose lifetimes do
/// not overlap can share memory: they are never in use at once, however the operators run, as long as the graph's
/// dependencies and streams are kept. The steps of lifetimes are operators, counted from 0 in the order in which
/// sublet_graph_rows writes them. `names`, which may be NULL, receives for each entry of `blocks` the number that the
/// block has in the rows of sublet_graph_rows. Takes O(edges * operators / 64), where an edge is a dependency between
/// two operators.
///
/// `blocks` and `names` have room for `capacity` blocks; tensor_count + node_count are always enough. `count` receives
/// how many blocks there are, and may be NULL.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_parallel_lifetimes(
    graph: *const sublet_graph,
    workspace: *mut c_void,
    workspace_size: usize,
    blocks: *mut sublet_block,
    names: *mut sublet_residency,
    capacity: usize,
    count: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (given, mut room, blocks, names, count) = unsafe {
            let given = Given::new(arguments, graph)?;
            let room = arguments.workspace(workspace, workspace_size, needed(given.counts()))?;
            let blocks = arguments.output_of(blocks, capacity, 5)?;
            let names = arguments.output_if_wanted(names, capacity, 5)?;
            arguments.skip();
            (given, room, blocks, names, arguments.optional(count)?)
        };
        let graph = given.graph(&mut room)?;
        let Counts { tensors, nodes, operands } = given.counts();
        let most = tensors + nodes;
        let (to_blocks, to_names) = (room.fill(most, Block::default()), room.fill(most, Residency::default()));
        let scratch = room.workspace(parallel::workspace(tensors, nodes, operands));
        let found = parallel::lifetimes(&graph, given.streams, scratch, to_blocks, to_names)?;
        if found > capacity {
            return Err(Failure::new(S::BufferTooSmall, 3, found as u64, capacity as u64));
        }
        copy(to_blocks.get(..found).unwrap_or_default(), blocks);
        copy(to_names.get(..found).unwrap_or_default(), names);
        count.set(found);
        Ok(())
    })
}

/// Distributes the operators of a graph over at most `path_count` streams (0 counts as 1), and writes the number of
/// each operator's stream to `streams`, which has room for node_count numbers. A path is a chain of operators, of which
/// each depends on the one before; its length is the time of its operators together, where a time of 0 counts as 1 ns.
/// Stream 0 gets the operators of the longest path of the graph; stream 1, those of the longest path of the remaining
/// operators; and so on. The last stream gets all operators that are left. Takes O(path_count * edges), where an edge
/// is a dependency between two operators.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_longest_paths(
    graph: *const sublet_graph,
    path_count: u32,
    workspace: *mut c_void,
    workspace_size: usize,
    streams: *mut u32,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a struct and pointers that hold what their lengths say.
        let (given, mut room, streams) = unsafe {
            let given = Given::new(arguments, graph)?;
            arguments.skip();
            let room = arguments.workspace(workspace, workspace_size, needed(given.counts()))?;
            let nodes = given.counts().nodes;
            (given, room, arguments.output_of(streams, nodes, 0)?)
        };
        let graph = given.graph(&mut room)?;
        let Counts { tensors, nodes, operands } = given.counts();
        let scratch = room.workspace(parallel::paths_workspace(tensors, nodes, operands));
        Ok(parallel::longest_paths(&graph, path_count, scratch, streams)?)
    })
}
