//! A lower bound on the overhead of every schedule within a limit, by swaps, recomputation, in-place reuse and masks
//! together.
//!
//! It is a relaxation: each operator is looked at by itself. While it runs, the blocks that it touches are on the
//! device. Of the blocks that are idle then and needed later, as many bytes are elsewhere as are above the limit, and
//! each of these bytes has to come back:
//! - by a copy, which leaves after the value was made, and is back before the next use. No link moves more than its
//!   bandwidth allows in the time between, and the overhead makes that time longer by its whole length;
//! - by recomputation, which costs the time of the operator that made the value, shared out among the bytes that this
//!   operator writes. The blocks that it reads are taken to be there.
//!
//! The bound is the least overhead at which both together bring back enough bytes, those that are cheapest per byte
//! first (a fractional knapsack, Dantzig 1957). Blocks move in parts and without latency, outputs that may be written
//! over an input of their size take no memory, a mask takes none, and blocks that only gradients of `ReLU`s read next
//! may be away for nothing.
//!
//! Where operators may run in another order ([`Means::Order`]), nothing is known of when a block is idle. The blocks
//! that an operator touches have to be there all the same, and the bound says only whether they are within the limit.
//!
//! The obvious alternative, a linear program over all operators at once, would see that copies share the link with
//! others and that a recomputed operator needs its own inputs; it takes minutes where this takes milliseconds.
//!
//! Cost: O(rows), and for each of the [`FEW`] operators that are most above the limit O(idle blocks · bisections).

use super::{Means, Options};
use crate::rewrite::program::Program;
use crate::table::{Record, Table, record};
use crate::trace::{Event, Kind, Op, Recorded};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block, sort};

/// The most operators that are looked at: those that are most above the limit.
const FEW: u32 = 256;
/// How often the least overhead of an operator is bisected.
const BISECTIONS: u32 = 48;
/// Longer than any overhead, in ns.
const FOREVER: f64 = 1e18;
/// A factor that lowers the bound by more than the rounding of its sums can have raised it.
const SAFE: f64 = 1.0 - 1e-9;

/// Length of the workspace that [`least_overhead`] needs.
#[must_use]
pub const fn lower_bound_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks).and(Needs::workspace(rows, blocks)).and(Away::workspace(rows, blocks))
}

/// A lower bound on how much longer than the trace any schedule within `options.limit` takes, by the means that
/// `options` allow, in ns. Infinite where no schedule is within the limit.
///
/// # Errors
/// [`Error::BufferTooSmall`] if the workspace is too short; [`Error::Row`] for a trace that is not as recorded;
/// [`Error::TooManyBlocks`]; [`Error::Device`].
///
/// ```
/// use sublet_core::rewrite::fit::{self, Means, Options, Using};
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::{Event, Op, Recorded, Row};
/// use sublet_core::Workspace;
/// let row = |time_ns, event, block, op| {
///     Row { time_ns, event, block, op, bytes: if event == Event::Malloc { 12_000 } else { 0 } }
/// };
/// // A value that is read again after another has come and gone.
/// let rows = [
///     row(0, Event::Malloc, 0, Op::First(0)),
///     row(0, Event::Write, 0, Op::First(0)),
///     row(300, Event::Malloc, 1, Op::First(1)),
///     row(300, Event::Write, 1, Op::First(1)),
///     row(400, Event::Free, 1, Op::None),
///     row(900, Event::Read, 0, Op::First(2)),
///     row(900, Event::Free, 0, Op::None),
/// ];
/// let len = fit::lower_bound_workspace(rows.len(), 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let using = Using::NONE.with(Means::Swap);
/// let options = Options { using, ..Options::new(12_000, Device::symmetric(12e9)) };
/// let recorded = Recorded::new(&rows, 2);
/// let ns = fit::least_overhead(&recorded, &options, Workspace::new(&mut words, &mut indices))?;
/// // 1,000 ns out, of which 300 are there; back in 600 of 1,000.
/// assert!((ns - 700.0).abs() < 0.001);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_overhead(recorded: &Recorded<'_>, options: &Options, mut scratch: Workspace<'_>) -> Result<f64, Error> {
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    let Recorded { rows, blocks, .. } = *recorded;
    block::check_count(blocks)?;
    scratch.check(lower_bound_workspace(rows.len(), blocks))?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, blocks, &mut scratch)?;
    let mut needs = Needs::lend(rows.len(), blocks, &mut scratch);
    needs.find(recorded, options, &program);
    let mut away = Away::lend(rows.len(), blocks, &mut scratch);
    let mut bound = 0.0;
    for i in 0..program.accessing.min(FEW) {
        let operator = needs.by_need[i];
        let excess = needs.need[operator].saturating_sub(options.limit);
        if excess == 0 || bound >= FOREVER {
            break;
        }
        away.find(&needs, &program, options, operator);
        bound = away.least(options, excess, bound);
    }
    Ok(if bound < FOREVER { bound * SAFE } else { f64::INFINITY })
}

/// The operators between two accesses of a block that holds a value which is read later. Where `end` is not after
/// `begin`, they cross the end of the iteration.
#[derive(Clone, Copy)]
struct Idle {
    block: u32,
    /// The operator of the access before.
    begin: u32,
    /// The operator of the access after.
    end: u32,
    /// The operator that wrote the block's value; none if the value is there from the start.
    writer: Option<u32>,
    /// Recompute cost in ns per byte; infinite if it cannot be recomputed.
    cost: f64,
}

impl Record for Idle {
    type Kept = [u64; 3];
    fn keep(self) -> [u64; 3] {
        let pair = |high: u32, low: u32| u64::from(high) << u32::BITS | u64::from(low);
        [pair(self.block, self.writer.map_or(0, |w| w + 1)), pair(self.begin, self.end), self.cost.to_bits()]
    }
    fn kept([block, span, cost]: [u64; 3]) -> Self {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        let high = |word: u64| low(word >> u32::BITS);
        let writer = low(block).checked_sub(1);
        Self { block: high(block), writer, begin: high(span), end: low(span), cost: f64::from_bits(cost) }
    }
}

record! {
    /// What is known of a block while the rows are read.
    struct Seen {
        /// The operator of its first access.
        first: Option<u32>,
        /// The operator of its last access.
        last: Option<u32>,
        /// The operator that wrote it last.
        writer: Option<u32>,
        /// Whether its first access is a read.
        read_first: bool,
        /// Whether its first access is by the gradient of a `ReLU`, which can read a mask instead.
        masked: bool,
    }
}

workspace! {
    /// The bytes that have to be on the device or come back to it, and the blocks that are idle.
    struct Needs<'a>(rows, blocks) {
        tables {
            /// By operator: the bytes that it touches, plus those of the blocks that are idle while it runs.
            need: u64[rows + 1],
            /// The operators, the one with the most such bytes first.
            by_need: u32[rows + 1],
            /// Scratch memory of that sort.
            aside: u32[rows + 1],
            /// By operator: the bytes that it writes.
            written: u64[rows + 1],
            /// By block: 1 + the operator that counted it last.
            counted: u32[blocks],
            /// By block: 1 + the last operator that allocates it between its accesses.
            own: u32[blocks],
        }
        records {
            /// What is known of each block.
            seen: Seen[blocks],
        }
        lists {
            /// When blocks are idle.
            idle: Idle[rows + blocks],
        }
    }
}

impl Needs<'_> {
    /// Finds when blocks are idle, and the bytes that each operator needs.
    fn find(&mut self, recorded: &Recorded<'_>, options: &Options, program: &Program<'_>) {
        let using = options.using.on(&options.device);
        for o in 0..program.accessing {
            for r in program.accesses(o).filter(|r| r.event == Event::Write) {
                if self.counted[r.block] != o + 1 {
                    self.counted[r.block] = o + 1;
                    self.written[o] = self.written[o].saturating_add(program.size[r.block]);
                }
            }
        }
        for o in 0..program.accessing {
            let operator = recorded.operator(program.op(o));
            let masked = using.has(Means::Relu) && operator.kind == Kind::ReluBackward;
            for r in program.accesses(o) {
                self.access(recorded, options, program, (o, masked), (r.block, r.event == Event::Write));
            }
        }
        for block in (0..program.blocks()).filter(|&block| program.is_persistent(block)) {
            let seen = self.seen.get(block);
            if let (Some(end), true, false) = (seen.first, seen.read_first, seen.masked) {
                self.rest(recorded, options, program, (block, end));
            }
        }
        // In another order other blocks may be idle.
        let moves = |o| !recorded.is_ordered(program.op(o));
        if using.has(Means::Order) && (0..program.accessing).any(moves) {
            self.idle.truncate(0);
        }
        self.add_idle(program);
        self.counted.fill(0);
        for o in 0..program.accessing {
            self.need[o] = self.need[o].wrapping_add(self.touched(recorded, options, program, o));
        }
        sort::identity(&mut self.by_need, program.accessing);
        sort::by_key(&mut self.by_need, program.accessing, &mut self.aside, |o| !self.need[o]);
    }

    /// Notes that an operator accesses a block.
    fn access(
        &mut self,
        recorded: &Recorded<'_>,
        options: &Options,
        program: &Program<'_>,
        (o, masked): (u32, bool),
        (block, writes): (u32, bool),
    ) {
        let seen = self.seen.get(block);
        if seen.last.is_some_and(|last| last != o) && !writes && !masked {
            self.rest(recorded, options, program, (block, o));
        }
        let begins = seen.first.is_none();
        self.seen.set(
            block,
            Seen {
                first: seen.first.or(Some(o)),
                last: Some(o),
                writer: if writes { Some(o) } else { seen.writer },
                read_first: if begins { !writes } else { seen.read_first },
                masked: if begins { masked } else { seen.masked },
            },
        );
    }

    /// Notes that a block is idle from its last access to that of operator `end`.
    fn rest(&mut self, recorded: &Recorded<'_>, options: &Options, program: &Program<'_>, (block, end): (u32, u32)) {
        let Seen { last: Some(begin), writer, .. } = self.seen.get(block) else { return };
        // A block that nobody has written holds no value that could be lost.
        if writer.is_none() && !program.is_persistent(block) {
            return;
        }
        let may = |writer: &u32| {
            let op = program.op(*writer);
            options.using.has(Means::Recompute) && matches!(op, Op::First(_)) && recorded.operator(op).rerun
        };
        let cost = writer.filter(may).map_or(f64::INFINITY, |w| ratio(program.duration(w), self.written[w]));
        self.idle.push(Idle { block, begin, end, writer, cost });
    }

    /// Adds up the bytes that are idle, by operator: first the changes from one operator to the next.
    fn add_idle(&mut self, program: &Program<'_>) {
        self.need.fill(0);
        let last = program.accessing;
        for Idle { block, begin, end, .. } in self.idle.iter() {
            let size = program.size[block];
            let mut add = |from: u32, to: u32| {
                if from < to {
                    self.need[from] = self.need[from].wrapping_add(size);
                    self.need[to] = self.need[to].wrapping_sub(size);
                }
            };
            if begin < end {
                add(begin + 1, end);
            } else {
                add(0, end);
                add(begin + 1, last);
            }
        }
        for o in 1..=last {
            self.need[o] = self.need[o].wrapping_add(self.need[o - 1]);
        }
    }

    /// The most bytes on the device at once of the blocks that an operator touches or allocates.
    fn touched(&mut self, recorded: &Recorded<'_>, options: &Options, program: &Program<'_>, o: u32) -> u64 {
        let operator = recorded.operator(program.op(o));
        let masked = operator.kind == Kind::ReluBackward && options.using.has(Means::Relu);
        for r in program.rows_in(o).filter(|r| r.event == Event::Malloc) {
            self.own[r.block] = o + 1;
        }
        let (mut present, mut input, mut output) = (0u64, None, None);
        for r in program.accesses(o).filter(|r| self.own[r.block] != o + 1) {
            let reads = r.event == Event::Read;
            (if reads { &mut input } else { &mut output }).get_or_insert(r.block);
            if self.counted[r.block] != o + 1 && !(reads && masked) {
                self.counted[r.block] = o + 1;
                present = present.saturating_add(program.size[r.block]);
            }
        }
        if let (true, true, Some(x), Some(y)) = (operator.in_place, options.using.has(Means::InPlace), input, output)
            && x != y
            && program.size[x] == program.size[y]
        {
            present = present.saturating_sub(program.size[y]);
        }
        let mut most = present;
        for r in program.rows_in(o) {
            match r.event {
                Event::Malloc => present = present.saturating_add(program.size[r.block]),
                Event::Free => present = present.saturating_sub(program.size[r.block]),
                _ => {}
            }
            most = most.max(present);
        }
        most
    }
}

workspace! {
    /// The blocks that are idle while one operator runs, and how they come back.
    struct Away<'a>(rows, blocks) {
        tables {
            /// By block that is idle: its bytes.
            size: u64[rows + blocks],
            /// By block that is idle: the time since its value was made until the operator begins, in ns; `u64::MAX` if
            /// the value is there from the start.
            since: u64[rows + blocks],
            /// By block that is idle: the time from the operator's end to the block's next use, in ns.
            until: u64[rows + blocks],
            /// By block that is idle: its recompute cost in ns per byte, as the bits of an `f64`. These have the order
            /// of the numbers, as none is below 0.
            cost: u64[rows + blocks],
            /// The idle blocks by `since`, the shortest time first.
            by_since: u32[rows + blocks],
            /// The idle blocks by `until`, the shortest time first.
            by_until: u32[rows + blocks],
            /// The idle blocks by recompute cost, the least first.
            by_cost: u32[rows + blocks],
            /// Scratch memory of these sorts.
            aside: u32[rows + blocks],
        }
        state {
            /// How many blocks are idle.
            len: u32 = 0,
            /// Whether blocks may be swapped.
            swaps: bool = false,
        }
    }
}

impl Away<'_> {
    /// Finds the blocks that are idle while an operator runs.
    fn find(&mut self, needs: &Needs<'_>, program: &Program<'_>, options: &Options, o: u32) {
        let using = options.using.on(&options.device);
        self.swaps = using.has(Means::Swap) || using.has(Means::Layer);
        self.len = 0;
        let (start, finish, period) = (program.access_time[o], program.time[o + 1], program.end_time);
        for Idle { block, begin, end, writer, cost } in needs.idle.iter() {
            let crosses_end = end <= begin;
            let (after, before) = (o > begin, o < end);
            if !(if crosses_end { after || before } else { after && before }) {
                continue;
            }
            // The block is idle between two accesses of this iteration, or across its end: then its value may be made
            // in the iteration before, or used in the next.
            let wraps_out = crosses_end && before;
            let wraps_in = crosses_end && after && !before;
            let made = writer.map(|w| program.time[w + 1]);
            let i = self.len;
            let later = |wraps: bool, time: u64| if wraps { time.saturating_add(period) } else { time };
            self.since[i] = made.map_or(u64::MAX, |made| later(wraps_out, start).saturating_sub(made));
            self.until[i] = later(wraps_in, program.access_time[end]).saturating_sub(finish);
            self.size[i] = program.size[block];
            self.cost[i] = cost.to_bits();
            self.len += 1;
        }
        let Self { since, until, cost, by_since, by_until, by_cost, aside, len, .. } = self;
        for (order, key) in [(by_since, &*since), (by_until, &*until), (by_cost, &*cost)] {
            sort::identity(order, *len);
            sort::by_key(order, *len, aside, |k| key[k]);
        }
    }

    /// The least overhead at which `excess` bytes come back, at least `bound`, in ns.
    fn least(&self, options: &Options, excess: u64, bound: f64) -> f64 {
        let device = &options.device;
        let enough = |overhead: f64| {
            let out = self.copied(&self.by_since, &self.since, overhead, device.out_bandwidth);
            let back = self.copied(&self.by_until, &self.until, overhead, device.in_bandwidth);
            let copied = if self.swaps { out.min(back) } else { 0.0 };
            copied + self.recomputed(overhead) >= bytes(excess) * SAFE
        };
        if self.size.first(self.len).iter().fold(0.0, |sum, &size| sum + bytes(size)) < bytes(excess) * SAFE {
            return FOREVER;
        }
        if enough(bound) {
            return bound;
        }
        let (mut low, mut high) = (bound, bound.max(1.0));
        while !enough(high) {
            if high >= FOREVER {
                return FOREVER;
            }
            (low, high) = (high, high * 2.0);
        }
        for _ in 0..BISECTIONS {
            let between = f64::midpoint(low, high);
            *(if enough(between) { &mut high } else { &mut low }) = between;
        }
        low
    }

    /// The most bytes that a link moves, each block within its time in ns, which the overhead makes longer. `order` has
    /// the shortest time first; the bandwidth is in bytes per second.
    fn copied(&self, order: &Table<'_, u32>, time: &Table<'_, u64>, overhead: f64, bandwidth: f64) -> f64 {
        order.first(self.len).iter().fold(0.0, |moved: f64, &k| {
            let link = if time[k] == u64::MAX { f64::INFINITY } else { (bytes(time[k]) + overhead) * bandwidth / 1e9 };
            (moved + bytes(self.size[k])).min(link)
        })
    }

    /// The most bytes that are recomputed in `overhead` ns.
    fn recomputed(&self, overhead: f64) -> f64 {
        let (mut left, mut sum) = (overhead, 0.0);
        for &k in self.by_cost.first(self.len) {
            let (size, cost) = (bytes(self.size[k]), f64::from_bits(self.cost[k]));
            if cost.is_infinite() {
                break;
            }
            if size * cost > left {
                return sum + left / cost;
            }
            left -= size * cost;
            sum += size;
        }
        sum
    }
}

#[expect(clippy::cast_precision_loss, reason = "a bound is made a little lower in the end")]
const fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

fn ratio(ns: u64, of: u64) -> f64 {
    bytes(ns) / bytes(of.max(1))
}

#[cfg(test)]
mod tests;
