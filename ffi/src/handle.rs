//! Handles: values that C refers to by an opaque pointer. In memory a mark stands before each value: a number that is
//! different for each type, and 0 once the handle is destroyed.
//!
//! Most handles live in memory that the caller lends, own nothing, and end when the caller takes the memory back. Two
//! kinds must be destroyed: an allocator, which may live in lent memory, but owns ranges of addresses; and handles that
//! `boxed` made in memory of their own, such as a runtime. The mark shows if a handle is of another type than expected,
//! and, as long as its memory can still be read, if it was destroyed.

use core::mem::MaybeUninit;
use core::ptr;

use crate::arguments::{Arguments, Out};
use crate::failure::Failure;
use crate::status::sublet_status as S;

pub(crate) trait Handle {
    /// Stands before each value that C refers to, and differs for each type.
    const MARK: u64;
}

macro_rules! handles {
    ($($t:ty: $mark:literal),* $(,)?) => { $(
        impl $crate::handle::Handle for $t {
            const MARK: u64 = u64::from_le_bytes(*$mark);
        }
    )* };
}
pub(crate) use handles;

/// The mark is 0 once the handle is destroyed.
#[repr(C)]
pub(crate) struct Marked<T> {
    mark: u64,
    pub(crate) value: T,
}

pub(crate) fn put<T: Handle>(
    place: Option<&mut MaybeUninit<Marked<T>>>,
    value: T,
    to: Out<'_, *mut T>,
) -> Result<(), Failure> {
    put_at(place, value, to).map(drop)
}

/// `place` is `None` if the workspace had too little left.
pub(crate) fn put_at<'a, T: Handle>(
    place: Option<&'a mut MaybeUninit<Marked<T>>>,
    value: T,
    to: Out<'_, *mut T>,
) -> Result<&'a T, Failure> {
    let marked = place.ok_or(Failure::of(S::Unnamed))?.write(Marked { mark: T::MARK, value });
    to.set(ptr::from_mut(marked).cast());
    Ok(&marked.value)
}

/// `unboxed` frees it.
#[cfg(feature = "cuda")]
pub(crate) fn boxed<T: Handle>(value: T) -> *mut T {
    Box::into_raw(Box::new(Marked { mark: T::MARK, value })).cast()
}

/// If the mark is there, `boxed` made the handle, and nobody else uses it.
#[cfg(feature = "cuda")]
pub(crate) unsafe fn unboxed<T: Handle>(handle: *mut T) -> Option<T> {
    // SAFETY: as promised.
    unsafe {
        let marked = marked(handle, 0).ok()?;
        (*marked).mark = 0;
        Some(Box::from_raw(marked).value)
    }
}

/// The value lies right after the mark. An aligned `handle` can be read.
#[inline]
pub(crate) unsafe fn marked<T: Handle>(handle: *mut T, position: u32) -> Result<*mut Marked<T>, Failure> {
    let marked = handle.cast::<Marked<T>>();
    if marked.is_null() {
        return Err(Failure::new(S::NullPointer, position, 0, 0));
    }
    if !marked.is_aligned() {
        return Err(Failure::new(S::MisalignedPointer, position, align_of::<Marked<T>>() as u64, 0));
    }
    // SAFETY: aligned, not NULL, and that it can be read is promised; it is a number, whatever it holds.
    let found = unsafe { (&raw const (*marked).mark).read() };
    if found == T::MARK { Ok(marked) } else { Err(Failure::new(S::NotAHandle, position, 0, 0)) }
}

/// `marked` has returned the pointer, and nobody else uses the handle.
pub(crate) unsafe fn unmark<T>(marked: *mut Marked<T>) {
    // SAFETY: as promised; written even where nobody in this program looks at it again.
    unsafe { (&raw mut (*marked).mark).write_volatile(0) };
}

impl<T: Handle> Marked<T> {
    /// `marked` is aligned and readable, and not destroyed if it has the mark.
    #[inline]
    pub(crate) unsafe fn known<'a>(marked: *const Self) -> Option<&'a T> {
        // SAFETY: as promised; the mark is a number, whatever it holds.
        unsafe { ((&raw const (*marked).mark).read() == T::MARK).then(|| &(*marked).value) }
    }
}

impl<'a> Arguments<'a> {
    /// If the mark is there, the handle's memory is still lent, and nobody else uses it.
    #[inline]
    pub(crate) unsafe fn handle<T: Handle>(&mut self, handle: *mut T) -> Result<&'a mut T, Failure> {
        // SAFETY: as promised.
        Ok(unsafe { &mut (*self.held(handle)?).value })
    }

    /// If the mark is there, the memory is still lent, and others use it only through this.
    #[cfg(feature = "cuda")]
    pub(crate) unsafe fn shared<T: Handle + Sync>(&mut self, handle: *mut T) -> Result<&'a T, Failure> {
        // SAFETY: as promised.
        Ok(unsafe { &(*self.held(handle)?).value })
    }

    #[inline]
    unsafe fn held<T: Handle>(&mut self, handle: *mut T) -> Result<*mut Marked<T>, Failure> {
        let position = self.next();
        // SAFETY: as promised.
        let marked = unsafe { marked(handle, position)? };
        self.holds_range(position, (marked.addr(), marked.wrapping_add(1).addr()))?;
        Ok(marked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kind(u8);
    struct Other;
    handles!(Kind: b"a kind  ", Other: b"another ");

    #[test]
    fn a_handle_is_known_by_its_mark_until_it_ends() {
        let mut memory = MaybeUninit::uninit();
        let mut handle = ptr::null_mut();
        // SAFETY: a pointer of this function.
        let result = unsafe { Arguments::new().result(&raw mut handle) }.unwrap();
        put(Some(&mut memory), Kind(7), result).unwrap();
        let mut arguments = Arguments::new();
        arguments.skip();
        // SAFETY: `memory` can be read, and holds what it was given.
        unsafe {
            assert_eq!(Arguments::new().handle(handle).map(|kind| kind.0), Ok(7));
            let other = arguments.handle(handle.cast::<Other>());
            assert_eq!(other.err(), Some(Failure::new(S::NotAHandle, 1, 0, 0)));
            unmark(marked(handle, 0).unwrap());
            assert_eq!(Arguments::new().handle(handle).err(), Some(Failure::of(S::NotAHandle)));
        }
    }
}
