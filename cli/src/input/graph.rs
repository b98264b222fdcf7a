//! Static graphs: operators in one file, tensors in `NAME.tensors.csv` beside it. The graph becomes a trace, in which a
//! transient tensor is freed after the last operator that uses it.
//!
//! The columns of the operators are `op,name,inputs,outputs` and optionally
//! `phase,inplace,rerun,ordered,element,workspace,time_ns`. Operators are numbered from 0, row by row; they need not
//! stand in an order in which they can run. Inputs and outputs are names of tensors with spaces between them. The
//! columns of the tensors are `tensor,bytes` and optionally `storage`, which is `transient`, `iteration` or
//! `persistent`. A block of the trace has its tensor's name, and `workspace K` is the scratch of operator K.

use std::collections::HashMap;
use std::io::BufRead;

use sublet_core::trace::graph::{self, Graph, Node, Storage, Tensor};
use sublet_core::trace::{Event, Op, Operator, Row};
use sublet_core::{Error, owned};

use super::{Format, Recognised, ops, table::Table};
use crate::failure::InputError;
use crate::problem::{BadRow, Problem};

const COLUMNS: [&str; 11] =
    ["op", "name", "phase", "inputs", "outputs", "workspace", "time_ns", "inplace", "rerun", "ordered", "element"];

/// The operators of a file.
#[derive(Default)]
struct Operators {
    operands: Vec<[Vec<u32>; 2]>,
    workspaces: Vec<u64>,
    times: Vec<u64>,
    names: Vec<String>,
    may: Vec<Operator>,
    lines: Vec<u64>,
}

/// The names of the tensors, and the tensors.
type Tensors = (Vec<String>, Vec<Tensor>);

/// How a graph is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "a graph (op,name,inputs,outputs[,…])",
    help: "\
  graph      op,name,inputs,outputs[,phase][,workspace][,time_ns][,inplace][,rerun][,ordered]
             [,element], with its tensors in NAME.tensors.csv: tensor,bytes[,storage]",
    by: Recognised::Table(&["inputs", "outputs"], read),
};

/// Reads what follows the header of the operators, and the tensors beside them.
pub(super) fn read(file: &str, table: Table<&mut dyn BufRead>) -> Result<Problem, InputError> {
    read_with(file, table, beside)
}

/// Reads operators and tensors. Messages call the operators' file `name`.
pub(crate) fn read_pair(name: &str, operators: impl BufRead, tensors: impl BufRead) -> Result<Problem, InputError> {
    let table = Table::open(name, operators)?;
    read_with(name, table, |name| self::tensors(Table::open(&format!("{name}, tensors"), tensors)?))
}

fn read_with<R: BufRead>(
    file: &str,
    mut table: Table<R>,
    tensors: impl FnOnce(&str) -> Result<Tensors, InputError>,
) -> Result<Problem, InputError> {
    let notes: Vec<String> = table.unread(&COLUMNS).into_iter().collect();
    let columns = ops::Columns::of(&table)?;
    let operands = [table.column("inputs")?, table.column("outputs")?];
    let [workspace, time] = ["workspace", "time_ns"].map(|column| table.optional(column));
    let (mut tensor_names, tensors) = tensors(file)?;
    let indices: HashMap<&str, u32> = tensor_names.iter().map(String::as_str).zip(0..).collect();
    let mut read = Operators::default();
    while table.advance()? {
        let (name, may) = columns.read(&table, read.names.len())?;
        let list = |column: usize| {
            let text = str::from_utf8(table.bytes(column)).map_err(|_| table.fault(column, "names in UTF-8"))?;
            let index = |name| {
                let unknown = || table.at_cell(column, format!("there is no tensor {name}"));
                indices.get(name).copied().ok_or_else(unknown)
            };
            text.split_ascii_whitespace().map(index).collect::<Result<Vec<u32>, InputError>>()
        };
        let number = |column: Option<usize>, what| match column {
            Some(column) => table.optional_number(column, what).map(Option::unwrap_or_default),
            None => Ok(0),
        };
        read.operands.push([list(operands[0])?, list(operands[1])?]);
        read.workspaces.push(number(workspace, "bytes")?);
        read.times.push(number(time, "ns")?);
        read.names.push(name);
        read.may.push(may);
        read.lines.push(table.line());
    }
    if read.names.is_empty() {
        return Err(table.at_line("expected a row, found only the header"));
    }
    let rows = read.rows(&tensors).map_err(|e| explain(file, &e, &tensor_names, &read.lines))?;
    let scratch = (0..).zip(&read.workspaces).filter(|(_, bytes)| **bytes > 0);
    tensor_names.extend(scratch.map(|(op, _): (u64, _)| format!("workspace {op}")));
    let bad = |BadRow { message, .. }| InputError::file(file, message);
    let mut problem = Problem::of_trace(file, rows, tensor_names).map_err(bad)?;
    if let Some(trace) = &mut problem.trace {
        ops::Told { names: read.names, operators: read.may, rerun: columns.tells_rerun() }.give(trace);
    }
    Ok(Problem { notes, ..problem })
}

/// The tensors of `NAME.tensors.csv` beside `NAME.csv`.
fn beside(graph: &str) -> Result<Tensors, InputError> {
    let file = super::beside(graph, "tensors.csv").ok_or_else(|| {
        InputError::file(
            graph,
            "the tensors of a graph lie in NAME.tensors.csv beside NAME.csv, and there is no such file",
        )
    })?;
    tensors(Table::open(&file, super::open(&file)?)?)
}

fn tensors<R: BufRead>(mut table: Table<R>) -> Result<Tensors, InputError> {
    let (name, bytes, storage) = (table.column("tensor")?, table.column("bytes")?, table.optional("storage"));
    let (mut names, mut tensors) = (Vec::new(), Vec::new());
    let mut lines: HashMap<String, u64> = HashMap::new();
    while table.advance()? {
        let called = table.name(name)?.to_owned();
        if called.contains(char::is_whitespace) {
            return Err(table.fault(name, "a name without spaces"));
        }
        if let Some(line) = lines.insert(called.clone(), table.line()) {
            return Err(table.at_cell(name, format!("tensor {called} is there already, in line {line}")));
        }
        let size = table.number(bytes, "bytes")?;
        if size == 0 {
            return Err(table.fault(bytes, "a size of at least one byte"));
        }
        let storage = match storage.map(|column| (column, table.bytes(column).trim_ascii())) {
            None | Some((_, b"transient")) => Storage::Transient,
            Some((_, b"iteration")) => Storage::Iteration,
            Some((_, b"persistent")) => Storage::Persistent,
            Some((column, _)) => return Err(table.fault(column, "transient, iteration or persistent")),
        };
        names.push(called);
        tensors.push(Tensor { bytes: size, storage });
    }
    Ok((names, tensors))
}

impl Operators {
    fn rows(&mut self, tensors: &[Tensor]) -> Result<Vec<Row>, Error> {
        let times = self.workspaces.iter().zip(&self.times);
        let nodes = self.operands.iter().zip(times).map(|([inputs, outputs], (&workspace, &time_ns))| Node {
            inputs,
            outputs,
            workspace,
            time_ns,
        });
        let nodes: Vec<Node<'_>> = nodes.collect();
        rows(&Graph { tensors, nodes: &nodes }, &mut self.names, &mut self.may)
    }
}

/// The rows of a graph that may be rewritten later. One more operator reads all tensors that are kept to the end of the
/// iteration, so that any means has them back by then; if operators are given, it is added to them. An operator whose
/// outputs nobody reads keeps its place in the order, so that it does not come after the end.
pub(crate) fn rows(
    graph: &Graph<'_>,
    names: &mut Vec<String>,
    operators: &mut Vec<Operator>,
) -> Result<Vec<Row>, Error> {
    let mut rows = owned::rows(graph)?;
    let len = rows.len();
    rows.resize(len + graph.tensors.len(), Row::default());
    let end = graph::read_results(graph, &mut rows, len)?;
    rows.truncate(end);
    if end == len {
        return Ok(rows);
    }
    let (mut is_read, mut is_needed) = (vec![false; graph.blocks()], vec![false; graph.nodes.len()]);
    for row in rows.iter().rev() {
        match (row.event, row.op) {
            (Event::Read, _) => is_read[row.block as usize] = true,
            (Event::Write, Op::First(k)) => is_needed[k as usize] |= is_read[row.block as usize],
            _ => {}
        }
    }
    for (operator, is_needed) in operators.iter_mut().zip(is_needed) {
        operator.ordered |= !is_needed;
    }
    if !operators.is_empty() {
        names.resize(graph.nodes.len(), String::new());
        operators.resize(graph.nodes.len(), Operator::default());
        names.push("end of the iteration".into());
        operators.push(Operator { rerun: false, ..Operator::default() });
    }
    Ok(rows)
}

/// Explains an error with the names of tensors and the lines of operators.
fn explain(file: &str, error: &Error, tensors: &[String], lines: &[u64]) -> InputError {
    let line = |op: u32| lines.get(op as usize).copied().unwrap_or_default();
    match *error {
        Error::TwoWriters { tensor, first, second } => {
            let name = tensors.get(tensor as usize).map_or("?", String::as_str);
            let message = if first == second {
                format!("op {second} writes {name} twice")
            } else {
                format!("op {second} writes {name}, which op {first} has written and this one does not read")
            };
            InputError::line(file, line(second), message)
        }
        Error::Cycle { node } => {
            let message = format!("op {node} needs, through others, what it writes itself");
            InputError::line(file, line(node), message)
        }
        ref other => InputError::file(file, other.to_string()),
    }
}
