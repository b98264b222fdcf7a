//! Best-first search for an order of operators with the least max load, over the sets of operators that have run.
//!
//! A set can be reached by many orders. The key of a set is the least max load on the way to it, in bytes, over the
//! orders that were found. The set with the least key is taken next, to be extended, and of equal keys the set that was
//! found last, so that the search goes deep. As in Dijkstra's algorithm, the key of a set is final when the set is
//! taken, and the key of the set of all operators is the least max load. Sets whose key is not below the max load of
//! the incumbent, the best order known before, are not kept. If there is no room for another set, the search ends, and
//! the key of the set that was taken last is a lower bound.

use super::Ordered;
use super::model::{Model, Walk, walk_workspace};
use crate::heap::Heap;
use crate::table::Table;
use crate::workspace::workspace;
use crate::{Workspace, WorkspaceLen};

/// A set gets another entry whenever a lower key is found; only the least counts.
const WAITING: usize = 4;

pub(super) const fn workspace(tensors: usize, operators: usize, states: u32) -> WorkspaceLen {
    let n = states as usize;
    let choices = WorkspaceLen { words: 0, indices: 2 * operators + 1 };
    walk_workspace(tensors, operators)
        .and(States::workspace(n, Model::set_words(operators)))
        .and(Heap::<u32>::workspace(WAITING * n))
        .and(choices)
}

workspace! {
    struct States<'a>(n, words) {
        tables {
            sets: u64[n * words],
            load: u64[n],
            key: u64[n],
            /// `u32::MAX` for the first set.
            parent: u32[n],
            /// The operator chosen after the parent. Safe ones may have followed ([`Walk::safe`]).
            by: u32[n],
            /// A hash table: 1 + the index of a set, 0 if empty.
            slots: u32[2 * n.next_power_of_two()],
        }
        state {
            width: u32 = u32::try_from(words).unwrap_or(0),
            len: u32 = 0,
            capacity: u32 = u32::try_from(n).unwrap_or(0),
        }
    }
}

impl States<'_> {
    fn set(&self, state: u32) -> &[u64] {
        self.sets.range(state * self.width, (state + 1) * self.width)
    }

    fn slot(&self, set: &[u64]) -> u32 {
        let mask = u32::try_from(self.slots.len()).unwrap_or(u32::MAX).saturating_sub(1);
        let mut hash = 0u64;
        for &word in set {
            hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 29;
        }
        let mut slot = u32::try_from(hash >> 32).unwrap_or(0) & mask;
        while self.slots[slot] > 0 && self.set(self.slots[slot] - 1) != set {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn note(&mut self, walk: &Walk<'_, '_>, parent: u32, by: u32) -> Result<Option<u32>, Full> {
        let set = walk.done.first(self.width);
        let slot = self.slot(set);
        let state = match self.slots[slot] {
            0 if self.len == self.capacity => return Err(Full),
            0 => {
                let state = self.len;
                self.len += 1;
                self.slots[slot] = state + 1;
                for (cell, &word) in
                    self.sets.range_mut(state * self.width, (state + 1) * self.width).iter_mut().zip(set)
                {
                    *cell = word;
                }
                state
            }
            known if self.key[known - 1] <= walk.key => return Ok(None),
            known => known - 1,
        };
        self.load[state] = walk.load;
        self.key[state] = walk.key;
        self.parent[state] = parent;
        self.by[state] = by;
        Ok(Some(state))
    }
}

struct Full;

pub(super) fn search(
    walk: &mut Walk<'_, '_>,
    states: u32,
    found: &mut Ordered,
    order: &mut Table<'_, u32>,
    mut scratch: Workspace<'_>,
    stops: &mut dyn FnMut() -> bool,
) {
    let (n, operators) = (usize::try_from(states).unwrap_or(0), walk.model.operators);
    let count = usize::try_from(operators).unwrap_or(0);
    let mut known = States::lend(n, Model::set_words(count), &mut scratch);
    let mut waiting = Heap::lend(WAITING * n, &mut scratch);
    let (mut choices, mut ran) = (scratch.indices(count + 1), scratch.indices(count));
    walk.begin();
    walk.key = found.lower_bound;
    close(walk, &mut ran, 0);
    // Of equal keys the heap takes the least number first. So the number of a set is `u32::MAX` less its index: the set
    // that was found last has the least.
    if let Ok(Some(first)) = known.note(walk, u32::MAX, 0) {
        waiting.push(walk.key, u32::MAX - first);
    }
    while let Some((key, number)) = waiting.pop() {
        let state = u32::MAX - number;
        if key > known.key[state] {
            continue;
        }
        found.lower_bound = key.min(found.max_load);
        if stops() {
            return;
        }
        found.states += 1;
        walk.set(known.sets.range(state * known.width, (state + 1) * known.width), known.load[state], key);
        if walk.ready().is_empty() {
            unroll(walk, &known, state, order, &mut choices);
            found.max_load = key;
            return;
        }
        let ready = u32::try_from(walk.ready().len()).unwrap_or(0);
        for (i, &operator) in (0..).zip(walk.ready()) {
            choices[i] = operator;
        }
        let (load, key) = (walk.load, walk.key);
        for &operator in choices.first(ready) {
            let step = walk.step(operator);
            if step.0 >= found.max_load {
                continue;
            }
            walk.run(operator, step);
            ran[0] = operator;
            let len = close(walk, &mut ran, 1);
            let noted = known.note(walk, state, operator);
            let child = walk.key;
            for i in (0..len).rev() {
                walk.take_back(ran[i], load, key);
            }
            match noted {
                Ok(Some(new)) if usize::try_from(waiting.len()).is_ok_and(|len| len < WAITING * n) => {
                    waiting.push(child, u32::MAX - new);
                }
                Ok(None) => {}
                Ok(Some(_)) | Err(Full) => return,
            }
        }
    }
    // All sets with lower keys were looked at, and none is complete: no order is better.
    found.lower_bound = found.max_load;
}

fn close(walk: &mut Walk<'_, '_>, ran: &mut Table<'_, u32>, mut len: u32) -> u32 {
    while let Some((operator, step)) = walk.safe() {
        walk.run(operator, step);
        ran[len] = operator;
        len += 1;
    }
    len
}

fn unroll(
    walk: &mut Walk<'_, '_>,
    known: &States<'_>,
    last: u32,
    order: &mut Table<'_, u32>,
    path: &mut Table<'_, u32>,
) {
    let (mut state, mut len) = (last, 0);
    while state != u32::MAX && usize::try_from(len).is_ok_and(|len| len < path.len()) {
        path[len] = state;
        len += 1;
        state = known.parent[state];
    }
    walk.begin();
    let mut placed = 0;
    for i in (0..len).rev() {
        let state = path[i];
        if i + 1 < len {
            let operator = known.by[state];
            let step = walk.step(operator);
            walk.run(operator, step);
            order[placed] = operator;
            placed += 1;
        }
        walk.key = known.key[state];
        placed = close(walk, order, placed);
    }
}
