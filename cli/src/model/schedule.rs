//! The operators of a model one after the other, and the lifetimes that this gives its tensors: those of TFLM's
//! `MicroAllocator`.
//!
//! Time 0 is before the first operator, which runs at time 1. An operator that calls graphs takes a time of its own,
//! and for each graph one more, after which come the times of that graph's operators. Its inputs and outputs stay alive
//! until all of these have run. The inputs of the model stay alive until their last reader, its outputs until the end.

use std::collections::{HashMap, HashSet};

use sublet_core::trace::{Event, Op, Operator, Row};

use super::sharing::Sharing;
use super::{Model, kernels};
use crate::failure::InputError;
use crate::problem::Problem;

/// How deep graphs may call graphs.
const DEEPEST: usize = 16;
/// How many operators may run; those of a graph are counted at each call.
const LONGEST: usize = 1 << 20;
/// How many inputs, outputs and scratch buffers operators and graphs may have together; those of a graph are counted at
/// each call. A small file can list a few calls, and many operands, so often that a schedule of all fills the memory.
const MOST_OPERANDS: usize = 1 << 22;

/// When which operator runs, and when which tensor is alive.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The operator that runs at each time from 1 on.
    pub(crate) steps: Vec<u32>,
    /// By tensor: the first and the last time at which it is alive; none where it takes no memory of the arena.
    pub(crate) lives: Vec<Option<[u32; 2]>>,
    /// By tensor: whether it is an output of a graph. Such a tensor does not die when an operator has read it.
    pub(crate) kept: Vec<bool>,
    /// The outputs of graphs, at each run of the graph: the time at which its last operator runs, and the tensor.
    pub(crate) results: Vec<(u32, u32)>,
    /// The scratch that operators ask for: the first and the last time at which it is needed, and its bytes.
    pub(crate) scratch: Vec<([u32; 2], u64)>,
    /// How many operands have been scheduled, of at most [`MOST_OPERANDS`].
    operands: usize,
}

impl Schedule {
    /// The schedule with the operators of the first graph in this order, and those of other graphs in the order of the
    /// file. `scratch` has operators, and the bytes that each asks for besides its operands.
    ///
    /// # Errors
    /// Graphs that call themselves; far too many calls, or operands over all calls.
    pub(crate) fn new(model: &Model, order: &[u32], scratch: &[(u32, u64)]) -> Result<Self, String> {
        let tensors = model.tensors.len();
        let mut new = Self {
            steps: Vec::new(),
            lives: vec![None; tensors],
            kept: vec![false; tensors],
            results: Vec::new(),
            scratch: Vec::new(),
            operands: 0,
        };
        let mut asked: HashMap<u32, Vec<u64>> = HashMap::new();
        for &(operator, bytes) in scratch {
            asked.entry(operator).or_default().push(bytes);
        }
        new.mark(model, 0, order, &asked, 0)?;
        for (life, tensor) in new.lives.iter_mut().zip(0..) {
            life.take_if(|_| !model.is_planned(tensor));
        }
        Ok(new)
    }

    fn now(&self) -> u32 {
        u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
    }

    /// The last time at which a tensor is needed: `u32::MAX` for an output of a graph, 0 for a tensor without memory.
    pub(crate) fn until(&self, tensor: u32) -> u32 {
        let life = self.lives.get(tensor as usize).copied().flatten();
        let kept = self.kept.get(tensor as usize).is_some_and(|&kept| kept);
        life.map_or(0, |[_, last]| if kept { u32::MAX } else { last })
    }

    /// The tensors that TFLM places, with the first and the last time of each. It places tensors that are never used,
    /// those of graphs that never run among them, as if all of them were alive at the time -1.
    pub(crate) fn placed_by_tflm(&self, model: &Model) -> impl Iterator<Item = (u32, [i64; 2])> {
        let planned = (0..).zip(&self.lives).filter(|&(tensor, _)| model.is_planned(tensor));
        planned.map(|(tensor, life)| (tensor, life.map_or([-1; 2], |life| life.map(i64::from))))
    }

    fn touch(&mut self, tensor: u32, time: u32) {
        if let Some(life) = self.lives.get_mut(tensor as usize) {
            let [first, last] = life.unwrap_or([time, time]);
            *life = Some([first.min(time), last.max(time)]);
        }
    }

    /// Lets go of what another compiler answers for, by the offsets of the file's plan: the scratch of its operators, and
    /// at the time of such an operator the inputs that die there and lie under other tensors of it. Returns the scratch
    /// tensors and where each ends. Whatever else lies under such an input was there before the operator, too.
    pub(crate) fn leave_to_compiler(&mut self, model: &Model, offset: impl Fn(u32) -> Option<u64>) -> Vec<(u32, u64)> {
        let mut written: HashSet<u32> = model.operators.iter().flat_map(|o| &o.outputs).copied().collect();
        written.extend(model.graphs.iter().flat_map(|graph| &graph.inputs));
        let extent = |tensor: u32| offset(tensor).map(|begin| [begin, begin + model.bytes(tensor)]);
        let mut scratch = Vec::new();
        for (&number, time) in self.steps.iter().zip(1u32..) {
            let operator = &model.operators[number as usize];
            if !kernels::is_compiled(operator) {
                continue;
            }
            for &input in &operator.inputs {
                let Some(own @ [_, end]) = extent(input).filter(|_| model.is_planned(input)) else { continue };
                if !written.contains(&input) {
                    self.lives[input as usize] = None;
                    scratch.push((input, end));
                    continue;
                }
                let is_under =
                    operator.outputs.iter().filter_map(|&o| extent(o)).any(|o| o[0] < own[1] && own[0] < o[1]);
                if let Some([first, last]) = &mut self.lives[input as usize]
                    && *last == time
                    && *first < time
                    && is_under
                {
                    *last = time - 1;
                }
            }
        }
        scratch.sort_unstable();
        scratch.dedup();
        scratch
    }

    fn count(&mut self, operands: usize) -> Result<(), String> {
        self.operands += operands;
        if self.operands > MOST_OPERANDS {
            return Err(format!("its operators read and write more than {MOST_OPERANDS} tensors, over all calls"));
        }
        Ok(())
    }

    fn mark(
        &mut self,
        model: &Model,
        graph: usize,
        order: &[u32],
        asked: &HashMap<u32, Vec<u64>>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("its graphs call each other more than {DEEPEST} deep"));
        }
        let graph = &model.graphs[graph];
        self.count(graph.inputs.len() + graph.outputs.len())?;
        for &tensor in &graph.inputs {
            self.touch(tensor, self.now());
        }
        for &number in order {
            let operator = &model.operators[number as usize];
            if self.steps.len() >= LONGEST {
                return Err(format!("it runs more than {LONGEST} operators"));
            }
            let scratch = asked.get(&number).map_or(&[][..], Vec::as_slice);
            self.count(operator.inputs.len() + operator.outputs.len() + scratch.len())?;
            self.steps.push(number);
            let time = self.now();
            for &tensor in &operator.outputs {
                self.touch(tensor, time);
            }
            for &called in &operator.calls {
                self.steps.push(number);
                let own = &model.graphs[called as usize].operators;
                let own: Vec<u32> = own.clone().filter_map(|i| u32::try_from(i).ok()).collect();
                self.mark(model, called as usize, &own, asked, depth + 1)?;
            }
            for &tensor in operator.inputs.iter().chain(&operator.outputs) {
                // A tensor that no operator has written by now is there from the start.
                if self.lives[tensor as usize].is_none() {
                    self.touch(tensor, 0);
                }
                self.touch(tensor, self.now());
            }
            for &bytes in scratch {
                self.scratch.push(([time, self.now()], bytes.next_multiple_of(model.alignment)));
            }
        }
        for &tensor in &graph.outputs {
            self.touch(tensor, self.now());
            self.results.push((self.now(), tensor));
            if let Some(kept) = self.kept.get_mut(tensor as usize) {
                *kept = true;
            }
        }
        Ok(())
    }
}

/// A schedule as a trace.
pub(crate) struct Traced {
    /// The rows; `Row::block` is an index into `names`.
    pub(crate) rows: Vec<Row>,
    /// What each block is called: by its first tensor, or as scratch.
    pub(crate) names: Vec<String>,
    /// By tensor: the residency in which it lies, as a number in the order of the mallocs; none without memory.
    pub(crate) residencies: Vec<Option<u32>>,
    /// Residencies, and the addresses that they have to have.
    pins: Vec<(u32, u64)>,
}

impl Traced {
    /// The blocks of the trace, with the names of operators.
    pub(crate) fn problem(&self, name: &str, model: &Model, schedule: &Schedule) -> Result<Problem, InputError> {
        let problem = Problem::of_trace(name, self.rows.clone(), self.names.clone());
        let mut problem = problem.map_err(|e| InputError::file(name, e.message))?;
        if let Some(trace) = &mut problem.trace {
            let operators = || schedule.steps.iter().map(|&k| &model.operators[k as usize]);
            trace.op_names = operators().map(|operator| operator.kind.clone()).collect();
            if model.tells_pure {
                trace.operators = operators().map(|operator| described(model, operator)).collect();
                trace.tells_rerun = true;
            }
        }
        for (residency, address) in &self.pins {
            problem.blocks[*residency as usize].pin = Some(*address);
        }
        Ok(problem)
    }
}

/// What a fit may do with an operator.
fn described(model: &Model, operator: &super::Operator) -> Operator {
    let first = operator.inputs.first().copied().zip(operator.outputs.first().copied());
    let all = kernels::in_place(model, operator);
    let in_place = first.is_some_and(|first| all.iter().any(|inside| (inside.outer, inside.inner) == first));
    Operator { in_place, rerun: operator.is_pure, ordered: !operator.is_pure, ..Operator::default() }
}

/// A block of the trace that is being made. It is the memory of a tensor, and of all tensors that share this memory; or
/// it is the scratch memory of an operator.
struct Made {
    name: String,
    bytes: u64,
    life: [u32; 2],
}

/// Writes a schedule as a trace. An operator reads when it begins, and writes when it ends. The last operator of a graph reads, beside its inputs, the outputs that others have
/// written: so whatever rewrites the trace has all outputs together in the end.
pub(crate) fn trace(model: &Model, schedule: &Schedule, sharing: &Sharing) -> Traced {
    let (blocks, of_tensor) = blocks(model, schedule, sharing);
    // By time: when, in ns, the operator that runs then begins, and when it ends.
    let took = schedule.steps.iter().scan(0u64, |end, &number| {
        let begin = *end;
        *end = begin.saturating_add(model.operators[number as usize].time_ns);
        Some([begin, *end])
    });
    let took: Vec<[u64; 2]> = std::iter::once([0; 2]).chain(took).collect();
    let row = |(time, side): (u32, usize), event, block, bytes, op| Row {
        time_ns: took[time as usize][side],
        bytes,
        block,
        op,
        event,
    };
    let op = |time: u32| if time == 0 { Op::None } else { Op::First(time - 1) };
    // By time: the rows of mallocs, of accesses and of frees.
    let mut at: Vec<[Vec<Row>; 3]> = Vec::new();
    at.resize_with(schedule.steps.len() + 1, Default::default);
    for (made, block) in blocks.iter().zip(0..) {
        let [first, last] = made.life;
        at[first as usize][0].push(row((first, 0), Event::Malloc, block, made.bytes, op(first)));
        at[last as usize][2].push(row((last, 1), Event::Free, block, 0, Op::None));
    }
    let given = model.graphs[0].inputs.iter().filter_map(|&tensor| of_tensor[tensor as usize]);
    at[0][1].extend(given.map(|block| row((0, 0), Event::Write, block, 0, Op::None)));
    for (&number, time) in schedule.steps.iter().zip(1u32..) {
        let operator = &model.operators[number as usize];
        for (event, side, tensors) in [(Event::Read, 0, &operator.inputs), (Event::Write, 1, &operator.outputs)] {
            let is_alive =
                |block: &u32| (blocks[*block as usize].life[0]..=blocks[*block as usize].life[1]).contains(&time);
            let own = tensors.iter().filter_map(|&tensor| of_tensor[tensor as usize]).filter(is_alive);
            at[time as usize][1].extend(own.map(|block| row((time, side), event, block, 0, op(time))));
        }
    }
    for &(time, tensor) in &schedule.results {
        let last = time.checked_sub(1).map(|step| &model.operators[schedule.steps[step as usize] as usize]);
        let is_there = last.is_some_and(|last| last.outputs.contains(&tensor));
        let block = of_tensor[tensor as usize].filter(|_| !is_there);
        at[time as usize][1].extend(block.map(|block| row((time, 1), Event::Read, block, 0, op(time))));
    }
    let rows: Vec<Row> = at.into_iter().flatten().flatten().collect();
    let mut residency_of = vec![0; blocks.len()];
    for (row, residency) in rows.iter().filter(|row| row.event == Event::Malloc).zip(0u32..) {
        residency_of[row.block as usize] = residency;
    }
    let residencies: Vec<Option<u32>> =
        of_tensor.iter().map(|block| block.map(|block| residency_of[block as usize])).collect();
    let pinned = |(tensor, residency): (u32, &Option<u32>)| Some(((*residency)?, sharing.pin(tensor)?));
    let pins = (0..).zip(&residencies).filter_map(pinned).collect();
    Traced { rows, names: blocks.into_iter().map(|made| made.name).collect(), residencies, pins }
}

/// The blocks of a schedule, and the block of each tensor.
fn blocks(model: &Model, schedule: &Schedule, sharing: &Sharing) -> (Vec<Made>, Vec<Option<u32>>) {
    let mut made: Vec<Made> = Vec::new();
    let mut of_tensor: Vec<Option<u32>> = vec![None; model.tensors.len()];
    let alive = || (0..).zip(&schedule.lives).filter_map(|(tensor, life)| Some((tensor, (*life)?)));
    for (tensor, life) in alive() {
        let tensor: u32 = tensor;
        if sharing.block(tensor) == tensor {
            of_tensor[tensor as usize] = u32::try_from(made.len()).ok();
            let name = model.tensors[tensor as usize].name.clone();
            made.push(Made { name, bytes: sharing.bytes(model, tensor), life });
        }
    }
    for (tensor, [first, last]) in alive() {
        let block = sharing.block(tensor);
        if of_tensor[block as usize].is_none() {
            of_tensor[block as usize] = u32::try_from(made.len()).ok();
            let name = model.tensors[block as usize].name.clone();
            made.push(Made { name, bytes: sharing.bytes(model, block), life: [first, last] });
        }
        of_tensor[tensor as usize] = of_tensor[block as usize];
        if let Some(block) = of_tensor[tensor as usize].and_then(|block| made.get_mut(block as usize)) {
            block.life = [block.life[0].min(first), block.life[1].max(last)];
        }
    }
    let scratch = schedule.scratch.iter().zip(0..);
    made.extend(scratch.map(|(&(life, bytes), i)| Made { name: format!("scratch {i}"), bytes, life }));
    (made, of_tensor)
}

/// The blocks of a model with its operators in the order of the file.
///
/// # Errors
/// A model that cannot run, or that has nothing to plan.
pub(crate) fn problem(name: &str, model: Model, bytes: Vec<u8>) -> Result<Problem, InputError> {
    let fault = |message: String| InputError::file(name, message);
    let schedule = in_file_order(&model, &[]).map_err(fault)?;
    let traced = trace(&model, &schedule, &Sharing::none(&model));
    let mut problem = traced.problem(name, &model, &schedule)?;
    if problem.blocks.is_empty() {
        return Err(fault("no tensor of the model takes memory of the arena".into()));
    }
    problem.model = Some(Box::new((model, bytes)));
    Ok(problem)
}

/// The schedule with the operators in the order of the file.
///
/// # Errors
/// As [`Schedule::new`].
pub(crate) fn in_file_order(model: &Model, scratch: &[(u32, u64)]) -> Result<Schedule, String> {
    let own = model.graphs[0].operators.clone().filter_map(|i| u32::try_from(i).ok());
    Schedule::new(model, &own.collect::<Vec<_>>(), scratch)
}
