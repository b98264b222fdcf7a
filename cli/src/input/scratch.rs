//! The scratch that kernels ask for while they run: from the lines that TFLM prints of its plan, or from a table.

use std::io::BufRead;

use super::table::Table;
use super::{open, unreadable};
use crate::failure::InputError;
use crate::model::Model;
use crate::model::schedule::in_file_order;

/// Reads the lines that TFLM prints of its plan when it is built with `TF_LITE_SHOW_MEMORY_USE`: one for each buffer,
/// `0 (id=0): size=64, offset=0, first_used=0 last_used=1`. The model's tensors come first. All other buffers are
/// scratch, each of the operator that runs when it is first used. At the time -1 that is an operator of a graph that
/// never runs, whose scratch is left out. Returns operators, and the bytes that each asks for.
///
/// # Errors
/// A log of another model.
pub(crate) fn of_log(file: &str, model: &Model) -> Result<Vec<(u32, u64)>, InputError> {
    let schedule = in_file_order(model, &[]).map_err(|message| InputError::file(file, message))?;
    let expected: Vec<(u64, [i64; 2])> =
        schedule.placed_by_tflm(model).map(|(tensor, life)| (model.bytes(tensor), life)).collect();
    let (mut found, mut buffers) = (Vec::new(), 0);
    for (line, number) in open(file)?.lines().zip(1u64..) {
        let line = line.map_err(|e| unreadable(file, &e))?;
        let Some((_, line)) = line.split_once("(id=") else { continue };
        let fault = |message: String| InputError::line(file, number, message);
        let value = |name: &str| {
            let text = line.split_once(name).map_or("", |(_, rest)| rest);
            let digits = text.split(|c: char| c != '-' && !c.is_ascii_digit()).next().unwrap_or_default();
            digits.parse::<i64>().map_err(|_| fault(format!("expected {name} and a number")))
        };
        let (size, used) = (value("size=")?, [value("first_used=")?, value("last_used=")?]);
        if let Some(&(bytes, [first, last])) = expected.get(buffers) {
            if u64::try_from(size) != Ok(bytes) || used != [first, last] {
                return Err(fault(format!(
                    "expected the model's tensor of {bytes} bytes, used from {first} to {last}: is the log of this model, without a plan?"
                )));
            }
        } else if used[0] != -1 {
            let step = usize::try_from(used[0]).ok().and_then(|time| schedule.steps.get(time.checked_sub(1)?));
            let operator = step.ok_or_else(|| fault(format!("there is no operator at time {}", used[0])))?;
            found.push((*operator, bytes(u64::try_from(size).unwrap_or(u64::MAX), fault)?));
        }
        buffers += 1;
    }
    if buffers < expected.len() {
        let message = format!(
            "expected a line (id=…): size=…, first_used=… last_used=… for each of {} tensors, found {buffers}",
            expected.len()
        );
        return Err(InputError::file(file, message));
    }
    Ok(found)
}

/// Reads a table `op,bytes`. `op` is an operator's number in the model's file, where the operators of all graphs are
/// counted from 0. Returns operators, by their indices in `model`, and the bytes that each asks for.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn of_table(file: &str, model: &Model) -> Result<Vec<(u32, u64)>, InputError> {
    let mut table = Table::open(file, open(file)?).map_err(|e| InputError {
        message: format!("{}; the scratch of kernels is a table op,bytes", e.message),
        ..e
    })?;
    let (op, column) = (table.column("op")?, table.column("bytes")?);
    let mut found = Vec::new();
    while table.advance()? {
        let operator = table
            .number(op, "")
            .map_err(|_| table.fault(op, "the number of an operator, counted from 0 in the order of the file"))?;
        let operator = model.operators.iter().position(|o| u64::from(o.number) == operator);
        let operator = operator.and_then(|k| u32::try_from(k).ok()).ok_or_else(|| {
            let count = model.operators.len();
            table.at_cell(op, format!("no operator has this number: the model has {count} operators beside constants"))
        })?;
        let asked = table.number(column, "bytes")?;
        if asked > 0 {
            found.push((operator, bytes(asked, |message| table.at_cell(column, message))?));
        }
    }
    Ok(found)
}

fn bytes(asked: u64, fault: impl FnOnce(String) -> InputError) -> Result<u64, InputError> {
    if asked <= u64::from(u32::MAX >> 1) {
        Ok(asked)
    } else {
        Err(fault("no plan holds offsets above 2147483647".into()))
    }
}
