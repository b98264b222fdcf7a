mod watch;

use super::*;
use crate::Constraints;
use crate::error::RowFault;
use crate::rewrite::gaps::{Gaps, Swappable};
use crate::rewrite::lower_bound;
use crate::rewrite::means::swap::Swapper;
use crate::simulate;
use crate::trace::{Event, Kind, Op, Operator};
use crate::verify::schedule::{self as verify, Room};
use proptest::prelude::*;
use proptest::strategy::Strategy;
use std::vec::Vec;

const MIB: u64 = 1 << 20;
const SWAP: Using = Using::NONE.with(Means::Swap);

/// Of an operator: MiB that it writes, blocks read (modulo), whether it writes a block that is there, time in 20 µs.
fn trace(weights: u32, operators: &[(u32, Vec<u32>, bool, u64)]) -> (Vec<Row>, usize) {
    let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
    let mut rows: Vec<Row> =
        (0..weights).map(|w| row(0, Event::Malloc, w, MIB * u64::from(1 + w % 3), Op::None)).collect();
    let mut made = weights;
    let mut last = std::collections::HashMap::new();
    let mut time = 0;
    for (op, (size, reads, update, duration)) in (0..).zip(operators) {
        let own = Op::First(op);
        let mut reads: Vec<u32> = reads.iter().map(|r| r % (made + 1)).filter(|&r| r < made).collect();
        reads.sort_unstable();
        reads.dedup();
        let written = if *update && made > 0 { size % made } else { made };
        if written == made {
            rows.push(row(time, Event::Malloc, made, MIB * u64::from(*size), own));
            made += 1;
        }
        rows.extend(reads.iter().map(|&r| row(time, Event::Read, r, 0, own)));
        time += duration * 20_000;
        rows.push(row(time, Event::Write, written, 0, own));
        for b in reads.into_iter().chain([written]) {
            last.insert(b, op);
        }
    }
    let mut freed = Vec::new();
    let mut with_frees = Vec::new();
    for (i, r) in rows.iter().enumerate() {
        with_frees.push(*r);
        let ends = rows.get(i + 1).is_none_or(|next| next.op != r.op);
        if let (true, Op::First(op)) = (ends, r.op) {
            for (&b, _) in last.iter().filter(|&(&b, &at)| b >= weights && at == op) {
                freed.push(b);
            }
            freed.sort_unstable();
            with_frees.extend(freed.drain(..).map(|b| row(r.time_ns, Event::Free, b, 0, Op::None)));
        }
    }
    (with_frees, made as usize)
}

fn run(rows: &[Row], blocks: usize, options: &Options) -> Result<(u64, u64, f64), Error> {
    run_recorded(&Recorded::new(rows, blocks), options)
}

fn run_recorded(recorded: &Recorded<'_>, options: &Options) -> Result<(u64, u64, f64), Error> {
    run_watched(recorded, options, &mut |_| ControlFlow::Continue(()))
}

fn run_watched(recorded: &Recorded<'_>, options: &Options, watch: Watch<'_>) -> Result<(u64, u64, f64), Error> {
    run_within(recorded, options, watch, Budget::new(options.work_of(recorded.rows.len())))
}

fn run_within(
    recorded: &Recorded<'_>,
    options: &Options,
    watch: Watch<'_>,
    budget: Budget,
) -> Result<(u64, u64, f64), Error> {
    let &Recorded { rows, blocks, .. } = recorded;
    let lengths = Lengths::of(rows, blocks);
    let len = workspace(rows.len(), blocks, lengths);
    let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
    let output = Output {
        rows: &mut vec![Row::default(); lengths.rows],
        timings: &mut vec![Timing::default(); lengths.timings],
        blocks: &mut vec![Block::default(); lengths.residencies],
        names: &mut vec![Residency::default(); lengths.residencies],
        offsets: &mut vec![9; lengths.residencies],
    };
    let fitted = fit_within(recorded, options, Workspace::new(&mut words, &mut indices), output, (watch, budget))?;
    Ok((fitted.original_peak, fitted.schedule.plan().peak(), fitted.schedule.run().overhead()))
}

fn swapping(limit: u64, device: Device) -> Options {
    Options { using: SWAP, ..Options::new(limit, device) }
}

fn operators() -> impl Strategy<Value = Vec<(u32, Vec<u32>, bool, u64)>> {
    let operator = (1u32..9, prop::collection::vec(0u32..24, 0..4), prop::bool::weighted(0.2), 1u64..60);
    prop::collection::vec(operator, 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_schedule_is_proved_and_the_least_limit_works(
        weights in 0u32..5, operators in operators(), percent in 20u64..110,
    ) {
        let (rows, blocks) = trace(weights, &operators);
        let device = Device::symmetric(12e9);
        let (peak, _, _) = run(&rows, blocks, &swapping(u64::MAX, device)).unwrap();
        let limit = peak * percent / 100;
        let options = Options { work: 500, ..swapping(limit, device) };
        match run(&rows, blocks, &options) {
            Ok((_, footprint, overhead)) => {
                prop_assert!(footprint <= limit);
                prop_assert!(overhead >= -1e-9);
            }
            Err(Error::OverLimit { least, .. }) => {
                prop_assert!(least > limit);
                let enough = Options { limit: least, ..options };
                let found = run(&rows, blocks, &enough);
                prop_assert!(found.is_ok(), "{:?}", found);
            }
            Err(Error::Impossible { needed, .. }) => prop_assert!(needed > limit),
            Err(e) => prop_assert!(false, "{}", e),
        }
    }

    #[test]
    fn the_search_tells_the_time_that_the_rows_take(
        weights in 0u32..5, operators in operators(), percent in 30u64..100,
    ) {
        let (rows, blocks) = trace(weights, &operators);
        let lengths = Lengths::of(&rows, blocks);
        let len = workspace(rows.len(), blocks, lengths);
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let mut scratch = Workspace::new(&mut words, &mut indices);
        let device = Device { in_bandwidth: 7e9, ..Device::symmetric(12e9) };
        let program = Program::new(&rows, blocks, &mut scratch).unwrap();
        let gaps = Gaps::new(&program, Swappable { least_bytes: MIB, keep_persistent: false }, &mut scratch);
        let mut swapper = Swapper::new(&gaps, &device, 1, &mut scratch);
        let limit = swapper.peak() * percent / 100;
        if let Some(overhead) = swapper.search(limit, 20_000) {
            let mut rewritten = vec![Row::default(); lengths.rows];
            let n = swapper.rows(&mut rewritten).unwrap();
            let mut timings = vec![Timing::default(); n];
            let recorded = Recorded::new(&rows, blocks);
            let run =
                simulate::simulate(&recorded, &rewritten[..n], &device, scratch.reborrow(), &mut timings).unwrap();
            let original = f64::from(u32::try_from(run.original_ns).unwrap());
            prop_assert!((run.time_ns - original - overhead).abs() < 0.01, "{run:?} {overhead}");
            prop_assert!(run.peak_load <= limit);
            // The max load is not below the lower bound for its overhead.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
            let overhead_ns = overhead.ceil() as u64;
            let scratch = Workspace::new(&mut words, &mut indices);
            let least_load = lower_bound::least_load(&rows, blocks, &device, overhead_ns, scratch);
            prop_assert!(least_load.unwrap() <= run.peak_load);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_schedule_is_below_the_lower_bound(
        weights in 0u32..5, operators in operators(), percent in 20u64..100, means in 0usize..4, flags in any::<u64>(),
    ) {
        let (rows, blocks) = trace(weights, &operators);
        let kinds = [Kind::Other, Kind::Other, Kind::Relu, Kind::ReluBackward];
        let flag = |o: usize, shift: usize| flags.rotate_right(u32::try_from(5 * o + shift).unwrap()) & 1 > 0;
        let operators: Vec<_> = (0..operators.len()).map(|o| Operator {
            rerun: flag(o, 0),
            in_place: flag(o, 1),
            kind: kinds[usize::from(flag(o, 2)) + 2 * usize::from(flag(o, 3))],
            ..Operator::default()
        }).collect();
        let recorded = Recorded { rows: &rows, operators: &operators, blocks };
        let recompute = Using::NONE.with(Means::Recompute);
        let using = [SWAP, recompute, recompute.with(Means::Swap), Using::ALL][means];
        let device = Device::symmetric(12e9);
        let limit = max_load(&rows, blocks, Workspace::new(&mut vec![0; blocks], &mut [])) * percent / 100;
        let options = Options { using, work: 300, ..Options::new(limit, device) };
        let len = lower_bound_workspace(rows.len(), blocks);
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let bound = least_overhead(&recorded, &options, Workspace::new(&mut words, &mut indices)).unwrap();
        match run_recorded(&recorded, &options) {
            Ok((_, _, overhead)) => {
                #[expect(clippy::cast_precision_loss, reason = "a time")]
                let original_ns = rows.last().map_or(0, |r| r.time_ns) as f64;
                prop_assert!(overhead * original_ns >= bound - 0.01, "{overhead} {bound}");
            }
            Err(Error::OverLimit { .. }) => {}
            Err(Error::Impossible { .. }) => prop_assert!(bound.is_infinite(), "{bound}"),
            Err(e) => prop_assert!(false, "{}", e),
        }
    }
}

#[test]
fn what_is_not_as_recorded_is_refused() {
    let (mut rows, blocks) = trace(1, &[(2, vec![0], false, 5), (2, vec![1], false, 5)]);
    let options = swapping(u64::MAX, Device::symmetric(12e9));
    assert!(run(&rows, blocks, &options).is_ok());
    let broken = Device { in_bandwidth: 0.0, ..options.device };
    assert_eq!(run(&rows, blocks, &Options { device: broken, ..options }), Err(Error::Device));
    let last = rows[rows.len() - 1];
    for (added, fault) in [
        (Row { event: Event::SwapOut, time_ns: last.time_ns, ..rows[0] }, RowFault::NotRecorded),
        (Row { event: Event::Read, time_ns: last.time_ns - 1, ..rows[0] }, RowFault::TimeBackwards),
        (Row { event: Event::Free, ..last }, RowFault::FreeWithoutMalloc),
    ] {
        rows.push(added);
        let row = u32::try_from(rows.len() - 1).unwrap();
        assert_eq!(run(&rows, blocks, &options), Err(Error::Row { row, fault }));
        rows.pop();
    }
}

#[test]
fn second_runs_and_work_in_place_go_together() {
    let operators: [(u32, Vec<u32>, bool, u64); 5] = [
        (4, vec![0], false, 5),
        (8, vec![0], false, 5),
        (8, vec![2], false, 5),
        (1, vec![3], false, 5),
        (1, vec![1, 4], false, 5),
    ];
    let (rows, blocks) = trace(1, &operators);
    let in_place = [0, 1, 2, 3, 4].map(|op| Operator { in_place: op == 2, ..Operator::default() });
    let recorded = Recorded { rows: &rows, operators: &in_place, blocks };
    let using = Using::NONE.with(Means::Recompute).with(Means::InPlace);
    let (footprint, overhead) = with(&recorded, 10 * MIB, using).expect("a weight, eight and one MiB");
    assert!(footprint == 10 * MIB && overhead > 0.0, "{footprint} {overhead}");
    for alone in [Means::Recompute, Means::InPlace] {
        assert!(with(&recorded, 10 * MIB, Using::NONE.with(alone)).is_err());
    }
}

/// Operator 0 makes block 1, and operator 1 writes a part of it.
#[test]
fn a_block_that_is_filled_later_is_made_anew_by_all_who_write_it() {
    let operators: [(u32, Vec<u32>, bool, u64); 6] = [
        (8, vec![0], false, 5),
        (1, vec![0, 1], true, 7),
        (8, vec![1], false, 9),
        (8, vec![2], false, 9),
        (1, vec![3], false, 9),
        (1, vec![1, 4], false, 9),
    ];
    let (rows, blocks) = trace(1, &operators);
    let fitted = |once: Option<usize>, limit| {
        let operators = [0, 1, 2, 3, 4, 5].map(|op| Operator { rerun: once != Some(op), ..Operator::default() });
        let recorded = Recorded { rows: &rows, operators: &operators, blocks };
        with(&recorded, limit * MIB, Using::NONE.with(Means::Recompute))
    };
    let (footprint, overhead) = fitted(None, 17).expect("a weight and two blocks of eight");
    assert!(footprint == 17 * MIB && (overhead - 12.0 / 48.0).abs() < 1e-9, "{footprint} {overhead}");
    for once in [0, 1] {
        assert!(fitted(Some(once), 17).is_err() && fitted(Some(once), 25).is_ok(), "{once}");
    }
}

#[test]
fn a_persistent_block_that_comes_after_an_access_is_named() {
    let row = |event, block, bytes, op| Row { time_ns: 0, bytes, block, op, event };
    let rows = [
        row(Event::Malloc, 0, MIB, Op::First(0)),
        row(Event::Write, 0, 0, Op::First(0)),
        row(Event::Malloc, 1, MIB, Op::None),
        row(Event::Read, 1, 0, Op::First(1)),
        row(Event::Free, 0, 0, Op::None),
    ];
    let found = run(&rows, 2, &swapping(u64::MAX, Device::symmetric(12e9)));
    assert_eq!(found, Err(Error::Row { row: 2, fault: RowFault::PersistentLate }));
}

#[test]
fn what_comes_after_the_last_access_takes_no_time_of_its_own() {
    let (mut rows, blocks) = trace(0, &[(8, vec![], false, 500), (8, vec![], false, 500), (1, vec![0], false, 500)]);
    let time_ns = rows[rows.len() - 1].time_ns + 1_000_000;
    rows.push(Row { time_ns, bytes: MIB, block: 3, op: Op::None, event: Event::Malloc });
    let (_, footprint, overhead) = run(&rows, blocks + 1, &swapping(12 * MIB, Device::symmetric(12e9))).unwrap();
    assert!(footprint <= 12 * MIB && (0.0..0.1).contains(&overhead), "{overhead}");
}

#[test]
fn more_block_numbers_than_can_be_counted_are_refused() {
    let options = Options::new(0, Device::symmetric(12e9));
    let output = Output { rows: &mut [], timings: &mut [], blocks: &mut [], names: &mut [], offsets: &mut [] };
    let refused = fit(&Recorded::new(&[], usize::MAX), &options, Workspace::new(&mut [], &mut []), output).map(|_| ());
    assert_eq!(refused, Err(Error::TooManyBlocks { needed: usize::MAX, most: block::MAX_BLOCKS }));
    let none = || Workspace::new(&mut [], &mut []);
    let recorded = Recorded::new(&[], usize::MAX);
    let lived = liveness::lifetimes(&[], usize::MAX, none(), &mut [], &mut []);
    assert!(matches!(lived, Err(Error::TooManyBlocks { .. })));
    let run = simulate::simulate(&recorded, &[], &options.device, none(), &mut []);
    assert!(matches!(run, Err(Error::TooManyBlocks { .. })));
    let least = lower_bound::least_load(&[], usize::MAX, &options.device, 0, none());
    assert!(matches!(least, Err(Error::TooManyBlocks { .. })));
    let room = Room { timings: &mut [], blocks: &mut [], names: &mut [] };
    let device = (&options.device, true);
    let judged = verify::schedule(&recorded, &[], &[], device, &Constraints::NONE, none(), room);
    assert!(matches!(judged, Err(Error::TooManyBlocks { .. })));
}

#[test]
fn no_more_leaves_than_the_host_can_hold() {
    let (rows, blocks) = trace(0, &[(8, vec![], false, 50), (8, vec![], false, 50), (1, vec![0], false, 50)]);
    let fit = |limit, host_capacity| {
        let device = Device { host_capacity, ..Device::symmetric(12e9) };
        run(&rows, blocks, &swapping(limit, device))
    };
    assert!(fit(12 * MIB, Some(8 * MIB)).is_ok());
    let Err(Error::OverLimit { least, .. }) = fit(12 * MIB, Some(MIB)) else { panic!("8 MiB on a host of 1 MiB") };
    assert!(least >= 16 * MIB && fit(least, Some(MIB)).is_ok(), "{least}");
}

fn said(operators: &[u32]) -> Vec<Operator> {
    let kinds = [Kind::Other, Kind::Relu, Kind::ReluBackward];
    let said = operators.iter().map(|&n| Operator {
        in_place: n % 2 > 0,
        rerun: n / 2 % 4 > 0,
        ordered: n < 96,
        kind: kinds[(n / 8 % 3) as usize],
        element: [4, 2, 1, 8][(n / 24 % 4) as usize],
    });
    said.collect()
}

fn with(recorded: &Recorded<'_>, limit: u64, using: Using) -> Result<(u64, f64), u64> {
    let options = Options { using, work: 500, ..Options::new(limit, Device::symmetric(12e9)) };
    match run_recorded(recorded, &options) {
        Ok((_, footprint, overhead)) => Ok((footprint, overhead)),
        Err(Error::OverLimit { least, .. }) => Err(least),
        Err(Error::Impossible { needed, .. }) => {
            assert!(needed > limit);
            with(recorded, needed, using).map_or_else(Err, |(footprint, _)| Err(footprint))
        }
        Err(e) => panic!("{e}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn all_means_are_proved_and_never_worse_than_fewer(
        weights in 0u32..4, operators in operators(), flags in prop::collection::vec(0u32..192, 24),
        percent in 15u64..100, fewer in 0usize..32,
    ) {
        let (rows, blocks) = trace(weights, &operators);
        let operators = said(&flags);
        let recorded = Recorded { rows: &rows, operators: &operators, blocks };
        let (peak, _, _) = run(&rows, blocks, &swapping(u64::MAX, Device::symmetric(12e9))).unwrap();
        let limit = peak * percent / 100;
        let joint = with(&recorded, limit, Using::ALL);
        let some = Means::ALL.iter().copied().enumerate().filter(|(i, _)| fewer >> i & 1 > 0);
        let some = some.fold(Using::NONE, |using, (_, means)| using.with(means));
        for using in Means::ALL.iter().map(|&means| Using::NONE.with(means)).chain([some]) {
            match with(&recorded, limit, using) {
                Ok((footprint, overhead)) => {
                    prop_assert!(footprint <= limit && overhead >= -1e-9);
                    let single = Means::ALL.iter().filter(|&&means| using.has(means)).count() < 2;
                    if single {
                        let (_, together) = joint.expect("what one means can do, all can");
                        prop_assert!(together <= overhead + 1e-9, "{} {} {:?}", together, overhead, using);
                    }
                }
                Err(least) => {
                    prop_assert!(least > limit);
                    let again = with(&recorded, least, using);
                    prop_assert!(again.is_ok(), "{:?} after {} with {:?}", again, least, using);
                }
            }
        }
    }
}

#[test]
fn persistent_blocks_stay_where_that_is_asked_for() {
    let ends = |size, reads| (size, reads, false, 900);
    let operators = [ends(1, vec![2]), ends(8, vec![3]), ends(8, vec![4]), ends(1, vec![5]), ends(1, vec![2, 6])];
    let (rows, blocks) = trace(3, &operators);
    let options = swapping(u64::MAX, Device::symmetric(12e9));
    let (peak, ..) = run(&rows, blocks, &options).unwrap();
    let limit = peak - 2 * MIB;
    assert!(run(&rows, blocks, &Options { limit, ..options }).is_ok());
    let kept = run(&rows, blocks, &Options { limit, keep_persistent: true, ..options });
    assert!(matches!(kept, Err(Error::OverLimit { .. } | Error::Impossible { .. })), "{kept:?}");
}

#[test]
fn a_limit_below_what_must_stay_is_refused_before_anything_is_tried() {
    let operators: Vec<_> = (0..12).map(|i| (4, vec![i, i + 5], i > 7, 20)).collect();
    let (rows, blocks) = trace(24, &operators);
    let weights: u64 = rows.iter().filter(|r| r.event == Event::Malloc).map(|r| r.bytes).take(24).sum();
    let all = Options::new(weights - 1, Device::symmetric(12e9));
    for options in
        [Options { keep_persistent: true, ..all }, Options { using: Using::NONE.with(Means::Recompute), ..all }]
    {
        let refused = run_watched(&Recorded::new(&rows, blocks), &options, &mut |progress| panic!("{progress:?}"));
        let Err(Error::Impossible { needed, limit }) = refused else { panic!("{refused:?}") };
        assert!(limit == weights - 1 && needed > weights, "{needed} of {weights}");
    }
    assert!(!matches!(run(&rows, blocks, &all), Err(Error::Impossible { .. })), "weights may leave");
}

#[test]
fn a_value_whose_source_stays_anyway_can_be_recomputed() {
    let row = |time_ns: u64, event, block, mib, op| Row {
        time_ns: 1000 * time_ns,
        event,
        block,
        bytes: mib * MIB,
        op: Op::First(op),
    };
    let rows = [
        row(0, Event::Malloc, 0, 8, 0),
        row(100, Event::Write, 0, 0, 0),
        row(100, Event::Malloc, 1, 8, 1),
        row(200, Event::Read, 0, 0, 1),
        row(300, Event::Write, 1, 0, 1),
        row(300, Event::Malloc, 2, 16, 2),
        row(600, Event::Write, 2, 0, 2),
        row(600, Event::Free, 2, 0, 2),
        row(2600, Event::Read, 1, 0, 3),
        row(2600, Event::Free, 1, 0, 3),
        row(2700, Event::Read, 0, 0, 4),
        row(2700, Event::Free, 0, 0, 4),
    ];
    let operators = [Operator { rerun: false, ..Operator::default() }];
    let recorded = Recorded { rows: &rows, operators: &operators, blocks: 3 };
    let options =
        Options { using: Using::NONE.with(Means::Recompute), ..Options::new(24 * MIB, Device::symmetric(12e9)) };
    let len = lower_bound_workspace(rows.len(), 3);
    let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
    let bound = least_overhead(&recorded, &options, Workspace::new(&mut words, &mut indices)).unwrap();
    let (_, footprint, overhead) = run_recorded(&recorded, &options).unwrap();
    assert!(footprint <= 24 * MIB && bound > 0.0 && bound <= overhead * 2_700_000.0 + 0.01, "{bound} {overhead}");
}

#[test]
fn bytes_on_the_links_may_add_up_to_more_than_can_be_counted() {
    let size = u64::MAX / 3;
    let row = |time_ns, event, block, op| Row {
        time_ns,
        bytes: if event == Event::Malloc { size } else { 0 },
        block,
        op,
        event,
    };
    let mut rows: Vec<Row> = (0..2).map(|b| row(1, Event::Malloc, b, Op::None)).collect();
    for (k, block) in (0u32..).zip([0, 1, 0, 1, 0, 1, 0, 1]) {
        let event = if k < 2 { Event::Write } else { Event::Read };
        rows.push(row(u64::from(k + 1) * 1_000_000, event, block, Op::First(k)));
    }
    let fast = Device::symmetric(1e30);
    let made = run(&rows, 2, &Options { least_bytes: 0, alignment: 1, ..swapping(size, fast) });
    // There is a schedule, but no plan for so many large residencies.
    assert_eq!(made, Err(Error::SizeOverflow { block: 2 }));
}

#[test]
fn sizes_beyond_u64_are_refused() {
    let row = |event, block, bytes, op| Row { time_ns: 1, event, block, bytes, op: Op::First(op) };
    let size = u64::MAX - 5;
    let rows = [
        row(Event::Malloc, 0, size, 0),
        row(Event::Write, 0, 0, 0),
        row(Event::Malloc, 1, size, 1),
        row(Event::Write, 1, 0, 1),
        row(Event::Read, 0, 0, 2),
        row(Event::Read, 1, 0, 2),
    ];
    let operators = [Operator { ordered: false, ..Operator::default() }; 3];
    let recorded = Recorded { rows: &rows, operators: &operators, blocks: 2 };
    let options =
        Options { using: Using::NONE.with(Means::Order), alignment: 1, ..Options::new(1000, Device::symmetric(12e9)) };
    assert_eq!(run_recorded(&recorded, &options), Err(Error::SizeOverflow { block: 1 }));
    // The block is named by its number, not by the place of its malloc.
    let other = |r: &Row| Row { block: 1 - r.block, ..*r };
    let rows: Vec<Row> = rows.iter().map(other).collect();
    assert_eq!(run_recorded(&Recorded { rows: &rows, ..recorded }, &options), Err(Error::SizeOverflow { block: 0 }));
}

#[test]
fn an_operator_without_accesses_stays_where_it_is() {
    for time_ns in [0, 1] {
        let rows = [Row { time_ns, event: Event::Malloc, block: 0, bytes: 900, op: Op::First(1) }];
        let operators = [Operator { ordered: false, ..Operator::default() }; 2];
        let recorded = Recorded { rows: &rows, operators: &operators, blocks: 1 };
        let using = Using::NONE.with(Means::Order);
        let options = Options { using, alignment: 1, ..Options::new(899, Device::symmetric(12e9)) };
        let refused = Error::OverLimit { least: 900, limit: 899 };
        assert_eq!(run_recorded(&recorded, &options), Err(refused), "{time_ns}");
    }
}

#[test]
fn the_numbers_of_operators_may_be_as_large_as_32_bits_allow() {
    let chain: Vec<_> = (0..12).map(|k| (4, vec![k], false, 20)).collect();
    let (rows, blocks) = trace(1, &chain);
    let far = |r: &Row| Row { op: if let Op::First(k) = r.op { Op::First(u32::MAX - 20 + k) } else { r.op }, ..*r };
    let renumbered: Vec<Row> = rows.iter().map(far).collect();
    let options = |limit| swapping(limit, Device::symmetric(12e9));
    let (peak, ..) = run(&rows, blocks, &options(u64::MAX)).unwrap();
    let limit = peak * 7 / 10;
    assert_eq!(run(&renumbered, blocks, &options(limit)), run(&rows, blocks, &options(limit)));
}
