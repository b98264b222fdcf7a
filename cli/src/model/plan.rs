//! A plan for a model: the operators in an order, tensors that share blocks, and an offset for each block.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::Instant;

use indicatif::ProgressBar;

use sublet_core::place::{Fit, Order, Solver, Summary, overlap};
use sublet_core::trace::order::Ordered;
use sublet_core::{Constraints, Error, Overlap};

use super::kernels::{self, Inside, Kernels};
use super::order::{self, Operators};
use super::schedule::{Schedule, in_file_order};
use super::sharing::Sharing;
use super::traced::trace;
use super::{Means, Model};
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
    /// The result of the search for the order; none where operators keep the order of the file, or where the figures of
    /// the search are not those of the plan.
    pub(crate) ordered: Option<Ordered>,
    /// When each tensor is alive.
    pub(crate) schedule: Schedule,
    /// The offset of each tensor; -1 where the runtime decides, and where the offset does not fit a signed number of 32
    /// bits.
    pub(crate) offsets: Vec<i32>,
    /// By tensor: its block, as an index into the problem's, and where it begins in the block, in bytes; none where the
    /// tensor takes no memory of the arena.
    pub(crate) places: Vec<Option<(u32, u64)>>,
    /// The kernels that the plan relies on.
    pub(crate) kernels: Kernels,
    /// Where the scratch ends that another compiler has placed, in bytes; 0 without any.
    pub(crate) scratch_end: u64,
    /// Whether the model's file holds it.
    pub(crate) is_of_file: bool,
}

/// The plan with the lowest peak of those that were made by some means and by smaller sets of them.
pub(crate) struct Best {
    pub(crate) planned: Rc<Planned>,
    /// The least lower bound on the peak of these plans, in bytes. One for fewer means is none for all of them.
    pub(crate) lower_bound: u64,
}

impl Best {
    fn of(planned: Rc<Planned>) -> Self {
        Self { lower_bound: planned.solved.summary.lower_bound, planned }
    }

    pub(crate) fn peak(&self) -> u64 {
        self.planned.solved.summary.peak
    }
}

/// What is asked of a plan for a model.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) name: &'a str,
    /// Operators, and the bytes that each asks for besides its operands.
    pub(crate) scratch: &'a [(u32, u64)],
    pub(crate) constraints: Constraints,
    pub(crate) solve: &'a SolveArgs,
    /// Whether operators that another compiler has placed keep the addresses that the file's plan gives them.
    pub(crate) keeps_compiled: bool,
}

impl Request<'_> {
    /// The blocks that have to lie where the file's plan has them.
    fn fixed(&self, model: &Model) -> Sharing {
        let mut sharing = Sharing::none(model);
        if self.keeps_compiled {
            let tensors: Vec<(u32, u64)> = kernels::compiled(model).collect();
            sharing.tie(model, &tensors);
        }
        sharing
    }
}

/// The outputs of a model that may reach into their inputs, in the order of the file and with a block for each tensor.
///
/// # Errors
/// A model that cannot run.
pub(crate) fn overlaps_in_file_order(model: &Model, kernels: Kernels) -> Result<Vec<Overlap>, String> {
    let schedule = in_file_order(model, &[])?;
    let sharing = Sharing::none(model);
    let traced = trace(model, &schedule, &sharing);
    Ok(overlaps(model, &schedule, kernels, &sharing, &traced.residencies))
}

/// The plan that a model's file holds.
pub(crate) struct Held {
    pub(crate) problem: Problem,
    pub(crate) offsets: Vec<u64>,
    pub(crate) schedule: Schedule,
    places: Vec<Option<(u32, u64)>>,
    /// How many tensors are no part of it, since the runtime decides their offsets.
    pub(crate) left_out: usize,
    /// The scratch of operators that another compiler has placed: where each ends. What lies there is the compiler's
    /// matter, and what overlaps with it is not looked at.
    pub(crate) scratch: Vec<(u32, u64)>,
}

impl Held {
    /// The bytes that the plan takes, where its blocks take `peak`.
    pub(crate) fn taken(&self, peak: u64) -> u64 {
        self.scratch.iter().map(|&(_, end)| end).fold(peak, u64::max)
    }
}

/// The plan that a model's file holds, taken over as it is. Nothing of it is verified.
///
/// # Errors
/// As [`told`].
pub(crate) fn kept(name: &str, model: &Model, plan: &[i32]) -> Result<Planned, InputError> {
    let kernels = model.relies_on.unwrap_or_default();
    let held = told(name, model, plan, kernels)?;
    let scratch_end = held.taken(0);
    let Held { problem, offsets, schedule, places, .. } = held;
    let ends = problem.blocks.iter().zip(&offsets).map(|(b, offset)| offset.saturating_add(b.size));
    let summary = Summary {
        peak: ends.max().unwrap_or(0),
        lower_bound: problem.max_load(),
        solver: Solver::Greedy(Order::Size, Fit::First),
        nodes: 0,
    };
    let order = model.graphs[0].operators.clone().filter_map(|i| u32::try_from(i).ok()).collect();
    let solved = Solved { offsets, summary };
    let offsets = plan.to_vec();
    Ok(Planned {
        problem,
        solved,
        order,
        ordered: None,
        schedule,
        offsets,
        kernels,
        scratch_end,
        is_of_file: true,
        places,
    })
}

/// The blocks of the plan that a model's file holds, and their offsets. Where an output and an input that it may be
/// written over have the same offset, they share a block, and so do parts that lie where they are put together. Tensors
/// whose offset the runtime decides are left out. Outputs may lie over a part of their dying inputs as far as the
/// kernels have read them; and those of an operator that another compiler has placed wherever the file says.
///
/// # Errors
/// A model that cannot run; blocks that do not make a valid trace.
pub(crate) fn told(name: &str, model: &Model, plan: &[i32], kernels: Kernels) -> Result<Held, InputError> {
    let mut schedule = in_file_order(model, &[]).map_err(|message| InputError::file(name, message))?;
    let offset = |tensor: u32| plan.get(tensor as usize).and_then(|&offset| u64::try_from(offset).ok());
    let mut left_out = 0;
    for (life, tensor) in schedule.lives.iter_mut().zip(0..) {
        left_out += usize::from(life.take_if(|_| offset(tensor).is_none()).is_some());
    }
    let scratch = schedule.leave_to_compiler(model, offset);
    let in_its_place =
        |Inside { outer, inner, at }: Inside| offset(outer).is_some_and(|outer| offset(inner) == Some(outer + at));
    let sharing = Sharing::none(model).where_allowed(model, &schedule, in_its_place);
    let traced = trace(model, &schedule, &sharing);
    let mut problem = traced.problem(name, model, &schedule)?;
    problem.overlaps = overlaps(model, &schedule, kernels, &sharing, &traced.residencies);
    let mut offsets = vec![0; problem.blocks.len()];
    for (tensor, residency) in (0..).zip(&traced.residencies) {
        if let (Some(residency), Some(offset)) = (*residency, offset(tensor)) {
            offsets[residency as usize] = offset - sharing.at(tensor);
        }
    }
    let places = places(&sharing, &traced.residencies);
    Ok(Held { problem, offsets, schedule, places, left_out, scratch })
}

/// The plans of a model by different means; each plan is made once.
pub(crate) struct Plans<'a> {
    model: &'a Model,
    request: Request<'a>,
    /// When the first plan was asked for.
    begin: Instant,
    made: HashMap<Means, Rc<Planned>>,
    /// By means: figures of the order that was found, and the order itself. Operator 0 is the first graph's first one.
    orders: HashMap<Means, (Ordered, Vec<u32>)>,
}

impl<'a> Plans<'a> {
    pub(crate) fn new(model: &'a Model, request: Request<'a>) -> Self {
        Self { model, request, begin: Instant::now(), made: HashMap::new(), orders: HashMap::new() }
    }

    /// From now on a plan may exceed the capacity.
    pub(crate) fn lift_capacity(&mut self) {
        if self.request.constraints.capacity.take().is_some() {
            self.made.clear();
        }
    }

    /// Plans by these means. Where the peak of that plan is not equal to its lower bound, or the search for its order
    /// has not counted what it needs, smaller sets of means are tried too, and the plan with the lowest peak counts.
    ///
    /// # Errors
    /// A model that cannot run; no plan within the capacity.
    pub(crate) fn best(&mut self, means: Means, bar: &ProgressBar) -> Result<Best, PlanError> {
        let mut best = self.by(means, u64::MAX, bar).and_then(|plan| {
            plan.map(Best::of).ok_or_else(|| PlanError::Input(InputError::file(self.request.name, "there is no plan")))
        });
        let may_be_worse = means.reorder && !order::is_exact(self.model, means);
        for fewer in means.fewer() {
            let is_least = best.as_ref().is_ok_and(|best| best.peak() == best.lower_bound);
            if self.is_over() || is_least && !may_be_worse {
                break;
            }
            let peak = best.as_ref().map_or(u64::MAX, Best::peak);
            if let Ok(Some(other)) = self.by(fewer, peak, bar)
                && other.solved.summary.peak < peak
            {
                let other = Best::of(other);
                let known = match best {
                    Ok(Best { lower_bound, .. })
                    | Err(PlanError::Place(_, Error::OverCapacity { lower_bound, .. })) => lower_bound,
                    Err(_) => other.lower_bound,
                };
                best = Ok(Best { lower_bound: other.lower_bound.min(known), ..other });
            }
        }
        best
    }

    /// The options for the next search. Its time limit is what is left of the one for all searches together.
    fn solve(&self) -> SolveArgs {
        let mut solve = self.request.solve.clone();
        solve.time_limit = solve.time_limit.map(|limit| limit.saturating_sub(self.begin.elapsed()));
        solve
    }

    /// Whether the time limit is over.
    pub(crate) fn is_over(&self) -> bool {
        self.request.solve.time_limit.is_some_and(|limit| self.begin.elapsed() >= limit)
    }

    /// Plans by all of these means together; none where a lower bound shows that the peak is not below `below`, in
    /// bytes.
    fn by(&mut self, means: Means, below: u64, bar: &ProgressBar) -> Result<Option<Rc<Planned>>, PlanError> {
        // An output that may reach into an input may also lie exactly over it.
        let means = Means { in_place: means.in_place || means.overlap.is_some(), ..means };
        if let Some(made) = self.made.get(&means) {
            return Ok(Some(Rc::clone(made)));
        }
        let order = if means.reorder { Some(self.order(means)?.clone()) } else { None };
        let request = Request { solve: &self.solve(), ..self.request };
        let Some(planned) = by_all_means(self.model, &request, (means, order), below, bar)? else {
            return Ok(None);
        };
        let planned = Rc::new(planned);
        self.made.insert(means, Rc::clone(&planned));
        Ok(Some(planned))
    }

    /// The order that needs the least memory by these means. The search begins with the order that was found by fewer
    /// means: an order never needs more memory by more means.
    fn order(&mut self, means: Means) -> Result<&(Ordered, Vec<u32>), PlanError> {
        if !self.orders.contains_key(&means) {
            let start = match means {
                Means { overlap: Some(_), .. } => self.order(Means { overlap: None, ..means })?.1.clone(),
                Means { in_place: true, .. } => self.order(Means { in_place: false, ..means })?.1.clone(),
                _ => Vec::new(),
            };
            let operators = Operators::new(self.model, self.request.scratch);
            let found = operators.least_load(means, &start);
            let found = found.map_err(|e| PlanError::Input(InputError::file(self.request.name, e.to_string())))?;
            self.orders.insert(means, found);
        }
        Ok(&self.orders[&means])
    }
}

/// By tensor: the residency in which it lies, and where.
fn places(sharing: &Sharing, residencies: &[Option<u32>]) -> Vec<Option<(u32, u64)>> {
    (0..).zip(residencies).map(|(tensor, residency)| Some(((*residency)?, sharing.at(tensor)))).collect()
}

/// Blocks to place, and a lower bound on their peak.
struct Candidate {
    problem: Problem,
    sharing: Sharing,
    /// By tensor: the index of its block in `problem`, if it has one.
    residencies: Vec<Option<u32>>,
    /// The lower bound, in bytes.
    least: u64,
}

/// Plans a model by all of these means together, with its operators in the given order, or else in the order of the
/// file. None where a lower bound shows that the peak cannot be below `below`, in bytes.
fn by_all_means(
    model: &Model,
    request: &Request<'_>,
    (means, order): (Means, Option<(Ordered, Vec<u32>)>),
    below: u64,
    bar: &ProgressBar,
) -> Result<Option<Planned>, PlanError> {
    let own = model.graphs[0].operators.clone();
    let fault = |message: String| PlanError::Input(InputError::file(request.name, message));
    let (ordered, order) = order.unzip();
    let ordered = ordered.filter(|_| order::is_exact(model, means));
    let order: Vec<u32> = match order {
        Some(order) => order.iter().map(|&k| k + u32::try_from(own.start).unwrap_or(0)).collect(),
        None => own.filter_map(|i| u32::try_from(i).ok()).collect(),
    };
    let schedule = Schedule::new(model, &order, request.scratch).map_err(fault)?;
    let candidates = candidates(model, request, means, &schedule)?;
    if candidates.iter().all(|candidate| candidate.least >= below) {
        return Ok(None);
    }
    let mut best: Option<(Solved, Candidate)> = None;
    // Of the candidates that were refused: the problem with the least lower bound, and the lowest peak.
    let (mut refused, mut lowest) = (None, u64::MAX);
    // The least of the candidates' lower bounds.
    let mut least = u64::MAX;
    for candidate in candidates {
        let peak = best.as_ref().map_or(u64::MAX, |(solved, _)| solved.summary.peak);
        if candidate.least >= peak {
            continue;
        }
        match place(&candidate.problem, request.constraints, request.solve, bar) {
            Ok(solved) => {
                least = least.min(solved.summary.lower_bound);
                if solved.summary.peak < peak {
                    best = Some((solved, candidate));
                }
            }
            // The other candidate may still fit.
            Err(Error::OverCapacity { peak, lower_bound, capacity }) => {
                if lower_bound < least {
                    refused = Some((Box::new(candidate.problem), capacity));
                }
                (least, lowest) = (least.min(lower_bound), lowest.min(peak));
            }
            Err(e) => return Err(PlanError::Place(Box::new(candidate.problem), e)),
        }
    }
    match (best, refused) {
        (Some((mut solved, Candidate { problem, residencies, sharing, .. })), _) => {
            solved.summary.lower_bound = least;
            let places = places(&sharing, &residencies);
            let address = |&place: &Option<(u32, u64)>| {
                let (block, at) = place?;
                i32::try_from(solved.offsets[block as usize].checked_add(at)?).ok()
            };
            let offsets = places.iter().map(|place| address(place).unwrap_or(-1)).collect();
            let kernels = means.overlap.unwrap_or_default();
            Ok(Some(Planned {
                problem,
                solved,
                order,
                ordered,
                schedule,
                offsets,
                kernels,
                scratch_end: 0,
                is_of_file: false,
                places,
            }))
        }
        (None, Some((problem, capacity))) => {
            // A plan in another order than the one that was found may be lower.
            let tensors = schedule.lives.iter().zip(0..).filter(|(life, _)| life.is_some());
            let largest = tensors.map(|(_, tensor)| model.bytes(tensor)).max().unwrap_or(0);
            let of_orders = ordered.map_or(largest, |ordered| ordered.lower_bound);
            let lower_bound = if means.reorder { least.min(of_orders) } else { least };
            Err(PlanError::Place(problem, Error::OverCapacity { peak: lowest, lower_bound, capacity }))
        }
        (None, None) => Ok(None),
    }
}

/// The blocks of a schedule in several ways: where in-place reuse is allowed, with one block for tensors that may share
/// one, for all kinds of reuse or for some; then with a block for each tensor.
fn candidates(
    model: &Model,
    request: &Request<'_>,
    means: Means,
    schedule: &Schedule,
) -> Result<Vec<Candidate>, PlanError> {
    let all = model.operators.iter();
    let parts = all.clone().flat_map(|o| kernels::parts(model, o)).map(|inside| (inside.outer, inside.inner));
    let parts: HashSet<(u32, u32)> = parts.collect();
    let elementwise: HashSet<u32> =
        all.filter(|o| kernels::is_elementwise(o)).flat_map(|o| o.outputs.iter().copied()).collect();
    // Where an output of an elementwise operator may lie over its input in more ways, it has a block of its own, too.
    let ways: &[[bool; 2]] = match (means, parts.is_empty()) {
        (Means { in_place: false, .. }, _) => &[],
        (Means { overlap: Some(Kernels::Reference), .. }, false) => &[[true, true], [true, false], [false, false]],
        (Means { overlap: Some(Kernels::Reference), .. }, true) => &[[false, false]],
        (_, false) => &[[true, true], [false, true]],
        (_, true) => &[[false, true]],
    };
    let shared = ways.iter().map(|&[with_parts, with_elementwise]| {
        request.fixed(model).where_allowed(model, schedule, |inside| {
            (with_elementwise || !elementwise.contains(&inside.inner))
                && (with_parts || !parts.contains(&(inside.outer, inside.inner)))
        })
    });
    let sharings: Vec<Sharing> = shared.chain([request.fixed(model)]).collect();
    let mut made = Vec::new();
    for sharing in sharings {
        let traced = trace(model, schedule, &sharing);
        let mut problem = traced.problem(request.name, model, schedule).map_err(PlanError::Input)?;
        let mut least = problem.max_load();
        if let Some(kernels) = means.overlap {
            problem.overlaps = overlaps(model, schedule, kernels, &sharing, &traced.residencies);
            match overlap::lower_bound(&problem.blocks, &problem.overlaps) {
                Ok(bound) => least = bound,
                Err(e) => return Err(PlanError::Place(Box::new(problem), e)),
            }
        }
        made.push(Candidate { problem, sharing, residencies: traced.residencies, least });
    }
    Ok(made)
}

/// Why there is no plan.
#[derive(Debug)]
pub(crate) enum PlanError {
    Input(InputError),
    Place(Box<Problem>, Error),
}

/// Places blocks. Where some may overlap and the peak comes out above the max load, the blocks are also placed as if
/// none might overlap. Such a plan is valid too; other solvers make it, and it may be lower.
pub(crate) fn place(
    problem: &Problem,
    constraints: Constraints,
    solve: &SolveArgs,
    bar: &ProgressBar,
) -> Result<Solved, Error> {
    let apart = || solve::solve(&problem.blocks, constraints, solve, bar);
    if problem.overlaps.is_empty() {
        return apart();
    }
    let mut scratch = Scratch::of(overlap::workspace(problem.blocks.len()));
    let mut offsets = vec![0; problem.blocks.len()];
    let options = solve::options(solve, constraints);
    let until = Until::after(solve.time_limit);
    let mut watch = |_: &Summary| until.flow();
    let summary =
        overlap::place(&problem.blocks, &problem.overlaps, &options, scratch.lend(), &mut offsets, &mut watch);
    if summary.as_ref().is_ok_and(|summary| summary.peak <= problem.max_load()) {
        return summary.map(|summary| Solved { offsets, summary });
    }
    match (apart(), summary) {
        // The lower bound is that of blocks that may overlap.
        (Ok(mut apart), Ok(Summary { peak, lower_bound, .. }) | Err(Error::OverCapacity { peak, lower_bound, .. }))
            if apart.summary.peak < peak =>
        {
            apart.summary.lower_bound = lower_bound;
            Ok(apart)
        }
        (_, summary) => summary.map(|summary| Solved { offsets, summary }),
    }
}

/// The outputs that may reach into an input that dies with their operator.
fn overlaps(
    model: &Model,
    schedule: &Schedule,
    kernels: Kernels,
    sharing: &Sharing,
    residencies: &[Option<u32>],
) -> Vec<Overlap> {
    let mut found = Vec::new();
    for (&number, time) in schedule.steps.iter().zip(1u32..) {
        let operator = &model.operators[number as usize];
        // Whether nothing else of the tensor's block is alive then, before it if it is written, after it if it is read.
        let alone = |tensor: u32, is_written: bool| {
            sharing.members(sharing.block(tensor)).iter().all(|&other| {
                let Some([first, _]) = schedule.lives[other as usize] else { return true };
                let last = schedule.until(other);
                if other == tensor {
                    if is_written { first == time } else { last == time }
                } else if is_written {
                    first > time
                } else {
                    last < time
                }
            })
        };
        for &written in operator.outputs.iter().filter(|&&written| alone(written, true)) {
            for &read in operator.inputs.iter().filter(|&&read| alone(read, false)) {
                let (Some(output), Some(input)) = (residencies[written as usize], residencies[read as usize]) else {
                    continue;
                };
                let distance = kernels::distance(model, operator, kernels, [read, written]);
                let distance = distance.map(|d| (d + sharing.at(written)).saturating_sub(sharing.at(read)));
                let distance = distance.filter(|_| output != input);
                found.extend(distance.map(|distance| Overlap { output, input, distance }));
            }
        }
    }
    found.sort_unstable_by_key(|o| (o.output, o.input));
    found
}
