//! For programs that embed the readers, writers and pages of the command line, such as the Python package.

mod fit;

pub use fit::Fit;
use sublet_core::trace::Graph;
use sublet_core::trace::{Operator, Recorded, Row};
use sublet_core::{Block, Constraints, Error, check_blocks, verify};

use crate::commands::compare::Comparison;
use crate::commands::doctor::Diagnosis;
use crate::problem::{BadRow, Problem};
use crate::report::{self, Picture};
use crate::text::size::{self, Limit};
use crate::{input, output};
use sublet_core::owned::Scratch;

/// What a memory snapshot of PyTorch tells: a JSON object, as `sublet doctor --json` prints it, and a page for people.
/// With another snapshot from `before`, also what has changed since then.
///
/// # Errors
/// A sentence that says where the file is not as expected.
pub fn doctor(file: &str, before: Option<&str>) -> Result<(String, String), String> {
    let diagnosis = Diagnosis::since(file, before).map_err(|e| e.to_string())?;
    let json = serde_json::to_string(&diagnosis).map_err(|e| e.to_string())?;
    let mut page = Vec::new();
    diagnosis.write_page(&mut page).map_err(|e| e.to_string())?;
    Ok((json, String::from_utf8_lossy(&page).into_owned()))
}

/// Reads a size such as `8GiB`; returns bytes, rounded down. Where `peak` is given, in bytes, `text` may also be a part
/// of it, such as `60%`.
///
/// # Errors
/// What was expected instead.
///
/// ```
/// assert_eq!((sublet_cli::size("1.5KiB", None)?, sublet_cli::size("60%", Some(1000))?), (1536, 600));
/// # Ok::<(), String>(())
/// ```
pub fn size(text: &str, peak: Option<u64>) -> Result<u64, String> {
    peak.map_or_else(|| size::parse(text), |peak| Limit::parse(text).map(|limit| limit.of(peak)))
}

impl Problem {
    /// Reads a file of any format, and the operators beside it; `-` is standard input.
    ///
    /// # Errors
    /// A sentence that says where the file is not as expected.
    pub fn open(file: &str) -> Result<Self, String> {
        input::read_quietly(file).map_err(|e| e.to_string())
    }

    /// A problem of these blocks, without a trace. `ids` has an id for each block, by which plans and messages call it.
    ///
    /// # Errors
    /// A sentence that names the block that cannot be planned.
    pub fn of_blocks(name: &str, blocks: Vec<Block>, ids: Vec<String>) -> Result<Self, String> {
        if ids.len() != blocks.len() {
            return Err(format!("{} blocks have {} ids", blocks.len(), ids.len()));
        }
        let problem = Self { name: name.into(), blocks, ids, ..Self::default() };
        check_blocks(&problem.blocks, 1).map_err(|e| problem.explain(&e))?;
        Ok(problem)
    }

    /// A problem of one recorded iteration. `names` has the name of each block, by its number. `operators` has the name
    /// of each operator and what it may do, by its number.
    ///
    /// # Errors
    /// A sentence that names the row that cannot follow the rows before it.
    pub fn of_rows(
        name: &str,
        rows: Vec<Row>,
        names: Vec<String>,
        operators: Vec<(String, Operator)>,
    ) -> Result<Self, String> {
        let bad = |BadRow { row, message }| format!("row {row}: {message}");
        let mut problem = Self::of_trace(name, rows, names).map_err(bad)?;
        if let Some(trace) = &mut problem.trace {
            trace.tells_rerun = !operators.is_empty();
            (trace.op_names, trace.operators) = operators.into_iter().unzip();
        }
        Ok(problem)
    }

    /// A problem of a static graph. `names` has the name of each tensor, by its number; `operators` is as in
    /// [`of_rows`](Self::of_rows).
    ///
    /// # Errors
    /// A sentence that names the tensor or the operator that is wrong.
    pub fn of_graph(
        name: &str,
        graph: &Graph<'_>,
        mut names: Vec<String>,
        operators: Vec<(String, Operator)>,
    ) -> Result<Self, String> {
        if names.len() != graph.tensors.len() {
            return Err(format!("{} tensors have {} names", graph.tensors.len(), names.len()));
        }
        let (mut op_names, mut known) = operators.into_iter().unzip();
        let rows = input::graph::rows(graph, &mut op_names, &mut known).map_err(|e| e.to_string())?;
        let scratch = graph.nodes.iter().enumerate().filter(|(_, node)| node.workspace > 0);
        names.extend(scratch.map(|(op, _)| format!("workspace {op}")));
        Self::of_rows(name, rows, names, op_names.into_iter().zip(known).collect())
    }

    /// The id of each block, by which plans and messages call it.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// The iteration as it was recorded; none where only lifetimes are known.
    #[must_use]
    pub fn recorded(&self) -> Option<Recorded<'_>> {
        self.trace.as_ref().map(|trace| trace.recorded())
    }

    /// The names of the trace's blocks, by their numbers; empty where there is no trace.
    #[must_use]
    pub fn names(&self) -> &[String] {
        self.trace.as_ref().map_or(&[], |trace| &trace.names)
    }

    /// An error of core, with the blocks' ids in place of their numbers.
    #[must_use]
    pub fn message(&self, error: &Error) -> String {
        self.explain(error)
    }

    /// The peaks of all solvers, and of the allocators in use today, on these blocks: the JSON object that `sublet
    /// compare --json` prints.
    ///
    /// # Errors
    /// A sentence that names the block that cannot be planned.
    pub fn compare(&self) -> Result<String, String> {
        let comparison = Comparison::of(self).map_err(|e| self.explain(&e))?;
        serde_json::to_string(&comparison).map_err(|e| e.to_string())
    }

    /// The memory map of a plan as a page of HTML. `offsets` are in bytes, one for each block; `solver` is the name of
    /// the solver, which the page shows.
    ///
    /// # Errors
    /// The constraint that the plan breaks.
    pub fn page(&self, offsets: &[u64], solver: &str) -> Result<String, String> {
        let mut page = Vec::new();
        self.with_plan(offsets, solver, |picture| report::html(picture, &mut page).map_err(|e| e.to_string()))?;
        String::from_utf8(page).map_err(|e| e.to_string())
    }

    /// Writes a plan: `.html` and `.svg` are pictures of it, other names its rows.
    ///
    /// # Errors
    /// The constraint that the plan breaks, a picture of a kind that is not made, or why the file cannot be written.
    pub fn save(&self, file: &str, offsets: &[u64], solver: &str) -> Result<(), String> {
        let is_picture = output::is_picture(file)?;
        self.with_plan(offsets, solver, |picture| {
            if is_picture {
                output::write(file, |out| report::write(file, picture, out))
            } else {
                output::write(file, |out| output::plan(self, picture.plan, out))
            }
            .map_err(|e| e.to_string())
        })
    }

    fn with_plan(
        &self,
        offsets: &[u64],
        solver: &str,
        then: impl FnOnce(&Picture<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut scratch = Scratch::of(verify::workspace(self.blocks.len()));
        let plan =
            verify::verify(&self.blocks, offsets, &Constraints::NONE, scratch.lend()).map_err(|e| self.explain(&e))?;
        then(&Picture { problem: self, plan: &plan, solver, optimal: plan.is_optimal(), rows: Vec::new(), run: None })
    }
}
