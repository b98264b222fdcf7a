//! Compares recomputation with the optimum, on small networks with branches. The optimum is found by Dijkstra's
//! algorithm; a state is how many operators have run and which values are on the device.

use std::collections::{BinaryHeap, HashMap};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sublet_core::Error;
use sublet_core::Workspace;
use sublet_core::rewrite::fit::{self, Means, Options, Using};
use sublet_core::simulate::Device;
use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
use sublet_tests::fitted::Fitter;

/// An operator that writes one value.
pub(crate) struct Made {
    pub(crate) reads: Vec<usize>,
    pub(crate) size: u64,
    pub(crate) ns: u64,
    /// Whether the operator belongs to the forward pass, and may be recomputed.
    pub(crate) forward: bool,
}

/// A network of `forward` operators with branches, then the gradient of each, in reverse order. A gradient reads the
/// gradients of the operators that read the value, the value itself, and what its operator has read. `below(n)` draws a
/// number below n.
fn network(forward: usize, below: &mut impl FnMut(u64) -> u64) -> Vec<Made> {
    let mut at = |n: usize| usize::try_from(below(n as u64)).unwrap();
    let mut made: Vec<Made> = Vec::new();
    for k in 0..forward {
        let mut reads: Vec<usize> = (0..=at(2)).filter(|_| k > 0).map(|_| k - 1 - at(k.min(3))).collect();
        reads.sort_unstable();
        reads.dedup();
        made.push(Made { reads, size: 1 + at(19) as u64, ns: 10 + at(90) as u64, forward: true });
    }
    for k in (0..forward).rev() {
        let gradient = |of: usize| 2 * forward - 1 - of;
        let readers = (k + 1..forward).filter(|&j| made[j].reads.contains(&k));
        let mut reads: Vec<usize> = readers.map(gradient).chain([k]).chain(made[k].reads.iter().copied()).collect();
        reads.sort_unstable();
        made.push(Made { reads, size: 1 + at(4) as u64, ns: 10 + at(90) as u64, forward: false });
    }
    made
}

/// The rows of one iteration; it begins at 1 ns.
pub(crate) fn rows(made: &[Made]) -> Vec<Row> {
    let number = |n: usize| u32::try_from(n).unwrap();
    let (mut rows, mut time_ns) = (Vec::new(), 1);
    for (k, m) in made.iter().enumerate() {
        let row = |time_ns, event, block, bytes| Row {
            time_ns,
            event,
            block: number(block),
            bytes,
            op: Op::First(number(k)),
        };
        rows.push(row(time_ns, Event::Malloc, k, m.size));
        rows.extend(m.reads.iter().map(|&read| row(time_ns, Event::Read, read, 0)));
        rows.push(row(time_ns, Event::Write, k, 0));
        time_ns += m.ns;
        rows.push(row(time_ns, Event::Write, k, 0));
        let dead = |&v: &usize| !made[k + 1..].iter().any(|later| later.reads.contains(&v));
        rows.extend(m.reads.iter().copied().chain([k]).filter(dead).map(|v| row(time_ns, Event::Free, v, 0)));
    }
    rows
}

/// The least time, in ns, that a schedule spends on recomputation if at most `limit` bytes may be alive at once; `None`
/// if there is no such schedule.
pub(crate) fn least(made: &[Made], limit: u64) -> Option<u64> {
    let bit = |v: usize| 1u64 << v;
    let all = |reads: &[usize]| reads.iter().fold(0, |set, &v| set | bit(v));
    // For each operator, the values that it or a later one may need: those that are read, and those from which these
    // can be recomputed.
    let useful: Vec<u64> = (0..=made.len())
        .map(|at| {
            let mut set = made[at..].iter().fold(0, |set, m| set | all(&m.reads));
            for (k, m) in made.iter().enumerate().take(at).rev() {
                if set & bit(k) > 0 && m.forward {
                    set |= all(&m.reads);
                }
            }
            set
        })
        .collect();
    let load = |set: u64| (0..made.len()).filter(|&v| set & bit(v) > 0).map(|v| made[v].size).sum::<u64>();
    let mut known: HashMap<(usize, u64), u64> = HashMap::new();
    let mut open = BinaryHeap::from([(std::cmp::Reverse(0), 0, 0)]);
    while let Some((std::cmp::Reverse(cost), at, set)) = open.pop() {
        if at == made.len() {
            return Some(cost);
        }
        if known.get(&(at, set)).is_some_and(|&before| before < cost) {
            continue;
        }
        let mut reach = |cost: u64, at: usize, set: u64| {
            let set = set & useful[at];
            let before = known.entry((at, set)).or_insert(u64::MAX);
            if cost < *before {
                *before = cost;
                open.push((std::cmp::Reverse(cost), at, set));
            }
        };
        let now = load(set);
        for (k, m) in made.iter().enumerate().take(at + 1) {
            if set & bit(k) > 0 {
                reach(cost, at, set & !bit(k));
            } else if set & all(&m.reads) == all(&m.reads) && now + m.size <= limit {
                if k == at {
                    reach(cost, at + 1, set | bit(k));
                } else if m.forward {
                    reach(cost + m.ns, at, set | bit(k));
                }
            }
        }
    }
    None
}

/// How fits compare with the optimum: of `possible` networks, `optimal` are fitted at the optimum and `unmade` not at
/// all. Of the others, `found` and `least` are the sums of the recomputed time and of the least possible, in ns, and
/// `worst` is the largest difference of the two, as a part of the network's time. `bounds` are the lower bounds, as
/// parts of the optimum where that is not 0.
struct Gaps {
    possible: u32,
    optimal: u32,
    unmade: u32,
    found: u64,
    least: u64,
    worst: f64,
    bounds: Vec<f64>,
}

impl Gaps {
    /// Asserts that at least `percent` percent of the networks are optimal, that no overhead is above the optimum by
    /// more than `worst` of the network's time, that all overheads together are at most 1 % above, and that at most 1 %
    /// have no fit. A network without a fit counts as not optimal: the optimum counts the load, and a placement may
    /// need more.
    fn check(&self, percent: u32, worst: f64) {
        assert!(100 * self.unmade <= self.possible, "{} not made", self.unmade);
        assert!(100 * self.optimal >= percent * self.possible, "{} optimal", self.optimal);
        assert!(self.worst <= worst && 100 * self.found <= 101 * self.least, "{} of {}", self.found, self.least);
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn gaps(networks: u32, forward: usize, seed: u64) -> Gaps {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut below = |n: u64| rng.next_u64() % n;
    let mut gaps = Gaps { possible: 0, optimal: 0, unmade: 0, found: 0, least: 0, worst: 0.0, bounds: Vec::new() };
    while gaps.possible < networks {
        let made = network(2 + usize::try_from(below(forward as u64 - 1)).unwrap(), &mut below);
        let rows = rows(&made);
        let operators: Vec<_> = made.iter().map(|m| Operator { rerun: m.forward, ..Operator::default() }).collect();
        let recorded = Recorded { rows: &rows, operators: &operators, blocks: made.len() };
        let total: u64 = made.iter().map(|m| m.size).sum();
        let limit = total * (25 + below(60)) / 100;
        let using = Using::NONE.with(Means::Recompute);
        let options = Options { using, alignment: 1, ..Options::new(limit, Device::symmetric(12e9)) };
        let len = fit::lower_bound_workspace(rows.len(), made.len());
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let bound = fit::least_overhead(&recorded, &options, Workspace::new(&mut words, &mut indices)).unwrap();
        let Some(least) = least(&made, limit) else { continue };
        assert!(bound <= least as f64 + 1e-6, "{bound} is no lower bound on {least}");
        gaps.possible += 1;
        if least > 0 {
            gaps.bounds.push(bound / least as f64);
        }
        let found = match Fitter::new(recorded).fit(&options) {
            Ok(fitted) => fitted.schedule.run().recomputed_ns,
            Err(Error::OverLimit { .. } | Error::Impossible { .. }) => {
                gaps.unmade += 1;
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        assert!(found >= least, "{found} ns is below the optimum, {least}");
        gaps.optimal += u32::from(found == least);
        (gaps.found, gaps.least) = (gaps.found + found, gaps.least + least);
        let time: u64 = made.iter().map(|m| m.ns).sum();
        gaps.worst = gaps.worst.max((found - least) as f64 / time as f64);
    }
    gaps.bounds.sort_by(f64::total_cmp);
    let Gaps { possible, optimal, unmade, found, least, worst, ref bounds } = gaps;
    let quartile = |k: usize| bounds[bounds.len() * k / 4];
    println!("{optimal} of {possible} optimal, {unmade} not made, {found} ns of {least}, worst {worst:.4}");
    println!("bounds, quartiles: {:.3} {:.3} {:.3}", quartile(1), quartile(2), quartile(3));
    assert!(quartile(1) >= 0.99, "{bounds:?}");
    gaps
}

#[test]
fn recomputation_on_branches_is_near_the_optimum() {
    gaps(150, 6, 1).check(100, 0.0);
}

#[test]
#[ignore = "minutes"]
fn recomputation_on_more_branches_is_near_the_optimum() {
    gaps(525, 9, 2).check(99, 0.01);
}
