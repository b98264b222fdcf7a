//! Readers of files. Each format is recognised by its content, never by its name.

pub(crate) mod graph;
mod instance;
mod onnx;
pub(crate) mod ops;
pub(crate) mod plan;
mod recording;
pub(crate) mod rmm;
pub(crate) mod scratch;
pub(crate) mod snapshot;
mod table;
pub(crate) mod tflite;
mod trace;

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::time::Instant;

use crate::failure::InputError;
use crate::problem::Problem;
use crate::text::voice;
use snapshot::Snapshot;
use table::Table;

/// A format that files are read in.
pub(crate) struct Format {
    /// What a file of it is called, and its columns.
    expected: &'static str,
    /// Its lines in the help.
    pub(crate) help: &'static str,
    by: Recognised,
}

/// How files of a format are recognised, and who reads them.
enum Recognised {
    /// By their first bytes.
    Bytes(fn(&[u8]) -> bool, fn(&str, &mut dyn BufRead) -> Result<Problem, InputError>),
    /// By one of these columns.
    Table(&'static [&'static str], fn(&str, Table<&mut dyn BufRead>) -> Result<Problem, InputError>),
}

/// All formats. A table is read by the first format that has one of the table's columns.
pub(crate) const FORMATS: &[Format] =
    &[instance::FORMAT, graph::FORMAT, trace::FORMAT, rmm::FORMAT, snapshot::FORMAT, tflite::FORMAT, onnx::FORMAT];

/// What a file may be; said where it is none of these.
fn expected() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.expected).collect();
    let (last, others) = names.split_last().expect("there are formats");
    format!("expected {} or {last}", others.join(", "))
}

/// Reads the file of this name, or standard input for `-`, and the operators beside it.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn read(file: &str) -> Result<Problem, InputError> {
    in_one_bank(read_in_banks(file)?)
}

/// As [`read`], for programs that tell the notes of the problem in their own way.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_quietly(file: &str) -> Result<Problem, InputError> {
    in_one_bank(with_operators(file)?)
}

/// As [`read`], for commands that support several memories.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_in_banks(file: &str) -> Result<Problem, InputError> {
    let begin = Instant::now();
    let problem = with_operators(file)?;
    problem.notes.iter().for_each(voice::note);
    voice::detail(|| {
        let rows = problem.trace.as_ref().map_or(0, |trace| trace.rows.len());
        let (blocks, seconds) = (problem.blocks.len(), begin.elapsed().as_secs_f64());
        format!("read {file}: {blocks} blocks, {rows} rows, {seconds:.3} s")
    });
    Ok(problem)
}

fn with_operators(file: &str) -> Result<Problem, InputError> {
    let mut problem = read_any(file, open(file)?)?;
    // The operators of a graph stand in its file.
    if let Some(trace) = problem.trace.as_mut().filter(|trace| trace.op_names.is_empty()) {
        ops::beside(file)?.give(trace);
    }
    Ok(problem)
}

/// Reads from any reader. Messages call it `file`.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn read_from(file: &str, reader: impl BufRead) -> Result<Problem, InputError> {
    in_one_bank(read_any(file, reader)?)
}

/// Refuses blocks that name a bank.
fn in_one_bank(problem: Problem) -> Result<Problem, InputError> {
    if problem.banks.iter().any(Option::is_some) {
        let message = "the column \"bank\" is for several memories: sublet plan --bank NAME=SIZE";
        return Err(InputError::file(&problem.name, message));
    }
    Ok(problem)
}

fn read_any(file: &str, mut reader: impl BufRead) -> Result<Problem, InputError> {
    let begin = reader.fill_buf().map_err(|e| unreadable(file, &e))?;
    for format in FORMATS {
        if let Recognised::Bytes(begins, read) = format.by
            && begins(begin)
        {
            return read(file, &mut reader);
        }
    }
    let table = Table::open(file, &mut reader as &mut dyn BufRead)?;
    for format in FORMATS {
        if let Recognised::Table(columns, read) = format.by
            && columns.iter().any(|name| table.optional(name).is_some())
        {
            return read(file, table);
        }
    }
    if table.lacks_header() {
        return Err(table.at_line(format!("the first line has to name the columns; {}", expected())));
    }
    Err(table.at_line(expected()))
}

impl Problem {
    /// Reads a plan: the offset of each block, in bytes, in the order of the blocks. Messages call the plan `name`. The
    /// plan is not verified.
    ///
    /// # Errors
    /// A sentence that says where the content is not a plan for these blocks.
    pub fn read_plan(&self, name: &str, reader: impl BufRead) -> Result<Vec<u64>, String> {
        plan::read_from(name, reader, self).map_err(|e| e.to_string())
    }

    /// Reads a file of operators into the problem's trace; returns their names, by number. Messages call the file
    /// `name`.
    ///
    /// # Errors
    /// A sentence that says where the content is not as expected.
    pub fn read_operators(&mut self, name: &str, reader: impl BufRead) -> Result<&[String], String> {
        let trace = self.trace.as_mut().ok_or_else(|| format!("{}: only a trace has operators", self.name))?;
        ops::read_from(name, reader).map_err(|e| e.to_string())?.give(trace);
        Ok(&trace.op_names)
    }
}

/// What an allocator tells of its requests.
pub(crate) enum Patient {
    Snapshot(Box<Snapshot>),
    Log(Box<rmm::Log>),
}

/// Reads a PyTorch memory snapshot or a log of RMM.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn patient(file: &str) -> Result<Patient, InputError> {
    let expected = "expected a memory snapshot: a pickle of torch.cuda.memory._dump_snapshot; or a log of RMM";
    let mut reader = open(file)?;
    let begin = reader.fill_buf().map_err(|e| unreadable(file, &e))?;
    if begin.first() == Some(&snapshot::pickle::PROTO) {
        return Snapshot::read(file, reader).map(|snapshot| Patient::Snapshot(Box::new(snapshot)));
    }
    let table = Table::open(file, &mut reader as &mut dyn BufRead)?;
    match table.optional("Action").and(table.optional("Pointer")) {
        Some(_) => rmm::log(file, table).map(|log| Patient::Log(Box::new(log))),
        None => Err(table.at_line(expected)),
    }
}

/// Reads the figures of a device: bytes per second out and in, latency in ns, and the host's bytes if there is such a
/// column.
///
/// # Errors
/// Which place of the file is not as expected.
pub(crate) fn device(file: &str) -> Result<[Option<u64>; 4], InputError> {
    let mut table = Table::open(file, open(file)?)?;
    let [out, back, latency] =
        [table.column("out_bytes_per_s")?, table.column("in_bytes_per_s")?, table.column("latency_ns")?];
    let host = table.optional("host_bytes");
    if !table.advance()? {
        return Err(table.at_line("expected a row, found only the header"));
    }
    let host = host.map(|host| table.number(host, "bytes")).transpose()?;
    Ok([
        Some(table.number(out, "bytes per second")?),
        Some(table.number(back, "bytes per second")?),
        Some(table.number(latency, "ns")?),
        host,
    ])
}

pub(crate) fn open(file: &str) -> Result<Box<dyn BufRead>, InputError> {
    if file == "-" {
        return unpacked(file, io::stdin().lock());
    }
    let opened = File::open(file).map_err(|e| unreadable(file, &e))?;
    unpacked(file, BufReader::with_capacity(1 << 16, opened))
}

/// The content of a file that gzip or zstd may have packed, as its first bytes say.
fn unpacked(file: &str, mut reader: impl BufRead + 'static) -> Result<Box<dyn BufRead>, InputError> {
    let begin = reader.fill_buf().map_err(|e| unreadable(file, &e))?;
    if begin.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(reader))));
    }
    if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let frames = ruzstd::decoding::StreamingDecoder::new(reader);
        let frames = frames.map_err(|e| InputError::file(file, format!("cannot be unpacked: {e}")))?;
        return Ok(Box::new(BufReader::new(frames)));
    }
    Ok(Box::new(reader))
}

/// The file that belongs to `NAME.csv`, `NAME.csv.gz` or `NAME.csv.zst`, as `NAME.EXTENSION`, packed or not; none for
/// standard input, and where there is none.
fn beside(file: &str, extension: &str) -> Option<String> {
    let named = named_beside(file, extension);
    let named = ["", ".gz", ".zst"].map(|packed| format!("{named}{packed}"));
    named.into_iter().find(|name| file != "-" && Path::new(name).is_file())
}

fn named_beside(file: &str, extension: &str) -> String {
    let whole = [".gz", ".zst"].iter().find_map(|packed| file.strip_suffix(packed)).unwrap_or(file);
    Path::new(whole).with_extension(extension).display().to_string()
}

fn unreadable(file: &str, e: &io::Error) -> InputError {
    InputError::file(file, format!("cannot be read: {e}"))
}
