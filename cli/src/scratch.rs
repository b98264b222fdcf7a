//! The workspaces that core borrows.

use sublet_core::{Workspace, WorkspaceLen};

/// A workspace that owns its memory.
#[derive(Debug)]
pub(crate) struct Scratch {
    words: Vec<u64>,
    indices: Vec<u32>,
}

impl Scratch {
    /// As long as a `workspace` function of core says.
    pub(crate) fn of(len: WorkspaceLen) -> Self {
        Self { words: vec![0; len.words], indices: vec![0; len.indices] }
    }

    /// Lends it.
    pub(crate) fn lend(&mut self) -> Workspace<'_> {
        Workspace::new(&mut self.words, &mut self.indices)
    }
}
