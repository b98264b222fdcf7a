use super::*;
use crate::trace::{Operator, Recorded};
use std::vec::Vec;
use std::string::String;
pub(crate) fn read(name: &str) -> (Vec<Row>, Vec<Operator>, usize) {
    let dir = std::env::var("SUBLET_DATA").unwrap();
    let text = std::fs::read_to_string(std::format!("{dir}/traces/{name}.csv")).unwrap();
    let mut ids: std::collections::HashMap<String, u32> = Default::default();
    let rows = text.lines().skip(1).map(|l| {
        let f: Vec<&str> = l.split(',').collect();
        let n = ids.len() as u32;
        let block = *ids.entry(f[2].into()).or_insert(n);
        let event = match f[1] { "malloc" => Event::Malloc, "free" => Event::Free, "read" => Event::Read, _ => Event::Write };
        Row { time_ns: f[0].parse().unwrap(), event, block, bytes: f[3].parse().unwrap_or(0), op: f[4].parse().map_or(Op::None, Op::First) }
    }).collect();
    let text = std::fs::read_to_string(std::format!("{dir}/traces/{name}.ops.csv")).unwrap();
    let ops = text.lines().skip(1).map(|l| { let f: Vec<&str> = l.split(',').collect(); Operator { in_place: f[3] == "1", again: f[4] == "1", ..Operator::default() } }).collect();
    (rows, ops, ids.len())
}
#[test]
#[ignore]
fn curve() {
    let names = std::env::var("NAMES").unwrap();
    let pcts = std::env::var("PCTS").unwrap();
    let work: u64 = std::env::var("WORKS").map_or(0, |w| w.parse().unwrap());
    for name in names.split(',') {
        let (rows, operators, blocks) = read(name);
        let recorded = Recorded { rows: &rows, operators: &operators, blocks };
        let len = super::super::graph::workspace(rows.len(), 2 * blocks).and(workspace(rows.len(), 2 * blocks));
        let (mut w, mut i) = (vec![0; len.words], vec![0; len.indices]);
        let mut scratch = Workspace::new(&mut w, &mut i);
        let graph = Graph::new(&recorded, &rows, 2 * blocks, &mut scratch).unwrap();
        let (mut load, mut peak) = (0u64, 0u64);
        for r in &rows { match r.event { Event::Malloc => load += r.bytes, Event::Free => load -= graph.size[r.block], _ => {} } peak = peak.max(load); }
        let end = rows.last().unwrap().time_ns as f64;
        let mut rec = Recomputer::new(&graph, peak >> 14, 1, &mut scratch);
        for p in pcts.split(',') {
            let limit = peak * p.parse::<u64>().unwrap() / 100;
            let begin = std::time::Instant::now();
            let found = rec.plan(limit, rows.len() as u64 * work);
            std::println!("{name} {p} {:?} {:.2}% excess {:.1} work {}M {:.2}s", rec.walk_taste(), found.map_or(9.99, |f| f.recomputed as f64 / end) * 100.0, found.map_or(0, |f| f.excess) as f64 / peak as f64 * 100.0, rec.work() / 1_000_000, begin.elapsed().as_secs_f64());
            if std::env::var("TASTE").is_ok() { for taste in TASTES { rec.walk.weight().fill(f64::to_bits(1.0)); rec.walk.forget(); std::print!("   {taste:?}: "); for _ in 0..6 { let w0 = rec.walk.work; let b = std::time::Instant::now(); let f = rec.walk.walk(taste, limit); rec.walk.remember(); std::print!("{} ", f.map_or("none".into(), |f| std::format!("{:.2}{}({:.0}ms {}k)", f.recomputed as f64 / end * 100.0, if f.excess > 0 { "!" } else { "" }, b.elapsed().as_secs_f64() * 1e3, (rec.walk.work - w0)/1000))); } std::println!(); } }
        }
    }
}
