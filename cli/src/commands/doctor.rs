//! `sublet doctor`: how much memory a PyTorch snapshot shows to be lost, and which code holds the rest.
//!
//! The snapshot's segments tell how many bytes the allocator has reserved at the end. The events that reserve and
//! release memory tell it for the time before. The most bytes reserved, less the most bytes in use, are lost: to
//! fragmentation, to rounding, and to memory that the allocator keeps. A plan of the same blocks shows how much of this
//! loss is avoidable.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sublet_core::place::interval::{self, Sweep};
use sublet_core::place::{Options, Solver};
use sublet_core::{Constraints, owned};

use crate::args::DoctorArgs;
use crate::failure::{Failure, InputError};
use crate::input;
use crate::input::snapshot::{Action, Snapshot, Stack};
use crate::output;
use crate::problem::Problem;
use crate::text::table;
use crate::text::unit::Unit;

/// The alignment of PyTorch's allocator, in bytes.
const ALIGNMENT: u64 = 512;
/// How many holders are printed; the JSON has all of them.
const SHOWN: usize = 12;

/// Reads a snapshot, and prints its diagnosis.
///
/// # Errors
/// A file that is no snapshot with the events of one device.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let diagnosis = Diagnosis::of(&args.snapshot)?;
    let mut out = io::stdout().lock();
    let printed = if args.json { output::json(&diagnosis, &mut out) } else { diagnosis.write_page(&mut out) };
    printed.map_err(|e| Failure::printing(&e))
}

/// What a snapshot shows of the memory of one device. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    input: String,
    device: usize,
    events: usize,
    blocks: usize,
    /// The most bytes that the allocator had reserved; none where the snapshot does not say.
    reserved: Option<u64>,
    /// The most bytes that the program had in use.
    in_use: u64,
    /// `reserved` less `in_use`.
    lost: Option<u64>,
    /// The peak of a plan of the same blocks.
    plan: u64,
    /// A lower bound on the peak of every plan of these blocks.
    lower_bound: u64,
    refused: Vec<Refused>,
    /// The code that holds what is in use at the peak, the largest holder first.
    holders: Vec<Holder>,
}

/// A request that the allocator could not serve.
#[derive(Debug, Serialize)]
struct Refused {
    event: usize,
    bytes: u64,
    /// The bytes that were free on the device.
    device_free: u64,
    /// The bytes that the allocator had reserved and that were not in use; none where the snapshot does not say.
    reserved_free: Option<u64>,
}

/// The bytes that one place of the program holds at the peak.
#[derive(Debug, Serialize)]
struct Holder {
    place: String,
    bytes: u64,
    blocks: usize,
    /// The stack that asked for most of these bytes, its innermost frame first.
    frames: Vec<String>,
}

impl Diagnosis {
    /// The diagnosis of a snapshot.
    ///
    /// # Errors
    /// A file that is no snapshot with the events of one device.
    pub(crate) fn of(file: &str) -> Result<Self, InputError> {
        let snapshot = input::snapshot(file)?;
        let (problem, stacks) = snapshot.problem(file)?;
        let explain = |e| InputError::file(file, problem.explain(&e));
        let constraints = Constraints { capacity: None, alignment: ALIGNMENT };
        let options = Options { constraints, ..Options::default() };
        let plan = owned::plan(&problem.blocks, Solver::Auto, &options).map_err(explain)?;
        let mut scratch = owned::Scratch::of(interval::workspace(problem.blocks.len()));
        let sweep = Sweep::new(&problem.blocks, scratch.lend()).map_err(explain)?;
        let peak_step =
            sweep.load_curve().max_by_key(|&(step, load)| (load, Reverse(step))).map_or(0, |(step, _)| step);
        let (reserved, refused) = reserved(&snapshot, &problem);
        Ok(Self {
            input: file.into(),
            device: snapshot.device,
            events: snapshot.events.len(),
            blocks: problem.blocks.len(),
            reserved,
            in_use: plan.max_load,
            lost: reserved.map(|reserved| reserved.saturating_sub(plan.max_load)),
            plan: plan.peak,
            lower_bound: plan.lower_bound,
            refused,
            holders: holders(&snapshot, &problem, &stacks, peak_step),
        })
    }

    /// Prints the diagnosis as text.
    pub(crate) fn write_page(&self, out: &mut impl Write) -> io::Result<()> {
        let unit = Unit::for_largest(self.reserved.unwrap_or(self.in_use));
        writeln!(out, "{}: device {}, {} events, {} blocks\n", self.input, self.device, self.events, self.blocks)?;
        if let (Some(reserved), Some(lost)) = (self.reserved, self.lost) {
            writeln!(out, "reserved   {}  at most, by the allocator", unit.size(reserved))?;
            let percent = percent(lost, reserved);
            writeln!(out, "in use     {}  at most, by the program", unit.size(self.in_use))?;
            writeln!(out, "lost       {}  {percent:.1} %: fragmentation, rounding, memory kept free", unit.size(lost))?;
        } else {
            writeln!(out, "in use     {}  at most; what was reserved is not told", unit.size(self.in_use))?;
        }
        let bound = if self.plan == self.lower_bound {
            "the least possible".into()
        } else {
            format!("at least {}", unit.size(self.lower_bound))
        };
        writeln!(out, "by a plan  {}  {bound}", unit.size(self.plan))?;
        for Refused { event, bytes, device_free, reserved_free } in &self.refused {
            write!(
                out,
                "\nout of memory at event {event}: {} asked, {} free on the device",
                unit.size(*bytes),
                unit.size(*device_free)
            )?;
            if let Some(free) = reserved_free {
                write!(out, ", {} reserved and not in use", unit.size(*free))?;
            }
            writeln!(out)?;
        }
        writeln!(out, "\nwho holds the {} in use at the peak\n", unit.size(self.in_use))?;
        let size = format!("size {}", unit.name());
        let mut table = table::aligned([&*size, "%", "blocks", ""], 0..3);
        for h in self.holders.iter().take(SHOWN) {
            let percent = format!("{:.1}", percent(h.bytes, self.in_use));
            table.add_row([&unit.number(h.bytes.into()), &percent, &h.blocks.to_string(), &h.place]);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

/// The most bytes that were reserved, if the snapshot says, and the requests that were not served.
fn reserved(snapshot: &Snapshot, problem: &Problem) -> (Option<u64>, Vec<Refused>) {
    let change = |action, bytes: u64| match action {
        Action::Reserve => i128::from(bytes),
        Action::Release => -i128::from(bytes),
        _ => 0,
    };
    let all: i128 = snapshot.events.iter().map(|e| change(e.action, e.bytes)).sum();
    let mut now = (i128::from(snapshot.reserved) - all).max(0);
    let is_told = snapshot.reserved > 0 || snapshot.events.iter().any(|e| change(e.action, e.bytes) != 0);
    // The trace begins with the mallocs of the blocks from before the recording; all of them are in use at first.
    let rows = problem.trace.as_ref().map_or(&[][..], |trace| &trace.rows);
    let recorded = snapshot.mallocs_and_frees();
    let before = rows.len() - recorded.iter().filter(|&&is| is).count().min(rows.len());
    let mut in_use: i128 = rows[..before].iter().map(|row| i128::from(row.bytes)).sum();
    let mut most = now;
    let mut refused = Vec::new();
    for (index, (event, recorded)) in snapshot.events.iter().zip(recorded).enumerate() {
        now += change(event.action, event.bytes);
        most = most.max(now);
        if recorded {
            in_use += if event.action == Action::Alloc { 1 } else { -1 } * i128::from(event.bytes);
        }
        if event.action == Action::OutOfMemory {
            let free = u64::try_from(now - in_use).unwrap_or(0);
            let reserved_free = is_told.then_some(free);
            refused.push(Refused { event: index, bytes: event.bytes, device_free: event.address, reserved_free });
        }
    }
    (is_told.then(|| u64::try_from(most).unwrap_or(u64::MAX)), refused)
}

/// The places of the program that hold what is alive at a step, the largest first.
fn holders(snapshot: &Snapshot, problem: &Problem, stacks: &[Stack], step: u32) -> Vec<Holder> {
    let mut by_stack: HashMap<Stack, (u64, usize)> = HashMap::new();
    for (block, &stack) in problem.blocks.iter().zip(stacks) {
        if block.start <= step && step < block.end {
            let (bytes, blocks) = by_stack.entry(stack).or_default();
            *bytes += block.size;
            *blocks += 1;
        }
    }
    let mut largest: Vec<(Stack, (u64, usize))> = by_stack.into_iter().collect();
    largest.sort_unstable_by_key(|&(stack, (bytes, _))| (Reverse(bytes), stack));
    let mut holders: Vec<Holder> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (stack, (bytes, blocks)) in largest {
        let place = place(snapshot, stack);
        let at = *known.entry(place.clone()).or_insert(holders.len());
        if at == holders.len() {
            let frames = snapshot.frames(stack).map(|(file, line, name)| format!("{file}:{line} {name}")).collect();
            holders.push(Holder { place, bytes: 0, blocks: 0, frames });
        }
        holders[at].bytes += bytes;
        holders[at].blocks += blocks;
    }
    holders.sort_by_key(|h| Reverse(h.bytes));
    holders
}

/// The place in the user's program: the innermost Python frame outside of PyTorch, or else the innermost frame.
fn place(snapshot: &Snapshot, stack: Stack) -> String {
    let is_users = |file: &str| {
        let is_python = file.rsplit_once('.').is_some_and(|(_, extension)| extension == "py");
        is_python && !file.contains("/torch/")
    };
    let users = snapshot.frames(stack).find(|(file, ..)| is_users(file));
    match users.or_else(|| snapshot.frames(stack).next()) {
        Some((file, line, name)) => format!("{file}:{line} {name}"),
        None => "not told, or from before the recording".into(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to be read")]
fn percent(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * (bytes as f64 / of as f64) }
}
