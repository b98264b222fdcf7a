//! The content that the HTML and the SVG form of a picture share.

use std::collections::HashMap;

use serde::Serialize;
use sublet_core::place::Sweep;
use sublet_core::trace::Row;
use sublet_core::{Block, Workspace};

use super::coloring::Coloring;
use super::ops::Ops;
use super::run::Run;
use super::{Picture, SolverRow};
use crate::problem::Trace;
use crate::timeline;

/// All that a picture shows. There is one array for each property of the blocks, since arrays of integers are the
/// shortest JSON. A block here is a residency.
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
    /// The ways to colour the blocks; an image has the first, a page opens with it.
    pub(super) colorings: Vec<Coloring>,
    /// The ops that allocate or, for a fitted trace, run, as the reader sees them. Other fields have indices into
    /// these.
    pub(super) ops: Vec<String>,
    pub(super) id: Vec<String>,
    pub(super) start: Vec<u32>,
    pub(super) end: Vec<u32>,
    pub(super) size: Vec<u64>,
    pub(super) offset: &'a [u64],
    /// The op that allocates each block in the recording, none for persistent blocks and inputs; empty where there is
    /// no trace.
    pub(super) op: Vec<Option<usize>>,
    /// By block: the next residency of the same block; empty where no block has two.
    pub(super) next: Vec<Option<usize>>,
    /// For a fitted trace, by block: how the residency came about, as bits: 1 recomputed, 2 a mask, 4 written over an
    /// input in place.
    pub(super) mark: &'a [u8],
    /// The load from `curve_step[i]` to `curve_step[i + 1]` is `curve_load[i]`.
    pub(super) curve_step: Vec<u32>,
    pub(super) curve_load: Vec<u64>,
    pub(super) rows: &'a [SolverRow],
    /// For a fitted trace: what is computed and copied. The time axis then counts nanoseconds.
    pub(super) run: Option<Run<'a>>,
}

impl<'a> Scene<'a> {
    pub(super) fn new(picture: &'a Picture<'_>) -> Self {
        let (problem, plan) = (picture.problem, picture.plan);
        let blocks = plan.blocks();
        let curve = load_curve(blocks);
        let trace = problem.trace.as_ref();
        let residencies = trace.map(|trace| Residencies::of(blocks, trace)).unwrap_or_default();
        let mut ops = Ops::new(trace.map_or(&[], |trace| &trace.op_names));
        let op: Vec<_> = trace.map_or_else(Vec::new, |trace| {
            // Mallocs of a rewritten trace have no op: the recording has it, also for the block of a mask.
            let recorded = picture.run.as_ref().map(|run| run.recorded.allocators());
            let allocates = |row: &Row| match &recorded {
                Some(ops) => ops[row.block as usize % ops.len()],
                None => row.op,
            };
            blocks
                .iter()
                .map(|b| ops.index(trace.rows.get(b.start as usize).map(allocates).unwrap_or_default()))
                .collect()
        });
        let run = picture.run.as_ref().map(|run| {
            let before =
                |copies: &[timeline::Copy]| load_curve(&residencies.joined(blocks, copies, run.schedule.rows().len()));
            Run::of(run, &mut ops, before)
        });
        let mut colorings = Vec::new();
        if let (Some(fitted), Some(run)) = (&picture.run, &run) {
            colorings.push(Coloring::by_fate(fitted.fates, run));
        }
        if trace.is_some_and(|t| !t.op_names.is_empty()) {
            colorings.push(Coloring::by_op(blocks, &op, &ops, run.as_ref()));
        } else if colorings.is_empty() {
            colorings.push(Coloring::by_size(blocks));
        }
        Self {
            name: problem.title(),
            solver: picture.solver,
            peak: plan.peak(),
            max_load: plan.max_load(),
            ratio: plan.ratio(),
            optimal: picture.optimal,
            steps: [blocks.iter().map(|b| b.start).min().unwrap_or(0), blocks.iter().map(|b| b.end).max().unwrap_or(1)],
            peak_step: curve.iter().find(|&&(_, load)| load == plan.max_load()).map_or(0, |&(step, _)| step),
            colorings,
            ops: ops.told(),
            id: (0..blocks.len()).map(|i| problem.ids.get(i).cloned().unwrap_or_else(|| i.to_string())).collect(),
            start: blocks.iter().map(|b| b.start).collect(),
            end: blocks.iter().map(|b| b.end).collect(),
            size: blocks.iter().map(|b| b.size).collect(),
            offset: plan.offsets(),
            op,
            next: residencies.next,
            mark: picture.run.as_ref().map_or(&[], |run| run.marks.bits()),
            curve_step: curve.iter().map(|&(step, _)| step).collect(),
            curve_load: curve.iter().map(|&(_, load)| load).collect(),
            rows: &picture.rows,
            run,
        }
    }

    /// The colours of an image.
    pub(super) fn coloring(&self) -> &Coloring {
        &self.colorings[0]
    }

    /// Where a step is on the time axis.
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    pub(super) fn moment(&self, step: u32) -> f64 {
        self.run.as_ref().map_or(step.into(), |run| run.clock[step as usize] as f64)
    }

    /// How many blocks there are, each counted once even if it has several residencies.
    pub(super) fn blocks(&self) -> usize {
        self.id.len() - self.next.iter().flatten().count()
    }

    /// The limit, if it is at most about 5/4 of the peak: a higher one would leave too little of the picture to the
    /// blocks.
    pub(super) fn limit_in_view(&self) -> Option<u64> {
        self.run.as_ref().map(|run| run.limit).filter(|&limit| limit / 5 <= self.peak / 4)
    }

    /// The highest address that is marked.
    pub(super) fn top(&self) -> u64 {
        self.peak.max(self.limit_in_view().unwrap_or(0))
    }

    /// The highest load that is shown.
    pub(super) fn most_load(&self) -> u64 {
        self.top().max(self.run.as_ref().map_or(0, |run| run.original_peak))
    }

    /// The range of the time axis.
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    pub(super) fn span(&self) -> [f64; 2] {
        self.run.as_ref().map_or(self.steps.map(f64::from), |run| [0.0, run.time_ns.max(1) as f64])
    }
}

/// Which blocks of a plan are residencies of one block of the trace.
#[derive(Default)]
struct Residencies {
    /// By block of the plan: the first residency of the same block of the trace.
    first: Vec<usize>,
    /// By block of the plan: the next residency of the same block of the trace; empty where no block has two.
    next: Vec<Option<usize>>,
}

impl Residencies {
    fn of(blocks: &[Block], trace: &Trace) -> Self {
        let mut residencies = Self { first: (0..blocks.len()).collect(), next: vec![None; blocks.len()] };
        let mut latest: HashMap<u32, usize> = HashMap::new();
        for (i, b) in blocks.iter().enumerate() {
            let Some(row) = trace.rows.get(b.start as usize) else { continue };
            if let Some(before) = latest.insert(row.block, i) {
                residencies.first[i] = residencies.first[before];
                residencies.next[before] = Some(i);
            }
        }
        if residencies.next.iter().all(Option::is_none) {
            residencies.next.clear();
        }
        residencies
    }

    /// The lifetimes that the blocks of the trace would have without copies: each from the begin of its first residency
    /// to the end of its last. If the first begins with a copy in, or the last ends with a copy out, the block is
    /// persistent, and on the host between iterations: it is then alive from the start, or to the end.
    fn joined(&self, blocks: &[Block], copies: &[timeline::Copy], rows: usize) -> Vec<Block> {
        let mut whole = blocks.to_vec();
        for copy in copies {
            if copy.out {
                whole[copy.residency].end = u32::try_from(rows).unwrap_or(u32::MAX);
            } else {
                whole[copy.residency].start = 0;
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
    let len = Sweep::workspace(blocks.len());
    let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    // A plan that was verified has blocks that can be swept, and the workspace is as long as was asked for.
    Sweep::new(blocks, Workspace::new(&mut words, &mut indices))
        .map_or_else(|_| Vec::new(), |s| s.load_curve().collect())
}
