//! Stable sorting of indices by an integer key; sorting and selection of values in place.
//!
//! Indices are sorted by a radix sort from the least significant digit on, eight bits a pass. A digit that is the same
//! in all keys takes no pass, so small keys take few passes. O(n) per pass, n indices of scratch, 1 KiB of stack. The
//! sorts of the standard library are not used because they can panic (on an inconsistent order), and firmware must not
//! panic.

use crate::table::Table;

/// Sorts the first `n` indices of `order` by ascending `key`; indices with equal keys keep their order. `scratch` has
/// room for `n` indices.
pub(crate) fn by_key(order: &mut Table<'_, u32>, n: u32, scratch: &mut Table<'_, u32>, key: impl Fn(u32) -> u64) {
    if n < 2 {
        return;
    }
    let first = key(order[0]);
    let varying = (1..n).fold(0, |bits, i| bits | (key(order[i]) ^ first));
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

/// Quicksort splits the cells into smaller and smaller parts. A part with at most this many cells is sorted by
/// insertion instead, which is the quickest way for so few.
const FEW: u32 = 16;

/// Sorts the first `n` cells in ascending order, in place and without scratch: [`in_place_by_key`] with each cell as
/// its own key.
pub(crate) fn in_place<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, n: u32) {
    in_place_by_key(cells, n, |cell| cell);
}

/// Sorts the first `n` cells by ascending `key`, in place and without scratch; cells with equal keys may change their
/// order. Quicksort (Hoare 1961), with insertion sort for parts of at most [`FEW`] cells. O(n log n) on average.
pub(crate) fn in_place_by_key<T: Copy + Default, K: Copy + Ord>(
    cells: &mut Table<'_, T>,
    n: u32,
    key: impl Fn(T) -> K + Copy,
) {
    // The ranges of cells that are still to be sorted. The larger half of a range waits, so that the ranges at hand
    // halve each time: for 2³² cells at most 32 wait.
    let mut waiting = [[0; 2]; 32];
    let mut waiting = Table::new(&mut waiting);
    let (mut low, mut high, mut count) = (0, n, 0);
    loop {
        while high - low > FEW {
            let middle = partition(cells, low, high, key);
            let (smaller, larger) = ([low, middle], [middle, high]);
            let (next, later) = if middle - low < high - middle { (smaller, larger) } else { (larger, smaller) };
            ([low, high], waiting[count]) = (next, later);
            count += 1;
        }
        for sorted in low + 1..high {
            let cell = cells[sorted];
            let mut to = sorted;
            while to > low && key(cells[to - 1]) > key(cell) {
                cells[to] = cells[to - 1];
                to -= 1;
            }
            cells[to] = cell;
        }
        if count == 0 {
            return;
        }
        count -= 1;
        [low, high] = waiting[count];
    }
}

/// Reorders the cells `low..high` so that cell `k` holds the value that it would have after an ascending sort, and no
/// cell from `low` to `k` holds a larger value: quickselect (Hoare 1961). O(high - low) on average.
pub(crate) fn select<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, mut low: u32, mut high: u32, k: u32) {
    while high > low + 1 {
        let middle = partition(cells, low, high, |cell| cell);
        (low, high) = if k < middle { (low, middle) } else { (middle, high) };
    }
}

/// Reorders the cells `low..high`, of which there are at least two, into two parts that are not empty. Returns the
/// index at which the second part begins: no key in the first part is larger than any key in the second.
fn partition<T: Copy + Default, K: Copy + Ord>(
    cells: &mut Table<'_, T>,
    low: u32,
    high: u32,
    key: impl Fn(T) -> K,
) -> u32 {
    let pivot = key(cells[low + (high - low - 1) / 2]);
    let (mut left, mut right) = (low, high - 1);
    loop {
        while key(cells[left]) < pivot {
            left += 1;
        }
        while key(cells[right]) > pivot {
            right -= 1;
        }
        if left >= right {
            return right + 1;
        }
        (cells[left], cells[right]) = (cells[right], cells[left]);
        left += 1;
        right -= 1;
    }
}

/// Fills the first `n` cells of `order` with the numbers from 0 to `n - 1`, in ascending order.
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
