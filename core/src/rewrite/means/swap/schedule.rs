//! A swap schedule: the positions of all gaps, and the time that follows from them. A gap, or idle time, is a time in
//! which no operator accesses a block; it is *in use* if the block is off the device in it.
//!
//! The positions of a gap are two boundaries between operators: its block's memory is freed at *give* and allocated
//! again at *take*. Boundary o lies before operator o. If give and take are equal, the gap is not in use. Each boundary
//! has two lists of gaps in use, sorted by the numbers of the gaps: list 0 has those whose blocks are freed there, list
//! 1 those whose blocks are allocated again there. A block that is on the host when the iteration begins is not freed
//! then: its gap is not in list 0. One that is there when it ends is not allocated again: its gap is not in list 1. The
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

mod pass;

use super::agenda::Agenda;
use super::load::Load;
use super::queue::Queue;
use crate::heap::Heap;
use crate::id::Id;
use crate::rewrite::gaps::{Gap, GapId, GapKind, Gaps, NONE, VersionId};
use crate::rewrite::ids::BlockId;
use crate::rewrite::members::Members;
use crate::simulate::Device;
use crate::table::{Field, Table, record};
use crate::trace::Event;
use crate::workspace::workspace;

/// One thing that happens in the simulation of a swap schedule. The simulation reports actions in the order in which
/// their rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rewrite) enum Action {
    /// Operators run: from the first number up to the second, which is left out.
    Operators(u32, u32),
    /// A value of a block is copied to the host.
    Out(VersionId),
    /// A block's memory is freed for an idle time of the block.
    Free(GapId),
    /// A block's memory is allocated again after an idle time, and the block is copied in if it has to be.
    In(GapId),
}

workspace! {
    /// A schedule of swaps: for each idle time of a block, the two boundaries between operators at which the block is
    /// freed and allocated again. Also the bytes alive while each operator runs, which follow from this.
    pub(in crate::rewrite) struct Schedule<'a>(rows, blocks; gaps: &'a Gaps<'a>, device: &Device) then begin {
        tables {
            /// For each gap: the boundary at which its block's memory is freed (give), and the boundary at which the
            /// memory is allocated again (take). Equal if the gap is not in use.
            positions[GapId]: [u32; 2][rows + blocks],
            /// For each boundary: the first gap in each of two lists, which are sorted by the numbers of the gaps. List
            /// 0 has the gaps whose blocks are freed there, list 1 those whose blocks are allocated again there. An
            /// entry is 1 + the number of the gap; 0 if the list is empty.
            first: [u32; 2][rows + 2],
            /// For each gap: the gap before it in each of two lists: of the gaps whose blocks are freed at the same
            /// boundary (list 0), and of those whose blocks are allocated again at the same boundary (list 1). An entry
            /// is 1 + the number of the gap before; 0 if there is none.
            before[GapId]: [u32; 2][rows + blocks],
            /// For each gap: the gap after it in each of two lists: of the gaps whose blocks are freed at the same
            /// boundary (list 0), and of those whose blocks are allocated again at the same boundary (list 1). An entry
            /// is 1 + the number of the gap after; 0 if there is none.
            after[GapId]: [u32; 2][rows + blocks],
            /// For each value that a block holds: the boundary between operators at which its copy to the host is due;
            /// [`NONE`] if it needs no copy.
            due[VersionId]: u32[rows + blocks],
            /// For each operator: the bytes held back below the limit while it runs.
            headroom: u64[rows + 2],
            /// For each operator: the most bytes by which a placement of the blocks exceeded the limit while the
            /// operator ran, since the headroom was last raised.
            excess: u64[rows + 2],
            /// For each block: how many gaps in use need memory on the host for it. These are all its gaps in use but
            /// those that begin after an access and end with a write ([`GapKind::Dead`]): there the old value is not
            /// needed any more.
            on_host[BlockId]: u32[blocks],
        }
        records {
            /// How long the copy of each block to the host takes, in ns.
            out_ns[BlockId]: f64[blocks],
            /// How long the copy of each block back to the device takes, in ns.
            in_ns[BlockId]: f64[blocks],
            /// For each value that a block holds: whether the host has to have the value at the end of the iteration.
            /// This is so for the last value written to a persistent block that is on the host when an iteration
            /// begins.
            owed[VersionId]: bool[rows + blocks],
            /// For each value that a block holds: when its copy to the host is done, in ns; 0 before the link gets the
            /// copy.
            copied[VersionId]: f64[rows + blocks],
            /// For each operator: the time in ns at which all copies back to the device that it needs are done; 0 if it
            /// needs none.
            arrival: f64[rows + 2],
            /// For each boundary between operators: when compute reached it in the latest simulation of the schedule,
            /// in ns; known only where the simulation stopped.
            clock: f64[rows + 2],
            /// For each operator: when it could have begun its first access in the latest simulation of the schedule,
            /// in ns, if it had not waited for copies back to the device. Known only where the simulation stopped.
            ready: f64[rows + 2],
        }
        lists {
            /// The values that were copied out in the latest simulation of the schedule, in the order of the copies.
            sent: VersionId[rows + blocks],
            /// The boundaries between operators at which the latest simulation of the schedule stopped, ascending.
            stops: u32[rows + 2],
            /// The idle times whose blocks were copied back in by the latest simulation of the schedule, in the order
            /// of the copies.
            returned: GapId[rows + blocks],
            /// The operators for which compute had to wait in the latest simulation of the schedule, ascending.
            stalls: u32[rows + 2],
        }
        parts {
            /// The idle times in which a block is off the device for some of the time.
            used[GapId]: Members(rows + blocks),
            /// The boundaries between operators at which the simulation of the schedule has something to do: a block is
            /// freed for a gap, allocated again, or used at the gap's end, or a value becomes ready to be copied out.
            agenda: Agenda(rows + 2),
            /// For each operator, in bytes: its load plus its headroom below the limit.
            load: Load(rows + 2; gaps.program.operators),
            /// The values of blocks that wait to be copied to the host, the one that is due at the earliest boundary
            /// first.
            waiting_out[VersionId]: Heap(rows + blocks),
            /// The idle times whose blocks wait to be copied back to the device, the one whose block is read by the
            /// earliest operator first. Idle times are numbered in the order of their ends, so this is the one with the
            /// least number.
            waiting_in[GapId]: Queue(rows + blocks),
        }
        state {
            gaps: &'a Gaps<'a> = gaps,
            device: Device = *device,
            /// The host memory that the schedule needs: the bytes of all blocks whose entry in `on_host` is not 0.
            host_bytes: u64 = 0,
        }
    }
}

record! {
    /// An idle time of a block, and the boundaries between operators at which the block is freed (give) and allocated
    /// again (take).
    pub(in crate::rewrite) struct Position {
        pub(in crate::rewrite) gap: GapId,
        pub(in crate::rewrite) give: u32,
        pub(in crate::rewrite) take: u32,
    }
}

workspace! {
    /// A saved schedule of swaps: the boundaries between operators at which blocks that leave the device in an idle
    /// time are freed and allocated again.
    pub(in crate::rewrite) struct Positions<'a>(rows, blocks) {
        lists {
            gaps: Position[rows + blocks],
        }
    }
}

impl Positions<'_> {
    /// Saves a schedule: in which idle times blocks leave the device, and at which boundaries between operators they
    /// are freed and allocated again.
    pub(in crate::rewrite) fn keep(&mut self, schedule: &Schedule<'_>) {
        self.gaps.clear();
        for gap in schedule.used().iter() {
            let [give, take] = schedule.at(gap);
            self.gaps.push(Position { gap, give, take });
        }
    }

    /// Restores the saved schedule: the idle times in which blocks leave the device, and the boundaries between
    /// operators at which they are freed and allocated again.
    pub(in crate::rewrite) fn restore(&self, schedule: &mut Schedule<'_>) {
        schedule.clear();
        for Position { gap, give, take } in self.gaps.iter() {
            schedule.set(gap, [give, take]);
        }
    }
}

impl<'a> Schedule<'a> {
    /// Finds the bytes alive while each operator runs if no block is freed in an idle time. Also finds how long the
    /// copies of each block to the host and back take.
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

    /// How long the copy of a block to the host takes, and how long the copy back to the device, in ns.
    #[inline]
    pub(in crate::rewrite) fn copy_ns(&self, block: BlockId) -> (f64, f64) {
        (self.out_ns.get(block), self.in_ns.get(block))
    }

    /// The boundaries between operators at which a block is freed in an idle time and allocated again; equal if it
    /// stays on the device.
    #[inline]
    pub(in crate::rewrite) fn at(&self, gap: GapId) -> [u32; 2] {
        self.positions[gap]
    }

    /// The idle times of blocks that contain `operator` and whose blocks are on the device while it runs. Of all idle
    /// times, only the `n` with the numbers from `first` on are looked at. `n` is at most 64, and all `n` must end
    /// after the operator.
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

    /// The idle times in which a block is off the device for some of the time, in no particular order.
    #[inline]
    pub(in crate::rewrite) fn used(&self) -> &Members<'a, GapId> {
        &self.used
    }

    /// The operators for which compute had to wait in the latest simulation of the schedule, ascending.
    pub(in crate::rewrite) fn stalls(&self) -> &[u32] {
        self.stalls.as_slice()
    }

    /// The load of an operator plus its headroom below the limit, in bytes.
    #[inline]
    pub(in crate::rewrite) fn load(&self, operator: u32) -> u64 {
        self.load.get(operator)
    }

    /// The first operator in `from..to` whose load plus headroom is more than `most` bytes; `to` if there is none.
    pub(in crate::rewrite) fn first_above(&self, most: u64, from: u32, to: u32) -> u32 {
        self.load.first_above(most, from, to)
    }

    /// 1 + the last operator in `from..to` whose load plus headroom is more than `most` bytes; `from` if there is none.
    pub(in crate::rewrite) fn after_last_above(&self, most: u64, from: u32, to: u32) -> u32 {
        self.load.after_last_above(most, from, to)
    }

    /// Sets the headroom below the limit to 0 for every operator.
    pub(in crate::rewrite) fn clear_headroom(&mut self) {
        self.load.change(|operator, load| load.wrapping_sub(self.headroom[operator]));
        self.headroom.fill(0);
        self.excess.fill(0);
    }

    /// Copies the headroom below the limit of each operator to a table.
    pub(in crate::rewrite) fn copy_headroom(&self, to: &mut Table<'_, u64>) {
        to.copy_from(&self.headroom);
    }

    /// Sets the headroom below the limit of each operator from a table.
    pub(in crate::rewrite) fn set_headroom(&mut self, headroom: &Table<'_, u64>) {
        self.clear_headroom();
        self.load.change(|operator, load| {
            self.headroom[operator] = load.saturating_add(headroom[operator]) - load;
            load + self.headroom[operator]
        });
    }

    /// Notes that a placement of the blocks for the rows written last exceeds its limit by `excess` bytes in the rows
    /// `from..to`. Of all that is noted for an operator, the highest excess is kept. `begin` has the first row of each
    /// operator.
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

    /// Raises the headroom of each operator in which a placement of the blocks exceeded its limit, as
    /// [`exceed`](Self::exceed) noted. It rises by `part / whole` of the excess, and at least by `least` bytes. Then
    /// forgets the excesses.
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

    /// Lowers the headroom of each operator, the bytes held back below the limit, by a quarter of itself, rounded up to
    /// a whole byte.
    pub(in crate::rewrite) fn lower_headroom(&mut self) {
        self.load.change(|operator, load| {
            let less = self.headroom[operator].div_ceil(4);
            self.headroom[operator] -= less;
            load.wrapping_sub(less)
        });
    }

    /// Whether an idle time in which the block stays on the device may be used to free it; false if it is in use
    /// already. The host has to have memory for the block already, or room for it, unless this is [`GapKind::Dead`].
    /// For the idle time after a persistent block's last access (tail), the block also has to be on the host when the
    /// iteration begins.
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

    /// The highest sum of load and headroom of an operator, in bytes, and the first operator that has it.
    pub(in crate::rewrite) fn peak(&self) -> (u64, u32) {
        self.load.peak()
    }

    /// Takes all gaps out of use: every block stays on the device also while no operator accesses it.
    pub(in crate::rewrite) fn clear(&mut self) {
        while let Some(gap) = self.used.last() {
            self.set(gap, [0, 0]);
        }
    }

    /// Whether a block is on the host when the iteration begins because of this idle time: it lies before a persistent
    /// block's first access (is a head), and is in use from the start.
    #[inline]
    pub(in crate::rewrite) fn is_away_at_start(&self, gap: GapId, g: &Gap) -> bool {
        g.kind.is_head() && self.is_used(gap) && self.at(gap)[0] == 0
    }

    /// The boundaries between operators, nearest to the given ones, at which a block may be freed in an idle time
    /// (give) and allocated again (take). After a persistent block's last access (tail), take is always the end of the
    /// iteration. Both are 0 if give would not be below take.
    #[inline]
    pub(in crate::rewrite) fn clamp(&self, gap: GapId, [give, take]: [u32; 2]) -> [u32; 2] {
        let g = self.gaps.gap(gap);
        let give = give.max(g.begin);
        let take = if g.kind == GapKind::Tail { g.end } else { take.min(g.end) };
        if give < take { [give, take] } else { [0, 0] }
    }

    /// Sets the boundaries between operators at which a block is freed in an idle time (give) and allocated again
    /// (take). They must lie within the idle time, or both be 0. If they are equal, the block stays on the device.
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
        for (list, old, new) in [(0, old_give, give), (1, old_take, take)] {
            // A block that is on the host when the iteration begins is not freed. A block that is on the host when it
            // ends is not allocated again.
            let outside = |boundary: u32| if list == 0 { boundary == 0 } else { g.kind == GapKind::Tail };
            if was_used && is_used && old == new {
                continue;
            }
            if was_used && !outside(old) {
                self.unlink(list, old, gap);
            }
            if is_used && !outside(new) {
                self.link(list, new, gap);
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

    /// Whether the host has a value of a block from the start of the iteration on, so that it is never copied out.
    #[inline]
    pub(in crate::rewrite) fn is_clean(&self, version: VersionId) -> bool {
        let last = self.gaps.version(version).last;
        last.is_some_and(|last| last == version || self.owed.get(last))
    }

    /// Finds anew when the copy of a block's value to the host is due. To be called after idle times in which the block
    /// holds this value have changed, or whether the host has to have the value at the end.
    /// - If the host has the value from the start, it needs no copy ([`NONE`]).
    /// - If the block is freed in an idle time after which this value is read (perhaps in the next iteration), the copy
    ///   is due at the first such free.
    /// - Else it is due at the end of the iteration if the host has to have the value then. If not, there is no copy.
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

    /// Adds an idle time to a list of a boundary between operators. List 0 has the idle times whose block is freed at
    /// the boundary, list 1 those whose block is allocated again there. Each list is sorted by the numbers of the idle
    /// times. So the rows that are written depend on where blocks are freed and allocated again, and not on the order
    /// in which this was decided.
    fn link(&mut self, list: usize, boundary: u32, gap: GapId) {
        // Only 0 and 1 can be meant; the mask shows the compiler that no index is out of range.
        let list = list & 1;
        self.agenda.add(boundary);
        let (mut before, mut next) = (None, self.first(list, boundary));
        while let Some(other) = next.filter(|&other| other < gap) {
            (before, next) = (next, self.after(list, other));
        }
        self.before[gap][list] = before.keep();
        self.after[gap][list] = next.keep();
        self.join(list, boundary, before, Some(gap));
        if let Some(next) = next {
            self.before[next][list] = Some(gap).keep();
        }
    }

    /// Removes an idle time from a list of a boundary between operators. List 0 has the idle times whose block is freed
    /// at the boundary, list 1 those whose block is allocated again there.
    fn unlink(&mut self, list: usize, boundary: u32, gap: GapId) {
        let list = list & 1;
        self.agenda.remove(boundary);
        let (before, after) = (Option::kept(self.before[gap][list]), self.after(list, gap));
        self.join(list, boundary, before, after);
        if let Some(after) = after {
            self.before[after][list] = before.keep();
        }
    }

    /// Makes `next` follow `before` in one of the lists of a boundary. List 0 has the idle times whose blocks are freed
    /// there, list 1 those whose blocks are allocated again there. If `before` is none, `next` becomes the first of the
    /// list. If `next` is none, the list ends after `before`.
    fn join(&mut self, list: usize, boundary: u32, before: Option<GapId>, next: Option<GapId>) {
        let place = before.map_or(&mut self.first[boundary], |before| &mut self.after[before]);
        place[list & 1] = next.keep();
    }

    /// The first idle time whose block is freed (list 0) or allocated again (list 1) at a boundary between operators;
    /// none if there is none.
    fn first(&self, list: usize, boundary: u32) -> Option<GapId> {
        Field::kept(self.first[boundary][list & 1])
    }

    /// The idle time that comes after `gap` in a list; none if `gap` is the last. List 0 has the idle times whose block
    /// is freed at the same boundary as the block of `gap`; list 1 has those whose block is allocated again at the same
    /// boundary.
    fn after(&self, list: usize, gap: GapId) -> Option<GapId> {
        Field::kept(self.after[gap][list & 1])
    }
}
