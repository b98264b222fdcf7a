//! Ids: integer types that each number one kind of thing. So the compiler refuses the number of an operator where the
//! number of a block is wanted.

use core::ops::Range;

pub(crate) trait Id: Copy + Ord {
    fn of(number: u32) -> Self;
    fn number(self) -> u32;

    /// The number of `self` must be below `u32::MAX`.
    #[inline]
    fn next(self) -> Self {
        Self::of(self.number() + 1)
    }

    #[inline]
    fn each(numbers: Range<u32>) -> impl DoubleEndedIterator<Item = Self> {
        numbers.map(Self::of)
    }
}

impl Id for u32 {
    #[inline]
    fn of(number: u32) -> Self {
        number
    }
    #[inline]
    fn number(self) -> u32 {
        self
    }
}

macro_rules! ids {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis struct $name(u32);

        impl $crate::id::Id for $name {
            #[inline]
            fn of(number: u32) -> Self {
                Self(number)
            }
            #[inline]
            fn number(self) -> u32 {
                self.0
            }
        }
    )+};
}
pub(crate) use ids;
