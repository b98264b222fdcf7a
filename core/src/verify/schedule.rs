//! Proves that a rewritten trace computes what the recorded one computes, and simulates its time.
//!
//! Problem: the trace `rewritten` holds the operators of the recording and, beside them, other mallocs and frees,
//! copies to and from the host, recomputed operators, and masks. Has every block the right value when an operator reads
//! it, and can the iteration be repeated? The rules:
//!
//! - Order: operators that are [ordered](crate::trace::Operator::ordered), and accesses that belong to no operator,
//!   stand in the order of the recording; all others stand anywhere.
//! - Values: a write gives a block a value, a malloc leaves its value undefined, a free loses it, a copy out keeps it
//!   on the host, and a copy in restores the latest copy. Every operator reads the values that it read in the
//!   recording; accesses that belong to no operator may read any value. A recomputed operator writes the values of its
//!   first run if it reads the values of its first run, and undefined ones if not. Its accesses to a persistent block
//!   that it both reads and writes are left out.
//! - Masks: a mask holds the sign of each element of a block. Its malloc has at least one bit for each element; the
//!   ReLU operators that access the block say how large an element is. The mask is written right after a ReLU that
//!   accesses the block. The ReLU's gradient may read the mask in place of the block.
//! - Operators: between two accesses of an operator stand only mallocs and frees that stand between two of its accesses
//!   in the recording. No such free moves ahead of such a malloc: blocks that the operator needs at once would share
//!   memory. If the operator works in place, there may also stand, after its reads, a free of its first input directly
//!   followed by the malloc of its first output, of the same size and at the same address.
//! - Start and end: a persistent block (allocated at time 0, never freed) has its initial value on the device at the
//!   start, and its final value on the device at the end, maybe at another offset. If iterations repeat, it may have
//!   both on the host instead. If the block is copied in before its first copy out, the host's copy of its initial
//!   value was used: then the host must have its final value at the end.
//! - Addresses: as [`verify`](super::verify) judges. Time: as [`simulate`] says.
//!
//! Values are numbered: 0 is undefined, 1 + b the initial value of block b; the value that an operator writes to a
//! block is numbered by the first row that writes it. The mask of a value has the value's number.
//! Cost: O(n log n) time, linear workspace. The module uses no code of the passes that rewrite traces.

use crate::error::{Buffer, RowFault};
use crate::simulate::{self, Device, Run, Timing};
use crate::table::{Table, at};
use crate::trace::liveness::{self, Residency};
use crate::trace::recorded::{self, Operators, Progress};
use crate::trace::{Event, Kind, Op, Operator, Recorded, Row};
use crate::{Block, Constraints, Error, VerifiedPlan, Workspace, WorkspaceLen, block, sort};

/// A rewritten trace, its plan and its simulated time, which [`schedule`] has proved valid.
///
/// Only [`schedule`] makes values of this type: whoever holds one knows that it is valid.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedSchedule<'a> {
    rows: &'a [Row],
    timings: &'a [Timing],
    names: &'a [Residency],
    plan: VerifiedPlan<'a>,
    run: Run,
}

impl<'a> VerifiedSchedule<'a> {
    /// The rewritten trace, with its copies to and from the host.
    #[must_use]
    pub const fn rows(&self) -> &'a [Row] {
        self.rows
    }

    /// By row of the rewritten trace: when the row happens in the simulation, in ns.
    #[must_use]
    pub const fn timings(&self) -> &'a [Timing] {
        self.timings
    }

    /// For each block of the plan, which is one live range of a block of the trace: the number of that block, and which
    /// of its live ranges this is, counted from 0.
    #[must_use]
    pub const fn names(&self) -> &'a [Residency] {
        self.names
    }

    /// The plan: the offset of every live range of a block on the device, in bytes.
    #[must_use]
    pub const fn plan(&self) -> &VerifiedPlan<'a> {
        &self.plan
    }

    /// The simulated time of the rewritten trace, and how much is copied and recomputed in it.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }
}

/// Memory that the caller lends for the results of [`schedule`]: one timing for each row of the rewritten trace; for
/// each malloc in it, one block to place, and one name: which live range of which block of the trace.
#[derive(Debug)]
pub struct Room<'a> {
    /// By row of the rewritten trace: when the row happens, in ns.
    pub timings: &'a mut [Timing],
    /// The live ranges of blocks on the device, from malloc to free, as blocks to place.
    pub blocks: &'a mut [Block],
    /// For each element of `blocks`, which is one live range of a block of the trace: the number of that block, and
    /// which of its live ranges this is, counted from 0.
    pub names: &'a mut [Residency],
}

/// Length of the workspace that [`schedule`] needs for a recording of `rows` rows with `blocks` block numbers, if the
/// rewritten trace has `residencies` mallocs.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, residencies: usize) -> WorkspaceLen {
    WorkspaceLen { words: 0, indices: residencies }.and(
        values_workspace(rows, blocks)
            .max(simulate::workspace(rows, blocks))
            .max(liveness::workspace(2 * blocks))
            .max(super::workspace(residencies)),
    )
}

const fn values_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    recorded::workspace(rows, blocks).and(WorkspaceLen { words: 2 * blocks, indices: 4 * rows + 13 * blocks })
}

/// Proves that the trace `rewritten` computes what was recorded, and that `offsets` (in bytes, one for each malloc in
/// `rewritten`) is a valid plan; then simulates the time on `device`. `cyclic` is true if iterations repeat, so that
/// persistent blocks may be on the host at the start and at the end.
///
/// # Errors
/// [`Error::Row`] for a row of `rewritten` that breaks a rule (one past its last row if something is missing at the
/// end), or for a row of `recorded` (`NotRecorded`, or `UnknownBlock` if its block number is not below `blocks`); the
/// errors of [`verify`](super::verify); [`Error::HostTooSmall`]; [`Error::Device`]; [`Error::TooManyBlocks`];
/// [`Error::BufferTooSmall`] if a slice of `room` is not as long as [`Room`] says, or the workspace is too short.
///
/// ```
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Residency, Event, Op, Recorded, Row};
/// use sublet_core::verify::{self, Room};
/// use sublet_core::{Block, Constraints, Workspace};
/// let row = |event, op| Row { event, op, block: 0, bytes: if event == Event::Malloc { 64 } else { 0 }, time_ns: 0 };
/// let recorded = [row(Event::Malloc, Op::None), row(Event::Write, Op::First(0)), row(Event::Read, Op::First(1))];
/// let swapped = [
///     recorded[0],
///     recorded[1],
///     row(Event::SwapOut, Op::None),
///     row(Event::Free, Op::None),
///     recorded[0],
///     row(Event::SwapIn, Op::None),
///     recorded[2],
/// ];
/// let (mut timings, mut blocks, mut names) = ([Timing::default(); 7], [Block::default(); 2], [Residency::default(); 2]);
/// let len = verify::schedule_workspace(recorded.len(), 1, 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let verified = verify::schedule(
///     &Recorded::new(&recorded, 1),
///     &swapped,
///     &[0, 0],
///     (&Device::symmetric(12e9), true),
///     &Constraints::NONE,
///     Workspace::new(&mut words, &mut indices),
///     Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
/// );
/// // 64 bytes are copied out, and 64 in.
/// assert_eq!(verified?.run().swapped_bytes, 128);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn schedule<'a>(
    recorded: &Recorded<'_>,
    rewritten: &'a [Row],
    offsets: &'a [u64],
    (device, cyclic): (&Device, bool),
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
    Room { timings, blocks, names }: Room<'a>,
) -> Result<VerifiedSchedule<'a>, Error> {
    if !device.is_sound() {
        return Err(Error::Device);
    }
    block::check_count(recorded.blocks)?;
    let residencies = liveness::residencies(rewritten);
    scratch.check(workspace(recorded.rows.len(), recorded.blocks, residencies))?;
    for (buffer, needed, got) in [
        (Buffer::Timings, rewritten.len(), timings.len()),
        (Buffer::Blocks, residencies, blocks.len()),
        (Buffer::Blocks, residencies, names.len()),
    ] {
        if needed != got {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    let mut taken_over = scratch.indices(residencies);
    values(recorded, rewritten, cyclic, &mut taken_over, scratch.reborrow())?;
    let run = simulate::simulate(recorded, rewritten, device, scratch.reborrow(), timings)?;
    if let Some(capacity) = device.host_capacity.filter(|&capacity| run.host_bytes > capacity) {
        return Err(Error::HostTooSmall { needed: run.host_bytes, capacity });
    }
    liveness::lifetimes(rewritten, 2 * recorded.blocks, scratch.reborrow(), blocks, names)?;
    let plan = super::verify(blocks, offsets, constraints, scratch)?;
    for residency in (0..).take(residencies).filter(|&residency| taken_over[residency] > 0) {
        if at(offsets, residency) != at(offsets, taken_over[residency] - 1) {
            return Err(Error::Row { row: at(blocks, residency).start, fault: RowFault::NotInPlace });
        }
    }
    Ok(VerifiedSchedule { rows: rewritten, timings, names, plan, run })
}

/// `taken_over` gets 1 + the live range whose memory is reused in place; 0 if none.
fn values(
    recorded: &Recorded<'_>,
    rewritten: &[Row],
    cyclic: bool,
    taken_over: &mut Table<'_, u32>,
    scratch: Workspace<'_>,
) -> Result<(), Error> {
    let mut scratch = scratch;
    let (Ok(_), Ok(end)) = (u32::try_from(recorded.rows.len()), u32::try_from(rewritten.len())) else {
        return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
    };
    let numbers = 2 * recorded.blocks;
    let operators = Operators::new(recorded, &mut scratch)?;
    let mut state = State {
        recorded: *recorded,
        seen: Seen::new(recorded, &operators, &mut scratch)?,
        operators,
        cyclic,
        resident: scratch.indices(numbers),
        value: scratch.indices(numbers),
        host: scratch.indices(numbers),
        residency: scratch.indices(numbers),
        marks: scratch.index_records(recorded.blocks),
        residencies: 0,
        next: 0,
        begun: scratch.indices(recorded.rows.len()),
        missing: recorded.rows.iter().filter(|r| r.event.is_access()).count(),
        open: None,
        last: Op::None,
        used: false,
        giver: None,
    };
    let following = rewritten.iter().skip(1).map(Some).chain([None]);
    for (row, (r, following)) in (0u32..).zip(rewritten.iter().zip(following)) {
        if let Some((taker, giver)) = state.row(r, following).map_err(|fault| Error::Row { row, fault })? {
            taken_over[taker] = 1 + giver;
        }
    }
    state.end().map_err(|fault| Error::Row { row: end, fault })
}

/// A number stands for each value. Equal numbers are equal values; 0 is undefined.
struct Seen<'a> {
    size: Table<'a, u64>,
    /// In bytes, for elements of 4 bytes, or of fewer if a ReLU says so.
    mask: Table<'a, u64>,
    /// The recorded malloc and free; 0 if missing.
    rows: Table<'a, [u32; 2]>,
    value: Table<'a, u32>,
    last: Table<'a, u32>,
}

impl<'a> Seen<'a> {
    fn new(recorded: &Recorded<'_>, operators: &Operators<'_>, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let Recorded { rows, blocks: block_count, .. } = *recorded;
        let blocks = u32::try_from(block_count).unwrap_or(u32::MAX);
        let mut size = scratch.words(block_count);
        let mut mask = scratch.words(block_count);
        let mut own_rows = scratch.index_records::<2>(block_count);
        let mut value = scratch.indices(rows.len());
        let mut order = scratch.indices(rows.len());
        let mut aside = scratch.indices(rows.len());
        let mut accesses = 0;
        for (row, r) in (0u32..).zip(rows) {
            let refuse = Err(Error::Row { row, fault: RowFault::NotRecorded });
            match r.event {
                Event::Malloc if size[r.block] > 0 => return refuse,
                Event::Malloc => {
                    size[r.block] = r.bytes;
                    own_rows[r.block][0] = row;
                    mask[r.block] = Operator::default().mask_bytes(r.bytes);
                }
                Event::SwapIn | Event::SwapOut => return refuse,
                Event::Free => own_rows[r.block][1] = row,
                Event::Read | Event::Write => {
                    let operator = recorded.operator(r.op);
                    if operator.kind == Kind::Relu {
                        mask[r.block] = mask[r.block].max(operator.mask_bytes(size[r.block]));
                    }
                    order[accesses] = row;
                    accesses += 1;
                }
            }
        }
        // All writes of one operator to a block make one value, numbered by the first; without an operator, one each.
        sort::by_key(&mut order, accesses, &mut aside, |i| recorded::number(at(rows, i).op));
        sort::by_key(&mut order, accesses, &mut aside, |i| at(rows, i).block.into());
        let mut first = None;
        for k in 0..accesses {
            let made = at(rows, order[k]);
            if made.event == Event::Write {
                let same = |f: &Row| made.op != Op::None && f.op == made.op && f.block == made.block;
                let known = first.filter(|&f| same(&at(rows, f)));
                let f = known.unwrap_or(order[k]);
                value[order[k]] = 1 + blocks + f;
                first = Some(f);
            }
        }
        let mut current = scratch.indices(block_count);
        for b in (0..blocks).filter(|&b| operators.is_persistent(b)) {
            current[b] = 1 + b;
        }
        for (row, r) in (0u32..).zip(rows) {
            match r.event {
                Event::Read => value[row] = current[r.block],
                Event::Write => current[r.block] = value[row],
                Event::Free => current[r.block] = 0,
                _ => {}
            }
        }
        Ok(Self { size, mask, rows: own_rows, value, last: current })
    }
}

#[derive(Clone, Copy)]
struct Open {
    progress: Progress,
    /// False once a recomputation has read another value: all that it writes is then undefined.
    same: bool,
    /// The latest recorded free so far; 0 if none. A malloc that comes now must stand after it.
    freed: u32,
}

struct State<'a> {
    recorded: Recorded<'a>,
    operators: Operators<'a>,
    seen: Seen<'a>,
    cyclic: bool,
    resident: Table<'a, u32>,
    /// For a mask: the value whose signs it holds.
    value: Table<'a, u32>,
    /// 1 + the value of the copy on the host; 0 before the first copy.
    host: Table<'a, u32>,
    residency: Table<'a, u32>,
    /// Is it on the device at the start? Was the host's copy of its initial value used?
    marks: Table<'a, [u32; 2]>,
    residencies: u32,
    next: usize,
    begun: Table<'a, u32>,
    missing: usize,
    open: Option<Open>,
    last: Op,
    /// A persistent block that is allocated after any use is not on the device at the start.
    used: bool,
    giver: Option<u32>,
}

impl State<'_> {
    fn row(&mut self, r: &Row, following: Option<&Row>) -> Result<Option<(u32, u32)>, RowFault> {
        let b = r.block;
        let mask = self.recorded.masked(b);
        let Some(size) = self.known(mask.unwrap_or(b)) else { return Err(RowFault::UnknownBlock) };
        match r.event {
            Event::Malloc if self.resident[b] > 0 => return Err(RowFault::AllocatedTwice),
            Event::Malloc if mask.is_none() && r.bytes != size => return Err(RowFault::SizeChanged),
            Event::Malloc if mask.is_some_and(|block| r.bytes < self.seen.mask[block]) => {
                return Err(RowFault::MaskTooSmall);
            }
            Event::Malloc => {}
            Event::Free if self.resident[b] == 0 => return Err(RowFault::FreeWithoutMalloc),
            _ if self.resident[b] == 0 => return Err(RowFault::AccessWithoutMalloc),
            _ => {}
        }
        match (r.event, mask) {
            (Event::Write, Some(block)) if self.open.is_none() => return self.mask(r, block).map(|()| None),
            (Event::Read | Event::Write, _) => return self.access(r, mask).map(|()| None),
            _ => {}
        }
        let giver = self.giver.take();
        let mut taken_over = None;
        if let Some(open) = self.open
            && !self.stands_inside(r)
        {
            let taker = following.filter(|f| f.event == Event::Malloc).map(|f| f.block);
            match r.event {
                Event::Free if self.hands_over(open.progress, b, taker) => self.giver = Some(b),
                Event::Malloc if giver.is_some_and(|x| self.hands_over(open.progress, x, Some(b))) => {
                    taken_over = giver.map(|x| (self.residencies, self.residency[x]));
                }
                _ => return Err(RowFault::InsideOperator),
            }
        }
        match r.event {
            Event::Malloc => {
                self.resident[b] = 1;
                self.residency[b] = self.residencies;
                self.residencies += 1;
                if mask.is_none() && self.operators.is_persistent(b) && !self.used && self.marks[b][0] == 0 {
                    self.value[b] = 1 + b;
                    self.marks[b][0] = 1;
                }
            }
            Event::Free => {
                self.resident[b] = 0;
                self.value[b] = 0;
            }
            Event::SwapOut => {
                self.used = true;
                self.host[b] = 1 + self.value[b];
            }
            _ => {
                self.used = true;
                let value = match self.host[b] {
                    0 if self.cyclic && mask.is_none() && self.operators.is_persistent(b) => {
                        self.marks[b][1] = 1;
                        1 + b
                    }
                    host => host.saturating_sub(1),
                };
                if value == 0 {
                    return Err(RowFault::NotOnHost);
                }
                self.value[b] = value;
            }
        }
        Ok(taken_over)
    }

    fn known(&self, block: u32) -> Option<u64> {
        let known = usize::try_from(block).is_ok_and(|b| b < self.recorded.blocks);
        known.then(|| self.seen.size[block]).filter(|&size| size > 0)
    }

    /// After a free that it precedes in the recording, a malloc could lie over the freed block.
    fn stands_inside(&mut self, r: &Row) -> bool {
        let Some(open) = self.open.as_mut().filter(|_| self.recorded.masked(r.block).is_none()) else { return false };
        let [malloc, free] = self.seen.rows[r.block];
        match r.event {
            Event::Malloc => open.progress.spans(malloc) && malloc > open.freed,
            Event::Free if open.progress.spans(free) => {
                open.freed = open.freed.max(free);
                true
            }
            _ => false,
        }
    }

    fn hands_over(&self, progress: Progress, giver: u32, taker: Option<u32>) -> bool {
        let whole = Progress { next: progress.first, rerun: false, ..progress };
        let first = |event| {
            let mut of_event = self.operators.to_come(whole).filter(|(_, r)| r.event == event).map(|(_, r)| r.block);
            of_event.find(|&b| !self.seen.rows[b].iter().any(|&row| progress.spans(row)))
        };
        let op = self.recorded.rows.get(progress.first).map_or(Op::None, |r| r.op);
        let reads_done = self.operators.to_come(progress).all(|(_, r)| r.event != Event::Read);
        let (from, to) = (first(Event::Read), first(Event::Write));
        let size = |block: Option<u32>| block.and_then(|b| self.known(b));
        self.recorded.operator(op).in_place
            && reads_done
            && from == Some(giver)
            && to == taker
            && from != to
            && size(from) == size(to)
    }

    fn mask(&mut self, r: &Row, block: u32) -> Result<(), RowFault> {
        let is_relu = r.op != Op::None && r.op == self.last && self.recorded.operator(r.op).kind == Kind::Relu;
        let label = if let Op::First(k) = r.op { Op::Rerun(k) } else { r.op };
        let Some(relu) = self.operators.begin(label).filter(|_| is_relu) else {
            return Err(RowFault::MaskElsewhere);
        };
        let whole = Progress { rerun: false, ..relu };
        if self.operators.to_come(whole).all(|(_, access)| access.block != block) {
            return Err(RowFault::MaskElsewhere);
        }
        self.value[r.block] = self.value[block];
        Ok(())
    }

    fn access(&mut self, r: &Row, mask: Option<u32>) -> Result<(), RowFault> {
        let mut open = match self.open {
            Some(open) => open,
            None => self.begin(r.op)?,
        };
        let Some((row, expected)) = self.operators.to_come(open.progress).next() else {
            return Err(RowFault::OtherAccess);
        };
        let rerun = open.progress.rerun;
        let label = match expected.op {
            Op::First(k) if rerun => Op::Rerun(k),
            op => op,
        };
        let in_its_place = mask == Some(expected.block)
            && r.event == Event::Read
            && self.recorded.operator(label).kind == Kind::ReluBackward;
        if (r.event, r.op) != (expected.event, label) || !(r.block == expected.block || in_its_place) {
            return Err(RowFault::OtherAccess);
        }
        let value = u32::try_from(row).map_or(0, |row| self.seen.value[row]);
        let holds = self.value[r.block];
        if r.event == Event::Write {
            self.value[r.block] = if open.same { value } else { 0 };
        } else if rerun && open.same && (holds != value || value == 0) {
            open.same = false;
            let before = Progress { next: open.progress.first, end: row, ..open.progress };
            for (_, done) in self.operators.to_come(before).filter(|(_, done)| done.event == Event::Write) {
                self.value[done.block] = 0;
            }
        } else if !rerun && label != Op::None && (holds != value || in_its_place && value == 0) {
            return Err(RowFault::OtherValue);
        }
        self.used = true;
        if !rerun {
            self.missing = self.missing.saturating_sub(1);
        }
        self.last = r.op;
        open.progress.next = row + 1;
        self.open = self.operators.to_come(open.progress).next().map(|_| open);
        Ok(())
    }

    fn begin(&mut self, op: Op) -> Result<Open, RowFault> {
        let progress = self.operators.begin(op).ok_or(RowFault::OtherAccess)?;
        if progress.rerun && !self.recorded.operator(op).rerun {
            return Err(RowFault::MayNotRerun);
        }
        if !progress.rerun && !self.may_run(op, progress) {
            return Err(RowFault::OtherAccess);
        }
        Ok(Open { progress, same: true, freed: 0 })
    }

    fn may_run(&mut self, op: Op, progress: Progress) -> bool {
        let first = u32::try_from(progress.first).unwrap_or(u32::MAX);
        if core::mem::replace(&mut self.begun[first], 1) > 0 {
            return false;
        }
        if !self.recorded.is_ordered(op) {
            return true;
        }
        let rest = self.recorded.rows.get(self.next..).unwrap_or_default();
        let next = rest.iter().position(|r| r.event.is_access() && self.recorded.is_ordered(r.op));
        let in_turn = next.is_some_and(|next| self.next + next == progress.first);
        self.next = progress.end;
        in_turn
    }

    fn end(&self) -> Result<(), RowFault> {
        if self.open.is_some() || self.missing > 0 {
            return Err(RowFault::AccessesMissing);
        }
        for b in (0..).take(self.recorded.blocks).filter(|&b| self.operators.is_persistent(b)) {
            let last = self.seen.last[b];
            // A block that is not on the device has the value 0, which is no persistent block's final value.
            let on_device = self.value[b] == last;
            let on_host = last == if self.host[b] == 0 { 1 + b } else { self.host[b] - 1 };
            let [at_start, initial_copy_used] = self.marks[b];
            let restored =
                if at_start > 0 { on_device && (on_host || initial_copy_used == 0) } else { self.cyclic && on_host };
            if !restored {
                return Err(RowFault::EndNotRestored);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
