//! The configuration of an [`Allocator`](super::Allocator), and the memory that it needs.

use super::pool::Pool;
use super::{follow, iteration, remembered};
use crate::place::{self, Options, Solver};
use crate::trace::Detector;
use crate::{Block, WorkspaceLen, verify};

/// The configuration of an [`Allocator`](super::Allocator): its addresses, how much it can record and hold, and how it
/// makes plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The bytes of the first range of addresses from which the allocator serves requests; what is above a multiple of
    /// the alignment is not used. With 0 there is no range until a request needs one and the [`Source`](super::Source)
    /// gives it.
    pub capacity: u64,
    /// The most ranges of addresses that the allocator may have at once, at least 1. Without a
    /// [`Source`](super::Source), which gives further ranges, there is only one.
    pub ranges: usize,
    /// Every address is a multiple of this power of two, in bytes; sizes are rounded up to it.
    pub alignment: u64,
    /// The most events that an iteration may have: mallocs and frees, counted together.
    pub events: usize,
    /// How many blocks outside the plan may be alive at once. Where no plan is followed, half of `events` more may be.
    pub live: usize,
    /// The solver that makes the plans. The memory that it needs grows linearly with `events`. Only [`Solver::Search`]
    /// and, up to a few thousand blocks, [`Solver::Auto`] also need a table that grows with the square of `events`.
    pub solver: Solver,
    /// The options of the solver: its seed and its effort. The constraints in these options are not used.
    pub options: Options,
}

impl Config {
    /// A configuration with the alignment of a GPU, 256 bytes, one range of addresses, and [`Solver::Portfolio`] as its
    /// solver. `capacity` is the length of the range in bytes. `events` is the most mallocs and frees, counted
    /// together, that an iteration may have. `live` is how many blocks outside the plan may be alive at once.
    #[must_use]
    pub fn new(capacity: u64, events: usize, live: usize) -> Self {
        let (solver, options) = (Solver::Portfolio, Options::default());
        Self { capacity, ranges: 1, alignment: 256, events, live, solver, options }
    }
}

/// The memory that an [`Allocator`](super::Allocator) is lent. What the slices hold at first does not matter.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Room for the blocks of an iteration, from which a plan is made.
    pub blocks: &'a mut [Block],
    /// Room for the 64-bit words of the allocator's tables.
    pub words: &'a mut [u64],
    /// Room for the 32-bit indices of the allocator's tables.
    pub indices: &'a mut [u32],
}

/// How long the slices of a [`Memory`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLen {
    /// How many elements [`Memory::blocks`] must have.
    pub blocks: usize,
    /// How many elements [`Memory::words`] must have.
    pub words: usize,
    /// How many elements [`Memory::indices`] must have.
    pub indices: usize,
}

pub(super) const fn pool_live(config: &Config) -> usize {
    config.live + config.events / 2 + 1
}

pub(super) const fn kept(config: &Config) -> WorkspaceLen {
    let ranges = if config.ranges == 0 { 1 } else { config.ranges };
    Pool::workspace_of(pool_live(config), ranges)
        .and(Detector::workspace(config.events))
        .and(follow::workspace(config.events))
        .and(WorkspaceLen { words: remembered::words(config.events), indices: 0 })
}

pub(super) const fn scratch(config: &Config) -> WorkspaceLen {
    let blocks = config.events / 2;
    let planning = place::workspace_up_to(config.solver, blocks).max(verify::workspace(blocks));
    let offsets = WorkspaceLen { words: blocks, indices: 0 };
    planning.max(follow::scratch(config.events)).and(offsets).max(iteration::workspace(config.events))
}

/// How long the slices of a [`Memory`] must be for an [`Allocator`](super::Allocator) of this configuration.
#[must_use]
pub const fn memory(config: &Config) -> MemoryLen {
    let len = kept(config).and(scratch(config));
    MemoryLen { blocks: config.events, words: len.words, indices: len.indices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Solver;

    #[test]
    fn no_ranges_are_one() {
        let of = |ranges| memory(&Config { ranges, ..Config::new(1 << 10, 16, 4) });
        assert_eq!(of(0), of(1));
        assert_ne!(of(2), of(1));
    }

    #[test]
    fn an_iteration_of_fewer_blocks_than_are_provided_for_can_be_planned() {
        let config = Config { solver: Solver::Auto, ..Config::new(1 << 20, 20_000, 4) };
        let len = scratch(&config);
        for blocks in [10, 5_000, 10_000] {
            assert_eq!(len.max(place::workspace_of(Solver::Auto, blocks)), len, "{blocks}");
        }
    }
}
