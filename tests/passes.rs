//! The passes that rewrite traces (masks, in-place reuse, and the published methods of Chen et al. and Layrub), each
//! alone and in sequence. The judge accepts what they write on every training trace, and on small traces masks and
//! in-place reuse write what a naive version of their rules writes.

#![expect(clippy::cast_precision_loss, reason = "ratios that are compared and read")]

use crate::judge;

use rand::RngExt;

use serde_json::Value;
use sublet_baselines::chen::{self, Cuts, Mirrored, Plan};
use sublet_baselines::layrub;
use sublet_baselines::zhang::{self, Policy, Swapped};
use sublet_core::Buffer;
use sublet_core::place::Solver;
use sublet_core::rewrite::fit::Options;
use sublet_core::rewrite::{in_place, mask};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Kind, Op, Operator, Recorded, Row};
use sublet_core::{Error, Workspace, WorkspaceLen};
use sublet_tests::recording::{Proved, Recording, max_load, percent, prove};
use sublet_tests::rewritten::{Network, rewrite};
use sublet_tests::{instance, passes};

const DEVICE: Device = Device::symmetric(12e9);

fn masks(recorded: &Recorded<'_>, rows: &[Row]) -> Vec<Row> {
    passes::masks(recorded, rows).unwrap_or_else(|e| panic!("{e}"))
}

fn over_inputs(recorded: &Recorded<'_>, rows: &[Row]) -> Vec<Row> {
    passes::over_inputs(recorded, rows).unwrap_or_else(|e| panic!("{e}"))
}

fn mirrored(recorded: &Recorded<'_>, plan: Plan, depth: u32) -> (Vec<Row>, Mirrored) {
    chen::rewrite(recorded, plan, depth).unwrap_or_else(|e| panic!("{e}"))
}

fn by_layers(recorded: &Recorded<'_>, least_bytes: u64) -> (Vec<Row>, layrub::Bytes) {
    layrub::reuse(recorded, &DEVICE, least_bytes).unwrap_or_else(|e| panic!("{e}"))
}

/// Of the plans that the search of Chen et al. makes, one for each budget, the one with the lowest max load.
fn searched(recorded: &Recorded<'_>) -> (Vec<Row>, Mirrored) {
    chen::search(recorded, |rows| Ok(max_load(rows))).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn masks_and_work_in_place_are_accepted_on_every_training_trace_and_lower_the_peak() {
    let mut cases: Vec<(String, Value, u64)> = Vec::new();
    println!("| trace | peak load | masks | in place | both | both: footprint / load |\n| - | - | - | - | - | - |");
    for network in Recording::training() {
        let recorded = network.recorded();
        let original = network.max_load();
        let masked = masks(&recorded, recorded.rows);
        let both = over_inputs(&recorded, &masked);
        let mut shown = Vec::new();
        for rows in [&masked, &over_inputs(&recorded, recorded.rows), &both] {
            let proved = prove(&recorded, rows, Solver::Multistart, &DEVICE, false).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((proved.run.overhead(), proved.run.peak_load), (0.0, max_load(rows)), "{}", network.name);
            assert!(proved.run.peak_load <= original, "{}", network.name);
            shown.push(proved.clone());
            cases.push((network.name.clone(), judge::case(&recorded, rows, &proved.offsets, false), proved.footprint));
        }
        assert!(masks(&recorded, &masked) == masked, "{}: something is left to mask", network.name);
        assert!(over_inputs(&recorded, &both) == both, "{}: something is left in place", network.name);
        let percent = |bytes: u64| format!("{:.2} %", 100.0 * (1.0 - bytes as f64 / original as f64));
        let [masked, in_place, both] = &shown[..] else { panic!() };
        println!(
            "| {} | {original} | {} | {} | {} | {:.4} |",
            network.name,
            percent(masked.run.peak_load),
            percent(in_place.run.peak_load),
            percent(both.run.peak_load),
            both.footprint as f64 / both.run.peak_load as f64,
        );
        assert!(both.run.peak_load <= masked.run.peak_load.min(in_place.run.peak_load), "{}", network.name);
        assert!(
            both.footprint as f64 <= 1.02 * both.run.peak_load as f64,
            "{}: chains of residencies are placed at {} over {}",
            network.name,
            both.footprint,
            both.run.peak_load
        );
    }
    let questions: Vec<Value> = cases.iter().map(|(_, case, _)| case.clone()).collect();
    let Some(verdicts) = judge::ask("no rewritten training trace is judged", &questions) else { return };
    for ((name, _, footprint), verdict) in cases.iter().zip(verdicts) {
        let verdict = verdict.unwrap_or_else(|| panic!("{name}: the judge refuses"));
        assert_eq!((&verdict["footprint"], &verdict["overhead"]), (&(*footprint).into(), &0.0.into()), "{name}");
    }
}

const CASES: usize = 20_000;

/// The rows as text, for messages.
fn shown(rows: &[Row]) -> String {
    rows.iter().map(|r| format!("{:?} {} {:?}", r.event, r.block, r.op)).collect::<Vec<_>>().join("\n")
}

/// Small networks with rewritten traces that the verifier accepts: up to two random swaps, recomputations, masks or
/// in-place reuses each.
fn small() -> impl Iterator<Item = (Network, Vec<Row>)> {
    let mut rng = instance::rng(7);
    let mut draw = move || {
        let network = Network::draw(&mut rng);
        let mut rows = network.rows.clone();
        for _ in 0..rng.random_range(0..=2) {
            rewrite(&network, &mut rows, &mut rng);
        }
        // The times of a rewritten trace are not used, but must not decrease.
        let mut now = 0;
        for r in &mut rows {
            now = now.max(r.time_ns);
            r.time_ns = now;
        }
        (network, rows)
    };
    let accepted = |(network, rows): &(Network, Vec<Row>)| judged(network, rows).is_ok();
    (0..CASES).map(move |_| draw()).filter(accepted)
}

fn judged(network: &Network, rows: &[Row]) -> Result<Proved, Error> {
    prove(&network.recorded(), rows, Solver::BestFit, &DEVICE, false)
}

/// The runs of operators in a trace: for each, the row of its first access, the row of its last, and the operator.
fn operators(rows: &[Row]) -> Vec<(usize, usize, Op)> {
    let mut found: Vec<(usize, usize, Op)> = Vec::new();
    for (i, r) in rows.iter().enumerate().filter(|(_, r)| r.event.is_access()) {
        match found.last_mut() {
            Some((_, last, op)) if *op == r.op && r.op != Op::None => *last = i,
            _ => found.push((i, i, r.op)),
        }
    }
    found
}

fn is_persistent(network: &Network, block: u32) -> bool {
    let of_block = |event| network.rows.iter().find(|r| r.event == event && r.block == block);
    of_block(Event::Malloc).is_some_and(|r| r.time_ns == 0) && of_block(Event::Free).is_none()
}

/// The rows from row `malloc` up to the free of the same block, which is not one of them, or to the end.
fn residency(rows: &[Row], malloc: usize) -> std::ops::Range<usize> {
    let free = rows[malloc..].iter().position(|r| r.event == Event::Free && r.block == rows[malloc].block);
    malloc..free.map_or(rows.len(), |n| malloc + n)
}

/// The rule of masks, written naively: looks at one residency after the other, and goes through all rows each time.
fn naive_masks(network: &Network, rows: &[Row]) -> Vec<Row> {
    let recorded = network.recorded();
    let kind = |op| recorded.operator(op).kind;
    let operators = operators(rows);
    let end_of = |row: usize| operators.iter().find(|o| o.0 <= row && row <= o.1).map(|o| o.1);
    let last_again = operators.iter().rfind(|o| matches!(o.2, Op::First(_)) && recorded.operator(o.2).rerun);
    let first_gradient = operators.iter().find(|o| kind(o.2) == Kind::ReluBackward).map_or(rows.len(), |o| o.0);
    let turn = last_again.map_or(0, |o| o.1 + 1).min(first_gradient);
    let mut after: Vec<[Vec<Row>; 2]> = vec![Default::default(); rows.len()];
    let mut new = rows.to_vec();
    for malloc in (0..rows.len()).filter(|&i| rows[i].event == Event::Malloc && rows[i].block < network.blocks) {
        let Row { block, bytes, .. } = rows[malloc];
        let mask = network.blocks + block;
        let residency = residency(rows, malloc);
        let uses = || residency.clone().filter(|&i| rows[i].block == block && i != malloc);
        let freed_inside = operators.iter().any(|o| o.0 < residency.end && residency.end < o.1);
        if is_persistent(network, block) || rows.iter().any(|r| r.block == mask) || freed_inside {
            continue;
        }
        let by_gradient = |i: usize| rows[i].event == Event::Read && kind(rows[i].op) == Kind::ReluBackward;
        let Some(needed) = uses().filter(|&i| !by_gradient(i)).map(|i| end_of(i).unwrap_or(i)).max() else { continue };
        let gradients: Vec<usize> = uses().filter(|&i| i > needed && by_gradient(i)).collect();
        let maker = uses().filter(|&i| rows[i].event.is_access() && kind(rows[i].op) == Kind::Relu).filter_map(end_of);
        let Some(maker) = maker.max() else { continue };
        let changed = uses().any(|i| i > maker && matches!(rows[i].event, Event::Write | Event::SwapIn));
        let of_block = network.rows.iter().filter(|r| r.event.is_access() && r.block == block);
        let relus = of_block.map(|r| recorded.operator(r.op)).filter(|o| o.kind == Kind::Relu);
        let bits = bytes.div_ceil(relus.map(|o| 8 * u64::from(o.element.min(4))).min().unwrap());
        let saved = (bytes - bits) * (residency.end - needed - 1) as u64;
        let taken = bits * (needed - maker) as u64;
        if changed || gradients.is_empty() || needed >= turn || saved <= taken {
            continue;
        }
        let (own, time_ns) = (rows[maker].op, rows[maker].time_ns);
        let row = |event, bytes, block, op, time_ns| Row { time_ns, bytes, block, op, event };
        after[maker][0].push(row(Event::Malloc, bits, mask, Op::None, time_ns));
        after[maker][0].push(row(Event::Write, 0, mask, own, time_ns));
        after[needed][1].push(row(Event::Free, 0, block, Op::None, rows[needed].time_ns));
        for i in gradients.into_iter().chain(Some(residency.end).filter(|&end| end < rows.len())) {
            new[i].block = mask;
        }
    }
    // Rows that are inserted behind the same operator come in the order of its accesses.
    let order = |row: usize, block: u32| {
        let first = operators.iter().find(|o| o.1 == row).map_or(row, |o| o.0);
        rows[first..].iter().position(|r| r.block == block % network.blocks)
    };
    for (i, [masks, frees]) in after.iter_mut().enumerate() {
        masks.sort_by_key(|r| order(i, r.block));
        frees.sort_by_key(|r| order(i, r.block));
    }
    new.into_iter().zip(after).flat_map(|(r, [masks, frees])| [vec![r], masks, frees].concat()).collect()
}

/// The rule of in-place reuse, written naively: looks at one operator after the other, and goes through all rows each
/// time.
fn naive_in_place(network: &Network, rows: &[Row]) -> Vec<Row> {
    let recorded = network.recorded();
    let size = |b: u32| network.rows.iter().find(|r| r.event == Event::Malloc && r.block == b).map(|r| r.bytes);
    let mut new: Vec<Vec<Row>> = rows.iter().map(|&r| vec![r]).collect();
    for &(first, last, op) in operators(rows).iter().filter(|o| recorded.operator(o.2).in_place) {
        let (Op::First(k) | Op::Rerun(k)) = op else { continue };
        let is_own = |b: u32| {
            let (begin, end) =
                operators(&network.rows).iter().find(|o| o.2 == Op::First(k)).map(|o| (o.0, o.1)).unwrap();
            network.rows[begin..end].iter().any(|r| r.block == b && !r.event.is_access())
        };
        let first_of = |event| {
            let mut of = network.rows.iter().filter(|r| r.op == Op::First(k) && r.event == event && !is_own(r.block));
            of.next().map(|r| r.block)
        };
        let (Some(x), Some(y)) = (first_of(Event::Read), first_of(Event::Write)) else { continue };
        let Some(reads) = (first..=last).rfind(|&i| rows[i].event == Event::Read) else { continue };
        let malloc_of = |b: u32| (0..first).rfind(|&i| rows[i].event == Event::Malloc && rows[i].block == b);
        let (Some(from), Some(to)) = (malloc_of(x), malloc_of(y)) else { continue };
        let (giver, taker) = (residency(rows, from), residency(rows, to));
        let mask = network.blocks + x;
        let needed = giver
            .clone()
            .any(|i| i > reads && (rows[i].block == x || rows[i].block == mask && rows[i].event == Event::Write));
        let freed_inside = giver.end < last;
        let begun = (to + 1..=reads).any(|i| rows[i].block == y);
        let reads_it = (first..=reads).any(|i| rows[i].block == x);
        let alive = giver.contains(&first) && taker.contains(&first);
        let persistent = is_persistent(network, x) || is_persistent(network, y);
        if x == y || size(x) != size(y) || persistent || needed || freed_inside || begun || !alive || !reads_it {
            continue;
        }
        if giver.end < rows.len() {
            new[giver.end].retain(|r| (r.event, r.block) != (Event::Free, x));
        }
        new[to].retain(|r| (r.event, r.block) != (Event::Malloc, y));
        let time_ns = rows[reads].time_ns;
        new[reads].push(Row { time_ns, bytes: 0, block: x, op: Op::None, event: Event::Free });
        new[reads].push(Row { time_ns, bytes: size(y).unwrap(), block: y, op, event: Event::Malloc });
    }
    new.concat()
}

#[test]
fn on_small_traces_the_passes_do_what_their_rules_say_and_the_verifier_accepts_it() {
    let (mut masked, mut in_place, mut again) = (0, 0, 0);
    for (case, (mut network, rows)) in small().enumerate() {
        // Masks that exist already are made for elements of 4 bytes: only a trace without masks gets other element
        // sizes.
        if rows.iter().all(|r| r.block < network.blocks) {
            for (k, operator) in network.operators.iter_mut().enumerate() {
                operator.element = [1, 2, 4, 8][(case + k) % 4];
            }
        }
        let recorded = network.recorded();
        let found = masks(&recorded, &rows);
        let naive = naive_masks(&network, &rows);
        assert!(found == naive, "{}\nmasked are\n{}\nnot\n{}", shown(&rows), shown(&found), shown(&naive));
        judged(&network, &found).unwrap_or_else(|e| panic!("{e}: {}\nmasked are\n{}", shown(&rows), shown(&found)));
        for before in [&rows, &found] {
            let found = over_inputs(&recorded, before);
            let naive = naive_in_place(&network, before);
            assert!(found == naive, "{}\nin place are\n{}\nnot\n{}", shown(before), shown(&found), shown(&naive));
            judged(&network, &found)
                .unwrap_or_else(|e| panic!("{e}: {}\nin place are\n{}", shown(before), shown(&found)));
            assert!(max_load(&found) <= max_load(before), "{}", shown(before));
            in_place += usize::from(found != *before);
        }
        masked += usize::from(found != rows);
        again += usize::from(rows.iter().any(|r| matches!(r.op, Op::Rerun(_))));
    }
    let least = CASES / 200;
    assert!(masked > least && in_place > least && again > least, "{masked} masked, {in_place} in place, {again} again");
}

#[test]
fn segments_are_accepted_on_every_training_trace() {
    let mut cases: Vec<(String, Value, f64)> = Vec::new();
    println!("| trace | plan | cuts | load | footprint | added time |\n| - | - | - | - | - | - |");
    for network in Recording::training() {
        let recorded = network.recorded();
        let original = network.max_load();
        let plans = [
            ("segments", searched(&recorded)),
            ("cheap", mirrored(&recorded, Plan::Cheap, 1)),
            ("recursive", mirrored(&recorded, Plan::Recursive(1, Cuts::Narrow), 12)),
        ];
        for (plan, (rows, found)) in plans {
            let proved = prove(&recorded, &rows, Solver::Multistart, &DEVICE, false);
            let proved = proved.unwrap_or_else(|e| panic!("{} {plan}: {e}", network.name));
            println!(
                "| {} | {plan} | {} | {:.1} % | {:.1} % | {:.1} % |",
                network.name,
                found.cuts,
                percent(proved.run.peak_load, original),
                percent(proved.footprint, original),
                100.0 * proved.run.overhead()
            );
            cases.push((
                network.name.clone(),
                judge::case(&recorded, &rows, &proved.offsets, false),
                proved.run.time_ns,
            ));
        }
    }
    let questions: Vec<Value> = cases.iter().map(|(_, case, _)| case.clone()).collect();
    let Some(verdicts) = judge::ask("no recomputation is judged", &questions) else { return };
    for ((name, _, time), verdict) in cases.iter().zip(verdicts) {
        let verdict = verdict.unwrap_or_else(|| panic!("{name}: the judge refuses"));
        let judged = verdict["time_ns"].as_f64().unwrap();
        assert!((judged - time).abs() <= 1.0 + 1e-5 * time, "{name}: {judged} {time}");
    }
}

/// A chain of `n` equal operators, then their gradients, each of which reads the value of an operator: n blocks are
/// alive at the end of the forward pass. Returns the rows, the operators, and how many blocks there are.
fn chain(n: u32) -> (Vec<Row>, Vec<Operator>, usize) {
    let mut rows = Vec::new();
    let mut now = 0;
    let mut operator = |rows: &mut Vec<Row>, op: u32, reads: &[u32], made: u32, freed: &[u32]| {
        let row =
            |time_ns, event, block, op| Row { time_ns, bytes: u64::from(event == Event::Malloc), block, op, event };
        now += 1000;
        rows.push(row(now, Event::Malloc, made, Op::First(op)));
        rows.extend(reads.iter().map(|&b| row(now, Event::Read, b, Op::First(op))));
        rows.push(row(now + 1000, Event::Write, made, Op::First(op)));
        rows.extend(freed.iter().map(|&b| row(now + 1000, Event::Free, b, Op::None)));
    };
    operator(&mut rows, 0, &[], 0, &[]);
    for i in 1..n {
        operator(&mut rows, i, &[i - 1], i, &[]);
    }
    // The gradient of the last operator reads no other gradient.
    operator(&mut rows, n, &[n - 1], n, &[n - 1]);
    for i in 1..n {
        operator(&mut rows, n + i, &[n + i - 1, n - 1 - i], n + i, &[n + i - 1, n - 1 - i]);
    }
    let operators = (0..2 * n).map(|k| Operator { rerun: k < n, ..Operator::default() }).collect();
    (rows, operators, 2 * n as usize)
}

#[test]
fn a_chain_needs_the_square_root_of_its_length_and_by_recursion_its_logarithm() {
    for power in 3..10u32 {
        let n = 1 << power;
        let (rows, operators, blocks) = chain(n);
        let recorded = Recorded { rows: &rows, operators: &operators, blocks };
        assert_eq!(max_load(&rows), u64::from(n) + 1);
        let again =
            |rows: &[Row]| rows.iter().filter(|r| r.event == Event::Write && matches!(r.op, Op::Rerun(_))).count();
        let (by_segments, _) = searched(&recorded);
        let root = f64::from(n).sqrt();
        assert!(max_load(&by_segments) as f64 <= 2.0 * root + 3.0, "{n}: {}", max_load(&by_segments));
        assert!(again(&by_segments) < n as usize, "{n}");
        for at_once in [1, 2, 3] {
            let (recursive, _) = mirrored(&recorded, Plan::Recursive(at_once, Cuts::One), power + 1);
            // The bound of the paper, g(n) = k · log_{k+1}(n), and three blocks that are in use.
            let levels = (f64::from(n).ln() / f64::from(at_once + 1).ln()).ceil();
            let most = f64::from(at_once) * levels + 3.0;
            assert!(max_load(&recursive) as f64 <= most, "{n}, {at_once}: {} > {most}", max_load(&recursive));
            assert!(again(&recursive) as f64 <= f64::from(n) * levels, "{n}, {at_once}: {}", again(&recursive));
            prove(&recorded, &recursive, Solver::BestFit, &DEVICE, false)
                .unwrap_or_else(|e| panic!("{n}, {at_once}: {e}"));
        }
    }
}

#[test]
fn what_may_not_run_again_keeps_its_results_and_the_rest_is_dropped() {
    let (rows, mut operators, blocks) = chain(32);
    for random in [7, 8, 20] {
        operators[random].rerun = false;
    }
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    for plan in [Plan::Budget(4, Cuts::One), Plan::Recursive(1, Cuts::One)] {
        let (rewritten, found) = mirrored(&recorded, plan, 6);
        prove(&recorded, &rewritten, Solver::BestFit, &DEVICE, false).unwrap_or_else(|e| panic!("{plan:?}: {e}"));
        assert!(found.cuts > 0 && max_load(&rewritten) < 20, "{plan:?}");
        let again = |k| rewritten.iter().any(|r| r.op == Op::Rerun(k));
        assert!(![7, 8, 20].into_iter().any(again) && again(10) && again(21), "{plan:?}");
    }
}

#[test]
#[ignore = "long: ./ci.sh test runs it"]
fn on_small_traces_segments_are_accepted_by_the_verifier_whatever_the_counts() {
    let mut rng = instance::rng(11);
    let (mut dropped, mut left) = (0, 0);
    for _ in 0..3 * CASES {
        let network = Network::draw(&mut rng);
        let recorded = network.recorded();
        if judged(&network, &network.rows).is_err() {
            continue;
        }
        let cuts = if rng.random_ratio(1, 2) { Cuts::One } else { Cuts::Narrow };
        let plan = match rng.random_range(0..3) {
            0 => Plan::Budget(rng.random_range(0..20_000), cuts),
            1 => Plan::Recursive(rng.random_range(1..3), cuts),
            _ => Plan::Cheap,
        };
        let (rows, _) = mirrored(&recorded, plan, rng.random_range(1..5));
        judged(&network, &rows)
            .unwrap_or_else(|e| panic!("{e}: {plan:?} of\n{}\nis\n{}", shown(&network.rows), shown(&rows)));
        let both = over_inputs(&recorded, &masks(&recorded, &rows));
        judged(&network, &both).unwrap_or_else(|e| panic!("{e}: of\n{}\ncomes\n{}", shown(&rows), shown(&both)));
        dropped += usize::from(rows.iter().any(|r| matches!(r.op, Op::Rerun(_))));
        let (rows, bytes) = by_layers(&recorded, 1);
        let accepted = prove(&recorded, &rows, Solver::BestFit, &DEVICE, true);
        accepted.unwrap_or_else(|e| panic!("{e}: layers of\n{}\nare\n{}", shown(&network.rows), shown(&rows)));
        let layrub::Bytes { separate, intra, inter, hybrid } = bytes;
        assert!(hybrid <= inter && intra <= separate, "{bytes:?} of\n{}", shown(&network.rows));
        left += usize::from(rows.iter().any(|r| r.event == Event::SwapOut));
    }
    let least = CASES / 200;
    assert!(dropped > least && left > least, "{dropped} dropped, {left} left");
}

#[test]
fn layers_are_accepted_on_every_training_trace() {
    let mut cases: Vec<(String, Value)> = Vec::new();
    println!("| trace | separate | intra | inter | hybrid | added time |\n| - | - | - | - | - | - |");
    for network in Recording::training() {
        let recorded = network.recorded();
        let (rows, bytes) = by_layers(&recorded, 1 << 20);
        let proved = prove(&recorded, &rows, Solver::BestFit, &DEVICE, true);
        let proved = proved.unwrap_or_else(|e| panic!("{}: {e}", network.name));
        let layrub::Bytes { separate, intra, inter, hybrid } = bytes;
        println!(
            "| {} | {separate} | {intra} | {inter} | {hybrid} | {:.1} % |",
            network.name,
            100.0 * proved.run.overhead()
        );
        assert!(hybrid <= inter && intra <= separate && 2 * intra >= separate, "{}: {bytes:?}", network.name);
        assert!(inter <= proved.run.peak_load, "{}: {bytes:?}", network.name);
        cases.push((network.name.clone(), judge::case(&recorded, &rows, &proved.offsets, true)));
    }
    let questions: Vec<Value> = cases.iter().map(|(_, case)| case.clone()).collect();
    let Some(verdicts) = judge::ask("no rows of layers are judged", &questions) else { return };
    for ((name, _), verdict) in cases.iter().zip(verdicts) {
        assert!(verdict.is_some(), "{name}: the judge refuses");
    }
}

/// What Layrub's rule reserves for a layer with a parameter, a second layer, and a loss. `parameter` says whether the
/// second layer has a parameter too.
fn two_layers(parameter: bool) -> layrub::Bytes {
    let row = |time_ns, event, block, op| Row { time_ns, bytes: 0, block, op, event };
    let sizes = [8u64, 8, 100, 64, 64, 4, 64, 64, 8, 8];
    // Parameters, the input, activations, gradients.
    let [w, v, x] = [0, 1, 2];
    let [first, second, loss] = [3, 4, 5];
    let [of_second, of_first, of_w, of_v] = [6, 7, 8, 9];
    let mut rows = vec![row(0, Event::Malloc, w, Op::None), row(0, Event::Malloc, v, Op::None)];
    rows.extend([row(1, Event::Malloc, x, Op::None), row(1, Event::Write, x, Op::None)]);
    let if_any = |more: &[u32]| if parameter { more.to_vec() } else { Vec::new() };
    let operators: [(Vec<u32>, Vec<u32>, Vec<u32>); 7] = [
        (vec![x, w], vec![first], vec![]),
        ([vec![first], if_any(&[v])].concat(), vec![second], vec![]),
        (vec![second], vec![loss], vec![second]),
        (vec![loss], vec![of_second], vec![loss]),
        (
            [vec![of_second, first], if_any(&[v])].concat(),
            [if_any(&[of_v]), vec![of_first]].concat(),
            vec![of_second, first],
        ),
        (vec![of_first, x, w], vec![of_w], vec![of_first, x]),
        (
            [vec![w, of_w], if_any(&[v, of_v])].concat(),
            [vec![w], if_any(&[v])].concat(),
            [vec![of_w], if_any(&[of_v])].concat(),
        ),
    ];
    for (k, (reads, writes, frees)) in (0u32..).zip(&operators) {
        let (op, time) = (Op::First(k), 1 + u64::from(k));
        rows.extend(writes.iter().filter(|&&b| k < 6 && b > v).map(|&b| row(time, Event::Malloc, b, op)));
        rows.extend(reads.iter().map(|&b| row(time, Event::Read, b, op)));
        rows.extend(writes.iter().map(|&b| row(time + 1, Event::Write, b, op)));
        rows.extend(frees.iter().map(|&b| row(time + 1, Event::Free, b, Op::None)));
    }
    for r in rows.iter_mut().filter(|r| r.event == Event::Malloc) {
        r.bytes = sizes[r.block as usize];
    }
    let again = |k| Operator { rerun: k < 3, ..Operator::default() };
    let operators: Vec<Operator> = (0..7).map(again).collect();
    by_layers(&Recorded { rows: &rows, operators: &operators, blocks: 10 }, 1 << 20).1
}

#[test]
fn a_gradient_is_written_over_an_activation_that_only_the_parameter_needed() {
    // The activations of both layers have 64 bytes each, the loss 4, the input 100. The gradient of the first
    // activation takes memory of its own, or is written over the activation.
    let excluded = layrub::Bytes { separate: 264, intra: 196, inter: 292, hybrid: 292 };
    assert_eq!(two_layers(false), excluded);
    let coordinated = layrub::Bytes { intra: 132, hybrid: 232, ..excluded };
    assert_eq!(two_layers(true), coordinated);
}

/// Calls a pass with a workspace and room for its rows; returns how many rows it wrote.
type Call<'a> = &'a dyn Fn(Workspace<'_>, &mut [Row]) -> Result<usize, Error>;

#[test]
fn what_is_too_short_is_refused_with_what_is_needed() {
    let (rows, mut operators, blocks) = chain(8);
    for o in &mut operators {
        o.in_place = true;
    }
    operators[2].kind = Kind::Relu;
    let recorded = Recorded { rows: &rows, operators: &operators, blocks };
    let n = rows.len();
    let passes: [(WorkspaceLen, usize, Call<'_>); 2] = [
        (mask::workspace(n, blocks), mask::most_rows(&rows), &|s, out| mask::rewrite(&recorded, &rows, s, out)),
        (in_place::workspace(n, n, blocks), in_place::most_rows(&rows), &|s, out| {
            in_place::rewrite(&recorded, &rows, s, out)
        }),
    ];
    for (len, most, pass) in passes {
        let call = |words: usize, indices: usize, rows: usize| {
            let (mut words, mut indices) = (vec![5; words], vec![5; indices]);
            pass(Workspace::new(&mut words, &mut indices), &mut vec![Row::default(); rows])
        };
        let needed = call(len.words, len.indices, most).expect("enough is lent");
        let refused = |buffer, needed, got| Err(Error::BufferTooSmall { buffer, needed, got });
        for words in 0..len.words {
            assert_eq!(call(words, len.indices, most), refused(Buffer::Words, len.words, words));
        }
        for indices in 0..len.indices {
            assert_eq!(call(len.words, indices, most), refused(Buffer::Indices, len.indices, indices));
        }
        for rows in 0..needed {
            assert_eq!(call(len.words, len.indices, rows), refused(Buffer::Rows, needed, rows));
        }
    }
}

#[test]
fn what_is_read_after_its_free_cannot_be_recomputed() {
    let row = |event, op| {
        let bytes = if event == Event::Malloc { 64 } else { 0 };
        Row { time_ns: 1, event, block: 0, bytes, op: Op::First(op) }
    };
    let rows = [Event::Malloc, Event::Write, Event::Free, Event::Read]
        .map(|event| row(event, u32::from(event == Event::Read)));
    let recorded = Recorded::new(&rows, 1);
    let refused = |error| matches!(error, Err(Error::Row { row: 3, .. }));
    assert!(refused(chen::rewrite(&recorded, Plan::Recursive(1, Cuts::One), 1).map(drop)));
    assert!(refused(chen::search(&recorded, |_| Ok(1)).map(drop)));
}

/// What the published policies of swapping make is accepted, and within the limit.
#[test]
fn published_swaps_are_accepted() {
    let mut cases = Vec::new();
    for (name, percent) in
        [("vgg11_cifar_train_b100", 75), ("alexnet_train_b32", 85), ("resnet50_cifar_train_b100", 60)]
    {
        let Some(network) = Recording::named(name) else { continue };
        let recorded = network.recorded();
        let limit = network.max_load() / 100 * percent;
        let options = Options { least_bytes: 1 << 20, ..Options::new(limit, DEVICE) };
        for policy in Policy::ALL {
            let swapped = zhang::swap(&recorded, policy, &options).unwrap_or_else(|e| panic!("{name} {policy:?}: {e}"));
            let Some(Swapped { rows, offsets }) = swapped else {
                assert_eq!(policy, Policy::Layer, "{name}");
                continue;
            };
            let proved = prove(&recorded, &rows, Solver::Multistart, &DEVICE, true);
            let proved = proved.unwrap_or_else(|e| panic!("{name} {policy:?}: {e}"));
            assert!(proved.run.peak_load <= limit && proved.run.swapped_bytes > 0, "{name} {policy:?}");
            cases.push((name, judge::case(&recorded, &rows, &offsets, true)));
        }
    }
    assert!(cases.len() > 5);
    let questions: Vec<Value> = cases.iter().map(|(_, case)| case.clone()).collect();
    let Some(verdicts) = judge::ask("no published swaps are judged", &questions) else { return };
    assert!(cases.iter().zip(verdicts).all(|(_, verdict)| verdict.is_some()), "the judge refuses");
}
