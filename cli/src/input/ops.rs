//! The operators of a trace: `op,name,phase,inplace,rerun`, in a file `NAME.ops.csv` beside `NAME.csv`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::{table::Table, unreadable};
use crate::failure::InputError;

/// The operators' names, by their numbers, from `NAME.ops.csv` beside `NAME.csv`; none if there is no such file.
pub(super) fn beside(trace: &str) -> Result<Vec<String>, InputError> {
    let path = Path::new(trace).with_extension("ops.csv");
    let Some(file) = path.to_str().filter(|_| trace != "-" && path.is_file()) else {
        return Ok(Vec::new());
    };
    let opened = File::open(&path).map_err(|e| unreadable(file, &e))?;
    read_from(file, BufReader::new(opened))
}

/// The operators' names, by their numbers.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn read_from(file: &str, reader: impl BufRead) -> Result<Vec<String>, InputError> {
    let mut table = Table::open(file, reader)?;
    let (op, name) = (table.column("op")?, table.column("name")?);
    let mut names = Vec::new();
    while table.advance()? {
        if table.number(op, "ops")? != names.len() as u64 {
            return Err(table.fault(op, format!("the op {}: they are numbered from 0", names.len())));
        }
        names.push(table.name(name)?.to_owned());
    }
    Ok(names)
}
