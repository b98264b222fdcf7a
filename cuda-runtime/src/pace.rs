//! When the copies between device and host begin: as soon as they can, or when they begin in the simulation.
//!
//! In the simulation of a schedule ([`sublet_core::simulate`]) compute waits wherever a block is freed, until the
//! block's copies have ended. A copy begins when compute has reached the copy's row of the trace. Neither is needed for
//! correct data. It is enough that the next step which uses the freed bytes waits for the copies; and a copy to the
//! device may begin as soon as the bytes that it writes are free. A runtime that waits only where steps share bytes is
//! as fast as the simulation, or faster.
//!
//! Steps: one pass over the rows of the trace. A launch has to follow the copies of all blocks that were freed since
//! the previous launch; a copy has to follow the previous launch, and the copies of all blocks that were freed since.
//! Together with the order within each stream, and between steps that share bytes, this gives the simulation's order.
//! So an iteration takes as long as in the simulation if its kernels and copies do.

use sublet_core::trace::{Event, Row};

use crate::step::{Step, Work};

/// When the copies between device and host begin: as soon as they can, or as in the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pace {
    /// A copy between device and host begins as soon as its data are there and the bytes that it writes are free.
    #[default]
    Eager,
    /// A copy begins only when compute reaches the copy's place in the trace. Where a block is freed, compute waits for
    /// the block's copies. The simulation does the same: so times on a device can be compared with simulated ones.
    Simulated,
}

/// A step that has to be followed anyway, for its bytes, may be missing.
pub(crate) fn simulated(rows: &[Row], steps: &[Step], numbers: usize) -> Vec<Vec<u32>> {
    /// The steps that last copied it out and in since it was last freed.
    type Copies = [Option<u32>; 2];
    let mut copies: Vec<Copies> = vec![[None; 2]; numbers];
    let (mut launch, mut waited) = (None, Vec::new());
    let mut after = Vec::with_capacity(steps.len());
    let mut next = (0u32..).zip(steps).peekable();
    for (row, r) in (0u32..).zip(rows) {
        let of = &mut copies[r.block as usize];
        while let Some((number, step)) = next.next_if(|(_, step)| step.row == row) {
            if matches!(step.work, Work::Launch { .. }) {
                after.push(std::mem::take(&mut waited));
                launch = Some(number);
            } else {
                after.push(waited.iter().copied().chain(launch).collect());
                of[usize::from(r.event == Event::SwapIn)] = Some(number);
            }
        }
        if r.event == Event::Free {
            waited.extend(std::mem::take(of).into_iter().flatten());
        }
    }
    // Moves between iterations are not simulated.
    after.resize(steps.len(), Vec::new());
    after
}
