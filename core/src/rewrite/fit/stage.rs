//! The memory in which schedules are made: the trace after recomputation and before swaps, the schedule that was
//! written and placed last, and the best one so far.

use core::ops::ControlFlow;

use super::budget::Budget;
use super::watch::{Progress, Watch, Watched};
use super::{Lengths, Options, Output, interim_rows};
use crate::place::{self, Solver};
use crate::rewrite::flat::Flat;
use crate::rewrite::means::order::Reordering;
use crate::rewrite::means::recompute::Recomputer;
use crate::rewrite::means::swap::Swapper;
use crate::rewrite::means::{Rewritten, in_place};
use crate::simulate::{self, Timing};
use crate::table::Table;
use crate::trace::{Event, Op, Recorded, Row, liveness, liveness::Residency};
use crate::verify::schedule::{self as verify, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

/// Enough to place most schedules whose load is within the limit.
const NODES: u64 = 6_700;
/// With more blocks the tree search finds nothing within its nodes.
const MOST_SEARCHED: u64 = 600;
/// A placement is given up above the limit by more than limit / `FAR`.
const FAR: u64 = 64;
/// In blocks placed. Low: many placements are made, and a few starts show whether a schedule fits.
const WORK: u64 = 50_000;
const STARTS: u64 = 9;
pub(super) const WORK_RECOMPUTING: u64 = 150_000;
const STARTS_RECOMPUTING: u64 = 64;
/// Caps the count: each report counts all blocks, and some methods report often.
const MOST_COST: u64 = 4;
pub(super) const HOPELESS: f64 = 1.25;

#[derive(Clone, Copy)]
pub(super) struct Variant<'s> {
    pub(super) original: &'s Recorded<'s>,
    pub(super) trace: Rewritten<'s>,
    pub(super) reordering: Option<Reordering>,
}

impl Variant<'_> {
    pub(super) fn is_as_recorded(&self, recorded: &Recorded<'_>) -> bool {
        core::ptr::eq(self.trace.shared, recorded.rows)
    }
}

pub(super) struct Stage<'a, 'w> {
    pub(super) interim: &'a mut [Row],
    pub(super) made: Placed<'a, 'w>,
    pub(super) kept: Kept<'a, 'w>,
}

pub(super) struct Placed<'a, 'w> {
    rows: &'a mut [Row],
    timings: &'a mut [Timing],
    blocks: &'a mut [Block],
    names: &'a mut [Residency],
    offsets: &'a mut [u64],
    /// Of each live range, its block in `blocks`; only where operators write in place.
    part_of: &'w mut [u32],
    in_place: bool,
    alignment: u64,
    len: usize,
    residencies: usize,
    merged: usize,
    cost: u64,
}

pub(super) struct Kept<'a, 'w> {
    rows: &'a mut [Row],
    offsets: Table<'w, u64>,
    best: Option<Best>,
    /// In ns: what takes longer is not worth making. Infinite for a new variant.
    cutoff: f64,
    pub(super) budget: Budget,
    pub(super) watched: Watched<'w>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Best {
    overhead: f64,
    footprint: u64,
    rows: usize,
    residencies: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Within {
    pub(super) limit: u64,
    pub(super) few: u64,
}

pub(super) const fn workspace(lengths: Lengths) -> WorkspaceLen {
    WorkspaceLen { words: lengths.residencies, indices: lengths.residencies }
}

impl<'a, 'w> Stage<'a, 'w> {
    pub(super) fn new(
        lengths: Lengths,
        recorded: usize,
        alignment: u64,
        output: Output<'a>,
        (watch, budget): (Watch<'w>, Budget),
        scratch: &mut Workspace<'w>,
    ) -> Self {
        let Output { rows, timings, blocks, names, offsets } = output;
        let (interim, rows) = rows.split_at_mut_checked(interim_rows(recorded)).unwrap_or_default();
        let (rows, kept) = rows.split_at_mut_checked(lengths.timings).unwrap_or_default();
        let (offsets_kept, watched) = (scratch.words(lengths.residencies), Watched::new(watch));
        let kept = Kept { rows: kept, offsets: offsets_kept, best: None, cutoff: f64::INFINITY, budget, watched };
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

    pub(super) fn overhead(&self) -> f64 {
        self.kept.best.map_or(f64::INFINITY, |best| best.overhead)
    }

    pub(super) const fn stopped(&self) -> bool {
        self.kept.watched.stopped()
    }

    /// What one variant costs says nothing of the next.
    pub(super) fn begin_variant(&mut self) {
        self.kept.cutoff = f64::INFINITY;
    }

    pub(super) fn between(
        &mut self,
        variant: Variant<'_>,
        recomputer: &Recomputer<'_>,
        rerun: bool,
        mut scratch: Workspace<'_>,
    ) -> Result<usize, Error> {
        // The rows before in-place reuse are written to `made`, whose rows are overwritten by the next schedule anyway.
        let Self { interim, made: Placed { rows: aside, in_place, .. }, .. } = self;
        *in_place = variant.trace.in_place;
        if !rerun {
            for (row, &r) in interim.iter_mut().zip(variant.trace.shared) {
                *row = r;
            }
            return Ok(variant.trace.shared.len());
        }
        if !variant.trace.in_place {
            return recomputer.rows(scratch, interim);
        }
        let rows = recomputer.rows(scratch.reborrow(), aside)?;
        in_place::rewrite(variant.original, aside.get(..rows).unwrap_or_default(), scratch, interim)
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    pub(super) fn prove(
        self,
        recorded: &Recorded<'_>,
        options: &Options,
        mut scratch: Workspace<'_>,
    ) -> Result<VerifiedSchedule<'a>, Error> {
        let Self { made, kept: Kept { rows: kept, offsets: kept_offsets, best, .. }, .. } = self;
        let Best { rows, residencies, .. } = best.ok_or(Error::OverLimit { least: u64::MAX, limit: options.limit })?;
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
        verify::schedule(
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
        )
    }
}

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
    /// Minus infinity once the caller has ended the work.
    pub(super) fn cutoff(&self) -> f64 {
        if self.watched.stopped() { f64::NEG_INFINITY } else { self.cutoff }
    }

    pub(super) fn loosen(&mut self) -> f64 {
        let cutoff = self.best.map_or(f64::INFINITY, |best| best.overhead * HOPELESS);
        core::mem::replace(&mut self.cutoff, cutoff)
    }

    pub(super) fn footprint(&self) -> Option<u64> {
        self.best.map(|best| best.footprint)
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.budget.is_spent(self.best.is_some())
    }

    pub(super) const fn halfway(&self) -> u64 {
        self.budget.halfway(self.best.is_some())
    }

    pub(super) const fn is_enough(&self) -> bool {
        self.best.is_some() && self.is_spent()
    }

    pub(super) fn clear(&mut self) {
        self.best = None;
        self.cutoff = f64::INFINITY;
    }

    pub(super) fn lower_cutoff(&mut self, cutoff: f64) {
        self.cutoff = self.cutoff.min(cutoff);
    }

    /// If it is kept, the memory of the old best becomes room for the next. `overhead` is in ns.
    pub(super) fn consider(&mut self, made: &mut Placed<'a, '_>, overhead: f64, footprint: u64) {
        self.lower_cutoff(overhead);
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
        self.best = Some(Best { overhead, footprint, rows: made.len, residencies: made.residencies });
    }
}

impl Placed<'_, '_> {
    pub(super) fn timings(&mut self, rows: usize) -> &mut [Timing] {
        self.timings.get_mut(..rows).unwrap_or_default()
    }

    /// Not to be called after [`Kept::consider`], which exchanges the rows.
    pub(super) fn rows(&self) -> &[Row] {
        self.rows.get(..self.len).unwrap_or_default()
    }

    pub(super) fn blocks(&self) -> (&[Block], &[u64]) {
        (self.blocks.get(..self.merged).unwrap_or_default(), self.offsets)
    }

    pub(super) const fn blocks_placed(&self) -> u64 {
        self.cost
    }

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
        // Called after each plan of a heuristic; each call counts as one placement of all residencies.
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
