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

const BACK: u32 = 8;
const CYCLE: u32 = 4;
const NEAR: u32 = 8;
pub(super) const MOST_TRIES: u32 = 12;
pub(super) const MOST_DOUBLINGS: u32 = 4;

/// In 256ths of a unit of cost. Round 0 takes the first entry; rounds and tries after it take the others in turn.
const NOISE: [u32; 9] = [0, 40, 130, 220, 310, 400, 490, 580, 670];

#[derive(Default)]
pub(super) struct Hard {
    step: u32,
    /// How many times the attempt to place all blocks has failed since then, because this block, one before it or one
    /// at most [`NEAR`] after it fitted nowhere; 0 if that has not happened, or if the attempt has come past this place
    /// since.
    pub tries: u32,
}

impl Hard {
    pub(super) fn failed(&mut self, step: u32) -> Option<u32> {
        if self.tries == 0 || step > self.step + NEAR {
            (self.step, self.tries) = (step, 0);
        }
        self.tries += 1;
        (self.tries <= MOST_TRIES).then(|| (step + 1).saturating_sub(BACK << ((self.tries - 1) % CYCLE)))
    }

    pub(super) fn is_behind(&mut self, step: u32) -> bool {
        let behind = self.tries > 0 && step > self.step + NEAR;
        if behind {
            self.tries = 0;
        }
        behind
    }
}

impl Beam<'_> {
    pub(super) fn widen(&mut self, width: u32) {
        let room = u32::try_from(self.now.cell.len()).unwrap_or(u32::MAX).checked_div(self.row).unwrap_or(1);
        self.width = width.min(self.most_width()).min(room);
        self.most_ways = u32::try_from(WAYS).unwrap_or(1) * self.width;
    }

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

pub(super) const fn noise(round: u32) -> u32 {
    NOISE[if round == 0 { 0 } else { 1 + (round as usize - 1) % (NOISE.len() - 1) }]
}
