//! Plans that were made before, each known by the size of its first request.
//!
//! Problem: the batch size, or another shape, changes and comes back. The plan of the earlier iterations is then to be
//! followed again, from the first request on, without another iteration that is recorded and planned.
//!
//! Steps: each new plan is kept behind the others, and replaces one with the same first request. Where there is no room,
//! or there are [`MOST`], the oldest plans go.
//!
//! Cost: O(plans) to find one, O(words) to keep one. Memory: as many words as one plan of the most requests takes; plans
//! of fewer share them.

use super::follow::{self, Replay};

/// The plans that are kept.
pub(super) struct Remembered<'a> {
    /// One behind the other, the oldest first: a header, and what [`Replay::save`] has written.
    words: &'a mut [u64],
    used: usize,
    count: usize,
}

/// What a plan needs besides its tables.
#[derive(Clone, Copy)]
pub(super) struct Needs {
    pub(super) peak: u64,
    pub(super) planned: usize,
}

const MOST: usize = 16;

/// The words of the plan with its header, the size of its first request, its peak, and how many blocks it places.
const HEADER: usize = 4;

pub(super) const fn words(events: usize) -> usize {
    HEADER + follow::saved(events, events)
}

impl<'a> Remembered<'a> {
    /// `words` may hold anything.
    pub(super) const fn new(words: &'a mut [u64]) -> Self {
        Self { words, used: 0, count: 0 }
    }

    pub(super) const fn forget(&mut self) {
        (self.used, self.count) = (0, 0);
    }

    pub(super) fn keep(&mut self, replay: &Replay<'_>, needs: Needs) {
        let first = replay.first();
        if let Some(place) = self.place(first) {
            self.remove(place);
        }
        let len = HEADER + replay.saved();
        while self.count > 0 && (self.count == MOST || len > self.words.len() - self.used) {
            self.remove(0);
        }
        let room = self.words.get_mut(self.used..).unwrap_or_default();
        if let Some((header, rest)) = room.split_at_mut_checked(HEADER)
            && let Some(tables) = rest.get_mut(..len - HEADER)
        {
            header.copy_from_slice(&[len as u64, first, needs.peak, needs.planned as u64]);
            replay.save(tables);
            self.used += len;
            self.count += 1;
        }
    }

    /// The plan whose first request has this size: what it needs, and its tables for [`Replay::load`].
    pub(super) fn find(&self, first: u64) -> Option<(Needs, &[u64])> {
        let place = self.place(first)?;
        let [_, _, peak, planned] = self.header(place)?;
        let tables = self.words.get(place + HEADER..place + self.len(place))?;
        Some((Needs { peak, planned: usize::try_from(planned).ok()? }, tables))
    }

    fn place(&self, first: u64) -> Option<usize> {
        let mut place = 0;
        while place < self.used {
            if self.header(place)?[1] == first {
                return Some(place);
            }
            place += self.len(place);
        }
        None
    }

    fn header(&self, place: usize) -> Option<[u64; HEADER]> {
        self.words.get(place..)?.first_chunk().copied()
    }

    fn len(&self, place: usize) -> usize {
        let len = self.header(place).map_or(0, |[len, ..]| len);
        // Never 0, so that every walk ends.
        usize::try_from(len).unwrap_or(usize::MAX).clamp(HEADER, self.words.len().max(HEADER))
    }

    fn remove(&mut self, place: usize) {
        let len = self.len(place);
        let rest = self.words.get_mut(place..self.used).unwrap_or_default();
        rest.rotate_left(len.min(rest.len()));
        self.used = self.used.saturating_sub(len);
        self.count = self.count.saturating_sub(1);
    }
}
