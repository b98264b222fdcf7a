//! PyTorch's memory snapshots, as `torch.cuda.memory._dump_snapshot` pickles them.
//!
//! `device_traces` has a list of events for each device: `alloc` is a malloc, `free_completed` a free, and so is a
//! `free_requested` that nothing completed. `segments` has what is in use at the end: blocks that the events do not
//! mention were there before the recording, as were those that are freed without an `alloc`. Sizes are what the program
//! asked for, before the allocator rounds them. The events of one device make the problem: a snapshot with events of
//! several is refused, since nothing says which is meant. A list of events, or of blocks, that the pickle refers to
//! twice is refused as well. A snapshot without events, or a list of segments as `torch.cuda.memory_snapshot()` returns
//! it, shows one moment. The file may be of any length: it is read in parts, and never held as a whole.

mod objects;
pub(super) mod pickle;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::io::Read;

use super::recording::{Fault, Recording};
use super::{Format, Recognised};
use crate::failure::{InputError, Place};
use crate::problem::{BadRow, Problem};
pub(crate) use objects::{Action, Event, Stack};
use objects::{Object, Objects, Part, Segment};

/// The part of a snapshot that is about the one device with events.
pub(crate) struct Snapshot {
    pub(crate) device: usize,
    /// The events, in their order.
    pub(crate) events: Vec<Event>,
    /// The bytes that the allocator has reserved at the end.
    pub(crate) reserved: u64,
    /// The blocks in use at the end: address, bytes, and the stack that asked for them.
    pub(crate) in_use: Vec<(u64, u64, Stack)>,
    /// The largest free part of a segment at the end; none where no segment is told.
    pub(crate) largest_free: Option<u64>,
    objects: Objects,
}

/// How a `PyTorch` snapshot is recognised and read.
pub(super) const FORMAT: Format = Format {
    expected: "a PyTorch memory snapshot (pickle)",
    help: "\
  snapshot   a pickle of torch.cuda.memory._dump_snapshot; nothing in it is run",
    by: Recognised::Bytes(|begin| begin.first() == Some(&pickle::PROTO), |file, reader| read(file, reader)),
};

/// The problem that the events make.
pub(super) fn read(file: &str, reader: impl Read) -> Result<Problem, InputError> {
    let snapshot = Snapshot::read(file, reader)?;
    if snapshot.events.is_empty() {
        let message = "expected events of a device, found none; was the history recorded (_record_memory_history)?";
        return Err(InputError::file(file, message));
    }
    snapshot.problem(file).map(|(problem, _)| problem)
}

impl Snapshot {
    /// Reads a whole pickle.
    ///
    /// # Errors
    /// Where it is no snapshot with the events of one device.
    pub(crate) fn read(file: &str, reader: impl Read) -> Result<Self, InputError> {
        let mut objects = Objects::new();
        let root = pickle::read(reader, &mut objects).map_err(|refusal| InputError {
            file: file.into(),
            place: Some(Place::Byte(refusal.byte)),
            message: refusal.message,
        })?;
        let wrong = |message: String| InputError::file(file, message);
        let snapshot = objects.snapshot(&root);
        let not_one = "expected a memory snapshot: a dict with a list \"device_traces\", or a list of segments";
        let (traces, segments) = match (snapshot, root) {
            (Some((traces, segments)), _) => (objects.take(traces), objects.take(segments)),
            (None, pickle::Value::Object(list)) => (Some(Vec::new()), objects.take(list)),
            (None, pickle::Value::Int(_)) => (None, None),
        };
        let traces = traces.ok_or_else(|| wrong(not_one.into()))?;
        let segments = segments.unwrap_or_default();
        let segments: Option<Vec<Segment>> = segments.iter().map(|&segment| objects.segment(segment)).collect();
        let segments = segments.ok_or_else(|| wrong(not_one.into()))?;
        if snapshot.is_none() && segments.is_empty() {
            return Err(wrong(not_one.into()));
        }
        let (device, events) = only_device(&mut objects, &traces, &segments).map_err(wrong)?;
        let found = events.iter().enumerate().map(|(index, &event)| found(&objects, index, event));
        let events: Vec<Event> =
            found.collect::<Result<_, _>>().map_err(|message| wrong(format!("device {device}: {message}")))?;
        let Held { reserved, in_use, largest_free } = Held::of(&mut objects, &segments, device).map_err(wrong)?;
        objects.forget();
        Ok(Self { device, events, reserved, in_use, largest_free, objects })
    }

    /// Makes the problem of the trace, and for each of its blocks the stack that asked for it.
    ///
    /// # Errors
    /// An event that cannot follow the events before it.
    pub(crate) fn problem(&self, file: &str) -> Result<(Problem, Vec<Stack>), InputError> {
        let wrong = |message: String| InputError::file(file, message);
        let mut recording = Recording::default();
        let mut stacks = Vec::new();
        let recorded = self.events.iter().enumerate().zip(self.mallocs_and_frees());
        for (index, event) in recorded.filter_map(|(event, is_one)| is_one.then_some(event)) {
            let time_ns = event.time_ns().unwrap_or(index as u64 * 1000);
            let record = if event.action == Action::Alloc { Recording::alloc } else { Recording::free };
            record(&mut recording, time_ns, event.address, event.bytes).map_err(|fault: Fault| {
                let why = fault.explain(&format!("{:#x}", event.address));
                wrong(format!("device {}, event {index}: {why}", self.device))
            })?;
            if event.action == Action::Alloc {
                stacks.push(event.stack);
            }
        }
        // Blocks from before the recording come first; only those that are in use at the end have a stack.
        let mut early = vec![Stack::default(); recording.early()];
        for &(address, bytes, stack) in &self.in_use {
            if recording.in_use(address, bytes) {
                early.push(stack);
            }
        }
        if recording.is_empty() {
            return Err(wrong("expected an allocation, found none".into()));
        }
        early.append(&mut stacks);
        let problem = recording.into_problem(file).map_err(|BadRow { message, .. }| wrong(message))?;
        Ok((problem, early))
    }

    /// The frames of a stack, innermost first: file, line, name of the function.
    pub(crate) fn frames(&self, stack: Stack) -> impl Iterator<Item = (Cow<'_, str>, u64, Cow<'_, str>)> {
        self.objects.places(stack)
    }

    /// Whether each event is a malloc or a free. A request to free that is completed later is neither.
    pub(crate) fn mallocs_and_frees(&self) -> Vec<bool> {
        let mut completed = HashSet::new();
        let mut is_one = |event: &Event| match event.action {
            Action::Alloc => {
                completed.remove(&event.address);
                event.bytes > 0
            }
            Action::FreeRequested => !completed.remove(&event.address) && event.bytes > 0,
            Action::FreeCompleted => completed.insert(event.address) && event.bytes > 0,
            _ => false,
        };
        let mut found: Vec<bool> = self.events.iter().rev().map(&mut is_one).collect();
        found.reverse();
        found
    }
}

/// The events of the only device that has any, and the device's number; without events, the only device with segments.
fn only_device(objects: &mut Objects, traces: &[Object], segments: &[Segment]) -> Result<(usize, Vec<Object>), String> {
    let mut with_events = Vec::new();
    for (device, &trace) in traces.iter().enumerate() {
        let events =
            objects.take(trace).ok_or_else(|| format!("device {device}: expected a list of events of its own"))?;
        if !events.is_empty() {
            with_events.push((device, events));
        }
    }
    let devices: BTreeSet<u64> = segments.iter().filter_map(|segment| segment.device).collect();
    match (with_events.len(), devices.len()) {
        (0, _) if segments.is_empty() => {
            Err("expected events or segments of a device, found none; was the history recorded \
                 (_record_memory_history)?"
                .into())
        }
        (0, 0 | 1) => Ok((devices.first().and_then(|&device| device.try_into().ok()).unwrap_or(0), Vec::new())),
        (0, _) => Err(format!("expected segments of one device, found those of {devices:?}")),
        (1, _) => Ok(with_events.remove(0)),
        _ => {
            let several: Vec<usize> = with_events.iter().map(|&(device, _)| device).collect();
            Err(format!("expected events of one device, found those of {several:?}; record one device at a time"))
        }
    }
}

fn found(objects: &Objects, index: usize, event: Object) -> Result<Event, String> {
    let event = objects.event(event).ok_or_else(|| format!("event {index}: expected a dict with an \"action\""))?;
    match event.action {
        Action::NoAddress => Err(format!("event {index}: expected a whole number \"addr\"")),
        Action::NoSize => Err(format!("event {index}: expected a whole number \"size\"")),
        _ => Ok(event),
    }
}

/// What the segments of a device hold at the end.
#[derive(Default)]
struct Held {
    reserved: u64,
    in_use: Vec<(u64, u64, Stack)>,
    largest_free: Option<u64>,
}

impl Held {
    fn of(objects: &mut Objects, segments: &[Segment], device: usize) -> Result<Self, String> {
        let mut held = Self::default();
        for (index, segment) in segments.iter().enumerate() {
            if segment.device.is_some_and(|d| d != device as u64) {
                continue;
            }
            let broken =
                || format!("segment {index}: expected an \"address\" and \"blocks\" with \"size\" and \"state\"");
            held.reserved = held.reserved.saturating_add(segment.bytes);
            held.largest_free.get_or_insert(0);
            let mut address = segment.address.ok_or_else(broken)?;
            let mut free = 0u64;
            for part in objects.take(segment.blocks).ok_or_else(broken)? {
                let Part { address: own, size, in_use, stack } = objects.part(part).ok_or_else(broken)?;
                // Older snapshots have no addresses: the blocks fill the segment one after the other.
                address = own.unwrap_or(address);
                free = if in_use.is_some() { 0 } else { free.saturating_add(size) };
                held.in_use.extend(in_use.map(|bytes| (address, bytes, stack)));
                held.largest_free = held.largest_free.max(Some(free));
                address = address.saturating_add(size);
            }
        }
        Ok(held)
    }
}
