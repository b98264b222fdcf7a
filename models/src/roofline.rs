//! The time of an operator, by the roofline model of Williams, Waterman and Patterson (2009): the longer of the times
//! of its arithmetic and of its memory traffic. The time of a launch is added.

/// A device's figures. An operator takes `launch_ns` plus the longer of the times of its arithmetic and of its memory
/// traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Floating-point operations per second that kernels reach; a multiplication and its addition are two.
    pub flops_per_s: f64,
    /// Bytes per second to and from the device's memory.
    pub bytes_per_s: f64,
    /// The time that every operator takes besides, for its launch, in ns.
    pub launch_ns: u64,
    /// The workspace of a convolution, in bytes; 0 is none.
    pub convolution_workspace: u64,
}

impl Roofline {
    /// NVIDIA's GTX 1080 Ti by its data sheet: 11.3 teraflops in single precision, 484 GB/s; 5 µs for a launch, 8 MiB
    /// of workspace for a convolution.
    ///
    /// Recorded traces in which networks for `ImageNet` and the LSTM are trained have these times: a test finds that
    /// the networks that this crate makes take the same time to the nanosecond.
    pub const GTX1080TI: Self =
        Self { flops_per_s: 11.3e12, bytes_per_s: 484e9, launch_ns: 5000, convolution_workspace: 8 << 20 };

    /// The time of an operator that does `flops` floating-point operations and moves `bytes` bytes, in ns, rounded
    /// down.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of whole ns; what is more saturates"
    )]
    #[expect(clippy::cast_precision_loss, reason = "53 bits of bytes are enough for a time")]
    pub fn time_ns(&self, flops: u64, bytes: u64) -> u64 {
        let seconds = (flops as f64 / self.flops_per_s).max(bytes as f64 / self.bytes_per_s);
        self.launch_ns.saturating_add((seconds * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_of_arithmetic_and_traffic_counts() {
        let device = Roofline { flops_per_s: 1e12, bytes_per_s: 1e11, launch_ns: 7, convolution_workspace: 0 };
        assert_eq!(device.time_ns(5000, 100), 12);
        assert_eq!(device.time_ns(5000, 1000), 17);
        assert_eq!(device.time_ns(0, 0), 7);
    }
}
