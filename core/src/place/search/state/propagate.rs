//! What follows from a change of the search's state: unplaced blocks that cannot lie at their least offsets are raised
//! to higher ones, until none has to be raised. The search divides time into stretches, the *sections*, numbered from
//! 0.

use super::{BLOCKED, Conflict, END, ENDER, NEXT, NONE, Outcome, REST, SECOND, SMALL, State, UNBOUNDED};
use crate::place::technique::Technique;
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
        self.raises = 0;
        loop {
            while let Some(s) = pop(&mut self.dirty, &mut self.dirty_from, words) {
                if self.refresh(s).is_err() {
                    return self.fail_in(s);
                }
            }
            if self.raises > self.n && self.techniques.has(Technique::Climbs) {
                self.raises = 0;
                self.settle()?;
                continue;
            }
            let before = self.raises;
            while let Some(s) = pop(&mut self.moved, &mut self.moved_from, words) {
                if self.lift(s).is_err() {
                    return self.fail_in(s);
                }
            }
            if self.raises == before {
                return Ok(());
            }
        }
    }

    /// Dijkstra's algorithm: of all stacks of open blocks below a block, the one with the lowest top.
    fn settle(&mut self) -> Outcome {
        const UNKNOWN: u64 = u64::MAX;
        self.heap.clear();
        for b in 0..self.n {
            if self.is_open(b) {
                self.settling[b] = UNKNOWN;
                if !self.is_lifted(b) {
                    self.settling[b] = self.span[b][0];
                    self.heap.push(self.span[b][1], b);
                }
            }
        }
        self.reached.fill(0);
        while let Some((end, c)) = self.heap.pop() {
            self.looked += u64::from(self.high[c] - self.low[c]);
            for s in self.low[c]..self.high[c] {
                if self.reached[s / 64] >> (s % 64) & 1 == 1 {
                    continue;
                }
                self.reached[s / 64] |= 1 << (s % 64);
                for w in self.words(s) {
                    let mut bits = self.alive[s * self.row + w] & self.open[w] & self.lifted[w];
                    while bits != 0 {
                        let b = w * 64 + bits.trailing_zeros();
                        bits &= bits - 1;
                        self.looked += 1;
                        if self.settling[b] == UNKNOWN {
                            let [least, e] = self.span[b];
                            let v = self.above_pins(b, least.max(end));
                            if v > self.capacity {
                                return Err(Conflict);
                            }
                            self.settling[b] = v;
                            self.heap.push(e - least + v, b);
                        }
                    }
                }
            }
        }
        for b in 0..self.n {
            if self.is_open(b) && self.is_lifted(b) && self.settling[b] > self.span[b][0] {
                self.raise(b, self.settling[b])?;
            }
        }
        self.raises = 0;
        Ok(())
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
        let small = self.n as usize <= SMALL && self.capacity != UNBOUNDED;
        if small && self.techniques.has(Technique::Edges) { self.find_edges(s) } else { Ok(()) }
    }

    /// Edge finding (Carlier and Pinson 1989), with blocks as jobs and addresses as time.
    fn find_edges(&mut self, s: u32) -> Outcome {
        // Least offset and size, the highest offset first.
        let words = self.words(s);
        let (jobs, job_of) = (&mut self.jobs, &mut self.job_of);
        let mut n = 0;
        for w in words {
            let mut bits = self.alive[s * self.row + w] & self.open[w];
            while bits != 0 {
                let b = w * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let [begin, end] = self.span[b];
                let mut i = n;
                while i > 0 && jobs[i - 1][0] < begin {
                    (jobs[i], job_of[i]) = (jobs[i - 1], job_of[i - 1]);
                    i -= 1;
                }
                (jobs[i], job_of[i]) = ([begin, end - begin], b);
                n += 1;
            }
        }
        let mut bytes = 0;
        for i in 0..n {
            let [begin, size] = self.jobs[i];
            bytes += size;
            let Some(room) = self.capacity.checked_sub(begin.saturating_add(bytes)) else { return Err(Conflict) };
            let (mut before, mut end) = (0, 0);
            for k in i + 1..n {
                let [earlier, size] = self.jobs[k];
                if size > room && earlier < begin {
                    before += size;
                    end = end.max(earlier.saturating_add(before));
                }
            }
            for k in 0..=i {
                if self.jobs[k][0] < end {
                    self.raise(self.job_of[k], end)?;
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
