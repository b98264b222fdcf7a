//! Plans with random changes: the verifier accepts a plan if and only if the naive checks do, and if it names a
//! violation, the plan has this violation.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::place::{self, Options, Solver};
use sublet_core::{Block, Constraints, Error, check_blocks, verify};
use sublet_fuzz::blocks::{self, Instance};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::{naive, number};

#[derive(Debug)]
enum Change {
    Offset(usize, u64),
    Shift(usize, i8),
    Swap(usize, usize),
    /// Replaces a block by this one, at the same offset.
    Block(usize, Block),
    /// Adds a block at this offset.
    More(Block, u64),
    Remove(usize),
    /// Gives the verifier one offset too few.
    Short,
    Constraints(Constraints),
    /// Sets the capacity to the peak less this number.
    Tight(u8),
}

impl<'a> Arbitrary<'a> for Change {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let index: u8 = u.arbitrary()?;
        let i = index.into();
        Ok(match u.int_in_range(0..=11)? {
            0 | 1 => Self::Offset(i, number(u)?),
            2..=4 => Self::Shift(i, u.arbitrary()?),
            5 => Self::Swap(i, u8::arbitrary(u)?.into()),
            6 => Self::Block(i, blocks::block(u, true)?),
            7 => Self::More(blocks::block(u, false)?, number(u)?),
            8 => Self::Remove(i),
            9 => Self::Short,
            10 => Self::Constraints(Constraints { alignment: 1 << u.int_in_range(0..=5)?, capacity: None }),
            _ => Self::Tight(u.int_in_range(0..=2)?),
        })
    }
}

sublet_fuzz::target!(|input: (Instance, Vec<Change>)| {
    let (Instance { mut blocks, mut constraints }, changes) = input;
    let mut scratch = Scratch::of(place::workspace_of(Solver::BestFit, blocks.len()));
    let mut offsets = vec![0; blocks.len()];
    let options = Options { constraints, ..Options::default() };
    match place::place(Solver::BestFit, &blocks, &options, scratch.lend(), &mut offsets) {
        Ok(_) | Err(Error::OverCapacity { .. }) => {}
        Err(_) => return,
    }
    judge(&blocks, &offsets, &constraints);
    for change in changes {
        let n = blocks.len();
        match change {
            Change::More(block, offset) => {
                blocks.push(block);
                offsets.push(offset);
            }
            Change::Constraints(other) => constraints = other,
            Change::Tight(less) => {
                let peak = u64::try_from(naive::peak(&blocks, &offsets)).unwrap_or(u64::MAX);
                constraints.capacity = Some(peak.saturating_sub(less.into()));
            }
            Change::Short => judge(&blocks, &offsets[..n.saturating_sub(1)], &constraints),
            _ if n == 0 => {}
            Change::Offset(i, offset) => offsets[i % n] = offset,
            Change::Shift(i, by) => offsets[i % n] = offsets[i % n].wrapping_add_signed(by.into()),
            Change::Swap(i, j) => offsets.swap(i % n, j % n),
            Change::Block(i, block) => blocks[i % n] = block,
            Change::Remove(i) => {
                blocks.swap_remove(i % n);
                offsets.swap_remove(i % n);
            }
        }
        judge(&blocks, &offsets, &constraints);
    }
});

fn judge(blocks: &[Block], offsets: &[u64], constraints: &Constraints) {
    let mut scratch = Scratch::of(verify::workspace(blocks.len()));
    let verdict = verify::verify(blocks, offsets, constraints, scratch.lend());
    let plannable = naive::plannable(blocks, constraints.alignment);
    match verdict {
        Ok(plan) => {
            assert!(plannable && naive::accepts(blocks, offsets, constraints));
            assert_eq!(u128::from(plan.peak()), naive::peak(blocks, offsets));
            assert_eq!(u128::from(plan.max_load()), naive::max_load(blocks));
            assert_eq!(plan.is_optimal(), plan.peak() == plan.max_load());
        }
        Err(Error::Invalid(violation)) => {
            assert!(plannable && naive::breaks(blocks, offsets, constraints, violation), "{violation:?}");
        }
        Err(Error::BufferTooSmall { .. }) => assert!(plannable && blocks.len() != offsets.len()),
        Err(e) => {
            assert!(!plannable, "{e}");
            assert_eq!(check_blocks(blocks, constraints.alignment), Err(e));
        }
    }
}
