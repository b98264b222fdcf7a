//! The simulated links between a device and its host, one for each direction. Each does its copies one after the other.

#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// When the link to the host is free: the end of its last copy so far, in ns from the start of the iteration.
    out_free: f64,
    /// When the link from the host is free: the end of its last copy so far, in ns from the start of the iteration.
    in_free: f64,
}

impl Links {
    /// The two links at the start of an iteration: both are free from time 0 on.
    pub(crate) const fn new() -> Self {
        Self { out_free: 0.0, in_free: 0.0 }
    }

    /// Simulates a copy to the host that takes `ns` nanoseconds. The copy begins at the time `ready` (in ns), or later,
    /// when the earlier copies on this link are done. Returns the times at which the copy begins and ends, in ns.
    pub(crate) fn copy_out(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.out_free);
        self.out_free = begin + ns;
        (begin, self.out_free)
    }

    /// Simulates a copy from the host that takes `ns` nanoseconds. The copy begins at the time `ready` (in ns), or
    /// later, when the earlier copies on this link are done. Returns the times at which the copy begins and ends, in
    /// ns.
    pub(crate) fn copy_in(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.in_free);
        self.in_free = begin + ns;
        (begin, self.in_free)
    }

    /// When the link to the host is free: the end of its last copy so far, in ns from the start of the iteration.
    pub(crate) const fn out_free(&self) -> f64 {
        self.out_free
    }

    /// When the link from the host is free: the end of its last copy so far, in ns from the start of the iteration.
    pub(crate) const fn in_free(&self) -> f64 {
        self.in_free
    }

    /// When everything is done, in ns from the start of the iteration: at the time `compute`, when the operators are
    /// done, or at the end of the last copy on either link, whichever is latest.
    pub(crate) const fn idle_after(&self, compute: f64) -> f64 {
        compute.max(self.out_free).max(self.in_free)
    }
}
