//! A queue of numbers, from which the least is taken first. Its memory is one bit for each number that may be in it.
//!
//! Adding a number and asking for the least are O(1). Taking the least looks at the words of bits up to the next
//! number; in a heap, adding and taking would be O(log n).

use core::marker::PhantomData;

use crate::id::Id;
use crate::workspace::workspace;

workspace! {
    pub(in crate::rewrite) struct Queue<'a, I>(n) {
        tables {
            bits: u64[n / 64 + 1],
        }
        state {
            len: u32 = 0,
            word: u32 = 0,
            numbers: PhantomData<I> = PhantomData,
        }
    }
}

impl<I: Id> Queue<'_, I> {
    pub(in crate::rewrite) const fn len(&self) -> u32 {
        self.len
    }

    /// `number` must not be in the queue.
    pub(in crate::rewrite) fn push(&mut self, number: I) {
        let word = number.number() / 64;
        self.bits[word] |= 1 << (number.number() % 64);
        self.word = if self.len == 0 { word } else { self.word.min(word) };
        self.len += 1;
    }

    pub(in crate::rewrite) fn first(&self) -> Option<I> {
        (self.len > 0).then(|| I::of(self.word * 64 + self.bits[self.word].trailing_zeros()))
    }

    pub(in crate::rewrite) fn pop(&mut self) -> Option<I> {
        let first = self.first()?;
        self.bits[self.word] &= self.bits[self.word] - 1;
        self.len -= 1;
        while self.len > 0 && self.bits[self.word] == 0 {
            self.word += 1;
        }
        Some(first)
    }

    pub(in crate::rewrite) fn clear(&mut self) {
        if self.len > 0 {
            self.bits.fill(0);
            self.len = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn gives_the_least_first(steps in prop::collection::vec((0u32..9, 0u32..300), 0..90)) {
            let len = Queue::<u32>::workspace(300);
            let mut words = vec![0; len.words];
            let mut queue = Queue::lend(300, &mut Workspace::new(&mut words, &mut []));
            let mut expected = BTreeSet::new();
            for (kind, number) in steps {
                match kind {
                    0 => { queue.clear(); expected.clear(); }
                    1..=3 => prop_assert_eq!(queue.pop(), expected.pop_first()),
                    _ if expected.insert(number) => queue.push(number),
                    _ => {}
                }
                prop_assert_eq!(queue.len() as usize, expected.len());
                prop_assert_eq!(queue.first(), expected.first().copied());
            }
        }
    }
}
