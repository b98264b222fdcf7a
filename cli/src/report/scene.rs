//! What the HTML and the SVG form of a picture have in common.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;
use sublet_core::place::interval::{self, Sweep};
use sublet_core::trace::Op;
use sublet_core::{Block, Workspace};

use super::run::Run;
use super::{Picture, SolverRow};
use crate::problem::Trace;
use crate::timeline::{self, Timeline};

/// One column for each property of the blocks: arrays of integers are the shortest JSON.
///
/// JavaScript reads integers beyond 2^53 as the nearest that a double holds, so that a page about an arena
/// of more than 8 PiB is off by a few bytes.
#[derive(Debug, Serialize)]
pub(super) struct Scene<'a> {
    pub(super) name: &'a str,
    pub(super) solver: &'a str,
    /// In bytes, as are all loads, sizes and offsets here.
    pub(super) peak: u64,
    pub(super) max_load: u64,
    pub(super) ratio: f64,
    pub(super) optimal: bool,
    /// The steps that the picture spans: the first, and the one after the last.
    pub(super) steps: [u32; 2],
    /// The first step whose load is the max load.
    pub(super) peak_step: u32,
    /// What the colours mean.
    pub(super) colored_by: &'static str,
    pub(super) groups: Vec<Group>,
    /// The ops that allocate or, where the trace is fitted, run, as they are told to the reader; `op` counts into it.
    pub(super) ops: Vec<String>,
    pub(super) id: Vec<String>,
    pub(super) start: Vec<u32>,
    pub(super) end: Vec<u32>,
    pub(super) size: Vec<u64>,
    pub(super) offset: &'a [u64],
    /// The group of each block.
    pub(super) group: Vec<usize>,
    /// The op of each block, none for persistent blocks and inputs; empty where there is no trace. Of a later stay it is
    /// the op of the first.
    pub(super) op: Vec<Option<usize>>,
    /// The next stay on the device of what lies here; empty where nothing has a second.
    pub(super) next: Vec<Option<usize>>,
    /// How each block was made, where the trace is fitted, as bits: 1 by an operator that runs again, 2 as a mask, 4 over
    /// another in place; empty where none was.
    pub(super) mark: &'a [u8],
    /// The load from `curve_step[i]` to `curve_step[i + 1]` is `curve_load[i]`.
    pub(super) curve_step: Vec<u32>,
    pub(super) curve_load: Vec<u64>,
    pub(super) rows: &'a [SolverRow],
    /// What is computed and copied meanwhile, where the trace is fitted; the time axis then counts its nanoseconds.
    pub(super) run: Option<Run<'a>>,
}

/// Blocks of one colour.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    pub(super) label: String,
    pub(super) color: &'static str,
    pub(super) blocks: usize,
}

/// For names that have no order: the hues alternate, so that neighbours in the ranking are told apart.
/// Each is light enough for dark text and dark enough for white paper, and so serves light and dark pages.
const HUES: [&str; 10] =
    ["#5c93e4", "#e7b551", "#4dc0b5", "#e66d75", "#a584dc", "#63bb73", "#ea8d52", "#8bc7e5", "#e593c2", "#b7c86b"];
/// How many classes of sizes there are at most.
const CLASSES: u32 = 9;
/// Their colours, from the smallest to the largest.
const RAMP: [&str; CLASSES as usize] =
    ["#bc90d7", "#e38ab5", "#f38d85", "#f2a86e", "#eac66e", "#bbd381", "#74c698", "#50b6c1", "#5e93e1"];
/// The ops that have no hue of their own.
const OTHERS: &str = "#b9a99a";
/// Blocks that no op allocates.
const NO_OP: &str = "#9ea5b0";

impl<'a> Scene<'a> {
    pub(super) fn new(picture: &'a Picture<'_>) -> Self {
        let (problem, plan) = (picture.problem, picture.plan);
        let blocks = plan.blocks();
        let curve = load_curve(blocks);
        let trace = problem.trace.as_ref();
        let stays = trace.map(|trace| Stays::of(blocks, trace)).unwrap_or_default();
        let mut ops = Ops::new(trace.map_or(&[], |trace| &trace.op_names));
        let allocates = |t: &Trace, b: &Block| t.rows.get(b.start as usize).map(|row| row.op).unwrap_or_default();
        let op_of = |&first: &usize| ops.index(trace.map(|t| allocates(t, &blocks[first])).unwrap_or_default());
        let op: Vec<_> = stays.first.iter().map(op_of).collect();
        let (colored_by, groups, group) = if trace.is_some_and(|t| !t.op_names.is_empty()) {
            let names: Vec<_> = op.iter().map(|op| op.map(|i| ops.name(i))).collect();
            let (groups, group) = group_by_op(blocks, &names);
            ("op that allocates the block", groups, group)
        } else {
            let (groups, group) = group_by_size(blocks);
            ("size of the block", groups, group)
        };
        let run = picture.run.as_ref().map(|run| {
            let before =
                |copies: &[timeline::Copy]| load_curve(&stays.joined(blocks, copies, run.schedule.rows().len()));
            // An op that runs has the colour of what it allocates.
            let colors = op.iter().zip(&group).filter_map(|(op, &group)| Some((ops.name((*op)?), group))).collect();
            Run::of(run, &mut ops, &colors, before)
        });
        Self {
            name: problem.title(),
            solver: picture.solver,
            peak: plan.peak(),
            max_load: plan.max_load(),
            ratio: plan.ratio(),
            optimal: plan.is_optimal(),
            steps: [blocks.iter().map(|b| b.start).min().unwrap_or(0), blocks.iter().map(|b| b.end).max().unwrap_or(1)],
            peak_step: curve.iter().find(|&&(_, load)| load == plan.max_load()).map_or(0, |&(step, _)| step),
            colored_by,
            groups,
            ops: ops.known.into_iter().map(|op| op.told).collect(),
            id: (0..blocks.len()).map(|i| problem.ids.get(i).cloned().unwrap_or_else(|| i.to_string())).collect(),
            start: blocks.iter().map(|b| b.start).collect(),
            end: blocks.iter().map(|b| b.end).collect(),
            size: blocks.iter().map(|b| b.size).collect(),
            offset: plan.offsets(),
            group,
            op,
            next: stays.next,
            mark: picture.run.as_ref().map_or(&[], |run| run.marks.bits()),
            curve_step: curve.iter().map(|&(step, _)| step).collect(),
            curve_load: curve.iter().map(|&(_, load)| load).collect(),
            rows: &picture.rows,
            run,
        }
    }

    /// Where a step is on the time axis.
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    pub(super) fn moment(&self, step: u32) -> f64 {
        self.run.as_ref().map_or(step.into(), |run| run.clock[step as usize] as f64)
    }

    /// How many blocks there are, each counted once however often it comes.
    pub(super) fn blocks(&self) -> usize {
        self.id.len() - self.next.iter().flatten().count()
    }

    /// The limit, where it is near enough to the peak to be seen beside it.
    pub(super) fn limit_in_view(&self) -> Option<u64> {
        self.run.as_ref().map(|run| run.limit).filter(|&limit| limit / 5 <= self.peak / 4)
    }

    /// The highest address that is pointed out.
    pub(super) fn top(&self) -> u64 {
        self.peak.max(self.limit_in_view().unwrap_or(0))
    }

    /// The highest load that is shown.
    pub(super) fn most_load(&self) -> u64 {
        self.top().max(self.run.as_ref().map_or(0, |run| run.original_peak))
    }

    /// What the time axis spans.
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    pub(super) fn span(&self) -> [f64; 2] {
        self.run.as_ref().map_or(self.steps.map(f64::from), |run| [0.0, run.time_ns.max(1) as f64])
    }
}

/// Which blocks of a plan are the same block of the trace.
#[derive(Default)]
struct Stays {
    /// The first stay of each.
    first: Vec<usize>,
    /// The one after each; empty where nothing has a second.
    next: Vec<Option<usize>>,
}

impl Stays {
    fn of(blocks: &[Block], trace: &Trace) -> Self {
        let mut stays = Self { first: (0..blocks.len()).collect(), next: vec![None; blocks.len()] };
        let mut latest: HashMap<u32, usize> = HashMap::new();
        for (i, b) in blocks.iter().enumerate() {
            let Some(row) = trace.rows.get(b.start as usize) else { continue };
            if let Some(before) = latest.insert(row.block, i) {
                stays.first[i] = stays.first[before];
                stays.next[before] = Some(i);
            }
        }
        if stays.next.iter().all(Option::is_none) {
            stays.next.clear();
        }
        stays
    }

    /// The blocks as they are alive without copies: from the first stay to the last. What comes before any stay and what
    /// goes for good is a persistent block on the host, where iterations repeat.
    fn joined(&self, blocks: &[Block], copies: &[timeline::Copy], rows: usize) -> Vec<Block> {
        let mut whole = blocks.to_vec();
        for copy in copies {
            if copy.out {
                whole[copy.stay].end = u32::try_from(rows).unwrap_or(u32::MAX);
            } else {
                whole[copy.stay].start = 0;
            }
        }
        // From the last to the first, so that each takes over the end of all that follow.
        for (i, next) in self.next.iter().enumerate().rev() {
            if let Some(next) = *next {
                whole[i].end = whole[next].end;
            }
        }
        self.first.iter().enumerate().filter(|&(i, &first)| i == first).map(|(i, _)| whole[i]).collect()
    }
}

fn load_curve(blocks: &[Block]) -> Vec<(u32, u64)> {
    let len = interval::workspace(blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    // A plan that was verified has blocks that can be swept, and the workspace is as long as was asked for.
    Sweep::new(blocks, Workspace::new(&mut words, &mut indices))
        .map_or_else(|_| Vec::new(), |s| s.load_curve().collect())
}

/// The distinct ops, in the order in which they are asked for.
pub(super) struct Ops<'a> {
    names: &'a [String],
    known: Vec<NamedOp<'a>>,
    indices: HashMap<Op, usize>,
}

/// An op as it is told.
struct NamedOp<'a> {
    /// What ops of one colour have in common.
    name: &'a str,
    /// Number and name.
    told: String,
}

impl<'a> Ops<'a> {
    fn new(names: &'a [String]) -> Self {
        Self { names, known: Vec::new(), indices: HashMap::new() }
    }

    pub(super) fn index(&mut self, op: Op) -> Option<usize> {
        let (Op::First(number) | Op::Again(number)) = op else { return None };
        let Self { names, known, indices } = self;
        Some(*indices.entry(op).or_insert_with(|| {
            let name = names.get(number as usize).map_or("", String::as_str);
            known.push(NamedOp { name, told: Timeline::told(op, names) });
            known.len() - 1
        }))
    }

    pub(super) fn name(&self, index: usize) -> &'a str {
        self.known[index].name
    }
}

/// A colour for each of the ops' names that fill most of the map; ties go to the name that comes first in the alphabet.
fn group_by_op(blocks: &[Block], names: &[Option<&str>]) -> (Vec<Group>, Vec<usize>) {
    let mut area: HashMap<&str, u128> = HashMap::new();
    for (b, name) in blocks.iter().zip(names) {
        if let Some(name) = name {
            *area.entry(name).or_default() += u128::from(b.size) * u128::from(b.width());
        }
    }
    let mut ranked: Vec<_> = area.into_iter().collect();
    ranked.sort_unstable_by_key(|&(name, area)| (Reverse(area), name));
    let rank: HashMap<_, _> = ranked.iter().enumerate().map(|(i, &(name, _))| (name, i)).collect();

    let hues = HUES.len().min(ranked.len());
    let mut groups: Vec<_> = ranked.iter().zip(HUES).map(|(&(name, _), color)| Group::new(name, color)).collect();
    groups.push(Group::new(&format!("{} other ops", ranked.len() - hues), OTHERS));
    groups.push(Group::new("no op: persistent or input", NO_OP));
    let of_blocks = names.iter().map(|name| name.map_or(hues + 1, |name| rank[name].min(hues))).collect();
    drop_empty(groups, of_blocks)
}

/// The powers of two that the largest blocks lie between, and one class for all that is smaller: what is small is hardly
/// seen in a map of bytes.
fn group_by_size(blocks: &[Block]) -> (Vec<Group>, Vec<usize>) {
    let power = |b: &Block| b.size.max(1).ilog2();
    let highest = blocks.iter().map(power).max().unwrap_or(0);
    let lowest = (highest + 1).saturating_sub(CLASSES);
    let groups = (lowest..=highest).map(|bits| {
        let above = 1u64.checked_shl(bits + 1).map_or_else(|| "16 EiB".into(), bytes);
        let below = lowest > 0 && bits == lowest;
        let label = if below { format!("below {above}") } else { format!("{} to {above}", bytes(1 << bits)) };
        Group::new(&label, RAMP[(CLASSES - 1 - (highest - bits)) as usize])
    });
    let of_blocks = blocks.iter().map(|b| power(b).saturating_sub(lowest) as usize).collect();
    drop_empty(groups.collect(), of_blocks)
}

/// Counts the blocks of each group and leaves out the groups that have none.
fn drop_empty(mut groups: Vec<Group>, mut of_blocks: Vec<usize>) -> (Vec<Group>, Vec<usize>) {
    for &g in &of_blocks {
        groups[g].blocks += 1;
    }
    let moved: Vec<_> = groups
        .iter()
        .scan(0, |next, g| {
            let at = *next;
            *next += usize::from(g.blocks > 0);
            Some(at)
        })
        .collect();
    for g in &mut of_blocks {
        *g = moved[*g];
    }
    groups.retain(|g| g.blocks > 0);
    (groups, of_blocks)
}

impl Group {
    fn new(label: &str, color: &'static str) -> Self {
        Self { label: label.into(), color, blocks: 0 }
    }
}

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A number of bytes for people: three digits or four, and a binary unit.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn bytes(n: u64) -> String {
    let mut unit = (n.max(1).ilog2() / 10) as usize;
    let scaled = |unit: usize| n as f64 / (1u64 << (10 * unit)) as f64;
    // 1023.9 KiB would be shown as 1024 KiB.
    if unit + 1 < UNITS.len() && scaled(unit) >= 1023.5 {
        unit += 1;
    }
    let value = scaled(unit);
    let digits = if value >= 99.95 { 0 } else { 1 + usize::from(value < 9.995) };
    let text = format!("{value:.digits$}");
    let text = if digits == 0 { &text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text} {}", UNITS[unit])
}

/// A distance between the marks of a byte axis that spans `range`: a power of two, at most `most` of them.
pub(super) fn byte_tick(range: u64, most: u64) -> u64 {
    range.div_ceil(most).checked_next_power_of_two().unwrap_or(1 << 63)
}

/// The same for steps and times: 1, 2 or 5 times a power of ten.
pub(super) fn round_tick(range: u64, most: u64) -> u64 {
    let least = range.div_ceil(most).max(1);
    let ten = 10u64.pow(least.ilog10());
    [1, 2, 5, 10].into_iter().filter_map(|m| ten.checked_mul(m)).find(|&tick| tick >= least).unwrap_or(u64::MAX)
}

/// A time for people, in a unit that shows the difference to one that is `mark` later, both in ns.
#[expect(clippy::cast_precision_loss, reason = "few digits are shown")]
pub(super) fn time(ns: u64, mark: u64) -> String {
    let (unit, scale) = match mark {
        0..1_000 => ("ns", 1.0),
        1_000..1_000_000 => ("µs", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    format!("{} {unit}", ns as f64 / scale)
}

/// A whole number with its thousands set apart.
pub(super) fn whole(n: usize) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
