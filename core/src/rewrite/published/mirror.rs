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

pub(in crate::rewrite) const DEEPEST: u32 = 31;

/// A recomputation is one number: its count from 1 in these lowest bits, the operator above.
const RUN_BITS: u32 = 5;

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
    pub(in crate::rewrite) struct Value {
        /// Only the forward pass writes it, and it is freed before the iteration ends.
        pub(in crate::rewrite) is_result: bool,
        pub(in crate::rewrite) maker: Option<u32>,
        pub(in crate::rewrite) last_forward: Option<u32>,
        pub(in crate::rewrite) kept: bool,
        last_version: Option<VersionId>,
    }
}

workspace! {
    pub(in crate::rewrite) struct Mirror<'a>(rows, blocks, depth; values: &'a Values<'a>) then begin {
        tables {
            fixed: u32[rows],
            count: u32[rows],
            least[BlockId]: u32[blocks],
            /// Bit k: recomputation k, counted from 1, was added to `batch`.
            made: u64[rows],
            /// For one operator of the backward pass, packed as [`RUN_BITS`] says.
            batch: u32[(1 + depth) * rows],
            aside: u32[(1 + depth) * rows],
        }
        records {
            value[BlockId]: Value[blocks],
        }
        lists {
            run: Step[(1 + depth) * rows],
        }
        state {
            pub(in crate::rewrite) values: &'a Values<'a> = values,
            pub(in crate::rewrite) operators: u32 = values.program.accessing,
            pub(in crate::rewrite) forward: u32 = 0,
        }
    }
}

impl<'a> Mirror<'a> {
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

    pub(in crate::rewrite) const fn runs(&self) -> &List<'a, Step> {
        &self.run
    }

    pub(in crate::rewrite) fn set_count(&mut self, operator: u32, count: u32) {
        self.count[operator] = if self.fixed[operator] > 0 { 0 } else { count.min(DEEPEST) };
    }

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

    /// Inputs must keep their values until the last read of a result, and only results may change.
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

    /// `run` is `u32::MAX` for the run in the backward pass; `batch` counts entries.
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
