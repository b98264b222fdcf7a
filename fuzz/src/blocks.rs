//! Arbitrary blocks: mostly blocks that can be planned, so many at once that they compete for memory, and some with
//! extreme figures.

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::place::{Options, Solver};
use sublet_core::{Block, Constraints};

use crate::number;

/// The blocks of an instance, and the constraints of its plans.
#[derive(Debug)]
pub struct Instance {
    pub blocks: Vec<Block>,
    pub constraints: Constraints,
}

/// A solver, and how hard it tries.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub solver: Solver,
    pub seed: u64,
    pub work: u64,
    pub nodes: u64,
}

impl Attempt {
    pub fn options(&self, constraints: Constraints) -> Options {
        Options { constraints, seed: self.seed, work: self.work, nodes: self.nodes, ..Options::default() }
    }
}

impl<'a> Arbitrary<'a> for Attempt {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let solvers: Vec<Solver> = Solver::all().collect();
        Ok(Self {
            solver: *u.choose(&solvers)?,
            seed: u.arbitrary()?,
            work: u.int_in_range(0..=400)?,
            nodes: u.int_in_range(0..=100)?,
        })
    }
}

impl<'a> Arbitrary<'a> for Instance {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let wild = u.ratio(1, 8)?;
        let alignment = alignment(u, wild)?;
        let capacity = if u.ratio(1, 4)? { Some(number(u)?) } else { None };
        let mut blocks = Vec::new();
        while blocks.len() < 40 && !u.is_empty() && u.ratio(15, 16)? {
            blocks.push(block(u, wild)?);
        }
        Ok(Self { blocks, constraints: Constraints { alignment, capacity } })
    }
}

/// One block. If `wild`, its figures may be anything.
///
/// # Errors
/// If the fuzzer's bytes are used up.
pub fn block(u: &mut Unstructured<'_>, wild: bool) -> Result<Block> {
    if wild && u.ratio(1, 4)? {
        let pin = if u.arbitrary()? { Some(number(u)?) } else { None };
        let [start, end] = [u.arbitrary()?, u.arbitrary()?];
        return Ok(Block { start, end, size: number(u)?, alignment: alignment(u, true)?, pin });
    }
    let start = u.int_in_range(0..=24)?;
    let end = start + u.int_in_range(1..=12)?;
    let size = if wild { number(u)?.max(1) } else { u.int_in_range(1..=40)? };
    let alignment = alignment(u, false)?;
    // Pins are multiples of 16, and so of each of these alignments.
    let pin = if u.ratio(1, 12)? { Some(16 * u.int_in_range(0..=12)?) } else { None };
    Ok(Block { start, end, size, alignment, pin })
}

fn alignment(u: &mut Unstructured<'_>, wild: bool) -> Result<u64> {
    Ok(match u.int_in_range(0..=15)? {
        0..=9 => 1,
        15 if wild => number(u)?,
        14 if wild => 1 << u.int_in_range(0..=63)?,
        _ => 1 << u.int_in_range(0..=4)?,
    })
}
