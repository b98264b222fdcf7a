//! Values that live in memory that the caller lends, behind a pointer that C does not look into.
//!
//! Such a handle owns nothing, so that there is nothing to destroy: it ends when the caller takes the memory back.

use crate::arguments::{Arguments, Out};
use crate::error::Failure;
use crate::status::sublet_status as S;

/// Puts a handle into its room, cut for it from the workspace.
pub(crate) fn put<T>(
    place: Option<&mut core::mem::MaybeUninit<T>>,
    value: T,
    to: Out<'_, *mut T>,
) -> Result<(), Failure> {
    let place = place.ok_or(Failure::of(S::Unnamed))?;
    to.set(core::ptr::from_mut(place.write(value)));
    Ok(())
}

/// The value behind a handle, which is argument 0; and the arguments after it.
///
/// # Safety
/// If it is neither NULL nor misaligned, it is a handle whose memory is still lent, and nobody else uses it.
#[inline]
pub(crate) unsafe fn open<'a, T>(handle: *mut T) -> Result<(&'a mut T, Arguments<'a>), Failure> {
    if !handle.is_aligned() {
        return Err(Failure::new(S::MisalignedPointer, 0, align_of::<T>() as u64, 0));
    }
    // SAFETY: aligned, and what it points to is promised.
    let value = unsafe { handle.as_mut() }.ok_or(Failure::of(S::NullPointer))?;
    let mut arguments = Arguments::new();
    arguments.skip();
    Ok((value, arguments))
}
