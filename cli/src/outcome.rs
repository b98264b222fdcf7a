//! The result of a command, as one JSON object or as a few lines for people.

use std::io::{self, Write};

use serde::Serialize;
use sublet_core::VerifiedPlan;

use crate::commands::model::{ModelOutcome, OrderOutcome};
use crate::input::graph::Arranged;
use crate::problem::Problem;
use crate::text::unit::Unit;

/// What is printed of a plan. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome<'a> {
    /// The file that the problem came from.
    pub(crate) input: &'a str,
    /// How many blocks the problem has.
    pub(crate) blocks: usize,
    /// The max load: no plan has a lower peak.
    pub(crate) max_load: u64,
    /// The peak; where no plan fits, that of the best one found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak: Option<u64>,
    /// Peak over max load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
    /// Whether it is proved that no plan has a lower peak; with `--reorder`, in any order of the operators.
    pub(crate) optimal: bool,
    /// The solver; none where a plan was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) solver: Option<&'a str>,
    /// How long placing took, in seconds, or verifying where a plan was given.
    pub(crate) seconds: f64,
    /// Whether there is a plan within the capacity: "found", "none found" or "proved: none fits"; none where no
    /// capacity was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<&'static str>,
    /// Whether the plan satisfies every constraint.
    pub(crate) verified: bool,
    /// How many tensors the plan in a model leaves to the runtime, if there are any: they are in no other figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) left_out: Option<usize>,
    /// Scratch tensors whose place another compiler has decided: they count for the peak, and what lies there with them is
    /// not looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unchecked: Vec<String>,
    /// The kernels that a model's plan relies on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernels: Option<&'static str>,
    /// A lower bound on the peak: where no plan fits, or where a search has looked for a bound above the max load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lower_bound: Option<u64>,
    /// Nodes of the search tree, where there was a search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nodes: Option<u64>,
    /// For a model: what is known besides the plan.
    #[serde(flatten)]
    pub(crate) model: Option<&'a ModelOutcome>,
    /// For a static graph that was arranged anew: how its operators run.
    #[serde(flatten)]
    pub(crate) graph: Option<&'a GraphOutcome>,
    /// Why there is no valid plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<&'a str>,
}

impl<'a> Outcome<'a> {
    /// The result for a verified plan.
    pub(crate) fn of(plan: &VerifiedPlan<'_>, input: &'a str) -> Self {
        Self {
            input,
            blocks: plan.blocks().len(),
            max_load: plan.max_load(),
            peak: Some(plan.peak()),
            ratio: Some(plan.ratio()),
            optimal: plan.is_optimal(),
            solver: None,
            seconds: 0.0,
            answer: None,
            verified: true,
            left_out: None,
            unchecked: Vec::new(),
            kernels: None,
            lower_bound: None,
            nodes: None,
            model: None,
            graph: None,
            error: None,
        }
    }

    /// The result without a valid plan. `peak` is the peak of the best plan found, or of the plan that was given.
    pub(crate) fn refused(problem: &'a Problem, peak: Option<u64>, error: &'a str) -> Self {
        Self {
            input: &problem.name,
            blocks: problem.blocks.len(),
            max_load: problem.max_load(),
            peak,
            ratio: None,
            optimal: false,
            solver: None,
            seconds: 0.0,
            answer: None,
            verified: false,
            left_out: None,
            unchecked: Vec::new(),
            kernels: None,
            lower_bound: None,
            nodes: None,
            model: None,
            graph: None,
            error: Some(error),
        }
    }

    /// Prints the outcome as aligned lines.
    pub(crate) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.peak.unwrap_or(0).max(self.max_load));
        let size = |bytes: u64| format!("{} ({bytes} bytes)", unit.size(bytes));
        writeln!(out, "input     {}", self.input)?;
        writeln!(out, "blocks    {}", self.blocks)?;
        writeln!(out, "max load  {}", size(self.max_load))?;
        if let Some(peak) = self.peak {
            writeln!(out, "peak      {}", size(peak))?;
        }
        if let Some(ratio) = self.ratio {
            let optimal = match self.optimal {
                true if ratio > 1.0 => {
                    " of the max load; optimal: no plan that keeps alignments and pins has a lower peak"
                }
                true => ", optimal",
                false => "",
            };
            writeln!(out, "ratio     {ratio:.6}{optimal}")?;
        }
        if let Some(solver) = self.solver {
            writeln!(out, "solver    {solver}, {:.3} s", self.seconds)?;
        }
        if let (Some(nodes), Some(lower_bound)) = (self.nodes, self.lower_bound) {
            writeln!(out, "search    {nodes} nodes, at least {}", size(lower_bound))?;
        }
        writeln!(out, "verified  {}", if self.verified { "yes" } else { "no" })?;
        if let Some(kernels) = self.kernels {
            writeln!(out, "kernels   {kernels}")?;
        }
        if !self.unchecked.is_empty() {
            let names = self.unchecked.join(", ");
            writeln!(out, "note      another compiler has placed {names}: what lies there too is not looked at")?;
        }
        if let Some(left_out) = self.left_out {
            let tensors = if left_out == 1 { "1 tensor" } else { &format!("{left_out} tensors") };
            writeln!(out, "note      the plan leaves {tensors} to the runtime, not counted here")?;
        }
        if let Some(graph) = self.graph {
            graph.text(unit, out)?;
        }
        self.model.map_or(Ok(()), |model| model.text(out))
    }
}

/// What is printed of a static graph whose operators were reordered, or write over their inputs.
#[derive(Debug, Serialize)]
pub(crate) struct GraphOutcome {
    /// The numbers of the operators in the order in which they run.
    runs: Vec<u32>,
    /// The result of the search for this order, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<OrderOutcome>,
}

impl From<Arranged> for GraphOutcome {
    fn from(Arranged { runs, ordered }: Arranged) -> Self {
        Self { runs, order: ordered.map(OrderOutcome::from) }
    }
}

impl GraphOutcome {
    fn text(&self, unit: Unit, out: &mut impl Write) -> io::Result<()> {
        const SHOWN: usize = 24;
        if let Some(order) = &self.order {
            order.text(unit, out)?;
        }
        let shown: Vec<String> = self.runs.iter().take(SHOWN).map(u32::to_string).collect();
        let rest = if self.runs.len() > SHOWN { " …, all with --json" } else { "" };
        writeln!(out, "runs      {}{rest}", shown.join(" "))
    }
}
