//! The mixed integer program of Sekiyama et al. 2018, section 3.1, in CPLEX LP text.
//!
//! ```text
//! min u                                              (1)
//! x_i + w_i <= u                    for each block   (2)
//! x_i + w_i <= x_j + z_i_j W        for each pair    (3)
//! x_j + w_j <= x_i + (1 - z_i_j) W  for each pair    (4)
//! 0 <= u <= W                                        (5)
//! 0 <= x_i                          for each block   (6)
//! ```
//!
//! Where an output i may begin D below an input j that dies (Blacker et al. 2020), D stands in (3) in place of `w_i`.
//!
//! The pairs are those that are alive together; `i` and `j` count the blocks from 0; `x` and `u` are whole, `z` is
//! binary. Beside the paper's constraints: `a_i`, the offset in units of an alignment, and pins as bounds.
//!
//! A solver that takes `z` within a tolerance may let pairs overlap where W is large against the sizes: give a
//! small capacity, and verify what comes back.

use std::io::{self, Write};

use sublet_core::Error;
use sublet_core::place::Sweep;

use crate::problem::Problem;
use sublet_core::owned::Scratch;

/// Writes the program whose arena ends at `capacity`, in bytes.
pub(crate) fn write(problem: &Problem, capacity: u64, out: &mut impl Write) -> io::Result<()> {
    let blocks = &problem.blocks;
    let mut scratch = Scratch::of(Sweep::workspace(blocks.len()));
    let sweep = Sweep::new(blocks, scratch.lend()).map_err(|e: Error| io::Error::other(e.to_string()))?;
    let numbered = || (0u32..).zip(blocks);

    writeln!(out, "\\ placement of {} blocks", blocks.len())?;
    for (id, (i, _)) in problem.ids.iter().zip(numbered()) {
        writeln!(out, "\\ x_{i}: offset of block {id}")?;
    }
    writeln!(out, "Minimize\n peak: u\nSubject To")?;
    for (i, b) in numbered() {
        writeln!(out, " top_{i}: x_{i} - u <= -{}", b.size)?;
        if b.alignment > 1 {
            writeln!(out, " align_{i}: x_{i} - {} a_{i} = 0", b.alignment)?;
        }
    }
    for (i, j) in sweep.colliding_pairs() {
        // How many bytes above the begin of the lower block the upper one begins at least.
        let apart = |lower: u32, upper: u32| {
            let reaches = problem.overlaps.iter().find(|o| (o.output, o.input) == (lower, upper));
            let size = blocks[lower as usize].size;
            reaches.map_or(size, |o| o.distance.min(size))
        };
        let (below, above) = (apart(i, j), apart(j, i));
        writeln!(out, " below_{i}_{j}: x_{i} - x_{j} - {capacity} z_{i}_{j} <= -{below}")?;
        writeln!(
            out,
            " above_{i}_{j}: x_{j} - x_{i} + {capacity} z_{i}_{j} <= {}",
            i128::from(capacity) - i128::from(above)
        )?;
    }
    writeln!(out, "Bounds\n 0 <= u <= {capacity}")?;
    for (i, b) in numbered() {
        match b.pin {
            Some(offset) => writeln!(out, " x_{i} = {offset}")?,
            None => writeln!(out, " x_{i} >= 0")?,
        }
    }
    writeln!(out, "Generals\n u")?;
    for (i, b) in numbered() {
        writeln!(out, " x_{i}")?;
        if b.alignment > 1 {
            writeln!(out, " a_{i}")?;
        }
    }
    writeln!(out, "Binaries")?;
    for (i, j) in sweep.colliding_pairs() {
        writeln!(out, " z_{i}_{j}")?;
    }
    writeln!(out, "End")
}

/// A capacity that no placement needs to exceed: the pins, and all other blocks above them with their padding.
pub(crate) fn ample(problem: &Problem) -> u64 {
    let pinned = problem.blocks.iter().filter_map(|b| Some(b.pin?.saturating_add(b.size))).max().unwrap_or(0);
    let free = problem.blocks.iter().filter(|b| b.pin.is_none());
    free.fold(pinned, |sum, b| sum.saturating_add(b.size).saturating_add(b.alignment - 1))
}
