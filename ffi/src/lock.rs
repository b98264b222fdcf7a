//! One thread at a time: what makes a handle one that all threads may use.
//!
//! With the standard library this is its mutex: one atomic word, taken and given back by one instruction each as long as
//! nobody else wants it; who has to wait spins for a moment and then parks. Without it, who has to wait spins.

use crate::error::Failure;
use crate::status::sublet_status as S;

pub(crate) use kind::Lock;

#[cfg(any(feature = "std", test))]
mod kind {
    use std::sync::Mutex;

    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        /// Does something while nobody else does; fails if a panic has left the value as it may not be.
        #[inline]
        pub(crate) fn with<R>(
            &self,
            body: impl FnOnce(&mut T) -> Result<R, super::Failure>,
        ) -> Result<R, super::Failure> {
            body(&mut *self.0.lock().map_err(|_| super::Failure::of(super::S::Panicked))?)
        }
    }
}

#[cfg(not(any(feature = "std", test)))]
mod kind {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct Lock<T> {
        taken: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached by whoever has set `taken`, one at a time, and may go from thread to thread.
    unsafe impl<T: Send> Sync for Lock<T> {}

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self { taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
        }

        /// Does something while nobody else does.
        #[inline]
        pub(crate) fn with<R>(
            &self,
            body: impl FnOnce(&mut T) -> Result<R, super::Failure>,
        ) -> Result<R, super::Failure> {
            while self.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
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

    #[test]
    fn after_a_panic_it_stays_closed() {
        let lock = Lock::new(1);
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.with(|_| -> Result<(), Failure> { panic!("a fault, for the test") })
        }));
        assert!(broken.is_err());
        assert_eq!(lock.with(|n| Ok(*n)), Err(Failure::of(S::Panicked)));
    }
}
