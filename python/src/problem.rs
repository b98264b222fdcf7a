//! Problems for the planner: blocks, a recorded iteration, or a static graph.

use std::ffi::CString;
use std::sync::Arc;

use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyUserWarning;
use pyo3::prelude::*;
use sublet_core::Block;
use sublet_core::rewrite::fit::Means;
use sublet_core::trace::{Event, Kind, Op, Operator, Row};
use sublet_core::trace::{Graph, Node, Storage, Tensor};

use crate::arrays::{Column, Rows};
use crate::refused;

/// The numbers of blocks without names may be up to so many times the number of rows. Numbers that no row has take
/// memory too.
const SPARSE: usize = 16;
/// The numbers of blocks without names may be up to this in any trace.
const FEW: usize = 1 << 16;

/// Blocks as columns: start and end of the live ranges in steps, sizes and alignments in bytes.
type Blocks<'py> =
    (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>);

/// A problem for the planner: blocks, a recorded iteration, or a static graph.
#[pyclass(frozen, module = "sublet._sublet")]
pub struct Problem {
    /// The problem as the library of the command line holds it: also with names of blocks and operators, for messages
    /// and HTML pages.
    pub inner: Arc<sublet_cli::Problem>,
}

impl Problem {
    fn of(inner: sublet_cli::Problem) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The offsets of a plan, which has to have one for each block.
    pub fn offsets(&self, offsets: &Column<'_>) -> PyResult<Vec<u64>> {
        let rows = Rows { of: "block", names: self.inner.ids() };
        rows.column("offset", offsets, Some(self.inner.blocks().len()))
    }
}

/// What is known of operators, as columns: each column has one element for each operator.
#[derive(FromPyObject)]
pub struct Operators<'py> {
    /// The operators' names.
    names: Vec<String>,
    /// Whether the operator may be recomputed: a second run gives the same result.
    rerun: Column<'py>,
    /// Whether the operator may write its first output over its first input.
    in_place: Column<'py>,
    /// Whether the operator has to stay in the recorded order relative to the other ones that are not 0 here, for
    /// instance because it draws random numbers.
    ordered: Column<'py>,
    /// What the operator computes: `relu`, `relu_backward` (the gradient of a ReLU), or an empty string for anything
    /// else. A mask (one bit for each element) can pass from a ReLU to its gradient in place of a block.
    kind: Vec<String>,
    /// The size in bytes of one element of the operator's blocks: 1, 2, 4 or 8.
    element: Column<'py>,
}

impl Operators<'_> {
    fn get(self) -> PyResult<Vec<(String, Operator)>> {
        let n = self.names.len();
        let rows = Rows { of: "operator", names: &[] };
        let (rerun, in_place) = (rows.flags("rerun", &self.rerun, n)?, rows.flags("in_place", &self.in_place, n)?);
        let ordered = rows.flags("ordered", &self.ordered, n)?;
        let element = rows.column::<u8>("element", &self.element, Some(n))?;
        if self.kind.len() != n {
            return Err(refused(format!("kind has {} elements, not {n}", self.kind.len())));
        }
        let operator = |i: usize| {
            let kind = match self.kind[i].as_str() {
                "" => Kind::Other,
                "relu" => Kind::Relu,
                "relu_backward" => Kind::ReluBackward,
                other => return Err(refused(format!("operator {i}: there is no kind {other}"))),
            };
            if !matches!(element[i], 1 | 2 | 4 | 8) {
                return Err(refused(format!("operator {i}: an element has 1, 2, 4 or 8 bytes, not {}", element[i])));
            }
            let (in_place, rerun, ordered) = (in_place[i], rerun[i], ordered[i]);
            Ok(Operator { in_place, rerun, ordered, kind, element: element[i] })
        };
        let known = (0..n).map(operator).collect::<PyResult<Vec<Operator>>>()?;
        Ok(self.names.into_iter().zip(known).collect())
    }
}

#[pymethods]
impl Problem {
    /// Reads a file of any format that the command line knows. Warns of columns that nobody reads.
    #[staticmethod]
    fn read(py: Python<'_>, file: &str) -> PyResult<Self> {
        let problem = py.detach(|| sublet_cli::Problem::open(file)).map_err(refused)?;
        for note in problem.notes() {
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &CString::new(note.as_str())?, 1)?;
        }
        Ok(Self::of(problem))
    }

    /// Makes a problem of blocks. A block is alive in the steps `[start, end)`; sizes and alignments are in bytes;
    /// `pin` is the offset at which the block must lie, in bytes, or negative for none.
    #[staticmethod]
    fn from_blocks(
        start: Column<'_>,
        end: Column<'_>,
        size: Column<'_>,
        alignment: Option<Column<'_>>,
        pin: Option<Column<'_>>,
        ids: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let rows = Rows { of: "block", names: ids.as_deref().unwrap_or_default() };
        let start = rows.column("start", &start, None)?;
        let n = start.len();
        let (end, size) = (rows.column("end", &end, Some(n))?, rows.column("size", &size, Some(n))?);
        let alignment = alignment.map_or(Ok(vec![1; n]), |column| rows.column("block_alignment", &column, Some(n)))?;
        let pin: Vec<i64> = pin.map_or(Ok(vec![-1; n]), |column| rows.column("pin", &column, Some(n)))?;
        let block = |i: usize| Block {
            start: start[i],
            end: end[i],
            size: size[i],
            alignment: alignment[i],
            pin: u64::try_from(pin[i]).ok(),
        };
        let ids = ids.unwrap_or_else(|| numbers(n));
        let inner = sublet_cli::Problem::of_blocks("blocks", (0..n).map(block).collect(), ids).map_err(refused)?;
        Ok(Self::of(inner))
    }

    /// Makes a problem of a recorded iteration. The columns have an element for each row (event): the time in ns; the
    /// event (0 malloc, 1 free, 2 read, 3 write); the number of the block; the size of a malloc in bytes; and the
    /// number of the operator, or a negative number for none.
    #[staticmethod]
    fn from_trace(
        time_ns: Column<'_>,
        event: Column<'_>,
        block: Column<'_>,
        bytes: Column<'_>,
        op: Column<'_>,
        names: Option<Vec<String>>,
        operators: Option<Operators<'_>>,
    ) -> PyResult<Self> {
        let columns = Rows { of: "row", names: &[] };
        let time_ns = columns.column("time_ns", &time_ns, None)?;
        let n = time_ns.len();
        let event = columns.column::<u8>("event", &event, Some(n))?;
        let block = columns.column("block", &block, Some(n))?;
        let (bytes, op) = (columns.column("bytes", &bytes, Some(n))?, columns.column::<i64>("op", &op, Some(n))?);
        let row = |i: usize| {
            let event = match event[i] {
                0 => Event::Malloc,
                1 => Event::Free,
                2 => Event::Read,
                3 => Event::Write,
                other => return Err(refused(format!("row {i}: there is no event {other}"))),
            };
            let op = u32::try_from(op[i]).map_or(Op::None, Op::First);
            Ok(Row { time_ns: time_ns[i], bytes: bytes[i], block: block[i], op, event })
        };
        let rows = (0..n).map(row).collect::<PyResult<Vec<Row>>>()?;
        let most = rows.iter().map(|r| r.block as usize + 1).max().unwrap_or(0);
        let bound = n.saturating_mul(SPARSE).max(FEW);
        if names.is_none() && most > bound {
            let told = format!("block {}: without names, the blocks of {n} rows have numbers below {bound}", most - 1);
            return Err(refused(told));
        }
        let names = names.unwrap_or_else(|| numbers(most));
        if names.len() < most {
            return Err(refused(format!("block {} has no name: there are {}", most - 1, names.len())));
        }
        let operators = operators.map_or(Ok(Vec::new()), Operators::get)?;
        let inner = sublet_cli::Problem::of_rows("trace", rows, names, operators).map_err(refused)?;
        Ok(Self::of(inner))
    }

    /// Makes a problem of a static graph: operators and tensors, before anything has run. The inputs of operator k are
    /// the tensors with the numbers `inputs[input_starts[k]..input_starts[k + 1]]`; the outputs are given in the same
    /// form. `storage` is 0 for a transient tensor, 1 for one that is kept to the end of the iteration, 2 for a
    /// persistent one, whose value passes to the next iteration. `bytes` and `workspace` are in bytes, `time_ns` in ns.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "columns of two tables, called by name from Python")]
    fn from_graph(
        bytes: Column<'_>,
        storage: Column<'_>,
        input_starts: Column<'_>,
        inputs: Column<'_>,
        output_starts: Column<'_>,
        outputs: Column<'_>,
        workspace: Column<'_>,
        time_ns: Column<'_>,
        names: Option<Vec<String>>,
        operators: Operators<'_>,
    ) -> PyResult<Self> {
        let rows = Rows { of: "tensor", names: names.as_deref().unwrap_or_default() };
        let bytes = rows.column("bytes", &bytes, None)?;
        let n = bytes.len();
        let storage = rows.column::<u8>("storage", &storage, Some(n))?;
        let operators = operators.get()?;
        let ops = operators.len();
        let inputs = Operands::of("inputs", &input_starts, &inputs, ops)?;
        let outputs = Operands::of("outputs", &output_starts, &outputs, ops)?;
        let rows = Rows { of: "operator", names: &[] };
        let workspace = rows.column("workspace", &workspace, Some(ops))?;
        let time_ns = rows.column("time_ns", &time_ns, Some(ops))?;
        let tensor = |i: usize| {
            let storage = match storage[i] {
                0 => Storage::Transient,
                1 => Storage::Iteration,
                2 => Storage::Persistent,
                other => return Err(refused(format!("tensor {i}: there is no storage {other}"))),
            };
            Ok(Tensor { bytes: bytes[i], storage })
        };
        let tensors = (0..n).map(tensor).collect::<PyResult<Vec<Tensor>>>()?;
        let node = |k: usize| {
            Ok(Node {
                inputs: inputs.of_op(k)?,
                outputs: outputs.of_op(k)?,
                workspace: workspace[k],
                time_ns: time_ns[k],
            })
        };
        let nodes = (0..ops).map(node).collect::<PyResult<Vec<Node<'_>>>>()?;
        let graph = Graph { tensors: &tensors, nodes: &nodes };
        let names = names.unwrap_or_else(|| numbers(n));
        let inner = sublet_cli::Problem::of_graph("graph", &graph, names, operators).map_err(refused)?;
        Ok(Self::of(inner))
    }

    /// What plans and messages call the blocks of the problem: a name for each.
    #[getter]
    fn ids(&self) -> Vec<String> {
        self.inner.ids().to_vec()
    }

    /// The names of the blocks of the recorded iteration, by their numbers; empty if the problem is only lifetimes of
    /// blocks.
    #[getter]
    fn names(&self) -> Vec<String> {
        self.inner.names().to_vec()
    }

    /// The names of the means that a fit uses where none are named.
    fn usual_means(&self) -> Vec<&'static str> {
        let using = self.inner.usual_means();
        Means::ALL.iter().filter(|&&means| using.has(means)).map(|means| means.name()).collect()
    }

    /// The blocks as columns: start and end of the lifetime in steps, size and alignment in bytes.
    #[getter]
    fn blocks<'py>(&self, py: Python<'py>) -> Blocks<'py> {
        let blocks = self.inner.blocks();
        let step = |of: fn(&Block) -> u32| blocks.iter().map(of).collect::<Vec<u32>>().into_pyarray(py);
        let bytes = |of: fn(&Block) -> u64| blocks.iter().map(of).collect::<Vec<u64>>().into_pyarray(py);
        (step(|b| b.start), step(|b| b.end), bytes(|b| b.size), bytes(|b| b.alignment))
    }

    /// Places the blocks by every solver, and serves them by allocators in use today, to compare how much memory each
    /// needs. Returns the text of a JSON object.
    fn compare(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.inner.compare()).map_err(refused)
    }

    /// Draws a plan as a page of HTML that shows where each block lies, and when. `offsets` are in bytes, one for each
    /// block; `solver` is the name of who found them.
    fn page(&self, offsets: Column<'_>, solver: &str) -> PyResult<String> {
        let offsets = self.offsets(&offsets)?;
        self.inner.page(&offsets, solver).map_err(refused)
    }

    /// Writes a plan to a file: a picture of the plan if the name ends in `.html` or `.svg`, otherwise the plan as
    /// text. `offsets` are in bytes, one for each block; `solver` is the name of who found them.
    fn save(&self, file: &str, offsets: Column<'_>, solver: &str) -> PyResult<()> {
        let offsets = self.offsets(&offsets)?;
        self.inner.save(file, &offsets, solver).map_err(refused)
    }
}

/// Names for `n` blocks that were given none: their numbers.
fn numbers(n: usize) -> Vec<String> {
    (0..n).map(|i| i.to_string()).collect()
}

/// The inputs, or the outputs, of all operators: a list of tensors for each operator.
struct Operands {
    /// The name of the column in messages: `inputs` or `outputs`.
    name: &'static str,
    /// For each operator, the index in `tensors` at which its list begins; one element more for the end of the last
    /// list.
    starts: Vec<u32>,
    /// The lists of all operators, one after the other. An element is the number of a tensor.
    tensors: Vec<u32>,
}

impl Operands {
    fn of(name: &'static str, starts: &Column<'_>, tensors: &Column<'_>, ops: usize) -> PyResult<Self> {
        let rows = Rows { of: "entry", names: &[] };
        let (starts, tensors) = (rows.column(name, starts, Some(ops + 1))?, rows.column(name, tensors, None)?);
        Ok(Self { name, starts, tensors })
    }

    fn of_op(&self, op: usize) -> PyResult<&[u32]> {
        let range = self.starts[op] as usize..self.starts[op + 1] as usize;
        let wrong = || refused(format!("{} of operator {op}: {range:?} of {}", self.name, self.tensors.len()));
        self.tensors.get(range.clone()).ok_or_else(wrong)
    }
}
