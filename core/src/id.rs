//! Ids: numbers of one kind of thing each, so that the number of a gap cannot be taken for that of a block.

use core::ops::Range;

/// What tables may be indexed by: a `u32`, or an id that [`ids!`] declares.
pub(crate) trait Id: Copy + Ord {
    fn of(number: u32) -> Self;
    fn number(self) -> u32;

    /// The id after this one.
    #[inline]
    fn next(self) -> Self {
        Self::of(self.number() + 1)
    }

    /// The ids with these numbers, in their order.
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

/// Declares ids: each is the number, from 0, of one kind of thing.
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
