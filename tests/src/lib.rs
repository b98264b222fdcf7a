//! Shared by the tests and benches of several crates: seeded instances, placements that the verifier has accepted,
//! requests of networks, and an allocator that is checked with data.

pub mod checked;
pub mod fitted;
pub mod instance;
pub mod network;
pub mod passes;
pub mod recording;
pub mod rewritten;

use sublet_core::place::{self, Options, Solver, Summary};
use sublet_core::{Block, Constraints, Error, VerifiedPlan, Workspace, verify};

/// Places the blocks with default options. Returns the solver's summary and the offsets.
///
/// # Panics
/// Where the solver refuses the blocks, or the verifier the plan.
#[must_use]
pub fn place(solver: Solver, blocks: &[Block]) -> (Summary, Vec<u64>) {
    place_with(solver, blocks, &Options::default()).unwrap_or_else(|e| panic!("{}: {e}", solver.name()))
}

/// Places the blocks. Returns the solver's summary and the offsets.
///
/// # Errors
/// As [`place::place`].
///
/// # Panics
/// Where the verifier refuses the plan, or finds another peak than the solver.
pub fn place_with(solver: Solver, blocks: &[Block], options: &Options) -> Result<(Summary, Vec<u64>), Error> {
    let len = place::workspace_of(solver, blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    let mut offsets = vec![0; blocks.len()];
    let scratch = Workspace::new(&mut words, &mut indices);
    let summary = place::place(solver, blocks, options, scratch, &mut offsets)?;
    let plan = verify(blocks, &offsets, &options.constraints).unwrap_or_else(|e| panic!("{}: {e}", solver.name()));
    assert_eq!(plan.peak(), summary.peak, "{}", solver.name());
    assert!(plan.max_load() <= summary.lower_bound && summary.lower_bound <= summary.peak, "{}", solver.name());
    Ok((summary, offsets))
}

/// Verifies a plan, in a workspace that is allocated here.
///
/// # Errors
/// As [`verify::verify`].
pub fn verify<'a>(
    blocks: &'a [Block],
    offsets: &'a [u64],
    constraints: &Constraints,
) -> Result<VerifiedPlan<'a>, Error> {
    let len = verify::workspace(blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    verify::verify(blocks, offsets, constraints, Workspace::new(&mut words, &mut indices))
}
