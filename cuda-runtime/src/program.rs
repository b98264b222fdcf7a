//! A verified schedule as steps on streams: launches, copies, and what each of them waits for.
//!
//! A [`Program`] is made once. Every run of an operator is a step on the compute stream, and so is every access that
//! belongs to no operator, and every mask that the launch of its operator cannot write. Every copy of the schedule is a
//! step on the stream of its direction. Mallocs and frees are no steps: they only decide the addresses, and which steps
//! wait for which ([`waits`](crate::waits)).
//!
//! A persistent block is one whose value passes to the next iteration. At the end of an iteration it may lie at another
//! address than the one at which the next iteration needs it. Then it is copied between the two iterations, by steps on
//! the compute stream: directly if its new place is free, or by way of other free bytes of the arena, as when two
//! blocks change places. It is copied by way of the host only if the arena has no such bytes.
//!
//! Offsets on the host are in bytes from the start of the memory, or the disk, that holds the copies of blocks there.

use std::collections::HashMap;

use sublet_core::VerifiedSchedule;
use sublet_core::trace::{Event, Op, Recorded, Row};

use crate::error::{Error, Result};
use crate::measure::Simulated;
use crate::moves::{self, Move, Pending, Spot};
use crate::pace::{self, Pace};
use crate::pinned::HostPlan;
use crate::step::{COMPUTE, IN, OUT, Operand, PAGE, Part, Step, Work};
use crate::waits::{self, Footprint, LANES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) block: u32,
    pub(crate) bytes: u64,
    /// In bytes, when the iteration begins; `None` if the value is only on the host.
    pub(crate) on_device: Option<u64>,
    /// In bytes; `None` if the iteration does not read the value there.
    pub(crate) on_host: Option<u64>,
    pub(crate) after: Residence,
}

impl Home {
    pub(crate) fn on_device(&self) -> Option<u64> {
        match self.after {
            Residence::Device(offset) => Some(self.on_device.unwrap_or(offset)),
            Residence::Host(_) => self.on_device,
        }
    }

    /// A value may be kept on the host although the next iteration does not read it there.
    pub(crate) fn on_host(&self) -> Option<u64> {
        match self.after {
            Residence::Host(place) => Some(self.on_host.unwrap_or(place)),
            Residence::Device(_) => self.on_host,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Residence {
    Device(u64),
    Host(u64),
}

/// An iteration as a list of steps, launches and copies on streams, with the waits between them. A
/// [`Runtime`](crate::Runtime) repeats it.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) steps: Vec<Step>,
    /// A number above the step's own is of the iteration before. Later iterations wait as the last.
    pub(crate) waits: Vec<Vec<Vec<u32>>>,
    pub(crate) awaited: Vec<bool>,
    pub(crate) homes: Vec<Home>,
    pub(crate) arena: u64,
    pub(crate) alignment: u64,
    /// In bytes. Copies that are not needed at the same time share them.
    pub(crate) host: u64,
    pub(crate) rows: u32,
    pub(crate) simulated: Simulated,
}

impl Program {
    /// Turns a verified schedule into a program. `recorded` is the recorded trace that the schedule was made for. The
    /// plan's offsets have to be multiples of `alignment` bytes.
    ///
    /// # Errors
    /// [`Error::Misaligned`] if an offset is no such multiple, or `alignment` is 0; [`Error::Plan`] if the copies on
    /// the host cannot be placed.
    pub fn new(recorded: &Recorded<'_>, schedule: &VerifiedSchedule<'_>, alignment: u64) -> Result<Self> {
        Self::paced(recorded, schedule, alignment, Pace::Eager)
    }

    /// Turns a verified schedule into a program whose copies between device and host begin as `paced` says: as soon as
    /// they can, or as in the simulation. `recorded` is the recorded trace that the schedule was made for. The plan's
    /// offsets have to be multiples of `alignment` bytes.
    ///
    /// # Errors
    /// [`Error::Misaligned`] if an offset is no such multiple, or `alignment` is 0; [`Error::Plan`] if the copies on
    /// the host cannot be placed.
    pub fn paced(
        recorded: &Recorded<'_>,
        schedule: &VerifiedSchedule<'_>,
        alignment: u64,
        paced: Pace,
    ) -> Result<Self> {
        let blocks = schedule.plan().blocks();
        let offsets = schedule.plan().offsets();
        for (name, &offset) in schedule.names().iter().zip(offsets) {
            if alignment == 0 || offset % alignment != 0 {
                return Err(Error::Misaligned { block: name.block, offset, alignment });
            }
        }
        let mut sizes = vec![0; 2 * recorded.blocks];
        for (name, block) in schedule.names().iter().zip(blocks) {
            sizes[name.block as usize] = block.size;
        }
        let persistent = persistent(recorded);
        let mut reader = Reader::new(recorded, &persistent, schedule);
        reader.read();
        let Reader { mut steps, ends, resident, .. } = reader;
        let resident: Vec<Option<u64>> =
            resident.iter().map(|residency| residency.map(|residency| offsets[residency])).collect();
        let rows = schedule.rows();
        let kept = |b: u32| {
            let Ends { on_device_first, on_host_last, .. } = ends[b as usize];
            persistent.get(b as usize) == Some(&true) && (on_host_last || !on_device_first)
        };
        let mut host = HostPlan::find((rows, schedule.timings()), sizes.len(), &sizes, kept);
        let homes = homes(&persistent, &sizes, &ends, &resident, &host);
        let end = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        let arena = schedule.plan().peak();
        let moves = moves(&homes, &mut host, end, (arena, alignment));
        host.place(PAGE)?;
        let place = |residency: usize| host.places[residency];
        for step in &mut steps {
            let residency = host.of_row.get(step.row as usize).copied().flatten();
            match (&mut step.work, residency) {
                (Work::Out { to, .. }, Some(residency)) => *to = place(residency),
                (Work::In { from, .. }, Some(residency)) => *from = place(residency),
                _ => {}
            }
        }
        for Move { from, to, bytes } in moves {
            let work = match (from, to) {
                (Spot::Device(from), Spot::Device(to)) => Work::Move { from, to, bytes },
                (Spot::Device(from), Spot::Host(residency)) => Work::Out { from, to: place(residency), bytes },
                (Spot::Host(residency), Spot::Device(to)) => Work::In { from: place(residency), to, bytes },
                (Spot::Host(_), Spot::Host(_)) => continue,
            };
            steps.push(Step { lane: COMPUTE, work, row: end });
        }
        let homes = homes
            .into_iter()
            .map(|home| Home {
                block: home.block,
                bytes: home.bytes,
                on_device: home.on_device,
                on_host: home.on_host.map(place),
                after: match (home.on_device, home.after) {
                    (Some(offset), _) | (None, Spot::Device(offset)) => Residence::Device(offset),
                    (None, Spot::Host(residency)) => Residence::Host(place(residency)),
                },
            })
            .collect();
        let mut footprints: Vec<Footprint> = steps.iter().map(|step| footprint(step, arena)).collect();
        if paced == Pace::Simulated {
            for (footprint, after) in footprints.iter_mut().zip(pace::simulated(rows, &steps, sizes.len())) {
                footprint.after = after;
            }
        }
        let waits = waits::plan(&footprints);
        let mut awaited = vec![false; steps.len()];
        for &step in waits.iter().flatten().flatten() {
            awaited[step as usize] = true;
        }
        let kinds = steps.iter().map(|step| (step.row, matches!(step.work, Work::Launch { .. })));
        let simulated = Simulated::new(schedule.run(), rows, schedule.timings(), kinds);
        Ok(Self { steps, waits, awaited, homes, arena, alignment, host: host.bytes, rows: end, simulated })
    }

    /// The length of the arena that the program needs, in bytes.
    #[must_use]
    pub const fn arena_bytes(&self) -> u64 {
        self.arena
    }

    /// How many bytes are needed on the host (or a disk) for the copies of blocks there. Copies that are not needed at
    /// the same time share bytes.
    #[must_use]
    pub const fn host_bytes(&self) -> u64 {
        self.host
    }

    /// How many times a step waits for a step of another stream in one iteration, summed over all steps. `iteration`
    /// is the iteration's number: 0 is the first one, which has no iteration before it to wait for.
    #[must_use]
    pub fn wait_count(&self, iteration: u64) -> usize {
        self.waits_of(iteration).iter().map(Vec::len).sum()
    }

    /// How many bytes are copied between two iterations, because persistent blocks end an iteration at other places
    /// than where the next iteration needs them. The first number counts the bytes copied within the device. The second
    /// counts the bytes copied to or from the host: a block that goes to the host and back counts twice.
    #[must_use]
    pub fn moved_bytes(&self) -> [u64; 2] {
        let mut moved = [0, 0];
        for step in self.steps.iter().filter(|step| step.row == self.rows) {
            match step.work {
                Work::Launch { .. } => {}
                Work::Move { bytes, .. } => moved[0] += bytes,
                Work::Out { bytes, .. } | Work::In { bytes, .. } => moved[1] += bytes,
            }
        }
        moved
    }

    /// The numbers of the blocks whose value passes from one iteration to the next: persistent blocks that the
    /// iteration uses.
    pub fn persistent_blocks(&self) -> impl Iterator<Item = u32> {
        self.homes.iter().map(|home| home.block)
    }

    pub(crate) fn waits_of(&self, iteration: u64) -> &[Vec<u32>] {
        let last = self.waits.len().saturating_sub(1);
        let index = usize::try_from(iteration).unwrap_or(usize::MAX).min(last);
        self.waits.get(index).map_or(&[], Vec::as_slice)
    }
}

fn persistent(recorded: &Recorded<'_>) -> Vec<bool> {
    let mut persistent = vec![false; recorded.blocks];
    for r in recorded.rows {
        match (r.event, persistent.get_mut(r.block as usize)) {
            (Event::Malloc, Some(cell)) => *cell = r.time_ns == 0,
            (Event::Free, Some(cell)) => *cell = false,
            _ => {}
        }
    }
    persistent
}

/// The bytes of the arena come first, from 0 to `arena`, then those of the host.
fn footprint(step: &Step, arena: u64) -> Footprint {
    let on_host = |at: u64, bytes: u64| {
        // Sums beyond 64 bits are refused when the memory is reserved.
        let start = arena.saturating_add(at);
        start..start.saturating_add(bytes)
    };
    let on_device = |offset: u64, bytes: u64| offset..offset + bytes;
    let ranges = match &step.work {
        Work::Launch { operands, .. } => operands.iter().map(|o| (on_device(o.offset, o.bytes), o.write)).collect(),
        Work::Out { from, to, bytes } => vec![(on_device(*from, *bytes), false), (on_host(*to, *bytes), true)],
        Work::In { from, to, bytes } => vec![(on_host(*from, *bytes), false), (on_device(*to, *bytes), true)],
        Work::Move { from, to, bytes } => vec![(on_device(*from, *bytes), false), (on_device(*to, *bytes), true)],
    };
    debug_assert!(step.lane < LANES);
    Footprint { lane: step.lane, ranges, after: Vec::new() }
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    /// The offset before the first access or copy of any block.
    start: Option<u64>,
    /// The offset at the first use, unless that replaces the value.
    on_device: Option<u64>,
    touched: bool,
    /// If not, its value is on the host between iterations, as the verifier has proved.
    on_device_first: bool,
    on_host_last: bool,
}

struct Reader<'r> {
    recorded: &'r Recorded<'r>,
    schedule: &'r VerifiedSchedule<'r>,
    steps: Vec<Step>,
    ends: Vec<Ends>,
    /// By block: its present live range, as an index into the plan's blocks.
    resident: Vec<Option<usize>>,
    residencies: usize,
    accesses: Accesses,
    open: Option<(Op, usize)>,
}

/// For each operator: when it first runs, and when it is recomputed.
struct Accesses(HashMap<u32, [usize; 2]>);

impl Accesses {
    fn new(recorded: &Recorded<'_>, persistent: &[bool]) -> Self {
        let mut of: HashMap<u32, Vec<&Row>> = HashMap::new();
        for r in recorded.rows.iter().filter(|r| r.event.is_access()) {
            if let Op::First(k) = r.op {
                of.entry(k).or_default().push(r);
            }
        }
        // A recomputation leaves out the persistent blocks that the operator updates.
        let count = |rows: &[&Row]| {
            let does = |block: u32, event| rows.iter().any(|r| r.block == block && r.event == event);
            let updated = |b: u32| persistent[b as usize] && does(b, Event::Read) && does(b, Event::Write);
            [rows.len(), rows.iter().filter(|r| !updated(r.block)).count()]
        };
        Self(of.iter().map(|(&k, rows)| (k, count(rows))).collect())
    }

    fn of(&self, op: Op) -> usize {
        let known = |k: u32| self.0.get(&k).copied().unwrap_or([1, 1]);
        match op {
            Op::None => 1,
            Op::First(k) => known(k)[0],
            Op::Rerun(k) => known(k)[1],
        }
    }
}

impl<'r> Reader<'r> {
    fn new(recorded: &'r Recorded<'r>, persistent: &[bool], schedule: &'r VerifiedSchedule<'r>) -> Self {
        let numbers = 2 * recorded.blocks;
        Self {
            recorded,
            schedule,
            steps: Vec::new(),
            ends: vec![Ends::default(); numbers],
            resident: vec![None; numbers],
            residencies: 0,
            accesses: Accesses::new(recorded, persistent),
            open: None,
        }
    }

    fn read(&mut self) {
        for (row, r) in (0u32..).zip(self.schedule.rows()) {
            let number = r.block as usize;
            match r.event {
                Event::Malloc => {
                    self.resident[number] = Some(self.residencies);
                    self.residencies += 1;
                    if self.steps.is_empty() {
                        self.ends[number].start = self.place(r.block).map(|(offset, _)| offset);
                        self.ends[number].on_device_first = true;
                    }
                }
                Event::Free => {
                    self.resident[number] = None;
                    if self.steps.is_empty() {
                        self.ends[number].start = None;
                    }
                }
                Event::Read | Event::Write => self.access(row, r),
                Event::SwapOut | Event::SwapIn => self.copy(row, r),
            }
        }
    }

    fn place(&self, number: u32) -> Option<(u64, u64)> {
        let residency = self.resident[number as usize]?;
        let plan = self.schedule.plan();
        Some((plan.offsets()[residency], plan.blocks()[residency].size))
    }

    fn copy(&mut self, row: u32, r: &Row) {
        let Some((offset, bytes)) = self.place(r.block) else { return };
        self.ends[r.block as usize].on_host_last = true;
        // Places on the host are planned later.
        let host = 0;
        let (lane, work) = if r.event == Event::SwapOut {
            self.touch(r.block, true, offset);
            (OUT, Work::Out { from: offset, to: host, bytes })
        } else {
            self.touch(r.block, false, offset);
            (IN, Work::In { from: host, to: offset, bytes })
        };
        self.steps.push(Step { lane, work, row });
    }

    /// Only the first use is kept. `used` is false if the row replaces the value.
    fn touch(&mut self, number: u32, used: bool, offset: u64) {
        let first = &mut self.ends[number as usize];
        if !first.touched {
            (first.on_device, first.touched) = (used.then_some(offset), true);
        }
    }

    fn access(&mut self, row: u32, r: &Row) {
        let masked = (r.block as usize).checked_sub(self.recorded.blocks);
        let is_mask_made = masked.is_some() && r.event == Event::Write && self.open.is_none();
        if let Some(masked) = masked.filter(|_| is_mask_made) {
            self.mask(row, r, u32::try_from(masked).unwrap_or(u32::MAX));
            return;
        }
        let (op, left) = self.open.unwrap_or_else(|| {
            let work = Work::Launch { op: r.op, part: Part::Whole, operands: Vec::new() };
            self.steps.push(Step { lane: COMPUTE, work, row });
            (r.op, self.accesses.of(r.op))
        });
        self.add_operand(r);
        self.open = (left > 1).then_some((op, left - 1));
    }

    fn add_operand(&mut self, r: &Row) {
        let Some((offset, bytes)) = self.place(r.block) else { return };
        let (read, write) = (r.event == Event::Read, r.event == Event::Write);
        self.touch(r.block, read, offset);
        if write {
            self.ends[r.block as usize].on_host_last = false;
        }
        let blocks = self.recorded.blocks;
        let Some(Step { work: Work::Launch { operands, .. }, .. }) = self.steps.last_mut() else { return };
        let mask = r.block as usize >= blocks;
        let block = if mask { r.block - u32::try_from(blocks).unwrap_or(0) } else { r.block };
        let is_it = |o: &&mut Operand| (o.block, o.mask, o.offset) == (block, mask, offset);
        if let Some(known) = operands.iter_mut().find(is_it) {
            known.read |= read && !known.write;
            known.write |= write;
        } else {
            operands.push(Operand { block, mask, offset, bytes, read, write });
        }
    }

    /// A mask that overlaps an operand gets a launch of its own: that operand is freed by then.
    fn mask(&mut self, row: u32, r: &Row, masked: u32) {
        let Some((start, bytes)) = self.place(r.block) else { return };
        let by_operator = self.steps.last().is_some_and(|step| match &step.work {
            Work::Launch { op, part: Part::Whole, operands } if *op == r.op => {
                operands.iter().all(|o| o.offset + o.bytes <= start || start + bytes <= o.offset)
            }
            _ => false,
        });
        if by_operator {
            self.add_operand(r);
            return;
        }
        // Without the block the mask cannot be made; its value is undefined, and the verifier lets nothing read it.
        if self.place(masked).is_some() {
            let work = Work::Launch { op: r.op, part: Part::Mask, operands: Vec::new() };
            self.steps.push(Step { lane: COMPUTE, work, row });
            self.add_operand(&Row { block: masked, event: Event::Read, ..*r });
            self.add_operand(r);
        }
    }
}

/// Copies on the host have numbers, and no offsets yet.
#[derive(Clone, Copy, Debug)]
struct Located {
    block: u32,
    bytes: u64,
    on_device: Option<u64>,
    on_host: Option<usize>,
    after: Spot,
}

fn homes(persistent: &[bool], sizes: &[u64], ends: &[Ends], resident: &[Option<u64>], host: &HostPlan) -> Vec<Located> {
    let mut homes = Vec::new();
    for (block, _) in (0u32..).zip(persistent).filter(|&(_, &persistent)| persistent) {
        let i = block as usize;
        let begin = ends[i].on_device.or(ends[i].start);
        // A block that the iteration needs on the device at its begin is on the device at its end, at some address;
        // other blocks that it needs are on the host. A block that is in neither place is not used.
        let after = if ends[i].on_device.is_none() && host.at_end[i].is_some() {
            host.at_end[i].map(Spot::Host)
        } else {
            begin.and(resident[i]).map(Spot::Device)
        };
        if let Some(after) = after {
            let on_device = if matches!(after, Spot::Device(_)) { begin } else { ends[i].on_device };
            homes.push(Located { block, bytes: sizes[i], on_device, on_host: host.at_start[i], after });
        }
    }
    homes
}

/// `end` stands for the time between iterations. `arena` is its length and alignment.
fn moves(homes: &[Located], host: &mut HostPlan, end: u32, arena: (u64, u64)) -> Vec<Move> {
    let displaced = |home: &Located| match (home.on_device, home.after) {
        (Some(to), from) if from != Spot::Device(to) => Some(Pending { from, to, bytes: home.bytes }),
        _ => None,
    };
    let targets = homes.iter().filter_map(|home| Some(home.on_device?..home.on_device? + home.bytes));
    let pending = homes.iter().filter_map(displaced).collect();
    moves::untangle(pending, &targets.collect::<Vec<_>>(), arena, |bytes| host.add(end..end + 1, bytes))
}
