use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn run(blocks: &[Block], uses: &[Use], banks: &[Bank]) -> Result<(Cost, Vec<Spot>), Error> {
    let len = workspace(blocks.len());
    let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
    let mut spots = vec![Spot::default(); blocks.len()];
    place(blocks, uses, banks, Workspace::new(&mut words, &mut indices), &mut spots).map(|cost| (cost, spots))
}

fn is_valid(blocks: &[Block], uses: &[Use], banks: &[Bank], spots: &[Spot]) -> bool {
    blocks.iter().zip(spots).enumerate().all(|(i, (b, spot))| {
        let bank = banks[spot.bank as usize];
        let mut beside = blocks.iter().zip(spots).take(i).filter(|(_, o)| o.bank == spot.bank);
        uses[i].banks >> spot.bank & 1 == 1
            && may_lie(b, spot.offset, &bank)
            && beside.all(|(c, o)| apart(b, spot.offset, c, o.offset))
    })
}

fn may_lie(b: &Block, offset: u64, bank: &Bank) -> bool {
    let aligned = offset.is_multiple_of(bank.alignment) && offset.is_multiple_of(b.alignment);
    aligned && offset + b.size <= bank.capacity && b.pin.is_none_or(|pin| pin == offset)
}

fn apart(b: &Block, offset: u64, c: &Block, other: u64) -> bool {
    !b.collides(c) || offset + b.size <= other || other + c.size <= offset
}

/// Tries every offset of every block.
fn holds(bank: &Bank, members: &[Block], offsets: &mut Vec<u64>) -> bool {
    let Some(b) = members.get(offsets.len()) else { return true };
    (0..bank.capacity).any(|offset| {
        if !may_lie(b, offset, bank) || !members.iter().zip(&*offsets).all(|(c, &other)| apart(b, offset, c, other)) {
            return false;
        }
        offsets.push(offset);
        let found = holds(bank, members, offsets);
        offsets.pop();
        found
    })
}

/// Tries every choice of banks.
fn least(blocks: &[Block], uses: &[Use], banks: &[Bank]) -> Option<u128> {
    let choices = banks.len().pow(u32::try_from(blocks.len()).unwrap());
    let cost = |choice: usize| {
        let bank = |i: usize| choice / banks.len().pow(u32::try_from(i).unwrap()) % banks.len();
        let allowed = (0..blocks.len()).all(|i| uses[i].banks >> bank(i) & 1 == 1);
        let members = |k: usize| (0..blocks.len()).filter(|&i| bank(i) == k).map(|i| blocks[i]).collect::<Vec<_>>();
        let fits = allowed && (0..banks.len()).all(|k| holds(&banks[k], &members(k), &mut Vec::new()));
        fits.then(|| (0..blocks.len()).map(|i| u128::from(uses[i].touched * banks[bank(i)].cost)).sum())
    };
    (0..choices).filter_map(cost).min()
}

proptest! {
    #[test]
    fn few_blocks_are_decided_exactly(
        rows in prop::collection::vec((0u32..4, 1u32..4, 1u64..7, 0u64..20, 0u32..9, 0u32..3, 0u64..60), 0..6),
        banks in prop::collection::vec((0u64..15, 0u64..4, 0u32..3), 1..4),
    ) {
        let block = |&(start, width, size, _, _, alignment, pin): &(u32, u32, u64, _, _, u32, u64)| Block {
            alignment: 1 << alignment,
            pin: Some(pin).filter(|&pin| pin < 9 && pin % (1 << alignment) == 0),
            ..Block::new(start, start + width, size)
        };
        let blocks: Vec<Block> = rows.iter().map(block).collect();
        let all = (1 << banks.len()) - 1;
        let uses: Vec<Use> =
            rows.iter().map(|r| Use { touched: r.3, banks: if r.4 < 7 && r.4 > 0 { r.4 & all } else { all } }).collect();
        let banks: Vec<Bank> =
            banks.iter().map(|&(capacity, cost, alignment)| Bank { capacity, cost, alignment: 1 << alignment }).collect();
        match (run(&blocks, &uses, &banks), least(&blocks, &uses, &banks)) {
            (Ok((cost, spots)), Some(least)) => {
                prop_assert!(is_valid(&blocks, &uses, &banks, &spots), "{spots:?}");
                let price = |(u, s): (&Use, &Spot)| u128::from(u.touched * banks[s.bank as usize].cost);
                prop_assert_eq!(uses.iter().zip(&spots).map(price).sum::<u128>(), least);
                prop_assert_eq!(cost, Cost { cost: least, lower_bound: least });
            }
            (Err(Error::NoBank { proved: true, .. }), None) => {}
            (got, least) => prop_assert!(false, "{:?} {:?}", got, least),
        }
    }

    #[test]
    fn many_blocks_are_apart_in_their_banks_and_cost_no_less_than_the_bound(
        rows in prop::collection::vec((0u32..30, 1u32..9, 1u64..20, 0u64..50, 0u32..4), 13..40),
        capacity in 1u64..60, costs in (1u64..4, 4u64..9), alignment in 0u32..4,
    ) {
        let block = |&(start, width, size, ..): &(u32, u32, u64, _, _)| Block { alignment: 1 << alignment, ..Block::new(start, start + width, size) };
        let blocks: Vec<Block> = rows.iter().map(block).collect();
        let uses: Vec<Use> =
            rows.iter().map(|r| Use { touched: r.3, banks: if r.4 == 0 { 2 } else { 3 } }).collect();
        let banks = [
            Bank { capacity, cost: costs.0, alignment: 4 },
            Bank { capacity: 1000, cost: costs.1, alignment: 1 },
        ];
        let (cost, spots) = run(&blocks, &uses, &banks).unwrap();
        prop_assert!(is_valid(&blocks, &uses, &banks, &spots));
        let sum: u128 = uses.iter().zip(&spots).map(|(u, s)| u128::from(u.touched * banks[s.bank as usize].cost)).sum();
        prop_assert_eq!(cost.cost, sum);
        prop_assert!(cost.lower_bound <= cost.cost);
    }
}

/// With more blocks beside them, which are alive later and fit, nothing is decided exactly.
fn among_many(few: &[Block]) -> (Vec<Block>, Vec<Use>) {
    let later = (0..12).map(|i| Block::new(10 + i, 11 + i, 1));
    let blocks: Vec<Block> = few.iter().copied().chain(later).collect();
    let uses = vec![Use { touched: 2, banks: 3 }; blocks.len()];
    (blocks, uses)
}

#[test]
fn pinned_blocks_are_admitted_first() {
    let banks = [Bank { capacity: 11, cost: 1, alignment: 1 }, Bank { capacity: 11, cost: 1, alignment: 2 }];
    let few = [
        Block::new(0, 3, 6),
        Block { pin: Some(5), ..Block::new(0, 4, 6) },
        Block { alignment: 4, ..Block::new(2, 3, 5) },
    ];
    let (blocks, uses) = among_many(&few);
    let (_, spots) = run(&blocks, &uses, &banks).unwrap();
    assert!(is_valid(&blocks, &uses, &banks, &spots), "{spots:?}");
    assert!(run(&few, &uses[..3], &banks).is_ok());
}

#[test]
fn a_heuristic_that_gives_up_proves_nothing() {
    let banks = [Bank { capacity: 9, cost: 3, alignment: 1 }, Bank { capacity: 7, cost: 2, alignment: 4 }];
    let block = |start, end, size, alignment| Block { alignment, ..Block::new(start, end, size) };
    let few = [block(2, 4, 4, 1), block(3, 4, 6, 2), block(0, 4, 3, 2), block(2, 3, 4, 1), block(0, 4, 3, 2)];
    let (blocks, uses) = among_many(&few);
    let refused = run(&blocks, &uses, &banks).unwrap_err();
    assert!(matches!(refused, Error::NoBank { proved: false, .. }), "{refused}");
    let (cost, spots) = run(&few, &uses[..5], &banks).unwrap();
    assert!(is_valid(&few, &uses, &banks, &spots) && cost.cost == cost.lower_bound);
}

#[test]
fn what_fits_nowhere_is_an_error() {
    let banks = [Bank { capacity: 8, cost: 1, alignment: 1 }];
    let uses = [Use { touched: 1, banks: 1 }];
    let refused = run(&[Block::new(0, 1, 9)], &uses, &banks);
    assert_eq!(refused.unwrap_err(), Error::NoBank { block: 0, size: 9, most: 8, proved: true });
    // A bank that is not there.
    let refused = run(&[Block::new(0, 1, 1)], &[Use { touched: 1, banks: 2 }], &banks);
    assert_eq!(refused.unwrap_err(), Error::NoBank { block: 0, size: 1, most: 0, proved: true });
    let odd = [Bank { alignment: 3, ..banks[0] }];
    assert_eq!(run(&[Block::new(0, 1, 1)], &uses, &odd).unwrap_err(), Error::Alignment { block: None, alignment: 3 });
}

#[test]
fn pins_hold_in_the_bank_that_a_block_lies_in() {
    let banks = [Bank { capacity: 24, cost: 1, alignment: 8 }, Bank { capacity: 99, cost: 5, alignment: 1 }];
    let pinned = |pin| [Block { pin: Some(pin), ..Block::new(0, 2, 8) }, Block::new(0, 2, 8), Block::new(0, 2, 9)];
    let uses = [Use { touched: 10, banks: 3 }; 3];
    let (cost, spots) = run(&pinned(8), &uses, &banks).unwrap();
    assert_eq!((spots[0], spots[1]), (Spot { bank: 0, offset: 8 }, Spot { bank: 0, offset: 0 }));
    assert_eq!((cost.cost, spots[2].bank), (70, 1));
    // An offset that the fast bank does not allow, then one that neither bank allows.
    assert_eq!(run(&pinned(9), &uses, &banks).unwrap().1[0], Spot { bank: 1, offset: 9 });
    let refused = run(&pinned(96), &uses, &banks).unwrap_err();
    assert_eq!(refused, Error::NoBank { block: 0, size: 8, most: 99, proved: true });
}

#[test]
fn what_is_touched_most_for_its_room_is_fast() {
    let banks = [Bank { capacity: 10, cost: 1, alignment: 1 }, Bank { capacity: 100, cost: 5, alignment: 1 }];
    // The long block is touched more than each of the short ones, which take its room one after the other, but less
    // than both.
    let blocks = [Block::new(0, 4, 10), Block::new(0, 2, 10), Block::new(2, 4, 10)];
    let touched = |touched| Use { touched, banks: 3 };
    let (cost, spots) = run(&blocks, &[touched(15), touched(10), touched(10)], &banks).unwrap();
    assert_eq!((spots[0].bank, spots[1].bank, spots[2].bank), (1, 0, 0));
    assert_eq!(cost.cost, 75 + 10 + 10);
    // Nothing else may take the room of one that has no other bank.
    let (_, spots) = run(&blocks, &[Use { touched: 0, banks: 1 }, touched(10), touched(10)], &banks).unwrap();
    assert_eq!((spots[0].bank, spots[1].bank, spots[2].bank), (0, 1, 1));
}

#[test]
fn a_block_stays_where_the_others_cannot_be_placed_without_it() {
    let bank = |capacity, cost| Bank { capacity, cost, alignment: 1 };
    let banks = [bank(160, 1), bank(63, 2), bank(1000, 9)];
    // Start, end, size, banks.
    let rows = [
        (18, 21, 35, 1),
        (6, 15, 25, 1),
        (9, 27, 35, 1),
        (12, 18, 15, 1),
        (6, 24, 20, 1),
        (3, 6, 25, 1),
        (15, 24, 30, 1),
        (9, 21, 35, 1),
        (9, 14, 15, 2),
        (6, 9, 15, 7),
        (11, 13, 15, 2),
        (12, 16, 12, 2),
        (13, 16, 27, 2),
        (7, 10, 18, 2),
        (4, 6, 9, 2),
        (10, 12, 15, 2),
        (14, 17, 21, 2),
        (6, 13, 15, 2),
        (0, 15, 30, 7),
    ];
    let blocks = rows.map(|(start, end, size, _)| Block::new(start, end, size));
    let uses = rows.map(|(_, _, size, banks)| Use { touched: size, banks });
    let (_, spots) = run(&blocks, &uses, &banks).unwrap();
    assert!(is_valid(&blocks, &uses, &banks, &spots), "{spots:?}");
}

#[test]
fn the_bound_is_below_the_least_where_blocks_are_touched_little() {
    for (size, touched) in [(1 << 30, [8192, 4096]), (1 << 20, [1001, 1000]), (1 << 40, [3, 2])] {
        let banks = [(size, 1), (2 * size, 2)].map(|(capacity, cost)| Bank { capacity, cost, alignment: 1 });
        let (cost, _) =
            run(&[Block::new(0, 1, size); 2], &touched.map(|touched| Use { touched, banks: 3 }), &banks).unwrap();
        assert_eq!(cost, Cost { cost: (touched[0] + 2 * touched[1]).into(), lower_bound: cost.lower_bound });
        assert!(cost.lower_bound <= cost.cost && cost.lower_bound > (touched[0] + touched[1]).into(), "{cost:?}");
    }
}

#[test]
fn what_overflows_is_refused() {
    let far = Bank { capacity: u64::MAX, cost: u64::MAX, alignment: 1 };
    let uses = [Use { touched: u64::MAX, banks: 1 }; 2];
    let refused = Err(Error::SizeOverflow { block: 1 });
    assert_eq!(run(&[Block::new(0, 1, 8); 2], &uses, &[far]).map(|_| ()), refused);
    let coarse = Bank { alignment: 1 << 32, cost: 1, ..far };
    let refused = Err(Error::SizeOverflow { block: 0 });
    assert_eq!(run(&[Block::new(0, 1, u64::MAX - 8)], &uses[..1], &[coarse]).map(|_| ()), refused);
}
