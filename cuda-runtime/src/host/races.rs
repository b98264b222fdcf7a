//! Finds pieces of work that use the same bytes without an order.
//!
//! Two pieces of work race if they are on different streams, share a byte that one of them writes, and no chain of
//! stream orders, events and waits of the host leads from one to the other. Each stream, and the host, has a vector
//! clock (Mattern 1989): how many pieces of each stream's work are sure to be done before the next piece begins there.
//! A recorded event keeps the clock of its stream; a stream that waits for the event raises its own clock to the
//! event's. All this is known when work is given, in whatever order the work then runs.
//!
//! If one stream uses the same range several times in the same way, only the last use is kept: work that comes after
//! the last use comes after the earlier ones too. Cost: O(known ranges) for each range of a piece of work.

use std::collections::HashMap;
use std::ops::Range;

/// By stream: the last piece, from 1, that is sure to be done; 0 for none.
pub(super) type Clock = Vec<u64>;

/// Two pieces of work on different streams that use the same bytes. At least one of them writes, and nothing says which
/// runs first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// The numbers of the streams of the two pieces of work that race; streams are numbered from 0 in the order in
    /// which they were made. The stream of the piece that was given first comes first.
    pub streams: [usize; 2],
    /// The numbers of the two pieces of work that race, each counted from 1 in its own stream; in the order of
    /// `streams`.
    pub work: [u64; 2],
    /// The addresses of the bytes that both pieces of work use, and that they race for.
    pub bytes: Range<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Races {
    /// When each stream's next piece begins.
    clocks: Vec<Clock>,
    host: Clock,
    /// By start, end, stream and whether it is written: the number of the last piece.
    used: HashMap<(u64, u64, usize, bool), u64>,
    found: Vec<Race>,
}

fn at(clock: &Clock, stream: usize) -> u64 {
    clock.get(stream).copied().unwrap_or(0)
}

fn join(clock: &mut Clock, other: &Clock) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    for (known, &more) in clock.iter_mut().zip(other) {
        *known = (*known).max(more);
    }
}

impl Races {
    pub(super) fn found(&self) -> &[Race] {
        &self.found
    }

    fn clock(&mut self, stream: usize) -> &mut Clock {
        while self.clocks.len() <= stream {
            self.clocks.push(Clock::new());
        }
        let (host, clock) = (&self.host, &mut self.clocks[stream]);
        join(clock, host);
        if clock.len() <= stream {
            clock.resize(stream + 1, 0);
        }
        clock
    }

    pub(super) fn work(&mut self, stream: usize, ranges: &[(Range<u64>, bool)]) {
        let clock = self.clock(stream);
        clock[stream] += 1;
        let (number, clock) = (clock[stream], clock.clone());
        for (range, write) in ranges {
            for (&(start, end, other, written), &earlier) in &self.used {
                let shares = start < range.end && range.start < end;
                if shares && other != stream && (*write || written) && earlier > at(&clock, other) {
                    let bytes = start.max(range.start)..end.min(range.end);
                    self.found.push(Race { streams: [other, stream], work: [earlier, number], bytes });
                }
            }
        }
        for (range, write) in ranges {
            self.used.insert((range.start, range.end, stream, *write), number);
        }
    }

    pub(super) fn record(&mut self, stream: usize) -> Clock {
        self.clock(stream).clone()
    }

    pub(super) fn wait(&mut self, stream: usize, event: &Clock) {
        join(self.clock(stream), event);
    }

    pub(super) fn synchronize(&mut self, event: &Clock) {
        join(&mut self.host, event);
    }

    pub(super) fn idle(&mut self) {
        let done = self.clocks.iter().enumerate().map(|(stream, clock)| at(clock, stream)).collect();
        join(&mut self.host, &done);
    }

    /// New work at the same addresses does not race with the old.
    pub(super) fn forget(&mut self, range: &Range<u64>) {
        self.used.retain(|&(start, end, ..), _| end <= range.start || range.end <= start);
    }
}
