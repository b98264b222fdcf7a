//! The line between C and Rust: no panic crosses it, and what went wrong is written here.

use crate::error::{Failure, sublet_error};
use crate::status::sublet_status;

/// Runs the body of an exported function, writes its error where the caller wants one, and gives its status.
pub(crate) fn boundary(error: *mut sublet_error, body: impl FnOnce() -> Result<(), Failure>) -> sublet_status {
    if !error.is_aligned() {
        return sublet_status::MisalignedPointer;
    }
    let outcome = caught(body).err().unwrap_or(Failure::of(sublet_status::Ok));
    if !error.is_null() {
        // SAFETY: it is not NULL, it is aligned, and the header asks for room for one error.
        unsafe { error.write(outcome.into()) };
    }
    outcome.status
}

#[cfg(any(feature = "std", test))]
fn caught<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What the body was writing is the caller's and, as the status says, undefined: nothing broken is looked at again.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(Err(Failure::of(sublet_status::Panicked)))
}

/// Without the standard library a panic ends in the handler: there is nothing to catch.
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
        let status = boundary(&raw mut error, || panic!("a fault, for the test"));
        assert_eq!((status, error.status), (sublet_status::Panicked, sublet_status::Panicked as i32));
    }

    #[test]
    fn success_clears_the_error() {
        let mut error = Failure::of(sublet_status::ZeroSize).into();
        assert_eq!(boundary(&raw mut error, || Ok(())), sublet_status::Ok);
        assert_eq!(error, NONE);
    }

    #[test]
    fn an_error_that_is_nowhere_is_not_written() {
        let failing = || Err(Failure::of(sublet_status::ZeroSize));
        assert_eq!(boundary(core::ptr::null_mut(), failing), sublet_status::ZeroSize);
        let mut errors = [NONE; 2];
        let between = (&raw mut errors).cast::<sublet_error>().wrapping_byte_add(1);
        assert_eq!(boundary(between, failing), sublet_status::MisalignedPointer);
        assert_eq!(errors, [NONE; 2]);
    }
}
