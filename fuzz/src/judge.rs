//! Compares the verifier of rewritten traces, and what it uses, with naive versions.

use sublet_core::place::{self, Solver};
use sublet_core::simulate::{Device, Run, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Event, Recorded, Row};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error, VerifiedSchedule};

use crate::scratch::Scratch;
use crate::{naive, schedule};

/// The residencies of rows with so many block numbers: the lifetime and the name of each. Asserts that a naive model
/// finds the same.
///
/// # Errors
/// Those of `liveness::lifetimes`.
pub fn lifetimes(rows: &[Row], blocks: usize) -> Result<(Vec<Block>, Vec<Residency>), Error> {
    let n = liveness::residencies(rows);
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Residency::default(); n]);
    let mut scratch = Scratch::of(liveness::workspace(blocks));
    assert_eq!(liveness::lifetimes(rows, blocks, scratch.lend(), &mut lives, &mut names)?, n);
    let mallocs = rows.iter().enumerate().filter(|(_, r)| r.event == Event::Malloc);
    for ((begin, r), (life, name)) in mallocs.zip(lives.iter().zip(&names)) {
        let is_end = |(_, other): &(usize, &Row)| other.event == Event::Free && other.block == r.block;
        let end = rows.iter().enumerate().skip(begin).find(is_end).map_or(rows.len(), |(i, _)| i);
        assert_eq!(*life, Block::new(begin as u32, end as u32, r.bytes));
        let before = rows[..begin].iter().filter(|o| o.event == Event::Malloc && o.block == r.block).count();
        assert_eq!(*name, Residency { block: r.block, ordinal: before as u32 });
    }
    Ok((lives, names))
}

/// Offsets for the residencies of rows; those that take over each other's memory in place get the same offset. All are
/// 0 if the residencies cannot be placed.
pub fn place(rows: &[Row], blocks: usize) -> Vec<u64> {
    let mut offsets = vec![0; liveness::residencies(rows)];
    let Ok((mut lives, _)) = lifetimes(rows, blocks) else { return offsets };
    let mut part_of = vec![0; lives.len()];
    let mut scratch = Scratch::of(liveness::merge_workspace(blocks));
    let n = liveness::merge(rows, blocks, scratch.lend(), &mut lives, &mut part_of).expect("the rows are fine");
    let mut scratch = Scratch::of(place::workspace_of(Solver::BestFit, n));
    let options = place::Options::default();
    if place::place(Solver::BestFit, &lives[..n], &options, scratch.lend(), &mut offsets[..n]).is_ok() {
        liveness::spread(&part_of, &mut offsets);
    }
    offsets
}

/// Has the verifier judge a rewritten trace with a plan, and checks its simulated times.
///
/// # Errors
/// Those of the verifier.
pub fn judge(
    recorded: &Recorded<'_>,
    rewritten: &[Row],
    offsets: &[u64],
    (device, cyclic): (&Device, bool),
    constraints: &Constraints,
) -> Result<Run, Error> {
    let n = liveness::residencies(rewritten);
    let mut timings = vec![Timing::default(); rewritten.len()];
    let (mut lives, mut names) = (vec![Block::default(); n], vec![Residency::default(); n]);
    let mut scratch = Scratch::of(verify::schedule_workspace(recorded.rows.len(), recorded.blocks, n));
    let room = Room { timings: &mut timings, blocks: &mut lives, names: &mut names };
    let schedule = verify::schedule(recorded, rewritten, offsets, (device, cyclic), constraints, scratch.lend(), room)?;
    check_times(&schedule, device);
    Ok(*schedule.run())
}

/// Asserts that the verifier and the naive judge say the same of `rewritten`, rows that may be anything.
pub fn compare(recorded: &Recorded<'_>, rewritten: &[Row], (device, cyclic): (&Device, bool)) {
    // Block numbers from `recorded.blocks` on are those of masks.
    let numbers = 2 * recorded.blocks;
    let offsets = place(rewritten, numbers);
    let verdict = judge(recorded, rewritten, &offsets, (device, cyclic), &Constraints::NONE);
    if !schedule::well_formed(recorded.rows, recorded.blocks) || !schedule::recorded(recorded.rows) {
        return;
    }
    let taken_over = schedule::computes_the_same(recorded, rewritten, cyclic);
    let in_place = |pairs: Vec<[usize; 2]>| pairs.iter().all(|&[giver, taker]| offsets[giver] == offsets[taker]);
    let fine = schedule::well_formed(rewritten, numbers) && taken_over.is_some_and(in_place);
    match verdict {
        Ok(_) => assert!(fine, "the naive judge refuses {rewritten:#?}"),
        Err(Error::Row { row, fault }) => assert!(!fine, "row {row}: {fault}"),
        Err(Error::HostTooSmall { capacity, .. }) => assert_eq!(device.host_capacity, Some(capacity)),
        Err(Error::Device) => assert!(!device.is_sound()),
        Err(e) => {
            let lives = lifetimes(rewritten, numbers).map(|(lives, _)| lives).unwrap_or_default();
            assert!(!naive::plannable(&lives, 1), "{e}");
        }
    }
}

/// Asserts that the simulated times are possible: compute goes forward, each link carries one copy at a time, and the
/// run ends when everything is done.
pub fn check_times(schedule: &VerifiedSchedule<'_>, device: &Device) {
    let run = schedule.run();
    let (mut compute, mut out, mut back) = (0.0, 0.0, 0.0f64);
    let mut copied = 0;
    for (r, t) in schedule.rows().iter().zip(schedule.timings()) {
        assert!(t.reached >= compute && t.begin >= t.reached && t.end >= t.begin, "{r:?} {t:?} after {compute}");
        assert!(t.end <= run.time_ns, "{r:?} {t:?} {run:?}");
        let residency = schedule.names().iter().position(|name| name.block == r.block);
        let size = residency.map_or(0, |i| schedule.plan().blocks()[i].size);
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
