//! Operators that write an output over an input.

use super::*;

const IN_PLACE: [Row; 17] = [
    malloc(0, 64),
    write(0, 0),
    malloc(2, 64),
    write(2, 1),
    malloc(1, 64),
    read(0, 2),
    malloc(3, 8),
    write(3, 2),
    read(3, 2),
    free(3),
    read(2, 2),
    write(1, 2),
    free(0),
    free(2),
    read(1, 3),
    write(1, 3),
    free(1),
];

const MAY_BE_IN_PLACE: [Operator; 4] = {
    let other = Operator { in_place: false, rerun: true, ordered: true, kind: Kind::Other, element: 4 };
    let in_place = Operator { in_place: true, ..other };
    [other, other, in_place, in_place]
};

fn in_place(operators: &[Operator], rows: &[Row], offsets: &[u64]) -> Result<Run, Error> {
    judge_plan(&Recorded { rows: &IN_PLACE, operators, blocks: 4 }, rows, offsets, &Device::symmetric(12e9), false)
}

fn fault<T>(judged: &Result<T, Error>) -> Option<RowFault> {
    match *judged {
        Err(Error::Row { fault, .. }) => Some(fault),
        Ok(_) => None,
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn an_output_over_an_input_has_its_address() {
    // The offsets are those of blocks 0, 2, 3 and 1; block 1 lies in the place of block 0.
    let rows = changed(&IN_PLACE, &[(11, &[free(0), malloc(1, 64)])], &[4, 12]);
    assert_eq!(fault(&in_place(&MAY_BE_IN_PLACE, &rows, &[0, 64, 128, 0])), None);
    let elsewhere = in_place(&MAY_BE_IN_PLACE, &rows, &[0, 64, 192, 128]);
    assert_eq!(elsewhere, Err(Error::Row { row: 11, fault: RowFault::NotInPlace }));
    assert_eq!(fault(&in_place(&[], &rows, &[0, 64, 128, 0])), Some(RowFault::InsideOperator));
    // As recorded, nothing is in place, and the addresses may differ.
    assert_eq!(fault(&in_place(&MAY_BE_IN_PLACE, &IN_PLACE, &[0, 64, 128, 192])), None);
}

#[test]
fn an_output_has_the_address_that_its_input_has_now() {
    let before = [malloc(4, 8), free(4)];
    let recorded: Vec<Row> = before.iter().chain(&IN_PLACE).copied().collect();
    let original = Recorded { rows: &recorded, operators: &MAY_BE_IN_PLACE, blocks: 5 };
    let over: Added = (13, &[free(0), malloc(1, 64)]);
    let judged = |changes: &[Added], offsets: &[u64]| {
        let rows = changed(&recorded, changes, &[6, 14]);
        fault(&judge_plan(&original, &rows, offsets, &Device::symmetric(12e9), false))
    };
    // The offsets are those of blocks 4, 0, 2, 3 and 1; block 1 lies in the place of block 0.
    assert_eq!(judged(&[over], &[0, 0, 64, 128, 0]), None);
    assert_eq!(judged(&[over], &[0, 0, 64, 192, 128]), Some(RowFault::NotInPlace));
    // The offsets are those of blocks 4, 0, 2, 0 at another offset, 3 and 1.
    let moved: Added = (6, &[out(0), free(0), malloc(0, 64), back(0)]);
    assert_eq!(judged(&[moved, over], &[0, 0, 64, 128, 192, 128]), None);
    assert_eq!(judged(&[moved, over], &[0, 0, 64, 128, 192, 0]), Some(RowFault::NotInPlace));
}

#[test]
fn an_input_is_given_up_after_the_reads_and_for_the_first_output_alone() {
    let judged = |changes: &[Added], without: &[usize]| {
        let rows = changed(&IN_PLACE, changes, without);
        judge(&Recorded { rows: &IN_PLACE, operators: &MAY_BE_IN_PLACE, blocks: 4 }, &rows, false)
    };
    let over = [free(0), malloc(1, 64)];
    assert_eq!(judged(&[(11, &over)], &[4, 12]), Ok(()));
    // The operator has still to read block 2.
    assert_eq!(judged(&[(10, &over)], &[4, 12]), Err(RowFault::InsideOperator));
    // Block 2 is not the first that it reads.
    assert_eq!(judged(&[(11, &[free(2), malloc(1, 64)])], &[4, 13]), Err(RowFault::InsideOperator));
    // Block 0 is not freed, or block 1 is not allocated directly after.
    assert_eq!(judged(&[(11, &[malloc(1, 64)])], &[4]), Err(RowFault::InsideOperator));
    assert_eq!(judged(&[(11, &[free(0)])], &[12]), Err(RowFault::InsideOperator));
    assert_eq!(judged(&[(11, &[free(0), free(2), malloc(1, 64)])], &[4, 12, 13]), Err(RowFault::InsideOperator));
    assert_eq!(judged(&[(11, &[free(0), malloc(3, 8), malloc(1, 64)])], &[4, 12]), Err(RowFault::InsideOperator));
    // A mask cannot be an operator's own block.
    assert_eq!(judged(&[(11, &[malloc(7, 8)])], &[]), Err(RowFault::InsideOperator));
    // The operator's own block is not copied between its accesses.
    assert_eq!(judged(&[(8, &[out(3)])], &[]), Err(RowFault::InsideOperator));
    // Another operator's own block is not allocated there.
    assert_eq!(judged(&[(15, &[malloc(3, 8), free(3)])], &[]), Err(RowFault::InsideOperator));
    // Operator 3 writes the block that it reads: its output is no other block.
    assert_eq!(judged(&[(15, &[free(1), malloc(1, 64)])], &[]), Err(RowFault::InsideOperator));
}

#[test]
fn an_output_of_another_size_is_not_in_place() {
    let sized = |bytes| {
        let rows: Vec<Row> = IN_PLACE
            .iter()
            .map(|r| Row { bytes: if r.block == 1 && r.bytes > 0 { bytes } else { r.bytes }, ..*r })
            .collect();
        let rewritten = changed(&rows, &[(11, &[free(0), malloc(1, bytes)])], &[4, 12]);
        judge(&Recorded { rows: &rows, operators: &MAY_BE_IN_PLACE, blocks: 4 }, &rewritten, false)
    };
    assert_eq!(sized(64), Ok(()));
    assert_eq!(sized(56), Err(RowFault::InsideOperator));
    assert_eq!(sized(72), Err(RowFault::InsideOperator));
}

#[test]
fn an_operator_that_runs_again_hands_over_as_the_first_time() {
    let rows = [
        weight(0, 64),
        malloc(1, 64),
        write(1, 0),
        malloc(2, 64),
        read(1, 1),
        read(0, 1),
        write(0, 1),
        write(2, 1),
        read(2, 2),
        free(1),
        free(2),
    ];
    let recorded = Recorded { rows: &rows, operators: &MAY_BE_IN_PLACE[1..], blocks: 3 };
    let judged = |more: &[Row], without: &[usize]| judge(&recorded, &changed(&rows, &[(8, more)], without), false);
    let [reads, writes] = [again(read(1, 1)), again(write(2, 1))];
    assert_eq!(judged(&[free(2), malloc(2, 64), reads, writes], &[]), Ok(()));
    assert_eq!(judged(&[free(2), reads, free(1), malloc(2, 64), writes], &[9]), Err(RowFault::InsideOperator));
}

#[test]
fn a_free_inside_an_operator_stays_behind_the_mallocs_before_it() {
    let rows = [
        malloc(0, 64),
        write(0, 0),
        read(0, 1),
        malloc(1, 64),
        write(1, 1),
        free(0),
        malloc(2, 64),
        write(2, 1),
        read(1, 2),
        read(2, 2),
    ];
    let recorded = Recorded::new(&rows, 3);
    let ordered = |order: &[usize], offsets: &[u64]| {
        let rewritten: Vec<Row> = order.iter().map(|&i| rows[i]).collect();
        fault(&judge_plan(&recorded, &rewritten, offsets, &Device::symmetric(12e9), false))
    };
    assert_eq!(ordered(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], &[0, 64, 0]), None);
    assert_eq!(ordered(&[0, 1, 2, 5, 3, 4, 6, 7, 8, 9], &[0, 0, 64]), Some(RowFault::InsideOperator));
    // What is harmless: a malloc ahead of a read, of a write or of a free, and a free ahead of a write.
    assert_eq!(ordered(&[0, 1, 3, 2, 4, 5, 6, 7, 8, 9], &[0, 64, 0]), None);
    assert_eq!(ordered(&[0, 1, 2, 3, 6, 4, 5, 7, 8, 9], &[0, 64, 128]), None);
    assert_eq!(ordered(&[0, 1, 2, 3, 5, 4, 6, 7, 8, 9], &[0, 64, 0]), None);
}

#[test]
fn an_operator_frees_between_its_accesses_only_what_it_frees_there_in_the_recording() {
    let rows = [malloc(0, 64), write(0, 0), malloc(1, 64), write(1, 0), malloc(2, 64), write(2, 0), read(2, 1)];
    let recorded = Recorded::new(&rows, 3);
    let judged =
        |rows: &[Row], offsets: &[u64]| fault(&judge_plan(&recorded, rows, offsets, &Device::symmetric(12e9), false));
    assert_eq!(judged(&rows, &[0, 64, 128]), None);
    assert_eq!(judged(&changed(&rows, &[(4, &[free(1)])], &[]), &[0, 64, 64]), Some(RowFault::InsideOperator));
}
