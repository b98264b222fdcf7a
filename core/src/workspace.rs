//! Scratch memory that the caller lends.

use crate::Error;
use crate::error::Buffer;
use crate::table::Table;

/// The scratch memory of one call: 64-bit words and 32-bit indices.
///
/// What the slices hold before and after the call means nothing. How long they must be is told by the
/// `workspace` function beside every function that takes one; longer is fine.
#[derive(Debug)]
pub struct Workspace<'a> {
    words: &'a mut [u64],
    indices: &'a mut [u32],
}

/// How long the two slices of a [`Workspace`] must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLen {
    /// Elements of the `u64` slice.
    pub words: usize,
    /// Elements of the `u32` slice.
    pub indices: usize,
}

impl WorkspaceLen {
    /// The larger of both, slice by slice: enough for either of two calls.
    ///
    /// ```
    /// use sublet_core::WorkspaceLen;
    /// let a = WorkspaceLen { words: 3, indices: 1 };
    /// let b = WorkspaceLen { words: 2, indices: 5 };
    /// assert_eq!(a.max(b), WorkspaceLen { words: 3, indices: 5 });
    /// ```
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        Self {
            words: if self.words > other.words { self.words } else { other.words },
            indices: if self.indices > other.indices { self.indices } else { other.indices },
        }
    }

    /// Both together: enough for two uses at once.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { words: self.words + other.words, indices: self.indices + other.indices }
    }
}

impl<'a> Workspace<'a> {
    /// Scratch memory over two slices.
    ///
    /// ```
    /// use sublet_core::{verify, Block, Constraints, Workspace};
    /// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8)];
    /// let len = verify::workspace(blocks.len());
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let plan = verify::verify(&blocks, &[0, 8], &Constraints::NONE, Workspace::new(&mut words, &mut indices))?;
    /// assert_eq!(plan.peak(), 16);
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    #[must_use]
    pub const fn new(words: &'a mut [u64], indices: &'a mut [u32]) -> Self {
        Self { words, indices }
    }

    /// The same memory for a shorter time: a call that borrows gives it back.
    #[must_use]
    pub const fn reborrow(&mut self) -> Workspace<'_> {
        Workspace { words: self.words, indices: self.indices }
    }

    /// Refuses a workspace that is shorter than `len`.
    pub(crate) fn check(&self, len: WorkspaceLen) -> Result<(), Error> {
        if self.words.len() < len.words {
            return Err(Error::BufferTooSmall { buffer: Buffer::Words, needed: len.words, got: self.words.len() });
        }
        if self.indices.len() < len.indices {
            return Err(Error::BufferTooSmall {
                buffer: Buffer::Indices,
                needed: len.indices,
                got: self.indices.len(),
            });
        }
        Ok(())
    }

    /// A workspace of this length out of what is left.
    pub(crate) fn split(&mut self, len: WorkspaceLen) -> Workspace<'a> {
        Workspace { words: take(&mut self.words, len.words), indices: take(&mut self.indices, len.indices) }
    }

    /// A table of `n` words, all 0, out of what is left.
    pub(crate) fn words(&mut self, n: usize) -> Table<'a, u64> {
        Table::new(take(&mut self.words, n))
    }

    /// A table of `n` records of K indices that are read together, all 0, out of what is left.
    pub(crate) fn index_records<const K: usize>(&mut self, n: usize) -> Table<'a, [u32; K]>
    where
        [u32; K]: Default,
    {
        Table::new(take(&mut self.indices, K * n).as_chunks_mut().0)
    }

    /// A table of `n` records of words, all 0, out of what is left.
    pub(crate) fn word_records<const K: usize>(&mut self, n: usize) -> Table<'a, [u64; K]>
    where
        [u64; K]: Default,
    {
        Table::new(take(&mut self.words, n * K).as_chunks_mut().0)
    }

    /// A table of `n` indices, all 0, out of what is left.
    pub(crate) fn indices(&mut self, n: usize) -> Table<'a, u32> {
        Table::new(take(&mut self.indices, n))
    }
}

/// Cuts `n` elements off the front. A caller that has checked the length gets them all.
#[expect(clippy::mut_mut, reason = "the rest is handed back")]
fn take<'a, T: Default + Copy>(rest: &mut &'a mut [T], n: usize) -> &'a mut [T] {
    debug_assert!(n <= rest.len());
    let (front, back) = core::mem::take(rest).split_at_mut_checked(n).unwrap_or_default();
    *rest = back;
    front.fill(T::default());
    front
}
