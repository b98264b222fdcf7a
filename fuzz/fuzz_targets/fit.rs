//! Fits traces, valid and invalid, into less memory. A rewritten trace computes the same, keeps the limit, and has
//! possible times; and the verifier of rewritten traces says what a naive judge says.
#![cfg_attr(fuzzing, no_main)]

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::RowFault;
use sublet_core::rewrite;
use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
use sublet_core::simulate::{self, Device, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error, VerifiedSchedule, Workspace};
use sublet_fuzz::judge::{self, check_times, lifetimes};
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::trace::{Spoiled, Trace, device, operators};
use sublet_fuzz::{naive, number, schedule};

#[derive(Debug)]
struct Input {
    using: Using,
    device: Device,
    seed: u64,
    work: u64,
    least_bytes: u64,
    keep_persistent: bool,
    limit: Limit,
    cyclic: bool,
    operators: Vec<Operator>,
    trace: Trace,
    spoiled: Spoiled,
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
                .iter()
                .try_fold(Using::NONE, |using, &means| Ok(if u.arbitrary()? { using.with(means) } else { using }))?,
            device: device(u)?,
            seed: u.arbitrary()?,
            work: u.int_in_range(0..=200)?,
            least_bytes: if u.arbitrary()? { 0 } else { number(u)? },
            keep_persistent: u.arbitrary()?,
            limit: if u.ratio(7, 8)? { Limit::Percent(u.int_in_range(10..=105)?) } else { Limit::Bytes(number(u)?) },
            cyclic: u.arbitrary()?,
            spoiled: u.arbitrary()?,
            operators: if u.arbitrary()? { operators(u)? } else { Vec::new() },
            trace: u.arbitrary()?,
        })
    }
}

/// The most block numbers that memory is lent for. With more, a call has to be refused.
const MOST_BLOCKS: usize = 1 << 10;

sublet_fuzz::target!(|input: Input| {
    let Input { using, device, seed, work, least_bytes, keep_persistent, limit, cyclic, operators, trace, spoiled } =
        input;
    let Trace { rows, blocks } = &trace;
    if *blocks > MOST_BLOCKS {
        refused(&trace, &device);
        return;
    }
    let recorded = Recorded { rows, operators: &operators, blocks: *blocks };
    let well_formed = schedule::well_formed(rows, *blocks);
    let lived = lifetimes(rows, *blocks);
    assert_eq!(lived.is_ok(), well_formed, "{lived:?}");
    let mut scratch = Scratch::of(rewrite::least_load_workspace(rows.len(), *blocks));
    let least_load = rewrite::least_load(rows, *blocks, &device, 0, scratch.lend());
    if let (Ok((lives, _)), Ok(least_load)) = (&lived, least_load) {
        assert!(u128::from(least_load) <= naive::max_load(lives).min(u64::MAX.into()));
    }

    let peak = lived.as_ref().map_or(1 << 20, |(blocks, _)| naive::max_load(blocks).min(u64::MAX.into()) as u64);
    let limit = match limit {
        Limit::Percent(percent) => (u128::from(peak) * u128::from(percent) / 100).min(u64::MAX.into()) as u64,
        Limit::Bytes(bytes) => bytes,
    };
    // The alignment comes from the seed, so that the other fields are read from the same bytes of the input as before
    // there was one.
    let alignment = 1 << (seed % 10);
    let options = Options { limit, device, using, least_bytes, keep_persistent, alignment, seed, work };
    let mut memory = Memory::of(&trace);
    let fitted = memory.fit(&recorded, &options).map(|(schedule, rewritten, offsets)| {
        check_times(&schedule, &options.device);
        let run = *schedule.run();
        // The bound is one for swaps alone: not for recomputation, nor for means that change the trace before swaps are
        // chosen.
        let may = [Means::Swap, Means::Recompute].into_iter().fold(Using::NONE, Using::with);
        let by_swaps = !runs_again(&rewritten) && may.contains(using);
        // Up to this time, about three days, an f64 in ns tells apart times that differ by 1 ns.
        if by_swaps && run.time_ns < (1u64 << 48) as f64 {
            let overhead = (run.time_ns - run.original_ns as f64).max(0.0).ceil() as u64;
            let least_load = rewrite::least_load(rows, *blocks, &options.device, overhead, scratch.lend()).unwrap();
            // The bound is a real number, rounded.
            let rounding = run.peak_load >> 40;
            assert!(least_load <= run.peak_load.saturating_add(rounding), "{least_load} at least, but {run:?}");
        }
        (rewritten, offsets, schedule.plan().peak())
    });
    match fitted {
        Ok((rewritten, offsets, peak)) => {
            assert!(peak <= limit && (!well_formed || schedule::recorded(rows)));
            if well_formed {
                let pairs = schedule::computes_the_same(&recorded, &rewritten, true).expect("the same is computed");
                assert!(pairs.iter().all(|&[giver, taker]| offsets[giver] == offsets[taker]));
            }
            let constraints = Constraints { alignment, capacity: Some(limit) };
            assert!(judge::judge(&recorded, &rewritten, &offsets, (&options.device, true), &constraints).is_ok());
            judge::compare(&recorded, &spoiled.of(&recorded, rewritten), (&options.device, cyclic));
        }
        Err(Error::Row { row, fault: RowFault::PersistentLate }) => {
            let (before, late) = (&rows[..row as usize], rows[row as usize]);
            let is_malloc = (late.event, late.time_ns) == (Event::Malloc, 0);
            let is_freed = rows.iter().any(|r| (r.event, r.block) == (Event::Free, late.block));
            assert!(is_malloc && !is_freed && before.iter().any(|r| r.event.is_access()), "{late:?}");
        }
        Err(e) => {
            let same = || schedule::computes_the_same(&recorded, rows, true).is_some();
            if well_formed && schedule::recorded(rows) && same() {
                assert!(
                    matches!(
                        e,
                        Error::OverLimit { .. }
                            | Error::Impossible { .. }
                            | Error::Device
                            | Error::HostTooSmall { .. }
                            | Error::SizeOverflow { .. }
                    ),
                    "{e}"
                );
            }
            judge::compare(&recorded, &spoiled.of(&recorded, rows.clone()), (&options.device, cyclic));
        }
    }
});

fn runs_again(rewritten: &[Row]) -> bool {
    rewritten.iter().any(|r| matches!(r.op, Op::Rerun(_)))
}

/// Asserts that every call refuses a trace with more block numbers than there is memory for.
fn refused(Trace { rows, blocks }: &Trace, device: &Device) {
    let too_small = |e: Option<Error>| {
        assert!(matches!(e, Some(Error::BufferTooSmall { .. } | Error::TooManyBlocks { .. })), "{e:?}");
    };
    let none = || Workspace::new(&mut [], &mut []);
    let n = liveness::residencies(rows);
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Residency::default(); n]);
    too_small(liveness::lifetimes(rows, *blocks, none(), &mut lives, &mut names).err());
    let mut timings = vec![Timing::default(); rows.len()];
    too_small(simulate::simulate(&Recorded::new(rows, *blocks), rows, device, none(), &mut timings).err());
    if device.is_sound() {
        too_small(rewrite::least_load(rows, *blocks, device, 0, none()).err());
    }
    let output = Output { rows: &mut [], timings: &mut [], blocks: &mut [], names: &mut [], offsets: &mut [] };
    too_small(fit::fit(&Recorded::new(rows, *blocks), &Options::new(0, *device), none(), output).err());
    if device.is_sound() {
        let room = Room { timings: &mut timings, blocks: &mut lives, names: &mut names };
        let recorded = Recorded::new(rows, *blocks);
        too_small(verify::schedule(&recorded, rows, &[], (device, true), &Constraints::NONE, none(), room).err());
    }
}

/// The memory in which a fit is made.
struct Memory {
    scratch: Scratch,
    rows: Vec<Row>,
    timings: Vec<Timing>,
    blocks: Vec<Block>,
    names: Vec<Residency>,
    offsets: Vec<u64>,
}

impl Memory {
    fn of(trace: &Trace) -> Self {
        let lengths = Lengths::of(&trace.rows, trace.blocks);
        Self {
            scratch: Scratch::of(fit::workspace(trace.rows.len(), trace.blocks, lengths)),
            rows: vec![Row::default(); lengths.rows],
            timings: vec![Timing::default(); lengths.timings],
            blocks: vec![Block::default(); lengths.residencies],
            names: vec![Residency::default(); lengths.residencies],
            offsets: vec![!9; lengths.residencies],
        }
    }

    fn fit(
        &mut self,
        recorded: &Recorded<'_>,
        options: &Options,
    ) -> std::result::Result<(VerifiedSchedule<'_>, Vec<Row>, Vec<u64>), Error> {
        let Self { scratch, rows, timings, blocks, names, offsets } = self;
        let output = Output { rows, timings, blocks, names, offsets };
        let fitted = fit::fit(recorded, options, scratch.lend(), output)?;
        // `load_min` counts sizes rounded up to the alignment, `original_peak` as they are.
        let rounding = options.alignment * recorded.rows.len() as u64;
        assert!(fitted.load_min <= fitted.original_peak.saturating_add(rounding));
        let (rows, offsets) = (fitted.schedule.rows().to_vec(), fitted.schedule.plan().offsets().to_vec());
        Ok((fitted.schedule, rows, offsets))
    }
}
