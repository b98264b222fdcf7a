//! How long a rewritten trace takes: three serial queues, for compute and for the copies each way.
//!
//! Compute takes the times between the accesses of the original trace. An operator starts when the copies in
//! of all that it touches and the copies out of all that it writes are done. A copy starts when compute has
//! come to its row, its queue is free and earlier copies of the block are done; it takes the latency and
//! bytes over bandwidth. A free waits for the block's copies. The run ends when all queues are empty. An operator
//! that runs again takes its time again; the mask of a rectifier is made in no time, and who reads it waits for it.
//!
//! One pass over the rows, a few words of scratch for each row and block. Only sums, quotients and maxima of real numbers
//! are taken, in a fixed order, so that the times are the same everywhere.

use crate::error::{Buffer, RowFault};
use crate::table::Table;
use crate::trace::recorded::{self, Operators, Progress};
use crate::trace::{Event, Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen, block};

/// The links between a device and its host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// From the device to the host, in bytes per second.
    pub out_bandwidth: f64,
    /// From the host to the device, in bytes per second.
    pub in_bandwidth: f64,
    /// What a copy out takes beside its bytes, in ns.
    pub out_latency: f64,
    /// What a copy in takes beside its bytes, in ns.
    pub in_latency: f64,
    /// Bytes that the host can hold for the device; none is no limit.
    pub host_capacity: Option<u64>,
    /// Host and device share one memory: swapping frees nothing.
    pub integrated: bool,
}

impl Device {
    /// The devices that have a name, with it.
    pub const PRESETS: [(&'static str, Self); 4] = [
        // PCIe 3, 16 lanes.
        ("gtx1080ti", Self::symmetric(12e9)),
        // PCIe 5, 16 lanes.
        ("h200", Self::symmetric(55e9)),
        ("k40", Self::symmetric(10e9)),
        // One memory for both; the bandwidth is not asked for.
        ("jetson-orin", Self { host_capacity: Some(0), integrated: true, ..Self::symmetric(12e9) }),
    ];

    /// The same bandwidth each way, in bytes per second, a latency of 10 µs, and a host that holds everything.
    #[must_use]
    pub const fn symmetric(bandwidth: f64) -> Self {
        let latency = 10_000.0;
        Self {
            out_bandwidth: bandwidth,
            in_bandwidth: bandwidth,
            out_latency: latency,
            in_latency: latency,
            host_capacity: None,
            integrated: false,
        }
    }

    /// The preset of this name.
    ///
    /// ```
    /// use sublet_core::simulate::Device;
    /// assert_eq!(Device::named("gtx1080ti"), Some(Device::symmetric(12e9)));
    /// assert_eq!(Device::named("abacus"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::PRESETS.iter().find(|(n, _)| *n == name).map(|&(_, device)| device)
    }

    /// How long a copy of this many bytes takes to the host, in ns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub fn out_ns(&self, bytes: u64) -> f64 {
        self.out_latency + bytes as f64 * 1e9 / self.out_bandwidth
    }

    /// How long a copy of this many bytes takes from the host, in ns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub fn in_ns(&self, bytes: u64) -> f64 {
        self.in_latency + bytes as f64 * 1e9 / self.in_bandwidth
    }

    /// The bytes whose copy out takes twice its latency: for smaller blocks the link is less than half in use.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    pub fn least_worth_copying(&self) -> u64 {
        libm::ceil(self.out_latency * self.out_bandwidth / 1e9) as u64
    }

    /// Whether copies take a time that can be computed with.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let positive = |x: f64| x.is_finite() && x > 0.0;
        let latency = |x: f64| x.is_finite() && x >= 0.0;
        positive(self.out_bandwidth)
            && positive(self.in_bandwidth)
            && latency(self.out_latency)
            && latency(self.in_latency)
    }
}

/// When a row of a rewritten trace happens, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Timing {
    /// Compute comes to the row.
    pub reached: f64,
    /// What the row waits for is done; a copy begins.
    pub begin: f64,
    /// It is done.
    pub end: f64,
}

/// How a rewritten trace runs.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Run {
    /// When all three queues are empty, in ns.
    pub time_ns: f64,
    /// How long the original takes, in ns.
    pub original_ns: u64,
    /// Bytes that were copied, both ways together.
    pub swapped_bytes: u64,
    /// Most bytes that are on the device at once.
    pub peak_load: u64,
    /// Bytes of the blocks that are copied, each once: what the host has to hold for them.
    pub host_bytes: u64,
    /// How long the operators that run again take together, in ns.
    pub recomputed_ns: u64,
}

impl Run {
    /// What the run takes longer than the original, as a fraction of it; 0 where the original takes no time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
    pub fn overhead(&self) -> f64 {
        if self.original_ns == 0 { 0.0 } else { self.time_ns / self.original_ns as f64 - 1.0 }
    }
}

/// Length of the workspace that [`simulate`] needs for a recording of `rows` rows with `blocks` block numbers.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(rows, blocks).and(WorkspaceLen { words: 6 * blocks, indices: 2 * blocks })
}

/// Times `rewritten`, which holds the accesses of `recorded` in their order, on `device`; writes when each of its
/// rows happens to `timings`. Whether it is valid is not asked here. O(rows).
///
/// # Errors
/// [`Error::Row`] for a row that has no place among the accesses of the recording, a block number that is not one of
/// its blocks or their masks, or a recording whose operators do not stand together; [`Error::TooManyBlocks`];
/// [`Error::BufferTooSmall`] if there is not one timing for each row, or the workspace is too short.
///
/// ```
/// use sublet_core::simulate::{self, Device, Timing};
/// use sublet_core::trace::{Event, Op, Recorded, Row};
/// use sublet_core::Workspace;
/// let row = |time_ns, event, op| Row { time_ns, event, op, block: 0, bytes: if event == Event::Malloc { 12_000 } else { 0 } };
/// let recorded = [
///     row(0, Event::Malloc, Op::None),
///     row(0, Event::Write, Op::First(0)),
///     row(9_000, Event::Read, Op::First(1)),
/// ];
/// let rewritten = [
///     recorded[0],
///     recorded[1],
///     row(0, Event::SwapOut, Op::None), // 10 µs and 12,000 bytes at 12 GB/s: 11 µs
///     row(0, Event::Free, Op::None),
///     recorded[0],
///     row(0, Event::SwapIn, Op::None),
///     recorded[2],
/// ];
/// let len = simulate::workspace(recorded.len(), 1);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let mut timings = [Timing::default(); 7];
/// let recorded = Recorded::new(&recorded, 1);
/// let run = simulate::simulate(&recorded, &rewritten, &Device::symmetric(12e9), scratch, &mut timings)?;
/// // The read is reached at 11 + 9 µs and waits until 22 µs.
/// assert_eq!((timings[6].reached, run.time_ns), (20_000.0, 22_000.0));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn simulate(
    recorded: &Recorded<'_>,
    rewritten: &[Row],
    device: &Device,
    scratch: Workspace<'_>,
    timings: &mut [Timing],
) -> Result<Run, Error> {
    let mut scratch = scratch;
    let Recorded { rows, blocks, .. } = *recorded;
    block::check_count(blocks)?;
    scratch.check(workspace(rows.len(), blocks))?;
    if timings.len() != rewritten.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Timings, needed: rewritten.len(), got: timings.len() });
    }
    let numbers = recorded.numbers();
    let mut queues = Queues {
        device: *device,
        compute: 0.0,
        out: 0.0,
        back: 0.0,
        copied_out: scratch.words(numbers),
        copied_in: scratch.words(numbers),
    };
    let mut size = scratch.words(numbers);
    let mut on_host = scratch.indices(numbers);
    let mut operators = Operators::new(recorded, &mut scratch)?;
    let mut run = Run { original_ns: rows.last().map_or(0, |r| r.time_ns), ..Run::default() };
    let (mut load, mut previous) = (0u64, 0);
    // The recording is read up to this row, and the operator that is open.
    let (mut next, mut open) = (0, None::<Progress>);
    for (step, (r, timing)) in (0u32..).zip(rewritten.iter().zip(timings)) {
        let refuse = |fault| Err(Error::Row { row: step, fault });
        if usize::try_from(r.block).map_or(true, |b| b >= numbers) {
            return refuse(RowFault::UnknownBlock);
        }
        let is_mask = recorded.masked(r.block).is_some();
        timing.reached = queues.compute;
        match r.event {
            Event::Malloc => {
                size[r.block] = r.bytes;
                load = load.saturating_add(r.bytes);
                run.peak_load = run.peak_load.max(load);
            }
            Event::Free => {
                queues.free(r.block);
                load = load.saturating_sub(size[r.block]);
            }
            Event::SwapOut | Event::SwapIn => {
                (timing.begin, timing.end) = queues.copy(r.event, r.block, size[r.block]);
                run.swapped_bytes = run.swapped_bytes.saturating_add(size[r.block]);
                if on_host[r.block] == 0 {
                    on_host[r.block] = 1;
                    run.host_bytes = run.host_bytes.saturating_add(size[r.block]);
                }
                continue;
            }
            Event::Write if is_mask && open.is_none() => {}
            Event::Read | Event::Write => {
                if open.is_none() {
                    let Some(begun) = operators.begin(r.op, next) else {
                        return refuse(RowFault::OtherAccess);
                    };
                    if !begun.again {
                        let first = rows.get(begun.first).map_or(0, |r| r.time_ns);
                        queues.pass(first.saturating_sub(previous));
                    }
                    timing.reached = queues.compute;
                    operators.to_come(begun).for_each(|(_, access)| queues.wait(access));
                    open = Some(begun);
                }
                if is_mask {
                    queues.wait(r);
                }
                timing.begin = queues.compute;
                let Some((progress, (row, access))) = open.and_then(|p| Some((p, operators.to_come(p).next()?))) else {
                    return refuse(RowFault::OtherAccess);
                };
                let added = operators.since_last_access(progress, row);
                queues.pass(added);
                timing.end = queues.compute;
                if progress.again {
                    run.recomputed_ns = run.recomputed_ns.saturating_add(added);
                } else {
                    (next, previous) = (row + 1, access.time_ns);
                }
                let progress = Progress { next: row + 1, ..progress };
                open = operators.to_come(progress).next().map(|_| progress);
                continue;
            }
        }
        (timing.begin, timing.end) = (queues.compute, queues.compute);
    }
    queues.pass(run.original_ns.saturating_sub(previous));
    run.time_ns = queues.compute.max(queues.out).max(queues.back);
    Ok(run)
}

/// When each queue is free, and when the last copies of each block are done.
struct Queues<'a> {
    device: Device,
    compute: f64,
    out: f64,
    back: f64,
    /// As bits; 0 before the first copy.
    copied_out: Table<'a, u64>,
    copied_in: Table<'a, u64>,
}

impl Queues<'_> {
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn pass(&mut self, ns: u64) {
        self.compute += ns as f64;
    }

    /// Waits for what an access of an operator that starts depends on.
    fn wait(&mut self, access: &Row) {
        self.compute = self.compute.max(f64::from_bits(self.copied_in[access.block]));
        if access.event == Event::Write {
            self.compute = self.compute.max(f64::from_bits(self.copied_out[access.block]));
        }
    }

    fn free(&mut self, block: u32) {
        for copied in [&mut self.copied_out, &mut self.copied_in] {
            self.compute = self.compute.max(f64::from_bits(copied[block]));
            copied[block] = 0;
        }
    }

    fn copy(&mut self, event: Event, block: u32, bytes: u64) -> (f64, f64) {
        let (queue, duration) = match event {
            Event::SwapOut => (&mut self.out, self.device.out_ns(bytes)),
            _ => (&mut self.back, self.device.in_ns(bytes)),
        };
        let earlier = f64::from_bits(self.copied_out[block]).max(f64::from_bits(self.copied_in[block]));
        let begin = self.compute.max(*queue).max(earlier);
        *queue = begin + duration;
        let copied = if event == Event::SwapOut { &mut self.copied_out } else { &mut self.copied_in };
        copied[block] = queue.to_bits();
        (begin, *queue)
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "sums of whole numbers")]
mod tests {
    use super::*;
    use crate::trace::Op;
    use std::vec::Vec;

    const fn row(time_ns: u64, event: Event, block: u32, bytes: u64, op: Op) -> Row {
        Row { time_ns, bytes, block, op, event }
    }

    /// 1,000 bytes each way in 1 µs out and 2 µs in, beside latencies of 10 and 30 µs.
    const UNLIKE: Device = Device {
        out_bandwidth: 1e9,
        in_bandwidth: 5e8,
        out_latency: 10_000.0,
        in_latency: 30_000.0,
        host_capacity: None,
        integrated: false,
    };

    fn timed(recorded: &[Row], rewritten: &[Row]) -> (Run, Vec<Timing>) {
        let len = workspace(recorded.len(), 2);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let mut timings = vec![Timing::default(); rewritten.len()];
        let scratch = Workspace::new(&mut words, &mut indices);
        let run = simulate(&Recorded::new(recorded, 2), rewritten, &UNLIKE, scratch, &mut timings).unwrap();
        (run, timings)
    }

    /// Block 0 is made, read 1 µs later, and written 1 µs after that.
    const RECORDED: [Row; 5] = [
        row(0, Event::Malloc, 0, 1000, Op::None),
        row(0, Event::Write, 0, 0, Op::First(0)),
        row(1000, Event::Read, 0, 0, Op::First(1)),
        row(2000, Event::Write, 0, 0, Op::First(2)),
        row(3000, Event::Free, 0, 0, Op::None),
    ];
    const OUT: Row = row(0, Event::SwapOut, 0, 0, Op::None);
    const IN: Row = row(0, Event::SwapIn, 0, 0, Op::None);

    #[test]
    fn reads_go_on_beside_a_copy_out_and_writes_wait_for_it() {
        let [malloc, write, read, update, free] = RECORDED;
        let (run, timings) = timed(&RECORDED, &[malloc, write, OUT, read, update, free]);
        assert_eq!((timings[2].begin, timings[2].end), (0.0, 11_000.0));
        assert_eq!((timings[3].begin, timings[4].reached, timings[4].begin), (1000.0, 2000.0, 11_000.0));
        assert_eq!((run.time_ns, run.original_ns), (12_000.0, 3000));
    }

    #[test]
    fn each_way_has_its_own_latency_and_bandwidth() {
        let [malloc, write, read, update, free] = RECORDED;
        let (run, timings) = timed(&RECORDED, &[malloc, write, OUT, free, malloc, IN, read, update, free]);
        assert_eq!((timings[2].begin, timings[2].end), (0.0, 11_000.0));
        assert_eq!((timings[5].begin, timings[5].end), (11_000.0, 43_000.0));
        assert_eq!(run.time_ns, 45_000.0);
        assert_eq!((UNLIKE.out_ns(1000), UNLIKE.in_ns(1000)), (11_000.0, 32_000.0));
    }

    #[test]
    fn the_host_holds_a_block_once_however_often_it_is_copied() {
        let [malloc, write, read, update, free] = RECORDED;
        let (run, _) = timed(&RECORDED, &[malloc, write, OUT, free, malloc, IN, read, OUT, update, OUT, free]);
        assert_eq!((run.host_bytes, run.swapped_bytes), (1000, 4000));
    }
}
