//! The memory in which schedules are made: the trace after recomputation and before swaps, the schedule that was
//! written and placed last, and the best one so far.

use core::ops::ControlFlow;

use super::watch::{Progress, Watch, Watched};
use super::{Lengths, Options, Output, interim_rows};
use crate::place::{self, Solver};
use crate::rewrite::flat::Flat;
use crate::rewrite::means::order::Reordering;
use crate::rewrite::means::recompute::Recomputer;
use crate::rewrite::means::swap::{Policy, Swapper};
use crate::rewrite::means::{Rewritten, in_place};
use crate::simulate::{self, Timing};
use crate::table::Table;
use crate::trace::{Event, Op, Recorded, Row, liveness, liveness::Residency};
use crate::verify::schedule::{self as verify, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

/// A placement of at most [`MOST_SEARCHED`] blocks is also searched for in a tree, where each node stands for offsets
/// of some of the blocks. The search may look at this many nodes. That is enough to place most schedules whose load is
/// within the limit; the others would take far more nodes.
const NODES: u64 = 6_700;
/// The most blocks for which the tree search for a placement runs. With more blocks it finds nothing within the nodes
/// that it may look at, so that only heuristics place them.
const MOST_SEARCHED: u64 = 600;
/// A placement is given up if its peak exceeds the limit by more than the limit divided by this: another schedule is
/// needed then. [`Within`] says how many blocks are placed at least before this.
const FAR: u64 = 64;
/// The work that the heuristics may do for one placement, in blocks placed. The number is low because many placements
/// are made, and because a few starts of the heuristics, each of which places all blocks, mostly show whether a
/// schedule fits.
const WORK: u64 = 50_000;
/// The heuristics for a placement start many times, each time to place all blocks by another rule or at random. They
/// may start this many times even if that takes more work than [`WORK`].
const STARTS: u64 = 9;
/// The work that the heuristics may do for one placement where operators are recomputed, in blocks placed: more than
/// [`WORK`], as more blocks live for a short time there, and are harder to place well.
pub(super) const WORK_RECOMPUTING: u64 = 150_000;
/// Where operators are recomputed, the heuristics for a placement may start this many times, each time to place all
/// blocks, even if that takes more work than [`WORK_RECOMPUTING`].
const STARTS_RECOMPUTING: u64 = 64;
/// The most work that is counted for one placement: this many times the work that its heuristics may do. Each time that
/// a placement reports its progress, all blocks are counted as placed once more. The heuristics report after each plan.
/// Other methods report more often than that, so that their sum would be too high without a limit.
const MOST_COST: u64 = 4;
/// A schedule is not worth making if the time that it is planned to add to the original is at least this many times
/// what the best schedule adds: a search that goes on from it is not likely to gain so much.
pub(super) const HOPELESS: f64 = 1.25;

/// The most work, in blocks placed, that may be spent on one order of the operators once a schedule fits: about half a
/// minute. A fit does so much work only for recordings of more than about 10,000 rows.
pub(super) const MOST: u64 = 100_000_000;
/// The work that may be spent on one order of the operators, [`MOST`] blocks placed, is lowered by this many blocks
/// placed for each row of the recording, but to no less than a quarter of `MOST`. That stands for work that is not
/// counted where it is done: the rows of traces are written and gone through many times.
const ROW: u64 = 450;

/// The trace in which recomputation is planned first, and then swaps.
#[derive(Clone, Copy)]
pub(super) struct Base<'s> {
    /// The recording, with its operators in the recorded order and sizes that are not rounded up.
    pub(super) original: &'s Recorded<'s>,
    /// The recording, with its operators in the order `reordering` and sizes rounded up to the alignment; or what masks
    /// and in-place reuse have made of this.
    pub(super) trace: Rewritten<'s>,
    /// The order in which the operators of the trace run; none is the recorded one.
    pub(super) reordering: Option<Reordering>,
}

/// The best schedule that was made, and room for the next one.
pub(super) struct Stage<'a, 'w> {
    /// The trace after recomputation, in which swaps are planned.
    pub(super) interim: &'a mut [Row],
    /// The schedule that was written and placed last.
    pub(super) made: Placed<'a, 'w>,
    /// The best schedule so far.
    pub(super) kept: Kept<'a, 'w>,
}

/// A rewritten trace, and the offset of each of its *residencies*: the live ranges of blocks on the device, from a
/// malloc to its free.
pub(super) struct Placed<'a, 'w> {
    /// Room for the rows, of which the first `len` are in use.
    rows: &'a mut [Row],
    timings: &'a mut [Timing],
    blocks: &'a mut [Block],
    names: &'a mut [Residency],
    offsets: &'a mut [u64],
    /// For each live range of a block on the device, the index in `blocks` of the block that is placed for it. Used
    /// only where operators write in place: one block may then be placed for several live ranges.
    part_of: &'w mut [u32],
    /// Whether operators write in place: the live ranges of an input and of the output written over it may then be
    /// placed as one block.
    in_place: bool,
    /// The alignment of all offsets, in bytes.
    alignment: u64,
    /// How many of the `rows` are in use.
    len: usize,
    /// How many live ranges the blocks of the trace have on the device.
    residencies: usize,
    /// How many blocks the latest call of [`Placed::place`] placed: one for each live range of a block on the device,
    /// or fewer where operators write in place, since several live ranges may then be one block.
    merged: usize,
    /// The work that all placements so far took together, in blocks placed: each start of the heuristics places all
    /// blocks.
    cost: u64,
}

/// The best schedule that fits, and what limits the search for better ones: the cutoff on the time that a schedule adds
/// to the original, and the budget of work.
pub(super) struct Kept<'a, 'w> {
    rows: &'a mut [Row],
    offsets: Table<'w, u64>,
    best: Option<Best>,
    /// The cutoff: a schedule that adds at least this many ns to the original is not worth making. Infinite for a new
    /// trace ([`Stage::forget`]); each schedule that fits lowers it to the time that it adds, if that is less.
    /// [`Kept::loosen`] sets it anew for a while.
    cutoff: f64,
    /// The work spent on plans and placements since [`Kept::begin`], in blocks placed.
    spent: u64,
    /// The budget of work while no schedule fits, in blocks placed.
    patience: u64,
    /// The end of the work on the present order of the operators, in blocks placed: once a schedule fits, another order
    /// follows when `spent` exceeds this.
    end: u64,
    pub(super) watched: Watched<'w>,
}

/// What is kept of the best schedule beside its rows and offsets. The best schedule fits, and adds least time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Best {
    /// The time, in ns, that the best schedule adds to the original.
    overhead: f64,
    /// The policy that decided which blocks are swapped.
    policy: Policy,
    /// The footprint of the best schedule: the bytes that it takes on the device.
    footprint: u64,
    /// How many rows the best schedule has.
    rows: usize,
    /// How many live ranges the blocks have on the device in the best schedule.
    residencies: usize,
}

/// When the placement of a schedule is given up: if its peak exceeds the limit by more than the limit divided by
/// [`FAR`]. Before that, at least `few` blocks have to be placed, and the heuristics have to start [`STARTS`] times or,
/// where operators are recomputed, [`STARTS_RECOMPUTING`] times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Within {
    /// The limit for the peak of the placement, in bytes.
    pub(super) limit: u64,
    /// How many blocks are placed at least, in all starts of the heuristics together, before a placement is given up.
    pub(super) few: u64,
}

/// Length of the workspace of a [`Stage`], in which schedules are made.
pub(super) const fn workspace(lengths: Lengths) -> WorkspaceLen {
    WorkspaceLen { words: lengths.residencies, indices: lengths.residencies }
}

impl<'a, 'w> Stage<'a, 'w> {
    pub(super) fn new(
        lengths: Lengths,
        recorded: usize,
        alignment: u64,
        output: Output<'a>,
        watch: Watch<'w>,
        scratch: &mut Workspace<'w>,
    ) -> Self {
        let Output { rows, timings, blocks, names, offsets } = output;
        let (interim, rows) = rows.split_at_mut_checked(interim_rows(recorded)).unwrap_or_default();
        let (rows, kept) = rows.split_at_mut_checked(lengths.timings).unwrap_or_default();
        let (offsets_kept, watched) = (scratch.words(lengths.residencies), Watched::new(watch));
        let kept = Kept {
            rows: kept,
            offsets: offsets_kept,
            best: None,
            cutoff: f64::INFINITY,
            spent: 0,
            patience: 0,
            end: 0,
            watched,
        };
        let part_of = scratch.indices(lengths.residencies).into_slice();
        let made = Placed {
            rows,
            timings,
            blocks,
            names,
            offsets,
            part_of,
            in_place: false,
            alignment,
            len: 0,
            residencies: 0,
            merged: 0,
            cost: 0,
        };
        Self { interim, made, kept }
    }

    /// The time, in ns, that the best schedule adds to the original; infinite if no schedule fits.
    pub(super) fn overhead(&self) -> f64 {
        self.kept.best.map_or(f64::INFINITY, |best| best.overhead)
    }

    /// Whether the caller's watch function has ended the work.
    pub(super) const fn stopped(&self) -> bool {
        self.kept.watched.stopped()
    }

    /// Sets the cutoff on the added time to infinity: the schedules that follow are made even if they add more time
    /// than the best one. The best schedule is kept.
    pub(super) fn forget(&mut self) {
        self.kept.cutoff = f64::INFINITY;
    }

    /// Writes the trace in which swaps are planned next, and returns how many rows it has. It is the trace of `base`
    /// or, if `rerun`, that trace with the recomputations of the best plan that `recomputer` has. `Err` if a row of the
    /// trace is invalid or the workspace is too short.
    pub(super) fn between(
        &mut self,
        base: Base<'_>,
        recomputer: &Recomputer<'_>,
        rerun: bool,
        mut scratch: Workspace<'_>,
    ) -> Result<usize, Error> {
        // The rows before in-place reuse are written to `made`, whose rows are overwritten by the next schedule anyway.
        let Self { interim, made: Placed { rows: aside, in_place, .. }, .. } = self;
        *in_place = base.trace.in_place;
        if !rerun {
            for (row, &r) in interim.iter_mut().zip(base.trace.shared) {
                *row = r;
            }
            return Ok(base.trace.shared.len());
        }
        if !base.trace.in_place {
            return recomputer.rows(scratch, interim);
        }
        let rows = recomputer.rows(scratch.reborrow(), aside)?;
        in_place::rewrite(base.original, aside.get(..rows).unwrap_or_default(), scratch, interim)
    }

    /// Gives the blocks of the best schedule their recorded sizes and its rows their times, has the schedule verified,
    /// and returns it with the policy that made it. Fails with [`Error::OverLimit`] if no schedule fits, or with the
    /// error that the simulation or the verification finds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    pub(super) fn prove(
        self,
        recorded: &Recorded<'_>,
        options: &Options,
        mut scratch: Workspace<'_>,
    ) -> Result<(VerifiedSchedule<'a>, Policy), Error> {
        let Self { made, kept: Kept { rows: kept, offsets: kept_offsets, best, .. }, .. } = self;
        let Best { policy, rows, residencies, .. } =
            best.ok_or(Error::OverLimit { least: u64::MAX, limit: options.limit })?;
        let Placed { timings, blocks, names, offsets, .. } = made;
        let rows = kept.get_mut(..rows).unwrap_or_default();
        let timings = timings.get_mut(..rows.len()).unwrap_or_default();
        let offsets = offsets.get_mut(..residencies).unwrap_or_default();
        unalign(recorded, rows, scratch.reborrow());
        for (kept, offset) in (0..).zip(&mut *offsets) {
            *offset = kept_offsets[kept];
        }
        simulate::simulate(recorded, rows, &options.device, scratch.reborrow(), timings)?;
        for (row, timing) in rows.iter_mut().zip(&*timings) {
            let copy = matches!(row.event, Event::SwapOut | Event::SwapIn);
            row.time_ns = libm::round(if copy { timing.reached } else { timing.end }) as u64;
        }
        let schedule = verify::schedule(
            recorded,
            rows,
            offsets,
            (&options.device, true),
            &Constraints { alignment: options.alignment, capacity: Some(options.limit) },
            scratch,
            Room {
                timings,
                blocks: blocks.get_mut(..residencies).unwrap_or_default(),
                names: names.get_mut(..residencies).unwrap_or_default(),
            },
        )?;
        Ok((schedule, policy))
    }
}

/// Gives the blocks in `rows`, whose sizes are rounded up to the alignment, the sizes that they were recorded with. Bit
/// masks keep the sizes that they have.
fn unalign(recorded: &Recorded<'_>, rows: &mut [Row], mut scratch: Workspace<'_>) {
    let mut size = scratch.words(recorded.blocks);
    for r in recorded.rows.iter().filter(|r| r.event == Event::Malloc) {
        size[r.block] = r.bytes;
    }
    for r in rows.iter_mut().filter(|r| r.event == Event::Malloc && recorded.masked(r.block).is_none()) {
        r.bytes = size[r.block];
    }
}

impl<'a> Kept<'a, '_> {
    /// The cutoff, in ns: a schedule that adds at least this much time to the original is not worth making. Minus
    /// infinity once the caller has ended the work: nothing is worth making then.
    pub(super) fn cutoff(&self) -> f64 {
        if self.watched.stopped() { f64::NEG_INFINITY } else { self.cutoff }
    }

    /// Sets the cutoff on the added time to [`HOPELESS`] times what the best schedule of all traces adds, or to
    /// infinity if there is none. So schedules that are planned to take a little longer than the best are made too,
    /// since the search may go on from them to better ones. Returns the cutoff that was set before, in ns.
    pub(super) fn loosen(&mut self) -> f64 {
        let cutoff = self.best.map_or(f64::INFINITY, |best| best.overhead * HOPELESS);
        core::mem::replace(&mut self.cutoff, cutoff)
    }

    /// The footprint of the best schedule, in bytes; none if nothing fits.
    pub(super) fn footprint(&self) -> Option<u64> {
        self.best.map(|best| best.footprint)
    }

    /// Begins to count work anew. Sets the work spent to 0, and the budget of work while no schedule fits to
    /// `patience`, in blocks placed.
    pub(super) const fn begin(&mut self, patience: u64) {
        (self.spent, self.patience) = (0, patience);
    }

    /// Adds `blocks` to the work that was spent, which is counted in blocks placed.
    pub(super) const fn spend(&mut self, blocks: u64) {
        self.spent = self.spent.saturating_add(blocks);
    }

    /// Notes that another order of the operators is tried from now on, and sets the budget of work that it has once a
    /// schedule fits. The budget follows from `rows`, the number of rows of the recording, and is the same for each
    /// order.
    pub(super) fn begin_order(&mut self, rows: usize) {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        let work = MOST.saturating_sub(rows.saturating_mul(ROW)).max(MOST / 4);
        self.end = self.spent.saturating_add(work);
    }

    /// Whether the budget of work is used up. While no schedule fits, all orders of the operators share one budget;
    /// once one fits, each order has a budget of its own.
    pub(super) const fn is_spent(&self) -> bool {
        self.spent > if self.best.is_some() { self.end } else { self.patience }
    }

    /// Whether a schedule fits, and the budget of work for the present order of the operators is used up.
    pub(super) const fn is_enough(&self) -> bool {
        self.best.is_some() && self.is_spent()
    }

    /// Drops the best schedule, and sets the cutoff on the added time to infinity: the next schedule is worth making
    /// however long it takes.
    pub(super) fn clear(&mut self) {
        self.best = None;
        self.cutoff = f64::INFINITY;
    }

    /// Lowers the cutoff on the added time to `cutoff` ns, unless it is lower already: schedules that add this time or
    /// more are not worth making from then on.
    pub(super) fn recall(&mut self, cutoff: f64) {
        self.cutoff = self.cutoff.min(cutoff);
    }

    /// Keeps the schedule in `made` as the best, if it adds less time to the original than the best so far. It adds
    /// `overhead` ns and takes `footprint` bytes on the device; `policy` decided which blocks it swaps. Whether it is
    /// kept or not, a cutoff on the added time that is above `overhead` is lowered to `overhead`. If it is kept, the
    /// memory of the schedule that was the best becomes room for the next one.
    pub(super) fn offer(&mut self, made: &mut Placed<'a, '_>, (overhead, footprint): (f64, u64), policy: Policy) {
        self.recall(overhead);
        if self.best.is_some_and(|best| best.overhead <= overhead) {
            return;
        }
        core::mem::swap(&mut self.rows, &mut made.rows);
        if made.in_place {
            let offsets = made.offsets.get_mut(..made.residencies).unwrap_or_default();
            liveness::spread(made.part_of.get(..made.residencies).unwrap_or_default(), offsets);
        }
        for (kept, &offset) in (0..).zip(made.offsets.iter().take(made.residencies)) {
            self.offsets[kept] = offset;
        }
        self.best = Some(Best { overhead, policy, footprint, rows: made.len, residencies: made.residencies });
    }
}

impl Placed<'_, '_> {
    /// Room for the times of a schedule of `rows` rows, one for each row; empty if there is not so much room.
    pub(super) fn timings(&mut self, rows: usize) -> &mut [Timing] {
        self.timings.get_mut(..rows).unwrap_or_default()
    }

    /// The rows of the schedule that [`Placed::place`] wrote last. Not to be called once [`Kept::offer`] has kept the
    /// schedule, since `offer` exchanges the rows.
    pub(super) fn rows(&self) -> &[Row] {
        self.rows.get(..self.len).unwrap_or_default()
    }

    /// All blocks of the latest placement, and their offsets in bytes; the second slice may be longer. Not to be called
    /// once [`Kept::offer`] has kept the schedule, since `offer` may change the offsets.
    pub(super) fn blocks(&self) -> (&[Block], &[u64]) {
        (self.blocks.get(..self.merged).unwrap_or_default(), self.offsets)
    }

    /// The work that all placements so far took together, in blocks placed.
    pub(super) const fn blocks_placed(&self) -> u64 {
        self.cost
    }

    /// Writes the rows of the schedule that `swapper` has planned, and places the live ranges of its blocks on the
    /// device. `flat` gives the blocks and operators in the rows their recorded numbers again. `seed` is for random
    /// choices, and `watched` is told that work goes on. `within` says when the placement is given up; `None` means
    /// never. Returns the peak in bytes, which may be above the limit; `None` if there is no room for the rows or the
    /// live ranges. `Err` if a row of the trace is invalid or the workspace is too short.
    pub(super) fn place(
        &mut self,
        recorded: &Recorded<'_>,
        seed: u64,
        within: Option<Within>,
        watched: &mut Watched<'_>,
        (swapper, flat): (&mut Swapper<'_>, &Flat<'_>),
        mut scratch: Workspace<'_>,
    ) -> Result<Option<u64>, Error> {
        let Self { rows, blocks, names, offsets, part_of, in_place, alignment, .. } = self;
        let written = swapper.rows(rows);
        let residencies = written.and_then(|len| {
            let rows = rows.get_mut(..len).unwrap_or_default();
            flat.restore(rows);
            let residencies = liveness::lifetimes(rows, recorded.numbers(), scratch.reborrow(), blocks, names)?;
            let merged = if *in_place {
                liveness::merge(rows, recorded.numbers(), scratch.reborrow(), blocks, part_of)?
            } else {
                residencies
            };
            Ok((len, residencies, merged))
        });
        (self.len, self.residencies, self.merged) = match residencies {
            Ok(lengths) => lengths,
            Err(Error::BufferTooSmall { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let blocks = blocks.get(..self.merged).unwrap_or_default();
        let offsets = offsets.get_mut(..self.merged).unwrap_or_default();
        let constraints = Constraints { alignment: *alignment, capacity: within.map(|within| within.limit) };
        let recomputes = rows.iter().take(self.len).any(|r| matches!(r.op, Op::Rerun(_)));
        let residencies = blocks.len() as u64;
        let (work, starts) = if recomputes { (WORK_RECOMPUTING, STARTS_RECOMPUTING) } else { (WORK, STARTS) };
        let starts = starts * residencies;
        let work = work.max(starts);
        let (far, few) = within.map_or((u64::MAX, 0), |Within { limit, few }| (limit.saturating_add(limit / FAR), few));
        let mut cost = 0u64;
        // The placement calls this after each plan that a heuristic has made, and now and then during other methods.
        // Each call is counted as one placement of all residencies. The placement is given up if enough residencies
        // were placed, and the peak is still far above the limit.
        let mut watch = |now: &place::Summary| {
            cost = residencies.saturating_add(cost);
            watched.tell(&Progress::Working)?;
            let hopeless = cost > few.max(starts) && now.peak > far;
            if hopeless { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let nodes = if residencies > MOST_SEARCHED { 0 } else { NODES };
        let options = place::Options { constraints, seed, work, nodes, ..place::Options::default() };
        let placed = place::place_watched(Solver::Auto, blocks, &options, scratch, offsets, &mut watch);
        self.cost = self.cost.saturating_add(cost.min(work.saturating_mul(MOST_COST)));
        match placed {
            Ok(place::Summary { peak, .. }) | Err(Error::OverCapacity { peak, .. }) => Ok(Some(peak)),
            Err(e) => Err(e),
        }
    }
}
