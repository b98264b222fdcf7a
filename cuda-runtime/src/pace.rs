//! When copies begin: as soon as they can, or when they begin in the simulation.
//!
//! In the simulation of a schedule ([`sublet_core::simulate`]) compute waits at each free of a block for the block's
//! copies; and a copy begins when compute has reached its row. Correct data needs neither: the next step that uses the
//! freed bytes waits for the copies, and a copy in may begin as soon as its bytes are free. A runtime that waits only
//! where steps share bytes is as fast as the simulation, or faster.
//!
//! Steps: one pass over the rows. A launch has to follow the copies of the blocks that were freed since the launch
//! before; a copy has to follow these copies and that launch. With the order of each stream, and that of steps which
//! share bytes, this gives the simulation's order. So an iteration takes as long as in the simulation if its kernels
//! and copies do.

use sublet_core::trace::{Event, Row};

use crate::step::{Step, Work};

/// When copies begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Pace {
    /// A copy between device and host begins as soon as nothing uses any more the bytes that it reads or writes.
    #[default]
    Eager,
    /// A copy begins when compute reaches its row in the trace, and where a block is freed compute waits for the
    /// block's copies. This is for comparing a device with the simulation.
    Simulated,
}

/// By step of the program (a launch or a copy): the numbers of earlier steps that it has to follow so that copies begin
/// and compute waits as in the simulation. Steps that it follows only because both use the same bytes are not listed.
/// `numbers` is how many block numbers there are.
pub(crate) fn simulated(rows: &[Row], steps: &[Step], numbers: usize) -> Vec<Vec<u32>> {
    /// Of a block on the device: the number of the step that copied it out last, and of the one that copied it in last;
    /// `None` where there was no such copy.
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
