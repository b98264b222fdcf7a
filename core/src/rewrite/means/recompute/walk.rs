//! Eviction under a limit by one who knows the future.
//!
//! Problem: run the operators of a trace in their order so that the load stays within a limit, and run as little as
//! possible again. The idea is that of dynamic tensor rematerialization (Kirisame et al. 2021), for a future that is
//! known.
//!
//! 1. The operators run in their order. What one reads and is not there is made first, by its *closure*: its writer, and
//!    before it the writers of what that reads and is not there either.
//! 2. Where memory runs out, the value goes that is least in `cost of its closure / (bytes · distance to its next
//!    use^b)`, of those that nobody is about to read ([`evict`] finds it). What the closure owes to others anyway counts for
//!    a part only: it is read later and not there, or its operator makes something else of which that is so.
//! 3. A value goes as soon as nobody reads it any more, and nobody has to read it again to make what is not there and is
//!    read later: the gates of a recurrent cell are recomputed of one product.
//! 4. *Virtual uses*: what a closure reads is noted. The next walk counts it as a use, so that a value stays for the
//!    closures that are to come.
//! 5. Where memory is too small for a closure, what it was to make should have stayed: its weights are raised for the next
//!    walk.
//! 6. An operator that works in place over an input that nobody reads after it needs no memory for its output.
//! 7. *Offloads*: operators in which a block is on the host. It takes no memory there, and is back at once where a closure
//!    reads it.
//! 8. A walk that has come to more than its caller can use is given up.
//!
//! Of equals the block with the least number goes. Cost: O(references of what runs), and for each eviction a few closures
//! and logarithms of the number of blocks. Linear workspace.

mod evict;
pub(in crate::rewrite) mod follow;

use super::most_rows;
use super::offload::Offloads;
use super::script::Step;
use crate::list::List;
use crate::rewrite::gaps::Gap;
use crate::rewrite::members::Members;
use crate::rewrite::tournament::Tournament;
use crate::rewrite::values::{InPlace, NONE, Reference, Values};
use crate::simulate::Device;
use crate::table::{Records, Table};
use crate::workspace::workspace;

/// How the walk chooses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::rewrite) struct Preference {
    /// Twice the power of the distance.
    pub(in crate::rewrite) distance: u32,
    /// What is owed anyway counts for this part.
    pub(in crate::rewrite) owed: f64,
}

/// The weight of what should have stayed grows by this factor.
const RAISE: f64 = 4.0;

/// The most closure operators that are looked at for the cost of one value.
const CLOSURE: u32 = 256;

/// What a walk comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(in crate::rewrite) struct Walked {
    /// By how much the load is above the limit where it is most.
    pub(in crate::rewrite) excess: u64,
    /// What it takes longer than the original, in ns: what is recomputed, and waits for copies.
    pub(in crate::rewrite) delay: u64,
}

impl Walked {
    /// More than any walk comes to.
    pub(in crate::rewrite) const ANY: Self = Self { excess: u64::MAX, delay: u64::MAX };
}

workspace! {
    /// The walk and what it is told.
    pub(in crate::rewrite) struct Walk<'a>(rows, blocks; values: &'a Values<'a>, device: &Device, least: u64) then begin {
        tables {
            /// What is held back from the limit in each operator.
            held: u64[rows + 2],
            /// Virtual uses of each version, ascending, and what is noted for the next walk: version and operator.
            first_virtual: u32[rows + blocks + 1],
            virtual_use: u32[rows],
            /// By block: 1 + the version that it holds, by how many it is about to be read, and 1 + the gap in which it is on the
            /// host.
            holds: u32[blocks],
            pinned: u32[blocks],
            away: u32[blocks],
            /// By version: the next of its uses and of its virtual uses.
            next: [u32; 2][rows + blocks],
            /// By block: whether it was recomputed where memory was too small for that.
            blamed: u32[blocks],
            counted: u32[rows + 2],
        }
        records {
            /// Of each block a factor of its score.
            weight: f64[blocks],
            /// When compute comes to each operator, and where it is.
            clock_at: f64[rows + 2],
        }
        lists {
            noted: [u32; 2][rows],
            remembered: [u32; 2][rows],
            kept: [u32; 2][rows],
            /// Operators that are to be recomputed: which, and the next of its references.
            stack: [u32; 2][rows + 1],
            /// Versions that are to be looked at for a cost, twice and whether they are owed; when each operator was counted last.
            closure: u32[2 * CLOSURE as usize],
            script: Step[most_rows(rows)],
        }
        parts {
            pub(in crate::rewrite) offloads: Offloads(rows, blocks; device),
            /// The blocks that may be evicted, by scores of before, and those whose score may be less now.
            queue: Tournament(blocks),
            stale: Members(blocks),
        }
        state {
            values: &'a Values<'a> = values,
            /// Smaller blocks are not worth it.
            least: u64 = least,
            /// How many of those are of operators before.
            passed: u32 = 0,
            count: u32 = 0,
            clock: f64 = 0.0,
            /// What recomputation takes, in ns, and whether waits for copies count too.
            recomputed: f64 = 0.0,
            pub(in crate::rewrite) waits: bool = false,
            /// Whether operators work in place.
            pub(in crate::rewrite) in_place: bool = false,
            load: u64 = 0,
            /// No fewer than the script makes.
            rows: u32 = 0,
            now: u32 = 0,
            preference: Preference = Preference { distance: 0, owed: 1.0 },
            limit: u64 = 0,
            walked: Walked = Walked::default(),
            /// A walk that comes to more than this, of one or the other, is given up.
            most: Walked = Walked::ANY,
            pub(in crate::rewrite) work: u64 = 0,
        }
    }
}

impl<'a> Walk<'a> {
    fn begin(&mut self) {
        self.weight.fill(1.0);
        self.forget();
    }

    pub(in crate::rewrite) fn script(&self) -> &List<'a, Step> {
        &self.script
    }

    /// Factors of the blocks' scores.
    pub(in crate::rewrite) fn weight(&mut self) -> &mut Records<'a, f64> {
        &mut self.weight
    }

    /// What is held back from the limit in an operator.
    pub(in crate::rewrite) fn held_back(&self, operator: u32) -> u64 {
        self.held[operator.min(self.values.program.operators)]
    }

    /// What should have stayed in the last walk has a larger weight in the next.
    pub(in crate::rewrite) fn raise(&mut self) {
        for b in 0..u32::try_from(self.weight.len()).unwrap_or(u32::MAX) {
            if self.blamed[b] > 0 {
                self.weight.set(b, self.weight.get(b) * RAISE);
            }
        }
    }

    pub(in crate::rewrite) fn hold(&mut self) -> &mut Table<'a, u64> {
        &mut self.held
    }

    /// No virtual uses.
    pub(in crate::rewrite) fn forget(&mut self) {
        self.noted.clear();
        self.remember();
    }

    /// Makes what the last walk noted the virtual uses of the next.
    pub(in crate::rewrite) fn remember(&mut self) {
        self.remembered.copy_from(&self.noted);
        self.list_virtual();
    }

    /// Keeps the virtual uses aside.
    pub(in crate::rewrite) fn keep_memory(&mut self) {
        self.kept.copy_from(&self.remembered);
    }

    /// Makes those that were kept aside the virtual uses.
    pub(in crate::rewrite) fn restore_memory(&mut self) {
        self.remembered.copy_from(&self.kept);
        self.list_virtual();
    }

    fn list_virtual(&mut self) {
        let versions = self.values.versions;
        for v in 0..=versions {
            self.first_virtual[v] = 0;
        }
        for [version, _] in self.remembered.iter() {
            self.first_virtual[version] += 1;
        }
        let mut sum = 0;
        for v in 0..=versions {
            sum += self.first_virtual[v];
            self.first_virtual[v] = sum;
        }
        for [version, operator] in self.remembered.iter().rev() {
            self.first_virtual[version] -= 1;
            self.virtual_use[self.first_virtual[version]] = operator;
        }
    }

    /// Runs all operators; none if something is read that cannot be made, the script is full, or it comes to more than `most`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times in ns"
    )]
    pub(in crate::rewrite) fn walk(&mut self, preference: Preference, limit: u64, most: Walked) -> Option<Walked> {
        let values = self.values;
        self.preference = preference;
        self.restart(limit, most);
        self.offloads.begin();
        for v in 0..values.versions {
            self.next[v] = [values.uses(v).0, self.first_virtual[v]];
        }
        let mut before = 0;
        for g in 0..values.program.operators {
            self.now = g;
            self.clock_at.set(g, self.clock);
            self.come_and_go(g);
            self.virtual_uses_pass();
            self.clock += values.program.access_time[g].saturating_sub(before) as f64;
            self.run_first(g)?;
            before = values.program.access_time[g] + values.program.duration(g);
        }
        // Offloads that last to the end.
        self.clock_at.set(values.program.operators, self.clock);
        self.come_and_go(values.program.operators);
        // What was kept for something that nobody wanted in the end.
        for block in (0..).take(values.program.size.len()).filter(|&block| values.is_managed(block)) {
            if self.holds[block] > 0 {
                self.drop_block(block)?;
            }
        }
        let delay = if self.waits { self.offloads.end(self.clock) - before as f64 } else { self.recomputed };
        self.walked.delay = libm::round(delay).max(0.0) as u64;
        Some(self.walked)
    }

    /// Nothing has run.
    fn restart(&mut self, limit: u64, most: Walked) {
        (self.limit, self.most, self.walked) = (limit.min(u64::MAX / 2), most, Walked::default());
        (self.load, self.rows, self.now, self.passed) = (0, 0, 0, 0);
        self.noted.clear();
        self.stack.clear();
        (self.clock, self.recomputed) = (0.0, 0.0);
        self.script.clear();
        for table in [&mut self.holds, &mut self.pinned, &mut self.away, &mut self.blamed] {
            table.fill(0);
        }
        self.queue.clear();
        self.stale.clear();
        let values = self.values;
        self.work +=
            u64::from(values.versions) + u64::from(values.program.operators) + values.program.size.len() as u64;
    }

    /// Blocks leave for the host, or are back.
    fn come_and_go(&mut self, g: u32) {
        let mut next = self.offloads.taken(g);
        while next > 0 {
            let block = self.offloads.gap(next - 1).block;
            if self.away[block] == next {
                self.come_home(block);
            }
            next = self.offloads.next(next - 1)[1];
        }
        let mut next = self.offloads.given(g);
        while next > 0 {
            let gap = next - 1;
            let Gap { block, begin, .. } = self.offloads.gap(gap);
            let there = !self.values.is_managed(block) || self.holds[block] > 0;
            if there && self.away[block] == 0 {
                self.away[block] = next;
                let size = self.values.program.size[block];
                let released = self.clock_at.get(begin);
                self.clock = self.offloads.give(gap, size, released, self.clock);
                self.load = self.load.wrapping_sub(size);
                self.queue.remove(block);
            }
            next = self.offloads.next(gap)[0];
        }
    }

    /// A block that is away is back.
    fn come_home(&mut self, block: u32) {
        if self.away[block] > 0 {
            let size = self.values.program.size[block];
            self.offloads.take(self.away[block] - 1, size, self.clock);
            self.away[block] = 0;
            self.load = self.load.wrapping_add(size);
            self.stale.insert(block);
        }
    }

    /// An operator runs, after all that it touches is back.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn run(&mut self, g: u32) {
        if self.offloads.used().len() > 0 {
            for r in self.values.references(g) {
                self.clock = self.clock.max(self.offloads.arrival(r.block));
            }
        }
        self.clock += self.values.program.duration(g) as f64;
    }

    fn run_first(&mut self, g: u32) -> Option<()> {
        let values = self.values;
        let managed = Reference::is_managed;
        for r in values.references(g) {
            if managed(&r) {
                self.pinned[r.block] += 1;
            }
            self.come_home(r.block);
        }
        for r in values.references(g).filter(|r| managed(r) && !r.writes) {
            self.make(r.version)?;
        }
        let new = values.references(g).filter(|r| managed(r) && r.writes && self.holds[r.block] == 0);
        let need = new.map(|r| values.program.size[r.block]).sum::<u64>();
        let need = need.saturating_sub(self.reused(g));
        self.make_room(need.saturating_add(values.most[g]));
        for r in values.references(g).filter(|r| managed(r) && r.writes) {
            self.put(r.block, r.version);
        }
        self.load = self.load.wrapping_add(values.left[g]);
        self.run(g);
        self.push(Step::First(g))?;
        self.now = g + 1;
        for r in values.references(g).filter(managed) {
            self.pinned[r.block] -= 1;
        }
        for r in values.references(g).filter(managed) {
            self.free_if_done(r.block)?;
        }
        Some(())
    }

    /// The bytes that an operator does not need, for it writes over what nobody reads after it.
    fn reused(&mut self, g: u32) -> u64 {
        let Some((input, InPlace { version, output, .. })) = self.values.in_place(g).filter(|_| self.in_place) else {
            return 0;
        };
        if self.holds[output] > 0 || self.holds[input] != version + 1 || self.pinned[input] != 1 {
            return 0;
        }
        self.now = g + 1;
        let last = self.next_use(version) == NONE;
        self.now = g;
        if last { self.values.program.size[output] } else { 0 }
    }

    /// Makes a version, if it is not there.
    fn make(&mut self, version: u32) -> Option<()> {
        let values = self.values;
        if self.holds[values.block(version)] == version + 1 {
            return Some(());
        }
        self.enter(version)?;
        while let Some([g, mut i]) = self.stack.pop() {
            let (_, end) = values.range(g);
            let mut missing = None;
            while i < end && missing.is_none() {
                let r = values.reference(i);
                i += 1;
                if r.updated {
                    continue;
                }
                self.come_home(r.block);
                if values.is_gone(&r, self.now) {
                    return None;
                }
                if r.is_managed() && !r.writes && self.holds[r.block] != r.version + 1 {
                    missing = Some(r.version);
                    i -= 1;
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

    /// The writer of a version is to be recomputed, and what it touches stays.
    fn enter(&mut self, version: u32) -> Option<()> {
        let values = self.values;
        self.work += 1;
        let maker = values.maker(version)?;
        for r in values.references(maker).filter(Reference::is_managed) {
            self.pinned[r.block] += 1;
        }
        for r in values.references(maker).filter(Reference::is_managed) {
            if !r.writes {
                self.note(r.version);
            }
            // A later value stands in the way; it is recomputed when it is needed.
            if self.holds[r.block] > r.version + 1 {
                let own = values.references(maker).filter(|other| other.block == r.block).map(|_| 1).sum();
                if self.pinned[r.block] > own {
                    return None;
                }
                self.come_home(r.block);
                self.drop_block(r.block)?;
            }
        }
        self.stack.push([maker, values.range(maker).0]);
        Some(())
    }

    /// An operator of which all is there that it reads is recomputed.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn recompute(&mut self, g: u32) -> Option<()> {
        let values = self.values;
        let managed = Reference::is_managed;
        let new = values.references(g).filter(|r| managed(r) && r.writes && self.holds[r.block] == 0);
        let need = new.map(|r| values.program.size[r.block]).sum::<u64>();
        self.make_room(need.saturating_add(values.local[g]));
        for r in values.references(g).filter(|r| managed(r) && r.writes) {
            self.put(r.block, r.version);
            self.closures_shrink(r.version);
        }
        self.run(g);
        self.recomputed += values.program.duration(g) as f64;
        self.push(Step::Again(g))?;
        for r in values.references(g).filter(managed) {
            self.pinned[r.block] -= 1;
        }
        for r in values.references(g).filter(managed) {
            self.free_if_done(r.block)?;
        }
        Some(())
    }

    fn push(&mut self, step: Step) -> Option<()> {
        self.rows += match step {
            Step::First(g) | Step::Again(g) => {
                let values = self.values;
                self.work += 2 + u64::from(values.range(g).1 - values.range(g).0);
                values.program.first_row[g + 1] - values.program.first_row[g] + values.range(g).1 - values.range(g).0
            }
            Step::Free(_) => 1,
        };
        let room = usize::try_from(self.rows).is_ok_and(|rows| rows <= most_rows(self.values.program.rows.len()));
        (room && self.is_worth_it(step) && self.script.push(step)).then_some(())
    }

    /// Whether the walk may still come to what it is to come to at most: both only grow.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn is_worth_it(&self, step: Step) -> bool {
        let values = self.values;
        let recorded = match step {
            Step::First(g) => values.program.access_time[g] + values.program.duration(g),
            _ => values.program.access_time[self.now.min(values.program.operators.saturating_sub(1))],
        };
        let delay = if self.waits { self.clock - recorded as f64 } else { self.recomputed };
        self.walked.excess <= self.most.excess && delay <= self.most.delay as f64
    }

    /// What was to be read virtually before this operator may be read later now.
    fn virtual_uses_pass(&mut self) {
        while let Some([version, _]) = self.remembered.at(self.passed).filter(|&[_, at]| at < self.now) {
            self.stale.insert(self.values.block(version));
            self.passed += 1;
        }
    }

    /// A closure reads a version.
    fn note(&mut self, version: u32) {
        self.noted.push([version, self.now]);
    }

    /// The operator that reads a version next, virtually or not.
    fn next_use(&mut self, version: u32) -> u32 {
        let end = self.values.uses(version).1;
        let [mut real, mut noted] = self.next[version];
        while real < end && self.values.user(real) < self.now {
            real += 1;
        }
        let last = self.first_virtual[version + 1];
        while noted < last && self.virtual_use[noted] < self.now {
            noted += 1;
        }
        self.next[version] = [real, noted];
        let of_real = if real < end { self.values.user(real) } else { NONE };
        let of_noted = if noted < last { self.virtual_use[noted] } else { NONE };
        of_real.min(of_noted)
    }

    /// A managed block has a value now.
    fn put(&mut self, block: u32, version: u32) {
        if self.holds[block] == 0 {
            self.load = self.load.wrapping_add(self.values.program.size[block]);
        }
        self.holds[block] = version + 1;
    }

    /// Frees a block that nobody reads any more.
    fn free_if_done(&mut self, block: u32) -> Option<()> {
        let holds = self.holds[block];
        if holds > 0 && self.pinned[block] == 0 {
            if self.wanted(holds - 1) == NONE {
                return self.drop_block(block);
            }
            self.stale.insert(block);
        }
        Some(())
    }

    fn drop_block(&mut self, block: u32) -> Option<()> {
        self.queue.remove(block);
        let holds = self.holds[block];
        self.holds[block] = 0;
        self.siblings_are_owed(holds - 1);
        if self.away[block] > 0 {
            self.away[block] = 0;
        } else {
            self.load = self.load.wrapping_sub(self.values.program.size[block]);
        }
        self.push(Step::Free(block))
    }

    /// Evicts until `need` bytes more fit, or nothing is left to evict.
    fn make_room(&mut self, need: u64) {
        let held = self.held[self.now.min(self.values.program.operators)];
        let limit = self.limit.saturating_sub(held);
        loop {
            let load = self.load.wrapping_add(need);
            if load.cast_signed() <= limit.cast_signed() {
                return;
            }
            let Some(block) = self.least_worth() else {
                self.walked.excess = self.walked.excess.max(load - limit);
                self.blame();
                return;
            };
            if self.drop_block(block).is_none() {
                self.walked.excess = u64::MAX;
                return;
            }
        }
    }

    /// What a closure makes that the memory is too small for should have stayed.
    fn blame(&mut self) {
        let values = self.values;
        for [operator, _] in self.stack.iter() {
            for &[block, _] in values.made(operator) {
                self.blamed[block] = 1;
            }
        }
    }
}
