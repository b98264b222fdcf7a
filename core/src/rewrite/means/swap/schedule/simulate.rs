//! The simulation of a swap schedule in one pass over the operators, which finds the time that the schedule takes. Its
//! functions pass each action to `emit`: operators run, a value is copied out, or a block is freed or allocated again
//! for an idle time. Also tightens the schedule: blocks leave the device earlier and come back later where that costs
//! no time.

use super::{Action, Schedule};
use crate::rewrite::gaps::{NONE, Version};
use crate::table::Records;
use crate::timing::links::Links;

impl Schedule<'_> {
    #[expect(clippy::cast_precision_loss, reason = "times")]
    pub(in crate::rewrite) fn run(&mut self, cutoff: f64, mut emit: impl FnMut(Action)) -> f64 {
        let gaps = self.gaps;
        let operators = gaps.program.operators;
        self.reset();
        let mut links = Links::new();
        let mut clock = 0.0;
        let mut g = 0;
        loop {
            self.clock.set(g, clock);
            self.stops.push(g);
            for version in gaps.released(g).filter(|&version| self.due[version] != NONE) {
                self.waiting_out.push(self.due[version].into(), version);
            }
            let reached = clock;
            self.give(&mut links, &mut clock, g, &mut emit);
            if g == operators {
                while self.waiting_out.len() > 0 {
                    self.hand_out(&mut links, clock, &mut emit);
                }
                clock += (gaps.program.end_time - gaps.program.time[g]) as f64;
                break;
            }
            self.take(g, &mut emit);
            // The copies to the device that this operator needs are handed out first: how long the operator waits for
            // them decides when compute reaches the next boundary.
            self.hand_in(&mut links, clock, f64::NEG_INFINITY, g, &mut emit);
            let begin = (clock + (gaps.program.access_time[g] - gaps.program.time[g]) as f64).max(self.arrival.get(g));
            let next = begin + (gaps.program.time[g + 1] - gaps.program.access_time[g]) as f64;
            while self.waiting_out.len() > 0 && links.out_free() < next {
                self.hand_out(&mut links, clock, &mut emit);
            }
            self.hand_in(&mut links, clock, next, g, &mut emit);
            let mut stalled = clock > reached;
            clock += (gaps.program.access_time[g] - gaps.program.time[g]) as f64;
            self.ready.set(g, clock);
            let arrival = self.arrival.get(g);
            if arrival > clock {
                clock = arrival;
                stalled = true;
            }
            if stalled {
                self.stalls.push(g);
            }
            clock += (gaps.program.time[g + 1] - gaps.program.access_time[g]) as f64;
            if clock - gaps.program.time[g + 1] as f64 > cutoff {
                return f64::INFINITY;
            }
            let stop = self.next_stop(&links, clock, g + 1);
            emit(Action::Operators(g, stop));
            clock += (gaps.program.time[stop] - gaps.program.time[g + 1]) as f64;
            g = stop;
        }
        links.idle_after(clock) - gaps.program.end_time as f64
    }

    fn reset(&mut self) {
        while let Some(version) = self.sent.pop() {
            self.copied.set(version, 0.0);
        }
        while let Some(gap) = self.returned.pop() {
            self.arrival.set(self.gaps.gap(gap).end, 0.0);
        }
        self.stalls.clear();
        self.stops.clear();
        self.waiting_out.clear();
        self.waiting_in.clear();
    }

    #[expect(clippy::cast_precision_loss, reason = "times")]
    fn next_stop(&self, links: &Links, clock: f64, boundary: u32) -> u32 {
        let gaps = self.gaps;
        let mut stop = self.agenda.next(boundary, gaps.program.operators);
        for (waiting, free) in [(self.waiting_out.len(), links.out_free()), (self.waiting_in.len(), links.in_free())] {
            if waiting > 0 {
                // As long as compute does not wait, it reaches each boundary `late` ns after the boundary's recorded
                // time.
                let late = clock - gaps.program.time[boundary] as f64;
                let (mut low, mut high) = (boundary, stop);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if gaps.program.time[middle + 1] as f64 + late > free { high = middle } else { low = middle + 1 }
                }
                stop = low;
            }
        }
        stop
    }

    fn give(&mut self, links: &mut Links, clock: &mut f64, boundary: u32, emit: &mut impl FnMut(Action)) {
        let gaps = self.gaps;
        let mut done = *clock;
        let mut next = self.frees.first.get(boundary);
        while let Some(gap) = next {
            next = self.frees.after.get(gap);
            let g = gaps.gap(gap);
            if g.kind.is_read() && !self.is_clean(g.version) {
                while self.copied.get(g.version) == 0.0 && self.waiting_out.len() > 0 {
                    self.hand_out(links, *clock, emit);
                }
                done = done.max(self.copied.get(g.version));
            }
        }
        if done > *clock {
            self.hand_in(links, *clock, done, boundary, emit);
            *clock = done;
        }
        let mut next = self.frees.first.get(boundary);
        while let Some(gap) = next {
            next = self.frees.after.get(gap);
            emit(Action::Free(gap));
        }
    }

    fn take(&mut self, boundary: u32, emit: &mut impl FnMut(Action)) {
        let mut next = self.allocs.first.get(boundary);
        while let Some(gap) = next {
            next = self.allocs.after.get(gap);
            let g = self.gaps.gap(gap);
            if g.kind.returns() {
                self.waiting_in.push(gap);
            } else {
                emit(Action::In(gap));
            }
        }
    }

    fn hand_out(&mut self, links: &mut Links, clock: f64, emit: &mut impl FnMut(Action)) {
        let Some((_, version)) = self.waiting_out.pop() else { return };
        let Version { block, .. } = self.gaps.version(version);
        let (_, done) = links.copy_out(self.out_ns.get(block), clock);
        self.copied.set(version, done);
        self.sent.push(version);
        emit(Action::Out(version));
    }

    fn hand_in(&mut self, links: &mut Links, clock: f64, until: f64, operator: u32, emit: &mut impl FnMut(Action)) {
        let gaps = self.gaps;
        // Gaps are numbered in the order of their ends.
        while let Some(gap) = self.waiting_in.first() {
            let g = gaps.gap(gap);
            if links.in_free() >= until && g.end > operator {
                break;
            }
            self.waiting_in.pop();
            let (_, done) = links.copy_in(self.in_ns.get(g.block), clock);
            self.arrival.set(g.end, self.arrival.get(g.end).max(done));
            self.returned.push(gap);
            emit(Action::In(gap));
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "times")]
    fn time_all_boundaries(&mut self) {
        let gaps = self.gaps;
        for stops in self.stops.as_slice().windows(2) {
            let &[before, stop] = stops else { continue };
            for g in before + 1..stop {
                self.clock.set(g, self.clock.get(stop) - (gaps.program.time[stop] - gaps.program.time[g]) as f64);
            }
        }
    }

    /// To be called after a [`run`](Self::run) that did not end early; the caller checks the time.
    pub(in crate::rewrite) fn tighten(&mut self) {
        let gaps = self.gaps;
        self.time_all_boundaries();
        let boundary = |time: f64, clock: &Records<'_, f64>| {
            // The last boundary that compute has reached at this time.
            let (mut low, mut high) = (0, gaps.program.operators);
            while low < high {
                let middle = (low + high).div_ceil(2);
                if clock.get(middle) <= time { low = middle } else { high = middle - 1 }
            }
            low
        };
        let mut next_begin = f64::INFINITY;
        for i in (0..self.returned.len()).rev() {
            let Some(gap) = self.returned.at(i) else { continue };
            let g = gaps.gap(gap);
            let due = self.ready.get(g.end).max(self.arrival.get(g.end));
            next_begin = next_begin.min(due) - self.in_ns.get(g.block);
            let [give, take] = self.positions[gap];
            let late = boundary(next_begin, &self.clock).min(g.end);
            if late > take {
                self.set(gap, [give, late]);
            }
        }
        for i in 0..self.used.len() {
            let gap = self.used.get(i);
            let g = gaps.gap(gap);
            let [give, take] = self.positions[gap];
            if self.is_away_at_start(gap, &g) {
                continue;
            }
            let done = if g.kind.is_read() { self.copied.get(g.version) } else { 0.0 };
            let known = boundary(done, &self.clock);
            let known = if self.clock.get(known) < done { known + 1 } else { known };
            self.set(gap, [give.min(known.max(g.begin).max(1)), take]);
        }
    }
}
