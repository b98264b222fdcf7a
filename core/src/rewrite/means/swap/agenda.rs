//! The boundaries between operators at which the simulation of a swap schedule has something to do. There a copy
//! becomes possible, memory is freed or allocated, or a block is needed.
//!
//! For each boundary there is a count of the reasons to stop there, and a bit that tells whether the count is not 0. To
//! find the next boundary with something to do costs O(boundaries passed over / 64).

use crate::workspace::workspace;

workspace! {
    pub(in crate::rewrite) struct Agenda<'a>(boundaries) {
        tables {
            counts: u32[boundaries],
            bits: u64[boundaries / 64 + 1],
        }
    }
}

impl Agenda<'_> {
    pub(in crate::rewrite) fn add(&mut self, boundary: u32) {
        self.counts[boundary] += 1;
        self.bits[boundary / 64] |= 1 << (boundary % 64);
    }

    pub(in crate::rewrite) fn remove(&mut self, boundary: u32) {
        self.counts[boundary] -= 1;
        if self.counts[boundary] == 0 {
            self.bits[boundary / 64] &= !(1 << (boundary % 64));
        }
    }

    pub(in crate::rewrite) fn next(&self, from: u32, end: u32) -> u32 {
        let mut word = from / 64;
        let mut bits = self.bits[word] >> (from % 64) << (from % 64);
        while bits == 0 && (word + 1) * 64 < end {
            word += 1;
            bits = self.bits[word];
        }
        if bits == 0 { end } else { end.min(word * 64 + bits.trailing_zeros()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tells_the_next(steps in prop::collection::vec((any::<bool>(), 0u32..200, 0u32..200), 0..60)) {
            let len = Agenda::workspace(201);
            let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
            let mut agenda = Agenda::lend(201, &mut Workspace::new(&mut words, &mut indices));
            let mut expected = [0; 201];
            for (more, boundary, from) in steps {
                if more {
                    agenda.add(boundary);
                    expected[boundary as usize] += 1;
                } else if expected[boundary as usize] > 0 {
                    agenda.remove(boundary);
                    expected[boundary as usize] -= 1;
                }
                for end in from..=200 {
                    let next = (from..end).find(|&b| expected[b as usize] > 0).unwrap_or(end);
                    prop_assert_eq!(agenda.next(from, end), next);
                }
            }
        }
    }
}
