//! Simulates how long a trace that was rewritten to save memory takes on a device. The device has three queues, each of
//! which does one thing after the other: compute (the operators), copies out to the host, and copies in from it.
//!
//! An *access* is a row in which a block is read or written. Rows take this time:
//!
//! - An operator takes the time that it took in the original trace: from the last access before it to its own last
//!   access. The part before its first access passes without waiting. At its first access, the operator waits until the
//!   copies in of all blocks that it accesses are done, and the copies out of all blocks that it writes. So the time of
//!   an operator's first access should be when the kernel begins to use its blocks. Where all accesses of an operator
//!   have the time of its end, copies are hidden behind the whole operator.
//! - A recomputed operator takes the time from its first access to its last.
//! - A copy starts when compute has reached its row, its queue is free and earlier copies of the block are done. A copy
//!   takes the latency plus its bytes divided by the bandwidth.
//! - A free waits for the block's copies.
//! - A ReLU's mask (one bit for each element, kept for the gradient) takes no time to write. The write waits for the
//!   mask's copies, and for the copy in of the block that the mask is made from. An operator that reads a mask waits
//!   for the mask's copy in.
//!
//! At the end, compute takes the time that the original trace took after its last access. The simulation ends when all
//! queues are empty.
//!
//! Cost: one pass over the rows, a binary search for each operator, and a few words of scratch for each row and block.
//! Floating-point numbers are only added, multiplied, divided and compared, in a fixed order, so that every platform
//! finds the same times.

pub use super::device::Device;
use super::links::Links;
use crate::error::{Buffer, RowFault};
use crate::table::Table;
use crate::trace::recorded::{self, Operators, Progress};
use crate::trace::{Event, Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen, block};

/// When one row of a rewritten trace happens in the simulation, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Timing {
    /// When the queue of operators (compute) reaches the row, in ns from the start of the iteration.
    pub reached: f64,
    /// When the row begins, in ns from the start of the iteration: everything that it waits for is then done and, if it
    /// is a copy, the link is free.
    pub begin: f64,
    /// When the row is done, in ns from the start of the iteration.
    pub end: f64,
}

/// The simulated time of a rewritten trace, and what the trace copies and recomputes.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Run {
    /// The time until operators, copies out and copies in are all done, in ns.
    pub time_ns: f64,
    /// The time of the original trace, before it was rewritten, in ns.
    pub original_ns: u64,
    /// The bytes of all copies between device and host, out and in added up.
    pub swapped_bytes: u64,
    /// The most bytes of blocks that are allocated on the device at once.
    pub peak_load: u64,
    /// The bytes of all blocks that are copied, each block counted once: the memory that the host needs for the copies.
    pub host_bytes: u64,
    /// The time that recomputed operators take, in ns: the sum of the times from the first access of each to its last.
    pub recomputed_ns: u64,
}

impl Run {
    /// The overhead: how much longer the rewritten trace takes than the original, as a fraction of the original's time
    /// (0.1 is 10 % longer). 0 if the original takes no time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be read")]
    pub fn overhead(&self) -> f64 {
        if self.original_ns == 0 { 0.0 } else { self.time_ns / self.original_ns as f64 - 1.0 }
    }
}

/// Length of the workspace that [`simulate`] needs for a recording of `rows` rows, whose block numbers are below
/// `blocks`.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(rows, blocks).and(WorkspaceLen { words: 6 * blocks, indices: 2 * blocks })
}

/// Simulates how long the trace `rewritten` takes on `device`; `rewritten` has the operators of `recorded`, in any
/// order, and may recompute them and copy blocks. Writes to `timings` when each row of `rewritten` happens. Does not
/// check that the trace is valid. O(rows log rows).
///
/// # Errors
/// [`Error::Row`] for an access of an operator that has no access to do by the recording, for more accesses without
/// operator than the recording has, for a block number that names neither a block of the recording nor a block's mask
/// (see [`Recorded`]), or for a recording that recomputes an operator, or has other accesses between those of one
/// operator; [`Error::TooManyBlocks`] for more blocks than [`MAX_BLOCKS`](crate::MAX_BLOCKS); [`Error::BufferTooSmall`] if there is
/// not one timing for each row, or the workspace is too short.
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
    if !device.is_sound() {
        return Err(Error::Device);
    }
    let numbers = recorded.numbers();
    let mut queues = Queues::new(device, numbers, &mut scratch);
    let mut size = scratch.words(numbers);
    let mut on_host = scratch.indices(numbers);
    let mut operators = Operators::new(recorded, &mut scratch)?;
    let mut run = Run { original_ns: recorded.time_ns(), ..Run::default() };
    let mut load = 0u64;
    let mut open = None::<Progress>;
    for (step, (r, timing)) in (0u32..).zip(rewritten.iter().zip(timings)) {
        let refused = |fault| Error::Row { row: step, fault };
        if usize::try_from(r.block).map_or(true, |b| b >= numbers) {
            return Err(refused(RowFault::UnknownBlock));
        }
        let masked = recorded.masked(r.block);
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
            Event::Write if masked.is_some() && open.is_none() => queues.wait_to_mask(r, masked),
            Event::Read | Event::Write => {
                if open.is_none() {
                    let begun = operators.begin(r.op).ok_or(refused(RowFault::OtherAccess))?;
                    if !begun.rerun {
                        queues.pass(operators.since_access_before(begun.first));
                    }
                    timing.reached = queues.compute;
                    operators.to_come(begun).for_each(|(_, access)| queues.wait(access));
                    open = Some(begun);
                }
                if masked.is_some() {
                    queues.wait(r);
                }
                timing.begin = queues.compute;
                let next = open.and_then(|progress| Some((progress, operators.to_come(progress).next()?)));
                let (progress, (row, _)) = next.ok_or(refused(RowFault::OtherAccess))?;
                let added = operators.since_last_access(progress, row);
                queues.pass(added);
                timing.end = queues.compute;
                if progress.rerun {
                    run.recomputed_ns = run.recomputed_ns.saturating_add(added);
                }
                let progress = Progress { next: row + 1, ..progress };
                open = operators.to_come(progress).next().map(|_| progress);
                continue;
            }
        }
        (timing.begin, timing.end) = (queues.compute, queues.compute);
    }
    let last = rows.iter().rev().find(|r| r.event.is_access()).map_or(0, |r| r.time_ns);
    queues.pass(run.original_ns.saturating_sub(last));
    run.time_ns = queues.links.idle_after(queues.compute);
    Ok(run)
}

struct Queues<'a> {
    device: Device,
    compute: f64,
    links: Links,
    /// The end of the block's latest copy out, in ns, as the bits of an `f64`; 0 if none since its malloc.
    copied_out: Table<'a, u64>,
    copied_in: Table<'a, u64>,
}

impl<'a> Queues<'a> {
    fn new(device: &Device, blocks: usize, scratch: &mut Workspace<'a>) -> Self {
        let (copied_out, copied_in) = (scratch.words(blocks), scratch.words(blocks));
        Self { compute: 0.0, device: *device, links: Links::new(), copied_out, copied_in }
    }

    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn pass(&mut self, ns: u64) {
        self.compute += ns as f64;
    }

    fn wait(&mut self, access: &Row) {
        self.compute = self.compute.max(f64::from_bits(self.copied_in[access.block]));
        if access.event == Event::Write {
            self.compute = self.compute.max(f64::from_bits(self.copied_out[access.block]));
        }
    }

    fn wait_to_mask(&mut self, mask: &Row, masked: Option<u32>) {
        self.wait(mask);
        if let Some(block) = masked {
            self.wait(&Row { event: Event::Read, block, ..*mask });
        }
    }

    fn free(&mut self, block: u32) {
        for copied in [&mut self.copied_out, &mut self.copied_in] {
            self.compute = self.compute.max(f64::from_bits(copied[block]));
            copied[block] = 0;
        }
    }

    fn copy(&mut self, event: Event, block: u32, bytes: u64) -> (f64, f64) {
        let earlier = f64::from_bits(self.copied_out[block]).max(f64::from_bits(self.copied_in[block]));
        let ready = self.compute.max(earlier);
        let (copied, (begin, end)) = match event {
            Event::SwapOut => (&mut self.copied_out, self.links.copy_out(self.device.out_ns(bytes), ready)),
            _ => (&mut self.copied_in, self.links.copy_in(self.device.in_ns(bytes), ready)),
        };
        copied[block] = end.to_bits();
        (begin, end)
    }
}
