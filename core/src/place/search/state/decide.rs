//! The two decisions about a block, that it lies at its least offset or that it lies higher, and how to take them back.
//! The search divides time into stretches, the *sections*, numbered from 0. A section's *record* sums up its unplaced
//! blocks (`State::section`).

use super::{Conflict, END, NONE, Outcome, REST, State, align, within};

impl State<'_> {
    pub(in super::super) fn place(&mut self, b: u32) -> Outcome {
        self.open[b / 64] &= !(1 << (b % 64));
        self.open_count -= 1;
        let (low, high) = (self.low[b], self.high[b]);
        self.looked += u64::from(high - low);
        let [least, end] = self.span[b];
        let mut tight = NONE;
        for s in low..high {
            let rest = self.section[s][REST] - (end - least);
            self.section[s][REST] = rest;
            self.crossing[s] -= u32::from(s + 1 < high);
            if end > self.capacity - rest {
                tight = s;
            }
            self.soil(s);
        }
        if tight != NONE {
            return self.fail_in(tight);
        }
        let (from, to) = (self.first[low], self.first[high]);
        for w in self.begin[low]..to.div_ceil(64) {
            let mut bits = self.alive[low * self.row + w];
            bits = (bits | within(w, from, to)) & self.open[w];
            while bits != 0 {
                let c = w * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let least = self.span[c][0];
                if self.twin[c] == 1 && self.is_open(c - 1) {
                    let v = self.span[c - 1][1];
                    if least < v {
                        self.set_least(c, v, true)?;
                    }
                    continue;
                }
                let v = align(end, self.mask[c]);
                if least < v {
                    let lifted = self.above_pins(c, v) > v;
                    self.set_least(c, v, lifted)?;
                } else if least == v && self.is_lifted(c) && self.pin[c] == u64::MAX {
                    self.save_block(c);
                    self.set_lifted(c, false);
                }
            }
        }
        self.propagate()
    }

    pub(in super::super) fn refuse(&mut self, b: u32) -> Outcome {
        if self.pin[b] != u64::MAX {
            return Err(Conflict);
        }
        let (v, _) = self.tighten(b, self.span[b][0], true);
        self.raise(b, v)?;
        self.propagate()
    }

    pub(in super::super) fn undo(&mut self, b: u32, block_mark: u32, section_mark: u32) {
        self.undo_to(block_mark, section_mark);
        let (low, high, size) = (self.low[b], self.high[b], self.size[b]);
        for s in low..high {
            self.section[s][REST] += size;
            self.crossing[s] += u32::from(s + 1 < high);
        }
        self.open[b / 64] |= 1 << (b % 64);
        self.open_count += 1;
    }

    pub(in super::super) fn undo_to(&mut self, block_mark: u32, section_mark: u32) {
        for w in self.dirty_from..self.sections.div_ceil(64) {
            self.dirty[w] = 0;
        }
        for w in self.moved_from..self.sections.div_ceil(64) {
            self.moved[w] = 0;
        }
        self.dirty_from = self.sections.div_ceil(64);
        self.moved_from = self.dirty_from;
        while self.block_mark > block_mark {
            self.block_mark -= 1;
            let of = self.block_trail_of[self.block_mark];
            let b = of & !(1 << 31);
            let [was, end] = self.span[b];
            let least = self.block_trail[self.block_mark];
            self.span[b] = [least, end - was + least];
            self.set_lifted(b, of >> 31 == 1);
        }
        while self.section_mark > section_mark {
            self.section_mark -= 1;
            let s = self.section_trail_of[self.section_mark];
            let rest = self.section[s][REST];
            self.settled[s] = self.section_trail[self.section_mark][END];
            self.section[s] = self.section_trail[self.section_mark];
            self.section[s][REST] = rest;
        }
    }
}
