//! A planning walk: goes through the operators in order under a limit, and evicts values. It knows which values are
//! read later.
//!
//! Problem: run the operators of a trace in their order so that the bytes alive stay within a limit, and recompute as
//! little as possible. The idea is that of dynamic tensor rematerialization (Kirisame et al. 2021), which does not know
//! what is read later; here that is known.
//!
//! 1. The operators run in their order. An input that is missing is recomputed first. The operators that run for this
//!    are the *closure* of the input: the one that writes it, those that write missing inputs of that one, and so on.
//! 2. Where memory runs out, a value is evicted that the running operator does not need: the one with the least score
//!    ([`evict`] finds it). The score is `cost / (bytes · distance^b)`, where b is a parameter. The cost is the time
//!    that the value's closure takes, the distance the time until the value's next use. An operator of the closure is
//!    *owed* if it has to be recomputed anyway, because another of its outputs, or a value made from its outputs, is
//!    missing and read later. Only a part of its time counts.
//! 3. A value is freed as soon as no operator reads it any more, and no missing value that is read later is made
//!    directly from it. If a walk fails because a value was lost, a new walk also keeps each value that cannot be
//!    recomputed and from which a missing one is made by way of other missing ones.
//! 4. *Virtual uses*: each read of a value by a closure is noted. The next walk counts it as a use of the value, so
//!    that values are kept for the closures to come.
//! 5. Where memory is too small to run a closure, the values that it makes should not have been evicted. The *weights*
//!    of their blocks, factors of the score, are raised for the next walk.
//! 6. An operator that writes its output over an input that nobody reads later needs no memory for the output.
//! 7. A walk is ended early once its cost is above the most that its caller accepts.
//!
//! Of blocks with equal scores the one with the least number is evicted. Cost: O(block accesses of all runs), and for
//! each eviction a few closures and logarithms of the number of blocks. Linear workspace.

mod evict;

use super::most_rows;
use crate::id::Id;
use crate::list::List;
use crate::rewrite::ids::BlockId;
use crate::rewrite::members::Members;
use crate::rewrite::script::{Cost, Step};
use crate::rewrite::tournament::Tournament;
use crate::rewrite::values::{InPlace, NONE, Reference, Values, VersionId};
use crate::table::{Records, Table, record};
use crate::workspace::workspace;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::rewrite) struct Preference {
    /// Twice the exponent b in the score `cost / (bytes · distance^b)`: 0 to 4.
    pub(in crate::rewrite) distance: u32,
    /// The factor, at most 1, of an owed operator's time.
    pub(in crate::rewrite) owed: f64,
}

const RAISE: f64 = 4.0;

const CLOSURE: u32 = 256;

record! {
    struct Noted {
        version: VersionId,
        before: u32,
    }
}

record! {
    struct Visit {
        version: VersionId,
        owed: bool,
    }
}

workspace! {
    pub(in crate::rewrite) struct Walk<'a>(rows, blocks; values: &'a Values<'a>, least: u64) then begin {
        tables {
            headroom: u64[rows + 2],
            first_virtual[VersionId]: u32[rows + blocks + 1],
            /// Operators, sorted by value read and then by operator.
            virtual_use: u32[rows],
            /// Accesses that need it now; while there are any, it is not evicted.
            pinned[BlockId]: u32[blocks],
            /// Its next reader in the list of `values`, and its next entry in `virtual_use`.
            next[VersionId]: [u32; 2][rows + blocks],
            /// The last search that visited it, so that none visits an operator twice.
            counted: u32[rows + 2],
        }
        records {
            holds[BlockId]: Option<VersionId>[blocks],
            /// Wrongly evicted in this walk: memory was too small to recompute its value.
            blamed[BlockId]: bool[blocks],
            /// Not to be evicted, so that only swaps may take it away.
            pub(in crate::rewrite) spared[BlockId]: bool[blocks],
            price[BlockId]: f64[blocks],
            weight[BlockId]: f64[blocks],
        }
        lists {
            noted: Noted[rows],
            remembered: Noted[rows],
            /// Operators to recompute, each for the one below it, with the next access to look at.
            stack: [u32; 2][rows + 1],
            closure: Visit[2 * CLOSURE as usize],
            script: Step[most_rows(rows)],
        }
        parts {
            queue[BlockId]: Tournament(blocks),
            stale[BlockId]: Members(blocks),
        }
        state {
            values: &'a Values<'a> = values,
            pub(in crate::rewrite) most_price: f64 = f64::INFINITY,
            /// False until a walk fails because a source was lost, as to find them takes time.
            pub(in crate::rewrite) keeps_sources: bool = false,
            source_is_lost: bool = false,
            pub(in crate::rewrite) least: u64 = least,
            passed: u32 = 0,
            count: u32 = 0,
            pub(in crate::rewrite) in_place: bool = false,
            /// Changes wrap, as an operator may free more bytes than it allocates.
            load: u64 = 0,
            rows: u32 = 0,
            now: u32 = 0,
            preference: Preference = Preference { distance: 0, owed: 1.0 },
            limit: u64 = 0,
            cost: Cost = Cost::default(),
            most: Cost = Cost::MOST,
            pub(in crate::rewrite) work: u64 = 0,
        }
    }
}

impl<'a> Walk<'a> {
    fn begin(&mut self) {
        self.weight.fill(1.0);
        self.values.recompute_costs(&mut self.price);
        self.clear_memory();
    }

    pub(in crate::rewrite) fn price(&self, block: BlockId) -> f64 {
        self.price.get(block)
    }

    pub(in crate::rewrite) fn script(&self) -> &List<'a, Step> {
        &self.script
    }

    pub(in crate::rewrite) fn weight(&mut self) -> &mut Records<'a, f64, BlockId> {
        &mut self.weight
    }

    pub(in crate::rewrite) fn headroom_of(&self, operator: u32) -> u64 {
        self.headroom[operator.min(self.values.program.operators)]
    }

    pub(in crate::rewrite) fn raise(&mut self) {
        for b in self.values.program.blocks().filter(|&b| self.blamed.get(b)) {
            self.weight.set(b, self.weight.get(b) * RAISE);
        }
    }

    pub(in crate::rewrite) fn headroom(&mut self) -> &mut Table<'a, u64> {
        &mut self.headroom
    }

    pub(in crate::rewrite) fn clear_memory(&mut self) {
        self.noted.clear();
        self.remember();
    }

    pub(in crate::rewrite) fn remember(&mut self) {
        self.remembered.copy_from(&self.noted);
        self.list_virtual();
    }

    fn list_virtual(&mut self) {
        let versions = self.values.versions;
        for v in VersionId::each(0..versions + 1) {
            self.first_virtual[v] = 0;
        }
        for Noted { version, .. } in self.remembered.iter() {
            self.first_virtual[version] += 1;
        }
        let mut sum = 0;
        for v in VersionId::each(0..versions + 1) {
            sum += self.first_virtual[v];
            self.first_virtual[v] = sum;
        }
        for Noted { version, before } in self.remembered.iter().rev() {
            self.first_virtual[version] -= 1;
            self.virtual_use[self.first_virtual[version]] = before;
        }
    }

    pub(in crate::rewrite) fn walk(&mut self, preference: Preference, limit: u64, most: Cost) -> Option<Cost> {
        let found = self.walk_once(preference, limit, most);
        if found.is_some() || self.keeps_sources || !self.source_is_lost {
            return found;
        }
        self.keeps_sources = true;
        self.walk_once(preference, limit, most)
    }

    fn walk_once(&mut self, preference: Preference, limit: u64, most: Cost) -> Option<Cost> {
        let values = self.values;
        self.preference = preference;
        self.restart(limit, most);
        for v in VersionId::each(0..values.versions) {
            self.next[v] = [values.uses(v).0, self.first_virtual[v]];
        }
        for g in 0..values.program.operators {
            self.now = g;
            self.skip_virtual_uses();
            self.run_first(g)?;
        }
        // Frees the values that were kept for a recomputation that was not needed in the end.
        for block in values.program.blocks() {
            if self.holds.get(block).is_some() {
                self.drop_block(block)?;
            }
        }
        Some(self.cost)
    }

    fn restart(&mut self, limit: u64, most: Cost) {
        (self.limit, self.most, self.cost) = (limit.min(u64::MAX / 2), most, Cost::default());
        (self.load, self.rows, self.now, self.passed) = (0, 0, 0, 0);
        self.source_is_lost = false;
        self.noted.clear();
        self.stack.clear();
        self.script.clear();
        self.holds.fill(None);
        self.pinned.fill(0);
        self.blamed.fill(false);
        self.queue.clear();
        self.stale.clear();
        let values = self.values;
        self.work +=
            u64::from(values.versions) + u64::from(values.program.operators) + values.program.size.len() as u64;
    }

    fn run_first(&mut self, g: u32) -> Option<()> {
        let values = self.values;
        let mut missing = false;
        for r in values.managed(g) {
            self.pinned[r.block] += 1;
            missing |= self.is_missing(&r);
        }
        if missing {
            for r in values.managed(g).filter(|r| !r.writes) {
                self.make(r.version)?;
            }
        }
        let need = self.missing_outputs(g).saturating_sub(self.reused(g));
        self.make_room(need.saturating_add(values.most[g]));
        for r in values.managed(g) {
            self.pinned[r.block] -= 1;
            if r.writes {
                self.put(r.block, r.version);
            }
        }
        self.load = self.load.wrapping_add(values.left[g]);
        self.push(Step::Run(g))?;
        self.now = g + 1;
        for r in values.managed(g) {
            self.free_if_done(r.block)?;
        }
        Some(())
    }

    #[inline]
    fn is_missing(&self, r: &Reference) -> bool {
        !r.writes && !self.holds.is(r.block, Some(r.version))
    }

    fn missing_outputs(&self, g: u32) -> u64 {
        let values = self.values;
        let missing = values.managed(g).filter(|r| r.writes && self.holds.get(r.block).is_none());
        missing.map(|r| values.program.size[r.block]).sum()
    }

    fn reused(&mut self, g: u32) -> u64 {
        let Some((input, InPlace { version, output, .. })) = self.values.in_place(g).filter(|_| self.in_place) else {
            return 0;
        };
        if self.holds.get(output).is_some() || !self.holds.is(input, Some(version)) || self.pinned[input] != 1 {
            return 0;
        }
        self.now = g + 1;
        let last = self.next_use(version) == NONE;
        self.now = g;
        if last { self.values.program.size[output] } else { 0 }
    }

    fn make(&mut self, version: VersionId) -> Option<()> {
        let values = self.values;
        if self.holds.is(values.block(version), Some(version)) {
            return Some(());
        }
        self.enter(version)?;
        while let Some([g, mut i]) = self.stack.pop() {
            if values.is_gone(g, self.now) {
                return None;
            }
            let (_, end) = values.managed_range(g);
            let mut missing = None;
            while i < end && missing.is_none() {
                let r = values.managed_reference(i);
                if self.is_missing(&r) {
                    missing = Some(r.version);
                } else {
                    i += 1;
                }
            }
            self.stack.push([g, i]);
            if let Some(version) = missing {
                self.enter(version)?;
            } else {
                self.recompute(g)?;
                self.stack.pop();
            }
        }
        Some(())
    }

    fn enter(&mut self, version: VersionId) -> Option<()> {
        let values = self.values;
        self.work += 1;
        let Some(maker) = values.maker(version) else {
            self.source_is_lost = true;
            return None;
        };
        for r in values.managed(maker) {
            self.pinned[r.block] += 1;
        }
        for r in values.managed(maker) {
            if !r.writes {
                self.note(r.version);
            }
            // The block holds a later value. That value is evicted, and recomputed when it is needed.
            if self.holds.get(r.block) > Some(r.version) {
                let own = values.managed(maker).filter(|other| other.block == r.block).map(|_| 1).sum();
                if self.pinned[r.block] > own {
                    return None;
                }
                self.drop_block(r.block)?;
            }
        }
        self.stack.push([maker, values.managed_range(maker).0]);
        Some(())
    }

    fn recompute(&mut self, g: u32) -> Option<()> {
        let values = self.values;
        self.make_room(self.missing_outputs(g).saturating_add(values.local[g]));
        for r in values.managed(g) {
            self.pinned[r.block] -= 1;
            if r.writes {
                self.put(r.block, r.version);
                self.closures_shrink(r.version);
            }
        }
        self.cost.delay = self.cost.delay.saturating_add(values.program.duration(g));
        self.push(Step::Recompute(g))?;
        for r in values.managed(g) {
            self.free_if_done(r.block)?;
        }
        Some(())
    }

    fn push(&mut self, step: Step) -> Option<()> {
        self.rows += step.most_rows(self.values);
        if let Some((g, _)) = step.run() {
            // Each access is looked at before the operator runs and after.
            let (first, end) = self.values.range(g);
            self.work += 2 + 2 * u64::from(end - first);
        }
        let room = usize::try_from(self.rows).is_ok_and(|rows| rows <= most_rows(self.values.program.rows.len()));
        // Both figures of the cost only grow, so a walk above `most` can be ended.
        let is_worth_it = self.cost.excess <= self.most.excess && self.cost.delay <= self.most.delay;
        (room && is_worth_it && self.script.push(step)).then_some(())
    }

    fn skip_virtual_uses(&mut self) {
        while let Some(noted) = self.remembered.at(self.passed).filter(|noted| noted.before < self.now) {
            self.stale.insert(self.values.block(noted.version));
            self.passed += 1;
        }
    }

    fn note(&mut self, version: VersionId) {
        self.noted.push(Noted { version, before: self.now });
    }

    fn next_use(&mut self, version: VersionId) -> u32 {
        let end = self.values.uses(version).1;
        let [mut real, mut noted] = self.next[version];
        while real < end && self.values.user(real) < self.now {
            real += 1;
        }
        let last = self.first_virtual[version.next()];
        while noted < last && self.virtual_use[noted] < self.now {
            noted += 1;
        }
        self.next[version] = [real, noted];
        let of_real = if real < end { self.values.user(real) } else { NONE };
        let of_noted = if noted < last { self.virtual_use[noted] } else { NONE };
        of_real.min(of_noted)
    }

    fn put(&mut self, block: BlockId, version: VersionId) {
        if self.holds.get(block).is_none() {
            self.load = self.load.wrapping_add(self.values.program.size[block]);
        }
        self.holds.set(block, Some(version));
    }

    fn free_if_done(&mut self, block: BlockId) -> Option<()> {
        if let Some(version) = self.holds.get(block).filter(|_| self.pinned[block] == 0) {
            if !(self.is_wanted(version) || self.keeps_sources && self.is_last_source(version)) {
                return self.drop_block(block);
            }
            self.stale.insert(block);
        }
        Some(())
    }

    fn drop_block(&mut self, block: BlockId) -> Option<()> {
        self.queue.remove(block);
        if let Some(version) = self.holds.get(block) {
            self.holds.set(block, None);
            self.siblings_are_owed(version);
        }
        self.load = self.load.wrapping_sub(self.values.program.size[block]);
        self.push(Step::Free(block))
    }

    /// What does not fit is noted as an excess; `u64::MAX` if an eviction finds no room, so the walk fails.
    fn make_room(&mut self, need: u64) {
        let held = self.headroom[self.now.min(self.values.program.operators)];
        let limit = self.limit.saturating_sub(held);
        loop {
            let load = self.load.wrapping_add(need);
            if load.cast_signed() <= limit.cast_signed() {
                return;
            }
            let Some(block) = self.least_worth() else {
                self.cost.excess = self.cost.excess.max(load - limit);
                self.blame();
                return;
            };
            if self.drop_block(block).is_none() {
                self.cost.excess = u64::MAX;
                return;
            }
        }
    }

    fn blame(&mut self) {
        let values = self.values;
        for [operator, _] in self.stack.iter() {
            values.made(operator).for_each(|made| self.blamed.set(made.block, true));
        }
    }
}
