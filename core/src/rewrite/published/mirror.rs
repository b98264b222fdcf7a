//! Recomputation by mirror counts: each operator is recomputed as often as its count says.
//!
//! Problem: given for each operator of the forward pass how often it may be recomputed, its *mirror count*, make the
//! order of runs in which the backward pass finds all that it reads. The forward pass ends with the last operator that
//! may be recomputed. The blocks that only the forward pass writes, and that are freed within the iteration, are its
//! *results*.
//!
//! Paper: Chen et al. 2016, Algorithm 2. The paper builds a graph; here the graph is the recorded trace. The k-th run
//! of an operator reads the values that the k-th runs of earlier operators have made, or their last runs if they have
//! fewer. A gradient reads the values of the last runs.
//!
//! Steps: the forward pass runs as recorded. Before each operator of the backward pass come the runs that its inputs
//! need and that have not been made: runs with a lower number first, and those with the same number in the order of the
//! recording. [`follow`](crate::rewrite::script::follow) makes the script of these runs.
//!
//! Some operators are never recomputed, and their results are kept:
//! - those that may not be recomputed ([`Values`] knows which);
//! - those whose inputs are changed or freed before the last operator that reads a result, or are overwritten in place
//!   by another operator;
//! - those that read or write a block which the backward pass writes and which is freed within the iteration.
//!
//! Operators that write to the same block are recomputed together.
//!
//! Cost: O((depth + 1) · rows log rows), and as much workspace without the logarithm; depth is the largest mirror
//! count.

use crate::error::RowFault;
use crate::list::List;
use crate::rewrite::ids::BlockId;
use crate::rewrite::script::Step;
use crate::rewrite::values::{Reference, Values, VersionId};
use crate::table::record;
use crate::workspace::workspace;
use crate::{Error, Workspace, sort};

/// The most times that an operator may be recomputed.
pub(in crate::rewrite) const DEEPEST: u32 = 31;

/// A recomputation is kept as one number. This many of its lowest bits say which recomputation of the operator it is,
/// counted from 1; the bits above are the operator.
const RUN_BITS: u32 = 5;

/// The number nearest to `depth` from 1 to [`DEEPEST`]: the most times that an operator may be recomputed.
pub(in crate::rewrite) const fn clamp(depth: u32) -> u32 {
    if depth == 0 {
        1
    } else if depth > DEEPEST {
        DEEPEST
    } else {
        depth
    }
}

record! {
    /// What the recorded operators do with one block: which operators of the forward pass write and access it, and
    /// whether the backward pass reads it.
    pub(in crate::rewrite) struct Value {
        /// Whether the block is a result of the forward pass: the forward pass writes it, the backward pass does not,
        /// and it is freed before the iteration ends. Always false for a block that is allocated and freed as recorded,
        /// such as a persistent one.
        pub(in crate::rewrite) is_result: bool,
        /// The first operator of the forward pass that writes the block; none if no operator of the forward pass does.
        /// Always none for a block that is allocated and freed as recorded, such as a persistent one.
        pub(in crate::rewrite) maker: Option<u32>,
        /// The last operator of the forward pass that accesses the block; none if no operator of the forward pass does.
        /// Always none for a block that is allocated and freed as recorded, such as a persistent one.
        pub(in crate::rewrite) last_forward: Option<u32>,
        /// Whether the backward pass reads the block. Always false for a block that is allocated and freed as recorded,
        /// such as a persistent one.
        pub(in crate::rewrite) kept: bool,
        /// The value that the block holds at the end of the forward pass; none if the forward pass does not write it.
        /// Always none for a block that is allocated and freed as recorded, such as a persistent one.
        last_version: Option<VersionId>,
    }
}

workspace! {
    /// How often each operator of a program may be recomputed, and the order in which operators then run and are
    /// recomputed: before each operator of the backward pass come the recomputations that its inputs need.
    pub(in crate::rewrite) struct Mirror<'a>(rows, blocks, depth; values: &'a Values<'a>) then begin {
        tables {
            /// For each operator, 1 if it cannot be recomputed, else 0.
            fixed: u32[rows],
            /// How often each operator may be recomputed.
            count: u32[rows],
            /// For each block, how often its writers may be recomputed: the least count of them all.
            least[BlockId]: u32[blocks],
            /// For each operator: which of its recomputations were added to `batch` so far. Bit k stands for
            /// recomputation k; the first is recomputation 1.
            made: u64[rows],
            /// The recomputations to add right before one operator of the backward pass, each as one number: the
            /// [`RUN_BITS`] lowest bits say which recomputation of its operator it is, counted from 1, and the bits
            /// above are the operator.
            batch: u32[(1 + depth) * rows],
            /// Scratch memory for sorting `batch`.
            aside: u32[(1 + depth) * rows],
        }
        records {
            /// For each block, which operators of the forward pass write and access it, and whether the backward pass
            /// reads it.
            value[BlockId]: Value[blocks],
        }
        lists {
            /// The operators in the order in which they run or are recomputed, each as one step.
            run: Step[(1 + depth) * rows],
        }
        state {
            pub(in crate::rewrite) values: &'a Values<'a> = values,
            /// How many operators access at least one block.
            pub(in crate::rewrite) operators: u32 = values.program.accessing,
            /// How many operators are in the forward pass.
            pub(in crate::rewrite) forward: u32 = 0,
        }
    }
}

impl<'a> Mirror<'a> {
    /// Finds the forward pass and its results, which are the blocks that only the forward pass writes and that are
    /// freed before the iteration ends. No operator may be recomputed at first; each may later be allowed at most
    /// `depth` times.
    ///
    /// # Errors
    /// [`RowFault::TooManyRows`] from 2²⁷ rows on.
    pub(in crate::rewrite) fn new(
        values: &'a Values<'a>,
        depth: u32,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let (rows, blocks) = (values.program.rows.len(), values.program.size.len());
        if u32::try_from(rows).map_or(true, |n| n >= 1 << (u32::BITS - RUN_BITS)) {
            return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
        }
        Ok(Self::lend(rows, blocks, usize::try_from(depth).unwrap_or(0), values, scratch))
    }

    fn begin(&mut self) {
        let last = (0..self.operators).rfind(|&operator| self.values.is_recomputable(operator));
        self.forward = last.map_or(0, |last| last + 1);
        self.find_results();
        self.find_fixed();
    }

    pub(in crate::rewrite) fn value(&self, block: BlockId) -> Value {
        self.value.get(block)
    }

    /// The operators in the order in which they run or are recomputed, each as one step.
    pub(in crate::rewrite) const fn runs(&self) -> &List<'a, Step> {
        &self.run
    }

    /// Sets how often an operator may be recomputed: `count` times, but at most [`DEEPEST`], and 0 if it cannot be
    /// recomputed.
    pub(in crate::rewrite) fn set_count(&mut self, operator: u32, count: u32) {
        self.count[operator] = if self.fixed[operator] > 0 { 0 } else { count.min(DEEPEST) };
    }

    /// Lets the first operator that writes `block`, a result of the forward pass, be recomputed at most `most` times.
    /// [`settle`](Self::settle) afterwards lets the other operators that write `block` be recomputed no more often.
    pub(in crate::rewrite) fn lower_count(&mut self, block: BlockId, most: u32) {
        if let Some(maker) = self.value(block).maker {
            self.count[maker] = self.count[maker].min(most);
        }
    }

    fn find_results(&mut self) {
        let values = self.values;
        for operator in 0..self.operators {
            let forward = operator < self.forward;
            for r in values.managed(operator) {
                let v = self.value(r.block);
                let last_forward = Some(operator);
                let found = match (forward, r.writes) {
                    (true, false) => Value { last_forward, ..v },
                    (true, true) => Value {
                        is_result: true,
                        maker: v.maker.or(last_forward),
                        last_forward,
                        last_version: Some(r.version),
                        ..v
                    },
                    (false, false) => Value { kept: true, ..v },
                    (false, true) => Value { is_result: false, ..v },
                };
                self.value.set(r.block, found);
            }
        }
    }

    /// Finds the operators that cannot be recomputed. A result is a block that only the forward pass writes and that is
    /// freed within the iteration. Recomputations may come at any time until the last operator that reads a result. So
    /// an operator can be recomputed only if its inputs keep their values until then, and if it changes no other blocks
    /// than results.
    fn find_fixed(&mut self) {
        let values = self.values;
        let reads = |&operator: &u32| values.references(operator).any(|r| !r.writes && self.value(r.block).is_result);
        let quiet = (0..self.operators).rfind(reads).unwrap_or(0);
        for operator in 0..self.operators {
            let writes = |block| values.references(operator).any(|r| r.writes && r.block == block);
            let changed = |r: Reference| {
                let value = self.value(r.block);
                // All writers of a block are recomputed together. So an operator that reads the block and does not
                // write it can be recomputed only if it reads the block's last value.
                r.is_managed() && !(value.is_result && (writes(r.block) || value.last_version == Some(r.version)))
            };
            let may = values.may_recompute(operator, quiet) && !values.references(operator).any(changed);
            self.fixed[operator] = u32::from(!may);
        }
    }

    /// Makes the counts of how often operators may be recomputed agree: operators that write to the same block get the
    /// least count of them all.
    pub(in crate::rewrite) fn settle(&mut self) {
        let values = self.values;
        let writes = |operator| values.managed(operator).filter(|r| r.writes).map(|r| r.block);
        self.least.fill(DEEPEST);
        let mut lowered = true;
        while lowered {
            lowered = false;
            for operator in 0..self.forward {
                let least = writes(operator).map(|block| self.least[block]).min().unwrap_or(DEEPEST);
                let count = self.count[operator].min(least);
                lowered |= writes(operator).any(|block| self.least[block] > count);
                writes(operator).for_each(|block| self.least[block] = count);
                self.count[operator] = count;
            }
        }
    }

    /// Fills in `run`, the order in which the operators run and are recomputed. It follows from how often each may be
    /// recomputed.
    pub(in crate::rewrite) fn order(&mut self) {
        self.made.fill(0);
        self.run.clear();
        for operator in 0..self.operators {
            if operator >= self.forward {
                self.runs_before(operator);
            }
            self.run.push(Step::Run(operator));
        }
        // The rows after the last access are an operator that is never recomputed.
        (self.operators..self.values.program.operators).for_each(|operator| _ = self.run.push(Step::Run(operator)));
    }

    /// Adds to `run` the recomputations that have to come before an operator of the backward pass, so that every block
    /// that it reads has its value.
    fn runs_before(&mut self, operator: u32) {
        let mut batch = self.ask(operator, u32::MAX, 0);
        let mut asked = 0;
        while asked < batch {
            let run = self.batch[asked];
            batch = self.ask(run >> RUN_BITS, run & DEEPEST, batch);
            asked += 1;
        }
        let key = |run: u32| u64::from(run & DEEPEST) << u32::BITS | u64::from(run >> RUN_BITS);
        sort::by_key(&mut self.batch, batch, &mut self.aside, key);
        for k in 0..batch {
            self.run.push(Step::Recompute(self.batch[k] >> RUN_BITS));
        }
    }

    /// Adds to `self.batch` the recomputations that have to come before one run of `operator`: before its recomputation
    /// number `run` or, if `run` is `u32::MAX`, before its run in the backward pass. For each block that `operator`
    /// accesses, two values count: the one that it reads or writes, and the last one that the forward pass writes to
    /// the block. The operators of the forward pass that write these values have to have made their recomputation
    /// number `run` by then, or their last one if they have fewer. A recomputation is left out if it, or a later one of
    /// the same operator, was added before. `batch` is the number of entries in `self.batch` before the call; returns
    /// the number after the call.
    fn ask(&mut self, operator: u32, run: u32, mut batch: u32) -> u32 {
        let values = self.values;
        let versions = |r: Reference| [Some(r.version), self.value.get(r.block).last_version];
        let touched = values.managed(operator).flat_map(versions).flatten();
        let makers = touched.filter_map(|version| values.maker(version)).filter(|&maker| maker < self.forward);
        for maker in makers {
            let of_maker = run.min(self.count[maker]);
            if of_maker > 0 && self.made[maker] >> of_maker == 0 {
                self.made[maker] |= 1 << of_maker;
                self.batch[batch] = maker << RUN_BITS | of_maker;
                batch += 1;
            }
        }
        batch
    }
}
