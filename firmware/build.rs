//! Turns a trace into a table of rows for the flash, and tells the linker about the memory.

use std::error::Error;
use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

const TRACE: &str = "../traces/chainer_googlenet_infer.csv";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::copy("memory.x", out.join("memory.x"))?;
    fs::write(out.join("rows.rs"), rows()?)?;
    println!("cargo:rustc-link-search={}", out.display());
    println!("cargo:rerun-if-changed=memory.x");
    println!("cargo:rerun-if-changed={TRACE}");
    Ok(())
}

/// The source text of a `&[Row]`. The blocks of the trace are numbered from 0 as they are allocated.
fn rows() -> Result<String, Box<dyn Error>> {
    let mut text = String::from("&[\n");
    for record in csv::Reader::from_path(TRACE)?.deserialize() {
        let (time_ns, event, block, bytes, op): (u64, String, u32, Option<u64>, Option<u32>) = record?;
        let event = match event.as_str() {
            "malloc" => "Malloc",
            "free" => "Free",
            "read" => "Read",
            "write" => "Write",
            other => return Err(format!("{TRACE} is not as recorded: {other}").into()),
        };
        let op = op.map_or("None".into(), |op| format!("First({op})"));
        let bytes = bytes.unwrap_or(0);
        writeln!(
            text,
            "Row {{ time_ns: {time_ns}, bytes: {bytes}, block: {block}, op: Op::{op}, event: Event::{event} }},"
        )?;
    }
    text.push(']');
    Ok(text)
}
