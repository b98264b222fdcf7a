//! How long a rewritten trace takes: three serial queues, for compute and for the copies each way.
//!
//! Compute takes the times between the accesses of the original trace. An operator starts when the copies in
//! of all that it touches and the copies out of all that it writes are done. A copy starts when compute has
//! come to its row, its queue is free and earlier copies of the block are done; it takes the latency and
//! bytes over bandwidth. A free waits for the block's copies. The run ends when all queues are empty.
//!
//! One pass over the rows, a few words of scratch for each block. Only sums, quotients and maxima of real numbers
//! are taken, in a fixed order, so that the times are the same everywhere.

use crate::error::{Buffer, RowFault};
use crate::table::Table;
use crate::trace::{Event, Op, Row};
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
}

impl Run {
    /// What the run takes longer than the original, as a fraction of it; 0 where the original takes no time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
    pub fn overhead(&self) -> f64 {
        if self.original_ns == 0 { 0.0 } else { self.time_ns / self.original_ns as f64 - 1.0 }
    }
}

/// Length of the workspace that [`simulate`] needs for traces with `blocks` block numbers.
#[must_use]
pub const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 3 * blocks, indices: blocks }
}

/// Times `rewritten`, which holds the accesses of `original` in their order, on `device`; writes when each of its
/// rows happens to `timings`. Whether it is valid is not asked here. O(rows).
///
/// # Errors
/// [`Error::Row`] for a row that has no place among the accesses of the original, or a block number that is not
/// below `block_count`; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if there is not one timing for each row, or
/// the workspace is too short.
///
/// ```
/// use sublet_core::simulate::{self, Device, Timing};
/// use sublet_core::trace::{Event, Op, Row};
/// use sublet_core::Workspace;
/// let row = |time_ns, event, op| Row { time_ns, event, op, block: 0, bytes: if event == Event::Malloc { 12_000 } else { 0 } };
/// let original = [
///     row(0, Event::Malloc, Op::None),
///     row(0, Event::Write, Op::First(0)),
///     row(9_000, Event::Read, Op::First(1)),
/// ];
/// let rewritten = [
///     original[0],
///     original[1],
///     row(0, Event::SwapOut, Op::None), // 10 µs and 12,000 bytes at 12 GB/s: 11 µs
///     row(0, Event::Free, Op::None),
///     original[0],
///     row(0, Event::SwapIn, Op::None),
///     original[2],
/// ];
/// let (mut words, mut indices, mut timings) = ([0; 3], [0; 1], [Timing::default(); 7]);
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let run = simulate::simulate(&original, &rewritten, 1, &Device::symmetric(12e9), scratch, &mut timings)?;
/// // The read is reached at 11 + 9 µs and waits until 22 µs.
/// assert_eq!((timings[6].reached, run.time_ns), (20_000.0, 22_000.0));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn simulate(
    original: &[Row],
    rewritten: &[Row],
    block_count: usize,
    device: &Device,
    mut scratch: Workspace<'_>,
    timings: &mut [Timing],
) -> Result<Run, Error> {
    block::check_count(block_count)?;
    scratch.check(workspace(block_count))?;
    if timings.len() != rewritten.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Timings, needed: rewritten.len(), got: timings.len() });
    }
    let mut queues = Queues {
        device: *device,
        compute: 0.0,
        out: 0.0,
        back: 0.0,
        copied_out: scratch.words(block_count),
        copied_in: scratch.words(block_count),
    };
    let mut size = scratch.words(block_count);
    let mut on_host = scratch.indices(block_count);
    let mut accesses = original.iter().enumerate().filter(|(_, r)| r.event.is_access());
    let mut run = Run { original_ns: original.last().map_or(0, |r| r.time_ns), ..Run::default() };
    let (mut load, mut previous) = (0u64, 0);
    // The original's rows of the operator in progress are those before this one.
    let mut operator_end = 0;
    for (step, (r, timing)) in (0u32..).zip(rewritten.iter().zip(timings)) {
        let refuse = |fault| Err(Error::Row { row: step, fault });
        if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
            return refuse(RowFault::UnknownBlock);
        }
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
            Event::Read | Event::Write => {
                let Some((i, access)) = accesses.next() else {
                    return refuse(RowFault::OtherAccess);
                };
                queues.pass(access.time_ns.saturating_sub(previous));
                if i >= operator_end {
                    timing.reached = queues.compute;
                    operator_end = operator(original, i);
                    let rows = original.get(i..operator_end).unwrap_or_default();
                    for r in rows.iter().filter(|r| r.event.is_access()) {
                        if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
                            return refuse(RowFault::OtherAccess);
                        }
                        queues.wait(r);
                    }
                    timing.begin = queues.compute;
                } else {
                    timing.begin = timing.reached;
                }
                previous = access.time_ns;
                timing.end = queues.compute;
                continue;
            }
        }
        (timing.begin, timing.end) = (queues.compute, queues.compute);
    }
    queues.pass(run.original_ns.saturating_sub(previous));
    run.time_ns = queues.compute.max(queues.out).max(queues.back);
    Ok(run)
}

/// The row after the last access of the operator whose first access is the row `first`: the accesses that follow
/// with the same number. An access without a number is alone.
pub(crate) fn operator(rows: &[Row], first: usize) -> usize {
    let op = rows.get(first).map_or(Op::None, |r| r.op);
    let mut end = first + 1;
    if op != Op::None {
        for (i, r) in rows.iter().enumerate().skip(end).filter(|(_, r)| r.event.is_access()) {
            if r.op != op {
                break;
            }
            end = i + 1;
        }
    }
    end
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
