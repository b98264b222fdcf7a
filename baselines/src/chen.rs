//! Recomputation in segments.
//!
//! Problem: which results of the forward pass to keep, so that the backward pass can recompute the others.
//!
//! Paper: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
//!
//! Steps. The forward pass is cut into segments. What lives across a cut is kept; everything else is dropped, and
//! recomputed a segment at a time when the backward pass comes to it. [`Plan::Budget`] is the paper's Algorithm 3: a
//! segment ends at the first candidate for a cut where those of its results that the backward pass reads have more
//! bytes than the budget. [`search`] is the paper's search over the budget: with budget 0 it finds the kept bytes x and
//! the largest segment y; then it tries six budgets in geometric progression from √(xy)/√2 to √2·√(xy). Of all these
//! plans, that with budget 0 included, it takes the one with the least cost, which the caller computes. [`Plan::Cheap`]
//! drops the results of cheap operators alone (section 4.2). [`Plan::Recursive`] cuts each segment again (section 4.4).
//! With k cuts at a time, the memory for n operators is `g(n) = k + g(n / (k + 1))`: down to O(log n) memory for O(n
//! log n) time. The module `mirror` makes the order of the runs, and says what is never recomputed.
//!
//! Two faults of the paper and of its code are corrected. The last segment, which no candidate ends, counts in y too.
//! And the last segment is not dropped, since the backward pass begins with it.
//!
//! The paper leaves open where the candidates for cuts are. Here they are places between operators of the forward pass.
//! With [`Cuts::One`] a place is a candidate if later operators of the forward pass access only one of the results
//! written before it, where results of at most 1/256 of the largest do not count. [`Cuts::Narrow`] adds those where the
//! bytes that live across a cut have a local minimum, as occurs in recurrent networks: between two minima the bytes
//! rise by a quarter at least. Of places with the same least bytes the first is the candidate.
//!
//! Of plans with equal cost the first is taken. Cost: that of `mirror`, for each plan.

use sublet_core::Error;
use sublet_core::RowFault;
use sublet_core::trace::{Op, Recorded, Row};

use crate::mirror::{DEEPEST, Mirror};
use crate::network::Network;

/// Which results of the forward pass are dropped, to be recomputed for the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// The forward pass is cut into segments. Results that live across a cut are kept, and so are those of the last
    /// segment; the others are dropped. A segment ends at the first place where [`Cuts`] allows a cut and those of the
    /// segment's results that the backward pass reads have more than this many bytes.
    Budget(u64, Cuts),
    /// The results of cheap operators are dropped. An operator is cheap if it takes less time than the forward pass
    /// does on average, for each byte of its results that the backward pass reads.
    Cheap,
    /// The forward pass is cut into parts, each part is cut into smaller parts, and so on. The number says how many
    /// cuts are made in each part; 0 counts as 1. Results that live across one of the first cuts are kept, and so are
    /// all results after the last cut of the pass. The other results are dropped and recomputed; results between deeper
    /// cuts are recomputed more often, as far as the `depth` given to [`rewrite`] allows. With a `depth` of 1, all cuts
    /// count as first cuts.
    Recursive(u32, Cuts),
}

/// After which operators the forward pass may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cuts {
    /// There may be a cut after an operator if later operators of the forward pass access just one of the results
    /// written so far. Results of at most 1/256 of the largest do not count, nor do those that are first written
    /// outside of operators.
    One,
    /// There may be a cut after an operator if later operators of the forward pass access just one of the results
    /// written so far ([`Cuts::One`]), or if the bytes of the results that they access have a local minimum there.
    /// Small dips do not count: between two minima these bytes rise by a quarter at least.
    Narrow,
}

/// The figures of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// The bytes that live across a cut of the forward pass, summed over the cuts (x in Chen et al. 2016). For
    /// [`Plan::Recursive`] only the first cuts are counted, not those of the parts, unless `depth` is 1. 0 for
    /// [`Plan::Cheap`].
    pub stored: u64,
    /// The bytes of the largest of the segments into which the cuts divide the forward pass (y in Chen et al. 2016).
    /// For [`Plan::Recursive`] the cuts of the parts count too. Only results that the backward pass reads are counted.
    /// 0 for [`Plan::Cheap`].
    pub segment: u64,
    /// How many cuts divide the forward pass; for [`Plan::Recursive`], only the first cuts, not those of the parts,
    /// unless `depth` is 1; 0 for [`Plan::Cheap`].
    pub cuts: u32,
}

/// Rewrites a recording so that the results that a plan drops are recomputed. Added rows have the time of the row above
/// them. No operator is recomputed more than `depth` times, at most 31, also where the recursion of [`Plan::Recursive`]
/// goes deeper.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording, such as one with copies or recomputed operators;
/// [`Error::TooManyBlocks`].
///
/// ```
/// use sublet_baselines::chen::{self, Cuts, Plan};
/// use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
/// let row = |event, block, op| {
///     let bytes = if event == Event::Malloc { 64 } else { 0 };
///     Row { time_ns: 1, bytes, block, op: Op::First(op), event }
/// };
/// let mut rows = Vec::new();
/// let mut operator = |op: u32, reads: &[u32], freed: &[u32]| {
///     rows.push(row(Event::Malloc, op, op));
///     rows.extend(reads.iter().map(|&b| row(Event::Read, b, op)));
///     rows.push(row(Event::Write, op, op));
///     rows.extend(freed.iter().map(|&b| Row { op: Op::None, ..row(Event::Free, b, op) }));
/// };
/// // Four operators in a chain, and the gradients, each of which reads what its operator read.
/// operator(0, &[], &[]);
/// (1..4).for_each(|k| operator(k, &[k - 1], &[]));
/// operator(4, &[3], &[3]);
/// (5..8).for_each(|k| operator(k, &[k - 1, 7 - k], &[k - 1, 7 - k]));
/// let operators: Vec<_> = (0..8).map(|k| Operator { rerun: k < 4, ..Operator::default() }).collect();
/// let recorded = Recorded { rows: &rows, operators: &operators, blocks: 8 };
/// let (rows, made) = chen::rewrite(&recorded, Plan::Budget(64, Cuts::One), 1)?;
/// // One cut, after two operators: the first is recomputed, the second is kept, as the last segment is.
/// assert_eq!((made.cuts, made.stored, made.segment), (1, 64, 128));
/// let recomputed: Vec<_> = rows.iter().filter(|r| matches!(r.op, Op::Rerun(_))).map(|r| r.op).collect();
/// assert_eq!(recomputed, [Op::Rerun(0), Op::Rerun(0)]); // its malloc and its write
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn rewrite(recorded: &Recorded<'_>, plan: Plan, depth: u32) -> Result<(Vec<Row>, Mirrored), Error> {
    let network = Network::of(recorded)?;
    let mut planner = Planner::of(&network, depth);
    let mirrored = planner.arrange(plan);
    Ok((planner.rows()?, mirrored))
}

/// Finds the cheapest of several plans [`Plan::Budget`]: those with the budgets of the search of Chen et al. 2016, for
/// each of the two rules for where a segment may end, [`Cuts::One`] and [`Cuts::Narrow`]. No operator is recomputed
/// more than once. `cost` computes the cost of a plan from the rows of its trace. Returns the rows of the cheapest plan
/// and its figures.
///
/// # Errors
/// As [`rewrite`], and whatever `cost` returns.
pub fn search(
    recorded: &Recorded<'_>,
    mut cost: impl FnMut(&[Row]) -> Result<u64, Error>,
) -> Result<(Vec<Row>, Mirrored), Error> {
    let network = Network::of(recorded)?;
    let mut planner = Planner::of(&network, 1);
    let mut best: Option<(u64, Plan)> = None;
    for cuts in [Cuts::One, Cuts::Narrow] {
        let Mirrored { stored, segment, .. } = planner.arrange(Plan::Budget(0, cuts));
        let budgets = (0..6).map(|step| budget(stored, segment, step));
        for plan in std::iter::once(0).chain(budgets).map(|budget| Plan::Budget(budget, cuts)) {
            planner.arrange(plan);
            let found = cost(&planner.rows()?)?;
            if best.is_none_or(|(least, _)| found < least) {
                best = Some((found, plan));
            }
        }
    }
    let mirrored = planner.arrange(best.map_or(Plan::Budget(0, Cuts::One), |(_, plan)| plan));
    Ok((planner.rows()?, mirrored))
}

/// √(xy) · 2^(step/5 − 1/2), x the bytes across cuts and y the largest segment (Chen et al. 2016).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes, rounded down; a float as an integer never overflows"
)]
fn budget(stored: u64, segment: u64, step: u8) -> u64 {
    let middle = (stored as f64).sqrt() * (segment as f64).sqrt();
    (middle * (f64::from(step) / 5.0 - 0.5).exp2()) as u64
}

struct Planner<'n> {
    mirror: Mirror<'n>,
    depth: u32,
    across: Vec<u64>,
    /// Blocks of at most 1/256 of the largest do not count.
    blocks_across: Vec<u32>,
    made: Vec<u64>,
    /// Where a cut is allowed.
    candidate: Vec<bool>,
    /// The level of the cut after it.
    cut: Vec<Option<u32>>,
}

impl<'n> Planner<'n> {
    fn of(network: &'n Network<'n>, depth: u32) -> Self {
        let mirror = Mirror::of(network);
        let n = mirror.forward;
        let mut planner = Self {
            depth: depth.clamp(1, DEEPEST),
            across: vec![0; n],
            blocks_across: vec![0; n],
            made: vec![0; n],
            candidate: vec![false; n],
            cut: vec![None; n],
            mirror,
        };
        planner.measure();
        planner
    }

    fn measure(&mut self) {
        let Mirror { network, values, .. } = &self.mirror;
        let results = || network.size.iter().zip(values).filter(|(_, v)| v.is_result);
        let largest = results().map(|(&size, _)| size).max().unwrap_or(0);
        for (&size, v) in results() {
            let Some(maker) = v.maker else { continue };
            if v.kept {
                self.made[maker] = self.made[maker].saturating_add(size);
            }
            if network.operators[maker].op != Op::None {
                for o in maker..v.last_forward.unwrap_or(maker) {
                    self.across[o] = self.across[o].saturating_add(size);
                    self.blocks_across[o] += u32::from(size > largest / 256);
                }
            }
        }
    }

    fn rows(&self) -> Result<Vec<Row>, Error> {
        let rows = self.mirror.network.write(&self.mirror.runs);
        rows.ok_or(Error::Row { row: u32::MAX, fault: RowFault::OtherValue })
    }

    fn arrange(&mut self, plan: Plan) -> Mirrored {
        let mut mirrored = Mirrored { stored: 0, segment: 0, cuts: 0 };
        match plan {
            Plan::Budget(budget, cuts) => {
                self.candidates(cuts);
                mirrored = self.cut(|_, gathered| (gathered > budget).then_some(0));
                self.count_by_cuts();
            }
            Plan::Recursive(at_once, cuts) => {
                let (candidates, deepest) = (self.candidates(cuts), self.depth - 1);
                mirrored = self.cut(|k, _| Some(level(k, candidates, at_once.max(1)).min(deepest)));
                self.count_by_cuts();
            }
            Plan::Cheap => self.drop_cheap(),
        }
        self.mirror.arrange();
        mirrored
    }

    fn candidates(&mut self, cuts: Cuts) -> u32 {
        for (candidate, &blocks) in self.candidate.iter_mut().zip(&self.blocks_across) {
            *candidate = blocks == 1;
        }
        if cuts == Cuts::Narrow {
            self.valleys();
        }
        self.candidate.iter().map(|&candidate| u32::from(candidate)).sum()
    }

    fn valleys(&mut self) {
        let mut falling = true;
        let mut extreme = 0;
        for operator in 1..self.mirror.forward {
            let (now, then) = (self.across[operator], self.across[extreme]);
            let (low, high) = if falling { (then, now) } else { (now, then) };
            if high >= low.saturating_add(low / 4).max(1) && high > low {
                self.candidate[extreme] |= falling;
                falling = !falling;
                extreme = operator;
            } else if falling && now < then || !falling && now > then {
                extreme = operator;
            }
        }
    }

    fn cut(&mut self, level: impl Fn(u32, u64) -> Option<u32>) -> Mirrored {
        let mut mirrored = Mirrored { stored: 0, segment: 0, cuts: 0 };
        let (mut candidate, mut gathered) = (0, 0u64);
        self.cut.fill(None);
        for operator in 0..self.mirror.forward {
            gathered = gathered.saturating_add(self.made[operator]);
            mirrored.segment = mirrored.segment.max(gathered);
            if !self.candidate[operator] {
                continue;
            }
            let level = level(candidate, gathered);
            candidate += 1;
            self.cut[operator] = level;
            gathered = if level.is_some() { 0 } else { gathered };
            if level == Some(0) {
                mirrored.stored = mirrored.stored.saturating_add(self.across[operator]);
                mirrored.cuts += 1;
            }
        }
        mirrored
    }

    /// 1 + the higher level of the cuts around it, at most `depth`; at most m if read beyond a cut of level m.
    fn count_by_cuts(&mut self) {
        let forward = self.mirror.forward;
        let mut next_cut = vec![None; forward + 1];
        for operator in (0..forward).rev() {
            next_cut[operator] = self.cut[operator].map_or(next_cut[operator + 1], |level| Some((operator, level)));
        }
        let mut before = 0;
        for (operator, &next) in next_cut.iter().enumerate().take(forward) {
            let count = |(_, level): (usize, u32)| before.max(level + 1).min(self.depth).max(1);
            self.mirror.set_count(operator, next.map_or(0, count));
            before = self.cut[operator].map_or(before, |level| level + 1);
        }
        for block in 0..self.mirror.values.len() {
            let value = self.mirror.values[block];
            // The cuts after the operator that makes the value, and before its last reader of the forward pass.
            let mut next = value.maker.filter(|_| value.is_result).and_then(|maker| next_cut[maker]);
            while let Some((cut, level)) = next.filter(|&(cut, _)| Some(cut) < value.last_forward) {
                self.mirror.lower_count(block, level);
                next = next_cut[cut + 1];
            }
        }
    }

    fn drop_cheap(&mut self) {
        let forward = self.mirror.forward;
        let durations: Vec<u64> = (0..forward).map(|o| self.mirror.network.duration(o)).collect();
        let sum = |of: &[u64]| of.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
        let (time, bytes) = (sum(&durations), sum(&self.made));
        for (operator, &own_time) in durations.iter().enumerate() {
            let cheap = u128::from(own_time) * u128::from(bytes) < u128::from(time) * u128::from(self.made[operator]);
            self.mirror.set_count(operator, u32::from(cheap));
        }
    }
}

/// `at_once` cuts of level 0, then as many in each part, and so on.
fn level(candidate: u32, n: u32, at_once: u32) -> u32 {
    let (mut low, mut high) = (0, n);
    let mut level = 0;
    // Each round leaves the part in which the candidate lies, which gets shorter.
    while high - low > at_once {
        let cut = |k: u32| {
            let part = u64::from(high - low - at_once) * u64::from(k) / (u64::from(at_once) + 1);
            low + u32::try_from(part).unwrap_or(u32::MAX) + k - 1
        };
        let Some(next) = (1..=at_once).find(|&k| cut(k) >= candidate) else {
            low = cut(at_once) + 1;
            level += 1;
            continue;
        };
        if cut(next) == candidate {
            return level;
        }
        (low, high) = (if next > 1 { cut(next - 1) + 1 } else { low }, cut(next));
        level += 1;
    }
    level
}
