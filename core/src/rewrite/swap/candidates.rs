//! What may leave the device, and when.
//!
//! The rows of a trace are grouped by operator: a *segment* is the accesses of one operator with the mallocs before
//! and the frees after them, and copies happen at the *boundaries* between segments. A *gap* is a run of segments in
//! which a block is not accessed; while it is away its bytes are free in all of them. A *version* is what a block
//! holds from one write to the next: one copy on the host serves all gaps of a version.
//!
//! A persistent block has a gap before its first access (head) and, where iterations repeat, one after its last (tail).
//! It may leave in its head as in any other gap. It may be away from the start on if its final version is on the host
//! at the end; the host then has its initial version from the start, for all gaps of it. It may be away at the tail if
//! it is away at the start too.
//!
//! Blocks below the least size are left alone. No gap ends in a free. O(rows).

use crate::error::RowFault;
use crate::table::Table;
use crate::trace::{Event, Row, recorded};
use crate::{Error, Workspace, WorkspaceLen};

/// No version, no gap, no segment.
pub(super) const NONE: u32 = u32::MAX;

/// Segments in which a block is idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    pub(super) block: u32,
    /// The first idle segment.
    pub(super) begin: u32,
    /// The segment that accesses the block again; the number of segments for a tail.
    pub(super) end: u32,
    pub(super) version: u32,
    /// The gap of the same version before it, or [`NONE`].
    pub(super) previous: u32,
    /// For a tail: the head of the same block. For a head: its tail.
    pub(super) other_end: u32,
    pub(super) kind: Kind,
}

/// What has to happen around a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Out before, in after.
    #[default]
    Middle,
    /// What the block holds is never read again: nothing is copied.
    Dead,
    /// Before the first access of a persistent block; in after, and out before unless it is away at the start.
    Head,
    /// A head that is written before it is read: nothing is copied but the final version, if it is away at the start.
    DeadHead,
    /// Out before; away at the end.
    Tail,
}

impl Kind {
    pub(super) fn is_head(self) -> bool {
        matches!(self, Self::Head | Self::DeadHead)
    }

    /// Whether what the block holds is read again.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Middle | Self::Head | Self::Tail)
    }

    /// Whether the block comes back by a copy.
    pub(super) fn returns(self) -> bool {
        matches!(self, Self::Middle | Self::Head)
    }
}

/// The trace, as the pass sees it.
pub(super) struct Candidates<'a> {
    pub(super) rows: &'a [Row],
    /// How many segments, gaps and versions there are.
    pub(super) segments: u32,
    pub(super) gaps: u32,
    pub(super) versions: u32,
    /// The first row of each segment, and the number of rows.
    pub(super) first_row: Table<'a, u32>,
    /// When compute comes to each boundary if it never waits, in ns; one more than segments.
    pub(super) time: Table<'a, u64>,
    /// When the first access of each segment begins if it never waits.
    pub(super) access_time: Table<'a, u64>,
    /// When the trace ends.
    pub(super) end_time: u64,
    /// The most bytes on the device in each segment.
    pub(super) load: Table<'a, u64>,
    /// By block.
    pub(super) size: Table<'a, u64>,
    gap: Table<'a, [u32; 7]>,
    version: Table<'a, [u32; 4]>,
    /// The first of the versions that can be copied from each boundary on.
    first_version: Table<'a, u32>,
}

/// What a block holds from one write to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    pub(super) block: u32,
    /// The boundary from which it can be copied; [`NONE`] if it holds nothing.
    pub(super) release: u32,
    /// Its last gap, from which the others follow, or [`NONE`].
    pub(super) last_gap: u32,
    /// For the initial version of a persistent block: the final one, which may be the same; else [`NONE`].
    pub(super) last: u32,
}

/// Length of the workspace of [`Candidates`].
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let most = rows + blocks;
    WorkspaceLen { words: 3 * rows + 2 + blocks, indices: 2 * rows + 3 + (7 + 4) * most + 5 * blocks }
}

impl<'a> Candidates<'a> {
    /// Finds them among the blocks of at least `least` bytes.
    ///
    /// # Errors
    /// A row with a block number that is not below `block_count`, or a copy.
    pub(super) fn new(
        rows: &'a [Row],
        block_count: usize,
        least: u64,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let most = rows.len() + block_count;
        let mut found = Self {
            rows,
            segments: 0,
            gaps: 0,
            versions: 0,
            first_row: scratch.indices(rows.len() + 1),
            time: scratch.words(rows.len() + 1),
            access_time: scratch.words(rows.len() + 1),
            end_time: rows.last().map_or(0, |r| r.time_ns),
            load: scratch.words(rows.len()),
            size: scratch.words(block_count),
            gap: scratch.index_records(most),
            version: scratch.index_records(most),
            first_version: scratch.indices(rows.len() + 2),
        };
        let mut blocks = scratch.index_records(block_count);
        found.check(rows, block_count)?;
        found.segment(rows);
        found.collect(least, &mut blocks);
        Ok(found)
    }

    pub(super) fn gap(&self, gap: u32) -> Gap {
        let [block, begin, end, version, previous, other_end, kind] = self.gap[gap];
        let kind = match kind {
            1 => Kind::Dead,
            2 => Kind::Head,
            3 => Kind::DeadHead,
            4 => Kind::Tail,
            _ => Kind::Middle,
        };
        Gap { block, begin, end, version, previous, other_end, kind }
    }

    pub(super) fn version(&self, version: u32) -> Version {
        let [block, release, last_gap, last] = self.version[version];
        Version { block, release, last_gap, last }
    }

    /// The first of the gaps that end after a segment: gaps are numbered in the order of their ends.
    pub(super) fn first_gap_after(&self, segment: u32) -> u32 {
        let (mut low, mut high) = (0, self.gaps);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.gap[middle][2] <= segment { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The versions that can be copied from a boundary on and not before.
    pub(super) fn released(&self, boundary: u32) -> impl Iterator<Item = u32> + '_ {
        let versions = self.first_version[boundary]..self.first_version[boundary + 1];
        versions.filter(move |&version| self.version[version][1] == boundary)
    }

    /// The gaps of a version, the last first.
    pub(super) fn gaps_of(&self, version: u32) -> impl Iterator<Item = (u32, Gap)> + '_ {
        let mut next = self.version(version).last_gap;
        core::iter::from_fn(move || {
            let gap = next;
            (gap != NONE).then(|| {
                let found = self.gap(gap);
                next = found.previous;
                (gap, found)
            })
        })
    }

    fn check(&mut self, rows: &[Row], block_count: usize) -> Result<(), Error> {
        for (row, r) in (0u32..).zip(rows) {
            let refuse = |fault| Err(Error::Row { row, fault });
            if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
                return refuse(RowFault::UnknownBlock);
            }
            match r.event {
                Event::SwapIn | Event::SwapOut => return refuse(RowFault::NotRecorded),
                Event::Malloc if self.size[r.block] > 0 => return refuse(RowFault::NotRecorded),
                Event::Malloc => self.size[r.block] = r.bytes,
                _ => {}
            }
        }
        Ok(())
    }

    /// Where the segments begin, their times and loads.
    fn segment(&mut self, rows: &[Row]) {
        let (mut row, mut load) = (0, 0u64);
        while row < rows.len() {
            let g = self.segments;
            let begin = row;
            let (access, end) = recorded::segment(rows, row);
            row = end;
            // Where nothing is accessed any more, what is allocated and freed takes no time, the rest comes after it.
            self.access_time[g] = rows.get(access).map_or(self.time[g], |r| r.time_ns);
            self.first_row[g] = u32::try_from(begin).unwrap_or(u32::MAX);
            self.load[g] = load;
            self.time[g + 1] = if g > 0 { self.time[g] } else { 0 };
            for r in rows.get(begin..row).unwrap_or_default() {
                match r.event {
                    Event::Malloc => load = load.saturating_add(r.bytes),
                    Event::Free => load = load.saturating_sub(self.size[r.block]),
                    _ => self.time[g + 1] = r.time_ns,
                }
                self.load[g] = self.load[g].max(load);
            }
            self.segments += 1;
        }
        self.first_row[self.segments] = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    }

    /// The versions and gaps. Per block, `blocks` holds: 1 + the segment of its last access, 1 + its version, 1 + its
    /// initial version, 1 + its head, whether it is persistent.
    fn collect(&mut self, least: u64, blocks: &mut Table<'_, [u32; 5]>) {
        let rows = self.rows;
        for r in rows {
            match r.event {
                Event::Malloc if r.time_ns == 0 => blocks[r.block][4] = 1,
                Event::Free => blocks[r.block][4] = 0,
                _ => {}
            }
        }
        // Versions are numbered in the order in which they can be copied; persistent blocks have theirs from the start.
        let blocks_len = u32::try_from(blocks.len()).unwrap_or(u32::MAX);
        for b in 0..blocks_len {
            if blocks[b][4] > 0 && self.size[b] >= least {
                let version = self.add_version(b, 1);
                blocks[b][1] = version;
                blocks[b][2] = version;
            }
        }
        for g in 0..self.segments {
            let range = self.first_row[g]..self.first_row[g + 1];
            for r in range.filter_map(|i| rows.get(usize::try_from(i).ok()?)) {
                if !r.event.is_access() || self.size[r.block] < least {
                    continue;
                }
                self.access(g, r, &mut blocks[r.block]);
            }
        }
        for b in 0..blocks_len {
            let [accessed, version, initial, head, persistent] = blocks[b];
            if persistent == 0 || accessed == 0 {
                continue;
            }
            self.version[initial - 1][3] = version - 1;
            if head > 0 && accessed < self.segments {
                let tail = self.add(Gap {
                    block: b,
                    begin: accessed,
                    end: self.segments,
                    version: version - 1,
                    previous: NONE,
                    other_end: head - 1,
                    kind: Kind::Tail,
                });
                self.gap[head - 1][5] = tail;
            }
        }
        // Those that hold nothing stand among the others.
        let mut version = 0;
        for boundary in 0..=self.segments {
            self.first_version[boundary] = version;
            while version < self.versions && [boundary, NONE].contains(&self.version[version][1]) {
                version += 1;
            }
        }
        self.first_version[self.segments + 1] = version;
    }

    fn access(&mut self, g: u32, r: &Row, [last, version, initial, head, persistent]: &mut [u32; 5]) {
        if *version == 0 && r.event == Event::Read {
            *version = self.add_version(r.block, NONE);
            *initial = *version;
        }
        let reads = r.event == Event::Read;
        let gap = |begin, kind| Gap { block: r.block, begin, end: g, kind, other_end: NONE, ..Gap::default() };
        if *last == 0 && *persistent > 0 && g >= 1 {
            let kind = if reads { Kind::Head } else { Kind::DeadHead };
            *head = 1 + self.add(Gap { version: *version - 1, ..gap(0, kind) });
        } else if *last > 0 && *last < g && (!reads || self.version[*version - 1][1] != NONE) {
            let kind = if reads { Kind::Middle } else { Kind::Dead };
            self.add(Gap { version: *version - 1, ..gap(*last, kind) });
        }
        *last = g + 1;
        if r.event == Event::Write && (*version == *initial || self.version[*version - 1][1] != g + 1) {
            *version = self.add_version(r.block, g + 1);
        }
    }

    fn add_version(&mut self, block: u32, release: u32) -> u32 {
        self.version[self.versions] = [block, release, NONE, NONE];
        self.versions += 1;
        self.versions
    }

    fn add(&mut self, gap: Gap) -> u32 {
        let Gap { block, begin, end, version, other_end, kind, .. } = gap;
        let kind = match kind {
            Kind::Middle => 0,
            Kind::Dead => 1,
            Kind::Head => 2,
            Kind::DeadHead => 3,
            Kind::Tail => 4,
        };
        let id = self.gaps;
        self.gap[id] = [block, begin, end, version, self.version[version][2], other_end, kind];
        self.version[version][2] = id;
        self.gaps += 1;
        id
    }
}
