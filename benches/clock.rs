//! The clock of the benches: CPU time.

/// The CPU time of this thread so far, in seconds.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of months are exact")]
pub(crate) fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
