//! The workspace and the outputs for fitting one trace, allocated once for many fits.

use std::ops::ControlFlow;

use sublet_core::owned::{self, Scratch};
use sublet_core::rewrite::fit::{self, Fitted, Lengths, Options, Output};
use sublet_core::simulate::Timing;
use sublet_core::trace::{Row, liveness::Residency};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error};

use crate::problem::Trace;

/// A schedule that is kept while others are made.
#[derive(Debug)]
pub(crate) struct Aside {
    rows: Vec<Row>,
    offsets: Vec<u64>,
    original_peak: u64,
    load_min: u64,
}

impl Aside {
    /// A schedule that another planner has made, of which no figures are known.
    pub(crate) const fn of_rows(rows: Vec<Row>, offsets: Vec<u64>) -> Self {
        Self { rows, offsets, original_peak: 0, load_min: 0 }
    }

    /// A schedule of this program's own that was copied out of its buffers.
    pub(crate) fn of_copy(fit: &owned::Fit, load_min: u64) -> Self {
        let (rows, offsets) = (fit.rows.clone(), fit.offsets.clone());
        Self { rows, offsets, original_peak: fit.original_peak, load_min }
    }

    pub(crate) fn of(fitted: &Fitted<'_>) -> Self {
        let Fitted { schedule, original_peak, load_min } = fitted;
        let (rows, offsets) = (schedule.rows().to_vec(), schedule.plan().offsets().to_vec());
        Self { rows, offsets, original_peak: *original_peak, load_min: *load_min }
    }
}

/// The workspace and the outputs for fitting one trace.
#[derive(Debug)]
pub(crate) struct Buffers {
    scratch: Scratch,
    rows: Vec<Row>,
    timings: Vec<Timing>,
    blocks: Vec<Block>,
    names: Vec<Residency>,
    offsets: Vec<u64>,
}

impl Buffers {
    /// Memory that suffices for this trace.
    pub(crate) fn of(trace: &Trace) -> Self {
        let lengths = Lengths::of(&trace.rows, trace.names.len());
        Self {
            scratch: Scratch::of(fit::workspace(trace.rows.len(), trace.names.len(), lengths)),
            rows: vec![Row::default(); lengths.rows],
            timings: vec![Timing::default(); lengths.timings],
            blocks: vec![Block::default(); lengths.residencies],
            names: vec![Residency::default(); lengths.residencies],
            offsets: vec![0; lengths.residencies],
        }
    }

    /// Fits the trace to the limit of `options`.
    ///
    /// # Errors
    /// As [`fit::fit`].
    pub(crate) fn fit(&mut self, trace: &Trace, options: &Options) -> Result<Fitted<'_>, Error> {
        self.fit_watched(trace, options, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Self::fit`], and tells `watch` of progress.
    ///
    /// # Errors
    /// As [`fit::fit_watched`].
    pub(crate) fn fit_watched(
        &mut self,
        trace: &Trace,
        options: &Options,
        watch: fit::Watch<'_>,
    ) -> Result<Fitted<'_>, Error> {
        let output = Output {
            rows: &mut self.rows,
            timings: &mut self.timings,
            blocks: &mut self.blocks,
            names: &mut self.names,
            offsets: &mut self.offsets,
        };
        fit::fit_watched(&trace.recorded(), options, self.scratch.lend(), output, watch)
    }

    /// Verifies a schedule that was kept, or that another planner has made, for the limit of `options`.
    ///
    /// # Errors
    /// As the verifier's, where it is not a schedule of this trace within that limit.
    pub(crate) fn prove(&mut self, trace: &Trace, options: &Options, aside: Aside) -> Result<Fitted<'_>, Error> {
        let Aside { rows, offsets, original_peak, load_min } = aside;
        let (all_rows, all_offsets) = (rows, offsets);
        let (rows, residencies) = (all_rows.len(), all_offsets.len());
        self.rows.splice(..rows.min(self.rows.len()), all_rows);
        self.offsets.splice(..residencies.min(self.offsets.len()), all_offsets);
        let schedule = verify::schedule(
            &trace.recorded(),
            &self.rows[..rows],
            &self.offsets[..residencies],
            (&options.device, true),
            &Constraints { alignment: options.alignment, capacity: Some(options.limit) },
            self.scratch.lend(),
            Room {
                timings: self.timings.get_mut(..rows).unwrap_or_default(),
                blocks: self.blocks.get_mut(..residencies).unwrap_or_default(),
                names: self.names.get_mut(..residencies).unwrap_or_default(),
            },
        )?;
        Ok(Fitted { schedule, original_peak, load_min })
    }
}
