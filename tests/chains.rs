//! Recomputation against the dynamic program of Rotor, on chains of operators of various sizes and times. It finds the
//! fastest of the schedules that are persistent: a stored value stays until its last use. Where memory is short, other
//! schedules are much faster, so that fits may be too.
//!
//! Paper: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova: Optimal checkpointing for heterogeneous chains: how to
//! train deep neural networks with limited memory, 2019 (Rotor).

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Operator, Recorded};
use sublet_tests::fitted::Fitter;
use sublet_tests::instance;
use sublet_tests::recording::max_load;

use crate::optimal::{self, Made, rows};

/// The bytes of one unit of size.
const UNIT: u64 = 1 << 20;
/// The ns of one unit of time.
const TICK: u64 = 1_000_000;
const DEVICE: Device = Device::symmetric(12e9);

/// A chain of layers. Layer i makes value i from value i - 1, and value 0 is the input. The loss makes the gradient of
/// the last value from that value. Then the backward pass of each layer makes the gradient of its input from the input
/// and the gradient of its output.
struct Chain {
    /// The size of each value, and of its gradient, in units.
    sizes: Vec<usize>,
    /// The time of each layer, in ticks; the input's entry is not used. The backward pass of a layer takes twice as
    /// long.
    times: Vec<u64>,
}

impl Chain {
    fn draw(layers: usize, rng: &mut Xoshiro256PlusPlus) -> Self {
        let sizes = (0..=layers).map(|_| rng.random_range(1..=8)).collect();
        Self { sizes, times: (0..=layers).map(|_| rng.random_range(1..=20)).collect() }
    }

    fn layers(&self) -> usize {
        self.sizes.len() - 1
    }

    /// The operators in their order: the input, the layers, the loss, and the backward passes. Layers alone may be
    /// recomputed.
    fn operators(&self) -> Vec<Made> {
        let last = self.layers();
        let made = |reads, value: usize, ticks, forward| {
            let size = self.sizes[value] as u64 * UNIT;
            Made { reads, size, ns: ticks * TICK, forward }
        };
        let gradient = |value: usize| 2 * last + 1 - value;
        let input = made(vec![], 0, 1, false);
        let layers = (1..=last).map(|i| made(vec![i - 1], i, self.times[i], true));
        let loss = made(vec![last], last, 1, false);
        let backward = (1..=last).rev().map(|i| made(vec![i - 1, gradient(i)], i - 1, 2 * self.times[i], false));
        [input].into_iter().chain(layers).chain([loss]).chain(backward).collect()
    }

    /// The least time, in ticks, that a persistent schedule spends on recomputation, for each number of units of memory
    /// up to `most`; `None` where there is no such schedule.
    ///
    /// A part from value `from` to value `to` begins with value `from` and, unless `to` is the last value, the gradient
    /// of `to`; it ends with the gradient of `from`. Its memory is all but that of value `from`. A part of several
    /// layers stores a value in between: layers run up to that value, which stays until the part behind it is done.
    /// Then comes the part before it, for which layers run again from value `from`.
    fn persistent(&self, most: usize) -> Vec<Option<u64>> {
        let last = self.layers();
        let mut parts = vec![vec![Vec::new(); last + 1]; last + 1];
        for (length, from) in (1..=last).flat_map(|length| (0..=last - length).map(move |from| (length, from))) {
            parts[from][from + length] =
                if length == 1 { self.layer(from, most) } else { self.part(from, from + length, &parts, most) };
        }
        // The input is stored all the time.
        let first: u64 = self.times[1..].iter().sum();
        let memory = (0..=most).map(|all| all.checked_sub(self.sizes[0]));
        memory.map(|memory| parts[0][last][memory?].map(|time| time - first)).collect()
    }

    /// The part that is one layer, which begins with value `from`: the time of its runs for each number of units of
    /// memory up to `most`. If the layer is the last one, its value and the loss have to be made too.
    fn layer(&self, from: usize, most: usize) -> Vec<Option<u64>> {
        let (input, output) = (self.sizes[from], self.sizes[from + 1]);
        let (needed, time) = if from + 1 < self.layers() {
            (output + input, 0)
        } else {
            (output + output.max(input), self.times[from + 1])
        };
        (0..=most).map(|memory| (memory >= needed).then_some(time)).collect()
    }

    /// The part from value `from` to value `to`, of several layers: the least time of its runs for each number of units
    /// of memory up to `most`. `parts` has the smaller parts.
    fn part(&self, from: usize, to: usize, parts: &[Vec<Vec<Option<u64>>>], most: usize) -> Vec<Option<u64>> {
        let gradient = if to < self.layers() { self.sizes[to] } else { 0 };
        let mut part: Vec<Option<u64>> = vec![None; most + 1];
        let (mut time, mut needed) = (0, 0);
        for stored in from + 1..to {
            time += self.times[stored];
            let input = if stored > from + 1 { self.sizes[stored - 1] } else { 0 };
            needed = needed.max(gradient + input + self.sizes[stored]);
            for memory in needed..=most {
                let behind = parts[stored][to][memory - self.sizes[stored]];
                if let Some((behind, before)) = behind.zip(parts[from][stored][memory]) {
                    let sum = time + behind + before;
                    part[memory] = Some(part[memory].map_or(sum, |least| least.min(sum)));
                }
            }
        }
        part
    }
}

/// By how many points the overhead of each fit is above that of the dynamic program. `work` is that of the options. The
/// limits are those of which the dynamic program needs at most four fifths. Asserts that there is a fit for each.
#[expect(clippy::cast_precision_loss, reason = "times of a few seconds")]
fn gaps(work: u64) -> Vec<f64> {
    let mut rng = instance::rng(1);
    let mut gaps = Vec::new();
    for layers in [20, 30, 40, 50, 60].into_iter().flat_map(|layers| [layers; 2]) {
        let chain = Chain::draw(layers, &mut rng);
        let made = chain.operators();
        let rows = rows(&made);
        let time = made.iter().map(|m| m.ns).sum::<u64>() as f64;
        let operators: Vec<_> = made.iter().map(|m| Operator { rerun: m.forward, ..Operator::default() }).collect();
        let mut fitter = Fitter::new(Recorded { rows: &rows, operators: &operators, blocks: made.len() });
        let peak = usize::try_from(max_load(&rows) / UNIT).expect("a few units");
        let added = chain.persistent(peak);
        for percent in [60, 40, 30, 20, 15, 10] {
            let limit = peak * percent / 100;
            let Some(added) = added[limit].filter(|_| added[limit * 4 / 5].is_some()) else { continue };
            let using = Using::NONE.with(Means::Recompute);
            let options = Options { using, work, alignment: 1, ..Options::new(limit as u64 * UNIT, DEVICE) };
            let found = fitter.fit(&options).unwrap_or_else(|e| panic!("{layers} layers at {percent} %: {e}"));
            let (ours, theirs) = (100.0 * found.schedule.run().overhead(), (100 * added * TICK) as f64 / time);
            println!("{layers} layers at {percent} %: {ours:.2} %, Rotor {theirs:.2} %");
            gaps.push(ours - theirs);
        }
    }
    gaps
}

/// The mean of the gaps, and the largest.
#[expect(clippy::cast_precision_loss, reason = "a few fits")]
fn mean_and_worst(gaps: &[f64]) -> (f64, f64) {
    (gaps.iter().sum::<f64>() / gaps.len() as f64, gaps.iter().copied().fold(f64::MIN, f64::max))
}

#[test]
fn fits_of_chains_are_as_fast_as_persistent_schedules() {
    let gaps = gaps(Options::DEFAULT_WORK);
    let (mean, worst) = mean_and_worst(&gaps);
    println!("{} fits: {mean:.3} points on average, {worst:.2} at most", gaps.len());
    assert!(gaps.len() > 30 && mean <= 0.1 && worst <= 2.0, "{} fits: {mean}, {worst}", gaps.len());
}

/// The comparison can fail: it does for a search that does hardly any work.
#[test]
fn fits_of_chains_without_search_are_slower_than_persistent_schedules() {
    let (mean, worst) = mean_and_worst(&gaps(1));
    println!("{mean:.3} points on average, {worst:.2} at most");
    assert!(mean > 0.5 && worst > 5.0, "{mean}, {worst}");
}

/// On short chains the dynamic program is never below the optimum of all schedules, and mostly at it.
#[test]
fn persistent_schedules_of_short_chains_are_near_the_optimum() {
    let mut rng = instance::rng(2);
    let (mut tried, mut equal) = (0, 0);
    for layers in (1..=5).flat_map(|layers| [layers; 4]) {
        let chain = Chain::draw(layers, &mut rng);
        let made = chain.operators();
        let peak = usize::try_from(max_load(&rows(&made)) / UNIT).expect("a few units");
        for (limit, added) in chain.persistent(peak).into_iter().enumerate() {
            let least = optimal::least(&made, limit as u64 * UNIT).map(|ns| ns / TICK);
            let Some(added) = added else { continue };
            let least = least.unwrap_or_else(|| panic!("{layers} layers within {limit} units: no schedule"));
            assert!(least <= added, "{layers} layers within {limit} units: {least}, {added}");
            (tried, equal) = (tried + 1, equal + u32::from(least == added));
        }
        assert_eq!(chain.persistent(peak)[peak], Some(0), "all values can be stored");
    }
    assert!(tried > 50 && 10 * equal >= 9 * tried, "{equal} of {tried}");
}
