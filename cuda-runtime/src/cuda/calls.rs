//! Host calls: functions that run on the host in a stream's order. The driver is given only a number, and the function
//! is kept here: so it can be freed even if a lost device never reaches the call.

use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::backend::Call;

#[derive(Default)]
struct Pending {
    last: usize,
    calls: Option<HashMap<usize, (u64, Call)>>,
}

static PENDING: Mutex<Pending> = Mutex::new(Pending { last: 0, calls: None });

fn pending() -> MutexGuard<'static, Pending> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver is given the call's number in place of a pointer.
pub(super) fn keep(backend: u64, call: Call) -> *mut c_void {
    let mut pending = pending();
    pending.last += 1;
    let number = pending.last;
    pending.calls.get_or_insert_default().insert(number, (backend, call));
    std::ptr::without_provenance_mut(number)
}

pub(super) fn take(number: *mut c_void) -> Option<Call> {
    pending().calls.as_mut()?.remove(&number.addr()).map(|(_, call)| call)
}

/// If the device is lost, no stream will reach them.
pub(super) fn forget(backend: u64) {
    let of_backend = |_: &usize, call: &mut (u64, Call)| call.0 == backend;
    let forgotten: Vec<_> =
        pending().calls.as_mut().map_or_else(Vec::new, |calls| calls.extract_if(of_backend).collect());
    // Not while the calls are locked: what a function holds may be the last of another backend, which comes here too.
    drop(forgotten);
}

pub(super) unsafe extern "C" fn made(number: *mut c_void) {
    if let Some(call) = take(number) {
        // No panic crosses into the driver; whoever gave the call sees that it did not complete.
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}
