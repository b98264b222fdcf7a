//! auto experiment
use super::skyline::{Rule, Skyline};
use super::{Options, Summary, finish, interval, prepare};
use crate::place::interval::Sweep;
use crate::table::{Table, count};
use crate::{Block, Error, Workspace, WorkspaceLen};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

/// ws
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    Skyline::workspace(n, n).and(interval::workspace(n)).and(WorkspaceLen{words:n,indices:0})
}

/// place
pub fn place(blocks: &[Block], options: &Options, mut scratch: Workspace<'_>, offsets: &mut [u64], report: &mut dyn FnMut(u32,&str,Option<u64>)) -> Result<Summary, Error> {
    let lower_bound = prepare(blocks, options, workspace(blocks.len()), &mut scratch, offsets)?;
    let n = count(blocks);
    let mut scratch = scratch.reborrow();
    let mut offsets = Table::new(offsets);
    let mut trial = scratch.words(blocks.len());
    let mut skyline = {
        let sw = scratch.indices(3*blocks.len());
        let sweep = Sweep::new(blocks, Workspace::new(&mut [], sw.into_slice()))?;
        Skyline::new(blocks, options.constraints.alignment, blocks.len(), &mut scratch, |low, high| sweep.clique_ranges(low, high))
    };
    let mut rng = SplitMix64::seed_from_u64(options.seed);
    let mut best = u64::MAX;
    let recipes: [(&str,Rule,f64,f64);8] = [("busy area",Rule::BusiestFirst,1.0,1.0),("busy size",Rule::BusiestFirst,0.0,1.0),("busy long",Rule::BusiestFirst,1.0,0.001),("busy size+",Rule::BusiestFirst,0.3,1.0),
      ("longest",Rule::Rank,1.0,0.001),("area",Rule::Rank,1.0,1.0),("size",Rule::Rank,0.0,1.0),("long area",Rule::Rank,1.0,0.3)];
    for round in 0..30u32 {
        let (name,rule,a,b) = if (round as usize) < recipes.len() { recipes[round as usize] } else {
            let f = |x:u64| (x>>11) as f64 / (1u64<<53) as f64;
            ("rnd", Rule::BusiestFirst, f(rng.next_u64()), f(rng.next_u64())) };
        skyline.rank_by_index();
        let noise = if name=="rnd" {0.1} else {0.0};
        skyline.score(|w,s| { let f = |x:u64| (x>>11) as f64 / (1u64<<53) as f64; let z = (f(rng.next_u64())-0.5)*2.0*noise*4.0; a*libm::log2(w as f64)+b*libm::log2(s as f64)+z });
        let limit = if report as *const _ as *const u8 as usize == 0 {best} else {u64::MAX};
        let limit = if name=="rnd" {best} else {limit};
        let peak = skyline.build(rule, limit, &mut trial);
        report(round,name,peak);
        if let Some(p) = peak { if p<best {best=p; for i in 0..n { offsets[i]=trial[i]; }} }
        if best==lower_bound {break;}
    }
    finish(Summary { peak: best, lower_bound }, options)
}

/// exp
pub fn greedy(blocks: &[Block], key: &dyn Fn(&Block)->[u64;3], fit: super::Fit) -> u64 {
    extern crate std;
    use std::vec; use std::vec::Vec;
    let n=blocks.len();
    let len = super::gap::Gaps::workspace(n);
    let mut w=vec![0u64;len.words]; let mut x=vec![0u32;len.indices+3*n];
    let mut ws=Workspace::new(&mut w,&mut x);
    let sw = ws.indices(3*n);
    let sweep = Sweep::new(blocks, Workspace::new(&mut [], sw.into_slice())).unwrap();
    let mut g=super::gap::Gaps::new(blocks,1,&mut ws,|l,h|sweep.clique_ranges(l,h));
    let mut o:Vec<u32>=(0..n as u32).collect();
    o.sort_by_key(|&i|key(&blocks[i as usize]));
    let mut off=vec![0;n];
    g.build(&o,fit,u64::MAX,&mut Table::new(&mut off)).unwrap()
}
