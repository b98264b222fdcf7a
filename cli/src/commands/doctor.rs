//! `sublet doctor`: how much memory a PyTorch snapshot shows to be lost, and which code holds the rest.
//!
//! The snapshot's segments tell how many bytes the allocator has reserved at the end. The events that reserve and
//! release memory tell it for the time before. The most bytes reserved, less the most bytes in use, are lost: to
//! fragmentation, to rounding, and to memory that the allocator keeps. A plan of the same blocks shows how much of this
//! loss is avoidable.
//!
//! Out of memory, full or fragmented? A request that was refused is planned with the blocks up to then. If that plan
//! takes no more than what was reserved and what the device had left, the memory was there, in pieces. Otherwise what
//! helps is to need less: of the blocks in use, those that come and go can be recomputed or swapped, those that are
//! there all the time cannot. A snapshot without events shows one moment: what is in use, and the pieces between.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use sublet_core::place::interval::{self, Sweep};
use sublet_core::place::{Options, Solver};
use sublet_core::trace::Row;
use sublet_core::{Block, Constraints, Error, owned};

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
/// How many refused requests are planned: whoever retries is refused again and again.
const PLANNED: usize = 16;

/// Reads a snapshot, and prints its diagnosis.
///
/// # Errors
/// A file that is no snapshot with the events of one device.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let diagnosis = Diagnosis::since(&args.snapshot, args.before.as_deref())?;
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
    /// The bytes of `in_use` that are there from the first event to the last.
    persistent: u64,
    /// The largest free piece of a segment at the end; none where no segment is told.
    largest_free: Option<u64>,
    refused: Vec<Refused>,
    /// The code that holds what is in use at the peak, the largest holder first.
    holders: Vec<Holder>,
    /// By place, what it holds at the peak less what it held in the snapshot before, the largest change first.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
}

/// What a place of the program holds at the peak beside what it held before.
#[derive(Debug, Serialize)]
struct Change {
    place: String,
    bytes: i128,
}

/// A request that the allocator could not serve.
#[derive(Debug, Serialize)]
struct Refused {
    event: usize,
    bytes: u64,
    /// The bytes that were free on the device.
    device_free: u64,
    /// The bytes that the allocator had reserved; none where the snapshot does not say.
    reserved: Option<u64>,
    /// Those of `reserved` that were not in use.
    reserved_free: Option<u64>,
    /// The peak of a plan of the blocks up to then and of this request; none for requests after the first
    /// [`PLANNED`].
    plan: Option<u64>,
    verdict: Verdict,
}

/// Why a request could not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// The memory was there, in pieces: a plan serves the request.
    Fragmented,
    /// A plan would not have served it either.
    Full,
    /// The snapshot does not tell what was reserved, or the request was not planned.
    Unknown,
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
    fn of(file: &str) -> Result<Self, InputError> {
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
        let (reserved, refused) = reserved(&snapshot, &problem).map_err(explain)?;
        let last = problem.blocks.iter().map(|block| block.end).max().unwrap_or(0);
        let early = problem.trace.as_ref().map_or(0, |trace| before(&snapshot, &trace.rows));
        let stays = |block: &&Block| (block.start as usize) < early && block.end == last;
        let persistent = problem.blocks.iter().filter(stays).map(|block| block.size).sum();
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
            persistent,
            largest_free: snapshot.largest_free,
            refused,
            holders: holders(&snapshot, &problem, &stacks, peak_step),
            changes: None,
        })
    }

    /// As [`of`](Self::of), with what has changed since the snapshot `before`.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub(crate) fn since(file: &str, before: Option<&str>) -> Result<Self, InputError> {
        let mut diagnosis = Self::of(file)?;
        if let Some(before) = before {
            diagnosis.compare_with(&Self::of(before)?);
        }
        Ok(diagnosis)
    }

    /// Notes what holds more or less than in a snapshot from before.
    fn compare_with(&mut self, before: &Self) {
        let mut held: BTreeMap<&str, i128> = BTreeMap::new();
        for (holders, sign) in [(&before.holders, -1), (&self.holders, 1)] {
            for holder in holders {
                *held.entry(&holder.place).or_default() += sign * i128::from(holder.bytes);
            }
        }
        let differ = held.into_iter().filter(|&(_, bytes)| bytes != 0);
        let mut changes: Vec<_> = differ.map(|(place, bytes)| Change { place: place.into(), bytes }).collect();
        changes.sort_by_key(|change| Reverse(change.bytes.abs()));
        self.changes = Some(changes);
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
        if let (0, Some(free)) = (self.events, self.largest_free) {
            writeln!(out, "largest    {}  free piece: a larger request needs more memory", unit.size(free))?;
        }
        for Refused { event, bytes, device_free, reserved, reserved_free, plan, verdict } in &self.refused {
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
            let there = unit.size(reserved.unwrap_or(0).saturating_add(*device_free));
            match (verdict, plan.map(|plan| unit.size(plan))) {
                (Verdict::Fragmented, Some(plan)) => writeln!(
                    out,
                    "  fragmented: by a plan these blocks and the request take {plan} of the {there} that were there.\n  \
                     What would help: sublet.torch.install(), or expandable segments"
                )?,
                (Verdict::Full, Some(plan)) => writeln!(
                    out,
                    "  full: by a plan these blocks and the request take {plan}, and {there} were there.\n  What would \
                     help: to need less. {} come and go, and can be recomputed or swapped within a limit\n  \
                     (sublet.torch.compile); {} stay all the time",
                    unit.size(self.in_use.saturating_sub(self.persistent)),
                    unit.size(self.persistent)
                )?,
                _ => {}
            }
        }
        writeln!(out, "\nwho holds the {} in use at the peak\n", unit.size(self.in_use))?;
        let size = format!("size {}", unit.name());
        let mut table = table::aligned([&*size, "%", "blocks", ""], 0..3);
        for h in self.holders.iter().take(SHOWN) {
            let percent = format!("{:.1}", percent(h.bytes, self.in_use));
            table.add_row([&unit.number(h.bytes.into()), &percent, &h.blocks.to_string(), &h.place]);
        }
        writeln!(out, "{}", table.trim_fmt())?;
        let Some(changes) = &self.changes else { return Ok(()) };
        writeln!(out, "\nwhat changed at the peak\n")?;
        let mut table = table::aligned([&*size, ""], 0..1);
        for change in changes.iter().take(SHOWN) {
            let sign = if change.bytes < 0 { "-" } else { "+" };
            table.add_row([&format!("{sign}{}", unit.number(change.bytes.abs())), &change.place]);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

/// How many mallocs the trace begins with, of blocks from before the recording.
fn before(snapshot: &Snapshot, rows: &[Row]) -> usize {
    rows.len() - snapshot.mallocs_and_frees().iter().filter(|&&is| is).count().min(rows.len())
}

/// The peak of a plan of what was allocated up to this step, and of a request of so many bytes there.
fn plan_with(problem: &Problem, step: u32, bytes: u64) -> Result<u64, Error> {
    // A block that is never freed ends one past the last row; where the request is later still, it is there too.
    let rows = problem.trace.as_ref().map_or(0, |trace| trace.rows.len());
    let until = |block: &Block| {
        let stays = block.end > step || block.end as usize == rows;
        Block { end: if stays { step.saturating_add(1) } else { block.end }, ..*block }
    };
    let mut blocks: Vec<Block> = problem.blocks.iter().filter(|block| block.start < step).map(until).collect();
    blocks.push(Block::new(step, step.saturating_add(1), bytes));
    let options = Options { constraints: Constraints { capacity: None, alignment: ALIGNMENT }, ..Options::default() };
    owned::plan(&blocks, Solver::Auto, &options).map(|plan| plan.peak)
}

/// The most bytes that were reserved, if the snapshot says, and the requests that were not served.
fn reserved(snapshot: &Snapshot, problem: &Problem) -> Result<(Option<u64>, Vec<Refused>), Error> {
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
    let mut step = before(snapshot, rows);
    let mut in_use: i128 = rows[..step].iter().map(|row| i128::from(row.bytes)).sum();
    let mut most = now;
    let mut refused = Vec::new();
    for (index, (event, recorded)) in snapshot.events.iter().zip(snapshot.mallocs_and_frees()).enumerate() {
        now += change(event.action, event.bytes);
        most = most.max(now);
        if recorded {
            in_use += if event.action == Action::Alloc { 1 } else { -1 } * i128::from(event.bytes);
            step += 1;
        }
        if event.action == Action::OutOfMemory {
            let plan = match u32::try_from(step) {
                Ok(step) if refused.len() < PLANNED && event.bytes > 0 => Some(plan_with(problem, step, event.bytes)?),
                _ => None,
            };
            let there = u64::try_from(now).unwrap_or(0).saturating_add(event.address);
            let verdict = match plan {
                Some(plan) if is_told && plan <= there => Verdict::Fragmented,
                Some(_) if is_told => Verdict::Full,
                _ => Verdict::Unknown,
            };
            refused.push(Refused {
                event: index,
                bytes: event.bytes,
                device_free: event.address,
                reserved: is_told.then(|| u64::try_from(now).unwrap_or(0)),
                reserved_free: is_told.then(|| u64::try_from(now - in_use).unwrap_or(0)),
                plan,
                verdict,
            });
        }
    }
    Ok((is_told.then(|| u64::try_from(most).unwrap_or(u64::MAX)), refused))
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
