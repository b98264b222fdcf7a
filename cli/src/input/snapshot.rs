//! PyTorch's memory snapshots, as `torch.cuda.memory._dump_snapshot` pickles them.
//!
//! `device_traces` has a list of events for each device: `alloc` is a malloc, `free_completed` a free, and so is a
//! `free_requested` that nothing completed. `segments` has what is in use at the end: blocks that the events do not
//! mention were there before the recording, as were those that are freed without an `alloc`. Sizes are what the
//! program asked for, before the allocator rounds them. The events of one device make the problem: a snapshot with
//! events of several is refused, since nothing says which is meant. No two events, segments or blocks are one object.

use std::collections::HashSet;
use std::io::{BufRead, Read};

use super::pickle::{Dict, Pickle, Value};
use super::recording::{Fault, Recording};
use super::unreadable;
use crate::failure::{InputError, Place};
use crate::problem::{BadRow, Problem};

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 29;

/// Reads a whole pickle.
pub(super) fn read<R: BufRead>(file: &str, reader: R) -> Result<Problem, InputError> {
    let mut bytes = Vec::new();
    reader.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(file, &e))?;
    if bytes.len() as u64 > LARGEST {
        return Err(InputError::file(
            file,
            format!("expected a snapshot of at most {LARGEST} bytes; record fewer events (max_entries)"),
        ));
    }
    let mut pickle = Pickle::read(&bytes).map_err(|refusal| InputError {
        file: file.into(),
        place: Some(Place::Byte(refusal.byte)),
        message: refusal.message,
    })?;
    let wrong = |message: String| InputError::file(file, message);
    let snapshot = pickle.take_dict(pickle.root);
    let under = |pickle: &Pickle<'_>, key| snapshot.as_ref().and_then(|snapshot| pickle.get(snapshot, key));
    let devices = under(&pickle, "device_traces")
        .and_then(|traces| pickle.take_list(traces))
        .ok_or_else(|| wrong("expected a memory snapshot: a dict with a list \"device_traces\"".into()))?;
    let traces: Vec<Vec<Entry>> = devices
        .iter()
        .enumerate()
        .map(|(device, &trace)| {
            let events =
                pickle.take_list(trace).ok_or_else(|| format!("device {device}: expected a list of events"))?;
            entries(&mut pickle, &events).map_err(|message| format!("device {device}: {message}"))
        })
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    let with_events: Vec<usize> = (0..traces.len()).filter(|&d| !traces[d].is_empty()).collect();
    let &[device] = with_events.as_slice() else {
        return Err(wrong(match with_events.as_slice() {
            [] => "expected events of a device, found none; was the history recorded (_record_memory_history)?".into(),
            several => {
                format!("expected events of one device, found those of {several:?}; record one device at a time")
            }
        }));
    };
    let mut recording = Recording::default();
    for entry in without_requests(&traces[device]) {
        let record = if entry.action == Action::Alloc { Recording::alloc } else { Recording::free };
        record(&mut recording, entry.time_ns, entry.address, entry.bytes).map_err(|fault: Fault| {
            wrong(format!(
                "device {device}, event {}: {}",
                entry.index,
                fault.explain(&format!("{:#x}", entry.address))
            ))
        })?;
    }
    let segments = under(&pickle, "segments").and_then(|segments| pickle.take_list(segments)).unwrap_or_default();
    for (address, bytes) in in_use(&mut pickle, &segments, device).map_err(wrong)? {
        recording.in_use(address, bytes);
    }
    if recording.is_empty() {
        return Err(wrong("expected an allocation, found none".into()));
    }
    recording.into_problem(file).map_err(|BadRow { message, .. }| wrong(message))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
}

/// An event that changes what is allocated.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its position in the file's list.
    index: usize,
    action: Action,
    address: u64,
    bytes: u64,
    time_ns: u64,
}

/// The events that change what is allocated; segments, snapshots and failures do not.
fn entries(pickle: &mut Pickle<'_>, events: &[Value]) -> Result<Vec<Entry>, String> {
    let mut found = Vec::new();
    for (index, &event) in events.iter().enumerate() {
        let broken = || format!("event {index}: expected a dict with an \"action\"");
        let event = pickle.take_dict(event).ok_or_else(broken)?;
        let action = match pickle.get(&event, "action").and_then(|a| pickle.text(a)).ok_or_else(broken)? {
            b"alloc" => Action::Alloc,
            b"free_requested" => Action::FreeRequested,
            b"free_completed" => Action::FreeCompleted,
            _ => continue,
        };
        let number = |key| {
            natural(pickle, &event, key).ok_or_else(|| format!("event {index}: expected a whole number \"{key}\""))
        };
        // Older snapshots have no times: the order of the events stands for them.
        let time_us = natural(pickle, &event, "time_us").unwrap_or(index as u64);
        let (address, bytes) = (number("addr")?, number("size")?);
        found.push(Entry { index, action, address, bytes, time_ns: time_us.saturating_mul(1000) });
    }
    Ok(found)
}

/// The events without the requests that were completed.
fn without_requests(entries: &[Entry]) -> Vec<Entry> {
    let mut completed = HashSet::new();
    let mut kept: Vec<Entry> = entries
        .iter()
        .rev()
        .filter(|entry| match entry.action {
            Action::Alloc => {
                completed.remove(&entry.address);
                true
            }
            Action::FreeRequested => !completed.remove(&entry.address),
            Action::FreeCompleted => completed.insert(entry.address),
        })
        .copied()
        .collect();
    kept.reverse();
    kept
}

/// Address and size of what the device's segments have in use.
fn in_use(pickle: &mut Pickle<'_>, segments: &[Value], device: usize) -> Result<Vec<(u64, u64)>, String> {
    let mut found = Vec::new();
    for (index, &segment) in segments.iter().enumerate() {
        let broken = || format!("segment {index}: expected an \"address\" and \"blocks\" with \"size\" and \"state\"");
        let segment = &pickle.take_dict(segment).ok_or_else(broken)?;
        if natural(pickle, segment, "device").is_some_and(|d| d != device as u64) {
            continue;
        }
        let mut address = natural(pickle, segment, "address").ok_or_else(broken)?;
        let blocks = pickle.get(segment, "blocks").and_then(|b| pickle.take_list(b)).ok_or_else(broken)?;
        for block in blocks {
            let block = &pickle.take_dict(block).ok_or_else(broken)?;
            let size = natural(pickle, block, "size").ok_or_else(broken)?;
            let state = pickle.get(block, "state").and_then(|s| pickle.text(s)).ok_or_else(broken)?;
            // Older snapshots leave the addresses out: the blocks fill the segment.
            address = natural(pickle, block, "address").unwrap_or(address);
            if state.starts_with(b"active") {
                found.push((address, natural(pickle, block, "requested_size").unwrap_or(size)));
            }
            address = address.saturating_add(size);
        }
    }
    Ok(found)
}

fn natural(pickle: &Pickle<'_>, dict: &Dict, key: &str) -> Option<u64> {
    match pickle.get(dict, key) {
        Some(Value::Int(n)) => u64::try_from(n).ok(),
        _ => None,
    }
}
