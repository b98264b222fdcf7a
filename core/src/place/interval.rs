//! The interval graph of a set of lifetimes: which blocks are alive together.
//!
//! Two blocks are adjacent when their lifetimes share a step. The graph is never stored. A [`Sweep`] holds the blocks
//! sorted by first step and by end. One pass over it finds each of these: the bytes alive at each step; the edges,
//! which are the pairs of blocks alive together; the maximal cliques, sets of blocks alive at one step to which no
//! block can be added; and the components, the smallest sets of blocks that share no step with the blocks of another
//! set. For an interval graph the weighted clique number ω, here the max load, is a lower bound on the peak of every
//! placement (Sekiyama et al. 2018; Zhang et al. 2019, section 4.1).
//!
//! Cost for n blocks: O(n log n) to sort, O(n) a pass, O(n + |E|) for the |E| edges; 3 n indices.

use crate::table::{Table, at, count};
use crate::{Block, Error, Workspace, WorkspaceLen, block, sort};

/// The blocks in two orders: by first step and by end. From these are read the load over time, the pairs of blocks that
/// are alive together, and the maximal cliques of blocks alive at one step.
#[derive(Clone, Copy, Debug)]
pub struct Sweep<'a> {
    blocks: &'a [Block],
    by_start: &'a [u32],
    by_end: &'a [u32],
}

/// A set of blocks that are all alive at one step, and to which no block can be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clique {
    /// The first step at which all blocks of the clique are alive.
    pub step: u32,
    /// How many blocks are in the clique.
    pub len: u32,
    /// The sum of the sizes of the clique's blocks, in bytes.
    pub load: u64,
}

impl<'a> Sweep<'a> {
    /// Length of the workspace of a sweep over `n` blocks.
    #[must_use]
    pub const fn workspace(n: usize) -> WorkspaceLen {
        WorkspaceLen { words: 0, indices: 3 * n }
    }

    /// Sorts the blocks twice, by their first step and by their end; blocks of equal steps stay in the order of the
    /// slice. The workspace stays lent as long as the [`Sweep`] lives.
    ///
    /// # Errors
    /// The error of [`check_blocks`](crate::check_blocks) if it refuses the blocks; [`Error::BufferTooSmall`] if the workspace is shorter
    /// than [`workspace`](Self::workspace) says.
    ///
    /// ```
    /// use sublet_core::place::Sweep;
    /// use sublet_core::{Block, Workspace};
    /// let blocks = [Block::new(0, 2, 8), Block::new(1, 4, 2), Block::new(2, 4, 4), Block::new(4, 5, 1)];
    /// let mut indices = [0; 12];
    /// let sweep = Sweep::new(&blocks, Workspace::new(&mut [], &mut indices))?;
    /// assert_eq!(sweep.max_load(), 10);
    /// assert!(sweep.load_curve().eq([(0, 8), (1, 10), (2, 6), (4, 1), (5, 0)]));
    /// assert!(sweep.colliding_pairs().eq([(0, 1), (1, 2)]));
    /// assert_eq!(sweep.cliques().count(), 3);
    /// assert!(sweep.components().eq([&[0, 1, 2][..], &[3]]));
    /// # Ok::<(), sublet_core::Error>(())
    /// ```
    pub fn new(blocks: &'a [Block], mut scratch: Workspace<'a>) -> Result<Self, Error> {
        // If a lifetime ended before it began, its size would be subtracted before it is added; and loads could
        // overflow.
        block::check(blocks, 1)?;
        scratch.check(Self::workspace(blocks.len()))?;
        let n = count(blocks);
        let mut by_start = scratch.indices(blocks.len());
        let mut by_end = scratch.indices(blocks.len());
        let mut aside = scratch.indices(blocks.len());
        sort::identity(&mut by_start, n);
        sort::by_key(&mut by_start, n, &mut aside, |i| at(blocks, i).start.into());
        sort::identity(&mut by_end, n);
        sort::by_key(&mut by_end, n, &mut aside, |i| at(blocks, i).end.into());
        Ok(Self { blocks, by_start: by_start.into_slice(), by_end: by_end.into_slice() })
    }

    pub(crate) const fn by_start(&self) -> &'a [u32] {
        self.by_start
    }

    /// The load over time, as pairs of a step and the bytes that are alive from this step on, until the step of the
    /// next pair. There is a pair for each step at which a block begins or ends.
    pub fn load_curve(&self) -> impl Iterator<Item = (u32, u64)> + use<'a> {
        let Self { blocks, by_start, by_end } = *self;
        let (mut started, mut ended) = (0, 0);
        let mut load = 0u64;
        core::iter::from_fn(move || {
            let next_end = by_end.get(ended).map(|&i| at(blocks, i).end)?;
            let next_start = by_start.get(started).map_or(next_end, |&i| at(blocks, i).start);
            let step = next_end.min(next_start);
            while let Some(b) = by_end.get(ended).map(|&i| at(blocks, i)).filter(|b| b.end == step) {
                load = load.wrapping_sub(b.size);
                ended += 1;
            }
            while let Some(b) = by_start.get(started).map(|&i| at(blocks, i)).filter(|b| b.start == step) {
                load = load.wrapping_add(b.size);
                started += 1;
            }
            Some((step, load))
        })
    }

    /// The max load: the most bytes that are alive at one step.
    #[must_use]
    pub fn max_load(&self) -> u64 {
        self.load_curve().map(|(_, load)| load).max().unwrap_or(0)
    }

    pub(super) const fn by_end(&self) -> &'a [u32] {
        self.by_end
    }

    pub(crate) fn is_full(&self) -> bool {
        let max_load = self.max_load();
        self.cliques().all(|clique| clique.load == max_load)
    }

    /// The maximal cliques, in the order of their steps. A maximal clique is a set of blocks that are all alive at one
    /// step, to which no block can be added. Each is the set of blocks that are alive just before a step at which
    /// blocks end. If no block has begun since the previous such step, these blocks are no maximal clique, and are left
    /// out.
    pub fn cliques(&self) -> impl Iterator<Item = Clique> + use<'a> {
        let Self { blocks, by_start, by_end } = *self;
        let (mut started, mut ended) = (0, 0);
        let (mut load, mut len) = (0u64, 0u32);
        core::iter::from_fn(move || {
            let first = at(blocks, *by_start.get(started)?).start;
            while let Some(b) = by_end.get(ended).map(|&i| at(blocks, i)).filter(|b| b.end <= first) {
                load = load.wrapping_sub(b.size);
                len -= 1;
                ended += 1;
            }
            let next_end = by_end.get(ended).map_or(u32::MAX, |&i| at(blocks, i).end);
            let mut step = first;
            while let Some(b) = by_start.get(started).map(|&i| at(blocks, i)).filter(|b| b.start < next_end) {
                load = load.wrapping_add(b.size);
                len += 1;
                step = b.start;
                started += 1;
            }
            Some(Clique { step, len, load })
        })
    }

    /// The components: the smallest sets of blocks such that no two blocks of different sets share a step. Each is
    /// given as the indices of its blocks, in the order of their first steps. Each component can be placed alone.
    pub fn components(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let Self { blocks, by_start, .. } = *self;
        let mut rest = by_start;
        core::iter::from_fn(move || {
            let mut end = at(blocks, *rest.first()?).end;
            let len = rest
                .iter()
                .position(|&i| {
                    let b = at(blocks, i);
                    let apart = b.start >= end;
                    end = end.max(b.end);
                    apart
                })
                .unwrap_or(rest.len());
            let (component, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(component)
        })
    }

    /// Without looking at the pairs one by one: O(n).
    pub(crate) fn colliding_pair_count(&self) -> u64 {
        let mut ends = self.by_end.iter().peekable();
        let (mut alive, mut pairs) = (0u64, 0u64);
        for &i in self.by_start {
            while ends.next_if(|&&e| at(self.blocks, e).end <= at(self.blocks, i).start).is_some() {
                alive -= 1;
            }
            pairs += alive;
            alive += 1;
        }
        pairs
    }

    /// The edges E of the interval graph: the pairs (i, j) of blocks with i < j whose lifetimes share a step. Takes
    /// O(n + |E|) for all pairs of n blocks; none of them is stored.
    pub fn colliding_pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let Self { blocks, by_start, .. } = *self;
        (1..).zip(by_start).flat_map(move |(next, &i)| {
            let end = at(blocks, i).end;
            by_start
                .get(next..)
                .unwrap_or_default()
                .iter()
                .take_while(move |&&j| at(blocks, j).start < end)
                .map(move |&j| (i.min(j), i.max(j)))
        })
    }

    pub(crate) fn clique_ranges(&self, low: &mut Table<'_, u32>, high: &mut Table<'_, u32>) -> u32 {
        let mut ended = self.by_end.iter().peekable();
        let mut cliques = 0u32;
        // Whether a block has begun since the last one ended: the clique of number `cliques` is open.
        let mut open = false;
        for &i in self.by_start {
            let start = at(self.blocks, i).start;
            while let Some(&e) = ended.next_if(|&&e| at(self.blocks, e).end <= start) {
                cliques += u32::from(open);
                open = false;
                high[e] = cliques;
            }
            low[i] = cliques;
            open = true;
        }
        cliques += u32::from(open);
        for &e in ended {
            high[e] = cliques;
        }
        cliques
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn lifetimes_that_cannot_be_are_refused() {
        for (start, end) in [(5, 3), (u32::MAX, u32::MAX)] {
            let refused = Sweep::new(&[Block::new(start, end, 1)], Workspace::new(&mut [], &mut [0; 3])).map(|_| ());
            assert_eq!(refused, Err(Error::EmptyLifetime { block: 0, start, end }));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definitions(rows in prop::collection::vec((0u32..20, 1u32..8, 1u64..9), 0..14)) {
            let blocks: Vec<Block> = rows.iter().map(|&(s, w, size)| Block::new(s, s + w, size)).collect();
            let n = blocks.len();
            let mut indices = vec![9; Sweep::workspace(n).indices];
            let sweep = Sweep::new(&blocks, Workspace::new(&mut [], &mut indices)).unwrap();
            let alive = |t: u32| -> BTreeSet<usize> { (0..n).filter(|&i| blocks[i].start <= t && t < blocks[i].end).collect() };
            let load = |t: u32| -> u64 { alive(t).iter().map(|&i| blocks[i].size).sum() };

            prop_assert_eq!(sweep.max_load(), (0..30).map(load).max().unwrap());
            for (step, bytes) in sweep.load_curve() {
                prop_assert_eq!(bytes, load(step));
            }

            let mut pairs: Vec<_> = sweep.colliding_pairs().collect();
            pairs.sort_unstable();
            let expected: Vec<_> = (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j)))
                .filter(|&(i, j)| blocks[i].collides(&blocks[j])).map(|(i, j)| (i as u32, j as u32)).collect();
            prop_assert_eq!(sweep.colliding_pair_count(), expected.len() as u64);
            prop_assert_eq!(pairs, expected);

            let sets: BTreeSet<_> = (0..30).map(alive).filter(|s| !s.is_empty()).collect();
            let maximal: BTreeSet<_> = sets.iter().filter(|s| !sets.iter().any(|t| t != *s && t.is_superset(s))).cloned().collect();
            let found: BTreeSet<_> = sweep.cliques().map(|c| alive(c.step)).collect();
            prop_assert_eq!(sweep.cliques().count(), found.len());
            prop_assert_eq!(&found, &maximal);
            for c in sweep.cliques() {
                prop_assert_eq!((c.len as usize, c.load), (alive(c.step).len(), load(c.step)));
            }

            let (mut low, mut high) = (vec![0; n], vec![0; n]);
            let m = sweep.clique_ranges(&mut Table::new(&mut low), &mut Table::new(&mut high));
            prop_assert_eq!(m as usize, maximal.len());
            for i in 0..n {
                for j in 0..i {
                    prop_assert_eq!(blocks[i].collides(&blocks[j]), low[i] < high[j] && low[j] < high[i]);
                }
            }

            let components: Vec<Vec<u32>> = sweep.components().map(<[u32]>::to_vec).collect();
            prop_assert_eq!(components.iter().map(Vec::len).sum::<usize>(), n);
            for (k, c) in components.iter().enumerate() {
                let other = components.iter().skip(k + 1).flatten();
                prop_assert!(other.clone().all(|&j| c.iter().all(|&i| blocks[i as usize].end <= blocks[j as usize].start)));
                // Within a component, every block begins before the ones before it have all ended.
                let mut reach = blocks[c[0] as usize].end;
                for &i in &c[1..] {
                    prop_assert!(blocks[i as usize].start < reach);
                    reach = reach.max(blocks[i as usize].end);
                }
            }
        }
    }
}
