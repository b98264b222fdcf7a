//! What is on the host while operators run again, and what the copies cost.
//!
//! A *gap* is a run of segments in which a block is not accessed, as swapping knows it. A gap in use is an absence: from
//! before the segment `give` to before the segment `take` the block takes no memory. The copies of a walk go through two
//! serial links: out in the order in which memory is given back, from when the value is there; in when memory is taken
//! again. Compute waits where memory is given back and where the block is read. That is what swapping will do, but for the
//! order of copies that wait together: good enough to choose by, and what is chosen is simulated once more.

use crate::rewrite::members::Members;
use crate::simulate::Device;
use crate::table::Table;
use crate::{Workspace, WorkspaceLen};

/// A block that may be away.
#[expect(clippy::struct_excessive_bools, reason = "what has to be copied where, each for itself")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(in super::super) struct Gap {
    pub(in super::super) block: u32,
    /// The first segment in which it is idle, and the one that accesses it again.
    pub(in super::super) begin: u32,
    pub(in super::super) end: u32,
    /// What it holds: one copy out serves all gaps of a version.
    pub(in super::super) version: u32,
    /// For a gap at the end, which must be away at the start too, the one there; for that, the one at the end.
    pub(in super::super) other: Option<u32>,
    /// It is copied out, unless it is away at the start; it is copied in; it may be away at the start, and its final value
    /// is then copied out in its place; it is away at the end.
    pub(in super::super) leaves: bool,
    pub(in super::super) returns: bool,
    pub(in super::super) at_start: bool,
    pub(in super::super) owes: bool,
    pub(in super::super) at_end: bool,
}

pub(super) struct Absences<'a> {
    device: Device,
    /// Block, begin, end, version, 1 + the other end, and the rest as bits.
    gap: Table<'a, [u32; 6]>,
    pub(super) gaps: u32,
    position: Table<'a, [u32; 2]>,
    used: Members<'a>,
    /// 1 + the first absence that is given and that is taken before each segment, and the next ones.
    first: Table<'a, [u32; 2]>,
    next: Table<'a, [u32; 2]>,
    /// The walk in which each version was copied out last.
    copied: Table<'a, u32>,
    walk: u32,
    /// The walk in which each gap was an absence last.
    acted: Table<'a, u32>,
    out_free: f64,
    in_free: f64,
    owed: f64,
    /// When each block is back, as bits.
    arrival: Table<'a, u64>,
}

/// Length of the workspace of [`Absences`].
pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let gaps = rows + blocks;
    WorkspaceLen { words: blocks, indices: (6 + 2 + 1 + 1 + 2 + 1 + 1) * gaps + 2 * (rows + 2) }
}

impl<'a> Absences<'a> {
    pub(super) fn new(device: &Device, rows: usize, blocks: usize, scratch: &mut Workspace<'a>) -> Self {
        let gaps = rows + blocks;
        Self {
            device: *device,
            gap: scratch.index_records(gaps),
            gaps: 0,
            position: scratch.index_records(gaps),
            used: Members::new(gaps, scratch),
            first: scratch.index_records(rows + 2),
            next: scratch.index_records(gaps),
            copied: scratch.indices(gaps),
            walk: 0,
            acted: scratch.indices(gaps),
            out_free: 0.0,
            in_free: 0.0,
            owed: 0.0,
            arrival: scratch.words(blocks),
        }
    }

    pub(super) fn know(&mut self, g: Gap) {
        let bits = [g.leaves, g.returns, g.at_start, g.owes, g.at_end];
        let bits = bits.into_iter().rev().fold(0, |bits, bit| 2 * bits + u32::from(bit));
        let other = g.other.map_or(0, |other| other + 1);
        self.gap[self.gaps] = [g.block, g.begin, g.end, g.version, other, bits];
        self.gaps += 1;
    }

    pub(super) fn gap(&self, gap: u32) -> Gap {
        let [block, begin, end, version, other, bits] = self.gap[gap];
        let bit = |i: u32| bits >> i & 1 > 0;
        Gap {
            block,
            begin,
            end,
            version,
            other: other.checked_sub(1),
            leaves: bit(0),
            returns: bit(1),
            at_start: bit(2),
            owes: bit(3),
            at_end: bit(4),
        }
    }

    pub(super) fn at(&self, gap: u32) -> [u32; 2] {
        self.position[gap]
    }

    /// The gaps with positions.
    pub(super) const fn used(&self) -> &Members<'a> {
        &self.used
    }

    pub(super) fn is_used(&self, gap: u32) -> bool {
        self.used.has(gap)
    }

    pub(super) fn clear(&mut self) {
        while let Some(gap) = self.used.last() {
            self.set(gap, [0, 0]);
        }
    }

    /// Gives a gap positions; equal ones mean that the block stays.
    pub(super) fn set(&mut self, gap: u32, [give, take]: [u32; 2]) {
        self.position[gap] = [give, take];
        if give < take {
            self.used.insert(gap);
        } else {
            self.used.remove(gap);
        }
    }

    /// Before the first segment of a walk.
    pub(super) fn begin(&mut self) {
        self.walk += 1;
        (self.out_free, self.in_free, self.owed) = (0.0, 0.0, 0.0);
        if self.used.len() == 0 {
            return;
        }
        self.first.fill([0; 2]);
        self.arrival.fill(0);
        for i in 0..self.used.len() {
            let gap = self.used.get(i);
            let [give, take] = self.position[gap];
            self.next[gap] = [self.first[give][0], self.first[take][1]];
            self.first[give][0] = gap + 1;
            self.first[take][1] = gap + 1;
        }
    }

    /// 1 + the first gap whose memory is given back before a segment.
    pub(super) fn given(&self, segment: u32) -> u32 {
        if self.used.len() == 0 { 0 } else { self.first[segment][0] }
    }

    /// 1 + the first gap whose memory is taken before a segment.
    pub(super) fn taken(&self, segment: u32) -> u32 {
        if self.used.len() == 0 { 0 } else { self.first[segment][1] }
    }

    pub(super) fn next(&self, gap: u32) -> [u32; 2] {
        self.next[gap]
    }

    /// Memory is given back; when compute can go on, of which `released` tells when it was done with the block.
    pub(super) fn give(&mut self, gap: u32, bytes: u64, released: f64, clock: f64) -> f64 {
        self.acted[gap] = self.walk;
        let g = self.gap(gap);
        let at_start = g.at_start && self.position[gap][0] == 0;
        if at_start {
            self.owed += if g.owes { self.device.out_ns(bytes) } else { 0.0 };
            return clock;
        }
        if g.at_end && g.owes {
            self.owed -= self.device.out_ns(bytes);
        }
        if !g.leaves || self.copied[g.version] == self.walk {
            return clock;
        }
        self.copied[g.version] = self.walk;
        self.out_free = self.out_free.max(released) + self.device.out_ns(bytes);
        clock.max(self.out_free)
    }

    /// Memory is taken again.
    pub(super) fn take(&mut self, gap: u32, bytes: u64, clock: f64) {
        let g = self.gap(gap);
        if g.returns {
            self.in_free = self.in_free.max(clock) + self.device.in_ns(bytes);
            self.arrival[g.block] = self.in_free.to_bits();
        }
    }

    /// Whether a gap was an absence in the last walk: the block was there to leave.
    pub(super) fn acted(&self, gap: u32) -> bool {
        self.acted[gap] == self.walk
    }

    /// When a block is back.
    pub(super) fn arrival(&self, block: u32) -> f64 {
        if self.used.len() == 0 { 0.0 } else { f64::from_bits(self.arrival[block]) }
    }

    /// When everything is done, of which compute is done at `clock`.
    pub(super) fn end(&self, clock: f64) -> f64 {
        (self.out_free.max(if self.owed > 0.0 { clock } else { 0.0 }) + self.owed).max(self.in_free).max(clock)
    }
}
