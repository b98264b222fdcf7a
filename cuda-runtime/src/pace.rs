//! When copies begin: as soon as they can, or when the simulation has them begin.
//!
//! The simulation of a schedule ([`sublet_core::simulate`]) has compute wait, where a block is freed, for the block's
//! copies; and a copy begin when compute has come to its row. Neither is needed for the data to be right: who uses the bytes
//! next waits for the copies, and what comes in may come as soon as its bytes are free. A runtime that waits only where
//! bytes are shared is therefore as fast as the simulation says, or faster.
//!
//! Steps: the rows are gone through once. A launch follows the copies of what was freed since the launch before; a copy
//! follows these and that launch. Together with the order of the streams and of the bytes that is the simulation's order, so
//! that an iteration takes the time of the simulation where kernels and copies do.

use sublet_core::trace::{Event, Row};

use crate::step::{Step, Work};

/// When copies begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pace {
    /// As soon as nobody uses the bytes any more.
    #[default]
    Eager,
    /// When compute comes to their row, and compute waits for the copies of what is freed: to compare a device with the
    /// simulation.
    Simulated,
}

/// By step, the steps before it that it follows in the simulation, but for those that use the same bytes. `numbers` is how
/// many block numbers there are.
pub(crate) fn simulated(rows: &[Row], steps: &[Step], numbers: usize) -> Vec<Vec<u32>> {
    /// The last copies of a block that is on the device, each way.
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
    // What moves between iterations is in no simulation.
    after.resize(steps.len(), Vec::new());
    after
}
