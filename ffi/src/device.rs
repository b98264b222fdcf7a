//! What the planner has to know of a device: how fast blocks are copied to the host and back, and how many bytes the
//! host can hold.

use core::ffi::c_char;

use sublet_core::simulate::Device;

use crate::arguments::{params, plain};
use crate::boundary::boundary;
use crate::error::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};

/// The flag of a device that shares one memory with its host. To copy a block to the host would free nothing there, so
/// sublet_fit swaps no blocks.
pub const SUBLET_DEVICE_INTEGRATED: u32 = 1;

/// How fast blocks are copied between a device and its host, and how many bytes the host can hold. A NULL pointer to
/// this struct, or a struct that is all 0 but for `struct_size`, stands for PCIe 3 with 16 lanes, and a host without
/// limit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_device {
    /// Set this to sizeof(sublet_device): the library sees from it which fields the struct has in the caller's version.
    pub struct_size: u32,
    /// SUBLET_DEVICE_INTEGRATED if the device shares one memory with its host; otherwise 0.
    pub flags: u32,
    /// The bandwidth from the device to the host, in bytes per second; 0 is 12e9.
    pub out_bandwidth: f64,
    /// The bandwidth from the host to the device, in bytes per second; 0 is 12e9.
    pub in_bandwidth: f64,
    /// The latency of a copy to the host, in ns: what a copy takes beyond its bytes divided by the bandwidth; 0 is
    /// 10000.
    pub out_latency: f64,
    /// The latency of a copy to the device, in ns: what a copy takes beyond its bytes divided by the bandwidth; 0 is
    /// 10000.
    pub in_latency: f64,
    /// The most bytes that the host can hold for the device. 0 is no limit; but with SUBLET_DEVICE_INTEGRATED, 0 means
    /// that the host holds no bytes.
    pub host_capacity: u64,
}

plain!(sublet_device);
params! {
    sublet_device { struct_size, flags, out_bandwidth, in_bandwidth, out_latency, in_latency, host_capacity }
}

impl sublet_device {
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
    fn from(device: Device) -> Self {
        let Device { out_bandwidth, in_bandwidth, out_latency, in_latency, host_capacity, integrated } = device;
        Self {
            struct_size: u32::try_from(size_of::<Self>()).unwrap_or(0),
            flags: if integrated { SUBLET_DEVICE_INTEGRATED } else { 0 },
            out_bandwidth,
            in_bandwidth,
            out_latency,
            in_latency,
            host_capacity: host_capacity.unwrap_or(0),
        }
    }
}

/// Writes to `device` the properties of the device that is called `name`, such as "h200": bandwidths, latencies and so
/// on. Of `device`, only the field `struct_size` must be set before. The command `sublet fit --help` lists the names.
///
/// SUBLET_STATUS_UNKNOWN_NAME: there is no device of this name.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_device_named(
    name: *const c_char,
    device: *mut sublet_device,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let devices = Device::PRESETS.iter().map(|&(name, _, device)| (name, device));
        // SAFETY: the header asks for a text that ends, and for pointers that hold what they are to hold.
        let (found, to) = unsafe { (arguments.name(name, devices)?, arguments.report(device)?) };
        to.set(found.into());
        Ok(())
    })
}
