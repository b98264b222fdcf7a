//! Fits in memory of their own, for tests and benches that make many.

use sublet_core::rewrite::fit::{self, Fitted, Lengths, Options, Output};
use sublet_core::simulate::Timing;
use sublet_core::trace::liveness::Residency;
use sublet_core::trace::{Recorded, Row};
use sublet_core::{Block, Error, Workspace};

/// The memory in which fits of one recording are made, one after the other.
#[derive(Debug)]
pub struct Fitter<'a> {
    recorded: Recorded<'a>,
    words: Vec<u64>,
    indices: Vec<u32>,
    rows: Vec<Row>,
    timings: Vec<Timing>,
    blocks: Vec<Block>,
    names: Vec<Residency>,
    offsets: Vec<u64>,
}

impl<'a> Fitter<'a> {
    /// Memory that suffices for all fits of this recording.
    #[must_use]
    pub fn new(recorded: Recorded<'a>) -> Self {
        let lengths = Lengths::of(recorded.rows, recorded.blocks);
        let len = fit::workspace(recorded.rows.len(), recorded.blocks, lengths);
        Self {
            recorded,
            words: vec![0; len.words],
            indices: vec![0; len.indices],
            rows: vec![Row::default(); lengths.rows],
            timings: vec![Timing::default(); lengths.timings],
            blocks: vec![Block::default(); lengths.residencies],
            names: vec![Residency::default(); lengths.residencies],
            offsets: vec![0; lengths.residencies],
        }
    }

    /// Makes a fit, which lies in this memory until the next one.
    ///
    /// # Errors
    /// Those of [`fit::fit`].
    ///
    /// # Panics
    /// If the footprint of the result is above the limit, or its load above the footprint.
    pub fn fit(&mut self, options: &Options) -> Result<Fitted<'_>, Error> {
        let output = Output {
            rows: &mut self.rows,
            timings: &mut self.timings,
            blocks: &mut self.blocks,
            names: &mut self.names,
            offsets: &mut self.offsets,
        };
        let scratch = Workspace::new(&mut self.words, &mut self.indices);
        let fitted = fit::fit(&self.recorded, options, scratch, output)?;
        let (load, footprint) = (fitted.schedule.run().peak_load, fitted.schedule.plan().peak());
        assert!(load <= footprint && footprint <= options.limit, "{load}, {footprint} of {}", options.limit);
        Ok(fitted)
    }
}
