//! Builds many plans with the skyline, the height up to which memory is taken at each step. A stretch of time with one
//! height is a *line*. Each plan has another order of preference among the blocks; the best plan is kept.
//!
//! The order of preference decides which blocks count as large, and how ties are broken. It changes the peak of best
//! fit by several percent, and no order is best everywhere. Here a block is worth `width^α ⋅ size^β`, where the width
//! is its lifetime in steps. Of the blocks that fit, the one of greatest worth is placed. (α, β) lies on a quarter
//! circle that leads from longest first through largest area first to largest size first.
//!
//! Each way to build a plan is a *start*. Some starts sort the blocks into size classes, and prefer every block of a
//! higher class to those of a lower one, so that the small blocks wait for the holes that the large ones leave. The
//! borders between classes are a fixed factor apart, for example 4. Starts also differ in their rule: some look first
//! at the busiest step, the one with the most load still to be placed, some do not, some look for blocks that fill
//! their line.
//!
//! The first starts are fixed. Of the later ones, half are drawn at random from a seeded generator: the rule, (α, β),
//! the size classes, and noise on width and size. The other half change the best start so far: one block in twenty gets
//! other noise (iterated local search; a change that is not worse is kept).
//!
//! A start ends as soon as its peak cannot be below the best peak so far. There are two signs of that: a block ends at
//! or above the best peak; or the height of a line, plus the load still to be placed over its busiest step, is at or
//! above the best peak. The rule that always takes the block of greatest worth (`Rule::Rank`) knows only the first
//! sign. A start that changes the best one ends only when its peak must be above the best. The method ends when the
//! peak is the lower bound.
//!
//! Ties: of equal worth, the lowest index first. Cost: a start places n blocks at O(log n) each in practice. Work is
//! counted in blocks placed, plus an eighth of n for each start; a block counts several times under a rule that looks
//! at more blocks.

use libm::{cos, exp2, floor, log2, sin};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::skyline::{Rule, Skyline};
use super::solver::{Options, Solver, Summary, Watch};
use super::support::Problem;
use crate::table::{Table, count};
use crate::{Block, Workspace, WorkspaceLen};

#[derive(Clone, Copy, Debug)]
struct Start {
    rule: Rule,
    /// Worth is `width^α ⋅ size^β` with α = cos(`angle` ⋅ 90°) and β = sin(`angle` ⋅ 90°).
    angle: f64,
    /// For (a, b), the class of s bytes is `floor(log2(s) / a + b)`; a higher class is placed first.
    class: Option<(f64, f64)>,
    /// Lifetime and size are multiplied by random factors from 2^-`noise` to 2^`noise`.
    noise: f64,
}

impl Start {
    const fn fixed(rule: Rule, angle: f64, class: Option<(f64, f64)>) -> Self {
        Self { rule, angle, class, noise: 0.0 }
    }
}

const FIRST: Start = Start::fixed(Rule::BusiestFirst, 0.0, Some((8.0, 0.0)));
const FIXED: [Start; 10] = [
    FIRST,
    Start::fixed(Rule::Level, 0.0, None),
    Start::fixed(Rule::Flush, 0.0, None),
    Start::fixed(Rule::BusiestFirst, 0.5, None),
    Start::fixed(Rule::BusiestFirst, 0.0, None),
    Start::fixed(Rule::Rank, 0.5, None),
    Start::fixed(Rule::BusiestFirst, 1.0, None),
    Start::fixed(Rule::Rank, 0.0, Some((2.0, 0.0))),
    Start::fixed(Rule::Rank, 0.0, None),
    Start::fixed(Rule::Rank, 1.0, None),
];

const FRACTION: u32 = 17;
const NOISE: f64 = 0.4;
const CHANGED: u64 = 20;

/// Which starts come before those that are drawn at random.
#[derive(Clone, Copy)]
pub(super) enum Starts {
    Fixed,
    /// The first one was built before, and reached this peak; only lower plans are written.
    FixedAfterFirst(u64),
    Drawn,
}

pub(super) const fn workspace(n: usize) -> WorkspaceLen {
    Skyline::workspace(n, n).and(WorkspaceLen { words: 3 * n, indices: 0 })
}

pub(super) fn place(
    problem: &Problem<'_>,
    options: &Options,
    starts: Starts,
    mut scratch: Workspace<'_>,
    offsets: &mut [u64],
    watch: Watch<'_>,
) -> Summary {
    let &Problem { blocks, sweep, lower_bound, .. } = problem;
    let summary = |peak| Summary { peak, lower_bound, solver: Solver::Multistart, nodes: 0 };
    let n = count(blocks);
    let cost = |start: Start, placed| start.cost(placed) + u64::from(n / 8 + 1);
    let (mut peak, mut work) = match starts {
        Starts::FixedAfterFirst(reached) => (reached, cost(FIRST, n)),
        Starts::Fixed | Starts::Drawn => (u64::MAX, 0),
    };
    let goes_on = |peak, work| peak == u64::MAX || (peak > lower_bound && work < options.work);
    if !goes_on(peak, work) {
        return summary(peak);
    }
    let mut scratch = scratch.reborrow();
    let mut skyline = Skyline::new(problem, options.constraints.alignment, blocks.len(), &mut scratch, |low, high| {
        sweep.clique_ranges(low, high)
    });
    let mut trial = scratch.words(blocks.len());
    let mut worth = scratch.words(blocks.len());
    let mut offsets = Table::new(offsets);
    let mut random = SplitMix64::seed_from_u64(options.seed);
    // The best start so far, and by block its worth in that start.
    let (mut best, mut best_worth) = (None, scratch.words(blocks.len()));
    let mut fixed = FIXED.iter().copied().skip(match starts {
        Starts::Fixed => 0,
        Starts::FixedAfterFirst(_) => 1,
        Starts::Drawn => FIXED.len(),
    });
    if let Starts::FixedAfterFirst(_) = starts {
        best = Some(Start { noise: NOISE, ..FIRST });
        let worth_of = FIRST.worth();
        for (i, b) in (0u32..).zip(blocks) {
            best_worth[i] = worth_of(b, &mut random);
        }
    }
    while goes_on(peak, work) {
        let fixed = fixed.find(|start| peak == u64::MAX || work.saturating_add(start.cost(n)) <= options.work);
        let changed = best.filter(|_| fixed.is_none() && random.next_u64().is_multiple_of(2));
        let start = fixed.or(changed).unwrap_or_else(|| draw(&mut random));
        if peak < u64::MAX && work.saturating_add(start.cost(n)) > options.work {
            break;
        }
        let worth_of = start.worth();
        for (i, b) in (0u32..).zip(blocks) {
            let kept = changed.is_some() && !random.next_u64().is_multiple_of(CHANGED);
            worth[i] = if kept { best_worth[i] } else { worth_of(b, &mut random) };
        }
        skyline.rank_by_index();
        skyline.rank_by(|i, _| !worth[i]);
        let limit = peak.saturating_add(changed.is_some().into());
        let (reached, placed) = skyline.build(start.rule, limit, &mut trial);
        work = work.saturating_add(cost(start, placed));
        if let Some(better) = reached {
            peak = better;
            best = Some(Start { noise: NOISE, ..start });
            core::mem::swap(&mut worth, &mut best_worth);
            for i in 0..n {
                offsets[i] = trial[i];
            }
        }
        if watch(&summary(peak)).is_break() {
            break;
        }
    }
    summary(peak)
}

fn draw(random: &mut SplitMix64) -> Start {
    let rule = match random.next_u64() % 8 {
        0..2 => Rule::Rank,
        2 => Rule::Level,
        3 => Rule::Flush,
        _ => Rule::BusiestFirst,
    };
    // The powers of two in a class: from a half to sixteen, evenly spread on a logarithmic scale.
    let class = random.next_u64().is_multiple_of(2).then(|| (exp2(5.0 * unit(random) - 1.0), unit(random)));
    Start { rule, angle: unit(random), class, noise: NOISE }
}

impl Start {
    fn cost(&self, placed: u32) -> u64 {
        let each = match self.rule {
            Rule::Rank | Rule::BusiestFirst => 1,
            Rule::Level => 2,
            Rule::Flush => 4,
        };
        each * u64::from(placed)
    }

    /// 128 times the size class, plus the logarithm of `width^α ⋅ size^β`, plus 1; in 32 bits, which sort in few passes.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a score")]
    fn worth(self) -> impl Fn(&Block, &mut SplitMix64) -> u64 {
        let turn = self.angle * core::f64::consts::FRAC_PI_2;
        let (alpha, beta) = (cos(turn), sin(turn));
        move |b, random| {
            let (width, size) = (log2(f64::from(b.width())), log2(b.size as f64));
            let mut worth = 1.0 + alpha * width + beta * size;
            if self.noise > 0.0 {
                worth += self.noise * (alpha * (2.0 * unit(random) - 1.0) + beta * (2.0 * unit(random) - 1.0));
            }
            if let Some((powers, begin)) = self.class {
                // Within a class, no worth reaches 128: width has 32 powers of two, size 64.
                worth += 128.0 * floor(size / powers + begin);
            }
            (worth * f64::from(1u32 << FRACTION)) as u64
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn unit(random: &mut SplitMix64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
