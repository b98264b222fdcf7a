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

/// The number that stands for no operator, or for no use of a value.
pub(super) const NONE: u32 = u32::MAX;

/// Who decides when the memory of a block is allocated and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The recording decides: the block is allocated and freed as recorded.
    Recorded,
    /// The block is the workspace of one operator: its malloc and its free are both among the rows of this operator.
    Local,
    /// The plan of recomputation decides: the block is allocated where it is written, and may be freed wherever memory
    /// is short, as every value of it can be recomputed.
    Managed,
    /// The block is allocated at its first write and freed after its last access; the plan of recomputation writes the
    /// rows of both. It is never freed before its last access, as one of its values cannot be recomputed.
    Lasting,
}

impl Owner {
    /// Whether the plan of recomputation, not the recording, decides where the block is allocated and freed.
    #[inline]
    const fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::Lasting)
    }
}

enum_field!(Owner: Recorded, Local, Managed, Lasting);

ids! {
    /// The number of a version, the value that a block holds from one write to the next.
    pub(in crate::rewrite) struct VersionId;
}

/// A block that an operator reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) block: BlockId,
    /// The value of the block that the operator reads or writes.
    pub(super) version: VersionId,
    /// Whether the operator writes the block; else it reads it.
    pub(super) writes: bool,
    /// Whether the block is persistent, as a running mean is, and the operator both reads and writes it. A
    /// recomputation of the operator does not access such a block.
    pub(super) updated: bool,
    owner: Owner,
}

impl Reference {
    #[inline]
    pub(super) const fn is_managed(&self) -> bool {
        self.owner.is_managed()
    }
}

/// Packs a reference into three numbers: the block, its value, and all other fields together. The search for
/// recomputation reads references more often than other records, and short ones are read faster.
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
    /// The value of a block from one write to the next.
    pub(super) struct Version {
        pub(super) block: BlockId,
        /// The operator that writes the value. None if the block is read before any operator writes it: the block holds
        /// the value from the start, or the value is undefined.
        pub(super) writer: Option<u32>,
        /// The first operator that overwrites or frees the block while it holds the value; [`NONE`] if none does.
        until: u32,
    }
}

record! {
    /// A value that an operator writes, of a block all of whose values can be recomputed.
    pub(super) struct Made {
        pub(super) block: BlockId,
        pub(super) version: VersionId,
    }
}

record! {
    /// The input over which an operator may write its output, and that output.
    pub(super) struct InPlace {
        /// The block that the operator reads and may write its output over; none if it may not write over an input. The
        /// plan of recomputation, not the recording, decides when it is allocated and freed.
        input: Option<BlockId>,
        /// The value that the input block holds when the operator reads it.
        pub(super) version: VersionId,
        /// The block that the operator writes, of the same size as the input. The plan of recomputation, not the
        /// recording, decides when it is allocated and freed.
        pub(super) output: BlockId,
    }
}

record! {
    /// What is noted of a block while the trace is read row by row: its latest accesses, its malloc and its free. From
    /// this follows which operator makes each value, and which operators read it.
    struct Seen {
        /// The value that the block holds at the row that is read; none if it holds none yet.
        version: Option<VersionId>,
        /// The last operator so far that read the block; none if none did.
        read: Option<u32>,
        /// The last operator so far that wrote the block; none if none did.
        written: Option<u32>,
        /// The operator to whose rows the block's malloc belongs; none until that row has been read.
        allocated: Option<u32>,
        /// The operator to whose rows the block's free belongs; none until that row has been read.
        freed: Option<u32>,
    }
}

workspace! {
    /// The values in a trace: which operator makes each, which operators read it, and whether it can be recomputed.
    pub(super) struct Values<'a>(rows, blocks; program: &'a Program<'a>) {
        tables {
            /// For each operator, the most bytes that it adds to the load while it runs. Only its workspaces count, and
            /// the blocks that are allocated and freed as recorded.
            pub(super) most: u64[rows + 1],
            /// For each operator, the bytes of the blocks that it allocates, minus the bytes of the blocks that it
            /// frees. Only blocks that are allocated and freed as recorded count. The number may be negative, and is
            /// kept in two's complement.
            pub(super) left: u64[rows + 1],
            /// For each operator, the most bytes that its workspaces take at one time.
            pub(super) local: u64[rows + 1],
            /// For each operator, 1 if it may be recomputed, else 0.
            recomputable: u32[rows + 1],
            /// For each operator, the index at which its entries begin in `reference`, the list of the blocks that
            /// operators read or write. After the last operator comes one more entry: the length of the list.
            first_reference: u32[rows + 2],
            /// For each operator, the index at which its entries begin in `managed`, the list of the blocks that
            /// operators read or write and that the plan of recomputation allocates and frees. After the last operator
            /// comes one more entry: the length of the list.
            first_managed: u32[rows + 2],
            /// For each operator o, the first operator (o or a later one) that overwrites or frees a block whose value
            /// a recomputation of o reads or writes. Once that operator has run, o cannot be recomputed any more.
            /// [`NONE`] if there is no such operator. Only blocks that are allocated and freed as recorded count.
            /// Persistent blocks that o both reads and writes, such as a running mean, do not count either.
            until: u32[rows + 1],
            /// For each operator, the index at which its entries begin in `made`, the list of the written values that
            /// can be recomputed. After the last operator comes one more entry: the length of the list.
            first_made: u32[rows + 2],
            /// For each value of a block, the index at which its entries begin in `uses`, the list of the operators
            /// that read it. After the last value comes one more entry: the length of the list.
            first_use[VersionId]: u32[rows + blocks + 1],
            /// The operators that read each value: those of value 0 in ascending order, then those of value 1, and so
            /// on.
            uses: u32[rows],
        }
        records {
            owner[BlockId]: Owner[blocks],
            /// The reads and writes of blocks by operators, sorted by operator. If an operator reads a block and then
            /// writes it, the block has one entry for the read and one for the write; further accesses by the same
            /// operator add none.
            reference: Reference[rows],
            /// The entries of `reference` whose block the plan of recomputation allocates and frees, sorted by
            /// operator.
            managed: Reference[rows],
            /// The values that can be recomputed, sorted by the operator that writes them.
            made: Made[rows],
            version[VersionId]: Version[rows + blocks],
            in_place: InPlace[rows + 1],
            /// For each block, its latest accesses, its malloc and its free, noted while the trace is read row by row.
            seen[BlockId]: Seen[blocks],
        }
        state {
            pub(super) program: &'a Program<'a> = program,
            /// How many versions there are: values that the blocks hold, each from one write to the next.
            pub(super) versions: u32 = 0,
        }
    }
}

impl<'a> Values<'a> {
    /// Finds the values in the trace of `program`, in which nothing is copied or recomputed: which operator makes each
    /// value, which operators read it, and whether it can be recomputed. `recorded` says of each operator whether it
    /// may be recomputed and whether it may work in place.
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

    /// The references of an operator: the blocks that it accesses, in the order of its rows. A block is listed once if
    /// the operator only reads it, or writes it first. It is listed twice if the operator reads it and then writes it.
    #[inline]
    pub(super) fn references(&self, operator: u32) -> impl Iterator<Item = Reference> + '_ {
        let (first, end) = self.range(operator);
        self.reference.range(first, end)
    }

    /// The references of an operator to blocks that the plan of recomputation allocates and frees, in the order of its
    /// rows.
    #[inline]
    pub(super) fn managed(&self, operator: u32) -> impl Iterator<Item = Reference> + '_ {
        let (first, end) = self.managed_range(operator);
        self.managed.range(first, end)
    }

    /// The references of an operator to blocks that the plan of recomputation allocates and frees, as indices in
    /// `managed`, the list of all such references: the first, and one past the last.
    #[inline]
    pub(super) fn managed_range(&self, operator: u32) -> (u32, u32) {
        (self.first_managed[operator], self.first_managed[operator + 1])
    }

    /// Entry `i` of `managed`, a list of the operators' reads and writes of blocks that the plan of recomputation
    /// allocates and frees. [`managed_range`](Self::managed_range) tells which entries are an operator's.
    #[inline]
    pub(super) fn managed_reference(&self, i: u32) -> Reference {
        self.managed.get(i)
    }

    /// The values that an operator writes and that can be recomputed, in the order of its rows.
    #[inline]
    pub(super) fn made(&self, operator: u32) -> impl Iterator<Item = Made> + '_ {
        self.made.range(self.first_made[operator], self.first_made[operator + 1])
    }

    /// The blocks that an operator reads or writes, as indices in the list of all references: the first, and one past
    /// the last.
    #[inline]
    pub(super) fn range(&self, operator: u32) -> (u32, u32) {
        (self.first_reference[operator], self.first_reference[operator + 1])
    }

    #[inline]
    pub(super) fn reference(&self, i: u32) -> Reference {
        self.reference.get(i)
    }

    /// The block that holds a value.
    #[inline]
    pub(super) fn block(&self, version: VersionId) -> BlockId {
        self.version.get(version).block
    }

    /// The operator that writes a value and may be recomputed; none if no operator writes the value, or if the one that
    /// does may not be recomputed.
    #[inline]
    pub(super) fn maker(&self, version: VersionId) -> Option<u32> {
        self.version.get(version).writer.filter(|&operator| self.is_recomputable(operator))
    }

    /// The uses of a value, one for each operator that reads it, as indices in the list of all uses: the first, and one
    /// past the last. [`user`](Self::user) tells which operator has such an index.
    #[inline]
    pub(super) fn uses(&self, version: VersionId) -> (u32, u32) {
        (self.first_use[version], self.first_use[version.next()])
    }

    /// The operator at index `i` of the list of all uses: it reads the value to which this index belongs. The uses of
    /// one value are sorted by operator.
    #[inline]
    pub(super) fn user(&self, i: u32) -> u32 {
        self.uses[i]
    }

    #[inline]
    pub(super) fn is_recomputable(&self, operator: u32) -> bool {
        self.recomputable[operator] > 0
    }

    /// Who decides when the memory of a block is allocated and freed.
    #[inline]
    pub(super) fn owner(&self, block: BlockId) -> Owner {
        self.owner.get(block)
    }

    #[inline]
    pub(super) fn is_managed(&self, block: BlockId) -> bool {
        self.owner(block).is_managed()
    }

    /// Whether every value of a block can be recomputed.
    #[inline]
    pub(super) fn can_recompute(&self, block: BlockId) -> bool {
        self.owner(block) == Owner::Managed
    }

    /// Whether a value that `operator` reads or writes is lost when operator `before` begins: `operator` itself, or one
    /// between it and `before`, has overwritten or freed the value's block. Only blocks that are allocated and freed as
    /// recorded count. Of these, the persistent ones that `operator` both reads and writes do not count either: a
    /// recomputation does not access them.
    #[inline]
    pub(super) fn is_gone(&self, operator: u32, before: u32) -> bool {
        self.until[operator] < before
    }

    /// Whether an operator may be recomputed right before operator `now`: it may be recomputed at all, and no value
    /// that it reads or writes [is gone](Self::is_gone) by then.
    pub(super) fn may_recompute(&self, operator: u32, now: u32) -> bool {
        self.is_recomputable(operator) && !self.is_gone(operator, now)
    }

    /// Sets the entry of each block in `costs` to the cost of recomputing all of the block's values once, in ns per
    /// byte. All inputs are taken to be on the device. Infinite for a block whose values cannot all be recomputed.
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

    /// The input block over which an operator may write its output, and an [`InPlace`], which names the output block
    /// and the value of the input that is read. None if the operator may not write over an input.
    pub(super) fn in_place(&self, operator: u32) -> Option<(BlockId, InPlace)> {
        let found = self.in_place.get(operator);
        Some((found.input?, found))
    }

    /// Finds the values that blocks hold from one write to the next, which of them each operator reads and writes, and
    /// which operators may be recomputed.
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

    /// Notes that an operator overwrites or frees the block that holds the value `version`, so that the value is lost.
    /// Does nothing if `version` is none: then the block holds no value.
    fn end(&mut self, version: Option<VersionId>, operator: u32) {
        if let Some(v) = version {
            let version = self.version.get(v);
            self.version.set(v, Version { until: version.until.min(operator), ..version });
        }
    }

    /// Finds for each block who decides when its memory is allocated and freed (its [`Owner`]).
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

    /// Writes into each reference the [`Owner`] of its block, who decides when the block is allocated and freed. Lists
    /// in `managed` the references to blocks that the plan of recomputation allocates and frees, and in `made` the
    /// values that can be recomputed. Fills `until`: for each operator, the one after which it cannot be recomputed any
    /// more.
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

    /// Finds the operators that may write their first output over their first input, and notes the blocks of input and
    /// output. Both have to be blocks of one size that the plan of recomputation allocates and frees. The operator must
    /// not also write the input or read the output.
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

    /// Finds three figures for each operator, in bytes: the most that it adds to the load while it runs (`most`); the
    /// bytes that it allocates minus those that it frees (`left`); and the most that its workspaces take at one time
    /// (`local`). `most` and `left` count only the workspaces and the blocks that are allocated and freed where the
    /// recording does so. They leave out the blocks that the plan of recomputation allocates and frees.
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

    /// Lists the operators that read each value.
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
