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
use crate::{Workspace, WorkspaceLen};

/// The room in the heap of sets that wait to be extended: this many entries for each set that may be remembered. A set
/// gets a new entry each time that a lower key, the max load on the way to it, is found. Only its entry with the least
/// key counts. The search ends when the heap is full.
const WAITING: usize = 4;

/// Length of the workspace of [`search`], the exact search for an order, if it remembers at most `states` sets of
/// operators. The memory of the [`Walk`], which holds the set of operators that have run, is included.
pub(super) const fn workspace(tensors: usize, operators: usize, states: u32) -> WorkspaceLen {
    let n = states as usize;
    walk_workspace(tensors, operators).and(WorkspaceLen {
        words: n * Model::set_words(operators) + 2 * n + WAITING * n,
        indices: 2 * n + 2 * n.next_power_of_two() + WAITING * n + 2 * operators + 1,
    })
}

/// The states of the exact search: the sets of operators that it has reached by running one operator after the other.
struct States<'a> {
    /// How many 64-bit words a set of operators takes, with one bit for each operator.
    width: u32,
    /// The sets of operators that have run, one after the other, in `width` words each: bit k is 1 if operator k has
    /// run.
    sets: Table<'a, u64>,
    /// For each set: the bytes that are alive after its operators have run.
    load: Table<'a, u64>,
    /// For each set: the least max load, in bytes, with which the search has found a way to run its operators; never
    /// less than the lower bound on the max load of all orders.
    key: Table<'a, u64>,
    /// For each set: the index of its parent, the set from which it was made by running more operators; `u32::MAX` for
    /// the first set.
    parent: Table<'a, u32>,
    /// For each set: the first of the operators that were run to make it from its parent. The operators after this one
    /// were run because they were safe to run next: no other choice leads to a lower max load ([`Walk::safe`]).
    by: Table<'a, u32>,
    /// A hash table by which a set of operators is found; an entry is 1 + the index of a set, or 0 if it is empty.
    slots: Table<'a, u32>,
    len: u32,
    capacity: u32,
}

impl States<'_> {
    fn set(&self, state: u32) -> &[u64] {
        self.sets.range(state * self.width, (state + 1) * self.width)
    }

    /// The index of a set's entry in the hash table `slots`; if the set of operators is not there, the index of the
    /// empty entry where it belongs.
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

    /// Remembers the set of operators that have run in `walk`, and its key, the max load on the way to it. The set was
    /// made from the set of index `parent` by running the operator `by`, and perhaps others. Returns the index of the
    /// set if it is new or its key is now lower; `None` if the set was known with the same or a lower key; an error if
    /// there is no room.
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

/// The error that there is no room to remember another set of operators.
struct Full;

/// Searches for an order of operators with a lower max load than the best so far, whose figures are in `found`. Writes
/// such an order to `order` and its max load to `found`; if it finds none, both stay as they are. In any case writes to
/// `found` how many sets it has tried to extend, and the lower bound on the max load that the search has proved.
/// Remembers at most `states` sets of operators. Ends early when `stops` returns true, or when there is no room for
/// another set or for another entry in the heap.
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
    let width = Model::set_words(count);
    let mut known = States {
        width: u32::try_from(width).unwrap_or(0),
        sets: scratch.words(n * width),
        load: scratch.words(n),
        key: scratch.words(n),
        parent: scratch.indices(n),
        by: scratch.indices(n),
        slots: scratch.indices(2 * n.next_power_of_two()),
        len: 0,
        capacity: states,
    };
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
    // The key of a set of operators is the least max load with which they can run, or the lower bound from before the
    // search if that is higher. All sets whose keys are below the max load of the best order so far have been looked
    // at, and none of them has all operators. So no order has a lower max load.
    found.lower_bound = found.max_load;
}

/// Runs operators as long as there is one that is safe to run next ([`Walk::safe`]): with any other choice the max load
/// in the end would be no lower. Writes these operators to `ran` after its first `len` entries; returns how many
/// entries there are then.
fn close(walk: &mut Walk<'_, '_>, ran: &mut Table<'_, u32>, mut len: u32) -> u32 {
    while let Some((operator, step)) = walk.safe() {
        walk.run(operator, step);
        ran[len] = operator;
        len += 1;
    }
    len
}

/// Writes the operators of the set `last` to `order`, in the order in which the search ran them. First goes back from
/// `last` to the first set, from each set to its parent, the set from which it was made. Then, from the first set on,
/// writes for each set the operator that was chosen to extend its parent, and the operators that were safe to run after
/// it ([`close`]).
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
