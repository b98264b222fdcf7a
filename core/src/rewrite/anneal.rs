//! Simulated annealing: what the searches by chance share.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Random numbers from a seed, the same everywhere.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// True once in `n` times.
    pub(super) fn once_in(&mut self, n: u64) -> bool {
        self.0.next_u64().is_multiple_of(n)
    }

    /// Any number.
    pub(super) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        let high = u64::from(n).wrapping_mul(self.0.next_u64() >> 32) >> 32;
        u32::try_from(high).unwrap_or(0)
    }

    /// A number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How much worse a state may become, while the work is done.
pub(super) struct Cooling {
    /// The temperature at the start, in ns.
    pub(super) heat: f64,
    /// The work that is to be done.
    pub(super) work: u64,
}

impl Cooling {
    /// The most time that the next state may take to be accepted, where the present one takes `present` ns and `done` of the
    /// work is done.
    #[expect(clippy::cast_precision_loss, reason = "a temperature")]
    pub(super) fn cutoff(&self, present: f64, done: u64, random: &mut Random) -> f64 {
        let left = 1.0 - done as f64 / self.work as f64;
        let heat = self.heat * left * left * left;
        present - heat * libm::log(random.unit().max(1e-12))
    }
}
