//! Traces, good and bad, into less memory: whatever is rewritten computes the same, fits and takes its time; and the
//! judges of rewritten traces say what a naive one says.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sublet_core::place::{self, Solver};
use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
use sublet_core::rewrite::swap::{Policy, bound};
use sublet_core::simulate::{self, Device, Run, Timing};
use sublet_core::trace::liveness::{self, Stay};
use sublet_core::trace::{Event, Op, Recorded, Row};
use sublet_core::verify::schedule::{self as verify, Room};
use sublet_core::{Block, Constraints, Error, VerifiedSchedule, Workspace};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::trace::{Trace, device, faults};
use sublet_fuzz::{naive, number, schedule};

#[derive(Debug)]
struct Input {
    using: Using,
    policy: Policy,
    device: Device,
    seed: u64,
    work: u64,
    least_bytes: u64,
    limit: Limit,
    cyclic: bool,
    trace: Trace,
    /// Blocks that leave before a row and come back before a later one.
    away: Vec<(u32, u8, u8)>,
    spoil: Vec<u8>,
}

#[derive(Debug)]
enum Limit {
    Percent(u64),
    Bytes(u64),
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            using: Means::ALL
                .into_iter()
                .try_fold(Using::NONE, |using, means| Ok(if u.arbitrary()? { using.with(means) } else { using }))?,
            policy: *u.choose(&Policy::ALL)?,
            device: device(u)?,
            seed: u.arbitrary()?,
            work: u.int_in_range(0..=200)?,
            least_bytes: if u.arbitrary()? { 0 } else { number(u)? },
            limit: if u.ratio(7, 8)? { Limit::Percent(u.int_in_range(10..=105)?) } else { Limit::Bytes(number(u)?) },
            cyclic: u.arbitrary()?,
            away: (0..u.int_in_range(0..=3)?)
                .map(|_| Ok((u.int_in_range(0..=12)?, u.arbitrary()?, u.arbitrary()?)))
                .collect::<Result<_>>()?,
            spoil: if u.ratio(1, 2)? { u.bytes(12.min(u.len()))?.to_vec() } else { Vec::new() },
            trace: u.arbitrary()?,
        })
    }
}

/// The most block numbers that memory is lent for; beyond, a call has to be refused.
const MOST_BLOCKS: usize = 1 << 10;

fuzz_target!(|input: Input| {
    let Input { using, policy, device, seed, work, least_bytes, limit, cyclic, trace, away, spoil } = input;
    let Trace { rows, blocks } = &trace;
    if *blocks > MOST_BLOCKS {
        refused(&trace, &device);
        return;
    }
    let well_formed = schedule::well_formed(rows, *blocks);
    let lived = lifetimes(&trace);
    assert_eq!(lived.is_ok(), well_formed, "{lived:?}");
    let mut scratch = Scratch::of(bound::workspace(rows.len(), *blocks));
    let least_load = bound::load_without_overhead(rows, *blocks, &device, scratch.lend());
    if let (Ok((lives, _)), Ok(least_load)) = (&lived, least_load) {
        assert!(u128::from(least_load) <= naive::max_load(lives).min(u64::MAX.into()));
    }

    let peak = lived.as_ref().map_or(1 << 20, |(blocks, _)| naive::max_load(blocks).min(u64::MAX.into()) as u64);
    let limit = match limit {
        Limit::Percent(percent) => (u128::from(peak) * u128::from(percent) / 100).min(u64::MAX.into()) as u64,
        Limit::Bytes(bytes) => bytes,
    };
    let options = Options { limit, device, using, policy, least_bytes, seed, work };
    let mut memory = Memory::of(&trace);
    let fitted = memory.fit(&trace, &options).map(|(schedule, rewritten, offsets)| {
        check_times(&schedule, &options.device);
        let run = *schedule.run();
        // In days, a double still tells a nanosecond.
        let on_time = run.time_ns <= run.original_ns as f64 && run.original_ns < 1 << 48;
        if let (Ok(least_load), true, false) = (least_load, on_time, runs_again(&rewritten)) {
            // The bound is a real number, rounded.
            let rounding = run.peak_load >> 40;
            assert!(least_load <= run.peak_load.saturating_add(rounding), "{least_load} without overhead, but {run:?}");
        }
        (rewritten, offsets, schedule.plan().peak())
    });
    match fitted {
        Ok((rewritten, offsets, peak)) => {
            assert!(peak <= limit && (!well_formed || schedule::recorded(rows)));
            // The naive judge knows swaps alone.
            let swapped = !runs_again(&rewritten);
            if well_formed && swapped {
                assert!(schedule::computes_the_same(rows, &rewritten, true));
            }
            let again = Trace { rows: rewritten, blocks: *blocks };
            let constraints = Constraints { alignment: 1, capacity: Some(limit) };
            assert!(judge(&trace, &again, &offsets, &options.device, true, &constraints).is_ok());
            if swapped {
                judge_spoiled(&trace, &spoiled(again, &away, &spoil), &options.device, cyclic);
            }
        }
        Err(e) => {
            // A block that is allocated at time 0, but after an access, is not where a persistent one has to be.
            if well_formed && schedule::recorded(rows) && schedule::computes_the_same(rows, rows, true) {
                assert!(
                    matches!(
                        e,
                        Error::OverLimit { .. }
                            | Error::Device
                            | Error::HostTooSmall { .. }
                            | Error::SizeOverflow { .. }
                    ),
                    "{e}"
                );
            }
            judge_spoiled(&trace, &spoiled(trace.clone(), &away, &spoil), &options.device, cyclic);
        }
    }
});

fn runs_again(rewritten: &[Row]) -> bool {
    rewritten.iter().any(|r| matches!(r.op, Op::Again(_)))
}

/// More block numbers than there is memory for: every call says so.
fn refused(Trace { rows, blocks }: &Trace, device: &Device) {
    let too_small = |e: Option<Error>| {
        assert!(matches!(e, Some(Error::BufferTooSmall { .. } | Error::TooManyBlocks { .. })), "{e:?}");
    };
    let none = || Workspace::new(&mut [], &mut []);
    let n = liveness::stays(rows);
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Stay::default(); n]);
    too_small(liveness::lifetimes(rows, *blocks, none(), &mut lives, &mut names).err());
    let mut timings = vec![Timing::default(); rows.len()];
    too_small(simulate::simulate(&Recorded::new(rows, *blocks), rows, device, none(), &mut timings).err());
    if device.is_sound() {
        too_small(bound::load_without_overhead(rows, *blocks, device, none()).err());
    }
    let output = Output { rows: &mut [], timings: &mut [], blocks: &mut [], names: &mut [], offsets: &mut [] };
    too_small(fit::fit(&Recorded::new(rows, *blocks), &Options::new(0, *device), none(), output).err());
    if device.is_sound() {
        let room = Room { timings: &mut timings, blocks: &mut lives, names: &mut names };
        let recorded = Recorded::new(rows, *blocks);
        too_small(verify::schedule(&recorded, rows, &[], (device, true), &Constraints::NONE, none(), room).err());
    }
}

/// The stays of a trace, against a naive model.
fn lifetimes(Trace { rows, blocks }: &Trace) -> std::result::Result<(Vec<Block>, Vec<Stay>), Error> {
    let n = liveness::stays(rows);
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Stay::default(); n]);
    let mut scratch = Scratch::of(liveness::workspace(*blocks));
    assert_eq!(liveness::lifetimes(rows, *blocks, scratch.lend(), &mut lives, &mut names)?, n);
    let mallocs = rows.iter().enumerate().filter(|(_, r)| r.event == Event::Malloc);
    for ((begin, r), (life, name)) in mallocs.zip(lives.iter().zip(&names)) {
        let is_end = |(_, other): &(usize, &Row)| other.event == Event::Free && other.block == r.block;
        let end = rows.iter().enumerate().skip(begin).find(is_end).map_or(rows.len(), |(i, _)| i);
        assert_eq!(*life, Block::new(begin as u32, end as u32, r.bytes));
        let before = rows[..begin].iter().filter(|o| o.event == Event::Malloc && o.block == r.block).count();
        assert_eq!(*name, Stay { block: r.block, ordinal: before as u32 });
    }
    Ok((lives, names))
}

/// What a fit is made in.
struct Memory {
    scratch: Scratch,
    rows: Vec<Row>,
    timings: Vec<Timing>,
    blocks: Vec<Block>,
    names: Vec<Stay>,
    offsets: Vec<u64>,
}

impl Memory {
    fn of(trace: &Trace) -> Self {
        let lengths = Lengths::of(&trace.rows, trace.blocks);
        Self {
            scratch: Scratch::of(fit::workspace(trace.rows.len(), trace.blocks, lengths)),
            rows: vec![Row::default(); lengths.rows],
            timings: vec![Timing::default(); lengths.timings],
            blocks: vec![Block::default(); lengths.stays],
            names: vec![Stay::default(); lengths.stays],
            offsets: vec![!9; lengths.stays],
        }
    }

    fn fit(
        &mut self,
        trace: &Trace,
        options: &Options,
    ) -> std::result::Result<(VerifiedSchedule<'_>, Vec<Row>, Vec<u64>), Error> {
        let Self { scratch, rows, timings, blocks, names, offsets } = self;
        let output = Output { rows, timings, blocks, names, offsets };
        let fitted = fit::fit(&Recorded::new(&trace.rows, trace.blocks), options, scratch.lend(), output)?;
        assert!(fitted.load_min <= fitted.original_peak);
        let (rows, offsets) = (fitted.schedule.rows().to_vec(), fitted.schedule.plan().offsets().to_vec());
        Ok((fitted.schedule, rows, offsets))
    }
}

/// Compute never goes back, each link carries one copy at a time, and the run ends when everything is done.
fn check_times(schedule: &VerifiedSchedule<'_>, device: &Device) {
    let run = schedule.run();
    let (mut compute, mut out, mut back) = (0.0, 0.0, 0.0f64);
    let mut copied = 0;
    for (r, t) in schedule.rows().iter().zip(schedule.timings()) {
        assert!(t.reached >= compute && t.begin >= t.reached && t.end >= t.begin, "{r:?} {t:?} after {compute}");
        assert!(t.end <= run.time_ns, "{r:?} {t:?} {run:?}");
        let stay = schedule.names().iter().position(|name| name.block == r.block);
        let size = stay.map_or(0, |i| schedule.plan().blocks()[i].size);
        let (link, takes) = match r.event {
            Event::SwapOut => (&mut out, device.out_ns(size)),
            Event::SwapIn => (&mut back, device.in_ns(size)),
            _ => {
                compute = t.end;
                continue;
            }
        };
        compute = t.reached;
        assert!(t.begin >= *link && t.end >= t.begin + takes, "{r:?} {t:?}");
        *link = t.end;
        copied += size;
    }
    assert_eq!(copied, run.swapped_bytes);
    assert!(run.time_ns >= run.original_ns as f64 * (1.0 - 1e-9), "{run:?}");
}

fn spoiled(mut trace: Trace, away: &[(u32, u8, u8)], spoil: &[u8]) -> Trace {
    for &(block, at, back) in away {
        let n = trace.rows.len();
        let (at, back) = (usize::from(at) % (n + 1), usize::from(back) % (n + 1));
        let bytes = trace.rows.iter().find(|r| r.event == Event::Malloc && r.block == block).map_or(1, |r| r.bytes);
        let mut insert = |at: usize, event, bytes| {
            let time_ns = trace.rows[..at].last().map_or(0, |r| r.time_ns);
            trace.rows.insert(at, Row { time_ns, bytes, block, op: Op::None, event });
        };
        // From the last to the first, so that the places stay what they are.
        insert(at.max(back), Event::SwapIn, 0);
        insert(at.max(back), Event::Malloc, bytes);
        insert(at.min(back), Event::Free, 0);
        insert(at.min(back), Event::SwapOut, 0);
    }
    if !spoil.is_empty() {
        let blocks = trace.blocks;
        let _ = faults(&mut Unstructured::new(spoil), &mut trace);
        trace.blocks = blocks;
    }
    trace
}

/// The verifier's word on a rewritten trace that may be anything.
fn judge_spoiled(trace: &Trace, rewritten: &Trace, device: &Device, cyclic: bool) {
    // Numbers from `blocks` on are those of masks.
    let (blocks, _) = lifetimes(&Trace { rows: rewritten.rows.clone(), blocks: 2 * trace.blocks }).unwrap_or_default();
    let mut offsets = vec![0; liveness::stays(&rewritten.rows)];
    if !blocks.is_empty() {
        let mut scratch = Scratch::of(place::workspace_of(Solver::BestFit, blocks.len()));
        let _ = place::place(Solver::BestFit, &blocks, &place::Options::default(), scratch.lend(), &mut offsets);
    }
    let verdict = judge(trace, rewritten, &offsets, device, cyclic, &Constraints::NONE);
    let original_fine = schedule::well_formed(&trace.rows, trace.blocks) && schedule::recorded(&trace.rows);
    let fine = || {
        schedule::computes_the_same(&trace.rows, &rewritten.rows, cyclic)
            && schedule::well_formed(&rewritten.rows, trace.blocks)
    };
    // Of masks and of operators that run again the naive judge knows nothing.
    let masked = |r: &Row| (trace.blocks..2 * trace.blocks).contains(&(r.block as usize));
    let unjudged = rewritten.rows.iter().any(|r| masked(r) || matches!(r.op, Op::Again(_)));
    match verdict {
        _ if !original_fine => {}
        Ok(_) | Err(Error::Row { .. }) if unjudged => {}
        Ok(_) => assert!(fine()),
        Err(Error::Row { row, fault }) => assert!(!fine(), "row {row}: {fault}"),
        Err(Error::HostTooSmall { capacity, .. }) => assert_eq!(device.host_capacity, Some(capacity)),
        Err(Error::Device) => assert!(!device.is_sound()),
        Err(e) => assert!(!naive::plannable(&blocks, 1), "{e}"),
    }
}

fn judge(
    trace: &Trace,
    rewritten: &Trace,
    offsets: &[u64],
    device: &Device,
    cyclic: bool,
    constraints: &Constraints,
) -> std::result::Result<Run, Error> {
    let n = liveness::stays(&rewritten.rows);
    let mut timings = vec![Timing::default(); rewritten.rows.len()];
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Stay::default(); n]);
    let mut scratch = Scratch::of(verify::workspace(trace.rows.len(), trace.blocks, n));
    let room = Room { timings: &mut timings, blocks: &mut lives, names: &mut names };
    let (recorded, rows) = (Recorded::new(&trace.rows, trace.blocks), &rewritten.rows);
    let schedule = verify::schedule(&recorded, rows, offsets, (device, cyclic), constraints, scratch.lend(), room)?;
    check_times(&schedule, device);
    Ok(*schedule.run())
}
