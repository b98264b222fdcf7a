//! The device whose links to the host are simulated: a preset, or figures measured on a machine.
//!
//! A file has one row: `out_bytes_per_s,in_bytes_per_s,latency_ns[,host_bytes]`. Without `host_bytes` the host's memory
//! is unlimited.

use sublet_core::simulate::Device;

use crate::failure::{Failure, InputError};
use crate::input;

/// The preset of this name, or else the device that the file of this name describes.
///
/// # Errors
/// There is neither, or a bandwidth in the file is 0, or the file cannot be read.
pub(crate) fn named(name: &str) -> Result<Device, Failure> {
    if let Some(device) = Device::named(name) {
        return Ok(device);
    }
    if !std::path::Path::new(name).is_file() {
        let presets = Device::names().collect::<Vec<_>>().join(", ");
        return Err(Failure::Usage(format!("{name} is neither a device ({presets}) nor a file")));
    }
    let [out, back, latency, host] = input::device(name)?;
    #[expect(clippy::cast_precision_loss, reason = "measured figures")]
    let figure = |n: Option<u64>| n.unwrap_or(0) as f64;
    let device = Device {
        out_bandwidth: figure(out),
        in_bandwidth: figure(back),
        out_latency: figure(latency),
        in_latency: figure(latency),
        host_capacity: host,
        ..Device::symmetric(1.0)
    };
    if device.is_sound() {
        Ok(device)
    } else {
        Err(InputError::file(name, "expected bandwidths of at least one byte per second").into())
    }
}
