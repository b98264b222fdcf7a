//! A lower bound on the overhead of every schedule within a memory limit: on the time that it adds to the recorded
//! trace. The schedule may use swaps, recomputation, in-place reuse and masks together.
//!
//! It is a relaxation: each operator is looked at by itself. While it runs, the blocks that it *touches* (reads, writes
//! or allocates) are on the device. Other blocks are idle then and needed later. If both together exceed the limit, the
//! excess has to be taken from the idle blocks: so many of their bytes have to be away from the device, and each of
//! these bytes has to come back:
//! - by a copy, which leaves after the value was made, and is back before the next use. No link moves more than its
//!   bandwidth allows in the time between;
//! - by recomputation, which costs the time of the operator that made the value, shared out among the bytes that this
//!   operator writes. The inputs of this operator are taken to be on the device, with one exception: an input that
//!   cannot be recomputed itself, is not smaller than the value, and is not accessed again once the value is idle.
//!   Either this input or the value has to be kept, so the value counts as one that has to be copied.
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
//! fractional knapsack, Dantzig 1957). Blocks move in parts and without latency. Outputs that may be written over an
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
//! Cost: O(rows), and for each of the [`FEW`] operators that are most above the limit O(idle blocks · bisections).

use core::ops::ControlFlow;

use super::{Means, Options, Using};
use crate::id::Id;
use crate::rewrite::ids::BlockId;
use crate::rewrite::lower_bound::{Away, Idle, IdleBlocks, IdleId, best_division, bytes};
use crate::rewrite::program::Program;
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
    Program::workspace(rows, blocks)
        .and(IdleBlocks::workspace(rows, blocks))
        .and(Sources::workspace(blocks))
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
pub fn least_overhead(recorded: &Recorded<'_>, options: &Options, scratch: Workspace<'_>) -> Result<f64, Error> {
    let mut bound = 0.0;
    look(recorded, options, (FEW, Idles::All), scratch, |returns, excess| {
        bound = returns.least(options, excess, bound);
        if bound < FOREVER { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(if bound < FOREVER { bound * SAFE } else { f64::INFINITY })
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
    scratch.check(lower_bound_workspace(rows.len(), blocks))?;
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, blocks, &mut scratch)?;
    let using = options.using.on(&options.device);
    let stays = options.keep_persistent || !using.has(Means::Swap);
    let network = Network { recorded, program: &program, using, stays };
    let mut idle = IdleBlocks::lend(rows.len(), blocks, &mut scratch);
    // In another order other blocks may be idle.
    let moves = |o| network.using.has(Means::Order) && !recorded.is_ordered(program.op(o));
    let moves = (0..program.accessing).any(moves);
    let mut sources = Sources::lend(blocks, &mut scratch);
    if network.using.has(Means::Recompute) {
        sources.find(&network);
    }
    idle.find(&program, |idle| {
        let counts = !moves && !network.stays(idle.block) && idle.has_value(&program) && idle.is_read(&program);
        if !counts || network.reads_masks(idle.to) {
            return None;
        }
        // A value with a source cannot be recomputed, but may be copied as soon as the source is written.
        let idle = Idle { writer: sources.source(&network, &idle).or(idle.writer), ..idle };
        let leaves = using.has(Means::Swap) || idle.writer.is_some_and(|writer| network.recomputes(writer));
        (idles == Idles::All || !leaves).then_some(idle)
    });
    let mut needs = Needs::lend(rows.len(), blocks, &mut scratch);
    needs.find(&network, &idle);
    let mut returns = Returns::lend(rows.len(), blocks, &mut scratch);
    returns.price(&network, &idle, &needs);
    for &operator in needs.by_need.first(program.accessing.min(few)) {
        let excess = needs.need[operator].saturating_sub(options.limit);
        if excess == 0 {
            break;
        }
        returns.away.find_in(operator, &program, &idle);
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

    fn reads_masks(&self, o: u32) -> bool {
        self.using.has(Means::Relu) && self.operator(o).kind == Kind::ReluBackward
    }
}

record! {
    struct Source {
        writer: Option<u32>,
        changes: bool,
        last: u32,
        /// Noted for one block only: to keep the source is enough for all of them.
        kept_for: Option<BlockId>,
    }
}

workspace! {
    struct Sources<'a>(blocks) {
        records {
            block[BlockId]: Source[blocks],
        }
    }
}

impl Sources<'_> {
    fn find(&mut self, network: &Network<'_>) {
        let program = network.program;
        for o in 0..program.accessing {
            for r in program.accesses(o) {
                let mut source = self.block.get(r.block_id());
                if r.event == Event::Write {
                    source.changes |= source.writer.is_some_and(|writer| writer != o);
                    source.writer = Some(o);
                }
                self.block.set(r.block_id(), Source { last: o, ..source });
            }
        }
    }

    /// Returns the source's writer. A source serves one block only.
    fn source(&mut self, network: &Network<'_>, idle: &Idle) -> Option<u32> {
        let program = network.program;
        let writer = idle.writer.filter(|&writer| network.recomputes(writer))?;
        for block in program.accesses(writer).filter(|r| r.event == Event::Read).map(|r| r.block_id()) {
            let source = self.block.get(block);
            let is_over = source.last <= idle.from && !program.is_persistent(block) && !source.changes;
            let is_free = source.kept_for.is_none_or(|other| other == idle.block);
            if let Some(of_source) = source.writer
                && (is_over && is_free && of_source < writer && !network.recomputes(of_source))
                && program.size[block] >= program.size[idle.block]
            {
                self.block.set(block, Source { kept_for: Some(idle.block), ..source });
                return Some(of_source);
            }
        }
        None
    }
}

workspace! {
    struct Needs<'a>(rows, blocks) {
        tables {
            need: u64[rows + 1],
            by_need: u32[rows + 1],
            aside: u32[rows + 1],
            written: u64[rows + 1],
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
        for o in 0..program.accessing {
            for r in program.accesses(o).filter(|r| r.event == Event::Write) {
                if self.counts(r.block_id(), o) {
                    self.written[o] = self.written[o].saturating_add(program.size[r.block_id()]);
                }
            }
        }
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
            by_cost: u32[rows + blocks],
            aside: u32[rows + blocks],
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
    fn price(&mut self, network: &Network<'_>, idle: &IdleBlocks<'_>, needs: &Needs<'_>) {
        let Network { program, using, .. } = *network;
        (self.swaps, self.ever) = (using.has(Means::Swap), idle.list.len());
        let per_byte = |w: u32| bytes(program.duration(w)) / bytes(needs.written[w].max(1));
        for (k, idle) in idle.numbered() {
            self.cost[k] =
                idle.writer.filter(|&writer| network.recomputes(writer)).map_or(f64::INFINITY, per_byte).to_bits();
        }
        let Self { cost, by_cost, aside, .. } = self;
        sort::identity(by_cost, idle.list.len());
        sort::by_key(by_cost, idle.list.len(), aside, |k| cost[IdleId::of(k)]);
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
            let copied = if self.swaps { self.away.copied(&options.device, delay) } else { 0.0 };
            copied + self.recomputed(delay.after)
        });
        most >= enough
    }

    fn recomputed(&self, overhead: f64) -> f64 {
        let (mut left, mut sum) = (overhead, 0.0);
        for k in self.by_cost.first(self.ever).iter().map(|&k| IdleId::of(k)) {
            let Some(block) = self.away.index.get(k) else { continue };
            let (size, cost) = (bytes(self.away.size[block]), f64::from_bits(self.cost[k]));
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

#[cfg(test)]
mod tests;
