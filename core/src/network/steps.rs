//! Turns a proved schedule into the steps that a framework does before each of its operators: bind a memory (the
//! storage of one or more tensors) to an offset of the arena, run an operator again, copy a memory to or from the host.

use super::residency::NONE;
use crate::error::Buffer;
use crate::table::at;
use crate::trace::{Event, Op};
use crate::verify::VerifiedSchedule;
use crate::{Error, Workspace, WorkspaceLen};

/// One thing that the framework has to do to follow a plan, and when. Steps are done in the order in which they are
/// listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// The number of the operator directly before which this step is done, after all earlier operators have run;
    /// `u32::MAX` if the step comes after the last operator.
    pub before: u32,
    /// What the framework has to do in this step.
    pub action: Action,
}

/// What a framework has to do in one step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The memory lies at this offset of the arena from now on. Its content is undefined until it is written or copied
    /// in.
    Bind {
        /// The number of the memory that lies at the offset.
        memory: u32,
        /// The offset of the memory in the arena, in bytes.
        offset: u64,
    },
    /// An operator that has run before runs again, to recompute its outputs. It uses its memories at the offsets to
    /// which they are bound now.
    Run {
        /// The number of the operator that runs again.
        op: u32,
    },
    /// The memory is copied to the host.
    CopyOut {
        /// The number of the memory that is copied to the host.
        memory: u32,
        /// The offset of the copy in the buffer on the host that holds all copies, in bytes.
        host_offset: u64,
    },
    /// The memory is copied from the host, to the offset to which it is bound now.
    CopyIn {
        /// The number of the memory that is copied from the host.
        memory: u32,
        /// The offset of the copy in the buffer on the host that holds all copies, in bytes.
        host_offset: u64,
    },
}

impl Default for Action {
    fn default() -> Self {
        Self::Bind { memory: 0, offset: 0 }
    }
}

pub(super) const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 2 * blocks, indices: 0 }
}

pub(super) fn write(
    schedule: &VerifiedSchedule<'_>,
    offsets: &[u64],
    memories: &[u32],
    mut scratch: Workspace<'_>,
    steps: &mut [Step],
) -> Result<usize, Error> {
    // By block: its size in bytes, and 1 + its offset on the host; 0 while it has no place there.
    let mut known = scratch.word_records::<2>(memories.len());
    let mut host = 0_u64;
    let (mut count, mut undated, mut residency) = (0_usize, 0_usize, 0_u32);
    let mut running = Op::None;
    for r in schedule.rows() {
        let memory = at(memories, r.block);
        let action = match (r.event, r.op) {
            (Event::Malloc, _) => {
                let offset = at(offsets, residency);
                known[r.block][0] = r.bytes;
                residency += 1;
                (memory != NONE).then_some(Action::Bind { memory, offset })
            }
            (Event::SwapOut | Event::SwapIn, _) => {
                let [bytes, place] = &mut known[r.block];
                if *place == 0 {
                    *place = host.saturating_add(1);
                    host = host.saturating_add(*bytes);
                }
                let host_offset = *place - 1;
                Some(match r.event {
                    Event::SwapOut => Action::CopyOut { memory, host_offset },
                    _ => Action::CopyIn { memory, host_offset },
                })
            }
            (Event::Read | Event::Write, Op::Rerun(op)) if running != r.op => Some(Action::Run { op }),
            _ => None,
        };
        if let Some(action) = action {
            let got = steps.len();
            let free = steps.get_mut(count);
            let free = free.ok_or(Error::BufferTooSmall { buffer: Buffer::Steps, needed: count + 1, got })?;
            *free = Step { before: u32::MAX, action };
            count += 1;
        }
        if r.event.is_access() {
            running = r.op;
            if let Op::First(op) = r.op {
                for step in steps.get_mut(undated..count).unwrap_or_default() {
                    step.before = op;
                }
                undated = count;
            }
        }
    }
    Ok(count)
}
