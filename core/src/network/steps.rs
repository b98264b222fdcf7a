//! Turns a proved schedule into what a framework does before each of its operators.

use super::residency::NONE;
use crate::error::Buffer;
use crate::table::at;
use crate::trace::{Event, Op};
use crate::verify::schedule::VerifiedSchedule;
use crate::{Error, Workspace, WorkspaceLen};

/// One thing for the framework to do, in the order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Step {
    /// The operator before which this step is done. The step comes after all operators before that one.
    pub before: u32,
    /// What to do.
    pub action: Action,
}

/// What a framework is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// From here on the memory lies at this offset of the arena. Its content is undefined.
    Bind {
        /// The memory.
        memory: u32,
        /// The offset in bytes.
        offset: u64,
    },
    /// An operator that has run is recomputed, on the memories as they are bound now.
    Run {
        /// The operator.
        op: u32,
    },
    /// The memory is copied to the host.
    CopyOut {
        /// The memory.
        memory: u32,
        /// The offset on the host, in bytes.
        host_offset: u64,
    },
    /// The memory is copied from the host, to where it is bound now.
    CopyIn {
        /// The memory.
        memory: u32,
        /// The offset on the host, in bytes.
        host_offset: u64,
    },
}

impl Default for Action {
    fn default() -> Self {
        Self::Bind { memory: 0, offset: 0 }
    }
}

/// Length of the workspace of [`write`].
pub(super) const fn workspace(blocks: usize) -> WorkspaceLen {
    WorkspaceLen { words: 2 * blocks, indices: 0 }
}

/// Writes the steps; returns how many steps there are. Each block that is copied has a place of its own on the host.
pub(super) fn write(
    schedule: &VerifiedSchedule<'_>,
    memories: &[u32],
    mut scratch: Workspace<'_>,
    steps: &mut [Step],
) -> Result<usize, Error> {
    // By block: its size in bytes, and 1 + its offset on the host; 0 if it has none yet.
    let mut known = scratch.word_records::<2>(memories.len());
    let mut host = 0_u64;
    let (mut count, mut undated, mut residency) = (0_usize, 0_usize, 0_u32);
    let mut running = Op::None;
    for r in schedule.rows() {
        let memory = at(memories, r.block);
        let action = match (r.event, r.op) {
            (Event::Malloc, _) => {
                let offset = at(schedule.plan().offsets(), residency);
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
