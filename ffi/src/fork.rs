//! Keeps allocators usable in the child of a fork: whole, and not locked, even if other threads were allocating.
//!
//! The child of a fork has one thread. A lock that another thread held would never be released there, and what the lock
//! guards would be half changed. So the forking thread first takes the locks of all allocators, and releases them in
//! both processes after the fork. To find these locks there is a list of all allocators. Apart from the devices in
//! `torch.rs`, this list is the only global state of this crate.

#[cfg(all(unix, any(feature = "std", test)))]
mod kind {
    use std::cell::UnsafeCell;
    use std::sync::{Mutex, MutexGuard, Once, PoisonError};

    /// A lock that a thread takes before it forks and releases after the fork, so that what it guards is whole and not
    /// locked in the child process.
    pub(crate) trait Held: Sync {
        /// Takes the lock before a fork; `None` if another thread has it. The guard is dropped after the fork, in the
        /// parent process and in the child.
        fn hold(&self) -> Option<Box<dyn Guard + '_>>;
    }

    /// A lock that is taken; dropping the guard releases it.
    pub(crate) trait Guard {}
    impl<T> Guard for Option<MutexGuard<'_, T>> {}

    type List = Vec<&'static dyn Held>;

    static LIST: Mutex<List> = Mutex::new(Vec::new());

    /// The locks that are held during a fork: those of all allocators, and that of the list of allocators itself.
    type All = (Vec<Box<dyn Guard>>, MutexGuard<'static, List>);

    struct Forking(UnsafeCell<Option<All>>);

    // SAFETY: it is reached by the one thread that holds the list, between the two ends of its fork.
    unsafe impl Sync for Forking {}

    static FORKING: Forking = Forking(UnsafeCell::new(None));

    fn list() -> MutexGuard<'static, List> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the thread that forks tries to take an allocator's lock. If that fails each time, the thread releases
    /// all locks that it has taken, including the lock of the list of allocators, and starts over later. Otherwise
    /// there could be a deadlock: the thread that has the allocator's lock may be waiting for the list.
    const TRIES: u32 = 1000;

    /// Takes the locks of all allocators in the list. If one of them cannot be taken, releases the others and returns
    /// `None`.
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

    /// Adds an allocator to the list of the allocators whose locks are taken before a fork. From now on each fork waits
    /// for the lock of this allocator.
    pub(crate) fn enter(one: &'static dyn Held) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: functions that live as long as the library; it takes them back when it is unloaded.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        });
        list().push(one);
    }

    /// Removes an allocator from the list of the allocators whose locks are taken before a fork.
    pub(crate) fn leave(one: &dyn Held) {
        list().retain(|&other| !std::ptr::addr_eq(other, one));
    }
}

#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) use kind::{Guard, Held, enter, leave};
