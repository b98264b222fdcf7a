//! A lower bound on the most bytes alive at once in a trace to which swaps are added. It holds for each such trace,
//! called a schedule, that takes longer than the original by at most a given time, the overhead.
//!
//! It is a relaxation: blocks move in parts and without latency, and each row of the trace is looked at on its own. At
//! the time of a row, the link out, from the device to the host, can have moved only as many bytes as its bandwidth
//! allows since they were written. The link in must bring them back before they are read. So each block that is away
//! has a window of time on each link. On the link out the windows of all blocks end together, on the link in they begin
//! together. Taking the block with the shortest window first gives the most bytes that the link can move.
//!
//! Blocks of any size may move while they are idle: between two accesses by different operators. A block that is never
//! freed also has an idle time that crosses the end of the iteration: from its last use to its first in the next
//! iteration. One copy out serves all idle times until the next write. A block that is read before it is written may be
//! on the host from the start; if the iteration writes it later, it was copied out in the iteration before. In an idle
//! time that ends in a write nothing is copied: the block takes no memory there. Blocks that are freed are alive before
//! their first access and after their last, as in the original.
//!
//! A part of the overhead is spent before the row and the rest after it; the bound takes the best division. The part
//! before the row makes the windows on the link out longer, the part after it those on the link in. A window across the
//! end of the iteration gets longer by the whole overhead.
//!
//! Rows are looked at in the order of falling load, until the load is not above the bound that was found. Cost: O(rows
//! · idle times) at worst, in practice over few rows; linear workspace.

use core::ops::Range;

use super::ids::BlockId;
use super::program::Program;
use crate::id::{Id, ids};
use crate::simulate::Device;
use crate::table::{Table, at, count, record};
use crate::trace::{Event, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace that [`least_load`] needs for a trace of `rows` rows with `blocks` block numbers.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks)
        .and(IdleBlocks::workspace(rows, blocks))
        .and(Loads::workspace(rows, blocks))
        .and(Away::workspace(rows + blocks))
}

/// A lower bound on the max load, in bytes, that swaps can reach. It holds for every trace with swaps added that takes
/// at most `overhead_ns` longer than the trace `rows`.
///
/// # Errors
/// [`Error::BufferTooSmall`] if the workspace is too short; [`Error::Row`] for an invalid row, such as a copy or a
/// recomputation; [`Error::TooManyBlocks`]; [`Error::Device`] if a bandwidth or a latency of the device is wrong.
///
/// ```
/// use sublet_core::rewrite;
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::{Event, Op, Row};
/// use sublet_core::Workspace;
/// let row = |time_ns, event, block, bytes, op| Row { time_ns, event, block, bytes, op };
/// let rows = [
///     row(0, Event::Malloc, 0, 8_000, Op::First(0)),
///     row(1_000, Event::Write, 0, 0, Op::First(0)),
///     row(1_500, Event::Malloc, 1, 8_000, Op::First(1)),
///     row(1_500, Event::Write, 1, 0, Op::First(1)),
///     row(1_500, Event::Free, 1, 0, Op::First(1)),
///     row(9_000, Event::Read, 0, 0, Op::First(2)),
///     row(9_000, Event::Free, 0, 0, Op::First(2)),
/// ];
/// let len = rewrite::least_load_workspace(rows.len(), 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let device = Device::symmetric(12e9);
/// let mut least = |overhead_ns| {
///     rewrite::least_load(&rows, 2, &device, overhead_ns, Workspace::new(&mut words, &mut indices))
/// };
/// // 500 ns pass until the second block is allocated: 6,000 bytes of the first can have left by then.
/// // In 100 ns more, another 1,200 bytes can.
/// assert_eq!((least(0)?, least(100)?), (10_000, 8_800));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_load(
    rows: &[Row],
    block_count: usize,
    device: &Device,
    overhead_ns: u64,
    mut scratch: Workspace<'_>,
) -> Result<u64, Error> {
    if !device.is_sound() {
        return Err(Error::Device);
    }
    block::check_count(block_count)?;
    scratch.check(workspace(rows.len(), block_count))?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, block_count, &mut scratch)?;
    let mut idle = IdleBlocks::lend(rows.len(), block_count, &mut scratch);
    idle.find(&program, Some);
    let mut loads = Loads::lend(rows.len(), block_count, &mut scratch);
    loads.find(&program, &idle);
    let mut away = Away::lend(rows.len() + block_count, &mut scratch);
    let (mut bound, overhead) = (0.0f64, bytes(overhead_ns));
    for &row in loads.by_load.first(count(rows)) {
        let load = bytes(loads.load[row]);
        if load <= bound {
            break;
        }
        away.find_at(row, &program, &idle);
        bound = bound.max(load - best_division(overhead, None, |delay| away.copied(device, delay)));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bound in bytes")]
    let bound = bound as u64;
    // Above 2⁵³ bytes a load may have been rounded up.
    Ok(loads.by_load.first(count(rows)).first().map_or(0, |&row| bound.min(loads.load[row])))
}

ids! {
    pub(super) struct IdleId;

    pub(super) struct AwayId;
}

record! {
    /// From row `begin` to row `end`; `end` is not above `begin` if it crosses the end of the iteration.
    pub(super) struct Idle {
        pub(super) block: BlockId,
        pub(super) begin: u32,
        pub(super) end: u32,
        pub(super) from: u32,
        pub(super) to: u32,
        /// None if this iteration has not written the block before.
        pub(super) writer: Option<u32>,
        /// If the value is from the previous iteration: the operator that wrote it there.
        pub(super) writer_before: Option<u32>,
    }
}

impl Idle {
    pub(super) fn crosses_end(&self) -> bool {
        self.end <= self.begin
    }

    pub(super) fn has_value(&self, program: &Program<'_>) -> bool {
        program.is_persistent(self.block) || self.writer.is_some() && !self.crosses_end()
    }

    pub(super) fn is_read(&self, program: &Program<'_>) -> bool {
        at(program.rows, self.end).event == Event::Read
    }
}

record! {
    struct Seen {
        first: Option<u32>,
        first_operator: u32,
        last: Option<u32>,
        last_operator: u32,
        writer: Option<u32>,
        freed: bool,
    }
}

workspace! {
    pub(super) struct IdleBlocks<'a>(rows, blocks) {
        tables {
            /// Sorted by the operator that wrote the value, highest first; those without one come last.
            by_writer: u32[rows + blocks],
            by_end: u32[rows + blocks],
            aside: u32[rows + blocks],
        }
        records {
            seen[BlockId]: Seen[blocks],
        }
        lists {
            pub(super) list: Idle[rows + blocks],
        }
    }
}

impl IdleBlocks<'_> {
    pub(super) fn numbered(&self) -> impl Iterator<Item = (IdleId, Idle)> + '_ {
        IdleId::each(0..self.list.len()).zip(self.list.iter())
    }

    /// `count` may change or leave out each; its `writer_before` is none then, and is found later.
    pub(super) fn find(&mut self, program: &Program<'_>, mut count: impl FnMut(Idle) -> Option<Idle>) {
        for o in 0..program.operators {
            for (row, r) in (program.first_row[o]..).zip(program.rows_of(o)).filter(|(_, r)| r.event != Event::Malloc) {
                let block = r.block_id();
                let seen = self.seen.get(block);
                if r.event == Event::Free {
                    self.seen.set(block, Seen { freed: true, ..seen });
                    continue;
                }
                if seen.last_operator != o {
                    self.add(&seen, block, (row, o), &mut count);
                }
                let (first, first_operator) = seen.first.map_or((row, o), |first| (first, seen.first_operator));
                let writer = if r.event == Event::Write { Some(o) } else { seen.writer };
                let (first, last) = (Some(first), Some(row));
                self.seen.set(block, Seen { first, first_operator, last, last_operator: o, writer, ..seen });
            }
        }
        for block in program.blocks() {
            let seen = self.seen.get(block);
            if let Some(first) = seen.first.filter(|_| !seen.freed) {
                self.add(&seen, block, (first, seen.first_operator), &mut count);
            }
        }
        let Self { list, seen, by_writer, by_end, aside, .. } = self;
        list.change(|idle| Idle {
            writer_before: seen.get(idle.block).writer.filter(|_| idle.writer.is_none()),
            ..idle
        });
        let idle = |k: u32| list.at(k);
        sort::identity(by_writer, list.len());
        sort::by_key(by_writer, list.len(), aside, |k| {
            let writer = idle(k).and_then(|idle| idle.writer.or(idle.writer_before));
            writer.map_or(u64::MAX, |writer| u64::from(!writer))
        });
        sort::identity(by_end, list.len());
        sort::by_key(by_end, list.len(), aside, |k| idle(k).map_or(0, |idle| idle.end.into()));
    }

    fn add(&mut self, seen: &Seen, block: BlockId, (end, to): (u32, u32), count: impl FnOnce(Idle) -> Option<Idle>) {
        let Some(begin) = seen.last else { return };
        let idle = Idle { block, begin, end, from: seen.last_operator, to, writer: seen.writer, writer_before: None };
        if let Some(idle) = count(idle) {
            self.list.push(idle);
        }
    }
}

workspace! {
    struct Loads<'a>(rows, blocks) {
        tables {
            /// A block does not count while it is idle if its next access is a write.
            load: u64[rows],
            by_load: u32[rows],
            aside: u32[rows],
            allocated[BlockId]: u32[blocks],
        }
    }
}

impl Loads<'_> {
    fn find(&mut self, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        let mut present = 0u64;
        for (row, r) in (0..).zip(program.rows) {
            match r.event {
                Event::Malloc => {
                    self.allocated[r.block_id()] = row;
                    present = present.saturating_add(r.bytes);
                }
                Event::Free => present = present.saturating_sub(program.size[r.block_id()]),
                _ => {}
            }
            self.load[row] = present;
        }
        let rows = count(program.rows);
        for idle in idle.list.iter().filter(|idle| !idle.is_read(program)) {
            let size = program.size[idle.block];
            if idle.crosses_end() {
                self.leave_out(self.allocated[idle.block]..idle.end, size);
                self.leave_out(idle.begin + 1..rows, size);
            } else {
                self.leave_out(idle.begin + 1..idle.end, size);
            }
        }
        sort::identity(&mut self.by_load, rows);
        sort::by_key(&mut self.by_load, rows, &mut self.aside, |row| !self.load[row]);
    }

    fn leave_out(&mut self, rows: Range<u32>, size: u64) {
        for row in rows {
            self.load[row] = self.load[row].saturating_sub(size);
        }
    }
}

workspace! {
    pub(super) struct Away<'a>(most) {
        tables {
            pub(super) size[AwayId]: u64[most],
            /// The time for the copy out, in ns; `u64::MAX` if the host has the value from the start.
            since[AwayId]: u64[most],
            /// The time for the copy in, in ns.
            until[AwayId]: u64[most],
            by_since: u32[most],
            by_until: u32[most],
        }
        records {
            /// The value is older than this iteration, so a copy out may begin before it.
            earlier[AwayId]: bool[most],
            later[AwayId]: bool[most],
            pub(super) index[IdleId]: Option<AwayId>[most],
        }
        state {
            pub(super) len: u32 = 0,
        }
    }
}

impl Away<'_> {
    fn find_at(&mut self, row: u32, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        let time = at(program.rows, row).time_ns;
        self.clear();
        for (k, idle) in idle.numbered().filter(|(_, idle)| idle.is_read(program)) {
            let sides = (row > idle.begin && time >= program.time[idle.from + 1], row < idle.end);
            self.add(program, (k, &idle), sides, [time, time, at(program.rows, idle.end).time_ns]);
        }
        self.sort(idle);
    }

    pub(super) fn find_in(&mut self, operator: u32, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        self.clear();
        let (start, finish) = (program.access_time[operator], program.time[operator + 1]);
        for (k, idle) in idle.numbered() {
            let times = [start, finish, program.access_time[idle.to]];
            self.add(program, (k, &idle), (operator > idle.from, operator < idle.to), times);
        }
        self.sort(idle);
    }

    fn clear(&mut self) {
        self.len = 0;
        self.index.fill(None);
    }

    /// A copy out ends by `start`; a copy in lies between `finish` and `deadline`, in ns of their iterations.
    fn add(
        &mut self,
        program: &Program<'_>,
        (k, idle): (IdleId, &Idle),
        (after, before): (bool, bool),
        [start, finish, deadline]: [u64; 3],
    ) {
        let crosses_end = idle.crosses_end();
        let is_idle = if crosses_end { after || before } else { after && before };
        if !is_idle {
            return;
        }
        // The value may have been made in the iteration before. Across the end, it is used in the next.
        let (earlier, later) = (!after || idle.writer.is_none(), crosses_end && after);
        let period = |crosses: bool| if crosses { program.end_time } else { 0 };
        let (start, deadline) = (start.saturating_add(period(earlier)), deadline.saturating_add(period(later)));
        let block = AwayId::of(self.len);
        self.size[block] = program.size[idle.block];
        let writer = idle.writer.or(idle.writer_before);
        self.since[block] = writer.map_or(u64::MAX, |writer| start.saturating_sub(program.time[writer + 1]));
        self.until[block] = deadline.saturating_sub(finish);
        self.earlier.set(block, earlier);
        self.later.set(block, later);
        self.index.set(k, Some(block));
        self.len += 1;
    }

    /// Both orders come from `idle`, which takes all as one iteration; so some blocks are moved to the end.
    fn sort(&mut self, idle: &IdleBlocks<'_>) {
        let Self { by_since, by_until, earlier, later, index, len, .. } = self;
        for (order, ranked, other) in [(by_since, &idle.by_writer, earlier), (by_until, &idle.by_end, later)] {
            let (mut n, mut end) = (0, *len);
            for block in ranked.first(idle.list.len()).iter().filter_map(|&k| index.get(IdleId::of(k))) {
                if other.get(block) {
                    end -= 1;
                    order[end] = block.number();
                } else {
                    order[n] = block.number();
                    n += 1;
                }
            }
            order.range_mut(end, *len).reverse();
        }
    }

    /// The least delay with which a link could move all of the block, if nothing else were copied.
    pub(super) fn least_delay(&self, device: &Device, k: AwayId) -> f64 {
        let late = |bandwidth: f64, window: u64| (bytes(self.size[k]) / bandwidth * 1e9 - bytes(window)).max(0.0);
        let (out, back) = (late(device.out_bandwidth, self.since[k]), late(device.in_bandwidth, self.until[k]));
        if self.earlier.get(k) || self.later.get(k) { out.max(back) } else { out + back }
    }

    pub(super) fn copied(&self, device: &Device, delay: Delay) -> f64 {
        self.copied_of(device, delay, |_| true)
    }

    pub(super) fn copied_of(&self, device: &Device, delay: Delay, counts: impl Fn(AwayId) -> bool) -> f64 {
        // The bytes of these blocks that a link moves, if each has `window` ns.
        let moved = |order: &Table<'_, u32>, bandwidth: f64, window: &dyn Fn(AwayId) -> f64| {
            let blocks = order.first(self.len).iter().map(|&k| AwayId::of(k)).filter(|&k| counts(k));
            blocks.fold(0.0, |moved: f64, k| (moved + bytes(self.size[k])).min(window(k) * bandwidth / 1e9))
        };
        let out = moved(&self.by_since, device.out_bandwidth, &|k| {
            let since = if self.since[k] == u64::MAX { f64::INFINITY } else { bytes(self.since[k]) };
            since + if self.earlier.get(k) { delay.whole } else { delay.before }
        });
        let back = moved(&self.by_until, device.in_bandwidth, &|k| {
            bytes(self.until[k]) + if self.later.get(k) { delay.whole } else { delay.after }
        });
        out.min(back)
    }
}

/// In ns. In [`least_load`] a row takes the place of the operator.
#[derive(Clone, Copy)]
pub(super) struct Delay {
    pub(super) before: f64,
    pub(super) after: f64,
    pub(super) whole: f64,
}

/// Each step cuts off a third of the interval with the best division.
const DIVISIONS: u32 = 48;

/// `elsewhere` must be concave and not fall as either time grows. A result below `enough` proves only that.
pub(super) fn best_division(whole: f64, enough: Option<f64>, elsewhere: impl Fn(Delay) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, whole);
    // The bytes if `high` is added before the operator, and all of `whole` but `low` after it. For every division
    // between `low` and `high` both times are at most as long, so that it gives no more bytes.
    let within = |low: f64, high: f64| elsewhere(Delay { before: high, after: whole - low, whole });
    for _ in 0..DIVISIONS {
        let third = (high - low) / 3.0;
        let [lower, upper] = [low + third, high - third];
        let [at_lower, at_upper] = [lower, upper].map(|before| within(before, before));
        if let Some(enough) = enough {
            let (most, reached) = (within(low, high), at_lower.max(at_upper));
            if most < enough || reached >= enough {
                return reached;
            }
        }
        if at_lower < at_upper { low = lower } else { high = upper }
    }
    within(low, high)
}

#[expect(clippy::cast_precision_loss, reason = "a bound is made a little lower in the end")]
pub(super) const fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    const fn row(time_ns: u64, event: Event, block: u32, op: u32) -> Row {
        Row { time_ns, bytes: if matches!(event, Event::Malloc) { 8000 } else { 0 }, block, op: Op::First(op), event }
    }

    fn bound(rows: &[Row]) -> u64 {
        let len = workspace(rows.len(), 2);
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        // 12 bytes per ns.
        let device = Device::symmetric(12e9);
        least_load(rows, 2, &device, 0, Workspace::new(&mut words, &mut indices)).unwrap()
    }

    #[test]
    fn what_is_written_over_need_not_be_copied() {
        let rows = |event| {
            [
                row(0, Event::Malloc, 0, 0),
                row(1000, Event::Write, 0, 0),
                row(1000, Event::Malloc, 1, 1),
                row(2000, Event::Write, 1, 1),
                row(2000, Event::Free, 1, 1),
                row(2000, event, 0, 2),
                row(2000, Event::Free, 0, 2),
            ]
        };
        assert_eq!(bound(&rows(Event::Read)), 16_000);
        assert_eq!(bound(&rows(Event::Write)), 8000);
    }

    #[test]
    fn it_is_never_above_the_load() {
        for bytes in [(1 << 53) - 1, (1 << 53) + 3, u64::MAX - 1] {
            let rows = [Row { bytes, ..row(0, Event::Malloc, 0, 0) }];
            assert!(bound(&rows) <= bytes && bound(&rows) >= bytes - (bytes >> 52), "{bytes}");
        }
    }

    #[test]
    fn a_device_without_times_is_refused() {
        let device = Device { out_bandwidth: -1.0, ..Device::symmetric(12e9) };
        let refused = least_load(&[], 0, &device, 0, Workspace::new(&mut [], &mut []));
        assert_eq!(refused, Err(Error::Device));
    }

    #[test]
    fn one_copy_out_serves_all_gaps_of_a_value() {
        let rows = |event| {
            [
                row(0, Event::Malloc, 0, 0),
                row(1000, Event::Write, 0, 0),
                row(3000, Event::Read, 0, 1),
                row(3000, event, 0, 1),
                row(3100, Event::Malloc, 1, 2),
                row(3100, Event::Write, 1, 2),
                row(3100, Event::Free, 1, 2),
                row(9000, Event::Read, 0, 3),
                row(9000, Event::Free, 0, 3),
            ]
        };
        assert_eq!(bound(&rows(Event::Read)), 8000);
        // The value can be copied to the host before its read at 3000, so that the block can leave right after this
        // read.
        let mut at_once = rows(Event::Read);
        for r in &mut at_once[4..7] {
            r.time_ns = 3000;
        }
        assert_eq!(bound(&at_once), 8000);
        // Where the block is written once more before, there are 100 ns for its copy out.
        assert_eq!(bound(&rows(Event::Write)), 16_000 - 1200);
    }
}
