//! A set of numbers below n: its members as a list in no particular order, and where each stands in that list (sparse
//! sets: Briggs and Torczon 1993). All operations but clearing are O(1).

use crate::id::Id;
use crate::workspace::workspace;

workspace! {
    pub(super) struct Members<'a, I>(n) {
        records {
            list: I[n],
            place[I]: Option<u32>[n],
        }
        state {
            len: u32 = 0,
        }
    }
}

impl<I: Id> Members<'_, I> {
    #[inline]
    pub(super) fn has(&self, number: I) -> bool {
        self.place.get(number).is_some()
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, i: u32) -> I {
        self.list.get(i)
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = I> + '_ {
        self.list.range(0, self.len)
    }

    #[inline]
    pub(super) fn last(&self) -> Option<I> {
        self.len.checked_sub(1).map(|last| self.get(last))
    }

    pub(super) fn insert(&mut self, number: I) {
        if !self.has(number) {
            self.list.set(self.len, number);
            self.place.set(number, Some(self.len));
            self.len += 1;
        }
    }

    /// The last member takes the place of the removed one.
    pub(super) fn remove(&mut self, number: I) {
        if let Some(place) = self.place.get(number) {
            self.len -= 1;
            let last = self.get(self.len);
            self.list.set(place, last);
            self.place.set(last, Some(place));
            self.place.set(number, None);
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.place.fill(None);
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
        fn is_a_set(steps in prop::collection::vec((0u32..9, 0u32..20), 0..60)) {
            let mut indices = [0; 40];
            let mut members = Members::lend(20, &mut Workspace::new(&mut [], &mut indices));
            let mut expected = BTreeSet::new();
            for (kind, number) in steps {
                match kind {
                    0 => { members.clear(); expected.clear(); }
                    1..=3 => { members.remove(number); expected.remove(&number); }
                    _ => { members.insert(number); expected.insert(number); }
                }
                prop_assert_eq!(members.iter().collect::<BTreeSet<_>>(), expected.clone());
                prop_assert_eq!(members.len() as usize, expected.len());
                prop_assert!((0..20).all(|i| members.has(i) == expected.contains(&i)));
                prop_assert_eq!(members.last(), members.len().checked_sub(1).map(|i| members.get(i)));
            }
        }
    }
}
