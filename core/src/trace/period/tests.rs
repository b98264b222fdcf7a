//! Tests of the [`Detector`], which finds the period of a stream of mallocs, frees, reads and writes: the number of
//! events after which the stream repeats. Most tests know the period of their stream. Each time that the detector
//! accepts a period, [`Stream::push`] checks that the stream has repeated with it.

use super::*;
use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::VecDeque;
use std::vec::Vec;

struct Stream {
    detector: Detector<'static>,
    longest: usize,
    events: Vec<(Event, u64, u32)>,
    load: Vec<u64>,
    accepted: Option<u32>,
}

impl Stream {
    fn new(longest: usize) -> Self {
        let len = Detector::workspace(longest);
        let memory = Workspace::new(vec![0; len.words].leak(), vec![0; len.indices].leak());
        let detector = Detector::new(longest, memory).unwrap();
        Self { detector, longest, events: Vec::new(), load: vec![0], accepted: None }
    }

    fn push(&mut self, event: Event, bytes: u64, last: usize) -> usize {
        let number = self.events.len() + 1;
        assert_eq!(self.detector.push(event, bytes, last as u32) as usize, number);
        // The detector does not know events that its ring no longer holds.
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

    fn prove(&self, period: usize) {
        let n = self.events.len();
        assert!(period <= self.longest && 2 * period <= n, "{period} of {n}");
        assert_eq!(self.events[n - period..], self.events[n - 2 * period..n - period]);
        assert_eq!(self.load[n], self.load[n - period]);
    }

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

/// Gradient accumulation: A, A, A, B.
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
    let mut indices = vec![0; Detector::workspace(0).indices];
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
    let len = Detector::workspace(4);
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

/// `SUBLET_STREAMS` says how many streams are tried; a million take seconds.
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
        // Parts of the stream so far, again and again, with a change now and then.
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
                let meant = again.and_then(|(_, _, d)| live.iter().position(|&(last, _)| number - last == d as usize));
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
