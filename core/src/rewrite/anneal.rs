//! Simulated annealing: random numbers, and the rule by which a search accepts a changed solution.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded generator of random numbers. The same seed gives the same numbers on every platform.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// True with probability 1/n, for an `n` of at least 1.
    pub(super) fn once_in(&mut self, n: u64) -> bool {
        self.0.next_u64().is_multiple_of(n)
    }

    /// A random 64-bit number.
    pub(super) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A random number below `n`; 0 if `n` is 0.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        let high = u64::from(n).wrapping_mul(self.0.next_u64() >> 32) >> 32;
        u32::try_from(high).unwrap_or(0)
    }

    /// A random number in [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub(super) fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How simulated annealing cools down. A new solution that takes more time than the present one may still be accepted;
/// the extra time that is allowed falls to 0 while the search works.
pub(super) struct Cooling {
    /// The temperature at the start, in ns. A new solution may then take this much more time than the present one, on
    /// average, and still be accepted.
    pub(super) heat: f64,
    /// The amount of work after which the temperature is 0, so that no slower solution is accepted any more. It has the
    /// unit in which the caller counts its work. A search for swaps counts the operators and idle times of blocks that
    /// it looks at; a search for recomputation counts accesses and values.
    pub(super) work: u64,
}

impl Cooling {
    /// The most time, in ns, that a new solution may take to be accepted. `present` is the time of the present
    /// solution; both times are counted in the same way, for example as the time that a solution adds to the original.
    /// The result is `present` plus a random time, which on average is the present temperature (the Metropolis rule).
    /// The temperature falls as `done` grows: the work that the search has done, in the unit of [`work`](Self::work).
    #[expect(clippy::cast_precision_loss, reason = "a temperature")]
    pub(super) fn cutoff(&self, present: f64, done: u64, random: &mut Random) -> f64 {
        let left = 1.0 - done as f64 / self.work as f64;
        let heat = self.heat * left * left * left;
        present - heat * libm::log(random.unit().max(1e-12))
    }
}
