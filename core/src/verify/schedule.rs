//! Proves that a rewritten trace computes what the original computes, and when.
//!
//! Problem: `rewritten` holds the accesses of `original` in their order, and besides them other mallocs and
//! frees and copies to and from the host. Is every value there when it is read, and is the iteration one that
//! can be repeated?
//!
//! Values: a write gives a block a value, a malloc leaves it undefined, a free loses it, a copy out keeps it on
//! the host and a copy in brings the last copy back. Every read sees the value that it saw in the original.
//! Residency: a block is accessed and copied only between its malloc and its free. Operators: between the
//! accesses of one stand only mallocs and frees that stand there in the original. Ends: a persistent block
//! (allocated at time 0, never freed) is on the device with its initial value at the start and with its final
//! value at the end; where iterations repeat, its final value may be on the host instead if it does not start on
//! the device, and the host's copy of its initial value may be used if the host has its final value at the end.
//! Addresses: as [`verify`](super::verify) judges. Time: as [`simulate`] says.
//!
//! Values are numbered: 0 is undefined, the initial value of a block is 1 + its number, and what an operator
//! writes to a block is numbered by the first row that writes it. Operators that run again are not judged here yet
//! and refused. Cost: O(n log n) time, linear workspace. This module knows no pass.

use crate::error::{Buffer, RowFault};
use crate::simulate::{self, Device, Run, Timing};
use crate::table::{Table, at};
use crate::trace::liveness::{self, Stay};
use crate::trace::{Event, Op, Row};
use crate::{Block, Constraints, Error, VerifiedPlan, Workspace, WorkspaceLen, block, sort};

/// A rewritten trace with a plan, both of which [`schedule`] has accepted.
///
/// There is no other way to make one: whoever holds it holds the proof.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedSchedule<'a> {
    rows: &'a [Row],
    timings: &'a [Timing],
    names: &'a [Stay],
    plan: VerifiedPlan<'a>,
    run: Run,
}

impl<'a> VerifiedSchedule<'a> {
    /// The rewritten trace, with its transfers.
    #[must_use]
    pub const fn rows(&self) -> &'a [Row] {
        self.rows
    }

    /// When each row happens, as simulated.
    #[must_use]
    pub const fn timings(&self) -> &'a [Timing] {
        self.timings
    }

    /// Which stay of which block each block of the plan is.
    #[must_use]
    pub const fn names(&self) -> &'a [Stay] {
        self.names
    }

    /// Where every stay lies.
    #[must_use]
    pub const fn plan(&self) -> &VerifiedPlan<'a> {
        &self.plan
    }

    /// How long it takes, as simulated.
    #[must_use]
    pub const fn run(&self) -> &Run {
        &self.run
    }
}

/// The room for what a rewritten trace is judged by: one timing for each of its rows, one block and one name for each
/// of its mallocs.
#[derive(Debug)]
pub struct Room<'a> {
    /// When each row happens.
    pub timings: &'a mut [Timing],
    /// The stays as blocks to place.
    pub blocks: &'a mut [Block],
    /// Which stays they are.
    pub names: &'a mut [Stay],
}

/// Length of the workspace that [`schedule`] needs for an original of `rows` rows, and for `stays` mallocs in the
/// rewritten trace, where blocks are numbered below `blocks`.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize, stays: usize) -> WorkspaceLen {
    values_workspace(rows, blocks)
        .max(simulate::workspace(blocks))
        .max(liveness::workspace(blocks))
        .max(super::workspace(stays))
}

const fn values_workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: blocks, indices: 4 * rows + 8 * blocks }
}

/// Proves that `rewritten` computes what `original` computes and that `offsets` is a plan for its stays, and times it.
/// `cyclic` says that iterations repeat, so that persistent blocks may be on the host at both ends.
///
/// # Errors
/// [`Error::Row`] with the first row that breaks a rule, counted in `rewritten` but for
/// [`RowFault::NotRecorded`], which is about `original`; what [`verify`](super::verify) refuses;
/// [`Error::HostTooSmall`]; [`Error::Device`]; [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if a slice of `room` or the workspace is too
/// short.
///
/// ```
/// use sublet_core::simulate::{Device, Timing};
/// use sublet_core::trace::{liveness::Stay, Event, Op, Row};
/// use sublet_core::verify::schedule::{self, Room};
/// use sublet_core::{Block, Constraints, Workspace};
/// let row = |event, op| Row { event, op, block: 0, bytes: if event == Event::Malloc { 64 } else { 0 }, time_ns: 0 };
/// let original = [row(Event::Malloc, Op::None), row(Event::Write, Op::First(0)), row(Event::Read, Op::First(1))];
/// let swapped = [
///     original[0],
///     original[1],
///     row(Event::SwapOut, Op::None),
///     row(Event::Free, Op::None),
///     original[0],
///     row(Event::SwapIn, Op::None),
///     original[2],
/// ];
/// let (mut timings, mut blocks, mut names) = ([Timing::default(); 7], [Block::default(); 2], [Stay::default(); 2]);
/// let len = schedule::workspace(original.len(), 1, 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let verified = schedule::schedule(
///     (&original, &swapped, 1),
///     &[0, 0],
///     (&Device::symmetric(12e9), true),
///     &Constraints::NONE,
///     Workspace::new(&mut words, &mut indices),
///     Room { timings: &mut timings, blocks: &mut blocks, names: &mut names },
/// );
/// // Not cyclic, the block would have to be on the device at the end with its final value; it is.
/// assert_eq!(verified?.run().swapped_bytes, 128);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn schedule<'a>(
    (original, rewritten, block_count): (&[Row], &'a [Row], usize),
    offsets: &'a [u64],
    (device, cyclic): (&Device, bool),
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
    Room { timings, blocks, names }: Room<'a>,
) -> Result<VerifiedSchedule<'a>, Error> {
    if !device.is_sound() {
        return Err(Error::Device);
    }
    block::check_count(block_count)?;
    let stays = liveness::stays(rewritten);
    scratch.check(workspace(original.len(), block_count, stays))?;
    for (buffer, needed, got) in [
        (Buffer::Timings, rewritten.len(), timings.len()),
        (Buffer::Blocks, stays, blocks.len()),
        (Buffer::Blocks, stays, names.len()),
    ] {
        if needed != got {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    values(original, rewritten, block_count, cyclic, scratch.reborrow())?;
    let run = simulate::simulate(original, rewritten, block_count, device, scratch.reborrow(), timings)?;
    if let Some(capacity) = device.host_capacity.filter(|&capacity| run.host_bytes > capacity) {
        return Err(Error::HostTooSmall { needed: run.host_bytes, capacity });
    }
    liveness::lifetimes(rewritten, block_count, scratch.reborrow(), blocks, names)?;
    let plan = super::verify(blocks, offsets, constraints, scratch)?;
    Ok(VerifiedSchedule { rows: rewritten, timings, names, plan, run })
}

/// Judges residency, values, operators and ends.
fn values<'a>(
    original: &'a [Row],
    rewritten: &[Row],
    block_count: usize,
    cyclic: bool,
    mut scratch: Workspace<'a>,
) -> Result<(), Error> {
    let (Ok(_), Ok(end)) = (u32::try_from(original.len()), u32::try_from(rewritten.len())) else {
        return Err(Error::Row { row: u32::MAX, fault: RowFault::TooManyRows });
    };
    let original = Original::new(original, block_count, &mut scratch)?;
    let mut state = State {
        original,
        cyclic,
        resident: scratch.indices(block_count),
        value: scratch.indices(block_count),
        host: scratch.indices(block_count),
        marks: scratch.index_records(block_count),
        own: scratch.indices(block_count),
        next: 0,
        operator: None,
        accessed: false,
        copied: false,
    };
    for (row, r) in (0u32..).zip(rewritten) {
        state.row(r).map_err(|fault| Error::Row { row, fault })?;
    }
    state.end().map_err(|fault| Error::Row { row: end, fault })
}

/// What is known of the original.
struct Original<'a> {
    rows: &'a [Row],
    size: Table<'a, u64>,
    /// By row: the value that a read sees, the value that a write makes.
    value: Table<'a, u32>,
    persistent: Table<'a, u32>,
    /// The value of each block after the last row.
    final_value: Table<'a, u32>,
}

impl<'a> Original<'a> {
    fn new(rows: &'a [Row], block_count: usize, scratch: &mut Workspace<'a>) -> Result<Self, Error> {
        let blocks = u32::try_from(block_count).unwrap_or(u32::MAX);
        let mut size = scratch.words(block_count);
        let mut persistent = scratch.indices(block_count);
        let mut value = scratch.indices(rows.len());
        let mut order = scratch.indices(rows.len());
        let mut rank = scratch.indices(rows.len());
        let mut aside = scratch.indices(rows.len());
        let mut accesses = 0;
        for (row, r) in (0u32..).zip(rows) {
            let refuse = |fault| Err(Error::Row { row, fault });
            if r.block >= blocks {
                return refuse(RowFault::UnknownBlock);
            }
            match r.event {
                Event::Malloc if size[r.block] > 0 => return refuse(RowFault::NotRecorded),
                Event::Malloc => {
                    size[r.block] = r.bytes;
                    persistent[r.block] = u32::from(r.time_ns == 0);
                }
                Event::Free => persistent[r.block] = 0,
                Event::SwapIn | Event::SwapOut => return refuse(RowFault::NotRecorded),
                Event::Read | Event::Write => {
                    rank[row] = accesses;
                    order[accesses] = row;
                    accesses += 1;
                }
            }
        }
        // The accesses of an operator stand together if, sorted by operator, they are as near as before.
        sort::by_key(&mut order, accesses, &mut aside, |i| number(at(rows, i).op));
        for k in 1..accesses {
            let (before, after) = (order[k - 1], order[k]);
            let op = at(rows, after).op;
            if op != Op::None && at(rows, before).op == op && rank[after] != rank[before] + 1 {
                return Err(Error::Row { row: after, fault: RowFault::NotRecorded });
            }
        }
        // All writes of one operator to one block make one value: it is numbered by the first of them.
        sort::by_key(&mut order, accesses, &mut aside, |i| at(rows, i).block.into());
        let mut first = None;
        for k in 0..accesses {
            let made = at(rows, order[k]);
            if made.event == Event::Write {
                let known = first.filter(|&f| at(rows, f).op == made.op && at(rows, f).block == made.block);
                let f = known.unwrap_or(order[k]);
                value[order[k]] = 1 + blocks + f;
                first = Some(f);
            }
        }
        let mut current = scratch.indices(block_count);
        for b in 0..blocks {
            current[b] = if persistent[b] > 0 { 1 + b } else { 0 };
        }
        for (row, r) in (0u32..).zip(rows) {
            match r.event {
                Event::Read => value[row] = current[r.block],
                Event::Write => current[r.block] = value[row],
                Event::Free => current[r.block] = 0,
                _ => {}
            }
        }
        Ok(Self { rows, size, value, persistent, final_value: current })
    }
}

/// Operators as numbers.
fn number(op: Op) -> u64 {
    match op {
        Op::None => 0,
        Op::First(k) => 1 + u64::from(k),
        Op::Again(k) => (1 << 32) + u64::from(k),
    }
}

/// The rewritten trace up to a row.
struct State<'a> {
    original: Original<'a>,
    cyclic: bool,
    resident: Table<'a, u32>,
    /// The value on the device.
    value: Table<'a, u32>,
    /// 0 before the first copy out, then 1 + the value on the host.
    host: Table<'a, u32>,
    /// Whether it is on the device at the start, and whether the host's copy of its initial value has been used.
    marks: Table<'a, [u32; 2]>,
    /// 1 + the first row of the operator that last allocated or freed the block between its accesses.
    own: Table<'a, u32>,
    /// The row of the original from which its next access is searched.
    next: usize,
    /// In an operator: its first row, and the row after its last access.
    operator: Option<(usize, usize)>,
    accessed: bool,
    copied: bool,
}

impl State<'_> {
    fn row(&mut self, r: &Row) -> Result<(), RowFault> {
        let b = r.block;
        if usize::try_from(b).map_or(true, |b| b >= self.original.size.len()) || self.original.size[b] == 0 {
            return Err(RowFault::UnknownBlock);
        }
        match r.event {
            Event::Malloc if self.resident[b] > 0 => return Err(RowFault::AllocatedTwice),
            Event::Malloc if r.bytes != self.original.size[b] => return Err(RowFault::SizeChanged),
            Event::Malloc => {}
            Event::Free if self.resident[b] == 0 => return Err(RowFault::FreeWithoutMalloc),
            _ if self.resident[b] == 0 => return Err(RowFault::AccessWithoutMalloc),
            _ => {}
        }
        if r.event.is_access() {
            return self.access(r);
        }
        if let Some((first, _)) = self.operator {
            let own = matches!(r.event, Event::Malloc | Event::Free) && self.own[b] == row_mark(first);
            if !own {
                return Err(RowFault::InsideOperator);
            }
        }
        match r.event {
            Event::Malloc => {
                self.resident[b] = 1;
                if self.original.persistent[b] > 0 && !self.accessed && !self.copied {
                    self.value[b] = 1 + b;
                    self.marks[b][0] = 1;
                }
            }
            Event::Free => {
                self.resident[b] = 0;
                self.value[b] = 0;
            }
            Event::SwapOut => {
                self.copied = true;
                self.host[b] = 1 + self.value[b];
            }
            _ => {
                self.copied = true;
                let value = match self.host[b] {
                    0 if self.cyclic && self.original.persistent[b] > 0 => {
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
        Ok(())
    }

    fn access(&mut self, r: &Row) -> Result<(), RowFault> {
        let rows = self.original.rows;
        let next = (self.next..).zip(rows.get(self.next..).unwrap_or_default()).find(|(_, r)| r.event.is_access());
        let Some((i, expected)) = next else {
            return Err(RowFault::OtherAccess);
        };
        if (r.event, r.block, r.op) != (expected.event, expected.block, expected.op) {
            return Err(RowFault::OtherAccess);
        }
        if self.operator.is_none() {
            let end = simulate::operator(rows, i);
            self.operator = Some((i, end));
            for own in rows.get(i..end).unwrap_or_default().iter().filter(|r| !r.event.is_access()) {
                self.own[own.block] = row_mark(i);
            }
        }
        let value = u32::try_from(i).map_or(0, |i| self.original.value[i]);
        if r.event == Event::Write {
            self.value[r.block] = value;
        } else if r.op != Op::None && self.value[r.block] != value {
            return Err(RowFault::OtherValue);
        }
        self.accessed = true;
        self.next = i + 1;
        self.operator = self.operator.filter(|&(_, end)| self.next < end);
        Ok(())
    }

    fn end(&self) -> Result<(), RowFault> {
        let rest = self.original.rows.get(self.next..).unwrap_or_default();
        if rest.iter().any(|r| r.event.is_access()) {
            return Err(RowFault::AccessesMissing);
        }
        for b in (0..).take(self.original.size.len()).filter(|&b| self.original.persistent[b] > 0) {
            let last = self.original.final_value[b];
            let on_device = self.resident[b] > 0 && self.value[b] == last;
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

/// A row as a mark in a table whose cells begin as 0.
fn row_mark(row: usize) -> u32 {
    u32::try_from(row).map_or(u32::MAX, |row| row.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const fn row(event: Event, block: u32, op: Op) -> Row {
        Row { time_ns: 0, bytes: if matches!(event, Event::Malloc) { 8 } else { 0 }, block, op, event }
    }

    /// A weight that is read and updated, and an activation of which two operators know.
    const ORIGINAL: [Row; 8] = [
        row(Event::Malloc, 0, Op::None),
        Row { time_ns: 1, ..row(Event::Malloc, 1, Op::First(0)) },
        Row { time_ns: 1, ..row(Event::Read, 0, Op::First(0)) },
        Row { time_ns: 1, ..row(Event::Write, 1, Op::First(0)) },
        Row { time_ns: 1, ..row(Event::Read, 1, Op::First(1)) },
        Row { time_ns: 1, ..row(Event::Read, 0, Op::First(1)) },
        Row { time_ns: 1, ..row(Event::Write, 0, Op::First(1)) },
        Row { time_ns: 1, ..row(Event::Free, 1, Op::None) },
    ];

    /// What is said of the original with these rows put in at these places, the last first.
    fn judged(cyclic: bool, changes: &[(usize, &[Row])], without: &[usize]) -> Result<(), RowFault> {
        let mut rows: Vec<Option<Row>> = ORIGINAL.into_iter().map(Some).collect();
        for &i in without {
            rows[i] = None;
        }
        let mut rewritten = Vec::new();
        for (i, r) in rows.into_iter().chain([None]).enumerate() {
            rewritten.extend(changes.iter().filter(|c| c.0 == i).flat_map(|c| c.1));
            rewritten.extend(r);
        }
        let len = values_workspace(ORIGINAL.len(), 2);
        let (mut words, mut indices) = (vec![3; len.words], vec![3; len.indices]);
        values(&ORIGINAL, &rewritten, 2, cyclic, Workspace::new(&mut words, &mut indices)).map_err(|e| match e {
            Error::Row { fault, .. } => fault,
            e => panic!("{e}"),
        })
    }

    #[test]
    fn every_rule_has_a_trace_that_breaks_it() {
        let [out, free, malloc, back] =
            [Event::SwapOut, Event::Free, Event::Malloc, Event::SwapIn].map(|event| row(event, 1, Op::None));
        assert_eq!(judged(false, &[], &[]), Ok(()));
        assert_eq!(judged(false, &[(4, &[out, free, malloc, back])], &[]), Ok(()));
        assert_eq!(judged(false, &[(4, &[free, malloc])], &[]), Err(RowFault::OtherValue));
        assert_eq!(judged(false, &[(4, &[free, malloc, back])], &[]), Err(RowFault::NotOnHost));
        assert_eq!(judged(false, &[(4, &[out, free])], &[]), Err(RowFault::AccessWithoutMalloc));
        assert_eq!(judged(false, &[(3, &[free])], &[]), Err(RowFault::InsideOperator));
        assert_eq!(judged(false, &[(3, &[out])], &[]), Err(RowFault::InsideOperator));
        assert_eq!(judged(false, &[], &[4]), Err(RowFault::OtherAccess));
        assert_eq!(judged(false, &[], &[4, 5, 6]), Err(RowFault::AccessesMissing));
        assert_eq!(judged(false, &[(4, &[malloc])], &[]), Err(RowFault::AllocatedTwice));
        let larger = Row { bytes: 9, ..malloc };
        assert_eq!(judged(false, &[(4, &[free, larger])], &[]), Err(RowFault::SizeChanged));
    }

    #[test]
    fn a_weight_may_use_its_initial_copy_if_its_final_value_is_on_the_host() {
        let [out, free, malloc, back] =
            [Event::SwapOut, Event::Free, Event::Malloc, Event::SwapIn].map(|event| row(event, 0, Op::None));
        let away: (usize, &[Row]) = (4, &[free, malloc, back]);
        assert_eq!(judged(true, &[away, (7, &[out])], &[]), Ok(()));
        assert_eq!(judged(true, &[away], &[]), Err(RowFault::EndNotRestored));
        assert_eq!(judged(false, &[away, (7, &[out])], &[]), Err(RowFault::NotOnHost));
        // On the device at the start, it must be there at the end.
        assert_eq!(judged(true, &[(7, &[out, free])], &[]), Err(RowFault::EndNotRestored));
    }
}
