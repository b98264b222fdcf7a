//! The operators of a trace: `op,name,phase,inplace,rerun,ordered,element`, in a file beside it.
//!
//! `phase` is fwd, bwd, upd or empty. `inplace` and `rerun` are 0 or 1. Without these columns no operator works in
//! place, and all may be recomputed. `ordered` is 1 for operators that keep their order among each other, such as
//! collectives. Without the column, or in an empty cell, it is 1 for operators that draw random numbers, by their
//! names. `element` is the bytes of an element of what the operator reads and writes: 1, 2, 4 or 8; 4 without the
//! column or in an empty cell.

use std::io::BufRead;

use sublet_core::trace::{Kind, Operator};

use super::table::Table;
use crate::failure::InputError;
use crate::problem::Trace;

/// What a file says of operators, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(super) names: Vec<String>,
    pub(super) operators: Vec<Operator>,
    /// Whether the file says which operators may be recomputed.
    pub(super) rerun: bool,
}

impl Told {
    /// Adds what the file says to the trace.
    pub(crate) fn give(self, trace: &mut Trace) {
        (trace.op_names, trace.operators, trace.tells_rerun) = (self.names, self.operators, self.rerun);
    }
}

/// The operators' names and what they may do, by their numbers, from `NAME.ops.csv` beside `NAME.csv`; none if there is
/// no such file.
pub(super) fn beside(trace: &str) -> Result<Told, InputError> {
    match super::beside(trace, "ops.csv") {
        Some(file) => read_from(&file, super::open(&file)?),
        None => Ok(Told::default()),
    }
}

/// The operators' names and what they may do, by their numbers.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn read_from(file: &str, reader: impl BufRead) -> Result<Told, InputError> {
    let mut table = Table::open(file, reader)?;
    let columns = Columns::of(&table)?;
    let mut told = Told { rerun: columns.tells_rerun(), ..Told::default() };
    while table.advance()? {
        let (name, operator) = columns.read(&table, told.names.len())?;
        told.names.push(name);
        told.operators.push(operator);
    }
    Ok(told)
}

/// The columns of a table that say what an operator is called and may do.
pub(super) struct Columns {
    op: usize,
    name: usize,
    phase: Option<usize>,
    in_place: Option<usize>,
    rerun: Option<usize>,
    ordered: Option<usize>,
    element: Option<usize>,
}

/// Operators that draw random numbers: what each draws depends on those before it, so their order is kept.
const RANDOM: [&str; 7] = ["native_dropout", "dropout", "bernoulli_", "rand", "randn", "normal_", "uniform_"];

impl Columns {
    pub(super) fn of<R: BufRead>(table: &Table<R>) -> Result<Self, InputError> {
        let [phase, in_place, rerun, ordered, element] =
            ["phase", "inplace", "rerun", "ordered", "element"].map(|column| table.optional(column));
        Ok(Self { op: table.column("op")?, name: table.column("name")?, phase, in_place, rerun, ordered, element })
    }

    /// Whether the table says which operators may be recomputed.
    pub(super) const fn tells_rerun(&self) -> bool {
        self.rerun.is_some()
    }

    /// The name of the current row's operator, and what it may do. The operator must have this number.
    pub(super) fn read<R: BufRead>(&self, table: &Table<R>, number: usize) -> Result<(String, Operator), InputError> {
        if table.number(self.op, "ops")? != number as u64 {
            return Err(table.fault(self.op, format!("the op {number}: they are numbered from 0")));
        }
        if let Some(column) = self.phase
            && !matches!(table.bytes(column).trim_ascii(), b"fwd" | b"bwd" | b"upd" | b"")
        {
            return Err(table.fault(column, "the phase fwd, bwd or upd"));
        }
        let flag = |column: Option<usize>, otherwise| match column.map(|c| (c, table.bytes(c).trim_ascii())) {
            None => Ok(otherwise),
            Some((_, b"0")) => Ok(false),
            Some((_, b"1")) => Ok(true),
            Some((column, _)) => Err(table.fault(column, "0 or 1")),
        };
        let name = table.name(self.name)?;
        let kind = match name {
            "relu" | "relu_" => Kind::Relu,
            "threshold_backward" => Kind::ReluBackward,
            _ => Kind::Other,
        };
        let element = match self.element.map(|c| (c, table.bytes(c).trim_ascii())) {
            None | Some((_, b"" | b"4")) => 4,
            Some((_, b"1")) => 1,
            Some((_, b"2")) => 2,
            Some((_, b"8")) => 8,
            Some((column, _)) => return Err(table.fault(column, "the bytes of an element: 1, 2, 4 or 8")),
        };
        let by_name = self.ordered.is_none_or(|column| table.bytes(column).trim_ascii().is_empty());
        let ordered = if by_name { RANDOM.contains(&name) } else { flag(self.ordered, true)? };
        let (in_place, rerun) = (flag(self.in_place, false)?, flag(self.rerun, true)?);
        let may = Operator { in_place, rerun, ordered, kind, element };
        Ok((name.to_owned(), may))
    }
}
