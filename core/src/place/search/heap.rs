//! A binary heap in slices.

use crate::Workspace;
use crate::table::Table;

/// Blocks by a key, the least first; equal keys by number.
pub(super) struct Heap<'a> {
    keys: Table<'a, u64>,
    blocks: Table<'a, u32>,
    len: u32,
}

impl<'a> Heap<'a> {
    /// Room for `n` blocks: `n` words and `n` indices.
    pub(super) fn new(n: usize, scratch: &mut Workspace<'a>) -> Self {
        Self { keys: scratch.words(n), blocks: scratch.indices(n), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, key: u64, block: u32) {
        let mut i = self.len;
        self.len += 1;
        while i > 0 {
            let parent = (i - 1) / 2;
            if (self.keys[parent], self.blocks[parent]) <= (key, block) {
                break;
            }
            self.keys[i] = self.keys[parent];
            self.blocks[i] = self.blocks[parent];
            i = parent;
        }
        self.keys[i] = key;
        self.blocks[i] = block;
    }

    pub(super) fn pop(&mut self) -> Option<(u64, u32)> {
        if self.len == 0 {
            return None;
        }
        let least = (self.keys[0], self.blocks[0]);
        self.len -= 1;
        let moved = (self.keys[self.len], self.blocks[self.len]);
        let mut i = 0;
        loop {
            let mut child = 2 * i + 1;
            if child >= self.len {
                break;
            }
            let right = child + 1;
            if right < self.len && (self.keys[right], self.blocks[right]) < (self.keys[child], self.blocks[child]) {
                child = right;
            }
            if moved <= (self.keys[child], self.blocks[child]) {
                break;
            }
            self.keys[i] = self.keys[child];
            self.blocks[i] = self.blocks[child];
            i = child;
        }
        self.keys[i] = moved.0;
        self.blocks[i] = moved.1;
        Some(least)
    }
}
