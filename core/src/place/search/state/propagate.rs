//! What follows from a change of the search's state: unplaced blocks that cannot lie at their least offsets are raised
//! to higher ones, until none has to be raised. The search divides time into stretches, the *sections*, numbered from
//! 0.

use super::super::technique::Technique;
use super::{BLOCKED, Conflict, END, ENDER, NEXT, NONE, Outcome, REST, SECOND, SMALL, State, UNBOUNDED};
use crate::table::{Table, at};

impl State<'_> {
    /// The least offset, `v` or higher, that block `b` can have, and whether `b` can lie there only on an *open* block,
    /// one that is not placed yet. `lifted` says whether `b` can lie at `v` only on an open block. An offset above the
    /// capacity means that `b` has no place. Two rules raise `b`:
    /// - If `b` leaves the other open blocks of a section of time too little room up to the capacity, it cannot be the
    ///   lowest of them. So it goes up to the lowest end of a block that leaves enough.
    /// - If `b` can lie only on an open block, it goes up to the lowest end that an open block alive with it can have.
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

    /// Raises the least offsets of blocks that are not placed yet, until no more can be raised. In each section of time
    /// that has changed, a block goes up to the lowest offset that the other blocks there still allow. `Err` if that
    /// shows that there is no placement within the capacity.
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

    /// Does at once what [`State::lift`] would do in many small steps: raises the least offsets of unplaced blocks that
    /// can lie only on other unplaced ones. Below such a block is a stack of unplaced blocks, the lowest of which can
    /// lie on a placed one. Of all possible stacks, the one with the lowest top gives the least offset of the block;
    /// Dijkstra's algorithm finds this stack. `Err` if a block has no place within the capacity any more.
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

    /// Raises the least offsets of unplaced blocks that are alive in section `s` of time, where a block cannot lie at
    /// its least offset for one of these reasons:
    /// - If the block lay there, the other unplaced blocks of the section would not fit in the room above.
    /// - The block has to lie on another unplaced one, and all other unplaced ones of the section end above the offset.
    ///
    /// In small instances, also raises the blocks that [`State::find_edges`] finds. `Err` if there is no placement
    /// within the capacity.
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

    /// Edge finding (Carlier and Pinson 1989) for the unplaced blocks of section `s` of time. The blocks are like jobs
    /// on a machine that does one at a time, with addresses in place of time: each takes its bytes at or above its
    /// least offset, and all must end within the capacity. A set of jobs can use the bytes from the lowest of its least
    /// offsets up to the capacity. If the set needs more, the state fails (`Err`). If these bytes have no room for a
    /// further job, whose least offset is lower, that job lies below all of the set, and the least offsets of the set
    /// rise to the lowest end that the job can have. If there are several such jobs, they lie below the set one above
    /// the other, and the least offsets rise to the lowest end that their stack can have.
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

/// Takes the lowest member out of a bit set of `words` words; `None` if the set is empty. All words before number
/// `from` are 0; `from` is raised to the word that had the member.
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
