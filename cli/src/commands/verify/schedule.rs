//! `sublet verify --rewritten`: whether a rewritten trace computes what the original computes, within its plan.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sublet_core::RowFault;
use sublet_core::simulate::{Run, Timing};
use sublet_core::trace::{Row, liveness::Residency};
use sublet_core::verify::{self, Room};
use sublet_core::{Block, Error};

use crate::args::VerifyArgs;
use crate::commands::fit;
use crate::failure::{Failure, InputError};
use crate::problem::Problem;
use crate::{device, input, output};
use sublet_core::owned::Scratch;

/// What `verify` prints. Sizes in bytes.
#[derive(Debug, Default, Serialize)]
struct Verdict<'a> {
    verified: bool,
    /// The device whose links were simulated.
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    footprint: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_load: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    swapped_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recomputed_ns: Option<u64>,
}

/// Verifies and prints.
///
/// # Errors
/// The first rule that the trace or the plan breaks, or a file that cannot be read.
pub(super) fn run(args: &VerifyArgs, file: &str) -> Result<(), Failure> {
    let mut original = input::read(&args.input)?;
    if !args.reorder
        && let Some(trace) = &mut original.trace
    {
        trace.keep_order();
    }
    let rewritten = input::read(file)?;
    let file = args.plan.as_deref().ok_or_else(|| Failure::Usage("which plan? --rewritten needs one".into()))?;
    let offsets = input::plan::read(file, &rewritten).map_err(|e| told(args, e))?;
    let (run, footprint) = judge(args, &original, &rewritten, &offsets).map_err(|e| told(args, e))?;
    let verdict = Verdict::of(&args.device, &run, footprint);
    output::print(&verdict, args.json, &[], |out| verdict.text(out))
}

/// Returns `failure`. With `--json`, a failure that says that the plan is invalid is printed first.
fn told(args: &VerifyArgs, failure: Failure) -> Failure {
    if args.json
        && let Failure::No(message) = &failure
    {
        let verdict = Verdict { error: Some(message.clone()), device: &args.device, ..Verdict::default() };
        if let Err(e) = output::json(&verdict, &mut io::stdout().lock()) {
            return Failure::printing(&e);
        }
    }
    failure
}

/// The run and the footprint of a rewritten trace that is valid.
fn judge(args: &VerifyArgs, original: &Problem, rewritten: &Problem, offsets: &[u64]) -> Result<(Run, u64), Failure> {
    let device = device::named(&args.device)?;
    let (from, to) = (fit::recorded(original)?, fit::recorded(rewritten)?);
    let blocks = u32::try_from(from.names.len()).unwrap_or(u32::MAX);
    let numbers: HashMap<&str, u32> = (0..).zip(&from.names).map(|(i, name)| (name.as_str(), i)).collect();
    // `B~` is the mask of block B, unless there is a block of that name.
    let mask = |name: &str| blocks.checked_add(*numbers.get(name.strip_suffix('~')?)?);
    let number = |name: &str| numbers.get(name).copied().or_else(|| mask(name));
    let rows: Option<Vec<Row>> =
        to.rows.iter().map(|row| Some(Row { block: number(&to.names[row.block as usize])?, ..*row })).collect();
    let rows = rows.ok_or_else(|| Failure::No("it has a block that the original does not have".into()))?;
    let (mut timings, mut blocks) = (vec![Timing::default(); rows.len()], vec![Block::default(); offsets.len()]);
    let mut names = vec![Residency::default(); offsets.len()];
    let mut scratch = Scratch::of(verify::schedule_workspace(from.rows.len(), from.names.len(), offsets.len()));
    let verified = verify::schedule(
        &from.recorded(),
        &rows,
        offsets,
        (&device, true),
        &args.constraints.get(),
        scratch.lend(),
        Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
    );
    match verified {
        Ok(verified) => Ok((*verified.run(), verified.plan().peak())),
        Err(e @ (Error::Row { .. } | Error::Invalid(_) | Error::HostTooSmall { .. })) => {
            let moved = matches!(e, Error::Row { fault: RowFault::OtherAccess, .. }) && !args.reorder;
            let hint = if moved { "; where operators may have moved: --reorder" } else { "" };
            Err(Failure::No(format!("{}: {}{hint}", rewritten.name, rewritten.explain(&e))))
        }
        Err(e) => Err(InputError::file(&args.input, original.explain(&e)).into()),
    }
}

impl<'a> Verdict<'a> {
    fn of(device: &'a str, run: &Run, footprint: u64) -> Self {
        Self {
            verified: true,
            device,
            error: None,
            footprint: Some(footprint),
            peak_load: Some(run.peak_load),
            time_ns: Some(run.time_ns),
            overhead: Some(run.overhead()),
            swapped_bytes: Some(run.swapped_bytes),
            recomputed_ns: Some(run.recomputed_ns),
        }
    }

    fn text(&self, out: &mut impl Write) -> io::Result<()> {
        for (name, bytes) in
            [("footprint", self.footprint), ("peak load", self.peak_load), ("swapped", self.swapped_bytes)]
        {
            writeln!(out, "{name:<9} {} bytes", bytes.unwrap_or(0))?;
        }
        writeln!(out, "overhead  {:.3} % on {}", 100.0 * self.overhead.unwrap_or(0.0), self.device)?;
        writeln!(out, "verified  yes")
    }
}
