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
    pub(crate) const LEN: WorkspaceLen = T::Kept::LEN;

    pub(crate) fn lend(n: usize, scratch: &mut Workspace<'a>) -> Self {
        Self { cells: Table::new(T::Kept::lend(n, scratch)), len: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) -> bool {
        let room = usize::try_from(self.len).is_ok_and(|len| len < self.cells.len());
        if room {
            self.cells[self.len] = value.keep();
            self.len += 1;
        }
        room
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        Some(T::kept(self.cells[self.len]))
    }

    pub(crate) fn at(&self, i: u32) -> Option<T> {
        (i < self.len).then(|| T::kept(self.cells[i]))
    }

    pub(crate) fn as_slice(&self) -> &[T::Kept] {
        self.cells.first(self.len)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + '_ {
        self.as_slice().iter().map(|&kept| T::kept(kept))
    }

    pub(crate) fn change(&mut self, mut to: impl FnMut(T) -> T) {
        for kept in self.cells.range_mut(0, self.len) {
            *kept = to(T::kept(*kept)).keep();
        }
    }

    pub(crate) const fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn copy_from(&mut self, other: &List<'_, T>) {
        self.clear();
        for value in other.iter() {
            self.push(value);
        }
    }
}
