//! The detector of periods: a period that it reports has truly repeated, and a plain repetition is found.
#![cfg_attr(fuzzing, no_main)]

use std::collections::BTreeSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use sublet_core::trace::Detector;
use sublet_core::trace::Event;
use sublet_fuzz::scratch::Scratch;
use sublet_fuzz::stream::{Step, Stream};

#[derive(Debug)]
struct Input {
    longest: usize,
    stream: Stream,
    /// The blocks of an iteration that comes four times after the stream: for each its size, less 1, and after how many
    /// further mallocs, modulo 4, it is freed.
    plain: Vec<(u16, u8)>,
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { longest: u.int_in_range(0..=80)?, stream: u.arbitrary()?, plain: u.arbitrary()? })
    }
}

/// An event as the detector compares it: its kind, the size of its block in bytes, and how many events ago the block's
/// previous event was; 0 if there is none, or the detector no longer holds it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Seen(Event, u64, u32);

struct Watched<'a> {
    detector: Detector<'a>,
    longest: usize,
    /// The events since the detector was last restarted.
    seen: Vec<Seen>,
    loads: Vec<u64>,
}

impl Watched<'_> {
    /// Pushes an event of a block. `last` is what this call returned for the block's previous event: its position in
    /// the stream, by the detector, and its index in `seen`. Returns these two for the new event.
    fn push(&mut self, event: Event, bytes: u64, last: Option<(u32, usize)>) -> (u32, usize) {
        let position = self.detector.push(event, bytes, last.map_or(0, |(position, _)| position));
        let number = self.seen.len();
        // The detector holds only so many events; earlier ones it does not know.
        let held = number.min(2 * self.longest);
        let distance = last.map_or(0, |(_, before)| number - before);
        self.seen.push(Seen(event, bytes, if distance <= held { distance as u32 } else { 0 }));
        let load = self.loads.last().copied().unwrap_or(0);
        self.loads.push(match event {
            Event::Malloc => load.wrapping_add(bytes),
            Event::Free => load.wrapping_sub(bytes),
            _ => load,
        });
        self.judge();
        (position, number)
    }

    /// Asserts that a period that the detector reports is true: the events of the last period are those of the one
    /// before, and as many bytes were live at the end of both.
    fn judge(&self) {
        let Some(period) = self.detector.period() else {
            assert!(!self.detector.is_settled());
            return;
        };
        let (period, n) = (period as usize, self.seen.len());
        assert!((1..=self.longest).contains(&period) && 2 * period <= n, "{period} of {n}");
        assert_eq!(self.seen[n - period..], self.seen[n - 2 * period..n - period], "{period} of {n}");
        assert_eq!(self.loads[n - 1], self.loads[n - 1 - period], "{period} of {n}");
    }
}

sublet_fuzz::target!(|input: Input| {
    let Input { longest, stream: Stream(steps), plain } = input;
    let mut memory = Scratch::of(Detector::workspace(longest));
    let detector = Detector::new(longest, memory.lend()).expect("there is memory");
    let mut watched = Watched { detector, longest, seen: Vec::new(), loads: Vec::new() };
    let mut live: Vec<(u64, (u32, usize))> = Vec::new();
    for step in steps {
        match step {
            Step::Malloc(bytes) => live.push((bytes, watched.push(Event::Malloc, bytes, None))),
            Step::Free(which) if !live.is_empty() => {
                let (bytes, last) = live.remove(usize::from(which) % live.len());
                watched.push(Event::Free, bytes, Some(last));
            }
            Step::FreeStray(which) if !live.is_empty() => {
                let at = which as usize % live.len();
                let (bytes, last) = live[at];
                let event = if which % 2 == 0 { Event::Read } else { Event::Write };
                live[at].1 = watched.push(event, bytes, Some(last));
            }
            // Stands for a time in which the stream is not watched: after it no earlier block is known.
            Step::Interrupt => {
                watched.detector.restart();
                (watched.seen, watched.loads) = (Vec::new(), Vec::new());
                live.clear();
                assert_eq!(watched.detector.period(), None);
            }
            _ => {}
        }
    }
    // Each size occurs only once, so that there is no period but the true one.
    let mut sizes = BTreeSet::new();
    let plain: Vec<(u16, u8)> = plain.into_iter().filter(|&(size, _)| sizes.insert(size)).collect();
    let period = 2 * plain.len();
    if !(8..=longest).contains(&period) {
        return;
    }
    watched.detector.restart();
    (watched.seen, watched.loads) = (Vec::new(), Vec::new());
    for round in 0..4 {
        let mut waiting: Vec<(usize, u64, (u32, usize))> = Vec::new();
        for (i, &(size, lives)) in plain.iter().enumerate() {
            let bytes = u64::from(size) + 1;
            let last = watched.push(Event::Malloc, bytes, None);
            waiting.push((i + usize::from(lives) % 4, bytes, last));
            for (_, bytes, last) in waiting.extract_if(.., |&mut (until, ..)| until <= i) {
                watched.push(Event::Free, bytes, Some(last));
            }
        }
        for (_, bytes, last) in waiting {
            watched.push(Event::Free, bytes, Some(last));
        }
        if round >= 2 {
            assert_eq!(watched.detector.period(), Some(period as u32), "after round {round}");
        }
    }
});
