//! What a pass of the beam search (one attempt to place all blocks) does where a block fits nowhere: it goes back some
//! blocks, and tries again with more partial plans. A *partial plan* is a list of the living blocks with their offsets.
//!
//! Many partial plans are needed only at the few steps where memory is tight. So the search keeps few at first, and
//! more only where it fails. To go back to an earlier block, it puts the partial plans from before that block together
//! again, from the offsets in the table `Beam::back`. *Sections* are stretches of time, numbered from 0. The beam
//! search makes its passes in *rounds*, which are numbered: the higher the number of the round, the more partial plans
//! are kept.

use super::{Beam, WAYS, WIDTH_BITS, hashed, parts};
use crate::table::at;

/// Where a block fits nowhere, an attempt to place all blocks goes back. At its first try, it places this number of
/// blocks again, the one that fitted nowhere included; at each further try, twice as many. After [`CYCLE`] tries, it
/// begins again with this number.
const BACK: u32 = 8;
/// Where a block fits nowhere, an attempt to place all blocks goes back twice as far at each further try. After this
/// number of tries, it goes back only as far as at the first ([`BACK`]).
const CYCLE: u32 = 4;
/// Where a block fits nowhere, an attempt to place all blocks goes back and tries again. It counts as stuck at that
/// block until it has come more than this number of blocks past it.
const NEAR: u32 = 8;
/// How often, at most, an attempt to place all blocks goes back from one place where a block fits nowhere, and tries
/// again. Then the attempt is given up.
pub(super) const MOST_TRIES: u32 = 12;
/// With each new try where a block fits nowhere, twice as many partial plans are kept. The number is doubled at most
/// this many times.
pub(super) const MOST_DOUBLINGS: u32 = 4;

/// Bounds of the random numbers that are added to the cost of each possible place for a block, in 256ths of a unit of
/// cost. Round 0 of the beam search takes the first entry. Later rounds, and new tries where a block fits nowhere, take
/// the other entries in turn, over and over.
const NOISE: [u32; 9] = [0, 40, 130, 220, 310, 400, 490, 580, 670];

/// The block at which the present attempt to place all blocks is stuck, and how often it has failed there: at this
/// block, before it, or at most [`NEAR`] blocks after it.
#[derive(Default)]
pub(super) struct Hard {
    /// The index in `Beam::order` of the block that fitted nowhere first.
    step: u32,
    /// How many times the attempt to place all blocks has failed since then, because this block, one before it or one
    /// at most [`NEAR`] after it fitted nowhere; 0 if that has not happened, or if the attempt has come past this place
    /// since.
    pub tries: u32,
}

impl Hard {
    /// Notes that no partial plan has room for the block at index `step` of `Beam::order`. Returns the index in
    /// `Beam::order` of the earlier block from which the attempt places blocks again; `None` if it has gone back
    /// [`MOST_TRIES`] times from this place already.
    pub(super) fn failed(&mut self, step: u32) -> Option<u32> {
        if self.tries == 0 || step > self.step + NEAR {
            (self.step, self.tries) = (step, 0);
        }
        self.tries += 1;
        (self.tries <= MOST_TRIES).then(|| (step + 1).saturating_sub(BACK << ((self.tries - 1) % CYCLE)))
    }

    /// Whether the attempt to place all blocks is more than [`NEAR`] blocks past the place from which it went back. If
    /// so, forgets that place. `step` is the index in `Beam::order` of the block that is placed next. Returns false if
    /// the attempt has not gone back, or if the place is forgotten already.
    pub(super) fn is_behind(&mut self, step: u32) -> bool {
        let behind = self.tries > 0 && step > self.step + NEAR;
        if behind {
            self.tries = 0;
        }
        behind
    }
}

impl Beam<'_> {
    /// Sets how many partial plans are kept from now on: `width`, or as many as there is memory for if that is less.
    pub(super) fn widen(&mut self, width: u32) {
        let room = u32::try_from(self.now.cell.len()).unwrap_or(u32::MAX).checked_div(self.row).unwrap_or(1);
        self.width = width.min(self.most_width()).min(room);
        self.most_ways = u32::try_from(WAYS).unwrap_or(1) * self.width;
    }

    /// Goes back to `step`, the index in `order` of the block that is to be placed again. Restores the direction of
    /// time in which this block is placed, and the partial plans that there were before it was placed. Returns the
    /// section of time in which the block at `step - 1` begins, seen in this direction of time; `u32::MAX` if `step` is
    /// 0. Cost: O(`step`), and for each partial plan O(blocks placed since the earliest of its blocks), and O(k²) at
    /// worst to sort its k blocks by offset.
    pub(super) fn go_back(&mut self, step: u32) -> u32 {
        self.timeline.forward = self.forward == (step < self.turn);
        let Some(last) = step.checked_sub(1) else {
            (self.now.count, self.now.len[0], self.now.value[0]) = (1, 0, [0; 2]);
            return u32::MAX;
        };
        let section = self.timeline.begin(self.order[last]);
        let mut alive = 0;
        for s in 0..step {
            alive += u32::from(self.timeline.end(self.order[s]) > section);
        }
        self.now.count = self.kept[last];
        for i in 0..self.now.count {
            self.put_together(i, step, alive, section);
        }
        // Computes the costs.
        self.drop_ended(section);
        section
    }

    /// Restores partial plan `i` as it was before the block at index `step` of `order` was placed. It gets the blocks
    /// at lower indices of `order` that are alive in section `section` of time; `alive` is their number. The plan's
    /// cost is set to 0; the caller computes it.
    fn put_together(&mut self, i: u32, step: u32, alive: u32, section: u32) {
        let row = i * self.row;
        let (mut step, mut partial, mut len, mut hash) = (step, i, 0, 0u64);
        while step > 0 && len < alive {
            step -= 1;
            self.looked += 1;
            let b = self.order[step];
            let back = self.back[step * self.most_width() + partial];
            partial = parts(back & ((1 << WIDTH_BITS) - 1)).1;
            let (offset, end) = (back >> WIDTH_BITS, self.timeline.end(b));
            if end <= section {
                continue;
            }
            let mut c = len;
            while c > 0 && self.now.cell[row + c - 1][0] > offset {
                self.now.cell[row + c] = self.now.cell[row + c - 1];
                c -= 1;
            }
            let last = u64::from(end) << 32 | u64::from(b);
            self.now.cell[row + c] = [offset, offset + at(self.blocks, b).size, last];
            hash = hash.wrapping_add(hashed(self.kind[b], offset));
            len += 1;
        }
        (self.now.len[i], self.now.value[i]) = (len, [0, hash]);
    }
}

/// The entry of [`NOISE`] that is used in a round of the beam search, whose number is `round`, from 0. While blocks are
/// placed again because one fitted nowhere, `round` is the number of that try instead, from 1. A random number below
/// this entry is added to the cost of each possible place for a block.
pub(super) const fn noise(round: u32) -> u32 {
    NOISE[if round == 0 { 0 } else { 1 + (round as usize - 1) % (NOISE.len() - 1) }]
}
