//! throwaway
use std::ops::ControlFlow;
use sublet_core::place::{Options, search};
use sublet_core::{Block, Constraints, Workspace, verify};
pub fn cpu() -> f64 {
    let s = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    s.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
pub fn read(path: &str) -> Vec<Block> {
    let t = std::fs::read_to_string(path).unwrap();
    t.lines()
        .skip(1)
        .map(|l| {
            let f: Vec<&str> = l.split(',').collect();
            Block::new(f[1].parse().unwrap(), f[2].parse().unwrap(), f[3].parse().unwrap())
        })
        .collect()
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    // scratch NAMES cap(ml|1m) seeds base limit_s
    let seeds: u64 = a[3].parse().unwrap();
    let limit: f64 = a[5].parse().unwrap();
    #[cfg(any())]
    for v in a.get(6).map(|s| s.split('+').map(|x| x.parse::<u32>().unwrap()).collect::<Vec<_>>()).unwrap_or_default() {
        search::V.fetch_or(1 << v, std::sync::atomic::Ordering::Relaxed);
    }
    let mut sum = 0.0;
    let mut fails = 0;
    let stop_at: u64 = match a[2].as_str() {
        "ml" => 0,
        "1m" => 1024,
        v => v.parse().unwrap(),
    };
    for name in a[1].split(',').flat_map(|s| {
        if s.len() > 11 {
            vec![s.to_string()]
        } else {
            s.chars().map(|c| format!("/work/shared/data/minimalloc/{c}.1048576.csv")).collect()
        }
    }) {
        let blocks = read(&name);
        let n = blocks.len();
        let (mut times, mut rs, mut nodes, mut peak) = (vec![], vec![], 0, 0);
        let len = search::workspace(n);
        let (mut w, mut i) = (vec![0; len.words], vec![0; len.indices]);
        for seed in 1..=seeds {
            let mut off = vec![0; n];
            let t0 = cpu();
            let mut stopped = false;
            let mut shown = None;
            let s = search::place(
                &blocks,
                &Options { seed, ..Options::default() },
                search::Effort { nodes: u64::MAX, incumbent: false },
                Workspace::new(&mut w, &mut i),
                &mut off,
                &mut |p| {
                    if p.peak != shown && seeds == 1 {
                        shown = p.peak;
                        println!(
                            "   {:.3} s {:?} units {} nodes",
                            cpu() - t0,
                            p.peak.map(|p| p as f64 / p_unit(&blocks)),
                            p.nodes
                        );
                    }
                    if p.peak.is_some_and(|p| p <= stop_at * 1024) {
                        ControlFlow::Break(())
                    } else if cpu() - t0 > limit {
                        stopped = true;
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                },
            )
            .unwrap();
            let t = cpu() - t0;
            times.push(t);
            nodes += s.nodes;
            rs.push(s.runs);
            peak = peak.max(s.summary.peak);
            fails += u32::from(stopped);
            if s.summary.peak > 0 {
                let vl = verify::workspace(n);
                let (mut w, mut i) = (vec![0; vl.words], vec![0; vl.indices]);
                let p = verify::verify(&blocks, &off, &Constraints::NONE, Workspace::new(&mut w, &mut i)).unwrap();
                assert!(p.peak() == s.summary.peak);
            }
        }
        let total: f64 = times.iter().sum();
        let mean = total / seeds as f64;
        sum += mean;
        times.sort_by(f64::total_cmp);
        rs.sort_unstable();
        println!(
            "{name} mean {:.1} ms median {:.1} max {:.1}; nodes {} ns/node {:.0} restarts med {} max {} worst {}",
            mean * 1e3,
            times[times.len() / 2] * 1e3,
            times[times.len() - 1] * 1e3,
            nodes / seeds,
            total * 1e9 / nodes as f64,
            rs[rs.len() / 2],
            rs[rs.len() - 1],
            peak as f64 / p_unit(&blocks)
        );
    }
    println!("sum of means {:.1} ms, failures {fails}", sum * 1e3);
}
fn p_unit(_b: &[Block]) -> f64 {
    1024.0
}
