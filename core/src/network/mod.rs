//! Planned memory for a framework whose tensors stay.
//!
//! Such a framework allocates each tensor once and keeps it: there are no frees to record. What it can tell is which
//! memories each operator reads and writes, in one pass. From that:
//!
//! 1. [`residency`] finds what belongs to the iteration alone: a memory that is written before it is read. It is resident
//!    from its first operator to its last; of a scratch memory nothing outlives an operator, so that it is resident in each of
//!    its operators anew. All other memories are kept: they stay where they are, and are no part of the plan.
//! 2. The rows of these residencies are placed; where that is over the limit, [`fit`] rewrites them first: operators run
//!    again, or blocks leave for the host.
//! 3. The result is proved by [`schedule`], as any plan is.
//! 4. [`steps`] turns the proved schedule into what the framework does before each of its operators: bind a memory to an
//!    offset of the arena, run an operator again, copy.
//!
//! What the framework tells is taken for true but read with care. A write may leave parts of a memory as they were, so
//! that it reads what the memory holds, if that is of this iteration; [`Use::Overwrite`] says that it does not. An operator
//! that touches a kept memory which it or a later operator writes is never run again: it could read another value, or update
//! one twice.
//!
//! Cost: linear, beside placement, fit and proof.

mod residency;
mod steps;

use crate::rewrite::fit::{self, Lengths, Means, Using};
use crate::rewrite::swap::Policy;
use crate::simulate::{Device, Run, Timing};
use crate::trace::{self, Recorded, Row, liveness, liveness::Stay};
use crate::verify::Violation;
use crate::verify::schedule::{self, Room, VerifiedSchedule};
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, place};
use residency::Residencies;
pub use steps::{Action, Step};

/// A memory of the framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Memory {
    /// Its size in bytes; one of 0 bytes is kept.
    pub bytes: u64,
    /// It stays where it is: a parameter, an output, or what the user wants to look at after the iteration.
    pub kept: bool,
    /// Nothing that it holds outlives an operator. Where an operator reads it first, this is not believed.
    pub scratch: bool,
}

/// An operator, in the order of execution; backward passes are operators of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Operator {
    /// How long it takes, in ns: only compared with others.
    pub time_ns: u64,
    /// May it run again?
    pub again: bool,
}

/// How an operator uses a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Use {
    /// It reads.
    #[default]
    Read,
    /// It writes, and may leave parts as they are.
    Write,
    /// It writes every byte, and reads none before.
    Overwrite,
}

/// An operator uses a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Access {
    /// The operator; never less than that of the access before.
    pub op: u32,
    /// The memory.
    pub memory: u32,
    /// How.
    pub how: Use,
}

/// One pass of a framework whose tensors stay.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The memories, by their numbers.
    pub memories: &'a [Memory],
    /// The operators, by their numbers.
    pub operators: &'a [Operator],
    /// What uses what, in the order of execution. An operator may use a memory several times.
    pub accesses: &'a [Access],
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The most bytes that the arena may have; [`u64::MAX`] is no limit, and then nothing runs again.
    pub limit: u64,
    /// Every address is a multiple of this power of two, in bytes, if that of the arena is.
    pub alignment: u64,
    /// The links to the host; of an integrated device nothing leaves.
    pub device: Device,
    /// The means: of these, [`Means::Swap`] and [`Means::Recompute`] are used.
    pub using: Using,
    /// How much a fit may search, as in [`fit::Options`].
    pub work: u64,
    /// Where random choices begin.
    pub seed: u64,
}

impl Options {
    /// Memory of the host itself, from which nothing leaves.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        let device = Device { integrated: true, host_capacity: Some(0), ..Device::symmetric(12e9) };
        let using = Using::NONE.with(Means::Recompute).with(Means::Swap);
        Self { limit, alignment: 64, device, using, work: fit::Options::DEFAULT_WORK, seed: 1 }
    }
}

/// Memory for the result and for what it is made from, which the caller lends; how long is told by [`Needed`].
#[derive(Debug)]
pub struct Output<'a> {
    /// For traces.
    pub rows: &'a mut [Row],
    /// For what is known of the operators.
    pub operators: &'a mut [trace::Operator],
    /// For times.
    pub timings: &'a mut [Timing],
    /// For residencies.
    pub blocks: &'a mut [Block],
    /// For their names.
    pub names: &'a mut [Stay],
    /// For where they lie.
    pub offsets: &'a mut [u64],
    /// For what the framework is to do, in order: the result.
    pub steps: &'a mut [Step],
}

/// How long the slices of an [`Output`] must be, and the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Rows.
    pub rows: usize,
    /// Timings.
    pub timings: usize,
    /// Blocks, names and offsets.
    pub stays: usize,
    /// Steps.
    pub steps: usize,
    /// The workspace of [`plan`].
    pub workspace: WorkspaceLen,
}

impl Needed {
    /// For a network with so many memories and accesses. Without a limit nothing is rewritten, and less is needed.
    #[must_use]
    pub const fn of(memories: usize, accesses: usize, limited: bool) -> Self {
        let (recorded, blocks) = (residency::most_rows(accesses), accesses);
        let lengths = if limited {
            Lengths::of_counts(recorded, residency::most_accesses(accesses), blocks, blocks)
        } else {
            Lengths { rows: 0, timings: recorded, stays: blocks }
        };
        let proof = schedule::workspace(recorded, blocks, lengths.stays);
        let placing = place::workspace_of(SOLVER, blocks).max(liveness::workspace(2 * blocks));
        let made = if limited { proof.max(fit::workspace(recorded, blocks, lengths)) } else { proof };
        Self {
            rows: recorded + lengths.rows,
            timings: lengths.timings,
            stays: lengths.stays,
            steps: lengths.timings,
            workspace: residency::kept_workspace(blocks)
                .and(residency::workspace(memories).max(placing).max(made).max(steps::workspace(blocks))),
        }
    }
}

/// Who places where there is no limit.
const SOLVER: place::Solver = place::Solver::Auto;

/// What a plan takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    /// How many steps there are.
    pub steps: usize,
    /// The bytes of the arena.
    pub peak: u64,
    /// The most bytes that are resident in it at once.
    pub max_load: u64,
    /// The most that would be, if nothing ran again and nothing left.
    pub original_load: u64,
    /// The bytes of the memories that are planned: what the arena takes the place of.
    pub planned_bytes: u64,
    /// The bytes of those that are kept.
    pub kept_bytes: u64,
    /// How it runs: the times are those that were told.
    pub run: Run,
}

/// Plans a network, and writes what is to be done before each operator.
///
/// # Errors
/// [`Error::Access`] for an access that cannot follow those before it; [`Error::OverLimit`] with the least footprint that
/// was made, a limit that works; [`Error::Alignment`]; [`Error::SizeOverflow`]; [`Error::Device`];
/// [`Error::TooManyBlocks`]; [`Error::BufferTooSmall`] if an output or the workspace is too short.
///
/// ```
/// use sublet_core::network::{self, Access, Action, Memory, Needed, Network, Operator, Options, Output, Use};
/// use sublet_core::Workspace;
/// // Three operators: a makes b, b makes c, c makes d; none is needed after the next one.
/// let memory = |kept| Memory { bytes: 4096, kept, scratch: false };
/// let operators = [Operator { time_ns: 10, again: true }; 4];
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
/// let needed = Needed::of(4, network.accesses.len(), false);
/// let (mut words, mut indices) = (vec![0; needed.workspace.words], vec![0; needed.workspace.indices]);
/// let mut steps = vec![Default::default(); needed.steps];
/// let output = Output {
///     rows: &mut vec![Default::default(); needed.rows],
///     operators: &mut vec![Default::default(); 4],
///     timings: &mut vec![Default::default(); needed.timings],
///     blocks: &mut vec![Default::default(); needed.stays],
///     names: &mut vec![Default::default(); needed.stays],
///     offsets: &mut vec![0; needed.stays],
///     steps: &mut steps,
/// };
/// let scratch = Workspace::new(&mut words, &mut indices);
/// let planned = network::plan(&network, &Options::new(u64::MAX), scratch, output)?;
/// assert_eq!((planned.planned_bytes, planned.peak, planned.steps), (3 * 4096, 2 * 4096, 3));
/// // The third memory lies where the first was, which nobody needs any more.
/// assert_eq!(steps[2].action, Action::Bind { memory: 2, offset: 0 });
/// assert_eq!(steps[2].before, 2);
/// # Ok::<(), sublet_core::Error>(())
/// ```
pub fn plan(
    network: &Network<'_>,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: Output<'_>,
) -> Result<Planned, Error> {
    let limited = options.limit < u64::MAX;
    let needed = Needed::of(network.memories.len(), network.accesses.len(), limited);
    scratch.check(needed.workspace)?;
    check(&output, network, needed)?;
    if !options.alignment.is_power_of_two() {
        return Err(Error::Alignment { block: None, alignment: options.alignment });
    }
    let Output { rows, operators, timings, blocks, names, offsets, steps } = output;
    let (own, rows) = rows.split_at_mut_checked(residency::most_rows(network.accesses.len())).unwrap_or_default();
    let operators = operators.get_mut(..network.operators.len()).unwrap_or_default();
    let mut kept = scratch.split(residency::kept_workspace(network.accesses.len()));
    let residencies = Residencies::new(network, options.alignment, scratch.reborrow(), &mut kept, own, operators)?;
    let recorded = Recorded { rows: residencies.rows(own), operators, blocks: residencies.blocks() };
    let result = fit::Output { rows, timings, blocks, names, offsets };
    let (schedule, original_load) = if limited {
        fitted(&recorded, options, scratch.reborrow(), result)?
    } else {
        placed(&recorded, options, scratch.reborrow(), result)?
    };
    aligned(&schedule, options.alignment)?;
    Ok(Planned {
        steps: steps::write(&schedule, &residencies, scratch, steps)?,
        peak: schedule.plan().peak(),
        max_load: schedule.plan().max_load(),
        original_load,
        planned_bytes: residencies.planned_bytes(),
        kept_bytes: residencies.kept_bytes(),
        run: *schedule.run(),
    })
}

fn check(output: &Output<'_>, network: &Network<'_>, needed: Needed) -> Result<(), Error> {
    use crate::error::Buffer;
    let stays = output.blocks.len().min(output.names.len());
    for (buffer, needed, got) in [
        (Buffer::Rows, needed.rows, output.rows.len()),
        (Buffer::Operators, network.operators.len(), output.operators.len()),
        (Buffer::Timings, needed.timings, output.timings.len()),
        (Buffer::Blocks, needed.stays, stays),
        (Buffer::Offsets, needed.stays, output.offsets.len()),
        (Buffer::Steps, needed.steps, output.steps.len()),
    ] {
        if got < needed {
            return Err(Error::BufferTooSmall { buffer, needed, got });
        }
    }
    Ok(())
}

/// The iteration as it was recorded, placed and proved; and its load.
fn placed<'a>(
    recorded: &Recorded<'a>,
    options: &Options,
    mut scratch: Workspace<'_>,
    output: fit::Output<'a>,
) -> Result<(VerifiedSchedule<'a>, u64), Error> {
    let fit::Output { timings, blocks, names, offsets, .. } = output;
    let stays = liveness::stays(recorded.rows);
    let timings = timings.get_mut(..recorded.rows.len()).unwrap_or_default();
    let (blocks, names) = (blocks.get_mut(..stays).unwrap_or_default(), names.get_mut(..stays).unwrap_or_default());
    let offsets = offsets.get_mut(..stays).unwrap_or_default();
    liveness::lifetimes(recorded.rows, recorded.blocks, scratch.reborrow(), blocks, names)?;
    let constraints = Constraints { alignment: options.alignment, ..Constraints::NONE };
    let asked = place::Options { constraints, seed: options.seed, ..place::Options::default() };
    place::place(SOLVER, blocks, &asked, scratch.reborrow(), offsets)?;
    let room = Room { timings, blocks, names };
    let device = (&options.device, true);
    let schedule = schedule::schedule(recorded, recorded.rows, offsets, device, &constraints, scratch, room)?;
    let load = schedule.plan().max_load();
    Ok((schedule, load))
}

/// The iteration rewritten to stay within the limit, placed and proved; and the load before.
fn fitted<'a>(
    recorded: &Recorded<'a>,
    options: &Options,
    scratch: Workspace<'_>,
    output: fit::Output<'a>,
) -> Result<(VerifiedSchedule<'a>, u64), Error> {
    let of = |means| if options.using.has(means) { Using::NONE.with(means) } else { Using::NONE };
    let mut using = of(Means::Recompute);
    if options.using.has(Means::Swap) {
        using = using.with(Means::Swap);
    }
    let asked = fit::Options {
        using,
        policy: Policy::Auto,
        seed: options.seed,
        work: options.work,
        ..fit::Options::new(options.limit, options.device)
    };
    let found = fit::fit(recorded, &asked, scratch, output)?;
    Ok((found.schedule, found.original_peak))
}

/// The fit knows no alignment: sizes are multiples of it, and so are sums of them. Here it is proved.
fn aligned(schedule: &VerifiedSchedule<'_>, alignment: u64) -> Result<(), Error> {
    for (block, &offset) in (0..).zip(schedule.plan().offsets()) {
        if offset & (alignment - 1) != 0 {
            return Err(Error::Invalid(Violation::Misaligned { block, offset, alignment }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
