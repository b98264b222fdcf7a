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
//! recording.
//!
//! Some operators are never recomputed, and their results are kept:
//! - those that may not be recomputed;
//! - those whose inputs are changed or freed before the last operator that reads a result, or are overwritten in place
//!   by another operator;
//! - those that read or write a block which the backward pass writes and which is freed within the iteration.
//!
//! Operators that write to the same block are recomputed together. Cost: O((depth + 1) · rows log rows).

use crate::network::{Network, Owner, Reference};

/// An operator is recomputed at most so often.
pub(crate) const DEEPEST: u32 = 31;

#[derive(Clone, Copy, Default)]
pub(crate) struct Value {
    /// Only the forward pass writes it, and it is freed before the iteration ends.
    pub(crate) is_result: bool,
    pub(crate) maker: Option<usize>,
    pub(crate) last_forward: Option<usize>,
    pub(crate) kept: bool,
    last_version: Option<usize>,
}

pub(crate) struct Mirror<'n> {
    pub(crate) network: &'n Network<'n>,
    pub(crate) forward: usize,
    pub(crate) values: Vec<Value>,
    fixed: Vec<bool>,
    counts: Vec<u32>,
    /// The order of runs; true for a recomputation.
    pub(crate) runs: Vec<(usize, bool)>,
}

impl<'n> Mirror<'n> {
    pub(crate) fn of(network: &'n Network<'n>) -> Self {
        let operators = network.accessing;
        let forward = (0..operators).rfind(|&o| network.is_recomputable(o)).map_or(0, |last| last + 1);
        let (values, runs) = (vec![Value::default(); network.size.len()], Vec::new());
        let (fixed, counts) = (vec![false; operators], vec![0; operators]);
        let mut mirror = Self { network, forward, values, fixed, counts, runs };
        mirror.find_results();
        mirror.find_fixed();
        mirror
    }

    fn find_results(&mut self) {
        for o in 0..self.network.accessing {
            for r in self.network.managed(o) {
                let v = &mut self.values[r.block];
                match (o < self.forward, r.writes) {
                    (true, false) => v.last_forward = Some(o),
                    (true, true) => {
                        (v.is_result, v.last_forward, v.last_version) = (true, Some(o), Some(r.version));
                        v.maker.get_or_insert(o);
                    }
                    (false, false) => v.kept = true,
                    (false, true) => v.is_result = false,
                }
            }
        }
    }

    /// Inputs must keep their values until the last read of a result, and only results may change.
    fn find_fixed(&mut self) {
        let network = self.network;
        let reads = |&o: &usize| network.references[o].iter().any(|r| !r.writes && self.values[r.block].is_result);
        let quiet = (0..network.accessing).rfind(reads).unwrap_or(0);
        for o in 0..network.accessing {
            let writes = |block| network.references[o].iter().any(|r| r.writes && r.block == block);
            // All writers of a block are recomputed together. So an operator that reads the block and does not write it
            // can be recomputed only if it reads the block's last value.
            let changed = |r: &Reference| {
                let value = self.values[r.block];
                let known = value.is_result && (writes(r.block) || value.last_version == Some(r.version));
                network.owner[r.block] == Owner::Managed && !known
            };
            self.fixed[o] = !network.may_recompute(o, quiet) || network.references[o].iter().any(changed);
        }
    }

    pub(crate) fn set_count(&mut self, operator: usize, count: u32) {
        self.counts[operator] = if self.fixed[operator] { 0 } else { count.min(DEEPEST) };
    }

    pub(crate) fn lower_count(&mut self, block: usize, most: u32) {
        if let Some(maker) = self.values[block].maker {
            self.counts[maker] = self.counts[maker].min(most);
        }
    }

    pub(crate) fn arrange(&mut self) {
        self.settle();
        self.runs.clear();
        let mut made = vec![0u64; self.network.accessing];
        for o in 0..self.network.operators.len() {
            if (self.forward..self.network.accessing).contains(&o) {
                self.runs_before(o, &mut made);
            }
            self.runs.push((o, false));
        }
    }

    fn settle(&mut self) {
        let network = self.network;
        let writes = |o| network.managed(o).filter(|r| r.writes).map(|r| r.block);
        let mut least = vec![DEEPEST; network.size.len()];
        let mut lowered = true;
        while lowered {
            lowered = false;
            for o in 0..self.forward {
                let count = writes(o).map(|block| least[block]).min().unwrap_or(DEEPEST).min(self.counts[o]);
                for block in writes(o) {
                    lowered |= least[block] > count;
                    least[block] = count;
                }
                self.counts[o] = count;
            }
        }
    }

    fn runs_before(&mut self, operator: usize, made: &mut [u64]) {
        let mut batch = Vec::new();
        self.ask(operator, u32::MAX, made, &mut batch);
        let mut asked = 0;
        while let Some(&(run, of)) = batch.get(asked) {
            self.ask(of, run, made, &mut batch);
            asked += 1;
        }
        batch.sort_unstable();
        self.runs.extend(batch.into_iter().map(|(_, operator)| (operator, true)));
    }

    /// `run` is `u32::MAX` for the run in the backward pass.
    fn ask(&self, operator: usize, run: u32, made: &mut [u64], batch: &mut Vec<(u32, usize)>) {
        for r in self.network.managed(operator) {
            let versions = [Some(r.version), self.values[r.block].last_version];
            for maker in versions.into_iter().flatten().filter_map(|version| self.network.maker(version)) {
                let of_maker = if maker < self.forward { run.min(self.counts[maker]) } else { 0 };
                if of_maker > 0 && made[maker] >> of_maker == 0 {
                    made[maker] |= 1 << of_maker;
                    batch.push((of_maker, maker));
                }
            }
        }
    }
}
