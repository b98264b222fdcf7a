//! GPUs that share one memory with the host, such as Jetson's: a copy to the host frees nothing there.
//!
//! On such a device no block is swapped to the host: for the planner the host's capacity is 0 bytes, and the runtime
//! refuses a plan that copies blocks to pinned memory. Blocks may be swapped to a disk. The memory for a plan is what
//! the operating system could give, `MemAvailable`. That figure includes caches that the operating system would drop;
//! the driver's figure of free memory does not.

use std::fs;

use crate::backend::Backend;
use crate::error::{Error, Result, StorageOperation};

/// How many bytes of memory a plan may take on this device at the moment: [`available`] if host and device share one
/// memory, and otherwise the free memory of the device.
///
/// # Errors
/// The error of the backend, or of [`available`] if host and device share one memory.
pub fn budget<B: Backend>(backend: &B) -> Result<u64> {
    if backend.attributes().integrated { available() } else { backend.memory().map(|memory| memory.free) }
}

/// How many bytes of memory the operating system could give to a process: `MemAvailable` of `/proc/meminfo`.
///
/// # Errors
/// [`Error::Storage`] if there is no such file, or no such line with a number in it.
pub fn available() -> Result<u64> {
    let unknown = |code| Error::Storage { operation: StorageOperation::MemoryInfo, code };
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| unknown(e.raw_os_error().unwrap_or(0)))?;
    available_in(&text).ok_or(unknown(0))
}

/// In bytes, from the line `MemAvailable:   123 kB`.
fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_nothing_else_is_taken_for_it() {
        assert_eq!(available_in("MemFree:  1 kB\nMemAvailable:    2 kB\n"), Some(2048));
        assert_eq!(available_in("MemFree:  1 kB\n"), None);
        assert_eq!(available_in("MemAvailable: 99999999999999999999 kB"), None);
    }
}
