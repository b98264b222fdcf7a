//! Finds an order of the operators with the least max load (the most bytes that are alive at once).
//!
//! Problem: operators read and write tensors; a tensor takes memory from the first operator that reads or writes it to
//! the last. Which topological order has the least max load? It is NP-hard (Sethi 1975); most real networks are easy.
//!
//! Steps:
//! 1. The order as it is given, or a topological order if it is none, is the incumbent, the best order so far. The most
//!    bytes that any operator touches are a lower bound on the max load of all orders. If the max load of the incumbent
//!    is not higher, the incumbent is proved to be the best. `cut` looks for a higher lower bound, unless the exact
//!    search is turned off: for each operator, the fewest bytes that can be alive while it runs; the highest of these
//!    figures is the bound.
//! 2. Sources are left out: operators that read nothing, need no workspace and make one tensor. Each runs right before
//!    the first operator that reads this tensor. `model` says why no order is better.
//! 3. `exact`: best-first search over the sets of operators that may have run at some time. A set is extended by each
//!    operator that can run next. The set that can be reached with the least max load is extended first. The search
//!    proves that the order that it finds is the best. If it runs out of memory, it still proves a lower bound.
//! 4. `beam`: a beam search, if no order is proved to be the best by then. It extends sets of operators by one operator
//!    at a time, and of the sets of each size it keeps only the best.
//!
//! If an operator is ready, needs no more bytes than the max load of the operators that have run (or the lower bound,
//! if that is higher), and does not raise the load, both searches run it next, and try no other in its place. The load
//! is the bytes that are alive. `model` says why this cannot lead to a higher max load.
//!
//! Papers: Ahn et al. 2020 (Serenity: sets of operators, dynamic programming); Liberis and Lane 2019 (enumeration by
//! recursion, for microcontrollers). The obvious alternative, a list scheduler that takes the operator that frees most,
//! has a max load 5 to 30 % above the least on branched networks, and proves nothing.
//!
//! Cost: each set takes memory of one bit for each operator. The time to extend a set is linear in the operators that
//! are ready and in the edges.

mod beam;
mod cut;
mod early;
mod exact;
mod model;

use super::dependencies::{self, Dependencies};
use super::network::{Graph, Storage};
use super::recorded::Operator;
use crate::error::Buffer;
use crate::table::{Table, at, count};
use crate::{Error, Workspace, WorkspaceLen, sort};
pub(crate) use early::{Early, early};
pub(crate) use model::Model;

/// In arcs of flow networks; about half a second.
const MOST_LOOKS: u64 = 100_000_000;

/// Limits on the work of the search for the order of operators with the least max load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many states the exact search may remember; a state is a set of operators that have run. With 0 there is no
    /// exact search, and no lower bound by minimum cuts.
    pub states: u32,
    /// The width of the beam search: after each operator that it adds, it keeps this many sets of operators that may
    /// have run by then. With 0 there is no beam search.
    pub width: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { states: 20_000, width: 64 }
    }
}

impl Options {
    /// The default limits, but with a wider beam for graphs of few operators: the work of the beam search grows with
    /// `width · operators²`. The searches for an order still take about a second.
    #[must_use]
    pub fn for_operators(operators: usize) -> Self {
        let squared = u64::try_from(operators).unwrap_or(u64::MAX).saturating_pow(2).max(1);
        let width = (30_000_000 / squared).clamp(64, 1_024);
        Self { width: u32::try_from(width).unwrap_or(64), ..Self::default() }
    }
}

/// Says that an operator may write its output over an input that no later operator needs. The output may lie over all
/// of the input, as in elementwise operators, or over a part, where it is known how far the kernel has read (Blacker et
/// al. 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// The number of the operator.
    pub node: u32,
    /// The number of the input over which the operator may write its output.
    pub input: u32,
    /// The bytes that writing over the input saves while the operator runs. They are saved only if no later operator
    /// uses the input.
    pub bytes: u64,
}

/// The result of a search for an order of operators: the max loads, in bytes, of the order that was found and of the
/// order that was given; a lower bound on the max load of all orders; and how far the exact search went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// The max load of the order that was found, in bytes; never above `given`.
    pub max_load: u64,
    /// The max load of the order that was given, in bytes; that of a topological order if the given one was none.
    pub given: u64,
    /// No order of the operators has a lower max load than this, in bytes.
    pub lower_bound: u64,
    /// How many sets of operators the exact search has tried to extend; 0 if there was no exact search.
    pub states: u32,
}

impl Ordered {
    /// Whether the order that was found is proved to have the least max load.
    #[must_use]
    pub const fn is_least(&self) -> bool {
        self.max_load == self.lower_bound
    }
}

/// Length of the workspace for [`least_load`], which finds an order of operators. `tensors` and `nodes` are how many
/// tensors and operators the graph has, `operands` how many inputs and outputs all operators have together
/// ([`Graph::operands`]).
#[must_use]
pub const fn workspace(tensors: usize, nodes: usize, operands: usize, options: Options) -> WorkspaceLen {
    dependencies::workspace(tensors, nodes, operands)
        .and(Model::workspace(tensors, nodes, operands, edges(nodes, operands)))
        .and(WorkspaceLen { words: 0, indices: nodes })
        .and(search_workspace(tensors, nodes, options).max(cut_workspace(tensors, nodes, operands)))
}

/// Those of the data, and one from each ordered operator to the next.
const fn edges(nodes: usize, operands: usize) -> usize {
    2 * operands + nodes
}

const fn cut_workspace(tensors: usize, nodes: usize, operands: usize) -> WorkspaceLen {
    let ranked = WorkspaceLen { words: nodes, indices: 2 * nodes };
    model::walk_workspace(tensors, nodes).and(ranked).and(cut::workspace(
        tensors,
        nodes,
        operands,
        edges(nodes, operands),
    ))
}

pub(crate) const fn search_workspace(tensors: usize, operators: usize, options: Options) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: 2 * operators }.and(
        exact::workspace(tensors, operators, options.states).max(beam::workspace(tensors, operators, options.width)),
    )
}

/// Finds an order of the operators of a static graph with the least max load, and writes their numbers to `order`. If
/// no operator works in place, the returned max load is that of a trace: the one that [`Graph::rows`](super::Graph::rows)
/// writes if the graph lists its operators in the order found.
///
/// `operators` says, by operator number, which operators may work in place. Such an operator takes no memory for its
/// first output if its first input has the same size and is read for the last time. The input has to be
/// [`Storage::Transient`], and the output must not be [`Storage::Persistent`] or an input too. Those that are
/// [`ordered`](Operator::ordered) keep their order among themselves. Operators beyond the end of the slice do not work
/// in place, and are not ordered.
///
/// # Errors
/// Those of [`Graph::rows`](super::Graph::rows) for a graph that is not valid; [`Error::SizeOverflow`] if all tensors and
/// workspaces together have 2⁶⁴ bytes or more; [`Error::BufferTooSmall`] if `order` is not as long as the graph has
/// operators, or the workspace is too short.
///
/// ```
/// use sublet_core::Workspace;
/// use sublet_core::trace::{Graph, Node, Tensor};
/// use sublet_core::trace::order::{self, Options};
/// let tensor = |bytes| Tensor { bytes, ..Tensor::default() };
/// // Two branches with large intermediate results and small final ones: best run one after the other.
/// let tensors = [tensor(1), tensor(9), tensor(9), tensor(1), tensor(1), tensor(1)];
/// let node = |inputs, outputs| Node { inputs, outputs, ..Node::default() };
/// let nodes = [
///     node(&[0], &[1]), node(&[0], &[2]), node(&[1], &[3]), node(&[2], &[4]), node(&[3, 4], &[5]),
/// ];
/// let graph = Graph { tensors: &tensors, nodes: &nodes };
/// let options = Options::default();
/// let len = order::workspace(6, 5, graph.operands(), options);
/// let (mut words, mut indices, mut found) = (vec![0; len.words], vec![0; len.indices], [0; 5]);
/// let ordered = order::least_load(&graph, &[], options, Workspace::new(&mut words, &mut indices), &mut found)?;
/// assert_eq!((ordered.given, ordered.max_load, ordered.is_least()), (19, 11, true));
/// assert_eq!(found, [1, 3, 0, 2, 4]);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_load(
    graph: &Graph<'_>,
    operators: &[Operator],
    options: Options,
    scratch: Workspace<'_>,
    order: &mut [u32],
) -> Result<Ordered, Error> {
    let may = |node: u32| usize::try_from(node).ok().and_then(|k| operators.get(k));
    let ordered = |node| may(node).is_some_and(|o| o.ordered);
    least_load_by(graph, options, scratch, order, ordered, |model| {
        for (node, n) in (0..).zip(graph.nodes) {
            let in_place = may(node).is_some_and(|o| o.in_place);
            if let (true, Some(&from), Some(&to)) = (in_place, n.inputs.first(), n.outputs.first()) {
                let (x, y) = (at(graph.tensors, from), at(graph.tensors, to));
                let transient = x.storage == Storage::Transient && y.storage != Storage::Persistent;
                if from != to && x.bytes == y.bytes && transient && !n.inputs.contains(&to) {
                    model.works_in_place(node, from);
                }
            }
        }
        Ok(())
    })
}

/// Finds an order of the operators of a static graph with the least max load, and writes their numbers to `order`.
/// Differs from [`least_load`] in one thing: `reuses` says over which inputs the operators may write their outputs. Of
/// the reuses of one operator, only the two that save most count. A reuse saves at most the bytes of its input, and at
/// most the bytes of the operator's largest output. Persistent tensors are left out: nothing is written over a
/// persistent input, and a persistent output is written over no input.
///
/// # Errors
/// Those of [`least_load`]; and [`Error::UnknownTensor`] for a reuse whose operator is not in the graph, or whose
/// tensor is no input of the operator.
///
/// ```
/// use sublet_core::Workspace;
/// use sublet_core::trace::{Graph, Node, Tensor};
/// use sublet_core::trace::order::{self, Options, Reuse};
/// let tensors = [8, 8].map(|bytes| Tensor { bytes, ..Tensor::default() });
/// let graph = Graph { tensors: &tensors, nodes: &[Node { inputs: &[0], outputs: &[1], ..Node::default() }] };
/// let options = Options::default();
/// let len = order::workspace(2, 1, graph.operands(), options);
/// let (mut words, mut indices, mut found) = (vec![0; len.words], vec![0; len.indices], [0]);
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let half = Reuse { node: 0, input: 0, bytes: 4 };
/// let ordered = order::least_load_reusing(&graph, &[half], options, scratch, &mut found)?;
/// assert_eq!(ordered.max_load, 12);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_load_reusing(
    graph: &Graph<'_>,
    reuses: &[Reuse],
    options: Options,
    scratch: Workspace<'_>,
    order: &mut [u32],
) -> Result<Ordered, Error> {
    least_load_by(
        graph,
        options,
        scratch,
        order,
        |_| false,
        |model| {
            for &Reuse { node, input, bytes } in reuses {
                let of = usize::try_from(node).ok().and_then(|k| graph.nodes.get(k));
                let Some(of) = of.filter(|of| of.inputs.contains(&input)) else {
                    return Err(Error::UnknownTensor { node, tensor: input });
                };
                let dies = |tensor: u32| at(graph.tensors, tensor).storage != Storage::Persistent;
                let size = |tensor: u32| if dies(tensor) { at(graph.tensors, tensor).bytes } else { 0 };
                let largest = of.outputs.iter().map(|&output| size(output)).fold(0, u64::max);
                model.reuses(node, input, bytes.min(size(input)).min(largest));
            }
            Ok(())
        },
    )
}

fn least_load_by(
    graph: &Graph<'_>,
    options: Options,
    mut scratch: Workspace<'_>,
    order: &mut [u32],
    ordered: impl Fn(u32) -> bool,
    reuse: impl FnOnce(&mut Model<'_>) -> Result<(), Error>,
) -> Result<Ordered, Error> {
    let (tensors, nodes, operands) = (graph.tensors.len(), graph.nodes.len(), graph.operands());
    scratch.check(workspace(tensors, nodes, operands, options))?;
    if order.len() != nodes {
        return Err(Error::BufferTooSmall { buffer: Buffer::Order, needed: nodes, got: order.len() });
    }
    let dependencies = Dependencies::new(graph, &mut scratch)?;
    let mut next_ordered = scratch.indices(nodes);
    let mut in_order = dependencies.order().iter().rev().filter(|&&node| ordered(node));
    if let Some(&last) = in_order.next() {
        let mut next = last;
        for &node in in_order {
            next_ordered[node] = 1 + next;
            next = node;
        }
    }
    let mut model = of_graph(graph, &dependencies, &next_ordered, reuse, &mut scratch)?;
    let mut order = Table::new(order);
    for (place, &node) in (0..).zip(dependencies.order()) {
        order[place] = node;
    }
    let lower_bound = if options.states > 0 { by_cuts(&model, &order, scratch.reborrow()) } else { 0 };
    Ok(search(&mut model, lower_bound, options, &mut order, scratch, &mut || false))
}

fn by_cuts(model: &Model<'_>, order: &Table<'_, u32>, mut scratch: Workspace<'_>) -> u64 {
    let mut walk = model::Walk::new(model, &mut scratch);
    let n = usize::try_from(model.operators).unwrap_or(0);
    let (mut load, mut by_load, mut aside) = (scratch.words(n), scratch.indices(n), scratch.indices(n));
    for &operator in order.first(model.operators) {
        let step = walk.step(operator);
        load[operator] = step.0;
        walk.run(operator, step);
    }
    sort::identity(&mut by_load, model.operators);
    sort::by_key(&mut by_load, model.operators, &mut aside, |operator| !load[operator]);
    let operators = by_load.first(model.operators).iter().map(|&operator| (operator, load[operator]));
    cut::lower_bound(model, operators, walk.key, MOST_LOOKS, &mut scratch)
}

pub(crate) fn search(
    model: &mut Model<'_>,
    lower_bound: u64,
    options: Options,
    order: &mut Table<'_, u32>,
    mut scratch: Workspace<'_>,
    stops: &mut dyn FnMut() -> bool,
) -> Ordered {
    let given = model::Walk::new(model, &mut scratch.reborrow()).max_load(order.first(model.operators));
    let lower_bound = model.lower_bound().max(lower_bound).min(given);
    let mut found = Ordered { max_load: given, given, lower_bound, states: 0 };
    if found.is_least() {
        return found;
    }
    model.put_off_sources();
    let mut walk = model::Walk::new(model, &mut scratch);
    leave_out_late(model, order);
    found.max_load = walk.max_load(order.first(model.walked()));
    if !found.is_least() && options.states > 0 {
        exact::search(&mut walk, options.states, &mut found, order, scratch.reborrow(), stops);
    }
    if !found.is_least() && options.width > 0 {
        beam::search(&mut walk, options.width, &mut found, order, scratch.reborrow(), stops);
    }
    put_back_late(model, order, scratch);
    found
}

fn leave_out_late(model: &Model<'_>, order: &mut Table<'_, u32>) {
    let mut len = 0;
    for i in 0..model.operators {
        if !model.is_late(order[i]) {
            order[len] = order[i];
            len += 1;
        }
    }
}

fn put_back_late(model: &Model<'_>, order: &mut Table<'_, u32>, mut scratch: Workspace<'_>) {
    let n = usize::try_from(model.operators).unwrap_or(0);
    let (mut place, mut aside) = (scratch.indices(n), scratch.indices(n));
    for (i, &operator) in (0..).zip(order.first(model.walked())) {
        place[operator] = i;
    }
    for late in (0..model.operators).filter(|&operator| model.is_late(operator)) {
        place[late] = model.successors(late).iter().map(|&next| place[next]).min().unwrap_or(0);
    }
    sort::identity(order, model.operators);
    sort::by_key(order, model.operators, &mut aside, |operator| {
        2 * u64::from(place[operator]) + u64::from(!model.is_late(operator))
    });
}

fn of_graph<'a>(
    graph: &Graph<'_>,
    dependencies: &Dependencies<'_>,
    next_ordered: &Table<'_, u32>,
    reuse: impl FnOnce(&mut Model<'_>) -> Result<(), Error>,
    scratch: &mut Workspace<'a>,
) -> Result<Model<'a>, Error> {
    let (tensors, nodes, operands) = (graph.tensors.len(), graph.nodes.len(), graph.operands());
    let mut model = Model::lend(tensors, nodes, operands, edges(nodes, operands), scratch);
    let mut sum = 0u64;
    let mut add = |block: u32, bytes: u64| {
        sum = sum.checked_add(bytes).ok_or(Error::SizeOverflow { block })?;
        Ok(())
    };
    for (tensor, t) in (0..).zip(graph.tensors) {
        let used = dependencies.users(tensor) > 0;
        let persistent = t.storage == Storage::Persistent;
        if t.bytes == 0 && (used || persistent) {
            return Err(Error::ZeroSize { block: tensor });
        }
        add(tensor, t.bytes)?;
        let given = persistent || used && dependencies.producer(tensor).is_none();
        let kept = persistent || used && t.storage == Storage::Iteration;
        model.tensor(tensor, t.bytes, given, kept);
    }
    for (node, n) in (0..).zip(graph.nodes) {
        add(node, n.workspace)?;
        model.operator(node, n.workspace);
        for &tensor in n.inputs.iter().chain(n.outputs) {
            // A persistent tensor is alive in every order: that an operator touches it makes no difference.
            if at(graph.tensors, tensor).storage != Storage::Persistent {
                model.touches(tensor);
            }
        }
    }
    for node in 0..count(graph.nodes) {
        let ordered = next_ordered[node].checked_sub(1);
        dependencies.successors(node).iter().copied().chain(ordered).for_each(|next| model.before(node, next));
    }
    reuse(&mut model)?;
    model.finish();
    Ok(model)
}

#[cfg(test)]
mod tests;
