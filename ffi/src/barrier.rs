//! A memory barrier in all threads of the process at once, so that a thread that does something often needs none.
//!
//! On Linux this is `membarrier`, a few microseconds for who asks. A process that was forbidden to ask after it had been
//! allowed to (a sandbox) changes the protection of a page instead: for that the system interrupts the processors on
//! which its threads run, on x86-64. Other processors need no interrupt for it: there it waits for longer than any store
//! stays on its way.

/// Whether there is such a barrier here; the first call asks the system.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn is_there() -> bool {
    static THERE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *THERE.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
}

#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn all_threads() {
    let ask = || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    // The child of a fork may have to register anew.
    if !(ask() || (membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask())) {
        by_protection();
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(target_os = "linux", not(miri)))]
#[cold]
fn by_protection() {
    let page = if cfg!(target_arch = "x86_64") { crate::system::alloc(1, 1).ok() } else { None };
    let Some(page) = page else { return std::thread::sleep(std::time::Duration::from_millis(10)) };
    // SAFETY: a page of this function's own. Written, it is mapped, so that taking the right to write takes effect.
    unsafe {
        page.cast::<u8>().write_volatile(1);
        libc::mprotect(page, 1, libc::PROT_READ);
        crate::system::free(page, 1, 1);
    }
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) const fn is_there() -> bool {
    false
}

#[cfg(any(not(target_os = "linux"), miri))]
pub(crate) const fn all_threads() {}
