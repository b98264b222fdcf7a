//! Finds the iteration that repeats in an endless stream of events.
//!
//! Problem: mallocs, frees, reads and writes come one by one and without an end; which number of events is the period?
//! Two iterations are the same when their events are: kind, size, and the distance to the block's previous event, which
//! says which block is meant without naming it (blocks have other addresses in every iteration).
//!
//! Paper: Zhang et al. 2019, section V, detect "two consecutive subsequences that are repeating" and do not say how.
//!
//! Steps, for each event:
//! 1. It goes into a ring that holds two of the longest periods.
//! 2. A rolling fingerprint of the last eight events (Karp and Rabin 1987) is looked up in a table of where each
//!    fingerprint was last seen. The distance to there is a candidate, if there is none yet.
//! 3. The candidate is verified element by element: forward, one comparison with each event that comes, and backward from
//!    where it was found, a few more with each event. The fingerprint alone proves nothing.
//! 4. It is accepted once a full period equals the one before, and as many bytes are live as one period ago: what
//!    repeats and only grows is not an iteration but a loop within one.
//! 5. The first event that differs ends the candidate, accepted or not.
//!
//! Loops within iterations (gradient accumulation: a, a, a, b, over and over) are accepted as long as nothing else
//! is known. When an accepted period ends, it was such a loop if it comes again: from then on the same events, known by a
//! sum over the period that does not depend on where it begins, must outlast the run that ended, by a whole period,
//! while another period is accepted as ever: it may be the same network with another batch. If as many events pass as
//! the ring holds, the run is forgotten: no period that it could be a part of fits into the ring.
//!
//! Ties: the fingerprint's latest position counts, so that the candidate is the shortest distance.
//!
//! Cost: constant work for each event, in the worst case too; eight words and up to eight indices for each event of the
//! longest period.

use super::Event;
use crate::table::Table;
use crate::{Error, Workspace, WorkspaceLen};

/// How many events a fingerprint spans: long enough that most loops within an operator do not make candidates.
const SPAN: u32 = 8;

/// Comparisons backward for each event. With four, a candidate that is found in the first four fifths of the second
/// period is verified by its end.
const BACKWARD: u32 = 4;

/// The base of the fingerprint, an odd number; and what it is to the power of [`SPAN`].
const BASE: u64 = 0x9E37_79B9_7F4A_7C15;
const BASE_TO_SPAN: u64 = BASE.wrapping_pow(SPAN);

/// Low bits of a fingerprint know little of high ones. Multiplied by this odd number, bits from the middle know of all: a
/// period whose fingerprints share their buckets two by two would never be found.
const SCATTER: u64 = 0x94D0_49BB_1331_11EB;

/// After this position comes 1; 0 is none.
const MOST_POSITION: u32 = (1 << 31) - 1;

/// Watches a stream for its period, in fixed memory.
pub struct Detector<'a> {
    /// Bytes, distance and kind of each event, the live bytes after it, and the sum of the numbers ([`mix`]) up to it.
    ring: Table<'a, [u64; 4]>,
    /// Where each fingerprint was last seen, and a bit for each [`PAGE`] of these that was cleared for its first use.
    seen: Table<'a, u32>,
    cleared: Table<'a, u32>,
    /// Of the newest event: its place in the ring, its position in the stream.
    head: u32,
    position: u32,
    /// Events since the (re)start that the ring holds.
    held: u32,
    longest: u32,
    fingerprint: u64,
    candidate: Option<Candidate>,
    ended: Option<Ended>,
}

/// The accepted period that ended last.
#[derive(Clone, Copy)]
struct Ended {
    period: u32,
    /// The sum over the events of one period.
    sum: u64,
    /// How many events it was seen to repeat.
    run: u64,
    /// Events since then.
    since: u32,
}

#[derive(Clone, Copy)]
struct Candidate {
    period: u32,
    /// Events that equal the one a period before: those since it was found, and those before.
    forward: u64,
    backward: u32,
    /// Whether there is more to compare backward.
    open: bool,
    accepted: bool,
}

/// An event as the ring holds it.
pub(crate) struct Recorded {
    pub(crate) is_malloc: bool,
    pub(crate) bytes: u64,
    /// How many events ago the block's previous event was; 0 if it has none or it is not known.
    pub(crate) distance: u32,
    /// Live bytes after the event.
    pub(crate) load: u64,
}

/// Length of the workspace that a [`Detector`] of periods up to `longest` events keeps.
#[must_use]
pub const fn workspace(longest: usize) -> WorkspaceLen {
    WorkspaceLen { words: 8 * longest, indices: buckets(longest) + pages(longest) }
}

/// A power of two, at least four for each event of the longest period.
const fn buckets(longest: usize) -> usize {
    (4 * longest + 1).next_power_of_two()
}

/// Buckets that are cleared together, for the first of them that is used: so that a detector costs nothing to make, and
/// memory that it never uses is never touched.
const PAGE: u32 = 1 << 10;

/// Indices with a bit for each page.
const fn pages(longest: usize) -> usize {
    buckets(longest).div_ceil(32 << 10)
}

impl<'a> Detector<'a> {
    /// A detector of periods of up to `longest` events. The memory stays lent as long as it lives.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] if the memory is shorter than [`workspace`] says; [`Error::TooManyBlocks`] beyond 2²⁸
    /// events.
    ///
    /// ```
    /// use sublet_core::trace::period::{self, Detector};
    /// use sublet_core::trace::Event;
    /// use sublet_core::{Error, Workspace};
    /// let len = period::workspace(64);
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
        if longest > crate::block::MAX_BLOCKS {
            return Err(Error::TooManyBlocks { needed: longest, most: crate::block::MAX_BLOCKS });
        }
        memory.check(workspace(longest))?;
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

    /// Takes the next event of the stream; its position, to be given as `last` with the next event of the same block.
    /// `last` is 0 with a block's first event. `bytes` is the size of the block. O(1).
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

    /// As [`push`](Self::push), without looking for a period.
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

    /// The accepted period in events, from the event that proves it to the first that breaks it.
    #[must_use]
    pub fn period(&self) -> Option<u32> {
        self.candidate.filter(|c| c.accepted).map(|c| c.period)
    }

    /// Whether the accepted period has repeated so often that it cannot be part of a longer one that fits into memory.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.candidate.is_some_and(|c| c.accepted && c.run() >= u64::from(2 * self.longest))
    }

    /// Forgets the events, for a stream that was not watched for a while. Positions from before are no longer known.
    pub fn restart(&mut self) {
        (self.held, self.fingerprint, self.candidate, self.ended) = (0, 0, None, None);
    }

    /// The position that the next event will have.
    pub(crate) const fn upcoming(&self) -> u32 {
        if self.position >= MOST_POSITION { 1 } else { self.position + 1 }
    }

    /// How many events came after that of this position; none if it is not held.
    #[inline]
    fn age(&self, position: u32) -> Option<u32> {
        let before = if position <= self.position { self.position } else { self.position + MOST_POSITION };
        // 0, and what is above all positions, nobody was told.
        let known = position.wrapping_sub(1) < MOST_POSITION;
        let age = before.wrapping_sub(position);
        (known && age < self.held).then_some(age)
    }

    /// The size of the block of the event at this position; none if that is not held.
    pub(crate) fn bytes_at(&self, position: u32) -> Option<u64> {
        self.age(position).map(|age| self.ring[self.place(age)][0])
    }

    /// Events since the restart that are held.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// The event that came `age` events before the newest.
    pub(crate) fn event(&self, age: u32) -> Recorded {
        let [bytes, word, load, _] = self.ring[self.place(age)];
        let distance = u32::try_from(word >> 8).unwrap_or(0);
        Recorded { is_malloc: word & 0xFF == kind(Event::Malloc), bytes, distance, load }
    }

    fn load(&self, age: u32) -> u64 {
        if age < self.held { self.ring[self.place(age)][2] } else { 0 }
    }

    /// The sum up to the event that came `age` events before the newest, from anywhere: only differences mean something.
    fn sum(&self, age: u32) -> u64 {
        self.ring[self.place(age)][3]
    }

    /// Where in the ring the event is that came `age` events before the newest.
    const fn place(&self, age: u32) -> u32 {
        if age <= self.head { self.head - age } else { self.head + 2 * self.longest - age }
    }

    /// Whether the event of this age equals the one a period before it.
    fn repeats(&self, age: u32, period: u32) -> bool {
        let ([bytes, word, ..], [bytes_before, word_before, ..]) =
            (self.ring[self.place(age)], self.ring[self.place(age + period)]);
        bytes == bytes_before && word == word_before
    }

    /// Step 3: one comparison forward, a few backward.
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
                // The newest event is the one that differs.
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

    /// Step 2: the fingerprint, and the candidate that it may give.
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

    /// Where the fingerprint of a bucket was last seen, 0 if nowhere.
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

    /// Step 4: accepts a candidate that has repeated for a whole period.
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
    /// Events that are known to equal the one a period before.
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

/// A number for what is compared of an event.
const fn mix(bytes: u64, word: u64) -> u64 {
    let x = (bytes ^ word.rotate_left(40)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    x ^ x >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// A detector, and the whole stream beside it.
    struct Stream {
        detector: Detector<'static>,
        longest: usize,
        /// Kind, bytes and distance of each event.
        events: Vec<(Event, u64, u32)>,
        load: Vec<u64>,
        accepted: Option<u32>,
    }

    impl Stream {
        fn new(longest: usize) -> Self {
            let len = workspace(longest);
            let memory = Workspace::new(vec![0; len.words].leak(), vec![0; len.indices].leak());
            let detector = Detector::new(longest, memory).unwrap();
            Self { detector, longest, events: Vec::new(), load: vec![0], accepted: None }
        }

        /// Pushes an event; `last` is the number of the block's event before, counted from 1.
        fn push(&mut self, event: Event, bytes: u64, last: usize) -> usize {
            let number = self.events.len() + 1;
            assert_eq!(self.detector.push(event, bytes, last as u32) as usize, number);
            // What is so long ago that the ring does not hold it is not known.
            let distance = if last == 0 || number - last > 2 * self.longest { 0 } else { number - last };
            self.events.push((event, bytes, distance as u32));
            let before = *self.load.last().unwrap();
            self.load.push(match event {
                Event::Malloc => before + bytes,
                Event::Free => before - bytes,
                _ => before,
            });
            let now = self.detector.period();
            if let Some(period) = now.filter(|_| now != self.accepted) {
                self.prove(period as usize);
            }
            self.accepted = now;
            number
        }

        /// What has just been accepted has repeated in full, and nothing has grown.
        fn prove(&self, period: usize) {
            let n = self.events.len();
            assert!(period <= self.longest && 2 * period <= n, "{period} of {n}");
            assert_eq!(self.events[n - period..], self.events[n - 2 * period..n - period]);
            assert_eq!(self.load[n], self.load[n - period]);
        }

        /// A malloc and a free of each of these sizes, the frees `late` mallocs after theirs.
        fn iteration(&mut self, sizes: &[u64], late: usize) {
            let mut waiting = VecDeque::new();
            for &size in sizes {
                waiting.push_back((self.push(Event::Malloc, size, 0), size));
                if waiting.len() > late {
                    let (last, size) = waiting.pop_front().unwrap();
                    self.push(Event::Free, size, last);
                }
            }
            for (last, size) in waiting {
                self.push(Event::Free, size, last);
            }
        }
    }

    const A: [u64; 9] = [8, 16, 8, 24, 40, 8, 16, 56, 32];
    const B: [u64; 7] = [8, 16, 24, 8, 72, 80, 8];

    #[test]
    fn two_iterations_are_enough_whatever_came_before() {
        let mut stream = Stream::new(64);
        stream.push(Event::Malloc, 1000, 0);
        stream.iteration(&B, 2);
        stream.iteration(&A, 2);
        assert_eq!(stream.detector.period(), None);
        stream.iteration(&A, 2);
        assert_eq!(stream.detector.period(), Some(18));
        for _ in 0..1000 {
            stream.iteration(&A, 2);
            assert_eq!(stream.detector.period(), Some(18));
        }
        assert!(stream.detector.is_settled());
        stream.push(Event::Malloc, 9, 0);
        assert_eq!(stream.detector.period(), None);
    }

    /// With buckets by the low bits of the fingerprint this one shared them two by two.
    #[test]
    fn a_short_iteration_is_found_with_little_memory() {
        let mut stream = Stream::new(12);
        for _ in 0..3 {
            let first = stream.push(Event::Malloc, 9257, 0);
            let second = stream.push(Event::Malloc, 56320, 0);
            let third = stream.push(Event::Malloc, 13496, 0);
            stream.push(Event::Free, 13496, third);
            let fourth = stream.push(Event::Malloc, 65536, 0);
            stream.push(Event::Free, 9257, first);
            stream.push(Event::Free, 65536, fourth);
            let fifth = stream.push(Event::Malloc, 1, 0);
            stream.push(Event::Free, 56320, second);
            stream.push(Event::Free, 1, fifth);
        }
        assert_eq!(stream.detector.period(), Some(10));
    }

    #[test]
    fn accesses_tell_iterations_apart_that_allocate_alike() {
        let mut stream = Stream::new(64);
        for round in 0..40 {
            let block = stream.push(Event::Malloc, 8, 0);
            let read = stream.push(if round % 2 == 0 { Event::Read } else { Event::Write }, 8, block);
            stream.push(Event::Free, 8, read);
        }
        assert_eq!(stream.detector.period(), Some(6));
    }

    /// Gradient accumulation: a, a, a, b.
    #[test]
    fn of_loops_within_loops_the_outer_is_found_for_good() {
        let mut stream = Stream::new(256);
        let outer = (3 * 2 * A.len() + 2 * B.len()) as u32;
        for round in 0..50 {
            for _ in 0..3 {
                stream.iteration(&A, 1);
            }
            stream.iteration(&B, 3);
            if round >= 3 {
                assert_eq!(stream.detector.period(), Some(outer), "round {round}");
            }
        }
    }

    /// An epoch: a validation after every so many iterations; then another network, with a shorter iteration.
    #[test]
    fn a_shorter_iteration_is_found_after_a_longer_one() {
        let mut stream = Stream::new(64);
        for _ in 0..30 {
            stream.iteration(&A, 2);
        }
        assert_eq!(stream.detector.period(), Some(18));
        for _ in 0..30 {
            stream.iteration(&B, 1);
        }
        assert_eq!(stream.detector.period(), Some(14));
    }

    /// The same network with another batch: as many events, other sizes. It need not outlast what came before.
    #[test]
    fn another_batch_is_found_in_two_iterations() {
        let mut stream = Stream::new(64);
        for _ in 0..30 {
            stream.iteration(&A, 2);
        }
        for _ in 0..3 {
            stream.iteration(&A.map(|size| 3 * size), 2);
        }
        assert_eq!(stream.detector.period(), Some(18));
    }

    /// A block that is freed in the iteration after its own.
    #[test]
    fn blocks_that_live_on_are_part_of_what_repeats() {
        let mut stream = Stream::new(64);
        let mut kept = None;
        for _ in 0..4 {
            stream.iteration(&A, 2);
            if let Some(last) = kept {
                stream.push(Event::Free, 48, last);
            }
            kept = Some(stream.push(Event::Malloc, 48, 0));
        }
        assert_eq!(stream.detector.period(), Some(20));
    }

    #[test]
    fn what_only_grows_is_no_iteration() {
        let mut stream = Stream::new(64);
        for _ in 0..200 {
            let block = stream.push(Event::Malloc, 8, 0);
            stream.push(Event::Malloc, 24, 0);
            stream.push(Event::Read, 8, block);
            assert_eq!(stream.detector.period(), None);
        }
    }

    #[test]
    fn no_memory_is_no_period() {
        let mut indices = vec![0; workspace(0).indices];
        let mut detector = Detector::new(0, Workspace::new(&mut [], &mut indices)).unwrap();
        for _ in 0..10 {
            assert_eq!(detector.push(Event::Malloc, 8, 0), detector.position);
            assert_eq!(detector.period(), None);
        }
        let short = Detector::new(4, Workspace::new(&mut [], &mut [])).map(drop);
        assert!(matches!(short, Err(Error::BufferTooSmall { needed: 32, got: 0, .. })), "{short:?}");
    }

    #[test]
    fn a_position_that_nobody_was_told_is_none() {
        let len = workspace(4);
        let memory = Workspace::new(vec![0; len.words].leak(), vec![0; len.indices].leak());
        let mut detector = Detector::new(4, memory).unwrap();
        let first = detector.push(Event::Malloc, 8, 0);
        for last in [first + 1, MOST_POSITION, MOST_POSITION + first, MOST_POSITION + first + 1, u32::MAX] {
            detector.push(Event::Free, 8, last);
            assert_eq!(detector.event(0).distance, 0, "{last}");
        }
    }

    #[test]
    fn positions_begin_again() {
        let mut stream = Stream::new(64);
        stream.detector.position = MOST_POSITION - 30;
        let mut last = 0;
        for _ in 0..10 {
            for size in A {
                last = stream.detector.push(Event::Malloc, size, 0);
                stream.detector.push(Event::Free, size, last);
            }
        }
        assert!(last < 200, "{last}");
        assert_eq!(stream.detector.period(), Some(18));
    }

    /// Streams in which much repeats and little repeats in full. Each period that is accepted is proven against the
    /// whole stream. `SUBLET_STREAMS` is how many; a million take seconds.
    #[test]
    fn no_period_is_accepted_that_has_not_repeated() {
        let streams = std::env::var("SUBLET_STREAMS").map_or(20_000, |n| n.parse().unwrap());
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut below = |n: u64| rng.next_u64() % n;
        let mut accepted = 0u64;
        let mut stream = Stream::new(32);
        for _ in 0..streams {
            let Stream { detector, events, load, accepted: known, .. } = &mut stream;
            detector.restart();
            (detector.position, *known) = (0, None);
            events.clear();
            load.truncate(1);
            let mut live: Vec<(usize, u64)> = Vec::new();
            // Parts of the past again and again, with a change now and then.
            let (kinds, change) = (1 + below(3), 3 + below(40));
            let mut replay = 0;
            for _ in 0..120 {
                let again = (replay > 0 && below(change) > 0).then(|| stream.events.get(replay - 1).copied()).flatten();
                let pick = below(4);
                let choice = again.map_or(pick, |(event, _, _)| u64::from(event != Event::Malloc));
                let number = stream.events.len() + 1;
                if choice == 0 || live.is_empty() {
                    let size = again.map_or(8 * (1 + below(kinds)), |(_, size, _)| size.max(8));
                    live.push((stream.push(Event::Malloc, size, 0), size));
                } else {
                    let meant =
                        again.and_then(|(_, _, d)| live.iter().position(|&(last, _)| number - last == d as usize));
                    let which = meant.unwrap_or(below(live.len() as u64) as usize);
                    let (last, size) = live.remove(which);
                    stream.push(Event::Free, size, last);
                }
                accepted += u64::from(stream.accepted.is_some());
                replay = if again.is_some() { replay + 1 } else { 1 + below(number as u64) as usize };
            }
        }
        assert!(accepted > streams, "the streams repeat too little to prove anything: {accepted}");
    }

    proptest! {
        /// Random iterations, after a random prelude: found at the latest in the fourth.
        #[test]
        fn what_repeats_is_found(
            prelude in prop::collection::vec(1u64..5, 0..20),
            sizes in prop::collection::vec(1u64..40, 8..60),
            late in 0usize..6,
        ) {
            let mut stream = Stream::new(128);
            stream.iteration(&prelude, 1);
            for _ in 0..4 {
                stream.iteration(&sizes, late);
            }
            let period = stream.detector.period().unwrap();
            prop_assert_eq!(2 * sizes.len() as u32 % period, 0);
        }
    }
}
