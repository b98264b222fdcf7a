//! Weights for the four scores by which idle times of blocks are chosen for swaps, by Bayesian optimisation (Zhang et
//! al. 2019, section 4.3).
//!
//! A Gaussian process over the weights in [−1, 1]⁴, with a squared exponential kernel, models the overhead. The
//! overhead is in ns here: how much longer the schedule made with the weights takes than the original. For each trial,
//! sets of four weights are drawn at random, and the one with the largest expected improvement over the least overhead
//! so far is tried. The four single scores are the first weights, so that the result is never worse than the best of
//! them. Overheads are standardised before each fit. Weights that give no schedule count as worse than the worst seen.
//! The sets of weights are numbered from 0 in the order in which they were tried.
//!
//! Cost: at most 30 schedules; for each after the fourth, 128 solves with a triangular matrix of at most 30 × 30.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const TRIALS: usize = 30;
const DRAWS: usize = 128;
/// The distance at which the covariance has fallen from 1 to e^(−1/2).
const LENGTH: f64 = 0.7;
/// Also the least square of a diagonal entry, so that none is 0.
const NOISE: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weights(pub(crate) [f64; 4]);

impl Weights {
    pub(crate) const DOA: Self = Self([1.0, 0.0, 0.0, 0.0]);
    pub(crate) const AOA: Self = Self([0.0, 1.0, 0.0, 0.0]);
    pub(crate) const WDOA: Self = Self([0.0, 0.0, 1.0, 0.0]);
    pub(crate) const SWDOA: Self = Self([0.0, 0.0, 0.0, 1.0]);
    pub(crate) const SINGLE: [Self; 4] = [Self::DOA, Self::AOA, Self::WDOA, Self::SWDOA];
}

pub(crate) fn search(seed: u64, mut overhead: impl FnMut(Weights) -> Option<f64>) -> Weights {
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut model = Process::new();
    let mut best = (f64::INFINITY, Weights::DOA);
    let mut worst = 0.0f64;
    for trial in 0..TRIALS {
        let weights = match Weights::SINGLE.get(trial) {
            Some(&single) => single,
            None => model.propose(&mut random),
        };
        let found = overhead(weights);
        worst = worst.max(found.unwrap_or(0.0));
        if let Some(found) = found.filter(|&found| found < best.0) {
            best = (found, weights);
        }
        if best.0 <= 0.0 {
            break;
        }
        model.add(weights, found.unwrap_or(2.0 * worst + 1.0));
    }
    best.1
}

struct Process {
    weights: [[f64; 4]; TRIALS],
    /// In ns; above all overheads seen if the weights gave no schedule.
    overheads: [f64; TRIALS],
    len: usize,
    /// The lower Cholesky factor of the kernel matrix.
    factor: [[f64; TRIALS]; TRIALS],
    /// L⁻¹ · y: L is `factor`, y the standardised overheads.
    inverse: [f64; TRIALS],
}

impl Process {
    fn new() -> Self {
        Self {
            weights: [[0.0; 4]; TRIALS],
            overheads: [0.0; TRIALS],
            len: 0,
            factor: [[0.0; TRIALS]; TRIALS],
            inverse: [0.0; TRIALS],
        }
    }

    fn add(&mut self, Weights(weights): Weights, overhead: f64) {
        let mut row = self.near(&weights);
        let squares: f64 = row.iter().take(self.len).map(|a| a * a).sum();
        if let Some(diagonal) = row.get_mut(self.len) {
            *diagonal = (1.0 + NOISE - squares).max(NOISE).sqrt();
        }
        let Self { weights: tried, overheads, factor, .. } = self;
        let cells = tried.get_mut(self.len).zip(overheads.get_mut(self.len)).zip(factor.get_mut(self.len));
        if let Some(((w, o), f)) = cells {
            (*w, *o, *f) = (weights, overhead, row);
            self.len += 1;
        }
    }

    /// L⁻¹ · k, k the covariances with the weights tried; entries from `len` on are 0.
    fn near(&self, weights: &[f64; 4]) -> [f64; TRIALS] {
        let mut near = [0.0; TRIALS];
        for (k, w) in near.iter_mut().zip(&self.weights).take(self.len) {
            *k = kernel(weights, w);
        }
        self.solve(near)
    }

    fn solve(&self, mut vector: [f64; TRIALS]) -> [f64; TRIALS] {
        for (i, row) in self.factor.iter().enumerate().take(self.len) {
            let dot: f64 = row.iter().zip(&vector).take(i).map(|(a, b)| a * b).sum();
            if let (Some(v), Some(d)) = (vector.get_mut(i), row.get(i)) {
                *v = (*v - dot) / d;
            }
        }
        vector
    }

    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    fn propose(&mut self, random: &mut SplitMix64) -> Weights {
        let known = self.overheads.get(..self.len).unwrap_or_default();
        let n = known.len().max(1) as f64;
        let mean = known.iter().sum::<f64>() / n;
        let deviation = (known.iter().map(|o| (o - mean) * (o - mean)).sum::<f64>() / n).sqrt().max(1e-9);
        let mut standard = [0.0; TRIALS];
        for (s, o) in standard.iter_mut().zip(known) {
            *s = (o - mean) / deviation;
        }
        let least = standard.iter().take(self.len).fold(f64::INFINITY, |a, &b| a.min(b));
        self.inverse = self.solve(standard);
        let mut best = (f64::NEG_INFINITY, [0.0; 4]);
        for _ in 0..DRAWS {
            let weights = [(); 4].map(|()| 2.0 * unit(random) - 1.0);
            let near = self.near(&weights);
            let mean: f64 = near.iter().zip(&self.inverse).take(self.len).map(|(a, b)| a * b).sum();
            let variance = 1.0 - near.iter().take(self.len).map(|a| a * a).sum::<f64>();
            let gain = expected_improvement(least - mean, variance.max(1e-12).sqrt());
            if gain > best.0 {
                best = (gain, weights);
            }
        }
        Weights(best.1)
    }
}

fn kernel(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (-squares / (2.0 * LENGTH * LENGTH)).exp()
}

/// In units of the standard deviation of the overheads seen, as the arguments are.
fn expected_improvement(gain: f64, deviation: f64) -> f64 {
    let z = gain / deviation;
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let below = 0.5 * (1.0 + libm::erf(z / std::f64::consts::SQRT_2));
    gain * below + deviation * density
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_minimum_that_no_single_score_has() {
        let mut trials = 0;
        let bowl = |Weights(w): Weights| {
            let best = [0.6, -0.3, 0.2, 0.5];
            w.iter().zip(best).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() + 1.0
        };
        let found = search(1, |w| {
            trials += 1;
            Some(bowl(w))
        });
        let single = Weights::SINGLE.into_iter().map(bowl).fold(f64::INFINITY, f64::min);
        assert_eq!(trials, TRIALS);
        assert!(bowl(found) < 1.0 + (single - 1.0) / 2.0, "{} of {single}", bowl(found));
    }

    #[test]
    fn what_gives_no_schedule_is_not_chosen() {
        let found = search(1, |w| (w == Weights::WDOA).then_some(3.0));
        assert_eq!(found, Weights::WDOA);
    }
}
