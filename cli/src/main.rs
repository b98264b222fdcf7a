//! To be replaced on merge: the least that makes a report from the command line, so that it can be looked at.
mod problem;
mod report;

use std::collections::HashMap;
use std::fs;

use problem::{Problem, Trace};
use sublet_core::trace::{Event, Op, Row, liveness};
use sublet_core::{Block, Constraints, Workspace, verify};

fn main() -> std::io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [command, input, flag, file] = &args[..] else { panic!("sublet plan INPUT --report FILE") };
    assert!(command == "plan" && flag == "--report");
    let text = fs::read_to_string(input)?;
    let name = input.rsplit('/').next().unwrap_or_default().to_owned();
    let problem = if text.starts_with("time_ns") { trace(name, &text, input) } else { instance(name, &text) };
    let offsets = first_fit(&problem.blocks);
    let len = verify::workspace(offsets.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let ws = Workspace::new(&mut words, &mut indices);
    let plan = verify::verify(&problem.blocks, &offsets, &Constraints::NONE, ws).unwrap();
    let picture = report::Picture { problem: &problem, plan: &plan, solver: "first fit by area", rows: vec![] };
    let mut out = std::io::BufWriter::new(fs::File::create(file)?);
    if file.ends_with(".svg") { report::svg(&picture, &mut out) } else { report::html(&picture, &mut out) }
}

fn instance(name: String, text: &str) -> Problem {
    let (mut ids, mut blocks) = (vec![], vec![]);
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        ids.push(f[0].to_owned());
        blocks.push(Block::new(f[1].parse().unwrap(), f[2].parse().unwrap(), f[3].parse().unwrap()));
    }
    Problem { name, blocks, ids, trace: None }
}

fn trace(name: String, text: &str, input: &str) -> Problem {
    let (mut rows, mut names, mut known) = (vec![], vec![], HashMap::new());
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split(',').collect();
        let block = *known.entry(f[2]).or_insert_with(|| {
            names.push(f[2].to_owned());
            names.len() as u32 - 1
        });
        let op = match f[4].strip_suffix('\'') {
            Some(k) => Op::Again(k.parse().unwrap()),
            None => f[4].parse().map_or(Op::None, Op::First),
        };
        let event = match f[1] {
            "malloc" => Event::Malloc,
            "free" => Event::Free,
            "read" => Event::Read,
            "write" => Event::Write,
            "swap_out" => Event::SwapOut,
            _ => Event::SwapIn,
        };
        rows.push(Row { time_ns: f[0].parse().unwrap(), bytes: f[3].parse().unwrap_or(0), block, op, event });
    }
    let n = liveness::stays(&rows);
    let (mut blocks, mut stays) = (vec![Block::default(); n], vec![liveness::Stay::default(); n]);
    let len = liveness::workspace(names.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let ws = Workspace::new(&mut words, &mut indices);
    liveness::lifetimes(&rows, names.len(), ws, &mut blocks, &mut stays).unwrap();
    let ids = stays
        .iter()
        .map(|s| match s.ordinal {
            0 => names[s.block as usize].clone(),
            k => format!("{}#{k}", names[s.block as usize]),
        })
        .collect();
    let op_names = fs::read_to_string(input.replace(".csv", ".ops.csv"))
        .map(|t| t.lines().skip(1).map(|l| l.split(',').nth(1).unwrap().to_owned()).collect())
        .unwrap_or_default();
    Problem { name, blocks, ids, trace: Some(Trace { rows, names, stays, op_names }) }
}

fn first_fit(blocks: &[Block]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse((blocks[i].size as u128 * u128::from(blocks[i].width()), i)));
    let mut offsets = vec![0; blocks.len()];
    let mut placed: Vec<usize> = vec![];
    for i in order {
        let mut at = 0;
        // `placed` is kept in the order of the offsets.
        for &j in &placed {
            if blocks[i].collides(&blocks[j]) && offsets[j] < at + blocks[i].size && at < offsets[j] + blocks[j].size {
                at = offsets[j] + blocks[j].size;
            }
        }
        offsets[i] = at;
        let p = placed.partition_point(|&j| offsets[j] <= at);
        placed.insert(p, i);
    }
    offsets
}
