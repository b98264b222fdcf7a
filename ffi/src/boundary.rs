//! The boundary between C and Rust. Exported functions write a failure to the caller's `sublet_error`, if the caller
//! has given one, and return its status. In a build with the standard library a panic becomes such a failure, too.

use crate::arguments::{Arguments, ERROR};
use crate::failure::{Failure, sublet_error};
use crate::status::{sublet_status, sublet_status as S};
use crate::workspace::{Needed, sublet_layout};

/// A misaligned `error`, or one that shares memory with an argument, is not written.
pub(crate) fn boundary<'a>(
    error: *mut sublet_error,
    body: impl FnOnce(&mut Arguments<'a>) -> Result<(), Failure>,
) -> sublet_status {
    short(error, || body(&mut Arguments::beside(error)))
}

/// As `boundary`, without [`Arguments`]: for functions that are called often.
#[inline]
pub(crate) fn short(error: *mut sublet_error, body: impl FnOnce() -> Result<(), Failure>) -> sublet_status {
    if !error.is_aligned() {
        return S::MisalignedPointer;
    }
    let outcome = caught(body).err().unwrap_or(Failure::of(S::Ok));
    let is_shared = outcome.status == S::OverlappingBuffers && outcome.got == u64::from(ERROR);
    if !error.is_null() && !is_shared {
        // SAFETY: it is not NULL, it is aligned, and the header asks for room for one error.
        unsafe { error.write(outcome.into()) };
    }
    outcome.status
}

/// `needed` checks the arguments before `layout`, which is NULL or can be written.
pub(crate) unsafe fn tell(
    needed: impl FnOnce(&mut Arguments<'_>) -> Result<Needed, Failure>,
    layout: *mut sublet_layout,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        let needed = needed(arguments)?;
        // SAFETY: as promised.
        unsafe { arguments.result(layout)? }.set(needed.layout());
        Ok(())
    })
}

#[cfg(any(feature = "std", test))]
fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What the body was writing is undefined, as the status says, and is not read here.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(Err(Failure::of(S::Panicked)))
}

/// Without the standard library no panic can be caught.
#[cfg(not(any(feature = "std", test)))]
fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    body()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: sublet_error = sublet_error { status: 0, index: 0, needed: 0, got: 0 };

    #[test]
    fn a_panic_becomes_a_status() {
        let mut error = NONE;
        let status = boundary(&raw mut error, |_| panic!("a fault, for the test"));
        assert_eq!((status, error.status), (S::Panicked, S::Panicked as i32));
    }

    #[test]
    fn success_clears_the_error() {
        let mut error = Failure::of(S::ZeroSize).into();
        assert_eq!(boundary(&raw mut error, |_| Ok(())), S::Ok);
        assert_eq!(error, NONE);
    }

    #[test]
    fn an_error_that_is_nowhere_is_not_written() {
        let failing = |_: &mut Arguments<'_>| Err(Failure::of(S::ZeroSize));
        assert_eq!(boundary(core::ptr::null_mut(), failing), S::ZeroSize);
        let mut errors = [NONE; 2];
        let between = (&raw mut errors).cast::<sublet_error>().wrapping_byte_add(1);
        assert_eq!(boundary(between, failing), S::MisalignedPointer);
        assert_eq!(errors, [NONE; 2]);
    }

    #[test]
    fn an_error_over_an_argument_is_found_and_not_written() {
        let mut memory = [7u64; 8];
        let begin = (&raw mut memory).cast::<u64>();
        let read = |at: usize| {
            let error = begin.wrapping_add(at).cast();
            boundary(error, |arguments| {
                // SAFETY: three of the eight words.
                unsafe { arguments.input(begin.wrapping_add(3), 3) }.map(drop)
            })
        };
        assert_eq!(read(0), S::Ok, "it touches what comes after it");
        memory = [7; 8];
        for at in 1..6 {
            let begin = (&raw mut memory).cast::<u64>();
            let status = boundary(begin.wrapping_add(at).cast(), |arguments| {
                // SAFETY: three of the eight words.
                unsafe { arguments.input(begin.wrapping_add(3), 3) }.map(drop)
            });
            assert_eq!((status, memory), (S::OverlappingBuffers, [7; 8]), "{at}");
        }
    }
}
