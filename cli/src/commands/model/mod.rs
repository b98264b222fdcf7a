//! `sublet plan` for a model: the peak of the runtime's own planner, a plan by the means that are asked for, and what
//! each means would save.

pub(crate) mod args;

use indicatif::ProgressBar;
use serde::Serialize;
use std::io::{self, Write};
use std::rc::Rc;
use sublet_baselines::pools::tflm::{self, Buffer};
use sublet_core::owned;
use sublet_core::trace::order::Ordered;
use sublet_core::{Constraints, VerifiedPlan, verify};

use crate::args::PlanArgs;
use crate::failure::{Failure, InputError};
use crate::model::arena::{self, Host};
use crate::model::kernels::Kernels;
use crate::model::plan::{self, PlanError, Planned, Plans, Request};
use crate::model::schedule::{Schedule, in_file_order};
use crate::model::scratch::Scratch;
use crate::model::{Means, Model, kernels, scratch};
use crate::output::{self, Layout, Memory};
use crate::problem::Problem;
use crate::text::progress;
use crate::text::unit::Unit;

/// What `plan` prints of a model. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct ModelOutcome {
    /// The bytes that TFLM's own planner takes, with the operators in the order of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    tflm_greedy: Option<u64>,
    /// The bytes that TFLM takes with this plan: TFLM itself places the scratch of kernels, beside the plan's tensors.
    #[serde(skip_serializing_if = "Option::is_none")]
    tflm_head: Option<u64>,
    /// Whether the plan is the one that the file holds.
    kept: bool,
    /// The whole arena of TFLM on 32 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    arena: Option<ArenaOutcome>,
    /// The same where enums are as short as their values allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_short_enums: Option<ArenaOutcome>,
    /// The whole arena of TFLM's Python package, on 64 bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_64: Option<ArenaOutcome>,
    /// The kind of operator because of which the whole arena is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    arena_unknown: Option<String>,
    /// The kinds of operators that TFLM has no kernel for: it does not run the model.
    lacking: Vec<String>,
    /// Whether no plan is written into the model, since TFLM's own planner needs less.
    left_to_tflm: bool,
    /// The result of the search for an order, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<OrderOutcome>,
    /// The peaks by other combinations of means.
    means: Vec<MeansOutcome>,
    /// Kinds of operators whose kernels may ask for scratch; empty where an option tells how much they ask for.
    may_ask: Vec<String>,
    /// The tensors of which the model leaves a dimension open.
    open_shapes: Vec<String>,
    /// The graphs that are not run by the first: their tensors have no place in the plan.
    unplanned_graphs: Vec<usize>,
    /// The kinds of operators that have graphs inside of them, or are functions that the file defines. The tensors of
    /// these graphs have no place in the plan.
    inner_graphs: Vec<String>,
}

/// The least `kTensorArenaSize` that runs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct ArenaOutcome {
    /// With TFLM's own planner.
    unplanned: u64,
    /// With the model that is written.
    planned: u64,
}

/// The result of the search for an order. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct OrderOutcome {
    /// The max load in the order of the file.
    file: u64,
    /// The max load in the best order that was found.
    found: u64,
    /// A lower bound on the max load of every order.
    lower_bound: u64,
    /// How many sets of operators the search has looked at.
    states: u32,
}

#[derive(Debug, Serialize)]
struct MeansOutcome {
    options: String,
    peak: u64,
    lower_bound: u64,
}

/// The combinations of means whose peaks are printed after the plan's, each with the options that ask for it: for these
/// kernels, and where they allow the least also for the ones that allow the most.
fn choices(kernels: Kernels) -> Vec<(String, Means)> {
    let mut choices = vec![
        ("--in-place".into(), Means { in_place: true, ..Means::default() }),
        ("--reorder".into(), Means { reorder: true, ..Means::default() }),
        ("--reorder --in-place".into(), Means { reorder: true, in_place: true, overlap: None }),
    ];
    let mut all: Vec<Kernels> = vec![kernels, Kernels::Reference];
    all.dedup();
    for kernels in all {
        let options = match kernels {
            Kernels::Portable => "--reorder --in-place --overlap".into(),
            kernels => format!("--reorder --in-place --overlap {}", kernels.name()),
        };
        choices.push((options, Means { reorder: true, in_place: true, overlap: Some(kernels) }));
    }
    choices
}

/// The plan that the model's file holds, if it is to be kept.
///
/// # Errors
/// A model that cannot run.
pub(super) fn kept(args: &PlanArgs, model: &Model) -> Result<Option<Planned>, InputError> {
    let plan = model.plan.as_deref().filter(|_| !args.model.replace_plan);
    plan.map(|plan| plan::kept(&args.input, model, plan)).transpose()
}

/// The plan for one memory by the means that are asked for, for the blocks that are placed in several.
///
/// # Errors
/// A model that cannot run.
pub(super) fn for_banks(args: &PlanArgs, model: &Model) -> Result<Planned, Failure> {
    if kernels::compiled(model).next().is_some() {
        let message = "another compiler has placed tensors of this model in one memory; it has no plan for several";
        return Err(Failure::Usage(format!("{}: {message}", args.input)));
    }
    let mut plans = plans(args, model, &[]);
    let best = progress::during("placing", |bar| plans.best(args.model.means(), bar))?;
    drop(plans);
    Rc::into_inner(best.planned).ok_or_else(|| Failure::Usage("the plan is used twice, please report it".into()))
}

/// Verifies a plan that the file holds.
///
/// # Errors
/// The first constraint that it breaks.
pub(super) fn verified_kept<'a>(
    args: &PlanArgs,
    problem: &'a Problem,
    offsets: &'a [u64],
    constraints: &Constraints,
) -> Result<VerifiedPlan<'a>, Failure> {
    let mut scratch =
        owned::Scratch::of(verify::workspace(offsets.len()).max(verify::overlap_workspace(offsets.len())));
    problem.verified(offsets, constraints, &mut scratch).map_err(|e| {
        let why = problem.explain(&e);
        Failure::No(format!("{}: the plan in the file is invalid: {why}; --replace-plan makes another one", args.input))
    })
}

/// The plans of a model, as the arguments ask for them.
pub(crate) fn plans<'a>(args: &'a PlanArgs, model: &'a Model, scratch: &'a [(u32, u64)]) -> Plans<'a> {
    let request = Request {
        name: &args.input,
        scratch,
        constraints: constraints(args, model),
        solve: &args.solve,
        keeps_compiled: true,
    };
    Plans::new(model, request)
}

/// Refuses a plan written into an .onnx, which can hold an order alone, and for such a model the options that only a
/// model for TFLM can have.
pub(super) fn check(args: &PlanArgs, model: &Model) -> Result<(), Failure> {
    let into_model = args.output.as_deref().is_some_and(is_model);
    if let Some(file) = args.output.as_ref().filter(|file| is_ordered(file) && (model.for_tflm || !args.model.reorder))
    {
        let message =
            "an .onnx holds no plan, but the order of an ONNX model's operators: give --reorder, or name a .csv";
        return Err(Failure::Usage(format!("{file}: {message}")));
    }
    if !model.for_tflm && (into_model || args.model.overlap.is_some() || args.model.tflm_log.is_some()) {
        let message = "only a .tflite holds a plan, and only kernels of TFLM are known for --overlap and --tflm-log";
        return Err(Failure::Usage(format!("{}: {message}", args.input)));
    }
    Ok(())
}

/// The constraints of the options, with the alignment of the runtime.
pub(super) fn constraints(args: &PlanArgs, model: &Model) -> Constraints {
    let given = args.constraints.get();
    Constraints { alignment: given.alignment.max(model.alignment), ..given }
}

/// The scratch of kernels: operators, and the bytes that each asks for. The options tell it, or else for TFLM what is
/// known of its kernels.
pub(crate) fn scratch(args: &PlanArgs, model: &Model) -> Result<Scratch, Failure> {
    let known = match (&args.model.tflm_log, &args.model.workspace) {
        (Some(file), _) => crate::input::scratch::of_log(file, model)?,
        (_, Some(file)) => crate::input::scratch::of_table(file, model)?,
        _ if model.for_tflm => return Ok(scratch::of_model(model, args.model.kernels())),
        _ => Vec::new(),
    };
    Ok(Scratch { known, may_ask: Vec::new() })
}

impl From<Ordered> for OrderOutcome {
    fn from(o: Ordered) -> Self {
        Self { file: o.given, found: o.max_load, lower_bound: o.lower_bound, states: o.states }
    }
}

impl OrderOutcome {
    pub(crate) fn text(&self, unit: Unit, out: &mut impl Write) -> io::Result<()> {
        let size = |bytes: u64| format!("{} ({bytes} bytes)", unit.size(bytes));
        let proved = if self.found == self.lower_bound {
            "proved least".into()
        } else {
            format!("at least {}", size(self.lower_bound))
        };
        let (found, file) = (size(self.found), size(self.file));
        writeln!(out, "order     max load {found} in place of {file}, {proved}, {} states", self.states)
    }
}

impl ModelOutcome {
    /// The results of the plan and of other combinations of means.
    pub(crate) fn of(
        args: &PlanArgs,
        model: &Model,
        Scratch { known: scratch, may_ask }: &Scratch,
        mut plans: Option<&mut Plans<'_>>,
        planned: &Planned,
    ) -> Self {
        let own = args.model.means();
        let kept = plans.is_none();
        if let Some(plans) = &mut plans {
            plans.lift_capacity();
        }
        let mut means = Vec::new();
        for (options, choice) in choices(args.model.kernels()) {
            let Some(plans) = plans.as_mut().filter(|plans| !plans.is_over()) else { break };
            if choice == own || !model.for_tflm && choice.overlap.is_some() {
                continue;
            }
            if let Ok(best) = plans.best(choice, &ProgressBar::hidden()) {
                means.push(MeansOutcome { options, peak: best.peak(), lower_bound: best.lower_bound });
            }
        }
        let unplanned =
            in_file_order(model, scratch).map_or_else(|_| Vec::new(), |schedule| buffers(model, &schedule, None));
        let order = planned.ordered.map(OrderOutcome::from);
        let greedy = tflm::head(&unplanned);
        let head = tflm::head(&buffers(model, &planned.schedule, Some(&planned.offsets)));
        let host = |host| -> Result<ArenaOutcome, String> {
            let bytes = |head| arena::least(model, head, scratch, host);
            Ok(ArenaOutcome { unplanned: bytes(greedy)?, planned: bytes(head.min(greedy))? })
        };
        let arenas = [Host::Firmware, Host::ShortEnums, Host::Python].map(host);
        let arena_unknown = arenas.iter().find_map(|arena| arena.clone().err()).filter(|_| model.for_tflm);
        let [arena, arena_short_enums, arena_64] = arenas.map(|arena| arena.ok().filter(|_| model.for_tflm));
        Self {
            tflm_greedy: (model.for_tflm && kernels::compiled(model).next().is_none()).then_some(greedy),
            tflm_head: model.for_tflm.then_some(head),
            arena,
            arena_short_enums,
            arena_64,
            arena_unknown,
            lacking: if model.for_tflm { arena::lacking(model) } else { Vec::new() },
            left_to_tflm: model.for_tflm && !kept && is_left_to_tflm(model, scratch, planned),
            kept,
            order,
            means,
            may_ask: may_ask.clone(),
            inner_graphs: model.inner.clone(),
            open_shapes: model.tensors.iter().filter(|t| t.open).map(|t| t.name.clone()).collect(),
            unplanned_graphs: (0..)
                .zip(model.is_run())
                .filter(|&(_, is_run)| !is_run)
                .map(|(graph, _)| graph)
                .collect(),
        }
    }

    /// Prints the outcome as aligned lines.
    pub(crate) fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.means.iter().map(|row| row.peak).max().unwrap_or(0));
        let size = |bytes: u64| format!("{} ({bytes} bytes)", unit.size(bytes));
        writeln!(out)?;
        if let Some(head) = self.tflm_head {
            let greedy =
                self.tflm_greedy.map_or(String::new(), |greedy| format!("{} by its own planner, ", size(greedy)));
            writeln!(out, "TFLM      {greedy}{} with this plan", size(head))?;
        }
        let short = self.arena_short_enums.filter(|&short| Some(short) != self.arena);
        for (arena, by) in [(self.arena, ""), (short, " with short enums, as by GCC for Cortex-M")] {
            let Some(ArenaOutcome { unplanned, planned }) = arena else { continue };
            let more = if self.may_ask.is_empty() { "" } else { ", and what kernels ask for" };
            writeln!(out, "arena     kTensorArenaSize {planned}{more}; {unplanned} without a plan; on 32 bits{by}")?;
        }
        if let Some(kind) = &self.arena_unknown {
            writeln!(out, "arena     not known: nobody has looked at what the kernel of {kind} keeps")?;
        }
        if !self.lacking.is_empty() {
            writeln!(out, "note      TFLM does not run this model: it has no kernel for {}", self.lacking.join(", "))?;
        }
        if self.left_to_tflm {
            writeln!(out, "note      TFLM's own planner needs less than this plan: a model is written without a plan")?;
        }
        if self.kept {
            writeln!(out, "note      this is the plan that the file holds; --replace-plan makes another one")?;
        }
        if let Some(order) = &self.order {
            order.text(unit, out)?;
        }
        for row in &self.means {
            writeln!(out, "{:<42}{}", row.options, size(row.peak))?;
        }
        if !self.may_ask.is_empty() {
            writeln!(
                out,
                "note      kernels of {} may ask for memory at run time, which is not counted here; --tflm-log or \
                 --workspace tells how much",
                self.may_ask.join(", ")
            )?;
        }
        if let [first, more @ ..] = self.open_shapes.as_slice() {
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            writeln!(
                out,
                "note      the model leaves the shape of {first}{more} open; the plan is for the shapes in the file, and \
                 not valid for others"
            )?;
        }
        if !self.inner_graphs.is_empty() {
            let kinds = self.inner_graphs.join(", ");
            writeln!(
                out,
                "note      what the graphs inside of {kinds} need beside their inputs and outputs is not counted"
            )?;
        }
        for graph in &self.unplanned_graphs {
            writeln!(out, "note      graph {graph} is not run by graph 0: its tensors have no place in this plan")?;
        }
        Ok(())
    }
}

/// The buffers of a model in the order in which TFLM's planner gets them: tensors, then the scratch of kernels.
/// `offsets` are those of a plan, one for each tensor; TFLM places what has none, or a negative one.
pub(crate) fn buffers(model: &Model, schedule: &Schedule, offsets: Option<&[i32]>) -> Vec<Buffer> {
    let told = |tensor: u32| offsets.and_then(|offsets| u64::try_from(*offsets.get(tensor as usize)?).ok());
    let tensors = schedule.placed_by_tflm(model);
    let tensors = tensors.map(|(tensor, life)| Buffer { bytes: model.bytes(tensor), life, offset: told(tensor) });
    let scratch = schedule.scratch.iter();
    let scratch = scratch.map(|&(life, bytes)| Buffer { bytes, life: life.map(i64::from), offset: None });
    tensors.chain(scratch).collect()
}

/// Writes the files that only models have: the model with the plan, made of the `bytes` of its file, and a C header
/// with the offsets. Refuses a plan for which their offsets are too small, before it writes any of them.
pub(crate) fn write(
    args: &PlanArgs,
    (model, bytes): (&Model, &[u8]),
    scratch: &[(u32, u64)],
    planned: &Planned,
) -> Result<(), Failure> {
    let into_model = args.output.as_ref().filter(|file| is_model(file));
    let holders = [(into_model, "model"), (args.model.header.as_ref(), "header")];
    let peak = planned.solved.summary.peak.max(planned.scratch_end);
    if let Some((_, what)) = holders.iter().find(|(file, _)| file.is_some() && i32::try_from(peak).is_err()) {
        let message = format!("the arena has {peak} bytes; a {what} holds plans below 2 GiB");
        return Err(Failure::Input(InputError::file(&args.input, message)));
    }
    if let Some(file) = into_model {
        let first = u32::try_from(model.graphs[0].operators.start).unwrap_or(0);
        let order: Vec<u32> = planned.order.iter().map(|&k| k - first).collect();
        let spliced = if planned.is_of_file || is_left_to_tflm(model, scratch, planned) {
            bytes.to_vec()
        } else {
            output::splice(&args.input, bytes, &order, &planned.offsets, planned.kernels.name())?
        };
        output::write(file, |out| out.write_all(&spliced))?;
    }
    if let Some(file) = args.output.as_ref().filter(|file| is_ordered(file)) {
        let order: Vec<u32> = planned.order.iter().map(|&k| model.operators[k as usize].number).collect();
        let reordered = output::reorder(&args.input, bytes, &order)?;
        output::write(file, |out| out.write_all(&reordered))?;
    }
    if let Some(file) = &args.model.header {
        let memory = Memory { name: None, bytes: peak, alignment: constraints(args, model).alignment };
        let place = |&offset: &i32| (offset >= 0).then_some((0, offset));
        let layout = Layout {
            prefix: &args.model.prefix,
            kernels: planned.kernels.name(),
            memories: vec![memory],
            places: planned.offsets.iter().map(place).collect(),
            order: &planned.order,
        };
        output::write(file, |out| output::header(model, &layout, out))?;
    }
    Ok(())
}

/// Whether an order of operators is to be written into a model that holds no plan.
pub(crate) fn is_ordered(file: &str) -> bool {
    output::ends_in(file, "onnx")
}

/// Whether TFLM's own planner needs less than it does with this plan, around which it places the scratch of kernels.
fn is_left_to_tflm(model: &Model, scratch: &[(u32, u64)], planned: &Planned) -> bool {
    let unplanned = in_file_order(model, scratch).map_or(u64::MAX, |own| tflm::head(&buffers(model, &own, None)));
    let is_free = kernels::compiled(model).next().is_none();
    is_free && tflm::head(&buffers(model, &planned.schedule, Some(&planned.offsets))) > unplanned
}

/// Whether a plan is to be written into a model.
pub(crate) fn is_model(file: &str) -> bool {
    output::ends_in(file, "tflite")
}

impl From<PlanError> for Failure {
    fn from(e: PlanError) -> Self {
        match e {
            PlanError::Input(e) => Self::Input(e),
            PlanError::Place(problem, e) => Self::Input(InputError::file(&problem.name, problem.explain(&e))),
        }
    }
}
