//! The work on one trace: arrangements of means are tried, and the best of what they make is kept.

use core::ops::ControlFlow;

use super::{Lengths, Options, Output, interim_rows, masked_rows};
use crate::place::{self, Solver, search};
use crate::rewrite::flat::{self, Flat};
use crate::rewrite::in_place;
use crate::rewrite::recompute::{self, Recomputer};
use crate::rewrite::swap::{self, Policy, Swapper};
use crate::simulate::{self, Timing};
use crate::table::Table;
use crate::trace::{Event, Op, Recorded, Row, liveness, liveness::Stay};
use crate::verify::schedule::{self as verify, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen};

/// How often a policy plans.
const ATTEMPTS: u32 = 14;
/// How often the search plans at most: where a placement fits, it goes on with less memory held back, until so many blocks
/// have been placed, for each row of the trace and at least.
const SEARCHES: u32 = 48;
const ENOUGH: u64 = 200;
const ENOUGH_LEAST: u64 = 1_200_000;
/// What the search for a schedule may do while a block is placed.
const WORK_PER_BLOCK: u64 = 40;
/// A policy that plans this part of the whole time above the best does not come below it by holding memory back.
const HOPELESS: f64 = 0.005;
/// The part of its work that the search may do each time but the first.
const AGAIN: u64 = 12;
/// How often what runs again is chosen, with memory held back.
const CHOICES: u32 = 10;
/// Where the heuristics miss the limit, the search for a placement may look at this many nodes of its tree for a thousand
/// stays, and at fewer with the cube of their number: a node costs more too.
const NODES: u64 = 160;
/// With more stays than these, where nothing runs again, the search finds nothing in so few nodes.
const MOST_SEARCHED: u64 = 600;
/// Where heuristics that have placed so many blocks are above the limit by more than one part in `FAR` of it, they give
/// up: it takes another schedule. The search plans more often than the others, and places less each time.
const FEW: u64 = 20_000;
const FEW_OF_SEARCH: u64 = 12_000;
const FAR: u64 = 64;
/// But not before they have begun so often.
const STARTS: u64 = 9;
/// What the heuristics may do each time, in blocks placed: many placements are made, and most of them fit or do not
/// within a few starts.
const WORK: u64 = 50_000;
/// The same where operators run again: more blocks live for a short time there, and it takes more to place them well.
const WORK_AGAIN: u64 = 150_000;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrangement<'p> {
    /// Whether operators run again.
    pub(super) again: bool,
    pub(super) swaps: Swaps<'p>,
    /// How much the choice of what runs again may do, and how much the choice of what is swapped.
    pub(super) choice: u64,
    pub(super) work: u64,
}

/// Who swaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Swaps<'p> {
    /// Nobody.
    None,
    /// These, one after the other.
    By(&'p [Policy]),
    /// The search, from the absences that were taken for granted when operators were chosen to run again.
    Absences,
    /// The same, where absences were chosen together with what runs again.
    Together,
}

/// How a trial ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trial {
    /// There is a schedule that fits.
    Fits,
    /// The last placement is above the limit.
    Over,
    /// There is no schedule within the limit that takes less time than the best.
    Fails,
}

/// The best that fits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Best {
    /// What it takes longer than the original, in ns.
    overhead: f64,
    policy: Policy,
    rows: usize,
    stays: usize,
}

/// The trace that swaps and second runs begin with.
#[derive(Clone, Copy)]
pub(super) struct Base<'s> {
    /// As recorded, or with masks.
    pub(super) rows: &'s [Row],
    /// The same, where operators work in place if they shall.
    pub(super) handed: &'s [Row],
    /// Whether operators work in place.
    pub(super) in_place: bool,
}

/// The trace that is fitted, and the memory to do it in.
pub(super) struct Pass<'a, 'w, 's> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    base: Base<'s>,
    recomputer: Recomputer<'s>,
    scratch: Workspace<'s>,
    stage: Stage<'a, 'w>,
}

/// The best that was made, and the room for what is made next.
pub(super) struct Stage<'a, 'w> {
    /// The trace between two passes.
    interim: &'a mut [Row],
    made: Placed<'a, 'w>,
    /// The best rows, and where their stays lie.
    kept: &'a mut [Row],
    kept_offsets: Table<'w, u64>,
    best: Option<Best>,
}

/// A rewritten trace, and where its stays lie.
struct Placed<'a, 'w> {
    rows: &'a mut [Row],
    timings: &'a mut [Timing],
    blocks: &'a mut [Block],
    names: &'a mut [Stay],
    offsets: &'a mut [u64],
    /// The block of which each stay is a part: where memory is handed over in place, several are one for the placement.
    part_of: &'w mut [u32],
    in_place: bool,
    /// How much of them is in use.
    len: usize,
    stays: usize,
    /// How many blocks were placed.
    merged: usize,
}

/// Length of the workspace of a [`Stage`].
pub(super) const fn stage_workspace(lengths: Lengths) -> WorkspaceLen {
    WorkspaceLen { words: lengths.stays, indices: lengths.stays }
}

/// Length of the workspace of a [`Pass`], beside the recomputer's and the stage's; enough for [`Stage::prove`] too.
pub(super) const fn workspace(rows: usize, blocks: usize, lengths: Lengths) -> WorkspaceLen {
    let (base, most, stays) = (masked_rows(rows), interim_rows(rows), lengths.stays);
    // Up to so many stays the placement searches, which takes more than it does for a few more.
    let searched = if stays < search::MOST_BLOCKS { stays } else { search::MOST_BLOCKS };
    let judge = verify::workspace(rows, blocks, stays)
        .max(place::workspace_of(Solver::Auto, stays))
        .max(place::workspace_of(Solver::Auto, searched))
        .max(swap::rows_workspace(most))
        .max(liveness::workspace(2 * blocks))
        .max(liveness::merge_workspace(2 * blocks))
        .max(flat::making_workspace(rows, blocks));
    let trial =
        flat::workspace(most).and(swap::trace_workspace(most, most)).and(swap::workspace(most, most)).and(judge);
    let absent = WorkspaceLen { words: 2 * blocks, indices: 0 }
        .and(swap::trace_workspace(2 * base, 2 * blocks))
        .and(swap::workspace(2 * base, 2 * blocks));
    let held = WorkspaceLen { words: base + 1, indices: base + 2 };
    let handed = in_place::workspace(rows, recompute::most_rows(base), blocks);
    let segments = recompute::segments::workspace(base, 2 * blocks);
    trial.max(recompute::rows_workspace(base, 2 * blocks)).max(handed).max(held).max(absent).max(segments)
}

impl<'a, 'w> Stage<'a, 'w> {
    pub(super) fn new(lengths: Lengths, recorded: usize, output: Output<'a>, scratch: &mut Workspace<'w>) -> Self {
        let Output { rows, timings, blocks, names, offsets } = output;
        let (interim, rows) = rows.split_at_mut_checked(interim_rows(recorded)).unwrap_or_default();
        let (rows, kept) = rows.split_at_mut_checked(lengths.timings).unwrap_or_default();
        let kept_offsets = scratch.words(lengths.stays);
        let part_of = scratch.indices(lengths.stays).into_slice();
        let made =
            Placed { rows, timings, blocks, names, offsets, part_of, in_place: false, len: 0, stays: 0, merged: 0 };
        Self { interim, made, kept, kept_offsets, best: None }
    }

    /// What the best takes longer than the original, in ns.
    pub(super) fn bound(&self) -> f64 {
        self.best.map_or(f64::INFINITY, |best| best.overhead)
    }

    /// Has the best verified, and gives its rows their times; the policy that made it. To be called if there is one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    pub(super) fn prove(
        self,
        recorded: &Recorded<'_>,
        options: &Options,
        mut scratch: Workspace<'_>,
    ) -> Result<(VerifiedSchedule<'a>, Policy), Error> {
        let Self { made, kept, kept_offsets, best, .. } = self;
        let Best { policy, rows, stays, .. } =
            best.ok_or(Error::OverLimit { least: u64::MAX, limit: options.limit })?;
        let Placed { timings, blocks, names, offsets, .. } = made;
        let rows = kept.get_mut(..rows).unwrap_or_default();
        let timings = timings.get_mut(..rows.len()).unwrap_or_default();
        let offsets = offsets.get_mut(..stays).unwrap_or_default();
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
            &Constraints { alignment: 1, capacity: Some(options.limit) },
            scratch,
            Room {
                timings,
                blocks: blocks.get_mut(..stays).unwrap_or_default(),
                names: names.get_mut(..stays).unwrap_or_default(),
            },
        )?;
        Ok((schedule, policy))
    }
}

impl<'a, 'w, 's> Pass<'a, 'w, 's> {
    pub(super) const fn new(
        recorded: &'s Recorded<'s>,
        options: &'s Options,
        base: Base<'s>,
        recomputer: Recomputer<'s>,
        scratch: Workspace<'s>,
        stage: Stage<'a, 'w>,
    ) -> Self {
        Self { recorded, options, base, recomputer, scratch, stage }
    }

    /// Whether it begins with the trace as it was recorded.
    pub(super) fn is_as_recorded(&self) -> bool {
        self.base.handed == self.recorded.rows
    }

    pub(super) fn into_stage(self) -> Stage<'a, 'w> {
        self.stage
    }

    /// Tries an arrangement; what it makes is the best if it takes less time than what was.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(super) fn fit(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        if !arrangement.again {
            return self.trial(arrangement).map(|_| ());
        }
        let limit = self.options.limit;
        self.recomputer.held().fill(0);
        if !matches!(arrangement.swaps, Swaps::Absences | Swaps::Together) {
            self.recomputer.clear_absences();
        }
        let mut walked = self.recomputer.plan(limit, arrangement.choice, arrangement.swaps == Swaps::Together);
        for choice in 0..CHOICES {
            // What the walk says of waits for copies is a guess.
            let sure = arrangement.swaps != Swaps::Together;
            let fits = walked.is_some_and(|w| w.excess == 0 && !(sure && w.delay as f64 >= self.bound()));
            if !fits || self.trial(arrangement)? != Trial::Over {
                break;
            }
            self.hold(part(choice, CHOICES));
            walked = self.recomputer.again(limit, arrangement.choice / AGAIN);
        }
        if arrangement.swaps == Swaps::None { self.segments(arrangement) } else { Ok(()) }
    }

    /// Tries the published segments, where they promise less time than the best.
    fn segments(&mut self, arrangement: &Arrangement<'_>) -> Result<(), Error> {
        self.recomputer.held().fill(0);
        let mut tried = 0;
        loop {
            let (limit, most) = (self.options.limit, self.bound());
            let scratch = self.scratch.reborrow();
            let Some(plan) = self.recomputer.segments(self.recorded, limit, most, tried, scratch)? else {
                return Ok(());
            };
            tried |= 1 << plan;
            self.trial(arrangement)?;
        }
    }

    /// What an arrangement of absences takes longer than the original, in ns, before it is placed; none if it is not within
    /// the limit.
    pub(super) fn estimate(&mut self, arrangement: &Arrangement<'_>) -> Result<Option<f64>, Error> {
        let limit = self.options.limit;
        self.recomputer.held().fill(0);
        let walked = self.recomputer.plan(limit, arrangement.choice, arrangement.swaps == Swaps::Together);
        if walked.is_none_or(|walked| walked.excess > 0) {
            return Ok(None);
        }
        let Self { recorded, options, base, recomputer, scratch, stage } = self;
        let mut scratch = scratch.reborrow();
        let rows = stage.between(recorded, *base, recomputer, arrangement.again, scratch.reborrow())?;
        let Stage { interim, made, .. } = stage;
        let rows = interim.get_mut(..rows).unwrap_or_default();
        flattened(recorded, options, arrangement.swaps, rows, made, scratch, |flat, swapper, added, _, _| {
            let planned = from_absences(swapper, flat, recomputer, limit, arrangement.work);
            Ok(planned.map(|overhead| overhead + added))
        })
    }

    /// What the best takes longer than the original, in ns.
    pub(super) fn bound(&self) -> f64 {
        self.stage.bound()
    }

    /// Takes for granted that blocks are on the host that are dear to make again, as many as it takes to bring the load
    /// within `limit`. What that takes longer than the original, in ns; none if it cannot be.
    pub(super) fn absent(&mut self, limit: u64) -> Result<Option<f64>, Error> {
        let Self { recorded, options, base, recomputer, scratch, .. } = self;
        let mut scratch = scratch.reborrow();
        let mut dear = scratch.words(2 * recorded.blocks);
        recomputer.dearness(&mut dear);
        let trace = swap::Trace::new(base.handed, 2 * recorded.blocks, options.least_bytes, &mut scratch)?;
        let mut swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
        recomputer.clear_absences();
        let overhead = swapper.plan_by(limit, &|block| f64::from_bits(dear[block]));
        if overhead.is_some() {
            for (gap, positions) in swapper.away() {
                recomputer.add_absence(gap, positions);
            }
        }
        Ok(overhead)
    }

    /// What the quickest of the published schedules takes longer than the original, in ns; infinite if there is none.
    pub(super) fn quickest(&mut self) -> Result<f64, Error> {
        let Self { recorded, options, base, scratch, .. } = self;
        let mut scratch = scratch.reborrow();
        let trace = swap::Trace::new(base.handed, 2 * recorded.blocks, options.least_bytes, &mut scratch)?;
        let mut swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
        let scores = [Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa];
        let found = scores.into_iter().filter_map(|policy| swapper.plan(policy, options.limit, 0));
        Ok(found.fold(f64::INFINITY, f64::min))
    }

    /// Learns which gaps may be swapped.
    pub(super) fn know_gaps(&mut self) -> Result<(), Error> {
        let Self { recorded, options, base, recomputer, scratch, .. } = self;
        let mut scratch = scratch.reborrow();
        let trace = swap::Trace::new(base.handed, 2 * recorded.blocks, options.least_bytes, &mut scratch)?;
        trace.gaps().for_each(|gap| recomputer.know(gap));
        Ok(())
    }

    /// Swaps and places.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn trial(&mut self, arrangement: &Arrangement<'_>) -> Result<Trial, Error> {
        let Self { recorded, options, base, recomputer, scratch, stage } = self;
        let &Arrangement { again, swaps, work, .. } = arrangement;
        let limit = options.limit;
        let enough = ENOUGH.saturating_mul(recorded.rows.len() as u64).max(ENOUGH_LEAST);
        let few = if again { WORK_AGAIN } else { FEW };
        let time = recorded.rows.last().map_or(0, |r| r.time_ns) as f64;
        let mut scratch = scratch.reborrow();
        let rows = stage.between(recorded, *base, recomputer, again, scratch.reborrow())?;
        let Stage { interim, made, kept, kept_offsets, best } = stage;
        let rows = interim.get_mut(..rows).unwrap_or_default();
        flattened(recorded, options, swaps, rows, made, scratch, |flat, swapper, added, made, mut scratch| {
            let mut trial = Trial::Fails;
            // Who has nothing to swap has a schedule all the same.
            let policies = if let Swaps::By(policies) = swaps { policies } else { &[Policy::Auto] };
            for &policy in policies {
                let bound = best.map_or(f64::INFINITY, |best| best.overhead);
                if bound <= added {
                    break;
                }
                // A policy may find a little less with memory held back: it ends as it would alone, so that none of those that
                // are contained is ever better.
                let by_policy = matches!(swaps, Swaps::By(_)) && !again;
                let hopeless = bound + if by_policy { HOPELESS * (time + bound) } else { 0.0 };
                swapper.hold_nothing();
                let mut planned = match swaps {
                    Swaps::None => (swapper.peak() <= limit).then_some(0.0),
                    Swaps::By(_) => swapper.plan(policy, limit, work),
                    Swaps::Absences | Swaps::Together => from_absences(swapper, flat, recomputer, limit, work),
                };
                let searches = by_policy && policy == Policy::Auto;
                // The least that this policy has reached, and how many blocks were placed for it.
                let (mut own, mut spent) = (f64::INFINITY, 0u64);
                for attempt in 0..if searches { SEARCHES } else { ATTEMPTS } {
                    let Some(overhead) = planned.map(|overhead| overhead + added) else { break };
                    let goes_on = if own.is_finite() { spent <= enough } else { attempt < ATTEMPTS };
                    if overhead >= hopeless || !goes_on {
                        break;
                    }
                    spent = spent.saturating_add(work / AGAIN / WORK_PER_BLOCK);
                    if overhead >= own {
                        if !swapper.let_go() {
                            break;
                        }
                        planned = swapper.again(policy, limit, work / AGAIN);
                        continue;
                    }
                    swapper.tighten();
                    let few = if searches { FEW_OF_SEARCH } else { few };
                    let seed = options.seed.wrapping_add(if by_policy { attempt.into() } else { 0 });
                    let options = Options { seed, ..**options };
                    let within = Some((limit, few));
                    let placed = made.place(recorded, &options, within, swapper, flat, scratch.reborrow())?;
                    let Some((peak, cost)) = placed else { break };
                    spent = spent.saturating_add(cost);
                    if peak <= limit {
                        if best.is_none_or(|best| overhead < best.overhead) {
                            *best = Some(made.keep(overhead, policy, kept, kept_offsets));
                            trial = Trial::Fits;
                        }
                        own = overhead;
                        if !searches || overhead <= added || !swapper.let_go() {
                            break;
                        }
                        planned = swapper.again(policy, limit, work / AGAIN);
                        continue;
                    }
                    if trial == Trial::Fails {
                        trial = Trial::Over;
                    }
                    if policy == Policy::Layer || swaps == Swaps::None {
                        break;
                    }
                    let blocks = made.blocks.get(..made.merged).unwrap_or_default();
                    // Until something fits, more and more.
                    let thirds = if own.is_finite() { 1 } else { part(attempt, ATTEMPTS) };
                    swapper.hold(blocks, made.offsets, limit, (thirds, 3));
                    planned = swapper.again(policy, limit, work / AGAIN);
                }
            }
            Ok(trial)
        })
    }

    /// Holds memory back in the segments where the placement is above the limit: a part of what is too much, in thirds.
    fn hold(&mut self, part: u32) {
        let limit = self.options.limit;
        let made = &self.stage.made;
        let rows = made.rows.get(..made.len).unwrap_or_default();
        let segments = self.base.rows.len();
        let mut scratch = self.scratch.reborrow();
        let mut excess = scratch.words(segments + 1);
        // The row with which each segment begins, with all that runs again for it.
        let mut begin = scratch.indices(segments + 2);
        let (mut segment, mut previous) = (0, Op::None);
        for (row, r) in (1..).zip(rows).filter(|(_, r)| r.event.is_access()) {
            let again = matches!(r.op, Op::Again(_));
            if !again {
                segment += u32::from(r.op != previous || r.op == Op::None);
                begin[segment] = row;
            }
            previous = r.op;
        }
        let begins = begin.first(segment + 1);
        for (block, offset) in made.blocks.iter().zip(&*made.offsets).take(made.merged) {
            let above = offset.saturating_add(block.size).saturating_sub(limit);
            if above > 0 {
                let first = begins.partition_point(|&row| row <= block.start).saturating_sub(1);
                for (segment, _) in begins.iter().enumerate().skip(first).take_while(|&(_, &row)| row < block.end) {
                    let segment = u32::try_from(segment).unwrap_or(0);
                    excess[segment] = excess[segment].max(above);
                }
            }
        }
        let held = self.recomputer.held();
        for segment in (0..=segment).filter(|&segment| excess[segment] > 0) {
            let bytes = (excess[segment] / 3 * u64::from(part)).max(limit / 512);
            held[segment] = held[segment].saturating_add(bytes);
        }
    }

    /// Makes what takes least memory of an arrangement, and says how much that is; it is the best if it fits.
    pub(super) fn least(&mut self, arrangement: &Arrangement<'_>, peak: u64) -> Result<u64, Error> {
        if arrangement.again {
            self.recomputer.held().fill(0);
            if self.recomputer.least(peak).is_none() {
                return Ok(u64::MAX);
            }
        }
        let Self { recorded, options, base, recomputer, scratch, stage } = self;
        let &Arrangement { again, swaps, .. } = arrangement;
        let mut scratch = scratch.reborrow();
        let rows = stage.between(recorded, *base, recomputer, again, scratch.reborrow())?;
        let Stage { interim, made, kept, kept_offsets, best } = stage;
        let rows = interim.get_mut(..rows).unwrap_or_default();
        flattened(recorded, options, swaps, rows, made, scratch, |flat, swapper, added, made, scratch| {
            let policy = if let Swaps::By(&[policy, ..]) = swaps { policy } else { Policy::Auto };
            if policy == Policy::Layer {
                swapper.plan(policy, u64::MAX, 0);
            } else {
                swapper.least_load();
            }
            // Not by the limit: what is named now has to be found again when it is asked for.
            let placed = made.place(recorded, options, None, swapper, flat, scratch)?;
            let least = placed.map_or(u64::MAX, |(peak, _)| peak);
            if least <= options.limit {
                *best = Some(made.keep(added, policy, kept, kept_offsets));
            }
            Ok(least)
        })
    }
}

impl Stage<'_, '_> {
    /// Writes the trace that is swapped: the one to begin with, or the same with operators that run again. How many rows
    /// it has.
    fn between(
        &mut self,
        recorded: &Recorded<'_>,
        base: Base<'_>,
        recomputer: &Recomputer<'_>,
        again: bool,
        mut scratch: Workspace<'_>,
    ) -> Result<usize, Error> {
        // What comes later makes rows where those before operators work in place are now.
        let Self { interim, made: Placed { rows: aside, in_place, .. }, .. } = self;
        *in_place = base.in_place;
        if !again {
            for (row, &r) in interim.iter_mut().zip(base.handed) {
                *row = r;
            }
            return Ok(base.handed.len());
        }
        if !base.in_place {
            return recomputer.rows(scratch, interim);
        }
        let rows = recomputer.rows(scratch.reborrow(), aside)?;
        in_place::rewrite(recorded, aside.get(..rows).unwrap_or_default(), scratch, interim)
    }
}

/// Makes rows flat, and what swaps them; `then` gets both, what the rows take longer than the recorded ones in ns, the
/// room for what comes out, and the workspace that is left.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn flattened<'a, R>(
    recorded: &Recorded<'_>,
    options: &Options,
    swaps: Swaps<'_>,
    rows: &mut [Row],
    made: &mut Placed<'a, '_>,
    mut scratch: Workspace<'_>,
    then: impl FnOnce(&Flat<'_>, &mut Swapper<'_>, f64, &mut Placed<'a, '_>, Workspace<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    // A lifetime of its own: the swapper borrows the trace.
    let mut scratch = scratch.reborrow();
    let mut tables = scratch.split(flat::workspace(rows.len()));
    let timings = made.timings.get_mut(..rows.len()).unwrap_or_default();
    let flat = Flat::new(recorded, rows, &options.device, timings, &mut tables, scratch.reborrow())?;
    let end = |rows: &[Row]| rows.last().map_or(0, |r| r.time_ns);
    let added = end(rows).saturating_sub(end(recorded.rows)) as f64;
    let least = if swaps == Swaps::None { u64::MAX } else { options.least_bytes };
    let trace = swap::Trace::new(rows, flat.blocks(), least, &mut scratch)?;
    let mut swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
    then(&flat, &mut swapper, added, made, scratch)
}

/// Swaps what was taken for granted to be on the host, and more where that is not enough.
fn from_absences(
    swapper: &mut Swapper<'_>,
    flat: &Flat<'_>,
    recomputer: &Recomputer<'_>,
    limit: u64,
    work: u64,
) -> Option<f64> {
    swapper.start(recomputer.absences(), &|row| flat.segment(row), &|block| flat.block(block));
    swapper.again(Policy::Auto, limit, work)
}

/// What is held back of what is too much, in thirds: one at first, and all of it in the end.
fn part(attempt: u32, attempts: u32) -> u32 {
    if 2 * attempt < attempts { 1 } else { 2 + u32::from(attempt + 3 > attempts) }
}

impl<'a> Placed<'a, '_> {
    /// Writes the rows of a schedule and places its stays; the footprint and how many blocks were placed to find it, or none
    /// if there is no room for them. Within a capacity if there is one: what is far above it after so many blocks have been
    /// placed stays there.
    fn place(
        &mut self,
        recorded: &Recorded<'_>,
        options: &Options,
        within: Option<(u64, u64)>,
        swapper: &mut Swapper<'_>,
        flat: &Flat<'_>,
        mut scratch: Workspace<'_>,
    ) -> Result<Option<(u64, u64)>, Error> {
        let Self { rows, blocks, names, offsets, part_of, in_place, .. } = self;
        let written = swapper.rows(scratch.reborrow(), rows);
        let stays = written.and_then(|len| {
            let rows = rows.get_mut(..len).unwrap_or_default();
            flat.restore(rows);
            let stays = liveness::lifetimes(rows, 2 * recorded.blocks, scratch.reborrow(), blocks, names)?;
            let merged = if *in_place {
                liveness::merge(rows, 2 * recorded.blocks, scratch.reborrow(), blocks, part_of)?
            } else {
                stays
            };
            Ok((len, stays, merged))
        });
        (self.len, self.stays, self.merged) = match stays {
            Ok(lengths) => lengths,
            Err(Error::BufferTooSmall { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let blocks = blocks.get(..self.merged).unwrap_or_default();
        let offsets = offsets.get_mut(..self.merged).unwrap_or_default();
        let constraints = Constraints { alignment: 1, capacity: within.map(|(capacity, _)| capacity) };
        let again = rows.iter().take(self.len).any(|r| matches!(r.op, Op::Again(_)));
        let stays = blocks.len() as u64;
        let searched = again || stays <= MOST_SEARCHED;
        let nodes = if searched { NODES * 1_000_000_000 / stays.saturating_pow(3).max(1_000_000) } else { 0 };
        let (far, few) = within.map_or((u64::MAX, 0), |(capacity, few)| (capacity.saturating_add(capacity / FAR), few));
        let mut placed = 0u64;
        // Told of each start.
        let mut watch = |now: &place::Summary| {
            placed = stays.saturating_add(placed);
            if placed > few.max(STARTS * stays) && now.peak > far {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let options =
            place::Options { constraints, seed: options.seed, work: if again { WORK_AGAIN } else { WORK }, nodes };
        match place::place_watched(Solver::Auto, blocks, &options, scratch, offsets, &mut watch) {
            Ok(summary) => Ok(Some((summary.peak, placed))),
            Err(Error::OverCapacity { peak, .. }) => Ok(Some((peak, placed))),
            Err(e) => Err(e),
        }
    }

    /// Keeps the rows and offsets; the memory of what was kept before is the room for the next.
    #[expect(clippy::mut_mut, reason = "the slices change places")]
    fn keep(
        &mut self,
        overhead: f64,
        policy: Policy,
        kept: &mut &'a mut [Row],
        kept_offsets: &mut Table<'_, u64>,
    ) -> Best {
        core::mem::swap(kept, &mut self.rows);
        if self.in_place {
            let offsets = self.offsets.get_mut(..self.stays).unwrap_or_default();
            liveness::spread(self.part_of.get(..self.stays).unwrap_or_default(), offsets);
        }
        for (kept, &offset) in (0..).zip(self.offsets.iter().take(self.stays)) {
            kept_offsets[kept] = offset;
        }
        Best { overhead, policy, rows: self.len, stays: self.stays }
    }
}
