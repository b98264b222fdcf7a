//! A planner for at most N blocks that owns its memory, in arrays whose length is known at compile time.

use heapless::Vec;

use crate::error::Buffer;
use crate::place::{self, Options, Solver};
use crate::verify::{self, VerifiedPlan};
use crate::{Block, Error, Workspace, WorkspaceLen};

const PER_BLOCK: WorkspaceLen = per_block();

/// A planner of at most N blocks that needs no memory but its own arrays; it may live in a `static`.
///
/// It lends its arrays to [`place`](place::place) and [`verify`](verify::verify), and so makes the same plans as these
/// functions. The length of the arrays is linear in N. They are long enough for every solver but those that search:
/// [`Solver::Auto`], [`Solver::Search`] and [`Solver::Beam`] need 200 KiB and more even for one
/// block. [`Planner::plan_in`] runs these in memory that the caller lends for the call.
///
/// ```
/// use sublet_core::place::{Options, Solver};
/// use sublet_core::{Block, Planner};
/// let mut planner = Planner::<8>::new();
/// planner.push(Block::new(0, 2, 4))?;
/// planner.push(Block::new(1, 3, 8))?;
/// planner.push(Block::new(2, 4, 4))?;
/// let plan = planner.plan(Solver::Portfolio, &Options::default())?;
/// assert_eq!((plan.peak(), plan.offsets().len()), (12, 3));
/// # Ok::<(), sublet_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Planner<const N: usize> {
    blocks: Vec<Block, N>,
    offsets: [u64; N],
    words: [[u64; PER_BLOCK.words]; N],
    indices: [[u32; PER_BLOCK.indices]; N],
}

impl<const N: usize> Planner<N> {
    /// A planner without blocks.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            offsets: [0; N],
            words: [[0; PER_BLOCK.words]; N],
            indices: [[0; PER_BLOCK.indices]; N],
        }
    }

    /// Adds a block to be placed by the next plan.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if there are N blocks already.
    pub fn push(&mut self, block: Block) -> Result<(), Error> {
        self.blocks.push(block).map_err(|_| Error::BufferTooSmall { buffer: Buffer::Capacity, needed: N + 1, got: N })
    }

    /// The blocks in the order in which they were added.
    #[must_use]
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Removes all blocks.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Places all blocks that were added, and proves that the plan is valid.
    ///
    /// # Errors
    /// An error if a block breaks a rule, pinned blocks share an address, or the peak is above the capacity: those of
    /// [`place`](place::place). [`Error::BufferTooSmall`] if the solver needs more memory than the planner has.
    pub fn plan(&mut self, solver: Solver, options: &Options) -> Result<VerifiedPlan<'_>, Error> {
        let mut scratch = Workspace::new(self.words.as_flattened_mut(), self.indices.as_flattened_mut());
        let offsets = self.offsets.get_mut(..self.blocks.len()).unwrap_or_default();
        place::place(solver, &self.blocks, options, scratch.reborrow(), offsets)?;
        verify::verify(&self.blocks, offsets, &options.constraints, scratch)
    }

    /// Places all blocks and proves the plan as [`plan`](Self::plan) does, but with any solver: the solver works in
    /// `scratch`, of the length that [`workspace_of`](place::workspace_of) says. The plan does not refer to `scratch`,
    /// so the caller may use it for other things afterwards.
    ///
    /// # Errors
    /// An error if a block breaks a rule, pinned blocks share an address, or the peak is above the capacity: those of
    /// [`place`](place::place). [`Error::BufferTooSmall`] if `scratch` is too short.
    ///
    /// ```
    /// use sublet_core::place::{self, Options, Solver};
    /// use sublet_core::{Block, Planner, Workspace, WorkspaceLen};
    /// const LEN: WorkspaceLen = place::workspace_of(Solver::Auto, 8);
    /// let (mut words, mut indices) = (vec![0; LEN.words], vec![0; LEN.indices]);
    /// let mut planner = Planner::<8>::new();
    /// for (start, end, size) in [(0, 3, 4), (3, 9, 4), (0, 9, 4), (9, 21, 4), (0, 21, 4)] {
    ///     planner.push(Block::new(start, end, size))?;
    /// }
    /// let scratch = Workspace::new(&mut words, &mut indices);
    /// let plan = planner.plan_in(Solver::Auto, &Options::default(), scratch)?;
    /// assert_eq!((plan.peak(), plan.offsets().len()), (12, 5));
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    pub fn plan_in(
        &mut self,
        solver: Solver,
        options: &Options,
        scratch: Workspace<'_>,
    ) -> Result<VerifiedPlan<'_>, Error> {
        let offsets = self.offsets.get_mut(..self.blocks.len()).unwrap_or_default();
        place::place(solver, &self.blocks, options, scratch, offsets)?;
        let own = Workspace::new(self.words.as_flattened_mut(), self.indices.as_flattened_mut());
        verify::verify(&self.blocks, offsets, &options.constraints, own)
    }
}

impl<const N: usize> Default for Planner<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// The most that 1 to 64 blocks need for each: with more blocks, what rounding adds is shared by more.
const fn per_block() -> WorkspaceLen {
    let mut most = WorkspaceLen { words: 0, indices: 0 };
    let mut n = 1;
    while n <= 64 {
        let len = place::workspace_of(Solver::Portfolio, n).max(verify::workspace(n));
        most = most.max(WorkspaceLen { words: len.words.div_ceil(n), indices: len.indices.div_ceil(n) });
        n += 1;
    }
    most
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    #[test]
    fn the_memory_is_enough_for_any_number_of_blocks() {
        for n in 0..20_000 {
            let len = place::workspace_of(Solver::Portfolio, n).max(verify::workspace(n));
            assert!(len.words <= PER_BLOCK.words * n && len.indices <= PER_BLOCK.indices * n, "{n} blocks: {len:?}");
        }
    }

    #[test]
    fn a_search_runs_in_lent_memory_and_says_when_it_is_short() {
        let mut planner = Planner::<5>::new();
        for (start, end) in [(0, 3), (3, 9), (0, 9), (9, 21), (0, 21)] {
            planner.push(Block::new(start, end, 4)).unwrap();
        }
        for solver in [Solver::Auto, Solver::Search] {
            let len = place::workspace_of(solver, 5);
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let short = Workspace::new(&mut words, indices.split_last_mut().unwrap().1);
            let refused = planner.plan_in(solver, &Options::default(), short);
            assert!(matches!(refused, Err(Error::BufferTooSmall { .. })), "{}", solver.name());
            let whole = Workspace::new(&mut words, &mut indices);
            assert_eq!(planner.plan_in(solver, &Options::default(), whole).unwrap().peak(), 12, "{}", solver.name());
        }
    }

    #[test]
    fn a_full_planner_says_so_and_still_plans() {
        let mut planner = Planner::<2>::new();
        for start in 0..2 {
            planner.push(Block::new(start, start + 2, 8)).unwrap();
        }
        let full = planner.push(Block::new(0, 1, 1));
        assert_eq!(full, Err(Error::BufferTooSmall { buffer: Buffer::Capacity, needed: 3, got: 2 }));
        assert_eq!(planner.plan(Solver::BestFit, &Options::default()).unwrap().peak(), 16);
        planner.clear();
        assert_eq!(planner.plan(Solver::Portfolio, &Options::default()).unwrap().peak(), 0);
    }
}
