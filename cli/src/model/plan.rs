//! A plan for a model: the operators in an order, tensors that share blocks, and an offset for each block.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use indicatif::ProgressBar;
use sublet_core::place::{Summary, overlap};
use sublet_core::trace::graph::{self, Graph, Node, Storage};
use sublet_core::trace::order::{self, Ordered, Reuse};
use sublet_core::{Block, Constraints, Error, Overlap};

use super::schedule::{Schedule, Sharing, in_file_order, trace};
use super::{Means, Model, kernels};
use crate::args::SolveArgs;
use crate::failure::InputError;
use crate::interrupt::Until;
use crate::problem::Problem;
use crate::solve::{self, Solved};
use sublet_core::owned::Scratch;

/// A model with a place for each tensor.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The blocks, their trace, and the overlaps.
    pub(crate) problem: Problem,
    pub(crate) solved: Solved,
    /// The operators of the first graph in their order.
    pub(crate) order: Vec<u32>,
    /// What the search for the order has found.
    pub(crate) ordered: Option<Ordered>,
    /// When each tensor is alive.
    pub(crate) schedule: Schedule,
    /// The block of each tensor.
    pub(crate) residencies: Vec<Option<u32>>,
}

impl Planned {
    /// The offset of each tensor; -1 where the runtime decides.
    pub(crate) fn offsets(&self) -> Vec<i32> {
        let offset = |residency: &Option<u32>| {
            residency.and_then(|residency| i32::try_from(self.solved.offsets[residency as usize]).ok())
        };
        self.residencies.iter().map(|residency| offset(residency).unwrap_or(-1)).collect()
    }
}

/// How to plan.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    /// What operators ask for besides their operands, in bytes.
    pub(crate) scratch: &'a [(u32, u64)],
    pub(crate) constraints: Constraints,
    pub(crate) solve: &'a SolveArgs,
}

/// The outputs of a model that may reach into their inputs, in the order of the file and with a block for each tensor.
///
/// # Errors
/// A model that cannot run.
pub(crate) fn overlaps_in_file_order(model: &Model) -> Result<Vec<Overlap>, String> {
    let schedule = in_file_order(model, &[])?;
    let sharing = Sharing::none(model);
    let traced = trace(model, &schedule, &sharing);
    Ok(overlaps(model, &schedule, &sharing, &traced.residencies))
}

/// The blocks of a plan that a model holds, and their offsets: an output at the offset of the input that it may write
/// over shares its block, and what the runtime decides is left out.
///
/// # Errors
/// A trace that is none.
pub(crate) fn told(
    name: &str,
    model: &Model,
    schedule: &Schedule,
    plan: &[i32],
    overlap: bool,
) -> Result<(Problem, Vec<u64>), InputError> {
    let offset = |tensor: u32| plan.get(tensor as usize).and_then(|&offset| u64::try_from(offset).ok());
    let told: Vec<_> = (0..).zip(&schedule.lives).map(|(t, life)| life.filter(|_| offset(t).is_some())).collect();
    let schedule = Schedule { steps: schedule.steps.clone(), lives: told, scratch: Vec::new() };
    let sharing = Sharing::where_allowed(model, &schedule, |input, output| offset(input) == offset(output));
    let traced = trace(model, &schedule, &sharing);
    let mut problem = traced.problem(name, model, &schedule)?;
    if overlap {
        problem.overlaps = overlaps(model, &schedule, &sharing, &traced.residencies);
    }
    let mut offsets = vec![0; problem.blocks.len()];
    for (tensor, residency) in (0..).zip(&traced.residencies) {
        if let (Some(residency), Some(offset)) = (*residency, offset(tensor)) {
            offsets[residency as usize] = offset;
        }
    }
    Ok((problem, offsets))
}

/// The plans of a model by different means, each made once.
pub(crate) struct Plans<'a> {
    model: &'a Model,
    request: Request<'a>,
    made: HashMap<Means, Rc<Planned>>,
}

impl<'a> Plans<'a> {
    pub(crate) fn new(model: &'a Model, request: Request<'a>) -> Self {
        Self { model, request, made: HashMap::new() }
    }

    /// From now on plans of any size will do.
    pub(crate) fn lift_capacity(&mut self) {
        if self.request.constraints.capacity.take().is_some() {
            self.made.clear();
        }
    }

    /// Plans by these means. Where a plan is above what none by its means is below, those by fewer means are tried too.
    ///
    /// # Errors
    /// A model that cannot run; no plan within the capacity.
    pub(crate) fn best(&mut self, means: Means, bar: &ProgressBar) -> Result<Rc<Planned>, PlanError> {
        let mut best = self.by(means, u64::MAX, bar).and_then(|plan| {
            plan.ok_or_else(|| PlanError::Input(InputError::file(self.request.name, "there is no plan")))
        });
        for fewer in means.fewer() {
            if best.as_ref().is_ok_and(|best| best.solved.summary.peak == best.solved.summary.lower_bound) {
                break;
            }
            let peak = best.as_ref().map_or(u64::MAX, |best| best.solved.summary.peak);
            if let Ok(Some(other)) = self.by(fewer, peak, bar)
                && other.solved.summary.peak < peak
            {
                best = Ok(other);
            }
        }
        best
    }

    /// Plans by all of these means together; none where it is known beforehand that the peak is not below `below`.
    fn by(&mut self, means: Means, below: u64, bar: &ProgressBar) -> Result<Option<Rc<Planned>>, PlanError> {
        // Outputs that reach into inputs may lie all over them.
        let means = Means { in_place: means.in_place || means.overlap, ..means };
        if let Some(made) = self.made.get(&means) {
            return Ok(Some(Rc::clone(made)));
        }
        let Some(planned) = by_all_means(self.model, &self.request, means, below, bar)? else { return Ok(None) };
        let planned = Rc::new(planned);
        self.made.insert(means, Rc::clone(&planned));
        Ok(Some(planned))
    }
}

/// Blocks to place, and what no placement of them is below.
struct Candidate {
    problem: Problem,
    residencies: Vec<Option<u32>>,
    least: u64,
}

/// Plans a model, all means together; none where no plan can be below `below`.
fn by_all_means(
    model: &Model,
    request: &Request<'_>,
    means: Means,
    below: u64,
    bar: &ProgressBar,
) -> Result<Option<Planned>, PlanError> {
    let own = model.graphs[0].operators.clone();
    let mut order: Vec<u32> = own.clone().filter_map(|i| u32::try_from(i).ok()).collect();
    let fault = |message: String| PlanError::Input(InputError::file(request.name, message));
    let mut ordered = None;
    if means.reorder {
        let found = reorder(model, request, means).map_err(|e| fault(e.to_string()))?;
        order = found.1.iter().map(|&k| k + u32::try_from(own.start).unwrap_or(0)).collect();
        ordered = Some(found.0);
    }
    let schedule = Schedule::new(model, &order, request.scratch).map_err(fault)?;
    let candidates = candidates(model, request, means, &schedule)?;
    if candidates.iter().all(|candidate| candidate.least >= below) {
        return Ok(None);
    }
    let mut best: Option<(Solved, Candidate)> = None;
    let mut refused = None;
    for candidate in candidates {
        let peak = best.as_ref().map_or(u64::MAX, |(solved, _)| solved.summary.peak);
        if candidate.least >= peak {
            continue;
        }
        match place(&candidate.problem, request, bar) {
            Ok(solved) if solved.summary.peak < peak => best = Some((solved, candidate)),
            Ok(_) => {}
            // The other way may still fit.
            Err(e @ Error::OverCapacity { .. }) => refused = Some(PlanError::Place(Box::new(candidate.problem), e)),
            Err(e) => return Err(PlanError::Place(Box::new(candidate.problem), e)),
        }
    }
    match (best, refused) {
        (Some((solved, Candidate { problem, residencies, .. })), _) => {
            Ok(Some(Planned { problem, solved, order, ordered, schedule, residencies }))
        }
        (None, Some(refused)) => Err(refused),
        (None, None) => Ok(None),
    }
}

/// A block for each tensor, and where it is allowed before that one for an output and its input.
fn candidates(
    model: &Model,
    request: &Request<'_>,
    means: Means,
    schedule: &Schedule,
) -> Result<Vec<Candidate>, PlanError> {
    let Means { in_place, overlap, .. } = means;
    let elementwise: HashSet<u32> =
        model.operators.iter().filter(|o| kernels::is_elementwise(o)).flat_map(|o| o.outputs.iter().copied()).collect();
    let mut made = Vec::new();
    for &share in if in_place { &[true, false][..] } else { &[false] } {
        let sharing = if share {
            // Of elementwise operators overlaps say more.
            let outputs_of_views = |_, output| !overlap || !elementwise.contains(&output);
            Sharing::where_allowed(model, schedule, outputs_of_views)
        } else {
            Sharing::none(model)
        };
        let traced = trace(model, schedule, &sharing);
        let mut problem = traced.problem(request.name, model, schedule).map_err(PlanError::Input)?;
        let mut least = problem.max_load();
        if overlap {
            problem.overlaps = overlaps(model, schedule, &sharing, &traced.residencies);
            match overlap::lower_bound(&problem.blocks, &problem.overlaps) {
                Ok(bound) => least = bound,
                Err(e) => return Err(PlanError::Place(Box::new(problem), e)),
            }
        }
        made.push(Candidate { problem, residencies: traced.residencies, least });
    }
    Ok(made)
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum PlanError {
    Input(InputError),
    Place(Box<Problem>, Error),
}

/// Places blocks; where some may overlap, as if none did too, if that may take less: that plan holds as well, and is found by
/// other means.
fn place(problem: &Problem, request: &Request<'_>, bar: &ProgressBar) -> Result<Solved, Error> {
    let apart = || solve::solve(&problem.blocks, request.constraints, request.solve, bar);
    if problem.overlaps.is_empty() {
        return apart();
    }
    let mut scratch = Scratch::of(overlap::workspace(problem.blocks.len()));
    let mut offsets = vec![0; problem.blocks.len()];
    let options = solve::options(request.solve, problem.blocks.len(), request.constraints);
    let until = Until::after(request.solve.time_limit);
    let mut watch = |_: &Summary| until.flow();
    let summary =
        overlap::place(&problem.blocks, &problem.overlaps, &options, scratch.lend(), &mut offsets, &mut watch);
    if summary.as_ref().is_ok_and(|summary| summary.peak <= problem.max_load()) {
        return summary.map(|summary| Solved { offsets, summary });
    }
    match (apart(), summary) {
        (Ok(mut apart), Ok(Summary { peak, lower_bound, .. })) if apart.summary.peak < peak => {
            apart.summary.lower_bound = lower_bound;
            Ok(apart)
        }
        (Ok(apart), Err(Error::OverCapacity { .. })) => Ok(apart),
        (_, summary) => summary.map(|summary| Solved { offsets, summary }),
    }
}

/// The outputs that may reach into an input that dies with their operator.
fn overlaps(model: &Model, schedule: &Schedule, sharing: &Sharing, residencies: &[Option<u32>]) -> Vec<Overlap> {
    // The first and last time of each block.
    let mut lives: HashMap<u32, [u32; 2]> = HashMap::new();
    for (life, residency) in schedule.lives.iter().zip(residencies) {
        if let (&Some([first, last]), &Some(residency)) = (life, residency) {
            let own = lives.entry(residency).or_insert([first, last]);
            *own = [own[0].min(first), own[1].max(last)];
        }
    }
    let mut found = Vec::new();
    for (&number, time) in schedule.steps.iter().zip(1u32..) {
        let operator = &model.operators[number as usize];
        let &[written] = operator.outputs.as_slice() else { continue };
        let Some(output) = residencies[written as usize].filter(|_| sharing.0[written as usize] == written) else {
            continue;
        };
        for &read in &operator.inputs {
            let Some(input) = residencies[read as usize].filter(|&input| input != output) else { continue };
            let dies = lives[&input][1] == time && lives[&output][0] == time;
            let distance = kernels::distance(model, operator, read).filter(|&d| dies && d < model.bytes(written));
            found.extend(distance.map(|distance| Overlap { output, input, distance }));
        }
    }
    found.sort_unstable_by_key(|o| (o.output, o.input));
    found
}

/// The order of the first graph's operators that needs the least memory.
fn reorder(model: &Model, request: &Request<'_>, means: Means) -> Result<(Ordered, Vec<u32>), Error> {
    let graph = &model.graphs[0];
    let operators = &model.operators[graph.operators.clone()];
    // What keeps a value from one run to the next, or runs graphs, keeps its order: as if it wrote one more tensor.
    let state = u32::try_from(graph.tensors.len()).unwrap_or(u32::MAX);
    let stateful = |k: usize| {
        let o = &operators[k];
        !o.calls.is_empty()
            || ["VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"].contains(&o.kind.as_str())
            || o.inputs.iter().any(|&t| model.tensor(t).is_some_and(|t| t.variable))
    };
    let storage = |t| if graph.outputs.contains(&t) { Storage::Iteration } else { Storage::Transient };
    let mut tensors: Vec<graph::Tensor> =
        (0..state).map(|t| graph::Tensor { bytes: model.bytes(t), storage: storage(t) }).collect();
    let any_state = (0..operators.len()).any(stateful);
    tensors.push(graph::Tensor {
        bytes: u64::from(any_state),
        storage: if any_state { Storage::Persistent } else { Storage::Transient },
    });
    let operands: Vec<[Vec<u32>; 2]> = (0..operators.len())
        .map(|k| {
            [&operators[k].inputs, &operators[k].outputs].map(|list| {
                let own = list.iter().copied().filter(|&t| model.is_planned(t));
                own.chain(stateful(k).then_some(state)).collect()
            })
        })
        .collect();
    let asked = workspaces(model, request);
    let nodes: Vec<Node<'_>> = operands
        .iter()
        .zip(&asked)
        .map(|([inputs, outputs], &workspace)| Node { inputs, outputs, workspace, time_ns: 0 })
        .collect();
    let reuses = reuses(model, means);
    let graph = Graph { tensors: &tensors, nodes: &nodes };
    let options = order::Options::for_operators(nodes.len());
    let mut scratch = Scratch::of(order::workspace(tensors.len(), nodes.len(), graph.operands(), options));
    let mut order = vec![0; nodes.len()];
    let mut found = order::least_load_reusing(&graph, &reuses, options, scratch.lend(), &mut order)?;
    for load in [&mut found.max_load, &mut found.given, &mut found.lower_bound] {
        *load -= u64::from(any_state);
    }
    Ok((found, order))
}

/// What the operators of the first graph may write over, and how much that spares.
fn reuses(model: &Model, means: Means) -> Vec<Reuse> {
    let operators = &model.operators[model.graphs[0].operators.clone()];
    let mut found = Vec::new();
    for (node, operator) in (0..).zip(operators) {
        if means.in_place || means.overlap {
            let own = kernels::in_place(model, operator).into_iter();
            found.extend(own.map(|(input, _)| Reuse { node, input, bytes: model.bytes(input) }));
        }
        if let (true, &[output]) = (means.overlap, operator.outputs.as_slice()) {
            let reach = |&input: &u32| {
                let distance = kernels::distance(model, operator, input).filter(|_| model.is_planned(input))?;
                let bytes = model.bytes(output).saturating_sub(distance).min(model.bytes(input));
                Some(Reuse { node, input, bytes })
            };
            found.extend(operator.inputs.iter().filter_map(reach));
        }
    }
    found
}

/// What each operator of the first graph needs beside its operands: scratch, and the graphs that it runs.
fn workspaces(model: &Model, request: &Request<'_>) -> Vec<u64> {
    let own = model.graphs[0].operators.clone();
    let order: Vec<u32> = own.clone().filter_map(|i| u32::try_from(i).ok()).collect();
    let mut asked = vec![0; order.len()];
    let Ok(schedule) = Schedule::new(model, &order, request.scratch) else { return asked };
    let tensors = &model.graphs[0].tensors;
    let blocks = (0..).zip(&schedule.lives).filter_map(|(tensor, life)| {
        let [first, last] = (*life).filter(|_| !tensors.contains(&(tensor as usize)))?;
        Some(Block::new(first, last + 1, model.bytes(tensor)))
    });
    let scratch = schedule.scratch.iter().map(|&([first, last], bytes)| Block::new(first, last + 1, bytes));
    let blocks: Vec<Block> = blocks.chain(scratch).collect();
    // What begins and ends at each time.
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
