//! A swap schedule: the positions of all gaps, and the time that follows from them. A gap, or idle time, is a time in
//! which no operator accesses a block; it is *in use* if the block is off the device in it.
//!
//! The positions of a gap are two boundaries between operators: its block's memory is freed at *give* and allocated
//! again at *take*. Boundary o lies before operator o. If give and take are equal, the gap is not in use. A block that is
//! on the host when the iteration begins is not freed then; one that is there when it ends is not allocated again. The
//! load of each operator, the bytes alive while it runs, depends on the positions alone. So does the time, which a
//! simulation in one pass over the operators finds:
//!
//! Copies wait for two links, one to the host and one back, and go in the order in which they are due. A copy out is
//! due when the block's memory is freed, a copy in when an operator next reads the block. A link gets its next copy
//! only when it would otherwise be idle before the next boundary, so that an urgent copy never waits long behind one
//! that is not. A copy that is due is handed to the link at once. Of copies out that are due at the same time, the one
//! with the least number of its version (a block's value between two writes) goes first; of copies in, the one with the
//! least number of its gap.
//!
//! The simulation stops only at these boundaries: where the block of a gap in use is freed, allocated again or used at
//! the gap's end, where a version can be copied out, and where a link becomes idle while copies wait. Cost: O(gaps in
//! use · log(operators) + operators / 64) a simulation.

mod simulate;

use super::agenda::Agenda;
use super::load::Load;
use super::queue::Queue;
use crate::heap::Heap;
use crate::id::Id;
use crate::rewrite::gaps::{Gap, GapId, GapKind, Gaps, NONE, VersionId};
use crate::rewrite::ids::BlockId;
use crate::rewrite::members::Members;
use crate::simulate::Device;
use crate::table::{Table, record};
use crate::trace::Event;
use crate::workspace::workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Action {
    Operators(u32, u32),
    Out(VersionId),
    Free(GapId),
    In(GapId),
}

workspace! {
    pub(in crate::rewrite) struct Schedule<'a>(rows, blocks; gaps: &'a Gaps<'a>, device: &Device) then begin {
        tables {
            /// Give and take; equal if the gap is not in use.
            positions[GapId]: [u32; 2][rows + blocks],
            /// The boundary at which its copy out is due; [`NONE`] if it needs none.
            due[VersionId]: u32[rows + blocks],
            headroom: u64[rows + 2],
            excess: u64[rows + 2],
            /// Gaps in use that need host memory: all but [`GapKind::Dead`].
            on_host[BlockId]: u32[blocks],
        }
        records {
            out_ns[BlockId]: f64[blocks],
            in_ns[BlockId]: f64[blocks],
            /// The host needs it at the end: the last value of a persistent block that is there at the start.
            owed[VersionId]: bool[rows + blocks],
            /// In ns; 0 before the link gets the copy.
            copied[VersionId]: f64[rows + blocks],
            /// In ns, of all copies in that it needs; 0 if it needs none.
            arrival: f64[rows + 2],
            clock: f64[rows + 2],
            /// In ns, had it not waited for copies in; known only where the simulation stopped.
            ready: f64[rows + 2],
        }
        lists {
            sent: VersionId[rows + blocks],
            stops: u32[rows + 2],
            returned: GapId[rows + blocks],
            stalls: u32[rows + 2],
        }
        parts {
            used[GapId]: Members(rows + blocks),
            frees: Chains(rows, blocks),
            allocs: Chains(rows, blocks),
            agenda: Agenda(rows + 2),
            load: Load(rows + 2; gaps.program.operators),
            waiting_out[VersionId]: Heap(rows + blocks),
            /// Gaps are numbered by their ends, so the least number is read first.
            waiting_in[GapId]: Queue(rows + blocks),
        }
        state {
            gaps: &'a Gaps<'a> = gaps,
            device: Device = *device,
            host_bytes: u64 = 0,
        }
    }
}

record! {
    pub(in crate::rewrite) struct Position {
        pub(in crate::rewrite) gap: GapId,
        pub(in crate::rewrite) give: u32,
        pub(in crate::rewrite) take: u32,
    }
}

workspace! {
    pub(in crate::rewrite) struct Positions<'a>(rows, blocks) {
        lists {
            gaps: Position[rows + blocks],
        }
    }
}

impl Positions<'_> {
    pub(in crate::rewrite) fn keep(&mut self, schedule: &Schedule<'_>) {
        self.gaps.clear();
        for gap in schedule.used().iter() {
            let [give, take] = schedule.at(gap);
            self.gaps.push(Position { gap, give, take });
        }
    }

    pub(in crate::rewrite) fn restore(&self, schedule: &mut Schedule<'_>) {
        schedule.clear();
        for Position { gap, give, take } in self.gaps.iter() {
            schedule.set(gap, [give, take]);
        }
    }
}

impl<'a> Schedule<'a> {
    fn begin(&mut self) {
        let program = self.gaps.program;
        let mut present = 0u64;
        self.load.change(|operator, _| {
            let mut most = present;
            for r in program.rows_of(operator) {
                match r.event {
                    Event::Malloc => present = present.saturating_add(r.bytes),
                    Event::Free => present = present.saturating_sub(program.size[r.block_id()]),
                    _ => {}
                }
                most = most.max(present);
            }
            most
        });
        self.due.fill(NONE);
        for block in program.blocks() {
            self.out_ns.set(block, self.device.out_ns(program.size[block]));
            self.in_ns.set(block, self.device.in_ns(program.size[block]));
        }
    }

    #[inline]
    pub(in crate::rewrite) fn gaps(&self) -> &'a Gaps<'a> {
        self.gaps
    }

    #[inline]
    pub(in crate::rewrite) fn copy_ns(&self, block: BlockId) -> (f64, f64) {
        (self.out_ns.get(block), self.in_ns.get(block))
    }

    #[inline]
    pub(in crate::rewrite) fn at(&self, gap: GapId) -> [u32; 2] {
        self.positions[gap]
    }

    /// Of `n` gaps from `first` on, at most 64, all of which must end after the operator.
    #[expect(clippy::needless_bitwise_bool, reason = "a branch here would often be foreseen wrongly")]
    #[inline]
    pub(in crate::rewrite) fn on_device(
        &self,
        first: u32,
        n: u32,
        operator: u32,
    ) -> impl Iterator<Item = GapId> + use<> {
        let (from, to) = (GapId::of(first), GapId::of(first + n));
        let gaps = self.gaps.begins(from, to).iter().zip(self.positions.range(from, to));
        // One bit for each gap.
        let mut bits = (0..).zip(gaps).fold(0u64, |bits, (i, (&begin, &[give, take]))| {
            let is_away = (give <= operator) & (operator < take);
            bits | u64::from((begin <= operator) & !is_away) << i
        });
        core::iter::from_fn(move || {
            let i = bits.trailing_zeros();
            bits &= bits.checked_sub(1)?;
            Some(GapId::of(first + i))
        })
    }

    #[inline]
    pub(in crate::rewrite) fn is_used(&self, gap: GapId) -> bool {
        self.used.has(gap)
    }

    #[inline]
    pub(in crate::rewrite) fn used(&self) -> &Members<'a, GapId> {
        &self.used
    }

    pub(in crate::rewrite) fn stalls(&self) -> &[u32] {
        self.stalls.as_slice()
    }

    #[inline]
    pub(in crate::rewrite) fn load(&self, operator: u32) -> u64 {
        self.load.get(operator)
    }

    pub(in crate::rewrite) fn first_above(&self, most: u64, from: u32, to: u32) -> u32 {
        self.load.first_above(most, from, to)
    }

    pub(in crate::rewrite) fn after_last_above(&self, most: u64, from: u32, to: u32) -> u32 {
        self.load.after_last_above(most, from, to)
    }

    pub(in crate::rewrite) fn clear_headroom(&mut self) {
        self.load.change(|operator, load| load.wrapping_sub(self.headroom[operator]));
        self.headroom.fill(0);
        self.excess.fill(0);
    }

    pub(in crate::rewrite) fn copy_headroom(&self, to: &mut Table<'_, u64>) {
        to.copy_from(&self.headroom);
    }

    pub(in crate::rewrite) fn set_headroom(&mut self, bytes: impl Fn(u32) -> u64) {
        self.clear_headroom();
        self.load.change(|operator, load| {
            self.headroom[operator] = load.saturating_add(bytes(operator)) - load;
            load + self.headroom[operator]
        });
    }

    pub(in crate::rewrite) fn exceed(&mut self, begin: &Table<'_, u32>, (from, to): (u32, u32), excess: u64) {
        let operators = self.gaps.program.operators;
        let rows = begin.first(operators + 1);
        let first = rows.partition_point(|&row| row <= from).saturating_sub(1);
        for operator in u32::try_from(first).unwrap_or(operators)..operators {
            if begin[operator] >= to {
                break;
            }
            self.excess[operator] = self.excess[operator].max(excess);
        }
    }

    pub(in crate::rewrite) fn add_headroom(&mut self, least: u64, (part, whole): (u32, u32)) {
        self.load.change(|operator, load| {
            let excess = self.excess[operator];
            let bytes = if excess > 0 { (excess / u64::from(whole) * u64::from(part)).max(least) } else { 0 };
            let more = load.saturating_add(bytes) - load;
            self.headroom[operator] = self.headroom[operator].wrapping_add(more);
            load + more
        });
        self.excess.fill(0);
    }

    pub(in crate::rewrite) fn lower_headroom(&mut self) {
        self.load.change(|operator, load| {
            let less = self.headroom[operator].div_ceil(4);
            self.headroom[operator] -= less;
            load.wrapping_sub(less)
        });
    }

    #[inline]
    pub(in crate::rewrite) fn may_use(&self, gap: GapId, g: &Gap) -> bool {
        let gaps = self.gaps;
        let head =
            g.kind != GapKind::Tail || g.other_end.is_some_and(|head| self.is_away_at_start(head, &gaps.gap(head)));
        let room = g.kind == GapKind::Dead || self.on_host[g.block] > 0 || {
            let bytes = self.host_bytes.saturating_add(self.gaps.program.size[g.block]);
            self.device.host_capacity.is_none_or(|capacity| bytes <= capacity)
        };
        head && room && !self.is_used(gap)
    }

    pub(in crate::rewrite) fn peak(&self) -> (u64, u32) {
        self.load.peak()
    }

    pub(in crate::rewrite) fn clear(&mut self) {
        while let Some(gap) = self.used.last() {
            self.set(gap, [0, 0]);
        }
    }

    #[inline]
    pub(in crate::rewrite) fn is_away_at_start(&self, gap: GapId, g: &Gap) -> bool {
        g.kind.is_head() && self.is_used(gap) && self.at(gap)[0] == 0
    }

    #[inline]
    pub(in crate::rewrite) fn clamp(&self, gap: GapId, [give, take]: [u32; 2]) -> [u32; 2] {
        let g = self.gaps.gap(gap);
        let give = give.max(g.begin);
        let take = if g.kind == GapKind::Tail { g.end } else { take.min(g.end) };
        if give < take { [give, take] } else { [0, 0] }
    }

    /// Both within the gap, or both 0; equal leaves the block on the device.
    pub(in crate::rewrite) fn set(&mut self, gap: GapId, [give, take]: [u32; 2]) {
        let g = self.gaps.gap(gap);
        let size = self.gaps.program.size[g.block];
        let [old_give, old_take] = self.positions[gap];
        if [old_give, old_take] == [give, take] {
            return;
        }
        // The load falls from `give` on and rises from `take` on.
        for (from, to, less) in [(give, old_give, give < old_give), (take, old_take, take > old_take)] {
            let bytes = if less { size.wrapping_neg() } else { size };
            self.load.add(from.min(to), from.max(to), bytes);
        }
        let (was_used, is_used) = (old_give < old_take, give < take);
        let freed = |used: bool, give: u32| (used && give > 0).then_some(give);
        let allocated = |used: bool, take: u32| (used && g.kind != GapKind::Tail).then_some(take);
        for (chains, old, new) in [
            (&mut self.frees, freed(was_used, old_give), freed(is_used, give)),
            (&mut self.allocs, allocated(was_used, old_take), allocated(is_used, take)),
        ] {
            if old != new {
                if let Some(boundary) = old {
                    chains.unlink(boundary, gap);
                    self.agenda.remove(boundary);
                }
                if let Some(boundary) = new {
                    chains.link(boundary, gap);
                    self.agenda.add(boundary);
                }
            }
        }
        self.positions[gap] = [give, take];
        if g.kind != GapKind::Dead && was_used != is_used {
            let gaps = self.on_host[g.block];
            self.on_host[g.block] = if is_used { gaps + 1 } else { gaps - 1 };
            if is_used && gaps == 0 {
                self.host_bytes = self.host_bytes.saturating_add(size);
            } else if was_used && gaps == 1 {
                self.host_bytes = self.host_bytes.saturating_sub(size);
            }
        }
        if was_used != is_used {
            if is_used {
                self.used.insert(gap);
                self.agenda.add(g.end);
            } else {
                self.used.remove(gap);
                self.agenda.remove(g.end);
            }
        }
        let last = self.gaps.version(g.version).last;
        let (was_away, is_away) = (was_used && old_give == 0, is_used && give == 0);
        if let Some(last) = last.filter(|&last| g.kind.is_head() && last != g.version && was_away != is_away) {
            self.owed.set(last, is_away);
            self.set_due(last);
        }
        self.set_due(g.version);
    }

    #[inline]
    pub(in crate::rewrite) fn is_clean(&self, version: VersionId) -> bool {
        let last = self.gaps.version(version).last;
        last.is_some_and(|last| last == version || self.owed.get(last))
    }

    /// At the first free whose value is read later, else at the end if the host needs it.
    fn set_due(&mut self, version: VersionId) {
        let at_end = if self.owed.get(version) { self.gaps.program.operators } else { NONE };
        let due = if self.is_clean(version) {
            NONE
        } else {
            let copied = self.gaps.of_version(version).filter(|&(gap, g)| g.kind.is_read() && self.is_used(gap));
            copied.fold(at_end, |due, (gap, _)| due.min(self.positions[gap][0]))
        };
        let was_due = core::mem::replace(&mut self.due[version], due) != NONE;
        if let Some(release) = self.gaps.version(version).release
            && was_due != (due != NONE)
        {
            if was_due { self.agenda.remove(release) } else { self.agenda.add(release) }
        }
    }
}

workspace! {
    /// Of each boundary, the gaps that change there, sorted by number, so that rows do not depend on the order of
    /// decisions.
    struct Chains<'a>(rows, blocks) {
        records {
            first: Option<GapId>[rows + 2],
            before[GapId]: Option<GapId>[rows + blocks],
            after[GapId]: Option<GapId>[rows + blocks],
        }
    }
}

impl Chains<'_> {
    fn link(&mut self, boundary: u32, gap: GapId) {
        let (mut before, mut next) = (None, self.first.get(boundary));
        while let Some(other) = next.filter(|&other| other < gap) {
            (before, next) = (next, self.after.get(other));
        }
        self.before.set(gap, before);
        self.after.set(gap, next);
        self.join(boundary, before, Some(gap));
        if let Some(next) = next {
            self.before.set(next, Some(gap));
        }
    }

    fn unlink(&mut self, boundary: u32, gap: GapId) {
        let (before, after) = (self.before.get(gap), self.after.get(gap));
        self.join(boundary, before, after);
        if let Some(after) = after {
            self.before.set(after, before);
        }
    }

    fn join(&mut self, boundary: u32, before: Option<GapId>, next: Option<GapId>) {
        match before {
            None => self.first.set(boundary, next),
            Some(before) => self.after.set(before, next),
        }
    }
}
