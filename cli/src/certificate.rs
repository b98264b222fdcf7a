//! A certificate: the peak of a plan, and a step at which so many bytes are alive that no plan has a lower peak.
//!
//! Given the input and the plan, anybody can check all of it by addition, but for `searched_lower_bound`.

use std::io::BufReader;

use serde::{Deserialize, Serialize};
use sublet_core::{Block, VerifiedPlan};

use crate::failure::InputError;
use crate::input;
use crate::problem::Problem;

/// What a certificate says of a plan. Sizes in bytes.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    /// The number of blocks of the plan.
    pub(crate) blocks: u64,
    /// Every offset is a multiple of this, and of the block's own alignment.
    pub(crate) alignment: u64,
    /// The highest end of a block.
    pub(crate) peak: u64,
    /// No plan has a lower peak: the bytes that are alive at the witness step.
    pub(crate) lower_bound: u64,
    /// A step with that load, as the input names it; none where there are no blocks.
    pub(crate) witness_step: Option<u64>,
    /// Whether the peak equals the lower bound.
    pub(crate) optimal: bool,
    /// A higher lower bound that a search has proved, if there is one. The certificate does not show why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) searched_lower_bound: Option<u64>,
}

impl Certificate {
    /// The certificate of a plan; `searched` is the lower bound that a search has proved.
    pub(crate) fn of(problem: &Problem, plan: &VerifiedPlan<'_>, alignment: u64, searched: u64) -> Self {
        let (peak, lower_bound) = (plan.peak(), plan.max_load());
        Self {
            blocks: problem.blocks.len() as u64,
            alignment,
            peak,
            lower_bound,
            witness_step: most_crowded(&problem.blocks).map(|step| problem.time(step)),
            optimal: peak == lower_bound,
            searched_lower_bound: Some(searched).filter(|&searched| searched > lower_bound),
        }
    }

    /// Reads a certificate.
    ///
    /// # Errors
    /// Where the file is not a certificate.
    pub(crate) fn read(file: &str) -> Result<Self, InputError> {
        serde_json::from_reader(BufReader::new(input::open(file)?))
            .map_err(|e| InputError::file(file, format!("not a certificate: {e}")))
    }

    /// The first statement of the certificate that is not true of this plan, as a sentence; none if all are true.
    pub(crate) fn refute(&self, problem: &Problem, plan: &VerifiedPlan<'_>) -> Option<String> {
        let at = |step: u64| {
            let alive = |b: &&Block| problem.time(b.start) <= step && step < problem.time(b.end);
            plan.blocks().iter().filter(alive).map(|b| b.size).sum::<u64>()
        };
        let load = self.witness_step.map_or(0, at);
        let step = self.witness_step.map_or_else(|| "no step".into(), |step| format!("step {step}"));
        let facts = [
            ("blocks", self.blocks, plan.blocks().len() as u64),
            ("a peak of", self.peak, plan.peak()),
            (&*format!("{step} as witness of"), self.lower_bound, load),
            ("optimal as", u64::from(self.optimal), u64::from(self.peak == self.lower_bound)),
        ];
        let wrong = facts.into_iter().find(|(_, told, fact)| told != fact);
        wrong.map(|(what, told, fact)| format!("the certificate says {what} {told}, and it is {fact}"))
    }
}

/// The first step at which the most bytes are alive.
fn most_crowded(blocks: &[Block]) -> Option<u32> {
    let begins = blocks.iter().map(|b| (b.start, i128::from(b.size)));
    let ends = blocks.iter().map(|b| (b.end, -i128::from(b.size)));
    // At the same step blocks end before others begin.
    let mut changes: Vec<_> = begins.chain(ends).collect();
    changes.sort_unstable();
    let (mut load, mut most, mut step) = (0, 0, None);
    for (at, change) in changes {
        load += change;
        if load > most {
            (most, step) = (load, Some(at));
        }
    }
    step
}
