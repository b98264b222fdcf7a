//! How long a rewritten trace takes.

use core::ffi::c_void;

use sublet_core::simulate::{self, Device, Run, Timing};
use sublet_core::trace::Row;

use crate::arguments::{Arguments, Params, plain};
use crate::boundary::boundary;
use crate::error::sublet_error;
use crate::status::sublet_status;
use crate::trace::{self, sublet_row};
use crate::workspace::{Needed, sublet_layout, tell};

/// The links between a device and its host. NULL, or all 0 but `struct_size`, is PCIe 3 with 16 lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_device {
    /// sizeof(sublet_device).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
    /// From the device to the host, in bytes per second; 0 is 12e9.
    pub out_bandwidth: f64,
    /// From the host to the device, in bytes per second; 0 is 12e9.
    pub in_bandwidth: f64,
    /// What a copy out takes beside its bytes, in ns; 0 is 10000.
    pub out_latency: f64,
    /// What a copy in takes beside its bytes, in ns; 0 is 10000.
    pub in_latency: f64,
    /// Bytes that the host can hold for the device; 0 is no limit.
    pub host_capacity: u64,
}

/// When a row of a rewritten trace happens, in ns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_timing {
    /// Compute comes to the row.
    pub reached: f64,
    /// What the row waits for is done; a copy begins.
    pub begin: f64,
    /// It is done.
    pub end: f64,
}

/// How a rewritten trace runs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_run {
    /// When compute and the copies each way are done, in ns.
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

plain!(sublet_device, sublet_timing, sublet_run);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_device {}

impl From<sublet_device> for Device {
    fn from(d: sublet_device) -> Self {
        // 0, not nearly 0, is the default.
        let or = |x: f64, default: f64| if x.to_bits() == 0 { default } else { x };
        let usual = Self::symmetric(12e9);
        Self {
            out_bandwidth: or(d.out_bandwidth, usual.out_bandwidth),
            in_bandwidth: or(d.in_bandwidth, usual.in_bandwidth),
            out_latency: or(d.out_latency, usual.out_latency),
            in_latency: or(d.in_latency, usual.in_latency),
            host_capacity: Some(d.host_capacity).filter(|&c| c > 0),
            ..usual
        }
    }
}

impl From<Timing> for sublet_timing {
    fn from(Timing { reached, begin, end }: Timing) -> Self {
        Self { reached, begin, end }
    }
}

impl From<Run> for sublet_run {
    fn from(Run { time_ns, original_ns, swapped_bytes, peak_load, host_bytes }: Run) -> Self {
        Self { time_ns, original_ns, swapped_bytes, peak_load, host_bytes }
    }
}

fn needed(original: usize, rewritten: usize, blocks: usize) -> Needed {
    Needed::workspace(simulate::workspace(blocks)).and::<Row>(original).and::<Row>(rewritten).and::<Timing>(rewritten)
}

/// The workspace that sublet_simulate needs for so many rows and block numbers. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate_workspace(
    original_count: usize,
    rewritten_count: usize,
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (original, rewritten) = (arguments.count(original_count)?, arguments.count(rewritten_count)?);
        let blocks = arguments.count(block_count)?;
        Ok(needed(original, rewritten, blocks))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Times `rewritten`, which holds the accesses of `original` in their order. Three queues run side by side: compute,
/// copies out, copies in. Whether the trace is valid is not asked here, but by sublet_verify_schedule.
///
/// `device` may be NULL. `timings`, one for each row of `rewritten`, may be NULL, and so may `run`. O(rows).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate(
    original: *const sublet_row,
    original_count: usize,
    rewritten: *const sublet_row,
    rewritten_count: usize,
    block_count: usize,
    device: *const sublet_device,
    workspace: *mut c_void,
    workspace_size: usize,
    timings: *mut sublet_timing,
    run: *mut sublet_run,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, || {
        let mut arguments = Arguments::new();
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (original, rewritten, device, mut room, timings, run) = unsafe {
            let original = arguments.input(original, original_count)?;
            let rewritten = arguments.input(rewritten, rewritten_count)?;
            arguments.count(block_count)?;
            let device = arguments.params(device)?;
            let needed = needed(original_count, rewritten_count, block_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let timings = arguments.output_if_wanted(timings, rewritten_count)?;
            (original, rewritten, device, room, timings, arguments.optional(run)?)
        };
        let (original, rewritten) = (trace::rows(&mut room, original)?, trace::rows(&mut room, rewritten)?);
        let times = room.fill(rewritten_count, Timing::default());
        let scratch = room.workspace(simulate::workspace(block_count));
        let found = simulate::simulate(original, rewritten, block_count, &device.into(), scratch, times)?;
        trace::copy(times, timings);
        run.set(found.into());
        Ok(())
    })
}
