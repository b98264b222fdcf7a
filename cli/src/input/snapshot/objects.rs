//! The content of a memory snapshot, reduced while it is read.
//!
//! An event is a dict of ten items and a list of a hundred frames. Of the dict 32 bytes are kept, and of the list the
//! number of its stack, which many events share. Each text and each frame is kept once. So memory grows with the
//! events, however many frames they have.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::rc::Rc;

use super::pickle::{Build, NO_CONTAINER, Value, too_many};

/// The most memory for all objects, in bytes.
const MOST_BYTES: usize = 4 << 30;
/// The most bytes of text; further text is left out.
const MOST_TEXT: usize = 1 << 26;
/// The most frames of a stack; of a deeper stack only the innermost ones are kept.
const MOST_FRAMES: usize = 1000;
/// Stands for the time of an event that has none.
const NO_TIME: u64 = u64::MAX;

/// An object: containers and text as their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Object {
    Other,
    Text(u32),
    List(u32),
    Dict(u32),
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    /// The allocator reserves memory of the device.
    Reserve,
    /// The allocator releases memory to the device.
    Release,
    /// A request that could not be served; `address` is what was free on the device, in bytes.
    OutOfMemory,
    /// None of these.
    Nothing,
    /// An alloc or a free without an address.
    NoAddress,
    /// An alloc or a free without a size.
    NoSize,
}

/// An event of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) action: Action,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    time_us: u64,
    /// The stack of the call.
    pub(crate) stack: Stack,
}

impl Event {
    /// The time of the event; older snapshots have none.
    pub(crate) fn time_ns(&self) -> Option<u64> {
        (self.time_us != NO_TIME).then(|| self.time_us.saturating_mul(1000))
    }
}

/// The number of a stack of frames; the default is the empty stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stack(u32);

/// A frame of a stack: a place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    name: Object,
    file: Object,
    line: u64,
}

/// A part of the device's memory that the allocator has reserved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: Option<u64>,
    pub(super) device: Option<u64>,
    pub(super) bytes: u64,
    pub(super) blocks: Object,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) address: Option<u64>,
    pub(super) size: u64,
    /// The bytes that the program asked for, if the part is in use.
    pub(super) in_use: Option<u64>,
    pub(super) stack: Stack,
}

/// What a dict stands for.
#[derive(Clone, Copy, Debug)]
enum Record {
    Empty,
    Event(u32),
    Segment(u32),
    Part(u32),
    Frame(u32),
    /// The outermost dict, with `device_traces` and `segments`.
    Snapshot,
    /// None of these.
    Plain,
}

/// What a list holds.
#[derive(Debug)]
enum List {
    /// A list of frames, kept as a stack; or one that is still empty.
    Stack(Stack),
    #[expect(clippy::box_collection, reason = "a list takes 16 bytes, and most lists are stacks")]
    Items(Box<Vec<Object>>),
    /// Its items have been taken.
    Taken,
}

/// What was read so far.
pub(super) struct Objects {
    bytes: usize,
    text_bytes: usize,
    texts: Numbered<Rc<[u8]>>,
    frames: Numbered<Frame>,
    stacks: Numbered<Rc<[u32]>>,
    lists: Vec<List>,
    dicts: Vec<Record>,
    events: Vec<Event>,
    segments: Vec<Segment>,
    parts: Vec<Part>,
    /// `device_traces` and `segments` of the last dict that had them.
    snapshot: (Object, Object),
}

/// Values, each once, and the number of each.
struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn new(first: T) -> Self {
        Self { numbers: HashMap::from([(first.clone(), 0)]), values: vec![first] }
    }
}

/// Adds a value; returns its number.
fn push<T>(values: &mut Vec<T>, value: T) -> Result<u32, String> {
    let number = u32::try_from(values.len()).map_err(|_| too_many())?;
    values.push(value);
    Ok(number)
}

/// The items of a dict that are used.
#[derive(Default)]
struct Items {
    action: Option<Object>,
    addr: Option<u64>,
    address: Option<u64>,
    blocks: Option<Object>,
    device: Option<u64>,
    device_free: Option<u64>,
    device_traces: Option<Object>,
    filename: Option<Object>,
    frames: Option<Object>,
    line: Option<u64>,
    name: Option<Object>,
    requested_size: Option<u64>,
    segments: Option<Object>,
    size: Option<u64>,
    state: Option<Object>,
    time_us: Option<u64>,
    total_size: Option<u64>,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self {
            bytes: 0,
            text_bytes: 0,
            texts: Numbered::new(Rc::from(&b""[..])),
            frames: Numbered::new(Frame { name: Object::Other, file: Object::Other, line: 0 }),
            stacks: Numbered::new(Rc::from(&[][..])),
            lists: Vec::new(),
            dicts: Vec::new(),
            events: Vec::new(),
            segments: Vec::new(),
            parts: Vec::new(),
            snapshot: (Object::Other, Object::Other),
        }
    }

    /// `device_traces` and `segments`, if this object is the dict that has them.
    pub(super) fn snapshot(&self, root: &Value<Object>) -> Option<(Object, Object)> {
        matches!(self.record(root), Some(Record::Snapshot)).then_some(self.snapshot)
    }

    /// Takes the items of a list out of it; this works once.
    pub(super) fn take(&mut self, list: Object) -> Option<Vec<Object>> {
        let Object::List(i) = list else { return None };
        match mem::replace(self.lists.get_mut(i as usize)?, List::Taken) {
            List::Items(items) => Some(*items),
            List::Stack(stack) => Some(vec![Object::Other; self.stack(stack).len()]),
            List::Taken => None,
        }
    }

    pub(super) fn event(&self, object: Object) -> Option<Event> {
        match self.record(&Value::Object(object))? {
            Record::Event(i) => self.events.get(i as usize).copied(),
            _ => None,
        }
    }

    pub(super) fn segment(&self, object: Object) -> Option<Segment> {
        match self.record(&Value::Object(object))? {
            Record::Segment(i) => self.segments.get(i as usize).copied(),
            _ => None,
        }
    }

    pub(super) fn part(&self, object: Object) -> Option<Part> {
        match self.record(&Value::Object(object))? {
            Record::Part(i) => self.parts.get(i as usize).copied(),
            _ => None,
        }
    }

    /// Frees all but the stacks, their frames and text.
    pub(super) fn forget(&mut self) {
        (self.lists, self.dicts, self.events) = Default::default();
        (self.segments, self.parts) = Default::default();
    }

    /// The frames of a stack, innermost first: file, line, name of the function.
    pub(super) fn places(&self, stack: Stack) -> impl Iterator<Item = (Cow<'_, str>, u64, Cow<'_, str>)> {
        let frames = self.stack(stack).iter().filter_map(|&i| self.frames.values.get(i as usize));
        frames.map(|frame| (self.told(frame.file), frame.line, self.told(frame.name)))
    }

    fn told(&self, text: Object) -> Cow<'_, str> {
        self.bytes_of(text).map_or("?".into(), String::from_utf8_lossy)
    }

    fn bytes_of(&self, text: Object) -> Option<&[u8]> {
        match text {
            Object::Text(i) => self.texts.values.get(i as usize).map(AsRef::as_ref),
            _ => None,
        }
    }

    fn stack(&self, Stack(number): Stack) -> &[u32] {
        self.stacks.values.get(number as usize).map_or(&[], AsRef::as_ref)
    }

    fn record(&self, value: &Value<Object>) -> Option<Record> {
        match value {
            Value::Object(Object::Dict(i)) => self.dicts.get(*i as usize).copied(),
            _ => None,
        }
    }

    /// Counts memory against the limit.
    fn take_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > MOST_BYTES { Err(too_many()) } else { Ok(()) }
    }

    fn add_to_list(&mut self, i: u32, items: &[Value<Object>]) -> Result<(), String> {
        let frames = items.iter().map(|item| match self.record(item) {
            Some(Record::Frame(frame)) => Some(frame),
            _ => None,
        });
        let frames: Option<Vec<u32>> = frames.collect();
        // A list of frames takes no more than the number of its stack.
        if frames.is_none() || matches!(self.lists.get(i as usize), Some(List::Items(_))) {
            self.take_bytes(size_of_val(items))?;
        }
        let list = self.lists.get_mut(i as usize).ok_or(NO_CONTAINER)?;
        let objects = items.iter().map(|item| match item {
            Value::Object(object) => *object,
            Value::Int(_) => Object::Other,
        });
        match (list, frames) {
            (List::Stack(stack), Some(frames)) => {
                let stack = *stack;
                let deeper = self.deeper(stack, &frames)?;
                self.lists[i as usize] = List::Stack(deeper);
            }
            (List::Items(list), _) => list.extend(objects),
            (list, _) => *list = List::Items(Box::new(objects.collect())),
        }
        Ok(())
    }

    /// The number of a stack with `outer` frames added on its outside.
    fn deeper(&mut self, stack: Stack, outer: &[u32]) -> Result<Stack, String> {
        let inner = self.stack(stack);
        let frames: Rc<[u32]> = inner.iter().chain(outer).take(MOST_FRAMES).copied().collect();
        if let Some(&number) = self.stacks.numbers.get(&frames) {
            return Ok(Stack(number));
        }
        self.take_bytes(size_of_val(&*frames) + 64)?;
        let number = push(&mut self.stacks.values, frames.clone())?;
        self.stacks.numbers.insert(frames, number);
        Ok(Stack(number))
    }

    fn items(&self, pairs: &[Value<Object>]) -> Items {
        let mut items = Items::default();
        for pair in pairs.chunks_exact(2) {
            let (Value::Object(key), value) = (pair[0], pair[1]) else { continue };
            let (natural, object) = match value {
                Value::Int(n) => (u64::try_from(n).ok(), None),
                Value::Object(object) => (None, Some(object)),
            };
            match self.bytes_of(key).unwrap_or_default() {
                b"action" => items.action = object,
                b"addr" => items.addr = natural,
                b"address" => items.address = natural,
                b"blocks" => items.blocks = object,
                b"device" => items.device = natural,
                b"device_free" => items.device_free = natural,
                b"device_traces" => items.device_traces = object,
                b"filename" => items.filename = object,
                b"frames" => items.frames = object,
                b"line" => items.line = natural,
                b"name" => items.name = object,
                b"requested_size" => items.requested_size = natural,
                b"segments" => items.segments = object,
                b"size" => items.size = natural,
                b"state" => items.state = object,
                b"time_us" => items.time_us = natural,
                b"total_size" => items.total_size = natural,
                _ => {}
            }
        }
        items
    }

    /// What a dict with these items stands for.
    fn recorded(&mut self, items: &Items) -> Result<Record, String> {
        let stack = match items.frames {
            Some(Object::List(i)) => match self.lists.get(i as usize) {
                Some(&List::Stack(stack)) => stack,
                _ => Stack::default(),
            },
            _ => Stack::default(),
        };
        if let Some(action) = items.action.and_then(|action| self.bytes_of(action)) {
            let event = event(action, items, stack);
            return push(&mut self.events, event).map(Record::Event);
        }
        if let Some(traces) = items.device_traces {
            self.snapshot = (traces, items.segments.unwrap_or(Object::Other));
            return Ok(Record::Snapshot);
        }
        if let Some(blocks) = items.blocks {
            let bytes = items.total_size.unwrap_or(0);
            let segment = Segment { address: items.address, device: items.device, bytes, blocks };
            return push(&mut self.segments, segment).map(Record::Segment);
        }
        if let (Some(state), Some(size)) = (items.state.and_then(|state| self.bytes_of(state)), items.size) {
            let in_use = state.starts_with(b"active").then(|| items.requested_size.unwrap_or(size));
            return push(&mut self.parts, Part { address: items.address, size, in_use, stack }).map(Record::Part);
        }
        if let (Some(name), Some(file)) = (items.name, items.filename) {
            let frame = Frame { name, file, line: items.line.unwrap_or(0) };
            if let Some(&number) = self.frames.numbers.get(&frame) {
                return Ok(Record::Frame(number));
            }
            self.take_bytes(128)?;
            let number = push(&mut self.frames.values, frame)?;
            self.frames.numbers.insert(frame, number);
            return Ok(Record::Frame(number));
        }
        Ok(Record::Plain)
    }
}

/// The event of a dict with an action.
fn event(action: &[u8], items: &Items, stack: Stack) -> Event {
    let needs = |action| match (items.addr, items.size) {
        (None, _) => Action::NoAddress,
        (_, None) => Action::NoSize,
        _ => action,
    };
    let action = match action {
        b"alloc" => needs(Action::Alloc),
        b"free_requested" => needs(Action::FreeRequested),
        b"free_completed" => needs(Action::FreeCompleted),
        b"segment_alloc" | b"segment_map" => Action::Reserve,
        b"segment_free" | b"segment_unmap" => Action::Release,
        b"oom" => Action::OutOfMemory,
        _ => Action::Nothing,
    };
    Event {
        action,
        address: items.addr.or(items.device_free).unwrap_or(0),
        bytes: items.size.unwrap_or(0),
        time_us: items.time_us.unwrap_or(NO_TIME),
        stack,
    }
}

impl Build for Objects {
    type Object = Object;
    const OTHER: Object = Object::Other;

    fn text(&mut self, text: &[u8]) -> Result<Object, String> {
        if let Some(&number) = self.texts.numbers.get(text) {
            return Ok(Object::Text(number));
        }
        self.text_bytes += text.len() + 64;
        if self.text_bytes > MOST_TEXT {
            return Ok(Object::Other);
        }
        let text: Rc<[u8]> = text.into();
        let number = push(&mut self.texts.values, text.clone())?;
        self.texts.numbers.insert(text, number);
        Ok(Object::Text(number))
    }

    fn list(&mut self) -> Result<Object, String> {
        self.take_bytes(size_of::<List>())?;
        push(&mut self.lists, List::Stack(Stack::default())).map(Object::List)
    }

    fn dict(&mut self) -> Result<Object, String> {
        self.take_bytes(size_of::<Record>() + size_of::<Event>())?;
        push(&mut self.dicts, Record::Empty).map(Object::Dict)
    }

    fn add(&mut self, to: Object, items: &[Value<Object>]) -> Result<(), String> {
        match to {
            Object::List(i) => self.add_to_list(i, items),
            Object::Dict(i) => match self.dicts.get(i as usize) {
                Some(Record::Empty | Record::Plain) => {
                    let record = self.recorded(&self.items(items))?;
                    self.dicts[i as usize] = record;
                    Ok(())
                }
                _ => Err("expected a dict that gets its items at once".into()),
            },
            _ => Err(NO_CONTAINER.into()),
        }
    }
}
