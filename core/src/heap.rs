//! A binary heap (priority queue) in memory that the caller lends.

use crate::id::Id;
use crate::workspace::workspace;

workspace! {
    /// The least key comes first; among equal keys, the least number.
    pub(crate) struct Heap<'a, I>(n) {
        tables {
            keys: u64[n],
        }
        records {
            numbers: I[n],
        }
        state {
            len: u32 = 0,
        }
    }
}

impl<I: Id> Heap<'_, I> {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn first(&self) -> Option<(u64, I)> {
        (self.len > 0).then(|| self.entry(0))
    }

    fn entry(&self, i: u32) -> (u64, I) {
        (self.keys[i], self.numbers.get(i))
    }

    pub(crate) fn push(&mut self, key: u64, number: I) {
        let mut i = self.len;
        self.len += 1;
        while i > 0 {
            let parent = (i - 1) / 2;
            if self.entry(parent) <= (key, number) {
                break;
            }
            self.keys[i] = self.keys[parent];
            self.numbers.set(i, self.numbers.get(parent));
            i = parent;
        }
        self.keys[i] = key;
        self.numbers.set(i, number);
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, I)> {
        let least = self.first()?;
        self.len -= 1;
        let moved = self.entry(self.len);
        let mut i = 0;
        loop {
            let mut child = 2 * i + 1;
            if child >= self.len {
                break;
            }
            let right = child + 1;
            if right < self.len && self.entry(right) < self.entry(child) {
                child = right;
            }
            if moved <= self.entry(child) {
                break;
            }
            self.keys[i] = self.keys[child];
            self.numbers.set(i, self.numbers.get(child));
            i = child;
        }
        self.keys[i] = moved.0;
        self.numbers.set(i, moved.1);
        Some(least)
    }
}
