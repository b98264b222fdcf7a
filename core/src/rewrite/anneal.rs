//! Simulated annealing: random numbers, and the rule by which a search accepts a changed solution.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        let high = u64::from(n).wrapping_mul(self.0.next_u64() >> 32) >> 32;
        u32::try_from(high).unwrap_or(0)
    }

    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub(super) struct Cooling {
    /// The temperature at the start, in ns.
    pub(super) heat: f64,
    /// The work, in the caller's unit, after which the temperature is 0.
    pub(super) work: u64,
}

impl Cooling {
    /// `present` plus a random time in ns, on average the present temperature (the Metropolis rule).
    #[expect(clippy::cast_precision_loss, reason = "a temperature")]
    pub(super) fn cutoff(&self, present: f64, done: u64, random: &mut Random) -> f64 {
        let left = 1.0 - done as f64 / self.work as f64;
        let heat = self.heat * left * left * left;
        present - heat * libm::log(random.unit().max(1e-12))
    }
}
