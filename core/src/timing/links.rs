//! The two links between a device and its host. Each copies one block after the other.

use super::device::Device;

#[derive(Clone, Debug)]
pub(crate) struct Links {
    device: Device,
    /// The time at which the link to the host has done all its copies so far, in ns.
    out_free: f64,
    /// The time at which the link from the host has done all its copies so far, in ns.
    in_free: f64,
}

impl Links {
    /// The links of a device to and from the host, which have not copied anything yet.
    pub(crate) const fn new(device: &Device) -> Self {
        Self { device: *device, out_free: 0.0, in_free: 0.0 }
    }

    /// Makes a copy to the host that may begin at `ready` (in ns), but waits for earlier copies on the link. Returns
    /// when it begins and ends, in ns.
    pub(crate) fn copy_out(&mut self, bytes: u64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.out_free);
        self.out_free = begin + self.device.out_ns(bytes);
        (begin, self.out_free)
    }

    /// Makes a copy from the host that may begin at `ready` (in ns), but waits for earlier copies on the link. Returns
    /// when it begins and ends, in ns.
    pub(crate) fn copy_in(&mut self, bytes: u64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.in_free);
        self.in_free = begin + self.device.in_ns(bytes);
        (begin, self.in_free)
    }

    /// The time at which the link to the host has done all its copies so far, in ns.
    pub(crate) const fn out_free(&self) -> f64 {
        self.out_free
    }

    /// The time at which the link from the host has done all its copies so far, in ns.
    pub(crate) const fn in_free(&self) -> f64 {
        self.in_free
    }

    /// The time at which operators and copies are all done, in ns, if the operators are done at `compute`.
    pub(crate) const fn idle_after(&self, compute: f64) -> f64 {
        compute.max(self.out_free).max(self.in_free)
    }
}
