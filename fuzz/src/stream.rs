//! Streams of requests: an iteration that comes several times, with interruptions and divergences.

use arbitrary::{Arbitrary, Result, Unstructured};

use crate::number;

/// What a framework does next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Malloc(u64),
    /// Frees a live block. Of the live blocks, in the order of their mallocs, it is the one of this number, modulo how
    /// many there are.
    Free(u8),
    /// A free of this address, at which most likely no block begins.
    FreeStray(u64),
    Interrupt,
    Resume,
    Begin,
    End,
}

/// The steps, in the order in which they come.
#[derive(Clone, Debug)]
pub struct Stream(pub Vec<Step>);

impl<'a> Arbitrary<'a> for Stream {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut iteration = Vec::new();
        let told = u.arbitrary()?;
        if told {
            iteration.push(Step::Begin);
        }
        for _ in 0..u.int_in_range(1..=28)? {
            iteration.push(step(u)?);
        }
        if told {
            iteration.push(Step::End);
        }
        let mut steps = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            steps.push(step(u)?);
        }
        for _ in 0..u.int_in_range(1..=6)? {
            let from = steps.len();
            steps.extend(&iteration);
            if u.ratio(1, 3)? {
                diverge(u, &mut steps, from)?;
            }
            if u.ratio(1, 6)? {
                let at = u.choose_index(iteration.len())?;
                iteration[at] = step(u)?;
            }
        }
        Ok(Self(steps))
    }
}

fn diverge(u: &mut Unstructured<'_>, steps: &mut Vec<Step>, from: usize) -> Result<()> {
    for _ in 0..u.int_in_range(1..=3)? {
        let at = u.int_in_range(from..=steps.len())?;
        match u.int_in_range(0..=4)? {
            0 | 1 => steps.insert(at, step(u)?),
            2 if at < steps.len() => drop(steps.remove(at)),
            3 if at < steps.len() => steps.truncate(at),
            _ if at < steps.len() => steps[at] = step(u)?,
            _ => {}
        }
    }
    Ok(())
}

fn step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=31)? {
        0..=16 => Step::Malloc(u.int_in_range(1..=40)?),
        17..=27 => Step::Free(u.arbitrary()?),
        28 => Step::Malloc(number(u)?),
        29 => Step::FreeStray(number(u)?),
        30 => Step::Interrupt,
        _ => Step::Resume,
    })
}
