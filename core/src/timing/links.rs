//! The two links between a device and its host. Each copies one block after the other.

#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// The time at which the link to the host has done all its copies so far, in ns.
    out_free: f64,
    /// The time at which the link from the host has done all its copies so far, in ns.
    in_free: f64,
}

impl Links {
    /// Two links that have not copied anything yet.
    pub(crate) const fn new() -> Self {
        Self { out_free: 0.0, in_free: 0.0 }
    }

    /// Makes a copy to the host that takes `ns` and may begin at `ready` (in ns), but waits for earlier copies on the
    /// link. Returns when it begins and ends, in ns.
    pub(crate) fn copy_out(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.out_free);
        self.out_free = begin + ns;
        (begin, self.out_free)
    }

    /// Makes a copy from the host that takes `ns` and may begin at `ready` (in ns), but waits for earlier copies on the
    /// link. Returns when it begins and ends, in ns.
    pub(crate) fn copy_in(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.in_free);
        self.in_free = begin + ns;
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
