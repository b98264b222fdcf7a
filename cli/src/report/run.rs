//! The computing and copying of a fitted trace, for the picture: in columns, and in whole nanoseconds.

use serde::Serialize;

use super::FittedRun;
use super::ops::Ops;
use sublet_core::trace::Op;

use crate::timeline::{Copy, Span, Timeline};

/// The run of a fitted trace. Sizes in bytes, times in ns.
#[derive(Debug, Serialize)]
pub(super) struct Run<'a> {
    pub(super) device: &'a str,
    pub(super) limit: u64,
    pub(super) original_peak: u64,
    pub(super) load_min: u64,
    /// The overhead as a fraction of the original's time; none if the original has no times.
    pub(super) overhead: Option<f64>,
    pub(super) overhead_lower_bound: Option<f64>,
    pub(super) original_ns: u64,
    pub(super) time_ns: u64,
    pub(super) swapped_bytes: u64,
    pub(super) recomputed_ns: u64,
    /// By step: when it happens; the last entry is the end of the run.
    pub(super) clock: Vec<u64>,
    /// The steps at which the load without copies changes.
    pub(super) before_step: Vec<u32>,
    /// The load without copies, from each step of `before_step` on.
    pub(super) before_load: Vec<u64>,
    pub(super) operators: Operators,
    pub(super) stalls: Stalls,
    pub(super) copies: Copies,
    pub(super) gaps: Gaps,
}

/// Operators, as they follow each other.
#[derive(Debug, Default, Serialize)]
pub(super) struct Operators {
    pub(super) begin: Vec<u64>,
    pub(super) end: Vec<u64>,
    /// By operator: its index in the scene's ops.
    pub(super) op: Vec<Option<usize>>,
    /// By operator: whether it is recomputed.
    pub(super) rerun: Vec<bool>,
}

/// Where compute waits.
#[derive(Debug, Default, Serialize)]
pub(super) struct Stalls {
    pub(super) begin: Vec<u64>,
    pub(super) end: Vec<u64>,
    /// By stall: the copy that compute waits for.
    pub(super) copy: Vec<Option<usize>>,
}

/// Copies to the host and back.
#[derive(Debug, Default, Serialize)]
pub(super) struct Copies {
    pub(super) begin: Vec<u64>,
    pub(super) end: Vec<u64>,
    /// By copy: whether it goes to the host.
    pub(super) out: Vec<bool>,
    /// By copy: the block of the scene that is copied.
    pub(super) residency: Vec<usize>,
    /// By copy: how long compute waits for it; 0 for a copy that is hidden behind compute.
    pub(super) waited: Vec<u64>,
}

/// The gaps between two uses of a block: what was done, and what the alternatives would have cost. Times in ns.
#[derive(Debug, Default, Serialize)]
pub(super) struct Gaps {
    /// By gap: the block of the scene that was there before the gap.
    pub(super) residency: Vec<usize>,
    /// By gap: the scene's op that uses the block last before it.
    pub(super) after: Vec<Option<usize>>,
    /// By gap: the scene's op that uses the block first after it.
    pub(super) before: Vec<Option<usize>>,
    pub(super) idle: Vec<u64>,
    pub(super) choice: Vec<&'static str>,
    /// By gap: the time that the choice costs.
    pub(super) cost: Vec<u64>,
    /// By gap: the time of the two copies.
    pub(super) swap: Vec<u64>,
    /// By gap: the time of the recomputation; none where the value may not be recomputed.
    pub(super) recompute: Vec<Option<u64>>,
    /// By gap: the most bytes on the device in the gap if the block stayed.
    pub(super) load_if_kept: Vec<u64>,
}

impl<'a> Run<'a> {
    /// The run of a fitted trace. Its operators are added to `ops`; `before` makes the load curve without copies.
    pub(super) fn of(
        fitted: &FittedRun<'a>,
        ops: &mut Ops<'_>,
        before: impl FnOnce(&[Copy]) -> Vec<(u32, u64)>,
    ) -> Self {
        let timeline = Timeline::of(fitted.schedule);
        let run = fitted.schedule.run();
        let time_ns = nearest(run.time_ns);
        let mut operators = Operators::default();
        for operator in &timeline.operators {
            push(operator.span, &mut operators.begin, &mut operators.end);
            operators.op.push(ops.index(operator.op));
            operators.rerun.push(matches!(operator.op, Op::Rerun(_)));
        }
        let mut stalls = Stalls::default();
        for stall in &timeline.stalls {
            push(stall.span, &mut stalls.begin, &mut stalls.end);
            stalls.copy.push(stall.copy);
        }
        let mut copies = Copies::default();
        for copy in &timeline.copies {
            push(copy.span, &mut copies.begin, &mut copies.end);
            copies.out.push(copy.out);
            copies.residency.push(copy.residency);
            copies.waited.push(nearest(copy.waited));
        }
        let mut gaps = Gaps::default();
        for gap in fitted.gaps {
            gaps.residency.push(gap.residency);
            gaps.after.push(ops.index(gap.after));
            gaps.before.push(ops.index(gap.before));
            gaps.idle.push(nearest(gap.idle_ns));
            gaps.choice.push(gap.choice.name());
            gaps.cost.push(nearest(gap.cost_ns));
            gaps.swap.push(nearest(gap.swap_ns));
            gaps.recompute.push(gap.recompute_ns.map(nearest));
            gaps.load_if_kept.push(gap.load_if_kept);
        }
        let (before_step, before_load) = before(&timeline.copies).into_iter().unzip();
        Self {
            device: fitted.device,
            limit: fitted.limit,
            original_peak: fitted.original_peak,
            load_min: fitted.load_min,
            overhead: (run.original_ns > 0).then(|| run.overhead()),
            overhead_lower_bound: fitted.lower_bound,
            original_ns: run.original_ns,
            time_ns,
            swapped_bytes: run.swapped_bytes,
            recomputed_ns: run.recomputed_ns,
            // The begin of each step is enough: blocks begin and end at mallocs and frees, which take no time.
            clock: fitted.schedule.timings().iter().map(|t| nearest(t.begin)).chain([time_ns]).collect(),
            before_step,
            before_load,
            operators,
            stalls,
            copies,
            gaps,
        }
    }
}

fn push(span: Span, begin: &mut Vec<u64>, end: &mut Vec<u64>) {
    begin.push(nearest(span.begin));
    end.push(nearest(span.end));
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in ns")]
fn nearest(ns: f64) -> u64 {
    ns.round() as u64
}
