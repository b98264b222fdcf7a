//! Finds the block with the least eviction score, which is evicted next.
//!
//! The score of a block is `weight · cost / (bytes · distance^b)`, where b is a parameter. The cost is the time of the
//! block's closure, the operators that have to run to recompute its value. The distance is the time until the block's
//! next use. 1 ns is added to the cost and 1 µs to the distance, so that neither is 0. To compute the score of all
//! blocks at each eviction would take too long. But scores mostly grow: the next use comes nearer, and each eviction
//! makes other closures larger. So an old score is a lower bound on the present one, and the queue is lazy (Minoux
//! 1978): the block with the least bound is scored anew, and evicted if its score is still the least.
//!
//! A block whose score may have fallen is *stale*, and is scored before the next eviction. This is so in five cases:
//! - a running operator needed it, and does not any more;
//! - its next use was a virtual use (a read in an earlier planning walk, made to recompute another value), and is over;
//! - a value of its closure was recomputed. Such blocks are found by a search that begins at the recomputed value: it
//!   goes to the values made from it, and on from those of them that are missing. It ends after [`REACH`] values;
//! - another output of its operator is missing now, so that the operator has to be recomputed anyway;
//! - its value could not be recomputed when it was scored last, or only by losing another value that is still read.
//!
//! Not every fall of a score is found: a lower bound may be too high until the block is accessed again. On training
//! traces fewer than one eviction in five hundred differs from a search over all blocks.
//!
//! Of blocks with equal scores the one with the least number is evicted. Cost: for each eviction and each stale block a
//! few closures of at most [`CLOSURE`] operators, and O(log blocks).

use super::{CLOSURE, Visit, Walk};
use crate::rewrite::ids::BlockId;
use crate::rewrite::values::{Made, NONE, VersionId};

const REACH: u32 = 32;

/// A sum ends at this many times the least score; a smaller factor would make the same sums again.
const SLACK: f64 = 4.0;

impl Walk<'_> {
    pub(in crate::rewrite) fn least_worth(&mut self) -> Option<BlockId> {
        while let Some(block) = self.stale.last() {
            self.stale.remove(block);
            if self.may_go(block) {
                let least = self.queue.first().map_or(f64::INFINITY, |(key, _)| f64::from_bits(key));
                let score = self.score(block, least);
                self.queue.set(block, score.to_bits());
            }
        }
        while let Some((_, block)) = self.queue.first() {
            self.queue.remove(block);
            // When the operators that need this block have run, the block becomes stale, and so comes back into the
            // queue.
            if self.pinned[block] > 0 {
                continue;
            }
            let (next, other) = self.queue.first().unwrap_or((f64::INFINITY.to_bits(), block));
            let score = self.score(block, f64::from_bits(next));
            if score.is_infinite() {
                self.stale.insert(block);
            } else if (score.to_bits(), block) <= (next, other) {
                return Some(block);
            } else {
                self.queue.set(block, score.to_bits());
            }
        }
        None
    }

    fn may_go(&self, block: BlockId) -> bool {
        self.holds.get(block).is_some() && self.pinned[block] == 0 && self.may_evict(block)
    }

    pub(in crate::rewrite) fn may_evict(&self, block: BlockId) -> bool {
        let values = self.values;
        let may = values.can_recompute(block) && self.price.get(block) <= self.most_price && !self.spared.get(block);
        may && values.program.size[block] >= self.least
    }

    /// From `least` on any number up to the score; infinite if it cannot be recomputed.
    #[expect(clippy::cast_precision_loss, reason = "a score")]
    fn score(&mut self, block: BlockId, least: f64) -> f64 {
        self.work += 1;
        let Some(version) = self.holds.get(block) else { return f64::INFINITY };
        let at = self.wanted(version);
        let size = self.values.program.size[block] as f64;
        let now = self.values.program.access_time[self.now.min(self.values.program.operators - 1)];
        let distance = self.values.program.access_time[at.min(self.values.program.operators - 1)].saturating_sub(now)
            as f64
            + 1000.0;
        let far = match self.preference.distance {
            0 => 1.0,
            1 => libm::sqrt(distance),
            2 => distance,
            3 => distance * libm::sqrt(distance),
            _ => distance * distance,
        };
        let scale = self.weight.get(block) / (size * far);
        self.cost(version, at, least / scale).map_or(f64::INFINITY, |cost| cost * scale)
    }

    /// In ns, plus 1; exact up to `bound`. None if it costs another value that is still read.
    #[expect(clippy::cast_precision_loss, reason = "a score")]
    fn cost(&mut self, version: VersionId, at: u32, bound: f64) -> Option<f64> {
        let values = self.values;
        let evicted = values.block(version);
        self.count += 1;
        let mut sum = 1.0;
        self.closure.clear();
        self.closure.push(Visit { version, owed: false });
        let mut looked = 0;
        while let Some(next) = self.closure.pop().filter(|_| looked < CLOSURE && sum <= SLACK * bound) {
            let g = values.maker(next.version)?;
            if self.counted[g] == self.count {
                continue;
            }
            self.counted[g] = self.count;
            looked += 1;
            let owed = next.owed || self.is_owed(g);
            sum += values.program.duration(g) as f64 * if owed { self.preference.owed } else { 1.0 };
            let (first, end) = values.range(g);
            self.work += u64::from(end - first);
            if values.is_gone(g, at) {
                return None;
            }
            for r in values.managed(g) {
                if self.is_missing(&r) {
                    // The block holds a later value that is still read, which must not be lost.
                    let later = self.holds.get(r.block).filter(|&holds| holds > r.version && r.block != evicted);
                    if later.is_some_and(|later| self.next_use(later) != NONE) {
                        return None;
                    }
                    let owed = owed || self.next_use(r.version) != NONE;
                    self.closure.push(Visit { version: r.version, owed });
                }
            }
        }
        Some(sum)
    }

    pub(in crate::rewrite) fn wanted(&mut self, version: VersionId) -> u32 {
        let values = self.values;
        let mut at = self.next_use(version);
        let (first, end) = values.uses(version);
        for i in first..end {
            let g = values.user(i);
            if g >= self.now {
                break;
            }
            self.work += 1;
            for Made { block, version } in values.made(g) {
                if !self.holds.is(block, Some(version)) {
                    at = at.min(self.next_use(version));
                }
            }
        }
        at
    }

    pub(in crate::rewrite) fn is_wanted(&mut self, version: VersionId) -> bool {
        self.next_use(version) != NONE || self.wanted(version) != NONE
    }

    pub(in crate::rewrite) fn is_last_source(&mut self, version: VersionId) -> bool {
        self.is_needed_by_missing(version) && self.cost(version, self.now, f64::INFINITY).is_none()
    }

    /// Also true if there are too many to look at.
    fn is_needed_by_missing(&mut self, version: VersionId) -> bool {
        let values = self.values;
        self.count += 1;
        self.closure.clear();
        self.closure.push(Visit { version, owed: false });
        while let Some(Visit { version, .. }) = self.closure.pop() {
            let (first, end) = values.uses(version);
            for g in (first..end).map(|i| values.user(i)) {
                if g >= self.now {
                    break;
                }
                if core::mem::replace(&mut self.counted[g], self.count) == self.count {
                    continue;
                }
                self.work += 1;
                for Made { block, version } in values.made(g) {
                    if self.holds.is(block, Some(version)) {
                        continue;
                    }
                    if self.next_use(version) != NONE || !self.closure.push(Visit { version, owed: false }) {
                        return true;
                    }
                }
            }
        }
        false
    }

    fn is_owed(&mut self, g: u32) -> bool {
        let values = self.values;
        let mut made = values.made(g);
        made.any(|made| !self.holds.is(made.block, Some(made.version)) && self.next_use(made.version) != NONE)
    }

    pub(in crate::rewrite) fn closures_shrink(&mut self, version: VersionId) {
        let values = self.values;
        self.closure.clear();
        self.closure.push(Visit { version, owed: false });
        let mut looked = 0;
        while let Some(Visit { version, .. }) = self.closure.pop().filter(|_| looked < REACH) {
            looked += 1;
            let (first, end) = values.uses(version);
            for i in first..end {
                let g = values.user(i);
                if g >= self.now {
                    break;
                }
                self.work += 1;
                for Made { block, version } in values.made(g) {
                    if self.holds.is(block, Some(version)) {
                        self.stale.insert(block);
                    } else {
                        self.closure.push(Visit { version, owed: false });
                    }
                }
            }
        }
    }

    pub(in crate::rewrite) fn siblings_are_owed(&mut self, version: VersionId) {
        let values = self.values;
        let Some(maker) = values.maker(version) else { return };
        for made in values.made(maker).filter(|made| made.version != version) {
            self.stale.insert(made.block);
        }
    }
}
