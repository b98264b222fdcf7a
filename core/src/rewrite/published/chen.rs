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

use super::mirror::{self, Mirror};
use crate::error::RowFault;
use crate::rewrite::program::Program;
use crate::rewrite::script::emit::{self, Emitter};
use crate::rewrite::script::follow::Follower;
use crate::rewrite::values::Values;
use crate::trace::{Op, Recorded, Row, liveness};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block};

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

/// How a recording was rewritten: the rows and the figures of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// How many rows the rewritten trace has.
    pub rows: usize,
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

/// Length of the workspace that [`rewrite`] and [`search`] need for a recording of `rows` rows with `blocks` block
/// numbers. `depth` is the most times that an operator may be recomputed: 1, or up to 31 for [`Plan::Recursive`].
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, depth: u32) -> WorkspaceLen {
    let most = most_rows(rows, depth);
    Program::workspace(rows, blocks)
        .and(Values::workspace(rows, blocks))
        .and(planner_workspace(rows, blocks, depth))
        .and(Follower::workspace(most, blocks))
        .and(Emitter::workspace(most, blocks))
}

pub(in crate::rewrite) const fn planner_workspace(rows: usize, blocks: usize, depth: u32) -> WorkspaceLen {
    Mirror::workspace(rows, blocks, mirror::clamp(depth) as usize).and(Planner::workspace(rows))
}

/// The most rows of the trace that is made from a recording of `rows` rows, if no operator is recomputed more than
/// `depth` times. Each recomputation repeats the rows of the operator's accesses and workspaces, and adds at most a
/// malloc and a free for each access.
#[must_use]
pub const fn most_rows(rows: usize, depth: u32) -> usize {
    rows + 3 * mirror::clamp(depth) as usize * rows
}

/// Rewrites a recording so that the results that a plan drops are recomputed, and writes the rows to `out`. Added rows
/// have the time of the row above them. No operator is recomputed more than `depth` times, also where the recursion of
/// [`Plan::Recursive`] goes deeper.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording, such as one with copies or recomputed operators, and for one of 2²⁷
/// rows or more; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if `out` or the workspace is too short.
///
/// ```
/// use sublet_core::rewrite::published::chen::{self, Cuts, Plan};
/// use sublet_core::trace::{Event, Op, Operator, Recorded, Row};
/// use sublet_core::Workspace;
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
/// let len = chen::workspace(rows.len(), 8, 1);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let mut out = vec![Row::default(); chen::most_rows(rows.len(), 1)];
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let made = chen::rewrite(&recorded, Plan::Budget(64, Cuts::One), 1, scratch, &mut out)?;
/// // One cut, after two operators: the first is recomputed, the second is kept, as the last segment is.
/// assert_eq!((made.cuts, made.stored, made.segment), (1, 64, 128));
/// let recomputed: Vec<_> = out[..made.rows].iter().filter(|r| matches!(r.op, Op::Rerun(_))).map(|r| r.op).collect();
/// assert_eq!(recomputed, [Op::Rerun(0), Op::Rerun(0)]); // its malloc and its write
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn rewrite(
    recorded: &Recorded<'_>,
    plan: Plan,
    depth: u32,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
) -> Result<Mirrored, Error> {
    let depth = mirror::clamp(depth);
    let mut scratch = scratch.reborrow();
    let program = program(recorded, depth, &mut scratch)?;
    let mut scratch = scratch.reborrow();
    let values = Values::new(recorded, &program, &mut scratch);
    let mut scratch = scratch.reborrow();
    let mut planner = Planner::new(&values, depth, &mut scratch)?;
    let mirrored = planner.arrange(plan);
    Ok(Mirrored { rows: planner.write(scratch, out)?, ..mirrored })
}

/// Finds the cheapest of several plans [`Plan::Budget`]: those with the budgets of the search of Chen et al. 2016, for
/// each of the two rules for where a segment may end, [`Cuts::One`] and [`Cuts::Narrow`]. No operator is recomputed
/// more than once. `cost` computes the cost of a plan from the rows of its trace. Writes the rows of the cheapest plan
/// to `out`, and returns that plan and its figures.
///
/// # Errors
/// [`Error::Row`] for a trace that is no recording, such as one with copies or recomputed operators, and for one of 2²⁷
/// rows or more; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if `out` or the workspace is too short; and
/// whatever `cost` returns.
pub fn search(
    recorded: &Recorded<'_>,
    mut scratch: Workspace<'_>,
    out: &mut [Row],
    mut cost: impl FnMut(&[Row]) -> Result<u64, Error>,
) -> Result<(Plan, Mirrored), Error> {
    let mut scratch = scratch.reborrow();
    let program = program(recorded, 1, &mut scratch)?;
    let mut scratch = scratch.reborrow();
    let values = Values::new(recorded, &program, &mut scratch);
    let mut scratch = scratch.reborrow();
    let mut planner = Planner::new(&values, 1, &mut scratch)?;
    let mut best = (u64::MAX, Plan::Budget(0, Cuts::One));
    for cuts in [Cuts::One, Cuts::Narrow] {
        planner.budgets(cuts, &mut |planner, plan| {
            let rows = planner.write(scratch.reborrow(), out)?;
            let found = cost(out.get(..rows).unwrap_or_default())?;
            if found < best.0 {
                best = (found, plan);
            }
            Ok(())
        })?;
    }
    let mirrored = planner.arrange(best.1);
    Ok((best.1, Mirrored { rows: planner.write(scratch, out)?, ..mirrored }))
}

fn program<'a>(recorded: &Recorded<'a>, depth: u32, scratch: &mut Workspace<'a>) -> Result<Program<'a>, Error> {
    block::check_count(recorded.blocks)?;
    scratch.check(workspace(recorded.rows.len(), recorded.blocks, depth))?;
    // The planner relies on rows that can follow each other.
    liveness::check(recorded.rows, recorded.blocks, scratch.reborrow())?;
    Program::new(recorded.rows, recorded.blocks, scratch)
}

const AT_ONCE: [u32; 3] = [1, 2, 4];

/// √(xy) · 2^(step/5 − 1/2), x the bytes across cuts and y the largest segment (Chen et al. 2016).
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes, rounded down; a float as an integer never overflows"
)]
fn budget(stored: u64, segment: u64, step: u8) -> u64 {
    let middle = libm::sqrt(stored as f64) * libm::sqrt(segment as f64);
    (middle * libm::exp2(f64::from(step) / 5.0 - 0.5)) as u64
}

workspace! {
    pub(in crate::rewrite) struct Planner<'a>(rows; mirror: Mirror<'a>, depth: u32) {
        tables {
            across: u64[rows],
            /// Blocks of at most 1/256 of the largest do not count.
            blocks_across: u32[rows],
            made: u64[rows],
            /// 1 + the level of the cut after it, 0 for none; while cuts are chosen, 1 allows one.
            cut: u32[rows],
        }
        records {
            next_cut: Option<u32>[rows + 1],
        }
        state {
            pub(in crate::rewrite) mirror: Mirror<'a> = mirror,
            depth: u32 = depth,
        }
    }
}

impl<'a> Planner<'a> {
    pub(in crate::rewrite) fn new(
        values: &'a Values<'a>,
        depth: u32,
        scratch: &mut Workspace<'a>,
    ) -> Result<Self, Error> {
        let depth = mirror::clamp(depth);
        let mirror = Mirror::new(values, depth, scratch)?;
        let mut planner = Self::lend(values.program.rows.len(), mirror, depth, scratch);
        planner.measure();
        Ok(planner)
    }

    fn measure(&mut self) {
        let mirror = &self.mirror;
        let program = mirror.values.program;
        let values = || program.blocks().map(|b| (program.size[b], mirror.value(b))).filter(|(_, v)| v.is_result);
        let largest = values().map(|(size, _)| size).max().unwrap_or(0);
        // First the changes at each operator, which may be negative, in two's complement; then their sums.
        for (size, v) in values() {
            let Some(maker) = v.maker else { continue };
            if v.kept {
                self.made[maker] = self.made[maker].saturating_add(size);
            }
            if let Some(last) = v.last_forward.filter(|&last| last > maker && program.op(maker) != Op::None) {
                let large = u32::from(size > largest / 256);
                self.across[maker] = self.across[maker].wrapping_add(size);
                self.across[last] = self.across[last].wrapping_sub(size);
                self.blocks_across[maker] = self.blocks_across[maker].wrapping_add(large);
                self.blocks_across[last] = self.blocks_across[last].wrapping_sub(large);
            }
        }
        for operator in 1..mirror.forward {
            self.across[operator] = self.across[operator].wrapping_add(self.across[operator - 1]);
            self.blocks_across[operator] = self.blocks_across[operator].wrapping_add(self.blocks_across[operator - 1]);
        }
    }

    fn write(&self, mut scratch: Workspace<'_>, out: &mut [Row]) -> Result<usize, Error> {
        let values = self.mirror.values;
        let steps = most_rows(values.program.rows.len(), self.depth);
        let mut follower = Follower::lend(steps, values.program.size.len(), &mut scratch);
        let made = follower.follow(values, self.mirror.runs(), u64::MAX, &|_| 0, false);
        // There is room for all steps. So if no script is made, a run reads a value that is not on the device.
        made.ok_or(Error::Row { row: u32::MAX, fault: RowFault::OtherValue })?;
        emit::write(values, follower.script(), steps, scratch, out)
    }

    fn budgets(&mut self, cuts: Cuts, see: &mut dyn FnMut(&Self, Plan) -> Result<(), Error>) -> Result<(), Error> {
        let finest = Plan::Budget(0, cuts);
        let Mirrored { stored, segment, .. } = self.arrange(finest);
        see(self, finest)?;
        (0..6).try_for_each(|step| {
            let plan = Plan::Budget(budget(stored, segment, step), cuts);
            self.arrange(plan);
            see(self, plan)
        })
    }

    pub(in crate::rewrite) fn each(&mut self, see: &mut dyn FnMut(&Mirror<'a>)) -> Result<(), Error> {
        for cuts in [Cuts::Narrow, Cuts::One] {
            self.budgets(cuts, &mut |planner, _| {
                see(&planner.mirror);
                Ok(())
            })?;
            for at_once in AT_ONCE {
                self.arrange(Plan::Recursive(at_once, cuts));
                see(&self.mirror);
            }
        }
        self.arrange(Plan::Cheap);
        see(&self.mirror);
        Ok(())
    }

    fn arrange(&mut self, plan: Plan) -> Mirrored {
        let mut mirrored = Mirrored { rows: 0, stored: 0, segment: 0, cuts: 0 };
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
        self.mirror.settle();
        self.mirror.order();
        mirrored
    }

    fn candidates(&mut self, cuts: Cuts) -> u32 {
        let forward = self.mirror.forward;
        self.cut.fill(0);
        for operator in 0..forward {
            self.cut[operator] = u32::from(self.blocks_across[operator] == 1);
        }
        if cuts == Cuts::Narrow {
            self.valleys();
        }
        (0..forward).map(|operator| self.cut[operator]).sum()
    }

    fn valleys(&mut self) {
        let mut falling = true;
        let mut extreme = 0;
        for operator in 1..self.mirror.forward {
            let (now, then) = (self.across[operator], self.across[extreme]);
            let (low, high) = if falling { (then, now) } else { (now, then) };
            if high >= low.saturating_add(low / 4).max(1) && high > low {
                if falling {
                    self.cut[extreme] = 1;
                }
                falling = !falling;
                extreme = operator;
            } else if falling && now < then || !falling && now > then {
                extreme = operator;
            }
        }
    }

    fn cut(&mut self, level: impl Fn(u32, u64) -> Option<u32>) -> Mirrored {
        let mut mirrored = Mirrored { rows: 0, stored: 0, segment: 0, cuts: 0 };
        let (mut candidate, mut gathered) = (0, 0u64);
        for operator in 0..self.mirror.forward {
            gathered = gathered.saturating_add(self.made[operator]);
            mirrored.segment = mirrored.segment.max(gathered);
            if self.cut[operator] == 0 {
                continue;
            }
            let level = level(candidate, gathered);
            candidate += 1;
            self.cut[operator] = level.map_or(0, |level| level + 1);
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
        self.next_cut.set(forward, None);
        for operator in (0..forward).rev() {
            let next = if self.cut[operator] > 0 { Some(operator) } else { self.next_cut.get(operator + 1) };
            self.next_cut.set(operator, next);
        }
        let mut before = 0;
        for operator in 0..forward {
            let count = |next| before.max(self.cut[next]).min(self.depth).max(1);
            self.mirror.set_count(operator, self.next_cut.get(operator).map_or(0, count));
            before = if self.cut[operator] > 0 { self.cut[operator] } else { before };
        }
        for block in self.mirror.values.program.blocks() {
            let value = self.mirror.value(block);
            // The cuts after the operator that makes the value, and before its last reader of the forward pass.
            let mut next = value.maker.filter(|_| value.is_result).and_then(|maker| self.next_cut.get(maker));
            while let Some(cut) = next.filter(|_| next < value.last_forward) {
                self.mirror.lower_count(block, self.cut[cut] - 1);
                next = self.next_cut.get(cut + 1);
            }
        }
    }

    fn drop_cheap(&mut self) {
        let forward = self.mirror.forward;
        let sum = |of: &dyn Fn(u32) -> u64| (0..forward).fold(0u64, |sum, o| sum.saturating_add(of(o)));
        let (time, bytes) = (sum(&|o| self.mirror.values.program.duration(o)), sum(&|o| self.made[o]));
        for operator in 0..forward {
            let (own_time, own_bytes) = (self.mirror.values.program.duration(operator), self.made[operator]);
            let cheap = u128::from(own_time) * u128::from(bytes) < u128::from(time) * u128::from(own_bytes);
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
