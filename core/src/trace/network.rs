//! A network as a static graph: operators, and the tensors that they read and write. `graph` writes the
//! trace of such a graph, and [`order`](super::order) finds an order of its operators.

/// What an iteration computes: operators that read and write tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Graph<'a> {
    /// The tensors; operators name them by their index.
    pub tensors: &'a [Tensor],
    /// The operators; the index of an operator here is its number.
    pub nodes: &'a [Node<'a>],
}

/// One value, which takes one block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Tensor {
    /// Size in bytes; at least 1 if the tensor is persistent or an operator uses it.
    pub bytes: u64,
    /// How long the memory of the tensor is needed.
    pub storage: Storage,
}

/// How long the memory of a tensor is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Storage {
    /// The memory is needed from the operator that produces the tensor to the last operator that uses the tensor; from
    /// the beginning of the iteration if no operator produces the tensor.
    #[default]
    Transient,
    /// The memory is needed from the operator that produces the tensor to the end of the iteration; from the beginning
    /// if no operator produces the tensor. For inputs and results.
    Iteration,
    /// The memory is needed at all times: for parameters and their state, whose values pass from one iteration to the
    /// next.
    Persistent,
}

/// One operator of a [`Graph`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Node<'a> {
    /// The indices of the tensors that the operator reads; a tensor that is named twice is read once.
    pub inputs: &'a [u32],
    /// The indices of the tensors that the operator writes, each named once.
    pub outputs: &'a [u32],
    /// The bytes that the operator needs only while it runs, beside its tensors; 0 is none.
    pub workspace: u64,
    /// How long the operator takes, in ns.
    pub time_ns: u64,
}

impl Graph<'_> {
    /// How many inputs and outputs all operators have together.
    #[must_use]
    pub fn operands(&self) -> usize {
        self.nodes.iter().map(|n| n.inputs.len() + n.outputs.len()).sum()
    }

    /// How many block numbers the trace of the graph has. The number of a tensor's block is the index of the tensor.
    /// The numbers after these are for the workspaces ([`Node::workspace`]): one for each operator that has one, in the
    /// order of the operators.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.tensors.len() + self.nodes.iter().filter(|n| n.workspace > 0).count()
    }

    /// The most rows that the graph's trace can have. [`Graph::rows`](super::Graph::rows), which writes the trace, has
    /// to be lent a slice of at least this length.
    #[must_use]
    pub fn most_rows(&self) -> usize {
        3 * self.tensors.len() + 3 * self.nodes.len() + self.operands()
    }
}
