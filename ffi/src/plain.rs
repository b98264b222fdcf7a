//! Types whose values go to C and come from C unchanged, byte by byte.

use core::mem::MaybeUninit;

/// Whatever bytes a value has, it is valid; the alignment is at most that of `u64`.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($t:ty),*) => { $(
        // SAFETY: made of integers, reals and pointers alone.
        unsafe impl $crate::plain::Plain for $t {}
    )* };
}
pub(crate) use plain;

// SAFETY: a pointer may hold anything as long as nobody follows it.
unsafe impl<T> Plain for *mut T {}
// SAFETY: as above.
unsafe impl<T> Plain for *const T {}

// SAFETY: it holds any byte, or none.
unsafe impl Plain for MaybeUninit<u8> {}

plain!(u8, i8, u32, i32, u64, usize);
