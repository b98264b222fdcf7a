//! A lock: lets all threads use a handle, one at a time.
//!
//! With the standard library the lock is a `Mutex`: one atomic word, taken and released by one instruction each while
//! nobody else wants it; a thread that has to wait spins for a moment and then parks. Without the standard library a
//! thread that has to wait spins.
//!
//! Whoever holds the lock may call functions of the user. Such a function must not wait for the same lock, which would
//! never be released. A [`Caller`] notes which thread is in such a function, so that the lock can refuse it.

use core::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use kind::Lock;

/// The thread in a function of the user with a lock held; 0 if none. It would wait for itself.
pub(crate) struct Caller(AtomicUsize);

#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) struct Busy;

impl Caller {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    pub(crate) fn during<R>(&self, body: impl FnOnce() -> R) -> R {
        self.0.store(kind::this_thread(), Ordering::Relaxed);
        let result = body();
        self.0.store(0, Ordering::Relaxed);
        result
    }

    /// Right despite races, because no other thread stores this thread's number.
    fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) == kind::this_thread()
    }
}

#[cfg(any(feature = "std", test))]
mod kind {
    use std::sync::{Mutex, MutexGuard, TryLockError};

    use super::Caller;
    use crate::failure::Failure;
    use crate::status::sublet_status as S;

    pub(crate) struct Lock<T> {
        mutex: Mutex<T>,
        caller: &'static Caller,
    }

    pub(super) fn this_thread() -> usize {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| (&raw const *here).addr())
    }

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T, caller: &'static Caller) -> Self {
            Self { mutex: Mutex::new(value), caller }
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
            let mut guard = match self.mutex.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::WouldBlock) => self.wait()?,
                Err(TryLockError::Poisoned(_)) => return Err(Failure::of(S::Panicked)),
            };
            body(&mut guard)
        }

        #[cold]
        fn wait(&self) -> Result<MutexGuard<'_, T>, Failure> {
            if self.caller.is_here() {
                return Err(Failure::of(S::Reentrant));
            }
            self.mutex.lock().map_err(|_| Failure::of(S::Panicked))
        }

        /// `None` where the fork need not wait: the lock is this thread's, or closed by a panic.
        #[cfg(unix)]
        pub(crate) fn hold(&self) -> Result<Option<MutexGuard<'_, T>>, super::Busy> {
            match self.mutex.try_lock() {
                Ok(guard) => Ok(Some(guard)),
                Err(TryLockError::Poisoned(_)) => Ok(None),
                Err(TryLockError::WouldBlock) => {
                    if self.caller.is_here() {
                        Ok(None)
                    } else {
                        Err(super::Busy)
                    }
                }
            }
        }
    }
}

#[cfg(not(any(feature = "std", test)))]
mod kind {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicBool, Ordering};

    use super::Caller;
    use crate::failure::Failure;
    use crate::status::sublet_status as S;

    pub(crate) struct Lock<T> {
        taken: AtomicBool,
        caller: &'static Caller,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached by whoever has set `taken`, one at a time, and may go from thread to thread.
    unsafe impl<T: Send> Sync for Lock<T> {}

    /// Always 1: without an operating system, threads cannot be told apart.
    pub(super) const fn this_thread() -> usize {
        1
    }

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T, caller: &'static Caller) -> Self {
            Self { taken: AtomicBool::new(false), caller, value: UnsafeCell::new(value) }
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
            while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
                if self.caller.is_here() {
                    return Err(Failure::of(S::Reentrant));
                }
                core::hint::spin_loop();
            }
            // SAFETY: `taken` is ours until it is given back.
            let done = body(unsafe { &mut *self.value.get() });
            self.taken.store(false, Ordering::Release);
            done
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Failure;
    use crate::status::sublet_status as S;

    #[test]
    fn after_a_panic_it_stays_closed() {
        static CALLER: Caller = Caller::new();
        let lock = Lock::new(1, &CALLER);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.with(|_| -> Result<(), Failure> { panic!("a fault, for the test") })
        }));
        assert!(broken.is_err());
        assert_eq!(lock.with(|n| Ok(*n)), Err(Failure::of(S::Panicked)));
    }

    #[test]
    fn who_is_called_while_it_is_held_is_refused_and_others_wait() {
        static CALLER: Caller = Caller::new();
        let lock = Lock::new(1, &CALLER);
        std::thread::scope(|scope| {
            let other = lock.with(|n| {
                let again = CALLER.during(|| lock.with(|n| Ok(*n)));
                assert_eq!(again, Err(Failure::of(S::Reentrant)));
                let other = CALLER.during(|| scope.spawn(|| lock.with(|n| Ok(*n))));
                *n = 2;
                Ok(other)
            });
            assert_eq!(other.unwrap().join().unwrap(), Ok(2));
        });
        assert_eq!(lock.with(|n| Ok(*n)), Ok(2));
    }
}
