//! The operators of a model one after the other, and the lifetimes that this gives its tensors: those of TFLM's
//! `MicroAllocator`.
//!
//! Time 0 is before the first operator, which runs at time 1. An operator that calls graphs takes a time of its own,
//! and for each graph one more, after which come the times of that graph's operators. Its inputs and outputs stay alive
//! until all of these have run. The inputs of the model stay alive until their last reader, its outputs until the end.

use std::collections::{HashMap, HashSet};

use super::{Model, kernels};

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

/// The schedule with the operators in the order of the file.
///
/// # Errors
/// As [`Schedule::new`].
pub(crate) fn in_file_order(model: &Model, scratch: &[(u32, u64)]) -> Result<Schedule, String> {
    let own = model.graphs[0].operators.clone().filter_map(|i| u32::try_from(i).ok());
    Schedule::new(model, &own.collect::<Vec<_>>(), scratch)
}
