//! Instances: blocks with lifetimes, in the format of google/minimalloc.
//!
//! The columns are `id,lower,upper,size[,alignment]`, in any order. A column `end` in place of `upper` is inclusive. A
//! cell of `offset` pins its block there, so that minimalloc's solutions can be read as well. A cell of `bank` names
//! the memory that its block lies in, where there are several. `gaps` and `hint` have to be empty: this planner has no
//! use for them, and ignoring them would answer another question. Times may be any 64-bit numbers; only their order
//! matters, and beyond 32 bits they are replaced by their ranks.

use std::collections::HashSet;
use std::io::BufRead;

use sublet_core::{Block, Error, check_blocks};

use super::table::Table;
use super::{Format, Recognised};
use crate::failure::InputError;
use crate::problem::Problem;

const COLUMNS: [&str; 10] = ["id", "lower", "upper", "end", "size", "alignment", "offset", "bank", "gaps", "hint"];

const BOTH_ENDS: &str = "the columns \"upper\" and \"end\" mix two conventions: use \"upper\", the step after the last one, \
                         without \"end\"; or \"end\", the last step itself, without \"upper\"";

/// How an instance is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "an instance (id,lower,upper,size[,alignment])",
    help: "\
  instance   id,lower,upper,size[,alignment][,offset]; lifetimes are half-open, but a column `end`
             in place of `upper` is inclusive",
    by: Recognised::Table(&["lower", "size"], read),
};

/// Reads what follows the header.
pub(super) fn read(file: &str, mut table: Table<&mut dyn BufRead>) -> Result<Problem, InputError> {
    let notes: Vec<String> = table.unread(&COLUMNS).into_iter().collect();
    let ends = (table.optional("upper"), table.optional("end"));
    if let (Some(_), Some(_)) = ends {
        return Err(table.at_line(BOTH_ENDS));
    }
    let (id, lower, size) = (table.column("id")?, table.column("lower")?, table.column("size")?);
    let (upper, inclusive) = match ends {
        (None, Some(end)) => (end, 1),
        _ => (table.column("upper")?, 0),
    };
    let (alignment, pin, bank) = (table.optional("alignment"), table.optional("offset"), table.optional("bank"));
    let unsupported = [table.optional("gaps"), table.optional("hint")];

    let (mut blocks, mut ids, mut lifetimes, mut lines) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut banks = Vec::new();
    while table.advance()? {
        for column in unsupported.into_iter().flatten() {
            if !table.bytes(column).trim_ascii().is_empty() {
                let name = table.column_name(column);
                return Err(table.fault(column, format!("nothing: \"{name}\" is not supported")));
            }
        }
        ids.push(table.name(id)?.to_owned());
        let first = table.number(lower, "steps")?;
        let last = table.number(upper, "steps")?;
        let Some(after) = last.checked_add(inclusive) else {
            return Err(table.fault(upper, format!("a time below {}", u64::MAX)));
        };
        if after <= first {
            let Some(after_first) = first.checked_add(1) else {
                return Err(table.fault(lower, format!("a time below {}", u64::MAX)));
            };
            let allowed = after_first - inclusive;
            return Err(table.fault(upper, format!("a time of at least {allowed}, one step after the start")));
        }
        let bytes = table.number(size, "bytes")?;
        if bytes == 0 {
            return Err(table.fault(size, "a size of at least one byte"));
        }
        let aligned = match alignment {
            Some(column) => table.optional_number(column, "bytes")?.unwrap_or(1),
            None => 1,
        };
        if let (false, Some(column)) = (aligned.is_power_of_two(), alignment) {
            return Err(table.fault(column, "a power of two"));
        }
        let pinned = match pin {
            Some(column) => table.optional_number(column, "bytes")?,
            None => None,
        };
        blocks.push(Block { alignment: aligned, pin: pinned, ..Block::new(0, 1, bytes) });
        if let Some(column) = bank {
            let empty = table.bytes(column).trim_ascii().is_empty();
            banks.push(if empty { None } else { Some(table.name(column)?.to_owned()) });
        }
        lifetimes.push((first, after));
        lines.push(table.line());
    }
    if blocks.is_empty() {
        return Err(table.at_line("expected a block, found only the header"));
    }
    let line_of = |index: usize| lines.get(index).copied().unwrap_or_default();
    if let Some((first, twice)) = duplicate(&ids) {
        let message = format!("expected a new id, found \"{}\", which line {} has already", ids[twice], line_of(first));
        return Err(InputError::line(file, line_of(twice), message));
    }
    let times = set_lifetimes(&mut blocks, &lifetimes);
    let problem = Problem { name: file.into(), blocks, ids, times, banks, notes, ..Problem::default() };
    match check_blocks(&problem.blocks, 1) {
        Ok(_) => Ok(problem),
        Err(e @ (Error::SizeOverflow { block } | Error::PinMisaligned { block, .. })) => {
            Err(InputError::line(file, line_of(block as usize), problem.explain(&e)))
        }
        Err(e) => Err(InputError::file(file, problem.explain(&e))),
    }
}

/// The two indices of the first id that is repeated: where it stands first, and where it stands again.
fn duplicate(ids: &[String]) -> Option<(usize, usize)> {
    // Ids are mostly numbers in ascending order. Then none is repeated, and no set of them is needed.
    if ids.is_sorted_by(|a, b| (a.len(), a) < (b.len(), b)) {
        return None;
    }
    let mut seen = HashSet::with_capacity(ids.len());
    let twice = ids.iter().position(|id| !seen.insert(id.as_str()))?;
    Some((ids.iter().position(|id| *id == ids[twice])?, twice))
}

/// Sets the lifetimes of blocks. If all times fit in 32 bits, they are the steps, and the result is empty. Otherwise
/// the steps are the ranks of the times, and the result has the times in ascending order.
fn set_lifetimes(blocks: &mut [Block], lifetimes: &[(u64, u64)]) -> Vec<u64> {
    let mut times = Vec::new();
    if lifetimes.iter().any(|&(_, end)| u32::try_from(end).is_err()) {
        times.extend(lifetimes.iter().flat_map(|&(start, end)| [start, end]));
        times.sort_unstable();
        times.dedup();
    }
    let step = |time: u64| {
        let step = if times.is_empty() { Ok(time) } else { times.binary_search(&time).map(|rank| rank as u64) };
        u32::try_from(step.unwrap_or(u64::MAX)).unwrap_or(u32::MAX)
    };
    for (block, &(start, end)) in blocks.iter_mut().zip(lifetimes) {
        (block.start, block.end) = (step(start), step(end));
    }
    times
}
