//! Beam search for an order of operators with a low max load, over the sets of operators that have run. Of the sets of
//! each number of operators it keeps the best few: those with the least max load on the way to them, and of equal ones
//! those with the fewest bytes alive after their operators.
//!
//! A set is extended by each operator that is ready. But if one of these is safe to run next, the set is extended by
//! this one alone. An operator is safe if no other choice leads to a lower max load. A set that is reached twice is
//! kept once, with the lower max load. Sets are compared by a hash of 64 bits: if two different sets have the same
//! hash, one of them is lost, and the order that is found is still valid.
//!
//! Cost: O(operators · width · (operators that are ready + edges)).

use super::Ordered;
use super::model::{Model, Walk, walk_workspace};
use crate::hash;
use crate::table::Table;
use crate::workspace::workspace;
use crate::{Workspace, WorkspaceLen, sort};

const GATHERED: u32 = 8;

pub(super) const fn workspace(tensors: usize, operators: usize, width: u32) -> WorkspaceLen {
    let n = width as usize;
    let level = Level::workspace(n, Model::set_words(operators));
    let path = WorkspaceLen { words: 0, indices: 2 * operators * n + 4 * n.next_power_of_two() };
    walk_workspace(tensors, operators).and(level.times(2)).and(Candidates::workspace(n * GATHERED as usize)).and(path)
}

workspace! {
    struct Level<'a>(n, words) {
        tables {
            sets: u64[n * words],
            load: u64[n],
            key: u64[n],
            hash: u64[n],
        }
    }
}

workspace! {
    struct Candidates<'a>(n) {
        tables {
            load: u64[n],
            key: u64[n],
            hash: u64[n],
            from: [u32; 2][n],
            order: u32[n],
            aside: u32[n],
        }
        state {
            len: u32 = 0,
        }
    }
}

impl Candidates<'_> {
    fn capacity(&self) -> u32 {
        u32::try_from(self.order.len()).unwrap_or(u32::MAX)
    }

    fn keep(&mut self, width: u32, seen: &mut Table<'_, u32>) {
        for i in 0..self.len {
            self.order[i] = i;
        }
        sort::by_key(&mut self.order, self.len, &mut self.aside, |i| self.load[i]);
        sort::by_key(&mut self.order, self.len, &mut self.aside, |i| self.key[i]);
        seen.fill(0);
        let mask = u32::try_from(seen.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let mut kept = 0;
        for i in 0..self.len {
            let candidate = self.order[i];
            let hash = self.hash[candidate];
            let mut slot = u32::try_from(hash >> 32).unwrap_or(0) & mask;
            while seen[slot] > 0 && self.hash[seen[slot] - 1] != hash {
                slot = (slot + 1) & mask;
            }
            if seen[slot] == 0 && kept < width {
                seen[slot] = candidate + 1;
                self.aside[kept] = candidate;
                kept += 1;
            }
        }
        // In ascending order of their indices, so that none is overwritten before it has moved.
        sort::in_place(&mut self.aside, kept);
        for i in 0..kept {
            let candidate = self.aside[i];
            (self.load[i], self.key[i]) = (self.load[candidate], self.key[candidate]);
            (self.hash[i], self.from[i]) = (self.hash[candidate], self.from[candidate]);
        }
        self.len = kept;
    }
}

pub(super) fn search(
    walk: &mut Walk<'_, '_>,
    width: u32,
    found: &mut Ordered,
    order: &mut Table<'_, u32>,
    mut scratch: Workspace<'_>,
    stops: &mut dyn FnMut() -> bool,
) {
    let (n, operators) = (usize::try_from(width).unwrap_or(0), walk.model.walked());
    let count = usize::try_from(walk.model.operators).unwrap_or(0);
    let words = u32::try_from(Model::set_words(count)).unwrap_or(0);
    let (mut here, mut there) =
        (Level::lend(n, Model::set_words(count), &mut scratch), Level::lend(n, Model::set_words(count), &mut scratch));
    let mut candidates = Candidates::lend(n * GATHERED as usize, &mut scratch);
    // For each level and set: the index of the set that it extends, in the level before, and the operator that it adds.
    let mut path = scratch.index_records::<2>(n * count);
    let mut seen = scratch.indices(4 * n.next_power_of_two());
    walk.begin();
    for word in 0..words {
        here.sets[word] = walk.done[word];
    }
    (here.load[0], here.key[0]) = (walk.load, found.lower_bound);
    let mut len = 1;
    for level in 0..operators {
        if stops() {
            return;
        }
        candidates.len = 0;
        for place in 0..len {
            walk.set(here.sets.range(place * words, (place + 1) * words), here.load[place], here.key[place]);
            let safe = walk.safe();
            let safe = safe.as_ref().map(|(operator, _)| core::slice::from_ref(operator));
            for &operator in safe.unwrap_or(walk.ready()) {
                let (peak, load) = walk.step(operator);
                if peak >= found.max_load {
                    continue;
                }
                if candidates.len == candidates.capacity() {
                    candidates.keep(width, &mut seen);
                }
                let i = candidates.len;
                candidates.len += 1;
                (candidates.load[i], candidates.key[i]) = (load, walk.key.max(peak));
                candidates.hash[i] = here.hash[place].wrapping_add(mark(operator));
                candidates.from[i] = [place, operator];
            }
        }
        candidates.keep(width, &mut seen);
        len = candidates.len;
        for i in 0..len {
            let [from, operator] = candidates.from[i];
            for word in 0..words {
                there.sets[i * words + word] = here.sets[from * words + word];
            }
            there.sets[i * words + operator / 64] |= 1 << (operator % 64);
            (there.load[i], there.key[i]) = (candidates.load[i], candidates.key[i]);
            there.hash[i] = candidates.hash[i];
            path[level * width + i] = [from, operator];
        }
        core::mem::swap(&mut here, &mut there);
    }
    if len == 0 {
        return;
    }
    // All operators have run, so only one set is left.
    found.max_load = here.key[0];
    let mut place = 0;
    for level in (0..operators).rev() {
        let [from, operator] = path[level * width + place];
        order[level] = operator;
        place = from;
    }
}

fn mark(operator: u32) -> u64 {
    hash::mixed(u64::from(operator).wrapping_add(1).wrapping_mul(hash::ODD))
}
