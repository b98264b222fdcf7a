//! Fits with memory of their own, for tests and benches that ask for many.

use sublet_core::rewrite::fit::{self, Lengths, Options, Output};
use sublet_core::simulate::Timing;
use sublet_core::trace::liveness::Stay;
use sublet_core::trace::{Recorded, Row};
use sublet_core::{Block, Error, Workspace};

/// What a fit comes to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    /// The most bytes of the arena that are in use.
    pub footprint: u64,
    /// The most bytes of blocks that are live at once.
    pub load: u64,
    /// What it takes longer than the original, as a fraction of it.
    pub overhead: f64,
}

/// The memory that fits of one recording are made in.
#[derive(Debug)]
pub struct Fitter<'a> {
    recorded: Recorded<'a>,
    words: Vec<u64>,
    indices: Vec<u32>,
    rows: Vec<Row>,
    timings: Vec<Timing>,
    blocks: Vec<Block>,
    names: Vec<Stay>,
    offsets: Vec<u64>,
}

impl<'a> Fitter<'a> {
    /// Enough for whatever becomes of this recording.
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
            blocks: vec![Block::default(); lengths.stays],
            names: vec![Stay::default(); lengths.stays],
            offsets: vec![0; lengths.stays],
        }
    }

    /// A fit, or none where the limit cannot be kept.
    ///
    /// # Panics
    /// If the recording or the device is refused.
    pub fn fit(&mut self, options: &Options) -> Option<Fit> {
        let output = Output {
            rows: &mut self.rows,
            timings: &mut self.timings,
            blocks: &mut self.blocks,
            names: &mut self.names,
            offsets: &mut self.offsets,
        };
        let scratch = Workspace::new(&mut self.words, &mut self.indices);
        match fit::fit(&self.recorded, options, scratch, output) {
            Ok(fitted) => {
                let run = fitted.schedule.run();
                let footprint = fitted.schedule.plan().peak();
                assert!(footprint <= options.limit && run.peak_load <= footprint, "{footprint} of {}", options.limit);
                Some(Fit { footprint, load: run.peak_load, overhead: run.overhead() })
            }
            Err(Error::OverLimit { .. }) => None,
            Err(e) => panic!("{e}"),
        }
    }
}
