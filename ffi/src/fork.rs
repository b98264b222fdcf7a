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

    /// Held during a fork, so that the child finds what it guards whole and not locked.
    pub(crate) trait Held: Sync {
        /// `None` if another thread has it. Dropped after the fork, in parent and child.
        fn hold(&self) -> Option<Box<dyn Guard + '_>>;
    }

    pub(crate) trait Guard {}
    impl<T> Guard for Option<MutexGuard<'_, T>> {}

    type List = Vec<&'static dyn Held>;

    static LIST: Mutex<List> = Mutex::new(Vec::new());

    type All = (Vec<Box<dyn Guard>>, MutexGuard<'static, List>);

    struct Forking(UnsafeCell<Option<All>>);

    // SAFETY: it is reached by the one thread that holds the list, between the two ends of its fork.
    unsafe impl Sync for Forking {}

    static FORKING: Forking = Forking(UnsafeCell::new(None));

    fn list() -> MutexGuard<'static, List> {
        LIST.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Then all locks are released: the allocator's thread may be waiting for the list.
    const TRIES: u32 = 1000;

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

    pub(crate) fn enter(one: &'static dyn Held) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: functions that live as long as the library; it takes them back when it is unloaded.
            unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        });
        list().push(one);
    }

    pub(crate) fn leave(one: &dyn Held) {
        list().retain(|&other| !std::ptr::addr_eq(other, one));
    }
}

#[cfg(all(unix, any(feature = "std", test)))]
pub(crate) use kind::{Guard, Held, enter, leave};
