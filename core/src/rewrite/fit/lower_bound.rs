//! A lower bound on the overhead of every schedule within a memory limit: on the time that it adds to the recorded
//! trace. The schedule may use swaps, recomputation, in-place reuse and masks together.
//!
//! It is a relaxation: each operator is looked at by itself. While it runs, the blocks that it *touches* (reads, writes
//! or allocates) are on the device. Other blocks are idle then and needed later. If both together exceed the limit, the
//! excess has to be taken from the idle blocks: so many of their bytes have to be away from the device, and each of
//! these bytes has to come back:
//! - by a copy, which leaves after the value was made, and is back before the next use. No link moves more than its
//!   bandwidth allows in the time between;
//! - by recomputation, which costs the time of the operators that make the value again, its *closure*. To the closure
//!   belongs the operator that made the value, and, where one of them reads a value that is not accessed again once the
//!   first is idle, the operator that made that *source* in turn. A source could be kept instead, so it counts only for
//!   as many values as have no more bytes together: to keep it would save nothing. The time of an operator is shared
//!   out among the bytes of all values whose closures have it. Where a source cannot be recomputed, the value counts as
//!   one that has to be copied; where it has a source, as one that may be copied as soon as the first source is made.
//!
//! A part of the overhead is spent before the operator and the rest after it. The part before gives copies out more
//! time. The part after gives copies in more time, or is spent on recomputation, since a value that is away while the
//! operator runs is recomputed after it. A copy that may begin in one iteration and end in the next gets the whole
//! overhead.
//!
//! Persistent blocks that must stay, or that nothing may swap, are on the device all the time.
//!
//! The bound is the least overhead that can be divided into two such parts so that copies and recomputation together
//! bring back all bytes that have to be away. The bytes that are cheapest to recompute are recomputed first (a
//! fractional knapsack, Dantzig 1957). Blocks move in parts and without latency, but a block whose copies, or whose
//! closure, take longer than the whole overhead does not move at all. Outputs that may be written over an
//! input of their size take no memory, and masks take none. Blocks that are next read by the gradient of a `ReLU` may
//! be away at no cost.
//!
//! Where operators may run in another order ([`Means::Order`]), nothing is known of when a block is idle. The blocks
//! that an operator touches, and the persistent ones that stay, have to be on the device all the same, and the bound says
//! only whether they are within the limit.
//!
//! The obvious alternative, a linear program over all operators at once, would see that all copies of an iteration
//! share the links and that a recomputed operator needs its own inputs; it takes minutes where this takes milliseconds.
//!
//! Where values are recomputed alone, in the recorded order, and they are few, the search of
//! [`exact`] finds the optimum, or a bound as far as it comes.
//!
//! Cost: O(rows), and for each of the [`FEW`] operators that are most above the limit O(idle blocks · bisections).

use core::ops::ControlFlow;

use super::{Means, Options, Using};
use crate::id::Id;
use crate::rewrite::ids::BlockId;
use crate::rewrite::lower_bound::{Away, AwayId, Delay, Idle, IdleBlocks, IdleId, best_division, bytes};
use crate::rewrite::means::recompute::{Recomputer, exact};
use crate::rewrite::program::Program;
use crate::rewrite::values::Values;
use crate::simulate::Device;
use crate::table::record;
use crate::trace::{Event, Kind, Op, Operator, Recorded};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block, sort};

pub(super) const FEW: u32 = 256;
const BISECTIONS: u32 = 48;
/// In ns: as a bound it means that no schedule is within the limit.
const FOREVER: f64 = 1e18;
/// Lowers the bound by more than rounding can have raised it.
const SAFE: f64 = 1.0 - 1e-9;

/// Length of the workspace that [`least_overhead`] needs for a trace of `rows` rows and `blocks` blocks.
#[must_use]
pub const fn lower_bound_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let exactly = Program::workspace(rows, blocks)
        .and(Values::workspace(rows, blocks))
        .and(Recomputer::workspace(rows, blocks))
        .and(exact::workspace(rows, blocks));
    workspace(rows, blocks).max(if blocks <= exact::MOST_BLOCKS { exactly } else { WorkspaceLen::NONE })
}

pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks)
        .and(IdleBlocks::workspace(rows, blocks))
        .and(Closures::workspace(rows, blocks))
        .and(Needs::workspace(rows, blocks))
        .and(Returns::workspace(rows, blocks))
}

/// A lower bound, in ns, on the time that a schedule adds to the trace, if the schedule is within `options.limit` and
/// saves memory only by the means that `options` allow. Infinite where the bound proves that there is no such schedule.
///
/// # Errors
/// [`Error::BufferTooSmall`] if the workspace is too short; [`Error::Row`] for a row that a recorded trace cannot have,
/// such as a copy or a recomputation; [`Error::TooManyBlocks`]; [`Error::Device`] if a bandwidth or a latency of the
/// device is wrong.
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
/// // The copy out takes 1,000 ns, and 300 pass before the second operator begins: 700 are added. The copy in takes
/// // 1,000 ns, and 600 pass until the read: 400 are added.
/// assert!((ns - 1_100.0).abs() < 0.001);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_overhead(recorded: &Recorded<'_>, options: &Options, mut scratch: Workspace<'_>) -> Result<f64, Error> {
    let mut bound = 0.0;
    look(recorded, options, (FEW, Idles::All), scratch.reborrow(), |returns, excess| {
        bound = returns.least(options, excess, bound);
        if bound < FOREVER { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let bound = if bound < FOREVER { bound * SAFE } else { f64::INFINITY };
    let recomputes_alone = options.using.on(&options.device) == Using::NONE.with(Means::Recompute);
    if !recomputes_alone || recorded.blocks > exact::MOST_BLOCKS || bound.is_infinite() {
        return Ok(bound);
    }
    scratch.check(lower_bound_workspace(recorded.rows.len(), recorded.blocks))?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(recorded.rows, recorded.blocks, &mut scratch)?;
    let values = Values::new(recorded, &program, &mut scratch);
    let recomputer = Recomputer::new(&values, 0, options.seed, &mut scratch);
    Ok(match recomputer.takes_at_least(options.limit, scratch) {
        Some(u64::MAX) => f64::INFINITY,
        Some(least) => bound.max(bytes(least)),
        None => bound,
    })
}

pub(super) fn takes_at_least(
    recorded: &Recorded<'_>,
    options: &Options,
    overhead: f64,
    few: u32,
    scratch: Workspace<'_>,
) -> Result<bool, Error> {
    if overhead <= 0.0 {
        return Ok(true);
    }
    let mut proved = false;
    look(recorded, options, (few, Idles::All), scratch, |returns, excess| {
        proved = !returns.suffice(options, excess, overhead / SAFE);
        if proved { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(proved)
}

/// The most bytes that have to be on the device at once, however long a schedule takes.
pub(super) fn needed(recorded: &Recorded<'_>, options: &Options, scratch: Workspace<'_>) -> Result<u64, Error> {
    let mut most = 0;
    look(recorded, &Options { limit: 0, ..*options }, (1, Idles::Stay), scratch, |_, need| {
        most = need;
        ControlFlow::Break(())
    })?;
    Ok(most)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Idles {
    All,
    /// Those that can be neither swapped nor recomputed.
    Stay,
}

fn look(
    recorded: &Recorded<'_>,
    options: &Options,
    (few, idles): (u32, Idles),
    mut scratch: Workspace<'_>,
    mut each: impl FnMut(&Returns<'_>, u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    let Recorded { rows, blocks, .. } = *recorded;
    block::check_count(blocks)?;
    scratch.check(workspace(rows.len(), blocks))?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, blocks, &mut scratch)?;
    let using = options.using.on(&options.device);
    let stays = options.keep_persistent || !using.has(Means::Swap);
    let out_bandwidth = options.device.out_bandwidth;
    let network = Network { recorded, program: &program, using, stays, out_bandwidth };
    let mut idle = IdleBlocks::lend(rows.len(), blocks, &mut scratch);
    // In another order other blocks may be idle.
    let moves = |o| network.using.has(Means::Order) && !recorded.is_ordered(program.op(o));
    let moves = (0..program.accessing).any(moves);
    let mut closures = Closures::lend(rows.len(), blocks, &mut scratch);
    if using.has(Means::Recompute) {
        closures.find_sources(&network);
    }
    let mut kept = 0;
    idle.find(&program, |idle| {
        let counts = !moves && !network.stays(idle.block) && idle.has_value(&program) && idle.is_read(&program);
        if !counts || network.reads_masks(idle.to) {
            return None;
        }
        let k = IdleId::of(kept);
        let first = closures.add(&network, k, &idle);
        let stays = !using.has(Means::Swap) && closures.time(&network, k).0.is_infinite();
        let counts = idles == Idles::All || stays;
        if counts {
            kept += 1;
        } else {
            closures.drop_from(k);
        }
        // What has a source may be copied as soon as the first is made.
        counts.then_some(Idle { writer: first.or(idle.writer), ..idle })
    });
    let mut needs = Needs::lend(rows.len(), blocks, &mut scratch);
    needs.find(&network, &idle);
    let mut returns = Returns::lend(rows.len(), blocks, &mut scratch);
    returns.price(&network, &idle, &mut closures);
    for &operator in needs.by_need.first(program.accessing.min(few)) {
        let excess = needs.need[operator].saturating_sub(options.limit);
        if excess == 0 {
            break;
        }
        returns.find_in(operator, (&program, &idle), &options.device);
        if each(&returns, excess).is_break() {
            break;
        }
    }
    Ok(())
}

struct Network<'a> {
    recorded: &'a Recorded<'a>,
    program: &'a Program<'a>,
    using: Using,
    /// Whether persistent blocks are on the device all the time.
    stays: bool,
    out_bandwidth: f64,
}

impl Network<'_> {
    fn stays(&self, block: BlockId) -> bool {
        self.stays && self.program.is_persistent(block)
    }

    fn standing(&self) -> u64 {
        let standing = self.program.blocks().filter(|&block| self.stays(block));
        standing.map(|block| self.program.size[block]).fold(0, u64::saturating_add)
    }

    fn operator(&self, o: u32) -> Operator {
        self.recorded.operator(self.program.op(o))
    }

    fn recomputes(&self, o: u32) -> bool {
        self.using.has(Means::Recompute) && matches!(self.program.op(o), Op::First(_)) && self.operator(o).rerun
    }

    /// Where values may also be copied, a source gives their copies more time, which is to be little.
    fn is_worth(&self, source: u32, idle: &Idle) -> bool {
        let Some(writer) = idle.writer.filter(|_| self.using.has(Means::Swap)) else {
            return true;
        };
        let sooner = bytes(self.program.time[writer + 1].saturating_sub(self.program.time[source + 1]));
        sooner * self.out_bandwidth <= bytes(self.program.size[idle.block]) * 1e9
    }

    fn reads_masks(&self, o: u32) -> bool {
        self.using.has(Means::Relu) && self.operator(o).kind == Kind::ReluBackward
    }
}

record! {
    struct Source {
        writer: Option<u32>,
        changes: bool,
        last: u32,
        /// The latest block for which it counts, which may have several idle times.
        counts_for: Option<BlockId>,
    }
}

/// A longer closure is cut off: what it would need further counts as kept.
const LONGEST: u32 = 64;

workspace! {
    struct Closures<'a>(rows, blocks) {
        tables {
            /// Bytes of the values for which it counts as a source.
            counted[BlockId]: u64[blocks],
            /// By operator: the bytes of the values whose closures have it.
            shared: u64[rows + 1],
            /// By idle time: where its operators end in `operators`.
            end[IdleId]: u32[rows + blocks],
        }
        records {
            source[BlockId]: Source[blocks],
            /// By operator: the latest block that it was counted for.
            latest: Option<BlockId>[rows + 1],
        }
        lists {
            operators: u32[2 * (rows + blocks)],
        }
        state {
            /// The rest of the list is for the writers of the values themselves.
            room: usize = rows + blocks,
        }
    }
}

impl Closures<'_> {
    fn find_sources(&mut self, network: &Network<'_>) {
        let program = network.program;
        for o in 0..program.accessing {
            for r in program.accesses(o) {
                let mut source = self.source.get(r.block_id());
                if r.event == Event::Write {
                    source.changes |= source.writer.is_some_and(|writer| writer != o);
                    source.writer = Some(o);
                }
                self.source.set(r.block_id(), Source { last: o, ..source });
            }
        }
    }

    /// Of the value that is idle. The first operator of its sources, if it has any.
    fn add(&mut self, network: &Network<'_>, k: IdleId, idle: &Idle) -> Option<u32> {
        let begin = self.operators.len();
        let mut first = None;
        if let Some(writer) = idle.writer.filter(|&writer| network.recomputes(writer)) {
            self.operators.push(writer);
        }
        let mut next = begin;
        while let Some(o) = self.operators.at(next).filter(|_| next - begin < LONGEST) {
            next += 1;
            for r in network.program.accesses(o).filter(|r| r.event == Event::Read && network.recomputes(o)) {
                if let Some(writer) = self.source(network, r.block_id(), idle)
                    && writer < o
                    && network.is_worth(writer, idle)
                    && !(begin..self.operators.len()).any(|i| self.operators.at(i) == Some(writer))
                    && usize::try_from(self.operators.len()).is_ok_and(|len| len < self.room)
                {
                    self.operators.push(writer);
                    first = Some(first.map_or(writer, |first: u32| first.min(writer)));
                }
            }
        }
        self.end[k] = self.operators.len();
        first
    }

    fn source(&mut self, network: &Network<'_>, block: BlockId, idle: &Idle) -> Option<u32> {
        let program = network.program;
        let source = self.source.get(block);
        let writer = source.writer?;
        if source.last > idle.from || source.changes || program.is_persistent(block) || block == idle.block {
            return None;
        }
        if source.counts_for != Some(idle.block) {
            let counted = self.counted[block].saturating_add(program.size[idle.block]);
            if counted > program.size[block] {
                return None;
            }
            self.counted[block] = counted;
            self.source.set(block, Source { counts_for: Some(idle.block), ..source });
        }
        Some(writer)
    }

    fn begin(&self, k: IdleId) -> u32 {
        k.number().checked_sub(1).map_or(0, |before| self.end[IdleId::of(before)])
    }

    fn drop_from(&mut self, k: IdleId) {
        while self.operators.len() > self.begin(k) {
            self.operators.pop();
        }
    }

    fn of(&self, k: IdleId) -> impl Iterator<Item = u32> + '_ {
        (self.begin(k)..self.end[k]).filter_map(|i| self.operators.at(i))
    }

    /// `by_block` has all idle times, those of a block side by side.
    fn share(&mut self, program: &Program<'_>, idle: &IdleBlocks<'_>, by_block: &[u32]) {
        for (k, idle) in by_block.iter().filter_map(|&k| Some((IdleId::of(k), idle.list.at(k)?))) {
            for i in self.begin(k)..self.end[k] {
                let Some(o) = self.operators.at(i) else { continue };
                if !self.latest.is(o, Some(idle.block)) {
                    self.latest.set(o, Some(idle.block));
                    self.shared[o] = self.shared[o].saturating_add(program.size[idle.block]);
                }
            }
        }
    }

    /// The time of its closure, in ns; infinite if it cannot be recomputed. Then the value's share, for one byte.
    fn time(&self, network: &Network<'_>, k: IdleId) -> (f64, f64) {
        let add = |(alone, share): (f64, f64), o: u32| {
            let time = if network.recomputes(o) { bytes(network.program.duration(o)) } else { f64::INFINITY };
            (alone + time, share + time / bytes(self.shared[o].max(1)))
        };
        let can_be_made = self.begin(k) < self.end[k];
        if can_be_made { self.of(k).fold((0.0, 0.0), add) } else { (f64::INFINITY, f64::INFINITY) }
    }
}

workspace! {
    struct Needs<'a>(rows, blocks) {
        tables {
            need: u64[rows + 1],
            by_need: u32[rows + 1],
            aside: u32[rows + 1],
        }
        records {
            /// The last operator for which it was counted, so that it counts once.
            counted[BlockId]: Option<u32>[blocks],
        }
    }
}

impl Needs<'_> {
    fn find(&mut self, network: &Network<'_>, idle: &IdleBlocks<'_>) {
        let program = network.program;
        self.add_idle(program, idle);
        self.counted.fill(None);
        let standing = network.standing();
        for o in 0..program.accessing {
            self.need[o] = self.need[o].wrapping_add(standing).wrapping_add(self.touched(network, o));
        }
        sort::identity(&mut self.by_need, program.accessing);
        sort::by_key(&mut self.by_need, program.accessing, &mut self.aside, |o| !self.need[o]);
    }

    /// First the changes at each operator, then their running sum.
    fn add_idle(&mut self, program: &Program<'_>, idle: &IdleBlocks<'_>) {
        let last = program.accessing;
        for idle in idle.list.iter() {
            let size = program.size[idle.block];
            let mut add = |from: u32, to: u32| {
                if from < to {
                    self.need[from] = self.need[from].wrapping_add(size);
                    self.need[to] = self.need[to].wrapping_sub(size);
                }
            };
            if idle.crosses_end() {
                add(0, idle.to);
                add(idle.from + 1, last);
            } else {
                add(idle.from + 1, idle.to);
            }
        }
        for o in 1..=last {
            self.need[o] = self.need[o].wrapping_add(self.need[o - 1]);
        }
    }

    /// All calls for one operator have to come in a row.
    fn counts(&mut self, block: BlockId, o: u32) -> bool {
        let counts = !self.counted.is(block, Some(o));
        self.counted.set(block, Some(o));
        counts
    }

    fn touched(&mut self, network: &Network<'_>, o: u32) -> u64 {
        let program = network.program;
        // What the operator allocates itself is counted with the rows below.
        for r in program.rows_in(o).filter(|r| r.event == Event::Malloc) {
            self.counts(r.block_id(), o);
        }
        let masked = network.reads_masks(o);
        let mut present = 0u64;
        for r in program.accesses(o).filter(|r| !(network.stays(r.block_id()) || masked && r.event == Event::Read)) {
            if self.counts(r.block_id(), o) {
                present = present.saturating_add(program.size[r.block_id()]);
            }
        }
        if network.using.has(Means::InPlace)
            && network.operator(o).in_place
            && let Some((x, y)) = program.ends(o)
            && x != y
            && program.size[x] == program.size[y]
        {
            present = present.saturating_sub(program.size[y]);
        }
        let mut most = present;
        for r in program.rows_in(o) {
            match r.event {
                Event::Malloc => present = present.saturating_add(program.size[r.block_id()]),
                Event::Free => present = present.saturating_sub(program.size[r.block_id()]),
                _ => {}
            }
            most = most.max(present);
        }
        most
    }
}

workspace! {
    struct Returns<'a>(rows, blocks) {
        tables {
            /// In ns per byte, as bits of an `f64`, which sort as the numbers do since none is below 0.
            cost[IdleId]: u64[rows + blocks],
            /// The time to recompute all of it, in ns, as bits.
            alone[IdleId]: u64[rows + blocks],
            by_cost: u32[rows + blocks],
            aside: u32[rows + blocks],
        }
        records {
            least_delay[AwayId]: f64[rows + blocks],
        }
        parts {
            away: Away(rows + blocks),
        }
        state {
            swaps: bool = false,
            ever: u32 = 0,
        }
    }
}

impl Returns<'_> {
    fn price(&mut self, network: &Network<'_>, idle: &IdleBlocks<'_>, closures: &mut Closures<'_>) {
        (self.swaps, self.ever) = (network.using.has(Means::Swap), idle.list.len());
        sort::identity(&mut self.by_cost, self.ever);
        let block = |k| idle.list.at(k).map_or(0, |idle| idle.block.number().into());
        sort::by_key(&mut self.by_cost, self.ever, &mut self.aside, block);
        closures.share(network.program, idle, self.by_cost.first(self.ever));
        for (k, _) in idle.numbered() {
            let (alone, share) = closures.time(network, k);
            (self.alone[k], self.cost[k]) = (alone.to_bits(), share.to_bits());
        }
        let Self { cost, by_cost, aside, .. } = self;
        sort::identity(by_cost, idle.list.len());
        sort::by_key(by_cost, idle.list.len(), aside, |k| cost[IdleId::of(k)]);
    }

    fn find_in(&mut self, operator: u32, (program, idle): (&Program<'_>, &IdleBlocks<'_>), device: &Device) {
        self.away.find_in(operator, program, idle);
        for k in AwayId::each(0..self.away.len) {
            self.least_delay.set(k, self.away.least_delay(device, k));
        }
    }

    /// In ns and not below `bound`; [`FOREVER`] if it cannot be done.
    fn least(&self, options: &Options, excess: u64, bound: f64) -> f64 {
        let enough = |overhead: f64| self.suffice(options, excess, overhead);
        if self.away.size.first(self.away.len).iter().fold(0.0, |sum, &size| sum + bytes(size)) < bytes(excess) * SAFE {
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

    fn suffice(&self, options: &Options, excess: u64, overhead: f64) -> bool {
        let enough = bytes(excess) * SAFE;
        let most = best_division(overhead, Some(enough), |delay| {
            let whole = |k| self.least_delay.get(k) <= overhead;
            let copied = if self.swaps { self.away.copied_of(&options.device, delay, whole) } else { 0.0 };
            copied + self.recomputed(delay)
        });
        most >= enough
    }

    fn recomputed(&self, delay: Delay) -> f64 {
        let (mut left, mut sum) = (delay.after, 0.0);
        for k in self.by_cost.first(self.ever).iter().map(|&k| IdleId::of(k)) {
            let Some(block) = self.away.index.get(k) else { continue };
            let (size, cost) = (bytes(self.away.size[block]), f64::from_bits(self.cost[k]));
            if cost.is_infinite() {
                break;
            }
            if f64::from_bits(self.alone[k]) > delay.whole {
                continue;
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

#[cfg(test)]
mod tests;
