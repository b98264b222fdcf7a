//! Indexing that cannot panic.
//!
//! Every table that an algorithm keeps is a slice that the caller lends. A [`Table`] indexes such a slice
//! by `u32`; outside its bounds it reads `T::default()`, and what is written there is lost. An index out
//! of bounds is a fault of this crate, never of the caller: debug builds assert, release builds go on with
//! a wrong answer that the verifier then refuses. No input makes firmware panic.

use core::ops::{Index, IndexMut};

pub(crate) struct Table<'a, T> {
    cells: &'a mut [T],
    /// What stands outside the bounds.
    outside: T,
}

impl<'a, T: Copy + Default> Table<'a, T> {
    pub(crate) fn new(cells: &'a mut [T]) -> Self {
        Self { cells, outside: T::default() }
    }

    pub(crate) fn fill(&mut self, value: T) {
        self.cells.fill(value);
    }

    /// Takes the values of another table, as far as both reach.
    pub(crate) fn copy_from(&mut self, other: &Table<'_, T>) {
        for (cell, &value) in self.cells.iter_mut().zip(&*other.cells) {
            *cell = value;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// Fills what stands at `first` and after it.
    pub(crate) fn fill_from(&mut self, first: u32, value: T) {
        self.cells.get_mut(position(first)..).unwrap_or_default().fill(value);
    }

    /// The first `n` cells.
    pub(crate) fn first(&self, n: u32) -> &[T] {
        self.cells.get(..position(n)).unwrap_or(self.cells)
    }

    /// The cells from one to before another; none where there are none.
    pub(crate) fn range(&self, from: u32, to: u32) -> &[T] {
        self.cells.get(position(from)..position(to)).unwrap_or_default()
    }

    /// The same, to be changed.
    pub(crate) fn range_mut(&mut self, from: u32, to: u32) -> &mut [T] {
        self.cells.get_mut(position(from)..position(to)).unwrap_or_default()
    }

    pub(crate) fn into_slice(self) -> &'a mut [T] {
        self.cells
    }
}

impl<T: Copy + Default> Index<u32> for Table<'_, T> {
    type Output = T;

    #[inline]
    fn index(&self, i: u32) -> &T {
        debug_assert!(position(i) < self.cells.len(), "{i} of {}", self.cells.len());
        self.cells.get(position(i)).unwrap_or(&self.outside)
    }
}

impl<T: Copy + Default> IndexMut<u32> for Table<'_, T> {
    #[inline]
    fn index_mut(&mut self, i: u32) -> &mut T {
        debug_assert!(position(i) < self.cells.len(), "{i} of {}", self.cells.len());
        self.outside = T::default();
        self.cells.get_mut(position(i)).unwrap_or(&mut self.outside)
    }
}

/// `slice[i]`, or the default outside its bounds.
#[inline]
pub(crate) fn at<T: Copy + Default>(slice: &[T], i: u32) -> T {
    debug_assert!(position(i) < slice.len(), "{i} of {}", slice.len());
    slice.get(position(i)).copied().unwrap_or_default()
}

/// A `u32` as a position in a slice; on a 16-bit machine a number beyond `usize` is out of every bound.
#[inline]
fn position(i: u32) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

/// The number of elements of a slice, all of which this crate counts in `u32`.
#[inline]
pub(crate) fn count<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).unwrap_or(u32::MAX)
}
