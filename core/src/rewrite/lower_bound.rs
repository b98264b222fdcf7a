//! A load that no schedule of some overhead can go below.
//!
//! A relaxation: blocks move in parts and without latency, and each row is looked at on its own. By the time of a row
//! the link out can have moved only what was released early enough, and the link in must bring it back in time; the
//! windows of what is away are nested, so that the shortest first is the tightest. Blocks of any size may move, and the
//! gaps of persistent blocks cross the end of the iteration. What is copied out once serves all gaps until the next write;
//! what is read before it is written may be on the host from the start; and in a gap that ends in a write nothing is
//! copied, so that the block just is not there. Blocks come and go as in the original before their first access and after
//! their last. An overhead makes every window longer by all of it: it is not known where it lies.
//!
//! Rows are looked at by falling load, until the load itself is below the bound. O(rows · gaps) at worst, in
//! practice a small part of the rows; linear workspace.

use crate::error::RowFault;
use crate::simulate::Device;
use crate::table::{Table, at, count};
use crate::trace::{Event, Op, Recorded, Row};
use crate::{Error, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace that [`least_load`] needs.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let gaps = rows + blocks;
    WorkspaceLen { words: 2 * rows + 4 * blocks + 7 * gaps, indices: 2 * rows + 4 * gaps + 3 * blocks }
}

/// A lower bound on the peak load of every schedule that takes at most `overhead_ns` longer than the trace, in bytes.
///
/// # Errors
/// [`Error::BufferTooSmall`] if the workspace is too short; [`Error::Row`] for a block number that is not below
/// `block_count`, or a copy; [`Error::TooManyBlocks`]; [`Error::Device`].
///
/// ```
/// use sublet_core::rewrite::lower_bound;
/// use sublet_core::simulate::Device;
/// use sublet_core::trace::{Event, Op, Row};
/// use sublet_core::Workspace;
/// let row = |time_ns, event, block, bytes, op| Row { time_ns, event, block, bytes, op };
/// let rows = [
///     row(0, Event::Malloc, 0, 8_000, Op::First(0)),
///     row(1_000, Event::Write, 0, 0, Op::First(0)),
///     row(1_500, Event::Malloc, 1, 8_000, Op::First(1)),
///     row(1_500, Event::Write, 1, 0, Op::First(1)),
///     row(1_500, Event::Free, 1, 0, Op::First(1)),
///     row(9_000, Event::Read, 0, 0, Op::First(2)),
///     row(9_000, Event::Free, 0, 0, Op::First(2)),
/// ];
/// let len = lower_bound::workspace(rows.len(), 2);
/// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
/// let device = Device::symmetric(12e9);
/// let mut least = |overhead_ns| {
///     lower_bound::least_load(&rows, 2, &device, overhead_ns, Workspace::new(&mut words, &mut indices))
/// };
/// // In the 500 ns until the second block is allocated, 6,000 bytes of the first can have left; and 1,200 in 100 ns more.
/// assert_eq!((least(0)?, least(100)?), (10_000, 8_800));
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn least_load(
    rows: &[Row],
    block_count: usize,
    device: &Device,
    overhead_ns: u64,
    scratch: Workspace<'_>,
) -> Result<u64, Error> {
    let question = Question { overhead_ns, enough: u64::MAX, rows: u32::MAX };
    bound(rows, block_count, device, &question, scratch)
}

/// Whether it is sure that every schedule whose load is within `limit` takes more than `overhead_ns` longer; asked of the
/// rows that have the highest loads.
pub(crate) fn takes_longer(
    recorded: &Recorded<'_>,
    device: &Device,
    overhead_ns: u64,
    limit: u64,
    scratch: Workspace<'_>,
) -> Result<bool, Error> {
    let question = Question { overhead_ns, enough: limit, rows: FEW };
    bound(recorded.rows, recorded.blocks, device, &question, scratch).map(|load| load > limit)
}

/// So many rows show whether a limit is out of reach.
const FEW: u32 = 256;

/// What is asked.
struct Question {
    overhead_ns: u64,
    /// A bound above this needs not be better.
    enough: u64,
    /// The most rows that are looked at.
    rows: u32,
}

/// The bound that a question asks for.
fn bound(
    rows: &[Row],
    block_count: usize,
    device: &Device,
    question: &Question,
    mut scratch: Workspace<'_>,
) -> Result<u64, Error> {
    if !device.is_sound() {
        return Err(Error::Device);
    }
    block::check_count(block_count)?;
    scratch.check(workspace(rows.len(), block_count))?;
    let n = count(rows);
    let mut load = scratch.words(rows.len());
    let mut released = scratch.words(rows.len());
    let mut size = scratch.words(block_count);
    let mut blocks = Blocks {
        first: scratch.words(block_count),
        last_release: scratch.words(block_count),
        written: scratch.words(block_count),
        first_row: scratch.indices(block_count),
        last_row: scratch.indices(block_count),
        state: scratch.indices(block_count),
    };
    blocks.written.fill(ON_HOST);
    let gaps_len = rows.len() + block_count;
    let mut gaps = Gaps {
        begin: scratch.indices(gaps_len),
        end: scratch.indices(gaps_len),
        release: scratch.words(gaps_len),
        deadline: scratch.words(gaps_len),
        written: scratch.words(gaps_len),
        size: scratch.words(gaps_len),
        len: 0,
    };
    let mut present = 0u64;
    for (row, r) in (0u32..).zip(rows) {
        let refuse = |fault| Err(Error::Row { row, fault });
        if usize::try_from(r.block).map_or(true, |b| b >= block_count) {
            return refuse(RowFault::UnknownBlock);
        }
        match r.event {
            Event::Malloc => {
                size[r.block] = r.bytes;
                present = present.saturating_add(r.bytes);
            }
            Event::Free => present = present.saturating_sub(size[r.block]),
            Event::Read | Event::Write => {}
            Event::SwapIn | Event::SwapOut => return refuse(RowFault::NotRecorded),
        }
        load[row] = present;
    }
    // What an operator accesses is released when its rows end.
    for row in (0..n).rev() {
        let r = at(rows, row);
        let goes_on = row + 1 < n && r.op != Op::None && at(rows, row + 1).op == r.op;
        released[row] = if goes_on { released[row + 1] } else { r.time_ns };
    }
    for (row, r) in (0u32..).zip(rows) {
        match r.event {
            Event::Free => blocks.state[r.block] |= FREED,
            Event::Read | Event::Write => {
                let last = blocks.last_row[r.block];
                if blocks.state[r.block] & ACCESSED == 0 {
                    blocks.first[r.block] = r.time_ns;
                    blocks.first_row[r.block] = row;
                } else if r.event == Event::Write {
                    if r.op == Op::None || r.op != at(rows, last).op {
                        leave_out(&mut load, last + 1..row, size[r.block]);
                    }
                } else if r.time_ns > blocks.last_release[r.block] || r.op == Op::None || r.op != at(rows, last).op {
                    gaps.push(&blocks, r.block, (row, r.time_ns), size[r.block]);
                }
                blocks.state[r.block] |= ACCESSED;
                blocks.last_release[r.block] = released[row];
                blocks.last_row[r.block] = row;
                if r.event == Event::Write {
                    blocks.written[r.block] = released[row];
                }
            }
            _ => {}
        }
    }
    let end = rows.last().map_or(0, |r| r.time_ns);
    for b in 0..u32::try_from(block_count).unwrap_or(u32::MAX) {
        if blocks.state[b] != ACCESSED {
            continue;
        }
        let first = blocks.first_row[b];
        if at(rows, first).event == Event::Write {
            let allocated = (0..first).find(|&row| at(rows, row).event == Event::Malloc && at(rows, row).block == b);
            leave_out(&mut load, allocated.unwrap_or(first)..first, size[b]);
            leave_out(&mut load, blocks.last_row[b] + 1..n, size[b]);
        } else {
            gaps.push(&blocks, b, (first, blocks.first[b].saturating_add(end)), size[b]);
        }
    }
    Ok(over_rows(rows, &load, &gaps, device, question, scratch))
}

/// In these rows a block is not there.
fn leave_out(load: &mut Table<'_, u64>, rows: core::ops::Range<u32>, size: u64) {
    for row in rows {
        load[row] = load[row].saturating_sub(size);
    }
}

/// When a value was written that the host has from the start.
const ON_HOST: u64 = u64::MAX;

const ACCESSED: u32 = 1;
const FREED: u32 = 2;

/// What is known of each block while the rows are read.
struct Blocks<'a> {
    first: Table<'a, u64>,
    last_release: Table<'a, u64>,
    /// When what it holds was released by the operator that wrote it, or [`ON_HOST`].
    written: Table<'a, u64>,
    first_row: Table<'a, u32>,
    last_row: Table<'a, u32>,
    state: Table<'a, u32>,
}

/// Between the accesses in one row and another; across the end of the iteration where the other comes first.
struct Gaps<'a> {
    begin: Table<'a, u32>,
    end: Table<'a, u32>,
    release: Table<'a, u64>,
    deadline: Table<'a, u64>,
    written: Table<'a, u64>,
    size: Table<'a, u64>,
    len: u32,
}

impl Gaps<'_> {
    fn push(&mut self, blocks: &Blocks<'_>, block: u32, (end, deadline): (u32, u64), size: u64) {
        self.begin[self.len] = blocks.last_row[block];
        self.end[self.len] = end;
        self.release[self.len] = blocks.last_release[block];
        self.deadline[self.len] = deadline;
        self.written[self.len] = blocks.written[block];
        self.size[self.len] = size;
        self.len += 1;
    }
}

/// The bound over all rows.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound in bytes"
)]
fn over_rows(
    rows: &[Row],
    load: &Table<'_, u64>,
    gaps: &Gaps<'_>,
    device: &Device,
    question: &Question,
    mut scratch: Workspace<'_>,
) -> u64 {
    let end = rows.last().map_or(0, |r| r.time_ns);
    let n = count(rows);
    let mut by_load = scratch.indices(rows.len());
    let mut rows_aside = scratch.indices(rows.len());
    sort::identity(&mut by_load, n);
    sort::by_key(&mut by_load, n, &mut rows_aside, |row| !load[row]);
    let most = gaps.size.len();
    let (mut since, mut until, mut size) = (scratch.words(most), scratch.words(most), scratch.words(most));
    let (mut order, mut aside) = (scratch.indices(most), scratch.indices(most));
    let mut bound = 0.0f64;
    for i in 0..n.min(question.rows) {
        let row = by_load[i];
        let loaded = load[row] as f64;
        if loaded <= bound || bound > question.enough as f64 {
            break;
        }
        let time = at(rows, row).time_ns;
        let (mut away, mut bytes) = (0, 0.0);
        for gap in 0..gaps.len {
            let (begin, deadline) = (gaps.begin[gap], gaps.deadline[gap]);
            let crosses_end = gaps.end[gap] <= begin;
            let (after, before) = (row > begin && time >= gaps.release[gap], row < gaps.end[gap]);
            // In this iteration, or as what began to leave in the one before.
            let then = if after && (before || crosses_end) {
                Some(time)
            } else if crosses_end && before {
                time.checked_add(end)
            } else {
                None
            };
            if let Some(t) = then {
                let written = gaps.written[gap];
                since[away] = if written == ON_HOST { u64::MAX } else { t.saturating_sub(written) };
                until[away] = deadline.saturating_sub(t);
                size[away] = gaps.size[gap];
                bytes += gaps.size[gap] as f64;
                away += 1;
            }
        }
        let mut movable = bytes;
        for (windows, bandwidth) in [(&since, device.out_bandwidth), (&until, device.in_bandwidth)] {
            sort::identity(&mut order, away);
            sort::by_key(&mut order, away, &mut aside, |k| windows[k]);
            let moved = (0..away).map(|k| order[k]).fold(0.0f64, |moved, k| {
                let window = windows[k].saturating_add(question.overhead_ns);
                (moved + size[k] as f64).min(window as f64 * (bandwidth / 1e9))
            });
            movable = movable.min(moved);
        }
        bound = bound.max(loaded - movable);
    }
    // Above 2⁵³ bytes a load may have been rounded up.
    let most = if n > 0 { load[by_load[0]] } else { 0 };
    (bound as u64).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(time_ns: u64, event: Event, block: u32, op: u32) -> Row {
        Row { time_ns, bytes: if matches!(event, Event::Malloc) { 8000 } else { 0 }, block, op: Op::First(op), event }
    }

    fn bound(rows: &[Row]) -> u64 {
        let len = workspace(rows.len(), 2);
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        // 12 bytes a nanosecond.
        let device = Device::symmetric(12e9);
        least_load(rows, 2, &device, 0, Workspace::new(&mut words, &mut indices)).unwrap()
    }

    #[test]
    fn what_is_written_over_need_not_be_copied() {
        let rows = |event| {
            [
                row(0, Event::Malloc, 0, 0),
                row(1000, Event::Write, 0, 0),
                row(1000, Event::Malloc, 1, 1),
                row(2000, Event::Write, 1, 1),
                row(2000, Event::Free, 1, 1),
                row(2000, event, 0, 2),
                row(2000, Event::Free, 0, 2),
            ]
        };
        assert_eq!(bound(&rows(Event::Read)), 16_000);
        assert_eq!(bound(&rows(Event::Write)), 8000);
    }

    #[test]
    fn it_is_never_above_the_load() {
        for bytes in [(1 << 53) - 1, (1 << 53) + 3, u64::MAX - 1] {
            let rows = [Row { bytes, ..row(0, Event::Malloc, 0, 0) }];
            assert!(bound(&rows) <= bytes && bound(&rows) >= bytes - (bytes >> 52), "{bytes}");
        }
    }

    #[test]
    fn a_device_without_times_is_refused() {
        let device = Device { out_bandwidth: -1.0, ..Device::symmetric(12e9) };
        let refused = least_load(&[], 0, &device, 0, Workspace::new(&mut [], &mut []));
        assert_eq!(refused, Err(Error::Device));
    }

    #[test]
    fn one_copy_out_serves_all_gaps_of_a_value() {
        let rows = |event| {
            [
                row(0, Event::Malloc, 0, 0),
                row(1000, Event::Write, 0, 0),
                row(3000, Event::Read, 0, 1),
                row(3000, event, 0, 1),
                row(3100, Event::Malloc, 1, 2),
                row(3100, Event::Write, 1, 2),
                row(3100, Event::Free, 1, 2),
                row(9000, Event::Read, 0, 3),
                row(9000, Event::Free, 0, 3),
            ]
        };
        assert_eq!(bound(&rows(Event::Read)), 8000);
        // With that copy on the host, it leaves in no time.
        let mut at_once = rows(Event::Read);
        for r in &mut at_once[4..7] {
            r.time_ns = 3000;
        }
        assert_eq!(bound(&at_once), 8000);
        // Written again, it has 100 ns to leave.
        assert_eq!(bound(&rows(Event::Write)), 16_000 - 1200);
    }
}
