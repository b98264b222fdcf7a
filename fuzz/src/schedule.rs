//! A naive judge of rewritten traces: executes the original and the rewritten trace row by row, with one number in each
//! block, and compares what they compute.
//!
//! What an operator writes is a hash of the numbers that it reads. Persistent blocks that it updates (reads and writes,
//! as running statistics) do not count for what it writes to other blocks. Rows that recompute an operator execute it
//! again.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash, Hasher};

use sublet_core::trace::{Event, Kind, Op, Recorded, Row};

/// Whether the rows can follow each other: times do not decrease, block numbers are below `blocks`, blocks have one
/// size each, and are used only while they are allocated.
pub fn well_formed(rows: &[Row], blocks: usize) -> bool {
    let (mut allocated, mut size) = (HashSet::new(), HashMap::new());
    rows.is_sorted_by_key(|r| r.time_ns)
        && rows.iter().all(|r| {
            let mut same_size = || r.bytes > 0 && *size.entry(r.block).or_insert(r.bytes) == r.bytes;
            (r.block as usize) < blocks
                && match r.event {
                    Event::Malloc => allocated.insert(r.block) && same_size(),
                    Event::Free => allocated.remove(&r.block),
                    _ => allocated.contains(&r.block),
                }
        })
}

/// Whether well-formed rows can be a recorded trace: it has no copies, allocates each block once, and the accesses of
/// an operator stand together.
pub fn recorded(rows: &[Row]) -> bool {
    let mut seen = HashSet::new();
    let once = rows.iter().filter(|r| r.event == Event::Malloc).all(|r| seen.insert(r.block));
    let mut done = HashSet::new();
    let mut accesses = rows.iter().filter(|r| r.event.is_access()).map(|r| r.op).collect::<Vec<_>>();
    accesses.dedup();
    let whole = accesses.iter().filter(|&&op| op != Op::None).all(|&op| done.insert(op));
    once && whole && !rows.iter().any(|r| matches!(r.event, Event::SwapIn | Event::SwapOut))
}

/// Whether `rewritten` computes what `recorded` computes; `None` if not. `rewritten` must be [`well_formed`], and
/// `recorded` also [`recorded`]. Returns the pairs of residencies of which one takes over the other's memory in place:
/// first the giver, then the taker.
#[must_use]
pub fn computes_the_same(recorded: &Recorded<'_>, rewritten: &[Row], cyclic: bool) -> Option<Vec<[usize; 2]>> {
    let mut machine = Machine::new(recorded, cyclic);
    for (i, r) in rewritten.iter().enumerate() {
        let above = i.checked_sub(1).and_then(|i| rewritten.get(i));
        machine.row(r, above, rewritten.get(i + 1))?;
    }
    machine.has_ended().then_some(machine.handed_over)
}

fn number(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn initial(block: u32) -> u64 {
    number(("initial", block))
}

/// What a run of an operator has read so far, and what it writes.
struct Work {
    op: Op,
    /// The persistent blocks that the operator reads and writes.
    updated: HashSet<u32>,
    /// A hash of all that the operator has read.
    all: u64,
    /// A hash of what the operator has read of blocks that are not in `updated`.
    others: u64,
}

impl Work {
    fn new(op: Op, accesses: &[&Row], persistent: &HashSet<u32>) -> Self {
        let blocks = |event| accesses.iter().filter(move |r| r.event == event).map(|r| r.block);
        let written: HashSet<u32> = blocks(Event::Write).collect();
        let updated = blocks(Event::Read).filter(|b| written.contains(b) && persistent.contains(b)).collect();
        Self { op, updated, all: 0, others: 0 }
    }

    fn read(&mut self, block: u32, value: Option<u64>) {
        self.all = number((self.all, block, value));
        if !self.updated.contains(&block) {
            self.others = number((self.others, block, value));
        }
    }

    fn write(&self, block: u32) -> u64 {
        match self.op {
            // A write outside of operators: what it depends on is not known.
            Op::None => number(block),
            op => number((op, block, if self.updated.contains(&block) { self.all } else { self.others })),
        }
    }
}

/// A run of an operator in the rewritten trace that has begun and not ended.
struct Open {
    work: Work,
    again: bool,
    /// Whether the operator has read a block whose value is not known.
    on_nothing: bool,
    /// The blocks that the run has written so far.
    wrote: Vec<u32>,
    /// The accesses of the run that are still to come, as rows of the recording.
    todo: VecDeque<usize>,
    /// What the operator allocates and frees between its accesses in the recording, in that order.
    own: Vec<(Event, u32)>,
    /// How far the run has come in `own` with its frees: 1 + the place of the last that it has done.
    freed: usize,
    /// If the operator may work in place: the input that it may write over, and the output.
    in_place: Option<(u32, u32)>,
}

struct Machine<'a> {
    recorded: Recorded<'a>,
    cyclic: bool,
    size: HashMap<u32, u64>,
    persistent: HashSet<u32>,
    /// The accesses of the recording, as rows.
    accesses: Vec<usize>,
    /// For each read of the recording, by its row, the value that it sees.
    seen: HashMap<usize, Option<u64>>,
    /// All values that the recording writes.
    made: HashSet<u64>,
    /// The values of the blocks at the end of the recording.
    last: HashMap<u32, u64>,

    /// For each block on the device, the number of its residency.
    resident: HashMap<u32, usize>,
    /// For each block, the number of its last residency that has ended.
    was: HashMap<u32, usize>,
    residencies: usize,
    value: HashMap<u32, u64>,
    host: HashMap<u32, Option<u64>>,
    at_start: HashSet<u32>,
    initial_copy_used: HashSet<u32>,
    /// Whether any block has been read, written or copied so far.
    used: bool,
    /// The accesses of the recording that the first runs of operators have made so far, as rows.
    ran: HashSet<usize>,
    open: Option<Open>,
    /// The operator of the last access.
    latest: Op,
    handed_over: Vec<[usize; 2]>,
}

impl<'a> Machine<'a> {
    /// Executes the recording, and makes a machine that has run no row of the rewritten trace yet.
    fn new(recorded: &Recorded<'a>, cyclic: bool) -> Self {
        let rows = recorded.rows;
        let freed: HashSet<u32> = rows.iter().filter(|r| r.event == Event::Free).map(|r| r.block).collect();
        let mallocs = || rows.iter().filter(|r| r.event == Event::Malloc);
        let persistent: HashSet<u32> =
            mallocs().filter(|r| r.time_ns == 0 && !freed.contains(&r.block)).map(|r| r.block).collect();
        let accesses: Vec<usize> = (0..rows.len()).filter(|&i| rows[i].event.is_access()).collect();
        let (mut seen, mut made) = (HashMap::new(), HashSet::new());
        let mut last: HashMap<u32, u64> = persistent.iter().map(|&b| (b, initial(b))).collect();
        let mut work: Option<Work> = None;
        for (i, r) in rows.iter().enumerate() {
            if r.event.is_access() && (r.op == Op::None || work.as_ref().is_none_or(|w| w.op != r.op)) {
                let all: Vec<&Row> = rows.iter().filter(|other| other.event.is_access() && other.op == r.op).collect();
                work = Some(Work::new(r.op, &all, &persistent));
            }
            match (r.event, &mut work) {
                (Event::Read, Some(work)) => {
                    seen.insert(i, last.get(&r.block).copied());
                    work.read(r.block, last.get(&r.block).copied());
                }
                (Event::Write, Some(work)) => {
                    made.insert(work.write(r.block));
                    last.insert(r.block, work.write(r.block));
                }
                (Event::Free, _) => drop(last.remove(&r.block)),
                _ => {}
            }
        }
        Self {
            recorded: *recorded,
            cyclic,
            size: mallocs().map(|r| (r.block, r.bytes)).collect(),
            persistent,
            accesses,
            seen,
            made,
            last,
            resident: HashMap::new(),
            was: HashMap::new(),
            residencies: 0,
            value: HashMap::new(),
            host: HashMap::new(),
            at_start: HashSet::new(),
            initial_copy_used: HashSet::new(),
            used: false,
            ran: HashSet::new(),
            open: None,
            latest: Op::None,
            handed_over: Vec::new(),
        }
    }

    /// The block whose mask has this number; `None` if it is no number of a mask.
    fn masked(&self, number: u32) -> Option<u32> {
        let blocks = u32::try_from(self.recorded.blocks).ok()?;
        number.checked_sub(blocks).filter(|&b| b < blocks)
    }

    /// How many bytes of a block one byte of its mask stands for: eight elements, each of at most 4 bytes.
    fn elements_of_a_byte(&self, block: u32) -> u128 {
        let touching = self.recorded.rows.iter().filter(|r| r.event.is_access() && r.block == block);
        let operators = touching.map(|r| self.recorded.operator(r.op)).filter(|o| o.kind == Kind::Relu);
        operators.map(|o| 8 * u128::from(o.element)).fold(32, u128::min)
    }

    fn row(&mut self, r: &Row, above: Option<&Row>, below: Option<&Row>) -> Option<()> {
        let (b, mask) = (r.block, self.masked(r.block));
        let known = *self.size.get(&mask.unwrap_or(b))?;
        let fine = match (r.event, mask) {
            (Event::Malloc, None) => r.bytes == known && !self.resident.contains_key(&b),
            (Event::Malloc, Some(block)) => {
                u128::from(r.bytes) * self.elements_of_a_byte(block) >= known.into() && !self.resident.contains_key(&b)
            }
            _ => self.resident.contains_key(&b),
        };
        if !fine {
            return None;
        }
        if r.event.is_access() {
            return match mask {
                Some(block) if r.event == Event::Write && self.open.is_none() => self.write_mask(r, block),
                _ => self.access(r, mask),
            };
        }
        if let Some(mut open) = self.open.take() {
            self.stands_inside(&mut open, r, above, below).then_some(())?;
            self.open = Some(open);
        }
        match r.event {
            Event::Malloc => {
                let giver = above.filter(|a| a.event == Event::Free).map(|a| a.block);
                let in_place = self.open.as_ref().filter(|o| mask.is_some() || !o.own.contains(&(r.event, b)));
                if let (Some(_), Some(giver)) = (in_place, giver) {
                    self.handed_over.push([self.was[&giver], self.residencies]);
                }
                self.resident.insert(b, self.residencies);
                self.residencies += 1;
                if self.persistent.contains(&b) && !self.used && self.at_start.insert(b) {
                    self.value.insert(b, initial(b));
                }
            }
            Event::Free => {
                self.was.insert(b, self.resident.remove(&b)?);
                self.value.remove(&b);
            }
            Event::SwapOut => {
                self.used = true;
                self.host.insert(b, self.value.get(&b).copied());
            }
            _ => {
                self.used = true;
                let back = match self.host.get(&b) {
                    Some(&kept) => kept?,
                    None if self.cyclic && self.persistent.contains(&b) => {
                        self.initial_copy_used.insert(b);
                        initial(b)
                    }
                    None => return None,
                };
                self.value.insert(b, back);
            }
        }
        Some(())
    }

    /// Whether a row that is no access may stand between the accesses of an operator: a malloc or free that stands there
    /// in the recording, unless the malloc comes after a free that it preceded, or one of the two rows by which the
    /// operator works in place.
    fn stands_inside(&self, open: &mut Open, r: &Row, above: Option<&Row>, below: Option<&Row>) -> bool {
        if matches!(r.event, Event::SwapOut | Event::SwapIn) {
            return false;
        }
        if let Some(place) = open.own.iter().position(|&own| own == (r.event, r.block)) {
            if r.event == Event::Free {
                open.freed = open.freed.max(place + 1);
            }
            return r.event == Event::Free || place >= open.freed;
        }
        let Some((from, to)) = open.in_place else { return false };
        let is = |r: Option<&Row>, event, block| r.is_some_and(|r| (r.event, r.block) == (event, block));
        let has_read = open.todo.iter().all(|&i| self.recorded.rows[i].event != Event::Read);
        has_read
            && (is(Some(r), Event::Free, from) && is(below, Event::Malloc, to)
                || is(Some(r), Event::Malloc, to) && is(above, Event::Free, from))
    }

    /// Executes the write of a block's mask, which must come right after a ReLU that accesses the block; `None` if it
    /// does not.
    fn write_mask(&mut self, r: &Row, block: u32) -> Option<()> {
        let (Op::First(k) | Op::Rerun(k)) = r.op else { return None };
        let touches = |row: &Row| row.event.is_access() && row.op == Op::First(k) && row.block == block;
        let is_relu = self.recorded.operator(r.op).kind == Kind::Relu && self.recorded.rows.iter().any(touches);
        if r.op != self.latest || !is_relu {
            return None;
        }
        match self.value.get(&block).copied() {
            Some(signs) => drop(self.value.insert(r.block, signs)),
            None => drop(self.value.remove(&r.block)),
        }
        Some(())
    }

    fn access(&mut self, r: &Row, mask: Option<u32>) -> Option<()> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(r.op)?,
        };
        let row = open.todo.pop_front()?;
        let expected = &self.recorded.rows[row];
        let op = match expected.op {
            Op::First(k) if open.again => Op::Rerun(k),
            op => op,
        };
        let signs_do = self.recorded.operator(op).kind == Kind::ReluBackward && r.event == Event::Read;
        let by_mask = mask == Some(expected.block) && signs_do;
        if (r.event, r.op) != (expected.event, op) || !(r.block == expected.block || by_mask) {
            return None;
        }
        let value = self.value.get(&r.block).copied();
        if r.event == Event::Read {
            let other = value != self.seen[&row] || by_mask && value.is_none();
            if !open.again && op != Op::None && other {
                return None;
            }
            open.on_nothing |= value.is_none();
            if open.again && (other || value.is_none()) {
                // What it has written is of no use either.
                self.value.retain(|block, _| !open.wrote.contains(block));
            }
            open.work.read(expected.block, value);
        } else {
            let written = open.work.write(r.block);
            open.wrote.push(r.block);
            // A recomputation on other inputs writes a value that the recording does not know.
            if open.again && (open.on_nothing || !self.made.contains(&written)) {
                self.value.remove(&r.block);
            } else {
                self.value.insert(r.block, written);
            }
        }
        self.used = true;
        if !open.again {
            self.ran.insert(row);
        }
        self.latest = r.op;
        self.open = Some(open).filter(|open| !open.todo.is_empty());
        Some(())
    }

    /// Begins the operator of the next access; `None` if it must not run now.
    fn begin(&self, op: Op) -> Option<Open> {
        let Recorded { rows, .. } = self.recorded;
        let again = matches!(op, Op::Rerun(_));
        let first = match op {
            Op::Rerun(k) | Op::First(k) => *self.accesses.iter().find(|&&i| rows[i].op == Op::First(k))?,
            Op::None => *self.accesses.iter().find(|&&i| rows[i].op == Op::None && !self.ran.contains(&i))?,
        };
        let keeps_place = |i: usize| rows[i].op == Op::None || self.recorded.operator(rows[i].op).ordered;
        let is_behind = |&&i: &&usize| i < first && keeps_place(i) && !self.ran.contains(&i);
        if !again && (self.ran.contains(&first) || keeps_place(first) && self.accesses.iter().any(|i| is_behind(&i))) {
            return None;
        }
        let label = rows[first].op;
        let mut todo: VecDeque<usize> =
            self.accesses.iter().copied().filter(|&i| rows[i].op == label && label != Op::None || i == first).collect();
        let end = *todo.back()?;
        let inside = rows[first..end].iter().filter(|r| !r.event.is_access());
        let own: Vec<(Event, u32)> = inside.map(|r| (r.event, r.block)).collect();
        let is_own = |b: &u32| own.iter().any(|(_, block)| block == b);
        let foreign = |event| todo.iter().map(|&i| &rows[i]).filter(move |r| r.event == event).map(|r| r.block);
        let from = foreign(Event::Read).find(|b| !is_own(b));
        let to = foreign(Event::Write).find(|b| !is_own(b));
        let fits = |&(from, to): &(u32, u32)| from != to && self.size.get(&from) == self.size.get(&to);
        let in_place = from.zip(to).filter(fits).filter(|_| self.recorded.operator(op).in_place);
        let all: Vec<&Row> = todo.iter().map(|&i| &rows[i]).collect();
        let work = Work::new(label, &all, &self.persistent);
        if again {
            if !self.recorded.operator(op).rerun {
                return None;
            }
            todo.retain(|&i| !work.updated.contains(&rows[i].block));
        }
        Some(Open { work, again, on_nothing: false, wrote: Vec::new(), todo, own, freed: 0, in_place })
    }

    fn has_ended(&self) -> bool {
        let restored = |&b: &u32| {
            let last = self.last.get(&b).copied();
            let on_device = self.resident.contains_key(&b) && self.value.get(&b).copied() == last;
            let on_host = self.host.get(&b).copied().unwrap_or(Some(initial(b))) == last;
            if self.at_start.contains(&b) {
                on_device && (on_host || !self.initial_copy_used.contains(&b))
            } else {
                self.cyclic && on_host
            }
        };
        self.open.is_none() && self.ran.len() == self.accesses.len() && self.persistent.iter().all(restored)
    }
}
