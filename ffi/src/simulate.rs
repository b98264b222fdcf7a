//! How long a rewritten trace takes.

use core::ffi::{c_char, c_void};

use sublet_core::simulate::{self, Device, Run, Timing};
use sublet_core::trace::{Operator, Recorded, Row};

use crate::arguments::{Arguments, Params, plain};
use crate::boundary::{boundary, tell};
use crate::error::{Failure, sublet_error};
use crate::operator::{self, sublet_operator};
use crate::status::{sublet_status, sublet_status as S};
use crate::trace::{self, sublet_row};
use crate::workspace::{Needed, sublet_layout};

/// The flag of a device that has one memory with its host: there is nowhere that a block could leave for.
pub const SUBLET_DEVICE_INTEGRATED: u32 = 1;

/// The links between a device and its host. NULL, or all 0 but `struct_size`, is PCIe 3 with 16 lanes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_device {
    /// sizeof(sublet_device).
    pub struct_size: u32,
    /// 0 or SUBLET_DEVICE_INTEGRATED.
    pub flags: u32,
    /// From the device to the host, in bytes per second; 0 is 12e9.
    pub out_bandwidth: f64,
    /// From the host to the device, in bytes per second; 0 is 12e9.
    pub in_bandwidth: f64,
    /// What a copy out takes beside its bytes, in ns; 0 is 10000.
    pub out_latency: f64,
    /// What a copy in takes beside its bytes, in ns; 0 is 10000.
    pub in_latency: f64,
    /// Bytes that the host can hold for the device; 0 is no limit, but with SUBLET_DEVICE_INTEGRATED none.
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
    /// sizeof(sublet_run).
    pub struct_size: u32,
    /// 0.
    pub reserved: u32,
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
    /// How long the operators that run again take together, in ns.
    pub recomputed_ns: u64,
}

plain!(sublet_device, sublet_timing, sublet_run);
// SAFETY: it begins with its size.
unsafe impl Params for sublet_device {}
// SAFETY: as above.
unsafe impl Params for sublet_run {}

impl sublet_device {
    /// As `core` has it; the device is the argument at this position.
    pub(crate) fn device(self, position: u32) -> Result<Device, Failure> {
        if self.flags & !SUBLET_DEVICE_INTEGRATED != 0 {
            return Err(Failure::new(S::UnknownValue, position, 0, self.flags.into()));
        }
        let integrated = self.flags & SUBLET_DEVICE_INTEGRATED != 0;
        // 0, not nearly 0, is the default.
        let or = |x: f64, default: f64| if x.to_bits() == 0 { default } else { x };
        let usual = Device::symmetric(12e9);
        Ok(Device {
            out_bandwidth: or(self.out_bandwidth, usual.out_bandwidth),
            in_bandwidth: or(self.in_bandwidth, usual.in_bandwidth),
            out_latency: or(self.out_latency, usual.out_latency),
            in_latency: or(self.in_latency, usual.in_latency),
            host_capacity: Some(self.host_capacity).filter(|&c| c > 0 || integrated),
            integrated,
        })
    }
}

impl From<Device> for sublet_device {
    fn from(d: Device) -> Self {
        Self {
            struct_size: u32::try_from(size_of::<Self>()).unwrap_or(0),
            flags: if d.integrated { SUBLET_DEVICE_INTEGRATED } else { 0 },
            out_bandwidth: d.out_bandwidth,
            in_bandwidth: d.in_bandwidth,
            out_latency: d.out_latency,
            in_latency: d.in_latency,
            host_capacity: d.host_capacity.unwrap_or(0),
        }
    }
}

impl From<Timing> for sublet_timing {
    fn from(Timing { reached, begin, end }: Timing) -> Self {
        Self { reached, begin, end }
    }
}

impl From<Run> for sublet_run {
    fn from(Run { time_ns, original_ns, swapped_bytes, peak_load, host_bytes, recomputed_ns }: Run) -> Self {
        Self {
            struct_size: u32::try_from(size_of::<Self>()).unwrap_or(0),
            reserved: 0,
            time_ns,
            original_ns,
            swapped_bytes,
            peak_load,
            host_bytes,
            recomputed_ns,
        }
    }
}

/// The device that people call so, into one whose `struct_size` is set: "gtx1080ti", "h200", "k40", "jetson-orin".
///
/// SUBLET_STATUS_UNKNOWN_NAME: there is none.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_device_named(
    name: *const c_char,
    device: *mut sublet_device,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for a text that ends, and for pointers that hold what they are to hold.
        let (found, to) = unsafe { (arguments.name(name, Device::PRESETS.into_iter())?, arguments.report(device)?) };
        to.set(found.into());
        Ok(())
    })
}

fn needed(original: usize, operators: usize, rewritten: usize, blocks: usize) -> Needed {
    Needed::workspace(simulate::workspace(original, blocks))
        .and::<Row>(original)
        .and::<Operator>(operators)
        .and::<Row>(rewritten)
        .and::<Timing>(rewritten)
}

/// The workspace that sublet_simulate needs for so many rows, operators and block numbers. Linear.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate_workspace(
    original_count: usize,
    operator_count: usize,
    rewritten_count: usize,
    block_count: usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    let needed = |arguments: &mut Arguments<'_>| {
        let (original, operators) = (arguments.count(original_count)?, arguments.count(operator_count)?);
        let (rewritten, blocks) = (arguments.count(rewritten_count)?, arguments.count(block_count)?);
        Ok(needed(original, operators, rewritten, blocks))
    };
    // SAFETY: the header asks for a layout that can be written.
    unsafe { tell(needed, layout, error) }
}

/// Times `rewritten`, which holds the accesses of `original` in their order. Three queues run side by side: compute,
/// copies out, copies in. Whether the trace is valid is not asked here, but by sublet_verify_schedule.
///
/// `operators` tells what is known of the operators of `original`, by their numbers; of those beyond its end, all with
/// `operator_count` 0, nothing is. `original` uses block numbers below `block_count`; in `rewritten` the number
/// `block_count` + b is the mask of block b. `device` may be NULL. `timings`, one for each row of `rewritten`, may be NULL, and so may `run`. O(rows).
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_simulate(
    original: *const sublet_row,
    original_count: usize,
    operators: *const sublet_operator,
    operator_count: usize,
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
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (original, operators, rewritten, device, mut room, timings, run) = unsafe {
            let original = arguments.input(original, original_count)?;
            let operators = arguments.input(operators, operator_count)?;
            let rewritten = arguments.input(rewritten, rewritten_count)?;
            arguments.count(block_count)?;
            let device = arguments.params(device)?.device(7)?;
            let needed = needed(original_count, operator_count, rewritten_count, block_count);
            let room = arguments.workspace(workspace, workspace_size, needed)?;
            let timings = arguments.output_if_wanted(timings, rewritten_count)?;
            (original, operators, rewritten, device, room, timings, arguments.report_if_wanted(run)?)
        };
        let (original, rewritten) = (trace::rows(&mut room, original)?, trace::rows(&mut room, rewritten)?);
        let operators = operator::operators(&mut room, operators)?;
        let times = room.fill(rewritten_count, Timing::default());
        let scratch = room.workspace(simulate::workspace(original_count, block_count));
        let recorded = Recorded { rows: original, operators, blocks: block_count };
        let found = simulate::simulate(&recorded, rewritten, &device, scratch, times)?;
        trace::copy(times, timings);
        run.set(found.into());
        Ok(())
    })
}
