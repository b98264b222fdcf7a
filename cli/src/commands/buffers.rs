//! The memory of fits, made once for a trace.

use std::ops::ControlFlow;

use sublet_core::owned::Scratch;
use sublet_core::rewrite::fit::{self, Fitted, Lengths, Options, Output};
use sublet_core::simulate::Timing;
use sublet_core::trace::{Row, liveness::Residency};
use sublet_core::{Block, Error};

use crate::problem::Trace;

/// The memory that a fit is made in.
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
    /// Enough for this trace.
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

    /// Fits the trace.
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
    pub(super) fn fit_watched(
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
}
