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

use sublet_core::Error;
use sublet_core::owned::{self, Scratch};
use sublet_core::rewrite::in_place;
use sublet_core::trace::order::{self, Ordered};
use sublet_core::trace::{Event, Op, Operator, Recorded, Row, liveness};
use sublet_core::trace::{Graph, Node, Storage, Tensor};

use super::{Format, Recognised, ops, table::Table};
use crate::failure::InputError;
use crate::problem::{BadRow, Problem, StaticGraph};

const COLUMNS: [&str; 11] =
    ["op", "name", "phase", "inputs", "outputs", "workspace", "time_ns", "inplace", "rerun", "ordered", "element"];

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
    let (tensor_names, tensors) = tensors(file)?;
    let indices: HashMap<&str, u32> = tensor_names.iter().map(String::as_str).zip(0..).collect();
    let mut read = StaticGraph { tells_rerun: columns.tells_rerun(), ..StaticGraph::default() };
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
    let read = StaticGraph { tensor_names, tensors, ..read };
    let problem = read.arranged(file, false, false)?.0;
    Ok(Problem { notes, graph: Some(Box::new(read)), ..problem })
}

/// The tensors of `NAME.tensors.csv` beside `NAME.csv`.
fn beside(graph: &str) -> Result<Tensors, InputError> {
    let file = super::beside(graph, "tensors.csv").ok_or_else(|| {
        let wanted = if graph == "-" { "NAME.tensors.csv".into() } else { super::named_beside(graph, "tensors.csv") };
        InputError::file(graph, format!("the tensors of a graph lie beside it in {wanted}, and there is no such file"))
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

/// How the operators of a graph run.
pub(crate) struct Arranged {
    /// Their numbers in the order in which they run.
    pub(crate) runs: Vec<u32>,
    /// The result of the search for the order, if there was one.
    pub(crate) ordered: Option<Ordered>,
}

impl StaticGraph {
    /// The graph's problem, with operators in the order that needs least memory, and outputs over inputs. What shares
    /// memory by that is one block, named after all of its tensors.
    ///
    /// # Errors
    /// A graph that cannot run.
    pub(crate) fn arranged(
        &self,
        file: &str,
        reorder: bool,
        in_place: bool,
    ) -> Result<(Problem, Arranged), InputError> {
        let explained = |e: Error| explain(file, &e, &self.tensor_names, &self.lines);
        let in_place_of = |o: &Operator| Operator { in_place: o.in_place && in_place, ..*o };
        let mut operators: Vec<Operator> = self.may.iter().map(in_place_of).collect();
        let ordered = reorder.then(|| self.least_load(&operators)).transpose().map_err(explained)?;
        let (order, ordered) =
            ordered.map_or(((0..).take(self.may.len()).collect(), None), |(o, ordered)| (o, Some(ordered)));

        let of = |k: &u32| *k as usize;
        let nodes: Vec<Node<'_>> = order.iter().map(|k| self.node(of(k))).collect();
        let mut names = order.iter().map(|k| self.names[of(k)].clone()).collect();
        let mut may = order.iter().map(|k| operators[of(k)]).collect();
        let graph = Graph { tensors: &self.tensors, nodes: &nodes };
        let mut rows = rows(&graph, &mut names, &mut may).map_err(explained)?;
        // Rows name operators by their places in the order, and one more operator may have been added.
        let number = |place: u32| order.get(place as usize).copied().unwrap_or(place);
        for row in &mut rows {
            if let Op::First(place) = row.op {
                row.op = Op::First(number(place));
            }
        }
        let mut names_in_file = self.names.clone();
        names_in_file.resize(names.len(), String::new());
        operators.resize(may.len(), Operator::default());
        for (place, (name, may)) in (0..).zip(names.into_iter().zip(may)) {
            names_in_file[number(place) as usize] = name;
            operators[number(place) as usize] = may;
        }

        let mut blocks = self.tensor_names.clone();
        let places = nodes.iter().zip(&order).filter(|(node, _)| node.workspace > 0);
        blocks.extend(places.map(|(_, k)| format!("workspace {k}")));
        let runs = runs(&rows, self.may.len());
        if in_place {
            rows = over_inputs(&rows, &operators, &mut blocks).map_err(explained)?;
        }
        let bad = |BadRow { message, .. }| InputError::file(file, message);
        let mut problem = Problem::of_trace(file, rows, blocks).map_err(bad)?;
        if let Some(trace) = &mut problem.trace {
            ops::Told { names: names_in_file, operators, rerun: self.tells_rerun }.give(trace);
        }
        Ok((problem, Arranged { runs, ordered }))
    }

    fn node(&self, k: usize) -> Node<'_> {
        let [inputs, outputs] = &self.operands[k];
        Node { inputs, outputs, workspace: self.workspaces[k], time_ns: self.times[k] }
    }

    fn least_load(&self, operators: &[Operator]) -> Result<(Vec<u32>, Ordered), Error> {
        let nodes: Vec<Node<'_>> = (0..self.may.len()).map(|k| self.node(k)).collect();
        let graph = Graph { tensors: &self.tensors, nodes: &nodes };
        let options = order::Options::default();
        let len = order::workspace(self.tensors.len(), nodes.len(), graph.operands(), options);
        let mut found = vec![0; nodes.len()];
        let ordered = order::least_load(&graph, operators, options, Scratch::of(len).lend(), &mut found)?;
        Ok((found, ordered))
    }
}

/// The numbers of the operators below `count`, as they come in the rows.
fn runs(rows: &[Row], count: usize) -> Vec<u32> {
    let mut seen = vec![false; count];
    let mut first = |row: &Row| match row.op {
        Op::First(k) => seen.get_mut(k as usize).is_some_and(|seen| !std::mem::replace(seen, true)).then_some(k),
        _ => None,
    };
    rows.iter().filter_map(&mut first).collect()
}

/// The rows with outputs over inputs: the blocks of both become one, the first, and its name gets that of the other.
fn over_inputs(rows: &[Row], operators: &[Operator], names: &mut [String]) -> Result<Vec<Row>, Error> {
    let recorded = Recorded { rows, operators, blocks: names.len() };
    let mut over = vec![Row::default(); in_place::most_rows(rows)];
    let mut scratch = Scratch::of(in_place::workspace(rows.len(), rows.len(), names.len()));
    let len = in_place::rewrite(&recorded, rows, scratch.lend(), &mut over)?;
    over.truncate(len);
    let (mut blocks, residencies) = owned::lifetimes(&over, names.len())?;
    let mut part_of = vec![0; blocks.len()];
    let mut scratch = Scratch::of(liveness::merge_workspace(names.len()));
    liveness::merge(&over, names.len(), scratch.lend(), &mut blocks, &mut part_of)?;
    // A block of a graph is allocated once: it has one residency.
    let (mut first, mut last) = (HashMap::new(), HashMap::new());
    for (residency, &part) in residencies.iter().zip(&part_of) {
        first.entry(part).or_insert(residency.block);
        last.insert(part, residency.block);
    }
    let part: HashMap<u32, u32> = residencies.iter().zip(&part_of).map(|(r, &part)| (r.block, part)).collect();
    for residency in &residencies {
        let root = first[&part[&residency.block]];
        if root != residency.block {
            let name = format!("+{}", names[residency.block as usize]);
            names[root as usize].push_str(&name);
        }
    }
    over.retain(|row| match row.event {
        Event::Malloc => first[&part[&row.block]] == row.block,
        Event::Free => last[&part[&row.block]] == row.block,
        _ => true,
    });
    for row in &mut over {
        row.block = first[&part[&row.block]];
    }
    Ok(over)
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
    let end = graph.read_results(&mut rows, len)?;
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
