//! A process that forks while other threads allocate: the child has its allocators whole and free.
//!
//! The child of a fork has one thread. A lock that another thread held would never be given back, over a value that was
//! half changed. So the forking thread first holds the locks of all allocators, and lets go of them in both processes.
//! This list of allocators is the one thing in the library that is shared by all calls.

#[cfg(all(unix, any(feature = "std", test)))]
mod kind {
    use std::cell::UnsafeCell;
    use std::sync::{Mutex, MutexGuard, Once, PoisonError};

    /// What can be held during a fork.
    pub(crate) trait Held: Sync {
        /// Holds it, if nobody else does; a guard that is dropped in both processes.
        fn hold(&self) -> Option<Box<dyn Guard + '_>>;
    }

    /// A lock that is held.
    pub(crate) trait Guard {}
    impl<T> Guard for Option<MutexGuard<'_, T>> {}

    type List = Vec<&'static dyn Held>;

    static LIST: Mutex<List> = Mutex::new(Vec::new());

    /// What the forking thread holds: the lock of each in the list, and the list.
    type All = (Vec<Box<dyn Guard>>, MutexGuard<'static, List>);

    struct Forking(UnsafeCell<Option<All>>);

    // SAFETY: it is reached by the one thread that holds the list, between the two ends of its fork.
    unsafe impl Sync for Forking {}

    static FORKING: Forking = Forking(UnsafeCell::new(None));

    fn list() -> MutexGuard<'static, List> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often one lock is tried before all are let go: whoever has it may be waiting for the list.
    const TRIES: u32 = 1000;

    /// All locks, or none if one cannot be had.
    fn all(list: &List) -> Option<Vec<Box<dyn Guard>>> {
        let held = |&one: &&'static dyn Held| {
            (0..TRIES).find_map(|_| {
                let guard = one.hold();
                if guard.is_none() {
                    std::thread::yield_now();
                }
                guard
            })
        };
        list.iter().map(held).collect()
    }

    extern "C" fn before() {
        loop {
            let list = list();
            if let Some(guards) = all(&list) {
                // SAFETY: this thread holds the list.
                unsafe { *FORKING.0.get() = Some((guards, list)) };
                return;
            }
            drop(list);
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    extern "C" fn after() {
        // SAFETY: this thread, which `before` has run in, still holds the list.
        drop(unsafe { (*FORKING.0.get()).take() });
    }

    /// From here on forks wait for it, and it for them.
    pub(crate) fn enter(one: &'static dyn Held) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: functions that live as long as the library; it takes them back when it is unloaded.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        });
        list().push(one);
    }

    /// It is no longer held.
    pub(crate) fn leave(one: &dyn Held) {
        list().retain(|&other| !std::ptr::addr_eq(other, one));
    }
}

#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) use kind::{Guard, Held, enter, leave};
