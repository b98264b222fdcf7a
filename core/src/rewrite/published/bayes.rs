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
//! Cost: at most 30 schedules; for each after the fourth, 128 solves with a triangular matrix of at most 30 × 30; 12
//! KiB of stack.

use libm::{erf, exp, sqrt};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::zhang::Weights;

/// The most sets of weights of the scores that the Bayesian optimisation tries. To try a set is to make a schedule with
/// it.
const TRIALS: usize = 30;
/// How many random sets of weights are compared to choose the one to try next: that with the largest expected
/// improvement.
const DRAWS: usize = 128;
/// The length scale of the Gaussian process's covariance function ([`kernel`]): the distance between two sets of
/// weights at which the covariance has fallen from 1 to e^(−1/2).
const LENGTH: f64 = 0.7;
/// The noise that is added to the diagonal of the kernel matrix of the Gaussian process. It is also the least square
/// that a diagonal entry of the Cholesky factor may have, so that none is 0.
const NOISE: f64 = 1e-4;

/// Finds the weights of the four scores by which idle times of blocks are chosen for swaps: of the weights that are
/// tried, those that give the least overhead; [`Weights::DOA`] if none give a schedule. `overhead` makes the schedule
/// of some weights and returns its overhead in ns, or none if these weights give no schedule. The search ends early
/// once a schedule has no overhead.
pub(in crate::rewrite) fn search(seed: u64, mut overhead: impl FnMut(Weights) -> Option<f64>) -> Weights {
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

/// The sets of weights that were tried so far, and the Gaussian process that predicts the overhead of others.
struct Process {
    /// The weights that were tried: one for each of the four scores by which idle times of blocks are chosen for swaps.
    weights: [[f64; 4]; TRIALS],
    /// For each set of weights that was tried, the overhead of its schedule, in ns. If the weights gave no schedule, it
    /// is a number above all overheads seen by then.
    overheads: [f64; TRIALS],
    /// How many sets of weights of the scores were tried: so many entries of `weights` and `overheads` are in use.
    len: usize,
    /// The lower Cholesky factor of the kernel matrix of the weights that were tried. The kernel matrix has the
    /// covariance of set i and set k of the weights in row i, column k.
    factor: [[f64; TRIALS]; TRIALS],
    /// L⁻¹ · y, where L is `factor`, the Cholesky factor of the kernel matrix. The vector y has the overhead of each
    /// set of weights that was tried, less their mean and divided by their standard deviation. From the result follows
    /// the overhead that is predicted for other weights.
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

    /// Adds a set of weights that was tried, and the overhead of its schedule in ns; also appends a row for it to
    /// `factor`, the Cholesky factor of the kernel matrix.
    fn add(&mut self, Weights(weights): Weights, overhead: f64) {
        let mut row = self.near(&weights);
        let squares: f64 = row.iter().take(self.len).map(|a| a * a).sum();
        if let Some(diagonal) = row.get_mut(self.len) {
            *diagonal = sqrt((1.0 + NOISE - squares).max(NOISE));
        }
        let Self { weights: tried, overheads, factor, .. } = self;
        let cells = tried.get_mut(self.len).zip(overheads.get_mut(self.len)).zip(factor.get_mut(self.len));
        if let Some(((w, o), f)) = cells {
            (*w, *o, *f) = (weights, overhead, row);
            self.len += 1;
        }
    }

    /// L⁻¹ · k, where L is `factor`, the Cholesky factor of the kernel matrix. The vector k has the covariance
    /// ([`kernel`]) of `weights` with each set of weights that was tried. From the result follow the predicted overhead
    /// of `weights` and its variance. Only the first `len` entries are in use, one for each set that was tried; the
    /// others are 0.
    fn near(&self, weights: &[f64; 4]) -> [f64; TRIALS] {
        let mut near = [0.0; TRIALS];
        for (k, w) in near.iter_mut().zip(&self.weights).take(self.len) {
            *k = kernel(weights, w);
        }
        self.solve(near)
    }

    /// L⁻¹ · `vector`, where L is `factor`, the lower Cholesky factor of the kernel matrix. Only the first `len`
    /// entries are in use, one for each set of weights that was tried; the others stay as they are.
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
    /// Draws [`DRAWS`] sets of weights at random, and returns the one to try next: that with the largest expected
    /// improvement over the least overhead so far. A set has one weight for each of the four scores of an idle time.
    fn propose(&mut self, random: &mut SplitMix64) -> Weights {
        let known = self.overheads.get(..self.len).unwrap_or_default();
        let n = known.len().max(1) as f64;
        let mean = known.iter().sum::<f64>() / n;
        let deviation = sqrt(known.iter().map(|o| (o - mean) * (o - mean)).sum::<f64>() / n).max(1e-9);
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
            let gain = expected_improvement(least - mean, sqrt(variance.max(1e-12)));
            if gain > best.0 {
                best = (gain, weights);
            }
        }
        Weights(best.1)
    }
}

/// The squared exponential kernel of the Gaussian process: the covariance of two sets of weights, 1 where they are
/// equal and near 0 where they are far apart.
fn kernel(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    exp(-squares / (2.0 * LENGTH * LENGTH))
}

/// How much a set of weights is expected to improve on the least overhead so far. Its overhead is taken to be normally
/// distributed, with a mean that is `gain` below the least overhead and the standard deviation `deviation`. Both
/// arguments and the result are in units of the standard deviation of the overheads seen.
fn expected_improvement(gain: f64, deviation: f64) -> f64 {
    let z = gain / deviation;
    let density = exp(-z * z / 2.0) / sqrt(2.0 * core::f64::consts::PI);
    let below = 0.5 * (1.0 + erf(z / core::f64::consts::SQRT_2));
    gain * below + deviation * density
}

/// A random number in [0, 1).
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
