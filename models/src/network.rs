//! A network's iteration: tensors, operators, and its trace.

use std::fmt;

use sublet_core::trace::{self, Recorded, Row};
use sublet_core::trace::{Graph, Node, Storage, Tensor};
use sublet_core::{Error, Workspace};

/// One iteration of a network as a static graph that owns its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The tensors; operators name them by their index.
    pub tensors: Vec<Tensor>,
    /// The operators, in the order in which they run.
    pub operators: Vec<Operator>,
}

/// One operator of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The name that a framework gives to the operator, such as `convolution`.
    pub name: &'static str,
    /// The part of the iteration that it belongs to.
    pub phase: Phase,
    /// What planning has to know of the operator, such as whether it may work in place or be recomputed.
    pub may: trace::Operator,
    /// The indices of the tensors that the operator reads.
    pub inputs: Vec<u32>,
    /// The indices of the tensors that the operator writes.
    pub outputs: Vec<u32>,
    /// Scratch that the operator needs while it runs, in bytes.
    pub workspace: u64,
    /// How long the operator takes, in ns.
    pub time_ns: u64,
}

/// The parts of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Forward: computes the result from the inputs.
    Forward,
    /// Backward: computes the gradients from the loss.
    Backward,
    /// Update: changes the parameters by their gradients.
    Update,
}

impl Phase {
    /// The name of the phase in the column `phase` of the CSV file of operators (`NAME.ops.csv`) beside a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "fwd",
            Self::Backward => "bwd",
            Self::Update => "upd",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The trace of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The rows.
    pub rows: Vec<Row>,
    /// How many block numbers the rows use: all are below this.
    pub blocks: usize,
    /// What is known of the operators, by their numbers.
    pub operators: Vec<trace::Operator>,
}

impl Trace {
    /// The trace in the form that `sublet_core` takes.
    #[must_use]
    pub fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: &self.rows, operators: &self.operators, blocks: self.blocks }
    }
}

impl Network {
    /// Makes the trace of the iteration, in which each tensor is freed after the last operator that uses it.
    ///
    /// # Errors
    /// As [`Graph::rows`]. For a network that a model of this crate has built only [`Error::TooManyBlocks`] and
    /// [`Error::Row`] are possible: it has more tensors, operators or rows than can be counted.
    pub fn trace(&self) -> Result<Trace, Error> {
        let nodes = self.nodes();
        let graph = Graph { tensors: &self.tensors, nodes: &nodes };
        let len = Graph::workspace(graph.tensors.len(), nodes.len(), graph.operands());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut rows = vec![Row::default(); graph.most_rows()];
        let n = graph.rows(Workspace::new(&mut words, &mut indices), &mut rows)?;
        rows.truncate(n);
        Ok(Trace { rows, blocks: graph.blocks(), operators: self.operators.iter().map(|o| o.may).collect() })
    }

    /// The operators in the form that `sublet_core` takes.
    #[must_use]
    pub fn nodes<'a>(&'a self) -> Vec<Node<'a>> {
        let node = |o: &'a Operator| Node {
            inputs: &o.inputs,
            outputs: &o.outputs,
            workspace: o.workspace,
            time_ns: o.time_ns,
        };
        self.operators.iter().map(node).collect()
    }

    /// Bytes of the tensors that the forward pass writes and that the backward pass or the update reads: the feature
    /// maps that training keeps. Only [transient](Storage::Transient) tensors count.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        let mut forward = vec![false; self.tensors.len()];
        let mut kept = vec![false; self.tensors.len()];
        for operator in &self.operators {
            match operator.phase {
                Phase::Forward => operator.outputs.iter().for_each(|&t| forward[t as usize] = true),
                _ => operator.inputs.iter().for_each(|&t| kept[t as usize] |= forward[t as usize]),
            }
        }
        let kept = self.tensors.iter().zip(kept).filter(|(t, kept)| *kept && t.storage == Storage::Transient);
        kept.map(|(t, _)| t.bytes).sum()
    }
}
