//! Devices: how fast each copies to and from its host, and how much the host can hold.

/// What planning needs to know of a device: the bandwidths and latencies of its links to the host, how much the host
/// can hold, and whether the two share one memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Device {
    /// The bandwidth from the device to the host, in bytes per second.
    pub out_bandwidth: f64,
    /// The bandwidth from the host to the device, in bytes per second.
    pub in_bandwidth: f64,
    /// The latency of a copy to the host, in ns. A copy takes this time plus its bytes divided by the bandwidth.
    pub out_latency: f64,
    /// The latency of a copy from the host, in ns. A copy takes this time plus its bytes divided by the bandwidth.
    pub in_latency: f64,
    /// How many bytes of swapped blocks the host can hold; `None` is no limit.
    pub host_capacity: Option<u64>,
    /// True if host and device share one memory, so that swapping a block to the host would free nothing.
    pub integrated: bool,
}

impl Device {
    /// The devices that can be chosen by name. Each entry has the name, a description for users, and the device's
    /// figures.
    pub const PRESETS: &'static [(&'static str, &'static str, Self)] = &[
        ("gtx1080ti", "PCIe 3, 16 lanes: 12 GB/s each way", Self::symmetric(12e9)),
        ("h200", "PCIe 5, 16 lanes: 55 GB/s each way", Self::symmetric(55e9)),
        ("k40", "10 GB/s each way", Self::symmetric(10e9)),
        ("nvlink-c2c", "NVLink from chip to chip, as in a GH200: 450 GB/s each way", Self::symmetric(450e9)),
        ("nvme", "a disk in place of the host's memory: 5 GB/s to it, 7 GB/s back", Self::DISK),
        ("jetson-orin", "one memory for host and device", Self::UNIFIED),
        ("amd-unified", "one memory for host and device", Self::UNIFIED),
    ];

    const DISK: Self =
        Self { out_latency: 100_000.0, in_latency: 100_000.0, out_bandwidth: 5e9, ..Self::symmetric(7e9) };

    const UNIFIED: Self = Self { host_capacity: Some(0), integrated: true, ..Self::symmetric(12e9) };

    /// A device with this bandwidth each way, in bytes per second, a latency of 10 µs each way, and a host of unlimited
    /// memory.
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

    /// The names by which [`named`](Self::named) finds a device.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::PRESETS.iter().map(|&(name, ..)| name)
    }

    /// The device in [`PRESETS`](Self::PRESETS) that has this name; `None` if there is none.
    ///
    /// ```
    /// use sublet_core::simulate::Device;
    /// assert_eq!(Device::named("gtx1080ti"), Some(Device::symmetric(12e9)));
    /// assert_eq!(Device::named("abacus"), None);
    /// ```
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::PRESETS.iter().find(|(n, ..)| *n == name).map(|&(.., device)| device)
    }

    /// How long a copy of this many bytes from the device to the host takes, in ns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub fn out_ns(&self, bytes: u64) -> f64 {
        self.out_latency + bytes as f64 * 1e9 / self.out_bandwidth
    }

    /// How long a copy of this many bytes from the host to the device takes, in ns.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub fn in_ns(&self, bytes: u64) -> f64 {
        self.in_latency + bytes as f64 * 1e9 / self.in_bandwidth
    }

    /// The least size, in bytes, of a block that is worth copying to the host: a copy of this size to the host takes
    /// twice the latency [`out_latency`](Self::out_latency). For smaller blocks, more than half of the time of such a
    /// copy is latency.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    pub fn least_worth_copying(&self) -> u64 {
        libm::ceil(self.out_latency * self.out_bandwidth / 1e9) as u64
    }

    /// Whether both bandwidths are above 0, both latencies are 0 or above, and all four are finite. For any other
    /// device no schedule is accepted.
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
