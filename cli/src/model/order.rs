//! The order of the first graph's operators that needs the least memory.

use std::collections::HashSet;

use sublet_core::owned::Scratch;
use sublet_core::trace::order::{self, Options, Ordered, Reuse};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_core::{Block, Error};

use super::schedule::Schedule;
use super::{Means, Model, kernels, walk};

/// What the search sees of the operators of the first graph, which are numbered in the order of the file.
pub(crate) struct Operators<'a> {
    model: &'a Model,
    tensors: Vec<Tensor>,
    /// By operator: the tensors that it reads, and those that it writes.
    operands: Vec<[Vec<u32>; 2]>,
    /// By operator: the bytes that it needs besides its operands.
    asked: Vec<u64>,
    /// The bytes of tensors that take no memory, and are here so that operators keep their order: one byte each.
    added: u64,
}

/// Whether the search for an order counts what plans by these means need. The memory of a graph that an operator runs
/// is counted without in-place reuse. Where it is run more than once, it is counted for the operators that come between
/// in the file, and others may come between in another order. Tensors whose place another compiler has decided are counted
/// as if they lay apart. Parts that are put together or taken apart may share more
/// memory than is counted.
pub(crate) fn is_exact(model: &Model, means: Means) -> bool {
    let mut calls = model.operators.iter().flat_map(|o| &o.calls).peekable();
    let mut seen = HashSet::new();
    if kernels::compiled(model).next().is_some() {
        return false;
    }
    let reuses = means.in_place || means.overlap.is_some();
    let is_counted = calls.peek().is_none() && !model.operators.iter().any(|o| walk::has_parts(model, o));
    (!reuses || is_counted) && calls.all(|graph| seen.insert(graph))
}

impl<'a> Operators<'a> {
    /// `scratch` has operators, and the bytes that each asks for besides its operands.
    pub(crate) fn new(model: &'a Model, scratch: &[(u32, u64)]) -> Self {
        let graph = &model.graphs[0];
        let operators = &model.operators[graph.operators.clone()];
        // An operator that has to do with values that last, or runs graphs, keeps its place among such operators: as if
        // each of them read and wrote one more tensor.
        let state = u32::try_from(graph.tensors.len()).unwrap_or(u32::MAX);
        let stateful = |k: usize| {
            let o = &operators[k];
            !o.calls.is_empty()
                || ["VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"].contains(&o.kind.as_str())
                || o.inputs.iter().chain(&o.outputs).any(|&t| model.tensor(t).is_some_and(|t| t.stateful))
        };
        let any_state = (0..operators.len()).any(stateful);
        // What is written is read after that, even if it takes no memory.
        let written: HashSet<u32> = operators.iter().flat_map(|o| &o.outputs).copied().collect();
        let is_added = |t| t == state || written.contains(&t) && !model.is_planned(t);
        let tensor = |t| match () {
            () if is_added(t) => Tensor { bytes: 1, storage: Storage::Persistent },
            () if graph.outputs.contains(&t) => Tensor { bytes: model.bytes(t), storage: Storage::Iteration },
            () => Tensor { bytes: model.bytes(t), storage: Storage::Transient },
        };
        let all = || (0..state).chain(any_state.then_some(state));
        let added = all().filter(|&t| is_added(t)).count() as u64;
        let operands = (0..operators.len())
            .map(|k| {
                [&operators[k].inputs, &operators[k].outputs].map(|list| {
                    let own = list.iter().copied().filter(|&t| model.is_planned(t) || is_added(t));
                    own.chain(stateful(k).then_some(state)).collect()
                })
            })
            .collect();
        let tensors = all().map(tensor).collect();
        Self { model, tensors, operands, asked: workspaces(model, scratch), added }
    }

    /// Searches for the order that needs the least memory by these means. Returns figures of the order, whose `given`
    /// is the max load in the order of the file; and the order. The search begins with the order `start`, or if that is
    /// empty with the order of the file.
    ///
    /// # Errors
    /// As [`order::least_load_reusing`].
    pub(crate) fn least_load(&self, means: Means, start: &[u32]) -> Result<(Ordered, Vec<u32>), Error> {
        let file: Vec<u32> = (0..).zip(&self.operands).map(|(k, _)| k).collect();
        let options = Options::for_operators(file.len());
        if start.is_empty() {
            return self.search(means, &file, options);
        }
        let (mut found, order) = self.search(means, start, options)?;
        found.given = self.search(means, &file, Options { states: 0, width: 0 })?.0.given;
        Ok((found, order))
    }

    fn search(&self, means: Means, start: &[u32], options: Options) -> Result<(Ordered, Vec<u32>), Error> {
        let mut place = vec![0; start.len()];
        for (&k, i) in start.iter().zip(0..) {
            place[k as usize] = i;
        }
        let node = |&k: &u32| {
            let ([inputs, outputs], &workspace) = (&self.operands[k as usize], &self.asked[k as usize]);
            Node { inputs, outputs, workspace, time_ns: 0 }
        };
        let nodes: Vec<Node<'_>> = start.iter().map(node).collect();
        let mut reuses = reuses(self.model, means);
        for reuse in &mut reuses {
            reuse.node = place[reuse.node as usize];
        }
        let graph = Graph { tensors: &self.tensors, nodes: &nodes };
        let mut scratch = Scratch::of(order::workspace(self.tensors.len(), nodes.len(), graph.operands(), options));
        let mut order = vec![0; nodes.len()];
        let mut found = order::least_load_reusing(&graph, &reuses, options, scratch.lend(), &mut order)?;
        for load in [&mut found.max_load, &mut found.given, &mut found.lower_bound] {
            *load = load.saturating_sub(self.added);
        }
        Ok((found, order.iter().map(|&i| start[i as usize]).collect()))
    }
}

/// By operator of the first graph: the inputs that an output may be written over, and the bytes that this saves.
fn reuses(model: &Model, means: Means) -> Vec<Reuse> {
    let operators = &model.operators[model.graphs[0].operators.clone()];
    let mut found = Vec::new();
    for (node, operator) in (0..).zip(operators) {
        if means.in_place || means.overlap.is_some() {
            let own = kernels::in_place(model, operator).into_iter();
            found.extend(own.map(|inside| Reuse { node, input: inside.outer, bytes: model.bytes(inside.outer) }));
        }
        if let (Some(kernels), &[output]) = (means.overlap, operator.outputs.as_slice()) {
            let reach = |&input: &u32| {
                let distance = kernels::distance(model, operator, kernels, [input, output]);
                let distance = distance.filter(|_| model.is_planned(input))?;
                let bytes = model.bytes(output).saturating_sub(distance).min(model.bytes(input));
                Some(Reuse { node, input, bytes })
            };
            found.extend(operator.inputs.iter().filter_map(reach));
        }
    }
    found
}

/// By operator of the first graph: the bytes that it needs besides its operands, for scratch and for the graphs that it
/// runs.
fn workspaces(model: &Model, scratch: &[(u32, u64)]) -> Vec<u64> {
    let own = model.graphs[0].operators.clone();
    let order: Vec<u32> = own.clone().filter_map(|i| u32::try_from(i).ok()).collect();
    let mut asked = vec![0; order.len()];
    let Ok(schedule) = Schedule::new(model, &order, scratch) else { return asked };
    let tensors = &model.graphs[0].tensors;
    let blocks = (0..).zip(&schedule.lives).filter_map(|(tensor, life)| {
        let [first, last] = (*life).filter(|_| !tensors.contains(&(tensor as usize)))?;
        Some(Block::new(first, last + 1, model.bytes(tensor)))
    });
    let asked_for = schedule.scratch.iter().map(|&([first, last], bytes)| Block::new(first, last + 1, bytes));
    let blocks: Vec<Block> = blocks.chain(asked_for).collect();
    // By time: the bytes of the blocks that begin there, and of those that end there.
    let mut changes = vec![[0u64; 2]; schedule.steps.len() + 2];
    for b in &blocks {
        changes[b.start as usize][0] += b.size;
        changes[b.end as usize][1] += b.size;
    }
    let (mut current, mut load) = (0, changes[0][0]);
    for (&number, [begins, ends]) in schedule.steps.iter().zip(&changes[1..]) {
        if own.contains(&(number as usize)) {
            current = number as usize - own.start;
        }
        load = load + begins - ends;
        asked[current] = load.max(asked[current]);
    }
    asked
}
