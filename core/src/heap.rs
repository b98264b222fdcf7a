//! A binary heap in slices.

use crate::workspace::workspace;

workspace! {
    /// A priority queue of numbers with keys. It gives the number with the least key first, and of equal keys the least
    /// number. There is room for `n` numbers.
    pub(crate) struct Heap<'a>(n) {
        tables {
            keys: u64[n],
            numbers: u32[n],
        }
        state {
            len: u32 = 0,
        }
    }
}

impl Heap<'_> {
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// The least key and its number, which stays in the heap; none if the heap is empty.
    pub(crate) fn first(&self) -> Option<(u64, u32)> {
        (self.len > 0).then(|| (self.keys[0], self.numbers[0]))
    }

    pub(crate) fn push(&mut self, key: u64, number: u32) {
        let mut i = self.len;
        self.len += 1;
        while i > 0 {
            let parent = (i - 1) / 2;
            if (self.keys[parent], self.numbers[parent]) <= (key, number) {
                break;
            }
            self.keys[i] = self.keys[parent];
            self.numbers[i] = self.numbers[parent];
            i = parent;
        }
        self.keys[i] = key;
        self.numbers[i] = number;
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, u32)> {
        if self.len == 0 {
            return None;
        }
        let least = (self.keys[0], self.numbers[0]);
        self.len -= 1;
        let moved = (self.keys[self.len], self.numbers[self.len]);
        let mut i = 0;
        loop {
            let mut child = 2 * i + 1;
            if child >= self.len {
                break;
            }
            let right = child + 1;
            if right < self.len && (self.keys[right], self.numbers[right]) < (self.keys[child], self.numbers[child]) {
                child = right;
            }
            if moved <= (self.keys[child], self.numbers[child]) {
                break;
            }
            self.keys[i] = self.keys[child];
            self.numbers[i] = self.numbers[child];
            i = child;
        }
        self.keys[i] = moved.0;
        self.numbers[i] = moved.1;
        Some(least)
    }
}
