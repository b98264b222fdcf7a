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
/// use sublet_core::rewrite::lower_bound;
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
/// let len = lower_bound::workspace(rows.len(), 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let device = Device::symmetric(12e9);
/// let mut least = |overhead_ns| {
///     lower_bound::least_load(&rows, 2, &device, overhead_ns, Workspace::new(&mut words, &mut indices))
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
    /// The index of an idle time of a block in the list of all idle times.
    pub(super) struct IdleId;

    /// The index of a block in the list of the blocks that may be on the host at a given time ([`Away`]).
    pub(super) struct AwayId;
}

record! {
    /// An idle time of a block: between two accesses by different operators, or from the last access in an iteration to
    /// the first in the next. `begin` and `end` are the rows of the two accesses in the trace. In the second case `end`
    /// is not above `begin`, since the rows of the next iteration have the same numbers again.
    pub(super) struct Idle {
        pub(super) block: BlockId,
        /// The row of the trace with the block's last access before the idle time.
        pub(super) begin: u32,
        /// The row of the trace with the access that ends the idle time.
        pub(super) end: u32,
        /// The operator that makes the block's last access before the idle time.
        pub(super) from: u32,
        /// The operator whose access ends the idle time.
        pub(super) to: u32,
        /// The operator that wrote the value which the block holds in the idle time; none if the iteration has not
        /// written the block before the idle time begins.
        pub(super) writer: Option<u32>,
        /// If the value that the block holds in the idle time is from the previous iteration: the operator that wrote
        /// it there. In each iteration this is the last operator that writes the block. None if this iteration has
        /// written the block before the idle time begins, or if no operator ever writes it.
        pub(super) writer_before: Option<u32>,
    }
}

impl Idle {
    pub(super) fn crosses_end(&self) -> bool {
        self.end <= self.begin
    }

    /// Whether the block holds a value in the idle time, which would be lost if the block's memory were given away. A
    /// persistent block, such as a weight, always does. Another block does from its first write to its last access.
    pub(super) fn has_value(&self, program: &Program<'_>) -> bool {
        program.is_persistent(self.block) || self.writer.is_some() && !self.crosses_end()
    }

    /// Whether the block's value is read at the end of the idle time, so that it has to be kept.
    pub(super) fn is_read(&self, program: &Program<'_>) -> bool {
        at(program.rows, self.end).event == Event::Read
    }
}

record! {
    /// What is known of a block from the rows read so far: its first access and its last, each as row and operator, and
    /// which operator wrote it last.
    struct Seen {
        first: Option<u32>,
        first_operator: u32,
        last: Option<u32>,
        last_operator: u32,
        /// The operator that wrote the block last; none if none has written it.
        writer: Option<u32>,
        /// Whether the block has been freed.
        freed: bool,
    }
}

workspace! {
    /// The idle times of a program's blocks: between two accesses of a block by different operators, or from its last
    /// access in an iteration to its first in the next.
    pub(super) struct IdleBlocks<'a>(rows, blocks) {
        tables {
            /// The indices in `list` of the idle times of blocks, sorted by the number of an operator, the highest
            /// first. It is the operator that wrote the value which the block holds in the idle time, in this iteration
            /// or in the one before. Idle times whose value no operator writes come last.
            by_writer: u32[rows + blocks],
            /// The indices in `list` of the idle times of blocks, sorted by the row at which they end, the earliest
            /// first.
            by_end: u32[rows + blocks],
            /// Scratch memory for sorting the indices of the idle times.
            aside: u32[rows + blocks],
        }
        records {
            /// For each block, its first and last access and its last writer in the rows read so far.
            seen[BlockId]: Seen[blocks],
        }
        lists {
            pub(super) list: Idle[rows + blocks],
        }
    }
}

impl IdleBlocks<'_> {
    /// The idle times of blocks, each with its index in the list of all.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (IdleId, Idle)> + '_ {
        IdleId::each(0..self.list.len()).zip(self.list.iter())
    }

    /// Lists the idle times of all blocks, and sorts them in two ways: by when the block's value was written, and by
    /// when they end. Each idle time is given to `count` before it is listed: `count` returns it, perhaps changed, or
    /// none to leave it out. Its `writer_before` is none at that time, and is found later.
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

    /// Adds to the list the idle time from a block's last access so far to its access in row `end` by operator `to`.
    /// `count` returns the idle time as it is to be listed, or none to leave it out. Adds nothing if the block was not
    /// accessed before.
    fn add(&mut self, seen: &Seen, block: BlockId, (end, to): (u32, u32), count: impl FnOnce(Idle) -> Option<Idle>) {
        let Some(begin) = seen.last else { return };
        let idle = Idle { block, begin, end, from: seen.last_operator, to, writer: seen.writer, writer_before: None };
        if let Some(idle) = count(idle) {
            self.list.push(idle);
        }
    }
}

workspace! {
    /// The load after each row of the trace. A block does not count while it is idle if its next access is a write, as
    /// nobody needs its old value.
    struct Loads<'a>(rows, blocks) {
        tables {
            /// The bytes alive after each row of the trace. A block does not count while it is idle if its next access
            /// is a write.
            load: u64[rows],
            /// The numbers of the rows, sorted by the load after each, the highest first.
            by_load: u32[rows],
            /// Scratch memory for sorting the rows by load.
            aside: u32[rows],
            /// The row of each block's malloc.
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

    /// Subtracts the `size` bytes of a block from the load after each of `rows`, where nobody needs the block's value.
    fn leave_out(&mut self, rows: Range<u32>, size: u64) {
        for row in rows {
            self.load[row] = self.load[row].saturating_sub(size);
        }
    }
}

workspace! {
    /// The blocks that may be on the host at a given time. For each, how long the links between device and host have to
    /// copy it out, and back in.
    pub(super) struct Away<'a>(most) {
        tables {
            /// The bytes of each block that may be on the host.
            pub(super) size[AwayId]: u64[most],
            /// For each block that may be on the host, how long the link has to copy it out, in ns: from the end of the
            /// write of its value to the time at which a copy out has to end. `u64::MAX` if the host has the value from
            /// the start.
            since[AwayId]: u64[most],
            /// For each block that may be on the host, how long the link has to copy it back in, in ns: from the time
            /// at which a copy in may begin to the time at which the block must be on the device.
            until[AwayId]: u64[most],
            /// The indices of the blocks that may be on the host, sorted by how long ago their values were written, the
            /// latest value first.
            by_since: u32[most],
            /// The indices of the blocks that may be on the host, sorted by when they must be back on the device, the
            /// earliest first.
            by_until: u32[most],
        }
        records {
            /// For each block that may be on the host, whether its value is older than this iteration: written in the
            /// iteration before, or never written. A copy out may then begin before this iteration.
            earlier[AwayId]: bool[most],
            /// For each block that may be on the host, whether it must be back on the device in the next iteration, not
            /// in this one.
            later[AwayId]: bool[most],
            /// For each idle time, the index of its block in the list of the blocks that may be on the host; none if
            /// the block is not in the list.
            pub(super) index[IdleId]: Option<AwayId>[most],
        }
        state {
            /// How many entries of `size`, `since` and `until` are in use: one for each block that may be on the host.
            pub(super) len: u32 = 0,
        }
    }
}

impl Away<'_> {
    /// Finds the blocks that may be on the host at the time of a row: the blocks that are idle then and read later.
    fn find_at(&mut self, row: u32, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        let time = at(program.rows, row).time_ns;
        self.clear();
        for (k, idle) in idle.numbered().filter(|(_, idle)| idle.is_read(program)) {
            let sides = (row > idle.begin && time >= program.time[idle.from + 1], row < idle.end);
            self.add(program, (k, &idle), sides, [time, time, at(program.rows, idle.end).time_ns]);
        }
        self.sort(idle);
    }

    /// Finds the blocks that may be on the host while an operator runs: those with an idle time in `idle` that includes
    /// the run of the operator.
    pub(super) fn find_in(&mut self, operator: u32, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        self.clear();
        let (start, finish) = (program.access_time[operator], program.time[operator + 1]);
        for (k, idle) in idle.numbered() {
            let times = [start, finish, program.access_time[idle.to]];
            self.add(program, (k, &idle), (operator > idle.from, operator < idle.to), times);
        }
        self.sort(idle);
    }

    /// Empties the list of the blocks that may be on the host.
    fn clear(&mut self) {
        self.len = 0;
        self.index.fill(None);
    }

    /// Adds the block of `idle`, the idle time with index `k`, to the blocks that may be on the host at a certain time.
    /// Does nothing if that time is not within the idle time.
    /// - `after`: whether that time is after the access that begins the idle time.
    /// - `before`: whether it is before the access that ends the idle time.
    /// - `start`, `finish`, `deadline`: a copy out has to end by `start`; a copy in may begin at `finish`, and has to
    ///   end by `deadline`. Each is in ns from the start of the iteration in which it lies.
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

    /// Sorts the blocks that may be on the host in two ways: by the time since their values were written, and by the
    /// time until they must be back on the device. Both orders are taken from `idle`, which sorts as if all happened in
    /// one iteration. So some blocks are moved behind the others: in the first order those whose value is older than
    /// this iteration, in the second those that must be back only in the next.
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

    /// The most bytes that can be on the host, of the blocks that may be there: the lesser of what the link out can
    /// copy to the host in time and what the link in can copy back in time. A schedule may take longer than the
    /// original, which gives the links more time; `delay` says how much.
    pub(super) fn copied(&self, device: &Device, delay: Delay) -> f64 {
        // The bytes of these blocks that a link moves, if each has `window` ns.
        let moved = |order: &Table<'_, u32>, bandwidth: f64, window: &dyn Fn(AwayId) -> f64| {
            order
                .first(self.len)
                .iter()
                .map(|&k| AwayId::of(k))
                .fold(0.0, |moved: f64, k| (moved + bytes(self.size[k])).min(window(k) * bandwidth / 1e9))
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

/// The time, in ns, by which a schedule takes longer than the original. It is divided at one operator into time that is
/// added before it and time that is added after it. In [`least_load`] a row takes the place of the operator.
#[derive(Clone, Copy)]
pub(super) struct Delay {
    /// The time, in ns, that is added before the operator at which the overhead is divided: the operator runs so much
    /// later than in the original.
    pub(super) before: f64,
    /// The time, in ns, that is added from the operator at which the overhead is divided to the end of the iteration.
    pub(super) after: f64,
    /// How many ns longer than in the original the whole iteration takes: the overhead.
    pub(super) whole: f64,
}

/// The most steps in the search for the best division of the time that a schedule adds to the original into time before
/// an operator and time after it. Each step cuts off a third of the interval in which the best division lies.
const DIVISIONS: u32 = 48;

/// The most bytes that can be away from the device while an operator runs, if the iteration takes `whole` ns longer
/// than the original. These ns are divided into time added before the operator and time added after it, in the way that
/// is best. `elsewhere` returns the bytes for one division: it must be concave, and must not fall if either time grows.
/// The result may be a little too high, as the best division is found approximately. If `enough`, a number of bytes, is
/// given, the search ends once it is known whether that many bytes can be away. The result then says only this: if it
/// is below `enough`, that many bytes cannot be away. Cost: up to 3 calls of `elsewhere` in each of up to [`DIVISIONS`]
/// steps.
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

/// A number of bytes or of nanoseconds as an `f64`.
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
