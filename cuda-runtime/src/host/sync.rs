//! What threads share. The unit tests of this crate run under `shuttle`, which decides who goes on when.

#[cfg(not(test))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub(super) use std::thread;

#[cfg(test)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(super) use shuttle::thread;

use std::sync::PoisonError;

/// Locks; what a thread left that panicked is a fault of the device, which the state tells.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
