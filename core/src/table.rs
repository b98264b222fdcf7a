//! Tables: slices with indexing that cannot panic.
//!
//! Every table that an algorithm keeps is a slice that the caller lends. A [`Table`] indexes such a slice by `u32` or
//! by one kind of [`Id`]; at an index outside its bounds it reads `T::default()`, and a write there is lost. Such an
//! index is a fault of this crate, never of the caller. Debug builds then fail an assertion; release builds go on with
//! a wrong answer, which the verifier refuses. So no input makes firmware panic.

use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use crate::id::Id;

pub(crate) struct Table<'a, T, I = u32> {
    cells: &'a mut [T],
    /// `T::default()`, which is read outside the bounds, so that indexing cannot panic.
    outside: T,
    index: PhantomData<I>,
}

impl<'a, T: Copy + Default, I: Id> Table<'a, T, I> {
    pub(crate) fn new(cells: &'a mut [T]) -> Self {
        Self { cells, outside: T::default(), index: PhantomData }
    }

    #[inline]
    pub(crate) fn fill(&mut self, value: T) {
        self.cells.fill(value);
    }

    pub(crate) fn copy_from(&mut self, other: &Table<'_, T, I>) {
        for (cell, &value) in self.cells.iter_mut().zip(&*other.cells) {
            *cell = value;
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    #[inline]
    pub(crate) fn first(&self, n: u32) -> &[T] {
        self.cells.get(..position(n)).unwrap_or(self.cells)
    }

    #[inline]
    pub(crate) fn range(&self, from: I, to: I) -> &[T] {
        self.cells.get(position(from)..position(to)).unwrap_or_default()
    }

    #[inline]
    pub(crate) fn range_mut(&mut self, from: I, to: I) -> &mut [T] {
        self.cells.get_mut(position(from)..position(to)).unwrap_or_default()
    }

    pub(crate) fn into_slice(self) -> &'a mut [T] {
        self.cells
    }
}

impl<T: Copy + Default, I: Id> Index<I> for Table<'_, T, I> {
    type Output = T;

    #[inline]
    fn index(&self, i: I) -> &T {
        debug_assert!(position(i) < self.cells.len(), "{} of {}", i.number(), self.cells.len());
        self.cells.get(position(i)).unwrap_or(&self.outside)
    }
}

impl<T: Copy + Default, I: Id> IndexMut<I> for Table<'_, T, I> {
    #[inline]
    fn index_mut(&mut self, i: I) -> &mut T {
        debug_assert!(position(i) < self.cells.len(), "{} of {}", i.number(), self.cells.len());
        let Self { cells, outside, .. } = self;
        cells.get_mut(position(i)).unwrap_or_else(|| {
            *outside = T::default();
            outside
        })
    }
}

pub(crate) trait Record: Copy {
    type Kept: Copy + Default;
    fn keep(self) -> Self::Kept;
    fn kept(kept: Self::Kept) -> Self;
}

impl<F: Field> Record for F {
    type Kept = u32;
    #[inline]
    fn keep(self) -> u32 {
        Field::keep(self)
    }
    #[inline]
    fn kept(kept: u32) -> Self {
        Field::kept(kept)
    }
}

impl<const K: usize> Record for [u32; K]
where
    [u32; K]: Default,
{
    type Kept = Self;
    #[inline]
    fn keep(self) -> Self {
        self
    }
    #[inline]
    fn kept(kept: Self) -> Self {
        kept
    }
}

impl Record for f64 {
    type Kept = u64;
    #[inline]
    fn keep(self) -> u64 {
        self.to_bits()
    }
    #[inline]
    fn kept(kept: u64) -> Self {
        Self::from_bits(kept)
    }
}

pub(crate) struct Records<'a, R: Record, I = u32> {
    table: Table<'a, R::Kept, I>,
}

impl<'a, R: Record, I: Id> Records<'a, R, I> {
    pub(crate) fn new(table: Table<'a, R::Kept, I>) -> Self {
        Self { table }
    }

    #[inline]
    pub(crate) fn get(&self, i: I) -> R {
        R::kept(self.table[i])
    }

    #[inline]
    pub(crate) fn is(&self, i: I, record: R) -> bool
    where
        R::Kept: PartialEq,
    {
        self.table[i] == record.keep()
    }

    #[inline]
    pub(crate) fn set(&mut self, i: I, record: R) {
        self.table[i] = record.keep();
    }

    #[inline]
    pub(crate) fn fill(&mut self, record: R) {
        self.table.fill(record.keep());
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn range(&self, from: I, to: I) -> impl Iterator<Item = R> + '_ {
        self.table.range(from, to).iter().map(|&kept| R::kept(kept))
    }
}

pub(crate) trait Field: Copy {
    fn keep(self) -> u32;
    fn kept(kept: u32) -> Self;
}

impl<I: Id> Field for I {
    #[inline]
    fn keep(self) -> u32 {
        self.number()
    }
    #[inline]
    fn kept(kept: u32) -> Self {
        I::of(kept)
    }
}

impl Field for bool {
    #[inline]
    fn keep(self) -> u32 {
        u32::from(self)
    }
    #[inline]
    fn kept(kept: u32) -> Self {
        kept > 0
    }
}

/// `None` is stored as 0, an id as 1 + its number.
impl<I: Id> Field for Option<I> {
    #[inline]
    fn keep(self) -> u32 {
        self.map_or(0, |id| id.number().wrapping_add(1))
    }
    #[inline]
    fn kept(kept: u32) -> Self {
        kept.checked_sub(1).map(I::of)
    }
}

/// A stored number that belongs to no variant reads as the first one named.
macro_rules! enum_field {
    ($name:ident: $first:ident $(, $more:ident)*) => {
        impl $crate::table::Field for $name {
            #[inline]
            fn keep(self) -> u32 {
                self as u32
            }
            #[inline]
            fn kept(kept: u32) -> Self {
                match kept {
                    $(kept if kept == Self::$more as u32 => Self::$more,)*
                    _ => Self::$first,
                }
            }
        }
    };
}
pub(crate) use enum_field;

macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl $crate::table::Record for $name {
            type Kept = [u32; [$(stringify!($field)),*].len()];
            #[inline]
            fn keep(self) -> Self::Kept {
                [$($crate::table::Field::keep(self.$field)),*]
            }
            #[inline]
            fn kept([$($field),*]: Self::Kept) -> Self {
                Self { $($field: $crate::table::Field::kept($field)),* }
            }
        }    };
}
pub(crate) use record;

/// `T::default()` outside the bounds, where debug builds fail an assertion.
#[inline]
pub(crate) fn at<T: Copy + Default>(slice: &[T], i: u32) -> T {
    debug_assert!(position(i) < slice.len(), "{i} of {}", slice.len());
    slice.get(position(i)).copied().unwrap_or_default()
}

#[inline]
fn position(i: impl Id) -> usize {
    usize::try_from(i.number()).unwrap_or(usize::MAX)
}

#[inline]
pub(crate) fn count<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).unwrap_or(u32::MAX)
}
