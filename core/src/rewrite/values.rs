//! Values: which operator makes each value, which operators read it, and whether it can be recomputed.
//!
//! A *version* is the value that a block holds from one write to the next. Each block has one *owner*, which says who
//! decides when its memory is allocated and freed:
//! - *local*: the block is allocated and freed by one operator, as its workspace;
//! - *managed*: it is freed within the trace, and each of its versions can be recomputed. It may be freed and
//!   recomputed wherever that helps;
//! - *lasting*: it is freed within the trace, an operator writes each of its versions, and one of them cannot be
//!   recomputed. It lives from its first write to its last access only, since recordings often free such blocks late;
//! - *recorded*: all others. They are allocated and freed as in the recording.
//!
//! The mallocs and frees of managed and lasting blocks are written by the plan of recomputation, not taken from the
//! recording. Where the two need not be told apart, both are called managed below.
//!
//! An operator may be recomputed if it has a number, its [`Operator::rerun`](crate::trace::Operator::rerun) says so,
//! and all that it reads has a value: it was written before, or its block is persistent, as a weight is. A
//! recomputation does not access the persistent blocks that the operator both reads and writes. Cost: O(rows).

use super::ids::BlockId;
use super::program::Program;
use crate::Workspace;
use crate::id::{Id, ids};
use crate::table::{Field, Record, Records, enum_field, record};
use crate::trace::{Event, Op, Recorded};
use crate::workspace::workspace;

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Recorded,
    Local,
    Managed,
    Lasting,
}

impl Owner {
    #[inline]
    const fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::Lasting)
    }
}

enum_field!(Owner: Recorded, Local, Managed, Lasting);

ids! {
    pub(in crate::rewrite) struct VersionId;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) block: BlockId,
    pub(super) version: VersionId,
    pub(super) writes: bool,
    /// A persistent block that is read and written, like a running mean: a recomputation leaves it alone.
    pub(super) updated: bool,
    owner: Owner,
}

impl Reference {
    #[inline]
    pub(super) const fn is_managed(&self) -> bool {
        self.owner.is_managed()
    }
}

/// Packed into three numbers, as the search reads references most often.
impl Record for Reference {
    type Kept = [u32; 3];
    #[inline]
    fn keep(self) -> [u32; 3] {
        let how = Field::keep(self.owner) << 2 | u32::from(self.updated) << 1 | u32::from(self.writes);
        [self.block.number(), self.version.number(), how]
    }
    #[inline]
    fn kept([block, version, how]: [u32; 3]) -> Self {
        let (block, version) = (BlockId::of(block), VersionId::of(version));
        Self { block, version, writes: how & 1 > 0, updated: how & 2 > 0, owner: Field::kept(how >> 2) }
    }
}

record! {
    pub(super) struct Version {
        pub(super) block: BlockId,
        pub(super) writer: Option<u32>,
        /// The first operator that overwrites or frees the block; [`NONE`] if none does.
        until: u32,
    }
}

record! {
    pub(super) struct Made {
        pub(super) block: BlockId,
        pub(super) version: VersionId,
    }
}

record! {
    pub(super) struct InPlace {
        input: Option<BlockId>,
        pub(super) version: VersionId,
        pub(super) output: BlockId,
    }
}

record! {
    struct Seen {
        version: Option<VersionId>,
        read: Option<u32>,
        written: Option<u32>,
        allocated: Option<u32>,
        freed: Option<u32>,
    }
}

workspace! {
    pub(super) struct Values<'a>(rows, blocks; program: &'a Program<'a>) {
        tables {
            /// The most bytes added while it runs, by workspaces and recorded blocks only.
            pub(super) most: u64[rows + 1],
            /// Bytes allocated less bytes freed, of recorded blocks only; in two's complement.
            pub(super) left: u64[rows + 1],
            pub(super) local: u64[rows + 1],
            recomputable: u32[rows + 1],
            first_reference: u32[rows + 2],
            first_managed: u32[rows + 2],
            /// The first operator after which it cannot be recomputed; [`NONE`] if none. Only recorded blocks count.
            until: u32[rows + 1],
            first_made: u32[rows + 2],
            first_use[VersionId]: u32[rows + blocks + 1],
            uses: u32[rows],
        }
        records {
            owner[BlockId]: Owner[blocks],
            reference: Reference[rows],
            managed: Reference[rows],
            made: Made[rows],
            version[VersionId]: Version[rows + blocks],
            in_place: InPlace[rows + 1],
            seen[BlockId]: Seen[blocks],
        }
        state {
            pub(super) program: &'a Program<'a> = program,
            pub(super) versions: u32 = 0,
        }
    }
}

impl<'a> Values<'a> {
    pub(super) fn new(recorded: &Recorded<'_>, program: &'a Program<'a>, scratch: &mut Workspace<'a>) -> Self {
        let mut values = Self::lend(program.rows.len(), program.size.len(), program, scratch);
        values.find_references(recorded);
        values.find_owners();
        values.tell_owners();
        values.find_in_place(recorded);
        values.weigh();
        values.list_uses();
        values
    }

    #[inline]
    pub(super) fn references(&self, operator: u32) -> impl Iterator<Item = Reference> + '_ {
        let (first, end) = self.range(operator);
        self.reference.range(first, end)
    }

    #[inline]
    pub(super) fn managed(&self, operator: u32) -> impl Iterator<Item = Reference> + '_ {
        let (first, end) = self.managed_range(operator);
        self.managed.range(first, end)
    }

    /// As indices in `managed`: the first, and one past the last.
    #[inline]
    pub(super) fn managed_range(&self, operator: u32) -> (u32, u32) {
        (self.first_managed[operator], self.first_managed[operator + 1])
    }

    #[inline]
    pub(super) fn managed_reference(&self, i: u32) -> Reference {
        self.managed.get(i)
    }

    #[inline]
    pub(super) fn made(&self, operator: u32) -> impl Iterator<Item = Made> + '_ {
        self.made.range(self.first_made[operator], self.first_made[operator + 1])
    }

    #[inline]
    pub(super) fn range(&self, operator: u32) -> (u32, u32) {
        (self.first_reference[operator], self.first_reference[operator + 1])
    }

    #[inline]
    pub(super) fn reference(&self, i: u32) -> Reference {
        self.reference.get(i)
    }

    #[inline]
    pub(super) fn block(&self, version: VersionId) -> BlockId {
        self.version.get(version).block
    }

    #[inline]
    pub(super) fn maker(&self, version: VersionId) -> Option<u32> {
        self.version.get(version).writer.filter(|&operator| self.is_recomputable(operator))
    }

    #[inline]
    pub(super) fn uses(&self, version: VersionId) -> (u32, u32) {
        (self.first_use[version], self.first_use[version.next()])
    }

    #[inline]
    pub(super) fn user(&self, i: u32) -> u32 {
        self.uses[i]
    }

    #[inline]
    pub(super) fn is_recomputable(&self, operator: u32) -> bool {
        self.recomputable[operator] > 0
    }

    #[inline]
    pub(super) fn owner(&self, block: BlockId) -> Owner {
        self.owner.get(block)
    }

    #[inline]
    pub(super) fn is_managed(&self, block: BlockId) -> bool {
        self.owner(block).is_managed()
    }

    #[inline]
    pub(super) fn can_recompute(&self, block: BlockId) -> bool {
        self.owner(block) == Owner::Managed
    }

    /// A value that `operator` reads or writes was overwritten or freed before `before`.
    #[inline]
    pub(super) fn is_gone(&self, operator: u32, before: u32) -> bool {
        self.until[operator] < before
    }

    pub(super) fn may_recompute(&self, operator: u32, now: u32) -> bool {
        self.is_recomputable(operator) && !self.is_gone(operator, now)
    }

    /// In ns per byte, all inputs on the device; infinite if it cannot be recomputed.
    #[expect(clippy::cast_precision_loss, reason = "a score")]
    pub(super) fn recompute_costs(&self, costs: &mut Records<'_, f64, BlockId>) {
        for b in self.program.blocks() {
            costs.set(b, if self.can_recompute(b) { 0.0 } else { f64::INFINITY });
        }
        for v in VersionId::each(0..self.versions) {
            let Version { block, writer, .. } = self.version.get(v);
            if let Some(writer) = writer.filter(|_| self.can_recompute(block)) {
                let cost = self.program.duration(writer) as f64 / self.program.size[block] as f64;
                costs.set(block, costs.get(block) + cost);
            }
        }
    }

    pub(super) fn in_place(&self, operator: u32) -> Option<(BlockId, InPlace)> {
        let found = self.in_place.get(operator);
        Some((found.input?, found))
    }

    fn find_references(&mut self, recorded: &Recorded<'_>) {
        let program = self.program;
        let mut references = 0;
        for o in 0..program.operators {
            self.first_reference[o] = references;
            let mut defined = true;
            for r in program.rows_of(o) {
                let block = r.block_id();
                let mut seen = self.seen.get(block);
                let reads = r.event == Event::Read;
                match r.event {
                    Event::Malloc => seen.allocated = Some(o),
                    Event::Free => {
                        seen.freed = Some(o);
                        self.end(seen.version, o);
                    }
                    // The operator accesses a block that it has written before, or reads a block a second time: this
                    // adds no reference.
                    _ if seen.written == Some(o) || reads && seen.read == Some(o) => continue,
                    _ => {
                        let version = seen.version.filter(|_| reads).unwrap_or_else(|| {
                            self.end(seen.version, o);
                            let writer = (!reads).then_some(o);
                            let version = VersionId::of(self.versions);
                            self.version.set(version, Version { block, writer, until: NONE });
                            self.versions += 1;
                            version
                        });
                        seen.version = Some(version);
                        *(if reads { &mut seen.read } else { &mut seen.written }) = Some(o);
                        let owner = Owner::Recorded;
                        self.reference
                            .set(references, Reference { block, version, writes: !reads, updated: false, owner });
                        references += 1;
                        let from_start = program.is_persistent(block);
                        defined &= !reads || from_start || self.version.get(version).writer.is_some();
                    }
                }
                self.seen.set(block, seen);
            }
            let op = program.op(o);
            let allowed = matches!(op, Op::First(_)) && recorded.operator(op).rerun;
            self.recomputable[o] = u32::from(allowed && defined);
            for i in self.first_reference[o]..references {
                let r = self.reference(i);
                let seen = self.seen.get(r.block);
                let updated = seen.read == Some(o) && seen.written == Some(o) && program.is_persistent(r.block);
                self.reference.set(i, Reference { updated, ..r });
            }
        }
        self.first_reference[program.operators] = references;
    }

    fn end(&mut self, version: Option<VersionId>, operator: u32) {
        if let Some(v) = version {
            let version = self.version.get(v);
            self.version.set(v, Version { until: version.until.min(operator), ..version });
        }
    }

    fn find_owners(&mut self) {
        for b in self.program.blocks().filter(|&b| !self.program.is_persistent(b)) {
            let seen = self.seen.get(b);
            if seen.allocated.is_some() && seen.freed.is_some() {
                let owner = if seen.version.is_some() { Owner::Managed } else { Owner::Recorded };
                self.owner.set(b, if seen.allocated == seen.freed { Owner::Local } else { owner });
            }
        }
        // A block with a value that cannot be recomputed is lasting. But if one of its values is read and no operator
        // writes that value, the block is allocated and freed as recorded.
        for v in VersionId::each(0..self.versions) {
            let block = self.block(v);
            if self.owner(block) == Owner::Managed && self.maker(v).is_none() {
                self.owner.set(block, Owner::Lasting);
            }
        }
        for i in 0..self.first_reference[self.program.operators] {
            let r = self.reference(i);
            if self.owner(r.block) == Owner::Lasting && self.version.get(r.version).writer.is_none() {
                self.owner.set(r.block, Owner::Recorded);
            }
        }
    }

    fn tell_owners(&mut self) {
        let (mut managed, mut made) = (0, 0);
        for o in 0..self.program.operators {
            (self.first_managed[o], self.first_made[o]) = (managed, made);
            self.until[o] = NONE;
            for i in self.first_reference[o]..self.first_reference[o + 1] {
                let r = Reference { owner: self.owner(self.reference(i).block), ..self.reference(i) };
                self.reference.set(i, r);
                if r.is_managed() {
                    self.managed.set(managed, r);
                    managed += 1;
                }
                if r.owner == Owner::Recorded && !r.updated {
                    self.until[o] = self.until[o].min(self.version.get(r.version).until);
                }
                if self.can_recompute(r.block) && r.writes {
                    self.made.set(made, Made { block: r.block, version: r.version });
                    made += 1;
                }
            }
        }
        let end = self.program.operators;
        (self.first_managed[end], self.first_made[end]) = (managed, made);
    }

    fn find_in_place(&mut self, recorded: &Recorded<'_>) {
        let program = self.program;
        for o in (0..program.operators).filter(|&o| recorded.operator(program.op(o)).in_place) {
            let Some((input, output)) = program.ends(o) else { continue };
            let touches = |block, writes| self.references(o).find(|r| r.block == block && r.writes == writes);
            let apart = input != output && touches(input, true).is_none() && touches(output, false).is_none();
            let alike = program.size[input] == program.size[output];
            let managed = self.is_managed(input) && self.is_managed(output);
            if let Some(Reference { version, .. }) = touches(input, false).filter(|_| apart && alike && managed) {
                self.in_place.set(o, InPlace { input: Some(input), version, output });
            }
        }
    }

    fn weigh(&mut self) {
        let program = self.program;
        for o in 0..program.operators {
            let (mut present, mut most, mut local, mut most_local) = (0u64, 0u64, 0u64, 0u64);
            for r in program.rows_of(o) {
                let size = match r.event {
                    Event::Malloc => program.size[r.block_id()],
                    Event::Free => program.size[r.block_id()].wrapping_neg(),
                    _ => continue,
                };
                match self.owner(r.block_id()) {
                    Owner::Managed | Owner::Lasting => continue,
                    Owner::Local => local = local.wrapping_add(size),
                    Owner::Recorded => {}
                }
                present = present.wrapping_add(size);
                // The sum may be negative, in two's complement, where the operator frees blocks that were allocated
                // before it.
                if present.cast_signed() > most.cast_signed() {
                    most = present;
                }
                most_local = most_local.max(local);
            }
            (self.most[o], self.left[o], self.local[o]) = (most, present, most_local);
        }
    }

    fn list_uses(&mut self) {
        let reads = |values: &Self, i: u32| Some(values.reference(i).version).filter(|_| !values.reference(i).writes);
        for i in 0..self.first_reference[self.program.operators] {
            if let Some(version) = reads(self, i) {
                self.first_use[version] += 1;
            }
        }
        let mut sum = 0;
        for v in VersionId::each(0..self.versions + 1) {
            sum += self.first_use[v];
            self.first_use[v] = sum;
        }
        for o in (0..self.program.operators).rev() {
            for i in self.first_reference[o]..self.first_reference[o + 1] {
                if let Some(version) = reads(self, i) {
                    self.first_use[version] -= 1;
                    self.uses[self.first_use[version]] = o;
                }
            }
        }
    }
}
