//! Plans the memory of a network for a framework that allocates each tensor once and keeps it.
//!
//! Such a framework frees no tensor, so lifetimes cannot be recorded. But it can tell which memories (storages of one
//! or more tensors) each operator reads and writes in one pass through the network. From this the module makes a plan:
//!
//! 1. `residency` finds the memories that hold values of this iteration alone: those that are written before they are
//!    read. Such a memory is resident: it has a place in the arena from the first operator that uses it to the last. A
//!    scratch memory holds nothing from one operator to the next, so it is resident anew in each operator that uses it.
//!    All other memories are kept: they stay where they are and are no part of the plan. Memories that [`Memory::kept`]
//!    names, and those of 0 bytes, are kept too.
//! 2. Every residency, a time in which a memory is resident, gets an offset in the arena. If the arena has a limit,
//!    [`fit`] rewrites the trace first where needed: it recomputes operators or swaps blocks.
//! 3. The result is proved by [`verify::schedule`], as every plan is.
//! 4. `steps` turns the proved schedule into what the framework does before each of its operators: bind a memory to an
//!    offset of the arena, recompute an operator, copy.
//!
//! The module relies on what the framework tells, and assumes nothing else. A write may leave parts of a memory as they
//! were, so it counts as a read too if the memory holds a value of this iteration; [`Use::Overwrite`] says that every
//! byte is written. An operator that writes a kept memory is never recomputed, since it might update the memory twice.
//! A memory of 0 bytes that [`Memory::kept`] does not name is an exception: a write changes nothing there. An operator
//! that reads a kept memory is recomputed only while the memory holds the value that the operator read.
//!
//! Cost, besides placement, fit and proof: O(n log n) time on average, where n is the number of memories, operators and
//! rows together.

mod residency;
mod stand_ins;
mod steps;

use crate::error::Buffer;
use crate::rewrite::fit::{self, Lengths, Means, Output, Using};
use crate::simulate::{Device, Run};
use crate::trace::{self, Recorded, Row, liveness};
use crate::verify::{self, Room, VerifiedSchedule};
use crate::{Constraints, Error, Workspace, WorkspaceLen, place};
pub use steps::{Action, Step};

/// A memory of the framework: the storage of one or more of its tensors, with its size and how it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Memory {
    /// The size of the memory, in bytes. A memory of 0 bytes gets no place in the arena. If `kept` is false, a write to
    /// it changes nothing, so the operator that writes it may be recomputed. If `kept` is true, an operator that writes
    /// the memory is never recomputed, whatever the size.
    pub bytes: u64,
    /// True if the memory keeps its place and its value and is no part of the plan: a parameter, an output, or a value
    /// that the user reads after the iteration.
    pub kept: bool,
    /// True if the memory is scratch: it holds no value from one operator to the next. The flag is ignored if some
    /// operator reads the memory without having written it first.
    pub scratch: bool,
}

/// An operator of a network: its time, and whether it may be recomputed. Operators are listed in the order of
/// execution, those of the backward pass included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Operator {
    /// How long the operator takes, in ns. If nothing is swapped, only the ratios between the times of operators
    /// matter.
    pub time_ns: u64,
    /// Whether the operator may be recomputed: run a second time, with the same result, so that its output need not be
    /// kept.
    pub rerun: bool,
}

/// How an operator uses a memory: the storage of one or more tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Use {
    /// The operator reads the memory.
    #[default]
    Read,
    /// The operator writes the memory, and may leave parts of it as they are.
    Write,
    /// The operator writes every byte of the memory, and reads none of them before.
    Overwrite,
}

/// One use of a memory, the storage of one or more tensors, by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Access {
    /// The number of the operator that uses the memory. Accesses are listed in the order of execution, so this number
    /// never decreases.
    pub op: u32,
    /// The number of the memory that the operator uses: its index in [`Network::memories`].
    pub memory: u32,
    /// How the operator uses the memory.
    pub how: Use,
}

/// What one pass through a network reads and writes: the input of [`record`], from a framework that allocates each
/// tensor once and keeps it.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The memories of the framework; a memory's number is its index in this slice.
    pub memories: &'a [Memory],
    /// The operators, in the order of execution; an operator's number is its index in this slice.
    pub operators: &'a [Operator],
    /// Which operator uses which memory, in the order of execution. An operator may use a memory several times.
    pub accesses: &'a [Access],
}

/// The options of [`plan`], with recomputation and swaps. Without a `device`, the network computes in the memory of the
/// host, so that nothing is swapped. `limit` is the most bytes that the arena may have; [`u64::MAX`] is no limit, and then
/// nothing is swapped or recomputed.
#[must_use]
pub fn options(limit: u64, device: Option<Device>) -> fit::Options {
    let device = device.unwrap_or(Device { integrated: true, host_capacity: Some(0), ..Device::symmetric(12e9) });
    let using = Using::NONE.with(Means::Recompute).with(Means::Swap);
    fit::Options { alignment: 64, using, ..fit::Options::new(limit, device) }
}

/// The trace of one pass through a network, and what else [`plan`] has to know; made by [`record`].
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    rows: &'a [Row],
    operators: &'a [trace::Operator],
    /// By block of the trace: its memory; [`residency::NONE`] if it stands for a kept one.
    memories: &'a [u32],
    planned_bytes: u64,
    kept_bytes: u64,
    alignment: u64,
    /// Of the operators after the last row.
    rest_ns: u64,
}

/// How long the slices and the workspace that the caller lends to [`record`] must be. One slice is not covered: `known`
/// must have one element for each operator of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordNeeded {
    /// How many elements the slice `rows` of [`record`] must have.
    pub rows: usize,
    /// How many elements the slice `owners` of [`record`] must have.
    pub memories: usize,
    /// How long the workspace of [`record`] must be.
    pub workspace: WorkspaceLen,
}

impl RecordNeeded {
    /// The lengths of the slices and the workspace of [`record`], for a network with this number of memories and this
    /// number of accesses: uses of a memory by an operator.
    #[must_use]
    pub const fn of(memories: usize, accesses: usize) -> Self {
        let rows = residency::most_rows(accesses);
        Self { rows, memories: accesses, workspace: residency::workspace(memories) }
    }
}

impl Recording<'_> {
    /// The lengths of the slices and the workspace that [`plan`] needs for this recording; `limited` is true if the
    /// arena has a limit in bytes.
    #[must_use]
    pub fn needed(&self, limited: bool) -> Needed {
        let blocks = self.memories.len();
        let lengths = if limited { Lengths::of(self.rows, blocks) } else { Needed::unlimited(self.rows.len(), blocks) };
        Needed::for_lengths(self.rows.len(), blocks, lengths, limited)
    }

    fn recorded(&self) -> Recorded<'_> {
        Recorded { rows: self.rows, operators: self.operators, blocks: self.memories.len() }
    }
}

/// How long the slices and the workspace of [`plan`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// The lengths of its output. There must be room for as many steps as timings.
    pub lengths: Lengths,
    /// How long the workspace must be.
    pub workspace: WorkspaceLen,
}

impl Needed {
    /// Lengths that suffice for every network with this number of accesses. `limited` is true if the arena has a limit.
    /// Without a limit no trace is rewritten, and the lengths are far less.
    #[must_use]
    pub const fn most(accesses: usize, limited: bool) -> Self {
        let (rows, blocks) = (residency::most_rows(accesses), accesses);
        let lengths = if limited {
            Lengths::of_counts(rows, residency::most_accesses(accesses), blocks, blocks)
        } else {
            Self::unlimited(rows, blocks)
        };
        Self::for_lengths(rows, blocks, lengths, limited)
    }

    const fn unlimited(rows: usize, blocks: usize) -> Lengths {
        Lengths { rows: 0, timings: rows, residencies: blocks }
    }

    const fn for_lengths(rows: usize, blocks: usize, lengths: Lengths, limited: bool) -> Self {
        let proof = verify::schedule_workspace(rows, blocks, lengths.residencies);
        let made = if limited {
            fit::workspace(rows, blocks, lengths)
        } else {
            place::workspace_up_to(SOLVER, blocks).max(liveness::workspace(blocks))
        };
        let written = stand_ins::workspace(blocks, lengths.residencies).and(steps::workspace(blocks));
        Self { lengths, workspace: proof.max(made).max(written) }
    }
}

const SOLVER: place::Solver = place::Solver::Auto;

/// The result of [`plan`]: how many steps and bytes the plan of a network has, and how long one pass through the
/// network takes if the framework follows the plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// How many steps the plan has: they are the first elements of `steps`.
    pub steps: usize,
    /// The bytes that the arena needs.
    pub peak: u64,
    /// The most bytes that live blocks take in the arena at once. No plan of these blocks has a lower peak.
    pub max_load: u64,
    /// The most bytes that live blocks would take in the arena at once if nothing were recomputed or swapped.
    pub original_load: u64,
    /// The sum of the bytes of all memories that are not kept. Without a plan, where no two of them share an address,
    /// they take this many bytes. Memories that no operator uses count too, although they have no place in the plan.
    pub planned_bytes: u64,
    /// The sum of the bytes of all memories that keep their place and value and are no part of the plan: those with
    /// [`Memory::kept`], and those that are read before they are written.
    pub kept_bytes: u64,
    /// The simulated time of one pass that follows the plan, from the times [`Operator::time_ns`], and what is copied
    /// and recomputed in it.
    pub run: Run,
}

/// Makes the trace of one pass through the operators of the network, as the input of [`plan`]. It writes the trace's
/// rows to `rows`; to `known`, for each operator, whether it may be recomputed; and to `owners`, for each block of the
/// trace, the number of its memory, or `u32::MAX` if the block stands for a kept memory. Every offset of a plan will be a
/// multiple of `alignment`, a power of two in bytes.
///
/// # Errors
/// [`Error::Access`] for an access that names no memory or operator of the network, or an earlier operator than the
/// access before it; [`Error::Alignment`] for an alignment that is not a power of two; [`Error::SizeOverflow`] if the
/// bytes of the memories do not fit in 64 bits (the field `block` is then the number of a memory);
/// [`Error::BufferTooSmall`] if a slice or the workspace is shorter than [`RecordNeeded`] says, or `known` has fewer
/// elements than there are operators.
pub fn record<'a>(
    network: &Network<'_>,
    alignment: u64,
    scratch: Workspace<'_>,
    rows: &'a mut [Row],
    known: &'a mut [trace::Operator],
    owners: &'a mut [u32],
) -> Result<Recording<'a>, Error> {
    let needed = RecordNeeded::of(network.memories.len(), network.accesses.len());
    scratch.check(needed.workspace)?;
    for (buffer, needed, got) in [
        (Buffer::Rows, needed.rows, rows.len()),
        (Buffer::Operators, network.operators.len(), known.len()),
        (Buffer::Blocks, needed.memories, owners.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    if !alignment.is_power_of_two() {
        return Err(Error::Alignment { block: None, alignment });
    }
    residency::record(network, alignment, scratch, rows, known, owners)
}

/// Plans the memory of a network that [`record`] has recorded. Writes to `steps` what the framework has to do before each
/// operator, and proves the plan. The alignment is that of the recording: `options.alignment` is not read. Of
/// `options.using` only [`Means::Swap`] and [`Means::Recompute`] are considered. The offsets in `output` are those of a
/// plan that still has the blocks that stand for kept memories; where there are such blocks, the offsets in `steps` can be
/// lower.
///
/// # Errors
/// [`Error::OverLimit`] if no schedule within the limit was found; its `least` is the least footprint of a schedule
/// that was found, in bytes: a limit that works. [`Error::SizeOverflow`] if the bytes of all live ranges, padding for
/// their alignment included, do not fit in 64 bits (the field `block` is then the index of a live range, in the order
/// of the mallocs); [`Error::Device`] if a figure of `options.device` is wrong; [`Error::TooManyBlocks`] if the trace
/// has more blocks than can be planned; [`Error::BufferTooSmall`] if an output or the workspace is too short.
///
/// ```
/// use sublet_core::network::{self, Access, Action, Memory, Network, Operator, RecordNeeded, Use};
/// use sublet_core::rewrite::fit::Output;
/// use sublet_core::Workspace;
/// // Four operators: each writes one memory, and reads the one that the operator before it has written.
/// let memory = |kept| Memory { bytes: 4096, kept, scratch: false };
/// let operators = [Operator { time_ns: 10, rerun: true }; 4];
/// let access = |op, memory, how| Access { op, memory, how };
/// let network = Network {
///     memories: &[memory(false), memory(false), memory(false), memory(true)],
///     operators: &operators,
///     accesses: &[
///         access(0, 0, Use::Write),
///         access(1, 0, Use::Read),
///         access(1, 1, Use::Write),
///         access(2, 1, Use::Read),
///         access(2, 2, Use::Write),
///         access(3, 2, Use::Read),
///         access(3, 3, Use::Write),
///     ],
/// };
/// let needed = RecordNeeded::of(4, network.accesses.len());
/// let (mut words, mut indices) = (vec![0; needed.workspace.words], vec![0; needed.workspace.indices]);
/// let (mut rows, mut owners) = (vec![Default::default(); needed.rows], vec![0; needed.memories]);
/// let mut known = [Default::default(); 4];
/// let options = network::options(u64::MAX, None);
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let recording = network::record(&network, options.alignment, scratch, &mut rows, &mut known, &mut owners)?;
///
/// let needed = recording.needed(false);
/// let (mut words, mut indices) = (vec![0; needed.workspace.words], vec![0; needed.workspace.indices]);
/// let len = needed.lengths;
/// let mut steps = vec![Default::default(); len.timings];
/// let output = Output {
///     rows: &mut vec![Default::default(); len.rows],
///     timings: &mut vec![Default::default(); len.timings],
///     blocks: &mut vec![Default::default(); len.residencies],
///     names: &mut vec![Default::default(); len.residencies],
///     offsets: &mut vec![0; len.residencies],
/// };
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let planned = network::plan(&recording, &options, scratch, output, &mut steps)?;
/// assert_eq!((planned.planned_bytes, planned.peak, planned.steps), (3 * 4096, 2 * 4096, 3));
/// // The third memory lies where the first was, which nobody needs any more.
/// let offset_of = |step: network::Step| if let Action::Bind { offset, .. } = step.action { Some(offset) } else { None };
/// assert_eq!(offset_of(steps[2]), offset_of(steps[0]));
/// assert_eq!(steps[2].before, 2);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn plan(
    recording: &Recording<'_>,
    options: &fit::Options,
    mut scratch: Workspace<'_>,
    output: Output<'_>,
    steps: &mut [Step],
) -> Result<Planned, Error> {
    let options = &fit::Options { alignment: recording.alignment, ..*options };
    let limited = options.limit < u64::MAX;
    let needed = recording.needed(limited);
    scratch.check(needed.workspace)?;
    check(&output, steps, needed.lengths)?;
    let recorded = recording.recorded();
    let standing = stand_ins::bytes(recording.memories, options.alignment);
    let (schedule, original_load) = if limited {
        let with = fit::Options { limit: options.limit.saturating_add(standing), ..*options };
        fitted(&recorded, &with, scratch.reborrow(), output).map_err(|e| match e {
            Error::OverLimit { least, .. } => {
                Error::OverLimit { least: least.saturating_sub(standing), limit: options.limit }
            }
            Error::Impossible { needed, .. } => {
                Error::Impossible { needed: needed.saturating_sub(standing), limit: options.limit }
            }
            e => e,
        })?
    } else {
        placed(&recorded, options, scratch.reborrow(), output)?
    };
    let rest = recording.rest_ns;
    let simulated = schedule.run();
    #[expect(clippy::cast_precision_loss, reason = "a time to be read")]
    let time_ns = simulated.time_ns + rest as f64;
    let run = Run { time_ns, original_ns: simulated.original_ns.saturating_add(rest), ..*simulated };
    let mut scratch = scratch.reborrow();
    let plan = stand_ins::move_up(&schedule, recording.memories, options.alignment, &mut scratch)?;
    Ok(Planned {
        steps: steps::write(&schedule, plan.offsets(), recording.memories, scratch, steps)?,
        peak: plan.peak().saturating_sub(standing),
        max_load: plan.max_load().saturating_sub(standing),
        original_load: original_load.saturating_sub(standing),
        planned_bytes: recording.planned_bytes,
        kept_bytes: recording.kept_bytes,
        run,
    })
}

fn check(output: &Output<'_>, steps: &[Step], needed: Lengths) -> Result<(), Error> {
    let residencies = output.blocks.len().min(output.names.len());
    for (buffer, needed, got) in [
        (Buffer::Rows, needed.rows, output.rows.len()),
        (Buffer::Timings, needed.timings, output.timings.len()),
        (Buffer::Blocks, needed.residencies, residencies),
        (Buffer::Offsets, needed.residencies, output.offsets.len()),
        (Buffer::Steps, needed.timings, steps.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    Ok(())
}

fn placed<'a>(
    recorded: &Recorded<'a>,
    options: &fit::Options,
    mut scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<(VerifiedSchedule<'a>, u64), Error> {
    let Output { timings, blocks, names, offsets, .. } = output;
    let residencies = liveness::residencies(recorded.rows);
    let timings = timings.get_mut(..recorded.rows.len()).unwrap_or_default();
    let (blocks, names) =
        (blocks.get_mut(..residencies).unwrap_or_default(), names.get_mut(..residencies).unwrap_or_default());
    let offsets = offsets.get_mut(..residencies).unwrap_or_default();
    liveness::lifetimes(recorded.rows, recorded.blocks, scratch.reborrow(), blocks, names)?;
    let constraints = Constraints { alignment: options.alignment, ..Constraints::NONE };
    let asked = place::Options { constraints, seed: options.seed, ..place::Options::default() };
    place::place(SOLVER, blocks, &asked, scratch.reborrow(), offsets)?;
    let room = Room { timings, blocks, names };
    let device = (&options.device, true);
    let schedule = verify::schedule(recorded, recorded.rows, offsets, device, &constraints, scratch, room)?;
    let load = schedule.plan().max_load();
    Ok((schedule, load))
}

fn fitted<'a>(
    recorded: &Recorded<'a>,
    options: &fit::Options,
    scratch: Workspace<'_>,
    output: Output<'a>,
) -> Result<(VerifiedSchedule<'a>, u64), Error> {
    let both = Using::NONE.with(Means::Recompute).with(Means::Swap);
    // A block that stands for a kept memory has `alignment` bytes. Since only blocks of at least `least_bytes` are
    // swapped, it is never swapped.
    let least_bytes = options.least_bytes.max(options.alignment.saturating_add(1));
    let asked = fit::Options { using: options.using.minus(Using::ALL.minus(both)), least_bytes, ..*options };
    let found = fit::fit(recorded, &asked, scratch, output)?;
    Ok((found.schedule, found.original_peak))
}

#[cfg(test)]
mod tests;
