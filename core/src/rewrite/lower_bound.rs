//! A lower bound on the load: no schedule of a given overhead has a lower peak.
//!
//! It is a relaxation: blocks move in parts and without latency, and each row is looked at on its own. At the time of a
//! row, the link out can have moved only bytes that were ready early enough, and the link in must bring them back
//! before they are needed. So each block that is away has a window of time on each link. On the link out the windows
//! end together, on the link in they begin together; taking the shortest first gives the most bytes that the link can
//! move.
//!
//! Blocks of any size may move, and the gaps of blocks that are never freed cross the end of the iteration. One copy
//! out serves all gaps until the next write. A block that is read before it is written may be on the host from the
//! start. In a gap that ends in a write nothing is copied: the block takes no memory there. Blocks that are freed are
//! alive before their first access and after their last as in the original. Every window gets longer by the whole
//! overhead, since nobody knows where the overhead will lie.
//!
//! Rows are looked at by falling load, until the load is below the bound that was found. Cost: O(rows · gaps) at worst,
//! in practice over few rows; linear workspace.

use super::program::Program;
use crate::simulate::Device;
use crate::table::{Record, at, count, record};
use crate::trace::{Event, Recorded, Row};
use crate::workspace::workspace;
use crate::{Error, Workspace, WorkspaceLen, block, sort};

/// Length of the workspace that [`least_load`] needs.
#[must_use]
pub const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    Program::workspace(rows, blocks).and(Idle::workspace(rows, blocks)).and(Order::workspace(rows, blocks))
}

/// A lower bound on the peak load of every schedule that takes at most `overhead_ns` longer than the trace, in bytes.
///
/// # Errors
/// [`Error::BufferTooSmall`] if the workspace is too short; [`Error::Row`] for a trace that is not as recorded;
/// [`Error::TooManyBlocks`]; [`Error::Device`].
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
    let question = Question { overhead_ns, cutoff: u64::MAX, rows: u32::MAX };
    answer(rows, block_count, device, &question, scratch)
}

/// Whether every schedule within `limit` bytes is proved to take more than `overhead_ns` longer than the trace. Only
/// the rows with the highest loads are looked at, so that false proves nothing.
pub(crate) fn takes_longer(
    recorded: &Recorded<'_>,
    device: &Device,
    overhead_ns: u64,
    limit: u64,
    scratch: Workspace<'_>,
) -> Result<bool, Error> {
    let question = Question { overhead_ns, cutoff: limit, rows: FEW };
    answer(recorded.rows, recorded.blocks, device, &question, scratch).map(|load| load > limit)
}

/// How many rows [`takes_longer`] looks at.
const FEW: u32 = 256;

/// The question that [`answer`] answers.
struct Question {
    overhead_ns: u64,
    /// A lower bound above this is good enough, in bytes: the search for a higher one ends.
    cutoff: u64,
    /// At most so many rows are looked at.
    rows: u32,
}

/// The lower bound on the peak load, in bytes.
fn answer(
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
    let mut scratch = scratch.reborrow();
    let program = Program::new(rows, block_count, &mut scratch)?;
    let mut idle = Idle::lend(rows.len(), block_count, &mut scratch);
    idle.find(&program);
    let mut order = Order::lend(rows.len(), block_count, &mut scratch);
    Ok(over_rows(&program, &idle, device, question, &mut order))
}

/// Two accesses of a block with none between them. Where the later one has the lower row number, the pause crosses the
/// end of the iteration.
#[derive(Clone, Copy)]
struct Pause {
    block: u32,
    /// The row of the access before it.
    begin: u32,
    /// The row of the access after it.
    end: u32,
    /// The time from which the block can be away, in ns: when the operator of the access before has ended.
    release: u64,
    /// The time by which the block must be back, in ns.
    deadline: u64,
    /// When the block's value was written, from when on it can be copied out, in ns; none if the host has it from the
    /// start.
    written: Option<u64>,
}

impl Record for Pause {
    type Kept = [u64; 5];
    fn keep(self) -> [u64; 5] {
        let rows = u64::from(self.begin) << u32::BITS | u64::from(self.end);
        [self.block.into(), rows, self.release, self.deadline, self.written.unwrap_or(ON_HOST)]
    }
    fn kept([block, rows, release, deadline, written]: [u64; 5]) -> Self {
        let low = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0);
        let written = Some(written).filter(|&written| written != ON_HOST);
        Self { block: low(block), begin: low(rows >> u32::BITS), end: low(rows), release, deadline, written }
    }
}

/// Stands for no time of writing: the host has the value from the start.
const ON_HOST: u64 = u64::MAX;

record! {
    /// What is known of a block while the rows are read.
    struct Seen {
        /// The row of its malloc; none before it.
        allocated: Option<u32>,
        /// The row of its first access.
        first: Option<u32>,
        /// The row of its last access so far.
        last: u32,
        /// The operator of its last access so far.
        operator: u32,
        /// The operator that wrote it last.
        writer: Option<u32>,
        /// Whether it has been freed.
        freed: bool,
    }
}

workspace! {
    /// The pauses of all blocks, and the load without blocks whose value nobody reads any more.
    struct Idle<'a>(rows, blocks) {
        tables {
            /// By row: this load, in bytes.
            load: u64[rows],
        }
        records {
            /// What is known of each block.
            seen: Seen[blocks],
        }
        lists {
            /// The pauses that end in a read.
            pauses: Pause[rows + blocks],
        }
    }
}

impl Idle<'_> {
    /// Finds the loads and the pauses.
    fn find(&mut self, program: &Program<'_>) {
        let mut present = 0u64;
        for o in 0..program.operators {
            for row in program.first_row[o]..program.first_row[o + 1] {
                let r = at(program.rows, row);
                let seen = self.seen.get(r.block);
                match r.event {
                    Event::Malloc => {
                        self.seen.set(r.block, Seen { allocated: Some(row), ..seen });
                        present = present.saturating_add(r.bytes);
                    }
                    Event::Free => {
                        self.seen.set(r.block, Seen { freed: true, ..seen });
                        present = present.saturating_sub(program.size[r.block]);
                    }
                    _ => self.access(program, o, (row, &r)),
                }
                self.load[row] = present;
            }
        }
        for block in 0..program.blocks() {
            let seen = self.seen.get(block);
            let Some(first) = seen.first.filter(|_| !seen.freed) else { continue };
            if at(program.rows, first).event == Event::Write {
                let size = program.size[block];
                self.leave_out(seen.allocated.unwrap_or(first)..first, size);
                self.leave_out(seen.last + 1..count(program.rows), size);
            } else {
                let deadline = at(program.rows, first).time_ns.saturating_add(program.end_time);
                self.pause(program, block, (first, deadline));
            }
        }
    }

    /// Notes an access, and the pause or the unused bytes before it.
    fn access(&mut self, program: &Program<'_>, operator: u32, (row, r): (u32, &Row)) {
        let seen = self.seen.get(r.block);
        let writes = r.event == Event::Write;
        if seen.first.is_some() && seen.operator != operator {
            if writes {
                self.leave_out(seen.last + 1..row, program.size[r.block]);
            } else {
                self.pause(program, r.block, (row, r.time_ns));
            }
        }
        let first = seen.first.or(Some(row));
        let by = if writes { Some(operator) } else { seen.writer };
        self.seen.set(r.block, Seen { first, last: row, operator, writer: by, ..seen });
    }

    /// Adds the pause of a block that ends in this row, at this time in ns.
    fn pause(&mut self, program: &Program<'_>, block: u32, (end, deadline): (u32, u64)) {
        let seen = self.seen.get(block);
        let released = |operator: u32| program.time[operator + 1];
        let (release, written) = (released(seen.operator), seen.writer.map(released));
        self.pauses.push(Pause { block, begin: seen.last, end, release, deadline, written });
    }

    /// Takes the bytes of a block off the load of rows in which nobody needs its value.
    fn leave_out(&mut self, rows: core::ops::Range<u32>, size: u64) {
        for row in rows {
            self.load[row] = self.load[row].saturating_sub(size);
        }
    }
}

workspace! {
    /// The rows by falling load; and for one row, the blocks that may be on the host then, with their windows of time.
    struct Order<'a>(rows, blocks) {
        tables {
            /// The rows, the one with the highest load first.
            by_load: u32[rows],
            /// Scratch memory of that sort.
            rows_aside: u32[rows],
            /// By block that may be on the host: its bytes.
            size: u64[rows + blocks],
            /// By block that may be on the host: the time since its value was written, in ns; `u64::MAX` if the host
            /// has it from the start.
            since: u64[rows + blocks],
            /// By block that may be on the host: the time until it must be back, in ns.
            until: u64[rows + blocks],
            /// These blocks, by one of these times, the shortest first.
            by_time: u32[rows + blocks],
            /// Scratch memory of that sort.
            aside: u32[rows + blocks],
        }
    }
}

/// The highest of the rows' lower bounds on the peak load, in bytes: a row's bound is its load less the bytes that can
/// be on the host at its time. Ends early at a bound above the cutoff.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bound in bytes"
)]
fn over_rows(
    program: &Program<'_>,
    idle: &Idle<'_>,
    device: &Device,
    question: &Question,
    order: &mut Order<'_>,
) -> u64 {
    let Order { by_load, rows_aside, size, since, until, by_time, aside } = order;
    let n = count(program.rows);
    sort::identity(by_load, n);
    sort::by_key(by_load, n, rows_aside, |row| !idle.load[row]);
    let mut bound = 0.0f64;
    for i in 0..n.min(question.rows) {
        let row = by_load[i];
        let loaded = idle.load[row] as f64;
        if loaded <= bound || bound > question.cutoff as f64 {
            break;
        }
        let time = at(program.rows, row).time_ns;
        let (mut away, mut bytes) = (0, 0.0);
        for pause in idle.pauses.iter() {
            let crosses_end = pause.end <= pause.begin;
            let (after, before) = (row > pause.begin && time >= pause.release, row < pause.end);
            // The time of the row, from the start of the iteration in which the pause begins.
            let then = if after && (before || crosses_end) {
                Some(time)
            } else if crosses_end && before {
                time.checked_add(program.end_time)
            } else {
                None
            };
            if let Some(t) = then {
                since[away] = pause.written.map_or(u64::MAX, |written| t.saturating_sub(written));
                until[away] = pause.deadline.saturating_sub(t);
                size[away] = program.size[pause.block];
                bytes += size[away] as f64;
                away += 1;
            }
        }
        let mut movable = bytes;
        for (windows, bandwidth) in [(&*since, device.out_bandwidth), (&*until, device.in_bandwidth)] {
            sort::identity(by_time, away);
            sort::by_key(by_time, away, aside, |k| windows[k]);
            let moved = by_time.first(away).iter().fold(0.0f64, |moved, &k| {
                let window = windows[k].saturating_add(question.overhead_ns);
                (moved + size[k] as f64).min(window as f64 * (bandwidth / 1e9))
            });
            movable = movable.min(moved);
        }
        bound = bound.max(loaded - movable);
    }
    // Above 2⁵³ bytes a load may have been rounded up.
    let most = if n > 0 { idle.load[by_load[0]] } else { 0 };
    (bound as u64).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Op;

    const fn row(time_ns: u64, event: Event, block: u32, op: u32) -> Row {
        Row { time_ns, bytes: if matches!(event, Event::Malloc) { 8000 } else { 0 }, block, op: Op::First(op), event }
    }

    fn bound(rows: &[Row]) -> u64 {
        let len = workspace(rows.len(), 2);
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        // 12 bytes per ns.
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
        // Its copy is on the host by then, so that the block takes no time to leave.
        let mut at_once = rows(Event::Read);
        for r in &mut at_once[4..7] {
            r.time_ns = 3000;
        }
        assert_eq!(bound(&at_once), 8000);
        // Where the block is written once more before, there are 100 ns for its copy out.
        assert_eq!(bound(&rows(Event::Write)), 16_000 - 1200);
    }
}
