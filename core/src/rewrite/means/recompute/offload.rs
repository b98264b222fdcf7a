//! Offloads: blocks on the host while operators are recomputed, and the time of their copies.
//!
//! A gap in use is an *offload*: from one boundary to another the block takes no memory on the device. The copies of a
//! walk go through two serial links: copies out in the order in which memory is freed, copies in in the order in which
//! it is allocated. A copy out starts when the value is there, a copy in when memory is allocated. Compute waits where
//! memory is freed and where the block is read. A swap schedule does the same, except for the order of copies that wait
//! at the same time. So the times here are estimates to decide by; a schedule with the offloads that were chosen is
//! simulated once more.

use crate::rewrite::gaps::{Gap, GapKind};
use crate::rewrite::members::Members;
use crate::simulate::Device;
use crate::timing::links::Links;
use crate::workspace::workspace;

workspace! {
    /// The gaps that may be offloads, and where those in use begin and end.
    pub(in crate::rewrite) struct Offloads<'a>(rows, blocks; device: &Device) {
        tables {
            /// By gap: the boundaries at which its memory is freed (give) and allocated again (take); equal if it is
            /// not in use.
            position: [u32; 2][rows + blocks],
            /// By operator: 1 + the first offload that is freed before it, and 1 + the first that is allocated before
            /// it; 0 is none.
            first: [u32; 2][rows + 2],
            /// By gap: 1 + the next offload that is freed before the same operator as this one, and 1 + the next that
            /// is allocated before the same operator; 0 is none.
            next: [u32; 2][rows + blocks],
            /// By version: the last walk in which it was copied out.
            copied: u32[rows + blocks],
            /// By gap: the last walk in which it was an offload.
            acted: u32[rows + blocks],
        }
        records {
            /// The gaps that were added.
            gap: Gap[rows + blocks],
            /// By block: when its last copy in is done, in ns; 0 if it has had none.
            arrival: f64[blocks],
        }
        parts {
            /// The gaps in use.
            used: Members(rows + blocks),
        }
        state {
            device: Device = *device,
            /// How many gaps there are.
            pub(in crate::rewrite) gaps: u32 = 0,
            /// The number of the present walk, from 1.
            walk: u32 = 0,
            links: Links = Links::new(device),
            /// The time of the copies out that are still to be made at the end, in ns: a block that was away at the
            /// start has to be on the host with its final value. Where the block is away at the end too, its tail has
            /// copied it before.
            owed: f64 = 0.0,
        }
    }
}

impl<'a> Offloads<'a> {
    /// Adds a gap, which gets the next number from 0 on.
    pub(in crate::rewrite) fn know(&mut self, gap: Gap) {
        self.gap.set(self.gaps, gap);
        self.gaps += 1;
    }

    pub(in crate::rewrite) fn gap(&self, gap: u32) -> Gap {
        self.gap.get(gap)
    }

    /// The boundaries at which a gap's memory is freed and allocated again; equal if it is not in use.
    pub(in crate::rewrite) fn at(&self, gap: u32) -> [u32; 2] {
        self.position[gap]
    }

    /// The gaps in use.
    pub(in crate::rewrite) const fn used(&self) -> &Members<'a> {
        &self.used
    }

    pub(in crate::rewrite) fn is_used(&self, gap: u32) -> bool {
        self.used.has(gap)
    }

    /// Takes all gaps out of use.
    pub(in crate::rewrite) fn clear(&mut self) {
        while let Some(gap) = self.used.last() {
            self.set(gap, [0, 0]);
        }
    }

    /// Sets the boundaries at which a gap's memory is freed and allocated; equal ones take it out of use.
    pub(in crate::rewrite) fn set(&mut self, gap: u32, [give, take]: [u32; 2]) {
        self.position[gap] = [give, take];
        if give < take {
            self.used.insert(gap);
        } else {
            self.used.remove(gap);
        }
    }

    /// Prepares for a walk, before its first operator.
    pub(in crate::rewrite) fn begin(&mut self) {
        self.walk += 1;
        self.owed = 0.0;
        self.links.restart();
        if self.used.len() == 0 {
            return;
        }
        self.first.fill([0; 2]);
        self.arrival.fill(0.0);
        for i in 0..self.used.len() {
            let gap = self.used.get(i);
            let [give, take] = self.position[gap];
            self.next[gap] = [self.first[give][0], self.first[take][1]];
            self.first[give][0] = gap + 1;
            self.first[take][1] = gap + 1;
        }
    }

    /// 1 + the first gap whose memory is freed before an operator.
    pub(in crate::rewrite) fn given(&self, operator: u32) -> u32 {
        if self.used.len() == 0 { 0 } else { self.first[operator][0] }
    }

    /// 1 + the first gap whose memory is allocated before an operator.
    pub(in crate::rewrite) fn taken(&self, operator: u32) -> u32 {
        if self.used.len() == 0 { 0 } else { self.first[operator][1] }
    }

    /// 1 + the next gap after this one that is freed before the same operator, and 1 + the next that is allocated
    /// before the same operator; 0 is none.
    pub(in crate::rewrite) fn next(&self, gap: u32) -> [u32; 2] {
        self.next[gap]
    }

    /// Frees the memory of an offload of `bytes`, whose copy out can start at `released`. Returns the time at which
    /// compute, which stands at `clock`, can go on. All times are in ns.
    pub(in crate::rewrite) fn give(&mut self, gap: u32, bytes: u64, released: f64, clock: f64) -> f64 {
        self.acted[gap] = self.walk;
        let g = self.gap(gap);
        let at_start = g.kind.is_head() && self.position[gap][0] == 0;
        if at_start {
            self.owed += if g.crosses_end() { self.device.out_ns(bytes) } else { 0.0 };
            return clock;
        }
        if g.kind == GapKind::Tail && g.crosses_end() {
            self.owed -= self.device.out_ns(bytes);
        }
        if !g.is_copied_out() || self.copied[g.version] == self.walk {
            return clock;
        }
        self.copied[g.version] = self.walk;
        let (_, done) = self.links.copy_out(bytes, released);
        clock.max(done)
    }

    /// Allocates the memory of an offload of `bytes` at `clock`, in ns, and copies the block in if its value is read
    /// after the gap.
    pub(in crate::rewrite) fn take(&mut self, gap: u32, bytes: u64, clock: f64) {
        let g = self.gap(gap);
        if g.kind.returns() {
            let (_, done) = self.links.copy_in(bytes, clock);
            self.arrival.set(g.block, done);
        }
    }

    /// Whether a gap was an offload in the last walk. A gap in use was none if its block was not on the device when the
    /// memory was to be freed.
    pub(in crate::rewrite) fn acted(&self, gap: u32) -> bool {
        self.acted[gap] == self.walk
    }

    /// When a block is back on the device, in ns; 0 if it has never left.
    pub(in crate::rewrite) fn arrival(&self, block: u32) -> f64 {
        if self.used.len() == 0 { 0.0 } else { self.arrival.get(block) }
    }

    /// When all copies are done, if compute is done at `clock`; in ns.
    pub(in crate::rewrite) fn end(&self, clock: f64) -> f64 {
        let begin = if self.owed > 0.0 { clock } else { 0.0 };
        self.links.idle_after(clock).max(self.links.out_free().max(begin) + self.owed)
    }
}
