//! The order in which operators may stand, and the time that they take with them.

use super::*;

const UPDATES: [Row; 14] = [
    weight(0, 8),
    weight(1, 8),
    malloc(2, 8),
    Row { time_ns: 2, ..read(0, 0) },
    Row { time_ns: 3, ..write(2, 0) },
    malloc(3, 8),
    Row { time_ns: 5, ..read(2, 1) },
    Row { time_ns: 9, ..write(3, 1) },
    Row { time_ns: 10, ..read(3, 2) },
    Row { time_ns: 10, ..write(1, 2) },
    Row { time_ns: 13, ..read(2, 3) },
    Row { time_ns: 13, ..write(0, 3) },
    free(2),
    Row { time_ns: 20, ..free(3) },
];

fn moved(ordered: [bool; 4], order: &[usize]) -> Result<(), RowFault> {
    let operators = ordered.map(|ordered| Operator { ordered, ..Operator::default() });
    let recorded = Recorded { rows: &UPDATES, operators: &operators, blocks: 4 };
    let rows: Vec<Row> = order.iter().map(|&i| UPDATES[i]).collect();
    judge(&recorded, &rows, false)
}

#[test]
fn operators_stand_in_any_order_in_which_each_reads_its_values() {
    let early = [0, 1, 2, 3, 4, 10, 11, 5, 6, 7, 12, 8, 9, 13];
    assert_eq!(moved([false; 4], &early), Ok(()));
    // An ordered operator keeps its place among the ordered operators, and not among all.
    assert_eq!(moved([true, true, true, false], &early), Ok(()));
    assert_eq!(moved([false, false, true, true], &early), Err(RowFault::OtherAccess));
    assert_eq!(moved([true; 4], &early), Err(RowFault::OtherAccess));
    // A read of a weight has to come before its update, and a read of a gradient after the gradient is made.
    let update_first = [0, 1, 2, 5, 10, 11, 3, 4, 6, 7, 8, 9, 12, 13];
    assert_eq!(moved([false; 4], &update_first), Err(RowFault::OtherValue));
    let before_gradient = [0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11, 12, 13];
    assert_eq!(moved([false; 4], &before_gradient), Err(RowFault::OtherValue));
    // Each operator runs once, and does all its accesses.
    assert_eq!(moved([false; 4], &[0, 1, 2, 3, 4, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]), Err(RowFault::OtherAccess));
    assert_eq!(moved([false; 4], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13]), Err(RowFault::AccessesMissing));
    assert_eq!(moved([false; 4], &[0, 1, 2, 3, 10, 11, 4, 5, 6, 7, 8, 9, 12, 13]), Err(RowFault::OtherAccess));
}

#[test]
fn accesses_without_an_operator_keep_their_order() {
    let loose = |event, block| Row { op: Op::None, ..row(event, block, 0, Op::None) };
    let rows = [malloc(0, 8), malloc(1, 8), loose(Event::Write, 0), loose(Event::Write, 1), read(0, 0), write(1, 1)];
    let operators = [Operator { ordered: false, ..Operator::default() }; 2];
    let recorded = Recorded { rows: &rows, operators: &operators, blocks: 2 };
    let in_order = |order: [usize; 6]| judge(&recorded, &order.map(|i| rows[i]), false);
    assert_eq!(in_order([0, 1, 2, 4, 3, 5]), Ok(()));
    assert_eq!(in_order([0, 1, 3, 2, 4, 5]), Err(RowFault::OtherAccess));
    // An ordered operator keeps its place among accesses without an operator, too.
    let ordered = Recorded { operators: &[], ..recorded };
    assert_eq!(judge(&ordered, &[0, 1, 2, 4, 3, 5].map(|i| rows[i]), false), Err(RowFault::OtherAccess));
}

#[test]
fn an_operator_takes_its_time_along() {
    let operators = [Operator { ordered: false, ..Operator::default() }; 4];
    let recorded = Recorded { rows: &UPDATES, operators: &operators, blocks: 4 };
    let rows = [0, 1, 2, 3, 4, 10, 11, 5, 6, 7, 12, 8, 9, 13].map(|i| UPDATES[i]);
    let mut timings = [Timing::default(); 14];
    let len = simulate::workspace(rows.len(), 4);
    let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
    let scratch = Workspace::new(&mut words, &mut indices);
    let run = simulate::simulate(&recorded, &rows, &Device::symmetric(12e9), scratch, &mut timings).unwrap();
    let expected = [0.0, 0.0, 0.0, 2.0, 3.0, 6.0, 6.0, 6.0, 8.0, 12.0, 12.0, 13.0, 13.0, 13.0];
    assert!(timings.iter().zip(expected).all(|(t, end)| (t.end - end).abs() < 1e-9), "{timings:?}");
    assert!((run.time_ns - 20.0).abs() < 1e-9);
}
