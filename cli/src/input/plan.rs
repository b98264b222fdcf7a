//! Reads plans: the offset of each block of a problem.
//!
//! `id,offset` and, if there are such columns, `lower,upper,size`, which have to be the problem's. A plan for several
//! memories says in the column `bank` in which of them a block lies.

use std::collections::HashMap;
use std::io::BufRead;

use super::{open, table::Table};
use crate::failure::{Failure, InputError};
use crate::problem::Problem;

/// Where every block of a problem lies.
pub(crate) struct Told {
    /// The offsets, in bytes.
    pub(crate) offsets: Vec<u64>,
    /// The bank of each block; none where there is one memory.
    pub(crate) banks: Option<Vec<String>>,
}

/// The offset of every block of `problem`, in bytes, in one memory.
///
/// # Errors
/// [`Failure::No`] if the plan is not one for this problem; otherwise which place of the file is not as expected.
pub(crate) fn read(file: &str, problem: &Problem) -> Result<Vec<u64>, Failure> {
    read_from(file, open(file)?, problem)
}

/// As [`read`], for commands that support several memories.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_in_banks(file: &str, problem: &Problem) -> Result<Told, Failure> {
    told(file, open(file)?, problem)
}

/// As [`read`], from any reader. Messages call it `file`.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_from(file: &str, reader: impl BufRead, problem: &Problem) -> Result<Vec<u64>, Failure> {
    let Told { offsets, banks } = told(file, reader, problem)?;
    if banks.is_some() {
        return Err(
            InputError::file(file, "the column \"bank\" is for several memories: sublet verify INPUT PLAN").into()
        );
    }
    Ok(offsets)
}

fn told(file: &str, reader: impl BufRead, problem: &Problem) -> Result<Told, Failure> {
    let mut table = Table::open(file, reader)?;
    let (id, offset, bank) = (table.column("id")?, table.column("offset")?, table.optional("bank"));
    let mut banks = vec![String::new(); problem.blocks.len()];
    let known = [table.optional("lower"), table.optional("upper"), table.optional("size")];
    let indices: HashMap<&str, u32> = problem.ids.iter().map(String::as_str).zip(0..).collect();
    let mut offsets = vec![None; problem.blocks.len()];
    while table.advance()? {
        let name = table.name(id)?;
        let not_its = |message: String| Failure::No(table.at_line(message).to_string());
        let Some(index) = indices.get(name).map(|&i| i as usize) else {
            return Err(not_its(format!("the plan names block {name}, which {} has not", problem.name)));
        };
        let block = &problem.blocks[index];
        let facts = [problem.time(block.start), problem.time(block.end), block.size];
        for ((column, fact), what) in known.into_iter().zip(facts).zip(["lower", "upper", "size"]) {
            let Some(column) = column else { continue };
            match table.optional_number(column, "steps or bytes")? {
                Some(told) if told != fact => {
                    return Err(not_its(format!("block {name}: the plan says {what} {told}, {} {fact}", problem.name)));
                }
                _ => {}
            }
        }
        if table.bytes(offset).trim_ascii().starts_with(b"-") {
            return Err(not_its(format!("block {name} has a negative offset")));
        }
        if offsets[index].replace(table.number(offset, "bytes")?).is_some() {
            return Err(not_its(format!("the plan gives block {name} a second offset")));
        }
        if let Some(bank) = bank {
            table.name(bank)?.clone_into(&mut banks[index]);
        }
    }
    let missing = |i: usize| Failure::No(format!("{file}: block {} has no offset", problem.ids[i]));
    let offsets = (0..).zip(&offsets).map(|(i, o)| o.ok_or_else(|| missing(i))).collect::<Result<_, _>>()?;
    Ok(Told { offsets, banks: bank.map(|_| banks) })
}
