//! A network into less memory: swap, then place over the changed trace.
//!
//! A policy makes a schedule whose load is within the limit. Its positions are tightened at unchanged time and the
//! rewritten trace's stays are placed. Where the placement is above the limit, memory is lost between blocks: in those
//! segments a part of what is too much is held back, and the policy plans again, some times over. Last comes the
//! schedule with everything away that may be.
//! [`Policy::Auto`] and [`Policy::Bayes`] try the other policies too and take what takes least time: neither is ever
//! worse than those it contains. Of equal times the first wins.
//!
//! What comes out has been accepted by [`verify::schedule`](crate::verify::schedule::schedule), over iterations that
//! repeat: persistent blocks may be on the host at both ends.

use super::swap::{self, Policy, Swapper};
use crate::place::{self, Solver, search};
use crate::simulate::{Device, Timing};
use crate::trace::{Event, Recorded, Row, liveness, liveness::Stay};
use crate::verify::schedule::{self as verify, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block, error::Buffer};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The most bytes that the footprint may have.
    pub limit: u64,
    /// The links to the host.
    pub device: Device,
    /// Who decides.
    pub policy: Policy,
    /// Smaller blocks stay where they are, in bytes.
    pub least_bytes: u64,
    /// Where random choices begin; the same seed gives the same result everywhere.
    pub seed: u64,
    /// How much the search may do for each row of the trace, in segments and gaps looked at.
    pub work: u64,
}

impl Options {
    /// A second for the networks of 5,000 rows.
    pub const DEFAULT_WORK: u64 = 5_000;

    /// A limit and a device; the blocks that are [worth copying](Device::least_worth_copying).
    #[must_use]
    pub fn new(limit: u64, device: Device) -> Self {
        let least_bytes = device.least_worth_copying();
        Self { limit, device, policy: Policy::Auto, least_bytes, seed: 1, work: Self::DEFAULT_WORK }
    }
}

/// Memory for the result, which the caller lends; how long is told by [`Lengths`].
#[derive(Debug)]
pub struct Output<'a> {
    /// The rewritten trace.
    pub rows: &'a mut [Row],
    /// When its rows happen.
    pub timings: &'a mut [Timing],
    /// Its stays as blocks.
    pub blocks: &'a mut [Block],
    /// Which stays they are.
    pub names: &'a mut [Stay],
    /// Where they lie.
    pub offsets: &'a mut [u64],
}

/// How long the slices of an [`Output`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Rows and timings.
    pub rows: usize,
    /// Blocks, names and offsets.
    pub stays: usize,
}

impl Lengths {
    /// Enough for whatever becomes of this trace.
    #[must_use]
    pub fn of(rows: &[Row], block_count: usize) -> Self {
        let gaps = rows.iter().filter(|r| r.event.is_access()).count() + block_count;
        // Copy out, free, malloc and copy in; a copy out at the end.
        Self { rows: rows.len() + 4 * gaps + block_count, stays: liveness::stays(rows) + gaps }
    }
}

/// A network that fits.
#[derive(Debug)]
pub struct Fitted<'a> {
    /// The rewritten trace with its plan, both proved.
    pub schedule: VerifiedSchedule<'a>,
    /// The policy that made it.
    pub policy: Policy,
    /// The most bytes on the device in the original.
    pub original_peak: u64,
    /// The least load of Zhang et al. 2019: every gap over the peak away.
    pub load_min: u64,
}

/// Length of the workspace that [`fit`] needs for a trace of `rows` rows, and for the lengths of its output.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, lengths: Lengths) -> WorkspaceLen {
    // Up to so many stays the placement searches, which takes more than it does for a few more.
    let searched = if lengths.stays < search::MOST_BLOCKS { lengths.stays } else { search::MOST_BLOCKS };
    let judge = verify::workspace(rows, blocks, lengths.stays)
        .max(place::workspace_of(Solver::Auto, lengths.stays))
        .max(place::workspace_of(Solver::Auto, searched))
        .max(liveness::workspace(blocks))
        .max(swap::rows_workspace(blocks));
    swap::trace_workspace(rows, blocks).and(swap::workspace(rows, blocks)).and(judge)
}

/// How often a policy plans.
const ATTEMPTS: u32 = 14;
/// The part of its work that the search may do each time but the first.
const AGAIN: u64 = 12;
/// Where the heuristics miss the limit, the search for a placement may look at this many nodes of its tree for a thousand
/// stays, and at fewer with the cube of their number: a node costs more too.
const NODES: u64 = 160;
/// What the heuristics may do each time, in blocks placed: many placements are made, and most of them fit or do not
/// within a few starts.
const WORK: u64 = 50_000;

/// Rewrites a trace so that its footprint is within a limit, at as little cost in time as the policy finds.
/// `block_count` is the number of block numbers that the rows use.
///
/// # Errors
/// [`Error::OverLimit`] with the least limit that is known to work; [`Error::Row`] for a trace that is not as
/// recorded; [`Error::TooManyBlocks`]; [`Error::Device`]; [`Error::BufferTooSmall`] if the output or the workspace is too
/// short.
///
/// ```
/// use sublet_core::rewrite::fit::{self, Lengths, Options, Output};
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Stay, Event, Op, Row};
/// use sublet_core::{Block, Workspace};
/// let row = |time_ns, event, block, op| {
///     Row { time_ns, event, block, op, bytes: if event == Event::Malloc { 8 << 20 } else { 0 } }
/// };
/// // An activation that is read again after another has come and gone.
/// let rows = [
///     row(0, Event::Malloc, 0, Op::First(0)),
///     row(1_000_000, Event::Write, 0, Op::First(0)),
///     row(1_000_000, Event::Malloc, 1, Op::First(1)),
///     row(2_000_000, Event::Write, 1, Op::First(1)),
///     row(3_000_000, Event::Free, 1, Op::None),
///     row(9_000_000, Event::Read, 0, Op::First(2)),
///     row(9_000_000, Event::Free, 0, Op::None),
/// ];
/// let lengths = Lengths::of(&rows, 2);
/// let len = fit::workspace(rows.len(), 2, lengths);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let output = Output {
///     rows: &mut vec![Row::default(); lengths.rows],
///     timings: &mut vec![Timing::default(); lengths.rows],
///     blocks: &mut vec![Block::default(); lengths.stays],
///     names: &mut vec![Stay::default(); lengths.stays],
///     offsets: &mut vec![0; lengths.stays],
/// };
/// let options = Options::new(8 << 20, Device::symmetric(12e9));
/// let fitted = fit::fit(&rows, 2, &options, Workspace::new(&mut words, &mut indices), output)?;
/// assert_eq!((fitted.original_peak, fitted.schedule.plan().peak()), (16 << 20, 8 << 20));
/// // The second operator waits for the copy out.
/// assert!(fitted.schedule.run().overhead() > 0.05);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn fit<'a>(
    original: &[Row],
    block_count: usize,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<Fitted<'a>, Error> {
    block::check_count(block_count)?;
    let lengths = Lengths::of(original, block_count);
    scratch.check(workspace(original.len(), block_count, lengths))?;
    if !options.device.is_sound() {
        return Err(Error::Device);
    }
    for (buffer, needed, got) in [
        (Buffer::Rows, lengths.rows, output.rows.len()),
        (Buffer::Timings, lengths.rows, output.timings.len()),
        (Buffer::Blocks, lengths.stays, output.blocks.len().min(output.names.len())),
        (Buffer::Offsets, lengths.stays, output.offsets.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    // The passes take it for granted that the rows can follow each other.
    liveness::lifetimes(original, block_count, scratch.reborrow(), output.blocks, output.names)?;
    let mut scratch = scratch.reborrow();
    let trace = swap::Trace::new(original, block_count, options.least_bytes, &mut scratch)?;
    let swapper = Swapper::new(&trace, &options.device, options.seed, &mut scratch);
    let work = u64::try_from(original.len()).unwrap_or(u64::MAX).saturating_mul(options.work);
    let mut pass = Pass { block_count, options, swapper, scratch, output, work, len: 0, stays: 0 };
    let original_peak = pass.swapper.peak();
    let load_min = pass.swapper.load_min();
    let policy = pass.best()?;
    pass.prove(original, policy, original_peak, load_min)
}

/// The work on one trace.
struct Pass<'a, 's> {
    block_count: usize,
    options: &'s Options,
    swapper: Swapper<'s>,
    scratch: Workspace<'s>,
    output: Output<'a>,
    work: u64,
    /// How much of the output is in use.
    len: usize,
    stays: usize,
}

impl<'a> Pass<'a, '_> {
    /// Makes the best schedule of the policy, and of those it contains; the policy that made it.
    fn best(&mut self) -> Result<Policy, Error> {
        let contained: &[Policy] = match self.options.policy {
            Policy::Auto => &[Policy::Auto, Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
            Policy::Bayes => &[Policy::Bayes, Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa],
            _ => &[self.options.policy],
        };
        let mut best: Option<(f64, Policy)> = None;
        for &policy in contained {
            let bound = best.map_or(f64::INFINITY, |(least, _)| least);
            if bound <= 0.0 {
                break;
            }
            if let Some(overhead) = self.fit_policy(policy, bound)? {
                best = Some((overhead, policy));
                self.swapper.keep_result();
            }
        }
        if let Some((_, policy)) = best {
            self.swapper.restore_result();
            self.place()?;
            return Ok(policy);
        }
        if self.options.policy == Policy::Layer {
            self.swapper.plan(Policy::Layer, u64::MAX, 0);
        } else {
            self.swapper.least_load();
        }
        let least = self.place()?;
        if least <= self.options.limit {
            return Ok(self.options.policy);
        }
        Err(Error::OverLimit { least, limit: self.options.limit })
    }

    /// Plans again until the placement fits, with memory held back where it did not; none if it never does, or takes as
    /// long as `bound`.
    fn fit_policy(&mut self, policy: Policy, bound: f64) -> Result<Option<f64>, Error> {
        let limit = self.options.limit;
        self.swapper.hold_nothing();
        let mut made = self.swapper.plan(policy, limit, self.work);
        for attempt in 0..ATTEMPTS {
            let Some(overhead) = made.filter(|&overhead| overhead < bound) else {
                break;
            };
            self.swapper.tighten();
            if self.place()? <= limit {
                return Ok(Some(overhead));
            }
            if policy == Policy::Layer {
                break;
            }
            let blocks = self.output.blocks.get(..self.stays).unwrap_or_default();
            // A third of what is too much at first, and all of it in the end.
            let part = if 2 * attempt < ATTEMPTS { 1 } else { 2 + u32::from(attempt + 3 > ATTEMPTS) };
            self.swapper.hold(blocks, self.output.offsets, limit, (part, 3));
            made = self.swapper.again(policy, limit, self.work / AGAIN);
        }
        Ok(None)
    }

    /// Writes the rows of the schedule and places its stays; the footprint.
    fn place(&mut self) -> Result<u64, Error> {
        let Output { rows, blocks, names, offsets, .. } = &mut self.output;
        self.len = self.swapper.rows(self.scratch.reborrow(), rows)?;
        let rows = rows.get(..self.len).unwrap_or_default();
        self.stays = liveness::lifetimes(rows, self.block_count, self.scratch.reborrow(), blocks, names)?;
        let blocks = blocks.get(..self.stays).unwrap_or_default();
        let offsets = offsets.get_mut(..self.stays).unwrap_or_default();
        let constraints = Constraints { alignment: 1, capacity: Some(self.options.limit) };
        let stays = blocks.len() as u64;
        let nodes = NODES * 1_000_000_000 / stays.saturating_pow(3).max(1_000_000);
        let options = place::Options { constraints, seed: self.options.seed, work: WORK, nodes };
        match place::place(Solver::Auto, blocks, &options, self.scratch.reborrow(), offsets) {
            Ok(summary) => Ok(summary.peak),
            Err(Error::OverCapacity { peak, .. }) => Ok(peak),
            Err(e) => Err(e),
        }
    }

    /// Has the result verified, and gives its rows their times.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
    fn prove(self, original: &[Row], policy: Policy, original_peak: u64, load_min: u64) -> Result<Fitted<'a>, Error> {
        let Self { block_count, options, mut scratch, output, len, stays, .. } = self;
        let Output { rows, timings, blocks, names, offsets } = output;
        let rows = rows.get_mut(..len).unwrap_or_default();
        let timings = timings.get_mut(..len).unwrap_or_default();
        let recorded = Recorded::new(original, block_count);
        crate::simulate::simulate(&recorded, rows, &options.device, scratch.reborrow(), timings)?;
        for (row, timing) in rows.iter_mut().zip(&*timings) {
            let copy = matches!(row.event, Event::SwapOut | Event::SwapIn);
            row.time_ns = libm::round(if copy { timing.reached } else { timing.end }) as u64;
        }
        let schedule = verify::schedule(
            &recorded,
            rows,
            offsets.get(..stays).unwrap_or_default(),
            (&options.device, true),
            &Constraints { alignment: 1, capacity: Some(options.limit) },
            scratch,
            Room {
                timings,
                blocks: blocks.get_mut(..stays).unwrap_or_default(),
                names: names.get_mut(..stays).unwrap_or_default(),
            },
        )?;
        Ok(Fitted { schedule, policy, original_peak, load_min })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RowFault;
    use crate::simulate;
    use crate::trace::Op;
    use proptest::prelude::*;
    use std::vec::Vec;

    const MIB: u64 = 1 << 20;

    /// Operators that each read some blocks and write one, in a chain; blocks are freed after their last access.
    fn trace(weights: u32, operators: &[(u32, Vec<u32>, bool, u64)]) -> (Vec<Row>, usize) {
        let row = |time_ns, event, block, bytes, op| Row { time_ns, bytes, block, op, event };
        let mut rows: Vec<Row> =
            (0..weights).map(|w| row(0, Event::Malloc, w, MIB * u64::from(1 + w % 3), Op::None)).collect();
        let mut made = weights;
        let mut last = std::collections::HashMap::new();
        let mut time = 0;
        for (op, (size, reads, update, duration)) in (0..).zip(operators) {
            let own = Op::First(op);
            let mut reads: Vec<u32> = reads.iter().map(|r| r % (made + 1)).filter(|&r| r < made).collect();
            reads.sort_unstable();
            reads.dedup();
            let written = if *update && weights > 0 { size % weights } else { made };
            if written == made {
                rows.push(row(time, Event::Malloc, made, MIB * u64::from(*size), own));
                made += 1;
            }
            rows.extend(reads.iter().map(|&r| row(time, Event::Read, r, 0, own)));
            time += duration * 20_000;
            rows.push(row(time, Event::Write, written, 0, own));
            for b in reads.into_iter().chain([written]) {
                last.insert(b, op);
            }
        }
        let mut freed = Vec::new();
        let mut with_frees = Vec::new();
        for (i, r) in rows.iter().enumerate() {
            with_frees.push(*r);
            let ends = rows.get(i + 1).is_none_or(|next| next.op != r.op);
            if let (true, Op::First(op)) = (ends, r.op) {
                for (&b, _) in last.iter().filter(|&(&b, &at)| b >= weights && at == op) {
                    freed.push(b);
                }
                freed.sort_unstable();
                with_frees.extend(freed.drain(..).map(|b| row(r.time_ns, Event::Free, b, 0, Op::None)));
            }
        }
        (with_frees, made as usize)
    }

    fn run(rows: &[Row], blocks: usize, options: &Options) -> Result<(u64, u64, f64), Error> {
        let lengths = Lengths::of(rows, blocks);
        let len = workspace(rows.len(), blocks, lengths);
        let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
        let output = Output {
            rows: &mut vec![Row::default(); lengths.rows],
            timings: &mut vec![Timing::default(); lengths.rows],
            blocks: &mut vec![Block::default(); lengths.stays],
            names: &mut vec![Stay::default(); lengths.stays],
            offsets: &mut vec![9; lengths.stays],
        };
        let fitted = fit(rows, blocks, options, Workspace::new(&mut words, &mut indices), output)?;
        Ok((fitted.original_peak, fitted.schedule.plan().peak(), fitted.schedule.run().overhead()))
    }

    fn operators() -> impl Strategy<Value = Vec<(u32, Vec<u32>, bool, u64)>> {
        let operator = (1u32..9, prop::collection::vec(0u32..24, 0..4), prop::bool::weighted(0.2), 1u64..60);
        prop::collection::vec(operator, 1..24)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Whatever a policy makes is accepted by the verifier, within the limit, or the least limit works.
        #[test]
        fn every_schedule_is_proved_and_the_least_limit_works(
            weights in 0u32..5, operators in operators(), percent in 20u64..110, policy in 0usize..7,
        ) {
            let (rows, blocks) = trace(weights, &operators);
            let device = Device::symmetric(12e9);
            let (peak, _, _) = run(&rows, blocks, &Options::new(u64::MAX, device)).unwrap();
            let limit = peak * percent / 100;
            let options = Options { policy: Policy::ALL[policy], work: 500, ..Options::new(limit, device) };
            match run(&rows, blocks, &options) {
                Ok((_, footprint, overhead)) => {
                    prop_assert!(footprint <= limit);
                    prop_assert!(overhead >= -1e-9);
                }
                Err(Error::OverLimit { least, .. }) if options.policy != Policy::Layer => {
                    prop_assert!(least > limit);
                    let enough = Options { limit: least, ..options };
                    let found = run(&rows, blocks, &enough);
                    prop_assert!(found.is_ok(), "{:?}", found);
                }
                Err(Error::OverLimit { .. }) => {}
                Err(e) => prop_assert!(false, "{}", e),
            }
        }

        /// The search's own clock, which skips from boundary to boundary, against the one that goes row by row.
        #[test]
        fn the_search_tells_the_time_that_the_rows_take(
            weights in 0u32..5, operators in operators(), percent in 30u64..100, policy in 0usize..7,
        ) {
            let (rows, blocks) = trace(weights, &operators);
            let lengths = Lengths::of(&rows, blocks);
            let len = workspace(rows.len(), blocks, lengths);
            let (mut words, mut indices) = (vec![9; len.words], vec![9; len.indices]);
            let mut scratch = Workspace::new(&mut words, &mut indices);
            let device = Device { in_bandwidth: 7e9, ..Device::symmetric(12e9) };
            let trace = swap::Trace::new(&rows, blocks, MIB, &mut scratch).unwrap();
            let mut swapper = Swapper::new(&trace, &device, 1, &mut scratch);
            let limit = swapper.peak() * percent / 100;
            if let Some(overhead) = swapper.plan(Policy::ALL[policy], limit, 20_000) {
                let mut rewritten = vec![Row::default(); lengths.rows];
                let n = swapper.rows(scratch.reborrow(), &mut rewritten).unwrap();
                let mut timings = vec![Timing::default(); n];
                let recorded = Recorded::new(&rows, blocks);
                let run = simulate::simulate(&recorded, &rewritten[..n], &device, scratch, &mut timings).unwrap();
                let original = f64::from(u32::try_from(run.original_ns).unwrap());
                prop_assert!((run.time_ns - original - overhead).abs() < 0.01, "{run:?} {overhead}");
                prop_assert!(run.peak_load <= limit);
            }
        }
    }

    #[test]
    fn auto_is_never_worse_than_bayes_and_bayes_never_worse_than_a_score() {
        let operators: Vec<_> = (0..14).map(|i| (4 + i % 5, vec![i, 28 - i, 27 - i], i > 11, 20)).collect();
        let backward = (0..14).map(|i| (1, vec![13 - i, 26 - i], false, 20));
        let (rows, blocks) = trace(3, &operators.into_iter().chain(backward).collect::<Vec<_>>());
        let device = Device::symmetric(12e9);
        let mut worked = 0;
        for percent in [90, 75, 60, 45] {
            let (peak, _, _) = run(&rows, blocks, &Options::new(u64::MAX, device)).unwrap();
            let overhead = |policy| {
                let options = Options { policy, ..Options::new(peak * percent / 100, device) };
                run(&rows, blocks, &options).map_or(f64::INFINITY, |(_, _, overhead)| overhead)
            };
            let bayes = overhead(Policy::Bayes);
            worked += u32::from(bayes.is_finite() && bayes > 0.0);
            assert!(overhead(Policy::Auto) <= bayes);
            for policy in [Policy::Doa, Policy::Aoa, Policy::Wdoa, Policy::Swdoa] {
                assert!(bayes <= overhead(policy), "{policy:?} at {percent}");
            }
        }
        assert!(worked > 0, "no limit cost anything");
    }

    #[test]
    fn what_is_not_as_recorded_is_refused() {
        let (mut rows, blocks) = trace(1, &[(2, vec![0], false, 5), (2, vec![1], false, 5)]);
        let options = Options::new(u64::MAX, Device::symmetric(12e9));
        assert!(run(&rows, blocks, &options).is_ok());
        let broken = Device { in_bandwidth: 0.0, ..options.device };
        assert_eq!(run(&rows, blocks, &Options { device: broken, ..options }), Err(Error::Device));
        let last = rows[rows.len() - 1];
        for (added, fault) in [
            (Row { event: Event::SwapOut, time_ns: last.time_ns, ..rows[0] }, RowFault::NotRecorded),
            (Row { event: Event::Read, time_ns: last.time_ns - 1, ..rows[0] }, RowFault::TimeBackwards),
            (Row { event: Event::Free, ..last }, RowFault::FreeWithoutMalloc),
        ] {
            rows.push(added);
            let row = u32::try_from(rows.len() - 1).unwrap();
            assert_eq!(run(&rows, blocks, &options), Err(Error::Row { row, fault }));
            rows.pop();
        }
    }

    #[test]
    fn what_comes_after_the_last_access_takes_no_time_of_its_own() {
        let (mut rows, blocks) =
            trace(0, &[(8, vec![], false, 500), (8, vec![], false, 500), (1, vec![0], false, 500)]);
        let time_ns = rows[rows.len() - 1].time_ns + 1_000_000;
        rows.push(Row { time_ns, bytes: MIB, block: 3, op: Op::None, event: Event::Malloc });
        let (_, footprint, overhead) =
            run(&rows, blocks + 1, &Options::new(12 * MIB, Device::symmetric(12e9))).unwrap();
        assert!(footprint <= 12 * MIB && (0.0..0.1).contains(&overhead), "{overhead}");
    }

    #[test]
    fn more_block_numbers_than_can_be_counted_are_refused() {
        let options = Options::new(0, Device::symmetric(12e9));
        let output = Output { rows: &mut [], timings: &mut [], blocks: &mut [], names: &mut [], offsets: &mut [] };
        let refused = fit(&[], usize::MAX, &options, Workspace::new(&mut [], &mut []), output).map(|_| ());
        assert_eq!(refused, Err(Error::TooManyBlocks { needed: usize::MAX, most: block::MAX_BLOCKS }));
        let none = || Workspace::new(&mut [], &mut []);
        let recorded = Recorded::new(&[], usize::MAX);
        let lived = liveness::lifetimes(&[], usize::MAX, none(), &mut [], &mut []);
        assert!(matches!(lived, Err(Error::TooManyBlocks { .. })));
        let run = simulate::simulate(&recorded, &[], &options.device, none(), &mut []);
        assert!(matches!(run, Err(Error::TooManyBlocks { .. })));
        let bound = swap::bound::load_without_overhead(&[], usize::MAX, &options.device, none());
        assert!(matches!(bound, Err(Error::TooManyBlocks { .. })));
        let room = Room { timings: &mut [], blocks: &mut [], names: &mut [] };
        let device = (&options.device, true);
        let judged = verify::schedule(&recorded, &[], &[], device, &Constraints::NONE, none(), room);
        assert!(matches!(judged, Err(Error::TooManyBlocks { .. })));
    }

    /// Two blocks of 8 MiB and one of 1 MiB; where the first cannot leave, 17 MiB are the least.
    #[test]
    fn no_more_leaves_than_the_host_can_hold() {
        let (rows, blocks) = trace(0, &[(8, vec![], false, 50), (8, vec![], false, 50), (1, vec![0], false, 50)]);
        let fit = |limit, host_capacity, policy| {
            let device = Device { host_capacity, ..Device::symmetric(12e9) };
            run(&rows, blocks, &Options { policy, ..Options::new(limit, device) })
        };
        for policy in Policy::ALL {
            if policy != Policy::Layer {
                assert!(fit(12 * MIB, Some(8 * MIB), policy).is_ok(), "{policy:?}");
            }
            let Err(Error::OverLimit { least, .. }) = fit(12 * MIB, Some(MIB), policy) else {
                panic!("{policy:?} keeps 8 MiB on a host of 1 MiB");
            };
            assert!(least >= 16 * MIB && fit(least, Some(MIB), policy).is_ok(), "{policy:?} {least}");
        }
    }
}
