//! For each rule of the schedule verifier, a trace that keeps it and is accepted, and a trace that breaks only this
//! rule and is refused.

mod in_place;

use super::*;
use crate::trace::Operator;
use std::vec::Vec;

mod order;

const ONCE: Op = Op::None;

const fn row(event: Event, block: u32, bytes: u64, op: Op) -> Row {
    Row { time_ns: 1, bytes, block, op, event }
}

const fn malloc(block: u32, bytes: u64) -> Row {
    row(Event::Malloc, block, bytes, ONCE)
}

const fn free(block: u32) -> Row {
    row(Event::Free, block, 0, ONCE)
}

const fn out(block: u32) -> Row {
    row(Event::SwapOut, block, 0, ONCE)
}

const fn back(block: u32) -> Row {
    row(Event::SwapIn, block, 0, ONCE)
}

const fn read(block: u32, op: u32) -> Row {
    row(Event::Read, block, 0, Op::First(op))
}

const fn write(block: u32, op: u32) -> Row {
    row(Event::Write, block, 0, Op::First(op))
}

const fn again(r: Row) -> Row {
    match r.op {
        Op::First(k) => Row { op: Op::Rerun(k), ..r },
        _ => r,
    }
}

const fn weight(block: u32, bytes: u64) -> Row {
    Row { time_ns: 0, ..malloc(block, bytes) }
}

type Added<'a> = (usize, &'a [Row]);

fn judge(recorded: &Recorded<'_>, rewritten: &[Row], cyclic: bool) -> Result<(), RowFault> {
    let len = values_workspace(recorded.rows.len(), recorded.blocks);
    let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
    let mut taken_over = vec![0; rewritten.len()];
    let scratch = Workspace::new(&mut words, &mut indices);
    match values(recorded, rewritten, cyclic, &mut Table::new(&mut taken_over), scratch) {
        Ok(()) => Ok(()),
        Err(Error::Row { fault, .. }) => Err(fault),
        Err(e) => panic!("{e}"),
    }
}

fn judge_plan(
    recorded: &Recorded<'_>,
    rewritten: &[Row],
    offsets: &[u64],
    device: &Device,
    cyclic: bool,
) -> Result<Run, Error> {
    let residencies = liveness::residencies(rewritten);
    let len = workspace(recorded.rows.len(), recorded.blocks, residencies);
    let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
    let mut blocks = vec![Block::default(); residencies];
    let mut names = vec![Residency::default(); residencies];
    let mut timings = vec![Timing::default(); rewritten.len()];
    let scratch = Workspace::new(&mut words, &mut indices);
    let room = Room { timings: &mut timings, blocks: &mut blocks, names: &mut names };
    let verified = schedule(recorded, rewritten, offsets, (device, cyclic), &Constraints::NONE, scratch, room)?;
    assert_eq!((verified.rows(), verified.names().len()), (rewritten, residencies));
    assert_eq!((verified.timings().len(), verified.plan().offsets()), (rewritten.len(), offsets));
    Ok(*verified.run())
}

fn changed(rows: &[Row], changes: &[Added], without: &[usize]) -> Vec<Row> {
    let mut rewritten = Vec::new();
    for i in 0..=rows.len() {
        rewritten.extend(changes.iter().filter(|c| c.0 == i).flat_map(|c| c.1));
        rewritten.extend(rows.get(i).filter(|_| !without.contains(&i)));
    }
    rewritten
}

const ORIGINAL: [Row; 8] =
    [weight(0, 8), malloc(1, 8), read(0, 0), write(1, 0), read(1, 1), read(0, 1), write(0, 1), free(1)];

fn judged(cyclic: bool, changes: &[Added], without: &[usize]) -> Result<(), RowFault> {
    judge(&Recorded::new(&ORIGINAL, 2), &changed(&ORIGINAL, changes, without), cyclic)
}

#[test]
fn residency_and_the_order_of_accesses() {
    let [away, gone, anew, home] = [out(1), free(1), malloc(1, 8), back(1)];
    assert_eq!(judged(false, &[], &[]), Ok(()));
    assert_eq!(judged(false, &[(4, &[away, gone, anew, home])], &[]), Ok(()));
    assert_eq!(judged(false, &[(4, &[gone, anew])], &[]), Err(RowFault::OtherValue));
    assert_eq!(judged(false, &[(4, &[gone, anew, home])], &[]), Err(RowFault::NotOnHost));
    assert_eq!(judged(false, &[(4, &[away, gone])], &[]), Err(RowFault::AccessWithoutMalloc));
    assert_eq!(judged(false, &[(4, &[away, gone, home])], &[]), Err(RowFault::AccessWithoutMalloc));
    assert_eq!(judged(false, &[(4, &[gone, gone])], &[]), Err(RowFault::FreeWithoutMalloc));
    assert_eq!(judged(false, &[(3, &[gone])], &[]), Err(RowFault::InsideOperator));
    assert_eq!(judged(false, &[(3, &[away])], &[]), Err(RowFault::InsideOperator));
    assert_eq!(judged(false, &[], &[4]), Err(RowFault::OtherAccess));
    assert_eq!(judged(false, &[], &[4, 5, 6]), Err(RowFault::AccessesMissing));
    assert_eq!(judged(false, &[], &[6, 7]), Err(RowFault::AccessesMissing));
    assert_eq!(judged(false, &[(8, &[read(0, 1)])], &[]), Err(RowFault::OtherAccess));
    assert_eq!(judged(false, &[(4, &[anew])], &[]), Err(RowFault::AllocatedTwice));
    assert_eq!(judged(false, &[(4, &[gone, malloc(1, 9)])], &[]), Err(RowFault::SizeChanged));
    assert_eq!(judged(false, &[(8, &[malloc(4, 8)])], &[]), Err(RowFault::UnknownBlock));
    assert_eq!(judged(false, &[(8, &[malloc(7, 8)])], &[]), Err(RowFault::UnknownBlock));
}

#[test]
fn a_write_without_an_operator_makes_a_new_value() {
    let write = row(Event::Write, 0, 0, Op::None);
    let original = [malloc(0, 8), write, write, read(0, 0), free(0)];
    let with = |at, added: &[Row]| judge(&Recorded::new(&original, 1), &changed(&original, &[(at, added)], &[]), false);
    let swapped = [out(0), free(0), malloc(0, 8), back(0)];
    assert_eq!(with(2, &swapped), Ok(()));
    assert_eq!(with(3, &swapped), Ok(()));
    let stale = [malloc(0, 8), write, out(0), write, back(0), read(0, 0), free(0)];
    assert_eq!(judge(&Recorded::new(&original, 1), &stale, false), Err(RowFault::OtherValue));
}

#[test]
fn a_block_without_a_size_is_unknown() {
    let recorded = Recorded::new(&ORIGINAL, 3);
    assert_eq!(judge(&recorded, &ORIGINAL, false), Ok(()));
    let with = |r| judge(&recorded, &changed(&ORIGINAL, &[(8, &[r])], &[]), false);
    assert_eq!(with(malloc(2, 0)), Err(RowFault::UnknownBlock));
    assert_eq!(with(malloc(5, 0)), Err(RowFault::UnknownBlock));
    // The recording has no blocks.
    assert_eq!(judge(&Recorded::new(&[], 0), &[malloc(0, 8)], false), Err(RowFault::UnknownBlock));
}

#[test]
fn a_weight_may_use_its_initial_copy_if_its_final_value_is_on_the_host() {
    let [away, gone, anew, home] = [out(0), free(0), malloc(0, 8), back(0)];
    let swapped: Added = (4, &[gone, anew, home]);
    assert_eq!(judged(true, &[swapped, (7, &[away])], &[]), Ok(()));
    assert_eq!(judged(true, &[swapped], &[]), Err(RowFault::EndNotRestored));
    assert_eq!(judged(false, &[swapped, (7, &[away])], &[]), Err(RowFault::NotOnHost));
    // A weight that is on the device at the start has to be there at the end.
    assert_eq!(judged(true, &[(7, &[away, gone])], &[]), Err(RowFault::EndNotRestored));
    // A copy that is made in the iteration does not count as the initial copy.
    assert_eq!(judged(true, &[(2, &[away]), swapped], &[]), Ok(()));
}

#[test]
fn a_weight_that_begins_on_the_host_has_to_end_there() {
    let [gone, anew] = [free(0), malloc(0, 8)];
    // A weight that is allocated after a copy of another block does not begin on the device.
    let second = [weight(0, 8), weight(1, 8), read(0, 0), read(1, 1)];
    let recorded = Recorded::new(&second, 2);
    let with_copies = [anew, out(0), malloc(1, 8), second[2], second[3]];
    assert_eq!(judge(&recorded, &with_copies, true), Err(RowFault::OtherValue));
    let brought_too = [anew, out(0), malloc(1, 8), back(1), second[2], second[3]];
    assert_eq!(judge(&recorded, &brought_too, true), Ok(()));
    assert_eq!(judge(&recorded, &brought_too, false), Err(RowFault::NotOnHost));
    // Nor does a weight begin on the device that is allocated after an access.
    let after_access = [anew, second[2], malloc(1, 8), second[3]];
    assert_eq!(judge(&recorded, &after_access, true), Err(RowFault::OtherValue));
    // A weight that is on the host at the start has to be there with its final value at the end.
    let updated = [weight(0, 8), weight(1, 8), read(0, 0), read(1, 1), write(1, 1)];
    let with = |end: &[Row]| {
        let mut rows = vec![anew, updated[2], malloc(1, 8), back(1), updated[3], updated[4]];
        rows.extend(end);
        judge(&Recorded::new(&updated, 2), &rows, true)
    };
    assert_eq!(with(&[]), Err(RowFault::EndNotRestored));
    assert_eq!(with(&[out(1)]), Ok(()));
    // A weight that is never on the device keeps its initial value, which the host has if iterations repeat.
    let unused = [weight(0, 8), weight(1, 8), read(0, 0)];
    let recorded = Recorded::new(&unused, 2);
    assert_eq!(judge(&recorded, &[unused[0], unused[2]], true), Ok(()));
    assert_eq!(judge(&recorded, &[unused[0], unused[2]], false), Err(RowFault::EndNotRestored));
    // A weight that begins on the device and is freed there is not restored.
    assert_eq!(judge(&recorded, &[unused[0], unused[1], unused[2], gone], true), Err(RowFault::EndNotRestored));
    let undefined = [unused[0], unused[1], unused[2], gone, anew];
    assert_eq!(judge(&recorded, &undefined, true), Err(RowFault::EndNotRestored));
}

#[test]
fn a_weight_that_is_allocated_after_a_recomputed_operator_begins_on_the_host() {
    let rows = [weight(0, 8), malloc(1, 8), write(1, 0), read(0, 1), read(1, 1)];
    let recorded = Recorded::new(&rows, 2);
    let early = [malloc(1, 8), again(write(1, 0)), free(1)];
    assert_eq!(judge(&recorded, &changed(&rows, &[(1, &early)], &[]), true), Ok(()));
    assert_eq!(judge(&recorded, &changed(&rows, &[(0, &early)], &[]), true), Err(RowFault::OtherValue));
    assert_eq!(judge(&recorded, &changed(&rows, &[(0, &early), (1, &[back(0)])], &[]), true), Ok(()));
}

#[test]
fn a_weight_has_its_initial_value_only_until_it_is_freed() {
    let rows = [weight(0, 8), read(0, 0)];
    let with = |more: &[Row]| judge(&Recorded::new(&rows, 1), &changed(&rows, &[(1, more)], &[]), true);
    assert_eq!(with(&[free(0), malloc(0, 8)]), Err(RowFault::OtherValue));
    assert_eq!(with(&[free(0), malloc(0, 8), back(0)]), Ok(()));
}

const WRITES: [Row; 10] = [
    malloc(0, 8),
    write(0, 0),
    malloc(1, 8),
    write(1, 1),
    write(1, 1),
    read(1, 2),
    read(0, 2),
    write(0, 2),
    read(0, 3),
    read(1, 3),
];

#[test]
fn values_follow_writes_and_copies() {
    let recorded = Recorded::new(&WRITES, 2);
    let of = |changes: &[Added]| judge(&recorded, &changed(&WRITES, changes, &[]), false);
    assert_eq!(of(&[]), Ok(()));
    // A copy from before operator 2 does not have the value that operator 2 writes to block 0.
    assert_eq!(of(&[(2, &[out(0)]), (8, &[back(0)])]), Err(RowFault::OtherValue));
    // Of two copies to the host the later counts.
    assert_eq!(of(&[(2, &[out(0)]), (8, &[out(0), back(0)])]), Ok(()));
    // Operator 0, recomputed, gives block 0 its first value.
    let rerun = [again(write(0, 0))];
    assert_eq!(of(&[(5, &rerun)]), Ok(()));
    assert_eq!(of(&[(8, &rerun)]), Err(RowFault::OtherValue));
    // Both writes of operator 1 make one value; recomputed with one write, the operator is not complete.
    assert_eq!(of(&[(8, &[again(write(1, 1)), again(write(1, 1))])]), Ok(()));
    assert_eq!(of(&[(8, &[again(write(1, 1))])]), Err(RowFault::OtherAccess));
    // An operator that is recomputed from other inputs writes undefined values.
    let third = [again(read(1, 2)), again(read(0, 2)), again(write(0, 2))];
    assert_eq!(of(&[(8, &third)]), Err(RowFault::OtherValue));
    let restored = [rerun[0], third[0], third[1], third[2]];
    assert_eq!(of(&[(8, &restored)]), Ok(()));
    // A recomputed operator that is open at the end is not complete.
    assert_eq!(of(&[(10, &third[..1])]), Err(RowFault::AccessesMissing));
    // No operator has this number.
    assert_eq!(of(&[(8, &[again(read(0, 9))])]), Err(RowFault::OtherAccess));
}

#[test]
fn an_operator_that_read_undefined_memory_yields_nothing_when_it_runs_again() {
    let rows = [malloc(0, 8), malloc(1, 8), read(0, 0), write(1, 0), read(1, 1)];
    let recorded = Recorded::new(&rows, 2);
    assert_eq!(judge(&recorded, &rows, false), Ok(()));
    let twice = changed(&rows, &[(4, &[again(rows[2]), again(rows[3])])], &[]);
    assert_eq!(judge(&recorded, &twice, false), Err(RowFault::OtherValue));
}

#[test]
fn an_operator_that_reads_another_value_after_its_write_yields_nothing() {
    let rows = [weight(0, 8), malloc(1, 8), write(1, 0), read(0, 0), write(0, 1), read(1, 2)];
    let recorded = Recorded::new(&rows, 2);
    let with = |at| judge(&recorded, &changed(&rows, &[(at, &[again(rows[2]), again(rows[3])])], &[]), false);
    assert_eq!(with(4), Ok(()));
    assert_eq!(with(5), Err(RowFault::OtherValue));
}

#[test]
fn accesses_without_an_operator() {
    let loose = |event| row(event, 0, 0, ONCE);
    let rows = [malloc(0, 8), loose(Event::Write), loose(Event::Read), read(0, 0)];
    let recorded = Recorded::new(&rows, 1);
    assert_eq!(judge(&recorded, &rows, false), Ok(()));
    // The access without an operator reads undefined memory, and so does the operator after it, which is refused.
    let lost = changed(&rows, &[(2, &[free(0), malloc(0, 8)])], &[]);
    assert_eq!(judge(&recorded, &lost, false), Err(RowFault::OtherValue));
    let kept = changed(&rows, &[(2, &[out(0), free(0), malloc(0, 8)]), (3, &[back(0)])], &[]);
    assert_eq!(judge(&recorded, &kept, false), Ok(()));
}

#[test]
fn an_operator_may_run_again_only_where_it_is_said() {
    let operators = [Operator { rerun: false, ..Operator::default() }];
    let twice = changed(&WRITES, &[(5, &[again(write(0, 0))])], &[]);
    let recorded = Recorded::new(&WRITES, 2);
    assert_eq!(judge(&recorded, &twice, false), Ok(()));
    assert_eq!(judge(&Recorded { operators: &operators, ..recorded }, &twice, false), Err(RowFault::MayNotRerun));
}

#[test]
fn what_an_operator_updates_is_left_out_when_it_runs_again() {
    let rows = [weight(0, 8), weight(1, 8), malloc(2, 8), read(1, 0), read(0, 0), write(0, 0), write(2, 0), read(2, 1)];
    let recorded = Recorded::new(&rows, 3);
    let with = |more: &[Row]| judge(&recorded, &changed(&rows, &[(7, more)], &[]), false);
    assert_eq!(with(&[again(read(1, 0)), again(write(2, 0))]), Ok(()));
    let all: Vec<Row> = rows[3..7].iter().copied().map(again).collect();
    assert_eq!(with(&all), Err(RowFault::OtherAccess));
    assert_eq!(with(&[again(write(2, 0))]), Err(RowFault::OtherAccess));
}

const RECTIFIER: [Row; 11] = [
    malloc(0, 6400),
    write(0, 0),
    malloc(1, 64),
    read(0, 1),
    write(1, 1),
    malloc(2, 64),
    read(0, 2),
    write(2, 2),
    free(0),
    free(1),
    free(2),
];
const MASK: u32 = 3;

const fn of_kinds(kinds: [Kind; 3]) -> [Operator; 3] {
    let [a, b, c] = kinds;
    let other = Operator { in_place: false, rerun: true, ordered: true, kind: Kind::Other, element: 4 };
    [Operator { kind: a, ..other }, Operator { kind: b, ..other }, Operator { kind: c, ..other }]
}

const RELU: [Operator; 3] = of_kinds([Kind::Relu, Kind::Other, Kind::ReluBackward]);

fn masked(operators: &[Operator], changes: &[Added], without: &[usize]) -> Result<(), RowFault> {
    let rows = changed(&RECTIFIER, changes, without);
    judge(&Recorded { rows: &RECTIFIER, operators, blocks: 3 }, &rows, true)
}

/// Operator 0 makes blocks 0 and 1, operator 1 writes a part of block 0, operators 2 and 3 read.
#[test]
fn a_block_that_others_write_later_is_not_made_anew_alone() {
    let rows = [
        malloc(0, 8),
        malloc(1, 8),
        write(0, 0),
        write(1, 0),
        read(0, 1),
        write(0, 1),
        read(1, 2),
        read(0, 3),
        read(1, 3),
        free(0),
        free(1),
    ];
    let (maker, filler) = ([again(rows[2]), again(rows[3])], [again(rows[4]), again(rows[5])]);
    let judged =
        |added: &[&[Row]]| judge(&Recorded::new(&rows, 2), &changed(&rows, &[(7, &added.concat())], &[]), false);
    assert_eq!(judged(&[]), Ok(()));
    for lost in [0, 1] {
        let anew = [free(lost), malloc(lost, 8)];
        assert_eq!(judged(&[&anew, &maker, &filler]), Ok(()), "{lost}");
        assert_eq!(judged(&[&anew, &maker]), Err(RowFault::OtherValue), "{lost}");
    }
}

/// Operator 1 frees blocks 1 and 0 while it runs, and allocates block 2 between the two.
#[test]
fn inside_an_operator_a_malloc_stays_after_the_frees_before_it_and_before_those_after_it() {
    let rows = [
        malloc(0, 8),
        write(0, 0),
        malloc(1, 8),
        write(1, 0),
        read(0, 1),
        read(1, 1),
        free(1),
        malloc(2, 8),
        free(0),
        write(2, 1),
        read(2, 2),
        free(2),
    ];
    let judged = |inside: [usize; 3]| {
        let order = [&[0, 1, 2, 3, 4, 5], &inside[..], &[9, 10, 11]].concat();
        judge(&Recorded::new(&rows, 3), &order.iter().map(|&i| rows[i]).collect::<Vec<_>>(), false)
    };
    for kept in [[6, 7, 8], [7, 6, 8], [7, 8, 6]] {
        assert_eq!(judged(kept), Ok(()), "{kept:?}");
    }
    // Block 2 could lie over block 0, which the operator still holds.
    for moved in [[6, 8, 7], [8, 6, 7], [8, 7, 6]] {
        assert_eq!(judged(moved), Err(RowFault::InsideOperator), "{moved:?}");
    }
}

#[test]
fn a_mask_is_made_by_a_rectifier_and_read_by_its_gradient() {
    // The mask is written before row 2, block 0 is freed before row 5, and the gradient reads the mask in the place of
    // block 0.
    let made = [malloc(MASK, 200), write(MASK, 0)];
    let (reads, frees): (Added, Added) = ((6, &[read(MASK, 2)]), (8, &[free(MASK)]));
    let (early, left): (Added, [usize; 2]) = ((5, &[free(0)]), [6, 8]);
    assert_eq!(masked(&RELU, &[(2, &made), early, reads, frees], &left), Ok(()));
    let small = [malloc(MASK, 199), write(MASK, 0)];
    assert_eq!(masked(&RELU, &[(2, &small), early, reads, frees], &left), Err(RowFault::MaskTooSmall));
    let other = of_kinds([Kind::Relu, Kind::Other, Kind::Other]);
    assert_eq!(masked(&other, &[(2, &made), early, reads, frees], &left), Err(RowFault::OtherAccess));
    let other = of_kinds([Kind::Other, Kind::Other, Kind::ReluBackward]);
    assert_eq!(masked(&other, &[(2, &made), early, reads, frees], &left), Err(RowFault::MaskElsewhere));
    // The mask is written one operator later, or before the ReLU.
    assert_eq!(masked(&RELU, &[(5, &made), early, reads, frees], &left), Err(RowFault::MaskElsewhere));
    assert_eq!(masked(&RELU, &[(1, &made), early, reads, frees], &left), Err(RowFault::MaskElsewhere));
    // The write of the mask has the number of the next operator, not of the ReLU that has just run.
    let by_other = [malloc(MASK, 200), write(MASK, 1)];
    assert_eq!(masked(&RELU, &[(2, &by_other), early, reads, frees], &left), Err(RowFault::MaskElsewhere));
    // The mask is of a block that the ReLU does not touch.
    let of_other = [malloc(MASK + 1, 200), write(MASK + 1, 0)];
    assert_eq!(masked(&RELU, &[(2, &of_other)], &[]), Err(RowFault::MaskElsewhere));
    // Operator 1, which is no gradient of a ReLU, reads the mask; the gradient writes the mask; the gradient reads the
    // mask of the block that it writes.
    assert_eq!(masked(&RELU, &[(2, &made), (3, &[read(MASK, 1)])], &[3]), Err(RowFault::OtherAccess));
    assert_eq!(masked(&RELU, &[(2, &made), (7, &[write(MASK, 2)])], &[7]), Err(RowFault::OtherAccess));
    let of_output = [malloc(MASK + 2, 200), read(MASK + 2, 2)];
    assert_eq!(masked(&RELU, &[(6, &of_output[..1]), (6, &of_output[1..])], &[6]), Err(RowFault::OtherAccess));
    // Nothing was written to the mask.
    assert_eq!(masked(&RELU, &[(2, &made[..1]), early, reads, frees], &left), Err(RowFault::OtherValue));
    // The mask is lost on the way; it goes to the host and comes back; it comes back without having gone.
    let lost = [free(MASK), malloc(MASK, 200)];
    assert_eq!(masked(&RELU, &[(2, &made), (5, &lost), reads, frees], &[6]), Err(RowFault::OtherValue));
    let swapped = [out(MASK), free(MASK), malloc(MASK, 200), back(MASK)];
    assert_eq!(masked(&RELU, &[(2, &made), (5, &swapped), reads, frees], &[6]), Ok(()));
    assert_eq!(masked(&RELU, &[(2, &made), (5, &swapped[1..]), reads, frees], &[6]), Err(RowFault::NotOnHost));
    // The mask does not restore the block.
    assert_eq!(masked(&RELU, &[(2, &made), early, (6, &[malloc(0, 6400)])], &[]), Err(RowFault::OtherValue));
}

#[test]
fn a_mask_is_as_long_as_the_elements_ask() {
    let of = |element: [u8; 3]| [0, 1, 2].map(|k| Operator { element: element[k], ..RELU[k] });
    let judged = |operators: &[Operator], first: u64, then: u64| {
        let made = [malloc(MASK, first), write(MASK, 0)];
        let swapped = [out(MASK), free(MASK), malloc(MASK, then), back(MASK), free(0)];
        masked(operators, &[(2, &made), (5, &swapped), (6, &[read(MASK, 2)]), (8, &[free(MASK)])], &[6, 8])
    };
    for (element, bytes) in [(1, 800), (2, 400), (4, 200), (8, 200)] {
        // The element sizes of the other operators do not matter.
        let operators = of([element, 1, 1]);
        assert_eq!(judged(&operators, bytes, bytes), Ok(()));
        assert_eq!(judged(&operators, bytes - 1, bytes), Err(RowFault::MaskTooSmall));
        assert_eq!(judged(&operators, bytes, bytes - 1), Err(RowFault::MaskTooSmall));
    }
    // Of two ReLU operators that access the block, the one with more elements counts, whichever comes first.
    let two = of_kinds([Kind::Relu, Kind::Relu, Kind::ReluBackward]);
    for elements in [[1, 4, 4], [4, 1, 4]] {
        let operators = [0, 1, 2].map(|k| Operator { element: elements[k], ..two[k] });
        assert_eq!(judged(&operators, 800, 800), Ok(()));
        assert_eq!(judged(&operators, 799, 800), Err(RowFault::MaskTooSmall));
    }
}

#[test]
fn a_rectifier_that_runs_again_may_make_its_mask_then() {
    let rerun = [free(0), malloc(0, 6400), again(write(0, 0)), malloc(MASK, 200), again(write(MASK, 0)), free(0)];
    let (reads, frees): (Added, Added) = ((6, &[read(MASK, 2)]), (8, &[free(MASK)]));
    assert_eq!(masked(&RELU, &[(5, &rerun), reads, frees], &[6, 8]), Ok(()));
    // The mask's write has the number of the ReLU's first run, not of the recomputed ReLU that has just run.
    let first = [rerun[0], rerun[1], rerun[2], rerun[3], write(MASK, 0), rerun[5]];
    assert_eq!(masked(&RELU, &[(5, &first), reads, frees], &[6, 8]), Err(RowFault::MaskElsewhere));
}

#[test]
fn a_mask_is_of_one_value() {
    let rows = [malloc(0, 6400), write(0, 0), write(0, 1), malloc(1, 64), read(0, 2), write(1, 2)];
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 2 };
    let mask = [malloc(2, 200), write(2, 0)];
    let early = changed(&rows, &[(2, &mask), (4, &[read(2, 2)])], &[4]);
    assert_eq!(judge(&recorded, &early, false), Err(RowFault::OtherValue));
}

#[test]
fn a_mask_of_what_a_rectifier_updates() {
    let rows = [weight(0, 6400), read(0, 0), write(0, 0), malloc(1, 64), read(0, 2), write(1, 2)];
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 2 };
    let mask = [malloc(2, 200), write(2, 0)];
    assert_eq!(judge(&recorded, &changed(&rows, &[(3, &mask), (4, &[read(2, 2)])], &[4]), false), Ok(()));
}

#[test]
fn a_mask_of_an_undefined_value_is_none() {
    let rows = [malloc(0, 6400), malloc(1, 64), read(0, 0), write(1, 0), malloc(2, 64), read(0, 2), write(2, 2)];
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 3 };
    assert_eq!(judge(&recorded, &rows, false), Ok(()));
    let mask = [malloc(MASK, 200), write(MASK, 0)];
    let rewritten = changed(&rows, &[(4, &mask), (5, &[read(MASK, 2)])], &[5]);
    assert_eq!(judge(&recorded, &rewritten, false), Err(RowFault::OtherValue));
}

#[test]
fn the_write_of_a_mask_waits_for_copies() {
    let rows = [malloc(0, 6400), write(0, 0), malloc(1, 64), read(0, 2), write(1, 2)];
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 2 };
    let begin = |mask: &[Row]| {
        let rewritten = changed(&rows, &[(2, mask)], &[]);
        assert_eq!(judge(&recorded, &rewritten, false), Ok(()));
        let len = simulate::workspace(rows.len(), 2);
        let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
        let mut timings = vec![Timing::default(); rewritten.len()];
        let device = Device { out_latency: 100.0, in_latency: 10.0, ..Device::symmetric(1e18) };
        let scratch = Workspace::new(&mut words, &mut indices);
        simulate::simulate(&recorded, &rewritten, &device, scratch, &mut timings).unwrap();
        let last = rewritten.iter().rposition(|r| (r.event, r.block) == (Event::Write, 2)).unwrap();
        (timings[last].begin - timings[1].end).round()
    };
    let [made, made_again] = [malloc(2, 200), write(2, 0)];
    for (mask, wait) in [
        (&[made, made_again][..], 0.0),
        (&[out(0), made, made_again], 0.0),
        (&[out(0), back(0), made, made_again], 110.0),
        (&[made, made_again, out(2), made_again], 100.0),
        (&[made, made_again, out(2), back(2), made_again], 110.0),
    ] {
        assert_eq!(begin(mask).to_bits(), f64::to_bits(wait), "{mask:?}");
    }
}

#[test]
fn a_mask_has_its_place_in_the_plan() {
    let rows =
        [malloc(2, 6400), write(2, 0), malloc(0, 64), read(2, 1), write(0, 1), malloc(1, 64), read(2, 2), write(1, 2)];
    let mask = [malloc(5, 200), write(5, 0)];
    let rewritten = changed(&rows, &[(2, &mask), (5, &[free(2)]), (6, &[read(5, 2)])], &[6]);
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 3 };
    let judged = |offsets: [u64; 4]| judge_plan(&recorded, &rewritten, &offsets, &Device::symmetric(12e9), false);
    assert_eq!(judged([0, 6400, 6600, 0]).map(|run| run.peak_load), Ok(6664));
    // The gradient's output lies over the mask that the gradient reads.
    assert!(matches!(judged([0, 6400, 6600, 6400]), Err(Error::Invalid(_))));
}

#[test]
fn a_mask_of_a_weight_is_not_on_the_host_at_the_start() {
    let rows = [weight(0, 6400), read(0, 0), malloc(1, 64), read(0, 2), write(1, 2)];
    let recorded = Recorded { rows: &rows, operators: &RELU, blocks: 2 };
    let with = |mask: &[Row]| judge(&recorded, &changed(&rows, &[(2, mask), (3, &[read(2, 2)])], &[3]), true);
    assert_eq!(with(&[malloc(2, 200), write(2, 0)]), Ok(()));
    assert_eq!(with(&[malloc(2, 200), back(2)]), Err(RowFault::NotOnHost));
}

#[test]
fn a_recording_has_each_malloc_once_no_copies_and_whole_operators() {
    let judged = |rows: &[Row]| judge(&Recorded::new(rows, 2), rows, false);
    assert_eq!(judged(&[malloc(0, 8), write(0, 0), free(0), malloc(0, 8)]), Err(RowFault::NotRecorded));
    assert_eq!(judged(&[malloc(0, 8), write(0, 0), out(0)]), Err(RowFault::NotRecorded));
    assert_eq!(judged(&[malloc(0, 8), write(0, 0), back(0)]), Err(RowFault::NotRecorded));
    assert_eq!(judged(&[malloc(0, 8), write(0, 0), write(0, 1), write(0, 0)]), Err(RowFault::NotRecorded));
    assert_eq!(judged(&[malloc(0, 8), again(write(0, 0))]), Err(RowFault::NotRecorded));
    assert_eq!(judged(&[malloc(2, 8)]), Err(RowFault::UnknownBlock));
}

#[test]
fn the_host_holds_what_is_copied() {
    let rows = changed(&ORIGINAL, &[(4, &[out(1), free(1), malloc(1, 8), back(1)])], &[]);
    let recorded = Recorded::new(&ORIGINAL, 2);
    let on = |host_capacity| {
        let device = Device { host_capacity, ..Device::symmetric(12e9) };
        judge_plan(&recorded, &rows, &[0, 8, 8], &device, false).map(|run| run.host_bytes)
    };
    assert_eq!(on(None), Ok(8));
    assert_eq!(on(Some(8)), Ok(8));
    assert_eq!(on(Some(7)), Err(Error::HostTooSmall { needed: 8, capacity: 7 }));
}

#[test]
fn what_is_no_device_and_what_is_too_short_is_refused() {
    let recorded = Recorded::new(&ORIGINAL, 2);
    let device = Device::symmetric(12e9);
    let broken = Device { in_bandwidth: 0.0, ..device };
    assert_eq!(judge_plan(&recorded, &ORIGINAL, &[0, 8], &broken, false), Err(Error::Device));
    let many = Recorded::new(&ORIGINAL, block::MAX_BLOCKS + 1);
    let len = workspace(ORIGINAL.len(), 2, 2);
    let ask = |recorded: &Recorded<'_>, [words, indices, timings, blocks, names]: [usize; 5]| {
        let (mut words, mut indices) = (vec![0; words], vec![0; indices]);
        let mut timings = vec![Timing::default(); timings];
        let (mut blocks, mut names) = (vec![Block::default(); blocks], vec![Residency::default(); names]);
        let room = Room { timings: &mut timings, blocks: &mut blocks, names: &mut names };
        let scratch = Workspace::new(&mut words, &mut indices);
        schedule(recorded, &ORIGINAL, &[0, 8], (&device, false), &Constraints::NONE, scratch, room).map(|_| ())
    };
    let enough = [len.words, len.indices, 8, 2, 2];
    assert_eq!(ask(&recorded, enough), Ok(()));
    assert!(matches!(ask(&many, enough), Err(Error::TooManyBlocks { .. })));
    let short = |buffer, needed, got| Err(Error::BufferTooSmall { buffer, needed, got });
    assert_eq!(ask(&recorded, [len.words - 1, len.indices, 8, 2, 2]), short(Buffer::Words, len.words, len.words - 1));
    let got = len.indices - 1;
    assert_eq!(ask(&recorded, [len.words, got, 8, 2, 2]), short(Buffer::Indices, len.indices, got));
    assert_eq!(ask(&recorded, [len.words, len.indices, 7, 2, 2]), short(Buffer::Timings, 8, 7));
    assert_eq!(ask(&recorded, [len.words, len.indices, 8, 1, 2]), short(Buffer::Blocks, 2, 1));
    assert_eq!(ask(&recorded, [len.words, len.indices, 8, 2, 3]), short(Buffer::Blocks, 2, 3));
}

#[test]
fn the_plan_is_judged_too() {
    let recorded = Recorded::new(&ORIGINAL, 2);
    let judged = judge_plan(&recorded, &ORIGINAL, &[0, 4], &Device::symmetric(12e9), false);
    assert!(matches!(judged, Err(Error::Invalid(super::super::Violation::Overlap { .. }))));
}

#[test]
fn a_recomputed_operator_takes_its_whole_time() {
    let at = |time_ns, r: Row| Row { time_ns, ..r };
    // Block 0 is a statistic that operator 0 updates; block 1 is its output.
    let [old, new, output] = [read(0, 0), write(0, 0), write(1, 0)];
    for accesses in [[old, new, output], [output, old, new], [old, output, new]] {
        let [first, second, third] = accesses;
        let accesses = [at(10, first), at(30, second), at(40, third)];
        let begin = [weight(0, 8), at(5, malloc(1, 8))];
        let end = [at(50, read(1, 1)), at(60, free(1))];
        let rows = [&begin[..], &accesses, &end].concat();
        let rerun = [free(1), malloc(1, 8), again(output)].map(|r| at(45, r));
        let rewritten = [&begin[..], &accesses, &rerun, &end].concat();
        let run = judge_plan(&Recorded::new(&rows, 2), &rewritten, &[0, 8, 8], &Device::symmetric(1e9), false).unwrap();
        assert_eq!(run.recomputed_ns, 30, "{accesses:?}");
    }
}
