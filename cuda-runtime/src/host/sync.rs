//! Locks, condition variables and threads. In the unit tests of this crate `shuttle` provides them: it decides which
//! thread goes on, and so tries many orders.

#[cfg(not(test))]
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(test))]
pub(super) use std::thread;

#[cfg(test)]
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
#[cfg(test)]
pub(super) use shuttle::thread;

use std::sync::PoisonError;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
