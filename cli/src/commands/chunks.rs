//! `sublet plan --chunk`: several ranges of bounded length, for devices that give out no longer buffers.

use std::io::{self, Write};

use serde::Serialize;
use sublet_core::owned::Scratch;
use sublet_core::place::Options;
use sublet_core::place::banks::Spot;
use sublet_core::place::chunks::{self, Limit};
use sublet_core::{Block, Error, verify};

use crate::args::PlanArgs;
use crate::failure::{Failure, InputError};
use crate::output;
use crate::problem::Problem;
use crate::text::unit::Unit;

/// What `plan` prints. Sizes in bytes.
#[derive(Debug, Serialize)]
struct Outcome<'a> {
    input: &'a str,
    blocks: usize,
    /// The bytes of all chunks together.
    total: u64,
    /// No plan takes less.
    lower_bound: u64,
    optimal: bool,
    verified: bool,
    chunks: Vec<Chunk>,
}

#[derive(Debug, Serialize)]
struct Chunk {
    blocks: usize,
    /// The highest end of a block in the chunk.
    peak: u64,
}

/// Places the blocks in chunks, verifies the plan of each, writes it and prints the outcome.
///
/// # Errors
/// No plan in so few chunks; a file that cannot be written.
pub(crate) fn run(args: &PlanArgs, problem: &Problem, limit: Limit) -> Result<(), Failure> {
    let (n, solver) = (problem.blocks.len(), args.solve.solver);
    let constraints = args.constraints.get();
    let options = Options { constraints, ..Options::default() };
    let (mut parts, mut spots) = (vec![Block::default(); n], vec![Spot::default(); n]);
    let mut scratch = Scratch::of(chunks::workspace(solver, n, limit));
    let found = chunks::place(solver, &problem.blocks, limit, &options, scratch.lend(), &mut parts, &mut spots);
    let found = found.map_err(|e| match e {
        Error::NoBank { block, size, .. } => Failure::Unknown(format!(
            "no plan in {} chunks was found: {} of {size} bytes fits in none, beside the others",
            limit.chunks,
            problem.id(block)
        )),
        e => Failure::Input(InputError::file(&problem.name, problem.explain(&e))),
    })?;
    let chunks = (0..found.count).map(|chunk| {
        let own = |(b, s): (&Block, &Spot)| (s.bank == chunk).then_some((*b, s.offset));
        let (blocks, offsets): (Vec<Block>, Vec<u64>) = problem.blocks.iter().zip(&spots).filter_map(own).unzip();
        let mut scratch = Scratch::of(verify::workspace(blocks.len()));
        let plan = verify::verify(&blocks, &offsets, &constraints, scratch.lend())
            .map_err(|e| Failure::No(format!("the plan of chunk {chunk} is invalid, please report it: {e}")))?;
        Ok(Chunk { blocks: blocks.len(), peak: plan.peak() })
    });
    let chunks = chunks.collect::<Result<Vec<_>, Failure>>()?;
    if let Some(file) = &args.output {
        output::write(file, |out| write(problem, &spots, out))?;
    }
    let (total, lower_bound) = (found.total, found.lower_bound);
    let optimal = total == lower_bound;
    let outcome = Outcome { input: &args.input, blocks: n, total, lower_bound, optimal, verified: true, chunks };
    output::print(&outcome, args.json, &[&args.output], |out| outcome.text(out))
}

impl Outcome<'_> {
    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.total);
        let size = |bytes: u64| format!("{} ({bytes} bytes)", unit.size(bytes));
        writeln!(out, "input     {}", self.input)?;
        writeln!(out, "blocks    {}", self.blocks)?;
        writeln!(out, "total     {}{}", size(self.total), if self.optimal { ", optimal" } else { "" })?;
        writeln!(out, "at least  {}", size(self.lower_bound))?;
        for (k, Chunk { blocks, peak }) in self.chunks.iter().enumerate() {
            writeln!(out, "chunk     {k}: {blocks} blocks, peak {}", size(*peak))?;
        }
        writeln!(out, "verified  yes")
    }
}

/// Writes a plan with the chunk of each block as its bank, which `verify` reads.
fn write(problem: &Problem, spots: &[Spot], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "id,lower,upper,size,offset,bank")?;
    for ((id, block), spot) in problem.ids.iter().zip(&problem.blocks).zip(spots) {
        let (lower, upper) = (problem.time(block.start), problem.time(block.end));
        writeln!(out, "{id},{lower},{upper},{},{},{}", block.size, spot.offset, spot.bank)?;
    }
    Ok(())
}
