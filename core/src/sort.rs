//! Stable sorting of indices by an integer key; sorting and selection of values in place.
//!
//! Indices are sorted by a radix sort from the least significant digit on, eight bits a pass. A digit that is the same
//! in all keys takes no pass, so small keys take few passes; indices that are in order already take none. O(n) per pass, n indices of scratch, 1 KiB of stack. The
//! sorts of the standard library are not used because they can panic (on an inconsistent order), and firmware must not
//! panic.

use core::ops::ControlFlow;

use crate::table::Table;

pub(crate) fn by_key(order: &mut Table<'_, u32>, n: u32, scratch: &mut Table<'_, u32>, key: impl Fn(u32) -> u64) {
    if n < 2 {
        return;
    }
    let first = key(order[0]);
    let (mut varying, mut before, mut is_sorted) = (0, first, true);
    for &i in order.first(n) {
        let next = key(i);
        varying |= next ^ first;
        is_sorted &= before <= next;
        before = next;
    }
    if is_sorted {
        return;
    }
    let mut in_scratch = false;
    for shift in (0..u64::BITS).step_by(8) {
        if (varying >> shift).to_le_bytes()[0] == 0 {
            continue;
        }
        let digit = |i: u32| (key(i) >> shift).to_le_bytes()[0];
        if in_scratch {
            pass(scratch, order, n, digit);
        } else {
            pass(order, scratch, n, digit);
        }
        in_scratch = !in_scratch;
    }
    if in_scratch {
        for i in 0..n {
            order[i] = scratch[i];
        }
    }
}

fn pass(from: &Table<'_, u32>, to: &mut Table<'_, u32>, n: u32, digit: impl Fn(u32) -> u8) {
    let mut ends = [0u32; 256];
    let mut ends = Table::new(&mut ends);
    for i in 0..n {
        ends[u32::from(digit(from[i]))] += 1;
    }
    let mut sum = 0;
    for d in 0..256 {
        let begin = sum;
        sum += ends[d];
        ends[d] = begin;
    }
    for i in 0..n {
        let d = u32::from(digit(from[i]));
        to[ends[d]] = from[i];
        ends[d] += 1;
    }
}

const FEW: usize = 16;
/// If more parts would have to wait, one is sorted by insertion. 2³² elements in random order need fewer than 60.
const WAITING: u32 = 64;

pub(crate) fn in_place<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, n: u32) {
    in_place_by_key(cells, n, |cell| cell);
}

pub(crate) fn in_place_by_key<T: Copy + Default, K: Copy + Ord>(
    cells: &mut Table<'_, T>,
    n: u32,
    key: impl Fn(T) -> K + Copy,
) {
    ascending(cells, n, key, |_| ControlFlow::Continue(()));
}

/// Sorts only as far as `visit` goes on: quicksort, least part first (Hoare 1961; Paredes and Navarro 2006).
pub(crate) fn ascending<T: Copy + Default, K: Copy + Ord>(
    cells: &mut Table<'_, T>,
    n: u32,
    key: impl Fn(T) -> K + Copy,
    mut visit: impl FnMut(T) -> ControlFlow<()>,
) {
    let cells = cells.range_mut(0, n);
    // The ends of the parts that wait; the next part begins where the part at hand ends.
    let mut waiting = [0; WAITING as usize];
    let mut waiting = Table::<usize>::new(&mut waiting);
    let mut count = 0u32;
    let (mut low, mut high) = (0, cells.len());
    loop {
        let part = cells.get_mut(low..high).unwrap_or_default();
        let sorted = match part.len() {
            len if len <= FEW || count == WAITING => {
                insert(part, key);
                part
            }
            _ => match partition(part, key) {
                Parts::Least(equal) => part.get_mut(..equal).unwrap_or_default(),
                Parts::Less(less) => {
                    waiting[count] = high;
                    count += 1;
                    high = low + less;
                    continue;
                }
            },
        };
        for &cell in &*sorted {
            if visit(cell).is_break() {
                return;
            }
        }
        low += sorted.len();
        if low == high {
            if count == 0 {
                return;
            }
            count -= 1;
            high = waiting[count];
        }
    }
}

fn insert<T: Copy, K: Copy + Ord>(cells: &mut [T], key: impl Fn(T) -> K) {
    for sorted in 1..cells.len() {
        let Some((cell, before)) = cells.get_mut(..=sorted).and_then(<[T]>::split_last_mut) else { return };
        let moving = *cell;
        let mut to = cell;
        for from in before.iter_mut().rev() {
            if key(*from) <= key(moving) {
                break;
            }
            *to = *from;
            to = from;
        }
        *to = moving;
    }
}

/// Quickselect (Hoare 1961) on `low..high`. Not by [`partition`]: its other order would change the plans of the beam
/// search.
pub(crate) fn select<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, mut low: u32, mut high: u32, k: u32) {
    while high > low + 1 {
        let pivot = cells[low + (high - low - 1) / 2];
        let (mut left, mut right) = (low, high - 1);
        // No cell before `left` holds more than the pivot, and none after `right` less.
        let middle = loop {
            while cells[left] < pivot {
                left += 1;
            }
            while cells[right] > pivot {
                right -= 1;
            }
            if left >= right {
                break right + 1;
            }
            (cells[left], cells[right]) = (cells[right], cells[left]);
            left += 1;
            right -= 1;
        };
        (low, high) = if k < middle { (low, middle) } else { (middle, high) };
    }
}

enum Parts {
    /// Every key of the first part, of this length, is less than every key of the second.
    Less(usize),
    /// As `Less`, but all keys of the first part are equal; the second part may be empty.
    Least(usize),
}

/// No branch depends on a key: the processor could not predict it (Lomuto; Edelkamp and Weiß 2016).
fn partition<T: Copy, K: Copy + Ord>(cells: &mut [T], key: impl Fn(T) -> K) -> Parts {
    let middle = cells.len() / 2;
    swap(cells, 0, middle);
    let Some((pivot, rest)) = cells.split_first_mut() else { return Parts::Least(0) };
    let pivot = key(*pivot);
    let less = gather(rest, |cell| key(cell) < pivot);
    if less == 0 {
        return Parts::Least(1 + gather(rest, |cell| key(cell) <= pivot));
    }
    swap(cells, 0, less);
    Parts::Less(less)
}

fn gather<T: Copy>(cells: &mut [T], wanted: impl Fn(T) -> bool) -> usize {
    let mut count = 0;
    for i in 0..cells.len() {
        let cell = cells[i];
        swap(cells, count, i);
        count += usize::from(wanted(cell));
    }
    count
}

fn swap<T: Copy>(cells: &mut [T], a: usize, b: usize) {
    if let (Some(&first), Some(&second)) = (cells.get(a), cells.get(b)) {
        (cells[a], cells[b]) = (second, first);
    }
}

pub(crate) fn identity(order: &mut Table<'_, u32>, n: u32) {
    for i in 0..n {
        order[i] = i;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn in_place_is_the_sort_of_the_standard_library(mut cells in prop::collection::vec(prop_oneof![0u64..50, any::<u64>()], 0..300)) {
            let mut expected = cells.clone();
            expected.sort_unstable();
            let n = u32::try_from(cells.len()).unwrap();
            in_place(&mut Table::new(&mut cells), n);
            prop_assert_eq!(cells, expected);
        }
    }

    proptest! {
        #[test]
        fn cells_are_visited_in_ascending_order_as_far_as_they_are_wanted(
            mut cells in prop::collection::vec((prop_oneof![0u64..50, any::<u64>()], any::<u64>()), 1..300),
            wanted: prop::sample::Index,
        ) {
            let n = u32::try_from(cells.len()).unwrap();
            let wanted = 1 + wanted.index(cells.len());
            let mut expected: Vec<u64> = cells.iter().map(|cell| cell.0).collect();
            expected.sort_unstable();
            let mut visited = Vec::new();
            ascending(&mut Table::new(&mut cells), n, |(key, _)| key, |(key, _)| {
                visited.push(key);
                if visited.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            prop_assert_eq!(visited, &expected[..wanted]);
        }
    }

    proptest! {
        #[test]
        fn what_is_selected_is_where_a_sort_puts_it(
            mut cells in prop::collection::vec(prop_oneof![0u64..9, any::<u64>()], 3..70),
            picks: [prop::sample::Index; 3],
        ) {
            let [mut low, mut k, mut high] = picks.map(|pick| pick.index(cells.len()));
            (low, high) = (low.min(high), low.max(high) + 1);
            k = low + k % (high - low);
            let mut expected = cells.clone();
            expected[low..high].sort_unstable();
            let [l, h, at] = [low, high, k].map(|i| u32::try_from(i).unwrap());
            select(&mut Table::new(&mut cells), l, h, at);
            prop_assert_eq!(cells[k], expected[k]);
            prop_assert!(cells[low..k].iter().all(|&cell| cell <= cells[k]));
            cells.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(cells, expected);
        }
    }

    proptest! {
        #[test]
        fn equals_the_stable_sort_of_the_standard_library(keys in prop::collection::vec(prop_oneof![0..4u64, any::<u64>()], 0..80)) {
            let n = u32::try_from(keys.len()).unwrap();
            let (mut order, mut scratch) = (vec![0; keys.len()], vec![0; keys.len()]);
            let mut table = Table::new(&mut order);
            identity(&mut table, n);
            by_key(&mut table, n, &mut Table::new(&mut scratch), |i| keys[i as usize]);
            let mut expected: Vec<u32> = (0..n).collect();
            expected.sort_by_key(|&i| keys[i as usize]);
            prop_assert_eq!(order, expected);
        }
    }
}
