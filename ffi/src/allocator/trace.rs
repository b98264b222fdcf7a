//! Records the requests of an allocator as a trace, and writes the trace as text.

use core::ffi::c_char;

use super::{looked_at, sublet_allocator, within};
use crate::boundary::boundary;
use crate::error::{Failure, Text, sublet_error};
use crate::profile::Profile;
use crate::status::{sublet_status, sublet_status as S};

/// Begins to record the allocator's requests as a new trace; the previous trace is lost. Blocks that are alive already
/// are no part of the new one. A trace takes memory of the system, about 100 bytes for each request, until the next one
/// begins or the allocator is destroyed. SUBLET_STATUS_UNAVAILABLE: this library was built without the standard
/// library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_trace_begin(
    allocator: *mut sublet_allocator,
    error: *mut sublet_error,
) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            if !Profile::IS_AVAILABLE {
                return Err(Failure::of(S::Unavailable));
            }
            inner.profile.begin();
            Ok(())
        })
    }
}

/// Ends the trace that sublet_trace_begin has begun: later requests are no part of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_trace_end(allocator: *mut sublet_allocator, error: *mut sublet_error) -> sublet_status {
    // SAFETY: the header asks for an allocator that lives.
    unsafe {
        within(allocator, error, |inner| {
            inner.profile.end();
            Ok(())
        })
    }
}

/// Writes the allocator's trace, which sublet_trace_begin began, as CSV that the command line reads (`sublet plan
/// trace.csv`), ended by a zero byte.
///
/// `needed`, which may be NULL, receives the bytes that the whole text takes with its zero byte. If `capacity` is less,
/// the text is cut, still ended by a zero byte, and the status is SUBLET_STATUS_BUFFER_TOO_SMALL. With a capacity of 0
/// only `needed` is written, and the call succeeds. SUBLET_STATUS_UNAVAILABLE: this library was built without the
/// standard library.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sublet_export_trace(
    allocator: *const sublet_allocator,
    buffer: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: *mut sublet_error,
) -> sublet_status {
    boundary(error, |arguments| {
        // SAFETY: the header asks for an allocator that lives.
        let handle = unsafe { looked_at(allocator, arguments)? };
        // SAFETY: the header asks for pointers that hold what their lengths say.
        let (buffer, needed) = unsafe { (arguments.output(buffer, capacity)?, arguments.optional(needed)?) };
        let mut text = Text { buffer, len: 0 };
        if !Profile::IS_AVAILABLE {
            return Err(Failure::of(S::Unavailable));
        }
        handle.inner.with(|inner| {
            inner.profile.write(&mut text);
            Ok(())
        })?;
        text.finish(1, needed)
    })
}
