//! The command line of sublet. Throwaway, like `read`: tries `compare` and `stats` until the real one is here.
mod compare;
mod load_chart;
mod placers;
mod pools;
mod problem;
mod scratch;
mod stats;
mod table;
mod unit;

use std::error::Error;

use problem::{Problem, Trace};
use sublet_core::trace::{Event, Op, Row, liveness};
use sublet_core::{Block, Workspace};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let problem = read(&args[2])?;
    let json = args.iter().any(|a| a == "--json");
    let mut out = std::io::stdout().lock();
    match (args[1].as_str(), json) {
        ("stats", true) => stats::Stats::of(&problem)?.write_json(&mut out)?,
        ("stats", false) => stats::Stats::of(&problem)?.write_page(&mut out)?,
        (_, true) => compare::Comparison::of(&problem)?.write_json(&mut out)?,
        (_, false) => compare::Comparison::of(&problem)?.write_table(&mut out)?,
    }
    Ok(())
}

fn read(path: &str) -> Result<Problem, Box<dyn Error>> {
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().ok_or("empty")?.split(',').collect();
    let name = path.to_string();
    let mut p = Problem { name, ..Problem::default() };
    if header[0] != "time_ns" {
        let col = |n: &str| header.iter().position(|h| *h == n).ok_or("column");
        let (id, lower, size) = (col("id")?, col("lower")?, col("size")?);
        let upper = col("upper").or_else(|_| col("end"))?;
        let inclusive = u32::from(header[upper] == "end");
        for line in lines {
            let f: Vec<&str> = line.split(',').collect();
            p.blocks.push(Block::new(f[lower].parse()?, f[upper].parse::<u32>()? + inclusive, f[size].parse()?));
            p.ids.push(f[id].into());
        }
        return Ok(p);
    }
    let mut t = Trace::default();
    let mut numbers = std::collections::HashMap::new();
    for line in lines {
        let f: Vec<&str> = line.split(',').collect();
        let block = *numbers.entry(f[2].to_string()).or_insert_with(|| {
            t.names.push(f[2].into());
            u32::try_from(t.names.len() - 1).unwrap()
        });
        let event = match f[1] {
            "malloc" => Event::Malloc,
            "free" => Event::Free,
            "read" => Event::Read,
            "write" => Event::Write,
            "swap_out" => Event::SwapOut,
            _ => Event::SwapIn,
        };
        let op = match f[4].strip_suffix('\'') {
            Some(k) => Op::Again(k.parse()?),
            None if f[4].is_empty() => Op::None,
            None => Op::First(f[4].parse()?),
        };
        t.rows.push(Row { time_ns: f[0].parse()?, bytes: f[3].parse().unwrap_or(0), block, op, event });
    }
    let n = liveness::stays(&t.rows);
    p.blocks = vec![Block::default(); n];
    t.stays = vec![liveness::Stay::default(); n];
    let w = liveness::workspace(t.names.len());
    let (mut a, mut b) = (vec![0; w.words], vec![0; w.indices]);
    liveness::lifetimes(&t.rows, t.names.len(), Workspace::new(&mut a, &mut b), &mut p.blocks, &mut t.stays)?;
    for s in &t.stays {
        let name = &t.names[s.block as usize];
        p.ids.push(if s.ordinal == 0 { name.clone() } else { format!("{name}#{}", s.ordinal) });
    }
    if let Ok(ops) = std::fs::read_to_string(path.replace(".csv", ".ops.csv")) {
        t.op_names = ops.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().into()).collect();
    }
    p.trace = Some(t);
    Ok(p)
}
