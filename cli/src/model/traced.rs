//! The schedule of a model as a trace: when the memory of tensors, and of those that share it, is allocated, read, written
//! and freed.

use sublet_core::trace::{Event, Op, Operator, Row};

use super::schedule::{Schedule, in_file_order};
use super::sharing::Sharing;
use super::{Model, kernels};
use crate::failure::InputError;
use crate::problem::Problem;

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
