//! Plans for frameworks that allocate each tensor once and keep it: what the framework is to do before each operator.
//! That may be to bind a tensor to a place in the planned memory, to copy it to the host or back, or to run an operator
//! again.

use core::ffi::c_void;
use core::mem::offset_of;

use sublet_core::Block;
use sublet_core::network::{self, Access, Action, Memory, Network, Operator, Planned, RecordNeeded, Step, Use};
use sublet_core::rewrite::fit::{Means, Options, Output, Using};
use sublet_core::simulate::Timing;
use sublet_core::trace::{self, Row, liveness::Residency};

use crate::arguments::{Arguments, counted, params, plain};
use crate::boundary::boundary;
use crate::device::sublet_device;
use crate::error::{Failure, sublet_error};
use crate::iteration::none;
use crate::operator::SUBLET_OPERATOR_ONCE;
use crate::simulate::sublet_run;
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{Needed, Room, sublet_layout};

/// The flag of a tensor's storage that stays where it is, outside the planned arena, and keeps its value. Give it to
/// parameters, to outputs, to what the user reads after the iteration, and to what holds a value from before the
/// iteration, such as a table that was filled when the network was made.
pub const SUBLET_MEMORY_KEEP: u32 = 1;

/// The flag of a tensor's storage that holds no value from one operator to the next: each operator that uses it writes
/// it first. If an operator reads the storage without having written it, the flag is ignored.
pub const SUBLET_MEMORY_SCRATCH: u32 = 2;

/// A memory of a framework: the storage of one or more of its tensors.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_memory {
    /// The size of the storage in bytes. 0: the storage has no place in the arena, and, without SUBLET_MEMORY_KEEP,
    /// what an operator writes to it is gone when the operator ends.
    pub bytes: u64,
    /// The flags of the storage, SUBLET_MEMORY_KEEP and SUBLET_MEMORY_SCRATCH, added up; 0 is none.
    pub flags: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
}

/// An operator of a framework's network: the forward or backward pass of a layer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_layer {
    /// How long the operator takes, in ns. Where nothing is swapped, only the ratios of these times count.
    pub time_ns: u64,
    /// SUBLET_OPERATOR_ONCE if the operator may not be recomputed, because it is random, reads data, or has an effect
    /// elsewhere; otherwise 0.
    pub flags: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
}

/// The ways in which an operator uses a tensor's storage.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_use {
    /// The operator reads the tensor's storage.
    Read = 0,
    /// The operator writes the tensor's storage, and may leave parts of it unchanged. If the storage holds a value of
    /// this iteration, the access counts as a read too.
    Write = 1,
    /// The operator writes every byte of the tensor's storage, and reads none before.
    Overwrite = 2,
}

/// One use of a tensor's storage by an operator.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_access {
    /// The number of the operator that uses the storage; never less than in the access before.
    pub op: u32,
    /// The number of the tensor's storage that the operator uses.
    pub memory: u32,
    /// A sublet_use: how the operator uses the storage.
    pub how: u32,
}

/// One iteration of a network in a framework that allocates each tensor once and keeps it: which operators use which
/// tensors' storages. A framework can record these uses by hooks where addresses of tensors are asked for. Storages,
/// called memories, and operators are numbered from 0, the operators in the order in which they run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_network {
    /// Set this to sizeof(sublet_network): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; set it to 0.
    pub reserved: u32,
    /// The storages of the network's tensors: entry k is the storage of number k.
    pub memories: *const sublet_memory,
    /// How many storages the network's tensors have.
    pub memory_count: usize,
    /// The network's operators: entry k is the operator of number k.
    pub operators: *const sublet_layer,
    /// How many operators the network has.
    pub operator_count: usize,
    /// Which operator uses which tensor's storage, in the order of the operators; an operator may use a storage several
    /// times.
    pub accesses: *const sublet_access,
    /// How many accesses, uses of a tensor's storage by an operator, the network has.
    pub access_count: usize,
    /// The device in whose memory the arena lies. NULL: the arena lies in the host's own memory, and nothing is
    /// swapped.
    pub device: *const sublet_device,
}

/// The options of sublet_network_plan. NULL, or all 0 but `struct_size`, is a plan without a limit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_network_params {
    /// Set this to sizeof(sublet_network_params): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// What the plan may do to stay within the limit, added up: SUBLET_MEANS_SWAP and SUBLET_MEANS_RECOMPUTE; 0 is
    /// both. Swapping needs the field `device` of the network.
    pub means: u32,
    /// The most bytes that the arena may have. 0 is no limit; then nothing is swapped or recomputed.
    pub limit: u64,
    /// All offsets are multiples of this power of two, in bytes, and sizes are rounded up to it; 0 is 64.
    pub alignment: u64,
    /// A budget for each search for a plan within the limit: how many operators, and idle times of tensors, it may look
    /// at for each row of the network's trace. An idle time is the time between two uses of a tensor. 0 is 5,000. Rows
    /// beyond the first 10,000 do not add to the budget.
    pub work: u64,
    /// The seed of all random choices; 0 stands for the seed 1.
    pub seed: u64,
}

/// What a framework is to do in one step of its plan, a sublet_step.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sublet_action {
    /// From here on, the tensor's storage of number `subject` lies in the arena, `offset` bytes from the arena's start.
    /// The storage's content is undefined until it is written. `subject` and `offset` are fields of the sublet_step.
    Bind = 0,
    /// The operator of number `subject`, a field of the sublet_step, is recomputed: it has run before in this
    /// iteration. It uses each tensor's storage at the place where the storage is bound now.
    Run = 1,
    /// The tensor's storage of number `subject` is copied to the host, `offset` bytes from the start of the memory that
    /// the host has for copies. `subject` and `offset` are fields of the sublet_step.
    CopyOut = 2,
    /// The tensor's storage of number `subject` is copied back to where it is bound in the arena now. Its copy on the
    /// host lies `offset` bytes from the start of the memory that the host has for copies. `subject` and `offset` are
    /// fields of the sublet_step.
    CopyIn = 3,
}

/// One step of a plan: something that a framework is to do right before an operator.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct sublet_step {
    /// The number of the operator right before which the step is to be done. UINT32_MAX: no access comes after the
    /// step, and it is not to be done.
    pub before: u32,
    /// A sublet_action: what is to be done.
    pub action: u32,
    /// The number of what the step is about: of an operator with SUBLET_ACTION_RUN, of a tensor's storage otherwise.
    pub subject: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// An offset in bytes. For SUBLET_ACTION_BIND it counts in the arena; for SUBLET_ACTION_COPY_OUT and
    /// SUBLET_ACTION_COPY_IN, in the memory that the host has for copies; for SUBLET_ACTION_RUN it is 0.
    pub offset: u64,
}

/// What a network's plan takes: its steps, the bytes of its arena, and the simulated time of an iteration.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct sublet_network_planned {
    /// Set this to sizeof(sublet_network_planned): the library sees from it which fields the struct has in the caller's
    /// version.
    pub struct_size: u32,
    /// Reserved; it is 0.
    pub reserved: u32,
    /// How many steps of the plan sublet_network_plan has written to its array `steps`.
    pub step_count: usize,
    /// How many bytes the arena must have.
    pub peak: u64,
    /// The most bytes of the arena that are used at once.
    pub max_load: u64,
    /// The most bytes that would be used at once if nothing were swapped or recomputed.
    pub original_load: u64,
    /// The bytes of all tensors' storages that are bound to the arena, added up as if each had its own place, and not
    /// rounded up to the alignment. Storages that no operator uses, and that need not be kept, count too.
    pub planned_bytes: u64,
    /// The bytes of all tensors' storages that keep their own place, which the plan does not bind to the arena.
    pub kept_bytes: u64,
    /// How an iteration that follows the plan runs in the simulation: its time, computed from the times of the
    /// operators, and the bytes that it copies. The field `host_bytes` is what the copies take on the host. In the
    /// fields `host_bytes` and `swapped_bytes` the size of each tensor's storage is rounded up to the alignment; a
    /// framework may copy just the bytes of the storage.
    pub run: sublet_run,
}

plain!(
    sublet_memory,
    sublet_layer,
    sublet_access,
    sublet_network,
    sublet_network_params,
    sublet_step,
    sublet_network_planned
);
params! {
    sublet_network { struct_size, reserved, memories, memory_count, operators, operator_count, accesses, access_count, device }
    sublet_network_params { struct_size, means, limit, alignment, work, seed }
    sublet_network_planned { struct_size, reserved, step_count, peak, max_load, original_load, planned_bytes, kept_bytes, run }
}

const USES: [(sublet_use, Use); 3] =
    [(sublet_use::Read, Use::Read), (sublet_use::Write, Use::Write), (sublet_use::Overwrite, Use::Overwrite)];

const MEANS: Using = Using::NONE.with(Means::Swap).with(Means::Recompute);

struct Given<'a> {
    memories: &'a [sublet_memory],
    operators: &'a [sublet_layer],
    accesses: &'a [sublet_access],
    options: Options,
}

impl<'a> Given<'a> {
    /// If they are not NULL, the structs and all that the network points to can be read.
    unsafe fn new(
        arguments: &mut Arguments<'a>,
        network: *const sublet_network,
        params: *const sublet_network_params,
    ) -> Result<Self, Failure> {
        // SAFETY: as promised.
        let network = unsafe { arguments.given(network)? };
        none(network.reserved, 0)?;
        let (memories, operators) = (counted(network.memory_count, 0)?, counted(network.operator_count, 0)?);
        let accesses = counted(network.access_count, 0)?;
        // SAFETY: as promised; each array is held by argument 0.
        let (memories, operators, accesses) = unsafe {
            let field = offset_of!(sublet_network, memories);
            let memories = arguments.field(0, field, |a| a.input_of(network.memories, memories, 0))?;
            let field = offset_of!(sublet_network, operators);
            let operators = arguments.field(0, field, |a| a.input_of(network.operators, operators, 0))?;
            let field = offset_of!(sublet_network, accesses);
            (memories, operators, arguments.field(0, field, |a| a.input_of(network.accesses, accesses, 0))?)
        };
        let mut device = None;
        if !network.device.is_null() {
            let field = offset_of!(sublet_network, device);
            // SAFETY: as promised.
            device = Some(unsafe { arguments.field(0, field, |a| a.params(network.device))? }.device(0)?);
        }
        let mut options = network::options(u64::MAX, device);
        // SAFETY: as promised.
        unsafe { arguments.params(params)? }.tell(&mut options)?;
        Ok(Self { memories, operators, accesses, options })
    }

    fn is_limited(&self) -> bool {
        self.options.limit < u64::MAX
    }

    fn most(&self) -> network::Needed {
        network::Needed::most(self.accesses.len(), self.is_limited())
    }

    fn memory(&self) -> Needed {
        let (first, most) = (RecordNeeded::of(self.memories.len(), self.accesses.len()), self.most());
        Needed::workspace(most.workspace)
            .and_workspace(first.workspace)
            .and::<Memory>(self.memories.len())
            .and::<Operator>(self.operators.len())
            .and::<Access>(self.accesses.len())
            .and::<trace::Operator>(self.operators.len())
            .and::<Row>(first.rows)
            .and::<u32>(first.memories)
            .and::<Row>(most.lengths.rows)
            .and::<Timing>(most.lengths.timings)
            .and::<Block>(most.lengths.residencies)
            .and::<Residency>(most.lengths.residencies)
            .and::<u64>(most.lengths.residencies)
            .and::<Step>(most.lengths.timings)
    }

    fn network(&self, room: &mut Room<'a>) -> Result<Network<'a>, Failure> {
        let wrong = |i: usize, got: u32| {
            Failure::new(S::NetworkUnknownValue, u32::try_from(i).unwrap_or(u32::MAX), 0, got.into())
        };
        let memories = room.slice(self.memories.len(), |i| {
            let &sublet_memory { bytes, flags, reserved } = self.memories.get(i).ok_or(Failure::of(S::Unnamed))?;
            if flags & !(SUBLET_MEMORY_KEEP | SUBLET_MEMORY_SCRATCH) != 0 || reserved != 0 {
                return Err(wrong(i, flags | reserved));
            }
            Ok(Memory { bytes, kept: flags & SUBLET_MEMORY_KEEP > 0, scratch: flags & SUBLET_MEMORY_SCRATCH > 0 })
        })?;
        let operators = room.slice(self.operators.len(), |i| {
            let &sublet_layer { time_ns, flags, reserved } = self.operators.get(i).ok_or(Failure::of(S::Unnamed))?;
            if flags & !SUBLET_OPERATOR_ONCE != 0 || reserved != 0 {
                return Err(wrong(i, flags | reserved));
            }
            Ok(Operator { time_ns, rerun: flags == 0 })
        })?;
        let accesses = room.slice(self.accesses.len(), |i| {
            let &sublet_access { op, memory, how } = self.accesses.get(i).ok_or(Failure::of(S::Unnamed))?;
            let how = USES.iter().find(|&&(number, _)| number as u32 == how).ok_or(wrong(i, how))?.1;
            Ok::<_, Failure>(Access { op, memory, how })
        })?;
        Ok(Network { memories, operators, accesses })
    }
}

impl sublet_network_params {
    fn tell(&self, options: &mut Options) -> Result<(), Failure> {
        let asked = Using::of_bits(self.means).filter(|&asked| MEANS.contains(asked));
        let asked = asked.ok_or(Failure::new(S::UnknownValue, 1, 0, self.means.into()))?;
        options.using = if asked == Using::NONE { options.using } else { asked };
        let or = |n: u64, default: u64| if n == 0 { default } else { n };
        options.limit = or(self.limit, options.limit);
        options.alignment = or(self.alignment, options.alignment);
        options.work = or(self.work, options.work);
        options.seed = or(self.seed, options.seed);
        Ok(())
    }
}

impl From<Step> for sublet_step {
    fn from(Step { before, action }: Step) -> Self {
        let (action, subject, offset) = match action {
            Action::Bind { memory, offset } => (sublet_action::Bind, memory, offset),
            Action::Run { op } => (sublet_action::Run, op, 0),
            Action::CopyOut { memory, host_offset } => (sublet_action::CopyOut, memory, host_offset),
            Action::CopyIn { memory, host_offset } => (sublet_action::CopyIn, memory, host_offset),
        };
        Self { before, action: action as u32, subject, reserved: 0, offset }
    }
}

impl From<Planned> for sublet_network_planned {
    fn from(planned: Planned) -> Self {
        let Planned { steps, peak, max_load, original_load, planned_bytes, kept_bytes, run } = planned;
        Self {
            struct_size: 0,
            reserved: 0,
            step_count: steps,
            peak,
            max_load,
            original_load,
            planned_bytes,
            kept_bytes,
            run: run.into(),
        }
    }
}

/// Tells in `step_capacity` the most steps that a plan of `network` can have, and in `layout` the workspace that
/// sublet_network_plan needs for `network` with `params`. The size of the workspace is linear in the counts of
/// storages, operators and accesses, except for one part: the memory of an exact search for offsets. This part grows
/// with the square of the number of live ranges of tensors in the arena, and stays the same from 6,000 live ranges on.
/// Without a limit the workspace is far smaller.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_network_workspace(
    network: *const sublet_network,
    params: *const sublet_network_params,
    step_capacity: *mut usize,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (given, steps, layout) = unsafe {
            let given = Given::new(arguments, network, params)?;
            (given, arguments.result(step_capacity)?, arguments.result(layout)?)
        };
        steps.set(given.most().lengths.timings);
        layout.set(given.memory().layout());
        Ok(())
    })
}

/// Plans the memory of a framework that allocates each tensor once and keeps it, and writes to `steps` what the
/// framework is to do before each operator of an iteration. Without a limit each planned tensor's storage is bound to
/// an offset once, and need not be bound again in later iterations. Only a storage with SUBLET_MEMORY_SCRATCH is bound
/// before each operator that uses it, perhaps to another offset each time.
///
/// A tensor's storage is planned if it belongs to the iteration alone: it has at least one byte, is written before it
/// is read, and is not to be kept. All other storages keep their place. An operator that writes a kept storage is never
/// recomputed, whatever its flags are; only storages of 0 bytes without SUBLET_MEMORY_KEEP do not count here. An
/// operator that reads a kept storage is recomputed only while the storage holds what the operator read. The plan is
/// verified before it is returned.
///
/// The steps are in the order in which they are to be done. Before operator k of each iteration a framework does the
/// steps whose `before` is k, and no others. A step that recomputes an operator calls the operator as it was called
/// before. Between iterations the content of planned storages is undefined.
///
/// `steps` has room for `step_capacity` steps, at least as many as sublet_network_workspace says. `planned` may be
/// NULL.
///
/// SUBLET_STATUS_OVER_LIMIT: no plan within the limit was found. The field `needed` of `error` is a larger limit, in
/// bytes, within which one was found. SUBLET_STATUS_IMPOSSIBLE_LIMIT: there is none; `needed` bytes have to be on the
/// device at once.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_network_plan(
    network: *const sublet_network,
    params: *const sublet_network_params,
    workspace: *mut c_void,
    workspace_size: usize,
    steps: *mut sublet_step,
    step_capacity: usize,
    planned: *mut sublet_network_planned,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (given, mut room, steps, planned) = unsafe {
            let given = Given::new(arguments, network, params)?;
            let room = arguments.workspace(workspace, workspace_size, given.memory())?;
            let steps = arguments.output(steps, step_capacity)?;
            (given, room, steps, arguments.report_if_wanted(planned)?)
        };
        let most = given.most().lengths.timings;
        if step_capacity < most {
            return Err(Failure::new(S::BufferTooSmall, 4, most as u64, step_capacity as u64));
        }
        let network = given.network(&mut room)?;
        let first = RecordNeeded::of(network.memories.len(), network.accesses.len());
        let known = room.fill(network.operators.len(), trace::Operator::default());
        let (rows, owners) = (room.fill(first.rows, Row::default()), room.fill(first.memories, 0));
        let scratch = room.front(first.workspace);
        let recording = network::record(&network, given.options.alignment, scratch, rows, known, owners)?;
        let needed = recording.needed(given.is_limited());
        let len = needed.lengths;
        let made = room.fill(len.timings, Step::default());
        let output = Output {
            rows: room.fill(len.rows, Row::default()),
            timings: room.fill(len.timings, Timing::default()),
            blocks: room.fill(len.residencies, Block::default()),
            names: room.fill(len.residencies, Residency::default()),
            offsets: room.fill(len.residencies, 0),
        };
        let scratch = room.workspace(needed.workspace);
        let found = network::plan(&recording, &given.options, scratch, output, made)?;
        crate::trace::copy(made.get(..found.steps).unwrap_or_default(), steps);
        planned.set(found.into());
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_told_and_0_is_the_default() {
        let told = |params: sublet_network_params| {
            let mut options = network::options(u64::MAX, None);
            params.tell(&mut options).map(|()| options).map_err(|_| ())
        };
        let zero = sublet_network_params { struct_size: 0, means: 0, limit: 0, alignment: 0, work: 0, seed: 0 };
        assert_eq!(told(zero), Ok(network::options(u64::MAX, None)));
        let means = Means::Swap as u32;
        let given = sublet_network_params { struct_size: 0, means, limit: 1, alignment: 2, work: 3, seed: 4 };
        let using = Using::NONE.with(Means::Swap);
        let expected = Options { using, limit: 1, alignment: 2, work: 3, seed: 4, ..network::options(u64::MAX, None) };
        assert_eq!(told(given), Ok(expected));
        assert_eq!(told(sublet_network_params { means: u32::MAX, ..given }), Err(()));
    }
}
