//! Gaps: where a block could be swapped out, because no operator accesses it.
//!
//! A *gap*, or idle time, is a run of operators in which a block is not accessed. If the block is on the host
//! meanwhile, its bytes on the device are free while all these operators run. Copies happen at the boundaries between
//! operators. A *version* is the value that a block holds from one write to the next: one copy on the host serves all
//! gaps of a version.
//!
//! A persistent block, such as a weight, may have a gap before its first access, the *head*. If it has, it may also
//! have one after its last access, the *tail*. In its head a block may be swapped as in any other gap. The block may
//! also be on the host already when the iteration begins. Then the next iteration has to begin in the same way, so the
//! block's final version has to be on the host at the end. In exchange, the gaps of its initial version need no copy
//! out. A block may be on the host in the tail only if it is there at the start too.
//!
//! Blocks that may not be swapped ([`Swappable`]) have no gaps. Every gap ends with an access or with the iteration,
//! never with a free. Cost: O(rows).

use super::ids::BlockId;
use super::program::Program;
use crate::Workspace;
use crate::id::{Id, ids};
use crate::table::{enum_field, record};
use crate::trace::{Event, Row};
use crate::workspace::workspace;

/// Stands for "none" where the number of a boundary between operators or of a block's value is expected.
pub(super) const NONE: u32 = u32::MAX;

ids! {
    /// The number of a gap, an idle time of a block. Gaps are numbered in the order in which they end.
    pub(in crate::rewrite) struct GapId;

    /// The number of a version, a value that a block holds from one write to the next. Versions are numbered in the
    /// order in which they can first be copied to the host. A version that can never be copied gets the next free
    /// number when an operator first reads it, so that it may stand anywhere among the others.
    pub(in crate::rewrite) struct VersionId;
}

record! {
    /// A gap: consecutive operators that do not access a block, so that the block may be on the host meanwhile.
    pub(super) struct Gap {
        pub(super) block: BlockId,
        /// The first operator of the gap: the one that follows the operator with the block's previous access, or
        /// operator 0 if there is no previous access.
        pub(super) begin: u32,
        /// The operator that accesses the block next; the number of operators if none does before the iteration ends.
        pub(super) end: u32,
        /// The value that the block holds in the gap.
        pub(super) version: VersionId,
        /// The latest earlier gap in which the block holds the same value; none if this gap is the first with it.
        pub(super) previous: Option<GapId>,
        /// If a persistent block has a gap before its first access and one after its last access: in each of these two,
        /// the number of the other. None in every other gap.
        pub(super) other_end: Option<GapId>,
        pub(super) kind: GapKind,
        /// Whether the block is persistent and no operator of the iteration writes it: the host then has its value from
        /// the start.
        pub(super) clean: bool,
    }
}

impl Gap {
    /// Whether the gap lies before the first access of a persistent block or after its last, and an operator of the
    /// iteration writes the block. If such a block is on the host when the iteration begins or ends, the value that it
    /// holds last has to be on the host at the end.
    #[inline]
    pub(super) fn crosses_end(&self) -> bool {
        (self.kind.is_head() || self.kind == GapKind::Tail) && !self.clean
    }
}

/// The kind of a gap: which copies the block needs if it is on the host in the gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapKind {
    /// A gap between two accesses of a block, of which the second is a read. The block is copied to the host, unless
    /// the host has this value already. At the end of the gap it is copied back to the device.
    Middle,
    /// A gap between two accesses of a block, of which the second is a write: nothing is copied, as the old value is
    /// never read again.
    Dead,
    /// The gap before the first access of a persistent block, where that access is a read. The block is copied to the
    /// host, and at the end of the gap back to the device. The copy to the host is left out if the host has the value
    /// from the start: the block is on the host when the iteration begins, or is never written.
    Head,
    /// The gap before the first access of a persistent block, where that access is a write: nothing is copied at the
    /// start or the end of the gap. But if the block is on the host when the iteration begins, its final value is
    /// copied out for the next iteration.
    DeadHead,
    /// The gap after the last access of a persistent block: the block is on the host when the iteration ends. It is
    /// copied there, unless the host has this value already.
    Tail,
}

impl GapKind {
    pub(super) fn is_head(self) -> bool {
        matches!(self, Self::Head | Self::DeadHead)
    }

    /// Whether the value that the block holds in a gap of this kind has to be kept on the host: it is read later, or it
    /// passes to the next iteration.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Middle | Self::Head | Self::Tail)
    }

    /// Whether the block is copied back to the device at the end of a gap of this kind.
    pub(super) fn returns(self) -> bool {
        matches!(self, Self::Middle | Self::Head)
    }
}

enum_field!(GapKind: Middle, Dead, Head, DeadHead, Tail);

record! {
    /// The value of a block from one write to the next.
    pub(super) struct Version {
        pub(super) block: BlockId,
        /// The first boundary between operators at which the value can be copied to the host. None for a value that is
        /// never copied: one that a block holds before its first write, if the block is not persistent.
        pub(super) release: Option<u32>,
        /// The last gap in which the block holds the value; none if it holds the value in no gap. `Gap::previous` leads
        /// from there to the earlier ones.
        last_gap: Option<GapId>,
        /// For the first value of a persistent block: the value that the block holds when the iteration ends. If the
        /// block is never written, that is the first value itself. None for every other value, and for a block that is
        /// never accessed.
        pub(super) last: Option<VersionId>,
    }
}

record! {
    /// What is known of a block so far, while the operators are gone through to find the idle times of blocks.
    struct Seen {
        /// The last operator so far that accesses the block; none if none does.
        access: Option<u32>,
        /// The value that the block holds after the accesses seen so far; none if it has held none so far.
        version: Option<VersionId>,
        /// The value that the block holds before its first write: for a persistent block, the one that it holds at the
        /// start; for another block, one that is read before anything is written. None if there is no such value.
        initial: Option<VersionId>,
        /// The gap before the block's first access; none if there is none, or if the block is not persistent.
        head: Option<GapId>,
    }
}

workspace! {
    /// The idle times of a program's blocks, in which they may be on the host, and the values that the blocks hold.
    pub(super) struct Gaps<'a>(rows, blocks; program: &'a Program<'a>) {
        tables {
            /// For each boundary between operators, the number of the first value of a block that can be copied to the
            /// host from there on, but not earlier. The values of boundary o have the numbers from entry o up to, but
            /// not including, entry o + 1. Boundary o is before operator o.
            first_version: u32[rows + 2],
            /// The first operator of each gap: a copy of `Gap::begin`, kept apart because the search for swaps reads
            /// that field of many gaps in a row.
            begin[GapId]: u32[rows + blocks],
        }
        records {
            gap[GapId]: Gap[rows + blocks],
            version[VersionId]: Version[rows + blocks],
            seen[BlockId]: Seen[blocks],
        }
        state {
            pub(super) program: &'a Program<'a> = program,
            /// How many idle times all blocks have together.
            pub(super) len: u32 = 0,
            /// How many versions there are: values that the blocks hold, each from one write to the next.
            pub(super) versions: u32 = 0,
        }
    }
}

/// Which blocks may be swapped. Idle times are found for these only.
#[derive(Clone, Copy)]
pub(super) struct Swappable {
    /// The size of the smallest block that may be swapped, in bytes.
    pub(super) least_bytes: u64,
    /// Whether all persistent blocks, such as weights, stay on the device.
    pub(super) keep_persistent: bool,
}

impl Swappable {
    /// Whether this block may be swapped.
    fn has(self, program: &Program<'_>, block: BlockId) -> bool {
        program.size[block] >= self.least_bytes && !(self.keep_persistent && program.is_persistent(block))
    }
}

impl<'a> Gaps<'a> {
    /// Finds the idle times of all blocks that may be swapped.
    pub(super) fn new(program: &'a Program<'a>, swappable: Swappable, scratch: &mut Workspace<'a>) -> Self {
        let mut gaps = Self::lend(program.rows.len(), program.size.len(), program, scratch);
        // Versions are numbered in the order of the boundaries at which they can be copied out first. Those of
        // persistent blocks come first.
        for b in program.blocks().filter(|&b| program.is_persistent(b) && swappable.has(program, b)) {
            let version = Some(gaps.add_version(b, Some(1)));
            gaps.seen.set(b, Seen { version, initial: version, ..gaps.seen.get(b) });
        }
        for o in 0..program.operators {
            for r in program.accesses(o).filter(|r| swappable.has(program, r.block_id())) {
                gaps.access(o, &r);
            }
        }
        program.blocks().filter(|&b| program.is_persistent(b)).for_each(|b| gaps.close(b));
        gaps.list_releases();
        gaps
    }

    /// The numbers of all gaps, in the order in which the gaps end.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = GapId> + use<> {
        GapId::each(0..self.len)
    }

    #[inline]
    pub(super) fn gap(&self, gap: GapId) -> Gap {
        self.gap.get(gap)
    }

    /// The first operators of the gaps whose numbers are at least `from` and below `to`.
    #[inline]
    pub(super) fn begins(&self, from: GapId, to: GapId) -> &[u32] {
        self.begin.range(from, to)
    }

    #[inline]
    pub(super) fn version(&self, version: VersionId) -> Version {
        self.version.get(version)
    }

    /// How many idle times of blocks have ended when `operator` ends. An idle time ends at the operator that accesses
    /// the block next. The result is also the number of the first gap that ends after `operator`.
    pub(super) fn first_after(&self, operator: u32) -> u32 {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.gap(GapId::of(middle)).end <= operator { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The values of blocks that can be copied to the host from this boundary on, but not earlier. Boundary o is before
    /// operator o.
    pub(super) fn released(&self, boundary: u32) -> impl Iterator<Item = VersionId> + '_ {
        let versions = VersionId::each(self.first_version[boundary]..self.first_version[boundary + 1]);
        versions.filter(move |&version| self.version(version).release == Some(boundary))
    }

    /// The gaps in which the block holds this value, from the last to the first.
    #[inline]
    pub(super) fn of_version(&self, version: VersionId) -> impl Iterator<Item = (GapId, Gap)> + '_ {
        let mut next = self.version(version).last_gap;
        core::iter::from_fn(move || {
            let gap = next?;
            let found = self.gap(gap);
            next = found.previous;
            Some((gap, found))
        })
    }

    /// Takes note of an access of a block by an operator; `r` is the row of the access. Adds the idle time that ends
    /// with this access, if there is one. If the access is the operator's first write of the block, adds the value that
    /// the block holds from then on.
    fn access(&mut self, operator: u32, r: &Row) {
        let reads = r.event == Event::Read;
        let block = r.block_id();
        let mut seen = self.seen.get(block);
        if seen.version.is_none() && reads {
            seen.version = Some(self.add_version(block, None));
            seen.initial = seen.version;
        }
        let holds = |gaps: &Self| seen.version.is_some_and(|version| gaps.version(version).release.is_some());
        match seen.access {
            None if self.program.is_persistent(block) && operator > 0 => {
                seen.head =
                    Some(self.add(&seen, block, (0, operator), if reads { GapKind::Head } else { GapKind::DeadHead }));
            }
            Some(last) if last + 1 < operator && (!reads || holds(self)) => {
                self.add(&seen, block, (last + 1, operator), if reads { GapKind::Middle } else { GapKind::Dead });
            }
            _ => {}
        }
        seen.access = Some(operator);
        let release = Some(operator + 1);
        let same = |version| seen.initial != Some(version) && self.version(version).release == release;
        if r.event == Event::Write && !seen.version.is_some_and(same) {
            seen.version = Some(self.add_version(block, release));
        }
        self.seen.set(block, seen);
    }

    /// Completes the idle times of a persistent block, after all accesses of all operators have been noted:
    /// - Notes which value the block holds when the iteration ends.
    /// - Adds the gap after the last access, if operators follow and there is a gap before the first access. Links the
    ///   two.
    /// - Marks all gaps of the block as clean if it is never written: the host has its value from the start.
    fn close(&mut self, block: BlockId) {
        let seen = self.seen.get(block);
        let (Some(last), Some(initial)) = (seen.access, seen.initial) else { return };
        self.version.set(initial, Version { last: seen.version, ..self.version(initial) });
        let operators = self.program.operators;
        if let Some(head) = seen.head
            && last + 1 < operators
        {
            let tail = self.add(&seen, block, (last + 1, operators), GapKind::Tail);
            self.gap.set(tail, Gap { other_end: Some(head), ..self.gap(tail) });
            self.gap.set(head, Gap { other_end: Some(tail), ..self.gap(head) });
        }
        let mut next = self.version(initial).last_gap.filter(|_| seen.version == Some(initial));
        while let Some(gap) = next {
            self.gap.set(gap, Gap { clean: true, ..self.gap(gap) });
            next = self.gap(gap).previous;
        }
    }

    /// Fills `first_version`: for each boundary between operators, the number of the first value of a block that can be
    /// copied to the host from there on, but not earlier. Values that can never be copied stand among the others;
    /// [`released`](Self::released) passes over them.
    fn list_releases(&mut self) {
        let mut version = 0;
        for boundary in 0..=self.program.operators {
            self.first_version[boundary] = version;
            let here =
                |version: u32| self.version(VersionId::of(version)).release.is_none_or(|release| release == boundary);
            while version < self.versions && here(version) {
                version += 1;
            }
        }
        self.first_version[self.program.operators + 1] = version;
    }

    /// Adds a value that a block holds from one write to the next. `release` is the first boundary between operators at
    /// which the value can be copied to the host; none if it never can.
    fn add_version(&mut self, block: BlockId, release: Option<u32>) -> VersionId {
        let version = VersionId::of(self.versions);
        self.version.set(version, Version { block, release, last_gap: None, last: None });
        self.versions += 1;
        version
    }

    /// Adds a gap of a block, from operator `begin` up to, but not including, operator `end`. In the gap the block
    /// holds the value that `seen` names.
    fn add(&mut self, seen: &Seen, block: BlockId, (begin, end): (u32, u32), kind: GapKind) -> GapId {
        let gap = GapId::of(self.len);
        let version = seen.version.unwrap_or(VersionId::of(NONE));
        let of_version = self.version(version);
        let previous = of_version.last_gap;
        let kept = Gap { block, begin, end, version, previous, other_end: None, kind, clean: false };
        self.gap.set(gap, kept);
        self.begin[gap] = begin;
        self.version.set(version, Version { last_gap: Some(gap), ..of_version });
        self.len += 1;
        gap
    }
}
