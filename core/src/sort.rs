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

/// Sorts the first `n` cells in ascending order, in place and without scratch: a heap sort (Williams 1964), O(n log n).
pub(crate) fn in_place<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, n: u32) {
    for root in (0..n / 2).rev() {
        sink(cells, root, n);
    }
    for last in (1..n).rev() {
        (cells[0], cells[last]) = (cells[last], cells[0]);
        sink(cells, 0, last);
    }
}

/// Reorders the cells `low..high` so that cell `k` holds the value that it would have after an ascending sort, and no
/// cell from `low` to `k` holds a larger value: quickselect (Hoare 1961). O(high - low) on average.
pub(crate) fn select<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, mut low: u32, mut high: u32, k: u32) {
    while high > low + 1 {
        let pivot = cells[low + (high - low - 1) / 2];
        let (mut left, mut right) = (low, high - 1);
        loop {
            while cells[left] < pivot {
                left += 1;
            }
            while cells[right] > pivot {
                right -= 1;
            }
            if left >= right {
                break;
            }
            (cells[left], cells[right]) = (cells[right], cells[left]);
            left += 1;
            right -= 1;
        }
        (low, high) = if k <= right { (low, right + 1) } else { (right + 1, high) };
    }
}

/// Moves the cell at index `root` of a binary max-heap down until no child of the cell is larger. The heap is the first
/// `n` cells.
fn sink<T: Copy + Default + Ord>(cells: &mut Table<'_, T>, mut root: u32, n: u32) {
    let cell = cells[root];
    loop {
        let mut child = 2 * root + 1;
        if child >= n {
            break;
        }
        if child + 1 < n && cells[child + 1] > cells[child] {
            child += 1;
        }
        if cells[child] <= cell {
            break;
        }
        cells[root] = cells[child];
        root = child;
    }
    cells[root] = cell;
}

/// Fills the first `n` cells of `order` with the indices `0..n`, which are then sorted.
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
        fn in_place_is_the_sort_of_the_standard_library(mut cells in prop::collection::vec(0u64..50, 0..70)) {
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
