//! Host calls: functions that run on the host in a stream's order. The driver is given only a number, and the function
//! is kept here: so it can be freed even if a lost device never reaches the call.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Call;

/// The host calls that no stream has made yet. Each has a number, and `last` is the last number given. `calls` has
/// under the number of each call a pair: the number of the backend whose stream is to make the call, and the function
/// to run.
#[derive(Default)]
struct Pending {
    last: usize,
    calls: Option<HashMap<usize, (u64, Call)>>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { last: 0, calls: None });

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps a host call, a function to run on the host in a stream's order, until the stream reaches it. `backend` is the
/// number of the backend that the stream belongs to. Returns the call's number, which the driver is given in place of a
/// pointer.
pub(super) fn keep(backend: u64, call: Call) -> *mut c_void {
    let mut pending = pending();
    pending.last += 1;
    let number = pending.last;
    pending.calls.get_or_insert_default().insert(number, (backend, call));
    std::ptr::without_provenance_mut(number)
}

/// Removes the function that was kept under this number for a stream to run on the host, and returns it; `None` if it
/// has been taken or dropped already.
pub(super) fn take(number: *mut c_void) -> Option<Call> {
    pending().calls.as_mut()?.remove(&number.addr()).map(|(_, call)| call)
}

/// Drops the functions of one backend that streams have not run on the host yet; they will never run. `backend` is the
/// backend's number. Called when the backend and all that it made are dropped: if its device is lost, no stream will
/// reach them.
pub(super) fn forget(backend: u64) {
    let of_backend = |_: &usize, call: &mut (u64, Call)| call.0 == backend;
    let forgotten: Vec<_> =
        pending().calls.as_mut().map_or_else(Vec::new, |calls| calls.extract_if(of_backend).collect());
    // Not while the calls are locked: what a function holds may be the last of another backend, which comes here too.
    drop(forgotten);
}

/// The function that the driver calls when a stream reaches a host call: it runs the function that [`keep`] has kept
/// under this number, unless that has been dropped.
pub(super) unsafe extern "C" fn made(number: *mut c_void) {
    if let Some(call) = take(number) {
        // No panic crosses into the driver; whoever gave the call sees that it did not complete.
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}
