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

pub(super) const NONE: u32 = u32::MAX;

ids! {
    /// Gaps are numbered in the order in which they end.
    pub(in crate::rewrite) struct GapId;

    /// Numbered by the first boundary with a copy out; versions that are never copied stand anywhere among them.
    pub(in crate::rewrite) struct VersionId;
}

record! {
    pub(super) struct Gap {
        pub(super) block: BlockId,
        /// The operator after the previous access; 0 if there is none.
        pub(super) begin: u32,
        /// The operator of the next access; the number of operators if there is none.
        pub(super) end: u32,
        pub(super) version: VersionId,
        /// The latest earlier gap of the same version.
        pub(super) previous: Option<GapId>,
        /// In the head of a persistent block its tail, and in the tail its head.
        pub(super) other_end: Option<GapId>,
        pub(super) kind: GapKind,
        /// Persistent and never written: the host has the value from the start.
        pub(super) clean: bool,
    }
}

impl Gap {
    #[inline]
    pub(super) fn crosses_end(&self) -> bool {
        (self.kind.is_head() || self.kind == GapKind::Tail) && !self.clean
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapKind {
    /// Ends with a read: copied out, unless the host has the value, and copied back.
    Middle,
    /// Ends with a write: nothing is copied.
    Dead,
    Head,
    /// Before the first access of a persistent block, a write: only its final value may be copied out.
    DeadHead,
    Tail,
}

impl GapKind {
    pub(super) fn is_head(self) -> bool {
        matches!(self, Self::Head | Self::DeadHead)
    }

    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Middle | Self::Head | Self::Tail)
    }

    pub(super) fn returns(self) -> bool {
        matches!(self, Self::Middle | Self::Head)
    }
}

enum_field!(GapKind: Middle, Dead, Head, DeadHead, Tail);

record! {
    pub(super) struct Version {
        pub(super) block: BlockId,
        /// The first boundary at which it can be copied out; none if it never is.
        pub(super) release: Option<u32>,
        last_gap: Option<GapId>,
        /// Of a persistent block's first version: the one that it holds at the end of the iteration.
        pub(super) last: Option<VersionId>,
    }
}

record! {
    struct Seen {
        access: Option<u32>,
        version: Option<VersionId>,
        initial: Option<VersionId>,
        head: Option<GapId>,
    }
}

workspace! {
    pub(super) struct Gaps<'a>(rows, blocks; program: &'a Program<'a>) {
        tables {
            /// The first version of each boundary's release; entry o + 1 is one past those of boundary o.
            first_version: u32[rows + 2],
            /// A copy of `Gap::begin`, apart because the search reads it of many gaps in a row.
            begin[GapId]: u32[rows + blocks],
        }
        records {
            gap[GapId]: Gap[rows + blocks],
            version[VersionId]: Version[rows + blocks],
            seen[BlockId]: Seen[blocks],
        }
        state {
            pub(super) program: &'a Program<'a> = program,
            pub(super) len: u32 = 0,
            pub(super) versions: u32 = 0,
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Swappable {
    pub(super) least_bytes: u64,
    pub(super) keep_persistent: bool,
}

impl Swappable {
    fn has(self, program: &Program<'_>, block: BlockId) -> bool {
        program.size[block] >= self.least_bytes && !(self.keep_persistent && program.is_persistent(block))
    }
}

impl<'a> Gaps<'a> {
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

    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = GapId> + use<> {
        GapId::each(0..self.len)
    }

    #[inline]
    pub(super) fn gap(&self, gap: GapId) -> Gap {
        self.gap.get(gap)
    }

    #[inline]
    pub(super) fn begins(&self, from: GapId, to: GapId) -> &[u32] {
        self.begin.range(from, to)
    }

    #[inline]
    pub(super) fn version(&self, version: VersionId) -> Version {
        self.version.get(version)
    }

    /// The number of gaps that have ended, and so the first gap that ends after `operator`.
    pub(super) fn first_after(&self, operator: u32) -> u32 {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.gap(GapId::of(middle)).end <= operator { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub(super) fn released(&self, boundary: u32) -> impl Iterator<Item = VersionId> + '_ {
        let versions = VersionId::each(self.first_version[boundary]..self.first_version[boundary + 1]);
        versions.filter(move |&version| self.version(version).release == Some(boundary))
    }

    /// From the last to the first.
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

    fn add_version(&mut self, block: BlockId, release: Option<u32>) -> VersionId {
        let version = VersionId::of(self.versions);
        self.version.set(version, Version { block, release, last_gap: None, last: None });
        self.versions += 1;
        version
    }

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
