//! What follows from a change of the search's state: unplaced blocks that cannot lie at their least offsets are raised
//! to higher ones, until none has to be raised. The search divides time into stretches, the *sections*, numbered from
//! 0.

use super::{BLOCKED, Conflict, END, ENDER, NEXT, NONE, Outcome, REST, SECOND, State, UNBOUNDED};
use crate::table::{Table, at};

impl State<'_> {
    #[inline]
    pub(super) fn tighten(&self, b: u32, v: u64, lifted: bool) -> (u64, bool) {
        let (mut v, mut lifted) = (v, lifted);
        let mut support = u64::MAX;
        for s in self.low[b]..self.high[b] {
            let section = &self.section[s];
            let bound = if section[ENDER] == u64::from(b) { section[SECOND] } else { section[END] };
            support = support.min(bound);
            if v < section[NEXT] && v > self.capacity - section[REST] {
                // `b` cannot be the lowest open block of this section.
                if section[NEXT] > self.capacity {
                    return (section[NEXT], true);
                }
                v = section[NEXT];
                lifted = true;
            }
        }
        if lifted {
            v = v.max(support);
        }
        (v, lifted)
    }

    pub(super) fn propagate(&mut self) -> Outcome {
        let words = self.sections.div_ceil(64);
        loop {
            while let Some(s) = pop(&mut self.dirty, &mut self.dirty_from, words) {
                if self.refresh(s).is_err() {
                    return self.fail_in(s);
                }
            }
            self.raised = false;
            while let Some(s) = pop(&mut self.moved, &mut self.moved_from, words) {
                if self.lift(s).is_err() {
                    return self.fail_in(s);
                }
            }
            if !self.raised {
                return Ok(());
            }
        }
    }

    fn refresh(&mut self, s: u32) -> Outcome {
        let old = self.section[s];
        let Some(room) = self.capacity.checked_sub(old[REST]) else { return Err(Conflict) };
        let (mut floor, mut end, mut second, mut ender, mut choices, mut next, mut blocked) =
            (u64::MAX, u64::MAX, u64::MAX, NONE, 0, u64::MAX, u64::MAX);
        // The innermost loop of the search: without branches, but for the way from one block to the next.
        let spans = self.span.first(self.n);
        let mut looked = 1;
        self.for_alive(s, |b| {
            let [least, e] = at(spans, b);
            looked += 1;
            choices = if least < floor { 1 } else { choices + u64::from(least == floor) };
            floor = floor.min(least);
            let is_next = least <= room;
            next = next.min(if is_next { e } else { u64::MAX });
            blocked = blocked.min(if is_next { u64::MAX } else { least });
            second = second.min(e.max(end));
            ender = if e < end { b } else { ender };
            end = end.min(e);
        });
        self.looked += looked;
        if old[REST] > 0 && floor > room {
            return Err(Conflict);
        }
        let new = [old[REST], floor, end, second, u64::from(ender), choices, next, blocked];
        if new.iter().zip(old).fold(0, |differ, (new, old)| differ | (new ^ old)) == 0 {
            return Ok(());
        }
        if self.section_mark >= self.trail_len {
            self.full |= self.capacity != UNBOUNDED;
        } else if self.capacity != UNBOUNDED {
            self.section_trail[self.section_mark] = old;
            self.section_trail_of[self.section_mark] = s;
            self.section_mark += 1;
        }
        self.section[s] = new;
        if ender != NONE {
            self.moved[s / 64] |= 1 << (s % 64);
            self.moved_from = self.moved_from.min(s / 64);
        }
        Ok(())
    }

    fn lift(&mut self, s: u32) -> Outcome {
        let section = self.section[s];
        let (end, second, ender, next) = (section[END], section[SECOND], section[ENDER], section[NEXT]);
        let settled = self.settled[s];
        self.settled[s] = end;
        let room = self.capacity - section[REST];
        let base = s * self.row;
        for w in self.words(s) {
            // Blocked blocks go up to `next`. If none of them has a lower least offset, only lifted blocks can move.
            let movable = if section[BLOCKED] < next { !0 } else { self.lifted[w] };
            let mut bits = self.alive[base + w] & self.open[w] & movable;
            while bits != 0 {
                let b = w * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let least = self.span[b][0];
                let bound = if ender == u64::from(b) { second } else { end };
                if least > room && least < next || least < bound && settled <= least && self.is_lifted(b) {
                    self.looked += u64::from(self.high[b] - self.low[b]);
                    let (v, _) = self.tighten(b, least, self.is_lifted(b));
                    if v > least {
                        self.raise(b, v)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// All words before `from` are 0.
#[inline]
fn pop(set: &mut Table<'_, u64>, from: &mut u32, words: u32) -> Option<u32> {
    while *from < words {
        let word = set[*from];
        if word != 0 {
            set[*from] = word & (word - 1);
            return Some(*from * 64 + word.trailing_zeros());
        }
        *from += 1;
    }
    None
}
