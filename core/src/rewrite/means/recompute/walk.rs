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

/// The parameters of the score by which values are evicted; the value with the lowest score is evicted first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::rewrite) struct Preference {
    /// Twice the exponent b in the eviction score `cost / (bytes · distance^b)`: 0 to 4, for b from 0 to 2. The
    /// distance is the time in ns until the next use of the value.
    pub(in crate::rewrite) distance: u32,
    /// The factor, at most 1, by which an operator's time counts in the cost of recomputing a value if the operator is
    /// *owed*: it has to be recomputed anyway, because another of its outputs, or a value made from its outputs, is
    /// missing and read later.
    pub(in crate::rewrite) owed: f64,
}

/// The eviction weight of a block that a planning walk should not have evicted is multiplied by this for the next walk,
/// so that the block is evicted later.
const RAISE: f64 = 4.0;

/// The most operators that are looked at to find the cost of recomputing one value: the operator that writes the value,
/// and those that write missing inputs. The time of any further ones is not counted.
const CLOSURE: u32 = 256;

record! {
    /// A read of a value that served to recompute another. It can become a virtual use in the next planning walk.
    struct Noted {
        /// The value that was read.
        version: VersionId,
        /// The operator for which the recomputation was made: the value was read before that operator ran.
        before: u32,
    }
}

record! {
    /// A value that a search still has to visit. The search finds what a given value is made from, or what is made from
    /// it, directly or by way of other values.
    struct Visit {
        version: VersionId,
        /// Whether the value has to be recomputed anyway, because it, or another value made from it, is missing and
        /// read later. Used only by a search that adds up the cost of recomputing a value.
        owed: bool,
    }
}

workspace! {
    /// One planning walk: goes through all operators in order under a limit, and decides which values are evicted and
    /// recomputed. Holds what is on the device at the operator that the walk has come to, and the parameters by which
    /// the values to evict are chosen.
    pub(in crate::rewrite) struct Walk<'a>(rows, blocks; values: &'a Values<'a>, least: u64) then begin {
        tables {
            /// For each operator: the bytes held back below the limit while it runs.
            headroom: u64[rows + 2],
            /// For each value that a block holds: the index at which its entries in `virtual_use` begin.
            first_virtual[VersionId]: u32[rows + blocks + 1],
            /// The virtual uses: the reads in an earlier planning walk that served to recompute other values. They are
            /// sorted by the value that was read, and for one value by the operator. Each entry is the number of an
            /// operator: the value was read to recompute another one for this operator.
            virtual_use: u32[rows],
            /// For each block: how many accesses need it now. These are accesses of the operator that runs, and of the
            /// operators that are recomputed for it. While there are any, the block is not evicted.
            pinned[BlockId]: u32[blocks],
            /// For each value that a block holds, two indices. The first is the index of the value's next reader in the
            /// list of readers that `values` has. The second is the index of the value's next virtual use in
            /// `virtual_use`.
            next[VersionId]: [u32; 2][rows + blocks],
            /// For each operator: the number of the last search that visited it, so that no search visits an operator
            /// twice. A search looks for what a value is made from, or what is made from it.
            counted: u32[rows + 2],
        }
        records {
            /// The value that each block holds now; none if the block has no memory.
            holds[BlockId]: Option<VersionId>[blocks],
            /// For each block: whether this planning walk was wrong to evict it, because later there was too little
            /// memory to recompute the value.
            blamed[BlockId]: bool[blocks],
            /// The recompute cost of each block, in ns per byte.
            price[BlockId]: f64[blocks],
            /// The weight of each block: a factor of its eviction score. Blocks with lower scores are evicted first.
            weight[BlockId]: f64[blocks],
        }
        lists {
            /// The reads so far in this planning walk that served to recompute other values. They can become the
            /// virtual uses of the next walk.
            noted: Noted[rows],
            /// The virtual uses in this planning walk: the reads in an earlier walk that served to recompute other
            /// values, in the order in which they were made.
            remembered: Noted[rows],
            /// A copy of `remembered`, made by `keep_memory`, so that `restore_memory` can bring it back.
            kept: Noted[rows],
            /// The operators that are to be recomputed, as a stack: each writes what the one below it reads. Beside
            /// each operator stands the index of its access that is to be looked at next. Only accesses to managed
            /// blocks count: those that the plan of recomputation allocates and frees.
            stack: [u32; 2][rows + 1],
            /// The values that a search still has to visit. A search goes from a value either to those that it is made
            /// from, or to those that are made from it.
            closure: Visit[2 * CLOSURE as usize],
            /// The steps of this planning walk so far: runs and recomputations of operators, and frees of blocks.
            script: Step[most_rows(rows)],
        }
        parts {
            /// The blocks that may be evicted, in the order of a lower bound on their eviction scores. The least is
            /// first.
            queue[BlockId]: Tournament(blocks),
            /// The blocks whose eviction score may have fallen since it was computed. These scores are computed anew
            /// before the next eviction.
            stale[BlockId]: Members(blocks),
        }
        state {
            values: &'a Values<'a> = values,
            /// Blocks with a recompute cost above this, in ns per byte, are not evicted.
            pub(in crate::rewrite) most_price: f64 = f64::INFINITY,
            /// Whether to keep a value that no operator reads any more, if a missing value could not be recomputed
            /// without it. It takes time to find such values, so this is false until a planning walk has failed because
            /// one was lost.
            pub(in crate::rewrite) keeps_sources: bool = false,
            /// Whether this planning walk needed a value that is lost and cannot be recomputed, and so has failed.
            source_is_lost: bool = false,
            /// Blocks of fewer bytes than this are not evicted.
            least: u64 = least,
            /// How many virtual uses are over, since they are for operators before the one that runs now. In
            /// `remembered`, the list of the virtual uses, these come first.
            passed: u32 = 0,
            /// The number of the latest search for what a value is made from (to add up the cost of recomputing it), or
            /// what is made from it. The search marks the operators that it visits with this number in `counted`.
            count: u32 = 0,
            /// Whether operators write their outputs over their inputs, where this is allowed.
            pub(in crate::rewrite) in_place: bool = false,
            /// The bytes on the device at this point of the planning walk. Changes are added with wrapping, as an
            /// operator may free more bytes than it allocates.
            load: u64 = 0,
            /// An upper bound on how many rows the runs, recomputations and frees so far take in a trace.
            rows: u32 = 0,
            /// The operator that runs now for the first time; between two such runs, the next one.
            now: u32 = 0,
            /// The parameters of the eviction score in this planning walk.
            preference: Preference = Preference { distance: 0, owed: 1.0 },
            /// The limit on memory in this planning walk, in bytes. The headroom below it is not subtracted yet.
            limit: u64 = 0,
            /// The cost of the steps so far: the most bytes by which they exceed the limit less the headroom, and the
            /// time in ns that they add.
            cost: Cost = Cost::default(),
            /// The planning walk is ended early once it exceeds the limit by more bytes than this cost says, or adds
            /// more time.
            most: Cost = Cost::MOST,
            /// The work done: the accesses of operators to blocks and the recompute costs of values that were looked
            /// at, added up.
            pub(in crate::rewrite) work: u64 = 0,
        }
    }
}

impl<'a> Walk<'a> {
    fn begin(&mut self) {
        self.weight.fill(1.0);
        self.values.recompute_costs(&mut self.price);
        self.forget();
    }

    /// The recompute cost of a block, in ns per byte.
    pub(in crate::rewrite) fn price(&self, block: BlockId) -> f64 {
        self.price.get(block)
    }

    pub(in crate::rewrite) fn script(&self) -> &List<'a, Step> {
        &self.script
    }

    /// The weight of each block, a factor of its eviction score. The caller may change the weights.
    pub(in crate::rewrite) fn weight(&mut self) -> &mut Records<'a, f64, BlockId> {
        &mut self.weight
    }

    /// The bytes held back below the limit while an operator runs.
    pub(in crate::rewrite) fn headroom_of(&self, operator: u32) -> u64 {
        self.headroom[operator.min(self.values.program.operators)]
    }

    /// Raises the eviction weights of the blocks that the last planning walk should not have evicted, because memory
    /// was too small to recompute their values later. The next walk evicts them later.
    pub(in crate::rewrite) fn raise(&mut self) {
        for b in self.values.program.blocks().filter(|&b| self.blamed.get(b)) {
            self.weight.set(b, self.weight.get(b) * RAISE);
        }
    }

    /// For each operator: the bytes held back below the limit while it runs. The caller may change them.
    pub(in crate::rewrite) fn headroom(&mut self) -> &mut Table<'a, u64> {
        &mut self.headroom
    }

    /// Drops all virtual uses: the next planning walk has none.
    pub(in crate::rewrite) fn forget(&mut self) {
        self.noted.clear();
        self.remember();
    }

    /// Replaces the virtual uses, for the next planning walk, by the reads of the walk just done that served to
    /// recompute other values.
    pub(in crate::rewrite) fn remember(&mut self) {
        self.remembered.copy_from(&self.noted);
        self.list_virtual();
    }

    /// Makes a copy of the virtual uses, which come from an earlier planning walk, so that
    /// [`restore_memory`](Self::restore_memory) can bring them back. "Memory" means here what is remembered of that
    /// walk, not bytes.
    pub(in crate::rewrite) fn keep_memory(&mut self) {
        self.kept.copy_from(&self.remembered);
    }

    /// Brings back the virtual uses of which [`keep_memory`](Self::keep_memory) made a copy.
    pub(in crate::rewrite) fn restore_memory(&mut self) {
        self.remembered.copy_from(&self.kept);
        self.list_virtual();
    }

    /// Fills in `virtual_use`: the virtual uses, sorted by the value that was read. They are taken from `remembered`,
    /// where they stand in the order in which they were made. Fills in `first_virtual`: the index at which the entries
    /// of each value begin.
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

    /// Makes a planning walk: goes through all operators in order, and decides which values are evicted and recomputed,
    /// so that memory stays within `limit` bytes less the headroom as far as possible. `preference` has the parameters
    /// of the eviction score. Returns what the walk's script (the steps, in order) costs: the most bytes above the
    /// limit less the headroom, and the time added. None in three cases: a value that is read cannot be recomputed;
    /// there is no room for the script; or it costs more than `most`. If the walk fails because a value was lost, sets
    /// `keeps_sources` and makes a second walk.
    pub(in crate::rewrite) fn walk(&mut self, preference: Preference, limit: u64, most: Cost) -> Option<Cost> {
        let found = self.walk_once(preference, limit, most);
        if found.is_some() || self.keeps_sources || !self.source_is_lost {
            return found;
        }
        self.keeps_sources = true;
        self.walk_once(preference, limit, most)
    }

    /// Makes one planning walk over all operators. Returns the cost of its steps. None if a value that is read cannot
    /// be recomputed, the list of steps is full, or the steps cost more than `most`. Where a value was lost that should
    /// have been kept, [`Walk::walk`] makes a second walk, which keeps such values.
    fn walk_once(&mut self, preference: Preference, limit: u64, most: Cost) -> Option<Cost> {
        let values = self.values;
        self.preference = preference;
        self.restart(limit, most);
        for v in VersionId::each(0..values.versions) {
            self.next[v] = [values.uses(v).0, self.first_virtual[v]];
        }
        for g in 0..values.program.operators {
            self.now = g;
            self.virtual_uses_pass();
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

    /// Prepares a planning walk within `limit` bytes: no operator has run, and nothing is on the device. The walk is
    /// ended once it costs more than `most`.
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

    /// Runs an operator for the first time in the planning walk: recomputes its missing inputs, makes room for its
    /// outputs, and frees what nobody needs after it. None if an input cannot be recomputed, the list of steps is full,
    /// or the steps cost more than allowed.
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

    /// Whether an access reads a value that is not on the device now: its block has no memory, or holds another value.
    #[inline]
    fn is_missing(&self, r: &Reference) -> bool {
        !r.writes && !self.holds.is(r.block, Some(r.version))
    }

    /// The bytes of the blocks that an operator writes and that have no memory yet.
    fn missing_outputs(&self, g: u32) -> u64 {
        let values = self.values;
        let missing = values.managed(g).filter(|r| r.writes && self.holds.get(r.block).is_none());
        missing.map(|r| values.program.size[r.block]).sum()
    }

    /// The bytes that an operator saves by writing its output over an input that nobody reads later; 0 if it does not
    /// do so.
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

    /// Recomputes a value if it is not on the device. First recomputes the missing values that it is made from. None if
    /// one of these values cannot be recomputed, the list of steps is full, or the steps cost more than allowed.
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

    /// Puts the operator that writes the value `version` on the stack of the operators to recompute. Pins its managed
    /// blocks, those that the plan of recomputation allocates and frees, so that they stay until it has run. Frees such
    /// a block if it holds a later value than the one that the operator accesses there. Returns none in these cases: no
    /// operator may be recomputed to write the value; a block to be freed is pinned by another operator too; the list
    /// of steps is full; or the steps cost more than allowed.
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

    /// Recomputes an operator whose inputs are all on the device, and notes this as a step of the planning walk. None
    /// if the list of steps is full, or the steps cost more than allowed.
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

    /// Adds a run, a recomputation or a free to the list of steps. None if the list is full, if the steps take too many
    /// rows in a trace, or if they cost more than the caller of the walk allows: in bytes above the limit or in time.
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

    /// Marks as stale each block of which a virtual use is over: the walk has passed the operator for which the value
    /// was read. The block's next use may now be later, so its eviction score has to be computed anew.
    fn virtual_uses_pass(&mut self) {
        while let Some(noted) = self.remembered.at(self.passed).filter(|noted| noted.before < self.now) {
            self.stale.insert(self.values.block(noted.version));
            self.passed += 1;
        }
    }

    /// Notes that a value is read now in order to recompute another. The read can become a virtual use in the next
    /// planning walk.
    fn note(&mut self, version: VersionId) {
        self.noted.push(Noted { version, before: self.now });
    }

    /// The first operator that needs a value, of the operator that runs now and those after it. An operator needs the
    /// value if it reads it, or if a virtual use of the value is for this operator. [`NONE`] if there is none.
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

    /// Notes that a block now holds the value `version`. If the block had no memory, it takes memory now.
    fn put(&mut self, block: BlockId, version: VersionId) {
        if self.holds.get(block).is_none() {
            self.load = self.load.wrapping_add(self.values.program.size[block]);
        }
        self.holds.set(block, Some(version));
    }

    /// Frees a block if its value is not needed any more; else marks it as stale, so that its eviction score is
    /// computed anew. Does nothing while the block is pinned: an operator that runs or is to be recomputed now accesses
    /// it. None if the block is freed but the list of steps is full, or the steps cost more than allowed; else some.
    fn free_if_done(&mut self, block: BlockId) -> Option<()> {
        if let Some(version) = self.holds.get(block).filter(|_| self.pinned[block] == 0) {
            if !(self.is_wanted(version) || self.keeps_sources && self.is_last_source(version)) {
                return self.drop_block(block);
            }
            self.stale.insert(block);
        }
        Some(())
    }

    /// Frees a block, as a step of its own. None if the list of steps is full, if the steps take too many rows in a
    /// trace, or if they cost more than the caller of the walk allows: in bytes above the limit or in time.
    fn drop_block(&mut self, block: BlockId) -> Option<()> {
        self.queue.remove(block);
        if let Some(version) = self.holds.get(block) {
            self.holds.set(block, None);
            self.siblings_are_owed(version);
        }
        self.load = self.load.wrapping_sub(self.values.program.size[block]);
        self.push(Step::Free(block))
    }

    /// Evicts blocks, the one with the least eviction score first, until `need` more bytes fit within the limit less
    /// the headroom. If no block is left to evict, the bytes that do not fit are noted as an excess in the cost. If an
    /// eviction cannot be added to the steps (their list is full, or they cost more than allowed), the excess becomes
    /// `u64::MAX`, so that the walk fails.
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

    /// Notes that memory is too small to recompute the operators on the stack. The blocks that they write should not
    /// have been evicted.
    fn blame(&mut self) {
        let values = self.values;
        for [operator, _] in self.stack.iter() {
            values.made(operator).for_each(|made| self.blamed.set(made.block, true));
        }
    }
}
