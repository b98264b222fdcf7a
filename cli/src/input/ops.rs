//! The operators of a trace: `op,name,phase,inplace,rerun`, in a file beside it.

use std::fs::File;
use std::io::BufReader;
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
    let mut table = Table::open(file, BufReader::new(opened))?;
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
