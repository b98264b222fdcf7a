//! A trace as a graph: which operator makes which value, who reads it, and what runs again.
//!
//! The rows are grouped by operator as for swapping: a *segment* is the accesses of one operator with the mallocs before
//! and the frees after them. A *version* is what a block holds from one write to the next. A block is *local* if it is
//! allocated and freed in one segment: the operator's workspace. It is *managed* if it is freed within the trace, and each
//! of its versions can be made again: it may be freed and made again at will. It is managed too, but stays from its first
//! write to its last access, if it cannot be made again: recordings often free such blocks late. All other blocks live as
//! recorded.
//!
//! An operator may run again if that is said of it and if all that it reads is defined. It then leaves out the
//! persistent blocks that it updates. O(rows), but for sorting nothing.

use crate::error::RowFault;
use crate::table::{Table, at};
use crate::trace::{Event, Op, Recorded, Row, recorded};
use crate::{Error, Workspace, WorkspaceLen};

/// No version, no operator, no use.
pub(super) const NONE: u32 = u32::MAX;

/// Owners as numbers; 0 and [`PERSISTENT`] are [`Owner::Recorded`].
const LOCAL: u32 = 1;
const MANAGED: u32 = 2;
const PERSISTENT: u32 = 3;
/// Managed, but never made again.
const LASTING: u32 = 4;

/// A block that an operator touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) block: u32,
    /// What it reads, or what it makes.
    pub(super) version: u32,
    pub(super) writes: bool,
    /// A persistent block that the operator updates: left out when it runs again.
    pub(super) updated: bool,
    /// Whose the block is.
    owner: Owner,
}

/// How a reference is kept: its block, its version and these.
const WRITES: u32 = 1;
const UPDATED: u32 = 2;
const OF_LOCAL: u32 = 4;
const OF_MANAGED: u32 = 8;

impl Reference {
    const fn of([block, version, how]: [u32; 3]) -> Self {
        Self {
            block,
            version,
            writes: how & WRITES > 0,
            updated: how & UPDATED > 0,
            owner: match how & (OF_LOCAL | OF_MANAGED) {
                OF_LOCAL => Owner::Local,
                OF_MANAGED => Owner::Managed,
                _ => Owner::Recorded,
            },
        }
    }

    /// Whether the block is managed.
    pub(super) fn is_managed(&self) -> bool {
        self.owner == Owner::Managed
    }
}

/// What a block holds from one write to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) block: u32,
    /// The segment that makes it; [`NONE`] if it is there from the start or undefined.
    pub(super) writer: u32,
    /// The last segment before which the block holds it, where the block lives as recorded.
    pub(super) until: u32,
}

/// Who owns the memory of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It lives as recorded.
    Recorded,
    /// It is allocated and freed with one operator.
    Local,
    /// It is allocated where it is written and freed where it is not wanted any more.
    Managed,
}

/// A trace of first runs, in which every block has one stay.
pub(super) struct Graph<'a> {
    pub(super) rows: &'a [Row],
    /// How many segments and versions there are.
    pub(super) segments: u32,
    pub(super) versions: u32,
    /// The first row of each segment, and the number of rows.
    pub(super) first_row: Table<'a, u32>,
    /// When the first access of each segment begins, and how long the segment takes from there on, in ns.
    pub(super) time: Table<'a, u64>,
    pub(super) duration: Table<'a, u64>,
    /// Bytes of blocks that are not managed: the most that a segment adds to what is there before it and what it leaves
    /// there (as two's complement); and the most bytes of its local blocks.
    pub(super) most: Table<'a, u64>,
    pub(super) left: Table<'a, u64>,
    pub(super) local: Table<'a, u64>,
    /// By block.
    pub(super) size: Table<'a, u64>,
    owner: Table<'a, u32>,
    /// Whether each segment may run again.
    again: Table<'a, u32>,
    first_reference: Table<'a, u32>,
    reference: Table<'a, [u32; 3]>,
    /// What each segment makes that can be made again: block and version.
    first_made: Table<'a, u32>,
    made: Table<'a, [u32; 2]>,
    version: Table<'a, [u32; 3]>,
    first_use: Table<'a, u32>,
    uses: Table<'a, u32>,
    /// By segment: 1 + the block that it may write over, and the one that it writes there.
    hands: Table<'a, [u32; 2]>,
}

/// Length of the workspace of a [`Graph`] of so many rows and block numbers.
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let versions = rows + blocks;
    WorkspaceLen {
        words: 5 * (rows + 1) + blocks,
        indices: 4 * (rows + 2)
            + 3 * rows
            + 2 * rows
            + 3 * versions
            + versions
            + 1
            + rows
            + 7 * blocks
            + 2 * (rows + 2),
    }
}

impl<'a> Graph<'a> {
    /// Reads `rows`, a rewriting of `recorded` without copies and second runs, whose blocks are numbered below
    /// `numbers`.
    ///
    /// # Errors
    /// A row with another block number, a copy, a second run, or a second stay of a block.
    pub(super) fn new(
        recorded: &Recorded<'_>,
        rows: &'a [Row],
        numbers: usize,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let most = rows.len() + numbers;
        let mut graph = Self {
            rows,
            segments: 0,
            versions: 0,
            first_row: scratch.indices(rows.len() + 2),
            time: scratch.words(rows.len() + 1),
            duration: scratch.words(rows.len() + 1),
            most: scratch.words(rows.len() + 1),
            left: scratch.words(rows.len() + 1),
            local: scratch.words(rows.len() + 1),
            size: scratch.words(numbers),
            owner: scratch.indices(numbers),
            again: scratch.indices(rows.len() + 2),
            first_reference: scratch.indices(rows.len() + 2),
            reference: scratch.index_records(rows.len()),
            first_made: scratch.indices(rows.len() + 2),
            made: scratch.index_records(rows.len()),
            version: scratch.index_records(most),
            first_use: scratch.indices(most + 1),
            uses: scratch.indices(rows.len()),
            hands: scratch.index_records(rows.len() + 2),
        };
        let mut blocks = scratch.index_records::<5>(numbers);
        let mut inside = scratch.indices(numbers);
        graph.check(numbers)?;
        graph.segment();
        graph.refer(recorded, &mut blocks);
        graph.own(&blocks);
        graph.tell_owners();
        graph.hand_over(recorded, &mut inside);
        graph.weigh();
        graph.list_uses();
        Ok(graph)
    }

    /// What a segment touches, in the order of its rows, each block once for reading and once for writing.
    pub(super) fn references(&self, segment: u32) -> impl Iterator<Item = Reference> + '_ {
        let (first, end) = self.range(segment);
        self.reference.range(first, end).iter().map(|&kept| Reference::of(kept))
    }

    /// What a segment makes that can be made again, in the order of its rows: block and version. It may run again then.
    pub(super) fn made(&self, segment: u32) -> &[[u32; 2]] {
        self.made.range(self.first_made[segment], self.first_made[segment + 1])
    }

    /// The numbers of the references of a segment.
    pub(super) fn range(&self, segment: u32) -> (u32, u32) {
        (self.first_reference[segment], self.first_reference[segment + 1])
    }

    pub(super) fn reference(&self, i: u32) -> Reference {
        Reference::of(self.reference[i])
    }

    pub(super) fn version(&self, version: u32) -> Version {
        let [block, writer, until] = self.version[version];
        Version { block, writer, until }
    }

    /// The segments that read a version, ascending.
    pub(super) fn uses(&self, version: u32) -> (u32, u32) {
        (self.first_use[version], self.first_use[version + 1])
    }

    pub(super) fn user(&self, i: u32) -> u32 {
        self.uses[i]
    }

    pub(super) fn may_run_again(&self, segment: u32) -> bool {
        self.again[segment] > 0
    }

    pub(super) fn owner(&self, block: u32) -> Owner {
        match self.owner[block] {
            LOCAL => Owner::Local,
            MANAGED | LASTING => Owner::Managed,
            _ => Owner::Recorded,
        }
    }

    pub(super) fn is_managed(&self, block: u32) -> bool {
        self.owner(block) == Owner::Managed
    }

    /// Whether a block that lives as recorded does not hold this version any more before a segment.
    pub(super) fn is_gone(&self, r: &Reference, before: u32) -> bool {
        r.owner == Owner::Recorded && self.version(r.version).until < before
    }

    /// Whether what a block holds can be made again.
    pub(super) fn is_repeatable(&self, block: u32) -> bool {
        self.owner[block] == MANAGED
    }

    /// What it takes to make again what each block holds, from all that is there, in ns for a byte: infinite where that
    /// cannot be. As bits.
    #[expect(clippy::cast_precision_loss, reason = "a score")]
    pub(super) fn dearness(&self, dear: &mut Table<'_, u64>) {
        for b in 0..u32::try_from(self.size.len()).unwrap_or(u32::MAX) {
            dear[b] = f64::to_bits(if self.is_repeatable(b) { 0.0 } else { f64::INFINITY });
        }
        for v in 0..self.versions {
            let Version { block, writer, .. } = self.version(v);
            if self.is_repeatable(block) {
                let cost = self.duration[writer] as f64 / self.size[block] as f64;
                dear[block] = f64::to_bits(f64::from_bits(dear[block]) + cost);
            }
        }
    }

    /// The managed block that a segment may write over, of which it reads this version, and the managed one of the same size
    /// that it writes there.
    pub(super) fn hands(&self, segment: u32) -> Option<(u32, u32, u32)> {
        let [giver, taker] = self.hands[segment];
        let giver = giver.checked_sub(1)?;
        let read = self.references(segment).find(|r| r.block == giver && !r.writes)?;
        Some((giver, read.version, taker))
    }

    /// The rows of a segment.
    pub(super) fn rows_of(&self, segment: u32) -> impl Iterator<Item = Row> + '_ {
        (self.first_row[segment]..self.first_row[segment + 1]).map(|row| at(self.rows, row))
    }

    /// Refuses what has no first run or more than one stay, and finds the persistent blocks.
    fn check(&mut self, numbers: usize) -> Result<(), Error> {
        for (row, r) in (0u32..).zip(self.rows) {
            let refuse = |fault| Err(Error::Row { row, fault });
            if usize::try_from(r.block).map_or(true, |b| b >= numbers) {
                return refuse(RowFault::UnknownBlock);
            }
            match r.event {
                Event::SwapIn | Event::SwapOut => return refuse(RowFault::NotRecorded),
                Event::Malloc if self.size[r.block] > 0 => return refuse(RowFault::NotRecorded),
                Event::Malloc => {
                    self.size[r.block] = r.bytes;
                    self.owner[r.block] = if r.time_ns == 0 { PERSISTENT } else { 0 };
                }
                Event::Free => self.owner[r.block] = 0,
                _ if matches!(r.op, Op::Again(_)) => return refuse(RowFault::NotRecorded),
                _ => {}
            }
        }
        Ok(())
    }

    fn segment(&mut self) {
        let mut row = 0;
        while row < self.rows.len() {
            let g = self.segments;
            let (access, end) = recorded::segment(self.rows, row);
            let mut accesses = self.rows.get(access..end).unwrap_or_default().iter().filter(|r| r.event.is_access());
            let begin = accesses.next().map(|first| first.time_ns);
            let last = accesses.next_back().map(|last| last.time_ns).or(begin);
            let before = if g > 0 { self.time[g - 1] + self.duration[g - 1] } else { 0 };
            self.time[g] = begin.unwrap_or(before);
            self.duration[g] = last.unwrap_or(before).saturating_sub(self.time[g]);
            self.first_row[g] = u32::try_from(row).unwrap_or(u32::MAX);
            self.segments += 1;
            row = end;
        }
        self.first_row[self.segments] = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
    }

    /// Versions and references. Per block, `blocks` holds: 1 + its version, 1 + the segment that last read and that last
    /// wrote it, 1 + the segment of its malloc and of its free.
    fn refer(&mut self, recorded: &Recorded<'_>, blocks: &mut Table<'_, [u32; 5]>) {
        let mut references = 0;
        for g in 0..self.segments {
            self.first_reference[g] = references;
            let mut runs_again = false;
            let mut defined = true;
            for row in self.first_row[g]..self.first_row[g + 1] {
                let r = at(self.rows, row);
                let [version, read, written, _, _] = blocks[r.block];
                match r.event {
                    Event::Malloc => blocks[r.block][3] = g + 1,
                    Event::Free => {
                        blocks[r.block][4] = g + 1;
                        self.ends(version, g);
                    }
                    // What the operator itself has written, or touched like this before.
                    _ if written == g + 1 || r.event == Event::Read && read == g + 1 => {}
                    _ => {
                        let reads = r.event == Event::Read;
                        runs_again = matches!(r.op, Op::First(_)) && recorded.operator(r.op).again;
                        if !reads || version == 0 {
                            self.ends(version, g);
                            self.version[self.versions] = [r.block, if reads { NONE } else { g }, NONE];
                            self.versions += 1;
                            blocks[r.block][0] = self.versions;
                        }
                        let version = blocks[r.block][0] - 1;
                        blocks[r.block][if reads { 1 } else { 2 }] = g + 1;
                        self.reference[references] = [r.block, version, if reads { 0 } else { WRITES }];
                        references += 1;
                        let is_defined = self.version[version][1] != NONE || self.owner[r.block] == PERSISTENT;
                        defined &= !reads || is_defined;
                    }
                }
            }
            self.again[g] = u32::from(runs_again && defined);
            for i in self.first_reference[g]..references {
                let [block, _, how] = self.reference[i];
                let [_, read, written, _, _] = blocks[block];
                if read == g + 1 && written == g + 1 && self.owner[block] == PERSISTENT {
                    self.reference[i][2] = how | UPDATED;
                }
            }
        }
        self.first_reference[self.segments] = references;
    }

    /// The block of a version, given as 1 + its number, is overwritten or freed in a segment.
    fn ends(&mut self, version: u32, segment: u32) {
        if version > 0 {
            self.version[version - 1][2] = self.version[version - 1][2].min(segment);
        }
    }

    fn own(&mut self, blocks: &Table<'_, [u32; 5]>) {
        for b in 0..u32::try_from(blocks.len()).unwrap_or(u32::MAX) {
            let [version, _, _, made, freed] = blocks[b];
            if self.owner[b] != PERSISTENT && made > 0 && freed > 0 {
                self.owner[b] = if made == freed { LOCAL } else { u32::from(version > 0) * MANAGED };
            }
        }
        // Some version cannot be made again; then it stays while it is read, if all that is read is defined.
        for v in 0..self.versions {
            let Version { block, writer, .. } = self.version(v);
            if self.owner[block] == MANAGED && (writer == NONE || !self.may_run_again(writer)) {
                self.owner[block] = LASTING;
            }
        }
        for g in 0..self.segments {
            for i in self.first_reference[g]..self.first_reference[g + 1] {
                let r = self.reference(i);
                let undefined = self.version(r.version).writer == NONE;
                if self.owner[r.block] == LASTING && undefined {
                    self.owner[r.block] = 0;
                }
            }
        }
    }

    /// Tells the references who owns their blocks, and lists what can be made again.
    fn tell_owners(&mut self) {
        let mut made = 0;
        for g in 0..self.segments {
            self.first_made[g] = made;
            for i in self.first_reference[g]..self.first_reference[g + 1] {
                let [block, version, how] = self.reference[i];
                self.reference[i][2] = match self.owner(block) {
                    Owner::Recorded => how,
                    Owner::Local => how | OF_LOCAL,
                    Owner::Managed => how | OF_MANAGED,
                };
                if self.is_repeatable(block) && how & WRITES > 0 {
                    self.made[made] = [block, version];
                    made += 1;
                }
            }
        }
        self.first_made[self.segments] = made;
    }

    /// Finds the first input and the first output of operators that work in place, but for what they allocate or free
    /// between their accesses.
    fn hand_over(&mut self, recorded: &Recorded<'_>, inside: &mut Table<'_, u32>) {
        for g in 0..self.segments {
            let rows = self.first_row[g]..self.first_row[g + 1];
            let access = |&row: &u32| at(self.rows, row).event.is_access();
            let (Some(first), Some(last)) = (rows.clone().find(access), rows.rev().find(access)) else { continue };
            if !recorded.operator(at(self.rows, first).op).in_place {
                continue;
            }
            for own in (first..last).map(|row| at(self.rows, row)).filter(|r| !r.event.is_access()) {
                inside[own.block] = g + 1;
            }
            let end_of = |event| {
                let mut accesses = (first..=last).map(|row| at(self.rows, row)).filter(|r| r.event == event);
                accesses.find(|r| inside[r.block] != g + 1).map(|r| r.block)
            };
            let (Some(giver), Some(taker)) = (end_of(Event::Read), end_of(Event::Write)) else { continue };
            let touches = |block, writes| self.references(g).any(|r| r.block == block && r.writes == writes);
            let apart = giver != taker && !touches(giver, true) && !touches(taker, false);
            let managed = self.is_managed(giver) && self.is_managed(taker);
            if apart && managed && self.size[giver] == self.size[taker] {
                self.hands[g] = [giver + 1, taker];
            }
        }
    }

    fn weigh(&mut self) {
        for g in 0..self.segments {
            let (mut present, mut most, mut local, mut most_local) = (0u64, 0u64, 0u64, 0u64);
            for row in self.first_row[g]..self.first_row[g + 1] {
                let r = at(self.rows, row);
                let size = match r.event {
                    Event::Malloc => self.size[r.block],
                    Event::Free => self.size[r.block].wrapping_neg(),
                    _ => continue,
                };
                match self.owner(r.block) {
                    Owner::Managed => continue,
                    Owner::Local => local = local.wrapping_add(size),
                    Owner::Recorded => {}
                }
                present = present.wrapping_add(size);
                // Frees of what was there before make it less than nothing.
                if present.cast_signed() > most.cast_signed() {
                    most = present;
                }
                most_local = most_local.max(local);
            }
            (self.most[g], self.left[g], self.local[g]) = (most, present, most_local);
        }
    }

    fn list_uses(&mut self) {
        let references = self.first_reference[self.segments];
        for i in 0..references {
            let r = self.reference(i);
            if !r.writes {
                self.first_use[r.version] += 1;
            }
        }
        let mut sum = 0;
        for v in 0..self.versions {
            sum += self.first_use[v];
            self.first_use[v] = sum;
        }
        self.first_use[self.versions] = sum;
        for g in (0..self.segments).rev() {
            for i in self.first_reference[g]..self.first_reference[g + 1] {
                let r = self.reference(i);
                if !r.writes {
                    self.first_use[r.version] -= 1;
                    self.uses[self.first_use[r.version]] = g;
                }
            }
        }
    }
}
