//! Traces that are made to fit, and programs from them.

use sublet_core::rewrite::fit::{self, Lengths, Means, Options, Output, Using};
use sublet_core::rewrite::swap::Policy;
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::{self, Stay};
use sublet_core::trace::{Event, Operator, Recorded, Row};
use sublet_core::verify::VerifiedSchedule;
use sublet_core::verify::schedule::{self, Room};
use sublet_core::{Block, Constraints, Error, Workspace};

/// A recorded iteration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    pub(crate) rows: Vec<Row>,
    pub(crate) operators: Vec<Operator>,
    pub(crate) blocks: usize,
}

impl Trace {
    pub(crate) fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: &self.rows, operators: &self.operators, blocks: self.blocks }
    }

    /// The most bytes that are alive at once.
    pub(crate) fn peak(&self) -> u64 {
        let (mut load, mut peak) = (0, 0);
        let mut sizes = vec![0; self.blocks];
        for r in &self.rows {
            match r.event {
                Event::Malloc => {
                    sizes[r.block as usize] = r.bytes;
                    load += r.bytes;
                }
                Event::Free => load -= sizes[r.block as usize],
                _ => {}
            }
            peak = peak.max(load);
        }
        peak
    }

    /// Makes it fit by swapping, and hands what was verified to `with`.
    pub(crate) fn fit<T>(
        &self,
        limit: u64,
        device: Device,
        with: impl FnOnce(&VerifiedSchedule<'_>) -> T,
    ) -> Result<T, Error> {
        self.fit_using(Using::NONE.with(Means::Swap), limit, device, with)
    }

    /// Makes it fit by these means.
    pub(crate) fn fit_using<T>(
        &self,
        using: Using,
        limit: u64,
        device: Device,
        with: impl FnOnce(&VerifiedSchedule<'_>) -> T,
    ) -> Result<T, Error> {
        let lengths = Lengths::of(&self.rows, self.blocks);
        let len = fit::workspace(self.rows.len(), self.blocks, lengths);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let output = Output {
            rows: &mut vec![Row::default(); lengths.rows],
            timings: &mut vec![Timing::default(); lengths.timings],
            blocks: &mut vec![Block::default(); lengths.stays],
            names: &mut vec![Stay::default(); lengths.stays],
            offsets: &mut vec![0; lengths.stays],
        };
        let options =
            Options { policy: Policy::Swdoa, least_bytes: 1, using, work: 200, ..Options::new(limit, device) };
        let fitted = fit::fit(&self.recorded(), &options, Workspace::new(&mut words, &mut indices), output)?;
        Ok(with(&fitted.schedule))
    }
}

impl Trace {
    /// What the verifier makes of a rewritten trace and its offsets.
    pub(crate) fn verified<T>(
        &self,
        rewritten: &[Row],
        offsets: &[u64],
        with: impl FnOnce(&VerifiedSchedule<'_>) -> T,
    ) -> Result<T, Error> {
        let stays = liveness::stays(rewritten);
        let len = schedule::workspace(self.rows.len(), self.blocks, stays);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let (mut blocks, mut names) = (vec![Block::default(); stays], vec![Stay::default(); stays]);
        let mut timings = vec![Timing::default(); rewritten.len()];
        let verified = schedule::schedule(
            &self.recorded(),
            rewritten,
            offsets,
            (&Device::symmetric(12e9), true),
            &Constraints::NONE,
            Workspace::new(&mut words, &mut indices),
            Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
        )?;
        Ok(with(&verified))
    }
}
