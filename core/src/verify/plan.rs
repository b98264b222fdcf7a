//! Proves that a plan is valid, or names the constraint that it breaks.
//!
//! Problem: given blocks and offsets, do they satisfy the constraints of the mixed integer program of Sekiyama et al.
//! 2018, section 3.1? Let W be the end of the arena, u the peak, x the offsets, w the sizes and E the pairs of blocks
//! that are alive together. The constraints are: (2) `x_i + w_i ≤ u`; (3), (4) of each pair in E, one block ends at or
//! below the begin of the other; (5) u ≤ W; (6) `x_i ≥ 0`, which unsigned offsets cannot break. It is also checked that
//! offsets are aligned, and that a block for which the caller prescribes an offset (a pin) lies there.
//!
//! Method: sort the blocks by offset, by first step and by end. Go through the steps in order, and keep the set of live
//! blocks, ordered by offset: a bit set over their ranks in that order. As long as no two live blocks share an address,
//! they lie one above the other. So a block that begins has to be compared only with its two neighbours in the set, and
//! not every pair of E has to be looked at.
//!
//! Cost: O(n log n) time whatever the size of E, linear workspace. Nothing here is code of the planners.

use crate::table::{Table, at, count};
use crate::violation::Violation;
use crate::{Block, Constraints, Error, Workspace, WorkspaceLen, block, error::Buffer, sort};

/// A plan that was proved valid: blocks, their offsets, the peak and the max load.
///
/// Only [`verify`] and [`verify_overlapping`](super::verify_overlapping) make values of this type, and only of plans that they accept. So whoever
/// holds one knows that its plan is valid.
#[derive(Clone, Copy, Debug)]
pub struct VerifiedPlan<'a> {
    pub(super) blocks: &'a [Block],
    pub(super) offsets: &'a [u64],
    pub(super) peak: u64,
    pub(super) max_load: u64,
}

impl<'a> VerifiedPlan<'a> {
    /// The blocks that the plan places.
    #[must_use]
    pub const fn blocks(&self) -> &'a [Block] {
        self.blocks
    }

    /// Where each block lies, in bytes from the start of the arena.
    #[must_use]
    pub const fn offsets(&self) -> &'a [u64] {
        self.offsets
    }

    /// The bytes that the arena needs: the highest end of a block in the plan. Sekiyama et al. 2018 call it u.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// The most bytes that are alive at one step; no plan has a lower peak. In a plan accepted by
    /// [`verify_overlapping`](super::verify_overlapping), the bytes that overlaps may save at a step are first subtracted from those alive at the
    /// step.
    #[must_use]
    pub const fn max_load(&self) -> u64 {
        self.max_load
    }

    /// Peak divided by max load: 1.0 is the best possible. Without blocks it is 1.0 too.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio to be read; `is_optimal` compares the integers")]
    pub fn ratio(&self) -> f64 {
        if self.max_load == 0 { 1.0 } else { self.peak as f64 / self.max_load as f64 }
    }

    /// Whether the peak equals the max load, so that no better plan exists.
    #[must_use]
    pub const fn is_optimal(&self) -> bool {
        self.peak == self.max_load
    }
}

/// Length of the workspace that [`verify`] needs for `n` blocks.
#[must_use]
pub const fn workspace(n: usize) -> WorkspaceLen {
    WorkspaceLen { words: Ranks::words(n), indices: 5 * n }
}

/// Proves that `offsets`, in bytes, is a valid plan for `blocks` under `constraints`, or says which constraint it
/// breaks. O(n log n), whatever the number of pairs of blocks that are alive together.
///
/// # Errors
/// [`Error::Invalid`] with the first [`Violation`] found; the errors of [`check_blocks`](crate::check_blocks); [`Error::BufferTooSmall`] if
/// there is not one offset for each block, or the workspace is too short.
///
/// ```
/// use sublet_core::verify::{self, Violation};
/// use sublet_core::{Block, Constraints, Error, Workspace};
/// let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 8), Block::new(2, 4, 8)];
/// let (mut words, mut indices) = ([0; 3], [0; 15]);
/// let mut check = |offsets: &[u64]| {
///     verify::verify(&blocks, offsets, &Constraints::NONE, Workspace::new(&mut words, &mut indices))
///         .map(|plan| plan.is_optimal())
/// };
/// assert_eq!(check(&[0, 8, 0]), Ok(true));
/// assert_eq!(check(&[0, 8, 4]), Err(Error::Invalid(Violation::Overlap { first: 1, second: 2, step: 2 })));
/// ```
pub fn verify<'a>(
    blocks: &'a [Block],
    offsets: &'a [u64],
    constraints: &Constraints,
    mut scratch: Workspace<'_>,
) -> Result<VerifiedPlan<'a>, Error> {
    block::check(blocks, constraints.alignment)?;
    if offsets.len() != blocks.len() {
        return Err(Error::BufferTooSmall { buffer: Buffer::Offsets, needed: blocks.len(), got: offsets.len() });
    }
    scratch.check(workspace(blocks.len()))?;
    let mut peak = 0;
    for (index, (b, &offset)) in (0u32..).zip(blocks.iter().zip(offsets)) {
        peak = peak.max(check_block(index, b, offset, constraints)?);
    }
    let max_load = check_pairs(blocks, offsets, &mut scratch)?;
    Ok(VerifiedPlan { blocks, offsets, peak, max_load })
}

pub(super) fn check_block(block: u32, b: &Block, offset: u64, constraints: &Constraints) -> Result<u64, Error> {
    let refuse = |violation| Err(Error::Invalid(violation));
    let Some(end) = offset.checked_add(b.size) else {
        return refuse(Violation::EndOverflow { block, offset });
    };
    let alignment = b.alignment.max(constraints.alignment);
    if offset & (alignment - 1) != 0 {
        return refuse(Violation::Misaligned { block, offset, alignment });
    }
    if let Some(pin) = b.pin.filter(|&pin| pin != offset) {
        return refuse(Violation::Moved { block, offset, pin });
    }
    if let Some(capacity) = constraints.capacity.filter(|&capacity| end > capacity) {
        return refuse(Violation::OverCapacity { block, end, capacity });
    }
    Ok(end)
}

/// Constraints (3) and (4) of Sekiyama et al. 2018.
fn check_pairs(blocks: &[Block], offsets: &[u64], scratch: &mut Workspace<'_>) -> Result<u64, Error> {
    let n = count(blocks);
    let len = blocks.len();
    let mut by_start = scratch.indices(len);
    let mut by_end = scratch.indices(len);
    let mut by_offset = scratch.indices(len);
    let mut rank = scratch.indices(len);
    let mut aside = scratch.indices(len);
    for (order, key) in [(&mut by_start, Key::Start), (&mut by_end, Key::End), (&mut by_offset, Key::Offset)] {
        sort::identity(order, n);
        sort::by_key(order, n, &mut aside, |i| match key {
            Key::Start => at(blocks, i).start.into(),
            Key::End => at(blocks, i).end.into(),
            Key::Offset => at(offsets, i),
        });
    }
    for r in 0..n {
        rank[by_offset[r]] = r;
    }
    let mut live = Ranks::new(scratch, len);
    let (mut load, mut max_load) = (0u64, 0u64);
    let mut ended = 0;
    for i in 0..n {
        let new = by_start[i];
        let step = at(blocks, new).start;
        while ended < n && at(blocks, by_end[ended]).end <= step {
            live.remove(rank[by_end[ended]]);
            load = load.wrapping_sub(at(blocks, by_end[ended]).size);
            ended += 1;
        }
        let overlaps = |low: u32, high: u32| at(offsets, low).saturating_add(at(blocks, low).size) > at(offsets, high);
        let below = live.below(rank[new]).map(|r| by_offset[r]).filter(|&b| overlaps(b, new));
        let above = live.above(rank[new]).map(|r| by_offset[r]).filter(|&b| overlaps(new, b));
        if let Some(other) = below.or(above) {
            let (first, second) = (new.min(other), new.max(other));
            return Err(Error::Invalid(Violation::Overlap { first, second, step }));
        }
        live.insert(rank[new]);
        load = load.wrapping_add(at(blocks, new).size);
        max_load = max_load.max(load);
    }
    Ok(max_load)
}

#[derive(Clone, Copy)]
enum Key {
    Start,
    End,
    Offset,
}

/// Each level of bit sets marks the words of the one below that are not 0: O(log₆₄ n) an operation.
struct Ranks<'a> {
    words: Table<'a, u64>,
    /// Where each level begins in `words`. 6 levels are enough for ranks of 32 bits.
    levels: [u32; 6],
    height: u8,
}

impl<'a> Ranks<'a> {
    const fn words(n: usize) -> usize {
        let mut level = n.div_ceil(64);
        let mut sum = level;
        while level > 1 {
            level = level.div_ceil(64);
            sum += level;
        }
        sum
    }

    fn new(scratch: &mut Workspace<'a>, n: usize) -> Self {
        let words = scratch.words(Self::words(n));
        let mut levels = [0; 6];
        let (mut begin, mut len, mut height) = (0, count_words(n), 0);
        for level in &mut levels {
            *level = begin;
            height += 1;
            if len <= 1 {
                break;
            }
            begin += len;
            len = len.div_ceil(64);
        }
        Self { words, levels, height }
    }

    fn insert(&mut self, rank: u32) {
        let mut i = rank;
        for &begin in self.levels.iter().take(self.height.into()) {
            self.words[begin + i / 64] |= 1 << (i % 64);
            i /= 64;
        }
    }

    fn remove(&mut self, rank: u32) {
        let mut i = rank;
        for &begin in self.levels.iter().take(self.height.into()) {
            self.words[begin + i / 64] &= !(1 << (i % 64));
            if self.words[begin + i / 64] != 0 {
                return;
            }
            i /= 64;
        }
    }

    fn below(&self, rank: u32) -> Option<u32> {
        self.nearest(rank, |word, bit| {
            let under = word & ((1 << bit) - 1);
            (under != 0).then(|| under.ilog2())
        })
    }

    fn above(&self, rank: u32) -> Option<u32> {
        self.nearest(rank, |word, bit| {
            let over = word & !(u64::MAX >> (63 - bit));
            (over != 0).then(|| over.trailing_zeros())
        })
    }

    fn nearest(&self, rank: u32, pick: impl Fn(u64, u32) -> Option<u32>) -> Option<u32> {
        let mut i = rank;
        for level in 0..self.height {
            let begin = self.level(level);
            if let Some(bit) = pick(self.words[begin + i / 64], i % 64) {
                let mut member = i / 64 * 64 + bit;
                for lower in (0..level).rev() {
                    let word = self.words[self.level(lower) + member];
                    // The words below lie wholly on the wanted side. The member in them nearest to `rank` is the
                    // highest if they lie below `rank`, and the lowest if they lie above.
                    let bit = if member < (rank >> (6 * (u32::from(lower) + 1))) {
                        63 - word.leading_zeros().min(63)
                    } else {
                        word.trailing_zeros().min(63)
                    };
                    member = member * 64 + bit;
                }
                return Some(member);
            }
            i /= 64;
        }
        None
    }

    fn level(&self, level: u8) -> u32 {
        self.levels.get(usize::from(level)).copied().unwrap_or(0)
    }
}

fn count_words(n: usize) -> u32 {
    u32::try_from(n.div_ceil(64)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn run(blocks: &[Block], offsets: &[u64], constraints: &Constraints) -> Result<(u64, u64), Error> {
        let len = workspace(blocks.len());
        let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
        verify(blocks, offsets, constraints, Workspace::new(&mut words, &mut indices)).map(|p| (p.peak(), p.max_load()))
    }

    proptest! {
        #[test]
        fn ranks_are_an_ordered_set(n in 1u32..9000, ops in prop::collection::vec((any::<bool>(), any::<u32>()), 0..200)) {
            let mut words = vec![0; Ranks::words(n as usize)];
            let mut set = Ranks::new(&mut Workspace::new(&mut words, &mut []), n as usize);
            let mut model = BTreeSet::new();
            for (insert, r) in ops {
                let r = r % n;
                if insert { set.insert(r); model.insert(r); } else { set.remove(r); model.remove(&r); }
                for probe in [r, r / 2, n - 1, 0] {
                    prop_assert_eq!(set.below(probe), model.range(..probe).next_back().copied());
                    prop_assert_eq!(set.above(probe), model.range(probe + 1..).next().copied());
                }
            }
        }

        #[test]
        fn agrees_with_the_constraints_pair_by_pair(
            rows in prop::collection::vec((0u32..12, 1u32..6, 1u64..8, 0u64..24, 0u32..3, prop::option::weighted(0.1, 0u64..4)), 0..12),
            capacity in prop::option::of(8u64..40),
        ) {
            let blocks: Vec<Block> = rows.iter().map(|&(start, width, size, offset, log, pin)| Block {
                alignment: 1 << log,
                pin: pin.map(|p| if p == 0 { offset >> log << log } else { p << log }),
                ..Block::new(start, start + width, size)
            }).collect();
            let offsets: Vec<u64> = rows.iter().map(|r| r.3).collect();
            let each = blocks.iter().zip(&offsets).all(|(b, x)| {
                x % b.alignment == 0 && b.pin.is_none_or(|p| p == *x) && capacity.is_none_or(|c| x + b.size <= c)
            });
            let pairs = (0..blocks.len()).all(|i| (0..i).all(|j| {
                !blocks[i].collides(&blocks[j])
                    || offsets[i] + blocks[i].size <= offsets[j]
                    || offsets[j] + blocks[j].size <= offsets[i]
            }));
            let found = run(&blocks, &offsets, &Constraints { alignment: 1, capacity });
            prop_assert_eq!(found.is_ok(), each && pairs, "{:?}", found);
            if let Err(Error::Invalid(Violation::Overlap { first, second, step })) = found {
                let (a, b) = (first as usize, second as usize);
                prop_assert!(first < second && blocks[a].collides(&blocks[b]));
                prop_assert_eq!(step, blocks[a].start.max(blocks[b].start));
                prop_assert!(offsets[a] < offsets[b] + blocks[b].size && offsets[b] < offsets[a] + blocks[a].size);
            }
        }
    }

    #[test]
    fn names_what_is_broken() {
        let b = Block::new(0, 2, 8);
        let capacity = Constraints { alignment: 1, capacity: Some(15) };
        let violation = |r: Result<_, Error>| match r {
            Err(Error::Invalid(v)) => v,
            other => panic!("{other:?}"),
        };
        let over = violation(run(&[b, b], &[0, 8], &capacity));
        assert!(matches!(over, Violation::OverCapacity { end: 16, .. }), "{over:?}");
        assert!(matches!(violation(run(&[b, b], &[0, 7], &Constraints::NONE)), Violation::Overlap { .. }));
        assert!(matches!(violation(run(&[b], &[u64::MAX - 7], &Constraints::NONE)), Violation::EndOverflow { .. }));
        let aligned = Constraints { alignment: 8, capacity: None };
        assert!(matches!(violation(run(&[b], &[4], &aligned)), Violation::Misaligned { .. }));
        let moved = violation(run(&[Block { pin: Some(8), ..b }], &[0], &Constraints::NONE));
        assert!(matches!(moved, Violation::Moved { .. }), "{moved:?}");
    }

    #[test]
    fn every_shorter_workspace_is_refused_with_the_length_that_is_enough() {
        let blocks = vec![Block::new(0, 1, 1); 70];
        let offsets: Vec<u64> = (0..70).collect();
        let len = workspace(70);
        let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
        for w in 0..=len.words {
            for i in [0, 1, len.indices - 1, len.indices] {
                let got =
                    verify(&blocks, &offsets, &Constraints::NONE, Workspace::new(&mut words[..w], &mut indices[..i]));
                match got {
                    Ok(plan) => assert!(w == len.words && i == len.indices && plan.is_optimal()),
                    Err(Error::BufferTooSmall { buffer: Buffer::Words, needed, got }) => {
                        assert_eq!((needed, got), (len.words, w));
                    }
                    Err(Error::BufferTooSmall { buffer: Buffer::Indices, needed, got }) => {
                        assert_eq!((needed, got, w), (len.indices, i, len.words));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_plan_tells_how_good_it_is() {
        let blocks = [Block::new(0, 2, 8), Block::new(1, 3, 4), Block::new(3, 4, 6)];
        for (offsets, peak, ratio) in [([0, 8, 0], 12, 1.0), ([0, 10, 0], 14, 14.0 / 12.0)] {
            let len = workspace(3);
            let (mut words, mut indices) = (vec![7; len.words], vec![7; len.indices]);
            let plan = verify(&blocks, &offsets, &Constraints::NONE, Workspace::new(&mut words, &mut indices)).unwrap();
            assert_eq!((plan.blocks(), plan.offsets()), (&blocks[..], &offsets[..]));
            assert_eq!((plan.peak(), plan.max_load(), plan.is_optimal()), (peak, 12, peak == 12));
            assert!((plan.ratio() - ratio).abs() < 1e-12);
        }
    }

    #[test]
    fn a_plan_may_end_at_the_capacity_and_at_the_last_address() {
        let block = [Block::new(0, 2, 8)];
        assert_eq!(run(&block, &[8], &Constraints { alignment: 1, capacity: Some(16) }), Ok((16, 8)));
        assert_eq!(run(&block, &[u64::MAX - 8], &Constraints::NONE), Ok((u64::MAX, 8)));
    }

    #[test]
    fn a_violation_is_a_sentence() {
        for (violation, sentence) in [
            (Violation::EndOverflow { block: 1, offset: 9 }, "block 1 at offset 9 ends beyond what 64 bits hold"),
            (Violation::OverCapacity { block: 1, end: 9, capacity: 8 }, "block 1 ends at 9, above the capacity 8"),
            (
                Violation::Overlap { first: 1, second: 2, step: 3 },
                "blocks 1 and 2 are both alive at step 3 and share an address",
            ),
            (
                Violation::Misaligned { block: 1, offset: 9, alignment: 8 },
                "block 1 has the offset 9, which is not a multiple of 8",
            ),
            (Violation::Moved { block: 1, offset: 9, pin: 8 }, "block 1 has the offset 9, but is pinned at 8"),
        ] {
            assert_eq!(std::format!("{violation}"), sentence);
        }
    }

    #[test]
    fn there_is_one_offset_for_each_block() {
        let block = [Block::new(0, 2, 8)];
        for offsets in [&[][..], &[0, 8]] {
            let refused = Error::BufferTooSmall { buffer: Buffer::Offsets, needed: 1, got: offsets.len() };
            assert_eq!(run(&block, offsets, &Constraints::NONE), Err(refused));
        }
    }

    #[test]
    fn nothing_is_a_valid_plan_of_ratio_one() {
        let plan = verify(&[], &[], &Constraints::NONE, Workspace::new(&mut [], &mut [])).unwrap();
        assert!(plan.is_optimal());
        assert!((plan.ratio() - 1.0).abs() < f64::EPSILON);
    }
}
