//! Traces that are made to fit, and programs from them.

use sublet_core::rewrite::fit::{Means, Options, Using};
use sublet_core::simulate::{Device, Timing};
use sublet_core::trace::liveness::{self, Residency};
use sublet_core::trace::{Operator, Recorded, Row};
use sublet_core::verify::VerifiedSchedule;
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Constraints, Error, Workspace};
use sublet_tests::fitted::Fitter;
use sublet_tests::recording::max_load;

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
        max_load(&self.rows)
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
        self.fit_aligned(using, 1, limit, device, with)
    }

    /// The same, each block at a multiple of `alignment`.
    pub(crate) fn fit_aligned<T>(
        &self,
        using: Using,
        alignment: u64,
        limit: u64,
        device: Device,
        with: impl FnOnce(&VerifiedSchedule<'_>) -> T,
    ) -> Result<T, Error> {
        let usual = Options::new(limit, device);
        let options = Options { least_bytes: 1, alignment, using, work: 200, ..usual };
        Ok(with(&Fitter::new(self.recorded()).fit(&options)?.schedule))
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
        let residencies = liveness::residencies(rewritten);
        let len = verify::schedule_workspace(self.rows.len(), self.blocks, residencies);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        let (mut blocks, mut names) = (vec![Block::default(); residencies], vec![Residency::default(); residencies]);
        let mut timings = vec![Timing::default(); rewritten.len()];
        let verified = verify::schedule(
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
