//! A lock: lets all threads use a handle, one at a time.
//!
//! With the standard library the lock is a `Mutex` with a bias (Kawachiya, Koseki and Onodera 2002, "Lock reservation"):
//! a thread that was alone for a while becomes the owner, which enters and leaves by plain loads and stores. Any other
//! thread takes the mutex, ends the ownership, and waits until the owner is outside. Between an owner's store and its
//! load there must then be a barrier: who ends the ownership has the system put one into all threads ([`barrier`]).
//! Where the system has none, or ownerships have ended too often, the lock is the mutex, one atomic instruction each
//! way; a thread that has to wait spins for a moment and then parks. Without the standard library it spins.
//!
//! An ended owner may stay anywhere between its loads and stores, for any time. So each ownership has a place of its own
//! that its owner stores to, which nobody looks at any more once the next has begun, and there are few of them.
//!
//! [`barrier`]: crate::barrier
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
    pub(crate) fn is_here(&self) -> bool {
        self.0.load(Ordering::Relaxed) == kind::this_thread()
    }
}

#[cfg(any(feature = "std", test))]
mod kind {
    use core::cell::UnsafeCell;
    use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering, compiler_fence};
    use std::sync::{Mutex, MutexGuard, TryLockError};

    use super::Caller;
    use crate::barrier;
    use crate::failure::Failure;
    use crate::status::sublet_status as S;

    pub(crate) struct Lock<T> {
        /// The owner's number and, in its low bits, that of its place; 0 if there is no owner.
        owner: AtomicUsize,
        places: [AtomicU8; OWNERSHIPS],
        mutex: Mutex<Uses>,
        caller: &'static Caller,
        value: UnsafeCell<T>,
    }

    /// As many as the low bits of a thread's number can tell apart.
    const OWNERSHIPS: usize = align_of::<u64>();

    const OUTSIDE: u8 = 0;
    const INSIDE: u8 = 1;
    /// The owner has panicked inside.
    const GONE: u8 = 2;

    pub(crate) struct Uses {
        last: usize,
        in_a_row: u32,
        ended: usize,
        /// The place of an ended owner that is not known to be outside.
        ending: Option<usize>,
    }

    /// Uses of the mutex in a row by which a thread becomes the first owner; twice as many for each later one.
    const IN_A_ROW: u32 = 256;

    // SAFETY: the value is reached by one thread at a time, and may go from thread to thread.
    unsafe impl<T: Send> Sync for Lock<T> {}

    /// A multiple of `OWNERSHIPS` that no other living thread has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "one instruction, in a path of a few nanoseconds")]
    pub(super) fn this_thread() -> usize {
        #[cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri)))]
        {
            let block: usize;
            // SAFETY: the ABI of x86-64 has the address of the thread's block at its begin.
            unsafe {
                core::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, pure, readonly, preserves_flags));
            }
            block
        }
        #[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64", not(miri))))]
        {
            thread_local!(static HERE: u64 = const { 0 });
            HERE.with(|here| (&raw const *here).addr())
        }
    }

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T, caller: &'static Caller) -> Self {
            Self {
                owner: AtomicUsize::new(0),
                places: [const { AtomicU8::new(OUTSIDE) }; OWNERSHIPS],
                mutex: Mutex::new(Uses { last: 0, in_a_row: 0, ended: 0, ending: None }),
                caller,
                value: UnsafeCell::new(value),
            }
        }

        /// Once no other thread has the lock. Fails if this thread has it, or if a panic may have broken the value.
        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
            if let Some(inside) = self.enter() {
                // SAFETY: this thread is the owner and inside: who ends that waits until it is outside.
                let done = body(unsafe { &mut *self.value.get() });
                inside.leave();
                return done;
            }
            let mut uses = self.lock()?;
            // SAFETY: the mutex is held, and there is no owner.
            let done = body(unsafe { &mut *self.value.get() });
            // Not before the body: what it calls must not enter as the owner.
            self.count(&mut uses);
            done
        }

        /// As its owner. `None` if this thread is not: a path of a few nanoseconds, without the mutex and its calls.
        #[inline]
        pub(crate) fn at_once<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            let inside = self.enter()?;
            // SAFETY: as in `with`.
            let done = body(unsafe { &mut *self.value.get() });
            inside.leave();
            Some(done)
        }

        pub(crate) const fn caller(&self) -> &Caller {
            self.caller
        }

        #[cfg(test)]
        pub(super) fn is_own(&self) -> bool {
            self.enter().map(Inside::leave).is_some()
        }

        #[inline]
        fn enter(&self) -> Option<Inside<'_>> {
            let owner = self.owner.load(Ordering::Relaxed);
            let number = owner % OWNERSHIPS;
            let place = &self.places[number];
            if owner - number != this_thread() || place.load(Ordering::Relaxed) != OUTSIDE {
                return None;
            }
            place.store(INSIDE, Ordering::Relaxed);
            // For the compiler; `barrier::all_threads` is the processor's.
            compiler_fence(Ordering::SeqCst);
            let inside = Inside(place);
            if self.owner.load(Ordering::Relaxed) == owner {
                return Some(inside);
            }
            inside.leave();
            None
        }

        #[inline]
        fn lock(&self) -> Result<MutexGuard<'_, Uses>, Failure> {
            // Before it waits: the mutex's holder may wait for this thread to be outside.
            if self.caller.is_here() {
                return Err(Failure::of(S::Reentrant));
            }
            let mut uses = self.mutex.lock().map_err(|_| Failure::of(S::Panicked))?;
            let mut spins = 0;
            while !self.has_no_owner(&mut uses)? {
                pause(&mut spins);
            }
            Ok(uses)
        }

        #[inline]
        fn count(&self, uses: &mut Uses) {
            let here = this_thread();
            uses.in_a_row = if uses.last == here { uses.in_a_row + 1 } else { 0 };
            uses.last = here;
            if uses.in_a_row > IN_A_ROW << uses.ended && uses.ended < OWNERSHIPS && barrier::is_there() {
                uses.in_a_row = 0;
                self.owner.store(here + uses.ended, Ordering::Relaxed);
            }
        }

        #[inline]
        fn has_no_owner(&self, uses: &mut Uses) -> Result<bool, Failure> {
            let owner = self.owner.load(Ordering::Relaxed);
            if owner == 0 && uses.ending.is_none() { Ok(true) } else { self.end_ownership(owner, uses) }
        }

        /// No thread enters as the owner from here on. Whether none is inside any more.
        #[cold]
        fn end_ownership(&self, owner: usize, uses: &mut Uses) -> Result<bool, Failure> {
            if owner != 0 {
                self.owner.store(0, Ordering::Relaxed);
                uses.ended += 1;
                uses.ending = Some(owner % OWNERSHIPS);
                barrier::all_threads();
            }
            let place = uses.ending.and_then(|number| self.places.get(number));
            match place.map_or(OUTSIDE, |place| place.load(Ordering::Acquire)) {
                INSIDE => return Ok(false),
                GONE => return Err(Failure::of(S::Panicked)),
                _ => uses.ending = None,
            }
            Ok(true)
        }

        /// Does not wait. `None` if this thread has the lock, or a panic has closed it: a fork need not wait.
        #[cfg(unix)]
        pub(crate) fn hold(&self) -> Result<Option<MutexGuard<'_, Uses>>, super::Busy> {
            if self.caller.is_here() {
                return Ok(None);
            }
            let mut uses = match self.mutex.try_lock() {
                Ok(uses) => uses,
                Err(TryLockError::Poisoned(_)) => return Ok(None),
                Err(TryLockError::WouldBlock) => return Err(super::Busy),
            };
            let owner = self.owner.load(Ordering::Relaxed);
            if owner - owner % OWNERSHIPS == this_thread() {
                // It forks, and is not inside.
                return Ok(Some(uses));
            }
            match self.has_no_owner(&mut uses) {
                Ok(true) => Ok(Some(uses)),
                Ok(false) => Err(super::Busy),
                Err(_) => Ok(None),
            }
        }
    }

    /// The owner is inside; if it panics there, the lock is closed for good.
    struct Inside<'a>(&'a AtomicU8);

    impl Inside<'_> {
        #[inline]
        fn leave(self) {
            self.0.store(OUTSIDE, Ordering::Release);
            core::mem::forget(self);
        }
    }

    impl Drop for Inside<'_> {
        #[cold]
        fn drop(&mut self) {
            self.0.store(GONE, Ordering::Release);
        }
    }

    fn pause(spins: &mut u32) {
        *spins += 1;
        match *spins {
            ..100 => core::hint::spin_loop(),
            100..200 => std::thread::yield_now(),
            _ => std::thread::sleep(std::time::Duration::from_micros(50)),
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

        /// `None` if it is taken.
        #[inline]
        pub(crate) fn at_once<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
            // SAFETY: as in `with`.
            let done = body(unsafe { &mut *self.value.get() });
            self.taken.store(false, Ordering::Release);
            Some(done)
        }

        pub(crate) const fn caller(&self) -> &Caller {
            self.caller
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

    /// Uses a lock for so long that this thread becomes its owner, where the system lets it.
    fn own<T: Copy>(lock: &Lock<T>) -> bool {
        (0..300).all(|_| lock.with(|n| Ok(*n)).is_ok()) && lock.is_own()
    }

    #[test]
    fn an_owner_that_panics_inside_closes_it_for_all() {
        static CALLER: Caller = Caller::new();
        let lock = Lock::new(1, &CALLER);
        assert_eq!(own(&lock), crate::barrier::is_there());
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lock.with(|_| -> Result<(), Failure> { panic!("a fault, for the test") })
        }));
        assert!(broken.is_err());
        let closed = || lock.with(|n| Ok(*n)) == Err(Failure::of(S::Panicked)) && !lock.is_own();
        assert!(closed() && std::thread::scope(|scope| scope.spawn(closed).join().unwrap()) && closed());
    }

    #[test]
    fn an_owner_in_a_function_of_the_user_is_refused_and_others_wait() {
        static CALLER: Caller = Caller::new();
        let lock = Lock::new(1, &CALLER);
        own(&lock);
        std::thread::scope(|scope| {
            let other = lock.with(|n| {
                let other = CALLER.during(|| scope.spawn(|| lock.with(|n| Ok(*n))));
                // Before and after the other thread has ended the ownership.
                for _ in 0..50 {
                    let again = CALLER.during(|| lock.with(|n| Ok(*n)));
                    assert_eq!(again, Err(Failure::of(S::Reentrant)));
                    assert!(!lock.is_own());
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
                *n = 2;
                Ok(other)
            });
            assert_eq!(other.unwrap().join().unwrap(), Ok(2));
        });
    }

    #[test]
    fn owners_come_and_go_and_one_thread_is_inside() {
        static CALLER: Caller = Caller::new();
        for others in 1..4 {
            let lock = Lock::new([0u64; 2], &CALLER);
            let add = |times: usize| {
                for _ in 0..times {
                    let one = |[a, b]: &mut [u64; 2]| {
                        assert_eq!(a, b);
                        *a += 1;
                        core::hint::black_box(&mut *a);
                        *b += 1;
                        Ok(())
                    };
                    // As an owner, or else with the mutex.
                    lock.at_once(one).unwrap_or_else(|| lock.with(one)).unwrap();
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..others {
                    // Alone for a while, then beside the others, then alone again.
                    scope.spawn(|| (0..20).for_each(|round| add(if round % 2 == 0 { 3000 } else { 50 })));
                }
                add(20_000);
            });
            assert_eq!(lock.with(|n| Ok(*n)), Ok([20_000 + others * 30_500; 2]));
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_fork_leaves_the_owner_and_waits_for_no_one() {
        static CALLER: Caller = Caller::new();
        let lock = Lock::new(1, &CALLER);
        let is_owner = own(&lock);
        assert!(lock.hold().is_ok_and(|held| held.is_some()));
        assert_eq!(lock.is_own(), is_owner);
        let inside = lock.with(|_| {
            let own = CALLER.during(|| lock.hold().is_ok_and(|held| held.is_none()));
            let other = std::thread::scope(|scope| scope.spawn(|| lock.hold().is_err()).join().unwrap());
            Ok(own && other)
        });
        assert_eq!(inside, Ok(true));
    }
}
