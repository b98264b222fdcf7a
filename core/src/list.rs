//! A list of limited length in memory that the caller lends: a table, and how many of its cells are in use. An element
//! for which there is no room is not added.

use crate::table::{Record, Table};
use crate::workspace::Cell;
use crate::{Workspace, WorkspaceLen};

pub(crate) struct List<'a, T: Record> {
    cells: Table<'a, T::Kept>,
    len: u32,
}

impl<'a, T: Record<Kept: Cell>> List<'a, T> {
    /// How much workspace one element of the list takes: how many 64-bit words and how many 32-bit indices.
    pub(crate) const LEN: WorkspaceLen = T::Kept::LEN;

    /// An empty list with room for `n` elements, in memory that is cut off the workspace `scratch`.
    pub(crate) fn lend(n: usize, scratch: &mut Workspace<'a>) -> Self {
        Self { cells: Table::new(T::Kept::lend(n, scratch)), len: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an element at the end; false if there is no room for it.
    pub(crate) fn push(&mut self, value: T) -> bool {
        let room = usize::try_from(self.len).is_ok_and(|len| len < self.cells.len());
        if room {
            self.cells[self.len] = value.keep();
            self.len += 1;
        }
        room
    }

    /// Removes the last element of the list and returns it; `None` if the list is empty.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(T::kept(self.cells[self.len]))
    }

    /// The element at index `i`; `None` if `i` is not below the length of the list.
    pub(crate) fn at(&self, i: u32) -> Option<T> {
        (i < self.len).then(|| T::kept(self.cells[i]))
    }

    /// The elements, in the form in which the table stores them ([`Record::Kept`]).
    pub(crate) fn as_slice(&self) -> &[T::Kept] {
        self.cells.first(self.len)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + '_ {
        self.as_slice().iter().map(|&kept| T::kept(kept))
    }

    /// Replaces each element by the result of `to` for it.
    pub(crate) fn change(&mut self, mut to: impl FnMut(T) -> T) {
        for kept in self.cells.range_mut(0, self.len) {
            *kept = to(T::kept(*kept)).keep();
        }
    }

    /// Keeps the first `len` elements of the list and removes all others.
    pub(crate) fn truncate(&mut self, len: u32) {
        self.len = self.len.min(len);
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    /// Replaces all elements of this list by the elements of `other`. The last elements of `other`, for which this list
    /// has no room, are left out.
    pub(crate) fn copy_from(&mut self, other: &List<'_, T>) {
        self.clear();
        for value in other.iter() {
            self.push(value);
        }
    }
}
