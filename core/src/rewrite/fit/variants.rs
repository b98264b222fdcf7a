//! The traces in which swaps and recomputation are planned. For each order of the operators that is tried there are
//! two: one with masks and in-place reuse, and one without. The first is left out where masks and in-place reuse change
//! nothing. A mask is one bit for each element of a block that a ReLU reads or writes; it is kept for the gradient in
//! place of the block. In-place reuse lets an operator write its output over an input that nobody reads later.
//!
//! The orders are tried one after the other. The *present* order is the one that is being tried.

use super::fitter::Fitter;
use super::lower_bound::{FEW, needed, takes_at_least};
use super::stage::{Stage, Variant};
use super::{Means, Options, strategies};
use crate::rewrite::gaps::Gaps;
use crate::rewrite::means::order::{self, Reordering};
use crate::rewrite::means::recompute::Recomputer;
use crate::rewrite::means::swap::Swapper;
use crate::rewrite::means::{self, Rewritten};
use crate::rewrite::program::Program;
use crate::rewrite::values::Values;
use crate::trace::{Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen};

type Sequence = [Option<Reordering>; 4];

pub(super) const ORDERS: Sequence =
    [None, Some(Reordering::Early), Some(Reordering::LeastLoad), Some(Reordering::Late)];
/// Of the recording's time: where the recorded order takes as much longer, the others come first, and mostly prove it useless.
const SLOW: f64 = 0.01;
/// Of a longer trace a variant more takes too long.
const LATE_ROWS: usize = 1_000;

const PROBES: u32 = 7;
const PROBE: u64 = 16;

/// Blocks smaller than the max load / 2^`LEAST` are not freed for recomputation.
const LEAST: u32 = 14;

pub(super) struct Orders<'s> {
    pub(super) recorded: &'s Recorded<'s>,
    pub(super) options: &'s Options,
    pub(super) rows: &'s mut [Row],
    pub(super) masked: &'s mut [Row],
    pub(super) shared: &'s mut [Row],
}

pub(super) const fn rows(recorded: usize) -> usize {
    recorded + 3 * means::most_rows(recorded)
}

pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks)
        .and(Gaps::workspace(rows, blocks))
        .and(Swapper::workspace(rows, blocks))
        .max(order::workspace(rows, blocks))
        .max(means::workspace(rows, blocks))
}

impl<'s> Orders<'s> {
    pub(super) fn new(recorded: &'s Recorded<'s>, options: &'s Options, out: &'s mut [Row]) -> Self {
        let (rows, out) = out.split_at_mut_checked(recorded.rows.len()).unwrap_or_default();
        let (masked, shared) = out.split_at_mut_checked(means::most_rows(rows.len())).unwrap_or_default();
        Self { recorded, options, rows, masked, shared }
    }

    pub(super) fn each<'a, 'w>(
        &mut self,
        (sequence, most): (Sequence, f64),
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
        then: &mut dyn FnMut(&Variants<'_>, Stage<'a, 'w>, Workspace<'_>) -> Result<Stage<'a, 'w>, Error>,
    ) -> Result<Stage<'a, 'w>, Error> {
        let Self { recorded: original, options, .. } = *self;
        for reordering in sequence {
            if stage.overhead() <= most || stage.stopped() {
                break;
            }
            let made = self.make(reordering, scratch.reborrow(), &mut || stage.kept.watched.stops())?;
            if !made || stage.stopped() {
                continue;
            }
            stage.kept.budget.begin_order(original.rows.len());
            let recorded = &Recorded { rows: &*self.rows, ..*original };
            let (peak, load_min) = loads(recorded, options, scratch.reborrow())?;
            let plain = Rewritten { rows: recorded.rows, shared: recorded.rows, in_place: false };
            let (using, out) = (options.using.on(&options.device), [&mut *self.masked, &mut *self.shared]);
            let rich = means::rewrite(recorded, original, (using, options.alignment), scratch.reborrow(), out)?;
            let rich = (rich.shared != plain.rows).then_some(rich);
            let list = [rich, Some(plain)].map(|trace| trace.map(|trace| Variant { original, trace, reordering }));
            let needed = needed(recorded, &options.in_this_order(), scratch.reborrow())?;
            let variants = Variants { recorded, options, list, peak, load_min, needed };
            stage = then(&variants, stage, scratch.reborrow())?;
        }
        Ok(stage)
    }

    #[expect(clippy::cast_precision_loss, reason = "a time")]
    pub(super) fn sequence(&mut self, mut scratch: Workspace<'_>) -> Result<Sequence, Error> {
        if !self.options.using.has(Means::Order) {
            return Ok(ORDERS);
        }
        self.make(None, scratch.reborrow(), &mut || false)?;
        let recorded = Recorded { rows: &*self.rows, ..*self.recorded };
        let slow = recorded.time_ns() as f64 * SLOW;
        let is_slow = takes_at_least(&recorded, &self.options.in_this_order(), slow, FEW, scratch)?;
        let [first, early, least, late] = ORDERS;
        Ok(if is_slow { [early, least, late, first] } else { ORDERS })
    }

    /// As `needed` of the module `lower_bound`, in any order that is allowed.
    pub(super) fn needed(&mut self, mut scratch: Workspace<'_>) -> Result<u64, Error> {
        self.make(None, scratch.reborrow(), &mut || false)?;
        needed(&Recorded { rows: &*self.rows, ..*self.recorded }, self.options, scratch)
    }

    fn make(
        &mut self,
        reordering: Option<Reordering>,
        scratch: Workspace<'_>,
        stops: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Error> {
        match reordering {
            None => {
                for (row, &r) in self.rows.iter_mut().zip(self.recorded.rows) {
                    *row = r;
                }
            }
            Some(_) if !self.options.using.has(Means::Order) => return Ok(false),
            Some(Reordering::Late) if self.recorded.rows.len() > LATE_ROWS => return Ok(false),
            Some(reordering) => {
                if !order::rewrite(self.recorded, reordering, scratch, self.rows, stops)? {
                    return Ok(false);
                }
            }
        }
        // Sizes are rounded up so that the passes count the bytes that the placement takes.
        for r in &mut *self.rows {
            let bytes = r.bytes.checked_next_multiple_of(self.options.alignment);
            r.bytes = bytes.ok_or(Error::SizeOverflow { block: r.block })?;
        }
        Ok(true)
    }
}

/// The max load, and Zhang et al. 2019's `load_min`: what swaps at the operator of the max load leave.
fn loads(recorded: &Recorded<'_>, options: &Options, mut scratch: Workspace<'_>) -> Result<(u64, u64), Error> {
    let mut scratch = scratch.reborrow();
    let program = Program::new(recorded.rows, recorded.blocks, &mut scratch)?;
    let mut scratch = scratch.reborrow();
    let gaps = Gaps::new(&program, options.swappable(), &mut scratch);
    let mut scratch = scratch.reborrow();
    let mut swapper = Swapper::new(&gaps, &options.device, options.seed, &mut scratch);
    Ok((swapper.peak(), swapper.load_min()))
}

pub(super) struct Variants<'s> {
    recorded: &'s Recorded<'s>,
    options: &'s Options,
    list: [Option<Variant<'s>>; 2],
    pub(super) peak: u64,
    pub(super) load_min: u64,
    needed: u64,
}

impl Variants<'_> {
    pub(super) fn fit<'a, 'w>(
        &self,
        options: &Options,
        most: f64,
        stage: Stage<'a, 'w>,
        scratch: Workspace<'_>,
    ) -> Result<Stage<'a, 'w>, Error> {
        if self.needed > options.limit {
            return Ok(stage);
        }
        self.each(options, most, stage, scratch, &mut |fitter| strategies::fit(fitter, self.peak))
    }

    pub(super) fn each<'a, 'w>(
        &self,
        options: &Options,
        most: f64,
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
        then: &mut dyn FnMut(&mut Fitter<'a, 'w, '_>) -> Result<(), Error>,
    ) -> Result<Stage<'a, 'w>, Error> {
        let &Self { recorded, list, peak, .. } = self;
        for variant in list.into_iter().flatten() {
            let mut scratch = scratch.reborrow();
            let program = Program::new(variant.trace.rows, recorded.numbers(), &mut scratch)?;
            let mut scratch = scratch.reborrow();
            let values = Values::new(recorded, &program, &mut scratch);
            let mut scratch = scratch.reborrow();
            let mut recomputer = Recomputer::new(&values, peak >> LEAST, options.seed, &mut scratch);
            if variant.trace.in_place {
                recomputer.work_in_place();
            }
            stage.begin_variant();
            let mut fitter = Fitter::new(recorded, options, variant, recomputer, scratch, stage);
            then(&mut fitter)?;
            stage = fitter.into_stage();
            if stage.overhead() <= most || stage.stopped() {
                break;
            }
        }
        Ok(stage)
    }

    /// The limit in the options only ends the search, so that a later fit to the result finds the same schedule.
    pub(super) fn least_limit<'a, 'w>(
        &self,
        mut least: u64,
        mut stage: Stage<'a, 'w>,
        mut scratch: Workspace<'_>,
    ) -> Result<(Stage<'a, 'w>, u64), Error> {
        let options = self.options;
        let mut low = (least / 2).max(self.needed.saturating_sub(1));
        for _ in 0..PROBES {
            // The footprint of a schedule for a higher limit may be below a limit that failed: then the search ends.
            let Some(between) = least.checked_sub(low).filter(|&bytes| bytes > 0) else { break };
            let limit = low + between / 2;
            let probe = Options { limit, work: options.work / PROBE, ..*options };
            stage = self.fit(&probe, f64::MAX, stage, scratch.reborrow())?;
            match stage.kept.footprint() {
                None => low = limit,
                // A fit to this footprint probes the same limits, and so finds this schedule again.
                Some(footprint) => {
                    least = footprint;
                    if footprint <= options.limit {
                        break;
                    }
                    stage.kept.clear();
                }
            }
            if stage.stopped() || stage.kept.is_spent() {
                break;
            }
        }
        Ok((stage, least))
    }
}
