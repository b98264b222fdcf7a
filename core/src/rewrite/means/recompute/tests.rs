use super::*;
use crate::rewrite::program::Program;
use crate::trace::{Event, Op, Operator, Recorded, Row};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::vec::Vec;

fn chain(layers: &[(u64, u64)]) -> (Vec<Row>, usize) {
    let n = u32::try_from(layers.len()).unwrap();
    let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op: Op::First(op), event };
    let (mut rows, mut time) = (Vec::new(), 1);
    for (k, &(size, duration)) in (0..).zip(layers) {
        rows.push(row(time, Event::Malloc, k, size, k));
        if k > 0 {
            rows.push(row(time, Event::Read, k - 1, 0, k));
        } else {
            // The operator's time passes between its first access and its last.
            rows.push(row(time, Event::Write, k, 0, k));
        }
        time += duration;
        rows.push(row(time, Event::Write, k, 0, k));
    }
    for (back, k) in (0..n).rev().enumerate() {
        let op = n + u32::try_from(back).unwrap();
        let gradient = n + k;
        rows.push(row(time, Event::Malloc, gradient, 1, op));
        rows.push(row(time, Event::Read, k, 0, op));
        if k + 1 < n {
            rows.push(row(time, Event::Read, gradient + 1, 0, op));
        }
        time += 1;
        rows.push(row(time, Event::Write, gradient, 0, op));
        rows.push(row(time, Event::Free, k, 0, op));
        if k + 1 < n {
            rows.push(row(time, Event::Free, gradient + 1, 0, op));
        }
    }
    rows.push(row(time, Event::Free, n, 0, 2 * n - 1));
    (rows, 2 * layers.len())
}

/// A shortest path through states: how many operators have run, and which values are on the device.
fn over_orders(layers: &[(u64, u64)], limit: u64) -> Option<u64> {
    let n = layers.len();
    let mut least = vec![u64::MAX; (2 * n + 1) << n];
    let mut open = BTreeSet::from([(0, 0, 0)]);
    while let Some((cost, at, there)) = open.pop_first() {
        if at == 2 * n {
            return Some(cost);
        }
        // The latest gradient, which the next one reads, takes a byte too.
        let values = (0..n).filter(|k| there >> k & 1 > 0).map(|k| layers[k].0);
        let load = values.sum::<u64>() + u64::from(at > n);
        let mut reach = |cost: u64, at: usize, there: usize| {
            if cost < least[at << n | there] {
                least[at << n | there] = cost;
                open.insert((cost, at, there));
            }
        };
        for (k, &(size, duration)) in layers.iter().enumerate() {
            let has_input = k == 0 || there >> (k - 1) & 1 > 0;
            if there >> k & 1 > 0 {
                reach(cost, at, there & !(1 << k));
            } else if has_input && load + size <= limit && k < at {
                reach(cost + duration, at, there | 1 << k);
            } else if has_input && load + size <= limit && k == at {
                reach(cost, at + 1, there | 1 << k);
            }
        }
        if at >= n && there >> (2 * n - 1 - at) & 1 > 0 && load < limit {
            reach(cost, at + 1, there);
        }
    }
    None
}

fn planned(layers: &[(u64, u64)], limit: u64) -> Option<u64> {
    let (rows, blocks) = chain(layers);
    planned_for(&Recorded::new(&rows, blocks), limit)
}

fn recomputing<R>(recorded: &Recorded<'_>, then: impl FnOnce(&mut Recomputer<'_>, Workspace<'_>) -> R) -> R {
    let &Recorded { rows, blocks, .. } = recorded;
    let after = exact::workspace(rows.len(), blocks).max(emit::Emitter::workspace(most_rows(rows.len()), blocks));
    let len = Program::workspace(rows.len(), blocks)
        .and(Values::workspace(rows.len(), blocks))
        .and(Recomputer::workspace(rows.len(), blocks))
        .and(after);
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let mut scratch = Workspace::new(&mut words, &mut indices);
    let program = Program::new(rows, blocks, &mut scratch).unwrap();
    let values = Values::new(recorded, &program, &mut scratch);
    let mut recomputer = Recomputer::new(&values, 1, 1, &mut scratch);
    then(&mut recomputer, scratch)
}

fn planned_for(recorded: &Recorded<'_>, limit: u64) -> Option<u64> {
    recomputing(recorded, |recomputer, scratch| planned_by(recomputer, limit, scratch))
}

fn planned_by(recomputer: &mut Recomputer<'_>, limit: u64, mut scratch: Workspace<'_>) -> Option<u64> {
    let (values, program) = (recomputer.values, recomputer.program());
    let walked = recomputer.plan(limit, u64::MAX);
    let walked = recomputer.exactly(limit, walked, scratch.reborrow())?;
    let mut out = vec![Row::default(); most_rows(program.rows.len())];
    let written = recomputer.rows(scratch, &mut out).unwrap();
    let (mut load, mut peak) = (0u64, 0u64);
    for (i, r) in out[..written].iter().enumerate() {
        match r.event {
            // Nothing is allocated between a value's last access and its free.
            Event::Free if values.is_managed(r.block_id()) => {
                let mut since = out[..i].iter().rev().take_while(|other| other.event != Event::Malloc);
                assert!(since.any(|other| other.event.is_access() && other.block == r.block), "block {}", r.block);
            }
            _ => {}
        }
        match r.event {
            Event::Malloc => load += program.size[r.block_id()],
            Event::Free => load -= program.size[r.block_id()],
            _ => {}
        }
        peak = peak.max(load);
    }
    assert_eq!(walked.excess == 0, peak <= limit, "{peak} of {limit}, {walked:?}");
    (walked.excess == 0).then_some(walked.delay)
}

#[test]
fn chains_have_the_best_order() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut below = |n: u64| rng.next_u64() % n;
    let (mut possible, mut found, mut least_sum, mut found_sum) = (0, 0, 0, 0);
    while possible < 500 {
        let layers: Vec<_> = (0..2 + below(6)).map(|_| (1 + below(19), 1 + below(49))).collect();
        let total: u64 = layers.iter().map(|l| l.0).sum();
        let limit = total * (20 + below(90)) / 100;
        if let Some(least) = over_orders(&layers, limit) {
            possible += 1;
            if let Some(delay) = planned(&layers, limit) {
                assert!(least <= delay, "{delay} ns of {least}: {layers:?} in {limit}");
                found += 1;
                least_sum += least;
                found_sum += delay;
            }
        }
    }
    std::println!("{found} of {possible}, {found_sum} ns of {least_sum}");
    assert_eq!(found, possible);
    assert_eq!(found_sum, least_sum);
}

#[test]
fn equal_layers() {
    for limit in [100, 72, 62, 52, 42, 32, 22] {
        assert_eq!(planned(&[(10, 10); 8], limit), over_orders(&[(10, 10); 8], limit), "{limit}");
    }
}

type Made = (u64, Vec<u32>, Vec<(u32, u64)>);

fn network(operators: &[Made]) -> (Vec<Row>, usize) {
    let row = |time_ns, event, block, bytes, op| Row { time_ns, event, block, bytes, op: Op::First(op) };
    let (mut rows, mut time) = (Vec::new(), 1);
    for (k, (op, (duration, reads, writes))) in (0..).zip(operators).enumerate() {
        rows.extend(writes.iter().map(|&(block, bytes)| row(time, Event::Malloc, block, bytes, op)));
        // The time passes between the first access and the last.
        rows.extend(reads.iter().map(|&block| row(time, Event::Read, block, 0, op)));
        rows.extend(writes.first().map(|&(block, _)| row(time, Event::Write, block, 0, op)));
        time += duration;
        rows.extend(writes.iter().map(|&(block, _)| row(time, Event::Write, block, 0, op)));
        let touched = reads.iter().copied().chain(writes.iter().map(|w| w.0));
        let done = touched.filter(|block| !operators[k + 1..].iter().any(|o| o.1.contains(block)));
        rows.extend(done.map(|block| row(time, Event::Free, block, 0, op)));
    }
    let blocks = operators.iter().flat_map(|o| &o.2).map(|w| w.0 as usize + 1).max().unwrap_or(0);
    (rows, blocks)
}

#[test]
fn what_several_are_made_of_is_recomputed_once() {
    let (cells, dear) = (12u32, 100);
    let mut operators: Vec<Made> = Vec::new();
    let state = |t: u32| 6 * t + 5;
    for t in 0..cells {
        let first = 6 * t;
        operators.push((dear, t.checked_sub(1).map(state).into_iter().collect(), vec![(first, 4)]));
        operators.extend((1..5).map(|gate| (1, vec![first], vec![(first + gate, 1)])));
        operators.push((1, (1..5).map(|gate| first + gate).collect(), vec![(state(t), 1)]));
    }
    let mut gradient = 6 * cells;
    for t in (0..cells).rev() {
        for gate in 1..5 {
            let read = [6 * t + gate, state(t)].into_iter().chain((gradient > 6 * cells).then(|| gradient - 1));
            operators.push((1, read.collect(), vec![(gradient, 1)]));
            gradient += 1;
        }
    }
    let (rows, blocks) = network(&operators);
    // As recorded, 5 bytes of each of the 12 cells are alive at the end of the forward pass, and later two gradients of
    // a byte each: over 60 bytes.
    for limit in [50, 40, 34] {
        let recomputed = planned_for(&Recorded::new(&rows, blocks), limit).unwrap();
        assert!(recomputed <= u64::from(cells) * (dear + 5), "{limit}: {recomputed}");
    }
}

#[test]
fn what_is_made_together_is_evicted_together() {
    let mut operators: Vec<Made> = (0..8).map(|k| (100, vec![], vec![(2 * k, 1), (2 * k + 1, 4)])).collect();
    operators.extend((0..8).rev().map(|k| (1, vec![2 * k, 2 * k + 1], vec![(16 + k, 1)])));
    let (rows, blocks) = network(&operators);
    // Evicting four of the pairs leaves 20 bytes. Evicting the larger results of five pairs does so too, and takes
    // longer.
    assert_eq!(planned_for(&Recorded::new(&rows, blocks), 25), Some(400));
}

/// Block 3 is remade from 2, and 2 from 1, which cannot be recomputed and is read last before that.
#[test]
fn the_source_of_a_missing_value_is_kept() {
    let operators: Vec<Made> = vec![
        (1, vec![], vec![(0, 4)]),
        (1, vec![0], vec![(1, 4)]),
        (10, vec![1], vec![(2, 4)]),
        (20, vec![2], vec![(3, 4)]),
        // Block 4 leaves no room for both block 1 and block 3.
        (1, vec![], vec![(4, 8)]),
        (1, vec![1], vec![(5, 1)]),
        (1, vec![3, 5], vec![(6, 1)]),
    ];
    let (rows, blocks) = network(&operators);
    let mut once = [Operator::default(); 7];
    once[0].rerun = false;
    let recorded = Recorded { operators: &once, ..Recorded::new(&rows, blocks) };
    assert_eq!(planned_for(&recorded, 12), Some(30));
}

#[test]
fn work_in_place_takes_no_memory_for_its_output() {
    let mut operators: Vec<Made> =
        (0..4).map(|k: u32| (1, k.checked_sub(1).into_iter().collect(), vec![(k, 8)])).collect();
    operators.push((1, vec![3], vec![]));
    let (rows, blocks) = network(&operators);
    let in_place = [Operator { in_place: true, ..Operator::default() }; 4];
    let recorded = Recorded { rows: &rows, operators: &in_place, blocks };
    let excess = |works_in_place: bool, limit| {
        recomputing(&recorded, |recomputer, _| {
            if works_in_place {
                recomputer.work_in_place();
            }
            recomputer.plan(limit, u64::MAX).unwrap().excess
        })
    };
    assert_eq!((excess(false, 16), excess(false, 8)), (0, 8));
    assert_eq!((excess(true, 8), excess(true, 7)), (0, 1));
}

#[test]
fn the_exact_search_writes_over_what_could_be_recomputed() {
    let made = |reads, block, bytes| (1, reads, vec![(block, bytes)]);
    let mut operators: Vec<Made> = vec![
        made(vec![], 0, 1),
        made(vec![0], 1, 4),
        made(vec![1], 2, 1),
        made(vec![2], 3, 8),
        made(vec![3], 4, 8),
        made(vec![4], 5, 1),
    ];
    operators.push((1, vec![1, 5], vec![]));
    let (rows, blocks) = network(&operators);
    let mut known = [Operator::default(); 7];
    (known[0].rerun, known[4].in_place) = (false, true);
    let recorded = Recorded { rows: &rows, operators: &known, blocks };
    let least = |limit| {
        recomputing(&recorded, |recomputer, scratch| {
            recomputer.work_in_place();
            recomputer.exactly(limit, None, scratch)
        })
    };
    assert_eq!((least(10), least(9)), (Some(Cost { excess: 0, delay: 1 }), None));
}
