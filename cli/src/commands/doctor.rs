//! `sublet doctor`: how much memory a PyTorch snapshot shows to be lost, and which code holds the rest. Of a log of RMM it
//! tells what a log can: what a plan would take, also with the requests that failed, and which thread and stream holds what.
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
use std::iter;

use serde::Serialize;
use sublet_core::place::Sweep;
use sublet_core::place::{Options, Solver};
use sublet_core::trace::{Event, Row};
use sublet_core::{Block, Constraints, Error, owned};

use crate::args::DoctorArgs;
use crate::failure::{Failure, InputError};
use crate::input;
use crate::input::Patient;
use crate::input::rmm::Log;
use crate::input::snapshot::{Action, Snapshot, Stack};
use crate::problem::Problem;
use crate::text::table;
use crate::text::unit::Unit;
use crate::{output, report};

/// The alignment of PyTorch's allocator, in bytes.
const ALIGNMENT: u64 = 512;
/// How many holders are printed; the JSON has all of them.
const SHOWN: usize = 12;
/// Who holds a block of which the file does not say it.
const UNKNOWN: &str = "not told, or from before the recording";
/// How many refused requests are planned: whoever retries is refused again and again.
const PLANNED: usize = 16;

/// Reads a snapshot, and prints its diagnosis.
///
/// # Errors
/// A file that is no snapshot with the events of one device, and no log of RMM.
pub(crate) fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let report = args.report.as_deref();
    if report.is_some_and(|file| output::ends_in(file, "svg")) {
        return Err(Failure::Usage("a diagnosis is drawn as a page: --report NAME.html".into()));
    }
    output::each_elsewhere(&args.snapshot, &[("--json", args.json.then_some("-")), ("--report", report)])?;
    let seen = Seen::of(&args.snapshot)?;
    let mut diagnosis = Diagnosis::of(&args.snapshot, &seen)?;
    if let Some(before) = &args.before {
        diagnosis.compare_with(&Diagnosis::of(before, &Seen::of(before)?)?);
    }
    if let Some(file) = report {
        let page = Page { timeline: Timeline::of(&seen, &diagnosis), diagnosis: &diagnosis };
        output::write(file, |out| report::doctor(seen.problem.title(), &page, out))?;
    }
    output::print(&diagnosis, args.json, &[&args.report], |out| diagnosis.write_page(out))
}

/// What the page of a diagnosis shows.
#[derive(Serialize)]
struct Page<'a> {
    diagnosis: &'a Diagnosis,
    /// None of a snapshot that shows one moment.
    timeline: Option<Timeline<'a>>,
}

/// What was in use from event to event, thinned out: of neighbouring events the one with the most bytes counts.
#[derive(Serialize)]
struct Timeline<'a> {
    /// Which event each point is, counted over the mallocs and frees, those of blocks from before the recording first.
    at: Vec<usize>,
    /// Who holds how much at each point: the largest holders of the peak, and all others.
    bands: Vec<Band<'a>>,
    /// What was reserved at each point; empty where that is not told.
    reserved: Vec<u64>,
    /// The point before which each request was refused.
    refused: Vec<usize>,
}

#[derive(Serialize)]
struct Band<'a> {
    place: &'a str,
    bytes: Vec<u64>,
}

impl<'a> Timeline<'a> {
    /// How many points, and how many holders of their own.
    const POINTS: usize = 1000;
    const BANDS: usize = 7;

    fn of(seen: &Seen, diagnosis: &'a Diagnosis) -> Option<Self> {
        let rows = &seen.problem.trace.as_ref()?.rows;
        if diagnosis.events == 0 || rows.is_empty() {
            return None;
        }
        let own: Vec<&str> = diagnosis.holders.iter().take(Self::BANDS).map(|h| h.place.as_str()).collect();
        let mut known = HashMap::new();
        let mut band_of = |block: u32| {
            let asker = seen.askers.of(block as usize);
            *known.entry(asker).or_insert_with(|| {
                let place = seen.askers.place(asker);
                own.iter().position(|own| *own == place).unwrap_or(own.len())
            })
        };
        let points = rows.len().min(Self::POINTS);
        let (mut now, mut at) = (vec![0u64; own.len() + 1], Vec::with_capacity(points));
        let mut bytes = vec![Vec::with_capacity(points); own.len() + 1];
        let (mut sum, mut most, mut best) = (0u64, None, (0, now.clone()));
        for (index, row) in rows.iter().enumerate() {
            let band = band_of(row.block);
            let size = seen.problem.blocks.get(row.block as usize).map_or(0, |block| block.size);
            if row.event == Event::Malloc {
                (now[band], sum) = (now[band] + size, sum + size);
            } else {
                (now[band], sum) = (now[band] - size, sum - size);
            }
            if most.is_none_or(|most| sum > most) {
                (most, best) = (Some(sum), (index, now.clone()));
            }
            // The last row of a point.
            if (index + 1) * points / rows.len() > index * points / rows.len() {
                at.push(best.0);
                bytes.iter_mut().zip(&best.1).for_each(|(band, &now)| band.push(now));
                most = None;
            }
        }
        let reserved_at = |step: &usize| {
            let last = seen.reserved.partition_point(|&(from, _)| from <= *step);
            last.checked_sub(1).map_or(0, |last| seen.reserved[last].1)
        };
        let reserved = if diagnosis.reserved.is_some() { at.iter().map(reserved_at).collect() } else { Vec::new() };
        let point = |refused: &Refused| at.partition_point(|&at| at < refused.step);
        let refused = diagnosis.refused.iter().map(point).collect();
        let places = own.into_iter().chain(["all others"]);
        let bands = places.zip(bytes).map(|(place, bytes)| Band { place, bytes });
        let bands = bands.filter(|band| band.bytes.iter().any(|&bytes| bytes > 0)).collect();
        Some(Self { at, bands, reserved, refused })
    }
}

/// What a file tells of the memory of one device, whoever wrote it.
struct Seen {
    problem: Problem,
    device: Option<usize>,
    events: usize,
    /// How many mallocs the trace begins with, of blocks from before the recording.
    early: usize,
    /// The bytes that the allocator has reserved, from which step on.
    reserved: Vec<(usize, u64)>,
    most_reserved: Option<u64>,
    largest_free: Option<u64>,
    refused: Vec<Refused>,
    askers: Askers,
}

/// Who asked for each block.
enum Askers {
    Stacks(Box<Snapshot>, Vec<Stack>),
    /// By block an index into the names; for blocks from before the log, one beyond them.
    Named(Vec<u32>, Vec<String>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Asker {
    Stack(Stack),
    Number(u32),
}

impl Askers {
    fn of(&self, block: usize) -> Asker {
        match self {
            Self::Stacks(_, stacks) => Asker::Stack(stacks.get(block).copied().unwrap_or_default()),
            Self::Named(by, _) => Asker::Number(by.get(block).copied().unwrap_or(u32::MAX)),
        }
    }

    fn place(&self, asker: Asker) -> String {
        match (self, asker) {
            (Self::Stacks(snapshot, _), Asker::Stack(stack)) => place(snapshot, stack),
            (Self::Named(_, names), Asker::Number(n)) => names.get(n as usize).map_or(UNKNOWN, String::as_str).into(),
            _ => UNKNOWN.into(),
        }
    }

    fn frames(&self, asker: Asker) -> Vec<String> {
        match (self, asker) {
            (Self::Stacks(snapshot, _), Asker::Stack(stack)) => {
                snapshot.frames(stack).map(|(file, line, name)| format!("{file}:{line} {name}")).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Seen {
    /// # Errors
    /// A file that is no snapshot with the events of one device, and no log of RMM.
    fn of(file: &str) -> Result<Self, InputError> {
        match input::patient(file)? {
            Patient::Snapshot(snapshot) => Self::of_snapshot(file, snapshot),
            Patient::Log(log) => Self::of_log(file, *log),
        }
    }

    fn of_snapshot(file: &str, snapshot: Box<Snapshot>) -> Result<Self, InputError> {
        let (problem, stacks) = snapshot.problem(file)?;
        let early = problem.trace.as_ref().map_or(0, |trace| before(&snapshot, &trace.rows));
        let Reserved { most: most_reserved, steps: reserved, refused } =
            reserved(&snapshot, &problem, early).map_err(|e| InputError::file(file, problem.explain(&e)))?;
        let (device, events, largest_free) = (Some(snapshot.device), snapshot.events.len(), snapshot.largest_free);
        let askers = Askers::Stacks(snapshot, stacks);
        Ok(Self { problem, device, events, early, reserved, most_reserved, largest_free, refused, askers })
    }

    fn of_log(file: &str, log: Log) -> Result<Self, InputError> {
        let Log { problem, events, early, failed, by, who } = log;
        let mut refused = Vec::new();
        for (event, bytes) in failed {
            let step = early + event;
            let plan = (refused.len() < PLANNED && bytes > 0).then(|| plan_with(&problem, step, bytes)).transpose();
            let plan = plan.map_err(|e| InputError::file(file, problem.explain(&e)))?;
            let (reserved, reserved_free, device_free, verdict) = (None, None, None, Verdict::Unknown);
            refused.push(Refused { event, step, bytes, device_free, reserved, reserved_free, plan, verdict });
        }
        let by = iter::repeat_n(u32::MAX, early).chain(by).collect();
        let (device, reserved, most_reserved, largest_free) = (None, Vec::new(), None, None);
        let askers = Askers::Named(by, who);
        Ok(Self { problem, device, events, early, reserved, most_reserved, largest_free, refused, askers })
    }
}

/// What a snapshot shows of the memory of one device. Sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    input: String,
    /// None where the file does not say.
    device: Option<usize>,
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
#[derive(Clone, Debug, Serialize)]
struct Refused {
    event: usize,
    /// How many mallocs and frees came before, those of blocks from before the recording included.
    #[serde(skip)]
    step: usize,
    bytes: u64,
    /// The bytes that were free on the device; none where the file does not say.
    device_free: Option<u64>,
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
    /// The file does not tell what was reserved, or the request was not planned.
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
    /// # Errors
    /// Blocks that cannot be planned.
    fn of(file: &str, seen: &Seen) -> Result<Self, InputError> {
        let problem = &seen.problem;
        let explain = |e| InputError::file(file, problem.explain(&e));
        let constraints = Constraints { capacity: None, alignment: ALIGNMENT };
        let options = Options { constraints, ..Options::default() };
        let plan = owned::plan(&problem.blocks, Solver::Auto, &options).map_err(explain)?;
        let mut scratch = owned::Scratch::of(Sweep::workspace(problem.blocks.len()));
        let sweep = Sweep::new(&problem.blocks, scratch.lend()).map_err(explain)?;
        let peak_step =
            sweep.load_curve().max_by_key(|&(step, load)| (load, Reverse(step))).map_or(0, |(step, _)| step);
        let last = problem.blocks.iter().map(|block| block.end).max().unwrap_or(0);
        let stays = |block: &&Block| (block.start as usize) < seen.early && block.end == last;
        let persistent = problem.blocks.iter().filter(stays).map(|block| block.size).sum();
        Ok(Self {
            input: file.into(),
            device: seen.device,
            events: seen.events,
            blocks: problem.blocks.len(),
            reserved: seen.most_reserved,
            in_use: plan.max_load,
            lost: seen.most_reserved.map(|reserved| reserved.saturating_sub(plan.max_load)),
            plan: plan.peak,
            lower_bound: plan.lower_bound,
            persistent,
            largest_free: seen.largest_free,
            refused: seen.refused.clone(),
            holders: holders(seen, peak_step),
            changes: None,
        })
    }

    /// The diagnosis of a file, with what has changed since the file `before`.
    ///
    /// # Errors
    /// A file that is no snapshot with the events of one device, and no log of RMM.
    pub(crate) fn since(file: &str, before: Option<&str>) -> Result<Self, InputError> {
        let mut diagnosis = Self::of(file, &Seen::of(file)?)?;
        if let Some(before) = before {
            diagnosis.compare_with(&Self::of(before, &Seen::of(before)?)?);
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
        let device = self.device.map_or(String::new(), |device| format!("device {device}, "));
        writeln!(out, "{}: {device}{} events, {} blocks\n", self.input, self.events, self.blocks)?;
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
        for Refused { event, bytes, device_free, reserved, reserved_free, plan, verdict, .. } in &self.refused {
            write!(out, "\nout of memory at event {event}: {} asked", unit.size(*bytes))?;
            if let Some(free) = device_free {
                write!(out, ", {} free on the device", unit.size(*free))?;
            }
            if let Some(free) = reserved_free {
                write!(out, ", {} reserved and not in use", unit.size(*free))?;
            }
            writeln!(out)?;
            let there = unit.size(reserved.unwrap_or(0).saturating_add(device_free.unwrap_or(0)));
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
                (Verdict::Unknown, Some(plan)) => writeln!(
                    out,
                    "  by a plan these blocks and the request take {plan}; how much there was is not told"
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

/// The peak of a plan of what so many mallocs and frees allocate, and of a request of so many bytes after them.
fn plan_with(problem: &Problem, step: usize, bytes: u64) -> Result<u64, Error> {
    let step = u32::try_from(step).unwrap_or(u32::MAX - 1);
    // What the next event frees is still there.
    let until = |block: &Block| Block { end: block.end.min(step), ..*block };
    let mut blocks: Vec<Block> = problem.blocks.iter().filter(|block| block.start < step).map(until).collect();
    let last = step.saturating_sub(1);
    blocks.push(Block::new(last, last + 1, bytes));
    let options = Options { constraints: Constraints { capacity: None, alignment: ALIGNMENT }, ..Options::default() };
    owned::plan(&blocks, Solver::Auto, &options).map(|plan| plan.peak)
}

/// What a snapshot tells of the memory that is reserved.
struct Reserved {
    /// The most bytes, if the snapshot says.
    most: Option<u64>,
    /// The bytes, from which step on.
    steps: Vec<(usize, u64)>,
    /// The requests that were not served.
    refused: Vec<Refused>,
}

fn reserved(snapshot: &Snapshot, problem: &Problem, early: usize) -> Result<Reserved, Error> {
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
    let mut step = early;
    let mut in_use: i128 = rows[..step].iter().map(|row| i128::from(row.bytes)).sum();
    let mut most = now;
    let bytes = |now: i128| u64::try_from(now).unwrap_or(0);
    let (mut steps, mut refused) = (vec![(0, bytes(now))], Vec::new());
    for (index, (event, recorded)) in snapshot.events.iter().zip(snapshot.mallocs_and_frees()).enumerate() {
        let changed = change(event.action, event.bytes);
        now += changed;
        most = most.max(now);
        if changed != 0 {
            steps.push((step, bytes(now)));
        }
        if recorded {
            in_use += if event.action == Action::Alloc { 1 } else { -1 } * i128::from(event.bytes);
            step += 1;
        }
        if event.action == Action::OutOfMemory {
            let is_planned = refused.len() < PLANNED && event.bytes > 0;
            let plan = is_planned.then(|| plan_with(problem, step, event.bytes)).transpose()?;
            let there = bytes(now).saturating_add(event.address);
            let verdict = match plan {
                Some(plan) if is_told && plan <= there => Verdict::Fragmented,
                Some(_) if is_told => Verdict::Full,
                _ => Verdict::Unknown,
            };
            refused.push(Refused {
                event: index,
                step,
                bytes: event.bytes,
                device_free: Some(event.address),
                reserved: is_told.then(|| bytes(now)),
                reserved_free: is_told.then(|| bytes(now - in_use)),
                plan,
                verdict,
            });
        }
    }
    Ok(Reserved { most: is_told.then(|| u64::try_from(most).unwrap_or(u64::MAX)), steps, refused })
}

/// The places of the program that hold what is alive at a step, the largest first.
fn holders(seen: &Seen, step: u32) -> Vec<Holder> {
    let mut by_stack: HashMap<Asker, (u64, usize)> = HashMap::new();
    for (index, block) in seen.problem.blocks.iter().enumerate() {
        if block.start <= step && step < block.end {
            let (bytes, blocks) = by_stack.entry(seen.askers.of(index)).or_default();
            *bytes += block.size;
            *blocks += 1;
        }
    }
    let mut largest: Vec<(Asker, (u64, usize))> = by_stack.into_iter().collect();
    largest.sort_unstable_by_key(|&(asker, (bytes, _))| (Reverse(bytes), asker));
    let mut holders: Vec<Holder> = Vec::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (asker, (bytes, blocks)) in largest {
        let place = seen.askers.place(asker);
        let at = *known.entry(place.clone()).or_insert(holders.len());
        if at == holders.len() {
            let frames = seen.askers.frames(asker);
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
        None => UNKNOWN.into(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share to be read")]
fn percent(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { 100.0 * (bytes as f64 / of as f64) }
}
