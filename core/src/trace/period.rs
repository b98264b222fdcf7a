//! Finds the iteration that repeats in an endless stream of events, where nobody marks iterations.
//!
//! Problem: mallocs, frees, reads and writes come one by one and without an end; how many events are one iteration, the
//! period? Two iterations are the same if their events are equal in kind, in size and in distance: how many events ago
//! the previous event of the same block was. The distance says which block is meant without naming it: blocks have
//! other addresses in every iteration.
//!
//! Paper: Zhang et al. 2019, section V, detect "two consecutive subsequences that are repeating" and do not say how.
//!
//! Steps, for each event:
//! 1. The event goes into a ring buffer, which holds as many events as two periods of the greatest length that is
//!    looked for.
//! 2. If there is a candidate for the period, it is verified element by element: forward, one comparison with each
//!    event that comes, and backward from where it was found, a few more with each event. The first new event that
//!    differs from the event one period before ends the candidate, accepted or not.
//! 3. A rolling fingerprint of the last eight events (Karp and Rabin 1987) is looked up in a table of where each
//!    fingerprint was last seen. The distance to the event where it was seen becomes the candidate, if there is none.
//!    The fingerprint alone proves nothing.
//! 4. The candidate is accepted once a full period equals the one before, and as many bytes are live as one period ago.
//!    Events that repeat while the live bytes grow are not an iteration but a loop within one.
//!
//! An iteration may contain a loop: gradient accumulation is a, a, a, b, over and over. Such a loop is accepted as a
//! period as long as nothing else is known. So an accepted period that ends may have been only a loop. From then on, a
//! candidate with the events of the ended period, once or several times over, is accepted only if it repeats for longer
//! than the ended period did, by at least its own length. A sum of hashes over the period tells that the events are the
//! same, wherever the period begins. A candidate with other events is accepted as before: it may be the same network
//! with another batch size. An ended period is forgotten after as many events as the ring holds, since no longer period
//! that contains it would then fit into the ring.
//!
//! Ties: of several events with the same fingerprint the latest counts, so that the candidate is the shortest distance.
//!
//! Cost: constant work for each event, in the worst case too; eight `u64`s and up to about eight `u32`s of memory for
//! each event of the longest period.

use super::Event;
use crate::table::Table;
use crate::{Error, Workspace, WorkspaceLen};

/// In events: most loops within one operator are too short to fill it.
const SPAN: u32 = 8;

/// With four, a candidate is mostly verified by the end of its second period.
const BACKWARD: u32 = 4;

const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
const BASE_TO_SPAN: u64 = BASE.wrapping_pow(SPAN);

/// The middle bits of the product depend on all events; by the low bits, buckets could be shared.
const SCATTER: u64 = 0x94D0_49BB_1331_11EB;

/// The next position is 1 again. 0 is no position.
const MOST_POSITION: u32 = (1 << 31) - 1;

/// Watches a stream of mallocs, frees, reads and writes for its period: the number of events after which it repeats.
/// Its memory does not grow.
pub struct Detector<'a> {
    /// Bytes; kind and distance; live bytes after it, or 0; the sum of [`mix`] up to it.
    ring: Table<'a, [u64; 4]>,
    /// By bucket: the latest position, from 1, after which the hash fell into it; 0 if none.
    seen: Table<'a, u32>,
    /// A bit for each [`PAGE`] of buckets, which is cleared when it is first used.
    cleared: Table<'a, u32>,
    head: u32,
    position: u32,
    held: u32,
    longest: u32,
    fingerprint: u64,
    candidate: Option<Candidate>,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
struct Ended {
    period: u32,
    /// The sum of [`mix`] over one period, the same wherever it begins.
    sum: u64,
    run: u64,
    since: u32,
}

#[derive(Clone, Copy)]
struct Candidate {
    period: u32,
    forward: u64,
    backward: u32,
    open: bool,
    accepted: bool,
}

pub(crate) struct Recorded {
    pub(crate) is_malloc: bool,
    pub(crate) bytes: u64,
    /// To the block's previous event; 0 if there is none or it is not known.
    pub(crate) distance: u32,
    pub(crate) load: u64,
}

const fn buckets(longest: usize) -> usize {
    (4 * longest + 1).next_power_of_two()
}

const PAGE: u32 = 1 << 10;

const fn pages(longest: usize) -> usize {
    buckets(longest).div_ceil(32 << 10)
}

impl<'a> Detector<'a> {
    /// Length of the workspace that a detector of periods up to `longest` events keeps.
    #[must_use]
    pub const fn workspace(longest: usize) -> WorkspaceLen {
        WorkspaceLen { words: 8 * longest, indices: buckets(longest) + pages(longest) }
    }

    /// A detector of periods of up to `longest` events. The memory stays lent as long as the detector lives.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if the memory is shorter than [`workspace`](Self::workspace) says; [`Error::TooManyBlocks`] if
    /// `longest` is 2²⁸ or more.
    ///
    /// ```
    /// use sublet_core::trace::Detector;
    /// use sublet_core::trace::Event;
    /// use sublet_core::{Error, Workspace};
    /// let len = Detector::workspace(64);
    /// let (mut words, mut indices) = (vec![0; len.words], vec![0; len.indices]);
    /// let mut detector = Detector::new(64, Workspace::new(&mut words, &mut indices))?;
    /// let mut iteration = |detector: &mut Detector<'_>| {
    ///     for size in [64, 32, 96, 128, 32, 256] {
    ///         let malloc = detector.push(Event::Malloc, size, 0);
    ///         detector.push(Event::Free, size, malloc);
    ///     }
    ///     detector.period()
    /// };
    /// assert_eq!(iteration(&mut detector), None);
    /// assert_eq!(iteration(&mut detector), Some(12));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn new(longest: usize, mut memory: Workspace<'a>) -> Result<Self, Error> {
        if longest > crate::MAX_BLOCKS {
            return Err(Error::TooManyBlocks { needed: longest, most: crate::MAX_BLOCKS });
        }
        memory.check(Self::workspace(longest))?;
        let mut ring = memory.stale_word_records(2 * longest);
        if longest > 0 {
            ring[0] = [0; 4];
        }
        Ok(Self {
            ring,
            seen: memory.stale_indices(buckets(longest)),
            cleared: memory.indices(pages(longest)),
            head: 0,
            position: 0,
            held: 0,
            longest: u32::try_from(longest).unwrap_or(0),
            fingerprint: 0,
            candidate: None,
            ended: None,
        })
    }

    /// Takes the next event of the stream, on a block of `bytes` bytes. `last` is what this function returned for the
    /// event before it on the same block, 0 for a block's first event. Returns the event's position in the stream:
    /// positions count from 1, and begin at 1 again after the highest. O(1).
    pub fn push(&mut self, event: Event, bytes: u64, last: u32) -> u32 {
        let load = match event {
            Event::Malloc => self.load(0).wrapping_add(bytes),
            Event::Free => self.load(0).wrapping_sub(bytes),
            _ => self.load(0),
        };
        let position = self.record(event, bytes, last);
        if self.longest > 0 {
            self.ring[self.head][2] = load;
            self.verify();
            self.look_up();
            self.accept();
        }
        position
    }

    #[inline]
    pub(crate) fn record(&mut self, event: Event, bytes: u64, last: u32) -> u32 {
        let distance = self.age(last).map_or(0, |age| age + 1);
        self.position = self.upcoming();
        let capacity = 2 * self.longest;
        if capacity > 0 {
            let before = self.ring[self.head][3];
            self.head = if self.head + 1 >= capacity { 0 } else { self.head + 1 };
            self.held = (self.held + 1).min(capacity);
            let word = u64::from(distance) << 8 | kind(event);
            self.ring[self.head] = [bytes, word, 0, before.wrapping_add(mix(bytes, word))];
        }
        self.position
    }

    /// The accepted period: the number of events after which the stream repeats. `None` until an event proves a period,
    /// and again once an event differs from the event one period before.
    #[must_use]
    pub fn period(&self) -> Option<u32> {
        self.candidate.filter(|c| c.accepted).map(|c| c.period)
    }

    /// Whether the stream has repeated with the accepted period (see [`period`](Self::period)) for so long that it
    /// cannot be a loop within a longer period that the detector could still find.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.candidate.is_some_and(|c| c.accepted && c.run() >= u64::from(2 * self.longest))
    }

    /// Forgets all events. To be called if the stream was not watched for a while. Positions that [`push`](Self::push)
    /// returned before are then unknown to the detector.
    pub fn restart(&mut self) {
        (self.held, self.fingerprint, self.candidate, self.ended) = (0, 0, None, None);
    }

    pub(crate) const fn upcoming(&self) -> u32 {
        Self::later(self.position, 1)
    }

    /// The position that is `events` events after another.
    pub(crate) const fn later(position: u32, events: u32) -> u32 {
        let later = position + events;
        if later > MOST_POSITION { later - MOST_POSITION } else { later }
    }

    #[inline]
    fn age(&self, position: u32) -> Option<u32> {
        let before = if position <= self.position { self.position } else { self.position + MOST_POSITION };
        // 0 is no position, and no event ever has one above the highest.
        let known = position.wrapping_sub(1) < MOST_POSITION;
        let age = before.wrapping_sub(position);
        (known && age < self.held).then_some(age)
    }

    pub(crate) fn bytes_at(&self, position: u32) -> Option<u64> {
        self.age(position).map(|age| self.ring[self.place(age)][0])
    }

    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    pub(crate) fn event(&self, age: u32) -> Recorded {
        let [bytes, word, load, _] = self.ring[self.place(age)];
        let distance = u32::try_from(word >> 8).unwrap_or(0);
        Recorded { is_malloc: word & 0xFF == kind(Event::Malloc), bytes, distance, load }
    }

    fn load(&self, age: u32) -> u64 {
        if age < self.held { self.ring[self.place(age)][2] } else { 0 }
    }

    /// Only the difference of two sums means something.
    fn sum(&self, age: u32) -> u64 {
        self.ring[self.place(age)][3]
    }

    const fn place(&self, age: u32) -> u32 {
        if age <= self.head { self.head - age } else { self.head + 2 * self.longest - age }
    }

    fn repeats(&self, age: u32, period: u32) -> bool {
        let ([bytes, word, ..], [bytes_before, word_before, ..]) =
            (self.ring[self.place(age)], self.ring[self.place(age + period)]);
        bytes == bytes_before && word == word_before
    }

    fn verify(&mut self) {
        if let Some(ended) = &mut self.ended {
            ended.since += 1;
            if ended.since > 2 * self.longest {
                self.ended = None;
            }
        }
        let Some(mut c) = self.candidate else { return };
        if !self.repeats(0, c.period) {
            if c.accepted {
                // The newest event breaks the period, so that the period ended with the event before.
                let sum = self.sum(1).wrapping_sub(self.sum(1 + c.period));
                self.ended = Some(Ended { period: c.period, sum, run: c.run(), since: 0 });
            }
            self.candidate = None;
            return;
        }
        c.forward += 1;
        for _ in 0..BACKWARD {
            let age = c.run().saturating_add(u64::from(c.period));
            if !c.open || c.run() >= u64::from(c.period) || age >= u64::from(self.held) {
                c.open = false;
                break;
            }
            c.open = u32::try_from(c.run()).is_ok_and(|age| self.repeats(age, c.period));
            c.backward += u32::from(c.open);
        }
        self.candidate = Some(c);
    }

    fn look_up(&mut self) {
        self.fingerprint = self.fingerprint.wrapping_mul(BASE).wrapping_add(self.sum(0).wrapping_sub(self.sum(1)));
        if self.held > SPAN {
            let oldest = self.sum(SPAN).wrapping_sub(self.sum(SPAN + 1));
            self.fingerprint = self.fingerprint.wrapping_sub(oldest.wrapping_mul(BASE_TO_SPAN));
        }
        if self.held < SPAN {
            return;
        }
        let buckets = u64::try_from(self.seen.len()).unwrap_or(1);
        let mixed = (self.fingerprint ^ self.fingerprint >> 32).wrapping_mul(SCATTER) >> 32;
        let bucket = u32::try_from(mixed & (buckets - 1)).unwrap_or(0);
        let seen = self.seen_at(bucket);
        let distance = self.age(seen);
        self.seen[bucket] = self.position;
        if self.candidate.is_none()
            && let Some(period) = distance.filter(|&d| (1..=self.longest).contains(&d))
            && self.repeats(0, period)
        {
            self.candidate = Some(Candidate { period, forward: 1, backward: 0, open: true, accepted: false });
        }
    }

    fn seen_at(&mut self, bucket: u32) -> u32 {
        let (page, first) = (bucket / PAGE, bucket / PAGE * PAGE);
        let bit = 1 << (page % 32);
        if self.cleared[page / 32] & bit == 0 {
            self.cleared[page / 32] |= bit;
            let end = u32::try_from(self.seen.len()).unwrap_or(u32::MAX).min(first + PAGE);
            self.seen.range_mut(first, end).fill(0);
        }
        self.seen[bucket]
    }

    /// Repeats of the period that ended last must outlast it by the candidate's length.
    fn accept(&mut self) {
        let Some(mut c) = self.candidate else { return };
        let (period, run) = (u64::from(c.period), c.run());
        if c.accepted || run < period {
            return;
        }
        let sum = self.sum(0).wrapping_sub(self.sum(c.period));
        let outlasts = self.ended.is_none_or(|ended| {
            let times = c.period.checked_div(ended.period).unwrap_or(0);
            let is_it_again = times * ended.period == c.period && sum == ended.sum.wrapping_mul(times.into());
            !is_it_again || run >= ended.run.saturating_add(period)
        });
        c.accepted = outlasts && self.load(0) == self.load(c.period);
        self.candidate = Some(c);
    }
}

impl Candidate {
    fn run(&self) -> u64 {
        self.forward.saturating_add(self.backward.into())
    }
}

const fn kind(event: Event) -> u64 {
    match event {
        Event::Malloc => 0,
        Event::Free => 1,
        Event::Read => 2,
        Event::Write => 3,
        Event::SwapOut => 4,
        Event::SwapIn => 5,
    }
}

const fn mix(bytes: u64, word: u64) -> u64 {
    let x = (bytes ^ word.rotate_left(40)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x ^ x >> 29
}

#[cfg(test)]
mod tests;
