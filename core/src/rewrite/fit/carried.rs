//! What the links between device and host carry: how many bytes can be on the host while each operator runs.
//!
//! It is assumed that only values that are not recomputed are swapped. While an operator runs, some of their bytes can
//! be on the host: no more than the links have copied out by then, and no more than they can copy back in before the
//! values are read. So few bytes can be there at the start and at the end of the iteration, and many in the middle,
//! where the load is highest. Their number is estimated for each operator alone, as in
//! [`lower_bound`](crate::rewrite::lower_bound). With it, [`hold_back`] makes recomputation leave to swaps what swaps
//! can save.

use super::Options;
use crate::rewrite::lower_bound::{Away, Delay, IdleBlocks, bytes};
use crate::rewrite::means::recompute::Recomputer;
use crate::{Workspace, WorkspaceLen};

/// Operators looked at, at even distances; each other one gets the figure of the one before it.
const LOOKS: u32 = 256;
const MOST_IDLE: u32 = 1_000_000;
const LEAST_LOOKS: u32 = 96;

pub(super) const fn workspace(rows: usize, blocks: usize) -> WorkspaceLen {
    let carried = WorkspaceLen { words: rows + 1, indices: 0 };
    IdleBlocks::workspace(rows, blocks).and(Away::workspace(rows + blocks)).and(carried)
}

/// Returns the highest target as the limit; each operator's headroom is its target's distance from that.
pub(super) fn hold_back(
    recomputer: &mut Recomputer<'_>,
    options: &Options,
    delay: u64,
    mut scratch: Workspace<'_>,
) -> u64 {
    let mut scratch = scratch.reborrow();
    let program = recomputer.program();
    let (rows, blocks) = (program.rows.len(), program.size.len());
    let mut carried = scratch.words(rows + 1);
    let mut idle = IdleBlocks::lend(rows, blocks, &mut scratch);
    idle.find(program, |idle| {
        let may_go = idle.has_value(program) && idle.is_read(program) && !recomputer.may_evict(idle.block);
        may_go.then_some(idle)
    });
    let mut away = Away::lend(rows + blocks, &mut scratch);
    let half = bytes(delay) / 2.0;
    let delay = Delay { before: half, after: half, whole: bytes(delay) };
    let looks = (MOST_IDLE / idle.list.len().max(1)).clamp(LEAST_LOOKS, LOOKS);
    let step = program.accessing.div_ceil(looks).max(1);
    let mut most = 0;
    for first in (0..program.accessing).step_by(usize::try_from(step).unwrap_or(1)) {
        away.find_in(first, program, &idle);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of bytes")]
        let bytes = away.copied(&options.device, delay) as u64;
        for o in first..(first + step).min(program.accessing) {
            carried[o] = bytes;
            most = most.max(carried[o]);
        }
    }
    let headroom = recomputer.headroom();
    for o in 0..program.accessing {
        headroom[o] = most - carried[o];
    }
    options.limit.saturating_add(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::program::Program;
    use crate::rewrite::values::Values;
    use crate::simulate::Device;
    use crate::trace::{Event, Op, Operator, Recorded, Row};

    #[test]
    fn links_carry_most_in_the_middle() {
        let row = |time_ns, event, block, op| {
            let bytes = if event == Event::Malloc { 12_000 } else { 0 };
            Row { time_ns, bytes, block, op: Op::First(op), event }
        };
        let mut rows = vec![];
        for k in 0..4 {
            let time = 1000 * u64::from(k);
            rows.extend([row(time, Event::Malloc, k, k), row(time, Event::Write, k, k)]);
            rows.push(row(time + 1000, Event::Write, k, k));
        }
        for k in (0..4).rev() {
            let time = 1000 * u64::from(7 - k);
            rows.extend([row(time, Event::Read, k, 7 - k), row(time + 1000, Event::Read, k, 7 - k)]);
            rows.push(row(time + 1000, Event::Free, k, 7 - k));
        }
        let left = |rerun: bool, delay: u64| {
            let operators = [Operator { rerun, ..Operator::default() }; 8];
            let recorded = Recorded { operators: &operators, ..Recorded::new(&rows, 4) };
            let len = Program::workspace(rows.len(), 4)
                .and(Values::workspace(rows.len(), 4))
                .and(Recomputer::workspace(rows.len(), 4))
                .and(workspace(rows.len(), 4));
            let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
            let mut scratch = Workspace::new(&mut words, &mut indices);
            let program = Program::new(&rows, 4, &mut scratch).unwrap();
            let values = Values::new(&recorded, &program, &mut scratch);
            let mut recomputer = Recomputer::new(&values, 1, 1, &mut scratch);
            let options = Options::new(100_000, Device::symmetric(12e9));
            let limit = hold_back(&mut recomputer, &options, delay, scratch);
            let headroom = recomputer.headroom();
            (0..8u32).map(|o| limit - headroom[o] - 100_000).collect::<std::vec::Vec<_>>()
        };
        // While the last value is made, and while it is read, two others can be on the host. At the start and at the
        // end none can.
        assert_eq!(left(false, 0), [0, 0, 12_000, 24_000, 24_000, 12_000, 0, 0]);
        // With 500 ns more before each operator, half a block more.
        assert_eq!(left(false, 1000), [0, 6_000, 18_000, 30_000, 30_000, 18_000, 6_000, 0]);
        // What can be recomputed is not left to the links.
        assert_eq!(left(true, 0), [0; 8]);
    }
}
