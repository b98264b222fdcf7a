//! `sublet plan --bank`: several memories, each with a capacity and a cost for each byte that is read or written.

use std::io::{self, Write};

use serde::Serialize;
use sublet_core::place::banks::{self, Bank, Cost, Spot, Use};
use sublet_core::trace::Event;
use sublet_core::{Block, Constraints, Error, verify};

use crate::args::PlanArgs;
use crate::failure::{Failure, InputError};
use crate::output;
use crate::problem::Problem;
use crate::text::bank::NamedBank;
use sublet_core::owned::Scratch;

/// What is known of a plan over banks. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    input: &'a str,
    blocks: usize,
    /// Bytes read and written times the cost of their bank.
    cost: u128,
    /// No plan costs less.
    lower_bound: u128,
    optimal: bool,
    verified: bool,
    banks: Vec<BankOutcome<'a>>,
}

#[derive(Debug, Serialize)]
struct BankOutcome<'a> {
    bank: &'a str,
    capacity: u64,
    blocks: usize,
    /// The highest end of a block in it.
    peak: u64,
    /// Bytes of its blocks that are read and written.
    touched: u64,
}

/// Plans, verifies each bank, writes and prints.
///
/// # Errors
/// Blocks that fit in no bank; a file that cannot be written.
pub(crate) fn run(args: &PlanArgs, problem: &Problem, constraints: &Constraints) -> Result<(), Failure> {
    let named = &args.bank;
    if named.len() > banks::MOST_BANKS {
        return Err(Failure::Usage(format!("there are {} banks; at most {}", named.len(), banks::MOST_BANKS)));
    }
    let bank = |b: &NamedBank| Bank { capacity: b.capacity, cost: b.cost, alignment: constraints.alignment };
    let given: Vec<Bank> = named.iter().map(bank).collect();
    let uses = uses(problem, named.len());
    let mut scratch = Scratch::of(banks::workspace(problem.blocks.len()));
    let mut spots = vec![Spot::default(); problem.blocks.len()];
    let cost = banks::place(&problem.blocks, &uses, &given, scratch.lend(), &mut spots).map_err(|e| match e {
        Error::OverCapacity { peak, capacity, .. } => Failure::No(format!(
            "a block of {peak} bytes fits in no bank beside the others; the largest has {capacity}"
        )),
        e => Failure::Input(InputError::file(&problem.name, problem.explain(&e))),
    })?;
    let found = outcome(args, problem, &given, (&uses, &spots), cost)?;
    if let Some(file) = &args.output {
        output::write(file, |out| write(problem, named, &spots, out))?;
    }
    let mut out = io::stdout().lock();
    if args.json { output::json(&found, &mut out) } else { found.text(&mut out) }.map_err(|e| Failure::printing(&e))
}

/// How each block is used: every read and write touches all of it; without a trace it is written once and read once.
fn uses(problem: &Problem, banks: usize) -> Vec<Use> {
    let all = u32::try_from((1u64 << banks) - 1).unwrap_or(u32::MAX);
    let mut uses: Vec<Use> =
        problem.blocks.iter().map(|b| Use { touched: b.size.saturating_mul(2), banks: all }).collect();
    let Some(trace) = &problem.trace else { return uses };
    for u in &mut uses {
        u.touched = 0;
    }
    let (mut residency_of, mut residencies) = (vec![0; trace.names.len()], 0);
    for row in &trace.rows {
        match row.event {
            Event::Malloc => {
                residency_of[row.block as usize] = residencies;
                residencies += 1;
            }
            Event::Free => {}
            _ => {
                let residency: usize = residency_of[row.block as usize];
                uses[residency].touched = uses[residency].touched.saturating_add(problem.blocks[residency].size);
            }
        }
    }
    uses
}

/// Proves the plan of each bank.
fn outcome<'a>(
    args: &'a PlanArgs,
    problem: &Problem,
    given: &[Bank],
    (uses, spots): (&[Use], &[Spot]),
    cost: Cost,
) -> Result<Outcome<'a>, Failure> {
    let mut banks = Vec::new();
    for ((number, named), bank) in (0..).zip(&args.bank).zip(given) {
        let members: Vec<usize> = (0..spots.len()).filter(|&i| spots[i].bank == number).collect();
        let blocks: Vec<Block> = members.iter().map(|&i| problem.blocks[i]).collect();
        let offsets: Vec<u64> = members.iter().map(|&i| spots[i].offset).collect();
        let constraints = Constraints { alignment: bank.alignment, capacity: Some(bank.capacity) };
        let mut scratch = Scratch::of(verify::workspace(blocks.len()));
        let plan = verify::verify(&blocks, &offsets, &constraints, scratch.lend())
            .map_err(|e| Failure::No(format!("the plan of bank {} is invalid, please report it: {e}", named.name)))?;
        let touched = members.iter().fold(0, |sum: u64, &i| sum.saturating_add(uses[i].touched));
        let (bank, capacity) = (named.name.as_str(), named.capacity);
        banks.push(BankOutcome { bank, capacity, blocks: blocks.len(), peak: plan.peak(), touched });
    }
    let Cost { cost, lower_bound } = cost;
    let (input, blocks) = (args.input.as_str(), problem.blocks.len());
    Ok(Outcome { input, blocks, cost, lower_bound, optimal: cost == lower_bound, verified: true, banks })
}

impl Outcome<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "input     {}", self.input)?;
        writeln!(out, "blocks    {}", self.blocks)?;
        writeln!(out, "cost      {} byte accesses, at least {}", self.cost, self.lower_bound)?;
        for b in &self.banks {
            let BankOutcome { bank, capacity, blocks, peak, touched } = b;
            writeln!(
                out,
                "bank      {bank}: {blocks} blocks, peak {peak} of {capacity} bytes, {touched} bytes touched"
            )?;
        }
        writeln!(out, "verified  yes")
    }
}

/// A plan with the bank of each block.
fn write(problem: &Problem, named: &[NamedBank], spots: &[Spot], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size,offset,bank")?;
    for ((id, block), spot) in problem.ids.iter().zip(&problem.blocks).zip(spots) {
        let (lower, upper) = (problem.time(block.start), problem.time(block.end));
        let bank = &named[spot.bank as usize].name;
        writeln!(out, "{id},{lower},{upper},{},{},{bank}", block.size, spot.offset)?;
    }
    Ok(())
}
