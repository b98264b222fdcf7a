//! Small networks that are rewritten at random, by swaps, reruns, masks and in-place reuse, run with real bytes.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::fit::Trace;
use crate::support::{by_host, pattern};

use sublet_core::place::{self, Solver};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Op, Row};
use sublet_core::{Block, Error, Workspace};
use sublet_cuda::host::{HostBackend, InUse, Mode, Options, Order};
use sublet_cuda::{Program, Runtime};
use sublet_tests::instance;
use sublet_tests::rewritten::{Network, rewrite};

const CASES: usize = 6000;

/// Where the residencies lie: as the solver says, but those that are reused in place lie where they did.
fn offsets(rows: &[Row], numbers: usize) -> Vec<u64> {
    let residencies = liveness::residencies(rows);
    let (mut blocks, mut names) = (vec![Block::default(); residencies], vec![Residency::default(); residencies]);
    let len = liveness::workspace(numbers);
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    if liveness::lifetimes(rows, numbers, Workspace::new(&mut words, &mut indices), &mut blocks, &mut names).is_err() {
        return vec![0; residencies];
    }
    // Chains of residencies, each directly where and when the one before was: one block for the placement.
    let mut chain: Vec<usize> = (0..residencies).collect();
    for (row, pair) in rows.windows(2).enumerate() {
        let is_handed_over = pair[0].event == Event::Free && pair[1].event == Event::Malloc;
        let at = u32::try_from(row).unwrap();
        let giver = (0..residencies).find(|&s| names[s].block == pair[0].block && blocks[s].end == at);
        let taker = (0..residencies).find(|&s| names[s].block == pair[1].block && blocks[s].start == at + 1);
        if let (true, Some(giver), Some(taker)) = (is_handed_over, giver, taker)
            && blocks[giver].size == blocks[taker].size
        {
            chain[taker] = chain[giver];
        }
    }
    let merged: Vec<usize> = (0..residencies).filter(|&s| chain[s] == s).collect();
    let whole: Vec<Block> = merged
        .iter()
        .map(|&first| {
            let end = (0..residencies).filter(|&s| chain[s] == first).map(|s| blocks[s].end).max().unwrap();
            Block { end, ..blocks[first] }
        })
        .collect();
    let len = place::workspace_of(Solver::BestFit, whole.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let mut placed = vec![0; whole.len()];
    let scratch = Workspace::new(&mut words, &mut indices);
    place::place(Solver::BestFit, &whole, &place::Options::default(), scratch, &mut placed).unwrap();
    (0..residencies).map(|s| placed[merged.iter().position(|&m| m == chain[s]).unwrap()]).collect()
}

/// A program, if the verifier accepts what was made.
fn program(trace: &Trace, rewritten: &[Row]) -> Result<Program, Error> {
    let offsets = offsets(rewritten, 2 * trace.blocks);
    trace.verified(rewritten, &offsets, |schedule| Program::new(&trace.recorded(), schedule, 1).unwrap())
}

fn draw(rng: &mut Xoshiro256PlusPlus) -> (Trace, Vec<Row>) {
    let network = Network::draw(rng);
    let mut rewritten = network.rows.clone();
    for _ in 0..rng.random_range(1..=4) {
        rewrite(&network, &mut rewritten, rng);
    }
    // The times of a rewritten trace mean nothing, but they do not go back.
    let mut now = 0;
    for r in &mut rewritten {
        now = now.max(r.time_ns);
        r.time_ns = now;
    }
    let Network { rows, operators, blocks } = network;
    (Trace { rows, operators, blocks: blocks as usize }, rewritten)
}

/// Whether a block takes over the memory of another between the accesses of an operator.
fn works_in_place(rows: &[Row]) -> bool {
    let handed_over = |i: usize| rows[i].event == Event::Free && rows[i + 1].event == Event::Malloc;
    let op = |r: Option<&Row>| r.map_or(Op::None, |r| r.op);
    let inside = |i: usize| {
        let before = op(rows[..i].iter().rfind(|r| r.event.is_access()));
        before != Op::None && before == op(rows[i..].iter().find(|r| r.event.is_access()))
    };
    (0..rows.len().saturating_sub(1)).any(|i| handed_over(i) && inside(i))
}

#[test]
fn whatever_the_verifier_accepts_computes_what_was_recorded() {
    let mut rng = instance::rng(11);
    let (mut ran, mut again, mut masks, mut copies, mut in_place) = (0, 0, 0, 0, 0);
    for case in 0..CASES {
        let (trace, rewritten) = draw(&mut rng);
        let Ok(program) = program(&trace, &rewritten) else { continue };
        let with = |what: &dyn Fn(&Row) -> bool| usize::from(rewritten.iter().any(what));
        ran += 1;
        again += with(&|r| matches!(r.op, Op::Rerun(_)));
        masks += with(&|r| r.block as usize >= trace.blocks && r.event == Event::Read);
        copies += with(&|r| r.event == Event::SwapIn);
        in_place += usize::from(works_in_place(&rewritten));
        let order = [Order::Time, Order::Last(0), Order::Last(1), Order::Last(2), Order::Random(9)][case % 5];
        let host = HostBackend::new(Options { races: true, ..Options::new(Mode::Ordered(order), 1 << 24) });
        let mut runtime = Runtime::new(host.clone(), program.clone()).unwrap();
        let found = pattern::run(&mut runtime, &trace, 3).unwrap();
        let rows = || rewritten.iter().map(|r| format!("{r:?}")).collect::<Vec<_>>().join("\n");
        assert!(found.is_empty(), "case {case}, {order:?}: {found:#?}\n{}\n{program:#?}", rows());
        assert_eq!(host.races(), [], "case {case}\n{}", rows());
        drop(runtime);
        if case % 16 == 0 {
            let mut runtime = Runtime::new(host.clone(), program).unwrap();
            assert_eq!(by_host::run(&mut runtime, &trace, 2), Ok(vec![]), "case {case}");
        }
        assert_eq!(host.in_use(), InUse::default());
    }
    println!("{ran} ran: {again} with reruns, {masks} with masks, {copies} with copies, {in_place} in place");
    assert!(ran > CASES / 4 && [again, masks, copies, in_place].iter().all(|&n| n > CASES / 50));
}
