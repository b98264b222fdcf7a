//! Workspaces with arbitrary content.

use sublet_core::{Workspace, WorkspaceLen};

/// Scratch memory that is lent to one call after the other.
#[derive(Debug)]
pub struct Scratch {
    pub words: Vec<u64>,
    pub indices: Vec<u32>,
}

impl Scratch {
    /// Memory of the length that a `workspace` function says, filled with numbers that must not matter.
    pub fn of(len: WorkspaceLen) -> Self {
        Self::filled(len, 0x9e37_79b9_7f4a_7c15)
    }

    /// Memory of this length, filled with random numbers from a seed; all zeros for the seed 0.
    pub fn filled(len: WorkspaceLen, seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(seed);
            state
        };
        let words = (0..len.words).map(|_| next()).collect();
        Self { words, indices: (0..len.indices).map(|_| (next() >> 32) as u32).collect() }
    }

    pub fn lend(&mut self) -> Workspace<'_> {
        Workspace::new(&mut self.words, &mut self.indices)
    }
}
