//! Calls of the host in a stream's order. The driver is given a number, and the call is kept here: so nothing is leaked
//! if a lost device never calls.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Call;

/// Host calls that have not been made yet: by the call's number, the number of its backend, and the call. `last` is the
/// last number given.
#[derive(Default)]
struct Pending {
    last: usize,
    calls: Option<HashMap<usize, (u64, Call)>>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { last: 0, calls: None });

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a call until the driver asks for it; returns the number by which the driver does.
pub(super) fn keep(backend: u64, call: Call) -> *mut c_void {
    let mut pending = pending();
    pending.last += 1;
    let number = pending.last;
    pending.calls.get_or_insert_default().insert(number, (backend, call));
    std::ptr::without_provenance_mut(number)
}

/// Takes a call that was kept, by its number.
pub(super) fn take(number: *mut c_void) -> Option<Call> {
    pending().calls.as_mut()?.remove(&number.addr()).map(|(_, call)| call)
}

/// Drops the calls that a backend's device has never made.
pub(super) fn forget(backend: u64) {
    if let Some(calls) = &mut pending().calls {
        calls.retain(|_, (of, _)| *of != backend);
    }
}

/// The function that the driver calls in the stream's order: it makes the kept call of this number.
pub(super) unsafe extern "C" fn made(number: *mut c_void) {
    if let Some(call) = take(number) {
        // No panic crosses into the driver; whoever gave the call sees that it did not complete.
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}
