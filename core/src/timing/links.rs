//! The simulated links between a device and its host, one for each direction. Each does its copies one after the other.

#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// In ns from the start of the iteration.
    out_free: f64,
    in_free: f64,
}

impl Links {
    pub(crate) const fn new() -> Self {
        Self { out_free: 0.0, in_free: 0.0 }
    }

    pub(crate) fn copy_out(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.out_free);
        self.out_free = begin + ns;
        (begin, self.out_free)
    }

    pub(crate) fn copy_in(&mut self, ns: f64, ready: f64) -> (f64, f64) {
        let begin = ready.max(self.in_free);
        self.in_free = begin + ns;
        (begin, self.in_free)
    }

    pub(crate) const fn out_free(&self) -> f64 {
        self.out_free
    }

    pub(crate) const fn in_free(&self) -> f64 {
        self.in_free
    }

    pub(crate) const fn idle_after(&self, compute: f64) -> f64 {
        compute.max(self.out_free).max(self.in_free)
    }
}
